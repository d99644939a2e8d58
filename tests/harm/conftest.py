"""Fixtures of the tests of harm, and their counts at the end."""

from collections import Counter

import pytest
from harm.campaign import Campaign
from harm.inputs import Builder


@pytest.fixture(scope="session")
def inputs(server, tmp_path_factory):
    """group -> folder of its unharmed inputs, made when it is first asked for."""
    made = {}

    def of(group):
        if group not in made:
            made[group] = tmp_path_factory.mktemp(group)
            Builder(server, made[group]).build(group)
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


def pytest_terminal_summary(terminalreporter):
    """A table: for each kind of harm its cases and what became of them."""
    totals = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, value in getattr(report, "user_properties", ()):
                if name == "harm" and report.when == "call":
                    kind, counts = value
                    totals.setdefault(kind, Counter()).update(counts)
    if not totals:
        return
    terminalreporter.section("harm")
    names = sorted({name for counts in totals.values() for name in counts} - {"cases"})
    for kind, counts in sorted(totals.items()):
        shown = ", ".join(f"{counts[name]} {name}" for name in names if name in counts)
        terminalreporter.write_line(f"{kind}: {counts['cases']} cases: {shown}")
