"""Every operator's own kernels in the simulator, forward and backward, against PyTorch in float64."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest

from support.pytorch import torch_or_skip
from tilewright.diag import TilewrightError

torch = torch_or_skip()

from tilewright import ops  # noqa: E402
from tilewright.ops.functional import attentions, norms  # noqa: E402

pytestmark = pytest.mark.sample(4)

F = torch.nn.functional
BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32
TOLERANCE = {F32: 3e-5, F16: 4e-3, BF16: 3e-2}


def normal(*shape: int, dtype: Any = F32, seed: int = 0) -> Any:
    random = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(shape, generator=random).to(dtype)


def agree(got: Any, expected: Any, dtype: Any) -> None:
    torch.testing.assert_close(got.double(), expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


def check(ours: Callable[..., Any], theirs: Callable[..., Any], *inputs: Any, dtype: Any = None) -> None:
    """Results, and gradients of their weighted sum, of kernels that the simulator runs, against float64."""
    dtype = dtype or inputs[0].dtype
    floats = [t for t in inputs if t is not None and t.is_floating_point()]
    leaves = [t.detach().clone().requires_grad_() for t in floats]
    wide = [t.detach().double().requires_grad_() for t in floats]

    def with_leaves(given: list[Any]) -> list[Any]:
        left = iter(given)
        return [next(left) if t is not None and t.is_floating_point() else t for t in inputs]

    with ops.simulated():
        got = ours(*with_leaves(leaves))
        got = got if isinstance(got, tuple) else (got,)
        expected = theirs(*with_leaves(wide))
        expected = expected if isinstance(expected, tuple) else (expected,)
        for a, b in zip(got, expected, strict=True):
            assert a.shape == b.shape
            agree(a.detach(), b.detach(), dtype)
        weights = [normal(*b.shape, seed=1).to(a.dtype) for a, b in zip(got, expected, strict=True)]
        sum((a * w).sum() for a, w in zip(got, weights, strict=True)).backward()
        sum((b * w.double()).sum() for b, w in zip(expected, weights, strict=True)).backward()
    for leaf, reference in zip(leaves, wide, strict=True):
        assert leaf.grad.dtype == leaf.dtype
        scale = max(1.0, float(reference.grad.abs().max()))
        agree(leaf.grad / scale, reference.grad / scale, dtype)


@pytest.mark.parametrize("dtype", [F32, BF16, F16])
@pytest.mark.parametrize("shape", [(5, 40), (2, 3, 33)])
def test_softmax(dtype: Any, shape: tuple[int, ...]) -> None:
    check(lambda x: ops.softmax(x, -1), lambda x: x.softmax(-1), normal(*shape, dtype=dtype))
    check(lambda x: ops.log_softmax(x, -1), lambda x: x.log_softmax(-1), normal(*shape, dtype=dtype))


def test_softmax_along_another_axis_and_of_strided_rows() -> None:
    x = normal(6, 4, 10)
    check(lambda x: ops.softmax(x, 0), lambda x: x.softmax(0), x)
    check(lambda x: ops.log_softmax(x[:, ::2, 1:], 1), lambda x: x[:, ::2, 1:].log_softmax(1), x)


def test_long_rows_take_the_kernel_of_two_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewright.ops.functional.softmaxes.ONE_TILE", 32)
    x = normal(3, 300)
    x[1, 5:] = -torch.inf
    check(ops.softmax, lambda x: x.softmax(-1), x)
    check(ops.log_softmax, lambda x: x.log_softmax(-1), normal(3, 300))


@pytest.mark.parametrize("dtype", [F32, BF16])
@pytest.mark.parametrize("weighted", [True, False])
def test_rms_norm(dtype: Any, weighted: bool) -> None:
    w = normal(36, dtype=dtype) if weighted else None
    x, residual = normal(2, 4, 36, dtype=dtype), normal(2, 4, 36, dtype=dtype, seed=2)
    check(lambda x, w: ops.rms_norm(x, w, eps=1e-4), lambda x, w: F.rms_norm(x, (36,), w, 1e-4), x, w)

    def added(x: Any, residual: Any, w: Any) -> Any:
        return F.rms_norm(x + residual, (36,), w, 1e-4), x + residual

    check(lambda x, r, w: ops.add_rms_norm(x, r, w, eps=1e-4), added, x, residual, w)


@pytest.mark.parametrize("shape", [(130, 36), (3, 8200)], ids=["groups of rows", "rows beyond registers"])
def test_gradients_of_weights(shape: tuple[int, int]) -> None:
    x, w = normal(*shape), normal(shape[1])
    check(lambda x, w: ops.rms_norm(x, w), lambda x, w: F.rms_norm(x, shape[1:], w, 1e-6), x, w)


@pytest.mark.parametrize("dtype", [F32, F16])
@pytest.mark.parametrize(("weighted", "biased"), [(True, True), (True, False), (False, False), (False, True)])
def test_layer_norm(dtype: Any, weighted: bool, biased: bool) -> None:
    w, b = normal(36, dtype=dtype) if weighted else None, normal(36, dtype=dtype, seed=3) if biased else None
    x, residual = normal(6, 36, dtype=dtype), normal(6, 36, dtype=dtype, seed=2)
    check(ops.layer_norm, lambda x, w, b: F.layer_norm(x, (36,), w, b), x, w, b)

    def added(x: Any, residual: Any, w: Any, b: Any) -> Any:
        return F.layer_norm(x + residual, (36,), w, b), x + residual

    check(ops.add_layer_norm, added, x, residual, w, b)


@pytest.mark.parametrize("simulate", [True, False])
@pytest.mark.parametrize("name", ["add_rms_norm", "add_layer_norm"])
def test_sums_are_normalised_before_they_are_rounded(name: str, simulate: bool) -> None:
    """The error is that of one rounding to bf16, 1.7e-3 of the norm; of a rounded sum it is 2.3e-3."""
    x, residual = normal(40, 256, dtype=BF16), normal(40, 256, dtype=BF16, seed=2)
    with ops.simulated() if simulate else nullcontext():
        y, total = getattr(ops, name)(x, residual)
    wide = x.double() + residual.double()
    exact = F.layer_norm(wide, (256,)) if "layer" in name else F.rms_norm(wide, (256,), eps=1e-6)
    assert torch.equal(total, wide.to(BF16))
    assert float((y.double() - exact).norm() / exact.norm()) < 1.9e-3


def test_weights_of_another_dtype() -> None:
    x, w = normal(4, 36, dtype=BF16), normal(36)
    check(ops.rms_norm, lambda x, w: F.rms_norm(x, (36,), w, 1e-6), x, w)


@pytest.mark.parametrize("dtype", [F32, BF16])
def test_gated_units(dtype: Any) -> None:
    gate, up = normal(2, 3, 20, dtype=dtype), normal(2, 3, 20, dtype=dtype, seed=4)
    check(ops.swiglu, lambda g, u: F.silu(g) * u, gate, up)
    check(ops.geglu, lambda g, u: F.gelu(g) * u, gate, up)
    check(
        lambda g, u: ops.geglu(g, u, approximate="tanh"),
        lambda g, u: F.gelu(g, approximate="tanh") * u,
        gate,
        up,
    )


def test_halves_of_one_tensor_are_taken_as_they_lie() -> None:
    both = normal(2, 3, 40)
    check(lambda t: ops.swiglu(*t.chunk(2, -1)), lambda t: F.silu(t[..., :20]) * t[..., 20:], both)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_cross_entropy(reduction: str, smoothing: float) -> None:
    target = torch.tensor([3, 0, -100, 29, 7])
    how = {"reduction": reduction, "label_smoothing": smoothing}
    for dtype in (F32, BF16):
        check(
            lambda x: ops.cross_entropy(x, target, **how),
            lambda x: F.cross_entropy(x, target, **how),
            normal(5, 30, dtype=dtype),
        )


def test_cross_entropy_of_more_axes_and_an_ignored_class() -> None:
    target = torch.randint(0, 9, (2, 4), generator=torch.Generator().manual_seed(0))
    check(
        lambda x: ops.cross_entropy(x, target, ignore_index=3),
        lambda x: F.cross_entropy(x, target, ignore_index=3),
        normal(2, 9, 4),
    )


@pytest.mark.parametrize("great", [1e4, 1e8, 1e30])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy_of_great_logits_is_a_number(great: float, smoothing: float) -> None:
    """Also of a row whose logits are all as great: its classes are equally likely."""
    x, target = normal(4, 8) * great, torch.tensor([3, 0, 7, 5])
    x[1] = great
    results = []
    for f, within in ((F.cross_entropy, False), (ops.cross_entropy, True)):
        leaf = x.detach().requires_grad_()
        with ops.simulated() if within else nullcontext():
            loss = f(leaf, target, reduction="none", label_smoothing=smoothing)
            results.append((loss.detach(), *torch.autograd.grad(loss.sum(), leaf)))
    (loss, grad), (got, got_grad) = results
    torch.testing.assert_close(got, loss, rtol=1e-5, atol=1e-7 * great if great < 1e9 else 1e-4)
    torch.testing.assert_close(got_grad, grad, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("function", [ops.softmax, ops.log_softmax])
def test_softmax_of_great_numbers_is_a_number(function: Any) -> None:
    x = torch.full((2, 8), 1e30)
    x[1, 3] = 2e30
    with ops.simulated():
        got = function(x)
    torch.testing.assert_close(got, getattr(torch, function.__name__)(x, -1))


def _loss_of_rows(x: Any) -> Any:
    return ops.cross_entropy(x, torch.tensor([3, 0, 7]), reduction="none")


@pytest.mark.parametrize("width", [1000, 16640])  # a row at once, and in two passes
@pytest.mark.parametrize("far", [0.0, 1e4, 1e6, 1e8])
@pytest.mark.parametrize("function", [ops.softmax, ops.log_softmax, _loss_of_rows])
def test_rows_far_from_zero_lose_nothing(function: Any, far: float, width: int) -> None:
    """A row's greatest number is subtracted before anything is rounded: results were off by 3.3e-4, .04 and 4."""
    x = normal(3, width) * 3 + far
    wide = x.double()
    with ops.simulated():
        leaf = x.requires_grad_()
        got = function(leaf)
        grad = torch.autograd.grad(got, leaf, torch.ones_like(got))[0]
    with torch.enable_grad():
        leaf = wide.requires_grad_()
        exact = function(leaf)
        exact_grad = torch.autograd.grad(exact, leaf, torch.ones_like(exact))[0]
    torch.testing.assert_close(got.double(), exact, rtol=3e-6, atol=3e-6)
    torch.testing.assert_close(grad.double(), exact_grad, rtol=3e-6, atol=1e-6 * width**0.5)


