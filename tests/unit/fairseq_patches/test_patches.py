import ast
from pathlib import Path
from types import SimpleNamespace

from fairseq_doc import fairseq_patches
from fairseq_doc.fairseq_patches import wrapping


def test_every_file_is_imported():
    source = Path(fairseq_patches.__file__)
    files = {path.stem for path in source.parent.glob("*.py")}
    imports = [node for node in ast.parse(source.read_text()).body if "names" in node._fields]
    assert files - {"__init__"} <= {alias.name for node in imports for alias in node.names}


def test_a_function_is_replaced_by_one_that_calls_it(monkeypatch):
    monkeypatch.setattr(wrapping, "_replacements", [])
    owner = SimpleNamespace(double=lambda x, plus=0: 2 * x + plus)
    original = owner.double

    @wrapping.replaces(owner, "double")
    def negative(double, *args, **kwargs):
        return -double(*args, **kwargs)

    assert owner.double(3) == 6 and negative(abs, -3) == -3
    wrapping.apply()
    assert owner.double(3, plus=1) == -7 and owner.double.__wrapped__ is original
