"""The gate of a kernel that relies on promises: where one is broken, nothing is written.

Of a kernel in roles its lowering builds the gate, and all of it is read from the Transport IR: before the roles part,
one integer is made of all flags of the checks, above 0 only where each of them is 0, and every write stands in a loop
of at most as many steps. A flag was set by a step before, or is how many of the CTA's threads found the promise broken
(``judged``). Of another kernel the gate is part of the Tile IR, as a stream around its program.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import NoReturn

from xdsl.ir import Operation, SSAValue

from tilewright.artifact.schema import Obligation
from tilewright.base.expr import TRUE, Const, Sym, all_of
from tilewright.compiler.proofs.checked_offsets import checks_every_offset, counted
from tilewright.compiler.proofs.evaluated_map import evaluated
from tilewright.compiler.proofs.loaded import Ascending
from tilewright.compiler.reliance import FAILED, gate_of, promises_of
from tilewright.diag import fail
from tilewright.lang.enums import AtomicFn, CompareFn
from tilewright.tile import dialect as tile
from tilewright.tile.indirect import index_symbol
from tilewright.tile.ops import GATE, OPEN_TRIP, operations
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t

_WRITES = (t.Store, t.AtomicReduce, t.Draw, t.Print, t.Trap, a.TmaStore, a.CopyOut)
_MOST_FLAGS = 10
"""The most flags for which all combinations are tried."""


def require_gate(kernel: tile.Kernel, lowered: t.Kernel) -> tuple[Obligation, ...]:
    """The obligations of a kernel that checks its promises itself; CRT010 for a kernel that writes although a promise
    is broken."""
    if not promises_of(kernel):
        return ()
    counter = gate_of(kernel)
    for op in operations(lowered):
        if isinstance(op, _WRITES) and not _reports(op) and (counter is None or not _inside(op, counter)):
            where = op.loc.data if op.loc is not None else "no line"
            _refuse(kernel, f"{op.name} at {where} outside of the gate", "every store behind the flags of the checks")
    if kernel.judged is not None:
        _require_judged(kernel, lowered)
        return (Obligation("added", "1 a CTA and promise that its threads find broken", FAILED),)
    if kernel.gate is not None and not _opened(lowered, kernel.gate.data):
        _refuse(kernel, f"a gate that {kernel.gate.data} need not open", "one that opens where every flag is 0")
    return ()


def _reports(op: Operation) -> bool:
    """Whether the op counts broken promises in a workspace that outlives the launch."""
    return isinstance(op, t.AtomicReduce) and tile.tensor_type(op.tensor).tensor_name.data == FAILED


def _refuse(kernel: tile.Kernel, found: str, required: str) -> NoReturn:
    fail("CRT010", where=tile.begins_at(kernel), found=found, required=required)


def _inside(op: t.TransportOp, counter: str) -> bool:
    return any(isinstance(around, t.For) and _is_gate(around, counter) for around in _around(op))


def _is_gate(loop: t.For, counter: str) -> bool:
    return loop.counter.data == counter and loop.begin.expr == Const(0) and loop.end.expr == OPEN_TRIP


def _around(op: t.TransportOp) -> Iterator[object]:
    parent = op.parent_op()
    while parent is not None:
        yield parent
        parent = parent.parent_op()


# -- what each CTA judges --------------------------------------------------------------------------------------------
def _require_judged(kernel: tile.Kernel, lowered: t.Kernel) -> None:
    """Requires that each CTA checks every promise, the gate opens where all hold, and broken ones are reported."""
    made, promises = _gate(lowered), promises_of(kernel)
    barriers = [] if made is None else [counted(lowered, buffer, made) for buffer in made.inputs]
    every = [Const(0)] * len(promises) == [r.expr for r in made.reads] if made is not None else False
    if made is None or not every or not _opens_at_zero(made, list(range(len(promises)))):
        _refuse(kernel, "a gate that not all promises open", "one that opens where no thread finds one broken")
    for number, (promise, barrier) in enumerate(zip(promises, barriers, strict=True)):
        own = (
            barrier
            if isinstance(promise, Ascending) and barrier and checks_every_offset(lowered, barrier, promise)
            else None
        )
        if own is None:
            _refuse(kernel, f"{promise} need not hold behind the gate", "offsets that all threads of each CTA judge")
        if not any(_adds(op, own, number) for op in lowered.body.block.ops):
            _refuse(kernel, f"{promise} is broken, and nothing says so", "1 added to its element of the gate's tensor")
    adds = [op for op in operations(lowered) if _reports(op)]
    if len(adds) != len(promises):
        _refuse(kernel, f"{len(adds)} reports", f"one for each of {len(promises)} promises")


def _gate(lowered: t.Kernel) -> t.Map | None:
    """The op that computes the gate's integer, before the roles split; it may be passed on in shared memory."""
    binds = [op for op in operations(lowered) if isinstance(op, t.Bind) and op.symbol.data == GATE]
    if len(binds) != 1 or binds[0].parent_op() is not lowered:
        return None
    made = _filler(binds[0].buffer, binds[0])
    if isinstance(made, t.SharedRead):
        shared = made.shared
        writes = [op for op in operations(lowered) if isinstance(op, t.SharedWrite) and op.shared == shared]
        made = _filler(writes[0].buffer, writes[0]) if len(writes) == 1 else None
    return made if isinstance(made, t.Map) and made.parent_op() is lowered and made.live.expr == TRUE else None


