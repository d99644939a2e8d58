from importlib.metadata import PackageNotFoundError

import pytest

from fairseq_doc import errors
from fairseq_doc.errors import FairseqDocError, first_usage_error, pip_install, shown


def caught(function):
    with pytest.raises(Exception) as info:
        function()
    return info.value


def usage_error():
    raise FairseqDocError("--lr: expected 20; got x")


def wrapped():
    """As fairseq wraps what load_state_dict raises."""
    try:
        usage_error()
    except Exception:
        raise Exception("Cannot load model parameters")  # noqa: B904


def chained():
    try:
        usage_error()
    except Exception as error:
        raise RuntimeError("no model") from error


def deep():
    try:
        wrapped()
    except Exception as error:
        raise KeyError("model") from error


def another():
    try:
        raise KeyError("model")
    except KeyError:
        raise ValueError("no model")  # noqa: B904


@pytest.mark.parametrize("function", [usage_error, wrapped, chained, deep])
def test_a_usage_error_is_found_wherever_it_is_in_the_chain(function):
    assert str(first_usage_error(caught(function))) == "--lr: expected 20; got x"


def test_every_other_chain_has_none():
    assert first_usage_error(caught(another)) is None
    assert first_usage_error(None) is None


@pytest.mark.parametrize(
    "text, quoted",
    [
        ("a b", "'a b'"),
        ("it's", '"it\'s"'),
        ("é\n\x1b[2J\ufeff", r"'é\n\x1b[2J\ufeff'"),
        (b"\xff\n", r"b'\xff\n'"),
        ("x" * 80, f"'{'x' * 80}'"),
        ("x" * 81, f"'{'x' * 76}..."),
        ("\0" * 10_000_000, "'" + r"\x00" * 19 + "..."),
    ],
)
def test_input_is_quoted_on_one_short_line(text, quoted):
    assert shown(text) == quoted


def test_the_installation_of_an_extra_names_its_requirements(monkeypatch):
    lines = ["torch>=2", 'onnx>=1.23; extra == "onnx"', 'onnxruntime; extra == "onnx"']
    monkeypatch.setattr(errors, "requires", lambda name: lines)
    assert pip_install("onnx", "onnx", "onnxruntime") == "pip install 'onnx>=1.23' onnxruntime"
    assert pip_install("tune", "optuna") == "pip install optuna"
    monkeypatch.setattr(errors, "requires", lambda name: None)
    assert pip_install("tune", "optuna") == "pip install optuna"


def test_the_installation_where_this_package_is_not_installed(monkeypatch):
    def requires(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(errors, "requires", requires)
    assert pip_install("onnx", "onnx", "onnxruntime") == "pip install onnx onnxruntime"
