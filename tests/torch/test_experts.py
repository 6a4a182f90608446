"""Mixtures of experts: kernels in the simulator beside PyTorch in float64, results and gradients."""

from __future__ import annotations

import sys
from typing import Any

import pytest

import tilewright as tw
from support.pytorch import torch_or_skip
from support.slow import rest_slow

torch = torch_or_skip()

from tilewright import ops  # noqa: E402

pytestmark = pytest.mark.sample(3)

BF16 = torch.bfloat16


def drawn(tokens: int, experts: int, width: int, inner: int) -> list[Any]:
    """x, router, gate_up, down."""
    random = torch.Generator().manual_seed(tokens + experts)
    shapes = (tokens, width), (experts, width), (experts, 2 * inner, width), (experts, width, inner)
    scaled = ((torch.randn(s, generator=random) * (1 if s is shapes[0] else s[-1] ** -0.5)) for s in shapes)
    return [t.to(BF16).requires_grad_() for t in scaled]


def with_gradients(given: list[Any], **options: Any) -> list[Any]:
    y = ops.moe(*given, **options)
    y.backward(torch.ones_like(y) * torch.arange(y.shape[0], dtype=y.dtype)[:, None].cos())
    return [y.detach(), *(t.grad for t in given)]


@pytest.mark.parametrize(
    ("shape", "options"),
    [
        ((40, 4, 64, 64), {"k": 2}),
        ((70, 8, 72, 80), {"k": 3, "normalise": False}),
        ((33, 5, 64, 64), {"k": 2, "capacity": 5}),
        ((33, 6, 64, 64), {"k": 5, "capacity": 20}),
        ((0, 4, 64, 64), {"k": 2}),
    ],
    ids=["normalised", "not normalised", "with a capacity", "rows read once", "no tokens"],
)
def test_kernels_agree_with_float64(shape: tuple[int, ...], options: dict[str, Any]) -> None:
    given = drawn(*shape)
    with ops.simulated():
        found = with_gradients(given, **options)
    exact = with_gradients([t.detach().double().requires_grad_() for t in given], **options)
    for got, wanted in zip(found, exact, strict=True):
        assert got.dtype == BF16
        assert float((got.double() - wanted).norm()) <= 8e-3 * float(wanted.norm())


@pytest.mark.parametrize("capacity", [None, 5])
def test_where_nobody_can_tell_how_many_rows_an_expert_has(capacity: int | None) -> None:
    """Of PyTorch's way: batches of ``vmap``, gradients of them, fake tensors and those of ``meta``."""
    x, router, gate_up, down = (t.detach().float() for t in drawn(30, 4, 16, 8))

    def mixture(x: Any) -> Any:
        return ops.moe(x, router, gate_up, down, k=2, capacity=capacity)

    batches = x.view(3, 10, 16)
    expected = torch.stack([mixture(each) for each in batches])
    torch.testing.assert_close(torch.func.vmap(mixture)(batches), expected)
    gradient = torch.func.grad(lambda x: mixture(x).square().sum())
    each = torch.stack([torch.autograd.functional.jacobian(lambda x: mixture(x).square().sum(), b) for b in batches])
    torch.testing.assert_close(torch.func.vmap(gradient)(batches), each)
    with torch._subclasses.FakeTensorMode() as mode:
        given = [mode.from_tensor(t) for t in (x, router, gate_up, down)]
        assert ops.moe(*given, k=2, capacity=capacity).shape == x.shape
    given = [t.to("meta") for t in (x, router, gate_up, down)]
    assert ops.moe(*given, k=2, capacity=capacity).is_meta


