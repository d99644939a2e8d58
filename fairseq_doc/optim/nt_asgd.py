"""NT-ASGD (Merity et al., 2018): SGD, then averaging, then fine-tuning stages.

Both ``--optimizer nt_asgd`` and ``--lr-scheduler nt_asgd`` are needed, since fairseq passes the
validation loss only to the scheduler. During averaging the averages are validated and saved
(``averaged_weights.py``).
"""

import logging
import math
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, List, Optional

import torch
from fairseq import checkpoint_utils
from fairseq.dataclass import FairseqDataclass
from fairseq.distributed import utils as distributed_utils
from fairseq.optim import FairseqOptimizer, register_optimizer
from fairseq.optim.lr_scheduler import FairseqLRScheduler, register_lr_scheduler
from omegaconf import II

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.files import copy_file
from fairseq_doc.optim.averaged_weights import (
    FLOAT32,
    AveragedWeights,
    FoundByModel,
    needs_of_validation_losses,
    unwrapped,
)
from fairseq_doc.optim.training_stages import TrainingStages
from fairseq_doc.options import check_needs, check_ranges, option

logger = logging.getLogger(__name__)

NAME = "nt_asgd"
LAST_CHECKPOINT = "checkpoint_last.pt"


class AveragedSGD(AveragedWeights, torch.optim.Optimizer):
    """SGD with weight decay and, after :meth:`start_averaging`, an average of its iterates, as in
    torch's ``ASGD`` with t0 = 0 and lambd = 0: after step k of averaging it is the mean of iterates
    2 .. k, and after step 1 the first. Unlike in torch, a changed learning rate takes effect at
    once. The state includes that of the stages, since with ``--amp`` fairseq saves only this
    optimizer."""

    def __init__(
        self,
        params: Iterable[torch.nn.Parameter],
        lr: float,
        stages: TrainingStages,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay})
        self.stages = stages

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # without a closure
        self.show(average=False)
        group = self._group
        params = [p for p in group["params"] if p.grad is not None]
        if group["weight_decay"]:
            torch._foreach_mul_(params, 1 - group["lr"] * group["weight_decay"])
        torch._foreach_add_(params, [p.grad for p in params], alpha=-group["lr"])
        self.average(left_out=1)

    def keep_best(self) -> None:
        """Keep a copy of the weights that the model has now as the best ones."""
        for p in self._group["params"]:
            self.state[p]["best"] = p.detach().clone()

    @torch.no_grad()
    def restart(self) -> None:
        """Go back to the best weights, and start a new average."""
        self.reset_average()
        self.start_averaging()
        for p in self._group["params"]:
            p.copy_(self.state[p]["best"])
            self.state[p].pop("shadow", None)

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "trigger": self.stages.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the state, but keep the learning rate and weight decay given by the options."""
        settings = {name: self._group[name] for name in ("lr", "weight_decay")}
        self.stages.load_state_dict(state_dict["trigger"])
        super().load_state_dict({k: v for k, v in state_dict.items() if k != "trigger"})
        self._group.update(settings)


@dataclass
class NTASGDConfig(FairseqDataclass):
    """Options; fields without help are fairseq's own options."""

    weight_decay: float = option("weight decay of the raw weights", 0.0)
    nonmono: int = option(
        "non-monotone interval n: averaging starts after an epoch whose validation loss is worse "
        "than the best of the losses more than n epochs earlier",
        60,
        least=0,
    )
    finetune_stages: int = option(
        "number of fine-tuning stages after averaging, each with a new average from the best model "
        "so far, checkpoint_best.pt, which is then saved only at the end of an epoch (0: none; -1: "
        "until a stage does not lower the best validation loss). The best model of stage k is kept "
        "as checkpoint_best_stage{k}.pt; stage 0 is the training before fine-tuning. If --max-update "
        "or --patience ends the training, and its last epoch was the stage's best, this file gets "
        "that model only on the next resume",
        0,
        least=-1,
    )
    lr: List[float] = II("optimization.lr")
    lr_scheduler_name: str = II("lr_scheduler._name")
    task_name: str = II("task._name")
    save_dir: str = II("checkpoint.save_dir")
    restore_file: str = II("checkpoint.restore_file")
    continue_once: Optional[str] = II("checkpoint.continue_once")
    checkpoint_suffix: str = II("checkpoint.checkpoint_suffix")
    save_interval: int = II("checkpoint.save_interval")
    # fairseq resolves an interpolated bool only if the field has the name of the option.
    disable_validation: bool = II("dataset.disable_validation")
    fp16: bool = II("common.fp16")
    bf16: bool = II("common.bf16")
    maximize_best_checkpoint_metric: bool = II("checkpoint.maximize_best_checkpoint_metric")
    no_save: bool = II("checkpoint.no_save")
    no_last_checkpoints: bool = II("checkpoint.no_last_checkpoints")
    write_checkpoints_asynchronously: bool = II("checkpoint.write_checkpoints_asynchronously")


