"""The marks of a protocol: of which executions the proof speaks, and which statements about them are ever asked for.

The ops of a class in a block fall into runs: what a class did before an op that signals others becomes known apart
from what it does after. Ops of which nothing is asked have no mark, and a mark has a slot only in the segments of
knowledge in which something is asked of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from enum import IntEnum

from tilewright.base.expr import Expr
from tilewright.hw.spaces import Space
from tilewright.protocol import effects, ops
from tilewright.protocol.effects import (
    BULK,
    TENSOR_LOADS,
    TENSOR_STORES,
    WGMMA,
    Access,
    Await,
    BarrierLife,
    BarrierScope,
    Fence,
    Order,
    Queue,
    Signal,
    Sync,
    TensorLife,
)
from tilewright.protocol.graph import EventGraph
from tilewright.protocol.ops import FenceSpace
from tilewright.verify.parametric.classes import Class

GROUPS = frozenset((WGMMA, BULK, TENSOR_LOADS, TENSOR_STORES))
"""Queues whose ops are known to be done by waits for groups."""


def goes_on(code: tuple[ops.Op, ...], i: int, queues: Set[Queue] = GROUPS) -> bool:
    """Whether op ``i`` and the next op belong to such a queue and can't be distinguished."""
    queue = code[i].queue
    return queue in queues and i + 1 < len(code) and code[i + 1].queue is queue


def _cuts(op: ops.Op) -> bool:
    """Whether what a class did before the op becomes visible separately from what it does afterwards."""
    for effect in op.effects:
        match effect:
            case Signal():
                if effect.arrivals or effect.lands:
                    return True
            case Sync(scope, arrives=arrives):
                return arrives and scope is not BarrierScope.WARP
            case Fence(order):
                return order in (Order.ASYNC_PROXY, Order.TENSOR_BEFORE, Order.TENSOR_AFTER)
            case Access(until=effects.WGMMA):
                return True
            case _:
                pass
    return False


class Segment(IntEnum):
    """Kinds of knowledge about others, as in ``verify.canonical_runs.state``."""

    SCHEDULE = 0
    """Is past."""
    MEMORY = 1
    """Is visible."""
    WRITER_FENCED = 2
    """Is behind a proxy fence of its own threads."""
    FENCED = 3
    """Is behind a proxy fence."""
    TENSOR = 4
    """Is behind fences of tensor memory."""
    RELEASED = 5
    """Was handed over, and is not behind an after-fence yet."""


@dataclass(frozen=True, eq=False)
class OpRun:
    """A run of ops of a class in a block, over before position ``end``; with a queue, their completions."""

    owner: int
    block: int
    end: int
    asked: Set[Segment]
    queue: Queue | None = None
    space: FenceSpace = FenceSpace.ALL
    """The state space of its accesses, ALL where they reach several: such a run no fence of one space covers."""

    def fenced_by(self, space: FenceSpace) -> bool:
        """Whether a proxy fence of a space orders all its accesses."""
        return space in (FenceSpace.ALL, self.space)


Asked = Mapping[tuple[int, int, int], Set[Segment]]
"""The queries about the accesses of an op, by class, block and position."""


