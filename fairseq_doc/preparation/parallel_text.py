"""Raw parallel text -> clean, tokenised, segmented, binarised: data for fairseq's translation task.

FOLDER holds FILE.SRC and FILE.TGT, one sentence a line, for every FILE that --train, --valid and
--test name. The stages, each from the files of the one before:

    text        white space and control characters become single blanks, words by Moses' rules;
                training pairs that cannot be used are dropped, each listed with its reason
    bpe         subword-nmt's merges or a sentencepiece model, learned on the training text
    segmented   the text in these units
    data        fairseq's dictionaries and binarised splits, counted again as they were written
"""

import contextlib
import io
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from itertools import chain, zip_longest
from pathlib import Path
from typing import IO

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.files import MAX_LINE, check_input, text_lines
from fairseq_doc.preparation.binarisation import (
    check_lengths,
    load_dictionary,
    load_split,
    preprocess,
)
from fairseq_doc.preparation.stages import (
    SETTINGS,
    Lines,
    Say,
    check_destination,
    make_stamp,
    staged,
)
from fairseq_doc.preparation.tokenization import (
    UNKNOWN,
    clean,
    make_segmenter,
    make_tokenizer,
    moses_remark,
    why_unusable,
)

MADE_LINE = MAX_LINE << 6  # bytes; what tokenising and cutting into units can make of a raw line
SENTENCEPIECE_LINE = 1 << 24  # bytes; sentencepiece leaves longer lines out of its training
LONG_LINES_LISTED = 5


@dataclass(frozen=True)
class Settings:
    """What decides the result, with the text itself.

    Attributes:
        source, target: how the files of the two sides end, and what fairseq calls them.
        folder: where the raw files lie.
        train, valid, test: files without their ending; of valid and test one or more.
        bpe: one of ``BPE_KINDS``.
        merges: merges to learn a model; with sentencepiece the size of its vocabulary.
        joint: one model and one dictionary for both sides.
        tokenizer: one of ``TOKENIZERS``.
        max_words: training pairs with more words on a side are dropped.
        max_ratio: training pairs with a side so many times longer than the other are dropped; None
            for no bound.
        threshold: units that occur less often in training are unknown.
    """

    source: str
    target: str
    folder: str
    train: str = "train"
    valid: tuple[str, ...] = ("valid",)
    test: tuple[str, ...] = ("test",)
    bpe: str = "subword_nmt"
    merges: int = 16_000
    joint: bool = False
    tokenizer: str = "moses"
    max_words: int = 250
    max_ratio: float | None = None
    threshold: int = 0

    @property
    def sides(self) -> tuple[str, str]:
        """Both sides' names."""
        return self.source, self.target

    @property
    def pair(self) -> str:
        """Both sides' names, as fairseq puts them into the names of files."""
        return f"{self.source}-{self.target}"

    @property
    def splits(self) -> dict[str, str]:
        """{fairseq's name of a split: the raw files' name without the side}."""
        names = {"train": self.train}
        for split, files in (("valid", self.valid), ("test", self.test)):
            for number, file in enumerate(files):
                names[split if number == 0 else f"{split}{number}"] = file
        return names

    @property
    def models(self) -> dict[str, tuple[str, ...]]:
        """{the ending of a model's file: the sides that it is learned on}."""
        if self.joint:
            return {"": self.sides}
        return {f".{side}": (side,) for side in self.sides}

    def raw(self, split: str) -> list[Path]:
        """Both sides' raw files of a split."""
        return [Path(self.folder) / f"{self.splits[split]}.{side}" for side in self.sides]

    @property
    def raw_files(self) -> dict[str, Path]:
        """{name in the folder: raw file} of every split and side."""
        return {
            f"{name}.{side}": Path(self.folder) / f"{name}.{side}"
            for name in self.splits.values()
            for side in self.sides
        }

    def model_name(self, ending: str) -> str:
        """The name of the file with the merges, or of the model, of that ending."""
        return f"bpe.codes{ending}" if self.bpe == "subword_nmt" else f"sentencepiece{ending}.model"


