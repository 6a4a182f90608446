"""Which steps of a role may change places: an independence relation on ops, and programs equal up to it.

Each step has a footprint of objects that it reads, writes or adds to. Two steps are independent if nothing that one
writes is touched by the other, where additions to one object (arrivals of bytes, knowledge gained) do not disturb each
other. Programs that differ by swaps of neighbouring independent steps are one *trace* (A. Mazurkiewicz, 1977): every
thread meets the same waits and accesses in the same relative order wherever that order shows. Traces are compared by
their lexicographic normal form (A. V. Anisimov, D. E. Knuth, Inhomogeneous sorting, 1979).

    object      read by                       written (w) or added to (a) by
    released    accesses                      w arrivals, barriers of threads, commits to barriers
    acquired    accesses, arrivals, fences    a waits                w barriers of threads
    proxy       accesses, arrivals            a proxy fences
    tensor      tensor-memory ops, arrivals   w tcgen05 fences and waits
    registers   wgmma                         a register accesses    w wgmma.fence
    a queue                                   w its ops, commits and waits
    a barrier   waits                         w arrivals, expect_tx  a copies that complete on it
    bytes       reads                         w writes
    a counter   steps whose indices use it    w its advance

Loops and branches are steps whose footprint is that of all they hold; nothing moves into or out of them.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, replace
from typing import TypeAlias, cast

from tilewright.hw.spaces import Space
from tilewright.protocol import ops
from tilewright.protocol.effects import (
    Access,
    Await,
    BarrierLife,
    Commit,
    Count,
    Effect,
    Fence,
    MemoryFence,
    Mode,
    Order,
    Pool,
    Relinquish,
    Retire,
    Signal,
    Strong,
    Sync,
    TensorLife,
)
from tilewright.protocol.model import Node, Protocol, Role, Step, body_of, control_of, with_bodies

Thing: TypeAlias = tuple[object, ...]
"""An object that steps touch: a name, or ``bytes`` with space, begin and end."""

RELEASED: Thing = ("released",)
ACQUIRED: Thing = ("acquired",)
PROXY: Thing = ("proxy",)
TENSOR: Thing = ("tensor",)
REGISTERS: Thing = ("registers",)


@dataclass(frozen=True)
class Footprint:
    """The objects that a step reads, writes and adds to. ``everything`` is in the footprint of a step that cannot
    move."""

    reads: frozenset[Thing] = frozenset()
    writes: frozenset[Thing] = frozenset()
    adds: frozenset[Thing] = frozenset()
    everything: bool = False

    def joined(self, other: Footprint) -> Footprint:
        """The footprint of both."""
        return Footprint(
            self.reads | other.reads,
            self.writes | other.writes,
            self.adds | other.adds,
            self.everything or other.everything,
        )

    def disturbs(self, other: Footprint) -> bool:
        """Whether the order of the two steps shows."""
        if self.everything or other.everything:
            return True
        mine, theirs = self.reads | self.adds, other.reads | other.adds
        return (
            _meet(self.writes, theirs | other.writes)
            or _meet(other.writes, mine)
            or _meet(self.adds, other.reads)
            or _meet(other.adds, self.reads)
        )


STAYS = Footprint(everything=True)
"""The footprint of steps that cannot move: set-up, lifetimes, descriptors."""


def _meet(some: frozenset[Thing], others: frozenset[Thing]) -> bool:
    if some & others:
        return True
    mine = [x for x in some if x[0] == "bytes"]
    return any(_overlap(x, y) for x in mine for y in others if y[0] == "bytes")


def _overlap(x: Thing, y: Thing) -> bool:
    """Byte intervals of one space; begin None is anywhere in a buffer."""
    space, begin, end = x[1:4]
    other, first, last = y[1:4]
    return space == other and cast(int, begin) < cast(int, last) and cast(int, first) < cast(int, end)


def independent(protocol: Protocol, first: Node, second: Node) -> bool:
    """Whether two neighbouring nodes of one role may change places."""
    return not footprint(protocol, first).disturbs(footprint(protocol, second))


def footprint(protocol: Protocol, node: Node) -> Footprint:
    """What a node touches."""
    if isinstance(node, Step):
        return _of_step(protocol, node.op)
    uses = (("counter", name) for e in control_of(node) for name in e.symbols)
    return _of_all(protocol, body_of(node)).joined(Footprint(reads=frozenset(uses)))


def _of_all(protocol: Protocol, nodes: tuple[Node, ...]) -> Footprint:
    found = Footprint()
    for node in nodes:
        found = found.joined(footprint(protocol, node))
    return found


def _of_step(protocol: Protocol, op: ops.Op) -> Footprint:
    found = Footprint(reads=frozenset(("counter", name) for name in op.symbols))
    for effect in op.effects:
        found = found.joined(_of_effect(protocol, effect))
    return found


def _of_effect(protocol: Protocol, effect: Effect) -> Footprint:
    match effect:
        case Access(mode=Mode.REPLACE):
            return STAYS
        case Access():
            return _of_access(protocol, effect)
        case Signal(bar):
            return _of_signal(effect, ("barrier", bar.barrier))
        case Await(bar, blocks=blocks, peeked=peeked):
            answer = {("answer", bar.barrier)} if peeked or not blocks else set[Thing]()
            return _touching(reads={("barrier", bar.barrier)}, writes=answer, adds={ACQUIRED})
        case Commit(queue):
            return _touching(writes={("queue", queue.name)})
        case Retire(queue) if queue.tensor_memory:
            return _touching(reads={ACQUIRED}, writes={("queue", queue.name), TENSOR})
        case Retire(queue):
            return _touching(writes={("queue", queue.name)}, adds={ACQUIRED})
        case Sync():
            return _touching(reads={ACQUIRED, PROXY, TENSOR}, writes={RELEASED, ACQUIRED})
        case Fence(Order.ASYNC_PROXY | Order.ALIAS):
            return _touching(reads={ACQUIRED}, adds={PROXY})  # a fence behind a wait covers what the wait brought
        case Fence(Order.WGMMA):
            return _touching(writes={REGISTERS})
        case Fence(Order.TENSOR_BEFORE | Order.TENSOR_AFTER):
            return _touching(reads={ACQUIRED}, writes={TENSOR})
        case Count(counter):
            return _touching(writes={("counter", counter)})
        case Fence() | Strong() | MemoryFence() | BarrierLife() | TensorLife() | Relinquish() | Pool():
            return STAYS


def _touching(
    reads: Set[Thing] = frozenset(), writes: Set[Thing] = frozenset(), adds: Set[Thing] = frozenset()
) -> Footprint:
    return Footprint(frozenset(reads), frozenset(writes), frozenset(adds))


def _of_access(protocol: Protocol, access: Access) -> Footprint:
    place = _bytes(protocol, access.region)
    reads, writes, adds = {RELEASED, ACQUIRED, PROXY}, set[Thing](), set[Thing]()
    (writes if access.writes else reads).add(place)
    if access.queue is not None:
        writes.add(("queue", access.queue.name))
    if access.queue is not None and access.queue.needs is Order.WGMMA:
        reads.add(REGISTERS)
    elif place[1] is Space.REGISTER:
        adds.add(REGISTERS)
    if place[1] is Space.TMEM:
        reads.add(TENSOR)
    return _touching(reads, writes, adds)


def _of_signal(signal: Signal, barrier: Thing) -> Footprint:
    if signal.lands:
        return _touching(adds={barrier})
    queue: set[Thing] = set() if signal.after is None else {("queue", signal.after.name)}
    if not signal.arrivals:
        return _touching(writes={barrier, *queue})
    return _touching(reads={ACQUIRED, PROXY, TENSOR}, writes={barrier, RELEASED, *queue})


def _bytes(protocol: Protocol, region: ops.Region) -> Thing:
    """The byte interval of a region; a place that varies is its whole buffer."""
    buffer, begin = protocol.buffer(region.buffer), region.begin.constant
    if begin is None:
        return "bytes", buffer.space, buffer.offset, buffer.offset + buffer.size
    return "bytes", buffer.space, buffer.offset + begin, buffer.offset + begin + region.size


# -- traces --------------------------------------------------------------------------------------------------------
def normal_form(protocol: Protocol, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """The least order of the nodes, by their text, that keeps the order of every dependent pair; bodies are ordered in
    the same way."""
    left = [_normal(protocol, node) for node in nodes]
    prints = [footprint(protocol, node) for node in left]
    waits = [{j for j in range(i) if prints[j].disturbs(prints[i])} for i in range(len(left))]
    keys = [repr(node) for node in left]
    order: list[int] = []
    while len(order) < len(left):
        done = set(order)
        ready = [i for i in range(len(left)) if i not in done and waits[i] <= done]
        order.append(min(ready, key=lambda i: (keys[i], i)))
    return tuple(left[i] for i in order)


def _normal(protocol: Protocol, node: Node) -> Node:
    if isinstance(node, Step):
        return Step(node.op, node.by)
    return replace(with_bodies(node, lambda body: normal_form(protocol, body)), where=None)


def equivalent(protocol: Protocol, first: Role, second: Role) -> bool:
    """Whether two programs of a role are one trace: the same but for swaps of independent neighbours."""
    alike = replace(first, body=()) == replace(second, body=())
    return alike and normal_form(protocol, first.body) == normal_form(protocol, second.body)
