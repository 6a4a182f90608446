"""The threads of a batch as lanes: thread, CTA, cluster and schedule of each, and its next segment."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from tilewright.ptx.machine.launch import MachineLaunch
from tilewright.ptx.opcodes.rows import Bits

RUNNING, STOPPED, DONE = 0, 1, 2
"""Lane states: may run; stopped at a barrier; has ended."""


class Lanes:
    """Lanes of the CTAs ``ctas`` (whole clusters, in their order), once for each of ``worlds`` schedules.

    An *instance* is one CTA in one world; the instances of a cluster stand in a row. A warp is padded to 32 lanes.
    """

    def __init__(self, launch: MachineLaunch, ctas: Bits, worlds: int):
        threads = launch.threads
        self.threads, self.padded = threads, -(-threads // 32) * 32
        self.worlds, self.ctas = worlds, ctas
        self.instances = len(ctas) * worlds
        self.count = self.instances * self.padded
        lane = np.arange(self.count)
        self.thread = lane % self.padded
        self.instance = lane // self.padded
        self.world = self.instance // len(ctas)
        self.cta = ctas[self.instance % len(ctas)]
        self.warp = lane // 32
        self.lane = (lane % 32).astype(np.uint32)
        self.cluster_ctas = launch.cluster_ctas
        self.rank = self.cta_rank(launch)
        self.state = np.where(self.thread < threads, RUNNING, DONE).astype(np.int8)
        self.special = self._special(launch)

    def cta_rank(self, launch: MachineLaunch) -> Bits:
        """The rank of each lane's CTA in its cluster; CTAs are numbered cluster by cluster."""
        return (self.cta % launch.cluster_ctas).astype(np.uint32)

    def mate(self, instance: Bits, rank: Bits) -> Bits:
        """The instance of rank ``rank`` in the cluster of ``instance``."""
        return instance // self.cluster_ctas * self.cluster_ctas + rank

    def _special(self, launch: MachineLaunch) -> dict[str, Bits]:
        u = np.uint32
        found: dict[str, Bits] = {"%laneid": self.lane, "%warpid": (self.thread // 32).astype(u)}
        x, y, _ = launch.block
        found["%tid.x"], found["%tid.y"] = (self.thread % x).astype(u), (self.thread // x % y).astype(u)
        found["%tid.z"] = (self.thread // (x * y)).astype(u)
        clusters = tuple(g // c for g, c in zip(launch.grid, launch.cluster, strict=True))
        cluster, within = self.cta // launch.cluster_ctas, self.cta % launch.cluster_ctas
        for axis, name in enumerate("xyz"):
            before = int(np.prod(clusters[:axis], dtype=np.int64))
            inner = int(np.prod(launch.cluster[:axis], dtype=np.int64))
            of = cluster // before % max(clusters[axis], 1)
            at = within // inner % launch.cluster[axis]
            found[f"%clusterid.{name}"], found[f"%cluster_ctaid.{name}"] = of.astype(u), at.astype(u)
            found[f"%ctaid.{name}"] = (of * launch.cluster[axis] + at).astype(u)
            uniform = {
                "ntid": launch.block,
                "nctaid": launch.grid,
                "cluster_nctaid": launch.cluster,
                "nclusterid": clusters,
            }
            for key, extents in uniform.items():
                found[f"%{key}.{name}"] = np.asarray(u(extents[axis]))
        found["%cluster_ctarank"] = self.rank
        found["%cluster_nctarank"] = np.asarray(u(launch.cluster_ctas))
        found["%nwarpid"] = np.asarray(u(self.padded // 32))
        one = u(1)
        found["%lanemask_eq"] = one << self.lane
        found["%lanemask_lt"] = found["%lanemask_eq"] - one
        found["%lanemask_le"] = found["%lanemask_lt"] | found["%lanemask_eq"]
        found["%lanemask_ge"] = ~found["%lanemask_lt"]
        found["%lanemask_gt"] = ~found["%lanemask_le"]
        found["%is_explicit_cluster"] = np.asarray(np.bool_(launch.cluster_ctas > 1))
        for name in ("%smid", "%clock", "%clock_hi", "%globaltimer_lo", "%globaltimer_hi"):
            found[name] = np.asarray(u(0))
        for name in ("%clock64", "%globaltimer"):
            found[name] = np.asarray(np.uint64(0))
        found["%dynamic_smem_size"] = np.asarray(u(launch.shared_bytes))
        return found


def distinct(ordered: Bits) -> Bits:
    """The values of an array in order, each once."""
    if not len(ordered):
        return ordered
    return ordered[np.concatenate([[True], ordered[1:] != ordered[:-1]])]


def grouped(values: Bits) -> list[tuple[int, Bits]]:
    """The distinct values of an array, ascending, with the positions of each."""
    if (values[1:] == values[:-1]).all():
        return [(int(values[0]), np.arange(len(values)))] if len(values) else []
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    bounds = [0, *(np.flatnonzero(ordered[1:] != ordered[:-1]) + 1).tolist(), len(values)]
    return [(int(ordered[begin]), order[begin:end]) for begin, end in pairwise(bounds)]
