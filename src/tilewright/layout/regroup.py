"""The register layout of a reshaped tile, whose axes are split or merged: the same elements in the same registers."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tilewright.layout.f2 import F2Layout
from tilewright.layout.register import RegisterLayout, Repeat

Group = tuple[Sequence[int], Sequence[int]]
"""Dimensions of the old tile and of the new one that hold the same elements, the slowest first."""


def regrouped(
    layout: RegisterLayout, before: Sequence[int], groups: Sequence[Group], after: Sequence[int]
) -> RegisterLayout | None:
    """``layout`` of a tile of extents ``before`` as that of one of extents ``after``.

    Extents behind the first of each side of a group are powers of two, so that places within a group are bits of both.
    None where the layout covers more of such a dimension than the tile has.
    """
    where = _Places(before, groups, after)
    if any(layout.shape[d] != before[d] for old, _ in groups for d in old[1:]):
        return None
    columns: list[list[int]] = []
    shifts = [sum(b for _, b in layout.atom.outs[:d]) for d in range(layout.rank)]
    for column in layout.atom.columns:
        image = [0] * len(after)
        for d, (_, bits) in enumerate(layout.atom.outs):
            for bit in range(bits):
                if column >> (shifts[d] + bit) & 1:
                    at, stride = where.of(d, 1 << bit)
                    image[at] |= stride
        columns.append(image)
    outs = [max((image[d].bit_length() for image in columns), default=0) for d in range(len(after))]
    starts = [sum(outs[:d]) for d in range(len(after))]
    atom = F2Layout(
        layout.atom.ins,
        tuple((f"dim{d}", bits) for d, bits in enumerate(outs)),
        tuple(sum(x << s for x, s in zip(image, starts, strict=True)) for image in columns),
    )
    repeats = tuple(part for repeat in layout.repeats for part in where.repeats(repeat))
    covered = [*after]
    for old, new in groups:
        if new:
            inner = prod(after[d] for d in new[1:])
            reach = layout.shape[old[0]] * prod(before[d] for d in old[1:]) if old else 1
            if reach % inner:
                return None
            covered[new[0]] = reach // inner
    return RegisterLayout(tuple(covered), atom, repeats)


class _Places:
    """Where an element lies that is ``stride`` along a dimension away from the first."""

    def __init__(self, before: Sequence[int], groups: Sequence[Group], after: Sequence[int]):
        self._inner = {d: prod(before[e] for e in old[i + 1 :]) for old, _ in groups for i, d in enumerate(old)}
        self._new = {d: new for old, new in groups for d in old}
        self._after = after

    def of(self, dim: int, stride: int) -> tuple[int, int]:
        """The new dimension, and the stride along it."""
        place = stride * self._inner[dim]
        *inner, outer = reversed(self._new[dim])
        for d in inner:
            if place < self._after[d]:
                return d, place
            place //= self._after[d]
        return outer, place

    def repeats(self, repeat: Repeat) -> list[Repeat]:
        """A repeat in the new dimensions, the fastest first."""
        found: list[Repeat] = []
        count, stride = repeat.count, repeat.stride
        while count > 1 or not found:
            at, step = self.of(repeat.dim, stride) if stride else (self._new[repeat.dim][0], 0)
            last = stride == 0 or at == self._new[repeat.dim][0]
            here = count if last else min(count, self._after[at] // step)
            found.append(Repeat(at, here, step))
            count, stride = count // here, stride * here
        return found
