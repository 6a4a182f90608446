"""Values with bounds: what any faithful implementation may compute, by docs/language.md alone.

A value has a least and a greatest legal result for every element; where both are one number, the result is that number,
bit for bit. Operations that are rounded once keep points points (and, being monotone, intervals intervals). Sums, whose
order is free, and functions with an error bound widen. ``free`` elements may be anything, NaN included.

Floats are held in f32, whatever their dtype; integers in i64; bools as bools.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
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
WIDE = {"i8": np.int8, "i32": np.int32, "i64": np.int64}
GREATEST = {"e4m3": 448.0, "e5m2": 57344.0}
LARGEST_F32 = float(np.finfo(F32).max)
TINY = 2.0**-126
EPSILON = {12: 2.0**-13, 22: 2.0**-22, 24: 2.0**-24 * 1.01}
"""How far a sum may be off for each term, in parts of the magnitudes added, by the bits that it is kept in: of 8-bit
floats on tensor cores (for 16 terms), of other products there, of f32."""


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
    return -(1 << BITS[dtype] - 1)


def greatest(dtype: str) -> int:
    return (1 << BITS[dtype] - 1) - 1


def between(dtype: str, lo: Array, hi: Array, free: Array | None = None, signed: bool = True) -> Value:
    """A value from ends; NaN ends that are not both NaN make an element free."""
    lo, hi = np.asarray(lo), np.asarray(hi)
    if is_float(dtype):
        odd = np.isnan(lo) != np.isnan(hi)
        free = _or(free, odd if odd.any() else None)
        if free is not None:
            lo, hi = np.where(free, F32(-np.inf), lo), np.where(free, F32(np.inf), hi)
        same = bool(((lo == hi) | (np.isnan(lo) & np.isnan(hi))).all())
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


def _or(*parts: Array | None) -> Array | None:
    found = [p for p in parts if p is not None]
    if not found:
        return None
    whole = reduce(np.logical_or, found)
    return whole if whole.any() else None


def _spread(free: Array | None, shape: tuple[int, ...]) -> Array | None:
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


def _down(x: Array) -> Array:
    """The greatest f32 not above an f64."""
    near = np.asarray(x).astype(F32)
    return np.where(near > x, np.nextafter(near, F32(-np.inf)), near).astype(F32)


def _up(x: Array) -> Array:
    near = np.asarray(x).astype(F32)
    return np.where(near < x, np.nextafter(near, F32(np.inf)), near).astype(F32)


def _ulp(x: Array) -> Array:
    """A unit in the last place of f32, in f64."""
    return np.spacing(np.abs(np.where(np.isfinite(x), x, LARGEST_F32)).astype(F32)).astype(np.float64)


# -- floats -----------------------------------------------------------------------------------------------------------
def _zero_clash(a: Array, b: Array) -> bool:
    """Zeros of both signs meet, so that a minimum or maximum may be either."""
    both = (a == 0) & (b == 0)
    return bool((both & (np.signbit(a) != np.signbit(b))).any())


def _divided(a: Value, b: Value, dtype: str, fast: bool) -> Value:
    lo, hi, free = _corners(np.divide, a, b)
    crosses = (b.lo <= 0) & (b.hi >= 0)
    zero = (b.lo == 0) & (b.hi == 0)
    doubtful = crosses & ~zero
    if not b.signed:
        doubtful = crosses
    if a.lo is not a.hi:
        doubtful = doubtful | (zero & (a.lo <= 0) & (a.hi >= 0) & (a.lo != a.hi))
    free = _or(free, doubtful if doubtful.any() else None)
    if fast:
        size = np.maximum(np.abs(b.lo), np.abs(b.hi))
        inner = np.minimum(np.abs(b.lo), np.abs(b.hi))
        lo, hi = _widened(lo, hi, 4, np.abs(np.maximum(np.abs(a.lo), np.abs(a.hi)).astype(np.float64)) * 2.0**-126)
        extreme = (inner < TINY) | (size > 2.0**125) | ~np.isfinite(lo) | ~np.isfinite(hi)
        free = _or(free, np.broadcast_to(extreme, lo.shape) if extreme.any() else None)
    return between(dtype, rounded(lo, dtype), rounded(hi, dtype), _spread(free, lo.shape), a.signed and b.signed)


def _corners(fn: Callable[[Array, Array], Array], a: Value, b: Value) -> tuple[Array, Array, Array | None]:
    """Least and greatest result over the corners; free where some are NaN and some are not, or an operand is."""
    free = _or(a.free, b.free)
    if a.point and b.point:
        one = fn(a.lo, b.lo)
        return one, one, free
    every = [fn(x, y) for x in (a.lo, a.hi) for y in (b.lo, b.hi)]
    nan = [np.isnan(x) for x in every]
    some = reduce(np.logical_or, nan) & ~reduce(np.logical_and, nan)
    lo, hi = reduce(np.fmin, every), reduce(np.fmax, every)
    return lo, hi, _or(_spread(free, lo.shape), some if some.any() else None)


def _widened(lo: Array, hi: Array, ulps: float, slack: Array | float = 0.0) -> tuple[Array, Array]:
    """Ends moved apart by units in the last place of f32, and by a slack."""
    l64, h64 = lo.astype(np.float64), hi.astype(np.float64)
    return _down(l64 - ulps * _ulp(lo) - slack), _up(h64 + ulps * _ulp(hi) + slack)


def float_binary(fn: str, a: Value, b: Value, dtype: str, fast: bool) -> Value:
    """``add sub mul div min max`` in f32, rounded to ``dtype``."""
    if fn == "div":
        return _divided(a, b, dtype, fast)
    table = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "min": np.minimum, "max": np.maximum}
    lo, hi, free = _corners(table[fn], a, b)
    free = _spread(free, lo.shape)
    signed = a.signed and b.signed
    if fn in ("min", "max"):
        signed = signed and not _zero_clash(a.lo, b.lo)
    if fn == "mul":
        crossing = ((a.lo < 0) & (a.hi > 0) & np.isinf(b.hi)) | ((b.lo < 0) & (b.hi > 0) & np.isinf(a.hi))
        free = _or(free, crossing if crossing.any() else None)
        if fast and dtype == "f32":
            lo, hi = _unrounded(a, b, lo, hi)
    if fn in ("add", "sub") and (a.lo is not a.hi or b.lo is not b.hi):
        signed = False
    found = between(dtype, rounded(lo, dtype), rounded(hi, dtype), free, signed)
    if fast and fn == "sub":
        sizes = [np.maximum(np.abs(x.lo), np.abs(x.hi)).astype(np.float64) for x in (a, b)]
        return replace(found, apart=sizes[0] + sizes[1])
    return found


def _unrounded(a: Value, b: Value, lo: Array, hi: Array) -> tuple[Array, Array]:
    """A product that a sum may take before it is rounded."""
    every = [x.astype(np.float64) * y.astype(np.float64) for x in (a.lo, a.hi) for y in (b.lo, b.hi)]
    low, high = reduce(np.fmin, every), reduce(np.fmax, every)
    return np.where(low < lo, _down(low), lo).astype(F32), np.where(high > hi, _up(high), hi).astype(F32)


@dataclass(frozen=True)
class Function:
    """A function of one float: in f64, falling or not, its bounds in ulp of f32, and where it is no number."""

    of: Callable[[Array], Array]
    ulps: float
    fast: Callable[[Array, Array, Array], tuple[float, Array]] | None = None
    falls: bool = False
    slack: float = 0.0


def _erf(x: Array) -> Array:
    from math import erf  # noqa: PLC0415 - NumPy has none

    return np.vectorize(erf, otypes=[np.float64])(x) if x.size else x


def _fast_exp(lo: Array, hi: Array, size: Array) -> tuple[float, Array]:
    """ex2(x * log2 e): the exponent is rounded in f32, and ex2 is within 2^-22, ftz."""
    return 0.0, np.where(np.isfinite(size), size, 0.0) * 2.0**-23 * 1.5 + 2.0**-21


FUNCTIONS: dict[str, Function] = {
    "exp": Function(np.exp, 2, _fast_exp),
    "exp2": Function(np.exp2, 2, lambda lo, hi, size: (0.0, np.asarray(2.0**-21))),
    "log": Function(np.log, 1.01),
    "log2": Function(np.log2, 1.01),
    "rsqrt": Function(lambda x: 1 / np.sqrt(x), 2, falls=True),
    "tanh": Function(np.tanh, 2),
    "sigmoid": Function(lambda x: 1 / (1 + np.exp(-x)), 4, _fast_exp, slack=2.0**-126),
    "erf": Function(_erf, 2),
}


def float_unary(fn: str, x: Value, fast: bool) -> Value:
    """A function of one float in f32, rounded to its dtype."""
    if fn == "neg":
        return _same(x, -x.lo) if x.lo is x.hi else Value(x.dtype, -x.hi, -x.lo, x.free, x.signed)
    if fn == "abs":
        if x.lo is x.hi:
            return _same(x, np.abs(x.lo))
        crosses = (x.lo < 0) & (x.hi > 0)
        a, b = np.abs(x.lo), np.abs(x.hi)
        return between(x.dtype, np.where(crosses, F32(0), np.fmin(a, b)), np.fmax(a, b), x.free)
    if fn == "sqrt":
        return between(x.dtype, rounded(np.sqrt(x.lo), x.dtype), rounded(np.sqrt(x.hi), x.dtype), x.free, x.signed)
    about = FUNCTIONS[fn]
    lo, hi = (about.of(end.astype(np.float64)) for end in (x.lo, x.hi))
    if about.falls:
        lo, hi = hi, lo
    free = x.free
    if fn == "rsqrt":
        doubtful = (x.lo <= 0) & (x.hi >= 0) & ((x.lo != x.hi) | (not x.signed))
        free = _or(free, doubtful if doubtful.any() else None)
    ulps, relative, slack = about.ulps, np.asarray(0.0), about.slack
    if fast and about.fast is not None:
        size = np.maximum(np.abs(x.lo), np.abs(x.hi)).astype(np.float64)
        ulps, relative = about.fast(x.lo, x.hi, size if x.apart is None else size + x.apart)
        ulps, slack = ulps + 1, max(slack, 2 * TINY)
    if fast and fn in ("log", "log2"):
        ulps, slack = 3, 2.0**-21
        tiny = x.lo < TINY  # ex2 and lg2 take denormals for zero
        free = _or(free, (tiny & (x.hi > 0)) if (tiny & (x.hi > 0)).any() else None)
    low, high = _outward(lo, hi, ulps, relative, slack)
    if fast and fn in ("exp", "exp2", "sigmoid"):
        large = ~np.isfinite(high) & np.isfinite(lo)
        free = _or(free, large if large.any() else None)
    if fn in ("exp", "exp2", "sigmoid"):
        low = np.where(low < 0, F32(0), low)
    return between(x.dtype, rounded(low, x.dtype), rounded(high, x.dtype), free, x.signed)


def _outward(lo: Array, hi: Array, ulps: float, relative: Array, slack: float) -> tuple[Array, Array]:
    """Ends of f64 moved apart; zeros, infinities and NaN stay where they are but for the slack."""
    special_lo, special_hi = ~np.isfinite(lo), ~np.isfinite(hi)
    l32, h32 = lo.astype(F32), hi.astype(F32)
    by_lo = ulps * _ulp(l32) + relative * np.abs(np.where(special_lo, 0, lo)) + slack
    by_hi = ulps * _ulp(h32) + relative * np.abs(np.where(special_hi, 0, hi)) + slack
    keep_lo = special_lo | ((lo == 0) & (slack == 0))
    keep_hi = special_hi | ((hi == 0) & (slack == 0))
    return np.where(keep_lo, l32, _down(lo - by_lo)).astype(F32), np.where(keep_hi, h32, _up(hi + by_hi)).astype(F32)


def _same(x: Value, to: Array) -> Value:
    return Value(x.dtype, to, to, x.free, x.signed)


# -- integers and bools -----------------------------------------------------------------------------------------------
def _floordiv(a: Array, b: Array) -> Array:
    safe = np.where((b == 0) | (b == -1), 1, b)
    return np.where(b == 0, 0, np.where(b == -1, -a, a // safe))


def _mod(a: Array, b: Array) -> Array:
    safe = np.where((b == 0) | (b == -1), 1, b)
    return np.where((b == 0) | (b == -1), 0, a % safe)


def _shift(left: bool, bits: int) -> Callable[[Array, Array], Array]:
    def fn(a: Array, b: Array) -> Array:
        beyond = (b < 0) | (b >= bits)
        by = np.where(beyond, 0, b)
        if left:
            return np.where(beyond, 0, a << by)
        return np.where(beyond, np.where(a < 0, -1, 0), a >> by)

    return fn


def integer_binary(fn: str, a: Value, b: Value, dtype: str) -> Value:
    """Any operation on integers of one dtype, or logic on bools."""
    table: dict[str, Callable[[Array, Array], Array]] = {
        "add": np.add, "sub": np.subtract, "mul": np.multiply, "floordiv": _floordiv, "mod": _mod,
        "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    }  # fmt: skip
    if dtype != "bool":
        table |= {"shl": _shift(True, BITS[dtype]), "shr": _shift(False, BITS[dtype])}
    bend = (lambda x: x) if dtype == "bool" else (lambda x: wrapped(x, dtype))
    point = bend(table[fn](a.lo, b.lo))
    if a.point and b.point:
        return exactly(dtype, point)
    unsure = (a.lo != a.hi) | (b.lo != b.hi)
    if fn in ("min", "max") or (dtype == "bool" and fn != "xor"):
        return between(dtype, point, table[fn](a.hi, b.hi))
    low: Array = np.zeros(point.shape, bool) if dtype == "bool" else np.full(point.shape, least(dtype))
    high: Array = np.ones(point.shape, bool) if dtype == "bool" else np.full(point.shape, greatest(dtype))
    if fn in ("add", "sub", "mul"):
        every = [table[fn](x.astype(np.float64), y.astype(np.float64)) for x in (a.lo, a.hi) for y in (b.lo, b.hi)]
        exact = [table[fn](x, y) for x in (a.lo, a.hi) for y in (b.lo, b.hi)]
        limit = min(float(greatest(dtype)), 2.0**52)
        fits = reduce(np.maximum, [np.abs(e) for e in every]) < limit
        low = np.where(fits, reduce(np.minimum, exact), low)
        high = np.where(fits, reduce(np.maximum, exact), high)
    return between(dtype, np.where(unsure, low, point), np.where(unsure, high, point))


def integer_unary(fn: str, x: Value) -> Value:
    """``neg``, ``abs`` and ``not``."""
    if x.dtype == "bool":
        lo = ~x.hi
        return Value("bool", lo, lo if x.lo is x.hi else ~x.lo)
    of: dict[str, Callable[[Array], Array]] = {"neg": np.negative, "abs": np.abs, "not": np.invert}
    point = wrapped(of[fn](x.lo), x.dtype)
    if x.point:
        return exactly(x.dtype, point)
    unsure = x.lo != x.hi
    return between(x.dtype, np.where(unsure, least(x.dtype), point), np.where(unsure, greatest(x.dtype), point))


def compared(fn: str, a: Value, b: Value) -> Value:
    """A bool for each element; both where the ends don't tell."""
    table = {
        "eq": np.equal,
        "ne": np.not_equal,
        "lt": np.less,
        "le": np.less_equal,
        "gt": np.greater,
        "ge": np.greater_equal,
    }
    point = table[fn](a.lo, b.lo)
    if a.point and b.point:
        return exactly("bool", point)
    unsure = (a.lo != a.hi) | (b.lo != b.hi)
    for x in (a, b):
        if is_float(x.dtype):
            unsure = unsure & ~(np.isnan(x.lo) & np.isnan(x.hi))
    free = _or(a.free, b.free)
    if free is not None:
        unsure = unsure | free
    elif fn in ("lt", "le", "gt", "ge"):
        if fn in ("lt", "le"):
            surely, maybe = table[fn](a.hi, b.lo), table[fn](a.lo, b.hi)
        else:
            surely, maybe = table[fn](a.lo, b.hi), table[fn](a.hi, b.lo)
        return between("bool", np.where(unsure, surely, point), np.where(unsure, maybe, point))
    else:
        apart = (a.hi < b.lo) | (b.hi < a.lo)
        if fn == "eq":
            return between("bool", np.where(unsure, False, point), np.where(unsure, ~apart, point))
        return between("bool", np.where(unsure, apart, point), np.where(unsure, True, point))
    return between("bool", np.where(unsure, False, point), np.where(unsure, True, point))


