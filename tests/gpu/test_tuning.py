"""``Kernel.tune`` on a GPU: what it times, and that results and arguments are as they should be."""

# ruff: noqa: F821, UP037 - dimension names are strings

from __future__ import annotations

from typing import Any

import pytest

import tilewright as tw

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu


@tw.kernel
def product(a: tw.Tensor["M", "K"], b: tw.Tensor["N", "K"], c: tw.Tensor["M", "N"], *, bm=tw.auto, bn=tw.auto):
    m, n = tw.grid(c, (bm, bn))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], 64):
        acc += tw.dot(a[m, k], b[n, k].T)
    c[m, n] = acc


@tw.kernel
def increased(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"], *, bm=tw.auto, bn=tw.auto):
    m, n = tw.grid(x, (bm, bn))
    y[m, n] = y[m, n] + x[m, n]


def test_a_tuned_product_is_right_and_not_slower() -> None:
    a, b = (torch.randn(1024, 768, device="cuda").to(torch.bfloat16) for _ in range(2))
    c = torch.full((1024, 1024), float("nan"), device="cuda", dtype=torch.bfloat16)
    tuning = product.tune(a, b, c, best=4)
    assert c.isnan().all()
    timed = [row.microseconds for row in tuning.rows if row.microseconds is not None]
    assert len(timed) == 4
    assert all(1 < us < 1000 for us in timed)
    exact = a.double() @ b.double().T
    for _ in range(3):
        c.fill_(float("nan"))
        product(a, b, c)
        assert (c.double() - exact).abs().max() <= 0.01 * exact.abs().max()


def test_what_a_kernel_adds_to_is_put_back() -> None:
    x, y = (torch.randn(333, 500, device="cuda")[:, ::2] for _ in range(2))
    before = y.clone()
    increased.tune(x, y, best=3)
    assert torch.equal(y, before)
    increased(x, y)
    assert torch.equal(y, before + x)
