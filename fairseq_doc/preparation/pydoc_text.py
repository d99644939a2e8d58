"""The ``pydoc`` topics, the prose that every CPython carries, as a small corpus.

A line is a paragraph, in lower case, with separated punctuation, and ``N`` for numbers.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from fairseq_doc.files import write_lines
from fairseq_doc.preparation.data_folder import Say

TOKEN = re.compile(r"[a-z_]+|\d+|[^\sa-z_\d]")


def paragraphs() -> Iterator[list[str]]:
    """The tokens of every paragraph that is mostly words."""
    from pydoc_data.topics import topics

    for _, text in sorted(topics.items()):
        for paragraph in re.split(r"\n\s*\n", text):
            tokens = ["N" if t.isdigit() else t for t in TOKEN.findall(paragraph.lower())]
            words = sum(token[0].isalpha() for token in tokens)
            if words > max(5, len(tokens) / 2):
                yield tokens


def write(folder: Path, say: Say) -> None:
    """Write train.txt, valid.txt and test.txt, and report their sizes."""
    numbers: dict[str, int] = {}
    for number, tokens in enumerate(paragraphs()):
        numbers.setdefault(" ".join(tokens), number)  # topics repeat some; splits may not share one
    splits: dict[str, list[str]] = {"train": [], "valid": [], "test": []}
    for line, number in numbers.items():
        splits[{0: "valid", 1: "test"}.get(number % 10, "train")].append(line)
    for split, lines in splits.items():
        write_lines(folder / f"{split}.txt", lines)
        tokens_of_split = sum(len(line.split()) + 1 for line in lines)
        say(f"{split}.txt: {len(lines):,} lines, {tokens_of_split:,} tokens")
