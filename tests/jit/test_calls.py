"""Calls of a kernel on arrays: extents, strides, scalars, refusals."""

# ruff: noqa: F821, UP037 - dimension names are strings

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import tilewright as tw
from support.clamped_kernels import interpolated
from support.example_cases import EXAMPLES_BY_NAME
from tilewright.compiler import program as compiler_program
from tilewright.diag import TilewrightError
from tilewright.jit import Kernel, lazy
from tilewright.jit.arrays import describe

pytestmark = pytest.mark.sample(1)

RNG = np.random.default_rng(3)


def normal(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


@tw.kernel
def scaled(x: tw.Tensor["M", "N"], y: tw.Tensor["M"], *, scale: tw.f32, shift: tw.i32 = 0, bm=tw.auto, bn=tw.auto):
    m = tw.grid(y, bm)
    total = tw.zeros(m, tw.f32)
    for n in tw.stream(x.shape[1], bn):
        total += x[m, n].sum(1)
    y[m] = total * scale + shift


@tw.kernel
def total_of(x: tw.Tensor["N"], y: tw.Tensor[()], *, bn=tw.auto):
    _ = tw.grid(1, None)
    total = tw.zeros((), tw.f32)
    for n in tw.stream(x.shape[0], bn):
        total += x[n].sum(0)
    y[()] = total


def refused(code: str, *args: object, **kwargs: object) -> str:
    with pytest.raises(TilewrightError) as caught:
        Kernel(scaled)(*args, **kwargs)
    assert caught.value.diagnostics[0].code == code, str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0, 0)])
def test_empty_tensors(shape: tuple[int, int]) -> None:
    x, y = normal(*shape), np.full(shape[0], 7, np.float32)
    Kernel(scaled)(x, y, 2.0)
    np.testing.assert_array_equal(y, np.zeros(shape[0]))


def test_arrays_without_elements_have_the_strides_of_others() -> None:
    """NumPy's are all 0, which would ask for a kernel of their own."""
    none, one = (describe("x", np.zeros((3, extent, 4), np.float32)) for extent in (0, 1))
    assert none.strides == one.strides


def test_scalars_by_position_by_name_and_by_default() -> None:
    x, y = normal(3, 40), np.zeros(3, np.float32)
    kernel = Kernel(scaled)
    for args, kwargs, expected in (
        ((x, y, 2.0), {}, 2 * x.sum(1)),
        ((x, y), {"scale": 0.5}, x.sum(1) / 2),
        ((x,), {"y": y, "scale": 1.0, "shift": -3}, x.sum(1) - 3),
    ):
        kernel(*args, **kwargs)
        np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)


def test_a_store_of_rank_zero() -> None:
    x, y = normal(1000), np.zeros((), np.float32)
    Kernel(total_of)(x, y)
    np.testing.assert_allclose(y, x.sum(), rtol=1e-4)


def test_negative_zero_and_swapped_strides() -> None:
    base, y = normal(40, 30), np.zeros(30, np.float32)
    kernel = Kernel(scaled)
    for x in (base.T, base[::-1, ::-1].T, np.broadcast_to(base[0], (7, 30)), np.broadcast_to(base[:, :1], (40, 30))):
        out = y[: x.shape[0]] if x.shape[0] <= 30 else np.zeros(x.shape[0], np.float32)
        kernel(x, out, 1.0)
        np.testing.assert_allclose(out, x.sum(1), rtol=1e-4, atol=1e-5)


