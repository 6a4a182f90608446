"""``ops.attention(score_mod=...)``: a function of a score and its positions, in a kernel as PyTorch computes it."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest

import tilewright as tw
from support.pytorch import torch_or_skip

torch = torch_or_skip()

from tilewright import ops  # noqa: E402
from tilewright.ops.functional import attentions  # noqa: E402

SLOPE = 0.25


def slopes(score: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
    return score + torch.exp2(-(h + 1) * SLOPE) * (k - q)


def softcap(score: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
    return 2.0 * torch.tanh(score / 2.0)


def window(score: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
    return torch.where((q - k < 9) & ~(k > q), score, -math.inf)


def blocks(score: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
    """Of queries, some of which see nothing."""
    seen = (q // 8 == k // 8) & (q % 8 != 3) & ((b == 0) | (k % 2 == 0))
    return torch.where(seen, score.abs() / 4, float("-inf"))


def distance(score: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
    return torch.maximum(score - (q - k).abs() / 4, torch.sigmoid(-score)) + torch.clamp(k - q, -3, 5) * 0.5


def powers(score: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
    return score.clamp(min=-0.5) + score**2 - abs(q - k) * 0.1 + (q - k) // 3 % 2


MODS = (slopes, softcap, window, blocks, distance, powers)


def heads(groups: int, dtype: Any, width: int = 64, queries: int = 37) -> list[Any]:
    random = torch.Generator().manual_seed(groups)
    shapes = ((2, 2, queries, width), (2, groups, 29, width), (2, groups, 29, width))
    return [torch.randn(s, generator=random).to(dtype) for s in shapes]


def expected(q: Any, k: Any, v: Any, mod: Callable[..., Any], causal: bool) -> Any:
    """In float64, a score at a time."""
    q, k, v = (x.double() for x in (q, k, v))
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    x = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    vectorised = mod
    for dims in ((None, None, None, 0), (None, None, 0, None), (None, 0, None, None), (0, None, None, None)):
        vectorised = torch.vmap(vectorised, in_dims=(0, *dims))
    x = vectorised(x, *(torch.arange(n) for n in x.shape))
    if causal:
        x = x.masked_fill(torch.ones(x.shape[-2:]).triu(1).bool(), -math.inf)
    return x.softmax(-1).nan_to_num(0.0) @ v


@pytest.mark.parametrize("mode", [nullcontext, ops.simulated])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("mod", MODS)
def test_scores_are_pytorchs(mod: Callable[..., Any], causal: bool, mode: Any) -> None:
    q, k, v = heads(1 + causal, torch.bfloat16)
    with mode():
        found = ops.attention(q, k, v, causal=causal, score_mod=mod)
    assert found.dtype == q.dtype
    torch.testing.assert_close(found.double(), expected(q, k, v, mod, causal), rtol=2e-2, atol=2e-2)


def test_dtypes_and_widths_of_no_kernel_have_gradients() -> None:
    q, k, v = heads(1, torch.float64, 24)
    q.requires_grad_()
    found = ops.attention(q, k, v, score_mod=slopes)
    torch.testing.assert_close(found, expected(q, k, v, slopes, causal=False))
    (got,) = torch.autograd.grad(found.square().sum(), q)
    (wanted,) = torch.autograd.grad(expected(q, k, v, slopes, causal=False).square().sum(), q)
    torch.testing.assert_close(got, wanted)


def test_out_autocast_and_the_operator() -> None:
    q, k, v = heads(2, torch.bfloat16)
    y = ops.attention(q, k, v, score_mod=softcap)
    out = torch.empty_like(q)
    assert ops.attention(q, k, v, score_mod=softcap, out=out) is out
    torch.testing.assert_close(out, y)
    with torch.autocast("cpu", torch.bfloat16):
        assert ops.attention(q.float(), k, v, score_mod=softcap).dtype == torch.bfloat16
    assert ops.attention(*(x.to("meta") for x in (q, k, v)), score_mod=softcap).shape == y.shape
    operator = attentions._scored_operators(softcap)[64].overload
    torch.library.opcheck(operator, (q, k, v, 0.125, True, 1, None, None))


def test_a_compiled_graph_has_the_operator() -> None:
    q, k, v = heads(2, torch.bfloat16)
    compiled = torch.compile(
        lambda q, k, v: ops.attention(q, k, v, score_mod=window) * 2, backend="aot_eager", fullgraph=True
    )
    torch.testing.assert_close(compiled(q, k, v), ops.attention(q, k, v, score_mod=window) * 2)


TABLE = torch.ones(2)


@pytest.mark.parametrize(
    ("mod", "part"),
    [
        (lambda score, b, h, q, k: score if q > k else -score, "lambda"),
        (lambda score, b, h, q, k: score + TABLE, "a tensor"),
        (lambda score, b, h, q, k: torch.special.i0(score), "i0"),
        (lambda score, b, h, q, k: score.cumsum(0), "cumsum"),
        (lambda score, q, k: score, "arguments"),
        (lambda score, b, h, q, k: torch.round(score, decimals=2), "round"),
        (lambda score, b, h, q, k: h * 0.5, "depend"),
    ],
)
def test_functions_that_no_kernel_has(mod: Callable[..., Any], part: str) -> None:
    with pytest.raises(tw.TilewrightError) as caught:
        ops.attention(*heads(1, torch.bfloat16), score_mod=mod)
    assert caught.value.code == "JIT010"
    assert part in str(caught.value)


def test_there_is_no_gradient() -> None:
    q, k, v = heads(1, torch.bfloat16)
    with pytest.raises(tw.TilewrightError) as caught:
        ops.attention(q.requires_grad_(), k, v, score_mod=softcap)
    assert caught.value.code == "JIT011"
