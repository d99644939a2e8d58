"""Text -> fairseq's dictionaries and binarised splits: fairseq-preprocess, run in this process, and
its result counted again."""

from collections.abc import Iterable
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairseq_doc import checksums
from fairseq_doc.errors import FairseqDocError

if TYPE_CHECKING:
    from fairseq.data import Dictionary
    from fairseq.data.indexed_dataset import MMapIndexedDataset


def preprocess(folder: Path, arguments: list[str]) -> None:
    """Run fairseq-preprocess with these arguments, and write the checksums of what it wrote.

    Args:
        folder: empty, to be filled; its ``--destdir``.
        arguments: the others.
    """
    from fairseq.options import get_preprocessing_parser
    from fairseq_cli import preprocess

    arguments = [*arguments, f"--destdir={folder}"]
    try:
        preprocess.main(get_preprocessing_parser().parse_args(arguments))
    finally:
        for handler in preprocess.logger.handlers[:]:  # on the log file in the folder
            preprocess.logger.removeHandler(handler)
            handler.close()
    (folder / "preprocess.log").unlink()  # it names folders that are about to be renamed
    checksums.write(folder, [path.name for path in folder.iterdir()])


def load_dictionary(path: Path) -> "Dictionary":
    """fairseq's dictionary of a file."""
    from fairseq.data import Dictionary

    return Dictionary.load(str(path))


def load_split(prefix: Path, dictionary: "Dictionary") -> "MMapIndexedDataset":
    """The binarised split in ``PREFIX.bin`` and ``PREFIX.idx``."""
    from fairseq.data import data_utils

    return data_utils.load_indexed_dataset(str(prefix), dictionary)


def counts_of(dictionary_path: Path, splits: Iterable[str], suffix: str = "") -> dict[str, Any]:
    """``types`` in a dictionary; ``splits``: {split: its ``sentences`` and ``tokens``, end marks
    included}.

    Args:
        dictionary_path: it lies beside the binarised splits.
        splits: their names.
        suffix: what follows the split's name in the files', such as ``.en-de.en``.
    """
    dictionary = load_dictionary(dictionary_path)
    counts = {}
    for split in splits:
        # Its sizes are a view of a file that is unmapped when the dataset goes.
        dataset = load_split(dictionary_path.parent / f"{split}{suffix}", dictionary)
        counts[split] = {"sentences": len(dataset), "tokens": int(dataset.sizes.sum())}
    return {"types": len(dictionary), "splits": counts}


def check_lengths(name: str, expected: Iterable[int], written: Iterable[int]) -> None:
    """Compare the tokens of every line, end mark included, as they were read and as fairseq wrote
    them.

    Raises:
        FairseqDocError: they differ.
    """
    pairs = zip_longest(expected, written)
    for number, (tokens, found) in enumerate(pairs, start=1):
        if tokens is None:
            raise FairseqDocError(
                f"{name}: expected {number - 1:,} lines; fairseq binarised more: does a line hold a "
                "carriage return?"
            )
        if found is None:
            raise FairseqDocError(
                f"{name}: expected more than {number - 1:,} lines; fairseq binarised no more"
            )
        if tokens != found:
            raise FairseqDocError(
                f"{name}: line {number}: expected {tokens:,} tokens with the end mark; fairseq "
                f"binarised {found:,}: does a word hold a blank that is not ASCII, or the line a "
                "carriage return?"
            )
