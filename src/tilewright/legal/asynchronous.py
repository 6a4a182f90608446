"""Candidate layouts with their asynchronous-copy plans, and the joint choice for all tensors of a kernel.

A layout is not chosen by itself: the widest swizzle may need more boxes, rows of half a line or padded panels, and so
leave room for fewer stages. One iteration of a pipeline with n stages takes

    max(copy unit, shared memory, (latency + copy + read) / n)

cycles: the copy unit fetches every tensor's lines, shared memory serves the writes of copies and the loads of readers,
and a stage is free again after its copy, its latency and its reading. ``choose`` takes the combination of candidates
with the shortest iteration; ``layout_first`` takes each tensor's layout with the fewest bank conflicts, then the stages
that still fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod

from tilewright.base.dtypes import DType
from tilewright.base.verdict import Legal
from tilewright.hw.copy_prices import SHARED_BYTES_PER_CYCLE, SLOT_CYCLES
from tilewright.hw.rules.wgmma import CORE_ROW_BYTES
from tilewright.hw.target import SM90A, Target
from tilewright.hw.tensormap import Direction, Swizzle
from tilewright.layout.register import RegisterLayout
from tilewright.legal import wgmma
from tilewright.legal.factor import offsets_of, smem_layout
from tilewright.legal.facts import Facts
from tilewright.legal.prices import plan_cycles
from tilewright.legal.reading import TileReadCost, reading, vector_along
from tilewright.legal.tma import CompletionMechanism, TensorMapPlan, TileAccess, candidates
from tilewright.legal.wgmma import Major, OperandRole, WgmmaOperand

MEMORY_LATENCY_CYCLES = 1000.0
"""From the issue of a copy to its arrival, from memory under load (0.5 us; measured copies of an H200 stay below)."""
MAX_SLOTS = 8


@dataclass(frozen=True)
class FragmentReader:
    """Threads that read the tile as ``layout``: dimension 0 the tile's dense axis, dimension 1 the others."""

    layout: RegisterLayout


@dataclass(frozen=True)
class ProductReader:
    """wgmma, as operand ``role``; each instruction of the other operand's ``passes`` blocks reads the tile again."""

    role: OperandRole
    major: Major
    n: int = 128
    accumulator: str = "f32"
    passes: int = 1


Reader = FragmentReader | ProductReader


@dataclass(frozen=True)
class StreamedTile:
    """A tile of each step of a kernel, and who reads it (or, for a store, who writes it)."""

    access: TileAccess
    readers: tuple[Reader, ...]


@dataclass(frozen=True)
class AsyncPlan:
    """Costs and sizes of one candidate. ``tx_bytes`` complete on the mbarrier of a stage (0 for stores, which end by
    bulk groups); ``copy_cycles`` is the copy unit's time for one tile, ``reading`` the bank cycles and the worst
    conflict degree over all readers."""

    plan: TensorMapPlan
    completion: CompletionMechanism
    tx_bytes: int
    boxes: int
    slot_bytes: int
    copy_cycles: float
    reading: TileReadCost


@dataclass(frozen=True)
class LayoutChoice:
    """One candidate per tensor, the stages of their pipeline, and the predicted cycles of a step."""

    plans: tuple[AsyncPlan, ...]
    slots: int
    step_cycles: float


def async_plans(tensor: StreamedTile, facts: Facts | None = None, target: Target = SM90A) -> tuple[AsyncPlan, ...]:
    """The candidates of a tensor that all its readers can read, with their asynchronous plans."""
    plans = _candidates(tensor, facts or Facts(), target)
    made = (async_plan(plan, tensor.readers, tensor.access.dtype, target) for plan in plans)
    return tuple(m for m in made if m is not None)