def chosen(condition: Value, a: Value, b: Value) -> Value:
    """``where``."""
    signed = a.signed and b.signed
    if condition.point:
        lo = np.where(condition.lo, a.lo, b.lo)
        if a.point and b.point:
            return Value(a.dtype, lo, lo, None, signed)
        none = np.zeros((), bool)
        free = None
        if a.free is not None or b.free is not None:
            free = np.where(condition.lo, none if a.free is None else a.free, none if b.free is None else b.free)
            free = free if free.any() else None
        return between(a.dtype, lo, np.where(condition.lo, a.hi, b.hi), free, signed)
    unsure = condition.lo != condition.hi
    if is_float(a.dtype):
        low, high = np.fmin(a.lo, b.lo), np.fmax(a.hi, b.hi)
        odd = unsure & (np.isnan(a.lo) != np.isnan(b.lo))
    else:
        low, high, odd = np.minimum(a.lo, b.lo), np.maximum(a.hi, b.hi), None
    free = None
    for x, taken in ((a, condition.hi), (b, ~condition.lo)):
        if x.free is not None:
            free = _or(free, x.free & taken)
    shape = np.broadcast_shapes(condition.shape, low.shape)
    free = _or(_spread(free, shape), None if odd is None else odd)
    lo = np.where(unsure, low, np.where(condition.lo, a.lo, b.lo))
    hi = np.where(unsure, high, np.where(condition.lo, a.hi, b.hi))
    return between(a.dtype, lo, hi, free, signed)


