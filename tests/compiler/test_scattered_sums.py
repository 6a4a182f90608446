"""Sums at computed coordinates, where elements may meet: counted by places; a plain store there stays refused."""

# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportPrivateUsage=false, reportOptionalMemberAccess=false
# ruff: noqa: F821, UP037

from __future__ import annotations

import numpy as np
import pytest
from xdsl.dialects.builtin import ArrayAttr

import tilewright as tw
from support.indexed import CASES, SHORT
from support.lowered import lowered
from tilewright.base.expr import all_of, sym
from tilewright.compiler.planned import PlannedKernel
from tilewright.compiler.proofs.obligations import missing
from tilewright.compiler.proofs.placed import PLACED, require_placed
from tilewright.compiler.proofs.stores import certified, prove_stores
from tilewright.diag import TilewrightError
from tilewright.lang.enums import AtomicFn
from tilewright.tile import dialect as tile
from tilewright.tile.dialect import AtomicFnAttr, ExprAttr
from tilewright.transport import dialect as t
from tilewright.validate.tile_to_transport.compare import compare


def planned(kernel: tw.Kernel) -> PlannedKernel:
    return kernel.compiled._plan(kernel.compiled._ahead("sm_90a", None, None, None, None, {})).variants[-1]


def proved(source: tile.Kernel, lowered: t.Kernel) -> None:
    certified(source, prove_stores(source, lowered))
    require_placed(source, lowered)


@tw.kernel
def stored_twice(x: tw.Tensor["M"], y: tw.Tensor["K"]):
    m = tw.grid(x.shape[0], 64)
    y[m.index // 4] = x[m]


@tw.kernel
def stored_folded(x: tw.Tensor["M", "N"], y: tw.Tensor["K", "N"]):
    m, n = tw.grid(x, (16, 64))
    y[m.index % 8, n] = x[m, n]


@tw.kernel
def stored_once(x: tw.Tensor["M"], y: tw.Tensor["K"]):
    """The legal twin: 4 m reaches each element once."""
    m = tw.grid(x.shape[0], 64)
    y[m.index * 4] = x[m]


@pytest.mark.parametrize("kernel", [stored_twice, stored_folded], ids=lambda k: k.name)
def test_a_plain_store_where_elements_meet_is_refused(kernel: tw.Kernel) -> None:
    with pytest.raises(TilewrightError, match="ACC002") as caught:
        planned(kernel)
    assert "tw.reduce_add" in str(caught.value)


def test_a_plain_store_where_none_meet_is_proved() -> None:
    assert {o.name for o in planned(stored_once).certificate} >= {"once", "domain"}


@pytest.mark.parametrize("name", ["sums_of_four", "folded_rows", "sums_of_diagonals", "sums_in_a_stream"])
def test_the_certificate_counts_places_and_says_where_they_go(name: str) -> None:
    variant = planned(CASES[name].kernel)
    held = {(o.name, o.detail) for o in variant.certificate}
    assert {("added", "y, scatter 0"), (PLACED, "y, scatter 0")} <= held
    without = [o for o in variant.certificate if o.name != PLACED]
    assert missing(without, variant.transport) == (f"{PLACED} of y, scatter 0",)


@pytest.mark.parametrize("fault", ["shifted", "another divisor", "guard", "register", "twice", "dropped"])
def test_a_fault_in_the_lowering_is_found(fault: str) -> None:
    variant = planned(CASES["sums_of_four"].kernel)
    made = variant.transport.clone()
    proved(variant.tile, made)
    *_, add = (op for op in made.walk() if isinstance(op, t.AtomicReduce))
    (coord,), (at,) = (c.expr for c in add.coords), add.scattered.at
    match fault:
        case "shifted":
            add.attributes["coords"] = ArrayAttr([ExprAttr.of(coord + 1)])
        case "another divisor":
            add.attributes["coords"] = ArrayAttr([ExprAttr.of(at // 5)])
        case "guard":
            add.attributes["guard"] = ExprAttr.of(all_of([add.guard.expr, at < sym("M") - 1]))
        case "register":
            moved = {t.REGISTER: sym(t.REGISTER) * 0}
            add.attributes["coords"] = ArrayAttr([ExprAttr.of(coord.substitute(moved))])
            add.attributes["at_axes"] = ArrayAttr([ExprAttr.of(at.substitute(moved))])
        case "twice":
            add.parent_block().insert_op_after(add.clone(), add)
        case _:
            add.detach()
    with pytest.raises(TilewrightError, match=r"ACC00[1235]"):
        proved(variant.tile, made)


@pytest.mark.parametrize("name", ["reductions_of_columns", "extremes_at", "sums_of_four"])
def test_another_function_is_found(name: str) -> None:
    """By proofs and by the comparison of values, at boxes and at coordinates."""
    case = CASES[name]
    dtypes = {n: SHORT[a.dtype.name] for n, a in case.draw(np.random.default_rng(0)).items()}
    source, made = list(lowered(case.kernel, dtypes).values())[-1]
    proved(source, made)
    assert compare(source, made) == ()
    add = next(op for op in made.walk() if isinstance(op, t.AtomicReduce))
    add.attributes["fn"] = AtomicFnAttr(AtomicFn.MIN if add.fn.data is AtomicFn.MAX else AtomicFn.MAX)
    with pytest.raises(TilewrightError, match="ACC005"):
        proved(source, made)
    assert compare(source, made)
