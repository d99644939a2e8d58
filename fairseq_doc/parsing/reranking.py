"""N-best lists of trees, scored by language models and by the parser's own score.

A candidate's score is ln P_LM(symbols) + w s, where s is the parser's own score as a natural logarithm;
w is tuned by F1 on a development set. Candidates with equal symbols, which differ in tags alone, are
one, and the first one's tree and score stand for all.

A list is read as often as is needed and never held: of each candidate stay a few numbers.
"""

import contextlib
import fcntl
import json
import math
import os
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice

import numpy as np

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.evaluation.perplexity import unchanged
from fairseq_doc.evaluation.prefix_tree import score_prefix_tree
from fairseq_doc.parsing.bracketing import VALID, compare, f1
from fairseq_doc.parsing.nbest import read_nbest
from fairseq_doc.preparation.symbols import WordSymbols, symbols_of
from fairseq_doc.preparation.trees import bracketed, parse_tree

MAX_CANDIDATES = 2000  # scored at once


@dataclass(frozen=True)
class Sentence:
    """The candidates of a sentence that differ in more than tags, n of them.

    Attributes:
        candidates: how many the list holds, with those that are merged.
        lines: (n,) the line of the file where the tree of each stands.
        parser_scores: (n,) the parser's scores, natural logarithm.
        counts: (n, 3) matched, gold and test brackets against the gold tree, all 0 where EVALB leaves
            the candidate out of its totals; None without gold trees.
        valid: (n,) whether EVALB has it in its totals; None without gold trees.
        root: the label of the first candidate's root, None where it has none.
        unknown: symbols outside the dictionary, over the n candidates.
    """

    candidates: int
    lines: np.ndarray
    parser_scores: np.ndarray
    counts: np.ndarray | None
    valid: np.ndarray | None = None
    root: str | None = None
    unknown: int = 0

    def scores(self, lm, weight):
        """ln P_LM + w s, (n,)."""
        return lm + weight * self.parser_scores

    def best(self, lm, weight):
        """The index of the best candidate, the first of several."""
        return int(np.argmax(self.scores(lm, weight)))


def check_dictionary(dictionary):
    """Raise ``FairseqDocError`` unless its symbols are those of trees."""
    if not any(symbol.startswith("(") and len(symbol) > 1 for symbol in dictionary.symbols):
        raise FairseqDocError(
            "expected a model of trees' symbols, such as (NP, on data of scripts/prepare_parsing.sh; got "
            "one whose dictionary has no opening bracket"
        )


def _distinct(path, dictionary, given=None):
    """(candidates, {symbols: (candidate, tree)} of those with other symbols) of each sentence; ``given``:
    the trees of the sentences, of which words and tags are taken."""
    word_symbol = WordSymbols.of_dictionary(dictionary)
    for number, candidates in enumerate(read_nbest(path), start=1):
        found, words = {}, None
        if given is not None and number > len(given):
            raise FairseqDocError(
                f"{path}: line {candidates[0].line}: expected lists of {len(given):,} sentences; got more"
            )
        sentence = None if given is None else given[number - 1]
        for candidate in candidates:
            where = f"{path}: line {candidate.line}"
            tree = parse_tree(candidate.text, where, sentence=sentence)
            words = words or tree.words
            check_words(words, tree.words, where, f"the first candidate of list {number}")
            found.setdefault(tuple(symbols_of(tree, word_symbol)), (candidate, tree))
        yield candidates, found


def distinct_symbols(path, dictionary, given=None):
    """For each sentence of an n-best file, the symbols of its candidates that differ in them; see
    :func:`read_sentences`."""
    return (list(found) for _, found in _distinct(path, dictionary, given))


def check_words(expected, got, where, whose):
    """Raise ``FairseqDocError`` unless a tree has the words expected."""
    if expected == got:
        return
    same = (a == b for a, b in zip(expected, got, strict=False))
    at = next((i for i, equal in enumerate(same) if not equal), min(len(expected), len(got)))
    shown = [repr(words[at]) if at < len(words) else "its end" for words in (expected, got)]
    raise FairseqDocError(
        f"{where}: a tree over other words than {whose}: at word {at + 1} expected {shown[0]}; got "
        f"{shown[1]}"
    )


