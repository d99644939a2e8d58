"""``lstm_luong_doc``: an LSTM encoder-decoder with Luong attention and a DOC output, and its presets.

Axes: B sentences, R rows (hypotheses, as many of each sentence), T target time, S source time, N LSTM
layers a side, D their width, J components, V target vocabulary.
"""

from dataclasses import dataclass, field
from typing import Optional

import torch
from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.models import FairseqEncoder, FairseqEncoderDecoderModel, FairseqIncrementalDecoder
from torch import nn

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.models.mixture_model import MixtureModel
from fairseq_doc.models.presets import register_presets
from fairseq_doc.models.state_dict import CHECKSUM, dictionary_checksum
from fairseq_doc.modules.attentional_lstm import AttentionalLSTM, Decoding
from fairseq_doc.modules.bilstm import BidirectionalLSTM
from fairseq_doc.modules.dropout import check_rates, dropout_mask, embedded_dropout
from fairseq_doc.modules.embedding_file import load_embedding_file
from fairseq_doc.modules.luong_attention import SCORES
from fairseq_doc.modules.mixture import (
    ACTIVATIONS,
    MixtureOutput,
    check_finite,
    parse_components,
)

INITIAL_RANGE = 0.1


class LuongEncoder(FairseqEncoder):
    """Embedding and LSTM stacks: source -> memory and the decoder's first state."""

    def __init__(self, cfg, dictionary, embedding):
        super().__init__(dictionary)
        self.embedding, self.source_dropout = embedding, cfg.source_dropout
        self.lstm = BidirectionalLSTM(
            cfg.encoder_embed_dim,
            cfg.hidden_size,
            cfg.layers,
            cfg.dropout,
            not cfg.unidirectional_encoder,
            cfg.mix_directions,
        )
        self.register_buffer(CHECKSUM, torch.tensor(dictionary_checksum(dictionary)))

    def forward(self, src_tokens, src_lengths=None):
        """
        Args:
            src_tokens: (B, S), padded on either side.
            src_lengths: unused; fairseq passes it.

        Returns:
            ``memory`` (B, S, D); ``padding`` (B, S), true at padding; ``hidden`` and ``cell``,
            (N, B, D); ``rows`` (R,), the sentence of each row.
        """
        padding = src_tokens.eq(self.dictionary.pad())
        x = embedded_dropout(self.embedding, src_tokens.t(), self.source_dropout, self.training)
        memory, hidden, cell = self.lstm(x, padding)
        rows = torch.arange(len(src_tokens), device=src_tokens.device)
        return {
            "memory": memory,
            "padding": padding,
            "hidden": hidden,
            "cell": cell,
            "rows": rows,
        }

    def reorder_encoder_out(self, encoder_out, new_order):
        """Only the rows: a beam shares its sentence's memory."""
        return {**encoder_out, "rows": encoder_out["rows"].index_select(0, new_order)}

    def max_positions(self):
        """No limit but the task's."""
        return 10**9


