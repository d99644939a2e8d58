"""Which options may grow when a training is continued."""

from argparse import Namespace

import pytest

from fairseq_doc.tuning.limits import why_not_longer


@pytest.mark.parametrize(
    "args, theirs, ours, reason",
    [
        ({}, "--max-epoch 2", "--max-epoch 3", None),
        ({}, "--max-epoch=2", "--max-epoch 3", None),
        ({}, "--max-epoch 2", "", None),
        ({}, "--max-update 100", "--max-update 0", None),
        ({}, "--max-update 100 --max-epoch 2", "--max-epoch 2 --max-update 200", None),
        ({}, "--max-epoch 2", "--max-epoch 1", "lowered"),
        ({}, "", "--max-epoch 9", "lowered"),
        ({}, "--max-epoch 2", "--max-update 900", "lowered"),
        ({}, "--max-epoch 2 --lr 1", "--max-epoch 3 --lr 2", ""),
        ({}, "--lr 1 -s de --max-epoch 2", "-s de --lr 1 --max-epoch 3", None),
        ({}, "--l2 -1 --lr 1", "--l2 -2 --lr 1", ""),
        # what depends on the end
        ({"lr_scheduler": "cosine"}, "--max-update 8", "--max-update 9", "--lr-scheduler cosine"),
        ({"lr_scheduler": "cosine"}, "--max-epoch 8", "--max-epoch 9", None),
        ({"patience": 3}, "--max-epoch 8", "--max-epoch 9", "--patience"),
        ({"patience": -1}, "--max-update 8", "--max-update 9", None),
    ],
)
def test_larger_limits_alone_may_differ(args, theirs, ours, reason):
    words = [["data", "--lr-scheduler", "fixed", *options.split()] for options in (ours, theirs)]
    found = why_not_longer(Namespace(**args), *words)
    assert found is None if reason is None else found is not None and reason in found
