"""Tokenised text, one sentence a line, or any text by its bytes -> data for ``--task
bptt_language_modeling``."""

import codecs
import math
import sys
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import accumulate, islice, pairwise
from pathlib import Path

import numpy as np

from fairseq_doc import checksums
from fairseq_doc.errors import FairseqDocError, shown
from fairseq_doc.files import check_input, text_lines, write_lines
from fairseq_doc.options import check_ranges
from fairseq_doc.preparation import pydoc_text, raw_counts
from fairseq_doc.preparation.binarisation import counts_of, load_dictionary
from fairseq_doc.preparation.byte_text import (
    binarise_bytes,
    bytes_of,
    check_not_packed,
    chunks_of,
    counts_of_bytes,
    line_ends,
    make_dictionary,
)
from fairseq_doc.preparation.byte_tokens import BYTE, WORD
from fairseq_doc.preparation.corpora import ENWIK8, PYDOC, TEXT, LanguageModelText
from fairseq_doc.preparation.pipeline import (
    ONE_SIDE,
    SPLITS,
    Pipeline,
    check_published,
    line_lengths,
)
from fairseq_doc.preparation.stages import Lines, Say, check_destination, make_stamp, staged
from fairseq_doc.preparation.text_form import WORDS, TextForm
from fairseq_doc.preparation.tokenization import moses_remark, untokenised, why_unusable

# Names of any text's files, those of Mikolov's Penn Treebank and of WikiText-2.
_NAMED = [
    [form.format(split) for split in SPLITS] for form in ("{}.txt", "ptb.{}.txt", "wiki.{}.tokens")
]


def check(settings: LanguageModelText, destination: Path) -> dict[str, Path]:
    """Raise ``FairseqDocError`` if a preparation cannot start. Gives {split: file} of a folder,
    {corpus: file} of a single file, {} for ``pydoc``."""
    corpus, source = settings.corpus, settings.folder
    check_ranges(LanguageModelText, settings)
    if corpus == ENWIK8 and settings.unit != BYTE:
        raise FairseqDocError(f"--unit: expected byte for {ENWIK8}; got {settings.unit}")
    if settings.form != WORDS and (corpus not in (TEXT, PYDOC) or settings.unit == BYTE):
        raise FairseqDocError(
            f"--tokenizer and --bpe: expected words of the corpus {TEXT} or {PYDOC}; got {corpus}, "
            f"--unit {settings.unit}"
        )
    if settings.split is not None:
        percentages_of(settings.split)
        if corpus != TEXT or source is None or source.is_dir():
            raise FairseqDocError(
                f"--split: expected the corpus {TEXT} and a file, which it cuts in three; got "
                f"{corpus} {source or ''}"
            )
    check_destination(destination)
    files = _files(settings)
    for path in files.values():
        check_input(path, again=True)
        if settings.unit == BYTE:
            check_not_packed(path)
    if corpus == ENWIK8 and settings.counts is not None:
        expected, size = sum(settings.counts.tokens.values()), files[ENWIK8].stat().st_size
        if size != expected:
            raise FairseqDocError(
                f"{source}: expected the {expected:,} bytes of {ENWIK8}; got {size:,}; any other "
                "file is prepared by: prepare-lm text FILE --split 90,5,5 --unit byte"
            )
    return files


def percentages_of(split: str) -> list[float]:
    """The three numbers of ``--split``."""
    try:
        parts = [float(part) for part in split.split(",")]
    except ValueError:
        parts = []
    if len(parts) != 3 or not all(part > 0 for part in parts) or not math.isclose(sum(parts), 100):
        raise FairseqDocError(
            "--split: expected three percentages above 0 that sum to 100, such as 90,5,5; got "
            f"{shown(split)}"
        )
    return parts


