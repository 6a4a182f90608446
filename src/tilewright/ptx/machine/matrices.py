"""Fragments and products: ldmatrix, stmatrix, mma, wgmma (PTX ISA 9.1, 9.7.14, 9.7.15), with layouts written out
here.

Products are summed in f32 (integers in 32 bits, f16 accumulators rounded once an instruction), those of a ``wgmma`` on
8-bit floats in the 14 bits that Hopper keeps; tensor cores align and cut their sums, so results agree within the bound
that ``docs/ptx.md`` states, not bit for bit.
"""

from __future__ import annotations

from functools import cache, lru_cache

import numpy as np

from tilewright.ptx.machine.tensormap import swizzled
from tilewright.ptx.opcodes.bit_vectors import UNSIGNED, number, width
from tilewright.ptx.opcodes.formats import narrow, widen
from tilewright.ptx.opcodes.rows import Bits

_LANE = np.arange(32)


def element_bits(type: str) -> int:
    """Bits of an operand's element."""
    return width(type)


@cache
def fragment(rows: int, columns: int, bits: int, which: str) -> tuple[Bits, Bits]:
    """(row, column) of each element [lane, element] of an mma fragment.

    ``which``: "a" (rows are M, columns K), "b" (rows are N, columns K), "c" (rows M, columns N). Eight rows and 32
    bits a column group make a core; cores follow as registers: for A first down the rows, then along K.
    """
    per = 32 // bits if which != "c" else 2
    group, within = _LANE // 4, _LANE % 4
    row_steps, column_steps = rows // 8, columns // (4 * per)
    found_row, found_column = list[Bits](), list[Bits]()
    for r, c in ((r, c) for c in range(column_steps) for r in range(row_steps)):
        for e in range(per):
            found_row.append(group + 8 * r)
            found_column.append(within * per + e + 4 * per * c)
    return np.stack(found_row, 1), np.stack(found_column, 1)


def unpack(registers: Bits, bits: int) -> Bits:
    """32-bit registers [..., n] as elements [..., n * 32 / bits], low bits first."""
    return np.ascontiguousarray(registers).view(UNSIGNED[bits])


def values(patterns: Bits, type: str) -> Bits:
    """Elements as f64, or as int64."""
    if type in ("u8", "s8"):
        return number(patterns, type).astype(np.int64)
    if type == "tf32":
        return widen(patterns & np.uint32(0xFFFFE000), "f32")
    return widen(patterns, type)


def accumulate(a: Bits, b: Bits, c: Bits, type: str) -> Bits:
    """c + a b^T, in f32 or in integers that wrap; f16 accumulators are rounded at the end."""
    if type == "s32":
        return (c.view(np.int32).astype(np.int64) + a @ np.swapaxes(b, -1, -2)).astype(np.uint32)
    start = widen(c, type)
    total = start.astype(np.float32) + (a.astype(np.float32) @ np.swapaxes(b.astype(np.float32), -1, -2))
    return total.view(np.uint32) if type == "f32" else narrow(total.astype(np.float64), type)


_KEPT_BITS = 14
"""Significant bits of a sum of products of 8-bit floats on Hopper, cut off toward zero (DeepSeek-V3, arXiv 2412.19437,
3.3.2). The ISA leaves the order and the rounding within an instruction open: this is a measured reading of it."""


def accumulate_bytes(a: Bits, b: Bits, c: Bits, type: str) -> Bits:
    """c + a b^T of one ``wgmma`` on 8-bit floats: addends cut to a common last place, summed exactly, cut again."""
    addends = np.concatenate([a[:, None, :] * b[None, :, :], widen(c, type)[:, :, None]], axis=-1)
    with np.errstate(invalid="ignore", over="ignore"):
        total = _cut(_cut(addends, np.abs(addends).max(-1, keepdims=True)).sum(-1))
        total = np.where(np.isfinite(addends).all(-1), total, addends.astype(np.float32).sum(-1))
    return total.astype(np.float32).view(np.uint32) if type == "f32" else narrow(total, type)


def _cut(x: Bits, by: Bits | None = None) -> Bits:
    """Numbers without what lies below the last kept place of ``by`` (of themselves)."""
    _, exponent = np.frexp(np.where(np.isfinite(x), x, 0) if by is None else np.where(np.isfinite(by), by, 0))
    return np.ldexp(np.trunc(np.ldexp(x, _KEPT_BITS - exponent)), exponent - _KEPT_BITS)


