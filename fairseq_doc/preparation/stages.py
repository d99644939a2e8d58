"""Raw parallel text -> data for fairseq's translation task: what prepare_mt.sh and
prepare_headline.sh do.

    python scripts/prepare_parallel.py mt SRC TGT FOLDER [DESTDIR] [options]
    python scripts/prepare_parallel.py headline FOLDER [DESTDIR] [options]

The stages stand in scripts/parallel_text.py. Each is written beside its place and moved there when it
is whole, in DESTDIR.part, so an interrupted preparation goes on where it stopped. DESTDIR is the last
stage's folder, moved there at the end.
"""

import argparse
import fcntl
import hashlib
import json
import logging
import re
import shutil
import sys
from collections import Counter
from dataclasses import asdict
from importlib.metadata import version
from itertools import chain
from pathlib import Path

import parallel_text
from parallel_text import Settings

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.files import text_lines
from fairseq_doc.scoring.hypotheses import BPE_KINDS, TOKENIZERS

ROOT = Path(__file__).resolve().parent.parent


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


def take_lock(part):
    """Keep other preparations out of an existing folder, until what this gives is closed."""
    lock = open(part / "lock", "w")  # noqa: SIM115
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise FairseqDocError(f"{part}: another preparation is at work there") from None
    return lock


def _claim(part, stamp, say):
    """Take DESTDIR.part for this preparation; the lock that keeps others out."""
    part.mkdir(parents=True, exist_ok=True)
    found = {path.name for path in part.iterdir()} - {"lock"}
    if found and not (part / "settings.json").is_file():
        raise FairseqDocError(
            f"{part}: expected nothing, or an unfinished preparation; remove it, or name another "
            "destination"
        )
    lock = take_lock(part)
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
        text = _run_stage(
            part, "text", lambda folder: parallel_text.write_text(settings, folder), say
        )
        units = text
        if settings.bpe != "none":
            models = _run_stage(
                part, "bpe", lambda folder: parallel_text.learn(settings, text, folder), say
            )
            units = _run_stage(
                part,
                "segmented",
                lambda folder: parallel_text.segment(settings, text, models, folder),
                say,
            )
        data = _run_stage(
            part,
            "data",
            lambda folder: parallel_text.binarise(settings, units, workers, folder),
            say,
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
