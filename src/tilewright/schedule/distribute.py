"""Spreads the axes of a kernel's tiles over the threads of a CTA.

Positions (value, axis) that must agree element by element are one *class*: element-wise operands, a reduction's kept
axes, a fragment and what is written to it. A ``Distribution`` gives each class its digits

    coordinate = digit of the vector + vector * (digit of the thread bits + 2**bits * digit of the repeats)

and every value whose axes have digits gets its register layout from them, so that element-wise code, broadcasts and
reductions need no data movement: a value without some class is replicated over that class's thread bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

from tilewright.base.expr import Const, Expr
from tilewright.layout.f2 import F2Layout
from tilewright.layout.register import LANES, RegisterLayout, Repeat


@dataclass(frozen=True)
class Digits:
    """How one class is spread. ``size`` is the tile's extent; the covered extent may be larger."""

    size: int
    vector: int
    thread_bits: tuple[int, ...]
    repeats: int

    @property
    def step(self) -> int:
        """Distance of two repeats."""
        return self.vector << len(self.thread_bits)

    @property
    def covered(self) -> int:
        """Extent of the box that the digits reach."""
        return self.step * self.repeats

    @property
    def registers(self) -> int:
        """Elements of this class in one thread."""
        return self.vector * self.repeats


@dataclass(frozen=True)
class Distribution:
    """Digits per class, in register order (first class fastest), for ``threads`` threads."""

    threads: int
    digits: tuple[tuple[int, Digits], ...]

    @cached_property
    def by_class(self) -> Mapping[int, Digits]:
        return dict(self.digits)

    def layout(self, axes: Sequence[int | None]) -> RegisterLayout:
        """Register layout of a value whose axes have these classes (None: an axis of one element)."""
        place = {c: d for d, c in enumerate(axes) if c is not None}
        order = [(place[c], digits) for c, digits in self.digits if c in place]
        bits_out = [0] * len(axes)
        for dim, digits in order:
            bits_out[dim] = digits.vector.bit_length() - 1 + len(digits.thread_bits)
        shifts = [sum(bits_out[:d]) for d in range(len(axes))]
        registers = [1 << (shifts[dim] + i) for dim, digits in order for i in range(digits.vector.bit_length() - 1)]
        threads = [0] * (self.threads.bit_length() - 1)
        for dim, digits in order:
            low = digits.vector.bit_length() - 1
            for i, bit in enumerate(digits.thread_bits):
                threads[bit] = 1 << (shifts[dim] + low + i)
        lane_bits = LANES.bit_length() - 1
        atom = F2Layout(
            (("register", len(registers)), ("lane", lane_bits), ("warp", len(threads) - lane_bits)),
            tuple((f"dim{d}", n) for d, n in enumerate(bits_out)),
            (*registers, *threads),
        )
        repeats = tuple(Repeat(dim, digits.repeats, digits.step) for dim, digits in order if digits.repeats > 1)
        shape = tuple(1 if c is None else self.by_class[c].covered for c in axes)
        return RegisterLayout(shape, atom, repeats)

    def registers(self, classes: Iterable[int | None]) -> int:
        """Elements per thread of a value with these classes."""
        return prod(self.by_class[c].registers for c in classes if c is not None)

    def register_of(self, inner: Iterable[int | None], outer: Iterable[int | None], register: Expr) -> Expr:
        """The register of a value over ``inner`` that holds what ``register`` of a value over ``outer`` needs.

        ``inner`` is a subset of ``outer``; both number their registers vectors first, then repeats, classes in order.
        """
        inside, outside = set(inner), set(outer)
        result: Expr = Const(0)
        source, target = 1, 1
        for part in ("vector", "repeats"):
            for c, digits in self.digits:
                count = digits.vector if part == "vector" else digits.repeats
                if c in outside:
                    if c in inside:
                        result = result + register // source % count * target
                    source *= count
                if c in inside:
                    target *= count
        return result


FAT = 32
"""Elements along one class that a thread may hold before a further class of the tile gets threads of its own."""


def spread(
    sizes: Mapping[int, int],
    vectors: Mapping[int, int],
    together: Iterable[frozenset[int]],
    order: Sequence[int],
    threads: int,
) -> Distribution:
    """Gives the classes thread bits in ``order`` (most contiguous first).

    ``vectors`` are the consecutive elements per thread; ``together`` the sets of classes that occur in one value, whose
    thread bits must differ; classes that never meet may share bits. The first class gets no more threads than it needs
    to have at most ``FAT`` elements in each, but a warp's worth if it can use them, so that short rows are reduced
    inside a warp; what is left over after the others goes back to the front.
    """
    sets = [s for s in together if s]
    total = threads.bit_length() - 1
    vector = {c: vectors.get(c, 1) for c in order}
    useful = {c: max(0, (-(-sizes[c] // vector[c]) - 1).bit_length()) for c in order}
    taken: dict[int, list[int]] = {c: [] for c in order}

    def take(c: int, most: int) -> None:
        busy = {b for s in sets if c in s for o in s for b in taken[o]}
        free = [b for b in range(total) if b not in busy]
        taken[c] += free[: max(0, most - len(taken[c]))]

    lane_bits = LANES.bit_length() - 1
    for c in order:
        slim = max(0, (-(-sizes[c] // FAT) - 1).bit_length())
        take(c, min(useful[c], max(slim, lane_bits)))
    for c in order:
        take(c, useful[c])
    digits = {
        c: Digits(sizes[c], vector[c], tuple(taken[c]), -(-sizes[c] // (vector[c] << len(taken[c])))) for c in order
    }
    return Distribution(threads, tuple((c, digits[c]) for c in order))
