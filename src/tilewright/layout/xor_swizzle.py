"""Swizzles as linear maps of address bits, and padding: what ``synthesis`` chooses from.

``XorSwizzle`` exclusive-ors bits of a byte address that select a line of the banks onto bits inside the line. Sources
and targets are different bits, so it is its own inverse; whole lines are permuted within themselves, so it fits every
tile of whole lines. ``Swizzle<B,M,S>`` and the modes of TMA are special cases.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tilewright.base.expr import Expr, expr
from tilewright.hw.tensormap import PATTERNS, Swizzle
from tilewright.layout.int_tuple import Leaf
from tilewright.layout.swizzle import CuteSwizzle


@dataclass(frozen=True)
class XorSwizzle:
    """Bit ``target`` of a byte address is xored with bit ``source``, for every (target, source) of ``pairs``."""

    pairs: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        targets, sources = {t for t, _ in self.pairs}, {s for _, s in self.pairs}
        assert not targets & sources, "a bit is source or target: the map is its own inverse"
        assert len(set(self.pairs)) == len(self.pairs), "a pair twice is no pair"

    @staticmethod
    def of(columns: Iterable[tuple[int, int]]) -> XorSwizzle:
        """From (source bit, mask of target bits)."""
        pairs = [(t, s) for s, mask in columns for t in range(mask.bit_length()) if mask >> t & 1]
        return XorSwizzle(tuple(sorted(pairs)))

    def __call__(self, address: int) -> int:
        """The swizzled byte address."""
        result = address
        for target, source in self.pairs:
            result ^= (address >> source & 1) << target
        return result

    def apply(self, address: Leaf) -> Leaf:
        """The swizzled byte address of a number or an expression: one field per run of pairs at one distance."""
        if isinstance(address, int):
            return self(address)
        moved: list[Expr] = [address]
        for target, source, bits in self.runs:
            moved.append(address // (1 << source) % (1 << bits) * (1 << target))
        result = moved[0]
        for term in moved[1:]:
            result = expr(result) ^ term
        return result

    @property
    def runs(self) -> tuple[tuple[int, int, int], ...]:
        """(lowest target, lowest source, bits) of consecutive pairs at one distance."""
        runs: list[tuple[int, int, int]] = []
        for target, source in sorted(self.pairs, key=lambda p: (p[1] - p[0], p[0])):
            if runs and (target, source) == (runs[-1][0] + runs[-1][2], runs[-1][1] + runs[-1][2]):
                runs[-1] = (runs[-1][0], runs[-1][1], runs[-1][2] + 1)
            else:
                runs.append((target, source, 1))
        return tuple(runs)

    @property
    def swizzle(self) -> CuteSwizzle | None:
        """The same as ``Swizzle<B,M,S>`` of byte addresses, if it is one."""
        if not self.pairs:
            return CuteSwizzle(0, 0, 0)
        if len(self.runs) != 1:
            return None
        target, source, bits = self.runs[0]
        return CuteSwizzle(bits, target, source - target) if source - target >= bits else None

    @property
    def mode(self) -> Swizzle | None:
        """The mode in which TMA and wgmma swizzle so, if there is one."""
        return next((m for m, p in PATTERNS.items() if tuple(sorted(p.pairs)) == self.pairs), None)

    def __str__(self) -> str:
        if not self.pairs:
            return "no swizzle"
        named = self.swizzle
        if named is not None:
            return str(named)
        return "xor of bits " + ", ".join(f"{s} onto {t}" for t, s in self.pairs)


UNMOVED = XorSwizzle()
"""Every byte where it is."""


@dataclass(frozen=True)
class PaddedRows:
    """Rows of ``row_bytes`` with ``pad_bytes`` unused bytes behind each: an affine map, not a permutation."""

    row_bytes: int
    pad_bytes: int

    def __call__(self, address: int) -> int:
        """The byte address in the padded tile."""
        return address + address // self.row_bytes * self.pad_bytes

    def __str__(self) -> str:
        return f"rows of {self.row_bytes} B padded by {self.pad_bytes} B"
