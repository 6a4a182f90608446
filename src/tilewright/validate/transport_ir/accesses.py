"""Loads and stores of registers: of tensors, also at loaded coordinates, and of shared memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from xdsl.ir import Operation

from tilewright.base.dtypes import DType
from tilewright.base.expr import Const, Expr, Sym, all_of
from tilewright.lang.enums import AtomicFn
from tilewright.tile.indirect import index_symbol
from tilewright.tile.ops import tensor_type
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t
from tilewright.validate.cases import Condition
from tilewright.validate.memory import SHARED
from tilewright.validate.polynomials import Poly
from tilewright.validate.regions import NOTHING
from tilewright.validate.transport_ir.plan import Plan
from tilewright.validate.undecided import Undecided
from tilewright.validate.values import Value


def store_element(
    plan: Plan, op: Operation, name: str, offset: Value, value: Value, holds: Condition, order: int, kind: str = "st"
) -> None:
    if holds != 0:
        size = plan.memory.element_bytes[name]
        plan.memory.store(plan.region, holds, name, offset, size, value, plan.where(op), order, NOTHING, kind)


def places(
    plan: Plan, op: t.Load | t.Store | t.AtomicReduce, register: int
) -> list[tuple[Condition, Condition, Value]]:
    """The offset of a register's element: for each case of how loaded coordinates are read as integers, the condition
    of the case, the access's guard, and the offset."""
    found: list[tuple[Condition, Condition, Value]] = []
    for holds, names in readings(plan, op, register):
        guard = plan.predicate(op.guard.expr.substitute(names) if names else op.guard.expr, register)
        if plan.cases.both(holds, guard) != 0:
            coords = [plan.expr(c.expr.substitute(names) if names else c.expr, register) for c in op.coords]
            found.append((holds, guard, plan.offset(op.tensor, coords)))
    return found


def readings(
    plan: Plan, op: t.Load | t.Store | t.AtomicReduce | a.ThreadCopies, register: int
) -> list[tuple[Condition, dict[str, Expr]]]:
    """The ways in which the loaded coordinates of a register's element are read as integers: when, and names of the
    integers."""
    ways: list[tuple[Condition, dict[str, Expr]]] = [(plan.cases.true, {})]
    for k, (buffer, read) in enumerate(zip(op.indices, op.reads, strict=True)):
        place = plan.values.number(plan.expr(read, register))
        if place is None:
            raise Undecided("a register that varies", plan.where(op))
        signed = t.registers_of(buffer).dtype.dtype.signed
        words = list(integers(plan, plan.buffers[buffer][place], plan.where(op), signed=signed))
        ways = [
            (both, {**names, index_symbol(k): _named_word(plan, p)})
            for holds, names in ways
            for c, p in words
            if (both := plan.cases.both(holds, c)) != 0
        ]
    return ways


def integers(plan: Plan, word: Value, where: str, *, signed: bool = True) -> Iterator[tuple[Condition, Poly]]:
    """A loaded integer by cases, read with a sign or without."""
    for holds, p in plan.values.parts(word):
        if not plan.arithmetic.is_data(p):
            yield holds, plan.terms.resize(p, 0)
            continue
        readings = plan.arithmetic.reader.readings(p, signed=signed)
        if readings is None:
            raise Undecided("a coordinate that is computed from loaded integers", where)
        yield from ((plan.cases.both(holds, c), q) for c, q in readings)


def _named_word(plan: Plan, p: Poly) -> Expr:
    """A name for an integer that was loaded."""
    name = f"$word{p.id}"
    plan.symbols[name] = p
    return Sym(name)


def load(plan: Plan, op: t.Load) -> None:
    """Elements whose guard is false become 0; those that are not live are left open."""
    buffer, name = plan.buffers[op.buffer], plan.tensors[op.tensor]
    size, state, where = plan.memory.element_bytes[name], plan.states.get(name), plan.where(op)
    order = plan.next()
    for r in range(len(buffer)):
        live = plan.predicate(op.live.expr, r)
        width = buffer[r].width
        word: Value = plan.terms.const(width, 0)
        for read, guard, offset in places(plan, op, r) if op.shift is None else _shifted(plan, op, r):
            there = plan.cases.both(read, guard)
            here = plan.cases.both(plan.holds, there)
            if op.shift is None:
                _vector(plan, op, r, name, offset)
            found = plan.memory.load(plan.region, here, name, offset, size, state, where, order, NOTHING)
            word = plan.values.select(there, found, word)
        buffer[r] = plan.values.select(live, word, plan.values.anything(width))