# -- conversions ------------------------------------------------------------------------------------------------------
def _truncated(x: Array, dtype: str) -> Array:
    """Floats to integers: toward zero, clamped; NaN gives 0, in i64 the least."""
    whole = np.trunc(x.astype(np.float64))
    top = float(1 << BITS[dtype] - 1)
    inside = (whole >= -top) & (whole < top)
    found = np.where(inside, whole, 0.0).astype(np.int64)
    found = np.where(whole >= top, greatest(dtype), np.where(whole < -top, least(dtype), found))
    return np.where(np.isnan(whole), least(dtype) if dtype == "i64" else 0, found)


def converted(x: Value, dtype: str) -> Value:
    """A cast."""
    if dtype == x.dtype:
        return x
    if dtype == "bool":
        zero = exactly(x.dtype, np.zeros((), F32 if is_float(x.dtype) else np.int64))
        return compared("ne", x, zero)
    if is_float(dtype):
        ends = [e.astype(F32) for e in ((x.lo,) if x.lo is x.hi else (x.lo, x.hi))]
        ends = [rounded(e, dtype) for e in ends]
        if len(ends) == 1:
            return Value(dtype, ends[0], ends[0], x.free, x.signed)
        return between(dtype, ends[0], ends[1], x.free, x.signed)
    if is_float(x.dtype):
        lo = _truncated(x.lo, dtype)
        if x.point:
            return exactly(dtype, lo)
        hi = _truncated(x.hi, dtype)
        if x.free is not None:
            lo, hi = np.where(x.free, least(dtype), lo), np.where(x.free, greatest(dtype), hi)
        return between(dtype, lo, hi)
    if x.point:
        return exactly(dtype, wrapped(x.lo.astype(np.int64), dtype))
    lo, hi = x.lo.astype(np.int64), x.hi.astype(np.int64)
    fits = (lo == hi) | ((lo >= least(dtype)) & (hi <= greatest(dtype)))
    return between(
        dtype, np.where(fits, wrapped(lo, dtype), least(dtype)), np.where(fits, wrapped(hi, dtype), greatest(dtype))
    )


