"""Row softmax: a whole row in one tile, and a row streamed in two passes."""

from typing import Annotated

import tilewright as tw

Matrix = Annotated[tw.Tensor, "M", "N"]


@tw.kernel(numerics="fast")
def softmax(x: Matrix, y: Matrix, *, bm: int = tw.auto, upto: int = 65536):
    m = tw.grid(x.shape[0], bm)
    n = tw.axis(x.shape[1], upto=upto)
    row = x[m, n].to(tw.f32)
    e = tw.exp(row - row.max(1)[:, None])
    y[m, n] = e / e.sum(1)[:, None]


@tw.kernel(numerics="fast")
def softmax_streamed(x: Matrix, y: Matrix, *, bm: int = tw.auto, bn: int = tw.auto):
    m = tw.grid(x.shape[0], bm)
    top = tw.full(m, -tw.inf, tw.f32)
    total = tw.zeros(m, tw.f32)
    for n in tw.stream(x.shape[1], bn):
        row = x[m, n].to(tw.f32)
        new = tw.maximum(top, row.max(1))
        # While a row has shown nothing but -inf its sum is 0, and -inf - -inf must not make it NaN.
        base = tw.where(new == -tw.inf, 0.0, new)
        total.set(total * tw.exp(top - base) + tw.exp(row - base[:, None]).sum(1))
        top.set(new)
    for n in tw.stream(x.shape[1], bn):
        y[m, n] = tw.exp(x[m, n].to(tw.f32) - top[:, None]) / total[:, None]
