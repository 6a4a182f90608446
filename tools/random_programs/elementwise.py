"""Element-wise operations on values with bounds: floats, integers and bools, comparisons, choices, conversions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from math import erf

import numpy as np

from random_programs.tree import BITS, POWERS, is_float
from random_programs.values import (
    F32,
    TINY,
    Array,
    Value,
    between,
    down,
    either,
    exactly,
    greatest,
    least,
    rounded,
    spread,
    ulp,
    up,
    wrapped,
)


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
    free = either(free, doubtful if doubtful.any() else None)
    if fast:
        size = np.maximum(np.abs(b.lo), np.abs(b.hi))
        inner = np.minimum(np.abs(b.lo), np.abs(b.hi))
        lo, hi = _widened(lo, hi, 4, np.abs(np.maximum(np.abs(a.lo), np.abs(a.hi)).astype(np.float64)) * 2.0**-126)
        extreme = (inner < TINY) | (size > 2.0**125) | ~np.isfinite(lo) | ~np.isfinite(hi)
        free = either(free, np.broadcast_to(extreme, lo.shape) if extreme.any() else None)
    return between(dtype, rounded(lo, dtype), rounded(hi, dtype), spread(free, lo.shape), a.signed and b.signed)


def _corners(fn: Callable[[Array, Array], Array], a: Value, b: Value) -> tuple[Array, Array, Array | None]:
    """Least and greatest result over the corners; free where some are NaN and some are not, or an operand is."""
    free = either(a.free, b.free)
    if a.point and b.point:
        one = fn(a.lo, b.lo)
        return one, one, free
    every = [fn(x, y) for x in (a.lo, a.hi) for y in (b.lo, b.hi)]
    nan = [np.isnan(x) for x in every]
    some = reduce(np.logical_or, nan) & ~reduce(np.logical_and, nan)
    lo, hi = reduce(np.fmin, every), reduce(np.fmax, every)
    return lo, hi, either(spread(free, lo.shape), some if some.any() else None)


def _widened(lo: Array, hi: Array, ulps: float, slack: Array | float = 0.0) -> tuple[Array, Array]:
    """Ends moved apart by units in the last place of f32, and by a slack."""
    l64, h64 = lo.astype(np.float64), hi.astype(np.float64)
    return down(l64 - ulps * ulp(lo) - slack), up(h64 + ulps * ulp(hi) + slack)


def float_binary(fn: str, a: Value, b: Value, dtype: str, fast: bool) -> Value:
    """``add sub mul div min max`` in f32, rounded to ``dtype``."""
    if fn == "div":
        return _divided(a, b, dtype, fast)
    if fn in BINARY:
        return _of_two(BINARY[fn], a, b, dtype)
    table = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "min": np.minimum, "max": np.maximum}
    lo, hi, free = _corners(table[fn], a, b)
    free = spread(free, lo.shape)
    signed = a.signed and b.signed
    if fn in ("min", "max"):
        signed = signed and not _zero_clash(a.lo, b.lo)
    if fn == "mul":
        crossing = ((a.lo < 0) & (a.hi > 0) & np.isinf(b.hi)) | ((b.lo < 0) & (b.hi > 0) & np.isinf(a.hi))
        free = either(free, crossing if crossing.any() else None)
        if fast and dtype == "f32":
            lo, hi = _unrounded(a, b, lo, hi)
    if fn in ("add", "sub") and (a.lo is not a.hi or b.lo is not b.hi):
        signed = False
    found = between(dtype, rounded(lo, dtype), rounded(hi, dtype), free, signed)
    if fast and fn == "sub":
        sizes = [np.maximum(np.abs(x.lo), np.abs(x.hi)).astype(np.float64) for x in (a, b)]
        return replace(found, apart=sizes[0] + sizes[1])
    return found


BINARY: dict[str, tuple[Callable[[Array, Array], Array], float | None]] = {
    "floordiv": (np.floor_divide, None), "mod": (np.mod, None), "fmod": (np.fmod, None), "pow": (np.power, 4),
    "atan2": (np.arctan2, 3), "hypot": (np.hypot, 3),
}  # fmt: skip
"""Functions of two floats: exact in f32 (None), or within ulp of f32."""


def _of_two(about: tuple[Callable[[Array, Array], Array], float | None], a: Value, b: Value, dtype: str) -> Value:
    """A function of two floats; of operands that are not known, anything."""
    fn, ulps = about
    if ulps is None:
        lo = hi = np.asarray(fn(a.lo, b.lo), F32)
    else:
        exact = np.asarray(fn(a.lo.astype(np.float64), b.lo.astype(np.float64)))
        lo, hi = _outward(exact, exact, ulps, np.asarray(0.0), 0.0)
    unsure = (a.lo != a.hi) & ~(np.isnan(a.lo) & np.isnan(a.hi)) | (b.lo != b.hi) & ~(np.isnan(b.lo) & np.isnan(b.hi))
    for x in (a, b):
        if not x.signed:
            unsure = unsure | (x.lo == 0)
    unsure = np.broadcast_to(unsure, lo.shape)
    free = either(spread(either(a.free, b.free), lo.shape), unsure if unsure.any() else None)
    return between(dtype, rounded(lo, dtype), rounded(hi, dtype), free, a.signed and b.signed)


def _unrounded(a: Value, b: Value, lo: Array, hi: Array) -> tuple[Array, Array]:
    """A product that a sum may take before it is rounded."""
    every = [x.astype(np.float64) * y.astype(np.float64) for x in (a.lo, a.hi) for y in (b.lo, b.hi)]
    low, high = reduce(np.fmin, every), reduce(np.fmax, every)
    return np.where(low < lo, down(low), lo).astype(F32), np.where(high > hi, up(high), hi).astype(F32)


@dataclass(frozen=True)
class Function:
    """A function of one float: in f64, falling or not, its bounds in ulp of f32, and where it is no number."""

    of: Callable[[Array], Array]
    ulps: float
    fast: Callable[[Array, Array, Array], tuple[float, Array]] | None = None
    falls: bool = False
    slack: float = 0.0
    waves: bool = False
    """Neither rises nor falls, or is no number on both sides: of an operand that is not known, anything."""


def _erf(x: Array) -> Array:
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
    "sin": Function(np.sin, 2, waves=True),
    "cos": Function(np.cos, 2, waves=True),
    "tan": Function(np.tan, 4, waves=True),
    "asin": Function(np.arcsin, 2, waves=True),
    "acos": Function(np.arccos, 2, waves=True),
    "atan": Function(np.arctan, 2),
    "sinh": Function(np.sinh, 3),
    "cosh": Function(np.cosh, 3, waves=True),
    "asinh": Function(np.arcsinh, 3),
    "acosh": Function(np.arccosh, 4),
    "atanh": Function(np.arctanh, 3, waves=True),
    "log10": Function(np.log10, 2),
    "log1p": Function(np.log1p, 1.01),
    "expm1": Function(np.expm1, 1.01),
    "cbrt": Function(np.cbrt, 1.01),
    **{fn: Function(lambda x, n=n: x ** float(n), abs(n) + 4, waves=True, slack=TINY) for fn, n in POWERS.items()},
}
WHOLE = {"floor": np.floor, "ceil": np.ceil, "round": np.rint, "trunc": np.trunc}


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
    if fn in WHOLE:
        return between(x.dtype, WHOLE[fn](x.lo), WHOLE[fn](x.hi), x.free, x.signed)
    about = FUNCTIONS[fn]
    lo, hi = (about.of(end.astype(np.float64)) for end in (x.lo, x.hi))
    if about.falls:
        lo, hi = hi, lo
    free = x.free
    if fn == "rsqrt":
        doubtful = (x.lo <= 0) & (x.hi >= 0) & ((x.lo != x.hi) | (not x.signed))
        free = either(free, doubtful if doubtful.any() else None)
    if about.waves:
        unsure = (x.lo != x.hi) & ~(np.isnan(x.lo) & np.isnan(x.hi))
        if not x.signed:
            unsure = unsure | (x.lo == 0)
        free = either(free, unsure if unsure.any() else None)
    ulps, relative, slack = about.ulps, np.asarray(0.0), about.slack
    if fast and about.fast is not None:
        size = np.maximum(np.abs(x.lo), np.abs(x.hi)).astype(np.float64)
        ulps, relative = about.fast(x.lo, x.hi, size if x.apart is None else size + x.apart)
        ulps, slack = ulps + 1, max(slack, 2 * TINY)
    if fast and fn in ("log", "log2"):
        ulps, slack = 3, 2.0**-21
        tiny = x.lo < TINY  # ex2 and lg2 take denormals for zero
        free = either(free, (tiny & (x.hi > 0)) if (tiny & (x.hi > 0)).any() else None)
    low, high = _outward(lo, hi, ulps, relative, slack)
    if fast and fn in ("exp", "exp2", "sigmoid"):
        large = ~np.isfinite(high) & np.isfinite(lo)
        free = either(free, large if large.any() else None)
    if fn in ("exp", "exp2", "sigmoid"):
        low = np.where(low < 0, F32(0), low)
    return between(x.dtype, rounded(low, x.dtype), rounded(high, x.dtype), free, x.signed)


def _outward(lo: Array, hi: Array, ulps: float, relative: Array, slack: float) -> tuple[Array, Array]:
    """Ends of f64 moved apart; zeros, infinities and NaN stay where they are but for the slack."""
    special_lo, special_hi = ~np.isfinite(lo), ~np.isfinite(hi)
    l32, h32 = lo.astype(F32), hi.astype(F32)
    by_lo = ulps * ulp(l32) + relative * np.abs(np.where(special_lo, 0, lo)) + slack
    by_hi = ulps * ulp(h32) + relative * np.abs(np.where(special_hi, 0, hi)) + slack
    keep_lo = special_lo | ((lo == 0) & (slack == 0))
    keep_hi = special_hi | ((hi == 0) & (slack == 0))
    return np.where(keep_lo, l32, down(lo - by_lo)).astype(F32), np.where(keep_hi, h32, up(hi + by_hi)).astype(F32)


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
    free = either(a.free, b.free)
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
            free = either(free, x.free & taken)
    shape = np.broadcast_shapes(condition.shape, low.shape)
    free = either(spread(free, shape), None if odd is None else odd)
    lo = np.where(unsure, low, np.where(condition.lo, a.lo, b.lo))
    hi = np.where(unsure, high, np.where(condition.lo, a.hi, b.hi))
    return between(a.dtype, lo, hi, free, signed)


# -- conversions ------------------------------------------------------------------------------------------------------
def _truncated(x: Array, dtype: str) -> Array:
    """Floats to integers: toward zero, clamped; NaN gives 0, in i64 the least."""
    whole = np.trunc(x.astype(np.float64))
    top, low = float(greatest(dtype) + 1), float(least(dtype))
    inside = (whole >= low) & (whole < top)
    found = np.where(inside, whole, 0.0).astype(np.int64)
    found = np.where(whole >= top, greatest(dtype), np.where(whole < low, least(dtype), found))
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
