"""Attention of Luong et al. (2015), and the decoder's LSTM layers with it, over a whole target at
once or step by step.

Axes: T target time, B sentences, Q queries of each sentence, R rows (hypotheses, equally many of
each sentence), S source time, N LSTM layers, D width.
"""

from itertools import groupby
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fairseq_doc.modules.dropout import dropout_mask
from fairseq_doc.modules.lstm import run_lstm
from fairseq_doc.ops.input_feeding import (
    InputFeedingArguments,
    attend,
    input_feeding,
    input_feeding_reference,
    masked_softmax,
)
from fairseq_doc.ops.matmul import linear, matmul_dtype

SCORES = ("general", "dot", "concat")


class LuongAttention(nn.Module):
    """The attentional vector a = tanh(W_c [h ; context]), context = sum_s p_s m_s,
    p = softmax_s(score(h, m_s)), with

    - dot: score = h . m_s
    - general: score = h^T W_a m_s
    - concat: score = v . tanh(W_a [h ; m_s])

    :meth:`keys` and :meth:`values` depend only on the memory m and are computed once per sentence.
    """

    def __init__(self, width: int, score: str = "general") -> None:
        super().__init__()
        self.score = score
        self.combine = nn.Linear(2 * width, width, bias=False)  # W_c
        if score == "general":
            self.general = nn.Linear(width, width, bias=False)
        elif score == "concat":
            self.concat = nn.Linear(2 * width, width, bias=False)
            self.vector = nn.Parameter(torch.empty(width).uniform_(-0.1, 0.1))

    @property
    def by_inner_products(self) -> bool:
        """Whether a score is the inner product of the query and a key."""
        return self.score != "concat"

    @property
    def query_weight(self) -> Tensor:
        """The columns of W_c that multiply h, (D, D)."""
        return self.combine.weight.chunk(2, dim=1)[0]

    def keys(self, memory: Tensor) -> Tensor:
        """(B, S, D) -> the memory's part of the scores, (B, S, D)."""
        if self.score == "general":
            return self.general(memory)
        if self.score == "concat":
            return F.linear(memory, self.concat.weight.chunk(2, dim=1)[1])
        return memory

    def values(self, memory: Tensor) -> Tensor:
        """(B, S, D) -> the memory's part of a before the tanh, (B, S, D)."""
        return F.linear(memory, self.combine.weight.chunk(2, dim=1)[1])

    def attend(
        self, query: Tensor, keys: Tensor, values: Tensor, padding_mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        """As :func:`fairseq_doc.ops.input_feeding.attend`, with this module's score."""
        if self.by_inner_products:
            return attend(query, keys, values, padding_mask)
        query = F.linear(query, self.concat.weight.chunk(2, dim=1)[0])  # (B, Q, D)
        scores = torch.tanh(query.unsqueeze(2) + keys.unsqueeze(1)) @ self.vector  # (B, Q, S)
        weights = masked_softmax(scores, padding_mask.unsqueeze(1))
        return torch.bmm(weights, values), weights

    def forward(
        self, query: Tensor, keys: Tensor, values: Tensor, padding_mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        """h (B, Q, D), :meth:`keys`, :meth:`values` and a mask (B, S), true at padding -> a
        (B, Q, D) and p (B, Q, S), zero at padding."""
        context, weights = self.attend(query, keys, values, padding_mask)
        return torch.tanh(F.linear(query, self.query_weight) + context), weights


class DecoderState(NamedTuple):
    """What one step passes to the next."""

    attentional: Tensor  # (R, D)
    hidden: Tensor  # (N, R, D)
    cell: Tensor  # (N, R, D)

    def index_select(self, rows: Tensor) -> "DecoderState":
        return DecoderState(*(x.index_select(-2, rows) for x in self))


class StepConstants(NamedTuple):
    """The memory and the weights in the form that a step needs; they are the same at every step."""

    keys: Tensor  # (B, S, D)
    values: Tensor  # (B, S, D)
    padding_mask: Tensor  # (B, S), true at padding
    embedding_weight: Tensor  # (4 D, embed_dim), the columns of layer 1 that multiply e_t
    embedding_bias: Tensor  # (4 D,), of layer 1
    joint_weights: list[Tensor]  # N times (4 D, 2 D); without input feeding []
    biases: list[Tensor]  # of layers 2 to N, each (4 D,)

    def select(self, sentences: list[int]) -> "StepConstants":
        """The memory of ``sentences``, in that order."""
        return StepConstants._make([*(select(x, 0, sentences) for x in self[:3]), *self[3:]])


def select(tensor: Tensor, dim: int, indices: list[int]) -> Tensor:
    """``tensor.index_select``, or the tensor itself if it would be unchanged."""
    if indices == list(range(tensor.size(dim))):
        return tensor
    return tensor.index_select(dim, torch.tensor(indices, device=tensor.device))


class DecoderCache:
    """Kept between decoding steps: the constants of all sentences and the state of all rows."""

    def __init__(self, constants: StepConstants, state: DecoderState) -> None:
        self.state = state
        self._constants = self._selected = constants
        self._sentences: list[int] | None = None  # the last selection

    def constants_of(self, rows: list[int]) -> StepConstants:
        """The constants for ``rows``, the index of each row's sentence. A sentence occurs once if
        the rows of each sentence are side by side and equally many; otherwise once per row."""
        runs = [(sentence, len(list(run))) for sentence, run in groupby(rows)]
        sentences = rows
        if len({length for _, length in runs}) == 1:
            sentences = [sentence for sentence, _ in runs]
        if sentences != self._sentences:
            self._sentences = sentences
            self._selected = self._constants.select(sentences)
        return self._selected


class AttentionalLSTM(nn.Module):
    """N LSTM layers, then attention. With input feeding layer 1 reads [a_{t-1} ; e_t], else e_t."""

    def __init__(
        self,
        embed_dim: int,
        width: int,  # D, of the layers, the memory and the attentional vector a
        layers: int,
        dropout: float = 0.0,  # of each layer's output except the last one's
        score: str = "general",  # one of ``SCORES``
        input_feeding: bool = True,
        precision: torch.dtype = torch.float32,  # of the LSTM layers' products
    ) -> None:
        super().__init__()
        first_width = embed_dim + width if input_feeding else embed_dim
        self.layers = nn.ModuleList(
            nn.LSTM(first_width if n == 0 else width, width) for n in range(layers)
        )
        self.attention = LuongAttention(width, score)
        self.width, self.dropout, self.input_feeding = width, dropout, input_feeding
        self.precision = precision

    def prepare(self, memory: Tensor, padding_mask: Tensor) -> StepConstants:
        """The constants for a memory (B, S, D) and its padding mask (B, S), true at padding."""
        layers = [dict(layer.named_parameters()) for layer in self.layers]
        input_weights: list[Tensor] = [layer["weight_ih_l0"] for layer in layers]
        joint_weights = []
        embedding_weight = input_weights[0]
        if self.input_feeding:
            input_weights[0], embedding_weight = embedding_weight.tensor_split([self.width], dim=1)
            dtype = matmul_dtype(memory, self.precision)
            joint_weights = [
                torch.cat([input_weight, layer["weight_hh_l0"]], dim=1).to(dtype)
                for input_weight, layer in zip(input_weights, layers, strict=True)
            ]
        embedding_bias, *biases = (layer["bias_ih_l0"] + layer["bias_hh_l0"] for layer in layers)
        keys, values = self.attention.keys(memory), self.attention.values(memory)
        return StepConstants(
            keys, values, padding_mask, embedding_weight, embedding_bias, joint_weights, biases
        )

    def forward(
        self, embedded: Tensor, constants: StepConstants, state: DecoderState
    ) -> tuple[list[Tensor], Tensor, Tensor, DecoderState]:
        """Run over the embedded target e, (T, R, embed_dim), in which R is a multiple of B and the
        rows of a sentence are side by side. Returns h^1 .. h^N, each (T, R, D), after dropout
        except h^N; a, (T, R, D), before dropout; the attention weights (T, R, S); and the state
        after the last step."""
        drop = (*embedded.shape[:2], self.width), self.dropout, self.training, embedded
        masks = [dropout_mask(*drop) for _ in self.layers[1:]]
        run = self._run_step_by_step if self.input_feeding else self._run_layer_by_layer
        return run(embedded, constants, state, masks)

    def _run_step_by_step(self, embedded, constants, state, masks):
        *memory, weight, bias, joint_weights, biases = constants
        gates = linear(embedded, weight, bias, self.precision)
        query_weight = self.attention.query_weight
        arguments = InputFeedingArguments._make(
            [gates, *memory, query_weight, *state, joint_weights, biases, masks]
        )
        if self.attention.by_inner_products:
            result = input_feeding(arguments)
        else:
            result = input_feeding_reference(arguments, self.attention.attend)
        hidden = torch.stack([h[-1] for h in result.outputs])
        state = DecoderState(result.attentional[-1], hidden, result.cell)
        pairs = zip(result.outputs, [*masks, None], strict=True)
        outputs = [h if mask is None else h * mask for h, mask in pairs]
        return outputs, result.attentional, result.weights, state

    def _run_layer_by_layer(self, embedded, constants, state, masks):
        layer: Any  # mypy does not know the type of a ModuleList's elements
        x, outputs, final_states = embedded, [], []
        states = state.hidden.split(1), state.cell.split(1)
        for layer, hidden, cell, mask in zip(self.layers, *states, [*masks, None], strict=True):
            first_state = hidden.contiguous(), cell.contiguous()
            x, final_state = run_lstm(layer, x, first_state, self.precision)
            final_states.append(final_state)
            x = x if mask is None else x * mask
            outputs.append(x)
        time, rows = x.shape[:2]
        keys, values, padding_mask, *_ = constants
        # (T, R, D) -> all queries of a sentence side by side, (B, k T, D)
        query = x.transpose(0, 1).reshape(len(keys), -1, self.width)
        attentional, weights = self.attention(query, keys, values, padding_mask)
        attentional = attentional.view(rows, time, self.width).transpose(0, 1)
        weights = weights.view(rows, time, -1).transpose(0, 1)
        hidden, cell = (torch.cat(parts) for parts in zip(*final_states, strict=True))
        return outputs, attentional, weights, DecoderState(attentional[-1], hidden, cell)
