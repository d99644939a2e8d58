import math
import os
import subprocess
import sys
from functools import partial

import pytest
import torch
from conftest import assert_refused
from torch.nn import functional as F

from fairseq_doc.ops import matmul, processor

from ..conftest import assert_close, gradients, leaves, relative_errors
from ..device import DEVICE


def numbers(*shape, dtype=torch.float32):
    rng = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=rng, dtype=torch.float64).to(dtype)


STRIDES = {
    "contiguous": lambda x: x.contiguous(),
    "transposed": lambda x: x.t().contiguous().t(),
    "every second row": lambda x: x.repeat_interleave(2, 0)[::2],
    "a slice of columns": lambda x: torch.cat([x, x], 1)[:, : x.size(1)],
    "one row repeated": lambda x: x[:1].expand_as(x),
}


@pytest.mark.parametrize(
    "dtype, wide",
    [
        ("float32", "float32"),
        ("float32", "float64"),
        ("float64", "float64"),
        ("bfloat16", "float32"),
    ],
)
@pytest.mark.parametrize("form", STRIDES)
@pytest.mark.parametrize("left_form", STRIDES)
def test_products_of_any_strides(kernel, left_form, form, dtype, wide):
    """New, with a bias, and added to a total; with an operand made for a loop too."""
    dtype, wide = getattr(torch, dtype), getattr(torch, wide)
    tolerance = 2e-2 if dtype == torch.bfloat16 else 1e-5
    left = STRIDES[left_form](numbers(5, 7, dtype=dtype))
    right, bias = STRIDES[form](numbers(11, 7, dtype=dtype)), numbers(11, dtype=dtype)
    truth = torch.mm(left.double(), right.double().t())
    for operand in (right, matmul.loop_operand(right, 5)):
        results = [matmul.matmul(left, operand), matmul.matmul(left, operand, bias) - bias]
        assert results[0].is_contiguous()
        total = torch.ones(5, 11, dtype=wide)
        assert matmul.add_matmul_(total, left, operand) is total and total.dtype == wide
        for result in (*results, total - 1):
            assert_close(result, truth, rtol=tolerance, atol=4 * tolerance)


@pytest.mark.parametrize("m, n, k", [(0, 3, 4), (3, 0, 4), (3, 4, 0)])
def test_empty_factors(kernel, m, n, k):
    left, right = torch.ones(m, k), torch.ones(n, k)
    assert_close(matmul.matmul(left, right, torch.ones(n)), torch.ones(m, n))
    assert_close(matmul.add_matmul_(torch.ones(m, n), left, right), torch.ones(m, n))


onednn_only = pytest.mark.cpu_only("oneDNN's products")


@pytest.mark.parametrize("intel, backend", [(True, "torch"), (False, "onednn")])
def test_the_backend_follows_the_processor(monkeypatch, intel, backend):
    monkeypatch.setattr(processor, "is_intel", lambda: intel)
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: True)
    assert matmul.faster_backend() == backend


def test_a_torch_without_the_operator_takes_its_own_products(monkeypatch):
    monkeypatch.setattr(matmul, "_ONEDNN_LINEAR", None)
    assert matmul.faster_backend() == "torch"


@pytest.fixture
def no_backend_yet(monkeypatch):
    """The choice is made anew in the test, and after it."""
    monkeypatch.setenv(matmul.BACKEND_VARIABLE, "")
    matmul.backend.cache_clear()
    yield
    matmul.backend.cache_clear()


def test_a_forced_backend_holds_here_and_in_processes_that_are_started(no_backend_yet):
    for name in matmul.BACKENDS:
        matmul.force_backend(name)
        assert matmul.backend() == name
        if name != matmul.faster_backend():
            command = "from fairseq_doc.ops import matmul; print(matmul.backend())"
            started = subprocess.check_output([sys.executable, "-c", command], text=True)
            assert started.strip() == name


