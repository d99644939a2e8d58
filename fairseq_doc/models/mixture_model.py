"""What both models do: their decoders' settings and scores, the loss, the check of what they load."""

from dataclasses import field
from typing import Any

import torch

import fairseq_doc
from fairseq_doc.errors import FairseqDocError
from fairseq_doc.models.state_dict import check_state_dict
from fairseq_doc.modules.mixture import MixtureOutput
from fairseq_doc.ops.matmul import PRECISIONS

NO_LIMIT = 10**9


def check_positive(**settings: int) -> None:
    """Raise ``FairseqDocError`` for a setting below 1."""
    for name, value in settings.items():
        if value < 1:
            raise FairseqDocError(f"--{name.replace('_', '-')} must be at least 1; got {value}")


def component_dim(cfg: Any, default: int, embed_dim: int | None, how_to_untie: str) -> int:
    """d, the width of the component vectors and of the output matrix.

    Args:
        cfg: the model's configuration.
        default: d without ``--component-dim``.
        embed_dim: width of the embedding where it is the output matrix; None where it is not.
        how_to_untie: for the message.

    Raises:
        FairseqDocError: d is below 1, or the matrix is tied and d is not the embedding's width.
    """
    dim = default if cfg.component_dim is None else cfg.component_dim
    check_positive(component_dim=dim)
    if embed_dim is not None and dim != embed_dim:
        raise FairseqDocError(
            "the output matrix is tied to the embedding, so --component-dim must be the embedding's "
            f"width, {embed_dim}; got {dim} ({how_to_untie})"
        )
    return dim


USUAL_PRODUCTS = (
    "output matrix, W_j, a decoder's layers with input feeding, and, in training on a CPU, other LSTM "
    "layers of a million weights"
)


def matmul_precision_field(products: str = USUAL_PRODUCTS) -> Any:
    """The option ``--matmul-precision`` of a model's dataclass, for these products."""
    return field(
        default="float32",
        metadata={
            "help": f"precision of the large matrix products' factors and results: {products}; "
            "softmaxes, states and parameters stay float32. bfloat16 needs a "
            "processor with AVX512_BF16 or AMX, or a GPU; others stay in float32, with a warning"
        },
    )


class MixtureDecoder:
    """Methods of a fairseq decoder whose ``output`` is a
    :class:`fairseq_doc.modules.mixture.MixtureOutput`. It comes first among a decoder's base classes.
    """

    output: MixtureOutput

    def get_normalized_probs(
        self, net_output: tuple, log_probs: bool, sample: dict | None = None
    ) -> torch.Tensor:
        """(B, T, V) probabilities or their logarithms, in float32 or wider."""
        scores = self.output.log_probs(net_output[0])
        return scores if log_probs else scores.exp()

    def max_positions(self) -> int:
        """No limit except the task's."""
        return NO_LIMIT


class MixtureModel:
    """Methods of a fairseq model whose ``decoder`` is a :class:`MixtureDecoder`. It comes first among
    a model's base classes.
    """

    decoder: Any

    @classmethod
    def from_pretrained(cls, *args: Any, **kwargs: Any) -> Any:
        """As fairseq's, with this package's checks of what it reads."""
        fairseq_doc.register()
        parent: Any = super()  # the class after this one, a fairseq model
        return parent.from_pretrained(*args, **kwargs)

    def token_nll(
        self,
        net_output: tuple,
        target: torch.Tensor,
        ignore_index: int,
        reduction: str = "sum",
        gradient_sampling: float = 0.0,
    ) -> torch.Tensor:
        """-log P(target), natural logarithm.

        Args:
            net_output: what the model returned.
            target: (B, T) word indices.
            ignore_index: targets of this value have a loss of zero.
            reduction: see :func:`fairseq_doc.ops.reference.mixture_nll`.
            gradient_sampling: see :func:`fairseq_doc.ops.mixture_nll.mixture_nll`.
        """
        output = self.decoder.output
        return output.nll(net_output[0], target, ignore_index, reduction, gradient_sampling)

    def smoothed_nll(
        self, net_output: tuple, target: torch.Tensor, smoothing: float, ignore_index: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See :meth:`fairseq_doc.modules.mixture.MixtureOutput.smoothed_nll`."""
        return self.decoder.output.smoothed_nll(net_output[0], target, smoothing, ignore_index)

    def set_matmul_precision(self, name: str) -> None:
        """Use another ``--matmul-precision``, ``float32`` or ``bfloat16``, than the model was built
        with."""
        model: Any = self
        for module in model.modules():
            if hasattr(module, "precision"):
                module.precision = PRECISIONS[name]

    def load_state_dict(
        self,
        state_dict: dict[str, torch.Tensor],
        strict: bool = True,
        model_cfg: Any = None,
        args: Any = None,
    ) -> Any:
        """As fairseq's.

        Raises:
            FairseqDocError: parameters of another architecture, size or dictionary.
        """
        model: Any = super()  # the class after this one, a fairseq model
        check_state_dict(model.state_dict(), state_dict)
        return model.load_state_dict(state_dict, strict, model_cfg, args)
