"""Operands of streams that end at loaded bounds, through tensor maps that end with them: zeros arrive behind."""

# ruff: noqa: F821, UP037 - dimension names are strings
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from hopper.test_ragged_stores import dim, ragged_maps, stride
from support import products as p
from support.ptx_driver import run_artifact
from tilewright import simulate
from tilewright.base.expr import Expr, Sym
from tilewright.base.verdict import Proved, Refuted
from tilewright.compiler.products import prove
from tilewright.compiler.proofs.copies import prove_copies
from tilewright.compiler.proofs.descriptors import check_descriptors
from tilewright.compiler.proofs.obligations import missing
from tilewright.compiler.proofs.ragged_copies import RAGGED
from tilewright.legal.ragged import BOUND
from tilewright.schedule.hopper.candidate import Candidate
from tilewright.schedule.hopper.operands import FEW_ROWS
from tilewright.tile.ops import exprs
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t
from tilewright.transport.descriptor_attrs import TmaAttr
from tilewright.validate.tile_to_transport.compare import compare as compare_lowering

pytestmark = pytest.mark.sample(1)

CANDIDATE = Candidate(1, stages=2)
OFFSETS = ([0, 5, 5, 70, 210], [0, 64, 128, 192, 256], [3, 130, 131, 200, 201], [0, 0, 0, 0, 1])


@tw.kernel
def along_rows(
    offsets: tw.Tensor["G + 1"], y: tw.Tensor["T", "M"], x: tw.Tensor["T", "N"], dw: tw.Tensor["G", "M", "N"]
):
    g, m, n = tw.grid(dw, (None, 64, 64))
    acc = tw.zeros((m, n), tw.f32)
    for r in tw.stream(x.shape[0], 64, start=offsets[g], until=offsets[g + 1]):
        acc += tw.dot(y[r, m].T, x[r, n])
    dw[g, m, n] = acc


@tw.kernel
def weighted(
    lengths: tw.Tensor["B"], s: tw.Tensor["B", "M", "T"], x: tw.Tensor["B", "T", 64], y: tw.Tensor["B", "M", 64]
):
    """A left operand that is computed, so that consumers could clear the right one's rows."""
    b, m = tw.grid(s.shape[:2], (None, 64))
    acc = tw.zeros((m, 64), tw.f32)
    for r in tw.stream(s.shape[2], 64, until=lengths[b]):
        acc += tw.dot(tw.exp(s[b, m, r].to(tw.f32)).to(tw.bf16), x[b, r, :])
    y[b, m, :] = acc


@cache
def lowered(align: int = 16) -> p.Lowered:
    return fresh(align)


def fresh(align: int = 16) -> p.Lowered:
    """One that a test may change."""
    found = p.lower(along_rows, CANDIDATE, "bf16", align, {"offsets": "i32"})
    assert isinstance(found, p.Lowered)
    return found


def drawn(offsets: Sequence[int], m: int = 72, n: int = 136, seed: int = 0) -> dict[str, np.ndarray]:
    """Rows of no group, and those of the second one, are NaN."""
    rng, rows = np.random.default_rng(seed), max(256, offsets[-1])
    y, x = (rng.standard_normal((rows, width)).astype(ml_dtypes.bfloat16) for width in (m, n))
    for part in (slice(0, offsets[0]), slice(offsets[1], offsets[2]), slice(offsets[-1], None)):
        y[part] = x[part] = np.nan
    dw = np.full((len(offsets) - 1, m, n), np.nan, ml_dtypes.bfloat16)
    return {"offsets": np.array(offsets, np.int32), "y": y, "x": x, "dw": dw}


def check(arrays: dict[str, np.ndarray]) -> None:
    offsets = arrays["offsets"]
    for g, (low, high) in enumerate(pairwise(offsets)):
        exact = arrays["y"][low:high].astype(np.float64).T @ arrays["x"][low:high].astype(np.float64)
        np.testing.assert_allclose(arrays["dw"][g].astype(np.float64), exact, rtol=1e-2, atol=0.2)


def test_both_operands_are_copied_through_such_maps() -> None:
    found = lowered()
    kernel = found.scheduled.kernel
    assert [declared.numbers.ragged_axis for declared in ragged_maps(kernel)] == [0, 0]
    assert not any(isinstance(op, a.ThreadCopies | a.ZeroFill) for op in kernel.walk())
    assert f"T <= {FEW_ROWS}" in {str(x.expr) for x in kernel.assumptions}
    certificate = prove(found.tile, kernel, check_descriptors(kernel))
    assert not isinstance(certificate, str)
    assert {o.detail for o in certificate if o.name == RAGGED} == {
        f"{name} up to min(T, $b1), of {BOUND} rows" for name in "xy"
    }
    assert missing([o for o in certificate if o.name != RAGGED], kernel) == (RAGGED,)
    assert compare_lowering(found.tile, kernel) == ()


@pytest.mark.sample(len(OFFSETS))
@pytest.mark.parametrize("offsets", OFFSETS, ids=str)
def test_rows_of_other_groups_take_no_part(offsets: list[int]) -> None:
    arrays = drawn(offsets)
    simulate.run(lowered().scheduled.kernel, arrays, grid_size=5)
    check(arrays)


