"""Proves that nothing outside of an operand's domain takes part in a product, whatever memory holds there.

Tensor copies bring zeros for what lies outside of the tensor. Where a stream ends earlier (at the length of a
sequence), elements of the tensor follow, and a zero of the other operand does not make a NaN disappear. Each product
that reads such a tile is one of these:

    whole     its step lies inside of the domain: the loop ends where the first partial step begins
    cleared   threads have written zeros over all rows from the end of the domain on, before
    followed  a later product reads the same buffer for the last step, cleared; the steps before it are whole
    asked     the launch is asked whether the domain ends with a step: then all steps are whole
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeGuard

import numpy as np
from xdsl.ir import Block, Operation, SSAValue

from tilewright.base.expr import TRUE, Compare, Const, Expr, Min, Sym, ceildiv, conjuncts, maximum, simplify
from tilewright.lang.axes import Span
from tilewright.tile import dialect as tile
from tilewright.tile.ops import ops_before
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t
from tilewright.transport.every_thread import Ints, values_at


@dataclass(frozen=True)
class Ragged:
    """An operand whose domain along k may end inside of its tensor: the range of k, its stream, and the byte of every
    element (of axes mn and k) from the tile's begin."""

    k: Span
    stream: tile.StreamLoop | None
    bytes: Ints

    def stop(self, step: Expr | None) -> Expr:
        """Where the domain ends in a step."""
        return self._at(self.k.stop, step)

    def begin(self, step: Expr | None) -> Expr:
        """The first coordinate of a step."""
        return self._at(self.k.origin, step)

    def _at(self, node: Expr, step: Expr | None) -> Expr:
        return node if step is None or self.stream is None else node.substitute({self.stream.counter.data: step})


def ends_with_tensor(k: Span, extent: Expr) -> bool:
    """No element of the tensor that a copy brings lies outside of the domain along k."""
    return k.stop == extent or simplify(k.origin + k.size <= k.stop, {}) == TRUE


def excluded(product: a.Wgmma, buffer: SSAValue, region: Expr, ragged: Ragged) -> bool:
    """Whether a product, of which this is the first instruction, reads no element outside of the operand's domain."""
    return (
        _cleared(product, buffer, region, ragged)
        or any(_whole(loop, ragged) or _followed(loop, buffer, ragged) for loop in _loops(product, ragged))
        or _asked(product, ragged)
    )


def whole_steps(product: Operation, ragged: Ragged) -> bool:
    """Every step of a loop around a product lies in the operand's domain."""
    return any(_whole(loop, ragged) for loop in _loops(product, ragged))


def _loops(op: Operation, ragged: Ragged) -> Iterator[t.For]:
    """The loops around an op over the steps of the operand's stream."""
    parent = op.parent_op()
    while parent is not None:
        if isinstance(parent, t.For) and ragged.stream is not None and parent.counter == ragged.stream.counter:
            yield parent
        parent = parent.parent_op()


def _whole(loop: t.For, ragged: Ragged) -> bool:
    """Every step of the loop lies in the domain: it ends with the last one that does, at the latest."""
    end = loop.end.expr
    if isinstance(end, Sym):
        lets = (op for op in ops_before(loop) if isinstance(op, t.Let) and op.symbol.data == end.name)
        end = next((op.value.expr for op in lets), end)
    whole = (ragged.stop(Const(0)) - ragged.begin(Const(0))) // ragged.k.size
    steady = ragged.stop(None) == ragged.stop(Const(0)) and _advances(ragged)
    return steady and whole in (end.args if isinstance(end, Min) else (end,))


def _asked(product: a.Wgmma, ragged: Ragged) -> bool:
    """The domain ends with a step, by what the launch is asked, and the product's step is one of the stream's."""
    stop, first, size = ragged.stop(None), ragged.begin(Const(0)), ragged.k.size
    if ragged.stream is None or stop != ragged.stop(Const(0)) or not _advances(ragged):
        return False
    trip = ragged.stream.trip.expr
    steps = ceildiv(stop - first, size)
    if trip not in (steps, maximum(steps, 0)):
        return False
    if any(loop.end.expr not in (trip, *_shorter(loop, ragged)) for loop in _loops(product, ragged)):
        return False
    role = a.role_of(product)
    kernel = None if role is None else role.parent_op()
    assert isinstance(kernel, t.Kernel)
    assumed = [fact for each in kernel.assumptions for fact in conjuncts(each.expr)]
    ends = stop.args if isinstance(stop, Min) else (stop,)
    return all(simplify(((end - first) % size).eq(0), {}) in (TRUE, *assumed) for end in ends)


def _advances(ragged: Ragged) -> bool:
    """Each step begins where the one before ends."""
    assert ragged.stream is not None
    counter = Sym(ragged.stream.counter.data)
    return simplify(ragged.begin(counter + 1) - ragged.begin(None), {}) == Const(ragged.k.size)


