"""The output of an encoder-decoder that writes the symbols of trees -> n-best lists of trees.

Words and tags are those of the sentence. An output with as many words as its sentence becomes a
tree; brackets that do not match are repaired. Every other output is dropped. A sentence without any
tree gets a flat one.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.parsing.nbest import Candidate
from fairseq_doc.preparation.symbols import tree_of
from fairseq_doc.preparation.trees import Tree, bracketed
from fairseq_doc.scoring.generated import GeneratedSentence, Hypothesis

WELL_FORMED, REPAIRED, DROPPED = "well-formed", "repaired", "dropped"
FLAT = "flat"  # sentences without any tree of their own


class CandidateLists(NamedTuple):
    """Trees of outputs.

    Attributes:
        lists: for each sentence its candidates, whose ``line`` is 0.
        counts: outputs that were ``WELL_FORMED``, ``REPAIRED`` or ``DROPPED``, and ``FLAT``
            sentences.
        first_counts: the same of each sentence's first output.
    """

    lists: list[list[Candidate]]
    counts: Counter[str]
    first_counts: Counter[str]


def candidate_lists(
    outputs: Sequence[GeneratedSentence], sentences: Sequence[Tree], where: str
) -> CandidateLists:
    """Trees of outputs.

    Args:
        outputs: of :func:`fairseq_doc.scoring.generated.read_generated`.
        sentences: trees with the words and tags to use.
        where: the name of the file of ``outputs``, for errors.

    Raises:
        FairseqDocError: another number of sentences, or of words in one; no S- or P- lines; a
            damaged P- line.
    """
    if len(outputs) != len(sentences):
        raise FairseqDocError(
            f"{where}: expected outputs of {len(sentences):,} sentences; got {len(outputs):,}"
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
                f"{where}: sentence {number}: expected {len(sentence.words)} words, as its tree "
                f"has; got {len(source)}"
            )
        candidates = []
        for place, hypothesis in enumerate(output.hypotheses):
            score = _log_prob(hypothesis, where)
            tree, how = tree_of_output(
                hypothesis.words.split(), source, sentence.words, sentence.tags
            )
            result.counts[how] += 1
            if place == 0:
                result.first_counts[how] += 1
            if tree is not None:
                candidates.append(Candidate(score, bracketed(tree), 0))
        if not candidates:
            result.counts[FLAT] += 1
            flat = flat_tree(sentence.words, sentence.tags)
            candidates.append(Candidate(0.0, bracketed(flat), 0))
        result.lists.append(candidates)
    return result


def _log_prob(hypothesis: Hypothesis, where: str) -> float:
    """ln P of a hypothesis."""
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
    symbols: Sequence[str], source: Sequence[str], words: Sequence[str], tags: Sequence[str]
) -> tuple[Tree | None, str]:
    """The tree of an output over a sentence.

    Args:
        symbols: the output.
        source: the sentence's words as symbols.
        words, tags: the sentence's own.

    Returns:
        (tree, ``WELL_FORMED``); (tree, ``REPAIRED``) where the output has as many words, but its
        brackets do not match, see :func:`repaired`, or its words are others, which the sentence's
        replace; (None, ``DROPPED``) where it has more or fewer words.
    """
    own = [symbol for symbol in symbols if symbol[0] not in "()"]
    if len(own) != len(words):
        return None, DROPPED
    try:
        tree, how = tree_of(symbols, words, tags), WELL_FORMED
    except FairseqDocError:
        tree, how = tree_of(repaired(symbols), words, tags), REPAIRED
    if own != list(source):
        how = REPAIRED
    return tree, how


def repaired(symbols: Iterable[str]) -> list[str]:
    """The symbols with brackets that match.

    A closing bracket closes the innermost open one, whatever its label, and is left out where none
    is open. Brackets that are open at the end are closed there. A bracket without words is left
    out.
    """
    kept: list[str] = []
    opened: list[int] = []  # places of open brackets in kept
    for symbol in symbols:
        if symbol[0] == "(":
            opened.append(len(kept))
            kept.append(symbol)
        elif symbol[0] != ")":
            kept.append(symbol)
        elif opened:
            _close(kept, opened.pop())
    while opened:
        _close(kept, opened.pop())
    return kept


def _close(kept: list[str], place: int) -> None:
    """Close the bracket at a place, or remove it where nothing follows it."""
    if place == len(kept) - 1:
        kept.pop()
    else:
        kept.append(f"){kept[place][1:]}")


def flat_tree(words: Sequence[str], tags: Sequence[str]) -> Tree:
    """One S over all words, for a sentence without a usable output."""
    return Tree(tuple(words), tuple(tags), (("TOP", 0, len(words)), ("S", 0, len(words))))


def nbest_lines(lists: Iterable[Sequence[Candidate]]) -> Iterator[str]:
    """The lines of an n-best file of lists of candidates."""
    for number, candidates in enumerate(lists):
        yield f"{len(candidates)} {number}"
        for candidate in candidates:
            yield f"{candidate.score!r}\t{candidate.text}"
