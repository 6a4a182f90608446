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
from tilewright.protocol.effects import Access, Count, Engine, Mode
from tilewright.protocol.model import Protocol, Step

COPIES, PRODUCTS = "tensor copies", "tensor cores"
"""The engines: copies share one path into shared memory, products the tensor cores."""


@dataclass(frozen=True)
class Cost:
    """The cost of an op in cycles: for the threads that execute it, for its ``engine``, and until others can observe
    it."""

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
    return sync_cycles(op.instruction) if op.instruction else None


def _cost(op: ops.Op, spaces: Mapping[str, Space]) -> Cost:
    match op.engine, op.effects:
        case Engine.LOADS, (Access(moved), *_):
            return _copy(moved, engine.COPY_LATENCY_CYCLES)
        case Engine.STORES, (Access(moved), *_):
            return _copy(moved, engine.STORE_LATENCY_CYCLES)
        case Engine.PRODUCTS, _:
            return Cost(engine.ISSUE_CYCLES, PRODUCTS, _product(op, spaces), engine.TENSOR_LATENCY_CYCLES)
        case _, (Access(moved, Mode.READ | Mode.WRITE, until=None),):
            return Cost(moved.size / SHARED_BYTES_PER_CYCLE)
        case _, (Count(),):
            return Cost(0.0)
        case _:
            cycles = sync_price(op)
            return Cost(engine.ISSUE_CYCLES if cycles is None else cycles)


def _copy(moved: ops.Region, latency: float) -> Cost:
    return Cost(engine.ISSUE_CYCLES, COPIES, moved.size / engine.COPY_BYTES_PER_CYCLE, latency)


def _product(op: ops.Op, spaces: Mapping[str, Space]) -> float:
    """Cycles of the tensor cores: for the bytes of B, or for what they read from shared memory if that takes longer."""
    reads = [(x.region, x.region.size if x.bytes is None else x.bytes) for x in op.accesses if not x.writes]
    shared = sum(size for region, size in reads if spaces.get(region.buffer) is Space.SHARED)
    last = reads[-1][1] if reads else 0
    return max(last / engine.TENSOR_BYTES_PER_CYCLE, shared / SHARED_BYTES_PER_CYCLE)
