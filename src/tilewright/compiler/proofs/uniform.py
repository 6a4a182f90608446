"""Integers that were loaded and become symbols are the same in all threads, and in all roles.

All threads read one element of shared memory, or hold what a barrier of the CTA has counted. Every loop, branch and
barrier behind such a symbol rests on it, also where another kernel overwrites the tensor that the integer came from
while this one runs. In a kernel with roles one role writes the element, once a program, and the others read what it
wrote for the same program::

    writer     wait empty . st.shared (one thread) . arrive full      full: one arrival a phase
    reader     wait full, of the program's parity . ld.shared . arrive empty

The n-th phase of full completes with the writer's n-th arrival, after its n-th write. A reader's n-th wait asks for the
parity of n, so it returns when that phase has completed; that the next write comes after the read is proved of the
protocol ("bytes are read before they are overwritten"). All roles walk the same programs.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Operation, SSAValue

from tilewright.base import verdict
from tilewright.base.expr import TRUE, Const, Sym
from tilewright.base.verdict import Proof, Proved, Unknown
from tilewright.compiler.proofs.checked_offsets import counted
from tilewright.compiler.timing import timed
from tilewright.tile import dialect as tile
from tilewright.tile.ops import operations, ops_before
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t

UNIFORM = "uniform"
METHOD = "one element"


def bound_in(lowered: t.Kernel) -> list[t.Bind]:
    """The ops that bind loaded integers to symbols."""
    return [op for op in operations(lowered) if isinstance(op, t.Bind)]


@timed("prove")
def prove_uniform(lowered: t.Kernel) -> Proof[str]:
    """Whether each symbol's buffer holds one element of shared memory, which all threads of all roles have read, or
    what is computed of the numbers that barriers of the CTA have counted."""
    binds = bound_in(lowered)
    for op in binds:
        where = f"{op.symbol.data} at {op.loc.data if op.loc is not None else 'no line'}"
        if _of_all_threads(lowered, op):
            continue
        read = read_of(op)
        if read is None:
            return Unknown(UNIFORM, where, "one element of shared memory, read by all threads")
        others = [read_of(other) for other in binds if _in_other_role(op, other)]
        if others and not _published(lowered, read, others):
            return Unknown(UNIFORM, where, "one role that writes it once a program, and others that read that")
    symbols = ", ".join(dict.fromkeys(op.symbol.data for op in binds))
    return Proved((verdict.Discharged(UNIFORM, METHOD, symbols),) if binds else ())


def _of_all_threads(lowered: t.Kernel, op: t.Bind) -> bool:
    """The symbol is computed, alike in all threads, from what barriers of the CTA have counted."""
    made = [use.operation for use in op.buffer.uses if use.operation is not op]
    match made:
        case [t.Map() as computed] if computed.parent is op.parent and computed.is_before_in_block(op):
            alike = all(
                isinstance(x, tile.Constant | tile.Compare | tile.Select | t.Yield) for x in computed.body.walk()
            )
            given = zip(computed.inputs, computed.reads, strict=True)
            return (alike and computed.live.expr == TRUE) and all(
                read.expr == Const(0) and counted(lowered, buffer, computed) is not None for buffer, read in given
            )
        case _:
            return False


def read_of(op: t.Bind) -> t.SharedRead | None:
    """The one read by which the symbol's buffer is filled, by all threads, at a constant place."""
    others = [use.operation for use in op.buffer.uses if use.operation is not op]
    read = others[0] if len(others) == 1 else None
    if not isinstance(read, t.SharedRead) or read.parent is not op.parent or not read.is_before_in_block(op):
        return None
    return read if read.guard.expr == TRUE and read.offset.expr.constant is not None else None


# -- between roles -----------------------------------------------------------------------------------------------------
def _in_other_role(op: t.Bind, other: t.Bind) -> bool:
    """Whether the other op binds the same symbol in another role."""
    return other.symbol == op.symbol and a.role_of(other) is not a.role_of(op)


def _published(lowered: t.Kernel, read: t.SharedRead, others: Sequence[t.SharedRead | None]) -> bool:
    """Whether one role writes the element once a program, and all others read what it wrote for the same program."""
    reads = [read, *(other for other in others if other is not None)]
    if len(reads) <= len(others) or any((x.shared, x.offset) != (read.shared, read.offset) for x in reads):
        return False
    order = operations(lowered)
    writes = [op for op in order if isinstance(op, t.SharedWrite) and op.shared == read.shared]
    own = [op for op in writes if op.offset.expr.constant is None or op.offset == read.offset]
    if len(own) != 1 or own[0].offset != read.offset or not _by_one_thread(own[0]):
        return False
    (write,) = own
    walk = once_per_program(write)
    walks = [once_per_program(op) for op in reads]
    if walk is None or len({id(w) for w in walks}) < len(walks):
        return False
    arrive = _arrived(order, write, walk)
    if arrive is None:
        return False
    for each, around in zip(reads, walks, strict=True):
        if around is None or not _same_programs(around, walk):
            return False
        if not (_read_by_writer(write, each, arrive) if around is walk else _awaited(each, around, arrive.bars)):
            return False
    return True


