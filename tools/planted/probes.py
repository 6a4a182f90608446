"""The kernels on which bugs are looked for: small ones, which together use every part of the compiler."""

# ruff: noqa: F821, UP037 - dimension names are strings
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import ml_dtypes
import numpy as np

import tilewright as tw
from tilewright.base.dtypes import DTYPES
from tilewright.base.expr import parse
from tilewright.compiler.requests import Request, default_facts
from tilewright.hw.target import SM90A
from tilewright.lang.schedule import Schedule
from tilewright.lang.signature import Signature
from tilewright.schedule.facts import Facts, TensorFacts

Arrays = dict[str, np.ndarray]
NUMPY = {
    "i64": np.int64,
    "bf16": ml_dtypes.bfloat16,
    "f16": np.float16,
    "f32": np.float32,
    "i32": np.int32,
    "i8": np.int8,
}
NUMPY |= {"e4m3": ml_dtypes.float8_e4m3fn}


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
    v: tw.Tensor["B", "T", 64],
    o: tw.Tensor["B", "M", 64],
    *,
    bq=64,
    bk=64,
):
    b, m = tw.grid(q, (None, bq))
    query, total, acc = q[b, m], tw.zeros((m,), tw.f32), tw.zeros((m, 64), tw.f32)
    for n in tw.stream(k.shape[1], bk, until=lengths[b]):
        p = tw.exp(tw.dot(query, k[b, n].T) * 0.01)
        total.set(total + p.sum(1))
        acc += tw.dot(p.to(q.dtype), v[b, n])
    o[b, m] = acc / tw.maximum(total, 1.0)[:, None]


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


