"""Random numbers by counters: dropout whose backward pass makes the same choices again, with no mask in memory."""

# Dimension names are strings in annotations, which type checkers take for forward references.
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingParameterType=false
# ruff: noqa: F821

import tilewright as tw


@tw.kernel
def dropout(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"], *, seed: tw.i32, rate: tw.f32, bm=tw.auto, bn=tw.auto):
    """y = x / (1 - rate) where a number of the element's own is at least rate, else 0; dx of dy likewise."""
    m, n = tw.grid(x, (bm, bn))
    element = m.index.to(tw.i64)[:, None] * x.shape[1] + n.index
    y[m, n] = tw.where(tw.rand(seed, element) >= rate, x[m, n] / (1 - rate), 0)
