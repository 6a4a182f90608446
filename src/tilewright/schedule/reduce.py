"""Reductions along one axis: registers, then lanes, then warps through shared memory.

Sums of floats are trees all the way, for the error of a chain grows with its length: a thread adds its elements up in
``_WAYS`` chains, a stream's steps in runs of ``_RUN``, and what lanes and warps hold is halved again and again
(Higham, Accuracy and Stability of Numerical Algorithms, 4.2).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from xdsl.ir import Block, Region, SSAValue

from tilewright.base.dtypes import DType, e5m2, f32, i32
from tilewright.base.expr import TRUE, Const, Expr, Sym, all_of, expr
from tilewright.lang.enums import identity
from tilewright.layout.register import LANES
from tilewright.layout.shared import SharedTile
from tilewright.schedule.map_builder import Buffered, MapBuilder
from tilewright.tile import dialect as tile
from tilewright.tile.queries import element, spans_of
from tilewright.transport import dialect as t

if TYPE_CHECKING:
    from tilewright.schedule.loads_and_stores import MoveLowering

TID, R = Sym(t.THREAD), Sym(t.REGISTER)
_LANE_BITS = LANES.bit_length() - 1

_WAYS = 4
"""Independent chains in which a thread adds the elements of a row."""

_WIDE = 32
"""Registers that the chains of all rows of a thread may take."""

_RUN = 16
"""Steps of a stream that are summed before their sum is added to the total."""

_READ_BACK = 16
"""Partial results that a thread reads back and reduces by itself; more would take too many registers."""


def accumulator(dtype: DType) -> DType:
    """The type in which a reduction of ``dtype`` accumulates: f32 for narrow floats, i32 for narrow integers."""
    if dtype.is_float:
        return f32
    return dtype if dtype.bits >= 32 else i32


class Reduction:
    """Lowers one ``tile.reduce``. The result is replicated over the thread bits of the reduced class."""

    def __init__(self, lowering: MoveLowering, op: tile.Reduce):
        self.lowering = lowering
        self.op = op
        self.fn = op.fn.data.value
        self.source = op.operands[0]
        self.axis = op.axis.data
        self.home = lowering.placement.home
        self.outer = lowering.axes_of[self.source]
        self.inner = lowering.axes_of[op.results[0]]
        self.dtype = accumulator(element(self.source))
        self.kinds = (self.dtype, i32) if self.fn == "argmax" else (self.dtype,)
        self.identities: tuple[float | int | bool, ...] = (identity(self.fn, self.dtype), 2**31 - 1)

    @property
    def folds(self) -> bool:
        """Whether a thread holds several elements of each row, or some that lanes must not exchange; otherwise its one
        element is reduced in place."""
        cls = self.outer[self.axis]
        several = cls is not None and self.lowering.placement.digits(cls).registers > 1
        return several or self.lowering.live(self.outer, spans_of(self.source)) != TRUE

    @property
    def rounds(self) -> bool:
        """Whether the result depends on the order of the operands."""
        return self.fn == "sum" and self.dtype.is_float

    @property
    def ways(self) -> int:
        """Independent chains in which a thread adds each row."""
        cls = self.outer[self.axis]
        if not self.rounds or cls is None:
            return 1
        length, rows = self.lowering.placement.digits(cls).registers, self.home.registers(self.inner)
        return max(1, min(_WAYS, length // 2, _WIDE // rows))

    def lower(self) -> None:
        """Lowers a reduction that is not accumulated over a stream."""
        targets = self.folded() if self.folds else self.operands()
        self.pin_rows()
        self.publish(self.across(targets)[-1])

    def folded(self) -> list[SSAValue]:
        """Reduces each thread's elements."""
        ways = self.ways
        targets = self.start(ways)
        self.fold(targets, ways)
        return targets if ways == 1 else [self.sum_of([(targets[0], i) for i in range(ways)])]

    def start(self, ways: int = 1) -> list[SSAValue]:
        """Partial results, ``ways`` per row and thread, holding the identity."""
        lowering = self.lowering
        window = (0, self.home.registers(self.inner) * ways)
        builder = MapBuilder(self.home, self.inner, {}, {}, {}, window)
        starts = [builder.constant(v, d) for v, d in zip(self.identities, self.kinds, strict=False)]
        targets = [lowering.registers(self.fn, d, builder.count) for d in self.kinds]
        lowering.emit(builder.finish(starts, targets))
        return targets

    def fold(self, targets: list[SSAValue], ways: int = 1) -> None:
        """Adds the elements to ``targets``, one of every ``ways`` to each."""
        lowering = self.lowering
        live = lowering.live(self.outer, spans_of(self.source))
        place = self.home.register_of((self.outer[self.axis],), self.outer, R)
        into = self.into + place % ways * self.home.registers(self.inner)
        lowering.emit(t.Fold(self.fn, self.operands(), targets, into, live), self.op)

    def sum_of(self, parts: Sequence[tuple[SSAValue, int]], into: SSAValue | None = None) -> SSAValue:
        """The sum of partial results, each the so-manieth of a buffer, as a tree."""
        lowering = self.lowering
        builder = lowering.mapping(self.inner)
        terms = [builder.read(Buffered(b, self.inner, window=-i * builder.count), self.dtype) for b, i in parts]
        while len(terms) > 1:
            pairs = [builder.add(x, y) for x, y in zip(terms[::2], terms[1::2], strict=False)]
            terms = pairs + terms[len(terms) & ~1 :]
        target = lowering.registers(self.fn, self.dtype, builder.count) if into is None else into
        lowering.emit(builder.finish(terms, [target]))
        return target

    # -- a reduction that is accumulated over a stream -------------------------------------------------------------
    def begin(self) -> list[SSAValue]:
        """The partial results that a thread carries through the stream; for sums the total and the sum of the current
        run."""
        return [*self.start(), *self.start()] if self.rounds else self.start()

    def accumulate(self, partials: list[SSAValue]) -> None:
        """Reduces the elements of a step into the thread's partial results."""
        if not self.rounds:
            self.fold(partials)
            return
        total, latest = partials
        self.sum_of([(latest, 0), (self.folded()[0], 0)], latest)
        stream = self.op.parent_op()
        assert isinstance(stream, tile.StreamLoop)
        ended = Block()
        with self.lowering.into(ended):
            self.join(total, latest)
        last = (Sym(stream.counter.data) % _RUN).eq(_RUN - 1)
        self.lowering.emit(t.If(last, Region(ended), Region(Block())))

    def join(self, total: SSAValue, latest: SSAValue) -> None:
        """Adds the sum of a run to the total, and begins another."""
        self.sum_of([(total, 0), (latest, 0)], total)
        builder = self.lowering.mapping(self.inner)
        self.lowering.emit(builder.finish([builder.constant(0.0, self.dtype)], [latest]))

    def end(self, partials: list[SSAValue]) -> list[SSAValue]:
        """The threads' results after the stream."""
        return [self.sum_of([(b, 0) for b in partials])] if self.rounds else partials

    def across(self, buffers: list[SSAValue]) -> list[SSAValue]:
        """Reduces the threads' partial results: lanes, then warps."""
        lowering, op = self.lowering, self.op
        cls = self.outer[self.axis]
        if cls is None:
            return buffers
        bits = lowering.placement.digits(cls).thread_bits
        lanes = [1 << b for b in bits if b < _LANE_BITS]
        if lanes:
            lowering.emit(t.Shuffle(self.fn, buffers, lanes), op)
        warps = [b for b in bits if b >= _LANE_BITS]
        return self.across_warps(buffers, warps) if warps else buffers

    @property
    def into(self) -> Expr:
        """The result's register for each of the operand's."""
        return self.home.register_of(self.inner, self.outer, R)

    def pin_rows(self) -> None:
        """Long packed rows that are read again stay packed."""
        lowering = self.lowering
        for value, held in list(lowering.scope.buffers.items()):
            kind = t.registers_of(held.buffer)
            long = kind.count.data > lowering.kept_registers and kind.dtype.dtype.bits < 32
            if long and lowering.needed_after(value, self.op):
                lowering.emit(t.Pin(held.buffer))

    def operands(self) -> list[SSAValue]:
        """The reduced value in the accumulator's dtype, the identity where it has none; indices for argmax."""
        lowering = self.lowering
        builder = lowering.mapping(self.outer, self.source)
        value = builder.cast(builder.value(self.source), self.dtype)
        span = spans_of(self.source)[self.axis]
        place = builder.coordinate(self.outer[self.axis])
        valid = lowering.valid([self.outer[self.axis]], [span], [place])
        if valid != all_of(()):
            value = builder.select(valid, value, builder.constant(self.identities[0], self.dtype))
        results = [value]
        if self.fn == "argmax":
            index = builder.integer(place, i32)
            if valid != all_of(()):
                index = builder.select(valid, index, builder.constant(self.identities[1], i32))
            results.append(index)
        buffers = [lowering.registers(self.fn, d, builder.count) for d in self.kinds]
        lowering.finish(builder, results, buffers, self.op, spans_of(self.source), constant=self.folds)
        return buffers

    def across_warps(self, buffers: list[SSAValue], warps: list[int]) -> list[SSAValue]:
        """One lane per warp publishes its result; all threads read and reduce the partial results."""
        lowering, op = self.lowering, self.op
        kept = [b for c in self.inner if c is not None for b in lowering.placement.digits(c).thread_bits]
        count, parts, others = self.home.registers(self.inner), 1 << len(warps), 1 << len(kept)
        row = R * others + bit_field(kept)
        idle = [b for b in range(self.home.threads.bit_length() - 1) if b not in warps and b not in kept]
        publisher = all_of(run.eq(0) for run, _ in _runs(idle))
        partials = SharedTile.plain(count * others, parts, 1)
        cell = partials.offset_expr(row, bit_field(warps))
        shared = [lowering.shared_buffer(f"{self.fn}_parts", d, partials.size_bytes) for d in self.kinds]
        if lowering.loops or lowering.placement.persistent:
            lowering.emit(t.Barrier())
        for place, buffer in zip(shared, buffers, strict=True):
            lowering.emit(t.SharedWrite(place, buffer, cell, publisher), op)
        lowering.emit(t.Barrier())
        if not any(b < _LANE_BITS for b in kept):
            # each lane takes one part, a butterfly does the rest
            results = [lowering.registers(self.fn, d, count) for d in self.kinds]
            cell = partials.offset_expr(row, TID % parts)
            for place, result in zip(shared, results, strict=True):
                lowering.emit(t.SharedRead(place, result, cell, all_of(())), op)
            lowering.emit(t.Shuffle(self.fn, results, [1 << i for i in range(len(warps))]), op)
            return results
        if count * parts > _READ_BACK:
            return self.across_rows(shared, row, count * others, parts)
        read = [lowering.registers(self.fn, d, count * parts) for d in self.kinds]
        cell = partials.offset_expr(R // parts * others + bit_field(kept), R % parts)
        for place, buffer, dtype in zip(shared, read, self.kinds, strict=True):
            width = min(parts, 16 // dtype.bytes)
            lowering.emit(t.SharedRead(place, buffer, cell, all_of(()), vector=width), op)
        results = self.start()
        lowering.emit(t.Fold(self.fn, read, results, R // parts), op)
        return results

    def across_rows(self, shared: Sequence[SSAValue], row: Expr, rows: int, parts: int) -> list[SSAValue]:
        """For many rows: their partial results are distributed over all threads, neighbours reduce one row, and all
        read the results."""
        lowering, op, threads = self.lowering, self.op, self.home.threads
        total = rows * parts
        dealt = R * threads + TID
        mine = [lowering.registers(self.fn, d, -(-total // threads)) for d in self.kinds]
        place = dealt if total % threads == 0 else dealt % total  # a row's parts stay neighbours
        for buffer, part in zip(shared, mine, strict=True):
            lowering.emit(t.SharedRead(buffer, part, place, all_of(())), op)
        lowering.emit(t.Shuffle(self.fn, mine, [1 << i for i in range(parts.bit_length() - 1)]), op)
        whole = [lowering.shared_buffer(f"{self.fn}_rows", d, rows) for d in self.kinds]
        first = all_of([(TID % parts).eq(0), *([expr(total) > dealt] if total % threads else [])])
        for buffer, part in zip(whole, mine, strict=True):
            lowering.emit(t.SharedWrite(buffer, part, dealt // parts, first), op)
        lowering.emit(t.Barrier())
        results = [lowering.registers(self.fn, d, self.home.registers(self.inner)) for d in self.kinds]
        for buffer, result in zip(whole, results, strict=True):
            lowering.emit(t.SharedRead(buffer, result, row, all_of(())), op)
        return results

    def publish(self, buffer: SSAValue) -> None:
        """Record the result, in its own dtype."""
        lowering, result = self.lowering, self.op.results[0]
        carried = t.registers_of(buffer).dtype.dtype
        wanted = element(result)
        if carried != wanted:
            builder = lowering.mapping(self.inner)
            reduced = builder.read(Buffered(buffer, self.inner), carried)
            value = builder.cast(reduced, wanted)
            if wanted == e5m2:  # one of the elements, which may be infinite; conversions never are
                for infinite in (math.inf, -math.inf):
                    is_infinite = builder.equal(reduced, builder.constant(infinite, carried))
                    value = builder.choose(is_infinite, builder.constant(infinite, wanted), value)
            buffer = lowering.registers(self.fn, wanted, builder.count)
            lowering.emit(builder.finish([value], [buffer]), self.op)
        lowering.scope.buffers[result] = Buffered(buffer, self.inner)


def _runs(bits: Sequence[int]) -> list[tuple[Expr, int]]:
    """The thread index's bits, one expression and its length per run of neighbours, lowest run first."""
    runs: list[tuple[Expr, int]] = []
    ordered, start = sorted(bits), 0
    while start < len(ordered):
        stop = start + 1
        while stop < len(ordered) and ordered[stop] == ordered[stop - 1] + 1:
            stop += 1
        runs.append((TID // (1 << ordered[start]) % (1 << (stop - start)), stop - start))
        start = stop
    return runs


def bit_field(bits: Sequence[int]) -> Expr:
    """The number formed by some bits of the thread index, lowest first."""
    result: Expr = Const(0)
    scale = 1
    for run, length in _runs(bits):
        result = result + run * scale
        scale <<= length
    return result
