"""Options of ``bptt_language_modeling``, and checks of their combinations."""

from dataclasses import dataclass
from typing import Any, List, Optional

from fairseq.dataclass import FairseqDataclass
from fairseq.utils import split_paths
from omegaconf import II, MISSING

from fairseq_doc.data.bptt_stream import TASK
from fairseq_doc.options import check_needs, check_ranges, option


@dataclass
class BpttLanguageModelingConfig(FairseqDataclass):
    """Options; fields without help are fairseq's own options."""

    data: str = option("folder written by fairseq-preprocess --only-source", MISSING)
    bptt: int = option("base length of a training window, in steps", 70, least=1)
    max_length_delta: int = option(
        "a training window has at most N steps more than --bptt", 40, least=0
    )
    eval_window: int = option(
        "tokens evaluated at once, over all columns (with one column, the length of the window); "
        "changes memory and speed, not results",
        1000,
        least=1,
    )
    updates_per_epoch: Optional[int] = option(
        "updates per epoch; each column starts at its own place and reads the whole text in a loop, "
        "in windows of exactly --bptt steps, and the state is carried over epochs (default: an epoch "
        "is one pass over the text, in windows of random length)",
        least=1,
    )
    partial_shuffle: bool = option(
        "rotate each training column by a new random offset in every epoch (Press, 2019)",
        False,
    )
    seed: int = II("common.seed")
    update_freq: List[int] = II("optimization.update_freq")
    max_epoch: int = II("optimization.max_epoch")
    train_subset: str = II("dataset.train_subset")
    valid_subset: str = II("dataset.valid_subset")
    valid_metric: str = II("checkpoint.best_checkpoint_metric")
    context_window: int = II("eval_lm.context_window")
    tokens_per_sample: int = II("task.bptt")  # fairseq-eval-lm lowers it by --context-window


# {option of fairseq's language modeling task: what replaces it}
NOT_OF_THIS_TASK = {
    "tokens-per-sample": "give --bptt, the length of a training window, or --eval-window",
    "sample-break-mode": "the text is one stream, cut into windows of --bptt steps; fairseq-doc "
    "score scores each sentence from a zero state",
    "add-bos-token": "each line follows </s> of the previous one; the first token is not scored",
    "shorten-method": "the text is one stream, so no line is too long",
}


def check_options(cfg: Any) -> None:
    """Raise ``FairseqDocError`` for options that cannot be combined."""
    check_ranges(BpttLanguageModelingConfig, cfg)
    update_freq = ",".join(map(str, cfg.update_freq))
    needs = {
        f"a single --update-freq; got {update_freq}": len(cfg.update_freq) == 1,
        f"a single data folder; got {cfg.data}": len(split_paths(cfg.data)) == 1,
        "no --partial-shuffle, which rotates columns of one pass": not cfg.partial_shuffle,
    }
    check_needs("--updates-per-epoch", needs, cfg.updates_per_epoch)
    is_apart = cfg.train_subset not in (cfg.valid_subset or "").split(",")
    needs = {
        f"--context-window 0; got {cfg.context_window}": not cfg.context_window,
        f"a --valid-subset without that of --train-subset; got {cfg.valid_subset}": is_apart,
    }
    check_needs(f"--task {TASK}", needs)


def check_batches(max_sentences: int | None, **others: Any) -> None:
    """Raise ``FairseqDocError`` for options of batches that do not define columns."""
    max_tokens = others.get("max_tokens")
    needs = {
        "no --skip-remainder-batch": not others.get("skip_remainder_batch"),
        f"--batch-size, the number of columns, without --max-tokens; got --batch-size "
        f"{max_sentences}, --max-tokens {max_tokens}": max_sentences and max_tokens is None,
    }
    check_needs(f"--task {TASK}", needs)
