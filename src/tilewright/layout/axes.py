"""Named axes of bits, packed one after the other into a word: the first axis has the lowest bits."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate
from typing import NoReturn, TypeAlias

from tilewright.diag import fail
from tilewright.layout.checks import integer

Axes: TypeAlias = tuple[tuple[str, int], ...]
"""Axis names with their number of bits, in order."""


def shifts(axes: Axes) -> tuple[int, ...]:
    """Position of each axis's lowest bit in the packed word."""
    return tuple(accumulate((b for _, b in axes[:-1]), initial=0)) if axes else ()


def find(axes: Axes, name: str) -> tuple[str, int]:
    """The axis of that name (LAY002 when there is none)."""
    found = next((axis for axis in axes if axis[0] == name), None)
    if found is None:
        fail(
            "LAY002",
            title=f"no axis named {name!r}",
            found=describe(axes),
            required=f"an axis {name!r}",
            help=f"name one of {', '.join(n for n, _ in axes) or 'no axes'}",
        )
    return found


def mismatch(operation: str, found: tuple[str, ...], required: tuple[str, ...]) -> NoReturn:
    """Refuse an operation whose operands name different axes (LAY002)."""
    fail(
        "LAY002",
        title=f"axis names do not match in {operation}",
        found=", ".join(found) or "none",
        required=", ".join(required) or "none",
        help="rename the axes of one layout (F2Layout.rename)",
    )


def describe(axes: Axes) -> str:
    """Names and sizes, for messages."""
    return "(" + ", ".join(f"{n}:{1 << b}" for n, b in axes) + ")"


def coordinate(value: int, axis: tuple[str, int]) -> int:
    """``value`` checked against its axis (LAY001, LAY005)."""
    number = integer(value, f"coordinate of {axis[0]}")
    if not 0 <= number < 1 << axis[1]:
        fail(
            "LAY005",
            found=f"{axis[0]} = {number}",
            required=f"0 <= {axis[0]} < {1 << axis[1]}",
            help="stay inside the axis, or build a layout over a larger one",
        )
    return number


def joined(low: Axes, high: Axes) -> Axes:
    """Axes of a product: shared names add their bits, new ones are appended."""
    sizes = dict(low)
    for name, n in high:
        sizes[name] = sizes.get(name, 0) + n
    return tuple(sizes.items())


def place(word: int, fields: Iterable[tuple[str, int, int]]) -> int:
    """Deal the packed ``word`` out to fields (name, bits, shift)."""
    placed = 0
    for _, n, shift in fields:
        placed |= (word & ((1 << n) - 1)) << shift
        word >>= n
    return placed


def extract(word: int, fields: Iterable[tuple[int, int]]) -> int:
    """Collect fields (bits, shift) of ``word`` into one packed word."""
    packed = position = 0
    for n, shift in fields:
        packed |= ((word >> shift) & ((1 << n) - 1)) << position
        position += n
    return packed
