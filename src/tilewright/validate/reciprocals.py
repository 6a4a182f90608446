"""Quotients of words by constants, as NVRTC computes them: by the upper half of a product with a reciprocal.

With ``m d = n + e`` and ``0 < e``, ``floor(m x / n)`` is ``floor(x / d)`` for every x that is not negative while
``x e < n``; for negative x with ``-x e <= n`` it is one less than the quotient towards 0 (Granlund and Montgomery,
Division by invariant integers using multiplication, PLDI 1994). Here n is ``2**32``, and more where the upper half is
shifted; where m has no room in a word, x is added to it: ``floor(m x / n) + x = floor((m + n) x / n)``, or, without a
sign, half of what it leaves of x: with t the upper half, ``floor((x - t) / 2) + t = floor((m + n) x / 2n)``.

Of integers all this is exact (``division``); only which product a sum is a part of is noted here. Words of data are
read with their sign, of which nothing is known: what is made of them stays a word, until it is a quotient.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilewright.validate.polynomials import Poly
from tilewright.validate.terms import Terms

_BITS = 32
_HALF, _WORDS = 1 << (_BITS - 1), 1 << _BITS


@dataclass(frozen=True)
class _Share:
    """A word that is ``floor(m x / n)`` of a word x of data, read with its sign."""

    x: Poly
    m: int
    n: int


class Reciprocals:
    """Notes products, and finds the quotients in them."""

    def __init__(self, terms: Terms):
        self.terms = terms
        self._shares: dict[Poly, _Share] = {}

    def upper(self, x: Poly, m: Poly) -> Poly | None:
        """The upper half of a product of data, with its sign, and a number; None of others."""
        number = self.terms.number(m)
        if number is None or x.width != _BITS:
            return None
        word = self.terms.data(_BITS, _BITS, "mul.hi.s32", x, m)
        return self._noted(word, _Share(x, number, _WORDS))

    def _noted(self, word: Poly, share: _Share) -> Poly:
        self._shares[word] = share
        return word

    def added(self, a: Poly, b: Poly, total: Poly) -> Poly:
        """a + b: of an upper half and what was multiplied, or its sign, or half of what it leaves."""
        if a.width != _BITS:
            return total
        for word, other in ((a, b), (b, a)):
            share = self._shares.get(word)
            if share is not None:
                if other is share.x and share.m < 0:
                    return self._noted(total, replace(share, m=share.m + share.n))
                d = self._divisor(share)
                if d and other is self.terms.field(share.x, _BITS - 1, 1, _BITS):
                    return self.terms.data(_BITS, _BITS, "div.s32", share.x, self.terms.const(_BITS, d))
            self._part(word, other, total)
        return total

    def _part(self, word: Poly, other: Poly, total: Poly) -> None:
        """Notes which product a sum with an upper half is a part of."""
        upper, beside, whole = (self.terms.resize(p, 0) for p in (word, other, total))
        product, n = self.terms.parted.get(upper, (upper, 0))
        if not n or whole in self.terms.parted:
            return
        x, m = self.terms.scaled[product]
        if m < 0 and beside is x and self.terms.add(upper, beside) is whole:
            self.terms.parted[whole] = self.terms.scale(x, m + n), n
        elif beside is self.terms.floordiv(self.terms.sub(x, upper), 2) and self.terms.add(upper, beside) is whole:
            self.terms.parted[whole] = self.terms.scale(x, m + n), 2 * n

    def subtracted(self, x: Poly, upper: Poly) -> Poly:
        """x - upper, noted to be no less than 0 where it is what an upper half leaves of the word multiplied."""
        if x.width == _BITS:
            self._left(x, upper)
        return self.terms.sub(x, upper)

    def _left(self, x: Poly, upper: Poly) -> None:
        word, part = self.terms.unsigned(x), self.terms.resize(upper, 0)
        product, n = self.terms.parted.get(part, (part, 0))
        if n == _WORDS and self.terms.scaled[product][0] is word and 0 < self.terms.scaled[product][1] <= n:
            low, high = self.terms.interval(word)
            if low is not None and low >= 0 and high is not None:
                self.terms.lies_in(self.terms.sub(word, part), 0, high)

    def shifted(self, word: Poly, count: int, *, signed: bool) -> Poly | None:
        """An upper half shifted down, with its sign; or its sign alone, which is that of what was multiplied."""
        share = self._shares.get(word)
        if share is None or share.m <= 0 or not 0 <= count < _BITS:
            return None
        if not signed:
            return self.terms.field(share.x, _BITS - 1, 1, _BITS) if count == _BITS - 1 else None
        return self._noted(self._moved(word, count), replace(share, n=share.n << count))

    def _moved(self, word: Poly, count: int) -> Poly:
        return self.terms.data(_BITS, _BITS, "shr.s32", word, count) if count else word

    def _divisor(self, share: _Share) -> int | None:
        """The number that every word with a sign is divided by, but for the quotient of a negative one, which is one
        less; None where some word is not."""
        if share.m <= 0:
            return None
        d = -(-share.n // share.m)
        e = share.m * d - share.n
        return d if 2 <= d < _HALF and e > 0 and _HALF * e <= share.n else None
