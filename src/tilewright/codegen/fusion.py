"""Which neighbouring ops are written as one loop, so that a long row never exists twice in registers."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Operation

from tilewright.base.expr import Sym
from tilewright.transport import dialect as t

_REDUCTIONS = frozenset((t.Fold, t.Shuffle))


def late_loads(ops: Sequence[Operation]) -> set[Operation]:
    """Loads after a reduction whose elements only one map reads, each where it computes: weights of a normalised row.

    They wait for the map's loop, which needs one vector of them at a time, not the whole row.
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
            if read.expr == Sym(t.REGISTER) and _after_reduction(load, ops):
                found.add(load)
    return found


def _after_reduction(load: Operation, ops: Sequence[Operation]) -> bool:
    return any(isinstance(o, t.Fold | t.Shuffle) for o in ops[: ops.index(load)])


def feeds_only(op: t.Map, reader: Operation) -> bool:
    """``reader`` is a fold or a store of outputs of ``op`` that nothing else reads."""
    match reader:
        case t.Fold():
            sources = list(reader.sources)
        case t.Store():
            sources = [reader.buffer]
        case _:
            return False
    if isinstance(reader, t.Fold) and reader.live != op.live:
        return False
    return all(s in op.outputs and {use.operation for use in s.uses} == {op, reader} for s in sources)
