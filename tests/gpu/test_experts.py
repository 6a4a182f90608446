"""Mixtures of experts on a real device: skewed and hostile choices forward and backward, the same bits in every run
and beside any other tokens, new choices in a CUDA graph."""

from __future__ import annotations

from typing import Any

import pytest

from tilewright import ops

pytestmark = pytest.mark.gpu
torch: Any = pytest.importorskip("torch")

EXPERTS, K, WIDTH, INNER = 16, 4, 128, 192
BF16 = torch.bfloat16


def weights_of_experts() -> tuple[Any, Any]:
    torch.manual_seed(1)
    return tuple(
        (torch.randn(EXPERTS, n, m, device="cuda") * m**-0.5).to(BF16) for n, m in ((2 * INNER, WIDTH), (WIDTH, INNER))
    )


def chosen(load: str, tokens: int) -> Any:
    """Expert ids of (tokens, K): the same expert twice is two rows."""
    random = torch.Generator("cuda").manual_seed(tokens)
    rank = torch.arange(1, EXPERTS + 1, device="cuda")
    likely = {
        "s = 0": rank**-0.0,
        "s = 1": rank**-1.0,
        "s = 2": rank**-2.0,
        "log-normal, .27": torch.empty(EXPERTS, device="cuda").log_normal_(0, 0.27, generator=random),
        "log-normal, .7": torch.empty(EXPERTS, device="cuda").log_normal_(0, 0.7, generator=random),
        "half of them empty": (rank % 2).float(),
        "one takes all": (rank == 5).float(),
        "hostile": rank**-1.0,
    }[load]
    ids = likely.expand(tokens, EXPERTS).multinomial(K, replacement=True, generator=random)
    if load == "hostile":
        wild = torch.tensor([-1, EXPERTS, 2**40, -(2**40), 2**31, -(2**31), 2**63 - 1, 2**32 + 2], device="cuda")
        some = torch.rand(ids.shape, device="cuda", generator=random) < 0.5
        ids = torch.where(some, wild[torch.arange(ids.numel(), device="cuda").view(ids.shape) % len(wild)], ids)
    return ids


def with_gradients(given: list[Any], ids: Any, **options: Any) -> list[Any]:
    """y, and the gradients of x, weights, gate_up and down."""
    x, weights, gate_up, down = leaves = [t.detach().requires_grad_() for t in given]
    y = ops.experts(x, ids, weights, gate_up, down, **options)
    y.backward(torch.arange(y.numel(), device="cuda").view(y.shape).cos().to(y.dtype))
    return [y.detach(), *(t.grad for t in leaves)]


def close(found: Any, exact: Any) -> bool:
    found, exact = found.detach(), exact.detach()
    return float((found.double() - exact).norm()) <= 1e-2 * float(exact.norm()) + 1e-12


@pytest.mark.parametrize("tokens", [7, 300, 2500])
@pytest.mark.parametrize(
    "load",
    ["s = 0", "s = 1", "s = 2", "log-normal, .27", "log-normal, .7", "half of them empty", "one takes all", "hostile"],
)
def test_loads_agree_with_float64(load: str, tokens: int) -> None:
    ids = chosen(load, tokens)
    given = [torch.randn(tokens, WIDTH, device="cuda").to(BF16), torch.rand(tokens, K, device="cuda")]
    given += weights_of_experts()
    exact = with_gradients([t.double() for t in given], ids)
    for found, wanted in zip(with_gradients(given, ids), exact, strict=True):
        assert close(found, wanted)
    with torch.no_grad():
        assert close(ops.experts(given[0], ids, *given[1:]), exact[0])


@pytest.mark.parametrize("tokens", [3, 300])
def test_a_row_of_nan_affects_no_other(tokens: int) -> None:
    router = torch.randn(EXPERTS, WIDTH, device="cuda").to(BF16)
    gate_up, down = weights_of_experts()
    x = torch.randn(tokens, WIDTH, device="cuda").to(BF16)
    x[1] = torch.nan
    given = [t.requires_grad_() for t in (x, gate_up, down)]
    y = ops.moe(x, router, gate_up, down, k=K)
    _, ids = torch.ops.tilewright.route(x.detach(), router, K, True, False)
    assert ((ids >= 0) & (ids < EXPERTS)).all()
    assert all(len(set(row.tolist())) == K for row in ids)
    y.backward(torch.ones_like(y))
    others = torch.arange(tokens, device="cuda") != 1
    wide = [t.detach().double().requires_grad_() for t in (x[others], gate_up, down)]
    exact = ops.moe(wide[0], router.double(), *wide[1:], k=K)
    exact.backward(torch.ones_like(exact))
    assert y[1].isnan().all()
    assert close(y[others], exact)
    assert close(given[0].grad[others], wide[0].grad)
    untouched = torch.tensor([e not in ids[1].tolist() for e in range(EXPERTS)])
    for own, wanted in zip(given[1:], wide[1:], strict=True):
        assert close(own.grad[untouched], wanted.grad[untouched])


