import copy

from hypothesis import given
from hypothesis import strategies as st

from fairseq_doc.optim.training_stages import TrainingStages

from .runs import plan, scripts

losses_lists = st.lists(st.integers(0, 12).map(float), max_size=40)


def observed(stages, losses):
    return [stages.observe(epoch, loss) for epoch, loss in enumerate(losses, 1)]


@given(st.tuples(st.integers(0, 6), losses_lists) | scripts(), st.integers(-1, 4))
def test_stages_follow_their_rule(script, stages):
    nonmono, losses = script
    assert observed(TrainingStages(nonmono, stages), losses) == plan(losses, nonmono, stages)


def test_fine_tuning_until_a_stage_gains_nothing_by_hand():
    """n = 0: the criterion fires at any loss worse than the best of its list."""
    kept, restarted = ["keep_best_of_stage", "keep_best"], ["restart"]
    script = [
        (9.0, kept),  # SGD
        (9.5, ["average"]),
        (8.0, kept),  # averaging: still stage 0, whose best is 9
        (7.0, kept),
        (7.5, restarted),
        (8.0, ["keep_best_of_stage"]),  # stage 1: its own best, worse than 7
        (6.0, kept),
        (6.5, restarted),  # 6 < 7: gained
        (6.5, ["keep_best_of_stage"]),  # stage 2
        (6.0, ["keep_best_of_stage"]),  # as good as the best is no gain
        (6.1, ["stop"]),
        (1.0, []),  # after the end
    ]
    losses, steps = zip(*script, strict=True)
    stages = TrainingStages(0, -1)
    assert observed(stages, losses) == list(steps)
    assert stages.state_dict() == {  # with the keys of earlier checkpoints
        "losses": [], "stage": 2, "best": 6.0, "stage_best": 6.0, "best_before_stage": 6.0,
        "last_epoch": 11, "stopped": True,
    }  # fmt: skip


@given(scripts(), st.integers(-1, 3), st.integers(0, 60))
def test_stages_continue_from_their_saved_state(script, stages, cut):
    nonmono, losses = script
    whole, first, second = (TrainingStages(nonmono, stages) for _ in range(3))
    numbered = list(enumerate(losses, 1))
    expected = [whole.observe(*x) for x in numbered]
    steps = [first.observe(*x) for x in numbered[:cut]]
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    assert steps + [second.observe(*x) for x in numbered[cut:]] == expected


def test_an_epoch_counts_once_and_a_run_that_starts_over_counts_again():
    stages = TrainingStages(nonmono=5)
    for epoch in (1, 2, 2, 3):
        stages.observe(epoch, 1.0)
    assert len(stages.losses) == 3
    stages.observe(1, 1.0)  # --reset-dataloader goes back to epoch 1
    assert len(stages.losses) == 4