def mma(shape: tuple[int, int, int], types: tuple[str, str, str], a: Bits, b: Bits, c: Bits) -> Bits:
    """``mma.sync``: registers [warps, 32, n] of A, B, C to those of D."""
    m, n, k = shape
    type_a, type_b, type_c = types
    warps = len(a)

    def matrix(registers: Bits, type: str, rows: int, columns: int, which: str) -> Bits:
        row, column = fragment(rows, columns, element_bits(type), which)
        full = np.zeros((warps, rows, columns), np.int64 if type in ("u8", "s8") else np.float64)
        full[:, row, column] = values(unpack(registers, element_bits(type)), type)
        return full

    row, column = fragment(m, n, 32, "c")
    bits = element_bits(type_c)
    total = np.zeros((warps, m, n), UNSIGNED[bits])
    total[:, row, column] = unpack(c, bits)
    result = accumulate(matrix(a, type_a, m, k, "a"), matrix(b, type_b, n, k, "b"), total, type_c)
    return np.ascontiguousarray(result[:, row, column]).view(np.uint32)


# -- wgmma


def descriptor(bits: int) -> tuple[int, int, int, int, int]:
    """(start, leading, stride, base offset, swizzle), in bytes, of a 64-bit matrix descriptor (9.7.15.5.1.2.2)."""
    start, leading, stride = ((bits >> low & 0x3FFF) << 4 for low in (0, 16, 32))
    return start, leading, stride, bits >> 49 & 7, {0: 0, 1: 128, 2: 64, 3: 32}[bits >> 62 & 3]


@cache
def operand_offsets(
    rows: int, columns: int, size: int, leading: int, stride: int, swizzle: int, mn_major: bool
) -> Bits:
    """Byte offset of each element [row, column] from the start of a shared operand, before swizzling.

    Rows are M or N, columns K. K-major: a core matrix is 8 rows of 16 bytes. Without a swizzle cores step by
    ``leading`` along K and ``stride`` along rows; with one, rows of ``swizzle`` bytes follow each other and groups of
    8 rows step by ``stride``. MN-major swaps the parts: ``swizzle`` bytes along MN, ``leading`` from one such span to
    the next, ``stride`` from 8 steps of K to the next.
    """
    row, column = np.meshgrid(np.arange(rows), np.arange(columns), indexing="ij")
    if not mn_major:
        byte = column * size
        if not swizzle:
            return byte % 16 + byte // 16 * leading + row % 8 * 16 + row // 8 * stride
        return byte % swizzle + byte // swizzle * leading + row % 8 * swizzle + row // 8 * stride
    byte = row * size
    if not swizzle:
        return byte % 16 + byte // 16 * stride + column % 8 * 16 + column // 8 * leading
    return byte % swizzle + byte // swizzle * leading + column % 8 * swizzle + column // 8 * stride


@lru_cache(maxsize=512)
def operand_at(bits: int, rows: int, columns: int, size: int, mn_major: bool, grain: int) -> tuple[Bits, Bits]:
    """(offset in the shared window of each element of a wgmma operand, the granules that they take)."""
    start, leading, stride, base, swizzle = descriptor(bits)
    if base:
        raise ValueError("a matrix descriptor with a base offset")
    offsets = swizzled(start + operand_offsets(rows, columns, size, leading, stride, swizzle, mn_major), swizzle)
    every = offsets.reshape(-1, 1) + np.arange(0, size, grain)
    return offsets, np.unique(every // grain)


@cache
def accumulator(n: int) -> tuple[Bits, Bits]:
    """For a wgmma accumulator of 64 rows and n columns: the matrix element that each [thread, register] holds, and the
    inverse."""
    thread = np.arange(128)
    warp, lane = thread // 32, thread % 32
    places: list[Bits] = []
    for element in range(n // 2):
        row = warp * 16 + lane // 4 + element // 2 % 2 * 8
        places.append(row * n + lane % 4 * 2 + element % 2 + element // 4 * 8)
    place = np.stack(places, 1)
    return place, np.argsort(place, axis=None).reshape(64, n)


def wgmma_a(registers: Bits, bits: int) -> Bits:
    """A of 64 rows from the registers [128, 4] of a warpgroup, as patterns [64, 256 / bits]."""
    row, column = fragment(16, 256 // bits, bits, "a")
    full = np.zeros((64, 256 // bits), UNSIGNED[bits])
    elements = unpack(registers, bits)
    for warp in range(4):
        full[warp * 16 + row, column] = elements[warp * 32 : warp * 32 + 32]
    return full