def test_one_artifact_serves_all_extents_of_its_class(monkeypatch: pytest.MonkeyPatch) -> None:
    """200 (rows, columns) of a bf16 softmax: as many plans as classes of facts and sizes, not as shapes."""
    example = EXAMPLES_BY_NAME["softmax"]
    kernel = Kernel(example.kernel)
    artifacts: dict[object, set[str]] = {}
    program, made = lazy.program.Planner.program, list[object]()
    plan_kernel = compiler_program.plan_kernel

    def recorded(planner, dims=None):
        planned = program(planner, dims)
        artifacts.setdefault(planned.request, set()).add(str(planned.variants[0].predicate))
        return planned

    def counted(*args, **kwargs):
        made.append(args)
        return plan_kernel(*args, **kwargs)

    monkeypatch.setattr(lazy.program.Planner, "program", recorded)
    monkeypatch.setattr(compiler_program, "plan_kernel", counted)
    pairs = [(1 + i * 7 % 13, 1 + i * 5 % 97) for i in range(200)]
    for m, n in pairs:
        dtype = tw.bf16
        arrays, expected = example.arrays({"M": m, "N": n}, dtype, seed=m)
        wide = np.zeros((m, 104), arrays["x"].dtype)[:, :n]  # rows of whole 16 bytes, whatever n
        wide[...] = arrays["x"]
        out = np.full((m, 104), np.nan, arrays["y"].dtype)[:, :n]
        kernel(wide, out)
        np.testing.assert_allclose(out.astype(float), expected["y"], rtol=3e-2, atol=3e-2)
    facts = {request.facts for request in artifacts}
    assert len(facts) <= 2  # a single row may have any stride
    assert sum(map(len, artifacts.values())) <= 2
    assert len(made) <= 2  # planned once each, not once for each shape


def test_wide_offsets_have_a_class_of_their_own() -> None:
    requests = lazy.requests
    small = requests.observe_facts({"x": requests.Observed(tw.f32, 0, (2**15, 2**15), (2**15, 1))})
    large = requests.observe_facts({"x": requests.Observed(tw.f32, 0, (2**16, 2**15 + 1), (2**15 + 1, 1))})
    backward = requests.observe_facts({"x": requests.Observed(tw.f32, 0, (3, 2), (-(2**31), 1))})
    assert (small.index_bits, large.index_bits, backward.index_bits) == (32, 64, 64)


