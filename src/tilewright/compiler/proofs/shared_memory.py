"""Shared memory in which threads leave elements for each other: none is read that was not written.

Read from the lowered kernel alone: the offset and guard of every shared access, at every thread and register. A write
counts for a read if it comes before, and is executed whenever the read is; for a read of other CTAs, if it is executed
in any. That barriers stand between them is not asked here. Buffers that tensor copies, matrices or copies by threads
fill too are left to ``compiler.proofs.copies``.

A buffer may lie over others that are done with: its accesses stand behind theirs. That nobody is at these still, or
again, is what the protocol's proof says of bytes; of order, the roles' texts are asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, product
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from xdsl.ir import Block, Operation, SSAValue

from tilewright.base import verdict
from tilewright.base.expr import Const, Expr, conjuncts
from tilewright.base.verdict import Proof, Proved, Refuted, Unknown
from tilewright.compiler.timing import timed
from tilewright.hw.spaces import WARPGROUP_THREADS
from tilewright.tile import dialect as tile
from tilewright.tile.ops import operations
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t
from tilewright.transport.every_thread import values_at

OBLIGATION = "filled"
METHOD = "every thread and register"
_ALWAYS = (t.Kernel, t.Programs, a.Role, a.Elected)
"""Bodies that are executed whenever what is around them is; a loop without programs has no reads either. Of an elected
thread only what any thread would do counts."""
Mask: TypeAlias = npt.NDArray[np.bool_]
_Access: TypeAlias = t.SharedWrite | t.SharedRead | t.ClusterRead | t.SharedCount


def shared_scratch(lowered: t.Kernel) -> dict[SSAValue, list[_Access]]:
    """The buffers that threads alone access, one element or vector at a time, with these accesses in order."""
    found: dict[SSAValue, list[_Access]] = {}
    others: set[SSAValue] = set()
    for op in operations(lowered):
        if isinstance(op, _Access):
            found.setdefault(op.shared, []).append(op)
        else:
            others.update(op.operands)
    return {shared: ops for shared, ops in found.items() if shared not in others}


@timed("prove")
def prove_initialised(lowered: t.Kernel) -> Proof[str]:
    """Whether every element that threads read from shared memory was written by some thread before."""
    buffers = shared_scratch(lowered)
    if (mixed := _mixed(lowered, buffers)) is not None:
        return Unknown(OBLIGATION, f"{mixed} share bytes", "the one accessed behind all accesses of the other")
    for shared, ops in buffers.items():
        accesses = [_RoleAccess.of(op, lowered) for op in ops]
        for number, read in enumerate(accesses):
            if read.writes:
                continue
            where = f"{_name(shared)}, read at {read.op.loc.data if read.op.loc is not None else 'no line'}"
            asked = read.elements(assumed=True)
            if asked is None:
                return Unknown(OBLIGATION, f"{where}: elements by more than a place", "offsets by thread, register")
            before = [w for n, w in enumerate(accesses) if w.writes and (n < number or w.role is not read.role)]
            written = np.zeros_like(asked)
            for write in before:
                if write.made_whenever(read) and (made := write.elements(assumed=False)) is not None:
                    written |= made
            left = np.flatnonzero(asked & ~written)
            if left.size:
                return Refuted(OBLIGATION, f"{where}: nobody writes element {left[0]} of {asked.size}")
    names = ", ".join(dict.fromkeys(map(_name, buffers)))
    return Proved((verdict.Discharged(OBLIGATION, METHOD, names),) if buffers else ())


def _mixed(lowered: t.Kernel, scratch: Mapping[SSAValue, Sequence[_Access]]) -> str | None:
    """Two buffers that share bytes, of which neither is used behind the other; None if there are none."""
    placed = [
        (
            op.offset.data,
            op.offset.data + t.shared_of(op.buffer).count.data * t.shared_of(op.buffer).dtype.dtype.bytes,
            op,
        )
        for op in lowered.body.block.ops
        if isinstance(op, t.Shared) and op.offset is not None
    ]
    for (begin, end, one), (first, behind, other) in combinations(placed, 2):
        pairs = ((one.buffer, other.buffer), (other.buffer, one.buffer))
        apart = end <= first or behind <= begin
        if not apart and not any(late in scratch and _behind(lowered, late, early) for late, early in pairs):
            return f"{_name(one.buffer)} and {_name(other.buffer)}"
    return None


def _behind(lowered: t.Kernel, late: SSAValue, early: SSAValue) -> bool:
    """Whether a cluster's CTAs use ``late`` once, when their use of ``early`` is over: no role has uses of that behind
    what lets it know that ``late`` was written, which is the next thing that writers do."""
    if any(programs.persistent.data for programs in lowered.walk() if isinstance(programs, t.Programs)):
        return False
    for role in (op for op in lowered.body.block.ops if isinstance(op, a.Role)):
        ops = list(role.walk())
        before = [i for i, op in enumerate(ops) if early in op.operands]
        after = [i for i, op in enumerate(ops) if late in op.operands]
        if not after:
            wait = next((i for i, op in enumerate(ops) if isinstance(op, a.ClusterWait)), len(ops))
            if before and before[-1] > wait:
                return False
            continue
        arrival = next((i for i in range(after[0], len(ops)) if isinstance(ops[i], a.ClusterArrive)), len(ops))
        looped = any(isinstance(parent, t.For) for i in after for _, parent in _around(ops[i]))
        if looped or any(i > after[0] for i in before) or any(i not in after for i in range(after[0], arrival)):
            return False
    return True


def _name(shared: SSAValue) -> str:
    assert isinstance(shared.owner, t.Shared)
    return shared.owner.hint.data


@dataclass(frozen=True)
class _RoleAccess:
    """One op, the role whose threads execute it, what around it may be skipped, and the loops whose iterations are
    known. Blocks may be skipped; so may loops, by their end, which is one for all roles of a launch."""

    op: _Access
    role: Operation
    threads: int
    perhaps: tuple[Block | Expr, ...]
    loops: dict[str, range]
    elected: bool
    """One thread executes it, any."""
    ranks: int
    """CTAs of a cluster."""

    @classmethod
    def of(cls, op: _Access, lowered: t.Kernel) -> _RoleAccess:
        role: Operation = lowered
        threads = lowered.threads.data
        perhaps: list[Block | Expr] = []
        loops: dict[str, range] = {}
        elected = any(isinstance(parent, a.Elected) for _, parent in _around(op))
        for block, parent in _around(op):
            if isinstance(parent, a.Role):
                role, threads = parent, parent.threads.data
            if isinstance(parent, t.For) and (known := _iterations(parent)):
                loops[parent.counter.data] = known
            elif isinstance(parent, t.For) and (trip := _of_launch(parent, lowered)) is not None:
                perhaps.insert(0, trip)
            elif not isinstance(parent, _ALWAYS):
                perhaps.insert(0, block)
        ranks = 1 if lowered.cluster is None else lowered.cluster.data
        return cls(op, role, threads, tuple(perhaps), loops, elected, ranks)

    @property
    def writes(self) -> bool:
        """Whether it writes."""
        return isinstance(self.op, t.SharedWrite)

    def made_whenever(self, read: _RoleAccess) -> bool:
        """Whether this write is executed when ``read`` is, all of it: not one part an iteration of a loop around
        both. In another CTA it is only if it is in any."""
        assert isinstance(self.op, t.SharedWrite)
        if isinstance(read.op, t.ClusterRead) and self.perhaps:
            return False
        together = self.loops.keys() & read.loops.keys() & self.op.offset.expr.symbols
        return read.perhaps[: len(self.perhaps)] == self.perhaps and not together

    def elements(self, *, assumed: bool) -> Mask | None:
        """The elements of the buffer that are accessed; where a guard asks for more than thread and register tell,
        ``assumed`` is the answer. None if the offset does, or if a CTA is read that the cluster has not."""
        if isinstance(self.op, t.SharedCount):  # it may add to any
            return np.ones(t.shared_of(self.op.shared).count.data, np.bool_)
        own = self.loops
        if isinstance(self.op, t.ClusterRead):
            if not self._reads_ranks(self.op):
                return None
            own = {**own, a.CTA_RANK: range(self.ranks)}
        known = {t.REGISTER, *own} if self.elected else {t.THREAD, t.REGISTER, a.WARPGROUP, *own}
        guard = conjuncts(self.op.guard.expr)
        known_guard = tuple(g for g in guard if g.symbols <= known)
        if not self.op.offset.expr.symbols <= known or (len(known_guard) < len(guard) and not assumed):
            return None
        used = self.op.offset.expr.symbols.union(*(g.symbols for g in known_guard))
        registers = range(0, t.registers_of(self.op.buffer).count.data, self.op.vector.data)
        loops = tuple((name, values) for name, values in own.items() if name in used)
        size = t.shared_of(self.op.shared).count.data
        return _elements(self.op.offset.expr, known_guard, self.threads, registers, self.op.vector.data, loops, size)

    def _reads_ranks(self, op: t.ClusterRead) -> bool:
        """Whether the CTA of every register is one of the cluster's, the same for all elements of a vector."""
        if not op.cta.expr.symbols <= {t.REGISTER}:
            return False
        ranks = [int(op.cta.expr.evaluate({t.REGISTER: r})) for r in range(t.registers_of(op.buffer).count.data)]
        vector = op.vector.data
        alike = all(ranks[r] == ranks[r // vector * vector] for r in range(len(ranks)))
        return alike and all(0 <= rank < self.ranks for rank in ranks)


def _around(op: Operation) -> Iterator[tuple[Block, Operation]]:
    """The blocks around an op with what has them, innermost first."""
    block = op.parent
    while block is not None and (parent := block.parent_op()) is not None:
        yield block, parent
        block = parent.parent


def _of_launch(loop: t.For, lowered: t.Kernel) -> Expr | None:
    """Where a loop from 0 ends, if all roles of a launch have one value for it: of extents, or loaded before they
    part."""
    known = {op.symbol.data for op in lowered.body.block.ops if isinstance(op, t.Bind)}
    for arg in lowered.body.block.args:
        if isinstance(arg.type, tile.TensorType):
            known |= {name for dim in arg.type.dims for name in dim.expr.symbols}
    end = loop.end.expr
    return end if loop.begin.expr == Const(0) and end.symbols <= known else None


def _iterations(loop: t.For) -> range | None:
    """The counter's values, if they are constants and at least one."""
    bounds = [e.expr.constant for e in (loop.begin, loop.end, loop.step)]
    known = [b for b in bounds if b is not None]
    return range(*known) if len(known) == len(bounds) and len(range(*known)) > 0 else None


@lru_cache(maxsize=1024)
def _elements(
    offset: Expr,
    guard: Sequence[Expr],
    threads: int,
    registers: range,
    vector: int,
    loops: Sequence[tuple[str, range]],
    size: int,
) -> Mask | None:
    """Which of ``size`` elements threads access; None if one lies beyond."""
    thread, register = np.meshgrid(np.arange(threads), np.array(registers), indexing="ij")
    found = np.zeros(size, np.bool_)
    for iteration in product(*(values for _, values in loops)):
        at = {t.THREAD: thread, t.REGISTER: register, a.WARPGROUP: thread // WARPGROUP_THREADS}
        at |= {name: np.full_like(thread, value) for (name, _), value in zip(loops, iteration, strict=True)}
        taken = np.ones(thread.shape, np.bool_)
        for condition in guard:
            taken &= values_at(condition, at).astype(np.bool_)
        first = values_at(offset, at)[taken]
        if first.size and (first.min() < 0 or first.max() + vector > size):
            return None
        found[(first[:, None] + np.arange(vector)).ravel()] = True
    return found