@pytest.mark.parametrize("greatest", [torch.nan, 3e38, -3e38])
def test_logits_without_a_number_have_different_experts(greatest: float) -> None:
    """NaN for every token; else 9e76 or -9e76 for one token, which is infinite in float32."""
    router, x = torch.randn(EXPERTS, WIDTH, device="cuda").to(BF16), torch.randn(300, WIDTH, device="cuda").to(BF16)
    x[:, 0], router[:, 0] = 0, 0
    x[1, 0], router[2, 0] = 3e38, greatest
    weights, ids = torch.ops.tilewright.route(x, router, K, True, False)
    assert ((ids >= 0) & (ids < EXPERTS)).all()
    assert all(len(set(row.tolist())) == K for row in ids)
    spoiled = torch.ones(300, dtype=torch.bool) if greatest != greatest else torch.arange(300) == 1
    assert weights[~spoiled].isfinite().all()
    assert weights[spoiled].isnan().all() or (greatest < 0 and 2 not in ids[1])
    gate_up, down = weights_of_experts()
    y = ops.moe(x, router, gate_up, down, k=K)[~spoiled]
    assert close(y, ops.moe(x[~spoiled].double(), router.double(), gate_up.double(), down.double(), k=K))


def test_no_tokens() -> None:
    gate_up, down = weights_of_experts()
    x, ids = torch.empty(0, WIDTH, device="cuda", dtype=BF16), torch.empty(0, K, device="cuda", dtype=torch.int64)
    y, *grads = with_gradients([x, torch.empty(0, K, device="cuda"), gate_up, down], ids)
    assert y.shape == x.shape
    assert not any(g.any() for g in grads)


@pytest.mark.parametrize("tokens", [40, 2500])
def test_a_hundred_runs_give_the_same_bits(tokens: int) -> None:
    ids = chosen("s = 1", tokens)
    given = [torch.randn(tokens, WIDTH, device="cuda").to(BF16), torch.rand(tokens, K, device="cuda")]
    given += weights_of_experts()
    first = with_gradients(given, ids)
    for _ in range(100):
        assert all(torch.equal(a, b) for a, b in zip(first, with_gradients(given, ids), strict=True))


@pytest.mark.parametrize("scores", ["softmax", "sigmoid"])
def test_other_tokens_change_no_bit(scores: str) -> None:
    """Results and gradients of x: alone, and beside 1 to 5,999 tokens, in orders of their own."""
    gate_up, down = weights_of_experts()
    router = (torch.randn(EXPERTS, WIDTH, device="cuda") * WIDTH**-0.5).to(BF16)
    x = torch.randn(6000, WIDTH, device="cuda").to(BF16)

    def run(rows: Any) -> list[Any]:
        with torch.no_grad():
            alone = ops.moe(rows, router, gate_up, down, k=K, scores=scores, batch_invariant=True)
        leaf = rows.detach().requires_grad_()
        y = ops.moe(leaf, router, gate_up, down, k=K, scores=scores, batch_invariant=True)
        y.backward(torch.ones_like(y))
        assert torch.equal(alone, y)
        return [y.detach(), leaf.grad]

    whole = run(x)
    for tokens in (1, 2, 17, 64, 700, 4097):
        order = torch.randperm(6000, device="cuda")[:tokens]
        for part, every in zip(run(x[order]), whole, strict=True):
            assert torch.equal(part, every[order])


def test_a_graph_takes_new_choices() -> None:
    ids = chosen("s = 0", 300)
    x, weights = torch.randn(300, WIDTH, device="cuda").to(BF16), torch.rand(300, K, device="cuda")
    both = weights_of_experts()
    ops.experts(x, ids, weights, *both)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = ops.experts(x, ids, weights, *both)
    ids.copy_(chosen("hostile", 300))
    graph.replay()
    assert torch.equal(y, ops.experts(x, ids, weights, *both))
