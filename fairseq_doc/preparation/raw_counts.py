"""The size of the splits of a data folder as written, that is, of the raw text.

Perplexity per token depends on how a text was cut into tokens. With these counts it becomes figures
that do not: perplexity per word, bits per character, bits per byte.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from fairseq.utils import split_paths

from fairseq_doc import checksums
from fairseq_doc.files import read_text, write_lines
from fairseq_doc.preparation.binarisation import Counts
from fairseq_doc.preparation.data_folder import Say
from fairseq_doc.preparation.text_form import BYTE

NAME = "raw_counts.json"  # {split: its RawCounts}


@dataclass(frozen=True)
class RawCounts:
    """The size of a raw text; a line end is a character and a byte. ``words`` are separated by
    whitespace, ``characters`` are Unicode's code points, ``bytes`` those of UTF-8. ``tokens`` are
    those that the text was cut into, end marks included."""

    lines: int
    words: int
    characters: int
    bytes: int
    tokens: int


def count(lines: Iterable[str], tokens: int) -> RawCounts:
    """The counts of lines with their line feeds; a lone surrogate is a byte that is not UTF-8
    (``surrogateescape``)."""
    number = words = characters = size = 0
    for line in lines:
        number += 1
        words += len(line.split())
        characters += len(line)
        size += len(line.encode("utf-8", "surrogateescape"))
    return RawCounts(number, words, characters, size, tokens)


def with_line_ends(lines: Iterable[str], unit: str) -> Iterator[str]:
    """The lines with a line feed each. Bytes keep a carriage return before it, since the model
    reads it."""
    return (f"{line if unit == BYTE else line.removesuffix(chr(13))}\n" for line in lines)


def write(texts: Mapping[str, Iterable[str]], counts: Counts, folder: Path, say: Say) -> None:
    """Count the lines of each split, see :func:`count`, report the counts and write them."""
    content = {}
    for split, lines in texts.items():
        own = count(lines, counts.splits[split].tokens)
        say(
            f"{split}: {own.lines} lines, {own.words} words, {own.characters} characters and "
            f"{own.bytes} bytes as written"
        )
        content[split] = asdict(own)
    write_lines(folder / NAME, [json.dumps(content, indent=1)])


def read(data: str, split: str) -> RawCounts | None:
    """The counts of a split; None in a folder without them, made by fairseq-preprocess or by an
    earlier version. Raises ``FairseqDocError`` for a file that differs from its checksum."""
    path = Path(split_paths(data)[0]) / NAME
    if not path.exists():
        return None
    checksums.check(path)
    own = json.loads(read_text(path)).get(split)
    return own and RawCounts(**own)


def missing(data: str, split: str) -> str:
    """A remark on a folder without the counts of a split."""
    return (
        f"no perplexity per word and no bits per character: {data} has no counts of {split} in "
        f"{NAME}, which prepare-lm writes"
    )
