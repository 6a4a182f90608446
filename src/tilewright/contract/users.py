"""Who may ask about what: the agents that may ever refer to a barrier, a named barrier or bytes.

What nobody can ask about any more need not be told apart (``normal``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from tilewright.contract.agents import Agent
from tilewright.contract.state import Stream
from tilewright.contract.threads import Do
from tilewright.hw.spaces import Space
from tilewright.protocol import ops
from tilewright.protocol.model import Protocol, steps

SPACES = {
    Space.REGISTER: "register",
    Space.GLOBAL: "global",
    Space.TMEM: "tmem",
    Space.SHARED: "shared",
    Space.DISTRIBUTED_SHARED: "shared",
}
"""Spaces by the names of the memories they lie in."""


class Users:
    """Per barrier of a CTA: who may refer to it (``bars``), wait for it, signal it."""

    def __init__(self, protocol: Protocol, agents: tuple[Agent, ...]):
        self._protocol, self._agents = protocol, agents
        self._found: dict[Stream, tuple[int, ...]] = {}
        self.bars = self._of_bars(_slots)
        self.waiters = self._of_bars(_waited_slots)
        self.signallers = self._of_bars(_signalled_slots)
        self.unwatched = _unwatched(protocol)
        code = [s.op for role in protocol.roles for s in steps(role.body)]
        self.invalidated = frozenset(op.barrier for op in code if isinstance(op, ops.MbarrierInval))

    def _of_bars(self, slots: Callable[[ops.Op], list[str]]) -> list[tuple[int, ...]]:
        users: dict[str, list[int]] = {b.name: [] for b in self._protocol.barriers}
        for agent in self._agents:
            names = {n for ins in agent.code if isinstance(ins, Do) for n in slots(ins.step.op)}
            for name in names:
                users[name].append(agent.index)
        return [tuple(users[b.name]) for b in self._protocol.barriers for _ in range(b.slots)]

    def named(self, key: Stream) -> tuple[int, ...]:
        """Agents that may use a named barrier."""
        found = self._found.get(key)
        if found is None:
            found = tuple(
                x.index
                for x in self._agents
                if x.cta == key[1] and any(isinstance(i, Do) and _may_name(i.step.op, key[2]) for i in x.code)
            )
            self._found[key] = found
        return found

    def of_bytes(self, space: Stream, begin: int, end: int) -> tuple[int, ...]:
        """Agents that may access bytes of a space."""
        return self._touching(("all", space, begin, end), space, begin, end, _buffers)

    def writers(self, space: Stream, begin: int, end: int) -> tuple[int, ...]:
        """Agents that may write bytes of a space."""
        return self._touching(("writers", space, begin, end), space, begin, end, _written_buffers)

    def _touching(
        self, key: Stream, space: Stream, begin: int, end: int, buffers: Callable[[ops.Op], list[str]]
    ) -> tuple[int, ...]:
        found = self._found.get(key)
        if found is None:
            names = {
                b.name
                for b in self._protocol.buffers
                if b.offset < end and begin < b.offset + b.size and SPACES[b.space] == space[0]
            }
            found = self._found[key] = tuple(
                x.index
                for x in self._agents
                if (space[0] != "register" or x.role == space[1])
                and any(isinstance(i, Do) and names & set(buffers(i.step.op)) for i in x.code)
            )
        return found


def _slots(op: ops.Op) -> list[str]:
    """Barrier arrays an op refers to."""
    if isinstance(op, ops.MbarrierInit | ops.MbarrierInval):
        return [op.barrier]
    slot = getattr(op, "bar", None)
    return [slot.barrier] if isinstance(slot, ops.Slot) else []


def _waited_slots(op: ops.Op) -> list[str]:
    return [op.bar.barrier] if isinstance(op, ops.Wait | ops.TestWait) else []


def _signalled_slots(op: ops.Op) -> list[str]:
    return [] if isinstance(op, ops.Wait | ops.TestWait) else _slots(op)


def _unwatched(protocol: Protocol) -> frozenset[str]:
    """Barriers of count 1 that are only ever arrived at: each arrival is a phase of its own, and nobody looks."""
    code = [s.op for role in protocol.roles for s in steps(role.body)]
    watched = {name for op in code if not isinstance(op, ops.Arrive | ops.MbarrierInit) for name in _slots(op)}
    counted = {op.bar.barrier for op in code if isinstance(op, ops.Arrive) and op.count > 1}
    return frozenset(b.name for b in protocol.barriers if b.count == 1) - watched - counted


def _may_name(op: ops.Op, number: object) -> bool:
    """Whether an op may use the named barrier of this number."""
    if isinstance(op, ops.CtaSync):
        return number == 0
    return isinstance(op, ops.BarSync | ops.BarArrive) and op.id.constant in (None, number)


def _buffers(op: ops.Op) -> list[str]:
    """Buffers an op accesses."""
    found: list[str] = []
    for value in vars(op).values():
        items = cast(tuple[object, ...], value if isinstance(value, tuple) else (value,))
        found += [x.buffer for x in items if isinstance(x, ops.Region)]
    return [*found, op.buffer] if isinstance(op, ops.Tcgen05Alloc | ops.Tcgen05Dealloc) else found


def _written_buffers(op: ops.Op) -> list[str]:
    """Buffers an op writes (a descriptor's rewrite counts, its use does not)."""
    match op:
        case ops.TmaStore():
            return [] if op.dst is None else [op.dst.buffer]
        case ops.Read() | ops.Tcgen05Ld():
            return []
        case ops.TmaLoad() | ops.DsmemCopy() | ops.Tcgen05Cp():
            return [op.dst.buffer]
        case ops.Wgmma() | ops.Tcgen05Mma():
            return [op.accumulator.buffer]
        case _:
            return _buffers(op)
