"""Copies between tensors and shared memory, and products of matrices in it, decoded from what the hardware is told.

Sources: CUDA Driver API, cuTensorMapEncodeTiled; PTX ISA 9.1, 5.5 (tensors and boxes), 9.7.15.5.1 (fragments of wgmma,
matrix descriptors, canonical layouts), 9.7.14.5 (ldmatrix, stmatrix).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from tilewright.transport.descriptor_attrs import OperandNumbers
from tilewright.validate.tile_to_transport.integers import Numbers
from tilewright.validate.tile_to_transport.memory import SWIZZLED, swizzled

ROWS = 64
"""Rows of one wgmma."""
K_BYTES = 32
"""Bytes along k of one wgmma."""


@lru_cache(maxsize=64)
def box_places(box: tuple[int, ...], swizzle: int, element_bytes: int, begin: int) -> tuple[Numbers, list[Numbers]]:
    """Byte addresses of a box's elements from ``begin`` on, and their coordinates in the box, innermost first."""
    size = int(np.prod(box))
    grid = np.indices(box[::-1]).reshape(len(box), size)[::-1]
    bits, _ = SWIZZLED[swizzle]
    return swizzled(begin + np.arange(size) * element_bytes, bits), list(grid)


@lru_cache(maxsize=256)
def operand_places(operand: OperandNumbers, extent: int, element_bytes: int, begin: int) -> Numbers:
    """Byte addresses of the elements ``[mn, k]`` of one wgmma, its matrix starting at ``begin``."""
    mn = np.arange(extent)[:, None]
    k = np.arange(K_BYTES // element_bytes)[None, :]
    bits, span = SWIZZLED[int(operand.swizzle)]
    leading, stride = operand.leading_bytes, operand.stride_bytes
    if operand.major:
        width = span // element_bytes
        chunk, group = (leading, stride) if bits else (stride, leading)
        linear = mn % width * element_bytes + mn // width * chunk + k % 8 * span + k // 8 * group
    else:
        along = k * element_bytes
        across = along if bits else along // 16 * leading + along % 16
        linear = mn // 8 * stride + mn % 8 * span + across
    return swizzled(begin + linear, bits)


@lru_cache(maxsize=64)
def accumulator_places(n: int) -> tuple[Numbers, Numbers]:
    """Row and column of register ``[thread, i]`` of a warpgroup's accumulator of 64 rows and ``n`` columns."""
    thread, i = np.arange(128)[:, None], np.arange(n // 2)[None, :]
    lane = thread % 32
    return thread // 32 * 16 + lane // 4 + i // 2 % 2 * 8, i // 4 * 8 + lane % 4 * 2 + i % 2


@lru_cache(maxsize=8)
def fragment_places(element_bytes: int) -> tuple[Numbers, Numbers]:
    """Row and k of element ``[thread, i]`` of a left operand in registers: 32 bytes of k of a warpgroup's 64 rows."""
    per = 4 // element_bytes
    thread, i = np.arange(128)[:, None], np.arange(4 * per)[None, :]
    lane = thread % 32
    row = thread // 32 * 16 + lane // 4 + i // per % 2 * 8
    return row, lane % 4 * per + i % per + i // (2 * per) * 4 * per
