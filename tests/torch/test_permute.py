"""``ops.permute`` and ``ops.unpermute`` beside a dictionary's plan and float64, by kernels, and as operators."""

from __future__ import annotations

from typing import Any

import pytest

import tilewright as tw
from support.pytorch import torch_or_skip

torch = torch_or_skip()

from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

from tilewright import ops  # noqa: E402
from tilewright.ops.functional import permutations  # noqa: E402

pytestmark = pytest.mark.sample(2)

CASES = {
    "aligned": (37, 3, 5, 8, None),
    "compact": (37, 3, 5, 1, None),
    "with a capacity": (37, 3, 5, 4, 6),
    "one choice": (20, 1, 4, 2, None),
    "a capacity of none": (9, 2, 3, 4, 0),
    "no tokens": (0, 2, 3, 4, None),
}


def drawn(name: str, dtype: Any = None, width: int = 16) -> tuple[Any, ...]:
    """Some ids are no experts."""
    tokens, k, experts, align, capacity = CASES[name]
    random = torch.Generator().manual_seed(tokens + k)
    ids = torch.randint(-2, experts + 2, (tokens, k), generator=random)
    x = torch.randn(tokens, width, generator=random, dtype=torch.float64)
    weights = torch.rand(tokens, k, generator=random, dtype=torch.float64)
    dtype = dtype or torch.float64
    return x.to(dtype), ids, weights.to(dtype), experts, {"align": align, "capacity": capacity}


