"""Addresses of buffers and barriers in dynamic shared memory, as C++."""

from __future__ import annotations

from xdsl.ir import SSAValue

from tilewright.base.expr import Expr, Sum
from tilewright.codegen.writer import Writer

SHARED_BASE = "shared_base"
MATRIX_BASE = "matrix_base"
"""The address bits that a matrix descriptor encodes: 18. In a cluster the CTA rank is in the bits above."""
BARRIER_BYTES = 8


class SharedAddresses:
    """Addresses, pointers and matrix descriptors of bytes of dynamic shared memory."""

    def __init__(self, writer: Writer):
        self.writer = writer
        self.offsets: dict[SSAValue, int] = {}
        """Byte offsets of what is declared so far."""

    def split(self, node: Expr) -> tuple[str, int]:
        """An offset as text of what varies and its constant part."""
        e = self.writer
        node = e.simplified(node)
        if node.constant is not None:
            return "", int(node.constant)
        constant = node.offset if isinstance(node, Sum) else 0
        return e.text(node - constant), constant

    def address(self, shared: SSAValue, offset: Expr) -> str:
        """Address of a byte in the shared window."""
        varies, constant = self.split(offset)
        constant += self.offsets[shared]
        return f"{SHARED_BASE}{f' + {varies}' if varies else ''} + {constant}"

    def pointer(self, shared: SSAValue, offset: Expr) -> str:
        """The same location as a pointer."""
        varies, constant = self.split(offset)
        constant += self.offsets[shared]
        return f"shared{f' + {varies}' if varies else ''} + {constant}"

    def barrier(self, bars: SSAValue, index: Expr) -> str:
        """Address of one mbarrier."""
        return self.address(bars, index * BARRIER_BYTES)

    def descriptor(self, template: int, shared: SSAValue, offset: Expr) -> str:
        """A matrix descriptor: the constant part is added last, so that one iteration's differ by constants."""
        varies, constant = self.split(offset)
        constant += self.offsets[shared]
        assert constant % 16 == 0, constant
        start = f"({MATRIX_BASE} + {varies})" if varies else MATRIX_BASE
        return f"0x{template:x}ull + ({start} >> 4) + {constant // 16}"
