"""What a command says about the files that it wrote; imports neither torch nor fairseq."""

from typing import Any


def named_outputs(settings: Any, *options: str) -> dict[str, str]:
    """Those of the options that are given, as entries of a result."""
    return {option: getattr(settings, option) for option in options if getattr(settings, option)}


def output_lines(result: dict[str, Any], *options: str) -> list[str]:
    """Those entries as lines."""
    return [f"wrote {result[option]}" for option in options if option in result]
