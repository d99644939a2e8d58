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


def score_by_hand(module, h, m):
    """Luong et al. (2015), Eq. 8."""
    if module.score == "dot":
        return sum(h[i] * m[i] for i in range(D))
    if module.score == "general":
        weight = module.general.weight
        return sum(h[i] * weight[i, k] * m[k] for i in range(D) for k in range(D))
    both, weight = torch.cat([h, m]), module.concat.weight
    inner = [sum(weight[i, k] * both[k] for k in range(2 * D)) for i in range(D)]
    return sum(module.vector[i] * inner[i].tanh() for i in range(D))


def by_hand(module, query, memory, padding=PADDING):
    """a and p, sentence by sentence, query by query, place by place."""
    outputs, weights = torch.zeros_like(query), query.new_zeros(B, Q, S)
    for b in range(B):
        for q in range(Q):
            powers = [
                0.0 if padding[b, s] else score_by_hand(module, query[b, q], memory[b, s]).exp()
                for s in range(S)
            ]
            p = [power / sum(powers) for power in powers]
            context = sum(p[s] * memory[b, s] for s in range(S))
            both = torch.cat([query[b, q], context])
            outputs[b, q] = (module.combine.weight @ both).tanh()
            weights[b, q] = torch.stack([torch.as_tensor(x) for x in p])
    return outputs, weights


@pytest.mark.parametrize("score", SCORES)
def test_it_is_its_equations(score):
    module, (query, memory) = attention(score), query_and_memory()
    query.requires_grad_(), memory.requires_grad_()
    found, expected = apply(module, query, memory), by_hand(module, query, memory)
    assert_close(found, expected)
    inputs = [query, memory, *module.parameters()]
    grads = [
        gradients(a.square().sum() + (p * torch.arange(S)).sum(), inputs)
        for a, p in (found, expected)
    ]
    assert_close(*grads)
    assert all(g.abs().max() > 1e-6 for g in grads[0])


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


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_sixteen_bits(score, dtype):
    module, (query, memory) = attention(score).to(dtype), query_and_memory()
    query, memory = query.to(dtype), memory.to(dtype)
    a, weights = apply(module, query, memory)
    assert a.dtype == weights.dtype == dtype
    expected = apply(module.double(), query.double(), memory.double())
    assert_close((a, weights), expected, rtol=0.02, atol=0.02)
    assert (weights[1][:, PADDING[1]] == 0).all()
