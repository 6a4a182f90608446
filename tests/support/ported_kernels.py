"""Kernels that people bring from Triton, CuPy and PyTorch, in their first wording, each with a NumPy reference."""

# ruff: noqa: F821, UP037 - dimension names are strings
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

from math import erf

import ml_dtypes
import numpy as np

import tilewright as tw
from support.generality import Arrays, Case

_I8, _I32, _I64, _U8, _F16 = np.int8, np.int32, np.int64, np.uint8, np.float16
_BF16 = ml_dtypes.bfloat16


# -- losses ---------------------------------------------------------------------------------------------------------
@tw.kernel
def info_nce(a: tw.Tensor["B", "D"], b: tw.Tensor["B", "D"], loss: tw.Tensor["B"], tau: tw.f32):
    """A product in a stream of a stream, by ordinary arithmetic, under a running softmax."""
    m = tw.grid(a.shape[0], 16)
    top, den, own = tw.full((m,), -tw.inf, tw.f32), tw.zeros((m,), tw.f32), tw.zeros((m,), tw.f32)
    for n in tw.stream(b.shape[0], 16):
        s = tw.zeros((m, n), tw.f32)
        for d in tw.stream(a.shape[1], 32):
            s += tw.dot(a[m, d], b[n, d].T)
        s = s / tau
        new = tw.maximum(top, s.max(1))
        den.set(den * tw.exp(top - new) + tw.exp(s - new[:, None]).sum(1))
        top.set(new)
        own += tw.where(m.index[:, None] == n.index[None, :], s, 0.0).sum(1)
    loss[m] = top + tw.log(den) - own


@tw.kernel
def label_smoothing(
    x: tw.Tensor["B", "V"],
    target: tw.Tensor["B"],
    loss: tw.Tensor["B"],
    dx: tw.Tensor["B", "V"],
    eps: tw.f32,
    *,
    ignore_index: int = -100,
):
    """A loss and its gradient in two passes, the chosen logit gathered, ignored rows 0."""
    b, classes = tw.grid(x.shape[0], 4), x.shape[1]
    top = tw.full((b,), -tw.inf, tw.f32)
    den, total = tw.zeros((b,), tw.f32), tw.zeros((b,), tw.f32)
    for v in tw.stream(classes, 64):
        row = x[b, v].to(tw.f32)
        new = tw.maximum(top, row.max(1))
        den.set(den * tw.exp(top - new) + tw.exp(row - new[:, None]).sum(1))
        top.set(new)
        total += row.sum(1)
    lse, t = top + tw.log(den), target[b]
    kept = t != ignore_index
    picked = x[b.index, t].fill(0.0)
    loss[b] = tw.where(kept, (1 - eps) * (lse - picked) + eps * (lse - total / classes), 0.0)
    for v in tw.stream(classes, 64):
        g = tw.exp(x[b, v] - lse[:, None]) - eps / classes
        g = tw.where(v.index[None, :] == t[:, None], g - (1 - eps), g)
        dx[b, v] = tw.where(kept[:, None], g, 0.0)


