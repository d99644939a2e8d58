"""The decoder's LSTM layers and attention, over all steps of a target or one at a time.

Axes: T target time, B sentences, R rows (hypotheses, as many of each sentence), S source time, N LSTM
layers, D width.
"""

from functools import partial
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

from fairseq_doc.modules.dropout import dropout_mask
from fairseq_doc.modules.luong_attention import LuongAttention
from fairseq_doc.ops.input_feeding import input_feeding, input_feeding_reference


class State(NamedTuple):
    """What one step hands to the next."""

    attentional: torch.Tensor  # (R, D)
    hidden: torch.Tensor  # (N, R, D)
    cell: torch.Tensor  # (N, R, D)

    def of_rows(self, order):
        """The rows ``order``."""
        return State(
            self.attentional.index_select(0, order),
            self.hidden.index_select(1, order),
            self.cell.index_select(1, order),
        )


class Prepared(NamedTuple):
    """What is the same at every step."""

    keys: torch.Tensor  # (B, S, D)
    values: torch.Tensor  # (B, S, D)
    blocked: torch.Tensor  # (B, S), true at padding
    embedding_weight: torch.Tensor  # (4 D, embed_dim)
    embedding_bias: torch.Tensor  # (4 D,)
    joint_weights: list  # N times (4 D, 2 D)
    biases: list  # N - 1 times (4 D,)


class Decoding:
    """What a decoder keeps from step to step.

    Args:
        prepared: of all sentences, what holds for all steps.
        state: before the next step, of all rows.
    """

    def __init__(self, prepared, state):
        self.state = state
        self._of_all, self._of_some, self._sentences = prepared, None, None

    def of_rows(self, rows):
        """``prepared`` for the sentences of the rows (R,): once a sentence where its rows stand side
        by side and every sentence has as many, else once a row."""
        sentences, counts = torch.unique_consecutive(rows, return_counts=True)
        if not (counts == counts[0]).all():
            sentences = rows
        if self._sentences is None or not torch.equal(sentences, self._sentences):
            self._sentences, self._of_some = sentences, self._of_all
            if len(sentences) != len(self._of_all.keys) or not (sentences.diff() == 1).all():
                self._of_some = self._of_all._replace(
                    keys=self._of_all.keys.index_select(0, sentences),
                    values=self._of_all.values.index_select(0, sentences),
                    blocked=self._of_all.blocked.index_select(0, sentences),
                )
        return self._of_some


class AttentionalLSTM(nn.Module):
    """N LSTM layers, then attention. With input feeding layer 1 reads [a_{t-1} ; e_t], else e_t.

    Args:
        embed_dim: width of e.
        width: D, of the layers, the memory and the attentional vector a.
        layers: N.
        dropout: of each layer's output but the last one's.
        score: see :class:`fairseq_doc.modules.luong_attention.LuongAttention`.
        input_feeding: whether a_{t-1} is fed.
    """

    def __init__(self, embed_dim, width, layers, dropout=0.0, score="general", input_feeding=True):
        super().__init__()
        first = embed_dim + width * input_feeding
        self.layers = nn.ModuleList(nn.LSTM(width if n else first, width) for n in range(layers))
        self.attention = LuongAttention(width, score)
        self.width, self.dropout, self.input_feeding = width, dropout, input_feeding

    def prepare(self, memory, blocked):
        """
        Args:
            memory: (B, S, D).
            blocked: (B, S), true at padding.

        Returns:
            :class:`Prepared`.
        """
        fed = self.width * self.input_feeding
        fed_weight, embedding_weight = self.layers[0].weight_ih_l0.tensor_split([fed], dim=1)
        joints = []
        if self.input_feeding:
            from_below = [fed_weight] + [layer.weight_ih_l0 for layer in self.layers[1:]]
            pairs = zip(from_below, self.layers, strict=True)
            joints = [torch.cat([weight, layer.weight_hh_l0], dim=1) for weight, layer in pairs]
        first, *biases = (layer.bias_ih_l0 + layer.bias_hh_l0 for layer in self.layers)
        return Prepared(
            self.attention.keys(memory),
            self.attention.values(memory),
            blocked,
            embedding_weight,
            first,
            joints,
            biases,
        )

    def start(self, hidden, cell):
        """The state before the first step, from the encoder's final h and c, each (N, R, D)."""
        return State(torch.zeros_like(hidden[0]), hidden, cell)

    def forward(self, embedded, prepared, state):
        """
        Args:
            embedded: e, (T, R, embed_dim).
            prepared: of :meth:`prepare`; R is a multiple of its B, the rows of a sentence side by
                side.
            state: :class:`State`.

        Returns:
            outputs: h^1 .. h^N, each (T, R, D), all but h^N after dropout.
            attentional: a, (T, R, D), before dropout.
            weights: (T, R, S).
            state: after the last step.
        """
        shape = (*embedded.shape[:2], self.width)
        masks = [
            dropout_mask(shape, self.dropout, self.training, embedded) for _ in self.layers[1:]
        ]
        run = self._step_by_step if self.input_feeding else self._layer_by_layer
        return run(embedded, prepared, state, masks)

    def _step_by_step(self, embedded, prepared, state, masks):
        run = input_feeding
        if not self.attention.by_inner_products:
            run = partial(input_feeding_reference, attend=self.attention.attend)
        outputs, attentional, weights, cell = run(
            F.linear(embedded, prepared.embedding_weight, prepared.embedding_bias),
            prepared.keys,
            prepared.values,
            prepared.blocked,
            self.attention.query_weight,
            *state,
            prepared.joint_weights,
            prepared.biases,
            masks,
        )
        state = State(attentional[-1], torch.stack([h[-1] for h in outputs]), cell)
        pairs = zip(outputs, [*masks, None], strict=True)
        outputs = [h if mask is None else h * mask for h, mask in pairs]
        return outputs, attentional, weights, state

    def _layer_by_layer(self, embedded, prepared, state, masks):
        x, outputs, states = embedded, [], []
        start = zip(state.hidden.split(1), state.cell.split(1), strict=True)
        for layer, before, mask in zip(self.layers, start, [*masks, None], strict=True):
            x, after = layer(x, tuple(part.contiguous() for part in before))
            states.append(after)
            x = x if mask is None else x * mask
            outputs.append(x)
        time, rows = x.shape[:2]
        sentences = len(prepared.keys)
        # (T, R, D) -> all queries of a sentence side by side, (B, k T, D)
        query = x.transpose(0, 1).reshape(sentences, -1, self.width)
        attentional, weights = self.attention(
            query, prepared.keys, prepared.values, prepared.blocked
        )
        attentional = attentional.view(rows, time, self.width).transpose(0, 1)
        weights = weights.view(rows, time, -1).transpose(0, 1)
        hidden, cell = (torch.cat(parts) for parts in zip(*states, strict=True))
        return outputs, attentional, weights, State(attentional[-1], hidden, cell)
