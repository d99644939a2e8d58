"""Speed, memory and error on one NVIDIA GPU, in less than eight minutes.

Nothing is downloaded, since texts are random. Parts:

    output    the mixture's NLL, forward and backward, at the shapes of Penn Treebank and WikiText-2: ours,
              the plain formulations, torch's linear_cross_entropy per component, and the three bare
              products; extra peak memory; errors against float64
    train     whole steps of fairseq-train with 20 components at both published sizes; seconds of a Penn
              Treebank epoch
    seq2seq   training and generation of lstm_luong_doc against fairseq's own LSTM, as in the
              subcommand seq2seq

Each part is measured in three precisions:

    float32   products in full float32, cuDNN's too
    tf32      products of float32 numbers rounded to tf32, as torch allows by
              set_float32_matmul_precision("high")
    bfloat16  ours: --matmul-precision bfloat16, which has its own row in the table of the
              encoder-decoder; the plain forms: autocast; the products: bfloat16 factors

--tiny shrinks everything to try the script; it needs no GPU with --device cpu.
"""

import random
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks import output_layer, seq2seq, train_step
from benchmarks.tools import measured_apart, timed
from fairseq_doc.errors import FairseqDocError
from fairseq_doc.options import option

PRECISIONS = ("float32", "tf32", "bfloat16")
SEQ2SEQ_PRECISIONS = ("float32", "tf32")  # seq2seq.py has a row in bfloat16
PARTS = ("output", "train", "seq2seq")
BFLOAT16 = {"ours": "ours, bfloat16", "bare products": "products, bfloat16"}  # rows of output_layer
PTB_TOKENS = 929_589  # tokens in its training text, with end marks
TRAINED = {  # vocabulary, options
    "ptb": (10_000, "--batch-size 12"),
    "wikitext2": (33_278, "--arch lstm_doc_lm_wt2 --batch-size 15"),
}
ENVIRONMENTS = {  # environment variables; by default cuDNN uses tf32, cuBLAS does not
    "float32": {"NVIDIA_TF32_OVERRIDE": "0"},
    "tf32": {"TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "1"},
    "bfloat16": {"NVIDIA_TF32_OVERRIDE": "0"},
}
TINY_SHAPES = {"ptb": (12, 3, 8, 50), "wikitext2": (6, 3, 8, 90)}
TINY_MODEL = "--arch lstm_doc_lm_small --layer-dims 12,12,12 --decoder-embed-dim 8"


@dataclass(frozen=True, kw_only=True)
class Options:
    parts: tuple[str, ...] = option("parts (default: all)", PARTS, nargs="+", choices=PARTS)
    device: str = option("where", "cuda", choices=("cuda", "cpu"))
    repeats: int = option("runs of the output operation", 5, least=1)
    updates: int = option("updates per training", 100)
    tiny: bool = option("make everything small, to try the script", False)


# The output operation


def measure_output(row, shape, precision, device, repeats):
    """Milliseconds (the best of ``repeats``) and extra peak bytes of GPU memory."""
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    step = output_layer.make_step(row, shape, device)
    autocast = precision == "bfloat16" and row in (*output_layer.PLAIN, output_layer.CHUNKED)

    def work():
        with torch.autocast(device, torch.bfloat16, enabled=autocast):
            step()

    work()
    extra = 0
    if device == "cuda":
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        work()
        extra = torch.cuda.max_memory_allocated() - before
    return {"ms": 1000 * min(timed(work) for _ in range(repeats)), "extra_bytes": extra}


def output_part(settings):
    """{shape: {precision: {row: {ms, extra_bytes}}, "errors": ...}}; also prints them."""
    found: dict[str, dict] = {}
    shapes = TINY_SHAPES if settings.tiny else output_layer.SHAPES
    for name, shape in shapes.items():
        of_shape = found[name] = {}
        for precision in PRECISIONS:
            print(f"\n{name}, {precision}: output operation", flush=True)
            how = shape, precision, settings.device, settings.repeats
            narrow = BFLOAT16 if precision == "bfloat16" else {}
            results = of_shape[precision] = {
                row: measure_output(narrow.get(row, row), *how) for row in output_layer.rows()[:-4]
            }
            for row, result in results.items():
                ratio = result["ms"] / results["bare products"]["ms"]
                line = f"  {row:15} {result['ms']:9.2f} ms  {ratio:5.2f} x the products' time  "
                print(f"{line}{result['extra_bytes'] / 1e6:7.0f} MB extra", flush=True)
        torch.set_float32_matmul_precision("highest")
        of_shape["errors"] = output_layer.errors(shape, settings.device)
        output_layer.print_errors(name, of_shape["errors"])
    return found


def train_part(settings):
    """{size: {precision: tokens per second}}; also prints them."""
    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as name:
        for size, (vocabulary, options) in TRAINED.items():
            folder = Path(name, size)
            folder.mkdir()
            if settings.tiny:
                vocabulary, options = 50, f"--batch-size 12 {TINY_MODEL}"
            tokens = 20_000 if settings.tiny else train_step.TOKENS * 2
            data = train_step.prepare(folder, vocabulary, tokens)
            found[size] = {}
            for precision in PRECISIONS:
                words = f"{train_step.OURS} {options}"
                words += " --matmul-precision bfloat16" if precision == "bfloat16" else ""
                words += " --cpu" if settings.device == "cpu" else ""
                how = folder / precision, settings.updates, ENVIRONMENTS[precision]
                speed, _ = train_step.train(data, train_step.PACKAGE, words, *how)
                found[size][precision] = speed
                line = f"{size}, {precision}: fairseq-train {speed:,.0f} tokens/s"
                if size == "ptb":
                    line += f", {PTB_TOKENS / speed:.1f} s per epoch of Penn Treebank"
                print(line, flush=True)
    return found


def seq2seq_part(settings):
    """{precision: the figures of seq2seq.py} on random sentences; also prints them."""
    tiny = {"batches": 1, "warm_up": 0, "batch_size": 4, "length": 3} if settings.tiny else {}
    figures = {}
    with tempfile.TemporaryDirectory() as name:
        own = seq2seq.Options(
            data=str(parallel_data(Path(name), 60 if settings.tiny else 2_000)),
            source_lang="a",
            target_lang="b",
            rounds=1,
            cpu=settings.device == "cpu",
            **tiny,
        )
        for precision in SEQ2SEQ_PRECISIONS:
            print(f"\nencoder-decoder, {precision}", flush=True)
            environment = ENVIRONMENTS[precision]
            figures[precision] = measured_apart(seq2seq.run, own, environment=environment)
    return figures


def parallel_data(folder, sentences):
    """Binarised random pairs of sentences with 8 to 20 words from a joint vocabulary of 7,900."""
    drawn = random.Random(0)
    vocabulary = [f"w{number}" for number in range(7_900)]
    for split in ("train", "valid"):
        for side in "ab":
            lengths = (drawn.randint(8, 20) for _ in range(sentences))
            lines = (" ".join(drawn.choices(vocabulary, k=length)) for length in lengths)
            (folder / f"{split}.{side}").write_text("\n".join(lines) + "\n")
    command: list[str | Path] = [
        train_step.BIN / "fairseq-preprocess",
        *"-s a -t b --joined-dictionary".split(),
    ]
    for name, path in (("trainpref", "train"), ("validpref", "valid"), ("destdir", "bin")):
        command += [f"--{name}", folder / path]
    subprocess.run(command, check=True, capture_output=True)
    return folder / "bin"


def describe(device):
    """The GPU's name and memory, and torch's CUDA; or the CPU."""
    if device == "cpu":
        return "no GPU"
    gpu = torch.cuda.get_device_properties(0)
    return f"{gpu.name}, {gpu.total_memory / 2**30:.0f} GiB; CUDA {torch.version.cuda}"


def run(settings):
    """Result: ``gpu`` and the figures of each part."""
    if settings.device == "cuda" and not torch.cuda.is_available():
        raise FairseqDocError(f"expected a GPU that torch {torch.__version__} can use; got none")
    print(describe(settings.device), flush=True)
    start = time.perf_counter()
    measure = {"output": output_part, "train": train_part, "seq2seq": seq2seq_part}
    figures = {part: measure[part](settings) for part in settings.parts}
    print(f"{time.perf_counter() - start:.0f} s in total")
    return {"gpu": describe(settings.device), **figures}
