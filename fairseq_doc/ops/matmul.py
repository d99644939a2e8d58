"""Matrix products by the fastest kernel that torch carries.

torch hands a float32 ``mm`` on a CPU to MKL, which on processors that are not Intel's keeps to
256-bit vectors. oneDNN, shipped in the same wheel, chooses its kernel by what the processor can
do: on a Zen 5 core it runs the products of the output layer about twice as fast, on an Intel Xeon
MKL's are a third faster. So the choice follows the processor's maker, and never a timing: the two
round differently, and a resumed run should not. The environment variable ``FAIRSEQ_DOC_MATMUL``
names one of the two, ``onednn`` or ``torch``. oneDNN's dense float32 product is reachable through
one operator that ``torch.compile`` uses as well; where that operator is missing, or the tensors are
not float32 on a CPU, torch's own product is taken.
"""

import os
from pathlib import Path

import torch

from fairseq_doc.errors import FairseqDocError

# oneDNN keeps each primitive that it made, by default 1,024 of them, and an LSTM's hold megabytes for
# every length of a window. It reads this at its first primitive.
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
_ONEDNN_LINEAR = getattr(torch.ops.mkldnn, "_linear_pointwise", None)
backend = default_backend()

# A product to be added is made in blocks of this many bytes: they stay in the cache, and below the
# size (32 MiB) above which glibc's allocator maps every block anew, page fault by page fault.
BLOCK_BYTES = 12 * 2**20


def matmul_dtype(tensor):
    """The dtype in which products with ``tensor`` are taken: autocast's where it is on and the tensor
    float32, else its own."""
    kind = tensor.device.type
    if torch.is_autocast_enabled(kind) and tensor.dtype == torch.float32:
        return torch.get_autocast_dtype(kind)
    return tensor.dtype


def autocast_off(tensor):
    """Autocast off: within, every dtype is chosen by name."""
    return torch.autocast(tensor.device.type, enabled=False)


def _onednn_applies(left, right):
    return (
        backend == "onednn"
        and left.device.type == "cpu"
        and left.dtype == right.dtype == torch.float32
        and min(left.numel(), right.numel()) > 0
    )


def _onednn(left, right, bias=None):
    return _ONEDNN_LINEAR(dense_operand(left), dense_operand(right), bias, "none", [], "")


def dense_operand(matrix):
    """``matrix``, copied where oneDNN would be slow with it: it must be dense, or the transpose of
    a dense matrix.

    oneDNN takes any other stride, such as half of the columns of a wider matrix, to its reference
    kernel: (128, 1000) x (2000, 1000) then takes 3,418 ms instead of 2.4 (AMD Zen 4). Whoever uses
    one matrix in a loop calls this once before it. MKL reads any stride, so for it nothing is copied.
    """
    if not _onednn_applies(matrix, matrix) or _is_dense(matrix) or _is_dense(matrix.t()):
        return matrix
    return matrix.contiguous()


def _is_dense(matrix):
    # torch calls a matrix of one row contiguous whatever its strides are; oneDNN may not.
    return matrix.is_contiguous() and matrix.stride() == (matrix.size(1), 1)


def matmul(left, right, bias=None):
    """``left @ right.T + bias``, without a graph.

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


def add_matmul_(total, left, right):
    """``total += left @ right.T`` in place; shapes as in :func:`matmul`. ``total`` may be of a
    wider dtype than the factors."""
    if _onednn_applies(left, right):
        height = max(1, BLOCK_BYTES // (4 * right.size(0)))
        right = dense_operand(right)
        for at in range(0, left.size(0), height):
            total[at : at + height].add_(_onednn(left[at : at + height], right))
        return total
    if total.dtype == left.dtype:
        return total.addmm_(left, right.t())
    return total.add_(torch.mm(left, right.t()))
