"""Conversion plans run on a small warp machine: every register ends up with its element."""

from __future__ import annotations

import random
from itertools import product
from math import prod

import pytest

from support.conversion_machine import run
from support.slow import rest_slow
from tilewright.diag import TilewrightError
from tilewright.hw.spaces import ThreadGroup
from tilewright.layout.conversion import conversion_plan
from tilewright.layout.conversion_plan import (
    ConversionPlan,
    MatrixInstruction,
    PlanKind,
    SharedPlan,
    ShufflePlan,
    VectorAccesses,
)
from tilewright.layout.f2 import F2Layout
from tilewright.layout.library import fragments
from tilewright.layout.register import RegisterLayout, Repeat, Replication
from tilewright.layout.staging import shared_plan

pytestmark = pytest.mark.sample(3)


def held(layout: RegisterLayout) -> list[list[object]]:
    return [[layout.coordinate(t, r) for r in range(layout.registers)] for t in range(layout.threads)]


def check(source: RegisterLayout, target: RegisterLayout, size: int, *, shared: bool = True) -> ConversionPlan:
    plan = conversion_plan(source, target, size, shared=shared)
    assert run(plan, held(source), target.registers) == held(target)
    return plan


def fewest_shuffles(source: RegisterLayout, target: RegisterLayout) -> int:
    """Lower bound for single elements: what the worst lane must receive from other lanes."""
    where: dict[object, set[int]] = {}
    for t, row in enumerate(held(source)):
        for element in row:
            where.setdefault(element, set()).add(t)
    return max(len({e for e in row if t not in where[e]}) for t, row in enumerate(held(target)))


def random_blocked(rng: random.Random, shape: tuple[int, ...], warps: int) -> RegisterLayout:
    rank = len(shape)

    def deal(bits: int) -> tuple[int, ...]:
        share = [0] * rank
        for _ in range(bits):
            share[rng.randrange(rank)] += 1
        return tuple(1 << b for b in share)

    while True:
        order = rng.sample(range(rank), rank)
        layout = RegisterLayout.blocked(
            shape, vector=deal(rng.randrange(4)), lanes=deal(5), warps=deal(warps), order=order
        )
        if layout.shape == shape and layout.registers <= 128:
            return layout


SHAPES = [(16, 16), (32, 16), (32, 24), (64, 48), (8, 96), (4, 8, 16), (128,), (16, 80)]


@pytest.mark.parametrize("seed", rest_slow(range(100), 20))
def test_random_pairs(seed: int) -> None:
    rng = random.Random(seed)
    shape, warps = rng.choice(SHAPES), rng.randrange(3)
    source, target = random_blocked(rng, shape, warps), random_blocked(rng, shape, warps)
    plan = check(source, target, rng.choice([1, 2, 4, 8]))
    if isinstance(plan.steps, ShufflePlan) and plan.steps.elements == 1 and source.replication == Replication(0, 0, ()):
        assert plan.steps.shuffles == fewest_shuffles(source, target)


@pytest.mark.parametrize("seed", rest_slow(range(40), 10))
def test_random_warp_permutations(seed: int) -> None:
    """Bijections of the bits of one warp's tile, xors included: always in the warp, by shuffles or a round trip."""
    rng = random.Random(1000 + seed)
    registers, repeats = rng.randrange(4), rng.choice([1, 3])

    def layout() -> RegisterLayout:
        n = registers + 5
        columns: list[int] = []
        while len(columns) < n:
            column = 1 << rng.randrange(n) if rng.random() < 0.7 else rng.randrange(1, 1 << n)
            if F2Layout((("register", len(columns) + 1),), (("x", n),), (*columns, column)).is_injective:
                columns.append(column)
        low = rng.randrange(n + 1)
        atom = F2Layout(
            (("register", registers), ("lane", 5), ("warp", 0)), (("dim0", low), ("dim1", n - low)), tuple(columns)
        )
        return RegisterLayout((1 << low, repeats << (n - low)), atom, (Repeat(1, repeats, 1 << (n - low)),))

    source = layout()
    target = layout()
    while target.shape != source.shape:
        target = layout()
    plan = check(source, target, 4)
    assert plan.kind is not PlanKind.MATRIX
    if isinstance(plan.steps, SharedPlan):
        assert plan.steps.barrier is ThreadGroup.WARP
    if isinstance(plan.steps, ShufflePlan):
        assert plan.steps.shuffles == fewest_shuffles(source, target)


