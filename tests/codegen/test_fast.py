"""What is contracted, and where: in the IR, as ops; nothing behind it fuses or approximates."""

# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingParameterType=false
# ruff: noqa: F821, UP037

from __future__ import annotations

import re
from collections import Counter
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from support.casts import nearest
from support.example_cases import EXAMPLES_BY_NAME
from support.indexed import facts_of
from support.ptx_driver import run_artifact
from tilewright.base.dtypes import bf16, f32
from tilewright.codegen.assemble import unrounded
from tilewright.codegen.cuda import emit_kernel
from tilewright.hw.approximations import APPROXIMATIONS
from tilewright.jit import Kernel
from tilewright.lang.enums import BinaryFn
from tilewright.simulate.elementwise import fma
from tilewright.tile import dialect as tile
from tilewright.transport import dialect as t

pytestmark = pytest.mark.sample(1)


@tw.kernel(numerics="fast")
def running(x: tw.Tensor["M", "N"], y: tw.Tensor["M"], *, computed: bool = True, bn=64):
    """A sum of exponentials that follows a running maximum of what was computed, or loaded."""
    m = tw.grid(x.shape[0], 1)
    top, total = tw.full(m, -1e30, tw.f32), tw.zeros(m, tw.f32)
    for n in tw.stream(x.shape[1], bn):
        row = 2 * x[m, n] if computed else x[m, n]
        new = tw.maximum(top, row.max(1))
        total.set(total * tw.exp(top - new) + tw.exp(row - new[:, None]).sum(1))
        top.set(new)
    y[m] = total


def lowered(kernel: tw.Kernel, computed: bool | None = None, **dtypes: str) -> t.Kernel:
    keywords = {} if computed is None else {"computed": computed}
    request = kernel.compiled._ahead("sm_90a", dtypes, None, None, None, keywords)
    return kernel.compiled._plan(request).variants[-1].transport


def test_only_a_shared_subtrahend_is_multiplied_ahead() -> None:
    """``exp(top - new)`` must be 1 where the maximum stays.

    As ``ex2(top * L - round(new * L))`` it was 1 - 1.6e-7, and 17 steps made that 2e-6 (H200, 65537 columns)."""
    powers = [op.x.owner for op in lowered(running).walk() if isinstance(op, t.Approximate) and op.fn.data == "ex2"]
    fused = [op for op in powers if isinstance(op, t.Fma)]
    rescaling = [op for op in powers if isinstance(op, tile.Binary)]
    assert fused
    assert rescaling
    assert len(fused) + len(rescaling) == len(powers)
    assert all(isinstance(op.a.owner, tile.Binary) and op.a.owner.fn.data == "sub" for op in rescaling)


def test_what_was_loaded_is_subtracted_first() -> None:
    """``x - top`` is exact near ``top``; ``round(top * L)`` is off by 5e-4 at 1e4, which no sum divides out."""
    powers = [op.x.owner for op in lowered(running, computed=False).walk() if isinstance(op, t.Approximate)]
    assert powers
    assert all(isinstance(op, tile.Binary) and op.fn.data is BinaryFn.MUL for op in powers)
    rows = np.random.default_rng(0).standard_normal((2, 640)).astype(np.float32)
    for far in (1e4, 1e6, 1e8):
        x, y = (rows + np.float32(far)).astype(np.float32), np.zeros(2, np.float32)
        running(x, y, computed=False)
        exact = np.exp(x.astype(np.float64) - x.max(1, keepdims=True)).sum(1)
        assert np.allclose(y, exact, rtol=3e-6)


def test_the_difference_under_an_exponential_is_not_contracted_first() -> None:
    """``exp(x * scale - top)`` is one product, one fma and ex2: with the scale in the fma it were a product more."""

    @tw.kernel(numerics="fast")
    def weights(x: tw.Tensor["M", 64], y: tw.Tensor["M", 64], *, scale: tw.f32):
        m = tw.grid(x.shape[0], 8)
        n = tw.axis(x.shape[1])
        row = x[m, n] * scale
        y[m, n] = tw.exp(row - row.max(1)[:, None])

    powers = [op.x.owner for op in lowered(weights).walk() if isinstance(op, t.Approximate)]
    assert powers
    assert all(isinstance(op, t.Fma) and isinstance(op.a.owner, tile.Binary) for op in powers)


