"""A mixture that starts as a trained model with a single component (``--grow-from``)."""

from typing import Any

import torch
from fairseq import checkpoint_utils
from torch import Tensor

import fairseq_doc
from fairseq_doc.errors import FairseqDocError
from fairseq_doc.models.state_dict import check_state_dict
from fairseq_doc.modules.mixture import ACTIVATIONS, MixtureOutput
from fairseq_doc.options import check_needs

_OUTPUT = "decoder.output."
_COMPONENTS = (f"{_OUTPUT}projections.", f"{_OUTPUT}mixture_weights.")


def grow(model: Any, cfg: Any) -> Any:
    """Return ``model``. With ``cfg.grow_from`` it gets the weights of that checkpoint, and
    components that start from its single one, see :meth:`MixtureOutput.grow_from`.

    Raises:
        FairseqDocError: the checkpoint has several components, or one of a lower layer; its other
            tensors, its dictionary or its activation differ from the model's; or options are given
            that would have no effect.
    """
    noise, lower_weight = cfg.grow_noise, cfg.grow_lower_weight
    is_given = {"--grow-from": cfg.grow_from is not None}
    check_needs("--grow-noise", is_given, noise is not None)
    check_needs("--grow-lower-weight", is_given, lower_weight is not None)
    if cfg.grow_from is None:
        return model
    for name in ("encoder_embed_path", "decoder_embed_path"):
        if getattr(cfg, name, None) is not None:
            option = f"--{name.replace('_', '-')}"
            raise FairseqDocError(f"--grow-from cannot be combined with {option}; leave one out")
    fairseq_doc.register()
    state = checkpoint_utils.load_checkpoint_to_cpu(cfg.grow_from)
    output, trained = model.decoder.output, state["model"]
    own = model.state_dict()
    check_state_dict(_without_components(own), _without_components(trained))
    weight, bias = _single_component(cfg.grow_from, trained, output)
    if weight is None or bias is None:  # a plain softmax of h^N
        weight, bias = torch.eye(output.dim), torch.zeros(output.dim)
        activation, found = "linear", "no W_1"
    else:
        activation = str(state["cfg"]["model"].doc_activation)
        found = f"the activation {activation}"
    if output.activation is not ACTIVATIONS[activation]:
        raise FairseqDocError(
            f"{cfg.grow_from}: its component has {found}: give --doc-activation {activation}"
        )
    model.load_state_dict({**own, **_without_components(trained)})
    lower = {f"components of lower layers; got {cfg.doc_components}": any(output.components[:-1])}
    check_needs("--grow-lower-weight", lower, lower_weight is not None)
    noise = 0.1 if noise is None else noise
    output.grow_from(weight, bias, noise, 0.01 if lower_weight is None else lower_weight)
    return model


def _single_component(
    path: str, trained: dict[str, Tensor], output: MixtureOutput
) -> tuple[Tensor | None, Tensor | None]:
    """W_1 (d, D_N) and b_1 (d,); for a plain softmax both are None."""
    prefix = f"{_COMPONENTS[0]}{len(output.components) - 1}."
    weight, bias = (trained.get(prefix + name) for name in ("weight", "bias"))
    found = [name for name in trained if name.startswith(_COMPONENTS)]
    if len(found) != (0 if weight is None else 2):
        raise FairseqDocError(
            f"{path}: --grow-from expects a model with a single component, of its last layer; got "
            f"{', '.join(found)}"
        )
    return weight, bias


def _without_components(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in tensors.items() if not name.startswith(_COMPONENTS)}
