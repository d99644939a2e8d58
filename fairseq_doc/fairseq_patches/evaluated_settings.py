"""Settings that fairseq evaluates as Python expressions cannot run code.

fairseq passes settings such as ``[(512, 3)] * 20``, even those of a checkpoint, to Python's
``eval``.
"""

import ast
import sys

from fairseq_doc.errors import FairseqDocError, shown

_VALUES = (ast.Expression, ast.Constant, ast.Tuple, ast.List, ast.Dict, ast.Load)
_OPERATIONS = (ast.BinOp, ast.UnaryOp, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.USub, ast.UAdd)


def apply() -> None:
    """Replace Python's ``eval`` in every loaded module of fairseq."""
    for name, module in list(sys.modules.items()):
        if name.startswith("fairseq.") and hasattr(module, "__dict__"):
            vars(module).setdefault("eval", plain_value)


def plain_value(text: str) -> object:
    """The value of an expression of numbers, strings, lists and their sums and products. Raises
    ``FairseqDocError`` for other expressions and, like ``eval``, ``TypeError`` for other types."""
    if not isinstance(text, str):
        raise TypeError(f"expected a string to evaluate; got a {type(text).__name__}")
    try:
        tree = ast.parse(text.strip(), mode="eval")
        if all(isinstance(part, _VALUES + _OPERATIONS) for part in ast.walk(tree)):
            return eval(compile(tree, "<setting>", "eval"))
    except (SyntaxError, ValueError, TypeError, ArithmeticError, RecursionError, MemoryError):
        pass
    raise FairseqDocError(
        f"expected a setting of numbers, strings and lists; got {shown(text)}, which is not "
        "evaluated, since settings may come from a checkpoint and must not run code"
    )
