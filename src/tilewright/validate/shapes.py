"""Structural hashes of values: which are likely equal, before anything is compared."""

from __future__ import annotations

import zlib

from tilewright.validate.polynomials import Field, Monomial, Poly
from tilewright.validate.values import Choice, Value, Values

COMMUTATIVE = ("add.", "mul.", "fma.", "max.", "min.", "and", "or", "xor", "min", "max", "least.",
               "greatest.")  # fmt: skip
"""Beginnings of the kinds of atoms whose first two arguments may be exchanged."""

COMPARED = ("least.", "greatest.", "shfl.")
"""Beginnings of the kinds of atoms that sorted words become."""


class Shapes:
    """Numbers that are equal for values made by the same operations from the same data, on either side."""

    def __init__(self, values: Values):
        self.values, self.terms = values, values.terms
        self._found: dict[Value, int] = {}
        self._atoms: dict[int, int] = {}
        self._networks: dict[Value, int] = {}
        self._loads: dict[Value, frozenset[int]] = {}

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

    def network(self, value: Value) -> int:
        """The same for networks of minima and maxima: the words that they sort are distinguished by their loads,
        however they are computed."""
        found = self._networks.get(value)
        if found is None:
            found = self._networks[value] = self._network(value)
        return found

    def _network(self, value: Value) -> int:
        if isinstance(value, Choice):
            return sum({self.network(p) for _, p in value.parts if self.terms.number(p) is None})
        atom = self.terms.single(value)
        inner = [x for x in atom.args if isinstance(x, Poly | Choice)] if atom is not None else []
        if atom is not None and atom.kind == "choice":
            return self.network(inner[0])
        if atom is not None and atom.kind.startswith(COMPARED):
            return zlib.crc32(f"{atom.kind} {sum(map(self.network, inner))}".encode())
        return hash(self._loads_of(value))

    def _loads_of(self, value: Value) -> frozenset[int]:
        """Numbers for the places of memory that a value is made of."""
        found = self._loads.get(value)
        if found is None:
            parts = value.parts if isinstance(value, Choice) else ((0, value),)
            found = frozenset[int]()
            for i in {i for _, p in parts for m, _ in p.terms for i in m}:
                atom = self.terms.atoms[i]
                field = atom.args[0] if atom.args and isinstance(atom.args[0], Field) else None
                atom = self.terms.atoms[field.base] if field is not None else atom
                if atom.kind.startswith("ld."):
                    found |= {hash(atom.args[:2])}  # of any contents
                elif atom.kind not in ("carry", "phi"):
                    for x in atom.args:
                        found |= self._loads_of(x) if isinstance(x, Poly | Choice) else frozenset()
            self._loads[value] = found
        return found
