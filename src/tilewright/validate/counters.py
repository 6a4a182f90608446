"""What the text of a kernel counts, and that no launch lets it count beyond 31 bits, worked out here a second time.

A CTA of persistent programs takes at most ``ceildiv(programs, CTAs at once)`` of them. A loop makes at most as many
iterations as its bounds allow over all programs, and never more than ``MAX_EXTENT``: its positions stay in a tensor. A
carried counter ends at its start and all that is added on the way; where CTAs draw programs, one with a period ends at
what a program adds, and a remainder that is less than what 31 bits hold beyond ``MAX_EXTENT``. Every such number must
be bounded by a fact that a launch is asked for, or be small whatever it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from heapq import heappop, heappush
from math import gcd

from xdsl.ir import Operation

from tilewright.artifact.schema import MAX_EXTENT
from tilewright.base.expr import (
    Compare,
    Const,
    Expr,
    ExprError,
    FloorDiv,
    Interval,
    Max,
    Min,
    Mod,
    Product,
    Sum,
    Sym,
    conjuncts,
    interval,
    maximum,
    minimum,
    simplify,
)
from tilewright.tile.attributes import TensorType
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t
from tilewright.transport.parameters import expressions
from tilewright.validate.launch_requirements import ctas_at_once, places_of, programs_of

_LARGE = 1 << 30
_MOST_TRIED = 64
"""Expressions less than one that may be negative, beyond which it is not shown not to be."""
Ends = tuple[Expr | None, Expr | None]
"""The least and the greatest value of an expression, as expressions of what a launch gives; None where not known."""


def uncounted(kernel: t.Kernel, facts: Iterable[Expr]) -> Iterator[tuple[str, Expr]]:
    """The counters that are not shown to stay within ``MAX_EXTENT``: a name, and the greatest value."""
    counts, places = _Counts(kernel), places_of(kernel)
    asked = [fact for given in facts for fact in conjuncts(given)]
    bounded = [fact.lhs for fact in asked if isinstance(fact, Compare) and fact.op == "<=" and _is_limit(fact.rhs)]
    reached = (
        (name, part) for name, most in counts.all() for part in _either(simplify(most.substitute(places), counts.known))
    )
    for name, most in dict.fromkeys((name, simplify(part, counts.known)) for name, part in reached):
        if simplify(most <= MAX_EXTENT, counts.known).constant == 1 or most in bounded:
            continue
        nearest = sorted((larger - most for larger in bounded), key=lambda e: len(_terms(e)))
        if not any(
            not _negative_somewhere(apart, counts.known) and _not_negative(apart, counts.known) for apart in nearest
        ):
            yield name, most


def _either(e: Expr) -> Iterator[Expr]:
    """Expressions of which ``e`` is always one: with each of its arguments in place of a maximum among its factors."""
    for _, factors in _terms(e):
        for factor in factors:
            if isinstance(factor, Max):
                for arg in factor.args:
                    yield from _either(
                        _sum(
                            c * _product(arg if each == factor else each for each in others) for c, others in _terms(e)
                        )
                    )
                return
    yield e


def _is_limit(e: Expr) -> bool:
    return e.constant is not None and e.constant <= MAX_EXTENT


def _negative_somewhere(e: Expr, known: Mapping[str, Interval]) -> bool:
    """e < 0 where all symbols, or one of them, are large and the others are small; most of what can't be shown is."""
    small = {name: max(known.get(name, (1, None))[0] or 1, 1) for name in e.symbols}
    large = {name: min(known.get(name, (None, _LARGE))[1] or _LARGE, _LARGE) for name in e.symbols}
    places = (small, large, *(small | {name: most} for name, most in large.items()))
    try:
        return any(e.evaluate(place) < 0 for place in places)
    except ExprError:  # a quotient by 0
        return False


