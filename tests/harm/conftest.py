"""Fixtures of the tests of harm."""

import pytest
from harm.campaign import Campaign
from harm.inputs import build


@pytest.fixture(scope="session")
def inputs(server, tmp_path_factory):
    """group -> folder of its unharmed inputs, made when it is first asked for."""
    made = {}

    def of(group):
        if group not in made:
            made[group] = tmp_path_factory.mktemp(group)
            build(server, made[group], group)
        return made[group]

    return of


@pytest.fixture(scope="module")
def campaign(server, inputs, tmp_path_factory):
    """group -> :class:`Campaign`."""
    made = {}

    def of(group):
        if group not in made:
            made[group] = Campaign(server, inputs(group), tmp_path_factory.mktemp("cases"))
        return made[group]

    return of
