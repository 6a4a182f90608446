"""Histograms: one counter per bin in shared memory, to which threads add atomically."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xdsl.ir import SSAValue

from tilewright.base.dtypes import i32
from tilewright.base.expr import TRUE, Expr, Sym, all_of
from tilewright.schedule.map_builder import Buffered, MapBuilder
from tilewright.tile import dialect as tile
from tilewright.tile.queries import spans_of
from tilewright.transport import dialect as t

if TYPE_CHECKING:
    from tilewright.schedule.loads_and_stores import MoveLowering

TID, R = Sym(t.THREAD), Sym(t.REGISTER)


def lower_histogram(lowering: MoveLowering, op: tile.Histogram) -> None:
    """Lowers a histogram outside of accumulating streams."""
    counters = cleared(lowering, op)
    count(lowering, op, counters)
    lowering.scope.buffers[op.result] = counted(lowering, op, counters)


def cleared(lowering: MoveLowering, op: tile.Histogram) -> SSAValue:
    """Counters initialised to 0."""
    home = lowering.placement.home
    counters = lowering.shared_buffer("bins", i32, op.bins)
    builder = MapBuilder(home, lowering.axes_of[op.result], {}, {}, {})
    zeros = lowering.registers("zeros", i32, builder.count)
    lowering.emit(builder.finish([builder.constant(0, i32)], [zeros]), op)
    if lowering.loops or lowering.placement.persistent:
        lowering.emit(t.Barrier())
    at, inside = _bins(lowering, op)
    owns = all_of([home.layout(lowering.axes_of[op.result]).owner_predicate(TID), inside])
    lowering.emit(t.SharedWrite(counters, zeros, at, owns), op)
    lowering.emit(t.Barrier())
    return counters


def count(lowering: MoveLowering, op: tile.Histogram, counters: SSAValue) -> None:
    """Adds each key to its counter."""
    home = lowering.placement.home
    keys, axes = lowering.materialise(op.x, op).buffer, lowering.axes_of[op.x]
    valid = lowering.valid(axes, spans_of(op.x), home.coordinates(axes, TID, R))
    once = all_of([home.layout(axes).owner_predicate(TID), valid])
    lowering.emit(t.SharedCount(counters, keys, once), op)


def counted(lowering: MoveLowering, op: tile.Histogram, counters: SSAValue) -> Buffered:
    """The final counts, in the registers of the threads that hold the bins."""
    bins = lowering.axes_of[op.result]
    at, inside = _bins(lowering, op)
    lowering.emit(t.Barrier())
    builder = MapBuilder(lowering.placement.home, bins, {}, {}, {})
    found = lowering.registers("counts", i32, builder.count)
    if inside != TRUE:
        lowering.emit(builder.finish([builder.constant(0, i32)], [found]), op)
    lowering.emit(t.SharedRead(counters, found, at, inside), op)
    return Buffered(found, bins)


def _bins(lowering: MoveLowering, op: tile.Histogram) -> tuple[Expr, Expr]:
    """The bin of register r, and whether it exists."""
    home, bins = lowering.placement.home, lowering.axes_of[op.result]
    (at,) = home.coordinates(bins, TID, R)
    return at, at < op.bins if bins[0] is not None and home.by_class[bins[0]].covered > op.bins else TRUE
