"""Integer expressions at every thread and register at once: ``Expr.evaluate`` for all of them together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tilewright.base.expr import Const, Expr, ExprError, Sym
from tilewright.base.expr.algebra import Algebra, combined
from tilewright.transport import dialect as t

Ints: TypeAlias = npt.NDArray[Any]


def values_at(node: Expr, at: Mapping[str, Ints]) -> Ints:
    """An expression at every thread, and at every register or copy of it, as ``at`` lists them.

    Raises ``ExprError`` for a symbol without a value or a divisor that is zero anywhere.
    """
    return np.broadcast_to(_values(node, at), at[t.THREAD].shape)


def _values(node: Expr, at: Mapping[str, Ints]) -> Ints:
    if isinstance(node, Const | Sym):
        return np.asarray(node.evaluate(at))
    return combined(node, lambda part: _values(part, at), _ARRAYS)


def _divisor(node: Expr, value: Ints) -> Ints:
    if not value.all():
        raise ExprError(f"{node} divides by zero")
    return value


_ARRAYS = Algebra(np.minimum, np.maximum, np.logical_and, np.logical_or, np.logical_not, _divisor)
