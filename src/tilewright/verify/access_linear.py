"""Integer expressions as linear forms and formulas over them.

A variable is a number into a ``Variables`` table that knows its constant bounds. What is not linear becomes a variable
of its own with the relations that define it: floor and modulus by a constant, minimum and maximum exactly; products
and divisions of symbols, and xor, only by an interval. Equal expressions share their variable. Proofs stay sound
under the latter, while a counterexample may not exist: ``Variables.inexact`` says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from math import gcd
from typing import TypeAlias

from tilewright.base.expr import (
    All,
    Any_,
    Compare,
    Const,
    Expr,
    FloorDiv,
    Interval,
    Max,
    Min,
    Mod,
    Not,
    Product,
    Sum,
    Sym,
    Xor,
)

Row: TypeAlias = tuple[int, tuple[tuple[int, int], ...]]
"""A constant, and coefficients by ascending variable."""


class GaveUpError(Exception):
    """A question needs more work than allowed."""


class Linear:
    """``const + sum(coefficient * variable)``; as a formula: that it is >= 0."""

    __slots__ = ("_key", "const", "terms")

    def __init__(self, const: int, terms: Mapping[int, int] | None = None):
        self.const = const
        self.terms: Mapping[int, int] = terms or {}
        self._key: Row | None = None

    @property
    def key(self) -> Row:
        """Equal forms have equal keys."""
        if self._key is None:
            self._key = self.const, tuple(sorted(self.terms.items()))
        return self._key

    def plus(self, other: Linear, factor: int = 1) -> Linear:
        """``self + factor * other``."""
        terms = dict(self.terms)
        for variable, c in other.terms.items():
            value = terms.get(variable, 0) + c * factor
            if value:
                terms[variable] = value
            else:
                terms.pop(variable, None)
        return Linear(self.const + factor * other.const, terms)

    def shifted(self, by: int) -> Linear:
        """``self + by``."""
        return Linear(self.const + by, self.terms)

    def times(self, factor: int) -> Linear:
        """``self * factor``."""
        return Linear(self.const * factor, {v: c * factor for v, c in self.terms.items()} if factor else {})

    def over(self, divisor: int) -> Linear | None:
        """``self / divisor`` if it divides every coefficient."""
        if self.const % divisor or any(c % divisor for c in self.terms.values()):
            return None
        return Linear(self.const // divisor, {v: c // divisor for v, c in self.terms.items()})

    def replaced(self, by: Mapping[int, Linear]) -> Linear:
        """Substitute variables."""
        if by.keys().isdisjoint(self.terms):
            return self
        kept = Linear(self.const, {v: c for v, c in self.terms.items() if v not in by})
        return total(kept, ((by[v], c) for v, c in self.terms.items() if v in by))

    def value(self, point: Mapping[int, int]) -> int:
        """The form's value at a point that has all its variables."""
        return self.const + sum(c * point[v] for v, c in self.terms.items())


def total(start: Linear, multiples: Iterable[tuple[Linear, int]]) -> Linear:
    """``start`` and each form times its factor."""
    const, terms = start.const, dict(start.terms)
    for form, factor in multiples:
        const += form.const * factor
        for variable, c in form.terms.items():
            terms[variable] = terms.get(variable, 0) + c * factor
    return Linear(const, {variable: c for variable, c in terms.items() if c})


@dataclass(frozen=True)
class Conjunction:
    """Conjunction; the empty one is true."""

    parts: tuple[Formula, ...]


@dataclass(frozen=True)
class Disjunction:
    """Disjunction; the empty one is false."""

    parts: tuple[Formula, ...]


Formula: TypeAlias = Linear | Conjunction | Disjunction
TRUTH = Conjunction(())
FALSEHOOD = Disjunction(())


def both(formulas: Iterable[Formula]) -> Formula:
    """The conjunction, without conjunctions in it."""
    parts: list[Formula] = []
    for formula in formulas:
        if isinstance(formula, Conjunction):
            parts += formula.parts
        else:
            parts.append(formula)
    return parts[0] if len(parts) == 1 else Conjunction(tuple(parts))


