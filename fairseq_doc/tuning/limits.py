"""Limits of a training: the options that may be raised when it is resumed."""

import math
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

from fairseq_doc.tuning.settings import differences

LIMITS = ("--max-epoch", "--max-update", "--stop-time-hours")  # 0, the default, means no limit
# Learning-rate schedulers that depend on the last update
_BY_UPDATES = ("cosine", "polynomial_decay", "tri_stage")


def why_not_longer(args: Namespace, ours: Sequence[str], theirs: Sequence[str]) -> str | None:
    """Why a training with the command line ``theirs`` cannot be resumed with the command line
    ``ours``, whose settings are ``args``. None if it only raises the limits; ``""`` if it also
    changes what is trained."""
    (our_rest, our_limits), (their_rest, their_limits) = _split(ours), _split(theirs)
    if differences(our_rest, their_rest):
        return ""
    changed = [pair for pair in zip(our_limits, their_limits, strict=True) if pair[0] != pair[1]]
    if any(our < their for our, their in changed):
        return "a limit cannot be lowered"
    if getattr(args, "patience", -1) > 0:
        return "--patience may have ended it, and would count from zero again"
    scheduler, updates = getattr(args, "lr_scheduler", None), LIMITS.index("--max-update")
    if scheduler in _BY_UPDATES and our_limits[updates] != their_limits[updates]:
        return f"--lr-scheduler {scheduler} sets the learning rates by --max-update"
    return None


def _split(words: Sequence[str]) -> tuple[list[str], list[float]]:
    """(the command line without limits, the limits, which are infinite by default)."""
    parser = ArgumentParser(add_help=False, allow_abbrev=False)
    for name in LIMITS:
        parser.add_argument(name, type=float, default=math.inf)
    found, rest = parser.parse_known_args(list(words))
    return rest, [value or math.inf for value in vars(found).values()]
