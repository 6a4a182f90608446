"""What an epilogue alone loads: a panel ahead of its use; without guards where the tile lies inside of its tensor."""

# ruff: noqa: F821, UP037 - dimension names are strings
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
from xdsl.dialects.builtin import ArrayAttr

import tilewright as tw
from support import products as p
from tilewright import simulate
from tilewright.base.expr import TRUE, Sym
from tilewright.base.verdict import Proved, Refuted
from tilewright.compiler.proofs.stores import prove_stores
from tilewright.schedule.hopper.accumulator_placement import Refused
from tilewright.schedule.hopper.candidate import Candidate
from tilewright.tile.attributes import ExprAttr
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t
from tilewright.validate.tile_to_transport.compare import compare

pytestmark = pytest.mark.sample(1)

RNG = np.random.default_rng(5)
COOPERATIVE = Candidate(2, stages=2)
WHOLE_STORES = Candidate(1, ping_pong=2, stages=2, whole_stores=True)
BF16 = ml_dtypes.bfloat16


@tw.kernel
def wide_residual(
    a: tw.Tensor["M", "K"],
    b: tw.Tensor["N", "K"],
    r: tw.Tensor["M", "N"],
    c: tw.Tensor["M", "N"],
    *,
    bm=64,
    bn=64,
    bk=64,
):
    m, n = tw.grid(c, (bm, bn))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], bk):
        acc += tw.dot(a[m, k], b[n, k].T)
    c[m, n] = acc + r[m, n]


def lowered(kernel: tw.Kernel, candidate: Candidate = COOPERATIVE) -> p.Lowered:
    wide = {"r": "f32", "c": "f32"} if kernel is wide_residual else None
    found = p.lower(kernel, candidate, "bf16", dtypes=wide, bm=128, bn=160)
    assert not isinstance(found, Refused), found.reason
    found.scheduled.kernel.verify()
    return found


def late_loads(kernel: t.Kernel) -> list[t.If]:
    """Where a program asks whether what it loads lies inside of the tensor."""
    found = [op for op in kernel.walk() if isinstance(op, t.If)]
    return [op for op in found if [type(o) for o in op.then.block.ops] == [t.Load]]


def loads(branch: t.If) -> tuple[t.Load, t.Load]:
    """The load of whole tiles, and that of tiles at an edge."""
    (whole,), (cut,) = branch.then.block.ops, branch.otherwise.block.ops
    assert isinstance(whole, t.Load)
    assert isinstance(cut, t.Load)
    return whole, cut


@pytest.mark.parametrize("candidate", [COOPERATIVE, WHOLE_STORES], ids=["cooperative", "ping-pong"])
@pytest.mark.parametrize("kernel", [p.biased, wide_residual], ids=["16 bits", "32 bits"])
def test_whole_tiles_are_loaded_without_guards(kernel: tw.Kernel, candidate: Candidate) -> None:
    found = late_loads(lowered(kernel, candidate).scheduled.kernel)
    assert found
    for branch in found:
        whole, cut = loads(branch)
        assert whole.guard.expr == TRUE
        assert cut.guard.expr != TRUE
        assert (whole.buffer, whole.tensor) == (cut.buffer, cut.tensor)


def test_a_panel_is_loaded_while_the_one_before_is_filled() -> None:
    """Loads of panels 0 and 1 stand before the first copy of a panel, one panel's loads before each of the others."""
    kernel = lowered(p.biased).scheduled.kernel
    (copied,) = (op for op in kernel.walk() if isinstance(op, t.If) and has(op.then, a.TmaStore))
    asked = set(late_loads(kernel))
    kinds = [type(op) for op in copied.then.walk() if op in asked or isinstance(op, a.TmaStore)]
    assert kinds.count(a.TmaStore) == 3  # 160 columns: 64, 64, 32
    assert kinds == [*[t.If] * 4, a.TmaStore, *[t.If] * 2, a.TmaStore, a.TmaStore]


