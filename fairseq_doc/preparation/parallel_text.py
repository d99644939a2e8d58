"""Raw parallel text -> clean, tokenised, segmented, binarised: the stages of
scripts/prepare_parallel.py.

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
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path

from sacremoses.corpus import NonbreakingPrefixes
from subword_nmt.apply_bpe import BPE
from subword_nmt.learn_bpe import learn_bpe

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.files import text_lines
from fairseq_doc.scoring.hypotheses import moses

CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
RESERVED = {"<s>", "<pad>", "</s>"}  # a dictionary takes these words for its own symbols
SENTENCEPIECE_LINE = 1 << 24  # bytes; sentencepiece leaves longer lines out of its training


@dataclass(frozen=True)
class Settings:
    """What decides the result, with the text itself.

    Attributes:
        source, target: how the files of the two sides end, and what fairseq calls them.
        folder: where the raw files lie.
        train, valid, test: files without their ending; of the latter two one or more.
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
    valid: tuple = ("valid",)
    test: tuple = ("test",)
    bpe: str = "subword_nmt"
    merges: int = 16_000
    joint: bool = False
    tokenizer: str = "moses"
    max_words: int = 250
    max_ratio: float | None = None
    threshold: int = 0

    @property
    def sides(self):
        """Both sides' names."""
        return self.source, self.target

    @property
    def splits(self):
        """{fairseq's name of a split: the raw files' name without the side}."""
        names = {"train": self.train}
        for split, files in (("valid", self.valid), ("test", self.test)):
            names |= {f"{split}{n or ''}": file for n, file in enumerate(files)}
        return names

    @property
    def models(self):
        """{the ending of a model's file: the sides that it is learned on}."""
        return {"": self.sides} if self.joint else {f".{side}": (side,) for side in self.sides}

    def raw(self, split):
        """Both sides' raw files of a split."""
        return [Path(self.folder) / f"{self.splits[split]}.{side}" for side in self.sides]

    def model_name(self, ending):
        """The name of the file with the merges, or of the model, of that ending."""
        return f"bpe.codes{ending}" if self.bpe == "subword_nmt" else f"sentencepiece{ending}.model"


def clean(line):
    """White space and control characters, line separators among them, as single blanks; none at the
    ends, nor a byte order mark at the start; nothing else is changed."""
    return " ".join(CONTROL.sub(" ", line.removeprefix("\ufeff")).split())


def read_pairs(paths):
    """Pairs of lines of two files.

    Raises:
        FairseqDocError: as :func:`text_lines`, and for files that differ in length or hold nothing.
    """
    empty = True
    for pair in zip_longest(*map(text_lines, paths)):
        empty = False
        if None in pair:
            counts = [sum(1 for _ in text_lines(path)) for path in paths]
            raise FairseqDocError(
                f"expected as many lines on both sides; got {counts[0]:,} in {paths[0]} and "
                f"{counts[1]:,} in {paths[1]}"
            )
        yield pair
    if empty:
        raise FairseqDocError(f"expected sentences in {paths[0]} and {paths[1]}; got none")


def make_tokenizer(name, side):
    """What fairseq's ``--tokenizer`` of that name makes of a clean line in a language: its words with
    single blanks between."""
    if name == "none":
        return str
    encode = moses(side).encode
    return lambda line: " ".join(encode(line).split())  # Moses leaves two before a last .'


def ambiguous(line, bpe):
    """Whether a line of words holds what undoing the segmentation would take for its marks."""
    if bpe == "subword_nmt":
        return "@@ " in f"{line} "
    return bpe == "sentencepiece" and "\u2581" in line


def why_unusable(line, bpe):
    """Why a line of words fits no split, in a few words; None where it does."""
    if not line:
        return "is empty"
    # Characters that sentencepiece does not know become one unit, wherever they stand.
    units = line if bpe == "sentencepiece" else line.split()
    if any(symbol in units for symbol in RESERVED):
        return "holds a word of fairseq's own, <s>, <pad> or </s>"
    if ambiguous(line, bpe):
        mark = "a word that ends in @@" if bpe == "subword_nmt" else "\u2581"
        return f"holds {mark}, the mark of --bpe {bpe}"
    return None


