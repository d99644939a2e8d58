"""Raw parallel text -> clean, tokenised, segmented, binarised data of fairseq's translation task.

FOLDER holds FILE.SRC and FILE.TGT, one sentence per line. Unusable training pairs are dropped, and
listed with the reason.
"""

import argparse
import contextlib
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import IO, Any

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.files import text_lines
from fairseq_doc.options import REQUIRED, check_ranges, option
from fairseq_doc.preparation.binarisation import Counts
from fairseq_doc.preparation.data_folder import Say, new_data_folder, write_settings
from fairseq_doc.preparation.pipeline import Pipeline, made_lines
from fairseq_doc.preparation.text_form import WORD, TextForm
from fairseq_doc.preparation.tokenization import (
    BPE_KINDS,
    TOKENIZERS,
    UNKNOWN,
    check_merges,
    clean,
    moses_remark,
    untokenised,
    why_unusable,
)


def _files(split: str) -> Any:
    return option(
        f"files of {split}, without their ending; several become {split}, {split}1, and so on "
        f"(default: {split})",
        (split,),
        type=lambda text: tuple(text.split(",")),
        metavar="FILE[,FILE]",
    )


@dataclass(frozen=True)
class ParallelText:
    """The settings that, with the text itself, determine the prepared data."""

    source: str = option(
        "source language, the ending of its files", REQUIRED, positional=True, metavar="SRC"
    )
    target: str = option(
        "target language, the ending of its files", REQUIRED, positional=True, metavar="TGT"
    )
    folder: Path = option(
        "folder of the raw files, FILE.SRC and FILE.TGT, one sentence per line",
        REQUIRED,
        positional=True,
        metavar="FOLDER",
    )
    train: str = option("training files, without their ending", "train", metavar="FILE")
    valid: tuple[str, ...] = _files("valid")
    test: tuple[str, ...] = _files("test")
    bpe: str = option("how words are cut into subwords", BPE_KINDS[0], choices=BPE_KINDS)
    merges: int = option(
        "number of merges to learn; with sentencepiece the size of its vocabulary",
        16_000,
        least=1,
        metavar="N",
    )
    joint: bool = option(
        "one BPE model and one dictionary for both sides",
        False,
        action=argparse.BooleanOptionalAction,
    )
    tokenizer: str = option(
        "how text is tokenised, as by fairseq's --tokenizer; none: it is tokenised already",
        TOKENIZERS[0],
        choices=TOKENIZERS,
    )
    max_words: int = option(
        "drop training pairs with more than N words on either side", 250, least=1, metavar="N"
    )
    max_ratio: float | None = option(
        "drop training pairs with a side more than X times as long as the other",
        metavar="X",
        least=1,
    )
    threshold: int = option(
        "words or subwords that occur fewer than N times in training become <unk>",
        0,
        metavar="N",
        least=0,
    )

    @property
    def sides(self) -> tuple[str, str]:
        return self.source, self.target

    @property
    def splits(self) -> dict[str, str]:
        """{fairseq's name of a split: the raw files' name without the side}."""
        names = {"train": self.train}
        for split, files in (("valid", self.valid), ("test", self.test)):
            for number, file in enumerate(files):
                names[f"{split}{number or ''}"] = file
        return names

    @property
    def forms(self) -> dict[str, TextForm]:
        """{side: how its lines become words and units}."""
        return {
            side: TextForm(WORD, self.tokenizer, side, self.bpe, marks_unknown=False)
            for side in self.sides
        }

    def raw(self, split: str) -> list[Path]:
        return [self.folder / f"{self.splits[split]}.{side}" for side in self.sides]

    def check(self) -> None:
        """Raise ``FairseqDocError`` for unusable values."""
        if self.source == self.target or not all(
            re.fullmatch(r"[^\s./,-]+", side) for side in self.sides
        ):
            raise FairseqDocError(
                "expected two different languages, the endings of the files, without . / , - or "
                f"spaces; got {self.source!r} and {self.target!r}"
            )
        check_merges(self.bpe, None if self.merges == type(self).merges else self.merges)
        files = list(self.splits.values())
        if len(set(files)) < len(files):
            raise FairseqDocError(f"each split needs its own file; got {', '.join(files)}")
        check_ranges(ParallelText, self)


def read_pairs(paths: list[Path]) -> Iterator[tuple[str, str]]:
    """Pairs of lines; the two files must have equally many."""
    source, target = paths
    for count, (left, right) in enumerate(zip_longest(text_lines(source), text_lines(target))):
        if left is None or right is None:
            shorter = source if left is None else target
            raise FairseqDocError(
                f"expected as many lines in {source} as in {target}; got {count:,} in {shorter}, "
                "and more in the other"
            )
        yield left, right


