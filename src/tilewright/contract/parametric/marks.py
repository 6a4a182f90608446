"""The marks of a protocol: of which executions the proof speaks, and which statements about them are ever asked for.

The ops of a class in a stretch fall into runs: what a class did before an op that signals others becomes known apart
from what it does after. Ops of which nothing is asked have no mark, and a mark has a slot only in the segments of
knowledge in which something is asked of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from enum import IntEnum

from tilewright.contract.parametric.classes import Class
from tilewright.hw.spaces import Space
from tilewright.protocol import ops
from tilewright.protocol.graph import EventGraph
from tilewright.protocol.ops import FenceSpace

GROUPS: dict[type[object], str] = {
    ops.Wgmma: "wgmma",
    ops.TmaStore: "bulk",
    ops.Tcgen05Ld: "ld",
    ops.Tcgen05St: "st",
}
"""Ops that complete in groups, by the queue they go through."""

TENSOR_QUEUES = frozenset(("ld", "st"))

CUTS = frozenset((
    ops.Arrive, ops.ArriveExpectTx, ops.TmaLoad, ops.BarSync, ops.BarArrive, ops.CtaSync, ops.Wgmma,
    ops.FenceProxyAsync, ops.ClusterArrive, ops.Tcgen05Commit, ops.Tcgen05FenceBefore, ops.Tcgen05FenceAfter,
    ops.CpAsyncArrive,
))  # fmt: skip
"""Ops at which what a class did before becomes known apart from what it does after."""


class Segment(IntEnum):
    """Kinds of knowledge of others, as in ``contract.state``: of which an op may ask, and be asked."""

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
    TOLD = 5
    """Was handed over, and is not behind an after-fence yet."""


@dataclass(frozen=True, eq=False)
class Mark:
    """A run of ops of a class in a stretch, over before position ``end``; with a queue, their completions."""

    owner: int
    stretch: int
    end: int
    asked: Set[Segment]
    queue: str = ""
    space: FenceSpace = FenceSpace.ALL
    """The state space of its accesses, ALL where they reach several: such a run no fence of one space covers."""

    def fenced_by(self, space: FenceSpace) -> bool:
        """Whether a proxy fence of a space orders all its accesses."""
        return space in (FenceSpace.ALL, self.space)


Asked = Mapping[tuple[int, int, int], Set[Segment]]
"""What is asked of the accesses of an op, by class, stretch and position."""


class Marks:
    """All marks, and the mark of each op."""

    def __init__(self, graph: EventGraph, classes: tuple[Class, ...], asked: Asked, waits: Set[Segment]):
        """``asked``: of accesses; ``waits``: of waits, beside whether they returned."""
        self.classes = classes
        self._accesses = asked
        self._waits = {Segment.SCHEDULE, *waits}
        arrived = {x.step.op.id.text for c in classes for x in c.sites() if isinstance(x.step.op, ops.BarArrive)}
        self._entered = arrived
        self.tensor = any(b.space is Space.TMEM for b in graph.protocol.buffers)
        self._global = frozenset(b.name for b in graph.protocol.buffers if b.space is Space.GLOBAL)
        self.event: dict[tuple[int, int, int], Mark] = {}
        """Per class, stretch and position: the run that the op belongs to."""
        self.done: dict[tuple[int, int, int], Mark] = {}
        """The same for the completions of asynchronous ops."""
        self.events: dict[int, list[Mark]] = {c.index: [] for c in classes}
        self.completions: dict[int, list[Mark]] = {c.index: [] for c in classes}
        """Those of tensor memory first."""
        for c in classes:
            for s, code in enumerate(c.ops):
                self._runs(c, s, code)
                self._queued(c, s, code)
            self.completions[c.index].sort(key=lambda m: m.queue not in TENSOR_QUEUES)

    def _runs(self, c: Class, s: int, code: tuple[ops.Op, ...]) -> None:
        run, asked = list[int](), set[Segment]()
        for i, op in enumerate(code):
            found = self._asked(c, s, i, op)
            if found is not None:
                run.append(i)
                asked |= found
            if run and (i + 1 == len(code) or (type(op) in CUTS and not _goes_on(code, i))):
                mark = Mark(c.index, s, i + 1, asked, space=self._space([code[at] for at in run]))
                self.events[c.index].append(mark)
                for at in run:
                    self.event[c.index, s, at] = mark
                run, asked = list[int](), set[Segment]()

    def _space(self, run: list[ops.Op]) -> FenceSpace:
        """Where the generic accesses of a run lie; waits stand for copies of cp.async, which write shared memory."""
        reached = {
            FenceSpace.GLOBAL if isinstance(op, ops.Read | ops.Write) and op.region.buffer in self._global
            else FenceSpace.SHARED
            for op in run
            if isinstance(op, ops.Read | ops.Write | ops.Wait)
        }  # fmt: skip
        return reached.pop() if len(reached) == 1 else FenceSpace.ALL

    def _queued(self, c: Class, s: int, code: tuple[ops.Op, ...]) -> None:
        run = list[int]()
        for i, op in enumerate(code):
            queue = GROUPS.get(type(op))
            if queue is None:
                continue
            run.append(i)
            if _goes_on(code, i):
                continue
            asked = set[Segment]().union(*(self._accesses.get((c.index, s, at), ()) for at in run))
            mark = Mark(c.index, s, i + 1, asked, queue)
            self.completions[c.index].append(mark)
            for at in run:
                self.done[c.index, s, at] = mark
            run = []

    def _asked(self, c: Class, s: int, i: int, op: ops.Op) -> Set[Segment] | None:
        """What is asked of an op; None: it belongs to no run."""
        match op:
            case ops.Read() | ops.Write() | ops.Tcgen05Dealloc():
                return self._accesses.get((c.index, s, i))
            case ops.Wait():
                return self._waits
            case ops.TmaLoad(_, _, ctas):
                return _SCHEDULE if any(e.constant != c.cta for e in ctas) else None
            case ops.BarSync(id):
                return _SCHEDULE if id.text in self._entered else None
            case ops.CtaSync():
                return _SCHEDULE if "0" in self._entered else None
            case (
                ops.Arrive() | ops.ArriveExpectTx() | ops.ExpectTx() | ops.CpAsyncArrive() | ops.Tcgen05Commit()
                | ops.FenceMbarrierInit()
            ):  # fmt: skip
                return _SCHEDULE
            case ops.Tcgen05Alloc():
                return _MEMORY
            case _:
                return None


_SCHEDULE, _MEMORY = frozenset((Segment.SCHEDULE,)), frozenset((Segment.MEMORY,))


def _goes_on(code: tuple[ops.Op, ...], i: int) -> bool:
    """Whether the next op is an asynchronous one like this: nothing can tell them apart."""
    kind = type(code[i])
    return kind in GROUPS and i + 1 < len(code) and type(code[i + 1]) is kind
