"""The asynchronous ops of the ``transport`` dialect: warp roles, mbarriers, tensor copies, wgmma, fences (sm_90a).

A kernel with roles is: declarations (shared buffers, tensor maps, mbarriers), the initialisation of its barriers by an
``elected`` thread, one ``barrier``, then its ``role`` ops. Inside a role

    ``tid``         counts from the role's first thread
    ``warpgroup``   is tid // 128, the same for all threads of a warp
    ``barrier``     joins the role's threads only

Ops say what the *lowered* kernel does: slots, parities, byte counts are written out as expressions over carried
counters, so that the checker, the simulator and the code generator read the same text. Names and meanings are the
hardware's (PTX ISA 9.1, 9.7.9.25 bulk copies, 9.7.13 barriers, 9.7.15 wgmma).
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import ArrayAttr, IntAttr, StringAttr
from xdsl.ir import Attribute, ParametrizedAttribute, Region, SSAValue, TypeAttribute
from xdsl.irdl import (
    attr_def,
    irdl_attr_definition,
    irdl_op_definition,
    operand_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.traits import NoTerminator
from xdsl.utils.exceptions import VerifyException

from tilewright.base.expr import Const, Expr
from tilewright.tile.dialect import DTypeAttr, ExprAttr, TensorType
from tilewright.transport.base import RegistersType, SharedType, TransportOp, exprs, registers_of, shared_of

WARPGROUP = "warpgroup"
WARPGROUP_THREADS = 128


@irdl_attr_definition
class MbarriersType(ParametrizedAttribute, TypeAttribute):
    """``slots`` mbarriers, each initialised with ``count`` arrivals."""

    name = "transport.mbarriers"
    slots: IntAttr
    count: IntAttr


@irdl_attr_definition
class TensorMapType(ParametrizedAttribute, TypeAttribute):
    """A tensor map: a kernel parameter that the launch encodes."""

    name = "transport.tensor_map"
    rank: IntAttr


_ROLE_BARRIERS = 8


def role_barrier(index: int) -> int:
    """Number of the named barrier that joins the threads of the kernel's ``index``-th role; those below are free."""
    return _ROLE_BARRIERS + index


def mbarriers_of(value: SSAValue) -> MbarriersType:
    """The type of an mbarrier array."""
    assert isinstance(value.type, MbarriersType)
    return value.type


# -- roles ------------------------------------------------------------------------------------------------------------
@irdl_op_definition
class Role(TransportOp):
    """Threads ``first .. first + threads - 1`` of the CTA run the body; other threads skip it.

    Roles are whole warpgroups and stand one after another at the end of the kernel.
    """

    name = "transport.role"
    label = attr_def(StringAttr)
    first = attr_def(IntAttr)
    threads = attr_def(IntAttr)
    body = region_def("single_block")
    traits = traits_def(NoTerminator())

    def __init__(self, label: str, first: int, threads: int, body: Region):
        super().__init__(
            attributes={"label": StringAttr(label), "first": IntAttr(first), "threads": IntAttr(threads)},
            regions=[body],
        )

    def verify_(self) -> None:
        if self.first.data % WARPGROUP_THREADS or self.threads.data % WARPGROUP_THREADS or self.threads.data <= 0:
            raise VerifyException(f"a role is whole warpgroups, not threads {self.first.data} + {self.threads.data}")


@irdl_op_definition
class Elected(TransportOp):
    """The first thread of every warpgroup of the role runs the body, outside of roles thread 0 of the CTA."""

    name = "transport.elected"
    body = region_def("single_block")
    traits = traits_def(NoTerminator())

    def __init__(self, body: Region):
        super().__init__(regions=[body])


@irdl_op_definition
class Counter(TransportOp):
    """An integer that is carried across loops, ``start`` at first; the same for all threads that run it."""

    name = "transport.counter"
    symbol = attr_def(StringAttr)
    start = attr_def(IntAttr)

    def __init__(self, symbol: str, start: int = 0):
        super().__init__(attributes={"symbol": StringAttr(symbol), "start": IntAttr(start)})


