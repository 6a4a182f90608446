"""mbarriers: declaration, initialisation, arrivals, waits (PTX ISA 9.1, 9.7.13.15)."""

from __future__ import annotations

from typing import ClassVar

from xdsl.dialects.builtin import IntAttr, StringAttr
from xdsl.ir import ParametrizedAttribute, SSAValue, TypeAttribute
from xdsl.irdl import attr_def, irdl_attr_definition, irdl_op_definition, operand_def, opt_attr_def, result_def

from tilewright.base.expr import Expr
from tilewright.tile.dialect import ExprAttr
from tilewright.tile.ops import integer, string
from tilewright.transport.ops.base import SyncOp, TransportOp


@irdl_attr_definition
class MbarriersType(ParametrizedAttribute, TypeAttribute):
    """``slots`` mbarriers, each initialised with ``count`` arrivals."""

    name = "transport.mbarriers"
    slots: IntAttr
    count: IntAttr


def mbarriers_of(value: SSAValue) -> MbarriersType:
    """The type of an mbarrier array."""
    assert isinstance(value.type, MbarriersType)
    return value.type


@irdl_op_definition
class Mbarriers(TransportOp):
    """Declares an array of mbarriers at byte ``offset`` of dynamic shared memory."""

    name = "transport.mbarriers"
    hint = attr_def(StringAttr)
    offset = attr_def(IntAttr)
    bars = result_def(MbarriersType)

    def __init__(self, hint: str, slots: int, count: int, offset: int = 0):
        super().__init__(
            attributes={"hint": string(hint), "offset": integer(offset)},
            result_types=[MbarriersType(integer(slots), integer(count))],
        )


@irdl_op_definition
class MbarrierInit(TransportOp):
    """The executing thread initialises every barrier of the array."""

    name = "transport.mbarrier_init"
    bars = operand_def(MbarriersType)

    def __init__(self, bars: SSAValue):
        super().__init__(operands=[bars])


@irdl_op_definition
class FenceMbarrierInit(SyncOp):
    """fence.mbarrier_init.release.cluster: initialised barriers are visible to the asynchronous proxy."""

    name = "transport.fence_mbarrier_init"
    INSTRUCTION: ClassVar = "fence.mbarrier_init"


class _OnBarrier(TransportOp):
    """Shared by ops on barrier ``index`` of an array."""

    bars = operand_def(MbarriersType)
    index = attr_def(ExprAttr)


@irdl_op_definition
class MbarrierArrive(_OnBarrier):
    """Every executing thread arrives once: on its own CTA's barrier, or on that of the CTA of rank ``cta``."""

    name = "transport.mbarrier_arrive"
    cta = opt_attr_def(ExprAttr)

    def __init__(self, bars: SSAValue, index: Expr, cta: Expr | None = None):
        super().__init__(
            operands=[bars],
            attributes={"index": ExprAttr.of(index), "cta": None if cta is None else ExprAttr.of(cta)},
        )


@irdl_op_definition
class MbarrierArriveExpectTx(_OnBarrier):
    """Adds ``bytes`` to the phase's expected transactions, then arrives once."""

    name = "transport.mbarrier_arrive_expect_tx"
    bytes = attr_def(IntAttr)

    def __init__(self, bars: SSAValue, index: Expr, bytes: int):
        super().__init__(operands=[bars], attributes={"index": ExprAttr.of(index), "bytes": integer(bytes)})


@irdl_op_definition
class MbarrierWait(_OnBarrier):
    """Waits until the phase of this parity has completed."""

    name = "transport.mbarrier_wait"
    parity = attr_def(ExprAttr)

    def __init__(self, bars: SSAValue, index: Expr, parity: Expr):
        super().__init__(operands=[bars], attributes={"index": ExprAttr.of(index), "parity": ExprAttr.of(parity)})


OPS = [Mbarriers, MbarrierInit, FenceMbarrierInit, MbarrierArrive, MbarrierArriveExpectTx, MbarrierWait]
