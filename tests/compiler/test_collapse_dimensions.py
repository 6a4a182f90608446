"""Pointwise programs over dense matrices: which are taken for one row, what dispatch asks, what a launch computes."""

# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingParameterType=false
# ruff: noqa: UP037

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from xdsl.dialects.builtin import ArrayAttr

import tilewright as tw
from tilewright.artifact.schema import MAX_EXTENT
from tilewright.base.dtypes import f32
from tilewright.base.expr import TRUE, Const, Expr, Sym, all_of, conjuncts
from tilewright.compiler.build import build
from tilewright.compiler.planned import PlannedKernel
from tilewright.compiler.program import plan
from tilewright.compiler.proofs.collapsed_dimensions import certify_collapsed
from tilewright.compiler.requests import Request
from tilewright.compiler.specialisation import Observed, observe_facts
from tilewright.diag import TilewrightError
from tilewright.hw.target import SM90A
from tilewright.lang.schedule import Schedule
from tilewright.lang.signature import Signature
from tilewright.simulate import run_steps
from tilewright.tile.attributes import ExprAttr
from tilewright.transport import dialect as t
from tilewright.validate.launch_recipe import recipe_faults

pytestmark = pytest.mark.sample(1)

M, N = Sym("M"), Sym("N")


@tw.kernel
def gated(
    x: tw.Tensor["M", "N"], g: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"], *, a: tw.f32 = 2.0, bm=tw.auto, bn=tw.auto
):
    m, n = tw.grid(y, (bm, bn))
    y[m, n] = tw.where(g[m, n] > 0.0, x[m, n] * a, 1.0)


@tw.kernel
def biased(x: tw.Tensor["M", "N"], w: tw.Tensor["N"], y: tw.Tensor["M", "N"], *, bm=tw.auto, bn=tw.auto):
    m, n = tw.grid(y, (bm, bn))
    y[m, n] = x[m, n] + w[n]


