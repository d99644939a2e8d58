"""Optimizers that average a model's weights and can be looked up by the model, among them Adam.

During averaging each weight has two values: the raw one, with which training continues, and the
average, which is validated and saved. The model's parameter holds one of them and the optimizer's
state the other, its *shadow*. They are exchanged before validation and saving, and before a
training step. A checkpoint holds both and records which is which.

``--optimizer averaged_adam --lr-scheduler plateau`` (Melis, Kocisky and Blunsom, 2020;
deepmind/lamb) is fairseq's Adam until averaging starts, which the scheduler's
``--average-patience`` and ``--average-at`` decide.
"""

import weakref
from collections.abc import Iterable, MutableMapping
from dataclasses import dataclass
from typing import Any, List

import torch
from fairseq.dataclass import FairseqDataclass
from fairseq.optim import register_optimizer
from fairseq.optim.adam import Adam, FairseqAdam
from fairseq.optim.fairseq_optimizer import FairseqOptimizer
from omegaconf import II

from fairseq_doc.data.bptt_stream import TASK
from fairseq_doc.options import check_needs, option

ADAM = "averaged_adam"
FLOAT32 = "float32 weights: use --amp or no half precision instead of --fp16 or --bf16"


def needs_of_validation_losses(cfg: Any) -> dict[str, bool]:
    """What a schedule that follows validation losses needs, for :func:`check_needs`."""
    return {
        f"--task {TASK}, which passes on the validation losses; got {cfg.task_name}": (
            cfg.task_name == TASK
        ),
        f"a single --lr; got {','.join(map(str, cfg.lr))}": len(cfg.lr) == 1,
        "a loss as --best-checkpoint-metric, without --maximize-best-checkpoint-metric": (
            not cfg.maximize_best_checkpoint_metric
        ),
    }


def unwrapped(optimizer: Any) -> Any:
    """The optimizer itself, which fairseq wraps with --amp and --fp16."""
    return getattr(optimizer, "fp32_optimizer", None) or optimizer


class FoundByModel:
    """Base class of optimizers and schedulers that can be looked up by the model they train, since
    fairseq's hooks for validation and saving receive only the model."""

    _found: MutableMapping[tuple[type, int], Any] = weakref.WeakValueDictionary()

    def found_by(self, params: Iterable[torch.nn.Parameter]) -> None:
        """Let :meth:`of` find this instance for the model that has ``params``."""
        FoundByModel._found[type(self), id(next(iter(params)))] = self

    @classmethod
    def of(cls, model: torch.nn.Module) -> Any:
        """The instance that trains ``model``, or None."""
        first = next((p for p in model.parameters() if p.requires_grad), None)
        return cls._found.get((cls, id(first)))


class AveragedWeights:
    """Mixin of a torch optimizer with one group of parameters."""

    param_groups: list[dict[str, Any]]
    state: Any

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.reset_average()

    def step(self, closure: Any = None) -> None:
        self.show(average=False)
        super().step(closure)  # type: ignore[misc]  # the optimizer's step
        self.average()

    @property
    def _group(self) -> dict[str, Any]:
        return self.param_groups[0]  # there is only one group

    def reset_average(self) -> None:
        self._group.update(averaging=False, averaged_steps=0, shows_average=False)

    def start_averaging(self) -> None:
        self._group["averaging"] = True

    @property
    def averaging(self) -> bool:
        return self._group["averaging"]

    @torch.no_grad()
    def average(self, left_out: int = 0) -> None:
        """If averaging has started, add the newest weights to the mean of the weights after all
        updates since then, except the first ``left_out``."""
        group = self._group
        if not group["averaging"]:
            return
        group["averaged_steps"] += 1
        count = group["averaged_steps"] - left_out
        for p in group["params"]:
            if count <= 1:
                self.state[p]["shadow"] = p.detach().clone()
            else:
                self.state[p]["shadow"].lerp_(p, 1 / count)

    def show(self, average: bool) -> None:
        """Put the averages, if averaging has started, or the raw weights into the parameters."""
        group = self._group
        if group["shows_average"] == (average and group["averaged_steps"] > 0):
            return
        for p in group["params"]:  # in place: a parameter keeps its memory
            shown, shadow = p.detach(), self.state[p]["shadow"]
            copy = shown.clone()
            shown.copy_(shadow)
            shadow.copy_(copy)
        group["shows_average"] = average


class AdamWithAverage(AveragedWeights, Adam):
    """fairseq's Adam, and the mean of its iterates after :meth:`start_averaging`."""


@dataclass
class AveragedAdamConfig(FairseqDataclass):
    """Options; fields without help are fairseq's own options."""

    adam_betas: Any = option("Adam's betas", (0.9, 0.999))
    adam_eps: float = option("Adam's epsilon", 1e-8)
    weight_decay: float = option("weight decay, decoupled from the gradients", 0.0)
    lr: List[float] = II("optimization.lr")
    lr_scheduler_name: str = II("lr_scheduler._name")
    fp16: bool = II("common.fp16")
    bf16: bool = II("common.bf16")


@register_optimizer(ADAM, dataclass=AveragedAdamConfig)
class AveragedAdam(FoundByModel, FairseqAdam):
    """fairseq's wrapper."""

    def __init__(self, cfg: Any, params: Iterable[torch.nn.Parameter]) -> None:
        FairseqOptimizer.__init__(self, cfg)
        needs = {
            f"--lr-scheduler plateau, which starts averaging; got {cfg.lr_scheduler_name}": (
                cfg.lr_scheduler_name == "plateau"
            ),
            FLOAT32: not (cfg.fp16 or cfg.bf16),
        }
        check_needs(f"--optimizer {ADAM}", needs)
        params = list(params)
        self._optimizer = AdamWithAverage(params, **self.optimizer_config)
        self.found_by(params)
