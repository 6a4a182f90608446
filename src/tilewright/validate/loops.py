"""Values that loops carry: closed forms in the number of iterations, sums of steps, and what is left behind a loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import cast

from tilewright.validate.cases import CaseNode, Condition
from tilewright.validate.polynomials import Atom, Field, Poly
from tilewright.validate.values import Choice, Value, Values


class Iterations:
    """Closed forms over ``values``. ``iter(name)`` counts a loop's finished iterations, ``trip(name)`` all it makes."""

    def __init__(self, values: Values):
        self.values, self.terms = values, values.terms
        self._varies: dict[tuple[int, str], bool] = {}

    def count(self, name: str) -> Poly:
        """Iterations of loop ``name`` that lie before the present one, or before its end."""
        if name in self.values.once:
            return self.terms.const(0, 0)
        return self.terms.of(0, self.terms.atom("iter", name, low=0, high=self._most_trips(name)))

    def trips(self, name: str) -> Poly:
        """All iterations of a run of loop ``name``."""
        if name in self.values.once:
            return self.terms.const(0, 1)
        return self.terms.of(0, self.terms.atom("trip", name, low=0, high=self._most_trips(name)))

    def _most_trips(self, name: str) -> int:
        """The most iterations, where the bounds are known."""
        ends, most = self.values.ends.get(name, ()), (1 << 31) - 1
        if len(ends) != 3 or (self.values.number(ends[2]) or 0) < 1:
            return most
        begin, end = ([self.terms.interval(p) for _, p in self.values.parts(v)] for v in ends[:2])
        first, last = [low for low, _ in begin if low is not None], [high for _, high in end if high is not None]
        if len(first) < len(begin) or len(last) < len(end):
            return most
        return max(0, min(most, max(last) - min(first)))

    def counts(self, name: str, ends: Sequence[Value]) -> None:
        """Notes what the iterations of loop ``name`` are counted by: where these vary, so does their number. Behind the
        first one there may be none, whatever the arguments."""
        if name in self.values.ends:
            return
        begin, end, step = self.values.ends[name] = tuple(ends)
        less, add = self.values.cases.less, self.values.add
        first, second = (self.values.test(less, at, end) for at in (begin, add(begin, step)))
        if self.values.cases.both(first, second) == 0:
            self.values.once.add(name)

    # -- what changes in a loop -----------------------------------------------------------------------------------
    def varies(self, value: object, name: str) -> bool:
        """The value may differ between iterations of loop ``name``."""
        if isinstance(value, Poly):
            return any(self._atom_varies(i, name) for monomial, _ in value.terms for i in monomial)
        if isinstance(value, Choice):
            return any(self.varies(p, name) or self._condition_varies(c, name) for c, p in value.parts)
        if isinstance(value, Field):
            return self._atom_varies(value.base, name)
        if isinstance(value, tuple):
            return any(self.varies(v, name) for v in cast("tuple[object, ...]", value))
        return False

    def _atom_varies(self, number: int, name: str) -> bool:
        key = (number, name)
        found = self._varies.get(key)
        if found is None:
            atom = self.terms.atoms[number]
            self._varies[key] = False
            found = self._varies[key] = self._varies_itself(atom, name) or any(
                self.varies(arg, name) for arg in atom.args
            )
        return found

    def _varies_itself(self, atom: Atom, name: str) -> bool:
        if atom.kind == "bound":  # of each iteration of the loops in which it is loaded
            return name in cast("tuple[str, ...]", atom.args[0])
        if atom.kind == "trip":
            return any(self.varies(end, name) for end in self.values.ends.get(str(atom.args[0]), ()))
        return atom.kind in ("iter", "drawn", "phi", "test.phi", "carry", "unsolved") and atom.args[0] == name

    def _condition_varies(self, condition: Condition, name: str) -> bool:
        if isinstance(condition, int):
            return False
        if self.varies(self.values.cases.quantities[condition.quantity], name):
            return True
        return any(self._condition_varies(c, name) for c in condition.children)

    # -- closed forms ---------------------------------------------------------------------------------------------
    def closed(self, name: str, initial: Value, step: Value) -> Value | None:
        """initial + the sum of ``step`` over the finished iterations; None where no sum of terms is that."""
        if isinstance(step, Choice):
            if any(self._condition_varies(c, name) for c, _ in step.parts):
                return self._summed(name, initial, step)
            cases = [(c, self.closed(name, initial, p)) for c, p in step.parts]
            known = [(c, v) for c, v in cases if v is not None]
            return self.values.choose(known) if len(known) == len(cases) else None
        width = step.width
        total = self.terms.const(width, 0)
        for monomial, c in step.terms:
            varying = tuple(i for i in monomial if self._atom_varies(i, name))
            constant = self.terms.make(width, {tuple(i for i in monomial if i not in varying): c})
            if any(self.terms.atoms[i].kind in ("phi", "unsolved") for i in varying):
                return None
            if varying:
                summed = self.terms.make(0, {varying: 1})
                sum_ = self.terms.of(0, self.terms.atom("sum", name, summed, low=0))
            else:
                sum_ = self.count(name)
            total = self.terms.add(total, self.terms.mul(constant, self.terms.resize(sum_, width)))
        return self.values.add(initial, total)

    def following(self, name: str, start: Value, latest: Value) -> Value | None:
        """What an iteration finds where each leaves ``latest``, which nothing but its number changes: the same of the
        one before, if ``start`` is that of one before the first. None of others."""
        count = self.count(name)
        counted = self.terms.single(count)
        if counted is None or not isinstance(latest, Poly):
            return None
        factors = {i for monomial, _ in latest.terms for i in monomial if i != counted.id}
        if any(self._atom_varies(i, name) for i in factors):
            return None
        one = self.terms.const(0, 1)
        first = self.left(latest, name, self.terms.scale(one, -1))
        return self.left(latest, name, self.terms.sub(count, one)) if first is start else None

    def _summed(self, name: str, initial: Value, step: Choice) -> Value | None:
        """initial + the sum of steps of which each iteration makes one of several; None of steps that are data."""
        atoms = [self.terms.atoms[i] for _, p in step.parts for monomial, _ in p.terms for i in monomial]
        if any(a.bits or a.kind == "unsolved" for a in atoms):
            return None
        whole = self.values.choose([(c, self.terms.resize(p, 0)) for c, p in step.parts])
        lows = [self.terms.interval(p)[0] for _, p in self.values.parts(whole)]
        low = 0 if all(x is not None and x >= 0 for x in lows) else None
        total = self.terms.of(0, self.terms.atom("sum", name, whole, low=low))
        return self.values.add(initial, self.terms.resize(total, step.width))

    # -- behind a loop --------------------------------------------------------------------------------------------
    def left(self, value: Value, name: str, last: Poly, carried: Mapping[str, Value] | None = None) -> Value:
        """What a value of an iteration is behind the loop, ``last`` being the number of that iteration.

        With ``carried`` what it is where the variables that the loop carries have these values.
        """
        if not self.varies(value, name):
            return value
        if isinstance(value, Choice):
            if carried is None and self._changes_hands(value, name):
                return self._left_whole(value, name)
            parts = [(self.condition_left(c, name, last), self.left(p, name, last, carried)) for c, p in value.parts]
            return self.values.choose(parts)
        terms = self.terms
        total: Value = terms.const(value.width, 0)
        for monomial, c in value.terms:
            product: Value = terms.make(value.width, {(): c})
            for i in monomial:
                factor = self._atom_left(terms.atoms[i], name, last, carried)
                if terms.atoms[i].bits and factor.width:  # raw data is read as it lies
                    factor = self.values.field(factor, 0, terms.atoms[i].bits, value.width)
                product = self.values.mul(product, self.values.resize(factor, value.width))
            total = self.values.add(total, product)
        return total

    def _left_whole(self, value: Choice, name: str) -> Value:
        """What some data is behind the loop, by the words that it is put together from in every case."""
        seams = [at for at in range(8, value.width, 8) if all(self._apart_at(p, at) for _, p in value.parts)]
        total: Value = self.terms.const(value.width, 0)
        for low, high in pairwise([0, *seams, value.width]):
            word = self.values.field(value, low, high - low, high - low)
            if self.varies(word, name):
                word = self.terms.data(value.width, high - low, "exit", name, word)
            total = self.values.add(
                total, self.values.scale(self.values.field(word, 0, high - low, value.width), 1 << low)
            )
        return total

    def _apart_at(self, p: Poly, at: int) -> bool:
        """No piece of a word lies on both sides of a bit."""
        if self.terms.number(p) is not None:
            return True
        pieces = self.terms.pieces(p)
        return pieces is not None and all(low + bits <= at or at <= low for low, bits, _ in pieces)

    def _changes_hands(self, value: Choice, name: str) -> bool:
        """Whether the case that holds for some data depends on the iteration: the last iteration's case can't be
        distinguished from the others after the loop."""
        atoms = [self.terms.atoms[i] for _, p in value.parts for monomial, _ in p.terms for i in monomial]
        return (
            any(self._condition_varies(c, name) for c, _ in value.parts) and bool(atoms) and all(a.bits for a in atoms)
        )

    def _atom_left(self, atom: Atom, name: str, last: Poly, carried: Mapping[str, Value] | None) -> Value:
        terms = self.terms
        if not self._atom_varies(atom.id, name):
            return terms.of(0, atom)
        if atom.kind == "iter" and atom.args[0] == name:
            return last
        if atom.kind == "phi" and carried is not None and atom.args[0] == name:
            return self.values.resize(carried[str(atom.args[1])], atom.bits)
        if atom.kind == "fdiv":
            numerator, n = cast("tuple[Poly, int]", atom.args)
            return self.values.lift(lambda x: terms.floordiv(x, n), self.left(numerator, name, last, carried))
        if atom.kind == "field":
            (field,) = cast("tuple[Field]", atom.args)
            base = self._atom_left(terms.atoms[field.base], name, last, carried)
            bits = terms.atoms[field.base].bits
            return self.values.field(self.values.resize(base, bits), field.low, field.count, 0)
        if atom.kind in ("div", "xor", "or", "min", "max"):
            a, b = (self.left(cast("Poly", x), name, last, carried) for x in atom.args)
            return self.values.lift(
                lambda x, y: terms.of(0, terms.atom(atom.kind, x, y, low=atom.low, high=atom.high)), a, b
            )
        if atom.kind == "sum" and atom.args[0] == name:
            return terms.of(0, terms.atom("total", *atom.args, last, low=0))
        return terms.of(0, terms.atom("exit", name, terms.of(0, atom), bits=atom.bits, low=atom.low, high=atom.high))

    def lasting(self, condition: Condition, name: str) -> Condition:
        """What a condition says of quantities that stay the same in a loop: it holds in each iteration too."""
        cases = self.values.cases

        def lasting(node: CaseNode, children: list[Condition]) -> Condition:
            varies = self.varies(cases.quantities[node.quantity], name)
            return cases.any(children) if varies else cases.with_children(node, children)

        return cases.rebuilt(condition, lasting)

    def condition_left(self, condition: Condition, name: str, last: Poly) -> Condition:
        """A condition of an iteration, in the iteration of number ``last``."""
        return self.mapped(condition, lambda q: self.left(q, name, last), lambda q: self.varies(q, name))

    def mapped(
        self, condition: Condition, change: Callable[[Poly], Value], changes: Callable[[Poly], bool]
    ) -> Condition:
        """A condition with other quantities in place of some."""
        cases = self.values.cases

        def mapped(node: CaseNode, children: list[Condition]) -> Condition:
            quantity = cases.quantities[node.quantity]
            if not changes(quantity):
                return cases.with_children(node, children)
            new = change(quantity)
            return cases.between(
                [self.values.test(lambda q, cut=cut: cases.reaches(q, cut), new) for cut in node.cuts], children
            )

        return cases.rebuilt(condition, mapped)
