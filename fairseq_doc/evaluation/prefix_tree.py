"""Log-probabilities of many sentences with common beginnings, such as the candidates of an n-best list.

A language model that starts from zeros is in the same state after equal prefixes, so each distinct
prefix is read only once: the LSTM makes a step for every inner node of the sentences' prefix tree, the
output layer computes one row for every edge. All sentences advance together, one token at a time.

Axes: n sentences in sorted order, T tokens of the longest.
"""

from collections.abc import Sequence

import numpy as np
import torch

from fairseq_doc.evaluation.ensemble import Ensemble

PAD = -1  # after the end of a shorter sentence


def score_prefix_tree(ensemble: Ensemble, sentences: Sequence[Sequence[str]]) -> np.ndarray:
    """log P of sentences with their end marks, each from a state of zeros after ``</s>``.

    These are the sums of :func:`fairseq_doc.evaluation.scoring.score_text` up to rounding. Which
    sentences are scored together changes a score by no more than that.

    Args:
        ensemble: the models.
        sentences: n lists of symbols.

    Returns:
        (n,), float64, natural logarithm.

    Raises:
        FairseqDocError: a score that is not finite.
    """
    dictionary = ensemble.dictionary
    encoded = [[*map(dictionary.index, words), dictionary.eos()] for words in sentences]
    if not encoded:
        return np.empty(0)
    order = sorted(range(len(encoded)), key=encoded.__getitem__)  # equal prefixes side by side
    scores = np.empty(len(encoded))
    scores[order] = _score_sorted(ensemble, [encoded[index] for index in order])
    return scores


def _score_sorted(ensemble: Ensemble, encoded: list[list[int]]) -> np.ndarray:
    """:func:`score_prefix_tree` for sorted lists of word indices."""
    lengths = np.array([len(sentence) for sentence in encoded])
    tokens = _padded(encoded)  # (n, T)
    differs = tokens[1:] != tokens[:-1]
    # Whether the prefix of t + 1 tokens differs from that of the sentence before: (n, T)
    new_prefix = np.ones_like(tokens, dtype=bool)
    new_prefix[1:] = np.logical_or.accumulate(differs, axis=1)

    scores = np.zeros(len(encoded))
    node_of = np.zeros(len(encoded), dtype=int)  # the node that each sentence has reached: the root
    # The streams of the last step that go on, and the token that each of them reads next.
    streams, source = np.zeros(1, dtype=int), np.full(1, ensemble.dictionary.eos())
    for t in range(tokens.shape[1]):
        live = np.flatnonzero(lengths > t)
        # One edge for each distinct prefix of t + 1 tokens; its first sentence gives node and token.
        prefix_number = np.cumsum(new_prefix[:, t])[live]
        _, first, edge_of = np.unique(prefix_number, return_index=True, return_inverse=True)
        rows, target = node_of[live[first]], tokens[live[first], t]
        source_tensor, *others = (
            torch.from_numpy(array).to(ensemble.device) for array in (source, streams, rows, target)
        )
        log_probs = ensemble.continuation_log_probs(source_tensor, t, *others)
        scores[live] += log_probs.cpu().numpy()[edge_of]
        # An edge leads to an inner node if any of its sentences has another token.
        goes_on = np.bincount(edge_of, lengths[live] > t + 1) > 0
        streams, source = rows[goes_on], target[goes_on]
        node_of[live] = (np.cumsum(goes_on) - 1)[edge_of]
    return scores


def _padded(encoded: list[list[int]]) -> np.ndarray:
    tokens = np.full((len(encoded), max(map(len, encoded))), PAD)
    for row, sentence in enumerate(encoded):
        tokens[row, : len(sentence)] = sentence
    return tokens
