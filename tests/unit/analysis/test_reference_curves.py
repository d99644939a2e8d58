"""The band of several seeds, and what is outside of it."""

import json
import math

import pytest
from conftest import assert_refused

from fairseq_doc.analysis.learning_curves import LearningCurve
from fairseq_doc.analysis.reference_curves import departures, read_reference, reference


def curve(*perplexities, averaging_after=None):
    numbered = dict(enumerate(perplexities, start=1))
    return LearningCurve(numbered, averaging_after, {})


def band_of(*curves):
    named = {f"seed{n}": it for n, it in enumerate(curves, start=1)}
    content = reference(named, "x", {"torch": "2"})
    return content, {row["epoch"]: (row["low"], row["high"]) for row in content["epochs"]}


def test_a_band_holds_the_neighbouring_epochs_and_three_deviations():
    a, b = curve(200, 100, 90, averaging_after=2), curve(220, 110, 80)
    content, band = band_of(a, b)
    variances = [math.log(x / y) ** 2 / 2 for x, y in ((220, 200), (110, 100), (90, 80))]
    margin = math.exp(3 * math.sqrt(sum(variances) / 3))
    assert band[1] == pytest.approx((100 / margin, 220 * margin), abs=0.01)
    assert band[2] == pytest.approx((80 / margin, 220 * margin), abs=0.01)
    assert band[3] == pytest.approx((80 / margin, 110 * margin), abs=0.01)
    first = content["epochs"][0]
    assert (first["mean"], first["deviation"]) == (210, 14.14)
    assert (
        content["runs"]["seed1"]["averaging_after"] == 2 and content["runs"]["seed2"]["best"] == 80
    )


def test_the_band_of_one_seed_has_three_percent():
    content, band = band_of(curve(100))
    assert content["epochs"][0]["deviation"] is None
    assert band == {1: pytest.approx((100 * math.exp(-0.03), 100 * math.exp(0.03)), abs=0.01)}


def test_seeds_of_different_lengths():
    _, band = band_of(curve(100, 50), curve(100))
    assert set(band) == {1, 2} and band[2][0] < 50 < 100 < band[2][1]


def test_a_file_gives_the_seeds_and_the_band_back(tmp_path):
    seeds = [
        curve(100, 50.123, averaging_after=1),
        LearningCurve({1: 101.0, 2: 51.0}, None, {1: 2}),
    ]
    content, band = band_of(*seeds)
    (tmp_path / "r.json").write_text(json.dumps(content))
    assert read_reference(tmp_path / "r.json") == (seeds, band)
    assert content["command"] == "x" and content["torch"] == "2"
    assert content["runs"]["seed1"]["perplexity"] == {1: 100, 2: 50.123}


@pytest.mark.parametrize("perplexities", [(4e-4, 3e-5), (1.0, 1e9), (1e306, 9e307)])
def test_small_and_large_perplexities_come_back(tmp_path, perplexities):
    run = curve(*perplexities)
    content, band = band_of(run)
    (tmp_path / "r.json").write_text(json.dumps(content))
    assert read_reference(tmp_path / "r.json") == ([run], band)
    if max(perplexities) < 1e300:
        assert departures(run, band) == ([], 2)


@pytest.mark.parametrize("text", ["no JSON", "[1]", '{"kind": "other"}'])
def test_another_file_is_refused(tmp_path, text):
    (tmp_path / "r.json").write_text(text)
    assert_refused(
        "r.json: expected a reference .* got another file", read_reference, tmp_path / "r.json"
    )


def test_every_seed_is_inside_and_what_is_not_is_named():
    runs = curve(200, 100, 90), curve(220, 110, 80)
    _, band = band_of(*runs)
    assert [departures(run, band) for run in runs] == [([], 3), ([], 3)]
    outside, compared = departures(curve(210, 400, 85, 1), band)
    low, high = band[2]
    assert outside == [{"epoch": 2, "perplexity": 400, "low": low, "high": high}] and compared == 3
