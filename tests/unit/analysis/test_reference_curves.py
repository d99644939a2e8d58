"""The band of several seeds, and what is outside of it."""

import json
import math

import pytest
from conftest import assert_refused

from fairseq_doc.analysis.learning_curves import LearningCurve
from fairseq_doc.analysis.reference_curves import (
    KIND,
    band_of,
    departures,
    is_reference,
    read_reference,
    reference_lines,
)
from fairseq_doc.files import write_lines


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


def test_the_band_of_one_seed_has_three_percent():
    margin = math.exp(0.03)
    assert band_of([curve(100)]) == {1: pytest.approx((100 / margin, 100 * margin), abs=0.01)}


def test_seeds_of_different_lengths():
    band = band_of([curve(100, 50), curve(100)])
    assert set(band) == {1, 2} and band[2][0] < 50 < 100 < band[2][1]


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


def test_a_file_of_the_former_form_is_read(tmp_path):
    """It has a line for each number, and the band, which is computed anew."""
    run = {"perplexity": {"1": 100.0}, "best": 100, "averaging_after": None, "stages_after": {}}
    rows = [{"epoch": 1, "mean": 100.0, "deviation": None, "low": 97.04, "high": 103.05}]
    content = {"kind": KIND, "command": "x", "runs": {"seed1": run}, "epochs": rows}
    (tmp_path / "r.json").write_text(json.dumps(content, indent=1))
    assert is_reference(tmp_path / "r.json")
    seeds = read_reference(tmp_path / "r.json")
    assert seeds == [curve(100.0)] and band_of(seeds) == {1: (97.04, 103.05)}


@pytest.mark.parametrize("perplexities", [(4e-4, 3e-5), (1.0, 1e9), (1e306, 9e307)])
def test_small_and_large_perplexities_come_back(tmp_path, perplexities):
    run = curve(*perplexities)
    write_lines(tmp_path / "r.json", reference_lines({"a": run}, "x", {}))
    assert read_reference(tmp_path / "r.json") == [run]
    assert departures(run, band_of([run])) == ([], 2)


@pytest.mark.parametrize("text", ["no JSON", "[1]", '{"kind": "other"}'])
def test_another_file_is_refused(tmp_path, text):
    (tmp_path / "r.json").write_text(text)
    assert_refused(
        "r.json: expected a reference .* got another file", read_reference, tmp_path / "r.json"
    )


def test_every_seed_is_inside_and_what_is_not_is_named():
    runs = curve(200, 100, 90), curve(220, 110, 80)
    band = band_of(runs)
    assert [departures(run, band) for run in runs] == [([], 3), ([], 3)]
    outside, compared = departures(curve(210, 400, 85, 1), band)
    low, high = band[2]
    assert outside == [{"epoch": 2, "perplexity": 400, "low": low, "high": high}] and compared == 3
