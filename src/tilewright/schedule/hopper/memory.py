"""Places a kernel's shared buffers and barriers in dynamic shared memory."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from xdsl.dialects.builtin import IntAttr
from xdsl.ir import SSAValue

from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t

_BARRIER_BYTES = 8
_SMALL_BYTES = 128
"""Buffers of fewer bytes than a tile's alignment hold no tile: they begin at multiples of this."""


def lay_out(kernel: t.Kernel) -> int:
    """Assigns every buffer and barrier its offset, tiles first; returns the dynamic shared memory of a launch in bytes.
    Buffers that the CTAs of a cluster read of each other at the end overlap the stages where shared memory does not
    suffice otherwise."""
    total = _laid_out(kernel, over=())
    if total > kernel.target.shared_per_cta_bytes:
        read = [op.shared for op in kernel.walk() if isinstance(op, t.ClusterRead)]
        total = _laid_out(kernel, over=read) if read else total
    kernel.attributes["shared_bytes"] = IntAttr(total)
    return total


def _laid_out(kernel: t.Kernel, over: Collection[SSAValue]) -> int:
    """The size of a layout in which the buffers ``over`` overlap the others."""
    buffers = [(op, t.shared_of(op.buffer)) for op in kernel.body.block.ops if isinstance(op, t.Shared)]
    sizes = [(op, kind.count.data * kind.dtype.dtype.bytes) for op, kind in buffers]
    offset = max(_placed([x for x in sizes if (x[0].buffer in over) == late]) for late in (False, True))
    for op in kernel.body.block.ops:
        if isinstance(op, a.Mbarriers):
            op.attributes["offset"] = IntAttr(offset)
            offset += a.mbarriers_of(op.bars).slots.data * _BARRIER_BYTES
    return offset + t.SHARED_BASE_ALIGN_BYTES


def _placed(sizes: Sequence[tuple[t.Shared, int]]) -> int:
    """Assigns offsets to buffers, large ones first; returns their end."""
    offset = 0
    for align in (t.SHARED_BASE_ALIGN_BYTES, _SMALL_BYTES):
        for op, size in sizes:
            if (size < t.SHARED_BASE_ALIGN_BYTES) == (align == _SMALL_BYTES):
                op.attributes["offset"] = IntAttr(offset)
                offset += -(-size // align) * align
    return offset