def test_equal_layouts_need_nothing() -> None:
    layout = fragments.wgmma_accumulator(64, 24)
    assert check(layout, layout, 4).kind is PlanKind.NOTHING


@pytest.mark.parametrize("k", [16, 48, 80, 160, 176, 192, 208])
def test_accumulators_become_a_operands_without_moving(k: int) -> None:
    # FlashAttention's p.to(bf16): the pairs of the m64n8 accumulator are those of the k16 operand
    plan = check(fragments.wgmma_accumulator(64, k), fragments.wgmma_operand_a(64, k, 16), 2)
    assert plan.kind is PlanKind.NOTHING
    two = check(
        fragments.wgmma_accumulator(256, k, warpgroups=2), fragments.wgmma_operand_a(256, k, 16, warpgroups=2), 2
    )
    assert two.kind is PlanKind.NOTHING


@pytest.mark.parametrize("k", [32, 96, 160, 192])
def test_accumulators_become_8_bit_operands_by_shuffles(k: int) -> None:
    source, target = fragments.wgmma_accumulator(64, k), fragments.wgmma_operand_a(64, k, 8)
    plan = check(source, target, 1, shared=False)
    assert plan.kind is PlanKind.SHUFFLE
    assert isinstance(plan.steps, ShufflePlan)
    assert plan.steps.elements == 2
    assert 2 * plan.steps.shuffles == fewest_shuffles(source, target)


@pytest.mark.parametrize("n", [24, 80, 128, 160, 176, 192, 208, 248])
def test_accumulators_leave_through_stmatrix(n: int) -> None:
    source = fragments.wgmma_accumulator(64, n)
    target = RegisterLayout.blocked((64, n), vector=(1, 8), lanes=(32, 1), warps=(4, 1), order=(1, 0))
    if target.shape != (64, n):
        target = RegisterLayout.blocked((64, n), vector=(1, 4), lanes=(16, 2), warps=(4, 1), order=(1, 0))
    assert target.shape == (64, n)
    plan = check(source, target, 2)
    assert plan.kind is PlanKind.MATRIX
    assert isinstance(plan.steps, SharedPlan)
    stores = plan.steps.store.accesses
    assert sum(a.matrices for a in stores if isinstance(a, MatrixInstruction)) == n // 4
    assert not any(isinstance(a, VectorAccesses) for a in stores)


def test_transposed_matrices() -> None:
    source = fragments.mma_accumulator(32, 16)
    target = RegisterLayout.blocked((32, 16), vector=(8, 1), lanes=(2, 16), warps=(1, 1), order=(0, 1))
    plan = check(source, target, 2)
    assert plan.kind is PlanKind.MATRIX
    assert isinstance(plan.steps, SharedPlan)
    first = plan.steps.store.accesses[0]
    assert isinstance(first, MatrixInstruction)
    assert first.trans


def test_register_moves() -> None:
    row = RegisterLayout.blocked((32, 4, 4), vector=(1, 4, 4), lanes=(32, 1, 1), warps=(1, 1, 1), order=(2, 1, 0))
    turned = RegisterLayout.blocked((32, 4, 4), vector=(1, 4, 4), lanes=(32, 1, 1), warps=(1, 1, 1), order=(1, 2, 0))
    assert check(row, turned, 4).kind is PlanKind.PERMUTE
    skewed = F2Layout(
        row.atom.ins,
        row.atom.outs,
        (*row.atom.columns[:4], row.atom.columns[4] | row.atom.columns[0], *row.atom.columns[5:]),
    )
    assert check(row, RegisterLayout(row.shape, skewed), 4).kind is PlanKind.SELECT


