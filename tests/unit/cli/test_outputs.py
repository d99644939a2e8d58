"""Outputs are no inputs, and replace nothing unasked."""

import re
from dataclasses import fields

import pytest
from conftest import refusal

from fairseq_doc.cli.main import SUBCOMMANDS, module_of, outcome
from fairseq_doc.cli.outputs import check_outputs
from fairseq_doc.scoring.decoding import DecodingOptions

MODEL = {"data": "data", "path": "a.pt:b.pt"}


@pytest.fixture(autouse=True)
def folder(folder):
    (folder / "data").mkdir()
    for name in ("data/dict.txt", "data/notes", "a.pt", "b.pt", "precious.png"):
        (folder / name).write_text("precious")
    (folder / "link.png").symlink_to("b.pt")
    (folder / "link.onnx").symlink_to("data/dict.txt")


def weights(**options):
    return module_of("weights").Options(**MODEL, **options)


def test_every_command_that_overwrites_declares_its_outputs():
    for name in SUBCOMMANDS:
        entries = fields(module_of(name).Options)
        declares = any("writes" in entry.metadata.get("option", {}) for entry in entries)
        overwrites = any(entry.name == "overwrite" for entry in entries)
        checks_itself = name in ("curves", "export", "tune")
        assert overwrites == (declares or checks_itself)


@pytest.mark.parametrize(
    "name, options",
    [
        ("weights", {**MODEL, "picture": "link.png"}),
        ("components", {**MODEL, "tsv": "data/dict.txt"}),
        ("export", {**MODEL, "path": "a.pt", "onnx": "link.onnx"}),
        ("average", {"checkpoints": ["a.pt", "b.pt"], "output": "b.pt"}),
        ("collect-parses", {"generated": "a.pt", "sentences": "b.pt", "output": "a.pt"}),
    ],
)
def test_no_command_replaces_what_it_reads(name, options):
    command = module_of(name)
    settings = command.Options(**options, overwrite=True)
    assert "is used twice" in refusal(outcome, command, settings)


def test_outputs_that_cannot_be_written():
    settings = weights(overwrite=True, picture="precious.png")
    check_outputs(settings, "data/notes", "data/new")
    for paths, more in (
        (["data/dict.txt"], {}),
        (["new", "./new"], {}),
        (["new"], {"inputs": ["new"]}),
        (["new"], {"inputs": ["a.pt"]}),
    ):
        assert "is used twice" in refusal(check_outputs, settings, *paths, **more)
    assert "precious.png exists" in refusal(check_outputs, weights(picture="precious.png"))
    check_outputs(weights(), "precious.png", replace=True)


@pytest.mark.parametrize("name", ["curves", "a.pgf", "a.png.log"])
def test_a_picture_of_another_format_is_refused(name):
    assert "expected a name ending in .png or" in refusal(check_outputs, weights(picture=name))


@pytest.mark.parametrize(
    "name, options",
    [
        ("pairs", {"files": ["data/notes", "./data/notes"]}),
        ("translate", {"input": "data/notes", "tune": {"input": "data/notes", "reference": "b"}}),
        ("translate", {"tune": {"input": "data/notes", "reference": "./data/notes"}}),
        ("translate", {"tune": {"input": "-", "reference": "b"}}),  # its input is - by default
    ],
)
def test_an_input_that_is_to_be_read_once(name, options):
    """Also one that belongs to a group of options."""
    if "tune" in options:
        options = options | {"tune": DecodingOptions(**options["tune"])}
    settings = module_of(name).Options(**MODEL, **options)
    assert re.search("(data/notes|-) is used twice", refusal(check_outputs, settings))
