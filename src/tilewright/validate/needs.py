"""Proof obligations of the comparison: ranges of integers, and cases that no arguments have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from itertools import islice
from math import gcd
from typing import Concatenate, ParamSpec, TypeAlias

import numpy as np

from tilewright.validate.cases import CaseNode, Cases, Condition, Cut
from tilewright.validate.polynomials import Atom, Coefficient, Field, Ints, Monomial, Poly, Table
from tilewright.validate.regions import Need, Needs
from tilewright.validate.terms import Terms


@dataclass(frozen=True)
class TensorExtents:
    """A tensor argument: extents and strides (in elements) over the integers, bytes of an element."""

    extents: tuple[Poly, ...]
    strides: tuple[Poly, ...]
    bytes: int


P = ParamSpec("P")

Fact: TypeAlias = tuple[Condition, Poly]
"""Where the condition holds, the polynomial is nonnegative."""
Slacks: TypeAlias = "dict[Monomial, list[tuple[Poly, int]]]"
"""Polynomials that are not negative, by each of their terms, with its coefficient."""
Limits: TypeAlias = tuple[Poly, "Coefficient | None", "Coefficient | None"]
"""A quantity, and the least and the greatest that it is."""

STEPS_A_PROOF = 20
"""The cost of proving a bound, in steps of the algebra of conditions."""

DEEPEST = 3
"""Steps that a proof of a bound has, one in another."""
_SHOWN = 1 << 30
"""Above all depths: of a bound that is shown."""

_NO_END = -(1 << 62)
"""Less than every bound that is distinguished."""

MOST_PATHS = 256
"""The most paths of a condition that is shown to be impossible."""


def _if_it_fits(
    proof: Callable[Concatenate[Prover, P], bool],
) -> Callable[Concatenate[Prover, P], bool]:
    """A proof that shows nothing where its numbers leave the 64 bits of a table."""

    @wraps(proof)
    def tried(prover: Prover, *args: P.args, **keywords: P.kwargs) -> bool:
        try:
            return proof(prover, *args, **keywords)
        except OverflowError:
            return False

    return tried


class Prover:
    """Proves needs, from intervals, from conditions, and from what the launch guarantees of tensors. ``facts`` hold
    everywhere."""

    def __init__(
        self, terms: Terms, cases: Cases, tensors: dict[str, TensorExtents], facts: Sequence[Fact], offset_bits: int
    ):
        self.terms, self.cases = terms, cases
        self.tensors, self.offset_bits = tensors, offset_bits
        self._facts = tuple(dict.fromkeys(facts))
        self._depth = DEEPEST
        strides = (self._multiple(stride) for tensor in tensors.values() for stride in tensor.strides)
        self._strides = {found[0] for found in strides if found is not None}
        self._signs: dict[tuple[Poly, Condition], int] = {}
        """``_SHOWN``, or how deeply it was looked for in vain."""
        self._impossible: dict[Condition, bool] = {}
        self._slacks_of: dict[Condition, Slacks] = {}
        self._bounds_of: dict[Condition, list[Limits]] = {}
        self._known: dict[tuple[Poly, int, int | None, Condition], bool] = {}
        self._shown: dict[tuple[Poly, int, int | None], list[Condition]] = {}
        """By need, the conditions under which it is shown."""

    def unproved(self, needs: Needs, holds: Condition, region: Condition) -> Iterator[Need]:
        """The needs that are not shown where ``holds``, or in all of a region."""
        together, holds = holds, self.cases.without_tests(holds)
        region = self.cases.without_tests(region)
        for need in sorted(needs, key=lambda need: need.rank):
            if self.cases.both(together, need.when) == 0:
                continue
            here = self.cases.both(holds, self.cases.without_tests(need.when))
            shown = self._holds(need, here) or self._holds(need, region) or self.impossible(here)
            if not shown and not self._by_more_steps(need, here):
                yield need

    def _holds(self, need: Need, holds: Condition) -> bool:
        if holds == 0:
            return True
        key = (need.value, need.low, need.high, holds)
        found = self._known.get(key)
        if found is None:
            shown = self._shown.setdefault(key[:3], [])
            found = any(self.cases.implies(holds, known) for known in shown)
            if not found:
                ways = dict.fromkeys((need, self._reduced(need)))
                found = any(self._proved(way, holds) for way in ways)
                if found:
                    shown.append(holds)
            self._known[key] = found
        return found

    def _by_more_steps(self, need: Need, holds: Condition) -> bool:
        """A proof that has one step more than others."""
        self._depth = DEEPEST + 1
        found = self._proved(need, holds)
        self._depth = DEEPEST
        return found

    def _reduced(self, need: Need) -> Need:
        """The same of a value divided by what all of it is a multiple of."""
        common = 0
        for _, c in need.value.terms:
            common = gcd(common, c if isinstance(c, int) else int(np.gcd.reduce(c.values)))
        if common <= 1:
            return need
        high = None if need.high is None else need.high // common
        return replace(need, value=self.terms.floordiv(need.value, common), low=-(-need.low // common), high=high)

    def _proved(self, need: Need, holds: Condition) -> bool:
        """By the bounds, or as an offset in a tensor: that first which the value looks like."""
        proofs = [self._in_range]
        if need.low <= -(1 << 31) and (need.high is None or need.high >= (1 << 31) - 1):
            strided = any(i in self._strides for monomial, _ in need.value.terms for i in monomial)
            proofs.insert(0 if strided else 1, lambda need, holds: self._offset(need.value, holds))
        return any(proof(need, holds) for proof in proofs)

    @_if_it_fits
    def _in_range(self, need: Need, holds: Condition) -> bool:
        terms = self.terms
        low, high = terms.interval(need.value)
        if (low is None or low < need.low) and not self.not_negative(
            terms.sub(need.value, terms.const(0, need.low)), holds
        ):
            return False
        if need.high is None or (high is not None and high <= need.high):
            return True
        if need.high >= 1 << 63 and any(isinstance(c, Table) for _, c in need.value.terms):
            return False  # beyond the numbers of a table
        return self.not_negative(terms.sub(terms.const(0, need.high), need.value), holds)

    @_if_it_fits
    def not_negative(self, p: Poly, holds: Condition, depth: int | None = None) -> bool:
        """p >= 0 where ``holds``: by its bounds, by the condition, by one quantity of it, or by floor division."""
        depth = self._depth if depth is None else depth
        if any(isinstance(c, Table) for _, c in p.terms):
            threads = self.cases.threads(holds)
            p = self.terms.make(0, {m: self.cases.among(c, threads) for m, c in p.terms})
        p = self._in_whole_steps(p)
        low, _ = self.terms.interval(p)
        if low is not None and low >= 0:
            return True
        if depth == 0:
            return False
        key = (p, holds)
        tried = self._signs.get(key, 0)
        if tried < depth:
            self.terms.spend(STEPS_A_PROOF)
            found = (
                self.cases.implies(holds, self.cases.not_negative(p))
                or self._by_minimum(p, holds, depth)
                or self._by_division(p, holds, depth)
                or self._by_quotient(p, holds, depth)
                or self._by_factor(p, holds)
                or self._by_part(p, holds, depth)
                or self._by_slack(p, holds, depth)
                or self._by_product(p, holds, depth)
            )
            tried = self._signs[key] = _SHOWN if found else depth
        return tried == _SHOWN

    def _in_whole_steps(self, p: Poly) -> Poly:
        """A polynomial that is not negative if and only if p is, with the greatest constant: for an integer q,
        g q + c >= 0 says as much for every c between two multiples of g."""
        content, constant = 0, 0
        for monomial, c in p.terms:
            if not isinstance(c, int):
                return p
            if monomial == ():
                constant = c
            else:
                content = gcd(content, c)
        spare = content - 1 - constant % content if content > 1 else 0
        return self.terms.add(p, self.terms.const(0, spare)) if spare else p

    def _by_slack(self, p: Poly, holds: Condition, depth: int) -> bool:
        """p = k s + rest, where s is known not to be negative, k > 0, and the rest is not negative.

        ``s`` takes a negative term out of p; where there is none, a positive one, for the sake of the constant.
        """
        terms = [(m, c) for m, c in p.terms if m != () and isinstance(c, int)]
        negative = [(m, c) for m, c in terms if c < 0]
        for monomial, c in negative or terms:
            known = self._slacks(holds).get(monomial, ())
            beside = (
                *self._of_quotient(monomial),
                *self._of_field(monomial),
                *self._of_product(monomial),
                *self._of_multiple(monomial, holds, depth),
            )
            for slack, d in (*known, *beside):
                if c * d <= 0 or (c % d and d % c):
                    continue
                left = self._in_whole_steps(self.terms.scale(p, max(1, d // c)))  # not negative where p is not
                if self.not_negative(self.terms.sub(left, self.terms.scale(slack, max(1, c // d))), holds, depth - 1):
                    return True
        return False

    def _of_quotient(self, monomial: Monomial) -> list[tuple[Poly, int]]:
        """0 <= p - n floor(p / n) <= n - 1, of a monomial that is such a quotient."""
        quotient = self.terms.quotient(monomial)
        if quotient is None:
            return []
        numerator, n = quotient
        residue = self.terms.sub(numerator, self.terms.make(0, {monomial: n}))
        return [(residue, -n), (self.terms.sub(self.terms.const(0, n - 1), residue), n)]

    def _of_multiple(self, monomial: Monomial, holds: Condition, depth: int) -> list[tuple[Poly, int]]:
        """0 <= x - d floor(x / d) <= d - 1, of a monomial that is d floor(x / d), where d is an atom and 1 or more."""
        for i in monomial if len(monomial) == 2 else ():
            atom = self.terms.atoms[i]
            x, d = atom.args if atom.kind == "div" else (None, None)
            if not isinstance(x, Poly) or not isinstance(d, Poly) or self.terms.single(d) is None:
                continue
            if sorted((*d.terms[0][0], i)) != sorted(monomial):
                continue
            if self.not_negative(self.terms.sub(d, self.terms.const(0, 1)), holds, depth - 1):
                rest = self.terms.sub(x, self.terms.make(0, {monomial: 1}))
                return [(rest, -1), (self.terms.sub(self.terms.sub(d, self.terms.const(0, 1)), rest), 1)]
        return []

    def _of_field(self, monomial: Monomial) -> list[tuple[Poly, int]]:
        """Bits of a word are not more than all of the word from the same bit on."""
        atom = self.terms.atoms[monomial[0]]
        if len(monomial) != 1 or atom.kind != "field":
            return []
        (field,) = atom.args
        assert isinstance(field, Field)
        whole = self.terms.field_atom(field.base, field.low, self.terms.atoms[field.base].bits - field.low)
        return [] if whole is atom else [(self.terms.sub(self.terms.of(0, whole), self.terms.of(0, atom)), -1)]

    def _of_product(self, monomial: Monomial) -> list[tuple[Poly, int]]:
        """a b <= a, where a is not negative and b is 1 at most."""
        atoms = [self.terms.atoms[i] for i in monomial] if len(monomial) == 2 else []
        pairs = zip(atoms, reversed(atoms), strict=True)
        wholes = [(a.id,) for a, b in pairs if a.low is not None and a.low >= 0 and b.high is not None and b.high <= 1]
        return [(self.terms.make(0, {whole: 1, monomial: -1}), -1) for whole in wholes]

    def _slacks(self, holds: Condition) -> Slacks:
        """Polynomials that are not negative where the condition holds, by their terms."""
        found = self._slacks_of.get(holds)
        if found is None:
            known = (p for condition, p in self._facts if self.cases.implies(holds, condition))
            found = self._slacks_of[holds] = _by_term([*self._said(holds), *known])
        return found

    def _said(self, holds: Condition) -> list[Poly]:
        """The polynomials that a condition states to be nonnegative."""
        listed: list[Poly] = []
        for quantity, low, high in self._limits(holds):
            if low is not None:
                listed.append(self.terms.sub(quantity, self.terms.make(0, {(): low})))
            if high is not None:
                listed.append(self.terms.sub(self.terms.make(0, {(): high}), quantity))
        return listed

    def _limits(self, holds: Condition) -> list[Limits]:
        """The bounds of each quantity of a condition."""
        if isinstance(holds, int):
            return []
        found = self._bounds_of.get(holds)
        if found is None:
            found = self._limits_of_path(holds)
        if found is None:
            found = list[Limits]()
            known, stack = {holds.id: holds}, [holds]
            while stack:
                for child in stack.pop().children:
                    if not isinstance(child, int) and child.id not in known:
                        known[child.id] = child
                        stack.append(child)
            cuts: dict[int, set[Cut]] = {}
            for node in known.values():
                cuts.setdefault(node.quantity, set()).update(node.cuts)
            for number, values in cuts.items():
                found.append((self.cases.quantities[number], *self._ends(holds, number, values)))
        self._bounds_of[holds] = found
        return found

    def _ends(self, holds: Condition, number: int, cuts: set[Cut]) -> tuple[Coefficient | None, Coefficient | None]:
        """The least and the greatest of a quantity that a condition admits for each thread; None without a bound."""
        cases, quantity = self.cases, self.cases.quantities[number]
        live = cases.mask(cases.threads(holds))
        least, most = np.full(live.shape, _NO_END), np.full(live.shape, -_NO_END)
        for cut in cuts:
            if isinstance(cut, int) and abs(cut) >= -_NO_END:
                continue
            reached = cases.reaches(quantity, cut)
            values = cut.values if isinstance(cut, Table) else np.full(live.shape, cut)
            below = cases.mask(cases.threads(cases.without(holds, reached)))
            above = cases.mask(cases.threads(cases.both(holds, reached)))
            least = np.where(below, least, np.maximum(least, values))
            most = np.where(above, most, np.minimum(most, values - 1))
        return self._ended(least, live, _NO_END), self._ended(most, live, -_NO_END)

    def _ended(self, ends: Ints, live: np.ndarray, none: int) -> Coefficient | None:
        """Bounds of every thread that matters, where each of these has one."""
        return None if (ends == none)[live].any() else self.terms.coefficient(0, np.where(live, ends, ends[live][0]))

    def _limits_of_path(self, holds: CaseNode) -> list[Limits] | None:
        """The same, read off a condition that has one piece of each quantity; None for others."""
        found: list[Limits] = []
        threads = self.cases.threads(holds)
        node: Condition = holds
        while not isinstance(node, int):
            pieces = [i for i, child in enumerate(node.children) if child != 0]
            if len(pieces) > 1:
                return None
            low, high = pieces[0] - 1, pieces[0]
            least = self.cases.among(node.cuts[low], threads) if low >= 0 else None
            most = self.cases.among(node.cuts[high], threads) if high < len(node.cuts) else None
            found.append((self.cases.quantities[node.quantity], least, None if most is None else self._before(most)))
            node = node.children[pieces[0]]
        return found

    def _before(self, cut: Cut) -> Cut:
        return cut - 1 if isinstance(cut, int) else self.terms.coefficient(0, cut.values - 1)

    def _by_minimum(self, p: Poly, holds: Condition, depth: int) -> bool:
        """min(a, b) + r is not negative if a + r and b + r are, max(a, b) + r if one is; negated the other way."""
        for monomial, c in p.terms:
            if len(monomial) != 1 or not isinstance(c, int):
                continue
            atom = self.terms.atoms[monomial[0]]
            if atom.kind not in ("min", "max"):
                continue
            rest = self.terms.make(0, {m: k for m, k in p.terms if m != monomial})
            among = [x for x in atom.args if isinstance(x, Poly) and not self._is_beside(x, atom, holds)]
            sides = [self.terms.add(self.terms.scale(x, c), rest) for x in among]
            needed = all if (atom.kind, c > 0) in (("min", True), ("max", False)) else any
            if needed(self.not_negative(side, holds, depth - 1) for side in sides):
                return True
        return False

    def _is_beside(self, x: Poly, atom: Atom, holds: Condition) -> bool:
        """The condition says that ``x`` is above the least, or below the greatest, of which it is one: another one is
        that."""
        extreme = self.terms.of(0, atom)
        apart = self.terms.sub(x, extreme) if atom.kind == "min" else self.terms.sub(extreme, x)
        return self.cases.implies(holds, self.cases.at_least(apart, 1))

    def _by_division(self, p: Poly, holds: Condition, depth: int) -> bool:
        """r - g floor(x / d) >= 1 if r d - g x >= 1 and d >= 1."""
        one = self.terms.const(0, 1)
        for monomial, c in p.terms:
            if len(monomial) != 1 or not isinstance(c, int) or c >= 0:
                continue
            atom = self.terms.atoms[monomial[0]]
            if atom.kind != "div":
                continue
            x, d = atom.args
            assert isinstance(x, Poly)
            assert isinstance(d, Poly)
            r = self.terms.add(self.terms.make(0, {m: k for m, k in p.terms if m != monomial}), one)
            apart = self.terms.add(self.terms.mul(r, d), self.terms.scale(x, c))
            if self.not_negative(self.terms.sub(apart, one), holds, depth - 1) and self.not_negative(
                self.terms.sub(d, one), holds, depth - 1
            ):
                return True
        return False

    def _by_quotient(self, p: Poly, holds: Condition, depth: int) -> bool:
        """r - g floor(x / n) >= 0 if r - g floor(y / n) >= 0, for a number n >= 1 and the greatest y that the condition
        leaves x, where that is less than x can be without it."""
        for monomial, c in p.terms:
            atom = self.terms.atoms[monomial[0]] if len(monomial) == 1 else None
            if atom is None or atom.kind != "fdiv" or not isinstance(c, int) or c >= 0:
                continue
            x, n = atom.args
            assert isinstance(x, Poly)
            assert isinstance(n, int)
            greatest = self._greatest(x, holds)
            if greatest is not None and (atom.high is None or greatest // n < atom.high):
                rest = self.terms.make(0, {m: k for m, k in p.terms if m != monomial})
                least = self.terms.add(rest, self.terms.const(0, c * (greatest // n)))
                if self.not_negative(least, holds, depth - 1):
                    return True
        return False

    def _by_part(self, p: Poly, holds: Condition, depth: int) -> bool:
        """x - t >= 0 if floor(x / n) >= ceil(t / n), for a quotient that the condition names."""
        if sum(m != () for m, _ in p.terms) != 1:
            return False
        for i in sorted({i for q in self.cases.quantities_of(holds) for m, _ in q.terms for i in m}):
            quotient = self.terms.quotient((i,))
            if quotient is None:
                continue
            x, n = quotient
            t = self.terms.number(self.terms.sub(x, p))
            if t is not None:
                parts = self.terms.sub(self.terms.of(0, self.terms.atoms[i]), self.terms.const(0, -(-t // n)))
                if self.not_negative(parts, holds, depth - 1):
                    return True
        return False

    def _greatest(self, x: Poly, holds: Condition) -> int | None:
        """The greatest that a condition leaves what it names, and what a number is added to; None without a bound."""
        found: list[int] = []
        for quantity, _, high in self._limits(holds):
            more = self.terms.number(self.terms.sub(x, quantity))
            if isinstance(high, int) and more is not None:
                found.append(high + more)
        return min(found, default=None)

    def _by_product(self, p: Poly, holds: Condition, depth: int) -> bool:
        """r - a >= 0 if r - a b >= 0, b >= 1 and a >= 0, for products that something is known of."""
        one = self.terms.const(0, 1)
        for monomial, c in p.terms:
            if not monomial or not isinstance(c, int) or c >= 0:
                continue
            if any((self.terms.atoms[i].low or -1) < 0 and self.terms.atoms[i].low != 0 for i in monomial):
                continue
            for larger in self._larger(monomial, holds):
                extra = list(larger)
                for i in monomial:
                    extra.remove(i)
                factors = (self.terms.sub(self.terms.of(0, self.terms.atoms[i]), one) for i in extra)
                if not all(self.not_negative(f, holds, depth - 1) for f in factors):
                    continue
                smaller = dict(p.terms)
                del smaller[monomial]
                moved = self.terms.add(self.terms.make(0, smaller), self.terms.make(0, {larger: c}))
                if self.not_negative(moved, holds, depth - 1):
                    return True
        return False

    def _larger(self, monomial: Monomial, holds: Condition) -> list[Monomial]:
        """Products with more factors that something is known to bound from above."""
        return [
            m
            for m, slacks in self._slacks(holds).items()
            if len(m) > len(monomial)
            and all(m.count(i) >= monomial.count(i) for i in monomial)
            and any(d < 0 for _, d in slacks)
        ]

    def _by_factor(self, p: Poly, holds: Condition) -> bool:
        """a >= 1 for a that is not negative, where the condition says a b >= 1 + y with b and y not negative."""
        terms = self.terms
        constant = next((c for m, c in p.terms if m == ()), 0)
        rest = [(m, c) for m, c in p.terms if m != ()]
        if len(rest) != 1 or not isinstance(rest[0][1], int) or not isinstance(constant, int) or len(rest[0][0]) != 1:
            return False
        ((monomial, c),) = rest
        low = terms.atoms[monomial[0]].low
        if not isinstance(c, int) or c <= 0 or c + constant < 0 or low is None or low < 0:
            return False
        both = [(q, low) for q, low, _ in self._limits(holds)]
        both += [(terms.scale(q, -1), high) for q, _, high in self._limits(holds)]
        for quantity, least in both:
            if least is None or not self.cases.implies(holds, self.cases.at_least(quantity, 1)):
                continue
            product = {m: k for m, k in quantity.terms if monomial[0] in m}
            others = terms.make(0, {m: k for m, k in quantity.terms if m not in product})
            most = terms.interval(others)[1]
            if not product or most is None or most > 0:
                continue
            cofactor = {
                tuple(i for i in m if i != monomial[0]): k for m, k in product.items() if m.count(monomial[0]) == 1
            }
            least_cofactor = terms.interval(terms.make(0, cofactor))[0]
            if len(cofactor) == len(product) and least_cofactor is not None and least_cofactor >= 0:
                return True
        return False

    def _offset(self, value: Poly, holds: Condition) -> bool:
        """The value is the offset, in elements, of an element of a tensor, all of which fit, or of what would lie
        before the first one of a row. Tensors of whose strides it is a sum are tried first."""
        if self.offset_bits != 31:
            return False
        factors = _factors_of(m for m, _ in value.terms)
        likely = sorted(
            self.tensors.values(),
            key=lambda tensor: all(factors.isdisjoint(_factors_of(m for m, _ in s.terms)) for s in tensor.strides),
        )
        return any(self._inside(tensor, value, holds) or self._before_row(tensor, value, holds) for tensor in likely)

    @_if_it_fits
    def _before_row(self, tensor: TensorExtents, value: Poly, holds: Condition) -> bool:
        """``-2**31 <= c < extent`` for the coordinate c along the dense axis, and an element where c is 0: the offset
        is that of an element, or lies before the first one of a row."""
        units = [axis for axis, stride in enumerate(tensor.strides) if self.terms.number(stride) == 1]
        if len(units) != 1:
            return False
        (unit,), terms = units, self.terms
        for coordinates in self._coordinates_of(tensor, value, holds):
            c = coordinates[unit]
            least = terms.add(c, terms.const(0, 1 << 31))
            last = terms.sub(terms.sub(tensor.extents[unit], terms.const(0, 1)), c)
            first = [terms.const(0, 0) if axis == unit else x for axis, x in enumerate(coordinates)]
            if (
                self.not_negative(last, holds)
                and self.not_negative(least, holds)
                and self._in_extents(tensor, first, holds)
            ):
                return True
        return False

    @_if_it_fits
    def _inside(self, tensor: TensorExtents, value: Poly, holds: Condition) -> bool:
        return any(self._in_extents(tensor, found, holds) for found in self._coordinates_of(tensor, value, holds))

    def _coordinates_of(self, tensor: TensorExtents, value: Poly, holds: Condition) -> Iterator[list[Poly]]:
        """An offset as coordinates."""
        found = self._by_numbers(tensor, value) or self.coordinates(tensor, value)
        if found is not None:
            yield found
        if len(tensor.strides) == 2 and self.terms.number(tensor.strides[1]) == 1:
            row = self._row_divided(tensor.strides[0], holds) or self._row_in_quotient(tensor.strides[0], value)
            if row is not None:
                yield [row, self.terms.sub(value, self.terms.mul(tensor.strides[0], row))]

    def _in_extents(self, tensor: TensorExtents, coordinates: list[Poly], holds: Condition) -> bool:
        one = self.terms.const(0, 1)
        for coordinate, extent in zip(coordinates, tensor.extents, strict=True):
            last = self.terms.sub(self.terms.sub(extent, one), coordinate)
            if not self.not_negative(coordinate, holds) or not self.not_negative(last, holds):
                return False
        return True

    def _row_divided(self, stride: Poly, holds: Condition) -> Poly | None:
        """The row of an offset in a matrix whose rows are a multiple of what the condition divides by: one for each
        time that the divisor is in x, for the x // d of a condition."""
        used = {i for quantity in self.cases.quantities_of(holds) for monomial, _ in quantity.terms for i in monomial}
        for atom in (self.terms.atoms[i] for i in sorted(used) if self.terms.atoms[i].kind == "div"):
            divisor = atom.args[1]
            assert isinstance(divisor, Poly)
            if len(divisor.terms) == 1 == len(stride.terms) and divisor.terms[0][0] == stride.terms[0][0]:
                return self.terms.of(0, atom)
        return None

    def _row_in_quotient(self, stride: Poly, value: Poly) -> Poly | None:
        """The row of an offset that is counted from a boundary before it: what is multiplied with the stride in p, of a
        multiple n floor(p / n) in the sum."""
        if len(stride.terms) != 1 or len(stride.terms[0][0]) != 1:
            return None
        for monomial, c in value.terms:
            quotient = self.terms.quotient(monomial)
            if quotient is None or c != quotient[1]:
                continue
            rows = {_without(m, stride.terms[0][0]): k for m, k in quotient[0].terms}
            rows.pop(None, None)
            if rows:
                return self.terms.make(0, {m: k for m, k in rows.items() if m is not None})
        return None

    def _by_numbers(self, tensor: TensorExtents, value: Poly) -> list[Poly] | None:
        """Coordinates of an offset in a tensor whose strides are numbers, each a part of the one before."""
        found: list[Poly] = []
        for stride in tensor.strides:
            step = self.terms.number(stride)
            if step is None or step < 1:
                return None
            found.append(self.terms.floordiv(value, step))
            value = self.terms.sub(value, self.terms.scale(found[-1], step))
        return found if self.terms.number(value) == 0 else None

    def coordinates(self, tensor: TensorExtents, value: Poly) -> list[Poly] | None:
        """A value as a sum of coordinates times the tensor's strides; None if it is none, or has strides of others."""
        terms = self.terms
        rest = dict(value.terms)
        found = [terms.const(0, 0)] * len(tensor.strides)
        unit: int | None = None
        for axis, stride in sorted(enumerate(tensor.strides), key=lambda item: -_factors(item[1])):
            if terms.number(stride) == 1:
                unit = axis
                continue
            ((atoms, factor), *more) = stride.terms or (((), 0),)
            if more or not atoms or not isinstance(factor, int):
                return None
            part: dict[Monomial, Coefficient] = {}
            for monomial, c in list(rest.items()):
                others = _without(monomial, atoms)
                if others is not None:
                    share = self._share(c, factor)
                    if share is None:
                        return None
                    part[others] = share
                    del rest[monomial]
            found[axis] = terms.make(0, part)
        if not self._strides.isdisjoint(_factors_of(rest)):  # but where they are counted from a boundary
            quotients = (quotient[0] for monomial in rest if (quotient := terms.quotient(monomial)))
            bounded = {i for numerator in quotients for i in _factors_of(m for m, _ in numerator.terms)}
            if not self._strides & _factors_of(rest) <= bounded:
                return None
        if unit is not None:
            found[unit] = terms.make(0, rest)
        elif rest:
            return None
        return found

    def _multiple(self, stride: Poly) -> tuple[int, int] | None:
        """The atom that a stride is a multiple of, and the factor."""
        if len(stride.terms) != 1 or len(stride.terms[0][0]) != 1:
            return None
        (atom,), factor = stride.terms[0]
        return (atom, factor) if isinstance(factor, int) else None

    def _share(self, c: Coefficient, factor: int) -> Coefficient | None:
        """A coefficient divided by a factor of it."""
        if factor == 1:
            return c
        if isinstance(c, int):
            return None if c % factor else c // factor
        return None if (c.values % factor).any() else self.terms.coefficient(0, c.values // factor)

    @_if_it_fits
    def readable(self, tensor: str, offset: Poly, size: int, holds: Condition) -> bool:
        """The bytes at ``offset`` lie in an element of the tensor."""
        found = self.tensors.get(tensor)
        if found is None or size != found.bytes:
            return False
        if any(isinstance(c, int) and c % size for _, c in offset.terms):
            return False
        return self._inside(found, self.terms.floordiv(offset, size), holds)

    def equal(self, a: Poly, b: Poly, holds: Condition) -> bool:
        """Two integers are equal where a condition holds: neither is greater. Those that differ by other numbers of
        different threads are not looked into."""
        apart = self.terms.sub(a, b)
        if any(isinstance(c, Table) for _, c in apart.terms):
            return False
        holds = self.cases.without_tests(holds)
        return self.not_negative(apart, holds) and self.not_negative(self.terms.scale(apart, -1), holds)

    def impossible(self, holds: Condition) -> bool:
        """No arguments of the class fulfil the condition: on every path of it, something never negative is.

        Tests of data may give anything: what is impossible is so for all that they give.
        """
        holds = self.cases.without_tests(holds)
        found = self._impossible.get(holds)
        if found is None:
            found = self._impossible[holds] = all(map(self._contradicts_itself, self._paths(holds)))
        return found

    def never(self, holds: Condition) -> Condition:
        """The paths of a condition, without its tests of data, that no arguments of the class fulfil."""
        paths = self._paths(self.cases.without_tests(holds))
        return self.cases.any(path for path in paths if self._contradicts_itself(path))

    def _paths(self, holds: Condition) -> list[Condition]:
        """The paths of a condition; where these are many those of what it says whatever data is, or, where these are,
        everything as one."""
        for weaker in (lambda: holds, lambda: self.cases.without_data(holds)):
            paths = list(islice(self.cases.paths(weaker()), MOST_PATHS + 1))
            if len(paths) <= MOST_PATHS:
                return paths
        return [self.cases.true]

    @_if_it_fits
    def _contradicts_itself(self, path: Condition) -> bool:
        minus_one = self.terms.const(0, -1)
        return any(self.not_negative(self.terms.sub(minus_one, slack), path) for slack in self._said(path))


def _factors(stride: Poly) -> int:
    """The number of variables multiplied in a stride."""
    return max((len(monomial) for monomial, _ in stride.terms), default=0)


def _factors_of(monomials: Iterable[Monomial]) -> set[int]:
    return {i for monomial in monomials for i in monomial}


def _without(monomial: Monomial, atoms: Monomial) -> Monomial | None:
    """A product without some of its factors; None if it lacks one of them."""
    left = list(monomial)
    for atom in atoms:
        if atom not in left:
            return None
        left.remove(atom)
    return tuple(left)


def _by_term(slacks: Sequence[Poly]) -> Slacks:
    found: Slacks = {}
    for slack in dict.fromkeys(slacks):
        for monomial, c in slack.terms:
            if monomial != () and isinstance(c, int):
                found.setdefault(monomial, []).append((slack, c))
    return found
