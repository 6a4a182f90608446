"""The rules against the driver's answers, and every rule missed when it is left out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from support.tensormap_edges import RuleEdge, box_bytes, columns_of, draw, edges, near_full_boxes
from tilewright.base.verdict import Legal
from tilewright.hw.rules.tensormap_encode import RULES
from tilewright.hw.target import SM90A
from tilewright.hw.tensormap import MAX_BOX_BYTES
from tilewright.legal.agreement import COLUMNS, Column, compare, encode_rules
from tilewright.legal.tensormap import TensorMapRequest, judge

DATA = Path(__file__).parents[1] / "data"


def labelled(name: str) -> dict[str, Column]:
    with np.load(DATA / name, allow_pickle=False) as archive:
        table = archive["data"].astype(np.int64)
        return {str(name): table[:, i] for i, name in enumerate(archive["columns"])}


@pytest.fixture(scope="module")
def sample() -> dict[str, Column]:
    return labelled("tensormap_sample.npz")


@pytest.fixture(scope="module")
def labelled_edges() -> dict[str, Column]:
    return labelled("tensormap_boundary.npz")


@pytest.fixture(scope="module")
def boundary() -> tuple[RuleEdge, ...]:
    return edges(40, np.random.default_rng(3))


def test_the_rules_agree_with_the_driver_on_every_row(sample: dict[str, Column]) -> None:
    agreement = compare(sample, sample["result"] == 0)
    assert agreement.rows > 5000
    assert len(agreement.false_legal) == 0
    assert len(agreement.false_illegal) == 0


def test_the_rules_agree_with_the_driver_at_their_edges(labelled_edges: dict[str, Column]) -> None:
    agreement = compare(labelled_edges, labelled_edges["result"] == 0)
    assert agreement.rows == 18_000
    assert len(agreement.false_legal) == 0
    assert len(agreement.false_illegal) == 0


def test_the_largest_box_is_the_largest_the_driver_accepts(labelled_edges: dict[str, Column]) -> None:
    table = np.stack([labelled_edges[name] for name in COLUMNS], axis=1)
    alone = compare(labelled_edges, labelled_edges["result"] == 0, without=frozenset(("TMA020",)))
    others = np.logical_and.reduce(list(alone.holds.values()))
    size, accepted = box_bytes(table), labelled_edges["result"] == 0
    assert size[others & accepted].max() == MAX_BOX_BYTES
    assert MAX_BOX_BYTES < size[others & ~accepted].min() < MAX_BOX_BYTES + 16


@pytest.mark.parametrize("rule", [rule.id for rule in encode_rules(90)])
def test_leaving_a_rule_out_lets_rejected_requests_through(rule: str, sample: dict[str, Column]) -> None:
    agreement = compare(sample, sample["result"] == 0, without=frozenset((rule,)))
    assert len(agreement.false_legal) >= 40


def test_every_row_out_of_scope_on_hopper_is_about_a_later_architecture() -> None:
    on_hopper = {rule.id for rule in encode_rules(90)}
    for rule in RULES:
        if rule.consequence.value == "driver rejects" and rule.id not in on_hopper:
            assert rule.scope.cc_from >= 100


def request_of(columns: Mapping[str, Column], row: int) -> TensorMapRequest:
    """One row of a corpus as a request."""
    one = {name: int(column[row]) for name, column in columns.items()}
    return TensorMapRequest(
        one["dtype"],
        one["rank"],
        one["addr_off"],
        tuple(one[f"dim{i}"] for i in range(5)),
        tuple(one[f"stride{i}"] for i in range(1, 5)),
        tuple(one[f"box{i}"] for i in range(5)),
        tuple(one[f"es{i}"] for i in range(5)),
        one["interleave"],
        one["swizzle"],
        one["l2"],
        one["oob"],
        one["desc_off"],
    )


def test_one_request_is_judged_as_a_column_of_them(sample: dict[str, Column]) -> None:
    columns = {name: sample[name] for name in COLUMNS}
    accepted = sample["result"] == 0
    for row in range(0, len(accepted), 7):
        encodes = judge(request_of(columns, row), SM90A).encodes
        assert isinstance(encodes, Legal) == bool(accepted[row]), row


def test_every_edge_has_requests_on_both_sides(boundary: tuple[RuleEdge, ...]) -> None:
    assert {edge.rule.id for edge in boundary} == {rule.id for rule in encode_rules(90)}
    for edge in boundary:
        assert len(edge.kept) == len(edge.broken) == 40
        everything = np.ones(40, dtype=np.bool_)
        assert len(compare(columns_of(edge.kept), everything).false_illegal) == 0
        broken = compare(columns_of(edge.broken), ~everything)
        assert len(broken.false_legal) == 0
        assert all(broken.broken(row) == (edge.rule.id,) for row in range(40))
        assert np.all(np.sum(edge.kept != edge.broken, axis=1) == 1)


def test_drawn_requests_reproduce_from_their_seed() -> None:
    first, second = (draw(100, np.random.default_rng(5)) for _ in range(2))
    assert np.array_equal(first, second)


def test_full_boxes_lie_on_both_sides_of_the_limit() -> None:
    boxes = near_full_boxes(400, np.random.default_rng(1))
    size = box_bytes(boxes)
    assert np.all(np.abs(size - MAX_BOX_BYTES) <= 256)
    assert (size <= MAX_BOX_BYTES).any()
    assert (size > MAX_BOX_BYTES).any()
