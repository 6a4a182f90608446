"""Tensor maps as values, and the bytes that a box addresses: an independent decoder (PTX ISA 9.1, 5.5)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from tilewright.ptx.opcodes.rows import Bits


@dataclass(frozen=True)
class DecodedTensorMap:
    """A tiled tensor map. Extents, strides and box are innermost first; ``strides`` are bytes, without the innermost.

    ``swizzle`` is the span in bytes, 0, 32, 64 or 128 (``atom`` 16); ``fill_nan`` where elements out of bounds read as
    NaN of ``element_bytes``; ``element_strides`` are the traversal strides.
    """

    address: int
    element_bytes: int
    extents: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int = 0
    element_strides: tuple[int, ...] = ()
    fill: bytes = b""

    @property
    def box_bytes(self) -> int:
        """Bytes of shared memory that a box takes."""
        count = self.element_bytes
        for extent in self.box_counts:
            count *= extent
        return count

    @property
    def box_counts(self) -> tuple[int, ...]:
        """The number of elements of a box in each dimension, with traversal strides."""
        steps = self.element_strides or (1,) * len(self.box)
        return tuple(-(-b // s) for b, s in zip(self.box, steps, strict=True))

    def offsets(self, corner: tuple[int, ...]) -> tuple[Bits, Bits]:
        """(byte offset from ``address`` of each element of the box at ``corner``, modulo 2^64 as addresses are, and
        whether it lies in the tensor)."""
        return _offsets(self, corner)

    def placed(self, base: int) -> Bits:
        """The shared-memory offset of each element of a box that starts at offset ``base``: rows of the innermost
        dimension, one behind another, swizzled by address bits."""
        return _placed(self.box_bytes, self.element_bytes, self.swizzle, base)


@lru_cache(maxsize=64)  # every schedule brings the same boxes
def _offsets(tensor_map: DecodedTensorMap, corner: tuple[int, ...]) -> tuple[Bits, Bits]:
    counts = tensor_map.box_counts
    steps = tensor_map.element_strides or (1,) * len(counts)
    offset = np.zeros(tuple(reversed(counts)), np.int64)
    inside = np.ones(offset.shape, np.bool_)
    for d, (count, step) in enumerate(zip(counts, steps, strict=True)):
        at = corner[d] + step * np.arange(count, dtype=np.int64)
        stride = tensor_map.element_bytes if d == 0 else tensor_map.strides[d - 1]
        shape = [1] * len(counts)
        shape[len(counts) - 1 - d] = count
        offset = offset + (at * stride).reshape(shape)
        inside = inside & ((at >= 0) & (at < tensor_map.extents[d])).reshape(shape)
    return offset.reshape(-1), inside.reshape(-1)


@lru_cache(maxsize=64)
def _placed(box_bytes: int, element_bytes: int, swizzle: int, base: int) -> Bits:
    return swizzled(base + np.arange(0, box_bytes, element_bytes, dtype=np.int64), swizzle)


def swizzled(offset: Bits, span: int) -> Bits:
    """16-byte chunks xored with the index of the 128-byte row that holds them (PTX ISA 9.1, 5.5.7)."""
    if span == 0:
        return offset
    mask = {32: 1, 64: 3, 128: 7}[span]
    return offset ^ ((offset >> 7 & mask) << 4)