def expressions(numerics: str) -> tw.Kernel:
    @tw.kernel(numerics=numerics)
    def kernel(a: tw.Tensor["M"], b: tw.Tensor["M"], c: tw.Tensor["M"], y: tw.Tensor["M", 10], *, bm=128):
        m = tw.grid(a.shape[0], bm)
        u, v, w = a[m], b[m], c[m]
        y[m, 0] = u * v + w
        y[m, 1] = w - u * v
        y[m, 2] = u * v - w
        twice = u * v
        y[m, 3] = twice + w * twice
        y[m, 4] = u / v
        y[m, 5] = tw.exp(u)
        y[m, 6] = tw.log(tw.abs(v)) + tw.log2(tw.abs(u))
        y[m, 7] = tw.sigmoid(w)
        y[m, 8] = tw.exp2(u) + u * u
        y[m, 9] = tw.exp(u - v)

    return kernel


def counted(kernel: t.Kernel) -> Counter[str]:
    return Counter(op.name for op in kernel.walk() if isinstance(op, t.Fma | t.Approximate))


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_strict_contracts_nothing(dtype: str) -> None:
    kernel = lowered(expressions("strict"), a=dtype, b=dtype, c=dtype, y=dtype)
    assert not counted(kernel)
    assert "fma" not in emit_kernel(kernel).source


def test_fast_is_written_as_ops() -> None:
    fast = lowered(expressions("fast"))
    assert counted(fast)["transport.fma"] % 6 == 0  # six of each copy of the body
    assert counted(fast)["transport.fma"] > 0
    assert not any(isinstance(op, tile.Unary) and op.fn.data in ("exp", "log", "sigmoid") for op in fast.walk())
    half = lowered(expressions("fast"), a="bf16", b="bf16", c="bf16", y="bf16")
    assert not counted(half)["transport.fma"]  # products of 16-bit floats are rounded before they are added
    assert counted(half)["transport.approximate"]


def test_the_simulator_computes_what_was_contracted() -> None:
    rng = np.random.default_rng(0)
    a, b, c = (rng.standard_normal(300).astype(np.float32) for _ in range(3))
    found = {}
    for numerics in ("strict", "fast"):
        y = np.zeros((300, 10), np.float32)
        expressions(numerics)(a, b, c, y)
        found[numerics] = y
    terms = zip(*(map(Fraction, map(float, x)) for x in (a, b, c)), strict=True)
    exact = np.array([nearest(u * v + w, "f32") for u, v, w in terms])
    assert (found["fast"][:, 0] == exact.astype(np.float32)).all()
    assert (found["strict"][:, 0] == a * b + c).all()
    assert (found["fast"][:, 0] != found["strict"][:, 0]).any()
    assert np.allclose(found["fast"], found["strict"], rtol=1e-5, atol=1e-6)


@tw.kernel
def weights_of_products(
    x: tw.Tensor["M", 64], p: tw.Tensor["M", 64], change: tw.Tensor["M"], *, factor: tw.f32, bm: int = 8
):
    """Weights beside the greatest computed value, and the factor to the greatest of the first half."""
    m = tw.grid(x.shape[0], bm)
    row, half = x[m, :] * 3.0, x[m, :32] * 3.0
    top, before = row.max(1), half.max(1)
    p[m, :] = tw.exp((row - top[:, None]) * factor)
    change[m] = tw.exp((before - top) * factor)


