"""The kernels on which planted bugs are looked for: small, and together using every part of the compiler."""

# ruff: noqa: F821, UP037 - dimension names are strings
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

import tilewright as tw


@tw.kernel
def add(x: tw.Tensor["M"], y: tw.Tensor["M"], z: tw.Tensor["M"], *, bm=1024):
    m = tw.grid(x, bm)
    z[m] = x[m] + y[m]


@tw.kernel
def ints(x: tw.Tensor["M"], y: tw.Tensor["M"], z: tw.Tensor["M"], *, by: tw.i32, bm=256):
    m = tw.grid(x.shape[0], bm)
    a, b = x[m], y[m]
    z[m] = tw.where(m.index < 100, (a * by - b) & 255, (a << 3) + (b >> 2))


@tw.kernel
def floats(x: tw.Tensor["M"], y: tw.Tensor["M"], z: tw.Tensor["M"], *, by: tw.f32, bm=256):
    m = tw.grid(x.shape[0], bm)
    a, b = x[m].to(tw.f32), y[m].to(tw.f32)
    z[m] = tw.where(a > b, a * by - b, tw.maximum(abs(a), tw.exp(b))).to(z.dtype)


@tw.kernel
def ordered(x: tw.Tensor["M", "N"], z: tw.Tensor["M", "N"], *, bm=1):
    m, n = tw.grid(x.shape[0], bm), tw.axis(x.shape[1], upto=1024)
    z[m, n] = tw.sort(x[m, n], 1)


@tw.kernel
def greatest(x: tw.Tensor["M", "N"], z: tw.Tensor["M", 8], *, bm=2):
    m, n = tw.grid(x.shape[0], bm), tw.axis(x.shape[1], upto=64)
    z[m, :] = tw.topk(x[m, n], 8, 1)[0]


@tw.kernel
def binned(x: tw.Tensor["M", "N"], z: tw.Tensor["M", 40], *, bn=128):
    m = tw.grid(x.shape[0], None)
    found = tw.zeros((tw.axis(40),), tw.i32)
    for n in tw.stream(x.shape[1], bn):
        found += tw.histogram(x[m, n] & 63, 40)
    z[m, :] = found


@tw.kernel
def scanned(x: tw.Tensor["M", "N"], z: tw.Tensor["M", "N"], *, bm=1, bn=2048):
    m = tw.grid(x.shape[0], bm)
    total = tw.zeros((m,), tw.f32)
    for n in tw.stream(x.shape[1], bn):
        z[m, n] = tw.cumsum(x[m, n], 1, carry=total)


def _applied(before: object, here: object) -> object:
    (a, b), (c, d) = before, here
    return a * c, b * c + d


@tw.kernel
def linear(a: tw.Tensor["M", "N"], b: tw.Tensor["M", "N"], z: tw.Tensor["M", "N"], *, bm=4):
    m, n = tw.grid(a.shape[0], bm), tw.axis(a.shape[1], upto=64)
    _, z[m, n] = tw.scan(_applied, (a[m, n], b[m, n]), 1)


@tw.kernel
def placed(x: tw.Tensor["M", "N"], z: tw.Tensor["M", 8], *, bm=2):
    m, n = tw.grid(x.shape[0], bm), tw.axis(x.shape[1], upto=64)
    z[m, :] = tw.topk(x[m, n], 8, 1)[1]


@tw.kernel
def drawn(x: tw.Tensor["M"], z: tw.Tensor["M"], *, bm=256):
    m = tw.grid(x.shape[0], bm)
    z[m] = tw.philox(0x123456789ABCDEF0, x[m], 1, 2, 3)[0]


@tw.kernel(numerics="fast")
def fast(x: tw.Tensor["M"], y: tw.Tensor["M"], z: tw.Tensor["M"], *, bm=256):
    m = tw.grid(x.shape[0], bm)
    a, b = x[m].to(tw.f32), y[m].to(tw.f32)
    z[m] = (tw.exp(a) * b + a / (1.0 + tw.exp(b))).to(z.dtype)


@tw.kernel
def row_max(x: tw.Tensor["M", "N"], y: tw.Tensor["M"], *, upto: int = 512):
    m = tw.grid(x.shape[0], 1)
    n = tw.axis(x.shape[1], upto=upto)
    y[m] = x[m, n].to(tw.f32).max(1).to(y.dtype)


