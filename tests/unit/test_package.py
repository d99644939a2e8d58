import argparse
import importlib
import os
import re
import runpy
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import fairseq
import pytest
from conftest import ROOT
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.utils import import_user_module
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import fairseq_doc

FOLDER = os.path.dirname(os.path.abspath(fairseq_doc.__file__))


def python(code):
    """The lines that a fresh interpreter prints on standard output."""
    words = [sys.executable, "-c", code]
    return subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()


def forked(server, folder, code):
    """The last line that a child of an interpreter with torch and fairseq prints."""
    result = server.run(["python", "-c", code], folder)
    assert result.status == 0, result.err
    return result.out.splitlines()[-1]


MAIN = "from fairseq_doc.cli.main import main; main"
QUICK = "--help", "evalb none none", "bleu --help", "tune --help"


@pytest.mark.parametrize(
    "code, packages",
    [
        ("import fairseq_doc.ops.mixture_nll, fairseq_doc.modules.mixture", {"torch"}),
        ("from fairseq_doc.cli.main import make_parser; make_parser()", {"torch", "fairseq"}),
        *((f"{MAIN}({words.split()})", set()) for words in QUICK),
    ],
)
def test_what_is_not_needed_is_not_imported(code, packages):
    """No package of an extra either."""
    known = {"torch", "fairseq", "optuna", "onnx", "onnxruntime", "transformers"}
    code = f"import contextlib, sys\nwith contextlib.suppress(SystemExit):\n    {code}\n"
    assert set(python(f"{code}print(*{known} & sys.modules.keys())")[-1].split()) == packages


def test_the_output_layers_page_needs_torch_and_nothing_else():
    """Its first block, where none of the other dependencies can be imported."""
    text = Path(FOLDER, "..", "docs", "output_layer.md").read_text()
    block = re.search(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)[1]
    required = [spec for spec in metadata.requires("fairseq_doc") if "extra ==" not in spec]
    names = [re.match(r"[\w-]+", spec)[0].replace("-", "_") for spec in required]
    missing = [name for name in (*names, "fairseq", "hydra") if name not in ("torch", "numpy")]
    assert len(missing) > 5
    code = f"import sys\nsys.modules |= dict.fromkeys({missing})\n{block}\nprint(log_probs.shape)"
    assert python(code) == ["torch.Size([8, 1, 1000])"]


def test_importing_a_file_does_not_change_fairseq(server, tmp_path):
    code = """
import torch
from fairseq import checkpoint_utils
from fairseq.criterions import CRITERION_REGISTRY
before = checkpoint_utils.load_checkpoint_to_cpu
import fairseq_doc.models.lstm_doc_lm, fairseq_doc.models.lstm_luong_doc, fairseq_doc.optim.nt_asgd
import fairseq_doc.evaluation.hub_interface, fairseq_doc.evaluation.perplexity
import fairseq_doc.cli.prepare_lm, fairseq_doc.cli.prepare_headline, fairseq_doc.cli.prepare_parsing
print(checkpoint_utils.load_checkpoint_to_cpu is before, "doc_cross_entropy" in CRITERION_REGISTRY)
"""
    assert forked(server, tmp_path, code) == "True False"


def test_from_pretrained_needs_no_registration_before(server, tmp_path):
    """And reads its checkpoint through the checks of this package."""
    (tmp_path / "model.pt").write_text("no checkpoint")
    (tmp_path / "dict.en.txt").touch()
    code = f"""
from fairseq_doc.models.lstm_luong_doc import LSTMLuongDoc
try:
    LSTMLuongDoc.from_pretrained({str(tmp_path)!r}, data_name_or_path={str(tmp_path)!r})
except ValueError as error:
    print(error)
"""
    assert "model.pt is not a complete checkpoint" in forked(server, tmp_path, code)


def test_user_dir_registers_whatever_was_imported_before(server, tmp_path):
    """And a program that uses the package as a library keeps its exception hook."""
    code = f"""
import sys
hook = sys.excepthook
import fairseq_doc.models.lstm_doc_lm
from argparse import Namespace
from fairseq.utils import import_user_module
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.criterions import CRITERION_REGISTRY
import_user_module(Namespace(user_dir={FOLDER!r}))
print("lstm_doc_lm" in ARCH_MODEL_REGISTRY, "doc_cross_entropy" in CRITERION_REGISTRY,
      sys.excepthook is hook)
"""
    assert forked(server, tmp_path, code) == "True True True"


def test_user_dir_found_beside_fairseq_is_the_same_package(tmp_path, monkeypatch):
    """As fairseq resolves ``--user-dir fairseq_doc`` in a folder that has none."""
    (tmp_path / "fairseq").mkdir()
    (tmp_path / "fairseq_doc").symlink_to(FOLDER)
    monkeypatch.chdir(tmp_path / "fairseq")
    monkeypatch.setattr(fairseq, "__file__", f"{tmp_path}/fairseq/__init__.py")
    monkeypatch.setattr(fairseq.utils, "__file__", f"{tmp_path}/fairseq/utils.py")
    monkeypatch.setattr(fairseq_doc, "__path__", fairseq_doc.__path__)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    arguments = argparse.Namespace(user_dir="fairseq_doc")
    before = dict(ARCH_MODEL_REGISTRY)
    importlib.reload(fairseq_doc)
    import_user_module(arguments)
    assert ARCH_MODEL_REGISTRY == before


def test_main_prints_the_folder_for_user_dir(capsys):
    runpy.run_module("fairseq_doc", run_name="__main__")
    assert capsys.readouterr().out == f"{FOLDER}\n"


def pins(name):
    """{package: version} of a file of constraints."""
    lines = (ROOT / name).read_text().splitlines()
    pairs = (line.split("==") for line in lines if not line.startswith("#"))
    return {canonicalize_name(package): version for package, version in pairs}


REQUIREMENTS = [Requirement(line) for line in metadata.requires("fairseq_doc")]
LINT = {"ruff", "mypy"}  # they read one set of versions


def test_an_existing_fairseq_is_kept():
    assert [one for one in REQUIREMENTS if "fairseq" in one.name and one.marker is None] == []


@pytest.mark.parametrize("requirement", REQUIREMENTS, ids=lambda requirement: requirement.name)
def test_the_constraints_keep_to_the_bounds(requirement):
    """Of every dependency one version is pinned that it allows, and its lowest one, that was run."""
    name = canonicalize_name(requirement.name)
    (bound,) = requirement.specifier
    assert bound.operator == ">="
    assert pins("constraints.txt")[name] in requirement.specifier
    if name not in LINT:
        lowest = pins("constraints-lowest.txt")[name]
        assert f"{lowest}.".startswith(f"{bound.version}.")
