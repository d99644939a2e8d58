"""N-best lists of parse trees, scored by language models and by the parser's own score.

A candidate's score is ln P_LM(symbols) + w s, where s is the parser's own score as a natural
logarithm. The weight w is tuned by F1 on a development set. Candidates with equal symbols, which
differ in tags only, are merged: the first one's tree and score are kept.

Lists are read as often as needed and never held in memory; only a few numbers of each candidate
are.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np
from fairseq.data import Dictionary

from fairseq_doc.errors import FairseqDocError, shown
from fairseq_doc.evaluation.ensemble import Ensemble
from fairseq_doc.evaluation.prefix_tree import score_prefix_tree
from fairseq_doc.evaluation.progress import Progress, no_progress
from fairseq_doc.parsing.bracketing import VALID, Parameters, compare, f1
from fairseq_doc.parsing.kept_scores import KeptScores
from fairseq_doc.parsing.nbest import Candidate, read_nbest
from fairseq_doc.preparation.symbols import WordSymbols, symbols_of
from fairseq_doc.preparation.trees import Tree, bracketed, parse_tree

MAX_CANDIDATES = 2000  # scored together
_Distinct = dict[tuple[str, ...], tuple[Candidate, Tree]]  # by their symbols


@dataclass(frozen=True)
class Sentence:
    """The distinct candidates of a sentence, n of them: those that differ in more than tags.

    Attributes:
        candidates: how many the list has, before merging.
        lines: (n,) the line of the file with each one's tree.
        parser_scores: (n,) the parser's scores, natural logarithm.
        counts: (n, 3) matched, gold and test brackets against the gold tree, all 0 where EVALB
            excludes the candidate; None without gold trees.
        valid: (n,) whether EVALB includes the candidate; None without gold trees.
        root: the label of the first candidate's root; None without a root.
        unknown: symbols outside the dictionary, over the n candidates.
    """

    candidates: int
    lines: np.ndarray
    parser_scores: np.ndarray
    counts: np.ndarray | None
    valid: np.ndarray | None = None
    root: str | None = None
    unknown: int = 0

    def scores(self, lm_scores: np.ndarray, weight: float) -> np.ndarray:
        """ln P_LM + w s, (n,)."""
        return lm_scores + weight * self.parser_scores

    def best(self, lm_scores: np.ndarray, weight: float) -> int:
        """The index of the best candidate, the first of several."""
        return int(np.argmax(self.scores(lm_scores, weight)))


def check_dictionary(dictionary: Dictionary) -> None:
    """Raise ``FairseqDocError`` unless its symbols are those of trees."""
    if not any(symbol.startswith("(") and len(symbol) > 1 for symbol in dictionary.symbols):
        raise FairseqDocError(
            "expected a model of trees' symbols, such as (NP, trained on data of fairseq-doc "
            "prepare-parsing; got a dictionary without opening brackets"
        )


def read_sentences(
    path: str,
    dictionary: Dictionary,
    score_base: float = math.e,
    gold: Sequence[Tree] | None = None,
    parameters: Parameters | None = None,
    word_trees: Sequence[Tree] | None = None,
) -> list[Sentence]:
    """Read an n-best file to its end, and merge candidates with equal symbols.

    Args:
        path: see :func:`fairseq_doc.parsing.nbest.read_nbest`.
        dictionary: of the language model.
        score_base: the base of the logarithms that the parser's scores are.
        gold: trees, one a sentence; None for no counts.
        parameters: of EVALB, to compare with ``gold``; None: the defaults.
        word_trees: trees, one a sentence, whose words and tags are used; None: each candidate has
            its own.

    Raises:
        FairseqDocError: a damaged list or tree, a candidate over other words than the first one or
            the gold tree, another number of sentences than of gold trees. The message names file
            and line.
    """
    check_dictionary(dictionary)
    sentences = []
    for number, (total, found) in enumerate(_distinct(path, dictionary, word_trees), start=1):
        candidates, trees = zip(*found.values(), strict=True)
        counts = valid = None
        if gold is not None and number <= len(gold):
            where = f"{path}: line {candidates[0].line}"
            expected = gold[number - 1]
            check_words(expected.words, trees[0].words, where, f"gold tree {number}")
            results = [compare(expected, tree, parameters or Parameters()) for tree in trees]
            valid = np.array([result.status == VALID for result in results])
            counts = np.array([(r.matched, r.gold, r.test) for r in results])
        scores = np.array([candidate.score for candidate in candidates]) * math.log(score_base)
        sentences.append(
            Sentence(
                candidates=total,
                lines=np.array([candidate.line for candidate in candidates]),
                parser_scores=scores,
                counts=counts,
                valid=valid,
                root=trees[0].root,
                unknown=sum(symbol not in dictionary for symbols in found for symbol in symbols),
            )
        )
    if gold is not None and len(gold) != len(sentences):
        raise FairseqDocError(
            f"{path}: expected a list for each of {len(gold):,} gold trees; got {len(sentences):,}"
        )
    return sentences


def distinct_symbols(
    path: str, dictionary: Dictionary, word_trees: Sequence[Tree] | None = None
) -> Iterator[list[tuple[str, ...]]]:
    """For each sentence of an n-best file the symbols of its distinct candidates; see
    :func:`read_sentences`."""
    return (list(found) for _, found in _distinct(path, dictionary, word_trees))


def _distinct(
    path: str, dictionary: Dictionary, word_trees: Sequence[Tree] | None
) -> Iterator[tuple[int, _Distinct]]:
    """For each sentence (the number of its candidates, the distinct ones by their symbols)."""
    word_symbol = WordSymbols.of_dictionary(dictionary)
    for number, candidates in enumerate(read_nbest(path), start=1):
        if word_trees is not None and number > len(word_trees):
            raise FairseqDocError(
                f"{path}: line {candidates[0].line}: expected lists of {len(word_trees):,} "
                "sentences; got more"
            )
        word_tree = None if word_trees is None else word_trees[number - 1]
        found: _Distinct = {}
        words = None
        for candidate in candidates:
            where = f"{path}: line {candidate.line}"
            tree = parse_tree(candidate.text, where, sentence=word_tree)
            words = words or tree.words
            check_words(words, tree.words, where, f"the first candidate of list {number}")
            found.setdefault(tuple(symbols_of(tree, word_symbol)), (candidate, tree))
        yield len(candidates), found


def check_words(expected: Sequence[str], got: Sequence[str], where: str, whose: str) -> None:
    """Raise ``FairseqDocError`` unless a tree has the expected words, which are ``whose``."""
    if expected == got:
        return
    at = 0
    while at < min(len(expected), len(got)) and expected[at] == got[at]:
        at += 1
    named = [shown(words[at]) if at < len(words) else "its end" for words in (expected, got)]
    raise FairseqDocError(
        f"{where}: a tree over other words than {whose}: at word {at + 1} expected {named[0]}; got "
        f"{named[1]}"
    )


def score_candidates(
    ensemble: Ensemble,
    path: str,
    sentences: Sequence[Sentence],
    at_once: int = MAX_CANDIDATES,
    kept: KeptScores | None = None,
    progress: Progress = no_progress,
    word_trees: Sequence[Tree] | None = None,
) -> list[np.ndarray]:
    """Score each distinct candidate once.

    Args:
        ensemble: of language models.
        path: the n-best file.
        sentences: what :func:`read_sentences` read in it.
        at_once: candidates scored together, or as many as one sentence has. It changes memory and
            speed, and results by rounding only.
        kept: file of scores to continue, or None.
        progress: see :data:`fairseq_doc.evaluation.progress.Progress`.
        word_trees: as for :func:`read_sentences`.

    Returns:
        For each sentence ln P_LM of its candidates, (n,).

    Raises:
        FairseqDocError: a score that is not finite.
    """
    symbols = distinct_symbols(path, ensemble.dictionary, word_trees)
    scores: list[np.ndarray] = []
    chunks = _chunks([len(sentence.lines) for sentence in sentences], at_once)
    for size in progress(chunks, "rerank"):
        chunk = list(islice(symbols, size))
        sizes = [len(candidates) for candidates in chunk]
        chunk_scores = None if kept is None else kept.take(len(scores), sizes)
        if chunk_scores is None:
            together = score_prefix_tree(ensemble, list(chain.from_iterable(chunk)))
            chunk_scores = np.split(together, np.cumsum(sizes)[:-1])
            if kept is not None:
                kept.append(chunk_scores)
        scores += chunk_scores
    return scores


def _chunks(sizes: Iterable[int], at_once: int) -> list[int]:
    """How many consecutive sentences, of these numbers of candidates, are scored together.

    It depends on the whole list, not on where an interrupted run continues, so that results are the
    same.
    """
    chunks: list[int] = []
    candidates = at_once
    for size in sizes:
        if candidates >= at_once:
            chunks.append(0)
            candidates = 0
        chunks[-1] += 1
        candidates += size
    return chunks


def corpus_f1(sentences: Sequence[Sentence], chosen: Iterable[int]) -> float:
    """F1 in percent of one candidate a sentence, given by their indices."""
    totals = np.zeros(3, dtype=int)
    for sentence, index in zip(sentences, chosen, strict=True):
        totals += _counts(sentence)[index]
    return f1(*totals.tolist())


def oracle(sentences: Iterable[Sentence]) -> list[int]:
    """The index of each sentence's candidate with the best F1, the first of several."""
    return [int(np.argmax([f1(*row) for row in _counts(s).tolist()])) for s in sentences]