def why_dropped(pair, max_words, max_ratio):
    """Why a usable pair is kept out of training, in a few words; None where it is not."""
    lengths = [line.count(" ") + 1 for line in pair]
    if max(lengths) > max_words:
        return f"more than {max_words} words on a side"
    if max_ratio is not None and max(lengths) > max_ratio * min(lengths):
        return f"a side more than {max_ratio:g} times as long as the other"
    return None


def write_text(settings, folder):
    """Stage ``text``; yields what to tell."""
    tokenizers = [make_tokenizer(settings.tokenizer, side) for side in settings.sides]
    if settings.tokenizer == "moses":
        known = NonbreakingPrefixes().available_langs
        for side in settings.sides:
            if side not in known:
                yield f"moses has no abbreviations of {side!r}, English ones stand in"
    dropped = Counter()
    with open(folder / "dropped.tsv", "w", encoding="utf-8") as drops:
        for split, name in reversed(settings.splits.items()):  # the long one last
            raw = settings.raw(split)
            kept = total = 0
            cleaned, words, unknown, long = Counter(), Counter(), Counter(), []
            with contextlib.ExitStack() as stack:
                files = [
                    stack.enter_context(open(folder / f"{split}.{side}", "w", encoding="utf-8"))
                    for side in settings.sides
                ]
                for total, lines in enumerate(read_pairs(raw), start=1):
                    pair = [clean(line) for line in lines]
                    cleaned.update(i for i in (0, 1) if pair[i] != lines[i])
                    pair = [tokenize(line) for tokenize, line in zip(tokenizers, pair, strict=True)]
                    unusable = [why_unusable(line, settings.bpe) for line in pair]
                    if split == "train":
                        drop = next((f"a side {reason}" for reason in unusable if reason), None)
                        drop = drop or why_dropped(pair, settings.max_words, settings.max_ratio)
                        if drop:
                            dropped[drop] += 1
                            drops.write(f"{total}\t{drop}\n")
                            continue
                    for path, reason in zip(raw, unusable, strict=True):
                        if reason:
                            raise FairseqDocError(
                                f"{path}: line {total} {reason}; mend it: pairs are dropped from "
                                "training text alone"
                            )
                    if any(line.count(" ") >= settings.max_words for line in pair):
                        long.append(total)
                    kept += 1
                    for i, line in enumerate(pair):
                        tokens = line.split(" ")
                        words[i] += len(tokens)
                        unknown[i] += tokens.count("<unk>")
                        files[i].write(f"{line}\n")
            yield f"{split}: {total:,} pairs read from {name}, {kept:,} kept"
            if split == "train":
                for reason, count in sorted(dropped.items()):
                    yield f"{split}: {count:,} dropped: {reason}"
                if not kept:
                    raise FairseqDocError(f"{raw[0]} and {raw[1]}: every pair would be dropped")
            if long:
                yield (
                    f"{split}: {len(long):,} of more than {settings.max_words} words on a side, kept "
                    f"whole: line {', '.join(map(str, long[:5]))}{' ...' if len(long) > 5 else ''}"
                )
            for i, side in enumerate(settings.sides):
                marks = f", {unknown[i]:,} of them <unk> in the text" if unknown[i] else ""
                yield (f"{split}.{side}: {cleaned[i]:,} lines cleaned, {words[i]:,} words{marks}")


def learn(settings, text, folder):
    """Stage ``bpe``; yields what to tell."""
    for ending, sides in settings.models.items():
        files = [text / f"train.{side}" for side in sides]
        model = folder / settings.model_name(ending)
        of = " and ".join(sides)
        if settings.bpe == "subword_nmt":
            learned = _learn_merges(files, model, settings.merges)
            fewer = "" if learned == settings.merges else "; no other pair occurs twice"
            yield f"bpe {of}: {learned:,} of {settings.merges:,} merges learned{fewer}"
        else:
            pieces = _learn_sentencepiece(files, model, settings.merges)
            yield f"bpe {of}: {pieces:,} pieces learned"


