"""A mixture of softmaxes, over any layers, as the head of any causal language model of transformers.

The backbone is the model without its head, such as ``GPT2Model``. Its hidden states are the layer outputs
h^0 (the embedded words) to h^N (after the final norm) of :class:`fairseq_doc.modules.mixture.MixtureOutput`.
Importing this file registers the model, so ``AutoModelForCausalLM`` loads what ``save_pretrained`` wrote.

Axes: B texts, T time, N blocks, J components, d width of a component's vector, V vocabulary.
"""

import copy
import importlib
import sys
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.modules.mixture import MixtureOutput, near


def hide_broken_torchaudio() -> None:
    """Make transformers ignore a torchaudio that cannot be loaded since it was built for another
    torch. fairseq requires torchaudio, and transformers imports it wherever it is installed; no
    language model needs it."""
    try:
        importlib.import_module("torchaudio")
    except ImportError:
        pass
    except (OSError, RuntimeError):
        sys.modules["torchaudio"] = None  # type: ignore[assignment]


hide_broken_torchaudio()
try:
    from transformers import (
        AutoConfig,
        AutoModel,
        AutoModelForCausalLM,
        GenerationMixin,
        PreTrainedConfig,
        PreTrainedModel,
        initialization,
    )
    from transformers.configuration_utils import SubConfigSpec
    from transformers.modeling_outputs import CausalLMOutputWithPast
    from transformers.modeling_utils import slice_logits_to_keep
    from transformers.utils.generic import can_return_tuple
except ImportError as error:
    raise FairseqDocError(
        f"expected transformers; got none, or one that is too old ({error}): "
        "pip install --upgrade transformers"
    ) from None

DEFAULT_COMPONENTS = 4  # of the last layer


class MixtureHeadConfig(PreTrainedConfig):
    """The backbone's configuration and the mixture's.

    Attributes:
        text_config: the backbone's, of any causal language model.
        components: i_0, ..., i_N, how many components each layer's hidden states give; layer 0 is the
            embedding. None: four of the last layer.
        activation: ``linear`` or ``tanh``, applied to W_j h^n + b_j.
        noise: by how much each W_j of a new model differs from the identity, see
            :func:`fairseq_doc.modules.mixture.near`.
    """

    model_type = "mixture_head"
    sub_configs_defaults = {
        "text_config": SubConfigSpec(config_class=AutoConfig, model_type="gpt2")
    }

    text_config: dict | PreTrainedConfig | None = None
    components: list[int] | None = None
    activation: str = "linear"
    noise: float = 1.0

    def __post_init__(self, **kwargs):
        super().__post_init__(**kwargs)
        self.tie_word_embeddings = self.text_config.tie_word_embeddings
        if self.components is None:
            self.components = [0] * self.text_config.num_hidden_layers + [DEFAULT_COMPONENTS]


