"""Facts about symbols when a descriptor is planned: bounds, divisors, equalities, assumed predicates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import gcd, lcm

from tilewright.base.expr import (
    FALSE,
    TRUE,
    All,
    Any_,
    Compare,
    Const,
    Expr,
    ExprLike,
    Interval,
    Mod,
    Not,
    Sum,
    Sym,
    all_of,
    any_of,
    divisor,
    negate,
    own,
    simplify,
)


def index_symbol(axis: int) -> Sym:
    """The first index of an access along an axis of its tensor."""
    return Sym(own(f"index{axis}"))


def index_axis(index: Sym) -> int:
    """The axis that an ``index_symbol`` belongs to."""
    return int(index.name.removeprefix(own("index")))


@dataclass(frozen=True)
class Facts:
    """Knowledge about symbols, all of it taken as true.

    ``bounds`` are closed intervals, ``divisors`` known divisors (``{"a.address": 16}``), ``equal`` values that replace
    symbols (``{"a.stride1": 1}``), ``assumed`` further predicates, matched as written.
    """

    bounds: Mapping[str, Interval] = field(default_factory=dict[str, Interval])
    divisors: Mapping[str, int] = field(default_factory=dict[str, int])
    equal: Mapping[str, ExprLike] = field(default_factory=dict[str, ExprLike])
    assumed: frozenset[Expr] = frozenset()

    def __hash__(self) -> int:
        """Hash of the symbol names only: equal facts have equal hashes, and plans are cached by their facts."""
        return hash((frozenset(self.bounds), frozenset(self.divisors), frozenset(self.equal), self.assumed))

    def assume(self, predicate: Expr) -> Facts:
        """These facts and ``predicate``; conjunctions are split, and ``x % n == 0`` becomes a divisor."""
        parts = predicate.args if isinstance(predicate, All) else (predicate,)
        divisors = dict(self.divisors)
        for part in parts:
            name, n = _symbol_multiple(part)
            if name:
                divisors[name] = lcm(n, divisors.get(name, 1))
        return replace(self, divisors=divisors, assumed=self.assumed | set(parts))

    def apply(self, node: ExprLike) -> Expr:
        """``node`` with known equalities in place."""
        return node.substitute(self.equal) if isinstance(node, Expr) else Const(node)

    def residual(self, predicate: Expr) -> Expr:
        """The part of ``predicate`` that remains to be checked: ``TRUE`` if it follows, ``FALSE`` if it can't hold."""
        node = simplify(self.apply(predicate), self.bounds)
        if node in self.assumed:
            return TRUE
        if negate(node) in self.assumed:
            return FALSE
        match node:
            case All(args):
                return all_of(map(self.residual, args))
            case Any_(args):
                return any_of(map(self.residual, args))
            case Not(arg):
                return negate(self.residual(arg))
            case Compare("==", Mod(a, b), Const(0)) if (n := b.constant) and divisor(a, self.divisors) % n == 0:
                return TRUE
            case _:
                return node

    def decide(self, predicate: Expr) -> bool | None:
        """Whether ``predicate`` follows (True), can't hold (False) or is open (None)."""
        rest = self.residual(predicate)
        return True if rest == TRUE else False if rest == FALSE else None


def _symbol_multiple(predicate: Expr) -> tuple[str, int]:
    """``(name, n)`` when the predicate says that n divides the symbol: ``K % n == 0`` or ``(K*c) % m == 0``."""
    match predicate:
        case Compare("==", Mod(Sym(name), Const(n)), Const(0)):
            return name, n
        case Compare("==", Mod(Sum(0, ((Sym(name), factor),)), Const(n)), Const(0)):
            return name, n // gcd(n, factor)
        case _:
            return "", 0