# -- sums -------------------------------------------------------------------------------------------------------------
def unit(x: Array) -> Array:
    """The greatest power of two that divides a float; infinite for 0."""
    mantissa, exponent = np.frexp(np.where(np.isfinite(x), x, 1.0).astype(np.float64))
    whole = np.abs(mantissa * 2.0**53).astype(np.int64)
    low = whole & -whole
    return np.where(whole == 0, np.inf, np.ldexp(low.astype(np.float64), exponent - 53))


def summed(
    lo: Array,
    hi: Array,
    mass: Array,
    quantum: Array,
    free: Array | None,
    count: int,
    epsilon: float,
    digits: int,
    point: bool,
) -> Value:
    """A sum of ``count`` terms in any order, from the sums of ends and magnitudes in f64: exact where they fit
    ``digits`` bits, else ``epsilon`` of them away for each term."""
    with np.errstate(all="ignore"):
        fits = mass <= 2.0**digits * quantum
        small = ~(mass <= LARGEST_F32)  # overflows on the way, in some order
        finite = np.isfinite(lo) & np.isfinite(hi)
        near = np.asarray(lo).astype(F32)
        if point and bool((fits | ~finite).all()) and not (small & finite).any():
            return Value("f32", near, near, free, False, mass, quantum)
        error = np.where(finite, count * epsilon * np.where(np.isfinite(mass), mass, 0) + TINY * 4, 0)
        low, high = _down(lo - error), _up(hi + error)
        exact = fits & (lo == hi)
        low, high = np.where(exact, near, low), np.where(exact, near, high)
        free = _or(free, (small & finite) if (small & finite).any() else None)
        return replace(between("f32", low, high, free, False), mass=mass, quantum=quantum)


