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

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, TypeAlias, cast

from tilewright.hw.spaces import Space
from tilewright.protocol import ops
from tilewright.protocol.model import If, Loop, Node, Protocol, Role, Step
from tilewright.protocol.rewrite import expressions_of

Thing: TypeAlias = tuple[object, ...]
"""An object that steps touch: a name, or ``bytes`` with space, begin and end."""

RELEASED: Thing = ("released",)
ACQUIRED: Thing = ("acquired",)
PROXY: Thing = ("proxy",)
TENSOR: Thing = ("tensor",)
REGISTERS: Thing = ("registers",)

_ARRIVALS = (ops.Arrive, ops.ArriveExpectTx, ops.CpAsyncArrive, ops.Tcgen05Commit)
_MEETINGS = (ops.BarSync, ops.BarArrive, ops.CtaSync, ops.WarpSync, ops.ClusterArrive, ops.ClusterWait)
_TENSOR_FENCES = (ops.Tcgen05FenceBefore, ops.Tcgen05FenceAfter, ops.Tcgen05WaitLd, ops.Tcgen05WaitSt)
_QUEUES: dict[str, tuple[type[object], ...]] = {
    "bulk": (ops.TmaStore, ops.BulkCommit, ops.BulkWait),
    "cp.async": (ops.CpAsync, ops.CpAsyncCommit, ops.CpAsyncWait, ops.CpAsyncArrive),
    "wgmma": (ops.Wgmma, ops.WgmmaCommit, ops.WgmmaWait),
    "mma": (ops.Tcgen05Mma, ops.Tcgen05Cp, ops.Tcgen05Commit),
    "ld": (ops.Tcgen05Ld, ops.Tcgen05WaitLd),
    "st": (ops.Tcgen05St, ops.Tcgen05WaitSt),
}
_GROUP_WAITS = (ops.BulkWait, ops.CpAsyncWait, ops.WgmmaWait)
_FIXED = (
    *(ops.MbarrierInit, ops.MbarrierInval, ops.FenceMbarrierInit, ops.Setmaxnreg),
    *(ops.Tcgen05Alloc, ops.Tcgen05Dealloc, ops.Tcgen05Relinquish),
    *(ops.TensormapReplace, ops.TensormapRelease, ops.TensormapAcquire),
)
"""Ops that stay where they are: set-up, lifetimes, descriptors."""


@dataclass(frozen=True)
class Footprint:
    """What a step reads, writes and adds to. ``everything`` is touched by a step that stays in its place."""

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
    match node:
        case Step():
            return _of_step(protocol, node.op)
        case Loop():
            inner = _of_all(protocol, node.body)
            uses = node.begin.symbols | node.end.symbols
        case If():
            inner = _of_all(protocol, node.then + node.otherwise)
            uses = node.condition.symbols
    return inner.joined(Footprint(reads=frozenset(("counter", name) for name in uses)))


def _of_all(protocol: Protocol, nodes: tuple[Node, ...]) -> Footprint:
    found = Footprint()
    for node in nodes:
        found = found.joined(footprint(protocol, node))
    return found


def _of_step(protocol: Protocol, op: ops.Op) -> Footprint:
    if isinstance(op, _FIXED):
        return Footprint(everything=True)
    reads: set[Thing] = {("counter", name) for e in expressions_of(op) for name in e.symbols}
    writes: set[Thing] = {("queue", name) for name, kinds in _QUEUES.items() if isinstance(op, kinds)}
    adds: set[Thing] = set()
    touched = list(_bytes(protocol, op))
    for place, is_write in touched:
        (writes if is_write else reads).add(place)
    if touched:
        reads |= {RELEASED, ACQUIRED, PROXY}
    spaces = {place[1] for place, _ in touched}
    if Space.REGISTER in spaces and isinstance(op, ops.Read | ops.Write):
        adds.add(REGISTERS)
    if Space.TMEM in spaces:
        reads.add(TENSOR)
    bar = getattr(op, "bar", None)
    if isinstance(bar, ops.Slot):
        _on_barrier(op, bar, reads, writes, adds)
    match op:
        case ops.Advance():
            writes.add(("counter", op.counter))
        case ops.Wgmma():
            reads.add(REGISTERS)
        case ops.WgmmaFence():
            writes.add(REGISTERS)
        case ops.FenceProxyAsync() | ops.FenceProxyAlias():
            adds.add(PROXY)
            reads.add(ACQUIRED)  # a fence behind a wait covers what the wait brought
        case _:
            pass
    if isinstance(op, _TENSOR_FENCES):
        writes.add(TENSOR)
        reads.add(ACQUIRED)
    if isinstance(op, _GROUP_WAITS):
        adds.add(ACQUIRED)
    if isinstance(op, (*_ARRIVALS, *_MEETINGS)):
        writes.add(RELEASED)
        reads |= {ACQUIRED, PROXY, TENSOR}
    if isinstance(op, _MEETINGS):
        writes.add(ACQUIRED)
    return Footprint(frozenset(reads), frozenset(writes), frozenset(adds))


def _on_barrier(op: ops.Op, bar: ops.Slot, reads: set[Thing], writes: set[Thing], adds: set[Thing]) -> None:
    thing: Thing = ("barrier", bar.barrier)
    match op:
        case ops.Wait() | ops.TestWait():
            reads.add(thing)
            adds.add(ACQUIRED)
            if isinstance(op, ops.TestWait) or op.peeked:
                writes.add(("answer", bar.barrier))
        case ops.TmaLoad() | ops.DsmemCopy():
            adds.add(thing)
        case _:
            writes.add(thing)


def _bytes(protocol: Protocol, op: ops.Op) -> Iterator[tuple[Thing, bool]]:
    """The byte intervals that an op touches, and whether it writes them. A place that varies is its whole buffer."""
    for f in fields(op):
        value: Any = getattr(op, f.name)
        for region in cast(tuple[Any, ...], value if isinstance(value, tuple) else (value,)):
            if not isinstance(region, ops.Region):
                continue
            buffer = protocol.buffer(region.buffer)
            begin = region.begin.constant
            low, high = (buffer.offset, buffer.offset + buffer.size)
            if begin is not None:
                low, high = buffer.offset + int(begin), buffer.offset + int(begin) + region.size
            is_write = f.name in ("dst", "accumulator", "map") or isinstance(op, ops.Write | ops.Tcgen05St)
            yield ("bytes", buffer.space, low, high), is_write


# -- traces --------------------------------------------------------------------------------------------------------
def normal_form(protocol: Protocol, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """The least order of the nodes, by their text, that keeps every dependent pair as it is; bodies alike."""
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
    match node:
        case Step():
            return Step(node.op, node.by)
        case Loop():
            return replace(node, body=normal_form(protocol, node.body), where=None)
        case If():
            then, otherwise = normal_form(protocol, node.then), normal_form(protocol, node.otherwise)
            return replace(node, then=then, otherwise=otherwise, where=None)


def equivalent(protocol: Protocol, first: Role, second: Role) -> bool:
    """Whether two programs of a role are one trace: the same but for swaps of independent neighbours."""
    alike = replace(first, body=()) == replace(second, body=())
    return alike and normal_form(protocol, first.body) == normal_form(protocol, second.body)
