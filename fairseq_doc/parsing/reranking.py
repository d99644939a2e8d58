"""N-best lists of parse trees, scored by language models and by the parser's own score.

A candidate's score is ln P_LM(symbols) + w s, where s is the parser's own score as a natural
logarithm. The weight w is tuned by F1 on a development set. Candidates with equal symbols, which
differ in tags only, are merged: the first one's tree and score are kept.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import Any

import numpy as np
from fairseq.data import Dictionary

from fairseq_doc.errors import FairseqDocError, shown
from fairseq_doc.evaluation.ensemble import Ensemble
from fairseq_doc.evaluation.prefix_tree import MAX_SEQUENCES, chunks_of, score_prefix_tree
from fairseq_doc.evaluation.progress import Progress, no_progress
from fairseq_doc.parsing.bracketing import VALID, Parameters, compare, f1
from fairseq_doc.parsing.kept_scores import KeptScores
from fairseq_doc.parsing.nbest import Candidate, read_nbest
from fairseq_doc.preparation.symbols import WordSymbols, symbols_of
from fairseq_doc.preparation.trees import Tree, bracketed, parse_tree

_Distinct = dict[str, tuple[Candidate, Tree]]  # by their symbols


@dataclass(frozen=True)
class Sentence:
    """The n distinct candidates of a sentence, which differ in more than tags."""

    candidates: int  # in the list, before merging
    symbols: list[str]  # (n,) each one's symbols, separated by blanks
    trees: list[str]  # (n,) as text
    parser_scores: np.ndarray  # (n,) natural logarithms
    # (n, 3) matched, gold and test brackets, 0 if EVALB excludes the candidate; None without gold
    counts: np.ndarray | None = None
    valid: np.ndarray | None = None  # (n,) whether EVALB includes the candidate; None without gold
    root: str | None = None  # the label of the first candidate's root
    unknown: int = 0  # symbols outside the dictionary, over the n candidates

    def scores(self, lm_scores: np.ndarray, weight: float) -> np.ndarray:
        """ln P_LM + w s, (n,)."""
        return lm_scores + weight * self.parser_scores


def read_sentences(
    path: str,
    dictionary: Dictionary,
    score_base: float = math.e,
    gold: Sequence[Tree] | None = None,
    parameters: Parameters | None = None,
    word_trees: Sequence[Tree] | None = None,
) -> list[Sentence]:
    """Read an n-best file, and merge candidates with equal symbols.

    Args:
        score_base: the base of the logarithms that the parser's scores are.
        gold: trees, one a sentence, to compare with by EVALB's ``parameters``; None for no counts.
        word_trees: one a sentence, whose words and tags are used; None: the candidates' own.
    """
    if not any(symbol.startswith("(") and len(symbol) > 1 for symbol in dictionary.symbols):
        raise FairseqDocError(
            "expected a model of trees' symbols, such as (NP, trained on data of fairseq-doc "
            "prepare-parsing; got a dictionary without opening brackets"
        )
    word_symbol = WordSymbols.of_dictionary(dictionary)
    sentences: list[Sentence] = []
    for number, candidates in enumerate(read_nbest(path), start=1):
        where = f"{path}: line {candidates[0].line}"
        if word_trees is not None and number > len(word_trees):
            raise FairseqDocError(
                f"{where}: expected lists of {len(word_trees):,} sentences; got more"
            )
        word_tree = None if word_trees is None else word_trees[number - 1]
        distinct = _distinct(path, number, candidates, word_symbol, word_tree)
        kept, trees = zip(*distinct.values(), strict=True)
        counts = valid = None
        if gold is not None and number <= len(gold):
            expected = gold[number - 1]
            _check_words(expected.words, trees[0].words, where, f"gold tree {number}")
            results = [compare(expected, tree, parameters or Parameters()) for tree in trees]
            valid = np.array([result.status == VALID for result in results])
            counts = np.array([(r.matched, r.gold, r.test) for r in results])
        sentences.append(
            Sentence(
                candidates=len(candidates),
                symbols=list(distinct),
                trees=[c.text for c in kept] if word_tree is None else list(map(bracketed, trees)),
                parser_scores=np.array([c.score for c in kept]) * math.log(score_base),
                counts=counts,
                valid=valid,
                root=trees[0].root,
                unknown=sum(s not in dictionary for text in distinct for s in text.split(" ")),
            )
        )
    if gold is not None and len(gold) != len(sentences):
        raise FairseqDocError(
            f"{path}: expected a list for each of {len(gold):,} gold trees; got {len(sentences):,}"
        )
    return sentences


def _distinct(
    path: str,
    number: int,
    candidates: Iterable[Candidate],
    word_symbol: WordSymbols,
    word_tree: Tree | None,
) -> _Distinct:
    """The distinct candidates of list ``number`` by their symbols."""
    distinct: _Distinct = {}
    words = None
    for candidate in candidates:
        where = f"{path}: line {candidate.line}"
        tree = parse_tree(candidate.text, where, sentence=word_tree)
        words = words or tree.words
        _check_words(words, tree.words, where, f"the first candidate of list {number}")
        distinct.setdefault(" ".join(symbols_of(tree, word_symbol)), (candidate, tree))
    return distinct


def _check_words(expected: Sequence[str], got: Sequence[str], where: str, whose: str) -> None:
    if expected == got:
        return
    at, pair = next((n, p) for n, p in enumerate(zip_longest(expected, got), 1) if p[0] != p[1])
    named = ["its end" if word is None else shown(word) for word in pair]
    raise FairseqDocError(
        f"{where}: a tree over other words than {whose}: at word {at} expected {named[0]}; got "
        f"{named[1]}"
    )


def score_candidates(
    ensemble: Ensemble,
    sentences: Sequence[Sentence],
    at_once: int = MAX_SEQUENCES,
    kept: KeptScores | None = None,
    progress: Progress = no_progress,
) -> list[np.ndarray]:
    """ln P_LM of each sentence's candidates, (n,). Scores in ``kept`` are taken from there, the
    others added. ``at_once``: candidates scored together, or as many as one sentence has; it
    changes memory and speed, and results by rounding only."""
    # The whole list decides them, not where an interrupted run continues: results are the same.
    chunks = chunks_of([sentence.symbols for sentence in sentences], at_once)
    sizes = [[len(symbols) for symbols in chunk] for chunk in chunks]
    scores = [] if kept is None else kept.begin(sizes)  # of each chunk
    for chunk in progress(chunks[len(scores) :], "rerank"):
        candidates = [text.split(" ") for symbols in chunk for text in symbols]
        together = score_prefix_tree(ensemble, candidates)
        ends = np.cumsum([len(symbols) for symbols in chunk])
        scores.append(np.split(together, ends[:-1]))
        if kept is not None:
            kept.append(scores[-1])
    return list(chain.from_iterable(scores))


def best_candidates(
    sentences: Sequence[Sentence], lm_scores: Sequence[np.ndarray], weight: float
) -> list[int]:
    """The index of each sentence's best candidate, the first of equal ones."""
    pairs = zip(sentences, lm_scores, strict=True)
    return [int(np.argmax(sentence.scores(own, weight))) for sentence, own in pairs]


