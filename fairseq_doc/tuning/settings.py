"""Options of a tuning; settings as words of a command line. Imports neither Optuna nor fairseq."""

import math
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from tqdm import tqdm

from fairseq_doc.errors import FairseqDocError, shown
from fairseq_doc.options import REQUIRED, option, positive

READY = Path(__file__).parent / "spaces"
LEARNING = ("gp", "tpe")  # samplers that learn from the trials before
MAX_NAME = 200  # bytes of a study's name, which is a folder's
SAMPLERS = (*LEARNING, "qmc", "random")
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
        "YAML file of options and their ranges, or one of the ready spaces: "
        + ", ".join(ready_spaces()),
        positional=True,
        nargs="?",
    )
    study: str = option("study to create, join or resume", REQUIRED, metavar="NAME")
    storage: str = option(
        "sqlite:///FILE, for one machine; FILE.journal, postgresql://... or mysql://..., for "
        "several",
        REQUIRED,
        metavar="URL",
    )
    trials: int = option(
        "completed trials in total, across all processes", 60, metavar="N", type=positive
    )
    workers: int = option("trainings at once", 1, metavar="K", type=positive)
    sampler: str = option(
        "Gaussian process, tree of Parzen estimators, Sobol points, or random",
        SAMPLERS[0],
        choices=SAMPLERS,
    )
    startup_trials: int = option(
        "random trials before gp and tpe learn from them", 10, metavar="N", type=positive
    )
    enqueue: Sequence[str] | None = option(
        "try the best settings of this other study of the same storage first; options that it does "
        "not tune are drawn; may be repeated",
        action="append",
        type=str,
        metavar="STUDY",
    )
    retry: Sequence[int] | None = option(
        "run this trial again, whose process was killed; may be repeated. A database finds such "
        "trials by itself after some minutes, a journal does not",
        action="append",
        type=int,
        metavar="TRIAL",
    )
    seed: int = option("random seed of the sampler", 1)
    dir: str | None = option("folder of the trials (default: tune/NAME)")
    keep: str = option("trials whose checkpoints are kept", "best", choices=("best", "all"))
    report: str | None = option(
        "write the best command, a table and plots there",
        metavar="FOLDER",
        without=("space", "training", "workers", "rerun", *OF_TUNING),
    )
    rerun: str | None = option(
        "train a trial, best or a number, again with the seeds 1 to --seeds; options after -- are "
        "added to the study's training, or replace its own",
        metavar="TRIAL",
        without=("space", *OF_TUNING),
    )
    seeds: int = option("number of seeds of --rerun", 5, metavar="N", type=positive, needs="rerun")
    overwrite: bool = option("replace an existing report", False)
    no_progress_bar: bool = option("show no progress", False)
    json: bool = option("print one JSON object", False)
    training: Sequence[str] | None = option(
        "the training to tune, without what the space gives; with --rerun further options of the "
        "study's training",
        after_dashes=True,
    )

    def __post_init__(self) -> None:
        name = self.study
        wrong = os.sep in name or name in (".", "..") or not name.isprintable() or not name.strip()
        if wrong or len(os.fsencode(name)) > MAX_NAME:
            raise FairseqDocError(
                "--study: expected a name without / and control characters, of at most "
                f"{MAX_NAME} bytes; got {shown(name)}"
            )
        if self.report is None and self.rerun is None and self.space is None:
            spaces = ", ".join(ready_spaces())
            raise FairseqDocError(f"expected a space, a YAML file or one of {spaces}; got none")
        if self.startup_trials != type(self).startup_trials and self.sampler not in LEARNING:
            raise FairseqDocError(f"--sampler {self.sampler} has no use for --startup-trials")
        if self.seed < 0:
            raise FairseqDocError(f"--seed: expected at least 0; got {self.seed}")

    @property
    def quiet(self) -> bool:
        return self.no_progress_bar or self.json

    def say(self, text: str) -> None:
        """Print a line of progress, above a bar if there is one."""
        if not self.quiet:
            tqdm.write(text, file=sys.stderr)

    @property
    def folder(self) -> Path:
        return Path(self.dir or Path("tune") / self.study)


def option_words(settings: Settings) -> list[str]:
    """``{"lr": 0.1, "amp": True}`` -> ``["--lr", "0.1", "--amp"]``, every digit kept."""
    words = []
    for name, value in settings.items():
        text = repr(value) if isinstance(value, float) else str(value)
        if isinstance(value, bool):
            words += [f"--{name}"] if value else []
        elif text.startswith("-"):  # argparse takes -1e-05 for an option
            words.append(f"--{name}={text}")
        else:
            words += [f"--{name}", text]
    return words


def short(settings: Settings) -> str:
    """Settings to be read: numbers with four digits."""
    rounded = {
        option: float(f"{value:.4g}") if isinstance(value, float) else value
        for option, value in settings.items()
    }
    return " ".join(option_words(rounded))


def number(value: float) -> str:
    """A value to be read: infinite if the training diverged."""
    return "diverged" if math.isinf(value) else f"{value:.4f}"


def duration(seconds: float) -> str:
    """12 s, 3.4 min or 5.6 h."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"


def grouped(words: Sequence[str]) -> list[list[str]]:
    """Each option with its values; first the words before all options."""
    options: list[list[str]] = [[]]
    for word in words:
        if word.startswith("--"):
            options.append([])
        options[-1].append(word)
    return options


def differences(words: Sequence[str], others: Sequence[str]) -> tuple[str, str] | None:
    """The options, with values, that only one of two command lines has; None if both have all."""
    one, two = (list(map(shlex.join, grouped(line))) for line in (words, others))
    only_one = " ".join(option for option in one if option not in two)
    only_two = " ".join(option for option in two if option not in one)
    return (only_one or "none", only_two or "none") if only_one or only_two else None
