"""Adam followed by weight averaging (Melis, Kocisky and Blunsom, 2020; deepmind/lamb).

Used as ``--optimizer averaged_adam --lr-scheduler plateau``. It is fairseq's Adam until averaging
starts, which the scheduler's ``--average-patience`` and ``--average-at`` decide. From then on, the
mean of the weights after every update is validated and saved (``averaged_weights.py``).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, List

import torch
from fairseq.dataclass import FairseqDataclass
from fairseq.optim import register_optimizer
from fairseq.optim.adam import Adam, FairseqAdam
from fairseq.optim.fairseq_optimizer import FairseqOptimizer
from omegaconf import II

from fairseq_doc.optim.averaged_weights import AveragedWeights, FoundByModel
from fairseq_doc.options import check_needs, option

NAME = "averaged_adam"


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


@register_optimizer(NAME, dataclass=AveragedAdamConfig)
class AveragedAdam(FoundByModel, FairseqAdam):
    """fairseq's wrapper."""

    def __init__(self, cfg: Any, params: Iterable[torch.nn.Parameter]) -> None:
        FairseqOptimizer.__init__(self, cfg)
        needs = {
            f"--lr-scheduler plateau, which starts averaging; got {cfg.lr_scheduler_name}": (
                cfg.lr_scheduler_name == "plateau"
            ),
            "float32 weights: use --amp or no half precision instead of --fp16 or --bf16": (
                not (cfg.fp16 or cfg.bf16)
            ),
        }
        check_needs(f"--optimizer {NAME}", needs)
        params = list(params)
        self._optimizer = AdamWithAverage(params, **self.optimizer_config)
        self.found_by(params)
