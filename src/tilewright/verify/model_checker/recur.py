"""States that recur when trip counts are open: counters count only as far as their uses tell values apart.

Where a loop's counter serves for slots, parities and the comparison with its own end, two states that differ by the
same whole number of periods in all threads' counters, and in what is known of the end, have the same future.
``Recurrence`` brings a state to the least such one, so that the states of all trip counts together are finitely many.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from math import lcm

from tilewright.base.expr import Compare, Const, Expr, FloorDiv, Mod, Sum, Sym
from tilewright.verify.model_checker.instance import ProtocolInstance
from tilewright.verify.model_checker.thread_program import (
    Add,
    ExecuteStep,
    Position,
    Set,
    ThreadProgram,
    TripKey,
    Trips,
    Unless,
)
from tilewright.verify.model_checker.world import Bytes, World


@dataclass
class CounterUses:
    """How a program uses its counters and trip symbols: modulo a period, compared with constants up to a cutoff,
    compared with each other (counter, symbol), or in full."""

    period: dict[str, int] = field(default_factory=dict[str, int])
    cutoff: dict[str, int] = field(default_factory=dict[str, int])
    full: set[str] = field(default_factory=set[str])
    ends: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])

    def value(self, e: Expr, modulus: int | None) -> None:
        """``e`` counts modulo ``modulus``, or in full."""
        match e:
            case Sym(name) if modulus is None:
                self.full.add(name)
            case Sym(name):
                self.period[name] = lcm(self.period.get(name, 1), modulus or 1)
            case Sum():
                for term, _ in e.terms:
                    self.value(term, modulus)
            case Mod(numerator, Const(m)) if m > 0:
                self.value(numerator, m)
            case FloorDiv(numerator, Const(d)) if d > 0 and modulus is not None:
                self.value(numerator, modulus * d)
            case _:
                for child in e.children:
                    self.value(child, None)

    def predicate(self, e: Expr, trips: frozenset[str]) -> None:
        """The truth of ``e`` counts."""
        if not isinstance(e, Compare):
            for child in e.children or ():
                self.predicate(child, trips)
            if isinstance(e, Sym):
                self.full.add(e.name)
            return
        difference = e.lhs - e.rhs
        offset, terms = (
            (difference.offset, difference.terms) if isinstance(difference, Sum) else (0, ((difference, 1),))
        )
        names = [t.name for t, _ in terms if isinstance(t, Sym)]
        if len(names) == len(terms) and all(abs(c) == 1 for _, c in terms):
            bounds = [n for n in names if n in trips]
            for name in names:
                self.cutoff[name] = max(self.cutoff.get(name, 0), abs(offset) + 1)
            if len(names) == 1:
                return
            if len(names) == 2 and len(bounds) == 1 and sum(c for _, c in terms) == 0:
                self.ends.add((next(n for n in names if n not in trips), bounds[0]))
                return
        self.value(e.lhs, None)
        self.value(e.rhs, None)


def uses_of(program: ThreadProgram) -> CounterUses:
    """The uses of all counters and symbols of a program."""
    found, trips = CounterUses(), frozenset(program.symbols)
    for ins in program.code:
        match ins:
            case ExecuteStep(step):
                for e in step.op.expressions:
                    found.value(e, None)
            case Unless(condition):
                found.predicate(condition, trips)
            case Set(_, value):
                found.value(value, None)
            case _:
                pass
    for ins in program.code:
        if isinstance(ins, Add) and ins.value.constant is None:
            name = program.names[ins.counter]
            plain = name in found.full or name in found.cutoff
            found.value(ins.value, None if plain else found.period.get(name, 1))
    return found


class Recurrence:
    """Brings worlds to their least equal form. ``program`` and ``uses`` are per thread."""

    def __init__(self, g: ProtocolInstance):
        self.g = g
        self.uses = [uses_of(p) for p in g.programs]
        self.per = {s.per for s in g.protocol.symbols if s.per is not None}
        self.last = [self._last(p) for p in g.programs]
        self._written: dict[frozenset[Bytes], frozenset[Bytes]] = {}

    def _last(self, program: ThreadProgram) -> dict[str, list[int]]:
        """Per symbol, the instructions that depend on it."""
        found: dict[str, list[int]] = {}
        for pc, ins in enumerate(program.code):
            match ins:
                case ExecuteStep(step):
                    exprs = step.op.expressions
                case Unless(condition):
                    exprs = [condition]
                case Set(_, value) | Add(_, value):
                    exprs = [value]
                case _:
                    exprs = []
            for name in {n for e in exprs for n in e.symbols} & program.symbols.keys():
                found.setdefault(name, []).append(pc)
        return found

    def key(self, w: World) -> Hashable:
        """Folds the world, in place; equal for worlds with the same future."""
        self._fold(w)
        self._renumber(w)
        written = self._written.get(w.written)
        if written is None:
            written = self._written[w.written] = frozenset(_merged(w.written))
        w.written = written
        groups = tuple(tuple(sorted(groups.items())) for groups in w.groups)
        return (*w.key(), groups, written, tuple(sorted(w.trips.items())), tuple(w.registers))

    def ahead(self, t: int, at: Position, trips: Trips) -> Hashable:
        """A key that is equal for positions with equal futures, if every open loop may end."""
        program, uses = self.g.programs[t], self.uses[t]
        env = program.env(at)
        values: list[int] = []
        for name, value in env.items():
            low, period = uses.cutoff.get(name, 0), uses.period.get(name, 1)
            near = name in uses.full or name in self.per or value < low + period
            values.append(value if near else low + (value - low) % period)
        to_go = [
            (max(low - env[counter], 0), exact)
            for counter, symbol in sorted(uses.ends)
            for low, exact in (trips.get(program.key(symbol, env)) or program.unseen(program.key(symbol, env)),)
        ]
        return at[0], tuple(values), tuple(to_go)

    # -- counters ---------------------------------------------------------------------------------------------------
    def _fold(self, w: World) -> None:
        for key in [k for k in w.trips if not any(self._needs(w, t, k) for t in self.g.everyone)]:
            del w.trips[key]
        amounts = {key: self._amount(w, key) for key in w.trips}
        moved = {key: n for key, n in amounts.items() if n}
        shifts: list[dict[str, int]] = [{} for _ in self.g.threads]
        for key, n in moved.items():
            for t in self.g.everyone:
                counter = self._counter(w, t, key)
                if counter is not None:
                    shifts[t][counter] = n
        if moved:
            outer = {(name, n) for t in self.g.everyone for name, n in shifts[t].items() if name in self.per}
            w.trips = {
                (name, self._moved(name, context, outer)): (low - amounts[name, context], exact)
                for (name, context), (low, exact) in w.trips.items()
            }
        for t, (pc, env) in enumerate(w.at):
            w.at[t] = self._counters(t, pc, env, shifts[t])

    def _moved(self, name: str, context: int, outer: set[tuple[str, int]]) -> int:
        per = self.g.programs[0].symbols[name].per
        return context - next((n for counter, n in outer if counter == per), 0)

    def _counters(self, t: int, pc: int, env: tuple[int, ...], shifts: dict[str, int]) -> Position:
        program, uses = self.g.programs[t], self.uses[t]
        values = list(env)
        bounded = {counter for counter, _ in uses.ends}
        for i, name in enumerate(program.names):
            if name in shifts:
                values[i] -= shifts[name]
            elif i and name not in bounded and name not in uses.full and name not in self.per:
                low, period = uses.cutoff.get(name, 0), uses.period.get(name, 1)
                if values[i] >= low + period:
                    values[i] = low + (values[i] - low) % period
        return pc, tuple(values)

    def _amount(self, w: World, key: TripKey) -> int:
        """The common amount by which the counters that run up to this trip count can be decreased in all threads."""
        base: int | None = None
        period, cutoff = 1, 0
        for t in self.g.everyone:
            uses = self.uses[t]
            if not self._needs(w, t, key):
                continue
            names = [key[0]]
            counter = self._counter(w, t, key)
            if counter is not None:
                names.append(counter)
                value = self.g.programs[t].env(w.at[t])[counter]
                base = value if base is None else min(base, value)
            elif self._before(w, t, key):
                return 0
            if uses.full & set(names):
                return 0
            for name in names:
                period = lcm(period, uses.period.get(name, 1))
                cutoff = max(cutoff, uses.cutoff.get(name, 0))
        if base is None:
            # nobody counts up to it any more: only what is asked of the count itself
            low = w.trips[key][0]
            return (low - cutoff) // period * period if low >= cutoff + period and w.trips[key][1] else 0
        period = lcm(period, self.g.programs[0].symbols[key[0]].multiple_of)
        return (base - cutoff) // period * period if base >= cutoff + period else 0

    def _counter(self, w: World, t: int, key: TripKey) -> str | None:
        """The thread's counter that is now running up to this trip count."""
        pc, program = w.at[t][0], self.g.programs[t]
        env = program.env(w.at[t])
        if program.key(key[0], env) != key:
            return None
        for counter, first, last, end in program.loops:
            name = program.names[counter]
            if first <= pc < last and key[0] in end.symbols and (name, key[0]) in self.uses[t].ends:
                return name
        return None

    def _needs(self, w: World, t: int, key: TripKey) -> bool:
        """Whether the thread's future may depend on this trip count."""
        places = self.last[t].get(key[0])
        if not places or self.g.ended(w, t):
            return False
        at = w.at[t]
        program = self.g.programs[t]
        per = program.symbols[key[0]].per
        loop = self._loop(program, per, at[0])
        if per is None or loop is None:
            start = min([first for _, first, last, _ in program.loops if first <= at[0] < last], default=at[0])
            return any(pc >= start for pc in places)
        value = at[1][loop[0]]
        if value != key[1]:
            return value < key[1]
        inner = [first for _, first, last, _ in program.loops if loop[1] < first <= at[0] < last]
        return any(pc >= min(inner, default=at[0]) for pc in places)

    def _before(self, w: World, t: int, key: TripKey) -> bool:
        """Whether the thread has yet to begin a loop that runs up to this trip count."""
        pc, program = w.at[t][0], self.g.programs[t]
        env = program.env(w.at[t])
        same = program.key(key[0], env) == key
        later = [first for _, first, _, end in program.loops if key[0] in end.symbols and first > pc]
        if not same:
            return True
        within = self._loop(program, program.symbols[key[0]].per, pc)
        again = any(
            first <= pc < last and key[0] not in end.symbols and (within is None or first > within[1])
            for _, first, last, end in program.loops
        )
        return again or any(within is None or first < within[2] for first in later)

    @staticmethod
    def _loop(program: ThreadProgram, counter: str | None, pc: int) -> tuple[int, int, int] | None:
        for index, first, last, _ in program.loops:
            if program.names[index] == counter and first <= pc < last:
                return index, first, last
        return None

    # -- group numbers ----------------------------------------------------------------------------------------------
    def _renumber(self, w: World) -> None:
        """Numbers groups from the oldest that is still under way."""
        oldest: dict[tuple[object, str], int] = {}
        for t, groups in enumerate(w.groups):
            for engine, count in groups.items():
                owner = (self._owner(t, engine), engine)
                oldest[owner] = min(count, oldest.get(owner, count))
        for f in w.in_flight:
            owner = (self._owner(f.owner, _engine(str(f.queue[0]))), _engine(str(f.queue[0])))
            if owner in oldest:
                oldest[owner] = min(oldest[owner], f.number)
        for x in w.completions:
            for queue, upto in x.closes:
                owner = (self._owner(x.owner, str(queue[0])), str(queue[0]))
                if owner in oldest:
                    oldest[owner] = min(oldest[owner], upto)
        if not any(oldest.values()):
            return
        for t, groups in enumerate(w.groups):
            for engine in groups:
                groups[engine] -= oldest[self._owner(t, engine), engine]
        w.in_flight = frozenset(
            f._replace(number=f.number - oldest.get((self._owner(f.owner, e), e), 0))
            for f in w.in_flight
            for e in (_engine(str(f.queue[0])),)
        )
        w.completions = tuple(
            x._replace(
                closes=tuple(
                    (queue, upto - oldest.get((self._owner(x.owner, str(queue[0])), str(queue[0])), 0))
                    for queue, upto in x.closes
                )
            )
            for x in w.completions
        )

    def _owner(self, t: int, engine: str) -> object:
        return self.g.teams[t] if engine == "wgmma" else t


def _engine(queue: str) -> str:
    return "tma_store" if queue == "tma_write" else queue


def _merged(places: frozenset[Bytes]) -> list[Bytes]:
    out: list[Bytes] = []
    for place in sorted(places, key=lambda b: (repr(b.space), b.begin, b.end)):
        if out and out[-1].space == place.space and place.begin <= out[-1].end:
            out[-1] = Bytes(place.space, out[-1].begin, max(out[-1].end, place.end))
        else:
            out.append(place)
    return out
