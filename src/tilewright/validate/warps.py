"""Whether whole warps run an instruction: lanes exchange words by instructions that all lanes of a warp run together
(PTX ISA 9.1, ``.sync``), and what a lane gets of one that does not is undefined."""

from __future__ import annotations

from typing import cast

import numpy as np

from tilewright.validate.cases import CaseNode, Condition
from tilewright.validate.polynomials import Atom, Coefficient, Field, Poly, Table
from tilewright.validate.values import ANYTHING, Choice, Values

_OF_EACH_LANE = ("old", "result", "mma", "ldmatrix", "undefined", "unsolved", "phi", "carry", ANYTHING)
"""Kinds of atoms that are another number in each lane, although nothing that they are made of is."""
_MEMORY = "@"
"""Prefix of the names of memory states that a loop carries."""
_OF_A_LOOP = ("trip", "sum", "total", "exit")


class Warps:
    """Conditions of the threads of ``values``, by warp."""

    def __init__(self, values: Values):
        self.values, self.terms, self.cases = values, values.terms, values.cases
        self._first = np.arange(self.terms.threads) // 32 * 32
        self._same: dict[int, bool] = {}

    def of_first_lanes(self, condition: Condition) -> Condition:
        """The condition in the first lane of each warp, for all lanes of that warp."""
        cases = self.cases

        def moved(node: CaseNode, children: list[Condition]) -> Condition:
            quantity = self._moved(cases.quantities[node.quantity])
            reached = [cases.reaches(quantity, self._coefficient(cut)) for cut in node.cuts]
            return cases.between(reached, [self._threads(c) if isinstance(c, int) else c for c in children])

        return self._threads(condition) if isinstance(condition, int) else cases.rebuilt(condition, moved)

    def _threads(self, threads: int) -> int:
        return cast("int", self.cases.threads_where(self.cases.mask(threads)[self._first]))

    def _coefficient(self, c: Coefficient) -> Coefficient:
        return self.terms.coefficient(0, c.values[self._first]) if isinstance(c, Table) else c

    def _moved(self, quantity: Poly) -> Poly:
        """The first lane's: of what lanes do not share a number of its own."""
        if all(self._is_shared(self.terms.atoms[i]) for monomial, _ in quantity.terms for i in monomial):
            return self.terms.make(quantity.width, {m: self._coefficient(c) for m, c in quantity.terms})
        return self.terms.of(0, self.terms.atom("of the first lane", quantity))

    def _is_shared(self, atom: Atom) -> bool:
        """All lanes of a warp have the same."""
        found = self._same.get(atom.id)
        if found is None:
            self._same[atom.id] = False
            found = self._same[atom.id] = self._shares(atom)
        return found

    def _shares(self, atom: Atom) -> bool:
        if atom.kind in ("carry", "phi") and str(atom.args[1]).startswith(_MEMORY):
            return True
        if atom.kind in _OF_EACH_LANE:
            return False
        if atom.kind in _OF_A_LOOP and not all(map(self._all_share, self.values.ends.get(str(atom.args[0]), ()))):
            return False
        if atom.kind.startswith("shfl."):
            return atom.kind == "shfl.idx" and all(map(self._all_share, atom.args[1:]))
        return all(map(self._all_share, atom.args))

    def _all_share(self, value: object) -> bool:
        """A value that an atom is made of."""
        match value:
            case Poly():
                tables = (c for _, c in value.terms)
                atoms = (self.terms.atoms[i] for monomial, _ in value.terms for i in monomial)
                return all(self._coefficient(c) == c for c in tables) and all(map(self._is_shared, atoms))
            case Choice():
                return all(self.of_first_lanes(c) == c and self._all_share(p) for c, p in value.parts)
            case CaseNode():
                return self.of_first_lanes(value) is value
            case Field():
                return self._is_shared(self.terms.atoms[value.base])
            case tuple():
                return all(map(self._all_share, cast("tuple[object, ...]", value)))
            case _:
                return True
