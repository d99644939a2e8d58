"""Spaces: what a file may hold, what is refused, what is drawn, and the words of a setting."""

import json
import math

import optuna
import pytest
import yaml
from conftest import refusal
from hypothesis import given
from hypothesis import strategies as st
from optuna.distributions import FloatDistribution, IntDistribution

from fairseq_doc.tuning.settings import SAMPLERS, Options, option_words, ready_spaces
from fairseq_doc.tuning.space import (
    TrialSampler,
    as_json,
    is_inside,
    parse_space,
    read_space,
    suggest,
)

NUMBERS = st.floats(1e-8, 1e8) | st.integers(1, 10**6)


@st.composite
def ranges(draw):
    """(as a file has it, as it is read)."""
    low, high = sorted([draw(NUMBERS), draw(NUMBERS)])
    if not low < high:
        high = low + 1
    kind = IntDistribution if isinstance(low, int) and isinstance(high, int) else FloatDistribution
    log = draw(st.booleans())
    values = {"low": low, "high": high, **({"log": True} if log else {})}
    return values, kind(low, high, log=log)


@given(ranges())
def test_a_range_is_read_and_kept_as_json_and_yaml(drawn):
    written, expected = drawn
    space = parse_space({"--a": written, "b": {"choices": ["x", 1, 2.5, True]}}, "x")
    assert space["a"] == expected
    assert parse_space(json.loads(json.dumps(as_json(space))), "x") == space
    assert parse_space(yaml.safe_load(yaml.safe_dump(as_json(space))), "x") == space
    assert is_inside(expected.low, expected) and not is_inside(expected.low - 1, expected)


@pytest.mark.parametrize(
    "kind, values, expected",
    [
        (float, {"low": 5, "high": 40, "log": True}, FloatDistribution(5, 40, log=True)),
        (float, {"low": 0, "high": 4, "step": 2}, FloatDistribution(0, 4, step=2)),
        (int, {"low": 1.0, "high": 4}, IntDistribution(1, 4)),
        (None, {"low": 1, "high": 4}, IntDistribution(1, 4)),
        (None, {"low": 1, "high": 4.5}, FloatDistribution(1, 4.5)),
        (None, {"low": 0, "high": 1, "step": 0.25}, FloatDistribution(0, 1, step=0.25)),
        (None, {"low": "5e-4", "high": "1e-2"}, FloatDistribution(0.0005, 0.01)),  # as YAML has it
    ],
)
def test_the_option_decides_whether_numbers_are_whole(kind, values, expected):
    space = parse_space({"a": values}, "x", {"a": kind})
    assert space == {"a": expected} and parse_space(as_json(space), "x") == space
    with pytest.raises(ValueError, match="integer"):
        parse_space({"a": {"low": 1, "high": 4.5}}, "x", {"a": int})


@pytest.mark.parametrize(
    "text, problem",
    [
        ("", "expected options and their values"),
        ("lr: !!python/object:os.system {}", "is not valid YAML"),
        ("lr: 3", "--lr: expected {low: ..., high: ...}"),
        ("lr: {low: 1, high: 2, lag: true}", "--lr: expected {low: ..., high: ...}"),
        ("lr: {low: 2, high: 2}", "--lr: expected low < high; got low 2 and high 2"),
        ("lr: {low: a, high: 1}", "--lr: could not convert string to float: 'a'"),
        ("lr: {low: 0, high: .inf}", "expected low < high"),
        ("lr: {low: 0, high: 1, log: 3}", "log: expected true or false"),
        ("lr: {low: 1, high: 2.5, log: true, step: 0.5}", "--lr:"),
        ("lr: {choices: []}", "--lr:"),
        ("lr: {choices: 3}", "{choices: [...]}"),
        ("lr: {low: 0, high: 1}\n--lr: {low: 0, high: 2}", "option lr occurs twice"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_a_space_that_cannot_be_used(text, problem, tmp_path):
    path = tmp_path / "space.yaml"
    path.write_text(text)
    message = refusal(read_space, path)
    assert problem in message and str(path) in message


def test_ready_spaces_and_a_file_of_that_name(folder):
    assert "expected a YAML file or one of awd" in refusal(read_space, "none.yaml")
    assert ready_spaces() == ["awd", "luong", "melis", "melis_deep"]
    deep, plain = read_space("melis_deep"), read_space("melis")
    assert deep.keys() - plain.keys() == {"intra-layer-dropout"} and len(plain) == 6
    assert plain["lr"] == FloatDistribution(0.0005, 0.01, log=True)
    assert plain["l2"] == FloatDistribution(1e-6, 1e-3, log=True)
    assert plain["embedding-ratio"] == FloatDistribution(0.05, 1.5)
    (folder / "melis").write_text("lr: {low: 1, high: 2}")
    assert read_space("melis") == {"lr": IntDistribution(1, 2)}


def test_flags():
    assert option_words({"amp": True, "no-x": False, "n": 3}) == ["--amp", "--n", "3"]


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_words_keep_every_digit_and_no_value_looks_like_an_option(value):
    words = option_words({"lr": value})
    if math.copysign(1, value) < 0:
        assert words == [f"--lr={value!r}"]
    else:
        assert words[0] == "--lr" and float(words[1]) == value


SPACE = parse_space(
    {
        "lr": {"low": "1e-4", "high": 1.0, "log": True},
        "layers": {"low": 1, "high": 4},
        "rate": {"low": 0, "high": 1.0, "step": 0.25},
        "kind": {"choices": ["a", "b", True]},
    },
    "x",
)
STARTUP = Options.startup_trials


def draw(sampler, n, value=lambda settings: settings["lr"], **settings):
    """The settings of ``n`` trials, each complete before the next, or all at once without
    ``value``."""
    options, drawn = Options(study="s", storage="", space="", sampler=sampler, **settings), []
    study = optuna.create_study(sampler=TrialSampler(options))
    for _ in range(n):
        trial = study.ask()
        for option, values in SPACE.items():
            suggest(trial, option, values)
        if value:
            study.tell(trial, value(trial.params))
        drawn.append(trial.params)
    return drawn


@pytest.mark.parametrize("kind", SAMPLERS)
def test_settings_are_inside_the_space_and_the_same_for_a_seed(kind):
    drawn = draw(kind, STARTUP + 3)
    assert all(is_inside(own[option], SPACE[option]) for own in drawn for option in SPACE)
    assert {own["rate"] for own in drawn} <= {0, 0.25, 0.5, 0.75, 1}
    assert draw(kind, STARTUP + 3) == drawn
    assert draw(kind, 2, seed=2) != drawn[:2]
    assert len({settings["lr"] for settings in draw(kind, 4, value=None)}) == 4


def test_gp_learns_after_its_random_trials_also_from_infinite_values():
    def value(settings):
        return float("inf") if settings["lr"] > 0.3 else abs(settings["layers"] - 3)

    drawn = draw("gp", STARTUP + 8, value)
    assert sum(settings["layers"] == 3 for settings in drawn[STARTUP:]) >= 5
    assert sum(settings["lr"] > 0.3 for settings in drawn[STARTUP:]) <= 3


@pytest.mark.parametrize("kind", ["gp", "tpe"])
def test_fewer_random_trials(kind):
    """After 3 of them both learn, with another point than the one that 10 random trials give."""
    early, late = (draw(kind, 4, startup_trials=startup) for startup in (3, 10))
    assert early[:3] == late[:3] and early[3] != late[3]
