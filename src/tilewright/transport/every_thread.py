"""Integer expressions at every thread and register at once: ``Expr.evaluate`` for all of them together."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tilewright.base.expr import (
    All,
    Any_,
    Compare,
    Const,
    Expr,
    ExprError,
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
from tilewright.transport import dialect as t

Ints: TypeAlias = npt.NDArray[Any]
_COMPARE = {"<": np.less, "<=": np.less_equal, "==": np.equal, "!=": np.not_equal}


def values_at(node: Expr, at: Mapping[str, Ints]) -> Ints:
    """An expression at every thread, and at every register or copy of it, as ``at`` lists them.

    Raises ``ExprError`` for a symbol without a value or a divisor that is zero anywhere.
    """
    return np.broadcast_to(_values(node, at), at[t.THREAD].shape)


def _values(node: Expr, at: Mapping[str, Ints]) -> Ints:
    def of(part: Expr) -> Ints:
        return _values(part, at)

    match node:
        case Const() | Sym():
            return np.asarray(node.evaluate(at))
        case Sum(offset, terms):
            return np.asarray(offset + sum(of(term) * factor for term, factor in terms))
        case Product(args):
            return reduce(np.multiply, map(of, args))
        case Min(args):
            return reduce(np.minimum, map(of, args))
        case Max(args):
            return reduce(np.maximum, map(of, args))
        case Xor(args):
            return reduce(np.bitwise_xor, map(of, args))
        case FloorDiv(a, b):
            return of(a) // _divisor(node, of(b))
        case Mod(a, b):
            return of(a) % _divisor(node, of(b))
        case Compare(op, a, b):
            return _COMPARE[op](of(a), of(b))
        case All(args):
            return reduce(np.logical_and, map(of, args))
        case Any_(args):
            return reduce(np.logical_or, map(of, args))
        case Not(a):
            return np.logical_not(of(a))
        case _:
            raise TypeError(f"not an expression node: {type(node).__name__}")


def _divisor(node: Expr, value: Ints) -> Ints:
    if not value.all():
        raise ExprError(f"{node} divides by zero")
    return value
