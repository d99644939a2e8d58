"""Trees in brackets -> symbols, their dictionary and binarised splits: what prepare_parsing.sh does.

DESTDIR holds, when it is whole:

    dict.txt, {train,valid,test}.*   for --task bptt_language_modeling
    text/{train,valid,test}.txt      the symbols as text, a tree a line
    trees/{train,valid,test}.mrg     the trees that they were made of, a tree a line
    pairs/                           with --pairs: for --task translation -s words -t symbols
"""

import argparse
import glob
import logging
import os
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import parallel_text
from fairseq.data import Dictionary
from parallel_text import clean
from prepare_parallel import prepare, take_lock

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.files import write_lines
from fairseq_doc.preparation.symbols import RESERVED, WordSymbols, symbols_of
from fairseq_doc.preparation.trees import (
    TRACE,
    bracketed,
    read_trees,
    without_function_tags,
    without_traces,
)

SCRIPTS = Path(__file__).resolve().parent
ROOT = SCRIPTS.parent
UNKNOWN_KINDS = ("single", "shape")
SPLITS = ("train", "valid", "test")


@dataclass(frozen=True)
class Settings:
    """What decides the result, with the trees.

    Attributes:
        folder: where the files lie.
        files: {split: patterns of files in it, with commas between}.
        clean: remove traces and function tags.
        threshold: words that occur less often in training are rare, counted in lower case.
        unknown: rare words are one symbol (``single``) or one of several by their ``shape``.
        pairs: sentences with their symbols too, for a parser.
    """

    folder: Path
    files: dict
    clean: bool = False
    threshold: int = 10
    unknown: str = "single"
    pairs: bool = False


def files_of(settings, split):
    """The files of a split, in the order of its patterns and of their names.

    Raises:
        FairseqDocError: a pattern that no file fits, or a file that two fit.
    """
    found = []
    for pattern in settings.files[split].split(","):
        names = glob.glob(str(settings.folder / pattern), recursive=True)
        fitting = sorted(path for path in map(Path, names) if path.is_file())
        if not fitting:
            raise FairseqDocError(
                f"{settings.folder}: expected files {pattern}, for --{split}; got none"
            )
        found += fitting
    if len(set(found)) < len(found):
        raise FairseqDocError(f"--{split} {settings.files[split]}: a file fits two of the patterns")
    return found


def all_files(settings):
    """{split: its files}; ``FairseqDocError`` for one that two splits share."""
    found = {split: files_of(settings, split) for split in SPLITS}
    splits = {}
    for split, paths in found.items():
        for path in paths:
            if splits.setdefault(path.resolve(), split) != split:
                raise FairseqDocError(
                    f"{path}: expected other files for every split; got it for --{splits[path.resolve()]} "
                    f"and --{split}"
                )
    return found


def read_split(settings, split, paths, say):
    """The trees of a split, cleaned where asked for."""
    kept, traces, labels = [], 0, 0
    for path in paths:
        for line, tree in read_trees(path):
            traces += tree.tags.count(TRACE)
            whole = without_function_tags(tree)
            labels += sum(a != b for a, b in zip(whole.brackets, tree.brackets, strict=True))
            if settings.clean:
                tree = without_traces(whole)
                if not tree.words:
                    raise FairseqDocError(f"{path}: line {line}: a tree of nothing but traces")
            kept.append(tree)
    what = "removed" if settings.clean else "kept; --clean removes them"
    found = f", {traces:,} traces and {labels:,} function tags {what}" if traces or labels else ""
    say(f"{split}: {len(kept):,} trees, {sum(len(tree.words) for tree in kept):,} words{found}")
    return kept


