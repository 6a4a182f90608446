"""Conditions in one normal form: for every thread, which integers of which quantities.

A comparison of two values says of one quantity (a polynomial without its constant and its per-thread part) that it
reaches a threshold, which may differ from thread to thread. A condition is a decision diagram over quantities: a node
cuts the integers at its thresholds and has a child for every piece; a leaf is a set of threads as the bits of an
integer. Thresholds stay one cut for all threads while their order is the same for every thread. Equal conditions on
independent quantities are one object, so that equality is identity, and ``p or not p`` is true without a proof.
(Multi-valued decision diagrams: Srinivasan, Ham, Malik, Brayton, ICCAD 1990.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from math import gcd
from typing import TypeAlias, cast

import numpy as np

from tilewright.validate.polynomials import Coefficient, Field, Ints, Monomial, Poly, Table
from tilewright.validate.terms import Terms

LEAST_QUOTIENT_BITS = 16
"""The least width of the upper bits of a loaded word that are treated as a coordinate; narrower ones are data."""


class CaseNode:
    """``children[i]`` holds where the quantity lies in ``[cuts[i-1], cuts[i])``. Interned."""

    __slots__ = ("children", "cuts", "id", "quantity")

    def __init__(self, id: int, quantity: int, cuts: tuple[Cut, ...], children: tuple[Condition, ...]):
        self.id, self.quantity, self.cuts, self.children = id, quantity, cuts, children


Condition: TypeAlias = "int | CaseNode"
Cut: TypeAlias = "int | Table"
Piece: TypeAlias = tuple[tuple[Condition, Condition, Condition], ...]
"""The interval between two cuts: its threads, and the values of both conditions."""


def _values(cut: Cut) -> Ints:
    return cut.values if isinstance(cut, Table) else np.array([cut], np.int64)


def _beyond_tables(cut: Cut) -> int:
    """1 or -1 for a number above or below all that a table holds, else 0."""
    if not isinstance(cut, int):
        return 0
    return int(cut >= 1 << 63) - int(cut < -(1 << 63))


NARROW = 32
"""Data of fewer bits is extended before it is compared."""


class Cases:
    """All conditions of one kernel."""

    def __init__(self, terms: Terms):
        self.terms = terms
        self.true: Condition = (1 << terms.threads) - 1
        self.quantities: list[Poly] = []
        self._quantity_ids: dict[Poly, int] = {}
        self._nodes: dict[tuple[object, ...], CaseNode] = {}
        self._both: dict[tuple[Condition, Condition], Condition] = {}
        self._implies: dict[tuple[Condition, Condition], bool] = {}
        self._either: dict[tuple[Condition, Condition], Condition] = {}
        self._given_of: dict[tuple[Condition, Condition], Condition] = {}
        self._signs: dict[Poly, Condition] = {}
        self._remainders: list[tuple[Poly, int, int]] = []
        self._kept: set[Monomial] = set()
        """Quotients in terms of which remainders are expressed, so that comparisons of both use the same terms."""
        self._notes = 0
        self._negated: dict[CaseNode, Condition] = {}
        self._threads: dict[CaseNode, int] = {}
        self._tests: dict[CaseNode, bool] = {}
        self._untested: dict[CaseNode, Condition] = {}
        self._masks: dict[int, np.ndarray] = {}
        self._lesser: dict[tuple[Cut, Cut], Condition] = {}
        self._orders: dict[tuple[Cut, Cut], int | None] = {}

    # -- algebra --------------------------------------------------------------------------------------------------
    def both(self, a: Condition, b: Condition) -> Condition:
        """a and b."""
        if a is b:
            return a
        if isinstance(a, int):
            if isinstance(b, int):
                return a & b
            a, b = b, a
        if isinstance(b, int):
            if b == 0 or b == self.true:
                return a if b else 0
            threads = self._threads.get(a) or self.threads(a)
            if threads & b in (0, threads):
                return a if threads & b else 0
        elif b.id < a.id:
            a, b = b, a
        found = self._both.get((a, b))
        if found is None:
            found = self._both[a, b] = self._combined(self.both, a, b)
        return found

    def either(self, a: Condition, b: Condition) -> Condition:
        """a or b."""
        if a is b:
            return a
        if isinstance(a, int):
            if isinstance(b, int):
                return a | b
            a, b = b, a
        if isinstance(b, int):
            if b == 0 or b == self.true:
                return b or a
        elif b.id < a.id:
            a, b = b, a
        found = self._either.get((a, b))
        if found is None:
            found = self._either[a, b] = self._combined(self.either, a, b)
        return found

    def differ(self, a: Condition, b: Condition) -> Condition:
        """The condition that exactly one of the two holds."""
        if isinstance(a, int) and isinstance(b, int):
            return a ^ b
        return self.either(self.without(a, b), self.without(b, a))

    def negate(self, a: Condition) -> Condition:
        """not a."""
        if isinstance(a, int):
            assert isinstance(self.true, int)
            return a ^ self.true
        found = self._negated.get(a)
        if found is None:
            found = self._negated[a] = self._node(a.quantity, a.cuts, [self.negate(c) for c in a.children])
        return found

    def without(self, a: Condition, b: Condition) -> Condition:
        """a and not b."""
        return self.both(a, self.negate(b))

    def implies(self, a: Condition, b: Condition) -> bool:
        """b holds wherever a does: where ``without(a, b)`` is 0, of which nothing is made."""
        if a is b or b == self.true:
            return True
        if isinstance(b, int):
            return self.threads(a) & ~b == 0
        if isinstance(a, int) and a == 0:
            return True
        found = self._implies.get((a, b))
        if found is None:
            self.terms.spend(1)
            found = self._implies[a, b] = self._implied(a, b)
        return found

    def _implied(self, a: Condition, b: CaseNode) -> bool:
        """The same piece by piece; empty pieces need nothing."""
        if isinstance(a, int) or b.quantity < a.quantity:
            cuts, pairs = b.cuts, [(a, child) for child in b.children]
        elif a.quantity < b.quantity:
            cuts, pairs = a.cuts, [(child, b) for child in a.children]
        else:
            aligned = self._aligned(a, b)
            if aligned is None:
                return self.without(a, b) == 0
            cuts, pairs = aligned
        last = len(cuts)
        for i, (here, there) in enumerate(pairs):
            if self.implies(here, there):
                continue
            some = self._below(cuts[i - 1], cuts[i]) if 0 < i < last else self.true
            if some == self.true or not self.implies(self.both(here, some), there):
                return False
        return True

    def all(self, conditions: Iterable[Condition]) -> Condition:
        """The conjunction."""
        total = self.true
        for condition in conditions:
            total = self.both(total, condition)
        return total

    def any(self, conditions: Iterable[Condition]) -> Condition:
        """The disjunction."""
        total: Condition = 0
        for condition in conditions:
            total = self.either(total, condition)
        return total

    def given(self, a: Condition, known: Condition) -> Condition:
        """A condition that says the same as ``a`` where ``known`` holds, without saying again what is known (the
        restriction of decision diagrams: Coudert, Madre, ICCAD 1990)."""
        if known == self.true or a in (0, self.true):
            return a
        if isinstance(a, int) and isinstance(known, int):
            return 0 if a & known == 0 else self.true if known & ~a == 0 else a & known
        key = (a, known)
        found = self._given_of.get(key)
        if found is None:
            self.terms.spend(1)
            found = self._given_of[key] = self._given(a, known)
        return found

    def _given(self, a: Condition, known: Condition) -> Condition:
        if isinstance(a, int):
            return self.given(a, self.threads(known))
        if isinstance(known, CaseNode) and known.quantity < a.quantity:
            return self.given(a, self.any(known.children))
        if isinstance(known, int) or a.quantity < known.quantity:
            return self._node(a.quantity, a.cuts, [self.given(child, known) for child in a.children])
        aligned = self._aligned(a, known)
        if aligned is None:
            return a
        cuts, pairs = aligned
        some = [self.true, *(self._below(cut, after) for cut, after in pairwise(cuts)), self.true]
        children = [
            None if self.both(there, threads) == 0 else self.given(here, there)
            for threads, (here, there) in zip(some, pairs, strict=True)
        ]
        first = next((child for child in children if child is not None), 0)
        filled: list[Condition] = []
        for child in children:  # where nothing is asked, what is said beside it
            filled.append(child if child is not None else filled[-1] if filled else first)
        return self._node(a.quantity, cuts, filled)

    def threads(self, a: Condition) -> int:
        """The threads for which a condition can hold."""
        if isinstance(a, int):
            return a
        found = self._threads.get(a)
        if found is None:
            found = 0
            for child in a.children:
                found |= self.threads(child)
            self._threads[a] = found
        return found

    def rebuilt(self, a: Condition, remake: Callable[[CaseNode, list[Condition]], Condition]) -> Condition:
        """A condition made again from its leaves: ``remake`` gets each node with what its children became."""
        memo: dict[CaseNode, Condition] = {}

        def walk(node: Condition) -> Condition:
            if isinstance(node, int):
                return node
            found = memo.get(node)
            if found is None:
                found = memo[node] = remake(node, [walk(child) for child in node.children])
            return found

        return walk(a)

    def with_children(self, a: CaseNode, children: Sequence[Condition]) -> Condition:
        """The same cuts of the same quantity, with other conditions between them."""
        return self.between([self._node(a.quantity, (cut,), [0, self.true]) for cut in a.cuts], children)

    def between(self, reached: Sequence[Condition], children: Sequence[Condition]) -> Condition:
        """The first of ``children`` until the first of ``reached`` holds, from there the next one, and so on."""
        total = children[0]
        for here, child in zip(reached, children[1:], strict=True):
            total = self.either(self.both(total, self.negate(here)), self.both(child, here))
        return total

    def tests_data(self, a: Condition) -> bool:
        """Whether a condition depends on a test of data."""
        if isinstance(a, int):
            return False
        found = self._tests.get(a)
        if found is None:
            found = self.is_test(self.quantities[a.quantity]) or any(map(self.tests_data, a.children))
            self._tests[a] = found
        return found

    def is_test(self, quantity: Poly) -> bool:
        """Whether a quantity is a word of data, or what a test of data gives."""
        atom = self.terms.single(quantity)
        return atom is not None and (atom.bits > 0 or atom.kind.startswith("test."))

    def _is_loaded(self, quantity: Poly) -> bool:
        """Whether a quantity is a whole word of memory, which may be a coordinate or bound others, or a quotient of one
        by a power of two."""
        atom = self.terms.single(quantity)
        field = atom.args[0] if atom is not None and atom.kind == "field" else None
        if isinstance(field, Field):
            atom = self.terms.atoms[field.base]
            if field.low + field.count < atom.bits or field.count < LEAST_QUOTIENT_BITS:
                return False
        return atom is not None and atom.kind.startswith("ld.") and atom.bits >= 32

    def without_tests(self, a: Condition) -> Condition:
        """What a condition says of integers, whatever the tests of data in it give. Words that are loaded are
        integers."""
        if not self.tests_data(a) or isinstance(a, int):
            return a
        found = self._untested.get(a)
        if found is None:
            children = [self.without_tests(child) for child in a.children]
            quantity = self.quantities[a.quantity]
            tested = self.is_test(quantity) and not self._is_loaded(quantity)
            found = self.any(children) if tested else self.with_children(a, children)
            self._untested[a] = found
        return found

    def without_data(self, a: Condition) -> Condition:
        """What a condition says of what is counted with, whatever data is, loaded coordinates and bounds too."""

        def remade(node: CaseNode, below: list[Condition]) -> Condition:
            quantity = self.quantities[node.quantity]
            has_data = any(self.terms.atoms[i].bits for monomial, _ in quantity.terms for i in monomial)
            return self.any(below) if has_data else self.with_children(node, below)

        return self.rebuilt(a, remade)

    def whatever(self, a: Condition, quantity: Poly) -> Condition:
        """Where a condition holds for some number that a quantity may be."""
        number = self._quantity_ids[quantity]
        return self.rebuilt(
            a, lambda node, below: self.any(below) if node.quantity == number else self.with_children(node, below)
        )

    def for_some_thread(self, a: Condition) -> Condition:
        """Where a condition holds for some thread of the CTA, at least: what threads or data decide is left out."""

        def some(c: Condition) -> Condition:
            return self.true if isinstance(c, int) and c else c

        def remade(node: CaseNode, below: list[Condition]) -> Condition:
            below = [some(child) for child in below]
            return self.with_children(node, below) if self._is_uniform(node) else self.any(below)

        return some(self.rebuilt(a, remade))

    def uniform_guards(self, a: Condition) -> list[Condition]:
        """The comparisons of arguments with numbers that a condition is made of; with the least for any thread."""
        found: dict[Condition, None] = {}

        def noted(node: CaseNode, below: list[Condition]) -> Condition:
            if self.is_uniform(self.quantities[node.quantity]):
                cuts = (cut if isinstance(cut, int) else cut.low for cut in node.cuts)
                found.update(dict.fromkeys(self._node(node.quantity, (cut,), [0, self.true]) for cut in cuts))
            return self.any(below)

        self.rebuilt(a, noted)
        return list(found)

    def _is_uniform(self, node: CaseNode) -> bool:
        """A node of an integer of the arguments and the CTA alone, compared with numbers."""
        return self.is_uniform(self.quantities[node.quantity]) and all(isinstance(cut, int) for cut in node.cuts)

    def is_uniform(self, p: Poly) -> bool:
        """An integer of the arguments and the CTA alone."""
        atoms = (self.terms.atoms[i] for monomial, _ in p.terms for i in monomial)
        return all(isinstance(c, int) for _, c in p.terms) and all(
            atom.kind in ("parameter", "ctaid", "fdiv", "div")
            and all(self.is_uniform(arg) for arg in atom.args if isinstance(arg, Poly))
            for atom in atoms
        )

    def quantities_of(self, a: Condition) -> list[Poly]:
        """The quantities that a condition depends on."""
        found: dict[int, None] = {}
        seen: set[Condition] = set()
        stack = [a]
        while stack:
            node = stack.pop()
            if not isinstance(node, int) and node not in seen:
                seen.add(node)
                found[node.quantity] = None
                stack += node.children
        return [self.quantities[number] for number in found]

    def paths(self, a: Condition) -> Iterator[Condition]:
        """Conditions that have one piece of each quantity, and that together are ``a``."""
        if isinstance(a, int):
            if a:
                yield a
            return
        for i, child in enumerate(a.children):
            low, high = a.cuts[i - 1 : i] if i else (), a.cuts[i : i + 1]
            for below in self.paths(child):
                piece = self._node(a.quantity, (*low, *high), [*(0 for _ in low), below, *(0 for _ in high)])
                if piece != 0:  # of some threads no number may lie between the cuts
                    yield piece

    def mask(self, threads: int) -> np.ndarray:
        """A set of threads as booleans."""
        found = self._masks.get(threads)
        if found is None:
            raw = np.frombuffer(threads.to_bytes((self.terms.threads + 7) // 8, "little"), np.uint8)
            found = np.unpackbits(raw, bitorder="little")[: self.terms.threads].astype(bool)
            self._masks[threads] = found
        return found

    def among(self, c: Coefficient, threads: int) -> Coefficient:
        """A number of every thread where only some matter: the others have what the first of these has."""
        if isinstance(c, int) or threads in (0, self.true):
            return c
        inside = self.mask(threads)
        return self.terms.coefficient(0, np.where(inside, c.values, c.values[int(np.flatnonzero(inside)[0])]))

    def _combined(self, apply: Callable[[Condition, Condition], Condition], a: CaseNode, b: Condition) -> Condition:
        """Applies an operation to two conditions, piece by piece."""
        self.terms.spend(1)
        if isinstance(b, int) or a.quantity < b.quantity:
            return self._node(a.quantity, a.cuts, [apply(c, b) for c in a.children])
        if b.quantity < a.quantity:
            return self._node(b.quantity, b.cuts, [apply(a, c) for c in b.children])
        aligned = self._aligned(a, b)
        if aligned is not None:
            cuts, pairs = aligned
            return self._node(a.quantity, cuts, [c if c is d else apply(c, d) for c, d in pairs])
        cuts, pieces = self._sorted(a, b)
        children = [self.any(self.both(apply(c, d), threads) for threads, c, d in piece) for piece in pieces]
        return self._node(a.quantity, cuts, children)

    def _aligned(self, a: CaseNode, b: CaseNode) -> tuple[tuple[Cut, ...], list[tuple[Condition, Condition]]] | None:
        """The pieces of two conditions that cut the same quantity, where their order is one for all threads."""
        ours, theirs = a.cuts, b.cuts
        m, n = len(ours), len(theirs)
        cuts: list[Cut] = []
        pairs = [(a.children[0], b.children[0])]
        i = j = 0
        while i < m and j < n:
            x, y = ours[i], theirs[j]
            if x is y:
                order = 0
            elif isinstance(x, int) and isinstance(y, int):
                order = x - y
            else:
                known = self._order(x, y)
                if known is None:
                    return None
                order = known
            if order <= 0:
                i += 1
                cuts.append(x)
            else:
                cuts.append(y)
            if order >= 0:
                j += 1
            pairs.append((a.children[i], b.children[j]))
        cuts += ours[i:]
        pairs += [(child, b.children[n]) for child in a.children[i + 1 :]]
        cuts += theirs[j:]
        pairs += [(a.children[m], child) for child in b.children[j + 1 :]]
        return tuple(cuts), pairs

    def _sorted(self, a: CaseNode, b: CaseNode) -> tuple[tuple[Cut, ...], list[Piece]]:
        """Their pieces where which cut comes first depends on the thread: each thread sorts its own."""
        rows = np.stack([np.broadcast_to(_values(cut), self.terms.threads) for cut in (*a.cuts, *b.cuts)])
        order = np.argsort(rows, axis=0, kind="stable")
        passed = np.cumsum(order < len(a.cuts), axis=0)  # of the cuts of a, until each place
        cuts = tuple(self.terms.coefficient(0, row) for row in np.take_along_axis(rows, order, axis=0))
        pieces: list[Piece] = [((self.true, a.children[0], b.children[0]),)]
        for k, row in enumerate(passed, 1):
            ours = [int(i) for i in np.unique(row)]
            pieces.append(tuple((self.threads_where(row == i), a.children[i], b.children[k - i]) for i in ours))
        return cuts, pieces

    def _order(self, a: Cut, b: Cut) -> int | None:
        """-1, 0 or 1 where ``a`` is at most, equal to or at least ``b`` for all threads; None otherwise."""
        if a is b or a == b:
            return 0
        if isinstance(a, int) and isinstance(b, int):
            return -1 if a < b else 1
        found = self._orders.get((a, b), 2)
        if found == 2:
            beyond = _beyond_tables(b) - _beyond_tables(a)
            if beyond:
                found = -1 if beyond > 0 else 1
            else:
                x, y = _values(a), _values(b)
                found = -1 if not np.any(x > y) else 1 if not np.any(x < y) else None
            self._orders[a, b] = found
        return found

    def _below(self, a: Cut, b: Cut) -> Condition:
        """The threads for which ``a`` is less than ``b``."""
        if isinstance(a, int) and isinstance(b, int):
            return self.true if a < b else 0
        found = self._lesser.get((a, b))
        if found is None:
            beyond = _beyond_tables(b) - _beyond_tables(a)
            if beyond:
                found = self.true if beyond > 0 else 0
            else:
                found = self.threads_where(np.broadcast_to(_values(a) < _values(b), self.terms.threads))
            self._lesser[a, b] = found
        return found

    def _node(self, quantity: int, cuts: tuple[Cut, ...], children: list[Condition]) -> Condition:
        last = children[0]
        kept = [last]
        kept_cuts: list[Cut] = []
        ends = len(cuts)
        for i, cut in enumerate(cuts, 1):
            child = children[i]
            if i < ends and (cut.__class__ is Table or cuts[i].__class__ is Table):
                mask = self._below(cut, cuts[i])
                if mask != self.true:  # for some threads the piece is empty: there it says what one beside it says
                    after = children[i + 1]
                    if self.both(child, mask) == self.both(after, mask):
                        child = after
                    else:
                        child = self.either(self.both(child, mask), self.both(last, self.negate(mask)))
            if child is last or (child.__class__ is int and child == last):
                continue
            last = child
            kept.append(child)
            kept_cuts.append(cut)
        if not kept_cuts:
            return last
        key = (quantity, tuple(kept_cuts), tuple(kept))
        found = self._nodes.get(key)
        if found is None:
            found = self._nodes[key] = CaseNode(len(self._nodes), *key)
        return found

    # -- comparisons ----------------------------------------------------------------------------------------------
    def threads_where(self, holds: np.ndarray) -> Condition:
        """The set of threads for which an array of booleans is true."""
        return int.from_bytes(np.packbits(holds, bitorder="little").tobytes(), "little")

    def at_least(self, value: Poly, bound: int) -> Condition:
        """value >= bound, over the integers."""
        return self.not_negative(self.terms.sub(value, self.terms.const(0, bound)))

    def reaches(self, value: Poly, cut: Cut) -> Condition:
        """value >= cut, over the integers."""
        return self.not_negative(self.terms.sub(value, self.terms.make(0, {(): cut})))

    def less(self, a: Poly, b: Poly) -> Condition:
        """a < b, over the integers."""
        return self.negate(self.not_negative(self.terms.sub(a, b)))

    def equal(self, a: Poly, b: Poly) -> Condition:
        """a = b, over the integers."""
        apart = self.terms.sub(a, b)
        return self.both(self.not_negative(apart), self.not_negative(self.terms.scale(apart, -1)))

    def zero(self, a: Poly) -> Condition:
        """a = 0, over the integers."""
        return self.both(self.not_negative(a), self.not_negative(self.terms.scale(a, -1)))

    def not_negative(self, value: Poly) -> Condition:
        """value >= 0, over the integers."""
        if self._notes != self.terms.notes:  # more may be known of a value than when it was asked for
            self._notes = self.terms.notes
            self._signs.clear()
        found = self._signs.get(value)
        if found is None:
            found = self._signs[value] = self._not_negative(value)
        return found

    def _not_negative(self, value: Poly) -> Condition:
        terms = self.terms
        numbers = terms.per_thread(value)
        if numbers is not None:
            return self.threads_where(numbers >= 0)
        low, high = terms.interval(value)
        if low is not None and low >= 0:
            return self.true
        if high is not None and high < 0:
            return 0
        for x, n, quantity in self._remainders:
            found = self._of_remainder(value, x, n)
            if found is not None:
                return self._node(quantity, tuple(range(1, n)), found)
        lifted = self._without_factor(value) or self._without_quotient(value)
        if lifted is not None:
            return self.not_negative(lifted)
        chosen = self._without_minimum(value)
        if chosen is not None:
            return chosen
        constant: Coefficient = 0
        symbolic: dict[Monomial, Coefficient] = {}
        for monomial, c in value.terms:
            if monomial == ():
                constant = c
            else:
                symbolic[monomial] = c
        content, tables = 0, False
        for c in symbolic.values():
            tables |= isinstance(c, Table)
            content = gcd(content, c if isinstance(c, int) else int(np.gcd.reduce(c.values)))
        first = next(iter(sorted(symbolic)))
        lead = symbolic[first]
        if (lead if isinstance(lead, int) else int(lead.values[np.flatnonzero(lead.values)[0]])) < 0:
            content = -content
        quantity = terms.make(0, {m: self._divided(c, content) for m, c in symbolic.items()})
        values = constant.values if isinstance(constant, Table) else constant
        if content > 0:  # content * S + constant >= 0: S >= ceil(-constant / content)
            return self._reaches(quantity, -(values // content))
        # S <= floor(constant / |content|): not S >= that + 1
        return self.negate(self._reaches(quantity, values // -content + 1))

    def _divided(self, c: Coefficient, by: int) -> Coefficient:
        return c // by if isinstance(c, int) else self.terms.coefficient(0, c.values // by)

    def _reaches(self, quantity: Poly, thresholds: Ints | int) -> Condition:
        field = self.terms.single(quantity)
        if isinstance(thresholds, int) and field is not None and field.kind == "field":
            (bits,) = cast("tuple[Field]", field.args)
            base = self.terms.atoms[bits.base]
            if bits.low + bits.count == base.bits and thresholds == 1 << (bits.count - 1):  # the sign of all of it
                quantity, thresholds = self.terms.of(0, base), thresholds << bits.low
        if isinstance(thresholds, int) and len(quantity.terms) == 2 and (found := self._extended(quantity)) is not None:
            data, half, sign = found
            reaches = self._reaches_extended(data, half, thresholds if sign > 0 else 1 - thresholds)
            return reaches if sign > 0 else self.negate(reaches)
        number = self._quantity_ids.get(quantity)
        if number is None:
            number = self._quantity_ids[quantity] = len(self.quantities)
            self.quantities.append(quantity)
        cut = thresholds if isinstance(thresholds, int) else self.terms.coefficient(0, thresholds)
        return self._node(number, (cut,), [0, self.true])

    def remainder(self, x: Poly, n: int) -> None:
        """From here on comparisons that x mod n decides, such as those of its bits, are of that quantity."""
        rest = self.terms.sub(x, self.terms.scale(self.terms.floordiv(x, n), n))
        varies = any(isinstance(c, Table) for _, c in x.terms)
        if varies or self.terms.number(x) is not None or self.terms.interval(rest) != (0, n - 1):
            return
        if rest not in self._quantity_ids:
            self._quantity_ids[rest] = len(self.quantities)
            self.quantities.append(rest)
        self._remainders.append((x, n, self._quantity_ids[rest]))
        self._kept |= {m for m, _ in rest.terms}
        self._signs.clear()

    def _of_remainder(self, value: Poly, x: Poly, n: int) -> list[Condition] | None:
        """For each number that x mod n may be whether value >= 0; None unless that decides it: value is a sum of x and
        quotients of x by divisors of n, in which floor(x / n) cancels out."""
        whole = {m: c for m, c in x.terms if isinstance(c, int)}
        given = {m: c for m, c in value.terms if isinstance(c, int)}
        constant = next((c for m, c in value.terms if m == ()), 0)
        lead = next(m for m in whole if m != ())
        factor, odd = divmod(given.get(lead, 0), whole[lead])
        parts: list[tuple[int, int]] = [(factor, 1)]
        for m in {**whole, **given}:
            left = given.get(m, 0) - factor * whole.get(m, 0)
            if m == () or left == 0:
                continue
            quotient = self.terms.quotient(m)
            if quotient is None or quotient[0] != x or n % quotient[1]:
                return None
            parts.append((left, quotient[1]))
        others = any(m != () and isinstance(c, Table) for m, c in value.terms)
        if odd or others or sum(c * (n // by) for c, by in parts):
            return None
        above = _values(constant) - factor * whole.get((), 0)
        numbers = (above + sum(c * (k // by) for c, by in parts) for k in range(n))
        return [self.threads_where(np.broadcast_to(each >= 0, self.terms.threads)) for each in numbers]

    def _extended(self, quantity: Poly) -> tuple[Poly, int, int] | None:
        """Narrow data of which a quantity is the reading with its sign, or that negated: the data, its sign bit's
        worth, and 1 or -1. None of others, and of the upper bits of a word, which are a quotient of it."""
        for monomial, c in quantity.terms:
            if len(monomial) != 1 or c not in (1, -1) or not isinstance(c, int):
                continue
            bits, field = self.terms.atoms[monomial[0]].bits, self.terms.as_field(monomial[0])
            if not 1 < bits < NARROW or field is None:
                continue
            if field.low and field.low + field.count == self.terms.atoms[field.base].bits:
                continue
            sign = self.terms.field_atom(monomial[0], bits - 1, 1)
            if dict(quantity.terms).get((sign.id,)) == -c << bits:
                return self.terms.make(0, {monomial: 1}), 1 << (bits - 1), c
        return None

    def _reaches_extended(self, data: Poly, half: int, threshold: int) -> Condition:
        """Where data reads with its sign as so much or more."""
        if threshold > 0:
            return self.without(self.at_least(data, threshold), self.at_least(data, half))
        return self.either(self.negate(self.at_least(data, half)), self.at_least(data, 2 * half + threshold))

    def _without_factor(self, value: Poly) -> Poly | None:
        """c floor(p / n) + k >= 0 iff floor(p / n) + floor(k / c) >= 0 for c > 0, or with both signs turned."""
        constant = next((c for m, c in value.terms if m == ()), 0)
        found = [(m, c) for m, c in value.terms if m != ()]
        if len(found) != 1 or self.terms.quotient(found[0][0]) is None:
            return None
        ((monomial, c),) = found
        if not isinstance(c, int) or not isinstance(constant, int) or abs(c) == 1:
            return None
        return self.terms.make(0, {monomial: 1 if c > 0 else -1, (): constant // abs(c)})

    def _without_quotient(self, value: Poly) -> Poly | None:
        """floor(p / n) + r >= 0 iff p + n r >= 0;  r - floor(p / n) >= 0 iff n r + n - 1 - p >= 0."""
        terms = self.terms
        for monomial, c in value.terms:
            quotient = terms.quotient(monomial)
            if quotient is None or c not in (1, -1) or monomial in self._kept:
                continue
            numerator, n = quotient
            rest = terms.make(0, {m: k for m, k in value.terms if m != monomial})
            if c == 1:
                return terms.add(numerator, terms.scale(rest, n))
            return terms.sub(terms.add(terms.scale(rest, n), terms.const(0, n - 1)), numerator)
        return None

    def _without_minimum(self, value: Poly) -> Condition | None:
        """min(p, q) + r >= 0 iff both are; max: iff either is; negated: the other way round."""
        terms = self.terms
        for monomial, c in value.terms:
            if len(monomial) != 1 or not isinstance(c, int):
                continue
            atom = terms.atoms[monomial[0]]
            if atom.kind not in ("min", "max"):
                continue
            rest = terms.make(0, {m: k for m, k in value.terms if m != monomial})
            sides = [arg for arg in atom.args if isinstance(arg, Poly)]
            parts = [self.not_negative(terms.add(terms.scale(side, c), rest)) for side in sides]
            return self.all(parts) if (atom.kind == "min") == (c > 0) else self.any(parts)
        return None

    # -- printing -------------------------------------------------------------------------------------------------
    def text(self, a: Condition, depth: int = 3) -> str:
        """The condition as text, for messages."""
        if isinstance(a, int):
            if a in (0, self.true):
                return "always" if a else "never"
            return f"{a.bit_count()} threads from {(a & -a).bit_length() - 1}"
        if depth == 0:
            return "..."
        name = self.terms.text(self.quantities[a.quantity])
        parts: list[str] = []
        previous = "-inf"
        for cut, child in zip([*a.cuts, None], a.children, strict=True):
            shown = "inf" if cut is None else f"T[{cut.low}..{cut.high}]" if isinstance(cut, Table) else str(cut)
            if child != 0 and len(parts) < 4:
                parts.append(f"[{previous}, {shown}): {self.text(child, depth - 1)}")
            previous = shown
        return f"{{{name} in {'; '.join(parts)}}}"
