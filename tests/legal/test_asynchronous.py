"""Asynchronous plans of candidates, and the choice among them for all tensors of a kernel."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tilewright.base.dtypes import bf16, f32
from tilewright.hw.target import SM90A
from tilewright.hw.tensormap import Direction, Swizzle
from tilewright.layout.library import fragments
from tilewright.layout.register import RegisterLayout
from tilewright.legal.asynchronous import FragmentReader, ProductReader, StreamedTile, async_plans, choose, layout_first
from tilewright.legal.tma import CompletionMechanism, TileAccess
from tilewright.legal.wgmma import Major, OperandRole

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

from joint_choice import KERNELS

ROWS = FragmentReader(RegisterLayout.blocked((32, 128), vector=(4, 1), lanes=(1, 32), warps=(1, 4), order=(0, 1)))


def tile(rows: int, columns: int, *readers: FragmentReader | ProductReader, store: bool = False) -> StreamedTile:
    kind = bf16 if any(isinstance(r, ProductReader) for r in readers) else f32
    direction = Direction.STORE if store else Direction.LOAD
    return StreamedTile(TileAccess(kind, (4096, 4096), (4096, 1), 0, (rows, columns), direction), readers)


def test_every_candidate_states_how_it_completes() -> None:
    for made in async_plans(tile(128, 32, ROWS)):
        assert made.completion is CompletionMechanism.MBARRIER
        assert made.tx_bytes == 128 * 32 * 4
        assert made.boxes == len(made.plan.boxes)
        assert made.slot_bytes >= made.tx_bytes
    writer = FragmentReader(fragments.wgmma_accumulator(64, 32).transpose((1, 0)))
    for made in async_plans(tile(64, 32, writer, store=True)):
        assert made.completion is CompletionMechanism.BULK_GROUP
        assert made.tx_bytes == 0


def test_bank_degrees_of_a_row_a_thread() -> None:
    """Rows of 128 bytes, 16 bytes a lane: eight lanes meet in the same banks without a swizzle, none with 128B."""
    degrees = {made.plan.swizzle: made.reading.degree for made in async_plans(tile(128, 32, ROWS))}
    assert degrees[Swizzle.NONE] == 8
    assert degrees[Swizzle.B128] == 1


def test_products_read_what_the_instruction_admits() -> None:
    major = async_plans(tile(64, 128, ProductReader(OperandRole.B, Major.MN)))
    assert {made.plan.swizzle for made in major} == {Swizzle.B128, Swizzle.B64, Swizzle.B32, Swizzle.NONE}
    assert all(made.plan.shared.row_bytes == 16 for made in major if made.plan.swizzle is Swizzle.NONE)
    both = async_plans(tile(128, 32, ProductReader(OperandRole.A, Major.K), ROWS))
    assert both
    assert all(made.reading.cycles > 128 * 32 * 2 // 128 for made in both)


@pytest.mark.parametrize("name", KERNELS)
def test_the_joint_choice_is_never_slower(name: str) -> None:
    options = [async_plans(tensor) for tensor in KERNELS[name]]
    assert all(options)
    joint, first = choose(options), layout_first(options)
    assert joint.step_cycles <= first.step_cycles
    assert joint.slots * sum(p.slot_bytes for p in joint.plans) <= SM90A.shared_per_cta_bytes


def test_copies_may_decide_against_the_layout_without_conflicts() -> None:
    options = [async_plans(tensor) for tensor in KERNELS["epilogue f32 64x128"]]
    joint, first = choose(options), layout_first(options)
    assert first.plans[0].reading.degree < joint.plans[0].reading.degree
    assert first.plans[0].boxes > joint.plans[0].boxes
    assert joint.step_cycles < first.step_cycles