def expected(ids: Any, experts: int, align: int, capacity: int | None) -> dict[int, tuple[int, int]]:
    """The token and the choice of each packed row that has one."""
    found: dict[int, tuple[int, int]] = {}
    begin = 0
    for expert in range(experts):
        own = [(t, j) for t, row in enumerate(ids.tolist()) for j, e in enumerate(row) if e == expert][:capacity]
        found |= {begin + n: pair for n, pair in enumerate(own)}
        begin += -(-len(own) // align) * align
    return found


@pytest.mark.parametrize("name", CASES)
def test_rows_and_sums(name: str) -> None:
    x, ids, weights, experts, options = drawn(name)
    packed, plan = ops.permute(x, ids, experts, **options)
    held = expected(ids, experts, **options)
    assert packed.shape == (plan.capacity, 16)
    for row in range(plan.capacity):
        wanted = x[held[row][0]] if row in held else torch.zeros(16, dtype=x.dtype)
        assert torch.equal(packed[row], wanted)
    y = torch.randn(plan.capacity, 16, dtype=torch.float64)
    wanted = torch.zeros_like(x)
    plain = torch.zeros_like(x)
    for row, (token, choice) in held.items():
        wanted[token] += y[row] * weights[token, choice]
        plain[token] += y[row]
    assert torch.allclose(ops.unpermute(y, plan, weights), wanted)
    assert torch.allclose(ops.unpermute(y, plan), plain)
    most = ids.numel() if options["capacity"] is None else options["capacity"]
    assert plan.kept.tolist() == [min(int((ids == e).sum()), most) for e in range(experts)]


@pytest.mark.parametrize("name", [name for name in CASES if name != "no tokens"])
def test_gradients(name: str) -> None:
    """First and second ones, of rows and weights."""
    x, ids, weights, experts, options = drawn(name, width=3)

    def layer(x: Any, weights: Any) -> Any:
        packed, plan = ops.permute(x, ids, experts, **options)
        return ops.unpermute(packed * packed, plan, weights), ops.unpermute(packed, plan)

    inputs = x.requires_grad_(), weights.requires_grad_()
    assert torch.autograd.gradcheck(layer, inputs)
    assert torch.autograd.gradgradcheck(layer, inputs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_kernels_compute_what_pytorch_does(dtype: Any) -> None:
    x, ids, weights, experts, options = drawn("with a capacity", dtype)
    weights = weights.float()

    def run() -> list[Any]:
        inputs = [t.clone().requires_grad_() for t in (x, weights)]
        packed, plan = ops.permute(inputs[0], ids, experts, **options)
        y = ops.unpermute(packed * 2, plan, inputs[1])
        return [packed, y, plan.slots, plan.rows, plan.pairs, *torch.autograd.grad(y.float().square().sum(), inputs)]

    by_pytorch = run()
    with ops.simulated():
        by_kernels = run()
    for a, b in zip(by_kernels, by_pytorch, strict=True):
        assert torch.allclose(a.double(), b.double(), rtol=2e-2 if dtype == torch.bfloat16 else 1e-5, atol=1e-5)


def test_leading_axes_and_a_map_of_experts() -> None:
    x, ids, weights, _, options = drawn("aligned")
    here = torch.tensor([-1, 1, 0, -1, -1])
    packed, plan = ops.permute(x[:36].view(4, 9, 16), ids[:36].view(4, 9, 3), 2, expert_map=here, **options)
    known = (ids[:36] >= 0) & (ids[:36] < 5)
    local = torch.where(known, here[ids[:36].clamp(0, 4)], -1)
    again, same = ops.permute(x[:36], local, 2, **options)
    assert torch.equal(packed, again)
    assert torch.equal(plan.slots, same.slots)
    flat = ops.unpermute(packed, plan, weights[:36].view(4, 9, 3))
    assert torch.equal(flat, ops.unpermute(packed, plan, weights[:36]))


@pytest.mark.parametrize("name", ["aligned", "with a capacity"])
def test_opcheck(name: str) -> None:
    x, ids, weights, experts, options = drawn(name, torch.float32)
    capacity = -1 if options["capacity"] is None else options["capacity"]
    torch.library.opcheck(torch.ops.tilewright.pack_plan.default, (ids, experts, options["align"], capacity))
    packed, plan = ops.permute(x, ids, experts, **options)
    arrays = (plan.slots, plan.rows, plan.pairs)
    torch.library.opcheck(torch.ops.tilewright.pack_rows.default, (x.requires_grad_(), *arrays))
    y = packed.detach().requires_grad_()
    for given in (None, weights.requires_grad_()):
        torch.library.opcheck(torch.ops.tilewright.unpack_rows.default, (y, *arrays, given))


def test_one_graph() -> None:
    x, ids, weights, experts, options = drawn("aligned", torch.float32)

    def layer(x: Any, weights: Any) -> Any:
        packed, plan = ops.permute(x, ids, experts, **options)
        return ops.unpermute(torch.tanh(packed), plan, weights)

    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    inputs = [t.clone().requires_grad_() for t in (x, weights)]
    results = [run(*inputs) for run in (layer, compiled)]
    assert torch.equal(*results)
    grads = [torch.autograd.grad(y.sum(), inputs) for y in results]
    assert all(torch.allclose(a, b) for a, b in zip(*grads, strict=True))


X, IDS = torch.zeros(4, 8), torch.zeros(4, 2, dtype=torch.int32)
MISFITS = {
    "ids of floats": (X, IDS.float(), 3, {}),
    "ids of other tokens": (X, IDS[:3], 3, {}),
    "ids of one axis": (X, IDS[:, 0], 3, {}),
    "no experts": (X, IDS, 0, {}),
    "too many experts": (X, IDS, 1025, {}),
    "a map of floats": (X, IDS, 3, {"expert_map": torch.zeros(3)}),
    "an empty map": (X, IDS, 3, {"expert_map": IDS[:0, 0]}),
}


@pytest.mark.parametrize("name", MISFITS)
def test_arguments_that_do_not_fit(name: str) -> None:
    x, ids, experts, options = MISFITS[name]
    with pytest.raises(tw.TilewrightError) as caught:
        ops.permute(x, ids, experts, **options)
    assert caught.value.code == "JIT010"
    ops.permute(X, IDS, 1024)


def test_results_that_do_not_fit() -> None:
    packed, plan = ops.permute(X, IDS, 3)
    for y, weights in ((packed[:-1], None), (packed, IDS), (packed, torch.zeros(4, 3)), (packed, torch.zeros(3, 2))):
        with pytest.raises(tw.TilewrightError) as caught:
            ops.unpermute(y, plan, weights)
        assert caught.value.code == "JIT010"
    for options in ({"align": 0}, {"capacity": -1}):
        with pytest.raises(tw.TilewrightError) as caught:
            ops.permute(X, IDS, 3, **options)
        assert caught.value.code == "JIT012"


def test_plain_tensors_pass_the_dispatcher_by(monkeypatch: pytest.MonkeyPatch) -> None:
    """Modes, autocast and tracers see the operators; autograd alone needs no dispatcher."""
    x, ids, _, experts, options = drawn("aligned")
    leaf, asked, overload = x.clone().requires_grad_(), list[str](), permutations._packs.overload

    def counted(*values: Any) -> Any:
        asked.append("pack_rows")
        return overload(*values)

    monkeypatch.setattr(permutations._packs, "overload", counted)

    def run() -> Any:
        return ops.permute(leaf, ids, experts, **options)[0]

    packed = run()
    (gradient,) = torch.autograd.grad(packed.sum(), leaf)
    assert not asked
    with torch.no_grad():
        assert not run().requires_grad
    assert not asked
    with torch.autocast("cpu"):
        assert torch.equal(run(), packed)
    with torch.device("cpu"):  # a mode of functions
        assert torch.equal(torch.autograd.grad(run().sum(), leaf)[0], gradient)
    make_fx(run)()
    assert len(asked) == 3
