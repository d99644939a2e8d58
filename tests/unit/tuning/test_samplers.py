"""Which settings are tried."""

import optuna
import pytest

from fairseq_doc.tuning.samplers import NAMES, STARTUP, make_sampler
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


class Study:
    """A study whose trials have their samplers as the tuner gives them."""

    def __init__(self, kind, seed=1, startup=STARTUP):
        self._own = optuna.create_study()
        self._sampler = lambda number: make_sampler(kind, seed, number, SPACE, startup)

    def ask(self):
        self._own.sampler = self._sampler(len(self._own.trials))
        return self._own.ask(SPACE)

    def draw(self, n, value=lambda settings: settings["lr"]):
        """The settings of ``n`` trials, each complete before the next."""
        found = []
        for _ in range(n):
            trial = self.ask()
            self._own.tell(trial, value(trial.params))
            found.append(trial.params)
        return found


@pytest.mark.parametrize("kind", NAMES)
def test_settings_are_inside_the_space_and_the_same_for_a_seed(kind):
    found = Study(kind).draw(STARTUP + 3)
    for settings in found:
        assert settings.keys() == SPACE.keys() and 1e-4 <= settings["lr"] <= 1
        assert settings["layers"] in (1, 2, 3, 4) and settings["rate"] in (0, 0.25, 0.5, 0.75, 1)
        assert settings["kind"] in ("a", "b", True)
    assert Study(kind).draw(STARTUP + 3) == found
    assert Study(kind, seed=2).draw(2) != found[:2]


@pytest.mark.parametrize("kind", NAMES)
def test_two_processes_draw_different_points(kind):
    """The second asks while the first trial runs."""
    study = Study(kind)
    pairs = [study.ask().params["lr"] for _ in range(4)]
    assert len(set(pairs)) == 4


def test_the_command_line_names_them():
    from fairseq_doc.cli.tune import SAMPLERS

    assert SAMPLERS == NAMES


def test_gp_learns_after_its_random_trials_also_from_infinite_values():
    def value(settings):
        return float("inf") if settings["lr"] > 0.3 else abs(settings["layers"] - 3)

    found = Study("gp").draw(STARTUP + 8, value)
    assert sum(settings["layers"] == 3 for settings in found[STARTUP:]) >= 5
    assert sum(settings["lr"] > 0.3 for settings in found[STARTUP:]) <= 3


@pytest.mark.parametrize("kind", ["gp", "tpe"])
def test_fewer_random_trials(kind):
    """After 3 of them both learn, with another point than the one that 10 random trials give."""
    early, late = (Study(kind, startup=startup).draw(4) for startup in (3, 10))
    assert early[:3] == late[:3] and early[3] != late[3]


def test_sobol_points_fill_the_space_evenly():
    layers = [settings["layers"] for settings in Study("qmc").draw(16)]
    assert sorted(layers) == [1] * 4 + [2] * 4 + [3] * 4 + [4] * 4
