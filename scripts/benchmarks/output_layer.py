"""Time, memory and error of the mixture's negative log likelihood, forward and backward, on a CPU.

Each row is measured in its own process, in float32 unless it names another precision. The posteriors are
distributed like those of a trained model. Rows:

    definition         fairseq_doc.ops.reference, log-softmax and log-sum-exp
    probabilities      sum_j pi_j softmax_j, then the logarithm, as MoS and DOC were published
    torch, chunked     torch.nn.functional.linear_cross_entropy per component, then log-sum-exp
    ours               fairseq_doc.ops.mixture_nll
    bare products      the three float32 matrix products of a step by torch.mm, into given memory
    ours, bfloat16     ours with bfloat16 factors in products
    products, bfloat16 the three bare products in bfloat16
    sampled            ours with sampled gradients, for posteriors below 0.05
    sampled, bfloat16  both

Ratios refer to the faster of the first two rows ("plain"). Extra memory is the growth of the peak
resident size beyond the inputs, including the gradients. For the second table, glibc's allocator keeps
large blocks, so that the plain forms have no page faults; --json has the figures of the first table.

The last table has the errors against float64 for a quarter of the tokens: of the loss, and of the
gradients, as the Euclidean norm relative to that of the gradient. "plain, bfloat16" is the definition with
products in bfloat16 by autocast.

--large measures only our rows, for vocabularies of 10,000 to a million words.
"""

from dataclasses import dataclass

import torch
from torch.nn import functional as F

from benchmarks.tools import measured_apart, resident_bytes, timed
from fairseq_doc.ops import mixture_nll as ours_nll
from fairseq_doc.ops import reference
from fairseq_doc.options import option

SHAPES = {  # N tokens, J components, d, V
    "ptb": (840, 20, 280, 10_000),
    "wikitext2": (350, 20, 300, 33_278),
}
# Shapes with growing vocabularies, for --large.
LARGE_SHAPES = {
    f"{v:,}": (n, 20, 300, v)
    for n, v in ((600, 10_000), (300, 33_278), (200, 267_735), (102, 1_000_000))
}
LARGE_ROWS = ("ours", "sampled", "ours, bfloat16", "sampled, bfloat16")
LARGE = {"MALLOC_MMAP_THRESHOLD_": "8589934592", "MALLOC_TRIM_THRESHOLD_": "17179869184"}
ALLOCATORS: dict[str, dict[str, str]] = {
    "default allocator": {},
    "large malloc thresholds": LARGE,
}
CHUNKED = "torch, chunked"
PLAIN = ("definition", "probabilities")
ROWS = (*PLAIN, CHUNKED, "ours", "bare products", "ours, bfloat16", "products, bfloat16", "sampled",
        "sampled, bfloat16")  # fmt: skip
# Log weights with posteriors distributed as in a trained model (docs/experiments/speed.md).
SPREAD, SAMPLING = 4.0, 0.05
INPUTS = ("components", "log weights", "matrix", "bias")


@dataclass(frozen=True, kw_only=True)
class Options:
    shapes: tuple[str, ...] = option("sizes (default: both)", (*SHAPES,), nargs="+", choices=SHAPES)
    large: bool = option("measure only our rows, for large vocabularies", False)
    repeats: int = option("runs per row", 5, least=1)


def rows():
    """``ROWS``, without the row whose function is missing in older versions of torch, such as 2.6."""
    return [row for row in ROWS if row != CHUNKED or hasattr(F, "linear_cross_entropy")]


def make_inputs(shape, device="cpu"):
    """[components, log weights, matrix, bias], which require gradients, and the targets."""
    torch.manual_seed(0)
    n, j, d, v = shape
    components, log_weights = torch.randn(n, j, d).tanh_(), SPREAD * torch.randn(n, j)
    matrix = torch.empty(v, d).uniform_(-0.1, 0.1)
    inputs = [components, log_weights.log_softmax(1), matrix, torch.zeros(v)]
    return [x.to(device).requires_grad_() for x in inputs], torch.randint(v, (n,)).to(device)


def losses(mixture, target):
    """{row: a function that computes its loss}."""
    components, log_weights, weight, bias = mixture
    sampled = {"gradient_sampling": SAMPLING}

    def loss(form, **settings):
        return form.mixture_nll(reference.Mixture(*mixture), target, **settings)

    def probabilities():
        softmax = F.softmax(F.linear(components, weight, bias), dim=-1)
        probs = (log_weights.exp().unsqueeze(-1) * softmax).sum(1)
        return F.nll_loss(probs.log(), target, reduction="sum")

    def torch_chunked():
        nll = F.linear_cross_entropy(
            components.flatten(0, 1),
            weight,
            target.repeat_interleave(log_weights.size(1)),
            linear_bias=bias,
            reduction="none",
            options=torch.nn.LinearCrossEntropyOptions(),
        )
        return -(log_weights - nll.view_as(log_weights)).logsumexp(1).sum()

    return {
        "definition": lambda: loss(reference),
        "probabilities": probabilities,
        CHUNKED: torch_chunked,
        "ours": lambda: loss(ours_nll),
        "ours, bfloat16": lambda: loss(ours_nll, precision=torch.bfloat16),
        "sampled": lambda: loss(ours_nll, **sampled),
        "sampled, bfloat16": lambda: loss(ours_nll, precision=torch.bfloat16, **sampled),
    }