def _adds(op: Operation, barrier: t.BarrierCount, number: int) -> bool:
    """Whether the first thread adds 1 to an element of the gate's tensor exactly where the barrier has counted
    threads."""
    if not isinstance(op, t.AtomicReduce) or not _reports(op) or len(op.indices) != 1:
        return False
    place, one = _filler(op.indices[0], op), _only_writer(op.buffer)
    (count,) = (d.expr for d in tile.tensor_type(op.tensor).dims)
    at = Sym(index_symbol(0))
    return (
        op.fn.data is AtomicFn.ADD
        and op.guard.expr == all_of([Const(0) <= at, at < count, Sym(t.THREAD).eq(0)])
        and [c.expr for c in op.coords] == [at]
        and op.reads == (Const(0),)
        and isinstance(place, t.Map)
        and isinstance(one, t.Map)
        and not one.inputs
        and evaluated(one, {}, _compared) == 1
        and tuple(place.inputs) == (barrier.buffer,)
        and barrier.is_before_in_block(place)
        and [evaluated(place, {place.body.block.args[0]: k}, _compared) for k in (0, 1)] == [-1, number]
    )


def _only_writer(buffer: SSAValue) -> Operation | None:
    """The only op that writes registers, besides reductions into them."""
    found = [use.operation for use in buffer.uses if not isinstance(use.operation, t.AtomicReduce)]
    return found[0] if len(found) == 1 else None


# -- what opens it -----------------------------------------------------------------------------------------------------
def _opened(lowered: t.Kernel, flags: str) -> bool:
    """Whether the gate's integer is computed from all flags before the roles split, and is positive only where each is
    0."""
    made = _gate(lowered)
    if made is None:
        return False
    loaded = [_flag(buffer, place.expr, made, flags) for buffer, place in zip(made.inputs, made.reads, strict=True)]
    count = _count(lowered, flags)
    return set(loaded) == set(range(count)) and count <= _MOST_FLAGS and _opens_at_zero(made, loaded)


def _count(lowered: t.Kernel, flags: str) -> int:
    """The number of flags."""
    found = dict(zip((n.data for n in lowered.arg_names), lowered.body.block.args, strict=True))
    kind = found[flags].type
    assert isinstance(kind, tile.TensorType)
    (extent,) = (d.expr.constant for d in kind.dims)
    assert extent is not None, "as many flags as there are promises"
    return extent


def _filler(buffer: SSAValue, reader: Operation) -> Operation | None:
    """The only op besides a reader that uses registers."""
    others = [use.operation for use in buffer.uses if use.operation is not reader]
    before = len(others) == 1 and others[0].parent is reader.parent and others[0].is_before_in_block(reader)
    return others[0] if before else None


def _flag(buffer: SSAValue, place: object, made: t.Map, flags: str) -> int:
    """The number of the flag that a map reads at a register; -1 where it is none."""
    load = _filler(buffer, made)
    if (
        not isinstance(load, t.Load)
        or load.guard.expr != TRUE
        or load.live.expr != TRUE
        or not isinstance(place, Const)
    ):
        return -1
    kind = load.tensor.type
    named = isinstance(kind, tile.TensorType) and kind.tensor_name.data == flags and not load.indices
    coord = load.coords.data[0].expr.substitute({t.REGISTER: place})
    return coord.constant if named and coord.constant is not None else -1


def _opens_at_zero(made: t.Map, loaded: list[int]) -> bool:
    """Whether a map's only result is positive exactly where all flags are 0. It may compare flags with 0 alone, so that
    their signs decide it."""
    for flags in product((0, 1, -1), repeat=len(set(loaded))):
        held = [flags[number] for number in loaded]
        found = evaluated(made, dict(zip(made.body.block.args, held, strict=True)), _compared)
        if found is None or (found > 0) != (not any(flags)):
            return False
    return True


def _compared(op: Operation, values: Mapping[SSAValue, int]) -> int | None:
    """Evaluates constants and comparisons with 0, for integers of each sign."""
    match op:
        case tile.Constant():
            return int(op.value.data)
        case tile.Compare() if op.fn.data in (CompareFn.EQ, CompareFn.NE) and _is_zero(op.b):
            return (values[op.a] == 0) == (op.fn.data is CompareFn.EQ)
        case _:
            return None


def _is_zero(value: SSAValue) -> bool:
    return isinstance(value.owner, tile.Constant) and int(value.owner.value.data) == 0


__all__ = ["require_gate"]
