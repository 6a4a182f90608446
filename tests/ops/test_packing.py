"""Pack plans: by kernels as by NumPy, whatever the ids are; rows there and back; what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.ops.packing import host, moving
from tilewright.ops.packing.plan import PackPlan, plan_by_kernels, plan_on_host

pytestmark = pytest.mark.sample(1)

PLANS: dict[str, tuple[int, int, int, tw.PackPolicy]] = {
    "aligned": (317, 4, 8, tw.PackPolicy(64)),
    "compact": (317, 4, 100, tw.PackPolicy()),
    "with a capacity": (317, 4, 100, tw.PackPolicy(16, 9)),
    "a capacity of none": (40, 2, 4, tw.PackPolicy(4, 0)),
    "no tokens": (0, 4, 8, tw.PackPolicy(64)),
    "one bucket": (5, 1, 1, tw.PackPolicy()),
    "more than one tile of buckets": (70, 3, 129, tw.PackPolicy(8, 2)),
    "the most buckets": (90, 2, 1024, tw.PackPolicy(4)),
    "blocks of more rows than a tile": (7, 2, 3, tw.PackPolicy(5000)),
}
ARRAYS = ("slots", "rows", "pairs", "blocks", "offsets", "kept")


def drawn(tokens: int, choices: int, buckets: int, kind: type = np.int32) -> np.ndarray:
    """Some ids are no buckets."""
    return np.random.default_rng(tokens).integers(-2, buckets + 3, (tokens, choices)).astype(kind)


def as_promised(plan: PackPlan, ids: np.ndarray, buckets: int) -> None:
    """What the plan's documentation says, word by word."""
    flat, slots, align = ids.reshape(-1), plan.slots.reshape(-1), plan.policy.align
    begin = 0
    for bucket in range(buckets):
        own = np.flatnonzero(flat == bucket)[: plan.policy.capacity]
        assert plan.offsets[bucket] == begin
        assert plan.kept[bucket] == len(own)
        np.testing.assert_array_equal(slots[own], begin + np.arange(len(own)))
        assert (slots[np.flatnonzero(flat == bucket)[len(own) :]] == -1).all()
        end = begin + -(-len(own) // align) * align
        assert (plan.pairs[begin + len(own) : end] == -1).all()
        assert (plan.blocks[begin // align : end // align] == bucket).all()
        begin = end
    assert plan.offsets[buckets] == begin <= plan.capacity
    assert (slots[(flat < 0) | (flat >= buckets)] == -1).all()
    assert (plan.pairs[begin:] == -1).all()
    assert (plan.blocks[begin // align :] == -1).all()
    held = np.flatnonzero(plan.pairs >= 0)
    np.testing.assert_array_equal(slots[plan.pairs[held]], held)
    np.testing.assert_array_equal(plan.rows[held], plan.pairs[held] // plan.choices)
    assert (plan.rows[plan.pairs < 0] == -1).all()


@pytest.mark.parametrize("kind", [np.int32, np.int64])
@pytest.mark.parametrize("name", PLANS)
def test_kernels_and_numpy_plan_alike(name: str, kind: type) -> None:
    tokens, choices, buckets, policy = PLANS[name]
    ids = drawn(tokens, choices, buckets, kind)
    by_kernels, by_numpy = (make(ids, buckets, policy) for make in (plan_by_kernels, plan_on_host))
    as_promised(by_kernels, ids, buckets)
    for array in ARRAYS:
        found = getattr(by_kernels, array)
        assert found.dtype == np.int32
        np.testing.assert_array_equal(found, getattr(by_numpy, array), err_msg=array)


Relation = set[tuple[int, int]]


def composed(r: Relation, s: Relation) -> Relation:
    return {(a, d) for a, b in r for c, d in s if b == c}


def converse(r: Relation) -> Relation:
    return {(b, a) for a, b in r}


def listed(table: np.ndarray) -> Relation:
    """A table as pairs; -1 leads nowhere."""
    return {(i, int(p)) for i, p in enumerate(table.reshape(-1)) if p != -1}


def test_a_thousand_relations_are_sorted_into_blocks_and_back() -> None:
    """Which pair chose which bucket is P2^T B P1, by enumeration: P1 takes each kept pair to a row of its own (a
    partial injection, of which ``pairs`` is the converse), B each row to its block's bucket, diagonal by blocks."""
    rng = np.random.default_rng(0)
    for _ in range(1000):
        tokens, choices, buckets = (int(n) for n in rng.integers((0, 1, 1), (9, 5, 7)))
        capacity = None if rng.random() < 0.5 else int(rng.integers(0, 5))
        policy = tw.PackPolicy(int(rng.integers(1, 5)), capacity)
        ids = rng.integers(-1, buckets + 1, (tokens, choices)).astype(np.int32)
        plan = plan_on_host(ids, buckets, policy)
        places, back = listed(plan.slots), listed(plan.pairs)
        assert converse(places) == back
        assert composed(places, back) == {(i, i) for i, _ in places}  # its kernel is equality: it is injective
        assert composed(back, places) == {(p, p) for p, _ in back}
        of_rows = listed(np.repeat(plan.blocks, policy.align))
        wanted = {(int(i), b) for b in range(buckets) for i in np.flatnonzero(ids.reshape(-1) == b)[:capacity].tolist()}
        assert composed(places, of_rows) == wanted
        assert listed(plan.rows) == composed(back, {(i, i // choices) for i in range(ids.size)})
        ends = [int(plan.offsets[b + 1]) for b in range(buckets)]
        assert all(p < ends[b] and (b == 0 or p >= ends[b - 1]) for p, b in composed(back, wanted))


def test_tables_that_are_no_converse_are_seen() -> None:
    forth, back = np.array([2, -1, 0]), np.array([2, -1, 0, -1])
    assert host.are_converse(forth, back)
    assert host.are_converse(forth[:0], back[1:2])
    for wrong_forth, wrong_back in (
        ([2, -1, 2], [-1, -1, 0, -1]),  # two pairs in one row
        ([2, -1, -1], back),
        (forth, [2, -1, -1, -1]),
        (forth, [2, -1, 0, 0]),
        ([4, -1, 0], back),
        ([2, -2, 0], back),
        (forth, [3, -1, 0, -1]),
    ):
        assert not host.are_converse(np.array(wrong_forth), np.array(wrong_back))


def test_handles_of_a_plan_of_the_host_are_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = drawn(20, 2, 5)
    assert tw.build_pack_plan(ids, 5, unique=True).unique_slots is not None
    right = host.planned

    def wrong(*given: Any) -> dict[str, np.ndarray]:
        found = right(*given)
        first, second = np.flatnonzero(found["slots"].reshape(-1) >= 0)[:2]
        found["slots"].reshape(-1)[second] = found["slots"].reshape(-1)[first]
        return found

    monkeypatch.setattr(host, "planned", wrong)
    tw.build_pack_plan(ids, 5)
    with pytest.raises(AssertionError, match="two pairs"):
        tw.build_pack_plan(ids, 5, unique=True)


def test_hostile_ids_are_dropped() -> None:
    ids = np.full((200, 2), 2, np.int64)
    ids[:5] = [[2**32, 1], [-1, -(2**63)], [2**63 - 1, 3], [2**32 + 2, -(2**32)], [2**31 - 1, -(2**31)]]
    plan = plan_by_kernels(ids, 3, tw.PackPolicy(64))
    as_promised(plan, ids, 3)
    assert plan.kept.tolist() == [0, 1, 390]


def test_all_choose_one_bucket_and_each_its_own() -> None:
    policy = tw.PackPolicy(8)
    for ids in (np.full(1200, 5, np.int32), np.arange(100, dtype=np.int32)):
        as_promised(plan_by_kernels(ids, 100, policy), ids, 100)
    assert policy.block_count(1200, 100) == 100 + 1100 // 8
    fullest = np.repeat(np.arange(100), [9] * 33 + [1] * 67).astype(np.int32)  # as many blocks as 364 pairs can need
    plan = plan_on_host(fullest, 100, policy)
    assert int(plan.offsets[-1]) == plan.capacity == 8 * policy.block_count(364, 100)


def test_there_and_back() -> None:
    tokens, choices, buckets, policy = PLANS["with a capacity"]
    plan = tw.build_pack_plan(drawn(tokens, choices, buckets), buckets, policy)
    rng = np.random.default_rng(0)
    x, added = rng.standard_normal((2, tokens, 24)).astype(np.float32)
    weights = rng.random((tokens, choices), dtype=np.float32)
    packed = tw.pack(plan, x)
    np.testing.assert_array_equal(packed, np.where(plan.rows[:, None] >= 0, x[plan.rows], 0))
    held = plan.slots >= 0
    np.testing.assert_allclose(tw.unpack(plan, packed), x * held.sum(1, keepdims=True), rtol=1e-5, atol=1e-6)
    wanted = added + x * (weights * held).sum(1, keepdims=True)
    np.testing.assert_allclose(tw.unpack(plan, packed, weights, added), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", [np.bool_, np.int8, np.int64, np.float16, np.float32])
@pytest.mark.parametrize(
    ("tokens", "choices", "align", "capacity"), [(37, 4, 8, None), (9, 6, 1000, 3), (0, 4, 8, None)]
)
def test_rows_of_many_choices_are_read_once(
    tokens: int, choices: int, align: int, capacity: int | None, kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan with handles fills padding, and only that, and spreads each token's row over what held NaN before."""
    ids, policy = drawn(tokens, choices, 5), tw.PackPolicy(align, capacity)
    plan = tw.build_pack_plan(ids, 5, policy, unique=True)
    x = (np.random.default_rng(1).standard_normal((tokens, 20)) * 9).astype(kind)
    exact = tw.pack(tw.build_pack_plan(ids, 5, policy), x)

    def poisoned(like: Any, shape: tuple[int, ...], _: object) -> Any:
        return np.full(shape, np.nan).astype(like.dtype) if like.dtype.kind == "f" else np.ones(shape, like.dtype)

    monkeypatch.setattr(moving, "empty", poisoned)
    packed = tw.pack(plan, x)
    assert packed.dtype == kind
    np.testing.assert_array_equal(packed, exact)


@pytest.mark.parametrize("kind", [np.bool_, np.int8, np.int32, np.int64])
def test_rows_of_integers_keep_their_dtype(kind: type) -> None:
    ids = drawn(20, 2, 5)
    plan = tw.build_pack_plan(ids, 5, tw.PackPolicy(4))
    x = np.random.default_rng(1).integers(0, 2, (20, 6)).astype(kind)
    if kind is np.int64:
        x = x * 2**40 + 3
    packed = tw.pack(plan, x)
    assert packed.dtype == x.dtype
    np.testing.assert_array_equal(packed, np.where(plan.rows[:, None] >= 0, x[plan.rows], kind(0)))


def test_sums_of_integers_keep_their_dtype() -> None:
    plan = tw.build_pack_plan(np.array([[1, 0], [2, -1]], np.int32), 3)
    y, weights = np.full((4, 8), 3, np.int32), np.array([[2, 1], [4, 1]], np.float32)
    for got, wanted in ((tw.unpack(plan, y), [6, 3]), (tw.unpack(plan, y, weights), [9, 12])):
        assert got.dtype == np.int32
        assert got[:, 0].tolist() == wanted


def test_a_plan_serves_a_kernel_over_groups() -> None:
    @tw.kernel
    def scaled(offsets: tw.Offsets["G + 1"], scale: tw.Tensor["G"], x: tw.Tensor["P", "D"], y: tw.Tensor["P", "D"]):  # noqa: F821, UP037
        g, m = tw.ragged_grid(offsets, x.shape[0], 16)
        d = tw.axis(x.shape[1], upto=32)
        y[m, d] = x[m, d] * scale[g]

    ids = drawn(60, 2, 5)
    plan = tw.build_pack_plan(ids, 5)
    scale, x = np.arange(1, 6, dtype=np.float32), np.ones((60, 8), np.float32)
    y = tw.unpack(plan, scaled(plan.offsets, scale, tw.pack(plan, x)))
    wanted = np.where((ids >= 0) & (ids < 5), ids + 1, 0).sum(1)
    np.testing.assert_array_equal(y, np.broadcast_to(wanted[:, None], (60, 8)))


@pytest.mark.parametrize(
    ("ids", "buckets"),
    [
        (np.zeros((4, 2), np.float32), 3),
        (np.zeros((4, 2, 1), np.int32), 3),
        (np.zeros((4, 0), np.int32), 3),
        (np.zeros((4, 2), np.int8), 3),
        (np.zeros(4, np.int32), 0),
        (np.zeros(4, np.int32), 1025),
        (np.zeros(4, np.int32), 2.0),
        ([0, 1], 3),
    ],
)
def test_what_makes_no_plan_is_refused(ids: Any, buckets: Any) -> None:
    with pytest.raises(tw.TilewrightError, match="JIT012"):
        tw.build_pack_plan(ids, buckets)


def test_policies_and_rows_that_do_not_fit_are_refused() -> None:
    for policy in ({"align": 0}, {"align": 64.0}, {"capacity": -1}, {"capacity": True}):
        with pytest.raises(tw.TilewrightError, match="JIT012"):
            tw.PackPolicy(**policy)
    no_policies: tuple[Any, ...] = (None, 64)
    for policy in no_policies:
        with pytest.raises(tw.TilewrightError, match=r"(?s)JIT012.*tw.PackPolicy"):
            tw.build_pack_plan(np.zeros(4, np.int32), 3, policy)
    with pytest.raises(tw.TilewrightError, match="JIT012"):  # a bucket a row, each a block
        tw.build_pack_plan(np.zeros(1024, np.int32), 1024, tw.PackPolicy(2**21))
    plan = tw.build_pack_plan(drawn(6, 2, 3), 3)
    x = np.ones((6, 8), np.float32)
    no_plan: Any = None
    for refused in (
        lambda: tw.pack(no_plan, x),
        lambda: tw.unpack(no_plan, x),
        lambda: tw.pack(plan, x[:5]),
        lambda: tw.pack(plan, x[0]),
        lambda: tw.unpack(plan, x),
        lambda: tw.unpack(plan, np.ones((12, 8), np.float32), np.ones((6, 3), np.float32)),
        lambda: tw.unpack(plan, np.ones((12, 8), np.float32), None, x[:, :4]),
    ):
        with pytest.raises(tw.TilewrightError, match="JIT012"):
            refused()