@tw.kernel
def placed(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"], *, bm=tw.auto, bn=tw.auto):
    m, n = tw.grid(y, (bm, bn))
    y[m, n] = x[m, n] + n.index.to(tw.f32)


@tw.kernel
def square(x: tw.Tensor["N", "N"], y: tw.Tensor["N", "N"], *, bm=tw.auto, bn=tw.auto):
    m, n = tw.grid(y, (bm, bn))
    y[m, n] = x[m, n] + 1.0


@tw.kernel
def turned(x: tw.Tensor["M", "N"], y: tw.Tensor["N", "M"], *, bm=tw.auto, bn=tw.auto):
    n, m = tw.grid(y, (bn, bm))
    y[n, m] = x[m, n].T


@tw.kernel
def summed(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"], *, bm=tw.auto, bn=tw.auto):
    m, n = tw.grid(y, (bm, bn))
    y[m, n] = x[m, n] - x[m, n].sum(1)[:, None]


@tw.kernel
def scaled(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"], *, bm=tw.auto, bn=tw.auto):
    m, n = tw.grid(y, (bm, bn))
    y[m, n] = x[m, n] * x.shape[1]


def variants(kernel: tw.Kernel, width: int = 33, schedule: Schedule | None = None) -> tuple[PlannedKernel, ...]:
    """Planned for packed matrices of ``width`` columns of f32, whose rows are aligned as that gives."""
    function = kernel.compiled.function
    seen = {x.name: Observed(f32, 0, (5, width)[-len(x.dims) :], (width, 1)[-len(x.dims) :]) for x in function.tensors}
    signature = Signature.of(dict.fromkeys(seen, f32))
    return plan(Request(function, signature, observe_facts(seen), SM90A, schedule or Schedule())).variants


def symbols(kernel: tw.Kernel, *arrays: np.ndarray) -> dict[str, int]:
    names = [x.name for x in kernel.compiled.function.tensors]
    found = {"M": arrays[0].shape[0], "N": arrays[0].shape[1]}
    for name, array in zip(names, arrays, strict=True):
        found |= {f"{name}.stride{i}": s // array.itemsize for i, s in enumerate(array.strides)}
        found[f"{name}.address"] = array.__array_interface__["data"][0]
    return found


def aligned(rows: int, columns: int, gap: int = 0) -> np.ndarray:
    """A matrix of random numbers at a multiple of 256 bytes; ``gap`` elements between its rows."""
    block = np.random.default_rng(rows * columns).standard_normal(rows * (columns + gap) + 64).astype(np.float32)
    begin = -block.__array_interface__["data"][0] % 256 // 4
    return block[begin : begin + rows * (columns + gap)].reshape(rows, columns + gap)[:, :columns]


@pytest.mark.parametrize("width", [32, 33, 34, 36])
def test_rows_of_any_width_are_moved_in_whole_vectors(width: int) -> None:
    (row, *rest) = variants(gated, width)
    assert row.collapsed == {"M": Const(1), "N": M * N}
    assert not any(each.collapsed for each in rest)
    assert {op.vector.data for op in row.transport.walk() if isinstance(op, t.Load | t.Store)} == {4}


@pytest.mark.parametrize("shape", [(1, 1), (5, 33), (3, 2049), (1, 4097), (0, 7), (7, 0)])
def test_a_launch_takes_a_matrix_for_one_row(shape: tuple[int, int]) -> None:
    row = variants(gated)[0]
    x, g, y = aligned(*shape), aligned(*shape), np.full_like(aligned(*shape), np.nan)
    g -= 0.25
    run_steps(row.steps, (), {"x": x, "g": g, "y": y}, {"a": 2.0}, symbols=symbols(gated, x, g, y))
    np.testing.assert_array_equal(y, np.where(g > 0, x * np.float32(2), np.float32(1)))


@pytest.mark.parametrize("gaps", [(1, 0, 0), (0, 1, 0), (0, 0, 1)])
def test_a_gap_between_rows_of_one_matrix_takes_another_kernel(gaps: tuple[int, int, int]) -> None:
    row, *rest = variants(gated)
    dense = [aligned(5, 33) for _ in gaps]
    gapped = [aligned(5, 33, gap) for gap in gaps]
    assert row.predicate.evaluate(symbols(gated, *dense))
    assert not row.predicate.evaluate(symbols(gated, *gapped))
    assert any(each.predicate.evaluate(symbols(gated, *gapped)) for each in rest)


def test_a_matrix_that_begins_between_boundaries_takes_another_kernel() -> None:
    row = variants(gated)[0]
    known = symbols(gated, *(aligned(5, 33) for _ in range(3)))
    assert row.predicate.evaluate(known)
    assert not row.predicate.evaluate({**known, "g.address": known["g.address"] + 4})


def test_a_call_with_arrays_runs_the_kernel_that_dispatch_picks() -> None:
    x, g, y = (aligned(6, 101) for _ in range(3))
    gated(x, g, y)
    np.testing.assert_array_equal(y, np.where(g > 0, x * np.float32(2), np.float32(1)))


@pytest.mark.parametrize("kernel", [biased, placed, square, turned, summed, scaled])
def test_other_programs_are_left_as_they_are(kernel: tw.Kernel) -> None:
    assert not any(each.collapsed for each in variants(kernel))


def test_persistent_programs_of_one_row_are_bounded_by_dispatch() -> None:
    request = replace(variants(gated)[-1].request, schedule=Schedule.parse("persistent=True"))
    program = plan(request)
    assert program.variants[0].collapsed
    artifact = build(program)  # whose recipe is worked out again
    assert not any("2048" in str(fact) and "N" in fact.symbols for fact in artifact.facts)


def test_extents_that_somebody_pinned_stay() -> None:
    assert not any(each.collapsed for each in variants(gated, schedule=Schedule.parse("@bn=64")))


# -- proofs ------------------------------------------------------------------------------------------------------------
def test_the_certificate_states_it() -> None:
    row = variants(gated)[0]
    (obligation,) = certify_collapsed(row, row.predicate)
    assert obligation.name == "collapsed"


@pytest.mark.parametrize("name", ["x", "g", "y"])
def test_dispatch_must_ask_that_every_matrix_is_dense(name: str) -> None:
    row = variants(gated)[0]
    asked = all_of(c for c in conjuncts(row.predicate) if c != Sym(f"{name}.stride0").eq(N))
    with pytest.raises(TilewrightError, match="CRT003"):
        certify_collapsed(row, asked)


def test_dispatch_must_ask_that_a_row_is_as_long_as_an_extent_may_be() -> None:
    row = variants(gated)[0]
    asked = all_of(c for c in conjuncts(row.predicate) if c != (M * N <= MAX_EXTENT))
    with pytest.raises(TilewrightError, match="more elements than an extent"):
        certify_collapsed(row, asked)


@pytest.mark.parametrize("extents", [{"M": Const(1), "N": N}, {"M": M, "N": M * N}, {"N": M * N}])
def test_a_row_has_all_elements(extents: dict[str, Expr]) -> None:
    row = variants(gated)[0]
    with pytest.raises(TilewrightError, match="CRT003"):
        certify_collapsed(replace(row, collapsed=extents), row.predicate)


@pytest.mark.parametrize("kernel", [biased, placed, square, turned, summed, scaled])
def test_a_program_that_sees_its_place_is_refused(kernel: tw.Kernel) -> None:
    other = variants(kernel)[-1]
    tensors = [x.name for x in kernel.compiled.function.tensors]
    asked = all_of([*(Sym(f"{name}.stride0").eq(N) for name in tensors), M * N <= MAX_EXTENT])
    with pytest.raises(TilewrightError, match="CRT003"):
        certify_collapsed(replace(other, collapsed={"M": Const(1), "N": M * N}), asked)


def test_the_recipe_is_compared_with_what_the_kernel_declares() -> None:
    program = plan(replace_request(gated))
    artifact = build(program)
    kernels = {v.transport.entry: v.transport for v in program.variants}
    assert recipe_faults(artifact, kernels) == ()
    first, *rest = artifact.variants
    open_ = replace(artifact, variants=(replace(first, predicate=TRUE), *rest))
    assert any("asked of no launch" in str(fault) for fault in recipe_faults(open_, kernels))
    row = kernels[f"kernel_{first.name}"]
    row.attributes["collapsed"] = ArrayAttr([t.Extent(e.symbol, ExprAttr.of(M)) for e in row.collapsed or ()])
    assert any("one row of" in str(fault) for fault in recipe_faults(artifact, kernels))


def replace_request(kernel: tw.Kernel) -> Request:
    return variants(kernel)[-1].request
