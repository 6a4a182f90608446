"""More kernels in their first wording: recurrences, dynamic programs, images, sparse and jagged rows, bits.

Coordinates here are computed with remainders and quotients by extents, loaded, or of the running state of a stream.
"""

# ruff: noqa: F821, UP037 - dimension names are strings
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownParameterType=false, reportMissingParameterType=false
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

from itertools import pairwise

import numpy as np

import tilewright as tw
from support.generality import Arrays, Case

_I8, _I32, _I64, _U8, _U32, _F16 = np.int8, np.int32, np.int64, np.uint8, np.uint32, np.float16
_LOW = -1e30


# -- images ----------------------------------------------------------------------------------------------------------
@tw.kernel
def periodic_laplacian(u: tw.Tensor["N", "M"], y: tw.Tensor["N", "M"]):
    """Remainders by an extent of the tensor lie inside: nothing is absent."""
    i, j = tw.grid(u, (8, 8))
    n, m = u.shape
    rows = u[(i.index + 1) % n, j.index] + u[(i.index + n - 1) % n, j.index]
    y[i, j] = rows + u[i.index, (j.index + 1) % m] + u[i.index, (j.index + m - 1) % m] - 4 * u[i, j]


@tw.kernel
def conv_transpose(x: tw.Tensor["C", "L"], w: tw.Tensor["C", "O", 4], y: tw.Tensor["O", "2 * L + 2"]):
    """A stride of 2: every other place has no element."""
    o, p = tw.grid(y, (4, 16))
    acc = tw.zeros((o, p), tw.f32)
    for c in tw.stream(x.shape[0], None):
        for k in range(4):
            at = p.index - k
            acc += w[c, o, k][:, None] * x[c, tw.where(at % 2 == 0, at // 2, -1)].fill(0.0)[None, :]
    y[o, p] = acc


@tw.kernel
def max_pool(x: tw.Tensor["C", "2 * P", "2 * Q"], y: tw.Tensor["C", "P", "Q"], at: tw.Tensor["C", "P", "Q"]):
    """Windows of 3 x 3, and the flat place of each maximum."""
    c, p, q = tw.grid(y, (None, 4, 8))
    top, place = tw.full((p, q), -tw.inf, tw.f32), tw.full((p, q), 0, tw.i32)
    for i in range(3):
        for j in range(3):
            h, w = p * 2 + (i - 1), q * 2 + (j - 1)
            v = x[c, h, w].fill(-tw.inf)
            place.set(tw.where(v > top, (h[:, None] * x.shape[2] + w[None, :]).to(tw.i32), place))
            top.set(tw.maximum(top, v))
    y[c, p, q] = top
    at[c, p, q] = place


@tw.kernel
def grid_sample(x: tw.Tensor["C", "H", "W"], gx: tw.Tensor["P"], gy: tw.Tensor["P"], y: tw.Tensor["C", "P"]):
    """Bilinear, zeros outside."""
    c, p = tw.grid(y, (4, 16))
    fx, fy = ((gx[p] + 1) * x.shape[2] - 1) / 2, ((gy[p] + 1) * x.shape[1] - 1) / 2
    x0, y0 = tw.floor(fx), tw.floor(fy)
    acc = tw.zeros((c, p), tw.f32)
    for dy in range(2):
        for dx in range(2):
            weight = (1 - tw.abs(fx - x0 - dx)) * (1 - tw.abs(fy - y0 - dy))
            value = x[c.index[:, None], (y0.to(tw.i32) + dy)[None, :], (x0.to(tw.i32) + dx)[None, :]]
            acc += value.fill(0.0) * weight[None, :]
    y[c, p] = acc


@tw.kernel
def suppressed_boxes(box: tw.Tensor["N", 4], keep: tw.Tensor["N"], limit: tw.f32):
    """Of boxes that overlap the first one stays: a stream that reads what its earlier steps decided."""
    _, n = tw.grid(1, None), tw.axis(box.shape[0], upto=64)
    x0, y0, x1, y1 = (box[n, k] for k in range(4))
    area, alive = (x1 - x0) * (y1 - y0), tw.full((n,), 1, tw.i32)
    for i in tw.stream(box.shape[0], None):
        w = tw.maximum(tw.minimum(x1, box[i, 2]) - tw.maximum(x0, box[i, 0]), 0.0)
        h = tw.maximum(tw.minimum(y1, box[i, 3]) - tw.maximum(y0, box[i, 1]), 0.0)
        own = (box[i, 2] - box[i, 0]) * (box[i, 3] - box[i, 1])
        chosen = tw.where(n.index == i, alive, 0).max() == 1
        alive.set(tw.where((w * h > limit * (area + own - w * h)) & (n.index > i) & chosen, 0, alive))
    keep[n] = alive


# -- recurrences and dynamic programs --------------------------------------------------------------------------------
@tw.kernel
def delta_rule(
    q: tw.Tensor["T", 16], k: tw.Tensor["T", 16], v: tw.Tensor["T", 16], beta: tw.Tensor["T"], y: tw.Tensor["T", 16]
):
    """A state that is corrected by what it predicts."""
    _, d, e = tw.grid(1, None), tw.axis(16), tw.axis(16)
    state = tw.zeros((d, e), tw.f32)
    for t in tw.stream(q.shape[0], None):
        key = k[t, d]
        state += key[:, None] * ((v[t, e] - (state * key[:, None]).sum(0)) * beta[t])[None, :]
        y[t, e] = (state * q[t, d][:, None]).sum(0)


@tw.kernel
def weighted_keys(
    k: tw.Tensor["T", "C"], v: tw.Tensor["T", "C"], w: tw.Tensor["C"], u: tw.Tensor["C"], y: tw.Tensor["T", "C"]
):
    """RWKV's recurrence with a running maximum."""
    c = tw.grid(k.shape[1], 8)
    num, den, top = tw.zeros((c,), tw.f32), tw.zeros((c,), tw.f32), tw.full((c,), -1e38, tw.f32)
    for t in tw.stream(k.shape[0], None):
        key, value = k[t, c], v[t, c]
        new = tw.maximum(top, u[c] + key)
        a, b = tw.exp(top - new), tw.exp(u[c] + key - new)
        y[t, c] = (a * num + b * value) / (a * den + b)
        new = tw.maximum(top - w[c], key)
        a, b = tw.exp(top - w[c] - new), tw.exp(key - new)
        num.set(a * num + b * value)
        den.set(a * den + b)
        top.set(new)


@tw.kernel
def alignment_scores(logp: tw.Tensor["T", "V"], label: tw.Tensor["S"], y: tw.Tensor["T - 1", "S"]):
    """The forward pass of CTC: neighbours of a running state, by their places."""
    _, s = tw.grid(1, None), tw.axis(label.shape[0], upto=32)
    own = label[s]
    skips = (label[s - 2].fill(-1) != own) & (own != 0)
    state = tw.full((s,), _LOW, tw.f32)
    state.set(tw.where(s.index < 2, logp[0, own].fill(_LOW), _LOW))
    for t in tw.stream(y.shape[0], None):
        one = tw.take(state, s.index - 1, 0).fill(_LOW)
        two = tw.where(skips, tw.take(state, s.index - 2, 0).fill(_LOW), _LOW)
        top = tw.maximum(tw.maximum(state, one), two)
        total = tw.exp(state - top) + tw.exp(one - top) + tw.exp(two - top)
        state.set(top + tw.log(total) + logp[t + 1, own].fill(_LOW))
        y[t, s] = state


@tw.kernel
def edit_distance(a: tw.Tensor["N"], b: tw.Tensor["M"], y: tw.Tensor["N"]):
    """A row of the table a step; what comes from the left is a running minimum."""
    _, j = tw.grid(1, None), tw.axis(b.shape[0], upto=32)
    row, left = tw.full((j,), 0, tw.i32), tw.full((), 0, tw.i32)
    row.set(j.index + 1)
    for i in tw.stream(a.shape[0], None):
        above = tw.take(row, j.index - 1, 0)
        above = tw.where(tw.present(above), above.fill(0), left)
        best = tw.minimum(row + 1, above + tw.where(b[j] == a[i], 0, 1))
        left += 1
        row.set((tw.cummin(tw.minimum(best, left + j.index + 1) - j.index, 0) + j.index).to(tw.i32))
        y[i] = tw.where(j.index == b.shape[0] - 1, row, 0).sum().to(tw.i32)


@tw.kernel
def beam_step(
    score: tw.Tensor["B", 4],
    logp: tw.Tensor["B", 4, "V"],
    best: tw.Tensor["B", 4],
    beam: tw.Tensor["B", 4],
    token: tw.Tensor["B", 4],
):
    """The greatest of all beams and tokens together."""
    b, k, v = tw.grid(score.shape[0], 1), tw.axis(4), tw.axis(logp.shape[2], upto=32)
    total = (logp[b, k, v] + score[b, k][:, :, None]).reshape(b, -1).fill(-tw.inf)
    value, at = tw.topk(total, 4, 1)
    best[b, :], beam[b, :], token[b, :] = value, at // 32, at % 32


# -- sparse and jagged -----------------------------------------------------------------------------------------------
@tw.kernel
def sampled_products(
    pointers: tw.Offsets["M + 1"],
    column: tw.Tensor["Z"],
    a: tw.Tensor["M", "K"],
    b: tw.Tensor["N", "K"],
    y: tw.Tensor["Z"],
):
    """Products of rows at the places of a sparse matrix."""
    m, k = tw.grid(a.shape[0], None), tw.axis(a.shape[1], upto=32)
    for z in tw.stream(column.shape[0], 8, start=pointers[m], until=pointers[m + 1]):
        y[z] = (b[column[z], k].fill(0.0) * a[m, k][None, :]).sum(1)


@tw.kernel
def padded_rows(offsets: tw.Offsets["B + 1"], x: tw.Tensor["T", "D"], y: tw.Tensor["B", "L", "D"]):
    b, n, d = tw.grid(y, (None, 8, 16))
    rows = offsets[b] + n.index
    y[b, n, d] = x[tw.where(rows < offsets[b + 1], rows, -1), d].fill(-1.0)


@tw.kernel
def jagged_rows(offsets: tw.Offsets["B + 1"], y: tw.Tensor["B", "L", "D"], x: tw.Tensor["T", "D"]):
    b, t, d = tw.ragged_grid(offsets, x.shape, (8, 16))
    x[t, d] = y[b, t.index - offsets[b], d].fill(0.0)


@tw.kernel
def run_lengths(x: tw.Tensor["N"], value: tw.Tensor["N"], length: tw.Tensor["N"], count: tw.Tensor[1]):
    _, n = tw.grid(1, None), tw.axis(x.shape[0], upto=64)
    first = x[n] != x[n - 1].fill(-1)
    run = tw.cumsum(first, 0).to(tw.i32) - 1
    tw.reduce_add(value, tw.where(first, run, -1), x[n])
    tw.reduce_add(length, run, tw.full((n,), 1, tw.i32))
    count[0] = first.sum()


@tw.kernel
def counting_sort(key: tw.Tensor["N"], y: tw.Tensor["N"]):
    """Places of keys: where their bin begins, and how many equal ones come before."""
    _, n, b = tw.grid(1, None), tw.axis(key.shape[0], upto=64), tw.axis(16)
    base = tw.cumsum(tw.histogram(key[n], 16), 0, exclusive=True)
    own = key[n][:, None] == b.index[None, :]
    place = tw.where(own, tw.cumsum(own, 0, exclusive=True) + base[None, :], 0).sum(1)
    tw.reduce_add(y, place, key[n])


@tw.kernel
def ring_rows(buffer: tw.Tensor["R", "D"], head: tw.Tensor["B"], y: tw.Tensor["B", 4, "D"]):
    """The last rows of a ring, of heads of any size and sign."""
    b, j, d = tw.grid(head, None), tw.axis(4), tw.axis(buffer.shape[1], upto=16)
    y[b, j, d] = buffer[(head[b] - 1 - j.index) % buffer.shape[0], d]


@tw.kernel
def turned_rows(
    q: tw.Tensor["T", "H", 32],
    at: tw.Tensor["T"],
    cos: tw.Tensor["P", 16],
    sin: tw.Tensor["P", 16],
    y: tw.Tensor["T", "H", 32],
):
    """Rotary at loaded positions: both tables, loaded from separately, have no row at the same places."""
    t, h = tw.grid(q.shape[:2], (8, 2))
    a, b, d = q[t, h, :16], q[t, h, 16:], tw.axis(16)
    y[t, h, :16] = a * cos[at[t], d][:, None, :] - b * sin[at[t], d][:, None, :]
    y[t, h, 16:] = b * cos[at[t], d][:, None, :] + a * sin[at[t], d][:, None, :]


# -- bits and small matrices -----------------------------------------------------------------------------------------
@tw.kernel
def hashed(key: tw.Tensor["N"], bucket: tw.Tensor["N"]):
    """Murmur's last steps, of words that wrap."""
    n = tw.grid(key, 32)
    h = key[n].to(tw.u32)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        h = (h ^ (h >> shift)) * factor
    bucket[n] = ((h ^ (h >> 16)) & 15).to(tw.i32)


@tw.kernel
def counted_bits(x: tw.Tensor["N"], count: tw.Tensor["N"], turned: tw.Tensor["N"]):
    n = tw.grid(x, 32)
    v = x[n] - ((x[n] >> 1) & 0x55555555)
    v = (v & 0x33333333) + ((v >> 2) & 0x33333333)
    count[n] = (((v + (v >> 4)) & 0x0F0F0F0F) * 0x01010101) >> 24
    r = x[n]
    for shift, mask in ((1, 0x55555555), (2, 0x33333333), (4, 0x0F0F0F0F), (8, 0x00FF00FF), (16, 0x0000FFFF)):
        r = ((r >> shift) & mask) | ((r & mask) << shift)
    turned[n] = r


@tw.kernel
def packed_int4(x: tw.Tensor["M", "2 * H"], q: tw.Tensor["M", "H"], scale: tw.Tensor["M"]):
    m, n, h = tw.grid(x.shape[0], 4), tw.axis(x.shape[1], upto=64), tw.axis(q.shape[1], upto=32)
    s = tw.abs(x[m, n]).max(1) / 7
    scale[m] = s
    low, high = (tw.clamp(tw.round(x[m, 2 * h + k] / s[:, None]), -8, 7).to(tw.i32) for k in range(2))
    q[m, h] = ((low & 15) | ((high & 15) << 4)).to(tw.u8)


@tw.kernel
def int4_product(x: tw.Tensor["M", "2 * K"], w: tw.Tensor["N", "K"], y: tw.Tensor["M", "N"]):
    """Signed halves of bytes: the low one comes down with its sign."""
    m, n = tw.grid(y, (16, 16))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(w.shape[1], 32):
        low, high = (w[n, k] << 4) >> 4, w[n, k] >> 4
        acc += tw.dot(x[m, 2 * k], low.to(tw.f16).T) + tw.dot(x[m, 2 * k + 1], high.to(tw.f16).T)
    y[m, n] = acc


@tw.kernel
def complex_product(a: tw.Tensor["M", "K", 2], b: tw.Tensor["K", "N", 2], y: tw.Tensor["M", "N", 2]):
    m, n = tw.grid(y.shape[:2], (8, 8))
    re, im = tw.zeros((m, n), tw.f32), tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], 16):
        ar, ai, br, bi = a[m, k, 0], a[m, k, 1], b[k, n, 0], b[k, n, 1]
        re += tw.dot(ar, br) - tw.dot(ai, bi)
        im += tw.dot(ar, bi) + tw.dot(ai, br)
    y[m, n, 0] = re
    y[m, n, 1] = im


