"""The nodes of an integer expression: what each holds, how it prints, and what it is worth under an assignment.

Nodes are built by the operators of ``Expr`` and the constructors below, never by their classes: only those
normalise, and equality of expressions rests on the normal form.

Nodes of equal fields are one object, so that equality is identity and hashing costs nothing: a compilation hashes
hundreds of thousands, and the variants of a kernel build mostly the same ones.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, reduce
from math import gcd
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, TypeVar, cast

from tilewright.base.cached import cached_property
from tilewright.base.expr.interned import Interned, InternedNumber


class ExprError(ValueError):
    """Malformed expression text, an unknown symbol, or a division by zero."""


OWN = "$"
"""First character of the compiler's own symbols. No identifier begins with it, so a user's dimension, scalar or tensor
may have any name, also ``tid`` or ``p0``."""

# How tightly each form binds when printed; ATOM needs no parentheses anywhere.
_ANY, _ALL, _NOT, _COMPARE, _SUM, _PRODUCT, _ATOM = range(7)


class Expr(metaclass=Interned):
    """Base of all nodes. Immutable, hashable; two are equal if their canonical text is: then they are the same."""

    if not TYPE_CHECKING:  # a type checker knows these from the metaclass

        def __init__(self, *fields):
            names = self.__match_args__
            if len(fields) != len(names):
                raise TypeError(f"{type(self).__name__} has the fields {', '.join(names)}; {len(fields)} were given")
            self.__dict__.update(zip(names, fields, strict=True))

        def __setattr__(self, name, value):
            raise AttributeError(f"{type(self).__name__} is immutable: {name} can't be set")

        __delattr__ = __setattr__

    # -- arithmetic -----------------------------------------------------------------------------------------------
    def __add__(self, other: ExprLike) -> Expr:
        return add(self, expr(other))

    def __radd__(self, other: ExprLike) -> Expr:
        return add(expr(other), self)

    def __sub__(self, other: ExprLike) -> Expr:
        return subtract(self, expr(other))

    def __rsub__(self, other: ExprLike) -> Expr:
        return subtract(expr(other), self)

    def __neg__(self) -> Expr:
        return linear([(self, -1)])

    def __mul__(self, other: ExprLike) -> Expr:
        return product(self, expr(other))

    def __rmul__(self, other: ExprLike) -> Expr:
        return product(expr(other), self)

    def __floordiv__(self, other: ExprLike) -> Expr:
        return floordiv(self, expr(other))

    def __rfloordiv__(self, other: ExprLike) -> Expr:
        return floordiv(expr(other), self)

    def __mod__(self, other: ExprLike) -> Expr:
        return mod(self, expr(other))

    def __rmod__(self, other: ExprLike) -> Expr:
        return mod(expr(other), self)

    def __xor__(self, other: ExprLike) -> Expr:
        return xor(self, expr(other))

    def __rxor__(self, other: ExprLike) -> Expr:
        return xor(expr(other), self)

    # -- comparisons build predicates; ``==`` compares expressions (``eq`` builds the predicate) -----------------------
    def __lt__(self, other: ExprLike) -> Expr:
        return compare("<", self, expr(other))

    def __le__(self, other: ExprLike) -> Expr:
        return compare("<=", self, expr(other))

    def __gt__(self, other: ExprLike) -> Expr:
        return compare("<", expr(other), self)

    def __ge__(self, other: ExprLike) -> Expr:
        return compare("<=", expr(other), self)

    def eq(self, other: ExprLike) -> Expr:
        """The predicate ``self == other``."""
        return compare("==", self, expr(other))

    def ne(self, other: ExprLike) -> Expr:
        """The predicate ``self != other``."""
        return compare("!=", self, expr(other))

    def __reduce__(self) -> tuple[type[Expr], tuple[object, ...]]:
        return type(self), tuple(getattr(self, name) for name in self.__match_args__)

    def __bool__(self) -> bool:
        raise TypeError(f"the truth value of the expression {self} is not known; compare and evaluate it")

    # -- queries --------------------------------------------------------------------------------------------------
    @cached_property
    def text(self) -> str:
        """Canonical text, read back by ``parse``."""
        return self._text()

    @cached_property
    def order(self) -> tuple[str, str]:
        """Sort key among the operands of a sum or product: the name without ``$`` first, so that a symbol's owner
        matters last."""
        return self.text.replace(OWN, ""), self.text

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.text}>"

    @cached_property
    def symbols(self) -> frozenset[str]:
        """Names of all symbols that occur."""
        return frozenset[str]().union(*(child.symbols for child in self.children))

    @cached_property
    def polynomial(self) -> bool:
        """Whether it consists of constants, symbols, sums and products only; ``simplify`` then changes nothing."""
        return isinstance(self, Const | Sym | Sum | Product) and all(child.polynomial for child in self.children)

    @property
    def constant(self) -> int | None:
        """The value, if the expression is a constant."""
        return None

    @property
    def children(self) -> tuple[Expr, ...]:
        """Direct sub-expressions, in printing order."""
        raise NotImplementedError

    _binding: ClassVar[int] = _ATOM

    def _strength(self) -> int:
        """Binding strength of the printed form."""
        return self._binding

    def print(self, outer: int) -> str:
        """Text for a place that binds with strength ``outer``."""
        return self.text if self._strength() >= outer else f"({self.text})"

    def _text(self) -> str:
        raise NotImplementedError

    def evaluate(self, env: Mapping[str, Any]) -> Any:
        """Value under ``env``; raises ``ExprError`` for a missing symbol or a zero divisor."""
        raise NotImplementedError

    def substitute(self, env: Mapping[str, ExprLike]) -> Expr:
        """Replace symbols; those not in ``env`` stay."""
        found = self.symbols & env.keys()
        if not found:
            return self
        return _substituted(self, frozenset((name, expr(env[name])) for name in found))


ExprLike: TypeAlias = Expr | int


class Assignment(dict[str, Any]):
    """Values of symbols, under which each sum, least value and comparison is evaluated once: predicates of a program's
    variants consist of the same ones."""

    def __init__(self, values: Mapping[str, Any]):
        super().__init__(values)
        self.known: dict[Expr, Any] = {}


Evaluate = TypeVar("Evaluate", bound=Callable[..., Any])


def _once_each(evaluate: Evaluate) -> Evaluate:
    """``evaluate`` of a node that an ``Assignment`` remembers."""

    def remembered(self: Expr, env: Mapping[str, Any]) -> Any:
        if not isinstance(env, Assignment):
            return evaluate(self, env)
        known = env.known
        if self not in known:
            known[self] = evaluate(self, env)
        return known[self]

    return cast(Evaluate, remembered)


@lru_cache(maxsize=1 << 16)
def _substituted(node: Expr, values: frozenset[tuple[str, Expr]]) -> Expr:
    env = dict(values)
    return rebuild(node, lambda e: e.substitute(env), env)


def expr(value: ExprLike) -> Expr:
    """``value`` as an expression; refuses anything but int and Expr, so that a float never slips in."""
    if value.__class__ is int:  # the usual case first: this is asked of every operand
        return _constant(value)
    if isinstance(value, Expr):
        return value
    # bool and float reach this from untyped user code
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"an integer expression is built from int, not {type(value).__name__}")
    return _constant(operator.index(value))


@lru_cache(maxsize=1 << 12)
def _constant(value: int) -> Const:
    return Const(value)


def sym(name: str) -> Sym:
    """The symbol ``name``."""
    return Sym(name)


def own(name: str) -> str:
    """The name of a symbol of the compiler's: a thread, a program, a counter, a definition."""
    return OWN + name


