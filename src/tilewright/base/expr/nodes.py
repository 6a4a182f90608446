"""The nodes of an integer expression: what each holds, how it prints, and what it is worth under an assignment.

Nodes are built by the operators of ``Expr`` and the constructors of ``algebra``, never by their classes: only those
normalise, and equality of expressions rests on the normal form.

Nodes of equal fields are one object, so that equality is identity and hashing costs nothing: a compilation hashes
hundreds of thousands, and the variants of a kernel build mostly the same ones.
"""

from __future__ import annotations

import operator
import threading
import weakref
from collections.abc import Callable, Mapping
from functools import lru_cache, reduce
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, dataclass_transform

# The operators build normalised nodes, and the constructors take nodes apart: the one cycle, inside this package.
from tilewright.base.expr import algebra
from tilewright.base.once import once


class ExprError(ValueError):
    """Malformed expression text, an unknown symbol, or a division by zero."""


@dataclass_transform(frozen_default=True, eq_default=False)
class _OneOfEach(type):
    """Makes a node only where none of its class and fields is alive.

    The fields are what the class annotates. A metaclass has to say this anyway, and thirteen dataclasses would be a
    tenth of the time that ``import tilewright`` takes.
    """

    _alive: ClassVar[dict[tuple[object, ...], weakref.ref[Expr]]] = {}
    _swept_at: ClassVar[int] = 1 << 12
    _making: ClassVar[threading.Lock] = threading.Lock()

    if not TYPE_CHECKING:  # what a class takes is said by its fields

        def __new__(mcs, name, bases, namespace):
            fields = tuple(namespace.get("__annotations__", ())) if bases else ()
            return super().__new__(mcs, name, bases, {**namespace, "__match_args__": fields})

        def __call__(cls, *fields):
            key = (cls, *fields)
            known = _OneOfEach._alive.get(key)
            node = None if known is None else known()
            return cls._make(key) if node is None else node

    def _make(cls, key: tuple[object, ...]) -> Expr:
        with _OneOfEach._making:
            alive = _OneOfEach._alive
            known = alive.get(key)
            node = None if known is None else known()
            if node is None:
                node = super().__call__(*key[1:])
                alive[key] = weakref.ref(node)
                if len(alive) > _OneOfEach._swept_at:
                    _OneOfEach._sweep()
            return node

    @staticmethod
    def _sweep() -> None:
        """Forget the dead. Keys keep their nodes' parts alive, which die at the next sweep."""
        alive = _OneOfEach._alive
        for key in [key for key, known in alive.items() if known() is None]:
            del alive[key]
        _OneOfEach._swept_at = max(1 << 12, 2 * len(alive))


@dataclass_transform(frozen_default=True, eq_default=False)
class _OneOfEachValue(_OneOfEach):
    """The same for constants: an enumerator or a truth value is its number, which it equals."""

    if not TYPE_CHECKING:

        def __call__(cls, value):
            return super().__call__(int(value))


OWN = "$"
"""What the compiler's own symbols begin with, and no identifier does: a user's dimension, scalar or tensor may have any
name, also ``tid`` or ``p0``, and meets none of them."""

# How tightly each form binds when printed; ATOM needs no parentheses anywhere.
_ANY, _ALL, _NOT, _COMPARE, _SUM, _PRODUCT, _ATOM = range(7)


