"""Clean text of one side or two -> units (subwords) -> binarised data.

A language model's text has one side, ``txt``: SPLIT.txt, dict.txt, SPLIT.bin. Parallel text has
two, such as ``en`` and ``de``: SPLIT.en, dict.en.txt, SPLIT.en-de.en.bin.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from fairseq_doc import checksums
from fairseq_doc.errors import FairseqDocError
from fairseq_doc.files import MAX_LINE, copy_file, text_lines, write_lines
from fairseq_doc.preparation.binarisation import (
    Counts,
    count_split,
    load_dictionary,
    preprocess,
)
from fairseq_doc.preparation.data_folder import Say
from fairseq_doc.preparation.text_form import TextForm
from fairseq_doc.preparation.tokenization import LEARN, UNKNOWN, model_name

SPLITS = ("train", "valid", "test")
ONE_SIDE = "txt"
# Lines of the report on a dictionary and on a split, by the number of sides.
_TYPES = {1: "dictionary: {types} types", 2: "dictionary {side}: {types:,} types"}
_BINARISED = {
    1: "{split}: {lines} lines and {tokens} tokens binarised, {unknown} of them <unk>",
    2: "{split}.{side}: {lines:,} sentences and {tokens:,} tokens with end marks binarised, "
    "{unknown:,} of them <unk>",
}


def made_lines(path: Path) -> Iterator[str]:
    """The lines of a file that preparation wrote, which tokenisation and units have lengthened."""
    return text_lines(path, MAX_LINE << 6)


@dataclass(frozen=True)
class Pipeline:
    """The steps after clean text. ``forms``: {side: how its words become units}, one or two."""

    forms: Mapping[str, TextForm]
    splits: Sequence[str] = SPLITS
    merges: int = 0  # with sentencepiece the size of its vocabulary
    joint: bool = True  # one BPE model and one dictionary for all sides
    threshold: int = 0  # units that occur less often in training become <unk>
    like: Path | None = None  # data folder whose dictionary and BPE model are used
    workers: int = 1

    @property
    def is_pair(self) -> bool:
        return len(self.forms) == 2

    def run(self, text: Path, data: Path, say: Say) -> dict[str, Counts]:
        """Fill the folder ``data`` from ``text``, which holds SPLIT.SIDE, clean words, one sentence
        per line. Units are written beside ``data``, into a parent that :func:`new_data_folder`
        removes. Returns {side: counts}."""
        bpe = next(iter(self.forms.values())).bpe
        if bpe == "none":
            return self._binarise(text, data, say)
        models = {model_name(bpe): tuple(self.forms)}  # {file: the sides it is learned on}
        if not self.joint:
            models = {model_name(bpe, side): (side,) for side in self.forms}
        for name, sides in models.items():
            self._learn(text, data / name, sides, say)
        units = data.parent / "units"
        units.mkdir()
        for name, sides in models.items():
            for side in sides:
                form = replace(self.forms[side], model=data / name)
                for split in self.splits:
                    file = f"{split}.{side}"
                    write_lines(units / file, map(form.units, made_lines(text / file)))
                    say(f"{file if self.is_pair else split}: cut into units")
        return self._binarise(units, data, say)

    def _learn(self, text: Path, model: Path, sides: Sequence[str], say: Say) -> None:
        if self.like is not None:
            checksums.check(self.like / model.name)
            copy_file(self.like / model.name, model)
            return
        files = (text / f"train.{side}" for side in sides)
        lines: Iterator[str] = chain.from_iterable(map(made_lines, files))
        form = self.forms[sides[0]]
        if form.marks_unknown:  # <unk> stays whole
            lines = (" ".join(w for w in line.split() if w != UNKNOWN) for line in lines)
        what = LEARN[form.bpe](lines, model, self.merges)
        say(f"bpe{' ' + ' and '.join(sides) if self.is_pair else ''}: {what}")

    def _binarise(self, text: Path, data: Path, say: Say) -> dict[str, Counts]:
        preprocess(data, self._arguments(text))
        number = len(self.forms)
        counts = {}
        for side in self.forms:
            name, suffix = "dict.txt", ""
            if self.is_pair:
                name, suffix = f"dict.{side}.txt", f".{'-'.join(self.forms)}.{side}"
            if (data / name).stat().st_size == 0:
                least = max(1, self.threshold)
                raise FairseqDocError(
                    f"expected words that occur at least {least} times in training; got none"
                )
            dictionary = load_dictionary(data / name)
            say(_TYPES[number].format(side=side, types=len(dictionary)))
            splits = {}
            for split in self.splits:
                splits[split] = count_split(data / f"{split}{suffix}", dictionary)
                say(_BINARISED[number].format(split=split, side=side, **splits[split]._asdict()))
            counts[side] = Counts(dictionary, splits)
        return counts

    def _arguments(self, text: Path) -> list[str]:
        """fairseq-preprocess's arguments for a folder of text."""
        end = "" if self.is_pair else f".{ONE_SIDE}"
        arguments = [f"--workers={self.workers}"]
        for kind in SPLITS:
            prefixes = [f"{text / split}{end}" for split in self.splits if split.startswith(kind)]
            arguments.append(f"--{kind}pref={','.join(prefixes)}")
        if self.like is None:
            arguments.append(f"--thresholdsrc={self.threshold}")
        else:
            arguments.append(f"--srcdict={self.like / 'dict.txt'}")
        if not self.is_pair:
            return [*arguments, "--only-source", "--padding-factor=1"]
        source, target = self.forms
        arguments += [f"--source-lang={source}", f"--target-lang={target}"]
        arguments.append(f"--thresholdtgt={self.threshold}")
        return [*arguments, "--joined-dictionary"] if self.joint else arguments
