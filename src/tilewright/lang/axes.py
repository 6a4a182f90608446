"""Axes of a tile: a span of coordinates with its domain, or a unit axis of one coordinate without a place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from tilewright.base.expr import Const, Expr, minimum, own


@dataclass(frozen=True)
class Span:
    """Coordinates ``origin .. origin+size-1``; those at or beyond ``stop`` are outside the domain and have no value.

    ``size`` is the tile's extent, known at compile time; ``origin`` and ``stop`` are expressions over dimensions,
    program ids and stream counters.
    """

    origin: Expr
    size: int
    stop: Expr

    @property
    def end(self) -> Expr:
        """The first coordinate after the domain."""
        return minimum(self.origin + self.size, self.stop)

    @property
    def count(self) -> Expr:
        """Number of coordinates in the domain, where it is not empty."""
        return self.end - self.origin

    def __str__(self) -> str:
        """For messages: ``16 of M from p0*16``, where ``p0`` is a program index and ``k0`` a stream's counter."""
        place = "" if self.origin == Const(0) else f" from {self.origin}"
        return f"{self.size} of {self.stop}{place}".replace(own(""), "")


@dataclass(frozen=True)
class Unit:
    """An axis of extent 1 without a place: what ``None`` indexing and ``keepdims`` insert."""

    @property
    def size(self) -> int:
        return 1

    def __str__(self) -> str:
        return "1"


UNIT = Unit()

Axis: TypeAlias = Span | Unit
Coord: TypeAlias = Span | Expr
"""A coordinate along a tensor's dimension: a span keeps the axis, a scalar drops it."""


def axis_symbol(axis: int) -> str:
    """The symbol of the coordinate along axis ``axis`` of the moved tile, in coordinates of gathers and scatters."""
    return own(f"axis{axis}")


def whole(extent: int) -> Axis:
    """The axis of a dimension whose extent is known."""
    return UNIT if extent == 1 else Span(Const(0), extent, Const(extent))


def show_axes(axes: tuple[Axis, ...]) -> str:
    """Axes as text for diagnostics."""
    return "(" + ", ".join(map(str, axes)) + ("," if len(axes) == 1 else "") + ")"
