"""Which trials count, go on or are one too many, decided from lists of trials."""

import itertools
from datetime import datetime

import pytest
from conftest import refusal
from hypothesis import given
from hypothesis import strategies as st
from optuna.distributions import FloatDistribution
from optuna.trial import TrialState, create_trial

from fairseq_doc.tuning.slots import (
    ENDED,
    FAILED,
    HEARTBEAT_AT,
    OWNER,
    SLOT,
    STALE,
    STOPPED,
    UNUSED,
    best_slot,
    check_trial,
    is_dead,
    is_one_too_many,
    slots_of,
    start_time,
    this_process,
)

RUNNING, WAITING, FAIL = TrialState.RUNNING, TrialState.WAITING, TrialState.FAIL
COMPLETE = TrialState.COMPLETE


def trial(number, state=RUNNING, slot=None, ended=None, value=1.0, **attributes):
    attributes |= {} if slot is None else {SLOT: slot}
    attributes |= {} if ended is None else {ENDED: ended}
    made = create_trial(
        state=state,
        value=value if state == COMPLETE else None,
        params={"lr": 0.5},
        distributions={"lr": FloatDistribution(0, 1)},
        user_attrs=attributes,
    )
    made.number = number
    return made


def test_a_stopped_trial_goes_on_in_its_slot():
    trials = [trial(0, COMPLETE), trial(1, FAIL, ended=STOPPED), trial(2, FAIL, ended=FAILED)]
    assert [slot.state for slot in slots_of(trials)] == ["complete", "interrupted", "failed"]
    trials.append(trial(3, slot=1))
    zero, one, two = slots_of(trials)
    assert one.state == "running" and one.last.number == 3
    trials[3] = trial(3, COMPLETE, slot=1)
    assert slots_of(trials)[1].complete and slots_of(trials)[1].number == 1


def test_unused_trials_do_not_count_and_foreign_failures_do():
    trials = [trial(0, FAIL, ended=UNUSED), trial(1, FAIL), trial(2)]
    assert [slot.number for slot in slots_of(trials)] == [1, 2]
    assert slots_of(trials)[0].state == "failed"
    # A continuation that never began leaves its slot as it was.
    trials = [trial(0, FAIL, ended=STOPPED), trial(1, FAIL, slot=0, ended=UNUSED)]
    assert slots_of(trials)[0].state == "interrupted"


def test_trials_in_the_queue_of_optuna_do_not_count():
    trials = [trial(0, FAIL, ended=STOPPED), trial(1, WAITING, slot=0), trial(2, WAITING)]
    (zero,) = slots_of(trials)
    assert zero.state == "interrupted"
    assert not is_one_too_many(trial(3), [*trials, trial(3)], 2)


def test_the_highest_numbers_are_too_many():
    trials = [trial(0, COMPLETE), trial(1), trial(2), trial(3)]
    assert [is_one_too_many(t, trials, 3) for t in trials] == [False, False, False, True]
    trials[1] = trial(1, FAIL, ended=FAILED)
    assert not is_one_too_many(trials[3], trials, 3)
    trials[1] = trial(1, FAIL, ended=STOPPED)  # will go on
    assert is_one_too_many(trials[3], trials, 3)


def test_two_that_go_on_with_one_slot():
    trials = [trial(0, FAIL, ended=STOPPED), trial(5, slot=0), trial(6, slot=0)]
    assert not is_one_too_many(trials[1], trials, 1) and is_one_too_many(trials[2], trials, 1)
    trials[1] = trial(5, FAIL, slot=0, ended=STOPPED)  # so the other is needed after all
    assert not is_one_too_many(trials[2], trials, 1)
    for state, ended in ((FAIL, FAILED), (COMPLETE, None)):
        trials[1] = trial(5, state, slot=0, ended=ended)
        assert is_one_too_many(trials[2], trials, 9)