def total(x: Value, axis: int, terms: int) -> Value:
    """The sum along an axis, which is part of one of ``terms`` terms in all."""
    if x.dtype == "bool" or x.dtype in INTS:
        lo = x.lo.astype(np.int64).sum(axis)
        if x.point:
            return exactly("i64", lo)
        near = np.abs(x.lo.astype(np.float64)).sum(axis) + np.abs(x.hi.astype(np.float64)).sum(axis) < 2.0**52
        hi = x.hi.astype(np.int64).sum(axis)
        return between("i64", np.where(near, lo, least("i64")), np.where(near, hi, greatest("i64")))
    l64, h64 = x.lo.astype(np.float64), x.hi.astype(np.float64)
    size = np.maximum(np.abs(l64), np.abs(h64))
    mass = np.where(np.isfinite(size), size, 0).sum(axis)
    quantum = unit(l64).min(axis, initial=np.inf)
    free = None if x.free is None else x.free.any(axis)
    if not x.point:
        both = (h64 == np.inf).any(axis) & (l64 == -np.inf).any(axis)
        free = _or(free, both if both.any() else None)
    with np.errstate(all="ignore"):
        return summed(l64.sum(axis), h64.sum(axis), mass, quantum, free, terms, 2.0**-24 * 1.01, 24, x.point)


