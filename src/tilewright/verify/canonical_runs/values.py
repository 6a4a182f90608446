"""Evaluating a protocol's expressions while some trip counts are still open.

A trip count is revealed lazily: it is known to be at least ``low`` until a run decides that it ends there. An integer
needs exact symbols; a predicate is decided as soon as it has one value for every count still possible.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import lcm

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
    Sum,
    Sym,
)

Env = Mapping[str, int]
Thunk = Callable[[Env], int]

FAR = 1 << 40
"""Stands for 'as large as you like' when a monotone predicate is tried at the far end."""


def compiled(e: Expr) -> Thunk:
    """``e`` as a function of an environment; the shapes that slots and parities take have a direct form."""
    match e:
        case Const(value):
            return lambda env: value
        case Sym(name):
            return lambda env: env[name]
        case Mod(Sym(name), Const(m)):
            return lambda env: env[name] % m
        case Mod(FloorDiv(Sym(name), Const(d)), Const(m)):
            return lambda env: env[name] // d % m
        case Sum(offset, ((term, factor),)):
            inner = compiled(term)
            return lambda env: offset + factor * inner(env)
        case Mod(numerator, Const(m)):
            above = compiled(numerator)
            return lambda env: above(env) % m
        case FloorDiv(numerator, Const(d)) if d:
            upper = compiled(numerator)
            return lambda env: upper(env) // d
        case _:
            return lambda env: int(e.evaluate(env))


@dataclass(frozen=True)
class Usage:
    """How the variables of a program affect its future: what two runs must share to continue in the same way.
    ``period``: only the value modulo it matters, beyond ``cutoff``; ``raw`` variables matter in full; ``related`` pairs
    a variable with a trip symbol that it is compared with (their difference matters)."""

    period: dict[str, int]
    cutoff: dict[str, int]
    raw: frozenset[str]
    related: frozenset[tuple[str, str]]

    def normal(self, name: str, value: int) -> int:
        """The representative of ``value``: equal for values that no use of ``name`` distinguishes."""
        if name in self.raw:
            return value
        if name not in self.period and name not in self.cutoff:
            return 0
        low, period = self.cutoff.get(name, 0), self.period.get(name, 1)
        return value if value < low + period else low + (value - low) % period


def usage(expressions: Sequence[Expr], trips: frozenset[str]) -> Usage:
    """The usage of every variable in ``expressions``; ``trips`` are the trip symbols."""
    period: dict[str, int] = {}
    cutoff: dict[str, int] = {}
    raw: set[str] = set()
    related: set[tuple[str, str]] = set()

    def periodic(e: Expr, modulus: int) -> None:
        """``e`` counts modulo ``modulus``."""
        match e:
            case Sym(name):
                period[name] = lcm(period.get(name, 1), modulus)
            case Sum():
                for term, _ in e.terms:
                    periodic(term, modulus)
            case FloorDiv(numerator, Const(d)) if d > 0:
                periodic(numerator, modulus * d)
            case Mod(numerator, Const(m)) if m > 0:
                periodic(numerator, m)
            case _:
                plain(e)

    def compared(e: Compare) -> None:
        difference = e.lhs - e.rhs
        offset, terms = (
            (difference.offset, difference.terms) if isinstance(difference, Sum) else (0, ((difference, 1),))
        )
        names = [t.name for t, _ in terms if isinstance(t, Sym)]
        variables = [n for n in names if n not in trips]
        symbols = [n for n in names if n in trips]
        if len(names) == len(terms) and len(variables) == 1 and not symbols:
            cutoff[variables[0]] = max(cutoff.get(variables[0], 0), abs(offset) + 1)
        elif len(names) == len(terms) and len(variables) == 1 and len(symbols) == 1:
            related.add((variables[0], symbols[0]))
        else:
            plain(e.lhs)
            plain(e.rhs)

    def plain(e: Expr) -> None:
        match e:
            case Sym(name):
                raw.add(name)
            case Mod(numerator, Const(m)) if m > 0:
                periodic(numerator, m)
            case Compare():
                compared(e)
            case _:
                for child in e.children:
                    plain(child)

    for e in expressions:
        plain(e)
    return Usage(period, cutoff, frozenset(raw) - trips, frozenset(related))


def monotone_in(e: Expr, names: frozenset[str]) -> bool:
    """Whether the truth of ``e`` at the ends of each symbol's range settles it in between: every comparison holds each
    open symbol on one side only, under sums, min, max and division by positive constants."""
    match e:
        case Compare(_, lhs, rhs):
            one_sided = not (lhs.symbols & rhs.symbols & names)
            return e.op in ("<", "<=") and one_sided and _smooth(lhs, names) and _smooth(rhs, names)
        case All() | Any_() | Not():
            return (
                all(monotone_in(c, names) for c in e.children) and sum(bool(c.symbols & names) for c in e.children) <= 1
            )
        case _:
            return not (e.symbols & names)


def _smooth(e: Expr, names: frozenset[str]) -> bool:
    if not e.symbols & names:
        return True
    match e:
        case Sym():
            return True
        case Sum():
            used = [t.symbols & names for t, _ in e.terms]
            disjoint = sum(map(len, used)) == len(frozenset[str]().union(*used))
            return disjoint and all(_smooth(t, names) for t, _ in e.terms)
        case FloorDiv(numerator, Const(d)) if d > 0:
            return _smooth(numerator, names)
        case Min() | Max():
            return all(_smooth(c, names) for c in e.children)
        case _:
            return False


def settled(thunk: Thunk, env: Mapping[str, int], open_at: Mapping[str, tuple[int, int]]) -> bool | None:
    """The predicate's value if it is the same at all corners of the open symbols' ranges."""
    names = list(open_at)
    seen = {bool(thunk({**env, **dict(zip(names, corner, strict=True))})) for corner in product(*open_at.values())}
    return seen.pop() if len(seen) == 1 else None
