"""The operators of ``tilewright.ops``: PyTorch's checks, its result dtypes, compiled graphs, ``out=``, refusals."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tilewright as tw
from support.pytorch import torch_or_skip

torch = torch_or_skip()

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

from support import operators  # noqa: E402
from support.operators import GROUPS, TABLE, TARGET  # noqa: E402
from support.processes import run_python  # noqa: E402
from tilewright import ops  # noqa: E402
from tilewright.ops.functional import rotaries  # noqa: E402

F = torch.nn.functional
BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32


def normal(*shape: int, dtype: Any = F32, grad: bool = False, device: str = "cpu") -> Any:
    if device != "cpu":
        return torch.empty(shape, dtype=dtype, device=device)
    random = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=random).to(dtype).requires_grad_(grad)


@pytest.mark.parametrize("name", operators.CALLS)
def test_opcheck(name: str) -> None:
    operators.opcheck(name)


def test_every_operator_is_checked() -> None:
    assert not operators.unchecked()


def _of_groups(x: Any, w: Any) -> Any:
    """By ``narrow`` and ``select``, which fake tensors of a GPU have."""
    parts = [x.narrow(0, start, rows) @ w.select(0, g).t() for start, rows, g in ((0, 2, 0), (2, 3, 2), (5, 1, 0))]
    return torch.cat([*parts[:2], parts[2] * 0])


CALLS: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "softmax": (ops.softmax, lambda x: x.softmax(-1), ((2, 6, 10),)),
    "log_softmax": (ops.log_softmax, lambda x: x.log_softmax(-1), ((2, 6, 10),)),
    "rms_norm": (lambda x, w: ops.rms_norm(x, w), lambda x, w: F.rms_norm(x, (10,), w, 1e-6), ((2, 6, 10), (10,))),
    "add_rms_norm": (
        lambda x, r, w: ops.add_rms_norm(x, r, w)[0],
        lambda x, r, w: F.rms_norm(x + r, (10,), w, 1e-6),
        ((2, 6, 10), (2, 6, 10), (10,)),
    ),
    "layer_norm": (ops.layer_norm, lambda x, w, b: F.layer_norm(x, (10,), w, b), ((2, 6, 10), (10,), (10,))),
    "add_layer_norm": (
        lambda x, r, w, b: ops.add_layer_norm(x, r, w, b)[0],
        lambda x, r, w, b: F.layer_norm(x + r, (10,), w, b),
        ((2, 6, 10), (2, 6, 10), (10,), (10,)),
    ),
    "swiglu": (ops.swiglu, lambda g, u: F.silu(g) * u, ((2, 6, 10), (2, 6, 10))),
    "geglu": (ops.geglu, lambda g, u: F.gelu(g) * u, ((2, 6, 10), (2, 6, 10))),
    "cross_entropy": (
        lambda x: ops.cross_entropy(x, TARGET.to(x.device)),
        lambda x: F.cross_entropy(x, TARGET.to(x.device)),
        ((6, 10),),
    ),
    "linear": (
        lambda x, w, b: ops.linear(x, w, b, activation="gelu"),
        lambda x, w, b: F.gelu(F.linear(x, w, b)),
        ((2, 6, 10), (4, 10), (4,)),
    ),
    "attention": (
        lambda q, k, v: ops.attention(q, k, v, causal=True),
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        ((1, 2, 6, 64),) * 3,
    ),
    "embedding": (
        lambda w: ops.embedding(TABLE.to(w.device), w, 3),
        lambda w: F.embedding(TABLE.to(w.device), w, 3),
        ((8, 10),),
    ),
    "index_add": (
        lambda x, s: ops.index_add(x, 0, TABLE.to(x.device), s, alpha=2),
        lambda x, s: torch.index_add(x, 0, TABLE.to(x.device), s, alpha=2),
        ((8, 10, 3), (5, 10, 3)),
    ),
    "cumsum": (lambda x: ops.cumsum(x, 1), lambda x: x.cumsum(1), ((2, 6, 10),)),
    "grouped_matmul": (
        lambda x, w: ops.grouped_matmul(x, w, GROUPS.to(x.device)),
        _of_groups,
        ((6, 10), (3, 4, 10)),
    ),
    "linear_cross_entropy": (
        lambda x, w: ops.linear_cross_entropy(x, w, TARGET, chunk=4),
        lambda x, w: F.cross_entropy(x @ w.t(), TARGET),
        ((6, 8), (10, 8)),
    ),
    "rotary": (
        lambda x, a: ops.rotary(x, a.cos(), a.sin()),
        lambda x, a: rotaries._turned(x.unflatten(-1, (2, 4)), a.cos(), a.sin(), False).flatten(-2),
        ((1, 5, 3, 8), (5, 4)),
    ),
}


@pytest.mark.parametrize(("dtype", "dynamic"), [(F32, None), (F32, True), (BF16, None), (torch.float64, None)])
@pytest.mark.parametrize("name", CALLS)
def test_compiled_graphs_agree_with_pytorch(name: str, dtype: Any, dynamic: bool | None) -> None:
    """Forward and backward, in one graph; float64 by PyTorch's own operators."""
    if name == "linear_cross_entropy" and dtype != F32:
        pytest.skip("its loss is float32 whatever its inputs")
    ours, theirs, shapes = CALLS[name]
    mine, reference = ([normal(*s, dtype=dtype, grad=True) for s in shapes] for _ in range(2))
    got = torch.compile(ours, backend="aot_eager", fullgraph=True, dynamic=dynamic)(*mine)
    expected = theirs(*reference)
    tolerance = {F32: 1e-5, BF16: 5e-2, torch.float64: 1e-10}[dtype]
    assert got.dtype == expected.dtype
    torch.testing.assert_close(got, expected, rtol=tolerance, atol=tolerance)
    for result in (got, expected):
        result.sum().backward()
    for a, b in zip(mine, reference, strict=True):
        if name == "rotary" and a.shape == (5, 4):
            assert a.grad is None or not a.grad.any()  # angles get none
            continue
        torch.testing.assert_close(a.grad, b.grad, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("dtype", [F32, F16, BF16])
@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("name", [n for n in CALLS if n not in ("rotary", "linear_cross_entropy", "add_rms_norm")])
def test_result_dtypes_are_pytorchs(name: str, device: str, dtype: Any, autocast: bool) -> None:
    """On fake tensors, which need no GPU."""
    ours, theirs, shapes = CALLS[name]
    low = name in ("linear", "attention", "grouped_matmul") and autocast
    with FakeTensorMode(allow_non_fake_inputs=True):
        inputs = [torch.empty(s, dtype=F32 if low and i else dtype, device=device) for i, s in enumerate(shapes)]
        torch.set_autocast_enabled(device, autocast)
        try:
            assert ours(*inputs).dtype == theirs(*inputs).dtype
        finally:
            torch.set_autocast_enabled(device, False)


def test_an_exported_model_has_the_operator() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: Any, w: Any) -> Any:
            return ops.rms_norm(x, w) + 1

    rows = torch.export.Dim("rows", min=2, max=64)
    x, w = normal(6, 10), normal(10)
    exported = torch.export.export(Model(), (x, w), dynamic_shapes=({0: rows}, None))
    assert "tilewright.rms_norm" in str(exported.graph)
    torch.testing.assert_close(exported.module()(x[:5], w), F.rms_norm(x[:5], (10,), w, 1e-6) + 1)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="AOTInductor compiles C++")
