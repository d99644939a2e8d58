#!/usr/bin/env python3
"""WikiText-2 as raw text, one sentence per line: python sentences.py WIKITEXT2 NEW_FOLDER

Headings are removed. Paragraphs are cut after a full stop, question or exclamation mark, unless a
lower-case word follows. The joiners @-@ @,@ @.@ are undone, and Moses undoes the tokenisation.
<unk> stays a word of its own.
"""

import re
import sys
from pathlib import Path

from sacremoses import MosesDetokenizer

JOINERS = re.compile(r" @([-,.])@ ")
SENTENCE_END = re.compile(r'(?<= [.?!]) (?=[^a-z.,;:?!)\]])(?!" )')


def sentences(line, moses):
    """Raw sentences of a tokenised paragraph."""
    for sentence in SENTENCE_END.split(line):
        parts = JOINERS.sub(r"\1", sentence).split("<unk>")
        yield " <unk> ".join(
            moses.detokenize(part.split(), unescape=False) for part in parts
        ).strip()


def main(source, destination):
    """Write the three splits of the folder WIKITEXT2."""
    moses = MosesDetokenizer("en")
    destination.mkdir(parents=True)
    for split in ("train", "valid", "test"):
        with open(source / f"{split}.txt", encoding="utf-8") as lines:
            text = (line.strip() for line in lines)
            raw = [
                sentence
                for line in text
                if line and not line.startswith("=")
                for sentence in sentences(line, moses)
            ]
        (destination / f"{split}.txt").write_text("\n".join(raw) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("expected WIKITEXT2 NEW_FOLDER")
    try:
        main(*map(Path, sys.argv[1:]))
    except OSError as error:
        sys.exit(f"{error.filename}: {error.strerror}")
