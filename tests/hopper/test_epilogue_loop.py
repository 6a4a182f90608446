"""Epilogues of many instructions an element: their panels are computed in a loop."""

# ruff: noqa: F821, UP037 - dimension names are strings
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportArgumentType=false, reportMissingParameterType=false

from __future__ import annotations

from math import erf

import ml_dtypes
import numpy as np
import pytest
from xdsl.dialects.builtin import ArrayAttr

import tilewright as tw
from support import products as p
from support.ptx_driver import run_artifact
from tilewright import simulate
from tilewright.artifact.schema import Launch
from tilewright.base.expr import Const, Sym
from tilewright.base.verdict import Proved, Refuted
from tilewright.compiler.proofs.stores import prove_stores
from tilewright.schedule.hopper.accumulator_placement import Refused
from tilewright.schedule.hopper.candidate import Candidate
from tilewright.tile.attributes import ExprAttr
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t
from tilewright.transport.text import transport_kernel
from tilewright.validate.tile_to_transport.compare import compare
from tilewright.validate.transport_to_ptx import compare as compare_ptx

pytestmark = pytest.mark.sample(1)

RNG = np.random.default_rng(9)
COOPERATIVE = Candidate(2, stages=2)
WHOLE_STORES = Candidate(1, ping_pong=2, stages=2, whole_stores=True)
BF16 = ml_dtypes.bfloat16


@tw.kernel
def activated(
    a: tw.Tensor["M", "K"],
    b: tw.Tensor["N", "K"],
    bias: tw.Tensor["N"],
    r: tw.Tensor["M", "N"],
    c: tw.Tensor["M", "N"],
    *,
    bm=128,
    bn=192,
    residual=True,
    indexed=True,
):
    """GELU, with the column's number in it: coordinates in a panel are those of the tile."""
    m, n = tw.grid(c, (bm, bn))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], 64):
        acc += tw.dot(a[m, k], b[n, k].T)
    x = acc + bias[n][None, :].to(tw.f32)
    if indexed:
        x += n.index[None, :].to(tw.f32) * 0.125
    x = x * (0.5 * (1 + tw.erf(x * 0.7071067811865476)))
    c[m, n] = x + r[m, n].to(tw.f32) if residual else x


@tw.kernel
def stored_twice(
    a: tw.Tensor["M", "K"], b: tw.Tensor["N", "K"], c: tw.Tensor["M", "N"], d: tw.Tensor["M", "N"], *, bm=128, bn=192
):
    """The accumulators are needed behind the store."""
    m, n = tw.grid(c, (bm, bn))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], 64):
        acc += tw.dot(a[m, k], b[n, k].T)
    c[m, n] = tw.erf(acc)
    d[m, n] = acc


def lowered(kernel: tw.Kernel, candidate: Candidate = COOPERATIVE, **keywords: object) -> p.Lowered:
    found = p.lower(kernel, candidate, "bf16", **keywords)
    assert not isinstance(found, Refused), found.reason
    found.scheduled.kernel.verify()
    return found


def loops(found: p.Lowered) -> list[t.For]:
    """Those over panels."""
    inside = (op for op in found.scheduled.kernel.walk() if isinstance(op, t.For))
    return [op for op in inside if any(isinstance(o, a.StoreMatrix) for o in op.walk())]


def drawn(rows: int, columns: int) -> dict[str, np.ndarray]:
    return {
        "a": (RNG.normal(size=(rows, 72)) / 8).astype(BF16),
        "b": RNG.normal(size=(columns, 72)).astype(BF16),
        "bias": RNG.normal(size=columns).astype(BF16),
        "r": RNG.normal(size=(rows, columns)).astype(BF16),
        "c": np.full((rows, columns), np.nan, BF16),
    }


def expected(arrays: dict[str, np.ndarray], *, residual: bool = True, indexed: bool = True) -> np.ndarray:
    wide = {name: array.astype(np.float64) for name, array in arrays.items()}
    x = wide["a"] @ wide["b"].T + wide["bias"] + np.arange(len(wide["bias"])) * (0.125 if indexed else 0)
    return x * 0.5 * (1 + np.vectorize(erf)(x * 0.5**0.5)) + (wide["r"] if residual else 0.0)


def agrees(arrays: dict[str, np.ndarray], exact: np.ndarray) -> bool:
    return bool(np.linalg.norm(arrays["c"].astype(np.float64) - exact) < 6e-3 * np.linalg.norm(exact))