def check(settings: Settings, destination: Path) -> None:
    """Raise ``FairseqDocError`` where a preparation cannot start: before any work."""
    if settings.source == settings.target or not all(
        re.fullmatch(r"[^\s./,-]+", side) for side in settings.sides
    ):
        raise FairseqDocError(
            f"expected two sides' names without . / , - or blanks, as the files end; got "
            f"{settings.source!r} and {settings.target!r}"
        )
    files = list(settings.splits.values())
    if len(set(files)) < len(files) or not all(files):
        raise FairseqDocError(f"expected other files for every split; got {', '.join(files)}")
    for option, value, least in (
        ("--merges", settings.merges, 1),
        ("--max-words", settings.max_words, 1),
        ("--max-ratio", settings.max_ratio, 1),
        ("--threshold", settings.threshold, 0),
    ):
        if value is not None and not value >= least:  # a number that is none is refused too
            raise FairseqDocError(f"{option} must be at least {least}; got {value}")
    check_destination(destination)
    for path in settings.raw_files.values():
        check_input(path, again=True)


def made_lines(path: Path) -> Iterator[str]:
    """The lines of a file that a stage made."""
    return text_lines(path, MADE_LINE)


def read_pairs(paths: list[Path]) -> Iterator[tuple[str, str]]:
    """Pairs of lines of two files.

    Raises:
        FairseqDocError: as :func:`text_lines`, and for files that differ in length or hold nothing.
    """
    empty = True
    source, target = paths
    for left, right in zip_longest(text_lines(source), text_lines(target)):
        empty = False
        if left is None or right is None:
            counts = [sum(1 for _ in text_lines(path)) for path in paths]
            raise FairseqDocError(
                f"expected as many lines on both sides; got {counts[0]:,} in {source} and "
                f"{counts[1]:,} in {target}"
            )
        yield left, right
    if empty:
        raise FairseqDocError(f"expected sentences in {source} and {target}; got none")


def why_dropped(pair: list[str], settings: Settings) -> str | None:
    """Why a pair is kept out of training, in a few words; None for a pair to keep."""
    for line in pair:
        reason = why_unusable(line, settings.bpe)
        if reason:
            return f"a side {reason}"
    lengths = [line.count(" ") + 1 for line in pair]
    if max(lengths) > settings.max_words:
        return f"more than {settings.max_words} words on a side"
    if settings.max_ratio is not None and max(lengths) > settings.max_ratio * min(lengths):
        return f"a side more than {settings.max_ratio:g} times as long as the other"
    return None


@dataclass
class TextCounts:
    """What is counted while the text of a split is written.

    Attributes:
        read, kept: pairs.
        dropped: {reason: pairs}.
        long: numbers, from 1, of the pairs with too many words that were kept.
        cleaned, words, unknown: of each side: lines that cleaning changed, words, ``<unk>``.
    """

    read: int = 0
    kept: int = 0
    dropped: Counter = field(default_factory=Counter)
    long: list[int] = field(default_factory=list)
    cleaned: Counter = field(default_factory=Counter)
    words: Counter = field(default_factory=Counter)
    unknown: Counter = field(default_factory=Counter)

    def add(self, pair: list[str], settings: Settings) -> None:
        """Count a pair that is kept."""
        self.kept += 1
        if any(line.count(" ") >= settings.max_words for line in pair):
            self.long.append(self.read)
        for side, line in zip(settings.sides, pair, strict=True):
            words = line.split(" ")
            self.words[side] += len(words)
            self.unknown[side] += words.count(UNKNOWN)

    def lines(self, split: str, settings: Settings) -> Lines:
        """The counts as text."""
        name = settings.splits[split]
        yield f"{split}: {self.read:,} pairs read from {name}, {self.kept:,} kept"
        for reason, count in sorted(self.dropped.items()):
            yield f"{split}: {count:,} dropped: {reason}"
        if self.long:
            listed = ", ".join(map(str, self.long[:LONG_LINES_LISTED]))
            more = " ..." if len(self.long) > LONG_LINES_LISTED else ""
            yield (
                f"{split}: {len(self.long):,} of more than {settings.max_words} words on a side, "
                f"kept whole: line {listed}{more}"
            )
        for side in settings.sides:
            unknown = self.unknown[side]
            marks = f", {unknown:,} of them {UNKNOWN} in the text" if unknown else ""
            yield (
                f"{split}.{side}: {self.cleaned[side]:,} lines cleaned, {self.words[side]:,} words"
                f"{marks}"
            )


