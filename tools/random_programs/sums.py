"""Reductions and products of values with bounds. The order of sums is free."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from random_programs.tree import INTS, is_float
from random_programs.values import (
    F32,
    GREATEST,
    LARGEST_F32,
    TINY,
    Array,
    Value,
    anything,
    between,
    down,
    either,
    exactly,
    greatest,
    least,
    up,
    wrapped,
)

EPSILON = {12: 2.0**-13, 22: 2.0**-22, 24: 2.0**-24 * 1.01}
"""How far a sum may be off for each term, in parts of the magnitudes added, by the bits that it is kept in: of 8-bit
floats on tensor cores (for 16 terms), of other products there, of f32."""


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
        finite = np.isfinite(lo) & np.isfinite(hi)
        large = ~(mass <= LARGEST_F32) & ~(np.isnan(lo) & np.isnan(hi))  # overflows on the way, in some order
        near = np.asarray(lo).astype(F32)
        if point and bool((fits | ~finite).all()) and not large.any():
            return Value("f32", near, near, free, False, mass, quantum)
        error = np.where(finite, count * epsilon * np.where(np.isfinite(mass), mass, 0) + TINY * 4, 0)
        low, high = down(lo - error), up(hi + error)
        exact = fits & (lo == hi)
        low, high = np.where(exact, near, low), np.where(exact, near, high)
        free = either(free, large if large.any() else None)
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
        free = either(free, both if both.any() else None)
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
    free = either(state.free, x.free, both if both.any() else None)
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
