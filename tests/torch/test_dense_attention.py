"""Dense attention with a window, a softcap and sinks, which runs on the kernels of packed sequences."""

from __future__ import annotations

import math
from contextlib import nullcontext
from typing import Any

import pytest

import tilewright as tw
from support.pytorch import torch_or_skip

torch = torch_or_skip()

from tilewright import ops  # noqa: E402

pytestmark = pytest.mark.sample(3)

OPTIONS: tuple[dict[str, Any], ...] = (
    {"causal": True, "window": 7},
    {"softcap": 1.5},
    {"causal": True, "sinks": True},
    {"causal": True, "window": 5, "softcap": 2.0, "sinks": True, "scale": 0.2},
)


def heads(dtype: Any, queries: int = 19, keys: int = 19, width: int = 64) -> list[Any]:
    random = torch.Generator().manual_seed(3)
    shapes = ((2, 4, queries, width), (2, 2, keys, width), (2, 2, keys, width))
    return [torch.randn(s, generator=random).to(dtype) for s in shapes]


def given(options: dict[str, Any], dtype: Any) -> dict[str, Any]:
    return options | ({"sinks": torch.linspace(-1, 1, 4, dtype=dtype)} if "sinks" in options else {})


def expected(
    q: Any, k: Any, v: Any, *, causal: bool = False, scale: float | None = None, window: int | None = None,
    softcap: float | None = None, sinks: Any = None,
) -> tuple[Any, Any]:  # fmt: skip
    """And the logarithms, in the dtype of the tensors."""
    k, v = (x.repeat_interleave(2, 1) for x in (k, v))
    x = q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if softcap is not None:
        x = softcap * torch.tanh(x / softcap)
    behind = torch.arange(x.shape[2])[:, None] - torch.arange(x.shape[3])
    if causal:
        x = x.masked_fill(behind < 0, -math.inf)
    if window is not None:
        x = x.masked_fill(behind >= window, -math.inf)
    sink = (
        x.new_full((2, 4, x.shape[2], 1), -math.inf)
        if sinks is None
        else sinks[:, None, None].expand(2, -1, x.shape[2], 1)
    )
    lse = torch.cat((x, sink), -1).logsumexp(-1)
    return torch.exp(x - lse[..., None]) @ v, lse


@pytest.mark.parametrize("mode", [nullcontext, ops.simulated])
@pytest.mark.parametrize("options", OPTIONS)
def test_results_and_logarithms(options: dict[str, Any], mode: Any) -> None:
    q, k, v = heads(torch.bfloat16)
    with mode():
        y, lse = ops.attention_with_lse(q, k, v, **given(options, torch.float32))
        out = ops.attention(q, k, v, **given(options, torch.float32), out=torch.empty_like(q))
    wanted, sums = expected(*(x.double() for x in (q, k, v)), **given(options, torch.float64))
    for found in (y, out):
        torch.testing.assert_close(found.double(), wanted, rtol=2e-2, atol=2e-2)
    torch.testing.assert_close(lse.double(), sums, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("options", OPTIONS)
def test_gradients(options: dict[str, Any]) -> None:
    tensors = [x.requires_grad_() for x in heads(torch.float64)]
    named = given(options, torch.float64)
    inputs = tensors + ([named["sinks"].requires_grad_()] if "sinks" in named else [])
    found, wanted = (
        torch.autograd.grad(y.square().sum(), inputs)
        for y in (ops.attention(*tensors, **named), expected(*tensors, **named)[0])
    )
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b)


def test_queries_and_keys_are_aligned_at_the_first() -> None:
    q, k, v = heads(torch.float64, 9, 19)
    found = ops.attention(q, k, v, causal=True, window=4)
    torch.testing.assert_close(found, expected(q, k, v, causal=True, window=4)[0])


def test_a_compiled_graph() -> None:
    q, k, v = heads(torch.bfloat16)
    compiled = torch.compile(
        lambda q, k, v: ops.attention(q, k, v, causal=True, window=5), backend="aot_eager", fullgraph=True
    )
    torch.testing.assert_close(compiled(q, k, v), ops.attention(q, k, v, causal=True, window=5))


def test_what_does_not_fit() -> None:
    q, k, v = heads(torch.bfloat16, 19, 9)
    for options in (
        {"causal": True, "window": 4},
        {"window": 4},
        {"softcap": 0.0},
        {"sinks": torch.zeros(3)},
        {"softcap": 2.0, "score_mod": lambda x, b, h, s, t: x},
    ):
        with pytest.raises(tw.TilewrightError) as caught:
            ops.attention(q, k, v, **options)
        assert caught.value.code == "JIT010"


def test_no_sequences(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch's attention on a GPU returns None of a batch of none."""
    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", lambda *_, **__: None)
    q, k, v = (torch.zeros(0, heads, 5, 64, dtype=torch.bfloat16).requires_grad_() for heads in (4, 2, 2))
    y = ops.attention(q, k, v, causal=True)
    assert (y.shape, y.dtype) == (q.shape, q.dtype)
    assert [g.shape for g in torch.autograd.grad(y.sum(), (q, k, v))] == [t.shape for t in (q, k, v)]