@tw.kernel
def cholesky(a: tw.Tensor["B", 4, 4], y: tw.Tensor["B", 4, 4]):
    """Elements of a small matrix as Python names."""
    b = tw.grid(a.shape[0], 16)
    found = {}
    for j in range(4):
        for i in range(j, 4):
            s = a[b, i, j]
            for k in range(j):
                s = s - found[i, k] * found[j, k]
            found[i, j] = tw.sqrt(s) if i == j else s / found[j, j]
    for i in range(4):
        for j in range(4):
            y[b, i, j] = found.get((i, j), tw.zeros((b,), tw.f32))


# -- references ------------------------------------------------------------------------------------------------------
def _transposed(x: np.ndarray, w: np.ndarray) -> Arrays:
    y = np.zeros((w.shape[1], 2 * x.shape[1] + 2))
    for p, k in np.ndindex(x.shape[1], 4):
        y[:, 2 * p + k] += x[:, p] @ w[:, :, k]
    return {"y": y}


def _max_pooled(x: np.ndarray) -> Arrays:
    c, h, w = x.shape
    wide = np.pad(x, ((0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
    y, at = np.zeros((c, h // 2, w // 2)), np.zeros((c, h // 2, w // 2), int)
    for i, p, q in np.ndindex(y.shape):
        window = wide[i, 2 * p : 2 * p + 3, 2 * q : 2 * q + 3]
        row, column = divmod(int(window.argmax()), 3)
        y[i, p, q], at[i, p, q] = window.max(), (2 * p - 1 + row) * w + 2 * q - 1 + column
    return {"y": y, "at": at}


def _sampled(x: np.ndarray, gx: np.ndarray, gy: np.ndarray) -> Arrays:
    _, h, w = x.shape
    y = np.zeros((len(x), len(gx)))
    for p, (fx, fy) in enumerate(zip(((gx + 1) * w - 1) / 2, ((gy + 1) * h - 1) / 2, strict=True)):
        for r in (int(np.floor(fy)), int(np.floor(fy)) + 1):
            for c in (int(np.floor(fx)), int(np.floor(fx)) + 1):
                if 0 <= r < h and 0 <= c < w:
                    y[:, p] += x[:, r, c] * (1 - abs(fx - c)) * (1 - abs(fy - r))
    return {"y": y}


def _suppressed(box: np.ndarray, limit: float) -> Arrays:
    keep = np.ones(len(box), int)
    area = (box[:, 2] - box[:, 0]) * (box[:, 3] - box[:, 1])
    for i in np.arange(len(box)):
        size = np.minimum(box[:, 2:], box[i, 2:]) - np.maximum(box[:, :2], box[i, :2])
        both = np.clip(size, 0, None).prod(1)
        if keep[i]:
            keep[(both > limit * (area + area[i] - both)) & (np.arange(len(box)) > i)] = 0
    return {"keep": keep}


def _corrected(q: np.ndarray, k: np.ndarray, v: np.ndarray, beta: np.ndarray) -> Arrays:
    state, y = np.zeros((16, 16)), np.zeros(q.shape)
    for t in range(len(q)):
        state += np.outer(k[t], (v[t] - k[t] @ state) * beta[t])
        y[t] = q[t] @ state
    return {"y": y}


def _keyed(k: np.ndarray, v: np.ndarray, w: np.ndarray, u: np.ndarray) -> Arrays:
    y = np.zeros(k.shape)
    for t in range(len(k)):
        weights = np.exp([k[s] - (t - 1 - s) * w for s in range(t)] + [u + k[t]])
        y[t] = (weights * v[: t + 1]).sum(0) / weights.sum(0)
    return {"y": y}


def _aligned(logp: np.ndarray, label: np.ndarray) -> Arrays:
    state = np.full(len(label), _LOW)
    state[:2] = logp[0, label[:2]]
    y = np.zeros((len(logp) - 1, len(label)))
    for t in range(len(y)):
        before = state.copy()
        for s in range(len(label)):
            skips = s > 1 and label[s] not in (0, label[s - 2])
            terms = [before[s], before[s - 1] if s else _LOW, before[s - 2] if skips else _LOW]
            state[s] = np.logaddexp.reduce(terms) + logp[t + 1, label[s]]
        y[t] = state
    return {"y": y}


def _edited(a: np.ndarray, b: np.ndarray) -> Arrays:
    row, y = np.arange(len(b) + 1), []
    for i, letter in enumerate(a):
        new = [i + 1]
        for j, other in enumerate(b):
            new.append(min(new[-1] + 1, row[j + 1] + 1, row[j] + int(letter != other)))
        row = np.array(new)
        y.append(row[-1])
    return {"y": np.array(y)}


def _beams(score: np.ndarray, logp: np.ndarray) -> Arrays:
    total = (score[:, :, None] + logp).reshape(len(score), -1)
    at = np.argsort(-total, 1, kind="stable")[:, :4]
    return {"best": np.take_along_axis(total, at, 1), "beam": at // logp.shape[2], "token": at % logp.shape[2]}


def _padded(offsets: np.ndarray, x: np.ndarray, y: np.ndarray) -> Arrays:
    found = np.full(y.shape, -1.0)
    for b, (start, until) in enumerate(pairwise(offsets)):
        rows = x[start:until][: y.shape[1]]
        found[b, : len(rows)] = rows
    return {"y": found}


def _jagged(offsets: np.ndarray, y: np.ndarray, x: np.ndarray) -> Arrays:
    found = np.zeros(x.shape)
    for b, (start, until) in enumerate(pairwise(offsets)):
        rows = y[b, : until - start]
        found[start : start + len(rows)] = rows
    return {"x": found}


def _runs(x: np.ndarray, value: np.ndarray, length: np.ndarray) -> Arrays:
    starts = np.flatnonzero(np.diff(x, prepend=-1))
    found, lengths = np.zeros(len(x), int), np.zeros(len(x), int)
    found[: len(starts)], lengths[: len(starts)] = x[starts], np.diff(starts, append=len(x))
    return {"value": found, "length": lengths, "count": np.array([len(starts)])}


def _hash(key: np.ndarray) -> Arrays:
    h = key.astype(np.uint32)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        h = ((h ^ (h >> np.uint32(shift))).astype(np.uint64) * factor).astype(np.uint32)
    return {"bucket": (h ^ (h >> np.uint32(16))) & 15}


def _bits(x: np.ndarray) -> Arrays:
    texts = [f"{int(v):032b}" for v in x]
    return {"count": np.array([t.count("1") for t in texts]), "turned": np.array([int(t[::-1], 2) for t in texts])}


def _packed(x: np.ndarray) -> Arrays:
    scale = (np.abs(x).max(1).astype(np.float32) / np.float32(7)).astype(np.float32)
    q = np.clip(np.round(x.astype(np.float32) / scale[:, None]), -8, 7).astype(int) & 15
    return {"q": q[:, ::2] | (q[:, 1::2] << 4), "scale": scale}


def _unpacked_product(x: np.ndarray, w: np.ndarray) -> Arrays:
    wide = w.astype(int)
    halves = np.stack([((wide & 15) ^ 8) - 8, wide >> 4], 2).reshape(len(w), -1)
    return {"y": x @ halves.T}


def _turned(q: np.ndarray, at: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> Arrays:
    there = ((at >= 0) & (at < len(cos)))[:, None, None]
    c, s = (np.where(there, table[np.clip(at, 0, len(cos) - 1)][:, None], 0) for table in (cos, sin))
    a, b = q[:, :, :16], q[:, :, 16:]
    return {"y": np.concatenate([a * c - b * s, b * c + a * s], 2)}


# -- cases -----------------------------------------------------------------------------------------------------------
def _offsets(rng: np.random.Generator, groups: int, rows: int) -> np.ndarray:
    return np.concatenate([[0], np.sort(rng.integers(0, rows + 1, groups))])


def _boxes(rng: np.random.Generator, n: int) -> Arrays:
    corner = rng.random((n, 2))
    return {"box": np.concatenate([corner, corner + rng.random((n, 2)) + 0.1], 1)}


def _draw(**shapes: str):
    def make(rng: np.random.Generator, *extents: int) -> Arrays:
        sizes = {
            n: [int(c) if c.isdigit() else extents["ABCD".index(c)] for c in axes.split()] for n, axes in shapes.items()
        }
        return {name: rng.normal(size=size) for name, size in sizes.items()}

    return make


MORE_PORTED: dict[str, Case] = {
    c.kernel.name: c
    for c in (
        Case(
            periodic_laplacian,
            ((1, 1), (9, 20)),
            _draw(u="A B"),
            lambda u: {"y": sum(np.roll(u, s, a) for s in (1, -1) for a in (0, 1)) - 4 * u},
            {},
        ),
        Case(conv_transpose, ((1, 1, 1), (3, 11, 5)), _draw(x="A B", w="A C 4"), _transposed, {}, tolerance=1e-4),
        Case(
            max_pool,
            ((1, 1, 1), (2, 4, 9)),
            lambda rng, c, p, q: {"x": rng.normal(size=(c, 2 * p, 2 * q))},
            _max_pooled,
            {"at": _I32},
            tolerance=0,
        ),
        Case(
            grid_sample,
            ((1, 1, 1, 1), (3, 5, 6, 21)),
            lambda rng, c, h, w, p: {
                "x": rng.normal(size=(c, h, w)),
                "gx": rng.random(p) * 2.6 - 1.3,
                "gy": rng.random(p) * 2.6 - 1.3,
            },
            _sampled,
            {},
            tolerance=1e-4,
        ),
        Case(suppressed_boxes, ((1,), (40,)), _boxes, _suppressed, {"keep": _I32}, {"limit": 0.3}, tolerance=0),
        Case(
            delta_rule,
            ((1,), (13,)),
            lambda rng, t: {**{n: rng.normal(size=(t, 16)) / 4 for n in "qkv"}, "beta": rng.random(t)},
            _corrected,
            {},
            tolerance=1e-4,
        ),
        Case(
            weighted_keys,
            ((1, 1), (12, 20)),
            lambda rng, t, c: {
                "k": rng.normal(size=(t, c)),
                "v": rng.normal(size=(t, c)),
                "w": rng.random(c),
                "u": rng.normal(size=c),
            },
            _keyed,
            {},
            tolerance=1e-4,
        ),
        Case(
            alignment_scores,
            ((2, 1), (9, 5)),
            lambda rng, t, n: {
                "logp": -rng.random((t, 6)) - 1,
                "label": np.append(np.insert(rng.integers(1, 5, n), np.arange(n), 0), 0),
            },
            _aligned,
            {"label": _I32},
            tolerance=1e-4,
        ),
        Case(
            edit_distance,
            ((1, 1), (20, 31)),
            lambda rng, n, m: {"a": rng.integers(0, 3, n), "b": rng.integers(0, 3, m)},
            _edited,
            dict.fromkeys("aby", _I32),
            tolerance=0,
        ),
        Case(
            beam_step,
            ((1, 1), (3, 31)),
            _draw(score="A 4", logp="A 4 B"),
            _beams,
            {"beam": _I32, "token": _I32},
        ),
        Case(
            sampled_products,
            ((1, 1, 1, 1), (9, 12, 60, 32)),
            lambda rng, m, n, z, k: {
                "pointers": np.append(_offsets(rng, m - 1, z), z),
                "column": rng.integers(-1, n + 1, z),
                "a": rng.normal(size=(m, k)),
                "b": rng.normal(size=(n, k)),
            },
            lambda pointers, column, a, b: {
                "y": (
                    a[np.repeat(np.arange(len(a)), np.diff(pointers))]
                    * np.pad(b, ((0, 1), (0, 0)))[np.where((column < 0) | (column >= len(b)), len(b), column)]
                ).sum(1)
            },
            {"pointers": _I32, "column": _I64},
            tolerance=1e-4,
        ),
        Case(
            padded_rows,
            ((1, 1, 1, 1), (5, 40, 11, 17)),
            lambda rng, b, t, n, d: {
                "offsets": _offsets(rng, b, t),
                "x": rng.normal(size=(t, d)),
                "y": np.zeros((b, n, d)),
            },
            _padded,
            {"offsets": _I64},
            tolerance=0,
        ),
        Case(
            jagged_rows,
            ((1, 1, 1, 1), (5, 40, 11, 17)),
            lambda rng, b, t, n, d: {
                "offsets": _offsets(rng, b, t),
                "y": rng.normal(size=(b, n, d)),
                "x": np.ones((t, d)),
            },
            _jagged,
            {"offsets": _I32},
            tolerance=0,
        ),
        Case(
            run_lengths,
            ((1,), (64,)),
            lambda rng, n: {"x": rng.integers(0, 3, n), "value": np.zeros(n), "length": np.zeros(n)},
            _runs,
            {"x": _I32, "value": _I32, "length": _I32, "count": _I64},
            tolerance=0,
        ),
        Case(
            counting_sort,
            ((1,), (61,)),
            lambda rng, n: {"key": rng.integers(0, 16, n), "y": np.zeros(n)},
            lambda key, y: {"y": np.sort(key)},
            {"key": _I32, "y": _I32},
            tolerance=0,
        ),
        Case(
            ring_rows,
            ((1, 1, 1), (9, 16, 9)),
            lambda rng, r, d, b: {
                "buffer": rng.normal(size=(r, d)),
                "head": rng.choice([0, -5, 7, 2**40, -(2**40), 2**62], b),
            },
            lambda buffer, head: {"y": buffer[(head[:, None] - 1 - np.arange(4)) % len(buffer)]},
            {"head": _I64},
            tolerance=0,
        ),
        Case(
            turned_rows,
            ((1, 1, 1), (20, 3, 9)),
            lambda rng, t, h, p: {
                "q": rng.normal(size=(t, h, 32)),
                "at": rng.integers(-1, p + 1, t),
                "cos": rng.normal(size=(p, 16)),
                "sin": rng.normal(size=(p, 16)),
            },
            _turned,
            {"at": _I64},
        ),
        Case(
            hashed,
            ((1,), (100,)),
            lambda rng, n: {"key": rng.integers(-(2**31), 2**31, n)},
            _hash,
            {"key": _I32, "bucket": _I32},
            tolerance=0,
        ),
        Case(
            counted_bits,
            ((1,), (100,)),
            lambda rng, n: {"x": rng.integers(0, 2**32, n)},
            _bits,
            dict.fromkeys(("x", "count", "turned"), _U32),
            tolerance=0,
        ),
        Case(
            packed_int4,
            ((1, 1), (9, 31)),
            lambda rng, m, h: {"x": rng.normal(size=(m, 2 * h))},
            _packed,
            {"q": _U8},
        ),
        Case(
            int4_product,
            ((1, 1, 1), (20, 33, 45)),
            lambda rng, m, n, k: {"x": rng.normal(size=(m, 2 * k)), "w": rng.integers(-128, 128, (n, k))},
            _unpacked_product,
            {"x": _F16, "w": _I8},
            tolerance=1e-3,
        ),
        Case(
            complex_product,
            ((1, 1, 1), (9, 33, 11)),
            _draw(a="A B 2", b="B C 2"),
            lambda a, b: {
                "y": np.stack(
                    [a[..., 0] @ b[..., 0] - a[..., 1] @ b[..., 1], a[..., 0] @ b[..., 1] + a[..., 1] @ b[..., 0]], 2
                )
            },
            {},
            tolerance=1e-4,
        ),
        Case(
            cholesky,
            ((1,), (40,)),
            lambda rng, b: {"a": (lambda x: x @ x.transpose(0, 2, 1) + 4 * np.eye(4))(rng.normal(size=(b, 4, 4)))},
            lambda a: {"y": np.linalg.cholesky(a)},
            {},
            tolerance=1e-4,
        ),
    )
}
