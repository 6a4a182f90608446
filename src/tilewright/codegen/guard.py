"""The guard below the IR: the PTX that is assembled holds every asynchronous instruction of the Transport IR, once.

A compiler that unrolled a loop around a barrier, dropped a fence or duplicated a branch would change these counts.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from xdsl.ir import Operation

from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t

_INSTRUCTIONS = (
    "mbarrier.init",
    "mbarrier.arrive.expect_tx",
    "mbarrier.arrive.shared::cluster",
    "mbarrier.arrive",
    "mbarrier.try_wait",
    "barrier.cluster.arrive",
    "barrier.cluster.wait",
    "cp.async.bulk.tensor.load",
    "cp.async.bulk.tensor.multicast",
    "cp.async.bulk.tensor.store",
    "cp.async.bulk.commit_group",
    "cp.async.bulk.wait_group",
    "fence.proxy.async",
    "fence.mbarrier_init",
    "wgmma.fence",
    "wgmma.mma_async",
    "wgmma.commit_group",
    "wgmma.wait_group",
    "setmaxnreg",
    "stmatrix",
    "ldmatrix",
)


_FIRST_WORDS = ("mbarrier", "barrier.cluster", "cp.async.bulk", "fence.", "wgmma", "setmaxnreg", "stmatrix", "ldmatrix")


def instruction_counts(ptx: str) -> Counter[str]:
    """How often each asynchronous instruction stands in ``ptx``, by the name used here."""
    found: Counter[str] = Counter()
    for line in ptx.splitlines():
        text = re.sub(r"^\s*(\{|@!?%?\w+)?\s*", "", line)
        if not text.startswith(_FIRST_WORDS):
            continue
        if text.startswith("cp.async.bulk.tensor"):
            multicast, load = ".multicast::cluster" in text, ".shared::cluster.global" in text
            found[f"cp.async.bulk.tensor.{'multicast' if multicast else 'load' if load else 'store'}"] += 1
            continue
        name = next((n for n in _INSTRUCTIONS if text.startswith(n)), None)
        if name is not None:
            found[name] += 1
    return found


def planned_counts(kernel: t.Kernel) -> Counter[str]:
    """What the IR asks for."""
    return Counter(name for op in kernel.walk() for name in _names(op))


def mismatches(kernel: t.Kernel, ptx: str) -> tuple[str, ...]:
    """Instructions whose number in the PTX is not the IR's; empty when all is well."""
    planned, found = planned_counts(kernel), instruction_counts(ptx)
    return tuple(
        f"{name}: {found[name]} in the PTX, {planned[name]} in the IR"
        for name in _INSTRUCTIONS
        if found[name] != planned[name]
    )


def _names(op: Operation) -> Iterator[str]:
    match op:
        case a.MbarrierInit():
            yield from ("mbarrier.init",) * a.mbarriers_of(op.bars).slots.data
        case a.MbarrierArriveExpectTx():
            yield "mbarrier.arrive.expect_tx"
        case a.MbarrierArrive():
            yield "mbarrier.arrive" if op.cta is None else "mbarrier.arrive.shared::cluster"
        case a.MbarrierWait():
            yield "mbarrier.try_wait"
        case a.ClusterArrive():
            yield "barrier.cluster.arrive"
        case a.ClusterWait():
            yield "barrier.cluster.wait"
        case a.TmaLoad():
            yield "cp.async.bulk.tensor.multicast" if op.ctas else "cp.async.bulk.tensor.load"
        case a.TmaStore():
            yield "cp.async.bulk.tensor.store"
        case a.BulkCommit():
            yield "cp.async.bulk.commit_group"
        case a.BulkWait():
            yield "cp.async.bulk.wait_group"
        case a.FenceProxyAsync():
            yield "fence.proxy.async"
        case a.FenceMbarrierInit():
            yield "fence.mbarrier_init"
        case a.WgmmaFence():
            yield "wgmma.fence"
        case a.Wgmma():
            yield "wgmma.mma_async"
        case a.WgmmaCommit():
            yield "wgmma.commit_group"
        case a.WgmmaWait():
            yield "wgmma.wait_group"
        case a.SetMaxRegisters():
            yield "setmaxnreg"
        case a.StoreMatrix():
            yield "stmatrix"
        case a.LoadMatrix():
            yield "ldmatrix"
        case _:
            pass
