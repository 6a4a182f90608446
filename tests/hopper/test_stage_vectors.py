"""Vectors that a stream's steps load, in the stages of its pipeline; warpgroups that issue awaited products in turn."""

# ruff: noqa: F821, UP037 - dimension names are strings
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportArgumentType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from support import products as p
from tilewright import simulate
from tilewright.base.expr import Const
from tilewright.base.verdict import Proved
from tilewright.codegen.assemble import assemble, defects
from tilewright.codegen.cuda import emit_kernel
from tilewright.codegen.sync_check import mismatches
from tilewright.compiler import differential
from tilewright.compiler.launch_recipe import recipe
from tilewright.compiler.program import traced
from tilewright.compiler.proofs.copies import prove_copies
from tilewright.compiler.proofs.stores import prove_stores
from tilewright.diag import TilewrightError
from tilewright.hw.target import SM90A
from tilewright.schedule.hopper.accumulator_placement import Refused
from tilewright.schedule.hopper.candidate import Candidate
from tilewright.schedule.hopper.extents import product_variants
from tilewright.schedule.hopper.product_variant import ProductVariant
from tilewright.tile.attributes import ExprAttr
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t
from tilewright.transport.ops.base import exprs
from tilewright.transport.protocol import protocols_of
from tilewright.validate.tile_to_transport.compare import compare
from tilewright.verify import check

pytestmark = pytest.mark.sample(1)

RNG = np.random.default_rng(7)
TWO, THREE = Candidate(2, stages=2), Candidate(3, stages=2)


@tw.kernel
def by_blocks(
    a: tw.Tensor["M", "K"],
    b: tw.Tensor["N", "K"],
    sa: tw.Tensor["M", "KB"],
    sb: tw.Tensor["NB", "KB"],
    c: tw.Tensor["M", "N"],
    *,
    bm=128,
    bn=64,
):
    m, n = tw.grid(c, (bm, bn))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], 64):
        step = k.start // 64
        acc += tw.dot(a[m, k], b[n, k].T) * (sa[m, step] * sb[n.start // 64, step])[:, None]
    c[m, n] = acc


@tw.kernel
def of_columns(
    a: tw.Tensor["M", "K"],
    b: tw.Tensor["N", "K"],
    s: tw.Tensor["KB", "N"],
    c: tw.Tensor["M", "N"],
    *,
    bm=128,
    bn=64,
):
    """Its vectors lie along rows of their tensor."""
    m, n = tw.grid(c, (bm, bn))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], 64):
        acc += tw.dot(a[m, k], b[n, k].T) * s[k.start // 64, n].to(tw.f32)[None, :]
    c[m, n] = acc


@tw.kernel
def of_all_steps(a: tw.Tensor["M", "K"], b: tw.Tensor["N", "K"], s: tw.Tensor["M"], c: tw.Tensor["M", "N"], *, bm=128):
    m, n = tw.grid(c, (bm, 64))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], 64):
        acc += tw.dot(a[m, k], b[n, k].T) * s[m][:, None]
    c[m, n] = acc


@tw.kernel
def summed(a: tw.Tensor["M", "K"], b: tw.Tensor["N", "K"], c: tw.Tensor["M", "N"], *, bm=128):
    """Each step's product is added by ordinary arithmetic."""
    m, n = tw.grid(c, (bm, 64))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], 64):
        acc += tw.dot(a[m, k], b[n, k].T) * 0.5
    c[m, n] = acc


def lowered(kernel: tw.Kernel, candidate: Candidate = TWO, scales: str = "f32", **keywords: object) -> p.Lowered:
    dtypes = {**dict.fromkeys(("s", "sa", "sb"), scales), "c": "f32"}
    found = p.lower(kernel, candidate, "bf16", 16, dtypes, **keywords)
    assert not isinstance(found, Refused), found.reason
    found.scheduled.kernel.verify()
    return found


def copies_of(kernel: t.Kernel) -> list[a.CpAsync]:
    return [op for op in kernel.walk() if isinstance(op, a.CpAsync)]


def reads_of(kernel: t.Kernel) -> list[t.SharedRead]:
    return [op for op in kernel.walk() if isinstance(op, t.SharedRead)]


