"""Results of the probes' kernels in float64 (integers as they are), by NumPy."""

from __future__ import annotations

from itertools import pairwise
from math import erf

import numpy as np


def grouped(offsets: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    found = np.zeros((len(a), b.shape[1]))
    for g, each in enumerate(b):
        rows = slice(offsets[g], offsets[g + 1])
        found[rows] = a[rows] @ each.T
    return found


def along_rows(offsets: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    groups = [slice(low, high) for low, high in pairwise(offsets)]
    return np.stack([a[rows].T @ b[rows] for rows in groups])


def by_blocks(a: np.ndarray, b: np.ndarray, s: np.ndarray, t: np.ndarray) -> np.ndarray:
    wide = np.repeat(t, 64, axis=0)[: len(b)]
    steps = range(0, a.shape[1], 64)
    parts = (a[:, k : k + 64] @ b[:, k : k + 64].T * s[:, k // 64, None] * wide[:, k // 64] for k in steps)
    return np.sum(list(parts), axis=0)


def of_columns(a: np.ndarray, b: np.ndarray, s: np.ndarray) -> np.ndarray:
    steps = range(0, a.shape[1], 64)
    return np.sum([a[:, k : k + 64] @ b[:, k : k + 64].T * s[k // 64] for k in steps], axis=0)


def experts(expert: np.ndarray, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    inside = (expert >= 0) & (expert < len(w))
    return x @ w[np.where(inside, expert, 0)].transpose(0, 2, 1) * inside[:, None, None]


def gathered_product(rows: np.ndarray, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    inside = (rows >= 0) & (rows < len(x))
    return x[np.where(inside, rows, 0)] @ w.T * inside[:, None]


def over_lengths(lengths: np.ndarray, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    p = np.exp(q @ k.transpose(0, 2, 1) * 0.01) * (np.arange(k.shape[1]) < lengths[:, None])[:, None]
    return p @ v[:, :, 1] / np.maximum(p.sum(2), 1)[:, :, None]


def over_lengths_wide(lengths: np.ndarray, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    x = q @ k.transpose(0, 2, 1) * 0.01
    p = np.exp(x - x.max(2, keepdims=True)) * (np.arange(k.shape[1]) < lengths[:, None])[:, None]
    return p @ v[:, :, 1] / np.maximum(p.sum(2), 1e-30)[:, :, None]


def gathered(index: np.ndarray, x: np.ndarray) -> np.ndarray:
    inside = (index >= 0) & (index < len(x))
    return np.where(inside[:, None], x[np.where(inside, index, 0)], 2.0)


def paged(slot: np.ndarray, pool: np.ndarray) -> np.ndarray:
    inside = (slot >= 0) & (slot // 8 < len(pool))
    return np.where(inside, pool[np.where(inside, slot // 8, 0), slot % 8], 2.0) + (slot // 8 - slot % 8)


def shifted(x: np.ndarray) -> np.ndarray:
    return np.r_[[1.0] * 3, x[:-3]] - np.r_[x[2:], [5.0] * 2]


def bounded(lengths: np.ndarray, x: np.ndarray) -> np.ndarray:
    return np.array([row[: max(n, 0)].sum() for n, row in zip(lengths, x, strict=True)])


def looped(x: np.ndarray) -> np.ndarray:
    total = np.zeros(len(x))
    for begin in range(0, x.shape[1], 4096):
        total = total * 0.5 + x[:, begin : begin + 4096].sum(1)
    return total


def kept(x: np.ndarray) -> np.ndarray:
    tiles = [x[:, begin : begin + 256] for begin in range(0, x.shape[1], 256)]
    sums = np.cumsum([np.zeros(len(x)), *(t.sum(1) + t.max(1) for t in tiles[:-1])], axis=0)
    return np.concatenate([t + s[:, None] for t, s in zip(tiles, sums, strict=True)], axis=1)


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def attended(q: np.ndarray, k: np.ndarray, v: np.ndarray, scale: float) -> np.ndarray:
    return softmax(q @ k.T * scale) @ v


def attended_before(q: np.ndarray, k: np.ndarray, v: np.ndarray, scale: float) -> np.ndarray:
    """By no key behind the query."""
    return softmax(np.where(np.tri(len(q), len(k), dtype=bool), q @ k.T * scale, -np.inf)) @ v


def recurrence(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    found = np.array(b)
    for n in range(1, b.shape[1]):
        found[:, n] += a[:, n] * found[:, n - 1]
    return found


def philox(x: np.ndarray) -> np.ndarray:
    """The first word of each counter, in Python's integers."""

    def first(a: int) -> int:
        b, c, d, key, other = 1, 2, 3, 0x9ABCDEF0, 0x12345678
        for _ in range(10):
            p, q = a * 0xD2511F53, c * 0xCD9E8D57
            a, b, c, d = q >> 32 ^ b ^ key, q & 0xFFFFFFFF, p >> 32 ^ d ^ other, p & 0xFFFFFFFF
            key, other = (key + 0x9E3779B9) & 0xFFFFFFFF, (other + 0xBB67AE85) & 0xFFFFFFFF
        return a

    return np.array([first(int(n) & 0xFFFFFFFF) for n in x], np.uint32).view(np.int32)


def ints(x: np.ndarray, y: np.ndarray, by: int) -> np.ndarray:
    return np.where(np.arange(len(x)) < 100, (x * by - y) & 255, (x << 3) + (y >> 2))


def to_i8(x: np.ndarray) -> np.ndarray:
    return np.clip(np.trunc(np.float32(100) * x.astype(np.float32)), -128, 127)


def divided(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return x // y + x % y


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def unsigned(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.minimum(x, y) // 7 + np.maximum(x, y) % 10 + (y >> 3) - (x << 30)


def bits_of(x: np.ndarray) -> np.ndarray:
    words = x.astype(np.float32).view(np.uint32)
    return ((words ^ np.uint32(1 << 31)) & np.uint32(0xFFFF0000)).view(np.float32).astype(np.float64)


def from_row(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    begins = np.arange(len(a)) // 64 * 64
    return (a * (np.arange(a.shape[1]) >= begins[:, None])) @ b.T


def to_row(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    ends = np.minimum((np.arange(len(a)) // 64 + 1) * 64, len(a))
    return (a * (np.arange(a.shape[1]) < ends[:, None])) @ b.T


def activated(a: np.ndarray, b: np.ndarray, r: np.ndarray) -> np.ndarray:
    x = a @ b.T + np.arange(len(b)) * 0.125
    return x * 0.5 * (1 + np.vectorize(erf)(x / 2**0.5)) + r


def smoothed(a: np.ndarray, b: np.ndarray, bias: np.ndarray) -> np.ndarray:
    x = a @ b.T + bias
    return x * 0.5 * (1 + np.vectorize(erf)(x / 2**0.5))


def weighted(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    p = np.exp(q @ k.T * 0.01)
    return p @ v / np.maximum(p.sum(1), 1)[:, None]


def by_groups(offsets: np.ndarray, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Rows in no group are 0."""
    y = np.zeros_like(x)
    for g, (begin, end) in enumerate(pairwise(offsets.astype(int))):
        y[begin:end] = x[begin:end] * w[g]
    return y


def distances(x: np.ndarray) -> np.ndarray:
    """How far from each element of a row the farthest one is."""
    return np.abs(x[:, :, None] - x[:, None, :]).max(2)
