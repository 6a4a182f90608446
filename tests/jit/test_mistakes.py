"""What a newcomer tries: names of other languages, misspelt keywords, scalars of other libraries, absent tensors."""

# ruff: noqa: F821, UP037 - dimension names are strings
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import copy
import inspect
import itertools
import pickle
from collections.abc import Callable
from typing import Any, cast

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tilewright import jit
from tilewright.diag import TilewrightError, shown
from tilewright.lang.hints import FUNCTIONS, METHODS

X = np.random.default_rng(0).standard_normal((20, 33)).astype(np.float32)
B = X[0] * 2


@tw.kernel
def linear(
    x: tw.Tensor["M", "N"],
    bias: tw.Tensor["N"] | None,
    y: tw.Tensor["M", "N"],
    *,
    scale: tw.f32 = 1.0,
    shift: tw.i32 = 0,
    residual: tw.Tensor["M", "N"] = None,
    bm=16,
):
    """A row-wise kernel with two optional tensors."""
    m, n = tw.grid(y, bm), tw.axis(y.shape[1], upto=64)
    value = x[m, n] * scale + shift
    if bias is not None:
        value = value + bias[n][None, :]
    if residual is not None:
        value = value + residual[m, n]
    y[m, n] = value


def refusal(run: Callable[[], object]) -> Any:
    with pytest.raises(TilewrightError) as caught:
        run()
    (diagnostic,) = caught.value.diagnostics
    return diagnostic


def of_body(body: Callable[[Any, Any], object]) -> Any:
    """What refuses a kernel that stores ``body(tile, range)``."""

    @tw.kernel
    def kernel(x: tw.Tensor["M"], y: tw.Tensor["M"]):
        m = tw.grid(y, 16)
        y[m] = body(x[m], m)

    return refusal(kernel.explain)


# -- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "help"),
    [("load", "x[m, n]"), ("cdiv", "round up"), ("program_id", "tw.grid"), ("u64", "unsigned"), ("maxmum", "maximum")],
)
def test_names_of_other_languages(name: str, help: str) -> None:
    found = refusal(lambda: getattr(tw, name))
    assert (found.code, help in found.advice, found.where.file) == ("LNG034", True, __file__)
    assert not hasattr(tw, name)


@pytest.mark.parametrize(
    ("name", "help"),
    [
        *(("sort", "tw.sort(x, axis)"), ("astype", ".to(tw.f32)"), ("summ", "did you mean sum?"), ("exp", "tw.exp")),
        *(("floor", "tw.floor"), ("stop", "m.stop"), ("index", "m.index"), ("numel", ".shape")),
    ],
)
def test_methods_of_other_libraries(name: str, help: str) -> None:
    found = of_body(lambda v, _: getattr(v, name)(0))
    assert (found.code, help in found.advice, found.where.file) == ("LNG034", True, __file__)


def test_the_index_of_a_grid_without_blocks_is_no_range() -> None:
    @tw.kernel
    def kernel(x: tw.Tensor["M"], y: tw.Tensor["M"]):
        m = tw.grid(y.shape[0], None)
        y[m] = x[m.start]

    found = refusal(lambda: kernel(X[0], X[0].copy()))
    assert (found.code, found.found) == ("LNG034", "Scalar.start")
    assert "m is the index itself" in found.advice


def test_no_hint_is_for_a_name_that_exists() -> None:
    assert not FUNCTIONS.keys() & set(tw.__all__)
    assert not METHODS.keys() & set(dir(tw.Tile))


def test_submodules_are_no_names_of_the_language() -> None:
    assert __import__("tilewright.jit.calls", fromlist=["calls"]).bind is not None


@pytest.mark.parametrize("dtype", ["float32", "f32", np.float32])
def test_dtypes_of_other_libraries(dtype: Any) -> None:
    found = of_body(lambda v, _: v.to(dtype))
    assert (found.code, found.help) == ("LNG004", "write tw.f32")


@pytest.mark.parametrize(
    "name", ["static_assert", "hardtanh", "einsum", "interleave", "layer_norm", "fdiv", "tril", "bincount"]
)
def test_more_names_of_other_languages(name: str) -> None:
    assert refusal(lambda: getattr(tw, name)).help == FUNCTIONS[name]


