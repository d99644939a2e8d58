"""fairseq-hydra-train prints our errors in one line, and refuses a YAML file that is missing.

It reads its YAML before it imports ``--user-dir``, but after Hydra has imported the modules of
``hydra_plugins``, as it does in every program that uses it. In others this module does nothing.
"""

import sys
from pathlib import Path

program = Path(sys.argv[0])
if program.name == "fairseq-hydra-train" or program.parts[-2:] == ("fairseq_cli", "hydra_train.py"):
    from fairseq_doc.fairseq_patches import error_messages

    error_messages.apply()
    error_messages.check_settings_file(sys.argv)