@pytest.mark.parametrize("variable", [matmul.BACKEND_VARIABLE, matmul.BFLOAT16_VARIABLE])
def test_a_wrong_variable_is_an_error_at_the_start(monkeypatch, no_backend_yet, variable):
    monkeypatch.setenv(variable, "blas")
    assert_refused(f"{variable}: .* got 'blas'", matmul.check_environment)


@pytest.mark.parametrize("given", [None, "7"])
def test_the_choice_of_a_library_limits_the_kernels_that_are_kept(
    monkeypatch, no_backend_yet, given
):
    monkeypatch.setenv(matmul.CACHE_VARIABLE, "7")
    if given is None:
        monkeypatch.delenv(matmul.CACHE_VARIABLE)
    matmul.backend()
    assert os.environ[matmul.CACHE_VARIABLE] == (given or matmul.KERNELS_KEPT)


@pytest.fixture
def has_bfloat16(monkeypatch):
    """A function that gives the processor instructions for bfloat16, or takes them."""
    matmul.bfloat16_is_faster.cache_clear()
    monkeypatch.delenv(matmul.BFLOAT16_VARIABLE, raising=False)
    monkeypatch.setattr(matmul, "_onednn_has_bfloat16", lambda: True)
    yield lambda able: monkeypatch.setattr(processor, "has_fast_bfloat16", lambda: able)
    matmul.bfloat16_is_faster.cache_clear()


@onednn_only
@pytest.mark.parametrize("named", ["", "yes", "no"])
@pytest.mark.parametrize("able", [True, False])
def test_bfloat16_products_by_the_processor_or_a_name(
    has_bfloat16, monkeypatch, caplog, named, able
):
    has_bfloat16(able)
    monkeypatch.setenv(matmul.BFLOAT16_VARIABLE, named)
    faster = named == "yes" or (named == "" and able)
    for _ in range(2):
        dtype = matmul.matmul_dtype(numbers(2, 3), torch.bfloat16)
        assert dtype == (torch.bfloat16 if faster else torch.float32)
    # one warning, however many products
    assert caplog.text.count("the products are in float32") == (not faster)
    assert matmul.matmul_dtype(numbers(2, 3)) == torch.float32


def test_the_precision_applies_only_to_float32_and_autocast_has_priority(monkeypatch):
    monkeypatch.setattr(matmul, "bfloat16_is_faster", lambda kind: True)
    narrow = torch.bfloat16
    assert matmul.matmul_dtype(numbers(2, dtype=torch.float64), narrow) == torch.float64
    assert matmul.matmul_dtype(numbers(2, dtype=torch.float16), narrow) == torch.float16
    with torch.autocast(DEVICE.type, torch.float16):
        assert matmul.matmul_dtype(numbers(2), narrow) == torch.float16


@pytest.mark.parametrize("least", [0, matmul.LEAST_LINEAR])
@pytest.mark.parametrize("precision", matmul.PRECISIONS.values(), ids=str)
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("shape", [(3, 5), (13, 7)], ids=["15 rows", "91 rows, made 96"])
def test_linear_and_its_gradients(monkeypatch, kernel, shape, precision, biased, least):
    """Against the products of rounded factors; the result and gradients are in float32."""
    monkeypatch.setattr(matmul, "bfloat16_is_faster", lambda kind: True)
    monkeypatch.setattr(matmul, "LEAST_LINEAR", least)
    tensors = [numbers(*shape, 7), numbers(11, 7), numbers(11) if biased else None]
    x, weight, bias = leaves(tensors)
    result = matmul.linear(x, weight, bias, precision)
    upstream = numbers(*shape, 11)
    found = gradients((result * upstream).sum(), [x, weight, bias])
    rounded = leaves(None if p is None else p.to(precision).double() for p in tensors)
    truth = F.linear(*rounded)
    of_truth = gradients((truth * upstream.to(precision).double()).sum(), rounded)
    assert result.dtype == torch.float32 and {p.dtype for p in found} == {torch.float32}
    errors = relative_errors([result, *found], [truth, *of_truth])
    assert errors.max() <= 4 * torch.finfo(precision).eps