class MixtureHeadForCausalLM(PreTrainedModel, GenerationMixin):
    """P = sum_j pi_j softmax(W k_j + b) over the hidden states of a backbone.

    ``logits`` are log P: a softmax of them is P, and sampling at a temperature draws from P^(1/T),
    renormalised. W is the embedding matrix where the backbone's configuration ties them; d is the width of
    every layer. Hidden states below the last are normalised to mean 0 and variance 1, without parameters:
    a residual stream grows from block to block, only the last hidden state has the backbone's final norm,
    and W_j and b_j can scale and shift as that norm's own parameters do.
    """

    config: MixtureHeadConfig
    config_class = MixtureHeadConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_flex_attn = True
    _supports_attention_backend = True
    _skip_keys_device_placement = ["past_key_values"]

    def __init__(
        self,
        config: MixtureHeadConfig,
        model: PreTrainedModel | None = None,
        output: MixtureOutput | None = None,
    ) -> None:
        """
        Args:
            config: of both parts.
            model: the backbone; None: a new one.
            output: the mixture; None: a new one, which shares W with the backbone's embedding where the
                configuration says so.

        Raises:
            FairseqDocError: the numbers of components do not fit the layers.
        """
        super().__init__(config)
        text = config.text_config
        self.model = AutoModel.from_config(text) if model is None else model
        embedding = self.model.get_input_embeddings().weight
        if output is None:
            tied = config.tie_word_embeddings
            weight = embedding if tied else nn.Parameter(torch.empty_like(embedding))
            widths = [text.hidden_size] * (text.num_hidden_layers + 1)
            output = MixtureOutput(widths, config.components, weight, config.activation)
        else:
            for module in output.modules():
                module._is_hf_initialized = True  # post_init leaves it as it is
        self.output = output
        if config.tie_word_embeddings:
            (name,) = [name for name, p in self.model.named_parameters() if p is embedding]
            self._tied_weights_keys = {"output.weight": f"model.{name}"}
        self.post_init()

    @classmethod
    def from_causal_lm(
        cls, causal_lm: PreTrainedModel, n_components: int, noise: float = 0.01
    ) -> "MixtureHeadForCausalLM":
        """A model with the backbone and the head's matrix of a trained one, which it starts close
        to. Its ``n_components`` of the last layer diverge from there in training.

        Args:
            causal_lm: a trained model, which shares its parameters with the result: do not use it
                afterwards.
            n_components: J.
            noise: how far the components differ, see
                :meth:`fairseq_doc.modules.mixture.MixtureOutput.replacing`.

        Raises:
            FairseqDocError: the model's logits are not W h^N + b, for example capped or scaled.
        """
        head, backbone = causal_lm.get_output_embeddings(), causal_lm.base_model
        _check_head(causal_lm, backbone, head)
        text = copy.deepcopy(causal_lm.config)
        text.tie_word_embeddings = head.weight is backbone.get_input_embeddings().weight
        components = [0] * text.num_hidden_layers + [n_components]
        config = MixtureHeadConfig(text_config=text, components=components, activation="linear")
        widths = [text.hidden_size] * len(components)
        bias = getattr(head, "bias", None)
        output = MixtureOutput.replacing(head.weight, bias, widths, components, noise)
        model = cls(config, backbone, output)
        model.generation_config = copy.deepcopy(causal_lm.generation_config)
        return model.train(causal_lm.training)

    def _init_weights(self, module: nn.Module) -> None:
        """The mixture of a new model starts near the softmaxes of W h^n, equally weighted."""
        output, text = self.output, self.config.text_config
        if module is output:
            initialization.zeros_(output.bias)
            if not self.config.tie_word_embeddings:
                std = getattr(text, "initializer_range", 0.02)
                initialization.normal_(output.weight, std=std)
        elif module is output.mixture_weights:
            initialization.zeros_(module.weight)
        elif any(module is projection for projection in output.projections.values()):
            n_components = module.out_features // output.dim
            near_identity = near(torch.eye(output.dim), n_components, self.config.noise)
            initialization.copy_(module.weight, near_identity)
            initialization.zeros_(module.bias)
        else:
            super()._init_weights(module)

    def resize_token_embeddings(
        self,
        new_num_tokens: int | None = None,
        pad_to_multiple_of: int | None = None,
        **kwargs: Any,
    ) -> nn.Embedding:
        """As in transformers, which would not resize an untied W; for a model with one, another
        number of words is refused."""
        own = len(self.get_input_embeddings().weight)
        size = own if new_num_tokens is None else new_num_tokens
        size += -size % (pad_to_multiple_of or 1)
        if size != own and not self.config.tie_word_embeddings:
            raise FairseqDocError(
                "expected a model whose W is its embedding, tie_word_embeddings=True; got one with "
                "a W of its own, for which new words are not implemented"
            )
        return super().resize_token_embeddings(new_num_tokens, pad_to_multiple_of, **kwargs)

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        past_key_values: Any = None,
        inputs_embeds: torch.Tensor | None = None,
        use_cache: bool | None = None,
        labels: torch.Tensor | None = None,
        logits_to_keep: int | torch.Tensor = 0,
        skip_logits: bool | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        output_hidden_states: bool | None = None,
        **kwargs: Any,
    ) -> CausalLMOutputWithPast:
        """
        Args:
            labels: (B, T), as ``input_ids``, which are shifted here; -100 is ignored. The loss never
                needs the (B T, J, V) logits at once.
            logits_to_keep: N: log P of only the last N positions; a tensor: of these positions; 0:
                of all.
            skip_logits: leave ``logits`` out; None: in training with ``labels``.
            num_items_in_batch: what the sum of the losses is divided by; None: the labels that are not
                ignored.
            kwargs: these and the other arguments go to the backbone.

        Returns:
            loss: mean -log P(label), natural logarithm, or None.
            logits: log P, (B, T, V), in float32 or wider, or None.
            past_key_values, hidden_states, attentions: the backbone's.
        """
        outputs = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            past_key_values=past_key_values,
            inputs_embeds=inputs_embeds,
            use_cache=use_cache,
            output_hidden_states=True,
            return_dict=True,
            **kwargs,
        )
        *below, _ = outputs.hidden_states
        used = [
            F.layer_norm(h, h.shape[-1:]) if count else h
            for h, count in zip(below, self.output.components, strict=False)
        ]
        mixture_params, _ = self.output([*used, outputs.last_hidden_state])

        loss = logits = None
        if labels is not None:
            target = F.pad(labels, (0, 1), value=-100)[:, 1:]  # (B, T): the next token
            reduction = "mean" if num_items_in_batch is None else "sum"
            loss = self.output.nll(mixture_params, target, reduction=reduction)
            if num_items_in_batch is not None:
                loss = loss / num_items_in_batch
        if skip_logits is None:
            skip_logits = self.training and labels is not None
        if not skip_logits:
            logits = self.output.log_probs(slice_logits_to_keep(mixture_params, logits_to_keep))
        wanted = (
            self.config.output_hidden_states
            if output_hidden_states is None
            else output_hidden_states
        )
        return CausalLMOutputWithPast(
            loss=loss,
            logits=logits,
            past_key_values=outputs.past_key_values,
            hidden_states=outputs.hidden_states if wanted else None,
            attentions=outputs.attentions,
        )


def _check_head(causal_lm: PreTrainedModel, backbone: PreTrainedModel, head: Any) -> None:
    """Raise ``FairseqDocError`` unless, on a few words, the model's logits are its head's linear
    function of the last hidden state."""
    expected = "expected a causal language model whose logits are W h^N + b"
    if not isinstance(head, nn.Linear) or backbone is causal_lm:
        raise FairseqDocError(f"{expected}; got {type(causal_lm).__name__} without such a head")
    training = causal_lm.training
    causal_lm.eval()
    words = torch.arange(min(4, head.out_features), device=head.weight.device).unsqueeze(0)
    with torch.no_grad():
        linear = head(backbone(words).last_hidden_state)
        logits = causal_lm(words).logits
    causal_lm.train(training)
    if linear.shape != logits.shape or not torch.allclose(
        linear.float(), logits.float(), 1e-3, 1e-3
    ):
        raise FairseqDocError(
            f"{expected}; those of {type(causal_lm).__name__} are another function"
        )


AutoConfig.register(MixtureHeadConfig.model_type, MixtureHeadConfig)
AutoModelForCausalLM.register(MixtureHeadConfig, MixtureHeadForCausalLM)
