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


@tw.kernel(numerics="fast")
def rms_norm_rotary(
    x: tw.Tensor["B", "S", "H", 2, "D"],
    w: tw.Tensor[2, "D"],
    cos: tw.Tensor["B", "S", "D"],
    sin: tw.Tensor["B", "S", "D"],
    y: tw.Tensor["B", "S", "H", 2, "D"],
    *,
    eps: tw.f32 = 1e-6,
    bs=tw.auto,
    upto: int = 128,
):
    """y = the RMS norm of each head, times w, with its halves turned by the angles of their position: rounded once."""
    b, s, h = tw.grid((x.shape[0], x.shape[1], x.shape[2]), (None, bs, None))
    d = tw.axis(x.shape[4], upto=upto)
    first, second = x[b, s, h, 0, d].to(tw.f32), x[b, s, h, 1, d].to(tw.f32)
    scale = tw.rsqrt(((first * first).mean(1) + (second * second).mean(1)) * 0.5 + eps)[:, None]
    first, second = first * scale * w[0, d].to(tw.f32), second * scale * w[1, d].to(tw.f32)
    c, turn = cos[b, s, d].to(tw.f32), sin[b, s, d].to(tw.f32)
    y[b, s, h, 0, d] = first * c - second * turn
    y[b, s, h, 1, d] = second * c + first * turn


@tw.kernel(numerics="fast")
def rms_norm_rotary_gradients(
    x: tw.Tensor["B", "S", "H", 2, "D"],
    w: tw.Tensor[2, "D"],
    cos: tw.Tensor["B", "S", "D"],
    sin: tw.Tensor["B", "S", "D"],
    dy: tw.Tensor["B", "S", "H", 2, "D"],
    dx: tw.Tensor["B", "S", "H", 2, "D"],
    dw: tw.Tensor["B", "P", "H", 2, "D"],
    *,
    eps: tw.f32 = 1e-6,
    group: int = 256,
    bs: int = 16,
    upto: int = 128,
):
    """dx of both, and of each head of each ``group`` of tokens dw = sum(dn * x / sqrt(mean(x^2) + eps)), where dn is dy
    turned back, which is not rounded."""
    b, p, h = tw.grid((dw.shape[0], dw.shape[1], dw.shape[2]), (None, None, None))
    d = tw.axis(x.shape[4], upto=upto)
    weight_1, weight_2 = tw.zeros(d, tw.f32), tw.zeros(d, tw.f32)
    for s in tw.stream(x.shape[1], bs, start=p * group, until=(p + 1) * group):
        first, second = x[b, s, h, 0, d].to(tw.f32), x[b, s, h, 1, d].to(tw.f32)
        above, below = dy[b, s, h, 0, d].to(tw.f32), dy[b, s, h, 1, d].to(tw.f32)
        c, turn = cos[b, s, d].to(tw.f32), sin[b, s, d].to(tw.f32)
        g_1, g_2 = above * c + below * turn, below * c - above * turn
        scale = tw.rsqrt(((first * first).mean(1) + (second * second).mean(1)) * 0.5 + eps)[:, None]
        first, second = first * scale, second * scale
        weight_1 += (g_1 * first).sum(0)
        weight_2 += (g_2 * second).sum(0)
        g_1, g_2 = g_1 * w[0, d].to(tw.f32), g_2 * w[1, d].to(tw.f32)
        share = (((g_1 * first).mean(1) + (g_2 * second).mean(1)) * 0.5)[:, None]
        dx[b, s, h, 0, d] = scale * (g_1 - first * share)
        dx[b, s, h, 1, d] = scale * (g_2 - second * share)
    dw[b, p, h, 0, d] = weight_1
    dw[b, p, h, 1, d] = weight_2
