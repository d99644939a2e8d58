"""train: find the options of a training with the best validation score, by Optuna."""

import importlib.util
from collections.abc import Iterator
from typing import Any

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.tuning.settings import Options, short, value_text

EXAMPLE = (
    "fairseq-doc tune space.yaml --study ptb --storage sqlite:///tune.db --trials 60 --workers 2 "
    "-- fairseq-train data-bin/ptb --user-dir fairseq_doc --arch lstm_doc_lm --max-epoch 5\n"
    "  fairseq-doc tune --study ptb --storage sqlite:///tune.db --report report\n"
    "  fairseq-doc tune --study ptb --storage sqlite:///tune.db --rerun best --seeds 5"
)


def run(settings: Options) -> dict[str, Any]:
    """Result: ``study``, ``metric``, ``complete``, ``diverged``, ``failed`` and ``best``: ``trial``,
    ``value``, ``settings``, ``command``, ``folder``. With ``--report``: ``study``, ``metric``,
    ``files``, ``best`` and ``best_of_half``. With ``--rerun``: ``study``, ``metric``, ``trial``,
    ``settings``, ``runs``, ``diverged``, ``mean``, ``deviation``, ``low`` and ``high``."""
    if importlib.util.find_spec("optuna") is None:
        raise FairseqDocError("Optuna is not installed: pip install optuna")
    from fairseq_doc.tuning.storage import silence

    silence()
    if settings.report is not None:
        from fairseq_doc.tuning.report import report as work
    elif settings.rerun is not None:
        from fairseq_doc.tuning.rerun import rerun as work
    else:
        from fairseq_doc.tuning.tuner import tune as work
    return work(settings)


def as_text(result: dict[str, Any]) -> str:
    """A summary, one fact per line."""
    if "runs" in result:
        return "\n".join(_rerun_lines(result))
    best, lines = result["best"], []
    if "complete" in result:
        lines.append(
            "study {study}: {complete} trials complete, {diverged} of them diverged; {failed} "
            "failed".format(**result)
        )
    if best is not None:
        lines.append(f"best: trial {best['trial']}, {result['metric']} {best['value']:.4f}")
        lines.append(f"settings: {short(best['settings'])}")
        lines += [f"folder: {best['folder']}"] if "folder" in best else []
    if half := result.get("best_of_half"):
        lines.append(
            "best of a random half, {trials} trials: mean {mean:.4f}, standard deviation "
            "{deviation:.4f}; with probability 5 % it is {worst:.4f} or worse".format(**half)
        )
    return "\n".join(lines)


def _rerun_lines(result: dict[str, Any]) -> Iterator[str]:
    yield f"trial {result['trial']}: {short(result['settings'])}"
    for run in result["runs"]:
        yield f"seed {run['seed']}: {result['metric']} {value_text(run['value'])}"
    if result["mean"] is not None:
        deviation = result["deviation"]
        spread = "of one value" if deviation is None else f"{deviation:.4f}"
        ends = "min {low:.4f}, max {high:.4f}".format(**result)
        yield f"mean {result['mean']:.4f}, standard deviation {spread}, {ends}"
    if result["diverged"]:
        yield f"left out: {result['diverged']} of {len(result['runs'])} runs, which diverged"