def either(formulas: Iterable[Formula]) -> Formula:
    """The disjunction, without disjunctions in it."""
    parts: list[Formula] = []
    for formula in formulas:
        if isinstance(formula, Disjunction):
            parts += formula.parts
        else:
            parts.append(formula)
    return parts[0] if len(parts) == 1 else Disjunction(tuple(parts))


def opposite(formula: Formula) -> Formula:
    """Negation."""
    match formula:
        case Linear():
            return formula.times(-1).shifted(-1)
        case Conjunction(parts):
            return either(map(opposite, parts))
        case Disjunction(parts):
            return both(map(opposite, parts))


def equal(a: Linear, b: Linear) -> Conjunction:
    """The formula ``a == b``."""
    difference = a.plus(b, -1)
    return Conjunction((difference, difference.times(-1)))


def rewritten(formula: Formula, by: Mapping[int, Linear]) -> Formula:
    """Substitute variables."""
    match formula:
        case _ if not by:
            return formula
        case Linear():
            return formula.replaced(by)
        case Conjunction(parts):
            return both(rewritten(p, by) for p in parts)
        case Disjunction(parts):
            return either(rewritten(p, by) for p in parts)


@dataclass
class Variables:
    """All variables of one proof. ``inexact`` names what is only bounded, not defined."""

    names: list[str] = field(default_factory=list[str])
    bounds: list[Interval] = field(default_factory=list[Interval])
    inexact: list[str] = field(default_factory=list[str])

    def new(self, name: str, low: int | None = None, high: int | None = None) -> int:
        """A further variable."""
        self.names.append(name)
        self.bounds.append((low, high))
        return len(self.names) - 1

    def interval(self, form: Linear) -> Interval:
        """Bounds of a form from the constant bounds of its variables."""
        low: int | None = form.const
        high: int | None = form.const
        for variable, c in form.terms.items():
            a, b = self.bounds[variable]
            if c < 0:
                a, b = b, a
            low = None if low is None or a is None else low + c * a
            high = None if high is None or b is None else high + c * b
        return low, high

    def most_without(self, form: Linear, variable: int) -> int | None:
        """The upper bound of all but one variable's term."""
        high = form.const
        for v, c in form.terms.items():
            if v != variable:
                end = self.bounds[v][c > 0]
                if end is None:
                    return None
                high += c * end
        return high

    def negative(self, form: Linear, other: Linear, factor: int = 1) -> bool:
        """The bounds of the variables keep ``factor * form + other`` below 0."""
        bounds, rest = self.bounds, other.terms
        high = factor * form.const + other.const
        for variable, c in form.terms.items():
            c = factor * c + rest.get(variable, 0)
            if c:
                end = bounds[variable][c > 0]
                if end is None:
                    return False
                high += c * end
        for variable, c in rest.items():
            if variable not in form.terms:
                end = bounds[variable][c > 0]
                if end is None:
                    return False
                high += c * end
        return high < 0

    def narrow(self, variable: int, low: int | None, high: int | None) -> None:
        """Intersect a variable's bounds."""
        a, b = self.bounds[variable]
        self.bounds[variable] = (
            a if low is None else low if a is None else max(a, low),
            b if high is None else high if b is None else min(b, high),
        )


