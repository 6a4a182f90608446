"""Spreads the axes of a kernel's tiles over the threads of a CTA.

Positions (value, axis) that must agree element by element are one *class*: element-wise operands, a reduction's kept
axes, a fragment and what is written to it. A ``Distribution`` gives each class its digits, least significant first,
each held by registers or by one bit of the thread index. Plainly

    coordinate = digit of the vector + vector * (digit of the thread bits + 2**bits * digit of the repeats)

and for the two axes of a wgmma accumulator (PTX ISA 9.1, 9.7.15.5.1.1)

    row    = lane bits 2-4, a register bit (row + 8), warp bits, repeats
    column = a register bit, lane bits 0-1, repeats of 8

Every value whose axes have digits gets its register layout from them, so that element-wise code, broadcasts and
reductions need no data movement: a value without some class is replicated over that class's thread bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

from tilewright.base.cached import cached_property
from tilewright.base.expr import Const, Expr
from tilewright.layout.f2 import F2Layout
from tilewright.layout.register import LANES, RegisterLayout, Repeat


@dataclass(frozen=True)
class InRegisters:
    """A digit of ``count`` values, held in ``count`` registers. In the ``atom`` the count is a power of two."""

    count: int
    atom: bool = True


@dataclass(frozen=True)
class InThreads:
    """A binary digit held by bit ``bit`` of the thread index."""

    bit: int


Mode: TypeAlias = InRegisters | InThreads


@dataclass(frozen=True)
class Digits:
    """How one class is spread. ``size`` is the tile's extent; the covered extent may be larger."""

    size: int
    modes: tuple[Mode, ...]

    @staticmethod
    def plain(size: int, vector: int, thread_bits: Sequence[int], repeats: int) -> Digits:
        """Vectors of consecutive elements, distributed over threads, repeated."""
        return Digits(size, (InRegisters(vector), *map(InThreads, thread_bits), InRegisters(repeats, atom=False)))

    @cached_property
    def strides(self) -> tuple[int, ...]:
        """Per digit, the distance in the coordinate between consecutive values."""
        found: list[int] = []
        reach = 1
        for mode in self.modes:
            found.append(reach)
            reach *= mode.count if isinstance(mode, InRegisters) else 2
        return tuple(found)

    @property
    def covered(self) -> int:
        """The extent that the digits cover."""
        return prod(m.count if isinstance(m, InRegisters) else 2 for m in self.modes)

    @property
    def registers(self) -> int:
        """Elements of this class in one thread."""
        return prod(m.count for m in self.modes if isinstance(m, InRegisters))

    @property
    def thread_bits(self) -> tuple[int, ...]:
        """Bits of the thread index, least significant digit first."""
        return tuple(m.bit for m in self.modes if isinstance(m, InThreads))

    @property
    def vector(self) -> int:
        """Consecutive elements in one thread."""
        first = self.modes[0] if self.modes else None
        return first.count if isinstance(first, InRegisters) else 1

    @property
    def repeats(self) -> int:
        """How often the whole pattern repeats."""
        last = self.modes[-1] if self.modes else None
        return last.count if isinstance(last, InRegisters) and not last.atom else 1


