"""Mutilated inputs of the commands of the lm group; see harm/campaign.py."""

import pytest
from harm.targets import targets_of

TARGETS = targets_of("lm")


@pytest.mark.parametrize("name", TARGETS)
def test_a_mutilated_file(name, campaign, record_property):
    counts = campaign("lm").run(TARGETS[name])
    record_property("harm", (counts.kind, counts.summary))
    if counts.failures:
        pytest.fail(counts.report, pytrace=False)