def _learn_merges(files, model, merges):
    lines = chain.from_iterable(map(text_lines, files))
    out = io.StringIO()
    with contextlib.redirect_stderr(sys.stderr if sys.stderr.isatty() else io.StringIO()):
        try:
            learn_bpe(lines, out, merges)
        except ValueError:  # the largest count of no pair at all
            raise FairseqDocError(
                "expected words of two or more characters in training; got none, so there is "
                "nothing to merge: give --bpe none"
            ) from None
    model.write_text(out.getvalue(), encoding="utf-8")
    return out.getvalue().count("\n") - 1  # but for the version


def _learn_sentencepiece(files, model, size):
    import sentencepiece

    out = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=chain.from_iterable(map(text_lines, files)),
            model_writer=out,
            model_type="bpe",
            vocab_size=size,
            character_coverage=1.0,
            normalization_rule_name="identity",  # nothing that decoding could not bring back
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


def make_segmenter(bpe, model):
    """The function that fairseq's ``--bpe`` of that name applies to a line of words; ``model`` is
    its codes or its model."""
    if bpe == "subword_nmt":
        with open(model, encoding="utf-8") as codes:
            return BPE(codes).process_line
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    return lambda line: " ".join(processor.encode(line, out_type=str))


def segment(settings, text, models, folder):
    """Stage ``segmented``; yields what to tell."""
    for ending, sides in settings.models.items():
        segmenter = make_segmenter(settings.bpe, models / settings.model_name(ending))
        for side in sides:
            for split in settings.splits:
                units = 0
                with open(folder / f"{split}.{side}", "w", encoding="utf-8") as file:
                    for line in text_lines(text / f"{split}.{side}"):
                        line = segmenter(line)
                        units += line.count(" ") + 1
                        file.write(f"{line}\n")
                yield f"{split}.{side}: {units:,} units"


def binarise(settings, text, workers, folder):
    """Stage ``data``; yields what to tell."""
    from fairseq.data import Dictionary, data_utils

    splits = settings.splits
    prefixes = {
        kind: ",".join(str(text / split) for split in splits if split.startswith(kind))
        for kind in ("train", "valid", "test")
    }
    arguments = ["--source-lang", settings.source, "--target-lang", settings.target]
    for kind, prefix in prefixes.items():
        arguments += [f"--{kind}pref", prefix]
    for side in ("src", "tgt"):
        arguments += [f"--threshold{side}", str(settings.threshold)]
    arguments += ["--joined-dictionary"] if settings.joint else []
    arguments += ["--destdir", str(folder), "--workers", str(workers)]
    _preprocess(arguments)
    (folder / "preprocess.log").unlink()  # times, and places that are about to change
    for side in settings.sides:
        dictionary = Dictionary.load(str(folder / f"dict.{side}.txt"))
        yield f"dictionary {side}: {len(dictionary):,} types"
        for split in splits:
            lines = [line.count(" ") + 1 for line in text_lines(text / f"{split}.{side}")]
            written = data_utils.load_indexed_dataset(
                str(folder / f"{split}.{settings.source}-{settings.target}.{side}"), dictionary
            )
            if [n + 1 for n in lines] != list(written.sizes):
                raise FairseqDocError(
                    f"{split}.{side}: expected {len(lines):,} sentences of {sum(lines):,} units "
                    f"binarised, each with an end mark; got {len(written):,} and "
                    f"{sum(written.sizes):,} with end marks"
                )
            unknown = sum(int((item == dictionary.unk()).sum()) for item in written)
            yield (
                f"{split}.{side}: {len(lines):,} sentences and {sum(lines) + len(lines):,} tokens "
                f"with end marks binarised, {unknown:,} of them <unk>"
            )


def _preprocess(arguments):
    from fairseq.options import get_preprocessing_parser
    from fairseq_cli import preprocess

    try:
        preprocess.main(get_preprocessing_parser().parse_args(arguments))
    finally:
        for handler in preprocess.logger.handlers[:]:  # on the log of this data
            preprocess.logger.removeHandler(handler)
            handler.close()
