"""Settings that fairseq evaluates as Python can only be values, and cannot run code.

fairseq passes settings such as ``[(512, 3)] * 20``, even those of a checkpoint, to Python's
``eval``.
"""

import ast
import operator
import sys
from collections.abc import Sized
from typing import Any

from fairseq_doc.errors import FairseqDocError, shown

LARGEST = 1_000_000  # maximal number of elements in a product
_OPERATIONS: dict[type, Any] = {
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


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
        return _value(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, TypeError, ArithmeticError, RecursionError, MemoryError):
        raise FairseqDocError(
            f"expected a setting of numbers, strings and lists; got {shown(text)}, which is not "
            "evaluated, since settings may come from a checkpoint and must not run code"
        ) from None


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.Tuple | ast.List):
        return (tuple if isinstance(node, ast.Tuple) else list)(map(_value, node.elts))
    if isinstance(node, ast.UnaryOp) and type(node.op) in _OPERATIONS:
        return _OPERATIONS[type(node.op)](_value(node.operand))
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
        operands = _value(node.left), _value(node.right)
        for elements, times in (operands, operands[::-1]):
            of_product = isinstance(node.op, ast.Mult) and isinstance(elements, Sized)
            if of_product and len(elements) * times > LARGEST:
                raise ValueError("a long list")
        return _OPERATIONS[type(node.op)](*operands)
    return ast.literal_eval(node)
