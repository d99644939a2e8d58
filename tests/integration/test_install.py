import shutil
import zipfile

from conftest import PACKAGE, ROOT, run, training


def test_the_installed_wheel_holds_everything_and_trains_elsewhere(corpus, tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    for name in ("setup.py", "pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(PACKAGE, source / "fairseq_doc")
    build = "python -m pip --disable-pip-version-check wheel --no-deps --no-build-isolation"
    run(f"{build} --wheel-dir {tmp_path} {source}")
    (wheel,) = tmp_path.glob("*.whl")
    packed = set(zipfile.ZipFile(wheel).namelist())
    modules = {str(path.relative_to(ROOT)) for path in PACKAGE.rglob("*.py")}
    assert modules <= packed

    site = tmp_path / "site"
    run(f"python -m pip --disable-pip-version-check install --no-deps --target {site} {wheel}")
    folder = run("python -m fairseq_doc", cwd=tmp_path, PYTHONPATH=str(site)).splitlines()[-1]
    assert folder == str(site / "fairseq_doc")
    program = ["python", site / "bin" / "fairseq-doc", "eval-lm", "--help"]
    assert "--gen-subset" in run(program, cwd=tmp_path, PYTHONPATH=str(site))
    command = training(corpus.data, tmp_path / "run", "--max-update 2", model="--arch lstm_doc_lm")
    options = "--decoder-embed-dim 8 --layer-dims 8,8,8 --doc-components 0,0,1,1"
    command = f"{command.replace(str(PACKAGE), folder)} {options}"
    run(command, cwd=tmp_path, PYTHONPATH=str(site))
    assert (tmp_path / "run" / "checkpoint_last.pt").exists()


def test_setup_refuses_a_wrong_python_before_it_makes_anything(tmp_path):
    from conftest import fail

    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    for name in ("setup.py", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    old = tmp_path / "python-old"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo Python 3.5.2 && exit 0\nexit 1\n')
    old.chmod(0o755)
    output = fail("scripts/setup.sh", cwd=tmp_path, PYTHON=str(old))
    assert "setup: expected Python 3.11 or 3.12" in output
    assert not (tmp_path / ".venv").exists()
