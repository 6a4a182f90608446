"""Kernels with matrix products, and a way to lower one under one candidate schedule."""

# ruff: noqa: F821, UP037 - dimension names are strings
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import tilewright as tw
from tilewright.base.dtypes import dtype_named
from tilewright.compiler.program import traced
from tilewright.compiler.requests import Request, assumptions_of, default_facts
from tilewright.hw.target import SM90A
from tilewright.lang.schedule import Schedule
from tilewright.lang.signature import Signature
from tilewright.schedule.facts import CallFacts, TensorFacts
from tilewright.schedule.hopper.accumulator_placement import Refused
from tilewright.schedule.hopper.candidate import Candidate
from tilewright.schedule.hopper.candidates import Scheduled, schedule
from tilewright.tile import dialect as tile


@tw.kernel
def nt(a: tw.Tensor["M", "K"], b: tw.Tensor["N", "K"], c: tw.Tensor["M", "N"], *, bm=64, bn=64, bk=64):
    m, n = tw.grid(c, (bm, bn))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], bk):
        acc += tw.dot(a[m, k], b[n, k].T)
    c[m, n] = acc


@tw.kernel
def nn(a: tw.Tensor["M", "K"], b: tw.Tensor["K", "N"], c: tw.Tensor["M", "N"], *, bm=64, bn=64, bk=64):
    m, n = tw.grid(c, (bm, bn))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], bk):
        acc += tw.dot(a[m, k], b[k, n])
    c[m, n] = acc


@tw.kernel
def tn(a: tw.Tensor["K", "M"], b: tw.Tensor["K", "N"], c: tw.Tensor["M", "N"], *, bm=64, bn=64, bk=64):
    m, n = tw.grid(c, (bm, bn))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[0], bk):
        acc += tw.dot(a[k, m].T, b[k, n])
    c[m, n] = acc


@tw.kernel
def tt(a: tw.Tensor["K", "M"], b: tw.Tensor["N", "K"], c: tw.Tensor["M", "N"], *, bm=64, bn=64, bk=64):
    m, n = tw.grid(c, (bm, bn))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[0], bk):
        acc += tw.dot(a[k, m].T, b[n, k].T)
    c[m, n] = acc


@tw.kernel
def batched(a: tw.Tensor["B", "M", "K"], b: tw.Tensor["B", "N", "K"], c: tw.Tensor["B", "M", "N"], *, bm=64, bn=64):
    i, m, n = tw.grid(c, (None, bm, bn))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[2], 64):
        acc += tw.dot(a[i, m, k], b[i, n, k].T)
    c[i, m, n] = acc


@tw.kernel
def biased(
    a: tw.Tensor["M", "K"],
    b: tw.Tensor["N", "K"],
    bias: tw.Tensor["N"],
    r: tw.Tensor["M", "N"],
    c: tw.Tensor["M", "N"],
    *,
    bm=64,
    bn=128,
    bk=64,
):
    m, n = tw.grid(c, (bm, bn))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], bk):
        acc += tw.dot(a[m, k], b[n, k].T)
    c[m, n] = tw.maximum(acc + bias[n][None, :].to(tw.f32), 0.0) + r[m, n].to(tw.f32)


@tw.kernel
def gated(
    x: tw.Tensor["M", "K"], v: tw.Tensor["N", "K"], w: tw.Tensor["N", "K"], c: tw.Tensor["M", "N"], *, bm=64, bn=64
):
    m, n = tw.grid(c, (bm, bn))
    g, u = tw.zeros((m, n), tw.f32), tw.zeros((m, n), tw.f32)
    for k in tw.stream(x.shape[1], 64):
        rows = x[m, k]
        g += tw.dot(rows, v[n, k].T)
        u += tw.dot(rows, w[n, k].T)
    c[m, n] = g * tw.sigmoid(g) * u


@tw.kernel
def chained(
    x: tw.Tensor["M", "K"], v: tw.Tensor["J", "K"], w: tw.Tensor["N", "J"], c: tw.Tensor["M", "N"], *, bm=64, bn=64
):
    m, n = tw.grid(c, (bm, bn))
    acc = tw.zeros((m, n), tw.f32)
    for j in tw.stream(v.shape[0], 64):
        h = tw.zeros((m, j), tw.f32)
        for k in tw.stream(x.shape[1], 64):
            h += tw.dot(x[m, k], v[j, k].T)
        acc += tw.dot(tw.maximum(h, 0.0).to(x.dtype), w[n, j].T)
    c[m, n] = acc


@tw.kernel
def scaled_rows(a: tw.Tensor["M", "K"], s: tw.Tensor["M"], b: tw.Tensor["N", "K"], c: tw.Tensor["M", "N"], *, bm=64):
    m, n = tw.grid(c, (bm, 64))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], 64):
        part = tw.dot(a[m, k], b[n, k].T)
        acc += part * s[m][:, None].to(tw.f32)
    c[m, n] = acc


@tw.kernel
def attention(
    q: tw.Tensor["S", 64],
    k: tw.Tensor["T", 64],
    v: tw.Tensor["T", 64],
    o: tw.Tensor["S", 64],
    *,
    scale: tw.f32,
    causal: bool = False,
):
    s = tw.grid(q.shape[0], 64)
    rows = q[s, :]
    acc = tw.zeros((s, 64), tw.f32)
    top, total = tw.full((s,), -tw.inf, tw.f32), tw.zeros((s,), tw.f32)
    for t in tw.stream(k.shape[0], 64, until=s.stop if causal else None):
        x = tw.dot(rows, k[t, :].T) * scale
        if causal:
            x = tw.where(s.index[:, None] >= t.index[None, :], x, -tw.inf)
        new = tw.maximum(top, x.max(1))
        p, fix = tw.exp(x - new[:, None]), tw.exp(top - new)
        total.set(total * fix + p.sum(1))
        acc.set(acc * fix[:, None])
        top.set(new)
        acc += tw.dot(p.to(q.dtype), v[t, :])
    o[s, :] = acc / total[:, None]


@dataclass(frozen=True)
class Lowered:
    """A tile kernel and what a candidate made of it."""

    tile: tile.Kernel
    request: Request
    scheduled: Scheduled


def request(
    kernel: tw.Kernel, dtype: str = "bf16", align: int = 16, dtypes: Mapping[str, str] | None = None, **keywords: object
) -> Request:
    """A request with all tensors of one dtype unless ``dtypes`` says else, rows aligned to ``align`` bytes."""
    named = {t.name: dtype_named((dtypes or {}).get(t.name, dtype)) for t in kernel.tensors}
    found = {name: value for name, value in named.items() if value is not None}
    signature = Signature.of(found, static=None, keywords=keywords)  # pyright: ignore[reportArgumentType]
    facts = default_facts(kernel)
    if align != 16:
        facts = CallFacts(tuple((t.name, TensorFacts(len(t.dims) - 1, align)) for t in kernel.tensors))
    return Request(kernel, signature, facts, SM90A, Schedule())


def lower(
    kernel: tw.Kernel,
    candidate: Candidate,
    dtype: str = "bf16",
    align: int = 16,
    dtypes: Mapping[str, str] | None = None,
    **keywords: object,
) -> Lowered | Refused:
    """``kernel`` under ``candidate``, or why it can't be."""
    asked = request(kernel, dtype, align, dtypes, **keywords)
    found = traced(asked)
    answer = schedule(found, asked.facts, SM90A, candidate, assumptions_of(found, asked.facts))
    return answer if isinstance(answer, Refused) else Lowered(found, asked, answer)
