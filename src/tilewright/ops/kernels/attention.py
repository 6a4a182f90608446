"""Attention and its gradients, for heads of a width that is fixed when the kernel is made: it sizes the registers.

What is read has heads before tokens, what is written tokens before heads, as the layers around attention have them.
"""

# Dimension names are strings in annotations, which type checkers take for forward references.
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingParameterType=false
# pyright: reportUnknownLambdaType=false
# ruff: noqa: F821

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import tilewright as tw

_LEAST = -3.4028234663852886e38
"""The least float, so that no score of a mask is below. A query all of whose scores are -inf has a sum of zeros."""
_NOTHING = -1000.0
"""A difference whose exponential is 0, of maxima that are infinitely far apart in f32."""


Scored = Callable[..., tuple[Any, Any]]
"""A score modification: maps (readers of tensors by index, scaled score, batch, head, query, key) to the new score and
its derivative by the old one, None for 1, on tiles of scores and of positions."""


def _read(axes: Sequence[int]) -> list[Any]:
    """Annotations of the tensors of so many axes that a function of scores reads, and of those that it has not."""
    dims = [tuple(f"C{i}{axis}" for axis in range(count)) for i, count in enumerate((*axes, 1, 1, 1, 1)[:4])]
    return [tw.Tensor[found] | None for found in dims]


