"""``lstm_melis_lm``: the language models of Melis, Dyer and Blunsom (2018), and their presets.

Axes: V vocabulary, E width of the embedding, D width of the layers, N layers.
"""

import bisect
import math
from dataclasses import dataclass
from typing import Any, Optional

import torch
from fairseq.data import Dictionary
from fairseq.dataclass import ChoiceEnum
from omegaconf import OmegaConf
from torch import Tensor, nn

from fairseq_doc.errors import FairseqDocError, require
from fairseq_doc.models.language_model import (
    LanguageModelConfig,
    MixtureLanguageModel,
    RecurrentDecoder,
    embedding_and_output_matrix,
)
from fairseq_doc.models.mixture_model import mixture_output, register_presets
from fairseq_doc.modules.awd_lstm import States
from fairseq_doc.modules.dropout import dropout
from fairseq_doc.modules.lstm import truncated_normal_
from fairseq_doc.modules.mixture import parse_components
from fairseq_doc.modules.recurrent_stack import RecurrentStack
from fairseq_doc.ops.gated_cell import KINDS
from fairseq_doc.ops.matmul import PRECISIONS
from fairseq_doc.ops.recurrence import CELLS
from fairseq_doc.options import check_needs, check_ranges, option, rate


def normal_by_width_(matrix: Tensor) -> None:
    """Initialise a matrix (rows, D) with truncated normal numbers of deviation 1 / sqrt(D)."""
    truncated_normal_(matrix, 1 / math.sqrt(matrix.size(1)))


class MelisDecoder(RecurrentDecoder):
    """Decoder initialised as in deepmind/lamb: standard deviation 1 / sqrt(fan in) for matrices,
    including W_j and W_pi, and 1 / sqrt(E) for the embedding; zero for biases of the output."""

    masks_of_each_stream = True

    def __init__(self, cfg: Any, dictionary: Dictionary) -> None:
        width = cfg.hidden_size
        embed_dim = max(1, round(min(cfg.embedding_ratio, 1.0) * width))
        embedding, output_matrix = embedding_and_output_matrix(
            cfg, len(dictionary), embed_dim, normal_by_width_
        )
        one_softmax = cfg.doc_components is None
        output_dim = output_matrix.size(1) if one_softmax else width
        last = cfg.layers + 1
        components = [0] * last + [1] if one_softmax else parse_components(cfg.doc_components, last)
        stack = RecurrentStack(
            CELLS[str(cfg.cell)](str(cfg.gates)),
            embed_dim,
            width,
            output_dim,
            layers=cfg.layers,
            depth=cfg.rhn_depth if str(cfg.cell) == "rhn" else 1,
            mogrifier_rounds=cfg.mogrifier_rounds,
            mogrifier_rank=cfg.mogrifier_rank,
            read=[n for n, count in enumerate(components[:-1]) if count],
            intra_layer_dropout=cfg.intra_layer_dropout,
            state_dropout=cfg.state_dropout,
            recurrent_dropout=cfg.recurrent_dropout,
            output_dropout=cfg.output_dropout,
            precision=PRECISIONS[str(cfg.matmul_precision)],
        )
        widths = [embed_dim] + [width] * cfg.layers + [output_dim]
        settings = {"dropout": cfg.component_dropout, "project": not one_softmax, "locked": False}
        output = mixture_output(cfg, widths, components, output_matrix, **settings)
        for layer in output.modules():
            if isinstance(layer, nn.Linear):  # W_j, W_pi
                normal_by_width_(layer.weight)
        super().__init__(dictionary, embedding, stack, output)
        self.input_dropout, self.reset_rate = cfg.input_dropout, cfg.state_reset

    def embedded(self, tokens: Tensor) -> Tensor:
        rows = nn.functional.embedding(tokens, self.embedding)
        return dropout(rows, self.input_dropout, self.dropping)

    def _state_before(self, window: int | None, x: Tensor) -> States:
        """The carried state; in training each stream's is set to zero with the probability
        ``--state-reset``."""
        state = super()._state_before(window, x)
        if not window or not self.training or self.reset_rate == 0:
            return state
        kept = torch.rand(1, x.size(1), 1, device=x.device) >= self.reset_rate
        return [tuple(part * kept for part in layer) for layer in state]


def width_of_budget(cfg: Any, dictionary: Dictionary) -> int:
    """The largest width of the layers with which the model has at most ``--num-params``
    parameters."""

    def parameters(width: int) -> int:
        sized = OmegaConf.merge(cfg, {"hidden_size": width})
        with torch.device("meta"):
            decoder = MelisDecoder(sized, dictionary)
        return sum(parameter.numel() for parameter in decoder.parameters())

    largest = math.isqrt(max(1, cfg.num_params))  # a layer has at least one matrix (width, width)
    width = bisect.bisect_right(range(1, largest + 1), cfg.num_params, key=parameters)
    if width == 0:
        raise FairseqDocError(
            f"--num-params: expected at least {parameters(1):,}, the size of layers of width 1 with "
            f"{len(dictionary):,} words; got {cfg.num_params:,}"
        )
    return width


