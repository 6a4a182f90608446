"""Rotary embedding of heads whose halves are an axis of their own."""

# Dimension names are strings in annotations, which type checkers take for forward references.
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingParameterType=false
# ruff: noqa: F821

import tilewright as tw


@tw.kernel
def rotary(
    x: tw.Tensor["B", "S", "H", 2, "D"],
    cos: tw.Tensor["S", "D"],
    sin: tw.Tensor["S", "D"],
    y: tw.Tensor["B", "S", "H", 2, "D"],
    *,
    inverse: bool = False,
    bs=tw.auto,
    bd=tw.auto,
):
    """y = x with its halves turned by the angles of their position, or back: ``inverse``."""
    b, s, h, d = tw.grid((x.shape[0], x.shape[1], x.shape[2], x.shape[4]), (None, bs, None, bd))
    first, second = x[b, s, h, 0, d].to(tw.f32), x[b, s, h, 1, d].to(tw.f32)
    c, turn = cos[s, d].to(tw.f32), sin[s, d].to(tw.f32)
    turn = -turn if inverse else turn
    y[b, s, h, 0, d] = first * c - second * turn
    y[b, s, h, 1, d] = second * c + first * turn
