"""Which source words a translation model attended to while it made its output.

Axes: T output time, S source time, both with their end mark.
"""

import os
from dataclasses import dataclass
from pathlib import Path

import torch
from fairseq.sequence_generator import SequenceGenerator

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.evaluation.ensemble import load_models

TASK = "translation"


@dataclass(frozen=True)
class Attention:
    """A sentence, its best output, and what each output word was made from."""

    source: list  # S symbols, the last </s>
    output: list  # T symbols, the last </s>
    weights: torch.Tensor  # (T, S), rows sum to one; of an ensemble, the mean
    log_prob: float  # of the output, natural logarithm


class Translator:
    """Beam search with the attention kept, over one model or an ensemble.

    Args:
        models: encoder-decoders over the dictionaries of ``task``.
        task: the ``translation`` task.
        beam: hypotheses kept at every step.
    """

    def __init__(self, models, task, beam=5):
        self.models = [model.eval() for model in models]
        self.task = task
        longest = task.cfg.max_target_positions
        # Scores are sums; the best output is the best mean, as fairseq-generate has it.
        self.generator = SequenceGenerator(
            self.models, task.target_dictionary, beam_size=beam, max_len=longest
        )

    def attend(self, text):
        """Translate one sentence.

        Args:
            text: symbols of the source dictionary, blanks between them, without an end mark.

        Returns:
            :class:`Attention`.

        Raises:
            FairseqDocError: more symbols than the models were trained to read; a model that has
                diverged.
        """
        dictionary = self.task.source_dictionary
        device = next(self.models[0].parameters()).device
        tokens = dictionary.encode_line(text, add_if_not_exist=False).long().to(device)
        longest = self.task.cfg.max_source_positions
        if len(tokens) > longest:
            raise FairseqDocError(
                f"expected at most {longest} symbols a sentence, as --max-source-positions of the "
                f"training says; got {len(tokens)}; split the sentence"
            )
        source = tokens.unsqueeze(0)
        lengths = torch.tensor([len(tokens)], device=device)
        sample = {"net_input": {"src_tokens": source, "src_lengths": lengths}}
        best = self.generator.generate(self.models, sample)[0][0]
        target = self.task.target_dictionary
        return Attention(
            [*text.split(), dictionary.symbols[dictionary.eos()]],
            [target.symbols[word] for word in best["tokens"].tolist()],
            best["attention"].t().float().cpu(),
            best["positional_scores"].sum().item(),
        )


def load_translator(paths, data, beam=5, device="cpu"):
    """Load a :class:`Translator`.

    Args:
        paths: checkpoints, ``a.pt:b.pt`` or a list.
        data: folder of ``fairseq-preprocess``, for its dictionaries.
        beam: see :class:`Translator`.
        device: where the models run.

    Raises:
        FairseqDocError: as :func:`fairseq_doc.evaluation.ensemble.load_models`.
    """
    if not any(Path(data).glob("dict.*.txt")):
        raise FairseqDocError(
            f"expected a folder of fairseq-preprocess, with a dictionary for each side; got {data}"
        )
    models, task = load_models(paths, TASK, {"data": os.fspath(data)})
    return Translator([model.to(device) for model in models], task, beam)
