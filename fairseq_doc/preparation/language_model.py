"""Text, one sentence a line, tokens apart, or any text by its bytes -> data for
``--task bptt_language_modeling``."""

import math
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fairseq_doc import checksums
from fairseq_doc.errors import FairseqDocError
from fairseq_doc.files import check_input, copy_file, text_lines, write_lines
from fairseq_doc.preparation import pydoc_text
from fairseq_doc.preparation.binarisation import (
    check_lengths,
    load_dictionary,
    load_split,
    preprocess,
)
from fairseq_doc.preparation.byte_text import (
    binarise_bytes,
    check_not_packed,
    copy_bytes,
    count_bytes,
    line_ends,
    make_dictionary,
)
from fairseq_doc.preparation.byte_tokens import BYTE, UNITS, WORD
from fairseq_doc.preparation.stages import Lines, Say, check_destination, make_stamp, staged

if TYPE_CHECKING:
    from fairseq.data import Dictionary

SPLITS = ("train", "valid", "test")
# Names of a folder's three files: any text's, those of Mikolov's Penn Treebank and of WikiText-2.
_NAMED = [
    [form.format(split) for split in SPLITS] for form in ("{}.txt", "ptb.{}.txt", "wiki.{}.tokens")
]


@dataclass(frozen=True)
class Counts:
    """A published corpus: tokens of each split with one end mark a line, and types with the end
    mark. Of a corpus of bytes: bytes of each split, and kinds of bytes in all three."""

    tokens: dict[str, int]
    types: int


ENWIK8, TEXT, PYDOC = "enwik8", "text", "pydoc"
# Of Penn Treebank the paper's Table 1 prints one token more for each split.
PUBLISHED = {
    "ptb": Counts({"train": 929_589, "valid": 73_760, "test": 82_430}, types=10_000),
    "wikitext2": Counts({"train": 2_088_628, "valid": 217_646, "test": 245_569}, types=33_278),
    ENWIK8: Counts({"train": 90_000_000, "valid": 5_000_000, "test": 5_000_000}, types=205),
}
CORPORA = (*PUBLISHED, TEXT, PYDOC)
MOST_RARE = 5  # occurrences of a rare word, at most
PERCENTAGES = "three percentages above 0 that sum to 100, such as 90,5,5"


@dataclass(frozen=True)
class Settings:
    """What decides the result, with the text itself.

    Attributes:
        corpus: one of ``CORPORA``.
        source: a folder of train.txt, valid.txt and test.txt, or of Mikolov's or WikiText-2's own names;
            for ``enwik8`` a file, whose first bytes are training, the next validation, the last test;
            with ``split`` a file; None for ``pydoc``.
        threshold: tokens that occur less often in training are unknown.
        unit: ``word``, or ``byte``: every byte of the text is a token, the line feed the end mark.
        counts: what is checked, and for ``enwik8`` also the sizes of the splits; None: the published
            counts of the corpus, where it has any.
        split: percentages of the lines of one file of ``text``: the first are training, the next
            validation, the last test; None: a folder of three files.
    """

    corpus: str
    source: Path | None = None
    threshold: int = 0
    unit: str = WORD
    counts: Counts | None = None
    split: tuple[float, ...] | None = None

    @property
    def expected(self) -> Counts | None:
        """The counts that are checked; None: none."""
        return self.counts or PUBLISHED.get(self.corpus)


def check(settings: Settings, destination: Path) -> None:
    """Raise ``FairseqDocError`` where a preparation cannot start: before any work."""
    if settings.threshold < 0:
        raise FairseqDocError(f"--threshold must be at least 0; got {settings.threshold}")
    if settings.unit not in UNITS:
        raise FairseqDocError(f"--unit: expected {' or '.join(UNITS)}; got {settings.unit}")
    if settings.corpus == ENWIK8 and settings.unit != BYTE:
        raise FairseqDocError(f"--unit: expected byte for {ENWIK8}; got {settings.unit}")
    if settings.split is not None:
        _check_split(settings)
    check_destination(destination)
    for path in _files(settings).values():
        check_input(path, again=True)
        if settings.unit == BYTE:
            check_not_packed(path)
    if settings.corpus == ENWIK8:
        _check_size(settings)


def _check_split(settings: Settings) -> None:
    """Raise ``FairseqDocError`` unless ``split`` is of percentages, and for one file of any text."""
    source, split = settings.source, settings.split
    assert split is not None
    if settings.corpus != TEXT or source is None:
        raise FairseqDocError(
            f"--split: expected the corpus {TEXT}, of one file; got {settings.corpus}"
        )
    if len(split) != 3 or not all(part > 0 for part in split) or not math.isclose(sum(split), 100):
        raise FairseqDocError(f"--split: expected {PERCENTAGES}; got {_as_typed(split)}")
    if source.is_dir():
        raise FairseqDocError(
            f"--split: expected a file, which it cuts in three; got the folder {source}"
        )


