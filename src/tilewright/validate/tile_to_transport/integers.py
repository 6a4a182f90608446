"""Integer expressions and predicates over threads and registers, as fingerprints.

An expression is a number for each thread and register plus a *rest* that launches, programs and counters decide: a
polynomial modulo 2**64 at one random point. Quotients of rests are atoms. A predicate is numbers again, or bounds:
``rest > threshold`` with one threshold for each thread and register.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tilewright.base.expr import (
    All,
    Any_,
    Compare,
    Const,
    Expr,
    FloorDiv,
    Max,
    Min,
    Mod,
    Not,
    Product,
    Sum,
    Sym,
    Xor,
    maximum,
    minimum,
    negate,
)
from tilewright.validate.tile_to_transport.fingerprints import Fingerprints, fingerprints, key, mix, term
from tilewright.validate.undecided import Undecided

Numbers: TypeAlias = npt.NDArray[Any]
ALWAYS = -1 << 60
"""A threshold that everything exceeds."""
_COMPARE = {"<": np.less, "<=": np.less_equal, "==": np.equal, "!=": np.not_equal}


@dataclass(frozen=True)
class Number:
    """``number`` for each thread and register, plus ``rest``, modulo 2**64; ``symbol`` is the rest where it is the
    same for all."""

    number: Numbers
    rest: Fingerprints
    symbol: Expr | None = None

    @property
    def known(self) -> bool:
        """Nothing but numbers."""
        return self.symbol is not None and self.symbol == Const(0)

    @property
    def fingerprints(self) -> Fingerprints:
        return fingerprints(self.number) + self.rest


_NONE = np.zeros((1, 1), np.uint64)


@dataclass
class Bounds:
    """A predicate: ``mask``, and every rest greater than its thresholds. ``forms`` are known in ``Integers``."""

    mask: Numbers
    atoms: dict[int, Numbers] = field(default_factory=dict[int, Numbers])

    @property
    def decided(self) -> bool:
        """Nothing but numbers."""
        return not self.atoms


class Integers:
    """Evaluates expressions with the given ``numbers`` (arrays) and ``symbols`` (expressions substituted for
    symbols)."""

    def __init__(self, numbers: Mapping[str, Numbers]):
        self.numbers = dict(numbers)
        self.values: dict[str, Number] = {}
        """What a name is worth, if it is none of the launch's own."""
        self.forms: dict[int, Expr] = {}
        """The expression of every rest that a predicate bounds."""
        self._found: dict[Expr, Number] = {}
        self._caches: dict[object, dict[Expr, Number]] = {}

    def bind(self, name: str, value: Number | None) -> None:
        """Sets the value of a name from here on; None: the name itself."""
        if value is None:
            self.values.pop(name, None)
        else:
            self.values[name] = value
        for found in (self._found, *self._caches.values()):
            for e in [e for e in found if name in e.symbols]:
                del found[e]

    def place(self, mark: object, numbers: Mapping[str, Numbers]) -> None:
        """Other arrays for some names; the same ones whenever ``mark`` is the same."""
        self.numbers |= numbers
        self._found = self._caches.setdefault(mark, {})

    def inlined(self, e: Expr) -> Expr:
        """An expression with all bound names replaced."""
        bound = {n: self.values[n] for n in e.symbols & self.values.keys()}
        return e.substitute({n: v.symbol + int(v.number.flat[0]) for n, v in bound.items() if v.symbol is not None})

    # -- values -------------------------------------------------------------------------------------------------------
    def __call__(self, node: Expr) -> Number:
        found = self._found.get(node)
        if found is None:
            found = self._found[node] = self._value(node)
        return found

    def _value(self, node: Expr) -> Number:
        match node:
            case Const(value):
                return Number(np.full((1, 1), value, np.int64), _NONE, Const(0))
            case Sym(name):
                if name in self.numbers:
                    return Number(self.numbers[name], _NONE, Const(0))
                if name in self.values:
                    return self.values[name]
                return Number(np.zeros((1, 1), np.int64), fingerprints(key("symbol", name)).reshape(1, 1), node)
            case Sum(offset, terms):
                return self._sum(offset, terms)
            case Product(args):
                return reduce(self._product, map(self, args))
            case FloorDiv(a, b):
                return self._quotient(self(a), self(b))
            case Mod(a, b):
                x, y = self(a), self(b)
                if x.known and y.known:
                    return Number(x.number % y.number, _NONE, Const(0))
                return self._remainder(x, y)
            case Min(args) | Max(args):
                return self._extremum(isinstance(node, Min), list(map(self, args)))
            case Xor(args):
                return self._xor(list(map(self, args)))
            case _:
                raise Undecided(f"the predicate {node} as a number")

    def _sum(self, offset: int, terms: tuple[tuple[Expr, int], ...]) -> Number:
        number, rest = np.full((1, 1), offset, np.int64), _NONE
        symbol: Expr | None = Const(0)
        for part, factor in terms:
            value = self(part)
            number = number + value.number * factor
            if not value.known:
                rest = rest + value.rest * fingerprints(factor)
            symbol = None if symbol is None or value.symbol is None else symbol + value.symbol * factor
        return Number(number, rest, symbol)

    def add(self, x: Number, y: Number) -> Number:
        """A sum."""
        symbol = None if x.symbol is None or y.symbol is None else x.symbol + y.symbol
        return Number(x.number + y.number, x.rest + y.rest, symbol)

    def _product(self, x: Number, y: Number) -> Number:
        if x.known and y.known:
            return Number(x.number * y.number, _NONE, Const(0))
        if x.known:
            x, y = y, x
        if y.known and y.number.size == 1:
            factor = int(y.number.flat[0])
            symbol = None if x.symbol is None else x.symbol * factor
            return Number(x.number * factor, x.rest * fingerprints(factor), symbol)
        if x.number.size == y.number.size == 1 and x.symbol is not None and y.symbol is not None:
            m, n = int(x.number.flat[0]), int(y.number.flat[0])
            symbol = (x.symbol + m) * (y.symbol + n) - m * n
            rest = (x.rest + fingerprints(m)) * (y.rest + fingerprints(n)) - fingerprints(m * n)
            return Number(np.full((1, 1), m * n, np.int64), rest, symbol)
        return Number(np.zeros((1, 1), np.int64), x.fingerprints * y.fingerprints, None)

    def _quotient(self, x: Number, y: Number) -> Number:
        if x.known and y.known:
            if not y.number.all():
                raise Undecided("a division by zero")
            return Number(x.number // y.number, _NONE, Const(0))
        divisor = int(y.number.flat[0]) if y.known and y.number.size == 1 else 0
        whole = None if x.symbol is None else _multiple(x.symbol, divisor)
        if whole is not None:  # of the rest, so that only the numbers are divided
            return self.add(self(whole), Number(x.number // y.number, _NONE, Const(0)))
        return self._opaque(term("quotient", x.fingerprints, y.fingerprints), _symbolic(lambda a, b: a // b, x, y))

    def _remainder(self, x: Number, y: Number) -> Number:
        """``x - y * (x // y)``, nothing of it a known number."""
        quotient = self._quotient(x, y)
        if y.known and x.symbol is not None and quotient.symbol is not None:
            divisor = int(y.number.flat[0])
            if x.symbol == quotient.symbol * divisor:
                return Number(x.number - quotient.number * divisor, _NONE, Const(0))
        symbol = _symbolic(lambda a, b: a % b, x, y)
        return self._opaque(x.fingerprints - y.fingerprints * quotient.fingerprints, symbol)

    def _extremum(self, least: bool, parts: list[Number]) -> Number:
        if all(p.known for p in parts):
            fn = np.minimum if least else np.maximum
            return Number(reduce(fn, (p.number for p in parts)), _NONE, Const(0))
        rest = sum((mix(p.fingerprints, key("part")) for p in parts[1:]), mix(parts[0].fingerprints, key("part")))
        symbols = [p.symbol + int(p.number.flat[0]) for p in parts if p.symbol is not None and p.number.size == 1]
        symbol = None
        if len(symbols) == len(parts):
            symbol = minimum(*symbols) if least else maximum(*symbols)
        return self._opaque(mix(rest, key("least" if least else "greatest")), symbol)

    def _xor(self, parts: list[Number]) -> Number:
        if all(p.known for p in parts):
            return Number(reduce(np.bitwise_xor, (p.number for p in parts)), _NONE, Const(0))
        rest = sum((mix(p.fingerprints, key("part")) for p in parts[1:]), mix(parts[0].fingerprints, key("part")))
        return self._opaque(mix(rest, key("xor")), None)

    def _opaque(self, rest: Fingerprints, symbol: Expr | None) -> Number:
        return Number(np.zeros((1, 1), np.int64), rest, symbol)

    # -- predicates ---------------------------------------------------------------------------------------------------
    def bounds(self, node: Expr) -> Bounds:
        """A predicate, a conjunction of bounds; ``Undecided`` for any other over what launches decide."""
        match node:
            case Const(value):
                return Bounds(np.full((1, 1), bool(value)))
            case All(args):
                return reduce(both, map(self.bounds, args))
            case Any_(args):
                parts = [self.bounds(a) for a in args]
                if all(p.decided for p in parts):
                    return Bounds(reduce(np.logical_or, (p.mask for p in parts)))
                raise Undecided(f"the alternative {node}")
            case Not(a):
                inner = self.bounds(a)
                if inner.decided:
                    return Bounds(~inner.mask)
                if isinstance(a, Compare):
                    return self.bounds(negate(a))
                raise Undecided(f"the predicate {node}")
            case Compare("<" | "<=", a, Min(args)):
                return reduce(both, (self.bounds(a < x if node.op == "<" else a <= x) for x in args))
            case Compare("<" | "<=", Max(args), b):
                return reduce(both, (self.bounds(x < b if node.op == "<" else x <= b) for x in args))
            case Compare(op, a, b):
                found = self.compared(op, self(a), self(b))
                if found is None:
                    raise Undecided(f"the predicate {node}")
                return found
            case _:
                raise Undecided(f"the predicate {node}")

    def compared(self, op: str, x: Number, y: Number) -> Bounds | None:
        """A comparison; None for one over what launches decide that is no bound."""
        number, rest = y.number - x.number, y.rest - x.rest
        if (x.known and y.known) or not rest.any():
            return Bounds(_COMPARE[op](np.zeros((1, 1), np.int64), number))
        if rest.size != 1 or op not in ("<", "<="):
            return None
        form = int(rest.flat[0])
        if x.symbol is not None and y.symbol is not None:
            self.forms.setdefault(form, y.symbol - x.symbol)
        return Bounds(np.ones((1, 1), np.bool_), {form: -number - (1 if op == "<=" else 0)})


def _multiple(e: Expr, divisor: int) -> Expr | None:
    """``e // divisor`` where every term is a multiple of it."""
    offset, terms = (e.offset, e.terms) if isinstance(e, Sum) else (0, ((e, 1),))
    if divisor < 1 or offset % divisor or any(factor % divisor for _, factor in terms):
        return None
    return e // divisor


def _symbolic(build: Callable[[Expr, Expr], Expr], x: Number, y: Number) -> Expr | None:
    """What two numbers make, where they are the same for all threads and registers."""
    if x.number.size != 1 or y.number.size != 1 or x.symbol is None or y.symbol is None:
        return None
    return build(x.symbol + int(x.number.flat[0]), y.symbol + int(y.number.flat[0]))


def both(a: Bounds, b: Bounds) -> Bounds:
    """A conjunction."""
    return Bounds(a.mask & b.mask, merged(a.atoms, b.atoms))


def merged(a: Mapping[int, Numbers], b: Mapping[int, Numbers]) -> dict[int, Numbers]:
    """Bounds that all hold."""
    found = dict(a)
    for form, threshold in b.items():
        found[form] = np.maximum(found[form], threshold) if form in found else threshold
    return found
