"""``lstm_luong_doc``: an LSTM encoder-decoder with Luong attention and a DOC output.

Axes: B sentences, R rows (hypotheses, equally many of each sentence), T target time, S source time,
N LSTM layers of either side, D their width, J components, V target vocabulary.
"""

from dataclasses import dataclass
from typing import Any, Optional

import torch
from fairseq.data import Dictionary
from fairseq.dataclass import ChoiceEnum
from fairseq.models import FairseqEncoder, FairseqEncoderDecoderModel, FairseqIncrementalDecoder
from torch import Tensor, nn

from fairseq_doc.models.grown import grow
from fairseq_doc.models.mixture_model import (
    MixtureConfig,
    MixtureDecoder,
    MixtureModel,
    component_dim,
    mixture_output,
    register_presets,
)
from fairseq_doc.models.state_dict import CHECKSUM, dictionary_checksum
from fairseq_doc.modules.attentional_lstm import (
    SCORES,
    AttentionalLSTM,
    DecoderCache,
    DecoderState,
    StepConstants,
    select,
)
from fairseq_doc.modules.bilstm import BidirectionalLSTM
from fairseq_doc.modules.dropout import dropout, embedded_dropout
from fairseq_doc.modules.embedding_file import load_embedding_file
from fairseq_doc.modules.mixture import check_finite, parse_components
from fairseq_doc.ops.matmul import PRECISIONS, is_on_cpu
from fairseq_doc.options import check_needs, check_ranges, option, rate

CACHE = "decoder"  # the key of the decoder's cache in fairseq's incremental state


class LuongEncoder(FairseqEncoder):
    """Embedding and LSTM stacks: source -> memory and the decoder's first state."""

    def __init__(self, cfg: Any, dictionary: Dictionary, embedding: nn.Parameter) -> None:
        super().__init__(dictionary)
        self.embedding, self.source_dropout = embedding, cfg.source_dropout
        self.lstm = BidirectionalLSTM(
            cfg.encoder_embed_dim,
            cfg.hidden_size,
            cfg.layers,
            cfg.dropout,
            bidirectional=not cfg.unidirectional_encoder,
            mix=cfg.mix_directions,
            precision=PRECISIONS[str(cfg.matmul_precision)],
        )
        self.register_buffer(CHECKSUM, dictionary_checksum(dictionary))

    def forward(self, src_tokens: Tensor, src_lengths: Any = None) -> dict[str, Any]:
        """Words (B, S), padded on either side -> ``memory`` (B, S, D); ``padding_mask`` (B, S),
        true at padding; ``hidden``, ``cell`` (N, B, D); ``rows``: the sentence of each row."""
        padding_mask, rows = src_tokens.eq(self.dictionary.pad()), list(range(len(src_tokens)))
        x = embedded_dropout(self.embedding, src_tokens.t(), self.source_dropout, self.training)
        memory, hidden, cell = self.lstm(x, padding_mask)
        state = {"hidden": hidden, "cell": cell}
        return {"memory": memory, "padding_mask": padding_mask, "rows": rows, **state}

    def reorder_encoder_out(self, encoder_out: dict[str, Any], new_order: Tensor) -> dict[str, Any]:
        """Reorder only ``rows``, since all hypotheses of a sentence share its memory."""
        rows = encoder_out["rows"]
        return {**encoder_out, "rows": [rows[index] for index in new_order.tolist()]}