def test_a_model_compiled_ahead_by_aotinductor_calls_the_operator(tmp_path: Path) -> None:
    """In a process that has imported the operators; one that has not is told which is missing."""

    class Model(torch.nn.Module):
        def forward(self, x: Any, w: Any) -> Any:
            return ops.softmax(ops.rms_norm(x, w)) + 1

    rows = torch.export.Dim("rows", min=2, max=64)
    x, w = normal(6, 10), normal(10)
    exported = torch.export.export(Model(), (x, w), dynamic_shapes=({0: rows}, None))
    package = torch._inductor.aoti_compile_and_package(exported, package_path=str(tmp_path / "model.pt2"))
    torch.testing.assert_close(torch._inductor.aoti_load_package(package)(x[:5], w), Model()(x[:5], w))
    load = f"import torch\ntry:\n    torch._inductor.aoti_load_package({package!r})\nexcept RuntimeError as e: print(e)"
    assert "tilewright::rms_norm" in run_python(load)


def test_the_loss_of_a_linear_layer_under_autocast() -> None:
    x, w = normal(6, 8, grad=True), normal(10, 8, grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        loss = ops.linear_cross_entropy(x, w, TARGET, chunk=4)
        expected = F.cross_entropy(F.linear(x, w), TARGET)
    assert loss.dtype == expected.dtype == F32
    torch.testing.assert_close(loss, expected, rtol=2e-2, atol=2e-2)
    loss.backward()
    assert (x.grad.dtype, w.grad.dtype) == (F32, F32)


def test_dynamic_shapes_are_compiled_once() -> None:
    from torch._dynamo.testing import CompileCounterWithBackend  # noqa: PLC0415

    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(lambda x, w: ops.rms_norm(x, w) * 2, backend=counter, fullgraph=True, dynamic=True)
    w, seen = normal(10), list[int]()
    for rows in (6, 7, 8):
        x = normal(2, rows, 10)
        torch.testing.assert_close(compiled(x, w), F.rms_norm(x, (10,), w, 1e-6) * 2)
        seen.append(counter.frame_count)
    assert seen == seen[:1] * 3


def test_sizes_that_are_known_beside_symbolic_ones() -> None:
    """Dynamo takes a known number for none of several symbolic ones, though it is one of them."""
    key, value = normal(3, 2, 8), normal(3, 2, 8)

    def run(x: Any, weight: Any, key: Any) -> tuple[Any, ...]:
        y = ops.rotary(x, torch.ones(4, 16), torch.zeros(4, 16))
        z = ops.linear(x.to(BF16), weight.to(BF16), torch.ones(8, dtype=BF16))
        groups = ops.grouped_matmul(x[0, 0], torch.ones(2, 6, 1) * weight[:6], torch.tensor([1, 2], dtype=torch.int32))
        cache = torch.zeros(2, 2, 4, 2, 8)
        ops.paged_append(key, value, *cache, torch.arange(3), cos=torch.ones(3, 4), sin=torch.zeros(3, 4))
        return y, z, groups, cache

    given = normal(1, 4, 2, 32), normal(8, 32), key
    compiled = torch.compile(run, backend="aot_eager", fullgraph=True, dynamic=True)
    for a, b in zip(compiled(*given), run(*given), strict=True):
        torch.testing.assert_close(a, b)


def test_compiled_calls_show_what_is_refused() -> None:
    for call in (lambda x: ops.linear(x, x, activation="swish"), lambda x: ops.rotary(x, x, x)):
        torch._dynamo.reset()
        with pytest.raises(Exception, match=r"JIT010[\s\S]*(swish|x of \(6, 10\))"):
            torch.compile(call, backend="aot_eager", fullgraph=True)(X)


def test_out() -> None:
    x = normal(6, 10)
    y = torch.empty(6, 10)
    for ours, theirs in ((ops.softmax, torch.softmax), (ops.log_softmax, torch.log_softmax)):
        assert ours(x, -1, out=y) is y
        torch.testing.assert_close(y, theirs(x, -1))
        ours(x, 0, out=y)
        torch.testing.assert_close(y, theirs(x, 0))
    deep = torch.empty(2, 6, 10)
    ops.layer_norm(normal(2, 6, 10), out=deep)
    torch.testing.assert_close(deep, F.layer_norm(normal(2, 6, 10), (10,)))
    q = normal(1, 2, 6, 64, dtype=BF16)
    torch.testing.assert_close(ops.attention(q, q, q, out=torch.empty_like(q)), ops.attention(q, q, q))


def refused(code: str, call: Callable[[], Any]) -> str:
    with pytest.raises(tw.TilewrightError) as caught:
        call()
    assert caught.value.code == code, str(caught.value)
    return str(caught.value)


X = torch.zeros(6, 10)


@pytest.mark.parametrize(
    "call",
    [
        lambda: ops.rms_norm(X, torch.zeros(9)),
        lambda: ops.softmax(X, out=torch.zeros(6, 9)),
        lambda: ops.softmax(torch.zeros(2, 6, 10), out=torch.zeros(6, 10)),
        lambda: ops.add_rms_norm(X, X[:5], torch.zeros(10)),
        lambda: ops.cross_entropy(X, TARGET[:5]),
        lambda: ops.cross_entropy(X, TARGET, reduction="most"),
        lambda: ops.linear_cross_entropy(X, X, TARGET, reduction="most"),
        lambda: ops.linear_cross_entropy(X, X, TARGET, label_smoothing=1.5),
        lambda: ops.linear_cross_entropy(X, X, TARGET, chunk=0),
        lambda: ops.linear_cross_entropy(X, X[:, :9], TARGET),
        lambda: ops.linear_cross_entropy(X, X, TARGET, bias=X[0]),
        lambda: ops.linear_cross_entropy(X, X, TARGET[:3]),
        lambda: ops.linear(X, X, activation="swish"),
        lambda: ops.linear(X.bfloat16(), torch.zeros(4, 9, dtype=BF16)),
        lambda: ops.linear(X.bfloat16(), X.bfloat16(), torch.zeros(5, dtype=BF16)),
        lambda: ops.linear(X.bfloat16(), X.bfloat16(), residual=torch.zeros(5, 6, dtype=BF16)),
        lambda: ops.rotary(X, X, X),
        lambda: ops.rotary(torch.zeros(1, 5, 3, 8), torch.zeros(5, 3), torch.zeros(5, 3)),
        lambda: ops.attention(X, X, X),
        lambda: ops.attention(torch.zeros(1, 3, 4, 64), torch.zeros(1, 2, 4, 64), torch.zeros(1, 2, 4, 64)),
        lambda: ops.attention_with_lse(*[torch.zeros(1, 2, 4, 48)] * 3),
        lambda: ops.attention(*[torch.zeros(1, 0, 4, 64)] * 3),
        lambda: ops.attention(*[torch.zeros(1, 2, 4, 0)] * 3),
        lambda: ops.attention(*[torch.zeros(1, 2, 4, 64, dtype=BF16)] * 3, out=torch.zeros(4)),
        lambda: ops.rotary(torch.zeros(()), X, X),
        lambda: ops.paged_append(*[torch.zeros(1, 2, 4)] * 2, *[torch.zeros(3, 2, 2, 4)] * 2, torch.zeros(1).long()),
    ],
)
def test_arguments_that_do_not_fit(call: Callable[[], Any]) -> None:
    refused("JIT010", call)


NO_TENSORS: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("softmax", ([1.0],)), ("log_softmax", (X.numpy(),)), ("rms_norm", (X, X[0].numpy())), ("layer_norm", (None,)),
    ("add_rms_norm", (X, None)), ("add_layer_norm", (X, 0.0)), ("swiglu", (X, None)), ("geglu", (None, X)),
    ("cumsum", (3,)), ("index_add", (X, 0, [1], X[:1])), ("embedding", ([1, 2], X)), ("cross_entropy", (X, [1] * 4)),
    ("linear_cross_entropy", (None, X, X)), ("linear", (X, X, 1.0)), ("matmul", (X, None)), ("quantize", ([1.0],)),
    ("attention", (X, X, None)), ("attention_with_lse", ([X], X, X)), ("varlen_attention", (X, X, X, [0, 4], X)),
    ("paged_decode", (None, X, X, X, X)), ("decode_parts", (X, X, X, X, None)), ("paged_append", (X, X, X, X, [0])),
    ("merge_states", ([X], X)), ("grouped_matmul", (X, X, [0, 4])), ("rotary", (X, 1.0, 1.0)),
    ("permute", (X, [0], 4)), ("unpermute", (None, None)), ("experts", (X, None, X, X, X)),
)  # fmt: skip


