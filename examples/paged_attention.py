"""Attention over a cache of keys and values in pages: chunks of a prompt, and the slots of new tokens.

Appending, decode and the merge of its parts are those of ``tilewright.ops.kernels``; ``examples/decode.py`` runs them
all in a loop.

A sequence's cache is as long as ``lengths`` says, and what memory holds beyond takes no part, NaN neither. In pages,
``pages[b, i]`` holds the keys i * page .. (i + 1) * page - 1 of sequence b; entries behind its last page are not read,
and one that leads outside of the pool counts as zeros. The heads of queries that share a head of keys are the rows of
a product, those of all new tokens together."""

from typing import Annotated

import tilewright as tw
from tilewright.ops.kernels import merge_states as merge
from tilewright.ops.kernels import paged_append as append
from tilewright.ops.kernels import paged_decode as decode

__all__ = ["append", "decode", "merge", "prefill", "slots"]

_LEAST = -1e30
"""Below every score: a query that sees no key has a sum of zeros."""


def prefill(width: int, page: int, numerics: str = "accurate") -> tw.Kernel:
    """Causal attention of new tokens over a paged cache that holds their keys already. The queries of sequence b are
    rows offsets[b] .. offsets[b + 1]; the last of them is at lengths[b] - 1."""

    @tw.kernel(numerics=numerics)
    def prefill(
        offsets: Annotated[tw.Offsets, "B + 1"],
        lengths: Annotated[tw.Tensor, "B"],
        pages: Annotated[tw.Tensor, "B", "P"],
        q: Annotated[tw.Tensor, "M", "H", width],
        k: Annotated[tw.Tensor, "N", page, "G", width],
        v: Annotated[tw.Tensor, "N", page, "G", width],
        o: Annotated[tw.Tensor, "M", "H", width],
        *,
        scale: Annotated[float, tw.f32],
        group: int = 1,
        bq: int = 128,
        bk: int = 128 if page >= 16 else 64,  # copies of smaller pages leave no registers for more
    ):
        b, s, h = tw.ragged_grid(offsets, (q.shape[0], q.shape[1]), (bq, None))
        query = q[s, h]
        acc, total = tw.zeros((s, width), tw.f32), tw.zeros((s,), tw.f32)
        top = tw.full((s,), _LEAST, tw.f32)
        ahead = lengths[b] - offsets[b + 1]
        for t in tw.stream(pages.shape[1] * page, bk, until=ahead + s.stop):
            place = (pages[b, t.index // page], t.index % page, h // group)
            x = tw.dot(query, k[place].T)
            x = tw.where(t.index[None, :] <= (ahead + s.index)[:, None], x, -tw.inf)
            new = tw.maximum(top, x.max(1))
            p, fix = tw.exp((x - new[:, None]) * scale), tw.exp((top - new) * scale)
            total.set(total * fix + p.sum(1))
            acc.set(acc * fix[:, None])
            top.set(new)
            acc += tw.dot(p.to(q.dtype), v[place])
        o[s, h] = acc / tw.where(total != 0, total, 1.0)[:, None]

    return prefill


def slots(page: int) -> tw.Kernel:
    """Where the S tokens behind each sequence's length lie in pages of ``page``: -1 where the table has no page, or one
    whose places are no numbers of ``slot``'s dtype."""

    @tw.kernel
    def slots(
        lengths: Annotated[tw.Tensor, "B"],
        pages: Annotated[tw.Tensor, "B", "P"],
        slot: Annotated[tw.Tensor, "B", "S"],
        *,
        bs: int = tw.auto,
    ):
        b, s = tw.grid(slot, (None, bs))
        t = lengths[b].to(tw.i64) + s.index
        entry = pages[b, t // page].fill(-1).to(tw.i64)
        place = entry * page + t % page
        slot[b, s] = tw.where((entry >= 0) & (place.to(slot.dtype) == place), place, -1)

    return slots
