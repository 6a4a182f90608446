"""Loads, stores and layout conversions: the elements that a thread moves, and their guards."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from xdsl.ir import Operation, SSAValue

from tilewright.base.expr import TRUE, Expr, Sym, all_of
from tilewright.diag import fail
from tilewright.lang.axes import Span
from tilewright.layout.conversion import conversion_plan
from tilewright.layout.register import RegisterLayout
from tilewright.layout.regroup import regrouped
from tilewright.schedule.distribute import Distribution
from tilewright.schedule.indirect import GatheredAddresses
from tilewright.schedule.layout_conversions import ConversionContext, convert
from tilewright.schedule.map_builder import Buffered, ClassId
from tilewright.schedule.misaligned_rows import SYMBOL
from tilewright.schedule.placement import aligned
from tilewright.schedule.relayout import Relayout
from tilewright.schedule.values import ValueLowering
from tilewright.tile import dialect as tile
from tilewright.tile.queries import (
    Access,
    Indirect,
    coords_of,
    element,
    hint,
    loaded_tests,
    owner,
    spans_of,
)
from tilewright.transport import dialect as t

TID, R = Sym(t.THREAD), Sym(t.REGISTER)


class MoveLowering(ValueLowering):
    """Lowers ops that move elements between registers and memory."""

    def access(self, op: Access, value: SSAValue, distribution: Distribution) -> tuple[list[Expr], Expr, int, int]:
        """Coordinates, guard, vector width and its axis for an access of ``value`` under ``distribution``."""
        axes = self.axes_of[value]
        layout = distribution.layout(axes)
        coords, guard = self.located(op, axes, distribution.coordinates(axes, TID, R), distribution)
        spans = [c for c in coords_of(op) if isinstance(c, Span)]
        tensor = tile.tensor_type(op.tensor)
        facts = self.facts.of(tensor.tensor_name.data)
        width, axis = 1, facts.unit_axis or 0
        unit = facts.unit_axis
        if unit is not None and isinstance(coords_of(op)[unit], Span):
            dim = sum(isinstance(c, Span) for c in coords_of(op)[:unit])
            if axes[dim] is not None:
                span = spans[dim]
                width = min(self.vector(op, axes[dim], span), layout.contiguous_registers(dim))
        return coords, guard, width, axis

    def located(
        self,
        op: Access,
        axes: Sequence[ClassId | None],
        places: Sequence[Expr],
        distribution: Distribution | None = None,
    ) -> tuple[list[Expr], Expr]:
        """Coordinates of the elements at ``places`` of the accessed tile, and the guard under which they exist."""
        kept = iter(places)
        coords = [c.origin + next(kept) if isinstance(c, Span) else c for c in coords_of(op)]
        inside = self.valid(axes, [c for c in coords_of(op) if isinstance(c, Span)], places, distribution)
        return coords, all_of([inside, *loaded_tests(op)])

    def vector(self, op: Access, axis: ClassId | None, span: Span) -> int:
        """Elements of the widest aligned access along ``axis``, along which the tensor is contiguous."""
        skew = self.placement.skew
        if skew is not None and axis == skew.axis:
            return skew.vector if op in skew.accesses or op in skew.shifted else 1
        tensor = tile.tensor_type(op.tensor)
        width = self.facts.of(tensor.tensor_name.data).vector(tensor.element)
        return aligned(width, span.origin)

    def load(self, op: tile.Load) -> None:
        value = op.results[0]
        distribution = self.placement.distribution_of(op)
        coords, guard, width, axis = self.access(op, value, distribution)
        axes = self.axes_of[value]
        buffer = self.registers(hint(value), element(value), distribution.registers(axes))
        live = self.live_under(distribution, axes, spans_of(value))
        skew = self.placement.skew
        shift = Sym(SYMBOL) if width > 1 and skew is not None and op in skew.shifted else None
        tensor = self.arguments[op.tensor]
        self.emit(t.Load(tensor, buffer, coords, guard, shift=shift, vector=width, axis=axis, live=live), op)
        buffered = Buffered(buffer, axes)
        if distribution != self.placement.home:
            buffered = self.convert(buffered, axes, distribution, self.placement.home, value, op)
        self.scope.buffers[value] = buffered

    def store(self, op: tile.Store | tile.AtomicReduce) -> None:
        value = op.value
        distribution = self.placement.distribution_of(op)
        axes = self.axes_of[value]
        source = self.materialise(value, op)
        if distribution != self.placement.home:
            source = self.convert(source, axes, self.placement.home, distribution, value, op)
        coords, guard, width, axis = self.access(op, value, distribution)
        guard = all_of([distribution.layout(axes).owner_predicate(TID), guard])
        if self.warps_meet and self.read_by_others(op, distribution.layout(axes)):
            self.emit(t.Barrier(), op)
        kind = t.Store if isinstance(op, tile.Store) else partial(t.AtomicReduce, op.fn.data)
        self.emit(kind(self.arguments[op.tensor], source.buffer, coords, guard, vector=width, axis=axis), op)

    def gather(self, op: tile.Gather) -> None:
        value = op.result
        at = GatheredAddresses(self, op)
        buffer = self.registers(hint(value), element(value), self.placement.home.registers(self.axes_of[value]))
        live = self.live(self.axes_of[value], spans_of(value))
        self.emit(at.access(t.Load, buffer, live=live), op)
        self.scope.buffers[value] = Buffered(buffer, self.axes_of[value])

    def scatter(self, op: tile.Scatter | tile.ScatterReduce) -> None:
        source = self.materialise(op.value, op)
        at = GatheredAddresses(self, op)
        layout = self.placement.home.layout(self.axes_of[op.value])
        if self.warps_meet and self.read_by_others(op, layout):
            self.emit(t.Barrier(), op)
        kind = t.Store if isinstance(op, tile.Scatter) else partial(t.AtomicReduce, op.fn.data)
        self.emit(at.access(kind, source.buffer, layout.owner_predicate(TID)), op)

    def read_by_others(self, op: Access | Indirect, layout: RegisterLayout) -> bool:
        """Whether threads other than the one that stores an element in ``layout`` have loaded it, and may not have
        completed their loads."""
        loads = (use.operation for use in op.tensor.uses)
        layouts = [
            self.placement.distribution_of(load).layout(self.axes_of[load.result])
            for load in loads
            if isinstance(load, tile.Load | tile.Gather)
        ]
        return any(other != layout or other.owner_predicate(TID) != TRUE for other in layouts)

    def relayout(self, op: Relayout) -> None:
        """Converts a value to the classes of its second use."""
        home, source = self.placement.home, self.materialise(op.x, op)
        self.scope.buffers[op.result] = self.convert(source, self.axes_of[op.result], home, home, op.x, op)

    def reshape(self, op: tile.Reshape) -> None:
        """Reuses the registers where the axes' distributions are parts of each other; else converts the layout."""
        home, source = self.placement.home, self.materialise(op.x, op)
        before, after = ([axis.size for axis in tile.tile_type(v).axes_tuple] for v in (op.x, op.result))
        old = regrouped(home.layout(source.axes), before, op.groups, after)
        if old is None:
            fail(
                "SCH001",
                found=f"a tile of {before} reshaped to {after}, which the schedule spreads over more than it has",
                required="extents that products cover exactly behind the first of the axes that are merged",
                help="use tiles of multiples of 64 x 8 elements",
            )
        moved = self.converted(source.buffer, old, home.layout(self.axes_of[op.result]), op.x, op)
        if moved is source.buffer and isinstance(owner(op.x), tile.FragmentRead):  # may be written while this is used
            moved = self.duplicate(source, op)
        self.scope.buffers[op.result] = Buffered(moved, self.axes_of[op.result])

    def duplicate(self, source: Buffered, op: tile.Reshape) -> SSAValue:
        """Copies a buffer to registers of its own."""
        copy = self.mapping(source.axes)
        fresh = self.registers(hint(op.x), element(op.x), copy.count)
        self.finish(copy, [copy.read(source, element(op.x))], [fresh], op, spans_of(op.x))
        return fresh

    def convert(
        self,
        source: Buffered,
        axes: tuple[ClassId | None, ...],
        old: Distribution,
        new: Distribution,
        value: SSAValue,
        op: Operation,
    ) -> Buffered:
        """The same elements as ``axes`` in another distribution."""
        before, after = old.layout(source.axes), new.layout(axes)
        return Buffered(self.converted(source.buffer, before, after, value, op), axes)

    def converted(
        self, buffer: SSAValue, before: RegisterLayout, after: RegisterLayout, value: SSAValue, op: Operation
    ) -> SSAValue:
        """The elements of ``value`` in another layout."""
        dtype = t.registers_of(buffer).dtype.dtype
        key = (before, after, dtype.bytes)
        if key not in self.conversions:
            self.conversions[key] = conversion_plan(
                before, after, dtype.bytes, ragged=True, matrices=self.matrices_move
            )

        def shared(count: int) -> SSAValue:
            # bodies for the interior and the edge are never both run
            if (op, dtype, count) not in self.staged_tiles:
                self.staged_tiles[op, dtype, count] = self.shared_buffer(f"{hint(value)}_tile", dtype, count)
            return self.staged_tiles[op, dtype, count]

        context = ConversionContext(
            emit=lambda emitted: self.emit(emitted, op),
            registers=lambda count: self.registers(hint(value), dtype, count),
            shared=shared,
            again=bool(self.loops) or self.placement.persistent,
            warps=self.warps_meet,
        )
        return convert(self.conversions[key], buffer, after.registers, dtype, context)