@pytest.mark.parametrize("name", ["bitcast", "where", "log_softmax", "nan_to_num", "logical_not", "stack", "bincount"])
def test_functions_written_as_methods(name: str) -> None:
    found = of_body(lambda v, _: getattr(v, name))
    assert (found.code, found.help) == ("LNG034", METHODS.get(name) or FUNCTIONS[name])


def test_a_result_is_of_the_first_tensor_of_floats() -> None:
    """What an index and a table make has the table's dtype: it was the index's, and the values were cut off."""

    @tw.kernel
    def embed(index: tw.Tensor["T"], table: tw.Tensor["V", "D"], y: tw.Tensor["T", "D"], *, bt=8, bd=8):
        t, d = tw.grid(y, (bt, bd))
        y[t, d] = table[index[t], d]

    @tw.kernel
    def doubled(index: tw.Tensor["T"], y: tw.Tensor["T"]):
        t = tw.grid(index, 8)
        y[t] = index[t] * 2

    index = np.array([3, 1], np.int32)
    found = embed(index, X)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, X[index])
    assert doubled(index).dtype == np.int32


def test_parameters_that_say_nothing() -> None:
    def bare(x: tw.Tensor, y: tw.Unique):
        pass

    def method(self, x: tw.Tensor["M"]):
        pass

    def wide(x: tw.Tensor["M"], n: tw.i16):
        pass

    helps = [refusal(lambda fn=fn: tw.kernel(fn)).help for fn in (bare, method, wide)]
    assert 'x: tw.Tensor["M", "N"]' in helps[0]
    assert "no method" in helps[1]
    assert "n: tw.i32" in helps[2]


def test_a_launch_as_in_triton() -> None:
    found = refusal(lambda: linear[(4,)](X, B))  # pyright: ignore[reportIndexIssue, reportUnknownLambdaType]
    assert (found.code, "tw.grid" in found.help, found.where.file) == ("JIT001", True, __file__)
    found = refusal(lambda: linear(X, B, np.empty_like(X), num_warps=4))
    assert "tw.Schedule(warps=8)" in found.help


def test_an_index_of_floats() -> None:
    @tw.kernel
    def kernel(x: tw.Tensor["M"], y: tw.Tensor["M"]):
        m = tw.grid(y, 16)
        y[m] = x[m.index * 0.5]

    found = refusal(kernel.explain)
    assert (found.code, found.found) == ("LNG019", "index 0 of x is a tile of f32")
    assert "cast other tiles with .to(tw.i32)" in found.help


def test_print_outside() -> None:
    found = refusal(lambda: tw.print("x"))
    assert (found.code, "Python's print" in found.help) == ("LNG030", True)


# -- calls -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "help"),
    [("bn", "bm"), ("scal", "scale"), ("sream", "stream"), ("schedule", "linear.compile(schedule=...)")],
)
def test_a_misspelt_keyword(name: str, help: str) -> None:
    found = refusal(lambda: linear(X, B, np.empty_like(X), **{name: 3}))
    assert (found.code, help in found.help, found.where.file) == ("JIT001", True, __file__)


@pytest.mark.parametrize(
    "two", [2, 2.0, np.float32(2), np.float64(2), np.int64(2), np.array(2.0), np.array(2), ml_dtypes.bfloat16(2)]
)
def test_scalars_of_other_libraries(two: Any) -> None:
    y = np.empty_like(X)
    linear(X, B, y, scale=two)
    np.testing.assert_array_equal(y, X * 2 + B)


class Raising:
    """Every name of it raises, ``shape`` and ``is_cuda`` too."""

    def __repr__(self) -> str:
        return "Raising()"

    def __getattr__(self, name: str) -> object:
        raise RuntimeError(name)


@pytest.mark.filterwarnings("error")
def test_a_scalar_that_rounds_to_infinity() -> None:
    y = np.empty_like(X)
    linear(np.ones_like(X), None, y, scale=1e300)
    assert np.isinf(y).all()


