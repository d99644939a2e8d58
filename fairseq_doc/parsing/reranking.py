"""N-best lists of parse trees for :mod:`fairseq_doc.scoring.rescoring`: distinct candidates as
symbols of a language model, and their comparison with gold trees."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np
from fairseq.data import Dictionary

from fairseq_doc.errors import FairseqDocError, shown
from fairseq_doc.parsing.nbest import Candidate, Parses
from fairseq_doc.preparation.symbols import WordSymbols, symbols_of
from fairseq_doc.preparation.trees import Tree
from fairseq_doc.scoring.metrics import Metric
from fairseq_doc.scoring.nbest_lists import NBestList


@dataclass
class TreeLists:
    """U lists of distinct candidates; those that differ only in tags count once."""

    lists: list[NBestList]  # trees as text, with the parser's scores
    encoded: list[list[list[int]]]  # each candidate's symbols and end mark; empty for a failure
    unknown: int  # number of symbols outside the dictionary
    statistics: list[np.ndarray]  # (n, S) for each list; empty without gold trees
    roots: set[str | None]  # labels of the first candidates' roots


def read_tree_lists(
    path: str,
    lists: Iterable[Parses],
    dictionary: Dictionary,
    base: float = math.e,
    metric: Metric | None = None,
    gold: Sequence[Tree] | None = None,
) -> TreeLists:
    """Merge the candidates with equal symbols in the lists of the file ``path``, keeping the tree
    and score of the first. The scores are logarithms to ``base``; ``metric`` compares with ``gold``,
    one tree per list."""
    if not any(symbol.startswith("(") and len(symbol) > 1 for symbol in dictionary.symbols):
        raise FairseqDocError(
            "expected a model of symbols of trees, such as (NP, trained on data of fairseq-doc "
            "prepare-parsing; got a dictionary without opening brackets"
        )
    word_symbol = WordSymbols.of_dictionary(dictionary)
    found = TreeLists([], [], 0, [], set())
    for number, parses in enumerate(lists):
        expected = None if gold is None else gold[number]
        _check_words(path, number, parses, expected)
        distinct: dict[tuple[str, ...], tuple[Candidate, Tree]] = {}
        for candidate, tree in parses:
            distinct.setdefault(tuple(symbols_of(tree, word_symbol)), (candidate, tree))
        kept, trees = zip(*distinct.values(), strict=True)
        scores = np.array([one.score for one in kept]) * math.log(base)
        found.lists.append(NBestList(str(number), [one.text for one in kept], scores))
        end = [dictionary.eos()]
        found.encoded.append([[*map(dictionary.index, x), *end] if x else [] for x in distinct])
        found.unknown += sum(one not in dictionary for symbols in distinct for one in symbols)
        found.roots.add(parses[0][1].root)
        if metric is not None and expected is not None:
            found.statistics.append(np.array([metric.statistics(x, expected) for x in trees]))
    return found


def _check_words(path: str, number: int, parses: Parses, gold: Tree | None) -> None:
    """Refuse trees whose words differ from the gold tree or from the first tree in their list."""
    whose = f"gold tree {number + 1}" if gold else f"the first candidate of list {number + 1}"
    words = next((tree.words for _, tree in parses if tree.words), ()) if not gold else gold.words
    for candidate, tree in parses:
        if tree.words not in ((), words):
            pairs = enumerate(zip_longest(words, tree.words), start=1)
            at = next(place for place, (expected, got) in pairs if expected != got)
            raise FairseqDocError(
                f"{path}: line {candidate.line}: the words differ from those of {whose} from word "
                f"{at} on; got {shown(' '.join(tree.words[at - 1 :]))}"
            )


def scored_lists(
    lists: Iterable[NBestList], log_probs: Iterable[np.ndarray], weight: float
) -> Iterator[list[tuple[float, float, float, str]]]:
    """The candidates of each list, best first: score, ln P, the parser's score and the tree."""
    for one, own in zip(lists, log_probs, strict=True):
        scores = own + weight * one.first_pass
        order = np.argsort(-scores, kind="stable")
        yield [(scores[i], own[i], one.first_pass[i], one.texts[i]) for i in order]
