"""Scans along one axis: the elements of a thread, then lanes, warps and repeats, from the least significant digit on.

The axis' digits (``schedule.distribute``) are taken one after the other. Of what is covered so far, a *block*, a thread
knows the ``total``, and for each of its groups of neighbouring elements the ``prefix``, the state of what comes before
the group in the block::

    group    the elements of the digits in registers below the first in threads: combined one by one
    lane     blocks of two lanes become one: each sends its total to the other
    warps    totals go through shared memory; each thread combines all of them
    repeats  blocks of one thread are combined one by one

Groups are neighbours of the axis' first digit, whose running states a map computes in place, each register from the one
before it; what a user's function combines is computed on the way, so that none of it waits in registers. A thread that
has the whole axis begins with the state before it. At last every element is combined with its group's prefix. Beyond
the domain is what changes no state; where nobody knows such a state, a block whose first element lies there is left
out. In reverse, higher coordinates come before, and groups are the elements of all digits below the first in threads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import TYPE_CHECKING, TypeAlias

from xdsl.ir import Operation, SSAValue

from tilewright.base.dtypes import DType, f32, i32
from tilewright.base.expr import FALSE, TRUE, Const, Expr, Sym, all_of, expr, minimum, negate, simplify
from tilewright.lang.enums import identity
from tilewright.layout.register import LANES
from tilewright.layout.shared import SharedTile
from tilewright.schedule.distribute import InRegisters, InThreads
from tilewright.schedule.map_builder import Buffered, MapBuilder
from tilewright.schedule.reduce import bit_field
from tilewright.tile import dialect as tile
from tilewright.tile.queries import element, spans_of
from tilewright.transport import dialect as t

if TYPE_CHECKING:
    from tilewright.schedule.loads_and_stores import MoveLowering

TID, R = Sym(t.THREAD), Sym(t.REGISTER)
_LANE_BITS = LANES.bit_length() - 1

Digit: TypeAlias = tuple[int, int, int]
"""A digit in registers: its class, how many values it has, its stride in the coordinate."""
Values: TypeAlias = Mapping[Digit, int]
"""Values of some digits."""
State: TypeAlias = list[SSAValue]
"""A state in a map's body."""


@dataclass(frozen=True)
class StateView:
    """A state in registers, a buffer for each of its values: ``digits`` number the registers, fastest first, of which
    some are ``fixed``."""

    buffers: tuple[SSAValue, ...]
    digits: tuple[Digit, ...]
    fixed: tuple[tuple[Digit, int], ...] = ()

    def fix(self, digit: Digit, value: int) -> StateView:
        """The part of the state where a digit has a value."""
        return StateView(self.buffers, self.digits, (*self.fixed, (digit, value)))

    def register(self, domain: Sequence[Digit]) -> Expr:
        """The register of what belongs to register r of a map over ``domain``."""
        if tuple(domain) == self.digits and not self.fixed:
            return R
        return number_of(self.digits, {**digits_of(domain), **{d: Const(v) for d, v in self.fixed}})


def digits_of(domain: Sequence[Digit]) -> dict[Digit, Expr]:
    """The values of the digits that number a map's registers."""
    found: dict[Digit, Expr] = {}
    scale = 1
    for digit in domain:
        found[digit] = R // scale % digit[1]
        scale *= digit[1]
    return found


def number_of(digits: Sequence[Digit], values: Mapping[Digit, Expr]) -> Expr:
    """The number that the values of digits form, the fastest first."""
    result, scale = expr(0), 1
    for digit in digits:
        result = result + values[digit] * scale
        scale *= digit[1]
    return result


def ordered(bits: Sequence[int]) -> Expr:
    """The number that bits of the thread index form, the least significant first."""
    return of_bits([(bit, 1 << place) for place, bit in enumerate(bits)])


def of_bits(bits: Sequence[tuple[int, int]]) -> Expr:
    """The sum of the values of thread bits, neighbours in one expression."""
    found: Expr = Const(0)
    while bits:
        first, scale = bits[0]
        count = 1
        while count < len(bits) and bits[count] == (first + count, scale << count):
            count += 1
        found = found + bit_field(range(first, first + count)) * scale
        bits = bits[count:]
    return found


