"""Rows of a copied operand that lie in their tensor and outside of their domain: cleared before they are multiplied.

A tensor copy brings zeros for what lies outside of the tensor, but whatever memory holds where a stream ends earlier
(at the length of a sequence, or at the diagonal), unless its map ends there too (``ragged_maps``), which pages and
tensors of four dimensions have not. The left operand is 0 there, and 0 times NaN is NaN. Only the last step of a stream
can have such rows, so the consumers write zeros over them::

    row      0 .. length - 1    as copied
             length .. size     zeros, by the consumers       fence.proxy.async, barrier, wgmma

Threads take the lines of a panel in turn, 16 bytes each where lines are dealt out evenly; single elements where the
tile is K-major, since rows of the operand then run along the lines.
"""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.ir import Block, Region

from tilewright.base.expr import Const, Expr, Interval, Sym
from tilewright.hw.target import MAX_VECTOR_BYTES
from tilewright.lang.axes import Span
from tilewright.layout.shared import SharedTile
from tilewright.legal.wgmma import Major
from tilewright.schedule.hopper.configuration import RoleContext
from tilewright.schedule.hopper.operands import DotPlan, TmaOperand, ends_with_tensor
from tilewright.schedule.hopper.tile_pipelines import copied_tiles
from tilewright.tile.queries import line_of, source_of, spans_of
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t

_THREAD, _STORE = Sym(t.THREAD), Sym(t.REGISTER)


def rows_beyond(plan: DotPlan) -> Span | None:
    """The rows of a product's right operand that consumers have to clear; None where there are none."""
    if not isinstance(plan.b, TmaOperand) or plan.b.map.ragged_axis is not None or ends_with_tensor(plan.dot.b, 0):
        return None
    source, perm = source_of(plan.dot.b)
    assert source == plan.b.load.result
    return spans_of(source)[perm[0]]


def clear_rows(lowering: RoleContext, plan: DotPlan, at: Mapping[str, Expr], *, last: bool = False) -> None:
    """Zeros over the rows of a right operand beyond its domain, where counters have the values ``at``. In a loop whose
    only step is the ``last`` of a stream, as outside of loops, it is asked whether there are any: the barrier brings
    warpgroups in step that else overlap one's softmax with the other's products."""
    span = rows_beyond(plan)
    assert span is not None
    assert isinstance(plan.b, TmaOperand)
    held = plan.b.shared.shared_tile
    assert held is not None, "tiles are whole panels of whole swizzle periods"
    data, base = lowering.shared_operand(plan.b, plan.dot)
    lines, warpgroups = held.rows * held.panels, lowering.configuration.candidate.warpgroups
    k_major = plan.b.plan.major is Major.K
    vector, sharing = _dealt(held, warpgroups, held.element_bytes if k_major else MAX_VECTOR_BYTES)
    lanes, own = held.panel // vector, lines // sharing
    at_once = a.WARPGROUP_THREADS // lanes
    first = Sym(a.WARPGROUP) * own if sharing > 1 else Const(0)
    line = first + _THREAD % a.WARPGROUP_THREADS // lanes + _STORE * at_once
    known: dict[str, Interval] = {
        t.THREAD: (0, a.WARPGROUP_THREADS * warpgroups - 1),
        t.REGISTER: (0, own // at_once - 1),
        a.WARPGROUP: (0, warpgroups - 1),
    }
    row, column = line % held.rows, line // held.rows * held.panel + _THREAD % lanes * vector
    begin = base + first * held.pitch_bytes
    fill = a.ZeroFill(
        data,
        offset=base + held.offset_expr(row, column, bounds=known),
        guard=span.stop.substitute(at) <= span.origin.substitute(at) + (column if k_major else row),
        vector=vector,
        count=own // at_once,
        base=begin,
        bytes=own * held.pitch_bytes,
    )
    if lowering.loops and not last:  # of its steps nearly all are partial
        _store_zeros(lowering, plan, fill, sharing)
        return
    clearing = Block()
    with lowering.into(clearing):
        _store_zeros(lowering, plan, fill, sharing)
    partial = span.stop.substitute(at) < span.origin.substitute(at) + span.size
    lowering.emit(t.If(partial, Region(clearing), t.block()))


def _store_zeros(lowering: RoleContext, plan: DotPlan, fill: a.ZeroFill, sharing: int) -> None:
    """The stores of ``sharing`` warpgroups: after all have finished earlier products of the tile, before the next
    ones."""
    assert isinstance(plan.b, TmaOperand)
    if len(copied_tiles(lowering.configuration.dots)[plan.b.load]) > 1:
        lowering.emit(t.Barrier())
    if sharing < lowering.configuration.candidate.warpgroups:
        fill.at(line_of(plan.dot), plan.dot.name)
        lowering.emit(t.If(Sym(a.WARPGROUP) < sharing, t.block([fill]), t.block()))
    else:
        lowering.emit(fill, plan.dot)
    lowering.emit(a.FenceProxyAsync())
    lowering.emit(t.Barrier())


def _dealt(held: SharedTile, warpgroups: int, most_bytes: int) -> tuple[int, int]:
    """Elements of a store of up to ``most_bytes``, and how many warpgroups share the lines of a tile, so that all
    threads have as many."""
    lines, widest = held.rows * held.panels, most_bytes // held.element_bytes
    vectors = [v for v in (widest >> k for k in range(widest.bit_length())) if held.panel // v <= a.WARPGROUP_THREADS]
    return next(
        (vector, sharing)
        for vector in vectors
        for sharing in range(warpgroups, 0, -1)
        if lines % (sharing * (a.WARPGROUP_THREADS // (held.panel // vector))) == 0
    )