def _shifted(plan: Plan, op: t.Load, register: int) -> Iterator[tuple[Condition, Condition, Value]]:
    """The same of vectors that lie in two: where both are read, for each number of elements that they are shifted by;
    elsewhere for whichever it is."""
    assert op.shifted is not None
    symbol, width = op.shifted, op.vector.data
    by = plan.symbol(symbol)
    low, high = plan.terms.interval(by) if isinstance(by, Poly) else (None, None)
    if low is None or high is None or low < 0 or high >= width or width & (width - 1):
        raise Undecided("vectors that are shifted by any number of elements", plan.where(op))
    first = register - register % width
    guard, coords = op.guard.expr, [c.expr for c in op.coords]
    ends = ((first, width), (first + width - 1, 0))  # of both vectors the first element and the last
    whole = plan.cases.all(plan.predicate(guard.substitute({symbol: Const(k)}), r) for r, k in ends)
    bits = [plan.values.test(plan.cases.zero, plan.values.field(by, b, 1, 32)) for b in range(width.bit_length() - 1)]
    for k in range(width):
        told = (plan.cases.negate(bit) if k >> b & 1 else bit for b, bit in enumerate(bits))
        at = [plan.expr(c.substitute({symbol: Const(k)}), register) for c in coords]
        yield plan.cases.all((whole, *told)), plan.cases.true, plan.offset(op.tensor, at)
    at = [plan.expr(c, register) for c in coords]
    elsewhere = plan.cases.negate(whole)
    yield elsewhere, plan.predicate(guard, register), plan.offset(op.tensor, at)


def load_coordinate(plan: Plan, op: a.LoadCoordinate) -> None:
    """A name for an integer, or for the extent where it is not read or leads outside."""
    name, where = plan.tensors[op.tensor], plan.where(op)
    guard, extent = plan.predicate(op.guard.expr), plan.expr(op.extent.expr)
    offset = plan.offset(op.tensor, [plan.expr(c.expr) for c in op.coords])
    order, size = plan.next(), plan.memory.element_bytes[name]
    here = plan.cases.both(plan.holds, guard)
    word = plan.memory.load(plan.region, here, name, offset, size, plan.states.get(name), where, order, NOTHING)
    found: Value = extent
    for holds, p in integers(plan, word, where, signed=tensor_type(op.tensor).element.signed):
        integer = _named_word(plan, p)
        inside = plan.predicate(all_of([Const(0) <= integer, integer < op.extent.expr]))
        found = plan.values.select(plan.cases.all((guard, holds, inside)), plan.expr(integer), found)
    plan.bind(op.symbol.data, found)


def store(plan: Plan, op: t.Store) -> None:
    """Elements whose guard holds."""
    plan.stored(plan.tensors[op.tensor], _written_to(plan, op, "st"))


def draw(plan: Plan, op: t.Draw) -> None:
    """The number of CTAs and, where there are more programs, what was in memory, to which 1 is added."""
    if sum(isinstance(other, t.Draw) for other in plan.kernel.walk()) > 1:
        raise Undecided("numbers that are drawn at several places", plan.where(op))
    name, order = plan.tensors[op.tensor], plan.next()
    offset = plan.offset(op.tensor, [plan.terms.const(0, 0)])
    guard = plan.values.test(plan.cases.less, plan.values.resize(plan.launch.ctas, 0), plan.expr(op.programs.expr))
    ctas = plan.values.resize(plan.launch.ctas, 32)
    store_element(plan, op, name, offset, plan.word(1), plan.cases.both(plan.holds, guard), order, "red.add.u32")
    plan.marks[order] = plan.region.events[-1]
    old = plan.terms.data(32, 32, "old", "ir", order)
    plan.buffers[op.buffer][0] = plan.values.select(guard, plan.values.add(old, ctas), ctas)


