"""Rotated streams: right under any interleaving, proved with their order barriers, broken by what is left out."""

# ruff: noqa: F821, UP037 - dimension names are strings
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from examples import attention as example
from support import products as p
from tilewright import simulate
from tilewright.base.verdict import Proved
from tilewright.codegen.assemble import assemble, defects
from tilewright.codegen.cuda import emit_kernel
from tilewright.codegen.sync_check import mismatches
from tilewright.compiler.proofs.stores import prove_stores
from tilewright.diag import TilewrightError
from tilewright.schedule.hopper.accumulator_placement import Refused
from tilewright.schedule.hopper.candidate import Candidate
from tilewright.schedule.hopper.software_pipeline import reordered
from tilewright.tile import dialect as tile
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t
from tilewright.transport.protocol import protocols_of
from tilewright.verify import check

pytestmark = pytest.mark.sample(1)

RNG = np.random.default_rng(31)
ROTATED = Candidate(1, stages=2, software_pipelined=True)


def lowered(kernel: tw.Kernel, candidate: Candidate = ROTATED, **keywords: object) -> p.Lowered:
    found = p.lower(kernel, candidate, **keywords)
    assert not isinstance(found, Refused), found.reason
    found.scheduled.kernel.verify()
    return found


def attend(kernel: t.Kernel, length: int, others: int, seed: int, *, causal: bool, heads: int = 0) -> None:
    """Runs attention on random heads, keys so large that an unmasked exponential overflows, and compares."""
    shape, width = ((1, heads) if heads else ()), 128 if heads else 64
    q, k, v, out = (RNG.normal(size=(*shape, n, width)) for n in (length, others, others, length))
    q, k, v, out = (x.astype(ml_dtypes.bfloat16) for x in (q, 30 * k, v, out))
    simulate.run(kernel, {"q": q, "k": k, "v": v, "o": out}, {"scale": 0.125}, seed=seed, grid_size=1 + seed % 2)
    x, w = q.astype(np.float64) @ np.swapaxes(k.astype(np.float64), -1, -2) * 0.125, v.astype(np.float64)
    if causal:
        x = np.where(np.tri(length, others, dtype=bool), x, -np.inf)
    weights = np.exp(x - x.max(-1, keepdims=True))
    exact = weights / weights.sum(-1, keepdims=True) @ w
    assert np.linalg.norm(out.astype(np.float64) - exact) < 1e-2 * np.linalg.norm(exact)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("length", [1, 63, 64, 65, 128, 200])
def test_attention(length: int, causal: bool) -> None:
    kernel = lowered(p.attention, causal=causal).scheduled.kernel
    for seed in range(3):
        attend(kernel, length, length, seed, causal=causal)


def consumer_loops(kernel: t.Kernel) -> list[tuple[str, str, int]]:
    """Beginning and end of each, and how often it chooses between two values."""
    (*_, consumers) = (op for op in kernel.walk() if isinstance(op, a.Role))
    found = [op for op in consumers.walk() if isinstance(op, t.For)]
    choices = (sum(isinstance(inner, tile.Select) for inner in op.walk()) for op in found)
    return [(str(op.begin.expr), str(op.end.expr), count) for op, count in zip(found, choices, strict=True)]


def test_the_first_step_asks_nothing_where_comparisons_hold_in_it() -> None:
    first, full = "$k0_first", "$k0_full"
    steps = str(
        next(op for op in lowered(p.attention, causal=True).tile.walk() if isinstance(op, tile.StreamLoop)).trip.expr
    )
    leading, opening, whole, rest = consumer_loops(lowered(p.attention, causal=True).scheduled.kernel)
    assert [each[:2] for each in (leading, opening, whole, rest)] == [
        ("0", first),
        (f"max({first}, 0)", "1"),
        ("1", full),
        (f"max({full}, 1)", steps),
    ]
    assert leading[2] == whole[2] < opening[2]


def test_two_warpgroups_take_turns() -> None:
    kernel = lowered(example.attention, Candidate(2, software_pipelined=True), bq=128, bk=32).scheduled.kernel
    assert any(isinstance(op, a.NamedBarrierArrive) for op in kernel.walk())
    for seed in range(2):
        attend(kernel, 150, 100, seed, causal=False, heads=2)