def _files(settings: LanguageModelText) -> dict[str, Path]:
    """The files of the text, under any of ``_NAMED``."""
    source = settings.folder
    if source is None:
        return {}
    if settings.corpus == ENWIK8 or settings.split is not None:
        return {settings.corpus: source}
    if not source.is_dir():
        got = "a file" if source.exists() else "no such file or folder"
        if source.exists() and settings.corpus == TEXT:
            got += "; --split 90,5,5 cuts it in three"
        raise FairseqDocError(f"{source}: expected a folder of {', '.join(_NAMED[0])}; got {got}")
    # The most complete set; max gives the first of equals.
    names = max(_NAMED, key=lambda names: sum((source / name).exists() for name in names))
    missing = [name for name in names if not (source / name).exists()]
    if missing:
        raise FairseqDocError(
            f"expected {', '.join(names)} in {source}; got no {', no '.join(missing)}"
        )
    return {split: source / name for split, name in zip(SPLITS, names, strict=True)}


def shares_of(path: Path, lines: int, split: str) -> list[int]:
    """How many of a file's lines each split gets, less than one line from its percentage."""
    first, second, _ = accumulate(percentages_of(split))
    ends = [0, int(lines * first / 100), int(lines * second / 100), lines]
    shares = [end - start for start, end in pairwise(ends)]
    empty = [name for name, share in zip(SPLITS, shares, strict=True) if share == 0]
    if empty:
        raise FairseqDocError(
            f"{path}: expected lines for each of {', '.join(SPLITS)}; got none for "
            f"{', '.join(empty)}: it has {lines} lines, and --split is {split}"
        )
    return shares


# ---- words ----


NumberedLines = Iterator[tuple[int, str]]


def lines_of(
    settings: LanguageModelText, files: dict[str, Path]
) -> dict[str, tuple[Path, NumberedLines]]:
    """{split: its file and numbered lines}, to be read one split after the other."""
    if settings.split is None:
        return {split: (path, _numbered(path)) for split, path in files.items()}
    path = files[settings.corpus]
    shares = shares_of(path, sum(1 for _ in text_lines(path)), settings.split)
    whole, named = _numbered(path), zip(SPLITS, shares, strict=True)
    return {split: (path, islice(whole, share)) for split, share in named}


def write_text(settings: LanguageModelText, files: dict[str, Path], folder: Path) -> Lines:
    """Stage ``text``: three uncompressed files of words with single blanks between them, without a
    byte order mark, which would join the first word. Yields a warning about untokenised text."""
    for split, (path, lines) in lines_of(settings, files).items():
        copy = folder / f"{split}.txt"
        write_lines(copy, _words(settings.form, path, lines))
        if copy.stat().st_size == 0:
            raise FairseqDocError(f"expected text in {path}; got an empty file")
    if settings.tokenizer == "moses":
        yield from filter(None, [moses_remark(settings.form.language)])
    elif settings.corpus == TEXT:
        yield from untokenised(text_lines(folder / "train.txt"))


def _numbered(path: Path) -> NumberedLines:
    return enumerate(text_lines(path), start=1)


def _words(form: TextForm, path: Path, lines: Iterable[tuple[int, str]]) -> Iterator[str]:
    """The words of numbered lines of a file, each line usable; a line may be empty."""
    for number, line in lines:
        words = form.words(line)
        if words and (reason := why_unusable(words, form.bpe)):
            raise FairseqDocError(f"{path}: line {number} {reason}; remove it from the text")
        yield words


# ---- bytes ----


def bytes_of_splits(settings: LanguageModelText, files: dict[str, Path]) -> dict[str, np.ndarray]:
    """{split: its bytes}. Published sizes cut a single file, or ``--split`` cuts it at line
    ends."""
    if settings.corpus not in files:
        return {split: bytes_of(path) for split, path in files.items()}
    path = files[settings.corpus]
    whole = bytes_of(path)
    if settings.split is None:
        assert settings.counts is not None
        ends = list(accumulate(settings.counts.tokens.values()))
    else:
        of_lines = line_ends(whole)
        ends = of_lines[np.cumsum(shares_of(path, len(of_lines), settings.split)) - 1].tolist()
    return dict(zip(SPLITS, np.split(whole, ends[:-1]), strict=True))


