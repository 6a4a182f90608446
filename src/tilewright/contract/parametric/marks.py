"""The marks of a protocol: of which executions the proof speaks, and which statements about them are ever asked for.

The ops of a class in a stretch fall into runs: what a class did before an op that signals others becomes known apart
from what it does after. Ops of which nothing is asked have no mark, and a mark has a slot only in the segments of
knowledge in which something is asked of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntFlag, auto
from itertools import chain

from tilewright.contract.threads import Group, groups_of, runs
from tilewright.hw.spaces import Space
from tilewright.protocol import ops
from tilewright.protocol.graph import EventGraph, Site
from tilewright.protocol.model import By
from tilewright.protocol.word import NoWord

GROUPS: dict[type[object], str] = {
    ops.Wgmma: "wgmma",
    ops.TmaStore: "bulk",
    ops.Tcgen05Ld: "ld",
    ops.Tcgen05St: "st",
}
"""Ops that complete in groups, by the queue they go through."""

CUTS = (
    ops.Arrive, ops.ArriveExpectTx, ops.TmaLoad, ops.BarSync, ops.BarArrive, ops.CtaSync, ops.Wgmma,
    ops.FenceProxyAsync, ops.ClusterArrive, ops.Tcgen05Commit, ops.Tcgen05FenceBefore, ops.Tcgen05FenceAfter,
    ops.CpAsyncArrive,
)  # fmt: skip
"""Ops at which what a class did before becomes known apart from what it does after."""


class Asked(IntFlag):
    """What others ask of an op: whether it is past, its effect on memory visible, behind a proxy fence, behind the
    fences of tensor memory."""

    SCHEDULE = auto()
    MEMORY = auto()
    FENCED = auto()
    TENSOR = auto()


@dataclass(frozen=True, eq=False)
class Class:
    """Threads of a role in one CTA that run the same code; ``code`` per stretch."""

    index: int
    party: int
    group: Group
    cta: int
    code: tuple[tuple[Site, ...], ...]

    @property
    def role(self) -> tuple[str, int]:
        """Role and CTA."""
        return self.group.role, self.cta

    def sites(self) -> Iterator[Site]:
        """All ops the class executes."""
        return chain.from_iterable(self.code)


@dataclass(frozen=True, eq=False)
class Mark:
    """A run of ops of a class in a stretch, over before position ``end``; with a queue, their completions."""

    owner: int
    stretch: int
    end: int
    asked: Asked
    queue: str = ""


def classes_of(graph: EventGraph) -> tuple[Class, ...]:
    """The classes of threads of all parties; raises ``NoWord``."""
    out: list[Class] = []
    for p, (role, cta) in enumerate(graph.word.parties):
        if any(s.step.by is By.THREAD_ZERO for code in graph.sites[p] for s in code):
            raise NoWord("steps of thread zero")
        for group in groups_of(role):
            mine = runs(group.kind)
            code = tuple(tuple(s for s in code if s.step.by in mine) for code in graph.sites[p])
            out.append(Class(len(out), p, group, cta, code))
    return tuple(out)


class Marks:
    """All marks, and the mark of each op."""

    def __init__(self, graph: EventGraph, classes: tuple[Class, ...]):
        self.protocol = graph.protocol
        self.classes = classes
        used = {type(s.step.op) for c in classes for s in c.sites()}
        self.tensor = any(b.space is Space.TMEM for b in graph.protocol.buffers)
        self.copies = ops.CpAsync in used
        self.event: dict[tuple[int, int, int], Mark] = {}
        """Per class, stretch and position: the run that the op belongs to."""
        self.done: dict[tuple[int, int, int], Mark] = {}
        """The same for the completions of asynchronous ops."""
        self.events: dict[int, list[Mark]] = {c.index: [] for c in classes}
        self.completions: dict[int, list[Mark]] = {c.index: [] for c in classes}
        """Those asked about behind fences of tensor memory first."""
        for c in classes:
            for s, code in enumerate(c.code):
                self._runs(c, s, code)
                self._queued(c, s, code)
            self.completions[c.index].sort(key=lambda m: not m.asked & Asked.TENSOR)

    def _runs(self, c: Class, s: int, code: tuple[Site, ...]) -> None:
        run, asked = list[int](), Asked(0)
        for i, site in enumerate(code):
            found = self._asked(c, site)
            if found is not None:
                run.append(i)
                asked |= found
            last = i + 1 == len(code) or (isinstance(site.step.op, CUTS) and not _goes_on(code, i))
            if run and last:
                mark = Mark(c.index, s, i + 1, asked)
                self.events[c.index].append(mark)
                self.event |= {(c.index, s, at): mark for at in run}
                run, asked = [], Asked(0)

    def _queued(self, c: Class, s: int, code: tuple[Site, ...]) -> None:
        run = list[int]()
        for i, site in enumerate(code):
            queue = GROUPS.get(type(site.step.op))
            if queue is None:
                continue
            run.append(i)
            if _goes_on(code, i):
                continue
            asked = Asked.SCHEDULE | Asked.MEMORY | (Asked.TENSOR if queue in ("ld", "st") else Asked(0))
            mark = Mark(c.index, s, i + 1, asked, queue)
            self.completions[c.index].append(mark)
            self.done |= {(c.index, s, at): mark for at in run}
            run = []

    def _asked(self, c: Class, site: Site) -> Asked | None:
        """What is asked of an op; None: it belongs to no run."""
        match site.step.op:
            case ops.Read(region) | ops.Write(region):
                space = self.protocol.buffer(region.buffer).space
                if space is Space.REGISTER:
                    return None
                return Asked.MEMORY if space is Space.GLOBAL else Asked.MEMORY | Asked.FENCED
            case ops.Wait():
                found = Asked.SCHEDULE | Asked.MEMORY
                found |= Asked.FENCED if self.copies else Asked(0)
                return found | (Asked.TENSOR if self.tensor else Asked(0))
            case ops.TmaLoad(_, slot, ctas):
                return Asked.SCHEDULE if slot.cta is not None or any(e.constant != c.cta for e in ctas) else None
            case (
                ops.Arrive() | ops.ArriveExpectTx() | ops.ExpectTx() | ops.CpAsyncArrive() | ops.Tcgen05Commit()
                | ops.BarSync() | ops.CtaSync() | ops.FenceMbarrierInit()
            ):  # fmt: skip
                return Asked.SCHEDULE
            case ops.Tcgen05Alloc() | ops.Tcgen05Dealloc():
                return Asked.MEMORY
            case _:
                return None


def _goes_on(code: tuple[Site, ...], i: int) -> bool:
    """Whether the next op is an asynchronous one like this: nothing can tell them apart."""
    kind = type(code[i].step.op)
    return kind in GROUPS and i + 1 < len(code) and type(code[i + 1].step.op) is kind
