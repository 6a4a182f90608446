"""Values of both sides in one normal form: polynomials over atoms, with a coefficient for every thread.

A value of ``width`` bits is a polynomial modulo ``2**width``; width 0 means the integers. Its variables are *atoms*:
parameters, program coordinates, iteration counts, loaded elements, results of floating-point instructions. Each atom
denotes one integer per thread. Coefficients are integers, or *tables* with one integer for every thread of the CTA, so
that whatever depends on the thread alone (swizzles, lanes, fragments) is exact and needs no reasoning. Coefficients
modulo ``2**width`` are kept in ``[-2**(width-1), 2**(width-1))``: read over the integers, the polynomial is what the
two's complement value means wherever nothing has wrapped.

Equal values that only associate, distribute, shift or mask differently have one normal form; the identities used are
those of modular arithmetic and of floor division, each named where it is applied.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from tilewright.validate.division import quotient_of
from tilewright.validate.polynomials import (
    Atom,
    Coefficient,
    Field,
    Interval,
    Ints,
    Monomial,
    Poly,
    Table,
    added,
    multiplied,
    narrower,
    signed,
    signed_int,
)
from tilewright.validate.undecided import Undecided
from tilewright.validate.words import is_of_pieces, lies_apart, may_be_set, sliced

MOST_RESIDUES = 4
"""Of a sum, beyond which its bounds are not looked for in every order of taking them out."""


MOST_STEPS = 1_600_000
"""The most steps for one kernel's comparison: algebra of conditions, long sums, proofs of bounds, comparisons of
values. Beyond, the kernel is undecided."""

WORD = "word"
"""The kind of atom of the low 32 bits of an integer."""

LEAST_RECIPROCAL = 1 << 16
"""Factors of this and more are taken for reciprocals of what an integer is divided by."""

FEW = 16
"""Terms of a sum that count for nothing beside the steps that ask for it."""

RANK_SHIFT = 24
"""Bits of a shared address below the CTA's rank in its cluster."""
LAST_SHARED = (1 << 18) - 1024
"""The last address of a shared variable: a CTA has at most 228 KB of shared memory on every target."""


