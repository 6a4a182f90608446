"""A cluster of CTAs: shared memory and barriers of each, their common clocks, and asynchronous work in flight."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from xdsl.ir import SSAValue

from tilewright.simulate.arena import Arena
from tilewright.simulate.barriers import ArrivalBarrier, SimulatedMbarrier
from tilewright.simulate.clocks import CtaClocks
from tilewright.simulate.launch import SimulatedLaunch
from tilewright.simulate.memory import SharedBuffer
from tilewright.simulate.tensor_copy import Encoded
from tilewright.simulate.values import memory_dtype
from tilewright.transport.asynchronous import Mbarriers, mbarriers_of
from tilewright.transport.dialect import Kernel, Shared, shared_of

_STATIC_ALIGN_BYTES = 1024


@dataclass(frozen=True)
class SharedAllocation:
    """The offset of each shared buffer in the arena, and the mbarriers; the same for every CTA."""

    size: int
    cell: int
    offsets: dict[SSAValue, int]
    first_slot: dict[SSAValue, int]
    slots: int

    @staticmethod
    def of(kernel: Kernel) -> SharedAllocation:
        """Dynamic buffers at their offsets, static ones after them."""
        offsets: dict[SSAValue, int] = {}
        first_slot: dict[SSAValue, int] = {}
        slots, cell = 0, 8
        buffers = [op for op in kernel.walk() if isinstance(op, Shared)]
        dynamic = kernel.shared_bytes.data if kernel.shared_bytes is not None else 0
        for op in buffers:
            cell = min(cell, memory_dtype(shared_of(op.buffer).dtype.dtype).itemsize)
            if op.offset is not None:
                offsets[op.buffer] = op.offset.data
                dynamic = max(dynamic, op.offset.data + _bytes(op))
        size = -(-dynamic // _STATIC_ALIGN_BYTES) * _STATIC_ALIGN_BYTES
        for op in buffers:
            if op.offset is None:
                offsets[op.buffer] = size
                size += -(-_bytes(op) // 16) * 16
        for op in kernel.walk():
            if isinstance(op, Mbarriers):
                first_slot[op.bars] = slots
                slots += mbarriers_of(op.bars).slots.data
        return SharedAllocation(size, cell, offsets, first_slot, slots)


def _bytes(op: Shared) -> int:
    kind = shared_of(op.buffer)
    return kind.count.data * memory_dtype(kind.dtype.dtype).itemsize


@dataclass
class BulkGroups:
    """The bulk groups of one thread: copies outstanding in each, until their source is read and until they are
    written."""

    committed: int = 0
    waited: int = 0
    reading: dict[int, int] = field(default_factory=dict[int, int])
    writing: dict[int, int] = field(default_factory=dict[int, int])

    def settled(self, group: int, *, read: bool) -> bool:
        """Whether every group up to ``group`` has been read, or also written."""
        open_groups = [g for g, n in (self.reading if read else self.writing).items() if n]
        return all(g > group for g in open_groups)


@dataclass
class WgmmaGroups:
    """The wgmma groups of one warpgroup; products complete in order, some time after they are issued."""

    committed: int = 0
    retired: int = 0
    fenced: bool = False
    queue: list[tuple[int, Callable[[], None]]] = field(default_factory=list[tuple[int, Callable[[], None]]])

    @property
    def issued(self) -> int:
        """The group that products are issued to now."""
        return self.committed + 1

    def done(self, group: int) -> bool:
        """No product of a group up to ``group`` is outstanding."""
        return not self.queue or self.queue[0][0] > group

    def step(self) -> None:
        """The tensor core does the next product."""
        _, product = self.queue.pop(0)
        product()


@dataclass
class WarpCopies:
    """The cp.async of one warp: those outstanding, and actions that wait for all copies started before them."""

    arrivals: int = 0
    _started: int = 0
    _outstanding: set[int] = field(default_factory=set[int])
    _waiting: list[tuple[frozenset[int], Callable[[], None]]] = field(
        default_factory=list[tuple[frozenset[int], Callable[[], None]]]
    )

    def start(self) -> int:
        """Start copies that complete together; returns their number."""
        self._started += 1
        self._outstanding.add(self._started)
        return self._started

    def landed(self, number: int) -> None:
        """Record that copies have completed."""
        self._outstanding.discard(number)
        ready = [then for needed, then in self._waiting if not needed & self._outstanding]
        self._waiting = [(needed, then) for needed, then in self._waiting if needed & self._outstanding]
        for then in ready:
            then()

    def await_all(self, then: Callable[[], None]) -> None:
        """Run ``then`` as soon as every copy started until now has completed."""
        if not self._outstanding:
            then()
            return
        self._waiting.append((frozenset(self._outstanding), then))


class Cta:
    """One CTA's state; its agents live in ``execute``. ``rows`` and mbarriers are numbered through the cluster."""

    def __init__(self, cluster: ClusterState, rank: int):
        launch, plan = cluster.launch, cluster.plan
        self.launch, self.plan, self.cluster, self.rank = launch, plan, cluster, rank
        self.index = cluster.index * cluster.size + rank
        self.threads = launch.kernel.threads.data
        self.rows = np.arange(self.threads) + rank * self.threads
        self.clocks = cluster.clocks
        self.arena = Arena(plan.size, plan.cell, self.clocks)
        self.shared: dict[SSAValue, SharedBuffer] = {}
        self.mbarriers: dict[SSAValue, list[SimulatedMbarrier]] = {}
        self.maps: dict[SSAValue, Encoded] = {}
        self.thread_barriers: dict[object, ArrivalBarrier] = {}
        self.bulk: dict[int, BulkGroups] = {}
        self.wgmma: dict[int, WgmmaGroups] = {}
        self.copies: dict[int, WarpCopies] = {}
        """By warp of the cluster."""
        self.transfers: list[Callable[[], None]] = []
        self.running = 0
        """Agents that have not ended."""

    def declare_shared(self, op: Shared) -> None:
        """The buffer of a declaration."""
        self.shared[op.buffer] = SharedBuffer(
            op.hint.data, shared_of(op.buffer), self.arena, self.plan.offsets[op.buffer], self.rank
        )

    def declare_mbarriers(self, op: Mbarriers) -> None:
        """The barriers of a declaration, not yet initialised."""
        kind = mbarriers_of(op.bars)
        first = self.plan.first_slot[op.bars] + self.rank * self.plan.slots
        name = op.hint.data + (f" of CTA {self.rank}" if self.cluster.size > 1 else "")
        self.mbarriers[op.bars] = [
            SimulatedMbarrier(f"{name}[{i}]", first + i, kind.count.data) for i in range(kind.slots.data)
        ]

    def thread_barrier(self, key: object, threads: int) -> ArrivalBarrier:
        """The CTA or named barrier called ``key``, created on first use."""
        return self.thread_barriers.setdefault(key, ArrivalBarrier(threads))


class ClusterState:
    """The CTAs of a cluster (one without clusters), and the seeded order of what happens to them."""

    def __init__(self, launch: SimulatedLaunch, plan: SharedAllocation, index: int, size: int):
        self.launch, self.plan, self.index, self.size = launch, plan, index, size
        threads = launch.kernel.threads.data
        self.clocks = CtaClocks(size * threads, size * plan.slots)
        self.barrier = ArrivalBarrier(size * threads)
        self.order = random.Random(launch.order.random())
        self.eager = self.order.choice((0.05, 0.5, 0.95))
        self.ctas = tuple(Cta(self, rank) for rank in range(size))

    def in_flight(self) -> list[Callable[[], None]]:
        """The asynchronous events that could happen next."""
        return [
            event for cta in self.ctas for event in (*cta.transfers, *(g.step for g in cta.wgmma.values() if g.queue))
        ]

    def advance(self, event: Callable[[], None]) -> None:
        """Let one of ``in_flight`` happen."""
        for cta in self.ctas:
            if event in cta.transfers:
                cta.transfers.remove(event)
        event()
