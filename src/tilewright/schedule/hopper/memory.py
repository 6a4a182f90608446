"""Places a kernel's shared buffers and barriers in dynamic shared memory."""

from __future__ import annotations

from xdsl.dialects.builtin import IntAttr

from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t

_BARRIER_BYTES = 8


def lay_out(kernel: t.Kernel) -> int:
    """Gives every buffer and barrier its offset; returns the bytes to ask for at launch."""
    offset = 0
    for op in kernel.body.block.ops:
        if isinstance(op, t.Shared):
            kind = t.shared_of(op.buffer)
            op.attributes["offset"] = IntAttr(offset)
            size = kind.count.data * kind.dtype.dtype.bytes
            offset += -(-size // t.SHARED_BASE_ALIGN_BYTES) * t.SHARED_BASE_ALIGN_BYTES
    for op in kernel.body.block.ops:
        if isinstance(op, a.Mbarriers):
            op.attributes["offset"] = IntAttr(offset)
            offset += a.mbarriers_of(op.bars).slots.data * _BARRIER_BYTES
    total = offset + t.SHARED_BASE_ALIGN_BYTES
    kernel.attributes["shared_bytes"] = IntAttr(total)
    return total
