"""NT-ASGD (Merity et al., 2018): SGD, the non-monotone trigger, averaging, fine-tuning stages.

``--optimizer nt_asgd --lr-scheduler nt_asgd``, always both: fairseq shows the validation loss to
the scheduler only. From the switch on, a weight has two values, the raw one that training goes on
with and the average that is validated and saved. The one that the model shows is exchanged with the
other, its *shadow*: before validation and saving the average is shown, before a training step the
raw value. A checkpoint holds both with the mark of which is which, so a resume needs no repair.
"""

import logging
import math
import os
import shutil
import weakref
from dataclasses import dataclass, field
from typing import List, Optional

import torch
from fairseq.dataclass import FairseqDataclass
from fairseq.distributed import utils as distributed_utils
from fairseq.optim import FairseqOptimizer, register_optimizer
from fairseq.optim.lr_scheduler import FairseqLRScheduler, register_lr_scheduler
from omegaconf import II

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.optim.training_stages import TrainingStages

logger = logging.getLogger(__name__)

NAME = "nt_asgd"
TASK = "bptt_language_modeling"
LAST_CHECKPOINT = "checkpoint_last.pt"


class AveragedSGD(torch.optim.Optimizer):
    """SGD with weight decay that, once told to, averages its iterates.

    The average is torch's ``ASGD`` with t0 = 0 and lambd = 0: after steps 1 and 2 of averaging it is
    the newest iterate, after step k > 2 the mean of iterates 2 .. k. Unlike torch's, a changed
    learning rate takes effect at the step it is set for.
    """

    def __init__(self, params, lr, weight_decay=0.0):
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay})
        self.param_groups[0].update(averaging=False, averaged_steps=0, shows_average=False)

    def _parameters(self):
        return [p for group in self.param_groups for p in group["params"]]

    @torch.no_grad()
    def step(self, closure=None):
        """One update of the raw weights; then the average, if it is on."""
        self.show_raw()
        for group in self.param_groups:
            params = [p for p in group["params"] if p.grad is not None]
            if group["weight_decay"]:
                torch._foreach_mul_(params, 1 - group["lr"] * group["weight_decay"])
            torch._foreach_add_(params, [p.grad for p in params], alpha=-group["lr"])
        common = self.param_groups[0]
        if common["averaging"]:
            common["averaged_steps"] += 1
            step = common["averaged_steps"]
            for p in self._parameters():
                if step <= 2:
                    self.state[p]["shadow"] = p.detach().clone()
                else:
                    self.state[p]["shadow"].lerp_(p, 1 / (step - 1))

    def start_averaging(self):
        """Average from the next step on."""
        self.param_groups[0]["averaging"] = True

    def show_average(self):
        """Put the averages into the parameters; nothing happens where there are none."""
        common = self.param_groups[0]
        if common["averaged_steps"] and not common["shows_average"]:
            self._exchange()

    def show_raw(self):
        """Put the raw weights back into the parameters."""
        if self.param_groups[0]["shows_average"]:
            self._exchange()

    def _exchange(self):
        for p in self._parameters():  # in place: a parameter's memory stays where it is
            shown, shadow = p.detach(), self.state[p]["shadow"]
            kept = shown.clone()
            shown.copy_(shadow)
            shadow.copy_(kept)
        self.param_groups[0]["shows_average"] ^= True

    def keep(self):
        """Remember the weights that the parameters show."""
        for p in self._parameters():
            self.state[p]["best"] = p.detach().clone()

    @torch.no_grad()
    def restart(self):
        """Go on from the kept weights with a fresh average."""
        self.param_groups[0].update(averaging=True, averaged_steps=0, shows_average=False)
        for p in self._parameters():
            p.copy_(self.state[p]["best"])
            self.state[p].pop("shadow", None)


@dataclass
class NTASGDConfig(FairseqDataclass):
    """Options of ``--optimizer nt_asgd``; those without help belong to other parts of fairseq."""

    weight_decay: float = field(default=0.0, metadata={"help": "weight decay of the raw weights"})
    nonmono: int = field(
        default=60,
        metadata={"help": "non-monotone interval n: averaging starts after an epoch whose "
                  "validation loss is worse than the best of all but the last n"},
    )  # fmt: skip
    finetune_stages: int = field(
        default=0,
        metadata={"help": "fine-tuning stages after averaging, each from the best model so far "
                  "with a fresh average; -1: until one does not lower the best validation loss; "
                  "0: none, averaging goes on to --max-epoch. Stage k's best model is kept as "
                  "checkpoint_best_stage{k}.pt, that of the training before them as stage 0's; a run "
                  "that --max-update or --patience ends writes its last epoch's on the next resume"},
    )  # fmt: skip
    lr: List[float] = II("optimization.lr")
    lr_scheduler_name: str = II("lr_scheduler._name")
    task_name: str = II("task._name")
    save_dir: str = II("checkpoint.save_dir")
    restore_file: str = II("checkpoint.restore_file")
    continue_once: Optional[str] = II("checkpoint.continue_once")
    checkpoint_suffix: str = II("checkpoint.checkpoint_suffix")
    save_interval: int = II("checkpoint.save_interval")
    # fairseq resolves an interpolated bool only under its option's own name.
    disable_validation: bool = II("dataset.disable_validation")
    fp16: bool = II("common.fp16")
    bf16: bool = II("common.bf16")
    maximize_best_checkpoint_metric: bool = II("checkpoint.maximize_best_checkpoint_metric")
    no_save: bool = II("checkpoint.no_save")
    no_last_checkpoints: bool = II("checkpoint.no_last_checkpoints")
    write_checkpoints_asynchronously: bool = II("checkpoint.write_checkpoints_asynchronously")


