"""Schedules of kernels with products: right in the simulator, proved, refused where nothing fits."""

# ruff: noqa: F821, UP037 - dimension names are strings

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from support import products as p
from tilewright import simulate
from tilewright.base.verdict import Proved, Refuted
from tilewright.compiler.build import build
from tilewright.compiler.program import plan
from tilewright.compiler.proofs.stores import prove_stores
from tilewright.diag import TilewrightError
from tilewright.hw.target import SM80, SM100A, Target
from tilewright.protocol.cycle import critical_cycle
from tilewright.protocol.graph import graph_of
from tilewright.protocol.well_formed import problems
from tilewright.schedule.hopper.accumulator_placement import Refused
from tilewright.schedule.hopper.candidate import Candidate
from tilewright.simulate.values import memory_dtype
from tilewright.transport import asynchronous as a
from tilewright.transport.protocol import protocol_of
from tilewright.verify import check

pytestmark = pytest.mark.sample(3)

RNG = np.random.default_rng(5)
Array = np.ndarray[Any, np.dtype[Any]]
COPIES, STAGED = Candidate(1, stages=2), Candidate(1, copies=False)
WITHOUT_PIPELINE = Candidate(1)
ORDINARY = Candidate(1, copies=False, matrix_stores=False, ordinary=True)


def normal(*shape: int, dtype: Any = ml_dtypes.bfloat16) -> Array:
    return RNG.normal(size=shape).astype(dtype)