def _not_negative(e: Expr, known: Mapping[str, Interval]) -> bool:
    """0 <= e: by intervals, or as something smaller is not negative; of the fewest terms first."""
    waiting, seen = [(len(_terms(e)), 0, e)], {e}
    while waiting and len(seen) < _MOST_TRIED:
        _, _, tried = heappop(waiting)
        if simplify(tried >= 0, known).constant == 1:
            return True
        for smaller in _smaller(tried, known):
            if smaller not in seen:
                heappush(waiting, (len(_terms(smaller)), len(seen), smaller))
                seen.add(smaller)
    return False


def _smaller(e: Expr, known: Mapping[str, Interval]) -> Iterator[Expr]:
    """Expressions that are negative where ``e`` is: without a factor of all its terms, or with something smaller in
    place of a term."""
    terms = _terms(e)
    for factor in dict.fromkeys(terms[0][1]):
        if all(factor in factors for _, factors in terms) and _natural(factor, known):
            yield _sum(c * _product(_without(factors, factor)) for c, factors in terms)
            return
    for c, factors in terms:
        for factor in dict.fromkeys(factors):
            others = _without(factors, factor)
            if all(_natural(other, known) for other in others):
                for part in _below(factor, c, known):
                    yield e - c * _product(factors) + part * _product(others)