@tw.kernel
def entropy(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"], z: tw.Tensor["M"]):
    """Reductions that keep their axis, which a 0 takes away."""
    m, n = tw.grid(x.shape[0], 2), tw.axis(x.shape[1], upto=256)
    v = x[m, n]
    top = v.max(axis=1, keepdims=True)
    lse = top + tw.log(tw.exp(v - top).sum(axis=1, keepdims=True))
    y[m, n] = -tw.exp(v - lse) * (v - lse)
    z[m] = lse[:, 0] ** 2


# -- networks -------------------------------------------------------------------------------------------------------
@tw.kernel
def gru(
    x: tw.Tensor["B", "I"],
    h: tw.Tensor["B", "H"],
    wi: tw.Tensor["G", "I"],
    wh: tw.Tensor["G", "H"],
    out: tw.Tensor["B", "H"],
):
    """Six products, one behind the other, of the thirds of two matrices."""
    b, j = tw.grid(out, (16, 16))
    width = h.shape[1]

    def gate(g):
        of_x, of_h = tw.zeros((b, j), tw.f32), tw.zeros((b, j), tw.f32)
        for k in tw.stream(x.shape[1], 16):
            of_x += tw.dot(x[b, k], wi[j + g * width, k].T)
        for k in tw.stream(width, 16):
            of_h += tw.dot(h[b, k], wh[j + g * width, k].T)
        return of_x, of_h

    (rx, rh), (zx, zh), (nx, nh) = (gate(g) for g in range(3))
    r, z = tw.sigmoid(rx + rh), tw.sigmoid(zx + zh)
    out[b, j] = (1 - z) * tw.tanh(nx + r * nh) + z * h[b, j]


@tw.kernel
def state_space_chunks(
    q: tw.Tensor["B", "T", "D"],
    k: tw.Tensor["B", "T", "D"],
    v: tw.Tensor["B", "T", "E"],
    g: tw.Tensor["B", "T"],
    o: tw.Tensor["B", "T", "E"],
    *,
    bt: int = 16,
):
    """A gated linear recurrence over chunks: scores within a chunk, a carried state between chunks (Mamba-2)."""
    b = tw.grid(q.shape[0], None)
    d, e = tw.axis(q.shape[2], upto=16), tw.axis(v.shape[2], upto=16)
    state = tw.zeros((d, e), tw.f32)
    for t in tw.stream(q.shape[1], bt):
        a, i = tw.cumsum(g[b, t], 0), t.index
        total = g[b, t].sum(0)
        decay = tw.where(i[:, None] >= i[None, :], tw.exp(a[:, None] - a[None, :]), 0.0)
        s = tw.dot(q[b, t, d], k[b, t, d].T) * decay
        o[b, t, e] = tw.dot(s, v[b, t, e]) + tw.dot(q[b, t, d], state) * tw.exp(a)[:, None]
        state.set(state * tw.exp(total) + tw.dot((k[b, t, d] * tw.exp(total - a)[:, None]).T, v[b, t, e]))


@tw.kernel
def conv_with_state(x: tw.Tensor["T", "D"], w: tw.Tensor["D", 4], past: tw.Tensor[3, "D"], y: tw.Tensor["T", "D"]):
    """A causal convolution whose first elements come from another tensor."""
    t, d = tw.grid(x, (8, 8))
    acc = tw.zeros((t, d), tw.f32)
    for j in range(4):
        now, old = x[t + (j - 3), d], past[t + j, d]
        acc += tw.where(tw.present(now), now.fill(0.0), old.fill(0.0)) * w[d, j][None, :]
    y[t, d] = acc * tw.sigmoid(acc)


@tw.kernel
def rope_interleaved(x: tw.Tensor["T", "H", "D"], angle: tw.Tensor["T", "F"], y: tw.Tensor["T", "H", "D"]):
    """Pairs of neighbours, computed together and stored apart."""
    t, h = tw.grid(x.shape[:2], (4, 2))
    f = tw.axis(angle.shape[1], upto=64)
    a, b = x[t, h, 2 * f].fill(0.0), x[t, h, 2 * f + 1].fill(0.0)
    c, s = tw.cos(angle[t, f])[:, None, :], tw.sin(angle[t, f])[:, None, :]
    y[t, h, 2 * f] = a * c - b * s
    y[t, h, 2 * f + 1] = b * c + a * s


# -- packed integers ------------------------------------------------------------------------------------------------
@tw.kernel
def unpack_words(w: tw.Tensor["M", "P"], s: tw.Tensor["M"], y: tw.Tensor["M", "N"]):
    """Eight 4-bit codes a word, found by shifts and masks."""
    m, n = tw.grid(y, (4, 32))
    q = (w[m, n.index >> 3] >> ((n.index & 7) << 2)[None, :]) & 0xF
    y[m, n] = (q - 8).to(tw.f32).fill(0.0) * s[m][:, None]


@tw.kernel
def swapped_pairs(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"]):
    """Stored where shifts and masks say; that no two elements meet is proved."""
    m, n = tw.grid(x, (4, 32))
    y[m, ((n.index >> 1) << 1) + (1 - (n.index & 1))] = x[m, n]


@tw.kernel
def loaded_bits(i: tw.Tensor["M"], x: tw.Tensor["N"], y: tw.Tensor["M"], z: tw.Tensor["M"]):
    """Shifts and masks of loaded integers of either sign."""
    m = tw.grid(y, 32)
    y[m], z[m] = x[i[m] >> 1], x[i[m] & 31]


@tw.kernel
def cache_rows(k: tw.Tensor["B", "D"], slot: tw.Unique["B"], cache: tw.Tensor["P", 8, "D"], scale: tw.Tensor["P", 8]):
    """New rows of a paged cache, quantised on their way."""
    b, d = tw.grid(k.shape[0], 4), tw.axis(k.shape[1], upto=64)
    row, at = k[b, d], slot[b]
    s = tw.abs(row).max(1) / 127
    cache[at // 8, at % 8, d] = tw.round(row / s[:, None]).to(tw.i8)
    scale[at // 8, at % 8] = s


# -- sparse, grids --------------------------------------------------------------------------------------------------
@tw.kernel
def csr_times_dense(
    pointers: tw.Tensor["M + 1"],
    columns: tw.Tensor["K"],
    values: tw.Tensor["K"],
    b: tw.Tensor["N", "D"],
    c: tw.Tensor["M", "D"],
):
    """Rows of a sparse matrix: a stream between two loaded bounds, a gather in it."""
    m, d = tw.grid(c, (None, 16))
    acc = tw.zeros((d,), tw.f32)
    for j in tw.stream(values.shape[0], 8, start=pointers[m], until=pointers[m + 1]):
        acc += (values[j][:, None] * b[columns[j], d]).sum(0)
    c[m, d] = acc


@tw.kernel
def life(cells: tw.Tensor["H", "W"], new: tw.Tensor["H", "W"]):
    """A stencil on a torus."""
    h, w = tw.grid(cells, (8, 16))
    rows, columns = cells.shape
    count = tw.zeros((h, w), tw.i32)
    for i, j in ((-1, 0), (1, 0), (0, -1), (0, 1)):
        count += cells[(h.index + i) % rows, (w.index + j) % columns].to(tw.i32)
    new[h, w] = (count == 3) | ((cells[h, w] == 1) & (count == 2))


@tw.kernel
def bilinear_upsampling(x: tw.Tensor["H", "W"], y: tw.Tensor["P", "Q"]):
    """Coordinates computed in floats."""
    p, q = tw.grid(y, (4, 16))
    (height, width), (tall, wide) = x.shape, y.shape
    fy = tw.maximum((p.index + 0.5) * (height / tall) - 0.5, 0.0)
    fx = tw.maximum((q.index + 0.5) * (width / wide) - 0.5, 0.0)
    y0, x0 = tw.floor(fy).to(tw.i32), tw.floor(fx).to(tw.i32)
    y1, x1 = tw.minimum(y0 + 1, height - 1), tw.minimum(x0 + 1, width - 1)
    v, u = (fy - y0)[:, None], (fx - x0)[None, :]
    upper = x[y0, x0].fill(0.0) * (1 - u) + x[y0, x1].fill(0.0) * u
    y[p, q] = upper * (1 - v) + (x[y1, x0].fill(0.0) * (1 - u) + x[y1, x1].fill(0.0) * u) * v


@tw.kernel
def log_cumsum_exp(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"]):
    """A scan of pairs by a function of the user's, carried from tile to tile."""
    m = tw.grid(x.shape[0], 4)

    def combine(a, b):
        top = tw.maximum(a[0], b[0])
        return top, a[1] * tw.exp(a[0] - top) + b[1] * tw.exp(b[0] - top)

    carry = tw.full((m,), -tw.inf, tw.f32), tw.zeros((m,), tw.f32)
    for n in tw.stream(x.shape[1], 32):
        top, total = tw.scan(combine, (x[m, n].to(tw.f32), tw.full((m, n), 1.0, tw.f32)), 1, carry=carry)
        y[m, n] = top + tw.log(total)


# -- axes that are split, flipped and chosen from ---------------------------------------------------------------------
@tw.kernel
def int4_with_groups(
    w: tw.Tensor["N", "4 * G"], s: tw.Tensor["N", "G"], z: tw.Tensor["N", "G"], y: tw.Tensor["N", "32 * G"]
):
    """Extents that divide by the annotation, so that no element is absent."""
    n, k = tw.grid(y, (4, 64))
    code = (w[n, k // 8] >> (4 * (k.index % 8))[None, :]) & 0xF
    y[n, k] = (code - z[n, k // 32]).to(tw.f32) * s[n, k // 32]


@tw.kernel
def fft16(
    re: tw.Tensor["B", 16], im: tw.Tensor["B", 16], yr: tw.Tensor["B", 16], yi: tw.Tensor["B", 16], *, bb: int = 4
):
    """Butterflies between halves of parts, decimated in frequency."""
    b, n = tw.grid(re.shape[0], bb), tw.axis(16)
    r, i = re[b, n], im[b, n]
    for half in (8, 4, 2, 1):
        r0, r1 = r.reshape(bb, -1, 2, half).split(2, axis=2)
        i0, i1 = i.reshape(bb, -1, 2, half).split(2, axis=2)
        c, s = 1.0, 0.0
        if half > 1:
            angle = tw.axis(half).index.to(tw.f32) * (-np.pi / half)
            c, s = tw.cos(angle), tw.sin(angle)
        dr, di = r0 - r1, i0 - i1
        upper = tw.axis(2).index[:, None] == 0
        r = tw.where(upper, r0 + r1, dr * c - di * s).reshape(b, n)
        i = tw.where(upper, i0 + i1, dr * s + di * c).reshape(b, n)
    yr[b, n], yi[b, n] = r, i


@tw.kernel
def hadamard(x: tw.Tensor["M", 128], y: tw.Tensor["M", 128], *, bm: int = 4):
    m = tw.grid(x.shape[0], bm)
    v, h = x[m, :].to(tw.f32), 1
    while h < 128:
        a, b = v.reshape(bm, 128 // (2 * h), 2, h).split(2, axis=2)
        v = tw.where(tw.axis(2).index[:, None] == 0, a + b, a - b).reshape(m, 128)
        h *= 2
    y[m, :] = v * 128**-0.5


@tw.kernel
def gelu_halves(x: tw.Tensor["M", "2 * N"], y: tw.Tensor["M", "N"]):
    """Halves of an extent known at launch, by their numbers."""
    m, n = tw.grid(y, (4, 64))
    halves = x.reshape(y.shape[0], 2, y.shape[1])
    a, g = halves[m, 0, n], halves[m, 1, n]
    y[m, n] = a * 0.5 * g * (1 + tw.erf(g * 0.5**0.5))


@tw.kernel
def split_projections(
    x: tw.Tensor["T", "3*H*D"], q: tw.Tensor["H", "T", "D"], k: tw.Tensor["H", "T", "D"], v: tw.Tensor["H", "T", "D"]
):
    """Loads at products of symbols: each is asked whether it lies inside."""
    heads, rows, width = q.shape
    h, t = tw.grid((heads, rows), (None, 8))
    d = tw.axis(width, upto=32)
    for part, out in enumerate((q, k, v)):
        out[h, t, d] = x[t, part * heads * width + h * width + d]


@tw.kernel
def sample_top_p(logits: tw.Tensor["B", "V"], u: tw.Tensor["B"], token: tw.Tensor["B"], p: tw.f32):
    """A place for each row, taken from its sorted row."""
    b, v = tw.grid(logits.shape[0], 2), tw.axis(logits.shape[1], upto=128)
    x = logits[b, v]
    e = tw.exp(x - x.max(1, keepdims=True))
    prob = e / e.sum(1, keepdims=True)
    order, ordered = tw.argsort(prob, 1, descending=True), tw.sort(prob, 1, descending=True)
    kept = tw.where(tw.cumsum(ordered, 1) - ordered < p, ordered, 0.0)
    rank = (tw.cumsum(kept, 1) < u[b][:, None] * kept.sum(1, keepdims=True)).to(tw.i32).sum(1)
    token[b] = tw.take(order, rank, 1).fill(0)


@tw.kernel
def sobel(x: tw.Tensor["H", "W"], y: tw.Tensor["H", "W"]):
    """Coordinates clamped to the edge lie inside, whatever the extents."""
    h, w = tw.grid(y, (8, 16))

    def pixel(i, j):
        return x[tw.clamp(h.index + i, 0, x.shape[0] - 1), tw.clamp(w.index + j, 0, x.shape[1] - 1)]

    gx = pixel(-1, 1) + 2 * pixel(0, 1) + pixel(1, 1) - pixel(-1, -1) - 2 * pixel(0, -1) - pixel(1, -1)
    gy = pixel(1, -1) + 2 * pixel(1, 0) + pixel(1, 1) - pixel(-1, -1) - 2 * pixel(-1, 0) - pixel(-1, 1)
    y[h, w] = tw.sqrt(gx * gx + gy * gy)


@tw.kernel
def flipped(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"]):
    """Stored from the end on."""
    m, n = tw.grid(x, (4, 32))
    y[m, y.shape[1] - 1 - n] = x[m, n]


@tw.kernel
def turned_by_90(x: tw.Tensor["H", "W"], y: tw.Tensor["W", "H"]):
    h, w = tw.grid(x, (8, 16))
    y[x.shape[1] - 1 - w, h] = x[h, w].T


# -- references -----------------------------------------------------------------------------------------------------
def _log_softmax(x: np.ndarray) -> np.ndarray:
    return x - np.log(np.exp(x).sum(1, keepdims=True))


def _smoothed(x: np.ndarray, target: np.ndarray, eps: float) -> Arrays:
    logs, kept = _log_softmax(x), target != -100
    place = np.where(kept, target, 0)[:, None]
    loss = -(1 - eps) * np.take_along_axis(logs, place, 1)[:, 0] - eps * logs.mean(1)
    dx = np.exp(logs) - eps / x.shape[1]
    np.put_along_axis(dx, place, np.take_along_axis(dx, place, 1) - (1 - eps), 1)
    return {"loss": np.where(kept, loss, 0), "dx": np.where(kept[:, None], dx, 0)}


def _entropy(x: np.ndarray) -> Arrays:
    logs = _log_softmax(x)
    return {"y": -np.exp(logs) * logs, "z": np.log(np.exp(x).sum(1)) ** 2}


def _gru(x: np.ndarray, h: np.ndarray, wi: np.ndarray, wh: np.ndarray) -> Arrays:
    (rx, zx, nx), (rh, zh, nh) = (np.split(a @ w.T, 3, 1) for a, w in ((x, wi), (h, wh)))
    r, z = 1 / (1 + np.exp(-rx - rh)), 1 / (1 + np.exp(-zx - zh))
    return {"out": (1 - z) * np.tanh(nx + r * nh) + z * h}


def _state_space(q: np.ndarray, k: np.ndarray, v: np.ndarray, g: np.ndarray) -> Arrays:
    o, state = np.zeros_like(v), np.zeros((len(q), q.shape[2], v.shape[2]))
    for t in range(q.shape[1]):
        state = np.exp(g[:, t, None, None]) * state + k[:, t, :, None] * v[:, t, None, :]
        o[:, t] = (q[:, t, :, None] * state).sum(1)
    return {"o": o}


def _conv(x: np.ndarray, w: np.ndarray, past: np.ndarray) -> Arrays:
    padded = np.concatenate([past, x])
    z = sum(padded[j : j + len(x)] * w[:, j] for j in range(4))
    return {"y": z / (1 + np.exp(-z))}


def _rope(x: np.ndarray, angle: np.ndarray) -> Arrays:
    turned = (x[..., ::2] + 1j * x[..., 1::2]) * np.exp(1j * angle)[:, None]
    return {"y": np.stack([turned.real, turned.imag], -1).reshape(x.shape)}


def _unpacked(w: np.ndarray, s: np.ndarray, y: np.ndarray) -> Arrays:
    codes = (w.astype(np.int64)[:, :, None] >> np.arange(0, 32, 4)) & 15
    return {"y": (codes.reshape(len(w), -1)[:, : y.shape[1]] - 8) * s[:, None]}


def _of_bits(i: np.ndarray, x: np.ndarray) -> Arrays:
    def at(place: np.ndarray) -> np.ndarray:
        return np.where((place >= 0) & (place < len(x)), x[place.clip(0, len(x) - 1)], 0)

    return {"y": at(np.floor_divide(i, 2)), "z": at(np.mod(i, 32))}


def _cached(k: np.ndarray, slot: np.ndarray, cache: np.ndarray, scale: np.ndarray) -> Arrays:
    cache, scale, s = cache.copy(), scale.copy(), abs(k.astype(np.float32)).max(1) / np.float32(127)
    cache[slot // 8, slot % 8] = np.rint(k.astype(np.float32) / s[:, None])
    scale[slot // 8, slot % 8] = s
    return {"cache": cache, "scale": scale}


def _sparse(pointers: np.ndarray, columns: np.ndarray, values: np.ndarray, b: np.ndarray) -> Arrays:
    c = np.zeros((len(pointers) - 1, b.shape[1]))
    np.add.at(c, np.repeat(np.arange(len(c)), np.diff(pointers)), values[:, None] * b[columns])
    return {"c": c}


def _life(cells: np.ndarray) -> Arrays:
    count = sum(np.roll(cells, by, axis).astype(int) for by in (1, -1) for axis in (0, 1))
    return {"new": (count == 3) | ((cells == 1) & (count == 2))}


def _upsampled(x: np.ndarray, y: np.ndarray) -> Arrays:
    for axis, extent in enumerate(y.shape):
        at = np.maximum((np.arange(extent) + 0.5) * x.shape[axis] / extent - 0.5, 0)
        low = np.floor(at).astype(int)
        part = np.expand_dims(at - low, 1 - axis)
        x = x.take(low, axis) * (1 - part) + x.take(np.minimum(low + 1, x.shape[axis] - 1), axis) * part
    return {"y": x}


def _int4_groups(w: np.ndarray, s: np.ndarray, z: np.ndarray) -> Arrays:
    codes = ((w.astype(np.int64)[:, :, None] >> np.arange(0, 32, 4)) & 15).reshape(len(w), -1)
    return {"y": (codes - np.repeat(z, 32, 1)) * np.repeat(s, 32, 1)}


def _fft(re: np.ndarray, im: np.ndarray) -> Arrays:
    found = np.fft.fft(re + 1j * im)[:, [int(f"{k:04b}"[::-1], 2) for k in range(16)]]
    return {"yr": found.real, "yi": found.imag}


def _hadamard(x: np.ndarray) -> Arrays:
    matrix = np.ones((1, 1))
    for _ in range(7):
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return {"y": x @ matrix / 128**0.5}


def _gelu_halves(x: np.ndarray) -> Arrays:
    a, g = np.split(x, 2, 1)
    return {"y": a * 0.5 * g * (1 + np.vectorize(erf)(g * 0.5**0.5))}


def _sampled(logits: np.ndarray, u: np.ndarray, p: float) -> Arrays:
    tokens = []
    for row, threshold in zip(np.exp(_log_softmax(logits)), u, strict=True):
        order = np.argsort(-row, kind="stable")
        ordered = row[order]
        kept = np.where(np.cumsum(ordered) - ordered < p, ordered, 0)
        tokens.append(order[(np.cumsum(kept) < threshold * kept.sum()).sum()])
    return {"token": np.array(tokens)}


def _sobel(x: np.ndarray) -> Arrays:
    padded = np.pad(x, 1, mode="edge")
    smooth, across = np.array([1, 2, 1]), np.array([-1, 0, 1])
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3))
    gx, gy = np.einsum("hwij,i,j", windows, smooth, across), np.einsum("hwij,i,j", windows, across, smooth)
    return {"y": np.hypot(gx, gy)}


def _csr(rng: np.random.Generator, m: int, n: int, d: int) -> Arrays:
    filled = rng.random((m, n)) < 0.3
    pointers = np.concatenate([[0], filled.sum(1).cumsum()])
    return {
        "pointers": pointers,
        "columns": np.nonzero(filled)[1],
        "values": rng.normal(size=pointers[-1]),
        "b": rng.normal(size=(n, d)),
    }


def _draw(**shapes: str):
    """Normal numbers of shapes that name the extents: A, B, C, or a number."""

    def make(rng: np.random.Generator, *extents: int) -> Arrays:
        sizes = {
            n: [int(c) if c.isdigit() else extents["ABCD".index(c)] for c in axes.split()] for n, axes in shapes.items()
        }
        return {name: rng.normal(size=size) for name, size in sizes.items()}

    return make


_ROWS = ((1, 1), (7, 31), (5, 96))

PORTED: dict[str, Case] = {
    c.kernel.name: c
    for c in (
        Case(
            info_nce,
            ((1, 1), (19, 40)),
            _draw(a="A B", b="A B"),
            lambda a, b, tau: {"loss": -np.diag(_log_softmax(a @ b.T / tau))},
            {},
            {"tau": 4.0},
            tolerance=1e-4,
        ),
        Case(
            label_smoothing,
            _ROWS,
            lambda rng, b, v: {
                "x": rng.normal(size=(b, v)),
                "target": np.where(rng.random(b) < 0.3, -100, rng.integers(0, v, b)),
            },
            _smoothed,
            {"target": _I64, "x": _BF16},
            {"eps": 0.1},
            tolerance=1e-4,
        ),
        Case(entropy, _ROWS, _draw(x="A B"), _entropy, {}, tolerance=1e-4),
        Case(
            gru,
            ((1, 1, 1), (5, 31, 17)),
            lambda rng, b, i, h: {
                n: rng.normal(size=s) / 3
                for n, s in {"x": (b, i), "h": (b, h), "wi": (3 * h, i), "wh": (3 * h, h)}.items()
            },
            _gru,
            {},
            tolerance=1e-4,
        ),
        Case(
            state_space_chunks,
            ((1, 1, 16, 16), (2, 21, 11, 5)),
            lambda rng, b, t, d, e: {
                "q": rng.normal(size=(b, t, d)),
                "k": rng.normal(size=(b, t, d)),
                "v": rng.normal(size=(b, t, e)),
                "g": -abs(rng.normal(size=(b, t))),
            },
            _state_space,
            {},
            tolerance=1e-4,
        ),
        Case(conv_with_state, ((1, 1), (2, 5), (37, 11)), _draw(x="A B", w="B 4", past="3 B"), _conv, {}),
        Case(
            rope_interleaved,
            ((1, 1, 2), (5, 3, 8)),
            lambda rng, t, h, f: {"x": rng.normal(size=(t, h, 2 * f)), "angle": rng.normal(size=(t, f)) * 9},
            _rope,
            {},
        ),
        Case(
            unpack_words,
            ((1, 1), (7, 40), (3, 61)),
            lambda rng, m, n: {
                "w": rng.integers(-(2**31), 2**31, (m, -(-n // 8))),
                "s": rng.normal(size=m),
                "y": np.zeros((m, n)),
            },
            _unpacked,
            {"w": _I32},
        ),
        Case(
            swapped_pairs,
            ((1, 2), (7, 32), (3, 62)),
            _draw(x="A B"),
            lambda x: {"y": x.reshape(len(x), -1, 2)[:, :, ::-1].reshape(x.shape)},
            {},
            tolerance=0,
        ),
        Case(
            loaded_bits,
            ((1, 1), (77, 20), (33, 40)),
            lambda rng, m, n: {"i": rng.integers(-9, 3 * n, m), "x": rng.normal(size=n)},
            _of_bits,
            {"i": _I32},
            tolerance=0,
        ),
        Case(
            cache_rows,
            ((1, 1), (13, 37)),
            lambda rng, b, d: {
                "k": rng.normal(size=(b, d)),
                "slot": rng.permutation(40)[:b],
                "cache": np.zeros((5, 8, d)),
                "scale": np.zeros((5, 8)),
            },
            _cached,
            {"slot": _I64, "cache": _I8},
        ),
        Case(
            csr_times_dense,
            ((3, 7, 1), (17, 23, 20)),
            _csr,
            _sparse,
            {"pointers": _I32, "columns": _I32},
            tolerance=1e-4,
        ),
        Case(
            life,
            ((1, 1), (9, 31), (16, 20)),
            lambda rng, h, w: {"cells": rng.random((h, w)) < 0.4},
            _life,
            {"cells": _U8, "new": _U8},
            tolerance=0,
        ),
        Case(
            bilinear_upsampling,
            ((1, 3), (5, 7)),
            lambda rng, h, w: {"x": rng.normal(size=(h, w)), "y": np.zeros((2 * h + 1, 3 * w))},
            _upsampled,
            {},
            tolerance=1e-5,
        ),
        Case(
            log_cumsum_exp,
            ((1, 1), (7, 31), (5, 70)),
            _draw(x="A B"),
            lambda x: {"y": np.logaddexp.accumulate(x, 1)},
            {"x": _F16},
            tolerance=1e-5,
        ),
        Case(
            int4_with_groups,
            ((1, 1), (5, 4)),
            lambda rng, n, g: {
                "w": rng.integers(-(2**31), 2**31, (n, 4 * g)),
                "s": rng.normal(size=(n, g)),
                "z": rng.integers(0, 16, (n, g)),
            },
            _int4_groups,
            {"w": _I32, "z": _I32},
        ),
        Case(fft16, ((1,), (7,)), _draw(re="A 16", im="A 16"), _fft, {}, tolerance=1e-4),
        Case(hadamard, ((1,), (5,)), _draw(x="A 128"), _hadamard, {}, tolerance=1e-4),
        Case(
            gelu_halves,
            ((1, 1), (5, 33)),
            lambda rng, m, n: {"x": rng.normal(size=(m, 2 * n))},
            _gelu_halves,
            {},
            tolerance=1e-5,
        ),
        Case(
            split_projections,
            ((1, 1, 1), (9, 2, 12)),
            lambda rng, t, h, d: {"x": rng.normal(size=(t, 3 * h * d)), "q": np.zeros((h, t, d))},
            lambda x, q: dict(zip("qkv", x.reshape(len(x), 3, len(q), q.shape[2]).transpose(1, 2, 0, 3), strict=True)),
            {},
            tolerance=0,
        ),
        Case(
            sample_top_p,
            ((1, 1), (5, 100)),
            lambda rng, b, v: {"logits": rng.normal(size=(b, v)), "u": rng.random(b)},
            _sampled,
            {"token": _I32},
            {"p": 0.8},
            tolerance=0,
        ),
        Case(sobel, ((1, 1), (13, 21)), _draw(x="A B"), _sobel, {}, tolerance=1e-4),
        Case(flipped, ((1, 1), (5, 77)), _draw(x="A B"), lambda x: {"y": x[:, ::-1]}, {}, tolerance=0),
        Case(turned_by_90, ((1, 1), (11, 20)), _draw(x="A B"), lambda x: {"y": np.rot90(x)}, {}, tolerance=0),
    )
}