def why_dropped(pair: list[str], settings: ParallelText) -> str | None:
    """Why a pair is dropped from training; None for a pair to keep."""
    for line in pair:
        if reason := why_unusable(line, settings.bpe):
            return f"a side {reason}"
    lengths = [line.count(" ") + 1 for line in pair]
    if max(lengths) > settings.max_words:
        return f"more than {settings.max_words} words on a side"
    if settings.max_ratio is not None and max(lengths) > settings.max_ratio * min(lengths):
        return f"a side more than {settings.max_ratio:g} times as long as the other"
    return None


def write_text(settings: ParallelText, folder: Path, data: Path, say: Say) -> None:
    """Write the clean, tokenised text into ``folder``, and ``dropped.tsv`` into ``data``."""
    if settings.tokenizer == "moses":
        for remark in filter(None, map(moses_remark, settings.sides)):
            say(remark)
    with open(data / "dropped.tsv", "w", encoding="utf-8") as dropped:
        for split in reversed(settings.splits):  # training text, the longest, last
            _write_split(settings, split, folder, dropped, say)
    if settings.tokenizer == "none" and settings.bpe != "sentencepiece":
        for name in (f"train.{side}" for side in settings.sides):
            if warning := untokenised(made_lines(folder / name), name):
                say(warning)


def _write_split(
    settings: ParallelText, split: str, folder: Path, dropped: IO[str], say: Say
) -> None:
    raw, forms = settings.raw(split), settings.forms
    number = 0
    reasons: Counter[str] = Counter()  # why pairs are dropped
    cleaned, words, unknown = Counter[str](), Counter[str](), Counter[str]()  # by side
    with contextlib.ExitStack() as stack:
        paths = [folder / f"{split}.{side}" for side in forms]
        files = [stack.enter_context(open(path, "w", encoding="utf-8")) for path in paths]
        for number, lines in enumerate(read_pairs(raw), start=1):
            cleaned.update(s for s, line in zip(forms, lines, strict=True) if line != clean(line))
            pair = [form.words(line) for form, line in zip(forms.values(), lines, strict=True)]
            if split != "train":
                _check_usable(raw, number, pair, settings.bpe)
            elif reason := why_dropped(pair, settings):
                reasons[reason] += 1
                dropped.write(f"{number}\t{reason}\n")
                continue
            for side, line, file in zip(forms, pair, files, strict=True):
                words[side] += line.count(" ") + 1
                unknown[side] += line.split(" ").count(UNKNOWN)
                file.write(f"{line}\n")
    kept = number - reasons.total()
    if not kept:
        raise FairseqDocError(f"{raw[0]} and {raw[1]}: expected pairs that can be kept; got none")
    say(f"{split}: {number:,} pairs read from {settings.splits[split]}, {kept:,} kept")
    for reason, count in sorted(reasons.items()):
        say(f"{split}: {count:,} dropped: {reason}")
    for side in forms:
        marks = f", {unknown[side]:,} of them {UNKNOWN} in the text" if unknown[side] else ""
        say(f"{split}.{side}: {cleaned[side]:,} lines cleaned, {words[side]:,} words{marks}")


def _check_usable(raw: list[Path], number: int, pair: list[str], bpe: str) -> None:
    for path, line in zip(raw, pair, strict=True):
        if reason := why_unusable(line, bpe):
            raise FairseqDocError(
                f"{path}: line {number} {reason}; correct it: pairs are dropped from training text "
                "only"
            )


def prepare(
    settings: ParallelText, destination: Path, workers: int = 1, say: Say = print
) -> dict[str, Counts]:
    """Prepare ``destination``; returns the counts of each side. The result does not depend on
    ``workers``. ``say`` takes one line of the report at a time. Raises ``FairseqDocError`` for
    unusable text or settings; after any error nothing is left behind."""
    settings.check()
    pipeline = Pipeline(
        settings.forms,
        tuple(settings.splits),
        settings.merges,
        settings.joint,
        settings.threshold,
        workers=workers,
    )
    with new_data_folder(destination, say) as (data, say):
        raw = {
            f"{file}.{side}": settings.folder / f"{file}.{side}"
            for file in settings.splits.values()
            for side in settings.sides
        }
        write_settings(data, ParallelText, settings, raw, {})
        text = data.parent / "text"
        text.mkdir()
        write_text(settings, text, data, say)
        return pipeline.run(text, data, say)
