"""Shared buffers beyond what a kernel may declare: placed in dynamic shared memory, which a launch asks for."""

from __future__ import annotations

from xdsl.dialects.builtin import IntAttr

from tilewright.diag import Location, fail
from tilewright.hw.target import STATIC_SHARED_BYTES
from tilewright.transport import dialect as t

_ALIGN_BYTES = 16


def place_shared(kernel: t.Kernel, where: Location | None) -> None:
    """Gives every shared buffer of ``kernel`` its offset if they are too large together; CGN003 beyond what a
    CTA can have."""
    buffers = [op for op in kernel.body.block.ops if isinstance(op, t.Shared)]
    sizes = [-(-_size_bytes(op) // _ALIGN_BYTES) * _ALIGN_BYTES for op in buffers]
    if sum(sizes) <= STATIC_SHARED_BYTES or any(op.offset is not None for op in buffers):
        return
    total, target = sum(sizes) + t.SHARED_BASE_ALIGN_BYTES, kernel.target
    if total > target.shared_per_cta_bytes:
        fail(
            "CGN003",
            where=where,
            found=f"{total} bytes of shared memory",
            required=f"at most {target.shared_per_cta_bytes} bytes a CTA on {target.name}",
            help="use smaller tiles",
        )
    offset = 0
    for op, size in zip(buffers, sizes, strict=True):
        op.attributes["offset"] = IntAttr(offset)
        offset += size
    kernel.attributes["shared_bytes"] = IntAttr(total)


def _size_bytes(op: t.Shared) -> int:
    kind = t.shared_of(op.buffer)
    return kind.dtype.dtype.bytes * kind.count.data
