"""Tensor copies between global and shared memory, their maps, bulk groups, and the fence between the proxies
(PTX ISA 9.1, 9.7.9.25)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import ArrayAttr, IntAttr, StringAttr, UnitAttr
from xdsl.ir import ParametrizedAttribute, SSAValue, TypeAttribute
from xdsl.irdl import attr_def, irdl_attr_definition, irdl_op_definition, operand_def, opt_attr_def, result_def
from xdsl.utils.exceptions import VerifyException

from tilewright.base.expr import Expr
from tilewright.hw.tensormap import DataType, L2Promotion, Swizzle
from tilewright.tile.dialect import ExprAttr, TensorType
from tilewright.tile.ops import integer, string
from tilewright.transport.descriptor_attrs import TmaAttr, TmaNumbers
from tilewright.transport.ops.base import SharedType, SyncOp, TransportOp, exprs
from tilewright.transport.ops.mbarriers import MbarriersType


@irdl_attr_definition
class TensorMapType(ParametrizedAttribute, TypeAttribute):
    """A tensor map: a kernel parameter that the launch encodes."""

    name = "transport.tensor_map"
    rank: IntAttr


@irdl_op_definition
class TensorMap(TransportOp):
    """Declares a tensor map of ``tensor``: what ``cuTensorMapEncodeTiled`` is given at launch.

    Dimensions are innermost first. ``dims`` in elements and ``strides_bytes`` (one less) are expressions over the
    tensor's symbols; ``box`` in elements; enumerators are the driver's numbers. Elements outside are read as zero.
    ``axes`` names the tensor axis of each dimension; an axis that no dimension stands for has one element. With
    ``ragged_axis`` the last two dimensions stand for none: copies end where their coordinate in the first of the two
    says (``legal.ragged``).
    """

    name = "transport.tensor_map"
    tensor = operand_def(TensorType)
    hint = attr_def(StringAttr)
    descriptor = attr_def(TmaAttr)
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
        ragged_axis: int | None = None,
    ):
        super().__init__(
            operands=[tensor],
            attributes={
                "hint": string(hint),
                "descriptor": TmaAttr(
                    TmaNumbers(
                        DataType(data_type),
                        address,
                        tuple(dims),
                        tuple(strides_bytes),
                        tuple(box),
                        tuple(axes),
                        Swizzle(swizzle),
                        L2Promotion(l2_promotion),
                        ragged_axis,
                    )
                ),
            },
            result_types=[TensorMapType(integer(len(dims)))],
        )

    @property
    def numbers(self) -> TmaNumbers:
        """What the launch encodes."""
        return self.descriptor.data


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

    Elements outside of the tensor arrive as zeros and count. With ``ctas`` (multicast) the box lands in the CTAs of
    these ranks instead, in each at the same offset and on its own barrier. ``evict_first`` tells the L2 cache that its
    lines are not read again; multicast copies have no such hint.
    """

    name = "transport.tma_load"
    bars = operand_def(MbarriersType)
    index = attr_def(ExprAttr)
    ctas = attr_def(ArrayAttr[ExprAttr])
    evict_first = opt_attr_def(UnitAttr)

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
        ctas: Sequence[Expr] = (),
        evict_first: bool = False,
    ):
        super().__init__(
            operands=[bars, map, shared],
            attributes={
                "coords": exprs(coords),
                "offset": ExprAttr.of(offset),
                "index": ExprAttr.of(index),
                "box_bytes": integer(box_bytes),
                "ctas": exprs(ctas),
                **({"evict_first": UnitAttr()} if evict_first else {}),
            },
        )

    def verify_(self) -> None:
        self._verify_coords()
        if self.ctas and self.evict_first is not None:
            raise VerifyException("a multicast copy with a hint to the L2 cache")


@irdl_op_definition
class LoadCoordinate(TransportOp):
    """Names an integer that the executing thread loads, ``tensor`` at ``coords``, for the ops that follow in this block
    and the regions inside them: a coordinate of tensor copies.

    Where ``guard`` is false nothing is read, and the name is ``extent``, as it is where the integer is not in
    ``0 .. extent - 1``: there a tensor has no elements.
    """

    name = "transport.load_coordinate"
    symbol = attr_def(StringAttr)
    tensor = operand_def(TensorType)
    coords = attr_def(ArrayAttr[ExprAttr])
    guard = attr_def(ExprAttr)
    extent = attr_def(ExprAttr)

    def __init__(self, symbol: str, tensor: SSAValue, *, coords: Sequence[Expr], guard: Expr, extent: Expr):
        super().__init__(
            operands=[tensor],
            attributes={
                "symbol": string(symbol),
                "coords": exprs(coords),
                "guard": ExprAttr.of(guard),
                "extent": ExprAttr.of(extent),
            },
        )

    def verify_(self) -> None:
        kind = self.tensor.type
        assert isinstance(kind, TensorType)
        if not kind.element.is_int or len(self.coords) != kind.rank:
            raise VerifyException(f"an integer at {len(self.coords)} coordinates of {kind}")


@irdl_op_definition
class TmaStore(_TensorCopy):
    """The executing thread starts a copy of one box from shared memory, in its current bulk group; what lies outside
    of the tensor is not written."""

    name = "transport.tma_store"

    def __init__(self, map: SSAValue, shared: SSAValue, *, coords: Sequence[Expr], offset: Expr, box_bytes: int):
        super().__init__(
            operands=[map, shared],
            attributes={"coords": exprs(coords), "offset": ExprAttr.of(offset), "box_bytes": integer(box_bytes)},
        )

    def verify_(self) -> None:
        self._verify_coords()


@irdl_op_definition
class BulkCommit(SyncOp):
    """Closes the executing thread's bulk group."""

    name = "transport.bulk_commit"
    INSTRUCTION: ClassVar = "cp.async.bulk.commit_group"


@irdl_op_definition
class BulkWait(TransportOp):
    """Waits until at most ``pending`` of the thread's bulk groups are open; with ``read`` until they have been read."""

    name = "transport.bulk_wait"
    pending = attr_def(IntAttr)
    read = attr_def(IntAttr)

    def __init__(self, pending: int, *, read: bool):
        super().__init__(attributes={"pending": integer(pending), "read": integer(int(read))})


@irdl_op_definition
class FenceProxyAsync(SyncOp):
    """fence.proxy.async.shared::cta: the thread's ordinary shared accesses are ordered with asynchronous ones."""

    name = "transport.fence_proxy_async"
    INSTRUCTION: ClassVar = "fence.proxy.async"


OPS = [TensorMap, TmaLoad, LoadCoordinate, TmaStore, BulkCommit, BulkWait, FenceProxyAsync]