def _as_typed(split: tuple[float, ...]) -> str:
    """Percentages as ``--split`` takes them."""
    return ",".join(f"{part:g}" for part in split)


def _check_size(settings: Settings) -> None:
    """Raise ``FairseqDocError`` unless the file of ``enwik8`` has as many bytes as its splits."""
    path, counts = settings.source, settings.expected
    assert path is not None and counts is not None
    expected, size = sum(counts.tokens.values()), path.stat().st_size
    if size != expected:
        raise FairseqDocError(
            f"{path}: expected the {expected:,} bytes of {ENWIK8}; got {size:,}; any other file is "
            "prepared by: prepare-lm text FILE --split 90,5,5 --unit byte"
        )


def _files(settings: Settings) -> dict[str, Path]:
    """{name: a file of the text}; of a folder the names are train.txt, valid.txt and test.txt,
    whatever those of the files.

    Raises:
        FairseqDocError: files that are not there.
    """
    source = settings.source
    if source is None:
        return {}
    if settings.corpus == ENWIK8 or settings.split is not None:
        return {settings.corpus: source}
    if not source.is_dir():
        got = "a file" if source.exists() else "nothing of this name"
        if source.exists() and settings.corpus == TEXT:
            got += "; --split 90,5,5 cuts it in three"
        raise FairseqDocError(f"{source}: expected a folder of {', '.join(_NAMED[0])}; got {got}")
    # The most complete set; of equals, max gives the first.
    names = max(_NAMED, key=lambda names: sum((source / name).exists() for name in names))
    missing = [name for name in names if not (source / name).exists()]
    if missing:
        raise FairseqDocError(
            f"expected {', '.join(names)} in {source}; got no {', no '.join(missing)}"
        )
    return {f"{split}.txt": source / name for split, name in zip(SPLITS, names, strict=True)}


def line_lengths(lines: Iterable[str]) -> list[int]:
    """The tokens of every line with its end mark, as ASCII blanks separate them."""
    return [len(line.encode().split()) + 1 for line in lines]


def copy_text(files: dict[str, Path], folder: Path, published: Counts | None = None) -> Lines:
    """Stage ``text``: the text as fairseq-preprocess can read it, decompressed and without a byte
    order mark, which would be a part of the first word.

    Args:
        files: {train.txt, valid.txt, test.txt: a file, compressed by gzip or not}.
        folder: empty, to be filled.
        published: what to count in the text; None for any.

    Yields:
        Lines of what was counted.

    Raises:
        FairseqDocError: text that cannot be used, or other counts than the published ones.
    """
    for name, path in files.items():
        copy = folder / name
        write_lines(copy, text_lines(path))
        expected = None if published is None else published.tokens[copy.stem]
        yield _count_tokens(copy.stem, copy, path, expected)


def _count_tokens(split: str, text: Path, path: Path, expected: int | None) -> str:
    """A line on the tokens of a split.

    Raises:
        FairseqDocError: none in ``text``, or others than expected; it names ``path``.
    """
    lengths = line_lengths(text_lines(text))
    if not lengths:
        raise FairseqDocError(f"expected text in {path}; got an empty file")
    if expected is not None and sum(lengths) != expected:
        raise FairseqDocError(
            f"{path}: expected {expected} tokens, as published; got {sum(lengths)}"
        )
    return f"{split}: {sum(lengths)} tokens with one end mark a line"


def untokenised(lines: Iterable[str]) -> str | None:
    """A warning where more commas are attached to words than separate, as in no tokenised text; else
    None. Only commas count: abbreviations keep their full stop, and French writes a blank before other
    marks."""
    separate = attached = 0
    for line in lines:
        for word in line.split():
            if word == ",":
                separate += 1
            elif word.endswith(","):
                attached += 1
    if attached <= separate:
        return None
    return (
        f"warning: train looks untokenised: {attached} commas are attached to words, {separate} separate; text "
        "is split at blanks only, so a word with a comma is another word; this tokenises a file: "
        "sacremoses -q -l en tokenize < RAW > TOKENISED"
    )


