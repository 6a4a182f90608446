"""Brings two register layouts of one tile to atoms of the same box.

Repeats are moved into the atom as far as the box reaches, so that what is left on both sides are equal integer steps of
the box: what holds for the atoms holds for every step, even if the number of steps is not a power of two.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from tilewright.layout.f2 import F2Layout
from tilewright.layout.register import RegisterLayout


@dataclass(frozen=True)
class Refined:
    """A layout as an atom over a box and steps.

    ``weights[i]`` is what atom register bit i adds to the register index; ``modes`` are the digits of the steps,
    (dimension, count, weight), inner first; ``copies`` the register offsets at which the same element is held again.
    """

    atom: F2Layout
    weights: tuple[int, ...]
    modes: tuple[tuple[int, int, int], ...]
    copies: tuple[int, ...]

    def register(self, word: int) -> int:
        """The layout's register for a word of atom register bits."""
        return sum(w for i, w in enumerate(self.weights) if word >> i & 1)

    def step(self, position: tuple[int, ...]) -> int:
        """The register offset of the step at ``position`` (boxes along each dimension)."""
        rest, offset = list(position), 0
        for dim, count, weight in self.modes:
            rest[dim], digit = divmod(rest[dim], count)
            offset += digit * weight
        return offset


def common_box(a: RegisterLayout, b: RegisterLayout) -> tuple[int, ...]:
    """The least box, a power of two per dimension, that both atoms fit."""
    return tuple(1 << max(x, y) for (_, x), (_, y) in zip(a.atom.outs, b.atom.outs, strict=True))


def refine(layout: RegisterLayout, box: tuple[int, ...]) -> Refined | None:
    """``layout`` over atoms of ``box``; None when its repeats do not fall on the box."""
    bits = [size.bit_length() - 1 for size in box]
    shifts = [sum(bits[:d]) for d in range(len(box))]
    registers = [_moved(layout, c, shifts) for c in layout.atom.axis_columns("register")]
    weights = [1 << i for i in range(len(registers))]
    outer: list[tuple[int, int, int, int]] = []
    copies = [0]
    place = layout.atom_registers
    for repeat in layout.repeats:
        count, weight, stride = repeat.count, place, repeat.stride
        place *= count
        if stride == 0:
            copies = [c + k * weight for k in range(count) for c in copies]
            continue
        if stride < box[repeat.dim]:
            inside = min(count, box[repeat.dim] // stride)
            if stride & (stride - 1) or inside & (inside - 1) or count % inside:
                return None
            for i in range(inside.bit_length() - 1):
                registers.append(stride << i << shifts[repeat.dim])
                weights.append(weight << i)
            count, weight, stride = count // inside, weight * inside, stride * inside
        if count > 1:
            outer.append((repeat.dim, stride, count, weight))
    reach = list(box)
    modes: list[tuple[int, int, int]] = []
    for dim, stride, count, weight in sorted(outer):
        if stride != reach[dim]:
            return None
        reach[dim] *= count
        modes.append((dim, count, weight))
    threads = [_moved(layout, c, shifts) for n in ("lane", "warp") for c in layout.atom.axis_columns(n)]
    atom = F2Layout(
        (("register", len(registers)), *layout.atom.ins[1:]),
        tuple((f"dim{d}", n) for d, n in enumerate(bits)),
        (*registers, *threads),
    )
    if tuple(reach) != layout.shape or not atom.is_surjective:
        return None
    return Refined(atom, tuple(weights), tuple(modes), tuple(copies))


def _moved(layout: RegisterLayout, column: int, shifts: list[int]) -> int:
    return sum(x << s for x, s in zip(layout.atom.unpack(column), shifts, strict=True))


def steps(shape: tuple[int, ...], box: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Positions of the boxes in the tile, the last dimension fastest."""
    return product(*(range(s // b) for s, b in zip(shape, box, strict=True)))
