"""``ops.attention(score_mod=...)``: a function of a score and its positions, in a kernel as PyTorch computes it."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest

import tilewright as tw
from support.pytorch import torch_or_skip

torch = torch_or_skip()

from tilewright import ops  # noqa: E402
from tilewright.ops.functional import attentions  # noqa: E402
from tilewright.ops.functional.score_mods import Captures  # noqa: E402

pytestmark = pytest.mark.sample(3)

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
    for gradient in (False, True):
        operator = attentions._scored_by(softcap, Captures(softcap)).operator(64, gradient=gradient).overload
        given = [x.clone().requires_grad_(gradient) for x in (q, k, v)]
        torch.library.opcheck(operator, (*given, None, None, None, None, 0.125, True, 1, None, None))


@pytest.mark.parametrize(("dtype", "dynamic"), [(torch.bfloat16, None), (torch.bfloat16, True), (torch.float32, None)])
def test_a_compiled_graph_has_the_operator(dtype: Any, dynamic: bool | None) -> None:
    q, k, v = heads(2, dtype)
    compiled = torch.compile(
        lambda q, k, v: ops.attention(q, k, v, score_mod=window) * 2,
        backend="aot_eager",
        fullgraph=True,
        dynamic=dynamic,
    )
    torch.testing.assert_close(compiled(q, k, v), ops.attention(q, k, v, score_mod=window) * 2)


# -- what a function reads beside tensors -----------------------------------------------------------------------------
class Settings:
    scale = 3.0

    def __call__(self, score: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
        return score * self.scale


SETTINGS, LISTED, NAMED, FACTOR = Settings(), [3.0], {"scale": 3.0}, 3.0


def close(mod: Callable[..., Any], mode: Any = ops.simulated) -> None:
    q, k, v = heads(1, torch.bfloat16)
    with mode():
        found = ops.attention(q, k, v, score_mod=mod)
    torch.testing.assert_close(found.double(), expected(q, k, v, mod, False), rtol=2e-2, atol=2e-2)


def of_an_object(score: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
    return score * SETTINGS.scale


def of_a_list(score: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
    return score * LISTED[0]


def of_a_dict(score: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
    return score * NAMED["scale"]


def of_an_attribute(score: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
    return score * of_an_attribute.scale  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "mod",
    [of_an_object, of_a_list, of_a_dict, of_an_attribute, SETTINGS],
    ids=["object", "list", "dict", "attribute", "self"],
)
def test_what_a_function_reads_may_change(mod: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an object, a container or a function's attributes, whose numbers no text of a function tells."""
    LISTED[0] = 3.0
    monkeypatch.setattr(of_an_attribute, "scale", 3.0, raising=False)
    close(mod)
    monkeypatch.setattr(of_an_attribute, "scale", 0.25)
    monkeypatch.setattr(SETTINGS, "scale", 0.25)
    monkeypatch.setitem(NAMED, "scale", 0.25)
    LISTED[0] = 0.25
    close(mod)
    q, k, v = heads(1, torch.bfloat16)
    count = len(attentions._functions)
    with ops.simulated():
        ops.attention(q, k, v, score_mod=mod)
    assert len(attentions._functions) == count  # the same kernel for the same numbers


