"""Which neighbouring ops are emitted as one loop, so that a long row is held in registers only once."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Operation, SSAValue

from tilewright.base.expr import Sym
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t

_REDUCTIONS = frozenset((t.Fold, t.Shuffle))
_READS = (t.Load, a.TmaLoad, a.ThreadCopies)
"""All that may be done with a tensor without changing it."""


def late_loads(ops: Sequence[Operation]) -> set[Operation]:
    """Loads after a reduction whose elements only one map reads, each where it computes: weights of a normalised row.

    They wait for the map's loop, which needs one vector of them at a time, not the whole row: unless something on the
    way to it, the map's own store included, may change their elements or places.
    """
    found: set[Operation] = set()
    if _REDUCTIONS.isdisjoint(map(type, ops)):
        return found
    reduced = False
    for op, following in zip(ops, [*ops[1:], None], strict=True):
        reduced |= isinstance(op, t.Fold | t.Shuffle)
        if not reduced or not isinstance(op, t.Map) or following is None or not isinstance(following, t.Store):
            continue
        if not feeds_only(op, following):
            continue
        for value, read in zip(op.inputs, op.reads, strict=True):
            users = {use.operation for use in value.uses}
            load = next((u for u in users if isinstance(u, t.Load) and u in ops[: ops.index(op)]), None)
            if load is None or users != {load, op} or list(op.inputs).count(value) != 1:
                continue
            passed = ops[ops.index(load) + 1 : ops.index(following) + 1]
            if read.expr == Sym(t.REGISTER) and _after_reduction(load, ops) and _may_move(load, passed):
                found.add(load)
    return found


def _may_move(load: t.Load, passed: Sequence[Operation]) -> bool:
    """True if the load reads the same values after the ops ``passed``, including all ops in their regions. Tensor
    arguments alias completely or not at all: the arguments of a launch do not partly overlap where one is written."""
    symbols = load.guard.expr.symbols.union(*(c.expr.symbols for c in load.coords))
    for op in (inner for outer in passed for inner in outer.walk()):
        if isinstance(op, a.Advance) and op.symbol.data in symbols:
            return False
        if not isinstance(op, _READS) and any(_is_of(load.tensor, operand) for operand in op.operands):
            return False
        if any(index in _written(op) for index in load.indices):
            return False
    return True


def _written(op: Operation) -> Sequence[SSAValue]:
    """The registers that an op may write: some of its operands."""
    match op:
        case t.Map():
            return op.outputs
        case t.Load():
            return (op.buffer,)
        case t.Store() | t.AtomicReduce():
            return ()
        case _:
            return op.operands


def _is_of(tensor: SSAValue, operand: SSAValue) -> bool:
    """``operand`` is the tensor, or a tensor map of it."""
    return operand == tensor or (isinstance(operand.owner, a.TensorMap) and tensor in operand.owner.operands)


def _after_reduction(load: Operation, ops: Sequence[Operation]) -> bool:
    return any(isinstance(o, t.Fold | t.Shuffle) for o in ops[: ops.index(load)])


def feeds_only(op: t.Map, reader: Operation) -> bool:
    """``reader`` is a fold or a store of outputs of ``op`` that nothing else reads; ``op`` reads nothing of what it
    changes."""
    match reader:
        case t.Fold():
            if not set(reader.targets).isdisjoint(op.inputs):
                return False
            sources = list(reader.sources)
        case t.Store():
            sources = [reader.buffer]
        case _:
            return False
    if isinstance(reader, t.Fold) and reader.live != op.live:
        return False
    return all(s in op.outputs and {use.operation for use in s.uses} == {op, reader} for s in sources)
