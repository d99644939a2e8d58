"""``bptt_language_modeling``: one stream in ordered windows, with the state carried across them."""

import logging
import operator
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, List, Optional

import torch
from fairseq.data import Dictionary, iterators
from fairseq.dataclass import FairseqDataclass
from fairseq.distributed import utils as distributed_utils
from fairseq.tasks import FairseqTask, register_task
from fairseq.utils import split_paths
from omegaconf import II, MISSING

from fairseq_doc.data.bptt_stream import (
    TASK,
    BpttWindows,
    column_offsets,
    columns_of,
    draw_lengths,
    endless_columns,
    fixed_lengths,
    load_stream,
)
from fairseq_doc.errors import FairseqDocError
from fairseq_doc.optim.averaged_weights import AveragedAdam
from fairseq_doc.optim.nt_asgd import NTASGD
from fairseq_doc.optim.plateau import PlateauSchedule
from fairseq_doc.options import check_needs, check_ranges, option, refuse_options

logger = logging.getLogger(__name__)


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
        f"a --valid-subset that does not include --train-subset; got {cfg.valid_subset}": is_apart,
    }
    check_needs(f"--task {TASK}", needs)


def check_batches(max_sentences: int | None, **others: Any) -> None:
    """Raise ``FairseqDocError`` for batch options that do not give the number of columns."""
    max_tokens = others.get("max_tokens")
    needs = {
        "no --skip-remainder-batch": not others.get("skip_remainder_batch"),
        f"--batch-size, the number of columns, without --max-tokens or --max-tokens-valid; got "
        f"--batch-size {max_sentences}, {max_tokens} tokens": max_sentences and max_tokens is None,
    }
    check_needs(f"--task {TASK}", needs)