def make_step(row, shape, device="cpu"):
    """A function that computes one row's loss and gradients."""
    inputs, target = make_inputs(shape, device)
    if row not in ("bare products", "products, bfloat16"):
        loss = losses(inputs, target)[row]
        return lambda: torch.autograd.grad(loss(), inputs)
    dtype = torch.float32 if row == "bare products" else torch.bfloat16
    k, w = inputs[0].detach().flatten(0, 1).to(dtype), inputs[2].detach().to(dtype)
    rows, d_k, d_w = k.new_empty(len(k), len(w)), torch.empty_like(k), torch.empty_like(w)

    def products():
        torch.mm(k, w.t(), out=rows)
        torch.mm(rows, w, out=d_k)
        torch.mm(rows.t(), k, out=d_w)

    return products


def share_kept(shape):
    """The share of rows that sampled gradients keep."""
    inputs, target = make_inputs(shape)
    (d_log_weights,) = torch.autograd.grad(losses(inputs, target)["ours"](), inputs[1:2])
    return (-d_log_weights / SAMPLING).clamp(max=1).mean().item()


def errors(shape, device="cpu"):
    """{form: {"loss" or an input's name: relative error of the loss or the gradient}}."""
    n, *others = shape
    inputs, target = make_inputs((n // 4, *others), device)

    def results(row, inputs, autocast=False):
        with torch.autocast(device, torch.bfloat16, enabled=autocast):
            loss = losses(inputs, target)[row]()
        return [loss, *torch.autograd.grad(loss, inputs)]

    truth = results("definition", [x.detach().double().requires_grad_() for x in inputs])
    found = {
        "plain": results("definition", inputs),
        "ours": results("ours", inputs),
        "plain, bfloat16": results("definition", inputs, autocast=True),
        "ours, bfloat16": results("ours, bfloat16", inputs),
    }
    return {
        form: {
            name: ((x - y).norm() / y.norm()).item()
            for name, x, y in zip(("loss", *INPUTS), of_form, truth, strict=True)
        }
        for form, of_form in found.items()
    }


def print_errors(shape, of_forms):
    """A line for each form."""
    print(f"\n{shape}: errors against float64")
    for form, of_form in of_forms.items():
        line = "".join(f"  {name} {error:.1e}" for name, error in of_form.items())
        print(f"  {form:16}{line}", flush=True)


def measure(row, shape, repeats):
    """The best time of ``repeats`` in seconds, after one warm-up, and the extra peak bytes."""
    step = make_step(row, shape)
    before, _ = resident_bytes()
    step()
    seconds = min(timed(step) for _ in range(repeats))
    return {"seconds": seconds, "extra_bytes": resident_bytes()[1] - before}


def ratios(results):
    """Ratios of the rows that are ours."""
    seconds = {row: result["seconds"] for row, result in results.items()}
    plain = min(PLAIN, key=seconds.__getitem__)
    ours, half, bare = seconds["ours"], seconds["ours, bfloat16"], seconds["bare products"]
    return {
        "times_as_fast_as_plain": seconds[plain] / ours,
        "time_over_bare_products": ours / bare,
        "extra_memory_over_plain": results["ours"]["extra_bytes"] / results[plain]["extra_bytes"],
        "bfloat16_times_as_fast": ours / half,
        "bfloat16_time_over_its_products": half / seconds["products, bfloat16"],
        "sampled_times_as_fast": ours / seconds["sampled"],
        "sampled_time_over_bare_products": seconds["sampled"] / bare,
        "bfloat16_sampled_times_as_fast": half / seconds["sampled, bfloat16"],
    }


def print_table(shape, allocator, results):
    """One table: a line for each row, then the ratios."""
    n, j, d, v = SHAPES[shape]
    print(f"\n{shape}: N={n} J={j} d={d} V={v:,}; {allocator}")
    fastest = min(results[row]["seconds"] for row in PLAIN)
    products = results["bare products"]["seconds"]
    for row, result in results.items():
        seconds = result["seconds"]
        print(
            f"  {row:18} {seconds:7.3f} s  {fastest / seconds:5.2f} x plain's speed  "
            f"{seconds / products:5.2f} x the products' time  "
            f"{result['extra_bytes'] / 1e6:7.0f} MB extra"
        )
    for name, value in ratios(results).items():
        print(f"  ours: {name} {value:.3f}")


def measure_large(repeats):
    """{shape: {row: {"gflops": the rate, counting the three products of exact gradients for every row,
    "bytes": the extra peak beyond the gradient of the matrix}}}."""
    found: dict[str, dict] = {}
    for shape, (n, j, d, v) in LARGE_SHAPES.items():
        for row in LARGE_ROWS:
            of_row = measured_apart(measure, row, (n, j, d, v), repeats)
            rate = 6e-9 * n * j * d * v / of_row["seconds"]
            beyond = of_row["extra_bytes"] - 4 * v * (d + 1)
            found.setdefault(shape, {})[row] = {"gflops": rate, "bytes": beyond}
            line = f"{shape:>9} words, {n} tokens  {row:18} {rate:6.0f} GFLOP/s"
            print(f"{line}  {beyond / 1e6:6.0f} MB beyond the gradient", flush=True)
    return found


def run(settings):
    """{shape: ratios, ``errors`` and ``share_kept``}, or the result of :func:`measure_large`."""
    if settings.large:
        return measure_large(settings.repeats)
    found: dict[str, dict] = {}
    for allocator, environment in ALLOCATORS.items():
        for name in settings.shapes:
            how = SHAPES[name], settings.repeats
            results = {
                row: measured_apart(measure, row, *how, environment=environment) for row in rows()
            }
            found.setdefault(name, ratios(results))
            print_table(name, allocator, results)
    for name in settings.shapes:
        of_forms = measured_apart(errors, SHAPES[name])
        found[name] |= {"errors": of_forms, "share_kept": share_kept(SHAPES[name])}
        print_errors(name, of_forms)
        print(f"  sampled: share of the rows that take part {found[name]['share_kept']:.2f}")
    return found
