"""Tokenised text, one sentence a line, or any text by its bytes -> data for ``--task
bptt_language_modeling``."""

import codecs
import math
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import accumulate, islice, pairwise
from pathlib import Path

import numpy as np

from fairseq_doc import checksums
from fairseq_doc.errors import FairseqDocError, shown
from fairseq_doc.files import check_input, copy_file, text_lines, write_lines
from fairseq_doc.options import check_ranges
from fairseq_doc.preparation import pydoc_text, raw_counts
from fairseq_doc.preparation.binarisation import (
    check_split,
    counts_of,
    load_dictionary,
    preprocess,
)
from fairseq_doc.preparation.byte_text import (
    Part,
    binarise_bytes,
    check_not_packed,
    make_dictionary,
)
from fairseq_doc.preparation.byte_tokens import BYTE, WORD
from fairseq_doc.preparation.corpora import ENWIK8, PYDOC, SPLITS, TEXT, Settings
from fairseq_doc.preparation.stages import (
    Lines,
    Say,
    check_destination,
    made_lines,
    make_stamp,
    staged,
)
from fairseq_doc.preparation.text_form import WORDS, TextForm
from fairseq_doc.preparation.tokenization import (
    UNKNOWN,
    learn_model,
    model_name,
    moses_remark,
    untokenised,
    why_unusable,
)

# Names of any text's files, those of Mikolov's Penn Treebank and of WikiText-2.
_NAMED = [
    [form.format(split) for split in SPLITS] for form in ("{}.txt", "ptb.{}.txt", "wiki.{}.tokens")
]


def check(settings: Settings, destination: Path) -> dict[str, Path]:
    """Raise ``FairseqDocError`` if a preparation cannot start. Gives {split: file} of a folder,
    {corpus: file} of a single file, {} for ``pydoc``."""
    corpus, source = settings.corpus, settings.folder
    check_ranges(Settings, settings)
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


def _files(settings: Settings) -> dict[str, Path]:
    """The files of the text, under any of ``_NAMED``."""
    source = settings.folder
    if source is None:
        return {}
    if settings.corpus == ENWIK8 or settings.split is not None:
        return {settings.corpus: source}
    if not source.is_dir():
        got = "a file" if source.exists() else "nothing of this name"
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


def lines_of(settings: Settings, files: dict[str, Path]) -> dict[str, tuple[Path, NumberedLines]]:
    """{split: its file and numbered lines}, to be read one split after the other."""
    if settings.split is None:
        return {split: (path, _numbered(path)) for split, path in files.items()}
    path = files[settings.corpus]
    shares = shares_of(path, sum(1 for _ in text_lines(path)), settings.split)
    whole, named = _numbered(path), zip(SPLITS, shares, strict=True)
    return {split: (path, islice(whole, share)) for split, share in named}


def write_text(settings: Settings, files: dict[str, Path], folder: Path) -> Lines:
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


def learn(settings: Settings, text: Path, folder: Path) -> Lines:
    """Stage ``bpe``, a model learned from the text or an earlier one; yields its report."""
    model = folder / model_name(settings.form.bpe)
    if settings.like is not None:
        copy_file(settings.files_of_like["units"], model)
        return
    lines = (
        " ".join(word for word in line.split() if word != UNKNOWN)
        for line in made_lines(text / "train.txt")
    )
    yield f"bpe: {learn_model(settings.form.bpe, lines, model, settings.merges or 0)}"


def segment(form: TextForm, text: Path, folder: Path) -> Lines:
    """Stage ``segmented``; yields its report."""
    for split in SPLITS:
        name = f"{split}.txt"
        write_lines(folder / name, map(form.units, made_lines(text / name)))
        yield f"{split}: cut into units"


def _line_lengths(path: Path) -> Iterable[int]:
    """Tokens of every line with its end mark; only ASCII blanks separate them."""
    return (len(line.encode().split()) + 1 for line in made_lines(path))


def _check_published(name: str, what: str, expected: int, number: int) -> None:
    if number != expected:
        raise FairseqDocError(f"{name}: expected {expected} {what}, as published; got {number}")


def binarise(settings: Settings, text: Path, folder: Path, workers: int = 1) -> Lines:
    """Stage ``data`` of words; yields its report. Raises ``FairseqDocError`` for other counts than
    the published ones."""
    published, known = settings.counts, settings.files_of_like.get("dictionary")
    prefixes = [f"--{split}pref={text}/{split}.txt" for split in SPLITS]
    options = ["--padding-factor=1", f"--workers={workers}"]
    options.append(f"--srcdict={known}" if known else f"--thresholdsrc={settings.threshold or 0}")
    preprocess(folder, ["--only-source", *prefixes, *options])
    dictionary = load_dictionary(folder / "dict.txt")
    yield f"dictionary: {len(dictionary)} types"
    unknown = {}
    for split in SPLITS:
        name = f"{split}.txt"
        lengths = _line_lengths(text / name)
        lines, tokens, unknown[split] = check_split(name, folder / split, dictionary, lengths)
        if published is not None:
            _check_published(name, "tokens", published.tokens[split], tokens)
        yield (
            f"{split}: {lines} lines and {tokens} tokens binarised, {unknown[split]} of them <unk>"
        )
    if published is not None:
        # Of fairseq's own <s>, <pad>, </s> and <unk> a text has the last two.
        types = len(dictionary) - dictionary.nspecial + 2
        _check_published("train.txt", "word types with the end mark", published.types, types)
    if known is None and unknown["train"] == 0 < max(unknown.values()):
        least = min(dictionary.count[dictionary.nspecial :]) + 1  # makes the rarest words unknown
        yield (
            f"warning: <unk> occurs {unknown['valid']} times in valid and {unknown['test']} in "
            "test, but never in train: the model cannot learn to predict unknown words, and each "
            f"costs very many bits; --threshold {least} replaces words that occur less than "
            f"{least} times in train by <unk>"
        )