@pytest.mark.parametrize("offset", [0.0, 1e4, -3e6])
@pytest.mark.parametrize("spread", [1.0, 16.0, 64.0])
def test_accurate_exponentials_keep_their_bound(spread: float, offset: float) -> None:
    """Against float64 of the rounded values: (2 |d| + |f b| + 4) 2^-24, and |f a| more of an element's own."""
    assert counted(lowered(weights_of_products))["transport.approximate"]
    factor, unit = np.float32(0.37), 2.0**-24
    x = (np.random.default_rng(3).standard_normal((200, 64)) * spread + offset).astype(np.float32)
    x[5] = x[5, 0]
    p, change = np.zeros_like(x), np.zeros(200, np.float32)
    weights_of_products(x, p, change, factor=factor)
    row = (x * np.float32(3)).astype(np.float64)
    top, before = row.max(1), row[:, :32].max(1)
    for found, a, b, own in ((p, row, top[:, None], 0), (change, before, top, np.abs(factor * before))):
        d = (a - b) * np.float64(factor)
        exact = np.exp(d)
        bound = (2 * np.abs(d) + np.abs(factor * b) + own + 4) * unit * exact + 2.0**-126
        assert (np.abs(found - exact) <= bound).all()
    assert (change[before == top] == 1).all()


LEAST = float(np.finfo(np.float32).min)
"""What PyTorch's users mask scores with."""


@tw.kernel
def masked_attention(
    q: tw.Tensor["S", 64],
    k: tw.Tensor["T", 64],
    v: tw.Tensor["T", 64],
    mask: tw.Tensor["S", "T"],
    o: tw.Tensor["S", 64],
    *,
    scale: tw.f32,
):
    """Scores are scaled, then masked: a row's maximum may be the mask."""
    s, d = tw.grid(q.shape[0], 64), tw.axis(64)
    query, acc = q[s, d], tw.zeros((s, 64), tw.f32)
    top, total = tw.full((s,), -tw.inf, tw.f32), tw.zeros((s,), tw.f32)
    for n in tw.stream(k.shape[0], 64):
        x = tw.dot(query, k[n, d].T) * scale + mask[s, n]
        new = tw.maximum(top, x.max(1))
        p, fix = tw.exp(x - new[:, None]), tw.exp(top - new)
        total.set(total * fix + p.sum(1))
        acc.set(acc * fix[:, None])
        top.set(new)
        acc += tw.dot(p.to(q.dtype), v[n, d])
    o[s, d] = acc / total[:, None]


def masks(least: float) -> np.ndarray:
    """Rows that are masked from end to end, at the start, at the end, here and there, by two numbers, and nowhere."""
    mask = np.zeros((64, 192), np.float32)
    mask[:8] = least
    mask[8:16, :100] = least
    mask[16:24, 100:] = least
    mask[24:32] = np.where(np.random.default_rng(4).random((8, 192)) < 0.5, least, 0)
    mask[32:40] = least
    mask[32:40, 64:] = least / 1.25
    return mask


@pytest.mark.parametrize("least", [-3e8, -1e9, -1e30, LEAST])
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32], ids=["f16", "bf16", "f32"])
def test_masks_of_great_finite_numbers(dtype: Any, least: float) -> None:
    """f16 holds no weight above 2^16: the rounding of a maximum is worth less than that."""
    rng, scale, mask = np.random.default_rng(0), np.float32(0.125), masks(least)
    q, k, v = (rng.standard_normal((n, 64)).astype(dtype) for n in (64, 192, 192))
    o = np.full((64, 64), np.nan, dtype)
    masked_attention(q, k, v, mask, o, scale=scale)
    x = (q.astype(np.float64) @ k.astype(np.float64).T).astype(np.float32) * scale + mask
    x = x.astype(np.float64)
    p = np.exp(x - x.max(1, keepdims=True))
    exact = p / p.sum(1, keepdims=True) @ v.astype(np.float64)
    assert np.abs(o.astype(np.float64) - exact).max() < (3e-3 if dtype != np.float32 else 1e-5)


