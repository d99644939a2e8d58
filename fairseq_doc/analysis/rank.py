"""The numerical rank of the matrix of log-probabilities (the paper's Table 5).

A is (N, V): row t holds log P(. | context t) of every word at token t of a split. Its numerical
rank is the number of singular values above

    tolerance * s_1,    by default tolerance = max(N, V) * 2^-52,

s_1 the largest: the rule of ``numpy.linalg.matrix_rank``, in float64. For one softmax,

    A = H W^T + 1 b^T - z 1^T

with row normalisers z, so its rank is at most d + 2: d for W, one for b, one for z. (The paper's
footnote 7 says d + 1, since it does not count z.) A mixture is not linear: its rank can be up to V.

Memory holds a piece of the rows and a triangular factor R with R^T R = A^T A, into which the pieces
are folded by orthogonal transformations (LAPACK's ``tpqrt``). So R has the singular values of A to
the precision of float64; the product A^T A itself would lose half of the digits.
"""

import logging
from dataclasses import dataclass

import numpy as np
import torch
from scipy.linalg import lapack

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.evaluation.ensemble import Ensemble, windows_of
from fairseq_doc.evaluation.progress import track
from fairseq_doc.modules.mixture import check_finite

logger = logging.getLogger(__name__)

PIECE = 1024  # rows folded at once
PANEL = 64  # columns that tpqrt reflects at once


@dataclass(frozen=True)
class Rank:
    """The number of singular values above ``tolerance`` times the largest."""

    rank: int
    rows: int  # N
    tolerance: float
    singular_values: np.ndarray  # (V,), the largest first


class StreamedMatrix:
    """Computes the singular values of a matrix from its rows, which arrive in pieces."""

    def __init__(self, columns: int):
        self.rows = 0
        self._factor = np.zeros((columns, columns), order="F")  # R

    def add(self, rows: np.ndarray) -> None:
        """Fold rows, (n, V) float64, n >= 1, into the factor."""
        check_finite(torch.from_numpy(rows))
        self.rows += len(rows)
        panel = min(PANEL, len(self._factor))
        self._factor, *_ = lapack.dtpqrt(0, panel, self._factor, rows, overwrite_a=1)

    def rank(self, tolerance: float | None = None) -> Rank:
        """The numerical rank; ``tolerance`` is relative, by default as above."""
        values = torch.linalg.svdvals(torch.from_numpy(self._factor)).numpy()
        if tolerance is None:
            tolerance = max(self.rows, len(values)) * 2.0**-52
        return Rank(int((values > tolerance * values[0]).sum()), self.rows, tolerance, values)


@torch.no_grad()
def log_prob_rank(
    ensemble: Ensemble,
    split: str,
    tolerance: float | None = None,
    piece: int = PIECE,
) -> Rank:
    """The numerical rank of one model over a split, with a carried state. The model is made float64,
    since float32's noise would count as rank. At most ``piece`` rows of A are held at once."""
    if tolerance is not None and not 0 < tolerance < 1:
        raise FairseqDocError(f"tolerance must be between 0 and 1; got {tolerance}", "tolerance")
    model = ensemble.to(torch.float64).single
    matrix = StreamedMatrix(len(ensemble.dictionary))
    for sample in track(windows_of(ensemble, split), f"rank {split}"):
        source = sample["net_input"]["src_tokens"].to(ensemble.device)
        mixture_params, extra = model(source, window=sample["net_input"]["window"])
        for part in mixture_params.split(piece, dim=1):
            log_probs = model.get_normalized_probs((part, extra), log_probs=True)  # (1, t, V)
            matrix.add(log_probs[0].cpu().numpy())
    logger.info(f"rank {split}: the singular values of {matrix.rows:,} rows")
    return matrix.rank(tolerance)
