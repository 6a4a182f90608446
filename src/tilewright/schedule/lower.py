"""Tile IR to transport IR under a plain schedule: every program is one CTA's work, synchronous copies, CTA barriers.

Element-wise values are not computed where they are written but where they are needed (a reduction, a store, a write to
a fragment), fused into one map over the buffers they come from; what has several such uses is kept in registers.

The body is lowered twice: once for programs whose ranges lie wholly inside their domains, without guards, and once for
those at an edge. Inside the first, a stream's last, partial step is split off the same way.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod

from xdsl.ir import Block, Operation, Region, SSAValue

from tilewright.base.dtypes import DType
from tilewright.base.expr import TRUE, Const, Expr, Sum, Sym, all_of, expr, minimum, simplify
from tilewright.lang.axes import Span
from tilewright.layout.conversion import conversion_plan
from tilewright.layout.plan import ConversionPlan
from tilewright.layout.register import RegisterLayout
from tilewright.schedule.distribute import Distribution, floor_power
from tilewright.schedule.facts import Facts
from tilewright.schedule.mapping import Buffered, ClassId, MapBuilder
from tilewright.schedule.plan import Placement
from tilewright.schedule.reduce import Reduction, accumulator
from tilewright.schedule.relayout import Relayout
from tilewright.schedule.skew import SYMBOL, Skew
from tilewright.schedule.staging import Room, convert
from tilewright.schedule.tiles import Access, coords_of, element, place, spans_of
from tilewright.tile import dialect as tile
from tilewright.transport import dialect as t

TID, R = Sym(t.THREAD), Sym(t.REGISTER)


@dataclass
class Scope:
    """What is known at one point: ranges that lie inside their domain, values that live in registers."""

    full: frozenset[Span]
    buffers: dict[SSAValue, Buffered] = field(default_factory=dict[SSAValue, Buffered])


class Lowering:
    """Lowers one tile kernel; ``run`` returns the transport kernel."""

    def __init__(self, kernel: tile.Kernel, placement: Placement, facts: Facts):
        self.kernel = kernel
        self.placement = placement
        self.facts = facts
        self.axes_of = placement.axes_of
        self.block = Block()
        self.shared: list[t.Shared] = []
        self.spare: list[t.Shared] = []  # of the body that does not run where this one does
        self.scope = Scope(frozenset())
        self.loops = 0
        self.conversions: dict[tuple[RegisterLayout, RegisterLayout, int], ConversionPlan] = {}
        self.staged_tiles: dict[tuple[Operation, DType, int], SSAValue] = {}
        self.partials: dict[Operation, list[SSAValue]] = {}
        self.sunk: set[Operation] = set()
        self.moves = bool(placement.foreign) or any(isinstance(op, Relayout) for op in kernel.walk())
        self.order = {op: i for i, op in enumerate(kernel.walk())}
        self.program_extents = {f"p{i}": extent.expr for i, extent in enumerate(kernel.grid)}
        self.bounds = {t.THREAD: (0, placement.home.threads - 1)}

    warps_meet = True
    """A warp's threads may meet without the others: the protocol of kernels with roles knows whole warpgroups only."""
    kept_registers = 32
    """Values of up to so many elements per thread are kept for their next use; larger ones are computed again, so that
    a long row stays in registers as it was loaded."""

    # -- emission -------------------------------------------------------------------------------------------------
    def emit(self, op: t.TransportOp, source: Operation | None = None) -> t.TransportOp:
        """Append an op that stems from tile op ``source``."""
        if source is not None:
            op.at(place(source), source.name)
        self.block.add_op(op)
        return op

    @contextmanager
    def into(self, block: Block) -> Generator[None]:
        """Emit into another block; buffers that it computes are forgotten afterwards."""
        saved, self.block = self.block, block
        buffers = dict(self.scope.buffers)
        yield
        self.block, self.scope.buffers = saved, buffers

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

    # -- kernel ---------------------------------------------------------------------------------------------------
    def run(self) -> t.Kernel:
        source, home = self.kernel, self.placement.home
        names = [n.data for n in source.arg_names]
        result = t.Kernel(
            source.sym_name.data,
            names,
            [a.type for a in source.body.block.args],
            threads=home.threads,
            min_ctas=self.placement.min_ctas,
            index_bits=self.facts.index_bits,
            numerics=source.numerics.data.value,
            assumptions=self.placement.assumptions,
        )
        self.arguments: dict[SSAValue, SSAValue] = dict(
            zip(source.body.block.args, result.body.block.args, strict=True)
        )
        grid = [g.expr for g in source.grid]
        body = Block()
        with self.into(body):
            if self.placement.skew is not None:
                self.emit(t.Let(SYMBOL, self.placement.skew.distance))
            self.bodies()
        programs = t.Programs([f"p{i}" for i in range(len(grid))], grid, self.placement.persistent, Region(body))
        result.body.block.add_ops([*self.shared, programs])
        return result

    def bodies(self) -> None:
        """The interior body, and beside it the guarded one for programs at an edge."""
        spans = [s for s in self.placement.program_spans if not self.inside(s)]
        if self.placement.skew is not None:  # its vectors are guarded at both ends in any body
            spans = [s for s in spans if s not in self.skewed_spans(self.placement.skew)]
        condition = all_of(s.origin + s.size <= s.stop for s in spans)
        if condition == TRUE or not spans:
            self.scope.full |= frozenset(spans)
            self.body(self.kernel.body.block, split=True)
            return
        then, otherwise = Block(), Block()
        outer = self.scope
        self.scope = Scope(outer.full | frozenset(spans), dict(outer.buffers))
        shared = len(self.shared)
        with self.into(then):
            self.body(self.kernel.body.block, split=True)
        self.spare = self.shared[shared:]
        self.scope = Scope(outer.full, dict(outer.buffers))
        with self.into(otherwise):
            self.body(self.kernel.body.block, split=False)
        self.spare = []
        self.scope = outer
        self.emit(t.If(condition, Region(then), Region(otherwise)))

    def skewed_spans(self, skew: Skew) -> set[Span | None]:
        """The ranges of all axes that are skewed."""
        return {
            span
            for value, axes in self.axes_of.items()
            for axis, span in zip(axes, spans_of(value), strict=True)
            if axis == skew.axis
        }

    def inside(self, span: Span) -> bool:
        """The span never leaves its domain, whatever the arguments: not even that of the last programs."""
        reach = span.origin + span.size
        terms = dict(reach.terms) if isinstance(reach, Sum) else {reach: 1}
        last = {p: extent - 1 for p, extent in self.program_extents.items() if terms.get(Sym(p), 0) > 0}
        rest = {s for term in terms if not isinstance(term, Sym) for s in term.symbols} | span.stop.symbols
        if rest.isdisjoint(last):
            reach = reach.substitute(last)
        return simplify(reach <= span.stop, self.placement.bounds) == TRUE

    def body(self, block: Block, *, split: bool) -> None:
        for op in block.ops:
            self.op(op, split=split)

    def op(self, op: Operation, *, split: bool) -> None:
        match op:
            case tile.Load():
                self.load(op)
            case tile.Store() | tile.ReduceAdd():
                self.store(op)
            case tile.Fragment():
                self.fragment(op)
            case tile.Read():
                self.scope.buffers[op.results[0]] = self.scope.buffers[op.operands[0]]
            case tile.Write():
                if op not in self.sunk:
                    self.write(op)
            case tile.Reduce() if op in self.partials:
                Reduction(self, op).accumulate(self.partials[op])
            case tile.Reduce():
                Reduction(self, op).lower()
            case tile.Stream():
                self.stream(op, split=split)
            case Relayout():
                self.relayout(op)
            case tile.Print():
                self.print(op)
            case _:
                pass  # element-wise: computed where it is needed

    # -- element-wise values --------------------------------------------------------------------------------------
    def mapping(self, axes: tuple[ClassId | None, ...], *needed: SSAValue) -> MapBuilder:
        """A map whose results have ``axes`` in the home distribution.

        Parts of ``needed`` that have fewer elements are computed first, once instead of for every element.
        """
        count = self.placement.home.registers(axes)
        pending = list(needed)
        while pending:
            value = pending.pop()
            op = owner(value)
            if op is None or value in self.scope.buffers or not is_elementwise(op):
                continue
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
        if held is None or source == value or isinstance(owner(source), tile.Read) or held.window:
            return None
        home = self.placement.home
        same = home.registers(held.axes) == home.registers(axes)
        return Buffered(held.buffer, axes) if same and home.register_of(held.axes, axes, R) == R else None

    # -- memory ---------------------------------------------------------------------------------------------------
    def valid(self, axes: Sequence[ClassId | None], spans: Sequence[Span | None], places: Sequence[Expr]) -> Expr:
        """Predicate over tid and r: the element lies in the tile and in every axis' domain.

        ``places`` are the coordinates inside the tile.
        """
        parts: list[Expr] = []
        for axis, span, at in zip(axes, spans, places, strict=True):
            if axis is None or span is None:
                continue
            digits = self.placement.digits(axis)
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
        """``live`` in any distribution, judged for a few neighbouring repeats of the fastest axis at once."""
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

    def access(self, op: Access, value: SSAValue, distribution: Distribution) -> tuple[list[Expr], Expr, int, int]:
        """Coordinates, guard, vector width and its axis for an access of ``value`` under ``distribution``."""
        axes = self.axes_of[value]
        layout = distribution.layout(axes)
        places = distribution.coordinates(axes, TID, R)
        spans = [c for c in coords_of(op) if isinstance(c, Span)]
        kept = iter(zip(spans, places, strict=True))
        coords: list[Expr] = []
        for coord in coords_of(op):
            if isinstance(coord, Span):
                span, place = next(kept)
                coords.append(span.origin + place)
            else:
                coords.append(coord)
        guard = self.valid(axes, spans, places)
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

    def vector(self, op: Access, axis: ClassId | None, span: Span) -> int:
        """Elements of the widest aligned access along ``axis``, along which the tensor is contiguous."""
        skew = self.placement.skew
        if skew is not None and axis == skew.axis:
            return skew.vector if op in skew.accesses else 1
        tensor = tile.tensor_type(op.tensor)
        width = self.facts.of(tensor.tensor_name.data).vector(tensor.element)
        while width > 1 and self.placement.divisor(span.origin) % width:
            width //= 2
        return width

    def load(self, op: tile.Load) -> None:
        value = op.results[0]
        distribution = self.placement.distribution_of(op)
        coords, guard, width, axis = self.access(op, value, distribution)
        axes = self.axes_of[value]
        buffer = self.registers(hint(value), element(value), distribution.registers(axes))
        live = self.live_under(distribution, axes, spans_of(value))
        self.emit(t.Load(self.arguments[op.tensor], buffer, coords, guard, vector=width, axis=axis, live=live), op)
        buffered = Buffered(buffer, axes)
        if distribution != self.placement.home:
            buffered = self.convert(buffered, axes, distribution, self.placement.home, value, op)
        self.scope.buffers[value] = buffered

    def store(self, op: tile.Store | tile.ReduceAdd) -> None:
        value = op.value
        distribution = self.placement.distribution_of(op)
        axes = self.axes_of[value]
        source = self.materialise(value, op)
        if distribution != self.placement.home:
            source = self.convert(source, axes, self.placement.home, distribution, value, op)
        coords, guard, width, axis = self.access(op, value, distribution)
        guard = all_of([distribution.layout(axes).owner_predicate(TID), guard])
        kind = t.Store if isinstance(op, tile.Store) else t.ReduceAdd
        self.emit(kind(self.arguments[op.tensor], source.buffer, coords, guard, vector=width, axis=axis), op)

    def relayout(self, op: Relayout) -> None:
        """A value in the classes of its second use."""
        home, source = self.placement.home, self.materialise(op.x, op)
        self.scope.buffers[op.result] = self.convert(source, self.axes_of[op.result], home, home, op.x, op)

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
        dtype = t.registers_of(source.buffer).dtype.dtype
        before, after = old.layout(source.axes), new.layout(axes)
        key = (before, after, dtype.bytes)
        if key not in self.conversions:
            self.conversions[key] = conversion_plan(before, after, dtype.bytes, ragged=True)

        def shared(count: int) -> SSAValue:
            # bodies for the interior and the edge are never both run
            if (op, dtype, count) not in self.staged_tiles:
                self.staged_tiles[op, dtype, count] = self.shared_buffer(f"{hint(value)}_tile", dtype, count)
            return self.staged_tiles[op, dtype, count]

        room = Room(
            emit=lambda emitted: self.emit(emitted, op),
            registers=lambda count: self.registers(hint(value), dtype, count),
            shared=shared,
            again=bool(self.loops) or self.placement.persistent,
            warps=self.warps_meet,
        )
        moved = convert(self.conversions[key], source.buffer, after.registers, dtype, room)
        return Buffered(moved, axes)

    # -- fragments and streams ------------------------------------------------------------------------------------
    def fragment(self, op: tile.Fragment) -> None:
        result = op.results[0]
        axes = self.axes_of[result]
        builder = self.mapping(axes, op.init)
        value = builder.value(op.init)
        buffer = self.registers(hint(result), element(result), builder.count)
        self.finish(builder, [value], [buffer], op, spans_of(result), constant=False)
        self.scope.buffers[result] = Buffered(buffer, axes)

    def write(self, op: tile.Write) -> None:
        fragment, value = op.frag, op.value
        target = self.scope.buffers[fragment]
        self.snapshot([fragment], op)
        builder = self.mapping(target.axes, value)
        result = builder.value(value)
        in_place = all(
            read == R for source, read in zip(builder.inputs, builder.reads, strict=True) if source == target.buffer
        )
        if in_place:
            self.finish(builder, [result], [target.buffer], op, spans_of(fragment), constant=False)
            return
        fresh = self.registers(hint(fragment), element(fragment), builder.count)
        self.finish(builder, [result], [fresh], op, spans_of(fragment))
        copy = self.mapping(target.axes)
        value = copy.read(Buffered(fresh, target.axes), element(fragment))
        self.finish(copy, [value], [target.buffer], op, spans_of(fragment), constant=False)

    def snapshot(self, fragments: Collection[SSAValue], op: Operation) -> None:
        """Before ``op`` changes ``fragments``: values read from them that are used later get their own registers."""
        inner = set(op.walk()) - {op}
        for fragment in sorted(fragments, key=lambda f: self.order[defining(f)]):
            buffer = self.scope.buffers[fragment]
            for use in list(fragment.uses):
                read = use.operation
                if not isinstance(read, tile.Read) or read in inner or self.order[read] > self.order[op]:
                    continue
                if self.scope.buffers.get(read.results[0]) != buffer:
                    continue
                for value in self.pending(read.results[0], op):
                    self.materialise(value, op)
                if self.used_directly_after(read.results[0], op):
                    copy = self.mapping(buffer.axes)
                    fresh = self.registers(hint(fragment), element(fragment), copy.count)
                    value = copy.read(buffer, element(fragment))
                    self.finish(copy, [value], [fresh], op, spans_of(fragment))
                    self.scope.buffers[read.results[0]] = Buffered(fresh, buffer.axes)

    def pending(self, value: SSAValue, op: Operation) -> list[SSAValue]:
        """Element-wise results computed from ``value`` before ``op``, not yet in registers and needed after it."""
        found: list[SSAValue] = []
        for use in value.uses:
            user = use.operation
            if not is_elementwise(user) or self.order[user] > self.order[op] or user.parent_block() is None:
                continue
            result = user.results[0]
            if result in self.scope.buffers:
                continue
            if self.used_directly_after(result, op):
                found.append(result)
            else:
                found += self.pending(result, op)
        return found

    def used_directly_after(self, value: SSAValue, op: Operation) -> bool:
        """A use of ``value`` comes after ``op`` or inside it."""
        return any(self.order[u.operation] > self.order[op] for u in value.uses)

    def stream(self, op: tile.Stream, *, split: bool) -> None:
        written = dict.fromkeys(w.frag for w in op.walk() if isinstance(w, tile.Write))
        self.snapshot([f for f in written if f in self.scope.buffers], op)
        self.hoist(op)
        sunk = {w: r for w in op.body.block.ops if isinstance(w, tile.Write) and (r := sinkable(w, op))}
        for reduction in sunk.values():
            self.partials[reduction] = Reduction(self, reduction).start()
        self.sunk |= sunk.keys()
        self.loops_of(op, split=split)
        for write, reduction in sunk.items():
            self.combine(write, Reduction(self, reduction))
        self.sunk -= sunk.keys()

    def combine(self, write: tile.Write, reduction: Reduction) -> None:
        """After a stream: the threads' partial results are reduced and added to the fragment."""
        total = reduction.across(self.partials.pop(reduction.op))[-1]
        target = self.scope.buffers[write.frag]
        builder = self.mapping(target.axes)
        old = builder.read(target, element(write.frag))
        new = builder.read(Buffered(total, reduction.inner), reduction.dtype)
        result = builder.emit(defining(write.value), [old, new], element(write.frag))
        self.finish(builder, [result], [target.buffer], write, spans_of(write.frag), constant=False)

    def loops_of(self, op: tile.Stream, *, split: bool) -> None:
        """The stream's loop, or two: whole steps without guards, then the partial one."""
        span, trip, counter = op.axis.data, op.trip.expr, op.counter.data
        if not split or self.inside(span):
            self.loop(op, Const(0), trip, split=split)
            return
        begin = span.origin.substitute({counter: 0})
        whole = minimum(trip, (span.stop - begin) // span.size)
        full = self.scope.full
        self.scope.full = full | {span}
        if simplify(whole - trip, self.placement.bounds) == Const(0):
            self.loop(op, Const(0), trip, split=split)
        else:
            name = f"{counter}_full"
            self.emit(t.Let(name, whole))
            self.loop(op, Const(0), Sym(name), split=split)
            self.scope.full = full
            self.loop(op, Sym(name), trip, split=False)
        self.scope.full = full

    def loop(self, op: tile.Stream, begin: Expr, end: Expr, *, split: bool) -> None:
        block = Block()
        self.loops += 1
        with self.into(block):
            self.body(op.body.block, split=split)
        self.loops -= 1
        self.emit(t.For(op.counter.data, begin, end, expr(1), Region(block)), op)

    def hoist(self, op: tile.Stream) -> None:
        """Values from outside that the loop uses are computed before it, unless they are constants or indices."""
        for inner in op.walk():
            if inner is op:
                continue
            for operand in inner.operands:
                source = operand.owner
                if not isinstance(source, Operation) or op.is_ancestor(source) or not is_elementwise(source):
                    continue
                if not self.trivial(operand) and operand not in self.scope.buffers:
                    self.materialise(operand)

    def trivial(self, value: SSAValue) -> bool:
        """Costs nothing to compute again: constants, indices, scalars and their shapes."""
        op = value.owner
        if not isinstance(op, Operation):
            return True
        if isinstance(op, tile.Constant | tile.Scalar | tile.Index):
            return True
        return isinstance(op, tile.Expand | tile.Broadcast | tile.Transpose) and self.trivial(op.operands[0])

    def print(self, op: tile.Print) -> None:
        values = [self.materialise(v, op) for v in op.operands]
        shapes = [self.axes_of[v] for v in op.operands]
        axes = max(shapes, key=len, default=())
        home = self.placement.home
        spans = spans_of(op.operands[shapes.index(axes)]) if shapes else ()
        layout = home.layout(axes)
        guard = all_of([layout.owner_predicate(TID), self.valid(axes, spans, home.coordinates(axes, TID, R))])
        indices = [home.register_of(v.axes, axes, R) for v in values]
        self.emit(t.Print(op.format.data, [v.buffer for v in values], indices, guard, home.registers(axes)), op)


def sinkable(write: tile.Write, stream: tile.Stream) -> tile.Reduce | None:
    """The reduction that a stream only accumulates: ``f += x.sum(axis)``, with f untouched otherwise in its body.

    Its lanes and warps are then reduced once, after the stream. (The order of sums is free under every policy.)
    """
    update = write.value.owner
    if not isinstance(update, tile.Binary) or write.parent_op() is not stream:
        return None
    uses = [u.operation for u in write.frag.uses if stream.is_ancestor(u.operation)]
    for read, value in ((update.a.owner, update.b.owner), (update.b.owner, update.a.owner)):
        if not isinstance(read, tile.Read) or not isinstance(value, tile.Reduce) or read.frag != write.frag:
            continue
        alone = set(uses) == {write, read} and all(len(list(o.results[0].uses)) == 1 for o in (read, value, update))
        same = _FOLDS.get(value.fn.data.value) == update.fn.data.value and value.parent_op() is stream
        if alone and same and accumulator(element(value.x)) == element(write.frag):
            return value
    return None


_FOLDS = {"sum": "add", "max": "max", "min": "min"}

_LIVE_PARTS = 8
"""Parts into which the repeats of a row are split to skip those beyond its end."""

_COSTLY = frozenset({"exp", "exp2", "log", "log2", "sqrt", "rsqrt", "tanh", "sigmoid", "erf", "div", "floordiv", "mod"})


def is_costly(op: object) -> bool:
    """More than a few instructions for each element."""
    return isinstance(op, tile.Unary | tile.Binary) and op.fn.data.value in _COSTLY


def is_arithmetic(op: Operation) -> bool:
    """Costs instructions, unlike constants, indices and shapes."""
    return isinstance(op, tile.Unary | tile.Binary | tile.Compare | tile.Select | tile.Cast)


def is_elementwise(op: Operation) -> bool:
    """Computed where it is needed."""
    return isinstance(
        op,
        tile.Unary
        | tile.Binary
        | tile.Compare
        | tile.Select
        | tile.Cast
        | tile.Expand
        | tile.Broadcast
        | tile.Transpose
        | tile.Index
        | tile.Scalar
        | tile.Constant,
    )


def owner(value: SSAValue) -> Operation | None:
    """The op that defines a value."""
    return value.owner if isinstance(value.owner, Operation) else None


def defining(value: SSAValue) -> Operation:
    """The op that defines a value which is no argument of the kernel."""
    op = owner(value)
    assert op is not None
    return op


def hint(value: SSAValue) -> str:
    """A name for the buffer of a value."""
    if value.name_hint:
        return value.name_hint
    op = owner(value)
    if isinstance(op, tile.Load):
        return tile.tensor_type(op.tensor).tensor_name.data
    return op.name.removeprefix("tile.") if op is not None else "v"
