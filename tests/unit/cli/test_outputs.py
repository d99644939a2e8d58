"""Outputs are no inputs."""

import pytest
from conftest import refusal

from fairseq_doc.cli.main import SUBCOMMANDS, module_of, outcome
from fairseq_doc.cli.outputs import check_outputs

OWN = {  # commands that write files, {name: their inputs and other options}
    "attention": {"picture": "OUT.png"},
    "average": {"checkpoints": ["a.pt", "b.pt"], "output": "OUT"},
    "collect-parses": {"generated": "x", "sentences": "x", "output": "OUT"},
    "components": {"tsv": "OUT"},
    "embeddings": {"output": "OUT"},
    "export": {"onnx": "OUT.onnx"},
    "rerank": {"nbest": "x", "output": "OUT"},
    "rescore": {"nbest": "x", "scores": "OUT"},
    "weights": {"picture": "OUT.png"},
}
MODEL = {"data": "data", "path": "a.pt:b.pt", "overwrite": True}
INPUTS = {"average": ["b.pt"], "collect-parses": ["x"]}  # of commands without a folder of data


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    names = ("data/dict.txt", "data/settings.json", "data/dict.png", "data/notes", "a.pt", "b.pt")
    for name in (*names, "x", "precious"):
        (tmp_path / name).write_text("precious")
    for end in ("png", "onnx"):
        for name in ("b.pt", "data/dict.txt", "x"):
            (tmp_path / f"{name.replace('/', '-')}.{end}").symlink_to(name)
    return tmp_path


def test_every_command_that_overwrites_is_listed():
    named = [
        name
        for name in SUBCOMMANDS
        if "overwrite" in getattr(module_of(name).Options, "__dataclass_fields__", {})
    ]
    assert sorted(named) == sorted([*OWN, "curves", "tune"])  # which have their own tests


@pytest.mark.parametrize("name", OWN)
def test_no_command_replaces_what_it_reads(name):
    command = module_of(name)
    for file in INPUTS.get(name, ["b.pt", "data/dict.txt"]):
        given = {} if name in INPUTS else MODEL
        given = {**given, "overwrite": True, **OWN[name]}
        for option, value in given.items():
            if str(value).startswith("OUT"):
                end = value.removeprefix("OUT")
                given[option] = f"{file.replace('/', '-')}{end}" if end else file
        assert "is used twice" in refusal(outcome, command, command.Options(**given))


def test_files_that_are_not_inputs_may_be_replaced():
    settings = module_of("weights").Options(**MODEL)
    check_outputs(settings, "precious", "data/notes", "data/new")
    assert "data/dict.txt is used twice" in refusal(check_outputs, settings, "data/dict.txt")
    assert "new is used twice" in refusal(check_outputs, settings, "new", "./new")
    assert "x is used twice" in refusal(check_outputs, settings, "x", inputs=["x"])
    assert "a.pt is used twice" in refusal(
        check_outputs, settings, "new", alone=["a.pt"], inputs=["a.pt"]
    )
    settings = module_of("weights").Options(**{**MODEL, "overwrite": False})
    assert "precious exists" in refusal(check_outputs, settings, "precious")
    check_outputs(settings, replaced=["precious"])
    for name in ("none/a.png", "precious/a.png", "data"):
        assert f"{name}: expected a file " in refusal(check_outputs, settings, name)
