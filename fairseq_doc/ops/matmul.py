"""Matrix products by the fastest kernel in the installed torch.

On a CPU, torch's float32 ``mm`` uses MKL, whose vectors have at most 256 bits on processors not
made by Intel. oneDNN, in the same wheel, computes the products of the output layer up to twice as
fast on AMD Zen 4 and 5; on an Intel Xeon, MKL was faster. So the processor's maker decides, not a
timing, since the two libraries round differently and a resumed run must use the same one.
``FAIRSEQ_DOC_MATMUL`` or :func:`force_backend` forces ``onednn`` or ``torch``. oneDNN is called
through an operator of ``torch.compile``. Factors may be rounded to bfloat16 before a product
(``precision``), which always uses oneDNN and is twice as fast on processors made for it.
"""

import functools
import logging
import math
import os
from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch
from torch import Tensor
from torch.nn import functional as F

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.ops import processor

logger = logging.getLogger(__name__)

_Backward = TypeVar("_Backward", bound=Callable[..., Any])

# oneDNN compiles a kernel for every shape, which takes longer than the product. By default it keeps
# 1,024 kernels of at least a megabyte; a training step of three layers needs about 40. It reads this
# variable when it compiles the first kernel.
CACHE_VARIABLE, KERNELS_KEPT = "ONEDNN_PRIMITIVE_CACHE_CAPACITY", "160"
# From this many rows on, the number of rows is rounded to one of four sizes in an octave, so that
# there are fewer shapes.
LEAST_PADDED_ROWS = 64

# Maximal size in bytes of a product in new memory, since above 32 MiB glibc maps new pages for each.
# A larger product is computed in blocks of columns, which stay in the cache.
LARGEST_PRODUCT = 30 * 2**20
BLOCK_BYTES = 16 * 2**20

# oneDNN is faster for a linear layer, and for a step's product (AMD Zen 5), with at least so many
# multiply-adds; copying a float32 matrix to its layout pays in a loop with at least so many steps.
LEAST_LINEAR = 2**23
LEAST_ONEDNN = 2**20
LEAST_STEPS = 16

PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16}  # {option: dtype}

BACKENDS = ("onednn", "torch")
BACKEND_VARIABLE = "FAIRSEQ_DOC_MATMUL"
BFLOAT16_VARIABLE = "FAIRSEQ_DOC_BFLOAT16"

# Other versions of torch may lack these operators.
_ONEDNN_LINEAR: Any = getattr(torch.ops.mkldnn, "_linear_pointwise", None)
_ONEDNN_PACK: Any = getattr(torch.ops.mkldnn, "_reorder_linear_weight", None)


def _forced(variable: str, *choices: str) -> str:
    """The value of an environment variable; ``""``: nothing is forced."""
    value = os.environ.get(variable, "")
    if value not in ("", *choices):
        expected = f"{' or '.join(choices)}, or nothing for the faster one"
        raise FairseqDocError(f"{variable}: expected {expected}; got {value!r}")
    return value


def faster_backend() -> str:
    """The backend that is faster on this processor, by the processor's maker."""
    has_onednn = torch.backends.mkldnn.is_available() and _ONEDNN_LINEAR is not None
    prefers_mkl = torch.backends.mkl.is_available() and processor.is_intel()
    return "onednn" if has_onednn and not prefers_mkl else "torch"


@functools.cache
def backend() -> str:
    """The library for float32 products on a CPU: ``onednn`` or ``torch``."""
    os.environ.setdefault(CACHE_VARIABLE, KERNELS_KEPT)
    return _forced(BACKEND_VARIABLE, *BACKENDS) or faster_backend()


def force_backend(name: str) -> None:
    """Use ``onednn`` or ``torch`` from now on, in this process and in those that it starts."""
    os.environ[BACKEND_VARIABLE] = name
    backend.cache_clear()
    backend()


def matmul_dtype(tensor: Tensor, precision: torch.dtype = torch.float32) -> torch.dtype:
    """The dtype of products with ``tensor``: its own dtype if that is not float32; else that of
    autocast if it is on; else ``precision`` if the device is faster in it."""
    kind = tensor.device.type
    if tensor.dtype != torch.float32:
        return tensor.dtype
    if torch.is_autocast_enabled(kind):
        return torch.get_autocast_dtype(kind)
    if precision == torch.bfloat16 and not bfloat16_is_faster(kind):
        return torch.float32
    return precision


