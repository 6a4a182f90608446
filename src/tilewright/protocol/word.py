"""The common word of a protocol: one control-flow graph that all its roles walk together.

Roles go round the same symbolic loops, a producer ahead of its consumers. Laid side by side, iteration by iteration,
their programs are one sequence of *stretches*; which sequences there are is a finite graph:

    opening -> before -> k=0 -> k>=1 -> after -> ending        a tile loop around one stream; the first iteration
                 ^         |______|^      |                    stands alone because "k > 0" guards a release
                 |________________________|

A stretch has straight-line code for every role, perhaps none. Branches are gone: a guard on a counter splits its loop
(first iterations, residues), a guard on a symbol splits the body of the loop that the symbol varies with. The order of
stretches is a label, not a schedule: roles may be any distance apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from math import lcm
from typing import Any, cast

from tilewright.base.expr import All, Any_, Compare, Const, Expr, Mod, Not, Sum, Sym, expr, sym
from tilewright.protocol import ops
from tilewright.protocol.model import If, Loop, Node, Protocol, Role, Step

MAX_STRETCHES = 64
MAX_UNROLLED = 8
MAX_PEELED = 4
MAX_RESIDUES = 4


class NoWord(Exception):
    """The roles do not go round the same loops, or a guard is outside the fragment; the text says which."""


@dataclass(frozen=True)
class Stretch:
    """Straight-line code of every party, executed once each time the word passes here."""

    index: int
    label: str
    loops: tuple[int, ...]
    """The loops around it, outermost first."""
    code: tuple[tuple[Step, ...], ...]


@dataclass(frozen=True)
class Flow:
    """The word may go on from one stretch to another; ``turns`` are the loops of which an iteration ends on the way."""

    source: int
    target: int
    turns: tuple[int, ...]


@dataclass(frozen=True)
class WordLoop:
    """A loop of the word; in all its copies the same number. ``outermost``: it runs once at most."""

    index: int
    counter: str
    outermost: bool


@dataclass(frozen=True)
class Word:
    """Stretches, flows between them, where the word may start and end, and its loops.

    ``parties`` are the roles with the rank of the CTA they run in; a stretch has one piece of code for each.
    """

    parties: tuple[tuple[Role, int], ...]
    stretches: tuple[Stretch, ...]
    flows: tuple[Flow, ...]
    starts: tuple[int, ...]
    ends: tuple[int, ...]
    loops: tuple[WordLoop, ...]


def word_of(protocol: Protocol, early: frozenset[str] = frozenset()) -> Word:
    """The word of ``protocol``; raises ``NoWord``.

    A role that has no part in a loop does its own work after it, if named in ``early`` before it.
    """
    builder = _Builder(protocol, early)
    programs = [builder.strided(_substituted(role.body, ops.CTA_RANK, cta)) for role, cta in builder.parties]
    alternatives = builder.body(programs, _Context(), ())
    return Word(
        builder.parties,
        tuple(builder.stretches),
        tuple(dict.fromkeys(builder.flows)),
        tuple(a for a, _ in alternatives),
        tuple(b for _, b in alternatives),
        tuple(builder.loops.values()),
    )


def numbered(word: Word, unit: frozenset[int], uses: dict[int, int], start: int) -> dict[int, int] | None:
    """Per stretch: uses made before it, minus turns of the unit; None if that depends on the way. The value at the end
    after stretch ``e`` is under ``-1 - e``."""
    lead = dict.fromkeys(word.starts, start)
    pending = list(word.starts)
    while pending:
        at = pending.pop()
        for f in word.flows:
            if f.source != at:
                continue
            value = lead[at] + uses.get(at, 0) - len(unit.intersection(f.turns))
            if f.target not in lead:
                lead[f.target] = value
                pending.append(f.target)
            elif lead[f.target] != value:
                return None
    return lead | {-1 - e: lead[e] + uses.get(e, 0) for e in word.ends if e in lead}


@dataclass(frozen=True)
class _Context:
    """What is known on the way to a stretch: facts about symbols, and of each loop counter a value that stands for all
    values it may have there."""

    facts: tuple[tuple[str, bool], ...] = ()
    counters: tuple[tuple[str, int], ...] = ()

    def fact(self, name: str) -> bool | None:
        return dict(self.facts).get(name)

    def with_fact(self, name: str, value: bool) -> _Context:
        return replace(self, facts=(*self.facts, (name, value)))

    def with_counter(self, name: str, value: int) -> _Context:
        return replace(self, counters=(*self.counters, (name, value)))


@dataclass
class _Open(Exception):
    """A fact about symbols is needed; the loop body at ``level`` (a counter, or empty) must be split on it."""

    name: str
    level: str


@dataclass
class _Builder:
    protocol: Protocol
    early: frozenset[str]
    stretches: list[Stretch] = field(default_factory=list[Stretch])
    flows: list[Flow] = field(default_factory=list[Flow])
    loops: dict[tuple[str, ...], WordLoop] = field(default_factory=dict[tuple[str, ...], WordLoop])

    def __post_init__(self) -> None:
        self.symbols = {s.name: s for s in self.protocol.symbols}
        if any(s.least < 0 for s in self.protocol.symbols):
            raise NoWord("a symbol that may be negative")
        self.parties = tuple(
            (role, cta)
            for cta in range(self.protocol.cluster)
            for role in self.protocol.roles
            if role.ctas is None or cta in role.ctas
        )

    def strided(self, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        """A loop over every W-th iteration as one over all of them, of which the others are skipped.

        A ring's counter that skips what others use in between is advanced by their loops' counts: in the iterations
        left out rather than ahead of them. Symbols that are the same in all iterations make that the same.
        """
        out: list[Node] = []
        for node in nodes:
            if not isinstance(node, Loop) or node.step == 1 or node.end.constant is not None:
                out.append(node)
                continue
            width, mine = node.step, _constant(node.begin)
            if mine >= width:
                raise NoWord(f"a loop from {mine} in steps of {width}")
            body, skips = list(node.body), list[Step]()
            while body and isinstance(last := body[-1], Step) and isinstance(last.op, ops.Advance):
                body.pop()
                skips.insert(0, last)
            kept = [s for s in skips if _by(s).constant is not None]
            moved = [x for s in skips if s not in kept for x in self.skip(s, width - 1)]
            for step in skips if mine else ():
                if step not in kept:
                    self.take_back(out, step, mine, width - 1)
            condition = (sym(node.counter) % width).eq(mine)
            whole = (If(condition, (*body, *kept), tuple(moved)),)
            out.append(replace(node, begin=Const(0), step=1, body=whole))
        return tuple(out)

    def skip(self, step: Step, times: int) -> list[Step]:
        """An advance by ``times`` a sum of symbols, as one by each."""
        names = sorted(_by(step).symbols)
        total = sum((sym(n) for n in names), Const(0)) * times
        if _by(step) != total or any(n not in self.symbols or self.symbols[n].per is not None for n in names):
            raise NoWord(f"a counter that advances by {_by(step)}")
        return [replace(step, op=ops.Advance(_counter(step), sym(n))) for n in names]

    @staticmethod
    def take_back(before: list[Node], skip: Step, times: int, per: int) -> None:
        """Removes the advance over the first iterations, which others take, from what comes before a loop."""
        for i in range(len(before) - 1, -1, -1):
            node = before[i]
            if not isinstance(node, Step):
                break
            if isinstance(node.op, ops.Advance) and node.op.counter == _counter(skip):
                if _by(node) * per == _by(skip) * times:
                    del before[i]
                    return
                break
            if _counter(skip) in _names(node):
                break
        raise NoWord(f"counter {_counter(skip)} does not skip the first iterations")

    # -- one body -----------------------------------------------------------------------------------------------------
    def body(
        self, programs: Sequence[tuple[Node, ...]], context: _Context, path: tuple[str, ...]
    ) -> list[tuple[int, int]]:
        """First and last stretch of every way to go through one body."""
        marks = len(self.stretches), len(self.flows)
        try:
            return [self.chain(programs, context, path)]
        except _Open as need:
            if need.level and (not path or need.level != path[-1].partition(" ")[0]):
                raise
            del self.stretches[marks[0] :]
            del self.flows[marks[1] :]
            found: list[tuple[int, int]] = []
            for value in (True, False):
                found += self.body(programs, context.with_fact(need.name, value), path)
            return found

    def chain(self, programs: Sequence[tuple[Node, ...]], context: _Context, path: tuple[str, ...]) -> tuple[int, int]:
        items = [list(self.resolved(p, context)) for p in programs]
        items = [self.with_skipped(x, items) for x in items]
        keys = max(([_key(n) for n in x if isinstance(n, Loop)] for x in items), key=len)
        longest = next(x for x in items if [_key(n) for n in x if isinstance(n, Loop)] == keys)
        meetings = _meetings(longest)
        gaps = [self.placed(r, x, keys, meetings) for (r, _), x in zip(self.parties, items, strict=True)]
        first = last = self.stretch(path, "before" if keys else "body", [g.code[0] for g in gaps])
        for i, key in enumerate(keys):
            after = self.stretch(path, f"after {i}", [g.code[i + 1] for g in gaps])
            self.loop([g.loops[i] for g in gaps], key, i, last, after, context, path)
            last = after
        return first, last

    def stretch(self, path: tuple[str, ...], what: str, code: list[list[Step]]) -> int:
        if len(self.stretches) >= MAX_STRETCHES:
            raise NoWord(f"more than {MAX_STRETCHES} stretches")
        inside = tuple(self.loops[path[: i + 1]].index for i in range(len(path)))
        label = " ".join((*path, what))
        self.stretches.append(Stretch(len(self.stretches), label, inside, tuple(map(tuple, code))))
        return len(self.stretches) - 1

    # -- loops --------------------------------------------------------------------------------------------------------
    def loop(
        self, loops: Sequence[Loop | None], key: str, position: int, before: int, after: int, context: _Context,
        path: tuple[str, ...],
    ) -> None:  # fmt: skip
        there = [x for x in loops if x is not None]
        counter = there[0].counter
        if any(x.counter != counter for x in there) and any(
            s.per in {x.counter for x in there} for s in self.symbols.values()
        ):
            raise NoWord(f"roles count the loop to {key} by different names")
        if not there[0].end.symbols <= {*self.symbols, *(c for c, _ in context.counters)}:
            raise NoWord(f"a loop to {key}")
        least = self.least(there[0].end, context)
        if least is False:
            self.flows.append(Flow(before, after, ()))
            return
        name = f"{counter} {position}"
        number = self.loops.setdefault((*path, name), WordLoop(len(self.loops), counter, not path)).index
        begins = [0 if x is None else _constant(x.begin) for x in loops]
        if max(begins) > 0 and not least:
            raise NoWord(f"a loop to {key} starts late, and may be empty")
        cut, modulus = max(begins), 1
        for x in there:
            for condition in _conditions(x.body):
                c, m = _uses(condition, x.counter)
                cut, modulus = max(cut, c), lcm(modulus, m)
        if cut > MAX_PEELED or modulus > MAX_RESIDUES:
            raise NoWord(f"the guards of the loop to {key} tell {cut} + {modulus} iterations apart")
        moved = [self.unpeeled(before, r, x) for r, x in enumerate(loops)]
        states = [*range(cut), *(cut + j for j in range(modulus))]
        bodies: list[list[tuple[int, int]]] = []
        for i in states:
            inner = context
            for c in {x.counter for x in there}:
                inner = inner.with_counter(c, i)
            programs = [
                () if x is None else x.body if i >= b else moved[r] if i == 0 else ()
                for r, (x, b) in enumerate(zip(loops, begins, strict=True))
            ]
            bodies.append(self.body(programs, inner, (*path, name)))
        for first, _ in bodies[0]:
            self.flows.append(Flow(before, first, ()))
        for i, body in enumerate(bodies):
            following = bodies[i + 1] if i + 1 < len(bodies) else bodies[cut]
            for _, last in body:
                self.flows += [Flow(last, first, (number,)) for first, _ in following]
                self.flows.append(Flow(last, after, (number,)))
        if not least:
            self.flows.append(Flow(before, after, ()))

    def least(self, end: Expr, context: _Context) -> bool | None:
        """Whether the loop runs at least once; None: either."""
        match end:
            case Const(value):
                return value > 0
            case Sym(name) if name in self.symbols:
                return True if self.symbols[name].least > 0 else context.fact(name)
            case _:
                return None

    def unpeeled(self, before: int, role: int, x: Loop | None) -> tuple[Step, ...]:
        """Takes from the stretch before a loop that starts late what belongs to the iteration left out: everything from
        the first op on that uses a counter the loop advances."""
        if x is None or _constant(x.begin) == 0:
            return ()
        advanced = {n.op.counter for n in x.body if isinstance(n, Step) and isinstance(n.op, ops.Advance)}
        stretch = self.stretches[before]
        code = stretch.code[role]
        first = next((i for i, s in enumerate(code) if _names(s) & advanced), len(code))
        codes = tuple(c[:first] if r == role else c for r, c in enumerate(stretch.code))
        self.stretches[before] = replace(stretch, code=codes)
        return code[first:]

    def with_skipped(self, items: list[Step | Loop], everyone: list[list[Step | Loop]]) -> list[Step | Loop]:
        """A role that leaves a loop to others and advances its counter by the loop's count walks it without ops."""
        mine = {_key(n) for n in items if isinstance(n, Loop)}
        others = {_key(n): n for x in everyone for n in x if isinstance(n, Loop)}
        out: list[Step | Loop] = []
        for n in items:
            by = n.op.by if isinstance(n, Step) and isinstance(n.op, ops.Advance) else None
            loop = None if by is None or by.text in mine else others.get(by.text)
            if loop is None or not isinstance(n, Step) or not isinstance(n.op, ops.Advance):
                out.append(n)
                continue
            out.append(Loop(loop.counter, Const(0), loop.end, 1, (replace(n, op=ops.Advance(n.op.counter)),)))
        return out

    def placed(self, role: Role, items: list[Step | Loop], keys: list[str], meetings: list[int]) -> _Gaps:
        """The role's loops matched with the body's, its other steps in the gaps between them. A role without loops
        works behind them, except for what all threads must meet for before: ``meetings`` in each gap."""
        gaps = _Gaps([[] for _ in range(len(keys) + 1)], [None] * len(keys))
        loops = [n for n in items if isinstance(n, Loop)]
        at, pending = 0, list[Step]()
        for n in items:
            if isinstance(n, Step):
                pending.append(n)
                continue
            try:
                found = keys.index(_key(n), at)
            except ValueError:
                raise NoWord(f"role {role.name} has a loop to {_key(n)} that others order differently") from None
            gaps.code[at if at else found] += pending
            gaps.loops[found] = n
            at, pending = found + 1, []
        if loops or not keys or role.name in self.early:
            gaps.code[at] += pending
            return gaps
        gap = 0
        for i, step in enumerate(pending):
            while gap < len(keys) and not any(_meets(x) for x in pending[i:]):
                gap += 1
            while gap < len(keys) and meetings[gap] <= sum(map(_meets, gaps.code[gap])):
                gap += 1
            gaps.code[gap].append(step)
        return gaps

    # -- guards -------------------------------------------------------------------------------------------------------
    def resolved(self, nodes: tuple[Node, ...], context: _Context) -> Iterator[Step | Loop]:
        """The body without branches; short loops of constant count are unrolled."""
        for node in nodes:
            match node:
                case Step():
                    yield node
                case If():
                    chosen = node.then if self.holds(node.condition, context) else node.otherwise
                    yield from self.resolved(chosen, context)
                case Loop():
                    begin, end = node.begin.constant, node.end.constant
                    if node.step == 1 and (begin is None or end is None or end - begin > MAX_UNROLLED):
                        yield node
                    elif begin is None or end is None or len(range(begin, end, node.step)) > MAX_UNROLLED:
                        raise NoWord(f"a loop to {node.end} in steps of {node.step}")
                    else:
                        for i in range(begin, end, node.step):
                            yield from self.resolved(_substituted(node.body, node.counter, i), context)

    def holds(self, condition: Expr, context: _Context) -> bool:
        match condition:
            case Const(value):
                return bool(value)
            case All():
                return all(self.holds(c, context) for c in condition.children)
            case Any_():
                return any(self.holds(c, context) for c in condition.children)
            case Not(inner):
                return not self.holds(inner, context)
            case _:
                pass
        counters = dict(context.counters)
        if condition.symbols <= counters.keys():
            return bool(condition.evaluate(counters))
        if not condition.symbols <= self.symbols.keys():
            raise NoWord(f"a guard on {condition}")
        if len(condition.symbols) == 1:
            (name,) = condition.symbols
            truths = [bool(condition.evaluate({name: v})) for v in (0, 1)]
            if _positivity(condition, name):
                if self.symbols[name].least > 0:
                    return truths[1]
                known = context.fact(name)
                if known is None:
                    raise _Open(name, self.level([name], context))
                return truths[int(known)]
        known = context.fact(condition.text)
        if known is None:
            raise _Open(condition.text, self.level(sorted(condition.symbols), context))
        return known

    def level(self, names: list[str], context: _Context) -> str:
        """The counter of the loop with which the symbols vary; symbols used within symbolic loops vary with the
        outermost one."""
        pers = {self.symbols[n].per for n in names} - {None}
        if len(pers) > 1:
            raise NoWord(f"a guard on symbols of two loops: {', '.join(names)}")
        counters = [c for c, _ in context.counters]
        per = pers.pop() if pers else (counters[0] if counters else "")
        if per and per not in counters:
            raise NoWord(f"{names[0]} is used outside the loop {per} that it varies with")
        return per or ""


