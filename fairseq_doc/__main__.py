"""``python -m fairseq_doc`` prints the folder for fairseq's option ``--user-dir``."""

import os

import fairseq_doc

if __name__ == "__main__":
    print(os.path.dirname(os.path.abspath(fairseq_doc.__file__)))
