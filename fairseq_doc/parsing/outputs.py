"""Converts the output of an encoder-decoder that generates symbols of trees into n-best lists.

Words and tags are taken from the sentence. An output with as many words as the sentence becomes a
tree, in which unmatched brackets are repaired; all other outputs are dropped. A sentence without a
tree gets a flat one.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.preparation.symbols import tree_of
from fairseq_doc.preparation.trees import Tree, bracketed
from fairseq_doc.scoring.generated import GeneratedSentence, Hypothesis

WELL_FORMED, REPAIRED, DROPPED = "well_formed", "repaired", "dropped"
FLAT = "flat"  # sentences without a tree of their own


class CandidateLists(NamedTuple):
    """The trees of outputs, and the number of outputs of each kind."""

    lists: list[list[tuple[float, Tree]]]  # each sentence's candidates, (ln P, tree)
    counts: Counter[str]  # number of outputs of each kind, and of FLAT sentences
    first_counts: Counter[str]  # the same for the first output of each sentence


def candidate_lists(
    outputs: Sequence[GeneratedSentence], sentences: Sequence[Tree], where: str
) -> CandidateLists:
    """The trees of generated ``outputs``; ``sentences`` are trees with the words and tags to use,
    and ``where`` names the file in errors."""
    if len(outputs) != len(sentences):
        raise FairseqDocError(
            f"{where}: expected outputs for {len(sentences):,} sentences; got {len(outputs):,}"
        )
    result = CandidateLists([], Counter(), Counter())
    for number, (output, sentence) in enumerate(zip(outputs, sentences, strict=True)):
        if output.source is None:
            raise FairseqDocError(
                f"{where}: expected fairseq-generate's output with S- lines; got none"
            )
        source = output.source.split()
        if len(source) != len(sentence.words):
            raise FairseqDocError(
                f"{where}: sentence {number}: expected {len(sentence.words)} words, as in its tree; "
                f"got {len(source)}"
            )
        candidates = []
        for place, hypothesis in enumerate(output.hypotheses):
            log_prob = _log_prob(hypothesis, where)
            tree, kind = tree_of_output(hypothesis.words.split(), source, sentence)
            result.counts[kind] += 1
            result.first_counts[kind] += place == 0
            if tree is not None:
                candidates.append((log_prob, tree))
        if not candidates:
            result.counts[FLAT] += 1
            flat = tree_of(["(S", *sentence.words, ")S"], sentence.words, sentence.tags)
            candidates.append((0.0, flat))
        result.lists.append(candidates)
    return result


def _log_prob(hypothesis: Hypothesis, where: str) -> float:
    log2_probs = hypothesis.log2_probs
    if log2_probs is None:
        raise FairseqDocError(
            f"{where}: expected fairseq-generate's output with P- lines; got none"
        )
    expected = len(hypothesis.words.split()) + 1  # and the end of sentence
    finite = sum(map(math.isfinite, log2_probs))
    if len(log2_probs) != expected or finite != expected:
        raise FairseqDocError(
            f"{where}: the P- line of the hypothesis in line {hypothesis.line} is damaged: "
            f"expected {expected} finite numbers; got {finite} of {len(log2_probs)}; generate again"
        )
    return math.log(2) * sum(log2_probs)


def tree_of_output(
    symbols: Sequence[str], source: Sequence[str], sentence: Tree
) -> tuple[Tree | None, str]:
    """The tree of an output for a sentence with the symbols ``source``, and its kind: ``REPAIRED``
    if its brackets did not match (see :func:`repaired`) or its words differed and were replaced by
    those of the sentence; ``DROPPED`` if it has more or fewer words."""
    own = [symbol for symbol in symbols if symbol[0] not in "()"]
    if len(own) != len(source):
        return None, DROPPED
    try:
        tree, kind = tree_of(symbols, sentence.words, sentence.tags), WELL_FORMED
    except FairseqDocError:
        tree, kind = tree_of(repaired(symbols), sentence.words, sentence.tags), REPAIRED
    return tree, kind if own == list(source) else REPAIRED


def repaired(symbols: Sequence[str]) -> list[str]:
    """The symbols with matching brackets.

    A closing bracket closes the innermost open bracket, regardless of its label, and is removed if
    no bracket is open. Brackets still open at the end are closed. Brackets without words are
    removed.
    """
    kept: list[str] = []
    opened: list[int] = []  # positions of open brackets in kept
    for symbol in [*symbols, *[")"] * len(symbols)]:  # enough to close all open ones
        if symbol[0] == "(":
            opened.append(len(kept))
        if symbol[0] != ")":
            kept.append(symbol)
        elif opened:
            place = opened.pop()
            if place == len(kept) - 1:
                kept.pop()
            else:
                kept.append(f"){kept[place][1:]}")
    return kept


def nbest_lines(lists: Iterable[Sequence[tuple[float, Tree]]]) -> Iterator[str]:
    """The lines of an n-best file with these lists of (score, tree)."""
    for number, candidates in enumerate(lists):
        yield f"{len(candidates)} {number}"
        for score, tree in candidates:
            yield f"{score!r}\t{bracketed(tree)}"
