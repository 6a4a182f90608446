"""Polynomials over atoms with a coefficient for every thread, as data (``terms`` makes them), and intervals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[np.int64]
Interval: TypeAlias = tuple[int | None, int | None]
Monomial: TypeAlias = tuple[int, ...]


class Table:
    """One integer for every thread. Interned: equal tables are one object."""

    __slots__ = ("high", "id", "low", "values")

    def __init__(self, id: int, values: Ints):
        self.id, self.values = id, values
        self.low, self.high = int(values.min()), int(values.max())


Coefficient: TypeAlias = "int | Table"


class Atom:
    """A variable: ``kind`` and ``args`` say what it stands for, ``low`` and ``high`` bound it.

    ``bits``: the atom is raw data of so many bits, read as an unsigned integer; 0 for integers that are counted with.
    """

    __slots__ = ("args", "bits", "high", "id", "kind", "low")

    def __init__(self, id: int, kind: str, args: tuple[object, ...], low: int | None, high: int | None, bits: int):
        self.id, self.kind, self.args, self.low, self.high, self.bits = id, kind, args, low, high, bits


class Poly:
    """A value: terms in ascending order of their monomials. Interned: equal values are one object."""

    __slots__ = ("id", "terms", "width")

    def __init__(self, id: int, width: int, terms: tuple[tuple[Monomial, Coefficient], ...]):
        self.id, self.width, self.terms = id, width, terms


@dataclass(frozen=True)
class Field:
    """Bits ``low`` to ``low + count - 1`` of the data atom ``base``: the arguments of an atom of kind ``field``."""

    base: int
    low: int
    count: int


def signed_int(value: int, width: int) -> int:
    half = 1 << (width - 1)
    return ((value + half) & ((1 << width) - 1)) - half


def signed(values: Ints, width: int) -> Ints:
    if width in (0, 64):
        return np.ascontiguousarray(values, dtype=np.int64)
    half = np.int64(1 << (width - 1))
    return np.ascontiguousarray(((values + half) & np.int64((1 << width) - 1)) - half)


def added(a: Interval, b: Interval) -> Interval:
    return (
        None if a[0] is None or b[0] is None else a[0] + b[0],
        None if a[1] is None or b[1] is None else a[1] + b[1],
    )


def narrower(a: Interval, b: Interval) -> Interval:
    """The narrower of each end."""
    (low, high), (first, last) = a, b
    low = first if low is None or (first is not None and first > low) else low
    return low, last if high is None or (last is not None and last < high) else high


def extreme_interval(name: str, a: Interval, b: Interval) -> Interval:
    """Of the least (``min``) or the greatest (``max``) of both."""
    (l1, h1), (l2, h2), pick = a, b, min if name == "min" else max
    low = None if l1 is None or l2 is None else pick(l1, l2)
    if name == "max" and low is None:
        low = l1 if l2 is None else l2
    high = None if h1 is None or h2 is None else pick(h1, h2)
    if name == "min" and high is None:
        high = h1 if h2 is None else h2
    return low, high


def multiplied(a: Interval, b: Interval) -> Interval:
    (a_low, a_high), (b_low, b_high) = a, b
    if a_low is not None and a_high is not None and b_low is not None and b_high is not None:
        if a_low >= 0 and b_low >= 0:
            return a_low * b_low, a_high * b_high
        ends = (a_low * b_low, a_low * b_high, a_high * b_low, a_high * b_high)
        return min(ends), max(ends)
    if a[0] is not None and b[0] is not None and a[0] >= 0 and b[0] >= 0:
        return a[0] * b[0], None if a[1] is None or b[1] is None else a[1] * b[1]
    if a == (0, 0) or b == (0, 0):
        return 0, 0
    if a[0] is not None and a[0] == a[1]:  # a constant times a half line
        low, high = b
        if a[0] < 0:
            low, high = high, low
        return None if low is None else a[0] * low, None if high is None else a[0] * high
    if b[0] is not None and b[0] == b[1]:
        return multiplied(b, a)
    return None, None
