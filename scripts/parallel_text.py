"""Raw parallel text -> clean, tokenised, segmented, binarised: what prepare_mt.sh and
prepare_headline.sh do.

    python scripts/parallel_text.py mt SRC TGT FOLDER [DESTDIR] [options]
    python scripts/parallel_text.py headline FOLDER [DESTDIR] [options]

FOLDER holds FILE.SRC and FILE.TGT, one sentence a line, for every FILE that --train, --valid and
--test name. The stages, each from the files of the one before:

    text        white space and control characters become single blanks, words by Moses' rules;
                training pairs that cannot be used are dropped, each listed with its reason
    bpe         subword-nmt's merges or a sentencepiece model, learned on the training text
    segmented   the text in these units
    data        fairseq's dictionaries and binarised splits, counted again as they were written

A stage is written beside its place and moved there when it is whole, in DESTDIR.part, so an
interrupted preparation goes on where it stopped. DESTDIR is data, moved there last.
"""

import argparse
import contextlib
import fcntl
import hashlib
import io
import json
import logging
import re
import shutil
import sys
from collections import Counter
from dataclasses import asdict, dataclass
from importlib.metadata import version
from itertools import chain, zip_longest
from pathlib import Path

from sacremoses.corpus import NonbreakingPrefixes
from subword_nmt.apply_bpe import BPE
from subword_nmt.learn_bpe import learn_bpe

from fairseq_doc.data.text import text_lines
from fairseq_doc.errors import FairseqDocError
from fairseq_doc.evaluation.hypotheses import BPE_KINDS, TOKENIZERS, moses

ROOT = Path(__file__).resolve().parent.parent
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


def check(settings, destination):
    """Raise ``FairseqDocError`` where a preparation cannot start: before any work."""
    if settings.source == settings.target or not all(
        re.fullmatch(r"[^\s./,-]+", side) for side in settings.sides
    ):
        raise FairseqDocError(
            f"expected two sides' names without . / , - or blanks, as the files end; got "
            f"{settings.source!r} and {settings.target!r}"
        )
    files = Counter(settings.splits.values())
    if max(files.values()) > 1 or not all(files):
        raise FairseqDocError(
            f"expected other files for every split; got {', '.join(settings.splits.values())}"
        )
    for option, value, least in (
        ("--merges", settings.merges, 1),
        ("--max-words", settings.max_words, 1),
        ("--max-ratio", settings.max_ratio, 1),
        ("--threshold", settings.threshold, 0),
    ):
        if value is not None and not value >= least:
            raise FairseqDocError(f"{option} must be at least {least}; got {value}")
    if "," in str(destination):
        raise FairseqDocError(f"{destination}: expected a folder's name without a comma")
    if destination.exists():
        raise FairseqDocError(f"{destination} exists; remove it, or name another folder")
    for path in chain.from_iterable(map(settings.raw, settings.splits)):
        next(text_lines(path), None)