@irdl_op_definition
class Advance(TransportOp):
    """Adds ``by`` to a carried counter."""

    name = "transport.advance"
    symbol = attr_def(StringAttr)
    by = attr_def(ExprAttr)

    def __init__(self, symbol: str, by: Expr = Const(1)):  # noqa: B008  (expressions are immutable)
        super().__init__(attributes={"symbol": StringAttr(symbol), "by": ExprAttr.of(by)})


@irdl_op_definition
class SetMaxRegisters(TransportOp):
    """setmaxnreg: registers per thread of each warpgroup of the role; more than at launch waits for others to give."""

    name = "transport.setmaxnreg"
    count = attr_def(IntAttr)

    def __init__(self, count: int):
        super().__init__(attributes={"count": IntAttr(count)})

    def verify_(self) -> None:
        if self.count.data % 8 or not 24 <= self.count.data <= 256:
            raise VerifyException(f"setmaxnreg takes a multiple of 8 from 24 to 256, not {self.count.data}")


# -- mbarriers --------------------------------------------------------------------------------------------------------
@irdl_op_definition
class Mbarriers(TransportOp):
    """Declares an array of mbarriers at byte ``offset`` of dynamic shared memory."""

    name = "transport.mbarriers"
    hint = attr_def(StringAttr)
    offset = attr_def(IntAttr)
    bars = result_def(MbarriersType)

    def __init__(self, hint: str, slots: int, count: int, offset: int = 0):
        super().__init__(
            attributes={"hint": StringAttr(hint), "offset": IntAttr(offset)},
            result_types=[MbarriersType(IntAttr(slots), IntAttr(count))],
        )


@irdl_op_definition
class MbarrierInit(TransportOp):
    """The executing thread initialises every barrier of the array."""

    name = "transport.mbarrier_init"
    bars = operand_def(MbarriersType)

    def __init__(self, bars: SSAValue):
        super().__init__(operands=[bars])


@irdl_op_definition
class FenceMbarrierInit(TransportOp):
    """fence.mbarrier_init.release.cluster: initialised barriers are visible to the asynchronous proxy."""

    name = "transport.fence_mbarrier_init"

    def __init__(self) -> None:
        super().__init__()


class _OnBarrier(TransportOp):
    """Shared by ops on barrier ``index`` of an array."""

    bars = operand_def(MbarriersType)
    index = attr_def(ExprAttr)


@irdl_op_definition
class MbarrierArrive(_OnBarrier):
    """Every executing thread arrives once."""

    name = "transport.mbarrier_arrive"

    def __init__(self, bars: SSAValue, index: Expr):
        super().__init__(operands=[bars], attributes={"index": ExprAttr.of(index)})


@irdl_op_definition
class MbarrierArriveExpectTx(_OnBarrier):
    """Adds ``bytes`` to the phase's expected transactions, then arrives once."""

    name = "transport.mbarrier_arrive_expect_tx"
    bytes = attr_def(IntAttr)

    def __init__(self, bars: SSAValue, index: Expr, bytes: int):
        super().__init__(operands=[bars], attributes={"index": ExprAttr.of(index), "bytes": IntAttr(bytes)})


@irdl_op_definition
class MbarrierWait(_OnBarrier):
    """Waits until the phase of this parity has completed."""

    name = "transport.mbarrier_wait"
    parity = attr_def(ExprAttr)

    def __init__(self, bars: SSAValue, index: Expr, parity: Expr):
        super().__init__(operands=[bars], attributes={"index": ExprAttr.of(index), "parity": ExprAttr.of(parity)})


