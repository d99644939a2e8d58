"""Options of the task ``bptt_language_modeling``, and which of them cannot be honoured."""

from dataclasses import dataclass, field
from typing import Any, List, Optional

from fairseq.dataclass import FairseqDataclass
from fairseq.utils import split_paths
from omegaconf import II, MISSING

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.optim.nt_asgd import TASK


@dataclass
class BpttLanguageModelingConfig(FairseqDataclass):
    """Options of the task; those without help belong to other parts of fairseq."""

    data: str = field(
        default=MISSING, metadata={"help": "folder of fairseq-preprocess --only-source"}
    )
    bptt: int = field(default=70, metadata={"help": "base length of a training window, in steps"})
    max_length_delta: int = field(
        default=40, metadata={"help": "a training window has at most --bptt plus this many steps"}
    )
    eval_window: int = field(
        default=1000,
        metadata={"help": "tokens evaluated at once, over all columns: with one column, the "
                  "window's length; it changes memory and speed, not the result"},
    )  # fmt: skip
    updates_per_epoch: Optional[int] = field(
        default=None,
        metadata={"help": "an epoch is as many updates; the columns start at places of their own and "
                  "read the whole text round and round in windows of --bptt steps, without "
                  "--max-length-delta, and no epoch's end resets the state (default: an epoch is "
                  "one pass over the text, in windows of random length)"},
    )  # fmt: skip
    partial_shuffle: bool = field(
        default=False,
        metadata={"help": "rotate every training column by a random offset of its own in each epoch "
                  "(Press, 2019)"},
    )  # fmt: skip
    seed: int = II("common.seed")
    update_freq: List[int] = II("optimization.update_freq")
    train_subset: str = II("dataset.train_subset")
    valid_subset: str = II("dataset.valid_subset")
    valid_metric: str = II("checkpoint.best_checkpoint_metric")
    context_window: int = II("eval_lm.context_window")
    tokens_per_sample: int = II("task.bptt")  # fairseq-eval-lm lowers it by --context-window


def check_options(cfg: Any) -> None:
    """Raise ``FairseqDocError`` for options of the task that do not fit together."""
    for name in ("bptt", "eval_window"):
        if getattr(cfg, name) < 1:
            raise FairseqDocError(
                f"--{name.replace('_', '-')} must be at least 1 step; got {getattr(cfg, name)}"
            )
    if cfg.updates_per_epoch is not None and cfg.updates_per_epoch < 1:
        raise FairseqDocError(
            f"--updates-per-epoch must be at least 1; got {cfg.updates_per_epoch}"
        )
    if cfg.updates_per_epoch is not None and len(cfg.update_freq) != 1:
        raise FairseqDocError(
            "--updates-per-epoch needs the same number of batches in all updates: expected one "
            f"--update-freq; got {','.join(map(str, cfg.update_freq))}"
        )
    if cfg.updates_per_epoch is not None and len(split_paths(cfg.data)) != 1:
        raise FairseqDocError(
            "--updates-per-epoch reads one text round and round: expected one data folder; got "
            f"{cfg.data}"
        )
    if cfg.updates_per_epoch is not None and cfg.partial_shuffle:
        raise FairseqDocError(
            "--partial-shuffle rotates the columns of one pass over the text, and "
            "--updates-per-epoch has columns without an end: expected one of the two; got both"
        )
    if cfg.max_length_delta < 0:
        raise FairseqDocError(f"--max-length-delta must be at least 0; got {cfg.max_length_delta}")
    if (cfg.context_window or 0) > 0:
        raise FairseqDocError(
            f"--context-window: expected 0, because the state is carried over the whole text; got "
            f"{cfg.context_window}"
        )
    if cfg.train_subset in (cfg.valid_subset or "").split(","):
        raise FairseqDocError(
            f"--valid-subset: expected splits other than --train-subset, {cfg.train_subset}, "
            f"which is read in random windows; got {cfg.valid_subset}"
        )


def check_batches(
    max_sentences: int | None, max_tokens: int | None, skip_remainder_batch: bool
) -> None:
    """Raise ``FairseqDocError`` for batches that are no columns."""
    if skip_remainder_batch:
        raise FairseqDocError(
            "--skip-remainder-batch would leave targets unscored: expected it not to be given"
        )
    if max_sentences is None or max_tokens is not None:
        raise FairseqDocError(
            f"--task {TASK} cuts the text into --batch-size columns: expected --batch-size and "
            f"no --max-tokens; got --batch-size {max_sentences}, --max-tokens {max_tokens}"
        )
