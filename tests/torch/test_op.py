"""``@tw.op``: a user's kernel as an operator of PyTorch."""

# ruff: noqa: F821, UP037 - dimension names are strings

from __future__ import annotations

import copy
import pickle
import warnings
from typing import Any

import pytest

import tilewright as tw
from support.processes import run_python
from support.pytorch import torch_or_skip
from tilewright.diag import TilewrightError

torch = torch_or_skip()

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from tilewright.ops import simulated  # noqa: E402
from tilewright.ops.pytorch import constant  # noqa: E402

X = torch.randn(6, 20, generator=torch.Generator().manual_seed(0))


@tw.kernel
def scaled_backward(dy: tw.Tensor["M", "N"], dx: tw.Tensor["M", "N"], *, factor: tw.f32 = 2.0, bm=4):
    m = tw.grid(dy.shape[0], bm)
    n = tw.axis(dy.shape[1], upto=64)
    dx[m, n] = dy[m, n] * factor


@tw.op(backward=scaled_backward)
@tw.kernel
def scaled(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"], *, factor: tw.f32 = 2.0, negate: bool = False, bm=4):
    """y = factor * x."""
    m = tw.grid(x.shape[0], bm)
    n = tw.axis(x.shape[1], upto=64)
    y[m, n] = x[m, n] * (-factor if negate else factor)


@tw.op(dtypes={"top": tw.f32, "place": tw.i32})
@tw.kernel
def rows(
    x: tw.Tensor["M", "N"],
    bias: tw.Tensor["N"] | None,
    y: tw.Tensor["M", "N"],
    top: tw.Tensor["M"],
    place: tw.Tensor["M"],
    *,
    bm=4,
):
    m = tw.grid(x.shape[0], bm)
    n = tw.axis(x.shape[1], upto=64)
    row = x[m, n] if bias is None else x[m, n] + bias[n]
    y[m, n] = row
    top[m] = row.max(1)
    place[m] = row.argmax(1)


@tw.op(mutates=("total",))
@tw.kernel
def accumulate(x: tw.Tensor["N"], total: tw.Tensor["N"], *, bn=64):
    n = tw.grid(x, bn)
    total[n] = total[n] + x[n]


@tw.op
@tw.kernel
def column_sums(x: tw.Tensor["M", "N"], total: tw.Tensor["N"], *, bm=4):
    m = tw.grid(x.shape[0], bm)
    n = tw.axis(x.shape[1], upto=64)
    tw.reduce_add(total, n, x[m, n].sum(0))


def code_of(call: Any) -> str:
    with pytest.raises(tw.TilewrightError) as caught:
        call()
    return caught.value.code


# -- what it returns --------------------------------------------------------------------------------------------------


def test_results_come_back_as_the_signature_says() -> None:
    torch.testing.assert_close(scaled(X), 2 * X)
    torch.testing.assert_close(scaled(X, factor=3.0, negate=True), -3 * X)
    torch.testing.assert_close(scaled(X, 3.0, True, 4), -3 * X)
    y, top, place = rows(X.half(), None)
    assert (y.dtype, top.dtype, place.dtype) == (torch.float16, torch.float32, torch.int32)
    torch.testing.assert_close(place.long(), X.half().argmax(1))
    torch.testing.assert_close(rows(X, X[0])[1], (X + X[0]).amax(1))


def test_strides_of_arguments_are_free_and_results_row_major() -> None:
    y = scaled(X.t()[::2])
    torch.testing.assert_close(y, 2 * X.t()[::2])
    assert y.is_contiguous()


def test_dimensions_with_a_number_and_the_dtype_of_values() -> None:
    """``B`` of an argument ``B + 1``; what offsets and values make is of the values' dtype."""

    @tw.op(name="tests::segment_sums")
    @tw.kernel
    def segment_sums(offsets: tw.Offsets["B + 1"], x: tw.Tensor["T"], y: tw.Tensor["B"]):
        b = tw.grid(y, None)
        total = tw.zeros((), tw.f32)
        for t in tw.stream(x.shape[0], 32, start=offsets[b], until=offsets[b + 1]):
            total += x[t].sum(0)
        y[b] = total

    y = segment_sums(torch.tensor([0, 2, 2, 5]), torch.tensor([0.5, 1.0, 1.0, 2.0, 3.0]))
    assert y.dtype == torch.float32
    assert y.tolist() == [1.5, 0.0, 6.0]


def test_out() -> None:
    y = torch.empty(20, 6).t()
    before = y._version
    assert scaled(X, out=y) is y
    torch.testing.assert_close(y, 2 * X)
    assert y._version > before
    assert code_of(lambda: scaled(X, out=torch.empty(3, 3))) == "JIT010"
    with pytest.raises(TilewrightError, match="help: call it without out="):
        scaled(X, out=torch.empty(3, 3))
    assert code_of(lambda: scaled(X, out=torch.empty(6, 20, dtype=torch.float16))) == "JIT010"
    assert code_of(lambda: scaled(X.clone().requires_grad_(), out=y)) == "JIT011"


def test_mutation_is_declared_and_seen() -> None:
    total, x = torch.ones(20), X[0]
    before = total._version
    assert accumulate(x, total) is None
    torch.testing.assert_close(total, 1 + x)
    assert total._version > before
    assert accumulate.overload._schema.arguments[1].is_write
    assert not accumulate.overload._schema.arguments[0].is_write
    assert code_of(lambda: accumulate(x, torch.zeros(20, requires_grad=True))) == "JIT011"

    @torch.compile(backend="aot_eager", fullgraph=True)
    def twice(x: Any, total: Any) -> Any:
        accumulate(x, total)
        accumulate(x, total)
        return total * 2

    total = torch.ones(20)
    torch.testing.assert_close(twice(x, total), 2 + 4 * x)
    torch.testing.assert_close(total, 1 + 2 * x)


def test_sums_begin_at_zero_and_tell_of_their_order() -> None:
    torch.testing.assert_close(column_sums(X), X.sum(0))
    from tilewright.ops.execution import _alert  # noqa: PLC0415

    torch.use_deterministic_algorithms(True)
    try:
        with pytest.raises(RuntimeError, match="not deterministic"):
            _alert(column_sums.signature, (X[0],))
        torch.use_deterministic_algorithms(True, warn_only=True)
        with pytest.warns(UserWarning, match="not deterministic"):
            _alert(column_sums.signature, (X[0],))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            _alert(column_sums.signature, (X[0].int(),))
    finally:
        torch.use_deterministic_algorithms(False)


# -- PyTorch's own checks ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "arguments"),
    [
        (scaled, (X.clone().requires_grad_(), 2.0, False, 4)),
        (scaled, (X, 2.0, True, 4)),
        (rows, (X, None, 4)),
        (rows, (X, X[0], 4)),
        (accumulate, (X[0].clone(), X[1].clone(), 64)),
        (column_sums, (X, 4)),
    ],
)  # fmt: skip
def test_opcheck(op: Any, arguments: tuple[Any, ...]) -> None:
    torch.library.opcheck(op.overload, arguments)


