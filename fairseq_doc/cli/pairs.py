"""evaluate: accuracy on minimal pairs, such as BLiMP: which of two sentences is more probable."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fairseq_doc.cli.arguments import ModelOptions, ProgressOptions, ensemble_of
from fairseq_doc.evaluation.minimal_pairs import judge, read_pairs
from fairseq_doc.evaluation.scoring import MAX_TOKENS
from fairseq_doc.options import REQUIRED, option

EXAMPLE = "fairseq-doc pairs data-bin/mine blimp/*.jsonl --path a.pt"


@dataclass(frozen=True, kw_only=True)
class Options(ProgressOptions, ModelOptions):
    files: list[str] = option(
        "pairs: JSON lines as in BLiMP, or two sentences per line separated by a tab, the good one "
        "first",
        REQUIRED,
        positional=True,
        nargs="+",
        metavar="FILE",
        type=str,
        reads="once",
    )
    max_tokens: int = option(
        "tokens scored at once; changes memory and speed, not results", MAX_TOKENS, least=1
    )


def run(settings: Options) -> dict[str, Any]:
    """Result: see :func:`judge`."""
    pairs = [pair for path in settings.files for pair in read_pairs(path)]
    return judge(ensemble_of(settings), pairs, settings.max_tokens)


def as_text(result: dict[str, Any]) -> str:
    """A table of the kinds (BLiMP's paradigms), the phenomena and all pairs."""
    parts = {**result["kinds"], **result["phenomena"], "all": result["all"]}
    width = max(map(len, parts))
    head = f"{'':{width}} {'pairs':>7} {'right':>6}  95 % interval   {'known':>7} {'right':>6}"
    lines = [head, *_rows(result["kinds"], width), ""]
    if result["phenomena"].keys() != result["kinds"].keys():
        lines += [*_rows(result["phenomena"], width), ""]
    lines += _rows({"all": result["all"]}, width)
    if result["ties"]:
        lines.append(f"{result['ties']:,} ties, equal up to rounding, count as wrong")
    return "\n".join(lines)


def _rows(parts: dict[str, dict[str, Any]], width: int) -> Iterator[str]:
    right, interval = "{pairs:7,} {accuracy:6.1f}", "  {low:5.1f} to {high:5.1f}"
    for name, of in parts.items():
        line = f"{name:{width}} " + (right + interval).format(**of)
        yield line if of["known"] is None else f"{line}  {right.format(**of['known'])}"