def test_a_lane_transpose_takes_half_the_rounds() -> None:
    def swap(register: int, lane: int) -> RegisterLayout:
        atom = F2Layout((("register", 1), ("lane", 5), ("warp", 0)), (("dim0", 6),), (register, lane, 4, 8, 16, 32))
        return RegisterLayout((64,), atom)

    plan = check(swap(1, 2), swap(2, 1), 4)
    assert isinstance(plan.steps, ShufflePlan)
    assert plan.steps.shuffles == 1


def test_copies_are_read_from_home() -> None:
    rows = fragments.wgmma_accumulator(64, 24).slice(1)
    everywhere = RegisterLayout.blocked((64,), vector=(2,), lanes=(32,), warps=(4,), order=(0,))
    assert everywhere.shape == (64,)
    check(rows, everywhere, 4)
    check(everywhere, rows, 4)
    assert check(rows, rows, 4).kind is PlanKind.NOTHING
    one = RegisterLayout((64, 8), fragments.wgmma_accumulator(64, 8).atom, (Repeat(0, 2, 0),))
    check(fragments.wgmma_accumulator(64, 8), one, 4)
    check(one, fragments.wgmma_accumulator(64, 8), 4)


def test_copies_of_other_warps_need_the_whole_cta() -> None:
    """One warp stores what all hold: the others may read it only after a barrier of the CTA."""
    columns = F2Layout((("register", 0), ("lane", 5), ("warp", 1)), (("dim0", 5),), (1, 2, 4, 8, 16, 0))
    scattered = F2Layout((("register", 2), ("lane", 5), ("warp", 1)), (("dim0", 5),), (8, 16, 1, 2, 4, 0, 0, 0))
    plan = check(RegisterLayout((32,), columns), RegisterLayout((32,), scattered), 4)
    staged = shared_plan(RegisterLayout((32,), columns), RegisterLayout((32,), scattered), 4, same_warp=True)
    assert isinstance(staged.steps, SharedPlan)
    assert staged.steps.barrier is ThreadGroup.CTA
    assert plan.kind is not PlanKind.NOTHING


def test_staging_avoids_bank_conflicts() -> None:
    row = RegisterLayout.blocked((32, 64), vector=(1, 4), lanes=(2, 16), warps=(1, 1), order=(1, 0))
    column = RegisterLayout.blocked((32, 64), vector=(1, 4), lanes=(32, 1), warps=(1, 1), order=(1, 0))
    plan = check(row, column, 4)
    ideal = 2 * prod(row.shape) * 4 // 128
    assert isinstance(plan.steps, SharedPlan)
    assert plan.cost.wavefronts == ideal
    assert plan.cost.shared_bytes >= prod(row.shape) * 4


def test_different_tiles_are_refused() -> None:
    a, b = fragments.wgmma_accumulator(64, 16), fragments.wgmma_accumulator(64, 24)
    for x, y in product((a, b), repeat=2):
        if x is not y:
            with pytest.raises(TilewrightError, match="LAY017"):
                conversion_plan(x, y, 4)
    with pytest.raises(TilewrightError, match="LAY017"):
        conversion_plan(fragments.wgmma_accumulator(128, 16), fragments.wgmma_accumulator(128, 16, warpgroups=2), 4)
    with pytest.raises(TilewrightError, match="LAY003"):
        conversion_plan(a, a, 3)
    rows = RegisterLayout.blocked((64, 64), vector=(1, 4), lanes=(4, 8), warps=(4, 1), order=(1, 0))
    with pytest.raises(TilewrightError, match="LAY019"):
        conversion_plan(rows, rows.transpose((1, 0)), 4, shared=False)