@pytest.mark.parametrize("asking", [[0], [1], [2], [0, 1]], ids=str)
def test_a_linear_layer_whose_inputs_do_not_all_ask_for_a_gradient(monkeypatch, kernel, asking):
    monkeypatch.setattr(matmul, "LEAST_LINEAR", 0)
    results = []
    for form in (partial(matmul.linear, precision=torch.float32), F.linear):
        inputs = [numbers(*shape) for shape in ((5, 7), (11, 7), (11,))]
        asked = [inputs[number].requires_grad_() for number in asking]
        x = STRIDES["transposed"](inputs[0])
        results.append(gradients(form(x, *inputs[1:]).square().sum(), asked))
    assert_close(*results, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("block_columns", [1, 64, 130, 1000])
@pytest.mark.parametrize("rows", [0, 1, 15, 16, 17, 40, 70])
@pytest.mark.parametrize("dtype", matmul.PRECISIONS.values(), ids=str)
def test_a_large_product_in_blocks_of_columns(kernel, monkeypatch, dtype, rows, block_columns):
    left, right, bias = (numbers(*n, dtype=dtype) for n in ((rows, 7), (7, 150), (150,)))
    dense = right.t().contiguous()
    whole, with_bias = matmul.matmul(left, dense), matmul.matmul(left, dense, bias)
    monkeypatch.setattr(matmul, "LARGEST_PRODUCT", 4 * rows * 100)
    monkeypatch.setattr(matmul, "BLOCK_BYTES", 4 * rows * block_columns)
    total = matmul.add_matmul_(torch.ones(rows, 150), left, right.t())
    truth = 1 + torch.mm(left.double(), right.double())
    tolerance = 4 * torch.finfo(dtype).eps
    assert_close(total, truth, rtol=tolerance, atol=tolerance)
    memory = torch.empty(rows, 150, dtype=dtype)
    result = matmul.matmul(left, dense, out=memory)
    assert dtype == torch.float32 or result.data_ptr() == memory.data_ptr()
    assert_close(result, whole, rtol=tolerance, atol=tolerance)
    assert_close(matmul.matmul(left, dense, bias), with_bias, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("right_form", STRIDES)
@pytest.mark.parametrize("steps", [None, 1, matmul.LEAST_STEPS])
@pytest.mark.parametrize("least", [0, matmul.LEAST_ONEDNN])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_the_product_of_a_step(monkeypatch, kernel, dtype, least, steps, right_form):
    """By each kernel: with a bias, in given memory, added, with rounded factors."""
    monkeypatch.setattr(matmul, "LEAST_ONEDNN", least)
    own = torch.float64 if dtype == torch.float64 else torch.float32
    x, right, bias = (numbers(*shape, dtype=own) for shape in ((5, 7), (11, 7), (11,)))
    product = matmul.StepMatmul(STRIDES[right_form](right), 5, dtype, steps)
    truth = x.double() @ STRIDES[right_form](right).double().t()
    memory = torch.empty(5, 11, dtype=own)
    found = [product.of(x), product.of(x, out=memory), product.add(x, torch.ones_like(memory)) - 1]
    assert found[1] is memory and {y.dtype for y in found} == {own}
    if dtype == own:
        found.append(product.of(x, bias) - bias)
    errors = relative_errors(found, [truth] * len(found))
    coarser = dtype if dtype == torch.bfloat16 else torch.float32
    assert errors.max() <= 4 * torch.finfo(coarser).eps


@onednn_only
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "rows, most, size", [(67, math.inf, 80), (67, 70, 70), (67, 5, 67), (9, 99, 9)]
)
def test_rows_of_a_size(kernel, dtype, rows, most, size):
    x = numbers(rows, 3)
    found = matmul.padded_rows(x, dtype, most)
    if dtype == torch.float32 and matmul.backend() == "torch":
        size = rows
    assert found.dtype == dtype and found.shape == (size, 3)
    assert torch.equal(found[:rows], x.to(dtype)) and not found[rows:].any()
