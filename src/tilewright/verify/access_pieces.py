"""Access maps as linear pieces: index variables with ranges, a predicate, linear coordinates.

``tid`` and ``r`` occur as ``tid // 32`` or ``r % 4``: divisions by constants that form a chain of divisors. Such an
index is replaced, exactly, by one variable per digit of its mixed-radix form,

    tid = d0 + 4*d1 + 32*d2,   0 <= d0 < 4,  0 <= d1 < 8,  0 <= d2,

after which these divisions and remainders are sums of digits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from tilewright.base.expr import Expr, FloorDiv, Mod, Sum, Sym
from tilewright.protocol.access import AccessMap, Loaded, LoopIndex, NamedValue
from tilewright.verify.access_linear import (
    FALSEHOOD,
    Conjunction,
    Disjunction,
    Formula,
    Linear,
    Linearisation,
    Variables,
    both,
    rewritten,
)

_NARROWING_ROUNDS = 3


@dataclass(frozen=True)
class AccessPiece:
    """One access map over variables. A point belongs to it if ``ranges``, ``definitions`` and ``predicate`` hold.

    ``indices`` gives every index of the map as a form over ``free`` variables; ``definitions`` fix what is not linear
    and are satisfiable wherever the ranges hold. ``sizes`` holds the extent of each free variable before the predicate
    narrowed it, None where it depends on parameters; ``narrowed`` what is left of it; ``local`` all variables that
    differ from point to point.
    """

    source: AccessMap
    free: tuple[int, ...]
    sizes: Mapping[int, int | None]
    narrowed: Mapping[int, int | None]
    indices: Mapping[str, Linear]
    ranges: Formula
    definitions: Formula
    predicate: Formula
    coords: tuple[Linear, ...]
    local: frozenset[int]

    @property
    def points(self) -> Formula:
        """All conditions of the piece."""
        return both((self.ranges, self.definitions, self.predicate))


def piece_of(source: AccessMap, variables: Variables, outer: Linearisation, fixed: Mapping[str, Linear]) -> AccessPiece:
    """The piece of ``source`` with index variables of its own; indices in ``fixed`` are taken as given."""
    local = Linearisation(variables, {**outer.env, **fixed}, outer)
    builder = _Indices(source, local)
    for item in source.scope:
        match item:
            case NamedValue(name, value):
                local.env[name] = local.form(value)
            case LoopIndex():
                builder.add(item, fixed.get(item.name))
            case Loaded(name, low, high):
                builder.any_of(name, low, high)
    predicate = local.formula(source.predicate)
    highs = {v: variables.bounds[v][1] for v in builder.free}
    required = list(_literals(variables, both((*builder.ranges, predicate))))
    _narrow(variables, required, builder.free)
    pinned = _pinned(variables, required, builder.free, local.own)
    narrowed = [rewritten(_within(variables, v), pinned) for v in builder.free]
    coords = tuple(local.form(c).replaced(pinned) for c in source.coords)
    return AccessPiece(
        source=source,
        free=tuple(v for v in builder.free if v not in pinned),
        sizes={v: None if high is None else high + 1 for v, high in highs.items()},
        narrowed={v: None if (high := variables.bounds[v][1]) is None else high + 1 for v in builder.free},
        indices={name: form.replaced(pinned) for name, form in builder.indices.items()},
        ranges=both((*narrowed, *(rewritten(f, pinned) for f in builder.ranges))),
        definitions=both(rewritten(f, pinned) for f in local.facts),
        predicate=rewritten(predicate, pinned),
        coords=coords,
        local=frozenset(local.own - pinned.keys()),
    )


class _Indices:
    """Introduces variables for the indices of one map."""

    def __init__(self, source: AccessMap, local: Linearisation):
        self.local = local
        self.free: list[int] = []
        self.indices: dict[str, Linear] = {}
        self.ranges: list[Formula] = []
        expressions = [source.guard, *source.conditions, *source.coords]
        for item in source.scope:
            match item:
                case NamedValue():
                    expressions.append(item.value)
                case LoopIndex():
                    expressions += [item.begin, item.end]
                case Loaded():
                    pass
        self.expressions = [e for e in expressions if not e.polynomial]  # others cut nothing

    def add(self, index: LoopIndex, given: Linear | None) -> None:
        begin, end, step = (self.local.form(e) for e in (index.begin, index.end, index.step))
        if given is not None:
            self.ranges += [given.plus(begin, -1), end.plus(given, -1).shifted(-1)]
            if step.const != 1 or step.terms:
                name = Sym(index.name)
                self.ranges.append(self.local.formula(((name - index.begin) % index.step).eq(0)))
            self.indices[index.name] = given
            return
        if step.terms or step.const < 1:  # the values between are allowed too, which only adds points
            self.local.variables.inexact.append(f"the step {index.step} of {index.name}")
            step = Linear(1)
        extent = end.plus(begin, -1)
        size = None if extent.terms else -(-extent.const // step.const)
        if size is not None and size <= 0:
            self.ranges.append(FALSEHOOD)
            size = 1
        position = self._digits(index.name, size, step.const == 1 and not begin.terms and not begin.const)
        value = begin.plus(position, step.const)
        if size is None:
            self.ranges.append(end.plus(value, -1).shifted(-1))
        self.indices[index.name] = self.local.env[index.name] = value

    def any_of(self, name: str, low: int, high: int) -> None:
        """An integer that may be any, at every point."""
        variable = self.local.variables.new(name, low, high)
        self.free.append(variable)
        self.local.own.add(variable)
        self.indices[name] = self.local.env[name] = Linear(0, {variable: 1})

    def _digits(self, name: str, size: int | None, split: bool) -> Linear:
        """A form with values ``0 <= x < size`` over fresh variables."""
        cuts = [1, *(_chain(self.expressions, name, size) if split else ())]
        form = Linear(0)
        for low, high in zip(cuts, [*cuts[1:], size], strict=True):
            count = None if high is None else -(-high // low)
            if count == 1:
                continue
            variable = self.local.variables.new(f"{name}/{low}", 0, None if count is None else count - 1)
            self.free.append(variable)
            self.local.own.add(variable)
            form = form.plus(Linear(0, {variable: low}))
        if size is not None and size % cuts[-1]:
            self.ranges.append(form.times(-1).shifted(size - 1))
        return form


def _within(variables: Variables, variable: int) -> Conjunction:
    low, high = variables.bounds[variable]
    parts = [Linear(-low, {variable: 1})] if low is not None else []
    return Conjunction((*parts, *([Linear(high, {variable: -1})] if high is not None else [])))


def _narrow(variables: Variables, literals: Sequence[Linear], free: Iterable[int]) -> None:
    """Bounds that follow from the literals which must hold."""
    free = set(free)
    for _ in range(_NARROWING_ROUNDS):
        before = [variables.bounds[v] for v in free]
        for literal in literals:
            for variable, c in literal.terms.items():
                if variable not in free:
                    continue
                most = variables.most_without(literal, variable)
                if most is None:
                    continue
                if c > 0:
                    variables.narrow(variable, -(most // c), None)
                else:
                    variables.narrow(variable, None, most // -c)
        if before == [variables.bounds[v] for v in free]:
            break


def _pinned(
    variables: Variables, literals: Sequence[Linear], free: Iterable[int], local: set[int]
) -> dict[int, Linear]:
    """Variables with one value: by their bounds, or by an equation with what is the same for all points."""
    ends = {v: variables.bounds[v] for v in free}
    pinned = {v: Linear(low) for v, (low, high) in ends.items() if low is not None and low == high}
    keys = {literal.key for literal in literals}
    for literal in literals:
        mine = literal.terms.keys() & local
        if len(mine) == 1 and literal.times(-1).key in keys:
            (variable,) = mine
            c = literal.terms[variable]
            if variable in ends and variable not in pinned and abs(c) == 1:
                pinned[variable] = literal.times(-c).plus(Linear(0, {variable: 1}))
    return pinned


def _literals(variables: Variables, formula: Formula) -> Iterable[Linear]:
    """The literals that must hold for the formula to hold: of alternatives, the only one that the bounds allow."""
    match formula:
        case Linear():
            yield formula
        case Conjunction(parts):
            for part in parts:
                yield from _literals(variables, part)
        case Disjunction(parts):
            possible = [p for p in parts if not _excluded(variables, p)]
            if len(possible) == 1:
                yield from _literals(variables, possible[0])


def _excluded(variables: Variables, formula: Formula) -> bool:
    if not isinstance(formula, Linear):
        return False
    high = variables.interval(formula)[1]
    return high is not None and high < 0


# -- digits of an index ------------------------------------------------------------------------------------------------
def _chain(expressions: Iterable[Expr], name: str, size: int | None) -> list[int]:
    """Ascending places above 1 at which ``name`` is cut, each dividing the next."""
    chain = [1]
    for cut in sorted(frozenset[int]().union(*(_cuts(node, name) for node in expressions))):
        if cut > chain[-1] and cut % chain[-1] == 0 and (size is None or cut < size):
            chain.append(cut)
    return chain[1:]


@lru_cache(maxsize=1 << 14)
def _cuts(node: Expr, name: str) -> frozenset[int]:
    """Places where divisions and remainders in ``node`` cut the digits of ``name``."""
    if name not in node.symbols:
        return frozenset()
    found = frozenset[int]().union(*(_cuts(child, name) for child in node.children))
    if not isinstance(node, FloorDiv | Mod):
        return found
    divisor = node.denominator.constant
    terms = node.numerator.terms if isinstance(node.numerator, Sum) else ((node.numerator, 1),)
    lows = ((_lowest(term, name), c) for term, c in terms)
    return found | {low * divisor // abs(c) for low, c in lows if low is not None and divisor and divisor % abs(c) == 0}


def _lowest(node: Expr, name: str) -> int | None:
    """If ``node`` is a run of digits of ``name``: the place of its lowest."""
    match node:
        case Sym(found):
            return 1 if found == name else None
        case FloorDiv(a, b):
            low = _lowest(a, name)
            return low * b.constant if low is not None and b.constant else None
        case Mod(a, b):
            return _lowest(a, name) if b.constant else None
        case _:
            return None
