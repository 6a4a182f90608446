"""Streams whose bounds are loaded: keys up to a length, rows of a group. The text is that of the dense kernels.

What memory holds beyond a length takes no part, NaN neither: the rows of an unused cache need not be cleared."""

from typing import Annotated

import tilewright as tw


@tw.kernel
def attention_over_lengths(
    lengths: Annotated[tw.Tensor, "B"],
    q: Annotated[tw.Tensor, "B", "M", 128],
    k: Annotated[tw.Tensor, "B", "T", 128],
    v: Annotated[tw.Tensor, "B", "T", 128],
    o: Annotated[tw.Tensor, "B", "M", 128],
    *,
    scale: Annotated[float, tw.f32],
    bq: int = tw.auto,
    bk: int = tw.auto,
):
    """Queries of a sequence (the heads of a group, say) over as many keys of a cache as it has; none gives zeros."""
    b, m = tw.grid(q, (None, bq))
    query = q[b, m]
    acc, total = tw.zeros((m, 128), tw.f32), tw.zeros((m,), tw.f32)
    top = tw.full((m,), -tw.inf, tw.f32)
    for t in tw.stream(k.shape[1], bk, until=lengths[b]):
        x = tw.dot(query, k[b, t].T) * scale
        new = tw.maximum(top, x.max(1))
        p, fix = tw.exp(x - new[:, None]), tw.exp(top - new)
        total.set(total * fix + p.sum(1))
        acc.set(acc * fix[:, None])
        top.set(new)
        acc += tw.dot(p.to(q.dtype), v[b, t])
    o[b, m] = acc / tw.where(total != 0, total, 1.0)[:, None]


@tw.kernel
def grouped_weight_gradient(
    offsets: Annotated[tw.Tensor, "E"],
    x: Annotated[tw.Tensor, "T", "M"],
    y: Annotated[tw.Tensor, "T", "N"],
    w: Annotated[tw.Tensor, "G", "M", "N"],
    *,
    bm: int = tw.auto,
    bn: int = tw.auto,
    bk: int = 64,
):
    """w[g] = x[rows].T @ y[rows] for the rows offsets[g] .. offsets[g + 1]; a group of no rows gives zeros."""
    g, m, n = tw.grid(w, (None, bm, bn))
    acc = tw.zeros((m, n), tw.f32)
    for t in tw.stream(x.shape[0], bk, start=offsets[g], until=offsets[g + 1]):
        acc += tw.dot(x[t, m].T, y[t, n])
    w[g, m, n] = acc
