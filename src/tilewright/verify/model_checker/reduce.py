"""Partial-order reduction: of the moves that are possible, a set that no other thread can interfere with.

A set T of threads and completions is *persistent* when whatever the others do, without T, does not disturb T's next
moves. Then it is enough to go on with T's moves: every other order leads to the same ends. (Godefroid, Partial-Order
Methods for the Verification of Concurrent Systems, 1996, chapter 4; Valmari's stubborn sets.)

What the others can do without T is looked up in their programs: a *window* runs from where a thread stands to the first
wait that is blocked and that none of the others can complete.

    P   wait empty[1]  expect full[1]  load  |  wait empty[0]   blocked: needs the consumer
    C   wait full[0]   wgmma           ...            T = {P}: nothing before the bar has to do with P's next op

Signals on one barrier commute unless one of them alone could complete the phase.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tilewright.protocol import ops
from tilewright.verify.model_checker.barriers import rendezvous_of
from tilewright.verify.model_checker.footprint_types import CLUSTER, Key, OpFootprint, Signals
from tilewright.verify.model_checker.footprints import Footprints
from tilewright.verify.model_checker.instance import ProtocolInstance
from tilewright.verify.model_checker.moves import Move, enabled
from tilewright.verify.model_checker.op_semantics import OBSERVABLE, waited
from tilewright.verify.model_checker.recur import Recurrence
from tilewright.verify.model_checker.thread_program import Open, Position, TooLong, Trips
from tilewright.verify.model_checker.world import Completion, Problem, Queue, World

MAX_WINDOW = 300
"""Ops looked ahead before a thread counts as able to do anything."""

Who: TypeAlias = int | Completion
Place: TypeAlias = tuple[Position, Trips]
Passable: TypeAlias = frozenset[Key]


@dataclass
class Window:
    """What a thread can do before it blocks. ``stops`` are the barriers at which it then waits; ``sizes`` the thread
    counts of the rendezvous on its way; ``anything``: unknown."""

    print: OpFootprint = field(default_factory=OpFootprint)
    stops: set[Key] = field(default_factory=set[Key])
    sizes: dict[Key, int] = field(default_factory=dict[Key, int])
    anything: bool = False
    ends: bool = False
    """Whether it may reach the end of its program."""


@dataclass(frozen=True)
class TestedWait:
    """A wait that a window came by, and whether it was blocked: the window holds where the answer is the same."""

    op: Any
    at: Position
    blocked: bool


class PartialOrderReduction:
    """Chooses moves; keeps windows between states."""

    def __init__(self, g: ProtocolInstance, recurrence: Recurrence | None):
        self.g, self.prints, self.recurrence = g, Footprints(g), recurrence
        self._windows: dict[Hashable, list[tuple[tuple[TestedWait, ...], Window]]] = {}

    def chosen(self, w: World, enabled: list[Move], last: Move | None = None) -> list[Move]:
        """A persistent part of ``enabled``, small if one of a few tries is; who moved ``last`` is tried first."""
        if len(enabled) < 2:
            return enabled
        best = enabled
        groups: dict[Who, list[Move]] = {}
        for move in enabled:
            groups.setdefault(move.thread if move.completion is None else move.completion, []).append(move)
        try:
            search = _Search(self, w, groups)
            first = None if last is None or last.completion is not None else last.thread
            for seed in sorted(groups, key=lambda a: a != first):
                found = search.closure(seed, len(best))
                if found is not None and len(found) < len(best):
                    best = found
                    if len(best) == 1:
                        break
        except TooLong:
            return enabled
        return best

    # -- windows ----------------------------------------------------------------------------------------------------
    def window(self, w: World, t: int, passable: Passable) -> Window:
        """What thread ``t`` can do before it blocks, given the ``passable`` barriers."""
        trips = frozenset(w.trips.items()) if self.g.open else None
        entries = self._windows.setdefault((t, w.at[t], t in w.inside, passable, trips), [])
        for asked, window in entries:
            if all(self._blocked(w, t, a.op, a.at) == a.blocked for a in asked):
                return window
        log: list[TestedWait] = []
        found = self._walked(w, t, passable, log)
        entries.append((tuple(log), found))
        return found

    def _walked(self, w: World, t: int, passable: Passable, log: list[TestedWait]) -> Window:
        program, window = self.g.programs[t], Window()
        visited: set[Hashable] = set()
        todo: list[Place] = [(w.at[t], w.trips)]
        while todo:
            at, trips = todo.pop()
            here = at if self.recurrence is None else self.recurrence.ahead(t, at, trips)
            if here in visited:
                continue
            visited.add(here)
            if len(visited) > MAX_WINDOW:
                window.anything = True
                break
            if program.ended(at):
                window.print.add(self.prints.end(t))
                window.ends = True
                continue
            call = program.call(at)
            if call is None:
                todo += self._decided(t, at, trips)
                continue
            op = call.op
            mine = self.prints.of(t, op, False)
            entered = at == w.at[t] and t in w.inside
            if isinstance(op, _WAITS):
                blocked = self._blocked(w, t, op, at)
                log.append(TestedWait(op, at, blocked))
                try:
                    key = self.key_of(t, op)
                except Problem:
                    continue  # there is no such barrier: the thread gets no further
                if isinstance(op, _MEETS):
                    window.sizes[key] = min(rendezvous_of(self.g, t, op)[1], window.sizes.get(key, 1 << 20))
                    if not entered:
                        window.print.add(mine)
                if blocked:
                    window.stops.add(key)
                    if key not in passable:
                        continue
                    window.print.waits.add(key)
                if not isinstance(op, _MEETS):
                    window.print.add(mine)
            else:
                if isinstance(op, ops.BarArrive):
                    key, size, _ = rendezvous_of(self.g, t, op)
                    window.sizes[key] = min(size, window.sizes.get(key, 1 << 20))
                window.print.add(mine)
            todo.append(self._after(t, at, trips))
        return window

    def _after(self, t: int, at: Position, trips: Trips) -> Place:
        try:
            return self.g.programs[t].after(at, trips), trips
        except Open as e:
            return e.at, trips

    def _decided(self, t: int, at: Position, trips: Trips) -> list[Place]:
        """Both branches of an open decision."""
        program = self.g.programs[t]
        try:
            return [(program.settle(at, trips), trips)]
        except Open as e:
            low, _ = trips.get(e.key) or program.unseen(e.key)
            above = low + program.symbols[e.key[0]].multiple_of
            out: list[Place] = []
            for known in ((low, True), (above, False)):
                more = {**trips, e.key: known}
                try:
                    out.append((program.settle(at, more), more))
                except Open as f:
                    out.append((f.at, more))
            return out

    def key_of(self, t: int, op: Any) -> Key:
        """The barrier that an op waits on."""
        match op:
            case ops.Wait():
                return self.g.bar(t, op.bar)
            case ops.BarSync() | ops.CtaSync() | ops.WarpSync():
                return rendezvous_of(self.g, t, op)[0]
            case _:
                return CLUSTER

    def _blocked(self, w: World, t: int, op: Any, at: Position) -> bool:
        """Whether an op of the thread, now or when it is reached, would block in this state."""
        match op:
            case ops.Wait():
                return not enabled(self.g, w, t, op)
            case ops.BarSync() | ops.CtaSync() | ops.WarpSync():
                if at == w.at[t] and t in w.inside:
                    return t not in w.released
                key, size, _ = rendezvous_of(self.g, t, op)
                there = w.named.get(key)
                return (there.arrived if there else 0) + self.g.threads[t].weight < size
            case ops.ClusterWait():
                return w.cluster[t] != 2
            case _:
                return False

    def own(self, w: World, move: Move) -> OpFootprint:
        """The footprint of a move, with the local ops that follow at once."""
        if move.completion is not None:
            return self.prints.completion(w, move.completion)
        f, t = OpFootprint(), move.thread
        if move.key is not None:
            for u in self.g.everyone:
                if not self.g.ended(w, u) and self.g.op(w, u) is None:
                    for at, trips in self._decided(u, w.at[u], w.trips):
                        self._locals(f, u, at, trips)
                    self.prints.dynamic(f, w, u)
            return f
        call = self.g.programs[t].call(w.at[t])
        inside = t in w.inside
        assert call is not None
        if self.g.threads[t].cta not in w.begun:
            f.changed |= self.prints.begun(self.g.threads[t].cta)
        if not inside:
            f.add(self.prints.of(t, call.op, True))
        if inside or not isinstance(call.op, ops.BarSync | ops.CtaSync | ops.WarpSync):
            at, trips = self._after(t, w.at[t], w.trips)
            self._locals(f, t, at, trips)
        return self.prints.dynamic(f, w, t)

    def _locals(self, f: OpFootprint, t: int, at: Position, trips: Trips) -> None:
        program = self.g.programs[t]
        while not program.ended(at):
            call = program.call(at)
            if call is None or isinstance(call.op, OBSERVABLE):
                return
            f.add(self.prints.of(t, call.op, True))
            at, trips = self._after(t, at, trips)
        f.add(self.prints.end(t))


_MEETS = (ops.BarSync, ops.CtaSync, ops.WarpSync)
_WAITS = (ops.Wait, *_MEETS, ops.ClusterWait)


class _Search:
    """The tries at one state."""

    def __init__(self, r: PartialOrderReduction, w: World, groups: dict[Who, list[Move]]):
        self.r, self.g, self.w, self.groups = r, r.g, w, groups
        self.agents: list[Who] = [*dict.fromkeys(w.completions), *(t for t in r.g.everyone if not r.g.ended(w, t))]
        self.completions = {x: Window(self._completion(x)) for x in dict.fromkeys(w.completions)}
        self.own: dict[Who, OpFootprint] = {}
        self.windows: dict[tuple[Who, Passable], Window] = {(x, frozenset()): y for x, y in self.completions.items()}
        self.extra: dict[tuple[int, bool, bool, frozenset[Queue]], OpFootprint] = {}

    def _completion(self, x: Completion) -> OpFootprint:
        f, copies = self.r.prints.completion(self.w, x), self.w.completions.count(x)
        for s in f.signals.values():
            s.arrivals, s.completed = s.arrivals * copies, s.completed * copies
        return f

    def closure(self, seed: Who, limit: int) -> list[Move] | None:
        """The smallest persistent set around ``seed``; None once it has ``limit`` moves."""
        inside: list[Who] = [seed]
        others = self._others(inside)
        done = 0
        while done < len(inside):
            new = self._disturbing(inside[done], others)
            if not new:
                done += 1
                continue
            inside += new
            if sum(len(self.groups.get(a, ())) for a in inside) >= limit:
                return None
            others = self._others(inside)
            done = 0
        return [move for a in inside for move in self.groups.get(a, ())]

    def _others(self, inside: list[Who]) -> dict[Who, Window]:
        """The windows of the others, opened further where they can complete each other's waits."""
        passable: Passable = frozenset()
        windows = {a: self._window(a, passable) for a in self.agents if a not in inside}
        while True:
            stops = frozenset(key for x in windows.values() for key in x.stops) - passable
            ready = frozenset(key for key in stops if self._completes(key, _sum(key, windows), windows))
            if not ready:
                return windows
            passable |= ready
            for a, x in windows.items():
                if x.stops & ready:
                    windows[a] = self._window(a, passable)

    def _window(self, a: Who, passable: Passable) -> Window:
        found = self.windows.get((a, passable))
        if found is None:
            assert isinstance(a, int)
            found = self.windows[a, passable] = self.r.window(self.w, a, passable)
        return found

    def _completes(self, key: Key, sums: Signals, windows: dict[Who, Window]) -> bool:
        """Whether these signals may complete the current phase (or use) of a barrier."""
        for x in windows.values():
            if x.anything:
                return True
        if isinstance(key, int):
            bar = self.w.bars[key]
            if sums.loose:
                return True
            return sums.arrivals >= bar.pending and bar.tx - sums.completed <= 0 <= bar.tx + sums.expected
        if key == CLUSTER:
            late = [t for t in self.g.everyone if self.w.cluster[t] != 1 and not self.g.ended(self.w, t)]
            return all(t in windows and CLUSTER in windows[t].print.signals for t in late)
        arrived, size = self._use(key, windows)
        return arrived + sums.arrivals >= size

    def _use(self, key: Key, windows: dict[Who, Window]) -> tuple[int, int]:
        """The threads that have entered a rendezvous, and its size."""
        assert isinstance(key, tuple)
        there = self.w.named.get(key)
        if there is not None:
            return there.arrived, there.size
        return 0, min((x.sizes[key] for x in windows.values() if key in x.sizes), default=0)

    # -- what T depends on ------------------------------------------------------------------------------------------
    def _disturbing(self, a: Who, windows: dict[Who, Window]) -> list[Who]:
        """Moves that must be added because of ``a``: they may disturb its next move, or enable it."""
        if a not in self.groups:
            return self._enabling(a, windows)
        mine = self._mine(a)
        found = {b for b, x in windows.items() if x.anything or self._disturb(mine, b, x)}
        if isinstance(a, Completion) and all(
            b in windows and windows[b].ends for b in self.agents if isinstance(b, int)
        ):
            found |= {b for b in windows if isinstance(b, int)}  # the kernel might end before it lands
        for key, s in mine.signals.items():
            others = _sum(key, windows)
            if self._clash(key, s, others, windows):
                found |= {b for b, x in windows.items() if key in x.print.signals}
            if isinstance(key, int):
                others.add(s)
                if self._completes(key, others, windows):
                    found |= {b for b, x in windows.items() if key in x.print.waits}
        for key in mine.waits:
            if self._completes(key, _sum(key, windows), windows):
                found |= {b for b, x in windows.items() if key in x.print.signals}
        return [b for b in windows if b in found]

    def _mine(self, a: Who) -> OpFootprint:
        found = self.own.get(a)
        if found is None:
            found = self.own[a] = self.r.own(self.w, self.groups[a][0])
        return found

    def _disturb(self, mine: OpFootprint, b: Who, x: Window) -> bool:
        objects = self.r.prints.objects
        if objects.disturb(mine, x.print):
            return True
        if not isinstance(b, int):
            return False
        f, cta = x.print, self.g.threads[b].cta
        if cta not in self.w.begun and mine.seen & self.r.prints.begun(cta):
            return True  # the other's first move is that of its CTA
        if not (f.releases or f.fences or f.closes):
            return False
        key = (b, f.releases, f.fences, frozenset(f.closes))
        extra = self.extra.get(key)
        if extra is None:
            extra = OpFootprint(releases=f.releases, fences=f.fences, closes=f.closes)
            self.extra[key] = self.r.prints.dynamic(extra, self.w, b)
        return objects.disturb(mine, extra)

    def _clash(self, key: Key, mine: Signals, others: Signals, windows: dict[Who, Window]) -> bool:
        """Whether the order of these signals may matter."""
        if key == CLUSTER or not (others.arrivals or others.expected or others.completed or others.loose):
            return False
        arrivals = mine.arrivals + others.arrivals
        if not isinstance(key, int):
            arrived, size = self._use(key, windows)
            return arrived + arrivals > size
        bar = self.w.bars[key]
        if mine.loose or others.loose:
            return True
        if arrivals != bar.pending:
            return arrivals > bar.pending
        return bar.tx + mine.expected + others.expected < mine.completed + others.completed

    def _enabling(self, a: Who, windows: dict[Who, Window]) -> list[Who]:
        """``a`` is blocked: those that could unblock it, if the others can at all."""
        assert isinstance(a, int)
        op = self.g.op(self.w, a)
        match op:
            case ops.WgmmaWait():
                upto = waited(self.w, a, "wgmma", op.pending)
                late = [u for u in self.g.mates[a] if self.w.groups[u].get("wgmma", 0) <= upto]
                return list[Who](late[:1]) if all(u in windows for u in late) else []
            case ops.Tcgen05Alloc():
                objects, cta = self.r.prints.objects, self.g.threads[a].cta
                right = OpFootprint(changed=objects.of(("right", cta)))
                return [b for b, x in windows.items() if objects.disturb(right, x.print)]
            case ops.Setmaxnreg():
                objects, cta = self.r.prints.objects, self.g.threads[a].cta
                pool = OpFootprint(changed=objects.of(("pool", cta)) | objects.of(("given", cta)))
                return [b for b, x in windows.items() if objects.disturb(pool, x.print)]
            case _:
                key = self.r.key_of(a, op)
                if not self._completes(key, _sum(key, windows), windows):
                    return []
                return [b for b, x in windows.items() if key in x.print.signals or x.anything]


def _sum(key: Key, windows: dict[Who, Window]) -> Signals:
    total = Signals()
    for x in windows.values():
        s = x.print.signals.get(key)
        if s is not None:
            total.add(s)
    return total
