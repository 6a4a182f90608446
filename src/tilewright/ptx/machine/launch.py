"""Inputs of a launch: its shape, and the tensors in global memory with red zones around them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright.ptx.opcodes.rows import Bits

_FIRST = 0x7F00_0000_0000
_APART = 1 << 40
"""Bytes between the starts of two tensors, so that an access beyond a tensor never reaches another."""


@dataclass(frozen=True)
class MachineLaunch:
    """The shape of a launch: CTAs, threads of a CTA, CTAs of a cluster, bytes of dynamic shared memory."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int] = (1, 1, 1)
    shared_bytes: int = 0

    @property
    def threads(self) -> int:
        """Threads of a CTA."""
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def ctas(self) -> int:
        """CTAs of the grid."""
        return self.grid[0] * self.grid[1] * self.grid[2]

    @property
    def cluster_ctas(self) -> int:
        """CTAs of a cluster."""
        return self.cluster[0] * self.cluster[1] * self.cluster[2]


@dataclass
class TensorRegion:
    """A tensor's bytes at an address. ``worlds`` has one row for each schedule; a single one while none wrote."""

    name: str
    address: int
    bytes: Bits
    writable: bool
    worlds: Bits = field(default_factory=lambda: np.zeros((0, 0), np.uint8))

    @property
    def end(self) -> int:
        """The address behind the last byte."""
        return self.address + self.bytes.size


@dataclass
class DeviceMemory:
    """Global memory: regions in the order of their addresses."""

    regions: list[TensorRegion] = field(default_factory=list[TensorRegion])

    def add(self, name: str, array: np.ndarray[Any, Any], writable: bool = True, address: int | None = None) -> int:
        """Put a contiguous array into memory, without a copy; its address, which ends in 256 zeros' worth of
        alignment."""
        if not array.flags.c_contiguous:
            raise ValueError(f"{name} is not contiguous")
        raw: Bits = array.reshape(-1).view(np.uint8)
        at = _FIRST + len(self.regions) * _APART if address is None else address
        self.regions.append(TensorRegion(name, at, raw, writable))
        self.regions.sort(key=lambda r: r.address)
        return at

    def open(self, worlds: int) -> None:
        """Give each schedule its own copy of what it may write."""
        for region in self.regions:
            count = worlds if region.writable else 1
            room = -(-max(region.bytes.size, 1) // 16) * 16
            region.worlds = np.zeros((count, room), np.uint8)
            region.worlds[:, : region.bytes.size] = region.bytes

    def close(self) -> tuple[str, ...]:
        """Write the first schedule's bytes back; the names of the tensors in which the schedules differ."""
        differing: list[str] = []
        for region in self.regions:
            size = region.bytes.size
            if region.writable:
                if (region.worlds[1:, :size] != region.worlds[0, :size]).any():
                    differing.append(region.name)
                region.bytes[:] = region.worlds[0, :size]
        return tuple(differing)

    def find(self, address: int, size: int) -> TensorRegion | None:
        """The region that holds ``size`` bytes at an address."""
        return next((r for r in self.regions if r.address <= address and address + size <= r.end), None)
