"""Perplexity of a split, the state carried over the whole text: the evaluator."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Evaluation:
    """What a text cost.

    Attributes:
        nll: the sum of -log P over the targets, in nats.
        tokens: the number of targets.
        left_out: tokens of the text that are no target, but for its first.
    """

    nll: float
    tokens: int
    left_out: int = 0

    @property
    def perplexity(self):
        """e^(nll / tokens); infinite where that is beyond float64."""
        try:
            return math.exp(self.nll / self.tokens)
        except OverflowError:
            return math.inf

    @property
    def bits(self):
        """NLL a token, base 2, as fairseq logs losses."""
        return self.nll / self.tokens / math.log(2)


def unchanged(iterable, _name):
    """Progress that is not shown."""
    return iterable


def evaluate(ensemble, split, columns=1, progress=unchanged):
    """Score a split in ``columns`` columns, each window going on from the state before it.

    Args:
        ensemble: see :class:`fairseq_doc.evaluation.ensemble.Ensemble`.
        split: ``valid``, ``test`` or another split of the task's folder.
        columns: 1 for final figures; more cut the text, and leave out what does not fill them.
        progress: (iterable with a length, name) -> iterable, see the command line's bars.

    Returns:
        :class:`Evaluation`.

    Raises:
        FairseqDocError: no such split, one too short, or a score that is not finite.
    """
    nll = tokens = 0
    for sample in progress(windows_of(ensemble, split, columns), f"eval-lm {split}"):
        log_probs = ensemble.token_log_probs(
            sample["net_input"]["src_tokens"].to(ensemble.device),
            sample["target"].to(ensemble.device),
            sample["net_input"]["window"],
        )
        nll -= log_probs.sum().item()
        tokens += len(log_probs)
    return Evaluation(nll, tokens, len(ensemble.task.dataset(split)) - 1 - tokens)


def windows_of(ensemble, split, columns=1):
    """The windows of a split, in order, as the task's batches."""
    ensemble.task.load_dataset(split)
    return ensemble.task.eval_lm_dataloader(ensemble.task.dataset(split), batch_size=columns)
