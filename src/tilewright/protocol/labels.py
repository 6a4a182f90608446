"""Short descriptions of ops, the same in timed runs, critical cycles and pictures."""

from __future__ import annotations

from tilewright.protocol import ops
from tilewright.protocol.effects import Access, Engine, Mode, Stage


def by_threads(op: ops.Op) -> bool:
    """Whether the op is a plain access of threads to bytes."""
    match op.effects:
        case (Access(_, Mode.READ | Mode.WRITE, until=None),):
            return True
        case _:
            return False


def moved(op: ops.Op) -> ops.Region:
    """What a copy fills, or what a bulk store reads."""
    return next(x.region for x in op.accesses if x.writes or x.stage is Stage.SOURCE)


def issued(op: ops.Op) -> str:
    """What the threads do that execute it."""
    if by_threads(op):
        access = next(op.accesses)
        return f"{'writes' if access.writes else 'reads'} {access.region.buffer}"
    if op.engine in (Engine.LOADS, Engine.STORES):
        return f"{type(op).__name__} {moved(op).buffer}"
    return type(op).__name__ + (f" {op.slot.barrier}" if op.slot is not None else "")


def served(op: ops.Op, role: str) -> str:
    """What a unit of the SM does for a role."""
    if op.engine in (Engine.LOADS, Engine.STORES):
        return moved(op).buffer
    return f"{role}: product"
