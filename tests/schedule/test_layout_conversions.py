"""Conversion plans as transport ops, run by the simulator: every element arrives, races and unwritten reads refused."""

from __future__ import annotations

import random

import numpy as np
import pytest
from xdsl.ir import Operation, SSAValue

from support.slow import rest_slow
from support.transport import TID, R, kernel
from tilewright.base.dtypes import DTYPES
from tilewright.base.expr import TRUE, Const
from tilewright.codegen.cuda import emit_kernel
from tilewright.layout.conversion import conversion_plan
from tilewright.layout.conversion_plan import ConversionPlan, PlanKind
from tilewright.layout.library import fragments
from tilewright.layout.register import RegisterLayout, Repeat
from tilewright.schedule.conflicts import shared_uses
from tilewright.schedule.layout_conversions import ConversionContext, convert
from tilewright.simulate import run
from tilewright.tile.attributes import TensorType
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t

pytestmark = pytest.mark.sample(1)

NAMES = {1: "i8", 2: "f16", 4: "i32", 8: "i64"}
ARRAYS = {1: np.int8, 2: np.float16, 4: np.int32, 8: np.int64}


def lowered(source: RegisterLayout, target: RegisterLayout, plan: ConversionPlan, *, warps: bool = True) -> t.Kernel:
    """Registers of the source from x[thread, register], converted, to y[thread, register]."""
    dtype = DTYPES[NAMES[plan.element_bytes]]

    def build(x: SSAValue, y: SSAValue) -> list[Operation]:
        body: list[Operation] = []

        def registers(count: int) -> SSAValue:
            body.append(op := t.Registers("held", dtype, count))
            return op.buffer

        def shared(count: int) -> SSAValue:
            body.insert(0, op := t.Shared("tile", dtype, count))
            return op.buffer

        held = registers(source.registers)
        body.append(t.Load(x, held, [TID, R], TRUE))
        context = ConversionContext(body.append, registers, shared, warps=warps)
        moved = convert(plan, held, target.registers, dtype, context)
        body.append(t.Store(y, moved, [TID, R], TRUE))
        return body

    shapes = {"x": source.registers, "y": target.registers}
    types = {n: TensorType.of(dtype, [Const(source.threads), Const(k)], n) for n, k in shapes.items()}
    return kernel(dict(types), build, threads=source.threads)


def arrives(source: RegisterLayout, target: RegisterLayout, plan: ConversionPlan, *, warps: bool = True) -> t.Kernel:
    size = plan.element_bytes
    box = tuple(max(p, q) for p, q in zip(source.shape, target.shape, strict=True))
    names = np.arange(1, 1 + int(np.prod(box))).reshape(box) % 120 + 1
    lowers = lowered(source, target, plan, warps=warps)
    x = np.array(
        [[names[source.coordinate(i, r)] for r in range(source.registers)] for i in range(source.threads)], ARRAYS[size]
    )
    y = np.full((target.threads, target.registers), 127, ARRAYS[size])
    run(lowers, {"x": x, "y": y})
    inside = np.zeros(box, np.bool_)
    inside[tuple(slice(n) for n in source.shape)] = True
    for i in range(target.threads):
        for r in range(target.registers):
            at = target.coordinate(i, r)
            assert y[i, r] == (names[at] if inside[at] else 0)
    return lowers


def blocked(rng: random.Random, shape: tuple[int, ...], warps: int) -> RegisterLayout:
    def deal(bits: int) -> tuple[int, ...]:
        share = [0] * len(shape)
        for _ in range(bits):
            share[rng.randrange(len(shape))] += 1
        return tuple(1 << b for b in share)

    order = rng.sample(range(len(shape)), len(shape))
    return RegisterLayout.blocked(shape, vector=deal(rng.randrange(4)), lanes=deal(5), warps=deal(warps), order=order)


@pytest.mark.parametrize("seed", rest_slow(range(24), 6))
def test_random_pairs_in_the_simulator(seed: int) -> None:
    rng = random.Random(seed)
    shape, warps = rng.choice([(16, 24), (64, 48), (32, 80), (8, 4, 24), (128,)]), rng.randrange(3)
    source, target = blocked(rng, shape, warps), blocked(rng, shape, warps)
    plan = conversion_plan(source, target, rng.choice([1, 2, 4, 8]), ragged=True)
    arrives(source, target, plan, warps=rng.random() < 0.5)