def test_opcheck_of_the_form_with_out() -> None:
    torch.library.opcheck(scaled.out_overload, (X, 2.0, False, 4, torch.empty(6, 20)))


def test_fake_tensors_and_make_fx() -> None:
    with FakeTensorMode() as mode:
        x = mode.from_tensor(X)
        y = scaled(x)
        assert (type(y), y.shape) == (type(x), x.shape)
    graph = make_fx(lambda x: scaled(x) + 1, tracing_mode="symbolic")(X)
    assert str(scaled.overload) in graph.code
    torch.testing.assert_close(graph(X[:3]), 2 * X[:3] + 1)


def test_compile_with_dynamic_shapes() -> None:
    compiled = torch.compile(lambda x: scaled(x * 2).sum(0), backend="aot_eager", fullgraph=True, dynamic=True)
    for rows_ in (6, 5):
        torch.testing.assert_close(compiled(X[:rows_]), 4 * X[:rows_].sum(0))


def test_functorch_and_modes() -> None:
    gradient = torch.func.grad(lambda x: scaled(x).sum())(X)
    torch.testing.assert_close(gradient, torch.full_like(X, 2.0))
    seen: list[Any] = []

    class Mode(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func)
            return func(*args, **(kwargs or {}))

    with Mode():
        scaled(X)
    assert scaled.overload in seen


