import copy
import math
from types import SimpleNamespace

import pytest
import torch
from conftest import assert_refused
from torch import nn

from fairseq_doc.models.lstm_doc_lm import LSTMDocLanguageModel, parse_widths
from fairseq_doc.models.state_dict import check_state_dict

from ..conftest import (
    NO_DROPOUT,
    assert_close,
    build,
    drop_factors,
    log_probs,
    random_tokens,
    small_model,
)

B, T, V = 3, 8, 20


@pytest.mark.parametrize(
    "preset, n_words, parameters",
    [
        ("lstm_doc_lm_ptb", 10_000, 22_849_120),  # 23M in the paper
        ("lstm_doc_lm_ptb", 10_002, 22_849_682),  # with fairseq's <s> and <pad>
        ("lstm_doc_lm_wt2", 33_278, 36_639_278),  # 37M in the paper
        ("lstm_awd_lm_ptb", 10_000, 24_221_600),  # 24M in Merity et al. (2018)
    ],
)
def test_parameters_are_those_of_the_papers(preset, n_words, parameters):
    with torch.device("meta"):
        model = build(preset, n_words)
    assert sum(p.numel() for p in model.parameters()) == parameters


@pytest.mark.parametrize("text", ["", "a", "5,", "5,0", "5,-3", "5.5", None])
def test_widths_that_cannot_be(text):
    assert_refused("--layer-dims: expected a positive width", parse_widths, text)


@pytest.mark.parametrize(
    "settings, problem",
    [
        ({"doc_components": "1,2"}, "components 1,2"),
        ({"component_dim": 3}, "--component-dim must be the embedding's width, 4; got 3"),
        ({"plain_output": True}, "project=False"),
        ({"decoder_embed_dim": 0}, "decoder_embed_dim must be at least 1; got 0"),
        *(({name: 1.0}, f"{name} must be in") for name in NO_DROPOUT),
    ],
)
def test_settings_that_do_not_fit_together(settings, problem):
    assert_refused(problem, small_model, **settings)


def test_a_language_model_does_not_translate():
    build_model, translation = LSTMDocLanguageModel.build_model, SimpleNamespace(src_dict=None)
    assert_refused("--arch: expected an encoder-decoder", build_model, None, translation)


def test_output_matrix_is_the_embedding_unless_untied():
    tied, untied = small_model().decoder, small_model(untie_output=True).decoder
    assert tied.output.weight is tied.embedding
    assert untied.output.weight.shape == untied.embedding.shape == (V, 4)
    assert not torch.equal(untied.output.weight, untied.embedding)
    narrow = small_model(untie_output=True, component_dim=3)
    assert narrow.decoder.output.weight.shape == (V, 3)
    assert_close(log_probs(narrow, random_tokens(B, T)).exp().sum(-1), torch.ones(B, T))


@pytest.mark.parametrize("settings, reach", [({}, 0.1), ({"init_range": 0.3}, 0.3)])
def test_initialisation(settings, reach):
    """Output and embedding uniform in +-R, biases of the output and the W_j zero."""
    decoder = small_model(400, **settings, decoder_embed_dim=50, untie_output=True).decoder
    for matrix in (decoder.embedding, decoder.output.weight):
        assert 0.99 * reach < matrix.max() <= reach and -reach <= matrix.min() < -0.99 * reach
        assert abs(matrix.std() - 2 * reach / math.sqrt(12)) < 0.01 * reach
    assert not decoder.output.bias.any()
    assert not any(p.bias.any() for p in decoder.output.projections.values())


def test_forward_is_embedding_lstms_and_mixture():
    """Without dropout in evaluation."""
    model = small_model(**dict.fromkeys(NO_DROPOUT, 0.5)).eval()
    decoder, tokens = model.decoder, random_tokens(B, T)
    h = [nn.functional.embedding(tokens, decoder.embedding).transpose(0, 1)]  # (T, B, D_0)
    for layer in decoder.lstm.layers:
        h.append(layer(h[-1])[0])
    expected, _ = decoder.output([x.transpose(0, 1) for x in h])
    mixture_params, extra = model(tokens)
    assert_close(mixture_params, expected)
    assert_close([extra["undropped"], extra["dropped"]], [h[-1]] * 2)
    assert extra["log_weights"].shape == (B, T, 3)


def test_the_lstm_and_the_mixture_get_the_dropped_input_and_outputs():
    rates = dict.fromkeys(("input_dropout", "hidden_dropout", "output_dropout"), 0.5)
    decoder, tokens = small_model(**rates).decoder, random_tokens(B, 30)
    caught = {}
    decoder.lstm.register_forward_pre_hook(lambda _, args: caught.update(lstm=args[0]))
    decoder.output.register_forward_pre_hook(lambda _, args: caught.update(output=args[0]))
    before = decoder.embedding.detach().clone()
    _, extra = decoder(tokens)
    assert torch.equal(decoder.embedding, before)  # the output matrix, tied to it, is whole
    whole = decoder.embedding[tokens.t()]
    factors = drop_factors(caught["lstm"], whole, 0.5)  # (T, B, D_0)
    assert torch.equal(factors, factors[:1].expand_as(factors))  # one mask a stream
    assert len({tuple(mask) for mask in factors[0].tolist()}) > 1
    assert_close(caught["output"][0], caught["lstm"].transpose(0, 1))
    assert_close(caught["output"][-1], extra["dropped"].transpose(0, 1))
    drop_factors(extra["dropped"], extra["undropped"], 0.5)


