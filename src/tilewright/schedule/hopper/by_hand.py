"""Operands that the threads write to shared memory themselves, and products by ordinary arithmetic."""

from __future__ import annotations

from xdsl.ir import Block, Operation, Region, SSAValue

from tilewright.base.dtypes import DType
from tilewright.base.expr import TRUE, Const, Sym, all_of, expr, minimum
from tilewright.lang.fns import BinaryFn
from tilewright.schedule.facts import Facts
from tilewright.schedule.hopper.arrangement import Arrangement
from tilewright.schedule.hopper.operands import DotPlan, Staged
from tilewright.schedule.hopper.parts import PartStores
from tilewright.schedule.hopper.products import staging_offset
from tilewright.schedule.lower import hint
from tilewright.schedule.mapping import Buffered
from tilewright.schedule.plan import Placement
from tilewright.schedule.tiles import element, spans_of
from tilewright.tile import dialect as tile
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t


class HandOperands(PartStores):
    """Stages values; ``staged`` are the shared buffers of those written before, which are used again."""

    def __init__(self, kernel: tile.Kernel, placement: Placement, facts: Facts, arrangement: Arrangement):
        super().__init__(kernel, placement, facts, arrangement)
        self.staged: dict[SSAValue, SSAValue] = {}

    def ordinary_product(self, plan: DotPlan, buffer: SSAValue, *, fresh: bool) -> None:
        """Both operands through shared memory in the accumulator's type, then one multiply-add per element and step."""
        dot, home = plan.dot, self.placement.home
        axes, kind = self.axes_of[dot.result], element(dot.result)
        depth = tile.tile_type(dot.a).shape[1]
        left = self.widened(dot.a, kind, dot)
        right = self.widened(dot.b, kind, dot)
        self.emit(t.Barrier())
        if fresh:
            zero = self.mapping(axes)
            self.emit(zero.finish([zero.constant(0.0 if kind.is_float else 0, kind)], [buffer]), dot)
        loop, step = Block(), f"d{self.order[dot]}"
        with self.into(loop):
            parts: list[SSAValue] = []
            for side, (shared, pitch) in enumerate((left, right)):
                cls = axes[side]
                assert cls is not None
                own = (cls,)
                part = self.registers("ab"[side], kind, home.registers(own))
                (at,) = home.layout(own).coordinates(Sym(t.THREAD), Sym(t.REGISTER))
                size = tile.tile_type(dot.result).shape[side]
                if home.by_class[own[0]].covered > size:  # registers beyond the tile repeat its last row or column
                    at = minimum(at, size - 1)
                offset = at * pitch + Sym(step) if side == 0 else Sym(step) * pitch + at
                self.emit(t.SharedRead(shared, part, offset, TRUE), dot)
                parts.append(part)
            builder = self.mapping(axes)
            a_value, b_value = (builder.read(Buffered(part, (axes[side],)), kind) for side, part in enumerate(parts))
            total = builder.read(Buffered(buffer, axes), kind)
            product = builder.binary(BinaryFn.MUL, a_value, b_value)
            self.emit(builder.finish([builder.binary(BinaryFn.ADD, total, product)], [buffer]), dot)
        self.emit(t.For(step, Const(0), expr(depth), expr(1), Region(loop)), dot)
        self.emit(t.Barrier())

    def widened(self, value: SSAValue, kind: DType, dot: tile.Dot) -> tuple[SSAValue, int]:
        """Writes a value row by row to shared memory, zero beyond its domains; returns the buffer and its pitch."""
        axes, spans = self.axes_of[value], spans_of(value)
        shape = tile.tile_type(value).shape
        builder = self.mapping(axes, value)
        result = builder.cast(builder.value(value), kind)
        places = [builder.coordinate(c) for c in axes]
        valid = self.valid(axes, spans, places)
        if valid != TRUE:
            result = builder.select(valid, result, builder.constant(0.0 if kind.is_float else 0, kind))
        buffer = self.registers(hint(value), kind, builder.count)
        self.emit(builder.finish([result], [buffer]), dot)
        pitch = shape[1] + 1
        if value not in self.staged:
            declared = t.Shared(f"{hint(value)}_tile", kind, shape[0] * pitch, 0)
            self.shared.append(declared)
            self.staged[value] = declared.buffer
        inside = all_of(at < size for at, size in zip(places, shape, strict=True))
        guard = all_of([self.placement.home.layout(axes).owner_predicate(Sym(t.THREAD)), inside])
        self.emit(t.SharedWrite(self.staged[value], buffer, places[0] * pitch + places[1], guard), dot)
        return self.staged[value], pitch

    def masked(self, value: SSAValue, axis: int, source: Operation) -> SSAValue:
        """``value`` in registers of its own, zero beyond the domain of ``axis``."""
        axes, spans = self.axes_of[value], spans_of(value)
        builder = self.mapping(axes, value)
        result = builder.value(value)
        valid = self.valid([axes[axis]], [spans[axis]], [builder.coordinate(axes[axis])])
        if valid == TRUE and value in self.scope.buffers:
            return self.scope.buffers[value].buffer
        if valid != TRUE:
            result = builder.select(valid, result, builder.constant(0.0, element(value)))
        buffer = self.registers(hint(value), element(value), builder.count)
        self.finish(builder, [result], [buffer], source, spans, constant=valid == TRUE)
        return buffer

    def stage_value(self, operand: Staged, dot: tile.Dot) -> SSAValue:
        """Writes a value to shared memory in the operand's layout, zero beyond its domains."""
        value = operand.value
        axes, spans = self.axes_of[value], spans_of(value)
        builder = self.mapping(axes, value)
        result = builder.value(value)
        places = [builder.coordinate(c) for c in axes]
        valid = self.valid(axes, spans, places)
        if valid != TRUE:
            result = builder.select(valid, result, builder.constant(0.0, element(value)))
        buffer = self.registers(hint(value), element(value), builder.count)
        self.finish(builder, [result], [buffer], dot, [None] * len(spans), constant=valid == TRUE)
        shared = operand.plan.shared
        if value not in self.staged:
            declared = t.Shared(f"{hint(value)}_tile", element(value), shared.size_bytes // shared.element_bytes, 0)
            self.shared.append(declared)
            self.staged[value] = declared.buffer
        k, mn = (0, 1) if operand.transposed else (1, 0)
        layout = self.placement.home.layout(axes)
        fits = all_of([places[k] < shared.extents[0], places[mn] < shared.extents[1]])
        guard = all_of([layout.owner_predicate(Sym(t.THREAD)), fits])
        self.emit(t.SharedWrite(self.staged[value], buffer, staging_offset(shared, places[k], places[mn]), guard), dot)
        self.emit(a.FenceProxyAsync())
        self.emit(t.Barrier())
        return self.staged[value]
