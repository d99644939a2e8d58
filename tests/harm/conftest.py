import shutil

import pytest
from harm.inputs import build


@pytest.fixture(scope="session")
def inputs(server, tmp_path_factory):
    """group -> folder of its undamaged inputs, made when it is first needed."""
    made = {}

    def of(group):
        if group not in made:
            made[group] = tmp_path_factory.mktemp(group)
            build(server, made[group], group)
        return made[group]

    return of


@pytest.fixture
def case_of(inputs, tmp_path):
    """group -> a copy of its inputs that a test may change."""

    def fresh(group):
        shutil.rmtree(tmp_path / "case", ignore_errors=True)
        return shutil.copytree(inputs(group), tmp_path / "case")

    return fresh
