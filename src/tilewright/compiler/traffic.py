"""Bytes that the programs of a kernel move from and to global memory, beside those that it needs, as expressions.

Needed is every tensor once for each way: read where it is loaded, written where it is stored or added to. Moved is what
accesses add up to over all programs and steps: a tile that every program of a grid loads again counts as often. A tile
counts once for a program, whose threads may each load what all of them use; what caches give is moved all the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from xdsl.ir import Operation

from tilewright.base.expr import Const, Expr
from tilewright.base.readable import arithmetic
from tilewright.lang.axes import Span
from tilewright.tile import dialect as tile
from tilewright.tile.ops import program_index
from tilewright.tile.queries import Access, Indirect, coords_of


@dataclass(frozen=True)
class LaunchTraffic:
    """Bytes of one launch."""

    moved: Expr
    needed: Expr

    def __str__(self) -> str:
        if self.moved == self.needed:
            return f"moves {arithmetic(self.moved)} bytes, each element of its tensors once"
        return f"moves {arithmetic(self.moved)} bytes, its tensors have {arithmetic(self.needed)}"


def traffic(kernel: tile.Kernel) -> LaunchTraffic | None:
    """The bytes of a program; None where accesses are at loaded coordinates, or loops are not alike in all programs."""
    grid = {program_index(axis): extent.expr for axis, extent in enumerate(kernel.grid)}
    moved: Expr = Const(0)
    needed: dict[tuple[str, bool], Expr] = {}
    for op in kernel.walk():
        if isinstance(op, Indirect | tile.Bind):
            return None
        if not isinstance(op, Access):
            continue
        kind = tile.tensor_type(op.tensor)
        loops = {**grid, **_streams(op)}
        elements = _elements(op, loops)
        if not elements.symbols.isdisjoint(loops):
            return None
        moved = moved + elements * kind.element.bytes
        whole: Expr = Const(kind.element.bytes)
        for dim in kind.dims:
            whole = whole * dim.expr
        needed[kind.tensor_name.data, isinstance(op, tile.Load)] = whole
    total: Expr = Const(0)
    for size in needed.values():
        total = total + size
    return LaunchTraffic(moved, total)


def _streams(op: Operation) -> dict[str, Expr]:
    """The counters of the streams around an access, with their step counts."""
    found: dict[str, Expr] = {}
    around = op.parent_op()
    while around is not None:
        if isinstance(around, tile.StreamLoop):
            found[around.counter.data] = around.trip.expr
        around = around.parent_op()
    return found


def _elements(op: Access, loops: Mapping[str, Expr]) -> Expr:
    """Elements that an access moves: along a range all from where the first tile begins to its end, once for every
    program and step that does not move the range."""
    total: Expr = Const(1)
    moving = set[str]()
    for coord in coords_of(op):
        if isinstance(coord, Span):
            moving |= coord.origin.symbols & loops.keys()
            total = total * (coord.stop - coord.origin.substitute(dict.fromkeys(loops, 0)))
    for symbol, count in loops.items():
        total = total * (Const(1) if symbol in moving else count)
    return total
