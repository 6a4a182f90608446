"""Rows that begin between 16-byte units: every element arrives, fills are right, nothing else is read."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.copy_engine import copy_tile
from tilewright.base.dtypes import DTYPES, bf16, f32
from tilewright.base.expr import sym
from tilewright.base.verdict import Legal, Repairs
from tilewright.hw.target import SM90A
from tilewright.legal.facts import Facts
from tilewright.legal.phases import phases_of
from tilewright.legal.repairs import Change, legalise
from tilewright.legal.tensormap import TensorMapRequest, judge
from tilewright.legal.tma import TensorMapPlan, TileAccess, plan

M, K = sym("M"), sym("K")


def accepted(chosen: TensorMapPlan, values: dict[str, int]) -> bool:
    request = TensorMapRequest(
        chosen.data_type,
        chosen.rank,
        chosen.address.evaluate(values),
        tuple(d.evaluate(values) for d in chosen.dims),
        tuple(s.evaluate(values) for s in chosen.strides),
        chosen.box,
        chosen.element_strides,
        swizzle=chosen.swizzle,
    )
    return isinstance(judge(request, SM90A).verdict, Legal)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_every_row_arrives_at_its_place(data: st.DataObject) -> None:
    dtype = DTYPES[data.draw(st.sampled_from(["bf16", "f32", "e4m3"]))]
    size = dtype.bytes
    rows, columns = data.draw(st.integers(16, 50)), data.draw(st.integers(1, 150))
    pitch = columns + data.draw(st.integers(0, 3))
    address = 4096 + data.draw(st.integers(0, 20)) * size
    tile = (16, data.draw(st.sampled_from([16, 64, 128])))
    values = {
        "M": rows,
        "K": columns,
        "a.stride0": pitch,
        "a.address": address,
        "index0": 16 * data.draw(st.integers(0, (rows - 1) // 16)),
        "index1": data.draw(st.integers(0, columns - 1)),
    }
    access = TileAccess(dtype, (M, K), (sym("a.stride0"), 1), sym("a.address"), tile)
    facts = Facts(bounds={"M": (1, None), "K": (1, None), "a.stride0": (1, None)})
    found = phases_of(access, facts, SM90A)
    assert found is not None
    assert len(found.maps) == 16 // size

    memory = np.random.default_rng(0).integers(1, 256, rows * pitch * size, dtype=np.uint8)
    granule = address % 16
    # bytes of the tensor's first 16-byte unit are mapped memory; a poison that must not arrive
    around = np.concatenate([np.full(granule, 255, np.uint8), memory, np.full(64, 255, np.uint8)])
    shared = np.full(found.shared.size_bytes, 255, dtype=np.uint8)
    moved = 0
    for chosen in found.maps:
        assert accepted(chosen, values)
        assert chosen.guard.evaluate(values)
        moved += copy_tile(around, chosen, values, shared, size, base=address - granule)
    assert moved == tile[0] * tile[1] * size
    for r, c in np.ndindex(*tile):
        row, column = values["index0"] + r, values["index1"] + c
        place = found.shared.offset((c, found.landing_row(r)))
        at = (row * pitch + column) * size
        expected = memory[at : at + size] if row < rows and column < columns else np.zeros(size, np.uint8)
        assert np.array_equal(shared[place : place + size], expected), (r, c)


@pytest.mark.parametrize(("pitch", "maps"), [(4100, 2), (4102, 4), (4101, 8), (4104, 1)])
def test_the_number_of_maps_is_the_least_that_aligns(pitch: int, maps: int) -> None:
    access = TileAccess(bf16, (4096, 4100), (pitch, 1), 0, (128, 64))
    found = phases_of(access, Facts(), SM90A)
    assert found is not None
    assert len(found.maps) == maps
    assert all(accepted(chosen, {}) for chosen in found.maps)


def test_an_unaligned_address_is_shifted_by_one_map() -> None:
    access = TileAccess(bf16, (4096, 4095), (4096, 1), (1 << 20) + 2, (128, 64))
    answer = legalise(access)
    assert isinstance(answer, Repairs)
    assert {v.rule for v in answer.core} == {"TMA010"}
    first = answer.repairs[0].fields
    assert first.change is Change.SHIFT
    assert first.plan is not None
    assert first.plan.address.constant == 1 << 20
    assert first.plan.dims[0].constant == 4096
    assert first.plan.coordinates[0] == sym("index1") + 1
    assert accepted(first.plan, {})


def test_an_unaligned_pitch_is_dealt_to_maps() -> None:
    answer = legalise(TileAccess(bf16, (4100, 4100), (4100, 1), 0, (128, 64)))
    assert isinstance(answer, Repairs)
    first = answer.repairs[0].fields
    assert first.change is Change.PHASES
    assert first.phases is not None
    assert sorted(first.phases.landing_row(r) for r in range(128)) == list(range(128))
    assert [m.dims[0].constant for m in first.maps] == [4100, 4104]
    assert [m.dims[1].constant for m in first.maps] == [2050, 2050]


@pytest.mark.parametrize(
    "access",
    [
        TileAccess(bf16, (4096, 4100), (4100, 1), 1, (128, 64)),  # inside an element
        TileAccess(bf16, (4096, 4100), (4100, 1), 0, (127, 64)),  # rows the maps can't share
        TileAccess(bf16, (64, 64), (128, 2), 0, (64, 64)),  # nothing dense
        TileAccess(f32, (8, 64, 65), (4161, 65, 1), 0, (8, 64, 64)),  # two axes beside the dense one
        TileAccess(bf16, (3, 4096, 4100), (4096 * 4100 + 4, 4100, 1), 0, (None, 128, 64)),  # unaligned batch
    ],
)
def test_what_phases_cannot_do_is_not_offered(access: TileAccess) -> None:
    assert phases_of(access, Facts(), SM90A) is None


def test_fewer_rows_than_maps_fail_the_guard() -> None:
    access = TileAccess(bf16, (M, 4100), (4100, 1), 0, (128, 64))
    found = phases_of(access, Facts(bounds={"M": (1, None)}), SM90A)
    assert found is not None
    assert not all(chosen.guard.evaluate({"M": 1}) for chosen in found.maps)
    assert all(chosen.guard.evaluate({"M": 2}) for chosen in found.maps)


def test_a_batched_tensor_keeps_its_dropped_axis() -> None:
    access = TileAccess(bf16, (4, 64, 68), (64 * 68, 68, 1), 0, (None, 32, 64))
    found = phases_of(access, Facts(), SM90A)
    assert found is not None
    assert [chosen.rank for chosen in found.maps] == [3, 3]
    assert not isinstance(plan(access), Legal)