class Marks:
    """All marks, and the mark of each op."""

    def __init__(self, graph: EventGraph, classes: tuple[Class, ...], asked: Asked, waits: Set[Segment]):
        """``asked``: of accesses; ``waits``: of waits, beside whether they returned."""
        self.classes = classes
        self._accesses = asked
        self._waits = {Segment.SCHEDULE, *waits}
        syncs = (e for c in classes for x in c.sites() for e in x.step.op.of(Sync))
        self._entered = {e.number.text for e in syncs if e.number is not None and not e.waits}
        self.tensor = any(b.space is Space.TMEM for b in graph.protocol.buffers)
        self._global = frozenset(b.name for b in graph.protocol.buffers if b.space is Space.GLOBAL)
        self.event: dict[tuple[int, int, int], OpRun] = {}
        """Per class, block and position: the run that the op belongs to."""
        self.done: dict[tuple[int, int, int], OpRun] = {}
        """The same for the completions of asynchronous ops."""
        self.events: dict[int, list[OpRun]] = {c.index: [] for c in classes}
        self.completions: dict[int, list[OpRun]] = {c.index: [] for c in classes}
        """Those of tensor memory first."""
        for c in classes:
            for s, code in enumerate(c.ops):
                self._runs(c, s, code)
                self._queued(c, s, code)
            self.completions[c.index].sort(key=lambda m: m.queue is None or not m.queue.tensor_memory)

    def _runs(self, c: Class, s: int, code: tuple[ops.Op, ...]) -> None:
        run, asked = list[int](), set[Segment]()
        for i, op in enumerate(code):
            found = self._asked(c, s, i, op)
            if found is not None:
                run.append(i)
                asked |= found
            if run and (i + 1 == len(code) or (_cuts(op) and not goes_on(code, i))):
                mark = OpRun(c.index, s, i + 1, asked, space=self._space([code[at] for at in run]))
                self.events[c.index].append(mark)
                for at in run:
                    self.event[c.index, s, at] = mark
                run, asked = list[int](), set[Segment]()

    def _space(self, run: list[ops.Op]) -> FenceSpace:
        """The state space of a run's generic accesses; a wait represents cp.async copies, which write shared memory. An
        access to a named CTA, possibly a peer's, needs a fence of all spaces."""
        reached = {
            self._space_of(e.region) if isinstance(e, Access) else FenceSpace.SHARED
            for op in run
            for e in op.effects
            if isinstance(e, Await) or (isinstance(e, Access) and e.until is None)
        }
        return reached.pop() if len(reached) == 1 else FenceSpace.ALL

    def _space_of(self, region: ops.Region) -> FenceSpace:
        if region.buffer in self._global:
            return FenceSpace.GLOBAL
        return FenceSpace.SHARED if region.cta is None else FenceSpace.ALL

    def _queued(self, c: Class, s: int, code: tuple[ops.Op, ...]) -> None:
        run = list[int]()
        for i, op in enumerate(code):
            queue = op.queue
            if queue not in GROUPS:
                continue
            run.append(i)
            if goes_on(code, i):
                continue
            asked = set[Segment]().union(*(self._accesses.get((c.index, s, at), ()) for at in run))
            mark = OpRun(c.index, s, i + 1, asked, queue)
            self.completions[c.index].append(mark)
            for at in run:
                self.done[c.index, s, at] = mark
            run = []

    def _asked(self, c: Class, s: int, i: int, op: ops.Op) -> Set[Segment] | None:
        """The queries about an op; None: it belongs to no run."""
        for effect in op.effects:
            match effect:
                case Access(until=None) | TensorLife(begins=False):
                    return self._accesses.get((c.index, s, i))
                case TensorLife():
                    return _MEMORY
                case BarrierLife():
                    # one that is fenced is known by its fence
                    fenced = any(x.order is Order.MBARRIER_INIT for later in c.ops[s][i + 1 :] for x in later.of(Fence))
                    return None if fenced else _MEMORY
                case Await():
                    return self._waits
                case Signal(lands=lands, ranks=ranks):
                    return _SCHEDULE if not lands or any(e.constant != c.cta for e in ranks) else None
                case Sync(BarrierScope.CTA, waits=True, number=Expr() as number):
                    return _SCHEDULE if number.text in self._entered else None
                case Sync(BarrierScope.CLUSTER, arrives=True):
                    return _SCHEDULE  # by which peers are known to run
                case Fence(Order.MBARRIER_INIT):
                    return _SCHEDULE
                case _:
                    pass
        return None


_SCHEDULE, _MEMORY = frozenset((Segment.SCHEDULE,)), frozenset((Segment.MEMORY,))
