"""Plans are proved to do what was asked, and every way of spoiling one is refuted."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.plan_oracle import prove_plan
from tilewright.base.dtypes import DTYPES, bf16, f32, i8
from tilewright.base.expr import sym
from tilewright.base.verdict import Legal, Proved, Refuted, Unknown
from tilewright.hw.tensormap import Swizzle
from tilewright.legal.facts import Facts
from tilewright.legal.repair_types import Change
from tilewright.legal.repairs import repairs_of
from tilewright.legal.tma import Box, TensorMapPlan, TileAccess, plan

M, K = sym("M"), sym("K")
FACTS = Facts(
    bounds={"M": (1, None), "K": (1, None)},
    divisors={"a.stride0": 8, "a.stride1": 8, "a.address": 16},
    equal={"a.stride2": 1},
)
ACCESS = TileAccess(bf16, (4, M, K), tuple(sym(f"a.stride{i}") for i in range(3)), sym("a.address"), (None, 384, 128))


def planned(access: TileAccess, facts: Facts) -> TensorMapPlan:
    answer = plan(access, facts)
    assert isinstance(answer, Legal)
    return answer.fields


def test_a_symbolic_plan_is_proved() -> None:
    assert isinstance(prove_plan(planned(ACCESS, FACTS), ACCESS, FACTS), Proved)


def spoiled() -> list[tuple[str, TensorMapPlan]]:
    good = planned(ACCESS, FACTS)
    boxes = good.boxes
    return [
        ("addresses", replace(good, strides=(good.strides[0] + 16, *good.strides[1:]))),
        ("addresses", replace(good, strides=tuple(reversed(good.strides)))),
        ("addresses", replace(good, coordinates=(good.coordinates[0] + 1, *good.coordinates[1:]))),
        ("addresses", replace(good, coordinates=tuple(reversed(good.coordinates)))),
        ("addresses", replace(good, address=good.address + 16)),
        ("shared", replace(good, swizzle=Swizzle.B64)),
        ("shared", replace(good, boxes=(*boxes[:-1], Box(boxes[-1].start, boxes[-1].shared_offset_bytes + 128)))),
        ("shared", replace(good, box=(good.box[0] // 2, *good.box[1:]))),
        ("cover", replace(good, boxes=boxes[:-1])),
        ("cover", replace(good, boxes=(*boxes, boxes[0]))),
        ("cover", replace(good, box=(good.box[0], good.box[1] // 2, *good.box[2:]))),
        ("cover", replace(good, box=(good.box[0], good.box[1], 2))),
    ]


@pytest.mark.parametrize("case", range(len(spoiled())))
def test_an_altered_plan_is_refuted(case: int) -> None:
    obligation, wrong = spoiled()[case]
    answer = prove_plan(wrong, ACCESS, FACTS)
    assert isinstance(answer, Refuted), answer
    assert answer.obligation == obligation
    assert answer.witness.planned != answer.witness.asked


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_every_random_plan_is_proved(data: st.DataObject) -> None:
    dtype = DTYPES[data.draw(st.sampled_from(["bf16", "f32", "e4m3"]))]
    rank = data.draw(st.integers(1, 6))
    shape = tuple(data.draw(st.sampled_from([1, 2, 3, 64, 100])) for _ in range(rank))
    strides = [1] * rank
    for i in reversed(range(rank - 1)):
        strides[i] = -(-strides[i + 1] * shape[i + 1] // 16) * 16
    tile = [data.draw(st.sampled_from([None, 1, 2, 300])) for _ in range(rank)]
    tile[-1] = data.draw(st.sampled_from([16, 64, 256]))
    access = TileAccess(dtype, shape, tuple(strides), 0, tuple(tile))
    answer = plan(access)
    if isinstance(answer, Legal):
        assert isinstance(prove_plan(answer.fields, access), Proved)


def test_dimensions_of_one_element_that_were_folded_are_proved() -> None:
    """A tile of one element has no offset inside it, so folding its axis into another loses nothing."""
    access = TileAccess(bf16, (2, 3, 4, 5, 6, 64), (23040, 7680, 1920, 384, 64, 1), 0, (1, 1, 1, 1, 1, 16))
    folded = planned(access, Facts())
    assert len(folded.dims) == 5
    assert isinstance(prove_plan(folded, access), Proved)
    moved = replace(access, strides=(23040, 7680, 1920, 448, 64, 1))
    assert isinstance(prove_plan(folded, moved), Refuted)


FOLDED = [
    TileAccess(f32, (40, 3), (3, 1), 0, (16, 3)),
    TileAccess(f32, (M, 3), (3, 1), 0, (16, 3)),
    TileAccess(f32, (M, 5, 3), (15, 3, 1), 0, (16, 5, 3)),
    TileAccess(bf16, (2,) * 7, (64, 32, 16, 8, 4, 2, 1), 0, (None, 2, 2, 2, 2, 2, 2)),
]


@pytest.mark.parametrize("access", FOLDED, ids=lambda a: str(a.tile))
def test_folded_views_are_proved_and_other_folds_refuted(access: TileAccess) -> None:
    remedies = [r.fields for r in repairs_of(access, Facts()) if r.fields.change is Change.RESHAPE]
    assert remedies
    for remedy in remedies:
        assert remedy.plan is not None
        assert isinstance(prove_plan(remedy.plan, access, Facts(), remedy.folds), Proved)
        moved = replace(access, strides=(*access.strides[:-2], access.strides[-2] * 2, 1))
        assert isinstance(prove_plan(remedy.plan, moved, Facts(), remedy.folds), Refuted)


def test_a_split_view_is_not_decided() -> None:
    access = TileAccess(i8, (1 << 33, 16), (16, 1), 0, (64, 16))
    (remedy,) = (r.fields for r in repairs_of(access, Facts()) if r.fields.change is Change.RESHAPE)
    assert remedy.plan is not None
    assert isinstance(prove_plan(remedy.plan, access, Facts(), remedy.folds), Unknown)
