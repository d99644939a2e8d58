"""``lstm_doc_lm``: the AWD-LSTM language model with a DOC output, and its presets.

Axes: B streams, T time, D_n width of layer n (D_0 the embedding), J components, V vocabulary.
"""

from dataclasses import dataclass, field
from typing import Any, Optional

import torch
from fairseq.data import Dictionary
from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from torch import nn

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.models.language_model import MixtureLanguageModel, RecurrentDecoder
from fairseq_doc.models.mixture_model import (
    check_positive,
    component_dim,
    matmul_precision_field,
)
from fairseq_doc.models.presets import register_presets
from fairseq_doc.modules.awd_lstm import AWDLSTM
from fairseq_doc.modules.dropout import check_rates, embedded_dropout, locked_dropout
from fairseq_doc.modules.mixture import ACTIVATIONS, MixtureOutput, parse_components
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


class LSTMDocDecoder(RecurrentDecoder):
    """Embedding, AWD-LSTM and mixture."""

    def __init__(self, cfg: Any, dictionary: Dictionary) -> None:
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
        tied_to = None if cfg.untie_output else widths[0]
        dim = component_dim(cfg, widths[0], tied_to, "or give --untie-output")
        embedding = nn.Parameter(torch.empty(len(dictionary), widths[0]))
        nn.init.uniform_(embedding, -EMBEDDING_RANGE, EMBEDDING_RANGE)
        output_matrix = embedding
        if cfg.untie_output:
            output_matrix = nn.Parameter(torch.empty(len(dictionary), dim))
            nn.init.uniform_(output_matrix, -EMBEDDING_RANGE, EMBEDDING_RANGE)
        precision = PRECISIONS[str(cfg.matmul_precision)]
        lstm = AWDLSTM(
            widths,
            weight_drop=cfg.weight_dropout,
            hidden_dropout=cfg.hidden_dropout,
            output_dropout=cfg.output_dropout,
            precision=precision,
            mogrifier_rounds=cfg.mogrifier_rounds,
            mogrifier_rank=cfg.mogrifier_rank,
        )
        output = MixtureOutput(
            widths,
            components,
            output_matrix,
            str(cfg.doc_activation),
            cfg.component_dropout,
            project=not cfg.plain_output,
            precision=precision,
        )
        super().__init__(dictionary, embedding, lstm, output)
        self.embed_dropout, self.input_dropout = cfg.embed_dropout, cfg.input_dropout

    def embedded(self, tokens: torch.Tensor) -> torch.Tensor:
        """The embeddings of tokens (T, B) after both dropouts, (T, B, D_0)."""
        rows = embedded_dropout(self.embedding, tokens, self.embed_dropout, self.dropping)
        return locked_dropout(rows, self.input_dropout, self.dropping)

    @property
    def masks_of_each_stream(self) -> bool:
        """Not with DropConnect or dropped words, whose masks all streams share."""
        return self.lstm.weight_drop == 0 and self.embed_dropout == 0


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
    mogrifier_rounds: int = field(
        default=0,
        metadata={
            "help": "rounds in which each LSTM layer's input and state gate each other before a step "
            "(Mogrifier; published: 5 and 6); 0: none"
        },
    )
    mogrifier_rank: Optional[int] = field(
        default=None,
        metadata={
            "help": "rank of the Mogrifier's matrices, each a product of two factors (published: 84 and "
            "48; default: full matrices)"
        },
    )
    matmul_precision: ChoiceEnum(list(PRECISIONS)) = (  # type: ignore[valid-type]
        matmul_precision_field()
    )


class LSTMDocLanguageModel(MixtureLanguageModel):
    """AWD-LSTM-DOC (Takase et al., 2018, section 5)."""

    @classmethod
    def build_model(cls, cfg: Any, task: Any) -> "LSTMDocLanguageModel":
        """
        Raises:
            FairseqDocError: settings that do not fit together.
        """
        return cls(LSTMDocDecoder(cfg, task.target_dictionary))


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
