"""Tile accesses planned: the map's addresses are the tensor's, the bytes land where the tile says, refusals say why."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.copy_engine import copy_tile
from tilewright.base.dtypes import DTYPES, DType, bf16, e4m3, f32
from tilewright.base.expr import TRUE, sym
from tilewright.base.verdict import Illegal, Legal
from tilewright.hw.target import SM90A
from tilewright.hw.tensormap import Direction, Swizzle
from tilewright.legal.facts import Facts
from tilewright.legal.tensormap import TensorMapRequest, judge
from tilewright.legal.tma import CompletionMechanism, TensorMapPlan, TileAccess, candidates, plan

M, K = sym("M"), sym("K")
ROWS = (sym("a.stride0"), sym("a.stride1"))
ALIGNED = Facts(
    bounds={"M": (1, None), "K": (1, None), "a.stride0": (1, None)},
    divisors={"a.stride0": 8, "a.address": 16},
    equal={"a.stride1": 1},
)


def legal(access: TileAccess, facts: Facts | None = None) -> TensorMapPlan:
    answer = plan(access, facts)
    assert isinstance(answer, Legal), answer
    return answer.fields


def core(access: TileAccess, facts: Facts | None = None) -> set[str]:
    answer = plan(access, facts)
    assert isinstance(answer, Illegal), answer
    return {v.rule for v in answer.core}


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_the_copy_of_a_random_tile_is_the_tile(data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from([DTYPES[n] for n in ("bf16", "f32", "e4m3", "i64")]))
    unit = 16 // dtype.bytes
    rank = data.draw(st.integers(1, 4))
    shape = [data.draw(st.integers(1, 9)) for _ in range(rank)]
    shape[-1] = data.draw(st.integers(1, 5)) * unit + data.draw(st.integers(0, unit - 1))
    strides = [1] * rank
    for axis in reversed(range(rank - 1)):
        dense = strides[axis + 1] * shape[axis + 1]
        strides[axis] = -(-dense // unit) * unit + data.draw(st.integers(0, 2)) * unit
    tile: list[int | None] = [data.draw(st.sampled_from([None, 1, 2, 3, 8])) for _ in range(rank)]
    tile[-1] = data.draw(st.integers(1, 16)) * unit
    firsts = (*(1,) * (rank - 1), unit)
    access = TileAccess(dtype, tuple(shape), tuple(strides), 1 << 20, tuple(tile), first_multiples=firsts)
    chosen = legal(access)
    assert chosen.guard == TRUE
    first = {f"$index{i}": firsts[i] * data.draw(st.integers(0, (shape[i] - 1) // firsts[i])) for i in range(rank)}

    rng = np.random.default_rng(0)
    memory = rng.integers(0, 256, (strides[0] * shape[0] + 64) * dtype.bytes, dtype=np.uint8)
    shared = np.full(chosen.shared.size_bytes, 255, dtype=np.uint8)
    assert copy_tile(memory, chosen, first, shared, dtype.bytes, base=1 << 20) == chosen.tx_bytes
    assert chosen.tx_bytes == math.prod(t for t in tile if t is not None) * dtype.bytes
    assert all(b.shared_offset_bytes % 128 == 0 for b in chosen.boxes)
    axes = [(i, t) for i, t in enumerate(tile) if t is not None]
    for local in np.ndindex(*(t for _, t in axes)):
        index = [first[f"$index{i}"] for i in range(rank)]
        for (axis, _), x in zip(axes, local, strict=True):
            index[axis] += x
        by_axis = dict(zip((a for a, _ in axes), local, strict=True))
        offset = chosen.shared.offset(tuple(int(by_axis[a]) for a in chosen.tile_axes))
        got = shared[offset : offset + dtype.bytes]
        if all(i < n for i, n in zip(index, shape, strict=True)):
            at = sum(i * s for i, s in zip(index, strides, strict=True)) * dtype.bytes
            assert np.array_equal(got, memory[at : at + dtype.bytes])
        else:
            assert not got.any()


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_every_plan_is_legal_to_the_judge_of_requests(data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from([bf16, f32, e4m3]))
    shape = tuple(data.draw(st.integers(1, 5000)) for _ in range(2))
    pitch = data.draw(st.integers(1, 700)) * 8 + data.draw(st.sampled_from([0, 0, 1, 4]))
    access = TileAccess(
        dtype, shape, (pitch, 1), data.draw(st.sampled_from([0, 8, 16])), (data.draw(st.integers(1, 600)), 64)
    )
    expected = pitch * dtype.bytes % 16 == 0 and access.address in (0, 16)
    answer = candidates(access)
    assert bool(answer.plans) == expected
    for chosen in answer.plans:
        request = TensorMapRequest(
            chosen.data_type,
            chosen.rank,
            chosen.address.evaluate({}),
            tuple(d.evaluate({}) for d in chosen.dims),
            tuple(s.evaluate({}) for s in chosen.strides),
            chosen.box,
            chosen.element_strides,
            swizzle=chosen.swizzle,
        )
        assert isinstance(judge(request, SM90A).verdict, Legal)


def test_a_symbolic_tile_is_legal_with_a_guard_on_sizes_only() -> None:
    chosen = legal(TileAccess(bf16, (M, K), ROWS, sym("a.address"), (128, 64)), ALIGNED)
    assert chosen.swizzle is Swizzle.B128
    assert (chosen.dims, chosen.box) == ((K, M), (64, 128))
    assert chosen.coordinates == (sym("$index1"), sym("$index0"))
    assert chosen.completion is CompletionMechanism.MBARRIER
    fits = {"M": 4096, "K": 4096, "a.stride0": 4096}
    assert chosen.guard.evaluate(fits)
    assert not chosen.guard.evaluate(fits | {"M": 2**32 + 1})
    assert not chosen.guard.evaluate(fits | {"a.stride0": 2**39})


@pytest.mark.parametrize(("divisor", "ok"), [(8, True), (4, False)])
def test_alignment_must_be_known(divisor: int, ok: bool) -> None:
    facts = Facts(divisors={"a.stride0": divisor, "a.address": 16}, equal={"a.stride1": 1})
    access = TileAccess(bf16, (M, K), ROWS, sym("a.address"), (128, 64))
    if ok:
        assert legal(access, facts)
    else:
        assert core(access, facts) == {"TMA012"}
        conditional, unmet = candidates(access, facts).conditional[0]
        assert [u.instance.rule.id for u in unmet] == ["TMA012"]
        assert conditional.guard.evaluate({"M": 8, "K": 8, "a.stride0": 8})
        assert not conditional.guard.evaluate({"M": 8, "K": 8, "a.stride0": 12})


def test_long_and_wide_tiles_are_cut_into_panels_and_parts() -> None:
    chosen = legal(TileAccess(bf16, (4096, 4096), (4096, 1), 0, (384, 128)))
    assert chosen.box == (64, 192)
    assert [b.start for b in chosen.boxes] == [(0, 0), (0, 192), (64, 0), (64, 192)]
    assert [b.shared_offset_bytes for b in chosen.boxes] == [i * 192 * 128 for i in range(4)]
    assert chosen.tx_bytes == 384 * 128 * 2


def test_transposed_tensors_put_their_dense_axis_first() -> None:
    chosen = legal(TileAccess(bf16, (256, 512), (1, 256), 0, (64, 32)))
    assert chosen.tile_axes == (0, 1)
    assert chosen.box == (64, 32)


def test_dropped_axes_come_last_and_merge_when_there_are_too_many() -> None:
    shape, strides = (2, 3, 4, 5, 6, 64), (23040, 7680, 1920, 384, 64, 1)
    chosen = legal(TileAccess(bf16, shape, strides, 0, (None, None, None, None, 4, 64)))
    assert chosen.rank == 5
    assert legal(TileAccess(bf16, shape[1:], strides[1:], 0, (None, None, None, 4, 64))).rank == 5
    apart = (10**6 * 16, 7680, 2000, 400, 64, 1)
    six = TileAccess(bf16, (*shape[:1], *shape[1:]), apart, 0, (None, None, 2, 2, 2, 64))
    assert core(six) == {"TMA061"}


def test_size_one_and_broadcast_axes_that_are_dropped_cost_no_dimension() -> None:
    chosen = legal(TileAccess(bf16, (1, 7, 64, 64), (5, 0, 64, 1), 0, (None, None, 64, 64)))
    assert chosen.rank == 2


@pytest.mark.parametrize(
    ("access", "rules"),
    [
        (TileAccess(bf16, (64, 64), (128, 2), 0, (64, 64)), {"TMA060"}),
        (TileAccess(bf16, (64, 64), (64, 1), 0, (64, None)), {"TMA060"}),
        (TileAccess(bf16, (64, 100), (104, 1), 0, (64, 100)), {"TMA062"}),
        (TileAccess(bf16, (64, 96), (96, 1), 0, (64, 96), swizzles=(Swizzle.B128,)), {"TMA062"}),
        (TileAccess(bf16, (4100, 4100), (4100, 1), 2, (64, 64)), {"TMA010", "TMA012"}),
        (TileAccess(bf16, (64, 64), (-64, 1), 0, (64, 64)), {"TMA014"}),
        (TileAccess(bf16, (0, 64), (64, 1), 0, (64, 64)), {"TMA015"}),
        (TileAccess(f32, (4096, 4096), (4096, 1), 0, (256, 256), swizzles=(Swizzle.NONE,)), {"TMA064"}),
        (TileAccess(bf16, (4096,) * 3, (4096**2, 4096, 1), 0, (4096, 4096, 64)), {"TMA064"}),
    ],
)
def test_refusals_name_their_rules(access: TileAccess, rules: set[str]) -> None:
    assert core(access) == rules


def test_a_single_row_is_copied_without_swizzle() -> None:
    chosen = legal(TileAccess(bf16, (4096,), (1,), 0, (1000,)))
    assert chosen.swizzle is Swizzle.NONE
    assert chosen.box == (200,)
    assert len(chosen.boxes) == 5


def test_a_tile_along_stride_zero_repeats_and_is_not_stored() -> None:
    repeated = TileAccess(bf16, (64, 64), (0, 1), 0, (64, 64))
    assert legal(repeated).box == (64, 64)
    assert core(replace(repeated, direction=Direction.STORE)) == {"TMA044"}
    one = legal(TileAccess(bf16, (64, 64), (0, 1), 0, (1, 64)))
    assert one.dims[1].constant == 1


def test_stores_complete_by_bulk_group() -> None:
    chosen = legal(TileAccess(bf16, (64, 64), (64, 1), 0, (64, 64), direction=Direction.STORE))
    assert chosen.completion is CompletionMechanism.BULK_GROUP


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_every_dtype_travels(dtype: DType) -> None:
    assert legal(TileAccess(dtype, (256, 256), (256, 1), 0, (64, 128 // dtype.bytes))).swizzle is Swizzle.B128


def test_planning_a_legal_access_loads_no_solver() -> None:
    text = (
        "import sys; from tilewright.legal.tma import *; from tilewright.base.dtypes import bf16;"
        "print(plan(TileAccess(bf16, (64, 64), (64, 1), 0, (64, 64))));"
        "assert not {'z3', 'egglog', 'islpy', 'numpy'} & set(sys.modules), 'heavy'"
    )
    subprocess.run([sys.executable, "-c", text], check=True, capture_output=True)


@pytest.mark.parametrize(("multiple", "ok"), [(8, True), (4, False), (12, False), (0, True), (64, True)])
def test_a_tile_must_begin_at_a_unit_of_16_bytes(multiple: int, ok: bool) -> None:
    access = TileAccess(bf16, (4096, 4096), (4096, 1), 0, (128, 64), first_multiples=(1, multiple))
    if ok:
        assert legal(access).first_multiple == multiple
    else:
        assert core(access) == {"TMA052"}


def test_one_tile_over_the_whole_axis_begins_at_zero() -> None:
    assert legal(TileAccess(bf16, (4096, 60), (64, 1), 0, (128, 64))).first_multiple == 0


@pytest.mark.parametrize(("columns", "ok"), [(4096, True), (4095, False)])
def test_stored_rows_are_whole_units(columns: int, ok: bool) -> None:
    store = TileAccess(bf16, (4096, columns), (4096, 1), 0, (128, 64), Direction.STORE)
    if ok:
        assert legal(store)
    else:
        assert core(store) == {"TMA053"}
    assert legal(replace(store, direction=Direction.LOAD))


def test_symbolic_rows_are_stored_under_a_guard() -> None:
    store = TileAccess(bf16, (M, K), ROWS, sym("a.address"), (128, 64), Direction.STORE)
    sizes = {"M": 64, "a.stride0": 128}
    assert legal(store, ALIGNED).guard.evaluate(sizes | {"K": 72})
    assert not legal(store, ALIGNED).guard.evaluate(sizes | {"K": 73})
