"""``lstm_doc_lm``: the AWD-LSTM language model with a DOC output, and its presets.

Axes: B streams, T time, D_n width of layer n (D_0 the embedding), J components, V vocabulary.
"""

from dataclasses import dataclass, field
from typing import Any, Optional

import torch
from fairseq.data import Dictionary
from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.models import FairseqDecoder, FairseqLanguageModel
from torch import nn

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.models.mixture_model import (
    MixtureDecoder,
    MixtureModel,
    check_positive,
    component_dim,
    matmul_precision_field,
)
from fairseq_doc.models.presets import register_presets
from fairseq_doc.models.state_dict import CHECKSUM, dictionary_checksum
from fairseq_doc.modules.awd_lstm import AWDLSTM, States
from fairseq_doc.modules.dropout import check_rates, embedded_dropout, locked_dropout
from fairseq_doc.modules.mixture import (
    ACTIVATIONS,
    MixtureOutput,
    check_finite,
    parse_components,
)
from fairseq_doc.ops.matmul import PRECISIONS

EMBEDDING_RANGE = 0.1


def parse_widths(text: str) -> list[int]:
    """``"960,960,620"`` -> [960, 960, 620]; ``FairseqDocError`` unless positive integers."""
    try:
        widths = [int(part) for part in str(text).split(",")]
    except ValueError:
        widths = [0]
    if min(widths) < 1:
        raise FairseqDocError(
            f"--layer-dims: expected positive widths, one a layer, such as 960,960,620; got {text!r}"
        )
    return widths


