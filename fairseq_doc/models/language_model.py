"""Common parts of the language models: options and the carried state.

Axes: B streams, T time, D_n width of layer n (D_0 the embedding), J components, V vocabulary.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Optional

import torch
from fairseq.data import Dictionary
from fairseq.models import FairseqDecoder, FairseqLanguageModel
from torch import Tensor, nn

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.models.grown import grow
from fairseq_doc.models.mixture_model import (
    MixtureConfig,
    MixtureDecoder,
    MixtureModel,
    component_dim,
)
from fairseq_doc.models.state_dict import CHECKSUM, dictionary_checksum
from fairseq_doc.modules.awd_lstm import States
from fairseq_doc.modules.embedding_file import load_embedding_file
from fairseq_doc.modules.mixture import MixtureOutput
from fairseq_doc.options import option


@dataclass
class LanguageModelConfig(MixtureConfig):
    """Options of all language models."""

    untie_output: bool = option("do not tie the output matrix to the embedding", False)
    decoder_embed_path: Optional[str] = option(
        "file of pretrained embeddings, as wide as the embedding: a header (number of words, "
        "width), then one word and its numbers per line; without --untie-output they also "
        "initialise the output matrix"
    )
    mogrifier_rounds: int = option(
        "Mogrifier rounds, in which the input and state of each LSTM layer gate each other before a "
        "step (published: 5 for Penn Treebank, 6 for WikiText-2; 0: no Mogrifier)",
        0,
        least=0,
    )
    mogrifier_rank: Optional[int] = option(
        "rank of the Mogrifier's matrices, each then a product of two factors (published: 84 for "
        "Penn Treebank, 48 for WikiText-2; default: full matrices)",
        least=1,
    )


def embedding_and_output_matrix(
    cfg: Any, n_words: int, embed_dim: int, initialise: Callable[[Tensor], object]
) -> tuple[nn.Parameter, nn.Parameter]:
    """The embedding (V, D_0) and the output matrix (V, d), tied unless ``--untie-output``."""
    dim = component_dim(cfg, embed_dim, not cfg.untie_output, "or give --untie-output")
    widths = [embed_dim, dim] if cfg.untie_output else [embed_dim]
    matrices = [nn.Parameter(torch.empty(n_words, width)) for width in widths]
    for matrix in matrices:
        initialise(matrix)
    return matrices[0], matrices[-1]


class RecurrentDecoder(MixtureDecoder, FairseqDecoder, ABC):
    """Embedding (V, D_0), layers with the methods of :class:`AWDLSTM`, and mixture. The decoder
    itself keeps the states that are carried over windows, one in training and one in evaluation,
    since ``fairseq-eval-lm`` does no more than call it."""

    masks_of_each_stream: bool  # whether each stream of a batch has its own dropout masks

    def __init__(
        self, dictionary: Dictionary, embedding: nn.Parameter, lstm: Any, output: MixtureOutput
    ) -> None:
        super().__init__(dictionary)
        self.embedding, self.lstm, self.output = embedding, lstm, output
        self.register_buffer(CHECKSUM, dictionary_checksum(dictionary))
        # {window: the state before it}, for the windows of this update and the one after them.
        self._training_states: dict[int, States] = {}
        self.evaluation_states: dict[int, States] = {}
        self._samples_dropout = False

    @property
    def _states(self) -> dict[int, States]:
        return self._training_states if self.training else self.evaluation_states

    @property
    def dropping(self) -> bool:
        """True in training, and in evaluation with Monte-Carlo dropout."""
        return self.training or self._samples_dropout

    def sample_dropout(self, on: bool) -> None:
        """Turn Monte-Carlo dropout, which is dropout in evaluation, on or off."""
        self._samples_dropout = on
        for module in (self.lstm, self.output):
            module.train(on or self.training)

    @abstractmethod
    def embedded(self, tokens: Tensor) -> Tensor:
        """Tokens (T, B) -> their embeddings after dropout, (T, B, D_0)."""

    def forward(
        self, src_tokens: Tensor, window: int | None = None, src_lengths: Any = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Words (B, T), no padding -> the mixture's parameters (B, T, J d + J + 1), see
        :class:`MixtureOutput`; ``log_weights`` (B, T, J); h^N after dropout (``dropped``) and
        before it (``undropped``), each (T, B, D_N). Window 0 starts from zeros, and window k > 0
        from the state after window k - 1, also when window k is repeated. Without ``window`` the
        state starts from zeros and is not carried."""
        x = self.embedded(src_tokens.t())  # (T, B, D_0)
        before = self._state_before(window, x)
        outputs, undropped, after = self.lstm(x, before)
        if window is not None:
            self._keep(window, before, after)
        by_stream = [h.transpose(0, 1) for h in [x] + outputs]  # each (B, T, D_n)
        mixture_params, log_weights = self.output(by_stream)
        last = {"dropped": outputs[-1], "undropped": undropped}
        return mixture_params, {"log_weights": log_weights, **last}

    def _state_before(self, window: int | None, x: Tensor) -> States:
        batch = x.size(1)
        if not window:  # None or 0
            return self.lstm.zero_state(batch, x)
        states = self._states
        before = states.get(window)
        if before is None and states and self.training:
            # The first window after a resume, or after a window that did not fit into memory.
            before = states[max(states)]
        if before is None or before[0][0].size(1) != batch:
            raise FairseqDocError(
                f"the state of {batch} columns after window {window - 1} is missing: resume from a "
                "checkpoint of the same run, or give --reset-dataloader to start again at epoch 1 "
                "with its weights"
            )
        return before

    def _keep(self, window: int, before: States, after: States) -> None:
        """Keep both states, since fairseq may repeat a window: after an overflow (``--amp``), or in
        evaluation if memory runs out."""
        states = self._states
        if window == 0 or not self.training:
            states.clear()
        states[window] = before
        states[window + 1] = [tuple(part.detach() for part in layer) for layer in after]

    def begin_update(self, window: int) -> None:
        """Delete the training states that are not needed from ``window`` on."""
        states = self._training_states
        for earlier in [k for k in states if k < window and k != max(states)]:
            del states[earlier]

    def carried_state(self) -> Tensor | None:
        """The newest training state: h and c of each layer (only h in an RHN), concatenated to
        (B, S), where S is the sum of their widths. None before the first window."""
        states = self._training_states
        if not states:
            return None
        return torch.cat([part[0] for layer in states[max(states)] for part in layer], dim=1)

    def set_carried_state(self, state: Tensor) -> None:
        """Let the next training window continue from ``state``, see :meth:`carried_state`."""
        state = state.to(self.embedding.device, self.embedding.dtype)
        zeros = self.lstm.zero_state(len(state), state)
        widths = [part.size(2) for layer in zeros for part in layer]
        parts = iter(state.split(widths, dim=1))
        layers = [tuple(next(parts).unsqueeze(0).contiguous() for _ in layer) for layer in zeros]
        self._training_states = {0: layers}

    def reorder_evaluation_state(self, rows: Tensor) -> None:
        """Let the next window continue the streams ``rows`` (B',) of the last one, in this order;
        rows may repeat."""
        newest = max(self.evaluation_states)
        layers = self.evaluation_states[newest]
        layers = [tuple(part.index_select(1, rows) for part in layer) for layer in layers]
        self.evaluation_states[newest] = layers  # each part (1, B', D_n)


class MixtureLanguageModel(MixtureModel, FairseqLanguageModel):
    """A language model whose decoder is a :class:`RecurrentDecoder`."""

    decoder_class: ClassVar[type]  # made from the options and the dictionary

    @classmethod
    def build_model(cls, cfg: Any, task: Any) -> Any:
        """The model, with weights from ``--decoder-embed-path`` or ``--grow-from`` if given."""
        if hasattr(task, "src_dict"):
            raise FairseqDocError(
                "--arch: expected an encoder-decoder, such as lstm_luong_doc, for this task; got a "
                "language model"
            )
        decoder = cls.decoder_class(cfg, task.target_dictionary)
        model = grow(cls(decoder), cfg)
        if cfg.decoder_embed_path:
            load_embedding_file(decoder.embedding, cfg.decoder_embed_path, decoder.dictionary)
        return model
