"""Vectors are aligned and offsets fit by what is asked of a launch; arithmetic is what the program's policy allows."""

# ruff: noqa: F821, UP037 - dimension names are strings

from __future__ import annotations

from dataclasses import replace

import pytest
from xdsl.dialects.builtin import IntAttr, StringAttr

import tilewright as tw
from support import products as p
from tilewright.base.dtypes import f32
from tilewright.base.expr import Expr, Mod
from tilewright.base.verdict import Proved, Unknown
from tilewright.compiler import requests
from tilewright.compiler.planned import PlannedKernel
from tilewright.compiler.program import plan
from tilewright.compiler.proofs.obligations import missing, other_numerics, require
from tilewright.compiler.proofs.offsets import ALIGNED, OFFSETS, prove_offsets
from tilewright.diag import TilewrightError
from tilewright.lang.elementwise_table import UnaryFn
from tilewright.lang.enums import BinaryFn, Numerics
from tilewright.schedule.facts import CallFacts, TensorFacts
from tilewright.tile import dialect as tile
from tilewright.tile.attributes import ExprAttr
from tilewright.transport import dialect as t
from tilewright.transport.ops.base import exprs


@tw.kernel
def doubled(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"], *, bm=4, bn=256):
    m, n = tw.grid(x, (bm, bn))
    y[m, n] = x[m, n] * 2.0 + x[m, n]


def planned(index_bits: int = 32) -> PlannedKernel:
    request = p.request(doubled)
    facts = replace(request.facts, index_bits=index_bits)
    return plan(replace(request, facts=facts)).variants[0]


def without(kernel: t.Kernel, symbol: str, dropped: str) -> t.Kernel:
    """The kernel without the assumptions that speak of ``symbol`` and contain ``dropped``."""
    kept: list[Expr] = [x.expr for x in kernel.assumptions]
    fewer = [x for x in kept if not (symbol in x.symbols and dropped in str(x))]
    assert len(fewer) < len(kept)
    kernel.attributes["assumptions"] = exprs(fewer)
    return kernel


def test_vectors_and_offsets_are_proved_and_wanted() -> None:
    found = planned()
    answer = prove_offsets(found.transport)
    assert isinstance(answer, Proved)
    assert {o.name: o.subject for o in answer.obligations} == {ALIGNED: "x, y", OFFSETS: "x, y"}
    for name in (ALIGNED, OFFSETS):
        rest = tuple(o for o in found.certificate if o.name != name)
        assert missing(rest, found.transport) == (name,)


def test_offsets_of_64_bits_need_no_assumption() -> None:
    found = planned(64)
    assert OFFSETS not in {o.name for o in found.certificate}
    found.transport.attributes["index_bits"] = IntAttr(32)
    answer = prove_offsets(found.transport)
    assert isinstance(answer, Unknown)
    assert answer.obligation == OFFSETS


@pytest.mark.parametrize(
    ("symbol", "dropped", "obligation"),
    [
        ("x.address", "% 16", ALIGNED),
        ("y.stride0", "% 16", ALIGNED),
        ("x.stride1", "== 1", ALIGNED),
        ("y.stride0", "2147483648", OFFSETS),
    ],
)
def test_what_no_launch_is_asked_is_open(symbol: str, dropped: str, obligation: str) -> None:
    answer = prove_offsets(without(planned().transport, symbol, dropped))
    assert isinstance(answer, Unknown)
    assert answer.obligation == obligation


@pytest.mark.parametrize("step", [1, 4])
def test_a_vector_that_begins_between_multiples_is_open(step: int) -> None:
    kernel = planned().transport
    store = next(op for op in kernel.walk() if isinstance(op, t.Store) and op.vector.data == 8)
    row, column = (c.expr for c in store.coords)
    store.attributes["coords"] = exprs([row, column + step])
    assert isinstance(prove_offsets(kernel), Unknown)


def test_a_kernel_with_open_offsets_is_not_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "predicates", lambda *_: ())
    with pytest.raises(TilewrightError, match="CRT008"):
        planned()


def test_a_kernel_is_lowered_under_its_own_policy() -> None:
    found = planned()
    assert other_numerics(found.tile, found.transport) == ()
    found.transport.attributes["numerics"] = StringAttr("fast")
    assert other_numerics(found.tile, found.transport) == ("the program's numerics, accurate",)
    with pytest.raises(TilewrightError, match="CRT004"):
        require(found.certificate, found.tile, found.transport)


@pytest.mark.parametrize("policy", ["strict", "accurate"])
def test_other_arithmetic_than_the_policy_allows(policy: str) -> None:
    """Neither has a reciprocal or an exponential by base 2 of what is no difference, nor of one of constants, of which
    no bound is known (where ``accurate`` has them: tests/compiler/test_numerics.py)."""
    for fn, difference in (("rcp", True), ("ex2", False), ("ex2", True)):
        found = planned()
        found.tile.attributes["numerics"] = tile.NumericsAttr(Numerics(policy))
        found.transport.attributes["numerics"] = StringAttr(policy)
        body = next(op for op in found.transport.walk() if isinstance(op, t.Map)).body.block
        last = body.last_op
        assert last is not None
        one = tile.Constant(1.0, f32)
        product = tile.Binary(BinaryFn.MUL, one.result, one.result)
        minus = tile.Unary(UnaryFn.NEG, product.result)
        fused = t.Fma(one.result, one.result, minus.result)
        power = t.Approximate(fn, fused.result if difference else product.result)
        body.insert_ops_before([one, product, *([minus, fused] if difference else []), power], last)
        wrong = other_numerics(found.tile, found.transport)
        assert wrong
        assert all(w.startswith(f"{policy} arithmetic at") for w in wrong)


# -- tiles that are laid from a boundary -------------------------------------------------------------------------------
@tw.kernel
def normal(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"]):
    m, n = tw.grid(x.shape[0], 1), tw.axis(x.shape[1], upto=2048)
    row = x[m, n].to(tw.f32)
    y[m, n] = row / row.sum(1)[:, None]


def from_boundaries() -> t.Kernel:
    """Rows that start at multiples of 2 bytes, those of y where those of x do."""
    request = p.request(normal)
    facts = CallFacts((("x", TensorFacts(1, 2)), ("y", TensorFacts(1, 2, "x"))))
    found = (v.transport for v in plan(replace(request, facts=facts)).variants)
    return next(kernel for kernel in found if any(isinstance(op, t.Let) for op in kernel.walk()))


def distance(kernel: t.Kernel) -> t.Let:
    (found,) = (op for op in kernel.walk() if isinstance(op, t.Let))
    return found


def test_vectors_begin_at_boundaries() -> None:
    kernel = from_boundaries()
    assert any(isinstance(op, t.Store) and op.vector.data > 1 for op in kernel.walk())
    answer = prove_offsets(kernel)
    assert isinstance(answer, Proved)
    assert {o.name: o.subject for o in answer.obligations}[ALIGNED] == "x, y"


def test_another_distance_is_open() -> None:
    kernel = from_boundaries()
    match distance(kernel).value.expr:
        case Mod(elements, between):
            distance(kernel).attributes["value"] = ExprAttr((elements + 1) % between)
    answer = prove_offsets(kernel)
    assert isinstance(answer, Unknown)
    assert answer.obligation == ALIGNED


@pytest.mark.parametrize("dropped", ["y.address", "y.stride0", "% 2 == 0"])
def test_rows_that_start_elsewhere_are_open(dropped: str) -> None:
    answer = prove_offsets(without(from_boundaries(), "y.address" if "%" in dropped else dropped, "%"))
    assert isinstance(answer, Unknown)
