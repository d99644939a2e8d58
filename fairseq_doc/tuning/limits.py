"""How long a training lasts: which options may grow when it is continued."""

import math
from argparse import ArgumentError, ArgumentParser, Namespace
from collections.abc import Sequence

from fairseq_doc.tuning.settings import differences

LIMITS = ("--max-epoch", "--max-update", "--stop-time-hours")  # each 0 by default: no limit
_BY_UPDATES = (
    "cosine",
    "polynomial_decay",
    "tri_stage",
)  # learning rates that need the last update


def why_not_longer(args: Namespace, ours: Sequence[str], theirs: Sequence[str]) -> str | None:
    """Why a training with the words ``theirs`` cannot go on with the words ``ours``, of which
    ``args`` are the settings; None if the new words only let it last longer, ``""`` if they also
    change what is trained."""
    try:
        (our_rest, our_limits), (their_rest, their_limits) = _split(ours), _split(theirs)
    except (ArgumentError, SystemExit):  # no number
        return ""
    if differences(our_rest, their_rest):
        return ""
    changed = [pair for pair in zip(our_limits, their_limits, strict=True) if pair[0] != pair[1]]
    if any(our < their for our, their in changed):
        return "a training cannot become shorter"
    if getattr(args, "patience", -1) > 0:
        return "--patience may have ended it, and its count would begin anew"
    scheduler, updates = getattr(args, "lr_scheduler", None), LIMITS.index("--max-update")
    if scheduler in _BY_UPDATES and our_limits[updates] != their_limits[updates]:
        return f"--lr-scheduler {scheduler} sets the learning rates by --max-update"
    return None


def _split(words: Sequence[str]) -> tuple[list[str], list[float]]:
    """(the words without the limits, the limits: infinite where there is none)."""
    parser = ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for name in LIMITS:
        parser.add_argument(name, type=float, default=math.inf)
    found, rest = parser.parse_known_args(list(words))
    return rest, [value or math.inf for value in vars(found).values()]
