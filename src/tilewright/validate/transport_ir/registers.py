"""Register ops: element-wise code, reductions, moves between registers and lanes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from xdsl.ir import Operation, SSAValue

from tilewright.base.dtypes import DType
from tilewright.tile.dialect import TensorType, TileType
from tilewright.transport import dialect as t
from tilewright.validate.polynomials import Poly
from tilewright.validate.scalars import Scalar
from tilewright.validate.transport_ir.parameters import scalar_parameter, storage_bits
from tilewright.validate.transport_ir.plan import Plan
from tilewright.validate.undecided import Undecided
from tilewright.validate.values import Value


def declare(plan: Plan, op: t.Registers) -> None:
    """Declares a buffer of unknown contents."""
    kind = t.registers_of(op.buffer)
    width = storage_bits(kind.dtype.dtype)
    plan.buffers[op.buffer] = [plan.values.anything(width)] * kind.count.data


def element_wise(plan: Plan, op: t.Map) -> None:
    """Element-wise code."""
    outputs = [plan.buffers[o] for o in op.outputs]
    dtypes = [t.registers_of(o).dtype.dtype for o in op.outputs]
    inputs = [
        (plan.buffers[i], t.registers_of(i).dtype.dtype, read.expr) for i, read in zip(op.inputs, op.reads, strict=True)
    ]
    scalars = _arguments(plan)
    for r in range(op.count.data):
        live = plan.predicate(op.live.expr, r)
        here = plan.cases.both(live, plan.holds)
        if here == 0:
            results: list[Value] = [plan.values.anything(storage_bits(d)) for d in dtypes]
        else:
            given: dict[SSAValue, Scalar] = dict(scalars)
            for arg, (buffer, dtype, read) in zip(op.body.block.args, inputs, strict=True):
                index = plan.values.number(plan.expr(read, r))
                if index is None:
                    raise Undecided("a register that varies", plan.where(op))
                given[arg] = plan.scalars.unpack(dtype, plan.values.within(buffer[index], here))
            yielded = plan.scalars.body(
                op.body.block,
                given,
                lambda node, r=r: plan.expr(node, r),
                lambda node, r=r: plan.predicate(node, r),
            )
            packed = [plan.scalars.pack(d, v) for d, v in zip(dtypes, yielded, strict=True)]
            results = [plan.values.select(live, v, plan.values.anything(v.width)) for v in packed]
        for buffer, value in zip(outputs, results, strict=True):
            buffer[r] = value


def _arguments(plan: Plan) -> dict[SSAValue, Scalar]:
    """The kernel's scalar arguments."""
    found: dict[SSAValue, Scalar] = {}
    for arg, name in plan.names.items():
        if isinstance(arg.type, TensorType):
            continue
        assert isinstance(arg.type, TileType)
        dtype = arg.type.dtype.dtype
        if dtype.is_float:
            found[arg] = scalar_parameter(plan.values, name)
        else:
            found[arg] = plan.values.resize(plan.symbol(name), 64 if dtype.bits == 64 else 32)
    return found


def fold(plan: Plan, op: t.Fold) -> None:
    """Registers of a thread, in order."""
    sources, targets = [plan.buffers[s] for s in op.sources], [plan.buffers[s] for s in op.targets]
    dtypes = [t.registers_of(s).dtype.dtype for s in op.targets]
    taken = [t.registers_of(s).dtype.dtype for s in op.sources]
    for r in range(len(sources[0])):
        live = plan.predicate(op.live.expr, r)
        if live == 0:
            continue
        into = plan.values.number(plan.expr(op.into.expr, r))
        if into is None:
            raise Undecided("a fold into a register that varies", plan.where(op))
        here = plan.cases.both(live, plan.holds)
        new = [plan.scalars.unpack(d, plan.values.within(s[r], here)) for d, s in zip(taken, sources, strict=True)]
        old = [plan.scalars.unpack(d, plan.values.within(s[into], here)) for d, s in zip(dtypes, targets, strict=True)]
        merged = combined(plan, op.fn.data, dtypes, old, new)
        for d, target, value in zip(dtypes, targets, merged, strict=True):
            target[into] = plan.values.select(live, plan.scalars.pack(d, value), target[into])


def combined(
    plan: Plan, fn: str, dtypes: Sequence[DType], old: Sequence[Scalar], new: Sequence[Scalar]
) -> list[Scalar]:
    """One step of a reduction: the new value comes second."""
    if fn != "argmax":
        value, exact = plan.scalars.binary(fn, dtypes[0], old[0], new[0])
        if not exact and dtypes[0].is_int and dtypes[0].bits < 32:
            raise Undecided(f"{fn} of {dtypes[0]}")
        return [value]
    cases, compare, kind = plan.cases, plan.scalars.compare, dtypes[0]
    na, nb = compare("ne", kind, old[0], old[0]), compare("ne", kind, new[0], new[0])
    lower = compare("lt", dtypes[1], new[1], old[1])
    greater, same = compare("gt", kind, new[0], old[0]), compare("eq", kind, new[0], old[0])
    of_nans = cases.either(cases.negate(na), lower)
    of_numbers = cases.both(cases.negate(na), cases.either(greater, cases.both(same, lower)))
    take = cases.either(cases.both(nb, of_nans), cases.without(of_numbers, nb))
    return [plan.values.select(take, n, o) for n, o in zip(new, old, strict=True)]  # pyright: ignore