@tw.kernel
def row_sum(x: tw.Tensor["M", "N"], y: tw.Tensor["M"], *, upto: int = 4096):
    m = tw.grid(x.shape[0], 1)
    n = tw.axis(x.shape[1], upto=upto)
    y[m] = x[m, n].to(tw.f32).sum(1).to(y.dtype)


@tw.kernel(numerics="fast")
def softmax(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"], *, upto: int = 2048):
    m = tw.grid(x.shape[0], 1)
    n = tw.axis(x.shape[1], upto=upto)
    row = x[m, n].to(tw.f32)
    e = tw.exp(row - row.max(1)[:, None])
    y[m, n] = e / e.sum(1)[:, None]


@tw.kernel
def argmax(x: tw.Tensor["M", "N"], y: tw.Tensor["M"], *, upto: int = 512):
    m = tw.grid(x.shape[0], 1)
    n = tw.axis(x.shape[1], upto=upto)
    y[m] = x[m, n].to(tw.f32).argmax(1)


@tw.kernel
def streamed(x: tw.Tensor["M", "N"], y: tw.Tensor["M"], *, bn=256):
    m = tw.grid(x.shape[0], 1)
    total = tw.zeros(m, tw.f32)
    for n in tw.stream(x.shape[1], bn):
        total += x[m, n].to(tw.f32).sum(1)
    y[m] = total.to(y.dtype)


@tw.kernel
def looped(x: tw.Tensor["M", "N"], y: tw.Tensor["M"], *, bn=4096):
    """Every step of the stream reduces across warps."""
    m = tw.grid(x.shape[0], 1)
    total = tw.zeros(m, tw.f32)
    for n in tw.stream(x.shape[1], bn):
        total.set(total * 0.5 + x[m, n].to(tw.f32).sum(1))
    y[m] = total.to(y.dtype)


@tw.kernel
def kept(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"], *, bn=256):
    """What a fragment held is used after it has been written."""
    m = tw.grid(x.shape[0], 1)
    total = tw.zeros(m, tw.f32)
    for n in tw.stream(x.shape[1], bn):
        tile = x[m, n].to(tw.f32)
        before = total.copy()
        total.set(total + tile.sum(1) + tile.max(1))
        y[m, n] = (tile + before[:, None]).to(y.dtype)


@tw.kernel
def columns(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"], *, bm=16, bn=64):
    m, n = tw.grid(x, (bm, bn))
    tile = x[m, n].to(tw.f32)
    y[m, n] = (tile - tile.sum(0)[None, :]).to(y.dtype)


@tw.kernel
def normed(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"], z: tw.Tensor["M", "N"]):
    """Stores to a tensor that it has read, between the read and its use."""
    m = tw.grid(x.shape[0], 1)
    n = tw.axis(x.shape[1], upto=128)
    row = x[m, n]
    total = row.sum(1)
    old = y[m, n]
    y[m, n] = row + row
    z[m, n] = old + total[:, None]


@tw.kernel
def turned(x: tw.Tensor["M", "N"], y: tw.Tensor["N", "M"], *, bm=64, bn=64):
    n, m = tw.grid(y, (bn, bm))
    y[n, m] = x[m, n].T


@tw.kernel
def free(a: tw.Tensor["M", "K"], b: tw.Tensor["N", "K"], c: tw.Tensor["M", "N"], *, bm=tw.auto, bn=tw.auto):
    m, n = tw.grid(c, (bm, bn))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], 64):
        acc += tw.dot(a[m, k], b[n, k].T)
    c[m, n] = acc


@tw.kernel
def nt(a: tw.Tensor["M", "K"], b: tw.Tensor["N", "K"], c: tw.Tensor["M", "N"], *, bm=64, bn=64, bk=64):
    m, n = tw.grid(c, (bm, bn))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], bk):
        acc += tw.dot(a[m, k], b[n, k].T)
    c[m, n] = acc


@tw.kernel
def tn(a: tw.Tensor["K", "M"], b: tw.Tensor["K", "N"], c: tw.Tensor["M", "N"], *, bm=64, bn=64, bk=64):
    m, n = tw.grid(c, (bm, bn))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[0], bk):
        acc += tw.dot(a[k, m].T, b[k, n])
    c[m, n] = acc


@tw.kernel
def odd(a: tw.Tensor["M", "K"], b: tw.Tensor["N", "K"], c: tw.Tensor["M", "N"]):
    """Tiles whose columns are no multiple of 8."""
    m, n = tw.grid(c, (64, 20))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], 64):
        acc += tw.dot(a[m, k], b[n, k].T)
    c[m, n] = acc


