"""Text, one sentence a line, tokens apart -> data for ``--task bptt_language_modeling``."""

import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.files import check_input, text_lines, write_lines
from fairseq_doc.preparation import pydoc_text
from fairseq_doc.preparation.binarisation import (
    check_lengths,
    load_dictionary,
    load_split,
    preprocess,
)
from fairseq_doc.preparation.stages import Lines, Say, check_destination, make_stamp, staged

SPLITS = ("train", "valid", "test")


@dataclass(frozen=True)
class Counts:
    """A published corpus: tokens of each split with one end mark a line, and types with the end
    mark."""

    tokens: dict[str, int]
    types: int


# Of Penn Treebank the paper's Table 1 prints one token more for each split.
PUBLISHED = {
    "ptb": Counts({"train": 929_589, "valid": 73_760, "test": 82_430}, types=10_000),
    "wikitext2": Counts({"train": 2_088_628, "valid": 217_646, "test": 245_569}, types=33_278),
}
TEXT, PYDOC = "text", "pydoc"
CORPORA = (*PUBLISHED, TEXT, PYDOC)


@dataclass(frozen=True)
class Settings:
    """What decides the result, with the text itself.

    Attributes:
        corpus: one of ``CORPORA``. The counts of published ones are checked.
        folder: it holds train.txt, valid.txt and test.txt; None for ``pydoc``.
        threshold: words that occur less often in training are unknown.
    """

    corpus: str
    folder: Path | None = None
    threshold: int = 0


def check(settings: Settings, destination: Path) -> None:
    """Raise ``FairseqDocError`` where a preparation cannot start: before any work."""
    if settings.threshold < 0:
        raise FairseqDocError(f"--threshold must be at least 0; got {settings.threshold}")
    check_destination(destination)
    if settings.folder is not None:
        check_text(settings.folder)


def check_text(folder: Path) -> None:
    """Raise ``FairseqDocError`` where the folder does not hold text of every split."""
    for split in SPLITS:
        path = folder / f"{split}.txt"
        if not path.exists():
            raise FairseqDocError(f"expected text in {path}; got no file")
        check_input(path, again=True)


def line_lengths(lines: Iterable[str]) -> list[int]:
    """The tokens of every line with its end mark, as ASCII blanks separate them."""
    return [len(line.encode().split()) + 1 for line in lines]


def copy_text(text: Path, folder: Path, published: Counts | None = None) -> Lines:
    """Stage ``text``: the text as fairseq-preprocess can read it, decompressed and without a byte
    order mark, which would be a part of the first word.

    Args:
        text: folder with train.txt, valid.txt and test.txt, compressed by gzip or not.
        folder: empty, to be filled.
        published: what to count in the text; None for any.

    Yields:
        Lines of what was counted.

    Raises:
        FairseqDocError: text that cannot be used, or other counts than the published ones.
    """
    for split in SPLITS:
        path = text / f"{split}.txt"
        copy = folder / path.name
        write_lines(copy, text_lines(path))
        lengths = line_lengths(text_lines(copy))
        if not lengths:
            raise FairseqDocError(f"expected text in {path}; got an empty file")
        yield f"{split}: {sum(lengths)} tokens with one end mark a line"
        if published is not None and sum(lengths) != published.tokens[split]:
            raise FairseqDocError(
                f"{path}: expected {published.tokens[split]} tokens, as published; got "
                f"{sum(lengths)}"
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
    files = {}
    made_by = {"fairseq": fairseq.__version__}
    given = settings.folder
    if given is None:
        made_by["python"] = sys.version
    else:
        files = {f"{split}.txt": given / f"{split}.txt" for split in SPLITS}
    decided = asdict(settings)
    del decided["folder"]  # the same text elsewhere gives the same data
    with staged(destination, make_stamp(decided, files, made_by), say) as stages:
        published = PUBLISHED.get(settings.corpus)
        if given is None:
            text = stages.run("text", pydoc_text.write)
        else:
            text = stages.run("text", lambda folder: copy_text(given, folder, published))
        data = stages.run(
            "data",
            lambda folder: binarise(text, folder, published, settings.threshold, workers),
        )
        stages.finish(data, destination, [text] if given is None else [])