def test_offsets_that_lead_outside_are_clipped() -> None:
    arrays = drawn([0, 64, 128, 192, 256])
    arrays["offsets"][:] = [-7, 40, 20, 300, 250]
    simulate.run(lowered().scheduled.kernel, arrays, grid_size=3)
    y, x = (arrays[name].astype(np.float64) for name in "yx")
    np.testing.assert_allclose(arrays["dw"][0].astype(np.float64), y[:40].T @ x[:40], rtol=1e-2, atol=0.2)
    assert not arrays["dw"][1].astype(np.float32).any()
    assert not arrays["dw"][3].astype(np.float32).any()


def test_the_ptx_machine_brings_zeros_behind_a_group() -> None:
    made = along_rows.compile(dtypes={"offsets": "i32", "y": "bf16", "x": "bf16", "dw": "bf16"})
    arrays = drawn(OFFSETS[0])
    run_artifact(made, arrays, schedules=2)
    check(arrays)


def test_else_threads_copy_the_operands() -> None:
    """Rows that are no whole units of 16 bytes."""
    kernel = lowered(8).scheduled.kernel
    assert not ragged_maps(kernel)
    assert any(isinstance(op, a.ThreadCopies) for op in kernel.walk())


def test_nobody_clears_rows_that_arrive_as_zeros() -> None:
    found = p.lower(weighted, CANDIDATE, dtypes={"lengths": "i32"})
    assert isinstance(found, p.Lowered)
    kernel = found.scheduled.kernel
    assert [declared.numbers.ragged_axis for declared in ragged_maps(kernel)] == [1]
    assert not any(isinstance(op, a.ZeroFill) for op in kernel.walk())
    rng = np.random.default_rng(1)
    s, x = rng.standard_normal((3, 64, 152)), rng.standard_normal((3, 152, 64))
    lengths = np.array([0, 70, 152], np.int32)
    for b, length in enumerate(lengths):
        x[b, length:] = np.nan
    arrays = {"lengths": lengths, "s": s.astype(ml_dtypes.bfloat16), "x": x.astype(ml_dtypes.bfloat16)}
    arrays["y"] = np.full((3, 64, 64), np.nan, ml_dtypes.bfloat16)
    simulate.run(kernel, arrays, grid_size=2)
    for b, length in enumerate(lengths):
        weights = np.exp(arrays["s"][b, :, :length].astype(np.float64))
        exact = weights @ arrays["x"][b, :length].astype(np.float64)
        np.testing.assert_allclose(arrays["y"][b].astype(np.float64), exact, rtol=2e-2, atol=0.3)


# -- mistakes ----------------------------------------------------------------------------------------------------------
def changed_map(change: Callable[..., object]) -> Callable[[t.Kernel], None]:
    def apply(kernel: t.Kernel) -> None:
        declared = ragged_maps(kernel)[0]
        declared.attributes["descriptor"] = TmaAttr(change(declared.numbers))  # pyright: ignore[reportArgumentType]

    return apply


def changed_coordinate(place: int, change: Callable[[Expr], Expr]) -> Callable[[t.Kernel], None]:
    def apply(kernel: t.Kernel) -> None:
        declared = ragged_maps(kernel)[0]
        for copy in [op for op in kernel.walk() if isinstance(op, a.TmaLoad) and op.map == declared.map]:
            coords = [c.expr for c in copy.coords]
            coords[place] = change(coords[place])
            copy.attributes["coords"] = exprs(coords)

    return apply


MISTAKES: dict[str, Callable[[t.Kernel], None]] = {
    "half the bound": changed_map(dim(1, BOUND // 2)),
    "one row more": changed_map(dim(1, BOUND + 1)),
    "few ends": changed_map(dim(2, 100)),
    "a wrap of fewer bytes": changed_map(stride(2, lambda s: s - 16)),
    "ends at another pitch": changed_map(stride(1, lambda s: s + 16)),
    "rows at another pitch": changed_map(stride(0, lambda s: s + 16)),
    "the start for the end": changed_coordinate(2, lambda _: Sym("$b0")),
    "an end behind": changed_coordinate(2, lambda e: e + 1),
    "the tensor's end": changed_coordinate(2, lambda _: Sym("T")),
    "a turn less": changed_coordinate(3, lambda e: e - 1),
    "a row above": changed_coordinate(1, lambda e: e - 1),
    "a row below, where the end is one behind": lambda kernel: (
        changed_coordinate(1, lambda e: e - 1)(kernel),
        changed_coordinate(2, lambda e: e + 1)(kernel),
    )[0],
}


@pytest.mark.sample(len(MISTAKES))
@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_refused(name: str) -> None:
    """By the proof that compares copies with the program, and by translation validation, which shares no code with
    it."""
    found = fresh()
    kernel = found.scheduled.kernel
    assert isinstance(prove_copies(found.tile, kernel), Proved)
    MISTAKES[name](kernel)
    assert isinstance(prove_copies(found.tile, kernel), Refuted)
    assert compare_lowering(found.tile, kernel)


def test_rows_without_a_limit_are_refused() -> None:
    found = fresh()
    kernel = found.scheduled.kernel
    kept = [x.expr for x in kernel.assumptions if str(x.expr) != f"T <= {FEW_ROWS}"]
    kernel.attributes["assumptions"] = exprs(kept)
    assert isinstance(prove_copies(found.tile, kernel), Refuted)
