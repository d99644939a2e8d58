"""Common options of ``rerank`` and ``evalb``, and their remarks about trees."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from fairseq_doc.cli.outputs import first_ten, remark
from fairseq_doc.options import option
from fairseq_doc.parsing.bracketing import Parameters, read_parameters
from fairseq_doc.parsing.nbest import Candidate, Parses, parse_lists
from fairseq_doc.preparation.trees import NO_TAG, ROOTS, Tree, is_tagged, read_trees, without_traces

IF_FAILED = " (write (()) if the parser failed)"


@dataclass(frozen=True, kw_only=True)
class TreeOptions:
    """Options of both commands."""

    prm: str | None = option(
        "EVALB's parameter file, for F1 (default: COLLINS.prm, but a quote deleted from only one of the "
        "two trees is kept in both)",
        reads=True,
    )
    strip_root: bool = option(
        "do not count root brackets S1, ROOT or without a label, just as TOP is not counted", False
    )
    sentences: str | None = option(
        "trees of the same sentences, which give the words and tags, for a parser that writes no "
        "tags (RNNG) or UNK for every tag; if some words have no tag, a bracket around a single "
        "word is read as a tag only if it is XX or the tag in these trees",
        metavar="TREES",
        reads=True,
    )

    @cached_property  # a pipe can be read once
    def parameters(self) -> Parameters:
        """EVALB's parameters; with ``strip_root`` they also delete the labels ``ROOTS``."""
        parameters = read_parameters(self.prm) if self.prm else Parameters()
        more = ROOTS if self.strip_root else ()
        return replace(parameters, delete_label=(*parameters.delete_label, *more))

    def parsed(self, path: str, lists: Sequence[list[Candidate]]) -> Iterator[Parses]:
        """:func:`parse_lists`, with the words and tags of ``sentences``. Prints a remark on how
        brackets around a single word are read if some words in the file have no tag."""
        if self.sentences is None:
            return parse_lists(path, lists)
        tagged = all(is_tagged(one.text) for candidates in lists for one in candidates)
        if not tagged:
            self.remark(
                f"{path}: some words have no tag; a bracket around a single word is a tag if it is "
                f"{NO_TAG} or the tag in {self.sentences}, else a constituent"
            )
        sentences = list(map(without_traces, trees_of(self.sentences)))
        return parse_lists(path, lists, sentences, tagged)

    def report_roots(self, labels: Iterable[str | None]) -> None:
        """Say which roots count as brackets."""
        deleted = self.parameters.delete_label
        if counted := sorted({one for one in labels if one is not None and one not in deleted}):
            roots = ", ".join(map(repr, counted))
            self.remark(
                f"the root {roots} counts as a bracket, as in EVALB; --strip-root excludes it"
            )

    def warn(self, numbers: Sequence[int], total: int, what: str) -> None:
        """Warn about sentences, which are numbered from 1."""
        if numbers:
            count = f"{len(numbers):,} of {total:,} sentences"
            self.remark(f"WARNING: {count} {what}: sentence {first_ten(numbers)}")

    def remark(self, text: str) -> None:
        """Print a line of this command on standard error."""
        remark(type(self).__module__.rpartition(".")[2], text)


def trees_of(path: str) -> list[Tree]:
    """The trees in a file."""
    return [tree for _, tree in read_trees(path)]
