"""The built wheel in an environment of its own, in a folder that is no checkout."""

import os
import re
import shutil
import stat
import sys
import sysconfig
import zipfile

import pytest
import toy_translation
from conftest import BIN, PACKAGE, ROOT, SMALL_TRANSLATION, fail, run, shim

import fairseq_doc

PIP = "python -m pip --disable-pip-version-check"
TRANSLATION = f"{' '.join(SMALL_TRANSLATION.split())} --max-update 3"


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """(folder with a blank in its path, environment variables): the wheel, installed there beside
    what it depends on, and the console commands of both."""
    folder = tmp_path_factory.mktemp("no checkout")
    source = folder / "source"
    shutil.copytree(PACKAGE, source / "fairseq_doc", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "hydra_plugins", source / "hydra_plugins")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    build = ["wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, source]
    run([*PIP.split(), *build])
    shutil.rmtree(source)
    (wheel,) = folder.glob("*.whl")

    environment = folder / "clean environment"
    run([sys.executable, "-m", "venv", environment])
    python = environment / "bin" / "python"
    run([python, *PIP.split()[1:], "install", "--quiet", "--no-deps", "--no-index", wheel])
    # What the package depends on is seen in the tests' environment, whose own fairseq_doc is not: a
    # path in a .pth file does not read the .pth files there.
    (site,) = (environment / "lib").glob("python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"])
    for script in BIN.glob("fairseq-*"):
        if script.name != "fairseq-doc":
            text = script.read_text().partition("\n")[2]
            own = environment / "bin" / script.name
            own.write_text(f"#!/bin/sh\n'''exec' \"{python}\" \"$0\" \"$@\"\n' '''\n{text}")
            own.chmod(own.stat().st_mode | stat.S_IXUSR)
    path = f"{environment / 'bin'}:{os.environ['PATH']}"
    return folder, wheel, {"PATH": path, "PYTHONNOUSERSITE": "1"}


def test_the_wheel_holds_every_module_and_its_version(installed):
    _, wheel, _ = installed
    packed = set(zipfile.ZipFile(wheel).namelist())
    assert {str(path.relative_to(ROOT)) for path in PACKAGE.rglob("*.py")} <= packed
    assert {"fairseq_doc/py.typed", "hydra_plugins/fairseq_doc_errors.py"} <= packed
    spaces = {str(path.relative_to(ROOT)) for path in PACKAGE.rglob("*.yaml")}
    assert spaces and spaces <= packed
    assert fairseq_doc.__version__ in wheel.name


def test_from_raw_text_to_bleu(installed):
    folder, _, variables = installed
    toy_translation.write_corpus(folder / "raw text", "copy", 200, 20, 20)
    lines = f"""
        user_dir=$(python -m fairseq_doc)
        echo "$user_dir"
        fairseq-doc prepare-mt src tgt "raw text" "data bin/pairs" --merges 15 --joint
        fairseq-train "data bin/pairs" --user-dir "$user_dir" {TRANSLATION} --save-dir mt
        fairseq-generate "data bin/pairs" --user-dir "$user_dir" --task translation -s src -t tgt \\
            --path mt/checkpoint_last.pt --cpu --num-workers 0 > mt.out
        fairseq-doc bleu mt.out --reference "raw text/test.tgt" --lang en
        """
    output = run(["bash", "-e", "-o", "pipefail", "-c", lines], cwd=folder, **variables)
    assert output.startswith(f"{folder}/clean environment/")  # the package is the wheel's
    assert re.search(r"BLEU \d+\.\d\d", output)


@pytest.mark.parametrize(
    "version, words, fact",
    [
        ("3.14.1", "", "3.14 cannot import fairseq"),
        ("3.14.1", "--gpu", "expected no argument or --cpu; got --gpu"),
    ],
)
def test_setup_refuses_before_it_makes_anything(tmp_path, version, words, fact):
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    for name in ("pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    shim(tmp_path, "other", f'[ "$1" = --version ] && echo Python {version} && exit 0\nexit 1')
    variables = {"CONSTRAINTS": "constraints.txt", "PYTHON": f"{tmp_path}/other"}
    (line,) = fail(f"scripts/setup.sh {words}", cwd=tmp_path, **variables).splitlines()
    assert line.startswith("setup: ") and fact in line
    assert not (tmp_path / ".venv").exists()


def test_no_second_fairseq_is_installed_over_the_first():
    command = ["scripts/install_fairseq.sh", sys.executable, "--no-index"]
    output = fail(command, FAIRSEQ="another-fairseq")
    (line,) = output.splitlines()
    assert line.startswith("install_fairseq: expected an environment without fairseq; got ")
