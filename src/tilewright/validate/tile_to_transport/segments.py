"""Data that one evaluation passes to the other: loops in their parts, paths, and stores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tilewright.base.expr import Expr
from tilewright.lang.enums import AtomicFn
from tilewright.validate.tile_to_transport.fingerprints import key
from tilewright.validate.tile_to_transport.integers import Bounds, Number
from tilewright.validate.tile_to_transport.values import GuardedTerms


@dataclass
class LoopSegment:
    """A loop of the Transport IR: the steps ``begin <= counter < end`` of a stream, and the loops inside it."""

    counter: str
    begin: Number
    end: Number
    range: tuple[Expr, Expr]
    """Both as expressions over what a launch, its programs and outer counters decide."""
    inside: list[LoopSegment] = field(default_factory=list["LoopSegment"])

    @property
    def single(self) -> bool:
        """One step, of a known number."""
        known = self.begin.known and self.end.known
        return known and int(self.end.number.flat[0]) == int(self.begin.number.flat[0]) + 1

    @property
    def empty(self) -> bool:
        """No step, by known numbers."""
        known = self.begin.known and self.end.known
        return known and int(self.end.number.flat[0]) <= int(self.begin.number.flat[0])

    @property
    def loop(self) -> int:
        """Its name: which steps these are."""
        return key("loop", self.counter, int(self.begin.fingerprints.flat[0]), int(self.end.fingerprints.flat[0]))


@dataclass(frozen=True)
class StoredElements:
    """Elements that one op writes: where, what, and under which bounds; ``around`` are the loops it is in."""

    tensor: str
    fn: AtomicFn | None
    """The reduction by which it is added to the tensor, if any."""
    around: tuple[int, ...]
    coords: Sequence[Number]
    value: GuardedTerms
    bounds: Bounds
    where: str
