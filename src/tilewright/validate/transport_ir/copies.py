"""Copies between tensors and shared memory: by tensor maps, and by threads."""

from __future__ import annotations

from collections.abc import Callable

from xdsl.ir import Operation

from tilewright.transport import asynchronous as a
from tilewright.validate.cases import Condition
from tilewright.validate.memory import SHARED
from tilewright.validate.regions import NOTHING
from tilewright.validate.transport_ir.accesses import readings, store_element
from tilewright.validate.transport_ir.plan import Plan
from tilewright.validate.values import Value


def tma_load(plan: Plan, op: a.TmaLoad) -> None:
    """A box into shared memory."""
    coords = [plan.values.resize(plan.expr(c.expr), 32) for c in op.coords]
    to, bar = plan.place(op.shared, plan.expr(op.offset.expr)), plan.bar(op.bars, plan.expr(op.index.expr))
    mask: Value | None = None
    if op.ctas:
        total: Value = plan.word(0)
        for rank in op.ctas:
            bit = plan.values.lift(
                lambda x: plan.arithmetic.shift("shl", plan.word(1), x, signed=True),
                plan.values.resize(plan.expr(rank.expr), 32),
            )
            total = plan.values.lift(lambda x, y: plan.arithmetic.bitwise("or", x, y), total, bit)
        mask = plan.values.field(total, 0, 16, 16)
    plan.event(op, "tma.load", _map_name(op), to, bar, mask, *coords)


def tma_store(plan: Plan, op: a.TmaStore) -> None:
    """A box from shared memory."""
    coords = [plan.values.resize(plan.expr(c.expr), 32) for c in op.coords]
    plan.event(op, "tma.store", _map_name(op), plan.place(op.shared, plan.expr(op.offset.expr)), *coords)


def _map_name(op: a.TmaLoad | a.TmaStore) -> str:
    owner = op.map.owner
    assert isinstance(owner, a.TensorMap)
    return owner.hint.data


def bulk_wait(plan: Plan, op: a.BulkWait) -> None:
    """cp.async.bulk.wait_group."""
    read = ".read" if op.read.data else ""
    plan.event(op, f"cp.async.bulk.wait_group{read}", plan.word(op.pending.data))


def thread_copies(plan: Plan, op: a.CpAsync | a.LoadStore) -> None:
    """Copies into shared memory."""
    name, size = plan.tensors[op.tensor], op.copy_bytes
    element = plan.memory.element_bytes[name]
    loaded: list[tuple[int, Value]] = []
    order = plan.next()
    for r in range(op.count.data):
        active = plan.cases.both(plan.holds, plan.predicate(op.active.expr, r))
        guard, offset = _source(plan, op, r)
        left = plan.values.sub(plan.expr(op.stop.expr), plan.expr(op.coords.data[op.axis.data].expr, r))
        to = plan.place(op.shared, plan.expr(op.offset.expr, r))
        if isinstance(op, a.CpAsync):
            read = _read_bytes(plan, left, op.vector.data, element)
            read = plan.values.select(guard, read, plan.word(0))
            base = plan.terms.of(0, plan.terms.atom("address", name, low=0))
            plan.event(op, "cp.async", to, plan.values.add(base, offset), size, read, holds=active)
            continue
        inside = plan.cases.both(guard, plan.values.test(lambda x: plan.cases.at_least(x, 1), left))
        here = plan.cases.both(active, inside)
        where = plan.where(op)
        plan.moved(name, offset, size)
        word = plan.memory.load(plan.region, here, name, offset, size, plan.states.get(name), where, order, NOTHING)
        loaded.append((r, plan.values.select(inside, word, plan.terms.const(8 * size, 0))))
    for r, word in loaded:
        active = plan.cases.both(plan.holds, plan.predicate(op.active.expr, r))
        to = plan.place(op.shared, plan.expr(op.offset.expr, r))
        where = plan.where(op)
        plan.moved(SHARED, to, size)
        plan.memory.store(plan.region, active, SHARED, to, size, word, where, plan.next(), NOTHING)
    if loaded:
        plan.stored(SHARED, plan.holds)