def copy_whole(files: dict[str, Path], folder: Path, published: Counts | None = None) -> Lines:
    """Stage ``text`` of bytes: the files as they are.

    Args, Yields, Raises: as :func:`copy_text`. The published counts are of words.
    """
    for name, path in files.items():
        split = Path(name).stem
        if path.stat().st_size == 0:
            raise FairseqDocError(f"expected text in {path}; got an empty file")
        if published is not None:
            yield _count_tokens(split, path, path, published.tokens[split])
        copy_file(path, folder / name)
        yield f"{split}: {path.stat().st_size} bytes"


def share_lines(lines: int, split: tuple[float, ...]) -> dict[str, int]:
    """{split: its number of lines} by percentages, each less than one line from its own."""
    train, valid, _ = split
    ends = [0, int(lines * train / 100), int(lines * (train + valid) / 100), lines]
    shares = [end - start for start, end in pairwise(ends)]
    return dict(zip(SPLITS, shares, strict=True))


def _shares(path: Path, lines: int, split: tuple[float, ...]) -> dict[str, int]:
    """:func:`share_lines` of a file.

    Raises:
        FairseqDocError: no line is left for one of them.
    """
    shares = share_lines(lines, split)
    empty = [name for name, share in shares.items() if share == 0]
    if empty:
        raise FairseqDocError(
            f"{path}: expected lines for each of {', '.join(SPLITS)}; got none for "
            f"{', '.join(empty)}: it has {lines} lines, and --split is {_as_typed(split)}"
        )
    return shares


def cut_text(path: Path, folder: Path, split: tuple[float, ...]) -> Lines:
    """Stage ``text`` of one file of words: its parts, copied as :func:`copy_text` copies.

    Args:
        path: the file, compressed by gzip or not.
        folder: empty, to be filled.
        split: see :class:`Settings`.

    Yields:
        Lines of what was counted.

    Raises:
        FairseqDocError: text that cannot be used, or a part without lines.
    """
    shares = _shares(path, sum(1 for _ in text_lines(path)), split)
    lines = text_lines(path)
    for name, share in shares.items():
        copy = folder / f"{name}.txt"
        write_lines(copy, islice(lines, share))
        yield _count_tokens(name, copy, path, None)


def bytes_of_parts(path: Path, split: tuple[float, ...]) -> dict[str, int]:
    """{split: its bytes} where a file is cut at line ends by percentages of its lines."""
    ends = line_ends(path)
    shares = _shares(path, len(ends), split)
    last_lines = np.cumsum(list(shares.values())) - 1
    sizes = np.diff(ends[last_lines], prepend=0)
    return dict(zip(SPLITS, sizes.tolist(), strict=True))


def cut_file(
    path: Path, folder: Path, sizes: dict[str, int], published: int | None = None
) -> Lines:
    """Stage ``text`` of a corpus in one file of bytes: its parts.

    Args:
        path: the file.
        folder: empty, to be filled.
        sizes: {split: its bytes}.
        published: kinds of bytes in all; None for any.

    Yields:
        Lines of what was counted.

    Raises:
        FairseqDocError: other kinds than expected.
    """
    found = np.zeros(256, np.int64)
    with open(path, "rb") as file:
        for split, size in sizes.items():
            found += copy_bytes(file, folder / f"{split}.txt", size)
            yield f"{split}: {size} bytes"
    kinds = np.count_nonzero(found)
    yield f"{kinds} kinds of bytes"
    if published is not None and kinds != published:
        raise FairseqDocError(
            f"{path}: expected {published} kinds of bytes, as published; got {kinds}"
        )


def binarise(
    text: Path,
    folder: Path,
    published: Counts | None = None,
    threshold: int = 0,
    workers: int = 1,
) -> Lines:
    """Stage ``data``.

    Args:
        text: folder of :func:`copy_text`.
        folder: empty, to be filled.
        published: what to count in the text; None for any.
        threshold: see :class:`Settings`.
        workers: processes; the result is the same for any number.

    Yields:
        Lines of what was counted.

    Raises:
        FairseqDocError: other counts than the published ones, or other tokens binarised than read.
    """
    prefixes = [f"--{split}pref={text}/{split}.txt" for split in SPLITS]
    options = [f"--thresholdsrc={threshold}", "--padding-factor=1", f"--workers={workers}"]
    preprocess(folder, ["--only-source", *prefixes, *options])
    dictionary = load_dictionary(folder / "dict.txt")
    yield f"dictionary: {len(dictionary)} types"
    unknown = {}
    for split in SPLITS:
        written = load_split(folder / split, dictionary)
        lengths = line_lengths(text_lines(text / f"{split}.txt"))
        check_lengths(f"{split}.txt", lengths, written.sizes)
        unknown[split] = sum(int((line == dictionary.unk()).sum()) for line in written)
        yield (
            f"{split}: {len(written)} lines and {sum(lengths)} tokens binarised, {unknown[split]} "
            "of them <unk>"
        )
    # The dictionary counts fairseq's own <s>, <pad>, </s> and <unk>; a text has the last two of them.
    types = len(dictionary) - dictionary.nspecial + 2
    if published is not None and types != published.types:
        raise FairseqDocError(
            f"expected {published.types} word types with the end mark, as published; got {types}"
        )
    if unknown["train"] == 0 < max(unknown.values()):
        yield _never_trained(unknown, dictionary)


