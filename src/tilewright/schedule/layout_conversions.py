"""Layout conversions: lowers a conversion plan of ``layout`` to Transport IR.

The plan is one of: nothing, moves between a thread's registers, warp shuffles, or a round trip through shared memory
with a swizzle chosen for its stores and loads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from xdsl.ir import Block, Region, SSAValue

from tilewright.base.dtypes import DType
from tilewright.base.expr import Const, Expr
from tilewright.hw.spaces import ThreadGroup
from tilewright.layout.conversion_plan import (
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
    """How a conversion allocates buffers and emits ops.

    ``shared`` declares a shared buffer of so many elements. ``again``: that buffer may have been used before, so a
    barrier comes first. ``warps``: warp barriers suffice where a warp exchanges its own data.
    """

    emit: Callable[[t.TransportOp], object]
    registers: Callable[[int], SSAValue]
    shared: Callable[[int], SSAValue]
    again: bool = False
    warps: bool = True


def convert(plan: ConversionPlan, source: SSAValue, count: int, dtype: DType, context: ConversionContext) -> SSAValue:
    """Emits ``plan``; returns the buffer of ``count`` registers with the elements in their new layout.

    Registers without an element, where the new layout covers more than the old one, are zero.
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
