"""Element-wise functions on register values; the caller rounds each result to its dtype."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tilewright.base.dtypes import DType
from tilewright.lang.elementwise import of_number
from tilewright.lang.elementwise_table import UnaryFn
from tilewright.simulate.symbols import Array
from tilewright.simulate.values import LARGEST, rounded


def _once(fn: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """``fn`` of f32, computed in f64 and rounded once: NumPy's vectorised f32 functions are up to 4 ulp off."""
    return lambda x: fn(np.asarray(x, np.float64)).astype(np.float32)


def _once_of_two(fn: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """``fn`` of two f32, computed in f64 and rounded once."""
    return lambda a, b: np.asarray(fn(np.asarray(a, np.float64), np.asarray(b, np.float64))).astype(np.float32)


def _sigmoid(x: Any) -> Any:
    return np.float32(1) / (np.float32(1) + _once(np.exp)(-x))


_COMPOSED: dict[UnaryFn, Callable[[Any], Any]] = {
    UnaryFn.RSQRT: lambda x: np.float32(1) / np.sqrt(x),
    UnaryFn.SIGMOID: _sigmoid,
}
"""Functions that NumPy lacks, as formulas; others that it lacks are computed number by number."""


def _function(fn: UnaryFn) -> Callable[[Any], Any]:
    if fn in _COMPOSED:
        return _COMPOSED[fn]
    if not fn.row.numpy:
        return np.vectorize(partial(of_number, fn), otypes=[np.float32])
    of_numpy: Callable[[Any], Any] = getattr(np, fn.row.numpy)
    return of_numpy if fn.row.exact else _once(of_numpy)


UNARY: dict[str, Callable[[Any], Any]] = {fn: _function(fn) for fn in UnaryFn}

APPROXIMATE: dict[str, Callable[[Any], Any]] = {
    "ex2": _once(np.exp2),
    "lg2": _once(np.log2),
    "rcp": lambda x: np.float32(1) / x,
}
"""Functions of one instruction, here as exact as f32 is."""


def _extremum(of_numpy: np.ufunc, *, least: bool) -> Callable[[Any, Any], Any]:
    """NaN if either operand is NaN; 0.0 is greater than -0.0 (PTX ISA 9.1, max), of which NumPy takes either."""

    def function(a: Array, b: Array) -> Array:
        found, zeros = of_numpy(a, b), (a == 0) & (b == 0)
        return np.where(zeros, np.where(np.signbit(a) == least, a, b), found) if np.any(zeros) else found

    return function


_FLOAT: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "floordiv": np.floor_divide,
    "mod": np.mod,
    "min": _extremum(np.minimum, least=True),
    "max": _extremum(np.maximum, least=False),
    "pow": _once_of_two(np.power),
    "atan2": _once_of_two(np.arctan2),
    "fmod": np.fmod,
    "hypot": _once_of_two(np.hypot),
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


_TIE, _BELOW_F32 = 1 << 28, (1 << 29) - 1
"""Of a double, the bits that f32 has not, and what they are half way between two floats."""


def fma(a: Any, b: Any, c: Any) -> Array:
    """``a * b + c`` of f32, rounded once. The product is exact in f64; where its rounded sum with ``c`` looks like a
    tie of f32, or is too small for all its bits, the sum is rounded to odd, so that the second rounding can't meet a
    tie that was none (Boldo, Melquiond 2008)."""
    product, addend = np.asarray(a, np.float64) * np.asarray(b, np.float64), np.asarray(c, np.float64)
    total = np.asarray(product + addend)
    doubtful = (total.view(np.int64) & _BELOW_F32) == _TIE
    doubtful |= np.abs(total) < 2.0**-125
    doubtful &= total != 0
    if doubtful.any():
        products, addends = np.broadcast_to(product, total.shape), np.broadcast_to(addend, total.shape)
        total[doubtful] = _to_odd(products[doubtful], addends[doubtful], total[doubtful])
    return total.astype(np.float32)


def _to_odd(product: Array, addend: Array, total: Array) -> Array:
    """``total`` (a sum rounded to nearest) rounded to odd: the neighbour whose last bit is 1 where the sum is not
    exact."""
    back = total - product
    error = (product - (total - back)) + (addend - back)
    even = (total.view(np.int64) & 1) == 0
    odd = np.nextafter(total, np.where(error > 0, np.inf, -np.inf))
    inexact = np.isfinite(total) & (error != 0) & even
    return np.where(inexact, odd, total)


def exponent_scale(scale: Any, b: Any) -> Array:
    """``scale`` where |b scale| is below about 2^28, else the power of two of its sign that makes 2^31 or more of |b|.

    2^28 / |scale| is found as the compiler finds it, by a difference of bits: it is up to 9 % less."""
    scale, b = np.broadcast_arrays(np.asarray(scale, np.float32), np.asarray(b, np.float32))
    exponent = np.where(np.isfinite(b), np.frexp(b)[1], 129)  # |b| is below 2^exponent
    power = np.copysign(np.ldexp(np.float32(1), 32 - exponent), scale)
    bits = np.abs(scale).view(np.int32).astype(np.int64)
    limit = np.minimum(0x8CEA0000 - bits, 0x7F800000).astype(np.int32).view(np.float32)
    return np.where((np.abs(b) >= limit) & np.isfinite(scale), power, scale)


def binary(fn: str, dtype: DType) -> Callable[[Any, Any], Any]:
    """The function of two operands of ``dtype``; reductions have names of their own for ``add`` and ``mul``."""
    name = {"sum": "add", "prod": "mul"}.get(fn, fn)
    table = _BOOL if dtype.is_bool else _INT if dtype.is_int else _FLOAT
    return table[name]


def cast(value: Any, source: DType, target: DType) -> Any:
    """A value converted as ``cvt`` does (PTX ISA 9.1, 9.7.9.21): floats to integers truncate and saturate, wider
    integers to narrower ones keep their low bits, all to 16-bit and 8-bit floats go through f32."""
    if target.is_bool:
        return np.not_equal(value, 0)
    if source.is_float and target.is_int:
        return _truncated(np.asarray(value, np.float64), target)
    largest = LARGEST.get(target.name)
    return rounded(np.asarray(value) if largest is None else np.clip(value, -largest, largest), target)


def _truncated(value: Array, target: DType) -> Array:
    """Toward zero, then the nearest of the integers of ``target``; NaN gives 0, in 64 bits the least integer."""
    least, greatest = target.integers
    whole = np.trunc(value)
    above = whole >= float(greatest + 1)
    inside = (whole >= float(least)) & ~above  # false for NaN
    found = np.where(inside, whole, 0).astype(np.int64)
    found = np.where(above, greatest, found)
    found = np.where(whole < float(least), least, found)
    if target.bits == 64:
        found = np.where(np.isnan(value), least, found)
    return rounded(found, target)


def argmax(value: Array, index: Array, other: Array, other_index: Array) -> Array:
    """True where ``other`` replaces ``value``: it is greater, or it is the first NaN, or it is equal and has the lower
    index."""
    nan, other_nan = np.isnan(value), np.isnan(other)
    greater = (other > value) | (other_nan & ~nan)
    equal = (other == value) | (other_nan & nan)
    return greater | (equal & (other_index < index))
