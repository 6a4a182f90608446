"""Random numbers by counters: dropout whose backward pass makes the same choices again, with no mask in memory."""

from typing import Annotated

import tilewright as tw


@tw.kernel
def dropout(
    x: Annotated[tw.Tensor, "M", "N"],
    y: Annotated[tw.Tensor, "M", "N"],
    *,
    seed: Annotated[int, tw.i32],
    rate: Annotated[float, tw.f32],
    bm: int = tw.auto,
    bn: int = tw.auto,
):
    """y = x / (1 - rate) where a number of the element's own is at least rate, else 0; dx of dy likewise."""
    m, n = tw.grid(x, (bm, bn))
    element = m.index.to(tw.i64)[:, None] * x.shape[1] + n.index
    y[m, n] = tw.where(tw.rand(seed, element) >= rate, x[m, n] / (1 - rate), 0)
