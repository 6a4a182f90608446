"""Integers that a kernel loads and names (``transport.bind``): one value on both sides.

The word that the IR's read of shared memory brings is an integer in the range that the op states. An instruction that
reads the same bytes brings the same integer if it sees the same contents of shared memory, which is compared as other
operands are.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.ir import Operation

from tilewright.artifact.schema import MAX_EXTENT
from tilewright.validate.cases import Condition
from tilewright.validate.polynomials import Poly
from tilewright.validate.undecided import Undecided
from tilewright.validate.values import Value, Values

MOST_DRAWN = (1 << 31) - 1
"""A CTA draws at most one number that no program has, and there are less than 2^21 CTAs."""


@dataclass(frozen=True)
class Bound:
    """``value``, over the integers, is read in a region, where ``holds``, from ``bytes`` bytes of shared memory at
    ``place``; ``state`` stands for the contents of shared memory then."""

    value: Poly
    place: Value
    bytes: int
    region: str
    holds: Condition
    state: Value
    where: str

    def word(self, values: Values, offset: Poly, size: int) -> Value | None:
        """The value of ``size`` bytes at ``offset``, if they are the low or the high end of the integer; else None."""
        if not isinstance(self.place, Poly):
            return None
        first = values.number(values.sub(offset, self.place))
        if first is None or not 0 <= first <= self.bytes - size or first % size:
            return None
        return values.field(values.resize(self.value, 8 * self.bytes), 8 * first, 8 * size, 8 * size)


@dataclass(frozen=True)
class BoundRead:
    """An instruction that reads a bound where ``holds``, with the state of shared memory at that point."""

    bound: Bound
    state: Value
    holds: Condition
    where: str


@dataclass(frozen=True)
class Drawn:
    """Programs of a role: the number of the first one, that of the present one, and that of the next one, which the
    iteration names."""

    first: Value
    present: Poly
    next: Poly


class BoundSequence:
    """All of one kernel, in the IR's order."""

    def __init__(self, values: Values):
        self.values, self.cases, self.terms = values, values.cases, values.terms
        self.listed: list[Bound] = []
        self._known: dict[Operation, tuple[tuple[str, ...], Poly]] = {}
        self.drawn: dict[str, Drawn] = {}
        """By loop over programs that CTAs draw."""

    def draws(self, name: str, first: Value, op: Operation) -> Drawn:
        """The programs of loop ``name``, of which ``op`` names the next one."""
        present = self.terms.of(0, self.terms.atom("drawn", name, low=0, high=MAX_EXTENT))
        found = self.drawn[name] = Drawn(first, present, self.value(op, (name,), MOST_DRAWN))
        return found

    def value(self, op: Operation, loops: tuple[str, ...], most: int = MAX_EXTENT) -> Poly:
        """The integer that an op names in the innermost of some loops: another one in each of their iterations."""
        found = self._known.get(op)
        if found is None:
            atom = self.terms.atom("bound", loops, len(self._known), low=0, high=most)
            found = self._known[op] = loops, self.terms.of(0, atom)
        if found[0] != loops:
            raise Undecided("an integer that is loaded in other loops than were counted")
        return found[1]

    def add(
        self, value: Poly, loops: tuple[str, ...], holds: Condition, place: Value, size: int, state: Value, where: str
    ) -> None:
        """Records the read that loads an integer."""
        region = loops[-1] if loops else "kernel"
        self.listed.append(Bound(value, place, size, region, holds, state, where))

    def brings(self, offset: Poly, size: int) -> bool:
        """Whether some bytes of shared memory are a bound wherever they are one."""
        return any(bound.word(self.values, offset, size) is not None for bound in self.listed)

    def at(self, region: str, holds: Condition, offset: Poly, size: int) -> tuple[Bound, Value] | None:
        """The bound of which an instruction of a region reads some bytes, and their value."""
        for bound in self.listed:
            if bound.region == region and self.cases.both(bound.holds, holds) != 0:
                word = bound.word(self.values, offset, size)
                if word is not None:
                    return bound, word
        return None