def test_a_subclass_sees_the_call() -> None:
    seen: list[Any] = []

    class Logged(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func)
            return super().__torch_function__(func, types, args, kwargs or {})

    assert type(scaled(X.as_subclass(Logged))) is Logged
    assert scaled.overload in seen


def test_a_negated_view_is_read_as_it_counts() -> None:
    x = torch.complex(X, X + 1).conj().imag
    assert x.is_neg()
    torch.testing.assert_close(scaled(x), -2 * (X + 1))


def test_tangents_are_not_dropped() -> None:
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(X, X)
        with pytest.raises(tw.TilewrightError, match="JIT011"):
            scaled(dual)


def test_inference_mode() -> None:
    with torch.inference_mode():
        y = scaled(X)
        assert y.is_inference()
        scaled(X, out=y)
    torch.testing.assert_close(y.clone(), 2 * X)


# -- gradients --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compiled", [False, True])
def test_the_backward_kernel(compiled: bool) -> None:
    def loss(x: Any) -> Any:
        return (scaled(x, factor=3.0) * X).sum()

    x = X.clone().requires_grad_()
    (torch.compile(loss, backend="aot_eager", fullgraph=True) if compiled else loss)(x).backward()
    torch.testing.assert_close(x.grad, 3 * X)


def test_no_gradient_is_an_error_where_it_would_be_needed() -> None:
    x = X.clone().requires_grad_()
    y = rows(x, None)[0]
    assert code_of(lambda: y.sum().backward()) == "JIT011"
    (dx,) = torch.autograd.grad(scaled(x).square().sum(), x, create_graph=True)
    assert code_of(lambda: dx.sum().backward()) == "JIT011"
    with torch.no_grad():
        assert not rows(x, None)[0].requires_grad


def test_a_kernel_that_is_no_operator_returns_nothing_that_looks_differentiable() -> None:
    kernel, x = scaled.signature.kernel, X.clone().requires_grad_()
    assert code_of(lambda: kernel(x)) == "JIT011"
    with torch.no_grad():
        torch.testing.assert_close(kernel(x), 2 * X)
    y = torch.empty_like(X)
    kernel(x, y)  # results that are given are the caller's
    torch.testing.assert_close(y, 2 * X)