@pytest.mark.parametrize(("name", "given"), NO_TENSORS, ids=[name for name, _ in NO_TENSORS])
def test_what_is_no_tensor_is_refused(name: str, given: tuple[Any, ...]) -> None:
    error = refused("JIT010", lambda: getattr(ops, name)(*given))
    assert " for a tensor" in error
    assert "torch.as_tensor" in error


def test_what_has_no_gradient() -> None:
    x = normal(6, 10, grad=True)
    refused("JIT011", lambda: ops.softmax(x, out=torch.empty(6, 10)))
    (dx,) = torch.autograd.grad(ops.rms_norm(x).square().sum(), x, create_graph=True)
    refused("JIT011", lambda: dx.sum().backward())
    q = normal(1, 2, 6, 64, dtype=BF16, grad=True)
    (dq,) = torch.autograd.grad(ops.attention(q, q, q).square().sum(), q, create_graph=True)
    refused("JIT011", lambda: dq.sum().backward())


def test_pytorch_serves_what_kernels_do_not() -> None:
    x = normal(6, 10)
    weight = normal(10).abs()
    torch.testing.assert_close(ops.cross_entropy(x, TARGET, weight), F.cross_entropy(x, TARGET, weight))
    likely = x.softmax(-1)
    torch.testing.assert_close(ops.cross_entropy(x, likely), F.cross_entropy(x, likely))
    assert ops.softmax(torch.zeros(0, 10)).shape == (0, 10)
    assert ops.softmax(torch.tensor(3.0), 0) == 1
    wide = normal(2, 20000)
    torch.testing.assert_close(ops.layer_norm(wide), F.layer_norm(wide, (20000,)))
    q = normal(1, 2, 6, 48)
    torch.testing.assert_close(ops.attention(q, q, q), F.scaled_dot_product_attention(q, q, q))


WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None
import tilewright as tw
from tilewright import ops
from tilewright.ops.listing import listing
assert listing()
for ask in (lambda: ops.softmax, lambda: tw.op(lambda x: x), lambda: tw.patch(None)):
    try:
        ask()
    except tw.TilewrightError as error:
        print(error.code, "tilewright[torch]" in str(error))
"""


def test_without_pytorch_the_extra_is_named() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_TORCH], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("JIT005 True\n" * 3, "")


def test_kernels_and_lists_load_no_pytorch() -> None:
    code = "import sys, tilewright.ops.kernels, tilewright.ops.listing; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_an_operator_registers_its_own_module_alone() -> None:
    """A first call waits for no other operator; a compiled graph may be the first to ask for one."""
    code = """
import torch
from tilewright import ops
found = torch.compile(lambda x: ops.softmax(x), backend="aot_eager", fullgraph=True)(torch.zeros(2, 4))
print(float(found[0, 0]), hasattr(torch.ops.tilewright, "softmax"), hasattr(torch.ops.tilewright, "layer_norm"))
from tilewright.ops import *
print(hasattr(torch.ops.tilewright, "layer_norm"), hasattr(torch.ops.tilewright, "paged_append"), moe is ops.moe)
"""
    assert run_python(code) == "0.25 True False\nTrue True True\n"


def test_axes_of_no_elements() -> None:
    """``reshape(-1, 0)`` has no answer."""
    x = torch.empty(2, 3, 0)
    for op in (ops.swiglu, ops.geglu, ops.softmax, ops.rms_norm):
        for args in ((x, x), (x.bfloat16(), x.bfloat16())):
            arity = 2 if op in (ops.swiglu, ops.geglu) else 1
            assert op(*args[:arity]).shape == x.shape
    logits, target = torch.empty(4, 0), torch.full((4,), -100)
    for reduction in ("sum", "mean", "none"):
        found, expected = (f(logits, target, reduction=reduction) for f in (ops.cross_entropy, F.cross_entropy))
        torch.testing.assert_close(found, expected, equal_nan=True)


@pytest.mark.parametrize("dtype", [F32, BF16])
@pytest.mark.parametrize("name", CALLS)
def test_meta_tensors(name: str, dtype: Any) -> None:
    """For models whose parameters lie nowhere yet."""
    ours, _, shapes = CALLS[name]
    with torch.device("cpu"):
        expected = ours(*(normal(*s, dtype=dtype) for s in shapes))
    found = ours(*(torch.empty(s, dtype=dtype, device="meta") for s in shapes))
    assert (found.shape, found.dtype, found.device.type) == (expected.shape, expected.dtype, "meta")


@pytest.mark.parametrize("dtype", [F32, BF16])
def test_a_bias_and_a_residual_are_broadcast_in_every_dtype(dtype: Any) -> None:
    x, w, b = (normal(*s, dtype=dtype, grad=True) for s in ((2, 6, 10), (4, 10), (1,)))
    for residual in (normal(4, dtype=dtype, grad=True), normal(6, 1, dtype=dtype, grad=True)):
        given = (x, w, b, residual)
        found, expected = ops.linear(x, w, b, residual=residual), F.linear(x, w, b.expand(4)) + residual
        torch.testing.assert_close(found, expected, rtol=2e-2, atol=2e-2)
        got, wanted = (torch.autograd.grad(y.float().sum(), given) for y in (found, expected))
        torch.testing.assert_close(got, wanted, rtol=2e-2, atol=2e-2)


def test_attention_under_autocast_and_traced() -> None:
    q = normal(1, 2, 8, 64, grad=True)
    with torch.autocast("cpu", BF16):  # its logarithms of sums stayed no float32
        ops.attention(q, q, q).float().square().sum().backward()
        expected = torch.autograd.grad(F.scaled_dot_product_attention(q, q, q).float().square().sum(), q)[0]
    torch.testing.assert_close(q.grad, expected, rtol=5e-2, atol=5e-2)
    low = q.detach().bfloat16()
    traced = torch.jit.trace(lambda q: ops.attention(q, q, q), (low,), check_trace=False)
    torch.testing.assert_close(traced(low), ops.attention(low, low, low))


def test_the_rows_of_an_exported_loss_may_vary() -> None:
    class Loss(torch.nn.Module):
        def forward(self, x: Any, target: Any) -> Any:
            return ops.linear_cross_entropy(x, torch.ones(12, 8), target)

    rows = torch.export.Dim("rows", min=2, max=1000)
    example = (normal(4, 8), torch.zeros(4, dtype=torch.long))
    exported = torch.export.export(Loss(), example, dynamic_shapes=({0: rows}, {0: rows}))
    given = normal(9, 8), torch.zeros(9, dtype=torch.long)
    torch.testing.assert_close(exported.module()(*given), Loss()(*given))


def test_out_lies_where_the_result_does() -> None:
    for call in (
        lambda: ops.softmax(normal(3, 4), out=torch.empty(3, 4, device="meta")),
        lambda: ops.softmax(normal(2, 3, 4), out=torch.empty(2, 3, 4, device="meta")),
    ):
        with pytest.raises(tw.TilewrightError, match="meta"):
            call()


def test_attention_over_packed_and_paged_rows_is_not_cast_by_autocast() -> None:
    """Nor is that on tensors without elements computed."""
    q, kv, offsets = normal(9, 4, 64), normal(9, 2, 64), torch.tensor([0, 4, 9], dtype=torch.int32)
    cache, table, lengths = normal(5, 16, 2, 64), torch.tensor([[1, 3]], dtype=torch.int32), torch.tensor([20])
    calls: tuple[Callable[..., Any], ...] = (
        lambda q, kv, _: ops.varlen_attention_with_lse(q, kv, kv, *[offsets.to(q.device)] * 2, causal=True),
        lambda q, _, cache: ops.paged_decode_with_lse(
            q[:1], cache, cache, table.to(q.device), lengths.to(q.device, torch.int32)
        ),
    )
    given = (q, kv, cache)
    for call in calls:
        expected = call(*(t.bfloat16() for t in given))
        with torch.autocast("cpu", BF16):
            found = call(*given)
        torch.testing.assert_close(found, expected, rtol=0, atol=0)
        assert [t.shape for t in call(*(t.to("meta") for t in given))] == [t.shape for t in expected]
    weights = [torch.empty(*s, dtype=BF16, device="meta") for s in ((9, 64), (4, 64), (4, 80, 64), (4, 64, 40))]
    assert ops.moe(*weights, k=2).shape == (9, 64)


@pytest.mark.parametrize("name", ["rms_norm", "layer_norm", "add_rms_norm", "add_layer_norm"])
def test_a_norm_of_a_number_is_refused_in_words(name: str) -> None:
    x = torch.tensor(2.0)
    with pytest.raises(tw.TilewrightError, match=f"{name}: x without an axis"):
        getattr(ops, name)(*(x,) * (2 if name.startswith("add") else 1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ["add_rms_norm", "add_layer_norm"])
def test_a_residual_of_another_shape_is_refused_for_every_dtype(name: str, dtype: Any) -> None:
    with pytest.raises(tw.TilewrightError, match=f"{name}: x of .3, 8., residual of .8,."):
        getattr(ops, name)(torch.ones(3, 8, dtype=dtype), torch.ones(8, dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint8, torch.int64, torch.float64])
def test_running_sums_have_the_dtype_that_was_asked_for(dtype: Any) -> None:
    x = torch.tensor([[1.7, 2.2, -0.4]])
    found = ops.cumsum(x, 1, dtype=dtype)
    assert found.dtype == dtype
    assert torch.equal(found, torch.cumsum(x, 1, dtype=dtype))


@pytest.mark.parametrize("function", [ops.linear, lambda x, w, residual: ops.matmul(x, w.t(), residual=residual)])
def test_a_wide_residual_stays_wide_under_autocast(function: Any) -> None:
    x, w, residual = normal(3, 8), normal(4, 8), normal(3, 4)
    with torch.autocast("cpu", torch.bfloat16):
        found, wanted = function(x, w, residual=residual), torch.nn.functional.linear(x, w) + residual
    assert found.dtype == torch.float32
    assert torch.equal(found, wanted)


def test_a_table_of_meta_gives_rows_of_meta() -> None:
    y = ops.embedding(torch.tensor([1, 0]), torch.empty(4, 8, device="meta"))
    assert (y.device.type, y.shape) == ("meta", (2, 8))


def test_nested_tensors_go_to_pytorch() -> None:
    x = torch.nested.nested_tensor([torch.randn(2, 8), torch.randn(3, 8)])
    for found, wanted in ((ops.softmax(x), torch.softmax(x, -1)), (ops.swiglu(x, x), F.silu(x) * x)):
        for a, b in zip(found.unbind(), wanted.unbind(), strict=True):
            assert torch.equal(a, b)


def test_numbers_of_a_vector_have_one_scale() -> None:
    x = normal(256)
    y, scale = ops.quantize(x)
    assert (y.shape, scale.shape) == ((256,), ())
    torch.testing.assert_close(y.float() * scale, x, rtol=0.07, atol=0.05)
    assert ops.quantize(x, block=128)[1].shape == (2,)


X10 = normal(6, 10)
HEADS_OF_NONE = torch.empty(2, 4, 0, dtype=BF16)
CACHE_OF_NONE = torch.empty(8, 16, 2, 0, dtype=BF16)


@pytest.mark.parametrize(
    ("call", "found"),
    [
        (lambda: ops.cumsum(X10.double(), out=3), "out of int"),
        (lambda: ops.softmax(X10.double(), out="y"), "out of str"),
        (lambda: ops.unpermute(X10, None), "NoneType for the plan"),
        (lambda: ops.linear_cross_entropy(torch.tensor(1.0), X10, TARGET), r"x of \(\)"),
        (lambda: ops.paged_decode(HEADS_OF_NONE, CACHE_OF_NONE, CACHE_OF_NONE, GROUPS, GROUPS), "block_table"),
        (lambda: ops.rms_norm(torch.nested.nested_tensor([X10, X10])), "a nested tensor"),
    ],
)  # fmt: skip
def test_what_no_operator_takes_is_refused_in_words(call: Callable[[], Any], found: str) -> None:
    with pytest.raises(tw.TilewrightError, match=f"JIT010(.|\n)*{found}"):
        call()


def test_values_of_symbolic_trace_are_refused_by_pytorch() -> None:
    for call in (lambda x: ops.softmax(x, -1), lambda x: ops.swiglu(x, x)):
        with pytest.raises(torch.fx.proxy.TraceError, match="control flow"):
            torch.fx.symbolic_trace(call)
