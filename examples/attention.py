"""Attention forward with grouped heads: one program per head and block of queries.

The width of a head is fixed when the kernel is written: it sizes the registers."""

from typing import Annotated

import tilewright as tw


def forward(width: int, numerics: str = "accurate") -> tw.Kernel:
    """Attention over heads of ``width`` elements. ``scale`` is above 0: the greatest score is taken before it."""

    @tw.kernel(numerics=numerics)
    def attention(
        q: Annotated[tw.Tensor, "B", "H", "S", width],
        k: Annotated[tw.Tensor, "B", "G", "T", width],
        v: Annotated[tw.Tensor, "B", "G", "T", width],
        o: Annotated[tw.Tensor, "B", "H", "S", width],
        *,
        scale: Annotated[float, tw.f32],
        causal: bool = False,
        group: int = 1,
        bq: int = tw.auto,
        bk: int = tw.auto,
    ):
        b, h, s = tw.grid(q, (None, None, bq))
        qt = q[b, h, s]
        acc = tw.zeros((s, width), tw.f32)
        top = tw.full((s,), -tw.inf, tw.f32)
        total = tw.zeros((s,), tw.f32)
        for t in tw.stream(k.shape[2], bk, until=s.stop if causal else None):
            x = tw.dot(qt, k[b, h // group, t].T)
            if causal:
                x = tw.where(s.index[:, None] >= t.index[None, :], x, -tw.inf)
            new = tw.maximum(top, x.max(1))
            p, fix = tw.exp((x - new[:, None]) * scale), tw.exp((top - new) * scale)
            total.set(total * fix + p.sum(1))
            acc.set(acc * fix[:, None])
            top.set(new)
            acc += tw.dot(p.to(q.dtype), v[b, h // group, t])
        o[b, h, s] = acc / total[:, None]

    return attention


attention = forward(128)
