"""Stores of 16-bit tiles by tensor copies: registers, stmatrix into swizzled panels, then one bulk copy per panel.

The columns of a tile are cut into panels as wide as a swizzle spans, the widest first, each width with its own map::

    208 columns     64 | 64 | 64 | 16       swizzles of 128, 128, 128 and 32 bytes

Each warpgroup has room for two panels of 64 rows; a panel is written while the copy of the one before is still read.
What lies outside of the tensor is clipped by the hardware.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING

from xdsl.ir import Block, Region, SSAValue

from tilewright.base.expr import TRUE, Expr, Sym, all_of, conjuncts, simplify
from tilewright.hw.tensormap import Swizzle
from tilewright.lang.axes import Span
from tilewright.layout.shared import SharedTile
from tilewright.legal.tma import TensorMapPlan
from tilewright.schedule.facts import Facts
from tilewright.schedule.hopper.operands import (
    ROWS,
    about_strides,
    index_value,
    legal_facts,
    reaches_edge,
    tensor_map,
)
from tilewright.schedule.plan import Placement
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
CHUNK = 8
"""16-bit elements of one row of a matrix."""
CLIPPED_ELEMENTS = 8
"""A tensor copy to global memory clips the innermost dimension in units of 16 bytes (seen on H200: elements up to the
next multiple are written), so a store through it is right only where the extent is a multiple of 8."""
_SWIZZLES = {64: Swizzle.B128, 32: Swizzle.B64, 16: Swizzle.B32, CHUNK: Swizzle.NONE}
"""Columns of a panel, and the swizzle that spans them: 8 rows of a matrix lie in different banks in each."""

TID = Sym(t.THREAD)


@dataclass(frozen=True)
class Panel:
    """Columns of a tile from ``start`` on, as many as the map's box has; the map covers them in a block of 64 rows."""

    start: int
    map: TensorMapPlan

    @property
    def width(self) -> int:
        """Columns."""
        return self.map.shared.panel