def padded(*shape: int, dtype: Any = ml_dtypes.bfloat16, fill: float = np.nan) -> Array:
    """Random values in rows of a multiple of 16 bytes; what lies beyond is poison."""
    whole = np.full((*shape[:-1], -(-shape[-1] // 8) * 8), fill, dtype)
    view = whole[..., : shape[-1]]
    view[...] = normal(*shape, dtype=dtype)
    return view


def lowered(
    kernel: tw.Kernel, candidate: Candidate, dtype: str = "bf16", align: int = 16, **keywords: Any
) -> p.Lowered:
    found = p.lower(kernel, candidate, dtype, align, None, **keywords)
    assert not isinstance(found, Refused), found.reason
    found.scheduled.kernel.verify()
    return found


def close(found: Array, expected: Array, tolerance: float = 6e-3) -> None:
    error = np.linalg.norm(found.astype(np.float64) - expected) / max(1e-30, float(np.linalg.norm(expected)))
    assert error < tolerance, error


def f64(x: Array) -> Array:
    return x.astype(np.float64)


SIZES = [(64, 64, 64), (70, 72, 136), (1, 8, 1), (129, 40, 65), (65, 63, 130)]
LAYOUTS: list[tuple[tw.Kernel, bool, bool]] = [
    (p.nt, False, True),
    (p.nn, False, False),
    (p.tn, True, False),
    (p.tt, True, True),
]


@pytest.mark.parametrize("candidate", [COPIES, STAGED, ORDINARY], ids=["copies", "staged", "ordinary"])
@pytest.mark.parametrize(("kernel", "ta", "tb"), LAYOUTS, ids=["nt", "nn", "tn", "tt"])
@pytest.mark.parametrize(("m", "n", "k"), SIZES)
def test_products_of_all_layouts(
    kernel: tw.Kernel, ta: bool, tb: bool, m: int, n: int, k: int, candidate: Candidate
) -> None:
    left = padded(*((k, m) if ta else (m, k)))
    right = padded(*((n, k) if tb else (k, n)))
    out = padded(m, n)
    simulate.run(lowered(kernel, candidate).scheduled.kernel, {"a": left, "b": right, "c": out}, seed=m)
    close(out, (f64(left).T if ta else f64(left)) @ (f64(right).T if tb else f64(right)))


def test_two_warpgroups_and_an_odd_width() -> None:
    left, right, out = padded(200, 100), padded(88, 100), padded(200, 88)
    kernel = lowered(p.nt, Candidate(2, stages=3), bm=128, bn=80).scheduled.kernel
    simulate.run(kernel, {"a": left, "b": right, "c": out})
    close(out, f64(left) @ f64(right).T)


def test_tiles_of_odd_extents_are_staged_with_zeros() -> None:
    left, right, out = padded(50, 31), padded(41, 31), padded(50, 41)
    kernel = lowered(p.nt, WITHOUT_PIPELINE, bm=24, bn=20, bk=12).scheduled.kernel
    assert not any(isinstance(op, a.TmaLoad) for op in kernel.walk())
    simulate.run(kernel, {"a": left, "b": right, "c": out})
    close(out, f64(left) @ f64(right).T)


def test_rows_that_no_descriptor_can_reach_are_staged() -> None:
    left, right, out = normal(67, 33), normal(65, 33), normal(67, 65)
    kernel = lowered(p.nt, COPIES, align=2).scheduled.kernel
    assert not any(isinstance(op, a.TensorMap) for op in kernel.walk())
    simulate.run(kernel, {"a": left, "b": right, "c": out})
    close(out, f64(left) @ f64(right).T)


def test_epilogues_use_the_accumulator_in_place() -> None:
    m, n, k = 70, 136, 72
    left, right, bias, rest, out = padded(m, k), padded(n, k), normal(n), padded(m, n), padded(m, n)
    kernel = lowered(p.biased, COPIES).scheduled.kernel
    simulate.run(kernel, {"a": left, "b": right, "bias": bias, "r": rest, "c": out})
    close(out, np.maximum(f64(left) @ f64(right).T + f64(bias), 0) + f64(rest))


def test_two_products_share_a_stage() -> None:
    rows, v, w, out = padded(65, 136), padded(72, 136), padded(72, 136), padded(65, 72)
    simulate.run(lowered(p.gated, COPIES).scheduled.kernel, {"x": rows, "v": v, "w": w, "c": out})
    g, u = f64(rows) @ f64(v).T, f64(rows) @ f64(w).T
    close(out, g / (1 + np.exp(-g)) * u)


def test_a_product_of_a_product_stays_in_registers() -> None:
    rows, v, w, out = padded(65, 72), padded(80, 72), padded(72, 80), padded(65, 72)
    kernel = lowered(p.chained, COPIES).scheduled.kernel
    assert any(op.a_in_registers for op in kernel.walk() if isinstance(op, a.Wgmma))
    simulate.run(kernel, {"x": rows, "v": v, "w": w, "c": out})
    hidden = np.maximum(f64(rows) @ f64(v).T, 0).astype(ml_dtypes.bfloat16)
    close(out, f64(hidden) @ f64(w).T, 1e-2)


def test_products_that_are_used_before_they_are_added() -> None:
    left, scales, right, out = padded(65, 136), normal(65), padded(64, 136), padded(65, 64)
    simulate.run(lowered(p.scaled_rows, COPIES).scheduled.kernel, {"a": left, "s": scales, "b": right, "c": out})
    close(out, (f64(left) @ f64(right).T) * f64(scales)[:, None])


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("length", [1, 64, 130])
def test_attention(length: int, causal: bool) -> None:
    q, k, v, out = normal(length, 64), 4 * normal(length, 64), normal(length, 64), normal(length, 64)
    kernel = lowered(p.attention, COPIES, causal=causal).scheduled.kernel
    simulate.run(kernel, {"q": q, "k": k.astype(q.dtype), "v": v, "o": out}, {"scale": 0.125})
    x = f64(q) @ f64(k.astype(q.dtype)).T * 0.125
    if causal:
        x = np.where(np.tri(length, dtype=bool), x, -np.inf)
    weights = np.exp(x - x.max(1, keepdims=True))
    close(out, weights / weights.sum(1, keepdims=True) @ f64(v), 1e-2)


def test_f32_is_multiplied_exactly_enough() -> None:
    left, right, out = (normal(*s, dtype=np.float32) for s in ((33, 70), (40, 70), (33, 40)))
    kernel = lowered(p.nt, ORDINARY, "f32", 4, bm=32, bn=32, bk=32).scheduled.kernel
    simulate.run(kernel, {"a": left, "b": right, "c": out})
    close(out, f64(left) @ f64(right).T, 1e-6)


PROVED: list[Callable[[], p.Lowered]] = [
    lambda: lowered(p.nt, COPIES),
    lambda: lowered(p.tn, COPIES),
    lambda: lowered(p.nt, STAGED),
    lambda: lowered(p.biased, COPIES),
    lambda: lowered(p.scaled_rows, COPIES),
]


@pytest.mark.parametrize("make", PROVED)
def test_stores_and_protocols_are_proved(make: Callable[[], p.Lowered]) -> None:
    found = make()
    stores = prove_stores(found.tile, found.scheduled.kernel)
    assert isinstance(stores, Proved), stores
    protocol = protocol_of(found.scheduled.kernel)
    assert not list(problems(protocol))
    assert isinstance(check(protocol), Proved)


def remove(kernel: Any, kind: type[Any], which: int = 0) -> None:
    ops = [op for op in kernel.walk() if isinstance(op, kind)]
    ops[which].detach()


HARMS: list[tuple[type[Any], int]] = [
    (a.MbarrierArriveExpectTx, 0),
    (a.MbarrierArrive, 0),
    (a.MbarrierWait, 0),
    (a.MbarrierWait, 1),
    (a.FenceProxyAsync, 0),
    (a.WgmmaWait, -1),
    (a.WgmmaFence, 0),
]


@pytest.mark.parametrize(("kind", "which"), HARMS, ids=[f"{k.__name__}{i}" for k, i in HARMS])
def test_a_kernel_without_one_of_its_waits_is_refuted(kind: type[Any], which: int) -> None:
    kernel = lowered(p.nt, COPIES).scheduled.kernel
    remove(kernel, kind, which)
    assert isinstance(check(protocol_of(kernel)), Refuted)


def test_accumulators_that_fit_nowhere_are_refused() -> None:
    asked = p.request(p.nt, bm=1024, bn=1024)
    with pytest.raises(TilewrightError, match="SCH001") as caught:
        plan(asked)
    (told,) = caught.value.diagnostics
    assert len(set(told.found.split("; "))) == len(told.found.split("; "))  # each reason once
    first = "2 consumer warpgroups, tensor copies in pipelines where legal, stored by tensor copies where legal"
    assert f"{first}: accumulators take" in str(told.notes)
    assert "pinned" not in told.help


@tw.kernel
def free(a: tw.Tensor["M", "K"], b: tw.Tensor["N", "K"], c: tw.Tensor["M", "N"], *, bm=tw.auto, bn=tw.auto):
    m, n = tw.grid(c, (bm, bn))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], 64):
        acc += tw.dot(a[m, k], b[n, k].T)
    c[m, n] = acc


def test_what_refuses_several_schedules_is_told_once() -> None:
    with pytest.raises(TilewrightError, match="SCH001") as caught:
        plan(replace(p.request(free), schedule=tw.Schedule(stages=40)))
    refusal = caught.value.diagnostics[0]
    reasons = refusal.found.split("; ")
    *told, pinned = refusal.notes
    assert [[r in note for r in reasons].count(True) for note in told] == [1] * len(reasons)
    assert any("other schedules)" in note for note in told)
    assert pinned.startswith("pinned is stages=40, which fails where")
    assert len(pinned) < 300  # no formula of the cost model


@pytest.mark.parametrize("pins", [{"mode": "plain"}, {"persistent": False}, {"consumers": 4}, {"vector": 4}])
def test_pins_that_nothing_keeps_are_refused(pins: dict[str, Any]) -> None:
    asked = replace(p.request(p.nt), schedule=tw.Schedule(**pins))
    with pytest.raises(TilewrightError, match="SCH002"):
        plan(asked)


def test_pins_are_kept() -> None:
    asked = replace(p.request(p.nt, bm=128), schedule=tw.Schedule(consumers=1, stages=2))
    (variant,) = plan(asked).variants
    assert variant.transport.threads.data == 256
    assert [a.mbarriers_of(op.bars).slots.data for op in variant.transport.walk() if isinstance(op, a.Mbarriers)] == [
        2,
        2,
    ]


@pytest.mark.parametrize(
    ("pins", "words"),
    [
        ({"stages": 40}, "40 stages take"),
        ({"stages": 1}, "deadlock"),
        ({"cluster": (4, 2)}, "a cluster of 8 CTAs"),
        ({"mode": "pingpong", "consumers": 1}, "no schedule here is consumers=1, mode=pingpong"),
    ],
)
def test_pins_are_refused_where_another_schedule_would_not_keep_them(pins: dict[str, Any], words: str) -> None:
    with pytest.raises(TilewrightError, match="SCH001") as caught:
        plan(replace(p.request(p.nt, bm=128, bn=64), schedule=tw.Schedule(**pins)))
    assert words in caught.value.diagnostics[0].found
    assert str(tw.Schedule(**pins)) in caught.value.diagnostics[0].help


@pytest.mark.parametrize("dtype", ["e4m3", "e5m2"])
@pytest.mark.parametrize(("kernel", "candidate", "copied"), [(p.nt, COPIES, 2), (p.nt, STAGED, 0), (p.nn, COPIES, 1)])
def test_8_bit_floats_are_multiplied_k_major(kernel: tw.Kernel, candidate: Candidate, copied: int, dtype: str) -> None:
    """wgmma reads them K-major only: other tiles are turned on their way to shared memory."""
    found = p.lower(kernel, candidate, dtype, dtypes={"c": "f32"})
    assert not isinstance(found, Refused), found.reason
    products = [op for op in found.scheduled.kernel.walk() if isinstance(op, a.Wgmma)]
    assert {(op.dtype.dtype.name, op.b_operand.data.major) for op in products} == {(dtype, 0)}
    assert len({op.map for op in found.scheduled.kernel.walk() if isinstance(op, a.TmaLoad)}) == copied
    element = memory_dtype(products[0].dtype.dtype)
    m, n, k = 80, 80, 112
    left, right = normal(m, k, dtype=element), normal(*((n, k) if kernel is p.nt else (k, n)), dtype=element)
    out = np.full((m, n), np.nan, np.float32)
    simulate.run(found.scheduled.kernel, {"a": left, "b": right, "c": out})
    close(out, f64(left) @ (f64(right).T if kernel is p.nt else f64(right)), 4e-3)  # sums of 14 bits
    assert isinstance(check(protocol_of(found.scheduled.kernel)), Proved)


@tw.kernel
def rounded(a: tw.Tensor["M", "K"], b: tw.Tensor["N", "K"], c: tw.Tensor["M", "N"], *, bm=64, bn=64, bk=32):
    m, n = tw.grid(c, (bm, bn))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], bk):
        acc += tw.dot(a[m, k].to(tw.tf32), b[n, k].T.to(tw.tf32))
    c[m, n] = acc


