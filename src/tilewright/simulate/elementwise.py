"""What the element-wise functions compute on register values; each result is rounded to its dtype by the caller."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.base.dtypes import DType
from tilewright.simulate.symbols import Array
from tilewright.simulate.values import rounded

_erf = np.vectorize(math.erf, otypes=[np.float32])


def _sigmoid(x: Any) -> Any:
    return np.float32(1) / (np.float32(1) + np.exp(-x))


UNARY: dict[str, Callable[[Any], Any]] = {
    "neg": np.negative,
    "abs": np.abs,
    "exp": np.exp,
    "exp2": np.exp2,
    "log": np.log,
    "log2": np.log2,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: np.float32(1) / np.sqrt(x),
    "tanh": np.tanh,
    "sigmoid": _sigmoid,
    "erf": _erf,
    "not": np.invert,
}

_FLOAT: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "floordiv": np.floor_divide,
    "mod": np.mod,
    "min": np.minimum,  # minimum and maximum return NaN if either operand is NaN
    "max": np.maximum,
}
_INT: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "floordiv": np.floor_divide,
    "mod": np.mod,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "shl": np.left_shift,
    "shr": np.right_shift,
}
_BOOL: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.logical_or,
    "mul": np.logical_and,
    "min": np.logical_and,
    "max": np.logical_or,
    "and": np.logical_and,
    "or": np.logical_or,
    "xor": np.logical_xor,
}

COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


def binary(fn: str, dtype: DType) -> Callable[[Any, Any], Any]:
    """The function of two operands of ``dtype``; reductions call ``add`` by the name ``sum``."""
    name = "add" if fn == "sum" else fn
    table = _BOOL if dtype.is_bool else _INT if dtype.is_int else _FLOAT
    return table[name]


def cast(value: Any, source: DType, target: DType) -> Any:
    """A value converted as C does: floats to integers truncate and saturate, NaN gives 0 (PTX ISA, cvt)."""
    if target.is_bool:
        return np.not_equal(value, 0)
    if source.is_float and target.is_int:
        low, high = -(2 ** (target.bits - 1)), 2 ** (target.bits - 1) - 1
        wide = np.trunc(np.nan_to_num(np.asarray(value, np.float64), nan=0.0, posinf=np.inf, neginf=-np.inf))
        # float64 holds no 2^63 - 1, so the top is selected instead of converted
        inside = np.clip(wide, low, np.nextafter(float(high), 0) if target.bits > 32 else high).astype(np.int64)
        return rounded(np.where(wide >= high, high, inside), target)
    return rounded(np.asarray(value), target)


def argmax(value: Array, index: Array, other: Array, other_index: Array) -> Array:
    """Where ``other`` replaces ``value``: it is greater, or NaN first, or equal with the lower index."""
    nan, other_nan = np.isnan(value), np.isnan(other)
    greater = (other > value) | (other_nan & ~nan)
    equal = (other == value) | (other_nan & nan)
    return greater | (equal & (other_index < index))