def accumulated(state: Value, x: Value, terms: int) -> Value:
    """``state += x`` of f32 in a stream: one sum with what was added before, in any order."""
    mass = x.mass if x.mass is not None else np.maximum(np.abs(x.lo), np.abs(x.hi)).astype(np.float64)
    mass = np.where(np.isfinite(mass), mass, 0)
    quantum = x.quantum if x.quantum is not None else unit(x.lo)
    before = state.mass if state.mass is not None else np.abs(state.lo).astype(np.float64)
    own = state.quantum if state.quantum is not None else unit(state.lo)
    grown, finest = before + mass, np.minimum(own, quantum)
    l64 = state.lo.astype(np.float64) + x.lo.astype(np.float64)
    h64 = state.hi.astype(np.float64) + x.hi.astype(np.float64)
    both = ((state.hi == np.inf) & (x.lo == -np.inf)) | ((state.lo == -np.inf) & (x.hi == np.inf))
    both = both & ((state.lo != state.hi) | (x.lo != x.hi))
    free = _or(state.free, x.free, both if both.any() else None)
    exact, digits = state.point and x.point, min(state.digits, x.digits)
    if digits < 20:
        terms = terms // 16 + 2
    counted = grown if exact else np.where((state.lo == state.hi), grown, mass)
    whole = np.where(grown <= 2.0**digits * finest, finest, 0.0)
    found = summed(l64, h64, counted, whole, free, terms, EPSILON[digits], digits, exact)
    return replace(found, mass=grown, quantum=finest, digits=digits)


