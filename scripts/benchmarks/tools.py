"""Common parts of the benchmarks: description of the machine, clocks, measurements in processes."""

import contextlib
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any
from unittest import mock

import torch

from fairseq_doc.ops import matmul, processor
from fairseq_doc.options import option


def machine() -> str:
    """The line above every table: processor, cores and library for matrix products."""
    return (
        f"{processor.description()}, {os.cpu_count()} cores, {torch.get_num_threads()} threads; torch "
        f"{torch.__version__}; matmul backend: {matmul.backend()}"
    )


@contextlib.contextmanager
def tables_on_stderr(json: bool) -> Iterator[None]:
    """With ``--json``, redirect standard output to standard error, in child processes too."""
    if not json:
        yield
        return
    sys.stdout.flush()
    saved = os.dup(1)
    os.dup2(2, 1)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(saved, 1)
        os.close(saved)


def timed(work: Callable[[], object]) -> float:
    """The time of ``work()`` in seconds, including work on a GPU."""
    _wait()
    start = time.perf_counter()
    work()
    _wait()
    return time.perf_counter() - start


def _wait() -> None:
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


def fastest_in_turns(forms: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """{form: seconds of its fastest run}. The forms take turns in ``repeats`` rounds, after a round that
    does not count."""
    seconds: dict[str, list[float]] = {form: [] for form in forms}
    for number in range(repeats + 1):
        for form, work in forms.items():
            taken = timed(work)
            if number:
                seconds[form].append(taken)
    return {form: min(of_form) for form, of_form in seconds.items()}


def measured_apart(
    function: Callable[..., Any], *arguments: Any, environment: Mapping[str, str] | None = None
) -> Any:
    """The result of a function in a new process with additional environment variables."""
    with (
        mock.patch.dict(os.environ, environment or {}),
        ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process,
    ):
        return process.submit(function, *arguments).result()


def resident_bytes() -> tuple[int, int]:
    """Current resident size, and its peak since the start of the process."""
    with open("/proc/self/statm") as statm:
        now = int(statm.read().split()[1]) * resource.getpagesize()
    return now, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@dataclass(frozen=True, kw_only=True)
class LayerOptions:
    """Options of a benchmark of layers."""

    repeats: int = option("rounds", 7, least=1)
    threads: int | None = option("threads (default: torch's)", least=1)


def compare_layers(
    settings: LayerOptions,
    rows: Mapping[str, Callable[[], Mapping[str, Callable[[], object]]]],
    ratios: Sequence[tuple[str, str]] = (),
) -> dict[str, dict[str, float]]:
    """Run a benchmark: milliseconds for the forms of each row, and ratios of two forms. ``rows``: {name:
    a function that creates its forms}; ``ratios``: pairs of forms, the baseline second."""
    if settings.threads:
        torch.set_num_threads(settings.threads)
    found = {}
    for name, make_forms in rows.items():
        seconds = fastest_in_turns(make_forms(), settings.repeats)
        found[name] = {form: 1000 * taken for form, taken in seconds.items()}
        line = "".join(f"  {form} {ms:.1f} ms" for form, ms in found[name].items())
        for form, baseline in ratios:
            ratio = seconds[form] / seconds[baseline]
            found[name][f"{form} / {baseline}"] = ratio
            line += f"  {form} / {baseline} {ratio:.2f}"
        print(f"{name:26}{line}", flush=True)
    return found
