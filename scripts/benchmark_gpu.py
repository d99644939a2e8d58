"""Speed, memory and error on one NVIDIA GPU, in less than eight minutes.

    python scripts/benchmark_gpu.py [--json] [--parts output train seq2seq]

Nothing else should run on the GPU. Nothing is downloaded: texts are random. Parts:

    output    the mixture's NLL, forward and backward, at the shapes of Penn Treebank and WikiText-2: ours,
              the plain formulations, torch's linear_cross_entropy per component, and the three bare
              products; extra peak memory; errors against float64
    train     whole steps of fairseq-train with 20 components at both published sizes; seconds of a Penn
              Treebank epoch
    seq2seq   training and generation of lstm_luong_doc against fairseq's own LSTM
              (benchmark_seq2seq.py)

Each is measured in three precisions:

    float32   products in full float32, cuDNN's too
    tf32      products of float32 numbers rounded to tf32, as torch allows by
              set_float32_matmul_precision("high")
    bfloat16  ours: --matmul-precision bfloat16, in the encoder-decoder's table a row of its own; the
              plain forms: autocast; the products: bfloat16 factors

--tiny shrinks everything, to try the script; with --device cpu without a GPU.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import benchmark_output_layer as output_layer
import benchmark_train_step as train_step
from benchmark_tools import make_parser, print_machine, timed

PRECISIONS = ("float32", "tf32", "bfloat16")
SEQ2SEQ_PRECISIONS = ("float32", "tf32")  # benchmark_seq2seq.py has a row in bfloat16
PARTS = ("output", "train", "seq2seq")
PTB_TOKENS = 929_589  # of its training text, with the end marks
TRAINED = {  # vocabulary, options
    "ptb": (10_000, "--batch-size 12"),
    "wikitext2": (33_278, "--arch lstm_doc_lm_wt2 --batch-size 15"),
}
ENVIRONMENTS = {  # of a process; cuDNN uses tf32 by default, cuBLAS does not
    "float32": {"NVIDIA_TF32_OVERRIDE": "0"},
    "tf32": {"TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "1"},
    "bfloat16": {"NVIDIA_TF32_OVERRIDE": "0"},
}
TINY_SHAPES = {"ptb": (12, 3, 8, 50), "wikitext2": (6, 3, 8, 90)}
TINY_MODEL = "--arch lstm_doc_lm_small --layer-dims 12,12,12 --decoder-embed-dim 8"


# The output operation


def output_rows(precision):
    """{name printed: row of benchmark_output_layer}."""
    found = {name: name for name in output_layer.rows()[:-4]}
    if precision == "bfloat16":
        found.update({"ours": "ours, bfloat16", "bare products": "products, bfloat16"})
    return found


def measure_output(row, shape, precision, device, repeats):
    """Milliseconds, the best of ``repeats``, and extra peak bytes of a GPU's memory."""
    import torch

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


def output_part(args):
    """{shape: {precision: {row: {ms, extra_bytes}}, "errors": ...}}, printed on the way."""
    import torch

    found: dict[str, dict] = {}
    for shape in output_layer.SHAPES:
        of_shape = found[shape] = {}
        for precision in PRECISIONS:
            print(f"\n{shape}, {precision}: output operation", file=args.table, flush=True)
            of_shape[precision] = {
                name: measure_output(row, shape, precision, args.device, args.repeats)
                for name, row in output_rows(precision).items()
            }
            results = of_shape[precision]
            for name, result in results.items():
                print(
                    f"  {name:15} {result['ms']:9.2f} ms  "
                    f"{result['ms'] / results['bare products']['ms']:5.2f} x the products' time  "
                    f"{result['extra_bytes'] / 1e6:7.0f} MB extra",
                    file=args.table,
                    flush=True,
                )
        torch.set_float32_matmul_precision("highest")
        of_shape["errors"] = output_layer.errors(shape, args.device)
        output_layer.print_errors(shape, of_shape["errors"], args.table)
    return found


# Training steps of the language model