# -- tensor copies ----------------------------------------------------------------------------------------------------
@irdl_op_definition
class TensorMap(TransportOp):
    """Declares a tensor map of ``tensor``: what ``cuTensorMapEncodeTiled`` is given at launch.

    Dimensions are innermost first. ``dims`` in elements and ``strides_bytes`` (one less) are expressions over the
    tensor's symbols; ``box`` in elements; enumerators are the driver's numbers. Elements outside are read as zero.
    ``axes`` names the tensor axis of each dimension; an axis that no dimension stands for has one element.
    """

    name = "transport.tensor_map"
    tensor = operand_def(TensorType)
    hint = attr_def(StringAttr)
    data_type = attr_def(IntAttr)
    address = attr_def(ExprAttr)
    dims = attr_def(ArrayAttr[ExprAttr])
    strides_bytes = attr_def(ArrayAttr[ExprAttr])
    box = attr_def(ArrayAttr[IntAttr])
    axes = attr_def(ArrayAttr[IntAttr])
    swizzle = attr_def(IntAttr)
    l2_promotion = attr_def(IntAttr)
    map = result_def(TensorMapType)

    def __init__(
        self,
        tensor: SSAValue,
        hint: str,
        *,
        data_type: int,
        address: Expr,
        dims: Sequence[Expr],
        strides_bytes: Sequence[Expr],
        box: Sequence[int],
        axes: Sequence[int],
        swizzle: int,
        l2_promotion: int,
    ):
        super().__init__(
            operands=[tensor],
            attributes={
                "hint": StringAttr(hint),
                "data_type": IntAttr(data_type),
                "address": ExprAttr.of(address),
                "dims": exprs(dims),
                "strides_bytes": exprs(strides_bytes),
                "box": ArrayAttr([IntAttr(n) for n in box]),
                "axes": ArrayAttr([IntAttr(n) for n in axes]),
                "swizzle": IntAttr(swizzle),
                "l2_promotion": IntAttr(l2_promotion),
            },
            result_types=[TensorMapType(IntAttr(len(dims)))],
        )

    def verify_(self) -> None:
        rank = len(self.dims)
        if not 1 <= rank <= 5 or len(self.strides_bytes) != rank - 1 or not len(self.box) == len(self.axes) == rank:
            raise VerifyException(f"{rank} dims, {len(self.strides_bytes)} strides, {len(self.box)} box extents")


class _TensorCopy(TransportOp):
    """Shared by tensor copies: ``box_bytes`` from byte ``offset`` of a shared buffer, box at ``coords`` (innermost
    first)."""

    map = operand_def(TensorMapType)
    shared = operand_def(SharedType)
    coords = attr_def(ArrayAttr[ExprAttr])
    offset = attr_def(ExprAttr)
    box_bytes = attr_def(IntAttr)

    def _verify_coords(self) -> None:
        kind = self.map.type
        assert isinstance(kind, TensorMapType)
        if len(self.coords) != kind.rank.data:
            raise VerifyException(f"{len(self.coords)} coordinates for a map of rank {kind.rank.data}")


@irdl_op_definition
class TmaLoad(_TensorCopy):
    """The executing thread starts a copy of one box into shared memory; ``box_bytes`` complete on barrier ``index``.

    Elements outside of the tensor arrive as zeros and count.
    """

    name = "transport.tma_load"
    bars = operand_def(MbarriersType)
    index = attr_def(ExprAttr)

    def __init__(
        self,
        map: SSAValue,
        shared: SSAValue,
        bars: SSAValue,
        *,
        coords: Sequence[Expr],
        offset: Expr,
        index: Expr,
        box_bytes: int,
    ):
        super().__init__(
            operands=[bars, map, shared],
            attributes={
                "coords": exprs(coords),
                "offset": ExprAttr.of(offset),
                "index": ExprAttr.of(index),
                "box_bytes": IntAttr(box_bytes),
            },
        )

    def verify_(self) -> None:
        self._verify_coords()


@irdl_op_definition
class TmaStore(_TensorCopy):
    """The executing thread starts a copy of one box from shared memory, in its current bulk group; what lies outside
    of the tensor is not written."""

    name = "transport.tma_store"

    def __init__(self, map: SSAValue, shared: SSAValue, *, coords: Sequence[Expr], offset: Expr, box_bytes: int):
        super().__init__(
            operands=[map, shared],
            attributes={"coords": exprs(coords), "offset": ExprAttr.of(offset), "box_bytes": IntAttr(box_bytes)},
        )

    def verify_(self) -> None:
        self._verify_coords()


