"""Queries about Tile IR that several passes use."""

from __future__ import annotations

from typing import TypeAlias

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute, Operation, SSAValue

from tilewright.base.dtypes import DType
from tilewright.base.expr import Expr, Sym
from tilewright.lang.axes import Coord, Span
from tilewright.lang.enums import BinaryFn
from tilewright.tile import dialect as tile

Access: TypeAlias = tile.Load | tile.Store | tile.AtomicReduce
"""Ops that move a box of a tensor."""
Indirect: TypeAlias = tile.Gather | tile.Scatter | tile.ScatterReduce
"""Ops that move elements at computed and loaded coordinates."""


def extents(type_: Attribute) -> tuple[int | None, ...]:
    """Extent of each axis of a tile or fragment type; None for unit axes, which have no place."""
    assert isinstance(type_, tile.TileType | tile.FragmentType)
    return tuple(a.size if isinstance(a, Span) else None for a in type_.axes_tuple)


def rank_of(value: SSAValue) -> int:
    """Axes of a tile or fragment."""
    assert isinstance(value.type, tile.TileType | tile.FragmentType)
    return value.type.rank


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


def moved(op: Access | Indirect) -> SSAValue:
    """The tile that an access reads or writes."""
    return op.result if isinstance(op, tile.Load | tile.Gather) else op.value


def contiguous_along(op: Access | Indirect, dimension: int | None) -> int | None:
    """The axis of the moved tile along which neighbours are neighbours in the tensor's ``dimension``, if any is."""
    if dimension is None:
        return None
    if isinstance(op, tile.Gather | tile.Scatter | tile.ScatterReduce):
        found = tile.moves_along(op, dimension)
        return None if found is None else found[0]
    coords = coords_of(op)
    if not isinstance(coords[dimension], Span):
        return None
    return sum(isinstance(c, Span) for c in coords[:dimension])


def loaded_tests(op: Access) -> list[Expr]:
    """The tests by which an access's scalar coordinates of loaded integers lie inside the tensor."""
    if not isinstance(op, tile.Load):
        return []
    dims = [d.expr for d in tile.tensor_type(op.tensor).dims]
    asked = [(c, dim) for c, dim in zip(coords_of(op), dims, strict=True) if isinstance(c, Sym)]
    around: Operation | None = op if asked else None
    while around is not None and not isinstance(around, tile.Kernel):
        around = around.parent_op()
    binds = () if around is None else (b for b in around.walk() if isinstance(b, tile.Bind))
    free = {b.symbol.data for b in binds if b.most is None}
    return [c < dim for c, dim in asked if c.name in free]


def tensor_name(op: Access | Indirect) -> str:
    """Name of the accessed tensor."""
    return tile.tensor_type(op.tensor).tensor_name.data


def line_of(op: Operation) -> str:
    """``file:line`` of an op, empty if no user wrote it."""
    loc = op.attributes.get("loc")
    return loc.data if isinstance(loc, StringAttr) else ""


def is_tile(value: SSAValue) -> bool:
    """The value is spread over threads: a tile or a fragment."""
    return isinstance(value.type, tile.TileType | tile.FragmentType)


_COSTLY = frozenset(
    (BinaryFn.DIV, BinaryFn.FLOORDIV, BinaryFn.MOD, BinaryFn.POW, BinaryFn.ATAN2, BinaryFn.FMOD, BinaryFn.HYPOT)
)


def is_costly(op: object) -> bool:
    """More than a few instructions for each element."""
    if isinstance(op, tile.Unary):
        return op.fn.data.is_costly
    return isinstance(op, tile.Binary) and op.fn.data in _COSTLY


def is_arithmetic(op: Operation) -> bool:
    """Costs instructions, unlike constants, indices and shapes."""
    computing = tile.Unary | tile.Binary | tile.Fma | tile.Compare | tile.Select | tile.Cast | tile.Bitcast
    return isinstance(op, computing)


def is_elementwise(op: Operation) -> bool:
    """Computed where it is needed."""
    shapes = tile.Expand | tile.Broadcast | tile.Transpose | tile.Index | tile.ScalarExpr | tile.Constant
    return is_arithmetic(op) or isinstance(op, shapes)


def is_constant(value: SSAValue) -> bool:
    """Whether a value is the same number everywhere."""
    op = owner(value)
    return isinstance(op, tile.Constant) or (isinstance(op, tile.Expand | tile.Broadcast) and is_constant(op.x))


def owner(value: SSAValue) -> Operation | None:
    """The op that defines a value."""
    return value.owner if isinstance(value.owner, Operation) else None


def defining(value: SSAValue) -> Operation:
    """The op that defines a value which is no argument of the kernel."""
    op = owner(value)
    assert op is not None
    return op


def hint(value: SSAValue) -> str:
    """A name for the buffer of a value."""
    if value.name_hint:
        return value.name_hint
    op = owner(value)
    if isinstance(op, tile.Load | tile.Gather):
        return tile.tensor_type(op.tensor).tensor_name.data
    return op.name.removeprefix("tile.") if op is not None else "v"


def filled(stream: tile.StreamLoop) -> tuple[Span, ...]:
    """The ranges that contain all elements a stream leaves behind; none if it writes tensors or prints."""
    inside = list(stream.walk())
    if any(isinstance(op, (*tile.WRITES, tile.Print, tile.Trap)) for op in inside):
        return ()
    left = dict.fromkeys(op.frag for op in inside if isinstance(op, tile.FragmentWrite) and op.frag.owner not in inside)
    return tuple(s for s in spans_of(next(iter(left))) if s and all(s in spans_of(f) for f in left)) if left else ()


def has_products(kernel: tile.Kernel) -> bool:
    """Whether the kernel multiplies matrices."""
    return any(isinstance(op, tile.Dot) for op in kernel.walk())


def integers_of(value: SSAValue) -> Operation | None:
    """The op that computes the integers of an index; widening casts and added axes aside."""
    op = owner(value)
    while isinstance(op, tile.Expand | tile.Broadcast) or (
        isinstance(op, tile.Cast) and element(op.x).is_int and op.dtype.is_int and op.dtype.holds(element(op.x))
    ):
        op = owner(op.x)
    return op


def source_of(value: SSAValue, *, casts: bool = False) -> tuple[SSAValue, tuple[int, ...]]:
    """The value of which ``value`` is a transposed view, and the source axis of each of its axes; with ``casts`` also
    through casts."""
    perm = tuple(range(tile.tile_type(value).rank))
    while isinstance(value.owner, tile.Transpose) or (casts and isinstance(value.owner, tile.Cast)):
        if isinstance(value.owner, tile.Transpose):
            inner = tuple(p.data for p in value.owner.perm)
            perm = tuple(inner[p] for p in perm)
        value = value.owner.x
    return value, perm


def chained(stream: tile.StreamLoop) -> bool:
    """Whether a product in a stream multiplies what is computed from another's result."""
    pending = [v for op in stream.walk() if isinstance(op, tile.Dot) for v in op.operands]
    seen = set[SSAValue]()
    while pending:
        value = pending.pop()
        op = owner(value)
        if value in seen or op is None or not stream.is_ancestor(op):
            continue
        if isinstance(op, tile.Dot):
            return True
        seen.add(value)
        pending += op.operands
    return False
