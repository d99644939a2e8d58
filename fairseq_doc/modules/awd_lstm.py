"""The recurrent layers of AWD-LSTM: state in; every layer's output and the state out."""

from itertools import pairwise

import torch
from torch import nn

from fairseq_doc.modules.dropout import locked_dropout, weight_dropout


class AWDLSTM(nn.Module):
    """N LSTM layers of their own widths with DropConnect on the recurrent weights.

    The layers are plain ``nn.LSTM`` modules and so is the state dict; a dropped matrix takes the
    parameter's place for one call only.

    Args:
        widths: D_0 (the input's), D_1, ..., D_N.
        weight_drop: DropConnect rate on each recurrent matrix, one mask a forward pass.
        hidden_dropout: locked dropout of h^1 .. h^{N-1}.
        output_dropout: locked dropout of h^N.
    """

    def __init__(self, widths, weight_drop=0.0, hidden_dropout=0.0, output_dropout=0.0):
        super().__init__()
        self.layers = nn.ModuleList(nn.LSTM(a, b) for a, b in pairwise(widths))
        self.weight_drop = weight_drop
        last = len(self.layers) - 1
        self.dropouts = [hidden_dropout] * last + [output_dropout]

    def zero_state(self, batch, like):
        """[(h, c)] for each layer, zeros (1, batch, D_n), dtype and device of ``like``."""
        return [
            tuple(like.new_zeros(1, batch, layer.hidden_size) for _ in range(2))
            for layer in self.layers
        ]

    def forward(self, x, state):
        """
        Args:
            x: h^0 after its dropout, (T, B, D_0).
            state: [(h, c)] a layer, each (1, B, D_n).

        Returns:
            outputs: [h^1, ..., h^N] after dropout, each (T, B, D_n).
            undropped: h^N before dropout, (T, B, D_N).
            state: after the last step, as ``state``.
        """
        outputs, new_state = [], []
        for layer, carried, p in zip(self.layers, state, self.dropouts, strict=True):
            undropped, after = self._run(layer, x, carried)  # (T, B, D_n)
            x = locked_dropout(undropped, p, self.training)
            outputs.append(x)
            new_state.append(after)
        return outputs, undropped, new_state

    def _run(self, layer, x, carried):
        if not self.training or self.weight_drop == 0:
            return layer(x, carried)
        weights = {
            name: weight_dropout(weight, self.weight_drop, True)
            if name == "weight_hh_l0"
            else weight
            for name, weight in layer.named_parameters()
        }
        if x.is_cuda:
            weights = _in_one_buffer(weights)
        return torch.func.functional_call(layer, weights, (x, carried))


def _in_one_buffer(weights):
    """The same weights as views of one buffer in cuDNN's order (input, recurrent, biases), which
    it otherwise makes for itself at every call, with a warning."""
    buffer = torch.cat([weight.reshape(-1) for weight in weights.values()])
    parts = buffer.split([weight.numel() for weight in weights.values()])
    return {name: part.view(weights[name].shape) for name, part in zip(weights, parts, strict=True)}
