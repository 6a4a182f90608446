"""How values are made, as numbers: what is likely equal, before anything is compared."""

from __future__ import annotations

import zlib

from tilewright.validate.polynomials import Field, Monomial, Poly
from tilewright.validate.values import Choice, Value, Values

COMMUTATIVE = ("add.", "mul.", "fma.", "max.", "min.", "and", "or", "xor", "min", "max", "test.eq.", "test.nan.")
"""Beginnings of the kinds of atoms whose first two arguments may be exchanged."""


class Shapes:
    """Numbers that are equal for values made by the same operations from the same data, on either side."""

    def __init__(self, values: Values):
        self.values, self.terms = values, values.terms
        self._found: dict[Value, int] = {}
        self._atoms: dict[int, int] = {}

    def of(self, value: Value) -> int:
        """A number for a value; conditions and the order of operands don't count."""
        found = self._found.get(value)
        if found is None:
            if isinstance(value, Choice):
                data = {self.of(p) for _, p in value.parts if self.terms.number(p) is None}
                found = sum(data) if data else 1
            else:
                found = sum(c * self._monomial(m) for m, c in value.terms if isinstance(c, int))
            self._found[value] = found
        return found

    def _monomial(self, monomial: Monomial) -> int:
        return sum(self._atom(i) for i in monomial) + 1

    def _atom(self, number: int) -> int:
        found = self._atoms.get(number)
        if found is None:
            atom = self.terms.atoms[number]
            inner = [x for x in atom.args if isinstance(x, Poly | Choice)]
            if atom.kind in ("carry", "phi"):
                found = 2
            elif atom.kind == "choice":
                found = self.of(inner[0])
            elif atom.kind == "field":
                field = atom.args[0]
                assert isinstance(field, Field)
                found = self._atom(field.base) * 31 + field.low
            elif not inner:
                found = number
            else:
                ordered = not atom.kind.startswith(COMMUTATIVE)
                shares = (self.of(x) * (k + 1 if ordered else 1) for k, x in enumerate(inner))
                found = zlib.crc32(atom.kind.encode()) * 31 + sum(shares)
            self._atoms[number] = found
        return found
