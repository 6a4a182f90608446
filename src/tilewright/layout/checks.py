"""Guards shared by the layout classes: every value from outside is an integer that makes sense, or a coded refusal."""

from __future__ import annotations

import operator
from typing import Any

from tilewright.diag import fail


def integer(value: Any, what: str) -> int:
    """``value`` as an int; refuses bool, float and anything without ``__index__`` (LAY001)."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        fail(
            "LAY001",
            title=f"{what} is not an integer",
            found=f"{value!r} ({type(value).__name__})",
            required="an int",
            help="write the extent or stride as a whole number",
        )
    return operator.index(value)


def extent(value: Any, what: str = "extent") -> int:
    """``value`` as an int >= 1 (LAY001)."""
    number = integer(value, what)
    if number < 1:
        fail(
            "LAY001",
            title=f"{what} is not positive",
            found=str(number),
            required=f"{what} >= 1",
            help="drop the dimension, or give it at least one coordinate",
        )
    return number


def log2_size(value: Any, what: str) -> int:
    """The number of bits of a power-of-two size (LAY001, LAY003)."""
    size = extent(value, what)
    if size & (size - 1):
        odd = size // (size & -size)
        fail(
            "LAY003",
            title=f"{what} is not a power of two",
            found=str(size),
            required="2^n coordinates",
            source="an F2 layout maps bits to bits",
            help=f"use an atom of {size // odd} and a Repeat of count {odd}; other moduli are affine layouts over Z_m",
        )
    return size.bit_length() - 1
