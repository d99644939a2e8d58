"""The recurrent layers of AWD-LSTM: state in; every layer's output and the state out."""

from itertools import pairwise

from torch import nn

from fairseq_doc.modules.dropout import locked_dropout, weight_dropout
from fairseq_doc.modules.lstm import run_lstm


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
        dropped = weight_dropout(layer.weight_hh_l0, self.weight_drop, True)
        return run_lstm(layer, x, carried, weight_hh_l0=dropped)
