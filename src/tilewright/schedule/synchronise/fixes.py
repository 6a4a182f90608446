"""Candidate fixes of a violation: waits, fences and barriers, at places that the violation and the program's own
indices suggest.

The prover decides whether a fix is right. Fixes come cheapest first, and near the violation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.base.expr import Const, Expr, Mod, children, sym
from tilewright.hw.tensormap import MAP_BYTES
from tilewright.protocol import ops
from tilewright.protocol.edit import Insertion, NodePath, spots
from tilewright.protocol.effects import (
    CP_ASYNC,
    TENSOR,
    Access,
    Await,
    BarrierLife,
    BarrierScope,
    Count,
    Engine,
    Proxy,
    Queue,
    Retire,
    Signal,
    Sync,
)
from tilewright.protocol.model import By, If, Loop, Node, Protocol, Step
from tilewright.schedule.synchronise.cost import join
from tilewright.schedule.synchronise.types import Fix, ProtocolViolation

MOST_IN_FLIGHT = 3
"""Groups that a wait may leave open."""

_RACES = ("MBR016", "MBR017", "MBR018", "MBR023", "MBR029")
_PHASES = ("MBR013", "MBR015")

_GROUP_WAITS = {
    effect.queue: kind
    for kind in (ops.BulkWait, ops.CpAsyncWait, ops.WgmmaWait, ops.Tcgen05WaitLd, ops.Tcgen05WaitSt)
    for effect in kind().of(Retire)
}
"""The op that waits for the groups of a queue."""

Test = Callable[[ops.Op], bool]


def _arrives(op: ops.Op) -> bool:
    return any(signal.arrivals for signal in op.of(Signal))


def _hands_on(op: ops.Op) -> bool:
    """Whether a thread publishes its earlier accesses by the op."""
    syncs = (sync.arrives and sync.scope is not BarrierScope.WARP for sync in op.of(Sync))
    return _arrives(op) or op.engine is Engine.STORES or any(syncs)


def _joins_cta(op: ops.Op) -> bool:
    return any(sync.scope is BarrierScope.CTA and sync.waits for sync in op.of(Sync))


def _arrival(op: ops.Op, tracked: bool = True) -> ops.Slot | None:
    """The barrier on which an op arrives by itself, without expecting bytes; ``tracked``: also on completion of
    products."""
    signals = list(op.of(Signal))
    mine = (x for x in signals if x.arrivals and (x.after is None or (tracked and x.after is TENSOR)))
    return next((x.bar for x in mine if not any(y.expects for y in signals)), None)


def _queued(op: ops.Op, queue: Queue) -> bool:
    return any(x.queue is queue for x in op.accesses)


def _fills(access: Access, buffer: str) -> bool:
    return access.writes and access.region.buffer == buffer


def fixes(protocol: Protocol, violation: ProtocolViolation) -> Iterator[Fix]:
    """Candidate fixes of ``violation``."""
    yield from _FixFinder(protocol, violation).run()


@dataclass
class _FixFinder:
    protocol: Protocol
    violation: ProtocolViolation

    def __post_init__(self) -> None:
        found = dict(spots(self.protocol))
        self.steps = found
        self.here = self.violation.spot
        self.there = self.violation.other
        self.step = found.get(self.here) if self.here is not None else None
        if self.there is None and self.violation.code == "MBR016":
            self.there = self._writer()
        self.other = found.get(self.there) if self.there is not None else None

    def _writer(self) -> NodePath | None:
        """A step that writes what the violating step reads, where the run had none."""
        if self.step is None:
            return None
        wanted = self.violation.buffer
        others = ((spot, step) for spot, step in self.steps.items() if spot != self.here)
        writers = (spot for spot, step in others if any(_fills(x, wanted) for x in step.op.accesses))
        return next(writers, None)

    def run(self) -> Iterator[Fix]:
        code = self.violation.code
        if code == "MBR024":
            yield from self._drains()
        if self.here is None or self.step is None:
            return
        if code == "MBR031":
            yield self._before(self.here, ops.WgmmaFence(), By.ALL)
        if code in ("MBR019", "MBR020"):
            yield from self._proxy_fences()
        if code == "MBR030":
            yield from self._tensor_fences()
        if code in ("MBR021", "MBR022"):
            yield from self._init_fences()
        if code in ("MBR033", "MBR017", "MBR023"):
            yield from self._descriptors()
        if code in _RACES:
            yield from self._group_waits()
        joins = self._joins() if code in (*_RACES, "MBR013") else ()
        if self._among_threads:
            yield from joins
        if code in (*_RACES, *_PHASES, "MBR010", "MBR033"):
            yield from self._waits()
        if not self._among_threads:
            yield from joins
        if code in _RACES:
            yield from self._together()

    @property
    def _among_threads(self) -> bool:
        """Whether both accesses are one role's and no barrier tracks the other one: the role's threads need a
        barrier."""
        same = self.here is not None and self.there is not None and self.here.role == self.there.role
        return same and self.other is not None and self.other.op.slot is None

    # -- one op ---------------------------------------------------------------------------------------------------
    @staticmethod
    def _before(spot: NodePath, op: ops.Op, by: By) -> Fix:
        return (Insertion(spot, Step(op, by)),)

    @staticmethod
    def _behind(spot: NodePath, op: ops.Op, by: By) -> Fix:
        return (Insertion(spot, Step(op, by), behind=True),)

    def _proxy_fences(self) -> Iterator[Fix]:
        """A proxy fence after the generic access, in its threads, or (cp.async) before its use."""
        assert self.here is not None
        assert self.step is not None
        if self.there is not None and self.other is not None and not _queued(self.other.op, CP_ASYNC):
            yield self._behind(self.there, ops.FenceProxyAsync(), By.ALL)
        yield self._before(self.here, ops.FenceProxyAsync(), self.step.by)

    def _tensor_fences(self) -> Iterator[Fix]:
        assert self.here is not None
        assert self.step is not None
        after = self._before(self.here, ops.Tcgen05FenceAfter(), self.step.by)
        yield after
        if self.there is None or self.other is None:
            return
        for release in self._next(self.there, _hands_on):
            before = self._before(release, ops.Tcgen05FenceBefore(), self.other.by)
            yield before
            yield (*before, *after)

    def _init_fences(self) -> Iterator[Fix]:
        inits = [
            (spot, step) for spot, step in self.steps.items() if any(life.begins for life in step.op.of(BarrierLife))
        ]
        if inits:
            spot, step = inits[-1]
            yield self._behind(spot, ops.FenceMbarrierInit(), step.by)

    def _descriptors(self) -> Iterator[Fix]:
        """A written tensor map is released where it was written, and acquired there or before its use."""
        assert self.step is not None
        maps = {x.region.buffer for x in self.step.op.accesses if x.proxy is Proxy.TENSORMAP}
        for spot, step in self.steps.items():
            for rewrite in (x for x in step.op.accesses if x.writes and x.generic and x.region.buffer in maps):
                if rewrite.region.size != MAP_BYTES:
                    continue
                assert self.here is not None
                release = self._behind(spot, ops.TensormapRelease(rewrite.region), step.by)
                yield (*release, *self._behind(spot, ops.TensormapAcquire(rewrite.region), step.by))
                yield (*release, *self._before(self.here, ops.TensormapAcquire(rewrite.region), step.by))

    # -- joins ----------------------------------------------------------------------------------------------------
    def _joins(self) -> Iterator[Fix]:
        """A barrier of a role's threads: before the violation, or before the other access is published."""
        assert self.here is not None
        if self.there is None:
            yield from ((Insertion(s, join(self.protocol, s.role)),) for s in self._next(self.here, _hands_on))
            return
        if self.here.role == self.there.role:
            yield (Insertion(self.here, join(self.protocol, self.here.role)),)
            yield (Insertion(self.there, join(self.protocol, self.there.role), behind=True),)
        for release in self._next(self.there, _hands_on):
            yield (Insertion(release, join(self.protocol, release.role)),)

    # -- groups ---------------------------------------------------------------------------------------------------
    def _group_waits(self) -> Iterator[Fix]:
        """The other access is in an asynchronous group: its threads wait for it, before the violation or before they
        publish it."""
        if self.there is None or self.other is None or self.here is None:
            return
        kinds = _waits_for(self.other.op)
        mine = self.here.role == self.there.role
        places = [*self._previous(self.here, _joins_cta), self.here] if mine else []
        places = list(dict.fromkeys([*places, *self._next(self.there, _hands_on)]))
        waits = [Insertion(p, Step(op, self.other.by)) for kind in kinds for p in places for op in _waits_of(kind)]
        yield from ((wait,) for wait in waits)
        if mine:
            yield from ((wait, Insertion(wait.spot, join(self.protocol, wait.spot.role))) for wait in waits)

    def _together(self) -> Iterator[Fix]:
        """Both a wait here and a further step there, where neither alone suffices."""
        assert self.here is not None
        if self.there is None or self.there.role == self.here.role:
            return
        for wait in self._waits():
            yield from ((*wait, *more) for more in (*self._group_waits(), *self._joins()))

    def _drains(self) -> Iterator[Fix]:
        """Waits at a role's end for everything that it has started."""
        for role, body in ((i, r.body) for i, r in enumerate(self.protocol.roles)):
            if role != self.violation.role:
                continue
            end = NodePath(role, (len(body) - 1,))
            for spot, step in self.steps.items():
                for kind in _waits_for(step.op) if spot.role == role else ():
                    yield self._behind(end, _waits_of(kind)[-1], step.by)

    # -- mbarriers ------------------------------------------------------------------------------------------------
    def _waits(self) -> Iterator[Fix]:
        """A wait before the violation, for a barrier that the other access completes or is published by."""
        assert self.here is not None
        assert self.step is not None
        slots = {b.name: b.slots for b in self.protocol.barriers}
        waited = {wait.bar.barrier for wait in self.step.op.of(Await)}
        for name in self._barriers():
            if name in waited:
                continue
            scope = ops.Scope.CLUSTER if self._remote(name) else ops.Scope.CTA
            for use in self._uses(slots[name]):
                for lap in (0, 1):
                    yield self._before(self.here, _wait(name, slots[name], use, lap, scope), self.step.by)
            if slots[name] > 1:  # all slots: nothing of the ring is in use
                for use in self._uses(slots[name]):
                    yield tuple(
                        Insertion(self.here, Step(_wait(name, slots[name], use + s, 1, scope), self.step.by))
                        for s in range(slots[name])
                    )

    def _barriers(self) -> list[str]:
        """Barriers to wait for: the one that tracks the other access, those on which its role arrives next (first those
        whose arrivals use the same stage), then any on which another role arrives."""
        assert self.here is not None
        found: list[str] = []
        if self.there is not None and self.other is not None:
            found += [signal.bar.barrier for signal in self.other.op.of(Signal)]
            next_ones = [self._arrival(s) for s in self._next(self.there, _arrives)]
            alike = set(self._shared(self.other.op))
            found += [x.barrier for x in next_ones if set(_inner(x.index)) == alike]
            found += [x.barrier for x in next_ones]
        else:
            found += self._given_back()
        others = (step.op for spot, step in self.steps.items() if spot.role != self.here.role)
        found += [bar.barrier for op in others if (bar := _arrival(op)) is not None]
        mine = (step.op for spot, step in self.steps.items() if spot.role == self.here.role)
        own = {bar.barrier for op in mine if (bar := _arrival(op, tracked=False)) is not None}
        return [name for name in dict.fromkeys(found) if name not in own]  # it hands on there, it does not take

    def _given_back(self) -> Iterator[str]:
        """Barriers on which others arrive once they have read what the violation's own barrier tracks."""
        assert self.here is not None
        bar = self.step.op.slot if self.step is not None else None
        name = bar.barrier if bar is not None else ""
        accesses = (x for step in self.steps.values() for x in step.op.accesses if x.writes)
        tracked = {x.region.buffer for x in accesses if isinstance(x.until, ops.Slot) and x.until.barrier == name}
        for spot, step in self.steps.items():
            for region in step.op.regions:
                if spot.role != self.here.role and region.buffer in tracked:
                    uses = set(_inner(region.begin))
                    arrivals = (self._arrival(s) for s in self._next(spot, _arrives))
                    yield from (x.barrier for x in arrivals if set(_inner(x.index)) == uses)

    def _arrival(self, spot: NodePath) -> ops.Slot:
        return next(x.bar for x in self.steps[spot].op.of(Signal) if x.arrivals)

    def _shared(self, op: ops.Op) -> Iterator[Expr]:
        """The stage indices, on the side of ``op``, of the buffers that both accesses use."""
        assert self.step is not None
        assert self.other is not None
        both = {r.buffer for r in self.step.op.regions} & {r.buffer for r in self.other.op.regions}
        for region in op.regions:
            if region.buffer in both:
                yield from _inner(region.begin)

    def _remote(self, name: str) -> bool:
        return any(
            signal.arrivals and signal.bar.barrier == name and signal.bar.cta is not None
            for step in self.steps.values()
            for signal in step.op.of(Signal)
        )

    def _uses(self, slots: int) -> list[Expr]:
        """Candidate use numbers of a pipeline of ``slots`` at the violation: from its own bytes, its step and its role,
        then counters by how closely their loops match those of the other access."""
        assert self.here is not None
        assert self.step is not None
        role = self.protocol.roles[self.here.role]
        loops = list(_loops(role.body, self.here.path))
        scope = {*(name for name, _ in role.counters), *loops}
        found: list[Expr] = []
        if slots > 1:
            if self.other is not None:
                found += self._shared(self.step.op)
            found += _numerators(self.step.op, slots)
            for spot, step in self.steps.items():
                if spot.role == self.here.role:
                    found += _numerators(step.op, slots)
        found += sorted(map(sym, scope), key=lambda e: (self._paces(str(e)), str(e) in loops, str(e)))
        found += [Const(0)]
        return [e for e in dict.fromkeys(found) if e.symbols <= scope]

    def _paces(self, counter: str) -> int:
        """The difference in depth between the loops that advance a counter and those around the other access."""
        assert self.here is not None
        side = self.there if self.there is not None else self.here
        wanted = len(list(_loops(self.protocol.roles[side.role].body, side.path)))
        body = self.protocol.roles[self.here.role].body
        advances = [
            len(list(_loops(body, spot.path)))
            for spot, step in self.steps.items()
            if spot.role == self.here.role and any(e.counter == counter for e in step.op.of(Count))
        ]
        around = list(_loops(body, self.here.path))
        depths = advances or ([around.index(counter) + 1] if counter in around else [0])
        return max(abs(depth - wanted) for depth in depths)

    # -- places ---------------------------------------------------------------------------------------------------
    def _next(self, spot: NodePath, test: Test) -> list[NodePath]:
        """Steps of the same role that pass a test and run after ``spot``: later ones in order, then earlier ones of the
        loops around it."""
        mine = [s for s in self.steps if s.role == spot.role and test(self.steps[s].op)]
        around = _outermost(self.protocol.roles[spot.role].body, spot.path)
        later = [s for s in mine if s.path > spot.path]
        again = [s for s in mine if s.path <= spot.path and around is not None and s.path[: len(around)] == around]
        return later + again

    def _previous(self, spot: NodePath, test: Test) -> list[NodePath]:
        """The nearest step before ``spot`` in its block that passes a test."""
        block = [s for s in self.steps if s.role == spot.role and s.path[:-1] == spot.path[:-1] and s < spot]
        return [s for s in block if test(self.steps[s].op)][-1:]