@dataclass
class LSTMMelisLanguageModelConfig(LanguageModelConfig):
    """The defaults are the paper's LSTM of one layer and 10M parameters for Penn Treebank."""

    cell: ChoiceEnum(list(CELLS)) = option(  # type: ignore[valid-type]
        "recurrence of every layer", "lstm"
    )
    gates: ChoiceEnum(list(KINDS)) = option(  # type: ignore[valid-type]
        "input gate of an LSTM or transform gate of an RHN: an independent gate (untied), one minus "
        "the forget gate (tied), or the smaller of the two (capped); without effect on --cell nas",
        "capped",
    )
    layers: int = option("number of layers, whose outputs are added up", 1, least=1)
    rhn_depth: int = option("micro-steps per step of --cell rhn", 5, least=1)
    hidden_size: int = option("width of the layers, unless --num-params is given", 1194, least=1)
    num_params: Optional[int] = option(
        "choose the largest width of the layers for at most N parameters"
    )
    embedding_ratio: float = option(
        "ratio of the embedding's width to that of the layers; above 1 it counts as 1", 0.2245
    )
    doc_components: Optional[str] = option(
        "number of components from each layer, i_0,...,i_(N+1); layer 0 is the embedding, layer N+1 "
        "the sum of the layers (default: a single softmax of the sum, projected to the width "
        "of the output matrix)"
    )
    component_dropout: float = rate("dropout of the component vectors k_j", 0.0)
    input_dropout: float = rate("dropout of the embeddings", 0.58)
    intra_layer_dropout: float = rate(
        "dropout of the inputs of layers 2 to N, with --layers above 1", 0.0
    )
    state_dropout: float = rate(
        "dropout of the states before the recurrent products, one mask per window", 0.215
    )
    recurrent_dropout: float = rate(
        "dropout of the candidate state g inside the cell (Semeniuta et al., 2016), one mask per "
        "window, instead of --state-dropout",
        0.0,
    )
    output_dropout: float = rate(
        "dropout of the sum of the layers, its projection, and layers that components read", 0.327
    )
    state_reset: float = rate(
        "probability of resetting a stream's carried state to zero before a window", 0.01
    )


class LSTMMelisLanguageModel(MixtureLanguageModel):
    """The models of Melis et al. (2018)."""

    decoder_class = MelisDecoder

    @classmethod
    def build_model(cls, cfg: Any, task: Any) -> "LSTMMelisLanguageModel":
        check_ranges(LSTMMelisLanguageModelConfig, cfg)
        cell, components = CELLS[str(cfg.cell)](str(cfg.gates)), cfg.doc_components is not None
        check_needs(
            "--intra-layer-dropout", {"--layers above 1": cfg.layers > 1}, cfg.intra_layer_dropout
        )
        check_needs("--component-dropout", {"--doc-components": components}, cfg.component_dropout)
        needs = {
            f"a --cell other than {cfg.cell}": cell.takes_recurrent_mask,
            f"--state-dropout 0; got {cfg.state_dropout}": not cfg.state_dropout,
        }
        check_needs("--recurrent-dropout", needs, cfg.recurrent_dropout)
        is_lstm = {f"--cell lstm; got {cfg.cell}": cell.name == "lstm"}
        check_needs("--mogrifier-rounds", is_lstm, cfg.mogrifier_rounds)
        require(cfg.embedding_ratio > 0, "embedding_ratio", "above 0", cfg.embedding_ratio)
        if cfg.num_params is not None:
            width = width_of_budget(cfg, task.target_dictionary)
            cfg = OmegaConf.merge(cfg, {"hidden_size": width})
        return super().build_model(cfg, task)


def _dropouts(**rates: float) -> dict[str, float]:
    return {f"{name}_dropout": rate for name, rate in rates.items()}


# Widths, ratios and dropouts are those of deepmind/lamb's scripts and configurations. The widths of
# the Mogrifiers are the largest within the budget.
PRESETS: dict[str, dict[str, Any]] = {
    "lstm_melis_lm": {},
    "lstm_melis_lm_ptb_10m": {},
    "lstm_melis_lm_ptb_24m": {"layers": 4, "hidden_size": 723, "embedding_ratio": 1.0}
    | _dropouts(input=0.634, intra_layer=0.309, state=0.643, output=0.701),
    "lstm_melis_lm_ptb_24m_mogrifier": {
        "layers": 2,
        "hidden_size": 912,
        "embedding_ratio": 1.0,
        "mogrifier_rounds": 5,
        "mogrifier_rank": 84,
    }
    | _dropouts(input=0.729, intra_layer=0.291, state=0.387, output=0.716),
    "lstm_melis_lm_wt2_24m": {"layers": 2, "hidden_size": 1227, "embedding_ratio": 0.1215}
    | _dropouts(input=0.484, intra_layer=0.092, state=0.454, output=0.391),
    "lstm_melis_lm_wt2_35m_mogrifier": {
        "layers": 2,
        "hidden_size": 1366,
        "embedding_ratio": 0.1993,
        "mogrifier_rounds": 6,
        "mogrifier_rank": 48,
        "doc_components": "0,0,0,2",
    }
    | _dropouts(input=0.547, intra_layer=0.199, state=0.221, output=0.348, component=0.348),
    "lstm_melis_lm_enwik8_27m": {
        "layers": 4,
        "hidden_size": 911,
        "embedding_ratio": 1.0,
        "untie_output": True,
    }
    | _dropouts(input=0.197, intra_layer=0.031, state=0.081, output=0.070),
    "lstm_melis_lm_enwik8_46m": {
        "layers": 4,
        "hidden_size": 1192,
        "embedding_ratio": 1.0,
        "untie_output": True,
    }
    | _dropouts(input=0.034, intra_layer=0.012, state=0.062, output=0.280),
}


register_presets(LSTMMelisLanguageModel, LSTMMelisLanguageModelConfig, PRESETS)
