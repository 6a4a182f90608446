"""Histograms: a counter in shared memory for each bin, to which threads add for their elements."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.base.dtypes import i32
from tilewright.base.expr import TRUE, Sym, all_of
from tilewright.schedule.mapping import Buffered, MapBuilder
from tilewright.tile import dialect as tile
from tilewright.tile.queries import spans_of
from tilewright.transport import dialect as t

if TYPE_CHECKING:
    from tilewright.schedule.moves import MoveLowering

TID, R = Sym(t.THREAD), Sym(t.REGISTER)


def lower_histogram(lowering: MoveLowering, op: tile.Histogram) -> None:
    """Counters are cleared, counted in, and read by the threads that hold the bins."""
    home = lowering.placement.home
    keys = lowering.materialise(op.x, op).buffer
    axes, bins = lowering.axes_of[op.x], lowering.axes_of[op.result]
    places = home.coordinates(axes, TID, R)
    once = all_of([home.layout(axes).owner_predicate(TID), lowering.valid(axes, spans_of(op.x), places)])
    (at,) = home.coordinates(bins, TID, R)
    inside = at < op.bins if bins[0] is not None and home.by_class[bins[0]].covered > op.bins else TRUE
    counters = lowering.shared_buffer("bins", i32, op.bins)
    builder = MapBuilder(home, bins, {}, {}, {})
    zeros = lowering.registers("zeros", i32, builder.count)
    lowering.emit(builder.finish([builder.constant(0, i32)], [zeros]), op)
    if lowering.loops or lowering.placement.persistent:
        lowering.emit(t.Barrier())
    owns = all_of([home.layout(bins).owner_predicate(TID), inside])
    lowering.emit(t.SharedWrite(counters, zeros, at, owns), op)
    lowering.emit(t.Barrier())
    lowering.emit(t.SharedCount(counters, keys, once), op)
    lowering.emit(t.Barrier())
    found = lowering.registers("counts", i32, builder.count)
    if inside != TRUE:
        cleared = MapBuilder(home, bins, {}, {}, {})
        lowering.emit(cleared.finish([cleared.constant(0, i32)], [found]), op)
    lowering.emit(t.SharedRead(counters, found, at, inside), op)
    lowering.scope.buffers[op.result] = Buffered(found, bins)
