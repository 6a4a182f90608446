"""Stores of 16-bit tiles with the distribution of accumulators: through shared memory panels, by TMA or row by row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Block, Region, SSAValue

from tilewright.base.expr import TRUE, Const, Expr, Sym, all_of, conjuncts, simplify
from tilewright.hw.target import MAX_VECTOR_BYTES
from tilewright.lang.axes import Span
from tilewright.legal.tma import TensorMapPlan
from tilewright.schedule.facts import CallFacts
from tilewright.schedule.hopper.candidate import Candidate
from tilewright.schedule.hopper.configuration import RoleContext, SharedMemoryEpilogue
from tilewright.schedule.hopper.epilogue_loop import EpilogueLoop
from tilewright.schedule.hopper.epilogue_tiles import (
    EPILOGUE_STAGES,
    SWIZZLES,
    AccumulatorTile,
    EpilogueTile,
    epilogue_buffer,
    stage_offset,
    warpgroup_barrier,
)
from tilewright.schedule.hopper.operands import (
    ROWS,
    about_strides,
    index_value,
    reaches_edge,
    tensor_map,
)
from tilewright.schedule.hopper.row_epilogue import RowEpilogue
from tilewright.schedule.hopper.store_ways import RaggedStore, StoreWay, described, ragged_store, store_cycles
from tilewright.schedule.placement import Placement
from tilewright.schedule.tile_accesses import legal_facts
from tilewright.tile import dialect as tile
from tilewright.tile.queries import coords_of, element, tensor_name
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t

CLIPPED_ELEMENTS = 8
"""A tensor copy to global memory clips the innermost dimension in units of 16 bytes (seen on H200: elements up to the
next multiple are written), so a store through it is right only where the extent is a multiple of 8."""


@dataclass(frozen=True)
class TmaEpilogue:
    """One store by tensor copies: one for each panel, through the map of its width. What lies outside of the tensor is
    clipped by the hardware; where the domain ends before the tensor, so is what lies outside of the domain, or a tile
    that the domain cuts is stored by rows."""

    by_copies: ClassVar = True
    tile: AccumulatorTile
    maps: Mapping[int, TensorMapPlan]
    """By width; each covers a panel."""
    required: Expr
    """The launches that the kernel is restricted to."""
    condition: Expr
    """Under what a tile is copied: evaluated by the program, uniformly in all threads."""
    interior: Expr
    """Whether the domain cuts off no element that TMA would not clip, a part of the condition."""
    note: str = ""

    @staticmethod
    def plan(
        kernel: tile.Kernel, facts: CallFacts, placement: Placement, candidate: Candidate, panels: AccumulatorTile
    ) -> TmaEpilogue | RowEpilogue | None:
        """The store, if legal maps write exactly its domain, or what a tile has of it that lies inside."""
        op = panels.op
        if tile.tile_type(op.value).shape != (panels.blocks * ROWS * candidate.warpgroups, panels.columns):
            return None
        coords, known = coords_of(op), legal_facts(kernel, facts)
        cut = [c for axis, c in enumerate(c for c in coords if isinstance(c, Span)) if not reaches_edge(op, axis)]
        rows = next(d for d, c in enumerate(coords) if isinstance(c, Span))
        maps: dict[int, TensorMapPlan] = {}
        for width in panels.widths:
            extents = [None if not isinstance(c, Span) else ROWS if d == rows else width for d, c in enumerate(coords)]
            found = tensor_map(op, extents, SWIZZLES[width], known)
            if found is None:
                return None
            maps[width] = found
        whole = _whole_units(maps, placement)
        required = whole if candidate.whole_stores else TRUE
        asked = TRUE if candidate.whole_stores else whole
        interior = all_of(c.origin + c.size <= c.stop for c in cut)
        if not cut:
            return TmaEpilogue(panels, maps, required, asked, interior)
        ragged = (
            ragged_store(kernel, facts, known, panels, narrowed=candidate.whole_stores)
            if asked == TRUE
            else "rows may not be whole units of 16 bytes, and are stored by rows then"
        )
        ways = [StoreWay.SPLIT, StoreWay.ROWS]
        if isinstance(ragged, RaggedStore) and candidate.clipped_stores:
            ways = [StoreWay.CLIPPED, *ways]
        vector = facts.of(tensor_name(op)).vector(element(op.value))
        prices = {way: store_cycles(way, panels, vector) for way in ways}
        taken = min(ways, key=lambda way: prices[way])
        note = described(op, taken, prices, ragged if isinstance(ragged, str) else "")
        if taken is StoreWay.CLIPPED and isinstance(ragged, RaggedStore):
            needed = all_of([required, _whole_units(ragged.maps, placement), ragged.condition])
            return TmaEpilogue(panels, ragged.maps, needed, TRUE, TRUE, note)
        if taken is StoreWay.SPLIT:
            return TmaEpilogue(panels, maps, required, all_of([asked, interior]), interior, note)
        return RowEpilogue(panels, note=note)

    def lower(self, lowering: RoleContext) -> None:
        """Stores panel by panel through TMA; row by row where the innermost extent is not a multiple of 16 bytes, or
        the domain cuts the tile."""
        op = self.tile.op
        lowering.prepare(op)
        lowering.require(self.required)
        if self.condition == TRUE:
            self.copy_out(lowering)
            return
        copied, by_rows = Block(), Block()
        with lowering.into(copied):
            self.copy_out(lowering)
        with lowering.into(by_rows):
            RowEpilogue(self.tile, after_copies=self.interior != TRUE).lower(lowering)
        lowering.emit(t.If(self.condition, Region(copied), Region(by_rows)), op)

    def copy_out(self, lowering: RoleContext) -> None:
        """Stores all panels."""
        coords = coords_of(self.tile.op)
        first = [index_value(c, coords) for c in next(iter(self.maps.values())).coordinates]
        loop = EpilogueLoop.of(lowering, self.tile)
        if loop is not None:
            lowering.emit(a.Elected(t.block([a.BulkWait(0, read=True)])))
            loop.lower(
                lowering,
                lambda computed: self.copy_panel(
                    lowering, loop.panels[0], loop.counter, loop.place, first, computed=computed
                ),
            )
            return
        for number, panel in self.tile.ahead(lowering, tuple(self.tile.side_by_side)):
            self.copy_panel(lowering, panel, number, (Const(panel.block), Const(panel.start)), first)

    def copy_panel(
        self,
        lowering: RoleContext,
        panel: EpilogueTile,
        number: Expr | int,
        place: tuple[Expr, Expr],
        first: Sequence[Expr],
        *,
        computed: SSAValue | None = None,
    ) -> None:
        """One panel, block and column at ``place`` in the tile at ``first``: wait until its bytes have been read, fill
        them, copy them out.

        The first of a store waits for all copies of stores before: they were issued a whole tile ago.
        """
        op, base, plan, (block, column) = self.tile.op, stage_offset(lowering, number), self.maps[panel.width], place
        lowering.emit(a.Elected(t.block([a.BulkWait(0 if number == 0 else EPILOGUE_STAGES - 1, read=True)])))
        lowering.emit(warpgroup_barrier(lowering), op)
        self.tile.fill(lowering, panel, base, computed)
        lowering.emit(a.FenceProxyAsync())
        lowering.emit(warpgroup_barrier(lowering))
        above = (block * lowering.configuration.candidate.warpgroups + Sym(a.WARPGROUP)) * ROWS
        copy = a.TmaStore(
            lowering.tensor_map(op, plan),
            epilogue_buffer(lowering, op),
            coords=[first[0] + column, first[1] + above, *first[2:]],
            offset=base,
            box_bytes=plan.box_bytes,
        )
        copy.at(*_words(op))
        lowering.emit(a.Elected(t.block([copy, a.BulkCommit()])))


def _whole_units(maps: Mapping[int, TensorMapPlan], placement: Placement) -> Expr:
    """The extents whose rows tensor copies clip exactly, and whose maps can be encoded."""
    needs = dict.fromkeys(g for m in maps.values() for g in conjuncts(m.guard) if not about_strides(g))
    units = (next(iter(maps.values())).dims[0] % CLIPPED_ELEMENTS).eq(0)
    return simplify(all_of([units, *needs]), placement.bounds)


def shared_memory_epilogues(
    kernel: tile.Kernel, facts: CallFacts, placement: Placement, candidate: Candidate
) -> dict[tile.Store, SharedMemoryEpilogue]:
    """The stores of a kernel that go through panels: by tensor copies where legal, else by rows where rows are
    contiguous."""
    found: dict[tile.Store, SharedMemoryEpilogue] = {}
    for op in kernel.walk():
        panels = AccumulatorTile.of(placement, op) if isinstance(op, tile.Store) else None
        if panels is not None and RowEpilogue.fits(facts, panels):
            found[panels.op] = TmaEpilogue.plan(kernel, facts, placement, candidate, panels) or RowEpilogue(panels)
    return found


def elements_beyond(kernel: tile.Kernel, facts: CallFacts) -> list[Expr]:
    """Of results that tensor copies can store, the elements of a row beyond the last whole unit: they can where there
    are none."""
    found: list[Expr] = []
    for op in (op for op in kernel.walk() if isinstance(op, tile.Store)):
        own = facts.of(tensor_name(op))
        if own.unit_axis is not None and own.align_bytes >= MAX_VECTOR_BYTES and element(op.value).bits == 16:
            row = tile.tensor_type(op.tensor).dims.data[own.unit_axis].expr
            found.append(row % CLIPPED_ELEMENTS)
    return [each for each in dict.fromkeys(found) if each != Const(0)]


def _words(op: tile.Store) -> tuple[str, str]:
    location = tile.location_of(op)
    return (str(location) if location is not None else "", op.name)
