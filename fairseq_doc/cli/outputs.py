"""What a command says about the files that it wrote; without torch and fairseq."""

from typing import Any


def named_outputs(settings: Any, *options: str) -> dict[str, str]:
    """The entries of a result for files: those of these options that are given, by their names."""
    return {option: getattr(settings, option) for option in options if getattr(settings, option)}


def output_lines(result: dict[str, Any], *options: str) -> list[str]:
    """The lines of a text for them."""
    return [f"wrote {result[option]}" for option in options if option in result]
