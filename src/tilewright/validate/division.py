"""Floor division of polynomials over the integers, each identity named where it is applied."""

from __future__ import annotations

from math import gcd

from tilewright.validate.polynomials import (
    Coefficient,
    Monomial,
    Poly,
    Table,
)
from tilewright.validate.term_store import TermStore

HALF = 1 << 32
"""Above all lower halves of words of 64 bits."""


def quotient_of(terms: TermStore, a: Poly, n: int) -> Poly:
    whole, by = terms.parted.get(a, (a, 1))  # floor(floor(p / m) / n) = floor(p / (m n))
    if whole in terms.scaled:
        exact = _by_reciprocal(terms, *terms.scaled[whole], by * n)
        if exact is not None:
            return exact
    return _quotient_of(terms, a, n)


def _by_reciprocal(terms: TermStore, x: Poly, m: int, n: int) -> Poly | None:
    """floor(m x / n) = floor(x / d) where m d = n + e and 0 <= x e < n (Granlund and Montgomery 1994)."""
    d = -(-n // m)
    low, high = terms.interval(x)
    if m < 0 or d < 2 or low is None or high is None or low < 0 or high * (m * d - n) >= n:
        return None
    return terms.floordiv(x, d)


def _quotient_of(terms: TermStore, a: Poly, n: int) -> Poly:
    whole: dict[Monomial, Coefficient] = {}
    rest: dict[Monomial, Coefficient] = {}
    for monomial, c in a.terms:  # floor((n q + r) / n) = q + floor(r / n)
        if isinstance(c, int):  # coefficients next to 0, the constant from 0 on
            q = c // n if monomial == () else -((n // 2 - c) // n)
            r = c - n * q
        elif n >= 1 << 63:  # beyond the numbers of a table
            q, r = 0, c
        elif monomial == ():
            q, r = terms.coefficient(0, c.values // n), terms.coefficient(0, c.values % n)
        elif not (c.values % n).any():
            q, r = terms.coefficient(0, c.values // n), 0
        else:
            q, r = 0, c
        if q != 0:
            whole[monomial] = q
        if r != 0:
            rest[monomial] = r
    if n == HALF:
        _split_words(terms, whole, rest)
    quotient, remainder = terms.make(0, whole), terms.make(0, rest)
    low, high = terms.interval(remainder)
    if low is not None and high is not None and low // n == high // n:
        return terms.add(quotient, terms.const(0, low // n))
    numbers = terms.per_thread(remainder)
    if numbers is not None:
        return terms.add(quotient, terms.table(0, numbers // n))
    bit = _of_a_bit(terms, remainder, n)
    if bit is not None:
        return terms.add(quotient, bit)
    divisors = {gcd(n, c) for m, c in remainder.terms if m != () and isinstance(c, int)}
    for g in sorted((d for d in divisors if d > 1), reverse=True):  # floor((g r + s) / g m) = floor(r / m), 0 <= s < g
        large: dict[Monomial, Coefficient] = {}
        small: dict[Monomial, Coefficient] = {}
        for monomial, c in remainder.terms:
            if isinstance(c, int) and c % g == 0:
                large[monomial] = c // g
            elif isinstance(c, int) and monomial == ():
                large[monomial], small[monomial] = c // g, c % g
            elif isinstance(c, Table) and monomial == ():
                large[monomial] = terms.coefficient(0, c.values // g)
                small[monomial] = terms.coefficient(0, c.values % g)
            else:
                small[monomial] = c
        least, most = terms.interval(terms.make(0, small))
        if least is not None and most is not None and least >= 0 and most < g:
            return terms.add(quotient, terms.floordiv(terms.make(0, large), n // g))
    piece = _piece(terms, remainder, n)
    if piece is not None:
        return terms.add(quotient, piece)
    nested = _nested(terms, remainder, n)
    if nested is not None:
        return terms.add(quotient, nested)
    exact = _reciprocal(terms, remainder, n)
    if exact is not None:
        return terms.add(quotient, exact)
    bounds = (None if low is None else low // n, None if high is None else high // n)
    if bounds == (-1, 0) and low is not None and high is not None and len(remainder.terms) == 1:
        n = max(-low, high + 1)  # floor(r / n) is -1 where r is negative, else 0, whatever n is
        if n == 1:
            return terms.add(quotient, remainder)
    atom = terms.atom("fdiv", remainder, n, low=bounds[0], high=bounds[1])
    return terms.add(quotient, terms.of(0, atom))


def _split_words(terms: TermStore, whole: dict[Monomial, Coefficient], rest: dict[Monomial, Coefficient]) -> None:
    """floor((x + r) / 2**32) = x[32:64] + floor((x[:32] + r) / 2**32) for a word x of 64 bits of data."""
    for monomial in [m for m, c in rest.items() if len(m) == 1 and c == 1 and terms.atoms[m[0]].bits == 64]:
        low, high = ((terms.field_atom(monomial[0], at, 32).id,) for at in (0, 32))
        if low not in rest and high not in whole:
            del rest[monomial]
            rest[low] = whole[high] = 1


def _of_a_bit(terms: TermStore, a: Poly, n: int) -> Poly | None:
    """floor((c + d x) / n) = floor(c / n) + (floor((c + d) / n) - floor(c / n)) x for an x that is 0 or 1."""
    constant = next((c for m, c in a.terms if m == ()), 0)
    rest = [(m, c) for m, c in a.terms if m != ()]
    if len(rest) != 1 or not isinstance(constant, int):
        return None
    ((monomial, factor),) = rest
    if not isinstance(factor, int) or terms.interval(terms.make(0, {monomial: 1})) != (0, 1):
        return None
    least = constant // n
    return terms.make(0, {monomial: (constant + factor) // n - least, (): least})


def _piece(terms: TermStore, a: Poly, n: int) -> Poly | None:
    """floor(x / 2**k) of data is its bits from k on."""
    if n & (n - 1) or len(a.terms) != 1 or a.terms[0][1] != 1 or len(a.terms[0][0]) != 1:
        return None
    atom = terms.atoms[a.terms[0][0][0]]
    low = n.bit_length() - 1
    return terms.of(0, terms.field_atom(atom.id, low, atom.bits - low)) if atom.bits > low else None


def _nested(terms: TermStore, a: Poly, n: int) -> Poly | None:
    """floor((floor(p / m) + r) / n) = floor((p + m r) / (m n))."""
    inner = [(m, c) for m, c in a.terms if m != ()]
    for monomial, c in inner:
        quotient = terms.quotient(monomial)
        if quotient is None or c != 1:
            continue
        numerator, m = quotient
        if len(inner) == 1 or m >= 1 << 31:  # with more terms only what a division by a constant becomes
            rest = terms.make(0, {k: d for k, d in a.terms if k != monomial})
            return terms.floordiv(terms.add(numerator, terms.scale(rest, m)), m * n)
    return None


def _reciprocal(terms: TermStore, a: Poly, n: int) -> Poly | None:
    """floor(M x / 2**s) = floor(x / d) where M d = 2**s + e and 0 <= x e < 2**s (Granlund and Montgomery 1994).

    Multiples of n were taken out of the terms of M x: of each c t the term of x is k t where c = M k modulo n.
    """
    if n & (n - 1) or n < 1 << 16:
        return None
    factors = dict[Monomial, int]()
    for monomial, c in a.terms:
        if not isinstance(c, int):
            return None
        factors[monomial] = c
    multiples = [c for monomial, c in factors.items() if monomial != ()]
    for m in dict.fromkeys((gcd(*multiples), *multiples)):
        if m < 2 or m % 2 == 0:
            continue
        d, inverse = -(-n // m), pow(m, -1, n)
        x, beside = dict[Monomial, Coefficient](), dict[Monomial, Coefficient]()
        for monomial, c in factors.items():
            k = c // m if monomial != () and c % m == 0 else c * inverse % n
            if monomial != () and k > n // 2:
                k -= n
            x[monomial], beside[monomial] = k, (m * k - c) // n
        whole = terms.make(0, x)
        low, high = terms.interval(whole)
        if d >= 2 and low is not None and high is not None and low >= 0 and high * (m * d - n) < n:
            return terms.sub(terms.floordiv(whole, d), terms.make(0, {t: j for t, j in beside.items() if j}))
    return None
