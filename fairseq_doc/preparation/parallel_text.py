"""Raw parallel text -> clean, tokenised, segmented, binarised data of fairseq's translation task.

FOLDER holds FILE.SRC and FILE.TGT, one sentence a line. The stages, each from the one before:

    text        clean words; unusable training pairs are dropped, and listed with the reason
    bpe         subword-nmt's merges or a sentencepiece model, learned on the training text
    segmented   the text in units
    data        fairseq's dictionaries and binarised splits, counted
"""

import argparse
import contextlib
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from itertools import chain, zip_longest
from pathlib import Path
from typing import IO, Any

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.files import text_lines, write_lines
from fairseq_doc.options import REQUIRED, check_ranges, option, positive
from fairseq_doc.preparation.binarisation import check_split, load_dictionary, preprocess
from fairseq_doc.preparation.stages import (
    Lines,
    Say,
    check_destination,
    made_lines,
    make_stamp,
    staged,
)
from fairseq_doc.preparation.tokenization import (
    BPE_KINDS,
    TOKENIZERS,
    UNKNOWN,
    check_merges,
    clean,
    learn_model,
    make_segmenter,
    make_tokenizer,
    model_name,
    moses_remark,
    untokenised,
    why_unusable,
)

LONG_LINES_LISTED = 5


def _files(split: str) -> Any:
    return option(
        f"the same for {split}, {split}1, and so on (default: {split})",
        (split,),
        type=lambda text: tuple(text.split(",")),
        metavar="FILE[,FILE]",
    )


@dataclass(frozen=True)
class Settings:
    """What decides the result, with the text itself."""

    source: str = option(
        "source language, as its files end", REQUIRED, positional=True, metavar="SRC"
    )
    target: str = option(
        "target language, as its files end", REQUIRED, positional=True, metavar="TGT"
    )
    folder: Path = option(
        "folder of the raw files, FILE.SRC and FILE.TGT, one sentence a line",
        REQUIRED,
        positional=True,
        metavar="FOLDER",
    )
    train: str = option("training files, without their ending", "train", metavar="FILE")
    valid: tuple[str, ...] = _files("valid")
    test: tuple[str, ...] = _files("test")
    bpe: str = option("how words are cut into units", BPE_KINDS[0], choices=BPE_KINDS)
    merges: int = option(
        "merges to learn a model; with sentencepiece the size of its vocabulary",
        16_000,
        type=positive,
        metavar="N",
    )
    joint: bool = option(
        "one model of units and one dictionary for both sides (default: for headlines only)",
        False,
        action=argparse.BooleanOptionalAction,
    )
    tokenizer: str = option(
        "how text is tokenised, as by fairseq's --tokenizer; none for text that is already",
        TOKENIZERS[0],
        choices=TOKENIZERS,
    )
    max_words: int = option(
        "drop training pairs with more words on a side", 250, type=positive, metavar="N"
    )
    max_ratio: float | None = option(
        "drop training pairs with a side more than X times as long as the other",
        metavar="X",
        least=1,
    )
    threshold: int = option(
        "units that occur less often in training become <unk>", 0, metavar="N", least=0
    )

    @property
    def sides(self) -> tuple[str, str]:
        return self.source, self.target

    @property
    def pair(self) -> str:
        return f"{self.source}-{self.target}"

    @property
    def splits(self) -> dict[str, str]:
        """{fairseq's name of a split: the raw files' name without the side}."""
        names = {"train": self.train}
        for split, files in (("valid", self.valid), ("test", self.test)):
            for number, file in enumerate(files):
                names[f"{split}{number or ''}"] = file
        return names

    @property
    def models(self) -> dict[str, tuple[str, ...]]:
        """{file of merges or of a model: the sides that it is learned on}."""
        if self.joint:
            return {model_name(self.bpe): self.sides}
        return {model_name(self.bpe, side): (side,) for side in self.sides}

    def raw(self, split: str) -> list[Path]:
        return [self.folder / f"{self.splits[split]}.{side}" for side in self.sides]

    def check(self) -> None:
        """Raise ``FairseqDocError`` for unusable values."""
        if self.source == self.target or not all(
            re.fullmatch(r"[^\s./,-]+", side) for side in self.sides
        ):
            raise FairseqDocError(
                "expected two sides' names without . / , - or blanks, as the files end; got "
                f"{self.source!r} and {self.target!r}"
            )
        check_merges(self.bpe, None if self.merges == type(self).merges else self.merges)
        files = list(self.splits.values())
        if len(set(files)) < len(files) or not all(files):
            raise FairseqDocError(f"expected other files for every split; got {', '.join(files)}")
        check_ranges(Settings, self)


