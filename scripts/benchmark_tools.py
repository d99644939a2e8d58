"""What the benchmarks share: arguments, the machine's description, measurements in other processes."""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path


def make_parser(description: str) -> argparse.ArgumentParser:
    """A parser with the arguments of every benchmark."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object of figures")
    parser.add_argument(
        "--backend",
        type=_backend,
        metavar="onednn|torch",
        help="library for ours' float32 matrix products (default: by the processor's maker)",
    )
    return parser


def _backend(name: str) -> str:
    """Force a backend, for the processes of a benchmark too."""
    from fairseq_doc.errors import FairseqDocError
    from fairseq_doc.ops.matmul import BACKENDS, force_backend

    if name not in BACKENDS:
        raise argparse.ArgumentTypeError(f"expected {' or '.join(BACKENDS)}; got {name!r}")
    try:
        force_backend(name)
    except FairseqDocError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return name


def machine() -> str:
    """The processor, its cores and the library for matrix products: one line above every table."""
    import torch

    from fairseq_doc.ops import matmul, processor

    return (
        f"{processor.description()}, {os.cpu_count()} cores, {torch.get_num_threads()} threads; torch "
        f"{torch.__version__}; matmul backend: {matmul.backend}"
    )


def print_machine(to_stderr: bool) -> None:
    """Print :func:`machine`, on standard error where standard output is JSON."""
    print(machine(), file=sys.stderr if to_stderr else sys.stdout, flush=True)


def timed(work: Callable[[], object]) -> float:
    """Seconds that ``work()`` takes, until a GPU has done its part."""
    _wait()
    start = time.perf_counter()
    work()
    _wait()
    return time.perf_counter() - start


def fastest_in_turns(forms: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """{form: seconds of its fastest run}. The forms take turns in ``repeats`` rounds, after one that is
    not counted."""
    seconds: dict[str, list[float]] = {form: [] for form in forms}
    for number in range(repeats + 1):
        for form, work in forms.items():
            taken = timed(work)
            if number:
                seconds[form].append(taken)
    return {form: min(of_form) for form, of_form in seconds.items()}


def compare_layers(
    description: str,
    rows: Mapping[str, Callable[[], dict[str, Callable[[], object]]]],
    ratios: Sequence[tuple[str, str]] = (),
) -> None:
    """A whole benchmark: milliseconds of the forms of each row, and ratios of two forms.

    Args:
        description: of the script.
        rows: {name: a function that makes its forms}.
        ratios: pairs of forms, the second one the baseline.
    """
    import torch

    from fairseq_doc.cli.arguments import positive

    parser = make_parser(description)
    parser.add_argument("--repeats", type=positive, default=7, help="default: 7")
    parser.add_argument("--threads", type=positive, help="default: torch's")
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    print_machine(to_stderr=args.json)
    found = {}
    for name, make_forms in rows.items():
        seconds = fastest_in_turns(make_forms(), args.repeats)
        found[name] = {form: 1000 * taken for form, taken in seconds.items()}
        line = "".join(f"  {form} {ms:.1f} ms" for form, ms in found[name].items())
        for form, baseline in ratios:
            ratio = seconds[form] / seconds[baseline]
            found[name][f"{form} / {baseline}"] = ratio
            line += f"  {form} / {baseline} {ratio:.2f}"
        if not args.json:
            print(f"{name:26}{line}", flush=True)
    if args.json:
        print(json.dumps(found))


def _wait() -> None:
    import torch

    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


def measured_apart(arguments: list[str], environment: dict[str, str] | None = None) -> dict:
    """The JSON object that this script, started again with ``arguments`` in a process of its own,
    prints last. Exits with the last line of its error where it fails."""
    done = subprocess.run(
        [sys.executable, sys.argv[0], *arguments],
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no message"]
        sys.exit(f"{Path(sys.argv[0]).stem}: {' '.join(arguments)}: {lines[-1]}")
    return json.loads(done.stdout.splitlines()[-1])
