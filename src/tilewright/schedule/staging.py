"""A trip of a tile through shared memory, from one distribution to another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.base.dtypes import DType
from tilewright.base.expr import Const, Expr, Sym
from tilewright.layout.register import RegisterLayout
from tilewright.schedule.distribute import Distribution
from tilewright.schedule.mapping import ClassId
from tilewright.transport import dialect as t

_ACCESS_BYTES = 16
_CHUNKS = 8
"""Vectors of 16 bytes in the 128 bytes that shared memory serves at once (hw.banks): so many rows get different
ones."""


@dataclass(frozen=True)
class Staging:
    """How the tile lies in shared memory: ``main`` is the dimension along which it is contiguous.

    ``before`` is the writer's layout; ``turn``, if not None, gives for each of its registers the one of the original
    distribution. Vectors along ``main`` are exchanged with those of ``across``'s neighbours: chunk c of a row goes to
    c ^ (row // vector % chunks), so that neither the writer's nor the reader's lanes meet in a bank.
    """

    before: RegisterLayout
    after: RegisterLayout
    turn: Expr | None
    extents: tuple[int, ...]
    main: int
    across: int
    vector: int
    chunks: int
    pad: int

    @staticmethod
    def plan(
        old: Distribution,
        new: Distribution,
        old_axes: Sequence[ClassId | None],
        new_axes: Sequence[ClassId | None],
        dtype: DType,
    ) -> Staging:
        """Vectors along the reader's contiguous axis if the writer's threads hold such, single elements otherwise."""
        after = new.layout(new_axes)
        main = _contiguous_axis(after)
        first = old_axes[main]
        turned = old.reordered(first) if first is not None else old
        before, original = turned.layout(old_axes), old.layout(old_axes)
        most = max(1, _ACCESS_BYTES // dtype.bytes)
        vector = min(before.contiguous_registers(main), after.contiguous_registers(main), most)
        turn = None if before == original else _turn(before, original)
        if before != original and turn is None:
            before, vector = original, 1
        extents = tuple(max(a, b) for a, b in zip(before.shape, after.shape, strict=True))
        across = _contiguous_axis(original)
        rows = extents[main] // vector
        chunks = min(_CHUNKS, rows & -rows) if vector > 1 and across != main else 1
        pad = 0 if chunks > 1 else vector if vector > 1 else max(1, 4 // dtype.bytes)
        return Staging(before, after, turn, extents, main, across, vector, chunks, pad)

    @property
    def elements(self) -> int:
        """Size of the buffer in elements."""
        total = self.extents[self.main] + self.pad
        for d, extent in enumerate(self.extents):
            if d != self.main:
                total *= extent
        return total

    def offset(self, places: Sequence[Expr]) -> Expr:
        """Element offset of a coordinate."""
        inner = places[self.main]
        if self.chunks > 1:
            row = places[self.across] // self.vector % self.chunks
            inner = ((inner // self.vector) ^ row) * self.vector + inner % self.vector
        total, pitch = inner, self.extents[self.main] + self.pad
        for d in reversed(range(len(places))):
            if d != self.main:
                total = total + places[d] * pitch
                pitch *= self.extents[d]
        return total


def _contiguous_axis(layout: RegisterLayout) -> int:
    """The dimension along which threads hold the longest runs, the last of equals."""
    return max(range(layout.rank), key=lambda d: (layout.contiguous_registers(d), d))


def _turn(new: RegisterLayout, old: RegisterLayout) -> Expr | None:
    """The register of ``old`` with what register r of ``new`` holds, in every thread; None if no formula is known."""
    places = {old.coordinate(0, r): r for r in range(old.registers)}
    table = [places.get(new.coordinate(0, r)) for r in range(new.registers)]
    count = len(table)
    if None in table or count & (count - 1):
        return None
    weights = [table[1 << i] or 0 for i in range(count.bit_length() - 1)]
    result: Expr = Const(0)
    for i, weight in enumerate(weights):
        result = result + Sym(t.REGISTER) // (1 << i) % 2 * weight
    if any(result.evaluate({t.REGISTER: r}) != table[r] for r in range(count)):
        return None
    return _grouped(weights)


def _grouped(weights: Sequence[int]) -> Expr:
    """The same sum with runs of neighbouring bits taken together."""
    result: Expr = Const(0)
    start = 0
    while start < len(weights):
        stop = start + 1
        while stop < len(weights) and weights[stop] == 2 * weights[stop - 1]:
            stop += 1
        result = result + Sym(t.REGISTER) // (1 << start) % (1 << (stop - start)) * weights[start]
        start = stop
    return result
