"""Values made again for where a condition holds: with the cases that are left there, in all that they are made of.

Choices of pairs by tests of data (``argmax``) nest, and each test is of values that have cases themselves. NVRTC tells
the cases of guards apart by branches, once for all of a tile; the IR has them in every element. Of both what is left in
a branch is one object, if it is made again from its leaves.
"""

from __future__ import annotations

from tilewright.validate.arithmetic import Arithmetic
from tilewright.validate.cases import CaseNode, Condition
from tilewright.validate.float_orders import ORDER, RANK
from tilewright.validate.polynomials import Atom, Field, Poly
from tilewright.validate.values import Choice, Value


class Specialised:
    """Values where ``care`` holds, which says nothing of the thread or of data, so that it holds in all threads of a
    CTA or in none. Each is equal to what it is made from for all arguments of ``care``, by induction:

    - a choice is among the cases that ``care`` leaves, if it has one everywhere there;
    - an operation on equal operands gives equal results, if it depends on nothing else (``computed``: the beginnings of
      the kinds of such atoms); so does a lane shuffle, whose operand is equal in every lane;
    - a condition on equal quantities is equal; a comparison that would rest on a proof is left as it is.
    """

    def __init__(self, arithmetic: Arithmetic, care: Condition, computed: tuple[str, ...]):
        self.arithmetic, self.care, self.computed = arithmetic, care, computed
        self.values, self.terms, self.cases = arithmetic.values, arithmetic.terms, arithmetic.cases
        self._made: dict[Value, Value] = {}
        self._atoms: dict[int, Value] = {}
        self._conditions: dict[CaseNode, Condition] = {}
        self._alike: dict[frozenset[Poly], list[CaseNode]] = {}
        """Conditions that differ, by what they depend on."""

    def value(self, value: Value) -> Value:
        """The value, equal where ``care`` holds."""
        found = self._made.get(value)
        if found is None:
            self.terms.spend(1)
            found = self._made[value] = self._choice(value) if isinstance(value, Choice) else self._sum(value)
        return found

    def _choice(self, value: Choice) -> Value:
        if not self.cases.implies(self.care, self.values.anywhere(value.parts)):
            return value  # elsewhere nothing has written it
        kept: dict[Poly, Condition] = {}
        for c, p in value.parts:
            if self.cases.both(c, self.care) == 0:
                continue
            holds = self.condition(c)
            for inner, q in self.values.parts(self.value(p)):
                kept[q] = self.cases.either(kept.get(q, 0), self.cases.both(holds, inner))
        return self.values.choose([(self._one(holds), q) for q, holds in kept.items()])

    def _sum(self, value: Poly) -> Value:
        total: Value = value
        for monomial, c in value.terms:
            if len(monomial) != 1 or not isinstance(c, int):
                continue
            atom = self.terms.atoms[monomial[0]]
            word = self._atom(atom)
            if word is not self.terms.of(atom.bits, atom):
                wide = self.values.field(word, 0, atom.bits, value.width)
                total = self.values.sub(total, self.terms.make(value.width, {monomial: c}))
                total = self.values.add(total, self.values.scale(wide, c))
        return total

    def _atom(self, atom: Atom) -> Value:
        found = self._atoms.get(atom.id)
        if found is None:
            found = self._atoms[atom.id] = self._remade(atom) if atom.bits else self.terms.of(0, atom)
        return found

    def _remade(self, atom: Atom) -> Value:
        plain = self.terms.of(atom.bits, atom)
        first = atom.args[0] if atom.args else None
        if isinstance(first, Field):
            base = self.terms.atoms[first.base]
            word = self._atom(base)
            same = word is self.terms.of(base.bits, base)
            return plain if same else self.values.field(word, first.low, first.count, first.count)
        if atom.kind == "choice" and isinstance(first, Choice):
            return self.value(first)
        if atom.kind.startswith("shfl.") and isinstance(first, Poly | Choice):
            return self._shuffled(atom, first) or plain
        if not atom.kind.startswith(self.computed):
            return plain
        args = [self.value(arg) for arg in atom.args if isinstance(arg, Poly | Choice)]
        if len(args) != len(atom.args) or all(x is y for x, y in zip(args, atom.args, strict=True)):
            return plain
        return self.arithmetic.floats.remade(atom.kind, atom.bits, args)

    def _shuffled(self, atom: Atom, word: Value) -> Value | None:
        """What lanes exchange."""
        moved = self.value(word)
        if moved is word:
            return None
        rest = [x for x in atom.args[1:] if isinstance(x, Poly | Choice)]
        known = self.values.shuffled(atom.kind.split(".")[1], moved, *rest)
        if known is not None:
            return known
        return self.terms.masked(self.terms.data(32, 32, atom.kind, moved, *rest), self.values.may_be_set(moved))

    def condition(self, a: Condition) -> Condition:
        """The condition, of quantities made again, and ``care``."""
        a = self.cases.given(a, self.care)
        return self.cases.both(a if isinstance(a, int) else self._of_node(a), self.care)

    def _one(self, a: Condition) -> Condition:
        """The first condition that is equal: cuts may differ for threads that neither has."""
        if isinstance(a, int):
            return a
        alike = self._alike.setdefault(frozenset(self.cases.quantities_of(a)), [])
        found = next((b for b in alike if self.cases.differ(a, b) == 0), None)
        if found is None:
            alike.append(a)
        return found or a

    def _of_node(self, node: CaseNode) -> Condition:
        found = self._conditions.get(node)
        if found is None:
            self.terms.spend(1)
            children = [x if isinstance(x, int) else self._of_node(x) for x in node.children]
            reached = self._reached(self.cases.quantities[node.quantity], node)
            found = self._conditions[node] = (
                self.cases.with_children(node, children) if reached is None else self.cases.between(reached, children)
            )
        return found

    def _reached(self, quantity: Poly, node: CaseNode) -> list[Condition] | None:
        """Where a quantity, made again, reaches each of a node's cuts; None of one that stays as it is."""
        atom = self.terms.single(quantity)
        args = [x for x in atom.args if isinstance(x, Poly | Choice)] if atom is not None else []
        if atom is None or not atom.kind.startswith("test."):
            again = self.value(quantity)
            if again is quantity:
                return None
            return [self.values.test(lambda q, cut=cut: self.cases.reaches(q, cut), again) for cut in node.cuts]
        made = [self.value(x) for x in args]
        if len(args) != len(atom.args) or all(x is y for x, y in zip(made, args, strict=True)):
            return None
        test, cuts, orders = self.values.test, [cut for cut in node.cuts if isinstance(cut, int)], self.values.orders
        if atom.kind == RANK:
            return [test(lambda x, cut=cut: orders.rank_reaches(x, cut), made[0]) for cut in cuts]
        if atom.kind == ORDER:
            return [test(lambda x, y, cut=cut: orders.order_reaches(x, y, cut), *made) for cut in cuts]
        if atom.kind in ("test.lt.s", "test.lt.u"):
            found = self.arithmetic.compare("lt", f"{atom.kind[-1]}{made[0].width}", *made)
            rests = bool(self.arithmetic.needs)
            self.arithmetic.needs.clear()
            return None if rests else [found]
        return None
