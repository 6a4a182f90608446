"""Attention and its gradients, for heads of a width that is fixed when the kernel is made: it sizes the registers.

What is read has heads before tokens, what is written tokens before heads, as the layers around attention have them.
"""

# Dimension names are strings in annotations, which type checkers take for forward references.
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingParameterType=false
# ruff: noqa: F821

from collections.abc import Callable
from functools import cache
from typing import Any

import tilewright as tw

_LEAST = -1e30
"""Below every score: a query all of whose scores are -inf has a sum of zeros."""


@cache
def scored_attention(width: int, score_mod: Callable[..., Any]) -> tw.Kernel:
    """``attention`` whose scores x are score_mod(scale x, batch, head, query, key), traced on tiles of x and of the
    positions of its queries and keys. A row whose scores are all -inf is zeros."""

    @tw.kernel(numerics="fast")
    def scored_attention(
        q: tw.Tensor["B", "H", "S", width],
        k: tw.Tensor["B", "G", "T", width],
        v: tw.Tensor["B", "G", "T", width],
        o: tw.Tensor["B", "S", "H", width],
        *,
        scale: tw.f32,
        causal: bool = False,
        group: int = 1,
        bq=tw.auto,
        bk=tw.auto,
    ):
        b, h, s = tw.grid(q, (None, None, bq))
        qt = q[b, h, s]
        acc, total = tw.zeros((s, width), tw.f32), tw.zeros((s,), tw.f32)
        top = tw.full((s,), _LEAST, tw.f32)
        for t in tw.stream(k.shape[2], bk, until=s.stop if causal else None):
            x = score_mod(tw.dot(qt, k[b, h // group, t].T) * scale, b, h, s.index[:, None], t.index[None, :])
            if causal:
                x = tw.where(s.index[:, None] >= t.index[None, :], x, -tw.inf)
            new = tw.maximum(top, x.max(1))
            p, fix = tw.exp(x - new[:, None]), tw.exp(top - new)
            total.set(total * fix + p.sum(1))
            acc.set(acc * fix[:, None])
            top.set(new)
            acc += tw.dot(p.to(q.dtype), v[b, h // group, t])
        o[b, s, h] = acc / tw.where(total > 0, total, 1.0)[:, None]

    return scored_attention


@cache
def attention(width: int) -> tw.Kernel:
    """``attention(128)(q, k, v, o, scale=..., causal=False, group=1)``: o = softmax(scale q k^T) v for heads of
    ``width`` elements and a ``scale`` above 0. ``group`` heads of queries share one of keys and values. ``lse``, if
    it is given, is the logarithm of each row's sum of exponentials."""

    @tw.kernel(numerics="fast")
    def attention(
        q: tw.Tensor["B", "H", "S", width],
        k: tw.Tensor["B", "G", "T", width],
        v: tw.Tensor["B", "G", "T", width],
        o: tw.Tensor["B", "S", "H", width],
        lse: tw.Tensor["B", "H", "S"] | None,
        *,
        scale: tw.f32,
        causal: bool = False,
        group: int = 1,
        bq=tw.auto,
        bk=tw.auto,
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
        o[b, s, h] = acc / total[:, None]
        if lse is not None:
            lse[b, h, s] = top * scale + tw.log(total)

    return attention


@tw.kernel
def attention_delta(
    do: tw.Tensor["B", "H", "S", "D"],
    o: tw.Tensor["B", "H", "S", "D"],
    delta: tw.Tensor["B", "H", "S"],
    *,
    bs: int = 16,
    width: int = 128,
):
    """delta = the sum of do * o over each row of ``width`` elements, which both gradients below need."""
    b, h, s = tw.grid(delta, (None, None, bs))
    d = tw.axis(o.shape[3], upto=width)
    delta[b, h, s] = (do[b, h, s, d].to(tw.f32) * o[b, h, s, d].to(tw.f32)).sum(1)


@cache
def attention_query_gradient(width: int) -> tw.Kernel:
    """The gradient ``dq`` of ``attention(width)``, from the results' ``do`` and ``lse`` and from ``attention_delta``: a
    stream over keys, of three products a step (Dao, FlashAttention-2, 2023, algorithm 2, with its loops exchanged)."""

    @tw.kernel(numerics="fast")
    def attention_query_gradient(
        do: tw.Tensor["B", "H", "S", width],
        q: tw.Tensor["B", "H", "S", width],
        k: tw.Tensor["B", "G", "T", width],
        v: tw.Tensor["B", "G", "T", width],
        lse: tw.Tensor["B", "H", "S"],
        delta: tw.Tensor["B", "H", "S"],
        dq: tw.Tensor["B", "S", "H", width],
        *,
        scale: tw.f32,
        causal: bool = False,
        group: int = 1,
        bq: int = 128,
        bk: int = 128,
    ):
        b, h, s = tw.grid(q, (None, None, bq))
        qt, dt = q[b, h, s], do[b, h, s]
        top, mean = lse[b, h, s], delta[b, h, s]
        acc = tw.zeros((s, width), tw.f32)
        for t in tw.stream(k.shape[2], bk, until=s.stop if causal else None):
            kt = k[b, h // group, t]
            p = tw.exp(tw.dot(qt, kt.T) * scale - top[:, None])
            if causal:
                p = tw.where(s.index[:, None] >= t.index[None, :], p, 0.0)
            dp = tw.dot(dt, v[b, h // group, t].T)
            acc += tw.dot((p * (dp - mean[:, None])).to(q.dtype), kt)
        dq[b, s, h] = acc * scale

    return attention_query_gradient


def _queries_of_step(width: int, causal: bool) -> int:
    """How many queries a step of ``attention_key_gradients`` takes: both accumulators of 128 keys leave no registers
    for more, nor for 128 of 64 elements with a mask (180 bytes spill: 4 x 16 x 4096 x 64 takes 715 us, H200, with 96
    queries 629)."""
    return 96 if causal and width == 64 else 8192 // width


@cache
def attention_key_gradients(width: int) -> tw.Kernel:
    """The gradients ``dk`` and ``dv`` of ``attention(width)``, for each head of queries: a stream over queries, of four
    products a step, whose scores are transposed so that they stay in registers."""

    @tw.kernel(numerics="fast")
    def attention_key_gradients(
        do: tw.Tensor["B", "H", "S", width],
        q: tw.Tensor["B", "H", "S", width],
        k: tw.Tensor["B", "G", "T", width],
        v: tw.Tensor["B", "G", "T", width],
        lse: tw.Tensor["B", "H", "S"],
        delta: tw.Tensor["B", "H", "S"],
        dk: tw.Tensor["B", "T", "H", width],
        dv: tw.Tensor["B", "T", "H", width],
        *,
        scale: tw.f32,
        causal: bool = False,
        group: int = 1,
        bq: int = 0,  # as many as registers last for
        bk: int = 128,
    ):
        b, h, t = tw.grid((q.shape[0], q.shape[1], k.shape[2]), (None, None, bk))
        kt, vt = k[b, h // group, t], v[b, h // group, t]
        keys, values = tw.zeros((t, width), tw.f32), tw.zeros((t, width), tw.f32)
        for s in tw.stream(q.shape[2], bq or _queries_of_step(width, causal), start=t.start if causal else None):
            qs, ds = q[b, h, s], do[b, h, s]
            p = tw.exp(tw.dot(kt, qs.T) * scale - lse[b, h, s][None, :])
            if causal:
                p = tw.where(s.index[None, :] >= t.index[:, None], p, 0.0)
            values += tw.dot(p.to(q.dtype), ds)
            dp = tw.dot(vt, ds.T)
            keys += tw.dot((p * (dp - delta[b, h, s][None, :])).to(q.dtype), qs)
        dk[b, t, h] = keys * scale
        dv[b, t, h] = values

    return attention_key_gradients
