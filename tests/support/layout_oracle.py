"""Enumeration of layouts given as plain numbers. Shares no code with ``tilewright.layout``."""

from __future__ import annotations

from itertools import product
from typing import Any


def flat(value: Any) -> list[int]:
    """Leaves of nested tuples."""
    return [x for part in value for x in flat(part)] if isinstance(value, list | tuple) else [value]


def table(shape: Any, stride: Any) -> list[int]:
    """Offsets in colexicographic order, first leaf fastest."""
    extents, steps = flat(shape), flat(stride)
    rows = product(*(range(s) for s in reversed(extents)))
    return [sum(c * d for c, d in zip(reversed(x), steps, strict=True)) for x in rows]


def one_mode(row: list[int]) -> bool:
    """Whether offsets over one axis are a flat layout: the longest arithmetic start divides it and repeats."""
    if len(row) == 1:
        return row[0] == 0
    run = 1
    while run < len(row) and row[run] == run * row[1]:
        run += 1
    if len(row) % run:
        return False
    starts = row[::run]
    blocks = [[x - start for x in row[k * run : (k + 1) * run]] for k, start in enumerate(starts)]
    return all(b == row[:run] for b in blocks) and (len(starts) == 1 or one_mode(starts))


def expressible(offsets: list[int], shape: Any) -> bool:
    """Whether offsets over coordinates of ``shape`` are a sum of nested strides, one group per leaf of ``shape``."""
    place, parts = 1, []
    extents = flat(shape)
    for extent in extents:
        parts.append(offsets[: place * extent : place])
        place *= extent
    rows = product(*(range(s) for s in reversed(extents)))
    sums = [sum(part[c] for part, c in zip(parts, reversed(x), strict=True)) for x in rows]
    return sums == offsets and all(map(one_mode, parts))


def swizzle(bits: int, base: int, shift: int, x: int) -> int:
    """Bit by bit, from the definition."""
    y = x
    for i in range(bits):
        source = base + max(shift, 0) + i
        target = base - min(shift, 0) + i
        y ^= (x >> source & 1) << target
    return y
