"""``inductor.options``: which products of a compiled graph, and what follows them, become one operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from support.pytorch import torch_or_skip

torch = torch_or_skip()

from tilewright.ops import inductor  # noqa: E402

F = torch.nn.functional


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()


class Given:
    """Two batches of 6 rows, a weight, a bias and a residual."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        sizes = (2, 6, 64), (40, 64), (40,), (2, 6, 40)
        self.x, self.w, self.b, self.r = (torch.randn(s).bfloat16() for s in sizes)


def replaced(f: Callable[..., Any], *given: Any, pays: Any = lambda _: True, **options: Any) -> list[Any]:
    """What the pass replaced in a graph without gradients, whose results are PyTorch's."""
    chosen = inductor.options(pays)
    with torch.no_grad():
        got, expected = torch.compile(f, options=chosen, fullgraph=True, **options)(*given), f(*given)
    torch.testing.assert_close(got, expected, rtol=2e-2, atol=2e-2)
    return [(e.rows, e.bias, e.activation, e.residual) for e in chosen["post_grad_custom_pre_pass"].replaced]


FOUND: dict[str, tuple[Callable[[Given], Any], tuple[int, bool, str, bool]]] = {
    "gelu": (lambda g: F.gelu(F.linear(g.x, g.w, g.b)) + g.r, (12, True, "gelu", True)),
    "tanh": (lambda g: g.r + F.gelu(F.linear(g.x, g.w, g.b), approximate="tanh"), (12, True, "gelu_tanh", True)),
    "silu": (lambda g: F.silu(F.linear(g.x, g.w)), (12, False, "silu", False)),
    "relu of two axes": (lambda g: F.relu(F.linear(g.x[0], g.w, g.b)), (6, True, "relu", False)),
    "residual": (lambda g: g.r + F.linear(g.x, g.w), (12, False, "none", True)),
}


@pytest.mark.parametrize("name", FOUND)
def test_what_follows_a_product_is_one_operator_with_it(name: str) -> None:
    f, expected = FOUND[name]
    given = Given()
    assert replaced(lambda: f(given)) == [expected]


LEFT: dict[str, Callable[[Given], Any]] = {
    "nothing follows": lambda g: F.linear(g.x, g.w, g.b),
    "the product is read twice": lambda g: (lambda z: (F.gelu(z), z))(F.linear(g.x, g.w, g.b)),
    "another activation": lambda g: F.softplus(F.linear(g.x, g.w, g.b)),
    "another number": lambda g: (lambda z: z * torch.sigmoid(1.5 * z))(F.linear(g.x, g.w, g.b)),
    "a residual of another shape": lambda g: F.linear(g.x, g.w, g.b) + g.r[:1],
    "a scaled residual": lambda g: torch.add(F.linear(g.x, g.w), g.r, alpha=2),
    "float32": lambda g: F.relu(F.linear(g.x.float(), g.w.float())),
    "rows divided behind it": lambda g: F.relu(F.linear(g.x[0], g.w)).view(12, 20),
    "rows divided before it": lambda g: F.relu(F.linear(g.x, g.w, g.b).view(-1, 20)),
    "a residual of divided rows": lambda g: F.linear(g.x, g.w).view(24, 20) + g.r.view(24, 20),
    "one number as bias": lambda g: F.relu(torch.addmm(g.b[:1], g.x[0], g.w.t())),
}


@pytest.mark.parametrize("name", LEFT)
def test_what_is_left_to_inductor(name: str) -> None:
    given = Given()
    assert replaced(lambda: LEFT[name](given)) == []


def test_what_is_read_twice_behind_its_activation() -> None:
    given = Given()

    def f() -> Any:
        y = F.relu(F.linear(given.x, given.w))
        return y + given.r, y

    assert replaced(f) == [(12, False, "relu", False)]


def test_another_number_of_rows() -> None:
    given = Given()

    def f(x: Any, r: Any) -> Any:
        return F.silu(F.linear(x, given.w, given.b)) + r

    for tokens in (6, 9):
        x, r = torch.randn(2, tokens, 64).bfloat16(), torch.randn(2, tokens, 40).bfloat16()
        torch._dynamo.mark_dynamic(x, 1)
        torch._dynamo.mark_dynamic(r, 1)
        assert replaced(f, x, r) == [(2 * tokens, True, "silu", True)]