class LSTMDocDecoder(MixtureDecoder, FairseqDecoder):
    """Embedding, AWD-LSTM and mixture; carries the LSTM's state from one window to the next.

    The decoder keeps the carried state because ``fairseq-eval-lm`` calls only the model. Training and
    evaluation have a state each; window 0 starts from zeros.
    """

    def __init__(self, cfg: Any, dictionary: Dictionary) -> None:
        super().__init__(dictionary)
        widths = [cfg.decoder_embed_dim] + parse_widths(cfg.layer_dims)
        components = parse_components(cfg.doc_components, len(widths) - 1)
        check_rates(
            embed_dropout=cfg.embed_dropout,
            input_dropout=cfg.input_dropout,
            hidden_dropout=cfg.hidden_dropout,
            output_dropout=cfg.output_dropout,
            component_dropout=cfg.component_dropout,
            weight_dropout=cfg.weight_dropout,
        )
        check_positive(decoder_embed_dim=cfg.decoder_embed_dim)
        dim = component_dim(
            cfg, cfg.decoder_embed_dim, not cfg.untie_output, "or give --untie-output"
        )
        self.embed_dropout, self.input_dropout = cfg.embed_dropout, cfg.input_dropout

        self.embedding = nn.Parameter(torch.empty(len(dictionary), widths[0]))
        nn.init.uniform_(self.embedding, -EMBEDDING_RANGE, EMBEDDING_RANGE)
        output_matrix = self.embedding
        if cfg.untie_output:
            output_matrix = nn.Parameter(torch.empty(len(dictionary), dim))
            nn.init.uniform_(output_matrix, -EMBEDDING_RANGE, EMBEDDING_RANGE)
        precision = PRECISIONS[str(cfg.matmul_precision)]
        self.lstm = AWDLSTM(
            widths, cfg.weight_dropout, cfg.hidden_dropout, cfg.output_dropout, precision
        )
        self.output = MixtureOutput(
            widths,
            components,
            output_matrix,
            str(cfg.doc_activation),
            cfg.component_dropout,
            project=not cfg.plain_output,
            precision=precision,
        )
        self.register_buffer(CHECKSUM, torch.tensor(dictionary_checksum(dictionary)))
        # Of training (True) and of evaluation (False): the state before each window of this update, and
        # before the next window, which is the newest.
        self._states: dict[bool, dict[int, States]] = {True: {}, False: {}}

    def forward(
        self, src_tokens: torch.Tensor, window: int | None = None, src_lengths: Any = None
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """
        Args:
            src_tokens: (B, T) word indices, without padding.
            window: the window's number in its epoch. 0 starts from a state of zeros; k > 0
                continues from the state after window k - 1, the first time and again. None: zeros, and
                nothing is carried.
            src_lengths: unused; fairseq passes it.

        Returns:
            mixture_params: (B, T, J d + J + 1), see :class:`MixtureOutput`.
            extra: ``log_weights`` (B, T, J); ``dropped`` and ``undropped``, h^N after and before
                its dropout, (T, B, D_N).
        """
        tokens = src_tokens.t()  # (T, B)
        embedded = embedded_dropout(self.embedding, tokens, self.embed_dropout, self.training)
        x = locked_dropout(embedded, self.input_dropout, self.training)  # (T, B, D_0)
        before = self._state_before(window, x)
        outputs, undropped, after = self.lstm(x, before)
        if window is not None:
            self._keep(window, before, after)
        by_stream = [h.transpose(0, 1) for h in [x] + outputs]  # each (B, T, D_n)
        mixture_params, log_weights = self.output(by_stream)
        return mixture_params, {
            "log_weights": log_weights,
            "dropped": outputs[-1],
            "undropped": undropped,
        }

    def _state_before(self, window: int | None, x: torch.Tensor) -> States:
        batch = x.size(1)
        if not window:  # None or 0
            return self.lstm.zero_state(batch, x)
        states = self._states[self.training]
        before = states.get(window)
        if before is None and states and self.training:
            # The first window after a resume, or after one that did not fit into memory.
            before = states[max(states)]
        if before is None or before[0][0].size(1) != batch:
            raise FairseqDocError(
                f"window {window} needs the state of {batch} columns after window {window - 1}, and "
                "there is none: resume from a checkpoint of the same run, or start at epoch 1 again "
                "with its weights by --reset-dataloader"
            )
        return before

    def _keep(self, window: int, before: States, after: States) -> None:
        """Keep the states around a window. fairseq may repeat it: with ``--amp`` an update whose
        gradients overflow, in evaluation a window that did not fit into memory."""
        states = self._states[self.training]
        if window == 0 or not self.training:
            states.clear()
        states[window] = before
        states[window + 1] = [(h.detach(), c.detach()) for h, c in after]

    def begin_update(self, window: int) -> None:
        """Drop the training states before windows earlier than ``window``, the update's first."""
        states = self._states[True]
        for earlier in [k for k in states if k < window and k != max(states)]:
            del states[earlier]

    def carried_state(self) -> torch.Tensor | None:
        """The training state after the last window, (B, 2 D_1 + ... + 2 D_N): h and c of each
        layer side by side; or None."""
        states = self._states[True]
        if not states:
            return None
        return torch.cat([part[0] for layer in states[max(states)] for part in layer], dim=1)

    def set_carried_state(self, state: torch.Tensor) -> None:
        """The opposite of :meth:`carried_state`; moves the state to this module's device."""
        state = state.to(self.embedding.device, self.embedding.dtype)
        widths = [width for width in self.lstm.widths for _ in range(2)]
        parts = [part.unsqueeze(0).contiguous() for part in state.split(widths, dim=1)]
        self._states[True] = {0: list(zip(parts[::2], parts[1::2], strict=True))}

    def reorder_evaluation_state(self, rows: torch.Tensor) -> None:
        """Let the next window of evaluation continue from these streams of the last one.

        Args:
            rows: (B',) indices of its B streams, in any order, repeats allowed.
        """
        states = self._states[False]
        newest = max(states)
        states[newest] = [
            (h.index_select(1, rows), c.index_select(1, rows)) for h, c in states[newest]
        ]  # each (1, B', D_n)

    def get_normalized_probs(
        self, net_output: tuple, log_probs: bool, sample: dict | None = None
    ) -> torch.Tensor:
        """(B, T, V) probabilities or their logarithms, in float32 or wider.

        Raises:
            FairseqDocError: in evaluation, a target of ``sample`` whose score is not finite;
                ``fairseq-eval-lm`` would leave it out of the perplexity.
        """
        scores = super().get_normalized_probs(net_output, log_probs=True)  # (B, T, V)
        if sample is not None and not self.training:
            check_finite(scores.gather(-1, sample["target"].unsqueeze(-1)))
        return scores if log_probs else scores.exp()


@dataclass
class LSTMDocLanguageModelConfig(FairseqDataclass):
    """The defaults are the paper's Penn Treebank model (Table 2; i_3 = 15, i_2 = 5)."""

    decoder_embed_dim: int = field(default=280, metadata={"help": "embedding width D_0"})
    layer_dims: str = field(
        default="960,960,620", metadata={"help": "widths of the LSTM layers, D_1,...,D_N"}
    )
    doc_components: str = field(
        default="0,0,5,15",
        metadata={"help": "components from each layer, i_0,...,i_N, layer 0 the embedding"},
    )
    doc_activation: ChoiceEnum(list(ACTIVATIONS)) = field(  # type: ignore[valid-type]
        default="tanh",
        metadata={"help": "activation of the component vectors, applied to W_j h^n + b_j"},
    )
    plain_output: bool = field(
        default=False,
        metadata={
            "help": "one softmax straight from h^N (plain AWD-LSTM): no W_j, activation or dropout of "
            "k; D_N = embedding width"
        },
    )
    untie_output: bool = field(
        default=False, metadata={"help": "give the output a matrix of its own, not the embedding"}
    )
    component_dim: Optional[int] = field(
        default=None,
        metadata={"help": "width d of the component vectors (default: the embedding's)"},
    )
    embed_dropout: float = field(default=0.1, metadata={"help": "dropout of whole words, x_t"})
    input_dropout: float = field(default=0.4, metadata={"help": "locked dropout of h^0"})
    hidden_dropout: float = field(
        default=0.225, metadata={"help": "locked dropout of h^1 .. h^(N-1)"}
    )
    output_dropout: float = field(default=0.4, metadata={"help": "locked dropout of h^N"})
    component_dropout: float = field(
        default=0.6, metadata={"help": "locked dropout of the component vectors k_j"}
    )
    weight_dropout: float = field(
        default=0.5, metadata={"help": "DropConnect on the recurrent matrices"}
    )
    matmul_precision: ChoiceEnum(list(PRECISIONS)) = (  # type: ignore[valid-type]
        matmul_precision_field()
    )


class LSTMDocLanguageModel(MixtureModel, FairseqLanguageModel):
    """AWD-LSTM-DOC (Takase et al., 2018, section 5)."""

    @classmethod
    def build_model(cls, cfg: Any, task: Any) -> "LSTMDocLanguageModel":
        """
        Raises:
            FairseqDocError: settings that do not fit together.
        """
        return cls(LSTMDocDecoder(cfg, task.target_dictionary))

    def forward(
        self, src_tokens: torch.Tensor, **kwargs: Any
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """See :meth:`LSTMDocDecoder.forward`."""
        return self.decoder(src_tokens, **kwargs)

    @classmethod
    def from_pretrained(
        cls,
        model_name_or_path: str,
        checkpoint_file: str = "model.pt",
        data_name_or_path: str = ".",
        matmul_precision: str | None = None,
    ) -> Any:
        """As fairseq's, with ``.score``, ``.perplexity`` and ``.sample`` of a language model.

        Args:
            model_name_or_path: folder of the checkpoints.
            checkpoint_file: a file in it, or ``a.pt:b.pt`` for an ensemble.
            data_name_or_path: folder of ``fairseq-preprocess``; if it begins with a dot, relative to
                the first.
            matmul_precision: ``float32`` or ``bfloat16``; None: as trained.

        Returns:
            :class:`fairseq_doc.evaluation.hub_interface.PretrainedLanguageModel`.
        """
        # Imported here because evaluation/ imports this file.
        from fairseq_doc.evaluation.hub_interface import from_pretrained

        return from_pretrained(
            model_name_or_path, checkpoint_file, data_name_or_path, matmul_precision
        )


_MOS: dict[str, Any] = {"doc_components": "0,0,0,15"}
_AWD: dict[str, Any] = {"doc_components": "0,0,0,1", "plain_output": True, "hidden_dropout": 0.25}
_SMALL: dict[str, Any] = {
    "decoder_embed_dim": 100,
    "layer_dims": "240,240,160",
    "doc_components": "0,0,2,6",
}
# Less dropout, for less data and fewer parameters.
_SMALL_DROPOUT = {
    "input_dropout": 0.2,
    "hidden_dropout": 0.1,
    "output_dropout": 0.2,
    "component_dropout": 0.2,
    "weight_dropout": 0.2,
}

# What differs from the config's defaults.
PRESETS: dict[str, dict[str, Any]] = {
    "lstm_doc_lm": {},
    "lstm_doc_lm_ptb": {},
    "lstm_doc_lm_wt2": {
        "decoder_embed_dim": 300,
        "layer_dims": "1150,1150,650",
        "input_dropout": 0.65,
        "hidden_dropout": 0.2,
    },
    "lstm_mos_lm_ptb": _MOS,
    "lstm_awd_lm_ptb": {**_AWD, "decoder_embed_dim": 400, "layer_dims": "1150,1150,400"},
    "lstm_doc_lm_small": {**_SMALL, **_SMALL_DROPOUT},
    "lstm_mos_lm_small": {**_SMALL, **_SMALL_DROPOUT, "doc_components": "0,0,0,8"},
    "lstm_awd_lm_small": {**_AWD, **_SMALL, **_SMALL_DROPOUT, "layer_dims": "240,240,100"}
    | {"doc_components": "0,0,0,1"},
}


register_presets(LSTMDocLanguageModel, LSTMDocLanguageModelConfig, PRESETS)
