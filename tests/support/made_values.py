"""What values of the comparison are for given data, thread by thread, computed from their definitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tilewright.validate.cases import Cases, Condition
from tilewright.validate.polynomials import Atom, Field, Poly, Table
from tilewright.validate.terms import Terms
from tilewright.validate.values import Choice, Value


def float_of(word: int) -> float:
    """The f32 with these bits."""
    return float(np.uint32(word).view(np.float32))


def rank(word: int) -> int:
    """The place of an f32 among all of them, 0 of both zeros; NaN is above the others."""
    x = float_of(word)
    if x != x:
        return 0x7F800001
    return (-1 if x < 0 else 1) * (word & 0x7FFFFFFF) if x else 0


def extreme(words: Sequence[int], sign: int) -> int:
    """max.f32 of two words for a sign of 1, min.f32 for -1: the one that is no NaN; of two zeros +0 or -0."""
    numbers = [word for word in words if float_of(word) == float_of(word)] or list(words)
    return max(numbers, key=lambda word: (sign * rank(word), -sign * (word >> 31)))


@dataclass
class Made:
    """Values of one warp: ``data`` are words of each lane by the names of scalars, ``given`` integers of the
    arguments. A value that nothing wrote is None."""

    terms: Terms
    cases: Cases
    data: Mapping[str, Sequence[int]]
    given: Mapping[str, int]
    _atoms: dict[tuple[int, int], int | None] = field(default_factory=dict[tuple[int, int], "int | None"])

    def value(self, value: Value, lane: int) -> int | None:
        """The word, or the integer."""
        if isinstance(value, Choice):
            found = [p for c, p in value.parts if self.holds(c, lane)]
            assert len(found) <= 1
            return self.value(found[0], lane) if found else None
        total = 0
        for monomial, c in value.terms:
            product = int(c.values[lane]) if isinstance(c, Table) else c
            for i in monomial:
                factor = self._atom(self.terms.atoms[i], lane)
                if factor is None:
                    return None
                product *= factor
            total += product
        return total % (1 << value.width) if value.width else total

    def holds(self, condition: Condition, lane: int) -> bool:
        """The condition holds in a lane."""
        while not isinstance(condition, int):
            number = self.value(self.cases.quantities[condition.quantity], lane)
            if number is None:
                return False
            cuts = [int(cut.values[lane]) if isinstance(cut, Table) else cut for cut in condition.cuts]
            condition = condition.children[sum(cut <= number for cut in cuts)]
        return bool(condition >> lane & 1)

    def _atom(self, atom: Atom, lane: int) -> int | None:
        key = atom.id, lane
        if key not in self._atoms:
            self._atoms[key] = self._made(atom, lane)
        return self._atoms[key]

    def _made(self, atom: Atom, lane: int) -> int | None:
        kind, first = atom.kind, atom.args[0]
        if kind in ("scalar", "parameter"):
            return self.data[str(first)][lane] if kind == "scalar" else self.given[str(first)]
        if isinstance(first, Field):
            word = self._atom(self.terms.atoms[first.base], lane)
            return None if word is None else word >> first.low & ((1 << first.count) - 1)
        operands = [x for x in atom.args if isinstance(x, Poly | Choice)]
        if kind == "shfl.bfly":
            distance = self.value(operands[1], lane)
            return None if distance is None else self.value(operands[0], lane ^ distance)
        words = [self.value(x, lane) for x in operands]
        if None in words:
            return None
        return _result(kind, [word for word in words if word is not None])


def _result(kind: str, words: list[int]) -> int:
    x = float_of(words[0])
    match kind:
        case "choice":
            return words[0]
        case "neg.f32":
            return words[0] ^ 1 << 31
        case "test.rank.f32":
            return rank(words[0])
        case "test.order.f32":
            return 1 + (x > float_of(words[1])) - (x < float_of(words[1]))
        case "test.lt.u":
            return int(words[0] < words[1])
        case "test.lt.s":
            return int((words[0] ^ 1 << 31) < (words[1] ^ 1 << 31))
        case "abs.f32":
            return words[0] & ~(1 << 31)
        case "max.f32" | "min.f32":
            return extreme(words, 1 if kind == "max.f32" else -1)
        case _:
            raise NotImplementedError(kind)
