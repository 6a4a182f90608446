"""Shared memory of kernels with roles: what lies at each byte of each fill of a buffer.

A place in shared memory is a number of bytes plus a rest: the slot of a ring, which the number of the fill decides. Two
fills of one slot have two rests, so that a fill is found by the number that its reader counts: that the reader's fill
has landed, and no later one, is what the protocol's proof says. What is filled in a step of a loop is found in the same
step of it, or from outside of all loops that the fill is not in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from tilewright.base.expr import Expr
from tilewright.validate.tile_to_transport.fingerprints import Fingerprints, key
from tilewright.validate.tile_to_transport.integers import ALWAYS, Number, Numbers
from tilewright.validate.tile_to_transport.values import GuardedTerms
from tilewright.validate.undecided import Undecided

Loops = tuple[int, ...]
"""Names of loops, the outermost first."""


@dataclass
class _Fill:
    """Elements by their byte: terms, under which guard and what lies beyond it, and where they are known at all."""

    terms: Fingerprints
    beyond: Fingerprints
    guard: dict[int, Numbers] = field(default_factory=dict[int, Numbers])
    need: dict[int, Numbers] = field(default_factory=dict[int, Numbers])

    def put(self, at: Numbers, value: GuardedTerms) -> None:
        """Writes elements at ``at``, in units of an element."""
        last = int(at.max(initial=-1)) + 1
        if last > self.terms.size:
            self._grow(last)
        if value.beyond is None:
            value = value.flat()
        self.terms[at] = np.broadcast_to(value.terms, at.shape)
        self.beyond[at] = np.broadcast_to(value.terms if value.beyond is None else value.beyond, at.shape)
        for own, given in ((self.guard, value.guard), (self.need, value.need)):
            for form in {**own, **given}:
                if form not in own:
                    own[form] = np.full(self.terms.size, ALWAYS)
                own[form][at] = np.broadcast_to(given.get(form, np.int64(ALWAYS)), at.shape)

    def _grow(self, size: int) -> None:
        more = size - self.terms.size
        self.terms, self.beyond = (
            np.concatenate([x, np.full(more, key("undefined"), np.uint64)]) for x in (self.terms, self.beyond)
        )
        for own in (self.guard, self.need):
            for form in own:
                own[form] = np.concatenate([own[form], np.full(more, ALWAYS)])

    def get(self, at: Numbers) -> GuardedTerms:
        """The elements at ``at``."""
        if int(at.max(initial=-1)) >= self.terms.size:
            raise Undecided("a read of shared memory that nothing fills")
        guard = {f: c[at] for f, c in self.guard.items()}
        return GuardedTerms(
            self.terms[at], guard, self.beyond[at] if guard else None, {f: c[at] for f, c in self.need.items()}
        )


class SharedFills:
    """All fills of one program."""

    def __init__(self) -> None:
        self.fills: dict[tuple[object, int], dict[Loops, _Fill]] = {}
        self.forms: dict[int, Expr] = {}
        """The expressions of all forms that bound its elements, whichever role wrote them."""
        self.reads: set[tuple[tuple[object, int], Loops, Loops]] = set()

    def write(self, buffer: object, place: Number, size: int, around: Loops, value: GuardedTerms) -> None:
        """Elements of ``size`` bytes at the bytes ``place``."""
        name, at = _apart(buffer, place, size)
        fills = self.fills.setdefault(name, {})
        if around not in fills:
            fills[around] = _Fill(np.zeros(0, np.uint64), np.zeros(0, np.uint64))
        fills[around].put(at, value)

    def read(self, buffer: object, place: Number, size: int, around: Loops) -> GuardedTerms:
        """Elements of ``size`` bytes at the bytes ``place``."""
        name, at = _apart(buffer, place, size)
        fills = self.fills.get(name, {})
        for depth in range(len(around), -1, -1):
            found = fills.get(around[:depth])
            if found is not None:
                self.reads.add((name, around, around[:depth]))
                return found.get(at)
        raise Undecided("a read of a fill of shared memory that is none of the program's")

    def settled(self) -> None:
        """Raises ``Undecided`` if anything was read from before a loop that fills the same place."""
        for name, reader, writer in self.reads:
            for other in self.fills[name]:
                if len(other) > len(writer) and other == reader[: len(other)]:
                    raise Undecided("a place in shared memory that a step before has filled")


def _apart(buffer: object, place: Number, size: int) -> tuple[tuple[object, int], Numbers]:
    if place.rest.size != 1 or (place.number % size).any() or (place.number < 0).any():
        raise Undecided("a place in shared memory that depends on more than a ring's slot")
    return (buffer, int(place.rest.flat[0])), place.number // size


SWIZZLED: Mapping[int, tuple[int, int]] = {0: (0, 16), 1: (1, 32), 2: (2, 64), 3: (3, 128)}
"""Per swizzle (none, 32, 64, 128 bytes): the number of permuted address bits, and the bytes of a row (PTX ISA 9.1,
5.5.7)."""


def swizzled(place: Numbers, bits: int) -> Numbers:
    """Byte addresses, of linear ones: the bits from 4 on are exclusive-ored with those from 7 on."""
    return place ^ ((place >> 7 & ((1 << bits) - 1)) << 4)
