import sys
from pathlib import Path

import fairseq
import pytest
from conftest import ROOT, fail, refusal

from fairseq_doc import installation


@pytest.fixture
def providers(monkeypatch):
    """A function that says which distributions, each "name version", provide torch and fairseq."""

    def provide(found):
        def distributions_of(package):
            return [one for one in found if one.startswith("torch ") == (package == "torch")]

        monkeypatch.setattr(installation, "distributions_of", distributions_of)

    return provide


def test_the_distributions_of_a_package(tmp_path, monkeypatch):
    for name, version, packages in (
        ("ve_fairseq", "0.12.3", "fairseq\nfairseq_cli\n"),
        ("fairseq_tools", "1.0", "fairseq_tools\n"),
        ("fairseq", "0.12.2", "fairseq\n"),
    ):
        folder = tmp_path / f"{name}-{version}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
        (folder / "top_level.txt").write_text(packages)
    (tmp_path / "whole-1.dist-info").mkdir()
    (tmp_path / "whole-1.dist-info" / "METADATA").write_text("Name: whole\nVersion: 1\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), str(tmp_path)])
    found = installation.distributions_of("fairseq")
    assert found == ["fairseq 0.12.2", "ve_fairseq 0.12.3"]


def test_the_folder_of_a_package(tmp_path, monkeypatch):
    assert installation.folder_of("fairseq") == Path(fairseq.__file__).parent
    assert installation.folder_of("no_such_package") is None
    (tmp_path / "left_behind").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    assert installation.folder_of("left_behind") is None


@pytest.mark.parametrize(
    "found, warning",
    [
        (["fairseq 0.12.2"], None),
        (["fairseq-fixed 0.12.3.1"], None),
        ([], None),  # a checkout
        (["ve-fairseq 0.12.3", "fairseq 0.12.2"], "got ve-fairseq 0.12.3 and fairseq 0.12.2"),
        (["fairseq 1.0.0a0"], "got fairseq 1.0.0a0, which is untested"),
    ],
)
def test_what_serves_and_what_gives_a_warning(providers, caplog, found, warning):
    providers(found)
    installation.check()
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == (warning is not None) and all(warning in text for text in messages)


@pytest.mark.parametrize(
    "missing, found, message",
    [
        (None, ["fairseq 0.10.2"], "got fairseq 0.10.2: pip uninstall fairseq"),
        (None, ["torch 2.5.1+cu124"], "expected torch 2.6 or newer; got torch 2.5.1+cu124"),
        ("torch", ["ve-fairseq 0.12.3"], "expected torch; got none: pip install torch"),
    ],
)
def test_what_is_missing_or_too_old(providers, monkeypatch, missing, found, message):
    providers(found)
    folder_of = installation.folder_of
    monkeypatch.setattr(
        installation, "folder_of", lambda name: None if name == missing else folder_of(name)
    )
    assert message in refusal(installation.check)


def test_the_lowest_torch_is_that_of_the_package():
    lowest = ".".join(map(str, installation.LOWEST_TORCH))
    assert f'"torch>={lowest}"' in (ROOT / "pyproject.toml").read_text()


NO_FAIRSEQ = """
import sys
from fairseq_doc import installation
folder_of = installation.folder_of
installation.folder_of = lambda name: None if name == "fairseq" else folder_of(name)
sys.modules["fairseq"] = None
from fairseq_doc.cli.main import main
sys.exit(main(["eval-lm", "x"]))
"""


def test_a_command_without_fairseq_ends_in_one_line():
    (line,) = fail([sys.executable, "-c", NO_FAIRSEQ]).splitlines()
    assert "error: expected fairseq 0.12; got none: pip install fairseq-fixed" in line
