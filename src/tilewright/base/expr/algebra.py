"""Normalising constructors: every node is built here, folded, flattened and sorted by text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, reduce
from math import gcd

from tilewright.base.expr.nodes import (
    COMPARISONS,
    All,
    Any_,
    Compare,
    Const,
    Expr,
    ExprError,
    ExprLike,
    FloorDiv,
    Max,
    Min,
    Mod,
    Not,
    Product,
    Sum,
    Sym,
    Xor,
    expr,
)

TRUE: Expr = Const(1)
FALSE: Expr = Const(0)

_remembered = lru_cache(maxsize=1 << 16)
"""For constructors: nodes are unique, so asking again for what was built costs a look-up by identity."""

_MAX_TERMS = 4096  # products of sums are multiplied out; text from a stranger must not make that explode


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


def conjuncts(predicate: Expr) -> tuple[Expr, ...]:
    """The parts of a conjunction; none for what is always true."""
    if isinstance(predicate, All):
        return predicate.args
    return () if predicate == TRUE else (predicate,)


def any_of(args: Iterable[Expr]) -> Expr:
    """Disjunction of predicates."""
    return _junction(Any_, TRUE, FALSE, args)


_NEGATED = {"<": "<=", "<=": "<", "==": "!=", "!=": "=="}


@_remembered
def symbol_plus(extent: Expr) -> tuple[str, int] | None:
    """The symbol and the number of ``symbol + number``, the number at least 0; None for any other expression."""
    if isinstance(extent, Sym):
        return extent.name, 0
    if isinstance(extent, Sum) and extent.offset > 0 and len(extent.terms) == 1:
        (term, factor), *_ = extent.terms
        if isinstance(term, Sym) and factor == 1:
            return term.name, extent.offset
    return None


def negate(arg: Expr) -> Expr:
    """Logical negation of a predicate."""
    if isinstance(arg, Const):
        return FALSE if arg.value else TRUE
    if isinstance(arg, Compare):
        if arg.op in ("<", "<="):
            return compare(_NEGATED[arg.op], arg.rhs, arg.lhs)
        return compare(_NEGATED[arg.op], arg.lhs, arg.rhs)
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


def linear(parts: Iterable[tuple[Expr, int]]) -> Expr:
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
    if len(terms) > 1:
        terms.sort(key=lambda tc: tc[0].order)
    return _sum(offset, tuple(terms))


def _sum(offset: int, terms: tuple[tuple[Expr, int], ...]) -> Expr:
    """The sum of distinct terms in order, none with coefficient 0."""
    if not terms:
        return Const(offset)
    if len(terms) == 1 and offset == 0 and terms[0][1] == 1:
        return terms[0][0]
    return Sum(offset, terms)


@_remembered
def add(a: Expr, b: Expr) -> Expr:
    (ka, ta), (kb, tb) = _as_terms(a), _as_terms(b)
    if not tb:
        return _sum(ka + kb, ta) if kb else a
    if not ta:
        return _sum(ka + kb, tb) if ka else b
    return linear([(a, 1), (b, 1)])


@_remembered
def subtract(a: Expr, b: Expr) -> Expr:
    return linear([(a, 1), (b, -1)])


def _as_terms(node: Expr) -> tuple[int, tuple[tuple[Expr, int], ...]]:
    if isinstance(node, Const):
        return node.value, ()
    if isinstance(node, Sum):
        return node.offset, node.terms
    return 0, ((node, 1),)


def _factors(node: Expr) -> tuple[Expr, ...]:
    return node.factors if isinstance(node, Product) else (node,)


@_remembered
def product(a: Expr, b: Expr) -> Expr:
    (ka, ta), (kb, tb) = _as_terms(a), _as_terms(b)
    if len(ta) * len(tb) > _MAX_TERMS:
        raise ExprError(f"a product of {len(ta) * len(tb)} terms; at most {_MAX_TERMS} are expanded")
    if not tb:
        return _scaled(ka, ta, kb)
    if not ta:
        return _scaled(kb, tb, ka)
    parts: list[tuple[Expr, int]] = [(Const(ka * kb), 1)]
    parts += [(t, c * kb) for t, c in ta] + [(t, c * ka) for t, c in tb]
    for t, c in ta:
        for u, d in tb:
            factors = sorted((*_factors(t), *_factors(u)), key=lambda e: e.order)
            parts.append((Product(tuple(factors)), c * d))
    return linear(parts)


def _scaled(offset: int, terms: tuple[tuple[Expr, int], ...], factor: int) -> Expr:
    return _sum(offset * factor, tuple((t, c * factor) for t, c in terms)) if factor else Const(0)


def split_multiples(node: Expr, n: int) -> tuple[Expr, Expr]:
    """``node = n*q + r`` with the terms whose coefficient n divides in ``q``; r's constant is in [0, n)."""
    offset, terms = _as_terms(node)
    whole = tuple((t, c // n) for t, c in terms if c % n == 0)
    rest = tuple((t, c) for t, c in terms if c % n)
    return add(_sum(0, whole), Const(offset // n)), _sum(offset % n, rest)


@_remembered
def floordiv(a: Expr, b: Expr) -> Expr:
    n = b.constant
    if n is None:
        if a == b or (a.constant == 0):
            return Const(0) if a.constant == 0 else FloorDiv(a, b)
        return FloorDiv(a, b)
    if n == 0:
        raise ExprError(f"division of {a} by zero")
    if n < 0:
        return floordiv(-a, Const(-n))
    if n == 1:
        return a
    quotient, rest = split_multiples(a, n)
    if isinstance(rest, Const):
        return quotient
    if isinstance(rest, FloorDiv) and rest.denominator.constant:
        return quotient + floordiv(rest.numerator, Const(rest.denominator.constant * n))
    divisor = reduce(gcd, (c for _, c in _as_terms(rest)[1]), n)
    if divisor > 1:  # floor((g*x + k)/(g*m)) == floor((x + floor(k/g))/m)
        offset, terms = _as_terms(rest)
        rest = linear([(Const(offset // divisor), 1), *((t, c // divisor) for t, c in terms)])
        return quotient + floordiv(rest, Const(n // divisor))
    return quotient + FloorDiv(rest, b)


@_remembered
def mod(a: Expr, b: Expr) -> Expr:
    n = b.constant
    if n is None:
        return Const(0) if a.constant == 0 else Mod(a, b)
    if n == 0:
        raise ExprError(f"modulus of {a} by zero")
    if n < 0:
        return -mod(-a, Const(-n))
    if n == 1:
        return Const(0)
    _, rest = split_multiples(a, n)
    if isinstance(rest, Const):
        return rest
    if isinstance(rest, Mod) and rest.denominator.constant and rest.denominator.constant % n == 0:
        return mod(rest.numerator, b)
    return Mod(rest, b)


@_remembered
def xor(a: Expr, b: Expr) -> Expr:
    value, rest = 0, list[Expr]()
    for part in (a, b):
        for arg in part.args if isinstance(part, Xor) else (part,):
            if isinstance(arg, Const):
                value ^= arg.value
            elif arg in rest:
                rest.remove(arg)
            else:
                rest.append(arg)
    rest.sort(key=lambda e: e.order)
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
    items = sorted(rest, key=lambda e: e.order)
    if constants:
        items.append(Const(pick(constants)))
    if not items:
        raise ExprError("minimum and maximum need at least one argument")
    return items[0] if len(items) == 1 else kind(tuple(items))


@_remembered
def compare(op: str, a: Expr, b: Expr) -> Expr:
    difference = subtract(a, b)
    if isinstance(difference, Const):
        return TRUE if COMPARISONS[op](difference.value, 0) else FALSE
    return Compare(op, a, b)


def _junction(kind: type[All] | type[Any_], absorbing: Expr, neutral: Expr, args: Iterable[Expr]) -> Expr:
    parts: dict[Expr, None] = {}
    for arg in args:
        for part in arg.args if isinstance(arg, kind) else (arg,):
            if part == absorbing:
                return absorbing
            if part != neutral:
                parts[part] = None
    items = tuple(sorted(parts, key=lambda e: e.order))
    if not items:
        return neutral
    return items[0] if len(items) == 1 else kind(items)


def rebuild(node: Expr, visit: Callable[[Expr], Expr], env: Mapping[str, ExprLike]) -> Expr:
    match node:
        case Const():
            return node
        case Sym(name):
            return expr(env[name]) if name in env else node
        case Sum(offset, terms):
            return linear([(Const(offset), 1), *((visit(t), c) for t, c in terms)])
        case Product(factors):
            return reduce(product, map(visit, factors))
        case FloorDiv(a, b):
            return floordiv(visit(a), visit(b))
        case Mod(a, b):
            return mod(visit(a), visit(b))
        case Min(args):
            return minimum(*map(visit, args))
        case Max(args):
            return maximum(*map(visit, args))
        case Xor(args):
            return reduce(xor, map(visit, args))
        case Compare(op, a, b):
            return compare(op, visit(a), visit(b))
        case All(args):
            return all_of(map(visit, args))
        case Any_(args):
            return any_of(map(visit, args))
        case Not(a):
            return negate(visit(a))
        case _:
            raise TypeError(f"not an expression node: {type(node).__name__}")