@pytest.mark.parametrize(("rows", "columns"), [(128, 192), (129, 384), (300, 200), (64, 8), (257, 320)])
@pytest.mark.parametrize(
    ("candidate", "bm"), [(COOPERATIVE, 128), (WHOLE_STORES, 64)], ids=["cooperative", "ping-pong"]
)
def test_the_loop_computes_every_panel(candidate: Candidate, bm: int, rows: int, columns: int) -> None:
    found = lowered(activated, candidate, bm=bm)
    assert [(loop.begin.expr, loop.end.expr) for loop in loops(found)] == [(Const(0), Const(3))] * max(
        candidate.ping_pong, 1
    )
    assert isinstance(prove_stores(found.tile, found.scheduled.kernel), Proved)
    assert compare(found.tile, found.scheduled.kernel) == ()
    arrays = drawn(rows, columns)
    simulate.run(found.scheduled.kernel, arrays, seed=rows, grid_size=3)
    assert agrees(arrays, expected(arrays))


@pytest.mark.parametrize(
    ("candidate", "columns", "indexed", "ends"),
    [
        (WHOLE_STORES, 192, False, [6, 6]),
        (WHOLE_STORES, 128, False, [4, 4]),
        (WHOLE_STORES, 208, False, []),
        (WHOLE_STORES, 192, True, []),
    ],
    ids=["blocks of 3", "blocks of 2", "two widths", "columns of two blocks"],
)
def test_loops_over_blocks(candidate: Candidate, columns: int, indexed: bool, ends: list[int]) -> None:
    """Where each warpgroup has two blocks of 64 rows: none beside panels of another width, and where what is computed
    of columns ahead is needed by both blocks."""
    found = lowered(activated, candidate, bn=columns, bm=128, indexed=indexed)
    assert [loop.end.expr for loop in loops(found)] == [Const(end) for end in ends]
    assert isinstance(prove_stores(found.tile, found.scheduled.kernel), Proved)
    assert compare(found.tile, found.scheduled.kernel) == ()
    arrays = drawn(257, 440)
    simulate.run(found.scheduled.kernel, arrays, seed=columns, grid_size=3)
    assert agrees(arrays, expected(arrays, indexed=indexed))


def test_short_epilogues_few_panels_and_values_that_are_needed_again_have_none() -> None:
    assert not loops(lowered(p.nt, bm=128, bn=256))
    assert not loops(lowered(activated, bn=128))
    assert not loops(lowered(stored_twice))
    assert loops(lowered(activated, bn=256, residual=False))


def test_another_number_of_panels_is_refuted() -> None:
    for panels in (2, 4):
        found = lowered(activated)
        (loop,) = loops(found)
        loop.attributes["end"] = ExprAttr.of(Const(panels))
        assert isinstance(prove_stores(found.tile, found.scheduled.kernel), Refuted)


@pytest.mark.slow
def test_values_that_move_by_another_share_are_refused() -> None:
    """And so are those that don't move, and loads of another panel."""
    found = lowered(activated)
    kernel, (loop,) = found.scheduled.kernel, loops(found)
    moves = [op for op in loop.body.block.ops if isinstance(op, t.Map) and op.inputs == op.outputs]
    assert moves
    for op, name in [(m, "reads") for m in moves] + [(o, "coords") for o in loop.walk() if isinstance(o, t.Load)]:
        before = op.attributes[name]
        assert isinstance(before, ArrayAttr)
        *others, last = before.data
        op.attributes[name] = ArrayAttr([*others, ExprAttr.of(last.expr + 2)])
        assert compare(found.tile, kernel)
        op.attributes[name] = before
    assert compare(found.tile, kernel) == ()
    for move in moves:
        move.detach()
    assert compare(found.tile, kernel)


@pytest.mark.parametrize("residual", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_its_ptx_is_validated_and_computes_the_same(residual: bool) -> None:
    schedule = tw.Schedule(consumers=2, mode="cooperative")
    artifact = activated.compile(
        dtypes=dict.fromkeys("ab", "bf16") | {"bias": "bf16", "r": "bf16", "c": "bf16"},
        schedule=schedule,
        residual=residual,
    )
    launch = artifact.variants[-1].steps[-1]
    assert isinstance(launch, Launch)
    image = artifact.kernel(launch.kernel)
    assert "$panel" in image.transport_ir
    assert compare_ptx(transport_kernel(image.transport_ir), image.ptx, launch.args, launch.grid[0]) == ()
    arrays = drawn(130, 200)
    run_artifact(artifact, arrays, schedules=1)
    assert agrees(arrays, expected(arrays, residual=residual))


def test_a_panel_stored_elsewhere_is_no_panel_of_the_store() -> None:
    found = lowered(activated)
    (loop,) = loops(found)
    (copy,) = (op for op in loop.walk() if isinstance(op, a.TmaStore))
    coords = [c.expr for c in copy.coords]
    copy.attributes["coords"] = ArrayAttr([ExprAttr.of(c + Sym(loop.counter.data)) for c in coords])
    assert isinstance(prove_stores(found.tile, found.scheduled.kernel), Refuted)
