"""Reordered registers, so that the elements of one access are adjacent: vectors along a dimension, or pairs of a matrix
row.

A thread that holds a block of 8 x 8 elements, row after row, writes it column by column in whole vectors once its
registers are reordered. Copies of an element within a thread are left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from tilewright.layout.f2 import F2Layout
from tilewright.layout.register import RegisterLayout, Repeat


@dataclass(frozen=True)
class Arranged:
    """``layout`` holds in register i what the original holds in register ``order[i]``, every element once a thread."""

    layout: RegisterLayout
    order: tuple[int, ...]

    def back(self, original: RegisterLayout) -> tuple[int, ...]:
        """For every register of the original layout, the register of ``layout`` that holds its element."""
        places = {original.coordinate(0, register): i for i, register in enumerate(self.order)}
        return tuple(places[original.coordinate(0, register)] for register in range(original.registers))


def arranged(layout: RegisterLayout, dim: int, most: int) -> Arranged:
    """``layout`` with the longest aligned run along ``dim`` of at most ``most`` (a power of two) registers first."""
    while most > 1:
        found = _Digits(layout).in_front(dim, most)
        if found is not None:
            return found
        most //= 2
    front = _Digits(layout).in_front(dim, 1)
    assert front is not None, "one register is always a run"
    return front


class _Digits:
    """The register digits of a layout that are no copies: atom bits (weight, column), repeats (weight, repeat)."""

    def __init__(self, layout: RegisterLayout) -> None:
        self.layout = layout
        free = layout.replication.free_register_mask
        columns = layout.atom.axis_columns("register")
        self.bits = [(1 << i, c) for i, c in enumerate(columns) if not free >> i & 1]
        self.repeats: list[tuple[int, Repeat]] = []
        weight = layout.atom_registers
        for repeat in layout.repeats:
            if repeat.stride and repeat.count > 1:
                self.repeats.append((weight, repeat))
            weight *= repeat.count

    def in_front(self, dim: int, run: int) -> Arranged | None:
        """A run of exactly ``run`` registers along ``dim`` in front; None if threads hold no such run, or it is not
        aligned."""
        outs = self.layout.atom.outs
        front: list[tuple[int, tuple[int, ...]]] = []
        bits = [(w, self.layout.atom.unpack(c)) for w, c in self.bits]
        repeats = list(self.repeats)
        reach = 1
        while reach < run:
            step = tuple(reach if d == dim else 0 for d in range(len(outs)))
            place = next((i for i, (_, image) in enumerate(bits) if image == step), None)
            if place is not None:
                front.append(bits.pop(place))
            elif not self._split(repeats, dim, reach, front, step):
                return None
            reach *= 2
        threads = [self.layout.atom.unpack(c) for n in ("lane", "warp") for c in self.layout.atom.axis_columns(n)]
        others = [image[dim] for _, image in bits] + [image[dim] for image in threads]
        others += [repeat.stride for _, repeat in repeats if repeat.dim == dim]
        if any(x % run for x in others):
            return None
        return self._built([*front, *bits], repeats, threads)

    @staticmethod
    def _split(
        repeats: list[tuple[int, Repeat]],
        dim: int,
        reach: int,
        front: list[tuple[int, tuple[int, ...]]],
        step: tuple[int, ...],
    ) -> bool:
        """Take a factor of two out of the repeat that continues the run."""
        for i, (weight, repeat) in enumerate(repeats):
            if repeat.dim == dim and repeat.stride == reach and repeat.count % 2 == 0:
                front.append((weight, step))
                rest = Repeat(dim, repeat.count // 2, repeat.stride * 2)
                repeats[i : i + 1] = [(weight * 2, rest)] if rest.count > 1 else []
                return True
        return False

    def _built(
        self, bits: list[tuple[int, tuple[int, ...]]], repeats: list[tuple[int, Repeat]], threads: list[tuple[int, ...]]
    ) -> Arranged:
        images = [image for _, image in bits] + threads
        old = self.layout.atom
        sizes = [max([b, *(image[d].bit_length() for image in images)]) for d, (_, b) in enumerate(old.outs)]
        shifts = [sum(sizes[:d]) for d in range(len(sizes))]
        atom = F2Layout(
            (("register", len(bits)), *old.ins[1:]),
            tuple((name, n) for (name, _), n in zip(old.outs, sizes, strict=True)),
            tuple(sum(x << s for x, s in zip(image, shifts, strict=True)) for image in images),
        )
        layout = RegisterLayout(self.layout.shape, atom, tuple(r for _, r in repeats))
        words = [sum(w for i, (w, _) in enumerate(bits) if word >> i & 1) for word in range(1 << len(bits))]
        digits = [range(r.count) for _, r in reversed(repeats)]
        steps = [sum(x * w for x, (w, _) in zip(reversed(place), repeats, strict=True)) for place in product(*digits)]
        return Arranged(layout, tuple(step + word for step in steps for word in words))
