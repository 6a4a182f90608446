"""Happens-before between the threads of a cluster, by vector clocks (FastTrack, 2009).

Time counts executed segments. ``base`` of an instance (one CTA in one world) is the time of its last barrier of all
threads: earlier accesses happened before every later one. Finer orders are kept in a table per cluster, made when a
kernel first synchronises fewer threads: ``known[p, q]`` is the last time of thread q that happened before what thread p
does next. A second table holds the same *across a proxy fence*, which asynchronous copies and products need of generic
writes. Columns behind the threads stand for asynchronous writers, one for each mbarrier.
"""

from __future__ import annotations

import math

import numpy as np

from tilewright.ptx.machine.lanes import Lanes, grouped
from tilewright.ptx.machine.scratch import ArrayPool
from tilewright.ptx.opcodes.rows import Bits

_ASYNCHRONOUS = 64
"""Columns for mbarriers; further ones share the last."""


class Clocks:
    """Clocks of one batch.

    A *participant* is a thread of a cluster: its CTA's rank times the CTA's threads, plus its own.
    """

    def __init__(self, lanes: Lanes, scratch: ArrayPool):
        self.scratch = scratch
        self.lanes = lanes
        self.now = 1
        self.base = np.zeros(lanes.instances, np.int64)
        self.base_fenced = np.zeros(lanes.instances, np.int64)
        self.participants = lanes.cluster_ctas * lanes.padded
        self.columns = self.participants + _ASYNCHRONOUS
        self.cluster = lanes.instance // lanes.cluster_ctas
        self.who = (lanes.rank.astype(np.int64) * lanes.padded + lanes.thread).astype(np.int64)
        self.own_fence = np.zeros(lanes.count, np.int64)
        self._known: Bits | None = None
        self._fenced: Bits | None = None

    @property
    def known(self) -> Bits:
        """Clock table of each cluster: [cluster, participant, column]."""
        if self._known is None:
            self._known = self._table("known", self.base)
            self._fenced = self._table("fenced", self.base_fenced)
        return self._known

    def _table(self, name: str, base: Bits) -> Bits:
        """A table in which the threads of an instance know each other up to its base, and nothing else."""
        n, ctas = self.lanes.padded, self.lanes.cluster_ctas
        shape = (self.lanes.instances // ctas, self.participants, self.columns)
        found = self.scratch.array(name, math.prod(shape), np.int32).reshape(shape)
        for at in range(ctas):
            rows = found[:, at * n : at * n + n]
            rows[:, :, : at * n] = 0
            rows[:, :, at * n : at * n + n] = base[at::ctas, None, None]
            rows[:, :, at * n + n :] = 0
        return found

    @property
    def fenced(self) -> Bits:
        """The same for accesses ordered by a proxy fence."""
        _ = self.known
        assert self._fenced is not None
        return self._fenced

    def _everybody(self, instance: int, time: int, fenced: int) -> None:
        """Order everything up to ``time`` before all threads of an instance."""
        if self._known is None or self._fenced is None:
            return
        n, cluster = self.lanes.padded, instance // self.lanes.cluster_ctas
        at = instance % self.lanes.cluster_ctas * n
        for table, moment in ((self._known, time), (self._fenced, fenced)):
            rows = table[cluster, at : at + n]
            rows[:] = rows.max(0)
            rows[:, at : at + n] = np.maximum(rows[:, at : at + n], moment)

    def meet_all(self, instance: int, lanes: Bits) -> None:
        """A barrier of all threads of an instance."""
        fence = int(self.own_fence[lanes].min())
        if fence != int(self.own_fence[lanes].max()):
            _ = self.known  # some fenced, some didn't: only the table can tell
        self.base[instance] = self.now
        self.base_fenced[instance] = max(fence, int(self.base_fenced[instance]))
        if self._known is not None:
            self.meet(lanes)
            self._everybody(instance, self.now, int(self.base_fenced[instance]))

    def meet(self, lanes: Bits) -> None:
        """A barrier of some lanes of one cluster: each gets the joined clock of all of them."""
        cluster, who = self.cluster[lanes[0]], self.who[lanes]
        known, fenced = self.known[cluster], self.fenced[cluster]
        merged, across = known[who].max(0), fenced[who].max(0)
        merged[who] = self.now
        across[who] = np.maximum(across[who], self.own_fence[lanes])
        known[who], fenced[who] = merged, across

    def release(self, lanes: Bits, into: Bits, across: Bits) -> None:
        """Join the clocks of arriving lanes of one cluster into a barrier's clocks ``into`` and ``across``."""
        cluster, who = self.cluster[lanes[0]], self.who[lanes]
        np.maximum(into, self.known[cluster][who].max(0), out=into)
        np.maximum(across, self.fenced[cluster][who].max(0), out=across)
        into[who] = self.now
        across[who] = np.maximum(across[who], self.own_fence[lanes])

    def acquire(self, lanes: Bits, of: Bits, across: Bits) -> None:
        """Join a barrier's clocks into those of lanes of one cluster."""
        cluster, who = self.cluster[lanes[0]], self.who[lanes]
        self.known[cluster][who] = np.maximum(self.known[cluster][who], of)
        self.fenced[cluster][who] = np.maximum(self.fenced[cluster][who], across)

    def fence(self, lanes: Bits) -> None:
        """A proxy fence: accesses in a lane's clock become visible to asynchronous operations behind it."""
        self.own_fence[lanes] = self.now
        if self._known is not None:
            for cluster, where in grouped(self.cluster[lanes]):
                who = self.who[lanes[where]]
                self.fenced[cluster][who] = np.maximum(self.fenced[cluster][who], self.known[cluster][who])

    def ordered(self, lanes: Bits | int, writer: Bits, time: Bits, instance: Bits | int) -> Bits:
        """Whether the access of participant ``writer`` (a column) at ``time`` in ``instance`` happened before, for each
        lane, or for one."""
        who = self.who[lanes]
        early = (time <= self.base[instance]) & (instance == self.lanes.instance[lanes])
        fine = (early | (writer == who)) & (writer < self.participants)
        if self._known is None or fine.all():
            return fine
        return fine | (self._known[self.cluster[lanes], who, writer] >= time)

    def ordered_fenced(self, lane: int, writer: Bits, time: Bits, instance: int) -> Bits:
        """Whether a generic access happened before an asynchronous operation issued by ``lane``, with a proxy fence
        between. Accesses of asynchronous columns need no fence."""
        asynchronous, cluster, who = writer >= self.participants, self.cluster[lane], self.who[lane]
        if asynchronous.all():
            return self.known[cluster, who, writer] >= time
        mine = (writer == who) & (time <= self.own_fence[lane])
        fence_after_barrier = self.own_fence[lane] >= self.base[instance] > 0
        base = int(self.base[instance]) if fence_after_barrier else int(self.base_fenced[instance])
        fine = mine | (time <= base) & ~asynchronous
        if self._known is None or fine.all():
            return fine
        row = np.where(asynchronous, self._known[cluster, who, writer], self.fenced[cluster, who, writer])
        return fine | (row >= time)
