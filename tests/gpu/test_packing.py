"""Plans and packed rows on a real device: bit for bit those of the host, whatever is chosen."""

from __future__ import annotations

from typing import Any

import pytest

import tilewright as tw

pytestmark = pytest.mark.gpu
torch: Any = pytest.importorskip("torch")

ARRAYS = ("slots", "rows", "pairs", "blocks", "offsets", "kept")
WILD = (-1, 2**31 - 1, -(2**31))
SIZES = ((1, 1), (8, 128), (17, 8), (128, 64), (512, 1), (513, 16))
"""Buckets and rows of a block."""


def chosen(seed: int) -> tuple[Any, int, tw.PackPolicy]:
    """(ids, buckets, policy): a few tokens or many, ids that are no buckets, the same bucket again, empty buckets."""
    random = torch.Generator().manual_seed(seed)

    def one_of(*values: Any) -> Any:
        return values[int(torch.randint(len(values), (), generator=random))]

    (buckets, align), choices = one_of(*SIZES), one_of(1, 2, 4, 8)
    tokens = one_of(0, 1, 2, 31, 32, 33, 300, 511, 513, 4096, 20000, 100000 // choices)
    ids = torch.randint(buckets, (tokens, choices), generator=random, dtype=one_of(torch.int32, torch.int64))
    kind = one_of("even", "one", "every second", "the same again", "wild")
    if kind == "one":
        ids.fill_(buckets - 1)
    elif kind == "every second":
        ids = ids // 2 * 2
    elif kind == "the same again":
        ids = ids[:, :1].repeat(1, choices)
    elif kind == "wild":
        wild = torch.tensor((*WILD, buckets), dtype=ids.dtype)[torch.randint(4, ids.shape, generator=random)]
        ids = torch.where(torch.rand(ids.shape, generator=random) < 0.5, wild, ids)
    return ids, buckets, tw.PackPolicy(align, one_of(None, None, 0, 1, 9, 700))


@pytest.mark.parametrize("first", range(0, 300, 50))
def test_plans_and_rows_are_those_of_the_host(first: int) -> None:
    """Rows as the plan has them: gathered, and read once a token where the plan has handles."""
    for seed in range(first, first + 50):
        ids, buckets, policy = chosen(seed)
        host, plan = (tw.build_pack_plan(i, buckets, policy, unique=True) for i in (ids, ids.cuda()))
        for name in ARRAYS:
            assert torch.equal(getattr(plan, name).cpu(), getattr(host, name)), (seed, name)
        if plan.capacity > 200000:
            continue
        x = torch.randint(-(2**15), 2**15, (len(ids), 40), dtype=torch.int16, device="cuda")
        held = (plan.rows >= 0)[:, None]
        exact = torch.where(held, x[plan.rows.clamp(min=0).long()], 0) if len(x) else held * x.new_zeros(1, 40)
        torch.full((plan.capacity + 9, 40), 7, dtype=torch.int16, device="cuda")  # memory that a result may get again
        assert torch.equal(tw.pack(plan, x), exact), seed
        assert torch.equal(tw.pack(tw.build_pack_plan(ids.cuda(), buckets, policy), x), exact), seed
