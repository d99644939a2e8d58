import pytest
import torch
from conftest import assert_refused

from fairseq_doc.analysis.attention import attend

from ..conftest import assert_close, small_translation_model
from ..evaluation.conftest import translator


@pytest.fixture
def model():
    return small_translation_model().eval()


def scored(model, found):
    """The attention and the log-probability of an output in one pass."""
    source = [model.encoder.dictionary.index(word) for word in found["source"]]
    output = [model.decoder.dictionary.index(word) for word in found["output"]]
    prev = torch.tensor([[model.decoder.dictionary.eos(), *output[:-1]]])
    output_params, extra = model(torch.tensor([source]), None, prev)
    log_probs = model.get_normalized_probs((output_params, extra), log_probs=True)[0]
    return extra["attn"][0][0], log_probs.gather(1, torch.tensor(output).unsqueeze(1)).sum()


def test_attention_is_that_of_the_output_in_one_pass(model):
    found = attend(translator(model), ["s1", "s4", "nowhere", "s2"], 3)
    assert found["source"] == ["s1", "s4", "<unk>", "s2", "</s>"]
    assert found["output"][-1] == "</s>"
    weights, log_prob = scored(model, found)
    assert_close(torch.tensor(found["weights"]), weights, rtol=1e-5, atol=1e-5)
    assert_close(found["log_prob"], log_prob.item(), rtol=1e-5, atol=1e-5)
    assert_close(
        torch.tensor(found["weights"]).sum(1),
        torch.ones(len(found["output"])),
        rtol=1e-5,
        atol=1e-5,
    )


def test_of_an_ensemble_the_mean_is_shown(model):
    other = small_translation_model(seed=1, doc_components="0,0,0,2").eval()
    found = attend(translator(model, other), ["s1", "s4", "s2"], 3)
    both = scored(model, found)[0] + scored(other, found)[0]
    assert_close(torch.tensor(found["weights"]), both / 2, rtol=1e-5, atol=1e-5)


def test_a_sentence_longer_than_the_models_read(model):
    assert_refused("at most 11 units.*; got 20", attend, translator(model), ["s1"] * 20)