class Terms:
    """All values of one kernel, whose CTA has ``threads`` threads."""

    def __init__(self, threads: int, *, clustered: bool = False):
        self.threads, self.clustered = threads, clustered
        self.alignments: dict[str, int] = {}
        """What the addresses of variables in shared memory are multiples of, by name, as the PTX declares."""
        self.atoms: list[Atom] = []
        self.masks: dict[int, int] = {}
        """Bits that words of data can have, by atom, where some are known to be clear."""
        self._atom_ids: dict[tuple[object, ...], int] = {}
        self._polys: dict[tuple[int, tuple[tuple[Monomial, Coefficient], ...]], Poly] = {}
        self._tables: dict[bytes, Table] = {}
        self._intervals: dict[Poly, Interval] = {}
        self._termwise: dict[Poly, Interval] = {}
        self._quotients: dict[tuple[Poly, int], Poly] = {}
        self._facts: dict[Monomial, list[tuple[Poly, int, int]]] = {}
        self._constants: dict[tuple[int, int], Poly] = {}
        self._variables: dict[tuple[int, int], Poly] = {}
        self._sums: dict[tuple[Poly, Poly, int], Poly] = {}
        self._multiples: dict[tuple[Poly, int], Poly] = {}
        self._resized: dict[tuple[Poly, int], Poly] = {}
        self.scaled: dict[Poly, tuple[Poly, int]] = {}
        """x and m, by integers m x that were made so, where m may be a reciprocal."""
        self.parted: dict[Poly, tuple[Poly, int]] = {}
        """p and n, by floor(p / n) of such integers p."""
        self.notes = 0
        """How often a range was noted."""
        self.steps = 0
        self.bitwise: Callable[[str, Poly, Poly], Poly] | None = None
        """and, or, xor of words, for those who know the normal form of that."""

    def spend(self, steps: int) -> None:
        """Counts steps of this kernel's comparison, so that one that takes too long ends undecided."""
        self.steps += steps
        if self.steps > MOST_STEPS:
            raise Undecided(f"the comparison takes more than {MOST_STEPS} steps")

    # -- making ---------------------------------------------------------------------------------------------------
    def atom(self, kind: str, *args: object, low: int | None = None, high: int | None = None, bits: int = 0) -> Atom:
        """The atom of this kind with these arguments; bounds are those given when it is first asked for."""
        key = (kind, *args)
        found = self._atom_ids.get(key)
        if found is None:
            found = self._atom_ids[key] = len(self.atoms)
            if bits:
                low, high = 0, (1 << bits) - 1
            self.atoms.append(Atom(found, kind, args, low, high, bits))
        return self.atoms[found]

    def data(self, width: int, bits: int, kind: str, *args: object) -> Poly:
        """A value of ``bits`` bits of raw data."""
        return self.of(width, self.atom(kind, *args, bits=bits))

    def of(self, width: int, atom: Atom) -> Poly:
        """The value of one atom."""
        key = (width, atom.id)
        found = self._variables.get(key)
        if found is None:
            found = self._variables[key] = self.make(width, {(atom.id,): 1})
        return found

    def const(self, width: int, value: int) -> Poly:
        """A constant."""
        key = (width, value)
        found = self._constants.get(key)
        if found is None:
            found = self._constants[key] = self.make(width, {(): value})
        return found

    def table(self, width: int, values: Ints) -> Poly:
        """A constant that may differ between threads."""
        return self.make(width, {(): self.coefficient(width, values)})

    def coefficient(self, width: int, values: Ints) -> Coefficient:
        """A coefficient with a value for every thread; an integer where all are equal."""
        values = signed(values, width)
        key = values.tobytes()
        if key == key[: values.itemsize] * len(values):
            return int(values[0])
        found = self._tables.get(key)
        if found is None:
            found = self._tables[key] = Table(len(self._tables), values)
        return found

    def make(self, width: int, terms: Mapping[Monomial, Coefficient]) -> Poly:
        """The polynomial with these terms, normalised."""
        if len(terms) > FEW:
            self.spend(len(terms) // 2)
        if not width:  # over the integers nothing falls out of a word
            return self.interned(0, {m: c for m, c in terms.items() if c != 0})
        kept: dict[Monomial, Coefficient] = {}
        pieces, half = False, 1 << (width - 1)
        for monomial, c in terms.items():
            if isinstance(c, Table):
                if not -half <= c.low <= c.high < half:
                    c = self.coefficient(width, c.values)
            elif not -half <= c < half:
                c = signed_int(c, width)
            if isinstance(c, int):
                if c == 0:
                    continue
                if len(monomial) == 1:
                    bits = self.atoms[monomial[0]].bits
                    if bits:
                        pieces = True
                        room = width - ((c & -c).bit_length() - 1)
                        if bits > room:  # the bits above fall out of the word
                            monomial = (self.field_atom(monomial[0], 0, room).id,)
            if monomial in kept:
                c = self._plus(width, kept.pop(monomial), c)
                if c == 0:
                    continue
            kept[monomial] = c
        if pieces and len(kept) > 1:
            kept = self.joined(width, kept)
        return self.interned(width, kept)

    def interned(self, width: int, terms: Mapping[Monomial, Coefficient]) -> Poly:
        ordered = tuple(sorted(terms.items(), key=_monomial)) if len(terms) > 1 else tuple(terms.items())
        key = (width, ordered)
        found = self._polys.get(key)
        if found is None:
            found = self._polys[key] = Poly(len(self._polys), width, ordered)
        return found

    def _plus(self, width: int, a: Coefficient, b: Coefficient) -> Coefficient:
        if isinstance(a, int) and isinstance(b, int):
            return signed_int(a + b, width) if width else a + b
        if not width:
            _in_table(_end(a)[0] + _end(b)[0], _end(a)[1] + _end(b)[1])
        return self.coefficient(width, np.asarray(_numbers(a) + _numbers(b)))

    def _times(self, width: int, a: Coefficient, b: Coefficient) -> Coefficient:
        if isinstance(a, int) and isinstance(b, int):
            return signed_int(a * b, width) if width else a * b
        if not width:
            _in_table(*(x * y for x in _end(a) for y in _end(b)))
        return self.coefficient(width, np.asarray(_numbers(a) * _numbers(b)))

    def joined(self, width: int, terms: dict[Monomial, Coefficient]) -> dict[Monomial, Coefficient]:
        """Adjacent fields of one atom as one field: x[0:16] + 2**16 * x[16:32] is x[0:32]."""
        fields: dict[tuple[int, int], tuple[Monomial, int, int]] = {}
        for monomial, c in terms.items():
            if len(monomial) == 1 and isinstance(c, int):
                f = self.as_field(monomial[0])
                if f is not None:
                    fields[f.base, f.low] = (monomial, c, f.count)
        joined = False
        for (base, low), (monomial, c, count) in sorted(fields.items()):
            if (base, low) not in fields:
                continue
            while True:
                upper = fields.get((base, low + count))
                if upper is None or (upper[1] - (c << count)) % (1 << width if width else 1 << 80):
                    break
                whole = (self.field_atom(base, low, count + upper[2]).id,)
                if whole in terms:  # which is in the sum at another place, too
                    break
                terms.pop(upper[0])
                terms.pop(monomial)
                del fields[base, low + count]
                count += upper[2]
                monomial = whole
                terms[monomial] = c
                fields[base, low] = (monomial, c, count)
                joined = True
        return dict(terms) if joined else terms

    # -- arithmetic -----------------------------------------------------------------------------------------------
    def add(self, a: Poly, b: Poly, sign: int = 1) -> Poly:
        """a + b, or a - b."""
        if not b.terms:
            return a
        if not a.terms and sign == 1:
            return b
        key = (a, b, sign)
        found = self._sums.get(key)
        if found is None:
            found = self._sums[key] = self._sum(a, b, sign)
        return found

    def _sum(self, a: Poly, b: Poly, sign: int) -> Poly:
        if sign > 0 and len(a.terms) < len(b.terms):
            a, b = b, a
        total = dict(a.terms)
        width = a.width
        for monomial, c in b.terms:
            c = self._times(width, c, -1) if sign < 0 else c
            old = total.get(monomial)
            total[monomial] = c if old is None else self._plus(width, old, c)
        return self.make(width, total)

    def sub(self, a: Poly, b: Poly) -> Poly:
        """a - b."""
        return self.add(a, b, -1)

    def sum(self, width: int, values: Iterable[Poly]) -> Poly:
        """The sum."""
        total = self.const(width, 0)
        for value in values:
            total = self.add(total, value)
        return total

    def scale(self, a: Poly, factor: int) -> Poly:
        """a times a constant."""
        if factor == 1:
            return a
        key = (a, factor)
        found = self._multiples.get(key)
        if found is None:
            found = self.make(a.width, {m: self._times(a.width, c, factor) for m, c in a.terms})
            self._multiples[key] = found
            if not a.width and abs(factor) >= LEAST_RECIPROCAL and a.terms and a.terms[-1][0]:
                self.scaled[found] = a, factor
        return found

    def mul(self, a: Poly, b: Poly) -> Poly:
        """a * b."""
        for x, y in ((a, b), (b, a)):
            number = self.number(y)
            if number is not None:
                word = number > 1 << 31 and number % 2 == 1
                return self.scale(self.low_word(x) if word else x, number)
        total: dict[Monomial, Coefficient] = {}
        width = a.width
        for m, c in a.terms:
            for n, d in b.terms:
                key = tuple(sorted(m + n))
                product = self._times(width, c, d)
                old = total.get(key)
                total[key] = product if old is None else self._plus(width, old, product)
        return self.make(width, total)

    def low_word(self, a: Poly) -> Poly:
        """The low 32 bits of what is counted, p - 2**32 * (p // 2**32), as a word that is not looked into: what is
        multiplied with a number of 32 bits is mixed, and no integer any more."""
        if not any(c == -(1 << 32) and (q := self.quotient(m)) and q[1] == 1 << 32 for m, c in a.terms):
            return a
        low, high = self.interval(a)
        if low is None or high is None or low < 0 or high >= 1 << 32:
            return a
        return self.data(a.width, 32, WORD, self.resize(a, 32))

    def resize(self, a: Poly, width: int) -> Poly:
        """The same polynomial modulo another power of two; over the integers for width 0."""
        if a.width == width:
            return a
        key = (a, width)
        found = self._resized.get(key)
        if found is None:
            inside = 0 < width <= 32 and any(self.atoms[i].kind == WORD for m, _ in a.terms for i in m)
            terms = dict(a.terms)
            found = self._resized[key] = self._unworded(width, terms) if inside else self.make(width, terms)
        return found

    def _unworded(self, width: int, terms: Mapping[Monomial, Coefficient]) -> Poly:
        """Modulo 2**32 a word is what it is the low bits of."""
        total = self.const(width, 0)
        for monomial, c in terms.items():
            product = self.make(width, {(): c})
            for i in monomial:
                (whole,) = self.atoms[i].args if self.atoms[i].kind == WORD else (self.of(width, self.atoms[i]),)
                assert isinstance(whole, Poly)
                product = self.mul(product, self.resize(whole, width))
            total = self.add(total, product)
        return total

    # -- asking ---------------------------------------------------------------------------------------------------
    def number(self, a: Poly) -> int | None:
        """The value, where it is one constant for all threads."""
        if not a.terms:
            return 0
        if len(a.terms) == 1 and a.terms[0][0] == ():
            c = a.terms[0][1]
            return c if isinstance(c, int) else None
        return None

    def per_thread(self, a: Poly) -> Ints | None:
        """The value for every thread, where it depends on the thread alone."""
        if not a.terms:
            return np.zeros(self.threads, np.int64)
        if len(a.terms) == 1 and a.terms[0][0] == ():
            c = a.terms[0][1]
            return c.values if isinstance(c, Table) else np.full(self.threads, c, np.int64)
        return None

    def is_multiple(self, a: Poly, n: int) -> bool:
        """Whether all terms are multiples of n."""
        return all(not (c % n if isinstance(c, int) else (c.values % n).any()) for _, c in a.terms)

    def single(self, a: Poly) -> Atom | None:
        """The atom that the value is."""
        if len(a.terms) != 1:
            return None
        ((monomial, c),) = a.terms
        alone = c == 1 or (c == -1 and a.width == 1)  # modulo 2 both are 1
        return self.atoms[monomial[0]] if alone and len(monomial) == 1 else None

    def quotient(self, monomial: Monomial) -> tuple[Poly, int] | None:
        """p and n, where the monomial is floor(p / n)."""
        if len(monomial) != 1 or self.atoms[monomial[0]].kind != "fdiv":
            return None
        numerator, n = self.atoms[monomial[0]].args
        assert isinstance(numerator, Poly)
        assert isinstance(n, int)
        return numerator, n

    def interval(self, a: Poly) -> Interval:
        """Bounds of the polynomial over the integers."""
        found = self._intervals.get(a)
        if found is None:
            self._intervals[a] = (None, None)
            found = self._intervals[a] = self._bounds(a)
        return found

    def bound(self, a: Poly, low: int, high: int) -> None:
        """Notes that an integer polynomial lies in a range wherever values are compared."""
        self.notes += 1
        leading = max((m for m, _ in a.terms if self._is_product(m)), key=lambda m: (len(m), m), default=None)
        if leading is not None:
            self._facts.setdefault(leading, []).append((a, low, high))
            for known in (self._intervals, self._termwise):  # wider bounds of other polynomials stay true
                for p in [p for p in known if self._rests_on(p, leading)]:
                    del known[p]

    def lies_in(self, a: Poly, low: int, high: int) -> None:
        """Notes bounds of an integer polynomial that it has whatever its atoms are."""
        self._intervals[a] = narrower(self.interval(a), (low, high))

    def _is_product(self, monomial: Monomial) -> bool:
        """A product, a quotient of two variables, or a sum over iterations, which nothing else bounds."""
        return len(monomial) > 1 or (len(monomial) == 1 and self.atoms[monomial[0]].kind in ("div", "sum", "total"))

    def _rests_on(self, a: Poly, leading: Monomial) -> bool:
        """Whether a fact about a term may narrow the bounds of a polynomial."""
        return any(m == leading or (len(m) == 1 and self.atoms[m[0]].kind == "fdiv") for m, _ in a.terms)

    def _bounds(self, a: Poly) -> Interval:
        """By terms, by what is known of sums, by residues, by a factor of all terms; the narrowest of each end."""
        low, high = self._by_terms(a)
        for found in (self._by_factor(a), self._of_a_residue(a)):
            if found is not None:
                low, high = narrower((low, high), found)
        for monomial, c in a.terms:
            if not isinstance(c, int):
                continue
            for known, least, most in self._facts.get(monomial, ()):
                factor = dict(known.terms)[monomial]
                if not isinstance(factor, int) or c % factor:
                    continue
                rest = self.sub(self.resize(a, 0), self.scale(known, c // factor))
                if any(m == monomial for m, _ in rest.terms):
                    continue
                first, last = added(self._by_terms(rest), multiplied((c // factor, c // factor), (least, most)))
                low, high = narrower((low, high), (first, last))
        return low, high

    def _by_factor(self, a: Poly) -> Interval | None:
        """Of a product of one atom and a sum."""
        if len(a.terms) < 2 or not a.terms[0][0]:
            return None
        common = next((i for i in a.terms[0][0] if all(i in monomial for monomial, _ in a.terms)), None)
        if common is None:
            return None
        rest: dict[Monomial, Coefficient] = {}
        for monomial, c in a.terms:
            at = monomial.index(common)
            rest[monomial[:at] + monomial[at + 1 :]] = c
        return multiplied((self.atoms[common].low, self.atoms[common].high), self.interval(self.make(0, rest)))

    def _of_a_residue(self, a: Poly) -> Interval | None:
        """Of p // n - m * (q // (m n)) = (p - m n (q // (m n))) // n, which a division of p + q % (m n) becomes."""
        if len(a.terms) != 2:
            return None
        for (monomial, c), (other, k) in (a.terms, a.terms[::-1]):
            whole, part = self.quotient(monomial), self.quotient(other)
            if c != 1 or whole is None or part is None or not isinstance(k, int) or -k * whole[1] != part[1]:
                continue
            low, high = self.interval(self.sub(whole[0], self.make(0, {other: part[1]})))
            return None if low is None else low // whole[1], None if high is None else high // whole[1]
        return None

    def _by_terms(self, a: Poly) -> Interval:
        found = self._termwise.get(a)
        if found is None:
            found = self._termwise[a] = self._termwise_bounds(a)
        return found

    def _termwise_bounds(self, a: Poly) -> Interval:
        low: int | None = 0
        high: int | None = 0
        for monomial, c in a.terms:
            if isinstance(c, int) and len(monomial) == 1:  # most terms
                atom = self.atoms[monomial[0]]
                least, most = (atom.low, atom.high) if c > 0 else (atom.high, atom.low)
                low = None if low is None or least is None else low + c * least
                high = None if high is None or most is None else high + c * most
                continue
            part: Interval = (c.low, c.high) if isinstance(c, Table) else (c, c)
            for i in monomial:
                part = multiplied(part, (self.atoms[i].low, self.atoms[i].high))
            low = None if low is None or part[0] is None else low + part[0]
            high = None if high is None or part[1] is None else high + part[1]
        for monomial, times, residue, n in self._residues(a):
            rest = self.sub(self.resize(a, 0), self.scale(residue, times))
            if any(m == monomial for m, _ in rest.terms):
                continue
            other = self.interval(rest)
            part = multiplied((times, times), (0, n - 1))
            low, high = narrower((low, high), added(other, part))
        return low, high

    def _residues(self, a: Poly) -> list[tuple[Monomial, int, Poly, int]]:
        """Quotients p // n of which a multiple of -n is in the sum, which belongs to p - n * (p // n), that is p % n:
        the quotient, how many times, the residue, n. Of many the last one alone, lest all orders of them are tried."""
        found: list[tuple[Monomial, int, Poly, int]] = []
        for monomial, c in reversed(a.terms):
            quotient = self.quotient(monomial)
            if quotient is None or not isinstance(c, int) or c % quotient[1]:
                continue
            numerator, n = quotient
            found.append((monomial, -c // n, self.residue(numerator, n), n))
        return found if len(found) <= MOST_RESIDUES else found[:1]

    def residue(self, numerator: Poly, n: int) -> Poly:
        """p - n * (p // n) over the integers."""
        quotient = self.of(0, self.atom("fdiv", numerator, n))
        return self.sub(numerator, self.scale(quotient, n))

    # -- floor division, over the integers ------------------------------------------------------------------------
    def shared_variable(self, name: str) -> Poly:
        """The address of a variable in shared memory. In a cluster the CTA's rank stands above the offset in its
        window, as in what ``mapa`` gives (seen on an H200; the ISA leaves the encoding open)."""
        align = self.alignments.get(name, 1)
        offset = self.of(0, self.atom("shared_variable", name, low=0, high=LAST_SHARED // align))
        offset = self.scale(offset, align)
        return self.add(offset, self.shared_window()) if self.clustered else offset

    def shared_window(self) -> Poly:
        """The base address of the CTA's own shared memory window."""
        rank = self.of(0, self.atom("cta_rank", low=0, high=15))
        return self.scale(rank, 1 << RANK_SHIFT) if self.clustered else self.const(0, 0)

    def floordiv(self, a: Poly, n: int) -> Poly:
        """floor(a / n) of an integer polynomial by a positive constant."""
        assert a.width == 0
        assert n > 0
        if n == 1:
            return a
        key = (a, n)
        found = self._quotients.get(key)
        if found is None:
            found = self._quotients[key] = quotient_of(self, a, n)
            if a in self.scaled and found.terms and found.terms[-1][0]:
                self.parted.setdefault(found, (a, n))
        return found

    # -- words ----------------------------------------------------------------------------------------------------
    def unsigned(self, a: Poly) -> Poly:
        """The unsigned reading of a word, over the integers."""
        if a.width == 0:
            return a
        low, high = self.interval(a)
        if low is not None and high is not None and low >= 0 and high < 1 << a.width:
            return self.resize(a, 0)
        numbers = self.per_thread(a)
        if numbers is not None and a.width < 64:
            return self.table(0, numbers & ((1 << a.width) - 1))
        joined = sliced(self, a, 0, a.width)
        if joined is not None:
            return joined
        whole = self.resize(a, 0)
        return self.sub(whole, self.scale(self.floordiv(whole, 1 << a.width), 1 << a.width))

    def field(self, a: Poly, low: int, count: int, width: int) -> Poly:
        """Bits ``low`` to ``low + count - 1`` of a word, as a word of ``width`` bits (over the integers for 0)."""
        count = min(count, a.width - low) if a.width else count
        if count <= 0:
            return self.const(width, 0)
        if low == 0 and count == a.width == width:
            return a
        numbers = self.per_thread(a)
        if numbers is not None and (count < 64 or (numbers >= 0).all()):  # of more bits a table has not all numbers
            if a.width < 64:
                numbers = numbers & ((1 << a.width) - 1)
            return self.table(width, (numbers >> low) & ((1 << min(count, 63)) - 1))
        parts = sliced(self, a, low, count)
        if parts is not None:
            return self.resize(parts, width)
        if a.width and any(isinstance(c, int) and c < 0 for _, c in a.terms):  # the bits of ~p are those that p has not
            parts = sliced(self, self.sub(self.const(a.width, -1), a), low, count)
            if parts is not None:
                return self.resize(self.sub(self.const(0, (1 << count) - 1), parts), width)
        top = low + count  # floor(p / 2**low) - 2**count floor(p / 2**top), for any p that is equal modulo 2**top
        reduced = self.resize(self.resize(a, top), 0) if a.width != top else self.resize(a, 0)
        upper = self.scale(self.floordiv(reduced, 1 << top), 1 << count)
        return self.resize(self.sub(self.floordiv(reduced, 1 << low), upper), width)

    def pieces(self, a: Poly) -> list[tuple[int, int, Poly]] | None:
        """The disjoint fields of data that a word is put together from: position, bits, value; None for other words."""
        found: list[tuple[int, int, Poly]] = []
        for monomial, c in sorted(a.terms, key=lambda term: term[1] if isinstance(term[1], int) else 0):
            if len(monomial) != 1 or not isinstance(c, int):
                return None
            atom, unsigned = self.atoms[monomial[0]], c & ((1 << a.width) - 1)
            if not atom.bits or unsigned & (unsigned - 1):
                return None
            found.append((unsigned.bit_length() - 1, atom.bits, self.of(atom.bits, atom)))
        found.sort(key=lambda piece: piece[0])
        if any(at + n > other for (at, n, _), (other, _, _) in itertools.pairwise(found)):
            return None
        return found

    def as_field(self, atom: int) -> Field | None:
        found = self.atoms[atom]
        if not found.bits:
            return None
        if found.kind == "field":
            (field,) = found.args
            assert isinstance(field, Field)
            return field
        return Field(atom, 0, found.bits)

    def field_atom(self, atom: int, low: int, count: int) -> Atom:
        field = self.as_field(atom)
        assert field is not None
        base = self.atoms[field.base]
        low += field.low
        if low == 0 and count >= base.bits:
            return base
        count = min(count, base.bits - low)
        return self.atom("field", Field(field.base, low, count), bits=count)

    def may_be_set(self, a: Poly) -> int:
        """The bits that a word can have, for any values."""
        return may_be_set(self, a)

    def is_of_pieces(self, a: Poly) -> bool:
        """The word is put together from fields of data, and from what depends on the thread alone."""
        return is_of_pieces(self, a)

    def lies_apart(self, a: Poly) -> bool:
        """The same, and no bit is in two of these."""
        return lies_apart(self, a)

    def masked(self, a: Poly, mask: int) -> Poly:
        """A word that is one atom, of which it is noted that it has no other bits."""
        atom = self.single(a)
        if atom is not None and atom.bits and mask & ((1 << atom.bits) - 1) != (1 << atom.bits) - 1:
            self.masks[atom.id] = mask
        return a

    def piece_of_joined(self, atom: int, low: int, count: int) -> Poly:
        """Some bits of an and, or, xor of words, over the integers: that of the same bits of both."""
        found = self.atoms[atom]
        if self.bitwise is None or not found.bits:
            return self.of(0, self.field_atom(atom, low, count))
        x, y = (self.field(p, low, count, count) for p in found.args if isinstance(p, Poly))
        return self.unsigned(self.bitwise(found.kind, x, y))

    def disjoint(self, a: Poly, b: Poly) -> bool:
        """No bit is set in both words, for any values."""
        return not may_be_set(self, a) & may_be_set(self, b)

    # -- printing -------------------------------------------------------------------------------------------------
    def text(self, a: Poly, depth: int = 3) -> str:
        """The polynomial as text, for messages."""
        parts: list[str] = []
        for monomial, c in a.terms:
            factor = f"T[{c.low}..{c.high}]" if isinstance(c, Table) else str(c)
            names = "*".join(self.atom_text(self.atoms[i], depth) for i in monomial)
            parts.append(names if names and factor == "1" else f"{factor}*{names}" if names else factor)
        return " + ".join(parts) or "0"

    def atom_text(self, atom: Atom, depth: int) -> str:
        """The atom as text, for messages."""
        if depth == 0:
            return f"{atom.kind}#{atom.id}"
        args = (self.text(a, depth - 1) if isinstance(a, Poly) else str(a)[:40] for a in atom.args)
        return f"{atom.kind}({', '.join(args)})"


def _numbers(c: Coefficient) -> Ints:
    return c.values if isinstance(c, Table) else np.array([signed_int(c, 64)], np.int64)


def _end(c: Coefficient) -> tuple[int, int]:
    return (c.low, c.high) if isinstance(c, Table) else (c, c)


def _in_table(*numbers: int) -> None:
    """Tables hold 64-bit integers: beyond them nothing is known."""
    if any(not -(1 << 63) <= n < 1 << 63 for n in numbers):
        raise OverflowError


def _monomial(term: tuple[Monomial, Coefficient]) -> tuple[int, Monomial]:
    return len(term[0]), term[0]
