"""PTX's pure instructions on values: what each computes, exactly, in the normal form of ``terms`` (PTX ISA 9.1, 9.7).

Where an instruction equals an operation on integers only without wrap-around, the result is that of the integers and
the condition is noted as a need, which is proved where the result is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import cast

import numpy as np

from tilewright.validate.cases import Cases, Condition
from tilewright.validate.constants import float_of_bits, holds, least_integer
from tilewright.validate.floats import Floats
from tilewright.validate.polynomials import (
    Atom,
    Coefficient,
    Field,
    Interval,
    Monomial,
    Poly,
    Table,
    extreme_interval,
    signed_int,
)
from tilewright.validate.readings import LEAST_BITS, Reader, Readings
from tilewright.validate.reciprocals import Reciprocals
from tilewright.validate.regions import Need
from tilewright.validate.signed_quotients import SignedQuotients
from tilewright.validate.terms import Terms
from tilewright.validate.undecided import Undecided
from tilewright.validate.values import Choice, Value, Values, in_order
from tilewright.validate.words import sliced

MOST_RUNS = 4
"""The most runs of ones in a mask of ``and``; beyond, the result is an opaque word."""

MOST_PAIRS = 12
"""The most pairs of integer readings of two words; beyond, they are not compared as integers."""

MOST_NUMBERS = 4
"""Below which a word that is not looked into is compared number by number, and of words as one of which an address is
read."""


@lru_cache(1024)
def bits_of(kind: str) -> int:
    """Bits of a PTX type such as ``s32``."""
    if kind == "pred":
        return 1
    for size in ("64", "32", "16x2", "16", "8"):
        if kind.endswith(size):
            return 32 if size == "16x2" else int(size)
    raise Undecided(f"type .{kind}")


class Arithmetic:
    """Evaluates pure instructions; ``needs`` collects what they rest on."""

    def __init__(self, values: Values, signed: frozenset[int] = frozenset()):
        self.values = values
        self.terms: Terms = values.terms
        self.cases: Cases = values.cases
        self.floats = Floats(values)
        self.reader = Reader(values)
        self.reciprocals = Reciprocals(self.terms)
        self.signed_quotients = SignedQuotients(values, self.within, signed)
        self.needs: set[Need] = set()
        self._divided: dict[Poly, Poly] = {}
        """By words that are quotients what was divided: where that is a word without a sign bit, so are they."""
        self._bounds: dict[tuple[str, int], Interval] = {}
        """What minima and maxima of data lie between, by the type that they were compared as and their atom."""
        self.terms.bitwise = self.bitwise

    # -- readings -------------------------------------------------------------------------------------------------
    def is_data(self, p: Poly) -> bool:
        """Whether a part of the value is raw data of unknown size."""
        return any(self.terms.atoms[i].bits for monomial, _ in p.terms for i in monomial)

    def signed(self, p: Poly) -> Poly:
        """The signed reading of a word over the integers."""
        moved = self._with_signs(p)
        if moved is not None:
            return moved
        low, high = self.terms.interval(p)
        half = 1 << (p.width - 1)
        if low is None or high is None or low < -half or high >= half:
            whole, where = self.terms.resize(p, 0), self.values.where
            parts = self.reader.by_signs(p, where) if self._is_offset(p) else self._each(p, where)
            self.needs.update(Need(q, -half, half - 1, c) for c, q in parts or [(where, whole)])
        return self.terms.resize(p, 0)

    def factor(self, p: Poly) -> Poly:
        """A word in a product of twice its width: with its sign where the IR extends it so, else the integer that it is
        counted as, which is left to be proved."""
        return self.extended(p, p.width, 0) if p in self.values.extended else self.signed(p)

    def _each(self, p: Poly, where: Condition) -> Readings:
        """Of one of few words each, which may be one of few in turn, without a sign; none of other words."""
        return [
            part
            for c, q in self.values.few_parts(p, MOST_NUMBERS)
            if (here := self.cases.both(where, c)) != 0
            for part in self._each(q, here) or [(here, self.terms.unsigned(q))]
        ]

    def _with_signs(self, p: Poly) -> Poly | None:
        """The signed reading of a loaded coordinate that is moved, by a number or by what is counted, in which the
        coordinate counts with its sign: -1 + 1 is 0. None of other words."""
        atoms, half = self.terms.atoms, 1 << (p.width - 1)
        data = [(m, c) for m, c in p.terms if any(atoms[i].bits for i in m)]
        if len(data) != 1 or len(p.terms) == 1:
            return None
        ((monomial, c),) = data
        if len(monomial) != 1 or c != 1 or atoms[monomial[0]].bits != p.width:
            return None
        by_number = any(m == () and isinstance(c, int) for m, c in p.terms)
        if not by_number and (p.width != LEAST_BITS or not atoms[monomial[0]].kind.startswith("ld.")):
            return None  # the upper bit of the low half of a wider word is no sign
        sign = self.terms.field(self.terms.of(p.width, atoms[monomial[0]]), p.width - 1, 1, 0)
        found = self.terms.sub(self.terms.resize(p, 0), self.terms.scale(sign, 1 << p.width))
        parts = self.reader.by_signs(found, self.values.where)
        if parts is None:
            return None
        self.needs.update(Need(q, -half, half - 1, condition) for condition, q in parts)
        return found

    def _is_offset(self, p: Poly) -> bool:
        """Some data is multiplied with what is counted: a loaded coordinate with a stride."""
        atoms = self.terms.atoms
        return any(len({atoms[i].bits > 0 for i in monomial}) == 2 for monomial, _ in p.terms)

    def extended(self, p: Poly, bits: int, width: int) -> Poly:
        """The low ``bits`` bits, sign-extended: x - 2**bits * x[bits - 1]."""
        numbers = self.terms.per_thread(p)
        if numbers is None and p.width >= bits and (not self.is_data(p) or self._is_offset(p)):
            return self.terms.resize(self.signed(self.terms.resize(p, bits)), width)
        word = self.terms.field(p, 0, bits, width)
        sign = self.terms.field(p, bits - 1, 1, width)
        return self.terms.sub(word, self.terms.scale(sign, 1 << bits))

    def within(self, p: Poly, low: int, high: int | None) -> Poly:
        """The integer polynomial, noted to lie in the range."""
        least, most = self.terms.interval(p)
        if least is None or least < low or (high is not None and (most is None or most > high)):
            self.needs.add(Need(p, low, high, self.values.where))
        return p

    # -- integers -------------------------------------------------------------------------------------------------
    def float_of(self, a: Value, *, signed: bool) -> Value:
        """The f32 nearest to an integer word of any width."""
        return self.values.lift(lambda x: self._float_of(x, signed), a)

    def _float_of(self, x: Poly, signed: bool) -> Poly:
        number = self.terms.number(x)
        if number is not None:
            whole = np.int64(number) if signed else np.uint64(number & ((1 << x.width) - 1))
            return self.floats.constant(float(np.float32(whole)))
        low, high = self.terms.interval(x)
        half = 1 << (x.width - 1)
        fits = low is not None and high is not None and (-half if signed else 0) <= low and high < half
        if not fits and (not signed or not self._counted(x)):
            return self.terms.data(32, 32, f"cvt.rn.f32.{'s' if signed else 'u'}{x.width}", x)
        return self.terms.data(32, 32, "cvt.rn.f32", self.signed(x))

    def _counted(self, p: Poly) -> bool:
        """All of the value is counted with: no part of it is raw data."""
        atoms = [self.terms.atoms[i] for monomial, _ in p.terms for i in monomial]
        return all(not a.bits and all(self._counted(x) for x in a.args if isinstance(x, Poly)) for a in atoms)

    def _has_bits_of(self, a: Poly, mask: int) -> bool:
        """An integer has no other bits than a mask of the lowest."""
        low, high = self.terms.interval(a)
        counted = mask & (mask + 1) == 0 and not self.is_data(a)
        return counted and low is not None and high is not None and 0 <= low <= high <= mask

    def bitwise(self, name: str, a: Poly, b: Poly) -> Poly:
        """and, or, xor."""
        terms, width = self.terms, a.width
        x, y = terms.per_thread(a), terms.per_thread(b)
        if x is not None and y is not None:
            return terms.table(width, {"and": x & y, "or": x | y, "xor": x ^ y}[name])
        for u, v in ((a, b), (b, a)):
            mask = terms.number(v)
            if mask is None:
                continue
            mask &= (1 << width) - 1
            if name == "and":
                if mask == 0:
                    return terms.const(width, 0)
                joined = terms.single(u)
                whole = joined is not None and joined.bits in (0, width)  # of a shorter one the upper bits are 0
                if joined is not None and whole and (joined.kind == "or" or (joined.kind == "xor" and joined.bits)):
                    x, y = (self.bitwise("and", terms.resize(p, width), v) for p in joined.args if isinstance(p, Poly))
                    return self.bitwise(joined.kind, x, y)
                runs = _runs(mask)
                if len(runs) <= MOST_RUNS:
                    return self.values.each_number(partial(self._bits_in, runs), u)
            elif mask == 0:
                return u
            elif name == "xor" and (mask == (1 << width) - 1 or self._has_bits_of(u, mask)):
                return terms.sub(terms.const(width, mask), u)
            elif name == "xor" and not mask & (mask - 1) and (other := self._other_remainder(u, mask)) is not None:
                return other
        inverted = self._inverted(a, b) if name == "xor" else None
        if inverted is not None:
            return inverted
        if (name == "or" or (name == "xor" and not self._mixed(a, b))) and terms.disjoint(a, b):
            return terms.add(a, b)
        if name == "xor" and a is b:
            return terms.const(width, 0)
        if width == 64 and (self.is_data(a) or self.is_data(b)):  # of each half that of the halves
            halves = ([terms.field(p, at, 32, 32) for p in (a, b)] for at in (0, 32))
            low, high = (terms.resize(terms.unsigned(self.bitwise(name, *half)), 64) for half in halves)
            return terms.add(low, terms.scale(high, 1 << 32))
        if terms.is_of_pieces(a) and terms.is_of_pieces(b):
            pieces = self._by_pieces(name, a, b)
            if pieces is not None:
                return pieces
        if name == "xor":
            return self._differing(a, b)
        return self._joined(name, a, b)

    def _bits_in(self, runs: Sequence[tuple[int, int]], p: Poly) -> Poly:
        """A word with no other bits than those of some runs."""
        fields = ((self.terms.field(p, low, count, p.width), low) for low, count in runs)
        return self.terms.sum(p.width, (self.terms.scale(field, 1 << low) for field, low in fields))

    def _other_remainder(self, p: Poly, bit: int) -> Poly | None:
        """p ^ bit, where p is bit * (q mod 2): bit * ((q + 1) mod 2). None of other words."""
        terms = self.terms

        def remainder(q: Poly) -> Poly:
            return terms.resize(terms.scale(terms.sub(q, terms.scale(terms.floordiv(q, 2), 2)), bit), p.width)

        halves = (terms.quotient(monomial) for monomial, c in p.terms if c == -2 * bit)
        counted = (half[0] for half in halves if half is not None and half[1] == 2)
        found = next((q for q in counted if remainder(q) == p), None)
        return None if found is None else remainder(terms.add(found, terms.const(0, 1)))

    def _mixed(self, a: Poly, b: Poly) -> bool:
        """The words are neither counted with nor put together from pieces: which bits they can have depends on how they
        are made."""
        pieces = self.terms.is_of_pieces(a) and self.terms.is_of_pieces(b)
        return not pieces and not (self._counted(a) and self._counted(b))

    def _by_pieces(self, name: str, a: Poly, b: Poly) -> Poly | None:
        """and, or, xor of words in runs of bits that both can have, beside bits that one of them has; None where both
        can have all bits, or where the runs are many."""
        terms, width = self.terms, a.width
        every = (1 << width) - 1
        both = terms.may_be_set(a) & terms.may_be_set(b)
        runs = _runs(both)
        if both == every or len(runs) > MOST_RUNS or len(_runs(every & ~both)) > MOST_RUNS:
            return None
        alone = terms.const(width, every & ~both)
        total = terms.const(width, 0)
        if name != "and":
            total = terms.add(self.bitwise("and", a, alone), self.bitwise("and", b, alone))
        for low, count in runs:
            piece = self.bitwise(name, *(terms.field(p, low, count, count) for p in (a, b)))
            total = terms.add(total, terms.scale(terms.resize(terms.unsigned(piece), width), 1 << low))
        return total

    def _joined(self, name: str, a: Poly, b: Poly) -> Poly:
        """and, or, xor of opaque words."""
        terms, width = self.terms, a.width
        if name in ("or", "xor") and not self.is_data(a) and not self.is_data(b):
            x, y = sorted((terms.unsigned(a), terms.unsigned(b)), key=lambda p: p.id)
            highs = [terms.interval(p)[1] for p in (x, y)]
            known = [h for h in highs if h is not None]
            high = (1 << max(known).bit_length()) - 1 if len(known) == 2 else (1 << width) - 1
            if name == "or" or high < 1 << (width - 1):  # other words have no one reading as an integer
                return terms.of(width, terms.atom(name, x, y, low=0, high=high))
        x, y = terms.may_be_set(a), terms.may_be_set(b)
        word = terms.data(width, width, name, *sorted((a, b), key=lambda p: p.id))
        return terms.masked(word, x & y if name == "and" else x | y)

    def _differing(self, a: Poly, b: Poly) -> Poly:
        """xor of words of data in one order, since it associates, and what is in it twice is not in it."""
        leaves: dict[Poly, None] = {}
        pending, constant = [a, b], 0
        while pending:
            p = pending.pop()
            atom, number = self.terms.single(p), self.terms.number(p)
            if number is not None:
                constant ^= number
                continue
            if atom is not None and atom.kind == "xor" and atom.bits == p.width:
                pending += [self.terms.resize(x, p.width) for x in atom.args if isinstance(x, Poly)]
            elif p in leaves:
                del leaves[p]
            else:
                leaves[p] = None
        known = self.terms.const(a.width, constant)
        if not leaves:
            return known
        total, *others = [*sorted(leaves, key=lambda p: p.id), *((known,) if constant else ())]
        for p in others:
            total = self._joined("xor", total, p)
        return total

    def _inverted(self, a: Poly, b: Poly) -> Poly | None:
        """a ^ b of words of which bits are known or inverted, by the xor of what is left; None of other words."""
        terms = self.terms
        (p, c), (q, d) = self._with_constant(a), self._with_constant(b)
        constant = (c ^ d) & ((1 << a.width) - 1)
        if not p.terms or not q.terms or (p, q) == (a, b):
            return None
        total = self.bitwise("xor", p, q)
        bits = terms.may_be_set(total)
        inside, outside = constant & bits, terms.const(a.width, constant & ~bits)
        if inside == bits:
            total = terms.sub(terms.const(a.width, bits), total)
        elif inside:
            total = self.bitwise("xor", total, terms.const(a.width, inside))
        return terms.add(total, outside)

    def _with_constant(self, p: Poly) -> tuple[Poly, int]:
        """(q, c) with p = q ^ c: of words put together from pieces the bits that are known, or inverted."""
        terms = self.terms
        constant = next((c for m, c in p.terms if m == ()), 0)
        if not isinstance(constant, int):
            return p, 0
        known = terms.const(p.width, constant)
        if terms.lies_apart(p):
            return terms.sub(p, known), constant
        inverse = terms.sub(known, p)
        inverted = terms.lies_apart(inverse) and not terms.may_be_set(inverse) & ~constant
        return (inverse, constant) if inverted else (p, 0)

    def shifted(self, name: str, a: Value, by: Value, *, signed: bool) -> Value:
        """shl and shr.

        NVRTC writes shr.u64 also for signed words of which it keeps the low half. The quotient of a word of 64 bits
        that may be negative is the floor of the integer's then, and 2**64 divided so above it.
        """
        number = self.values.number(by)
        count = number or 0
        if name == "shr" and number is not None and (found := self._of_signed(a, number, signed=signed)) is not None:
            return found
        if name == "shr" and not signed and a.width == 64 and 0 < count < 64 and self._may_be_negative(a):
            floor = self.values.lift(lambda x: self.shift(name, x, self.terms.const(32, count), signed=True), a)
            above = self.terms.const(64, 1 << (64 - count))
            wrapped = self.values.lift(lambda x: self.terms.add(x, above), floor)
            return self.values.select(self.compare("lt", "s64", a, self.terms.const(64, 0)), wrapped, floor)
        return self.values.lift(lambda x, y: self.shift(name, x, y, signed=signed), a, by)

    def _of_signed(self, a: Value, count: int, *, signed: bool) -> Value | None:
        """The upper half of a product shifted down, with its sign, or its sign bit; None of others."""
        if signed:
            return self.signed_quotients.quotient(a, count)
        negative = self.signed_quotients.negative(a) if count == a.width - 1 else None
        return None if negative is None else self.as_word(negative, a.width)

    def _may_be_negative(self, a: Value) -> bool:
        """A word that is counted with is not shown to be at least 0 by its interval."""
        parts = [p for _, p in self.values.parts(a)]
        lows = [self.terms.interval(p)[0] for p in parts if not self.is_data(p) and self.terms.per_thread(p) is None]
        return len(lows) == len(parts) and any(low is None or low < 0 for low in lows)

    def shift(self, name: str, p: Poly, by: Poly, *, signed: bool) -> Poly:
        """shl and shr; counts beyond the width are clamped to it."""
        terms, width = self.terms, p.width
        count = terms.number(by)
        if count is None:
            x, y = terms.per_thread(p), terms.per_thread(by)
            if x is not None and y is not None and (y >= 0).all() and (y < min(width, 32)).all():
                word = x if signed or width == 64 else x & ((1 << width) - 1)
                return terms.table(width, word << y if name == "shl" else word >> y)
            return terms.data(width, width, f"{name}.{'s' if signed else 'u'}", p, by)
        count = min(count & 0xFFFFFFFF, width)
        if name == "shl":
            moved = self.values.by_numbers(lambda x: terms.scale(x, 1 << count), p)  # 2**width is 0
            return moved if isinstance(moved, Poly) else terms.scale(p, 1 << count)
        upper = self.reciprocals.shifted(p, count, signed=signed)
        if upper is None:
            upper = self.quotient_by_reciprocal(p, count, signed=signed)
        if upper is not None:
            return upper
        if not signed:
            if not self.is_data(p) and terms.per_thread(p) is None and 0 < count < width:
                whole = self.within(terms.resize(p, 0), 0, (1 << width) - 1)
                return terms.resize(terms.floordiv(whole, 1 << count), width)
            return self._sign_of_sum(p, count) or terms.field(p, count, width - count, width)
        if self.is_data(p):
            count = min(count, width - 1)
            negative = self._sign_of_remainder(p) if count == width - 1 else None
            if negative is not None:
                found = self.values.select(negative, terms.const(width, -1), terms.const(width, 0))
                assert isinstance(found, Poly)
                return found
            word = terms.field(p, count, width - count, width)
            sign = terms.field(p, width - 1, 1, width)
            return terms.sub(word, terms.scale(sign, 1 << (width - count)))
        return terms.resize(terms.floordiv(self.signed(p), 1 << count), width)

    def _sign_of_sum(self, p: Poly, count: int) -> Poly | None:
        """The uppermost bit of a word of 64 bits that is computed from data: 1 where the word is negative, else 0. None
        of other bits, of words put together from fields, and where data does not decide it."""
        if count != 63 or not self.is_data(p) or sliced(self.terms, p, count, 1) is not None:
            return None
        sign = self.as_word(self._compare("lt", "s64", p, self.terms.const(64, 0)), 64)
        return sign if isinstance(sign, Poly) else None

    def quotient_by_reciprocal(self, p: Poly, count: int, *, signed: bool) -> Poly | None:
        """The upper word of a product m x, shifted down: floor(x / d) for a reciprocal m of d, and no sign bit, if x is
        not negative, which is left to be proved. None of other words, and where x is known to be small and negative."""
        half, n = 1 << (p.width - 1), 1 << p.width
        dividend = self._divided.get(p)
        if dividend is not None and not signed and count == p.width - 1:
            self.within(dividend, 0, half - 1)
            return self.terms.const(p.width, 0)
        whole, by = self.terms.parted.get(self.terms.resize(p, 0), (p, 0))
        if by != n or p.width != LEAST_BITS:
            return None
        x, m = self.terms.scaled[whole]
        low, _ = self.terms.interval(x)
        if (low is not None and -half < low < 0) or not 0 < m < n:
            return None
        d = -(-(n << count) // m)
        if not signed and count == p.width - 1:
            self.within(x, 0, half - 1)
            return self.terms.const(p.width, 0)  # m x < 2**(w - 1) * 2**w
        if d < 2 or (half - 1) * (m * d - (n << count)) >= n << count:
            return None
        found = self.terms.resize(self.terms.floordiv(self.within(x, 0, half - 1), d), p.width)
        self._divided[found] = x
        return found

    def quotient(self, a: Poly, b: Poly) -> Poly:
        """floor(a / b) over the integers; for a >= 0 and b > 0 what div gives, too."""
        number = self.terms.number(b)
        self.within(a, 0, None)
        if number is not None and number > 0:
            return self.terms.floordiv(a, number)
        self.within(b, 1, None)
        return self.divided(a, b)

    def truncated(self, kind: str, a: Poly, b: Poly) -> Poly:
        """The quotient of two words of data, towards 0; without a sign, by a number, the integer's."""
        number = self.terms.number(b)
        if kind[0] == "u" and number:
            number %= 1 << b.width
            return self.terms.resize(self.terms.floordiv(self.terms.unsigned(a), number), a.width)
        return self.terms.data(a.width, a.width, f"div.{kind}", a, b)

    def divided_words(self, kind: str, a: Value, b: Value, where: Condition) -> tuple[Value, Value]:
        """The quotient of words of which one is data, towards 0, and what remains, where ``where`` holds.

        Words of 64 bits whose upper halves are 0 are numbers in ``[0, 2**32)`` with a sign or without: what is their
        quotient, and remains, are those of their lower halves without a sign. LLVM divides them so (its pass
        BypassSlowDivision), in a branch that has found the halves 0.
        """
        values = self.values
        quotient = values.lift(lambda x, y: self.truncated(kind, x, y), a, b)
        rest = values.sub(a, values.mul(quotient, b))
        if bits_of(kind) < 64 or values.number(b) is not None:
            return quotient, rest
        halves = [values.field(v, 32, 32, 32) for v in (a, b)]
        small = self.cases.all(self.compare("eq", "u32", half, self.terms.const(32, 0)) for half in halves)
        if self.cases.both(small, where) == 0:
            return quotient, rest
        dividend, divisor = (values.field(v, 0, 32, 32) for v in (a, b))
        x, y = (values.field(v, 0, 32, 64) for v in self.divided_words("u32", dividend, divisor, where))
        return values.select(small, x, quotient), values.select(small, y, rest)

    def divided(self, a: Poly, b: Poly) -> Poly:
        """floor(a / b) over the integers for a >= 0 and b > 0."""
        rounds = self._rounds(a, b)
        if rounds is not None:
            return rounds
        high = self.terms.interval(a)[1]
        return self.terms.of(0, self.terms.atom("div", a, b, low=0, high=high))

    def _rounds(self, a: Poly, b: Poly) -> Poly | None:
        """``n``, where the quotient is that of ``ctaid + n * nctaid`` and ``nctaid``: 0 <= ctaid < nctaid."""
        ctas = self.terms.single(b)
        if ctas is None or ctas.kind != "nctaid":
            return None
        found = {m: c for m, c in a.terms if ctas.id in m}
        rest = self.terms.single(self.terms.make(0, {m: c for m, c in a.terms if m not in found}))
        if rest is None or rest.kind != "ctaid":
            return None
        taken: dict[Monomial, Coefficient] = {}
        for monomial, c in found.items():
            at = monomial.index(ctas.id)
            taken[monomial[:at] + monomial[at + 1 :]] = c
        return self.terms.make(0, taken)

    def least(self, kind: str, a: Value, b: Value, name: str = "min") -> Value:
        """min or max of words."""
        for x, y in ((a, b), (b, a)):
            end = self._end(kind, x)
            if end is not None:
                return x if end == name else y
        mixed = [any(self.is_data(p) for _, p in self.values.parts(v)) for v in (a, b)]
        if all(mixed):
            return self._least_word(kind, a, b, name)
        if any(mixed):
            if mixed == [True, False]:  # of two equal words it is the counted one that is taken
                a, b = b, a
            less = self.compare("lt", kind, a, b)
            return self._bounded(kind, name, a, b, self.values.select(less, *((a, b) if name == "min" else (b, a))))
        read = self.signed if kind[0] == "s" else self.terms.unsigned
        chosen = self.values.lift(lambda x, y: self.extreme(name, read(x), read(y)), a, b)
        return self.values.resize(chosen, a.width)

    def _least_word(self, kind: str, a: Value, b: Value, name: str) -> Value:
        """min or max of two words of data, which is not looked into."""
        if a is b:
            return a
        mask = self.values.may_be_set(a) | self.values.may_be_set(b)
        if not mask >> (a.width - 1):
            kind = f"u{a.width}"  # of words that are not negative it is the same
        word = self.values.apply(a.width, f"{'least' if name == 'min' else 'greatest'}.{kind}", *in_order(a, b))
        return self._bounded(kind, name, a, b, self.terms.masked(word, mask))

    def _bounded(self, kind: str, name: str, a: Value, b: Value, chosen: Value) -> Value:
        """The lesser or greater word of two, of which it is noted what it lies between."""
        atom = self.terms.single(chosen) if isinstance(chosen, Poly) else None
        if atom is None or not isinstance(chosen, Poly) or chosen is a or chosen is b:
            return chosen
        low, high = self._bounds[kind, atom.id] = extreme_interval(name, self._range(kind, a), self._range(kind, b))
        if low is None or high is None or low < 0:
            return chosen
        return self.terms.masked(chosen, self.values.may_be_set(chosen) & ((1 << high.bit_length()) - 1))

    def _range(self, kind: str, word: Value) -> Interval:
        """What a word lies between, read as a number of this kind."""
        number, bits = self.values.number(word), self.values.may_be_set(word)
        if number is not None:
            number = number if kind[0] == "s" else number & ((1 << word.width) - 1)
            return number, number
        if kind[0] == "u" or not bits >> (word.width - 1):
            return 0, bits
        atom = self.terms.single(word) if isinstance(word, Poly) else None
        return (None, None) if atom is None else self._bounds.get((kind, atom.id), (None, None))

    def _end(self, kind: str, x: Value) -> str | None:
        """``min`` of the least word there is, ``max`` of the greatest, else None."""
        number, half = self.values.number(x), 1 << (x.width - 1)
        ends = {-half: "min", half - 1: "max"} if kind[0] == "s" else {0: "min", -1: "max"}
        return None if number is None else ends.get(number)

    def extreme(self, name: str, a: Poly, b: Poly) -> Poly:
        """min or max over the integers."""
        mine, other = self.terms.per_thread(a), self.terms.per_thread(b)
        if mine is not None and other is not None:
            return self.terms.table(a.width, (np.minimum if name == "min" else np.maximum)(mine, other))
        if self._at_most(a, b):
            return a if name == "min" else b
        if self._at_most(b, a):
            return b if name == "min" else a
        among = sorted(dict.fromkeys((*self._among(name, a), *self._among(name, b))), key=lambda p: p.id)
        for p in tuple(among) if len(among) > 2 else ():
            others = (q for q in among if q is not p)
            if any(self._at_most(q, p) if name == "min" else self._at_most(p, q) for q in others):
                among.remove(p)
        first, *others = among
        for p in others:
            first = self._extreme_of(name, first, p)
        return first

    def _among(self, name: str, p: Poly) -> list[Poly]:
        """The integers of which one is the least, or the greatest: one order, however they were put together."""
        constant = next((c for m, c in p.terms if m == ()), 0)
        if not isinstance(constant, int):
            return [p]
        added = self.terms.const(0, constant)
        atom = self.terms.single(self.terms.sub(p, added))
        if atom is None or atom.kind != name:
            return [p]
        sides = (self.terms.add(x, added) for x in atom.args if isinstance(x, Poly))
        return [each for x in sides for each in self._among(name, x)]

    def _extreme_of(self, name: str, x: Poly, y: Poly) -> Poly:
        low, high = extreme_interval(name, self.terms.interval(x), self.terms.interval(y))
        return self.terms.of(0, self.terms.atom(name, x, y, low=low, high=high))

    def selected(self, test: Condition, a: Value, b: Value) -> Value:
        """``a`` where the test holds, else ``b``: the larger or the smaller one where the test compares the two."""
        if isinstance(a, Poly) and isinstance(b, Poly):
            name = self._picks(test, a, b)
            if name is not None:
                return self.terms.resize(self.extreme(name, self._whole(a), self._whole(b)), a.width)
        return self.values.select(test, a, b)

    def _picks(self, test: Condition, a: Poly, b: Poly) -> str | None:
        """``max`` or ``min`` if a test holds where a, over the integers, is that of the two."""
        if not self._is_uniform(a) or not self._is_uniform(b):
            return None
        for name, apart in (("max", self._apart(a, b)), ("min", self._apart(b, a))):
            for strict in (0, 1):  # where both are equal either is right
                if test == self.cases.at_least(apart, strict):
                    return name
        return None

    def _apart(self, a: Poly, b: Poly) -> Poly:
        return self.terms.sub(self._whole(a), self._whole(b))

    def _whole(self, p: Poly) -> Poly:
        return self.terms.resize(p, 0)

    def _is_uniform(self, p: Poly) -> bool:
        """Whether a value is a signed integer that fits its word for all arguments, and is the same for all threads:
        such values bound loops. Values that differ between threads are distinguished by cases."""
        low, high = self.terms.interval(p)
        half = 1 << (p.width - 1)
        one = not any(isinstance(c, Table) for _, c in p.terms)
        return one and not self.is_data(p) and low is not None and high is not None and -half <= low and high < half

    def _at_most(self, a: Poly, b: Poly) -> bool:
        """a <= b: by the bounds of b - a, or where both are quotients, which grow with what is divided; of minima and
        maxima by what they are made of."""
        terms = self.terms
        below, above = self._sides(a, "min"), self._sides(b, "max")
        if any(self._at_most(x, b) for x in below) or any(self._at_most(a, x) for x in above):
            return True
        apart = terms.sub(b, a)
        low = terms.interval(apart)[0]
        if low is not None and low >= 0:
            return True
        quotients = {c: terms.quotient(monomial) for monomial, c in apart.terms if c in (1, -1)}
        larger, smaller = quotients.get(1), quotients.get(-1)
        if len(apart.terms) != 2 or larger is None or smaller is None or larger[1] != smaller[1]:
            return False
        return self._at_most(smaller[0], larger[0])

    def _sides(self, p: Poly, name: str) -> list[Poly]:
        """The operands of a minimum or maximum; none of another value."""
        atom = self.terms.single(p)
        return [x for x in atom.args if isinstance(x, Poly)] if atom is not None and atom.kind == name else []

    # -- comparisons ----------------------------------------------------------------------------------------------
    def compare(self, name: str, kind: str, a: Value, b: Value) -> Condition:
        """setp of integers."""
        if name in ("lo", "ls", "hi", "hs"):
            name = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}[name]
        return self.values.test(lambda x, y: self._compare(name, kind, x, y), a, b)

    def _compare(self, name: str, kind: str, a: Poly, b: Poly) -> Condition:
        cases = self.cases
        if name in ("gt", "le"):
            name, a, b = {"gt": "lt", "le": "ge"}[name], b, a
        if self.values.numbers(a):
            parts = self.values.numbers(a)
            return cases.any(
                cases.both(c, self._ordered(name, kind, self.terms.resize(p, a.width), b)) for c, p in parts
            )
        if self.values.numbers(b):
            parts = self.values.numbers(b)
            return cases.any(
                cases.both(c, self._ordered(name, kind, a, self.terms.resize(p, b.width))) for c, p in parts
            )
        for x in (a, b):
            parts = self.values.few_parts(x)
            if parts and (name in ("eq", "ne") or (kind[0] == "u" and not any(self.is_data(p) for _, p in parts))):
                pairs = [(c, (p, b) if x is a else (a, p)) for c, p in parts]
                return cases.any(cases.both(c, self._compare(name, kind, *pair)) for c, pair in pairs)
        return self._ordered(name, kind, a, b)

    def _ordered(self, name: str, kind: str, a: Poly, b: Poly) -> Condition:
        """The comparison of ``_compare`` once its operands are in the order for it."""
        cases = self.cases
        joined = self._joined_by_or(a) if name in ("eq", "ne") and self.terms.number(b) == 0 else []
        if joined:  # no bit of either
            none = cases.all(self._compare("eq", kind, p, self.terms.const(p.width, 0)) for p in joined)
            return none if name == "eq" else cases.negate(none)
        if self.is_data(a) or self.is_data(b):
            read, positive = self._read_compared(name, kind, a, b), ("lt", "gt", "eq")
            if read is None:
                return self.compare_data(name, kind, a, b)
            return read if name in positive else cases.negate(read)
        if name in ("eq", "ne"):
            found = cases.equal(self.signed(a), self.signed(b))
            return found if name == "eq" else cases.negate(found)
        if kind[0] == "s" and (negative := self._or_is_negative(name, a, b)) is not None:
            return negative
        if kind[0] == "s":
            less = cases.less(self.signed(a), self.signed(b))
        else:
            less = self.values.test(cases.less, self.unsigned(a), self.unsigned(b))
        return less if name in ("lt", "gt") else cases.negate(less)

    def _joined_by_or(self, p: Poly) -> list[Poly]:
        """The words, of one width, whose or a word is, or is from some bit on with no bit below; none of another."""
        whole = self.terms.single(p)
        if whole is not None and whole.kind == "or" and not whole.bits:  # counted with, over the integers
            return [self.terms.resize(x, p.width) for x in whole.args if isinstance(x, Poly)]
        pieces = self.terms.pieces(p) or []
        joined = self.terms.single(pieces[0][2]) if len(pieces) == 1 else None
        return [x for x in joined.args if isinstance(x, Poly)] if joined is not None and joined.kind == "or" else []

    def _read_compared(self, name: str, kind: str, a: Poly, b: Poly) -> Condition | None:
        """a < b, or a = b, of words that data is in, as the integers that they say: of a whole word and an integer that
        is counted with, and of what is computed from words that are loaded. A word is compared with a number by the
        range that it lies in, and two words by their difference (``compare_data``)."""
        equal = name in ("eq", "ne")
        signed = kind[0] == "s" or equal or (self._not_negative(a) and self._not_negative(b))
        words = [self.terms.single(p) for p in (a, b) if self.is_data(p)]
        if any(self._word(p) is not None and self.terms.number(q) is not None for p, q in ((a, b), (b, a))):
            if equal or not signed or words[0] is None or words[0].kind != "choice":
                return None
        elif equal and not self._is_read_where_equal(a, b):
            return None
        if not signed and len(words) == 2 and all(word is not None and word.kind != "choice" for word in words):
            return None
        plain = signed and not equal and len(words) == 1 and words[0] is not None
        carried = signed and not equal and (self.reader.is_carried(a) or self.reader.is_carried(b))
        if not plain and not carried and not (self.reader.is_loaded(a) and self.reader.is_loaded(b)):
            return None
        x, y = self._read(a, signed=signed), self._read(b, signed=signed)
        if x is None or y is None or len(x) * len(y) > MOST_PAIRS:
            return None
        compare = self.cases.equal if equal else self.cases.less
        return self.cases.any(self.cases.all((c, d, compare(p, q))) for c, p in x for d, q in y)

    def _not_negative(self, p: Poly) -> bool:
        low, high = self.terms.interval(p)
        return low is not None and high is not None and 0 <= low <= high < 1 << (p.width - 1)

    def _is_read_where_equal(self, a: Poly, b: Poly) -> bool:
        """Words that are computed from data, beside such or a number: whole words, those that are put together from
        bits, and what is counted with are equal to data by a test of their own."""
        computed = any(self.is_data(p) and self.terms.single(p) is None for p in (a, b))
        numbers = all(self.is_data(p) or self.terms.number(p) is not None for p in (a, b))
        return computed and numbers and self.terms.pieces(self.terms.sub(a, b)) is None

    def _read(self, p: Poly, *, signed: bool) -> Readings | None:
        """The integer readings of a word; a counted integer is one, in a proved range."""
        if self.is_data(p):
            return self.reader.readings(p, signed=signed)
        if signed:
            return [(self.cases.true, self.signed(p))]
        low, high = self.terms.interval(p)
        fits = low is not None and high is not None and low >= 0 and high < 1 << p.width
        return [(self.cases.true, self.terms.resize(p, 0))] if fits else self.reader.readings(p, signed=False)

    def unsigned(self, p: Poly) -> Value:
        """The unsigned reading of a word over the integers: of a negative number, 2**width more."""
        low, high = self.terms.interval(p)
        whole = 1 << p.width
        if self.is_data(p) or low is None or high is None or low >= 0 or low < -whole or high >= whole:
            return self.terms.unsigned(p)
        number = self.terms.resize(p, 0)
        wrapped = self.terms.add(number, self.terms.const(0, 1 << p.width))
        return self.values.select(self.cases.not_negative(number), number, wrapped)

    def compare_data(self, name: str, kind: str, a: Poly, b: Poly) -> Condition:
        """A comparison of opaque words: with a number, a range; of two words, a condition of its own."""
        cases, terms = self.cases, self.terms
        ordered = kind[0] == "s" and name not in ("eq", "ne")
        signs = self._signs(a) if ordered and terms.number(b) == 0 else None
        if ordered and terms.number(a) == -1 and (negative := self._signs(b)) is not None:
            signs = cases.negate(negative)  # -1 < b
        if signs is not None:
            return signs if name in ("lt", "gt") else cases.negate(signs)
        word, number = self._word(a), terms.number(b)
        if word is not None and number is not None:
            return self._compare_with(name, kind, word, a.width, number)
        word, number = self._word(b), terms.number(a)
        if word is not None and number is not None:
            return self._compare_with(name, kind, word, a.width, number, above=True)
        if name in ("eq", "ne") and all(p.terms and terms.interval(p) == (0, 1) for p in (a, b)):
            apart = cases.differ(*(cases.at_least(terms.resize(p, 0), 1) for p in (a, b)))
            return apart if name == "ne" else cases.negate(apart)
        if name in ("eq", "ne"):
            apart = terms.sub(a, b)
            if (difference := terms.number(apart)) is not None:
                return cases.true if (difference == 0) == (name == "eq") else 0
            first = min(apart, terms.scale(apart, -1), key=_sign)
            numbers = [i for m, _ in first.terms for i in m]
            if (said := self._said_by_upper_bits(first)) is not None:
                bits, value = said
                half = 1 << (bits.bits - 1)
                inside = -half <= value < half
                found = self._in_range(bits, value % (2 * half), 1, 2 * half) if inside else 0
            elif len(first.terms) == 1 and len(numbers) == 1 and terms.atoms[numbers[0]].high == 1:
                found = self._in_range(terms.atoms[numbers[0]], 0, 1, 2)
            else:
                pieces = terms.pieces(first)
                atoms = [terms.single(piece) for _, _, piece in pieces or ()]
                found = cases.all(self._in_range(atom, 0, 1, 1 << atom.bits) for atom in atoms if atom is not None)
                found = found if pieces else self.test("zero", first)
            return found if name == "eq" else cases.negate(found)
        if kind[0] != "s" and name in ("lt", "gt") and 0 < (terms.number(b) or 0) <= MOST_NUMBERS:
            numbers = range(terms.number(b) or 0)
            return cases.any(self.compare_data("eq", kind, a, terms.const(a.width, n)) for n in numbers)
        found = self.test("lt.s" if kind[0] == "s" else "lt.u", a, b)
        return found if name in ("lt", "gt") else cases.negate(found)

    def _said_by_upper_bits(self, p: Poly) -> tuple[Atom, int] | None:
        """Where a value is what the upper bits of a word say with their sign, and a number: these bits, and what they
        say where the value is 0."""
        terms = [(self.terms.atoms[m[0]], c) for m, c in p.terms if len(m) == 1 and isinstance(c, int)]
        if len(terms) != 2 or any(m != () and len(m) != 1 for m, _ in p.terms):
            return None
        number = next((c for m, c in p.terms if m == ()), 0)
        for (atom, c), (other, d) in (terms, terms[::-1]):
            field, sign = (x.args[0] if x.kind == "field" else None for x in (atom, other))
            if not isinstance(field, Field) or not isinstance(number, int) or field.count >= p.width:
                continue
            top = field.low + field.count - 1
            is_sign = top + 1 == self.terms.atoms[field.base].bits and sign == Field(field.base, top, 1)
            if is_sign and c in (1, -1) and d == -c << field.count:
                return atom, signed_int(-c * number, p.width)
        return None

    def _word(self, p: Poly) -> tuple[Atom, int, int] | None:
        """The data, its sign and the number, where a word is one piece of data, or its negation, and a number."""
        number, word = 0, None
        for monomial, c in p.terms:
            if not isinstance(c, int):
                return None
            if monomial == ():
                number = c
            elif word is None and len(monomial) == 1 and c in (1, -1) and self.terms.atoms[monomial[0]].bits:
                word = (self.terms.atoms[monomial[0]], c)
            else:
                return None
        return None if word is None else (*word, number)

    def _compare_with(
        self, name: str, kind: str, word: tuple[Atom, int, int], width: int, number: int, *, above: bool = False
    ) -> Condition:
        """sign * data + offset, a word, is less than a number (greater, if ``above``), or equals it."""
        atom, sign, offset = word
        least = -(1 << (width - 1)) if kind[0] == "s" else 0
        number = number if kind[0] == "s" else number & ((1 << width) - 1)
        if name in ("eq", "ne"):
            first, count = number, 1
        elif above:
            first, count = number + 1, least + (1 << width) - 1 - number
        else:
            first, count = least, number - least
        first -= offset
        if sign < 0:
            first = 1 - first - count
        inside = self._in_range(atom, first % (1 << width), count, 1 << width)
        return inside if name in ("eq", "lt", "gt") else self.cases.negate(inside)

    def _in_range(self, atom: Atom, first: int, count: int, modulus: int) -> Condition:
        """Unsigned data lies among ``count`` numbers from ``first`` on, which go on at 0 behind the last."""
        cases, data = self.cases, self.terms.of(0, atom)
        known = self.values.numbers(data)
        if known:
            numbers = ((c, self.terms.number(p) or 0) for c, p in known)
            return cases.any(c for c, n in numbers if (n % (1 << atom.bits) - first) % modulus < count)
        inside = cases.both(cases.at_least(data, first), cases.negate(cases.at_least(data, first + count)))
        return cases.either(inside, cases.negate(cases.at_least(data, max(0, first + count - modulus))))

    def _or_is_negative(self, name: str, a: Poly, b: Poly) -> Condition | None:
        """``a | c < 0``, or not ``-1 < a | c``, of words that are counted with: where either is negative."""
        below = self.terms.number(b) == 0
        if not below and self.terms.number(a) != -1:
            return None
        word = a if below else b
        joined = self.terms.single(word)
        if joined is None or joined.kind != "or":
            return None
        zero = self.terms.const(word.width, 0)
        words = (self.terms.resize(p, word.width) for p in joined.args if isinstance(p, Poly))
        negative = self.cases.any(self._compare("lt", f"s{word.width}", p, zero) for p in words)
        return negative if (name in ("lt", "gt")) == below else self.cases.negate(negative)

    def _sign_of_remainder(self, p: Poly) -> Condition | None:
        """Where x - d * (x / d), of a number d and the quotient towards 0, is negative: where x is, and d does not
        divide it. None of other words."""
        for monomial, c in p.terms:
            atom = self.terms.atoms[monomial[0]] if len(monomial) == 1 else None
            field = atom.args[0] if atom is not None and atom.kind == "field" else None
            if isinstance(field, Field) and field.low == 0:  # the bits of the quotient that an even number leaves
                atom = self.terms.atoms[field.base]
            if atom is None or atom.kind != "div.s32" or not isinstance(c, int) or p.width != LEAST_BITS:
                continue
            x, d = cast("tuple[Poly, Poly]", atom.args)
            multiple = self.terms.scale(self.terms.of(p.width, atom), c)
            if c <= -2 and self.terms.number(d) == -c and self.terms.sub(p, multiple) is x:
                zero = self.terms.const(p.width, 0)
                return self.cases.both(self._compare("lt", "s32", x, zero), self._compare("ne", "s32", p, zero))
        return None

    def _signs(self, p: Poly) -> Condition | None:
        """Where a word that is joined from two, or whose upper half is, is negative, by their signs: of a xor where
        they differ."""
        remainder = self._sign_of_remainder(p)
        if remainder is not None:
            return remainder
        atom = self.terms.single(p)
        if atom is None and p.width == 64 and self.terms.is_of_pieces(p):
            p = self.terms.field(p, 32, 32, 32)
            atom = self.terms.single(p)
        if atom is None or atom.kind not in ("and", "or", "xor") or atom.bits != p.width:
            sign = self.terms.single(self.terms.field(p, p.width - 1, 1, 0)) if atom is None else None
            return self._in_range(sign, 1, 1, 2) if sign is not None and sign.kind == "field" else None
        x, y = (cast("Value", arg) for arg in atom.args)
        zero = self.terms.const(p.width, 0)
        x, y = (self.compare("lt", f"s{p.width}", arg, zero) for arg in (x, y))
        return {"and": self.cases.both, "or": self.cases.either, "xor": self.cases.differ}[atom.kind](x, y)

    def compare_floats(self, name: str, a: Value, b: Value, kind: str = "f32") -> Condition:
        """setp of floats; of others than f32 each is a test of its own."""
        x, y = self.values.number(a), self.values.number(b)
        if kind == "f32" and x is not None and y is not None:
            return self.cases.true if holds(name, float_of_bits(x), float_of_bits(y)) else 0
        if isinstance(a, Choice) and a is b:
            return self.values.test(lambda p: self.compare_floats(name, p, p, kind), a)
        if isinstance(a, Choice) or isinstance(b, Choice):
            return self.values.test(lambda p, q: self.compare_floats(name, p, q, kind), a, b)
        if kind != "f32":
            return self.test(f"{name}.{kind}", a, b)
        if name in ("gt", "ge", "gtu", "geu"):
            a, b = b, a
            name = {"gt": "lt", "ge": "le", "gtu": "ltu", "geu": "leu"}[name]
        counted = self._compare_counted(name, a, b)
        return self.values.orders.compare(name, a, b) if counted is None else counted

    def _compare_counted(self, name: str, a: Value, b: Value) -> Condition | None:
        """A comparison of the f32 of a counted integer with a number, by the integers whose f32 is less: rounding to
        nearest keeps the order of integers."""
        x, y, cases = self._counted_integer(a), self._counted_integer(b), self.cases
        number = self.values.number(b if x is not None else a)
        if (x is None) == (y is None) or number is None:
            return None
        value = float_of_bits(number)
        if value != value:
            return cases.true if name in ("ltu", "leu", "equ", "neu", "nan") else 0
        integer = x if x is not None else y
        assert integer is not None
        reaches, exceeds = (cases.at_least(integer, least_integer(value, above=above)) for above in (False, True))
        match name.removesuffix("u"):
            case "lt":
                return cases.negate(reaches) if x is not None else exceeds
            case "le":
                return cases.negate(exceeds) if x is not None else reaches
            case "eq":
                return cases.without(reaches, exceeds)
            case "ne":
                return cases.negate(cases.without(reaches, exceeds))
            case _:
                return cases.true if name == "num" else 0

    def _counted_integer(self, value: Value) -> Poly | None:
        """The integer of which a value is the f32."""
        atom = self.terms.single(value) if isinstance(value, Poly) else None
        if atom is None or atom.kind != "cvt.rn.f32":
            return None
        (integer,) = atom.args
        assert isinstance(integer, Poly)
        return integer

    def test(self, name: str, *args: object) -> Condition:
        """A condition of its own."""
        return self.cases.at_least(self.terms.of(0, self.terms.atom(f"test.{name}", *args, low=0, high=1)), 1)

    def as_word(self, condition: Condition, width: int) -> Value:
        """1 where the condition holds, else 0."""
        return self.values.select(condition, self.terms.const(width, 1), self.terms.const(width, 0))

    # -- words ----------------------------------------------------------------------------------------------------
    def permuted(self, a: Poly, b: Poly, selector: int) -> Poly:
        """prmt with a constant selector, mode generic."""
        terms = self.terms
        picks = [selector >> (4 * i) & 15 for i in range(4)]
        total = terms.const(32, 0)
        i = 0
        while i < 4:
            pick, count = picks[i], 1
            source, byte = (a, pick & 3) if pick & 4 == 0 else (b, pick & 3)
            if pick & 8:
                part = terms.scale(terms.field(source, 8 * byte + 7, 1, 32), 255)
            else:
                while i + count < 4 and byte + count < 4 and picks[i + count] == pick + count:
                    count += 1  # bytes that stay together are one field
                part = terms.field(source, 8 * byte, 8 * count, 32)
            total = terms.add(total, terms.scale(part, 1 << (8 * i)))
            i += count
        return total


def _sign(p: Poly) -> tuple[bool, int]:
    """Which of a value and its negation is taken: the same on both sides, whatever their terms are called."""
    total = sum(c for monomial, c in p.terms if monomial != () and isinstance(c, int))
    return total < 0, p.id if total == 0 else 0


def _runs(mask: int) -> list[tuple[int, int]]:
    """The runs of ones in a number: where each begins, and its bits."""
    found: list[tuple[int, int]] = []
    at = 0
    while mask >> at:
        at += ((mask >> at) & -(mask >> at)).bit_length() - 1
        rest = mask >> at
        count = (~rest & (rest + 1)).bit_length() - 1
        found.append((at, count))
        at += count
    return found
