"""Extents of 0: no program runs where the grid is empty, and a reduction or a stream over nothing leaves what it began
with."""

# ruff: noqa: F821, UP037 - dimension names are strings
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

import itertools
from collections.abc import Iterator

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from support.example_cases import EXAMPLES_BY_NAME
from support.generality import CASES, Case
from tilewright.base.expr import FALSE, simplify
from tilewright.jit import Kernel
from tilewright.transport.access import accesses_of

pytestmark = pytest.mark.sample(4)

ATTENTION = EXAMPLES_BY_NAME["attention"]


def empties(case: Case) -> Iterator[tuple[int, ...]]:
    """The case's second shape with each choice of extents made 0."""
    shape = case.shapes[min(1, len(case.shapes) - 1)]
    for choice in itertools.product((0, 1), repeat=len(shape)):
        if 0 in choice:
            yield tuple(extent * kept for extent, kept in zip(shape, choice, strict=True))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's mean of nothing
@pytest.mark.parametrize("name", CASES)
def test_no_elements(name: str) -> None:
    case = CASES[name]
    kernel = Kernel(case.kernel)
    for shape in empties(case):
        try:
            arrays, expected = case.arrays(shape)
        except (ValueError, IndexError, ZeroDivisionError):  # NumPy has no value, such as the greatest of nothing
            continue
        kernel(**arrays, **case.scalars)
        for output, value in expected.items():
            np.testing.assert_allclose(arrays[output].astype(np.float64), value, rtol=1e-2, err_msg=f"{output} {shape}")


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("queries", "keys"), [(130, 0), (0, 5), (0, 0), (130, 1)])
def test_a_rotated_stream_without_steps(causal: bool, queries: int, keys: int) -> None:
    """Its schedule has the first step outside the loop; without keys another kernel runs, and none for no queries."""
    bf16 = np.dtype(ml_dtypes.bfloat16)
    rng = np.random.default_rng(queries)
    q, k, v = (rng.normal(size=(1, 1, n, 128)).astype(bf16) for n in (queries, keys, keys))
    o = np.full_like(q, 7)
    Kernel(ATTENTION.kernel)(q, k, v, o, 0.1, causal=causal)
    score = np.einsum("bhsd,bhtd->bhst", q.astype(float), k.astype(float)) * 0.1
    if causal:
        score = np.where(np.tri(queries, keys, dtype=bool), score, -np.inf)
    p = np.exp(score - score.max(3, initial=-1e30, keepdims=True))
    expected = p @ v.astype(float) / p.sum(3, keepdims=True)
    np.testing.assert_allclose(o.astype(float), expected, rtol=5e-2, atol=5e-2)


@tw.kernel
def layer(a: tw.Tensor["M", "K"], w: tw.Tensor["N", "K"], bias: tw.Tensor["N"], y: tw.Tensor["M", "N"]):
    """A product over one tile, without a stream."""
    m, n = tw.grid(y, (64, 64))
    k = tw.axis(a.shape[1], upto=64)
    y[m, n] = tw.dot(a[m, k], w[n, k].T) + bias[n][None, :]


@tw.kernel
def layer_in_steps(a: tw.Tensor["M", "K"], w: tw.Tensor["N", "K"], bias: tw.Tensor["N"], y: tw.Tensor["M", "N"]):
    """The stream has steps, its products add up nothing."""
    m, k = tw.grid(a.shape[0], 64), tw.axis(a.shape[1], upto=64)
    for n in tw.stream(w.shape[0], 64):
        y[m, n] = tw.dot(a[m, k], w[n, k].T) + bias[n][None, :]


@tw.kernel
def summed_layers(
    a: tw.Tensor["P", "M", "K"], w: tw.Tensor["P", "N", "K"], bias: tw.Tensor["N"], y: tw.Tensor["M", "N"]
):
    """A stream of products, of which there may be none, over an axis of which there may be nothing."""
    m, n = tw.grid(y, (64, 64))
    k = tw.axis(a.shape[2], upto=64)
    acc = tw.zeros((m, n), tw.f32)
    for p in tw.stream(a.shape[0], None):
        acc += tw.dot(a[p, m, k], w[p, n, k].T)
    y[m, n] = acc + bias[n][None, :]


@pytest.mark.parametrize("kernel", [layer, layer_in_steps, summed_layers], ids=lambda kernel: kernel.name)
@pytest.mark.parametrize(
    ("m", "n", "k", "p"), [(5, 70, 0, 2), (5, 70, 3, 0), (70, 5, 0, 0), (0, 7, 0, 2), (7, 0, 3, 2)]
)
def test_products_over_nothing_are_0(kernel: tw.Kernel, m: int, n: int, k: int, p: int) -> None:
    parts = (p,) if kernel is summed_layers else ()
    a, w = np.ones((*parts, m, k), np.float16), np.ones((*parts, n, k), np.float16)
    bias, y = np.arange(n, dtype=np.float16), np.full((m, n), 99, np.float16)
    Kernel(kernel)(a, w, bias, y)
    assert (y == bias + k * (p if parts else 1)).all()


def test_certificates_hold_for_extents_of_0() -> None:
    """A kernel that takes steps of its stream for granted says so where it is dispatched; another takes the rest."""
    compiled = Kernel(ATTENTION.kernel)
    request = compiled._ahead("sm_90a", ATTENTION.tensor_dtypes(tw.bf16), None, None, None, {})
    *full, rest = compiled._plan(request).variants
    assert str(rest.predicate) == "T == 0"
    assert all(simplify(v.predicate.substitute({"T": 0}), {}) == FALSE for v in full)
    assert {o.name for o in rest.certificate} >= {"once", "domain", "guards"}
    for variant in (*full, rest):
        least = {p.name: p.low for p in accesses_of(variant.transport).parameters}
        assert {least[extent] for extent in "BHGST"} == {0}
