"""Tiles that go through more shared memory than a kernel may declare."""

# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingParameterType=false
# ruff: noqa: F821, UP037

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright.compiler.planned import PlannedKernel
from tilewright.diag import TilewrightError
from tilewright.transport import dialect as t


@tw.kernel
def turned(x: tw.Tensor["M", "N"], y: tw.Tensor["N", "M"], *, bm: int = 128, bn: int = 64):
    """A transpose by whole tiles."""
    m, n = tw.grid(x, (bm, bn))
    y[n, m] = x[m, n].T


def planned(bm: int, bn: int) -> PlannedKernel:
    (variant,) = turned.plan(bm=bm, bn=bn).variants
    return variant


def shared(variant: PlannedKernel) -> list[t.Shared]:
    return [op for op in variant.transport.body.block.ops if isinstance(op, t.Shared)]


def test_up_to_48_kb_is_declared_and_more_is_asked_for_at_launch() -> None:
    small, large = planned(128, 64), planned(256, 128)
    assert small.transport.shared_bytes is None
    assert all(op.offset is None for op in shared(small))
    assert large.transport.shared_bytes is not None
    assert 128 * 1024 <= large.transport.shared_bytes.data <= 232_448
    assert all(op.offset is not None for op in shared(large))


def test_the_two_bodies_of_a_kernel_share_their_buffers() -> None:
    assert len(shared(planned(128, 64))) == 1


def test_a_large_tile_is_turned_over() -> None:
    x = np.arange(300 * 140, dtype=np.float32).reshape(300, 140)
    y = np.full((140, 300), np.nan, np.float32)
    turned(x, y, bm=256, bn=128)
    np.testing.assert_array_equal(y, x.T)


def test_a_launch_asks_for_it() -> None:
    image = turned.compile(bm=256, bn=128).kernels[0]
    assert image.shared_bytes > 128 * 1024
    assert image.static_shared_bytes == 0


def test_more_than_a_cta_has_is_refused() -> None:
    with pytest.raises(TilewrightError, match="CGN003") as caught:
        planned(512, 128)
    assert "232448" in str(caught.value)
    assert "smaller tiles" in str(caught.value)
