"""Stores of tiles by rows, where no tensor copy can: panels in shared memory, read and stored row after row.

A warp writes consecutive bytes of one row or few, in the widest vectors that the tensor's alignment allows;
accumulators stored as they lie would write 16 bytes of each of 8 rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tilewright.base.expr import Expr, Sym, minimum
from tilewright.hw.spaces import WARP_THREADS
from tilewright.lang.axes import Span
from tilewright.schedule.facts import CallFacts
from tilewright.schedule.hopper.configuration import RoleContext
from tilewright.schedule.hopper.epilogue_tiles import (
    TID,
    AccumulatorTile,
    EpilogueTile,
    epilogue_buffer,
    stage_offset,
    warpgroup_barrier,
)
from tilewright.schedule.hopper.operands import ROWS
from tilewright.tile.queries import coords_of, tensor_name
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t

R = Sym(t.REGISTER)


@dataclass(frozen=True)
class RowEpilogue:
    """One store by rows."""

    by_copies: ClassVar = False
    tile: AccumulatorTile
    after_copies: bool = False
    """Programs before may have stored by tensor copies, which still read the panels."""
    note: str = ""

    @staticmethod
    def fits(facts: CallFacts, panels: AccumulatorTile) -> bool:
        """Rows of the tile lie along rows of memory."""
        spans = [d for d, c in enumerate(coords_of(panels.op)) if isinstance(c, Span)]
        return facts.of(tensor_name(panels.op)).unit_axis == spans[1]

    def lower(self, lowering: RoleContext) -> None:
        """Fill, meet, store, panel after panel.

        A panel's place was read two panels ago, before all met at the one between; that is so from tile to tile too if
        a tile has an even number. What other stores still read they wait for.
        """
        op = self.tile.op
        lowering.prepare(op)
        panels = tuple(self.tile.kind_by_kind)
        others = [plan for store, plan in lowering.configuration.stores.items() if store is not op]
        copied = self.after_copies or any(plan.by_copies for plan in others)
        if copied:
            lowering.emit(a.Elected(t.block([a.BulkWait(0, read=True)])))
        if copied or others or len(panels) % 2:
            lowering.emit(warpgroup_barrier(lowering), op)
        for number, panel in self.tile.ahead(lowering, panels):
            base = stage_offset(lowering, number)
            self.tile.fill(lowering, panel, base)
            lowering.emit(warpgroup_barrier(lowering))
            self.copy_out(lowering, panel, base)

    def copy_out(self, lowering: RoleContext, panel: EpilogueTile, base: Expr) -> None:
        """Vectors of the panel's rows, copied by all threads."""
        op = self.tile.op
        rows, columns = lowering.axes_of[op.value]
        spans = [c for c in coords_of(op) if isinstance(c, Span)]
        deal = _Deal.of(panel.width, lowering.vector(op, columns, spans[1]))
        places, row, layout = self.places(lowering, deal), deal.row(R), panel.layout
        here = {t.REGISTER: R + panel.number * deal.copies}
        coords, guard = lowering.located(op, (rows, None), places)
        axis = lowering.facts.of(tensor_name(op)).unit_axis
        assert axis is not None
        padded = self.tile.columns > spans[1].size
        copied = a.CopyOut(
            lowering.arguments[op.tensor],
            epilogue_buffer(lowering, op),
            coords=[c.substitute(here) for c in coords],
            axis=axis,
            stop=minimum(spans[1].stop, spans[1].origin + spans[1].size) if padded else spans[1].stop,
            guard=guard.substitute(here),
            offset=base + row * layout.pitch_bytes + layout.in_row_expr(row, deal.column),
            vector=deal.vector,
            count=deal.copies,
            base=base,
            bytes=layout.size_bytes,
        )
        lowering.emit(copied, op)

    def places(self, lowering: RoleContext, deal: _Deal) -> tuple[Expr, Expr]:
        """Row and first column in the tile of the copies of all panels of one width, one panel's after the other's."""
        starts = self.tile.widths[deal.width]
        panel, copy = R // deal.copies, R % deal.copies
        block, beside = panel // len(starts), panel % len(starts)
        above = (Sym(a.WARPGROUP) + block * lowering.configuration.candidate.warpgroups) * ROWS
        return above + deal.row(copy), starts[0] + beside * deal.width + deal.column


@dataclass(frozen=True)
class _Deal:
    """How the rows of a panel of ``width`` columns are dealt to the threads of a warpgroup, a vector after the other::

    64 columns, vectors of 4      row 0: threads 0 .. 15    row 1: threads 16 .. 31    ..    row 8: threads 0 .. 15
    """

    width: int
    vector: int

    @staticmethod
    def of(width: int, vector: int) -> _Deal:
        """The deal in vectors of so many elements at most."""
        return _Deal(width, min(vector, ROWS * width // a.WARPGROUP_THREADS))

    @property
    def copies(self) -> int:
        """Vectors for each thread."""
        return ROWS * self.width // (a.WARPGROUP_THREADS * self.vector)

    @property
    def lanes(self) -> int:
        """Threads for a row."""
        return self.width // self.vector

    def row(self, copy: Expr) -> Expr:
        """Row of a thread's vector.

        Where a warp stores one row at a time it goes on with the next: the swizzle then differs by constants. Else the
        rows of neighbours are neighbours, which lie in different banks.
        """
        group = TID % a.WARPGROUP_THREADS // self.lanes
        if self.lanes >= WARP_THREADS:
            return group * self.copies + copy
        return copy * (a.WARPGROUP_THREADS // self.lanes) + group

    @property
    def column(self) -> Expr:
        """First column of a thread's vectors."""
        return TID % self.lanes * self.vector
