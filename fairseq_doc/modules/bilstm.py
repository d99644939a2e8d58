"""The encoder's recurrence: one LSTM stack per direction.

Axes: S source time, B sentences, N layers, D width.
"""

import torch
from torch import Tensor, nn

from fairseq_doc.modules.dropout import dropout
from fairseq_doc.modules.lstm import run_lstm
from fairseq_doc.ops.matmul import is_on_cpu

# Added to a gate before its sigmoid, so that the gate is exactly zero in every dtype.
GATE_CLOSER = -1e4


class BidirectionalLSTM(nn.Module):
    """N forward and N backward LSTM layers; the memory is the sum of their top outputs.

    Each direction reads the padding first, wherever it was, and then the words in its own order. An
    additional column of the input, 1 at padding, has constant weights that close the input gates
    and so keep the state at zero: a padded batch gives the results of each sentence alone."""

    def __init__(
        self,
        embed_dim: int,
        width: int,
        layers: int,
        dropout: float = 0.0,  # of each layer's output except the last one's
        bidirectional: bool = True,
        mix: bool = False,  # layers 2 to N of both directions read the sum of both directions below
        precision: torch.dtype = torch.float32,  # see ``run_lstm``
    ) -> None:
        super().__init__()
        self.stacks = nn.ModuleList(
            nn.ModuleList(nn.LSTM(embed_dim if n == 0 else width, width) for n in range(layers))
            for _ in range(2 if bidirectional else 1)
        )
        self.dropout, self.mix, self.precision = dropout, mix, precision

    def forward(self, x: Tensor, padding_mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """x is the embedded source, (S, B, embed_dim); ``padding_mask`` (B, S), true at padding.
        Returns the memory (B, S, D), zero at padding, and each layer's final h and c, summed over
        the directions, (N, B, D)."""
        mask = padding_mask.t()  # (S, B)
        # orders of the positions, (S, B), with the padding before the words
        forward_order = mask.long().argsort(dim=0, descending=True, stable=True)
        mask = mask.gather(0, forward_order)
        at_padding = None
        if not is_on_cpu(mask) or mask.any():
            at_padding = mask.unsqueeze(2).to(x.dtype)  # (S, B, 1), 1 at padding
        reversal = _word_reversal(mask)
        inputs = [_reorder(x, forward_order)]
        if len(self.stacks) > 1:
            inputs.append(_reorder(inputs[0], reversal))
        hidden, cell = [], []
        for n, layers in enumerate(zip(*self.stacks, strict=True)):
            if n > 0:
                inputs = self._next_inputs(inputs, reversal)
            pairs = zip(layers, inputs, strict=True)
            results = [_run_layer(*pair, at_padding, self.precision) for pair in pairs]
            inputs = [output for output, _ in results]
            hidden.append(sum(h[0] for _, (h, _) in results))
            cell.append(sum(c[0] for _, (_, c) in results))
        memory = _reorder(_sum_of_directions(inputs, reversal), forward_order.argsort(dim=0))
        return memory.transpose(0, 1), torch.stack(hidden), torch.stack(cell)

    def _next_inputs(self, outputs, reversal):
        if not self.mix:
            return [dropout(output, self.dropout, self.training) for output in outputs]
        total = dropout(_sum_of_directions(outputs, reversal), self.dropout, self.training)
        return [total, _reorder(total, reversal)][: len(outputs)]


def _run_layer(layer, x, at_padding, precision):
    """The output and final state of a layer, with input gates closed where ``at_padding`` is 1."""
    if at_padding is None:
        return run_lstm(layer, x, None, precision)
    weight = layer.weight_ih_l0
    column = weight.new_zeros(len(weight), 1)
    column[: layer.hidden_size] = GATE_CLOSER  # the input gate's rows come first
    widened, x = torch.cat([weight, column], dim=1), torch.cat([x, at_padding], dim=2)
    return run_lstm(layer, x, None, precision, weight_ih_l0=widened)


def _sum_of_directions(outputs, reversal):
    if len(outputs) == 1:
        return outputs[0]
    return outputs[0] + _reorder(outputs[1], reversal)


def _word_reversal(padding_mask):
    """The order (S, B) that reverses the words after the padding; it is its own inverse."""
    positions = torch.arange(len(padding_mask), device=padding_mask.device).unsqueeze(1)  # (S, 1)
    count = padding_mask.sum(0)  # (B,)
    return torch.where(positions < count, positions, len(padding_mask) - 1 + count - positions)


def _reorder(x, order):
    """x[order[s, b], b] for every s and b: (S, B, D)."""
    flat = order * order.size(1) + torch.arange(order.size(1), device=order.device)
    return x.flatten(0, 1).index_select(0, flat.flatten()).view_as(x)