class Linearisation:
    """Turns expressions into linear forms; ``facts`` collects the definitions of the variables it introduces."""

    def __init__(self, variables: Variables, env: Mapping[str, Linear], outer: Linearisation | None = None):
        self.variables = variables
        self.env = dict(env)
        self.outer = outer  # definitions over the launch's parameters alone belong to it
        self.own: set[int] = set()  # index variables, and those defined from them
        self.facts: list[Formula] = []
        self._memo: dict[object, Linear] = {}

    def branch(self) -> Linearisation:
        """Another that has these definitions: what either defines from now on the other does not know."""
        found = Linearisation(self.variables, self.env, self.outer)
        found.own, found.facts, found._memo = set(self.own), list(self.facts), dict(self._memo)
        return found

    def form(self, node: Expr) -> Linear:
        """The linear form of an integer expression."""
        match node:
            case Const(value):
                return Linear(value)
            case Sym(name):
                return self.env.get(name) or (self.outer or self)._stranger(name)
            case Sum(offset, terms):
                return total(Linear(offset), ((self.form(term), c) for term, c in terms))
            case FloorDiv(a, b):
                return self._quotient(node, self.form(a), self.form(b))
            case Mod(a, b):
                numerator, denominator = self.form(a), self.form(b)
                if denominator.terms or denominator.const <= 0:
                    return self._opaque(node, (numerator, denominator))
                return numerator.plus(self._quotient(node, numerator, denominator), -denominator.const)
            case Min(args):
                return self._extremum("min", [self.form(a) for a in args], 1)
            case Max(args):
                return self._extremum("max", [self.form(a) for a in args], -1)
            case Product(factors):
                return self._product(node, [self.form(f) for f in factors])
            case Xor(args):
                return self._opaque(node, [self.form(a) for a in args])
            case _:
                raise TypeError(f"not an integer expression: {node}")

    def formula(self, node: Expr) -> Formula:
        """The formula of a predicate."""
        match node:
            case Const(value):
                return TRUTH if value else FALSEHOOD
            case Compare(op, a, b):
                return self._compare(op, a, b)
            case All(args):
                return both(map(self.formula, args))
            case Any_(args):
                return either(map(self.formula, args))
            case Not(a):
                return opposite(self.formula(a))
            case _:
                raise TypeError(f"not a predicate: {node}")

    def _stranger(self, name: str) -> Linear:
        """A symbol that is no parameter, such as a fact about an address: any value, the same for all."""
        if name not in self.env:
            self.env[name] = Linear(0, {self.variables.new(name): 1})
            self.variables.inexact.append(f"the symbol {name}")
        return self.env[name]

    def _compare(self, op: str, a: Expr, b: Expr) -> Formula:
        if op in ("<", "<="):
            strict = int(op == "<")
            # min on the left and max on the right are disjunctions, the other way round conjunctions
            if isinstance(a, Min | Max):
                parts = (self._compare(op, x, b) for x in a.args)
                return either(parts) if isinstance(a, Min) else both(parts)
            if isinstance(b, Min | Max):
                parts = (self._compare(op, a, x) for x in b.args)
                return both(parts) if isinstance(b, Min) else either(parts)
            return self.form(b).plus(self.form(a), -1).shifted(-strict)
        same = equal(self.form(a), self.form(b))
        return same if op == "==" else opposite(same)

    # -- what is not linear ---------------------------------------------------------------------------------------
    def _home(self, forms: Iterable[Linear]) -> Linearisation:
        """The owner of a definition over these forms."""
        if self.outer is None:
            return self
        mine = {v for form in forms for v in form.terms}
        return self if mine & self.own else self.outer

    def _define(self, key: object, forms: Iterable[Linear], make: Callable[[Linearisation], Linear]) -> Linear:
        home = self._home(forms)
        found = home._memo.get(key)
        if found is None:
            before = len(home.variables.names)
            found = home._memo[key] = make(home)
            if home is self:
                self.own.update(range(before, len(home.variables.names)))
        return found

    def _quotient(self, node: Expr, a: Linear, b: Linear) -> Linear:
        n = b.const
        if b.terms or n <= 0:
            return self._opaque(node, (a, b))
        whole = Linear(a.const // n, {v: c // n for v, c in a.terms.items() if c % n == 0})
        rest = Linear(a.const % n, {v: c for v, c in a.terms.items() if c % n})
        low, high = self.variables.interval(rest)
        if low is not None and high is not None and low // n == high // n:
            return whole.shifted(low // n)
        common = reduce(gcd, rest.terms.values(), n)
        if common > 1:  # floor((g*x + k) / (g*m)) == floor((x + floor(k/g)) / m)
            rest = Linear(rest.const // common, {v: c // common for v, c in rest.terms.items()})
            n //= common
            if n == 1:
                return whole.plus(rest)

        def make(home: Linearisation) -> Linear:
            low, high = home.variables.interval(rest)
            name = f"q{len(home.variables.names)}"
            q = home.variables.new(name, None if low is None else low // n, None if high is None else high // n)
            quotient = Linear(0, {q: 1})
            remainder = rest.plus(quotient, -n)
            home.facts += [remainder, remainder.times(-1).shifted(n - 1)]
            return quotient

        return whole.plus(self._define(("div", n, rest.key), [rest], make))

    def _extremum(self, name: str, forms: list[Linear], sign: int) -> Linear:
        """``min`` with sign 1, ``max`` with -1."""

        def make(home: Linearisation) -> Linear:
            ends = [home.variables.interval(f.times(sign)) for f in forms]
            lows = [e[0] for e in ends if e[0] is not None]
            low = min(lows) if len(lows) == len(ends) else None
            high = min((e[1] for e in ends if e[1] is not None), default=None)
            bounds = (low, high) if sign == 1 else (None if high is None else -high, None if low is None else -low)
            result = Linear(0, {home.variables.new(f"{name}{len(home.variables.names)}", *bounds): 1})
            gaps = [f.plus(result, -1).times(sign) for f in forms]
            home.facts += [*gaps, Disjunction(tuple(g.times(-1) for g in gaps))]
            return result

        return self._define((name, tuple(sorted(f.key for f in forms))), forms, make)

    def _product(self, node: Expr, forms: list[Linear]) -> Linear:
        constants = [f.const for f in forms if not f.terms]
        rest = [f for f in forms if f.terms]
        scale = reduce(lambda a, b: a * b, constants, 1)
        if len(rest) == 1:
            return rest[0].times(scale)
        return Linear(scale) if not rest else self._opaque(node, rest).times(scale)

    def _opaque(self, node: Expr, forms: Iterable[Linear]) -> Linear:
        """A variable of which only an interval is known, and how a quotient and a remainder lie to what they are of."""
        forms = list(forms)

        def make(home: Linearisation) -> Linear:
            parts = [home.variables.interval(f) for f in forms]
            low, high = _bounds(node, parts)
            home.variables.inexact.append(str(node))
            found = Linear(0, {home.variables.new(f"({node})", low, high): 1})
            home.facts += _beside(node, forms, found) + _within(node, forms, parts, found)
            return found

        kind = type(node).__name__
        keys = [f.key for f in forms]
        return self._define((kind, tuple(sorted(keys) if kind in ("Product", "Xor") else keys)), forms, make)


def _beside(node: Expr, forms: Sequence[Linear], found: Linear) -> list[Formula]:
    """Of a quotient of ``a >= 0``: ``0 <= found <= a``; of a remainder: ``0 <= found < b``; both where ``b > 0``."""
    if not isinstance(node, FloorDiv | Mod):
        return []
    a, b = forms
    unless = [b.times(-1), *([a.times(-1).shifted(-1)] if isinstance(node, FloorDiv) else [])]
    most = a if isinstance(node, FloorDiv) else b.shifted(-1)
    return [Disjunction((*unless, found)), Disjunction((*unless, most.plus(found, -1)))]


def _within(node: Expr, forms: Sequence[Linear], parts: Sequence[Interval], found: Linear) -> list[Formula]:
    """A product of two that are not negative is at most the one where the other is at most 1."""
    if not isinstance(node, Product) or len(forms) != 2 or any(low is None or low < 0 for low, _ in parts):
        return []
    flags = [high is not None and high <= 1 for _, high in parts]
    return [form.plus(found, -1) for form, flag in zip(forms, reversed(flags), strict=True) if flag]


def _bounds(node: Expr, parts: list[Interval]) -> Interval:
    """Interval of a product, a xor, or a quotient or remainder by something that is not constant."""
    lows, highs = [p[0] for p in parts], [p[1] for p in parts]
    if any(low is None or low < 0 for low in lows):
        return None, None
    match node:
        case Product():
            least = reduce(lambda a, b: a * b, (low or 0 for low in lows), 1)
            if None in highs:
                return least, None
            return least, reduce(lambda a, b: a * b, (high or 0 for high in highs), 1)
        case Xor():
            if None in highs:
                return 0, None
            return 0, (1 << max((high or 0).bit_length() for high in highs)) - 1
        case FloorDiv():
            return (0, highs[0]) if (lows[1] or 0) >= 1 else (None, None)
        case Mod():
            high = highs[1]
            return (0, None if high is None else high - 1) if (lows[1] or 0) >= 1 else (None, None)
        case _:
            return None, None
