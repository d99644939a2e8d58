"""``lstm_doc_lm``: the AWD-LSTM language model with a DOC output, and its presets."""

from dataclasses import dataclass
from typing import Any

from fairseq.data import Dictionary
from torch import Tensor, nn

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.models.language_model import (
    LanguageModelConfig,
    MixtureLanguageModel,
    RecurrentDecoder,
    embedding_and_output_matrix,
)
from fairseq_doc.models.mixture_model import mixture_output, register_presets
from fairseq_doc.modules.awd_lstm import AWDLSTM
from fairseq_doc.modules.dropout import embedded_dropout, locked_dropout
from fairseq_doc.modules.mixture import parse_components
from fairseq_doc.ops.matmul import PRECISIONS
from fairseq_doc.options import check_ranges, option, rate


def parse_widths(text: str) -> list[int]:
    """``"960,960,620"`` -> [960, 960, 620]."""
    try:
        widths = [int(part) for part in str(text).split(",")]
    except ValueError:
        widths = [0]
    if min(widths) < 1:
        raise FairseqDocError(
            "--layer-dims: expected a positive width for each layer, such as 960,960,620; got "
            f"{text!r}"
        )
    return widths


class LSTMDocDecoder(RecurrentDecoder):
    """Embedding, AWD-LSTM and mixture."""

    def __init__(self, cfg: Any, dictionary: Dictionary) -> None:
        check_ranges(LSTMDocLanguageModelConfig, cfg)
        widths = [cfg.decoder_embed_dim] + parse_widths(cfg.layer_dims)
        components = parse_components(cfg.doc_components, len(widths) - 1)
        reach = float(cfg.init_range)
        embedding, output_matrix = embedding_and_output_matrix(
            cfg, len(dictionary), widths[0], lambda matrix: nn.init.uniform_(matrix, -reach, reach)
        )
        lstm = AWDLSTM(
            widths,
            weight_drop=cfg.weight_dropout,
            hidden_dropout=cfg.hidden_dropout,
            output_dropout=cfg.output_dropout,
            precision=PRECISIONS[str(cfg.matmul_precision)],
            mogrifier_rounds=cfg.mogrifier_rounds,
            mogrifier_rank=cfg.mogrifier_rank,
        )
        settings = {"dropout": cfg.component_dropout, "project": not cfg.plain_output}
        output = mixture_output(cfg, widths, components, output_matrix, **settings)
        super().__init__(dictionary, embedding, lstm, output)
        self.embed_dropout, self.input_dropout = cfg.embed_dropout, cfg.input_dropout
        # The masks of DropConnect and of word dropout are the same for all streams.
        self.masks_of_each_stream = cfg.weight_dropout == cfg.embed_dropout == 0

    def embedded(self, tokens: Tensor) -> Tensor:
        rows = embedded_dropout(self.embedding, tokens, self.embed_dropout, self.dropping)
        return locked_dropout(rows, self.input_dropout, self.dropping)


@dataclass
class LSTMDocLanguageModelConfig(LanguageModelConfig):
    """The defaults are the paper's Penn Treebank model (Table 2; i_3 = 15, i_2 = 5)."""

    decoder_embed_dim: int = option("embedding width D_0", 280, least=1)
    layer_dims: str = option("widths of the LSTM layers, D_1,...,D_N", "960,960,620")
    doc_components: str = option(
        "number of components from each layer, i_0,...,i_N; layer 0 is the embedding", "0,0,5,15"
    )
    plain_output: bool = option(
        "a single softmax of h^N (plain AWD-LSTM) without W_j, activation and dropout of k; with "
        "--doc-components 0,...,0,1 and a last layer as wide as the output matrix",
        False,
    )
    init_range: float = option(
        "initialise embedding and output matrix uniformly in [-R, R]; the published 0.1 is too small "
        "for mixtures with narrow embeddings, which then learn late with some seeds: use 0.3 for "
        "width 100",
        0.1,
        least=1e-3,
    )
    embed_dropout: float = rate("dropout of whole words in the embedding", 0.1)
    input_dropout: float = rate(
        "locked dropout (one mask for all steps of a window) of the embedded words h^0", 0.4
    )
    hidden_dropout: float = rate("locked dropout of h^1 .. h^(N-1)", 0.225)
    output_dropout: float = rate("locked dropout of h^N", 0.4)
    component_dropout: float = rate("locked dropout of the component vectors k_j", 0.6)
    weight_dropout: float = rate("DropConnect of the recurrent matrices", 0.5)


class LSTMDocLanguageModel(MixtureLanguageModel):
    """AWD-LSTM-DOC (Takase et al., 2018, section 5)."""

    decoder_class = LSTMDocDecoder


_AWD: dict[str, Any] = {"doc_components": "0,0,0,1", "plain_output": True}
_SMALL: dict[str, Any] = {
    "decoder_embed_dim": 100,
    "layer_dims": "240,240,160",
    "doc_components": "0,0,2,6",
    # Less dropout, for less data and fewer parameters.
    "input_dropout": 0.2,
    "hidden_dropout": 0.1,
    "output_dropout": 0.2,
    "component_dropout": 0.2,
    "weight_dropout": 0.2,
}

PRESETS: dict[str, dict[str, Any]] = {
    "lstm_doc_lm": {},
    "lstm_doc_lm_ptb": {},
    "lstm_doc_lm_wt2": {
        "decoder_embed_dim": 300,
        "layer_dims": "1150,1150,650",
        "input_dropout": 0.65,
        "hidden_dropout": 0.2,
    },
    "lstm_mos_lm_ptb": {"doc_components": "0,0,0,15"},
    "lstm_awd_lm_ptb": {
        **_AWD,
        "hidden_dropout": 0.25,
        "decoder_embed_dim": 400,
        "layer_dims": "1150,1150,400",
    },
    "lstm_doc_lm_small": _SMALL,
    "lstm_mos_lm_small": {**_SMALL, "doc_components": "0,0,0,8"},
    "lstm_awd_lm_small": {**_SMALL, **_AWD, "layer_dims": "240,240,100"},
}


register_presets(LSTMDocLanguageModel, LSTMDocLanguageModelConfig, PRESETS)
