"""Attention of a translation model from output words to source words.

Axes: T output time, S source time, both with their end mark.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from fairseq.sequence_generator import SequenceGenerator
from fairseq.tasks import FairseqTask

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.evaluation.ensemble import Paths, load_models

TRANSLATION = "translation"


@dataclass(frozen=True)
class Attention:
    """A sentence, its best output and the attention between them."""

    source: list[str]  # S symbols as the models read them, <unk> among them, the last </s>
    output: list[str]  # T symbols, the last </s>
    weights: torch.Tensor  # (T, S), rows sum to one; for an ensemble, the mean
    log_prob: float  # of the output, natural logarithm


class Translator:
    """Beam search that also returns the attention; ``task`` is a ``translation`` task."""

    def __init__(self, models: Sequence[torch.nn.Module], task: FairseqTask, beam: int = 5):
        self.models = [model.eval() for model in models]
        self.task = task
        longest = task.cfg.max_target_positions
        # The best output has the best mean log-probability, as in fairseq-generate.
        self.generator = SequenceGenerator(
            self.models, task.target_dictionary, beam_size=beam, max_len=longest
        )

    def attend(self, symbols: Sequence[str]) -> Attention:
        """Translate one sentence, given by its symbols without an end mark."""
        dictionary = self.task.source_dictionary
        device = next(self.models[0].parameters()).device
        indices = [*map(dictionary.index, symbols), dictionary.eos()]
        tokens = torch.tensor(indices, device=device)
        longest = self.task.cfg.max_source_positions
        if len(tokens) > longest:
            raise FairseqDocError(
                f"expected at most {longest} symbols a sentence, the --max-source-positions of the "
                f"training; got {len(tokens)}; split the sentence"
            )
        source = tokens.unsqueeze(0)  # (1, S)
        lengths = torch.tensor([len(tokens)], device=device)
        sample = {"net_input": {"src_tokens": source, "src_lengths": lengths}}
        best = self.generator.generate(self.models, sample)[0][0]
        target = self.task.target_dictionary
        return Attention(
            source=[dictionary.symbols[index] for index in indices],
            output=[target.symbols[word] for word in best["tokens"].tolist()],
            weights=best["attention"].t().float().cpu(),  # (T, S)
            log_prob=best["positional_scores"].sum().item(),
        )


def load_translator(
    paths: Paths,
    data: str | os.PathLike,
    beam: int = 5,
    device: str = "cpu",
    precision: str | None = None,
) -> Translator:
    """Load a :class:`Translator`; ``data`` is a folder of ``fairseq-preprocess``."""
    if not any(Path(data).glob("dict.*.txt")):
        raise FairseqDocError(
            f"expected a folder of fairseq-preprocess, with a dictionary for each side; got {data}"
        )
    models, task = load_models(paths, TRANSLATION, {"data": os.fspath(data)}, precision)
    return Translator([model.to(device) for model in models], task, beam)
