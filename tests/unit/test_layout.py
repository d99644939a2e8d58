"""The package's docstring lists its files in the order of the data's flow, and they keep to it."""

import ast
import re
from pathlib import Path

import fairseq_doc

PACKAGE = Path(fairseq_doc.__file__).parent
UNLISTED = {"__init__.py", "__main__.py"}


def listed_files():
    """The files of the docstring's list, in its order; a folder counts for the files it does not
    list one by one."""
    files, folder = [], ""
    for indent, names in re.findall(
        r"^    (    )?(\S+(?:, \S+\.py)*)  ", fairseq_doc.__doc__, re.M
    ):
        for name in names.split(", "):
            if name.endswith("/"):
                folder = name
                files.append(name)
            elif indent:
                files.append(folder + name)
            else:
                parent = "" if "/" in name or not files else Path(files[-1]).parent.as_posix() + "/"
                top_level = (PACKAGE / name).exists()
                files.append(name if top_level else parent + name)
    return files


def place(path, files):
    """Where a file of the package is in the list; None where it is not."""
    if path in files:
        return files.index(path)
    folder = f"{Path(path).parent}/"
    return files.index(folder) if folder in files else None


def imported_files(path):
    """The package's files that a file imports, inside its functions too."""
    found = set()
    for node in ast.walk(ast.parse((PACKAGE / path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fairseq_doc"):
            base = node.module.replace(".", "/").removeprefix("fairseq_doc").lstrip("/")
            names = [f"{base}/{alias.name}.py".lstrip("/") for alias in node.names]
            inside = {name for name in names if (PACKAGE / name).exists()}
            found |= inside or {f"{base}.py"}
    return found


def test_every_file_is_listed_and_every_listed_file_exists():
    files = listed_files()
    assert len(files) > 40 and len(set(files)) == len(files)
    assert [name for name in files if not (PACKAGE / name).exists()] == []
    every = [path for path in PACKAGE.rglob("*.py") if path.name not in UNLISTED]
    names = [path.relative_to(PACKAGE).as_posix() for path in every]
    assert [name for name in names if place(name, files) is None] == []


def test_a_file_imports_only_from_what_lies_before_it():
    files = listed_files()
    wrong = []
    for number, path in enumerate(files):
        if path.endswith(".py") and path != "registration.py":
            imported = imported_files(path) - {"registration.py"}
            places = ((place(name, files), name) for name in imported)
            wrong += [(path, name) for at, name in places if at is None or at >= number]
    assert wrong == []
