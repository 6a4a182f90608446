"""Attention over packed sequences: the text is that of ``attention.py``, in a ragged grid.

Queries of sequence b are the rows q_offsets[b] .. q_offsets[b + 1] of ``q``, its keys the rows k_offsets[b] ..
k_offsets[b + 1] of ``k`` and ``v``; nothing is padded. Causal attention is aligned at the end of a sequence, as
FlashAttention has it: its last query sees all keys. A query that sees none has a result of zeros, and -inf for ``lse``.
``tilewright.ops.varlen_attention`` is the same as an operator of PyTorch."""

from typing import Annotated

import tilewright as tw


def forward(width: int, numerics: str = "accurate") -> tw.Kernel:
    """Attention over heads of ``width`` elements. ``scale`` is above 0: the greatest score is taken before it."""

    @tw.kernel(numerics=numerics)
    def varlen_attention(
        q_offsets: Annotated[tw.Offsets, "B + 1"],
        k_offsets: Annotated[tw.Offsets, "B + 1"],
        q: Annotated[tw.Tensor, "M", "H", width],
        k: Annotated[tw.Tensor, "N", "G", width],
        v: Annotated[tw.Tensor, "N", "G", width],
        o: Annotated[tw.Tensor, "M", "H", width],
        lse: Annotated[tw.Tensor, "H", "M"] | None = None,
        *,
        scale: Annotated[float, tw.f32],
        causal: bool = False,
        window: int | None = None,
        group: int = 1,
        bq: int = tw.auto,
        bk: int = tw.auto,
    ):
        b, s, h = tw.ragged_grid(q_offsets, (q.shape[0], q.shape[1]), (bq, None))
        qt = q[s, h]
        acc = tw.zeros((s, width), tw.f32)
        top = tw.full((s,), -1e30, tw.f32)
        total = tw.zeros((s,), tw.f32)
        start, until = k_offsets[b], k_offsets[b + 1]
        ahead = until - q_offsets[b + 1]  # from a query's row to that of the last key that it sees
        if window is not None:
            start = tw.maximum(start, ahead + (s.start - (window - 1)))
        for t in tw.stream(k.shape[0], bk, start=start, until=ahead + s.stop if causal else until):
            x = tw.dot(qt, k[t, h // group].T)
            if causal:
                x = tw.where((s.index + ahead)[:, None] >= t.index[None, :], x, -tw.inf)
            if window is not None:
                x = tw.where((s.index + (ahead - window))[:, None] < t.index[None, :], x, -tw.inf)
            new = tw.maximum(top, x.max(1))
            p, fix = tw.exp((x - new[:, None]) * scale), tw.exp((top - new) * scale)
            total.set(total * fix + p.sum(1))
            acc.set(acc * fix[:, None])
            top.set(new)
            acc += tw.dot(p.to(q.dtype), v[t, h // group])
        o[s, h] = acc / tw.where(total != 0, total, 1.0)[:, None]
        if lse is not None:
            lse[h, s] = tw.where(total != 0, top * scale + tw.log(total), -tw.inf)

    return varlen_attention


varlen_attention = forward(128)
