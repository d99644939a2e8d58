"""Log-probabilities of many sentences that begin alike, such as the candidates of an n-best list.

A language model that starts afresh reads what sentences have in common in the same state, so each
distinct prefix is read once: the LSTM makes a step for every node of the sentences' prefix tree, and
the output a row for every edge. All sentences go on together, a token at a time.
"""

import numpy as np
import torch


def score_prefix_tree(ensemble, sentences):
    """log P of sentences with their end marks, each from a state of zeros after ``</s>``.

    The same as the sums of :func:`fairseq_doc.evaluation.scoring.score_text` but for rounding; which
    sentences come together changes no more than that.

    Args:
        ensemble: see :class:`fairseq_doc.evaluation.ensemble.Ensemble`.
        sentences: n lists of symbols.

    Returns:
        (n,), float64, natural logarithm.

    Raises:
        FairseqDocError: a score that is not finite.
    """
    dictionary, device = ensemble.dictionary, ensemble.device
    encoded = [[*map(dictionary.index, words), dictionary.eos()] for words in sentences]
    if not encoded:
        return np.empty(0)
    order = sorted(range(len(encoded)), key=encoded.__getitem__)  # like prefixes side by side
    lengths = np.array([len(encoded[i]) for i in order])
    tokens = np.full((len(order), lengths.max()), -1)  # (n, T)
    for row, i in enumerate(order):
        tokens[row, : lengths[row]] = encoded[i]
    # Whether a sentence's prefix of t + 1 tokens is another than that of the one before: (n, T)
    new = np.ones_like(tokens, dtype=bool)
    new[1:] = np.logical_or.accumulate(tokens[1:] != tokens[:-1], axis=1)
    scores = np.zeros(len(order))
    node_of = np.zeros(len(order), dtype=int)  # at first nothing was read, by all alike
    streams, source = np.zeros(1, dtype=int), np.full(1, dictionary.eos())
    for t in range(tokens.shape[1]):
        live = np.flatnonzero(lengths > t)
        # Each edge from here: a distinct prefix of t + 1 tokens; its first sentence stands for it.
        _, first, edge_of = np.unique(
            np.cumsum(new[:, t])[live], return_index=True, return_inverse=True
        )
        rows, target = node_of[live[first]], tokens[live[first], t]
        at = [torch.from_numpy(a).to(device) for a in (source, streams, rows, target)]
        log_probs = ensemble.continuation_log_probs(at[0], t, *at[1:])
        scores[live] += log_probs.cpu().numpy()[edge_of]
        goes_on = np.bincount(edge_of, lengths[live] > t + 1) > 0  # any of its sentences
        streams, source = rows[goes_on], target[goes_on]
        node_of[live] = (np.cumsum(goes_on) - 1)[edge_of]
    result = np.empty(len(order))
    result[order] = scores
    return result
