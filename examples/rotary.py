"""Rotary embedding over heads whose halves are an axis of their own: x of (tokens, heads, 2, half)."""

# Dimension names are strings in annotations, which type checkers take for forward references.
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingParameterType=false
# ruff: noqa: F821

import tilewright as tw


@tw.kernel
def rotary(
    x: tw.Tensor["T", "H", 2, "D"],
    cos: tw.Tensor["T", "D"],
    sin: tw.Tensor["T", "D"],
    y: tw.Tensor["T", "H", 2, "D"],
    *,
    bt=tw.auto,
    bd=tw.auto,
):
    t, h, d = tw.grid((x.shape[0], x.shape[1], x.shape[3]), (bt, None, bd))
    first, second = x[t, h, 0, d].to(tw.f32), x[t, h, 1, d].to(tw.f32)
    c, s = cos[t, d].to(tw.f32), sin[t, d].to(tw.f32)
    y[t, h, 0, d] = first * c - second * s
    y[t, h, 1, d] = second * c + first * s
