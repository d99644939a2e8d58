"""Building the encoder-decoder: sizes, initial values, settings, checkpoints."""

import copy
import math

import pytest
import torch
from conftest import assert_refused

from fairseq_doc.modules.attentional_lstm import SCORES

from ..conftest import assert_close, build, small_dictionary, small_translation_model
from .luong import JOINT, OPTIONS, SOURCES, TARGETS, V, log_probs, padded, shared_model


def test_parameters_of_the_papers_model():
    """D = 500, i_2 = i_3 = 2, 16,000 words a side: embeddings and output 3 x 8,000,000 + 16,000;
    encoder 2 x 2 x 4 x 500 x 1,002; decoder 4 x 500 x 1,502 and x 1,002; attention 3 x 250,000;
    W_j and b_j 4 x 500 x 501, W_pi 4 x 500."""
    with torch.device("meta"):
        model = build("lstm_luong_doc_iwslt16", 16_000)
    expected = 24_016_000 + 8_016_000 + 3_004_000 + 2_004_000 + 750_000 + 1_002_000 + 2_000
    assert sum(p.numel() for p in model.parameters()) == expected


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("settings, reach", [({}, 0.1), ({"init_range": 0.3}, 0.3)])
def test_every_parameter_starts_uniform(score, settings, reach):
    """In +-R: mean 0 and deviation 2 R / sqrt(12), within six deviations of a sample's."""
    widths = dict.fromkeys(("encoder_embed_dim", "decoder_embed_dim", "hidden_size"), 32)
    settings = {**settings, **widths, "attention_score": score}
    model = small_translation_model(100, scale=1.0, **settings)
    deviation = 2 * reach / math.sqrt(12)
    for name, p in model.named_parameters():
        n, p = p.numel(), p.detach()
        assert p.min() >= -reach and p.max() <= reach, name
        assert abs(p.mean()) < 6 * deviation / math.sqrt(n), name
        spread = 6 * deviation * math.sqrt(0.2 / n) + 1e-3 * reach * (n > 32)
        assert abs(p.std() - deviation) < spread, name
        assert len(p.unique()) > 0.9 * n, name


def test_tied_matrices():
    untied = shared_model().decoder
    assert untied.output.weight.shape == (V, 5) and untied.output.weight is not untied.embedding
    assert shared_model("narrow components").decoder.output.weight.shape == (V, 2)
    tied = shared_model("tied")
    assert tied.decoder.output.weight is tied.decoder.embedding is not tied.encoder.embedding
    all_tied = shared_model("all tied")
    assert all_tied.encoder.embedding is all_tied.decoder.embedding
    assert all_tied.decoder.output.weight is all_tied.decoder.embedding


PLAIN, TIED = OPTIONS["plain output"], OPTIONS["tied"]


@pytest.mark.parametrize(
    "settings, problem",
    [
        ({"doc_components": "1,2"}, "components 1,2: expected 4 numbers"),
        ({"layers": 0}, "layers must be at least 1; got 0"),
        ({"dropout": 1.0}, "dropout must be in"),
        ({**PLAIN, "component_dim": 3}, "project=False .* a last layer of width 3"),
        ({**TIED, "component_dim": 5}, "--component-dim must be the embedding's width, 4; got 5"),
        ({"mix_directions": True, "unidirectional_encoder": True}, "--mix-directions"),
        ({"share_all_embeddings": True}, "--joined-dictionary"),
        (
            {"share_all_embeddings": True, "dictionaries": JOINT},
            r"equal --encoder-embed-dim and --decoder-embed-dim; got \(3, 4\)",
        ),
        (
            {**OPTIONS["all tied"], "encoder_embed_path": "a", "decoder_embed_path": "b"},
            "a single file of embeddings",
        ),
        ({"encoder_embed_path": "/no/such"}, "cannot read /no/such"),
    ],
)
def test_settings_that_do_not_fit_together(settings, problem):
    assert_refused(problem, small_translation_model, **settings)


def words(n_source, n_target, source="s", target="w"):
    return small_dictionary(n_source, source), small_dictionary(n_target, target)


@pytest.mark.parametrize("option", ["default", "all tied", "concat"])
def test_a_models_own_state_is_accepted_and_restores_it(option):
    """And drops nothing in evaluation."""
    model = shared_model(option, 1)
    rates = dict.fromkeys(("dropout", "source_dropout", "target_dropout"), 0.5)
    other = small_translation_model(seed=2, **OPTIONS[option], **rates).eval()
    args = padded(SOURCES, "left"), padded(TARGETS)
    assert not torch.equal(log_probs(other, *args)[0], log_probs(model, *args)[0])
    other.load_state_dict(copy.deepcopy(model.state_dict()))
    assert_close(log_probs(other, *args), log_probs(model, *args), rtol=0, atol=0)


@pytest.mark.parametrize(
    "other, problem",
    [
        ({"encoder_embed_dim": 4}, r"size: expected encoder.embedding \(20, 3\), got \(20, 4"),
        ({"dictionaries": words(21, 20)}, "dictionary: expected encoder.embedding"),
        ({"dictionaries": words(20, 19)}, "dictionary: expected decoder.embedding"),
        ({"dictionaries": words(20, 20, "x")}, "dictionary: .*encoder.dictionary_checksum"),
        ({"dictionaries": words(20, 20, "s", "x")}, "dictionary: .*decoder.dictionary_checksum"),
    ],
)
def test_states_of_other_models(other, problem):
    model, stranger = small_translation_model(), small_translation_model(**other)
    before = copy.deepcopy(model.state_dict())
    assert_refused(f"different {problem}", model.load_state_dict, stranger.state_dict())
    assert_close(model.state_dict(), before, rtol=0, atol=0)
    assert_refused("different", stranger.load_state_dict, before)