class LuongDocDecoder(FairseqIncrementalDecoder):
    """Embedding, LSTM layers, attention and mixture. Layers 0 .. N + 1 of the mixture: the
    embedding, the LSTM layers, the attentional vector."""

    def __init__(self, cfg, dictionary, embedding):
        super().__init__(dictionary)
        width, embed_dim = cfg.hidden_size, cfg.decoder_embed_dim
        self.components = parse_components(cfg.doc_components, cfg.layers + 1)
        self.dropout, self.target_dropout = cfg.dropout, cfg.target_dropout
        self.embedding = embedding
        tied = cfg.share_decoder_input_output_embed or cfg.share_all_embeddings
        dim = embed_dim if tied else width
        if cfg.component_dim not in (None, dim) and tied:
            raise FairseqDocError(
                "the output matrix is tied to the embedding, so --component-dim must be "
                f"--decoder-embed-dim, {embed_dim}; got {cfg.component_dim}"
            )
        output_matrix = embedding
        if not tied:
            output_matrix = nn.Parameter(torch.empty(len(dictionary), cfg.component_dim or dim))
        self.lstm = AttentionalLSTM(
            embed_dim,
            width,
            cfg.layers,
            cfg.dropout,
            str(cfg.attention_score),
            not cfg.no_input_feeding,
        )
        self.output = MixtureOutput(
            [embed_dim] + [width] * (cfg.layers + 1),
            self.components,
            output_matrix,
            str(cfg.doc_activation),
            project=not cfg.plain_output,
        )
        self.register_buffer(CHECKSUM, torch.tensor(dictionary_checksum(dictionary)))

    def forward(self, prev_output_tokens, encoder_out, incremental_state=None):
        """
        Args:
            prev_output_tokens: (R, T), the target shifted by one.
            encoder_out: of :class:`LuongEncoder`.
            incremental_state: where given, only the last token is read, after the state kept there.

        Returns:
            packed: (R, T, J d + J + 1), see :class:`MixtureOutput`; T = 1 with an
                ``incremental_state``.
            extra: ``log_weights`` (R, T, J); ``attn``, a list of one tensor (R, T, S), zero at
                padding.

        Raises:
            FairseqDocError: with an ``incremental_state``, a score that is not finite.
        """
        tokens, turn = prev_output_tokens, None
        left_padded = tokens[:, 0].eq(self.dictionary.pad())
        if incremental_state is not None:
            tokens = tokens[:, -1:]
        elif left_padded.any():
            turn = tokens.ne(self.dictionary.pad()).argsort(dim=1, descending=True, stable=True)
            tokens = tokens.gather(1, turn)
        prepared, state = self._before(encoder_out, incremental_state)
        embedded = embedded_dropout(self.embedding, tokens.t(), self.target_dropout, self.training)
        outputs, attentional, weights, state = self.lstm(embedded, prepared, state)
        if incremental_state is not None:
            self.get_incremental_state(incremental_state, "decoder").state = state
        layers = [embedded, *outputs, attentional]
        for n in (0, len(outputs), len(outputs) + 1):  # the others were dropped between layers
            if self.components[n] or n == len(outputs) + 1:
                mask = dropout_mask(layers[n].shape, self.dropout, self.training, layers[n])
                layers[n] = layers[n] if mask is None else layers[n] * mask
        packed, log_weights = self.output([h.transpose(0, 1) for h in layers])
        if incremental_state is not None:
            check_finite(packed.sum())
        weights = weights.transpose(0, 1)  # (R, T, S)
        if turn is not None:
            back = turn.argsort(dim=1).unsqueeze(2)
            packed, log_weights, weights = (
                x.gather(1, back.expand_as(x)) for x in (packed, log_weights, weights)
            )
        return packed, {"log_weights": log_weights, "attn": [weights]}

    def _before(self, encoder_out, incremental_state):
        """What holds for all steps, as the rows need it, and the state before the next one."""
        rows, kept = encoder_out["rows"], None
        if incremental_state is not None:
            kept = self.get_incremental_state(incremental_state, "decoder")
        if kept is None:
            first = (encoder_out[name].index_select(1, rows) for name in ("hidden", "cell"))
            kept = Decoding(
                self.lstm.prepare(encoder_out["memory"], encoder_out["padding"]),
                self.lstm.start(*first),
            )
            if incremental_state is not None:
                # The generator would take a score that is not a number for one of minus infinity.
                for parameter in (self.output.weight, self.output.bias):
                    check_finite(parameter.sum(dtype=torch.float32))
                self.set_incremental_state(incremental_state, "decoder", kept)
        return kept.of_rows(rows), kept.state

    def reorder_incremental_state(self, incremental_state, new_order):
        """Take the rows ``new_order`` of the state."""
        kept = self.get_incremental_state(incremental_state, "decoder")
        if kept is not None:
            kept.state = kept.state.of_rows(new_order)

    def get_normalized_probs(self, net_output, log_probs, sample=None):
        """(R, T, V) probabilities or their logarithms, in float32 or wider."""
        scores = self.output.log_probs(net_output[0])
        return scores if log_probs else scores.exp()

    def max_positions(self):
        """No limit but the task's."""
        return 10**9


@dataclass
class LSTMLuongDocConfig(FairseqDataclass):
    """The defaults are the paper's translation model with i_2 = i_3 = 2 (section 6.2)."""

    encoder_embed_dim: int = field(default=500, metadata={"help": "width of source embeddings"})
    decoder_embed_dim: int = field(default=500, metadata={"help": "width of target embeddings"})
    hidden_size: int = field(
        default=500, metadata={"help": "width D of the LSTM layers and the attentional vector"}
    )
    layers: int = field(
        default=2, metadata={"help": "LSTM layers of the decoder, and of the encoder a direction"}
    )
    dropout: float = field(
        default=0.3, metadata={"help": "of layer outputs, between layers and before the output"}
    )
    source_dropout: float = field(
        default=0.0, metadata={"help": "of whole words of the source's embedding"}
    )
    target_dropout: float = field(
        default=0.0, metadata={"help": "of whole words of the target's embedding"}
    )
    unidirectional_encoder: bool = field(
        default=False, metadata={"help": "an encoder that reads forward only"}
    )
    mix_directions: bool = field(
        default=False,
        metadata={
            "help": "after every encoder layer, both directions go on with their sum (parsing); "
            "without it they do not mix before the memory"
        },
    )
    no_input_feeding: bool = field(
        default=False,
        metadata={"help": "do not feed the attentional vector into the next step's first layer"},
    )
    attention_score: ChoiceEnum(list(SCORES)) = field(
        default="general", metadata={"help": "Luong attention's score of query and memory"}
    )
    doc_components: str = field(
        default="0,0,2,2",
        metadata={
            "help": "components from each layer, i_0,...: the target embedding, the LSTM layers, the "
            "attentional vector"
        },
    )
    doc_activation: ChoiceEnum(list(ACTIVATIONS)) = field(
        default="tanh", metadata={"help": "of the component vectors W_j h^n + b_j"}
    )
    plain_output: bool = field(
        default=False,
        metadata={
            "help": "one softmax straight from the attentional vector, the base system: no W_j and "
            "no activation; with --doc-components 0,0,0,1"
        },
    )
    component_dim: Optional[int] = field(
        default=None,
        metadata={"help": "width d of the component vectors (default: the layers')"},
    )
    share_decoder_input_output_embed: bool = field(
        default=False, metadata={"help": "tie the output matrix to the target embedding"}
    )
    share_all_embeddings: bool = field(
        default=False,
        metadata={"help": "one matrix for source, target and output (needs a joint dictionary)"},
    )
    encoder_embed_path: Optional[str] = field(
        default=None,
        metadata={"help": "pretrained source embeddings: a header, then word and numbers a line"},
    )
    decoder_embed_path: Optional[str] = field(
        default=None, metadata={"help": "pretrained target embeddings"}
    )