def _meets(step: Step) -> bool:
    return isinstance(step.op, ops.CtaSync | ops.ClusterWait)


def _meetings(items: list[Step | Loop]) -> list[int]:
    """How often all threads meet before the first loop, between it and the second, and so on."""
    out = [0]
    for n in items:
        if isinstance(n, Loop):
            out.append(0)
        else:
            out[-1] += _meets(n)
    return out


@dataclass
class _Gaps:
    code: list[list[Step]]
    loops: list[Loop | None]


def _key(loop: Loop) -> str:
    return loop.end.text


def _constant(e: Expr) -> int:
    value = e.constant
    if value is None or value < 0:
        raise NoWord(f"a loop from {e}")
    return value


def _conditions(nodes: tuple[Node, ...]) -> Iterator[Expr]:
    for node in nodes:
        if isinstance(node, If):
            yield node.condition
            yield from _conditions(node.then + node.otherwise)
        elif isinstance(node, Loop):
            yield from _conditions(node.body)


def _uses(condition: Expr, counter: str) -> tuple[int, int]:
    """How many first values of the counter, and which residues beyond, the truth of a guard depends on."""
    if counter not in condition.symbols:
        return 0, 1
    match condition:
        case Compare(_, lhs, rhs):
            difference = lhs - rhs
            match difference:
                case Sym() | Sum(_, ((Sym(), 1 | -1),)) if difference.symbols == frozenset((counter,)):
                    offset = difference.offset if isinstance(difference, Sum) else 0
                    return max(0, abs(offset) + 1), 1
                case _:
                    found = [_residue(e, counter) for e in (lhs, rhs)]
                    return 0, lcm(*found)
        case All() | Any_() | Not():
            found = [_uses(c, counter) for c in condition.children]
            return max(c for c, _ in found), lcm(*(m for _, m in found))
        case _:
            raise NoWord(f"a guard on {condition}")


