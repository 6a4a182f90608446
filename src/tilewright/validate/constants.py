"""Floats as numbers: their bits, how they compare, and which integers round to them."""

from __future__ import annotations

import numpy as np

SIGN = 1 << 31
"""The sign of a word of 32 bits."""


def float_of_bits(pattern: int) -> float:
    return float(np.uint32(pattern & 0xFFFFFFFF).view(np.float32))


def least_integer(bound: float, *, above: bool) -> int:
    """The least integer of 64 bits, or one more than the greatest, whose f32 is at least ``bound``, or above it."""
    low, high = -(1 << 63), 1 << 63
    while low < high:
        middle = (low + high) // 2
        value = float(np.float32(np.int64(middle)))
        if value > bound or (value == bound and not above):
            high = middle
        else:
            low = middle + 1
    return low


def holds(name: str, x: float, y: float) -> bool:
    """setp of two numbers."""
    unordered = x != x or y != y
    if name in ("nan", "num"):
        return unordered == (name == "nan")
    ordered = {"eq": x == y, "ne": x != y, "lt": x < y, "le": x <= y, "gt": x > y, "ge": x >= y}
    if name in ordered:
        return ordered[name] and not unordered
    return unordered or ordered[name.removesuffix("u")]
