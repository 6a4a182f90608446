"""The ops that only synchronise, and their costs."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.base.expr import Const
from tilewright.hw.spaces import WARP_THREADS
from tilewright.protocol import ops
from tilewright.protocol.edit import NodePath, rewritten
from tilewright.protocol.effects import Await, BarrierScope, Commit, Effect, Fence, Order, Retire, Stage, Sync
from tilewright.protocol.model import By, If, Loop, Node, Protocol, Role, Step, steps
from tilewright.protocol.prices import sync_price

LOOP_WEIGHT = 16.0
"""Assumed iterations of a loop."""
_GROUP_IN_FLIGHT = 0.5
"""Factor on a group wait's price for each group that may stay in flight."""

NAMED_BARRIERS = 16
"""Named barriers of a CTA (PTX ISA 9.1, 9.7.13.1)."""


def is_sync(role: Role, step: Step) -> bool:
    """Whether the synthesis removes and inserts this step: waits, fences, and barriers of one role's threads. Arrivals,
    commits and barriers between roles stay, because they define the phases."""
    found = [_decided(role, effect) for effect in step.op.effects if not isinstance(effect, Commit)]
    return bool(found) and all(found)


def _decided(role: Role, effect: Effect) -> bool:
    match effect:
        case Await():
            return effect.blocks
        case Retire():
            return True
        case Fence():
            return effect.order is not Order.ALIAS
        case Sync(BarrierScope.WARP):
            return True
        case Sync(BarrierScope.CTA, threads=threads):
            return effect.waits and threads == role.threads
        case _:
            return False


def stripped(protocol: Protocol) -> Protocol:
    """The protocol without waits, fences and barriers of one role."""

    def edit(spot: NodePath, step: Step) -> tuple[Node, ...]:
        return () if is_sync(protocol.roles[spot.role], step) else (step,)

    return rewritten(protocol, edit)


def cost(protocol: Protocol) -> float:
    """Cycles of all waits, fences and barriers, weighted by the loops around them."""
    return sum(step_cost(step, depth) for role in protocol.roles for step, depth in _syncs(role, role.body, 0))


def step_cost(step: Step, depth: int) -> float:
    """Cycles of one op inside ``depth`` loops; a group wait that leaves groups in flight stalls for less."""
    cycles = sync_price(step.op)
    assert cycles is not None, step.op
    for retired in (e for e in step.op.of(Retire) if not e.queue.tensor_memory):
        cycles *= _GROUP_IN_FLIGHT**retired.pending * (1 if retired.stage is Stage.SOURCE else 1.5)
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
    """The cheapest barrier of all threads of a role: a warp's, or a named barrier that no other role uses."""
    threads = protocol.roles[role].threads
    if threads == WARP_THREADS:
        return Step(ops.WarpSync(), By.ALL)
    return Step(ops.BarSync(Const(_free_barrier(protocol, role)), threads), By.ALL)


def _free_barrier(protocol: Protocol, role: int) -> int:
    """The number of the role's own barrier, or the least unused one."""
    mine: set[int | None] = set()
    others: set[int | None] = {0}
    for i, r in enumerate(protocol.roles):
        for sync in (e for step in steps(r.body) for e in step.op.of(Sync)):
            if sync.number is not None:
                own = i == role and sync.waits and sync.threads == r.threads
                (mine if own else others).add(sync.number.constant)
    usable = [n for n in range(1, NAMED_BARRIERS) if n not in others]
    return next((n for n in usable if n in mine), usable[0] if usable else NAMED_BARRIERS - 1)
