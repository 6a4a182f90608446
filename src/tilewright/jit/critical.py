"""The critical cycles of a pipeline's loops, and where one of them passes through a timed run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby

from tilewright.protocol.cycle import CriticalCycle, CycleEvent, critical_cycle
from tilewright.protocol.graph import graph_of
from tilewright.protocol.model import Protocol
from tilewright.protocol.product_graph import OutsideFragment
from tilewright.protocol.timed import TimedRun


@dataclass(frozen=True)
class CriticalMark:
    """An event of a critical cycle in a run: ``lane`` has done ``what`` at cycle ``when``, ``cycles`` after the event
    before it or later."""

    lane: str
    what: str
    when: float
    cycles: float


@dataclass(frozen=True)
class RepeatedLinks:
    """``count`` links of a cycle in a row that read alike: together they take ``cycles`` and ``iterations``."""

    link: CycleEvent
    count: int
    cycles: float
    iterations: int


def critical_cycles(protocol: Protocol) -> tuple[CriticalCycle, ...] | str:
    """The critical cycles of all innermost loops, each once; or why the protocol has none."""
    graph = graph_of(protocol)
    if isinstance(graph, str):
        return graph
    try:
        found = critical_cycle(graph)
    except OutsideFragment as reason:
        return str(reason)
    return tuple(dict.fromkeys(found))


def repeated(cycle: CriticalCycle) -> tuple[RepeatedLinks, ...]:
    """The links with equal neighbours as one."""

    def words(link: CycleEvent) -> tuple[object, ...]:
        return link.who, link.what, link.where

    links = list(cycle.links)
    first = next((i for i in range(len(links)) if words(links[i - 1]) != words(links[i])), 0)
    found: list[RepeatedLinks] = []
    for _, same in groupby((*links[first:], *links[:first]), key=words):
        parts = list(same)
        cycles, iterations = sum(part.cycles for part in parts), sum(part.iterations for part in parts)
        found.append(RepeatedLinks(parts[0], len(parts), cycles, iterations))
    return tuple(found)


def traced(run: TimedRun, cycle: CriticalCycle) -> tuple[CriticalMark, ...]:
    """Once around the cycle, each event at its first end that is not too early, where that takes least time; the last
    mark closes the circle. Empty where the run does not hold all its events.

    Events that take no time leave no span in a run; what they are waited for joins the link after.
    """
    ends: dict[tuple[str, str], list[float]] = {}
    for span in run.spans:
        ends.setdefault((span.lane, span.what), []).append(span.end)
    links = [link for link in cycle.links if (link.who, link.what) in ends]
    if not links:
        return ()
    circles = [_around(links, ends, begin) for begin in sorted(ends[links[0].who, links[0].what])]
    return min((c for c in circles if c), key=lambda c: c[-1].when - c[0].when, default=())


def _around(
    links: list[CycleEvent], ends: Mapping[tuple[str, str], list[float]], begin: float
) -> tuple[CriticalMark, ...]:
    """Once around from the end of the first event at cycle ``begin``."""
    marks = [CriticalMark(links[0].who, links[0].what, begin, links[0].cycles)]
    for link in (*links[1:], links[0]):
        earliest = marks[-1].when + (link.cycles or _STEP) - _STEP / 2
        when = min((end for end in ends[link.who, link.what] if end >= earliest), default=None)
        if when is None:
            return ()
        marks.append(CriticalMark(link.who, link.what, when, link.cycles))
    return tuple(marks)


_STEP = 1e-3
"""The difference in cycles that separates two events."""
