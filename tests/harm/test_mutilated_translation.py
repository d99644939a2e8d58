"""Mutilated inputs of the commands of the translation group; see harm/campaign.py."""

import pytest
from harm.targets import targets_of

TARGETS = targets_of("translation")


@pytest.mark.parametrize("name", TARGETS)
def test_a_mutilated_file(name, campaign, record_property):
    counts = campaign("translation").run(TARGETS[name])
    record_property("harm", (counts.kind, counts.summary))
    if counts.failures:
        pytest.fail(counts.report, pytrace=False)
