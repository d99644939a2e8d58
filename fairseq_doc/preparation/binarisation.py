"""fairseq-preprocess, run in this process, and a check of the splits that it binarised."""

from collections.abc import Iterable
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from fairseq.data import Dictionary, data_utils
from fairseq.options import get_preprocessing_parser

from fairseq_doc import checksums
from fairseq_doc.errors import FairseqDocError
from fairseq_doc.files import check_input


def preprocess(folder: Path, arguments: list[str]) -> None:
    """Run fairseq-preprocess into an empty folder, and write checksums of its files."""
    from fairseq_cli import preprocess

    arguments = [*arguments, f"--destdir={folder}"]
    try:
        preprocess.main(get_preprocessing_parser().parse_args(arguments))
    finally:
        for handler in preprocess.logger.handlers[:]:  # on preprocess.log
            preprocess.logger.removeHandler(handler)
            handler.close()
    (folder / "preprocess.log").unlink()  # it names folders that will be renamed
    checksums.write(folder, [path.name for path in folder.iterdir()])


def load_dictionary(path: Path) -> Dictionary:
    """Load a file of fairseq's dictionary."""
    check_input(path, again=True)  # here too: without fairseq_doc.register, fairseq opens a pipe
    return Dictionary.load(str(path))


def counts_of(dictionary_path: Path, splits: Iterable[str], suffix: str = "") -> dict[str, Any]:
    """``types`` in a dictionary; ``splits`` in its folder: {split: its ``sentences`` and
    ``tokens``, end marks included}. ``suffix`` follows the split in the names of files, such as
    ``.en-de.en``."""
    dictionary = load_dictionary(dictionary_path)
    counts = {}
    for split in splits:
        # The dataset must outlive its sizes, a view of a file that it unmaps.
        prefix = dictionary_path.parent / f"{split}{suffix}"
        dataset = data_utils.load_indexed_dataset(str(prefix), dictionary)
        counts[split] = {"sentences": len(dataset), "tokens": int(dataset.sizes.sum())}
    return {"types": len(dictionary), "splits": counts}


class SplitCounts(NamedTuple):
    """A binarised split; the end marks are tokens too."""

    lines: int
    tokens: int
    unknown: int


def check_split(
    name: str, prefix: Path, dictionary: Dictionary, lengths: Iterable[int]
) -> SplitCounts:
    """Check that fairseq binarised as many tokens in every line as ``lengths``, end marks included;
    ``name`` is for the error."""
    dataset = data_utils.load_indexed_dataset(str(prefix), dictionary)
    number = 0
    for number, (read, binarised) in enumerate(zip_longest(lengths, dataset.sizes), start=1):
        if read != binarised:
            raise FairseqDocError(
                f"{name}: line {number}: expected {read or 0:,} tokens with the end mark; fairseq "
                f"binarised {binarised or 0:,}: check the line for non-ASCII white space or "
                "carriage returns"
            )
    unknown = sum(int((line == dictionary.unk()).sum()) for line in dataset)
    return SplitCounts(number, int(dataset.sizes.sum()), unknown)
