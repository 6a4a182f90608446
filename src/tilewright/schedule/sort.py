"""Sorts along one axis: bitonic networks (Batcher, AFIPS 1968) over the bits of the coordinate, wherever these lie.

A step compares each element with the one whose coordinate differs in one bit: another register of the thread, the same
register of another lane, or of another warp through shared memory. The lesser stays where the two bits that choose the
direction are equal. Beyond the domain is the greatest number, which goes last.

Of the least ``count`` elements every thread keeps a sorted run in registers, and joins it bit by bit with others:

    run      the first bits in registers; more are added, which hold the greatest number, until the run is long enough
    joined   of two runs the lesser of each element of the one and its opposite of the other, the least of both, a
             bitonic sequence: merged

At the end all threads along the axis hold the same run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, TypeAlias

from xdsl.ir import SSAValue

from tilewright.base.expr import TRUE, Const, Expr, Sym, all_of, expr
from tilewright.lang.enums import BinaryFn
from tilewright.layout.register import LANES
from tilewright.schedule.distribute import InRegisters, InThreads, ceil_power
from tilewright.schedule.map_builder import Buffered, ClassId, MapBuilder
from tilewright.schedule.scan import Digit, digits_of, number_of, of_bits, other_lane
from tilewright.tile import dialect as tile
from tilewright.tile.queries import element, spans_of
from tilewright.transport import dialect as t

if TYPE_CHECKING:
    from tilewright.schedule.loads_and_stores import MoveLowering

TID, R = Sym(t.THREAD), Sym(t.REGISTER)
SORTS = "sort"
"""The combining function that maps of a sorting network name."""

Bit: TypeAlias = Digit | int
"""A bit of the coordinate: a digit of two registers, or a bit of the thread index."""


@dataclass(frozen=True)
class Keys:
    """Elements in registers, which ``digits`` number, fastest first."""

    buffer: SSAValue
    digits: tuple[Digit, ...]

    def register(self, values: Mapping[Digit, Expr]) -> Expr:
        """The register of the element whose digits have some values."""
        if all(values[d] == own for d, own in digits_of(self.digits).items()):
            return R
        return number_of(self.digits, values)


class SortLowering:
    """Lowers one ``tile.sort``."""

    def __init__(self, lowering: MoveLowering, op: tile.Sort):
        self.lowering, self.op = lowering, op
        self.home = lowering.placement.home
        self.axes = lowering.axes_of[op.x]
        self.cls = self.axes[op.axis.data]
        self.dtype = element(op.x)
        self.most = self.dtype.integers[1]
        self.bits = [] if self.cls is None else self.bits_of(self.cls)
        self.slots: SSAValue | None = None

    def bits_of(self, cls: ClassId) -> list[Bit]:
        """The bits of the axis' coordinate, the least significant first; repeats are as many as a power of two."""
        spread = self.home.by_class[cls]
        found: list[Bit] = []
        for mode, stride in zip(spread.modes, spread.strides, strict=True):
            assert stride == 1 << len(found), f"digits of class {cls} that are no bits"
            match mode:
                case InThreads(bit):
                    found.append(bit)
                case InRegisters(count):
                    found += _bits((cls, count, stride))
        return found

    def lower(self) -> None:
        """Lowers the sort."""
        op, held = self.op, tuple(b for b in self.bits if isinstance(b, tuple))
        if op.count is None:
            size = tile.tile_type(op.x).axes_tuple[op.axis.data].size
            keys = self.sorted(self.padded(), self.bits[: (size - 1).bit_length()])
            return self.publish(keys, dict(enumerate(self.bits)), self.axes)
        length = (op.count.data - 1).bit_length()
        above = len(self.bits)
        added = [(-1 if self.cls is None else self.cls, 2, 1 << (above + i)) for i in range(length - len(held))]
        run, rest = (*held, *added)[:length], held[length:]
        threads = [b for b in self.bits if isinstance(b, int)]
        order = [_place(self.bits, b) for b in (*run, *rest, *sorted(threads))]
        op.note_bit_order(order)
        keys = self.sorted(self.padded(added), run)
        for bit in (*rest, *sorted(threads)):
            keys = self.merged(self.joined(keys, run, bit), run)
        return self.publish(keys, dict(enumerate(run)), self.lowering.axes_of[op.result])

    # -- maps -------------------------------------------------------------------------------------------------------
    def step(self, domain: Sequence[Digit]) -> MapBuilder:
        """A map over some digits."""
        inner = tuple(c for c in self.axes if c != self.cls)
        return MapBuilder(self.home, inner, {}, {}, {}, window=(0, prod(d[1] for d in domain)))

    def finish(self, builder: MapBuilder, value: SSAValue, domain: Sequence[Digit]) -> Keys:
        """Emits a map; its result is ``value``."""
        buffer = self.lowering.registers("sort", self.dtype, builder.count)
        self.lowering.emit(builder.finish([value], [buffer], combines=SORTS), self.op)
        return Keys(buffer, tuple(domain))

    def padded(self, added: Sequence[Digit] = ()) -> Keys:
        """The elements in registers, with the greatest number beyond the domain and where ``added`` digits are not
        0."""
        lowering, op = self.lowering, self.op
        held = lowering.materialise(op.x, op).buffer
        home = [d for d in self.home.register_order if d[0] in self.axes and d[1] > 1]
        domain = [bit for d in home for bit in (_bits(d) if d[0] == self.cls else [d])] + list(added)
        values = digits_of(domain)
        along = [d for d in home if d[0] == self.cls]
        numbers = {d: sum((values[b] * (b[2] // d[2]) for b in _bits(d)), expr(0)) % d[1] for d in along}
        register = number_of(home, {**values, **numbers})
        place = of_bits([(b, 1 << i) for i, b in enumerate(self.bits) if isinstance(b, int)])
        place = place + sum((values[b] * b[2] for b in values if b[0] == self.cls), expr(0))
        span = spans_of(op.x)[op.axis.data]
        fits = self.cls is None or 1 << len(self.bits) == self.home.by_class[self.cls].covered
        inside = [lowering.valid([self.cls], [span], [place]), *(values[d].eq(0) for d in added)]
        if span is not None and not fits:
            inside.append(place < span.size)
        builder = self.step(domain)
        here = builder.read_at(held, R if len(values) == len(home) else register, self.dtype)
        valid = all_of(inside)
        if valid != TRUE:
            here = builder.select(valid, here, builder.constant(self.most, self.dtype))
        return self.finish(builder, here, domain)

    # -- networks -----------------------------------------------------------------------------------------------------
    def sorted(self, keys: Keys, bits: Sequence[Bit]) -> Keys:
        """Elements in the order of the number that bits form, the least significant first."""
        for size in range(1, len(bits) + 1):
            direction = bits[size] if size < len(bits) else None
            for bit in reversed(bits[:size]):
                keys = self.compared(keys, bit, direction)
        return keys

    def merged(self, keys: Keys, bits: Sequence[Bit]) -> Keys:
        """Sorts a bitonic sequence in ascending order."""
        for bit in reversed(bits):
            keys = self.compared(keys, bit, None)
        return keys

    def compared(self, keys: Keys, bit: Bit, direction: Bit | None) -> Keys:
        """Compares and exchanges elements whose coordinates differ in a bit; the lesser goes where the bit equals that
        of the direction, or is 0."""
        other = keys if isinstance(bit, tuple) else self.exchanged(keys, bit)
        builder, values = self.step(keys.digits), digits_of(keys.digits)
        if isinstance(bit, tuple):
            mine, theirs = (
                builder.read_at(keys.buffer, keys.register({**values, bit: Const(v)}), self.dtype) for v in (0, 1)
            )
        else:
            mine, theirs = (builder.read_at(k.buffer, R, self.dtype) for k in (keys, other))
        low, high = (builder.binary(fn, mine, theirs) for fn in (BinaryFn.MIN, BinaryFn.MAX))
        towards = Const(0) if direction is None else _value(direction, values)
        return self.finish(builder, builder.select(_value(bit, values).eq(towards), low, high), keys.digits)

    def joined(self, keys: Keys, run: Sequence[Digit], bit: Bit) -> Keys:
        """Of two runs, those where a bit is 0 and 1, the least elements."""
        domain = [d for d in keys.digits if d != bit]
        other = keys if isinstance(bit, tuple) else self.exchanged(keys, bit)
        builder, values = self.step(domain), digits_of(domain)
        opposite = {**values, **{d: 1 - values[d] for d in run}}
        if isinstance(bit, tuple):
            values, opposite = {**values, bit: Const(0)}, {**opposite, bit: Const(1)}
        mine = builder.read_at(keys.buffer, keys.register(values) if isinstance(bit, tuple) else R, self.dtype)
        theirs = builder.read_at(other.buffer, other.register(opposite), self.dtype)
        return self.finish(builder, builder.binary(BinaryFn.MIN, mine, theirs), domain)

    # -- between threads ----------------------------------------------------------------------------------------------
    def exchanged(self, keys: Keys, bit: int) -> Keys:
        """The elements of the thread whose index differs in a bit."""
        if 1 << bit < LANES:
            return Keys(other_lane(self.lowering, keys.buffer, bit, self.op), keys.digits)
        lowering, count = self.lowering, t.registers_of(keys.buffer).count.data
        threads = self.home.threads
        if self.slots is None:
            self.slots = lowering.shared_buffer("sort_slots", self.dtype, count * threads)
            if lowering.loops or lowering.placement.persistent:
                lowering.emit(t.Barrier())
        else:
            lowering.emit(t.Barrier())
        lowering.emit(t.SharedWrite(self.slots, keys.buffer, R * threads + TID, TRUE), self.op)
        lowering.emit(t.Barrier())
        found = lowering.registers("sort", self.dtype, count)
        lowering.emit(t.SharedRead(self.slots, found, R * threads + (TID ^ (1 << bit)), TRUE, vector=1), self.op)
        return Keys(found, keys.digits)

    def publish(self, keys: Keys, bits: Mapping[int, Bit], axes: tuple[ClassId | None, ...]) -> None:
        """The elements as the home distribution numbers them; ``bits`` are those of the coordinate along the axis."""
        cls, op = axes[self.op.axis.data], self.op
        if op.count is None and t.registers_of(keys.buffer).count.data == self.home.registers(axes):
            self.lowering.scope.buffers[op.result] = Buffered(keys.buffer, axes)
            return
        domain = [d for d in self.home.register_order if d[0] in axes and d[1] > 1]
        values = digits_of(domain)
        assert op.count is None or cls is None or not self.home.by_class[cls].thread_bits, "a run is in registers"
        place = sum((values[d] * d[2] for d in domain if d[0] == cls), expr(0))
        values |= {bit: place // (1 << i) % 2 for i, bit in bits.items() if isinstance(bit, tuple)}
        builder = self.step(domain)
        result = self.finish(builder, builder.read_at(keys.buffer, keys.register(values), self.dtype), domain)
        self.lowering.scope.buffers[op.result] = Buffered(result.buffer, axes)


def _bits(digit: Digit) -> list[Digit]:
    """A digit as digits of two values each."""
    cls, count, stride = digit
    return [(cls, 2, stride << i) for i in range(ceil_power(count).bit_length() - 1)]


def _value(bit: Bit, values: Mapping[Digit, Expr]) -> Expr:
    return TID // (1 << bit) % 2 if isinstance(bit, int) else values[bit]


def _place(bits: Sequence[Bit], bit: Bit) -> int:
    """The number of a bit of the coordinate; added bits are the highest."""
    return bits.index(bit) if isinstance(bit, int) else bit[2].bit_length() - 1