def of_a_global(score: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
    return score * FACTOR


def test_a_compiled_graph_sees_what_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    q, k, v = heads(1, torch.bfloat16)
    compiled = torch.compile(lambda q, k, v: ops.attention(q, k, v, score_mod=of_a_global), backend="aot_eager")
    for factor in (3.0, 0.25, 1.5):
        monkeypatch.setitem(globals(), "FACTOR", factor)
        found = compiled(q, k, v)
        torch.testing.assert_close(found.double(), expected(q, k, v, of_a_global, False), rtol=2e-2, atol=2e-2)


def test_arguments_with_defaults_and_other_callables() -> None:
    def made(a: float) -> Callable[..., Any]:
        def scaled(score: Any, b: Any, h: Any, q: Any, k: Any, by: float = a, *, least: float = -a) -> Any:
            return torch.clamp(score * by, min=least)

        return scaled

    for mod in (made(3.0), made(0.25), partial(made(1.0), by=0.5), partial(made(1.0), by=4.0)):
        close(mod)


WIDE = {
    "product": lambda score, b, h, q, k: score + (q * 100000 * 100000 - k * 100000 * 100000) * 1e-10,
    "power": lambda score, b, h, q, k: score - torch.where((q + 1) ** 7 * 3 % 5 == (k + 1) ** 6 % 5, 1.5, 0.0),
    "square": lambda score, b, h, q, k: score - torch.square(q * 50000 - k * 50000) * 1e-9,
    "hash": lambda score, b, h, q, k: torch.where(((q * 73856093) ^ (k * 19349663)) % 3 == 0, score, -math.inf),
    "number": lambda score, b, h, q, k: torch.where(q + 2**40 > k + 2**40, score, score * 2),
    "choice": lambda score, b, h, q, k: score + torch.where(q > k, q * 1000000 * 1000000, k) * 1e-11,
    "bools": lambda score, b, h, q, k: score + (q > k) * q * 300000000 * 1e-9,
    "quotient": lambda score, b, h, q, k: score + -(q * 300000000) // (k + 1) * 1e-9,
    "clamp": lambda score, b, h, q, k: score + torch.clamp(torch.maximum(q, k) * 2**30, 0, 2**33) * 1e-9,
}


@pytest.mark.parametrize("name", WIDE)
def test_integers_of_positions_have_64_bits(name: str) -> None:
    """As PyTorch's have, on the CPU and in its own attention with a function."""
    close(WIDE[name])


@pytest.mark.parametrize("least", [-1e9, -1e30, torch.finfo(torch.float32).min])
def test_a_query_whose_scores_are_a_great_finite_number_has_equal_weights(least: float) -> None:
    close(lambda score, b, h, q, k: torch.where(q > 5, score, least))


@pytest.mark.parametrize("mode", [nullcontext, ops.simulated])
def test_without_keys_there_are_zeros(mode: Any) -> None:
    q = heads(2, torch.bfloat16)[0].requires_grad_()
    k = v = torch.zeros(2, 2, 0, 64, dtype=torch.bfloat16)
    with mode():
        for mod in (None, slopes):
            y = ops.attention(q, k, v, score_mod=mod)
            assert y.shape == q.shape
            assert not y.count_nonzero()
            assert not torch.autograd.grad(y.sum(), q, allow_unused=True)[0].count_nonzero()
        y, lse = ops.attention_with_lse(q, k, v)
        assert not y.count_nonzero()
        assert (lse == -math.inf).all()
        assert lse.shape == q.shape[:3]


# -- tensors that a function reads ------------------------------------------------------------------------------------
SLOPES = torch.tensor([0.5, 0.25])
DOCUMENTS = torch.tensor([0] * 9 + [1] * 14 + [2] * 14)


def alibi(score: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
    return score + SLOPES[h] * (k - q)


def documents(score: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
    return torch.where((DOCUMENTS[q] == DOCUMENTS[k]) & (k <= q), score, -math.inf)


LIMITS = torch.tensor([2**31 - 1, 5], dtype=torch.int32)


def limited(score: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
    """A sum of an integer that was read, of 32 bits, and a position has 64."""
    return torch.where(k < q + LIMITS[b], score, -math.inf)


def relative() -> Callable[..., Any]:
    """A closure over two tensors and a function that reads the first."""
    table, allowed = torch.randn(2, 80, generator=torch.Generator().manual_seed(1)), torch.ones(2, 37, 29).bool()
    allowed[1, 3:9, 2:] = False

    def distance(h: Any, q: Any, k: Any) -> Any:
        return table[h, q - k + 29]

    return lambda score, b, h, q, k: torch.where(allowed[b, q, k], 2 * score + distance(h, q, k), -math.inf)


def bias() -> Callable[..., Any]:
    held = torch.randn(2, 37, 29, generator=torch.Generator().manual_seed(2)).to(torch.bfloat16)
    return lambda score, b, h, q, k: score + held[h, q, k]


READING = {"alibi": alibi, "documents": documents, "relative": relative(), "bias": bias(), "limited": limited}


@pytest.mark.parametrize("mode", [nullcontext, ops.simulated])
@pytest.mark.parametrize("name", READING)
def test_functions_read_tensors(name: str, mode: Any) -> None:
    q, k, v = heads(1, torch.bfloat16)
    with mode():
        found = ops.attention(q, k, v, score_mod=READING[name])
    torch.testing.assert_close(found.double(), expected(q, k, v, READING[name], False), rtol=2e-2, atol=2e-2)


def test_closures_of_one_text_share_kernels() -> None:
    def made(slopes: Any, factor: float = 1.0) -> Callable[..., Any]:
        return lambda score, b, h, q, k: score * factor + slopes[h]

    q, k, v = heads(1, torch.bfloat16)
    attentions._functions.clear()
    with ops.simulated():
        for slopes in (torch.tensor([0.0, 5.0]), torch.tensor([3.0, 1.0])):
            mod = made(slopes)
            found = ops.attention(q, k, v, score_mod=mod)
            torch.testing.assert_close(found.double(), expected(q, k, v, mod, False), rtol=2e-2, atol=2e-2)
    (kept,) = attentions._functions.values()
    others = (made(torch.zeros(2), 2.0), made(torch.zeros(2, 2)), made(1.0), alibi)
    assert len({Captures(mod).key for mod in (made(SLOPES), *others)}) == 5
    assert attentions._scored_by(mod, Captures(mod)) is kept


def test_few_functions_are_kept() -> None:
    attentions._functions.clear()
    for i in range(attentions._MOST_FUNCTIONS + 3):
        mod = bounded(i)
        attentions._scored_by(mod, Captures(mod))
    assert len(attentions._functions) == attentions._MOST_FUNCTIONS
    assert Captures(bounded(2)).key not in attentions._functions
    assert Captures(bounded(3)).key in attentions._functions


def bounded(limit: int) -> Callable[..., Any]:
    return lambda score, b, h, q, k: torch.clamp(score, max=limit)


# -- gradients --------------------------------------------------------------------------------------------------------
def curves(score: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
    x = torch.sin(score) + torch.exp2(-score.square()) / (1 + score * score) - torch.log(2 + torch.cos(score))
    return x + torch.sqrt(1 + score**2) * torch.rsqrt(4 + score.abs()) + torch.erf(-score) + torch.exp(-abs(score))


def pieces(score: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
    x = torch.minimum(torch.clamp(score, -1, 1.5), score * 0.5 + 1) + torch.floor(score) * 0 + torch.log2(3 + score % 2)
    return torch.where(score > 0, x, torch.clamp(score, min=-0.5))


@pytest.mark.parametrize("mode", [nullcontext, ops.simulated])
@pytest.mark.parametrize(
    "mod", [softcap, window, blocks, distance, curves, pieces, alibi, documents, READING["relative"]]
)
def test_gradients_are_pytorchs(mod: Callable[..., Any], mode: Any) -> None:
    given = heads(1, torch.bfloat16)
    leaves = [x.requires_grad_() for x in given]
    wide = [x.detach().double().requires_grad_() for x in given]
    exact = expected(*wide, mod, causal=mod is curves)
    dy = torch.randn(exact.shape, generator=torch.Generator().manual_seed(4))
    with mode():
        found = ops.attention(*leaves, score_mod=mod, causal=mod is curves)
        got = torch.autograd.grad(found, leaves, dy.to(found.dtype))
    torch.testing.assert_close(found.double(), exact, rtol=2e-2, atol=2e-2)
    for ours, theirs in zip(got, torch.autograd.grad(exact, wide, dy.double()), strict=True):
        torch.testing.assert_close(ours.double(), theirs.nan_to_num(0.0), rtol=3e-2, atol=3e-2)


def test_gradients_in_a_compiled_graph() -> None:
    given = [x.requires_grad_() for x in heads(2, torch.bfloat16)]
    compiled = torch.compile(
        lambda q, k, v: ops.attention(q, k, v, score_mod=softcap) * 2, backend="aot_eager", fullgraph=True
    )
    found, wanted = (
        torch.autograd.grad(y.square().sum(), given)
        for y in (compiled(*given), ops.attention(*given, score_mod=softcap) * 2)
    )
    for ours, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=3e-2, atol=3e-2)


def test_what_has_no_gradient() -> None:
    q, k, v = heads(1, torch.bfloat16)
    slopes = torch.zeros(2, requires_grad=True)

    def learned(score: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
        return score + slopes[h]

    with ops.simulated():
        with pytest.raises(tw.TilewrightError, match="JIT011"):
            ops.attention(q, k, v, score_mod=learned)
        y = ops.attention(q.requires_grad_(), k, v, score_mod=softcap)
        (dq,) = torch.autograd.grad(y.sum(), q, create_graph=True)
        with pytest.raises(tw.TilewrightError, match="JIT011"):
            dq.sum().backward()
    with pytest.raises(tw.TilewrightError, match="JIT011"):
        ops.attention(q, k, v, score_mod=softcap, out=torch.empty_like(q))
    ops.attention(q, k, v, score_mod=learned).sum().backward()  # by PyTorch
    assert slopes.grad is not None


def test_a_compiled_graph_reads_no_tensor() -> None:
    compiled = torch.compile(
        lambda q, k, v: ops.attention(q, k, v, score_mod=alibi), backend="aot_eager", fullgraph=True
    )
    with pytest.raises(Exception, match="score_mod that reads 1 tensors"):
        compiled(*heads(1, torch.bfloat16))


# -- refusals ---------------------------------------------------------------------------------------------------------
TABLE = torch.ones(2)


@pytest.mark.parametrize(
    ("mod", "part"),
    [
        (lambda score, b, h, q, k: score if q > k else -score, "lambda"),
        (lambda score, b, h, q, k: score + TABLE, "TensorProxy"),
        (lambda score, b, h, q, k: score + TABLE[b, h], "2 of 1 axes"),
        (lambda score, b, h, q, k: torch.special.i0(score), "i0"),
        (lambda score, b, h, q, k: score.cumsum(0), "cumsum"),
        (lambda score, q, k: score, "arguments"),
        (lambda score, b, h, q, k: torch.round(score, decimals=2), "round"),
        (lambda score, b, h, q, k: h * 0.5, "depend"),
    ],
)
def test_functions_that_no_kernel_has(mod: Callable[..., Any], part: str) -> None:
    with ops.simulated(), pytest.raises(tw.TilewrightError) as caught:
        ops.attention(*heads(1, torch.bfloat16), score_mod=mod)
    assert caught.value.code == "JIT010"
    assert part in str(caught.value)
