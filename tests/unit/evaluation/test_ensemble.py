import torch
from conftest import assert_refused
from hypothesis import given
from hypothesis import strategies as st

from fairseq_doc.evaluation.ensemble import average_log_probs, load_ensemble

from ..conftest import assert_close


@given(st.lists(st.lists(st.floats(-800, 0), min_size=4, max_size=4), min_size=1, max_size=5))
def test_average_log_probs_is_the_log_of_the_mean(values):
    """Also where the probabilities themselves would be zero in float64."""
    rows = torch.tensor(values, dtype=torch.float64)
    top = rows.max(0).values
    expected = (rows - top).exp().mean(0).log() + top
    assert_close(average_log_probs(list(rows)), expected)


def test_a_checkpoint_that_is_not_there(tmp_path):
    path = f"{tmp_path}/none.pt"
    for paths in (path, [path]):
        assert_refused("cannot read .*/none.pt", load_ensemble, paths, tmp_path)
    problem = "precision must be float32 or bfloat16; got half"
    assert_refused(problem, load_ensemble, path, tmp_path, precision="half")