@tw.kernel
def gated(x: tw.Tensor["M", "K"], v: tw.Tensor["N", "K"], w: tw.Tensor["N", "K"], c: tw.Tensor["M", "N"]):
    m, n = tw.grid(c, (64, 64))
    g, u = tw.zeros((m, n), tw.f32), tw.zeros((m, n), tw.f32)
    for k in tw.stream(x.shape[1], 64):
        rows = x[m, k]
        g += tw.dot(rows, v[n, k].T)
        u += tw.dot(rows, w[n, k].T)
    c[m, n] = g * tw.sigmoid(g) * u


@tw.kernel
def single(a: tw.Tensor["M", 64], b: tw.Tensor["N", 64], c: tw.Tensor["M", "N"]):
    """One product that adds to nothing."""
    m, n = tw.grid(c, (64, 64))
    c[m, n] = tw.dot(a[m, :], b[n, :].T)


@tw.kernel
def by_hand(a: tw.Tensor["M", "K"], b: tw.Tensor["N", "K"], c: tw.Tensor["M", "N"], *, bm=64):
    """The right operand is computed, and written to shared memory by threads."""
    m, n = tw.grid(c, (bm, 64))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], 64):
        acc += tw.dot(a[m, k], (b[n, k] + b[n, k]).T)
    c[m, n] = acc


@tw.kernel
def ordinary(a: tw.Tensor["M", "K"], b: tw.Tensor["N", "K"], c: tw.Tensor["M", "N"]):
    m, n = tw.grid(c, (32, 32))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], 16):
        acc += tw.dot(a[m, k], b[n, k].T)
    c[m, n] = acc


@tw.kernel
def scalars(x: tw.Tensor["M"], y: tw.Tensor["M"], *, k: tw.i32, bm=256):
    m = tw.grid(x.shape[0], bm)
    y[m] = x[m] * (k * k)


@tw.kernel
def captured(x: tw.Tensor["M"], y: tw.Tensor["M"], *, x1: tw.f32, bm=256):
    """A scalar by the name of a local of the emitted text."""
    m = tw.grid(x.shape[0], bm)
    y[m] = x[m] * 3.0 + x1


@tw.kernel
def roots(x: tw.Tensor["M"], y: tw.Tensor["M"], z: tw.Tensor["M"], *, bm=256):
    m = tw.grid(x.shape[0], bm)
    z[m] = tw.sqrt(abs(x[m])) / y[m]


@tw.kernel
def casts(x: tw.Tensor["M"], y: tw.Tensor["M"], *, bm=256):
    m = tw.grid(x.shape[0], bm)
    y[m] = (x[m] * 100.0).to(tw.i8)


@tw.kernel
def division(x: tw.Tensor["M"], y: tw.Tensor["M"], z: tw.Tensor["M"], *, bm=256):
    m = tw.grid(x.shape[0], bm)
    z[m] = x[m] // y[m] + x[m] % y[m]