@irdl_op_definition
class BulkCommit(TransportOp):
    """Closes the executing thread's bulk group."""

    name = "transport.bulk_commit"

    def __init__(self) -> None:
        super().__init__()


@irdl_op_definition
class BulkWait(TransportOp):
    """Waits until at most ``pending`` of the thread's bulk groups are open; with ``read`` until they have been read."""

    name = "transport.bulk_wait"
    pending = attr_def(IntAttr)
    read = attr_def(IntAttr)

    def __init__(self, pending: int, *, read: bool):
        super().__init__(attributes={"pending": IntAttr(pending), "read": IntAttr(int(read))})


@irdl_op_definition
class FenceProxyAsync(TransportOp):
    """fence.proxy.async.shared::cta: the thread's ordinary shared accesses are ordered with asynchronous ones."""

    name = "transport.fence_proxy_async"

    def __init__(self) -> None:
        super().__init__()


# -- threads ----------------------------------------------------------------------------------------------------------
class _NamedBarrier(TransportOp):
    """Shared by named barriers: ``id`` may use ``warpgroup``; ``threads`` take part."""

    id = attr_def(ExprAttr)
    threads = attr_def(IntAttr)

    def __init__(self, id: Expr, threads: int):
        super().__init__(attributes={"id": ExprAttr.of(id), "threads": IntAttr(threads)})


@irdl_op_definition
class NamedBarrierSync(_NamedBarrier):
    """bar.sync: arrives and waits."""

    name = "transport.named_barrier_sync"


@irdl_op_definition
class NamedBarrierArrive(_NamedBarrier):
    """bar.arrive: arrives without waiting."""

    name = "transport.named_barrier_arrive"


@irdl_op_definition
class StoreMatrix(TransportOp):
    """stmatrix.x4: 8 consecutive registers of a 16-bit buffer, from ``first``, are four 8x8 matrices of each warp.

    Register 2*i and 2*i + 1 of lane 4*row + c are columns 2*c and 2*c + 1 of matrix i. Lane 8*i + row gives the byte
    address ``base + offset`` of that row of matrix i; ``base`` has no ``tid``, and 0 <= offset <= ``bytes`` - 16.
    """

    name = "transport.stmatrix"
    shared = operand_def(SharedType)
    buffer = operand_def(RegistersType)
    first = attr_def(IntAttr)
    base = attr_def(ExprAttr)
    offset = attr_def(ExprAttr)
    bytes = attr_def(IntAttr)

    def __init__(self, shared: SSAValue, buffer: SSAValue, *, first: int, base: Expr, offset: Expr, bytes: int):
        super().__init__(
            operands=[shared, buffer],
            attributes={
                "first": IntAttr(first),
                "base": ExprAttr.of(base),
                "offset": ExprAttr.of(offset),
                "bytes": IntAttr(bytes),
            },
        )

    def verify_(self) -> None:
        registers = registers_of(self.buffer)
        if registers.dtype.dtype.bits != 16 or self.first.data % 8 or self.first.data + 8 > registers.count.data:
            raise VerifyException("stmatrix.x4 takes 8 registers of a 16-bit buffer")


# -- wgmma ------------------------------------------------------------------------------------------------------------
@irdl_op_definition
class WgmmaFence(TransportOp):
    """wgmma.fence: earlier register accesses come before the wgmmas that follow."""

    name = "transport.wgmma_fence"

    def __init__(self) -> None:
        super().__init__()


