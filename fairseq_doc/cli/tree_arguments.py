"""Common options of ``rerank`` and ``evalb``, and their remarks about trees."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from fairseq_doc.cli.outputs import first_ten, remark
from fairseq_doc.options import option
from fairseq_doc.parsing.bracketing import Parameters, read_parameters
from fairseq_doc.parsing.nbest import every_word_is_tagged
from fairseq_doc.preparation.trees import NO_TAG, ROOTS, Tree, read_trees


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


def are_tagged(path: str, sentences: str | None, command: str) -> bool:
    """Whether every word in a file of trees has its own tag, which ``--sentences`` replaces. If not,
    print a remark on how brackets around a single word are read."""
    tagged = sentences is not None and every_word_is_tagged(path)
    if sentences is not None and not tagged:
        remark(
            command,
            f"{path}: some words have no tag; a bracket around a single word is a tag if it is "
            f"{NO_TAG} or the tag in {sentences}, else a constituent",
        )
    return tagged


def warn(command: str, numbers: Sequence[int], sentences: int, what: str) -> None:
    """Warn on standard error about sentences, which are numbered from 1."""
    if numbers:
        remark(
            command,
            f"WARNING: {len(numbers):,} of {sentences:,} sentences {what}: sentence "
            f"{first_ten(numbers)}",
        )


def report_roots(labels: Iterable[str | None], deleted: Collection[str], command: str) -> None:
    """Report on standard error which roots, except deleted ones, count as brackets."""
    counted = sorted({label for label in labels if label is not None and label not in deleted})
    if counted:
        root = ", ".join(map(repr, counted))
        remark(
            command,
            f"the root {root} counts as a bracket, as in EVALB; --strip-root excludes it",
        )
