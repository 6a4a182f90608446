"""Nested tuples of integers (and symbolic integers): shapes, strides and coordinates.

Coordinates are colexicographic: a flat index runs through the first leaf fastest.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from tilewright.base.expr import Expr, expr
from tilewright.diag import fail

Leaf: TypeAlias = int | Expr
IntTuple: TypeAlias = "int | Expr | tuple[IntTuple, ...]"
Coordinate: TypeAlias = "int | Expr | tuple[Coordinate, ...] | None"
"""A coordinate; ``None`` keeps a mode when slicing."""


def leaves(value: IntTuple) -> list[Leaf]:
    """The leaves, left to right."""
    if not isinstance(value, tuple):
        return [value]
    result: list[Leaf] = []
    for part in value:
        if isinstance(part, tuple):
            result += leaves(part)
        else:
            result.append(part)
    return result


def product(value: IntTuple) -> Leaf:
    """Product of the leaves."""
    result: Leaf = 1
    for leaf in leaves(value):
        result = result * leaf
    return result


def congruent(a: IntTuple, b: IntTuple) -> bool:
    """True if the nesting is the same (CuTe's ``congruent``)."""
    if isinstance(a, tuple):
        if not isinstance(b, tuple) or len(a) != len(b):
            return False
        for x, y in zip(a, b, strict=True):
            if (isinstance(x, tuple) or isinstance(y, tuple)) and not congruent(x, y):
                return False
        return True
    return not isinstance(b, tuple)


def unflatten(flat: Iterator[Leaf], profile: IntTuple) -> IntTuple:
    """Deal leaves out in the nesting of ``profile``."""
    if isinstance(profile, tuple):
        return tuple(unflatten(flat, part) for part in profile)
    return next(flat)


def prefix_product(shape: IntTuple) -> IntTuple:
    """Strides of the compact layout of ``shape``, first leaf fastest."""
    flat: list[Leaf] = []
    stride: Leaf = 1
    for leaf in leaves(shape):
        flat.append(stride)
        stride = stride * leaf
    return unflatten(iter(flat), shape)


def text(value: IntTuple) -> str:
    """CuTe's notation: ``(8,(2,4))``."""
    if isinstance(value, tuple):
        return f"({','.join(map(text, value))})"
    return str(value)


def flat_coordinates(coordinate: Coordinate, shape: IntTuple) -> list[Leaf]:
    """One coordinate per leaf of ``shape``: a flat index in place of a nested shape is split (LAY002, LAY005)."""
    if isinstance(coordinate, tuple):
        if not isinstance(shape, tuple) or len(shape) != len(coordinate):
            fail(
                "LAY002",
                title="the coordinate does not fit the shape",
                found=str(coordinate),
                required=f"a coordinate of {text(shape)}",
                help="give an index, or one coordinate per mode",
            )
        result: list[Leaf] = []
        for part, sub in zip(coordinate, shape, strict=True):
            result += flat_coordinates(part, sub)
        return result
    if coordinate is None:
        fail(
            "LAY002",
            title="an open mode has no coordinate",
            found="None",
            required=f"an index of {text(shape)}",
            help="slice the layout to keep a mode",
        )
    return _split(coordinate, leaves(shape))


def _split(index: Leaf, extents: list[Leaf]) -> list[Leaf]:
    whole = product(tuple(extents))
    if isinstance(index, int) and isinstance(whole, int) and not 0 <= index < whole:
        fail(
            "LAY005",
            found=str(index),
            required=f"0 <= index < {whole}",
            help="stay inside the layout",
        )
    result: list[Leaf] = []
    for extent in extents[:-1]:
        if isinstance(index, int) and isinstance(extent, int):
            index, digit = divmod(index, extent)
            result.append(digit)
        else:
            result.append(expr(index) % extent)
            index = expr(index) // extent
    return [*result, index] if extents else []


def idx2crd(index: int, shape: IntTuple) -> IntTuple:
    """The nested coordinate of a flat index (LAY005 outside)."""
    return unflatten(iter(_split(index, leaves(shape))), shape)


def crd2idx(coordinate: Coordinate, shape: IntTuple, stride: IntTuple) -> Leaf:
    """The offset of a coordinate under ``shape:stride``."""
    result: Leaf = 0
    for digit, step in zip(flat_coordinates(coordinate, shape), leaves(stride), strict=True):
        result = result + digit * step
    return result