def _waits_for(op: ops.Op) -> list[type[Any]]:
    """The ops that wait for the groups of an op's accesses."""
    return [_GROUP_WAITS[q] for q in dict.fromkeys(x.queue for x in op.accesses) if q in _GROUP_WAITS]


def _waits_of(kind: type[Any]) -> Sequence[ops.Op]:
    """Waits of a kind, the one that leaves most groups in flight first."""
    if kind in (ops.Tcgen05WaitLd, ops.Tcgen05WaitSt):
        return [kind()]
    if kind is ops.BulkWait:
        return [ops.BulkWait(n, read=True) for n in range(MOST_IN_FLIGHT, -1, -1)] + [ops.BulkWait(0)]
    return [kind(n) for n in range(MOST_IN_FLIGHT, -1, -1)]


def _wait(name: str, slots: int, use: Expr, lap: int, scope: ops.Scope) -> ops.Wait:
    """A wait for use number ``use`` of a pipeline: in its own phase (0), or for the phase before (1)."""
    return ops.Wait(ops.Slot(name, use % slots), (use // slots + lap) % 2, scope)


def _numerators(op: ops.Op, slots: int) -> Iterator[Expr]:
    """``v`` of every ``v % slots`` in an op."""
    for e in op.expressions:
        yield from _inner(e, slots)


def _inner(e: Expr, slots: int | None = None) -> Iterator[Expr]:
    """``v`` of every ``v % slots`` in an expression, of any number of slots if None."""
    pending = [e]
    while pending:
        node = pending.pop()
        if isinstance(node, Mod) and (slots is None or node.denominator == Const(slots)):
            yield node.numerator
        pending += children(node)


def _nodes_around(nodes: tuple[Node, ...], path: tuple[int, ...]) -> Iterator[tuple[Node, tuple[int, ...]]]:
    """The loops and branches around a place, outermost first, with their own places."""
    here: tuple[int, ...] = ()
    for position in path[:-1]:
        node = nodes[position]
        here = (*here, position)
        yield node, here
        match node:
            case Loop():
                nodes = node.body
            case If():
                nodes = node.then + node.otherwise
            case Step():
                return


def _loops(nodes: tuple[Node, ...], path: tuple[int, ...]) -> Iterator[str]:
    for node, _ in _nodes_around(nodes, path):
        if isinstance(node, Loop):
            yield node.counter


def _outermost(nodes: tuple[Node, ...], path: tuple[int, ...]) -> tuple[int, ...] | None:
    return next((here for node, here in _nodes_around(nodes, path) if isinstance(node, Loop)), None)