def _read_by_writer(write: t.SharedWrite, read: t.SharedRead, arrive: a.MbarrierArrive) -> bool:
    """The writer's role reads between the write and the arrival: the same elected thread, or all threads between
    barriers."""
    if elector(write) is not None:
        return elector(write) is elector(read) and write.is_before_in_block(read)
    barriers = [op for op in ops_before(_at_level(arrive, read)) if isinstance(op, t.Barrier)]
    apart = [op for op in barriers if write.is_before_in_block(op) and op.is_before_in_block(read)]
    return bool(apart) and any(read.is_before_in_block(op) for op in barriers)


def _at_level(op: Operation, beside: Operation) -> Operation:
    """``op``, or what contains it, in the block of ``beside``."""
    while op.parent is not beside.parent:
        parent = op.parent_op()
        if parent is None:
            return beside
        op = parent
    return op


def _by_one_thread(write: t.SharedWrite) -> bool:
    """Whether an elected thread, or the first one, writes."""
    return write.guard.expr == (Sym(t.THREAD).eq(0) if elector(write) is None else TRUE)


def elector(op: Operation) -> a.Elected | None:
    """The region of one elected thread around an op, if any."""
    parent = op.parent_op()
    while parent is not None and not isinstance(parent, a.Elected):
        parent = parent.parent_op()
    return parent


def once_per_program(op: Operation) -> t.Programs | None:
    """The program loop in which an op is executed once a program, outside of inner loops and branches."""
    parent = op.parent_op()
    while isinstance(parent, a.Elected):
        parent = parent.parent_op()
    return parent if isinstance(parent, t.Programs) else None


def _same_programs(one: t.Programs, other: t.Programs) -> bool:
    """Whether both visit all programs of a CTA, in one order."""
    mine, theirs = ({k: v for k, v in x.attributes.items() if k not in ("loc", "note")} for x in (one, other))
    return mine == theirs and one.interleaving == (0, 1)


def _arrived(order: Sequence[Operation], write: Operation, walk: t.Programs) -> a.MbarrierArrive | None:
    """The first arrival behind a write of one thread, once a program of a walk, that alone completes the phases of a
    barrier others wait for."""
    arrivals = [op for op in order if isinstance(op, a.MbarrierArrive | a.MbarrierArriveExpectTx)]
    for op in arrivals:
        if order.index(op) < order.index(write):
            continue
        kind = a.mbarriers_of(op.bars)
        alone = kind.slots.data == kind.count.data == 1 and [x for x in arrivals if x.bars == op.bars] == [op]
        awaited = any(isinstance(x, a.MbarrierWait) and x.bars == op.bars for x in order)
        if alone and awaited and once_per_program(op) is walk and elector(op) is not None:
            return op if isinstance(op, a.MbarrierArrive) and op.cta is None else None
    return None


def _awaited(read: t.SharedRead, walk: t.Programs, full: SSAValue) -> bool:
    """Whether the role has waited for the program's phase of the barrier before the read."""
    inside = _in_role_of(walk)
    counted = [op.symbol.data for op in inside if isinstance(op, a.Counter) and op.start.data == 0]
    for op in ops_before(read):
        if isinstance(op, a.MbarrierWait) and op.bars == full and op.index.expr == Const(0):
            return any(op.parity.expr == Sym(name) % 2 and _counts_programs(walk, name, op) for name in counted)
    return False


def _counts_programs(walk: t.Programs, name: str, wait: Operation) -> bool:
    """Whether the counter advances by one a program, after the wait, and nowhere else in the role."""
    order = _in_role_of(walk)
    advances = [op for op in order if isinstance(op, a.Advance) and op.symbol.data == name]
    once = len(advances) == 1 and advances[0].by.expr == Const(1) and once_per_program(advances[0]) is walk
    return once and order.index(advances[0]) > order.index(wait)


def _in_role_of(walk: t.Programs) -> Sequence[Operation]:
    role = a.role_of(walk)
    assert role is not None, "programs that several roles walk"
    return operations(role)