@register_task(TASK, dataclass=BpttLanguageModelingConfig)
class BpttLanguageModelingTask(FairseqTask):
    """Language modeling on a corpus in columns, read window by window (section 5 of the paper).

    ``--batch-size`` is the number of columns of one worker. In evaluation, ``--batch-size-valid``,
    or ``--batch-size`` of ``fairseq-eval-lm``, is that of all workers together.
    """

    def __init__(self, cfg, dictionary):
        super().__init__(cfg)
        self.dictionary = dictionary
        self._model: Any = None
        self._logged: set[tuple[str, int]] = set()  # (split, columns) whose sizes have been logged
        self._first_column = 0
        self._layout: Any = None  # of the training windows; a resume within an epoch needs the same
        self._windows_done = 0
        self._end_of_epoch = 0  # the number of the window after the epoch's last
        self._start: float | None = None  # when this process's first epoch started, in seconds
        self._windows_read = 0  # by this process
        self._epoch = 1
        self._drawn_lengths: list[int] = []  # of the windows in this update
        self._carried: torch.Tensor | None = None  # the training state for all workers' columns
        self._valid_epoch: int | None = None
        self._valid_loss: float | None = None

    @classmethod
    def add_args(cls, parser):
        super().add_args(parser)
        refuse_options(parser, NOT_OF_THIS_TASK)

    @classmethod
    def setup_task(cls, cfg, **kwargs):
        check_options(cfg)
        dictionary = Dictionary.load(f"{split_paths(cfg.data)[0]}/dict.txt")
        logger.info(f"dictionary: {len(dictionary):,} words")
        return cls(cfg, dictionary)

    source_dictionary = target_dictionary = property(lambda self: self.dictionary)

    def build_model(self, cfg, from_checkpoint=False):
        model = super().build_model(cfg, from_checkpoint)
        if not hasattr(getattr(model, "decoder", None), "carried_state"):
            name = getattr(cfg, "_name", None) or getattr(cfg, "arch", None)
            raise FairseqDocError(
                f"--task {TASK} needs an architecture that carries its state across windows, such "
                f"as lstm_doc_lm; got {name}"
            )
        self._model = model
        return model

    def load_dataset(self, split, epoch=1, combine=False, **kwargs):
        paths = split_paths(self.cfg.data)
        path = f"{paths[(epoch - 1) % len(paths)]}/{split}"
        self.datasets[split] = load_stream(path, split, self.dictionary, combine)

    def get_batch_iterator(
        self, dataset, *, max_sentences=None, num_shards=1, shard_id=0, epoch=1, **more
    ):
        """All workers read the same windows in order, each of its own columns."""
        check_batches(max_sentences, **more)
        if dataset.split == self.cfg.train_subset:
            n_columns = max_sentences * num_shards
            windows = self._training_windows(dataset, n_columns, num_shards, epoch)
            self._first_column = shard_id * max_sentences
        else:
            windows = self._evaluation_windows(dataset, max_sentences, num_shards)
        workers, buffer_size = more.get("num_workers", 0), more.get("data_buffer_size", 0)
        return _iterator(windows, num_shards, shard_id, workers, buffer_size, epoch)

    def eval_lm_dataloader(
        self, dataset, batch_size=None, num_shards=1, shard_id=0, num_workers=0, length=None, **more
    ):
        n_columns = 1 if batch_size is None else batch_size
        windows = self._evaluation_windows(dataset, n_columns, num_shards, length)
        iterator = _iterator(windows, num_shards, shard_id, num_workers)
        return iterator.next_epoch_itr(shuffle=False)

    def _training_windows(self, dataset, n_columns, num_shards, epoch):
        cfg, first_window, offsets = self.cfg, 0, None
        if cfg.updates_per_epoch is not None:
            n_windows = cfg.updates_per_epoch * cfg.update_freq[0]
            first_window, lengths = (epoch - 1) * n_windows, [cfg.bptt] * n_windows
            steps, eos = (first_window * cfg.bptt, n_windows * cfg.bptt), self.dictionary.eos()
            columns = endless_columns(dataset, n_columns, *steps, cfg.seed, eos)
            sizes = (
                f"{n_columns} columns read the {len(dataset):,} tokens in a loop, each starting at "
                "a line of its own"
            )
            self._log_once(dataset.split, n_columns, sizes)
        else:
            columns = self._columns(dataset, n_columns, num_shards)
            steps = columns.size(1) - 1
            lengths = draw_lengths(steps, cfg.bptt, cfg.max_length_delta, cfg.seed, epoch)
            if cfg.partial_shuffle:
                offsets = column_offsets(n_columns, steps + 1, cfg.seed, epoch)
        self._end_of_epoch = first_window + len(lengths)
        self._layout = {
            "columns": n_columns,
            "tokens": len(dataset),
            "windows": len(lengths),
            "bptt": cfg.bptt,
            "max_length_delta": None if cfg.updates_per_epoch else cfg.max_length_delta,
            "seed": cfg.seed,
            "partial_shuffle": cfg.partial_shuffle,
        }
        return BpttWindows(columns, lengths, 0, first_window, offsets)

    def _evaluation_windows(self, dataset, n_columns, num_shards, length=None):
        columns = self._columns(dataset, n_columns, num_shards)
        length = length or max(1, self.cfg.eval_window // n_columns)
        return BpttWindows(columns, fixed_lengths(columns.size(1) - 1, length))

    def _columns(self, dataset, n_columns, num_shards):
        if n_columns % num_shards:
            raise FairseqDocError(
                f"split {dataset.split!r}: the number of columns must be a multiple of the number "
                f"of workers, {num_shards}; got {n_columns}; give another --batch-size-valid "
                "(fairseq-eval-lm: --batch-size)"
            )
        columns = columns_of(dataset, n_columns)
        targets = n_columns * (columns.size(1) - 1)
        sizes = (
            f"{len(dataset):,} tokens in {n_columns} columns of {columns.size(1):,}; {targets:,} "
            f"targets scored, {len(dataset) - 1 - targets:,} left out"
        )
        self._log_once(dataset.split, n_columns, sizes)
        return columns

    def _log_once(self, split, n_columns, sizes):
        if (split, n_columns) not in self._logged:
            self._logged.add((split, n_columns))
            logger.info(f"{split}: {sizes}")

    def begin_epoch(self, epoch, model):
        """Log the remaining time at the current speed, including validations."""
        super().begin_epoch(epoch, model)
        self._epoch, self._drawn_lengths = epoch, []
        if self._start is None:
            self._start = time.monotonic()
        elif self._windows_read and epoch <= self.cfg.max_epoch:
            pace = (time.monotonic() - self._start) / self._windows_read
            per_epoch = pace * self._layout["windows"]
            left = timedelta(seconds=round((self.cfg.max_epoch - epoch + 1) * per_epoch))
            logger.info(
                f"epoch {epoch} of {self.cfg.max_epoch} begins; {per_epoch / 60:.0f} minutes per "
                f"epoch, {left} left"
            )

    def train_step(self, sample, model, criterion, optimizer, update_num, ignore_grad=False):
        _show(model, average=False)
        self._valid_loss = None  # a validation before this step was not at the end of the epoch
        window = sample["net_input"]["window"]
        per_update = self.cfg.update_freq  # in each epoch; the last number is for all further ones
        if len(self._drawn_lengths) == per_update[min(self._epoch, len(per_update)) - 1]:
            self._drawn_lengths = []  # with --fp16 fairseq skips an update that overflows
        if not self._drawn_lengths:
            self._model.decoder.begin_update(window)
        self._windows_done = window + 1
        self._windows_read += 1
        self._drawn_lengths.append(sample["drawn_length"])
        try:
            return super().train_step(sample, model, criterion, optimizer, update_num, ignore_grad)
        except RuntimeError:  # out of memory
            # fairseq skips the update with one worker, but not with several.
            if distributed_utils.get_data_parallel_world_size() == 1:
                self._drawn_lengths = []
            raise

    def optimizer_step(self, optimizer, model, update_num):
        """Update with the learning rate multiplied by the mean of (drawn length / ``--bptt``) over
        the windows."""
        lengths, self._drawn_lengths = self._drawn_lengths, []
        rate = optimizer.get_lr()
        optimizer.set_lr(rate * sum(lengths) / (self.cfg.bptt * len(lengths)))
        optimizer.step()
        optimizer.set_lr(rate)
        # Gather at every update, since ranks cannot know when another one saves.
        self._carried = _of_all_workers(self._model.decoder.carried_state())

    def begin_valid_epoch(self, epoch, model):
        self._valid_epoch, self._valid_loss = epoch, None
        _show(model, average=True)

    def post_validate(self, model, stats, agg):
        """Keep the loss of the first subset; at the end of an epoch, pass it to the plateau
        scheduler."""
        if self._valid_loss is not None:
            return
        self._valid_loss = float(stats[self.cfg.valid_metric])
        schedule = PlateauSchedule.of(model)
        if schedule is not None and self._windows_done == self._end_of_epoch:
            schedule.observe(self._valid_loss)

    def get_checkpoint_dict(self):
        """fairseq calls this before it saves, so here the averages are put into the model. The state
        has the validation loss, which the scheduler receives only later, and the carried state if
        the next window needs it."""
        _show(self._model, average=True)
        epoch_ended = self._windows_done == self._end_of_epoch
        resets = epoch_ended and self.cfg.updates_per_epoch is None
        validated = epoch_ended and self._valid_loss is not None
        return {
            type(self).__name__: {
                "layout": self._layout,
                "carried": None if resets else self._carried,
                "epoch_loss": [self._valid_epoch, self._valid_loss] if validated else None,
                "loss": self._valid_loss,
            }
        }

    def set_checkpoint_dict(self, state):
        """Restore the state. Raises ``FairseqDocError`` if the run is resumed within an epoch whose
        windows are now different."""
        if state["carried"] is not None:
            layout, own = state["layout"], self._layout
            if layout != own:
                differing = [k for k in own if layout.get(k) != own[k]]
                saved, given = ({k: each.get(k) for k in differing} for each in (layout, own))
                raise FairseqDocError(
                    f"the checkpoint was saved within an epoch: expected {saved}, got {given}; "
                    "resume with the same data and options, or give --reset-dataloader to start "
                    "again at epoch 1 with these weights"
                )
            share = layout["columns"] // distributed_utils.get_data_parallel_world_size()
            mine = slice(self._first_column, self._first_column + share)
            self._model.decoder.set_carried_state(state["carried"][mine])
            self._carried = state["carried"]
        nt_asgd = NTASGD.of(self._model)
        if nt_asgd is not None:
            nt_asgd.resume(state["epoch_loss"], state["loss"])


def _show(model, average):
    """Put the averages or the raw weights into the model, if the optimizer averages."""
    wrapper = NTASGD.of(model) or AveragedAdam.of(model)
    if wrapper is not None:
        wrapper.optimizer.show(average)


def _iterator(windows, num_shards, shard_id, num_workers, buffer_size=0, epoch=1):
    windows = windows.share(num_shards, shard_id)
    return iterators.EpochBatchIterator(
        dataset=windows,
        collate_fn=operator.itemgetter(0),  # a window is a batch already
        batch_sampler=[[i] for i in range(len(windows))],
        num_workers=num_workers,
        buffer_size=buffer_size,
        epoch=epoch,
        disable_shuffling=True,
    )


def _of_all_workers(state: torch.Tensor) -> torch.Tensor:
    """Gather (B, S) of each worker into (C, S), in the order of the workers."""
    if distributed_utils.get_data_parallel_world_size() == 1:
        return state
    group = distributed_utils.get_data_parallel_group()
    return torch.cat(distributed_utils.all_gather(state, group))
