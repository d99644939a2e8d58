"""Which settings are tried."""

import optuna
import pytest
from optuna.samplers import GPSampler, RandomSampler, TPESampler

from fairseq_doc.tuning.samplers import (
    MAKERS,
    NAMES,
    STARTUP,
    SobolSampler,
    distributions,
    make_sampler,
)
from fairseq_doc.tuning.space import parse_space

SPACE = parse_space(
    {
        "lr": {"low": "1e-4", "high": 1.0, "log": True},
        "layers": {"low": 1, "high": 4},
        "rate": {"low": 0, "high": 1.0, "step": 0.25},
        "kind": {"choices": ["a", "b", True]},
    },
    "x",
)


def study_with(kind, seed=1):
    return optuna.create_study(sampler=make_sampler(kind, seed, SPACE))


def draw(study, n, value=lambda settings: settings["lr"]):
    """The settings of ``n`` trials, each complete before the next."""
    found = []
    for _ in range(n):
        trial = study.ask(distributions(SPACE))
        study.tell(trial, value(trial.params))
        found.append(trial.params)
    return found


@pytest.mark.parametrize("kind", NAMES)
def test_settings_are_inside_the_space_and_the_same_for_a_seed(kind):
    found = draw(study_with(kind), STARTUP + 3)
    for settings in found:
        assert settings.keys() == SPACE.keys() and 1e-4 <= settings["lr"] <= 1
        assert settings["layers"] in (1, 2, 3, 4) and settings["rate"] in (0, 0.25, 0.5, 0.75, 1)
        assert settings["kind"] in ("a", "b", True)
    assert draw(study_with(kind), STARTUP + 3) == found
    assert draw(study_with(kind, seed=2), 2) != found[:2]


@pytest.mark.parametrize("kind", NAMES)
def test_two_processes_draw_different_points(kind):
    """The second asks while the first trial runs."""
    study = study_with(kind)
    pairs = [study.ask(distributions(SPACE)).params["lr"] for _ in range(4)]
    assert len(set(pairs)) == 4


def test_kinds():
    assert set(MAKERS) | {"qmc"} == set(NAMES)
    for kind, expected in (("gp", GPSampler), ("tpe", TPESampler), ("random", RandomSampler)):
        assert type(MAKERS[kind](3, 5)) is expected


def test_the_command_line_names_them():
    from fairseq_doc.cli.tune import SAMPLERS

    assert SAMPLERS == NAMES


def test_gp_learns_after_its_random_trials_also_from_infinite_values():
    study = study_with("gp")

    def value(settings):
        return float("inf") if settings["lr"] > 0.3 else abs(settings["layers"] - 3)

    found = draw(study, STARTUP + 8, value)
    assert sum(settings["layers"] == 3 for settings in found[STARTUP:]) >= 5
    assert sum(settings["lr"] > 0.3 for settings in found[STARTUP:]) <= 3


@pytest.mark.parametrize("kind", ["gp", "tpe"])
def test_fewer_random_trials(kind):
    """After 3 of them both learn, with another point than the one that 10 random trials give."""
    found = []
    for startup in (3, 10):
        sampler = make_sampler(kind, 1, SPACE, startup)
        found.append(draw(optuna.create_study(sampler=sampler), 4))
    assert found[0][:3] == found[1][:3] and found[0][3] != found[1][3]


def test_sobol_points_fill_the_space_evenly():
    study = study_with("qmc")
    layers = [settings["layers"] for settings in draw(study, 16)]
    assert sorted(layers) == [1] * 4 + [2] * 4 + [3] * 4 + [4] * 4
    with pytest.raises(AssertionError):
        SobolSampler(1, SPACE).sample_independent(study, study.trials[0], "x", None)
