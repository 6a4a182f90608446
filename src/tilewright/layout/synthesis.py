"""Swizzles found, not guessed: free of bank conflicts for all given accesses at once, or the least that there is.

The family is linear. Let d be the xor of the addresses of two lanes of one phase that want different vectors, t(d) its
bits inside the line of banks (above the vector) and h(d) its bits above the line. Under a swizzle S the two lanes meet
in a bank exactly if ``t(d) == S h(d)``. So S is free of conflicts iff its columns avoid one value for every d: the
differences are words that a linear code must not contain. The search assigns columns one source bit at a time:

- lanes whose difference has no unassigned source bit are settled, and meeting is an equivalence among them, so the
  largest class is a lower bound of the phase's cycles: a branch is cut when the sum of bounds reaches the best found;
- with no column assigned this bounds the whole family (lanes that differ in no source bit can't be parted), together
  with the number of lanes that agree below what may move over the number of places above it in a line.

An exhausted search proves the least. The named swizzles (none, TMA's, Swizzle<B,M,S>) are tried first, so the answer is
the simplest of equals.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NoReturn, TypeAlias

from tilewright.diag import fail
from tilewright.hw.tensormap import PATTERNS, Swizzle
from tilewright.layout.banks import BankCost, WaveAccess
from tilewright.layout.checks import extent
from tilewright.layout.xor_swizzle import PaddedRows, XorSwizzle

TMA_MODES = (Swizzle.NONE, Swizzle.B32, Swizzle.B64, Swizzle.B128)
"""The modes of cuTensorMapEncodeTiled on every architecture with TMA."""

MOST_NODES = 20_000
"""The number of branches visited before the search gives up its proof of optimality; about 10 microseconds each."""


class Family(Enum):
    """The candidates: any linear xor, ``Swizzle<B,M,S>`` only, a swizzle of TMA, or padded rows."""

    XOR = "xor"
    SWIZZLE = "swizzle"
    TMA = "tma"
    PADDED = "padded"


@dataclass(frozen=True)
class SwizzleConstraints:
    """The tile's size, what stays contiguous (the widest access when None), and the family.

    ``row_bytes`` is needed for ``PADDED`` alone; ``most_nodes`` bounds the branches looked at before a proof is given
    up. LAY028 when they leave nothing to choose.
    """

    tile_bytes: int
    keep_bytes: int | None = None
    family: Family = Family.XOR
    row_bytes: int | None = None
    most_nodes: int = MOST_NODES


Chosen: TypeAlias = XorSwizzle | PaddedRows


@dataclass(frozen=True)
class Synthesis:
    """The best of the family: ``costs`` per access, ``bound`` a proved lower bound of ``cycles``.

    ``proved``: no member of the family takes fewer cycles. ``nodes``: the number of branches visited.
    """

    swizzle: Chosen
    costs: tuple[BankCost, ...]
    bound: int
    proved: bool
    nodes: int

    @property
    def cycles(self) -> int:
        """Cycles of all accesses."""
        return sum(c.total for c in self.costs)

    @property
    def degree(self) -> int:
        """The worst degree."""
        return max(c.degree for c in self.costs)

    @property
    def is_free(self) -> bool:
        """No access has a conflict."""
        return self.degree == 1

    def __str__(self) -> str:
        word = "free of conflicts" if self.is_free else f"{self.cycles} cycles, degree {self.degree}"
        least = "" if self.is_free else ", the least of the family" if self.proved else ", least not proved"
        return f"{self.swizzle}: {word}{least}"


def synthesise_swizzle(accesses: Sequence[WaveAccess], target: str, constraints: SwizzleConstraints) -> Synthesis:
    """The swizzle of the family under which the accesses, given by unswizzled byte addresses, need fewest cycles.

    ``target`` is sm_*, gfx942 or gfx950. LAY027 for accesses of another architecture or outside the tile, LAY028 when
    the constraints leave no choice.
    """
    _check(accesses, target, constraints)
    if constraints.family is Family.PADDED:
        return _padded(accesses, constraints)
    return _BranchAndBound(accesses, constraints).run()


def _check(accesses: Sequence[WaveAccess], target: str, constraints: SwizzleConstraints) -> None:
    family = "nvidia" if target.startswith("sm_") else target
    if not accesses:
        _no_choice("no accesses", "at least one")
    extent(constraints.tile_bytes, "tile_bytes")
    for access in accesses:
        if access.access.architecture != family:
            fail(
                "LAY027",
                found=f"{access.access.op} of {access.access.architecture}",
                required=f"one of {target}",
                help="name the instruction of the target, or the target of the instruction",
            )
        last = max(access.addresses) + access.access.bytes_per_lane
        if last > constraints.tile_bytes:
            fail(
                "LAY027",
                found=f"{access.label} up to byte {last}",
                required=f"a tile of {constraints.tile_bytes} B",
                help="enlarge tile_bytes, or let the accesses stay inside",
            )
    keep = constraints.keep_bytes
    if keep is not None and keep & (keep - 1):
        _no_choice(f"{keep} contiguous bytes", "a power of two")
    if constraints.family is not Family.PADDED and constraints.tile_bytes % _line(accesses):
        _no_choice(f"a tile of {constraints.tile_bytes} B", f"whole lines of {_line(accesses)} B")


def _line(accesses: Sequence[WaveAccess]) -> int:
    return max(a.access.line_bytes for a in accesses)


def _keep(accesses: Sequence[WaveAccess], constraints: SwizzleConstraints) -> int:
    widest = max(a.access.bytes_per_lane for a in accesses)
    return max(constraints.keep_bytes or 1, 1 << (widest - 1).bit_length())


def _padded(accesses: Sequence[WaveAccess], constraints: SwizzleConstraints) -> Synthesis:
    """All paddings up to a line, by vectors: beyond it they repeat."""
    if constraints.row_bytes is None:
        _no_choice("rows of unknown length", "row_bytes")
    keep, best = _keep(accesses, constraints), None
    tried = range(0, _line(accesses), keep)
    for pad in tried:
        chosen = PaddedRows(constraints.row_bytes, pad)
        costs = tuple(a.moved(chosen).cost for a in accesses)
        total = sum(c.total for c in costs)
        if best is None or total < best[0]:
            best = (total, chosen, costs)
    assert best is not None, "no padding is one of them"
    return Synthesis(best[1], best[2], best[0], True, len(tried))


def _no_choice(found: str, required: str) -> NoReturn:
    fail("LAY028", found=found, required=required, help="give a tile of whole lines and vectors shorter than a line")


@dataclass(frozen=True)
class _LaneGroup:
    """Lanes served together, as xor differences to the first; ``times`` phases look alike.

    Lanes are vectors (aligned, ``shift`` bits wide); those that share one are listed once. ``inside`` masks the bits of
    an address that select the vector's banks; ``least`` bounds the cycles under every swizzle.
    """

    differences: tuple[int, ...]
    inside: int
    times: int
    least: int


class _BranchAndBound:
    """Branch and bound over the columns of S."""

    def __init__(self, accesses: Sequence[WaveAccess], constraints: SwizzleConstraints) -> None:
        self.accesses, self.constraints = accesses, constraints
        line = _line(accesses)
        self.low = _keep(accesses, constraints).bit_length() - 1
        self.line_bits = line.bit_length() - 1
        self.phases = _phases(accesses, self.low)
        used = 0
        for phase in self.phases:
            for d in phase.differences:
                used |= d
        top = (constraints.tile_bytes - 1).bit_length()
        self.sources = [b for b in range(self.line_bits, top) if used >> b & 1]
        self.nodes = 0
        self.best: tuple[int, XorSwizzle] | None = None
        self.bound = self._bound({}, frozenset())

    def run(self) -> Synthesis:
        for candidate in self._named():
            self._offer(candidate)
            if self.best is not None and self.best[0] == self.bound:
                break
        exhausted = True
        if self.constraints.family is Family.XOR and self.best is not None and self.best[0] > self.bound:
            exhausted = self._branch(0, {})
        assert self.best is not None, "no swizzle is always one of them"
        cycles, swizzle = self.best
        costs = tuple(a.moved(swizzle).cost for a in self.accesses)
        assert sum(c.total for c in costs) == cycles, "classes of settled lanes are bank conflicts"
        return Synthesis(swizzle, costs, cycles if exhausted else self.bound, exhausted, self.nodes)

    def _named(self) -> Iterator[XorSwizzle]:
        """The named members of the family, the simplest first."""
        yield XorSwizzle()
        tile = self.constraints.tile_bytes
        if self.constraints.family is Family.TMA:
            for mode in TMA_MODES[1:]:
                pattern = PATTERNS[mode]
                if tile % pattern.repeat_bytes == 0:
                    yield XorSwizzle(tuple(sorted(pattern.pairs)))
            return
        for bits in range(1, self.line_bits - self.low + 1):
            for target in range(self.line_bits - bits, self.low - 1, -1):
                for source in range(self.line_bits, (tile - 1).bit_length() - bits + 1):
                    if tile % (1 << (source + bits)) == 0:
                        yield XorSwizzle(tuple((target + i, source + i) for i in range(bits)))

    def _offer(self, swizzle: XorSwizzle) -> None:
        self.nodes += 1
        columns = dict.fromkeys(self.sources, 0)
        for target, source in swizzle.pairs:
            columns[source] = columns.get(source, 0) | 1 << target
        cycles = self._bound(columns, frozenset(columns))
        if self.best is None or cycles < self.best[0]:
            self.best = (cycles, swizzle)

    def _branch(self, depth: int, columns: dict[int, int]) -> bool:
        """Try all values of the next column; False when the budget ran out."""
        assert self.best is not None, "candidates were offered"
        if depth == len(self.sources):
            cycles = self._bound(columns, frozenset(columns))
            if cycles < self.best[0]:
                self.best = (cycles, XorSwizzle.of(columns.items()))
            return True
        source = self.sources[depth]
        for value in range(1 << (self.line_bits - self.low)):
            self.nodes += 1
            if self.nodes > self.constraints.most_nodes:
                return False
            columns[source] = value << self.low
            if self._bound(columns, frozenset(columns)) < self.best[0] and not self._branch(depth + 1, columns):
                return False
            del columns[source]
            if self.best[0] == self.bound:
                break
        return True

    def _bound(self, columns: dict[int, int], known: frozenset[int]) -> int:
        """Cycles at least needed when the columns of ``known`` source bits are fixed; exact when all are."""
        open_bits = sum(1 << b for b in self.sources if b not in known)
        active = [(1 << source, mask) for source, mask in columns.items() if mask]
        total = 0
        for phase in self.phases:
            classes: dict[tuple[int, int], int] = {}
            most = phase.least
            for d in phase.differences:
                moved = d
                for source, mask in active:
                    if d & source:
                        moved ^= mask
                key = (d & open_bits, moved & phase.inside)
                classes[key] = count = classes.get(key, 0) + 1
                most = max(most, count)
            total += most * phase.times
        return total


def _least(differences: Sequence[int], inside: int, low: int) -> int:
    """Cycles that no swizzle saves: bits below ``low`` stay, so the lanes that agree on them share what is above."""
    still = Counter(d & inside & ((1 << low) - 1) for d in differences)
    return -(-max(still.values()) // (1 << (inside >> low).bit_count()))


def _phases(accesses: Sequence[WaveAccess], low: int) -> list[_LaneGroup]:
    """The distinct phases of all accesses."""
    counted: dict[tuple[tuple[int, ...], int], int] = {}
    for access in accesses:
        row = access.access
        size = max(4, row.bytes_per_lane)
        if size & (size - 1):
            _no_choice(f"{row.op} of {size} B", "a width that is a power of two")
        inside = row.line_bytes - size
        for group in row.groups or ():
            vectors = [access.addresses[lane] & ~(size - 1) for lane in group]
            key = (tuple(sorted({v ^ vectors[0] for v in vectors})), inside)
            counted[key] = counted.get(key, 0) + 1
    return [_LaneGroup(d, inside, times, _least(d, inside, low)) for (d, inside), times in counted.items()]