class LSTMLuongDoc(MixtureModel, FairseqEncoderDecoderModel):
    """An attentional encoder-decoder with a DOC output (Takase et al., 2018, section 6)."""

    @classmethod
    def build_model(cls, cfg, task):
        """
        Raises:
            FairseqDocError: settings that do not fit together.
        """
        source, target = task.source_dictionary, task.target_dictionary
        _check(cfg, source, target)
        of_source = nn.Parameter(torch.empty(len(source), cfg.encoder_embed_dim))
        of_target = of_source
        if not cfg.share_all_embeddings:
            of_target = nn.Parameter(torch.empty(len(target), cfg.decoder_embed_dim))
        encoder = LuongEncoder(cfg, source, of_source)
        decoder = LuongDocDecoder(cfg, target, of_target)
        model = cls(encoder, decoder)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.uniform_(-INITIAL_RANGE, INITIAL_RANGE)
            if cfg.encoder_embed_path:
                load_embedding_file(
                    of_source, cfg.encoder_embed_path, source, "--encoder-embed-path"
                )
            if cfg.decoder_embed_path:
                load_embedding_file(
                    of_target, cfg.decoder_embed_path, target, "--decoder-embed-path"
                )
        return model


def _check(cfg, source, target):
    check_rates(
        dropout=cfg.dropout, source_dropout=cfg.source_dropout, target_dropout=cfg.target_dropout
    )
    for name in ("encoder_embed_dim", "decoder_embed_dim", "hidden_size", "layers"):
        if getattr(cfg, name) < 1:
            option = "--" + name.replace("_", "-")
            raise FairseqDocError(f"{option} must be at least 1; got {getattr(cfg, name)}")
    if cfg.component_dim is not None and cfg.component_dim < 1:
        raise FairseqDocError(f"--component-dim must be at least 1; got {cfg.component_dim}")
    if cfg.mix_directions and cfg.unidirectional_encoder:
        raise FairseqDocError(
            "--mix-directions sums two directions: expected it without --unidirectional-encoder"
        )
    if not cfg.share_all_embeddings:
        return
    if source.symbols != target.symbols:
        raise FairseqDocError(
            "--share-all-embeddings expects one dictionary for both sides, got two that differ "
            f"({len(source)} and {len(target)} words); preprocess with --joined-dictionary"
        )
    if cfg.encoder_embed_dim != cfg.decoder_embed_dim:
        raise FairseqDocError(
            "--share-all-embeddings expects equal widths; got --encoder-embed-dim "
            f"{cfg.encoder_embed_dim} and --decoder-embed-dim {cfg.decoder_embed_dim}"
        )
    if cfg.decoder_embed_path not in (None, cfg.encoder_embed_path):
        raise FairseqDocError(
            "--share-all-embeddings expects one file of embeddings, --encoder-embed-path; got "
            f"--decoder-embed-path {cfg.decoder_embed_path} too"
        )


WIDTHS = ("encoder_embed_dim", "decoder_embed_dim", "hidden_size")

# What differs from the config's defaults.
PRESETS = {
    "lstm_luong_doc": {},
    "lstm_luong_doc_iwslt16": {},
    "lstm_luong_doc_gigaword": dict.fromkeys(WIDTHS, 400),
    "lstm_luong_doc_small": dict.fromkeys(WIDTHS, 256),
}

register_presets(LSTMLuongDoc, LSTMLuongDocConfig, PRESETS)