def test_turns_load_a_panel_when_it_is_filled() -> None:
    """Another warpgroup's products hide the wait; two panels' loads would spill beside a tile of a warpgroup's own."""
    kernel = lowered(p.biased, WHOLE_STORES).scheduled.kernel
    asked = set(late_loads(kernel))
    kinds = [type(op) for op in kernel.walk() if op in asked or isinstance(op, a.TmaStore)]
    assert kinds == [*[t.If] * 2, a.TmaStore] * kinds.count(a.TmaStore)


def has(region: object, kind: type) -> bool:
    return any(isinstance(op, kind) for op in region.walk())  # type: ignore[attr-defined]


@pytest.mark.parametrize(("rows", "columns"), [(128, 160), (256, 320), (127, 160), (129, 320), (130, 168), (300, 152)])
@pytest.mark.parametrize("candidate", [COOPERATIVE, WHOLE_STORES], ids=["cooperative", "ping-pong"])
def test_tiles_inside_and_at_edges_agree(candidate: Candidate, rows: int, columns: int) -> None:
    found = lowered(p.biased, candidate)
    assert isinstance(prove_stores(found.tile, found.scheduled.kernel), Proved)
    arrays = drawn(rows, columns, BF16)
    simulate.run(found.scheduled.kernel, arrays, seed=rows, grid_size=3)
    compared(arrays, lambda acc: np.maximum(acc + arrays["bias"].astype(np.float64)[None, :], 0.0))


@pytest.mark.parametrize(("rows", "columns"), [(128, 160), (129, 320), (300, 152)])
def test_f32_tiles_inside_and_at_edges_agree(rows: int, columns: int) -> None:
    found = lowered(wide_residual)
    assert isinstance(prove_stores(found.tile, found.scheduled.kernel), Proved)
    arrays = drawn(rows, columns, np.float32)
    del arrays["bias"]
    simulate.run(found.scheduled.kernel, arrays, seed=rows, grid_size=3)
    compared(arrays, lambda acc: acc)


def drawn(rows: int, columns: int, stored: type) -> dict[str, np.ndarray]:
    return {
        "a": RNG.normal(size=(rows, 72)).astype(BF16),
        "b": RNG.normal(size=(columns, 72)).astype(BF16),
        "bias": RNG.normal(size=columns).astype(BF16),
        "r": RNG.normal(size=(rows, columns)).astype(stored),
        "c": np.full((rows, columns), np.nan, stored),
    }


def compared(arrays: dict[str, np.ndarray], added: Callable[[np.ndarray], np.ndarray]) -> None:
    """With the product in float64, and what ``added`` makes of it."""
    wide = {name: array.astype(np.float64) for name, array in arrays.items()}
    exact = added(wide["a"] @ wide["b"].T) + wide["r"]
    assert np.linalg.norm(wide["c"] - exact) < 6e-3 * np.linalg.norm(exact)


@pytest.mark.parametrize("kernel", [p.biased, wide_residual], ids=["16 bits", "32 bits"])
def test_both_branches_load_what_the_program_says(kernel: tw.Kernel) -> None:
    found = lowered(kernel)
    assert compare(found.tile, found.scheduled.kernel) == ()
    whole, cut = loads(late_loads(found.scheduled.kernel)[0])
    for load in (whole, cut):
        before = load.attributes["coords"]
        coords = [c.expr + int(axis == len(load.coords) - 1) for axis, c in enumerate(load.coords)]
        load.attributes["coords"] = ArrayAttr([ExprAttr.of(c) for c in coords])
        assert compare(found.tile, found.scheduled.kernel)
        load.attributes["coords"] = before
    assert compare(found.tile, found.scheduled.kernel) == ()


@pytest.mark.parametrize("kernel", [p.biased, wide_residual], ids=["16 bits", "32 bits"])
@pytest.mark.parametrize("extent", ["M", "N"])
def test_a_question_for_fewer_rows_or_columns_is_refused(kernel: tw.Kernel, extent: str) -> None:
    """What lies behind the tensor would be loaded."""
    found = lowered(kernel)
    assert isinstance(prove_stores(found.tile, found.scheduled.kernel), Proved)
    for branch in late_loads(found.scheduled.kernel):
        branch.attributes["condition"] = ExprAttr.of(branch.condition.expr.substitute({extent: Sym(extent) + 8}))
    assert isinstance(prove_stores(found.tile, found.scheduled.kernel), Refuted)
