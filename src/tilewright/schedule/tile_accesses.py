"""Accesses of Tile IR as the legality rules ask for them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import gcd

from tilewright.base.expr import Interval, Sym, divisor
from tilewright.hw.tensormap import Direction, Swizzle
from tilewright.lang.axes import Coord, Span, axis_symbol
from tilewright.legal import tma
from tilewright.legal.facts import Facts
from tilewright.schedule.facts import CallFacts
from tilewright.tile import dialect as tile
from tilewright.tile.queries import coords_of, spans_of

INDEX_BOUND = 2**31 - 1


def legal_facts(kernel: tile.Kernel, facts: CallFacts) -> Facts:
    """The facts of the specialisation class in the form that the legality rules use."""
    bounds: dict[str, Interval] = {}
    divisors: dict[str, int] = {}
    equal: dict[str, int] = {}
    for arg in kernel.body.block.args:
        if not isinstance(arg.type, tile.TensorType):
            continue
        name, kind = arg.type.tensor_name.data, arg.type
        own = facts.of(name)
        divisors[f"{name}.address"] = own.align_bytes
        for axis, dim in enumerate(kind.dims):
            for symbol in dim.expr.symbols:
                bounds[symbol] = (1, INDEX_BOUND)
            if axis == own.unit_axis:
                equal[f"{name}.stride{axis}"] = 1
            else:
                divisors[f"{name}.stride{axis}"] = max(1, own.align_bytes // kind.element.bytes)
                # of an axis with one element the map takes another stride (RoleLowering.tensor_map)
                limit = INDEX_BOUND if facts.index_bits == 32 else None
                bounds[f"{name}.stride{axis}"] = (1 if own.forward else None, limit)
    return Facts(bounds=bounds, divisors=divisors, equal=equal)


def tile_access(
    access: tile.Load | tile.Gather | tile.Store | tile.AtomicReduce,
    extents: Sequence[int | None],
    swizzles: tuple[Swizzle, ...],
    known: Facts,
) -> tma.TileAccess:
    """A box of ``extents`` (None: an index) of the accessed tensor, as the legality rules ask for it."""
    tensor = tile.tensor_type(access.tensor)
    name = tensor.tensor_name.data
    return tma.TileAccess(
        tensor.element,
        tuple(d.expr for d in tensor.dims),
        tuple(Sym(f"{name}.stride{d}") for d in range(tensor.rank)),
        Sym(f"{name}.address"),
        tuple(extents),
        Direction.LOAD if isinstance(access, tile.Load | tile.Gather) else Direction.STORE,
        swizzles,
        name=name,
        first_multiples=tuple(map(partial(_first_multiple, known), coords_followed(access), extents)),
    )


def coords_followed(access: tile.Load | tile.Gather | tile.Store | tile.AtomicReduce) -> tuple[Coord, ...]:
    """An access' coordinates; of a gather the ranges that it follows as they are, and expressions."""
    if not isinstance(access, tile.Gather):
        return coords_of(access)
    spans = {axis_symbol(d): span for d, span in enumerate(spans_of(access.result)) if span is not None}
    coords = (c.expr for c in access.coords)
    return tuple(spans.get(c.name, c) if isinstance(c, Sym) else c for c in coords)


def _first_multiple(known: Facts, coord: Coord, extent: int | None) -> int:
    """What the first index of a box is a multiple of (0: it is 0); a box of a part begins at a multiple of its own."""
    if not isinstance(coord, Span) or extent is None:
        return 1
    first = divisor(coord.origin, known.divisors)
    return first if extent == coord.size else gcd(first, extent)
