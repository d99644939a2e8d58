"""Common options of ``rerank`` and ``evalb``, and their remarks about trees."""

from collections.abc import Collection, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, replace

from fairseq_doc.cli.outputs import first_ten, remark
from fairseq_doc.errors import FairseqDocError
from fairseq_doc.options import option
from fairseq_doc.parsing.bracketing import Parameters, read_parameters
from fairseq_doc.parsing.nbest import Candidate
from fairseq_doc.preparation.trees import NO_TAG, ROOTS, Tree, is_tagged, read_trees


@dataclass(frozen=True, kw_only=True)
class TreeOptions:
    """Options of both commands."""

    prm: str | None = option(
        "EVALB's parameter file (default: as COLLINS.prm; and a quote that only one tree deletes "
        "is kept)",
        reads=True,
    )
    strip_root: bool = option(
        "do not count root brackets S1, ROOT or without a label, just as TOP is not counted", False
    )
    sentences: str | None = option(
        "trees, one per sentence, whose words and tags are used, for a parser that does not write "
        "its own (RNNG) or writes UNK for every tag: if some words have no tag, a bracket around a "
        "single word is a tag if it is XX or equals the tag in these trees",
        metavar="TREES",
        reads=True,
    )

    @property
    def parameters(self) -> Parameters:
        parameters = read_parameters(self.prm) if self.prm else Parameters()
        more = ROOTS if self.strip_root else ()
        return replace(parameters, delete_label=(*parameters.delete_label, *more))


def trees_of(path: str) -> list[Tree]:
    """The trees in a file."""
    return [tree for _, tree in read_trees(path)]


def check_counts(
    gold_path: str, gold: Sequence[Tree], others: Mapping[str | None, Sized | None]
) -> None:
    """Refuse files {path: trees or lists} with other numbers of sentences than the gold trees."""
    for path, found in others.items():
        if found is not None and len(found) != len(gold):
            raise FairseqDocError(
                f"{path}: expected {len(gold):,} sentences, as in {gold_path}; got {len(found):,} "
                "(write (()) if the parser failed)"
            )


def are_tagged(
    path: str, lists: Sequence[list[Candidate]], sentences: str | None, command: str
) -> bool:
    """Whether every word in the lists of a file has its own tag, which ``--sentences`` replaces. If
    not, print a remark on how brackets around a single word are read."""
    if sentences is None:
        return False
    tagged = all(is_tagged(one.text) for candidates in lists for one in candidates)
    if not tagged:
        remark(
            command,
            f"{path}: some words have no tag; a bracket around a single word is a tag if it is "
            f"{NO_TAG} or the tag in {sentences}, else a constituent",
        )
    return tagged


def warn(command: str, numbers: Sequence[int], sentences: int, what: str) -> None:
    """Warn on standard error about sentences, which are numbered from 1."""
    if numbers:
        count, names = len(numbers), first_ten(numbers)
        remark(command, f"WARNING: {count:,} of {sentences:,} sentences {what}: sentence {names}")


def report_roots(labels: Iterable[str | None], deleted: Collection[str], command: str) -> None:
    """Report on standard error which roots, except deleted ones, count as brackets."""
    counted = sorted({label for label in labels if label is not None and label not in deleted})
    if counted:
        root = ", ".join(map(repr, counted))
        remark(
            command, f"the root {root} counts as a bracket, as in EVALB; --strip-root excludes it"
        )
