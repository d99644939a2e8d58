"""The non-monotone trigger of NT-ASGD (Merity et al., 2018), on numbers alone."""


class TrainingStages:
    """What to do after each epoch, from its validation loss alone.

    A loss fires if more than ``nonmono`` earlier ones are listed and it is worse than the best of
    all but the last ``nonmono`` of them. The list starts empty at each start of averaging. The
    first firing starts averaging. Without fine-tuning stages the later ones do nothing, as in the
    published runs; with ``stages`` > 0 each ends its stage, and after the last the run stops. With
    ``stages`` = -1 the last is the first fine-tuning stage that did not lower the best loss.
    """

    def __init__(self, nonmono, stages=0):
        self.nonmono, self.stages = nonmono, stages
        self.losses = []  # of this stage
        self.stage = -1  # -1: SGD; 0: averaging; 1, 2, ...: fine-tuning
        self.best = float("inf")
        self.stage_best = float("inf")  # SGD and averaging count as one stage, 0
        self.best_before_stage = float("inf")
        self.last_epoch = 0
        self.stopped = False

    def observe(self, epoch, loss):
        """Take an epoch's loss, once.

        Returns:
            The steps to take, in order, out of ``keep_in_stage`` (the weights just validated are the
            best of their stage), ``keep`` (they are the best so far), ``average`` (start averaging),
            ``restart`` (from the best weights, with a fresh average) and ``stop``.
        """
        if epoch == self.last_epoch or self.stopped:
            return []
        self.last_epoch = epoch
        steps = []
        if loss < self.stage_best:
            self.stage_best = loss
            steps.append("keep_in_stage")
        if loss < self.best:
            self.best = loss
            steps.append("keep")
        earlier = self.losses[: max(0, len(self.losses) - self.nonmono)]
        fired = bool(earlier) and loss > min(earlier)
        self.losses.append(loss)
        if not fired or (self.stage == 0 and self.stages == 0):
            return steps
        self.losses = []
        if self.stage == -1:
            self.stage = 0
            return steps + ["average"]
        if self._was_last_stage():
            self.stopped = True
            return steps + ["stop"]
        self.stage += 1
        self.stage_best, self.best_before_stage = float("inf"), self.best
        return steps + ["restart"]

    def _was_last_stage(self):
        if self.stages == -1:
            return self.stage > 0 and not self.best < self.best_before_stage
        return self.stage >= self.stages

    def state_dict(self):
        """Everything but the settings."""
        return {k: v for k, v in vars(self).items() if k not in ("nonmono", "stages")}

    def load_state_dict(self, state):
        """Undo :meth:`state_dict`."""
        vars(self).update(state)
