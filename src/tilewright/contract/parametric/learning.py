"""What an op teaches the class that executes it: phases, meetings of threads, issued groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tilewright.contract.parametric.equations import Equations
from tilewright.contract.parametric.facts import Facts
from tilewright.contract.parametric.knowledge import Segment
from tilewright.contract.parametric.marks import Class
from tilewright.contract.parametric.matching import BarrierUse, Family, Piece, Ref
from tilewright.contract.parametric.ways import FAR, Link, Ways
from tilewright.protocol import ops
from tilewright.protocol.word import NoWord

Move = Callable[[int], int]
Way = tuple[int, Move | None]
"""A variable that may be what is told, and what else is then known of what one knew."""


def learn(facts: Facts) -> None:
    """Finds what every class knows at every place."""
    for own in facts.k.own:
        own.solve()
    _Lessons(facts).solve()


class _Lessons:
    """The equations of what classes know of each other."""

    def __init__(self, facts: Facts):
        self.facts, self.k = facts, facts.k
        self.statements = self.k.statements
        self.equations = Equations(self.statements.everything)
        self.entries = [[self.equations.variable() for _ in range(self.k.n)] for _ in self.k.classes]
        self.k.places = [
            [[self.entries[c.index][s]] * (len(code) + 1) for s, code in enumerate(c.code)] for c in self.k.classes
        ]
        self._handed: dict[tuple[Ref, bool], int] = {}
        self._moved: dict[tuple[int, object], int] = {}
        self._met: dict[tuple[Ref, ...], int] = {}

    def solve(self) -> None:
        """Sets up the equations in an order in which most is known when it is needed, and solves them."""
        # places are named before they are computed, since loops lead back
        for c in self.k.classes:
            for s, code in enumerate(c.code):
                at = self.k.places[c.index][s]
                for i, site in enumerate(code):
                    learns = isinstance(site.step.op, LEARNS)
                    at[i + 1] = self.equations.variable() if learns else at[i]
        for s in _order(self.k.ways, self.k.word.starts):
            for c in self.k.classes:
                self._enter(c, s)
            for ref in _in_turn(self.facts, s):
                self._lesson(ref)
        self.equations.solve()
        self.k.values = self.equations.values

    def _place(self, ref: Ref) -> int:
        return self.k.places[ref.c.index][ref.s][ref.i]

    def _enter(self, c: Class, s: int) -> None:
        sources = [
            self._carried(self.k.places[c.index][x][-1], x, s, Link(turned, frozenset()))
            for x, turned in self.k.ways.entering[s]
        ]
        first = self.statements.closed(0, s) if s in self.k.word.starts else self.statements.everything

        def run(values: list[int]) -> int:
            out = first
            for v in sources:
                out &= values[v]
            return out

        self.equations.define(self.entries[c.index][s], sources, run)

    def _carried(self, variable: int, source: int, target: int, link: Link) -> int:
        """What a variable of one place says at the end of a link."""
        return self._once(variable, self.statements.mover(source, target, link))

    def _once(self, variable: int, move: Move) -> int:
        found = self._moved.get((variable, move))
        if found is None:
            found = self._moved[variable, move] = self._new(variable, move)
        return found

    # -- lessons ------------------------------------------------------------------------------------------------------
    def _lesson(self, ref: Ref) -> None:
        before, after = self._place(ref), self.k.places[ref.c.index][ref.s][ref.i + 1]
        match ref.op:
            case ops.FenceProxyAsync():
                fenced = self.k.copier(Segment.MEMORY, Segment.FENCED)
                self._changed(after, before, lambda x: x | fenced(x))
            case ops.Tcgen05FenceAfter():
                tensor = self.k.copier(Segment.TOLD, Segment.TENSOR)
                self._changed(after, before, lambda x: x | tensor(x))
            case ops.WgmmaWait():
                issued = self._issues(ref)
                self._changed(after, before, lambda x: x | issued)
            case ops.Wait():
                self._phase(ref, after, before)
            case ops.BarSync() | ops.CtaSync():
                self._meeting(ref, after, before)
            case ops.ClusterWait():
                self._meeting(cluster_arrive(ref), after, before)
            case op:
                raise AssertionError(op)

    def _new(self, variable: int, change: Move) -> int:
        found = self.equations.variable()
        self._changed(found, variable, change)
        return found

    def _changed(self, after: int, before: int, change: Move) -> None:
        self.equations.define(after, [before], lambda values: change(values[before]))

    def _hands(self, ref: Ref, memory: bool = True) -> int:
        """What an arrival by an op hands on."""
        found = self._handed.get((ref, memory))
        if found is None:
            k, place, told = self.k, self._place(ref), self.k.told(ref.c, ref.s, ref.i)
            kept = k.tellable if memory else k.schedule
            if memory and k.marks.tensor:
                tensor = k.copier(Segment.TENSOR, Segment.TOLD)
                found = self._new(place, lambda x: (x | told | tensor(x)) & kept)
            else:
                found = self._new(place, lambda x: (x | told) & kept)
            self._handed[ref, memory] = found
        return found

    # -- phases -------------------------------------------------------------------------------------------------------
    def _phase(self, ref: Ref, after: int, before: int) -> None:
        use, wait = self.facts.wait_of[ref]
        assert isinstance(ref.op, ops.Wait)
        lessons: list[tuple[int, list[Way]]] = []
        for family in use.teachers:
            kept = self.k.tellable if family in use.arrivals else self.k.schedule
            ways = list(self._told(family, wait, use, ref.op))
            if ways:
                lessons.append((kept, ways))

        def run(values: list[int]) -> int:
            x = values[before]
            for kept, ways in lessons:
                told = -1
                for v, elsewhere in ways:
                    told &= values[v] if elsewhere is None else values[v] | elsewhere(x)
                x |= told & kept
            return x

        self.equations.define(after, [before, *(v for _, ways in lessons for v, _ in ways)], run)

    def _told(self, family: Family, wait: Piece, use: BarrierUse, op: ops.Wait) -> Iterator[Way]:
        """What the family's arrival in the awaited phase may hand on, as it reads at the wait, by who made it."""
        s = wait.ref.s
        ahead = wait.number - family.lead[s]
        if ahead >= 0:
            yield self._arrival(family.at(s)[ahead], use, op), None
            return
        fresh = _may_be_fresh(self.facts, use, s, wait.number)
        if not use.unit:
            for piece in family.pieces if not fresh else ():
                link = self.k.ways.path(piece.ref.s, s, frozenset())
                if link is not None:
                    yield self._carried(self._arrival(piece, use, op), piece.ref.s, s, link), None
            return
        unit = self.facts.column[use.unit]
        for piece in family.pieces:
            link = self.k.ways.link(piece.ref.s, s, unit, piece.number - wait.number)
            if link is None:
                continue
            elsewhere = self._elsewhere(piece, wait, unit) if len(family.pieces) > 1 else None
            told = self._arrival(piece, use, op)
            if fresh:
                told = self._if_not_fresh(told, piece, wait, unit, link)
            else:
                told = self._carried(told, piece.ref.s, s, link)
            yield told, elsewhere

    def _arrival(self, piece: Piece, use: BarrierUse, wait: ops.Wait) -> int:
        op, ref = piece.ref.op, piece.ref
        if isinstance(op, ops.TmaLoad):
            return self._hands(ref, memory=False)
        if isinstance(op, ops.Tcgen05Commit):
            return self._hands(ref)
        assert isinstance(op, ops.Arrive | ops.ArriveExpectTx | ops.CpAsyncArrive)
        memory = getattr(op, "release", True)
        if use.array[0] != ref.c.cta:
            memory = memory and ops.Scope.CTA not in (getattr(op, "scope", ops.Scope.CTA), wait.scope)
        return self._hands(ref, memory)

    def _if_not_fresh(self, told: int, piece: Piece, wait: Piece, unit: int, link: Link) -> int:
        """A wait that passes on a fresh barrier teaches nothing: of what is told only what speaks of no execution then
        is kept."""
        statements, s = self.statements, wait.ref.s
        growth = tuple(g if u == unit else FAR for u, g in enumerate(link.growth))
        move = statements.mover(piece.ref.s, s, Link(growth, frozenset(range(self.k.n))))
        kept = 0
        for g, slots in statements.groups.items():
            none_yet = -wait.number - int(self.k.ways.earliest[unit, g])
            kept |= statements.spread(slots) & statements.from_level(unit, none_yet)
        key = move, kept, s
        found = self._moved.get((told, key))
        if found is None:
            found = self._moved[told, key] = self._new(told, lambda x: statements.closed(move(x) & kept, s))
        return found

    def _elsewhere(self, piece: Piece, wait: Piece, unit: int) -> Move:
        """What else is known when ``piece`` made the awaited arrival: the iteration of that use went through its
        stretches, so of others there is no execution in it, and all before it is all until it."""
        statements = self.statements
        absent = 0
        for g, slots in statements.groups.items():
            if not _together(self.facts, g, piece, unit):
                absent |= slots
        until, before = (statements.level(unit, t - wait.number) for t in (0, 1))
        if until is None or before is None:
            return lambda x: x
        return lambda x: x | (x >> before & absent) << until

    # -- meetings -----------------------------------------------------------------------------------------------------
    def _meeting(self, ref: Ref, after: int, before: int) -> None:
        barrier = self.facts.syncs[ref]
        told: list[int] = []
        beside: list[Ref] = []
        for other, ops_of in barrier.ops.items():
            found, same = barrier.partner(ref, other)
            if same:
                beside.append(found[0])
                continue
            stretches = frozenset(s for s, refs in ops_of.items() if refs)
            links = ((x, self.k.ways.path(x.s, ref.s, stretches)) for x in found)
            ways = [self._carried(self._arrived(x), x.s, ref.s, link) for x, link in links if link is not None]
            if ways:
                told.append(self._common(ways))
        if beside:
            told.append(self._together(tuple(beside)))
        kept = self.k.tellable

        def run(values: list[int]) -> int:
            out = 0
            for v in told:
                out |= values[v]
            return values[before] | out & kept

        self.equations.define(after, [before, *told], run)

    def _together(self, refs: tuple[Ref, ...]) -> int:
        """What those who meet tell each other: the same for all of them."""
        found = self._met.get(refs)
        if found is None:
            told = [self._arrived(r) for r in refs]

            def run(values: list[int]) -> int:
                out = 0
                for v in told:
                    out |= values[v]
                return out

            found = self._met[refs] = self.equations.define(self.equations.variable(), told, run)
        return found

    def _common(self, ways: Sequence[int]) -> int:
        if len(ways) == 1:
            return ways[0]

        def run(values: list[int]) -> int:
            out = -1
            for v in ways:
                out &= values[v]
            return out

        return self.equations.define(self.equations.variable(), ways, run)

    def _arrived(self, ref: Ref) -> int:
        return self._hands(ref, ref.op.release if isinstance(ref.op, ops.ClusterArrive) else True)

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
            flag = k.levels.past if mark.stretch == ref.s else k.levels.earlier
            if known >> flag.plane * own.statements.n + slot & 1:
                out |= sum(1 << slots[m] for m in earlier if m in slots) << statements.n
        return statements.closed(out, ref.s) & k.schedule