class OnGpu:
    shape, is_cuda = (), True

    def item(self) -> float:
        raise AssertionError("would wait for the GPU")

    def __repr__(self) -> str:
        return "OnGpu()"


@pytest.mark.parametrize(
    "scale",
    [True, np.bool_(True), "2", 10**400, 10**5000, np.array([2.0]), 2j, None, OnGpu(), Raising(), np.ma.masked],
    ids=shown,
)
def test_what_is_no_number_of_f32(scale: Any) -> None:
    assert refusal(lambda: linear(X, B, np.empty_like(X), scale=scale)).code == "JIT001"


@pytest.mark.parametrize("shift", [1.0, 2**31, -(2**31) - 1, np.float32(1), float("nan"), True])
def test_what_is_no_number_of_i32(shift: Any) -> None:
    assert refusal(lambda: linear(X, B, np.empty_like(X), shift=shift)).code == "JIT001"


def test_subclasses_of_arrays() -> None:
    y = np.empty_like(X)
    linear(X.view(np.matrix), None, y)
    np.testing.assert_array_equal(y, X)
    masked = np.ma.masked_array(X, X > 0)
    assert refusal(lambda: linear(masked, None, y)).code == "JIT003"
    assert refusal(lambda: linear(X, None, masked)).code == "JIT003"


class Untrue(np.ndarray):
    """What it says of itself is not so."""

    @property
    def dtype(self) -> Any:
        return "x"

    @property
    def shape(self) -> Any:
        return (1 << 40, 1 << 40)

    @property
    def strides(self) -> Any:
        raise RuntimeError("none")

    def view(self, *_: object) -> Any:
        raise RuntimeError("none")


def test_of_a_subclass_only_the_memory_counts() -> None:
    y = np.empty_like(X)
    linear(X.view(Untrue), None, y.view(Untrue))
    np.testing.assert_array_equal(y, X)


def test_an_array_at_an_odd_address_is_reported_with_a_copy_as_help() -> None:
    odd = np.frombuffer(bytes(X.nbytes + 1), np.float32, X.size, 1).reshape(X.shape)
    told = refusal(lambda: linear(odd, None, np.empty_like(X)))
    assert (told.code, told.help) == ("JIT003", "pass a copy: x.copy()")
    linear(odd.copy(), None, np.empty_like(X))


@pytest.mark.parametrize("given", [{"x": Raising(), "y": Raising()}, {"x": X, "y": X.copy(), "stream": Raising()}])
def test_what_raises_when_it_is_asked_is_refused(given: dict[str, Any]) -> None:
    assert refusal(lambda: linear(bias=None, **given)).code == ("RUN018" if "stream" in given else "RUN001")
    assert refusal(lambda: linear(X, None, X.copy(), budget=Raising())).code == "JIT001"


@pytest.mark.parametrize("bm", [10**5000, -(10**5000)], ids=["great", "least"])
def test_a_number_that_can_t_be_written_down(bm: int) -> None:
    assert refusal(lambda: linear(X, None, np.empty_like(X), bm=bm)).code in ("LNG021", "LNG023")


def test_a_stream_that_is_none_is_refused_in_the_simulator_too() -> None:
    assert refusal(lambda: linear(X, None, np.empty_like(X), stream="x")).code == "RUN018"


def test_a_budget_may_be_given_in_the_call() -> None:
    y = np.empty_like(X)
    told = refusal(lambda: linear(X, None, y, budget=10))
    assert told.code == "SIM001"
    allowed = float(told.help.partition("budget=")[2])
    linear(X, None, y, budget=allowed)
    np.testing.assert_array_equal(y, X)
    for none in ("much", float("nan"), -1, -(10**5000)):
        assert refusal(lambda none=none: linear(X, None, y, budget=none)).code == "JIT001"


@pytest.mark.parametrize(
    "options",
    [
        {"schedule": 1},
        {"facts": 3},
        {"static": [1]},
        {"dtypes": "bf16"},
        {"target": ["sm_90a"]},
        {"bm": [1]},
        {"bm": {}},
    ],
    ids=str,
)
def test_options_of_another_type(options: dict[str, Any]) -> None:
    assert refusal(lambda: linear.compile(**options)).code in ("LNG029", "JIT004")


