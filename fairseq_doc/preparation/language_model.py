"""Text, one sentence per line -> one stream of words or of bytes, for ``--task
bptt_language_modeling``."""

import sys
from collections.abc import Iterator
from itertools import accumulate, islice, pairwise
from pathlib import Path

import numpy as np

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.files import text_lines, write_lines
from fairseq_doc.preparation import byte_text, pydoc_text, raw_counts
from fairseq_doc.preparation.binarisation import Counts, load_dictionary
from fairseq_doc.preparation.corpora import (
    ENWIK8,
    PYDOC,
    TEXT,
    LanguageModelText,
    percentages_of,
)
from fairseq_doc.preparation.data_folder import Say, new_data_folder, write_settings
from fairseq_doc.preparation.pipeline import ONE_SIDE, SPLITS, Pipeline
from fairseq_doc.preparation.text_form import BYTE, WORD, WORDS, TextForm
from fairseq_doc.preparation.tokenization import (
    UNKNOWN,
    model_name,
    moses_remark,
    untokenised,
    why_unusable,
)


def line_shares(path: Path, lines: int, split: str) -> list[int]:
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


def lines_of(
    settings: LanguageModelText, files: dict[str, Path]
) -> Iterator[tuple[str, Path, Iterator[tuple[int, str]]]]:
    """Every split with its file and its numbered lines, to be read one split after the other."""
    if settings.split is None:
        for split, path in files.items():
            yield split, path, enumerate(text_lines(path), start=1)
        return
    path = files[settings.corpus]
    shares = line_shares(path, sum(1 for _ in text_lines(path)), settings.split)
    whole = enumerate(text_lines(path), start=1)
    for split, share in zip(SPLITS, shares, strict=True):
        yield split, path, islice(whole, share)


def write_text(settings: LanguageModelText, files: dict[str, Path], folder: Path, say: Say) -> None:
    """Write three uncompressed files of words with single spaces between them, without a byte order
    mark, which would become part of the first word."""
    for split, path, lines in lines_of(settings, files):
        write_lines(folder / f"{split}.txt", _words(settings.form, path, lines))
    remark = None
    if settings.tokenizer == "moses":
        remark = moses_remark(settings.form.language)
    elif settings.corpus == TEXT and settings.like is None and settings.bpe != "sentencepiece":
        remark = untokenised(text_lines(folder / "train.txt"))
    if remark:
        say(remark)


def _words(form: TextForm, path: Path, lines: Iterator[tuple[int, str]]) -> Iterator[str]:
    for number, line in lines:
        words = form.words(line)
        if words and (reason := why_unusable(words, form.bpe)):
            raise FairseqDocError(f"{path}: line {number} {reason}; remove it from the text")
        yield words


def check_words(
    settings: LanguageModelText, files: dict[str, Path], counts: Counts, say: Say
) -> None:
    """Compare the number of types with the published one, and warn of unknown words that are never
    trained."""
    dictionary, splits = counts
    if settings.counts is not None and not settings.threshold:
        # Of fairseq's own <s>, <pad>, </s> and <unk> a text has </s>, and perhaps <unk>.
        types = len(dictionary) - dictionary.nspecial + 1 + (splits["train"].unknown > 0)
        what = "word types with the end mark"
        _check_published(files["train"].name, what, settings.counts.types, types)
    train, valid, test = (splits[split].unknown for split in SPLITS)
    if settings.like is None and train == 0 < max(valid, test):
        # Makes the rarest words unknown.
        least = min(dictionary.count[dictionary.nspecial :]) + 1
        say(
            f"warning: {UNKNOWN} occurs {valid} times in valid and {test} in test, but never in "
            "train: the model cannot learn to predict unknown words, and each costs very many "
            f"bits; --threshold {least} replaces words that occur fewer than {least} times in "
            f"train by {UNKNOWN}"
        )


def _check_published(name: str, what: str, expected: int, number: int) -> None:
    if number != expected:
        raise FairseqDocError(f"{name}: expected {expected} {what}, as published; got {number}")


# ---- bytes ----