def binarise_as_bytes(settings: LanguageModelText, files: dict[str, Path], folder: Path) -> Lines:
    """Stage ``data`` of bytes; yields its report."""
    texts, expected = bytes_of_splits(settings, files), settings.counts
    for split, text in texts.items():
        if len(text) == 0:
            raise FairseqDocError(f"expected text in {files[split]}; got an empty file")
        if expected is not None and settings.corpus != ENWIK8:  # counts of words
            words = sum(line_lengths(files[split]))
            check_published(f"{split}.txt", "tokens", expected.tokens[split], words)
    counts = {split: counts_of_bytes(text) for split, text in texts.items()}
    kinds = int(np.count_nonzero(sum(counts.values())))
    yield f"{kinds} kinds of bytes"
    if expected is not None and settings.corpus == ENWIK8:
        check_published(ENWIK8, "kinds of bytes", expected.types, kinds)
    if settings.like is None:
        dictionary = make_dictionary(counts["train"], settings.threshold or 0)
    else:
        dictionary = load_dictionary(settings.files_of_like["dictionary"])
    dictionary.save(str(folder / "dict.txt"))
    yield f"dictionary: {len(dictionary)} types"
    for split, text in texts.items():
        lines, unknown = binarise_bytes(text, folder / split, dictionary)
        yield f"{split}: {lines} lines and {len(text)} bytes binarised, {unknown} of them <unk>"
    checksums.write(folder, [path.name for path in folder.iterdir()])


# ---- both ----


def count_raw_text(
    settings: LanguageModelText, files: dict[str, Path], data: Path, folder: Path
) -> Lines:
    """Stage ``counts`` of the text as written; yields its report."""
    texts: dict[str, Iterator[str]]
    if settings.unit == BYTE:
        texts = {
            split: codecs.iterdecode(map(bytes, chunks_of(text)), "utf-8", "surrogateescape")
            for split, text in bytes_of_splits(settings, files).items()
        }
    else:
        texts = {
            split: raw_counts.with_line_ends((line for _, line in lines), WORD)
            for split, (_, lines) in lines_of(settings, files).items()
        }
    splits = counts_of(data / "dict.txt", SPLITS)["splits"]
    tokens = {split: own["tokens"] for split, own in splits.items()}
    yield from raw_counts.write(texts, tokens, folder)


def prepare(
    settings: LanguageModelText, destination: Path, workers: int = 1, say: Say = print
) -> None:
    """Prepare ``destination``, or resume; see :func:`parallel_text.prepare`."""
    settings = settings.with_defaults()
    files = check(settings, destination)
    made_by = {} if files else {"python": sys.version}
    stamp = make_stamp(LanguageModelText, settings, {**files, **settings.files_of_like}, made_by)
    pipeline = Pipeline(
        {ONE_SIDE: settings.form},
        merges=settings.merges or 0,
        threshold=settings.threshold or 0,
        like=settings.like,
        published=settings.counts,
        workers=workers,
    )
    with staged(destination, stamp, say) as stages:
        copies = [] if settings.form == WORDS else [stages.settings]
        if not files:
            text = stages.run("text", pydoc_text.write)
            files = {split: text / f"{split}.txt" for split in SPLITS}
            copies.append(text)
        elif settings.unit == WORD:
            text = stages.run("text", partial(write_text, settings, files))
        if settings.unit == BYTE:
            data = stages.run("data", partial(binarise_as_bytes, settings, files))
        else:
            data, models = pipeline.run(stages, text)
            copies += models
        counts = stages.run("counts", partial(count_raw_text, settings, files, data))
        stages.finish(data, destination, [*copies, counts / raw_counts.NAME])