def async_plan(
    plan: TensorMapPlan, readers: Sequence[Reader], dtype: DType, target: Target = SM90A
) -> AsyncPlan | None:
    """The asynchronous-copy plan of a legal tensor map; None if a reader can't read the tile as the copy writes it."""
    readings: list[TileReadCost] = []
    for reader in readers:
        found = _read(plan, reader, dtype, target)
        if found is None:
            return None
        readings.append(found)
    total = TileReadCost(sum(r.cycles for r in readings), max((r.degree for r in readings), default=1))
    shared = plan.shared
    slot = -(-shared.size_bytes // shared.align_bytes) * shared.align_bytes
    tx = plan.tx_bytes if plan.direction is Direction.LOAD else 0
    return AsyncPlan(plan, plan.completion, tx, len(plan.boxes), slot, plan_cycles(plan), total)


def _candidates(tensor: StreamedTile, facts: Facts, target: Target) -> tuple[TensorMapPlan, ...]:
    """Every direct plan; for products also the unswizzled one in columns of core matrices."""
    plans = candidates(tensor.access, facts, target, limit=8).plans
    if any(isinstance(r, ProductReader) for r in tensor.readers) and not tensor.access.swizzles:
        columns = replace(tensor.access, swizzles=(Swizzle.NONE,), panel_bytes=CORE_ROW_BYTES)
        plans += candidates(columns, facts, target).plans
    return plans


def choose(options: Sequence[Sequence[AsyncPlan]], target: Target = SM90A) -> LayoutChoice:
    """The combination of candidates with the shortest step; of equal ones the one with the fewest boxes."""
    combinations = (_evaluate(tuple(plans), target) for plans in product(*map(undominated, options)))
    return min(combinations, key=lambda c: (c.step_cycles, sum(p.boxes for p in c.plans)))


def undominated(plans: Sequence[AsyncPlan]) -> list[AsyncPlan]:
    """The candidates of a tensor that no other candidate equals or betters in every quantity an iteration depends on.

    An iteration never takes longer when a copy, a read, a stage or the number of boxes shrinks, so a dominated
    candidate is in no combination that is better than all combinations without it.
    """
    kept: list[AsyncPlan] = []
    for plan in sorted(plans, key=_costs):  # whoever is better comes first
        if not any(all(a <= b for a, b in zip(_costs(k), _costs(plan), strict=True)) for k in kept):
            kept.append(plan)
    return kept


def _costs(plan: AsyncPlan) -> tuple[float, ...]:
    moved = plan.plan.box_bytes * plan.boxes
    return plan.copy_cycles, plan.reading.cycles, plan.slot_bytes, moved, plan.boxes


def layout_first(options: Sequence[Sequence[AsyncPlan]], target: Target = SM90A) -> LayoutChoice:
    """Each tensor's candidate with the fewest bank cycles, whatever its copies cost."""
    return _evaluate(tuple(min(plans, key=lambda p: (p.reading.cycles, p.boxes)) for plans in options), target)


def _evaluate(plans: tuple[AsyncPlan, ...], target: Target) -> LayoutChoice:
    slot = sum(p.slot_bytes for p in plans)
    slots = max(1, min(MAX_SLOTS, target.shared_per_cta_bytes // slot))
    copy = sum(p.copy_cycles for p in plans)
    read = sum(p.reading.cycles for p in plans)
    shared = sum(p.plan.box_bytes * p.boxes for p in plans) / SHARED_BYTES_PER_CYCLE + read
    round_trip = (MEMORY_LATENCY_CYCLES + copy + read) / slots
    return LayoutChoice(plans, slots, max(copy, shared, round_trip, SLOT_CYCLES))


def _read(plan: TensorMapPlan, reader: Reader, dtype: DType, target: Target) -> TileReadCost | None:
    tile = plan.shared
    if isinstance(reader, FragmentReader):
        offsets = offsets_of(smem_layout(tile))
        extents = (tile.extents[0], prod(tile.extents[1:]))
        wide = vector_along(offsets, extents, 0, tile.element_bytes)
        vector = min(wide, reader.layout.contiguous_registers(0))
        return reading(reader.layout, vector, offsets, extents, tile.element_bytes)
    if len(tile.extents) != 2:
        return None
    operand = WgmmaOperand(reader.role, dtype, tile.whole_panels, reader.major, reader.n, reader.accumulator)
    if not isinstance(wgmma.plan(operand, target), Legal):
        return None
    return TileReadCost(reader.passes * plan.box_bytes * len(plan.boxes) // int(SHARED_BYTES_PER_CYCLE), 1)
