"""When Melis et al. (2018) lower the learning rate and when they stop: decided from validation losses
alone. A check is one validation."""

import math
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class PlateauSettings:
    """
    Attributes:
        lr_patience: N; the learning rate drops at a check more than N checks after the best one and
            after the last drop.
        drop_at: the check at which it drops for the first time at the latest; 0: whenever the rule
            above says so.
        stop_patience: S; training stops at a check more than S checks after the best one. 0: never.
        stop_ramp: over so many first checks the patience grows from 1 to S.
        max_checks: training stops after so many; 0: never.
        stop_above: the loss that the last check is expected to reach at most, before the first drop,
            after it, after the second and so on; the last number holds from then on. The check at
            which the rate drops is still before it. Training stops where the expected loss is above
            the number. Empty: never.
    """

    lr_patience: int = 30
    drop_at: int = 0
    stop_patience: int = 0
    stop_ramp: int = 0
    max_checks: int = 0
    stop_above: tuple[float, ...] = ()


class Plateau:
    """Takes the loss of every check; counts drops of the learning rate; says when to stop."""

    def __init__(self, settings: PlateauSettings) -> None:
        self.settings = settings
        # The names below are keys of checkpoints.
        self.best_losses: list[float] = []  # the best loss up to each check
        self.best_check = 0  # counted from 1
        self.last_drop = 0
        self.drops = 0
        self.reason = ""  # why to stop; empty: go on

    @property
    def checks(self) -> int:
        """How many there were."""
        return len(self.best_losses)

    def observe(self, loss: float) -> bool:
        """Take the loss of one more check.

        Returns:
            Whether the learning rate drops now.
        """
        best = self.best_losses[-1] if self.best_losses else math.inf
        if loss < best:
            self.best_check = self.checks + 1
        self.best_losses.append(min(best, loss))
        settings, check = self.settings, self.checks
        drops = check > max(self.best_check, self.last_drop) + settings.lr_patience
        drops |= self.drops == 0 and 0 < settings.drop_at <= check
        if drops:
            self.drops, self.last_drop = self.drops + 1, check
        self.reason = self._reason()
        return drops

    @property
    def stop_patience(self) -> float:
        """S, or less during the first ``stop_ramp`` checks."""
        full, ramp = self.settings.stop_patience, self.settings.stop_ramp
        if self.checks >= ramp:
            return full
        return 1 + (full - 1) * self.checks / ramp

    def expected_loss(self) -> float:
        """The loss of the last check, if the best one goes on falling as it did over the newest
        checks, as many as the patience; before there are so many, minus infinity."""
        settings = self.settings
        span = int(self.stop_patience if settings.stop_patience else settings.lr_patience)
        if not 1 <= span < self.checks:
            return -math.inf
        best = self.best_losses[-1]
        fall = (self.best_losses[-1 - span] - best) / span
        return best - fall * (settings.max_checks - self.checks)

    def _reason(self) -> str:
        settings, check = self.settings, self.checks
        if settings.max_checks and check >= settings.max_checks:
            return f"check {check} was the last"
        if settings.stop_patience and check > self.best_check + self.stop_patience:
            return (
                f"no new best loss for {check - self.best_check} checks, more than "
                f"{self.stop_patience:.1f}"
            )
        if settings.stop_above:
            expected = self.expected_loss()
            drops_before = self.drops - (self.last_drop == check)
            limit = settings.stop_above[min(drops_before, len(settings.stop_above) - 1)]
            if expected > limit:
                return f"the loss would only fall to {expected:.4f}, and {limit} is asked for"
        return ""

    def state_dict(self) -> dict[str, Any]:
        """Everything except the settings."""
        return {name: value for name, value in vars(self).items() if name != "settings"}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The opposite of :meth:`state_dict`. A training that had stopped goes on where the settings
        now allow it."""
        vars(self).update(state, best_losses=list(state["best_losses"]))
        if self.checks:
            self.reason = self._reason()


def check_settings(settings: PlateauSettings) -> list[tuple[str, str]]:
    """What is wrong: pairs of an option and what is expected of it."""
    wrong = []
    for name in ("lr_patience", "drop_at", "stop_patience", "stop_ramp", "max_checks"):
        if getattr(settings, name) < 0:
            wrong.append((f"--{name.replace('_', '-')}", "at least 0"))
    if settings.stop_above and not settings.max_checks:
        wrong.append(("--stop-above", "--max-checks beside it, up to which the loss is expected"))
    if settings.stop_ramp and not settings.stop_patience:
        wrong.append(("--stop-ramp", "--stop-patience beside it, which it lowers"))
    if any(not math.isfinite(limit) for limit in settings.stop_above):
        wrong.append(("--stop-above", "finite numbers"))
    if settings.stop_above and not (settings.stop_patience or settings.lr_patience):
        wrong.append(
            ("--stop-above", "--stop-patience beside it: how many checks are looked back on")
        )
    if not settings.drop_at and 0 < settings.stop_patience <= settings.lr_patience:
        wrong.append(
            ("--stop-patience", "more than --lr-patience: training would end before the rate drops")
        )
    return wrong
