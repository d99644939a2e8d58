"""analyse: numerical rank of the log-probability matrix over a split (Table 5)."""

from dataclasses import dataclass
from typing import Any

from fairseq_doc.analysis.rank import log_prob_rank
from fairseq_doc.cli.arguments import SingleModelOptions, SplitOptions, ensemble_of
from fairseq_doc.errors import FairseqDocError
from fairseq_doc.options import option

EXAMPLE = "fairseq-doc rank data-bin/ptb --path checkpoints/ptb/checkpoint_best.pt"


@dataclass(frozen=True, kw_only=True)
class Options(SplitOptions, SingleModelOptions):
    tolerance: float | None = option(
        "count singular values above this multiple of the largest (default: max(N, V) 2^-52 for N "
        "tokens and V words, as in numpy.linalg.matrix_rank)"
    )

    def __post_init__(self) -> None:
        if self.matmul_precision is not None:
            raise FairseqDocError("the rank is computed in float64: leave out --matmul-precision")


def run(settings: Options) -> dict[str, Any]:
    """Result: ``rank``; ``tokens`` N and ``vocabulary`` V, the shape of the matrix; ``tolerance``;
    ``largest_singular_value``; ``smallest_counted`` and ``largest_not_counted`` (or null), the
    singular values on both sides of the tolerance."""
    split = settings.gen_subset
    found = log_prob_rank(ensemble_of(settings), split, settings.tolerance)
    values = found.singular_values.tolist()
    return {
        "split": split,
        "rank": found.rank,
        "tokens": found.rows,
        "vocabulary": len(values),
        "tolerance": found.tolerance,
        "largest_singular_value": values[0],
        "smallest_counted": values[found.rank - 1],
        "largest_not_counted": values[found.rank] if found.rank < len(values) else None,
    }


def as_text(result: dict[str, Any]) -> str:
    """Two lines."""
    rest = result["largest_not_counted"]
    not_counted = "none" if rest is None else f"{rest:.3g}"
    return (
        "{split}: rank {rank:,} of {tokens:,} tokens x {vocabulary:,} words\n"
        "singular values: largest {largest_singular_value:.3g}, smallest counted "
        "{smallest_counted:.3g}, largest not counted {not_counted}; counted above {tolerance:.3g} "
        "times the largest".format(not_counted=not_counted, **result)
    )
