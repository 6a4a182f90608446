"""``torch.func`` over the operators: gradients, batches, batches of gradients, against PyTorch's own functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from support.pytorch import torch_or_skip
from tilewright.diag import TilewrightError

torch = torch_or_skip()

from tilewright import ops  # noqa: E402

F = torch.nn.functional
X = torch.randn(3, 5, 12, generator=torch.Generator().manual_seed(3))
W, B = torch.linspace(-1, 2, 12), torch.linspace(0, 1, 12)
TARGET = torch.tensor([3, 0, -100, 11, 1])
COS, SIN = torch.cos(torch.arange(30.0).view(5, 6)), torch.sin(torch.arange(30.0).view(5, 6))


WIDE = torch.linspace(-1, 1, 180).view(15, 12).cos()
CHOICES = torch.tensor([[0, 1], [3, 2], [1, 0], [0, 3], [2, 1]])


def rms(x: Any, w: Any) -> Any:
    return F.rms_norm(x, (12,), w, 1e-6)


def rotated(x: Any) -> Any:
    a, b = x[..., :6], x[..., 6:]
    return torch.cat([a * COS - b * SIN, b * COS + a * SIN], -1)


CASES: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "softmax": (lambda x: ops.softmax(x, 0), lambda x: torch.softmax(x, 0)),
    "log_softmax": (lambda x: ops.log_softmax(x), lambda x: torch.log_softmax(x, -1)),
    "rms_norm": (lambda x: ops.rms_norm(x, W), lambda x: rms(x, W)),
    "rms_norm of its own weight": (lambda x: ops.rms_norm(x, x[0]), lambda x: rms(x, x[0])),
    "layer_norm": (lambda x: ops.layer_norm(x, W, B), lambda x: F.layer_norm(x, (12,), W, B)),
    "add_rms_norm": (lambda x: sum(ops.add_rms_norm(x, x * 2, W)), lambda x: rms(x * 3, W) + x * 3),
    "swiglu": (lambda x: ops.swiglu(x, x + 1), lambda x: F.silu(x) * (x + 1)),
    "geglu": (lambda x: ops.geglu(x, x + 1), lambda x: F.gelu(x) * (x + 1)),
    "cross_entropy": (lambda x: ops.cross_entropy(x, TARGET), lambda x: F.cross_entropy(x, TARGET)),
    "linear_cross_entropy": (
        lambda x: ops.linear_cross_entropy(x, WIDE, TARGET),
        lambda x: F.cross_entropy(x @ WIDE.t(), TARGET),
    ),
    "linear_cross_entropy of rows": (
        lambda x: ops.linear_cross_entropy(x, x.repeat(3, 1), TARGET, reduction="none"),
        lambda x: F.cross_entropy(x @ x.repeat(3, 1).t(), TARGET, reduction="none"),
    ),
    "unpermute": (
        lambda x: ops.unpermute((packed := ops.permute(x, CHOICES, 4))[0], packed[1], x[:, :2]),
        lambda x: x * x[:, :2].sum(1, keepdim=True),
    ),
    "linear": (lambda x: ops.linear(x, W[None], activation="silu"), lambda x: F.silu(F.linear(x, W[None]))),
    "rotary": (lambda x: ops.rotary(x[None, :, None], COS, SIN)[0, :, 0], rotated),
}


@pytest.mark.parametrize("name", CASES)
def test_gradients_and_batches_of_both(name: str) -> None:
    ours, theirs = CASES[name]

    def of_sum(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return torch.func.grad(lambda x: (f(x) * 1.5).sum())

    for f, wanted in ((ours, theirs), (of_sum(ours), of_sum(theirs))):
        torch.testing.assert_close(f(X[0]), wanted(X[0]), rtol=1e-4, atol=1e-5)
        batched = torch.vmap(f)(X)
        torch.testing.assert_close(batched, torch.vmap(wanted)(X), rtol=1e-4, atol=1e-5)


def test_a_jacobian_is_a_batch_of_gradients() -> None:
    found = torch.func.jacrev(lambda v: ops.softmax(v))(X[0, 0])
    torch.testing.assert_close(found, torch.func.jacrev(lambda v: torch.softmax(v, -1))(X[0, 0]), rtol=1e-4, atol=1e-6)


def test_what_is_not_batched_is_shared_and_nothing_is_refused() -> None:
    both = torch.vmap(ops.rms_norm, in_dims=(1, None), out_dims=1)(X, W)
    torch.testing.assert_close(both, rms(X, W), rtol=1e-5, atol=1e-5)
    with pytest.raises(TilewrightError, match="a batch of no elements"):
        torch.vmap(lambda v: ops.softmax(v))(X[:0])


def test_attention() -> None:
    q = torch.randn(2, 1, 2, 6, 64, generator=torch.Generator().manual_seed(0)).bfloat16()

    def gradient(f: Callable[..., Any]) -> Callable[[Any], Any]:
        return torch.func.grad(lambda q: (f(q, q, q) * 1.5).sum())

    found, expected = (torch.vmap(gradient(f))(q) for f in (ops.attention, F.scaled_dot_product_attention))
    torch.testing.assert_close(found, expected, rtol=5e-2, atol=5e-2)


@pytest.mark.parametrize("name", sorted(CASES.keys() - {"linear"}))  # of float32 it is PyTorch's
def test_forward_mode_is_refused_and_not_zero(name: str) -> None:
    x = X[0].clone()
    for attempt in (lambda: torch.func.jvp(CASES[name][0], (x,), (x,)), lambda: dual(CASES[name][0], x)):
        with pytest.raises(TilewrightError, match="JIT011"):
            attempt()


def dual(f: Callable[[Any], Any], x: Any) -> Any:
    with torch.autograd.forward_ad.dual_level():
        return f(torch.autograd.forward_ad.make_dual(x, x))


@pytest.mark.parametrize(
    "name",
    ["rms_norm of its own weight", "layer_norm", "softmax", "linear_cross_entropy", "linear_cross_entropy of rows"],
)
def test_a_gradient_of_a_gradient_is_refused_when_it_is_asked_for(name: str) -> None:
    x = X[0].clone().requires_grad_()
    (gradient,) = torch.autograd.grad(CASES[name][0](x).square().sum(), x, create_graph=True)
    with pytest.raises(TilewrightError, match="JIT011"):
        gradient.sum().backward()
