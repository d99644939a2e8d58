"""The stages of NT-ASGD (Merity et al., 2018), whose ends depend only on the validation losses."""

from typing import Any


class TrainingStages:
    """Decides after each epoch, from its validation loss, what to do next.

    A loss ends its stage (the non-monotone criterion) if the stage has more than ``nonmono`` earlier
    losses and this one is worse than the best of them, the last ``nonmono`` not counted. Averaging
    follows SGD. Without fine-tuning it never ends, as in the published runs; otherwise
    ``finetune_stages`` stages follow or, if that is -1, stages until one does not lower the best
    loss.
    """

    def __init__(self, nonmono: int, finetune_stages: int = 0) -> None:
        self.nonmono, self.finetune_stages = nonmono, finetune_stages
        # The names below are keys of checkpoints.
        self.losses: list[float] = []  # of this stage
        self.stage = -1  # -1: SGD; 0: averaging; 1, 2, ...: fine-tuning
        self.best = float("inf")
        self.stage_best = float("inf")  # SGD and averaging count as one stage, 0
        self.best_before_stage = float("inf")
        self.last_epoch = 0
        self.stopped = False

    def observe(self, epoch: int, loss: float) -> list[str]:
        """Receive an epoch's loss, once per epoch. Return the actions to take, in order, of
        ``keep_best_of_stage`` and ``keep_best`` (the validated weights are the best of the stage,
        of the run), ``average`` (from now on), ``restart`` (from the best weights, with a new
        average) and ``stop``."""
        if epoch == self.last_epoch or self.stopped:
            return []
        self.last_epoch = epoch
        actions = []
        if loss < self.stage_best:
            self.stage_best = loss
            actions.append("keep_best_of_stage")
        if loss < self.best:
            self.best = loss
            actions.append("keep_best")
        earlier = self.losses[: max(0, len(self.losses) - self.nonmono)]
        stage_ends = bool(earlier) and loss > min(earlier)
        self.losses.append(loss)
        averages_for_good = self.stage == 0 and self.finetune_stages == 0
        if not stage_ends or averages_for_good:
            return actions
        self.losses = []
        if self.stage == -1:
            self.stage = 0
            return [*actions, "average"]
        if self._was_last_stage():
            self.stopped = True
            return [*actions, "stop"]
        self.stage += 1
        self.stage_best, self.best_before_stage = float("inf"), self.best
        return [*actions, "restart"]

    def _was_last_stage(self) -> bool:
        if self.finetune_stages == -1:
            return self.stage > 0 and not self.best < self.best_before_stage
        return self.stage >= self.finetune_stages

    def state_dict(self) -> dict[str, Any]:
        settings = ("nonmono", "finetune_stages")
        return {name: value for name, value in vars(self).items() if name not in settings}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