def train_part(args):
    """{size: {precision: tokens a second}}, printed on the way."""
    package = Path(__file__).resolve().parent.parent / "fairseq_doc"
    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as name:
        for size, (vocabulary, options) in TRAINED.items():
            folder = Path(name, size)
            folder.mkdir()
            if args.tiny:
                vocabulary, options = 50, f"--batch-size 12 {TINY_MODEL}"
            tokens = 20_000 if args.tiny else train_step.TOKENS * 2
            data = train_step.prepare(folder, vocabulary, tokens)
            found[size] = {}
            for precision in PRECISIONS:
                words = f"{train_step.OURS} {options}"
                if precision == "bfloat16":
                    words += " --matmul-precision bfloat16"
                if args.device == "cpu":
                    words += " --cpu"
                speed, _ = train_step.train(
                    data,
                    package,
                    words,
                    folder / precision,
                    args.updates,
                    ENVIRONMENTS[precision],
                )
                found[size][precision] = speed
                line = f"{size}, {precision}: fairseq-train {speed:,.0f} tokens/s"
                if size == "ptb":
                    line += f", {PTB_TOKENS / speed:.1f} s an epoch of Penn Treebank"
                print(line, file=args.table, flush=True)
    return found


# The encoder-decoder


def seq2seq_part(args):
    """{precision: the figures of benchmark_seq2seq.py} on random sentences, printed on the way."""
    with tempfile.TemporaryDirectory() as name:
        data = parallel_data(Path(name), 60 if args.tiny else 2_000)
        script = Path(__file__).with_name("benchmark_seq2seq.py")
        words = ["--source-lang", "a", "--target-lang", "b", "--rounds", "1", "--json"]
        if args.tiny:
            words += ["--batches", "1", "--warm-up", "0", "--batch-size", "4", "--length", "3"]
        if args.device == "cpu":
            words.append("--cpu")
        figures = {}
        for precision in SEQ2SEQ_PRECISIONS:
            done = subprocess.run(
                [sys.executable, script, data, *words],
                stdout=subprocess.PIPE,
                env={**os.environ, **ENVIRONMENTS[precision]},
            )
            if done.returncode:
                sys.exit(f"benchmark_gpu: {script.name} failed")
            figures[precision] = json.loads(done.stdout)
            print_seq2seq(precision, figures[precision], args.table)
    return figures


def print_seq2seq(precision, figures, file):
    """A line for each system, and the ratios."""
    print(f"\nencoder-decoder, {precision}", file=file)
    for system, found in figures["systems"].items():
        line = "".join(f"  {name} {found[name]:.3f} s" for name in ("train", "beam 1", "beam 5"))
        print(f"{system:20}{line}  {found['MB']:,} MB", file=file)
    for name, ratio in figures.items():
        if name != "systems":
            print(f"{name} {ratio:.2f}", file=file, flush=True)


def parallel_data(folder, sentences):
    """A binarised text of random pairs, 7,900 words in common, 8 to 20 words a sentence."""
    drawn = random.Random(0)
    vocabulary = [f"w{number}" for number in range(7_900)]
    for split in ("train", "valid"):
        for side in "ab":
            lines = (
                " ".join(drawn.choices(vocabulary, k=drawn.randint(8, 20)))
                for _ in range(sentences)
            )
            (folder / f"{split}.{side}").write_text("\n".join(lines) + "\n")
    command = f"""-s a -t b --trainpref {folder}/train --validpref {folder}/valid --joined-dictionary
        --destdir {folder}/bin"""
    preprocess = Path(sys.executable).with_name("fairseq-preprocess")
    subprocess.run([preprocess, *command.split()], check=True, capture_output=True)
    return folder / "bin"


def describe(device):
    """The GPU's name and memory, and torch's CUDA; or the CPU."""
    import torch

    if device == "cpu":
        return "no GPU"
    gpu = torch.cuda.get_device_properties(0)
    return f"{gpu.name}, {gpu.total_memory / 2**30:.0f} GiB; CUDA {torch.version.cuda}"


def main():
    """Measure the parts in turn, and print."""
    parser = make_parser(__doc__)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--repeats", type=int, default=5, help="of the output operation")
    parser.add_argument("--updates", type=int, default=100, help="of a training")
    parser.add_argument("--tiny", action="store_true", help="everything small, to try the script")
    args = parser.parse_args()
    import torch

    if args.device == "cuda" and not torch.cuda.is_available():
        sys.exit(f"benchmark_gpu: expected a GPU that torch {torch.__version__} can use; got none")
    args.table = sys.stderr if args.json else sys.stdout
    if args.tiny:
        output_layer.SHAPES.update(TINY_SHAPES)
    print_machine(to_stderr=args.json)
    print(describe(args.device), file=args.table, flush=True)
    start, parts = time.perf_counter(), {
        "output": output_part, "train": train_part, "seq2seq": seq2seq_part
    }  # fmt: skip
    figures = {part: parts[part](args) for part in args.parts}
    print(f"{time.perf_counter() - start:.0f} s in all", file=args.table)
    if args.json:
        print(json.dumps({"gpu": describe(args.device), **figures}))


if __name__ == "__main__":
    main()
