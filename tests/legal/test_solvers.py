"""Folded views and solver-settled conditions, and that no solver is loaded without need."""

from __future__ import annotations

import subprocess
import sys

import egglog
import numpy as np
import pytest
import z3
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.base.dtypes import bf16, f32
from tilewright.base.expr import Expr, parse, sym
from tilewright.base.verdict import Legal, Repairs
from tilewright.legal.domain import ShapeDomain
from tilewright.legal.egraph import MAX_AXES, views
from tilewright.legal.facts import Facts
from tilewright.legal.repair_types import Change
from tilewright.legal.repairs import legalise
from tilewright.legal.smt import implied
from tilewright.legal.tma import TileAccess

M = sym("M")


def addresses(access: TileAccess, first: dict[str, int], own: list[Expr]) -> list[int]:
    """Element offsets of the tile in order of its axes, from strides and first indices."""
    extents = [1 if t is None else t for t in access.tile]
    starts = [int(i.evaluate(first)) for i in own]
    steps = [s if isinstance(s, int) else int(s.evaluate(first)) for s in access.strides]
    return [sum((b + x) * s for b, x, s in zip(starts, at, steps, strict=True)) for at in np.ndindex(*extents)]


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_a_folded_view_reads_the_same_elements(data: st.DataObject) -> None:
    rank = data.draw(st.integers(2, 5))
    shape = [data.draw(st.integers(1, 4)) for _ in range(rank)]
    strides = [1] * rank
    for axis in reversed(range(rank - 1)):
        gap = data.draw(st.sampled_from([0, 0, 1]))
        strides[axis] = strides[axis + 1] * shape[axis + 1] + gap
    whole: list[int | None] = [data.draw(st.sampled_from([n, None, 1])) for n in shape]
    access = TileAccess(f32, tuple(shape), tuple(strides), 0, tuple(whole))
    own: list[Expr] = [sym(f"$index{i}") for i in range(rank)]
    first = {f"$index{i}": 0 if whole[i] == shape[i] else data.draw(st.integers(0, shape[i] - 1)) for i in range(rank)}
    for view in views(access, Facts()):
        assert len(view.axes) < rank
        assert sorted(a for fold in view.axes for a in fold) == list(range(rank))
        assert sorted(addresses(view.access, first, list(view.indices))) == sorted(addresses(access, first, own))


def test_short_rows_become_one_axis() -> None:
    answer = legalise(TileAccess(bf16, (1000, 4), (4, 1), 0, (128, 4)))
    assert isinstance(answer, Repairs)
    assert {v.rule for v in answer.core} == {"TMA062"}
    (remedy,) = (r.fields for r in answer.repairs if r.fields.change is Change.RESHAPE)
    assert remedy.plan is not None
    assert remedy.folds == ((0, 1),)
    assert [d.constant for d in remedy.plan.dims] == [4000]
    assert remedy.plan.coordinates == (sym("$index0") * 4 + sym("$index1"),)
    assert answer.repairs[0].fields.change is Change.RESHAPE


@pytest.mark.parametrize("tile", [(128, 3), (128, 2)])
def test_rows_that_are_not_taken_whole_do_not_fold(tile: tuple[int, int]) -> None:
    assert not list(views(TileAccess(bf16, (1000, 4), (4, 1), 0, tile), Facts()))
    assert not list(views(TileAccess(bf16, (1000, 4), (5, 1), 0, (128, 4)), Facts()))


def test_six_kept_axes_fold_into_five_or_fewer() -> None:
    access = TileAccess(bf16, (M, 3, 5, 7, 6, 64), (40320, 13440, 2688, 384, 64, 1), 0, (2, 3, 5, None, 6, 64))
    answer = legalise(access)
    assert isinstance(answer, Repairs)
    assert {v.rule for v in answer.core} == {"TMA061"}
    assert any(r.fields.change is Change.RESHAPE for r in answer.repairs)


def test_too_many_axes_are_left_alone() -> None:
    n = MAX_AXES + 1
    access = TileAccess(bf16, (2,) * n, tuple(2**i for i in reversed(range(n))), 0, (2,) * n)
    assert not list(views(access, Facts()))


def test_axes_of_one_element_fold_in_one_order() -> None:
    """Equal strides of axes of extent 1 nest both ways: every order of every fold would be a term of its own."""
    access = TileAccess(bf16, (1,) * 6, (1,) * 6, 0, (1,) * 6)
    folded = {view.axes for view in views(access, Facts())}
    assert ((0, 1, 2, 3, 4, 5),) in folded


def test_a_solver_proves_what_divisors_cannot() -> None:
    pitch = sym("K") + 4
    access = TileAccess(bf16, (M, sym("K")), (pitch, 1), 0, (64, 64))
    facts = ShapeDomain.of("K % 8 == 4", "K >= 4", "K <= 4096", "M >= 1", "M <= 4096").facts
    answer = legalise(access, facts)
    assert isinstance(answer, Legal)
    assert answer.fields.guard.evaluate({"K": 4092, "M": 4096})
    off = ShapeDomain.of("K % 8 == 2", "K >= 2", "K <= 4096", "M >= 1", "M <= 4096").facts
    assert isinstance(legalise(access, off), Repairs)


def test_answers_of_the_solver() -> None:
    fours = ShapeDomain.of("K % 4 == 0", "K >= 1").facts
    assert implied(parse("(K*2) % 8 == 0"), fours) is True
    assert implied(parse("(K*2) % 16 == 0"), fours) is False
    assert implied(parse("max(K, 3) >= 3 and min(K, 3) <= 3 and not (K < 0 and K > 5)"), Facts()) is True


def test_a_time_out_is_neither_yes_nor_no() -> None:
    hard = parse("x*x*x + y*y*y + z*z*z != 114 or (x*y*z) % 7 == 3")
    assert implied(hard, Facts(), timeout_ms=1) is None


def fails(*_args: object, **_kwargs: object) -> object:
    raise z3.Z3Exception("out of memory")


def test_a_failing_solver_is_neither_yes_nor_no(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(z3.Solver, "check", fails)
    assert implied(parse("K % 4 == 0"), Facts(divisors={"K": 2})) is None
    access = TileAccess(bf16, (M, sym("K")), (sym("K") + 4, 1), 0, (64, 64))
    facts = ShapeDomain.of("K % 8 == 4", "K >= 4", "K <= 4096", "M >= 1", "M <= 4096").facts
    assert isinstance(legalise(access, facts), Repairs)


def test_a_failing_graph_leaves_the_other_repairs(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*_args: object, **_kwargs: object) -> object:
        raise egglog.EggSmolError("panic")

    monkeypatch.setattr(egglog.EGraph, "run", breaks)
    answer = legalise(TileAccess(f32, (64, 3), (3, 1), 0, (64, 3)))
    assert isinstance(answer, Repairs)
    assert Change.RESHAPE not in {r.fields.change for r in answer.repairs}


def test_no_solver_is_loaded_for_a_legal_access() -> None:
    text = (
        "import sys; from tilewright.legal.repairs import *; from tilewright.base.dtypes import bf16;"
        "print(legalise(TileAccess(bf16, (64, 64), (64, 1), 0, (64, 64))));"
        "assert not {'z3', 'egglog', 'islpy', 'numpy'} & set(sys.modules), 'heavy';"
        "legalise(TileAccess(bf16, (64, 64), (68, 1), 0, (64, 64)));"
        "assert 'egglog' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", text], check=True, capture_output=True)