def read_sentences(path, dictionary, score_base=math.e, gold=None, parameters=None, given=None):
    """Read an n-best file, all of it, and merge candidates with equal symbols.

    Args:
        path: see :func:`fairseq_doc.parsing.nbest.read_nbest`.
        dictionary: of the language model.
        score_base: the base of the logarithms that the parser's scores are.
        gold: trees, one a sentence; None for no counts.
        parameters: of EVALB, with ``gold``.
        given: trees, one a sentence, of which the words and tags are taken; None: the candidates have
            their own.

    Returns:
        A list of :class:`Sentence`.

    Raises:
        FairseqDocError: with file and line: a damaged list or tree, a candidate over other words than
            the first or than the gold tree; more or fewer sentences than gold trees.
    """
    check_dictionary(dictionary)
    sentences = []
    for number, (candidates, found) in enumerate(_distinct(path, dictionary, given), start=1):
        first, trees = zip(*found.values(), strict=True)
        counts = valid = None
        if gold is not None and number <= len(gold):
            where = f"{path}: line {first[0].line}"
            expected = gold[number - 1]
            check_words(expected.words, trees[0].words, where, f"gold tree {number}")
            results = [compare(expected, tree, parameters) for tree in trees]
            valid = np.array([result.status == VALID for result in results])
            counts = np.array([(r.matched, r.gold, r.test) for r in results])
        scores = np.array([candidate.score for candidate in first]) * math.log(score_base)
        lines = np.array([candidate.line for candidate in first])
        unknown = sum(symbol not in dictionary for symbols in found for symbol in symbols)
        sentences.append(
            Sentence(len(candidates), lines, scores, counts, valid, trees[0].root, unknown)
        )
    if gold is not None and len(gold) != len(sentences):
        raise FairseqDocError(
            f"{path}: expected a list for each of {len(gold):,} gold trees; got {len(sentences):,}"
        )
    return sentences


def score_candidates(
    ensemble,
    path,
    sentences,
    at_once=MAX_CANDIDATES,
    kept=None,
    progress=unchanged,
    given=None,
):
    """Score each distinct candidate once.

    Args:
        ensemble: see :class:`fairseq_doc.evaluation.ensemble.Ensemble`.
        path: the n-best file.
        sentences: what :func:`read_sentences` read in it.
        at_once: candidates scored together, or as many as one sentence has: memory and speed, no result
            beyond rounding.
        kept: :class:`KeptScores`, which is closed then, or None.
        progress: (iterable with a length, name) -> iterable.
        given: as for :func:`read_sentences`.

    Returns:
        For each sentence ln P_LM of its candidates, (n,).

    Raises:
        FairseqDocError: a score that is not finite; kept scores of other lists.
    """
    symbols = distinct_symbols(path, ensemble.dictionary, given)
    scores = []
    with kept or contextlib.nullcontext():
        for size in progress(_chunks([len(s.lines) for s in sentences], at_once), "rerank"):
            chunk = list(islice(symbols, size))
            sizes = [len(candidates) for candidates in chunk]
            of_chunk = kept.take(len(scores), sizes) if kept else None
            if of_chunk is None:
                together = score_prefix_tree(ensemble, list(chain.from_iterable(chunk)))
                of_chunk = np.split(together, np.cumsum(sizes)[:-1])
                if kept:
                    kept.append(of_chunk)
            scores += of_chunk
    return scores


def _chunks(sizes, at_once):
    """How many sentences in a row are scored together, of these numbers of candidates: so that it
    does not hang on where an interrupted run went on."""
    chunks, candidates = [], at_once
    for size in sizes:
        if candidates >= at_once:
            chunks.append(0)
            candidates = 0
        chunks[-1] += 1
        candidates += size
    return chunks


