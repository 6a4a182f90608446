"""Copies of tiles by threads: into shared memory by cp.async, which they start and do not wait for (PTX ISA 9.1,
9.7.9.25.3), and by loads followed by stores; out of it by loads followed by stores.

All go through the generic proxy. The cp.async of a thread are done in no order; an mbarrier may count the threads whose
copies have all been done.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import ArrayAttr, IntAttr
from xdsl.ir import SSAValue
from xdsl.irdl import attr_def, irdl_op_definition, operand_def, opt_attr_def, var_operand_def
from xdsl.utils.exceptions import VerifyException

from tilewright.base.expr import TRUE, Expr
from tilewright.hw.target import MAX_VECTOR_BYTES
from tilewright.tile.dialect import ExprAttr, TensorType
from tilewright.tile.ops import integer
from tilewright.transport.ops.base import RegistersType, SharedType, TransportOp, exprs, shared_of
from tilewright.transport.ops.mbarriers import MbarriersType

COPY_BYTES = (4, 8, 16)
"""The sizes of one cp.async."""


class _Copies(TransportOp):
    """Shared by all: every executing thread makes ``count`` copies of ``vector`` elements each.

    The elements of copy ``r`` are consecutive along dimension ``axis`` of the tensor from ``coords`` on, and from byte
    ``offset`` of the shared buffer. Where ``guard`` is false, and from coordinate ``stop`` along ``axis`` on, the
    tensor is not touched. All bytes of the buffer lie in ``bytes`` bytes from ``base`` on. Copies for which ``active``
    is false are not made.

    In coordinates and guard ``index_symbol(k)`` is the integer that index buffer k holds in register ``reads[k]``, an
    expression of the copy. With index buffers the elements are those ``within`` the tile's domain; the guard has
    besides only tests that the coordinates lie in the tensor.
    """

    tensor = operand_def(TensorType)
    shared = operand_def(SharedType)
    indices = var_operand_def(RegistersType)
    index_registers = opt_attr_def(ArrayAttr[ExprAttr])
    within = opt_attr_def(ExprAttr)
    coords = attr_def(ArrayAttr[ExprAttr])
    axis = attr_def(IntAttr)
    stop = attr_def(ExprAttr)
    guard = attr_def(ExprAttr)
    active = attr_def(ExprAttr)
    offset = attr_def(ExprAttr)
    vector = attr_def(IntAttr)
    count = attr_def(IntAttr)
    base = attr_def(ExprAttr)
    bytes = attr_def(IntAttr)

    def __init__(
        self,
        tensor: SSAValue,
        shared: SSAValue,
        *,
        coords: Sequence[Expr],
        axis: int,
        stop: Expr,
        guard: Expr,
        offset: Expr,
        vector: int,
        count: int,
        base: Expr,
        bytes: int,
        active: Expr = TRUE,
        indices: Sequence[SSAValue] = (),
        reads: Sequence[Expr] = (),
        within: Expr | None = None,
    ):
        super().__init__(
            operands=[tensor, shared, list(indices)],
            attributes={
                "coords": exprs(coords),
                "axis": integer(axis),
                "stop": ExprAttr.of(stop),
                "guard": ExprAttr.of(guard),
                "active": ExprAttr.of(active),
                "offset": ExprAttr.of(offset),
                "vector": integer(vector),
                "count": integer(count),
                "base": ExprAttr.of(base),
                "bytes": integer(bytes),
                "index_registers": exprs(reads) if indices else None,
                "within": None if within is None else ExprAttr.of(within),
            },
        )

    @property
    def reads(self) -> tuple[Expr, ...]:
        """The register of each index buffer."""
        return () if self.index_registers is None else tuple(r.expr for r in self.index_registers)

    @property
    def copy_bytes(self) -> int:
        """Bytes of one copy."""
        return self.vector.data * shared_of(self.shared).dtype.dtype.bytes

    def verify_(self) -> None:
        tensor = self.tensor.type
        assert isinstance(tensor, TensorType)
        if len(self.coords) != len(tensor.dims) or not 0 <= self.axis.data < len(tensor.dims):
            raise VerifyException(
                f"{len(self.coords)} coordinates, axis {self.axis.data}, for a tensor of rank {len(tensor.dims)}"
            )
        if tensor.element != shared_of(self.shared).dtype.dtype:
            raise VerifyException(f"elements of {tensor.element} copied to {shared_of(self.shared).dtype.dtype}")
        if self.count.data < 1:
            raise VerifyException(f"{self.count.data} copies")
        if len(self.indices) != len(self.reads) or bool(self.indices) != (self.within is not None):
            raise VerifyException(f"{len(self.reads)} registers of {len(self.indices)} index buffers, or no domain")


class ThreadCopies(_Copies):
    """Copies into shared memory: zeros arrive for what is not read, and the bytes from ``base`` on are filled."""


@irdl_op_definition
class CpAsync(ThreadCopies):
    """cp.async: the copies are started, and done at some later moment."""

    name = "transport.cp_async"

    def verify_(self) -> None:
        super().verify_()
        if self.copy_bytes not in COPY_BYTES:
            raise VerifyException(f"cp.async moves {COPY_BYTES} bytes, not {self.copy_bytes}")


@irdl_op_definition
class LoadStore(ThreadCopies):
    """ld.global, then st.shared, of single elements: any address will do."""

    name = "transport.load_store"

    def verify_(self) -> None:
        super().verify_()
        if self.vector.data != 1:
            raise VerifyException(f"loads and stores of single elements, not of {self.vector.data}")


@irdl_op_definition
class CopyOut(_Copies):
    """ld.shared, then st.global: a copy is one access of either memory where all of its elements are written, else
    several."""

    name = "transport.copy_out"

    def verify_(self) -> None:
        super().verify_()
        if self.copy_bytes > MAX_VECTOR_BYTES or self.copy_bytes & (self.copy_bytes - 1):
            raise VerifyException(f"no access of {self.copy_bytes} bytes")


@irdl_op_definition
class ZeroFill(TransportOp):
    """st.shared of zeros: every executing thread makes ``count`` stores of ``vector`` elements each, store ``r`` at
    byte ``offset`` of the shared buffer, unless ``guard`` is false.

    All bytes lie in ``bytes`` bytes from ``base`` on. Elements of a product's operand that lie in its tensor and
    outside of its domain are cleared so: zeros of the other operand do not make a NaN disappear.
    """

    name = "transport.zero_fill"
    shared = operand_def(SharedType)
    offset = attr_def(ExprAttr)
    guard = attr_def(ExprAttr)
    vector = attr_def(IntAttr)
    count = attr_def(IntAttr)
    base = attr_def(ExprAttr)
    bytes = attr_def(IntAttr)

    def __init__(self, shared: SSAValue, *, offset: Expr, guard: Expr, vector: int, count: int, base: Expr, bytes: int):
        super().__init__(
            operands=[shared],
            attributes={
                "offset": ExprAttr.of(offset),
                "guard": ExprAttr.of(guard),
                "vector": integer(vector),
                "count": integer(count),
                "base": ExprAttr.of(base),
                "bytes": integer(bytes),
            },
        )

    @property
    def store_bytes(self) -> int:
        """Bytes of one store."""
        return self.vector.data * shared_of(self.shared).dtype.dtype.bytes

    def verify_(self) -> None:
        if self.store_bytes > MAX_VECTOR_BYTES or self.store_bytes & (self.store_bytes - 1):
            raise VerifyException(f"no access of {self.store_bytes} bytes")
        if self.count.data < 1:
            raise VerifyException(f"{self.count.data} stores")


@irdl_op_definition
class CpAsyncMbarrierArrive(TransportOp):
    """cp.async.mbarrier.arrive.noinc: once all earlier cp.async of an executing thread are done, it arrives once."""

    name = "transport.cp_async_mbarrier_arrive"
    bars = operand_def(MbarriersType)
    index = attr_def(ExprAttr)

    def __init__(self, bars: SSAValue, index: Expr):
        super().__init__(operands=[bars], attributes={"index": ExprAttr.of(index)})


OPS = [CpAsync, LoadStore, CopyOut, ZeroFill, CpAsyncMbarrierArrive]