def write_text(settings: Settings, folder: Path) -> Lines:
    """Stage ``text``; yields lines of what was done."""
    if settings.tokenizer == "moses":
        for side in settings.sides:
            remark = moses_remark(side)
            if remark:
                yield remark
    with open(folder / "dropped.tsv", "w", encoding="utf-8") as dropped:
        for split in reversed(settings.splits):  # training text, the longest, last
            counts = _write_split(settings, split, folder, dropped)
            yield from counts.lines(split, settings)
            if not counts.kept:
                source, target = settings.raw(split)
                raise FairseqDocError(f"{source} and {target}: every pair would be dropped")


def _write_split(settings: Settings, split: str, folder: Path, dropped: IO[str]) -> TextCounts:
    """Write both sides of a split, cleaned and tokenised; list the pairs that are dropped."""
    raw = settings.raw(split)
    tokenizers = [make_tokenizer(settings.tokenizer, side) for side in settings.sides]
    counts = TextCounts()
    with contextlib.ExitStack() as stack:
        files = [
            stack.enter_context(open(folder / f"{split}.{side}", "w", encoding="utf-8"))
            for side in settings.sides
        ]
        for lines in read_pairs(raw):
            counts.read += 1
            pair = [clean(line) for line in lines]
            for side, line, cleaned in zip(settings.sides, lines, pair, strict=True):
                counts.cleaned[side] += line != cleaned
            pair = [tokenize(line) for tokenize, line in zip(tokenizers, pair, strict=True)]
            if split == "train":
                reason = why_dropped(pair, settings)
                if reason:
                    counts.dropped[reason] += 1
                    dropped.write(f"{counts.read}\t{reason}\n")
                    continue
            else:
                _check_usable(settings, raw, counts.read, pair)
            counts.add(pair, settings)
            for file, line in zip(files, pair, strict=True):
                file.write(f"{line}\n")
    return counts


def _check_usable(settings: Settings, paths: list[Path], number: int, pair: list[str]) -> None:
    """Raise ``FairseqDocError`` for a line that validation and test text may not hold."""
    for path, line in zip(paths, pair, strict=True):
        reason = why_unusable(line, settings.bpe)
        if reason:
            raise FairseqDocError(
                f"{path}: line {number} {reason}; correct it: pairs are dropped from training text "
                "only"
            )


def learn(settings: Settings, text: Path, folder: Path) -> Lines:
    """Stage ``bpe``; yields lines of what was learned."""
    for ending, sides in settings.models.items():
        files = [text / f"train.{side}" for side in sides]
        model = folder / settings.model_name(ending)
        names = " and ".join(sides)
        if settings.bpe == "subword_nmt":
            learned = _learn_merges(files, model, settings.merges)
            fewer = "" if learned == settings.merges else "; no other pair occurs twice"
            yield f"bpe {names}: {learned:,} of {settings.merges:,} merges learned{fewer}"
        else:
            pieces = _learn_sentencepiece(files, model, settings.merges)
            yield f"bpe {names}: {pieces:,} pieces learned"


