"""The mixture of experts in the simulator agrees with float64."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from support.example_cases import load

pytestmark = pytest.mark.sample(1)

moe = load("moe")
BF16 = ml_dtypes.bfloat16


def rounded(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return (rng.standard_normal(shape) * shape[-1] ** -0.5).astype(BF16)


def exact(x: np.ndarray, gate: np.ndarray, up: np.ndarray, down: np.ndarray, weight: np.ndarray, expert: np.ndarray):
    found = np.zeros(x.shape)
    x, gate, up, down = (a.astype(np.float64) for a in (x, gate, up, down))
    for t, experts in enumerate(expert):
        for w, e in zip(weight[t], experts, strict=True):
            a, b = gate[e] @ x[t], up[e] @ x[t]
            found[t] += w * (down[e] @ (a / (1 + np.exp(-a)) * b))
    return found


@pytest.mark.parametrize(("tokens", "experts"), [(70, 5), (3, 8), (0, 4)])
def test_mixture(tokens: int, experts: int) -> None:
    rng = np.random.default_rng(tokens)
    width, inner = 72, 40
    x, router = rounded(rng, tokens, width), rounded(rng, experts, width)
    weights = (
        rounded(rng, experts, inner, width),
        rounded(rng, experts, inner, width),
        rounded(rng, experts, width, inner),
    )
    weight, expert = np.full((tokens, 2), 7, np.float32), np.full((tokens, 2), 7, np.int32)
    y = moe.mixture(x, router, *weights, weight, expert, bm=64)
    logits = x.astype(np.float64) @ router.astype(np.float64).T
    best = -np.sort(-logits, 1)[:, :2]
    np.testing.assert_allclose(np.take_along_axis(logits, expert, 1), best, atol=1e-5)
    p = np.exp(best - best[:, :1])
    np.testing.assert_allclose(weight, p / p.sum(1, keepdims=True), rtol=1e-4)
    wanted = exact(x, *weights, weight, expert)
    assert np.linalg.norm(y.astype(np.float64) - wanted) <= 8e-3 * np.linalg.norm(wanted)


def test_a_token_of_nans_affects_no_other() -> None:
    rng = np.random.default_rng(1)
    x, router = rounded(rng, 9, 64), rounded(rng, 6, 64)
    weights = (rounded(rng, 6, 16, 64), rounded(rng, 6, 16, 64), rounded(rng, 6, 64, 16))
    x[4] = np.nan
    weight, expert = np.zeros((9, 2), np.float32), np.full((9, 2), -1, np.int32)
    y = moe.mixture(x, router, *weights, weight, expert, bm=64)
    assert len(set(expert[4])) == 2
    assert np.isin(expert, range(6)).all()
    assert np.isnan(y[4].astype(np.float64)).all()
    others = np.arange(9) != 4
    wanted = exact(x[others], *weights, weight[others], expert[others])
    assert np.linalg.norm(y[others].astype(np.float64) - wanted) <= 8e-3 * np.linalg.norm(wanted)