class Expr(metaclass=_OneOfEach):
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
        return algebra.add(self, expr(other))

    def __radd__(self, other: ExprLike) -> Expr:
        return algebra.add(expr(other), self)

    def __sub__(self, other: ExprLike) -> Expr:
        return algebra.subtract(self, expr(other))

    def __rsub__(self, other: ExprLike) -> Expr:
        return algebra.subtract(expr(other), self)

    def __neg__(self) -> Expr:
        return algebra.linear([(self, -1)])

    def __mul__(self, other: ExprLike) -> Expr:
        return algebra.product(self, expr(other))

    def __rmul__(self, other: ExprLike) -> Expr:
        return algebra.product(expr(other), self)

    def __floordiv__(self, other: ExprLike) -> Expr:
        return algebra.floordiv(self, expr(other))

    def __rfloordiv__(self, other: ExprLike) -> Expr:
        return algebra.floordiv(expr(other), self)

    def __mod__(self, other: ExprLike) -> Expr:
        return algebra.mod(self, expr(other))

    def __rmod__(self, other: ExprLike) -> Expr:
        return algebra.mod(expr(other), self)

    def __xor__(self, other: ExprLike) -> Expr:
        return algebra.xor(self, expr(other))

    def __rxor__(self, other: ExprLike) -> Expr:
        return algebra.xor(expr(other), self)

    # -- comparisons build predicates; ``==`` compares expressions (``eq`` builds the predicate) -----------------------
    def __lt__(self, other: ExprLike) -> Expr:
        return algebra.compare("<", self, expr(other))

    def __le__(self, other: ExprLike) -> Expr:
        return algebra.compare("<=", self, expr(other))

    def __gt__(self, other: ExprLike) -> Expr:
        return algebra.compare("<", expr(other), self)

    def __ge__(self, other: ExprLike) -> Expr:
        return algebra.compare("<=", expr(other), self)

    def eq(self, other: ExprLike) -> Expr:
        """The predicate ``self == other``."""
        return algebra.compare("==", self, expr(other))

    def ne(self, other: ExprLike) -> Expr:
        """The predicate ``self != other``."""
        return algebra.compare("!=", self, expr(other))

    def __reduce__(self) -> tuple[type[Expr], tuple[object, ...]]:
        return type(self), tuple(getattr(self, name) for name in self.__match_args__)

    def __bool__(self) -> bool:
        raise TypeError(f"the truth value of the expression {self} is not known; compare and evaluate it")

    # -- queries --------------------------------------------------------------------------------------------------
    @once
    def text(self) -> str:
        """Canonical text, read back by ``parse``."""
        return self._text()

    @once
    def order(self) -> tuple[str, str]:
        """Where it stands among the parts of a sum or product; whose a symbol is plays no part before its name."""
        return self.text.replace(OWN, ""), self.text

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.text}>"

    @once
    def symbols(self) -> frozenset[str]:
        """Names of all symbols that occur."""
        return frozenset[str]().union(*(child.symbols for child in self.children))

    @once
    def polynomial(self) -> bool:
        """Made of constants, symbols, sums and products alone: bounds simplify nothing in it."""
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
        """How tightly the text binds."""
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


@lru_cache(maxsize=1 << 16)
def _substituted(node: Expr, values: frozenset[tuple[str, Expr]]) -> Expr:
    env = dict(values)
    return algebra.rebuild(node, lambda e: e.substitute(env), env)


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


class Const(Expr, metaclass=_OneOfEachValue):
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

    @once
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


class FloorDiv(Expr):
    """Quotient rounded to minus infinity."""

    numerator: Expr
    denominator: Expr

    @property
    def children(self) -> tuple[Expr, ...]:
        return self.numerator, self.denominator

    _binding = _PRODUCT

    def _text(self) -> str:
        return f"{self.numerator.print(_ATOM)} // {self.denominator.print(_ATOM)}"

    def evaluate(self, env: Mapping[str, Any]) -> Any:
        return self.numerator.evaluate(env) // _divisor(self, self.denominator, env)


class Mod(Expr):
    """Remainder with the sign of the divisor."""

    numerator: Expr
    denominator: Expr

    @property
    def children(self) -> tuple[Expr, ...]:
        return self.numerator, self.denominator

    _binding = _PRODUCT

    def _text(self) -> str:
        return f"{self.numerator.print(_ATOM)} % {self.denominator.print(_ATOM)}"

    def evaluate(self, env: Mapping[str, Any]) -> Any:
        return self.numerator.evaluate(env) % _divisor(self, self.denominator, env)


class Min(Expr):
    """Least of two or more, sorted."""

    args: tuple[Expr, ...]

    @property
    def children(self) -> tuple[Expr, ...]:
        return self.args

    def _text(self) -> str:
        return _call("min", self.args)

    def evaluate(self, env: Mapping[str, Any]) -> Any:
        return min(a.evaluate(env) for a in self.args)


class Max(Expr):
    """Greatest of two or more, sorted."""

    args: tuple[Expr, ...]

    @property
    def children(self) -> tuple[Expr, ...]:
        return self.args

    def _text(self) -> str:
        return _call("max", self.args)

    def evaluate(self, env: Mapping[str, Any]) -> Any:
        return max(a.evaluate(env) for a in self.args)


class Xor(Expr):
    """Bitwise exclusive or of non-negative integers (swizzles)."""

    args: tuple[Expr, ...]

    @property
    def children(self) -> tuple[Expr, ...]:
        return self.args

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

    def evaluate(self, env: Mapping[str, Any]) -> Any:
        return COMPARISONS[self.op](self.lhs.evaluate(env), self.rhs.evaluate(env))


class All(Expr):
    """Conjunction; the empty one is true and folds to ``Const(1)``."""

    args: tuple[Expr, ...]

    @property
    def children(self) -> tuple[Expr, ...]:
        return self.args

    _binding = _ALL

    def _text(self) -> str:
        return " and ".join(a.print(_NOT) for a in self.args)

    def evaluate(self, env: Mapping[str, Any]) -> Any:
        return all(a.evaluate(env) for a in self.args)


class Any_(Expr):
    """Disjunction; the empty one is false and folds to ``Const(0)``."""

    args: tuple[Expr, ...]

    @property
    def children(self) -> tuple[Expr, ...]:
        return self.args

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
