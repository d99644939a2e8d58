import io
import json
import logging
import math
import re
from collections import OrderedDict
from unittest import mock

import pytest
from conftest import assert_refused
from fairseq.logging import progress_bar
from hypothesis import given
from hypothesis import strategies as st

from fairseq_doc.analysis.learning_curves import (
    KIND,
    LearningCurve,
    band_of,
    departures,
    is_reference,
    mean_curve,
    read_log,
    read_reference,
    reference_lines,
)
from fairseq_doc.files import write_lines
from fairseq_doc.optim.nt_asgd import NTASGD

from ..optim.runs import config, new_parameters

SIMPLE = """\
2024-05-01 10:00:00 | INFO | fairseq.tasks.text | dictionary: 10,000 words
2024-05-01 10:00:09 | INFO | train | epoch 001 | loss 9.1 | ppl 548.75 | wps 7000 | lr 20
2024-05-01 10:00:10 | INFO | valid | epoch 001 | valid on 'valid' subset | loss 8.042 | ppl 263.58 | wps 0 | wpb 700 | num_updates 40
2024-05-01 10:00:10 | INFO | valid1 | epoch 001 | valid on 'valid1' subset | loss 9.0 | ppl 512 | wps 0
2024-05-01 10:00:20 | INFO | valid | epoch 002 | valid on 'valid' subset | loss 7.5 | ppl 181.02 | wps 0 | best_loss 7.5
2024-05-01 10:00:20 | INFO | fairseq_doc.optim.nt_asgd | averaging starts after epoch 2
2024-05-01 10:00:30 | INFO | valid | epoch 003 | valid on 'valid' subset | loss 24 | ppl 1.67772e+07 | wps 0
2024-05-01 10:00:31 | INFO | fairseq_doc.optim.nt_asgd | fine-tuning stage 1 starts after epoch 3
2024-05-01 10:00:40 | INFO | valid | epoch 012 | valid on 'valid' subset | loss 7 | ppl 128 | wps 0
2024-05-01 10:00:41 | INFO | fairseq_doc.optim.nt_asgd | fine-tuning stage 2 starts after epoch 12
"""
PLATEAU = SIMPLE.replace(
    "nt_asgd | averaging starts after epoch", "plateau | averaging starts after check"
)
FORMATS = {
    "fairseq-train": "%(asctime)s | %(levelname)s | %(name)s | %(message)s",
    "fairseq-hydra-train": "[%(asctime)s,%(msecs)03d][%(name)s][%(levelname)s] - %(message)s",
}


def read(folder, text):
    (folder / "log").write_bytes(text.encode(errors="surrogateescape"))
    return read_log(folder / "log")


@pytest.mark.parametrize("text", [SIMPLE, PLATEAU, SIMPLE.replace("\n", "\r\n")])
def test_validation_perplexities_and_stages_are_found(tmp_path, text):
    perplexities = {1: 263.58, 2: 181.02, 3: 16777200.0, 12: 128.0}
    curve = read(tmp_path, text)
    assert curve == LearningCurve(perplexities, 2, {1: 3, 2: 12})
    assert list(curve.perplexities) == list(perplexities)
    # As after a run that was killed and started again from an earlier checkpoint
    again = re.sub(r"(averaging starts after \w+) 2", r"\1 3", text.replace("181.02", "170.5"))
    again = again.replace("stage 2 starts after epoch 12", "stage 2 starts after epoch 13")
    perplexities[2] = 170.5
    assert read(tmp_path, text + again) == LearningCurve(perplexities, 3, {1: 3, 2: 13})