@given(st.integers(1, 5), st.lists(st.integers(0, 3), max_size=30), st.randoms())
def test_never_more_complete_than_wanted(wanted, events, rng):
    """Any order of begins, ends and deaths, where each process looks only at the storage."""
    trials = []
    for event in [*events, *[1] * 40]:
        running = [t for t in trials if t.state == RUNNING]
        if event == 0 or not running:  # several ask before any of them looks
            begun = [trial(len(trials) + k) for k in range(rng.randint(1, 3))]
            waiting = [slot for slot in slots_of(trials) if slot.state == "interrupted"]
            if waiting:
                begun[0] = trial(begun[0].number, slot=waiting[0].number)
            trials += begun
            for t in begun:
                if is_one_too_many(t, trials, wanted):
                    trials[t.number] = trial(
                        t.number, FAIL, slot=t.user_attrs.get(SLOT), ended=UNUSED
                    )
        else:
            t = rng.choice(running)
            slot = t.user_attrs.get(SLOT)
            ended = {1: None, 2: FAILED, 3: STOPPED}[event]
            state = FAIL if ended else COMPLETE
            trials[t.number] = trial(t.number, state, slot=slot, ended=ended)
        slots = slots_of(trials)
        assert sum(slot.complete for slot in slots) <= wanted
        assert sum(slot.state == "running" for slot in slots) <= wanted
        for slot in slots:  # nothing is trained twice at a time
            assert sum(t.state in (RUNNING, COMPLETE) for t in slot.trials) <= 1


def test_deaths():
    me, now = this_process(), datetime.now().timestamp()
    alive = {**me, "name": "another tuner of this process"}
    gone = {**me, "pid": 2**22 + 1, "name": "x"}
    reused = {**me, "started": "1", "name": "x"}
    assert not is_dead(trial(3, **{OWNER: me}), {3}, me, now)
    assert is_dead(trial(3, **{OWNER: me}), set(), me, now)
    assert not is_dead(trial(3, **{OWNER: alive}), set(), me, now)
    assert is_dead(trial(3, **{OWNER: gone}), set(), me, now)
    assert is_dead(trial(3, **{OWNER: reused}), set(), me, now)
    far = {**gone, "machine": "another"}
    for age, dead in ((10, False), (STALE - 5, False), (STALE + 5, True)):
        assert is_dead(trial(3, **{OWNER: far, HEARTBEAT_AT: now - age}), set(), me, now) == dead
    assert is_dead(trial(3), set(), me, now)
    assert start_time(2**22 + 1) is None and start_time(1) is not None


@pytest.mark.parametrize(
    "attributes, problem",
    [
        ({SLOT: -1}, "numbers"),
        ({SLOT: "1"}, "slot"),
        ({OWNER: "me"}, "owner"),
        ({"heartbeat": float("nan")}, "numbers"),
        ({"seconds": [1]}, "seconds"),
        ({ENDED: 3}, "ended"),
        ({"origin": {}}, "origin"),
    ],
)
def test_trials_of_a_damaged_study(attributes, problem):
    space = {"lr": FloatDistribution(0, 1)}
    check_trial(trial(3, **{OWNER: this_process(), SLOT: 2, "seconds": 1.5}), space)
    message = refusal(check_trial, trial(3, **attributes), space)
    assert f"trial 3 of the study: expected its {problem} as" in message
    assert "is damaged" in message
    assert "settings" in refusal(check_trial, trial(3), {"lr": FloatDistribution(0, 0.1)})
    assert "value" in refusal(check_trial, trial(3, COMPLETE), {**space, "x": space["lr"]})


@pytest.mark.parametrize("maximize", [False, True])
def test_best(maximize):
    worst = float("-inf") if maximize else float("inf")
    values = [3.0, worst, 1.0, 1.0, 3.0]
    slots = slots_of([trial(n, COMPLETE, value=value) for n, value in enumerate(values)])
    for some in itertools.permutations(slots, 3):
        best = best_slot(some, maximize)
        expected = (max if maximize else min)([s.value for s in some])
        assert best.value == expected != worst
    assert best_slot(slots, maximize).number == (0 if maximize else 2)
    assert best_slot(slots[1:2], maximize) is None and best_slot([], maximize) is None