@functools.cache
def bfloat16_is_faster(device_type: str) -> bool:
    """Whether the device has fast instructions for bfloat16 products: AMX or AMD's AVX512_BF16 on a
    CPU, compute capability 8.0 on a GPU. If not, a warning is logged once. The environment variable
    ``FAIRSEQ_DOC_BFLOAT16``, ``yes`` or ``no``, overrides the answer."""
    named = _forced(BFLOAT16_VARIABLE, "yes", "no")
    faster = named == "yes" if named else has_fast_bfloat16(device_type)
    if not faster:
        logger.warning(
            "matmul precision bfloat16: expected a processor with AMX or AMD's AVX512_BF16, or a GPU "
            "of compute capability 8.0 or more; the products are in float32"
        )
    return faster


def check_environment() -> None:
    """Raise ``FairseqDocError`` for an invalid environment variable, before the first product."""
    backend()
    _forced(BFLOAT16_VARIABLE, "yes", "no")


def has_fast_bfloat16(device_type: str) -> bool:
    """As :func:`bfloat16_is_faster`, but independent of the environment variable."""
    if device_type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    # ONEDNN_MAX_CPU_ISA can keep oneDNN from using instructions of the processor.
    return device_type == "cpu" and processor.has_fast_bfloat16() and _onednn_has_bfloat16()


@functools.cache
def _onednn_has_bfloat16() -> bool:
    return torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()


def is_on_cpu(tensor: Tensor) -> bool:
    """Whether the tensor is on a CPU. Only then may code branch on its values: on a GPU the program
    would wait for them."""
    return tensor.device.type == "cpu"


def needs_gradient(tensor: Tensor | None) -> bool:
    """Whether autograd needs the tensor's gradient."""
    return torch.is_grad_enabled() and tensor is not None and tensor.requires_grad


def autocast_off(tensor: Tensor) -> torch.autocast:
    """A context without autocast on the tensor's device, for code that chooses every dtype itself."""
    return torch.autocast(tensor.device.type, enabled=False)


def backward_without_autocast(backward: _Backward) -> _Backward:
    """Decorator: run an autograd function's backward without autocast, on the device of its first
    saved tensor."""

    @functools.wraps(backward)
    def run(ctx, *gradients):
        with autocast_off(ctx.saved_tensors[0]):
            return backward(ctx, *gradients)

    return cast(_Backward, run)


def _onednn_applies(left: Tensor, right: Tensor) -> bool:
    return (
        backend() == "onednn"
        and left.device.type == "cpu"
        and left.dtype == right.dtype == torch.float32
        and min(left.numel(), right.numel()) > 0
    )


def _onednn(left: Tensor, right: Tensor, bias: Tensor | None = None) -> Tensor:
    return _ONEDNN_LINEAR(dense_operand(left), dense_operand(right), bias, "none", [], "")


def padded_size(rows: int) -> int:
    """``rows``, rounded up by at most a quarter, so that oneDNN compiles few shapes."""
    step = max(1, 2 ** (rows.bit_length() - 3))
    return rows if rows < LEAST_PADDED_ROWS else math.ceil(rows / step) * step


def padded_rows(rows: Tensor, dtype: torch.dtype, most: float = math.inf) -> Tensor:
    """Rows (M, K) in ``dtype``. If oneDNN multiplies them, they are padded by rows of zeros up to
    :func:`padded_size`, at most ``most``, which the caller drops from the result."""
    size = len(rows)
    if rows.device.type == "cpu" and (dtype.itemsize == 2 or _onednn_applies(rows, rows)):
        size = max(size, int(min(padded_size(size), most)))
    if size == len(rows):
        return rows.to(dtype)
    result = rows.new_empty(size, rows.size(1), dtype=dtype)
    result[: len(rows)] = rows
    result[len(rows) :].zero_()
    return result


