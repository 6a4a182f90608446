"""Repairs: each makes the access legal and moves the same elements; none is offered that does not."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.base.dtypes import bf16, e4m3
from tilewright.base.expr import TRUE, sym
from tilewright.base.verdict import Illegal, Legal, Repairs
from tilewright.hw.copy_prices import CopyMethod, tensor_copy_cycles, thread_copy_cycles
from tilewright.hw.target import SM90A
from tilewright.hw.tensormap import Direction, Swizzle
from tilewright.legal.facts import Facts
from tilewright.legal.prices import Workload
from tilewright.legal.repair_types import Change, Remedy
from tilewright.legal.repairs import legalise, repairs_of
from tilewright.legal.tensormap import TensorMapRequest, judge
from tilewright.legal.tma import TensorMapPlan, TileAccess

M, K = sym("M"), sym("K")
BY_THREADS = ((CopyMethod.CP_ASYNC, 16), (CopyMethod.CP_ASYNC, 4), (CopyMethod.LOADS, 2))
UNALIGNED = TileAccess(bf16, (4100, 4100), (4100, 1), 1 << 20, (128, 64))


def remedies(access: TileAccess, facts: Facts | None = None) -> dict[Change, Remedy]:
    answer = legalise(access, facts)
    assert isinstance(answer, Repairs), answer
    costs = [repair.cost for repair in answer.repairs]
    assert costs == sorted(costs)
    assert all(cost >= 0 for cost in costs)
    return {repair.fields.change: repair.fields for repair in answer.repairs}


def judged(chosen: TensorMapPlan, values: dict[str, int]) -> bool:
    """The judge of single requests, on the plan's numbers."""
    request = TensorMapRequest(
        chosen.data_type,
        chosen.rank,
        chosen.address.evaluate(values),
        tuple(d.evaluate(values) for d in chosen.dims),
        tuple(s.evaluate(values) for s in chosen.strides),
        chosen.box,
        chosen.element_strides,
        swizzle=chosen.swizzle,
        direction=chosen.direction,
    )
    return isinstance(judge(request, SM90A).verdict, Legal)


def test_a_legal_access_needs_none() -> None:
    assert isinstance(legalise(TileAccess(bf16, (4096, 4096), (4096, 1), 0, (128, 64))), Legal)


def test_padding_makes_an_unaligned_pitch_legal() -> None:
    remedy = remedies(UNALIGNED)[Change.PAD]
    assert remedy.plan is not None
    assert remedy.staging is not None
    assert [s.constant for s in remedy.staging.strides] == [4160, 1]
    assert remedy.staging.size_bytes.constant == 4100 * 4160 * 2
    assert judged(remedy.plan, {"tensor.staged": 256})
    assert not judged(remedy.plan, {"tensor.staged": 8})


