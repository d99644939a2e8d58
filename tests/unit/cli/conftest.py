"""Command lines run in this process."""

import json

from conftest import doc, refused

from ..preparation.conftest import contents


def result_of(line):
    """(the JSON object, standard error) of a command line."""
    printed, remarks = doc(*line.split(), "--json")
    return json.loads(printed), remarks


def refused_without_a_trace(line, folder):
    """The error of a command line that must fail and change no file."""
    before = contents(folder)
    message = refused(*line.split())
    assert contents(folder) == before
    return message