def _source(plan: Plan, op: a.CpAsync | a.LoadStore, copy: int) -> tuple[Condition, Value]:
    """Whether a copy reads its tensor, and where it begins."""
    guard: Condition = 0
    offset: Value | None = None
    for holds, names in readings(plan, op, copy):
        here = plan.predicate(op.guard.expr.substitute(names), copy)
        at = plan.offset(op.tensor, [plan.expr(c.expr.substitute(names), copy) for c in op.coords])
        guard = plan.cases.either(guard, plan.cases.both(holds, here))
        offset = at if offset is None else plan.values.select(holds, at, offset)
    assert offset is not None, "a loaded integer is read in some way"
    return guard, offset


def _read_bytes(plan: Plan, left: Value, vector: int, element: int) -> Value:
    """max(min(left, vector), 0) * element."""
    least = plan.values.lift(lambda x: plan.arithmetic.extreme("min", x, plan.terms.const(0, vector)), left)
    least = plan.values.lift(lambda x: plan.arithmetic.extreme("max", x, plan.terms.const(0, 0)), least)
    return plan.values.resize(plan.values.scale(least, element), 32)


def zero_fill(plan: Plan, op: a.ZeroFill) -> None:
    """Zeros, stored to shared memory."""
    for r in range(op.count.data):
        holds = plan.cases.both(plan.holds, plan.predicate(op.guard.expr, r))
        to, size = plan.place(op.shared, plan.expr(op.offset.expr, r)), op.store_bytes
        zero = plan.terms.const(8 * size, 0)
        plan.moved(SHARED, to, size)
        plan.memory.store(plan.region, holds, SHARED, to, size, zero, plan.where(op), plan.next(), NOTHING)
    plan.stored(SHARED, plan.holds)


def copy_out(plan: Plan, op: a.CopyOut) -> None:
    """Copies from shared memory to a tensor, of the elements before ``stop``."""
    name, size = plan.tensors[op.tensor], op.copy_bytes
    element = plan.memory.element_bytes[name]
    words: list[Value] = []
    order = plan.next()
    for r in range(op.count.data):
        at = plan.place(op.shared, plan.expr(op.offset.expr, r))
        plan.moved(SHARED, at, size)
        words.append(
            plan.memory.load(
                plan.region, plan.holds, SHARED, at, size, plan.states.get(SHARED), plan.where(op), order, NOTHING
            )
        )
    order = plan.next()
    for r, word in enumerate(words):
        guard = plan.cases.both(plan.predicate(op.active.expr, r), plan.predicate(op.guard.expr, r))
        coords = [plan.expr(c.expr, r) for c in op.coords]
        left = plan.values.sub(plan.expr(op.stop.expr), coords[op.axis.data])
        plan.moved(name, plan.offset(op.tensor, coords), size)
        for k in range(op.vector.data):
            place = list(coords)
            place[op.axis.data] = plan.values.add(place[op.axis.data], plan.terms.const(0, k))
            inside = plan.values.test(lambda x, k=k: plan.cases.at_least(x, k + 1), left)
            here = plan.cases.both(plan.holds, plan.cases.both(guard, inside))
            value = plan.values.field(word, 8 * element * k, 8 * element, 8 * element)
            store_element(plan, op, name, plan.offset(op.tensor, place), value, here, order)
    plan.stored(name, plan.holds)


def cp_async_arrive(plan: Plan, op: a.CpAsyncMbarrierArrive) -> None:
    """An arrival when earlier cp.async are done."""
    plan.event(op, "cp.async.mbarrier.noinc", plan.bar(op.bars, plan.expr(op.index.expr)))


OPS: dict[type[Operation], Callable[..., None]] = {
    a.TmaLoad: tma_load,
    a.TmaStore: tma_store,
    a.BulkWait: bulk_wait,
    a.CpAsync: thread_copies,
    a.LoadStore: thread_copies,
    a.ZeroFill: zero_fill,
    a.CopyOut: copy_out,
    a.CpAsyncMbarrierArrive: cp_async_arrive,
}
