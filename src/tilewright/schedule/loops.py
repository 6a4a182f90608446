"""Lowers streams and what they carry: fragments, snapshots of fragments, and sums accumulated over the stream."""

from __future__ import annotations

from collections.abc import Collection

from xdsl.ir import Block, Operation, Region, SSAValue

from tilewright.base.dtypes import i32
from tilewright.base.expr import TRUE, Const, Expr, Sym, expr, maximum, minimum, simplify
from tilewright.schedule.histogram import cleared, counted
from tilewright.schedule.loads_and_stores import MoveLowering
from tilewright.schedule.map_builder import Buffered
from tilewright.schedule.reduce import Reduction, accumulator
from tilewright.tile import dialect as tile
from tilewright.tile.queries import (
    defining,
    element,
    hint,
    is_elementwise,
    spans_of,
)
from tilewright.transport import dialect as t

TID, R = Sym(t.THREAD), Sym(t.REGISTER)


class LoopLowering(MoveLowering):
    """Lowers streams; subclasses lower their bodies."""

    def body(self, block: Block, *, split: bool) -> None:
        """Lowers all ops of a block; ``split``: bodies are split further by domains."""
        raise NotImplementedError

    def fragment(self, op: tile.FragmentInit) -> None:
        result = op.results[0]
        axes = self.axes_of[result]
        builder = self.mapping(axes, op.init)
        value = builder.value(op.init)
        buffer = self.registers(hint(result), element(result), builder.count)
        self.finish(builder, [value], [buffer], op, spans_of(result), constant=False)
        self.scope.buffers[result] = Buffered(buffer, axes)

    def write(self, op: tile.FragmentWrite) -> None:
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
                if not isinstance(read, tile.FragmentRead) or read in inner or self.order[read] > self.order[op]:
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

    def bind(self, op: tile.Bind) -> None:
        """Binds a loaded integer to a symbol. One thread publishes it to all, so that all agree even if memory is
        overwritten meanwhile."""
        held = self.materialise(op.value, op).buffer
        dtype = element(op.value)
        shared = self.shared_buffer("bound", dtype, 1)
        self.emit(t.SharedWrite(shared, held, Const(0), Sym(t.THREAD).eq(0)), op)
        self.emit(t.Barrier(), op)
        given = self.registers("bound", dtype, 1)
        self.emit(t.SharedRead(shared, given, Const(0), TRUE), op)
        if self.loops or self.placement.persistent:
            self.emit(t.Barrier(), op)
        self.emit(t.Bind(op.symbol.data, given, None if op.most is None else op.most.expr), op)

    def stream(self, op: tile.StreamLoop, *, split: bool) -> None:
        written = dict.fromkeys(w.frag for w in op.walk() if isinstance(w, tile.FragmentWrite))
        self.snapshot([f for f in written if f in self.scope.buffers], op)
        self.hoist(op)
        sunk = {w: r for w in op.body.block.ops if isinstance(w, tile.FragmentWrite) and (r := sinkable(w, op))}
        for summed in sunk.values():
            if isinstance(summed, tile.Histogram):
                self.partials[summed] = [cleared(self, summed)]
            else:
                self.partials[summed] = Reduction(self, summed).begin()
        self.sunk |= sunk.keys()
        self.loops_of(op, split=split)
        for write, summed in sunk.items():
            self.combine(write, self.total(summed))
        self.sunk -= sunk.keys()

    def total(self, summed: tile.Reduce | tile.Histogram) -> Buffered:
        """After a stream: reduces the threads' partial results."""
        partials = self.partials.pop(summed)
        if isinstance(summed, tile.Histogram):
            return counted(self, summed, partials[0])
        reduction = Reduction(self, summed)
        return Buffered(reduction.across(reduction.end(partials))[-1], reduction.inner)

    def combine(self, write: tile.FragmentWrite, total: Buffered) -> None:
        """After a stream: adds its sum to the fragment."""
        target = self.scope.buffers[write.frag]
        builder = self.mapping(target.axes)
        old = builder.read(target, element(write.frag))
        new = builder.read(total, t.registers_of(total.buffer).dtype.dtype)
        result = builder.emit(defining(write.value), [old, new], element(write.frag))
        self.finish(builder, [result], [target.buffer], write, spans_of(write.frag), constant=False)

    def loops_of(self, op: tile.StreamLoop, *, split: bool) -> None:
        """The stream's loop, or two: whole steps without guards, then the partial one. A stream that ends before it
        begins has no whole steps, rather than fewer than none."""
        span, trip, counter = op.axis.data, op.trip.expr, op.counter.data
        if not split or self.inside(span):
            self.loop(op, Const(0), trip, split=split)
            return
        begin = span.origin.substitute({counter: 0})
        whole = simplify(maximum(minimum(trip, (span.stop - begin) // span.size), 0), self.placement.bounds)
        with self.within_domain([span]):
            if simplify(whole - trip, self.placement.bounds) == Const(0):
                self.loop(op, Const(0), trip, split=split)
                return
            if whole != Const(0):
                name = f"{counter}_full"
                self.emit(t.Let(name, whole))
                self.loop(op, Const(0), Sym(name), split=split)
                whole = Sym(name)
        self.loop(op, whole, trip, split=False)

    def loop(self, op: tile.StreamLoop, begin: Expr, end: Expr, *, split: bool) -> None:
        block = Block()
        self.loops += 1
        with self.into(block):
            self.body(op.body.block, split=split)
        self.loops -= 1
        self.emit(t.For(op.counter.data, begin, end, expr(1), Region(block)), op)

    def hoist(self, op: tile.StreamLoop) -> None:
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
        """Whether a value is cheap to recompute: constants, indices, scalars and their broadcasts."""
        op = value.owner
        if not isinstance(op, Operation):
            return True
        if isinstance(op, tile.Constant | tile.ScalarExpr | tile.Index):
            return True
        return isinstance(op, tile.Expand | tile.Broadcast | tile.Transpose) and self.trivial(op.operands[0])


_FOLDS = {"sum": "add", "max": "max", "min": "min"}


def sinkable(write: tile.FragmentWrite, stream: tile.StreamLoop) -> tile.Reduce | tile.Histogram | None:
    """The reduction or histogram that a stream only accumulates: ``f += x.sum(axis)``, with f untouched otherwise in
    its body.

    Lanes and warps are then reduced once, after the stream, and counters of bins are cleared before it and read after
    it. (The order of sums is free under every policy.)
    """
    update = write.value.owner
    if not isinstance(update, tile.Binary) or write.parent_op() is not stream:
        return None
    uses = [u.operation for u in write.frag.uses if stream.is_ancestor(u.operation)]
    for read, value in ((update.a.owner, update.b.owner), (update.b.owner, update.a.owner)):
        summed = isinstance(value, tile.Reduce | tile.Histogram)
        if not isinstance(read, tile.FragmentRead) or not summed or read.frag != write.frag:
            continue
        alone = set(uses) == {write, read} and all(len(list(o.results[0].uses)) == 1 for o in (read, value, update))
        fn, carried = (
            ("add", i32)
            if isinstance(value, tile.Histogram)
            else (_FOLDS.get(value.fn.data.value), accumulator(element(value.x)))
        )
        same = fn == update.fn.data.value and value.parent_op() is stream
        if alone and same and carried == element(write.frag):
            return value
    return None