def test_where_it_does_not_pay_nothing_is_replaced() -> None:
    given = Given()
    asked: list[Any] = []
    assert replaced(lambda: F.gelu(F.linear(given.x, given.w)), pays=asked.append) == []
    assert [(e.columns, e.inner, str(e.device)) for e in asked] == [(40, 64, "cpu")]
    torch._dynamo.reset()
    assert replaced(lambda: F.gelu(F.linear(given.x, given.w)), pays=inductor.pays) == []  # on the CPU


def test_other_compiled_functions_are_not_touched() -> None:
    given = Given()
    chosen = inductor.options(lambda _: True)
    with torch.no_grad():
        torch.compile(lambda: F.gelu(F.linear(given.x, given.w)))()
    assert not chosen["post_grad_custom_pre_pass"].replaced
    assert torch._inductor.config.post_grad_custom_pre_pass is None


def test_in_training_the_product_stays() -> None:
    given, chosen = Given(), inductor.options(lambda _: True)
    w = given.w.clone().requires_grad_()
    torch.compile(lambda: F.gelu(F.linear(given.x, w)) + given.r, options=chosen)().sum().backward()
    assert not chosen["post_grad_custom_pre_pass"].replaced
    assert w.grad is not None


TRAINED: dict[str, tuple[Callable[..., Any], list[tuple[int, str, bool, bool]]]] = {
    "residual": (lambda x, w, b, r: F.linear(x, w, b) + r, [(12, "none", True, True)]),
    "relu": (lambda x, w, b, r: F.relu(F.linear(x, w, b)), [(12, "relu", False, True)]),
    "relu, residual": (lambda x, w, b, r: F.relu(F.linear(x, w)) + r, [(12, "relu", False, True)]),
    "silu": (lambda x, w, b, r: F.silu(F.linear(x, w, b)), []),
    "two uses of a weight": (  # whose gradients are added, as those of x are
        lambda x, w, b, r: F.linear(F.linear(x, w, b) + r, w.t()) + x,
        [(12, "none", True, True), (12, "none", True, False), (40, "none", True, False), (12, "none", True, False)],
    ),
}


@pytest.mark.parametrize("name", TRAINED)
def test_in_training_what_no_backward_reads_is_replaced(name: str) -> None:
    """In the graphs of forward and backward; gradients are those of eager PyTorch."""
    f, expected = TRAINED[name]
    given, chosen = Given(), inductor.options(lambda _: True)
    leaves = [t.clone().requires_grad_() for t in (given.x, given.w, given.b, given.r)]
    results = [run(*leaves) for run in (torch.compile(f, options=chosen, fullgraph=True), f)]
    got, wanted = (torch.autograd.grad(y.float().square().sum(), leaves, allow_unused=True) for y in results)
    torch.testing.assert_close(results[0], results[1], rtol=2e-2, atol=2e-2)
    for a, b in zip(got, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=3e-2, atol=2e-1)
    replaced = chosen["post_grad_custom_pre_pass"].replaced
    assert [(e.rows, e.activation, e.residual, e.row_major) for e in replaced] == expected


def test_products_of_another_layout_were_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    sizes = torch.device("cuda"), torch.bfloat16, 64, 64, 64
    assert inductor.pays(inductor.Epilogue(*sizes, True, "gelu", True, row_major=True))
    assert not inductor.pays(inductor.Epilogue(*sizes, True, "gelu", True, row_major=False))


def test_cached_graphs_go_by_the_source_unless_others_choose(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, chosen = inductor.options(), inductor.options(lambda _: True)
    uuid = plain["post_grad_custom_pre_pass"].uuid()
    assert uuid == inductor.options()["post_grad_custom_pre_pass"].uuid()
    assert chosen["post_grad_custom_pre_pass"].uuid() is None
    monkeypatch.setattr(inductor.linears, "__file__", inductor.operators.__code__.co_filename)
    assert plain["post_grad_custom_pre_pass"].uuid() != uuid
    monkeypatch.undo()
    other = next(op for op in inductor.operators() if op.name == "tilewright::linear_kept")
    monkeypatch.setattr(inductor, "_LINEAR", other)
    assert plain["post_grad_custom_pre_pass"].uuid() != uuid
