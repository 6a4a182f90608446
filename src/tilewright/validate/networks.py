"""Networks of minima and maxima (sorts, selections): a PTX network with the words of the IR's in place of its own.

The words that are sorted are compared; what is made of them by minima, maxima and lane shuffles is then made again of
the IR's words. Networks that are the same become one object, and need no comparison of their own.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.validate.polynomials import Atom, Field, Poly
from tilewright.validate.shapes import COMPARED, Shapes
from tilewright.validate.values import Choice, Value, Values, in_order


class Networks:
    """Makes networks again. ``equal(ir, ptx)`` compares two words, ``everywhere(shuffle)`` says whether they are
    compared wherever a lane shuffle of the PTX runs."""

    def __init__(
        self,
        values: Values,
        shapes: Shapes,
        equal: Callable[[Value, Value], bool],
        everywhere: Callable[[Atom], bool],
    ):
        self.values, self.terms, self.shapes = values, values.terms, shapes
        self.equal, self.everywhere = equal, everywhere
        self._has: dict[Value, bool] = {}
        self._made: dict[Value, Value] = {}
        self._seen: set[Value] = set()
        self._words: dict[int, dict[Value, None]] = {}
        """Those of the IR that were met, by what they are loaded from."""

    def renamed(self, ir: Value, ptx: Value) -> Value:
        """The PTX's network of the words of the IR's networks so far; what is not known to be one stays."""
        self._collect(ir)
        return self._again(ptx)

    def _collect(self, value: Value) -> None:
        """Notes the words that a network of the IR sorts."""
        pending = [value]
        while pending:
            v = pending.pop()
            if v in self._seen:
                continue
            self._seen.add(v)
            if not self._is_made(v):
                self._words.setdefault(self.shapes.network(v), {})[v] = None
                continue
            for _, p in self.values.parts(v):
                if isinstance(v, Choice):
                    pending.append(p)
                    continue
                for monomial, _ in p.terms:
                    pending += [x for i in monomial for x in self._inside(self.terms.atoms[i])]

    def _inside(self, atom: Atom) -> list[Value]:
        """The operands of a part of a network."""
        field = atom.args[0] if atom.kind == "field" else None
        if isinstance(field, Field):
            return [self.terms.of(self.terms.atoms[field.base].bits, self.terms.atoms[field.base])]
        if atom.kind.startswith("shfl."):
            return [x for x in atom.args[:1] if isinstance(x, Poly | Choice)]
        return [x for x in atom.args if isinstance(x, Poly | Choice)]

    def _is_made(self, value: Value) -> bool:
        """Whether the value is the result of minima, maxima or shuffles, whose words are distinguished."""
        found = self._has.get(value)
        if found is None:
            if isinstance(value, Choice):
                found = any(self._is_made(p) for _, p in value.parts)
            else:
                atoms = [self.terms.atoms[i] for monomial, _ in value.terms for i in monomial]
                found = any(self._is_part(atom) for atom in atoms)
            self._has[value] = found
        return found

    def _is_part(self, atom: Atom) -> bool:
        if atom.kind.startswith(COMPARED):
            return True
        return atom.kind == "field" and self._is_made(self._inside(atom)[0])

    def _again(self, value: Value) -> Value:
        found = self._made.get(value)
        if found is None:
            if not self._is_made(value):
                alike = self._words.get(self.shapes.network(value), {})
                words = tuple(alike)  # words may be networks, which are made again in their turn
                found = value if value in alike else next((w for w in words if self.equal(w, value)), value)
            elif isinstance(value, Choice):
                found = self.values.choose([(c, self._again(p)) for c, p in value.parts])
            else:
                found = self._sum_again(value)
            self._made[value] = found
        return found

    def _sum_again(self, value: Poly) -> Value:
        total: Value = self.terms.const(value.width, 0)
        for monomial, c in value.terms:
            term: Value = self.terms.make(value.width, {monomial: c})
            atom = self.terms.atoms[monomial[0]] if len(monomial) == 1 else None
            if atom is not None and isinstance(c, int) and self._is_part(atom):
                word = self._atom_again(atom)
                term = self.values.scale(self.values.field(word, 0, atom.bits, value.width), c)
            total = self.values.add(total, term)
        return total

    def _atom_again(self, atom: Atom) -> Value:
        """An operation on other words, of which those of a minimum are in the order of the normal form."""
        field = atom.args[0] if atom.kind == "field" else None
        if isinstance(field, Field):
            return self.values.field(self._again(self._inside(atom)[0]), field.low, field.count, field.count)
        inside = self._inside(atom)
        words = [self._again(x) for x in inside]
        if all(new is old for new, old in zip(words, inside, strict=True)):
            return self.terms.of(atom.bits, atom)
        if atom.kind.startswith("shfl."):
            if not self.everywhere(atom):
                return self.terms.of(atom.bits, atom)
            return self.terms.data(atom.bits, atom.bits, atom.kind, words[0], *atom.args[1:])
        x, y = words
        return x if x is y else self.values.apply(atom.bits, atom.kind, *in_order(x, y))