@irdl_op_definition
class Wgmma(TransportOp):
    """One wgmma.mma_async of each warpgroup: ``acc[first ..] (+)= A B``, m64 x ``n`` x (256 bits of K).

    ``a`` is a shared buffer, read through the descriptor ``a_template`` at byte ``a_offset``, or a 16-bit register
    buffer, read from element ``a_register``. ``b`` is shared. Templates hold every field but the start address.
    ``a_major``, ``b_major``: 1 is MN-major. The instruction reads ``a_bytes`` from ``a_region`` and ``b_bytes`` from
    ``b_region`` at most (its whole tile). ``scale_d`` 0 ignores what the accumulator held.
    The accumulator and a register A are untouchable until a ``wgmma_wait`` has retired the group.
    """

    name = "transport.wgmma"
    accumulator = operand_def(RegistersType)
    a = operand_def(Attribute)
    b = operand_def(SharedType)
    dtype = attr_def(DTypeAttr)
    n = attr_def(IntAttr)
    first = attr_def(IntAttr)
    a_register = attr_def(IntAttr)
    a_offset = attr_def(ExprAttr)
    b_offset = attr_def(ExprAttr)
    a_template = attr_def(IntAttr)
    b_template = attr_def(IntAttr)
    a_major = attr_def(IntAttr)
    b_major = attr_def(IntAttr)
    a_region = attr_def(ExprAttr)
    a_bytes = attr_def(IntAttr)
    b_region = attr_def(ExprAttr)
    b_bytes = attr_def(IntAttr)
    scale_d = attr_def(IntAttr)

    def __init__(
        self,
        accumulator: SSAValue,
        a: SSAValue,
        b: SSAValue,
        *,
        dtype: DTypeAttr,
        n: int,
        first: int,
        a_register: int,
        a_offset: Expr,
        b_offset: Expr,
        a_template: int,
        b_template: int,
        a_major: int,
        b_major: int,
        a_region: Expr,
        a_bytes: int,
        b_region: Expr,
        b_bytes: int,
        scale_d: bool,
    ):
        super().__init__(
            operands=[accumulator, a, b],
            attributes={
                "dtype": dtype,
                "n": IntAttr(n),
                "first": IntAttr(first),
                "a_register": IntAttr(a_register),
                "a_offset": ExprAttr.of(a_offset),
                "b_offset": ExprAttr.of(b_offset),
                "a_template": IntAttr(a_template),
                "b_template": IntAttr(b_template),
                "a_major": IntAttr(a_major),
                "b_major": IntAttr(b_major),
                "a_region": ExprAttr.of(a_region),
                "a_bytes": IntAttr(a_bytes),
                "b_region": ExprAttr.of(b_region),
                "b_bytes": IntAttr(b_bytes),
                "scale_d": IntAttr(int(scale_d)),
            },
        )

    @property
    def a_in_registers(self) -> bool:
        """The left operand is a register buffer."""
        return isinstance(self.a.type, RegistersType)

    def verify_(self) -> None:
        count = registers_of(self.accumulator).count.data
        if self.n.data % 8 or not 8 <= self.n.data <= 256:
            raise VerifyException(f"wgmma has n of 8 to 256 in steps of 8, not {self.n.data}")
        if self.first.data + self.n.data // 2 > count:
            raise VerifyException(f"{self.n.data // 2} accumulators from {self.first.data} of {count}")
        if not self.a_in_registers:
            shared_of(self.a)


@irdl_op_definition
class WgmmaCommit(TransportOp):
    """Closes the warpgroup's wgmma group."""

    name = "transport.wgmma_commit"

    def __init__(self) -> None:
        super().__init__()


@irdl_op_definition
class WgmmaWait(TransportOp):
    """Waits until at most ``pending`` wgmma groups are open; ``retired`` are the buffers that may be touched again."""

    name = "transport.wgmma_wait"
    pending = attr_def(IntAttr)
    retired = var_operand_def(RegistersType)

    def __init__(self, pending: int, retired: Sequence[SSAValue] = ()):
        super().__init__(operands=[list(retired)], attributes={"pending": IntAttr(pending)})


OPS = [
    Role,
    Elected,
    Counter,
    Advance,
    SetMaxRegisters,
    Mbarriers,
    MbarrierInit,
    FenceMbarrierInit,
    MbarrierArrive,
    MbarrierArriveExpectTx,
    MbarrierWait,
    TensorMap,
    TmaLoad,
    TmaStore,
    BulkCommit,
    BulkWait,
    FenceProxyAsync,
    NamedBarrierSync,
    NamedBarrierArrive,
    StoreMatrix,
    WgmmaFence,
    Wgmma,
    WgmmaCommit,
    WgmmaWait,
]
"""Registered by the ``Transport`` dialect."""
TYPES = [MbarriersType, TensorMapType]
