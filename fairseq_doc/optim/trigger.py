"""The non-monotone trigger of NT-ASGD (Merity et al., 2018), on numbers alone."""


class NonMonotoneTrigger:
    """What to do after each epoch, from its validation loss alone.

    A loss fires if more than ``nonmono`` earlier ones are listed and it is worse than the best of
    all but the last ``nonmono`` of them. The list starts empty at each start of averaging. The
    first firing starts averaging. Without fine-tuning stages the later ones do nothing, as in the
    published runs; with ``stages`` > 0 each ends its stage, and after the last the run stops.
    """

    def __init__(self, nonmono, stages=0):
        self.nonmono, self.stages = nonmono, stages
        self.losses = []  # of this stage
        self.stage = -1  # -1: SGD; 0: averaging; 1, 2, ...: fine-tuning
        self.best = float("inf")
        self.last_epoch = 0
        self.stopped = False

    def observe(self, epoch, loss):
        """Take an epoch's loss, once.

        Returns:
            The steps to take, in order, out of ``keep`` (the weights just validated are the best so
            far), ``average`` (start averaging), ``restart`` (from the best weights, with a fresh
            average) and ``stop``.
        """
        if epoch == self.last_epoch or self.stopped:
            return []
        self.last_epoch = epoch
        steps = []
        if loss < self.best:
            self.best = loss
            steps.append("keep")
        earlier = self.losses[: max(0, len(self.losses) - self.nonmono)]
        fired = bool(earlier) and loss > min(earlier)
        self.losses.append(loss)
        if not fired or (self.stage == 0 and self.stages == 0):
            return steps
        self.losses = []
        if self.stage >= self.stages:
            self.stopped = True
            return steps + ["stop"]
        self.stage += 1
        return steps + ["average" if self.stage == 0 else "restart"]

    def state_dict(self):
        """Everything but the settings."""
        return {k: v for k, v in vars(self).items() if k not in ("nonmono", "stages")}

    def load_state_dict(self, state):
        """Undo :meth:`state_dict`."""
        vars(self).update(state)
