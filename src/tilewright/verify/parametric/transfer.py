"""Transfer functions: what the class that executes an op acquires by phases, thread barriers and groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from tilewright.protocol import effects, ops
from tilewright.protocol.effects import Await, BarrierScope, Effect, Fence, Order, Release, Retire, Signal, Sync
from tilewright.verify.parametric.classes import Class, Ref
from tilewright.verify.parametric.equations import Equations, Value
from tilewright.verify.parametric.evaluation_order import cluster_arrive, in_evaluation_order
from tilewright.verify.parametric.facts import PreparedProtocol
from tilewright.verify.parametric.marks import Segment
from tilewright.verify.parametric.matching import BarrierUse, PhaseFamily, PhaseUse
from tilewright.verify.parametric.paths import FAR, PathBound
from tilewright.verify.parametric.thread_order import OwnStatements

Move = Callable[[int], int]
_ACQUIRING = Await, Fence, Retire, Sync
"""The effects by which a class may acquire what others released."""

Source = tuple[int, Move, Move]
"""A variable, what it releases, and what the acquirer then knows of what it knew."""


def solve(facts: PreparedProtocol) -> None:
    """Finds what every class knows at every place."""
    solved: dict[tuple[object, ...], OwnStatements] = {}
    for own in facts.k.own:
        own.solve(solved)
    _TransferFunctions(facts).solve()


class _Hand(NamedTuple):
    """What an arrival hands on: what its class knows there, changed."""

    place: int
    change: Move


class _TransferFunctions:
    """The equations of what classes know of each other."""

    def __init__(self, facts: PreparedProtocol):
        self.facts, self.k = facts, facts.k
        self.statements = self.k.statements
        self.equations = Equations(self.statements.everything)
        self.fenced = {x: self.k.copier(Segment.MEMORY, Segment.FENCED, x) for x in ops.FenceSpace}
        self.behind = self.k.copier(Segment.RELEASED, Segment.TENSOR)
        self.released_behind = self.k.copier(Segment.TENSOR, Segment.RELEASED)
        self._hands: dict[tuple[Ref, int], _Hand] = {}
        self._moved: dict[tuple[int, Move, object], int] = {}
        self._met: dict[tuple[Ref, ...], int] = {}
        self._shared: dict[int, tuple[Ref, ...]] = {}
        """Variables of thread barriers, with those who meet as long as there is no equation."""
        self._issued: dict[Ref, int] = {}

    def solve(self) -> None:
        """Sets up the equations in an order in which most is known when it is needed, and solves them."""
        k, variable = self.k, self.equations.variable
        # places are named before they are computed, since loops lead back
        acquired: dict[tuple[Class, int], list[int]] = {}
        k.places = []
        for c in k.classes:
            k.places.append([])
            for s, code in enumerate(c.code):
                at = [variable()]
                found = acquired[c, s] = []
                for i in range(len(code)):
                    after = self._after(Ref(c, s, i), at[-1])
                    if after != at[-1]:
                        found.append(i)
                    at.append(after)
                k.places[c.index].append(at)
        for s in k.paths.order:
            for c in k.classes:
                self._enter(c, s)
            for ref in in_evaluation_order(self.facts, s, {c: acquired[c, s] for c in k.classes}):
                self._define(ref)
        self.equations.solve()
        k.values = self.equations.values

    def _after(self, ref: Ref, before: int) -> int:
        """The variable of what is known behind an op: a new one if it acquires; those at a rendezvous share one."""
        changes = False
        for effect in ref.op.effects:
            if not isinstance(effect, _ACQUIRING):
                continue
            match effect:
                case Fence(Order.ASYNC_PROXY):
                    changes = bool(self.k.slots[Segment.FENCED])
                case Fence(Order.TENSOR_AFTER):
                    changes = bool(self.k.slots[Segment.TENSOR])
                case Retire(effects.WGMMA):
                    self._issued[ref] = self._issues(ref)
                    changes = bool(self._issued[ref])
                case Sync(BarrierScope.CTA, waits=True):
                    met = self._all_beside(ref)
                    if met and not self.k.marks.tensor:
                        if met not in self._met:
                            self._met[met] = self.equations.variable()
                            self._shared[self._met[met]] = met
                        return self._met[met]
                    changes = True
                case Await() | Sync(BarrierScope.CLUSTER, waits=True):
                    changes = True
                case _:
                    pass
        return self.equations.variable() if changes else before

    def _place(self, ref: Ref) -> int:
        return self.k.places[ref.c.index][ref.s][ref.i]

    def _enter(self, c: Class, s: int) -> None:
        sources = [
            self._carried(_Hand(self.k.places[c.index][x][-1], _same), x, s, PathBound(advanced, frozenset()))
            for x, advanced in self.k.paths.entering[s]
        ]
        first = self.statements.closed(0, s) if s in self.k.product.starts else self.statements.everything
        self.equations.define(self.k.places[c.index][s][0], sources, _common(first, sources))

    def _carried(self, hand: _Hand, source: int, target: int, link: PathBound) -> int:
        """What is handed on as it reads at the end of a link."""
        return self._once(hand, self.statements.mover(source, target, link), None)

    def _once(self, hand: _Hand, move: Move, key: object) -> int:
        """A variable for what is handed on, moved; one for all who ask alike."""
        place, change = hand
        found = self._moved.get((place, change, key or move))
        if found is None:
            found = self._moved[place, change, key or move] = self.equations.variable()
            self._changed(found, place, move if change is _same else lambda x: move(change(x)))
        return found

    # -- acquired -----------------------------------------------------------------------------------------------------
    def _define(self, ref: Ref) -> None:
        before, after = self._place(ref), self.k.places[ref.c.index][ref.s][ref.i + 1]
        for effect in ref.op.effects:
            self._transfer(ref, effect, after, before)

    def _transfer(self, ref: Ref, effect: Effect, after: int, before: int) -> None:
        match effect:
            case Fence(Order.ASYNC_PROXY, space):
                fenced = self.fenced[space]
                self._changed(after, before, lambda x: x | fenced(x))
            case Fence(Order.TENSOR_AFTER):
                self._changed(after, before, lambda x: x | self.behind(x))
            case Retire(effects.WGMMA):
                issued = self._issued[ref]
                self._changed(after, before, lambda x: x | issued)
            case Await():
                self._phase(ref, effect, after, before)
            case Sync(BarrierScope.CTA, waits=True):
                self._rendezvous(ref, after, before)
            case Sync(BarrierScope.CLUSTER, waits=True):
                self._rendezvous(cluster_arrive(ref), after, before)
            case _:
                pass

    def _changed(self, after: int, before: int, change: Move) -> None:
        self.equations.define(after, [before], lambda values: change(values[before]))

    def _hand(self, ref: Ref, memory: bool) -> _Hand:
        """What an arrival by an op publishes; a non-releasing one publishes the schedule alone."""
        return self._handed(ref, self.k.releasable if memory else self.k.schedule)

    def _handed(self, ref: Ref, kept: int) -> _Hand:
        found = self._hands.get((ref, kept))
        if found is None:
            released = self.k.released(ref.c, ref.s, ref.i)
            behind = self.released_behind if kept != self.k.schedule and self.k.marks.tensor else _nothing
            found = self._hands[ref, kept] = _Hand(self._place(ref), _releasing(released, behind, kept))
        return found

    # -- phases -------------------------------------------------------------------------------------------------------
    def _phase(self, ref: Ref, effect: Await, after: int, before: int) -> None:
        use, wait = self.facts.wait_of[ref]
        acquired: list[tuple[int, list[Source]]] = []
        for family in use.releasing:
            kept = self.k.releasable if family in use.arrivals else self.k.schedule
            sources = list(self._released(family, wait, use, effect))
            if sources:
                acquired.append((kept, sources))

        def run(values: list[int]) -> int:
            x = values[before]
            for kept, sources in acquired:
                released = kept
                for v, change, elsewhere in sources:
                    released &= change(values[v]) | elsewhere(x)
                x |= released
            return x

        self.equations.define(after, [before, *(v for _, sources in acquired for v, _, _ in sources)], run)

    def _released(self, family: PhaseFamily, wait: PhaseUse, use: BarrierUse, op: Await) -> Iterator[Source]:
        """What the family's arrival in the awaited phase may hand on, as it reads at the wait, by who made it."""
        s = wait.ref.s
        ahead = wait.number - family.lead[s]
        if ahead >= 0:
            hand = self._arrival(family.at(s)[ahead], use, op)
            yield hand.place, hand.change, _nothing
            return
        fresh = _may_be_fresh(self.facts, use, s, wait.number)
        if not use.iv:
            for piece in family.pieces if not fresh else ():
                link = self.k.paths.path(piece.ref.s, s, frozenset())
                if link is not None:
                    yield self._carried(self._arrival(piece, use, op), piece.ref.s, s, link), _same, _nothing
            return
        iv = self.facts.column[use.iv]
        for piece in family.pieces:
            link = self.k.paths.link(piece.ref.s, s, iv, piece.number - wait.number)
            if link is None:
                continue
            hand = self._arrival(piece, use, op)
            if fresh:
                released = self._if_not_fresh(hand, piece, wait, iv, link)
            else:
                released = self._carried(hand, piece.ref.s, s, link)
            yield released, _same, self._elsewhere(piece, wait, iv) if len(family.pieces) > 1 else _nothing

    def _arrival(self, piece: PhaseUse, use: BarrierUse, wait: Await) -> _Hand:
        ref = piece.ref
        signal = next((x for x in ref.op.of(Signal) if x.arrivals), None)
        if signal is None or signal.release is Release.NOTHING:
            return self._hand(ref, memory=False)
        if signal.release is Release.TENSOR:
            return self._handed(ref, self.k.committed)
        return self._hand(ref, use.array[0] == ref.c.cta or ops.Scope.CTA not in (signal.scope, wait.scope))

    def _if_not_fresh(self, hand: _Hand, piece: PhaseUse, wait: PhaseUse, iv: int, link: PathBound) -> int:
        """A wait that passes on a fresh barrier acquires nothing: of what is released only what holds before any
        execution is kept."""
        statements, s = self.statements, wait.ref.s
        growth = tuple(g if u == iv else FAR for u, g in enumerate(link.growth))
        move = statements.mover(piece.ref.s, s, PathBound(growth, frozenset(range(self.k.n))))
        kept = 0
        for g, slots in statements.groups.items():
            none_yet = -wait.number - int(self.k.paths.earliest[iv, g])
            kept |= statements.spread(slots) & statements.from_level(iv, none_yet)
        return self._once(hand, lambda x: statements.closed(move(x) & kept, s), (move, kept))

    def _elsewhere(self, piece: PhaseUse, wait: PhaseUse, iv: int) -> Move:
        """What else is known when ``piece`` made the awaited arrival: the iteration of that use went through its
        blocks, so of others there is no execution in it, and all before it is all until it."""
        statements = self.statements
        absent = 0
        for g, slots in statements.groups.items():
            if not _together(self.facts, g, piece, iv):
                absent |= slots
        until, before = (statements.level(iv, t - wait.number) for t in (0, 1))
        if until is None or before is None:
            return _nothing
        return lambda x: (x >> before & absent) << until

    # -- thread barriers ----------------------------------------------------------------------------------------------
    def _all_beside(self, ref: Ref) -> tuple[Ref, ...]:
        """Those whom an op meets, if all are in the same iteration of the same block, as for all of them."""
        barrier = self.facts.syncs[ref]
        found = barrier.beside(ref)
        return found if len(found) == len(barrier.ops) else ()

    def _rendezvous(self, ref: Ref, after: int, before: int) -> None:
        if after in self._shared:
            beside, self._shared[after] = self._shared[after], ()
            if beside:
                self._together(after, beside, [])
            return
        barrier = self.facts.syncs[ref]
        variables = [before]
        beside = barrier.beside(ref)
        there = {x.c.index for x in beside}
        for other, ops_of in barrier.ops.items():
            if other in there:
                continue
            found, _ = barrier.partner(ref, other)
            blocks = frozenset(s for s, refs in ops_of.items() if refs)
            links = ((x, self.k.paths.path(x.s, ref.s, blocks)) for x in found)
            sources = [self._carried(self._arrived(x), x.s, ref.s, link) for x, link in links if link is not None]
            if len(sources) > 1:
                v = self.equations.variable()
                variables.append(self.equations.define(v, sources, _common(self.k.releasable, sources)))
            else:
                variables += sources
        self._together(after, beside, variables)

    def _together(self, after: int, beside: Sequence[Ref], variables: list[int]) -> None:
        """What the threads at a rendezvous release to each other, and the values of ``variables``."""
        hands = [self._arrived(r) for r in beside]

        def run(values: list[int]) -> int:
            out = 0
            for place, change in hands:
                out |= change(values[place])
            for v in variables:
                out |= values[v]
            return out

        self.equations.define(after, [*(place for place, _ in hands), *variables], run)

    def _arrived(self, ref: Ref) -> _Hand:
        return self._hand(ref, all(x.release for x in ref.op.of(Sync)))

    # -- groups -------------------------------------------------------------------------------------------------------
    def _issues(self, ref: Ref) -> int:
        """A group is done only when every warp has issued its part: the others' issues are past, and with an issue all
        that its threads did before."""
        k, own = self.k, self.k.own[ref.c.index]
        out = 0
        if not own.completions:
            return 0
        slots, statements, known = k.slots[Segment.SCHEDULE], self.statements, own.at(ref.s, ref.i + 1)
        for mark, issued, earlier in self.facts.issues(ref):
            slot = own.done[mark]
            issues = sum(1 << slots[m] for m in issued if m in slots)
            for plane in range(k.levels.planes):
                if known >> plane * own.statements.n + slot & 1:
                    out |= issues << plane * statements.n
            flag = k.levels.past if mark.block == ref.s else k.levels.earlier
            if known >> flag.plane * own.statements.n + slot & 1:
                out |= sum(1 << slots[m] for m in earlier if m in slots) << statements.n
        return statements.closed(out, ref.s) & k.schedule


def _same(x: int) -> int:
    return x


def _nothing(x: int) -> int:
    return 0


def _releasing(released: int, behind: Move, kept: int) -> Move:
    return lambda x: (x | released | behind(x)) & kept


def _common(first: int, variables: Sequence[int]) -> Value:
    """What some variables have in common, in the segment ``first``."""

    def run(values: list[int]) -> int:
        out = first
        for v in variables:
            out &= values[v]
        return out

    return run


def _together(facts: PreparedProtocol, s: int, piece: PhaseUse, column: int) -> bool:
    """Whether a block may be passed while the induction variable stands at the use that ``piece`` is for."""
    return facts.k.paths.coexist(piece.ref.s, s, column, piece.number)


def _may_be_fresh(facts: PreparedProtocol, use: BarrierUse, s: int, number: int) -> bool:
    if not use.iv:
        return number < 0
    return int(facts.k.paths.earliest[facts.column[use.iv], s]) + number < 0
