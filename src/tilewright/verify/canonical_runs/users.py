"""Which agents may refer to a barrier, a named barrier or bytes in the rest of a run.

Differences that no agent can query any more need not be distinguished (``normal``).
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.base.cached import cached_property
from tilewright.hw.spaces import Space
from tilewright.protocol import ops
from tilewright.protocol.effects import Await, BarrierLife, Fence, Signal, Sync, TensorLife
from tilewright.protocol.model import Protocol, steps
from tilewright.verify.canonical_runs.agents import CompiledAgent
from tilewright.verify.canonical_runs.state import Stream
from tilewright.verify.threads import RunStep

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

    def __init__(self, protocol: Protocol, agents: tuple[CompiledAgent, ...]):
        self._protocol, self._agents = protocol, agents
        self._found: dict[Stream, tuple[int, ...]] = {}
        self.bars = self._of_bars(_slots)
        self.waiters = self._of_bars(_waited_slots)
        self.signallers = self._of_bars(_signalled_slots)
        self.unwatched = _unwatched(protocol)
        lives = (e for role in protocol.roles for s in steps(role.body) for e in s.op.of(BarrierLife))
        self.invalidated = frozenset(e.barrier for e in lives if not e.begins)

    def _of_bars(self, slots: Callable[[ops.Op], set[str]]) -> list[tuple[int, ...]]:
        users: dict[str, list[int]] = {b.name: [] for b in self._protocol.barriers}
        for agent in self._agents:
            names = {n for ins in agent.code if isinstance(ins, RunStep) for n in slots(ins.step.op)}
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
                if x.cta == key[1] and any(isinstance(i, RunStep) and _may_name(i.step.op, key[2]) for i in x.code)
            )
            self._found[key] = found
        return found

    def of_bytes(self, space: Stream, begin: int, end: int) -> tuple[int, ...]:
        """Agents that may access bytes of a space."""
        return self._touching(("all", space, begin, end), space, begin, end, self._accessed)

    def writers(self, space: Stream, begin: int, end: int) -> tuple[int, ...]:
        """Agents that may write bytes of a space."""
        return self._touching(("writers", space, begin, end), space, begin, end, self._written)

    @cached_property
    def _accessed(self) -> list[frozenset[str]]:
        return self._of_buffers(_buffers)

    @cached_property
    def _written(self) -> list[frozenset[str]]:
        return self._of_buffers(_written_buffers)

    def _of_buffers(self, buffers: Callable[[ops.Op], set[str]]) -> list[frozenset[str]]:
        """Per agent, the buffers of its ops."""
        return [
            frozenset[str]().union(*(buffers(ins.step.op) for ins in agent.code if isinstance(ins, RunStep)))
            for agent in self._agents
        ]

    def _touching(
        self, key: Stream, space: Stream, begin: int, end: int, buffers: list[frozenset[str]]
    ) -> tuple[int, ...]:
        found = self._found.get(key)
        if found is None:
            names = {
                b.name
                for b in self._protocol.buffers
                if b.offset < end and begin < b.offset + b.size and SPACES[b.space] == space[0]
            }
            found = self._found[key] = tuple(
                agent.index
                for agent, own in zip(self._agents, buffers, strict=True)
                if (space[0] != "register" or agent.role == space[1]) and not names.isdisjoint(own)
            )
        return found


def _slots(op: ops.Op) -> set[str]:
    """Barrier arrays an op refers to."""
    return {e.barrier for e in op.of(BarrierLife)} | _waited_slots(op) | _signalled_slots(op)


def _waited_slots(op: ops.Op) -> set[str]:
    return {e.bar.barrier for e in op.of(Await)}


def _signalled_slots(op: ops.Op) -> set[str]:
    return {e.bar.barrier for e in op.of(Signal)} | {e.barrier for e in op.of(BarrierLife)}


def _unwatched(protocol: Protocol) -> frozenset[str]:
    """Barriers of count 1 on which nobody waits: each arrival completes a phase of its own."""
    effects = [e for role in protocol.roles for s in steps(role.body) for e in s.op.effects]
    watched = {e.bar.barrier for e in effects if isinstance(e, Await) or (isinstance(e, Signal) and not _plain(e))}
    watched |= {e.barrier for e in effects if isinstance(e, BarrierLife) and not e.begins}
    return frozenset(b.name for b in protocol.barriers if b.count == 1) - watched


def _plain(signal: Signal) -> bool:
    """One arrival of a thread, with nothing to wait for."""
    return signal.arrivals == 1 and signal.after is None


def _may_name(op: ops.Op, number: object) -> bool:
    """Whether an op may use the named barrier of this number."""
    return any(e.number is not None and e.number.constant in (None, number) for e in op.of(Sync))


def _buffers(op: ops.Op) -> set[str]:
    """Buffers an op accesses."""
    return {region.buffer for region in op.regions} | {e.buffer for e in op.of(TensorLife)}


def _written_buffers(op: ops.Op) -> set[str]:
    """Buffers an op writes (a descriptor's rewrite and its fences count, its use does not)."""
    fenced = {e.region.buffer for e in op.of(Fence) if e.region is not None}
    return {x.region.buffer for x in op.accesses if x.writes} | {e.buffer for e in op.of(TensorLife)} | fenced
