"""Options of ``tune``, and settings as a command line. Imports neither Optuna nor fairseq."""

import math
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from fairseq_doc.errors import FairseqDocError, shown
from fairseq_doc.options import REQUIRED, option

READY = Path(__file__).parent / "spaces"
LEARNING = ("gp", "tpe")  # samplers that learn from earlier trials
SAMPLERS = (*LEARNING, "qmc", "random")
# Options of the search, which a report and a rerun do not have.
OF_TUNING = ("trials", "sampler", "startup-trials", "enqueue", "retry", "seed", "keep")
Value: TypeAlias = bool | int | float | str
Settings: TypeAlias = Mapping[str, Value]  # {option without its dashes: value}


def ready_spaces() -> list[str]:
    """The names of the spaces that come with the package."""
    return sorted(path.stem for path in READY.glob("*.yaml"))


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of ``fairseq-doc tune``."""

    space: str | None = option(
        f"YAML file of options and their ranges, or a built-in space: {', '.join(ready_spaces())}",
        positional=True,
        nargs="?",
    )
    study: str = option("study to create, join or resume", REQUIRED, metavar="NAME")
    storage: str = option(
        "sqlite:///FILE for one machine; FILE.journal, postgresql://... or mysql://... for several",
        REQUIRED,
        metavar="URL",
    )
    trials: int = option(
        "stop after N completed trials in total, across all processes", 60, metavar="N", least=1
    )
    workers: int = option("trainings run in parallel", 1, metavar="K", least=1)
    sampler: str = option(
        "Gaussian process, Parzen estimators, Sobol points, or random", "gp", choices=SAMPLERS
    )
    startup_trials: int = option(
        "random trials before gp or tpe starts to learn", 10, metavar="N", least=1
    )
    enqueue: Sequence[str] | None = option(
        "start with the best settings of this other study in the same storage; options that it did "
        "not tune are sampled; may be repeated",
        action="append",
        type=str,
        metavar="STUDY",
    )
    retry: Sequence[int] | None = option(
        "resume this trial, whose process was killed (a database does so by itself after five "
        "minutes); may be repeated",
        action="append",
        type=int,
        metavar="TRIAL",
    )
    seed: int = option("random seed of the sampler", 1, least=0)
    dir: str | None = option("folder for the trials (default: tune/NAME)")
    keep: str = option(
        "checkpoints to keep: those of the best trial, or of all", "best", choices=("best", "all")
    )
    report: str | None = option(
        "write the best command, a table and plots into this folder",
        metavar="FOLDER",
        without=("space", "training", "workers", "dir", "rerun", *OF_TUNING),
    )
    rerun: str | None = option(
        "train this trial (a number or best) with seeds 1 to --seeds and further options after --",
        metavar="TRIAL",
        without=("space", *OF_TUNING),
    )
    seeds: int = option("number of seeds for --rerun", 5, metavar="N", least=1, needs="rerun")
    overwrite: bool = option("replace an existing report", False, needs="report")
    no_progress_bar: bool = option("do not show progress", False)
    json: bool = option("print one JSON object", False)
    training: Sequence[str] | None = option(
        "the training to tune, without the options of the space; with --rerun, further options",
        after_dashes=True,
    )

    def __post_init__(self) -> None:
        name = Path(self.study).name
        if name != self.study or name == ".." or not name.isprintable():
            raise FairseqDocError(
                f"--study: expected a name without / or control characters; got {shown(self.study)}"
            )
        if self.report is None and self.rerun is None and self.space is None:
            spaces = ", ".join(ready_spaces())
            raise FairseqDocError(f"expected a space, a YAML file or one of {spaces}; got none")
        if self.startup_trials != type(self).startup_trials and self.sampler not in LEARNING:
            raise FairseqDocError(
                f"--startup-trials needs --sampler {' or '.join(LEARNING)}; got {self.sampler}"
            )

    def say(self, text: str) -> None:
        """Print a line of progress."""
        if not (self.no_progress_bar or self.json):
            print(text, file=sys.stderr, flush=True)

    @property
    def folder(self) -> Path:
        return Path(self.dir or Path("tune") / self.study)


def option_words(settings: Settings) -> list[str]:
    """``{"lr": 0.1, "amp": True}`` -> ``["--lr", "0.1", "--amp"]``, with all digits."""
    words = []
    for name, value in settings.items():
        if isinstance(value, bool):
            words += [f"--{name}"] if value else []
        elif str(value).startswith("-"):  # argparse would read -1e-05 as an option
            words.append(f"--{name}={value}")
        else:
            words += [f"--{name}", str(value)]
    return words


def short(settings: Settings) -> str:
    """Settings for a reader: numbers with four significant digits."""
    rounded = {o: f"{v:.4g}" if isinstance(v, float) else v for o, v in settings.items()}
    return " ".join(option_words(rounded))


def value_text(value: float) -> str:
    """A value for a reader; an infinite one means that the training diverged."""
    return "diverged" if math.isinf(value) else f"{value:.4f}"


def duration(seconds: float) -> str:
    """12 s, 3.4 min or 5.6 h."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"


def grouped(words: Sequence[str]) -> list[list[str]]:
    """Each option with its values; first the words before all options, such as the program."""
    options: list[list[str]] = [[]]
    for word in words:
        if re.match("--?[A-Za-z]", word):  # not a negative number
            options.append([])
        options[-1].append(word)
    return options


def differences(words: Sequence[str], others: Sequence[str]) -> tuple[str, str] | None:
    """The options, with values, that only one of two command lines has; None if they agree."""
    one, two = (list(map(shlex.join, grouped(line))) for line in (words, others))
    only_one = " ".join(option for option in one if option not in two)
    only_two = " ".join(option for option in two if option not in one)
    return (only_one or "none", only_two or "none") if only_one or only_two else None