@pytest.mark.parametrize("least", [-1e9, LEAST])
def test_the_ptx_of_masked_attention_is_validated(least: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TILEWRIGHT_VALIDATION", raising=False)
    rng, mask = np.random.default_rng(0), masks(least)
    arrays = {name: rng.standard_normal((n, 64)).astype(np.float16) for name, n in (("q", 64), ("k", 192), ("v", 192))}
    arrays |= {"mask": mask, "o": np.full((64, 64), np.nan, np.float16)}
    artifact = masked_attention.compile(dtypes={n: a.dtype.name for n, a in arrays.items()}, facts=facts_of(arrays))
    assert [image.undecided for image in artifact.kernels] == [()] * len(artifact.kernels)
    driver = run_artifact(artifact, arrays, {"scale": 0.125})
    assert [str(fault) for _, report in driver.reports for fault in report.faults] == []
    simulated = np.empty((64, 64), np.float16)
    masked_attention(arrays["q"], arrays["k"], arrays["v"], mask, simulated, scale=0.125)
    np.testing.assert_allclose(arrays["o"].astype(np.float32), simulated.astype(np.float32), atol=2e-3)


@pytest.mark.parametrize("factor", [1.0, -1.0, 2.5, 1e-3, 1e9])
def test_rows_of_great_numbers_have_weights(factor: float) -> None:
    """Any factor of any size, and maxima on both sides of where the scale changes."""

    @tw.kernel
    def weights(
        x: tw.Tensor["M", 64], p: tw.Tensor["M", 64], change: tw.Tensor["M"], *, factor: tw.f32, down: bool = False
    ):
        m = tw.grid(x.shape[0], 8)
        row, half = x[m, :] * 0.5, x[m, :32] * 0.5
        top, before = (row.min(1), half.min(1)) if down else (row.max(1), half.max(1))
        p[m, :] = tw.exp((row - top[:, None]) * factor)
        change[m] = tw.exp((before - top) * factor)

    rng, far = np.random.default_rng(5), 2.0**28 / abs(factor * np.log2(np.e))
    tops = np.array([far * t for t in (0.3, 0.9999, 1, 1.0001, 7.7, 1e3, 1e9)] + [1e30, -LEAST / 2.5], np.float32)
    tops = np.concatenate([tops, -tops])
    x = np.repeat(tops[:, None], 64, 1) * np.where(rng.random((len(tops), 64)) < 0.5, 1, 1 + 2.0**-23).astype(
        np.float32
    )
    x[:, 5::7] = rng.standard_normal(x[:, 5::7].shape)
    with np.errstate(over="ignore"):
        x = np.clip(x * np.float32(2), LEAST, -LEAST)
    p, change = np.full_like(x, np.nan), np.full(len(x), np.nan, np.float32)
    weights(x, p, change, factor=np.float32(factor), down=factor < 0)
    half = x.astype(np.float64) / 2
    top = half.max(1) if factor > 0 else half.min(1)
    before = half[:, :32].max(1) if factor > 0 else half[:, :32].min(1)
    exact = np.exp((half - top[:, None]) * np.float64(np.float32(factor)))
    near = np.abs(top) * abs(factor) * np.log2(np.e) < 2.0**27.8
    scaled = p / p.max(1, keepdims=True)
    assert np.isfinite(p).all()
    assert (p.max(1) > 0).all()
    assert np.abs(scaled - exact)[near].max(initial=0) < 1e-5
    assert np.abs(scaled - exact).max() <= 2.0**-14
    assert np.abs(change - np.exp((before - top) * np.float64(np.float32(factor)))).max() <= 2.0**-14


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16], ids=["bf16", "f16"])
@pytest.mark.parametrize(("spread", "offset"), [(1.0, 0.0), (16.0, 100.0), (64.0, -3e3)])
def test_accurate_exponentials_of_narrow_loaded_values_keep_their_bound(
    dtype: Any, spread: float, offset: float
) -> None:
    """Against float64: (3 |d| + 4) 2^-24."""

    @tw.kernel
    def weights(x: tw.Tensor["M", 64], p: tw.Tensor["M", 64], *, factor: tw.f32):
        m = tw.grid(x.shape[0], 8)
        row = x[m, :].to(tw.f32)
        p[m, :] = tw.exp((row - row.max(1)[:, None]) * factor)

    found = weights.plan(dtypes={"x": "bf16" if dtype is ml_dtypes.bfloat16 else "f16", "p": "f32"}).variants[-1]
    assert counted(found.transport)["transport.approximate"]
    factor = np.float32(0.37)
    x = (np.random.default_rng(5).standard_normal((200, 64)) * spread + offset).astype(dtype)
    x[0, :3] = -np.inf
    p = np.zeros((200, 64), np.float32)
    weights(x, p, factor=factor)
    row = x.astype(np.float64)
    d = (row - row.max(1, keepdims=True)) * np.float64(factor)
    exact = np.exp(d)
    slack = 3 * np.where(np.isfinite(d), np.abs(d), 0) + 4
    assert (np.abs(p - exact) <= slack * 2.0**-24 * exact + 2.0**-126).all()


