import csv
import json
import math
import random
import shlex
import statistics
import subprocess
from itertools import combinations

import matplotlib.image
import optuna
import pytest
from conftest import SMALL_MODEL, refusal
from optuna.trial import TrialState, create_trial

from fairseq_doc.tuning.command import Command
from fairseq_doc.tuning.report import FILES, best_of_half, write_report
from fairseq_doc.tuning.rerun import rerun, spread
from fairseq_doc.tuning.settings import Options
from fairseq_doc.tuning.space import parse_space
from fairseq_doc.tuning.storage import Tuned

from .conftest import BASE, COMMAND

SPACE = parse_space(
    {
        "lr": {"low": "1e-4", "high": 1.0, "log": True},
        "dropout": {"low": 0, "high": 0.9},
        "layers": {"low": 1, "high": 4},
        "act": {"choices": ["train", "x $y"]},
    },
    "x",
)


def trials_with(values):
    """Complete trials with these values, or failed ones for None."""
    rng = random.Random(1)

    def drawn(values):
        if choices := getattr(values, "choices", None):
            return rng.choice(choices)
        return type(values.low)(rng.uniform(values.low, values.high))

    return [
        create_trial(
            state=TrialState.FAIL if value is None else TrialState.COMPLETE,
            value=value,
            params={option: drawn(own) for option, own in SPACE.items()},
            distributions=SPACE,
            user_attrs={} if value is not None else {"problem": "why"},
        )
        for value in values
    ]


def report(values, folder, command=COMMAND):
    folder.mkdir(exist_ok=True)
    study = optuna.create_study(study_name="s")
    study.add_trials(trials_with(values))
    return write_report(Tuned(study, SPACE, command), folder)


def test_the_files_of_a_report(tmp_path):
    folder = tmp_path / "report"
    result = report([5.0, math.inf, 4.0, None, 6.0, 3.25, 4.5, 40.0], folder)
    assert sorted(path.name for path in folder.iterdir()) == sorted(FILES)
    best = result["trials"][5]["settings"]
    assert result["best"]["trial"] == 5 and result["best"]["settings"] == best

    rows = list(csv.DictReader((folder / "trials.tsv").open(), delimiter="\t"))
    assert [row["state"] for row in rows].count("complete") == 6
    assert [rows[k]["state"] for k in (1, 3)] == ["diverged", "failed"]
    assert [rows[k]["value"] for k in (1, 3, 5)] == ["inf", "", "3.25"]
    assert rows[5]["lr"] == repr(best["lr"]) and rows[5]["act"] == best["act"]

    kept = json.loads((folder / "report.json").read_text())
    assert kept["best"]["value"] == 3.25 and kept["trials"][1]["value"] is None
    assert kept["trials"][3]["problem"] == "why"
    assert sum(kept["importances"].values()) == pytest.approx(1)

    script = folder / "best.sh"
    echoed = subprocess.run(
        ["bash", "-c", f"fairseq-train() {{ printf '%s\\n' \"$@\"; }}; . {script} --more"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert echoed == [*shlex.split(result["best"]["command"])[1:], "--more"]
    assert script.stat().st_mode & 0o111
    for name in FILES[3:]:
        image = matplotlib.image.imread(folder / name)
        assert image.shape[0] > 100 and image.shape[1] > 400 and image[..., :3].std() > 0.01

    report([5.0, 4.0], folder)
    assert not (folder / "importances.png").exists()  # drawn for the other study


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("n", [4, 5, 8])
@pytest.mark.parametrize("diverged", [0, 1])
def test_the_best_of_a_random_half_is_that_of_all_halves(maximize, n, diverged):
    sign = -1.0 if maximize else 1.0
    values = [sign * (k * k % 11 + 0.1 * k) for k in range(n)] + [sign * math.inf] * diverged
    found = best_of_half(trials_with(values), maximize)
    m = math.ceil(len(values) / 2)
    best = [sign * min(sign * x for x in half) for half in combinations(values, m)]
    assert found["trials"] == m and found["mean"] == pytest.approx(statistics.fmean(best))
    assert found["deviation"] == pytest.approx(statistics.pstdev(best))
    as_bad = sum(sign * x >= sign * found["worst"] for x in best) / len(best)
    worse = sum(sign * x > sign * found["worst"] for x in best) / len(best)
    assert as_bad >= 0.05 > worse


@pytest.mark.parametrize("values", [[], [math.inf, None]])
def test_a_report_without_values(values, tmp_path):
    assert "is complete without diverging" in refusal(report, values, tmp_path)


@pytest.mark.parametrize("values", [[2.0], [math.inf] * 4 + [1.0, 2.0]])
def test_reports_of_little_by_a_metric_that_is_a_command(values, tmp_path):
    command = Command(COMMAND.words, "loss\ntouch made #", False)
    assert report(values, tmp_path / "r", command)["best"]["value"] == min(values)
    lines = (tmp_path / "r" / "best.sh").read_text().splitlines()
    assert [line[0] for line in lines[:3]] == ["#"] * 3 and lines[3].startswith("fairseq-train ")


def test_a_rerun_refuses_links(study_in, tmp_path):
    tuned = study_in(command=Command((*BASE, *SMALL_MODEL.split()), "loss", False))
    tuned.tuner(1).run()
    where = {"study": "s", "storage": f"sqlite:///{tmp_path}/tune.db", "dir": str(tuned.folder)}
    (tuned.folder / "rerun-0000-seed2").symlink_to(tmp_path)
    assert "expected no links" in refusal(rerun, Options(**where, rerun="0", seeds=2))


def test_spread():
    runs = {"mean": 2.0, "deviation": 1.0, "low": 1.0, "high": 3.0}
    assert spread([1.0, 3.0, 2.0]) == pytest.approx(runs)
    assert set(spread([]).values()) == {None}
    assert spread([2.0]) == {"mean": 2.0, "deviation": None, "low": 2.0, "high": 2.0}
