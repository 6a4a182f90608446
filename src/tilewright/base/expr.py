"""Integer expressions over dimensions, strides, program and thread coordinates.

One expression language serves every room: the tracer writes ranges and coordinates in it, the scheduler
simplifies it, the code generator prints it as C, the access checker turns it into Presburger maps, the simulator
evaluates it on arrays, and an artifact stores it as text for dispatch predicates and grid sizes.

Values are mathematical integers (Python semantics: ``//`` rounds to minus infinity, ``%`` has the divisor's sign);
booleans appear only as results of comparisons and of ``all_of`` / ``any_of`` / ``negate``.

Construction normalises: sums and products are flattened, sorted and folded, so that two expressions that are equal as
polynomials over the same atoms are structurally equal (``==`` and ``hash``). Division, modulus, min, max and xor are
atoms; ``simplify`` resolves them under known intervals.

Text form: Python infix, e.g. ``(p0*128 + tid // 32) < M``; ``parse`` reads it back through the ``ast`` module, which
never executes anything.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, reduce
from math import gcd
from typing import Any, TypeAlias

Interval: TypeAlias = tuple[int | None, int | None]
"""Closed interval; ``None`` is unbounded on that side."""


class ExprError(ValueError):
    """Malformed expression text, an unknown symbol, or a division by zero."""


class Expr:
    """Base of all nodes. Immutable, hashable, ordered by text."""

    # -- arithmetic -----------------------------------------------------------------------------------------------
    def __add__(self, other: ExprLike) -> Expr:
        return _sum([(self, 1), (expr(other), 1)])

    def __radd__(self, other: ExprLike) -> Expr:
        return _sum([(expr(other), 1), (self, 1)])

    def __sub__(self, other: ExprLike) -> Expr:
        return _sum([(self, 1), (expr(other), -1)])

    def __rsub__(self, other: ExprLike) -> Expr:
        return _sum([(expr(other), 1), (self, -1)])

    def __neg__(self) -> Expr:
        return _sum([(self, -1)])

    def __mul__(self, other: ExprLike) -> Expr:
        return _product(self, expr(other))

    def __rmul__(self, other: ExprLike) -> Expr:
        return _product(expr(other), self)

    def __floordiv__(self, other: ExprLike) -> Expr:
        return _floordiv(self, expr(other))

    def __rfloordiv__(self, other: ExprLike) -> Expr:
        return _floordiv(expr(other), self)

    def __mod__(self, other: ExprLike) -> Expr:
        return _mod(self, expr(other))

    def __rmod__(self, other: ExprLike) -> Expr:
        return _mod(expr(other), self)

    def __xor__(self, other: ExprLike) -> Expr:
        return _xor(self, expr(other))

    def __rxor__(self, other: ExprLike) -> Expr:
        return _xor(expr(other), self)

    # -- comparisons build expressions; equality of expressions is structural (use ``eq`` for the predicate) --------
    def __lt__(self, other: ExprLike) -> Expr:
        return _compare("<", self, expr(other))

    def __le__(self, other: ExprLike) -> Expr:
        return _compare("<=", self, expr(other))

    def __gt__(self, other: ExprLike) -> Expr:
        return _compare("<", expr(other), self)

    def __ge__(self, other: ExprLike) -> Expr:
        return _compare("<=", expr(other), self)

    def eq(self, other: ExprLike) -> Expr:
        """The predicate ``self == other``."""
        return _compare("==", self, expr(other))

    def ne(self, other: ExprLike) -> Expr:
        """The predicate ``self != other``."""
        return _compare("!=", self, expr(other))

    def __bool__(self) -> bool:
        raise TypeError(f"the truth value of the expression {self} is not known; compare and evaluate it")

    # -- queries --------------------------------------------------------------------------------------------------
    @cached_property
    def text(self) -> str:
        """Canonical text, read back by ``parse``."""
        return _to_text(self, 0)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.text}>"

    @cached_property
    def symbols(self) -> frozenset[str]:
        """Names of all symbols that occur."""
        if isinstance(self, Sym):
            return frozenset((self.name,))
        return frozenset().union(*(child.symbols for child in children(self)))

    @property
    def constant(self) -> int | None:
        """The value, if the expression is a constant."""
        return self.value if isinstance(self, Const) else None

    def evaluate(self, env: Mapping[str, Any]) -> Any:
        """Value under ``env``; raises ``ExprError`` for a missing symbol or a zero divisor."""
        return _evaluate(self, env)

    def substitute(self, env: Mapping[str, ExprLike]) -> Expr:
        """Replace symbols; those not in ``env`` stay."""
        if not env or self.symbols.isdisjoint(env):
            return self
        return _rebuild(self, lambda e: e.substitute(env), env)


ExprLike: TypeAlias = Expr | int


@dataclass(frozen=True, repr=False)
class Const(Expr):
    """An integer or truth value known now."""

    value: int


@dataclass(frozen=True, repr=False)
class Sym(Expr):
    """A named integer: a dimension ``M``, a stride ``a.stride0``, a program id ``p0``, ``tid``, a loop counter."""

    name: str


@dataclass(frozen=True, repr=False)
class Sum(Expr):
    """``constant + sum(coefficient * term)``; terms are sorted, distinct, neither sums nor constants."""

    offset: int
    terms: tuple[tuple[Expr, int], ...]


@dataclass(frozen=True, repr=False)
class Product(Expr):
    """Two or more non-constant factors, sorted; coefficients live in ``Sum``."""

    factors: tuple[Expr, ...]


@dataclass(frozen=True, repr=False)
class FloorDiv(Expr):
    """Quotient rounded to minus infinity."""

    numerator: Expr
    denominator: Expr


@dataclass(frozen=True, repr=False)
class Mod(Expr):
    """Remainder with the sign of the divisor."""

    numerator: Expr
    denominator: Expr


@dataclass(frozen=True, repr=False)
class Min(Expr):
    """Least of two or more, sorted."""

    args: tuple[Expr, ...]


@dataclass(frozen=True, repr=False)
class Max(Expr):
    """Greatest of two or more, sorted."""

    args: tuple[Expr, ...]


@dataclass(frozen=True, repr=False)
class Xor(Expr):
    """Bitwise exclusive or of non-negative integers (swizzles)."""

    args: tuple[Expr, ...]


@dataclass(frozen=True, repr=False)
class Compare(Expr):
    """``lhs op rhs`` with op one of ``< <= == !=``."""

    op: str
    lhs: Expr
    rhs: Expr


@dataclass(frozen=True, repr=False)
class All(Expr):
    """Conjunction; the empty one is true and folds to ``Const(1)``."""

    args: tuple[Expr, ...]


@dataclass(frozen=True, repr=False)
class Any_(Expr):
    """Disjunction; the empty one is false and folds to ``Const(0)``."""

    args: tuple[Expr, ...]


@dataclass(frozen=True, repr=False)
class Not(Expr):
    """Negation of a predicate that is not a comparison (those flip their operator instead)."""

    arg: Expr


TRUE: Expr = Const(1)
FALSE: Expr = Const(0)


def expr(value: ExprLike) -> Expr:
    """``value`` as an expression; refuses anything but int and Expr, so that a float never slips in."""
    if isinstance(value, Expr):
        return value
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"an integer expression is built from int, not {type(value).__name__}")
    return Const(operator.index(value))


def sym(name: str) -> Sym:
    """The symbol ``name``."""
    return Sym(name)


def minimum(*args: ExprLike) -> Expr:
    """Least of the arguments."""
    return _extremum(Min, min, args)


def maximum(*args: ExprLike) -> Expr:
    """Greatest of the arguments."""
    return _extremum(Max, max, args)


def ceildiv(numerator: ExprLike, denominator: ExprLike) -> Expr:
    """Quotient rounded up; the denominator is positive."""
    num, den = expr(numerator), expr(denominator)
    return (num + den - 1) // den


def all_of(args: Iterable[Expr]) -> Expr:
    """Conjunction of predicates."""
    return _junction(All, FALSE, TRUE, args)


def any_of(args: Iterable[Expr]) -> Expr:
    """Disjunction of predicates."""
    return _junction(Any_, TRUE, FALSE, args)


_NEGATED = {"<": "<=", "<=": "<", "==": "!=", "!=": "=="}


def negate(arg: Expr) -> Expr:
    """Logical negation of a predicate."""
    if isinstance(arg, Const):
        return FALSE if arg.value else TRUE
    if isinstance(arg, Compare):
        if arg.op in ("<", "<="):
            return _compare(_NEGATED[arg.op], arg.rhs, arg.lhs)
        return _compare(_NEGATED[arg.op], arg.lhs, arg.rhs)
    return arg.arg if isinstance(arg, Not) else Not(arg)


def children(node: Expr) -> tuple[Expr, ...]:
    """Direct sub-expressions, in printing order."""
    match node:
        case Const() | Sym():
            return ()
        case Sum(_, terms):
            return tuple(t for t, _ in terms)
        case Product(args) | Min(args) | Max(args) | Xor(args) | All(args) | Any_(args):
            return args
        case FloorDiv(a, b) | Mod(a, b) | Compare(_, a, b):
            return (a, b)
        case Not(a):
            return (a,)
        case _:
            raise TypeError(f"not an expression node: {type(node).__name__}")


# -- normalising constructors -------------------------------------------------------------------------------------


def _sum(parts: Iterable[tuple[Expr, int]]) -> Expr:
    offset = 0
    coefficients: dict[Expr, int] = {}
    for part, factor in parts:
        if isinstance(part, Const):
            offset += part.value * factor
        elif isinstance(part, Sum):
            offset += part.offset * factor
            for term, c in part.terms:
                coefficients[term] = coefficients.get(term, 0) + c * factor
        else:
            coefficients[part] = coefficients.get(part, 0) + factor
    terms = [(t, c) for t, c in coefficients.items() if c]
    if not terms:
        return Const(offset)
    if len(terms) == 1 and offset == 0 and terms[0][1] == 1:
        return terms[0][0]
    terms.sort(key=lambda tc: tc[0].text)
    return Sum(offset, tuple(terms))


def _as_sum(node: Expr) -> tuple[int, tuple[tuple[Expr, int], ...]]:
    if isinstance(node, Const):
        return node.value, ()
    if isinstance(node, Sum):
        return node.offset, node.terms
    return 0, ((node, 1),)


def _factors(node: Expr) -> tuple[Expr, ...]:
    return node.factors if isinstance(node, Product) else (node,)


def _product(a: Expr, b: Expr) -> Expr:
    (ka, ta), (kb, tb) = _as_sum(a), _as_sum(b)
    parts: list[tuple[Expr, int]] = [(Const(ka * kb), 1)]
    parts += [(t, c * kb) for t, c in ta] + [(t, c * ka) for t, c in tb]
    for t, c in ta:
        for u, d in tb:
            factors = sorted((*_factors(t), *_factors(u)), key=lambda e: e.text)
            parts.append((Product(tuple(factors)), c * d))
    return _sum(parts)


def _split_multiples(node: Expr, n: int) -> tuple[Expr, Expr]:
    """``node = n*q + r`` with the terms whose coefficient n divides in ``q``; r's constant is in [0, n)."""
    offset, terms = _as_sum(node)
    whole = [(t, c // n) for t, c in terms if c % n == 0]
    rest = [(t, c) for t, c in terms if c % n]
    return _sum([(Const(offset // n), 1), *whole]), _sum([(Const(offset % n), 1), *rest])


def _floordiv(a: Expr, b: Expr) -> Expr:
    n = b.constant
    if n is None:
        if a == b or (a.constant == 0):
            return Const(0) if a.constant == 0 else FloorDiv(a, b)
        return FloorDiv(a, b)
    if n == 0:
        raise ExprError(f"division of {a} by zero")
    if n < 0:
        return _floordiv(-a, Const(-n))
    if n == 1:
        return a
    quotient, rest = _split_multiples(a, n)
    if isinstance(rest, Const):
        return quotient
    if isinstance(rest, FloorDiv) and rest.denominator.constant:
        return quotient + _floordiv(rest.numerator, Const(rest.denominator.constant * n))
    divisor = reduce(gcd, (c for _, c in _as_sum(rest)[1]), n)
    if divisor > 1:  # floor((g*x + k)/(g*m)) == floor((x + floor(k/g))/m)
        offset, terms = _as_sum(rest)
        rest = _sum([(Const(offset // divisor), 1), *((t, c // divisor) for t, c in terms)])
        return quotient + _floordiv(rest, Const(n // divisor))
    return quotient + FloorDiv(rest, b)


def _mod(a: Expr, b: Expr) -> Expr:
    n = b.constant
    if n is None:
        return Const(0) if a.constant == 0 else Mod(a, b)
    if n == 0:
        raise ExprError(f"modulus of {a} by zero")
    if n < 0:
        return -_mod(-a, Const(-n))
    if n == 1:
        return Const(0)
    _, rest = _split_multiples(a, n)
    if isinstance(rest, Const):
        return rest
    if isinstance(rest, Mod) and rest.denominator.constant and rest.denominator.constant % n == 0:
        return _mod(rest.numerator, b)
    return Mod(rest, b)


def _xor(a: Expr, b: Expr) -> Expr:
    value, rest = 0, list[Expr]()
    for part in (a, b):
        for arg in part.args if isinstance(part, Xor) else (part,):
            if isinstance(arg, Const):
                value ^= arg.value
            elif arg in rest:
                rest.remove(arg)
            else:
                rest.append(arg)
    rest.sort(key=lambda e: e.text)
    if value:
        rest.append(Const(value))
    if not rest:
        return Const(0)
    return rest[0] if len(rest) == 1 else Xor(tuple(rest))


def _extremum(kind: type[Min] | type[Max], pick: Callable[..., int], args: Iterable[ExprLike]) -> Expr:
    constants: list[int] = []
    rest: dict[Expr, None] = {}
    for arg in map(expr, args):
        for part in arg.args if isinstance(arg, kind) else (arg,):
            if isinstance(part, Const):
                constants.append(part.value)
            else:
                rest[part] = None
    items = sorted(rest, key=lambda e: e.text)
    if constants:
        items.append(Const(pick(constants)))
    if not items:
        raise ExprError("minimum and maximum need at least one argument")
    return items[0] if len(items) == 1 else kind(tuple(items))


def _compare(op: str, a: Expr, b: Expr) -> Expr:
    difference = a - b
    if isinstance(difference, Const):
        return TRUE if _COMPARE[op](difference.value, 0) else FALSE
    return Compare(op, a, b)


def _junction(kind: type[All] | type[Any_], absorbing: Expr, neutral: Expr, args: Iterable[Expr]) -> Expr:
    parts: dict[Expr, None] = {}
    for arg in args:
        for part in arg.args if isinstance(arg, kind) else (arg,):
            if part == absorbing:
                return absorbing
            if part != neutral:
                parts[part] = None
    items = tuple(sorted(parts, key=lambda e: e.text))
    if not items:
        return neutral
    return items[0] if len(items) == 1 else kind(items)


def _rebuild(node: Expr, visit: Callable[[Expr], Expr], env: Mapping[str, ExprLike]) -> Expr:
    match node:
        case Const():
            return node
        case Sym(name):
            return expr(env[name]) if name in env else node
        case Sum(offset, terms):
            return _sum([(Const(offset), 1), *((visit(t), c) for t, c in terms)])
        case Product(factors):
            return reduce(_product, map(visit, factors))
        case FloorDiv(a, b):
            return _floordiv(visit(a), visit(b))
        case Mod(a, b):
            return _mod(visit(a), visit(b))
        case Min(args):
            return minimum(*map(visit, args))
        case Max(args):
            return maximum(*map(visit, args))
        case Xor(args):
            return reduce(_xor, map(visit, args))
        case Compare(op, a, b):
            return _compare(op, visit(a), visit(b))
        case All(args):
            return all_of(map(visit, args))
        case Any_(args):
            return any_of(map(visit, args))
        case Not(a):
            return negate(visit(a))
        case _:
            raise TypeError(f"not an expression node: {type(node).__name__}")


# -- evaluation ---------------------------------------------------------------------------------------------------

_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
}


def _evaluate(node: Expr, env: Mapping[str, Any]) -> Any:
    match node:
        case Const(value):
            return value
        case Sym(name):
            try:
                return env[name]
            except KeyError:
                raise ExprError(f"symbol {name!r} has no value; known: {', '.join(sorted(env)) or 'none'}") from None
        case Sum(offset, terms):
            return offset + sum(c * _evaluate(t, env) for t, c in terms)
        case Product(factors):
            return reduce(operator.mul, (_evaluate(f, env) for f in factors))
        case FloorDiv(a, b) | Mod(a, b):
            divisor = _evaluate(b, env)
            if divisor == 0:
                raise ExprError(f"{node} divides by zero")
            value = _evaluate(a, env)
            return value // divisor if isinstance(node, FloorDiv) else value % divisor
        case Min(args):
            return min(_evaluate(a, env) for a in args)
        case Max(args):
            return max(_evaluate(a, env) for a in args)
        case Xor(args):
            return reduce(operator.xor, (_evaluate(a, env) for a in args))
        case Compare(op, a, b):
            return _COMPARE[op](_evaluate(a, env), _evaluate(b, env))
        case All(args):
            return all(_evaluate(a, env) for a in args)
        case Any_(args):
            return any(_evaluate(a, env) for a in args)
        case Not(a):
            return not _evaluate(a, env)
        case _:
            raise TypeError(f"not an expression node: {type(node).__name__}")


# -- intervals and divisors ---------------------------------------------------------------------------------------


def interval(node: Expr, bounds: Mapping[str, Interval]) -> Interval:
    """A closed interval that contains every value of ``node`` when each symbol lies in its bounds.

    Symbols without an entry are unbounded. Sound, not always tight.
    """
    match node:
        case Const(value):
            return value, value
        case Sym(name):
            return bounds.get(name, (None, None))
        case Sum(offset, terms):
            low: int | None = offset
            high: int | None = offset
            for term, c in terms:
                a, b = interval(term, bounds)
                if c < 0:
                    a, b = b, a
                low = None if low is None or a is None else low + c * a
                high = None if high is None or b is None else high + c * b
            return low, high
        case Product(factors):
            return reduce(_interval_product, (interval(f, bounds) for f in factors))
        case FloorDiv(a, b):
            (low, high), n = interval(a, bounds), b.constant
            if n is not None and n > 0:
                return None if low is None else low // n, None if high is None else high // n
            d = interval(b, bounds)
            if low is not None and low >= 0 and d[0] is not None and d[0] >= 1:
                return 0, None if high is None else high // d[0]
            return None, None
        case Mod(a, b):
            low_b, high_b = interval(b, bounds)
            if low_b is None or low_b < 1:
                return None, None
            low, high = interval(a, bounds)
            if low is not None and low >= 0 and high is not None and high < low_b:
                return low, high
            return 0, None if high_b is None else high_b - 1
        case Min(args):
            pairs = [interval(a, bounds) for a in args]
            lows, highs = [p[0] for p in pairs], [p[1] for p in pairs if p[1] is not None]
            known = [x for x in lows if x is not None]
            return min(known) if len(known) == len(lows) else None, min(highs) if highs else None
        case Max(args):
            pairs = [interval(a, bounds) for a in args]
            lows, highs = [p[0] for p in pairs if p[0] is not None], [p[1] for p in pairs]
            known = [x for x in highs if x is not None]
            return max(lows) if lows else None, max(known) if len(known) == len(highs) else None
        case Xor(args):
            highs = [interval(a, bounds) for a in args]
            if any(h is None or low is None or low < 0 for low, h in highs):
                return None, None
            return 0, (1 << max(h.bit_length() for _, h in highs if h is not None)) - 1
        case _:
            return 0, 1


def _interval_product(x: Interval, y: Interval) -> Interval:
    if None not in x and None not in y:
        corners = [p * q for p in x for q in y]  # type: ignore[operator]  # both ends known
        return min(corners), max(corners)
    if x[0] is not None and x[0] >= 0 and y[0] is not None and y[0] >= 0:
        return x[0] * y[0], None
    return None, None


def divisor(node: Expr, divisors: Mapping[str, int]) -> int:
    """The largest known n >= 0 that divides every value of ``node``; 0 means the value is always 0.

    ``divisors`` maps a symbol to a known divisor (default 1).
    """
    match node:
        case Const(value):
            return abs(value)
        case Sym(name):
            return divisors.get(name, 1)
        case Sum(offset, terms):
            return reduce(gcd, (c * divisor(t, divisors) for t, c in terms), abs(offset))
        case Product(factors):
            return reduce(operator.mul, (divisor(f, divisors) for f in factors))
        case FloorDiv(a, b):
            n, d = b.constant, divisor(a, divisors)
            return d // n if n and n > 0 and d % n == 0 else (0 if d == 0 and n else 1)
        case Mod(a, b):
            return gcd(divisor(a, divisors), divisor(b, divisors))
        case Min(args) | Max(args):
            return reduce(gcd, (divisor(a, divisors) for a in args))
        case _:
            return 1


def simplify(node: Expr, bounds: Mapping[str, Interval]) -> Expr:
    """``node`` with divisions, moduli, min, max and comparisons resolved where the intervals decide them."""
    match node:
        case Const() | Sym():
            return node
        case FloorDiv(a, b):
            a, b = simplify(a, bounds), simplify(b, bounds)
            n = b.constant
            if n is not None and n > 0:
                quotient, rest = _split_multiples(a, n)
                low, high = interval(rest, bounds)
                if low is not None and high is not None and low // n == high // n:
                    return quotient + low // n
            elif _decides(a, b, bounds):
                return Const(0)
            return _floordiv(a, b)
        case Mod(a, b):
            a, b = simplify(a, bounds), simplify(b, bounds)
            n = b.constant
            if n is not None and n > 0:
                _, rest = _split_multiples(a, n)
                low, high = interval(rest, bounds)
                if low is not None and high is not None and low // n == high // n:
                    return rest - (low // n) * n
            elif _decides(a, b, bounds):
                return a
            return _mod(a, b)
        case Min(args) | Max(args):
            kept = _dominant([simplify(a, bounds) for a in args], isinstance(node, Min), bounds)
            return minimum(*kept) if isinstance(node, Min) else maximum(*kept)
        case Compare(op, a, b):
            a, b = simplify(a, bounds), simplify(b, bounds)
            low, high = interval(simplify(a - b, bounds) if a.symbols & b.symbols else a - b, bounds)
            if op == "<" and high is not None and high < 0 or op == "<=" and high is not None and high <= 0:
                return TRUE
            if op == "<" and low is not None and low >= 0 or op == "<=" and low is not None and low > 0:
                return FALSE
            if op in ("==", "!=") and ((low is not None and low > 0) or (high is not None and high < 0)):
                return FALSE if op == "==" else TRUE
            return _compare(op, a, b)
        case _:
            return _rebuild(node, lambda e: simplify(e, bounds), {})


def _decides(a: Expr, b: Expr, bounds: Mapping[str, Interval]) -> bool:
    """0 <= a < b for certain."""
    low, _ = interval(a, bounds)
    gap, _ = interval(b - a, bounds)
    return low is not None and low >= 0 and gap is not None and gap >= 1


def _dominant(args: list[Expr], least: bool, bounds: Mapping[str, Interval]) -> list[Expr]:
    kept: list[Expr] = []
    for i, a in enumerate(args):
        for j, b in enumerate(args):
            if i == j:
                continue
            low, _ = interval(a - b if least else b - a, bounds)
            # a is never the strict extremum; of two equal ones the first stays
            if low is not None and (low > 0 or (low == 0 and (a - b != Const(0) or j < i))):
                break
        else:
            kept.append(a)
    return kept or args[:1]


# -- text ---------------------------------------------------------------------------------------------------------

_SUM, _PRODUCT, _ATOM = 4, 5, 6  # binding strengths; comparison 3, not 2, and 1, or 0


def _to_text(node: Expr, outer: int) -> str:
    match node:
        case Const(value):
            return str(int(value)) if value >= 0 or outer < _PRODUCT else f"({int(value)})"
        case Sym(name):
            return name
        case Sum(offset, terms):
            text = ""
            for term, c in terms:
                body = _to_text(term, _PRODUCT if abs(c) == 1 else _ATOM)
                body = body if abs(c) == 1 else f"{body}*{abs(c)}"
                text += (f" + {body}" if text else body) if c > 0 else (f" - {body}" if text else f"-{body}")
            if offset:
                text += f" + {offset}" if offset > 0 else f" - {-offset}"
            return _wrap(text, _PRODUCT if len(terms) == 1 and not offset and terms[0][1] > 0 else _SUM, outer)
        case Product(factors):
            return _wrap("*".join(_to_text(f, _ATOM) for f in factors), _PRODUCT, outer)
        case FloorDiv(a, b):
            return _wrap(f"{_to_text(a, _ATOM)} // {_to_text(b, _ATOM)}", _PRODUCT, outer)
        case Mod(a, b):
            return _wrap(f"{_to_text(a, _ATOM)} % {_to_text(b, _ATOM)}", _PRODUCT, outer)
        case Min(args):
            return f"min({', '.join(_to_text(a, 0) for a in args)})"
        case Max(args):
            return f"max({', '.join(_to_text(a, 0) for a in args)})"
        case Xor(args):
            return f"xor({', '.join(_to_text(a, 0) for a in args)})"
        case Compare(op, a, b):
            return _wrap(f"{_to_text(a, _SUM)} {op} {_to_text(b, _SUM)}", 3, outer)
        case All(args):
            return _wrap(" and ".join(_to_text(a, 2) for a in args), 1, outer)
        case Any_(args):
            return _wrap(" or ".join(_to_text(a, 1) for a in args), 0, outer)
        case Not(a):
            return _wrap(f"not {_to_text(a, 3)}", 2, outer)
        case _:
            raise TypeError(f"not an expression node: {type(node).__name__}")


def _wrap(text: str, strength: int, outer: int) -> str:
    return text if strength >= outer else f"({text})"


_BINARY: dict[type[ast.operator], Callable[[Expr, Expr], Expr]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARISON: dict[type[ast.cmpop], Callable[[Expr, Expr], Expr]] = {
    ast.Lt: lambda a, b: a < b,
    ast.LtE: lambda a, b: a <= b,
    ast.Gt: lambda a, b: a > b,
    ast.GtE: lambda a, b: a >= b,
    ast.Eq: lambda a, b: a.eq(b),
    ast.NotEq: lambda a, b: a.ne(b),
}
_CALLS: dict[str, Callable[..., Expr]] = {
    "min": minimum,
    "max": maximum,
    "xor": lambda *args: reduce(_xor, args),
}
_MAX_TEXT = 100_000


def parse(text: str) -> Expr:
    """Read the text form; raises ``ExprError`` with the offending part for anything outside the language."""
    if len(text) > _MAX_TEXT:
        raise ExprError(f"expression text of {len(text)} characters; at most {_MAX_TEXT} are read")
    try:
        body = ast.parse(text.strip(), mode="eval").body
        return _from_ast(body)
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ExprError(f"not an integer expression: {text!r} ({type(error).__name__})") from None


def _from_ast(node: ast.expr) -> Expr:
    match node:
        case ast.Constant(value=bool(value)):
            return TRUE if value else FALSE
        case ast.Constant(value=int(value)):
            return Const(value)
        case ast.Name(id=name):
            return Sym(name)
        case ast.Attribute(value=base, attr=attr):
            return Sym(f"{_from_ast(base).text}.{attr}")
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _BINARY[type(op)](_from_ast(left), _from_ast(right))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_from_ast(operand)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return negate(_from_ast(operand))
        case ast.BoolOp(op=op, values=values):
            return (all_of if isinstance(op, ast.And) else any_of)(map(_from_ast, values))
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARISON:
            return _COMPARISON[type(op)](_from_ast(left), _from_ast(right))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _CALLS and args:
            return _CALLS[name](*map(_from_ast, args))
        case _:
            raise ExprError(f"not part of an integer expression: {ast.unparse(node)!r}")
