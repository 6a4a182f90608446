"""Decode over a cache of keys and values, contiguous or in pages, split along the sequence, and the merge of its parts.

A sequence's cache is as long as ``lengths`` says, and what memory holds beyond takes no part, NaN neither. In pages,
``pages[b, i]`` holds the keys i * page .. (i + 1) * page - 1 of sequence b; entries behind its last page are not read,
and one that leads outside of the pool counts as zeros. The heads of queries that share a head of keys are the rows of
a product, those of all new tokens together."""

# Dimension names are strings in annotations, which type checkers take for forward references.
# pyright: reportUndefinedVariable=false, reportOptionalMemberAccess=false, reportOptionalSubscript=false
# pyright: reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingParameterType=false
# ruff: noqa: F821

from functools import cache

import tilewright as tw

STEP = 64
"""Keys of one step, unless a launch says otherwise (``bk``)."""
ROWS = 64
"""Rows of one program: query heads that share a head of keys, times tokens (``br``)."""
_LEAST = -1e30
"""Below every score: a part of which a query sees no key has a sum of zeros."""


@cache
def paged_decode(width: int, tokens: int = 1, page: int | None = None, numerics: str = "accurate") -> tw.Kernel:
    """Attention of the last ``tokens`` tokens of each sequence over its cache of heads of ``width`` elements, which
    lies in pages of ``page`` keys or is contiguous. Program c of a sequence takes the keys from c * chunk * bk to
    (c + 1) * chunk * bk and leaves a state, which ``merge_states`` joins: a quotient and the logarithm of its
    denominator."""
    packed = 1 << (tokens - 1).bit_length()  # tokens of one head among the rows: tiles hold whole ones

    @tw.kernel(numerics=numerics)
    def paged_decode(
        lengths: tw.Tensor["B"],
        pages: tw.Tensor["B", "P"] | None,
        q: tw.Tensor["B", tokens, "G", "R", width],
        k: tw.Tensor["N", page or "T", "G", width],
        v: tw.Tensor["N", page or "T", "G", width],
        o: tw.Tensor["C", "B", tokens, "G", "R", width],
        lse: tw.Tensor["C", "B", tokens, "G", "R"],
        *,
        scale: tw.f32,
        chunk: tw.i32,
        window: int | None = None,
        br=ROWS,
        bk=STEP,
    ):
        b, c, g, r = tw.grid((q.shape[0], o.shape[0], q.shape[2], q.shape[3] * packed), (None, None, None, br))
        share = tw.maximum(chunk, 0) * bk
        token = r.index % packed
        row = (b, 0, g, r) if tokens == 1 else (b, token, g, r.index // packed)
        query = q[*row]
        acc, total = tw.zeros((r, width), tw.f32), tw.zeros((r,), tw.f32)
        top = tw.full((r,), _LEAST, tw.f32)
        cached = k.shape[1] if page is None else pages.shape[1] * page
        last = lengths[b] - tokens + token
        end = tw.minimum(lengths[b], (c + 1) * share)
        if window is not None:  # parts before the first query's window have no steps
            end = tw.where((c + 1) * share > lengths[b] - tokens - window + 1, end, 0)
        for t in tw.stream(cached, bk, start=c * share, until=end):
            place = (b, t) if page is None else (pages[b, t.index // page], t.index % page)
            x = tw.dot(query, k[*place, g].T)
            if tokens > 1:
                x = tw.where(t.index[None, :] <= last[:, None], x, -tw.inf)
            if window is not None:
                x = tw.where(t.index[None, :] > last[:, None] - window, x, -tw.inf)
            new = tw.maximum(top, x.max(1))
            p, fix = tw.exp((x - new[:, None]) * scale), tw.exp((top - new) * scale)
            total.set(total * fix + p.sum(1))
            acc.set(acc * fix[:, None])
            top.set(new)
            acc += tw.dot(p.to(q.dtype), v[*place, g])
        o[c, *row] = acc * (1.0 / tw.where(total > 0, total, 1.0))[:, None]
        lse[c, *row] = tw.where(total > 0, top * scale + tw.log(total), -tw.inf)

    return paged_decode


@tw.kernel
def merge_states(
    o: tw.Tensor["C", "M", "D"],
    lse: tw.Tensor["C", "M"],
    y: tw.Tensor["M", "D"],
    whole: tw.Tensor["M"] | None = None,
    *,
    bm=tw.auto,
    bc=8,
):
    """y = softmax over c of lse, times o: states of parts of a sequence become that of the whole; of none, zeros.
    ``whole``, if it is given, is the logarithm of its denominator."""
    m = tw.grid(y.shape[0], bm)
    d = tw.axis(y.shape[1], upto=512)
    acc, total = tw.zeros((m, d), tw.f32), tw.zeros((m,), tw.f32)
    top = tw.full((m,), _LEAST, tw.f32)
    for c in tw.stream(o.shape[0], bc):
        state = lse[c, m]
        new = tw.maximum(top, state.max(0))
        weight, fix = tw.exp(state - new[None, :]), tw.exp(top - new)
        total.set(total * fix + weight.sum(0))
        acc.set(acc * fix[:, None] + (o[c, m, d] * weight[:, :, None]).sum(0))
        top.set(new)
    y[m, d] = acc / tw.where(total > 0, total, 1.0)[:, None]
    if whole is not None:
        whole[m] = tw.where(total > 0, top + tw.log(total), -tw.inf)