@pytest.mark.parametrize("name", NO_DROPOUT)
def test_each_rate_alone_drops_something_in_training(name):
    model, tokens = small_model(**{name: 0.5}), random_tokens(B, T)
    assert not torch.allclose(model(tokens)[0], model.eval()(tokens)[0])


@pytest.mark.parametrize("settings", [{}, {"mogrifier_rounds": 5, "mogrifier_rank": 2}])
@pytest.mark.parametrize("cuts", [(3,), (1, 2, 7)])
def test_windows_in_a_row_equal_one_long_window(cuts, settings):
    model, tokens = small_model(**settings).eval(), random_tokens(B, T)
    parts = torch.tensor_split(tokens, cuts, dim=1)
    outputs = [model(part, window=i)[0] for i, part in enumerate(parts)]
    assert_close(torch.cat(outputs, 1), model(tokens)[0])


def run(model, tokens, *windows):
    return [model(tokens, window=window)[0] for window in windows]


@pytest.mark.parametrize("training", [True, False])
def test_a_window_that_is_run_again_starts_from_the_same_state(training):
    """fairseq repeats a window whose gradients overflowed or that did not fit into memory."""
    model, tokens = small_model().train(training), random_tokens(B, T)
    run(model, tokens, 0)
    for window in (1, 2):
        model.decoder.begin_update(window)
        first, again = run(model, tokens, window, window)
        assert torch.equal(first, again)
    (expected,) = run(model, tokens, 3)
    assert torch.equal(run(model, tokens, 0, 1, 2, 3)[-1], expected)


def test_an_update_of_several_windows_can_be_run_again():
    model, tokens = small_model(), random_tokens(B, T)
    run(model, tokens, 0, 1, 2)
    model.decoder.begin_update(3)
    expected = run(model, tokens, 3, 4)
    model.decoder.begin_update(3)
    assert_close(run(model, tokens, 3, 4), expected, rtol=0, atol=0)
    assert sorted(model.decoder._training_states) == [3, 4, 5]


def test_which_windows_continue_which():
    """A lost window is skipped; without a number nothing is carried; training and evaluation carry a
    state each."""
    model, tokens = small_model(), random_tokens(B, T)
    first, second = run(model, tokens, 0, 1)
    assert torch.equal(run(model, tokens, 0, 2)[1], second)
    run(model, tokens, 0)
    assert_close(run(model, tokens, None)[0], first)
    run(model.eval(), tokens.flip(1), 0, 1)
    assert_close(run(model.train(), tokens, 1)[0], second)


@pytest.mark.parametrize("training", [True, False])
def test_a_later_window_without_a_state_is_an_error(training):
    model, tokens = small_model().train(training), random_tokens(B, T)
    problem = "the state of 3 columns after window 3"
    assert_refused(problem, model, tokens, window=4)
    model.train(not training)(tokens, window=0)  # the other mode's state does not serve
    assert_refused("after window 0", model.train(training), tokens, window=1)
    model(tokens, window=0)
    assert_refused("the state of 2 columns", model, tokens[:2], window=1)


@pytest.mark.parametrize("value", [math.nan, -math.inf])
def test_a_target_without_a_finite_score_is_an_error_in_evaluation(value):
    model, tokens = small_model(), random_tokens(B, T)
    model.decoder.output.bias.data[5] = value
    target = tokens.clone()
    target[:] = 6
    target[0, :2] = 5
    output = model(tokens)
    model.get_normalized_probs(output, True, {"target": target})  # training continues
    model.eval()
    problem, arguments = f"a score is not finite: .* got {value}", (True, {"target": target})
    assert_refused(problem, model.get_normalized_probs, output, *arguments)
    model.get_normalized_probs(output, True)  # nobody asked for these targets
    whole = small_model().eval()
    whole.get_normalized_probs(whole(tokens), True, {"target": target})


@pytest.mark.parametrize(
    "other, problem",
    [
        ({"layer_dims": "6,6,5", "doc_components": "1,0,0,2"}, "different arch.*: .*layers.2"),
        ({"n_words": 21}, r"different dictionary: .*\(20, 4\), got \(21, 4\)"),
        ({"layer_dims": "7,5"}, r"different size: expected decoder.lstm.*\(24, 4\), got \(28, 4\)"),
    ],
)
def test_states_of_other_models(other, problem):
    model, stranger = small_model(), small_model(**other)
    before = copy.deepcopy(model.state_dict())
    assert_refused(problem, model.load_state_dict, stranger.state_dict())
    assert_close(model.state_dict(), before, rtol=0, atol=0)
    assert_refused("a different", stranger.load_state_dict, before)


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
