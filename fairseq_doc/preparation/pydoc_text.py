"""Write the prose that every CPython carries (the ``pydoc`` topics) as a small corpus.

    python scripts/pydoc_text.py FOLDER     ->  FOLDER/train.txt, valid.txt, test.txt

One sentence-like line a paragraph, lower-cased, punctuation apart, digits as ``N``. Every tenth
paragraph goes to valid, the one after it to test.
"""

import argparse
import re
from pathlib import Path
from pydoc_data.topics import topics

TOKEN = re.compile(r"[a-z_]+|\d+|[^\sa-z_\d]")
PERIOD = 10


def paragraphs():
    """Every paragraph of every topic that is mostly words, as a list of tokens."""
    for _, text in sorted(topics.items()):
        for paragraph in re.split(r"\n\s*\n", text):
            tokens = ["N" if t.isdigit() else t for t in TOKEN.findall(paragraph.lower())]
            words = sum(t[0].isalpha() for t in tokens)
            if words > 5 and words > len(tokens) / 2:
                yield tokens


def main():
    """Read the arguments, do the work, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    splits = {"train": [], "valid": [], "test": []}
    seen = set()
    for number, tokens in enumerate(paragraphs()):
        line = " ".join(tokens)
        if line in seen:  # topics repeat paragraphs: none may be in two splits
            continue
        seen.add(line)
        split = {0: "valid", 1: "test"}.get(number % PERIOD, "train")
        splits[split].append(line)
    folder.mkdir(parents=True, exist_ok=True)
    for split, lines in splits.items():
        (folder / f"{split}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
        tokens = sum(len(line.split()) + 1 for line in lines)
        print(f"{folder / split}.txt: {len(lines):,} lines, {tokens:,} tokens")


if __name__ == "__main__":
    main()