LEARNS = (
    ops.Wait, ops.BarSync, ops.CtaSync, ops.ClusterWait, ops.WgmmaWait, ops.FenceProxyAsync, ops.Tcgen05FenceAfter,
)  # fmt: skip
"""Ops behind which a class knows more of others."""


def _order(ways: Ways, starts: Sequence[int]) -> list[int]:
    """Stretches, those before others first as far as loops allow."""
    done: list[int] = []
    seen: set[int] = set()

    def visit(s: int) -> None:
        seen.add(s)
        for x, _ in ways.leaving[s]:
            if x not in seen:
                visit(x)
        done.append(s)

    for s in starts:
        if s not in seen:
            visit(s)
    return done[::-1]


def _in_turn(facts: Facts, s: int) -> Iterator[Ref]:
    """The ops of a stretch that teach, each behind those of the same turn that it learns from, as far as may be."""
    left = {c: [i for i, site in enumerate(c.code[s]) if isinstance(site.step.op, LEARNS)] for c in facts.k.classes}
    at = dict.fromkeys(left, 0)

    def before(ref: Ref) -> bool:
        return at[ref.c] == len(left[ref.c]) or left[ref.c][at[ref.c]] >= ref.i

    moved = True
    while moved:
        moved = False
        for c, found in left.items():
            while at[c] < len(found) and all(map(before, _needed(facts, Ref(c, s, found[at[c]])))):
                yield Ref(c, s, found[at[c]])
                at[c] += 1
                moved = True
    for c, found in left.items():
        yield from (Ref(c, s, i) for i in found[at[c] :])