@dataclass(frozen=True)
class Distribution:
    """Digits per class for ``threads`` threads. Register digits are numbered in the order of ``digits`` (first class
    fastest): all classes' atom digits, then all repeats."""

    threads: int
    digits: tuple[tuple[int, Digits], ...]
    skew: tuple[int, Expr] | None = None
    """A class whose first coordinate lies that many elements before the tile's first (see
    ``schedule.misaligned_rows``)."""

    @cached_property
    def by_class(self) -> Mapping[int, Digits]:
        return dict(self.digits)

    @cached_property
    def register_order(self) -> tuple[tuple[int, int, int], ...]:
        """Register digits, fastest first: class, count, stride in the coordinate."""
        return tuple(
            (c, mode.count, stride)
            for atom in (True, False)
            for c, digits in self.digits
            for mode, stride in zip(digits.modes, digits.strides, strict=True)
            if isinstance(mode, InRegisters) and mode.atom is atom
        )

    def layout(self, axes: Sequence[int | None]) -> RegisterLayout:
        """Register layout of a value whose axes have these classes (None: an axis of one element)."""
        key = tuple(axes)
        if key not in self._layouts:
            self._layouts[key] = self._layout(key)
        return self._layouts[key]

    @cached_property
    def _layouts(self) -> dict[tuple[int | None, ...], RegisterLayout]:
        """Layouts already made."""
        return {}

    def _layout(self, axes: tuple[int | None, ...]) -> RegisterLayout:
        place = {c: d for d, c in enumerate(axes) if c is not None}
        order = [(place[c], digits) for c, digits in self.digits if c in place]
        bits_out = [0] * len(axes)
        for dim, digits in order:
            bits_out[dim] = (digits.covered // digits.repeats).bit_length() - 1
        shifts = [sum(bits_out[:d]) for d in range(len(axes))]
        registers: list[int] = []
        threads = [0] * (self.threads.bit_length() - 1)
        repeats: list[Repeat] = []
        for dim, digits in order:
            for mode, stride in zip(digits.modes, digits.strides, strict=True):
                match mode:
                    case InThreads(bit):
                        threads[bit] = stride << shifts[dim]
                    case InRegisters(count, atom=True):
                        bits = count.bit_length() - 1
                        registers += [stride << (shifts[dim] + i) for i in range(bits)]
                    case InRegisters(count):
                        repeats += [Repeat(dim, count, stride)] if count > 1 else []
        lane_bits = LANES.bit_length() - 1
        atom = F2Layout(
            (("register", len(registers)), ("lane", lane_bits), ("warp", len(threads) - lane_bits)),
            tuple((f"dim{d}", n) for d, n in enumerate(bits_out)),
            (*registers, *threads),
        )
        shape = tuple(1 if c is None else self.by_class[c].covered for c in axes)
        return RegisterLayout(shape, atom, tuple(repeats))

    def coordinates(self, axes: Sequence[int | None], thread: Expr, register: Expr) -> tuple[Expr, ...]:
        """Coordinates in the tile of what a thread holds in a register; negative ones lie before the tile."""
        places = self.layout(axes).coordinates(thread, register)
        if self.skew is None:
            return places
        skewed, before = self.skew
        return tuple(p - before if axis == skewed else p for axis, p in zip(axes, places, strict=True))

    def registers(self, classes: Iterable[int | None]) -> int:
        """Elements per thread of a value with these classes."""
        return prod(self.by_class[c].registers for c in classes if c is not None)

    def register_of(self, inner: Iterable[int | None], outer: Iterable[int | None], register: Expr) -> Expr:
        """The register of a value over ``inner`` that holds what ``register`` of a value over ``outer`` needs.

        ``inner`` is a subset of ``outer``; both number their registers as ``register_order`` says.
        """
        inside, outside = set(inner), set(outer)
        if all(self.by_class[c].registers == 1 for c in outside - inside if c is not None):
            return register
        result: Expr = Const(0)
        source, target = 1, 1
        for c, count, _ in self.register_order:
            if c in outside:
                if c in inside:
                    result = result + register // source % count * target
                source *= count
            if c in inside:
                target *= count
        return result


ROW_LANES = (2, 3, 4)
COLUMN_LANES = (0, 1)
WARP_BITS = (5, 6)


def accumulator_rows(size: int, warpgroups: int) -> Digits:
    """Digits of an accumulator's row axis over ``warpgroups`` of 64 rows each, repeated.

    Three warpgroups are distributed like four of which the last is absent: it would hold rows beyond the tile.
    """
    bits = (*WARP_BITS, *range(7, 7 + (warpgroups - 1).bit_length()))
    repeats = -(-size // (64 * warpgroups))
    lanes = tuple(map(InThreads, ROW_LANES))
    return Digits(size, (*lanes, InRegisters(2), *map(InThreads, bits), InRegisters(repeats, atom=False)))


def accumulator_columns(size: int) -> Digits:
    """Digits of an accumulator's column axis; those of a register operand's K axis are the same."""
    return Digits.plain(size, 2, COLUMN_LANES, -(-size // 8))


FAT = 32
"""Elements along one class that a thread may hold before other classes of the tile get threads."""


def spread(
    sizes: Mapping[int, int],
    vectors: Mapping[int, int],
    together: Iterable[frozenset[int]],
    order: Sequence[int],
    threads: int,
    fixed: Mapping[int, Digits] | None = None,
    serial: Iterable[int] = (),
    held: Iterable[int] = (),
    fat: Mapping[int, int] | None = None,
    kept: Mapping[int, int] | None = None,
) -> Distribution:
    """Gives the classes thread bits in ``order`` (most contiguous first).

    ``vectors`` are the consecutive elements per thread; ``together`` the sets of classes that occur in one value, whose
    thread bits must differ; classes that never meet may share bits. ``fixed`` classes, not in ``order``, have theirs.
    The first class gets no more threads than it needs to have at most ``FAT`` elements in each, but a warp's worth if
    it can use them, so that short rows are reduced inside a warp; of a class in ``fat`` each has as many elements as it
    says, however few lanes that makes. What is left over after the others goes back to the front. ``serial`` classes
    get what all others left; a thread's elements along one are neighbours, where their number is a power of two. Of
    ``held`` classes every thread has all elements, of ``kept`` ones an element of each of so many equal parts.
    """
    sets = [s for s in together if s]
    total = threads.bit_length() - 1
    vector = {c: vectors.get(c, 1) for c in order}
    dealt = {c: -(-sizes[c] // (kept or {}).get(c, 1)) for c in order}
    useful = {c: max(0, (-(-dealt[c] // vector[c]) - 1).bit_length()) for c in order}
    taken: dict[int, list[int]] = {c: [] for c in order} | {c: [*d.thread_bits] for c, d in (fixed or {}).items()}

    def take(c: int, most: int) -> None:
        busy = {b for s in sets if c in s for o in s for b in taken[o]}
        free = [b for b in range(total) if b not in busy]
        taken[c] += free[: max(0, most - len(taken[c]))]

    lane_bits = LANES.bit_length() - 1
    serial = tuple(serial)
    useful |= dict.fromkeys(held, 0)
    fat = fat or {}
    for c in (c for c in order if c not in serial):
        each, least = (fat[c], 0) if c in fat else (FAT, lane_bits)
        take(c, min(useful[c], max(0, (-(-sizes[c] // each) - 1).bit_length(), least)))
    for c in sorted(order, key=lambda c: (c in serial, c in fat)):
        take(c, useful[c])
    for c in serial:
        each = -(-sizes[c] >> len(taken[c]))
        vector[c] = each if each == floor_power(each) else vector[c]
    digits = {
        c: Digits.plain(sizes[c], vector[c], taken[c], -(-sizes[c] // (vector[c] << len(taken[c])))) for c in order
    }
    return Distribution(threads, tuple((c, digits[c]) for c in order))


def ceil_power(n: int) -> int:
    """The least power of two that is at least ``n``."""
    return 1 << (n - 1).bit_length()


def floor_power(n: int) -> int:
    """The greatest power of two that is at most ``n``; 1 for less."""
    return 1 << (max(1, n).bit_length() - 1)
