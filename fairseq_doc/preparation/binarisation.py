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
    """Run fairseq-preprocess with these arguments into an empty folder, and write the checksums of
    what it wrote."""
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
        dictionary_path: in the folder of the binarised splits.
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


def check_split(
    name: str, prefix: Path, dictionary: "Dictionary", lengths: Iterable[int]
) -> tuple[int, int, int]:
    """Count a split that fairseq binarised, and compare it with its text.

    Args:
        name: of the text, for errors.
        prefix: of the binarised files.
        dictionary: of the split.
        lengths: tokens of every line of the text, end mark included.

    Returns:
        The numbers of its lines, of its tokens with their end marks, and of unknown tokens.

    Raises:
        FairseqDocError: fairseq binarised other tokens than these.
    """
    dataset = load_split(prefix, dictionary)
    number = 0
    for number, (read, binarised) in enumerate(zip_longest(lengths, dataset.sizes), start=1):
        if read != binarised:
            raise FairseqDocError(
                f"{name}: line {number}: expected {read or 0:,} tokens with the end mark; fairseq "
                f"binarised {binarised or 0:,}: does a word hold a blank that is not ASCII, or the "
                "line a carriage return?"
            )
    unknown = sum(int((line == dictionary.unk()).sum()) for line in dataset)
    return number, int(dataset.sizes.sum()), unknown
