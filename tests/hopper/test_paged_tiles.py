"""Operands of products in pages that a table names: a tensor copy for each page, and what would be wrong is refused."""

# ruff: noqa: F821, UP037 - dimension names are strings
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from support import products as p
from tilewright import simulate
from tilewright.base.expr import Const, Sym, all_of, conjuncts
from tilewright.base.verdict import Proved, Refuted, Unknown
from tilewright.compiler.products import prove
from tilewright.compiler.proofs.copies import prove_copies
from tilewright.compiler.proofs.descriptors import check_descriptors
from tilewright.compiler.proofs.obligations import missing
from tilewright.compiler.proofs.page_tables import prove_tables
from tilewright.schedule.hopper.accumulator_placement import Refused
from tilewright.schedule.hopper.candidate import Candidate
from tilewright.tile.attributes import ExprAttr
from tilewright.transport import asynchronous as a
from tilewright.transport.ops.base import exprs

pytestmark = pytest.mark.sample(1)

BF16 = ml_dtypes.bfloat16
PAGE = 16
TYPES = {"pages": "i32"}


@tw.kernel
def scores(
    pages: tw.Tensor["B", "P"],
    q: tw.Tensor["B", "M", 64],
    k: tw.Tensor["N", PAGE, "G", 64],
    y: tw.Tensor["B", "G", "M", "T"],
    *,
    bm: int = 64,
    bt: int = 64,
):
    """y = q k^T for the keys of each sequence's pages."""
    b, g, m, s = tw.grid(y, (None, None, bm, bt))
    acc = tw.zeros((m, s), tw.f32)
    acc += tw.dot(q[b, m], k[pages[b, s.index // PAGE], s.index % PAGE, g].T)
    y[b, g, m, s] = acc


@tw.kernel
def chosen(
    pages: tw.Tensor["B", "P"],
    q: tw.Tensor["B", "M", 64],
    k: tw.Tensor["N", PAGE, "G", 64],
    y: tw.Tensor["B", "G", "M", "T"],
    *,
    bm: int = 64,
    bt: int = 64,
):
    """The same where an index of the author's own stands in place of some pages: none for a tensor copy."""
    b, g, m, s = tw.grid(y, (None, None, bm, bt))
    page = tw.where(s.index < 40, pages[b, s.index // PAGE], -1)
    acc = tw.zeros((m, s), tw.f32)
    acc += tw.dot(q[b, m], k[page.fill(-1), s.index % PAGE, g].T)
    y[b, g, m, s] = acc


def lowered(kernel: tw.Kernel = scores) -> p.Lowered:
    found = p.lower(kernel, Candidate(1), dtypes=TYPES)
    assert not isinstance(found, Refused), found.reason
    found.scheduled.kernel.verify()
    return found


def loads(found: p.Lowered) -> list[a.LoadCoordinate]:
    return [op for op in found.scheduled.kernel.walk() if isinstance(op, a.LoadCoordinate)]


def copies(found: p.Lowered) -> list[a.TmaLoad]:
    (symbols,) = ({op.symbol.data for op in loads(found)},)
    every = (op for op in found.scheduled.kernel.walk() if isinstance(op, a.TmaLoad))
    return [op for op in every if any(not symbols.isdisjoint(c.expr.symbols) for c in op.coords)]


def test_each_page_is_a_copy_and_the_kernel_is_proved() -> None:
    found = lowered()
    assert len(loads(found)) == len(copies(found)) == 64 // PAGE
    certificate = prove(found.tile, found.scheduled.kernel, check_descriptors(found.scheduled.kernel))
    assert not isinstance(certificate, str), certificate
    assert not missing(certificate, found.scheduled.kernel)
    without = [o for o in certificate if o.name != "tables"]
    assert missing(without, found.scheduled.kernel) == ("tables",)


@pytest.mark.parametrize("keys", [8, 48, 64, 104])
def test_it_runs(keys: int) -> None:
    """Tables with a page twice, pages outside of the pool, and fewer pages than keys ask for."""
    rng = np.random.default_rng(keys)
    pages = np.array([[2, 2, 5, -1], [0, 4, 2**31 - 1, 3]], np.int32)[:, : max(1, keys // 32)]
    q, k = (rng.normal(size=shape).astype(BF16) for shape in ((2, 70, 64), (6, PAGE, 3, 64)))
    y = np.full((2, 3, 70, keys), 7, BF16)
    simulate.run(lowered().scheduled.kernel, {"pages": pages, "q": q, "k": k, "y": y}, {}, seed=keys)
    full = np.zeros((2, 128, 3, 64))
    for b, i in np.ndindex(*pages.shape):
        if 0 <= pages[b, i] < 6:
            full[b, i * PAGE : (i + 1) * PAGE] = k[pages[b, i]]
    exact = np.einsum("bmd,btgd->bgmt", q.astype(np.float64), full)[..., :keys]
    assert np.abs(y.astype(np.float64) - exact).max() < 0.2


def test_an_index_that_is_chosen_otherwise_is_no_page_of_a_table() -> None:
    found = p.lower(chosen, Candidate(1), dtypes=TYPES)
    if not isinstance(found, Refused):
        assert not (loads(found) and isinstance(prove_copies(found.tile, found.scheduled.kernel), Proved))


def reexpressed(op: a.LoadCoordinate | a.TmaLoad, number: int, step: int) -> None:
    coords = [c.expr for c in op.coords]
    coords[number] = coords[number] + step
    op.attributes["coords"] = exprs(coords)


def unguarded(op: a.LoadCoordinate, about: str) -> None:
    kept = [c for c in conjuncts(op.guard.expr) if about not in c.text]
    assert len(kept) < len(conjuncts(op.guard.expr))
    op.attributes["guard"] = ExprAttr.of(all_of(kept))


WRONG: dict[str, Callable[[p.Lowered], object]] = {
    "the next entry": lambda f: reexpressed(loads(f)[1], 1, 1),
    "another sequence": lambda f: reexpressed(loads(f)[0], 0, 1),
    "a table's end": lambda f: unguarded(loads(f)[0], "< P"),
    "a domain's end": lambda f: unguarded(loads(f)[2], "< T"),
    "an extent": lambda f: loads(f)[0].attributes.update(extent=ExprAttr.of(Sym("N") - 1)),
    "a row in the page": lambda f: reexpressed(copies(f)[0], 1, 1),
    "the page behind": lambda f: reexpressed(copies(f)[0], 3, 1),
    "a tighter guard": lambda f: loads(f)[0].attributes.update(
        guard=ExprAttr.of(all_of([loads(f)[0].guard.expr, Sym("P") < Const(100)]))
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_refused(name: str) -> None:
    found = lowered()
    WRONG[name](found)
    kernel = found.scheduled.kernel
    answers = prove_copies(found.tile, kernel), prove_tables(kernel)
    assert any(isinstance(answer, Refuted | Unknown) for answer in answers)
