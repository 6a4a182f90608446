"""Register-staged operands, which threads write to shared memory themselves, and products without wgmma."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeAlias

from xdsl.ir import Block, Operation, Region, SSAValue

from tilewright.base.dtypes import DType
from tilewright.base.expr import TRUE, Const, Sym, all_of, expr, minimum
from tilewright.hw.target.sm_80 import MMA_ACCUMULATOR
from tilewright.layout.banks import WaveAccess, instruction
from tilewright.layout.register import LANES
from tilewright.layout.shared import SharedTile
from tilewright.layout.staging import SAMPLE, TARGET, conflict_free_tile
from tilewright.schedule.distribute import Distribution
from tilewright.schedule.facts import CallFacts
from tilewright.schedule.hopper.configuration import RoleContext, ScheduleConfiguration
from tilewright.schedule.hopper.operands import DotPlan, StagedOperand
from tilewright.schedule.hopper.products import staging_offset
from tilewright.schedule.map_builder import Buffered, ClassId
from tilewright.schedule.placement import Placement
from tilewright.tile import dialect as tile
from tilewright.tile.queries import element, hint, owner, spans_of
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t


class RegisterStagedOperands(RoleContext):
    """Stages values; ``staged`` are the shared buffers of those written before, which are used again; ``lined`` those
    of ordinary products, by how they lie."""

    def __init__(
        self, kernel: tile.Kernel, placement: Placement, facts: CallFacts, configuration: ScheduleConfiguration
    ):
        super().__init__(kernel, placement, facts, configuration)
        self.staged: dict[SSAValue, SSAValue] = {}
        self.lined: dict[tuple[SSAValue, SharedTile], SSAValue] = {}

    def ordinary_product(self, plan: DotPlan, buffer: SSAValue, *, fresh: bool) -> None:
        """A product without wgmma. Both operands go through shared memory: unchanged for mma where it supports the
        product, else converted to the accumulator's type for one multiply-add per element and step."""
        dot, home = plan.dot, self.placement.home
        axes, kind = self.axes_of[dot.result], element(dot.result)
        depth = tile.tile_type(dot.a).shape[1]
        blocks = mma_blocks(dot, home, axes)
        if blocks:
            left, right = (
                self.widened(v, element(v), dot, tile_of_fragments(v, i)) for i, v in enumerate((dot.a, dot.b))
            )
        else:
            left, right = (
                self.widened(v, kind, dot, self.padded(self.axes_of[v], tile.tile_type(v).shape, kind, axes[i], i))
                for i, v in enumerate((dot.a, dot.b))
            )
        self.emit(t.Barrier())
        if fresh:
            zero = self.mapping(axes)
            self.emit(zero.finish([zero.constant(0.0 if kind.is_float else 0, kind)], [buffer]), dot)
        if blocks:
            self.mma_steps(dot, blocks, buffer, (left, right))
            self.emit(t.Barrier())
            return
        loop, step = Block(), f"d{self.order[dot]}"
        with self.into(loop):
            parts: list[SSAValue] = []
            for side, (shared, held) in enumerate((left, right)):
                cls = axes[side]
                assert cls is not None
                own = (cls,)
                part = self.registers("ab"[side], kind, home.registers(own))
                (at,) = home.layout(own).coordinates(Sym(t.THREAD), Sym(t.REGISTER))
                size = tile.tile_type(dot.result).shape[side]
                if home.by_class[own[0]].covered > size:  # registers beyond the tile repeat its last row or column
                    at = minimum(at, size - 1)
                place = (at, Sym(step)) if side == 0 else (Sym(step), at)
                offset = held.offset_expr(*place, unit_bytes=kind.bytes)
                self.emit(t.SharedRead(shared, part, offset, TRUE), dot)
                parts.append(part)
            builder = self.mapping(axes)
            a_value, b_value = (builder.read(Buffered(part, (axes[side],)), kind) for side, part in enumerate(parts))
            total = builder.read(Buffered(buffer, axes), kind)
            self.emit(builder.finish([builder.multiply_add(a_value, b_value, total)], [buffer]), dot)
        self.emit(t.For(step, Const(0), expr(depth), expr(1), Region(loop)), dot)
        self.emit(t.Barrier())

    def mma_steps(
        self,
        dot: tile.Dot,
        blocks: Sequence[MmaBlock],
        buffer: SSAValue,
        operands: tuple[tuple[SSAValue, SharedTile], tuple[SSAValue, SharedTile]],
    ) -> None:
        """For every 16 elements of k: fragments of both operands, and an mma for each block of the accumulator."""
        home, axes, kind = self.placement.home, self.axes_of[dot.result], element(dot.a)
        loop, step = Block(), f"d{self.order[dot]}"
        thread, register = Sym(t.THREAD), Sym(t.REGISTER)
        with self.into(loop):
            parts: list[SSAValue] = []
            for side, (shared, held) in enumerate(operands):
                cls = axes[side]
                assert cls is not None
                layout, half = home.layout((cls,)), register // 4 if side else register // 8
                if side == 0:
                    (at,) = layout.coordinates(thread, half * 2 + register // 2 % 2)
                else:  # lanes hold columns of B as they hold rows of A
                    (at,) = layout.coordinates(thread // LANES * LANES, half * 2)
                    at = at + thread // 4 % 8
                size = tile.tile_type(dot.result).shape[side]
                if home.by_class[cls].covered > size:  # registers beyond the tile repeat its last row or column
                    at = minimum(at, size - 1)
                k = Sym(step) * MMA_K + thread % 4 * 2 + register % 2 + register // (2 if side else 4) % 2 * 8
                part = self.registers("ab"[side], kind, home.registers((cls,)) * (2 if side else 4))
                offset = held.offset_expr(*((k, at) if side else (at, k)), unit_bytes=kind.bytes)
                self.emit(t.SharedRead(shared, part, offset, TRUE, vector=2), dot)
                parts.append(part)
            for block in blocks:
                first, a_register, b_register = block
                self.emit(a.Mma(buffer, *parts, first=first, a_register=a_register, b_register=b_register), dot)
        depth = tile.tile_type(dot.a).shape[1]
        self.emit(t.For(step, Const(0), expr(depth // MMA_K), Const(1), Region(loop)), dot)

    def widened(self, value: SSAValue, kind: DType, dot: tile.Dot, held: SharedTile) -> tuple[SSAValue, SharedTile]:
        """Writes a value to shared memory as ``held`` says, zero beyond its domains; returns the buffer, too."""
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
        if (value, held) not in self.lined:
            declared = t.Shared(f"{hint(value)}_tile", kind, held.size_bytes // kind.bytes, 0)
            self.shared.append(declared)
            self.lined[value, held] = declared.buffer
        inside = all_of(at < size for at, size in zip(places, shape, strict=True))
        guard = all_of([self.placement.home.layout(axes).owner_predicate(Sym(t.THREAD)), inside])
        offset = held.offset_expr(*places, unit_bytes=kind.bytes)
        self.emit(t.SharedWrite(self.lined[value, held], buffer, offset, guard), dot)
        return self.lined[value, held], held

    def padded(
        self, axes: Sequence[ClassId | None], shape: tuple[int, ...], kind: DType, read: ClassId | None, along: int
    ) -> SharedTile:
        """Rows padded so that the first warp's stores, and its loads along dimension ``along`` with the distribution of
        class ``read``, have the fewest bank conflicts."""
        home = self.placement.home
        rows, columns = shape
        plain = SharedTile.plain(rows, columns, kind.bytes)

        def access(way: str, places: Iterable[tuple[int, ...]]) -> WaveAccess:
            inside = ([min(x, n - 1) for x, n in zip(place, shape, strict=True)] for place in places)
            return WaveAccess(
                instruction(TARGET, f"{way}.shared.b{8 * kind.bytes}"), tuple(plain.offset(*p) for p in inside)
            )

        whole, line = home.layout(axes), home.layout((read,))
        registers = range(0, whole.registers, -(-whole.registers // SAMPLE))
        stores = [access("st", (whole.coordinate(lane, r) for lane in range(LANES))) for r in registers]
        lines = ((line.coordinate(lane, 0)[0], 0)[:: -1 if along else 1] for lane in range(LANES))
        return conflict_free_tile(rows, columns, kind.bytes, [*stores, access("ld", lines)], padded=True)

    def masked(self, value: SSAValue, axis: int, source: Operation) -> SSAValue:
        """``value`` in registers of its own, zero beyond the domain of ``axis``."""
        axes, spans = self.axes_of[value], spans_of(value)
        builder = self.mapping(axes, value)
        valid = self.valid([axes[axis]], [spans[axis]], [builder.coordinate(axes[axis])])
        if valid == TRUE and value in self.scope.buffers:
            return self.scope.buffers[value].buffer
        cast = owner(value)
        if valid != TRUE and isinstance(cast, tile.Cast) and value not in self.scope.buffers and _rounds(cast):
            # zeros before it is rounded: two elements are rounded and packed by one instruction
            result = builder.select(valid, builder.value(cast.x), builder.constant(0.0, element(cast.x)))
            result = builder.cast(result, element(value))
        else:
            result = builder.value(value)
            if valid != TRUE:
                result = builder.select(valid, result, builder.constant(0.0, element(value)))
        buffer = self.registers(hint(value), element(value), builder.count)
        self.finish(builder, [result], [buffer], source, spans, constant=valid == TRUE)
        return buffer

    def stage_value(self, operand: StagedOperand, dot: tile.Dot) -> SSAValue:
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


MMA_K = 16
"""Elements of k that one mma multiplies."""

MmaBlock: TypeAlias = tuple[int, int, int]
"""First registers of one mma in the accumulator and in the fragments of A and B."""


def has_mma(dot: tile.Dot) -> bool:
    """Whether mma.sync supports the product's types and contracted extent."""
    kinds = {element(dot.a), element(dot.b)}
    if len(kinds) > 1 or kinds.pop().name not in ("f16", "bf16") or element(dot.result).name != "f32":
        return False
    return dot.promoted is None and tile.tile_type(dot.a).shape[1] % MMA_K == 0


def mma_blocks(dot: tile.Dot, home: Distribution, axes: Sequence[ClassId | None]) -> tuple[MmaBlock, ...]:
    """The mma instructions of one step of k that cover all accumulators; none where mma can't compute the product."""
    if not has_mma(dot) or None in axes:
        return ()
    whole, rows, columns = home.layout(axes), home.layout(axes[:1]), home.layout(axes[1:])
    if whole.registers % 4 or rows.registers % 2 or columns.registers % 2:
        return ()
    row = {rows.coordinate(0, r)[0]: r for r in range(rows.registers)}
    column = {columns.coordinate(0, r)[0]: r for r in range(columns.registers)}
    atom = MMA_ACCUMULATOR
    found: list[MmaBlock] = []
    for first in range(0, whole.registers, 4):
        corner = whole.coordinate(0, first)
        lanes = [(1 << i, first, basis) for i, basis in enumerate(atom.lane)]
        moved = [*lanes, *((0, first + (1 << i), basis) for i, basis in enumerate(atom.register))]
        for thread, register, basis in moved:
            if whole.coordinate(thread, register) != tuple(x + b for x, b in zip(corner, basis, strict=True)):
                return ()
        at, beside = row[corner[0]], column[corner[1]]
        if at % 2 or beside % 2 or row.get(corner[0] + 8) != at + 1:
            return ()
        found.append((first, 4 * at, 2 * beside))
    return tuple(found)


def tile_of_fragments(value: SSAValue, side: int) -> SharedTile:
    """Rows of A, or columns of B, one after another with k contiguous; 16 bytes behind each part the banks of 8."""
    shape = tile.tile_type(value).shape
    kind = element(value)
    return replace(SharedTile.padded(shape[side], shape[1 - side], kind.bytes, 16), transposed=bool(side))


def _rounds(cast: tile.Cast) -> bool:
    """Whether a cast is between floats: zero is the same in both."""
    return element(cast.x).is_float and element(cast.result).is_float
