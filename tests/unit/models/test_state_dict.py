import math

import pytest
import torch
from conftest import assert_refused

from fairseq_doc.models.state_dict import check_state_dict


def test_another_architecture_names_three_tensors_at_most():
    expected = {"old": torch.ones(1), "both": torch.ones(1)}
    state = {"both": torch.ones(1), **{f"new{n}": torch.ones(1) for n in range(5)}}
    problem = "architecture: expected 2 tensors, got 6; missing: old; unknown: new0, new1, new2$"
    assert_refused(problem, check_state_dict, expected, state)


@pytest.mark.parametrize("value", [1.0, math.nan, math.inf])
def test_tensors_that_the_model_ties_must_be_equal(value):
    """Those of a diverged model too, which hold no numbers."""
    matrix = torch.ones(2, 3)
    expected = {"one": matrix, "two": matrix}
    state = {name: torch.full((2, 3), value) for name in expected}
    check_state_dict(expected, state)
    check_state_dict(state, expected)
    state["two"][1] = 0.0
    problem = "expected two tied to one, got two matrices"
    assert_refused(problem, check_state_dict, expected, state)
