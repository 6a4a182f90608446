"""Values with bounds: what any faithful implementation may compute, by docs/language.md alone.

A value has a least and a greatest legal result for every element; where both are one number, the result is that number,
bit for bit. Operations that are rounded once keep points points (and, being monotone, intervals intervals). Sums, whose
order is free, and functions with an error bound widen. ``free`` elements may be anything, NaN included.

Floats are held in f32, whatever their dtype; integers in i64; bools as bools.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np

from random_programs.bounds import inside
from random_programs.tree import BITS, INTS, is_float

Array: TypeAlias = Any
F32 = np.float32
NARROW = {
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "e5m2": np.dtype(ml_dtypes.float8_e5m2),
}
WIDE = {name: np.dtype(f"{name[0]}{BITS[name] // 8}") for name in INTS}
GREATEST = {"e4m3": 448.0, "e5m2": 57344.0}
LARGEST_F32 = float(np.finfo(F32).max)
TINY = 2.0**-126


@dataclass(frozen=True)
class Value:
    """``signed``: the sign of a zero is known. ``mass`` and ``quantum`` of a sum: the magnitudes added up, and a power
    of two of which every term is a multiple."""

    dtype: str
    lo: Array
    hi: Array
    free: Array | None = None
    signed: bool = True
    mass: Array | None = None
    quantum: Array | None = None
    digits: int = 24
    """Bits that a sum is kept in on its way."""
    apart: Array | None = None
    """Of a difference: the magnitudes of what it is the difference of."""

    @property
    def point(self) -> bool:
        """Known bit for bit (but for signs of zeros)."""
        return self.lo is self.hi and self.free is None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.lo.shape

    def moved(self, fn: Callable[[Array], Array]) -> Value:
        """The elements at other places."""
        lo = fn(self.lo)
        hi = lo if self.hi is self.lo else fn(self.hi)
        free = None if self.free is None else fn(self.free)
        return Value(self.dtype, lo, hi, free, self.signed)


def exactly(dtype: str, x: Array, signed: bool = True) -> Value:
    x = np.asarray(x)
    return Value(dtype, x, x, None, signed)


def least(dtype: str) -> int:
    return int(np.iinfo(WIDE[dtype]).min)


def greatest(dtype: str) -> int:
    return int(np.iinfo(WIDE[dtype]).max)


def between(dtype: str, lo: Array, hi: Array, free: Array | None = None, signed: bool = True) -> Value:
    """A value from ends; NaN ends that are not both NaN make an element free."""
    lo, hi = np.asarray(lo), np.asarray(hi)
    if is_float(dtype):
        odd = np.isnan(lo) != np.isnan(hi)
        free = either(free, odd if odd.any() else None)
        if free is not None:
            lo, hi = np.where(free, F32(-np.inf), lo), np.where(free, F32(np.inf), hi)
        same = bool(((lo == hi) | (np.isnan(lo) & np.isnan(hi))).all())
        signed = signed and not bool(((lo == hi) & (np.signbit(lo) != np.signbit(hi))).any())
    else:
        same = bool((lo == hi).all())
    return Value(dtype, lo, lo if same and free is None else hi, free, signed)


def anything(dtype: str, shape: tuple[int, ...], where: Array | None = None) -> Value:
    """Every element unknown."""
    if dtype == "bool":
        return Value(dtype, np.zeros(shape, bool), np.ones(shape, bool))
    if dtype in INTS:
        return Value(dtype, np.full(shape, least(dtype)), np.full(shape, greatest(dtype)))
    return Value(dtype, np.full(shape, F32(-np.inf)), np.full(shape, F32(np.inf)), np.ones(shape, bool), False)


def either(*parts: Array | None) -> Array | None:
    found = [p for p in parts if p is not None]
    if not found:
        return None
    whole = reduce(np.logical_or, found)
    return whole if whole.any() else None


def spread(free: Array | None, shape: tuple[int, ...]) -> Array | None:
    return None if free is None else np.broadcast_to(free, shape)


# -- rounding ---------------------------------------------------------------------------------------------------------
def rounded(x: Array, dtype: str) -> Array:
    """f32 rounded to a float dtype."""
    x = np.asarray(x, F32)
    if dtype == "f32":
        return x
    if dtype == "tf32":
        bits = x.view(np.uint32)
        cut = ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(F32)
        return np.where(np.isfinite(x), cut, x)
    if dtype in GREATEST:
        x = np.clip(x, -GREATEST[dtype], GREATEST[dtype])
    return x.astype(NARROW[dtype]).astype(F32)


def wrapped(x: Array, dtype: str) -> Array:
    """The low bits of an i64."""
    return np.asarray(x).astype(WIDE[dtype]).astype(np.int64)


def down(x: Array) -> Array:
    """The greatest f32 not above an f64."""
    near = np.asarray(x).astype(F32)
    return np.where(near > x, np.nextafter(near, F32(-np.inf)), near).astype(F32)


def up(x: Array) -> Array:
    near = np.asarray(x).astype(F32)
    return np.where(near < x, np.nextafter(near, F32(np.inf)), near).astype(F32)


def ulp(x: Array) -> Array:
    """A unit in the last place of f32, in f64."""
    return np.spacing(np.abs(np.where(np.isfinite(x), x, LARGEST_F32)).astype(F32)).astype(np.float64)


def admits(value: Value, found: Array) -> Array:
    """Where a result of the dtype, held as values are, is one that the bounds admit."""
    return inside(value.lo, value.hi, value.free, value.signed, found)
