import ast
import inspect
import sys
from pathlib import Path
from types import SimpleNamespace

from fairseq_doc import fairseq_patches
from fairseq_doc.fairseq_patches import wrapping


def test_every_file_is_imported():
    source = Path(fairseq_patches.__file__)
    files = {path.stem for path in source.parent.glob("*.py")}
    imports = [node for node in ast.parse(source.read_text()).body if "names" in node._fields]
    assert files - {"__init__"} <= {alias.name for node in imports for alias in node.names}


def test_wrappers_that_no_test_calls_by_fairseqs_name_are_registered():
    """Their own tests call them directly, with another function in place of fairseq's."""
    names = """call_and_release load_for_its_task load_named_file load_with_average
        save_best_at_epoch_ends""".split()
    found = [inspect.getclosurevars(one).nonlocals["wrapper"] for one in wrapping._replacements]
    assert {*names} <= {wrapper.__name__ for wrapper in found}


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


def test_the_program_is_changed_if_it_is_a_second_copy_of_the_module(monkeypatch):
    """``python -m fairseq_cli.train``, which tune and compare start, is not fairseq_cli.train."""
    monkeypatch.setattr(wrapping, "_replacements", [])
    code = {"double": abs, "__file__": "train.py"}
    exec("def main():\n    return double(3)", code)
    module, program = (SimpleNamespace(**code) for _ in "12")  # as multiprocessing makes it
    monkeypatch.setitem(sys.modules, "__main__", program)
    wrapping.replaces(module, "double")(lambda double, x: -double(x))
    wrapping.apply()
    assert program.double(3) == program.main() == -3 and module.double is abs
    assert wrapping.running(SimpleNamespace(__file__="interactive.py")) is not program
