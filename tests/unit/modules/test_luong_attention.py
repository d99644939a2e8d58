import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fairseq_doc.modules.luong_attention import SCORES, LuongAttention

from ..conftest import assert_close, gradients

B, Q, S, D = 2, 3, 5, 4
PADDING = torch.tensor([[False] * 5, [True, False, False, True, True]])


def attention(score, seed=0):
    torch.manual_seed(seed)
    return LuongAttention(D, score).double()


def query_and_memory(seed=0):
    rng = torch.Generator().manual_seed(seed)
    shapes = ((B, Q, D), (B, S, D))
    return [torch.randn(*shape, generator=rng, dtype=torch.float64) for shape in shapes]


def apply(module, query, memory, padding_mask=PADDING):
    return module(query, module.keys(memory), module.values(memory), padding_mask)


@pytest.mark.parametrize("score", SCORES)
@given(
    st.lists(st.lists(st.booleans(), min_size=S, max_size=S), min_size=B, max_size=B).filter(
        lambda rows: not any(all(row) for row in rows)
    ),
    st.integers(0, 9),
)
def test_weights_sum_to_one_and_are_zero_at_padding(score, padding, seed):
    padding = torch.tensor(padding)
    module, (query, memory) = attention(score, seed), query_and_memory(seed)
    query.requires_grad_(), memory.requires_grad_()
    a, weights = apply(module, query, memory, padding)
    spread = padding.unsqueeze(1).expand(B, Q, S)
    assert_close(weights.sum(-1), torch.ones(B, Q))
    assert (weights[spread] == 0).all() and (weights[~spread] > 0).all()
    (gradient,) = gradients((a.square().sum() + weights.square().sum()), [memory])
    assert (gradient[padding] == 0).all()
    assert_close(apply(module, query, memory.masked_fill(padding.unsqueeze(2), 1e3), padding)[0], a)


@pytest.mark.parametrize("score, names", [
    ("dot", {"combine.weight"}),
    ("general", {"combine.weight", "general.weight"}),
    ("concat", {"combine.weight", "concat.weight", "vector"}),
])  # fmt: skip
def test_parameters_have_no_biases(score, names):
    assert {name for name, _ in attention(score).named_parameters()} == names
    assert attention(score).by_inner_products == (score != "concat")
