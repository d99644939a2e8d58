"""Text, one sentence a line, tokens apart, or any text by its bytes -> data for
``--task bptt_language_modeling``."""

import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

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
    make_dictionary,
)
from fairseq_doc.preparation.byte_tokens import BYTE, UNITS, WORD
from fairseq_doc.preparation.stages import Lines, Say, check_destination, make_stamp, staged

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


@dataclass(frozen=True)
class Settings:
    """What decides the result, with the text itself.

    Attributes:
        corpus: one of ``CORPORA``.
        source: a folder of train.txt, valid.txt and test.txt, or of Mikolov's or WikiText-2's own names;
            for ``enwik8`` a file, whose first bytes are training, the next validation, the last test;
            None for ``pydoc``.
        threshold: tokens that occur less often in training are unknown.
        unit: ``word``, or ``byte``: every byte of the text is a token, the line feed the end mark.
        counts: what is checked, and for ``enwik8`` also the sizes of the splits; None: the published
            counts of the corpus, where it has any.
    """

    corpus: str
    source: Path | None = None
    threshold: int = 0
    unit: str = WORD
    counts: Counts | None = None

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
    check_destination(destination)
    for path in _files(settings).values():
        check_input(path, again=True)
        if settings.unit == BYTE:
            check_not_packed(path)
    if settings.corpus == ENWIK8:
        _check_size(settings)


def _check_size(settings: Settings) -> None:
    """Raise ``FairseqDocError`` unless the file of ``enwik8`` has as many bytes as its splits."""
    path, counts = settings.source, settings.expected
    assert path is not None and counts is not None
    expected, size = sum(counts.tokens.values()), path.stat().st_size
    if size != expected:
        raise FairseqDocError(
            f"{path}: expected the {expected:,} bytes of {ENWIK8}; got {size:,}; any other text is "
            "prepared by: prepare-lm text FOLDER --unit byte"
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
    if settings.corpus == ENWIK8:
        return {ENWIK8: source}
    if not source.is_dir():
        got = "a file" if source.exists() else "nothing of this name"
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


def cut_file(path: Path, folder: Path, counts: Counts) -> Lines:
    """Stage ``text`` of a corpus in one file of bytes: its parts.

    Args:
        path: the file.
        folder: empty, to be filled.
        counts: bytes of each part, and kinds of bytes in all.

    Yields:
        Lines of what was counted.

    Raises:
        FairseqDocError: other kinds than expected.
    """
    found = np.zeros(256, np.int64)
    with open(path, "rb") as file:
        for split in SPLITS:
            found += copy_bytes(file, folder / f"{split}.txt", counts.tokens[split])
            yield f"{split}: {counts.tokens[split]} bytes"
    kinds = np.count_nonzero(found)
    yield f"{kinds} kinds of bytes"
    if kinds != counts.types:
        raise FairseqDocError(
            f"{path}: expected {counts.types} kinds of bytes, as published; got {kinds}"
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
    for split in SPLITS:
        written = load_split(folder / split, dictionary)
        lengths = line_lengths(text_lines(text / f"{split}.txt"))
        check_lengths(f"{split}.txt", lengths, written.sizes)
        unknown = sum(int((line == dictionary.unk()).sum()) for line in written)
        yield (
            f"{split}: {len(written)} lines and {sum(lengths)} tokens binarised, {unknown} "
            "of them <unk>"
        )
    # The dictionary counts fairseq's own <s>, <pad>, </s> and <unk>; a text has the last two of them.
    types = len(dictionary) - dictionary.nspecial + 2
    if published is not None and types != published.types:
        raise FairseqDocError(
            f"expected {published.types} word types with the end mark, as published; got {types}"
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
    source, expected = settings.source, settings.expected
    if source is None:
        return pydoc_text.write(folder)
    if settings.corpus == ENWIK8:
        assert expected is not None
        return cut_file(source, folder, expected)
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