class LuongDocDecoder(MixtureDecoder, FairseqIncrementalDecoder):
    """Decoder whose mixture reads layers 0 .. N + 1: embedding, LSTM layers, attentional vector."""

    def __init__(self, cfg: Any, dictionary: Dictionary, embedding: nn.Parameter) -> None:
        super().__init__(dictionary)
        width, embed_dim = cfg.hidden_size, cfg.decoder_embed_dim
        self.components = parse_components(cfg.doc_components, cfg.layers + 1)
        self.dropout, self.target_dropout = cfg.dropout, cfg.target_dropout
        self.embedding = embedding
        tied = cfg.share_decoder_input_output_embed or cfg.share_all_embeddings
        default = embed_dim if tied else width
        dim = component_dim(cfg, default, tied, "or leave out the option that ties it")
        output_matrix = embedding if tied else nn.Parameter(torch.empty(len(dictionary), dim))
        self.lstm = AttentionalLSTM(
            embed_dim,
            width,
            cfg.layers,
            dropout=cfg.dropout,
            score=str(cfg.attention_score),
            input_feeding=not cfg.no_input_feeding,
            precision=PRECISIONS[str(cfg.matmul_precision)],
        )
        widths, project = [embed_dim] + [width] * (cfg.layers + 1), not cfg.plain_output
        self.output = mixture_output(cfg, widths, self.components, output_matrix, project=project)
        self.register_buffer(CHECKSUM, dictionary_checksum(dictionary))

    def forward(
        self, prev_output_tokens: Tensor, encoder_out: dict, incremental_state: dict | None = None
    ) -> tuple[Tensor, dict[str, Any]]:
        """Target words shifted by one (R, T) -> the mixture's parameters (R, T, J d + J + 1), see
        :class:`MixtureOutput`; ``log_weights`` (R, T, J); ``attn``, [(R, T, S)], zero at padding.
        With an ``incremental_state`` only the last token is read, T is 1, and a score that is not
        finite raises ``FairseqDocError``."""
        tokens, words_first = prev_output_tokens, None
        if incremental_state is not None:
            tokens = tokens[:, -1:]
        elif not is_on_cpu(tokens) or tokens[:, 0].eq(self.dictionary.pad()).any():
            # Padded on the left. On a GPU testing this would synchronise: every batch is reordered.
            is_word = tokens.ne(self.dictionary.pad())
            words_first = is_word.argsort(dim=1, descending=True, stable=True)
            tokens = tokens.gather(1, words_first)
        constants, state = self._constants_and_state(encoder_out, incremental_state)
        embedded = embedded_dropout(self.embedding, tokens.t(), self.target_dropout, self.training)
        outputs, attentional, weights, state = self.lstm(embedded, constants, state)
        if incremental_state is not None:
            self.get_incremental_state(incremental_state, CACHE).state = state
        layers, last = [embedded, *outputs, attentional], len(outputs) + 1
        for n in (0, last - 1, last):  # embedding, h^N, a: ``self.lstm`` applies no dropout to them
            if self.components[n] > 0 or n == last:
                layers[n] = dropout(layers[n], self.dropout, self.training)
        mixture_params, log_weights = self.output([h.transpose(0, 1) for h in layers])
        if incremental_state is not None:
            check_finite(mixture_params.sum())
        weights = weights.transpose(0, 1)  # (R, T, S)
        if words_first is not None:
            original_order = words_first.argsort(dim=1).unsqueeze(2)
            mixture_params, log_weights, weights = (
                x.gather(1, original_order.expand_as(x))
                for x in (mixture_params, log_weights, weights)
            )
        return mixture_params, {"log_weights": log_weights, "attn": [weights]}

    def _constants_and_state(
        self, encoder_out: dict[str, Any], incremental_state: dict | None
    ) -> tuple[StepConstants, DecoderState]:
        """The constants of all steps for these rows, and the state before the next step."""
        rows, cache = encoder_out["rows"], None
        if incremental_state is not None:
            cache = self.get_incremental_state(incremental_state, CACHE)
        if cache is None:
            hidden, cell = (select(encoder_out[name], 1, rows) for name in ("hidden", "cell"))
            constants = self.lstm.prepare(encoder_out["memory"], encoder_out["padding_mask"])
            cache = DecoderCache(constants, DecoderState(torch.zeros_like(hidden[0]), hidden, cell))
            if incremental_state is not None:
                # Otherwise the generator would treat NaN as minus infinity.
                for parameter in (self.output.weight, self.output.bias):
                    check_finite(parameter.sum(dtype=torch.float32))
                self.set_incremental_state(incremental_state, CACHE, cache)
        return cache.constants_of(rows), cache.state

    def reorder_incremental_state(self, incremental_state: dict, new_order: Tensor) -> None:
        cache = self.get_incremental_state(incremental_state, CACHE)
        if cache is not None:
            cache.state = cache.state.index_select(new_order)


