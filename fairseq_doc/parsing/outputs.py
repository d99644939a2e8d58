"""fairseq-generate's output of an encoder-decoder that writes trees' symbols -> n-best lists of trees."""

import math
import re
from collections import Counter, defaultdict
from dataclasses import dataclass

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.files import text_lines
from fairseq_doc.parsing.nbest import Candidate
from fairseq_doc.preparation.symbols import tree_of
from fairseq_doc.preparation.trees import Tree, bracketed

WELL_FORMED, REPAIRED, DROPPED, FALLBACK = "well-formed", "repaired", "dropped", "fallback"
_LINE = re.compile(r"([SHP])-(\d+)\t(.*)")


@dataclass(frozen=True)
class Output:
    """What fairseq-generate wrote of a sentence.

    Attributes:
        source: its words as symbols.
        hypotheses: [(ln P, symbols)], the best first.
    """

    source: list
    hypotheses: list


def read_outputs(path):
    """Read fairseq-generate's output, ``--nbest`` or not, with its S, H and P lines.

    Returns:
        A list of :class:`Output` in the order of the sentences' ids.

    Raises:
        FairseqDocError: no such lines, a sentence that is missing or there twice, a damaged line.
    """
    sources, hypotheses, told = {}, defaultdict(list), None
    for number, line in enumerate(text_lines(path), start=1):
        match = _LINE.fullmatch(line)
        if match is None:
            continue
        kind, sentence, rest = match[1], int(match[2]), match[3]
        if kind == "S" and sentence in sources:
            raise FairseqDocError(
                f"{path}: line {number}: sentence {sentence} is there twice; expected the output of one "
                "run"
            )
        if kind == "S":
            sources[sentence] = rest.split()
        elif kind == "H" and told is None:
            told = (sentence, rest.partition("\t")[2].split())
        else:  # log P of the hypothesis just told, base 2, a number for each symbol and the end mark
            scores = _numbers(rest) if kind == "P" else []
            if told is None or told[0] != sentence or len(scores) != len(told[1]) + 1:
                raise FairseqDocError(f"{path}: line {number} is damaged; generate again")
            hypotheses[sentence].append((math.log(2) * sum(scores), told[1]))
            told = None
    ids = range(max([-1, *sources, *hypotheses]) + 1)
    missing = [i for i in ids if i not in sources or i not in hypotheses]
    if told is not None:
        raise FairseqDocError(f"{path} is cut off: it lacks the last P- line; generate again")
    if missing or not ids:
        raise FairseqDocError(
            f"{path}: expected fairseq-generate's output, with S-, H- and P- lines of every sentence; got "
            + (f"{len(missing):,} sentences without, first {missing[0]}" if ids else "none")
        )
    return [Output(sources[i], hypotheses[i]) for i in ids]


def _numbers(text):
    """The finite numbers of a text; none where any is something else."""
    try:
        numbers = [float(part) for part in text.split()]
    except ValueError:
        return []
    return numbers if all(map(math.isfinite, numbers)) else []


def repaired(symbols):
    """The symbols with brackets that match: a closing bracket closes the innermost open one, whatever
    its label, and is left out where none is open; what is open at the end is closed there; a bracket
    without words is left out."""
    kept, open_ = [], []  # open_: places of opening brackets in kept
    for symbol in symbols:
        if symbol[0] == "(":
            open_.append(len(kept))
            kept.append(symbol)
        elif symbol[0] != ")":
            kept.append(symbol)
        elif open_:
            _close(kept, open_.pop())
    while open_:
        _close(kept, open_.pop())
    return kept


def _close(kept, place):
    if place == len(kept) - 1:  # nothing came since
        kept.pop()
    else:
        kept.append(f"){kept[place][1:]}")


def tree_of_output(symbols, source, words, tags):
    """The tree of an output over a sentence.

    Args:
        symbols: the output.
        source: the sentence's words as symbols.
        words, tags: the sentence.

    Returns:
        (tree, ``well-formed``); (tree, ``repaired``) where as many words came but brackets were amiss,
        see :func:`repaired`, or other words, which the sentence's own replace; (None, ``dropped``) where
        more or fewer words came.
    """
    own = [symbol for symbol in symbols if symbol[0] not in "()"]
    if len(own) != len(words):
        return None, DROPPED
    try:
        tree, how = tree_of(symbols, words, tags), WELL_FORMED
    except FairseqDocError:
        tree, how = tree_of(repaired(symbols), words, tags), REPAIRED
    return tree, how if own == source else REPAIRED


def flat_tree(words, tags):
    """One S over everything: what stands for a sentence without a usable output."""
    return Tree(tuple(words), tuple(tags), (("TOP", 0, len(words)), ("S", 0, len(words))))


def candidate_lists(outputs, sentences, where):
    """Trees of outputs.

    Args:
        outputs: of :func:`read_outputs`.
        sentences: trees, of which the words and tags count.
        where: the name of the file of ``outputs``, for errors.

    Returns:
        (a list of lists of :class:`fairseq_doc.parsing.nbest.Candidate`, their ``line`` 0; a Counter of
        outputs that were well-formed, repaired or dropped, and of sentences with nothing but a flat tree
        (fallback); a Counter of the sentences' first outputs).

    Raises:
        FairseqDocError: another number of sentences, or of words in one.
    """
    if len(outputs) != len(sentences):
        raise FairseqDocError(
            f"{where}: expected outputs of {len(sentences):,} sentences; got {len(outputs):,}"
        )
    lists, kinds, firsts = [], Counter(), Counter()
    for number, (output, sentence) in enumerate(zip(outputs, sentences, strict=True)):
        if len(output.source) != len(sentence.words):
            raise FairseqDocError(
                f"{where}: sentence {number}: expected {len(sentence.words)} words, as its tree has; got "
                f"{len(output.source)}"
            )
        candidates = []
        for place, (score, symbols) in enumerate(output.hypotheses):
            tree, how = tree_of_output(symbols, output.source, sentence.words, sentence.tags)
            kinds[how] += 1
            firsts[how] += place == 0
            if tree is not None:
                candidates.append(Candidate(score, bracketed(tree), 0))
        if not candidates:
            kinds[FALLBACK] += 1
            flat = bracketed(flat_tree(sentence.words, sentence.tags))
            candidates.append(Candidate(0.0, flat, 0))
        lists.append(candidates)
    return lists, kinds, firsts


def nbest_lines(lists):
    """The lines of an n-best file of lists of candidates."""
    for number, candidates in enumerate(lists):
        yield f"{len(candidates)} {number}"
        yield from (f"{candidate.score!r}\t{candidate.text}" for candidate in candidates)
