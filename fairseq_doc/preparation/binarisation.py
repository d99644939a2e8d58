"""fairseq-preprocess, run in this process, and what it binarised."""

from pathlib import Path
from typing import Any, NamedTuple

from fairseq.data import Dictionary, data_utils
from fairseq.options import get_preprocessing_parser

from fairseq_doc.files import check_input


class SplitCounts(NamedTuple):
    """A binarised split; the end marks are tokens too."""

    lines: int
    tokens: int
    unknown: int


class Counts(NamedTuple):
    """One side of binarised data."""

    dictionary: Dictionary
    splits: dict[str, SplitCounts]

    def result(self) -> dict[str, Any]:
        """``types`` in the dictionary; ``splits``, each with its ``sentences`` and ``tokens``."""
        splits = {
            split: {"sentences": counts.lines, "tokens": counts.tokens}
            for split, counts in self.splits.items()
        }
        return {"types": len(self.dictionary), "splits": splits}


def preprocess(folder: Path, arguments: list[str]) -> None:
    """Run fairseq-preprocess with ``folder`` as its destination."""
    from fairseq_cli import preprocess

    arguments = [*arguments, f"--destdir={folder}"]
    preprocess.main(get_preprocessing_parser().parse_args(arguments))
    for handler in preprocess.logger.handlers[:]:  # on preprocess.log
        preprocess.logger.removeHandler(handler)
        handler.close()
    (folder / "preprocess.log").unlink()  # it names a folder that will be renamed


def load_dictionary(path: Path) -> Dictionary:
    """Load a dictionary of fairseq's from its file."""
    check_input(path, again=True)  # here too: without fairseq_doc.register, fairseq opens a pipe
    return Dictionary.load(str(path))


def count_split(prefix: Path, dictionary: Dictionary) -> SplitCounts:
    """The counts of a binarised split."""
    dataset = data_utils.load_indexed_dataset(str(prefix), dictionary)
    unknown = sum(int((line == dictionary.unk()).sum()) for line in dataset)
    return SplitCounts(len(dataset), int(dataset.sizes.sum()), unknown)