def oracle(sentences: Iterable[Sentence]) -> list[int]:
    """The index of each sentence's candidate with the best F1, the first of equal ones."""
    return [int(np.argmax([f1(*row) for row in _counts(s).tolist()])) for s in sentences]


def corpus_f1(sentences: Sequence[Sentence], chosen: Iterable[int]) -> float:
    """F1 in percent of one candidate a sentence, ``chosen`` by index."""
    totals = np.zeros(3, dtype=int)
    for sentence, index in zip(sentences, chosen, strict=True):
        totals += _counts(sentence)[index]
    return f1(*totals.tolist())


def _counts(sentence: Sentence) -> np.ndarray:
    assert sentence.counts is not None, "read without gold trees"
    return sentence.counts


def tune(
    sentences: Sequence[Sentence], lm_scores: Sequence[np.ndarray], weights: Collection[float]
) -> dict[str, Any]:
    """The best ``weight`` by F1 in percent, the smallest of equal ones, with ``excluded``, the
    sentences that EVALB excludes at it, from 1; ``f1`` at it, ``parser_f1`` of each list's first
    candidate, ``lm_f1`` at the weight 0, so of the language model alone, and ``oracle_f1`` of each
    list's best; ``tuning``, {weight: F1}. The sentences have gold trees."""

    def f1_at(weight: float) -> float:
        return corpus_f1(sentences, best_candidates(sentences, lm_scores, weight))

    tuning = {weight: f1_at(weight) for weight in weights}
    highest = max(tuning.values())
    best = min(weight for weight, score in tuning.items() if score == highest)
    chosen = zip(sentences, best_candidates(sentences, lm_scores, best), strict=True)
    return {
        "weight": best,
        "excluded": [
            number
            for number, (sentence, index) in enumerate(chosen, start=1)
            if sentence.valid is not None and not sentence.valid[index]
        ],
        "f1": highest,
        "parser_f1": corpus_f1(sentences, [0] * len(sentences)),
        "lm_f1": f1_at(0.0),
        "oracle_f1": corpus_f1(sentences, oracle(sentences)),
        "tuning": tuning,
    }


def best_trees(
    sentences: Sequence[Sentence], lm_scores: Sequence[np.ndarray], weight: float
) -> list[str]:
    """The text of each sentence's best tree."""
    chosen = best_candidates(sentences, lm_scores, weight)
    return [s.trees[index] for s, index in zip(sentences, chosen, strict=True)]


def scored_lists(
    sentences: Sequence[Sentence], lm_scores: Sequence[np.ndarray], weight: float
) -> Iterator[str]:
    """Lines of an n-best file of the distinct candidates, best first: the score, ln P_LM, the
    parser's score and the tree, with tabs between."""
    for number, (sentence, own) in enumerate(zip(sentences, lm_scores, strict=True)):
        scores = sentence.scores(own, weight)
        yield f"{len(scores)} {number}"
        for index in np.argsort(-scores, kind="stable"):
            numbers = (scores[index], own[index], sentence.parser_scores[index])
            yield "\t".join((*(repr(float(x)) for x in numbers), sentence.trees[index]))
