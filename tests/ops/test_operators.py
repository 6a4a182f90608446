"""Every operator that ships, simulated, against NumPy in float64."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from tilewright.ops import kernels
from tilewright.ops.listing import listing

pytestmark = pytest.mark.sample(1)

Array = npt.NDArray[Any]
TYPES = {"f32": (np.float32, 2e-5), "f16": (np.float16, 3e-3), "bf16": (ml_dtypes.bfloat16, 2e-2)}
RANDOM = np.random.default_rng(0)


def normal(dtype: str, *shape: int) -> Array:
    return RANDOM.standard_normal(shape).astype(TYPES[dtype][0])


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def attention(q: Array, k: Array, v: Array, causal: bool) -> Array:
    group = q.shape[1] // k.shape[1]
    k, v = (np.repeat(t, group, axis=1) for t in (k, v))
    x = q @ k.swapaxes(2, 3) / np.sqrt(q.shape[-1])
    return softmax(np.where(np.tri(*x.shape[2:], dtype=bool) | (not causal), x, -np.inf)) @ v


def agrees(dtype: str, kernel: Any, reference: Callable[..., Array], *inputs: Array, **given: object) -> None:
    expected = reference(*(t.astype(np.float64) for t in inputs))
    got = np.full(expected.shape, np.nan, TYPES[dtype][0])
    kernel(*inputs, got, **given)
    tolerance = TYPES[dtype][1]
    np.testing.assert_allclose(got.astype(np.float64), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("rows", [(5, 128), (3, 77)])
@pytest.mark.parametrize("dtype", TYPES)
def test_rows(dtype: str, rows: tuple[int, int]) -> None:
    x, w, b = normal(dtype, *rows), normal(dtype, rows[1]), normal(dtype, rows[1])

    def rms(x: Array, w: Array) -> Array:
        return x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-6) * w

    def layer(x: Array, w: Array, b: Array) -> Array:
        return (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5) * w + b

    agrees(dtype, kernels.softmax, softmax, x)
    agrees(dtype, kernels.rms_norm, rms, x, w)
    agrees(dtype, kernels.layer_norm, layer, x, w, b)
    agrees(dtype, kernels.swiglu, lambda gate, up: gate / (1 + np.exp(-gate)) * up, x, normal(dtype, *rows))


def gradients_of_rows(x: Array, w: Array, dy: Array, centred: bool) -> tuple[Array, Array]:
    """dx of a norm along rows, and what each row adds to dw."""
    v = x - x.mean(1, keepdims=True) * centred
    scale = 1 / np.sqrt((v * v).mean(1, keepdims=True) + 1e-5)
    g, normed = dy * w, v * scale
    return scale * (g - g.mean(1, keepdims=True) * centred - normed * (normed * g).mean(1, keepdims=True)), dy * normed


@pytest.mark.parametrize("rows", [(5, 128), (3, 77)])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("centred", [False, True])
def test_gradients_of_norms_in_one_pass(dtype: str, rows: tuple[int, int], centred: bool) -> None:
    x, dy, w = normal(dtype, *rows), normal(dtype, *rows), normal(dtype, rows[1])
    dx = np.full(rows, np.nan, TYPES[dtype][0])
    found = np.full((2, 2, rows[1]), np.nan, np.float32)
    group = -(-rows[0] // 2)
    given: dict[str, Any] = {"eps": 1e-5, "group": group, "upto": 256}
    if centred:
        kernels.layer_norm_gradients(x, w, dy, None, dx, found, **given)
    else:
        kernels.rms_norm_gradients(x, w, dy, None, dx, found[0], **given)
    wide = [t.astype(np.float64) for t in (x, w, dy)]
    exact, terms = gradients_of_rows(*wide, centred)
    tolerance = TYPES[dtype][1]
    np.testing.assert_allclose(dx.astype(np.float64), exact, rtol=tolerance, atol=tolerance)
    for got, expected in ((found[0], terms), (found[1], wide[2]))[: 1 + centred]:
        sums = [part.sum(0) for part in (expected[:group], expected[group:])]
        np.testing.assert_allclose(got, sums, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kernel", [kernels.rms_norm_gradients, kernels.layer_norm_gradients])
def test_gradients_of_norms_in_one_pass_are_validated(kernel: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TILEWRIGHT_VALIDATION")
    sums = "sums" if kernel is kernels.layer_norm_gradients else "dw"
    dtypes = dict.fromkeys(("x", "w", "dy", "dx"), "bf16") | {sums: "f32"}
    artifact = kernel.compile(dtypes=dtypes, after=None, group=4, upto=256)
    assert {image.undecided for image in artifact.kernels} == {()}


@pytest.mark.parametrize("dtype", TYPES)
def test_add(dtype: str) -> None:
    agrees(dtype, kernels.add, np.add, normal(dtype, 1001), normal(dtype, 1001))


@pytest.mark.parametrize("extents", [(70, 40, 96), (33, 17, 51)])
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_matmul(dtype: str, extents: tuple[int, int, int]) -> None:
    m, n, k = extents
    a, b = (normal(dtype, rows, k) / np.sqrt(k).astype(TYPES[dtype][0]) for rows in (m, n))
    agrees(dtype, kernels.matmul, lambda a, b: a @ b.T, a, b)


@pytest.mark.parametrize(("causal", "group"), [(False, 1), (True, 2)])
@pytest.mark.parametrize("width", [64, 128, 256])
def test_attention(width: int, causal: bool, group: int) -> None:
    q, k, v = normal("bf16", 1, 2, 70, width), *(normal("bf16", 1, 2 // group, 70, width) for _ in "kv")
    agrees(
        "bf16",
        kernels.attention(width),
        lambda q, k, v: attention(q, k, v, causal).swapaxes(1, 2),
        *(q, k, v),
        scale=width**-0.5,
        causal=causal,
        group=group,
    )


def gradients(do: Array, q: Array, k: Array, v: Array, causal: bool) -> tuple[Array, ...]:
    """lse, delta, dq, and dk, dv of every head of queries, in float64."""
    group = q.shape[1] // k.shape[1]
    k, v = (np.repeat(t, group, axis=1) for t in (k, v))
    x = q @ k.swapaxes(2, 3) / np.sqrt(q.shape[-1])
    x = np.where(np.tri(*x.shape[2:], dtype=bool) | (not causal), x, -np.inf)
    lse = np.log(np.exp(x).sum(-1))
    p = np.exp(x - lse[..., None])
    delta = (do * (p @ v)).sum(-1)
    ds = p * (do @ v.swapaxes(2, 3) - delta[..., None]) / np.sqrt(q.shape[-1])
    return lse, delta, ds @ k, ds.swapaxes(2, 3) @ q, p.swapaxes(2, 3) @ do


@pytest.mark.parametrize(
    ("width", "causal", "group", "queries", "keys"),
    [
        (64, False, 2, 70, 200),
        (64, True, 1, 200, 140),
        (128, True, 2, 140, 200),
        (128, False, 1, 70, 70),
        (256, True, 2, 140, 150),
        (256, False, 1, 40, 70),
    ],
)
def test_gradients_of_attention(width: int, causal: bool, group: int, queries: int, keys: int) -> None:
    do, q = (normal("bf16", 1, 2, queries, width) for _ in range(2))
    k, v = (normal("bf16", 1, 2 // group, keys, width) for _ in range(2))
    lse, delta, *exact = gradients(*(t.astype(np.float64) for t in (do, q, k, v)), causal)
    given = {"scale": width**-0.5, "causal": causal, "group": group}
    sums = lse.astype(np.float32), delta.astype(np.float32)
    exact = [t.swapaxes(1, 2) for t in exact]
    found = [np.full(t.shape, np.nan, ml_dtypes.bfloat16) for t in exact]
    kernels.attention_query_gradient(width)(do, q, k, v, *sums, found[0], **given)
    of_keys = kernels.attention_key_gradients(width)
    for dk, dv in [found[1:]] if width < 256 else [(found[1], None), (None, found[2])]:
        of_keys(do, q, k, v, *sums, dk, dv, **given)
    for got, expected in zip(found, exact, strict=True):
        assert np.linalg.norm(got.astype(np.float64) - expected) < 1e-2 * np.linalg.norm(expected)


def test_delta_of_attention() -> None:
    do, o = (normal("bf16", 2, 3, 37, 64) for _ in range(2))
    delta = np.full((2, 3, 37), np.nan, np.float32)
    kernels.attention_delta(do, o, delta, width=64)
    np.testing.assert_allclose(delta, (do.astype(np.float64) * o.astype(np.float64)).sum(-1), rtol=1e-5, atol=1e-5)


def test_every_operator_of_the_list_is_exported() -> None:
    listed = {re.sub(r"_(64|128)(_pages_of_\d+)?$", "", ready.operator) for ready in listing()}
    assert listed <= set(vars(kernels))
