"""The memory accesses of each class's ops, their conflicts, and the orders that these require."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import cast

from tilewright.base.cached import cached_property
from tilewright.protocol import effects, ops
from tilewright.protocol.effects import BULK, CP_ASYNC, TENSOR, WGMMA, Mode, Part, Proxy, Stage, TensorLife
from tilewright.protocol.graph import EventGraph, Site, TouchedBytes
from tilewright.protocol.product_graph import OutsideFragment
from tilewright.verify.parametric.classes import Class, Ref
from tilewright.verify.parametric.marks import Segment, goes_on
from tilewright.verify.parametric.matching import Array, BarrierUse

TRACKED = frozenset((CP_ASYNC, TENSOR))
"""Queues whose ops are known to be done by waits on barriers."""

RUNS = frozenset((WGMMA, BULK))
"""Queues whose ops come in runs of indistinguishable ops."""


_OF_A_CTA = frozenset(("shared", "tmem"))


class ClassAccess:
    """The access of an op of a class, or of a run of them, to some bytes; for a copy with the barrier that tracks it,
    and the number of its phase in iterations."""

    def __init__(self, ref: Ref, place: TouchedBytes, effect: effects.Access, landing: tuple[Array, int] | None = None):
        self.ref, self.place, self.effect, self.landing = ref, place, effect, landing
        self.queue, self.writes, self.generic, self.frees = effect.queue, effect.writes, effect.generic, effect.frees
        self.private = effect.part is Part.THREAD
        """Whether each thread touches its own part."""
        self.engine = self.queue.name if self.queue is not None else effect.name
        """What performs the access, for messages and to distinguish accesses."""
        self.register = place.memory[0] == "register"
        """Whether the bytes are the role's own registers."""
        self.peer = place.memory[1] if place.memory[0] in _OF_A_CTA and place.memory[1] != ref.c.cta else None
        """The CTA whose bytes these are, if it is another one."""
        self.reaches = effect.proxy is Proxy.ASYNC
        """Whether the bytes are accessed through the asynchronous proxy."""
        self.kind = self.engine, self.writes, self.private, ref.c.index
        """The properties that distinguish accesses to one place with respect to order."""


def same_stages(x: TouchedBytes, y: TouchedBytes) -> bool:
    """Whether both are stages of one pipeline, selected by the same counter."""
    return (
        x.index is not None
        and y.index is not None
        and (x.base, x.stage, x.stages) == (y.base, y.stage, y.stages)
        and x.index.iv == y.index.iv
    )


def overlap(x: TouchedBytes, y: TouchedBytes) -> bool:
    """Whether some executions may touch the same bytes."""
    if same_stages(x, y):
        return x.begin < y.end and y.begin < x.end
    a, b = x.span, y.span
    return a[0] < b[1] and b[0] < a[1]


Series = list[ClassAccess]
"""Accesses of a class to one place in one block, repeated in the same way, in program order."""


class ClassAccesses:
    """All accesses of a protocol, by memory and place."""

    def __init__(self, found: Iterable[ClassAccess]):
        self.memories: dict[tuple[object, ...], list[list[Series]]] = {}
        """Per memory, the accesses to each place."""
        places: dict[tuple[object, ...], dict[tuple[object, ...], Series]] = {}
        for a in found:
            p = a.place
            key = p.memory, p.begin, p.end, p.base, p.stage, p.stages, p.index
            places.setdefault(key, {}).setdefault((a.kind, a.ref.s), []).append(a)
        for (memory, *_), series in places.items():
            self.memories.setdefault(cast(tuple[object, ...], memory), []).append(list(series.values()))

    def series(self) -> Iterator[Series]:
        """Every series."""
        return (series for places in self.memories.values() for place in places for series in place)

    def clashing(self) -> Iterator[tuple[Series, Series]]:
        """Pairs of series on the same bytes, one of them writes. In registers those of one engine are in order."""
        for one, two in self._neighbours:
            for k, xs in enumerate(one):
                for ys in one[k:] if two is one else two:
                    x, y = xs[0], ys[0]
                    if (x.writes or y.writes) and not (x.register and x.engine == y.engine):
                        yield xs, ys

    @cached_property
    def _neighbours(self) -> list[tuple[list[Series], list[Series]]]:
        """Pairs of places that overlap, found in a sweep over their spans: a place has few neighbours among many."""
        found: list[tuple[list[Series], list[Series]]] = []
        for places in self.memories.values():
            at = [place[0][0].place for place in places]
            open_: list[int] = []  # places that begin before this one and have not ended
            pairs: list[tuple[int, int]] = []
            for n in sorted(range(len(at)), key=lambda n: at[n].span):
                begin, _ = at[n].span
                open_ = [m for m in open_ if at[m].span[1] > begin]
                open_.append(n)
                pairs += ((min(m, n), max(m, n)) for m in open_ if overlap(at[m], at[n]))
            found += ((places[m], places[n]) for m, n in sorted(pairs))
        return found

    def asked(self) -> tuple[dict[tuple[int, int, int], set[Segment]], set[Segment]]:
        """The ordering queries of each op that accesses memory and of waits, by place: all accesses to a place have the
        same queries."""
        ops_asked: dict[tuple[int, int, int], set[Segment]] = {}
        waits: set[Segment] = set()
        for one, two in self._neighbours:
            kinds = [{series[0].kind: series[0] for series in place} for place in (one, two)]
            for place, mine, others in ((one, *kinds), (two, *reversed(kinds))):
                asked_of = {
                    kind: set[Segment]().union(*(_asked(x, y) for y in others.values() if x.writes or y.writes))
                    for kind, x in mine.items()
                }
                for series in place:
                    asked = asked_of[series[0].kind]
                    if series[0].peer is not None:
                        asked = {Segment.SCHEDULE, *asked}  # the peer has to outlive it
                    if asked and (series[0].landing is not None or series[0].queue in TRACKED):
                        waits |= asked
                    elif asked:
                        for a in series:
                            ops_asked.setdefault((a.ref.c.index, a.ref.s, a.ref.i), set()).update(asked)
        return ops_asked, waits