def _residue(e: Expr, counter: str) -> int:
    match e:
        case _ if counter not in e.symbols:
            return 1
        case Mod(Sym(name), Const(m)) if name == counter and m > 0:
            return m
        case _:
            raise NoWord(f"a guard on {e}")


def _positivity(condition: Expr, name: str) -> bool:
    """Whether the truth of a comparison depends on ``name > 0`` alone (for values that are not negative)."""
    match condition:
        case Compare("<" | "<=" as op, Const(c), Sym(n)) if n == name:
            return c == (0 if op == "<" else 1)
        case Compare("<" | "<=" as op, Sym(n), Const(c)) if n == name:
            return c == (1 if op == "<" else 0)
        case Compare("==" | "!=", Sym(n), Const(0)) | Compare("==" | "!=", Const(0), Sym(n)):
            return n == name
        case _:
            return False


def _by(step: Step) -> Expr:
    assert isinstance(step.op, ops.Advance)
    return step.op.by


def _counter(step: Step) -> str:
    assert isinstance(step.op, ops.Advance)
    return step.op.counter


def _names(step: Step) -> frozenset[str]:
    return frozenset[str]().union(*(e.symbols for e in expressions_of(step.op)))


def expressions_of(op: ops.Op) -> list[Expr]:
    """The expressions in an op."""
    out: list[Expr] = []
    mapped(op, lambda e: out.append(e) or e)
    return out


