"""Whether a value of the IR and one of the PTX are equal, where a condition holds.

Both are in normal form, so that most equal values are one object. What remains is congruence (equal operations on equal
operands), case distinction, and induction over loops: a carried variable of the IR equals one of the PTX if their first
values are equal and, supposing it, their next ones (value graphs: Tristan, Govereau, Morrisett, PLDI 2011).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from math import gcd
from typing import cast

import numpy as np

from tilewright.validate.arithmetic import Arithmetic
from tilewright.validate.cases import CaseNode, Condition
from tilewright.validate.float_orders import ORDER
from tilewright.validate.loops import Iterations
from tilewright.validate.networks import Networks
from tilewright.validate.polynomials import Atom, Coefficient, Field, Monomial, Poly, Table
from tilewright.validate.ranks import equal_for_all_ranks
from tilewright.validate.regions import LoopBody
from tilewright.validate.shapes import COMMUTATIVE, Shapes
from tilewright.validate.specialised import Specialised
from tilewright.validate.values import ANYTHING, Choice, Value, Values

COMPUTED = ("add.f", "mul.f", "neg.f", "abs.f", "fma.", "div.", "max.", "min.", "cvt.", "ex2.", "lg2.", "rcp.", "sqrt.",
            "rsqrt.", "tanh.", "sin.", "cos.")  # fmt: skip
"""Beginnings of the kinds of atoms that an operation makes of its operands alone."""

LEAST = ("least.", "greatest.")
"""The same of the lesser and the greater of two words."""

STEPS_A_COMPARISON = 5
"""The cost of comparing two values, in steps of the algebra of conditions."""

MOST_TERMS = 6
"""The most terms of a difference of integers that is analysed."""

MOST_BRANCHES = 128
"""The most parts of a condition, by branches of the PTX, in which values are made again."""

MOST_CHOICES = 3
"""The most terms with cases in a sum whose cases are distinguished."""


class Equality:
    """Compares values. ``same_event(ir, ptx)`` says whether two marks stand for matched events, ``impossible``
    whether no arguments fulfil a condition, ``same_integers`` whether a proof shows that two integers are equal;
    ``branches`` are the conditions of the IR's branches; ``beside`` gives the contents that a load sees but for
    stores to other elements (tensor, place, bytes, contents, condition)."""

    def __init__(
        self,
        values: Values,
        plan: dict[str, LoopBody],
        program: dict[str, LoopBody],
        care: dict[str, Condition],
        shuffles: dict[int, dict[str, Condition]],
        same_event: Callable[[str, tuple[object, ...], tuple[object, ...]], bool],
        impossible: Callable[[Condition], bool],
        same_integers: Callable[[Poly, Poly, Condition], bool],
        parents: dict[str, str],
        branches: tuple[Condition, ...] = (),
        beside: Callable[[str, Poly, int, Value, Condition], Value] | None = None,
    ):
        self.values, self.terms, self.cases = values, values.terms, values.cases
        self.iterations = Iterations(values)
        self.arithmetic = Arithmetic(values)
        self.floats = self.arithmetic.floats
        self.shapes = Shapes(values)
        self.plan, self.program, self.care = plan, program, care
        self.shuffles, self.same_event, self.impossible = shuffles, same_event, impossible
        self.same_integers = same_integers
        self._known: dict[tuple[Poly, Poly], Condition] = {}
        """Where pairs of values are equal, as far as it was asked."""
        self._shown: list[tuple[Poly, Poly, Condition]] = []
        """In the order in which they were shown: pairs, and where they were known to be equal before."""
        self.scope: Condition = self.cases.true
        """Where, in all, values are compared at present."""
        self._unequal: dict[tuple[Poly, Poly], set[Condition]] = {}
        self._tests_of: dict[tuple[Value, int], dict[Poly, Atom]] = {}
        self.parents, self.branches, self.beside = parents, branches, beside
        self._assumed: set[tuple[int, Poly]] = set()
        self._tested_by: dict[CaseNode, dict[Poly, Atom]] = {}
        self._lesser: dict[tuple[Poly, Condition], Value] = {}
        self._made_again: dict[Condition, Networks] = {}
        self._branch_of: dict[tuple[Condition, Condition], Condition] = {}
        self._carries: dict[str, tuple[Mapping[str, Value], Mapping[str, Value]]] = {}
        self._special: dict[Condition, Specialised] = {}

    def equal(self, ir: Value, ptx: Value, care: Condition) -> bool:
        """Whether the values are equal for all threads and arguments of ``care``. Each case is first tried in the whole
        scope, because many stores then share the question."""
        if ir is not ptx and self._is_nested(ir) and self._is_nested(ptx) and self._equal_in_branches(ir, ptx, care):
            return True
        return self._equal_in(ir, ptx, care, self._around(care))

    def _is_nested(self, value: Value) -> bool:
        """The cases of a value depend on the order of two others whose cases depend on tests of data."""
        tests = self._tests(self.values.unfolded(value)).values()
        operands = (x for test in tests if test.kind == ORDER for x in test.args)
        return any(isinstance(x, Poly) and self._tests(self.values.unfolded(x)) for x in operands)

    def _equal_in_branches(self, ir: Value, ptx: Value, care: Condition) -> bool:
        """Values that tests of data choose, made again for each branch of the PTX: the parts together are ``care``."""
        parts = [care]
        for guard in self._guards(ptx):
            split = [(self.cases.both(c, guard), self.cases.without(c, guard)) for c in parts]
            if all(0 in pair for pair in split):
                continue
            parts = [part for pair in split for part in pair if part != 0 and (0 in pair or not self.impossible(part))]
            if len(parts) > MOST_BRANCHES:
                return False
        for part in parts:
            specialised = self._specialised(self.cases.for_some_thread(part))
            if specialised.value(ir) is not specialised.value(ptx):
                return False
        return True

    def _guards(self, value: Value) -> list[Condition]:
        """Comparisons of arguments with numbers that decide the cases of a value, and of what it is made of."""
        found: dict[Condition, None] = {}
        conditions, atoms = set[Condition](), set[int]()  # masks of threads are integers, too
        pending: list[Value] = [value]
        while pending:
            for condition, p in self.values.parts(pending.pop()):
                if condition not in conditions:
                    conditions.add(condition)
                    found.update(dict.fromkeys(self.cases.uniform_guards(condition)))
                for i in (i for m, _ in p.terms for i in m if i not in atoms):
                    atoms.add(i)
                    pending += [x for x in self.terms.atoms[i].args if isinstance(x, Poly | Choice)]
        return list(found)

    def _specialised(self, care: Condition) -> Specialised:
        """Values made again for where ``care`` holds, which says nothing of the thread."""
        found = self._special.get(care)
        if found is None:
            found = self._special[care] = Specialised(self.arithmetic, care, COMPUTED)
        return found

    def _around(self, care: Condition) -> Condition:
        """The scope, in the branches that ``care`` lies in."""
        if not self.cases.implies(care, self.scope):
            return care
        key = self.scope, care
        found = self._branch_of.get(key)
        if found is None:
            inside = [b for b in self.branches if self.cases.implies(care, b)]
            found = self._branch_of[key] = self.cases.all([self.scope, *inside]) if inside else self.scope
        return found

    def _equal_in(self, ir: Value, ptx: Value, care: Condition, scope: Condition) -> bool:
        if ir is ptx or care == 0:
            return True
        if isinstance(ir, Poly) and isinstance(ptx, Poly):
            return (scope is not care and self._polys(ir, ptx, scope)) or self._polys(ir, ptx, care)
        cases = self.cases
        theirs = self._in_common_terms(ir, ptx, care)
        for c, p in self.values.parts(ir):
            here = cases.both(care, c)
            if here == 0 or self.values.is_open(p):
                continue
            if isinstance(ptx, Choice) and not self._covered(here, theirs):
                return False
            for d, q in theirs:
                both = cases.both(here, d)
                if both == 0 or p is q:
                    continue
                wide = both if scope is care else cases.all((scope, c, d))
                if not (wide is not both and self._polys(p, q, wide)) and not self._polys(p, q, both):
                    return False
        return True

    def _covered(self, here: Condition, parts: tuple[tuple[Condition, Poly], ...]) -> bool:
        """Some case of the PTX's value holds everywhere: elsewhere nothing has written it."""
        anywhere = self.values.anywhere(parts)
        return self.cases.implies(here, anywhere) or self.impossible(self.cases.without(here, anywhere))

    def _in_common_terms(self, ir: Value, ptx: Value, care: Condition) -> tuple[tuple[Condition, Poly], ...]:
        """The cases of the PTX's value; tests of its operands that equal tests of the IR's are the IR's there."""
        parts = self.values.parts(ptx)
        if not any(self._tested(c) for c, _ in parts):
            return parts
        renamed = self._renamed({**self._tests(ir, 3), **self._tested(care)}, self._tests(ptx), care)
        if not renamed:
            return parts
        change, changes = renamed.__getitem__, renamed.__contains__
        return tuple((self.iterations.mapped(c, change, changes), q) for c, q in parts)

    def in_common_terms(self, ptx: Condition, ir: Iterable[Condition], care: Condition) -> Condition:
        """The PTX's condition where ``care`` holds; tests in it that equal tests of the IR's are the IR's there."""
        holds = self.cases.both(ptx, care)
        theirs = self._tested(holds)
        if not theirs:
            return holds
        there = self.cases.without_tests(holds)
        ours: dict[Poly, Atom] = {}
        # those with tests of the PTX's own first: mostly these are all of its tests, and nothing is to be renamed
        for condition in sorted(dict.fromkeys(ir), key=lambda c: theirs.keys().isdisjoint(self._tested(c))):
            if theirs.keys() <= ours.keys():
                return holds
            if self.cases.both(self.cases.without_tests(condition), there) != 0:
                ours |= self._tested(condition)
        renamed = self._renamed(ours, theirs, holds)
        if not renamed:
            return holds
        return self.cases.both(self.iterations.mapped(holds, renamed.__getitem__, renamed.__contains__), there)

    def _renamed(self, ours: Mapping[Poly, Atom], theirs: Mapping[Poly, Atom], care: Condition) -> dict[Poly, Poly]:
        """The IR's test that each of the PTX's is where ``care`` holds, of those that have another form."""
        care = self.cases.without_tests(care)
        renamed: dict[Poly, Poly] = {}
        for test, atom in theirs.items():
            if test not in ours:
                kind = "carry" if atom.kind == "phi" else atom.kind
                free = [(mine, other) for mine, other in ours.items() if mine not in theirs and other.kind == kind]
                free.sort(key=lambda pair: -self._alike(pair[0], test))
                found = next((mine for mine, _ in free if self._polys(mine, test, care)), None)
                if found is None and kind == ORDER:
                    crossed = next((mine for mine, other in free if self._crossed(other, atom, care)), None)
                    found = None if crossed is None else self.terms.sub(self.terms.const(0, 2), crossed)
                if found is not None:
                    renamed[test] = found
        return renamed

    def _crossed(self, ir: Atom, ptx: Atom, care: Condition) -> bool:
        """The order of two floats, and that of the same two the other way round."""
        return all(self._arguments(x, y, care) for x, y in zip(ir.args, reversed(ptx.args), strict=True))

    def _tests(self, value: Value, depth: int = 0) -> dict[Poly, Atom]:
        """The tests of data that the cases of a value depend on, and those of what it is made of, to a depth."""
        known = self._tests_of.get((value, depth))
        if known is not None:
            return known
        found: dict[Poly, Atom] = {}
        for condition, part in self.values.parts(value):
            found |= self._tested(condition)
            if depth:
                atoms = (self.terms.atoms[i] for monomial, _ in part.terms for i in monomial)
                inner = (x for atom in atoms for x in atom.args if isinstance(x, Poly | Choice))
                for x in inner:
                    found |= self._tests(x, depth - 1)
        self._tests_of[value, depth] = found
        return found

    def _tested(self, condition: Condition) -> dict[Poly, Atom]:
        """The tests of data that a condition depends on, and the integers that data is in, each with the data."""
        if isinstance(condition, int):
            return {}
        found = self._tested_by.get(condition)
        if found is None:
            found = self._tested_by[condition] = {
                quantity: atom
                for quantity in self.cases.quantities_of(condition)
                if (atom := self._test_or_data(quantity)) is not None
            }
        return found

    def _test_or_data(self, quantity: Poly) -> Atom | None:
        atoms = (self.terms.atoms[i] for monomial, _ in quantity.terms for i in monomial)
        return next((atom for atom in atoms if atom.bits or atom.kind.startswith(("test.", "says"))), None)

    def _polys(self, p: Poly, q: Poly, care: Condition) -> bool:
        if p is q or self.values.is_open(p):
            return True
        key = (p, q)
        known = self._known.get(key, 0)
        if self.cases.implies(care, known):
            return True
        if care in self._unequal.get(key, ()):
            return False
        self.terms.spend(STEPS_A_COMPARISON)
        if self._is_network(p, q):
            again = self._networks(care).renamed(p, q)
            if again is p or (again is not q and self._equal_in(p, again, care, care)):
                self._equal(key, care)
                return True
        found = (
            self._compared(p, q, care)
            or self._restricted(p, q, care)
            or self._left_open(p, q)
            or equal_for_all_ranks(self.terms, p, q)
            or self._by_cases(p, q, care)
            or self._by_bits(p, q, care)
            or self._one_of_two(p, q, care)
            or self._one_number(p, q, care)
            or self.impossible(care)
        )
        if found:
            self._equal(key, care)
        else:
            self._unequal.setdefault(key, set()).add(care)
        return found

    def _one_number(self, p: Poly, q: Poly, care: Condition) -> bool:
        """Integers, such as places of elements, whose difference is one quantity, which ``care`` says is 0; data, and
        the number that ``care`` says it is."""
        if p.width or q.width:
            return self._is_number(p, q, care) or self._is_number(q, p, care)
        apart = self.terms.sub(p, q)
        content = gcd(*(c for _, c in apart.terms if isinstance(c, int)))
        if not 1 < len(apart.terms) <= MOST_TERMS or any(not isinstance(c, int) for _, c in apart.terms):
            return False
        one = self.terms.make(0, {m: c // content for m, c in apart.terms if isinstance(c, int)})
        return self.cases.implies(care, self.cases.zero(one))

    def _is_number(self, p: Poly, q: Poly, care: Condition) -> bool:
        atom, number = self.terms.single(p), self.terms.number(q)
        if atom is None or number is None or atom.bits != p.width:
            return False
        data, number = self.terms.of(0, atom), number & ((1 << atom.bits) - 1)
        if data not in self.cases.quantities_of(care):
            return False
        here = self.cases.without(self.cases.at_least(data, number), self.cases.at_least(data, number + 1))
        return self.cases.implies(care, here)

    def _one_of_two(self, p: Poly, q: Poly, care: Condition) -> bool:
        """Integers one of which has the lesser, or the greater, of two where the other has the one that it is there."""
        x, y = self.terms.resize(p, 0), self.terms.resize(q, 0)
        try:
            apart = self.terms.sub(x, y)
        except OverflowError:
            return False
        atoms = [self.terms.atoms[m[0]] for m, _ in apart.terms if len(m) == 1]
        return any(atom.kind in ("min", "max") for atom in atoms) and self.same_integers(x, y, care)

    def _is_network(self, p: Poly, q: Poly) -> bool:
        """Whether both are minima, or maxima, of two words."""
        a = self.terms.single(p)
        if a is None or not a.kind.startswith(LEAST):
            return False
        b = self.terms.single(q)
        return b is not None and a.kind == b.kind

    def _networks(self, care: Condition) -> Networks:
        """Those made again with the words that are equal in the scope, in the branches that ``care`` lies in."""
        scope = self._around(care)
        found = self._made_again.get(scope)
        if found is None:
            found = self._made_again[scope] = Networks(
                self.values,
                self.shapes,
                lambda ir, ptx: self._equal_in(ir, ptx, scope, scope),
                lambda shuffle: all(self.cases.implies(place, scope) for place in self._places(shuffle)),
            )
        return found

    def _places(self, shuffle: Atom) -> list[Condition]:
        """The conditions of the instructions that exchange some lanes."""
        found = self.shuffles.get(shuffle.id, {"kernel": self.cases.true})
        return [self.cases.both(holds, self.care[region]) for region, holds in found.items()]

    def _left_open(self, p: Poly, q: Poly) -> bool:
        """A conversion of a value that is left open, against 0, which it is of 0."""
        atom = self.terms.single(self.terms.field(p, 16, 16, 16) if self._upper_half(p) else p)
        if self.terms.number(q) != 0 or atom is None:
            return False
        if atom.kind == ANYTHING:
            return True
        inner = atom.args[0] if atom.args else None
        return atom.kind.startswith("cvt.") and isinstance(inner, Poly) and self._left_open(inner, q)

    def _upper_half(self, p: Poly) -> bool:
        """The word is a bf16 as f32."""
        return p.width == 32 and len(p.terms) == 1 and p.terms[0][1] == 1 << 16

    def _by_cases(self, p: Poly, q: Poly, care: Condition) -> bool:
        """Words that are computed from one of several, case by case, without the terms that both have."""
        theirs = dict(q.terms)
        both = {m: c for m, c in p.terms if theirs.get(m, 0) == c} if p.width == q.width else {}
        if both:
            common = self.terms.make(p.width, both)
            p, q = self.terms.sub(p, common), self.terms.sub(q, common)
        x, y = self.expanded(p), self.expanded(q)
        if x is p and y is q and (self.terms.single(p) is None or self.terms.single(q) is None):
            x, y = self.values.unfolded(p), self.values.unfolded(q)
        return (x is not p or y is not q) and self._equal_in(x, y, care, care)

    def _by_bits(self, p: Poly, q: Poly, care: Condition) -> bool:
        """Sums in which a sign bit counts as a number, where it is set and where it is clear."""
        found = self._bit(q) or self._bit(p)
        if found is None:
            return False
        i, is_set = found
        for number, here in ((1, self.cases.both(care, is_set)), (0, self.cases.without(care, is_set))):
            by = self.terms.const(0, number)
            x, y = (self.arithmetic.reader.replaced(r, i, self.terms.resize(by, r.width)) for r in (p, q))
            if here != 0 and not self._equal_in(x, y, here, here):
                return False
        return True

    def _bit(self, p: Poly) -> tuple[int, Condition] | None:
        """An atom of a sum that is 0 or 1, and where it is 1: the uppermost bit of a word, or of what is counted; None
        of other sums."""
        for monomial, _ in p.terms if len(p.terms) > 1 else ():
            atom = self.terms.atoms[monomial[0]] if len(monomial) == 1 else None
            field = atom.args[0] if atom is not None and atom.kind == "field" else None
            if isinstance(field, Field):
                base = self.terms.atoms[field.base]
                if field.count == 1 and field.low == base.bits - 1:
                    return monomial[0], self.cases.at_least(self.terms.of(0, base), 1 << field.low)
            quotient = self.terms.quotient(monomial)
            if quotient is not None:
                low, high = self.terms.interval(quotient[0])
                if low is not None and high is not None and low >= 0 and high < 2 * quotient[1]:
                    return monomial[0], self.cases.at_least(*quotient)
        return None

    def expanded(self, p: Poly) -> Value:
        """A sum with a case for each that a term of it has, or the word that a term is a field of."""
        single = self.terms.single(p)
        if single is not None and single.kind != "field":
            return p
        chosen = [(m, c, cases) for m, c in p.terms if len(m) == 1 and (cases := self._cases(self.terms.atoms[m[0]]))]
        if not 0 < len(chosen) <= MOST_CHOICES:
            return p
        ((monomial, factor, cases), *_) = chosen
        if not isinstance(factor, int):
            return p
        rest = self.terms.make(p.width, {m: c for m, c in p.terms if m != monomial})
        parts = [(holds, self._word(part, p.width)) for holds, part in cases]
        found = self.values.choose([(h, self.terms.add(rest, self.terms.scale(x, factor))) for h, x in parts])
        atom = self.terms.single(found) if isinstance(found, Poly) else None
        inner = atom.args[0] if atom is not None and atom.kind == "choice" else found
        assert isinstance(inner, Poly | Choice)
        return inner

    def _cases(self, atom: Atom) -> tuple[tuple[Condition, Poly], ...]:
        """The cases of a word that is one of several, or a field of one; none of others."""
        field = atom.args[0] if atom.kind == "field" else None
        base = self.terms.atoms[field.base] if isinstance(field, Field) else atom
        value = base.args[0] if base.kind == "choice" else None
        if not isinstance(value, Choice):
            return ()
        if not isinstance(field, Field):
            return value.parts
        return tuple((c, self.terms.field(p, field.low, field.count, field.count)) for c, p in value.parts)

    def _word(self, part: Poly, width: int) -> Poly:
        """What a part of a word says in a wider one, of which it is the low bits."""
        return part if part.width == width else self.terms.resize(self.terms.unsigned(part), width)

    def _equal(self, key: tuple[Poly, Poly], care: Condition) -> None:
        before = self._known.get(key, 0)
        self._shown.append((*key, before))
        self._known[key] = self.cases.either(before, care)

    def apart(self, ir: Value, ptx: Value, care: Condition) -> tuple[Value, Value, Condition]:
        """The innermost parts of two values that are not shown to be equal, for messages."""
        for c, p in self.values.parts(ir):
            for d, q in self.values.parts(ptx):
                both = self.cases.both(care, self.cases.both(c, d))
                if both != 0 and not self._polys(p, q, both):
                    x, y = self._under(p, both), self._under(q, both)
                    if (x is not p or y is not q) and not (isinstance(x, Choice) or isinstance(y, Choice)):
                        p, q = x, y
                    inner = next(self._unequal_arguments(p, q, both), None)
                    return (p, q, both) if inner is None else inner
        return ir, ptx, care

    def _unequal_arguments(self, p: Value, q: Value, care: Condition) -> Iterator[tuple[Value, Value, Condition]]:
        """The operands of two equal operations that differ, in the order in which most agree."""
        a = self.terms.single(p) if isinstance(p, Poly) else None
        b = self.terms.single(q) if isinstance(q, Poly) else None
        if a is None or b is None or a.kind != b.kind or len(a.args) != len(b.args):
            return
        others = list(b.args)
        if a.kind.startswith(COMMUTATIVE) and any(self._arguments(x, y, care) for x, y in _crossed(a.args, b.args)):
            others[:2] = others[1::-1]
        if a.kind in ("exit", "total", "sum") and a.args[0] == b.args[0]:
            care = self._inside(str(a.args[0]), care)
        elif a.kind.startswith("shfl.") and b.id in self.shuffles:
            care = self.cases.any(self.cases.both(c, self.care[r]) for r, c in self.shuffles[b.id].items())
        for x, y in zip(a.args, others, strict=True):
            if isinstance(x, Poly | Choice) and isinstance(y, Poly | Choice) and not self._arguments(x, y, care):
                yield self.apart(x, y, care)

    def _compared(self, p: Poly, q: Poly, care: Condition) -> bool:
        width = q.width
        if p.width != q.width:
            p = self.terms.resize(p, width)
        if len(p.terms) == 1 == len(q.terms):
            ((m, a),), ((n, b),) = p.terms, q.terms
            if a == b and len(m) == len(n) == 1:
                return self._monomials(m, n, care) or self._inductive(p, q, care)
        left, right = dict(p.terms), dict(q.terms)
        threads = self.cases.threads(care)
        only_left: list[tuple[Monomial, Coefficient]] = []
        only_right: list[tuple[Monomial, Coefficient]] = []
        for monomial in {**left, **right}:
            a, b = left.get(monomial, 0), right.get(monomial, 0)
            if a is b or a == b or self._same_coefficient(a, b, threads):
                continue
            if monomial not in right:
                only_left.append((monomial, a))
            elif monomial not in left:
                only_right.append((monomial, b))
            else:
                return False
        if not only_left and not only_right:
            return True
        if len(only_left) != len(only_right):
            return self._inductive(p, q, care) or self._by_fields(p, q, care)
        waiting = list(only_right)
        for monomial, a in only_left:
            for i, (other, b) in enumerate(waiting):
                if len(monomial) != len(other) or not (a == b or self._same_coefficient(a, b, threads)):
                    continue
                if self._monomials(monomial, other, care):
                    del waiting[i]
                    break
            else:
                return self._inductive(p, q, care)
        return True

    def _restricted(self, p: Poly, q: Poly, care: Condition) -> bool:
        """The same with what ``care`` makes of the operands of either."""
        x, y = self._under(p, care), self._under(q, care)
        return (x is not p or y is not q) and self._equal_in(x, y, care, care)

    def _under(self, p: Poly, care: Condition) -> Value:
        """A floating-point operation with the operands that it has where ``care`` holds, in normal form; a sum with
        the cases that its terms have there."""
        atom = self.terms.single(p)
        if atom is None or atom.kind in ("choice", "fdiv"):
            return self._sum_under(p, care)
        if atom.kind.startswith(LEAST):
            return self._least_under(p, atom, care)
        if not atom.kind.startswith(COMPUTED):
            return p
        args: list[Value] = []
        for arg in atom.args:
            if not isinstance(arg, Poly | Choice):
                return p
            args.append(self._narrowed(arg, care) if isinstance(arg, Choice) else self._sum_under(arg, care))
        if all(x is y for x, y in zip(args, atom.args, strict=True)):
            return p
        return self.floats.remade(atom.kind, p.width, args)

    def _least_under(self, p: Poly, atom: Atom, care: Condition) -> Value:
        """The lesser or the greater of the words that there are where ``care`` holds: beside a word that no other is
        less than, or greater, the other one; of words that are not negative the signed one is the one without sign."""
        key = (p, care)
        found = self._lesser.get(key)
        if found is None:
            args = [self._under(arg, care) if isinstance(arg, Poly) else arg for arg in atom.args]
            a, b = (self._narrowed(arg, care) for arg in args if isinstance(arg, Poly | Choice))
            found = p
            if any(x is not y for x, y in zip((a, b), atom.args, strict=True)):
                name, kind = atom.kind.split(".")
                again = self.arithmetic.least(kind, a, b, "min" if name == "least" else "max")
                found = p if self.arithmetic.needs else again  # nobody would prove what it rests on
                self.arithmetic.needs.clear()
            self._lesser[key] = found
        return found

    def _sum_under(self, p: Poly, care: Condition) -> Poly:
        total = p
        for monomial, c in p.terms:
            atom = self.terms.atoms[monomial[0]] if len(monomial) == 1 else None
            left = None if atom is None or not isinstance(c, int) else self._term_under(atom, care)
            if left is not None and isinstance(c, int):
                term = self.terms.make(p.width, {monomial: c})
                total = self.terms.sub(total, term)
                total = self.terms.add(total, self.terms.scale(self._word(left, p.width), c))
        return total

    def _term_under(self, atom: Atom, care: Condition) -> Poly | None:
        """The only case that a term has where ``care`` holds, also of what it is the quotient of; None of others."""
        if atom.kind == "fdiv":
            whole, n = cast("tuple[Poly, int]", atom.args)
            left = self._sum_under(whole, care)
            return None if left is whole else self.terms.floordiv(left, n)
        if atom.kind != "choice":
            return None
        (value,) = atom.args
        assert isinstance(value, Choice)
        left = self._narrowed(value, care)
        return left if isinstance(left, Poly) else None

    def _narrowed(self, value: Value, care: Condition) -> Value:
        """The value where ``care`` holds, if it has one there for all threads and arguments."""
        if isinstance(value, Poly) or not self._covered(care, value.parts):
            return value
        return self.values.restrict(value, care)

    def _by_fields(self, p: Poly, q: Poly, care: Condition) -> bool:
        """A word put together from several values against one that is whole."""
        pieces = self.terms.pieces(p)
        if pieces is None or len(pieces) < 2 or self.terms.single(q) is None:
            return False
        return all(
            self._equal_in(part, self.terms.field(q, at, count, count), care, care) for at, count, part in pieces
        )

    def _inductive(self, p: Poly, q: Poly, care: Condition) -> bool:
        """A variable of the IR, alone, against a value that no variable of the PTX stands for."""
        atom = self.terms.single(p)
        return atom is not None and atom.kind == "carry" and self._carried(atom, q, care)

    def _same_coefficient(self, a: Coefficient, b: Coefficient, threads: int) -> bool:
        if isinstance(a, int) and isinstance(b, int):
            return a == b
        x = a.values if isinstance(a, Table) else np.full(self.terms.threads, a)
        y = b.values if isinstance(b, Table) else np.full(self.terms.threads, b)
        apart = int.from_bytes(np.packbits(x != y, bitorder="little").tobytes(), "little")
        return not apart & threads

    def _monomials(self, a: Monomial, b: Monomial, care: Condition) -> bool:
        if len(a) == len(b) == 1:  # most terms
            return a == b or self._atoms(self.terms.atoms[a[0]], self.terms.atoms[b[0]], care)
        waiting = list((Counter(b) - Counter(a)).elements())
        for i in (Counter(a) - Counter(b)).elements():
            equal = (j for j in waiting if self._atoms(self.terms.atoms[i], self.terms.atoms[j], care))
            found = next(equal, None)
            if found is None:
                return False
            waiting.remove(found)
        return True

    def _atoms(self, a: Atom, b: Atom, care: Condition) -> bool:
        if a is b or a.kind == ANYTHING:
            return True
        a, b = self._bits_behind(a), self._bits_behind(b)
        if a.kind == "carry":
            return self._carried(a, self.terms.of(b.bits or 0, b), care)
        if a.kind == "choice" or b.kind == "choice":
            x = a.args[0] if a.kind == "choice" else self.terms.of(a.bits, a)
            y = b.args[0] if b.kind == "choice" else self.terms.of(b.bits, b)
            return self._arguments(x, y, care)
        if a.kind != b.kind or len(a.args) != len(b.args):
            return self._truncated(a, b, care)
        if a.kind in ("after", "stored", "result", "old"):
            return self.same_event(a.kind, a.args, b.args)
        if a.kind == "field":
            f, g = a.args[0], b.args[0]
            assert isinstance(f, Field)
            assert isinstance(g, Field)
            if (f.low, f.count) != (g.low, g.count):
                return self._truncated(a, b, care)
            x, y = self.terms.atoms[f.base], self.terms.atoms[g.base]
            shorter = min(x.bits, y.bits)  # bits of equal words, however long what these are the low bits of is
            return self._atoms(self.terms.field_atom(x.id, 0, shorter), self.terms.field_atom(y.id, 0, shorter), care)
        if a.kind in ("exit", "total", "sum"):
            if a.args[0] != b.args[0]:
                return False
            care = self._inside(str(a.args[0]), care)
        elif a.kind.startswith("shfl."):
            return self._shuffled(a, b)
        if a.kind.startswith(COMMUTATIVE):  # the order within a normal form depends on what was seen first
            (x, y, *rest), (u, v, *more) = a.args, b.args
            if (
                x is v
                or y is u
                or (
                    x is not u
                    and y is not v
                    and self._alike(x, v) + self._alike(y, u) > self._alike(x, u) + self._alike(y, v)
                )
            ):
                u, v = v, u
            if self._arguments(x, u, care):  # then x = v and y = u would make all four equal
                same = self._arguments(y, v, care)
            else:
                same = self._arguments(x, v, care) and self._arguments(y, u, care)
            if not same:
                return False
            return all(self._arguments(x, y, care) for x, y in zip(rest, more, strict=True))
        if a.kind == "ld.global" and self._in_place(a, b, care):
            return True
        return all(self._arguments(x, y, care) for x, y in zip(a.args, b.args, strict=True))

    def _in_place(self, a: Atom, b: Atom, care: Condition) -> bool:
        """Loads of one element, between which lie stores to others by the same thread."""
        (tensor, place, size, before), (other, at, count, after) = a.args, b.args
        if self.beside is None or (tensor, size) != (other, count) or before is after:
            return False
        if not isinstance(before, Poly | Choice) or not isinstance(after, Poly | Choice):
            return False
        assert isinstance(place, Poly)
        assert isinstance(at, Poly)
        assert isinstance(size, int)
        x, y = (self.beside(str(tensor), p, size, s, care) for p, s in ((place, before), (at, after)))
        if x is before and y is after:
            return False
        return self._arguments(place, at, care) and self._arguments(x, y, care)

    def _bits_behind(self, atom: Atom) -> Atom:
        """Bits of data after a loop, expressed by what these bits become after the loop; any other atom unchanged."""
        field = atom.args[0] if atom.kind == "field" else None
        base = self.terms.atoms[field.base] if isinstance(field, Field) else atom
        whole = base.args[1] if base.kind == "exit" else None
        if not isinstance(field, Field) or not isinstance(whole, Poly):
            return atom
        bits = self.terms.field(self.terms.resize(whole, base.bits), field.low, field.count, 0)
        return self.terms.atom("exit", base.args[0], bits, bits=field.count)

    def _truncated(self, a: Atom, b: Atom, care: Condition) -> bool:
        """A word of the IR, or bits of one, against the low bits of it, where ``care`` leaves no others."""
        field, whole = (x.args[0] if x.kind == "field" else None for x in (b, a))
        base, low = (whole.base, whole.low) if isinstance(whole, Field) else (a.id, 0)
        if not isinstance(field, Field) or (field.base, field.low) != (base, low) or field.count >= a.bits:
            return False
        larger = self.cases.both(care, self.cases.at_least(self.terms.of(0, a), 1 << field.count))
        return larger == 0 or self.impossible(larger)

    def _alike(self, x: object, y: object) -> int:
        """A heuristic for how likely two operands are equal: same structure on the same data, or the same last
        operation."""
        if not isinstance(x, Poly | Choice) or not isinstance(y, Poly | Choice):
            return 2 * (x == y)
        if self.shapes.of(x) == self.shapes.of(y) or self.shapes.network(x) == self.shapes.network(y):
            return 2
        a = self.terms.single(x) if isinstance(x, Poly) else None
        b = self.terms.single(y) if isinstance(y, Poly) else None
        return int(a is not None and b is not None and a.kind == b.kind)

    def _inside(self, loop: str, behind: Condition) -> Condition:
        """Where an iteration of a loop is compared for the sake of what is behind it."""
        return self.cases.both(self.care[loop], self.iterations.lasting(behind, loop))

    def _shuffled(self, a: Atom, b: Atom) -> bool:
        """A lane gets what another lane has: operands are equal wherever the instruction runs."""
        found = self.shuffles.get(b.id)
        if found is None:
            return False
        places = [self.cases.both(holds, self.care[region]) for region, holds in found.items()]
        return all(self._arguments(x, y, care) for care in places for x, y in zip(a.args, b.args, strict=True))

    def _arguments(self, x: object, y: object, care: Condition) -> bool:
        if x is y or x == y:
            return True
        if isinstance(x, Poly | Choice) and isinstance(y, Poly | Choice):
            return self._equal_in(x, y, care, care)
        return False

    def _carried(self, a: Atom, q: Poly, care: Condition) -> bool:
        """A variable that a loop of the IR carries, against a value of the same loop's PTX."""
        key = (a.id, q)
        if key in self._assumed:
            return True
        name, label = str(a.args[0]), str(a.args[1])
        region, other = self.plan[name], self.program.get(name)
        if other is None:
            return False
        carried = region.carried[label]
        assert carried.next is not None
        kept = isinstance(carried.next, Poly) and self.terms.single(carried.next) is a  # no step changes it
        if kept and self._equal_in(carried.initial, q, care, care):
            return True
        body = self.cases.both(self.care[name], region.again)
        initial, after = self._beside(other)
        one = self.terms.add(self.iterations.count(name), self.terms.const(0, 1))
        try:
            first = self.iterations.left(q, name, self.terms.const(0, 0), initial)
            following = self.iterations.left(q, name, one, after)
        except KeyError:
            return False
        before, shown = set(self._assumed), len(self._shown)
        self._assumed.add(key)
        entry = self.cases.both(region.entry, self.care[self.parents[name]])
        if self._equal_in(carried.initial, first, entry, entry) and self._equal_in(carried.next, following, body, body):
            return True
        self._assumed = before
        self._forget(shown)
        # where no second iteration follows, the variable is what it is at first
        return self.impossible(body) and self._equal_in(carried.initial, q, care, care)

    def _forget(self, shown: int) -> None:
        """Takes back what was shown since, supposing what turned out not to be shown."""
        while len(self._shown) > shown:
            p, q, before = self._shown.pop()
            self._known[p, q] = before

    def _beside(self, region: LoopBody) -> tuple[Mapping[str, Value], Mapping[str, Value]]:
        """The first values of what a loop of the PTX carries, and what follows the present ones."""
        found = self._carries.get(region.name)
        if found is None:
            carried = {r: c for r, c in region.carried.items() if c.next is not None}
            initial = {r: c.initial for r, c in carried.items()}
            after = {r: c.next for r, c in carried.items() if c.next is not None}
            found = self._carries[region.name] = initial, after
        return found


def _crossed(a: tuple[object, ...], b: tuple[object, ...]) -> tuple[tuple[object, object], tuple[object, object]]:
    return (a[0], b[1]), (a[1], b[0])
