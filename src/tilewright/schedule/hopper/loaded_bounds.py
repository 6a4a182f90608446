"""Bounds that a program loads, in kernels with roles: one thread of the producer loads them, and all roles read these.

One slot of shared memory holds the bounds of a program, behind a full and an empty barrier::

    producer    wait empty . load . st.shared . arrive full
    consumers                                   wait full . ld.shared . arrive empty (every thread)

The consumers read it when their program begins, so that the producer can be a program ahead. No role reads the tensor
again: a launch that overwrites it meanwhile may give garbage, but no roles that disagree on how often a loop runs.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Block, Operation, SSAValue

from tilewright.base.expr import TRUE, Const, Sym, own
from tilewright.schedule.hopper.configuration import RoleContext
from tilewright.tile import dialect as tile
from tilewright.tile.queries import element, is_elementwise, owner
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t

COUNTER = own("i_bound")
"""Programs whose bounds a role has read."""


class LoadedBounds:
    """The bounds of a kernel, and what they are computed from: the producer lowers that besides copies."""

    def __init__(self, kernel: tile.Kernel):
        self.binds = [op for op in kernel.walk() if isinstance(op, tile.Bind)]
        self.sources = _sources(self.binds)
        at = {kernel, *(op for op in self.sources if isinstance(op, tile.StreamLoop))}
        self.top_level = all(op.parent_op() in at for op in (*self.binds, *self.sources))
        self.one_by_one = all(isinstance(op, _ONE_BY_ONE) for op in self.sources)

    def refusal(self) -> str:
        """Why roles can't share the bounds; empty if they can."""
        if not self.top_level:
            return "bounds are loaded once a program, outside of streams"
        searches = [op for op in self.sources if not isinstance(op, _LOADS)]
        if not self.one_by_one or not all(self.only_for_bounds(op) for op in searches):
            return "bounds are computed from what is loaded, element by element"
        return ""

    def only_for_bounds(self, op: Operation) -> bool:
        """Whether an op contributes to bounds alone, so that consumers need not execute it."""
        if isinstance(op, tile.StreamLoop):
            return op in self.sources and all(
                inner in self.sources or is_elementwise(inner) or isinstance(inner, tile.Yield)
                for inner in op.walk()
                if inner is not op
            )
        return op in self.sources and all(self._only_bounds_use(result) for result in op.results)

    def _only_bounds_use(self, value: SSAValue) -> bool:
        users = (use.operation for use in value.uses)
        return all(
            isinstance(u, tile.Bind) or u in self.sources or (is_elementwise(u) and self._only_bounds_use(u.results[0]))
            for u in users
        )

    def declare(self, lowering: RoleContext) -> None:
        """Declares the shared slot and its barriers."""
        if not self.binds:
            return
        kind, threads = element(self.binds[0].value), a.WARPGROUP_THREADS * lowering.configuration.consumers
        slot = t.Shared("bound", kind, len(self.binds), 0)
        full, empty = a.Mbarriers("bound_full", 1, 1), a.Mbarriers("bound_empty", 1, threads)
        self.slot, self.full, self.empty = slot.buffer, full.bars, empty.bars
        lowering.declarations += [slot, full, empty]

    @property
    def bars(self) -> tuple[SSAValue, ...]:
        """The barriers to initialise."""
        return (self.full, self.empty) if self.binds else ()

    @property
    def counters(self) -> list[a.Counter]:
        """The counters of every role."""
        return [a.Counter(COUNTER)] if self.binds else []

    def lower(self, lowering: RoleContext, op: tile.Bind) -> None:
        """Lowers one bound, in the producer or in a consumer role."""
        number, use = self.binds.index(op), Sym(COUNTER)
        first, last = number == 0, number == len(self.binds) - 1
        if first:
            parity = (use + 1) % 2 if lowering.producing else use % 2
            lowering.emit(a.MbarrierWait(self.empty if lowering.producing else self.full, Const(0), parity), op)
        if lowering.producing:
            self._publish(lowering, op, number)
        given = lowering.registers("bound", element(op.value), 1)
        lowering.emit(t.SharedRead(self.slot, given, Const(number), TRUE), op)
        if lowering.producing and lowering.thread_copied:
            lowering.emit(t.Barrier(), op)
        lowering.emit(t.Bind(op.symbol.data, given, None if op.most is None else op.most.expr), op)
        if last:
            arrive = a.MbarrierArrive(self.full if lowering.producing else self.empty, Const(0))
            one = lowering.producing and lowering.thread_copied
            lowering.emit(a.Elected(t.block([arrive])) if one else arrive, op)
            lowering.emit(a.Advance(COUNTER))

    def _publish(self, lowering: RoleContext, op: tile.Bind, number: int) -> None:
        """Stores the bound to shared memory: by the elected thread, or the first of those that copy."""
        held = lowering.materialise(op.value, op).buffer
        guard = Sym(t.THREAD).eq(0) if lowering.thread_copied else TRUE
        lowering.emit(t.SharedWrite(self.slot, held, Const(number), guard), op)
        if lowering.thread_copied:
            lowering.emit(t.Barrier(), op)


_LOADS = (tile.Load, tile.Gather)
_ONE_BY_ONE = (*_LOADS, tile.FragmentInit, tile.FragmentRead, tile.FragmentWrite, tile.StreamLoop)
"""Ops that a single thread executes with the same result."""


def _sources(binds: Sequence[tile.Bind]) -> set[Operation]:
    """The ops that bounds are computed from, those aside that are computed where they are needed; of a fragment all
    that writes it."""
    found: set[Operation] = set()
    pending: list[SSAValue] = [op.value for op in binds]
    while pending:
        op = owner(pending.pop())
        if op is None or op in found:
            continue
        if not is_elementwise(op):
            found.add(op)
        pending += [v for v in op.operands if not isinstance(v.owner, Block)]
        if isinstance(op, tile.FragmentInit):
            for write in (use.operation for use in op.result.uses if isinstance(use.operation, tile.FragmentWrite)):
                around = write.parent_op()
                found |= {write, around} if isinstance(around, tile.StreamLoop) else {write}
                pending.append(write.value)
    return found