@pytest.mark.parametrize("arguments", [(np.zeros(4),), (np.zeros(4), np.zeros(4)), ("sm_90a", "sm_80")], ids=len)
def test_arguments_of_a_call_to_what_takes_a_target(arguments: tuple[Any, ...]) -> None:
    for asked in (linear.compile, linear.plan, linear.explain):
        diagnostic = refusal(lambda asked=asked: asked(*arguments))
        assert diagnostic.code == "JIT004"
        assert "a call linear(" in diagnostic.help


@pytest.mark.parametrize("text", ["extents=4", "cluster=" + "1" * 5000 + "x1", "warps=" + "1" * 5000, "mode=\x1b"])
def test_schedules_that_are_none(text: str) -> None:
    assert refusal(lambda: tw.Schedule.parse(text)).code == "LNG028"


@pytest.mark.parametrize("extents", [5, [1], {3: 4}, {"bm": "x"}, [("bm", 1, 2)]])
def test_extents_that_are_none(extents: Any) -> None:
    assert refusal(lambda: tw.Schedule(extents=extents)).code == "LNG028"


def test_parameters_named_as_options() -> None:
    def streamed(x: tw.Tensor["M"], *, stream: tw.f32):
        pass

    def static(x: tw.Tensor["M"], *, static=3):
        pass

    def of_itself(x: tw.Tensor["M"], *, self=3):
        pass

    for body in (streamed, static, of_itself):
        assert refusal(lambda body=body: tw.kernel(body)).code == "LNG001"


def test_parameters_without_names() -> None:
    def before(x: tw.Tensor["M"], /, y: tw.Tensor["M"]):
        pass

    def some(*x: tw.Tensor["M"]):
        pass

    def others(x: tw.Tensor["M"], **y: tw.Tensor["M"]):
        pass

    for body in (before, some, others):
        assert refusal(lambda body=body: tw.kernel(body)).code == "LNG001"


ARRAY = np.zeros((2, 2), np.float32)
OTHER_TYPES: list[tuple[str, Callable[[], object]]] = [
    ("LNG028", lambda: tw.Schedule.parse(cast(Any, None))),
    ("LNG028", lambda: tw.Schedule(mode=cast(Any, ARRAY))),
    ("LNG028", lambda: tw.Schedule(extents=cast(Any, memoryview(ARRAY)))),
    ("LNG001", lambda: tw.kernel(numerics=cast(Any, ARRAY))(linear.fn)),
    ("LNG001", lambda: tw.kernel(on_out_of_range=cast(Any, ARRAY))(linear.fn)),
    ("LNG001", lambda: tw.kernel(sentinel=cast(Any, ARRAY))(linear.fn)),
    ("JIT012", lambda: tw.build_pack_plan(np.zeros(3, np.int32), 3, unique=ARRAY)),
    ("JIT013", lambda: linear.tune(ARRAY, schedules=cast(Any, 3))),
    ("JIT013", lambda: linear.tune(ARRAY, schedules=cast(Any, np.float32(1)))),
    ("JIT003", lambda: linear.plan(dtypes={"x": 3})),
    ("LNG029", lambda: linear.plan(dtypes={3: "bf16"})),
    ("LNG029", lambda: linear.plan(static={3: 4})),
]


@pytest.mark.parametrize(("code", "call"), OTHER_TYPES, ids=range(len(OTHER_TYPES)))
def test_options_of_no_type_that_is_meant(code: str, call: Callable[[], object]) -> None:
    assert refusal(call).code == code


# -- optional tensors -------------------------------------------------------------------------------------------------


def test_optional_tensors() -> None:
    y = np.empty_like(X)
    for args, options, expected in (
        ((X, B, y), {}, X + B),
        ((X, None, y), {}, X),
        ((X, None, y), {"residual": X, "scale": 2.0}, 3 * X),
        ((), {"x": X, "y": y}, X),
        ((X, B, y), {"residual": None}, X + B),
    ):
        y[:] = np.nan
        linear(*args, **options)
        np.testing.assert_allclose(y, expected, rtol=1e-6)
    np.testing.assert_allclose(linear(X, B), X + B, rtol=1e-6)  # a result that is left out is allocated
    assert refusal(lambda: linear(bias=B, y=y)).code == "JIT001"
    assert refusal(lambda: linear(None, B, y)).code == "JIT002"