@pytest.mark.parametrize("causal", [False, True])
def test_stores_and_protocol_are_proved(causal: bool) -> None:
    found = lowered(p.attention, causal=causal)
    assert isinstance(prove_stores(found.tile, found.scheduled.kernel), Proved)
    for protocol in protocols_of(found.scheduled.kernel):
        assert isinstance(check(protocol), Proved)


def test_the_fence_between_two_products_is_not_needed() -> None:
    """The one before the first covers both; without the second ptxas serialises the products (C7519)."""
    kernel = lowered(p.attention).scheduled.kernel
    [op for op in kernel.walk() if isinstance(op, a.WgmmaFence)][2].detach()
    for seed in range(3):
        attend(kernel, 130, 400, seed, causal=False)


def test_order_barriers_are_proved() -> None:
    found = lowered(example.attention, Candidate(2, stages=1, software_pipelined=True), bq=128, bk=32)
    (protocol,) = protocols_of(found.scheduled.kernel)
    assert isinstance(check(protocol), Proved)


@pytest.mark.slow
def test_code_assembles_as_planned() -> None:
    found = lowered(example.attention, Candidate(2, software_pipelined=True), bq=128, bk=128, causal=True)
    emitted = emit_kernel(found.scheduled.kernel)
    assembled = assemble(emitted.source, "sm_90a", emitted.entry)
    assert defects(assembled) == ()
    assert mismatches(found.scheduled.kernel, assembled.ptx) == ()


DROPPED: list[tuple[type[t.TransportOp], int]] = [
    (a.MbarrierWait, 3),
    (a.MbarrierWait, -1),
    (a.MbarrierWait, -3),
    (a.WgmmaWait, 1),
    (a.WgmmaWait, 2),
    (a.WgmmaFence, 1),
    (a.MbarrierArrive, 1),
    (a.Advance, -1),
]


@pytest.mark.parametrize(("kind", "which"), DROPPED, ids=[f"{k.__name__}{i}" for k, i in DROPPED])
def test_what_is_left_out_is_noticed(kind: type[t.TransportOp], which: int) -> None:
    kernel = lowered(p.attention).scheduled.kernel
    [op for op in kernel.walk() if isinstance(op, kind)][which].detach()
    assert not all(isinstance(check(protocol), Proved) for protocol in protocols_of(kernel))

    def runs(seed: int) -> bool:
        try:
            attend(kernel, 130, 400, seed, causal=False)
        except (TilewrightError, AssertionError):
            return False
        return True

    assert not all(runs(seed) for seed in range(8))


@tw.kernel
def watched(a: tw.Tensor["M", 64], b: tw.Tensor["N", 64], c: tw.Tensor["N", 64], o: tw.Tensor["M", 64]):
    m = tw.grid(a.shape[0], 64)
    acc, seen = tw.zeros((m, 64), tw.f32), tw.zeros((m,), tw.f32)
    for n in tw.stream(b.shape[0], 64):
        x = tw.dot(a[m, :], b[n, :].T)
        seen.set(seen + acc.sum(1))
        acc += tw.dot(x.to(a.dtype), c[n, :])
    o[m, :] = acc + seen[:, None]


@pytest.mark.parametrize("kernel", [watched, p.scaled_rows, p.gated, p.chained])
def test_a_product_that_can_not_wait_is_not_put_off(kernel: tw.Kernel) -> None:
    assert isinstance(p.lower(kernel, ROTATED), Refused)
    assert not isinstance(p.lower(kernel, Candidate(1, stages=2)), Refused)


def test_ops_on_the_late_fragment_stand_last() -> None:
    found = lowered(p.attention)
    moved = reordered(found.tile)
    assert moved is not None
    (stream,) = [op for op in moved.walk() if isinstance(op, tile.StreamLoop)]
    writes = [op for op in stream.body.block.ops if isinstance(op, tile.FragmentWrite)]
    late = writes[-1].frag
    assert [w.frag == late for w in writes] == [False, False, True, True]
