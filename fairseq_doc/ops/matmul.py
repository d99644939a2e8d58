"""Matrix products by the fastest kernel in the installed torch.

On a CPU, torch gives a float32 ``mm`` to MKL, which uses 256-bit vectors at most on processors that
are not Intel's. oneDNN is in the same wheel and chooses its kernel by what the processor can do. On
a Zen 5 core it runs the products of the output layer about twice as fast; on an Intel Xeon MKL is a
third faster. The backend follows from the processor's maker and never from a timing: the two round
differently, and a resumed run must use the same one. The environment variable
``FAIRSEQ_DOC_MATMUL``, or :func:`force_backend`, forces one, ``onednn`` or ``torch``. oneDNN's dense
float32 product is called through an operator that ``torch.compile`` also uses. Without that operator,
or for tensors that are not float32 on a CPU, torch's own product is used.
"""

import os
from pathlib import Path
from typing import Any

import torch

from fairseq_doc.errors import FairseqDocError

# oneDNN caches its primitives, by default 1,024 of them. An LSTM needs one for every length of a
# window, and each holds megabytes. oneDNN reads this variable when it makes its first primitive.
os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "24")

BACKENDS = ("onednn", "torch")
BACKEND_VARIABLE = "FAIRSEQ_DOC_MATMUL"


def _is_intel() -> bool:
    try:
        return "GenuineIntel" in Path("/proc/cpuinfo").read_text()
    except OSError:
        return False


def default_backend() -> str:
    """The faster backend on this processor, or the one that ``FAIRSEQ_DOC_MATMUL`` names.

    Raises:
        FairseqDocError: the variable names no backend, or one that this torch lacks.
    """
    named = os.environ.get(BACKEND_VARIABLE, "")
    if named not in ("", *BACKENDS):
        raise FairseqDocError(
            f"{BACKEND_VARIABLE}: expected {' or '.join(BACKENDS)}, or nothing for the faster one; "
            f"got {named!r}"
        )
    if not torch.backends.mkldnn.is_available() or _ONEDNN_LINEAR is None:
        if named == "onednn":
            raise FairseqDocError(
                f"{BACKEND_VARIABLE}: expected a torch that carries oneDNN; this one does not: "
                "leave the variable empty"
            )
        return "torch"
    if named:
        return named
    return "torch" if torch.backends.mkl.is_available() and _is_intel() else "onednn"


# The operator that torch.compile uses too; another torch may lack it.
_ONEDNN_LINEAR: Any = getattr(torch.ops.mkldnn, "_linear_pointwise", None)
backend = default_backend()


def force_backend(name: str) -> None:
    """Use ``onednn`` or ``torch`` from now on, in this process and in those that it starts.

    Raises:
        FairseqDocError: as :func:`default_backend`.
    """
    global backend
    before = os.environ.get(BACKEND_VARIABLE)
    os.environ[BACKEND_VARIABLE] = name
    try:
        backend = default_backend()
    except FairseqDocError:
        del os.environ[BACKEND_VARIABLE]
        if before is not None:
            os.environ[BACKEND_VARIABLE] = before
        raise


# add_matmul_ makes its product in blocks of this many bytes. They stay in the cache, and they are
# smaller than 32 MiB, above which glibc's allocator maps new pages for every block.
BLOCK_BYTES = 12 * 2**20


def matmul_dtype(tensor: torch.Tensor) -> torch.dtype:
    """The dtype of products with ``tensor``: autocast's if it is on and the tensor is float32, else
    the tensor's own."""
    kind = tensor.device.type
    if torch.is_autocast_enabled(kind) and tensor.dtype == torch.float32:
        return torch.get_autocast_dtype(kind)
    return tensor.dtype


def autocast_off(tensor: torch.Tensor) -> torch.autocast:
    """A context without autocast on the tensor's device: the code in it chooses every dtype."""
    return torch.autocast(tensor.device.type, enabled=False)


def _onednn_applies(left: torch.Tensor, right: torch.Tensor) -> bool:
    return (
        backend == "onednn"
        and left.device.type == "cpu"
        and left.dtype == right.dtype == torch.float32
        and min(left.numel(), right.numel()) > 0
    )


def _onednn(
    left: torch.Tensor, right: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    return _ONEDNN_LINEAR(dense_operand(left), dense_operand(right), bias, "none", [], "")


def dense_operand(matrix: torch.Tensor) -> torch.Tensor:
    """``matrix``, or a dense copy of it if oneDNN would be slow with its strides.

    oneDNN is fast with a dense matrix and with the transpose of one. For any other stride, such as
    half of the columns of a wider matrix, it uses its reference kernel: (128, 1000) x (2000, 1000)
    then takes 3,418 ms instead of 2.4 (AMD Zen 4). Code that uses one matrix in a loop should call
    this once before the loop. MKL reads any stride, so nothing is copied for it.
    """
    if not _onednn_applies(matrix, matrix) or _is_dense(matrix) or _is_dense(matrix.t()):
        return matrix
    return matrix.contiguous()


def _is_dense(matrix: torch.Tensor) -> bool:
    # torch calls a matrix of one row contiguous whatever its strides are; oneDNN may not.
    return matrix.is_contiguous() and matrix.stride() == (matrix.size(1), 1)


def matmul(
    left: torch.Tensor, right: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """``left @ right.T + bias``. Not differentiable.

    Args:
        left: (M, K), any strides.
        right: (N, K), any strides.
        bias: (N,) or None.

    Returns:
        (M, N), contiguous.
    """
    if _onednn_applies(left, right):
        return _onednn(left, right, bias)
    if bias is None:
        return torch.mm(left, right.t())
    return torch.addmm(bias, left, right.t())


def add_matmul_(total: torch.Tensor, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """``total += left @ right.T`` in place; shapes as in :func:`matmul`. ``total`` may be of a
    wider dtype than the factors."""
    if _onednn_applies(left, right):
        height = max(1, BLOCK_BYTES // (4 * right.size(0)))
        right = dense_operand(right)
        for start in range(0, left.size(0), height):
            block = slice(start, start + height)
            total[block].add_(_onednn(left[block], right))
        return total
    if total.dtype == left.dtype:
        return total.addmm_(left, right.t())
    return total.add_(torch.mm(left, right.t()))
