"""Converts the output of an encoder-decoder that generates linearised trees into n-best lists.

Words and tags are taken from the sentence. An output with as many words as the sentence becomes a
tree, in which unmatched brackets are repaired; all other outputs are dropped. A sentence without a
tree gets a flat one.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from fairseq_doc.errors import FairseqDocError, check_count
from fairseq_doc.preparation.trees import Bracket, Tree, TreeBuilder, bracketed
from fairseq_doc.scoring.generated import GeneratedSentence

KINDS = WELL_FORMED, REPAIRED, DROPPED = "well_formed", "repaired", "dropped"
FLAT = "flat_trees"  # sentences without a tree of their own
COUNTS = (FLAT, *(prefix + kind for kind in KINDS for prefix in ("", "first_")))


def candidate_lists(
    outputs: Sequence[GeneratedSentence], sentences: Sequence[Tree], where: str
) -> tuple[list[list[tuple[float, str]]], Counter[str]]:
    """The candidates (ln P, tree as text) of each sentence, with the words and tags of the tree in
    ``sentences``; and ``COUNTS``: flat trees, outputs of each kind, and first outputs of each kind.
    ``where``: the outputs' file, for errors."""
    check_count(where, outputs, "the trees of its sentences", sentences)
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
            flat = _rooted(sentence, ("S", 0, len(sentence.words)))
            candidates.append((0.0, bracketed(flat)))  # the only candidate, so any score
        lists.append(candidates)
    return lists, counts


def tree_of_output(
    symbols: list[str], source: list[str], sentence: Tree
) -> tuple[Tree | None, str]:
    """The tree of an output under a root TOP, for a sentence with the symbols ``source``, and its
    kind: ``DROPPED`` if it has more or fewer words; ``REPAIRED`` if its words differed and were
    replaced by those of the sentence, or if its brackets did not match.

    A closing bracket closes the innermost open bracket, regardless of its label, and is removed if
    no bracket is open. Brackets still open at the end are closed. Brackets without words are
    removed.
    """
    tree, matching = TreeBuilder(), True
    for symbol in symbols:
        if symbol[0] == "(":
            tree.open(symbol[1:])
        elif symbol[0] != ")":
            tree.words.append(symbol)
        elif tree.unclosed:
            label, start, end = tree.close()
            matching = matching and label == symbol[1:] and start < end
        else:
            matching = False
    if len(tree.words) != len(source):
        return None, DROPPED
    well_formed = matching and not tree.unclosed and tree.words == source
    while tree.unclosed:
        tree.close()
    brackets = (bracket for bracket in tree.brackets if bracket[1] < bracket[2])
    return _rooted(sentence, *brackets), WELL_FORMED if well_formed else REPAIRED


def _rooted(sentence: Tree, *brackets: Bracket) -> Tree:
    return replace(sentence, brackets=(("TOP", 0, len(sentence.words)), *brackets))