@register_optimizer(NAME, dataclass=NTASGDConfig)
class NTASGD(FairseqOptimizer):
    """fairseq's wrapper: settings, the trigger, and the way from a model to its optimizer."""

    _by_parameter = weakref.WeakValueDictionary()

    def __init__(self, cfg, params):
        super().__init__(cfg)
        check_settings(cfg)
        params = list(params)
        self._optimizer = AveragedSGD(params, lr=cfg.lr[0], weight_decay=cfg.weight_decay)
        self.trigger = TrainingStages(cfg.nonmono, cfg.finetune_stages)
        NTASGD._by_parameter[id(params[0])] = self

    @classmethod
    def of(cls, model):
        """The optimizer that trains ``model``, or None. fairseq's hooks for validation and saving
        pass the model but never the optimizer."""
        first = next((p for p in model.parameters() if p.requires_grad), None)
        return cls._by_parameter.get(id(first))

    @property
    def optimizer_config(self):
        """What the command line may change on a resume."""
        return {"lr": self.cfg.lr[0], "weight_decay": self.cfg.weight_decay}

    def resume(self, epoch_loss, loss):
        """Go on from a checkpoint that has just been loaded.

        Args:
            epoch_loss: the epoch whose end it was saved at, and its validation loss, which the
                trigger has not seen yet; or None.
            loss: the validation loss of its weights, in mid-epoch too; or None.

        Raises:
            FairseqDocError: fine-tuning stages are asked for now and not when it was saved, and its
                weights are not the best of that run.
        """
        kept = any("best" in state for state in self._optimizer.state.values())
        if self.cfg.finetune_stages and not kept and self.trigger.best < math.inf:
            self._begin_with_best(epoch_loss, loss)
        if epoch_loss is not None:
            self.observe(*epoch_loss, resumed=True)

    def _begin_with_best(self, epoch_loss, loss):
        trigger = self.trigger
        if loss is None or loss > trigger.best:
            raise FairseqDocError(
                "--finetune-stages starts from the best weights so far, and a run without stages "
                "keeps them in checkpoint_best.pt alone: expected --restore-file "
                f"{os.path.join(self.cfg.save_dir, 'checkpoint_best.pt')}; got a checkpoint saved "
                f"after the best loss, {trigger.best}"
            )
        trigger.best = trigger.stage_best = math.inf
        if epoch_loss is None:  # validated in mid-epoch: the trigger will not see it
            trigger.best = trigger.stage_best = loss
            self._optimizer.keep()
            if not self.cfg.no_save:
                self._keep_checkpoint(max(trigger.stage, 0), resumed=True)

    def observe(self, epoch, loss, resumed=False):
        """Take an epoch's validation loss and do what the trigger says. The epoch's checkpoint is
        already written: fairseq saves first; ``resumed``: it has just been read."""
        trigger, finetuning = self.trigger, self.cfg.finetune_stages != 0
        stage, stage_best = max(trigger.stage, 0), min(trigger.stage_best, loss)
        for step in trigger.observe(epoch, loss):
            if step == "keep_in_stage" and finetuning and not self.cfg.no_save:
                self._keep_checkpoint(stage, resumed)
            elif step == "keep" and finetuning:
                self._optimizer.keep()
            elif step == "average":
                logger.info(f"averaging starts after epoch {epoch}")
                self._optimizer.start_averaging()
            elif step == "restart":
                logger.info(f"stage {stage} ended with epoch {epoch}: best loss {stage_best}")
                logger.info(f"fine-tuning stage {trigger.stage} starts after epoch {epoch}")
                self._optimizer.restart()
            elif step == "stop":
                logger.info(f"stage {stage} ended with epoch {epoch}: best loss {stage_best}")
                logger.info(f"fine-tuning ends; the best loss of all stages is {trigger.best}")

    def _keep_checkpoint(self, stage, resumed):
        if distributed_utils.get_global_rank() != 0:
            return
        cfg = self.cfg
        newest = os.path.join(cfg.save_dir, f"checkpoint_last{cfg.checkpoint_suffix}.pt")
        if resumed and cfg.restore_file != LAST_CHECKPOINT:
            newest = cfg.restore_file.replace(".pt", f"{cfg.checkpoint_suffix}.pt")
        elif resumed and cfg.continue_once and not os.path.exists(newest):
            newest = cfg.continue_once
        name = f"checkpoint_best_stage{stage}{cfg.checkpoint_suffix}.pt"
        kept = os.path.join(cfg.save_dir, name)
        os.makedirs(cfg.save_dir, exist_ok=True)
        shutil.copyfile(newest, f"{kept}.part")
        os.replace(f"{kept}.part", kept)  # never half of one

    def state_dict(self):
        """The torch optimizer's state and the trigger's."""
        return {**self._optimizer.state_dict(), "trigger": self.trigger.state_dict()}

    def load_state_dict(self, state_dict, optimizer_overrides=None):
        """Undo :meth:`state_dict`; the learning rate and weight decay stay the command line's."""
        state_dict = dict(state_dict)
        self.trigger.load_state_dict(state_dict.pop("trigger"))
        super().load_state_dict(
            state_dict, {**self.optimizer_config, **(optimizer_overrides or {})}
        )