def children(node: Expr) -> tuple[Expr, ...]:
    """Direct sub-expressions, in printing order."""
    return node.children


class Const(Expr, metaclass=InternedNumber):
    """An integer or truth value known now."""

    value: int

    @property
    def constant(self) -> int | None:
        return self.value

    @property
    def children(self) -> tuple[Expr, ...]:
        return ()

    def _strength(self) -> int:
        return _ATOM if self.value >= 0 else _SUM

    def _text(self) -> str:
        return str(self.value)

    def evaluate(self, env: Mapping[str, Any]) -> Any:
        return self.value


class Sym(Expr):
    """A named integer: a dimension ``M``, a stride ``a.stride0``; by ``own``, a program id ``$p0``, ``$tid``,
    a loop counter ``$k0``."""

    name: str

    @cached_property
    def symbols(self) -> frozenset[str]:
        return frozenset((self.name,))

    @property
    def children(self) -> tuple[Expr, ...]:
        return ()

    def _text(self) -> str:
        return self.name

    def evaluate(self, env: Mapping[str, Any]) -> Any:
        try:
            return env[self.name]
        except KeyError:
            known = ", ".join(sorted(env)) or "none"
            raise ExprError(f"symbol {self.name!r} has no value; known: {known}") from None


class Sum(Expr):
    """``constant + sum(coefficient * term)``; terms are sorted, distinct, neither sums nor constants."""

    offset: int
    terms: tuple[tuple[Expr, int], ...]

    @property
    def children(self) -> tuple[Expr, ...]:
        return tuple(term for term, _ in self.terms)

    def _strength(self) -> int:
        return _PRODUCT if len(self.terms) == 1 and not self.offset and self.terms[0][1] > 0 else _SUM

    def _text(self) -> str:
        text = ""
        for term, c in self.terms:
            # a leading minus binds tighter than // and %, so its term is printed as an atom
            body = term.print(_PRODUCT if c > 0 or text else _ATOM) if abs(c) == 1 else f"{term.print(_ATOM)}*{abs(c)}"
            text += (f" + {body}" if text else body) if c > 0 else (f" - {body}" if text else f"-{body}")
        if self.offset:
            text += f" + {self.offset}" if self.offset > 0 else f" - {-self.offset}"
        return text

    @_once_each
    def evaluate(self, env: Mapping[str, Any]) -> Any:
        return self.offset + sum(c * term.evaluate(env) for term, c in self.terms)


