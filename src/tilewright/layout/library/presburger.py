"""Integer expressions as isl text: what isl can hold, and a refusal for what it cannot.

Bit operations are refused on purpose: as existential digits they take isl minutes for one tile. Swizzles are compared
over F2 or by enumeration instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NoReturn

from tilewright.base.expr import (
    All,
    Any_,
    Compare,
    Const,
    Expr,
    FloorDiv,
    Max,
    Min,
    Mod,
    Not,
    Product,
    Sum,
    Sym,
    Xor,
)
from tilewright.diag import fail

_RELATIONS = {"==": "=", "!=": "!=", "<": "<", "<=": "<="}


def value_text(node: Expr) -> str:
    """An integer expression in isl's notation (LAY023 when it is not quasi-affine)."""
    match node:
        case Const(value):
            return str(value)
        case Sym(name):
            return name
        case Sum():
            return "(" + " + ".join([str(node.offset), *(f"{c}*{value_text(t)}" for t, c in node.terms)]) + ")"
        case FloorDiv():
            return f"floor({value_text(node.numerator)}/{_number(node.denominator, node)})"
        case Mod():
            return f"({value_text(node.numerator)} mod {_number(node.denominator, node)})"
        case Min():
            return "min(" + ", ".join(map(value_text, node.args)) + ")"
        case Max():
            return "max(" + ", ".join(map(value_text, node.args)) + ")"
        case Product() | Xor() | Compare() | All() | Any_() | Not():
            _refuse(node)
        case _:
            _refuse(node)


def condition_text(node: Expr) -> str:
    """A condition in isl's notation (LAY023)."""
    match node:
        case Const(value):
            return "true" if value else "false"
        case Compare():
            return f"{value_text(node.lhs)} {_RELATIONS[node.op]} {value_text(node.rhs)}"
        case All():
            return "(" + " and ".join(map(condition_text, node.args)) + ")"
        case Any_():
            return "(" + " or ".join(map(condition_text, node.args)) + ")"
        case Not():
            return f"not ({condition_text(node.arg)})"
        case _:
            _refuse(node)


def names(text: Iterable[str]) -> str:
    """A tuple of isl."""
    return "[" + ", ".join(text) + "]"


def set_text(dims: Sequence[str], params: Sequence[str], condition: str) -> str:
    """A set of isl."""
    return f"{names(params)} -> {{ {names(dims)} : {condition} }}"


def _number(node: Expr, whole: Expr) -> int:
    value = node.constant
    if value is None or value < 1:
        _refuse(whole)
    return value


def _refuse(node: Expr) -> NoReturn:
    fail(
        "LAY023",
        found=str(node),
        required="sums of integer multiples, // and % by positive numbers, min, max, comparisons",
        help="name a product of symbols by one symbol; keep xor in an F2 layout",
    )