@register_optimizer(NAME, dataclass=NTASGDConfig)
class NTASGD(FoundByModel, FairseqOptimizer):
    """fairseq's wrapper, which also keeps the best checkpoint of each stage."""

    def __init__(self, cfg: Any, params: Iterable[torch.nn.Parameter]) -> None:
        super().__init__(cfg)
        check_settings(cfg)
        params = list(params)
        self.stages = TrainingStages(cfg.nonmono, cfg.finetune_stages)
        self._optimizer = AveragedSGD(params, cfg.lr[0], self.stages, cfg.weight_decay)
        self.found_by(params)

    @property
    def best_at_epoch_ends(self) -> bool:
        """Whether checkpoint_best.pt is saved only at the end of an epoch, for fine-tuning."""
        return self.cfg.finetune_stages != 0

    def resume(self, epoch_loss: tuple[int, float] | None, loss: float | None) -> None:
        """Resume from a loaded checkpoint whose weights have the validation loss ``loss``. If it was
        saved at the end of an epoch, ``epoch_loss`` is (epoch, its loss), which has not been passed
        to :meth:`observe`. Raises ``FairseqDocError`` if ``--finetune-stages`` is new and the
        weights are not the best ones."""
        has_best = any("best" in state for state in self._optimizer.state.values())
        if self.cfg.finetune_stages and not has_best:
            self._begin_finetuning(epoch_loss, loss)
        if epoch_loss is not None:
            epoch, value = epoch_loss
            self.observe(epoch, value, resumed=True)

    def _begin_finetuning(self, epoch_loss, loss):
        stages, cfg, newest = self.stages, self.cfg, self._file_of("last")
        observed = stages.best < math.inf  # False in the first epoch and at its end
        if observed and (loss is None or loss > stages.best):
            raise FairseqDocError(
                "--finetune-stages starts from the best weights, which a run without stages keeps "
                "only in checkpoint_best.pt: expected --restore-file "
                f"{os.path.join(cfg.save_dir, 'checkpoint_best.pt')}; got a checkpoint saved "
                f"after the best loss, {stages.best}"
            )
        if not cfg.no_save and cfg.restore_file != LAST_CHECKPOINT and os.path.exists(newest):
            saved = (
                checkpoint_utils.load_checkpoint_to_cpu(newest).get("last_optimizer_state") or {}
            )
            if any("best" in state for state in saved.get("state", {}).values()):
                raise FairseqDocError(
                    f"the fine-tuning has already started in {newest}: leave out --restore-file to "
                    f"resume it, or give another --save-dir to start again from {cfg.restore_file}"
                )
        if observed:
            stages.best = stages.stage_best = math.inf
        if observed and epoch_loss is None:  # within an epoch: this loss will not be observed
            stages.best = stages.stage_best = loss
            self._optimizer.keep_best()
            self._copy_checkpoint(max(stages.stage, 0), resumed=True)

    def observe(self, epoch: int, loss: float, resumed: bool = False) -> None:
        """Receive an epoch's validation loss and act as :class:`TrainingStages` decides. The
        checkpoint of the epoch has already been written, or (``resumed``) just been loaded."""
        stages, finetuning = self.stages, self.cfg.finetune_stages != 0
        stage, stage_best = max(stages.stage, 0), min(stages.stage_best, loss)
        for action in stages.observe(epoch, loss):
            if action in ("restart", "stop"):
                logger.info(f"stage {stage} ended with epoch {epoch}: best loss {stage_best}")
            if action == "keep_best_of_stage" and finetuning:
                self._copy_checkpoint(stage, resumed)
            elif action == "keep_best" and finetuning:
                self._optimizer.keep_best()
            elif action == "average":
                logger.info(f"averaging starts after epoch {epoch}")
                self._optimizer.start_averaging()
            elif action == "restart":
                logger.info(f"fine-tuning stage {stages.stage} starts after epoch {epoch}")
                self._optimizer.restart()
            elif action == "stop":
                logger.info(f"fine-tuning ends; the best loss of all stages is {stages.best}")

    def _copy_checkpoint(self, stage: int, resumed: bool) -> None:
        if self.cfg.no_save or distributed_utils.get_global_rank() != 0:
            return
        cfg, newest = self.cfg, self._file_of("last")
        if resumed and cfg.restore_file != LAST_CHECKPOINT:
            newest = cfg.restore_file.replace(".pt", f"{cfg.checkpoint_suffix}.pt")
        elif resumed and cfg.continue_once and not os.path.exists(newest):
            newest = cfg.continue_once
        os.makedirs(cfg.save_dir, exist_ok=True)
        copy_file(newest, self._file_of(f"best_stage{stage}"))

    def _file_of(self, kind: str) -> str:
        return os.path.join(self.cfg.save_dir, f"checkpoint_{kind}{self.cfg.checkpoint_suffix}.pt")