def _below(factor: Expr, c: int, known: Mapping[str, Interval]) -> list[Expr]:
    """An expression that never exceeds ``c * factor``."""
    match factor:
        case Max(args) if c > 0:
            return [arg * c for arg in args]
        case Min(args) if c < 0:
            return [arg * c for arg in args]
        case FloorDiv(x, n) if c < 0 and n.constant is not None and (common := gcd(c, n.constant)) > 1:
            return [x // (n.constant // common) * (c // common)]  # m floor(x / (m n)) <= floor(x / n)
        case FloorDiv(Sum(offset, ((t, by),)), n) if c < 0 < by and _natural(t, known):
            if n.constant is not None and offset < n.constant:
                return [t * (-(-by // n.constant) * c)]  # ceildiv(k t, n) <= ceildiv(k, n) t
            return []
        case FloorDiv(Sum(offset, terms), n) if c < 0 and n.constant is not None and offset < n.constant:
            whole = _sum(t * by for t, by in terms)
            return [whole * c] if all(by > 0 and _natural(t, known) for t, by in terms) else []  # ceildiv(s, n) <= s
        case _:
            return []


def _terms(e: Expr) -> list[tuple[int, tuple[Expr, ...]]]:
    """A sum as coefficients and factors."""
    if not isinstance(e, Sum):
        return [(1, e.factors if isinstance(e, Product) else (e,))]
    found = [(c, term.factors if isinstance(term, Product) else (term,)) for term, c in e.terms]
    return [(e.offset, ()), *found] if e.offset else found


def _without(factors: tuple[Expr, ...], factor: Expr) -> tuple[Expr, ...]:
    at = factors.index(factor)
    return factors[:at] + factors[at + 1 :]


def _natural(e: Expr, known: Mapping[str, Interval]) -> bool:
    low = interval(e, known)[0]
    return low is not None and low >= 0


class _Counts:
    """The counts of one kernel."""

    def __init__(self, kernel: t.Kernel):
        self.kernel = kernel
        self.known: dict[str, Interval] = {}
        for arg in kernel.body.block.args:
            if isinstance(arg.type, TensorType):
                self.known |= {name: (0, MAX_EXTENT) for d in arg.type.dims for name in d.expr.symbols}
        loaded = (op.symbol.data for op in kernel.walk() if isinstance(op, t.Bind))
        self.known |= dict.fromkeys(loaded, (0, MAX_EXTENT))
        self.ends: dict[str, Ends] = {}
        """Of program coordinates and loop counters, and of what a ``let`` names."""
        self.lets: dict[str, Expr] = {}
        self.kept = False
        """Between programs that CTAs draw, the text keeps of the counter in question its remainder by a period."""

    def all(self) -> Iterator[tuple[str, Expr]]:
        """Programs that CTAs walk, and every carried counter, by name."""
        for programs in programs_of(self.kernel):
            if programs.persistent.data:
                yield "programs", _total(programs)
        for block in (block for op in self.kernel.walk() for region in op.regions for block in region.blocks):
            listed = list(block.ops)
            for place, op in enumerate(listed):
                if isinstance(op, a.Counter):
                    self.kept = op.period is not None and self._is_periodic(op.symbol.data, op.period.data)
                    most = op.start.data + self._added(listed[place + 1 :], op.symbol.data)
                    yield op.symbol.data, most

    def _is_periodic(self, counter: str, period: int) -> bool:
        """Whether no use of a counter changes when the period is added to it."""
        named = (e for op in self.kernel.walk() for x in op.attributes.values() for e in expressions(x))
        known: dict[str, Interval] = {counter: (0, None)}
        each = (e for e in dict.fromkeys(named) if counter in e.symbols)
        return all(simplify(e.substitute({counter: Sym(counter) + period}), known) == simplify(e, known) for e in each)

    # -- what is added ------------------------------------------------------------------------------------------------
    def _added(self, ops: Iterable[Operation], counter: str) -> Expr:
        """At most, by one run of ``ops``."""
        total: Expr = Const(0)
        before: tuple[t.For, Expr, Expr, Expr] | None = None
        for op in ops:
            match op:
                case a.Advance() if op.symbol.data == counter:
                    total = total + self._most(op.by.expr)
                case t.Let():
                    self.ends[op.symbol.data] = self._of(op.value.expr)
                    self.lets[op.symbol.data] = op.value.expr
                case t.Bind():
                    self.ends[op.symbol.data] = (Const(0), Const(MAX_EXTENT))
                case t.Programs():
                    for name, extent in zip(op.names, op.extents, strict=True):
                        self.ends[name.data] = (Const(0), extent.expr - 1)
                    total = total + self._taken(op) * self._added(op.body.block.ops, counter)
                case t.For():
                    begin, count, each = op.begin.expr, self._iterations(op), self._added(op.body.block.ops, counter)
                    if before is not None and (end := self._continues(before[0], op)) is not None and each == before[3]:
                        # parts of one range, each of which may be long
                        begin, total = before[1], total - before[2] * each
                        count = self._between(begin, end, Const(1))
                    total = total + count * each
                    before = (op, begin, count, each)
                case t.If():
                    ways = (self._added(region.block.ops, counter) for region in (op.then, op.otherwise))
                    total = total + maximum(*ways)
                case _:
                    inner = (block.ops for region in op.regions for block in region.blocks)
                    for ops_inside in inner:
                        total = total + self._added(ops_inside, counter)
        return total

    def _taken(self, op: t.Programs) -> Expr:
        """The number of programs that the executing threads take in one CTA. With ping-pong the first role has the
        most."""
        if not op.persistent.data:
            return Const(1)
        if op.drawn is not None:
            return Const(1) if self.kept else _total(op)
        at_once, (first, distance) = ctas_at_once(self.kernel), op.interleaving
        return ((_total(op) + (at_once - 1)) // at_once + (distance - 1 - first)) // distance

    def _iterations(self, op: t.For) -> Expr:
        """Of one run of a loop; names its counter's ends."""
        begin, end = self._of(op.begin.expr)[0], self._of(op.end.expr)[1]
        self.ends[op.counter.data] = (begin, None if end is None else end - 1)
        return self._between(op.begin.expr, op.end.expr, op.step.expr)

    def _between(self, first: Expr, last: Expr, step: Expr) -> Expr:
        """Iterations at most from ``first`` to before ``last``: their distance is bounded as one expression, too."""
        by = step.constant
        if by is None or by < 1:
            return Const(MAX_EXTENT)
        begin, end = self._of(first)[0], self._of(last)[1]
        known = [] if begin is None or end is None else [end - begin]
        for start in first.args if isinstance(first, Max) else ():
            apart = self._of(last - start)[1]
            known += [] if apart is None else [apart]
        return (
            minimum(*(maximum(most + (by - 1), 0) // by for most in known), MAX_EXTENT) if known else Const(MAX_EXTENT)
        )

    def _continues(self, first: t.For, second: t.For) -> Expr | None:
        """Where the range of both ends, if the second loop goes on where the first stops short of it; else None."""
        if first.counter != second.counter or {first.step.expr, second.step.expr} != {Const(1)}:
            return None
        stop, begin, end = first.end.expr, second.begin.expr, second.end.expr
        within = self._ends_of(end)
        if isinstance(stop, Min) and begin.constant is not None and begin in stop.args:  # 0 .. min(n, c), c .. n
            return next((whole for whole in stop.args if whole != begin and whole in within), None)
        if isinstance(stop, Sym) and begin in (maximum(stop, first.begin.expr), maximum(first.begin.expr, stop)):
            most = self._ends_of(stop)
            return end if end in most or (isinstance(end, Min) and set(end.args) <= set(most)) else None
        return None

    def _ends_of(self, e: Expr) -> tuple[Expr, ...]:
        """What an expression is at most, as the text says: itself, and the arguments of the minimum that it names."""
        named = self.lets.get(e.name) if isinstance(e, Sym) else None
        return (e, *(named.args if isinstance(named, Min) else () if named is None else (named,)))

    # -- ends of expressions ------------------------------------------------------------------------------------------
    def _most(self, e: Expr) -> Expr:
        found = self._of(e)[1]
        return Const(MAX_EXTENT) if found is None else found

    def _of(self, e: Expr) -> Ends:
        """The ends of an expression over all programs and iterations."""
        if e.symbols.isdisjoint(self.ends):
            return e, e
        match e:
            case Sym(name):
                return self.ends[name]
            case Sum(offset, terms):
                least: Expr | None = Const(offset)
                most: Expr | None = Const(offset)
                for term, c in terms:
                    low, high = self._of(term) if c > 0 else self._of(term)[::-1]
                    least = None if least is None or low is None else least + low * c
                    most = None if most is None or high is None else most + high * c
                return least, most
            case Product(factors):
                ends = [self._of(factor) for factor in factors]
                lows = [low for low, _ in ends if low is not None and _natural(low, self.known)]
                highs = [high for _, high in ends if high is not None]
                if len(lows) < len(ends):
                    return None, None
                return _product(lows), _product(highs) if len(highs) == len(ends) else None
            case FloorDiv(x, y) if y.constant is not None and y.constant > 0:
                low, high = self._of(x)
                return None if low is None else low // y, None if high is None else high // y
            case Mod(_, y) if y.constant is not None and y.constant > 0:
                return Const(0), y - 1
            case Min(args) | Max(args):
                lows, highs = zip(*map(self._of, args), strict=True)
                return _extreme(e, lows, any_is_enough=isinstance(e, Max)), _extreme(
                    e, highs, any_is_enough=isinstance(e, Min)
                )
            case _:
                return None, None


def _total(programs: t.Programs) -> Expr:
    return _product(extent.expr for extent in programs.extents)


def _product(factors: Iterable[Expr]) -> Expr:
    total: Expr = Const(1)
    for factor in factors:
        total = total * factor
    return total


def _sum(terms: Iterable[Expr]) -> Expr:
    total: Expr = Const(0)
    for term in terms:
        total = total + term
    return total


def _extreme(e: Expr, ends: Iterable[Expr | None], *, any_is_enough: bool) -> Expr | None:
    """The minimum or maximum of ends; of those that are known, where one of them bounds it already."""
    listed = list(ends)
    found = [end for end in listed if end is not None]
    if not found or (len(found) < len(listed) and not any_is_enough):
        return None
    return minimum(*found) if isinstance(e, Min) else maximum(*found)