@tw.kernel
def by_numbers(x: tw.Tensor["M"], y: tw.Tensor["M"], z: tw.Tensor["M"], *, bm=256):
    m = tw.grid(x.shape[0], bm)
    z[m] = (x[m] // 7) * 100 + y[m] % 10


@tw.kernel
def attention(
    q: tw.Tensor["S", 64], k: tw.Tensor["T", 64], v: tw.Tensor["T", 64], o: tw.Tensor["S", 64], *, scale: tw.f32
):
    s = tw.grid(q.shape[0], 64)
    rows = q[s, :]
    acc = tw.zeros((s, 64), tw.f32)
    top, total = tw.full((s,), -tw.inf, tw.f32), tw.zeros((s,), tw.f32)
    for t in tw.stream(k.shape[0], 64):
        x = tw.dot(rows, k[t, :].T) * scale
        new = tw.maximum(top, x.max(1))
        p, fix = tw.exp(x - new[:, None]), tw.exp(top - new)
        total.set(total * fix + p.sum(1))
        acc.set(acc * fix[:, None])
        top.set(new)
        acc += tw.dot(p.to(q.dtype), v[t, :])
    o[s, :] = acc / total[:, None]


@tw.kernel
def attention_wide(
    q: tw.Tensor["S", 128],
    k: tw.Tensor["T", 128],
    v: tw.Tensor["T", 128],
    o: tw.Tensor["S", 128],
    *,
    scale: tw.f32,
    causal: bool = False,
):
    s = tw.grid(q.shape[0], 128)
    rows = q[s, :]
    acc = tw.zeros((s, 128), tw.f32)
    top, total = tw.full((s,), -tw.inf, tw.f32), tw.zeros((s,), tw.f32)
    for t in tw.stream(k.shape[0], 128, until=s.stop if causal else None):
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


@tw.kernel
def gathered(index: tw.Tensor["M"], x: tw.Tensor["V", "N"], y: tw.Tensor["M", "N"], *, bm=128, bn=64):
    m, n = tw.grid(y, (bm, bn))
    y[m, n] = x[index[m], n].fill(2.0)


@tw.kernel
def paged(slot: tw.Tensor["M"], pool: tw.Tensor["P", 8], y: tw.Tensor["M"], *, bm=256):
    m = tw.grid(y, bm)
    at = slot[m]
    y[m] = pool[at // 8, at % 8].fill(2.0) + (at // 8 - at % 8).to(tw.f32)


@tw.kernel
def binned_from(x: tw.Tensor["M", "N"], y: tw.Tensor["M", 64]):
    m, n = tw.grid(x.shape[0], None), tw.axis(x.shape[1], upto=2048)
    y[m, :] = tw.histogram(x[m, n] - 100, 64)


@tw.kernel
def shifted(x: tw.Tensor["M"], y: tw.Tensor["M"], *, bm=256):
    m = tw.grid(y, bm)
    y[m] = x[m - 3].fill(1.0) - x[m + 2].fill(5.0)


@tw.kernel
def bounded(lengths: tw.Tensor["M"], x: tw.Tensor["M", "N"], y: tw.Tensor["M"], *, bn=64):
    m = tw.grid(y, None)
    total = tw.zeros((), tw.f32)
    for n in tw.stream(x.shape[1], bn, until=lengths[m]):
        total += x[m, n].to(tw.f32).sum(0)
    y[m] = total


@tw.kernel
def over_lengths(
    lengths: tw.Tensor["B"],
    q: tw.Tensor["B", "M", 64],
    k: tw.Tensor["B", "T", 64],
    v: tw.Tensor["B", "T", 2, 64],
    o: tw.Tensor["B", "M", 64],
    *,
    bq=64,
    bk=64,
):
    """A map of values that ended with their length would have six dimensions: consumers clear rows."""
    b, m = tw.grid(q, (None, bq))
    query, total, acc = q[b, m], tw.zeros((m,), tw.f32), tw.zeros((m, 64), tw.f32)
    for n in tw.stream(k.shape[1], bk, until=lengths[b]):
        p = tw.exp(tw.dot(query, k[b, n].T) * 0.01)
        total.set(total + p.sum(1))
        acc += tw.dot(p.to(q.dtype), v[b, n, 1])
    o[b, m] = acc / tw.maximum(total, 1.0)[:, None]


@tw.kernel
def over_lengths_wide(
    lengths: tw.Tensor["B"],
    q: tw.Tensor["B", "M", 128],
    k: tw.Tensor["B", "T", 128],
    v: tw.Tensor["B", "T", 2, 128],
    o: tw.Tensor["B", "M", 128],
):
    """Values in two panels, which two warpgroups clear, in the last step of a software-pipelined stream."""
    b, m = tw.grid(q, (None, 128))
    query, top = q[b, m], tw.full((m,), -1e30, tw.f32)
    total, acc = tw.zeros((m,), tw.f32), tw.zeros((m, 128), tw.f32)
    for n in tw.stream(k.shape[1], 64, until=lengths[b]):
        x = tw.dot(query, k[b, n].T) * 0.01
        new = tw.maximum(top, x.max(1))
        p, fix = tw.exp(x - new[:, None]), tw.exp(top - new)
        total.set(total * fix + p.sum(1))
        acc.set(acc * fix[:, None])
        acc += tw.dot(p.to(q.dtype), v[b, n, 1])
        top.set(new)
    o[b, m] = acc / tw.maximum(total, 1.0)[:, None]


@tw.kernel
def along_rows(
    offsets: tw.Tensor["G + 1"], a: tw.Tensor["T", "M"], b: tw.Tensor["T", "N"], c: tw.Tensor["G", "M", "N"]
):
    """Products along the rows of a group."""
    g, m, n = tw.grid(c, (None, 64, 64))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[0], 64, start=offsets[g], until=offsets[g + 1]):
        acc += tw.dot(a[k, m].T, b[k, n])
    c[g, m, n] = acc


@tw.kernel
def grouped_whole(
    offsets: tw.Offsets["G + 1"], a: tw.Tensor["T", "K"], b: tw.Tensor["G", 72, "K"], c: tw.Tensor["T", 72]
):
    """Rows of whole 16 bytes: tensor copies end with their group."""
    g, m, n = tw.ragged_grid(offsets, c.shape, (64, 64))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], 64):
        acc += tw.dot(a[m, k], b[g, n, k].T)
    c[m, n] = acc


