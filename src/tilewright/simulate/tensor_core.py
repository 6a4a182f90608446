"""wgmma decoded from its descriptors and fragment tables, independently of ``layout``.

Sources: PTX ISA 9.1, 9.7.15.5.1 (register fragments, matrix descriptors, canonical layouts, strides).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from tilewright.simulate.symbols import Array
from tilewright.simulate.tensor_copy import swizzled

_SPAN_BYTES = {0: 16, 1: 128, 2: 64, 3: 32}  # layout type, bits 62-63
_SWIZZLE_BITS = {0: 0, 1: 3, 2: 2, 3: 1}
ROWS = 64
K_BYTES = 32


@dataclass(frozen=True)
class Descriptor:
    """The fields of a 64-bit matrix descriptor; offsets in bytes."""

    start: int
    leading: int
    stride: int
    layout: int

    @staticmethod
    def of(template: int, address: int) -> Descriptor:
        """The template with the start address filled in, as the hardware reads it."""
        bits = template | ((address & 0x3FFFF) >> 4)
        return Descriptor((bits & 0x3FFF) << 4, (bits >> 16 & 0x3FFF) << 4, (bits >> 32 & 0x3FFF) << 4, bits >> 62 & 3)

    def addresses(self, extent: int, element_bytes: int, *, mn_major: bool) -> Array:
        """Byte address of element ``[mn, k]``, mn below ``extent`` and k over the instruction's 32 bytes."""
        mn = np.arange(extent)[:, None]
        k = np.arange(K_BYTES // element_bytes)[None, :]
        span = _SPAN_BYTES[self.layout]
        if mn_major:
            width = span // element_bytes
            chunk, group = (self.leading, self.stride) if self.layout else (self.stride, self.leading)
            linear = mn % width * element_bytes + mn // width * chunk + k % 8 * span + k // 8 * group
        else:
            k_bytes = k * element_bytes
            across = k_bytes if self.layout else k_bytes // 16 * self.leading + k_bytes % 16
            linear = mn // 8 * self.stride + mn % 8 * span + across
        return swizzled(self.start + linear, _SWIZZLE_BITS[self.layout])


@cache
def accumulator_places(n: int) -> tuple[Array, Array]:
    """Row and column of register ``[thread, i]`` of a warpgroup's m64 x n accumulator (9.7.15.5.1.1, D fragment)."""
    thread, i = np.arange(128)[:, None], np.arange(n // 2)[None, :]
    lane = thread % 32
    row = thread // 32 * 16 + lane // 4 + i // 2 % 2 * 8
    return row, i // 4 * 8 + lane % 4 * 2 + i % 2


@cache
def operand_places() -> tuple[Array, Array]:
    """Row and k of element ``[thread, i]`` of a 16-bit A fragment, m64 x k16 (9.7.15.5.1.1, A fragment)."""
    thread, i = np.arange(128)[:, None], np.arange(8)[None, :]
    lane = thread % 32
    return thread // 32 * 16 + lane // 4 + i // 2 % 2 * 8, lane % 4 * 2 + i % 2 + i // 4 * 8


FP8_FRACTION = 13
"""Fraction bits that tensor cores keep in sums of products of 8-bit floats: accumulators of 22 bits."""


def fp8_product(a: Array, b: Array, addend: Array | None) -> Array:
    """``a[m, k] @ b[n, k].T + addend`` of one instruction on 8-bit floats, which f32 holds exactly.

    Known of Hopper: accumulators have 8 exponent and 13 fraction bits, what lies below is cut off (DeepSeek-V3,
    arXiv 2412.19437, 3.3.2; PyTorch, "Some Matrix Multiplication Engines Are Not As Accurate As We Thought", 2025).
    Assumed: the 32 products and the addend are cut to multiples of the last place of the greatest of them, toward zero,
    their sum is exact, and is cut again. An infinity or NaN makes the sum what f32 makes of it.
    """
    products = a[:, None, :] * b[None, :, :]
    old = np.zeros(products.shape[:2], np.float32) if addend is None else addend
    greatest = np.maximum(np.abs(products).max(-1), np.abs(old))
    finite = np.isfinite(greatest)
    place = _last_place(np.where(finite, greatest, 0))
    total = np.trunc(products / place[:, :, None]).sum(-1, dtype=np.float64) + np.trunc(old / place)
    total = total * place
    last = _last_place(total)
    kept: Array = np.trunc(total / last) * last
    plain: Array = (products.sum(-1) + old).astype(np.float64)
    return np.where(finite, kept, plain).astype(np.float32)


def _last_place(value: Array) -> Array:
    """The exponent of the last fraction bit that is kept of a number."""
    exponent = np.frexp(value)[1] - 1 - FP8_FRACTION
    return np.ldexp(np.ones_like(value), exponent)