def _counts(sentence: Sentence) -> np.ndarray:
    if sentence.counts is None:
        raise ValueError("expected sentences read with gold trees; got one without counts")
    return sentence.counts


def best_candidates(
    sentences: Sequence[Sentence], lm_scores: Sequence[np.ndarray], weight: float
) -> list[int]:
    """The index of each sentence's best candidate at a weight."""
    return [s.best(scores, weight) for s, scores in zip(sentences, lm_scores, strict=True)]


def tune(
    sentences: Sequence[Sentence], lm_scores: Sequence[np.ndarray], weights: Collection[float]
) -> tuple[float, list[float]]:
    """F1 at every weight.

    Returns:
        (the best weight, the smallest of several; F1 at every weight, in percent).
    """
    found = [corpus_f1(sentences, best_candidates(sentences, lm_scores, w)) for w in weights]
    highest = max(found)
    return min(w for w, score in zip(weights, found, strict=True) if score == highest), found


def best_trees(
    path: str,
    sentences: Sequence[Sentence],
    lm_scores: Sequence[np.ndarray],
    weight: float,
    word_trees: Sequence[Tree] | None = None,
) -> Iterator[str]:
    """The best tree of each sentence, as the file has it, or over the words and tags of
    ``word_trees``."""
    best = best_candidates(sentences, lm_scores, weight)
    texts = _tree_texts(path, word_trees)
    for sentence, text_of, index in zip(sentences, texts, best, strict=True):
        yield text_of(sentence.lines[index])


