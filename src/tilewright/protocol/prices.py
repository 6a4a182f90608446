"""What each op of a protocol costs on one SM of an H200: the rows of ``hw``, for runs in time and for cycles.

Work between the protocol's ops (element-wise code) has no price.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tilewright.hw import engine_prices as engine
from tilewright.hw.copy_prices import SHARED_BYTES_PER_CYCLE
from tilewright.hw.spaces import Space
from tilewright.hw.sync_prices import sync_cycles
from tilewright.protocol import ops
from tilewright.protocol.model import Protocol, Step

COPIES, PRODUCTS = "tensor copies", "tensor cores"
"""The engines: copies share one path into shared memory, products the tensor cores."""


@dataclass(frozen=True)
class Cost:
    """What an op takes, in cycles: of the threads that execute it; of its ``engine``; then until others may see it."""

    issue: float
    engine: str = ""
    service: float = 0.0
    latency: float = 0.0


Prices = Callable[[Step], Cost]


def prices_of(protocol: Protocol) -> Prices:
    """The price of every step of a protocol."""
    spaces = {buffer.name: buffer.space for buffer in protocol.buffers}
    return lambda step: _cost(step.op, spaces)


def sync_price(op: ops.Op) -> float | None:
    """Cycles of an op that orders others, when what it waits for is already there; None for other ops."""
    row = _SYNC_ROWS.get(type(op))
    return None if row is None else sync_cycles(row)


def _cost(op: ops.Op, spaces: Mapping[str, Space]) -> Cost:
    match op:
        case ops.TmaLoad(dst=moved) | ops.CpAsync(dst=moved):
            return _copy(moved, engine.COPY_LATENCY_CYCLES)
        case ops.TmaStore(src=moved) | ops.DsmemCopy(src=moved):
            return _copy(moved, engine.STORE_LATENCY_CYCLES)
        case ops.Wgmma() | ops.Tcgen05Mma():
            return Cost(engine.ISSUE_CYCLES, PRODUCTS, _product(op, spaces), engine.TENSOR_LATENCY_CYCLES)
        case ops.Read(region=region) | ops.Write(region=region):
            return Cost(region.size / SHARED_BYTES_PER_CYCLE)
        case ops.Advance():
            return Cost(0.0)
        case _:
            cycles = sync_price(op)
            return Cost(engine.ISSUE_CYCLES if cycles is None else cycles)


def _copy(moved: ops.Region, latency: float) -> Cost:
    return Cost(engine.ISSUE_CYCLES, COPIES, moved.size / engine.COPY_BYTES_PER_CYCLE, latency)


def _product(op: ops.Wgmma | ops.Tcgen05Mma, spaces: Mapping[str, Space]) -> float:
    """Cycles of the tensor cores: for the bytes of B, or for what they read from shared memory if that takes longer."""
    if not op.operands:
        return 0.0
    reads = (isinstance(op, ops.Wgmma) and op.reads) or tuple(r.size for r in op.operands)
    shared = sum(n for r, n in zip(op.operands, reads, strict=True) if spaces.get(r.buffer) is Space.SHARED)
    return max(reads[-1] / engine.TENSOR_BYTES_PER_CYCLE, shared / SHARED_BYTES_PER_CYCLE)


_SYNC_ROWS: Mapping[type[object], str] = {
    ops.Wait: "mbarrier.try_wait",
    ops.TestWait: "mbarrier.try_wait",
    ops.Arrive: "mbarrier.arrive",
    ops.ArriveExpectTx: "mbarrier.arrive",
    ops.ExpectTx: "mbarrier.arrive",
    ops.BulkWait: "cp.async.bulk.wait_group",
    ops.CpAsyncWait: "cp.async.wait_group",
    ops.WgmmaWait: "wgmma.wait_group",
    ops.WgmmaFence: "wgmma.fence",
    ops.FenceProxyAsync: "fence.proxy.async",
    ops.FenceMbarrierInit: "fence.mbarrier_init",
    ops.TensormapRelease: "fence.proxy.tensormap",
    ops.TensormapAcquire: "fence.proxy.tensormap",
    ops.Tcgen05WaitLd: "tcgen05.wait",
    ops.Tcgen05WaitSt: "tcgen05.wait",
    ops.Tcgen05FenceBefore: "tcgen05.fence",
    ops.Tcgen05FenceAfter: "tcgen05.fence",
    ops.BarSync: "bar.sync",
    ops.CtaSync: "bar.sync",
    ops.WarpSync: "bar.warp.sync",
    ops.ClusterWait: "barrier.cluster",
}
"""The row of ``hw.sync_prices`` for each op that has one."""
