import pytest
import torch
from conftest import assert_refused
from hypothesis import given
from hypothesis import strategies as st

from fairseq_doc.ops.gated_cell import KINDS
from fairseq_doc.ops.recurrence import CELLS

from ..conftest import assert_close, build, log_probs, random_tokens
from ..device import on_device

NAME = "lstm_melis_lm"
B, T, V = 3, 8, 20
RATES = ("input_dropout", "state_dropout", "output_dropout", "state_reset", "recurrent_dropout")
KINDS_OF_CELLS = [("lstm", kind) for kind in KINDS] + [(n, "untied") for n in CELLS if n != "lstm"]


def small(**settings):
    """A narrow model of two layers without dropout, in training mode, in float64."""
    narrow = {"hidden_size": 6, "embedding_ratio": 0.5, "layers": 2, **dict.fromkeys(RATES, 0.0)}
    return on_device(build(NAME, V, **{**narrow, **settings}).double())


def n_parameters(model):
    return sum(parameter.numel() for parameter in model.parameters())


# Sizes


@pytest.mark.parametrize(
    "preset, n_words, budget, parameters",
    [
        ("lstm_melis_lm_ptb_10m", 10_001, 10_000_000, 9_997_549),
        ("lstm_melis_lm_ptb_24m", 10_001, 24_000_000, 23_979_620),
        ("lstm_melis_lm_ptb_24m_mogrifier", 10_001, 24_000_000, 23_987_393),
        ("lstm_melis_lm_wt2_24m", 33_279, 24_000_000, 23_982_129),
        ("lstm_melis_lm_wt2_35m_mogrifier", 33_279, 35_000_000, 34_991_825),
        ("lstm_melis_lm_enwik8_27m", 206, 27_000_000, 26_947_586),
        ("lstm_melis_lm_enwik8_46m", 206, 46_000_000, 45_978_030),
    ],
)
def test_parameters_are_the_published_ones(preset, n_words, budget, parameters):
    """The preset's width, and the width found for the budget."""
    with torch.device("meta"):
        assert n_parameters(build(preset, n_words)) == parameters
        assert n_parameters(build(preset, n_words, num_params=budget)) == parameters


@given(
    budget=st.integers(2_000, 60_000),
    ratio=st.floats(0.05, 1.5),
    layers=st.integers(1, 3),
    cell=st.sampled_from(KINDS_OF_CELLS),
    components=st.booleans(),
    untied=st.booleans(),
    gates=st.sampled_from([(0, None), (3, None), (5, 2)]),
)
def test_the_width_is_the_largest_within_the_budget(
    budget, ratio, layers, cell, components, untied, gates
):
    rounds, rank = gates if cell[0] == "lstm" else (0, None)
    counts = ",".join("0" * (layers + 1)) + ",3" if components else None
    settings = {
        "embedding_ratio": ratio, "layers": layers, "cell": cell[0], "gates": cell[1],
        "doc_components": counts, "untie_output": untied, "mogrifier_rounds": rounds,
        "mogrifier_rank": rank,
    }  # fmt: skip
    with torch.device("meta"):
        model = build(NAME, V, num_params=budget, **settings)
        width = model.decoder.lstm.width
        assert n_parameters(model) <= budget
        assert n_parameters(build(NAME, V, hidden_size=width + 1, **settings)) > budget
        assert n_parameters(build(NAME, V, hidden_size=width, **settings)) == n_parameters(model)


# Building


@pytest.mark.parametrize(
    "settings, problem",
    [
        ({"num_params": 50}, "--num-params: expected at least 64, .*with 20 words; got 50"),
        ({"layers": 0}, "layers must be at least 1; got 0"),
        ({"embedding_ratio": 0.0}, "embedding_ratio must be above 0; got 0.0"),
        ({"layers": 1, "intra_layer_dropout": 0.1}, "--intra-layer-dropout needs --layers above 1"),
        ({"component_dropout": 0.1}, "--component-dropout needs --doc-components"),
        ({"mogrifier_rounds": 2, "cell": "nas"}, "--mogrifier-rounds needs --cell lstm; got nas"),
        *(({name: 1.0}, f"{name} must be in") for name in RATES),
        (
            {"cell": "nas", "state_dropout": 0.1, "recurrent_dropout": 0.1},
            "--recurrent-dropout needs a --cell other than nas; --state-dropout 0; got 0.1",
        ),
    ],
)
def test_settings_that_do_not_fit_together(settings, problem):
    assert_refused(problem, small, **settings)


def test_initial_values():
    """1 / sqrt(width) for embedding and output matrix, 1 / sqrt(fan in) for W_j and W_pi, cut at two
    deviations of what was drawn; biases are zero."""
    widths = {"hidden_size": 100, "embedding_ratio": 0.5, "doc_components": "0,40,60"}
    decoder = build(NAME, 500, untie_output=True, **widths).decoder
    output = decoder.output
    projections = list(output.projections.values())
    of_width = {
        50: [decoder.embedding, output.weight],
        100: [output.mixture_weights.weight, *(layer.weight for layer in projections)],
    }
    assert len(projections) == 2
    for width, matrices in of_width.items():
        for matrix in matrices:
            assert matrix.abs().max() <= 2 * (1.3 / width) ** 0.5
            assert abs(matrix.std() * width**0.5 / 1.003 - 1) < 0.02
    assert not any(x.any() for x in (output.bias, *(layer.bias for layer in projections)))