@pytest.mark.parametrize("n", [24, 80, 176, 248])
def test_accumulators_to_rows_by_matrices(n: int) -> None:
    source = fragments.wgmma_accumulator(64, n)
    target = RegisterLayout.blocked((64, n), vector=(1, 8), lanes=(32, 1), warps=(4, 1), order=(1, 0))
    if target.shape != (64, n):
        target = RegisterLayout.blocked((64, n), vector=(1, 4), lanes=(16, 2), warps=(4, 1), order=(1, 0))
    plan = conversion_plan(source, target, 2)
    assert plan.kind is PlanKind.MATRIX
    emitted = emit_kernel(arrives(source, target, plan))
    assert "stmatrix_x" in emitted.source
    back = arrives(target, source, conversion_plan(target, source, 2))
    assert any(isinstance(op, a.LoadMatrix) for op in back.walk())


def test_no_matrices_where_none_may_move_a_tile() -> None:
    source = fragments.wgmma_accumulator(64, 80)
    target = RegisterLayout.blocked((64, 80), vector=(1, 8), lanes=(32, 1), warps=(4, 1), order=(1, 0))
    assert conversion_plan(source, target, 2).kind is PlanKind.MATRIX
    plan = conversion_plan(source, target, 2, matrices=False)
    assert plan.kind is PlanKind.SHARED
    arrives(source, target, plan)


@pytest.mark.parametrize("trans", [False, True])
def test_matrices_are_read_in_either_way(trans: bool) -> None:
    held = fragments.ldmatrix(32, 48, trans=trans)
    rows = RegisterLayout.blocked((32, 48), vector=(1, 8), lanes=(16, 2), warps=(1, 1), order=(1, 0))
    for source, target in ((held, rows), (rows, held)):
        plan = conversion_plan(source, target, 2)
        arrives(source, target, plan)


def test_shuffles_of_parts_of_words() -> None:
    for size in (1, 2, 4, 8):
        source = RegisterLayout.blocked((32, 8), vector=(1, 4), lanes=(16, 2), warps=(1, 1), order=(1, 0))
        target = RegisterLayout.blocked((32, 8), vector=(1, 1), lanes=(4, 8), warps=(1, 1), order=(1, 0))
        plan = conversion_plan(source, target, size, shared=False)
        assert plan.kind is PlanKind.SHUFFLE
        assert "__shfl_sync" in emit_kernel(arrives(source, target, plan)).source


def test_eight_bit_operands_of_accumulators() -> None:
    source, target = fragments.wgmma_accumulator(64, 96), fragments.wgmma_operand_a(64, 96, 8)
    arrives(source, target, conversion_plan(source, target, 1, shared=False))


def test_copies_in_other_warps() -> None:
    rows = fragments.wgmma_accumulator(64, 24).slice(1)
    everywhere = RegisterLayout.blocked((64,), vector=(2,), lanes=(32,), warps=(4,), order=(0,))
    twice = RegisterLayout((64, 8), fragments.wgmma_accumulator(64, 8).atom, (Repeat(0, 2, 0),))
    for source, target in ((rows, everywhere), (everywhere, rows), (twice, fragments.wgmma_accumulator(64, 8))):
        arrives(source, target, conversion_plan(source, target, 4))


def test_the_plan_tells_conflicts() -> None:
    """What the plan promises is what the lowered addresses do."""
    row = RegisterLayout.blocked((64, 64), vector=(8, 8), lanes=(4, 8), warps=(2, 1), order=(1, 0))
    column = RegisterLayout.blocked((64, 64), vector=(8, 8), lanes=(8, 4), warps=(1, 2), order=(0, 1))
    uses = shared_uses(lowered(row, column, conversion_plan(row, column, 2)), "sm_90a")
    assert [(u.op, u.degree) for u in uses] == [("st.shared.b128", 1), ("ld.shared.b128", 1)]
    assert "free of conflicts" in str(uses[0])

    def build(x: SSAValue) -> list[Operation]:
        shared, held = t.Shared("tile", DTYPES["i32"], 32 * 32), t.Registers("held", DTYPES["i32"], 1)
        reads = [
            t.SharedRead(shared.buffer, held.buffer, TID * step, guard) for step, guard in ((32, TRUE), (32, TID < 8))
        ]
        return [shared, held, *reads]

    bad = shared_uses(kernel({"x": TensorType.of(DTYPES["i32"], [Const(1)], "x")}, build), "sm_90a")
    assert [u.degree for u in bad] == [32, 8]
    assert "32 words" in str(bad[0])
