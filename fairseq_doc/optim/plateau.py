"""``--lr-scheduler plateau`` (Melis et al., 2018): validation losses decide when to lower the
learning rate, start averaging and stop.

A check is the validation at the end of an epoch (every K updates with ``--updates-per-epoch K``).
The task passes the loss on before fairseq saves, so that a checkpoint includes it.
"""

import logging
import math
from dataclasses import dataclass
from typing import Any, List

from fairseq.dataclass import FairseqDataclass
from fairseq.optim.lr_scheduler import FairseqLRScheduler, register_lr_scheduler
from omegaconf import II

from fairseq_doc.optim.averaged_weights import (
    ADAM,
    FoundByModel,
    needs_of_validation_losses,
    unwrapped,
)
from fairseq_doc.options import check_needs, check_ranges, option

logger = logging.getLogger(__name__)

NAME = "plateau"


@dataclass
class PlateauScheduleConfig(FairseqDataclass):
    """Options; fields without help are fairseq's own options."""

    lr_shrink: float = option(
        "factor by which the learning rate is multiplied when the loss stops falling", 0.1
    )
    lr_patience: int = option(
        "lower the learning rate after more than N checks (validations at the end of an epoch) "
        "since the best one and since the last drop",
        30,
        least=0,
    )
    drop_at: int = option(
        "latest check at which the learning rate is first lowered (0: no limit)", 0, least=0
    )
    average_patience: int = option(
        "with --optimizer averaged_adam: start averaging N checks after the best one (0: off)",
        0,
        least=0,
    )
    average_at: int = option(
        "with --optimizer averaged_adam: latest check at which averaging starts (0: off)",
        0,
        least=0,
    )
    max_checks: int = option(
        "stop after N checks (0: only by --max-update or --max-epoch)", 0, least=0
    )
    stop_patience: int = option(
        "stop after more than N checks without a new best loss (0: off)", 0, least=0
    )
    stop_ramp: int = option(
        "let --stop-patience grow from 1 to its full value over the first N checks", 0, least=0
    )
    stop_above: str = option(
        "stop if the best loss, extrapolated to --max-checks from the last --stop-patience (or "
        "--lr-patience) checks, stays above this limit, in the unit of --best-checkpoint-metric "
        "(nll_loss: bits per token); a,b,...: limits before the first drop of the learning rate, "
        "after it, and so on",
        "",
    )
    lr: List[float] = II("optimization.lr")
    stop_min_lr: float = II("optimization.stop_min_lr")
    task_name: str = II("task._name")
    optimizer_name: str = II("optimizer._name")
    validate_interval: int = II("dataset.validate_interval")
    validate_interval_updates: int = II("dataset.validate_interval_updates")
    disable_validation: bool = II("dataset.disable_validation")
    maximize_best_checkpoint_metric: bool = II("checkpoint.maximize_best_checkpoint_metric")