def test_a_target_that_is_no_class_gives_nan() -> None:
    with ops.simulated():
        loss = ops.cross_entropy(normal(3, 8), torch.tensor([8, 7, -1]), reduction="none")
    assert loss.isnan().tolist() == [True, False, True]


@pytest.mark.parametrize("chunk", [None, 3])
@pytest.mark.parametrize(("smoothing", "biased"), [(0.0, False), (0.1, True)])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_linear_cross_entropy(
    reduction: str, smoothing: float, biased: bool, chunk: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilewright.ops.functional.losses._LOGIT_ROWS", 2)
    target = torch.tensor([3, 0, -100, 29, 7, 1, 2])
    how = {"reduction": reduction, "label_smoothing": smoothing}

    def theirs(x: Any, w: Any, b: Any) -> Any:
        return F.cross_entropy(F.linear(x, w, b), target, **how)

    def ours(x: Any, w: Any, b: Any) -> Any:
        return ops.linear_cross_entropy(x, w, target, bias=b, chunk=chunk, **how)

    check(ours, theirs, normal(7, 16), normal(30, 16), normal(30) if biased else None)


@pytest.mark.parametrize("wanted", ["x", "weight", "bias"])
@pytest.mark.parametrize("dtype", [BF16, F16])
def test_one_gradient_of_linear_cross_entropy(wanted: str, dtype: Any) -> None:
    given = {"x": normal(7, 16, dtype=dtype), "weight": normal(30, 16, dtype=dtype), "bias": normal(30, dtype=dtype)}
    target = torch.tensor([3, 0, -100, 29, 7, 1, 2])

    def gradient(run: Any, tensors: dict[str, Any]) -> Any:
        leaf = tensors[wanted].clone().requires_grad_()
        return torch.autograd.grad(run(**tensors | {wanted: leaf}), leaf)[0]

    with ops.simulated():
        got = gradient(lambda **t: ops.linear_cross_entropy(target=target, **t), given)
    wide = {name: t.double() for name, t in given.items()}
    expected = gradient(lambda x, weight, bias: F.cross_entropy(F.linear(x, weight, bias), target), wide)
    assert got.dtype == dtype
    torch.testing.assert_close(got.double(), expected, rtol=2e-2, atol=2e-3)


def test_a_chunk_of_logits_takes_no_more_than_the_sum_that_it_saves() -> None:
    from tilewright.ops.functional.losses import _chunk  # noqa: PLC0415

    assert [_chunk(rows, 4096) for rows in (0, 1, 8192, 8193, 12289)] == [1, 1, 8192, 2731, 3073]


@pytest.mark.parametrize("heads_first", [False, True])
def test_rotary(heads_first: bool) -> None:
    x = normal(2, 5, 3, 8)
    x = x.transpose(1, 2) if heads_first else x
    angles = normal(5, 4)

    def theirs(x: Any) -> Any:
        c, s = (t.double()[None] if heads_first else t.double()[:, None] for t in (angles.cos(), angles.sin()))
        first, second = x[..., :4], x[..., 4:]
        return torch.cat((first * c - second * s, second * c + first * s), -1)

    for repeated in (1, 2):  # models keep both halves
        cos, sin = (torch.cat([t] * repeated, -1) for t in (angles.cos(), angles.sin()))
        check(lambda x, cos=cos, sin=sin: ops.rotary(x, cos, sin, heads_first=heads_first), theirs, x)


def normed_and_turned(x: Any, w: Any, cos: Any, sin: Any) -> Any:
    """Of (batch, tokens, heads, width), with the angles of (batch, tokens, width / 2)."""
    normed = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * w
    first, second = normed.chunk(2, -1)
    c, s = cos[:, :, None], sin[:, :, None]
    return torch.cat((first * c - second * s, second * c + first * s), -1)


@pytest.mark.parametrize("dtype", [F32, BF16])
@pytest.mark.parametrize("heads_first", [False, True])
def test_the_norm_of_heads_with_the_rotary_embedding(dtype: Any, heads_first: bool) -> None:
    """Angles for all batches, for each, and of both halves; more tokens than one program sums, and a ragged tile."""
    x, w, angles = normal(2, 37, 3, 10, dtype=dtype), normal(10, dtype=dtype), normal(2, 37, 5)
    x = x.transpose(1, 2) if heads_first else x
    for given in (angles[0], angles[:1], angles, torch.cat((angles, angles), -1)):
        cos, sin = given.cos(), given.sin()
        c, s = ((t if t.dim() == 3 else t[None])[..., :5].double() for t in (cos, sin))

        def theirs(x: Any, w: Any, c: Any = c, s: Any = s) -> Any:
            y = normed_and_turned(x.transpose(1, 2) if heads_first else x, w, c, s)
            return y.transpose(1, 2) if heads_first else y

        def ours(x: Any, w: Any, cos: Any = cos, sin: Any = sin) -> Any:
            return ops.rms_norm_rotary(x, w, cos, sin, heads_first=heads_first)

        check(ours, theirs, x, w)


@pytest.mark.parametrize("simulate", [True, False])
def test_the_norm_of_heads_is_turned_before_it_is_rounded(simulate: bool) -> None:
    """Errors against float64 are those of one rounding, as of float32 that is rounded in the end; of norms that are
    rounded before they are turned they are 1.3 to 1.5 of it."""
    x, w, dy = normal(1, 48, 4, 128, dtype=BF16), normal(128, dtype=BF16), normal(1, 48, 4, 128, dtype=BF16, seed=2)
    angles = normal(1, 48, 64)
    cos, sin = angles.cos().to(BF16), angles.sin().to(BF16)

    def found(function: Callable[..., Any], dtype: Any) -> list[Any]:
        leaves = [t.to(dtype).requires_grad_() for t in (x, w)]
        y = function(*leaves, cos.to(dtype), sin.to(dtype))
        return [y.detach(), *torch.autograd.grad(y, leaves, dy.to(dtype))]

    exact, peer = found(normed_and_turned, torch.float64), [t.to(BF16) for t in found(normed_and_turned, F32)]
    with ops.simulated() if simulate else nullcontext():
        ours = found(ops.rms_norm_rotary, BF16)
    for got, theirs, wanted in zip(ours, peer, exact, strict=True):
        off, allowed = (float((t.double() - wanted).norm()) for t in (got, theirs))
        assert off < 1.03 * allowed


@pytest.mark.parametrize("activation", ["none", "relu", "silu", "gelu", "gelu_tanh"])
def test_linear(activation: str) -> None:
    from tilewright.ops.functional.linears import ACTIVATIONS  # noqa: PLC0415

    x, w = normal(2, 9, 40, dtype=BF16), normal(24, 40, dtype=BF16) / 8
    bias, residual = normal(24, dtype=BF16), normal(2, 9, 24, dtype=BF16, seed=5)
    check(
        lambda x, w, b, r: ops.linear(x, w, b, activation=activation, residual=r),
        lambda x, w, b, r: ACTIVATIONS[activation](F.linear(x, w, b)) + r,
        *(x, w, bias, residual),
    )


def test_a_product_before_an_activation_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    from tilewright.ops.functional import linears  # noqa: PLC0415

    x, w = (normal(*shape, dtype=BF16).requires_grad_() for shape in ((2, 9, 40), (24, 40)))
    residual = normal(2, 9, 24, dtype=BF16)
    monkeypatch.setattr(linears, "_linear", None)
    for given in (x, x[0]):
        added = residual[: given.dim() - 1].view(*given.shape[:-1], 24)
        y = ops.linear(given, w, activation="gelu", residual=added)
        assert torch.equal(y, F.gelu(F.linear(given, w)) + added)
        torch.autograd.grad(y.sum(), (x, w))


def test_a_linear_layer_of_unaligned_rows() -> None:
    """Whose gradients are kernels' products."""
    x, w, bias = normal(11, 37, dtype=BF16), normal(21, 37, dtype=BF16) / 8, normal(21, dtype=BF16)
    for activation in ("none", "silu"):
        check(
            lambda x, w, b, activation=activation: ops.linear(x, w, b, activation=activation),
            lambda x, w, b, activation=activation: (F.silu if activation == "silu" else lambda z: z)(F.linear(x, w, b)),
            *(x, w, bias),
        )


@pytest.mark.parametrize("width", [40, 37])
def test_a_gradient_of_a_linear_layers_gradient(width: int) -> None:
    """What was kept for the first one has a gradient of its own."""
    x, w = (normal(*shape, dtype=BF16).requires_grad_() for shape in ((9, width), (24, width)))

    def second(layer: Callable[..., Any]) -> Any:
        (dx,) = torch.autograd.grad(layer(x, w).sum(), x, create_graph=True)
        return torch.autograd.grad(dx.float().square().sum(), (x, w))

    ours = second(lambda x, w: ops.linear(x, w, activation="gelu"))
    for found, wanted in zip(ours, second(lambda x, w: F.gelu(F.linear(x, w))), strict=True):
        torch.testing.assert_close(found, wanted, rtol=2e-2, atol=2e-2)


def test_matmul_of_a_transposed_weight() -> None:
    check(ops.matmul, lambda a, b: a @ b, normal(9, 40, dtype=F16) / 6, normal(40, 24, dtype=F16))


@pytest.mark.parametrize(
    ("left", "right"),
    [((3, 4, 5), (3, 5, 6)), ((4, 5), (3, 5, 6)), ((5,), (5, 6)), ((4, 5), (5,)), ((2, 1, 4, 5), (3, 5, 6))],
)
def test_matmul_of_batches_and_vectors(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    check(ops.matmul, torch.matmul, normal(*left), normal(*right, seed=1))
    a, b, out = normal(*left), normal(*right, seed=1), torch.empty(())
    bias = torch.tensor(0.5)
    torch.testing.assert_close(ops.matmul(a, b, bias=bias, activation="relu"), F.relu(a @ b + 0.5))
    with pytest.raises(TilewrightError, match=r"out=x.new_empty|the result"):
        ops.matmul(a, b, out=out.new_empty(7, 7))


@pytest.mark.parametrize(
    ("rows", "group", "groups"), [(3, 8, 1), (1024, 8, 128), (4096, 32, 128), (8192, 63, 131), (65536, 63, 1041)]
)
def test_groups_of_rows_of_norms_fill_the_gpu(rows: int, group: int, groups: int) -> None:
    sums, found = norms._sums_of_groups(torch.empty(rows, 4, device="meta"), 2)
    assert (tuple(sums.shape), found) == ((2, groups, 4), group)


@pytest.mark.parametrize(("width", "causal", "group"), [(64, False, 1), (64, True, 2), (256, True, 2)])
def test_attention(width: int, causal: bool, group: int) -> None:
    q = normal(1, 2, 20, width, dtype=BF16)
    k, v = (normal(1, 2 // group, 20, width, dtype=BF16, seed=s) for s in (6, 7))

    def theirs(q: Any, k: Any, v: Any) -> Any:
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=group > 1)

    check(lambda q, k, v: ops.attention(q, k, v, causal=causal), theirs, q, k, v)
    with ops.simulated():
        o, lse = ops.attention_with_lse(q, k, v, causal=causal)
    agree(o, theirs(q.double(), k.double(), v.double()), BF16)
    scores = q.double() @ k.double().repeat_interleave(group, 1).transpose(-1, -2) * width**-0.5
    if causal:
        scores = scores.masked_fill(~torch.ones(20, 20, dtype=torch.bool).tril(), -torch.inf)
    agree(lse, scores.logsumexp(-1), BF16)


def test_gradients_of_attention_get_rows_that_tensor_copies_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    """Operands in odd rows left no schedule for the gradient of keys."""
    drawn = torch.randn(2, 4, 40, 69, generator=torch.Generator().manual_seed(0))
    seen, held = list[Any](), drawn.to(torch.bfloat16)

    def noted(*given: Any, **options: Any) -> Any:
        seen.extend(given[:4])
        return kernels_of[len(seen) > 4](*given, **options)

    kernels_of = attentions._backwards[64][::-1]
    monkeypatch.setitem(attentions._backwards, 64, (noted, noted))
    odd, even = held[..., 1:65], held[..., :64].contiguous()
    for given in ((even, odd, odd, odd), (even, even, odd, even)):
        q, k, v, do = (t.detach().requires_grad_() for t in given)
        found = torch.autograd.grad(ops.attention(q, k, v), (q, k, v), do.detach())
        theirs, exact = (
            torch.autograd.grad(
                torch.nn.functional.scaled_dot_product_attention(*own), own, do.detach().to(own[0].dtype)
            )
            for own in ((q, k, v), tuple(t.detach().double().requires_grad_() for t in given[:3]))
        )
        for got, other, wide in zip(found, theirs, exact, strict=True):
            assert (got - wide).norm() <= 1.02 * (other - wide).norm() <= 0.07 * wide.norm()
        assert len(seen) == 8
        assert all(step % 8 == 0 for t in seen for step in (t.storage_offset(), *t.stride()[:3]))
        seen.clear()
