"""examples/multi30k."""

import importlib
import sys

import numpy as np
from conftest import ROOT

from fairseq_doc.scoring.metrics import Metric

sys.path.insert(0, str(ROOT / "examples/multi30k"))
seeds = importlib.import_module("seeds")


def test_an_interval_has_all_of_the_variance_between_seeds():
    """Of four seeds, three are drawn: the mean of four drawn ones has 3/4 of the variance. All three
    are the good one once in 64 times, below the quantile."""
    mean = Metric("mean", 1, lambda text, reference: (), lambda sums: sums[0] / sums[1])
    first, own = np.zeros((4, 5, 2)), np.zeros((4, 5, 2))  # (R, U, S)
    first[..., 1] = own[..., 1] = 1
    own[3, :, 0] = 40
    assert seeds.distance(mean, own, first) == ("+10.00 ± 10.00", "+0.00 to +26.67")
