"""Clean text of one side or two -> units -> binarised data, in stages.

A language model's text has one side, ``txt``: SPLIT.txt, dict.txt, SPLIT.bin. Parallel text has two,
such as ``en`` and ``de``: SPLIT.en, dict.en.txt, SPLIT.en-de.en.bin. After a stage that writes the
clean words of SPLIT.SIDE, one sentence a line, come

    bpe         subword-nmt's merges or a sentencepiece model, learned on the training text
    segmented   the text in units
    data        fairseq's dictionaries and binarised splits, counted
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path

from fairseq.data import Dictionary

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.files import copy_file, write_lines
from fairseq_doc.preparation.binarisation import (
    SplitCounts,
    check_split,
    load_dictionary,
    preprocess,
)
from fairseq_doc.preparation.stages import Lines, StagedFolder, made_lines
from fairseq_doc.preparation.text_form import TextForm
from fairseq_doc.preparation.tokenization import UNKNOWN, learn_model, model_name

SPLITS = ("train", "valid", "test")
ONE_SIDE = "txt"
# What is reported of a dictionary and of a split, for {one side: ..., two: ...}.
_TYPES = {1: "dictionary: {types} types", 2: "dictionary {side}: {types:,} types"}
_BINARISED = {
    1: "{split}: {lines} lines and {tokens} tokens binarised, {unknown} of them <unk>",
    2: "{split}.{side}: {lines:,} sentences and {tokens:,} tokens with end marks binarised, "
    "{unknown:,} of them <unk>",
}


@dataclass(frozen=True)
class PublishedCounts:
    """A published corpus: tokens of each split with one end mark a line, and types with the end
    mark; or bytes of each split, and kinds of bytes in all three."""

    tokens: dict[str, int]
    types: int


def check_published(name: str, what: str, expected: int, number: int) -> None:
    """Raise ``FairseqDocError`` for another number than the published one."""
    if number != expected:
        raise FairseqDocError(f"{name}: expected {expected} {what}, as published; got {number}")


def line_lengths(path: Path) -> Iterator[int]:
    """Tokens of every line with its end mark; only ASCII blanks separate them."""
    return (len(line.encode().split()) + 1 for line in made_lines(path))


@dataclass(frozen=True)
class Pipeline:
    """The stages after clean text. ``forms``: {side: how its words become units}, one or two."""

    forms: Mapping[str, TextForm]
    splits: Sequence[str] = SPLITS
    merges: int = 0  # pieces with sentencepiece
    joint: bool = True  # one model of units and one dictionary for all sides
    threshold: int = 0  # units that occur less often in training become <unk>
    like: Path | None = None  # folder of data whose dictionary and units to take
    published: PublishedCounts | None = None  # what one side must have
    workers: int = 1

    @property
    def bpe(self) -> str:
        return next(iter(self.forms.values())).bpe

    @property
    def models(self) -> dict[str, tuple[str, ...]]:
        """{file of merges or of a model: the sides that it is learned on}."""
        if self.joint:
            return {model_name(self.bpe): tuple(self.forms)}
        return {model_name(self.bpe, side): (side,) for side in self.forms}

    @property
    def is_pair(self) -> bool:
        return len(self.forms) == 2

    def run(self, stages: StagedFolder, text: Path) -> tuple[Path, list[Path]]:
        """Run the stages on a folder of clean text; gives the folder of the data, and the models
        of units."""
        units, models = text, []
        if self.bpe != "none":
            folder = stages.run("bpe", partial(self.learn, text))
            units = stages.run("segmented", partial(self.segment, text, folder))
            models = list(folder.iterdir())
        return stages.run("data", partial(self.binarise, units)), models

    def learn(self, text: Path, folder: Path) -> Lines:
        """Stage ``bpe``, models learned from the text or an earlier one; yields its report."""
        for name, sides in self.models.items():
            if self.like is not None:
                copy_file(self.like / name, folder / name)
                continue
            files = (text / f"train.{side}" for side in sides)
            lines: Iterator[str] = chain.from_iterable(map(made_lines, files))
            if self.forms[sides[0]].marks_unknown:  # <unk> stays whole
                lines = (" ".join(w for w in line.split() if w != UNKNOWN) for line in lines)
            what = learn_model(self.bpe, lines, folder / name, self.merges)
            yield f"bpe{' ' + ' and '.join(sides) if self.is_pair else ''}: {what}"

    def segment(self, text: Path, models: Path, folder: Path) -> Lines:
        """Stage ``segmented``; yields its report."""
        for name, sides in self.models.items():
            for side in sides:
                form = replace(self.forms[side], model=models / name)
                for split in self.splits:
                    file = f"{split}.{side}"
                    write_lines(folder / file, map(form.units, made_lines(text / file)))
                    yield f"{file if self.is_pair else split}: cut into units"

    def binarise(self, text: Path, folder: Path) -> Lines:
        """Stage ``data``; yields its report. Raises ``FairseqDocError`` for other counts than the
        published ones."""
        preprocess(folder, self._arguments(text))
        number = len(self.forms)
        for side in self.forms:
            name, suffix = "dict.txt", ""
            if self.is_pair:
                name, suffix = f"dict.{side}.txt", f".{'-'.join(self.forms)}.{side}"
            dictionary = load_dictionary(folder / name)
            yield _TYPES[number].format(side=side, types=len(dictionary))
            counts = {}
            for split in self.splits:
                file = f"{split}.{side}"
                lengths = line_lengths(text / file)
                found = check_split(file, folder / f"{split}{suffix}", dictionary, lengths)
                yield _BINARISED[number].format(split=split, side=side, **found._asdict())
                counts[split] = found
        if not self.is_pair:
            yield from self._check_counts(dictionary, counts)

    def _arguments(self, text: Path) -> list[str]:
        """fairseq-preprocess's arguments for a folder of text."""
        end = "" if self.is_pair else f".{ONE_SIDE}"
        arguments = [f"--workers={self.workers}"]
        for kind in SPLITS:
            prefixes = [f"{text / split}{end}" for split in self.splits if split.startswith(kind)]
            arguments.append(f"--{kind}pref={','.join(prefixes)}")
        known = f"--thresholdsrc={self.threshold}"
        if self.like is not None:
            known = f"--srcdict={self.like / 'dict.txt'}"
        arguments.append(known)
        if not self.is_pair:
            return [*arguments, "--only-source", "--padding-factor=1"]
        source, target = self.forms
        arguments += [f"--source-lang={source}", f"--target-lang={target}"]
        arguments.append(f"--thresholdtgt={self.threshold}")
        return [*arguments, "--joined-dictionary"] if self.joint else arguments

    def _check_counts(self, dictionary: Dictionary, counts: Mapping[str, SplitCounts]) -> Lines:
        """Compare one side's counts with the published ones; yields a warning about unknown words
        that are never trained."""
        if self.published is not None:
            for split, found in counts.items():
                expected = self.published.tokens[split]
                check_published(f"{split}.txt", "tokens", expected, found.tokens)
            # Of fairseq's own <s>, <pad>, </s> and <unk> a text has the last two.
            types = len(dictionary) - dictionary.nspecial + 2
            what = "word types with the end mark"
            check_published("train.txt", what, self.published.types, types)
        train, valid, test = (counts[split].unknown for split in SPLITS)
        if self.like is None and train == 0 < max(valid, test):
            # Makes the rarest words unknown.
            least = min(dictionary.count[dictionary.nspecial :]) + 1
            yield (
                f"warning: {UNKNOWN} occurs {valid} times in valid and {test} in test, but never in "
                "train: the model cannot learn to predict unknown words, and each costs very many "
                f"bits; --threshold {least} replaces words that occur less than {least} times in "
                f"train by {UNKNOWN}"
            )
