"""Operands that threads stage element by element: each element of the tile is written once, where products read it.

A register's element is known where it comes from: a load gives its coordinates, a product's accumulators are laid out
as the instruction says (PTX ISA 9.1, 9.7.15.5.1.1), element-wise code keeps elements in their places. What reductions
and changes of distribution leave in registers is not followed: of such an operand only the writes are compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from xdsl.ir import Block, Operation, SSAValue

from tilewright.base.expr import Expr, conjuncts
from tilewright.compiler.proofs.epilogue_copies import CopyMismatchError, name_of, place_of
from tilewright.hw.rules.wgmma import INSTRUCTION_M
from tilewright.lang.axes import Span
from tilewright.tile import dialect as tile
from tilewright.tile.ops import ops_before
from tilewright.tile.queries import coords_of, is_arithmetic, line_of, tensor_name
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t
from tilewright.transport.every_thread import Ints, values_at

_THREAD_REGISTER = {t.THREAD, t.REGISTER}
Axes = tuple[int | None, ...]
"""For each axis of a value (or of a loaded tensor) the corresponding axis of the operand; None for none."""


@dataclass(frozen=True)
class _Held:
    """Per operand axis the coordinate that each register of each thread holds; None where it is not known."""

    axes: tuple[Ints | None, Ints | None]

    def at(self, registers: Ints) -> _Held:
        """Those of other registers."""
        first, second = (None if x is None else np.take_along_axis(x, registers, 1) for x in self.axes)
        return _Held((first, second))

    def joined(self, other: _Held, where: str) -> _Held:
        """The coordinates known of either, which must agree."""
        axes: list[Ints | None] = []
        for mine, its in zip(self.axes, other.axes, strict=True):
            if mine is not None and its is not None and not np.array_equal(mine, its):
                raise CopyMismatchError(f"operand of {where}: element-wise code joins different elements")
            axes.append(mine if mine is not None else its)
        return _Held((axes[0], axes[1]))


_NOTHING = _Held((None, None))


def staged_operand(
    kernel: tile.Kernel, lowered: Sequence[Operation], product: a.Wgmma, side: str, swizzled: Ints, size: int
) -> None:
    """Compares the writes of an operand's tile and, as far as they are known, the elements written; raises where they
    are not the tile's. ``swizzled`` has the byte of every (mn, k)."""
    buffer, where = product.a if side == "a" else product.b, place_of(product)
    write = next((op for op in _before(product) if isinstance(op, t.SharedWrite) and op.shared is buffer), None)
    if write is None:
        raise CopyMismatchError(f"operand {side} of {where}: nothing fills its tile")
    table = np.full(int(swizzled.max()) // size + 1, -1)
    table[swizzled.ravel() // size] = np.arange(swizzled.size)
    leaves = _leaves(kernel, where, side)
    threads, count = a.warpgroups_of(write) * a.WARPGROUP_THREADS, t.registers_of(write.buffer).count.data
    at = _grid(threads, count)
    made, offsets = _holds(write.guard.expr, at), values_at(write.offset.expr, at)
    inside = (offsets >= 0) & (offsets < len(table))
    element = np.where(inside, table[np.where(inside, offsets, 0)], -1)
    if (element[made] < 0).any() or (np.bincount(element[made], minlength=swizzled.size) != 1).any():
        raise CopyMismatchError(f"operand {side} of {where}: not every element of its tile is written once")
    mn, k = np.divmod(element, swizzled.shape[1])
    for found, expected in zip(_Registers(lowered, leaves, where).held(write.buffer, write).axes, (mn, k), strict=True):
        if found is not None and not np.array_equal(found[made], expected[made]):
            raise CopyMismatchError(f"operand {side} of {where}: an element is staged at another's place")


# -- registers --------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class _Registers:
    """The contents of registers, derived from the ops that wrote them last; ``leaves`` are the axes of the values that
    the operand is computed from."""

    lowered: Sequence[Operation]
    leaves: Mapping[tile.Load | None, Axes]
    where: str

    def held(self, buffer: SSAValue, before: Operation) -> _Held:
        writer = _last_writer(buffer, before)
        match writer:
            case t.Load():
                return self.loaded(writer)
            case t.Map():
                found = _NOTHING
                count = t.registers_of(buffer).count.data
                for value, read in zip(writer.inputs, writer.reads, strict=True):
                    own = self.held(value, writer)
                    if own is not _NOTHING and read.expr.symbols <= {t.REGISTER}:
                        threads = a.warpgroups_of(writer) * a.WARPGROUP_THREADS
                        found = found.joined(own.at(values_at(read.expr, _grid(threads, count))), self.where)
                return found
            case a.Wgmma():
                return self.accumulated(writer)
            case _:
                return _NOTHING

    def loaded(self, op: t.Load) -> _Held:
        """A load's own coordinates."""
        threads, count = a.warpgroups_of(op) * a.WARPGROUP_THREADS, t.registers_of(op.buffer).count.data
        for source, axes in self.leaves.items():
            if source is None or (tensor_name(source), line_of(source)) != (name_of(op.tensor), place_of(op)):
                continue
            found: dict[int, Ints] = {}
            for coord, own, axis in zip(op.coords, coords_of(source), axes, strict=True):
                if axis is not None and isinstance(own, Span):
                    offset = coord.expr - own.origin
                    if offset.symbols <= _THREAD_REGISTER:
                        found[axis] = values_at(offset, _grid(threads, count))
            return _Held((found.get(0), found.get(1)))
        return _NOTHING

    def accumulated(self, op: a.Wgmma) -> _Held:
        """The coordinates of a product's accumulators: rows by warp, lane and pair, columns by lane and chunk of
        eight."""
        axes = self.leaves.get(None)
        parts = [x for x in self.lowered if isinstance(x, a.Wgmma) and x.accumulator is op.accumulator]
        count, columns = t.registers_of(op.accumulator).count.data, 2 * max(x.first.data + x.n.data // 2 for x in parts)
        warpgroups = a.warpgroups_of(op)
        if axes is None or op.a_operand is None:
            return _NOTHING
        blocks = op.a_operand.data.mn // (INSTRUCTION_M * warpgroups)
        columns //= blocks
        thread, register = (x.astype(np.int64) for x in np.indices((warpgroups * a.WARPGROUP_THREADS, count)))
        block, inner = np.divmod(register, columns // 2)
        warp, lane = thread % a.WARPGROUP_THREADS // 32, thread % 32
        row = (block * warpgroups + thread // a.WARPGROUP_THREADS) * INSTRUCTION_M
        row = row + warp * 16 + lane // 4 + inner % 4 // 2 * 8
        column = inner // 4 * 8 + lane % 4 * 2 + inner % 2
        found = {axis: x for axis, x in zip(axes, (row, column), strict=True) if axis is not None}
        return _Held((found.get(0), found.get(1)))


def _last_writer(buffer: SSAValue, before: Operation) -> Operation | None:
    """The op that wrote a buffer last, in the order of the text."""
    for op in _before(before):
        inside = [x for x in op.walk() if buffer in _written(x)]
        if inside:
            return inside[-1]
    return None


def _before(op: Operation) -> Iterator[Operation]:
    """The ops before an op in its block and in those around it, the nearest first."""
    here: Operation | None = op
    while here is not None:
        yield from ops_before(here)
        here = here.parent_op()


def _written(op: Operation) -> tuple[SSAValue, ...]:
    match op:
        case t.Load() | t.SharedRead() | t.ClusterRead() | a.LoadMatrix():
            return (op.buffer,)
        case t.Map():
            return tuple(op.outputs)
        case t.Fold():
            return tuple(op.targets)
        case t.Shuffle():
            return tuple(op.buffers)
        case t.RegisterSelect() | t.Exchange():
            return (op.target,)
        case a.Wgmma() | a.Mma():
            return (op.accumulator,)
        case _:
            return ()


# -- the tile program -------------------------------------------------------------------------------------------------
def _leaves(kernel: tile.Kernel, where: str, side: str) -> dict[tile.Load | None, Axes]:
    """What operands of this line are computed from by element-wise code, and which axis of the operand (0: mn, 1: k)
    each of its axes is: loads, by tensor axis, and products or fragments (None). Two that differ tell nothing."""
    found: dict[tile.Load | None, Axes] = {}
    for dot in kernel.walk():
        if isinstance(dot, tile.Dot) and line_of(dot) == where:
            value, axes = (dot.a, (0, 1)) if side == "a" else (dot.b, (1, 0))
            for leaf, own in _down(value, axes):
                found[leaf] = own if found.get(leaf, own) == own else tuple(None for _ in own)
    return found


def _down(value: SSAValue, axes: Axes) -> Iterator[tuple[tile.Load | None, Axes]]:
    op = value.owner
    match op:
        case Block():
            return
        case tile.Load():
            spans = iter(axes)
            yield op, tuple(next(spans) if isinstance(c, Span) else None for c in coords_of(op))
        case tile.Dot() | tile.FragmentRead():
            yield None, axes
        case tile.Transpose():
            own: list[int | None] = [None] * len(axes)
            for axis, source in zip(axes, op.perm, strict=True):
                own[source.data] = axis
            yield from _down(op.x, tuple(own))
        case tile.Expand():
            positions = {p.data for p in op.positions}
            yield from _down(op.x, tuple(x for i, x in enumerate(axes) if i not in positions))
        case _ if is_arithmetic(op) or isinstance(op, tile.Broadcast):
            for operand in op.operands:
                if isinstance(operand.type, tile.TileType) and operand.type.rank == len(axes):
                    yield from _down(operand, axes)
        case _:
            return


# -- values -----------------------------------------------------------------------------------------------------------
def _grid(threads: int, count: int) -> dict[str, Ints]:
    thread, register = np.indices((threads, count))
    return {t.THREAD: thread, t.REGISTER: register, a.WARPGROUP: thread // a.WARPGROUP_THREADS}


def _holds(guard: Expr, at: Mapping[str, Ints]) -> Ints:
    """Whether a condition holds at every thread and register."""
    found = np.ones(at[t.THREAD].shape, np.bool_)
    for part in conjuncts(guard):
        found = found & values_at(part, at).astype(np.bool_)
    return found
