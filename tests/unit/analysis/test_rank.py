import numpy as np
import pytest
import torch
from conftest import assert_refused
from hypothesis import given, settings
from hypothesis import strategies as st

from fairseq_doc.analysis.rank import StreamedMatrix, log_prob_rank

from ..evaluation.conftest import ensemble, peaked_model, probs_by_hand, with_bias

N, V, D = 120, 20, 4


def matrix_of(values, rows, columns, seed=0):
    """A matrix with these singular values and zeros."""
    rng = np.random.default_rng(seed)
    sizes = ((n, len(values)) for n in (rows, columns))
    left, right = (np.linalg.qr(rng.standard_normal(size))[0] for size in sizes)
    return (left * values) @ right.T


def streamed(matrix, cuts=(7, 20)):
    stream = StreamedMatrix(matrix.shape[1])
    for part in filter(len, np.split(matrix, cuts)):
        stream.add(part)
    return stream


@given(st.data(), st.integers(0, 60), st.integers(1, 12), st.integers(0, 99))
def test_rank_and_singular_values_are_those_of_the_whole_matrix(data, rows, columns, seed):
    """In whatever pieces it comes; of any rank."""
    rank = data.draw(st.integers(0, min(rows, columns)))
    cuts = sorted(data.draw(st.lists(st.integers(0, rows), max_size=8)))
    values = np.random.default_rng(seed).uniform(0.1, 5, rank)
    matrix = matrix_of(values, rows, columns, seed)
    found = streamed(matrix, cuts).rank()
    assert found.rank == rank == (np.linalg.matrix_rank(matrix) if rows else 0)
    assert (found.rows, len(found.singular_values)) == (rows, columns)
    assert found.tolerance == max(rows, columns) * 2**-52
    known = np.append(np.sort(values)[::-1], np.zeros(columns - rank))
    np.testing.assert_allclose(found.singular_values, known, rtol=0, atol=1e-13)


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
def test_small_singular_values_are_not_lost(scale):
    """From 1 down to 1e-11 of the largest. The eigenvalues of A^T A are good to 2^-52 of the largest,
    so their roots lose everything below 1e-8: here the numerical rank would be too small."""
    values = scale * np.logspace(0, -11, 12)
    matrix = matrix_of(values, 400, 15)
    found = streamed(matrix, [10, 111]).rank()
    np.testing.assert_allclose(found.singular_values[:12] / values, 1, rtol=1e-3)
    assert found.rank == np.linalg.matrix_rank(matrix) == 12
    assert (found.singular_values[12:] < 1e-14 * scale).all()


@pytest.mark.parametrize("tolerance, rank", [(None, 4), (5e-3, 3), (0.5, 1)])
def test_singular_values_above_the_tolerance_times_the_largest_are_counted(tolerance, rank):
    matrix = matrix_of(np.array([300.0, 30.0, 3.0, 0.03]), 40, 6)
    assert streamed(matrix).rank(tolerance).rank == rank


@pytest.mark.parametrize("row, value", [(0, np.nan), (6, np.inf), (29, -np.inf)])
def test_what_is_not_finite_is_refused(value, row):
    matrix = np.ones((30, 3))
    matrix[row, 1] = value
    assert_refused("a score is not finite", lambda: streamed(matrix).rank())


def one_softmax():
    return peaked_model(layer_dims=f"6,{D}", doc_components="0,0,1", plain_output=True)


def same_softmax():
    """A mixture of one and the same softmax."""
    model = peaked_model(doc_components="0,0,3")
    with torch.no_grad():
        for p in model.decoder.output.projections["2"].parameters():
            p.copy_(torch.cat([p[:D]] * 3))
    return model


def projected(width):
    return peaked_model(doc_components="0,0,1", untie_output=True, component_dim=width)


def rank_of(model, text, **settings):
    return log_prob_rank(ensemble(model, folder=text.folder), "test", **settings)


@pytest.mark.parametrize(
    "model, rank",
    [
        # log P = H W^T + 1 b^T - z 1^T: d columns of H, the ones of the bias, the normalisers z
        (one_softmax, D + 2),
        # a bias that is the same for every word is taken out again by the normaliser
        (lambda: with_bias(one_softmax(), slice(None), 3.0), D + 1),
        (lambda: projected(7), 7 + 2),
        (same_softmax, D + 2),
        (lambda: peaked_model(doc_components="1,0,2"), V),
        (lambda: one_softmax().float(), D + 2),  # computed in float64
    ],
)
def test_the_rank_of_one_softmax_and_of_a_mixture(text, model, rank):
    found = rank_of(model(), text)
    assert (found.rank, found.rows, len(found.singular_values)) == (rank, N, V)


@settings(max_examples=20)
@given(piece=st.integers(1, 400), window=st.integers(1, 400))
def test_the_matrix_is_that_of_the_text_read_as_one(text, piece, window):
    model = peaked_model()
    it = ensemble(model, folder=text.folder, eval_window=window)
    found = log_prob_rank(it, "test", piece=piece)
    whole = probs_by_hand([model], torch.tensor([text.tokens[:-1]]))[0].log()
    expected = torch.linalg.svdvals(whole).numpy()
    np.testing.assert_allclose(found.singular_values, expected, rtol=0, atol=1e-11 * expected[0])
    assert found.rows == N


@pytest.mark.parametrize("tolerance", [0.0, 1.0, -1e-9, np.nan])
def test_a_tolerance_out_of_its_range_is_refused(text, tolerance):
    problem = f"tolerance .* 0 and 1; got {tolerance}"
    assert_refused(problem, rank_of, one_softmax(), text, tolerance=tolerance)
