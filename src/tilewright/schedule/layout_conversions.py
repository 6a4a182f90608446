"""Layout conversions: a conversion plan of ``layout`` as ops of Transport IR.

The plan says how: not at all, by moves between a thread's registers, by lane shuffles, or by a round trip through
shared memory whose swizzle was found for its stores and loads together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from xdsl.ir import Block, Region, SSAValue

from tilewright.base.dtypes import DType
from tilewright.base.expr import Const, Expr
from tilewright.hw.spaces import ThreadGroup
from tilewright.layout.plan import (
    ConversionPlan,
    MatrixInstruction,
    Pick,
    RegisterPlan,
    SharedPlan,
    SharedSide,
    ShufflePlan,
)
from tilewright.tile import dialect as tile
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t


@dataclass(frozen=True)
class ConversionContext:
    """Where a conversion gets its buffers and leaves its ops.

    ``shared`` declares a buffer of so many elements for the plan. ``again``: that buffer may have been used before, so
    a barrier comes first. ``warps``: the threads of a warp may meet alone.
    """

    emit: Callable[[t.TransportOp], object]
    registers: Callable[[int], SSAValue]
    shared: Callable[[int], SSAValue]
    again: bool = False
    warps: bool = True


def convert(plan: ConversionPlan, source: SSAValue, count: int, dtype: DType, context: ConversionContext) -> SSAValue:
    """Emit ``plan``; the buffer of ``count`` registers with the elements in their new places.

    Registers without an element, where a new layout reaches beyond the old one's box, are zero.
    """
    match plan.steps:
        case None if t.registers_of(source).count.data == count:
            return source
        case None:  # the source holds copies besides
            same = tuple(Pick((register,), Const(0)) for register in range(count))
            return _select(RegisterPlan(1, same), source, count, context)
        case RegisterPlan() as steps:
            return _select(steps, source, count, context)
        case ShufflePlan(elements, rounds, results):
            target = context.registers(count)
            sends, lanes = [_pick(r.send) for r in rounds], [r.lane for r in rounds]
            context.emit(t.Exchange(source, target, elements, sends, lanes, list(map(_pick, results))))
            return target
        case SharedPlan() as steps:
            return _round_trip(steps, source, count, dtype, context)


def _pick(pick: Pick) -> tuple[tuple[int, ...], Expr]:
    return pick.choices, pick.index


def _select(steps: RegisterPlan, source: SSAValue, count: int, context: ConversionContext) -> SSAValue:
    target = context.registers(count)
    context.emit(t.RegisterSelect(source, target, steps.elements, list(map(_pick, steps.results))))
    return target


def _round_trip(plan: SharedPlan, source: SSAValue, count: int, dtype: DType, context: ConversionContext) -> SSAValue:
    shared = context.shared(-(-plan.tile.size_bytes // dtype.bytes))
    barrier = t.WarpBarrier if context.warps and plan.barrier is ThreadGroup.WARP else t.Barrier
    if context.again:
        context.emit(barrier())
    arrange = plan.store.arrange
    stored = source if arrange is None else _select(arrange, source, plan.store.registers, context)
    _accesses(plan.store, shared, stored, plan, context, store=True)
    context.emit(barrier())
    loaded = context.registers(plan.load.registers)
    if not plan.whole:
        zeros = Block()
        zeros.add_ops([nothing := tile.Constant(0, dtype), t.Yield([nothing.result])])
        context.emit(t.Map([], [], [loaded], plan.load.registers, Region(zeros)))
    _accesses(plan.load, shared, loaded, plan, context, store=False)
    arrange = plan.load.arrange
    return loaded if arrange is None else _select(arrange, loaded, count, context)


def _accesses(
    side: SharedSide, shared: SSAValue, buffer: SSAValue, plan: SharedPlan, context: ConversionContext, *, store: bool
) -> None:
    for access in side.accesses:
        if isinstance(access, MatrixInstruction):
            matrix = a.StoreMatrix if store else a.LoadMatrix
            context.emit(
                matrix(
                    shared,
                    buffer,
                    first=access.first,
                    base=Const(0),
                    offset=access.address,
                    bytes=plan.tile.size_bytes,
                    matrices=access.matrices,
                    trans=access.trans,
                )
            )
            continue
        vector = t.SharedWrite if store else t.SharedRead
        context.emit(vector(shared, buffer, access.offset, access.predicate, vector=access.width))
