"""Trees in brackets -> symbols, their dictionary and binarised splits.

The finished folder holds

    dict.txt, {train,valid,test}.*   for --task bptt_language_modeling
    text/{train,valid,test}.txt      the symbols as text, a tree a line
    trees/{train,valid,test}.mrg     the trees that they were made from, a tree a line
    pairs/                           with --pairs: for --task translation -s words -t symbols

The stages are ``text`` (the first three of these as files), ``data`` and ``pairs``.
"""

import glob
import os
import sys
from collections import Counter
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.files import write_lines
from fairseq_doc.preparation import language_model, parallel_text
from fairseq_doc.preparation.binarisation import load_dictionary
from fairseq_doc.preparation.language_model import SPLITS
from fairseq_doc.preparation.stages import Lines, Say, check_destination, make_stamp, staged
from fairseq_doc.preparation.symbols import WordSymbols, is_reserved, symbols_of
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
FILES = {"train": "train.mrg", "valid": "dev.mrg", "test": "test.mrg"}
WORDS, SYMBOLS = "words", "symbols"  # the sides of the pairs


@dataclass(frozen=True)
class Settings:
    """What decides the result, with the trees.

    Attributes:
        folder: where the files lie.
        train, valid, test: patterns of files in it, with commas between.
        clean: remove traces and function tags.
        threshold: words that occur less often in training are rare, counted in lower case.
        unknown: rare words are one symbol (``single``) or one of several by their ``shape``.
        pairs: sentences with their symbols too, for a parser.
    """

    folder: Path
    train: str = FILES["train"]
    valid: str = FILES["valid"]
    test: str = FILES["test"]
    clean: bool = False
    threshold: int = 10
    unknown: str = UNKNOWN_KINDS[0]
    pairs: bool = False


def files_of(settings: Settings, split: str) -> list[Path]:
    """The files of a split, in the order of its patterns and of their names.

    Raises:
        FairseqDocError: a pattern that no file fits, or a file that two fit.
    """
    patterns = getattr(settings, split)
    found: list[Path] = []
    for pattern in patterns.split(","):
        names = glob.glob(str(settings.folder / pattern), recursive=True)
        fitting = sorted(path for path in map(Path, names) if path.is_file())
        if not fitting:
            raise FairseqDocError(
                f"{settings.folder}: expected files {pattern}, for --{split}; got none"
            )
        found += fitting
    if len(set(found)) < len(found):
        raise FairseqDocError(f"--{split} {patterns}: a file fits two of the patterns")
    return found


def all_files(settings: Settings) -> dict[str, list[Path]]:
    """{split: its files}; ``FairseqDocError`` for one that two splits share."""
    found = {split: files_of(settings, split) for split in SPLITS}
    split_of: dict[str, str] = {}
    for split, paths in found.items():
        for path in paths:
            other = split_of.setdefault(os.path.realpath(path), split)
            if other != split:
                raise FairseqDocError(
                    f"{path}: expected other files for every split; got it for --{other} and "
                    f"--{split}"
                )
    return found


@dataclass
class TreeCounts:
    """What is counted while trees are read."""

    trees: int = 0
    words: int = 0
    traces: int = 0
    function_tags: int = 0


def read_split(settings: Settings, paths: list[Path]) -> tuple[list[Tree], TreeCounts]:
    """The trees of a split, cleaned if the settings say so."""
    kept, counts = [], TreeCounts()
    for path in paths:
        for line, tree in read_trees(path):
            counts.traces += tree.tags.count(TRACE)
            plain = without_function_tags(tree)
            for label, own in zip(plain.brackets, tree.brackets, strict=True):
                counts.function_tags += label != own
            if settings.clean:
                tree = without_traces(plain)
                if not tree.words:
                    raise FairseqDocError(f"{path}: line {line}: a tree of only traces")
            kept.append(tree)
            counts.words += len(tree.words)
    counts.trees = len(kept)
    return kept, counts


def known_words(counts: Counter, threshold: int) -> set[str]:
    """The words, in lower case, that are symbols of their own."""
    return {
        word
        for word, count in counts.items()
        # fairseq would cut a word at a no-break space or a control character
        if count >= threshold and not is_reserved(word) and clean(word) == word
    }