@tw.kernel
def grouped(
    offsets: tw.Offsets["G + 1"],
    a: tw.Tensor["T", "K"],
    b: tw.Tensor["G", "N", "K"],
    c: tw.Tensor["T", "N"],
    *,
    bm=64,
    bn=64,
):
    g, m, n = tw.ragged_grid(offsets, c.shape, (bm, bn))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], 64):
        acc += tw.dot(a[m, k], b[g, n, k].T)
    c[m, n] = acc


@tw.kernel
def experts(
    expert: tw.Tensor["B"],
    x: tw.Tensor["B", "M", "K"],
    w: tw.Tensor["E", "N", "K"],
    y: tw.Tensor["B", "M", "N"],
    *,
    bm=64,
    bn=64,
):
    b, m, n = tw.grid(y, (None, bm, bn))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(x.shape[2], 64):
        acc += tw.dot(x[b, m, k], w[expert[b], n, k].T)
    y[b, m, n] = acc


@tw.kernel
def gathered_product(
    rows: tw.Tensor["P"],
    x: tw.Tensor["T", "K"],
    w: tw.Tensor["N", "K"],
    y: tw.Tensor["P", "N"],
    *,
    bm=64,
    bn=64,
    bk=64,
):
    m, n = tw.grid(y, (bm, bn))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(x.shape[1], bk):
        acc += tw.dot(x[rows[m], k], w[n, k].T)
    y[m, n] = acc


@tw.kernel
def scored(
    rows: tw.Tensor["P"], x: tw.Tensor["M", "K"], w: tw.Tensor["V", "K"], y: tw.Tensor["M", "P"], *, bn=24, bk=128
):
    """Products with some rows of a table."""
    m, n = tw.grid(y, (64, bn))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(x.shape[1], bk):
        acc += tw.dot(x[m, k], w[rows[n], k].T)
    y[m, n] = acc


@tw.kernel
def unsigned(x: tw.Tensor["M"], y: tw.Tensor["M"], z: tw.Tensor["M"], *, bm=256):
    m = tw.grid(x, bm)
    a, b = x[m], y[m]
    z[m] = tw.minimum(a, b) // 7 + tw.maximum(a, b) % 10 + (b >> 3) - (a << 30)


@tw.kernel
def bytes_of(x: tw.Tensor["M"], y: tw.Tensor["M"], z: tw.Tensor["M"], *, bm=256):
    m = tw.grid(x, bm)
    z[m] = (x[m] + y[m]) // 3 + (x[m] >> 4)


@tw.kernel
def bits_of(x: tw.Tensor["M"], y: tw.Tensor["M"], *, bm=256):
    m = tw.grid(x, bm)
    y[m] = tw.bitcast((x[m].view(tw.u32) ^ 0x80000000) & 0xFFFF0000, tw.f32)


@tw.kernel
def looked_up(code: tw.Tensor["M", "N"], table: tw.Tensor[16], z: tw.Tensor["M", "N"], *, bm=2, bn=64):
    m, n = tw.grid(code, (bm, bn))
    z[m, n] = tw.take(table[tw.axis(16)], code[m, n] & 15)


@tw.kernel
def running(x: tw.Tensor["M", "N"], z: tw.Tensor["M", "N"], *, bm=1):
    m, n = tw.grid(x.shape[0], bm), tw.axis(x.shape[1], upto=2048)
    z[m, n] = tw.cumsum(x[m, n], 1, reverse=True, exclusive=True)


@tw.kernel
def column_sum(x: tw.Tensor["M", "N"], y: tw.Tensor["N"], *, bm=tw.auto, bn=tw.auto):
    n = tw.grid(y, bn)
    total = tw.zeros(n, tw.f32)
    for m in tw.stream(x.shape[0], bm):
        total += x[m, n].to(tw.f32).sum(0)
    y[n] = total


@tw.kernel
def row_least(x: tw.Tensor["M", "N"], y: tw.Tensor["M"], *, bm=tw.auto, bn=tw.auto):
    m = tw.grid(y, bm)
    least = tw.full(m, tw.inf, tw.f32)
    for n in tw.stream(x.shape[1], bn):
        least.set(tw.minimum(least, x[m, n].to(tw.f32).min(1)))
    y[m] = least