def _stamp(settings):
    """What decides the result, as text: the settings, the raw files' contents, the tools."""
    digests = {}
    for path in chain.from_iterable(map(settings.raw, settings.splits)):
        with open(path, "rb") as file:
            digests[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
    import fairseq

    made_by = {tool: version(tool) for tool in ("sacremoses", "subword-nmt", "sentencepiece")}
    made_by["fairseq"] = fairseq.__version__
    decided = {**asdict(settings), "sha256": digests, "made by": made_by}
    del decided["folder"]  # the same text elsewhere gives the same data
    return json.dumps(decided, indent=1) + "\n"


def _claim(part, stamp, say):
    """Take DESTDIR.part for this preparation; the lock that keeps others out."""
    part.mkdir(parents=True, exist_ok=True)
    found = {path.name for path in part.iterdir()} - {"lock"}
    if found and not (part / "settings.json").is_file():
        raise FairseqDocError(
            f"{part}: expected nothing, or an unfinished preparation; remove it, or name another "
            "destination"
        )
    lock = open(part / "lock", "w")  # noqa: SIM115 (open as long as this process lives)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise FairseqDocError(f"{part}: another preparation is at work there") from None
    if found and (part / "settings.json").read_text(encoding="utf-8") != stamp:
        say(f"{part} is of other settings, other text or other tools: starting over")
        for name in found:
            path = part / name
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    (part / "settings.json").write_text(stamp, encoding="utf-8")
    return lock


def _run_stage(part, name, stage, say):
    """Run a stage unless it is done, and tell what it tells; its folder."""
    folder, told, unfinished = part / name, part / f"{name}.log", part / f"{name}.tmp"
    if folder.is_dir():
        say(f"{name}: done before")
        for line in told.read_text(encoding="utf-8").splitlines():
            say(line)
        return folder
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    lines = []
    for line in stage(unfinished):
        say(line)
        lines.append(line)
    told.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    unfinished.rename(folder)
    return folder


def prepare(settings, destination, workers=1, say=print):
    """Prepare ``destination``, or go on with it.

    Args:
        settings: see :class:`Settings`.
        destination: a folder that does not exist.
        workers: processes that binarise; the result is the same for any number.
        say: takes one line at a time of what is done.

    Raises:
        FairseqDocError: text or settings that cannot be used; nothing is left behind then.
    """
    destination = Path(destination)
    if workers < 1:
        raise FairseqDocError(f"--workers must be at least 1; got {workers}")
    check(settings, destination)
    part = destination.with_name(f"{destination.name}.part")
    lock = _claim(part, _stamp(settings), say)
    try:
        text = _run_stage(part, "text", lambda folder: write_text(settings, folder), say)
        units = text
        if settings.bpe != "none":
            models = _run_stage(part, "bpe", lambda folder: learn(settings, text, folder), say)
            units = _run_stage(
                part, "segmented", lambda folder: segment(settings, text, models, folder), say
            )
        data = _run_stage(
            part, "data", lambda folder: binarise(settings, units, workers, folder), say
        )
        logs = [part / f"{name}.log" for name in ("text", "bpe", "segmented", "data")]
        whole = "".join(log.read_text(encoding="utf-8") for log in logs if log.exists())
        (data / "prepare.log").write_text(whole, encoding="utf-8")
        for path in (part / "settings.json", text / "dropped.tsv", *(part / "bpe").glob("*")):
            shutil.copy(path, data)
        data.rename(destination)
    except FairseqDocError:
        shutil.rmtree(part)
        raise
    finally:
        lock.close()
    shutil.rmtree(part)


def _names(text):
    return tuple(text.split(","))


def make_parser(kind):
    """The parser of one of ``mt`` and ``headline``."""
    mt = kind == "mt"
    parser = argparse.ArgumentParser(
        prog=f"prepare_{kind}.sh",
        description="Clean, tokenise, segment and binarise raw parallel text for fairseq's "
        "translation task. An interrupted run goes on where it stopped.",
    )
    default = Settings("", "", "")
    if mt:
        parser.add_argument("source", metavar="SRC", help="source language, as its files end")
        parser.add_argument("target", metavar="TGT", help="target language, as its files end")
    else:
        default = Settings("src", "tgt", "", merges=5000, joint=True, tokenizer="none")
        parser.set_defaults(source=default.source, target=default.target)
    ends = "SRC and .TGT" if mt else "src (articles) and .tgt (headlines)"
    parser.add_argument(
        "folder",
        metavar="FOLDER",
        help=f"folder of the raw files, FILE.{ends}; one sentence a line",
    )
    parser.add_argument(
        "destination",
        metavar="DESTDIR",
        nargs="?",
        type=Path,
        help="folder to write, which must not exist; without it data-bin/FOLDER"
        + (".SRC-TGT" if mt else ""),
    )

    def add(name, help, **settings):
        told = "" if settings.get("default") is None else " (default: %(default)s)"
        parser.add_argument(name, help=help + told, **settings)

    add("--train", default=default.train, metavar="FILE", help="training files, without their end")
    for split in ("valid", "test"):
        add(
            f"--{split}",
            type=_names,
            default=",".join(getattr(default, split)),
            metavar="FILE[,FILE]",
            help=f"the same for {split}, {split}1, and so on",
        )
    add("--bpe", choices=BPE_KINDS, default=default.bpe, help="how words are cut into units")
    add(
        "--merges",
        type=int,
        default=default.merges,
        metavar="N",
        help="merges to learn a model; with sentencepiece the size of its vocabulary",
    )
    add(
        "--joint",
        action=argparse.BooleanOptionalAction,
        default=default.joint,
        help="one model of units and one dictionary for both sides",
    )
    if mt:
        add(
            "--tokenizer",
            choices=TOKENIZERS,
            default=default.tokenizer,
            help="as fairseq's --tokenizer; none for text whose words are apart",
        )
    else:
        parser.set_defaults(tokenizer=default.tokenizer)
    add(
        "--max-words",
        type=int,
        default=default.max_words,
        metavar="N",
        help="drop training pairs with more words on a side",
    )
    add(
        "--max-ratio",
        type=float,
        metavar="X",
        help="drop training pairs with a side more than X times as long as the other",
    )
    add(
        "--threshold",
        type=int,
        default=default.threshold,
        metavar="N",
        help="units that occur less often in training become <unk>",
    )
    add("--workers", type=int, default=1, metavar="N", help="processes that binarise")
    return parser


def main(arguments=None):
    """Prepare as told.

    Returns:
        The exit status: 0; 1 for what the user can mend, told in one line.
    """
    kind, *rest = sys.argv[1:] if arguments is None else arguments
    args = vars(make_parser(kind).parse_args(rest))
    destination, workers = args.pop("destination"), args.pop("workers")
    settings = Settings(**args)
    if destination is None:
        name = Path(settings.folder).resolve().name
        pair = f".{settings.source}-{settings.target}" if kind == "mt" else ""
        destination = ROOT / "data-bin" / f"{name}{pair}"
    program = f"prepare_{kind}"
    sys.stdout.reconfigure(encoding="utf-8")  # as what is read, whatever the locale
    logging.basicConfig(level=logging.WARNING, force=True)  # fairseq tells what is told here
    try:
        prepare(
            settings, destination, workers, lambda line: print(f"{program}: {line}", flush=True)
        )
    except (FairseqDocError, OSError) as error:
        print(f"{program}: error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"{program}: interrupted; the same command goes on", file=sys.stderr)
        return 130
    print(f"{program}: wrote {destination}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
