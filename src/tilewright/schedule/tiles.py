"""What the passes ask of tile IR."""

from __future__ import annotations

from typing import TypeAlias

from xdsl.ir import Attribute, Operation, SSAValue

from tilewright.base.dtypes import DType
from tilewright.lang.axes import Coord, Span
from tilewright.tile import dialect as tile

Access: TypeAlias = tile.Load | tile.Store | tile.ReduceAdd


def extents(type_: Attribute) -> tuple[int | None, ...]:
    """Extent of each axis of a tile or fragment type; None for unit axes, which have no place."""
    assert isinstance(type_, tile.TileType | tile.FragmentType)
    return tuple(a.size if isinstance(a, Span) else None for a in type_.axes_tuple)


def spans_of(value: SSAValue) -> tuple[Span | None, ...]:
    """The range of each axis; None for unit axes."""
    assert isinstance(value.type, tile.TileType | tile.FragmentType)
    return tuple(a if isinstance(a, Span) else None for a in value.type.axes_tuple)


def element(value: SSAValue) -> DType:
    """Element type of a tile or fragment."""
    assert isinstance(value.type, tile.TileType | tile.FragmentType)
    return value.type.element


def coords_of(op: Access) -> tuple[Coord, ...]:
    """The coordinate of each tensor dimension: a span or a scalar expression."""
    return tuple(c.data for c in op.coords)


def moved(op: Access) -> SSAValue:
    """The tile that an access reads or writes."""
    return op.result if isinstance(op, tile.Load) else op.value


def tensor_name(op: Access) -> str:
    """Name of the accessed tensor."""
    return tile.tensor_type(op.tensor).tensor_name.data


def place(op: Operation) -> str:
    """``file:line`` of an op, empty if no user wrote it."""
    location = tile.location_of(op)
    return str(location) if location is not None else ""


def is_tile(value: SSAValue) -> bool:
    """The value is spread over threads: a tile or a fragment."""
    return isinstance(value.type, tile.TileType | tile.FragmentType)