def _needed(facts: Facts, ref: Ref) -> Iterator[Ref]:
    """What an op learns from in the same turn of its stretch."""
    match ref.op:
        case ops.Wait():
            use, wait = facts.wait_of[ref]
            for family in use.teachers:
                ahead = wait.number - family.lead[ref.s]
                if ahead >= 0:
                    yield family.at(ref.s)[ahead].ref
        case ops.BarSync() | ops.CtaSync() | ops.ClusterWait():
            ref = cluster_arrive(ref) if isinstance(ref.op, ops.ClusterWait) else ref
            barrier = facts.syncs[ref]
            for other in barrier.ops:
                found, same = barrier.partner(ref, other)
                if same:
                    yield from found
        case _:
            pass


def _together(facts: Facts, s: int, piece: Piece, column: int) -> bool:
    """Whether a stretch may be passed while the unit stands at the use that ``piece`` is for."""
    link, there, turns = facts.k.ways.link, piece.ref.s, piece.number
    if turns > 0:
        return link(there, s, column, turns) is not None
    if turns < 0:
        return link(s, there, column, -turns) is not None
    return s == there or link(s, there, column, 0) is not None or link(there, s, column, 0) is not None


def _may_be_fresh(facts: Facts, use: BarrierUse, s: int, number: int) -> bool:
    if not use.unit:
        return number < 0
    return int(facts.k.ways.earliest[facts.column[use.unit], s]) + number < 0


def cluster_arrive(ref: Ref) -> Ref:
    """The arrive that a cluster wait belongs to: the op's own last one in the same stretch."""
    for i in range(ref.i - 1, -1, -1):
        found = Ref(ref.c, ref.s, i)
        if isinstance(found.op, ops.ClusterArrive):
            return found
        if isinstance(found.op, ops.ClusterWait):
            break
    raise NoWord("a cluster wait without its arrive")
