"""Words that are data, read as the integers that they say, by cases: of the signs of what is loaded, and of how often a
sum passes the ends of its word.

A word of ``w`` bits that is a polynomial over data, modulo ``2**w``, says one integer in ``[-2**(w-1), 2**(w-1))``,
or, without a sign, in ``[0, 2**w)``. Where the signs of the data are known, its sign bits are numbers, and what is left
is a polynomial ``p`` over the integers; the word says ``p - k * 2**w``, where ``k`` is the floor of ``p / 2**w`` (and a
half for the signed reading). Each case is exact: nothing has to be proved of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd
from typing import TypeAlias

from tilewright.validate.cases import Cases, Condition
from tilewright.validate.polynomials import Coefficient, Field, Monomial, Poly, Table
from tilewright.validate.terms import Terms
from tilewright.validate.values import Choice, Values
from tilewright.validate.words import without_upper

MOST_SIGNS = 2
"""The most data signs in a word that is read as an integer: each doubles the cases."""

MOST_WRAPS = 3
"""The most multiples of ``2**w`` that are distinguished."""

CARRIED_BITS = 64
"""Of words that are not looked into where they are computed from what a loop carries."""

LEAST_BITS = 32
"""The least width of words that are read: narrower ones are extended before arithmetic."""

Readings: TypeAlias = list[tuple[Condition, Poly]]


class Reader:
    """Reads words of ``values``."""

    def __init__(self, values: Values):
        self.values = values
        self.terms: Terms = values.terms
        self.cases: Cases = values.cases
        self._known: dict[tuple[Poly, bool], Readings | None] = {}

    def readings(self, p: Poly, *, signed: bool = True) -> Readings | None:
        """The integer readings of a word, each with its condition; None for opaque words."""
        if signed and self.is_carried(p):
            return [(self.cases.true, self._said(p))]
        key = (p, signed)
        if key not in self._known:
            self._known[key] = self._read(p, signed)
        return self._known[key]

    def _read(self, p: Poly, signed: bool) -> Readings | None:
        low, high = self.terms.interval(p)
        number = self.terms.number(p)
        if number is not None:
            return [(self.cases.true, self.terms.const(0, number if signed else number % (1 << p.width)))]
        if low is not None and high is not None and low >= 0 and high < 1 << (p.width - signed):
            return [(self.cases.true, self.terms.resize(p, 0))]
        if p.width < LEAST_BITS:
            return None
        chosen = self._choice(p)
        if chosen is not None:
            words = ((c, self._as_wide(part, p.width)) for c, part in chosen.parts)
            each = [(c, self.readings(word, signed=signed)) for c, word in words]
            if any(found is None for _, found in each):
                return None
            return self._joined((self.cases.both(c, d), q) for c, found in each for d, q in found or ())
        by_signs = self.by_signs(p, self.cases.true, whole=signed)
        if by_signs is None:
            return None
        found: Readings = []
        for holds, q in by_signs:
            wrapped = self._wrapped(q, p.width, signed)
            if wrapped is None:
                return None
            found += [(self.cases.both(holds, c), r) for c, r in wrapped]
        return self._joined(iter(found))

    def _as_wide(self, p: Poly, width: int) -> Poly:
        """The low bits of a word that is as wide or wider: of a choice of 64-bit words of which 32 bits may be set, a
        word of 32 bits is the choice, too."""
        return p if p.width == width else self.terms.resize(self.terms.unsigned(p), width)

    def is_loaded(self, p: Poly) -> bool:
        """All data in a word is loaded, or one of several words that are."""
        atoms = self.terms.atoms
        for i in {i for monomial, _ in p.terms for i in monomial if atoms[i].bits}:
            field = atoms[i].args[0] if atoms[i].kind == "field" else None
            base = atoms[field.base] if isinstance(field, Field) else atoms[i]
            value = base.args[0] if base.kind == "choice" else None
            if isinstance(value, Choice):
                if not all(self.is_loaded(part) for _, part in value.parts):
                    return False
            elif not base.kind.startswith("ld."):
                return False
        return True

    def is_carried(self, p: Poly) -> bool:
        """A word of 64 bits that is computed from what a loop carries."""
        if p.width != CARRIED_BITS or self.terms.single(p) is not None:
            return False
        return any(self._is_carried(i) for monomial, _ in p.terms for i in monomial)

    def _is_carried(self, i: int) -> bool:
        return self.terms.atoms[i].kind in ("carry", "phi") and self.terms.atoms[i].bits == CARRIED_BITS

    def _said(self, p: Poly) -> Poly:
        """The integer that a word says with its sign, which is not looked into."""
        half = 1 << (p.width - 1)
        return self.terms.of(0, self.terms.atom("says", p, low=-half, high=half - 1))

    def carried_address(self, p: Poly) -> Poly | None:
        """An address over the integers, modulo 2**64, that a multiple of a carried word is part of."""
        carried, rest = dict[Monomial, int](), dict[Monomial, Coefficient]()
        for monomial, c in p.terms:
            whole = self._whole(monomial, c)
            if whole is None or not isinstance(c, int):
                rest[monomial] = c
            else:
                carried[whole] = c
        by = gcd(*carried.values())
        word = self.terms.make(p.width, {m: c // by for m, c in carried.items()})
        if p.width != CARRIED_BITS or not self.is_carried(word):
            return None
        beside = self.terms.resize(self.terms.make(p.width, rest), 0)
        return self.terms.add(beside, self.terms.scale(self._said(word), by))

    def _whole(self, monomial: Monomial, c: Coefficient) -> Monomial | None:
        """What a loop carries, of which a multiple is in a word, as ``c`` times as many of its low bits as that
        leaves."""
        if len(monomial) != 1 or not isinstance(c, int):
            return None
        atom = self.terms.atoms[monomial[0]]
        field = atom.args[0] if atom.kind == "field" else None
        if isinstance(field, Field) and field.low == 0 and c << field.count & ((1 << CARRIED_BITS) - 1) == 0:
            return (field.base,) if self._is_carried(field.base) else None
        return monomial if self._is_carried(atom.id) else None

    def _choice(self, p: Poly) -> Choice | None:
        atom = self.terms.single(p)
        value = atom.args[0] if atom is not None and atom.kind == "choice" and atom.bits == p.width else None
        return value if isinstance(value, Choice) else None

    def _joined(self, parts: Iterator[tuple[Condition, Poly]]) -> Readings:
        """Each integer once."""
        found: dict[Poly, Condition] = {}
        for c, q in parts:
            if c != 0:
                found[q] = self.cases.either(found[q], c) if q in found else c
        return [(c, q) for q, c in found.items()]

    def by_signs(self, p: Poly, holds: Condition, *, whole: bool = False) -> Readings | None:
        """A word over the integers where ``holds``, with a number for each sign bit in it, and for each word that is
        one of several numbers; ``whole``: data as wide as the word counts with its sign. None of words that have too
        many signs, or that multiply data."""
        found: Readings = []
        for c, q in self._by_numbers(holds, p):
            signs = self._signs(q, whole)
            if signs is None:
                return None
            parts = [(c, self.terms.resize(q, 0))]
            for base, sign in signs.items():
                parts = self._by_sign(parts, base, sign, p.width if whole else 0)
            found += parts
        return found

    def _by_sign(self, parts: Readings, base: int, sign: int, width: int) -> Readings:
        """Integers in two cases, as some data is negative or not."""
        atom = self.terms.atoms[base]
        found: Readings = []
        negative = self.cases.at_least(self.terms.of(0, atom), 1 << (atom.bits - 1))
        for c, q in parts:
            for said, here in ((1, self.cases.both(c, negative)), (0, self.cases.without(c, negative))):
                if here != 0:
                    found.append((here, self._with_sign(q, base, sign, said, width)))
        return found

    def _by_numbers(self, holds: Condition, p: Poly) -> Readings:
        """A word case by case of each in it that is one of several numbers."""
        for i in dict.fromkeys(i for monomial, _ in p.terms for i in monomial):
            known = self.values.numbers(self.terms.of(p.width, self.terms.atoms[i]))
            if known:
                break
        else:
            return [(holds, p)]
        left: Condition = holds
        found: Readings = []
        for c, number in known:
            here = self.cases.both(holds, c)
            left = self.cases.without(left, c)
            if here != 0:
                found += self._by_numbers(here, self.replaced(p, i, number))
        return found if left == 0 else [*found, (left, p)]

    def replaced(self, p: Poly, i: int, by: Poly) -> Poly:
        """A word with a number for an atom."""
        total = self.terms.const(p.width, 0)
        for monomial, c in p.terms:
            product = self.terms.make(p.width, {tuple(j for j in monomial if j != i): c})
            for _ in range(monomial.count(i)):
                product = self.terms.mul(product, by)
            total = self.terms.add(total, product)
        return total

    def _signs(self, p: Poly, whole: bool) -> dict[int, int] | None:
        """The data whose signs count in a word, with the atom of the sign bit, or -1."""
        found: dict[int, int] = {}
        for monomial, c in p.terms:
            data = [i for i in monomial if self.terms.atoms[i].bits]
            if len(data) > 1 or (whole and data and (len(monomial) > 1 or isinstance(c, Table))):
                return None
            for i in monomial:
                base = self._signed_by(i)
                if base is not None:
                    found[base] = i
                elif whole and self.terms.atoms[i].bits == p.width:
                    found.setdefault(i, -1)
                elif (quotient := self.terms.quotient((i,))) is not None:
                    found |= self._signs(quotient[0], False) or {}
        return found if len(found) <= MOST_SIGNS else None

    def _signed_by(self, i: int) -> int | None:
        """The data of which an atom is the sign bit."""
        field = self.terms.atoms[i].args[0] if self.terms.atoms[i].kind == "field" else None
        if not isinstance(field, Field) or field.count != 1:
            return None
        bits = self.terms.atoms[field.base].bits
        return field.base if field.low == bits - 1 and bits >= LEAST_BITS else None

    def _with_sign(self, q: Poly, base: int, sign: int, said: int, width: int) -> Poly:
        """An integer with a number for the sign bit of some data, also in what is divided; where the data is as wide as
        the word that is read, it is ``2**width`` less than it says without a sign."""
        terms = self.terms
        lower = said << width if width and terms.atoms[base].bits == width else 0
        bit = terms.field_atom(base, terms.atoms[base].bits - 1, 1).id  # also what becomes it
        total = terms.const(0, 0)
        for monomial, c in q.terms:
            product = terms.make(0, {(): c})
            for i in monomial:
                quotient = terms.quotient((i,))
                if i == sign:
                    factor = terms.const(0, said)
                elif quotient is not None and sign >= 0:
                    factor = terms.floordiv(self._with_sign(quotient[0], base, sign, said, 0), quotient[1])
                    factor = self.replaced(factor, bit, terms.const(0, said))
                else:
                    factor = terms.of(0, terms.atoms[i])
                product = terms.mul(product, factor)
            total = terms.add(total, product)
            if lower and monomial == (base,):
                total = terms.sub(total, terms.make(0, {(): c * lower if isinstance(c, int) else 0}))
        return without_upper(terms, total)

    def _wrapped(self, q: Poly, width: int, signed: bool) -> Readings | None:
        """The value of a word of ``width`` bits that has the low bits of an integer."""
        low, high = self.terms.interval(q)
        if low is None or high is None:
            return None
        least = -(1 << (width - 1)) if signed else 0
        first, last = (low - least) >> width, (high - least) >> width
        if first == last == 0:
            return [(self.cases.true, q)]
        if last - first >= MOST_WRAPS or (width == 64 and any(isinstance(c, Table) for _, c in q.terms)):
            return None
        found: Readings = []
        for k in range(first, last + 1):
            begin = least + (k << width)
            inside = self.cases.without(self.cases.at_least(q, begin), self.cases.at_least(q, begin + (1 << width)))
            if inside != 0:
                found.append((inside, self.terms.sub(q, self.terms.const(0, k << width))))
        return found