@tw.kernel
def from_row(a: tw.Tensor["M", "K"], b: tw.Tensor["N", "K"], c: tw.Tensor["M", "N"], *, bm=64, bn=64):
    """Programs further down have fewer steps."""
    m, n = tw.grid(c, (bm, bn))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], 64, start=m.start):
        acc += tw.dot(a[m, k], b[n, k].T)
    c[m, n] = acc


@tw.kernel
def to_row(a: tw.Tensor["M", "K"], b: tw.Tensor["N", "K"], c: tw.Tensor["M", "N"], *, bm=64, bn=64):
    """Programs further down have more steps."""
    m, n = tw.grid(c, (bm, bn))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], 64, until=m.stop):
        acc += tw.dot(a[m, k], b[n, k].T)
    c[m, n] = acc


@tw.kernel
def activated(
    a: tw.Tensor["M", "K"], b: tw.Tensor["N", "K"], r: tw.Tensor["M", "N"], c: tw.Tensor["M", "N"], *, bm=128, bn=192
):
    """An epilogue of many instructions an element, with the column's number in it."""
    m, n = tw.grid(c, (bm, bn))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], 64):
        acc += tw.dot(a[m, k], b[n, k].T)
    x = acc + n.index[None, :].to(tw.f32) * 0.125
    c[m, n] = x * (0.5 * (1 + tw.erf(x * 0.7071067811865476))) + r[m, n].to(tw.f32)


@tw.kernel
def smoothed(
    a: tw.Tensor["M", "K"], b: tw.Tensor["N", "K"], bias: tw.Tensor["N"], c: tw.Tensor["M", "N"], *, bm=128, bn=192
):
    """An epilogue of many instructions an element."""
    m, n = tw.grid(c, (bm, bn))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], 64):
        acc += tw.dot(a[m, k], b[n, k].T)
    x = acc + bias[n][None, :].to(tw.f32)
    c[m, n] = x * (0.5 * (1 + tw.erf(x * 0.7071067811865476)))


@tw.kernel
def weighted(q: tw.Tensor["S", 128], k: tw.Tensor["T", 128], v: tw.Tensor["T", 128], o: tw.Tensor["S", 128]):
    """Schedules of it take for granted that T is not 0."""
    s = tw.grid(q.shape[0], 128)
    rows = q[s, :]
    acc, total = tw.zeros((s, 128), tw.f32), tw.zeros((s,), tw.f32)
    for t in tw.stream(k.shape[0], 128):
        p = tw.exp(tw.dot(rows, k[t, :].T) * 0.01)
        total += p.sum(1)
        acc += tw.dot(p.to(q.dtype), v[t, :])
    o[s, :] = acc / tw.maximum(total, 1.0)[:, None]


@tw.kernel
def over_both(
    q: tw.Tensor["S", 128], k: tw.Tensor["T", 128], u: tw.Tensor["U", 128], v: tw.Tensor["U", 128],
    w: tw.Tensor["T", 128], o: tw.Tensor["S", 128],
):  # fmt: skip
    """Two streams, one of which may have no step where the other one has."""
    s = tw.grid(q.shape[0], 128)
    rows, acc = q[s, :], tw.zeros((s, 128), tw.f32)
    for t in tw.stream(k.shape[0], 128):
        acc += tw.dot(tw.exp(tw.dot(rows, k[t, :].T) * 0.01).to(q.dtype), w[t, :])
    for t in tw.stream(u.shape[0], 128):
        acc += tw.dot(tw.exp(tw.dot(rows, u[t, :].T) * 0.01).to(q.dtype), v[t, :])
    o[s, :] = acc


@tw.kernel
def spread(x: tw.Tensor["M", "N"], y: tw.Tensor["N"], *, bm=tw.auto, bn=tw.auto):
    """Two fragments, each with sums of its own."""
    n = tw.grid(y, bn)
    least, most = tw.full(n, tw.inf, tw.f32), tw.full(n, -tw.inf, tw.f32)
    for m in tw.stream(x.shape[0], bm):
        least.set(tw.minimum(least, x[m, n].to(tw.f32).min(0)))
        most.set(tw.maximum(most, x[m, n].to(tw.f32).max(0)))
    y[n] = most - least


@tw.kernel
def from_one(x: tw.Tensor["M", "N"], y: tw.Tensor["N"], *, bm=tw.auto, bn=tw.auto):
    """Not to be cut: each part would begin at one."""
    n = tw.grid(y, bn)
    total = tw.full(n, 1.0, tw.f32)
    for m in tw.stream(x.shape[0], bm):
        total += x[m, n].to(tw.f32).sum(0)
    y[n] = total


