"""Rotary embedding over heads whose halves are an axis of their own: x of (tokens, heads, 2, half)."""

from typing import Annotated

import tilewright as tw


@tw.kernel
def rotary(
    x: Annotated[tw.Tensor, "T", "H", 2, "D"],
    cos: Annotated[tw.Tensor, "T", "D"],
    sin: Annotated[tw.Tensor, "T", "D"],
    y: Annotated[tw.Tensor, "T", "H", 2, "D"],
    *,
    bt: int = tw.auto,
    bd: int = tw.auto,
):
    t, h, d = tw.grid((x.shape[0], x.shape[1], x.shape[3]), (bt, None, bd))
    first, second = x[t, h, 0, d].to(tw.f32), x[t, h, 1, d].to(tw.f32)
    c, s = cos[t, d].to(tw.f32), sin[t, d].to(tw.f32)
    y[t, h, 0, d] = first * c - second * s
    y[t, h, 1, d] = second * c + first * s