def test_optional_tensors_ahead_of_time() -> None:
    whole, without = linear.compile(), linear.compile(bias=None, residual=None)
    assert [p.name for p in whole.tensors] == ["x", "bias", "y", "residual"]
    assert [p.name for p in without.tensors] == ["x", "y"]
    assert "bias" not in linear.explain(bias=None)


def test_a_tensor_has_no_other_default() -> None:
    def kernel(x: tw.Tensor["M"] = 3):
        pass

    assert refusal(lambda: tw.kernel(kernel)).code == "LNG001"


# -- kernels as functions ---------------------------------------------------------------------------------------------


def test_a_kernel_has_what_a_function_has() -> None:
    assert (linear.__name__, linear.__module__) == ("linear", __name__)
    assert linear.__doc__ == "A row-wise kernel with two optional tensors."
    assert list(inspect.signature(linear).parameters)[:3] == ["x", "bias", "y"]
    assert repr(linear).startswith("<kernel linear at ")
    assert copy.deepcopy(linear) is linear


def test_a_kernel_is_pickled_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, __name__, inspect.getmodule(test_a_kernel_has_what_a_function_has))
    module = type(pickle)(__name__)
    module.linear = linear
    monkeypatch.setitem(__import__("sys").modules, __name__, module)
    assert pickle.loads(pickle.dumps(linear)) is linear


def test_names_of_a_calls_options_may_be_parameters() -> None:
    @tw.kernel
    def named(self: tw.Tensor["r"], min: tw.Tensor["r"], *, max: tw.f32):
        r = tw.grid(min, 16)
        min[r] = self[r] * max

    y = np.empty_like(B)
    jit.Kernel(named)(B, y, max=2.0)
    named(self=B, min=y, max=3.0)
    np.testing.assert_array_equal(y, B * 3)


# -- hidden state -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "advance"),
    [
        (lambda: itertools.count(1), next),
        (lambda: iter([1, 2, 3]), next),
        (lambda: (n for n in (1, 2, 3)), next),
        (lambda: itertools.cycle((1, 2)), next),
        (lambda: {1, 2, 3}, lambda s: s.pop()),
        (lambda: [1, 2, 3], lambda s: s.pop()),
        (lambda: np.arange(3), lambda s: int(s.put(0, s[0] + 1) or s[0])),
        (lambda: bytearray(b"abc"), lambda s: s.pop()),
    ],
)
def test_state_that_python_advances_in_a_stream_is_refused(
    state: Callable[[], Any], advance: Callable[[Any], int]
) -> None:
    @tw.kernel
    def kernel(x: tw.Tensor["M"], y: tw.Tensor["M"]):
        m = tw.grid(y, 4)
        total = tw.zeros(m, tw.f32)
        held = state()
        for _ in tw.stream(x.shape[0], 2):
            total += x[m] * advance(held)
        y[m] = total

    found = refusal(kernel.explain)
    assert (found.code, "held" in found.found) == ("LNG010", True)


def test_state_that_stays_is_not_refused() -> None:
    @tw.kernel
    def kernel(x: tw.Tensor["M"], y: tw.Tensor["M"]):
        m = tw.grid(y, 4)
        total = tw.zeros(m, tw.f32)
        kept, weights, seen = iter([1, 2]), np.arange(3), {1, 2}
        for _ in tw.stream(x.shape[0], 2):
            total += x[m] * (int(weights[1]) + len(seen))
        y[m] = total * next(kept)

    assert "kernel" in kernel.explain()