@tw.kernel
def kept_sums(a: tw.Tensor["M", "K"], b: tw.Tensor["N", "K"], r: tw.Tensor["M", "N"], c: tw.Tensor["M", "N"]):
    """The accumulators are needed behind a store of many instructions an element."""
    m, n = tw.grid(c, (128, 192))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], 64):
        acc += tw.dot(a[m, k], b[n, k].T)
    r[m, n] = tw.erf(acc)
    c[m, n] = acc


@tw.kernel
def gathered_in_steps(
    rows: tw.Tensor["P"], x: tw.Tensor["T", "K"], w: tw.Tensor["T", "N"], y: tw.Tensor["K", "N"], *, bm=64, bn=64
):
    """The rows of a step are those that the step's integers name."""
    m, n = tw.grid(y, (bm, bn))
    acc = tw.zeros((m, n), tw.f32)
    for p in tw.stream(rows.shape[0], 64):
        acc += tw.dot(x[rows[p], m].T, w[rows[p], n])
    y[m, n] = acc


@tw.kernel
def converted(x: tw.Tensor["M", "K"], w: tw.Tensor["N", "K"], y: tw.Tensor["M", "N"]):
    """Weights of 8 bits, multiplied in 16."""
    m, n = tw.grid(y, (64, 64))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(x.shape[1], 64):
        acc += tw.dot(x[m, k], w[n, k].to(x.dtype).T)
    y[m, n] = acc


@tw.kernel
def no_product(a: tw.Tensor["M", "K"], b: tw.Tensor["N", "K"], c: tw.Tensor["M", "N"]):
    """A product over an axis of no elements is added."""
    m, n, k = *tw.grid(c, (64, 64)), tw.axis(a.shape[1], upto=64)
    c[m, n] = tw.dot(a[m, k], b[n, k].T) + 2.0


@tw.kernel
def waves(x: tw.Tensor["N"], y: tw.Tensor["N"], *, bn=256):
    n = tw.grid(x, bn)
    y[n] = tw.cos(x[n])


@tw.kernel
def dense_sum(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"], z: tw.Tensor["M", "N"], *, bm=tw.auto, bn=tw.auto):
    m, n = tw.grid(z, (bm, bn))
    z[m, n] = x[m, n] + y[m, n]


@tw.kernel
def across(x: tw.Tensor["M", "N"], y: tw.Tensor["N", "M"], *, bm=64, bn=64):
    m, n = tw.grid(x, (bm, bn))
    y[n, m] = x[m, n].T


@tw.kernel
def of_bytes(x: tw.Tensor["N"], y: tw.Tensor["N"], *, bn=2048):
    n = tw.grid(x, bn)
    y[n] = x[n].to(tw.f16)


@tw.kernel
def tile_sums(x: tw.Tensor["M", "N"], y: tw.Tensor["N"], *, bn=64):
    n, m = tw.grid(y, bn), tw.axis(x.shape[0], upto=64)
    y[n] = x[m, n].sum(0)


@tw.kernel
def added(a: tw.Tensor["M", "K"], b: tw.Tensor["N", "K"], c: tw.Tensor["M", "N"], *, bm=128, bn=128, bk=64):
    m, n = tw.grid(c, (bm, bn))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], bk):
        acc += tw.dot(a[m, k], b[n, k].T)
    tw.reduce_add(c, (m, n), acc)


