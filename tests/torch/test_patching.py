"""``tw.patch``: which modules are replaced, what is left and why, and that nothing else changes."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

import tilewright as tw
from support.pytorch import torch_or_skip

torch = torch_or_skip()

from tilewright import ops  # noqa: E402

nn = torch.nn


class ModelRMSNorm(nn.Module):
    """As models of transformers have it."""

    def __init__(self, width: int, offset: float = 0.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width))
        self.variance_epsilon = 1e-5
        self.offset = offset

    def forward(self, hidden_states: Any) -> Any:
        x = hidden_states.float()
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
        return (self.weight + self.offset) * x.to(hidden_states.dtype)


class MLP(nn.Module):
    def __init__(self, act: Any) -> None:
        super().__init__()
        self.gate_proj, self.up_proj = nn.Linear(20, 36), nn.Linear(20, 36)
        self.down_proj, self.act_fn = nn.Linear(36, 20), act

    def forward(self, x: Any) -> Any:
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = ModelRMSNorm(20)
        self.mlp = MLP(nn.SiLU())
        self.gelu = MLP(nn.GELU(approximate="tanh"))
        self.last = nn.RMSNorm(20)
        self.bare = nn.LayerNorm(20, elementwise_affine=False)

    def forward(self, x: Any) -> Any:
        return self.bare(self.last(x + self.gelu(self.mlp(self.norm(x)))))


@pytest.fixture
def model() -> Any:
    torch.manual_seed(0)
    return Model()


def test_what_is_replaced_computes_the_same(model: Any) -> None:
    x = torch.randn(2, 3, 20)
    expected = model(x)
    expected.sum().backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    report = tw.patch(model)
    assert {e.path: e.operator for e in report.replaced} == {
        "norm": "ops.rms_norm",
        "mlp": "ops.swiglu",
        "gelu": "ops.geglu",
        "last": "ops.rms_norm",
        "bare": "ops.layer_norm",
    }
    got = model(x)
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)
    got.sum().backward()
    for name, p in model.named_parameters():
        torch.testing.assert_close(p.grad, gradients[name], rtol=1e-4, atol=1e-5)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), expected, rtol=1e-5, atol=1e-5)


def test_other_models_and_the_class_stay_as_they_are(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    other = Model()
    before = (ModelRMSNorm.forward, nn.RMSNorm.forward)
    report = tw.patch(model)
    assert (ModelRMSNorm.forward, nn.RMSNorm.forward) == before
    assert not any("forward" in vars(m) for m in other.modules())
    report.undo()
    report.undo()
    assert not any("forward" in vars(m) for m in model.modules())
    called: list[Any] = []
    monkeypatch.setattr("tilewright.ops.patching.ops.rms_norm", lambda x, *_, **__: called.append(x))
    model(torch.randn(2, 20))
    assert not called


def test_the_operators_are_called(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    tw.patch(model)
    calls: list[str] = []
    for name in ("rms_norm", "layer_norm", "swiglu", "geglu"):
        original = getattr(ops, name)

        def counted(*args: Any, _name: str = name, _original: Any = original, **kwargs: Any) -> Any:
            calls.append(_name)
            return _original(*args, **kwargs)

        monkeypatch.setattr(f"tilewright.ops.patching.ops.{name}", counted)
    model(torch.randn(2, 20))
    assert calls == ["rms_norm", "swiglu", "geglu", "rms_norm", "layer_norm"]


def left(module: Any) -> str:
    (entry,) = [e for e in tw.patch(nn.ModuleList([module])).entries if e.path == "0"]
    assert not entry.operator
    assert "forward" not in vars(module) or entry.reason == "its forward is bound already"
    return entry.reason


def test_why_a_module_is_left() -> None:
    assert "differ" in left(ModelRMSNorm(20, offset=1.0))
    assert "2 axes" in left(nn.LayerNorm((3, 20)))
    assert "Tanh" in left(MLP(nn.Tanh()))
    assert "float64" in left(nn.LayerNorm(20).double())
    assert "meta" in left(nn.RMSNorm(20, device="meta"))
    assert "float32" in left(nn.Linear(20, 36))
    assert "16 bytes" in left(nn.Linear(16, 32, dtype=torch.bfloat16))
    assert "MultiheadAttention" in left(nn.MultiheadAttention(16, 2))
    hooked = nn.RMSNorm(20)
    hooked.register_forward_hook(lambda *_: None)
    assert "hooks" in left(hooked)
    bound = nn.RMSNorm(20)
    tw.patch(bound)
    assert "bound" in left(bound)


def test_an_unaligned_linear_layer() -> None:
    layer = nn.Linear(20, 36, dtype=torch.bfloat16)
    x = torch.randn(4, 20, dtype=torch.bfloat16)
    expected = layer(x)
    report = tw.patch(layer)
    assert [e.operator for e in report.entries] == ["ops.linear"]
    torch.testing.assert_close(layer(x), expected)


def test_an_epsilon_of_none_is_pytorchs() -> None:
    norm = nn.RMSNorm(20, dtype=torch.bfloat16)
    x = torch.full((2, 20), 1e-2, dtype=torch.bfloat16)
    expected = norm(x)
    assert tw.patch(norm).replaced
    torch.testing.assert_close(norm(x), expected)


def test_a_compiled_model_is_left(model: Any) -> None:
    report = tw.patch(torch.compile(model, backend="eager"))
    assert "before" in report.entries[0].reason
    assert "0 of 1 modules" in str(report)
    with pytest.raises(TypeError):
        tw.patch("model")


def test_a_patched_model_is_copied_and_pickled(model: Any) -> None:
    """Copies compute by their own parameters, and the report takes nothing away from them."""
    x = torch.randn(3, 20)
    report = tw.patch(model)
    expected = model(x)
    copies = copy.deepcopy(model), pickle.loads(pickle.dumps(model))
    with torch.no_grad():
        model.norm.weight.mul_(2)
    for each in copies:
        torch.testing.assert_close(each(x), expected)
        assert not torch.allclose(model(x), expected)
        with torch.no_grad():
            each.norm.weight.mul_(2)
        torch.testing.assert_close(each(x), model(x))
    report.undo()
    assert "forward" not in vars(model.norm)
    assert "forward" in vars(copies[0].norm)
    compiled = torch.compile(copies[0], backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), model(x))


class GELUTanh(nn.Module):
    """Of transformers."""

    def forward(self, x: Any) -> Any:
        return torch.nn.functional.gelu(x, approximate="tanh")


class Experts(nn.Module):
    """As models of transformers have them from 5.0: the weights of all experts in two tensors."""

    def __init__(self, act: Any, *, interleaved: bool = False, has_bias: bool = False) -> None:
        super().__init__()
        self.gate_up_proj = nn.Parameter(torch.randn(4, 80, 64) / 8)
        self.down_proj = nn.Parameter(torch.randn(4, 64, 40) / 6)
        self.act_fn, self.has_bias, self.interleaved = act, has_bias, interleaved

    def forward(self, hidden_states: Any, top_k_index: Any, top_k_weights: Any) -> Any:
        y = torch.zeros_like(hidden_states)
        for expert in range(4):
            token, choice = torch.where(top_k_index == expert)
            both = hidden_states[token] @ self.gate_up_proj[expert].t()
            gate, up = (both[:, ::2], both[:, 1::2]) if self.interleaved else both.chunk(2, -1)
            found = (self.act_fn(gate) * up) @ self.down_proj[expert].t()
            y = y.index_add(0, token, found * top_k_weights[token, choice, None])
        return y


def test_experts_by_kernels_where_these_run() -> None:
    torch.manual_seed(0)
    module = Experts(nn.SiLU()).bfloat16()
    x, ids = torch.randn(9, 64).bfloat16(), torch.randint(0, 4, (9, 2))
    weights = torch.rand(9, 2).bfloat16()
    expected = module(x, ids, weights)
    report = tw.patch(module)
    assert [e.operator for e in report.entries] == ["ops.experts"]
    torch.testing.assert_close(module(x, ids, weights), expected, rtol=0, atol=0)  # its own way, on the CPU
    with ops.simulated():
        kernels = module(x, ids, weights)
        assert not torch.equal(kernels, expected)
        torch.testing.assert_close(kernels, expected, rtol=5e-2, atol=5e-2)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"has_bias": True}, "biases"),
        ({"act": nn.ReLU()}, "an activation that is not SiLU"),
        ({"interleaved": True}, "results differ"),
    ],
)
def test_experts_of_another_kind_are_left(options: dict[str, Any], reason: str) -> None:
    (entry,) = tw.patch(Experts(**{"act": nn.SiLU()} | options)).entries
    assert not entry.operator
    assert reason in entry.reason


def test_an_activation_of_transformers_is_known_by_its_name() -> None:
    report = tw.patch(MLP(GELUTanh()))
    assert [e.operator for e in report.replaced] == ["ops.geglu"]
