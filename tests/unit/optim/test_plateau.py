import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairseq_doc.optim.plateau import Plateau, PlateauSettings, check_settings

losses_lists = st.lists(st.integers(0, 12).map(float), min_size=1, max_size=60)


def observed(losses, **settings):
    """(the plateau, the checks at which the rate dropped)."""
    plateau = Plateau(PlateauSettings(**settings))
    return plateau, [n for n, loss in enumerate(losses, 1) if plateau.observe(loss)]


def best_check(losses):
    return losses.index(min(losses)) + 1


@given(losses_lists, st.integers(0, 6))
def test_the_rate_drops_where_the_rule_says(losses, patience):
    """More than N checks after the best one and after the last drop."""
    expected, last = [], 0
    for check in range(1, len(losses) + 1):
        if check > max(best_check(losses[:check]), last) + patience:
            expected.append(check)
            last = check
    plateau, drops = observed(losses, lr_patience=patience)
    assert drops == expected and plateau.drops == len(expected)
    assert plateau.best_check == best_check(losses) and plateau.checks == len(losses)


def test_drops_by_hand():
    """The best is check 2: with N = 3 the rate drops at check 6, and again at 10."""
    _, drops = observed([5, 4, 4, 4, 5, 6, 7, 8, 9, 9, 9], lr_patience=3)
    assert drops == [6, 10]


def test_the_first_drop_at_the_latest():
    falling = [10.0 - n for n in range(9)]
    assert observed(falling, lr_patience=2, drop_at=5)[1] == [5]
    assert observed([1, 2, 3, 4, 5, 6, 7], lr_patience=2, drop_at=6)[1] == [4, 7]


@given(losses_lists, st.integers(1, 8), st.integers(0, 12))
def test_training_stops_after_the_patience_which_grows_from_one(losses, patience, ramp):
    for check in range(1, len(losses) + 1):
        plateau, _ = observed(losses[:check], stop_patience=patience, stop_ramp=ramp)
        allowed = patience
        if check < ramp:
            allowed = 1 + (patience - 1) * check / ramp
        stops = check > best_check(losses[:check]) + allowed
        assert bool(plateau.reason) == stops
        assert not stops or plateau.reason.startswith("no new best loss for ")


def test_without_patience_nothing_stops():
    assert observed([1.0] * 500)[0].reason == ""


def test_a_first_drop_that_a_resume_asks_for_too_late_comes_at_once():
    before, _ = observed([10.0 - n for n in range(8)], lr_patience=50)
    after = Plateau(PlateauSettings(lr_patience=50, drop_at=5))
    after.load_state_dict(before.state_dict())
    assert after.observe(1.0) and not after.observe(0.5)


def test_the_last_check():
    assert observed([5, 4], max_checks=3)[0].reason == ""
    assert observed([5, 4, 3], max_checks=3)[0].reason == "check 3 was the last"


def test_the_expected_loss_by_hand():
    """Over the newest 2 checks the best loss fell from 7 to 5, by 1 a check; 6 checks are left."""
    plateau, _ = observed([9, 7, 6, 5], stop_patience=2, max_checks=10)
    assert plateau.expected_loss() == 5 - 1 * 6
    assert observed([9, 8], stop_patience=2, max_checks=10)[0].expected_loss() == -math.inf
    flat, _ = observed([9, 7, 8, 7, 9], lr_patience=2, max_checks=10)  # no --stop-patience
    assert flat.expected_loss() == 7


def test_training_stops_where_too_little_is_expected():
    settings = {"stop_patience": 2, "max_checks": 10, "lr_patience": 50}
    losses = [9.0, 8.5, 8.0, 7.9, 7.8]  # 7.8 - .1 x 5 = 7.3
    assert observed(losses, stop_above=(7.4,), **settings)[0].reason == ""
    reason = observed(losses, stop_above=(7.2,), **settings)[0].reason
    assert reason == "the loss would only fall to 7.3000, and 7.2 is asked for"


def test_other_limits_hold_after_each_drop():
    settings = {"stop_patience": 9, "max_checks": 9, "lr_patience": 1, "stop_above": (5.0, 3.0)}
    for losses, drops, stops in (
        ([4.0] * 10, 4, True),
        ([2.0] * 10, 4, False),
    ):
        plateau = Plateau(PlateauSettings(**{**settings, "max_checks": 20}))
        for loss in losses:
            plateau.observe(loss)
        assert plateau.drops == drops
        assert bool(plateau.reason) == stops
    plateau = Plateau(PlateauSettings(stop_patience=9, max_checks=20, stop_above=(5.0, 3.0)))
    for _ in range(4):  # no drop yet: the first limit
        plateau.observe(4.0)
    assert not plateau.drops and plateau.reason == ""


def test_the_check_of_a_drop_is_judged_by_the_limit_before_it():
    settings = PlateauSettings(
        lr_patience=9, drop_at=3, stop_patience=2, max_checks=9, stop_above=(5.0, 3.0)
    )
    plateau = Plateau(settings)
    for loss in (4.3, 4.2, 4.1):  # expected at check 9: 3.5
        plateau.observe(loss)
    assert plateau.drops == 1 and plateau.expected_loss() == pytest.approx(3.5)
    assert plateau.reason == ""
    resumed = Plateau(settings)
    resumed.load_state_dict(plateau.state_dict())
    assert resumed.reason == ""
    resumed.observe(4.0)
    assert resumed.reason == "the loss would only fall to 3.5000, and 3.0 is asked for"


@given(losses_lists, st.integers(0, 60))
def test_a_state_taken_up_goes_on_equally(losses, cut):
    settings = {"lr_patience": 2, "stop_patience": 5, "stop_ramp": 8, "max_checks": 50}
    whole, drops = observed(losses, **settings)
    first, early = observed(losses[:cut], **settings)
    second = Plateau(PlateauSettings(**settings))
    second.load_state_dict(first.state_dict())
    late = [n for n, loss in enumerate(losses[cut:], cut + 1) if second.observe(loss)]
    assert (early + late, second.state_dict()) == (drops, whole.state_dict())


def test_a_training_that_ended_goes_on_with_more_checks():
    ended, _ = observed([3, 2], max_checks=2)
    more = Plateau(PlateauSettings(max_checks=5))
    more.load_state_dict(ended.state_dict())
    assert ended.reason and not more.reason


@pytest.mark.parametrize(
    "settings, option",
    [
        ({"lr_patience": -1}, "--lr-patience"),
        ({"drop_at": -1}, "--drop-at"),
        ({"stop_patience": -1}, "--stop-patience"),
        ({"max_checks": -1}, "--max-checks"),
        ({"stop_ramp": 3}, "--stop-ramp"),
        ({"stop_above": (1.0,)}, "--stop-above"),
        ({"stop_above": (math.nan,), "max_checks": 9}, "--stop-above"),
        ({"stop_above": (1.0,), "max_checks": 9, "lr_patience": 0}, "--stop-above"),
        ({"stop_patience": 30}, "--stop-patience"),
        ({"stop_above": (1.0,), "max_checks": 9, "stop_ramp": 3}, "--stop-ramp"),
    ],
)
def test_settings_that_cannot_work(settings, option):
    assert check_settings(PlateauSettings()) == []
    assert [name for name, _ in check_settings(PlateauSettings(**settings))] == [option]