@pytest.mark.parametrize(("m", "n", "k"), [(64, 64, 64), (70, 72, 100), (1, 1, 1)])
def test_tf32(m: int, n: int, k: int) -> None:
    kernel = lowered(rounded, WITHOUT_PIPELINE, "f32", 4).scheduled.kernel
    assert {op.dtype.dtype.name for op in kernel.walk() if isinstance(op, a.Wgmma)} == {"tf32"}
    left, right, out = (normal(*s, dtype=np.float32) for s in ((m, k), (n, k), (m, n)))
    simulate.run(kernel, {"a": left, "b": right, "c": out})
    exact = f64(left) @ f64(right).T
    assert np.abs(out - exact).max() < 2**-10 * (np.abs(f64(left)) @ np.abs(f64(right)).T).max()
    assert isinstance(check(protocol_of(kernel)), Proved)


@pytest.mark.parametrize("target", [SM80, SM100A])
def test_targets_without_wgmma(target: Target) -> None:
    program = plan(replace(p.request(p.nt), target=target))
    (variant,) = program.variants
    assert not any(isinstance(op, a.Role) and op.label.data == "producer" for op in variant.transport.walk())
    assert build(program).target == target.name
    left, right, out = padded(70, 40), padded(66, 40), padded(70, 66)
    simulate.run(variant.transport, {"a": left, "b": right, "c": out})
    close(out, f64(left) @ f64(right).T)


