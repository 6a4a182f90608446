"""What a synchronising op costs the threads that execute it, when what it waits for is already there.

Cycles of one H200 SM; how each was found stands beside it. They rank alternatives (a fence against a barrier, inside a
loop against before it) and are no prediction of a kernel's time: what a wait costs beyond this is the schedule's doing.
What was measured on the H200 is a ring's slot as a whole, a wait and an arrival on each side and what they leave idle:
220 cycles (``copy_prices.SLOT_CYCLES``).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SyncPrice:
    """One row: the op by its PTX name, and its cycles when nothing has to be waited for."""

    op: str
    cycles: float
    source: str


_RANK = "ranked, not measured: "

SYNC_PRICES: tuple[SyncPrice, ...] = (
    SyncPrice("mbarrier.try_wait", 29.0, "a load from shared memory on an H800 (arXiv 2402.13499); no branch"),
    SyncPrice("mbarrier.arrive", 24.0, _RANK + "a shared-memory atomic without result"),
    SyncPrice("fence.proxy.async", 40.0, _RANK + "waits for the thread's shared accesses"),
    SyncPrice("fence.proxy.tensormap", 500.0, _RANK + "a fence at gpu scope, with a round trip to the L2 cache"),
    SyncPrice("fence.acq_rel", 500.0, _RANK + "at gpu scope, as fence.proxy.tensormap"),
    SyncPrice("ld.acquire", 300.0, _RANK + "a load from the L2 cache, of a word that is there"),
    SyncPrice("fence.mbarrier_init", 40.0, _RANK + "as fence.proxy.async"),
    SyncPrice("bar.sync", 30.0, _RANK + "arrival and release of the CTA's barrier unit"),
    SyncPrice("bar.warp.sync", 2.0, _RANK + "converged warps pass at once"),
    SyncPrice("barrier.cluster", 200.0, _RANK + "a round trip between SMs"),
    SyncPrice("cp.async.bulk.wait_group", 20.0, _RANK + "a scoreboard wait"),
    SyncPrice("cp.async.wait_group", 20.0, _RANK + "a scoreboard wait"),
    SyncPrice("wgmma.fence", 4.0, _RANK + "orders registers only"),
    SyncPrice("wgmma.wait_group", 20.0, _RANK + "a scoreboard wait"),
    SyncPrice("tcgen05.wait", 20.0, _RANK + "a scoreboard wait"),
    SyncPrice("tcgen05.fence", 4.0, _RANK + "orders issue only"),
)

_BY_OP = {row.op: row.cycles for row in SYNC_PRICES}


def sync_cycles(op: str) -> float:
    """The row of an op, by its PTX name."""
    return _BY_OP[op]