def read_pairs(paths: list[Path]) -> Iterator[tuple[str, str]]:
    """Pairs of lines; the two files must have equally many, at least one."""
    source, target = paths
    count = 0
    for left, right in zip_longest(text_lines(source), text_lines(target)):
        if left is None or right is None:
            shorter = source if left is None else target
            raise FairseqDocError(
                f"expected as many lines in {source} as in {target}; got {count:,} in {shorter}, "
                "and more in the other"
            )
        count += 1
        yield left, right
    if not count:
        raise FairseqDocError(f"expected sentences in {source} and {target}; got none")


def why_dropped(pair: list[str], settings: Settings) -> str | None:
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


def write_text(settings: Settings, folder: Path) -> Lines:
    """Stage ``text``; yields its report."""
    if settings.tokenizer == "moses":
        yield from filter(None, map(moses_remark, settings.sides))
    with open(folder / "dropped.tsv", "w", encoding="utf-8") as dropped:
        for split in reversed(settings.splits):  # training text, the longest, last
            yield from _write_split(settings, split, folder, dropped)
    if settings.tokenizer == "none":
        for name in (f"train.{side}" for side in settings.sides):
            yield from untokenised(made_lines(folder / name), name)


def _write_split(settings: Settings, split: str, folder: Path, dropped: IO[str]) -> Lines:
    """Write both sides of a split, cleaned and tokenised; list the dropped pairs."""
    raw, sides = settings.raw(split), settings.sides
    tokenizers = [make_tokenizer(settings.tokenizer, side) for side in sides]
    counts: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    long = []  # numbers of the kept pairs with too many words
    with contextlib.ExitStack() as stack:
        paths = [folder / f"{split}.{side}" for side in sides]
        files = [stack.enter_context(open(path, "w", encoding="utf-8")) for path in paths]
        for number, lines in enumerate(read_pairs(raw), start=1):
            counts["read"] += 1
            plain = [clean(line) for line in lines]
            pair = [tokenize(line) for tokenize, line in zip(tokenizers, plain, strict=True)]
            for side, line, clean_line in zip(sides, lines, plain, strict=True):
                counts[f"{side} cleaned"] += line != clean_line
            if split == "train":
                if reason := why_dropped(pair, settings):
                    reasons[reason] += 1
                    dropped.write(f"{number}\t{reason}\n")
                    continue
            else:
                for path, line in zip(raw, pair, strict=True):
                    if reason := why_unusable(line, settings.bpe):
                        raise FairseqDocError(
                            f"{path}: line {number} {reason}; correct it: pairs are dropped from "
                            "training text only"
                        )
                if any(line.count(" ") >= settings.max_words for line in pair):
                    long.append(number)
            counts["kept"] += 1
            for side, line, file in zip(sides, pair, files, strict=True):
                counts[f"{side} words"] += line.count(" ") + 1
                counts[f"{side} unknown"] += line.split(" ").count(UNKNOWN)
                file.write(f"{line}\n")
    if not counts["kept"]:
        raise FairseqDocError(f"{raw[0]} and {raw[1]}: every pair would be dropped")
    name = settings.splits[split]
    yield f"{split}: {counts['read']:,} pairs read from {name}, {counts['kept']:,} kept"
    for why, count in sorted(reasons.items()):
        yield f"{split}: {count:,} dropped: {why}"
    if long:
        yield (
            f"{split}: {len(long):,} of more than {settings.max_words} words on a side, kept "
            f"whole: line {', '.join(map(str, long[:LONG_LINES_LISTED]))}"
            + (" ..." if len(long) > LONG_LINES_LISTED else "")
        )
    for side in sides:
        cleaned, words, unknown = (
            counts[f"{side} {what}"] for what in ("cleaned", "words", "unknown")
        )
        marks = f", {unknown:,} of them {UNKNOWN} in the text" if unknown else ""
        yield f"{split}.{side}: {cleaned:,} lines cleaned, {words:,} words{marks}"