def check_settings(cfg):
    """Raise ``FairseqDocError`` for settings under which averaging would silently not happen."""
    if cfg.lr_scheduler_name != NAME:
        raise FairseqDocError(
            f"--optimizer {NAME} needs --lr-scheduler {NAME}, which shows it the validation loss; "
            f"got --lr-scheduler {cfg.lr_scheduler_name}"
        )
    if cfg.task_name != TASK:
        raise FairseqDocError(
            f"--optimizer {NAME} needs --task {TASK}, which puts the averages into validation and "
            f"checkpoints; got --task {cfg.task_name}"
        )
    if cfg.fp16 or cfg.bf16:
        raise FairseqDocError(
            f"--optimizer {NAME} averages the model's own float32 weights: expected --amp (or no "
            f"half precision); got {'--fp16' if cfg.fp16 else '--bf16'}"
        )
    if cfg.maximize_best_checkpoint_metric:
        raise FairseqDocError(
            f"--optimizer {NAME} takes lower for better: expected a loss as "
            "--best-checkpoint-metric; got --maximize-best-checkpoint-metric"
        )
    if len(cfg.lr) != 1:
        raise FairseqDocError(
            f"--lr-scheduler {NAME} keeps the learning rate constant: expected one --lr; got "
            f"{','.join(map(str, cfg.lr))}"
        )
    if cfg.disable_validation:
        logger.warning("without validation, averaging never starts: --disable-validation is given")
    for name, value, least in (
        ("nonmono", cfg.nonmono, 0),
        ("finetune-stages", cfg.finetune_stages, -1),
    ):
        if value < least:
            raise FairseqDocError(f"--{name} must be at least {least}; got {value}")
    if cfg.finetune_stages and not cfg.no_save:
        missing = {
            "--no-last-checkpoints": cfg.no_last_checkpoints,
            f"--save-interval {cfg.save_interval}": cfg.save_interval != 1,
            "--write-checkpoints-asynchronously": cfg.write_checkpoints_asynchronously,
        }
        if any(missing.values()):
            raise FairseqDocError(
                "--finetune-stages copies the best model of each stage from checkpoint_last.pt: "
                "expected it written at the end of every epoch; got "
                f"{' '.join(option for option, given in missing.items() if given)}"
            )


@dataclass
class NTASGDScheduleConfig(FairseqDataclass):
    """``--lr-scheduler nt_asgd`` has no options of its own."""

    lr: List[float] = II("optimization.lr")
    stop_min_lr: float = II("optimization.stop_min_lr")


@register_lr_scheduler(NAME, dataclass=NTASGDScheduleConfig)
class NTASGDSchedule(FairseqLRScheduler):
    """A constant learning rate; hands the validation loss to the optimizer, and ends the run, by a
    rate that fairseq takes for the end, when the trigger says so."""

    def __init__(self, cfg, optimizer):
        # Under --amp fairseq wraps the optimizer.
        self.nt_asgd = getattr(optimizer, "fp32_optimizer", None) or optimizer
        if not isinstance(self.nt_asgd, NTASGD):
            raise FairseqDocError(
                f"--lr-scheduler {NAME} needs --optimizer {NAME}; got the optimizer "
                f"{type(self.nt_asgd).__name__}"
            )
        super().__init__(cfg, optimizer)

    def step(self, epoch, val_loss=None):
        """After an epoch: ``val_loss`` is None where it was not validated, and on a resume."""
        super().step(epoch, val_loss)
        if val_loss is not None:
            self.nt_asgd.observe(epoch, val_loss)
        return self.step_update(None)

    def step_update(self, num_updates):
        """The learning rate of the next update."""
        stopped = self.nt_asgd.trigger.stopped
        self.optimizer.set_lr(self.cfg.stop_min_lr if stopped else self.cfg.lr[0])
        return self.optimizer.get_lr()