def _asked(x: ClassAccess, y: ClassAccess) -> Iterable[Segment]:
    """The segments in which ``y`` requires that ``x`` has completed."""
    plainly = (Segment.MEMORY,) if y.generic else (Segment.SCHEDULE,)
    if x.generic:
        own = x.register or (x.private and y.private and x.ref.c.party == y.ref.c.party)
        if x.register or (own and not y.reaches):
            return ()
        if not y.reaches:
            return (Segment.MEMORY,)
        both = (Segment.MEMORY, Segment.WRITER_FENCED)
        return both if x.writes and not y.writes else (*both, Segment.FENCED)
    if x.frees:
        return (Segment.MEMORY,)
    if x.queue is None:
        return plainly
    if x.queue is CP_ASYNC:
        return (Segment.WRITER_FENCED, Segment.FENCED, Segment.MEMORY) if y.reaches else plainly
    if x.place.memory[0] == "tmem" and not y.frees:
        return (Segment.TENSOR,)
    if x.queue is not TENSOR and (x.ref.c is y.ref.c or (x.register and y.queue is x.queue)):
        return ()
    return plainly


def accesses_of(
    graph: EventGraph, classes: tuple[Class, ...], bars: Mapping[Array, BarrierUse]
) -> Iterator[ClassAccess]:
    """All accesses, class by class; raises ``OutsideFragment``."""
    landings: dict[Ref, list[tuple[Array, int]]] = {}
    for array, use in bars.items():
        for p in (p for f in use.landings for p in f.pieces):
            landings.setdefault(p.ref, []).append((array, p.number))
    places: dict[tuple[Site, int, int | None], TouchedBytes] = {}
    for c in classes:
        for s, code in enumerate(c.ops):
            run: list[ClassAccess] = []
            for i in range(len(code)):
                found = _of(graph, Ref(c, s, i), landings, places)
                run += (a for a in found if c.group.primary or not a.register)
                if run and not goes_on(code, i, RUNS):
                    yield from _merged(run)
                    run = []


def _merged(run: list[ClassAccess]) -> list[ClassAccess]:
    """The accesses of a run, each once; those of wgmma to neighbouring registers as one."""
    if len(run) < 2:
        return run
    out: list[ClassAccess] = []
    for a in sorted(run, key=lambda a: a.place.begin):
        for n, b in enumerate(out):
            one, two = a.place, b.place
            if (a.queue, a.writes) != (b.queue, b.writes) or one.begin > two.end:
                continue
            if (one == two and not a.writes) or (a.register and replace(one, begin=two.begin, end=two.end) == two):
                out[n] = ClassAccess(b.ref, replace(two, end=max(one.end, two.end)), b.effect, b.landing)
                break
        else:
            out.append(a)
    return out


def _of(
    graph: EventGraph,
    ref: Ref,
    landings: Mapping[Ref, list[tuple[Array, int]]],
    places: dict[tuple[Site, int, int | None], TouchedBytes],
) -> Iterator[ClassAccess]:
    def place(region: ops.Region, cta: int | None = None) -> TouchedBytes:
        key = ref.site, id(region), cta  # the site keeps its regions
        found = places.get(key)
        if found is None:
            found = places[key] = graph.place(ref.site, region, cta)
        return found

    for effect in ref.op.effects:
        match effect:
            case effects.Access(region, until=ops.Slot()):
                for array, number in landings.get(ref, ()):
                    yield ClassAccess(ref, place(region, array[0]), effect, (array, number))
            case effects.Access(region):
                if effect.queue is BULK and effect.stage is Stage.DONE:
                    raise OutsideFragment("bulk stores to named bytes")
                found = ClassAccess(ref, place(region), effect)
                if found.peer is not None and not found.generic:
                    raise OutsideFragment("asynchronous accesses to bytes of a peer")
                yield found
            case TensorLife(buffer, begins=False) if ref.c.group.primary:
                whole = ops.Region(buffer, ops.ZERO, graph.protocol.buffer(buffer).size)
                free = effects.Access(whole, Mode.WRITE, Proxy.TENSOR, name="the dealloc")
                yield ClassAccess(ref, graph.place(ref.site, whole), free)
            case _:
                pass
