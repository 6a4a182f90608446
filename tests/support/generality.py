"""Kernels unlike the examples, each with inputs and a NumPy reference."""

# ruff: noqa: F821, UP037 - dimension names are strings

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import erf
from typing import Any

import ml_dtypes
import numpy as np

import tilewright as tw
from support.arrangement import arranged

Arrays = dict[str, np.ndarray]


@tw.kernel
def two_streams(x: tw.Tensor["M", "N"], w: tw.Tensor["M", "K"], y: tw.Tensor["M"], *, bm=tw.auto, bn=tw.auto, bk=32):
    """Two streams after each other, over different axes."""
    m = tw.grid(y, bm)
    total, top = tw.zeros(m, tw.f32), tw.full(m, -tw.inf, tw.f32)
    for n in tw.stream(x.shape[1], bn):
        total += x[m, n].sum(1)
    for k in tw.stream(w.shape[1], bk):
        top.set(tw.maximum(top, (w[m, k] * total[:, None]).max(1)))
    y[m] = top - total


@tw.kernel
def nested_streams(x: tw.Tensor["M", "A", "B"], y: tw.Tensor["M", "A"], z: tw.Tensor["M"], *, bm=4, ba=4, bb=8):
    """A stream in a stream, with a store between them and one after both."""
    m = tw.grid(z, bm)
    grand = tw.zeros(m, tw.f32)
    for a in tw.stream(x.shape[1], ba):
        inner = tw.zeros((m, a), tw.f32)
        for b in tw.stream(x.shape[2], bb):
            inner += x[m, a, b].sum(2)
        y[m, a] = inner
        grand += (inner * inner).sum(1)
    z[m] = tw.sqrt(grand)


@tw.kernel
def negative_max(x: tw.Tensor["M", "N"], y: tw.Tensor["M"], low: tw.Tensor["M"], *, bm=tw.auto):
    """Padding must not win over negative rows, nor over positive ones."""
    m, n = tw.grid(y, bm), tw.axis(x.shape[1], upto=512)
    row = x[m, n]
    y[m], low[m] = row.max(1), (-row).min(1)


@tw.kernel
def three_outputs(
    x: tw.Tensor["M", "N"],
    centred: tw.Tensor["M", "N"],
    mean: tw.Tensor["M"],
    spread: tw.Tensor["M"],
    *,
    bm=tw.auto,
    upto=1024,
):
    """A row with three outputs of different dtypes."""
    m, n = tw.grid(x.shape[0], bm), tw.axis(x.shape[1], upto=upto)
    row = x[m, n].to(tw.f32)
    average = row.mean(1)
    off = row - average[:, None]
    centred[m, n], mean[m], spread[m] = off, average, row.max(1) - row.min(1)