def make(settings, files, folder, say):
    """Make everything of ``files``, see :func:`all_files`, in ``folder``, which is empty."""
    trees = {split: read_split(settings, split, files[split], say) for split in SPLITS}
    counts = Counter(word.lower() for tree in trees["train"] for word in tree.words)
    known = {
        word
        for word, count in counts.items()
        # a no-break space or a control character within would cut the word in two
        if count >= settings.threshold and word not in RESERVED and clean(word) == word
    }
    word_symbol = WordSymbols(known, settings.unknown == "shape")
    say(f"{len(known):,} of {len(counts):,} words occur {settings.threshold} times or more")
    for name in ("text", "trees", "sentences"):
        (folder / name).mkdir()
    for split in SPLITS:
        rare = sum(word.lower() not in known for tree in trees[split] for word in tree.words)
        lines = [" ".join(symbols_of(tree, word_symbol)) for tree in trees[split]]
        symbols = sum(line.count(" ") + 1 for line in lines)
        say(f"{split}: {symbols:,} symbols, {rare:,} of them of rare words")
        write_lines(folder / "text" / f"{split}.txt", lines)
        write_lines(folder / "trees" / f"{split}.mrg", map(bracketed, trees[split]))
        if settings.pairs:
            write_lines(folder / "sentences" / f"{split}.symbols", lines)
            write_lines(
                folder / "sentences" / f"{split}.words",
                (" ".join(map(word_symbol, tree.words)) for tree in trees[split]),
            )
    data = folder / "data"
    told = subprocess.run(
        [SCRIPTS / "prepare_lm.sh", "text", folder / "text", data], capture_output=True, text=True
    )
    if told.returncode:
        raise FairseqDocError(" ".join(told.stderr.split()))
    say(f"dictionary: {len(Dictionary.load(str(data / 'dict.txt'))):,} types")
    if settings.pairs:
        of_pairs = parallel_text.Settings(
            "words",
            "symbols",
            str(folder / "sentences"),
            bpe="none",
            tokenizer="none",
            max_words=sys.maxsize,
        )
        prepare(of_pairs, data / "pairs", say=lambda line: say(f"pairs: {line}"))
    for log in ("prepare.log", "preprocess.log"):
        (data / log).unlink()  # they name places that are about to change
    for part in ("text", "trees"):
        (folder / part).rename(data / part)
    return data


def make_parser():
    """The parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="prepare_parsing.sh",
        description="Turn trees in brackets into symbols, (S (NP the dog )NP ... )S, for a language model "
        "that reranks them, and on request into pairs for a parser.",
    )
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="folder of the trees")
    parser.add_argument(
        "destination",
        metavar="DESTDIR",
        nargs="?",
        type=Path,
        help="folder to write, which must not exist; without it data-bin/FOLDER",
    )
    for split, default in zip(SPLITS, ("train.mrg", "dev.mrg", "test.mrg"), strict=True):
        parser.add_argument(
            f"--{split}",
            default=default,
            metavar="FILE[,FILE]",
            help=f"files in FOLDER, or patterns such as '0[2-9]/*.mrg' (default: {default})",
        )
    parser.add_argument(
        "--clean",
        action="store_true",
        help="remove traces and function tags, as of the Penn Treebank's own files",
    )
    parser.add_argument(
        "--threshold",
        type=int,
        default=10,
        metavar="N",
        help="words that occur less often in training, in lower case, are rare (default: 10)",
    )
    parser.add_argument(
        "--unknown",
        choices=UNKNOWN_KINDS,
        default=UNKNOWN_KINDS[0],
        help="rare words are all <unk>, or a symbol by their shape (default: single)",
    )
    parser.add_argument(
        "--pairs",
        action="store_true",
        help="sentences with their symbols too, in DESTDIR/pairs, for --task translation",
    )
    return parser


def main(arguments=None):
    """Prepare as told.

    Returns:
        The exit status: 0; 1 for what the user can mend, told in one line.
    """
    args = make_parser().parse_args(arguments)
    destination = args.destination or ROOT / "data-bin" / args.folder.resolve().name
    settings = Settings(
        args.folder,
        {split: getattr(args, split) for split in SPLITS},
        args.clean,
        args.threshold,
        args.unknown,
        args.pairs,
    )
    sys.stdout.reconfigure(encoding="utf-8")  # as what is read, whatever the locale
    logging.basicConfig(level=logging.WARNING, force=True)  # fairseq tells what is told here
    part = Path(f"{os.path.abspath(destination)}.part")
    told = []

    def say(line):
        told.append(line)
        print(f"prepare_parsing: {line}", flush=True)

    try:
        if args.threshold < 1:
            raise FairseqDocError(f"--threshold must be at least 1; got {args.threshold}")
        if destination.exists():
            raise FairseqDocError(f"{destination} exists; remove it, or name another folder")
        if "," in str(destination):
            raise FairseqDocError(f"{destination}: expected a folder's name without a comma")
        files = all_files(settings)
        part.mkdir(parents=True, exist_ok=True)
        with take_lock(part):
            try:
                work = part / "work"
                shutil.rmtree(work, ignore_errors=True)  # of an interrupted run
                work.mkdir()
                data = make(settings, files, work, say)
                write_lines(data / "prepare.log", told)
                data.rename(destination)
            finally:
                shutil.rmtree(part)
    except (FairseqDocError, OSError) as error:
        print(f"prepare_parsing: error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(f"prepare_parsing: wrote {destination}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