def learn(settings: Settings, text: Path, folder: Path) -> Lines:
    """Stage ``bpe``; yields its report."""
    for name, sides in settings.models.items():
        lines = chain.from_iterable(made_lines(text / f"train.{side}") for side in sides)
        what = learn_model(settings.bpe, lines, folder / name, settings.merges)
        yield f"bpe {' and '.join(sides)}: {what}"


def segment(settings: Settings, text: Path, models: Path, folder: Path) -> Lines:
    """Stage ``segmented``; yields its report."""
    for name, sides in settings.models.items():
        segmenter = make_segmenter(settings.bpe, models / name)
        for side in sides:
            for split in settings.splits:
                file = f"{split}.{side}"
                write_lines(folder / file, map(segmenter, made_lines(text / file)))
                yield f"{file}: cut into units"


def binarise(settings: Settings, text: Path, workers: int, folder: Path) -> Lines:
    """Stage ``data``; yields its report."""
    splits = settings.splits
    arguments = [f"--source-lang={settings.source}", f"--target-lang={settings.target}"]
    for kind in ("train", "valid", "test"):
        prefixes = [str(text / split) for split in splits if split.startswith(kind)]
        arguments.append(f"--{kind}pref={','.join(prefixes)}")
    for side in ("src", "tgt"):
        arguments.append(f"--threshold{side}={settings.threshold}")
    if settings.joint:
        arguments.append("--joined-dictionary")
    preprocess(folder, [*arguments, f"--workers={workers}"])
    for side in settings.sides:
        dictionary = load_dictionary(folder / f"dict.{side}.txt")
        yield f"dictionary {side}: {len(dictionary):,} types"
        for split in splits:
            name = f"{split}.{side}"
            prefix = folder / f"{split}.{settings.pair}.{side}"
            lengths = (line.count(" ") + 2 for line in made_lines(text / name))
            sentences, tokens, unknown = check_split(name, prefix, dictionary, lengths)
            yield (
                f"{name}: {sentences:,} sentences and {tokens:,} tokens with end marks binarised, "
                f"{unknown:,} of them {UNKNOWN}"
            )


def prepare(settings: Settings, destination: Path, workers: int = 1, say: Say = print) -> None:
    """Prepare ``destination``, or resume; the result does not depend on ``workers``. ``say`` takes
    one line of the report at a time. Raises ``FairseqDocError`` for unusable text or settings, and
    then leaves nothing behind."""
    settings.check()
    check_destination(destination)
    raw = {
        f"{settings.splits[split]}.{side}": path
        for split in settings.splits
        for side, path in zip(settings.sides, settings.raw(split), strict=True)
    }
    made_by = {tool: version(tool) for tool in ("sacremoses", "subword-nmt", "sentencepiece")}
    with staged(destination, make_stamp(Settings, settings, raw, made_by), say) as stages:
        text = stages.run("text", lambda folder: write_text(settings, folder))
        units = text
        copies = [stages.settings, text / "dropped.tsv"]
        if settings.bpe != "none":
            models = stages.run("bpe", lambda folder: learn(settings, text, folder))
            units = stages.run("segmented", lambda folder: segment(settings, text, models, folder))
            copies += models.iterdir()
        data = stages.run("data", lambda folder: binarise(settings, units, workers, folder))
        stages.finish(data, destination, copies)