def of_tile(use: Callable[[Any, Any, Any, Any], object]) -> Any:
    """What refuses a kernel that uses x, y and their Ranges so."""

    @tw.kernel
    def kernel(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"]):
        m, n = tw.grid(y, (4, 16))
        y[m, n] = use(x, y, m, n)

    return refusal(lambda: kernel(X, np.empty_like(X)))


def _del(x: Any, m: Any, n: Any) -> None:
    del x[m, n]


def _with(x: Any) -> None:
    with x:
        pass


def _attribute(x: Any) -> None:
    x.mine = 1


@pytest.mark.parametrize(
    ("use", "code", "help"),
    [
        (lambda x, y, m, n: np.sum(x[m, n], axis=1), "LNG007", "use x.sum(axis)"),
        (lambda x, y, m, n: np.where(x[m, n] > 0, x[m, n], 0), "LNG007", "use tw.where"),
        (lambda x, y, m, n: x[m, n] + np.arange(16), "LNG007", "pass the array as a tensor parameter"),
        (lambda x, y, m, n: f"{x[m, n]:.2f}", "LNG007", "tw.print"),
        (lambda x, y, m, n: _del(x, m, n), "LNG007", "store zeros"),
        (lambda x, y, m, n: _with(x[m, n]), "LNG023", "docs/language.md"),
        (lambda x, y, m, n: x(m, n), "LNG023", "docs/language.md"),
        (lambda x, y, m, n: _attribute(x), "LNG023", "docs/language.md"),
        (lambda x, y, m, n: x.T, "LNG034", "load a tile first: x[m, n].T"),
        (lambda x, y, m, n: x.sum(1), "LNG034", "load a tile first: x[m, n].sum"),
        (lambda x, y, m, n: list(tw.stream(x.shape[0] / 4, 8)), "LNG021", "make it an integer: //"),
        (lambda x, y, m, n: x[:, n], "LNG019", "take the whole axis"),
        (lambda x, y, m, n: linear(x, None, y), "JIT001", "a plain function of tiles"),
    ],
)
def test_uses_of_tiles_in_the_manner_of_others(use: Any, code: str, help: str) -> None:
    told = of_tile(use)
    assert told.code == code
    assert help in told.help


def test_too_few_names_for_a_grid() -> None:
    @tw.kernel
    def kernel(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"]):
        m, n, _ = tw.grid([y.shape[0], y.shape[1]], [4, 16])
        y[m, n] = x[m, n]

    told = refusal(lambda: kernel(X, np.empty_like(X)))
    assert (told.code, told.found) == ("LNG041", "not enough values to unpack (expected 3, got 2)")
    assert told.where.text.startswith("m, n, _ = tw.grid")


def test_several_names_for_a_grid_of_one_block() -> None:
    @tw.kernel
    def kernel(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"]):
        m, n = tw.grid(x, (4,))
        y[m, n] = x[m, n]

    told = refusal(lambda: kernel(X, np.empty_like(X)))
    assert (told.code, told.found) == ("LNG041", "one Range for 2 names")
    assert "blocks" in told.help


@pytest.mark.parametrize(
    ("use", "code", "help"),
    [
        (lambda x: x.shape[2], "LNG025", "from 0"),
        (lambda x: x.shape(0), "LNG041", "x.shape[0]"),
        (lambda x: x[:, :].sum(1, keep_dims=True), "LNG041", "did you mean keepdims?"),
        (lambda x: tw.axis(64, up_to=64), "LNG041", "did you mean upto?"),
    ],
)
def test_shapes_and_keywords_that_are_not(use: Any, code: str, help: str) -> None:
    @tw.kernel
    def kernel(x: tw.Tensor[4, 16], y: tw.Tensor[4, 16]):
        m, n = tw.grid(x, (4, 16))
        use(x)
        y[m, n] = x[m, n]

    told = refusal(lambda: kernel(np.ones((4, 16), np.float32), np.empty((4, 16), np.float32)))
    assert told.code == code
    assert help in told.help


def test_a_tile_that_was_kept_from_another_trace() -> None:
    kept: list[Any] = []

    @tw.kernel
    def kernel(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"]):
        m, n = tw.grid(y, (4, 16))
        kept.append(x[m, n])
        y[m, n] = kept[0]

    told = refusal(lambda: kernel(X, np.empty_like(X)))
    assert (told.code, told.title) == ("LNG012", "a value of another kernel is used")
