"""Decode over a cache of keys and values, contiguous or in pages, split along the sequence, the merge of its parts, and
where new keys and values go.

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
"""Keys per step, unless a launch sets ``bk``."""
ROWS = 64
"""Rows of one program: query heads that share a head of keys, times tokens (``br``)."""
_LEAST = -1e30
"""Below every score: a part of which a query sees no key has a sum of zeros."""


@cache
def paged_decode(
    width: int, tokens: int = 1, page: int | None = None, numerics: str = "accurate", values: int | None = None
) -> tw.Kernel:
    """Attention of the last ``tokens`` tokens of each sequence over its cache of heads of ``width`` elements, which
    lies in pages of ``page`` keys or is contiguous. Program c of a sequence takes the keys from c * chunk * bk to
    (c + 1) * chunk * bk and leaves a state, which ``merge_states`` joins: a quotient and the logarithm of its
    denominator. A cache of 8-bit floats holds keys and values divided by ``k_scale`` and ``v_scale`` of their head,
    which are above 0.

    With ``values`` all queries share one head of keys, and G are the blocks of ``values`` elements of its value."""
    packed = _packed(tokens)
    heads, columns = ("G", width) if values is None else (1, values)

    @tw.kernel(numerics=numerics)
    def paged_decode(
        lengths: tw.Tensor["B"],
        pages: tw.Tensor["B", "P"] | None,
        q: tw.Tensor["B", tokens, heads, "R", width],
        k: tw.Tensor["N", page or "T", heads, width],
        v: tw.Tensor["N", page or "T", "G", columns],
        o: tw.Tensor["C", "B", tokens, "G", "R", columns],
        lse: tw.Tensor["C", "B", tokens, "G", "R"],
        k_scale: tw.Tensor["G"] | None = None,
        v_scale: tw.Tensor["G"] | None = None,
        *,
        scale: tw.f32,
        chunk: tw.i32,
        window: int | None = None,
        br=ROWS,
        bk=STEP,
    ):
        b, c, g, r = tw.grid((q.shape[0], o.shape[0], o.shape[3], q.shape[3] * packed), (None, None, None, br))
        own = g if values is None else 0
        share = tw.maximum(chunk, 0) * bk
        token = r.index % packed
        s, h = (0, r) if tokens == 1 else (token, r.index // packed)
        last = lengths[b] - tokens + token
        end = tw.minimum(lengths[b], (c + 1) * share)
        if window is not None:  # parts before the first query's window have no steps
            end = tw.where((c + 1) * share > lengths[b] - tokens - window + 1, end, 0)
        steps = tw.stream(k.shape[1] if page is None else pages.shape[1] * page, bk, start=c * share, until=end)
        places = (b, (own, g), page, pages)
        shift = scale if k_scale is None else scale * k_scale[own]
        acc, total, top = _attended(steps, places, q[b, s, own, h], (k, v), r, last, tokens, shift, window)
        whole = tw.where(total != 0, total, 1.0)
        o[c, b, s, g, h] = acc * ((1.0 if v_scale is None else v_scale[g]) / whole)[:, None]
        lse[c, b, s, g, h] = tw.where(total != 0, top * shift + tw.log(total), -tw.inf)

    return paged_decode


@cache
def paged_decode_parts(width: int, tokens: int = 1, page: int | None = None, numerics: str = "accurate") -> tw.Kernel:
    """The same with a program for each part that ``decode_parts`` lists, which leaves its state in its row of ``o`` and
    ``lse``: the steps ``begin[p]`` .. ``until[p]`` of sequence ``owner[p]``. ``merge_parts`` joins them."""
    packed = _packed(tokens)

    @tw.kernel(numerics=numerics)
    def paged_decode_parts(
        owner: tw.Tensor["W"],
        begin: tw.Tensor["W"],
        until: tw.Tensor["W"],
        lengths: tw.Tensor["B"],
        pages: tw.Tensor["B", "P"] | None,
        q: tw.Tensor["B", tokens, "G", "R", width],
        k: tw.Tensor["N", page or "T", "G", width],
        v: tw.Tensor["N", page or "T", "G", width],
        o: tw.Tensor["W", tokens, "G", "R", width],
        lse: tw.Tensor["W", tokens, "G", "R"],
        k_scale: tw.Tensor["G"] | None = None,
        v_scale: tw.Tensor["G"] | None = None,
        *,
        scale: tw.f32,
        window: int | None = None,
        br=ROWS,
        bk=STEP,
    ):
        p, g, r = tw.grid((o.shape[0], q.shape[2], q.shape[3] * packed), (None, None, br))
        b, cached = tw.clipped(owner[p], q.shape[0]), k.shape[1] if page is None else pages.shape[1] * page
        first = tw.clipped(begin[p], cached + 1)
        token = r.index % packed
        row = (0, g, r) if tokens == 1 else (token, g, r.index // packed)
        last = lengths[b] - tokens + token
        steps = tw.stream(cached, bk, start=first * bk, until=tw.minimum(lengths[b], until[p] * bk))
        places = (b, (g, g), page, pages)
        shift = scale if k_scale is None else scale * k_scale[g]
        acc, total, top = _attended(steps, places, q[b, *row], (k, v), r, last, tokens, shift, window)
        whole = tw.where(total != 0, total, 1.0)
        o[p, *row] = acc * ((1.0 if v_scale is None else v_scale[g]) / whole)[:, None]
        lse[p, *row] = tw.where(total != 0, top * shift + tw.log(total), -tw.inf)

    return paged_decode_parts


@cache
def paged_append(width: int, page: int, shared: int = 1) -> tw.Kernel:
    """New keys and values to their slots, page * ``page`` + offset, in pages of ``page`` keys; slots outside of the
    pool are skipped. Keys are turned by the angles of their token, whose cosines and sines are given. A cache of 8-bit
    floats holds them divided by the scales of their head, and what is too great for it as its greatest number.
    ``queries``, of which ``shared`` heads share one of keys, are turned likewise, into ``turned``."""
    half = width // 2

    @tw.kernel
    def paged_append(
        slots: tw.Unique["M"],
        key: tw.Tensor["M", "G", width],
        value: tw.Tensor["M", "G", width],
        k: tw.Tensor["N", page, "G", width],
        v: tw.Tensor["N", page, "G", width],
        cos: tw.Tensor["M", half] | None = None,
        sin: tw.Tensor["M", half] | None = None,
        k_scale: tw.Tensor["G"] | None = None,
        v_scale: tw.Tensor["G"] | None = None,
        queries: tw.Tensor["M", "G", shared, width] | None = None,
        turned: tw.Tensor["M", "G", shared, width] | None = None,
        *,
        bm=tw.auto,
    ):
        m, g = tw.grid((key.shape[0], key.shape[1]), (bm, None))
        place = (slots[m] // page, slots[m] % page, g)
        first, second, other = key[m, g, :half].to(tw.f32), key[m, g, half:].to(tw.f32), value[m, g].to(tw.f32)
        if cos is not None:
            c, turn = cos[m].to(tw.f32), sin[m].to(tw.f32)
            first, second = first * c - second * turn, second * c + first * turn
            if queries is not None:
                h, c, turn = tw.axis(shared), c[:, None], turn[:, None]
                a, b = queries[m, g, h, :half].to(tw.f32), queries[m, g, h, half:].to(tw.f32)
                turned[m, g, h, :half] = a * c - b * turn
                turned[m, g, h, half:] = b * c + a * turn
        k[*place, :half] = first if k_scale is None else first / k_scale[g]
        k[*place, half:] = second if k_scale is None else second / k_scale[g]
        v[*place] = other if v_scale is None else other / v_scale[g]

    return paged_append


@cache
def token_rows(page: int) -> tw.Kernel:
    """The table of a cache whose pages of ``page`` tokens are taken for pages of one: -1 where a table names none of
    its ``count`` pages."""

    @tw.kernel
    def token_rows(pages: tw.Tensor["B", "P"], rows: tw.Tensor["B", "Q"], *, count: tw.i32, bt=tw.auto):
        b, t = tw.grid(rows, (None, bt))
        entry = pages[b, t.index // page].fill(-1)
        rows[b, t] = tw.where((entry >= 0) & (entry < count), entry * page + t.index % page, -1)

    return token_rows


def _packed(tokens: int) -> int:
    """Tokens of one head among the rows: tiles hold whole ones."""
    return 1 << (tokens - 1).bit_length()


def _multiplied(query, cached):
    """The dtype of the products: all 8-bit floats are float16, too, which they become in one instruction."""
    return tw.f16 if cached in (tw.e4m3, tw.e5m2) else query


def _attended(steps, places, query, cache, r, last, tokens, scale, window):
    """(products with values, sum of weights, greatest score) of queries ``r`` over the keys that ``steps`` walks;
    ``last`` is the key that each of them sees as its last."""
    (b, (own, g), page, pages), (k, v) = places, cache
    query = query.to(_multiplied(query.dtype, k.dtype))
    acc, total = tw.zeros((r, v.shape[3]), tw.f32), tw.zeros((r,), tw.f32)
    top = tw.full((r,), _LEAST, tw.f32)
    for t in steps:
        if page == 1:  # rows that the table names
            place = pages[b, t], 0
        else:
            place = (b, t) if page is None else (pages[b, t.index // page], t.index % page)
        x = tw.dot(query, k[*place, own].to(query.dtype).T)
        if tokens > 1:
            x = tw.where(t.index[None, :] <= last[:, None], x, -tw.inf)
        if window is not None:
            x = tw.where(t.index[None, :] > last[:, None] - window, x, -tw.inf)
        new = tw.maximum(top, x.max(1))
        p, fix = tw.exp((x - new[:, None]) * scale), tw.exp((top - new) * scale)
        total.set(total * fix + p.sum(1))
        acc.set(acc * fix[:, None])
        top.set(new)
        acc += tw.dot(p.to(query.dtype), v[*place, g].to(query.dtype))
    return acc, total, top


@cache
def decode_parts(sequences: int) -> tw.Kernel:
    """Cuts up to ``sequences`` sequences into parts of ``chunk`` steps, of which the last of a sequence may have fewer:
    as few steps as W parts surely suffice for, and at least ``least``. W is greater than the number of sequences.

    Whole parts come first, then the others by falling length, so that programs dealt in turn have alike to do. Part p
    has the steps ``begin[p]`` .. ``until[p]`` of sequence ``owner[p]``; behind the last part they are empty. Entry b of
    the other arrays is about sequence b: ``whole[b]`` whole parts from part ``first[b]`` on, and part ``rest[b]``, -1
    where there is none. What lies before the windows of all of the last ``tokens`` tokens is in no part."""

    @tw.kernel
    def decode_parts(
        lengths: tw.Tensor["B"],
        owner: tw.Tensor["W"],
        begin: tw.Tensor["W"],
        until: tw.Tensor["W"],
        first: tw.Tensor["W"],
        whole: tw.Tensor["W"],
        rest: tw.Tensor["W"],
        *,
        columns: tw.i32,
        least: tw.i32,
        tokens: int = 1,
        window: int | None = None,
        bp=8,
        bk=STEP,
    ):
        """``columns``: the steps that the cache has room for."""

        def steps_of(b):
            length = tw.clamp(lengths[b], 0, columns * bk).to(tw.i32)
            before = tw.maximum(length - (tokens + (window or 0) - 1), 0) // bk * (window is not None)
            return (length + (bk - 1)) // bk - before, before

        p = tw.grid(owner.shape[0], bp)
        b, other = (tw.axis(lengths.shape[0], upto=sequences) for _ in range(2))
        (steps, before), (others, _) = steps_of(b), steps_of(other)
        room = owner.shape[0] - lengths.shape[0]
        chunk = tw.maximum((steps.sum(0).to(tw.i32) + (room - 1)) // room, least)
        full, left, its = steps // chunk, steps % chunk, others % chunk
        later = (its[None, :] > left[:, None]) | (
            (its[None, :] == left[:, None]) & (other.index[None, :] < b.index[:, None])
        )
        rank, count = later.sum(1).to(tw.i32), full.sum(0).to(tw.i32)
        behind = tw.cumsum(full, 0).to(tw.i32)
        start = behind - full

        i, place = p.index[:, None], count + rank
        is_whole = (i >= start[None, :]) & (i < behind[None, :])
        is_rest = (i == place[None, :]) & (left > 0)[None, :]

        def found(x, of=is_whole | is_rest):
            return tw.where(of, x, 0).max(1)

        at = tw.where(is_whole, i - start[None, :], full[None, :]) * chunk + before[None, :]
        owner[p], begin[p] = found(b.index[None, :]), found(at)
        until[p] = found(at + tw.where(is_whole, chunk, left[None, :]))
        own = i == b.index[None, :]
        first[p], whole[p] = found(start[None, :], own), found(full[None, :], own)
        rest[p] = found(tw.where(left > 0, place + 1, 0)[None, :], own) - 1

    return decode_parts


@cache
def merge_parts(width: int) -> tw.Kernel:
    """``merge_states`` for each sequence of the parts that ``decode_parts`` lists."""

    @tw.kernel
    def merge_parts(
        first: tw.Tensor["W"],
        whole: tw.Tensor["W"],
        rest: tw.Tensor["W"],
        o: tw.Tensor["W", "M", width],
        lse: tw.Tensor["W", "M"],
        y: tw.Tensor["B", "M", width],
        sums: tw.Tensor["B", "M"] | None = None,
        *,
        bm=1,
        bc=4,
    ):
        b, m = tw.grid((y.shape[0], y.shape[1]), (None, bm))
        last, top = rest[b], tw.full((m,), _LEAST, tw.f32)
        alone = lse[last, m].fill(-tw.inf)
        top.set(tw.maximum(top, alone))
        total = tw.zeros((m,), tw.f32)
        acc = tw.zeros((m, width), tw.f32)
        weight = tw.exp(alone - top)
        total.set(weight)
        acc.set(o[last, m].fill(0) * weight[:, None])
        for c in tw.stream(o.shape[0], bc, start=first[b], until=first[b] + whole[b]):
            state = lse[c, m]
            new = tw.maximum(top, state.max(0))
            weights, fix = tw.exp(state - new[None, :]), tw.exp(top - new)
            total.set(total * fix + weights.sum(0))
            acc.set(acc * fix[:, None] + (o[c, m] * weights[:, :, None]).sum(0))
            top.set(new)
        y[b, m] = acc / tw.where(total != 0, total, 1.0)[:, None]
        if sums is not None:
            sums[b, m] = tw.where(total != 0, top + tw.log(total), -tw.inf)

    return merge_parts


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
    y[m, d] = acc / tw.where(total != 0, total, 1.0)[:, None]
    if whole is not None:
        whole[m] = tw.where(total != 0, top + tw.log(total), -tw.inf)