def test_offsets_beyond_32_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Strides of 2**31 elements: a view of a little memory, each row at the same place modulo the buffer."""
    base, y = normal(16), np.zeros(2, np.float32)
    x = np.lib.stride_tricks.as_strided(base, (1, 16), (4 * 2**31, 4))  # one row: any stride is fine
    Kernel(scaled)(x, y[:1], 1.0)
    np.testing.assert_allclose(y[0], base.sum(), rtol=1e-5)


def test_calls_that_do_not_fit() -> None:
    x, y = normal(2, 3), np.zeros(2, np.float32)
    assert "4 positional" not in refused("JIT001", x, y)  # no scale
    refused("JIT001", x, y, 1.0, 2, 3)
    refused("JIT001", x, y, 1.0, colour=3)
    refused("JIT001", x, y, 1.0, scale=2.0)
    refused("JIT001", x, y, "two")
    refused("JIT001", x, y, True)
    refused("JIT001", scale=1.0)
    refused("JIT001", x, y, 1.0, bm=[3])
    refused("JIT002", x, [1.0, 2.0], 1.0)


def test_element_types_that_no_kernel_has() -> None:
    x, y = normal(2, 3), np.zeros(2, np.float32)
    assert "float64" in refused("JIT003", x.astype(np.float64), y, 1.0)
    refused("JIT003", x.astype(np.uint64), y, 1.0)
    packed = np.zeros(4, np.dtype([("a", "f4"), ("b", "i1")]))["a"]  # strides of 5 bytes
    refused("JIT003", packed[:2].reshape(2, 1), y, 1.0)
    with pytest.raises(TilewrightError, match="JIT003"):
        Kernel(scaled).compile(dtypes={"x": "float64"})
    with pytest.raises(TilewrightError, match=r"(?s)JIT003.*help: did you mean bf16\?"):
        Kernel(scaled).compile(dtypes={"x": "bfloat"})


def test_unknown_targets() -> None:
    with pytest.raises(TilewrightError, match="JIT004"):
        Kernel(scaled).compile(target="sm_90")


@tw.kernel
def crossed(x: tw.Tensor["M"], y: tw.Tensor["N"], *, b=16):
    """A Range over M that indexes an axis of N: fine where N is no less."""
    m = tw.grid(x.shape[0], b)
    y[m] = x[m]


def test_indices_that_stay_inside_for_some_extents_only() -> None:
    x, y = normal(5), np.zeros(7, np.float32)
    crossed(x, y)
    np.testing.assert_array_equal(y, [*x, 0, 0])
    with pytest.raises(TilewrightError) as caught:
        crossed(x, y[:4])
    (found,) = caught.value.diagnostics
    assert (found.code, found.required) == ("RUN008", "M <= N")
    assert "its own extent" in found.advice


@tw.kernel
def by_blocks(w: tw.Tensor["E", "N"], x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"], *, bm=tw.auto, bn=tw.auto):
    """A weight for 1024 rows: which of them are reached depends on the tiles, of which there are several."""
    m, n = tw.grid(y, (bm, bn))
    y[m, n] = x[m, n] * w[m.start // 1024, n][None, :]


def test_what_tiles_of_one_variant_reach_is_asked_of_every_launch() -> None:
    compiled = by_blocks.compile(dtypes={"w": "f32", "x": "f32", "y": "f32"})
    asked = [fact for fact in compiled.facts if "E" in fact.symbols and fact.symbols <= {"E", "M"}]
    assert len(compiled.variants) > 1
    assert len(asked) > 1
    for rows, weights in product((1, 1023, 1024, 1025, 4096), (1, 2, 4)):
        inside = -(-rows // 1024) <= weights
        assert all(fact.evaluate({"M": rows, "E": weights}) for fact in asked) == inside
    w, x = normal(2, 5), normal(1100, 5)
    y = np.zeros_like(x)
    by_blocks(w, x, y)
    np.testing.assert_array_equal(y, x * w[np.arange(1100) // 1024])
    with pytest.raises(TilewrightError) as caught:
        by_blocks(w[:1], x, y)
    assert caught.value.code == "RUN008"


def test_clamped_coordinates_that_meet_are_asked_to_lie_inside() -> None:
    points, y = normal(2), np.zeros(3, np.float32)
    interpolated(normal(3), points, points, y)
    with pytest.raises(TilewrightError) as caught:
        interpolated(normal(3), points[:1], points[:1], y)
    (found,) = caught.value.diagnostics
    assert (found.code, found.found, found.required) == ("RUN008", "K = 1", "0 <= min(K - 2, 0)")


def test_arguments_that_the_runtime_refuses() -> None:
    x, y = normal(2, 3), np.zeros(2, np.float32)
    kernel = Kernel(scaled)
    for args in ((x, np.zeros(3, np.float32)), (x[0], y), (x, np.zeros((2, 1), np.float32))):
        with pytest.raises(TilewrightError, match="RUN"):
            kernel(*args, 1.0)
    y.flags.writeable = False
    with pytest.raises(TilewrightError):
        kernel(x, y, 1.0)


@tw.kernel
def multiplied(x: tw.Tensor["M"], y: tw.Tensor["M"], *, by=2, over=(1, 0.0)):
    m = tw.grid(x, 16)
    y[m] = x[m] * by / over[1]


@pytest.mark.parametrize(
    ("keywords", "expected"),
    [
        ({}, -np.inf),  # 2^31 wraps
        ({"by": 2.0}, np.inf),
        ({"over": (1, -0.0)}, np.inf),
        ({"by": True}, np.inf),
    ],
)
def test_keywords_that_equal_their_defaults_are_not_their_defaults(keywords, expected: float) -> None:
    y = np.zeros(1, np.float32)
    multiplied(np.array([2**30], np.int32), y, **keywords)
    assert y[0] == expected


def test_a_call_like_one_before_plans_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, x, y = Kernel(scaled), normal(3, 40), np.zeros(3, np.float32)
    kernel(x, y, 2.0)

    def refused_now(*_: object) -> None:
        raise AssertionError("planned again")

    monkeypatch.setattr(lazy.program.Planner, "program", refused_now)
    x = np.concatenate([x + 1, x])[:3]  # elsewhere in memory
    kernel(x, y, 3.0)
    np.testing.assert_allclose(y, 3 * x.sum(1), rtol=1e-5)
    with pytest.raises(AssertionError, match="planned again"):
        kernel(normal(3, 41), y, 2.0)