def scored_attention(width: int, score_mod: Callable[..., Any], axes: Sequence[int] = ()) -> tw.Kernel:
    """``attention`` whose scores x are score_mod(read, scale x, batch, head, query, key), traced on tiles of x and of
    the positions of its queries and keys; ``read`` takes elements of ``c0`` to ``c3`` by their indices. The first ones
    of these are given, of so many ``axes``. A row whose scores are all -inf is zeros, and its logarithm inf."""
    first, second, third, fourth = _read(axes)

    @tw.kernel(numerics="fast")
    def scored_attention(
        q: tw.Tensor["B", "H", "S", width],
        k: tw.Tensor["B", "G", "T", width],
        v: tw.Tensor["B", "G", "T", width],
        c0: first,
        c1: second,
        c2: third,
        c3: fourth,
        o: tw.Tensor["B", "S", "H", width],
        lse: tw.Tensor["B", "H", "S"] | None,
        *,
        scale: tw.f32,
        causal: bool = False,
        group: int = 1,
        bq=tw.auto,
        bk=tw.auto,
    ):
        read = (lambda *i: c0[i], lambda *i: c1[i], lambda *i: c2[i], lambda *i: c3[i])
        b, h, s = tw.grid(q, (None, None, bq))
        qt = q[b, h, s]
        acc, total = tw.zeros((s, width), tw.f32), tw.zeros((s,), tw.f32)
        top = tw.full((s,), _LEAST, tw.f32)
        for t in tw.stream(k.shape[2], bk, until=s.stop if causal else None):
            x = tw.dot(qt, k[b, h // group, t].T) * scale
            x = score_mod(read, x, b, h, s.index[:, None], t.index[None, :])
            if causal:
                x = tw.where(s.index[:, None] >= t.index[None, :], x, -tw.inf)
            new = tw.maximum(top, x.max(1))
            p, fix = tw.exp(x - new[:, None]), tw.exp(tw.maximum(top - new, _NOTHING))
            total.set(total * fix + p.sum(1))
            acc.set(acc * fix[:, None])
            top.set(new)
            acc += tw.dot(p.to(q.dtype), v[b, h // group, t])
        o[b, s, h] = acc / tw.where(total != 0, total, 1.0)[:, None]
        if lse is not None:
            lse[b, h, s] = tw.where(total != 0, top + tw.log(total), tw.inf)

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
        bk: int = 32 if width > 128 else 128,  # of 256 elements two stages beside both operands
    ):
        options = {"width": width, "scale": scale, "causal": causal, "group": group, "bq": bq, "bk": bk}
        _query_gradient(do, q, k, v, lse, delta, dq, **options)

    return attention_query_gradient


def scored_query_gradient(width: int, scored: Scored, axes: Sequence[int] = ()) -> tw.Kernel:
    """``attention_query_gradient`` of ``scored_attention``."""
    first, second, third, fourth = _read(axes)

    @tw.kernel(numerics="fast")
    def scored_query_gradient(
        do: tw.Tensor["B", "H", "S", width],
        q: tw.Tensor["B", "H", "S", width],
        k: tw.Tensor["B", "G", "T", width],
        v: tw.Tensor["B", "G", "T", width],
        lse: tw.Tensor["B", "H", "S"],
        delta: tw.Tensor["B", "H", "S"],
        c0: first,
        c1: second,
        c2: third,
        c3: fourth,
        dq: tw.Tensor["B", "S", "H", width],
        *,
        scale: tw.f32,
        causal: bool = False,
        group: int = 1,
        bq: int = 128,
        bk: int = 64,
    ):
        read = (lambda *i: c0[i], lambda *i: c1[i], lambda *i: c2[i], lambda *i: c3[i])
        options = {"width": width, "scale": scale, "causal": causal, "group": group, "bq": bq, "bk": bk}
        _query_gradient(do, q, k, v, lse, delta, dq, partial(scored, read), **options)

    return scored_query_gradient


def _query_gradient(do, q, k, v, lse, delta, dq, changed=None, *, width, scale, causal, group, bq, bk):
    b, h, s = tw.grid(q, (None, None, bq))
    qt, dt = q[b, h, s], do[b, h, s]
    top, mean = lse[b, h, s], delta[b, h, s]
    acc = tw.zeros((s, width), tw.f32)
    for t in tw.stream(k.shape[2], bk, until=s.stop if causal else None):
        kt = k[b, h // group, t]
        x, slope = tw.dot(qt, kt.T) * scale, None
        if changed is not None:
            x, slope = changed(x, b, h, s.index[:, None], t.index[None, :])
        p = tw.exp(x - top[:, None])
        if causal:
            p = tw.where(s.index[:, None] >= t.index[None, :], p, 0.0)
        dp = tw.dot(dt, v[b, h // group, t].T)
        dx = p * (dp - mean[:, None])
        acc += tw.dot((dx if slope is None else dx * slope).to(q.dtype), kt)
    dq[b, s, h] = acc * scale


def _queries_of_step(width: int, causal: bool, alone: bool) -> int:
    """How many queries a step of ``attention_key_gradients`` takes: both accumulators of 128 keys leave no registers
    for more, nor for 128 of 64 elements with a mask (180 bytes spill: 4 x 16 x 4096 x 64 takes 715 us, H200, with 96
    queries 629). The gradient of values ``alone`` leaves room for twice as many (4 x 8 x 4096 x 256: 731 us, with 32
    queries 941)."""
    if alone:
        return 64
    return 96 if causal and width == 64 else 8192 // width


@cache
def attention_key_gradients(width: int) -> tw.Kernel:
    """The gradients ``dk`` and ``dv`` of ``attention(width)``, for each head of queries: a stream over queries, of four
    products a step, whose scores are transposed so that they stay in registers. Of heads of more than 128 elements
    registers hold the sums of one of them: the other is left out."""

    @tw.kernel(numerics="fast")
    def attention_key_gradients(
        do: tw.Tensor["B", "H", "S", width],
        q: tw.Tensor["B", "H", "S", width],
        k: tw.Tensor["B", "G", "T", width],
        v: tw.Tensor["B", "G", "T", width],
        lse: tw.Tensor["B", "H", "S"],
        delta: tw.Tensor["B", "H", "S"],
        dk: tw.Tensor["B", "T", "H", width] | None,
        dv: tw.Tensor["B", "T", "H", width] | None,
        *,
        scale: tw.f32,
        causal: bool = False,
        group: int = 1,
        bq: int = 0,  # as many as registers last for
        bk: int = 128,
    ):
        step = bq or _queries_of_step(width, causal, dk is None)
        options = {"width": width, "scale": scale, "causal": causal, "group": group, "bq": step, "bk": bk}
        _key_gradients(do, q, k, v, lse, delta, dk, dv, **options)

    return attention_key_gradients


def scored_key_gradients(width: int, scored: Scored, axes: Sequence[int] = ()) -> tw.Kernel:
    """``attention_key_gradients`` of ``scored_attention``: steps of fewer queries, as registers hold derivatives."""
    first, second, third, fourth = _read(axes)

    @tw.kernel(numerics="fast")
    def scored_key_gradients(
        do: tw.Tensor["B", "H", "S", width],
        q: tw.Tensor["B", "H", "S", width],
        k: tw.Tensor["B", "G", "T", width],
        v: tw.Tensor["B", "G", "T", width],
        lse: tw.Tensor["B", "H", "S"],
        delta: tw.Tensor["B", "H", "S"],
        c0: first,
        c1: second,
        c2: third,
        c3: fourth,
        dk: tw.Tensor["B", "T", "H", width],
        dv: tw.Tensor["B", "T", "H", width],
        *,
        scale: tw.f32,
        causal: bool = False,
        group: int = 1,
        bq: int = 4096 // width,
        bk: int = 128,
    ):
        read = (lambda *i: c0[i], lambda *i: c1[i], lambda *i: c2[i], lambda *i: c3[i])
        options = {"width": width, "scale": scale, "causal": causal, "group": group, "bq": bq, "bk": bk}
        _key_gradients(do, q, k, v, lse, delta, dk, dv, partial(scored, read), **options)

    return scored_key_gradients


def _key_gradients(do, q, k, v, lse, delta, dk, dv, changed=None, *, width, scale, causal, group, bq, bk):
    b, h, t = tw.grid((q.shape[0], q.shape[1], k.shape[2]), (None, None, bk))
    kt, vt = k[b, h // group, t], v[b, h // group, t]
    keys = None if dk is None else tw.zeros((t, width), tw.f32)
    values = None if dv is None else tw.zeros((t, width), tw.f32)
    for s in tw.stream(q.shape[2], bq, start=t.start if causal else None):
        qs, ds = q[b, h, s], do[b, h, s]
        x, slope = tw.dot(kt, qs.T) * scale, None
        if changed is not None:
            x, slope = changed(x, b, h, s.index[None, :], t.index[:, None])
        p = tw.exp(x - lse[b, h, s][None, :])
        if causal:
            p = tw.where(s.index[None, :] >= t.index[:, None], p, 0.0)
        if dv is not None:
            values += tw.dot(p.to(q.dtype), ds)
        if dk is not None:
            dp = tw.dot(vt, ds.T)
            dx = p * (dp - delta[b, h, s][None, :])
            keys += tw.dot((dx if slope is None else dx * slope).to(q.dtype), qs)
    if dk is not None:
        dk[b, t, h] = keys * scale
    if dv is not None:
        dv[b, t, h] = values