def reduced(fn: str, x: Value, axis: int, terms: int) -> Value:
    """``sum max min argmax`` along an axis."""
    if fn == "sum":
        return total(x, axis, terms)
    if fn == "argmax":
        return _argmax(x, axis)
    pick = np.maximum if fn == "max" else np.minimum
    if is_float(x.dtype):
        first: Any = F32(-np.inf if fn == "max" else np.inf)
    elif x.dtype == "bool":
        first = fn == "min"
    else:
        first = least(x.dtype) if fn == "max" else greatest(x.dtype)
    lo = pick.reduce(x.lo, axis, initial=first)
    if x.point:
        return Value(x.dtype, lo, lo, None, False)
    free = None if x.free is None else x.free.any(axis)
    return between(x.dtype, lo, pick.reduce(x.hi, axis, initial=first), free, False)


def _argmax(x: Value, axis: int) -> Value:
    """The first of equals, the first NaN; where ends don't tell, from the first to the last candidate."""
    count = x.shape[axis]
    rest = x.shape[:axis] + x.shape[axis + 1 :]
    if count == 0:
        return anything("i32", rest)
    if x.point:
        return exactly("i32", np.argmax(x.lo, axis).astype(np.int64))
    if x.free is not None or (is_float(x.dtype) and np.isnan(x.lo).any()):
        return between("i32", np.zeros(rest, np.int64), np.full(rest, count - 1))
    candidates = x.hi >= x.lo.max(axis, keepdims=True)
    first = np.argmax(candidates, axis)
    last = count - 1 - np.argmax(np.flip(candidates, axis), axis)
    return between("i32", first.astype(np.int64), last.astype(np.int64))


def product(a: Value, b: Value, terms: int) -> Value:
    """``a @ b``: i8 exact in i32, floats added in any order, of 8-bit floats with 14 bits."""
    if a.dtype == "i8":
        return exactly("i32", wrapped(a.lo @ b.lo, "i32"))
    la, ha, lb, hb = (e.astype(np.float64) for e in (a.lo, a.hi, b.lo, b.hi))
    ca, ra, cb, rb = (la + ha) / 2, (ha - la) / 2, (lb + hb) / 2, (hb - lb) / 2
    with np.errstate(all="ignore"):
        centre = ca @ cb
        around = np.zeros_like(centre) if a.point and b.point else np.abs(ca) @ rb + ra @ np.abs(cb) + ra @ rb
        mass = np.abs(ca) @ np.abs(cb) + around
        quantum = unit(la).min(1, initial=np.inf)[:, None] * unit(lb).min(0, initial=np.inf)[None, :]
        odd = np.zeros(centre.shape, bool)
        for x, axis in ((a, 1), (b, 0)):
            if x.free is not None:
                odd |= np.expand_dims(x.free.any(axis), axis)
        odd |= ~np.isfinite(mass)
        eight = a.dtype in GREATEST or b.dtype in GREATEST
        digits = 12 if eight else 22
        count = terms // 16 + 2 if eight else terms + 8
        none = odd if odd.any() else None
        found = summed(
            centre - around, centre + around, mass, quantum, none, count, EPSILON[digits], digits, a.point and b.point
        )
        return replace(found, digits=digits)


def admits(value: Value, found: Array) -> Array:
    """Where a result of the dtype, held as values are, is one that the bounds admit."""
    return inside(value.lo, value.hi, value.free, value.signed, found)
