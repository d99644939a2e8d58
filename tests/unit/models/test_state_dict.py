import copy
import math

import pytest
import torch

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.models.state_dict import CHECKSUM, check_state_dict

from ..conftest import small_model, small_translation_model


def of_sides(*sides, words=5, checksum=1):
    """As much of a model's state as the check reads."""
    state = {"weight": torch.ones(2, 3)}
    for side in sides:
        state[f"{side}embedding"] = torch.ones(words, 2)
        state[f"{side}{CHECKSUM}"] = torch.tensor(checksum)
    return state


SIDES = {
    "dictionary": ("decoder.",),
    "source dictionary": ("encoder.", "decoder."),
    "target dictionary": ("encoder.", "decoder."),
}


@pytest.mark.parametrize("which", SIDES)
@pytest.mark.parametrize(
    "changes, problem",
    [
        ({"embedding": torch.ones(6, 2)}, "expected 5 words, as the data has, got 6"),
        ({"embedding": torch.ones(5, 3)}, None),
        (
            {CHECKSUM: torch.tensor(2)},
            "as many words as the data's, 5, but others or in another order .*expected 1, got 2",
        ),
    ],
)
def test_the_side_whose_dictionary_differs_is_named(which, changes, problem):
    expected, state = (of_sides(*SIDES[which]) for _ in range(2))
    check_state_dict(expected, state)
    side = SIDES[which][-1 if which == "target dictionary" else 0]
    state.update({side + name: tensor for name, tensor in changes.items()})
    problem = f"another {which}: .*{problem}" if problem else f"another size: expected {side}embed"
    with pytest.raises(FairseqDocError, match=f"is of {problem}") as caught:
        check_state_dict(expected, state)
    assert "\n" not in str(caught.value)


def test_another_architecture_names_three_tensors_at_most():
    expected, state = of_sides("decoder."), of_sides("decoder.")
    del state["weight"]
    state.update({f"new{n}": torch.ones(1) for n in range(5)})
    with pytest.raises(FairseqDocError) as caught:
        check_state_dict(expected, state)
    assert str(caught.value) == (
        "the checkpoint is of another architecture: expected 3 tensors, got 7; missing: weight; "
        "unknown: new0, new1, new2"
    )


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
    with pytest.raises(FairseqDocError, match="two matrices"):
        model.load_state_dict(state)