class KeptScores:
    """Scores of the language model in a file: an interrupted run goes on from them to the same result,
    and one with another weight makes none.

    The first line tells what they are of; each other line holds a sentence's, as Python writes floats,
    so that nothing is lost.

    Args:
        path: file to go on with, or to begin.
        stamp: what decides the scores, as what JSON can hold.

    Attributes:
        taken: candidates whose scores were there.

    Raises:
        FairseqDocError: a file of something else, or one that another run writes.
    """

    def __init__(self, path, stamp):
        self.taken = 0
        self._path, self._file, self._appending = path, None, False
        self._head = json.dumps(stamp, sort_keys=True)
        self._kept = []
        if not os.path.exists(path):
            return
        self._open("r+")
        lines = self._file.read().split("\n")[:-1]  # a line that was cut off does not count
        if not lines or lines[0] != self._head:
            raise FairseqDocError(
                f"{path}: expected scores of these models on this list; got another file; remove it, or "
                "name another"
            )
        for number, line in enumerate(lines[1:], start=2):
            try:
                scores = np.array(json.loads(line), dtype=float)
            except (ValueError, TypeError):
                scores = np.array(np.nan)
            if scores.ndim != 1 or not np.isfinite(scores).all():
                raise FairseqDocError(
                    f"{path}: line {number} is damaged: expected a list of scores; remove the file, or the "
                    "lines from there on"
                )
            self._kept.append(scores)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self._file is not None:
            self._file.close()

    def _open(self, mode):
        self._file = open(self._path, mode, encoding="utf-8", errors="replace")  # noqa: SIM115
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FairseqDocError(f"{self._path}: another run is at work on these scores") from None

    def take(self, start, sizes):
        """The scores of sentences from ``start`` on, of so many candidates each; None where not all
        are there, and from then on."""
        found = self._kept[start : start + len(sizes)]
        if not self._appending and [len(scores) for scores in found] == sizes:
            self.taken += sum(sizes)
            return found
        if not self._appending:  # leave out what is cut off, or lies behind what is made now
            if self._file is None:
                self._open("x")
            self._file.seek(0)
            self._write([self._head, *map(_as_line, self._kept[:start])])
            self._file.truncate()
            self._appending = True
        return None

    def append(self, scores):
        """Keep the scores of the next sentences."""
        self._write(map(_as_line, scores))

    def _write(self, lines):
        self._file.write("".join(f"{line}\n" for line in lines))
        self._file.flush()


def _as_line(scores):
    return json.dumps(scores.tolist())


def corpus_f1(sentences, chosen):
    """F1 in percent of a candidate a sentence, given by their indices."""
    matched, gold, test = sum(
        sentence.counts[index] for sentence, index in zip(sentences, chosen, strict=True)
    ).tolist()
    return f1(matched, gold, test)


def oracle(sentences):
    """The index of each sentence's candidate of the best F1, the first of several."""
    return [int(np.argmax([f1(*counts) for counts in s.counts.tolist()])) for s in sentences]


def best_candidates(sentences, lm, weight):
    """The index of each sentence's best candidate at a weight."""
    return [s.best(scores, weight) for s, scores in zip(sentences, lm, strict=True)]


def tune(sentences, lm, weights):
    """F1 at every weight, in percent; the best weight is the smallest of those with the highest F1.

    Returns:
        (the best weight, a list of F1).
    """
    found = [corpus_f1(sentences, best_candidates(sentences, lm, weight)) for weight in weights]
    highest = max(found)
    return min(w for w, score in zip(weights, found, strict=True) if score == highest), found


def best_trees(path, sentences, lm, weight, given=None):
    """The best tree of each sentence, as the file has it, or over the words and tags of ``given``."""
    best = best_candidates(sentences, lm, weight)
    for sentence, texts, index in zip(sentences, _texts(path, given), best, strict=True):
        yield texts(sentence.lines[index])


def scored_lists(path, sentences, lm, weight, given=None):
    """The lines of an n-best file of the distinct candidates, best first: the score, ln P_LM, the
    parser's own score and the tree, see :func:`best_trees`, with tabs between."""
    for number, (sentence, texts, of_lm) in enumerate(
        zip(sentences, _texts(path, given), lm, strict=True)
    ):
        scores = sentence.scores(of_lm, weight)
        yield f"{len(scores)} {number}"
        for index in np.argsort(-scores, kind="stable"):
            numbers = (scores[index], of_lm[index], sentence.parser_scores[index])
            text = texts(sentence.lines[index])
            yield "\t".join((*(repr(float(x)) for x in numbers), text))


def _texts(path, given):
    """For each sentence a function from a line of the file to the text of its tree."""
    for number, candidates in enumerate(read_nbest(path)):
        texts = {candidate.line: candidate.text for candidate in candidates}
        if given is None:
            yield texts.__getitem__
        else:
            yield partial(_over, texts, path, given[number])


def _over(texts, path, sentence, line):
    return bracketed(parse_tree(texts[line], f"{path}: line {line}", sentence=sentence))