# Forward


@pytest.mark.parametrize(
    "cell, rounds",
    [(cell, n) for cell in KINDS_OF_CELLS for n in ([0, 5] if "lstm" in cell else [0])],
)
@pytest.mark.parametrize("components", [None, "0,0,0,3", "1,2,0,2"])
def test_probabilities_sum_to_one_and_windows_in_a_row_equal_one(cell, components, rounds):
    """With a Mogrifier's rounds, too, which change them."""
    settings = {"cell": cell[0], "gates": cell[1], "doc_components": components}
    gates = {"mogrifier_rounds": rounds, "mogrifier_rank": 2} if rounds else {}
    model, tokens = small(**settings, **gates).eval(), random_tokens(B, T)
    whole = log_probs(model, tokens)
    assert_close(whole.exp().sum(-1), torch.ones(B, T))
    parts = [log_probs(model, part, window=n) for n, part in enumerate(tokens.split(3, dim=1))]
    assert_close(torch.cat(parts, dim=1), whole)

    ungated = small(**settings).eval()
    ungated.decoder.load_state_dict(model.decoder.state_dict(), strict=False)
    assert torch.allclose(log_probs(ungated, tokens), whole) == (not rounds)


def test_one_softmax_reads_the_projected_sum():
    model, tokens = small(), random_tokens(B, T)
    decoder = model.decoder
    x = decoder.embedding[tokens.t()]
    outputs, _, _ = decoder.lstm(x, decoder.lstm.zero_state(B, x))
    h = (outputs[0] + outputs[1]) @ decoder.lstm.projection.t()  # (T, B, E)
    scores = h @ decoder.embedding.t() + decoder.output.bias
    assert_close(log_probs(model, tokens), scores.log_softmax(-1).transpose(0, 1))


def test_the_decoder_is_what_its_settings_say():
    """Components read the embedding, the layers and their sum, without a projection of the sum."""
    (layer,) = small(cell="rhn", gates="tied", rhn_depth=3, layers=1).decoder.lstm.layers
    assert (layer.cell.name, layer.cell.kind, len(layer.state_weights)) == ("rhn", "tied", 3)
    decoder = small(doc_components="1,2,0,2").decoder
    assert len(decoder.lstm.layers[0].state_weights) == 1
    assert decoder.lstm.projection is None
    widths = {n: p.in_features for n, p in decoder.output.projections.items()}
    assert widths == {"0": 3, "1": 6, "3": 6}
    assert decoder.lstm.read == {0, 1}


@pytest.mark.parametrize(
    "name", sorted({*RATES, "intra_layer_dropout", "component_dropout"} - {"state_reset"})
)
def test_each_rate_alone_drops_something_in_training(name):
    model, tokens = small(doc_components="1,2,0,2", **{name: 0.5}), random_tokens(B, T)
    assert not torch.allclose(model(tokens)[0], model.eval()(tokens)[0])


def test_each_entry_of_the_embedded_words_is_dropped_on_its_own():
    model = small(input_dropout=0.5)
    rows = model.decoder.embedded(torch.full((40, 50), 7))
    scaled = rows / model.decoder.embedding[7]
    assert set(scaled.round().unique().tolist()) == {0.0, 2.0}
    assert abs((scaled == 0).double().mean() - 0.5) < 0.03


def test_a_streams_state_is_reset_with_the_given_probability():
    """In training alone; each stream's h and c of all layers at once."""
    model = small(state_reset=0.3)
    tokens = random_tokens(400, 2)
    model(tokens, window=0)
    model(tokens, window=1)
    before, whole = (model.decoder._training_states[k] for k in (1, 2))
    flat = torch.cat([part[0] for layer in before for part in layer], dim=1)  # (400, 4 D)
    reset = (flat == 0).all(dim=1)
    assert torch.equal(reset, (flat == 0).any(dim=1))
    assert abs(reset.double().mean() - 0.3) < 0.08
    model.eval()
    model(tokens, window=0)
    model(tokens, window=1)
    assert not (model.decoder.evaluation_states[1][0][0] == 0).any()
    assert all((part != 0).all() for layer in whole for part in layer)


@pytest.mark.parametrize("cell", CELLS)
def test_a_carried_state_can_be_taken_to_another_model(cell):
    """h and c of each layer, side by side; an RHN has h alone."""
    model, other, tokens = small(cell=cell), small(cell=cell), random_tokens(B, 2 * T)
    assert model.decoder.carried_state() is None
    model(tokens[:, :T], window=0)
    state = model.decoder.carried_state()
    assert state.shape == (B, 6 * 2 * (1 + CELLS[cell].has_cell_state)) and not state.requires_grad
    other.decoder.set_carried_state(state)
    assert torch.equal(other.decoder.carried_state(), state)
    second = tokens[:, T:]
    assert_close(log_probs(other, second, window=1), log_probs(model, second, window=1))
