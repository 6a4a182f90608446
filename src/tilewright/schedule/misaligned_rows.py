"""Rows that do not start at a multiple of 16 bytes: the threads' vectors are laid from the boundary before the row.

    memory     |. . . x x x x x|x x x x x x x x|x x x . . . . .|      | multiples of 16 bytes
    vectors    |   thread 0    |   thread 1    |   thread 2    |      . not of this row

The vectors inside the row are aligned and move in one instruction; the first and the last are guarded element by
element. All values along the axis are spread the same way, so that nothing but accesses sees the difference. It takes
one distance from the boundary for all that a program touches: one row, and every large access to it a peer. Beside them
may stand what every program loads from a boundary on, such as weights of columns: their vectors begin ``distance``
elements before one, and are made of the two in which they lie (``transport.Load``, ``shift``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xdsl.ir import Operation

from tilewright.base.dtypes import DType
from tilewright.base.expr import Const, Expr, Sym, own
from tilewright.hw.target import MAX_VECTOR_BYTES
from tilewright.lang.axes import Span
from tilewright.schedule.facts import CallFacts, TensorFacts
from tilewright.tile import dialect as tile
from tilewright.tile.queries import Access, coords_of

SYMBOL = own("skew")
"""The symbol of the distance in a lowered kernel."""

_LEAST_VECTORS = 8
"""Shorter rows are not skewed: the two partial vectors at their ends would be a large share."""


@dataclass(frozen=True)
class Skew:
    """``distance`` elements lie between a 16-byte boundary and the first element of the tile; ``vector`` elements
    between two boundaries. The vectors of ``shifted`` loads are each combined from two aligned ones."""

    axis: int
    vector: int
    distance: Expr
    accesses: frozenset[Access]
    shifted: frozenset[Access] = frozenset()


def find_skew(
    accesses: Mapping[Access, int | None],
    heavy: Sequence[Access],
    sizes: Mapping[int, int],
    facts: CallFacts,
    axis: int,
) -> Skew | None:
    """The skew of tiles along ``axis``, if they need one and every heavy access can have it.

    ``accesses`` holds the class along which each access is contiguous.
    """
    groups: dict[tuple[str, Expr], list[Access]] = {}
    widths: set[int] = set()
    shifted = [op for op, unit in accesses.items() if unit == axis and _from_boundary(op, facts)]
    for op, unit in accesses.items():
        if unit != axis:
            continue
        tensor = tile.tensor_type(op.tensor)
        own = facts.of(tensor.tensor_name.data)
        distance = _distance(op, own.unit_axis or 0, tensor.element, own.peer or tensor.tensor_name.data)
        if own.align_bytes < MAX_VECTOR_BYTES and distance is not None:
            key = (own.peer or tensor.tensor_name.data, distance)
            groups.setdefault(key, []).append(op)
            widths.add(MAX_VECTOR_BYTES // tensor.element.bytes)
    for (_, distance), members in groups.items():
        if len(widths) == 1:
            (vector,) = widths
            same = [op for op in shifted if vector * tile.tensor_type(op.tensor).element.bytes == MAX_VECTOR_BYTES]
            if all(op in members or op in same for op in heavy) and sizes[axis] >= _LEAST_VECTORS * vector:
                return Skew(axis, vector, distance, frozenset(members), frozenset(same))
    return None


def _from_boundary(op: Access, facts: CallFacts) -> bool:
    """Whether every program loads the same elements, from a boundary on."""
    own: TensorFacts = facts.of(tile.tensor_type(op.tensor).tensor_name.data)
    origins = [c.origin if isinstance(c, Span) else c for c in coords_of(op)]
    unit = coords_of(op)[own.unit_axis] if own.unit_axis is not None else None
    return (
        isinstance(op, tile.Load)
        and own.align_bytes >= MAX_VECTOR_BYTES
        and isinstance(unit, Span)
        and unit.origin == Const(0)
        and all(origin.constant is not None for origin in origins)
    )


def _distance(op: Access, unit: int, element: DType, name: str) -> Expr | None:
    """Elements between a boundary and the tile's first; None if it is not constant for the whole program.

    Peers have the distance of the tensor they are peers of.
    """
    inside = {p.counter.data for p in _streams(op)} | _loaded(op)
    vector = MAX_VECTOR_BYTES // element.bytes
    total: Expr = Sym(f"{name}.address") // element.bytes
    for axis, coord in enumerate(coords_of(op)):
        if isinstance(coord, Span):
            if axis != unit and coord.size != 1:
                return None
            coord = coord.origin
        total = total + coord * (Const(1) if axis == unit else Sym(f"{name}.stride{axis}"))
    distance = total % vector
    return None if distance.symbols & inside else distance


def _streams(op: Access) -> list[tile.StreamLoop]:
    found: list[tile.StreamLoop] = []
    parent = op.parent_op()
    while parent is not None:
        if isinstance(parent, tile.StreamLoop):
            found.append(parent)
        parent = parent.parent_op()
    return found


def _loaded(op: Access) -> set[str]:
    """Symbols of integers that programs of the op's kernel load: the distance is known before them."""
    top: Operation = op
    while (parent := top.parent_op()) is not None:
        top = parent
    return {bind.symbol.data for bind in top.walk() if isinstance(bind, tile.Bind)}