def _grouped(offsets: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    found = np.zeros((len(a), b.shape[1]))
    for g, each in enumerate(b):
        rows = slice(offsets[g], offsets[g + 1])
        found[rows] = a[rows] @ each.T
    return found


def _experts(expert: np.ndarray, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    inside = (expert >= 0) & (expert < len(w))
    return x @ w[np.where(inside, expert, 0)].transpose(0, 2, 1) * inside[:, None, None]


def _over_lengths(lengths: np.ndarray, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    p = np.exp(q @ k.transpose(0, 2, 1) * 0.01) * (np.arange(k.shape[1]) < lengths[:, None])[:, None]
    return p @ v / np.maximum(p.sum(2), 1)[:, :, None]


def _gathered(index: np.ndarray, x: np.ndarray) -> np.ndarray:
    inside = (index >= 0) & (index < len(x))
    return np.where(inside[:, None], x[np.where(inside, index, 0)], 2.0)


def _paged(slot: np.ndarray, pool: np.ndarray) -> np.ndarray:
    inside = (slot >= 0) & (slot // 8 < len(pool))
    return np.where(inside, pool[np.where(inside, slot // 8, 0), slot % 8], 2.0) + (slot // 8 - slot % 8)


def _shifted(x: np.ndarray) -> np.ndarray:
    return np.r_[[1.0] * 3, x[:-3]] - np.r_[x[2:], [5.0] * 2]


def _bounded(lengths: np.ndarray, x: np.ndarray) -> np.ndarray:
    return np.array([row[: max(n, 0)].sum() for n, row in zip(lengths, x, strict=True)])


def _looped(x: np.ndarray) -> np.ndarray:
    total = np.zeros(len(x))
    for begin in range(0, x.shape[1], 4096):
        total = total * 0.5 + x[:, begin : begin + 4096].sum(1)
    return total


def _kept(x: np.ndarray) -> np.ndarray:
    tiles = [x[:, begin : begin + 256] for begin in range(0, x.shape[1], 256)]
    sums = np.cumsum([np.zeros(len(x)), *(t.sum(1) + t.max(1) for t in tiles[:-1])], axis=0)
    return np.concatenate([t + s[:, None] for t, s in zip(tiles, sums, strict=True)], axis=1)


def _softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def _attended(q: np.ndarray, k: np.ndarray, v: np.ndarray, scale: float) -> np.ndarray:
    return _softmax(q @ k.T * scale) @ v


def _attended_before(q: np.ndarray, k: np.ndarray, v: np.ndarray, scale: float) -> np.ndarray:
    """By no key behind the query."""
    return _softmax(np.where(np.tri(len(q), len(k), dtype=bool), q @ k.T * scale, -np.inf)) @ v


def _recurrence(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    found = np.array(b)
    for n in range(1, b.shape[1]):
        found[:, n] += a[:, n] * found[:, n - 1]
    return found


def _philox(x: np.ndarray) -> np.ndarray:
    """The first word of each counter, in Python's integers."""

    def first(a: int) -> int:
        b, c, d, key, other = 1, 2, 3, 0x9ABCDEF0, 0x12345678
        for _ in range(10):
            p, q = a * 0xD2511F53, c * 0xCD9E8D57
            a, b, c, d = q >> 32 ^ b ^ key, q & 0xFFFFFFFF, p >> 32 ^ d ^ other, p & 0xFFFFFFFF
            key, other = (key + 0x9E3779B9) & 0xFFFFFFFF, (other + 0xBB67AE85) & 0xFFFFFFFF
        return a

    return np.array([first(int(n) & 0xFFFFFFFF) for n in x], np.uint32).view(np.int32)


def _ints(x: np.ndarray, y: np.ndarray, by: int) -> np.ndarray:
    return np.where(np.arange(len(x)) < 100, (x * by - y) & 255, (x << 3) + (y >> 2))


def _to_i8(x: np.ndarray) -> np.ndarray:
    return np.clip(np.trunc(np.float32(100) * x.astype(np.float32)), -128, 127)


def _divided(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return x // y + x % y


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


@dataclass(frozen=True)
class Probe:
    """A kernel, what it is compiled for, and arguments on which its result is known.

    ``dims``: only the class that takes these extents is compiled. ``reference`` takes inputs in f64 (ints as they are)
    and scalars by name, and returns the output, the last tensor. ``runs`` are extents to run with.
    """

    kernel: Any
    reference: Callable[..., np.ndarray]
    runs: tuple[Mapping[str, int], ...]
    dtypes: Mapping[str, str] = field(default_factory=dict[str, str])
    dtype: str = "bf16"
    dims: Mapping[str, int] | None = None
    align: int = 16
    schedule: Schedule = field(default_factory=Schedule)
    scalars: Mapping[str, float | int] = field(default_factory=dict[str, "float | int"])
    keywords: Mapping[str, int] = field(default_factory=dict[str, int])
    index_bits: int = 32
    shift: float = 0.0
    """Added to all inputs."""
    peers: bool = False
    """Rows of all tensors start alike: as far from a boundary as the first tensor's."""
    given: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    """Integers that a tensor holds, instead of any."""
    unlowered: bool = False
    """Transport IR is not compared with Tile IR: the comparison knows no loads at loaded coordinates of roles, and no
    scans by functions of the user's."""
    undecidable: bool = False
    """PTX is not compared: the comparison takes more memory than a machine has."""

    @property
    def request(self) -> Request:
        """What is compiled."""
        kernel = self.kernel
        dtypes = {t.name: DTYPES[self.dtypes.get(t.name, self.dtype)] for t in kernel.tensors}
        facts = default_facts(kernel)
        if self.align != 16:
            first = kernel.tensors[0].name if self.peers else ""
            own = ((t.name, t.name if t.name == first else first, len(t.dims) - 1) for t in kernel.tensors)
            facts = Facts(tuple((n, TensorFacts(unit, self.align, "" if n == p else p)) for n, p, unit in own))
        signature = Signature.of(dtypes, static=None, keywords=self.keywords)
        return Request(kernel, signature, replace(facts, index_bits=self.index_bits), SM90A, self.schedule)

    def arrays(self, extents: Mapping[str, int]) -> tuple[Arrays, np.ndarray]:
        """Arguments for a run, the output poisoned, and the expected output."""
        rng, made = np.random.default_rng(0), dict[str, np.ndarray]()
        *inputs, output = self.kernel.tensors
        for tensor in (*inputs, output):
            kind = NUMPY[self.dtypes.get(tensor.name, self.dtype)]
            shape = [parse(d).evaluate(dict(extents)) if isinstance(d, str) else d for d in tensor.dims]
            values = self.given.get(tensor.name) or (
                rng.integers(-1000, 1000, shape)
                if kind in (np.int32, np.int64)
                else rng.normal(size=shape) + self.shift
            )
            made[tensor.name] = np.asarray(values).astype(kind)
        wide = {t.name: a if a.dtype.kind == "i" else a.astype(np.float64) for t in inputs for a in (made[t.name],)}
        expected = self.reference(**wide, **self.scalars)
        made[output.name] = np.full(expected.shape, -77, made[output.name].dtype)
        return made, expected


_PRODUCT = ({"M": 72, "N": 80, "K": 336}, {"M": 65, "N": 40, "K": 48})
_ONE = Schedule(consumers=1, stages=4)

PROBES: dict[str, Probe] = {
    "add": Probe(add, lambda x, y: x + y, ({"M": 1030}, {"M": 5})),
    "ints": Probe(ints, _ints, ({"M": 600},), dtype="i32", scalars={"by": 3}),
    "floats": Probe(
        floats,
        lambda x, y, by: np.where(x > y, x * by - y, np.maximum(abs(x), np.exp(y))),
        ({"M": 600},),
        scalars={"by": 1.5},
    ),
    "fast": Probe(fast, lambda x, y: np.exp(x) * y + x / (1 + np.exp(y)), ({"M": 600},)),
    "row_max": Probe(row_max, lambda x: x.max(1), ({"M": 3, "N": 304},), dims={"M": 3, "N": 304}, shift=-9.0),
    "row_sum": Probe(row_sum, lambda x: x.sum(1), ({"M": 3, "N": 4000},), dims={"M": 3, "N": 4000}),
    "softmax": Probe(softmax, _softmax, ({"M": 3, "N": 2040},), dims={"M": 3, "N": 2040}),
    "argmax": Probe(
        argmax,
        lambda x: x.argmax(1),
        ({"M": 3, "N": 304},),
        dims={"M": 3, "N": 304},
        dtypes={"y": "i32"},
        undecidable=True,
    ),
    "scanned": Probe(scanned, lambda x: x.cumsum(1), ({"M": 3, "N": 2500},), dtype="f32"),
    "linear": Probe(linear, _recurrence, ({"M": 3, "N": 48},), dtype="f32", unlowered=True),
    "ordered": Probe(ordered, lambda x: np.sort(x, 1), ({"M": 3, "N": 304},), dtype="f16"),
    "greatest": Probe(greatest, lambda x: -np.sort(-x, 1)[:, :8], ({"M": 3, "N": 48},), dtype="f16"),
    "binned": Probe(
        binned,
        lambda x: np.stack([np.bincount(row & 63, minlength=64)[:40] for row in x.astype(np.int64)]),
        ({"M": 3, "N": 300},),
        dtype="i32",
    ),
    "placed": Probe(
        placed,
        lambda x: np.argsort(-x, 1, kind="stable")[:, :8],
        ({"M": 3, "N": 48},),
        dtype="f16",
        dtypes={"z": "i32"},
    ),
    "drawn": Probe(drawn, _philox, ({"M": 600},), dtype="i32"),
    "streamed": Probe(streamed, lambda x: x.sum(1), ({"M": 3, "N": 5200},)),
    "normed": Probe(
        normed, lambda x, y: y + x.sum(1)[:, None], ({"M": 3, "N": 120},), dims={"M": 3, "N": 120}, dtype="f32"
    ),
    "looped": Probe(looped, _looped, ({"M": 2, "N": 9000},)),
    "gathered": Probe(gathered, _gathered, ({"M": 200, "V": 300, "N": 72},), dtypes={"index": "i32"}),
    "paged": Probe(paged, _paged, ({"M": 600, "P": 90},), dtype="f32", dtypes={"slot": "i32"}),
    "binned_from": Probe(
        binned_from,
        lambda x: np.stack([np.bincount(row[(row >= 100) & (row < 164)] - 100, minlength=64) for row in x]),
        ({"M": 3, "N": 300},),
        dtype="i32",
    ),
    "shifted": Probe(shifted, _shifted, ({"M": 600}, {"M": 5}), dtype="f32"),
    "bounded": Probe(bounded, _bounded, ({"M": 9, "N": 200},), dtypes={"lengths": "i32", "y": "f32"}),
    "over_lengths": Probe(
        over_lengths, _over_lengths, ({"B": 5, "M": 70, "T": 200},), dtypes={"lengths": "i32"}, undecidable=True
    ),
    "grouped": Probe(
        grouped,
        _grouped,
        ({"G": 4, "T": 150, "N": 72, "K": 136},),
        dtypes={"offsets": "i32"},
        given={"offsets": (0, 5, 5, 70, 130)},
        unlowered=True,
        undecidable=True,
    ),
    "experts": Probe(
        experts,
        _experts,
        ({"B": 4, "E": 3, "M": 70, "N": 72, "K": 136},),
        dtypes={"expert": "i64"},
        given={"expert": (2, -1, 3, 2**32)},
        unlowered=True,
        undecidable=True,
    ),
    "experts_by_threads": Probe(
        experts,
        _experts,
        ({"B": 4, "E": 3, "M": 70, "N": 72, "K": 132},),
        dtypes={"expert": "i64"},
        align=8,
        given={"expert": (2, -1, 3, 2**32)},
        schedule=Schedule(staged=False),
        unlowered=True,
        undecidable=True,
    ),
    "kept": Probe(kept, _kept, ({"M": 3, "N": 600},)),
    "add_half": Probe(add, lambda x, y: x + y, ({"M": 1030},), align=8),
    "skewed": Probe(softmax, _softmax, ({"M": 3, "N": 2041},), dims={"M": 3, "N": 2041}, align=2, peers=True),
    "columns": Probe(
        columns,
        lambda x: x - np.add.reduceat(x, range(0, len(x), 16)).repeat(16, 0)[: len(x)],
        ({"M": 40, "N": 72},),
    ),
    "scalars": Probe(scalars, lambda x, k: x * k * k, ({"M": 600},), dtype="i64", scalars={"k": 60000}),
    "captured": Probe(captured, lambda x, x1: x * 3 + x1, ({"M": 600},), dtype="f32", scalars={"x1": 100.0}),
    "roots": Probe(roots, lambda x, y: np.sqrt(abs(x)) / y, ({"M": 600},), dtype="f32"),
    "turned_wide": Probe(turned, lambda x: x.T, ({"M": 72, "N": 136},), dtype="f32"),
    "casts": Probe(casts, _to_i8, ({"M": 600},), dtype="f32", dtypes={"y": "i8"}),
    "division": Probe(division, _divided, ({"M": 600},), dtype="i32"),
    "add_wide": Probe(add, lambda x, y: x + y, ({"M": 1030},), index_bits=64),
    "turned": Probe(turned, lambda x: x.T, ({"M": 72, "N": 136},)),
    "nt": Probe(nt, lambda a, b: a @ b.T, _PRODUCT, schedule=_ONE),
    "tn": Probe(tn, lambda a, b: a.T @ b, ({"M": 72, "N": 80, "K": 333},), schedule=_ONE),
    "tall": Probe(
        nt,
        lambda a, b: a @ b.T,
        ({"M": 200, "N": 80, "K": 80},),
        keywords={"bm": 256},
        schedule=Schedule(consumers=2, stages=4),
    ),
    "wide": Probe(nt, lambda a, b: a @ b.T, ({"M": 72, "N": 136, "K": 80},), keywords={"bn": 128}, schedule=_ONE),
    "nt_f32": Probe(nt, lambda a, b: a @ b.T, _PRODUCT, dtypes={"c": "f32"}, schedule=_ONE),
    "deep": Probe(nt, lambda a, b: a @ b.T, _PRODUCT, keywords={"bk": 128}, schedule=_ONE),
    "odd": Probe(odd, lambda a, b: a @ b.T, _PRODUCT, schedule=_ONE),
    "single": Probe(single, lambda a, b: a @ b.T, ({"M": 72, "N": 80},), schedule=Schedule(consumers=1)),
    "by_hand": Probe(by_hand, lambda a, b: 2 * a @ b.T, ({"M": 72, "N": 80, "K": 96},), schedule=_ONE),
    "by_hand_two": Probe(
        by_hand,
        lambda a, b: 2 * a @ b.T,
        ({"M": 136, "N": 80, "K": 96},),
        keywords={"bm": 128},
        schedule=Schedule(consumers=2, stages=4),
    ),
    "ordinary": Probe(ordinary, lambda a, b: a @ b.T, ({"M": 40, "N": 36, "K": 40},), dtype="f32"),
    "nt_fp8": Probe(nt, lambda a, b: a @ b.T, _PRODUCT, dtype="e4m3", dtypes={"c": "bf16"}, schedule=_ONE),
    "cluster": Probe(nt, lambda a, b: a @ b.T, _PRODUCT, schedule=Schedule(consumers=1, stages=4, cluster=(2, 1))),
    "cluster_tn": Probe(
        tn,
        lambda a, b: a.T @ b,
        ({"M": 264, "N": 200, "K": 112},),
        keywords={"bm": 128, "bn": 128},
        schedule=Schedule(consumers=2, stages=3, cluster=(2, 1)),
    ),
    "pingpong": Probe(nt, lambda a, b: a @ b.T, _PRODUCT, schedule=Schedule(mode="pingpong", stages=4)),
    "gated": Probe(
        gated,
        lambda x, v, w: (g := x @ v.T) * _sigmoid(g) * (x @ w.T),
        ({"M": 72, "N": 80, "K": 96},),
        schedule=_ONE,
    ),
    "attention": Probe(
        attention,
        _attended,
        ({"S": 72, "T": 264},),
        schedule=Schedule(consumers=1, stages=2),
        scalars={"scale": 0.125},
    ),
    "attention_wide": Probe(
        attention_wide,
        _attended,
        ({"S": 136, "T": 264}, {"S": 136, "T": 72}),
        schedule=Schedule(consumers=2),
        scalars={"scale": 0.125},
    ),
    "attention_causal": Probe(
        attention_wide,
        _attended_before,
        ({"S": 136, "T": 264},),
        schedule=Schedule(consumers=2),
        scalars={"scale": 0.125},
        keywords={"causal": True},
        undecidable=True,
    ),
    "loaded": Probe(
        nt,
        lambda a, b: a @ b.T,
        ({"M": 72, "N": 80, "K": 101},),
        align=2,
        schedule=Schedule(consumers=1, stages=4, staged=False),
    ),
    "fed": Probe(nt, lambda a, b: a @ b.T, _PRODUCT, align=8, schedule=Schedule(consumers=1, stages=4, staged=False)),
    "staged": Probe(
        nt,
        lambda a, b: a @ b.T,
        ({"M": 72, "N": 80, "K": 333},),
        align=2,
        schedule=Schedule(consumers=1, stages=4, staged=True),
    ),
}
