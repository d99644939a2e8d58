"""One LSTM layer, run with other weights than its own for one call."""

import torch
from torch import nn


def run_lstm(
    layer: nn.LSTM,
    x: torch.Tensor,
    state: tuple[torch.Tensor, torch.Tensor],
    **replaced: torch.Tensor,
) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
    """``layer(x, state)`` with the weights in ``replaced`` instead of its own; the input may have
    another width.

    Args:
        layer: an ``nn.LSTM`` of one layer and direction.
        x: (T, B, width).
        state: (h, c), each (1, B, D).
        replaced: weights by their parameters' names, such as ``weight_hh_l0``.

    Returns:
        The output (T, B, D) and the state after it.
    """
    weights = {**dict(layer.named_parameters()), **replaced}
    if x.is_cuda:
        weights = _in_one_buffer(weights)
    output, h, c = torch.lstm(
        x, state, list(weights.values()), True, 1, 0.0, layer.training, False, False
    )
    return output, (h, c)


def _in_one_buffer(weights):
    """The same weights as views of one buffer in cuDNN's order (input, recurrent, biases). Without
    it cuDNN makes such a buffer at every call, with a warning."""
    buffer = torch.cat([weight.reshape(-1) for weight in weights.values()])
    parts = buffer.split([weight.numel() for weight in weights.values()])
    return {name: part.view(weights[name].shape) for name, part in zip(weights, parts, strict=True)}
