"""Kernels that split and merge axes, of tiles and of tensors, each with a NumPy reference."""

# ruff: noqa: F821, UP037 - dimension names are strings
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

import ml_dtypes
import numpy as np

import tilewright as tw
from support.generality import Arrays, Case

_BF16 = ml_dtypes.bfloat16


# -- tiles ----------------------------------------------------------------------------------------------------------
@tw.kernel
def quantise_groups(x: tw.Tensor["M", 256], q: tw.Tensor["M", 256], s: tw.Tensor["M", 8], *, bm=4):
    """A scale for each 32 elements: an axis is split, reduced, and merged again."""
    m, n, g = tw.grid(x.shape[0], bm), tw.axis(256), tw.axis(8)
    groups = x[m, n].to(tw.f32).reshape(m, g, 32)
    scale = tw.maximum(tw.abs(groups).max(2), 1e-8) / 127
    s[m, g] = scale
    q[m, n] = tw.round(groups / scale[:, :, None]).reshape(m, n).to(tw.i8)


@tw.kernel
def normalise_blocks(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"], *, bm=4, bn=128):
    """Blocks of 32, of which the last ones end beyond the rows: what is outside is absent."""
    m, n = tw.grid(x, (bm, bn))
    blocks = x[m, n].reshape(bm, -1, 32)
    y[m, n] = (blocks / tw.abs(blocks).max(-1, keepdims=True)).reshape(m, n)


@tw.kernel
def rotate_pairs(x: tw.Tensor["T", 64], angle: tw.Tensor["T", 32], y: tw.Tensor["T", 64], *, bt=8):
    """Neighbours as an axis of 2, taken apart."""
    t, n, h = tw.grid(x.shape[0], bt), tw.axis(64), tw.axis(32)
    pairs = x[t, n].reshape(t, h, 2)
    a, b = pairs[..., 0], pairs[:, :, -1]
    c, s = tw.cos(angle[t, h]), tw.sin(angle[t, h])
    y[t, 2 * h], y[t, 2 * h + 1] = a * c - b * s, a * s + b * c


@tw.kernel
def gated(x: tw.Tensor["M", 128], y: tw.Tensor["M", 64], *, bm=8):
    m = tw.grid(x.shape[0], bm)
    a, b = x[m, :].split(2, axis=1)
    y[m, :] = a * tw.sigmoid(b)


@tw.kernel
def flags_in_parts(x: tw.Tensor["M", "N"], y: tw.Tensor["M", 4, 8]):
    """Bools, absent ones beyond N, and halves of halves."""
    m, n = tw.grid(x.shape[0], 2), tw.axis(x.shape[1], upto=32)
    halves = (x[m, n] > 0).split(2, axis=1)
    for i, part in enumerate(quarter for half in halves for quarter in half.split(2)):
        y[m, i, :] = tw.where(part, 1.0, 2.0)


@tw.kernel
def transposed_parts(x: tw.Tensor["M", 64], y: tw.Tensor["M", 64]):
    """The parts change places, so that what is merged is no longer where it was."""
    m = tw.grid(x.shape[0], 4)
    y[m, :] = x[m, :].reshape(m, 8, 8).transpose(0, 2, 1).reshape(m, 64)


@tw.kernel
def whole_tile(x: tw.Tensor["M", 32], y: tw.Tensor["P", 128]):
    """All axes merged; rows behind the last are 0."""
    m = tw.grid(x.shape[0], 4)
    y[m.start // 4, :] = x[m, :].reshape(-1)


@tw.kernel
def sums_by_blocks(x: tw.Tensor["M", "N"], y: tw.Tensor["M", 4]):
    """A fragment that is reshaped, written, and read as it was before."""
    m = tw.grid(x.shape[0], 2)
    total = tw.zeros((m, tw.axis(64)), tw.f32)
    for n in tw.stream(x.shape[1], 64):
        total += x[m, n].fill(0.0).reshape(2, 64).reshape(m, tw.axis(64)).fill(0.0)
    before = total.reshape(m, 4, 16)
    total.set(total * 2)
    y[m, :] = before.sum(2) + total.reshape(m, 4, 16).max(2)


# -- views of tensors -----------------------------------------------------------------------------------------------
@tw.kernel
def quantise_views(x: tw.Tensor["M", "N"], q: tw.Tensor["M", "N"], s: tw.Tensor["M", "G"], *, bm=2, bg=4):
    M, N = x.shape
    xs, qs = x.reshape(M, N // 128, 128), q.reshape(M, -1, 128)
    m, g = tw.grid(s, (bm, bg))
    block = xs[m, g, :].to(tw.f32)
    top = tw.abs(block).max(2)
    s[m, g] = top / 127
    qs[m, g, :] = tw.round(block * (127 / top)[:, :, None]).to(tw.i8)


@tw.kernel
def group_norm(x: tw.Tensor["B", 12, "S"], y: tw.Tensor["B", 12, "S"], w: tw.Tensor[12], *, groups: int = 4):
    xs, ys, ws = x.reshape(-1, groups, 3, x.shape[2]), y.reshape(-1, groups, 3, y.shape[2]), w.reshape(groups, 3)
    b, g = tw.grid((x.shape[0], groups), (None, None))
    c, s = tw.axis(3), tw.axis(x.shape[2], upto=64)
    block = xs[b, g, c, s]
    off = block - block.mean()
    ys[b, g, c, s] = off * tw.rsqrt((off * off).mean() + 1e-5) * ws[g, c][:, None]


@tw.kernel
def group_norm_of_any_channels(x: tw.Tensor["B", "G*C", "S"], w: tw.Tensor["G", "C"], y: tw.Tensor["B", "G*C", "S"]):
    """Parts whose extents are dimensions: places in them are products of indices and extents."""
    (batch, _, size), (groups, channels) = x.shape, w.shape
    xs, ys = x.reshape(batch, groups, channels, size), y.reshape(batch, groups, channels, size)
    b, g = tw.grid((batch, groups), (None, None))
    c, s = tw.axis(channels, upto=16), tw.axis(size, upto=64)
    block = xs[b, g, c, s]
    off = block - block.mean()
    ys[b, g, c, s] = off * tw.rsqrt((off * off).mean() + 1e-5) * w[g, c][:, None]


@tw.kernel
def distances(x: tw.Tensor["N", "D"], y: tw.Tensor["N*N"]):
    i, j = tw.grid((x.shape[0], x.shape[0]), (8, 8))
    d = tw.axis(x.shape[1], upto=16)
    off = x[i, d][:, None, :] - x[j, d][None, :, :]
    y.reshape(x.shape[0], x.shape[0])[i, j] = (off * off).sum(2)


@tw.kernel
def split_heads(x: tw.Tensor["T", "E"], y: tw.Tensor["H", "T", 16]):
    """Where the number of heads is another tensor's extent."""
    h, t = tw.grid(y.shape[:2], (2, 4))
    y[h, t, :] = x.reshape(x.shape[0], y.shape[0], 16)[t, h, :].transpose(1, 0, 2)


@tw.kernel
def rotate_views(x: tw.Tensor["T", "D"], angle: tw.Tensor["T", "F"], y: tw.Tensor["T", "D"]):
    T, D = x.shape
    xs, ys = x.reshape(T, D // 2, 2), y.reshape(T, D // 2, 2)
    t, f = tw.grid(angle, (4, 16))
    c, s = tw.cos(angle[t, f]), tw.sin(angle[t, f])
    ys[t, f, 0] = xs[t, f, 0] * c - xs[t, f, 1] * s
    ys[t, f, 1] = xs[t, f, 0] * s + xs[t, f, 1] * c


@tw.kernel
def flattened(x: tw.Tensor["M", "N"], y: tw.Tensor["P"]):
    i = tw.grid(y, 64)
    y[i] = x.reshape(-1)[i] * 2


@tw.kernel
def neighbours_in_blocks(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"]):
    """A computed coordinate that leaves its block leads nowhere, not into the next one."""
    xs, ys = x.reshape(x.shape[0], -1, 32), y.reshape(y.shape[0], -1, 32)
    m, g = tw.grid(xs.shape[:2], (2, 2))
    ys[m, g, :] = xs[m, g, tw.axis(32) + 1].fill(-7.0)


@tw.kernel
def blocks_from_the_end(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"]):
    """Blocks of 3 x 5 in the other order: their extents are not those of threads."""
    xs, ys = x.reshape(x.shape[0], -1, 3, 5), y.reshape(y.shape[0], -1, 3, 5)
    m, g = tw.grid(xs.shape[:2], (2, 4))
    ys[m, ys.shape[1] - 1 - g, :, :] = xs[m, g, :, :]


@tw.kernel
def block_maxima(a: tw.Tensor["M", "K"], b: tw.Tensor["K", "N"], c: tw.Tensor["M", "N"]):
    """The result of a product, in blocks of columns."""
    m, n = tw.grid(c, (64, 64))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], 32):
        acc += tw.dot(a[m, k], b[k, n])
    blocks = acc.reshape(m, -1, 32)
    c[m, n] = (blocks - blocks.max(2, keepdims=True)).reshape(m, n)


@tw.kernel
def dequantised_product(x: tw.Tensor["M", "K"], w: tw.Tensor["K", "N"], s: tw.Tensor["G", "N"], y: tw.Tensor["M", "N"]):
    """Weights with a scale for each 32 rows."""
    m, n = tw.grid(y, (64, 64))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(x.shape[1], 64):
        g = k.start // 32 + tw.axis(2).index
        scaled = w[k, n].to(tw.f32).reshape(2, 32, n) * s[g, n].fill(0.0)[:, None, :]
        acc += tw.dot(x[m, k], scaled.reshape(k, n).to(tw.bf16))
    y[m, n] = acc


# -- references -----------------------------------------------------------------------------------------------------
def _quantised(x: np.ndarray, size: int, *, ratio: bool) -> Arrays:
    blocks = x.astype(np.float32).reshape(len(x), -1, size)
    top = abs(blocks).max(2)
    scaled = blocks * (np.float32(127) / top)[:, :, None] if ratio else blocks / (top / np.float32(127))[:, :, None]
    return {"q": np.rint(scaled).reshape(x.shape), "s": top / np.float32(127)}


def _normalised(x: np.ndarray) -> Arrays:
    y = np.empty_like(x)
    for first in range(0, x.shape[1], 32):
        block = x[:, first : first + 32]
        y[:, first : first + 32] = block / abs(block).max(1, keepdims=True)
    return {"y": y}


def _rotated(x: np.ndarray, angle: np.ndarray) -> Arrays:
    turned = (x[:, ::2] + 1j * x[:, 1::2]) * np.exp(1j * angle)
    return {"y": np.stack([turned.real, turned.imag], -1).reshape(x.shape)}


def _flags(x: np.ndarray) -> Arrays:
    y = np.zeros((len(x), 32))
    y[:, : x.shape[1]] = np.where(x > 0, 1.0, 2.0)
    return {"y": y.reshape(-1, 4, 8)}


def _rows_of_tiles(x: np.ndarray) -> Arrays:
    padded = np.zeros((-(-len(x) // 4) * 4, 32))
    padded[: len(x)] = x
    return {"y": padded.reshape(-1, 128)}


def _block_sums(x: np.ndarray) -> Arrays:
    padded = np.zeros((len(x), -(-x.shape[1] // 64) * 64))
    padded[:, : x.shape[1]] = x
    total = padded.reshape(len(x), -1, 64).sum(1).reshape(-1, 4, 16)
    return {"y": total.sum(2) + 2 * total.max(2)}


def _group_norm(x: np.ndarray, w: np.ndarray) -> Arrays:
    groups = x.reshape(len(x), 4, -1)
    off = groups - groups.mean(-1, keepdims=True)
    return {"y": (off / np.sqrt((off * off).mean(-1, keepdims=True) + 1e-5)).reshape(x.shape) * w[:, None]}


def _group_norm_of_any(x: np.ndarray, w: np.ndarray) -> Arrays:
    groups = x.reshape(len(x), *w.shape, -1)
    off = groups - groups.mean((2, 3), keepdims=True)
    scaled = off / np.sqrt((off * off).mean((2, 3), keepdims=True) + 1e-5) * w[:, :, None]
    return {"y": scaled.reshape(x.shape)}


def _neighbours(x: np.ndarray) -> Arrays:
    y = np.full((len(x), x.shape[1] // 32, 32), -7.0)
    y[:, :, :-1] = x.reshape(y.shape)[:, :, 1:]
    return {"y": y.reshape(x.shape)}


def _block_maxima(a: np.ndarray, b: np.ndarray) -> Arrays:
    product = a @ b
    return {
        "c": np.concatenate([p - p.max(1, keepdims=True) for p in np.split(product, range(32, b.shape[1], 32), 1)], 1)
    }


def _normal(rng: np.random.Generator, *shapes: tuple[str, tuple[int, ...]]) -> Arrays:
    return {name: rng.normal(size=shape) for name, shape in shapes}


RESHAPES: dict[str, Case] = {
    c.kernel.name: c
    for c in (
        Case(
            quantise_groups,
            ((1,), (9,)),
            lambda rng, m: _normal(rng, ("x", (m, 256))),
            lambda x: _quantised(x, 32, ratio=False),
            {"x": _BF16, "q": np.int8},
            tolerance=0,
        ),
        Case(
            normalise_blocks,
            ((1, 1), (9, 250), (5, 256), (4, 33)),
            lambda rng, m, n: _normal(rng, ("x", (m, n))),
            _normalised,
            {},
        ),
        Case(
            rotate_pairs,
            ((1,), (11,)),
            lambda rng, t: _normal(rng, ("x", (t, 64)), ("angle", (t, 32))),
            _rotated,
            {},
        ),
        Case(
            gated,
            ((1,), (11,)),
            lambda rng, m: _normal(rng, ("x", (m, 128))),
            lambda x: {"y": x[:, :64] / (1 + np.exp(-x[:, 64:]))},
            {},
        ),
        Case(flags_in_parts, ((1, 1), (5, 32), (3, 19)), lambda rng, m, n: _normal(rng, ("x", (m, n))), _flags, {}),
        Case(
            transposed_parts,
            ((1,), (7,)),
            lambda rng, m: _normal(rng, ("x", (m, 64))),
            lambda x: {"y": x.reshape(-1, 8, 8).transpose(0, 2, 1).reshape(x.shape)},
            {},
            tolerance=0,
        ),
        Case(
            whole_tile,
            ((1,), (8,), (11,)),
            lambda rng, m: _normal(rng, ("x", (m, 32))),
            _rows_of_tiles,
            {},
            tolerance=0,
        ),
        Case(sums_by_blocks, ((1, 64), (5, 100)), lambda rng, m, n: _normal(rng, ("x", (m, n))), _block_sums, {}),
        Case(
            quantise_views,
            ((1, 1), (5, 6)),
            lambda rng, m, g: _normal(rng, ("x", (m, 128 * g))),
            lambda x: _quantised(x, 128, ratio=True),
            {"x": _BF16, "q": np.int8},
            tolerance=0,
        ),
        Case(
            group_norm,
            ((1, 1), (3, 35)),
            lambda rng, b, s: _normal(rng, ("x", (b, 12, s)), ("w", (12,))),
            _group_norm,
            {},
            tolerance=1e-4,
        ),
        Case(
            group_norm_of_any_channels,
            ((1, 1, 2, 1), (2, 3, 5, 33)),
            lambda rng, b, g, c, s: _normal(rng, ("x", (b, g * c, s)), ("w", (g, c))),
            _group_norm_of_any,
            {},
            tolerance=1e-4,
        ),
        Case(
            distances,
            ((1, 1), (11, 5)),
            lambda rng, n, d: _normal(rng, ("x", (n, d))),
            lambda x: {"y": ((x[:, None] - x[None]) ** 2).sum(2).ravel()},
            {},
        ),
        Case(
            split_heads,
            ((1, 1), (7, 5)),
            lambda rng, t, h: _normal(rng, ("x", (t, 16 * h))),
            lambda x: {"y": x.reshape(len(x), -1, 16).transpose(1, 0, 2)},
            {},
            tolerance=0,
        ),
        Case(
            rotate_views,
            ((1, 1), (7, 18)),
            lambda rng, t, f: _normal(rng, ("x", (t, 2 * f)), ("angle", (t, f))),
            _rotated,
            {},
        ),
        Case(
            flattened,
            ((1, 1), (7, 33)),
            lambda rng, m, n: _normal(rng, ("x", (m, n))),
            lambda x: {"y": x.ravel() * 2},
            {},
            tolerance=0,
        ),
        Case(
            neighbours_in_blocks,
            ((1, 1), (5, 3)),
            lambda rng, m, g: _normal(rng, ("x", (m, 32 * g))),
            _neighbours,
            {},
            tolerance=0,
        ),
        Case(
            blocks_from_the_end,
            ((1, 1), (5, 7)),
            lambda rng, m, g: _normal(rng, ("x", (m, 15 * g))),
            lambda x: {"y": x.reshape(len(x), -1, 3, 5)[:, ::-1].reshape(x.shape)},
            {},
            tolerance=0,
        ),
        Case(
            block_maxima,
            ((70, 64, 128), (3, 40, 104)),
            lambda rng, m, k, n: _normal(rng, ("a", (m, k)), ("b", (k, n))),
            _block_maxima,
            {"a": _BF16, "b": _BF16},
            tolerance=2e-5,
        ),
        Case(
            dequantised_product,
            ((70, 4, 72),),
            lambda rng, m, g, n: {
                "x": rng.integers(-4, 5, (m, 32 * g)),
                "w": rng.integers(-8, 8, (32 * g, n)),
                "s": 2.0 ** rng.integers(-2, 2, (g, n)),
            },
            lambda x, w, s: {"y": x @ (w * np.repeat(s, 32, 0))},
            {"x": _BF16, "w": np.int8},
            tolerance=0,
        ),
    )
}