@pytest.mark.parametrize("dtypes", [("e4m3", "e4m3"), ("e4m3", "e5m2")])
def test_8_bit_floats_of_any_kind_are_multiplied_by_ordinary_arithmetic(dtypes: tuple[str, str]) -> None:
    kinds = dict(zip("ab", dtypes, strict=True)) | {"c": "f32"}
    program = plan(replace(p.request(p.nt, dtypes=kinds, bk=32), target=SM80))
    assert build(program).target == "sm_80"
    of = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}
    left, right = (padded(rows, 48).astype(of[kind]) for rows, kind in zip((70, 66), dtypes, strict=True))
    out = np.full((70, 72), np.nan, np.float32)[:, :66]
    simulate.run(program.variants[0].transport, {"a": left, "b": right, "c": out})
    np.testing.assert_allclose(out, f64(left) @ f64(right).T, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("m", [0, 70])
def test_no_steps_and_no_rows(m: int) -> None:
    out = np.full((m, 72), np.nan, ml_dtypes.bfloat16)
    p.nt(normal(m, 0), normal(72, 0), out)
    assert (out == 0).all()


@pytest.mark.parametrize(
    ("kernel", "candidate", "extents", "cycles"),
    [
        (p.nt, Candidate(2), {"bm": 128, "bn": 256}, 128 * 256 * 64 * 2 / 4096),
        (p.nt, Candidate(1, ping_pong=2), {"bm": 128, "bn": 192}, 128 * 192 * 64 * 2 / 4096),
    ],
    ids=["cooperative", "turns"],
)
def test_products_are_priced_by_what_they_multiply(
    kernel: tw.Kernel, candidate: Candidate, extents: dict[str, int], cycles: float
) -> None:
    """Parts of a tile are read through regions of the whole tile, but each instruction multiplies its part."""
    graph = graph_of(protocol_of(lowered(kernel, candidate, **extents).scheduled.kernel))
    assert not isinstance(graph, str)
    assert {c.cycles for c in critical_cycle(graph)} == {cycles}