def bf16(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(ml_dtypes.bfloat16)


def multiply(kernel: t.Kernel, m: int, n: int, k: int, seed: int = 0) -> float:
    """The error of ``by_blocks`` on random operands, scales beyond the tensors' ends poisoned."""
    kb, nb = -(-k // 64), -(-n // 64)
    x, y, c = bf16(m, k), bf16(n, k), np.full((m, n), np.nan, np.float32)
    whole = np.full((m + 300, -(-kb // 4) * 4 + 4), np.nan, np.float32)
    sa, sb = whole[:m, :kb], np.full((nb, -(-kb // 4) * 4), np.nan, np.float32)[:, :kb]
    sb[...] = RNG.random((nb, kb), np.float32) + 0.5
    sa[...] = RNG.random((m, kb), np.float32) + 0.5
    simulate.run(kernel, {"a": x, "b": y, "sa": sa, "sb": sb, "c": c}, seed=seed, grid_size=1 + seed % 2)
    left = x.astype(np.float64) * np.repeat(sa, 64, 1)[:, :k]
    right = y.astype(np.float64) * np.repeat(np.repeat(sb, 64, 0)[:n], 64, 1)[:, :k]
    exact = left @ right.T
    return float(np.linalg.norm(c - exact) / np.linalg.norm(exact))


@pytest.mark.parametrize("size", [(128, 64, 64), (1, 8, 8), (129, 72, 136), (300, 64, 456)])
@pytest.mark.parametrize("candidate", [TWO, THREE], ids=["two", "three"])
def test_products_with_scales_of_blocks(candidate: Candidate, size: tuple[int, int, int]) -> None:
    kernel = lowered(by_blocks, candidate, bm=64 * candidate.warpgroups).scheduled.kernel
    assert {op.copy_bytes for op in copies_of(kernel)} == {4}
    for seed in range(3):
        assert multiply(kernel, *size, seed=seed) < 1e-5


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_vectors_along_rows_are_copied_16_bytes_at_a_time(dtype: str) -> None:
    kernel = lowered(of_columns, scales=dtype).scheduled.kernel
    assert {op.copy_bytes for op in copies_of(kernel)} == {16}
    m, n, k = 130, 72, 200
    x, y, c = bf16(m, k), bf16(n, k), np.full((m, n), np.nan, np.float32)
    s = (RNG.random((4, n)) + 0.5).astype(np.float32 if dtype == "f32" else ml_dtypes.bfloat16)
    simulate.run(kernel, {"a": x, "b": y, "s": s, "c": c}, grid_size=2)
    parts = (x[:, i : i + 64].astype(np.float64) @ y[:, i : i + 64].astype(np.float64).T for i in range(0, k, 64))
    exact = sum(part * s[i].astype(np.float64) for i, part in enumerate(parts))
    assert np.linalg.norm(c - exact) < 1e-5 * np.linalg.norm(exact)


@pytest.mark.parametrize(("kernel", "candidate"), [(by_blocks, TWO), (of_columns, TWO), (by_blocks, THREE)])
def test_they_are_proved(kernel: tw.Kernel, candidate: Candidate) -> None:
    found = lowered(kernel, candidate, bm=64 * candidate.warpgroups)
    assert copies_of(found.scheduled.kernel)
    assert isinstance(prove_copies(found.tile, found.scheduled.kernel), Proved)
    assert isinstance(prove_stores(found.tile, found.scheduled.kernel), Proved)
    for protocol in protocols_of(found.scheduled.kernel):
        assert isinstance(check(protocol), Proved)


@pytest.mark.slow
def test_code_assembles_and_does_what_the_ir_does() -> None:
    kernel = lowered(by_blocks).scheduled.kernel
    emitted = emit_kernel(kernel)
    assembled = assemble(emitted.source, "sm_90a", emitted.entry)
    assert defects(assembled) == ()
    assert mismatches(kernel, assembled.ptx) == ()
    assert "cp.async.ca.shared.global" in assembled.ptx
    found = differential.run_differential_test(kernel, assembled.ptx, recipe([kernel]))
    assert found.launches
    assert not found.differences


def _shift_coordinate(kernel: t.Kernel) -> None:
    for op in copies_of(kernel):
        first, *rest = op.coords
        op.attributes["coords"] = exprs([first.expr + 1, *(c.expr for c in rest)])


def _shift_place(kernel: t.Kernel) -> None:
    for op in copies_of(kernel):
        op.attributes["offset"] = ExprAttr.of(op.offset.expr + 4)


def _shift_stage(kernel: t.Kernel) -> None:
    for op in reads_of(kernel):
        op.attributes["offset"] = ExprAttr.of(op.offset.expr.substitute({"$i_a_b": Const(1)}))


def _shift_read(kernel: t.Kernel) -> None:
    for op in reads_of(kernel):
        op.attributes["offset"] = ExprAttr.of(op.offset.expr + 1)


def _lose_the_end(kernel: t.Kernel) -> None:
    for op in copies_of(kernel):
        op.attributes["stop"] = ExprAttr.of(op.stop.expr + 1)


@pytest.mark.parametrize("bug", [_shift_coordinate, _shift_place, _shift_stage, _shift_read, _lose_the_end])
def test_another_element_is_refuted(bug: Callable[[t.Kernel], None]) -> None:
    found = lowered(by_blocks)
    bug(found.scheduled.kernel)
    assert not isinstance(prove_copies(found.tile, found.scheduled.kernel), Proved)


def test_rows_in_another_order_are_not_validated() -> None:
    """Which register an element belongs to: the other row of a thread's two lies in its stage as well."""
    found = lowered(by_blocks)
    assert not compare(found.tile, found.scheduled.kernel)
    for op in reads_of(found.scheduled.kernel):
        if t.registers_of(op.buffer).count.data == 2:
            first = op.offset.expr.substitute({t.REGISTER: Const(0)})
            op.attributes["offset"] = ExprAttr.of(first)
    assert isinstance(prove_copies(found.tile, found.scheduled.kernel), Proved)
    assert compare(found.tile, found.scheduled.kernel)
    assert multiply(found.scheduled.kernel, 128, 64, 64) > 1e-2


DROPPED: list[tuple[type[t.TransportOp], int]] = [
    (a.CpAsyncMbarrierArrive, 0),
    (a.NamedBarrierSync, 0),
    (a.NamedBarrierArrive, 0),
    (a.NamedBarrierArrive, 1),
    (a.MbarrierWait, 0),
    (a.MbarrierWait, 2),
]


@pytest.mark.parametrize(("kind", "which"), DROPPED, ids=[f"{k.__name__}{i}" for k, i in DROPPED])
def test_what_is_left_out_is_noticed(kind: type[t.TransportOp], which: int) -> None:
    kernel = lowered(by_blocks).scheduled.kernel
    [op for op in kernel.walk() if isinstance(op, kind)][which].detach()

    def proved() -> bool:
        try:
            return all(isinstance(check(protocol), Proved) for protocol in protocols_of(kernel))
        except TilewrightError:
            return False

    assert not proved()


def test_what_stays_with_the_consumers() -> None:
    """One warpgroup has no turn to wait for, after which a stage may be given back; what is the same in all steps, and
    single elements of two bytes, no copies."""
    assert not copies_of(lowered(by_blocks, Candidate(1, stages=2), bm=64).scheduled.kernel)
    assert not copies_of(lowered(of_all_steps).scheduled.kernel)
    assert not copies_of(lowered(by_blocks, scales="bf16").scheduled.kernel)


def orders(kernel: t.Kernel) -> int:
    return sum(isinstance(op, a.NamedBarrierArrive) for op in kernel.walk())


def test_awaited_products_are_issued_in_turn() -> None:
    assert orders(lowered(summed).scheduled.kernel)
    assert not orders(lowered(summed, Candidate(1, stages=2), bm=64).scheduled.kernel)
    assert not orders(lowered(p.nt, bm=128).scheduled.kernel)  # kept in flight
    kernel = lowered(summed).scheduled.kernel
    for seed in range(3):
        x, y, c = bf16(200, 136), bf16(72, 136), np.full((200, 72), np.nan, np.float32)
        simulate.run(kernel, {"a": x, "b": y, "c": c}, seed=seed, grid_size=1 + seed % 2)
        exact = x.astype(np.float64) @ y.astype(np.float64).T * 0.5
        assert np.linalg.norm(c - exact) < 1e-5 * np.linalg.norm(exact)
    for protocol in protocols_of(kernel):
        assert isinstance(check(protocol), Proved)


def variants(kernel: tw.Kernel, columns: int) -> list[ProductVariant]:
    """Those of free rows."""
    facts = p.request(kernel, bn=columns).facts
    return product_variants(("bm",), lambda e: traced(p.request(kernel, bn=columns, **e)), SM90A, facts)


@pytest.mark.parametrize(
    ("m", "n", "rows"),
    [(8192, 8192, 192), (4096, 14336, 192), (4096, 4096, 128), (64, 8192, 128)],  # 21 waves of 192 rows, 32 of 128
)
def test_tall_tiles_where_waves_are_fewer(m: int, n: int, rows: int) -> None:
    sizes = {"M": m, "N": n, "K": 4096, "KB": 64, "NB": n // 64}
    variant = next(v for v in variants(by_blocks, 128) if v.predicate.evaluate(sizes))
    assert variant.choices[0]["bm"] == rows


def test_other_columns_and_sums_in_place_have_no_tall_tiles() -> None:
    for kernel, columns in ((by_blocks, 64), (p.nt, 128)):
        assert [v.choices[0]["bm"] for v in variants(kernel, columns)] == [128]