def _never_trained(unknown: dict[str, int], dictionary: "Dictionary") -> str:
    """A warning where training has no unknown word, and another split has some.

    Args:
        unknown: {split: its unknown words}.
        dictionary: its rarest word gives the least threshold that changes this.
    """
    threshold = min(dictionary.count[dictionary.nspecial :]) + 1
    remedy = (
        f"--threshold {threshold} replaces words that occur less than {threshold} times in train by <unk>"
        if threshold <= MOST_RARE
        else f"every word of train occurs {threshold - 1} times or more, so put other text into train"
    )
    return (
        f"warning: <unk> occurs {unknown['valid']} times in valid and {unknown['test']} in test, but "
        "never in train: the model cannot learn to predict unknown words, and each costs very many "
        f"bits; {remedy}"
    )


def binarise_text_of_bytes(text: Path, folder: Path, threshold: int = 0) -> Lines:
    """Stage ``data`` of bytes.

    Args:
        text: folder of train.txt, valid.txt and test.txt, none of them empty.
        folder: empty, to be filled.
        threshold: see :class:`Settings`.

    Yields:
        Lines of what was counted.

    Raises:
        FairseqDocError: training text without any byte but line feeds.
    """
    dictionary = make_dictionary(count_bytes(text / "train.txt"), threshold)
    dictionary.save(str(folder / "dict.txt"))
    yield f"dictionary: {len(dictionary)} types"
    for split in SPLITS:
        path = text / f"{split}.txt"
        lines, unknown = binarise_bytes(path, folder / split, dictionary)
        yield (
            f"{split}: {lines} lines and {path.stat().st_size} bytes binarised, {unknown} of them <unk>"
        )
    checksums.write(folder, [path.name for path in folder.iterdir()])


def _copied(settings: Settings, folder: Path) -> Lines:
    """Stage ``text`` of any corpus."""
    yield from _parts(settings, folder)
    if settings.corpus == TEXT and settings.unit == WORD:
        warning = untokenised(text_lines(folder / "train.txt"))
        if warning is not None:
            yield warning


def _parts(settings: Settings, folder: Path) -> Lines:
    """Write train.txt, valid.txt and test.txt of any corpus; yields lines of what was counted."""
    source, expected = settings.source, settings.expected
    if source is None:
        return pydoc_text.write(folder)
    if settings.corpus == ENWIK8:
        assert expected is not None
        return cut_file(source, folder, expected.tokens, expected.types)
    if settings.split is not None:
        if settings.unit == BYTE:
            return cut_file(source, folder, bytes_of_parts(source, settings.split))
        return cut_text(source, folder, settings.split)
    copy = copy_whole if settings.unit == BYTE else copy_text
    return copy(_files(settings), folder, expected)


def _binarised(settings: Settings, text: Path, folder: Path, workers: int) -> Lines:
    """Stage ``data`` of any corpus."""
    if settings.unit == BYTE:
        return binarise_text_of_bytes(text, folder, settings.threshold)
    return binarise(text, folder, settings.expected, settings.threshold, workers)


def prepare(settings: Settings, destination: Path, workers: int = 1, say: Say = print) -> None:
    """Prepare ``destination``, or go on with it.

    Args:
        settings: see :class:`Settings`.
        destination: a folder that does not exist.
        workers: processes that binarise; the result is the same for any number.
        say: takes one line at a time of what is done.

    Raises:
        FairseqDocError: text or settings that cannot be used; nothing is left behind.
    """
    import fairseq

    if workers < 1:
        raise FairseqDocError(f"--workers must be at least 1; got {workers}")
    check(settings, destination)
    made_by = {"fairseq": fairseq.__version__}
    if settings.source is None:
        made_by["python"] = sys.version
    decided = asdict(settings)
    del decided["source"]  # the same text elsewhere gives the same data
    with staged(destination, make_stamp(decided, _files(settings), made_by), say) as stages:
        text = stages.run("text", lambda folder: _copied(settings, folder))
        data = stages.run("data", lambda folder: _binarised(settings, text, folder, workers))
        stages.finish(data, destination, [text] if settings.source is None else [])