@dataclass
class LSTMLuongDocConfig(MixtureConfig):
    """The defaults are the paper's translation model with i_2 = i_3 = 2 (section 6.2)."""

    encoder_embed_dim: int = option("width of source embeddings", 500, least=1)
    decoder_embed_dim: int = option("width of target embeddings", 500, least=1)
    hidden_size: int = option("width D of the LSTM layers and the attentional vector", 500, least=1)
    layers: int = option("LSTM layers of the decoder and of each encoder direction", 2, least=1)
    dropout: float = rate("dropout of layer outputs, between layers and before the output", 0.3)
    source_dropout: float = rate("dropout of whole source words in the embedding", 0.0)
    target_dropout: float = rate("dropout of whole target words in the embedding", 0.0)
    unidirectional_encoder: bool = option("use an encoder that only reads forward", False)
    mix_directions: bool = option(
        "add up both directions after every encoder layer (for parsing) instead of only after the "
        "last one",
        False,
    )
    no_input_feeding: bool = option(
        "do not feed the attentional vector into the next step's first layer", False
    )
    attention_score: ChoiceEnum(list(SCORES)) = option(  # type: ignore[valid-type]
        "score function of Luong attention", "general"
    )
    doc_components: str = option(
        "number of components from each layer, i_0,...: the target embedding, the LSTM layers, the "
        "attentional vector",
        "0,0,2,2",
    )
    plain_output: bool = option(
        "a single softmax of the attentional vector (the base system) without W_j and activation; "
        "with --doc-components 0,0,0,1",
        False,
    )
    component_dim: Optional[int] = option(
        "width d of the component vectors (default: that of the layers, or of the target embedding if "
        "the output matrix is tied to it)",
        least=1,
    )
    init_range: float = option(
        "initialise all parameters uniformly in [-R, R]; the published 0.1 is too small for narrow "
        "layers, which then learn to align late or never: use 0.2 for width 256, 0.3 for 128",
        0.1,
        least=1e-3,
    )
    share_decoder_input_output_embed: bool = option(
        "tie the output matrix to the target embedding", False
    )
    share_all_embeddings: bool = option(
        "share one matrix for source, target and output (needs a joint dictionary)", False
    )
    encoder_embed_path: Optional[str] = option(
        "file of pretrained source embeddings: a header (number of words, width), then one word "
        "and its numbers per line"
    )
    decoder_embed_path: Optional[str] = option("file of pretrained target embeddings, likewise")


class LSTMLuongDoc(MixtureModel, FairseqEncoderDecoderModel):
    """An attentional encoder-decoder with a DOC output (Takase et al., 2018, section 6)."""

    @classmethod
    def build_model(cls, cfg: Any, task: Any) -> "LSTMLuongDoc":
        source, target = task.source_dictionary, task.target_dictionary
        _check(cfg, source, target)
        source_embedding = nn.Parameter(torch.empty(len(source), cfg.encoder_embed_dim))
        target_embedding = source_embedding
        if not cfg.share_all_embeddings:
            target_embedding = nn.Parameter(torch.empty(len(target), cfg.decoder_embed_dim))
        encoder = LuongEncoder(cfg, source, source_embedding)
        model = cls(encoder, LuongDocDecoder(cfg, target, target_embedding))
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.uniform_(-cfg.init_range, cfg.init_range)
            grow(model, cfg)
            if cfg.encoder_embed_path:
                load_embedding_file(source_embedding, cfg.encoder_embed_path, source)
            if cfg.decoder_embed_path:
                load_embedding_file(target_embedding, cfg.decoder_embed_path, target)
        return model


def _check(cfg: Any, source: Dictionary, target: Dictionary) -> None:
    check_ranges(LSTMLuongDocConfig, cfg)
    two = {"an encoder without --unidirectional-encoder": not cfg.unidirectional_encoder}
    check_needs("--mix-directions", two, cfg.mix_directions)
    widths = cfg.encoder_embed_dim, cfg.decoder_embed_dim
    paths = cfg.encoder_embed_path, cfg.decoder_embed_path
    needs = {
        f"a joint dictionary; got two, of {len(source)} and {len(target)} words: preprocess with "
        "--joined-dictionary": source.symbols == target.symbols,
        f"equal --encoder-embed-dim and --decoder-embed-dim; got {widths}": widths[0] == widths[1],
        f"a single file of embeddings, --encoder-embed-path; got {paths}": (
            paths[1] in (None, paths[0])
        ),
    }
    check_needs("--share-all-embeddings", needs, cfg.share_all_embeddings)


WIDTHS = ("encoder_embed_dim", "decoder_embed_dim", "hidden_size")
PRESETS: dict[str, dict[str, Any]] = {
    "lstm_luong_doc": {},
    "lstm_luong_doc_iwslt16": {},
    "lstm_luong_doc_gigaword": dict.fromkeys(WIDTHS, 400),
    "lstm_luong_doc_small": {**dict.fromkeys(WIDTHS, 256), "init_range": 0.2},
}

register_presets(LSTMLuongDoc, LSTMLuongDocConfig, PRESETS)
