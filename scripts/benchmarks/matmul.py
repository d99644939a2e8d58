"""GFLOP/s of MKL and oneDNN, on which the choices of --backend and of chunk sizes are based.

    ONEDNN_MAX_CPU_ISA=AVX2 python scripts/benchmark.py matmul     # oneDNN with 256-bit vectors

R rows of width d and a matrix of V rows: one chunk of the output operation at the sizes of Penn Treebank and
WikiText-2, and an LSTM layer's input over a window. Products:

    logits          (R, d) x (d, V)
    d components    (R, V) x (V, d)
    d matrix        (d, R) x (R, V)

on one thread and on all cores, the fastest of --repeats; also with bfloat16 factors, for which both use
oneDNN. The forms take turns. Then the seconds of the whole output operation, by the bytes in a chunk,
for both sizes and in --repeats turns.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

from benchmarks.tools import fastest_in_turns
from fairseq_doc.ops import matmul
from fairseq_doc.ops.mixture import Mixture
from fairseq_doc.ops.mixture_nll import fused_mixture_nll
from fairseq_doc.options import option

# R, d, V
SIZES = {"ptb": (280, 280, 10_000), "wikitext2": (225, 300, 33_278), "lstm": (840, 960, 3_840)}
CHUNKS = (8, 16, 30)  # MiB
TOKENS = {"ptb": 420, "wikitext2": 120}  # tokens in the output operation


@dataclass(frozen=True, kw_only=True)
class Options:
    repeats: int = option("rounds", 5, least=1)


def gflops(repeats, rows, width, words):
    """{product: {library or ``bfloat16``: GFLOP/s}}."""
    k, weight = torch.randn(rows, width), torch.randn(words, width)
    e = torch.rand(rows, words)
    operands = {"logits": (k, weight), "d components": (e, weight.t()), "d matrix": (k.t(), e.t())}
    operations = 2e-9 * rows * width * words  # in billions: a multiplication and an addition each
    found: dict[str, dict[str, float]] = {}
    for product, (left, right) in operands.items():
        forms: dict[str, Callable[[], object]] = {
            library: partial(_by, library, left, right) for library in matmul.BACKENDS
        }
        forms["bfloat16"] = partial(matmul.matmul, left.bfloat16(), right.bfloat16())
        seconds = fastest_in_turns(forms, repeats)
        found[product] = {form: operations / taken for form, taken in seconds.items()}
    return found


def _by(library, left, right):
    matmul.force_backend(library)
    return matmul.matmul(left, right)


def seconds_by_chunk(size, repeats):
    """{MiB in a chunk: seconds of the forward and backward pass of the output operation}."""
    _, width, words = SIZES[size]
    tokens, j = TOKENS[size], 20
    components = torch.randn(tokens, j, width).tanh_().requires_grad_()
    log_weights = torch.randn(tokens, j).log_softmax(1).requires_grad_()
    weight = torch.empty(words, width).uniform_(-0.1, 0.1).requires_grad_()
    bias, target = torch.zeros(words, requires_grad=True), torch.randint(words, (tokens,))
    parts = components, log_weights, weight, bias

    def run(mib):
        loss = fused_mixture_nll(Mixture(*parts), target, chunk_bytes=mib * 2**20)
        return torch.autograd.grad(loss, parts)

    forms: dict[str, Callable[[], object]] = {f"{mib} MiB": partial(run, mib) for mib in CHUNKS}
    return fastest_in_turns(forms, repeats)


def run(settings):
    """``products``: {size and threads: {product: {form: GFLOP/s}}}; ``chunks``: {size: {chunk: seconds}}."""
    own = matmul.backend()
    found: dict[str, dict[str, dict]] = {"products": {}, "chunks": {}}
    for threads in sorted({1, os.cpu_count() or 1}):
        torch.set_num_threads(threads)
        for size, shape in SIZES.items():
            of_size = found["products"][f"{size}, {threads}"] = gflops(settings.repeats, *shape)
            for product, of_product in of_size.items():
                speeds = "".join(f"  {form} {x:4.0f}" for form, x in of_product.items())
                print(f"{threads} threads  {size:10}{product:13}{speeds} GFLOP/s", flush=True)
    matmul.force_backend(own)
    for size in TOKENS:
        of_chunks = found["chunks"][size] = seconds_by_chunk(size, settings.repeats)
        line = "".join(f"  {chunk} {seconds:.3f} s" for chunk, seconds in of_chunks.items())
        print(f"output operation, {size:10}{line}", flush=True)
    return found
