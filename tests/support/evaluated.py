"""What values and conditions of the comparison are for given words, by their definition."""

from __future__ import annotations

import operator
from collections.abc import Callable

from support.comparison import Comparison
from tilewright.validate.cases import Condition
from tilewright.validate.polynomials import Atom, Field, Poly, Table
from tilewright.validate.values import Choice, Value

Given = dict[str, int]
"""Words that are loaded, by name."""

_OF_TWO: dict[str, Callable[[int, int], int]] = {
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "fdiv": operator.floordiv,
    "div": operator.floordiv,
    "min": min,
    "max": max,
}


def signed(x: int, bits: int) -> int:
    """The low bits of an integer, read with a sign."""
    x %= 1 << bits
    return x - (1 << bits) if x >> (bits - 1) else x


def quotient(kind: str, x: int, y: int) -> int:
    """``div`` of PTX, towards 0, of words of a type such as ``s64``; nothing is said of a division by 0."""
    bits = int(kind[1:])
    if kind[0] == "s":
        x, y = signed(x, bits), signed(y, bits)
    return (abs(x) // abs(y) if (x < 0) == (y < 0) else -(abs(x) // abs(y))) % (1 << bits)


class Evaluated(Comparison):
    """Values over words that are loaded, and what they are in the first thread."""

    def word(self, bits: int, name: str) -> Poly:
        """A word that is loaded."""
        return self.terms.data(bits, bits, "ld.global", name)

    def number(self, value: Value, given: Given) -> int:
        """A value: an integer, or modulo a power of two. ``KeyError``: of no case."""
        if isinstance(value, Choice):
            for condition, part in value.parts:
                if self.holds(condition, given):
                    return self.number(part, given)
            raise KeyError
        total = 0
        for monomial, c in value.terms:
            term = int(c.values[0]) if isinstance(c, Table) else c
            for i in monomial:
                term *= self.atom(self.terms.atoms[i], given)
            total += term
        return total % (1 << value.width) if value.width else total

    def holds(self, condition: Condition, given: Given) -> bool:
        """Whether a condition holds."""
        while not isinstance(condition, int):
            found = self.number(self.cases.quantities[condition.quantity], given)
            cuts = [int(cut.values[0]) if isinstance(cut, Table) else cut for cut in condition.cuts]
            condition = condition.children[sum(cut <= found for cut in cuts)]
        return bool(condition & 1)

    def proved(self, given: Given) -> bool:
        """Whether all holds that operations have left to be proved."""
        return not any(
            self.holds(need.when, given)
            and not need.low <= self.number(need.value, given) <= (1 << 99 if need.high is None else need.high)
            for need in self.arithmetic.needs
        )

    def atom(self, atom: Atom, given: Given) -> int:
        found = self._atom(atom, given)
        assert not atom.bits or 0 <= found < 1 << atom.bits
        assert atom.low is None or found >= atom.low
        assert atom.high is None or found <= atom.high
        return found

    def _atom(self, atom: Atom, given: Given) -> int:
        if atom.kind in ("ld.global", "parameter"):
            return given[str(atom.args[0])]
        field = atom.args[0]
        if isinstance(field, Field):
            return self.atom(self.terms.atoms[field.base], given) >> field.low & ((1 << field.count) - 1)
        values = [arg for arg in atom.args if isinstance(arg, Poly | Choice)]
        numbers = [self.number(arg, given) for arg in values]
        numbers += [arg for arg in atom.args if isinstance(arg, int)]
        kind, _, of = atom.kind.partition(".")
        match kind:
            case "choice" | "word":
                return numbers[0] % (1 << atom.bits) if atom.bits else numbers[0]
            case "div" if of:
                return quotient(of, *numbers)
            case "test" if of == "zero":
                return int(numbers[0] == 0)
            case "test":
                x, y = (signed(n, values[0].width) for n in numbers) if of == "lt.s" else numbers
                return int(x < y)
            case "least" | "greatest":
                bits = int(of[1:])
                chosen = min if kind == "least" else max
                return chosen(numbers, key=lambda n: signed(n, bits) if of[0] == "s" else n)
            case _:
                return _OF_TWO[kind](*numbers)