def shuffle(plan: Plan, op: t.Shuffle) -> None:
    """A butterfly over lanes."""
    buffers = [plan.buffers[b] for b in op.buffers]
    dtypes = [t.registers_of(b).dtype.dtype for b in op.buffers]
    for r in range(len(buffers[0])):
        for distance in (d.data for d in op.distances):
            old = [plan.scalars.unpack(d, b[r]) for d, b in zip(dtypes, buffers, strict=True)]
            moved = [from_lane(plan, "bfly", b[r], plan.word(distance)) for b in buffers]
            new = [plan.scalars.unpack(d, m) for d, m in zip(dtypes, moved, strict=True)]
            for d, b, value in zip(dtypes, buffers, combined(plan, op.fn.data, dtypes, old, new), strict=True):
                b[r] = plan.scalars.pack(d, value)


def from_lane(plan: Plan, mode: str, word: Value, lane: Value) -> Value:
    """shfl.sync of all lanes of a warp; words of 64 bits in halves."""
    if word.width == 64:
        halves = (from_lane(plan, mode, plan.values.field(word, 32 * k, 32, 32), lane) for k in (0, 1))
        low, high = (plan.values.lift(lambda p: plan.terms.resize(plan.terms.unsigned(p), 64), h) for h in halves)
        return plan.values.add(low, plan.values.scale(high, 1 << 32))
    whole = plan.values.field(word, 0, word.width, 32) if word.width < 32 else word
    rest = (lane, plan.word(31), plan.word(-1))
    found = plan.values.shuffled(mode, whole, *rest)
    if found is None:
        moved = plan.terms.data(32, 32, f"shfl.{mode}", whole, *rest)
        found = plan.terms.masked(moved, plan.values.may_be_set(whole))
    return plan.terms.field(found, 0, word.width, word.width)


def picked(plan: Plan, choices: Sequence[int], index: Value, of: Callable[[int], Value]) -> Value:
    """Selects by an index that depends on the thread."""
    if len(set(choices)) == 1:
        return of(choices[0])
    numbers = plan.terms.per_thread(index) if isinstance(index, Poly) else None
    if numbers is None:
        raise Undecided("a pick that varies")
    by: dict[int, np.ndarray] = {}
    for place, choice in enumerate(choices):
        mask = numbers == place
        by[choice] = by.get(choice, np.zeros_like(mask)) | mask
    return plan.values.choose([(plan.cases.threads_where(mask), of(choice)) for choice, mask in by.items()])


def select_registers(plan: Plan, op: t.RegisterSelect) -> None:
    """Register moves."""
    source, target = plan.buffers[op.source], plan.buffers[op.target]
    elements = op.elements.data
    made: list[Value] = []
    for choices, index in zip(op.choices, op.indices, strict=True):
        starts = [c.data for c in choices]
        for e in range(elements):
            made.append(picked(plan, starts, plan.expr(index.expr), lambda first, e=e: source[first + e]))
    target[:] = made


def exchange_lanes(plan: Plan, op: t.Exchange) -> None:
    """Rounds of lane shuffles, then a select."""
    source, target, elements = plan.buffers[op.source], plan.buffers[op.target], op.elements.data
    bits = source[0].width
    per = max(1, 32 // bits)
    words = max(1, elements // per)
    size = bits * min(elements, per)
    rounds: list[list[Value]] = []
    home = plan.terms.sub(_thread(plan), plan.terms.scale(plan.terms.floordiv(_thread(plan), 32), 32))
    for choices, index, lane in zip(op.sends, op.send_indices, op.lanes, strict=True):
        starts, at, to = [c.data for c in choices], plan.expr(index.expr), plan.expr(lane.expr)
        row: list[Value] = []
        for word in range(words):
            value = picked(plan, starts, at, lambda first, word=word: packed(plan, source, first, word, elements))
            row.append(value if to is home else _shuffled(plan, value, to))
        rounds.append(row)
    made: list[Value] = []
    for choices, index in zip(op.taken, op.taken_indices, strict=True):
        for e in range(elements):
            word, within = (e // per, e % per) if elements >= per else (0, e)

            def element(k: int, word: int = word, within: int = within) -> Value:
                return plan.values.field(rounds[k][word], within * bits, bits, bits)

            made.append(picked(plan, [c.data for c in choices], plan.expr(index.expr), element))
    del size
    target[:] = made


def _shuffled(plan: Plan, value: Value, lane: Value) -> Value:
    return from_lane(plan, "idx", value, plan.values.resize(lane, 32))


def _thread(plan: Plan) -> Poly:
    found = plan.symbols[t.THREAD]
    assert isinstance(found, Poly)
    return found


def packed(plan: Plan, source: Sequence[Value], first: int, word: int, elements: int) -> Value:
    """A word of a group of elements; a group smaller than a word in its low bits."""
    bits = source[0].width
    if bits >= 32:
        return source[first + word]
    per = 32 // bits
    count = min(per, elements)
    total: Value = plan.word(0)
    for k in range(count):
        piece = plan.values.field(source[first + word * per + k], 0, bits, 32)
        total = plan.values.add(total, plan.values.scale(piece, 1 << (k * bits)))
    return total


OPS: dict[type[Operation], Callable[..., None]] = {
    t.Registers: declare,
    t.Map: element_wise,
    t.Fold: fold,
    t.Shuffle: shuffle,
    t.RegisterSelect: select_registers,
    t.Exchange: exchange_lanes,
}