def bytes_of_splits(settings: LanguageModelText, files: dict[str, Path]) -> dict[str, np.ndarray]:
    """{split: its bytes}. Published sizes cut a single file, or ``--split`` cuts it at line
    ends."""
    if settings.corpus not in files:
        return {split: np.memmap(path, np.uint8, "r") for split, path in files.items()}
    path = files[settings.corpus]
    whole = np.memmap(path, np.uint8, "r")
    if settings.split is None:
        assert settings.counts is not None
        ends = list(accumulate(settings.counts.tokens.values()))
    else:
        of_lines = byte_text.line_ends(whole)
        shares = line_shares(path, len(of_lines), settings.split)
        ends = of_lines[np.cumsum(shares) - 1].tolist()
    return dict(zip(SPLITS, np.split(whole, ends[:-1]), strict=True))


def binarise_as_bytes(
    settings: LanguageModelText, texts: dict[str, np.ndarray], data: Path, say: Say
) -> Counts:
    """Write the dictionary and the splits of bytes."""
    counts = {split: byte_text.counts_of_bytes(text) for split, text in texts.items()}
    distinct = int(np.count_nonzero(sum(counts.values())))
    say(f"{distinct} distinct bytes")
    if settings.counts is not None and settings.corpus == ENWIK8:
        _check_published(ENWIK8, "distinct bytes", settings.counts.types, distinct)
    if settings.like is None:
        dictionary = byte_text.make_dictionary(counts["train"], settings.threshold or 0)
    else:
        dictionary = load_dictionary(settings.like / "dict.txt")
    dictionary.save(str(data / "dict.txt"))
    say(f"dictionary: {len(dictionary)} types")
    splits = {}
    for split, text in texts.items():
        found = splits[split] = byte_text.binarise_bytes(text, data / split, dictionary)
        say(
            f"{split}: {found.lines} lines and {found.tokens} bytes binarised, {found.unknown} of "
            "them <unk>"
        )
    return Counts(dictionary, splits)


# ---- both ----


def prepare(
    settings: LanguageModelText, destination: Path, workers: int = 1, say: Say = print
) -> Counts:
    """Prepare ``destination``; see :func:`parallel_text.prepare`."""
    settings = settings.with_defaults()
    settings.check()
    files = settings.files()
    if settings.counts is not None and settings.corpus != ENWIK8:  # counts of words
        for split, path in files.items():
            words = sum(len(line.split()) + 1 for line in text_lines(path))
            _check_published(path.name, "tokens", settings.counts.tokens[split], words)
    with new_data_folder(destination, say) as (data, say):
        if settings.form != WORDS:
            _write_settings(settings, files, data)
        if settings.corpus == PYDOC:
            (data / "text").mkdir()  # which is kept
            pydoc_text.write(data / "text", say)
            files = {split: data / "text" / f"{split}.txt" for split in SPLITS}
        if settings.unit == BYTE:
            texts = bytes_of_splits(settings, files)
            counts = binarise_as_bytes(settings, texts, data, say)
            raw = {split: byte_text.lines_of(text) for split, text in texts.items()}
        else:
            text = data.parent / "text"
            text.mkdir()
            write_text(settings, files, text, say)
            pipeline = Pipeline(
                {ONE_SIDE: settings.form},
                merges=settings.merges or 0,
                threshold=settings.threshold or 0,
                like=settings.like,
                workers=workers,
            )
            counts = pipeline.run(text, data, say)[ONE_SIDE]
            check_words(settings, files, counts, say)
            raw = {
                split: raw_counts.with_line_ends((line for _, line in lines), WORD)
                for split, _, lines in lines_of(settings, files)
            }
        raw_counts.write(raw, counts, data, say)
    return counts


def _write_settings(settings: LanguageModelText, files: dict[str, Path], folder: Path) -> None:
    read, like = dict(files), settings.like
    if like is not None:
        read["dictionary"] = like / "dict.txt"
        if settings.form.bpe != "none":
            read["units"] = like / model_name(settings.form.bpe)
    made_by = {} if files else {"python": sys.version}
    write_settings(folder, LanguageModelText, settings, read, made_by)