def scored_lists(
    path: str,
    sentences: Sequence[Sentence],
    lm_scores: Sequence[np.ndarray],
    weight: float,
    word_trees: Sequence[Tree] | None = None,
) -> Iterator[str]:
    """The lines of an n-best file of the distinct candidates, best first: the score, ln P_LM, the
    parser's own score and the tree, with tabs between; see :func:`best_trees`."""
    texts = _tree_texts(path, word_trees)
    rows = zip(sentences, texts, lm_scores, strict=True)
    for number, (sentence, text_of, own_lm_scores) in enumerate(rows):
        scores = sentence.scores(own_lm_scores, weight)
        yield f"{len(scores)} {number}"
        for index in np.argsort(-scores, kind="stable"):
            numbers = (scores[index], own_lm_scores[index], sentence.parser_scores[index])
            parts = [repr(float(value)) for value in numbers]
            yield "\t".join((*parts, text_of(sentence.lines[index])))


def _tree_texts(path: str, word_trees: Sequence[Tree] | None) -> Iterator[Callable[[int], str]]:
    """For each sentence a function from a line of the file to the text of its tree."""
    for number, candidates in enumerate(read_nbest(path)):
        texts = {candidate.line: candidate.text for candidate in candidates}
        if word_trees is None:
            yield texts.__getitem__
        else:
            yield _over_words(texts, path, word_trees[number])


def _over_words(texts: dict[int, str], path: str, word_tree: Tree) -> Callable[[int], str]:
    """From a line of the file to its tree's text over the words and tags of ``word_tree``."""

    def text_of(line: int) -> str:
        return bracketed(parse_tree(texts[line], f"{path}: line {line}", sentence=word_tree))

    return text_of
