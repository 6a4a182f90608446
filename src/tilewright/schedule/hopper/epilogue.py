"""Stores of 16-bit tiles by tensor copies: registers, stmatrix into swizzled panels, then one bulk copy per panel.

Each warpgroup has two panels of 64 rows; a panel is written while the copy of the one before is still read. What lies
outside of the tensor is clipped by the hardware.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from xdsl.ir import Block, Region, SSAValue

from tilewright.base.expr import TRUE, Expr, Sym, all_of, conjuncts, simplify
from tilewright.hw.tensormap import Swizzle
from tilewright.lang.axes import Span
from tilewright.layout.shared import SharedTile
from tilewright.legal.tma import TensorMapPlan
from tilewright.schedule.hopper.operands import (
    ROWS,
    about_strides,
    index_value,
    legal_facts,
    reaches_edge,
    tensor_map,
)
from tilewright.schedule.tiles import coords_of, element
from tilewright.tile import dialect as tile
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t

if TYPE_CHECKING:
    from tilewright.schedule.hopper.lower import RoleLowering

PANELS = 2
PANEL_BYTES = 8192
"""64 rows of 128 bytes."""
WARPGROUP_BARRIER = 1
"""Named barrier of the first consumer warpgroup; the others' follow."""
_REGISTERS = 8
CHUNK = 8
"""16-bit elements of one row of a matrix."""
CLIPPED_ELEMENTS = 8
"""A tensor copy to global memory clips the innermost dimension in units of 16 bytes (seen on H200: elements up to the
next multiple are written), so a store through it is right only where the extent is a multiple of 8."""
_SWIZZLES = (Swizzle.B128, Swizzle.B64, Swizzle.B32)
_WIDTHS = (64, 32, 16)

TID = Sym(t.THREAD)


@dataclass(frozen=True)
class MatrixStore:
    """One store through panels. ``map`` covers a block of 64 rows of the tile."""

    lowering: RoleLowering
    op: tile.Store
    map: TensorMapPlan
    columns: int
    blocks: int

    @staticmethod
    def plan(lowering: RoleLowering, op: tile.Store) -> MatrixStore | None:
        """The store, if its value lies as accumulators do and a legal map writes exactly its domain."""
        value = op.value
        axes = lowering.axes_of[value]
        home = lowering.placement.home.by_class
        if not lowering.arrangement.matrix_stores or element(value).bits != 16 or len(axes) != 2 or None in axes:
            return None
        m, n = axes
        assert m is not None
        assert n is not None
        rows, columns = home[m], home[n]
        accumulator = rows.thread_bits[:5] == (2, 3, 4, 5, 6) and columns.thread_bits == (0, 1)
        shape = tile.tile_type(value).shape
        covered = (rows.repeats * ROWS * lowering.arrangement.warpgroups, columns.covered)
        if not accumulator or covered != shape or columns.covered % _WIDTHS[-1]:
            return None
        coords = coords_of(op)
        spans = [d for d, c in enumerate(coords) if isinstance(c, Span)]
        unit = lowering.facts.of(tile.tensor_type(op.tensor).tensor_name.data).unit_axis
        if unit != spans[1] or not (reaches_edge(op, 0) and reaches_edge(op, 1)):
            return None
        extents = [None if d not in spans else ROWS if d == spans[0] else columns.covered for d in range(len(coords))]
        swizzle = next(s for s, w in zip(_SWIZZLES, _WIDTHS, strict=True) if columns.covered % w == 0)
        found = tensor_map(op, extents, swizzle, legal_facts(lowering.kernel, lowering.facts))
        if found is None:
            return None
        return MatrixStore(lowering, op, found, columns.covered, rows.repeats)

    def lower(self) -> None:
        """Panels by panels; where the innermost extent is no whole number of 16-byte units, from registers."""
        lowering, op = self.lowering, self.op
        declared = lowering.tensor_map(op, self.map)
        if lowering.panels is None:
            count = PANELS * PANEL_BYTES // 2 * lowering.arrangement.consumers
            shared = t.Shared("panels", element(op.value), count, 0)
            lowering.shared.append(shared)
            lowering.panels = shared.buffer
        lowering.prepare(op)
        needs = [g for g in conjuncts(self.map.guard) if not about_strides(g)]
        whole = simplify(all_of([(self.map.dims[0] % CLIPPED_ELEMENTS).eq(0), *needs]), lowering.placement.bounds)
        panels, direct = Block(), Block()
        with lowering.into(panels):
            for number, (block, box) in enumerate(product(range(self.blocks), self.map.boxes)):
                self.panel(declared, lowering.panels, number, block, box.start)
        if whole == TRUE or lowering.arrangement.whole_stores:
            lowering.require(whole)
            panels_ops = list(panels.ops)
            for inner in panels_ops:
                inner.detach()
                lowering.block.add_op(inner)
            return
        with lowering.into(direct):
            lowering.store_parts(op)
        lowering.emit(t.If(whole, Region(panels), Region(direct)), op)

    def panel(self, declared: SSAValue, shared: SSAValue, number: int, block: int, start: tuple[int, ...]) -> None:
        """One panel: wait until its bytes have been read, fill them, copy them out.

        The first of a store waits for all copies of stores before: they were issued a whole tile ago.
        """
        lowering, op = self.lowering, self.op
        width = self.map.shared.panel
        source, at = lowering.part(op.value, op, (block * self.columns + start[0]) // 2, width // 2)
        base = (lowering.number * PANELS + number % PANELS) * PANEL_BYTES
        meet = WARPGROUP_BARRIER + lowering.number
        lowering.emit(a.Elected(t.block([a.BulkWait(PANELS - 1 if number else 0, read=True)])))
        lowering.emit(a.NamedBarrierSync(meet, a.WARPGROUP_THREADS), op)
        row = TID // 32 % 4 * 16 + TID % 16
        panel = SharedTile.swizzled(ROWS, width, 2, self.map.swizzle)
        for j in range(width // 16):
            chunk = 2 * j + TID // 16 % 2
            lowering.emit(
                a.StoreMatrix(
                    shared,
                    source,
                    first=at + _REGISTERS * j,
                    base=base,
                    offset=panel.offset_expr(row, chunk * CHUNK),
                    bytes=panel.size_bytes,
                ),
                op,
            )
        lowering.emit(a.FenceProxyAsync())
        lowering.emit(a.NamedBarrierSync(meet, a.WARPGROUP_THREADS))
        coords = coords_of(op)
        first: list[Expr] = [index_value(c, coords) for c in self.map.coordinates]
        unit_axis, row_axis = self.map.tile_axes[0], self.map.tile_axes[1]
        assert isinstance(coords[unit_axis], Span)
        assert isinstance(coords[row_axis], Span)
        row_start = (Sym(a.WARPGROUP) + block * lowering.arrangement.warpgroups) * ROWS
        first[1] = first[1] + row_start
        copy = a.TmaStore(
            declared,
            shared,
            coords=[c + s for c, s in zip(first, start, strict=True)],
            offset=base,
            box_bytes=self.map.box_bytes,
        )
        copy.at(*_words(op))
        lowering.emit(a.Elected(t.block([copy, a.BulkCommit()])))


def _words(op: tile.Store) -> tuple[str, str]:
    location = tile.location_of(op)
    return (str(location) if location is not None else "", op.name)


__all__ = ["WARPGROUP_BARRIER", "MatrixStore"]