def test_accurate_leaves_exponentials_of_loaded_values_alone() -> None:
    @tw.kernel
    def softmax(x: tw.Tensor["M", 64], y: tw.Tensor["M", 64]):
        m = tw.grid(x.shape[0], 8)
        row = x[m, :]
        y[m, :] = tw.exp(row - row.max(1)[:, None]) / row.sum(1)[:, None]

    assert not counted(lowered(softmax))


def test_fma_is_rounded_once() -> None:
    """Against exact rational numbers, with sums that end next to a tie, denormals and cancellation."""
    rng = np.random.default_rng(2)
    bits = rng.integers(0, 2**32, (3, 3000), dtype=np.uint32).view(np.float32)
    normal = (rng.standard_normal((3, 3000)) * 2.0 ** rng.integers(-30, 30, (3, 3000))).astype(np.float32)
    near = np.full(500, 1 + 2.0**-12)
    ties = np.stack([near, near, 2.0 ** rng.integers(-60, 30, 500)]).astype(np.float32)
    cancel = np.stack([normal[0], normal[1], -(normal[0] * normal[1])])
    small = (rng.standard_normal((3, 500)) * 2.0**-70).astype(np.float32)
    a, b, c = np.concatenate([bits, normal, ties, cancel, small], 1)
    with np.errstate(all="ignore"):
        found = fma(a, b, c)
        for x, y, z, result in zip(a, b, c, found, strict=True):
            if not np.isfinite([x, y, z]).all():
                expected = np.float32(np.float64(x) * np.float64(y) + np.float64(z))
                assert result == expected or (np.isnan(result) and np.isnan(expected))
                continue
            exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
            assert result == np.float32(nearest(exact, "f32")), (x, y, z)


FAST = ("softmax", "layer_norm", "swiglu", "attention", "matmul", "rotary", "cross_entropy")
STATIC = {"static": {"N": 200}}
FEW_VARIANTS = {
    "softmax": STATIC,
    "layer_norm": STATIC,
    "swiglu": STATIC,
    "matmul": {"schedule": tw.Schedule(extents={"bm": 64, "bn": 64})},
}
"""Of one kernel's variants, which have the same arithmetic, few are compiled."""


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [f32, bf16], ids=str)
@pytest.mark.parametrize("name", FAST)
def test_every_sum_and_product_in_the_ptx_is_rounded(name: str, dtype: Any) -> None:
    case = EXAMPLES_BY_NAME[name]
    options = {**case.keywords, **FEW_VARIANTS.get(name, {})}
    artifact = Kernel(case.kernel).compile(dtypes=case.tensor_dtypes(dtype), **options)
    for kernel in artifact.kernels:
        assert unrounded(kernel.ptx) == []
        approximate = set(re.findall(r"\b\w+\.approx\S*", kernel.ptx))
        library = {"ex2.approx.ftz.f32", "rsqrt.approx.f32"}  # parts of expf and rsqrtf
        assert approximate <= library | {a.instruction for a in APPROXIMATIONS.values()}


def test_a_sum_without_a_rounding_mode_is_seen() -> None:
    loose = "add.f32 %f1, %f2, %f3;\n@%p1 mul.ftz.f32 %f1, %f2, %f3;\n{ sub.f16x2 %r1, %r2, %r3; }"
    assert unrounded(loose) == ["add.f32", "mul.ftz.f32", "sub.f16x2"]
    rounded = "add.rn.f32 %f1; fma.rn.f32 %f1; red.global.add.f32 [%rd1]; mul.lo.s32 %r1; mad.wide.u32 %rd1;"
    assert unrounded(rounded) == []
