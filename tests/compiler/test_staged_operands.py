"""Operands that threads stage element by element: their place is proved, and what is elsewhere is refuted."""

# ruff: noqa: F821, UP037 - dimension names are strings

from __future__ import annotations

import pytest
from xdsl.dialects.builtin import ArrayAttr

import tilewright as tw
from support import products as p
from tilewright.base.expr import Const, sym
from tilewright.base.verdict import Proved, Refuted
from tilewright.compiler.proofs.copies import prove_copies
from tilewright.schedule.hopper.accumulator_placement import Refused
from tilewright.schedule.hopper.candidate import Candidate
from tilewright.tile.attributes import ExprAttr
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t

pytestmark = pytest.mark.sample(1)

STAGED = Candidate(1, copies=False)


@tw.kernel
def squared(a: tw.Tensor["M", "K"], b: tw.Tensor["N", "K"], w: tw.Tensor["P", "N"], c: tw.Tensor["M", "P"], *, bm=64):
    """The second product's right operand is loaded and scaled, its left one is the first product, squared."""
    m, q = tw.grid(c, (bm, 64))
    acc = tw.zeros((m, q), tw.f32)
    for n in tw.stream(b.shape[0], 64):
        h = tw.zeros((m, n), tw.f32)
        for k in tw.stream(a.shape[1], 64):
            h += tw.dot(a[m, k], b[n, k].T)
        acc += tw.dot((h * h).to(a.dtype), (w[q, n].to(tw.f32) * 2.0).to(a.dtype).T)
    c[m, q] = acc


def lowered(kernel: tw.Kernel, candidate: Candidate = STAGED) -> p.Lowered:
    found = p.lower(kernel, candidate)
    assert not isinstance(found, Refused), found.reason
    return found


def written(found: p.Lowered) -> t.SharedWrite:
    return next(op for op in found.scheduled.kernel.walk() if isinstance(op, t.SharedWrite))


@pytest.mark.parametrize("kernel", [p.nt, p.nn, p.tn, p.tt, p.gated, squared], ids=lambda k: k.name)
def test_staged_tiles_are_those_that_products_read(kernel: tw.Kernel) -> None:
    for candidate in (STAGED, Candidate(1)):
        found = lowered(kernel, candidate)
        assert isinstance(prove_copies(found.tile, found.scheduled.kernel), Proved)


WRONG = {
    "another byte": lambda op: {"offset": ExprAttr.of(op.offset.expr + 8)},
    "rows exchanged": lambda op: {"offset": ExprAttr.of(op.offset.expr ^ 64)},
    "threads that do not write": lambda op: {"guard": ExprAttr.of(sym("$tid") < 64)},
    "one place for all": lambda op: {"offset": ExprAttr.of(Const(0))},
}


@pytest.mark.parametrize("what", WRONG)
def test_writes_elsewhere_are_refuted(what: str) -> None:
    found = lowered(p.nt)
    op = written(found)
    op.attributes.update(WRONG[what](op))
    assert isinstance(prove_copies(found.tile, found.scheduled.kernel), Refuted)


@pytest.mark.parametrize("axis", [0, 1])
def test_other_elements_are_refuted(axis: int) -> None:
    found = lowered(p.nt)
    load = next(op for op in found.scheduled.kernel.walk() if isinstance(op, t.Load))
    coords = [c.expr + (1 if i == axis else 0) for i, c in enumerate(load.coords)]
    load.attributes["coords"] = ArrayAttr([ExprAttr.of(c) for c in coords])
    assert isinstance(prove_copies(found.tile, found.scheduled.kernel), Refuted)


def test_registers_of_other_elements_are_refuted() -> None:
    found = lowered(squared)
    writes = [op for op in found.scheduled.kernel.walk() if isinstance(op, t.SharedWrite)]
    maps = [op for op in found.scheduled.kernel.walk() if isinstance(op, t.Map) and writes[-1].buffer in op.outputs]
    (op,) = maps
    op.attributes["reads"] = ArrayAttr([ExprAttr.of(read.expr ^ 1) for read in op.reads])
    assert isinstance(prove_copies(found.tile, found.scheduled.kernel), Refuted)


def test_a_tile_that_nothing_fills_is_refuted() -> None:
    found = lowered(p.nt)
    written(found).detach()
    assert isinstance(prove_copies(found.tile, found.scheduled.kernel), Refuted)
    assert any(isinstance(op, a.Wgmma) for op in found.scheduled.kernel.walk())