def check_settings(cfg: Any) -> None:
    """Raise ``FairseqDocError`` for settings that averaging does not support."""
    check_ranges(NTASGDConfig, cfg)
    needs = {
        f"--lr-scheduler {NAME}; got {cfg.lr_scheduler_name}": cfg.lr_scheduler_name == NAME,
        FLOAT32: not (cfg.fp16 or cfg.bf16),
        **needs_of_validation_losses(cfg),
    }
    check_needs(f"--optimizer {NAME}", needs)
    if cfg.disable_validation:
        logger.warning("averaging never starts, since --disable-validation is given")
    if not cfg.no_save:
        needs = {
            f"--save-interval 1; got {cfg.save_interval}": cfg.save_interval == 1,
            "no --no-last-checkpoints": not cfg.no_last_checkpoints,
            "no --write-checkpoints-asynchronously": not cfg.write_checkpoints_asynchronously,
        }
        copies = "--finetune-stages, which copies checkpoint_last.pt at the end of every epoch,"
        check_needs(copies, needs, cfg.finetune_stages)


@dataclass
class NTASGDScheduleConfig(FairseqDataclass):
    """The scheduler has no options of its own."""

    lr: List[float] = II("optimization.lr")
    stop_min_lr: float = II("optimization.stop_min_lr")


@register_lr_scheduler(NAME, dataclass=NTASGDScheduleConfig)
class NTASGDSchedule(FairseqLRScheduler):
    """A constant learning rate; after the last stage it is ``--stop-min-lr``, at which fairseq
    stops. The scheduler passes the validation loss to the optimizer."""

    def __init__(self, cfg: Any, optimizer: Any) -> None:
        self.nt_asgd = unwrapped(optimizer)
        if not isinstance(self.nt_asgd, NTASGD):
            raise FairseqDocError(
                f"--lr-scheduler {NAME} needs --optimizer {NAME}; got the optimizer "
                f"{type(self.nt_asgd).__name__}"
            )
        super().__init__(cfg, optimizer)

    def step(self, epoch: int, val_loss: float | None = None) -> float:
        """End an epoch. ``val_loss`` is None without validation, and on a resume. fairseq's ``best``
        is not kept, since a resume would leave out the loss of its checkpoint."""
        if val_loss is not None:
            self.nt_asgd.observe(epoch, val_loss)
        return self.step_update(None)

    def step_update(self, num_updates: int | None) -> float:
        stopped = self.nt_asgd.stages.stopped
        self.optimizer.set_lr(self.cfg.stop_min_lr if stopped else self.cfg.lr[0])
        return self.optimizer.get_lr()