def _learn_merges(files: list[Path], model: Path, merges: int) -> int:
    """Write subword-nmt's codes; their number."""
    from subword_nmt.learn_bpe import learn_bpe

    lines = chain.from_iterable(map(made_lines, files))
    codes = io.StringIO()
    progress = sys.stderr if sys.stderr.isatty() else io.StringIO()
    with contextlib.redirect_stderr(progress):
        try:
            learn_bpe(lines, codes, merges)
        except ValueError:  # it takes the largest count, and there is no pair to count
            raise FairseqDocError(
                "expected words of two or more characters in training; got none, so there is "
                "nothing to merge: give --bpe none"
            ) from None
    model.write_text(codes.getvalue(), encoding="utf-8")
    return codes.getvalue().count("\n") - 1  # the first line is the version


def _learn_sentencepiece(files: list[Path], model: Path, size: int) -> int:
    """Write sentencepiece's model; the number of its pieces."""
    import sentencepiece

    out = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=chain.from_iterable(map(made_lines, files)),
            model_writer=out,
            model_type="bpe",
            vocab_size=size,
            character_coverage=1.0,
            normalization_rule_name="identity",  # decoding can undo nothing else
            max_sentence_length=SENTENCEPIECE_LINE,
            num_threads=1,  # the same model on every machine
            minloglevel=2,
        )
    except RuntimeError as error:
        raise FairseqDocError(
            f"sentencepiece cannot learn a vocabulary of {size:,} from this text; give another "
            f"--merges ({' '.join(str(error).split())})"
        ) from None
    model.write_bytes(out.getvalue())
    return sentencepiece.SentencePieceProcessor(model_proto=out.getvalue()).get_piece_size()


def segment(settings: Settings, text: Path, models: Path, folder: Path) -> Lines:
    """Stage ``segmented``; yields the units of each file."""
    for ending, sides in settings.models.items():
        segmenter = make_segmenter(settings.bpe, models / settings.model_name(ending))
        for side in sides:
            for split in settings.splits:
                units = 0
                with open(folder / f"{split}.{side}", "w", encoding="utf-8") as file:
                    for line in made_lines(text / f"{split}.{side}"):
                        segmented = segmenter(line)
                        units += segmented.count(" ") + 1
                        file.write(f"{segmented}\n")
                yield f"{split}.{side}: {units:,} units"


def binarise(settings: Settings, text: Path, workers: int, folder: Path) -> Lines:
    """Stage ``data``; yields what was written."""
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
            lengths = [line.count(" ") + 2 for line in made_lines(text / f"{split}.{side}")]
            written = load_split(folder / f"{split}.{settings.pair}.{side}", dictionary)
            check_lengths(f"{split}.{side}", lengths, written.sizes)
            unknown = sum(int((item == dictionary.unk()).sum()) for item in written)
            yield (
                f"{split}.{side}: {len(lengths):,} sentences and {sum(lengths):,} tokens with end "
                f"marks binarised, {unknown:,} of them {UNKNOWN}"
            )


def _stamp(settings: Settings) -> str:
    """What decides the result: the settings, the raw files' contents, the tools."""
    import fairseq

    made_by = {tool: version(tool) for tool in ("sacremoses", "subword-nmt", "sentencepiece")}
    made_by["fairseq"] = fairseq.__version__
    decided = asdict(settings)
    del decided["folder"]  # the same text elsewhere gives the same data
    return make_stamp(decided, settings.raw_files, made_by)


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
    if workers < 1:
        raise FairseqDocError(f"--workers must be at least 1; got {workers}")
    check(settings, destination)
    with staged(destination, _stamp(settings), say) as stages:
        text = stages.run("text", lambda folder: write_text(settings, folder))
        units = text
        copies = [stages.part / SETTINGS, text / "dropped.tsv"]
        if settings.bpe != "none":
            models = stages.run("bpe", lambda folder: learn(settings, text, folder))
            units = stages.run("segmented", lambda folder: segment(settings, text, models, folder))
            copies += models.iterdir()
        data = stages.run("data", lambda folder: binarise(settings, units, workers, folder))
        stages.finish(data, destination, copies)
