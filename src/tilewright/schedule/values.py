"""Values of a kernel in registers: where ops are appended, and element-wise code computed where it is needed."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod

from xdsl.ir import Block, Operation, SSAValue

from tilewright.base.dtypes import DType
from tilewright.base.expr import TRUE, Const, Expr, Sum, Sym, all_of, simplify
from tilewright.lang.axes import Span
from tilewright.layout.conversion_plan import ConversionPlan
from tilewright.layout.register import RegisterLayout
from tilewright.schedule.distribute import Distribution, floor_power
from tilewright.schedule.facts import CallFacts
from tilewright.schedule.map_builder import Buffered, ClassId, MapBuilder
from tilewright.schedule.misaligned_rows import Skew
from tilewright.schedule.placement import Placement
from tilewright.schedule.relayout import Relayout
from tilewright.tile import dialect as tile
from tilewright.tile.ops import program_index
from tilewright.tile.queries import (
    defining,
    element,
    hint,
    is_arithmetic,
    is_costly,
    is_elementwise,
    line_of,
    owner,
    spans_of,
)
from tilewright.transport import dialect as t

TID, R = Sym(t.THREAD), Sym(t.REGISTER)

_LIVE_PARTS = 8
"""Parts into which the repeats of a row are split to skip those beyond its end."""


@dataclass
class LoweringScope:
    """What is known at one point: ranges that lie inside their domain, values that live in registers."""

    full: frozenset[Span]
    buffers: dict[SSAValue, Buffered] = field(default_factory=dict[SSAValue, Buffered])


class ValueLowering:
    """The block being written, and the values that live in registers at this point of it."""

    arguments: dict[SSAValue, SSAValue]
    """The lowered kernel's arguments by those of the tile program."""

    def __init__(self, kernel: tile.Kernel, placement: Placement, facts: CallFacts):
        self.kernel = kernel
        self.placement = placement
        self.facts = facts
        self.axes_of = placement.axes_of
        self.block = Block()
        self.shared: list[t.Shared] = []
        self.spare: list[t.Shared] = []  # of the body that does not run where this one does
        self.scope = LoweringScope(frozenset())
        self.loops: int = 0
        self.conversions: dict[tuple[RegisterLayout, RegisterLayout, int], ConversionPlan] = {}
        self.staged_tiles: dict[tuple[Operation, DType, int], SSAValue] = {}
        self.partials: dict[Operation, list[SSAValue]] = {}
        self.sunk: set[Operation] = set()
        self.moves = bool(placement.foreign) or any(
            isinstance(op, Relayout | tile.Reshape | tile.Scan | tile.Sort) for op in kernel.walk()
        )
        self.scans = any(isinstance(op, tile.Scan | tile.Sort) for op in kernel.walk())
        self.order = {op: i for i, op in enumerate(kernel.walk())}
        self.stream_steps = frozenset(op.axis.data for op in kernel.walk() if isinstance(op, tile.StreamLoop))
        self.program_extents = {program_index(i): extent.expr for i, extent in enumerate(kernel.grid)}
        self.bounds = {t.THREAD: placement.bounds[t.THREAD]}

    warps_meet = True
    """A warp's threads may meet without the others: the protocol of kernels with roles knows whole warpgroups only."""
    matrices_move = False
    """Tiles move by ldmatrix and stmatrix: only the protocol of kernels with roles knows these."""
    kept_registers = 32
    """Values of up to so many elements per thread are kept for their next use; larger ones are computed again, so that
    a long row stays in registers as it was loaded."""

    # -- emission -------------------------------------------------------------------------------------------------
    def emit(self, op: t.TransportOp, source: Operation | None = None) -> t.TransportOp:
        """Append an op that stems from tile op ``source``."""
        if source is not None:
            op.at(line_of(source), source.name)
        self.block.add_op(op)
        return op

    @contextmanager
    def into(self, block: Block) -> Generator[None]:
        """Emit into another block; buffers that it computes are forgotten afterwards."""
        saved, self.block = self.block, block
        buffers = dict(self.scope.buffers)
        yield
        self.block, self.scope.buffers = saved, buffers

    @contextmanager
    def within_domain(self, spans: Iterable[Span]) -> Generator[None]:
        """The ranges ``spans`` are known to lie inside their domain."""
        full = self.scope.full
        self.scope.full = full | frozenset(spans)
        yield
        self.scope.full = full

    def registers(self, hint: str, dtype: DType, count: int) -> SSAValue:
        """A new register buffer."""
        op = t.Registers(hint, dtype, count)
        self.emit(op)
        return op.buffer

    def shared_buffer(self, hint: str, dtype: DType, count: int) -> SSAValue:
        """A shared buffer, declared at the head of the kernel; one of the other body's, if there is one like it."""
        op = t.Shared(hint, dtype, count)
        spare = next((s for s in self.spare if s.hint == op.hint and s.buffer.type == op.buffer.type), None)
        if spare is not None:
            self.spare.remove(spare)
            return spare.buffer
        self.shared.append(op)
        return op.buffer

    # -- domains --------------------------------------------------------------------------------------------------
    def inside(self, span: Span) -> bool:
        """The span never leaves its domain, whatever the arguments: not even that of the last programs."""
        if span.size == 1 and span in self.stream_steps:
            return True  # a step without an element is none; a tile of rows, or a whole axis, may have none
        reach = span.origin + span.size
        terms = dict(reach.terms) if isinstance(reach, Sum) else {reach: 1}
        last = {p: extent - 1 for p, extent in self.program_extents.items() if terms.get(Sym(p), 0) > 0}
        rest = {s for term in terms if not isinstance(term, Sym) for s in term.symbols} | span.stop.symbols
        if rest.isdisjoint(last):
            reach = reach.substitute(last)
        return simplify(reach <= span.stop, self.placement.bounds) == TRUE

    def skewed_spans(self, skew: Skew) -> set[Span | None]:
        """The ranges of all axes that are skewed."""
        return {
            span
            for value, axes in self.axes_of.items()
            for axis, span in zip(axes, spans_of(value), strict=True)
            if axis == skew.axis
        }

    def valid(
        self,
        axes: Sequence[ClassId | None],
        spans: Sequence[Span | None],
        places: Sequence[Expr],
        distribution: Distribution | None = None,
    ) -> Expr:
        """Predicate over tid and r: the element lies in the tile and in every axis' domain.

        ``places`` are the coordinates inside the tile, in a distribution that may cover more than it (home if None).
        """
        parts: list[Expr] = []
        for axis, span, at in zip(axes, spans, places, strict=True):
            if axis is None or span is None:
                continue
            digits = (distribution or self.placement.home).by_class[axis]
            skewed = self.placement.skew is not None and axis == self.placement.skew.axis
            if skewed:
                parts.append(at >= 0)
            if digits.covered > span.size:
                parts.append(at < span.size)
            if span not in self.scope.full and not self.inside(span):
                parts.append(span.origin + at < span.stop)
        return all_of(parts)

    def live(self, axes: Sequence[ClassId | None], spans: Sequence[Span | None]) -> Expr:
        """Predicate over r alone: some thread's element lies in the domain. Thread 0 has the least coordinates.

        Where tiles go through shared memory every element is moved, so that none may be left undefined.
        """
        if self.moves:
            return TRUE
        return self.live_under(self.placement.home, axes, spans)

    def live_under(
        self, distribution: Distribution, axes: Sequence[ClassId | None], spans: Sequence[Span | None]
    ) -> Expr:
        """``live`` in any distribution, judged for a few neighbouring repeats of the fastest axis at once.

        Scans and sorts combine all registers along their axis, and leave out what lies beyond its domain.
        """
        if self.scans:
            return TRUE
        held = [(c, distribution.by_class[c]) for c, _ in distribution.digits if c in axes]
        step = prod(digits.vector for _, digits in held)
        fastest = next((digits for _, digits in held if digits.repeats > 1), None)
        if fastest is not None:
            repeats = fastest.repeats
            step *= min(repeats & -repeats, floor_power(max(1, repeats // _LIVE_PARTS)))
        places = distribution.coordinates(axes, Const(0), R // step * step)
        parts: list[Expr] = []
        for axis, span, at in zip(axes, spans, places, strict=True):
            if axis is None or span is None or distribution.by_class[axis].repeats == 1:
                continue
            if span not in self.scope.full and not self.inside(span):
                parts.append(span.origin + at < span.stop)
        return all_of(parts)

    # -- element-wise values --------------------------------------------------------------------------------------
    def mapping(self, axes: tuple[ClassId | None, ...], *needed: SSAValue) -> MapBuilder:
        """A map whose results have ``axes`` in the home distribution.

        Parts of ``needed`` that have fewer elements are computed first, once instead of for every element.
        """
        count = self.placement.home.registers(axes)
        pending, seen = list(needed), set[SSAValue]()
        while pending:
            value = pending.pop()
            op = owner(value)
            if value in seen or op is None or value in self.scope.buffers or not is_elementwise(op):
                continue
            seen.add(value)
            if self.placement.home.registers(self.axes_of[value]) < count and is_arithmetic(op):
                self.materialise(value)
            else:
                pending += op.operands
        return MapBuilder(self.placement.home, axes, self.scope.buffers, self.axes_of, self.arguments)

    def finish(
        self,
        builder: MapBuilder,
        results: Sequence[SSAValue],
        outputs: Sequence[SSAValue],
        source: Operation,
        spans: Sequence[Span | None],
        *,
        constant: bool = True,
    ) -> None:
        """Emit a map for ``source``; costly values on its way that are needed again stay in registers.

        ``spans`` are the ranges of the results' axes: registers beyond their domains in every thread are skipped.
        ``constant``: the outputs are not changed later, so that such a value may share one of them.
        """
        results, outputs = list(results), list(outputs)
        kept: dict[SSAValue, Buffered] = {}
        for value in builder.computed:
            if not is_costly(value.owner) or self.axes_of[value] != builder.axes or builder.count > self.kept_registers:
                continue
            if not self.needed_after(value, source):
                continue
            scalar = builder.scalar(value)
            if constant and scalar in results:
                buffer = outputs[results.index(scalar)]
            else:
                buffer = self.registers(hint(value), element(value), builder.count)
                results.append(scalar)
                outputs.append(buffer)
            kept[value] = Buffered(buffer, builder.axes)
        self.emit(builder.finish(results, outputs, self.live(builder.axes, spans)), source)
        self.scope.buffers |= kept

    def needed_after(self, value: SSAValue, source: Operation) -> bool:
        """Some use of ``value``, direct or through element-wise ops, comes after ``source``."""
        for use in value.uses:
            user = use.operation
            if is_elementwise(user):
                if user.results[0] not in self.scope.buffers and self.needed_after(user.results[0], source):
                    return True
            elif self.order[user] > self.order[source]:
                return True
        return False

    def materialise(self, value: SSAValue, source: Operation | None = None) -> Buffered:
        """``value`` in registers; computed now unless it already is."""
        if value in self.scope.buffers:
            return self.scope.buffers[value]
        axes = self.axes_of[value]
        seen = self.viewed(value)
        if seen is not None:
            self.scope.buffers[value] = seen
            return seen
        builder = self.mapping(axes, value)
        result = builder.value(value)
        buffer = self.registers(hint(value), element(value), builder.count)
        self.finish(builder, [result], [buffer], source or defining(value), spans_of(value))
        self.scope.buffers[value] = Buffered(buffer, axes)
        return self.scope.buffers[value]

    def viewed(self, value: SSAValue) -> Buffered | None:
        """The registers of what ``value`` is only another shape of, where they are the same ones.

        Not those of a fragment, which may be written while the view is still in use.
        """
        source, axes = value, self.axes_of[value]
        while isinstance(op := owner(source), tile.Transpose | tile.Expand | tile.Broadcast):
            source = op.operands[0]
        held = self.scope.buffers.get(source)
        if held is None or source == value or isinstance(owner(source), tile.FragmentRead) or held.window:
            return None
        home = self.placement.home
        same = home.registers(held.axes) == home.registers(axes)
        return Buffered(held.buffer, axes) if same and home.register_of(held.axes, axes, R) == R else None
