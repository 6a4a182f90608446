"""The fixed part of an exploration: threads, their programs, where barriers and regions lie."""

from __future__ import annotations

from typing import Any

from tilewright.hw.spaces import Space
from tilewright.protocol import ops
from tilewright.protocol.model import Protocol, steps
from tilewright.protocol.tickets import with_reads
from tilewright.verify.model_checker.thread_program import ExecuteStep, Sizes, ThreadProgram, TooLong
from tilewright.verify.model_checker.threads import threads_of
from tilewright.verify.model_checker.world import Bytes, Problem, World
from tilewright.verify.rules import Policy, Rule

MAX_CALLS = 4000
"""Steps of one thread before an instance counts as too long."""


class ProtocolInstance:
    """A protocol with real threads in place of roles, and trip counts fixed by ``sizes`` (None: open)."""

    def __init__(self, protocol: Protocol, sizes: Sizes | None, policy: Policy, limit: int = MAX_CALLS):
        protocol = with_reads(protocol)
        self.protocol, self.policy, self.open = protocol, policy, sizes is None
        self.gpu = protocol.grid > 1 or bool(protocol.global_counters)
        """Whether CTAs share global memory beyond what a cluster does."""
        if self.gpu and self.open:
            raise TooLong  # what is known of which access has no finite set of states
        self.threads = threads_of(protocol)
        self.everyone = range(len(self.threads))
        self.programs = [ThreadProgram(protocol, t, sizes, limit) for t in self.threads]
        self.bar_index: dict[tuple[int, str, int], int] = {}
        self.counts: list[int] = []
        self.cta_of_bar: list[int] = []
        for cta in range(protocol.ctas):
            for b in protocol.barriers:
                for i in range(b.slots):
                    self.bar_index[cta, b.name, i] = len(self.counts)
                    self.cta_of_bar.append(cta)
                    self.counts.append(b.count)
        self.formed: dict[tuple[int, int], object] = {}
        """Ops that are known to be such as the thread can execute."""
        self.buffers = {b.name: b for b in protocol.buffers}
        self.barriers = {b.name: b for b in protocol.barriers}
        code = [s.op for role in protocol.roles for s in steps(role.body)]
        maps = [op.tensormap.buffer for op in code if isinstance(op, ops.TmaLoad | ops.TmaStore) and op.tensormap]
        self.tensor_maps = [self.buffers[name] for name in dict.fromkeys(maps)]
        self.counters = {c.name: c for c in protocol.global_counters}
        self.teams = [t.team for t in self.threads]
        self.mates = [[u for u in self.everyone if self.teams[u] == team] for team in self.teams]
        self.cta_threads = {c: sum(t.weight for t in self.threads if t.cta == c) for c in range(protocol.ctas)}
        waits = [
            [i.step.op for i in p.code if isinstance(i, ExecuteStep) and isinstance(i.step.op, ops.Wait | ops.TestWait)]
            for p in self.programs
        ]
        self.relaxed = frozenset(t for t in self.everyone if any(not x.acquire for x in waits[t]))
        """Threads with waits that acquire nothing."""
        crosses = self._crosses()
        self.cta_scope_arrivals = frozenset(
            s.op.bar.barrier
            for role in protocol.roles
            for s in steps(role.body)
            if isinstance(s.op, ops.Arrive) and s.op.bar.cta is not None and s.op.scope is ops.Scope.CTA
        )
        """Barriers at which peers may arrive that hand on no memory, for the CTA's scope does not reach there."""
        narrow = frozenset(
            t
            for t in self.everyone
            if crosses and any(x.scope is ops.Scope.CTA or x.bar.barrier in self.cta_scope_arrivals for x in waits[t])
        )
        self.heedless = self.relaxed | narrow
        """Threads with waits that don't acquire all that a barrier may hand on: the narrow ones nothing from peers."""
        self._bars: dict[tuple[int, int, int | None], int] = {}
        self._places: dict[tuple[int, int, int | None], Bytes] = {}
        self._kept: list[object] = []

    def describes(self, place: Bytes) -> bool:
        """Whether bytes of global memory may be those of a tensor map."""
        return place.space[0] == "global" and any(
            place.begin < b.offset + b.size and b.offset < place.end for b in self.tensor_maps
        )

    def _crosses(self) -> bool:
        """Whether bytes that threads touch generically may be reached from another CTA."""
        code = [s.op for role in self.protocol.roles for s in steps(role.body)] if self.protocol.cluster > 1 else []
        generic = [op.region for op in code if isinstance(op, ops.Read | ops.Write)]
        if not any(self.buffers[r.buffer].space is not Space.REGISTER for r in generic):
            return False
        far = any(r.cta is not None or self.buffers[r.buffer].space is Space.GLOBAL for r in generic)
        return far or any(
            isinstance(op, ops.DsmemCopy)
            or getattr(op, "cta_group", 1) > 1
            or (isinstance(op, ops.TmaLoad) and op.ctas)
            for op in code
        )

    def op(self, w: World, t: int) -> Any:
        """The op at a thread's position; None at its end or at an open decision."""
        call = self.programs[t].call(w.at[t])
        return None if call is None else call.op

    def ended(self, w: World, t: int) -> bool:
        """Whether a thread is at its end."""
        return w.at[t][0] >= len(self.programs[t].code)

    def bar(self, t: int, slot: ops.Slot, rank: int | None = None) -> int:
        """Index of a barrier; ``rank`` overrides the CTA (multicast)."""
        key = (id(slot), t, rank)
        found = self._bars.get(key)
        if found is None:
            cta = self.threads[t].cta if slot.cta is None else number(slot.cta)
            cta = cta if rank is None else rank
            name = (cta, slot.barrier, number(slot.index))
            if name not in self.bar_index:
                raise Problem(Rule.SLOT_RANGE, (t,), f"{slot.barrier}[{name[2]}] of CTA {cta} does not exist")
            self._kept.append(slot)
            found = self._bars[key] = self.bar_index[name]
        return found

    def place(self, t: int, region: ops.Region, rank: int | None = None, clipped: bool = False) -> Bytes:
        """The position of a region; ``clipped``: the part inside its buffer, perhaps empty."""
        key = (id(region), t, rank)
        found = self._places.get(key)
        if found is None:
            self._kept.append(region)
            found = self._places[key] = self._place(t, region, rank, clipped)
        return found

    def _place(self, t: int, region: ops.Region, rank: int | None, clipped: bool) -> Bytes:
        buffer, thread = self.buffers[region.buffer], self.threads[t]
        cta = thread.cta if region.cta is None else number(region.cta)
        cta = cta if rank is None else rank
        begin, end = number(region.begin), number(region.begin) + region.size
        if clipped:
            begin, end = max(begin, 0), min(end, buffer.size)
        if begin < 0 or end > buffer.size or not 0 <= cta < self.protocol.ctas:
            raise Problem(Rule.SLOT_RANGE, (t,), f"a region outside {buffer.name}")
        begin, end = begin + buffer.offset, end + buffer.offset
        match buffer.space:
            case Space.REGISTER:
                space: tuple[object, ...] = ("register", thread.role, thread.cta)
            case Space.GLOBAL:
                space = ("global",)
            case Space.TMEM:
                space = ("tmem", cta)
            case _:
                space = ("shared", cta)
        return Bytes(space, begin, end)


def number(e: object) -> int:
    """The value of an expression that ``concrete`` made a constant."""
    value = getattr(e, "value", None)
    assert isinstance(value, int)
    return value


def ranks(items: tuple[object, ...]) -> list[int]:
    """CTA ranks of a multicast, in order."""
    return sorted({number(e) for e in items})
