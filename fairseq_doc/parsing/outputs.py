"""Converts the output of an encoder-decoder that generates symbols of trees into n-best lists.

Words and tags are taken from the sentence. An output with as many words as the sentence becomes a
tree, in which unmatched brackets are repaired; all other outputs are dropped. A sentence without a
tree gets a flat one.
"""

import math
from collections import Counter
from collections.abc import Sequence

from fairseq_doc.errors import FairseqDocError, check_count
from fairseq_doc.preparation.symbols import tree_of
from fairseq_doc.preparation.trees import Tree, bracketed
from fairseq_doc.scoring.generated import GeneratedSentence

KINDS = WELL_FORMED, REPAIRED, DROPPED = "well_formed", "repaired", "dropped"
FLAT = "flat_trees"  # sentences without a tree of their own
COUNTS = (FLAT, *(prefix + kind for kind in KINDS for prefix in ("", "first_")))


def candidate_lists(
    outputs: Sequence[GeneratedSentence], sentences: Sequence[Tree], where: str
) -> tuple[list[list[tuple[float, str]]], Counter[str]]:
    """The candidates (ln P, tree as text) of each sentence, whose tree has the words and tags to use;
    and ``COUNTS``: flat trees, outputs of each kind, and first outputs of each kind. ``where``: the
    outputs' file, for errors."""
    check_count(where, outputs, "its trees", sentences)
    lists, counts = [], Counter(dict.fromkeys(COUNTS, 0))
    for number, (output, sentence) in enumerate(zip(outputs, sentences, strict=True)):
        source = (output.source or "").split()
        if len(source) != len(sentence.words):
            raise FairseqDocError(
                f"{where}: sentence {number}: expected an S- line of {len(sentence.words)} words, as "
                f"in its tree; got {len(source)}"
            )
        candidates = []
        rows = zip(output.words, output.log2_probs, output.log_probs, strict=True)
        for place, (words, log2_probs, log_prob) in enumerate(rows):
            symbols = words.split()
            if len(log2_probs) != len(symbols) + 1 or log_prob == -math.inf:
                raise FairseqDocError(
                    f"{where}: sentence {number}: expected P- lines with a finite number for each "
                    "symbol and the end of sentence; generate again"
                )
            tree, kind = tree_of_output(symbols, source, sentence)
            counts[kind] += 1
            counts[f"first_{kind}"] += place == 0
            if tree is not None:
                candidates.append((log_prob, bracketed(tree)))
        if not candidates:
            counts[FLAT] += 1
            flat = tree_of(["(S", *sentence.words, ")S"], sentence.words, sentence.tags)
            candidates.append((0.0, bracketed(flat)))
        lists.append(candidates)
    return lists, counts


def tree_of_output(
    symbols: list[str], source: list[str], sentence: Tree
) -> tuple[Tree | None, str]:
    """The tree of an output for a sentence with the symbols ``source``, and its kind: ``REPAIRED``
    if its brackets did not match (see :func:`repaired`) or its words differed and were replaced by
    those of the sentence; ``DROPPED`` if it has more or fewer words."""
    own = [symbol for symbol in symbols if symbol[0] not in "()"]
    if len(own) != len(source):
        return None, DROPPED
    matching = repaired(symbols)
    tree = tree_of(matching, sentence.words, sentence.tags)
    return tree, WELL_FORMED if (matching, own) == (symbols, source) else REPAIRED


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