class Plateau:
    """Decides from the loss of every check.

    - The learning rate drops at a check more than ``lr_patience`` checks after both the best one
      and the last drop; the first drop is at check ``drop_at`` at the latest.
    - Averaging starts ``average_patience`` checks after the best one, at check ``average_at`` at
      the latest.
    - Training stops after ``max_checks`` checks; at a check more than ``stop_patience`` checks
      after the best one; or if the loss expected at the last check is above the limit.
    """

    def __init__(self, cfg: Any) -> None:
        self._cfg = cfg
        # Before the first drop of the learning rate, after it, and so on; the last one holds for all
        # later checks. The check at which the rate drops still has the limit before the drop.
        self._limits = [float(part) for part in cfg.stop_above.split(",")] if cfg.stop_above else []
        # The names below are keys of checkpoints.
        self.best_losses: list[float] = []  # the best loss up to each check
        self.best_check = 0  # the first check is 1
        self.last_drop = 0
        self.drops = 0
        self.averages = False  # whether averaging has started
        self.reason = ""  # why to stop; empty: continue

    def observe(self, loss: float) -> bool:
        """Receive the loss of the next check; return whether the learning rate drops now."""
        cfg, check = self._cfg, self.checks + 1
        best = self.best_losses[-1] if self.best_losses else math.inf
        if loss < best:
            self.best_check = check
        self.best_losses.append(min(best, loss))
        drops = check > max(self.best_check, self.last_drop) + cfg.lr_patience
        drops |= self.drops == 0 and 0 < cfg.drop_at <= check
        self.averages |= 0 < cfg.average_patience <= check - self.best_check
        self.averages |= 0 < cfg.average_at <= check
        if drops:
            self.drops, self.last_drop = self.drops + 1, check
        self.reason = self._reason()
        return drops

    @property
    def checks(self) -> int:
        return len(self.best_losses)

    @property
    def stop_patience(self) -> float:
        """``--stop-patience``, growing from 1 during the first ``--stop-ramp`` checks."""
        full, ramp = self._cfg.stop_patience, self._cfg.stop_ramp
        if self.checks >= ramp:
            return full
        return 1 + (full - 1) * self.checks / ramp

    def expected_loss(self) -> float:
        """The loss at the last check, extrapolated from the fall of the best loss over the newest
        checks, as many as the patience; -inf until there are more checks than that."""
        span = int(self.stop_patience if self._cfg.stop_patience else self._cfg.lr_patience)
        if not 1 <= span < self.checks:
            return -math.inf
        best = self.best_losses[-1]
        fall = (self.best_losses[-1 - span] - best) / span
        return best - fall * (self._cfg.max_checks - self.checks)

    def _reason(self) -> str:
        cfg, check = self._cfg, self.checks
        if cfg.max_checks and check >= cfg.max_checks:
            return f"check {check} was the last"
        since_best = check - self.best_check
        if cfg.stop_patience and since_best > self.stop_patience:
            return f"no new best loss for {since_best} checks, more than {self.stop_patience:.1f}"
        if self._limits:
            expected = self.expected_loss()
            drops_before = self.drops - (self.last_drop == check)
            limit = self._limits[min(drops_before, len(self._limits) - 1)]
            if expected > limit:
                return f"the loss would only fall to {expected:.4f}; --stop-above is {limit}"
        return ""

    def state_dict(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name[0] != "_"}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load the state; a stopped training continues if the settings now allow it."""
        vars(self).update(state, best_losses=list(state["best_losses"]))
        if self.checks:
            self.reason = self._reason()


def check_settings(cfg: Any) -> None:
    """Raise ``FairseqDocError`` for settings that the scheduler does not support."""
    check_ranges(PlateauScheduleConfig, cfg)
    validates = not cfg.disable_validation and cfg.validate_interval == 1
    needs = {
        **needs_of_validation_losses(cfg),
        "--lr-shrink between 0 and 1": 0 < cfg.lr_shrink < 1,
        "validation at the end of every epoch": validates,
        "--updates-per-epoch instead of --validate-interval-updates": (
            not cfg.validate_interval_updates
        ),
        "--stop-patience with --stop-ramp, which lowers it": cfg.stop_patience or not cfg.stop_ramp,
        "a --stop-patience above --lr-patience, or training would end before the rate drops": (
            cfg.drop_at or not 0 < cfg.stop_patience <= cfg.lr_patience
        ),
    }
    check_needs(f"--lr-scheduler {NAME}", needs)
    needs = {
        "--max-checks, for which the loss is extrapolated": cfg.max_checks,
        "--stop-patience or --lr-patience, the past checks": cfg.stop_patience or cfg.lr_patience,
    }
    check_needs("--stop-above", needs, cfg.stop_above)
    averages, has_average = cfg.average_patience or cfg.average_at, cfg.optimizer_name == ADAM
    starts, optimizer = "--average-patience or --average-at", f"--optimizer {ADAM}"
    check_needs(starts, {f"{optimizer}; got {cfg.optimizer_name}": has_average}, averages)
    check_needs(optimizer, {starts: averages}, has_average)


@register_lr_scheduler(NAME, dataclass=PlateauScheduleConfig)
class PlateauSchedule(FoundByModel, FairseqLRScheduler):
    """fairseq's wrapper of :class:`Plateau`. To stop, it sets the rate to ``--stop-min-lr``."""

    def __init__(self, cfg: Any, optimizer: Any) -> None:
        super().__init__(cfg, optimizer)
        check_settings(cfg)
        self.plateau = Plateau(cfg)
        # With --fp16 the optimizer has copies of the model's parameters.
        self.found_by(getattr(optimizer, "fp16_params", None) or optimizer.params)

    @property
    def ended(self) -> bool:
        """Whether the last checkpoint is due, for ``fairseq_patches/best_checkpoint.py``."""
        return bool(self.plateau.reason) or self._rate() <= self.cfg.stop_min_lr  # fairseq stops

    def observe(self, loss: float) -> None:
        plateau = self.plateau
        if plateau.observe(loss):
            logger.info(
                f"check {plateau.checks}: best loss {plateau.best_losses[-1]} at check "
                f"{plateau.best_check}; learning rate multiplied by {self.cfg.lr_shrink}"
            )
        if plateau.averages:
            optimizer = unwrapped(self.optimizer).optimizer
            if not optimizer.averaging:
                logger.info(f"averaging starts after check {plateau.checks}")
                optimizer.start_averaging()
        if plateau.reason:
            logger.info(f"training stops at check {plateau.checks}: {plateau.reason}")

    def step(self, epoch: int, val_loss: float | None = None) -> float:
        """End an epoch, whose loss :meth:`observe` has received; also called on a resume."""
        return self.step_update(None)

    def step_update(self, num_updates: int | None) -> float:
        self.optimizer.set_lr(self.cfg.stop_min_lr if self.plateau.reason else self._rate())
        return self.optimizer.get_lr()

    def _rate(self) -> float:
        return self.cfg.lr[0] * self.cfg.lr_shrink**self.plateau.drops

    def state_dict(self) -> dict[str, Any]:
        return {"plateau": self.plateau.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.plateau.load_state_dict(state_dict["plateau"])
