"""Attention over packed sequences, one behind the other in the rows of a tensor; the last of a sequence's queries
stands beside its last key, as in FlashAttention, whatever the lengths of both.

Promises of ``tw.Offsets`` are checked at each launch: broken ones leave every result as it was (RUN023)."""

# Dimension names are strings in annotations, which type checkers take for forward references.
# pyright: reportUndefinedVariable=false, reportOptionalMemberAccess=false, reportOptionalSubscript=false
# pyright: reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingParameterType=false
# ruff: noqa: F821

from functools import cache

import tilewright as tw

_LEAST = -1e30
"""Below every score: a query that sees no key has a sum of zeros."""


def capped(x, softcap, scale):
    """softcap tanh(scale x / softcap)."""
    return (tw.sigmoid(x * (2.0 / softcap * scale)) - 0.5) * (2.0 * softcap)


def _weights(x, factor, top, total, acc):
    """exp(factor (x - the greatest score so far)), added to ``total``; what was summed before is scaled to this."""
    new = tw.maximum(top, x.max(1))
    p, fix = tw.exp((x - new[:, None]) * factor), tw.exp((top - new) * factor)
    total.set(total * fix + p.sum(1))
    acc.set(acc * fix[:, None])
    top.set(new)
    return p


def _with_sink(sink, best, total, acc):
    """The greatest score with the one of a key without a value, which counts in ``total``."""
    new = tw.maximum(best, sink)
    fix = tw.exp(best - new)
    total.set(total * fix + tw.exp(sink - new))
    acc.set(acc * fix[:, None])
    return new


def used(offsets, lengths, b, at_end):
    """The used rows of sequence ``b``: the first, and the one after the last; all rows without ``lengths``."""
    first, last = offsets[b], offsets[b + 1]
    if lengths is None:
        return first, last
    length = tw.maximum(lengths[b], 0)
    if at_end:
        return tw.maximum(first, last - length), last
    return first, first + tw.minimum(length, last - first)  # a length may be any integer


def within(s, first, last):
    """A bool per row of an axis: whether it is used."""
    return (s.index >= first) & (s.index < last)


