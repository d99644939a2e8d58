"""A setting that fairseq evaluates as Python is a value, and runs no code.

Some of fairseq's models and options take lists such as ``[(512, 3)] * 20`` and pass the text to Python's
``eval``. A checkpoint brings such settings along, and its text would run. Here fairseq's modules find
another ``eval``, which knows numbers, texts, lists and their sums and products only.
"""

import ast
import sys

from fairseq_doc.errors import FairseqDocError, shown

_ALLOWED = (
    *(ast.Expression, ast.Constant, ast.Tuple, ast.List, ast.Set, ast.Dict, ast.Load),
    *(ast.UnaryOp, ast.UAdd, ast.USub, ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Div),
)


def apply() -> None:
    """Give every module of fairseq that is loaded the function below for Python's own."""
    for name, module in list(sys.modules.items()):
        if name.startswith("fairseq.") and hasattr(module, "__dict__"):
            vars(module).setdefault("eval", plain_value)


def plain_value(text: str) -> object:
    """The value of an expression of numbers, texts, lists and their sums and products.

    Raises:
        FairseqDocError: another expression.
        TypeError: no text, as Python's ``eval`` has it.
    """
    if not isinstance(text, str):
        raise TypeError(f"expected a text to evaluate; got a {type(text).__name__}")
    try:
        tree = ast.parse(text.strip(), mode="eval")
        if all(isinstance(node, _ALLOWED) for node in ast.walk(tree)):
            return eval(compile(tree, "<setting>", "eval"), {"__builtins__": {}})
    except (SyntaxError, ValueError, TypeError, ArithmeticError, RecursionError):
        pass
    raise FairseqDocError(
        f"expected a setting of numbers, texts and lists; got {shown(text)}, which is not evaluated, "
        "since a checkpoint's settings must not run code"
    )
