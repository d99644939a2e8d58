"""Spaces: what a file may hold, what is refused, and the words of a setting."""

import json
import math

import pytest
import yaml
from conftest import refusal
from hypothesis import given
from hypothesis import strategies as st
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from fairseq_doc.tuning.samplers import value_at
from fairseq_doc.tuning.settings import option_words, ready_spaces, short
from fairseq_doc.tuning.space import as_json, parse_space, read_space

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


@given(ranges(), st.floats(0, 1, exclude_max=True))
def test_a_range_is_read_and_its_values_are_inside(drawn, position):
    written, expected = drawn
    space = parse_space({"--lr": written}, "x")
    assert space == {"lr": expected}
    value = value_at(expected, position)
    assert expected.low <= value <= expected.high and isinstance(value, type(expected.low))
    assert value_at(expected, 0.0) == pytest.approx(expected.low)


@given(ranges())
def test_a_space_survives_json_and_yaml(drawn):
    written, expected = drawn
    space = parse_space({"a": written, "b": {"choices": ["x", 1, 2.5, True]}}, "x")
    assert parse_space(json.loads(json.dumps(as_json(space))), "x") == space
    assert parse_space(yaml.safe_load(yaml.safe_dump(as_json(space))), "x") == space


@pytest.mark.parametrize(
    "values, positions, expected",
    [
        (IntDistribution(1, 4), [n / 8 for n in range(8)], [1, 1, 2, 2, 3, 3, 4, 4]),
        (IntDistribution(0, 10, step=5), [0.1, 0.5, 0.9], [0, 5, 10]),
        (FloatDistribution(0.0, 0.3, step=0.1), [0.99], [0.3]),
        (FloatDistribution(0.0, 2.0), [0.5], [1.0]),
        (FloatDistribution(0.25, 4, log=True), [0.5], [1.0]),
        (CategoricalDistribution(["a", "b"]), [0, 0.49, 0.5, 0.99], ["a", "a", "b", "b"]),
    ],
)
def test_the_parts_of_a_range_are_equal(values, positions, expected):
    assert [value_at(values, position) for position in positions] == pytest.approx(expected)


def test_whole_numbers_on_a_logarithmic_scale():
    found = {value_at(IntDistribution(1, 100, log=True), n / 1000) for n in range(1000)}
    assert found >= {1, 2, 100}


def test_yaml_numbers_without_a_point_and_whole_numbers(tmp_path):
    path = tmp_path / "space.yaml"
    path.write_text(
        "lr: {low: 5e-4, high: 1e-2, log: true}\n--layers: {low: 1, high: 4}\n"
        "dropout: {low: 0, high: 0.5}\nsteps: {low: 0, high: 1, step: 0.25}\n"
    )
    space = read_space(path)
    assert space == {
        "lr": FloatDistribution(0.0005, 0.01, log=True),
        "layers": IntDistribution(1, 4),
        "dropout": FloatDistribution(0, 0.5),
        "steps": FloatDistribution(0, 1, step=0.25),
    }


@pytest.mark.parametrize(
    "text, problem",
    [
        ("", "expected options and their values"),
        ("{}", "expected options and their values"),
        ("[1, 2]", "expected options and their values"),
        ("lr", "expected options and their values"),
        ("lr: [1, 2", "line 1 is not valid YAML"),
        ("a: 1\n\tb: 2", "line 2 is not valid YAML"),
        ("lr: !!python/object:os.system {}", "is not valid YAML"),
        ("lr: 3", "--lr: expected {low: ..., high: ...}"),
        ("lr: {low: 1}", "--lr: expected {low: ..., high: ...}"),
        ("lr: {low: 1, high: 2, lag: true}", "--lr: expected {low: ..., high: ...}"),
        ("lr: {low: 2, high: 2}", "--lr: expected low < high; got low 2 and high 2"),
        ("lr: {low: 3.0, high: 1}", "expected low < high"),
        ("lr: {low: 0, high: 1, log: true}", "--lr: expected low > 0 with log: true; got 0"),
        ("lr: {low: -1, high: 1, log: true}", "expected low > 0"),
        ("lr: {low: a, high: 1}", "--lr: low: expected a number; got 'a'"),
        ("lr: {low: .nan, high: 1}", "expected a number"),
        ("lr: {low: 0, high: .inf}", "expected a number"),
        ("lr: {low: true, high: 2}", "expected a number"),
        ("lr: {low: 0, high: 1, log: 3}", "log: expected true or false"),
        ("lr: {low: 1, high: 2, log: true, step: 1}", "expected log: true or a step; got both"),
        ("lr: {low: 0, high: 1, step: 0}", "expected a step above 0"),
        ("lr: {low: 0, high: 1, step: 0.3}", "expected a whole number of steps from 0 to 1"),
        ("lr: {choices: []}", "choices: expected a list"),
        ("lr: {choices: 3}", "choices: expected a list"),
        ("lr: {choices: [[1]]}", "choices: expected numbers, words, true or false"),
        ("lr: {choices: [null]}", "choices: expected numbers, words, true or false"),
        ("lr: {choices: [1, 1]}", "expected every value once"),
        ("lr: {low: 0, high: 1}\nlr: {low: 0, high: 2}", "every option once; got 'lr' twice"),
        ("lr: {low: 0, high: 1}\n--lr: {low: 0, high: 2}", "every option once"),
        ("'--': {low: 0, high: 1}", "every option once"),
    ],
)
def test_a_space_that_cannot_be_used(text, problem, tmp_path):
    path = tmp_path / "space.yaml"
    path.write_text(text)
    message = refusal(read_space, path)
    assert problem in message and str(path) in message


def test_no_space_and_a_folder(tmp_path):
    assert "expected a YAML file or one of awd" in refusal(read_space, tmp_path / "none.yaml")
    assert "got a folder" in refusal(read_space, tmp_path)
    (tmp_path / "bytes.yaml").write_bytes(b"lr: \xff")
    assert "not UTF-8" in refusal(read_space, tmp_path / "bytes.yaml")


def test_ready_spaces_and_a_file_of_that_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert ready_spaces() == ["awd", "luong", "melis", "melis_deep"]
    deep, plain = read_space("melis_deep"), read_space("melis")
    assert deep.keys() - plain.keys() == {"intra-layer-dropout"} and len(plain) == 6
    assert plain["lr"] == FloatDistribution(0.0005, 0.01, log=True)
    assert plain["l2"] == FloatDistribution(1e-6, 1e-3, log=True)
    assert plain["embedding-ratio"] == FloatDistribution(0.05, 1.5)
    (tmp_path / "melis").write_text("lr: {low: 1, high: 2}")
    assert read_space("melis") == {"lr": IntDistribution(1, 2)}


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_words_keep_every_digit_and_no_value_looks_like_an_option(value):
    words = option_words({"lr": value})
    if math.copysign(1, value) < 0:
        assert words == [f"--lr={value!r}"]
    else:
        assert words[0] == "--lr" and float(words[1]) == value


def test_flags_and_short_settings():
    assert option_words({"amp": True, "no-x": False, "n": 3}) == ["--amp", "--n", "3"]
    assert short({"lr": 0.00123456, "n": 12345, "kind": "a"}) == "--lr 0.001235 --n 12345 --kind a"
