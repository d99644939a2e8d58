"""Trees in brackets -> symbols, their dictionary and binarised splits.

The finished folder holds

    dict.txt, {train,valid,test}.*   for --task bptt_language_modeling
    text/{train,valid,test}.txt      the symbols as text, one tree per line
    trees/{train,valid,test}.mrg     their trees, one per line
    pairs/                           with --pairs: for --task translation -s words -t symbols
"""

import glob
import os
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.files import write_lines
from fairseq_doc.options import REQUIRED, option
from fairseq_doc.preparation import parallel_text
from fairseq_doc.preparation.binarisation import Counts
from fairseq_doc.preparation.data_folder import Say, new_data_folder
from fairseq_doc.preparation.parallel_text import ParallelText
from fairseq_doc.preparation.pipeline import ONE_SIDE, SPLITS, Pipeline
from fairseq_doc.preparation.symbols import SPECIAL, WordSymbols, symbols_of
from fairseq_doc.preparation.text_form import WORDS as PLAIN_WORDS
from fairseq_doc.preparation.tokenization import clean
from fairseq_doc.preparation.trees import (
    TRACE,
    Tree,
    bracketed,
    read_trees,
    without_function_tags,
    without_traces,
)

UNKNOWN_KINDS = ("single", "shape")
WORDS, SYMBOLS = "words", "symbols"  # the sides of the pairs


def _files(default: str) -> str:
    help = "files in FOLDER, or patterns such as '0[2-9]/*.mrg'"
    return option(help, default, metavar="FILE[,FILE]")


@dataclass(frozen=True)
class Treebank:
    """The settings that, with the trees, determine the prepared data."""

    folder: Path = option("folder of the trees", REQUIRED, positional=True, metavar="FOLDER")
    train: str = _files("train.mrg")
    valid: str = _files("dev.mrg")
    test: str = _files("test.mrg")
    clean: bool = option(
        "remove the traces and function tags of the original Penn Treebank files", False
    )
    threshold: int = option(
        "words that occur fewer than N times in training, ignoring case, are rare",
        10,
        least=1,
        metavar="N",
    )
    unknown: str = option(
        "replace rare words by <unk> (single) or by a symbol for their shape (shape)",
        UNKNOWN_KINDS[0],
        choices=UNKNOWN_KINDS,
    )
    pairs: bool = option(
        "also write pairs of sentences and symbols, in DESTDIR/pairs, for --task translation", False
    )


def files_of(settings: Treebank) -> dict[str, list[Path]]:
    """{split: its files}, in the order of its patterns and of the names. Raises ``FairseqDocError``
    if no file fits a pattern, or two patterns fit a file."""
    files: dict[str, list[Path]] = {}
    split_of: dict[str, str] = {}
    for split in SPLITS:
        files[split] = []
        for pattern in getattr(settings, split).split(","):
            folder = glob.escape(str(settings.folder))
            names = glob.glob(os.path.join(folder, pattern), recursive=True)
            fitting = sorted(path for path in map(Path, names) if path.is_file())
            if not fitting:
                raise FairseqDocError(
                    f"{settings.folder}: expected files {pattern}, for --{split}; got none"
                )
            files[split] += fitting
        for path in files[split]:
            place = os.path.realpath(path)
            if place in split_of:
                given = " and ".join(dict.fromkeys([f"--{split_of[place]}", f"--{split}"]))
                raise FairseqDocError(f"{path} is given twice, by {given}")
            split_of[place] = split
    return files


def read_split(settings: Treebank, split: str, paths: list[Path]) -> tuple[list[Tree], str]:
    """The trees of a split, cleaned if the settings say so, and a report."""
    trees, traces, function_tags = [], 0, 0
    for path in paths:
        for line, tree in read_trees(path):
            traces += tree.tags.count(TRACE)
            plain = without_function_tags(tree)
            pairs = zip(plain.brackets, tree.brackets, strict=True)
            function_tags += sum(bracket != own for bracket, own in pairs)
            if settings.clean:
                tree = without_traces(plain)
                if not tree.words:
                    raise FairseqDocError(f"{path}: line {line}: a tree of only traces")
            trees.append(tree)
    report = f"{split}: {len(trees):,} trees, {sum(len(tree.words) for tree in trees):,} words"
    if traces or function_tags:
        what = "removed" if settings.clean else "kept; --clean removes them"
        report += f", {traces:,} traces and {function_tags:,} function tags {what}"
    return trees, report


def write_text(
    settings: Treebank, files: dict[str, list[Path]], data: Path, sentences: Path, say: Say
) -> None:
    """Write text/ and trees/ of the data, and the pairs of words and symbols into ``sentences``."""
    trees = {}
    for split in SPLITS:
        trees[split], report = read_split(settings, split, files[split])
        say(report)
    occurrences = Counter(word.lower() for tree in trees["train"] for word in tree.words)
    known = {
        word
        for word, count in occurrences.items()
        # fairseq cuts words at no-break spaces and control characters
        if count >= settings.threshold and word not in SPECIAL and clean(word) == word
    }
    word_symbol = WordSymbols(known, settings.unknown == "shape")
    say(f"{len(known):,} of {len(occurrences):,} words occur {settings.threshold} times or more")
    for folder in (data / "text", data / "trees", sentences):
        folder.mkdir()
    for split, own in trees.items():
        rare = sum(word.lower() not in known for tree in own for word in tree.words)
        symbols = [" ".join(symbols_of(tree, word_symbol)) for tree in own]
        words = [" ".join(map(word_symbol, tree.words)) for tree in own]
        write_lines(data / "text" / f"{split}.txt", symbols)
        write_lines(data / "trees" / f"{split}.mrg", map(bracketed, own))
        write_lines(sentences / f"{split}.{SYMBOLS}", symbols)
        write_lines(sentences / f"{split}.{WORDS}", words)
        count = sum(line.count(" ") + 1 for line in symbols)
        say(f"{split}: {count:,} symbols, {rare:,} of them of rare words")


def prepare(settings: Treebank, destination: Path, say: Say = print) -> Counts:
    """Prepare ``destination``; see :func:`parallel_text.prepare`."""
    files = files_of(settings)
    with new_data_folder(destination, say) as (data, say):
        sentences = data.parent / "sentences"
        write_text(settings, files, data, sentences, say)
        counts = Pipeline({ONE_SIDE: PLAIN_WORDS}).run(data / "text", data, say)
        if settings.pairs:
            pairs = ParallelText(
                WORDS, SYMBOLS, sentences, bpe="none", tokenizer="none", max_words=sys.maxsize
            )
            parallel_text.prepare(pairs, data / "pairs", say=lambda line: say(f"pairs: {line}"))
    return counts[ONE_SIDE]
