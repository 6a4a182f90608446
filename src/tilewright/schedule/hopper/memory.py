"""Places a kernel's shared buffers and barriers in dynamic shared memory."""

from __future__ import annotations

from xdsl.dialects.builtin import IntAttr

from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t

_BARRIER_BYTES = 8
_SMALL_BYTES = 128
"""Buffers of fewer bytes than a tile's alignment hold no tile: they begin at multiples of this."""


def lay_out(kernel: t.Kernel) -> int:
    """Gives every buffer and barrier its offset, tiles first; returns the bytes to ask for at launch."""
    offset = 0
    buffers = [(op, t.shared_of(op.buffer)) for op in kernel.body.block.ops if isinstance(op, t.Shared)]
    sizes = [(op, kind.count.data * kind.dtype.dtype.bytes) for op, kind in buffers]
    last = {op.shared for op in kernel.walk() if isinstance(op, t.ClusterRead)}
    over = 0
    for op, size in sizes:
        if op.buffer in last:
            op.attributes["offset"] = IntAttr(over)
            over += -(-size // t.SHARED_BASE_ALIGN_BYTES) * t.SHARED_BASE_ALIGN_BYTES
    for align in (t.SHARED_BASE_ALIGN_BYTES, _SMALL_BYTES):
        for op, size in sizes:
            if op.buffer in last:
                continue
            if (size < t.SHARED_BASE_ALIGN_BYTES) == (align == _SMALL_BYTES):
                op.attributes["offset"] = IntAttr(offset)
                offset += -(-size // align) * align
    offset = max(offset, over)
    for op in kernel.body.block.ops:
        if isinstance(op, a.Mbarriers):
            op.attributes["offset"] = IntAttr(offset)
            offset += a.mbarriers_of(op.bars).slots.data * _BARRIER_BYTES
    total = offset + t.SHARED_BASE_ALIGN_BYTES
    kernel.attributes["shared_bytes"] = IntAttr(total)
    return total