# ---- bytes ----


def parts_of(settings: Settings, files: dict[str, Path]) -> dict[str, Part]:
    """{split: its part of the files}. Published sizes cut a single file, or ``--split`` cuts it at
    line ends."""
    if settings.corpus not in files:
        return {split: Part.whole(path) for split, path in files.items()}
    path = files[settings.corpus]
    if settings.split is None:
        assert settings.counts is not None
        ends = list(accumulate(settings.counts.tokens.values()))
    else:
        line_ends = Part.whole(path).line_ends()
        shares = shares_of(path, len(line_ends), settings.split)
        ends = line_ends[np.cumsum(shares) - 1].tolist()
    places = zip(SPLITS, pairwise([0, *ends]), strict=True)
    return {split: Part(path, end - start, start) for split, (start, end) in places}


def binarise_as_bytes(settings: Settings, files: dict[str, Path], folder: Path) -> Lines:
    """Stage ``data`` of bytes; yields its report."""
    parts, expected = parts_of(settings, files), settings.counts
    for split, part in parts.items():
        if part.size == 0:
            raise FairseqDocError(f"expected text in {part.path}; got an empty file")
        if expected is not None and settings.corpus != ENWIK8:  # counts of words
            words = sum(_line_lengths(part.path))
            _check_published(part.path.name, "tokens", expected.tokens[split], words)
    counts = {split: part.counts() for split, part in parts.items()}
    kinds = int(np.count_nonzero(sum(counts.values())))
    yield f"{kinds} kinds of bytes"
    if expected is not None and settings.corpus == ENWIK8:
        _check_published(ENWIK8, "kinds of bytes", expected.types, kinds)
    if settings.like is None:
        dictionary = make_dictionary(counts["train"], settings.threshold or 0)
    else:
        dictionary = load_dictionary(settings.files_of_like["dictionary"])
    dictionary.save(str(folder / "dict.txt"))
    yield f"dictionary: {len(dictionary)} types"
    for split, part in parts.items():
        lines, unknown = binarise_bytes(part, folder / split, dictionary)
        yield f"{split}: {lines} lines and {part.size} bytes binarised, {unknown} of them <unk>"
    checksums.write(folder, [path.name for path in folder.iterdir()])


# ---- both ----


def count_raw_text(settings: Settings, files: dict[str, Path], data: Path, folder: Path) -> Lines:
    """Stage ``counts`` of the text as written; yields its report."""
    texts: dict[str, Iterator[str]]
    if settings.unit == BYTE:
        parts = parts_of(settings, files)
        texts = {
            split: codecs.iterdecode(map(bytes, part.chunks()), "utf-8", "surrogateescape")
            for split, part in parts.items()
        }
    else:
        texts = {
            split: raw_counts.with_line_ends((line for _, line in lines), WORD)
            for split, (_, lines) in lines_of(settings, files).items()
        }
    splits = counts_of(data / "dict.txt", SPLITS)["splits"]
    tokens = {split: own["tokens"] for split, own in splits.items()}
    yield from raw_counts.write(texts, tokens, folder)


def prepare(settings: Settings, destination: Path, workers: int = 1, say: Say = print) -> None:
    """Prepare ``destination``, or resume; see :func:`parallel_text.prepare`."""
    settings = settings.with_defaults()
    files = check(settings, destination)
    made_by = {} if files else {"python": sys.version}
    stamp = make_stamp(Settings, settings, {**files, **settings.files_of_like}, made_by)
    with staged(destination, stamp, say) as stages:
        copies = []
        if not files:
            text = stages.run("text", pydoc_text.write)
            files = {split: text / f"{split}.txt" for split in SPLITS}
            copies = [text]
        elif settings.unit == WORD:
            text = stages.run("text", lambda folder: write_text(settings, files, folder))
        if settings.form != WORDS:
            copies.append(stages.settings)
        if settings.form.bpe != "none":
            words = text
            models = stages.run("bpe", lambda folder: learn(settings, words, folder))
            form = replace(settings.form, model=models / model_name(settings.form.bpe))
            text = stages.run("segmented", lambda folder: segment(form, words, folder))
            copies += models.iterdir()
        if settings.unit == BYTE:
            data = stages.run("data", lambda folder: binarise_as_bytes(settings, files, folder))
        else:
            data = stages.run("data", lambda folder: binarise(settings, text, folder, workers))
        counts = stages.run("counts", lambda folder: count_raw_text(settings, files, data, folder))
        stages.finish(data, destination, [*copies, counts / raw_counts.NAME])