def _followed(loop: t.For, buffer: SSAValue, ragged: Ragged) -> bool:
    """The loop begins after the first step, and a product behind it reads the last step's tile, cleared."""
    begin = loop.begin.expr
    late = begin.constant is not None and begin.constant >= 1
    late = late or any(x.constant is not None and x.constant >= 1 for x in getattr(begin, "args", ()))
    assert ragged.stream is not None
    if not late or loop.end.expr not in (ragged.stream.trip.expr, *_shorter(loop, ragged)) or not _advances(ragged):
        return False
    later = loop.next_op
    while later is not None:
        inside = later.body.block.ops if _is_last(later, ragged) else (later,)
        for op in inside:
            if isinstance(op, a.Wgmma) and buffer in (op.a, op.b):
                return _cleared(op, buffer, op.b_region.expr if op.b == buffer else op.a_region.expr, ragged)
        later = later.next_op
    return False


def _is_last(op: Operation, ragged: Ragged) -> TypeGuard[t.For]:
    """A loop over the last step alone, if there is one."""
    assert ragged.stream is not None
    if not isinstance(op, t.For) or op.counter != ragged.stream.counter:
        return False
    trip = ragged.stream.trip.expr
    return (op.begin.expr, op.end.expr) == (maximum(trip - 1, 0), trip)


def _shorter(loop: t.For, ragged: Ragged) -> Iterator[Expr]:
    """Names before the loop of at most the stream's steps."""
    assert ragged.stream is not None
    for op in ops_before(loop):
        if isinstance(op, t.Let):
            value = op.value.expr
            if ragged.stream.trip.expr in (value.args if isinstance(value, Min) else (value,)):
                yield Sym(op.symbol.data)


def _cleared(op: a.Wgmma, buffer: SSAValue, region: Expr, ragged: Ragged) -> bool:
    """Stores of zeros before an instruction cover every element from the end of its step's domain on."""
    loop = next(_loops(op, ragged), None)
    if ragged.stream is None:
        step = None
    else:
        step = Sym(ragged.stream.counter.data) if loop is not None else ragged.stream.trip.expr - 1
    left = np.ones(ragged.bytes.shape, np.bool_)
    for fill, conditions in _fills(op, buffer):
        made = _rows_cleared(fill, conditions, region, ragged, step)
        if made is None:
            return False
        left &= ~made
    return not left.any()


def _fills(op: Operation, buffer: SSAValue) -> Iterator[tuple[a.ZeroFill, tuple[Expr, ...]]]:
    """Zeros that were stored to a buffer since its tile arrived, and under what conditions."""
    for before in ops_before(op):
        if isinstance(before, a.MbarrierWait):
            return
        if isinstance(before, t.If):
            yield from _in_branch(before.then.block, buffer, (before.condition.expr,))
        elif isinstance(before, a.ZeroFill) and before.shared == buffer:
            yield before, ()


def _in_branch(
    block: Block, buffer: SSAValue, conditions: tuple[Expr, ...]
) -> Iterator[tuple[a.ZeroFill, tuple[Expr, ...]]]:
    for op in block.ops:
        if isinstance(op, t.If):
            yield from _in_branch(op.then.block, buffer, (*conditions, op.condition.expr))
        elif isinstance(op, a.ZeroFill) and op.shared == buffer:
            yield op, conditions


def _rows_cleared(
    fill: a.ZeroFill, conditions: Sequence[Expr], region: Expr, ragged: Ragged, step: Expr | None
) -> Ints | None:
    """Which elements become zero as soon as they lie outside; None where one may that does not."""
    stop, begin = ragged.stop(step), ragged.begin(step)
    needed = stop < begin + ragged.k.size
    role = a.role_of(fill)
    assert role is not None
    thread, store = np.meshgrid(np.arange(role.threads.data), np.arange(fill.count.data), indexing="ij")
    at = {t.THREAD: thread.ravel(), t.REGISTER: store.ravel()}
    at[a.WARPGROUP] = at[t.THREAD] // a.WARPGROUP_THREADS
    made = np.ones(thread.size, np.bool_)
    for condition in (c for each in conditions for c in conjuncts(each)):
        if condition.symbols <= at.keys():
            made &= values_at(condition, at).astype(np.bool_)
        elif condition != needed:
            made[:] = False
    guard, place = fill.guard.expr, fill.offset.expr - region
    if not isinstance(guard, Compare) or guard.op != "<=" or guard.lhs != stop or not place.symbols <= at.keys():
        return None
    row = guard.rhs - begin
    if not row.symbols <= at.keys():
        return None
    size = fill.store_bytes // fill.vector.data
    stored = (values_at(place, at)[:, None] + np.arange(fill.vector.data) * size)[made]
    rows = np.broadcast_to(values_at(row, at)[:, None], (thread.size, fill.vector.data))[made]
    k_at = np.full(int(ragged.bytes.max()) + size, -1)
    k_at[ragged.bytes] = np.arange(ragged.bytes.shape[1])
    if stored.min(initial=0) < 0 or stored.max(initial=0) >= len(k_at) or (k_at[stored] != rows).any():
        return None
    return np.isin(ragged.bytes, stored)
