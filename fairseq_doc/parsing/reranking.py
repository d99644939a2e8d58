"""N-best lists of parse trees for :mod:`fairseq_doc.scoring.rescoring`: distinct candidates as symbols
of a language model, and their comparison with gold trees."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product, zip_longest

import numpy as np
from fairseq.data import Dictionary

from fairseq_doc.errors import FairseqDocError, shown
from fairseq_doc.parsing.nbest import Candidate, Parses, parse_lists, read_nbest
from fairseq_doc.preparation.symbols import WordSymbols, symbols_of
from fairseq_doc.preparation.trees import Tree, bracketed
from fairseq_doc.scoring.metrics import Metric
from fairseq_doc.scoring.nbest_lists import NBestList
from fairseq_doc.scoring.rescoring import encode


@dataclass
class TreeLists:
    """U lists of distinct candidates, which do not differ only in tags."""

    lists: list[NBestList]  # trees as text, with the parser's scores
    encoded: list[list[list[int]]]  # each candidate's symbols and end mark; empty for a failure
    unknown: int  # number of symbols outside the dictionary
    statistics: list[np.ndarray]  # (n, S) for each list; empty without gold trees
    candidates: int  # number of candidates before merging
    roots: set[str | None]  # labels of the first candidates' roots


def read_tree_lists(
    path: str,
    dictionary: Dictionary,
    base: float = math.e,
    metric: Metric | None = None,
    gold: Sequence[Tree] | None = None,
    sentences: Sequence[Tree] | None = None,
    tagged: bool = False,
) -> TreeLists:
    """Read an n-best file and merge candidates with equal symbols, keeping the tree and score of the
    first. The scores are logarithms to ``base``; ``metric`` compares with ``gold``, one tree per
    list; other arguments as in :func:`parse_lists`."""
    if not any(symbol.startswith("(") and len(symbol) > 1 for symbol in dictionary.symbols):
        raise FairseqDocError(
            "expected a model of symbols of trees, such as (NP, trained on data of fairseq-doc "
            "prepare-parsing; got a dictionary without opening brackets"
        )
    word_symbol = WordSymbols.of_dictionary(dictionary)
    found = TreeLists([], [], 0, [], 0, set())
    for number, parses in enumerate(parse_lists(path, read_nbest(path), sentences, tagged)):
        expected = None if gold is None or number >= len(gold) else gold[number]
        _check_words(path, parses, expected, number + 1)
        distinct: dict[tuple[str, ...], tuple[Candidate, Tree]] = {}
        for candidate, tree in parses:
            distinct.setdefault(tuple(symbols_of(tree, word_symbol)), (candidate, tree))
        kept, trees = zip(*distinct.values(), strict=True)
        texts = [one.text for one in kept] if sentences is None else list(map(bracketed, trees))
        scores = np.array([one.score for one in kept]) * math.log(base)
        encoded, unknown = encode(dictionary, [[symbols or None for symbols in distinct]])
        found.lists.append(NBestList(str(number), texts, scores))
        found.encoded += encoded
        found.unknown += unknown.total()
        found.candidates += len(parses)
        found.roots.add(parses[0][1].root)
        if metric is not None and expected is not None:
            found.statistics.append(np.array([metric.statistics(x, expected) for x in trees]))
    if gold is not None and len(gold) != len(found.lists):
        raise FairseqDocError(
            f"{path}: expected a list for each of {len(gold):,} gold trees; got "
            f"{len(found.lists):,} (write (()) where the parser failed)"
        )
    return found


def _check_words(path: str, parses: Parses, gold: Tree | None, number: int) -> None:
    """Refuse trees whose words differ from the first tree in their list or from the gold tree."""
    parsed = [(candidate.line, tree.words) for candidate, tree in parses if tree.words]
    whose = [(words, f"the first candidate of list {number}") for _, words in parsed[:1]]
    if gold is not None:
        whose.append((gold.words, f"gold tree {number}"))
    for (expected, of), (line, got) in product(whose, parsed):
        if expected != got:
            at, pair = next(
                (n, p) for n, p in enumerate(zip_longest(expected, got), 1) if p[0] != p[1]
            )
            named = ["its end" if word is None else shown(word) for word in pair]
            raise FairseqDocError(
                f"{path}: line {line}: the words differ from those of {of}: at word {at} expected "
                f"{named[0]}; got {named[1]}"
            )


def scored_lines(
    lists: Iterable[NBestList], log_probs: Iterable[np.ndarray], weight: float
) -> Iterator[str]:
    """Lines of an n-best file with the candidates, best first: score, ln P, the parser's score and
    the tree, separated by tabs."""
    for number, (one, own) in enumerate(zip(lists, log_probs, strict=True)):
        scores = own + weight * one.first_pass
        yield f"{len(scores)} {number}"
        for index in np.argsort(-scores, kind="stable"):
            numbers = (scores[index], own[index], one.first_pass[index])
            yield "\t".join((*(repr(float(x)) for x in numbers), one.texts[index]))