@cache
def varlen_attention(width: int, numerics: str = "fast") -> tw.Kernel:
    """o = softmax(scale q k^T) v within each sequence, for heads of ``width`` elements and a ``scale`` above 0.

    Queries of sequence b are the rows q_offsets[b] .. q_offsets[b + 1], its keys the rows k_offsets[b] ..
    k_offsets[b + 1]; of these only the first ``q_used[b]`` and ``k_used[b]`` where these are given, or the last ones
    with ``at_end``, and the results of other rows are zeros. ``window``: a query sees the last so many of its keys.
    Scores x become softcap tanh(x / softcap).
    ``sinks``, one a head of queries, are scores of a key without a value. ``lse`` is the logarithm of each row's
    sum."""

    @tw.kernel(numerics=numerics)
    def varlen_attention(
        q_offsets: tw.Offsets["B + 1"],
        k_offsets: tw.Offsets["B + 1"],
        q: tw.Tensor["M", "H", width],
        k: tw.Tensor["N", "G", width],
        v: tw.Tensor["N", "G", width],
        o: tw.Tensor["M", "H", width],
        sinks: tw.Tensor["H"] | None = None,
        q_used: tw.Tensor["B"] | None = None,
        k_used: tw.Tensor["B"] | None = None,
        lse: tw.Tensor["H", "M"] | None = None,
        *,
        scale: tw.f32,
        causal: bool = False,
        window: int | None = None,
        softcap: float | None = None,
        at_end: bool = False,
        group: int = 1,
        bq=tw.auto,
        bk=tw.auto,
    ):
        b, s, h = tw.ragged_grid(q_offsets, (q.shape[0], q.shape[1]), (bq, None))
        query = q[s, h]
        acc, total = tw.zeros((s, width), tw.f32), tw.zeros((s,), tw.f32)
        top = tw.full((s,), _LEAST, tw.f32)
        first = last = q_offsets[b + 1]
        if q_used is not None:
            first, last = used(q_offsets, q_used, b, at_end)
        start, until = used(k_offsets, k_used, b, at_end)
        ahead = until - last
        stop = s.stop if q_used is None else tw.minimum(s.stop, last)
        if causal:
            until = ahead + stop
        if q_used is not None:  # programs without queries have no step
            until = tw.where(tw.maximum(s.start, first) < stop, until, 0)
        if window is not None:
            start = tw.maximum(start, ahead + (s.start - (window - 1)))
        factor = scale if softcap is None else 1.0
        for t in tw.stream(k.shape[0], bk, start=start, until=until):
            x = tw.dot(query, k[t, h // group].T)
            if softcap is not None:
                x = capped(x, softcap, scale)
            if causal:
                x = tw.where(t.index[None, :] <= (s.index + ahead)[:, None], x, -tw.inf)
            if window is not None:
                x = tw.where(t.index[None, :] > (s.index + (ahead - window))[:, None], x, -tw.inf)
            p = _weights(x, factor, top, total, acc)
            acc += tw.dot(p.to(q.dtype), v[t, h // group])
        best = top * factor
        if sinks is not None:
            best = _with_sink(sinks[h].to(tw.f32), best, total, acc)
        y, logarithm = acc / tw.where(total != 0, total, 1.0)[:, None], best + tw.log(total)
        logarithm = tw.where(total != 0, logarithm, -tw.inf)
        if q_used is not None:
            inside = within(s, first, last)
            y, logarithm = tw.where(inside[:, None], y, 0.0), tw.where(inside, logarithm, 0.0)
        o[s, h] = y
        if lse is not None:
            lse[h, s] = logarithm

    return varlen_attention


@tw.kernel
def sequence_places(
    offsets: tw.Offsets["B + 1"],
    before: tw.Tensor["M"],
    behind: tw.Tensor["M"],
    *,
    bt=128,
):
    """The number of rows of its sequence up to each row, and from it on, both including the row itself. Rows of no
    sequence are not written."""
    b = tw.grid(offsets.shape[0] - 1)
    for t in tw.stream(before.shape[0], bt, start=offsets[b], until=offsets[b + 1]):
        before[t] = t.index - offsets[b] + 1
        behind[t] = offsets[b + 1] - t.index


@cache
def packed_attention(width: int, numerics: str = "fast") -> tw.Kernel:
    """``varlen_attention`` of sequences over their own rows, for short ones: a tile has rows of several, and walks the
    keys from the first one's sequence to the last one's. ``before`` and ``behind`` are of ``sequence_places``."""

    @tw.kernel(numerics=numerics)
    def packed_attention(
        offsets: tw.Tensor["E"],
        before: tw.Tensor["M"],
        behind: tw.Tensor["M"],
        q: tw.Tensor["M", "H", width],
        k: tw.Tensor["M", "G", width],
        v: tw.Tensor["M", "G", width],
        o: tw.Tensor["M", "H", width],
        sinks: tw.Tensor["H"] | None = None,
        lse: tw.Tensor["H", "M"] | None = None,
        *,
        scale: tw.f32,
        causal: bool = False,
        window: int | None = None,
        softcap: float | None = None,
        group: int = 1,
        bq: int = 128,
        bk: int = 64,
    ):
        s, h = tw.grid((q.shape[0], q.shape[1]), (bq, None))
        query = q[s, h]
        acc, total = tw.zeros((s, width), tw.f32), tw.zeros((s,), tw.f32)
        top = tw.full((s,), _LEAST, tw.f32)
        seen, back = before[s], before[s.start]
        if window is not None:
            seen, back = tw.minimum(seen, window), tw.minimum(back, window)
        first = s.index - seen
        start = s.start - back + 1
        until = offsets[offsets.shape[0] - 1]  # memory behind the last sequence may hold anything
        until = tw.minimum(until, s.stop if causal else behind[s.stop - 1] + (s.stop - 1))
        # steps end with the last key: a step that ended before would have rows to clear
        start = tw.maximum(until - (until - start + (bk - 1)) // bk * bk, 0)
        end = s.index + behind[s]
        factor = scale if softcap is None else 1.0
        for t in tw.stream(k.shape[0], bk, start=start, until=until):
            x = tw.dot(query, k[t, h // group].T)
            if softcap is not None:
                x = capped(x, softcap, scale)
            x = tw.where(t.index[None, :] > first[:, None], x, -tw.inf)
            if causal:
                x = tw.where(t.index[None, :] <= s.index[:, None], x, -tw.inf)
            else:
                x = tw.where(t.index[None, :] < end[:, None], x, -tw.inf)
            p = _weights(x, factor, top, total, acc)
            acc += tw.dot(p.to(q.dtype), v[t, h // group])
        best = top * factor
        if sinks is not None:
            best = _with_sink(sinks[h].to(tw.f32), best, total, acc)
        o[s, h] = acc / tw.where(total != 0, total, 1.0)[:, None]
        if lse is not None:
            lse[h, s] = tw.where(total != 0, best + tw.log(total), -tw.inf)

    return packed_attention