def mapped(item: Any, change: Callable[[Expr], Expr]) -> Any:
    """An op (or a part of one) with every expression replaced."""
    if isinstance(item, Expr):
        return change(item)
    if isinstance(item, tuple):
        return tuple(mapped(x, change) for x in cast(tuple[Any, ...], item))
    if not hasattr(item, "__dataclass_fields__") or isinstance(item, type):
        return item
    return replace(item, **{f.name: mapped(getattr(item, f.name), change) for f in fields(item)})


def _substituted(nodes: tuple[Node, ...], counter: str, value: int) -> tuple[Node, ...]:
    def change(e: Expr) -> Expr:
        return e.substitute({counter: expr(value)}) if counter in e.symbols else e

    out: list[Node] = []
    for node in nodes:
        match node:
            case Step():
                out.append(replace(node, op=mapped(node.op, change)))
            case Loop():
                body = _substituted(node.body, counter, value)
                out.append(replace(node, begin=change(node.begin), end=change(node.end), body=body))
            case If():
                then = _substituted(node.then, counter, value)
                otherwise = _substituted(node.otherwise, counter, value)
                out.append(If(change(node.condition), then, otherwise, node.where))
    return tuple(out)


__all__ = ["Flow", "NoWord", "Stretch", "Word", "WordLoop", "expressions_of", "mapped", "numbered", "word_of"]