class Product(Expr):
    """Two or more non-constant factors, sorted; coefficients live in ``Sum``."""

    factors: tuple[Expr, ...]

    @property
    def children(self) -> tuple[Expr, ...]:
        return self.factors

    _binding = _PRODUCT

    def _text(self) -> str:
        return "*".join(f.print(_ATOM) for f in self.factors)

    def evaluate(self, env: Mapping[str, Any]) -> Any:
        return reduce(operator.mul, (f.evaluate(env) for f in self.factors))


class _Quotient(Expr):
    """Common to division and remainder: two operands, printed as tightly as a product."""

    numerator: Expr
    denominator: Expr

    @property
    def children(self) -> tuple[Expr, ...]:
        return self.numerator, self.denominator

    _binding = _PRODUCT


class FloorDiv(_Quotient):
    """Quotient rounded to minus infinity."""

    def _text(self) -> str:
        return f"{self.numerator.print(_ATOM)} // {self.denominator.print(_ATOM)}"

    @_once_each
    def evaluate(self, env: Mapping[str, Any]) -> Any:
        return self.numerator.evaluate(env) // _divisor(self, self.denominator, env)


class Mod(_Quotient):
    """Remainder with the sign of the divisor."""

    def _text(self) -> str:
        return f"{self.numerator.print(_ATOM)} % {self.denominator.print(_ATOM)}"

    def evaluate(self, env: Mapping[str, Any]) -> Any:
        return self.numerator.evaluate(env) % _divisor(self, self.denominator, env)