def atomic_reduce(plan: Plan, op: t.AtomicReduce) -> None:
    """Reductions into memory. Extrema of f32 are those of integers: of a number without a sign bit by its bits as an
    s32, of others by their order turned round, as u32."""
    dtype, fn = t.registers_of(op.buffer).dtype.dtype, op.fn.data
    if dtype.is_float and fn is not AtomicFn.ADD:
        _extremes(plan, op)
        return
    plan.stored(plan.tensors[op.tensor], _written_to(plan, op, f"red.{_form(fn, dtype)}"))


def _form(fn: AtomicFn, dtype: DType) -> str:
    """The operation and type of the instruction (PTX ISA 9.1, 9.7.13.7, red)."""
    match fn:
        case AtomicFn.ADD if dtype.is_int:
            return f"add.u{dtype.bits}"
        case AtomicFn.ADD:
            return f"add.{dtype.name}" if dtype.bits == 32 else f"add.noftz.{dtype.name}"
        case AtomicFn.MIN | AtomicFn.MAX:
            return f"{fn}.{'s' if dtype.signed else 'u'}{dtype.bits}"
        case AtomicFn.AND | AtomicFn.OR:
            return f"{fn}.b{dtype.bits}"
        case AtomicFn.SET:
            return f"exch.b{dtype.bits}"


def _extremes(plan: Plan, op: t.AtomicReduce) -> None:
    fn, arithmetic, zero = op.fn.data, plan.arithmetic, plan.word(0)
    turned = AtomicFn.MIN if fn is AtomicFn.MAX else AtomicFn.MAX
    words: list[Value] = []
    for word in plan.buffers[op.buffer]:
        nan = arithmetic.compare_floats("nan", word, word)
        words.append(arithmetic.selected(nan, plan.word(fn.nan_bits), word))
    signs = [arithmetic.compare("lt", "s32", word, zero) for word in words]
    ways = ((f"red.{fn}.s32", [plan.cases.negate(s) for s in signs]), (f"red.{turned}.u32", signs))
    some: Condition = 0
    for kind, taken in ways:
        some = plan.cases.either(some, _written_to(plan, op, kind, words, taken))
    plan.stored(plan.tensors[op.tensor], some)


def _written_to(
    plan: Plan,
    op: t.Store | t.AtomicReduce,
    kind: str,
    words: Sequence[Value] | None = None,
    taken: Sequence[Condition] | None = None,
) -> Condition:
    """Each element, where its guard holds; where any is written. ``words`` are written instead of the buffer's, each
    where ``taken`` holds."""
    buffer, name = plan.buffers[op.buffer], plan.tensors[op.tensor]
    order = plan.next()
    some: Condition = 0
    for r, value in enumerate(buffer if words is None else words):
        for read, guard, offset in places(plan, op, r):
            here = plan.cases.all((plan.holds, read, guard, plan.cases.true if taken is None else taken[r]))
            _vector(plan, op, r, name, offset)
            store_element(plan, op, name, offset, value, here, order, kind)
            some = plan.cases.either(some, here)
    return some


def _vector(plan: Plan, op: t.Load | t.Store | t.AtomicReduce, register: int, name: str, offset: Value) -> None:
    """Notes the vector that begins with a register."""
    if register % op.vector.data == 0:
        plan.moved(name, offset, op.vector.data * plan.memory.element_bytes[name])


def shared_write(plan: Plan, op: t.SharedWrite) -> None:
    """Registers to shared memory. Nothing reads what is written to a buffer for which the PTX declares no variable."""
    if not plan.is_declared(op.shared):
        return
    buffer, dtype = plan.buffers[op.buffer], t.shared_of(op.shared).dtype.dtype
    order, some = plan.next(), 0
    for r, value in enumerate(buffer):
        first, within = r - r % op.vector.data, r % op.vector.data
        here = plan.cases.both(plan.holds, plan.predicate(op.guard.expr, first))
        element = plan.values.add(plan.expr(op.offset.expr, first), plan.terms.const(0, within))
        at = plan.place(op.shared, plan.values.scale(element, dtype.bytes))
        if within == 0:
            plan.moved(SHARED, at, op.vector.data * dtype.bytes)
        if here != 0:
            plan.memory.store(plan.region, here, SHARED, at, dtype.bytes, value, plan.where(op), order, NOTHING)
        some = plan.cases.either(some, here)
    plan.stored(SHARED, some)


