"""Extents that are computed from others: solved or checked at each call, symbols in the program."""

# ruff: noqa: F821, UP037 - dimension names are strings
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from support.indexed import facts_of
from support.ptx_driver import run_artifact
from tilewright.base.expr import parse, solved_for, unsolved


@tw.kernel
def gated(x: tw.Tensor["M", "2*N"], y: tw.Tensor["M", "N"]):
    m, n = tw.grid(y, (4, 32))
    y[m, n] = x[m, n] * tw.sigmoid(x[m, n + y.shape[1]])


@tw.kernel
def heads(x: tw.Tensor["T", "H * D"], y: tw.Tensor["H", "T", "D"]):
    H, T, D = y.shape
    h, t = tw.grid((H, T), (None, 4))
    d = tw.axis(D, upto=64)
    y[h, t, d] = x[t, h * D + d]


@tw.kernel
def unpacked(w: tw.Tensor["M", "K // 8"], y: tw.Tensor["M", "K"]):
    m, k = tw.grid(y, (4, 32))
    y[m, k] = (w[m, k // 8] >> (k.index % 8 * 4)[None, :]) & 15


@tw.kernel
def convolved(x: tw.Tensor["L"], w: tw.Tensor["K"], y: tw.Tensor["L - K + 1"]):
    n = tw.grid(y, 32)
    total = tw.zeros((n,), tw.f32)
    for k in tw.stream(w.shape[0], None):
        total += x[n + k].fill(0.0) * w[k]
    y[n] = total


@tw.kernel
def scaled(x: tw.Tensor[M, N], s: tw.Tensor[M, (N + 127) // 128], y: tw.Tensor[M, N]):
    m, n = tw.grid(x, (4, 128))
    y[m, n] = x[m, n] * s[m, n.start // 128][:, None]


def _normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


def _unpacked(w: np.ndarray) -> np.ndarray:
    return ((w.astype(np.int64)[:, :, None] >> np.arange(0, 32, 4)) & 15).reshape(len(w), -1)


_X = _normal(7, 60)
_W = np.random.default_rng(0).integers(-(2**31), 2**31, (5, 4)).astype(np.int32)
CASES = {
    "gated": (gated, {"x": _normal(5, 66)}, lambda x: x[:, :33] / (1 + np.exp(-x[:, 33:])), "y", np.float32, (5, 33)),
    "heads": (heads, {"x": _X}, lambda x: x.reshape(7, 5, 12).transpose(1, 0, 2), "y", np.float32, (5, 7, 12)),
    "unpacked": (unpacked, {"w": _W}, _unpacked, "y", np.int32, (5, 32)),
    "convolved": (convolved, {"x": _normal(70), "w": _normal(5)}, np.correlate, "y", np.float32, (66,)),
    "scaled": (
        scaled,
        {"x": _normal(5, 200), "s": _normal(5, 2)},
        lambda x, s: x * np.repeat(s, 128, 1)[:, :200],
        "y",
        np.float32,
        (5, 200),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_simulator_and_ptx_machine_agree_with_numpy(name: str) -> None:
    kernel, given, reference, result, dtype, shape = CASES[name]
    expected = reference(*given.values())
    for run in ("simulated", "executed"):
        found = np.zeros(shape, dtype)
        arrays = {**given, result: found}
        if run == "simulated":
            kernel(**arrays)
        else:
            run_artifact(
                kernel.compile(dtypes={n: a.dtype.name for n, a in arrays.items()}, facts=facts_of(arrays)), arrays
            )
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6, err_msg=run)


def test_results_of_computed_extents_may_be_left_out() -> None:
    x = _normal(5, 66)
    assert gated(x).shape == (5, 33)
    assert convolved(_normal(70), _normal(5)).shape == (66,)
    with pytest.raises(tw.TilewrightError, match="no tensor of the call has K"):
        unpacked(_W)  # of K // 8 = 4 K may be 32 to 39


@pytest.mark.parametrize(
    ("kernel", "shapes", "said"),
    [
        (gated, ((5, 67), (5, 33)), r"N\*2 = 66 where N = 33"),
        (heads, ((7, 61), (5, 7, 12)), r"D\*H = 60 where D = 12, H = 5"),
        (unpacked, ((5, 4), (5, 40)), r"K // 8 = 5 where K = 40"),
        (convolved, ((3,), (5,), (0,)), r"-K \+ L \+ 1 = -1 where K = 5, L = 3"),
    ],
)
def test_a_call_that_does_not_fit_is_told_the_extents(kernel: tw.Kernel, shapes, said: str) -> None:
    integers = kernel is unpacked
    with pytest.raises(tw.TilewrightError, match=said) as refused:
        kernel(*(np.zeros(s, np.int32 if integers else np.float32) for s in shapes))
    assert refused.value.diagnostics[0].code == "RUN006"


def test_a_static_extent_is_known_in_expressions_of_it() -> None:
    artifact = gated.compile(static={"N": 32})
    assert [[str(d) for d in t.dims] for t in artifact.tensors] == [["M", "64"], ["M", "32"]]


@pytest.mark.parametrize("dim", ["half", "short"])
def test_words_of_extents_are_dimensions_though_dtypes_have_their_name(dim: str) -> None:
    @tw.kernel
    def rotated(x: tw.Tensor["T", f"2*{dim}"], angle: tw.Tensor["T", dim], y: tw.Tensor["T", dim]):
        t, d = tw.grid(y, (4, 16))
        y[t, d] = x[t, d] * angle[t, d]

    x, angle = _normal(5, 66), _normal(5, 33)
    np.testing.assert_array_equal(rotated(x, angle), x[:, :33] * angle)


def _annotated(dim: str) -> None:
    @tw.kernel
    def kernel(w: tw.Tensor[dim], y: tw.Tensor["N", "M"]):
        y[0, 0] = 1.0

    kernel.compile()


@pytest.mark.parametrize("dim", ["2**N", "sqrt(N)", "N / 2", "N // M", "N +", "max(N, 2)", "for", "N < 3", "0 * N"])
def test_what_is_no_extent_is_refused(dim: str) -> None:
    with pytest.raises(tw.TilewrightError) as refused:
        _annotated(dim)
    assert refused.value.diagnostics[0].code == "LNG001"
    assert f"dimension {dim!r} of w" in str(refused.value)


@pytest.mark.parametrize("dim", ["K // 8", "J * K", "K % 4"])
def test_extents_that_no_tensor_gives_are_refused(dim: str) -> None:
    with pytest.raises(tw.TilewrightError, match=r"does not say what [JK] is"):
        _annotated(dim)


@pytest.mark.parametrize(
    ("extent", "value", "known", "found"),
    [
        ("N", 7, {}, ("N", 7)),
        ("2*N + 1", 7, {}, ("N", 3)),
        ("2*N", 7, {}, ("N", 3)),
        ("H*D", 12, {"H": 3}, ("D", 4)),
        ("H*D", 0, {"H": 0}, ("D", 0)),
        ("8 - N", 3, {}, ("N", 5)),
        ("H*D", 12, {}, None),
        ("K // 8", 2, {}, None),
        ("N*N", 9, {}, None),
        ("M + K // 8", 9, {"K": 16}, ("M", 7)),
    ],
)
def test_an_extent_is_solved_for_its_one_unknown_symbol(extent: str, value: int, known, found) -> None:
    assert solved_for(parse(extent), value, known) == found


def test_symbols_are_solved_one_after_the_other() -> None:
    assert unsolved(map(parse, ("H*D", "2*H", "D*E*H"))) == frozenset()
    assert unsolved(map(parse, ("H*D", "D // 2"))) == {"H", "D"}


def test_a_product_divided_by_its_factor_is_the_other_one() -> None:
    seen: list[str] = []

    @tw.kernel
    def per_group(x: tw.Tensor["4*G*R"], g: tw.Tensor["G"], y: tw.Tensor["A"]):
        total, count = x.shape[0], g.shape[0]
        seen[:] = [str(total // count), str(total // 4), str(total // total), str((total + 1) // count)]
        n = tw.grid(y, 4)
        y[n] = (n.index * 0 + total // count).to(tw.f32)

    y = np.zeros(5, np.float32)
    per_group(np.zeros(24, np.float32), np.zeros(2, np.float32), y)
    assert y.tolist() == [12] * 5
    assert seen == ["Scalar(R*4)", "Scalar(G*R)", "1", "Scalar(((G*R)*4 + 1) // G)"]
    with pytest.raises(tw.TilewrightError, match=r"required: 0 < G"):  # as of any divisor
        per_group(np.zeros(0, np.float32), np.zeros(0, np.float32), y)


def test_heads_of_a_group_are_a_view() -> None:
    @tw.kernel
    def group_sums(q: tw.Tensor["B", "G*R"], k: tw.Tensor["B", "G"], y: tw.Tensor["B", "G"]):
        b, g = tw.grid(k.shape)
        r = tw.axis(q.shape[1] // k.shape[1], upto=8)
        y[b, g] = q.reshape(q.shape[0], k.shape[1], q.shape[1] // k.shape[1])[b, g, r].sum(0) * k[b, g]

    q, k, y = np.arange(24, dtype=np.float32).reshape(2, 12), np.ones((2, 3), np.float32), np.zeros((2, 3), np.float32)
    group_sums(q, k, y)
    np.testing.assert_array_equal(y, q.reshape(2, 3, 4).sum(2))


def test_a_range_beside_an_index_tile_is_asked_to_lie_inside() -> None:
    @tw.kernel
    def least(index: tw.Tensor["M"], x: tw.Tensor["V", "D"], y: tw.Tensor["M"]):
        m, n = tw.grid(y, 4), tw.axis(20)
        y[m] = x[index[m], n].min(1)

    @tw.kernel
    def least_of_those(index: tw.Tensor["M"], x: tw.Tensor["V", "D"], y: tw.Tensor["M"]):
        m, n = tw.grid(y, 4), tw.axis(20)
        y[m] = x[index[m], n.index].min(1)

    index, x, y = np.array([2, 0], np.int32), np.ones((3, 10), np.float32), np.zeros(2, np.float32)
    with pytest.raises(tw.TilewrightError, match=r"RUN008"):
        least(index, x, y)
    least_of_those(index, x, y)
    assert y.tolist() == [1, 1]