class _OfMany(Expr):
    """Common to functions of any number of operands."""

    args: tuple[Expr, ...]

    @property
    def children(self) -> tuple[Expr, ...]:
        return self.args


class Min(_OfMany):
    """Least of two or more, sorted."""

    def _text(self) -> str:
        return _call("min", self.args)

    @_once_each
    def evaluate(self, env: Mapping[str, Any]) -> Any:
        return min(a.evaluate(env) for a in self.args)


class Max(_OfMany):
    """Greatest of two or more, sorted."""

    def _text(self) -> str:
        return _call("max", self.args)

    def evaluate(self, env: Mapping[str, Any]) -> Any:
        return max(a.evaluate(env) for a in self.args)


class Xor(_OfMany):
    """Bitwise exclusive or of non-negative integers (swizzles)."""

    def _text(self) -> str:
        return _call("xor", self.args)

    def evaluate(self, env: Mapping[str, Any]) -> Any:
        return reduce(_xor_values, (a.evaluate(env) for a in self.args))


class Compare(Expr):
    """``lhs op rhs`` with op one of ``< <= == !=``."""

    op: str
    lhs: Expr
    rhs: Expr

    @property
    def children(self) -> tuple[Expr, ...]:
        return self.lhs, self.rhs

    _binding = _COMPARE

    def _text(self) -> str:
        return f"{self.lhs.print(_SUM)} {self.op} {self.rhs.print(_SUM)}"

    @_once_each
    def evaluate(self, env: Mapping[str, Any]) -> Any:
        return COMPARISONS[self.op](self.lhs.evaluate(env), self.rhs.evaluate(env))


class All(_OfMany):
    """Conjunction; the empty one is true and folds to ``Const(1)``."""

    _binding = _ALL

    def _text(self) -> str:
        return " and ".join(a.print(_NOT) for a in self.args)

    def evaluate(self, env: Mapping[str, Any]) -> Any:
        return all(a.evaluate(env) for a in self.args)


class Any_(_OfMany):
    """Disjunction; the empty one is false and folds to ``Const(0)``."""

    _binding = _ANY

    def _text(self) -> str:
        return " or ".join(a.print(_ALL) for a in self.args)

    def evaluate(self, env: Mapping[str, Any]) -> Any:
        return any(a.evaluate(env) for a in self.args)


class Not(Expr):
    """Negation of a predicate that is not a comparison (those flip their operator instead)."""

    arg: Expr

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.arg,)

    _binding = _NOT

    def _text(self) -> str:
        return f"not {self.arg.print(_COMPARE)}"

    def evaluate(self, env: Mapping[str, Any]) -> Any:
        return not self.arg.evaluate(env)


COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
}


def _divisor(node: Expr, denominator: Expr, env: Mapping[str, Any]) -> Any:
    value = denominator.evaluate(env)
    if value == 0:
        raise ExprError(f"{node} divides by zero")
    return value


def _xor_values(a: int, b: int) -> int:
    return a ^ b


def _call(name: str, args: tuple[Expr, ...]) -> str:
    return f"{name}({', '.join(a.print(_ANY) for a in args)})"


# -- normalising constructors: every node is built here, folded, flattened and sorted by text ----------------------
TRUE: Expr = Const(1)
FALSE: Expr = Const(0)

_remembered = lru_cache(maxsize=1 << 16)
"""Cache of constructors: nodes are unique, so a repeated construction is a look-up by identity."""

_MAX_TERMS = 4096  # products of sums are multiplied out; untrusted text must not make that explode


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


def negate(arg: Expr) -> Expr:
    """Logical negation of a predicate."""
    if isinstance(arg, Const):
        return FALSE if arg.value else TRUE
    if isinstance(arg, Compare):
        if arg.op in ("<", "<="):
            return compare(_NEGATED[arg.op], arg.rhs, arg.lhs)
        return compare(_NEGATED[arg.op], arg.lhs, arg.rhs)
    return arg.arg if isinstance(arg, Not) else Not(arg)


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
