"""``--lr-scheduler plateau``: the learning rate drops, and training ends, by the rules of ``plateau.py``.

A check is the validation at an epoch's end; with ``--updates-per-epoch K`` of the task there is one every
K updates. The task passes its loss before fairseq saves, so that a checkpoint holds it. fairseq's own
schedulers get it after that, and lack it on a resume.
"""

import logging
import weakref
from collections.abc import MutableMapping
from dataclasses import dataclass, field
from typing import Any, List

import torch
from fairseq.dataclass import FairseqDataclass
from fairseq.optim.lr_scheduler import FairseqLRScheduler, register_lr_scheduler
from omegaconf import II

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.optim.nt_asgd import TASK
from fairseq_doc.optim.plateau import Plateau, PlateauSettings, check_settings

logger = logging.getLogger(__name__)

NAME = "plateau"


@dataclass
class PlateauScheduleConfig(FairseqDataclass):
    """Options of ``--lr-scheduler plateau``; those without help belong to other parts of fairseq."""

    lr_shrink: float = field(
        default=0.1, metadata={"help": "factor of the learning rate where the loss has a plateau"}
    )
    lr_patience: int = field(
        default=30,
        metadata={"help": "checks (validations at an epoch's end) after the best one, or after the last "
                  "drop, that the learning rate is kept for"},
    )  # fmt: skip
    drop_at: int = field(
        default=0, metadata={"help": "check of the first drop at the latest (0: no such check)"}
    )
    max_checks: int = field(
        default=0, metadata={"help": "end after so many checks (0: by --max-update or --max-epoch)"}
    )
    stop_patience: int = field(
        default=0,
        metadata={"help": "checks without a new best loss after which training ends (0: it does not)"},
    )  # fmt: skip
    stop_ramp: int = field(
        default=0,
        metadata={"help": "during so many first checks --stop-patience grows from 1"},
    )
    stop_above: str = field(
        default="",
        metadata={"help": "end where the best loss, if it goes on falling as over the last "
                  "--stop-patience checks (or --lr-patience), will be above this at --max-checks; in the "
                  "unit of --best-checkpoint-metric (nll_loss: bits a token); a,b,...: before the first "
                  "drop of the learning rate, after it, and so on"},
    )  # fmt: skip
    lr: List[float] = II("optimization.lr")
    stop_min_lr: float = II("optimization.stop_min_lr")
    task_name: str = II("task._name")
    validate_interval: int = II("dataset.validate_interval")
    validate_interval_updates: int = II("dataset.validate_interval_updates")
    # fairseq resolves an interpolated bool only under its option's own name.
    disable_validation: bool = II("dataset.disable_validation")
    maximize_best_checkpoint_metric: bool = II("checkpoint.maximize_best_checkpoint_metric")


def plateau_settings(cfg: Any) -> PlateauSettings:
    """The rules' settings.

    Raises:
        FairseqDocError: settings with which the rules would not work.
    """
    expected = {
        f"--task {TASK}, which passes the validation loss": cfg.task_name == TASK,
        "one --lr": len(cfg.lr) == 1,
        "--lr-shrink between 0 and 1": 0 < cfg.lr_shrink < 1,
        "a validation at the end of every epoch": not cfg.disable_validation
        and cfg.validate_interval == 1,
        "no --validate-interval-updates (--updates-per-epoch says how often)": (
            not cfg.validate_interval_updates
        ),
        "a loss as --best-checkpoint-metric": not cfg.maximize_best_checkpoint_metric,
    }
    try:
        stop_above = tuple(float(part) for part in cfg.stop_above.split(",") if cfg.stop_above)
    except ValueError:
        stop_above = ()
        expected[f"numbers as --stop-above, such as 6.35,6.06, not {cfg.stop_above!r}"] = False
    names = ("lr_patience", "drop_at", "stop_patience", "stop_ramp", "max_checks")
    settings = PlateauSettings(stop_above=stop_above, **{name: cfg[name] for name in names})
    missing = [text for text, given in expected.items() if not given]
    missing += [f"{option}: {text}" for option, text in check_settings(settings)]
    if missing:
        raise FairseqDocError(f"--lr-scheduler {NAME}: expected {'; '.join(missing)}")
    return settings


@register_lr_scheduler(NAME, dataclass=PlateauScheduleConfig)
class PlateauSchedule(FairseqLRScheduler):
    """fairseq's wrapper. The end is a learning rate of ``--stop-min-lr``, at which fairseq stops."""

    _by_parameter: MutableMapping[int, "PlateauSchedule"] = weakref.WeakValueDictionary()

    def __init__(self, cfg: Any, optimizer: Any) -> None:
        super().__init__(cfg, optimizer)
        self.plateau = Plateau(plateau_settings(cfg))
        # With --fp16 the optimizer has copies of the model's parameters.
        params = list(getattr(optimizer, "fp16_params", None) or optimizer.params)
        PlateauSchedule._by_parameter[id(params[0])] = self

    @classmethod
    def of(cls, model: torch.nn.Module) -> "PlateauSchedule | None":
        """The schedule of the training of ``model``, or None."""
        first = next((p for p in model.parameters() if p.requires_grad), None)
        return cls._by_parameter.get(id(first))

    @property
    def ended(self) -> bool:
        """Whether training ends here."""
        return bool(self.plateau.reason)

    def observe(self, loss: float) -> None:
        """Take the validation loss of an epoch's end."""
        plateau = self.plateau
        if plateau.observe(loss):
            logger.info(
                f"check {plateau.checks}: the best loss, {plateau.best_losses[-1]}, is of check "
                f"{plateau.best_check}; learning rate times {self.cfg.lr_shrink}"
            )
        if plateau.reason:
            logger.info(f"training ends at check {plateau.checks}: {plateau.reason}")

    def step(self, epoch: int, val_loss: float | None = None) -> float:
        """After an epoch, whose loss :meth:`observe` has had, and on a resume."""
        super().step(epoch, val_loss)
        return self.step_update(None)

    def step_update(self, num_updates: int | None) -> float:
        """The learning rate of the next update."""
        rate = self.cfg.lr[0] * self.cfg.lr_shrink**self.plateau.drops
        self.optimizer.set_lr(self.cfg.stop_min_lr if self.plateau.reason else rate)
        return self.optimizer.get_lr()

    def state_dict(self) -> dict[str, Any]:
        """As fairseq's, and the rules'."""
        return {"best": self.best, "plateau": self.plateau.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """The opposite of :meth:`state_dict`."""
        self.best = state_dict["best"]
        self.plateau.load_state_dict(state_dict["plateau"])
