"""What the threads of a kernel without roles do to each other's bytes of shared memory, as accesses of a protocol.

A protocol's accesses are those of a whole role, where a kernel needs a barrier only between accesses of *different*
threads to the same bytes. Which those are is worked out here: the least and the greatest thread that touch each byte
are tabulated from an access's expressions, at every thread and register. Two accesses *clash* if, at some byte, one of
them writes and not both belong to one and the same thread. The protocol's buffers are then not bytes but sets of
accesses that clash with each other: each access reads or writes the buffers of the sets that it is in, and the checker
asks for a barrier between any two of one buffer, on every path and from each iteration of a loop to the next.

The offsets of accesses name threads and registers alone, so an access touches the same bytes in every iteration: it
clashes with itself only where two threads write one element at once, which no barrier mends. That is written twice.

Threads of one warp may also meet in a warp barrier. A kernel with such barriers has two protocols: one of the CTA's
threads, for accesses that clash across warps, and one of a warp's, for those that clash inside of warps only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from itertools import combinations

import numpy as np
from xdsl.ir import Operation

from tilewright.base.expr import Const, Expr, conjuncts
from tilewright.hw.spaces import WARP_THREADS, Space
from tilewright.protocol import ops
from tilewright.protocol.model import Buffer, MbarrierArray
from tilewright.transport import dialect as t
from tilewright.transport.every_thread import Ints, values_at
from tilewright.transport.ops.roles import WARPGROUP, WARPGROUP_THREADS
from tilewright.transport.protocol_scope import WalkScope

THREAD_SYMBOLS = frozenset((t.THREAD, t.REGISTER, WARPGROUP))
"""What tells one access of a thread from another; other symbols are the same for all threads of a CTA."""


class NoProtocolError(Exception):
    """What a kernel does that no protocol expresses; nothing is known of such a kernel."""


class Reach(Enum):
    """The threads that a protocol is about."""

    CTA = "threads"
    WARP = "warp"


def reaches_of(inside: Sequence[Operation]) -> tuple[Reach, ...]:
    """The protocols that a kernel of these ops has."""
    return (Reach.CTA, Reach.WARP) if any(isinstance(op, t.WarpBarrier) for op in inside) else (Reach.CTA,)


_Access = t.SharedWrite | t.SharedRead | t.SharedCount


@dataclass(frozen=True)
class _Touched:
    """The bytes of one access: the least and the greatest thread at each byte of its buffer, -1 where none is."""

    op: _Access
    least: Ints
    most: Ints
    twice: bool
    """Two threads touch one byte in the same execution."""

    @property
    def writes(self) -> bool:
        """Whether it writes."""
        return not isinstance(self.op, t.SharedRead)


class ThreadAccesses:
    """Translates the ops of a kernel without roles, and keeps the buffers that they use."""

    in_parts: tuple[type[ops.Op], ...] = ()
    """Equal accesses that follow one another are one; none is."""

    def __init__(self, kernel: t.Kernel, inside: Sequence[Operation], reach: Reach):
        self.reach = reach
        self.buffers: dict[str, Buffer] = {}
        self.barriers: list[MbarrierArray] = []
        self._places = _places(inside)
        made = [_touched(op, kernel.threads.data) for op in inside if isinstance(op, _Access)]
        self._steps: dict[Operation, list[ops.Op]] = {each.op: [] for each in made}
        split = len(reaches_of(inside)) > 1
        clashing = [
            (x, y) for x, y in combinations(range(len(made)), 2) if self._reach(made[x], made[y], split) is reach
        ]
        for clique in _cliques(clashing):
            region = self._buffer(made[clique[0]].op)
            for each in (made[i] for i in clique):
                self._steps[each.op].append(ops.Write(region) if each.writes else ops.Read(region))
        if reach is Reach.CTA:
            for each in made:
                if each.writes and each.twice:
                    self._steps[each.op] += [ops.Write(self._buffer(each.op))] * 2

    def steps(self, op: Operation, scope: WalkScope) -> Sequence[ops.Op] | None:
        """The protocol's ops of one op, in order; none for what touches no shared memory, None for what is no single
        op."""
        match op:
            case t.SharedWrite() | t.SharedRead() | t.SharedCount():
                return self._steps[op]
            case t.Barrier():
                return (ops.CtaSync(),)
            case t.WarpBarrier():  # a protocol of a warp is one of a CTA of 32 threads
                return (ops.CtaSync(),) if self.reach is Reach.WARP else ()
            case _:
                return () if isinstance(op, _REGISTERS_ONLY) else None

    def _reach(self, x: _Touched, y: _Touched, split: bool) -> Reach | None:
        """Which threads have to meet between two accesses; None where they don't clash."""
        if not (x.writes or y.writes) or (isinstance(x.op, t.SharedCount) and isinstance(y.op, t.SharedCount)):
            return None  # additions of several threads to one element come one after the other
        first, second = self._places[x.op.shared], self._places[y.op.shared]
        begin, end = max(first, second), min(first + x.least.size, second + y.least.size)
        if begin >= end:
            return None
        one, two = slice(begin - first, end - first), slice(begin - second, end - second)
        both = (x.least[one] >= 0) & (y.least[two] >= 0)
        least = np.minimum(x.least[one], y.least[two])[both]
        most = np.maximum(x.most[one], y.most[two])[both]
        if (least == most).all():
            return None
        inside_warps = (least // WARP_THREADS == most // WARP_THREADS).all()
        return Reach.WARP if split and inside_warps else Reach.CTA

    def _buffer(self, op: _Access) -> ops.Region:
        """A new buffer, named after one of the kernel."""
        owner = op.shared.owner
        assert isinstance(owner, t.Shared)
        base = "".join(c if c.isalnum() else "_" for c in owner.hint.data)
        base = base if base[:1].isalpha() else f"b_{base}"
        name, number = base, 1
        while name in self.buffers:
            name, number = f"{base}_{number}", number + 1
        self.buffers[name] = Buffer(name, Space.SHARED, 1, len(self.buffers), initialised=True)
        return ops.Region(name, Const(0), 1)


def writes_twice(op: t.SharedWrite, threads: int) -> bool:
    """Whether two of some threads write one element in the same execution, as far as their numbers tell."""
    used = op.offset.expr.symbols | op.guard.expr.symbols
    return used <= THREAD_SYMBOLS and _touched(op, threads).twice


def _touched(op: _Access, threads: int) -> _Touched:
    shared = t.shared_of(op.shared)
    if isinstance(op, t.SharedCount):
        every = np.zeros(shared.count.data * shared.dtype.dtype.bytes, np.int32)
        return _Touched(op, every, every + (threads - 1), twice=False)
    registers = range(0, t.registers_of(op.buffer).count.data, op.vector.data)
    found = _threads_of(op.offset.expr, op.guard.expr, threads, registers, op.vector.data, shared.count.data)
    if found is None:
        raise NoProtocolError(f"{op.name} at {op.offset.expr}, which threads and registers do not place in its buffer")
    least, most, twice = found
    size = shared.dtype.dtype.bytes
    return _Touched(op, np.repeat(least, size), np.repeat(most, size), twice)


@lru_cache(maxsize=1024)
def _threads_of(
    offset: Expr, guard: Expr, threads: int, registers: range, elements: int, size: int
) -> tuple[Ints, Ints, bool] | None:
    """The least and the greatest thread that touch each of ``size`` elements of a buffer, -1 where none does, and
    whether two threads touch one element in the same execution.

    Each thread touches ``elements`` elements from ``offset`` on, at each of ``registers`` where ``guard`` holds; of a
    guard that asks for more than thread and register any answer is possible. None where the offset asks for more, or
    lies beyond the buffer.
    """
    if not offset.symbols <= THREAD_SYMBOLS:
        return None
    thread, register = np.meshgrid(np.arange(threads), np.array(registers), indexing="ij")
    at = {t.THREAD: thread, t.REGISTER: register, WARPGROUP: thread // WARPGROUP_THREADS}
    taken = np.ones(thread.shape, np.bool_)
    for condition in conjuncts(guard):
        if condition.symbols <= THREAD_SYMBOLS:
            taken &= values_at(condition, at).astype(np.bool_)
    first, who = values_at(offset, at)[taken], np.repeat(thread[taken], elements)
    if first.size and (first.min() < 0 or first.max() + elements > size):
        return None
    where = (first[:, None] + np.arange(elements)).ravel()
    least, most = np.full(size, -1, np.int32), np.full(size, -1, np.int32)
    most[where] = who  # threads ascend, and of several values assigned to one element the last one stays
    least[where[::-1]] = who[::-1]
    return least, most, bool((least != most).any())


def _places(inside: Sequence[Operation]) -> dict[object, int]:
    """The first byte of each shared buffer: static buffers follow one another, after those with explicit offsets."""
    found: dict[object, int] = {}
    buffers = [op for op in inside if isinstance(op, t.Shared)]
    placed = [(op, op.offset.data) for op in buffers if op.offset is not None]
    end = max((offset + _size(op) for op, offset in placed), default=0)
    for op, offset in placed:
        found[op.buffer] = offset
    for op in buffers:
        if op.offset is None:
            found[op.buffer], end = end, end + _size(op)
    return found


def _size(op: t.Shared) -> int:
    kind = t.shared_of(op.buffer)
    return kind.count.data * kind.dtype.dtype.bytes


def _cliques(edges: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Sets of numbers, any two of one set joined by an edge, so that each edge is in one of them."""
    joined, open_ = set(edges), dict.fromkeys(edges)
    found: list[list[int]] = []
    while open_:
        clique = list(next(iter(open_)))
        for number in sorted({n for edge in joined for n in edge} - set(clique)):
            if all((min(number, n), max(number, n)) in joined for n in clique):
                clique.append(number)
        clique.sort()
        found.append(clique)
        for edge in combinations(clique, 2):
            open_.pop(edge, None)
    return found


_REGISTERS_ONLY = (
    t.Shared,
    t.Registers,
    t.Load,
    t.Store,
    t.AtomicReduce,
    t.Map,
    t.Fold,
    t.Shuffle,
    t.RegisterSelect,
    t.Exchange,
    t.Pin,
    t.Print,
    t.Trap,
)
"""Ops that touch no shared memory."""
