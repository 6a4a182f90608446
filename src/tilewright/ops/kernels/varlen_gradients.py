"""Gradients of attention over packed sequences, whose kernels ``varlen`` has: of queries, and of keys and values.

Each is a stream over the other side's rows of the same sequence. Rows of no sequence have gradients of zeros.
"""

# Dimension names are strings in annotations, which type checkers take for forward references.
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingParameterType=false
# ruff: noqa: F821

from functools import cache

import tilewright as tw
from tilewright.ops.kernels.varlen import capped, used, within


def _scored(x, scale, softcap):
    """The scores of products, and their derivative by scale x; None where it is 1."""
    if softcap is None:
        return x * scale, None
    scores = capped(x, softcap, scale)
    return scores, 1.0 - tw.square(scores / softcap)


def _below(p, dp, mean, slope):
    """The gradient of products, before the scale: of probabilities, their gradient and its mean."""
    ds = p * (dp - mean)
    return ds if slope is None else ds * slope


@cache
def varlen_query_gradient(width: int) -> tw.Kernel:
    """The gradient ``dq`` of ``varlen_attention(width)``, from the results' ``do`` and ``lse`` and the sums ``delta``
    of do * o over each row."""

    @tw.kernel(numerics="fast")
    def varlen_query_gradient(
        q_offsets: tw.Offsets["B + 1"],
        k_offsets: tw.Offsets["B + 1"],
        do: tw.Tensor["M", "H", width],
        q: tw.Tensor["M", "H", width],
        k: tw.Tensor["N", "G", width],
        v: tw.Tensor["N", "G", width],
        lse: tw.Tensor["H", "M"],
        delta: tw.Tensor["H", "M"],
        dq: tw.Tensor["M", "H", width],
        q_used: tw.Tensor["B"] | None = None,
        k_used: tw.Tensor["B"] | None = None,
        *,
        scale: tw.f32,
        causal: bool = False,
        window: int | None = None,
        softcap: float | None = None,
        at_end: bool = False,
        group: int = 1,
        bq: int = 128,
        bk: int = 128,
    ):
        b, s, h = tw.ragged_grid(q_offsets, (q.shape[0], q.shape[1]), (bq, None))
        query, above = q[s, h], do[s, h]
        total, mean = lse[h, s], delta[h, s]
        acc = tw.zeros((s, width), tw.f32)
        first = last = q_offsets[b + 1]
        if q_used is not None:
            first, last = used(q_offsets, q_used, b, at_end)
        start, until = used(k_offsets, k_used, b, at_end)
        ahead = until - last
        stop = s.stop if q_used is None else tw.minimum(s.stop, last)
        if causal:
            until = ahead + stop
        if q_used is not None:
            until = tw.where(tw.maximum(s.start, first) < stop, until, 0)
        if window is not None:
            start = tw.maximum(start, ahead + (s.start - (window - 1)))
        for t in tw.stream(k.shape[0], bk, start=start, until=until):
            key = k[t, h // group]
            x, slope = _scored(tw.dot(query, key.T), scale, softcap)
            p = tw.exp(x - total[:, None])
            if causal:
                p = tw.where(t.index[None, :] <= (s.index + ahead)[:, None], p, 0.0)
            if window is not None:
                p = tw.where(t.index[None, :] > (s.index + (ahead - window))[:, None], p, 0.0)
            dp = tw.dot(above, v[t, h // group].T)
            acc += tw.dot(_below(p, dp, mean[:, None], slope).to(q.dtype), key)
        grad = acc * scale
        if q_used is not None:
            grad = tw.where(within(s, first, last)[:, None], grad, 0.0)
        dq[s, h] = grad

    return varlen_query_gradient


@cache
def varlen_key_gradients(width: int) -> tw.Kernel:
    """The gradients ``dk`` and ``dv`` of ``varlen_attention(width)``, for each head of queries."""

    @tw.kernel(numerics="fast")
    def varlen_key_gradients(
        q_offsets: tw.Offsets["B + 1"],
        k_offsets: tw.Offsets["B + 1"],
        do: tw.Tensor["M", "H", width],
        q: tw.Tensor["M", "H", width],
        k: tw.Tensor["N", "G", width],
        v: tw.Tensor["N", "G", width],
        lse: tw.Tensor["H", "M"],
        delta: tw.Tensor["H", "M"],
        dk: tw.Tensor["N", "H", width],
        dv: tw.Tensor["N", "H", width],
        q_used: tw.Tensor["B"] | None = None,
        k_used: tw.Tensor["B"] | None = None,
        *,
        scale: tw.f32,
        causal: bool = False,
        window: int | None = None,
        softcap: float | None = None,
        at_end: bool = False,
        group: int = 1,
        bq: int = 64,
        bk: int = 128,
    ):
        b, t, h = tw.ragged_grid(k_offsets, (k.shape[0], q.shape[1]), (bk, None))
        key, value = k[t, h // group], v[t, h // group]
        keys, values = tw.zeros((t, width), tw.f32), tw.zeros((t, width), tw.f32)
        first = last = k_offsets[b + 1]
        if k_used is not None:
            first, last = used(k_offsets, k_used, b, at_end)
        start, until = used(q_offsets, q_used, b, at_end)
        ahead = last - until
        if causal:
            start = tw.maximum(start, t.start - ahead)
        stop = t.stop if k_used is None else tw.minimum(t.stop, last)
        if window is not None:
            until = tw.minimum(until, stop - ahead + (window - 1))
        if k_used is not None:
            until = tw.where(tw.maximum(t.start, first) < stop, until, 0)
        for s in tw.stream(q.shape[0], bq, start=start, until=until):
            query, above = q[s, h], do[s, h]
            x, slope = _scored(tw.dot(key, query.T), scale, softcap)
            p = tw.exp(x - lse[h, s][None, :])
            if causal:
                p = tw.where((s.index + ahead)[None, :] >= t.index[:, None], p, 0.0)
            if window is not None:
                p = tw.where((s.index + (ahead - window))[None, :] < t.index[:, None], p, 0.0)
            values += tw.dot(p.to(q.dtype), above)
            dp = tw.dot(value, above.T)
            keys += tw.dot(_below(p, dp, delta[h, s][None, :], slope).to(q.dtype), query)
        keys = keys * scale
        if k_used is not None:
            inside = within(t, first, last)[:, None]
            keys, values = tw.where(inside, keys, 0.0), tw.where(inside, values, 0.0)
        dk[t, h] = keys
        dv[t, h] = values

    return varlen_key_gradients
