"""Options of ``bptt_language_modeling``, and the check that they fit together."""

from dataclasses import dataclass
from typing import Any, List, Optional

from fairseq.dataclass import FairseqDataclass
from fairseq.utils import split_paths
from omegaconf import II, MISSING

from fairseq_doc.data.bptt_stream import TASK
from fairseq_doc.options import check_needs, check_ranges, option


@dataclass
class BpttLanguageModelingConfig(FairseqDataclass):
    """Options; those without help are fairseq's."""

    data: str = option("folder of fairseq-preprocess --only-source", MISSING)
    bptt: int = option("base length of a training window, in steps", 70, least=1)
    max_length_delta: int = option(
        "a training window has at most --bptt plus this many steps", 40, least=0
    )
    eval_window: int = option(
        "tokens evaluated at once, over all columns: with one column, the window's length; it "
        "changes memory and speed, not the result",
        1000,
        least=1,
    )
    updates_per_epoch: Optional[int] = option(
        "an epoch is as many updates; the columns start at places of their own and read the whole "
        "text round and round in windows of --bptt steps, without --max-length-delta, and no "
        "epoch's end resets the state (default: an epoch is one pass over the text, in windows of "
        "random length)",
        least=1,
    )
    partial_shuffle: bool = option(
        "rotate every training column by a random offset of its own in each epoch (Press, 2019)",
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


# {option of fairseq's task for language models: what replaces it}
NOT_OF_THIS_TASK = {
    "tokens-per-sample": "--bptt is the length of a training window, --eval-window of evaluation",
    "sample-break-mode": "the text is one stream, cut into windows of --bptt steps; fairseq-doc "
    "score scores each sentence from a zero state",
    "add-bos-token": "</s> of the line before precedes a line, and the first token is not scored",
    "shorten-method": "no line is too long, since the text is one stream",
}


def check_options(cfg: Any) -> None:
    """Raise ``FairseqDocError`` for options that do not fit together."""
    check_ranges(BpttLanguageModelingConfig, cfg)
    update_freq = ",".join(map(str, cfg.update_freq))
    needs = {
        f"one --update-freq, since all epochs are equally long, not {update_freq}": (
            len(cfg.update_freq) == 1
        ),
        f"one data folder, since columns read it round and round, not {cfg.data}": (
            len(split_paths(cfg.data)) == 1
        ),
        "columns without an end, not those of one pass, which --partial-shuffle rotates": (
            not cfg.partial_shuffle
        ),
    }
    check_needs("--updates-per-epoch", needs, cfg.updates_per_epoch)
    needs = {
        f"--context-window 0, since the state is carried over the text, not {cfg.context_window}": (
            not cfg.context_window
        ),
        f"other splits as --valid-subset than --train-subset, not {cfg.valid_subset}": (
            cfg.train_subset not in (cfg.valid_subset or "").split(",")
        ),
    }
    check_needs(f"--task {TASK}", needs)


def check_batches(max_sentences: int | None, **others: Any) -> None:
    """Raise ``FairseqDocError`` for batches that are no columns."""
    max_tokens = others.get("max_tokens")
    needs = {
        "all batches, since each has targets: expected no --skip-remainder-batch": (
            not others.get("skip_remainder_batch")
        ),
        f"--batch-size, the columns, and --bptt, the steps of a batch, and no --max-tokens; "
        f"got --batch-size {max_sentences}, --max-tokens {max_tokens}": (
            max_sentences is not None and max_tokens is None
        ),
    }
    check_needs(f"--task {TASK}", needs)
