"""Which options may grow when a training is continued."""

from argparse import Namespace

import pytest

from fairseq_doc.tuning.limits import why_not_longer


@pytest.mark.parametrize(
    "theirs, ours, reason",
    [
        ("--max-epoch 2", "--max-epoch 3", None),
        ("--max-epoch=2", "--max-epoch 3", None),
        ("--max-epoch 2", "", None),
        ("--max-update 100", "--max-update 0", None),
        ("--max-update 100 --max-epoch 2", "--max-epoch 2 --max-update 200", None),
        ("--max-epoch 2", "--max-epoch 1", "lowered"),
        ("", "--max-epoch 9", "lowered"),
        ("--max-epoch 2", "--max-update 900", "lowered"),
        ("--max-epoch 2 --lr 1", "--max-epoch 3 --lr 2", ""),
        ("--lr 1 -s de --max-epoch 2", "-s de --lr 1 --max-epoch 3", None),
        ("--l2 -1 --lr 1", "--l2 -2 --lr 1", ""),
    ],
)
def test_larger_limits_alone_may_differ(theirs, ours, reason):
    words = [["data", "--lr-scheduler", "fixed", *options.split()] for options in (ours, theirs)]
    found = why_not_longer(Namespace(), *words)
    assert found is None if reason is None else found is not None and reason in found


@pytest.mark.parametrize(
    "args, option, reason",
    [
        ({"lr_scheduler": "cosine"}, "--max-update", "--lr-scheduler cosine"),
        ({"lr_scheduler": "cosine"}, "--max-epoch", None),
        ({"lr_scheduler": "fixed", "patience": 3}, "--max-epoch", "--patience"),
        ({"lr_scheduler": "fixed", "patience": -1}, "--max-update", None),
    ],
)
def test_what_depends_on_the_end_cannot_be_continued(args, option, reason):
    found = why_not_longer(Namespace(**args), ["data", option, "9"], ["data", option, "8"])
    assert found is None if reason is None else found is not None and reason in found