def fairseqs_own_log(command, log_format, perplexities, message=None, subset="valid"):
    """What fairseq's progress bars and this package's optimizer print, as ``command`` shows it."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter(FORMATS[command]))
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.INFO)
    with mock.patch.object(root, "handlers", [handler]):
        for epoch, perplexity in enumerate(perplexities, start=1):
            for tag, factor in (("train", 3), (subset, 1), ("valid1", 2)):
                prefix = None if tag == "train" else f"valid on '{tag}' subset"
                bar = progress_bar.progress_bar(
                    [], log_format=log_format, epoch=epoch, prefix=prefix
                )
                stats = OrderedDict(loss=1.5, ppl=perplexity * factor, wps=0, best_loss=1.25)
                bar.print(stats, tag=tag, step=epoch)
        if message is not None:
            message()
    root.setLevel(level)
    return stream.getvalue()


some = st.lists(st.floats(1, 1e12), min_size=1, max_size=12)


@pytest.mark.parametrize("command", FORMATS)
@pytest.mark.parametrize("log_format", ["simple", "json", "tqdm"])
@given(runs=st.lists(some, min_size=1, max_size=2), subset=st.sampled_from(["valid", "dev"]))
def test_what_fairseq_prints_is_read_back(tmp_path_factory, command, log_format, runs, subset):
    """Of two runs the later counts, of two subsets the first, whatever its name."""
    logs = [fairseqs_own_log(command, log_format, run, subset=subset) for run in runs]
    curve = read(tmp_path_factory.mktemp("logs"), "".join(logs))
    expected = {n: ppl for run in runs for n, ppl in enumerate(run, start=1)}
    assert curve.perplexities == pytest.approx(expected, rel=5e-6)
    assert list(curve.perplexities) == list(expected)
    assert (curve.averaging_after, curve.stages_after) == (None, {})


@pytest.mark.parametrize("command", FORMATS)
def test_what_the_optimizer_logs_is_read_back(tmp_path, command):
    """n = 0 and two stages: epochs 2, 5 and 7 are worse than the best of their stage so far."""

    def train():
        optimizer = NTASGD(config(nonmono=0, finetune_stages=2), new_parameters())
        for epoch, loss in enumerate([5.0, 6.0, 4.0, 3.0, 3.5, 2.0, 2.5, 1.0, 1.5], start=1):
            optimizer.observe(epoch, loss)
        assert optimizer.stages.stopped

    curve = read(tmp_path, fairseqs_own_log(command, "simple", [7.0] * 9, train))
    assert (curve.averaging_after, curve.stages_after) == (2, {1: 5, 2: 7})


def test_the_mean_of_seeds_has_the_epochs_of_all():
    first = LearningCurve({1: 90.0, 2: 70.0, 3: 60.0}, 2, {1: 2})
    second = LearningCurve({1: 110.0, 2: 90.0}, 1, {})
    assert mean_curve([first, second]) == LearningCurve({1: 100.0, 2: 80.0}, 2, {1: 2})
    assert mean_curve([first]) == first


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2024-05-01 10:00:09 | INFO | train | epoch 001 | loss 9.1 | ppl 548.75 | wps 7000\n",
        '2024-05-01 | INFO | train | {"epoch": 1, "train_loss": "9.1", "train_ppl": "548.75"}\n',
    ],
)
def test_a_log_without_a_validation_is_refused(tmp_path, text):
    assert_refused("log has no validation line", read, tmp_path, text)


def test_damaged_lines_are_left_out(tmp_path):
    damaged = [
        "epoch 2 | valid on 'valid' subset | ppl inf | wps 0",
        "epoch 2 | valid on 'valid' subset | ppl 18",  # cut off
        '{"epoch": 2, "valid_ppl": }',
        "epoch 4 | valid on 'valid' subset | ppl x | wps 0",
        "epoch 4 | valid on 'valid' subset | ppl -1 | wps 0",
        '{"epoch": "x", "valid_ppl": "2"}',
        '{"epoch": 2, "valid_ppl": null}',
        "\udcff\udcfe",  # bytes that are not UTF-8
    ]
    whole = read(tmp_path, SIMPLE)
    assert read(tmp_path, "\n".join([*damaged, SIMPLE, *damaged, ""])) == whole


# References


def curve(*perplexities, averaging_after=None):
    numbered = dict(enumerate(perplexities, start=1))
    return LearningCurve(numbered, averaging_after, {})


def test_a_band_holds_the_neighbouring_epochs_and_three_deviations():
    band = band_of([curve(200, 100, 90), curve(220, 110, 80)])
    variances = [math.log(x / y) ** 2 / 2 for x, y in ((220, 200), (110, 100), (90, 80))]
    margin = math.exp(3 * math.sqrt(sum(variances) / 3))
    assert band[1] == pytest.approx((100 / margin, 220 * margin), abs=0.01)
    assert band[2] == pytest.approx((80 / margin, 220 * margin), abs=0.01)
    assert band[3] == pytest.approx((80 / margin, 110 * margin), abs=0.01)


def test_a_file_has_a_line_for_each_run_and_gives_them_back(tmp_path):
    runs = {
        "a": curve(100, 50.123, averaging_after=1),
        'b "2"': LearningCurve({1: 101.0, 2: 51.0}, None, {1: 2}),
    }
    write_lines(tmp_path / "r.json", reference_lines(runs, "x", {"torch": "2"}))
    text = (tmp_path / "r.json").read_text()
    assert [line.count("perplexity") for line in text.splitlines()] == [0] * 5 + [1, 1] + [0] * 2
    content = json.loads(text)
    assert (content["command"], content["torch"]) == ("x", "2")
    assert content["runs"]["a"]["perplexity"] == {"1": 100, "2": 50.123}
    assert is_reference(tmp_path / "r.json")
    assert read_reference(tmp_path / "r.json") == list(runs.values())


NO_RUNS = json.dumps({"kind": KIND, "command": "x", "runs": {}})


@pytest.mark.parametrize("text", ["no JSON", "[1]", '{"kind": "other"}', NO_RUNS])
def test_another_file_is_refused(tmp_path, text):
    (tmp_path / "r.json").write_text(text)
    assert_refused("r.json: expected a reference", read_reference, tmp_path / "r.json")


def test_every_seed_is_inside_and_what_is_not_is_named():
    runs = curve(200, 100, 90), curve(220, 110, 80)
    band = band_of(runs)
    assert [departures(run, band) for run in runs] == [([], 3), ([], 3)]
    outside, compared = departures(curve(210, 400, 85, 1), band)
    low, high = band[2]
    assert outside == [{"epoch": 2, "perplexity": 400, "low": low, "high": high}] and compared == 3
