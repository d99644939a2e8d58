"""Measure speed, memory and error against named baselines: python scripts/benchmark.py SUBCOMMAND ...

Nothing else should run on the machine. Each subcommand is a file in scripts/benchmarks/ with ``Options``, a
dataclass, and ``run(settings)``, which prints a table and returns the figures as JSON values.
"""

import argparse
import importlib
import json
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
from benchmarks.tools import machine, tables_on_stderr
from fairseq_doc.errors import FairseqDocError
from fairseq_doc.ops.matmul import BACKENDS, force_backend
from fairseq_doc.options import add_options, read_options

SUBCOMMANDS = {
    "output-layer": "the mixture's NLL: time, memory, error",
    "train-step": "steps of fairseq-train at the Penn Treebank size",
    "gpu": "the two above and seq2seq on one NVIDIA GPU",
    "lstm": "an LSTM layer: torch's against ours",
    "recurrence": "the layers of Melis et al. against torch's LSTM",
    "mogrifier": "LSTM layers with and without Mogrifier gates",
    "matmul": "matrix products of MKL and oneDNN, and sizes of chunks",
    "seq2seq": "the encoder-decoder against fairseq's own",
    "rerank": "reranking by a prefix tree against one candidate at a time",
    "onnx": "an exported language model against the model itself",
    "workers": "training by two workers against one",
}


def make_parser(words: list[str]) -> argparse.ArgumentParser:
    """The parser of all subcommands; only the called one gets its options."""
    parser = argparse.ArgumentParser(prog="benchmark.py", description=__doc__)
    subcommands = parser.add_subparsers(dest="subcommand", required=True)
    for name, summary in SUBCOMMANDS.items():
        own = subcommands.add_parser(
            name, help=summary, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        if name not in words:
            continue
        module = importlib.import_module(f"benchmarks.{name.replace('-', '_')}")
        own.description = module.__doc__
        own.set_defaults(module=module)
        add_options(own, module.Options)
        own.add_argument("--json", action="store_true", help="print one JSON object of figures")
        own.add_argument(
            "--backend",
            choices=BACKENDS,
            help="library for our float32 matrix products (default: by the processor's maker); the "
            "environment variable FAIRSEQ_DOC_MATMUL also sets it",
        )
    return parser


def main(words: list[str] | None = None) -> None:
    """Run a benchmark and print its result."""
    words = sys.argv[1:] if words is None else words
    args = make_parser(words).parse_args(words)
    try:
        if args.backend:
            force_backend(args.backend)
        with tables_on_stderr(args.json):
            print(machine(), flush=True)
            figures = args.module.run(read_options(args.module.Options, vars(args)))
    except FairseqDocError as error:
        sys.exit(f"benchmark {args.subcommand}: error: {error}")
    if args.json:
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
