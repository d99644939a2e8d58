"""Log-probabilities of sequences with common beginnings, such as the candidates of an n-best list.

After equal prefixes a language model is in the same state, so each distinct prefix is read once:
the LSTM makes a step for every inner node of the sequences' prefix tree, the output layer computes
a row for every edge. All sequences advance together, one token at a time.

Axes: n sequences in sorted order, T tokens of the longest.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import torch

from fairseq_doc.evaluation.ensemble import Ensemble
from fairseq_doc.evaluation.scorer import Scorer, scorer
from fairseq_doc.modules.awd_lstm import States

PAD = -1  # after the end of a shorter sequence
MAX_SEQUENCES = 2000  # scored together
_List = TypeVar("_List", bound=Sequence[Any])


def chunks_of(lists: Iterable[_List], at_once: int) -> list[list[_List]]:
    """Group consecutive lists into chunks that are scored together, each of at least ``at_once``
    sequences except perhaps the last. Affects memory and speed, not results."""
    chunks: list[list[_List]] = []
    sequences = at_once
    for one in lists:
        if sequences >= at_once:
            chunks.append([])
            sequences = 0
        chunks[-1].append(one)
        sequences += len(one)
    return chunks


def sequence_log_probs(
    ensemble: Ensemble,
    sequences: Sequence[list[int]],
    before: int,
    states: Sequence[States] | None = None,
    steps: Iterator[Any] | None = None,
) -> list[np.ndarray]:
    """log P of each token of n continuations of one text, float64; equal beginnings are read once.
    The token ``before`` is read first. ``states``: the state of each model before that token, from
    :func:`states_after`; None: zeros. ``steps`` advances by one for each token of the longest
    sequence, to show progress."""
    order = sorted(range(len(sequences)), key=sequences.__getitem__)  # equal prefixes side by side
    rows = [np.empty(0)] * len(sequences)
    if sequences:
        with scorer(ensemble) as one:
            first = _continue_from(ensemble, states)
            ordered = [sequences[index] for index in order]
            table = _scored(one, ordered, before, first, steps or iter(()))
        for index, row in zip(order, table, strict=True):
            rows[index] = row[: len(sequences[index])]
    return rows


def states_after(
    ensemble: Ensemble, tokens: Sequence[int], states: Sequence[States] | None = None
) -> list[States]:
    """The state of each model, with a single stream, after it has read ``tokens`` from ``states``;
    None: from zeros."""
    first = _continue_from(ensemble, states)
    source = torch.tensor([tokens], device=ensemble.device)
    with torch.no_grad():
        for model in ensemble.models:
            model(source, window=first)
    return [model.decoder.evaluation_states[first + 1] for model in ensemble.models]


def _continue_from(ensemble: Ensemble, states: Sequence[States] | None) -> int:
    """Put the states into the models, and return the number of the next window."""
    if states is None:
        return 0
    for model, state in zip(ensemble.models, states, strict=True):
        model.decoder.evaluation_states = {1: state}
    return 1


def _scored(
    one: Scorer, sequences: list[list[int]], before: int, first: int, steps: Iterator[Any]
) -> np.ndarray:
    """log P of the tokens of sorted sequences, (n, T); 0 after a sequence's end."""
    lengths = np.array([len(sequence) for sequence in sequences])
    tokens = np.full((len(sequences), lengths.max()), PAD)
    for row, sequence in enumerate(sequences):
        tokens[row, : len(sequence)] = sequence
    # Whether the prefix of t + 1 tokens differs from that of the sequence before
    new_prefix = np.ones_like(tokens, dtype=bool)  # (n, T)
    new_prefix[1:] = np.logical_or.accumulate(tokens[1:] != tokens[:-1], axis=1)

    table = np.zeros(tokens.shape)
    node_of = np.zeros(len(sequences), dtype=int)  # the node of each sequence, first the root
    # The streams of the last step that go on, and the token that each of them reads next.
    streams, source = np.zeros(1, dtype=int), np.full(1, before)
    for t in range(tokens.shape[1]):
        next(steps, None)
        live = np.flatnonzero(lengths > t)
        # An edge for each distinct prefix of t + 1 tokens; its first sequence has node and token.
        prefix_number = np.cumsum(new_prefix[:, t])[live]
        _, at, edge_of = np.unique(prefix_number, return_index=True, return_inverse=True)
        rows, target = node_of[live[at]], tokens[live[at], t]
        nodes = torch.from_numpy(rows)
        log_probs = one.log_probs(
            torch.from_numpy(source).unsqueeze(1),
            torch.from_numpy(target),
            first + t,
            at=(nodes, torch.zeros_like(nodes)),
            streams=torch.from_numpy(streams) if first + t else None,
        )
        table[live, t] = log_probs[0].numpy()[edge_of]
        # An edge leads to an inner node if any of its sequences has a next token.
        goes_on = np.bincount(edge_of, lengths[live] > t + 1) > 0
        streams, source = rows[goes_on], target[goes_on]
        node_of[live] = (np.cumsum(goes_on) - 1)[edge_of]
    return table