@tw.kernel
def grouped_heads(
    q: tw.Tensor["H", "S", "D"], k: tw.Tensor["G", "S", "D"], y: tw.Tensor["H", "S"], *, group: int = 1, bs=tw.auto
):
    """Heads that share keys: h // group."""
    h, s = tw.grid(y, (None, bs))
    d = tw.axis(q.shape[2], upto=128)
    y[h, s] = (q[h, s, d] * k[h // group, s, d]).sum(1)


@tw.kernel
def in_place(x: tw.Tensor["M", "N"], scale: tw.Tensor["N"], *, factor: tw.f32, bm=tw.auto, bn=tw.auto):
    """Read and written at the same ranges."""
    m, n = tw.grid(x, (bm, bn))
    x[m, n] = x[m, n] * scale[n][None, :] + factor


@tw.kernel
def mixed_dtypes(
    x: tw.Tensor["M", "N"], pick: tw.Tensor["M"], y: tw.Tensor["M"], hits: tw.Tensor["M", "N"], *, bm=tw.auto
):
    """f16 in, i32 indices, f32 and bool out."""
    m, n = tw.grid(y, bm), tw.axis(x.shape[1], upto=256)
    chosen = n.index[None, :] == pick[m][:, None]
    hits[m, n] = chosen
    y[m] = tw.where(chosen, x[m, n].to(tw.f32), 0.0).sum(1)


@tw.kernel
def outer_axis(x: tw.Tensor["A", "B", "C"], y: tw.Tensor["B", "C"], *, ba=4, bb=tw.auto, bc=tw.auto):
    """A reduction over the outermost axis."""
    b, c = tw.grid(y, (bb, bc))
    total = tw.zeros((b, c), tw.f32)
    for a in tw.stream(x.shape[0], ba):
        total += x[a, b, c].sum(0)
    y[b, c] = total


@tw.kernel
def middle_axis(x: tw.Tensor["A", "B", "C"], y: tw.Tensor["A", "C"], at: tw.Tensor["A", "C"], *, ba=2, bc=16):
    """A tile of three axes reduced over the one in the middle, by value and by place."""
    a, c = tw.grid(y, (ba, bc))
    b = tw.axis(x.shape[1], upto=64)
    tile = x[a, b, c]
    y[a, c], at[a, c] = tile.min(1), tile.argmax(1)


@tw.kernel
def outer_product(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N", "N"], *, bm=2, upto=32):
    """A row times itself: one axis of one value is spread two ways."""
    m, n = tw.grid(x.shape[0], bm), tw.axis(x.shape[1], upto=upto)
    row = x[m, n]
    y[m, n, n] = row[:, :, None] * row[:, None, :]


@tw.kernel
def symmetric(x: tw.Tensor["N", "N"], y: tw.Tensor["N", "N"], *, upto=48):
    """A tile plus its own transpose."""
    _ = tw.grid(1, None)
    n = tw.axis(x.shape[0], upto=upto)
    tile = x[n, n]
    y[n, n] = tile + tile.T


@tw.kernel
def running_max(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"], *, bm=tw.auto, bn=16):
    """The greatest so far after every block, stored inside the stream."""
    m = tw.grid(x.shape[0], bm)
    top = tw.full(m, -tw.inf, tw.f32)
    for n in tw.stream(x.shape[1], bn):
        row = x[m, n]
        before = top.copy()
        top.set(tw.maximum(top, row.max(1)))
        y[m, n] = tw.maximum(row, before[:, None]) - top[:, None]


@tw.kernel
def causal_rows(x: tw.Tensor["N", "N"], y: tw.Tensor["N"], *, window: tw.i32 = 5, b=8):
    """A mask that is affine in the indices, a stream that ends at the diagonal."""
    m = tw.grid(y, b)
    total = tw.zeros(m, tw.f32)
    for t in tw.stream(x.shape[1], b, until=m.stop):
        i, j = m.index[:, None], t.index[None, :]
        total += tw.where((i >= j) & (i - j < window), x[m, t], 0.0).sum(1)
    y[m] = total


@tw.kernel
def integers(a: tw.Tensor["M"], b: tw.Tensor["M"], y: tw.Tensor["M"], z: tw.Tensor["M"], *, shift: tw.i32 = 3, bm=64):
    """// and % of either sign, shifts, bits, in 32 and 64 bits."""
    m = tw.grid(y, bm)
    p, q = a[m], b[m]
    y[m] = (p // q) * 1000 + p % q + ((p << 2) >> shift) + ((p & q) ^ (p | 5))
    z[m] = (p.to(tw.i64) * 1000003) // (q.to(tw.i64) * 7) + (m.index % 5).to(tw.i64)


@tw.kernel
def histogram_like(x: tw.Tensor["M", "N"], y: tw.Tensor["N"], *, bm=8, bn=32):
    """Several programs add into one row."""
    m, n = tw.grid(x, (bm, bn))
    tw.reduce_add(y, n, x[m, n].sum(0))


@tw.kernel
def unary_functions(x: tw.Tensor["M"], y: tw.Tensor["M", 16], *, bm=32):
    """Every function of one element."""
    m = tw.grid(x.shape[0], bm)
    v = x[m]
    functions = (tw.exp, tw.exp2, tw.log, tw.log2, tw.rsqrt, tw.sqrt, tw.tanh, tw.sigmoid, tw.erf, tw.abs, tw.log1p)
    for i, fn in enumerate((*functions, tw.expm1, tw.floor, tw.ceil, tw.round)):
        y[m, i] = fn(v)
    y[m, 15] = -v


@tw.kernel
def circular_functions(x: tw.Tensor["M"], y: tw.Tensor["M", 14], *, bm=32):
    """Circles, hyperbolas and their inverses, of arguments between -1 and 1 and of large ones."""
    m = tw.grid(x.shape[0], bm)
    v = x[m]
    large = v * 3e7
    y[m, 0], y[m, 1], y[m, 2] = tw.sin(v) + tw.cos(large), tw.cos(v) - tw.sin(large), tw.tan(v)
    functions = (tw.asin, tw.acos, tw.atan, tw.sinh, tw.cosh, tw.asinh, tw.atanh, tw.cbrt, tw.trunc)
    for i, fn in enumerate(functions):
        y[m, 3 + i] = fn(v)
    y[m, 12], y[m, 13] = tw.acosh(1 + tw.abs(v)), tw.log10(1 + tw.abs(v))


@tw.kernel
def functions_of_two(a: tw.Tensor["M"], b: tw.Tensor["M"], y: tw.Tensor["M", 9], *, bm=32):
    """Powers, angles, remainders of either sign, bounds."""
    m = tw.grid(a.shape[0], bm)
    p, q = a[m], b[m]
    y[m, 0], y[m, 1], y[m, 2] = tw.abs(p) ** q, tw.atan2(p, q), tw.hypot(p, q)
    y[m, 3], y[m, 4], y[m, 5] = tw.fmod(p, q), p % q, p // q
    y[m, 6], y[m, 7] = tw.fma(p * p, p, q**-2), tw.clamp(p, -0.5, q)
    y[m, 8] = tw.where(tw.isfinite(p / tw.trunc(q)), tw.sign(p), 2 * tw.square(q))


@tw.kernel
def truths(x: tw.Tensor["M", "N"], product: tw.Tensor["M"], least: tw.Tensor["M"], flags: tw.Tensor["M", 2], *, bm=4):
    """Products, places of the least element, whether any or all elements differ from 0."""
    m = tw.grid(x.shape[0], bm)
    v = x[m, tw.axis(x.shape[1], upto=128)]
    product[m], least[m] = (v * 0.25 + 1).prod(1), v.argmin(1)
    flags[m, 0], flags[m, 1] = (v < 0).any(1), v.all(1)


@tw.kernel
def codes(code: tw.Tensor[16], q: tw.Tensor["M"], x: tw.Tensor["M"], y: tw.Tensor["M"]):
    """A table in a tile, whose places may be outside."""
    m = tw.grid(x.shape[0], 32)
    y[m] = tw.take(code[tw.axis(16)], q[m]) * x[m]


@tw.kernel
def scalar_programs(x: tw.Tensor["M", "N"], y: tw.Tensor["M"], *, n: tw.i32 = 0):
    """Programs of one element, a column named by a scalar."""
    i = tw.grid(x.shape[0], None)
    y[i] = x[i, 0] * 2 + n


@tw.kernel
def nested_state(x: tw.Tensor["M", "A", "B"], y: tw.Tensor["M"], *, bm=4, ba=2, bb=4):
    """State of the outer stream read and written by the inner one."""
    m = tw.grid(y, bm)
    total, top = tw.zeros(m, tw.f32), tw.full(m, -tw.inf, tw.f32)
    for a in tw.stream(x.shape[1], ba):
        for b in tw.stream(x.shape[2], bb):
            tile = x[m, a, b]
            total += tile.sum(2).sum(1)
            top.set(tw.maximum(top, tile.max(2).max(1)))
        total *= 0.5
    y[m] = total + top


@dataclass(frozen=True)
class Case:
    """``inputs`` by name for given extents; ``reference`` gives the outputs in the dtype of ``outputs``."""

    kernel: tw.Kernel
    shapes: tuple[tuple[int, ...], ...]
    inputs: Callable[..., Arrays]
    reference: Callable[..., Arrays]
    dtypes: Mapping[str, Any]
    scalars: Mapping[str, Any] = field(default_factory=dict)
    tolerance: float = 1e-5

    def arrays(self, shape: tuple[int, ...]) -> tuple[Arrays, Arrays]:
        """All arguments, outputs poisoned; the expected outputs."""
        rng = np.random.default_rng(list(shape))
        dtypes = {n: np.dtype(d) for n, d in self.dtypes.items()}
        given = {n: np.asarray(a).astype(dtypes.get(n, np.float32)) for n, a in self.inputs(rng, *shape).items()}
        wide = {n: a.astype(np.float64) if a.dtype.kind not in "iub" else a for n, a in given.items()}
        expected = self.reference(**wide, **self.scalars)
        arrays = dict(given)
        for name, value in expected.items():
            dtype = dtypes.get(name, np.dtype(np.float32))
            if name not in arrays:  # else updated in place
                fill = 77 if dtype.kind in "iu" else dtype.kind == "b" or np.nan
                arrays[name] = np.full(value.shape, fill, dtype)
        return arrays, expected


def _normal(**dims: str) -> Callable[..., Arrays]:
    def make(rng: np.random.Generator, *shape: int) -> Arrays:
        return {n: rng.normal(size=[shape["ABCD".index(d)] for d in axes]) for n, axes in dims.items()}

    return make


def _two_streams(x: np.ndarray, w: np.ndarray) -> Arrays:
    total = x.sum(1)
    return {"y": (w * total[:, None]).max(1) - total}


def _running_max(x: np.ndarray) -> Arrays:
    blocks = [x[:, s : s + 16] for s in range(0, x.shape[1], 16)]
    top, out = np.full(len(x), -np.inf), []
    for block in blocks:
        new = np.maximum(top, block.max(1))
        out.append(np.maximum(block, top[:, None]) - new[:, None])
        top = new
    return {"y": np.concatenate(out, 1)}


def _causal(x: np.ndarray, window: int) -> Arrays:
    i, j = np.indices(x.shape)
    return {"y": np.where((i >= j) & (i - j < window), x, 0).sum(1)}


def _integers(a: np.ndarray, b: np.ndarray, shift: int) -> Arrays:
    y = (a // b) * 1000 + a % b + ((a << 2) >> shift) + ((a & b) ^ (a | 5))
    z = (a.astype(np.int64) * 1000003) // (b.astype(np.int64) * 7) + np.arange(len(a)) % 5
    return {"y": y, "z": z}


def _functions(x: np.ndarray) -> Arrays:
    parts = [np.exp, np.exp2, np.log, np.log2, lambda v: v**-0.5, np.sqrt, np.tanh, lambda v: 1 / (1 + np.exp(-v))]
    more = (f(x) for f in (np.log1p, np.expm1, np.floor, np.ceil, np.rint))
    return {"y": np.stack([*(f(x) for f in parts), np.array([erf(v) for v in x]), abs(x), *more, -x], 1)}


def _circular(x: np.ndarray) -> Arrays:
    large = (x.astype(np.float32) * np.float32(3e7)).astype(np.float64)
    first = [np.sin(x) + np.cos(large), np.cos(x) - np.sin(large), np.tan(x)]
    more = [np.arcsin, np.arccos, np.arctan, np.sinh, np.cosh, np.arcsinh, np.arctanh, np.cbrt, np.trunc]
    raised = (1 + abs(x.astype(np.float32))).astype(np.float64)
    return {"y": np.stack([*first, *(f(x) for f in more), np.arccosh(raised), np.log10(raised)], 1)}


def _of_two(a: np.ndarray, b: np.ndarray) -> Arrays:
    single = a.astype(np.float32), b.astype(np.float32)
    remainders = [f(*single) for f in (np.fmod, np.mod, np.floor_divide)]
    with np.errstate(all="ignore"):
        chosen = np.where(np.isfinite(a / np.trunc(b)), np.sign(a), 2 * b * b)
    first = [abs(a) ** b, np.arctan2(a, b), np.hypot(a, b)]
    return {"y": np.stack([*first, *remainders, a**3 + b**-2.0, np.minimum(np.maximum(a, -0.5), b), chosen], 1)}


def _nested_state(x: np.ndarray) -> Arrays:
    total = np.zeros(len(x))
    for a in range(0, x.shape[1], 2):
        total = (total + x[:, a : a + 2].sum((1, 2))) * 0.5
    return {"y": total + x.max((1, 2))}


def _mixed(x: np.ndarray, pick: np.ndarray) -> Arrays:
    hits = np.arange(x.shape[1])[None, :] == pick[:, None]
    return {"y": np.where(hits, x, 0).sum(1), "hits": hits}


def _pairs(rng: np.random.Generator, m: int) -> Arrays:
    b = rng.integers(1, 40, m) * rng.choice([-1, 1], m)
    return {"a": rng.integers(-10000, 10000, m), "b": b}


_F16, _BF16, _I32, _I64 = np.float16, ml_dtypes.bfloat16, np.int32, np.int64
_ROWS = ((1, 1), (3, 2), (7, 31), (33, 33), (17, 127))

CASES: dict[str, Case] = {
    c.kernel.name: c
    for c in (
        Case(two_streams, tuple((*s, 9) for s in _ROWS), _normal(x="AB", w="AC"), _two_streams, {}, tolerance=1e-4),
        Case(
            nested_streams,
            ((1, 1, 1), (5, 9, 17), (4, 4, 8)),
            _normal(x="ABC"),
            lambda x: {"y": x.sum(2), "z": np.sqrt((x.sum(2) ** 2).sum(1))},
            {},
        ),
        Case(
            negative_max,
            _ROWS,
            lambda rng, m, n: {"x": -1 - abs(rng.normal(size=(m, n)))},
            lambda x: {"y": x.max(1), "low": (-x).min(1)},
            {"x": _F16, "y": _F16},
        ),
        Case(
            three_outputs,
            _ROWS,
            _normal(x="AB"),
            lambda x: {"centred": x - x.mean(1, keepdims=True), "mean": x.mean(1), "spread": x.max(1) - x.min(1)},
            {"x": _BF16, "centred": _BF16, "spread": _F16},
            tolerance=8e-3,
        ),
        Case(
            grouped_heads,
            ((6, 1, 1, 2), (6, 33, 100, 2), (9, 31, 128, 3)),
            lambda rng, h, s, d, g: {"q": rng.normal(size=(h, s, d)), "k": rng.normal(size=(g, s, d))},
            lambda q, k, group: {"y": (q * np.repeat(k, group, 0)).sum(2)},
            {},
            {"group": 3},
            tolerance=1e-4,
        ),
        Case(
            in_place,
            _ROWS,
            _normal(x="AB", scale="B"),
            lambda x, scale, factor: {"x": x * scale + factor},
            {"x": _F16},
            {"factor": 0.5},
            tolerance=4e-3,
        ),
        Case(
            mixed_dtypes,
            _ROWS,
            lambda rng, m, n: {"x": rng.normal(size=(m, n)), "pick": rng.integers(-1, n + 1, m)},
            _mixed,
            {"x": _F16, "pick": _I32, "hits": np.bool_},
        ),
        Case(outer_axis, ((1, 1, 1), (9, 5, 33), (31, 2, 7)), _normal(x="ABC"), lambda x: {"y": x.sum(0)}, {}),
        Case(
            middle_axis,
            ((1, 1, 1), (3, 40, 17), (5, 64, 16)),
            lambda rng, a, b, c: {"x": rng.integers(-9, 9, (a, b, c))},
            lambda x: {"y": x.min(1), "at": x.argmax(1)},
            {"x": _BF16, "at": _I32},
        ),
        Case(
            outer_product, ((1, 1), (3, 7), (5, 32)), _normal(x="AB"), lambda x: {"y": x[:, :, None] * x[:, None]}, {}
        ),
        Case(
            symmetric,
            ((1,), (7,), (33,), (48,)),
            lambda rng, n: {"x": rng.normal(size=(n, n))},
            lambda x: {"y": x + x.T},
            {},
        ),
        Case(running_max, _ROWS, _normal(x="AB"), _running_max, {}),
        Case(
            causal_rows,
            ((1,), (8,), (21,), (33,)),
            lambda rng, n: {"x": rng.normal(size=(n, n))},
            _causal,
            {},
            {"window": 5},
        ),
        Case(
            integers,
            ((1,), (31,), (1000,)),
            _pairs,
            _integers,
            {"a": _I32, "b": _I32, "y": _I32, "z": _I64},
            {"shift": 3},
            tolerance=0,
        ),
        Case(
            histogram_like,
            ((1, 1), (7, 33), (40, 100)),
            lambda rng, m, n: {"x": rng.normal(size=(m, n)), "y": rng.normal(size=n)},
            lambda x, y: {"y": y + x.sum(0)},
            {},
            tolerance=1e-4,
        ),
        Case(circular_functions, ((1,), (33,)), lambda rng, m: {"x": rng.uniform(-1, 1, m)}, _circular, {}),
        Case(
            functions_of_two,
            ((1,), (33,)),
            lambda rng, m: {"a": rng.normal(size=m) * 4, "b": rng.uniform(0.2, 3, m) * rng.choice([-1, 1], m)},
            _of_two,
            {},
        ),
        Case(
            truths,
            _ROWS,
            lambda rng, m, n: {"x": rng.integers(-1, 3, (m, n))},
            lambda x: {
                "product": np.prod(x * 0.25 + 1, 1),
                "least": x.argmin(1),
                "flags": np.stack([(x < 0).any(1), (x != 0).all(1)], 1),
            },
            {"least": _I32, "flags": np.bool_},
        ),
        Case(
            codes,
            ((1,), (33,)),
            lambda rng, m: {"code": rng.normal(size=16), "q": rng.integers(-2, 18, m), "x": rng.normal(size=m)},
            lambda code, q, x: {"y": np.where((q >= 0) & (q < 16), code[q.clip(0, 15)], 0) * x},
            {"q": _I32},
        ),
        Case(unary_functions, ((1,), (33,)), lambda rng, m: {"x": 0.1 + abs(rng.normal(size=m))}, _functions, {}),
        Case(scalar_programs, ((1, 3), (5, 2)), _normal(x="AB"), lambda x, n: {"y": x[:, 0] * 2 + n}, {}, {"n": 4}),
        Case(nested_state, ((1, 1, 1), (5, 9, 17), (4, 4, 8)), _normal(x="ABC"), _nested_state, {}),
    )
}


def agrees(case: Case, shape: tuple[int, ...], how: str, kernel: tw.Kernel) -> None:
    """A launch in the simulator, of arguments laid out so, against the reference; nothing around them is touched."""
    arrays, expected = case.arrays(shape)
    outputs = "sliced" if how == "reversed" else how
    placed = {n: arranged(a, outputs if n in expected else how) for n, a in arrays.items()}
    kernel(**{n: p.view for n, p in placed.items()}, **case.scalars)
    for name, value in expected.items():
        got = placed[name].view
        tolerance = max(case.tolerance, {2: 1e-3}.get(got.itemsize, 0) if got.dtype.kind not in "iub" else 0)
        np.testing.assert_allclose(
            got.astype(np.float64), value, rtol=tolerance, atol=tolerance, err_msg=f"{name} {shape} {how}"
        )
    for name, place in placed.items():
        assert place.untouched(), f"{name}: {shape} {how}"