@pytest.mark.parametrize(
    ("make", "found"),
    [
        (lambda: X.double(), "torch.float64"),
        (lambda: X.to_sparse(), "torch.sparse_coo"),
        (lambda: torch.complex(X, X).conj(), "complex64"),
        (lambda: torch.quantize_per_tensor(X, 0.1, 0, torch.qint8), "quantized"),
        (lambda: torch.nested.nested_tensor([X[0], X[1]]), "nested"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_tensors_that_no_kernel_reads_are_refused_by_name(make: Any, found: str) -> None:
    kernel = scaled.signature.kernel
    for results in ((), (torch.empty_like(X),)):
        with pytest.raises(TilewrightError) as caught:
            kernel(make(), *results)
        assert caught.value.code == "JIT003"
        assert found.removeprefix("torch.") in str(caught.value.diagnostics[0].found)


def test_a_function_over_operators() -> None:
    asked: list[tuple[str, ...]] = []

    def backward(x: Any, y: Any, dy: Any, factor: float) -> Any:
        asked.append(tuple(x.shape))
        assert torch.equal(y, x * factor)
        return scaled(dy, factor=factor)

    again = tw.op(backward=backward, fallback=lambda x, factor, negate, bm: x * factor)(scaled.signature.kernel)
    x = X.clone().requires_grad_()
    (again(x, factor=4.0) * X).sum().backward()
    torch.testing.assert_close(x.grad, 4 * X)
    assert asked == [(6, 20)]
    wrong = tw.op(backward=lambda dy: (dy, dy))(scaled.signature.kernel)
    assert code_of(lambda: wrong(x).sum().backward()) == "JIT010"


def test_a_fallback_is_held_to_the_signature() -> None:
    kernel = scaled.signature.kernel
    computed = tw.op(fallback=lambda x, factor, negate, bm: x + 100)(kernel)
    torch.testing.assert_close(computed(X), X + 100)
    with simulated():
        torch.testing.assert_close(computed(X), 2 * X)
    assert code_of(lambda: tw.op(fallback=lambda x, factor, negate, bm: x[:3])(kernel)(X)) == "JIT010"
    assert code_of(lambda: tw.op(fallback=lambda x, factor, negate, bm: x.double())(kernel)(X)) == "JIT010"


# -- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        lambda: scaled(),
        lambda: scaled(X, 2.0, True, 4, 5),
        lambda: scaled(X, colour=3),
        lambda: scaled(X, x=X),
        lambda: scaled(X[0]),
        lambda: rows(X, X[0, :5]),
        lambda: scaled(X.to("meta"), out=torch.empty(6, 20)),
    ],
)
def test_calls_that_do_not_fit(call: Any) -> None:
    assert code_of(call) == "JIT010"


def test_refusals_say_what_the_operator_takes() -> None:
    with pytest.raises(TilewrightError) as wrong_shape:
        rows(X, X[0, :5])
    with pytest.raises(TilewrightError) as no_tensor:
        scaled(X.numpy())
    assert "help: its tensors are rows(x[M, N]" in str(wrong_shape.value)
    assert "torch.as_tensor(x) makes one" in str(no_tensor.value)


def test_kernels_that_are_no_operators() -> None:
    @tw.kernel
    def undeclared(x: tw.Tensor["N"], total: tw.Tensor["N"], *, bn=64):
        n = tw.grid(x, bn)
        total[n] = total[n] + x[n]

    @tw.kernel
    def unknown_extent(x: tw.Tensor["N"], y: tw.Tensor["P", "N"], *, bn=64):
        p, n = tw.grid(y, (None, bn))
        y[p, n] = x[n]

    @tw.kernel
    def no_argument(y: tw.Tensor["N"], *, bn=64):
        n = tw.grid(y, bn)
        y[n] = tw.zeros((n,), tw.f32)

    @tw.kernel
    def renamed(x: tw.Tensor["N"], y: tw.Tensor["N"], *, bn=64):
        other = y
        n = tw.grid(x, bn)
        other[n] = x[n]

    @tw.kernel
    def nothing(x: tw.Tensor["N"], *, bn=64):
        n = tw.grid(x, bn)
        x[n]

    for kernel in (undeclared, unknown_extent, no_argument, renamed, nothing):
        assert code_of(lambda kernel=kernel: tw.op(kernel)) == "JIT009"
    kernel = scaled.signature.kernel
    for declared in (
        {"outputs": ("z",)},
        {"outputs": ("x",)},
        {"mutates": ("x",)},
        {"dtypes": {"y": "f64"}},
        {"dtypes": {"z": "f32"}},
        {"backward": 3},
        {"backward": rows},
        {"backward": lambda colour: colour},
    ):
        assert code_of(lambda declared=declared: tw.op(**declared)(kernel)) == "JIT009", declared
    assert code_of(lambda: tw.op(lambda x: x)) == "JIT009"
    assert code_of(lambda: tw.op(kernel, backwards=rows)) == "JIT009"
    with pytest.raises(TilewrightError, match="did you mean backward"):
        tw.op(backwards=rows)
    assert tw.op(outputs=("y",))(renamed)(X[0]).shape == (20,)


def test_a_result_that_a_program_does_not_write_is_refused() -> None:
    @tw.op
    @tw.kernel
    def sometimes(x: tw.Tensor["N"], y: tw.Tensor["N"], z: tw.Tensor["N"], *, write: bool = True, bn=64):
        n = tw.grid(x, bn)
        z[n] = x[n]
        if write:
            y[n] = x[n]

    torch.testing.assert_close(sometimes(X[0])[0], X[0])
    assert code_of(lambda: sometimes(X[0], write=False)) == "JIT008"


def test_a_name_may_be_defined_again() -> None:
    kernel = scaled.signature.kernel
    first = tw.op(name="tilewright_tests::again", fallback=lambda x, factor, negate, bm: x)(kernel)
    torch.testing.assert_close(first(X), X)
    second = tw.op(name="tilewright_tests::again", fallback=lambda x, factor, negate, bm: x + 1)(kernel)
    torch.testing.assert_close(second(X), X + 1)
    torch.testing.assert_close(torch.ops.tilewright_tests.again(X, 2.0, False, 4), X + 1)


# -- what readers from outside try ------------------------------------------------------------------------------------


def copied(name: str = "", factor: float = 1.0, **declared: Any) -> Any:
    """An operator of a kernel that is made here, as those of a factory are."""

    @tw.kernel
    def copy(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"], *, bm=4):
        m = tw.grid(x.shape[0], bm)
        n = tw.axis(x.shape[1], upto=64)
        y[m, n] = x[m, n] * factor

    return tw.op(name=name, **declared)(copy)


def test_operators_of_a_factory_stay_apart() -> None:
    """Two without a name had one name, and a compiled call of the first computed the second."""
    doubled, tripled = copied(factor=2.0), copied(factor=3.0)
    assert doubled.name != tripled.name
    for op, factor in ((doubled, 2), (tripled, 3)):
        compiled = torch.compile(lambda x, op=op: op(x), backend="aot_eager", fullgraph=True)
        torch.testing.assert_close(compiled(X), factor * X)


def test_an_operator_whose_name_another_took_is_not_taken_for_it() -> None:
    first, second = copied("tilewright_tests::taken", 2.0), copied("tilewright_tests::taken", 3.0)
    torch.testing.assert_close(first(X), 2 * X)  # no dispatcher between
    torch.testing.assert_close(torch.vmap(second)(X[None])[0], 3 * X)
    with FakeTensorMode() as mode:
        fake = mode.from_tensor(X)
        assert code_of(lambda: first(fake)) == "JIT010"
        assert second(fake).shape == X.shape


@pytest.mark.parametrize("name", ["aten::softmax", "a::b::c", "1a::b", "a::2b", "a b::c", "::y", "x y", "a::__b"])
def test_names_that_are_none(name: str) -> None:
    assert code_of(lambda: copied(name)) == "JIT009"


def test_an_operator_of_a_script_is_found_by_what_inductor_writes() -> None:
    """In a class, where Python takes ``__main___doubled`` for ``_Class__main___doubled``."""
    kernel = scaled.signature.kernel
    kernel.fn.__module__, before = "__main__", kernel.fn.__module__
    try:
        found = tw.op(kernel)
    finally:
        kernel.fn.__module__ = before
    assert found.name == "tilewright_ops::main___scaled"
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(lambda x: found(x) + 1, fullgraph=True)(X), 2 * X + 1)


def test_arguments_called_self_and_out() -> None:
    @tw.op(name="tilewright_tests::of_self")
    @tw.kernel
    def of_self(self: tw.Tensor["N"], y: tw.Tensor["N"], *, bn=64):
        n = tw.grid(self, bn)
        y[n] = self[n]

    torch.testing.assert_close(of_self(self=X[0]), X[0])

    @tw.kernel
    def of_out(out: tw.Tensor["N"], y: tw.Tensor["N"], *, bn=64):
        n = tw.grid(out, bn)
        y[n] = out[n]

    assert code_of(lambda: tw.op(of_out)) == "JIT009"


@pytest.mark.parametrize("value", [None, [1.0, 2.0], 3, X.numpy()])
def test_what_is_no_tensor_is_refused_by_name(value: Any) -> None:
    with pytest.raises(TilewrightError, match=f"{type(value).__name__} for the tensor x"):
        scaled(value)
    with pytest.raises(TilewrightError, match="for the tensor x"):
        rows(value, X[0])


def test_results_given_as_a_list_or_wrongly() -> None:
    outs = [torch.empty(6, 20), torch.empty(6), torch.empty(6, dtype=torch.int32)]
    assert rows(X, None, out=outs) is outs
    torch.testing.assert_close(outs[1], X.amax(1))
    whole = torch.empty(126)
    for wrong in (
        (None, None, None),
        {"y": 1},
        "y",
        (torch.empty(6, 20, device="meta"), *outs[1:]),
        outs[:2],
    ):
        assert code_of(lambda wrong=wrong: rows(X, None, out=wrong)) == "JIT010"
    overlapping = (whole[:120].view(6, 20), whole[115:121], outs[2])
    assert code_of(lambda: rows(X, None, out=overlapping)) == "RUN010"


def test_out_in_a_compiled_graph() -> None:
    """Dynamo was led into the parser of the signature's dimensions."""

    def into(x: Any, y: Any) -> Any:
        scaled(x, out=y)
        return y + 1

    compiled, y = torch.compile(into, backend="aot_eager", fullgraph=True), torch.empty_like(X)
    torch.testing.assert_close(compiled(X, y), 2 * X + 1)
    torch.testing.assert_close(y, 2 * X)
    with pytest.raises(Exception, match="JIT010"):
        compiled(X, torch.empty(3, 3))


def test_a_fallback_that_returns_its_argument_gives_memory_of_its_own() -> None:
    same = copied("tilewright_tests::same", fallback=lambda x, bm: x)
    torch.library.opcheck(same.overload, (X.clone(), 4))
    x = X.clone()
    same(x).add_(1)
    torch.testing.assert_close(x, X)
    turned = copied("tilewright_tests::turned", fallback=lambda x, bm: x.t().t())
    turned(x).add_(1)
    torch.testing.assert_close(x, X)


def test_a_fallback_is_not_cast_by_autocast() -> None:
    product = copied("tilewright_tests::product", fallback=lambda x, bm: x @ torch.eye(20))
    with torch.autocast("cpu", torch.bfloat16):
        y = product(X)
    assert y.dtype == torch.float32
    torch.testing.assert_close(y, X, rtol=0, atol=0)


def test_meta_tensors_have_results_without_elements() -> None:
    y, top, _ = rows(X.to("meta"), None)
    assert (y.device.type, y.shape, top.shape, top.dtype) == ("meta", X.shape, (6,), torch.float32)


def test_operators_are_copied_and_pickled_as_functions_are() -> None:
    assert copy.deepcopy([scaled])[0] is scaled
    assert pickle.loads(pickle.dumps(scaled)) is scaled


def test_a_kernel_that_is_no_operator_is_not_traced_nor_transformed() -> None:
    """A graph that ``make_fx`` made had its result's memory, and not the kernel."""
    kernel = scaled.signature.kernel
    with FakeTensorMode() as mode:
        assert code_of(lambda: kernel(mode.from_tensor(X))) == "JIT003"
    assert code_of(lambda: make_fx(lambda x: kernel(x) + 1)(X)) == "JIT003"
    assert code_of(lambda: torch.vmap(lambda x: kernel(x))(X[None])) == "JIT003"
    assert code_of(lambda: torch.func.jvp(lambda x: kernel(x), (X,), (X,))) == "JIT003"
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(X, X)
        assert code_of(lambda: kernel(dual, torch.empty_like(X))) == "JIT003"
        torch.testing.assert_close(kernel(X), 2 * X)  # which has no tangent
    with FlopCounterMode(display=False):
        torch.testing.assert_close(kernel(X), 2 * X)


def test_a_kernel_that_is_no_operator_breaks_a_compiled_graph_and_runs() -> None:
    """Dynamo went on into the simulator, and failed there."""
    kernel = scaled.signature.kernel
    compiled = torch.compile(lambda x: kernel(x + 1) * 2, backend="aot_eager")
    torch.testing.assert_close(compiled(X), 4 * (X + 1))


FIRST_CALL = """
import sys
import torch
from tilewright import ops

x = torch.ones(3, 8, requires_grad=True)
ops.rms_norm(x, torch.ones(8)).sum().backward()
print("torch._dynamo" in sys.modules)
"""


def test_a_first_call_does_not_import_the_compiler_of_pytorch() -> None:
    assert run_python(FIRST_CALL) == "False\n"


def test_a_function_is_marked_constant_as_pytorch_marks_it() -> None:
    marked: list[Any] = [mark(lambda: 0) for mark in (constant, torch.compiler.assume_constant_result)]
    assert vars(marked[0]) == vars(marked[1]) != {}
