"""Integers that a kernel loads and names (``transport.bind``): one value on both sides.

The word that the IR's read of shared memory brings is an integer in the range that the op states. An instruction that
reads the same bytes brings the same integer if it sees the same contents of shared memory, which is compared as other
operands are.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.artifact.schema import MAX_EXTENT
from tilewright.validate.cases import Condition
from tilewright.validate.polynomials import Poly
from tilewright.validate.values import Value, Values


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
        """What ``size`` bytes at ``offset`` say, which are the low or the high end of the integer; None of others."""
        if not isinstance(self.place, Poly):
            return None
        first = values.number(values.sub(offset, self.place))
        if first is None or not 0 <= first <= self.bytes - size or first % size:
            return None
        return values.field(values.resize(self.value, 8 * self.bytes), 8 * first, 8 * size, 8 * size)


@dataclass(frozen=True)
class Reading:
    """An instruction that reads a bound where ``holds``, and what stands for the contents of shared memory then."""

    bound: Bound
    state: Value
    holds: Condition
    where: str


class Bounds:
    """All of one kernel, in the IR's order."""

    def __init__(self, values: Values):
        self.values, self.cases, self.terms = values, values.cases, values.terms
        self.listed: list[Bound] = []

    def add(self, loops: tuple[str, ...], holds: Condition, place: Value, size: int, state: Value, where: str) -> Poly:
        """The integer that a read in the innermost of some loops brings, another one in each iteration."""
        number = len(self.listed)
        value = self.terms.of(0, self.terms.atom("bound", loops, number, low=0, high=MAX_EXTENT))
        region = loops[-1] if loops else "kernel"
        self.listed.append(Bound(value, place, size, region, holds, state, where))
        return value

    def at(self, region: str, holds: Condition, offset: Poly, size: int) -> tuple[Bound, Value] | None:
        """The bound of which an instruction of a region reads some bytes, and what these say."""
        for bound in self.listed:
            if bound.region == region and self.cases.both(bound.holds, holds) != 0:
                word = bound.word(self.values, offset, size)
                if word is not None:
                    return bound, word
        return None
