"""Which ops only order others, and what they cost."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.base.expr import Const
from tilewright.hw.spaces import WARP_THREADS
from tilewright.protocol import ops
from tilewright.protocol.edit import Spot, rewritten
from tilewright.protocol.model import By, If, Loop, Node, Protocol, Role, Step, steps
from tilewright.protocol.prices import sync_price

LOOP_WEIGHT = 16.0
"""How often a loop's body is thought to run."""
_GROUP_IN_FLIGHT = 0.5
"""Of a group wait's price, what it costs when a group may stay in flight."""

NAMED_BARRIERS = 16
"""Of a CTA (PTX ISA 9.1, 9.7.13.1)."""

_DECIDED = (
    ops.Wait,
    ops.BulkWait,
    ops.CpAsyncWait,
    ops.WgmmaWait,
    ops.WgmmaFence,
    ops.FenceProxyAsync,
    ops.FenceMbarrierInit,
    ops.TensormapRelease,
    ops.TensormapAcquire,
    ops.Tcgen05WaitLd,
    ops.Tcgen05WaitSt,
    ops.Tcgen05FenceBefore,
    ops.Tcgen05FenceAfter,
    ops.BarSync,
    ops.WarpSync,
)
"""The ops that the synthesis takes out and puts back: waits, fences, and joins of one role's threads. Arrivals, commits
and barriers between roles stay, for they say what the phases are."""


def is_sync(role: Role, step: Step) -> bool:
    """Whether the synthesis decides on this step."""
    if isinstance(step.op, ops.BarSync) and step.op.threads != role.threads:
        return False
    return isinstance(step.op, _DECIDED)


def stripped(protocol: Protocol) -> Protocol:
    """The protocol without waits, fences and joins."""

    def edit(spot: Spot, step: Step) -> tuple[Node, ...]:
        return () if is_sync(protocol.roles[spot.role], step) else (step,)

    return rewritten(protocol, edit)


def cost(protocol: Protocol) -> float:
    """Cycles of all waits, fences and joins, each weighted by the loops around it."""
    return sum(step_cost(step, depth) for role in protocol.roles for step, depth in _syncs(role, role.body, 0))


def step_cost(step: Step, depth: int) -> float:
    """Cycles of one op inside ``depth`` loops; a group wait that leaves groups in flight stalls for less."""
    cycles = sync_price(step.op)
    assert cycles is not None, step.op
    if isinstance(step.op, ops.BulkWait | ops.CpAsyncWait | ops.WgmmaWait):
        cycles *= _GROUP_IN_FLIGHT**step.op.pending
        cycles *= 1 if isinstance(step.op, ops.BulkWait) and step.op.read else 1.5
    return cycles * LOOP_WEIGHT**depth


def _syncs(role: Role, nodes: tuple[Node, ...], depth: int) -> Iterator[tuple[Step, int]]:
    for node in nodes:
        match node:
            case Step():
                if is_sync(role, node):
                    yield node, depth
            case Loop():
                yield from _syncs(role, node.body, depth + 1)
            case If():
                yield from _syncs(role, node.then + node.otherwise, depth)


def join(protocol: Protocol, role: int) -> Step:
    """The cheapest op that joins all threads of a role: a warp's, or a named barrier that no other role uses."""
    threads = protocol.roles[role].threads
    if threads == WARP_THREADS:
        return Step(ops.WarpSync(), By.ALL)
    return Step(ops.BarSync(Const(_free_barrier(protocol, role)), threads), By.ALL)


def _free_barrier(protocol: Protocol, role: int) -> int:
    """The role's own join so far, or the least number that nobody uses."""
    mine: set[int | None] = set()
    others: set[int | None] = {0}
    for i, r in enumerate(protocol.roles):
        for step in steps(r.body):
            if isinstance(step.op, ops.BarSync | ops.BarArrive):
                own = i == role and isinstance(step.op, ops.BarSync) and step.op.threads == r.threads
                (mine if own else others).add(step.op.id.constant)
    usable = [n for n in range(1, NAMED_BARRIERS) if n not in others]
    return next((n for n in usable if n in mine), usable[0] if usable else NAMED_BARRIERS - 1)