@dataclass(frozen=True)
class MatrixStore:
    """One store through panels, which lie side by side in each of ``blocks`` of 64 rows."""

    op: tile.Store
    panels: tuple[Panel, ...]
    columns: int
    blocks: int

    @staticmethod
    def plan(
        kernel: tile.Kernel, facts: Facts, placement: Placement, warpgroups: int, op: tile.Store
    ) -> MatrixStore | None:
        """The store, if its value lies as accumulators do and a legal map writes exactly its domain."""
        value = op.value
        axes = placement.axes_of[value]
        home = placement.home.by_class
        if element(value).bits != 16 or len(axes) != 2 or None in axes:
            return None
        m, n = axes
        assert m is not None
        assert n is not None
        rows, columns = home[m], home[n]
        accumulator = rows.thread_bits[:5] == (2, 3, 4, 5, 6) and columns.thread_bits == (0, 1)
        shape = tile.tile_type(value).shape
        covered = (rows.repeats * ROWS * warpgroups, columns.covered)
        if not accumulator or covered != shape or columns.covered % CHUNK:
            return None
        coords = coords_of(op)
        spans = [d for d, c in enumerate(coords) if isinstance(c, Span)]
        unit = facts.of(tile.tensor_type(op.tensor).tensor_name.data).unit_axis
        if unit != spans[1] or not (reaches_edge(op, 0) and reaches_edge(op, 1)):
            return None
        known = legal_facts(kernel, facts)
        maps: dict[int, TensorMapPlan] = {}
        for width in dict.fromkeys(width for _, width in panel_widths(columns.covered)):
            extents = [None if d not in spans else ROWS if d == spans[0] else width for d in range(len(coords))]
            found = tensor_map(op, extents, _SWIZZLES[width], known)
            if found is None:
                return None
            maps[width] = found
        panels = tuple(Panel(start, maps[width]) for start, width in panel_widths(columns.covered))
        return MatrixStore(op, panels, columns.covered, rows.repeats)

    def lower(self, lowering: RoleLowering) -> None:
        """Panels by panels; where the innermost extent is no whole number of 16-byte units, from registers."""
        op = self.op
        if lowering.panels is None:
            count = panel_bytes(lowering.arrangement.consumers) // 2
            shared = t.Shared("panels", element(op.value), count, 0)
            lowering.shared.append(shared)
            lowering.panels = shared.buffer
        lowering.prepare(op)
        needs = dict.fromkeys(g for p in self.panels for g in conjuncts(p.map.guard) if not about_strides(g))
        units = (self.panels[0].map.dims[0] % CLIPPED_ELEMENTS).eq(0)
        whole = simplify(all_of([units, *needs]), lowering.placement.bounds)
        if whole == TRUE or lowering.arrangement.whole_stores:
            lowering.require(whole)
            self.store(lowering, lowering.panels)
            return
        panels, direct = Block(), Block()
        with lowering.into(panels):
            self.store(lowering, lowering.panels)
        with lowering.into(direct):
            lowering.store_parts(op)
        lowering.emit(t.If(whole, Region(panels), Region(direct)), op)

    def store(self, lowering: RoleLowering, shared: SSAValue) -> None:
        """All panels, in turn at the two places that a warpgroup has for them."""
        coords = coords_of(self.op)
        first = [index_value(c, coords) for c in self.panels[0].map.coordinates]
        for number, (block, panel) in enumerate(product(range(self.blocks), self.panels)):
            self.store_panel(lowering, shared, number, block, panel, first)

    def store_panel(
        self, lowering: RoleLowering, shared: SSAValue, number: int, block: int, panel: Panel, first: Sequence[Expr]
    ) -> None:
        """One panel of the tile at ``first``: wait until its bytes have been read, fill them, copy them out.

        The first of a store waits for all copies of stores before: they were issued a whole tile ago.
        """
        op = self.op
        base = (lowering.number * PANELS + number % PANELS) * PANEL_BYTES
        meet = WARPGROUP_BARRIER + lowering.number
        source, at = lowering.part(op.value, op, (block * self.columns + panel.start) // 2, panel.width // 2)
        lowering.emit(a.Elected(t.block([a.BulkWait(PANELS - 1 if number else 0, read=True)])))
        lowering.emit(a.NamedBarrierSync(meet, a.WARPGROUP_THREADS), op)
        for filled in _filling(panel, shared, base, source, at):
            lowering.emit(filled, op)
        lowering.emit(a.FenceProxyAsync())
        lowering.emit(a.NamedBarrierSync(meet, a.WARPGROUP_THREADS))
        above = (Sym(a.WARPGROUP) + block * lowering.arrangement.warpgroups) * ROWS
        copy = a.TmaStore(
            lowering.tensor_map(op, panel.map),
            shared,
            coords=[first[0] + panel.start, first[1] + above, *first[2:]],
            offset=base,
            box_bytes=panel.map.box_bytes,
        )
        copy.at(*_words(op))
        lowering.emit(a.Elected(t.block([copy, a.BulkCommit()])))


def matrix_stores(
    kernel: tile.Kernel, facts: Facts, placement: Placement, warpgroups: int
) -> dict[tile.Store, MatrixStore]:
    """The stores of a kernel that go through panels."""
    stores = (op for op in kernel.walk() if isinstance(op, tile.Store))
    planned = (MatrixStore.plan(kernel, facts, placement, warpgroups, op) for op in stores)
    return {plan.op: plan for plan in planned if plan is not None}


def panel_bytes(warpgroups: int) -> int:
    """Shared memory for the panels of so many warpgroups."""
    return PANELS * PANEL_BYTES * warpgroups


def panel_widths(columns: int) -> list[tuple[int, int]]:
    """First column and width of the panels of so many columns, a multiple of 8, the widest first."""
    found: list[tuple[int, int]] = []
    start = 0
    for width in _SWIZZLES:
        while columns - start >= width:
            found.append((start, width))
            start += width
    return found


def _filling(panel: Panel, shared: SSAValue, base: Expr, source: SSAValue, first: int) -> Iterator[a.StoreMatrix]:
    """The stmatrix ops that write a panel at byte ``base``. A thread has two registers of each of their matrices, from
    ``first`` of ``source`` on."""
    for register, matrices, offset in _matrices(panel.width, panel.map.swizzle):
        yield a.StoreMatrix(
            shared,
            source,
            first=first + register,
            base=base,
            offset=offset,
            bytes=ROWS * panel.width * 2,
            matrices=matrices,
        )


@lru_cache(maxsize=1 << 6)
def _matrices(width: int, swizzle: Swizzle) -> tuple[tuple[int, int, Expr], ...]:
    """How a panel is filled: the first register, the number of matrices and the place in the panel of each stmatrix.

    Four matrices each, two rows of them by two chunks, or two where the panel is one chunk wide.
    """
    layout = SharedTile.swizzled(ROWS, width, 2, swizzle)
    chunks = min(2, width // CHUNK)
    row, chunk = TID // 32 % 4 * 16 + TID % 16, TID // 16 % chunks
    return tuple(
        (4 * begin, 2 * chunks, layout.offset_expr(row, (chunk + begin) * CHUNK))
        for begin in range(0, width // CHUNK, chunks)
    )


def _words(op: tile.Store) -> tuple[str, str]:
    location = tile.location_of(op)
    return (str(location) if location is not None else "", op.name)


__all__ = ["WARPGROUP_BARRIER", "MatrixStore", "matrix_stores", "panel_bytes"]