def test_the_padded_copy_holds_the_same_elements() -> None:
    rng = np.random.default_rng(0)
    source = rng.integers(0, 1000, (20, 13))
    remedy = remedies(TileAccess(bf16, (20, 13), (13, 1), 0, (16, 8)))[Change.PAD]
    assert remedy.staging is not None
    steps = [s.evaluate({}) for s in remedy.staging.strides]
    staged = np.zeros(remedy.staging.size_bytes.evaluate({}) // 2, dtype=np.int64)
    for (i, j), value in np.ndenumerate(source):
        staged[i * steps[0] + j * steps[1]] = value
    view = np.lib.stride_tricks.as_strided(staged, source.shape, tuple(8 * s for s in steps))
    assert np.array_equal(view, source)


def test_strided_columns_become_dense_by_padding() -> None:
    remedy = remedies(TileAccess(bf16, (64, 64), (256, 2), 0, (64, 64)))[Change.PAD]
    assert remedy.plan is not None
    assert judged(remedy.plan, {"tensor.staged": 256})


def test_an_unknown_alignment_becomes_a_condition_of_the_launch() -> None:
    access = TileAccess(bf16, (M, K), (sym("a.stride0"), 1), sym("a.address"), (128, 64))
    remedy = remedies(access)[Change.CONDITION]
    assert remedy.plan is not None
    for pitch, address in ((4096, 16), (4100, 16), (4096, 8), (0, 16)):
        values = {"M": 64, "K": 64, "a.stride0": pitch, "a.address": address}
        assert bool(remedy.condition.evaluate(values)) == judged(remedy.plan, values)


@pytest.mark.parametrize("columns", [100, 4, 9])
def test_widening_loads_whole_units(columns: int) -> None:
    found = remedies(TileAccess(bf16, (4096, columns), (4096, 1), 0, (128, columns)))
    plan = found[Change.WIDEN].plan
    assert plan is not None
    assert plan.shared.extents[0] == -(-columns // 8) * 8
    assert judged(plan, {})


@pytest.mark.parametrize(("columns", "ok"), [(100, False), (4, False), (9, False), (72, True)])
def test_widened_tiles_still_begin_where_they_did(columns: int, ok: bool) -> None:
    access = TileAccess(bf16, (4096, 4096), (4096, 1), 0, (128, columns), swizzles=(Swizzle.B128,))
    assert (Change.WIDEN in remedies(access)) == ok


def test_splitting_covers_every_column_once() -> None:
    access = TileAccess(bf16, (4096, 104), (104, 1), 0, (128, 100), Direction.STORE, first_multiples=(128, 0))
    remedy = remedies(access)[Change.SPLIT_COLUMNS]
    assert remedy.plan is not None
    assert remedy.threads is not None
    assert remedy.plan.shared.extents[0] == remedy.threads.first_column == 96
    assert remedy.threads.shared.extents[0] == 4
    assert judged(remedy.plan, {})


def test_stores_are_neither_widened_nor_staged() -> None:
    found = remedies(TileAccess(bf16, (4096, 4100), (4100, 1), 0, (128, 100), Direction.STORE))
    assert Change.WIDEN not in found
    assert Change.PAD not in found
    assert Change.CP_ASYNC not in found


def test_another_swizzle_fits_a_narrower_row() -> None:
    found = remedies(TileAccess(bf16, (4096, 4096), (4096, 1), 0, (128, 96), swizzles=(Swizzle.B128,)))
    plan = found[Change.SWIZZLE].plan
    assert plan is not None
    assert plan.swizzle is Swizzle.B64
    assert judged(plan, {})


@pytest.mark.parametrize(("pitch", "address", "vector"), [(4104, 0, 16), (4100, 0, 8), (4102, 0, 4), (4104, 8, 8)])
def test_threads_copy_as_wide_as_addresses_admit(pitch: int, address: int, vector: int) -> None:
    access = TileAccess(bf16, (4100, 4100), (pitch, 1), address, (128, 64))
    change = {r.fields.change: r.fields for r in repairs_of(access, Facts())}[Change.CP_ASYNC]
    assert change.threads is not None
    assert change.threads.vector_bytes == vector
    assert change.threads.shared.swizzle is Swizzle.B128


def test_odd_pitches_go_through_registers() -> None:
    found = remedies(TileAccess(bf16, (4101, 4101), (4101, 1), 0, (128, 64)))
    assert Change.CP_ASYNC not in found
    threads = found[Change.LOADS].threads
    assert threads is not None
    assert threads.vector_bytes == 2


def test_a_wide_box_is_split_into_panels() -> None:
    access = TileAccess(bf16, (4096, 4096), (4096, 1), 0, (128, 256), swizzles=(Swizzle.B128,))
    first = repairs_of(access, Facts())[0].fields
    assert first.change is Change.SPLIT_BOX
    assert first.plan is not None
    assert len(first.plan.boxes) == 4


def test_prices_follow_the_sizes() -> None:
    small, large = (
        {r.fields.change: r.cost for r in repairs_of(UNALIGNED, Facts(), workload=Workload(reuse=n))} for n in (1, 64)
    )
    assert large[Change.CP_ASYNC] > small[Change.CP_ASYNC]
    assert large[Change.PAD] - small[Change.PAD] < 0.05 * (large[Change.CP_ASYNC] - small[Change.CP_ASYNC])
    assert large[Change.PAD] < large[Change.CP_ASYNC]
    assert small[Change.CP_ASYNC] < small[Change.PAD]


def test_a_tensor_copy_costs_less_than_threads_with_wide_vectors_and_those_less_than_with_narrow_ones() -> None:
    cycles = [tensor_copy_cycles(128, 128, 1), *(thread_copy_cycles(m, 128 * 128, v) for m, v in BY_THREADS)]
    assert cycles == sorted(set(cycles))


def test_nothing_repairs_a_tile_without_axes() -> None:
    assert isinstance(legalise(TileAccess(bf16, (4, 4), (4, 1), 0, (None, None))), Illegal)


def test_conditions_are_true_where_nothing_is_asked() -> None:
    assert remedies(UNALIGNED)[Change.PAD].condition == TRUE


def test_bytes_of_one_row_widen_to_sixteen() -> None:
    plan = remedies(TileAccess(e4m3, (64, 100), (112, 1), 0, (64, 100)))[Change.WIDEN].plan
    assert plan is not None
    assert plan.shared.extents[0] == 112
