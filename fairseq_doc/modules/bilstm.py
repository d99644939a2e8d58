"""The encoder's recurrence: an LSTM stack a direction.

Axes: S source time, B sentences, N layers, D width. Inside, every sentence stands at the end of its
row, whatever side its padding came on, in the order in which a direction reads it.
"""

import torch
from torch import nn

from fairseq_doc.modules.dropout import dropout_mask
from fairseq_doc.modules.lstm import run_lstm

# Added to a gate before its sigmoid: exactly zero follows in every dtype.
CLOSED = -1e4


class BidirectionalLSTM(nn.Module):
    """N LSTM layers forward and N backward; the memory is the sum of their top outputs.

    Padding comes before the first word that a direction reads, and a state of zeros passes through
    it unchanged: there the input gates are closed, by one more column of the input and of its
    weights that is no parameter. So all sentences run in one dense batch, to the same result
    as each alone.

    Args:
        embed_dim: width of the input.
        width: D, of every layer.
        layers: N.
        dropout: of each layer's output but the last one's.
        bidirectional: False leaves the forward stack alone.
        mix: the sum of both directions after every layer is the next layer's input in both; else
            the stacks do not mix.
    """

    def __init__(self, embed_dim, width, layers, dropout=0.0, bidirectional=True, mix=False):
        super().__init__()
        self.stacks = nn.ModuleList(
            nn.ModuleList(nn.LSTM(width if n else embed_dim, width) for n in range(layers))
            for _ in range(2 if bidirectional else 1)
        )
        self.dropout, self.mix = dropout, mix

    def forward(self, x, padding):
        """
        Args:
            x: embedded source, (S, B, embed_dim).
            padding: (B, S), true at padding, which may stand on either side.

        Returns:
            memory: (B, S, D) at the places of ``x``, zero at padding.
            hidden: final h of each layer, the directions' sum, (N, B, D).
            cell: final c, likewise.
        """
        padding = padding.t()  # (S, B)
        to_end = _order(padding)
        closed = padding.gather(0, to_end)
        closed = closed.unsqueeze(2).to(x.dtype) if closed.any() else None  # (S, B, 1)
        turn = _turned(padding)
        inputs = [_rows(x, to_end)]
        if len(self.stacks) > 1:
            inputs.append(_rows(inputs[0], turn))
        hidden, cell = [], []
        for n, layers in enumerate(zip(*self.stacks, strict=True)):
            if n:
                inputs = self._next_inputs(inputs, turn)
            inputs, states = zip(*map(self._run, layers, inputs, [closed] * 2), strict=False)
            hidden.append(sum(h[0] for h, _ in states))
            cell.append(sum(c[0] for _, c in states))
        memory = _rows(self._sum(inputs, turn), to_end.argsort(dim=0))
        return memory.transpose(0, 1), torch.stack(hidden), torch.stack(cell)

    @staticmethod
    def _sum(outputs, turn):
        return outputs[0] + _rows(outputs[1], turn) if len(outputs) > 1 else outputs[0]

    def _next_inputs(self, outputs, turn):
        if self.mix:
            total = self._dropped(self._sum(outputs, turn))
            return [total, _rows(total, turn)][: len(outputs)]
        return [self._dropped(output) for output in outputs]

    def _dropped(self, x):
        mask = dropout_mask(x.shape, self.dropout, self.training, x)
        return x if mask is None else x * mask

    @staticmethod
    def _run(layer, x, closed):
        if closed is None:
            return layer(x)
        weight = layer.weight_ih_l0
        column = weight.new_zeros(len(weight), 1)
        column[: layer.hidden_size] = CLOSED  # the input gate's rows come first
        zeros = x.new_zeros(1, x.size(1), layer.hidden_size)
        widened = torch.cat([weight, column], dim=1)
        return run_lstm(layer, torch.cat([x, closed], dim=2), (zeros, zeros), weight_ih_l0=widened)


def _order(padding):
    """Where each place of a row (S, B) comes from once its padding stands first."""
    return padding.long().argsort(dim=0, descending=True, stable=True)


def _turned(padding):
    """Where each place comes from when, after the padding, the words stand in reverse."""
    places = torch.arange(len(padding), device=padding.device).unsqueeze(1)  # (S, 1)
    count = padding.sum(0)  # (B,)
    return torch.where(places < count, places, len(padding) - 1 + count - places)


def _rows(x, order):
    """x[order[s, b], b] for every s and b: (S, B, D)."""
    flat = order * order.size(1) + torch.arange(order.size(1), device=order.device)
    return x.flatten(0, 1).index_select(0, flat.flatten()).view_as(x)