@tw.kernel
def by_blocks(
    a: tw.Tensor["M", "K"],
    b: tw.Tensor["N", "K"],
    s: tw.Tensor["M", "KB"],
    t: tw.Tensor["NB", "KB"],
    c: tw.Tensor["M", "N"],
    *,
    bm=128,
    bn=64,
):
    m, n = tw.grid(c, (bm, bn))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], 64):
        step = k.start // 64
        acc += tw.dot(a[m, k], b[n, k].T) * (s[m, step] * t[n.start // 64, step])[:, None]
    c[m, n] = acc


@tw.kernel
def of_columns(
    a: tw.Tensor["M", "K"],
    b: tw.Tensor["N", "K"],
    s: tw.Tensor["KB", "N"],
    c: tw.Tensor["M", "N"],
    *,
    bm=128,
    bn=64,
):
    m, n = tw.grid(c, (bm, bn))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], 64):
        acc += tw.dot(a[m, k], b[n, k].T) * s[k.start // 64, n][None, :]
    c[m, n] = acc


@tw.kernel
def soft(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"], *, upto: int = 2048):
    """A softmax within bounds."""
    m, n = tw.grid(x.shape[0], 1), tw.axis(x.shape[1], upto=upto)
    row = x[m, n].to(tw.f32)
    e = tw.exp(row - row.max(1)[:, None])
    y[m, n] = e / e.sum(1)[:, None]


@tw.kernel(numerics="strict")
def soft_strict(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"], *, upto: int = 2048):
    m, n = tw.grid(x.shape[0], 1), tw.axis(x.shape[1], upto=upto)
    row = x[m, n].to(tw.f32) * 2.0
    e = tw.exp(row - row.max(1)[:, None])
    y[m, n] = e / e.sum(1)[:, None]


@tw.kernel
def tempered(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"], *, by: tw.f32, upto: int = 2048):
    """Exponentials of a difference times a factor."""
    m, n = tw.grid(x.shape[0], 1), tw.axis(x.shape[1], upto=upto)
    row = x[m, n].to(tw.f32) * 3.0
    y[m, n] = tw.exp((row - row.max(1)[:, None]) * by)


@tw.kernel
def faded(x: tw.Tensor["M"], y: tw.Tensor["M"], z: tw.Tensor["M"], *, bm=256):
    """Exponentials of differences of which each element has its own subtrahend."""
    m = tw.grid(x.shape[0], bm)
    a, b = x[m] * 3.0, y[m] * 5.0
    z[m] = tw.exp(a - tw.maximum(a, b))


@tw.kernel
def whole_quotient(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"], *, upto: int = 512):
    m, n = tw.grid(x.shape[0], 1), tw.axis(x.shape[1], upto=upto)
    row = x[m, n] * 3.0
    y[m, n] = (row / row.max(1)[:, None]).to(tw.i8)


@tw.kernel
def mean_of(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"], *, upto: int = 512):
    m, n = tw.grid(x.shape[0], 1), tw.axis(x.shape[1], upto=upto)
    row = x[m, n].to(tw.f32)
    y[m, n] = row / row.sum(1)[:, None]


@tw.kernel
def own_quotient(x: tw.Tensor["M"], y: tw.Tensor["M"], z: tw.Tensor["M"], *, bm=256):
    m = tw.grid(x.shape[0], bm)
    z[m] = (x[m].to(tw.f32) * 3.0) / y[m].to(tw.f32)


@tw.kernel
def weighed(x: tw.Tensor["M", "N"], w: tw.Tensor["N"], y: tw.Tensor["M", "N"], *, upto: int = 1000):
    m, n = tw.grid(x.shape[0], 1), tw.axis(x.shape[1], upto=upto)
    row = x[m, n].to(tw.f32)
    y[m, n] = row / row.sum(1)[:, None] * w[n].to(tw.f32)


@tw.kernel
def rounded(x: tw.Tensor["M"], y: tw.Tensor["M"], *, bm=256):
    m = tw.grid(x.shape[0], bm)
    y[m] = tw.round(x[m] * 8.0) + tw.expm1(x[m]) - tw.reciprocal(-x[m])


@tw.kernel
def narrow_roots(x: tw.Tensor["M"], y: tw.Tensor["M"], *, bm=256):
    m = tw.grid(x.shape[0], bm)
    y[m] = tw.sqrt(abs(x[m])) * x[m]


@tw.kernel
def by_groups(
    offsets: tw.Offsets["G + 1"],
    x: tw.Tensor["T", "N"],
    w: tw.Tensor["G", "N"],
    y: tw.Tensor["T", "N"],
):
    """Without products: a step of its own judges the offsets."""
    g, t, n = tw.ragged_grid(offsets, x.shape, (4, 64))
    y[t, n] = x[t, n] * w[g, n]


@tw.kernel
def distances(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"], *, bm=4):
    """How far from each element of a row the farthest one is."""
    m, n = tw.grid(x.shape[0], bm), tw.axis(x.shape[1], upto=16)
    row = x[m, n]
    y[m, n] = abs(row[:, :, None] - row[:, None, :]).max(2)


@tw.kernel
def in_tf32(a: tw.Tensor["M", "K"], b: tw.Tensor["N", "K"], c: tw.Tensor["M", "N"]):
    m, n = tw.grid(c, (64, 64))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], 32):
        acc += tw.dot((a[m, k] * 1.5).to(tw.tf32), b[n, k].to(tw.tf32).T)
    c[m, n] = acc