def write_text(settings: Settings, files: dict[str, list[Path]], folder: Path) -> Lines:
    """Stage ``text``: text/, trees/ and sentences/ in ``folder``; yields what was counted."""
    trees = {}
    for split in SPLITS:
        trees[split], counts = read_split(settings, files[split])
        found = ""
        if counts.traces or counts.function_tags:
            what = "removed" if settings.clean else "kept; --clean removes them"
            found = f", {counts.traces:,} traces and {counts.function_tags:,} function tags {what}"
        yield f"{split}: {counts.trees:,} trees, {counts.words:,} words{found}"
    occurrences = Counter(word.lower() for tree in trees["train"] for word in tree.words)
    known = known_words(occurrences, settings.threshold)
    word_symbol = WordSymbols(known, settings.unknown == "shape")
    yield (f"{len(known):,} of {len(occurrences):,} words occur {settings.threshold} times or more")
    for name in ("text", "trees", "sentences"):
        (folder / name).mkdir()
    for split in SPLITS:
        yield _write_split(split, trees[split], known, word_symbol, folder)


def _write_split(
    split: str, trees: list[Tree], known: Container[str], word_symbol: WordSymbols, folder: Path
) -> str:
    """Write the files of a split; a line about its symbols."""
    rare = sum(word.lower() not in known for tree in trees for word in tree.words)
    symbols = [" ".join(symbols_of(tree, word_symbol)) for tree in trees]
    words = [" ".join(map(word_symbol, tree.words)) for tree in trees]
    write_lines(folder / "text" / f"{split}.txt", symbols)
    write_lines(folder / "trees" / f"{split}.mrg", map(bracketed, trees))
    write_lines(folder / "sentences" / f"{split}.{SYMBOLS}", symbols)
    write_lines(folder / "sentences" / f"{split}.{WORDS}", words)
    count = sum(line.count(" ") + 1 for line in symbols)
    return f"{split}: {count:,} symbols, {rare:,} of them of rare words"


def binarise(text: Path, folder: Path) -> Lines:
    """Stage ``data``; yields the size of the dictionary."""
    for _ in language_model.binarise(text, folder):
        pass
    yield f"dictionary: {len(load_dictionary(folder / 'dict.txt')):,} types"


def write_pairs(sentences: Path, folder: Path) -> Lines:
    """Stage ``pairs``: ``folder``/pairs; yields what was done."""
    settings = parallel_text.Settings(
        WORDS, SYMBOLS, str(sentences), bpe="none", tokenizer="none", max_words=sys.maxsize
    )
    lines: list[str] = []
    parallel_text.prepare(settings, folder / "pairs", say=lines.append)
    for line in lines:
        yield f"pairs: {line}"


def _stamp(settings: Settings, files: dict[str, list[Path]]) -> str:
    """What decides the result: the settings, the trees, the tools."""
    import fairseq

    decided = {
        "clean": settings.clean,
        "threshold": settings.threshold,
        "unknown": settings.unknown,
        "pairs": settings.pairs,
    }
    named = {}
    for split, paths in files.items():
        for number, path in enumerate(paths):
            named[f"{split} {number}"] = path
    return make_stamp(decided, named, {"fairseq": fairseq.__version__})


def prepare(settings: Settings, destination: Path, say: Say = print) -> None:
    """Prepare ``destination``, or go on with it.

    Args:
        settings: see :class:`Settings`.
        destination: a folder that does not exist.
        say: takes one line at a time of what is done.

    Raises:
        FairseqDocError: trees or settings that cannot be used; nothing is left behind.
    """
    if settings.threshold < 1:
        raise FairseqDocError(f"--threshold must be at least 1; got {settings.threshold}")
    check_destination(destination)
    files = all_files(settings)
    with staged(destination, _stamp(settings, files), say) as stages:
        made = stages.run("text", lambda folder: write_text(settings, files, folder))
        data = stages.run("data", lambda folder: binarise(made / "text", folder))
        copies = [made / "text", made / "trees"]
        if settings.pairs:
            pairs = stages.run("pairs", lambda folder: write_pairs(made / "sentences", folder))
            copies.append(pairs / "pairs")
        stages.finish(data, destination, copies)
