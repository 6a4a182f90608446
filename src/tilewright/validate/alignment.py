"""What addresses are multiples of, by what a launch is asked for: an access of several elements needs its own size.

A stride that is a multiple only where its extent is more than 1 counts as one: elsewhere its coordinate is 0, for an
access lies in its tensor.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import gcd

import numpy as np

from tilewright.base.expr import Any_, Compare, Const, Expr, Mod, Sum, Sym
from tilewright.validate.cases import Cases, Condition
from tilewright.validate.memory import SHARED
from tilewright.validate.polynomials import Atom, Poly, Table

ANY = 1 << 20
"""A common multiple of all access sizes."""


class Alignment:
    """Alignment in one kernel, given its launch's ``assumptions``."""

    def __init__(self, cases: Cases, assumptions: Iterable[Expr]):
        self.cases, self.terms = cases, cases.terms
        self.multiples: dict[str, int] = {}
        for fact in assumptions:
            for name, divisor in _multiples(fact):
                self.multiples[name] = max(divisor, self.multiples.get(name, 1))

    def multiple(self, tensor: str, offset: Poly, holds: Condition) -> int:
        """A number of bytes that the address at an offset is a multiple of, where ``holds``."""
        found = ANY if tensor == SHARED else self.multiples.get(f"{tensor}.address", 1)
        threads = self.cases.threads(holds)
        for monomial, c in offset.terms:
            among = self.cases.among(c, threads)
            factor = int(np.gcd.reduce(among.values)) if isinstance(among, Table) else among
            for i in monomial:
                factor *= self._of(self.terms.atoms[i])
            found = gcd(found, factor)
        return found

    def _of(self, atom: Atom) -> int:
        return self.multiples.get(str(atom.args[0]), 1) if atom.kind == "parameter" else 1


def _multiples(fact: Expr) -> Iterable[tuple[str, int]]:
    """The divisor that a fact states, and of what."""
    match fact:
        case Any_((Compare("==", Mod(), Const(0)) as inner, Compare("<=", Sym(), Const(1)))):
            yield from _multiples(inner)
        case Any_((Compare("<=", Sym(), Const(1)), Compare("==", Mod(), Const(0)) as inner)):
            yield from _multiples(inner)
        case Compare("==", Mod(Sym(name), Const(n)), Const(0)):
            yield name, n
        case Compare("==", Mod(Sum(0, ((Sym(name), factor),)), Const(n)), Const(0)):
            yield name, n // gcd(n, factor)
        case _:
            pass
