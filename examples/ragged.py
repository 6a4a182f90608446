"""Streams whose bounds are loaded: keys up to a length, rows of a group. The text is that of the dense kernels.

What memory holds beyond a length takes no part, NaN neither: the rows of an unused cache need not be cleared."""

# Dimension names are strings in annotations, which type checkers take for forward references.
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingParameterType=false
# ruff: noqa: F821

import tilewright as tw


@tw.kernel
def attention_over_lengths(
    lengths: tw.Tensor["B"],
    q: tw.Tensor["B", "M", 128],
    k: tw.Tensor["B", "T", 128],
    v: tw.Tensor["B", "T", 128],
    o: tw.Tensor["B", "M", 128],
    *,
    scale: tw.f32,
    bq=tw.auto,
    bk=tw.auto,
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
    o[b, m] = acc / tw.where(total > 0, total, 1.0)[:, None]


@tw.kernel
def grouped_weight_gradient(
    offsets: tw.Tensor["E"],
    x: tw.Tensor["T", "M"],
    y: tw.Tensor["T", "N"],
    w: tw.Tensor["G", "M", "N"],
    *,
    bm=tw.auto,
    bn=tw.auto,
    bk=64,
):
    """w[g] = x[rows].T @ y[rows] for the rows offsets[g] .. offsets[g + 1]; a group of no rows gives zeros."""
    g, m, n = tw.grid(w, (None, bm, bn))
    acc = tw.zeros((m, n), tw.f32)
    for t in tw.stream(x.shape[0], bk, start=offsets[g], until=offsets[g + 1]):
        acc += tw.dot(x[t, m].T, y[t, n])
    w[g, m, n] = acc
