"""Settings of a training as words of its command line, and the names of the ready spaces."""

from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

READY = Path(__file__).parent / "spaces"
Value: TypeAlias = bool | int | float | str
Settings: TypeAlias = Mapping[str, Value]  # {option without its dashes: value}


def ready_spaces() -> list[str]:
    """The names of the spaces that come with the package."""
    return sorted(path.stem for path in READY.glob("*.yaml"))


def option_words(settings: Settings) -> list[str]:
    """``{"lr": 0.1, "amp": True}`` -> ``["--lr", "0.1", "--amp"]``, every digit kept."""
    words = []
    for option, value in settings.items():
        text = repr(value) if isinstance(value, float) else str(value)
        if isinstance(value, bool):
            words += [f"--{option}"] if value else []
        elif text.startswith("-"):  # argparse takes -1e-05 for an option
            words.append(f"--{option}={text}")
        else:
            words += [f"--{option}", text]
    return words


def short(settings: Settings) -> str:
    """Settings to be read: numbers with four digits."""
    rounded = {
        option: float(f"{value:.4g}") if isinstance(value, float) else value
        for option, value in settings.items()
    }
    return " ".join(option_words(rounded))
