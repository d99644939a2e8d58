import copy
import math

import pytest
import torch
from conftest import assert_refused

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.models.state_dict import check_state_dict

from ..conftest import small_model, small_translation_model


def test_another_architecture_names_three_tensors_at_most():
    expected = {"old": torch.ones(1), "both": torch.ones(1)}
    state = {"both": torch.ones(1), **{f"new{n}": torch.ones(1) for n in range(5)}}
    problem = "architecture: expected 2 tensors, got 6; missing: old; unknown: new0, new1, new2$"
    assert_refused(problem, check_state_dict, expected, state)


def test_tensors_that_the_model_ties_must_be_equal():
    matrix = torch.ones(2, 3)
    expected = {"one": matrix, "two": matrix}
    check_state_dict(expected, {"one": torch.ones(2, 3), "two": torch.ones(2, 3)})
    check_state_dict({"one": torch.ones(2, 3), "two": torch.ones(2, 3)}, expected)
    with pytest.raises(FairseqDocError, match="expected two tied to one, got two matrices"):
        check_state_dict(expected, {"one": torch.ones(2, 3), "two": torch.zeros(2, 3)})


@pytest.mark.parametrize(
    "model",
    [small_model, lambda: small_translation_model(share_decoder_input_output_embed=True)],
    ids=["lstm_doc_lm", "lstm_luong_doc"],
)
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_diverged_models_state_is_of_its_own_architecture(model, value):
    """Tied matrices that hold no numbers are tied all the same."""
    model = model()
    with torch.no_grad():
        model.decoder.embedding[7] = value
    state = copy.deepcopy(model.state_dict())
    model.load_state_dict(state)
    state["decoder.output.weight"] = state["decoder.output.weight"].clone()
    model.load_state_dict(state)
    state["decoder.output.weight"][7] = 0.0
    assert_refused("two matrices", model.load_state_dict, state)
