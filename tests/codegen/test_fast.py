"""What the fast policy may contract."""

# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingParameterType=false
# ruff: noqa: F821, UP037

from __future__ import annotations

import re

import tilewright as tw
from tilewright.codegen.cuda import emit_kernel


@tw.kernel(numerics="fast")
def running(x: tw.Tensor["M", "N"], y: tw.Tensor["M"], *, bn=64):
    """A sum of exponentials that follows a running maximum."""
    m = tw.grid(x.shape[0], 1)
    top, total = tw.full(m, -1e30, tw.f32), tw.zeros(m, tw.f32)
    for n in tw.stream(x.shape[1], bn):
        row = x[m, n]
        new = tw.maximum(top, row.max(1))
        total.set(total * tw.exp(top - new) + tw.exp(row - new[:, None]).sum(1))
        top.set(new)
    y[m] = total


def test_only_a_shared_subtrahend_is_multiplied_ahead() -> None:
    """``exp(top - new)`` must be 1 where the maximum stays.

    As ``ex2(top * L - round(new * L))`` it was 1 - 1.6e-7, and 17 steps made that 2e-6 (H200, 65537 columns)."""
    kernel = running.compiled
    (variant,) = kernel._plan(kernel._ahead("sm_90a", None, None, None, None, {})).variants
    source = emit_kernel(variant.transport).source
    exponentials = [line for line in source.splitlines() if " = exp2_fast(" in line]
    fused = [line for line in exponentials if "fmaf" in line]
    assert fused
    rescaling = [line for line in exponentials if "fmaf" not in line]
    assert rescaling
    assert all(re.search(r"exp2_fast\(x\d+ \* 1\.44", line) for line in rescaling)
