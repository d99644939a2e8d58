import importlib
import re
from pathlib import Path

import fairseq
import pytest
from conftest import refusal
from fairseq import utils

from fairseq_doc import registration  # noqa: F401
from fairseq_doc.fairseq_patches.evaluated_settings import plain_value


@pytest.mark.parametrize(
    "text",
    [
        "(0.9, 0.999)",
        " [(512, 10, 5)] + [(512, 3, 2)] * 4 ",
        "{'a': -1e-6, 'b': [None, True]}",
        "0.25*2",
        "1e-3,5e-4",
        "False",
    ],
)
def test_values_are_pythons(text):
    assert plain_value(text) == eval(text.strip())


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').getcwd()",
        "().__class__",
        "9**9**9",
        "import os",
        "(" * 500,
    ],
)
def test_everything_else_is_refused(text):
    assert "is not evaluated" in refusal(plain_value, text)


def test_fairseqs_readers_run_no_code(tmp_path):
    marker = tmp_path / "ran"
    code = f"[(8, 3)] * len(open({str(marker)!r}, 'w').name)"
    assert "is not evaluated" in refusal(utils.eval_str_list, code)
    assert not marker.exists()
    assert utils.eval_str_list("1,2") == [1.0, 2.0]
    with pytest.raises(TypeError):  # of what is no text
        plain_value(True)
    assert utils.eval_bool(True, default=False) is False  # as before


def test_every_module_of_fairseq_that_evaluates_is_covered():
    root = Path(fairseq.__file__).parent
    found = 0
    for path in root.rglob("*.py"):
        name = path.relative_to(root).with_suffix("")
        evaluates = re.search(r"(?<![\w.])eval\(", path.read_text(encoding="utf-8"))
        if evaluates and name.parts[0] != "examples":
            module = importlib.import_module(".".join(("fairseq", *name.parts)))
            assert vars(module)["eval"] is plain_value
            found += 1
    assert found > 10