@pytest.mark.parametrize(("gathered", "tokens", "experts"), [(True, 12, 6), (True, 70, 3), (False, 12, 6)])
def test_results_alone_agree_with_float64(
    gathered: bool, tokens: int, experts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without gradients rows are gathered by the first product where that is faster, and blocks may be small."""
    if not gathered:
        monkeypatch.setattr(sys.modules[ops.experts.__module__], "_MOST_GATHERED", 0)
    given = [t.detach() for t in drawn(tokens, experts, 72, 136)]
    with ops.simulated():
        found = ops.moe(*given, k=2)
    exact = ops.moe(*(t.double() for t in given), k=2)
    assert float((found.double() - exact).norm()) <= 8e-3 * float(exact.norm())


def test_options_of_the_routing() -> None:
    """Sigmoid scores, a bias that chooses only, a shared expert: by PyTorch's products, an expert at a time."""
    x, router, gate_up, down = (t.detach().double() for t in drawn(9, 6, 16, 8))
    bias = torch.tensor([0.0, 5.0, 0.0, 0.0, -5.0, 0.0])
    y = ops.moe(x, router, gate_up, down, k=2, scores="sigmoid", bias=bias, shared=(gate_up[0], down[0]))
    scores = torch.sigmoid((x @ router.T).float())
    ids = (scores + bias).topk(2).indices
    assert (ids == 1).any(1).all()
    assert not (ids == 4).any()
    weights = scores.gather(1, ids)
    weights /= weights.sum(1, keepdim=True)

    def one(row: Any, e: int) -> Any:
        gate, up = (gate_up[e] @ row).chunk(2)
        return down[e] @ (torch.nn.functional.silu(gate) * up)

    for t in range(9):
        wanted = one(x[t], 0) + sum(w * one(x[t], int(e)) for w, e in zip(weights[t], ids[t], strict=True))
        torch.testing.assert_close(y[t], wanted, rtol=1e-6, atol=1e-6)


def chosen_by_hand(score: Any, bias: Any, k: int, groups: tuple[int, int] | None) -> list[int]:
    """The experts of one token, a group and an expert at a time."""
    left = {e: float(s) + (0.0 if bias is None else float(bias[e])) for e, s in enumerate(score)}
    if groups is not None:
        size = len(left) // groups[0]
        members = [range(g * size, (g + 1) * size) for g in range(groups[0])]
        sums = [sum(sorted((left[e] for e in own), reverse=True)[: 1 if bias is None else 2]) for own in members]
        best = sorted(range(groups[0]), key=lambda g: -sums[g])[: groups[1]]
        left = {e: left[e] for g in best for e in members[g]}
    return sorted(left, key=lambda e: -left[e])[:k]


@pytest.mark.usefixtures("simulated")
@pytest.mark.parametrize("dtype", [torch.float64, BF16])
@pytest.mark.parametrize("normalise", [True, False])
@pytest.mark.parametrize(
    ("scores", "biased", "groups", "factor"),
    [
        ("sigmoid", True, (4, 2), 2.5),  # DeepSeek V3
        ("softmax", False, (4, 2), 16.0),  # DeepSeek V2
        ("sigmoid", True, None, 1.0),
        ("sigmoid", False, (6, 1), 1.0),
        ("softmax", True, (12, 3), 0.5),  # groups of one expert
    ],
)
def test_conventions_of_routing(
    scores: str, biased: bool, groups: tuple[int, int] | None, factor: float, normalise: bool, dtype: Any
) -> None:
    x, router, gate_up, down = (t.detach().to(dtype) for t in drawn(9, 12, 32, 16))
    bias = torch.linspace(-0.5, 0.5, 12)[torch.randperm(12, generator=torch.Generator().manual_seed(0))]
    options = {"bias": bias if biased else None, "groups": groups}
    k = 2 if groups == (6, 1) else 3
    y = ops.moe(x, router, gate_up, down, k=k, scores=scores, normalise=normalise, factor=factor, **options)
    exact = torch.zeros(9, 32, dtype=torch.float64)
    for t in range(9):
        logits = (x[t] @ router.T).double()
        score = torch.sigmoid(logits) if scores == "sigmoid" else torch.softmax(logits, 0)
        ids = chosen_by_hand(score, options["bias"], k, groups)
        weights = score[ids] / (score[ids].sum() if normalise else 1) * factor
        for e, weight in zip(ids, weights, strict=True):
            gate, up = (gate_up[e].double() @ x[t].double()).chunk(2)
            exact[t] += weight * (down[e].double() @ (torch.nn.functional.silu(gate) * up))
    assert float((y.double() - exact).norm()) <= (2e-2 if dtype == BF16 else 1e-6) * float(exact.norm())


@pytest.fixture
def simulated() -> Any:
    with ops.simulated():
        yield


@pytest.mark.usefixtures("simulated")
@pytest.mark.parametrize("options", [{"groups": (2, 1)}, {"scores": "sigmoid", "bias": torch.zeros(6)}, {}])
def test_no_tokens(options: dict[str, Any]) -> None:
    given = [t.detach().requires_grad_() for t in drawn(0, 6, 64, 64)]
    y = ops.moe(*given, k=2, **options)
    assert y.shape == (0, 64)
    y.sum().backward()
    assert all(t.grad is None or not t.grad.any() for t in given)


@pytest.mark.usefixtures("simulated")
def test_groups_of_a_row_of_nan_have_different_experts() -> None:
    x, router, gate_up, down = (t.detach() for t in drawn(5, 12, 64, 64))
    x[1] = torch.nan
    options = {"k": 4, "groups": (4, 2), "scores": "sigmoid", "bias": torch.linspace(0, 1, 12)}
    y = ops.moe(x, router, gate_up, down, **options)
    assert y[1].isnan().all()
    others = torch.arange(5) != 1
    assert torch.equal(y[others], ops.moe(x[others], router, gate_up, down, **options))


@pytest.mark.usefixtures("simulated")
def test_a_map_of_experts_splits_a_layer() -> None:
    """Global ids become local ones, or -1: what each owner gives adds up to the whole."""
    x, _, gate_up, down = (t.detach() for t in drawn(20, 6, 64, 64))
    random = torch.Generator().manual_seed(3)
    ids, weights = torch.rand(20, 6, generator=random).topk(3).indices, torch.rand(20, 3, generator=random)
    whole, parts = ops.experts(x.double(), ids, weights, gate_up.double(), down.double()), 0
    for own in (torch.tensor([4, 0, 3]), torch.tensor([5, 1, 2])):
        local = torch.full((6,), -1).index_copy(0, own, torch.arange(3))[ids]
        parts = parts + ops.experts(x, local, weights, gate_up[own], down[own]).double()
    assert float((parts - whole).norm()) <= 1e-2 * float(whole.norm())


@pytest.mark.usefixtures("simulated")
@pytest.mark.parametrize("counts", [[3, 0, 5, 1], [0, 0, 0, 0], [5, 5, 5, 5]])
def test_a_masked_layout(counts: list[int]) -> None:
    """Rows of an expert behind each other, NaN beyond its count: these have no expert, and give zeros."""
    x, _, gate_up, down = (t.detach() for t in drawn(20, 4, 64, 64))
    held = torch.arange(5) < torch.tensor(counts)[:, None]
    x[~held.flatten()] = torch.nan
    ids = torch.arange(4)[:, None].masked_fill(~held, -1).view(20, 1)
    y = ops.experts(x, ids, torch.ones(20, 1), gate_up, down)
    exact = ops.experts(x.double().nan_to_num(), ids, torch.ones(20, 1), gate_up.double(), down.double())
    assert (y[~held.flatten()] == 0).all()
    assert float((y.double() - exact).norm()) <= 1e-2 * float(exact.norm()) + 1e-9


def test_ids_that_are_no_expert_add_nothing() -> None:
    """Nor to gradients; the same expert twice is two rows."""
    ids = torch.tensor([[0, -1], [2**40, 1], [-(2**40), 3], [2, 2], [1, 0], [2, 1]])
    x, _, gate_up, down = drawn(6, 3, 64, 64)
    weights, found = torch.rand(6, 2), list[list[Any]]()
    for exact in (False, True):
        leaves = [(t.detach().double() if exact else t.detach()).requires_grad_() for t in (x, weights, gate_up, down)]
        with ops.simulated():
            y = ops.experts(leaves[0], ids, *leaves[1:])
            y.backward(torch.ones_like(y) * torch.arange(6, dtype=y.dtype)[:, None].cos())
        found.append([y.detach(), *(t.grad for t in leaves)])
    for got, wanted in zip(*found, strict=True):
        assert float((got.double() - wanted).norm()) <= 8e-3 * float(wanted.norm())
    assert all((t[2] == 0).all() for t in found[0][:3])


@pytest.mark.parametrize("tokens", [3, 21])
def test_a_row_of_nan_has_different_experts_and_affects_no_other(tokens: int) -> None:
    x, router, gate_up, down = (t.detach() for t in drawn(tokens, 6, 64, 64))
    x[1] = torch.nan
    with ops.simulated():
        _, ids = torch.ops.tilewright.route(x, router, 4, True, False)
        y = ops.moe(x, router, gate_up, down, k=4)
    assert ((ids >= 0) & (ids < 6)).all()
    assert all(len(set(row.tolist())) == 4 for row in ids)
    others = torch.arange(tokens) != 1
    exact = ops.moe(x[others].double(), router.double(), gate_up.double(), down.double(), k=4)
    assert y[1].isnan().all()
    assert float((y[others].double() - exact).norm()) <= 8e-3 * float(exact.norm())


@pytest.mark.parametrize("greatest", [torch.nan, 3e38, -3e38])
def test_a_logit_without_a_number_has_different_experts_and_affects_no_other(greatest: float) -> None:
    """NaN for every token; else 9e76 or -9e76 for one token, which is infinite in float32."""
    x, router, gate_up, down = (t.detach() for t in drawn(21, 6, 64, 64))
    x[:, 0], router[:, 0] = 0, 0
    x[1, 0], router[2, 0] = 3e38, greatest
    with ops.simulated():
        weights, ids = torch.ops.tilewright.route(x, router, 4, True, False)
        y = ops.moe(x, router, gate_up, down, k=4)
    assert ((ids >= 0) & (ids < 6)).all()
    assert all(len(set(row.tolist())) == 4 for row in ids)
    if greatest != greatest:
        assert y.isnan().all()
        return
    assert weights[1].isnan().all() if greatest > 0 else 2 not in ids[1] and weights[1].isfinite().all()
    others = torch.arange(21) != 1
    exact = ops.moe(x[others].double(), router.double(), gate_up.double(), down.double(), k=4)
    assert float((y[others].double() - exact).norm()) <= 8e-3 * float(exact.norm())


def test_a_row_of_nan_spoils_gradients_of_its_experts_alone() -> None:
    given = [t.detach() for t in drawn(21, 6, 64, 64)]
    given[0][1] = torch.nan
    leaves = [t.clone().requires_grad_() for t in given]
    with ops.simulated():
        _, ids = torch.ops.tilewright.route(given[0], given[1], 2, True, False)
        ops.moe(*leaves, k=2).sum().backward()
    others, untouched = torch.arange(21) != 1, [e for e in range(6) if e not in ids[1].tolist()]
    wide = [(t[others] if t is given[0] else t).double().requires_grad_() for t in given]
    ops.moe(*wide, k=2).sum().backward()
    parts = [(0, others, slice(None)), (2, untouched, untouched), (3, untouched, untouched)]
    for i, own, wanted in parts:
        exact = wide[i].grad[wanted]
        assert float((leaves[i].grad[own].double() - exact).norm()) <= 8e-3 * float(exact.norm())
    assert leaves[0].grad[1].isnan().all()


OF_ONE_TILE: dict[str, dict[str, Any]] = {
    "softmax": {},
    "not normalised": {"normalise": False},
    "sigmoid": {"scores": "sigmoid", "bias": torch.linspace(0, 0.1, 6)},
    "shared": {"shared": None},  # of the first expert's weights
}


@pytest.mark.slow
@pytest.mark.parametrize("options", OF_ONE_TILE.values(), ids=OF_ONE_TILE)
def test_no_other_token_decides_what_runs(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever depends on how many tokens there are: kernels, their tiles and blocks. Results and gradients of the
    first tokens have the same bits whether others are there or not."""
    launched, module = set[Any](), sys.modules[ops.experts.__module__]
    for name in ("matmul", "choose", "gated_experts", "down_experts"):
        kernel = getattr(module.kernels, name)

        def run(*given: Any, kernel: Any = kernel, name: str = name, **keywords: Any) -> Any:
            launched.add((name, *sorted(keywords.items())))
            return kernel(*given, **keywords)

        monkeypatch.setattr(module.kernels, name, run)
    given = [t.detach() for t in drawn(130, 6, 64, 64)]
    if "shared" in options:
        options = {"shared": (given[2][0], given[3][0])}
    found, used = list[list[Any]](), list[set[Any]]()
    for tokens in (3, 130):
        leaves = [t[:tokens].clone().requires_grad_() if t is given[0] else t for t in given]
        launched.clear()
        with ops.simulated():
            alone = ops.moe(*(t.detach() for t in leaves), k=2, batch_invariant=True, **options)
            y = ops.moe(*leaves, k=2, batch_invariant=True, **options)
            y.backward(torch.ones_like(y))
        assert torch.equal(alone, y)
        found.append([y.detach()[:3], leaves[0].grad[:3]])
        used.append(set(launched))
    assert used[0] == used[1]
    assert all(dict(n[1:]).get("bm") in (64, 128) for n in used[0] if n[0] != "choose")
    for few, many in zip(*found, strict=True):
        assert torch.equal(few, many)
    exact = ops.moe(*(t.double() for t in given), k=2, **{n: _as_doubles(v) for n, v in options.items()})
    assert float((found[1][0].double() - exact[:3]).norm()) <= 2e-2 * float(exact[:3].norm())


def _as_doubles(value: Any) -> Any:
    return tuple(t.double() for t in value) if isinstance(value, tuple) else value


def test_batch_invariance_is_refused_where_it_is_not_kept() -> None:
    x, router, gate_up, down = (t.detach() for t in drawn(5, 6, 64, 64))
    ids, weights = torch.zeros(5, 1).long(), torch.ones(5, 1)
    (first, by_inner), (last, by_width) = in_eight_bits(gate_up), in_eight_bits(down)
    scales = {"gate_up_scale": by_inner, "down_scale": by_width}
    wide = [t.double() for t in (x, router, gate_up, down)]
    for refused in (
        lambda: ops.moe(x, router, gate_up, down, k=2, batch_invariant=True),  # of the CPU, and not simulated
        lambda: ops.moe(*wide, k=2, batch_invariant=True),
        lambda: ops.experts(x, ids, weights, gate_up, down, batch_invariant=True),
        lambda: ops.experts(x, ids, weights, first, last, **scales, batch_invariant=True),
    ):
        with pytest.raises(tw.TilewrightError, match=r"(?s)JIT010.*batch_invariant"):
            refused()
    with ops.simulated(), pytest.raises(tw.TilewrightError, match=r"(?s)JIT010.*capacity"):
        ops.moe(x, router, gate_up, down, k=2, capacity=3, batch_invariant=True)


LOADS = {
    "one takes all": lambda random, experts: torch.zeros(experts).index_fill(0, torch.tensor([2]), 1),
    "log-normal": lambda random, experts: torch.empty(experts).log_normal_(0, 0.7, generator=random),
    "Zipf": lambda random, experts: 1 / torch.arange(1, experts + 1) ** 2.0,
}


@pytest.mark.parametrize("load", rest_slow(LOADS, ("Zipf",)))
def test_skewed_loads_agree_with_float64(load: str) -> None:
    """Results and gradients where some experts have no rows and some many; the same expert twice is two rows."""
    random, tokens, experts = torch.Generator().manual_seed(1), 90, 9
    x, _, gate_up, down = drawn(tokens, experts, 64, 64)
    ids = LOADS[load](random, experts).expand(tokens, experts).multinomial(2, replacement=True, generator=random)
    weights = torch.rand(tokens, 2, generator=random).requires_grad_()
    found: list[list[Any]] = []
    for exact in (False, True):
        given = [(t.detach().double() if exact else t.detach()).requires_grad_() for t in (x, gate_up, down, weights)]
        with ops.simulated():
            y = ops.experts(given[0], ids, given[3], *given[1:3])
            y.backward(torch.ones_like(y) * torch.arange(tokens, dtype=y.dtype)[:, None].cos())
        found.append([y.detach(), *(t.grad for t in given)])
    for got, wanted in zip(*found, strict=True):
        assert float((got.double() - wanted).norm()) <= 8e-3 * float(wanted.norm())


def in_eight_bits(x: Any) -> tuple[Any, Any]:
    """Rows divided by their scales, and these."""
    scale = x.float().abs().amax(-1) / 448
    return (x.float() / scale[..., None]).to(torch.float8_e4m3fn), scale


@pytest.mark.parametrize("gathered", [True, False])
@pytest.mark.parametrize(("tokens", "experts", "inner"), [(40, 4, 128), (9, 6, 72), (150, 2, 64)])
def test_experts_of_8_bits(
    tokens: int, experts: int, inner: int, gathered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As float64 gives it for the rounded rows of x, of the weights and of the first product's result."""
    if not gathered:
        monkeypatch.setattr(sys.modules[ops.experts.__module__], "_MOST_GATHERED", 0)
    x, router, gate_up, down = (t.detach() for t in drawn(tokens, experts, 80, inner))
    x[0] = 0
    (first, by_inner), (last, by_width) = in_eight_bits(gate_up), in_eight_bits(down)
    weights, ids = _routed(x, router)
    with ops.simulated():
        y = ops.experts(x, ids, weights, first, last, gate_up_scale=by_inner, down_scale=by_width)
        through = ops.moe(x, router, first, last, k=2, gate_up_scale=by_inner, down_scale=by_width)

    def rounded(rows: Any) -> Any:
        stored, scale = in_eight_bits(rows)
        return torch.where(scale[:, None] > 0, stored.double() * scale.double()[:, None], 0.0)

    exact = torch.zeros(tokens, 80, dtype=torch.float64)
    for e in range(experts):
        token, choice = (ids == e).nonzero(as_tuple=True)
        gate, up = (rounded(x[token]) @ (first[e].double() * by_inner[e].double()[:, None]).T).chunk(2, 1)
        h = rounded((torch.nn.functional.silu(gate) * up).to(BF16))
        out = h @ (last[e].double() * by_width[e].double()[:, None]).T
        exact.index_add_(0, token, out * weights[token, choice, None].double())
    assert (y[0] == 0).all()
    for found in (y, through):
        assert float((found.double() - exact).norm()) <= 1.5e-2 * float(exact.norm())
    whole = ops.experts(x.double(), ids, weights, gate_up.double(), down.double())
    assert float((y.double() - whole).norm()) <= 8e-2 * float(whole.norm())


def _routed(x: Any, router: Any) -> tuple[Any, Any]:
    weights, ids = torch.softmax((x @ router.T).float(), 1).topk(2)
    return weights / weights.sum(1, keepdim=True), ids


def test_what_8_bits_need() -> None:
    x, _, gate_up, down = (t.detach() for t in drawn(6, 3, 64, 64))
    (first, by_inner), (last, by_width) = in_eight_bits(gate_up), in_eight_bits(down)
    ids, weights = torch.zeros(6, 1).long(), torch.ones(6, 1)
    scales = {"gate_up_scale": by_inner, "down_scale": by_width}
    for given in (
        (first, last, {}),
        (first, down, scales),
        (gate_up, down, scales),
        (first, last, {**scales, "down_scale": by_width[:, 1:]}),
        (first, last, {**scales, "gate_up_scale": by_inner.double()}),
    ):
        with pytest.raises(tw.TilewrightError, match="JIT010"):
            ops.experts(x, ids, weights, *given[:2], **given[2])
    with pytest.raises(tw.TilewrightError, match="JIT011"):
        ops.experts(x.requires_grad_(), ids, weights, first, last, **scales)


def test_opcheck() -> None:
    x, router, gate_up, down = drawn(6, 3, 64, 64)
    tests = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(torch.ops.tilewright.route.default, (x, router, 2, True, False), test_utils=tests)
    weights, ids = torch.rand(6, 2, requires_grad=True), torch.randint(0, 3, (6, 2))
    for keep in (True, False):
        given = [t if keep else t.detach() for t in (x, ids, weights, gate_up, down)]
        torch.library.opcheck(torch.ops.tilewright.experts.default, (*given, 64, -1, keep), test_utils=tests)


def test_under_compile() -> None:
    given = drawn(20, 4, 64, 64)
    with ops.simulated():
        eager = with_gradients(given, k=2)
        again = [t.detach().requires_grad_() for t in given]
        layer = torch.compile(lambda *t: ops.moe(*t, k=2), backend="aot_eager", fullgraph=True)
        y = layer(*again)
        y.backward(torch.ones_like(y) * torch.arange(20, dtype=y.dtype)[:, None].cos())
    for a, b in zip(eager, [y.detach(), *(t.grad for t in again)], strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize(
    "refused",
    [
        lambda x, r, g, d: ops.moe(x, r, g, d, k=0),
        lambda x, r, g, d: ops.moe(x, r, g, d, k=4),
        lambda x, r, g, d: ops.moe(x, r, g, d, k=2, scores="relu"),
        lambda x, r, g, d: ops.moe(x, r, g[:, 1:], d, k=2),
        lambda x, r, g, d: ops.moe(x, r, g, d, k=2, capacity=-1),
        lambda x, r, g, d: ops.experts(x, torch.zeros(6, 2), torch.ones(6, 2), g, d),
        lambda x, r, g, d: ops.experts(x, torch.zeros(6, 2).long(), torch.ones(6, 1), g, d),
    ],
)
def test_what_does_not_fit_is_refused(refused: Any) -> None:
    with pytest.raises(tw.TilewrightError, match="JIT010"):
        refused(*drawn(6, 3, 16, 8))
