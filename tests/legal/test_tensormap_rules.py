"""Every rule of tensor maps: its legal example, its off-by-one twin, its code, its place in the verdict."""

from __future__ import annotations

import pytest

from support.rule_cases import CASES, RANK_3, TENSOR_MAP, Example
from tilewright.base.verdict import Illegal, Legal, Unknown
from tilewright.diag.catalogue import CATALOGUE
from tilewright.hw.rules.row import REFUSES, Consequence, HardwareRule
from tilewright.hw.rules.tensormap_encode import RULES
from tilewright.hw.target import SM90A, SM100A, Target
from tilewright.legal.tensormap import TensorMapJudgement, TensorMapRequest, judge


def request_of(overrides: Example) -> TensorMapRequest:
    case = dict(TENSOR_MAP) | dict(overrides)
    return TensorMapRequest(
        tensor_data_type=case["tensor_data_type"],
        tensor_rank=case["tensor_rank"],
        global_address=case["global_address"],
        global_dim=case["global_dim"],
        global_strides=case["global_stride"],
        box_dim=case["box_dim"],
        element_strides=case["element_stride"],
        interleave=case["interleave"],
        swizzle=case["swizzle"],
        l2_promotion=case["l2_promotion"],
        oob_fill=case["oob_fill"],
        descriptor_address=case["descriptor_address"],
        direction=case["direction"],
        shared_address=case["shared_address"],
        start_coordinates=case["start_coordinate"],
    )


def target_of(rule: HardwareRule) -> Target:
    return SM90A if rule.scope.holds(90) else SM100A


def named(judgement: TensorMapJudgement) -> set[str]:
    """Every rule the judgement speaks of."""
    ids = {v.rule for v in judgement.advice}
    for answer in (judgement.encodes, judgement.runs):
        if isinstance(answer, Illegal):
            ids |= {v.rule for v in answer.core}
        elif isinstance(answer, Unknown):
            ids |= {part.split(":")[0] for part in answer.obligation.split("; ")}
    return ids


def test_the_base_case_is_legal() -> None:
    for target in (SM90A, SM100A):
        assert isinstance(judge(request_of(()), target).verdict, Legal)


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.id)
def test_good_keeps_the_rule_and_bad_breaks_it(rule: HardwareRule) -> None:
    good, bad = (judge(request_of(e), target_of(rule)) for e in CASES[rule.id])
    assert rule.id not in named(good)
    assert rule.id in named(bad)


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.id)
def test_bad_breaks_nothing_else_of_its_kind(rule: HardwareRule) -> None:
    judgement = judge(request_of(CASES[rule.id][1]), target_of(rule))
    match rule.consequence:
        case Consequence.DRIVER_REJECTS:
            assert isinstance(judgement.encodes, Illegal)
            assert [v.rule for v in judgement.encodes.core] == [rule.id]
            assert isinstance(judgement.verdict, Illegal)
        case Consequence.UNSETTLED:
            assert isinstance(judgement.encodes, Legal)
            assert isinstance(judgement.runs, Unknown)
            assert isinstance(judgement.verdict, Unknown)
        case Consequence.ADVISORY | Consequence.SLOW:
            assert isinstance(judgement.verdict, Legal)
        case _:
            assert rule.consequence in REFUSES
            assert isinstance(judgement.encodes, Legal)
            assert isinstance(judgement.runs, Illegal)
            assert [v.rule for v in judgement.runs.core] == [rule.id]


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.id)
def test_every_rule_is_written_for_a_reader(rule: HardwareRule) -> None:
    entry = CATALOGUE[rule.id]
    assert entry.title == rule.title
    assert entry.why == rule.why
    assert entry.bad
    assert entry.good
    assert rule.source


def test_all_faults_are_reported_at_once_with_their_values() -> None:
    bad = request_of((("global_stride", (8200,)), ("box_dim", (72, 300)), ("global_address", 8)))
    encodes = judge(bad, SM90A).encodes
    assert isinstance(encodes, Illegal)
    found = {v.rule: v.found for v in encodes.core}
    assert set(found) == {"TMA010", "TMA012", "TMA016", "TMA019"}
    assert found["TMA012"] == "global_stride_0 = 8200 (stride of dimension 1)"
    assert "box_dim_1 = 300" in found["TMA016"]


def test_entries_beyond_the_rank_are_ignored() -> None:
    wide = request_of((("global_stride", (8192, 7)), ("box_dim", (64, 128, 999)), ("element_stride", (1, 1, 99))))
    assert isinstance(judge(wide, SM90A).verdict, Legal)


def test_an_interleaved_map_is_legal_where_it_was_executed() -> None:
    halves = judge(request_of((*RANK_3, ("interleave", 1), ("swizzle", 0))), SM90A)
    assert isinstance(halves.verdict, Legal)
    singles = judge(request_of((*RANK_3, ("interleave", 1), ("swizzle", 0), ("tensor_data_type", 7))), SM90A)
    assert isinstance(singles.encodes, Legal)
    assert isinstance(singles.runs, Unknown)
    assert singles.runs.settle


def test_a_stride_of_zero_repeats_when_loaded_and_is_a_race_to_store() -> None:
    load = judge(request_of((("global_stride", (0,)),)), SM90A)
    store = judge(request_of((("global_stride", (0,)), ("direction", 1))), SM90A)
    assert isinstance(load.verdict, Legal)
    assert [v.rule for v in load.advice] == ["TMA045"]
    assert isinstance(store.runs, Illegal)