def dense_operand(matrix: Tensor) -> Tensor:
    """``matrix``, or a dense copy if oneDNN would be slow with its strides; call it before a loop.
    Unless a matrix or its transpose is dense, oneDNN uses its reference kernel: half of the columns
    of a wider matrix, (128, 1000) x (2000, 1000), take 3,418 ms instead of 2.4 (AMD Zen 4)."""
    if not _onednn_applies(matrix, matrix) or _is_dense(matrix) or _is_dense(matrix.t()):
        return matrix
    return matrix.contiguous()


def _is_dense(matrix: Tensor) -> bool:
    # For torch, a matrix of one row is contiguous whatever its strides are; for oneDNN it may not be.
    return matrix.stride() == (matrix.size(1), 1)


def matmul(
    left: Tensor, right: Tensor, bias: Tensor | None = None, out: Tensor | None = None
) -> Tensor:
    """``left @ right.T + bias``: (M, K) and (N, K) with any strides -> (M, N). Not differentiable.
    The result is in ``out`` only if the kernel can write to it."""
    if right.is_mkldnn:  # from loop_operand
        return _ONEDNN_LINEAR(left, right, bias, "none", [], "")
    if _onednn_applies(left, right):
        blocks = _blocks_of_columns(left, right)
        if len(blocks) == 1:
            return _onednn(left, right, bias)
        left = dense_operand(left)
        result = left.new_empty(len(left), len(right)) if out is None else out
        for block in blocks:
            of_block = None if bias is None else bias[block]
            result[:, block] = _onednn(left, right[block], of_block)
        return result
    if bias is None:
        return torch.mm(left, right.t(), out=out)
    return torch.addmm(bias, left, right.t(), out=out)


