"""A resumed run has the same result as an uninterrupted one, to the last bit."""

import re
import shutil
from itertools import pairwise

import pytest
from conftest import assert_same_run, fail_here, load, mid_epoch, run_here, stage_of, training


def switch_epoch(output):
    return int(re.search(r"averaging starts after epoch (\d+)", output).group(1))


@pytest.mark.parametrize("moment", ["mid_epoch_averaging", "switch"])
def test_resumed_run_equals_the_uninterrupted_one(moment, corpus, trained, tmp_path):
    checkpoint = mid_epoch(trained.folder, 0)
    if moment == "switch":
        checkpoint = trained.folder / f"checkpoint{switch_epoch(trained.output)}.pt"
    shutil.copy(checkpoint, tmp_path / "checkpoint_last.pt")
    output = run_here(training(corpus.data, tmp_path, trained.options))
    assert "Loaded checkpoint" in output
    assert_same_run(trained.folder / "checkpoint_last.pt", tmp_path / "checkpoint_last.pt")


def test_a_run_stopped_in_its_second_epoch_ends_the_same(corpus, tmp_path, processor):
    processor("yes")
    options = """--gradient-sampling 0.5 --partial-shuffle --weight-norm 0.1 --weight-norm-target 2
        --mogrifier-rounds 3 --mogrifier-rank 4 --matmul-precision bfloat16 --max-epoch 2
        --save-interval-updates 25"""
    run_here(training(corpus.data, tmp_path / "whole", options))
    (tmp_path / "stopped").mkdir()
    middle = next((tmp_path / "whole").glob("checkpoint_2_*.pt"))
    shutil.copy(middle, tmp_path / "stopped" / "checkpoint_last.pt")
    run_here(training(corpus.data, tmp_path / "stopped", options))
    assert_same_run(*(tmp_path / name / "checkpoint_last.pt" for name in ("whole", "stopped")))


def test_fine_tuning_runs_its_stages_resumes_and_ends(corpus, tmp_path):
    options = "--lr 60 --max-epoch 99 --nonmono 0 --finetune-stages 2"
    output = run_here(training(corpus.data, tmp_path / "a", options))
    losses = [float(loss) for loss in re.findall(r"\| valid \| epoch .*? \| loss ([\d.]+)", output)]
    ends = [int(epoch) for epoch in re.findall(r"stage \d+ ended with epoch (\d+)", output)]
    assert ends[-1] == len(losses) < 99 and "fine-tuning ends" in output

    # Each stage's best validation is what its checkpoint was saved after.
    bests = [min(losses[a:b]) for a, b in pairwise([0, *ends])]
    kept = sorted((tmp_path / "a").glob("checkpoint_best_stage*.pt"))
    assert [load(path)["extra_state"]["val_loss"] for path in kept] == bests
    assert load(tmp_path / "a" / "checkpoint_best.pt")["extra_state"]["val_loss"] == min(bests)
    assert len(bests) == 3

    for stage in (1, 2):
        within = tmp_path / "a" / f"checkpoint{ends[stage - 1] + 1}.pt"
        assert stage_of(within) == stage
        resumed = tmp_path / f"from{stage}"
        resumed.mkdir()
        shutil.copy(within, resumed / "checkpoint_last.pt")
        run_here(training(corpus.data, resumed, options))
        assert_same_run(tmp_path / "a" / "checkpoint_last.pt", resumed / "checkpoint_last.pt")
        again = sorted(resumed.glob("checkpoint_best_stage*.pt"))
        assert [path.name for path in again] == [path.name for path in kept[stage:]]
        for path in again:
            assert_same_run(tmp_path / "a" / path.name, path)

    again = run_here(training(corpus.data, tmp_path / "a", options))
    assert "| valid | epoch" not in again and "stopping training" in again


def test_with_amp_the_stages_are_resumed(corpus, tmp_path):
    options = "--amp --lr 60 --nonmono 0 --finetune-stages 1 --save-interval-updates 25 --max-epoch"
    whole = run_here(training(corpus.data, tmp_path / "a", f"{options} 6"))
    switch = switch_epoch(whole)
    assert switch < 6 and stage_of(tmp_path / "a" / "checkpoint_last.pt") >= 0
    middle = next((tmp_path / "a").glob(f"checkpoint_{switch + 1}_*.pt"))
    (tmp_path / "b").mkdir()
    shutil.copy(middle, tmp_path / "b" / "checkpoint_last.pt")
    run_here(training(corpus.data, tmp_path / "b", f"{options} 6"))
    assert_same_run(*(tmp_path / name / "checkpoint_last.pt" for name in "ab"))


def test_stages_asked_for_later_start_from_the_best_model(corpus, trained, tmp_path):
    """From a run that ended with the first epoch that was worse than one before it. It may have been best
    after its first epoch; that case is run by itself too."""
    losses = [
        load(trained.folder / f"checkpoint{epoch}.pt")["extra_state"]["val_loss"]
        for epoch in range(1, 7)
    ]
    last = next(e for e in range(2, 7) if losses[e - 1] > min(losses[: e - 1]))
    best = losses.index(min(losses[:last])) + 1
    for epoch, name in ((last, "last"), (best, "best")):
        shutil.copy(trained.folder / f"checkpoint{epoch}.pt", tmp_path / f"checkpoint_{name}.pt")
    command = training(corpus.data, tmp_path, "--lr 60 --max-epoch 9 --finetune-stages -1")
    problem = fail_here(command)
    assert f"expected --restore-file {tmp_path}/checkpoint_best.pt" in problem

    command += f" --restore-file {tmp_path}/checkpoint_best.pt"
    run_here(command)
    kept = tmp_path / "checkpoint_best_stage0.pt"
    assert load(kept)["extra_state"]["val_loss"] <= losses[best - 1]
    # Not checkpoint_best.pt, which may be one of the fine-tuning by now.
    for epoch in {1, best}:
        problem = fail_here(f"{command} --restore-file {trained.folder}/checkpoint{epoch}.pt")
        assert "leave out --restore-file" in problem