def other_lane(lowering: MoveLowering, buffer: SSAValue, bit: int, source: Operation) -> SSAValue:
    """The registers of the lane whose index differs in a bit."""
    kind = t.registers_of(buffer)
    target = lowering.registers(source.name.removeprefix("tile."), kind.dtype.dtype, kind.count.data)
    whole = [((0,), expr(0))]
    lowering.emit(t.Exchange(buffer, target, kind.count.data, whole, [TID % LANES ^ (1 << bit)], whole), source)
    return target


@dataclass(frozen=True)
class CoveredDigits:
    """The digits covered so far: thread bits, register digits, and the distance between two blocks."""

    bits: tuple[int, ...] = ()
    digits: tuple[Digit, ...] = ()
    size: int = 1


class ScanLowering:
    """Lowers one ``tile.scan``."""

    def __init__(self, lowering: MoveLowering, op: tile.Scan):
        self.lowering, self.op = lowering, op
        self.home = lowering.placement.home
        self.axes = lowering.axes_of[op.elements[0]]
        self.cls = self.axes[op.axis.data]
        self.inner = lowering.axes_of[op.last[0]]
        self.span = spans_of(op.elements[0])[op.axis.data]
        self.dtypes = [element(v) for v in op.elements]
        self.reverse = op.reverse is not None
        self.digits = tuple(d for d in self.home.register_order if d[0] in self.axes and d[1] > 1)
        self.modes = [] if self.cls is None else self.modes_of(self.cls)
        self.function = "fn" if op.function is None else op.function.value
        self.neutral = False
        self.block = CoveredDigits()
        self.prefix: dict[tuple[tuple[Digit, int], ...], StateView | None] = {(): None}

    def modes_of(self, cls: int) -> list[tuple[Digit | int, int]]:
        """The axis' digits, least significant first, with their strides: in registers, or a bit of the thread index."""
        spread = self.home.by_class[cls]
        found: list[tuple[Digit | int, int]] = []
        for mode, stride in zip(spread.modes, spread.strides, strict=True):
            match mode:
                case InThreads(bit):
                    found.append((bit, stride))
                case InRegisters(count) if count > 1:
                    found.append(((cls, count, stride), stride))
                case _:
                    pass
        return found

    def lower(self) -> None:
        """Lowers the scan."""
        lowering, op = self.lowering, self.op
        before = [lowering.materialise(v, op).buffer for v in op.before]
        first = next((i for i, (mode, _) in enumerate(self.modes) if isinstance(mode, int)), len(self.modes))
        low = tuple(mode for mode, _ in self.modes[:first] if not isinstance(mode, int))
        ascending = bool(low) and not self.reverse
        low = low[:1] if ascending else low
        rest = self.modes[len(low) :]
        alone = ascending and not rest and bool(before)
        self.group = prod(count for _, count, _ in low)
        self.block = CoveredDigits(size=self.group)
        if ascending:
            local, total = self.neighbours(low[0], before if alone else [])
        else:
            local, total = self.grouped(StateView(tuple(self.masked(v) for v in op.elements), self.digits), low)
        while rest:
            mode, stride = rest[0]
            run = [m for m, _ in rest if isinstance(m, int) and m >= _LANE_BITS] if _is_warp(mode) else []
            run = run[: next((i for i, (m, _) in enumerate(rest) if not _is_warp(m)), len(rest))]
            if run:
                total = self.warps(total, run, stride)
            elif isinstance(mode, int):
                total = self.lanes(total, mode, stride)
            else:
                total = self.repeats(total, mode)
            rest = rest[len(run) or 1 :]
        if before and not alone:
            total = self.begun_with(before, total)
        self.publish(local, low, total, before if alone else [])

    def neighbours(self, digit: Digit, before: Sequence[SSAValue]) -> tuple[list[StateView], StateView]:
        """The running states of each thread's groups, in place, and the groups' totals; ``before``, if known, is the
        state before the only group."""
        lowering, op = self.lowering, self.op
        if op.function is None:
            builder = lowering.mapping(self.axes, *op.elements)
            here = [builder.value(v) for v in op.elements]
        else:
            masked = [self.masked(v) for v in op.elements]
            builder = lowering.mapping(self.axes)
            here = [builder.read_at(b, R, d) for b, d in zip(masked, self.dtypes, strict=True)]
        running = self.begun_alike(before)
        states = [builder.read_at(b, self.previous(digit), d) for b, d in zip(running, self.dtypes, strict=True)]
        found = self.combined(builder, states, here)
        valid = self.valid(builder.coordinate(self.cls))
        if valid != TRUE:
            test = builder.predicate(valid)
            found = [builder.choose(test, a, b) for a, b in zip(found, states, strict=True)]
        if not before:
            follows = builder.predicate(self.follows(digit))
            found = [builder.choose(follows, a, b) for a, b in zip(found, here, strict=True)]
        lowering.emit(builder.finish(found, running, combines=self.function), op)
        view = StateView(tuple(running), self.digits)
        step = self.step([d for d in self.digits if d != digit])
        (total,) = step.finish([step.read(view.fix(digit, digit[1] - 1))])
        return [view], total

    def previous(self, digit: Digit) -> Expr:
        """The register of the neighbour before register r's; that itself for the first ones."""
        stride = self.register_stride(digit)
        return R - minimum(R // stride % digit[1], 1) * stride

    def follows(self, digit: Digit) -> Expr:
        """Whether register r is not the first one along a digit."""
        return R // self.register_stride(digit) % digit[1] > 0

    def register_stride(self, digit: Digit) -> int:
        """The distance of two registers that differ by one in a digit."""
        return prod(d[1] for d in self.digits[: self.digits.index(digit)])

    def begun_alike(self, before: Sequence[SSAValue]) -> list[SSAValue]:
        """Registers for running states, initialised to the state before the first element if it is known."""
        lowering = self.lowering
        builder = lowering.mapping(self.axes)
        values = [builder.read(Buffered(b, self.inner), d) for b, d in zip(before, self.dtypes, strict=False)] or [
            builder.constant(False if d.is_bool else 0, d) for d in self.dtypes
        ]
        made = [lowering.registers("scan", d, builder.count) for d in self.dtypes]
        lowering.emit(builder.finish(values, made), self.op)
        return made

    def combined(self, builder: MapBuilder, running: State, here: State) -> State:
        """The next running state, in a map's body."""
        ops, results = self.op.combining
        arguments = self.op.body.block.args
        values = dict(self.lowering.arguments) | dict(zip(arguments, (*running, *here), strict=True))
        for op in ops:
            operands = [values[v] for v in op.operands]
            values[op.results[0]] = builder.emit(op, operands, element(op.results[0]))
        return [values[v] for v in results]

    def masked(self, value: SSAValue) -> SSAValue:
        """A scanned value in registers, with the function's identity beyond the domain if there is one."""
        lowering = self.lowering
        held = lowering.materialise(value, self.op).buffer
        valid = self.valid(lowering.mapping(self.axes).coordinate(self.cls))
        if self.op.function is None or valid == TRUE:
            return held
        self.neutral = True
        step = self.step(self.digits)
        (here,) = step.read(StateView((held,), self.digits))
        number = identity(self.function, self.dtypes[0])
        chosen = step.builder.select(valid, here, step.builder.constant(number, self.dtypes[0]))
        return step.finish([[chosen]])[0].buffers[0]

    # -- maps -------------------------------------------------------------------------------------------------------
    def step(self, domain: Sequence[Digit]) -> StateMap:
        """A map over some digits."""
        return StateMap(self, tuple(domain))

    def coordinate(self, domain: Sequence[Digit], floor: int, fixed: Values | None = None) -> Expr:
        """The least coordinate of the block of ``floor`` elements around a thread's, digits ``fixed`` in it."""
        values = {**digits_of(domain), **{d: Const(v) for d, v in (fixed or {}).items()}}
        above = [(mode, stride) for mode, stride in self.modes if stride >= floor]
        registers = [values[mode] * stride for mode, stride in above if not isinstance(mode, int)]
        return sum(registers, of_bits([(mode, stride) for mode, stride in above if isinstance(mode, int)]))

    def valid(self, place: Expr) -> Expr:
        """The coordinate is in the domain, or counts as if it were."""
        if self.neutral:
            return TRUE
        return self.lowering.valid([self.cls], [self.span], [place])

    def begun(self, domain: Sequence[Digit], fixed: Values | None = None) -> Expr:
        """Whether something precedes a group in its block."""
        values = {**digits_of(domain), **{d: Const(v) for d, v in (fixed or {}).items()}}
        number = bit_field(self.block.bits)
        if self.reverse:
            number = (1 << len(self.block.bits)) - 1 - number
        for digit in self.block.digits:
            number = number + (digit[1] - 1 - values[digit] if self.reverse else values[digit])
        after = simplify(number > 0, self.lowering.placement.bounds)
        if not self.reverse or after == FALSE:
            return after
        return all_of([after, self.valid(self.coordinate(domain, self.group, fixed) + self.group)])

    # -- digits -------------------------------------------------------------------------------------------------------
    def grouped(self, elements: StateView, low: Sequence[Digit]) -> tuple[list[StateView], StateView]:
        """The running states of each thread's groups, one view for each place in them, and the groups' totals."""
        places = [dict(zip(low, values[::-1], strict=True)) for values in product(*(range(d[1]) for d in low[::-1]))]
        views = [self.fixed(elements, place) for place in places]
        domain = [d for d in self.digits if d not in low]
        if len(places) == 1:
            return views, views[0]
        step = self.step(domain)
        found: dict[int, State] = {}
        order = list(reversed(range(len(places)))) if self.reverse else list(range(len(places)))
        for at, previous in zip(order, [None, *order], strict=False):
            here = step.read(views[at])
            if previous is None:
                found[at] = here
                continue
            combined = step.combine(found[previous], here)
            exists = self.valid(self.coordinate(domain, self.group) + previous) if self.reverse else TRUE
            found[at] = step.choose(exists, combined, here)
        total = found[0]
        if not self.reverse:
            for at in order[1:]:
                total = step.choose(self.valid(self.coordinate(domain, self.group) + at), found[at], total)
        made = step.finish([*(found[i] for i in range(len(places))), total])
        return made[:-1], made[-1]

    def fixed(self, view: StateView, values: Values) -> StateView:
        for digit, value in values.items():
            view = view.fix(digit, value)
        return view

    def lanes(self, total: StateView, bit: int, stride: int) -> StateView:
        """Merges blocks of two lanes whose indices differ in a bit."""
        step = self.step(total.digits)
        sent = self.widened(total)
        moved = [self.exchanged(buffer, bit) for buffer in sent]
        mine, theirs = step.read(total), step.read_wide(moved, R)
        upper = (TID // (1 << bit) % 2).eq(1)
        low, high = step.choose(upper, theirs, mine), step.choose(upper, mine, theirs)
        exists = self.valid(self.coordinate(total.digits, 2 * stride) + stride)
        running, here = (high, low) if self.reverse else (low, high)
        whole = step.choose(exists, step.combine(running, here), low)
        takes = all_of([negate(upper), exists]) if self.reverse else upper
        self.prefixed(step, theirs, takes)
        self.block = CoveredDigits((*self.block.bits, bit), self.block.digits, 2 * stride)
        return self.finished(step, whole)

    def prefixed(self, step: StateMap, before: State, takes: Expr) -> None:
        """Adds ``before`` to the prefixes of all groups of a block, where ``takes`` holds."""
        step.prefixes = {}
        for key, view in self.prefix.items():
            if view is None:
                step.prefixes[key] = before
                continue
            old = step.read(view)
            joined = step.choose(self.begun(step.domain, dict(key)), step.combine(before, old), before)
            step.prefixes[key] = step.choose(takes, joined, old)

    def finished(self, step: StateMap, total: State) -> StateView:
        """Emits a step; keeps the new prefixes and returns the total."""
        *views, whole = step.finish([*step.prefixes.values(), total])
        self.prefix = {**self.prefix, **dict(zip(step.prefixes, views, strict=True))}
        return whole

    def exchanged(self, buffer: SSAValue, bit: int) -> SSAValue:
        """The registers of the lane that differs in a bit."""
        return other_lane(self.lowering, buffer, bit, self.op)

    def widened(self, total: StateView) -> list[SSAValue]:
        """A state as it is exchanged between threads: in types of at least 32 bits, with every register set."""
        wide = [_wide(d) for d in self.dtypes]
        if wide == self.dtypes:
            return list(total.buffers)
        step = self.step(total.digits)
        values = [step.builder.cast(v, d) for v, d in zip(step.read(total), wide, strict=True)]
        return list(step.finish([values], wide)[0].buffers)

    def warps(self, total: StateView, bits: Sequence[int], stride: int) -> StateView:
        """Merges blocks of several warps: a lane of each publishes its total, and all threads combine them."""
        lowering, parts = self.lowering, 1 << len(bits)
        place = self.published(self.widened(total), bits, total)
        step = self.step(total.digits)
        start = self.coordinate(total.digits, stride * parts)
        exists = [self.valid(start + q * stride) for q in range(parts)]
        states = [step.read_wide(place, R * parts + q) for q in range(parts)]
        running = self.chain(step, states, exists)
        part = ordered(bits)
        if self.reverse:
            before = running[parts - 1]
            for q in range(parts - 2, 0, -1):
                before = step.choose(part < q, running[q], before)
            takes = all_of([part < parts - 1, self.valid(self.coordinate(total.digits, stride) + stride)])
        else:
            before = running[0]
            for q in range(1, parts - 1):
                before = step.choose(part > q, running[q], before)
            takes = part > 0
        self.prefixed(step, before, simplify(takes, lowering.placement.bounds))
        self.block = CoveredDigits((*self.block.bits, *bits), self.block.digits, stride * parts)
        return self.finished(step, running[0 if self.reverse else parts - 1])

    def chain(self, step: StateMap, states: Sequence[State], exists: Sequence[Expr]) -> list[State]:
        """The running states of consecutive blocks, some of which may be empty."""
        found = list(states)
        if self.reverse:
            for q in range(len(states) - 2, -1, -1):
                found[q] = step.choose(exists[q + 1], step.combine(found[q + 1], states[q]), states[q])
        else:
            for q in range(1, len(states)):
                found[q] = step.choose(exists[q], step.combine(found[q - 1], states[q]), found[q - 1])
        return found

    def published(self, sent: Sequence[SSAValue], bits: Sequence[int], total: StateView) -> list[SSAValue]:
        """The totals of all parts in registers, ``parts`` for each of the sender's."""
        lowering, parts = self.lowering, 1 << len(bits)
        others = [c for c in self.axes if c is not None and c != self.cls]
        kept = [b for c in others for b in lowering.placement.digits(c).thread_bits]
        kept += [m for m, _ in self.modes if isinstance(m, int) and m not in bits and m not in self.block.bits]
        rows, count = 1 << len(kept), t.registers_of(sent[0]).count.data
        idle = [b for b in range(self.home.threads.bit_length() - 1) if b not in bits and b not in kept]
        partials = SharedTile.plain(count * rows, parts, 1)
        size = partials.size_bytes
        cell = partials.offset_expr(R * rows + bit_field(kept), ordered(bits))
        publisher = bit_field(idle).eq(0) if idle else TRUE
        kinds = [t.registers_of(b).dtype.dtype for b in sent]
        shared = [lowering.shared_buffer("scan_parts", d, size) for d in kinds]
        if lowering.loops or lowering.placement.persistent:
            lowering.emit(t.Barrier())
        for place, buffer in zip(shared, sent, strict=True):
            lowering.emit(t.SharedWrite(place, buffer, cell, publisher), self.op)
        lowering.emit(t.Barrier())
        cell = partials.offset_expr(R // parts * rows + bit_field(kept), R % parts)
        read = [lowering.registers("scan", d, count * parts) for d in kinds]
        for place, buffer, dtype in zip(shared, read, kinds, strict=True):
            lowering.emit(t.SharedRead(place, buffer, cell, TRUE, vector=min(parts, 16 // dtype.bytes)), self.op)
        return read

    def repeats(self, total: StateView, digit: Digit) -> StateView:
        """Merges blocks of one thread that differ in a digit."""
        domain = [d for d in total.digits if d != digit]
        count, stride = digit[1], digit[2]
        step = self.step(domain)
        start = self.coordinate(domain, stride * count)
        exists = [self.valid(start + q * stride) for q in range(count)]
        running = self.chain(step, [step.read(total.fix(digit, q)) for q in range(count)], exists)
        step.prefixes, kept = {}, dict(self.prefix)
        self.prefix = {}
        for key, q in product(kept, range(count)):
            view, at = kept[key], (*key, (digit, q))
            old = None if view is None else view.fix(digit, q)
            previous = q + 1 if self.reverse else q - 1
            if not 0 <= previous < count:
                self.prefix[at] = old
                continue
            before, takes = running[previous], exists[previous] if self.reverse else TRUE
            if old is not None:
                here = step.read(old)
                joined = step.choose(self.begun(domain, dict(at)), step.combine(before, here), before)
                before = step.choose(takes, joined, here)
            self.prefix[at] = None
            step.prefixes[at] = before
        self.block = CoveredDigits(self.block.bits, (*self.block.digits, digit), stride * count)
        return self.finished(step, running[0 if self.reverse else count - 1])

    # -- ends ---------------------------------------------------------------------------------------------------------
    def begun_with(self, before: Sequence[SSAValue], total: StateView) -> StateView:
        """Combines the state before the first element with all groups; it is also the last state of an empty domain."""
        step = self.step(total.digits)
        first = step.read(StateView(tuple(before), total.digits))
        step.prefixes = {}
        for key, view in self.prefix.items():
            begun = FALSE if view is None else self.begun(step.domain, dict(key))
            if view is None or begun == FALSE:
                step.prefixes[key] = first
            else:
                step.prefixes[key] = step.choose(begun, step.combine(first, step.read(view)), first)
        whole = step.choose(self.valid(Const(0)), step.combine(first, step.read(total)), first)
        return self.finished(step, whole)

    def publish(
        self, local: Sequence[StateView], low: Sequence[Digit], total: StateView, begin: Sequence[SSAValue]
    ) -> None:
        """Every element with what comes before its group. The groups of one that has ``begin``, the state before the
        first element, are combined with it already."""
        step = self.step(self.digits)
        begun = TRUE if self.op.before else self.begun(self.digits)
        keyed = [(key, view) for key, view in self.prefix.items() if view is not None]
        before = step.picked([(dict(key), view) for key, view in keyed]) if keyed else None
        if self.op.exclusive is None:
            places = [dict(zip(low, v[::-1], strict=True)) for v in product(*(range(d[1]) for d in low[::-1]))]
            found = step.picked(list(zip(places, local, strict=False)))
            if before is not None:
                found = step.choose(begun, step.combine(before, found), found)
        else:
            if begin:
                at = self.home.register_of(self.inner, self.axes, R)
                before = [step.builder.read_at(b, at, d) for b, d in zip(begin, self.dtypes, strict=True)]
            assert before is not None, "an exclusive scan has a state before the first element"
            found = before
            previous, inside = self.earlier(step, local, low)
            if previous is not None:
                found = step.choose(inside, previous if begin else step.combine(before, previous), before)
        (running,) = step.finish([found])
        buffers = self.lowering.scope.buffers
        for result, buffer in zip(self.op.running, running.buffers, strict=True):
            buffers[result] = Buffered(buffer, self.axes)
        if not self.modes and not self.op.before:  # an axis of one element
            step = self.step(total.digits)
            (total,) = step.finish([step.read(total)])
        for result, buffer in zip(self.op.last, total.buffers, strict=True):
            buffers[result] = Buffered(buffer, self.inner)

    def earlier(self, step: StateMap, local: Sequence[StateView], low: Sequence[Digit]) -> tuple[State | None, Expr]:
        """The running state of the element before each one in its group, and whether there is such an element."""
        if len(local) == 1 and low:
            at = self.previous(low[0])
            states = [step.builder.read_at(b, at, d) for b, d in zip(local[0].buffers, self.dtypes, strict=True)]
            return states, self.follows(low[0])
        values = digits_of(self.digits)
        places = [dict(zip(low, v[::-1], strict=True)) for v in product(*(range(d[1]) for d in low[::-1]))]
        shift = 1 if self.reverse else -1
        pairs = [(places[i], local[i + shift]) for i in range(len(places)) if 0 <= i + shift < len(places)]
        if not pairs:
            return None, FALSE
        edge = places[-1 if self.reverse else 0]
        inside = negate(all_of(values[d].eq(v) for d, v in edge.items()))
        if self.reverse:
            at = sum((values[d] * d[2] for d in low), expr(0))
            inside = all_of([inside, self.valid(self.coordinate(self.digits, self.group) + at + 1)])
        return step.picked(pairs), inside


@dataclass
class StateMap:
    """A map over some digits' registers, whose results are states."""

    scan: ScanLowering
    domain: tuple[Digit, ...]
    prefixes: dict[tuple[tuple[Digit, int], ...], State] = field(
        default_factory=dict[tuple[tuple["Digit", int], ...], "State"]
    )

    def __post_init__(self) -> None:
        scan = self.scan
        count = prod(d[1] for d in self.domain)
        self.builder = MapBuilder(scan.home, scan.inner, {}, {}, {}, window=(0, count))
        self.predicates: dict[Expr, SSAValue] = {}

    def read(self, view: StateView) -> State:
        """A state at this register."""
        at = view.register(self.domain)
        return [self.builder.read_at(b, at, d) for b, d in zip(view.buffers, self.scan.dtypes, strict=True)]

    def read_wide(self, buffers: Sequence[SSAValue], at: Expr) -> State:
        """A state that has moved between threads."""
        wide = [self.builder.read_at(b, at, _wide(d)) for b, d in zip(buffers, self.scan.dtypes, strict=True)]
        return [self.builder.cast(v, d) for v, d in zip(wide, self.scan.dtypes, strict=True)]

    def picked(self, views: Sequence[tuple[Values, StateView]]) -> State:
        """Of several views the one whose digits are this register's; the first where none is."""
        values = digits_of(self.domain)
        found = self.read(views[0][1])
        for at, view in views[1:]:
            found = self.choose(all_of(values[d].eq(v) for d, v in at.items()), self.read(view), found)
        return found

    def combine(self, running: State, here: State) -> State:
        """The next running state."""
        return self.scan.combined(self.builder, running, here)

    def choose(self, condition: Expr, then: State, otherwise: State) -> State:
        """One of two states."""
        if condition == TRUE or then == otherwise:
            return then
        if condition == FALSE:
            return otherwise
        if condition not in self.predicates:
            self.predicates[condition] = self.builder.predicate(condition)
        test = self.predicates[condition]
        return [self.builder.choose(test, a, b) for a, b in zip(then, otherwise, strict=True)]

    def finish(self, states: Sequence[State], dtypes: Sequence[DType] | None = None) -> list[StateView]:
        """Emits the map; its results are ``states``."""
        lowering, kinds = self.scan.lowering, dtypes or self.scan.dtypes
        views = [
            StateView(tuple(lowering.registers("scan", d, self.builder.count) for d in kinds), self.domain)
            for _ in states
        ]
        values = [v for state in states for v in state]
        outputs = [b for view in views for b in view.buffers]
        lowering.emit(self.builder.finish(values, outputs, combines=self.scan.function), self.scan.op)
        return views


def _is_warp(mode: Digit | int) -> bool:
    return isinstance(mode, int) and mode >= _LANE_BITS


def _wide(dtype: DType) -> DType:
    """The type in which values are exchanged between threads."""
    if not dtype.is_bool and dtype.bits >= 32:
        return dtype
    return f32 if dtype.is_float else i32