def add_matmul_(total: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """``total += left @ right.T`` in place; ``total`` may have a wider dtype than the factors."""
    if right.is_mkldnn:  # from loop_operand
        return total.add_(matmul(left, right))
    if _onednn_applies(left, right):
        left, blocks = dense_operand(left), _blocks_of_columns(left, right)
        for block in blocks:
            # right is the transpose of a dense matrix, so a block of its rows is not dense
            part = right if len(blocks) == 1 else right[block].t().contiguous().t()
            total[:, block].add_(_onednn(left, part))
        return total
    if total.dtype == left.dtype:
        return total.addmm_(left, right.t())
    if left.device.type != "cpu":
        return total.add_(torch.mm(left, right.t()))
    # oneDNN sums in float32, in memory of its own that is as large as a block.
    count = len(left)
    if count > 16 and count % 16:  # 301 rows take a third more time than 304 (AMD Zen 4)
        left = F.pad(left, (0, 0, 0, -count % 16))
    for block in _blocks_of_columns(left, right):
        total[:, block].add_(torch.mm(left, right[block].t())[:count])
    return total


def _blocks_of_columns(left: Tensor, right: Tensor) -> list[slice]:
    """Ranges of the rows of ``right``: the columns of a product that are computed at once."""
    width = len(right)
    if 4 * len(left) * width > LARGEST_PRODUCT:
        width = max(64, BLOCK_BYTES // (4 * len(left)) // 64 * 64)
    return [slice(start, start + width) for start in range(0, len(right), max(1, width))]


def matrix_gradient(d: Tensor, x: Tensor, dtype: torch.dtype) -> Tensor:
    """The gradient (M, N) of a matrix that multiplied x: the sum of d x^T over the rows of
    d (..., M) and x (..., N), with factors of ``dtype``."""
    d, x = padded_rows(d.flatten(0, -2), dtype), padded_rows(x.flatten(0, -2), dtype)
    return matmul(d.t(), x.t())


def loop_operand(right: Tensor, rows: int) -> Tensor:
    """``right`` (N, K) for products with ``rows`` rows in a loop: a bfloat16 matrix on a CPU is
    converted to oneDNN's own layout, which is faster."""
    narrow = right.dtype == torch.bfloat16 and right.device.type == "cpu"
    can_pack = narrow and _ONEDNN_PACK is not None and _onednn_has_bfloat16()
    return _ONEDNN_PACK(right, rows) if can_pack else right


class StepMatmul:
    """x W^T in every step of a loop; x has R = ``rows`` rows, and ``weight`` is W, (N, K). Without
    ``steps``, by :func:`matmul`. Otherwise by the fastest kernel: torch's for small products; else
    oneDNN's, with W in its own layout if there are at least ``LEAST_STEPS`` steps. The layout takes
    0.6 of the time for 12 rows (3,840 x 960, AMD Zen 4)."""

    def __init__(
        self, weight: Tensor, rows: int, dtype: torch.dtype | None = None, steps: int | None = None
    ) -> None:
        self._dtype = dtype or weight.dtype
        few = steps is not None and rows * weight.numel() < LEAST_ONEDNN
        self._small = few and self._dtype == weight.dtype
        self._operand = weight = weight.to(self._dtype)
        if self._small:
            return
        many = steps is not None and steps >= LEAST_STEPS and _ONEDNN_PACK is not None
        if many and _onednn_applies(weight, weight):
            self._operand = _ONEDNN_PACK(weight.contiguous(), rows)
        else:
            self._operand = loop_operand(weight, rows)

    def of(self, x: Tensor, bias: Tensor | None = None, out: Tensor | None = None) -> Tensor:
        """x W^T + bias, (R, N), in ``out`` or in new memory."""
        if self._small and bias is None:
            return torch.mm(x, self._operand.t(), out=out)
        product = matmul(x.to(self._dtype), self._operand, bias)
        return product.to(x.dtype) if out is None else out.copy_(product)

    def add(self, x: Tensor, total: Tensor) -> Tensor:
        """Add x W^T to ``total``, (R, N), in place."""
        if self._small:
            return total.addmm_(x, self._operand.t())
        return total.add_(matmul(x.to(self._dtype), self._operand))


class _Linear(torch.autograd.Function):
    """``F.linear`` by :func:`matmul`, with factors of ``dtype``."""

    @staticmethod
    def forward(ctx, x, weight, bias, dtype):
        ctx.shape, ctx.has_bias = x.shape, bias is not None
        rows = padded_rows(x.reshape(-1, x.size(-1)), dtype)  # (M', K)
        weight = weight.to(dtype)
        ctx.save_for_backward(rows, weight)
        in_product = dtype == x.dtype
        result = matmul(rows, weight, bias if in_product else None)[: x.shape[:-1].numel()]
        result = result.to(x.dtype)
        if bias is not None and not in_product:
            result += bias
        return result.view(*x.shape[:-1], len(weight))

    @staticmethod
    @torch.autograd.function.once_differentiable
    @backward_without_autocast
    def backward(ctx, d_output):
        rows, weight = ctx.saved_tensors
        d_result = d_output.reshape(-1, len(weight))  # (M, N)
        d_rows = padded_rows(d_result, weight.dtype)  # (M', N)
        d_x = d_weight = d_bias = None
        if ctx.needs_input_grad[0]:
            d_x = matmul(d_rows, weight.t())[: len(d_result)].to(d_output.dtype).view(ctx.shape)
        if ctx.needs_input_grad[1]:
            d_weight = matmul(d_rows.t(), rows.t()).to(d_output.dtype)
        if ctx.has_bias and ctx.needs_input_grad[2]:
            d_bias = d_result.sum(0)
        return d_x, d_weight, d_bias, None


def linear(x: Tensor, weight: Tensor, bias: Tensor | None, precision: torch.dtype) -> Tensor:
    """``F.linear`` of x (..., K) and weight (N, K), in the dtype of x; the factors of all products,
    forward and backward, have the dtype :func:`matmul_dtype`. Under autocast it is ``F.linear``
    itself."""
    dtype = matmul_dtype(x, precision)
    if torch.is_autocast_enabled(x.device.type):
        return F.linear(x, weight, bias)
    if x.device.type == "cpu" and x.numel() * len(weight) >= LEAST_LINEAR:
        if dtype != x.dtype or _onednn_applies(x, weight):
            return _Linear.apply(x, weight, bias, dtype)
    if dtype == x.dtype:
        return F.linear(x, weight, bias)
    with torch.autocast(x.device.type, dtype):
        return F.linear(x, weight, bias).to(x.dtype)