def shared_read(plan: Plan, op: t.SharedRead) -> None:
    """Shared memory to registers; those whose guard is false keep their value."""
    buffer, dtype, where = plan.buffers[op.buffer], t.shared_of(op.shared).dtype.dtype, plan.where(op)
    order = plan.next()
    for r, old in enumerate(list(buffer)):
        first, within = r - r % op.vector.data, r % op.vector.data
        guard = plan.predicate(op.guard.expr, first)
        here = plan.cases.both(plan.holds, guard)
        if guard == 0:
            continue
        element = plan.values.add(plan.expr(op.offset.expr, first), plan.terms.const(0, within))
        at = plan.place(op.shared, plan.values.scale(element, dtype.bytes))
        if within == 0:
            plan.moved(SHARED, at, op.vector.data * dtype.bytes)
        state = plan.states.get(SHARED)
        word = plan.memory.load(plan.region, here, SHARED, at, dtype.bytes, state, where, order, NOTHING)
        buffer[r] = plan.values.select(guard, word, old)
        binds = [use.operation for use in op.buffer.uses if isinstance(use.operation, t.Bind)]
        if r == 0 and state is not None and binds:
            if guard != plan.cases.true:
                raise Undecided("a bound that not all threads read", where)
            value = plan.bounds.value(binds[0], plan.loops)
            plan.bounds.add(value, plan.loops, plan.holds, at, dtype.bytes, state, where)
            plan.named[op.buffer] = value
            buffer[r] = plan.terms.resize(value, 8 * dtype.bytes)


def cluster_read(plan: Plan, op: t.ClusterRead) -> None:
    """Shared memory of other CTAs to registers, a vector at a time."""
    buffer, dtype, width = plan.buffers[op.buffer], t.shared_of(op.shared).dtype.dtype, op.vector.data
    if dtype.bits != 32:
        raise Undecided(f"{op.name} of {dtype.name}", plan.where(op))
    state = plan.states.get(SHARED)
    for first in range(0, len(buffer), width):
        if plan.predicate(op.guard.expr, first) != plan.cases.true:
            raise Undecided(f"{op.name} under a condition", plan.where(op))
        at = plan.place(op.shared, plan.values.scale(plan.expr(op.offset.expr, first), dtype.bytes))
        rank = plan.expr(op.cta.expr, first)
        plan.event(op, "ld.shared::cluster", width, at, rank, state)
        for k in range(width):
            buffer[first + k] = plan.terms.data(32, 32, "of cluster", width, k, at, rank, state)


def shared_count(plan: Plan, op: t.SharedCount) -> None:
    """Atomic additions of 1 to the elements that registers name; a number that names none is skipped."""
    buffer, kind, where = plan.buffers[op.buffer], t.shared_of(op.shared), plan.where(op)
    size, one = kind.dtype.dtype.bytes, plan.word(1)
    order, some = plan.next(), 0
    for r, word in enumerate(buffer):
        guarded = plan.cases.both(plan.holds, plan.predicate(op.guard.expr, r))
        if guarded == 0:
            continue
        for read, number in integers(plan, plan.values.within(word, guarded), where):
            below = plan.cases.less(number, plan.terms.const(0, kind.count.data))
            here = plan.cases.all((guarded, read, plan.cases.at_least(number, 0), below))
            if here != 0:
                at = plan.place(op.shared, plan.values.scale(number, size))
                plan.memory.store(plan.region, here, SHARED, at, size, one, where, order, NOTHING, "red.add.u32")
            some = plan.cases.either(some, here)
    plan.stored(SHARED, some)


OPS: dict[type[Operation], Callable[..., None]] = {
    t.Load: load,
    a.LoadCoordinate: load_coordinate,
    t.Store: store,
    t.Draw: draw,
    t.AtomicReduce: atomic_reduce,
    t.SharedWrite: shared_write,
    t.SharedRead: shared_read,
    t.ClusterRead: cluster_read,
    t.SharedCount: shared_count,
}
