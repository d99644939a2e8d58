"""Common parts of all models: options, presets, scores, the loss, loading."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, make_dataclass
from typing import Any, ClassVar, Optional

from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.models import register_model
from torch import Tensor, nn

import fairseq_doc
from fairseq_doc.errors import FairseqDocError
from fairseq_doc.models.state_dict import check_state_dict
from fairseq_doc.modules.mixture import ACTIVATIONS, MixtureOutput, check_finite
from fairseq_doc.ops.matmul import PRECISIONS
from fairseq_doc.options import option


@dataclass
class MixtureConfig(FairseqDataclass):
    """Options of all models."""

    doc_activation: ChoiceEnum(list(ACTIVATIONS)) = option(  # type: ignore[valid-type]
        "activation of the component vectors, applied to W_j h^n + b_j", "tanh"
    )
    component_dim: Optional[int] = option(
        "width d of the component vectors (default: that of the embedding)", least=1
    )
    doc_weight_bias: bool = option(
        "add a bias to the mixture weights, pi = softmax(W_pi h^N + b_pi) (published: no bias)",
        False,
    )
    grow_from: Optional[str] = option(
        "start from the checkpoint of a trained model with a single component: all components of the "
        "last layer start close to it; those of lower layers start with a small weight and need "
        "--doc-weight-bias"
    )
    grow_noise: Optional[float] = option(
        "size of the noise that --grow-from adds to each W_j, relative to W_j (default: 0.1)",
        least=0,
    )
    grow_lower_weight: Optional[float] = option(
        "initial weight of all components of lower layers together, with --grow-from (default: 0.01)",
        least=0,
        below=1,
    )
    matmul_precision: ChoiceEnum(list(PRECISIONS)) = option(  # type: ignore[valid-type]
        "precision of large matrix products: those with the output matrix and W_j, in the layers "
        "of lstm_melis_lm and of decoders with input feeding and, in training on a CPU, in other "
        "LSTM layers with at least a million weights; the rest stays in float32. bfloat16 needs a "
        "processor with AMX or AMD's AVX512_BF16, or a GPU; others use float32, with a warning",
        "float32",
    )


def component_dim(cfg: Any, default: int, tied: bool, how_to_untie: str) -> int:
    """d: ``--component-dim``, or the default, which is the only choice for a tied output matrix."""
    if cfg.component_dim is None:
        return default
    if tied and cfg.component_dim != default:
        raise FairseqDocError(
            "the output matrix is tied to the embedding, so --component-dim must be the "
            f"embedding's width, {default}; got {cfg.component_dim} ({how_to_untie})"
        )
    return cfg.component_dim


def mixture_output(
    cfg: Any, widths: Sequence[int], components: Sequence[int], weight: nn.Parameter, **more: Any
) -> MixtureOutput:
    """The mixture with the options of :class:`MixtureConfig`; arguments as its constructor's."""
    settings = {"activation": str(cfg.doc_activation), "weight_bias": cfg.doc_weight_bias}
    precision = PRECISIONS[str(cfg.matmul_precision)]
    return MixtureOutput(widths, components, weight, precision=precision, **settings, **more)


def register_presets(model: Any, config: Any, presets: Mapping[str, Mapping[str, Any]]) -> None:
    """Register a subclass of ``model`` for each preset {name: {field: value}}, with its differences
    from ``config``, so that ``--arch NAME`` and ``fairseq-hydra-train`` use the same defaults."""
    known = config.__dataclass_fields__
    for name, differences in presets.items():
        fields: list[Any] = [
            (key, known[key].type, field(default=value, metadata=known[key].metadata))
            for key, value in differences.items()
        ]
        preset_config = make_dataclass(f"{name}_config", fields, bases=(config,))
        preset_model = type(name, (model,), {"__doc__": f"``{name}``."})
        preset_config.__module__ = preset_model.__module__ = model.__module__
        register_model(name, dataclass=preset_config)(preset_model)


class MixtureDecoder:
    """Mixin for a fairseq decoder with a mixture; must be the first base class."""

    output: MixtureOutput
    training: bool

    def get_normalized_probs(
        self, net_output: tuple, log_probs: bool, sample: dict | None = None
    ) -> Tensor:
        """Probabilities or log-probabilities (B, T, V), in float32 or wider. In evaluation, a target
        whose score is not finite raises ``FairseqDocError``; fairseq's scorer would skip it."""
        scores = self.output.log_probs(net_output[0])  # (B, T, V)
        if sample is not None and not self.training:
            check_finite(scores.gather(-1, sample["target"].unsqueeze(-1)))
        return scores if log_probs else scores.exp()


class MixtureModel:
    """Mixin for a fairseq model with a :class:`MixtureDecoder`; must be the first base class."""

    decoder: Any

    # Set by evaluation/hub_interface.py, which imports the models.
    load_pretrained: ClassVar[Callable[..., Any]]

    @classmethod
    def add_args(cls, parser: Any) -> None:
        """Add the options. A flag that a preset turns on stays on if it is also given; fairseq
        would turn it off."""
        model: Any = super()
        model.add_args(parser)
        own = vars(cls)["__dataclass"].__dataclass_fields__
        for action in parser._actions:
            if action.dest in own and action.const is False:
                action.const = True

    @classmethod
    def from_pretrained(
        cls,
        model_name_or_path: str,
        checkpoint_file: str = "model.pt",
        data_name_or_path: str = ".",
        matmul_precision: str | None = None,
    ) -> Any:
        """Load a trained model as in fairseq: a ``PretrainedLanguageModel`` of
        ``evaluation.hub_interface`` or a ``Translator`` of ``evaluation.translation``.
        ``checkpoint_file`` may be an ensemble, ``a.pt:b.pt``. ``data_name_or_path`` is the folder of
        ``fairseq-preprocess``; with a leading dot it is relative to ``model_name_or_path``.
        ``matmul_precision`` is ``float32``, ``bfloat16``, or None for the precision of the
        training."""
        fairseq_doc.register()
        return cls.load_pretrained(
            model_name_or_path, checkpoint_file, data_name_or_path, matmul_precision
        )

    def token_nll(self, net_output: tuple, *arguments: Any, **settings: Any) -> Tensor:
        """-log P(target) in nats; other arguments as in :meth:`MixtureOutput.nll`."""
        return self.decoder.output.nll(net_output[0], *arguments, **settings)

    def load_state_dict(
        self, state_dict: dict[str, Tensor], strict: bool = True, **more: Any
    ) -> Any:
        """Load weights. If ``strict``, a different architecture, size or dictionary is refused with
        ``FairseqDocError``."""
        model: Any = super()  # the class after this one, a fairseq model
        if strict:
            check_state_dict(model.state_dict(), state_dict)
        return model.load_state_dict(state_dict, strict, **more)
