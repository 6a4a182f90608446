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
from tilewright.ops import patching  # noqa: E402

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


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
def test_a_script_of_a_patched_model_is_refused_until_it_is_undone() -> None:
    model, x = nn.Sequential(nn.RMSNorm(20), nn.Linear(20, 24)), torch.randn(3, 20)
    report = tw.patch(model)
    with pytest.raises(TypeError, match=r"undo\(\)"):
        torch.jit.script(model)
    assert torch.equal(model(x), copy.deepcopy(model)(x))
    report.undo()
    assert "__prepare_scriptable__" not in vars(model[0])
    torch.testing.assert_close(torch.jit.script(model)(x), model(x))


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


class Registered(dict[str, Any]):
    """A registry, which a decorator's function asks, as that of experts in transformers."""


def _by_registry(registry: Registered) -> Any:
    def decorated(forward: Any) -> Any:
        def asked(self: Any, hidden_states: Any, top_k_index: Any, top_k_weights: Any) -> Any:
            return registry.get("own", forward)(self, hidden_states, top_k_index, top_k_weights)

        return asked

    return decorated


class DenseExperts(Experts):
    """Every expert over every row, which a graph can have."""

    @_by_registry(Registered())
    def forward(self, hidden_states: Any, top_k_index: Any, top_k_weights: Any) -> Any:
        weights = torch.stack([((top_k_index == e) * top_k_weights).sum(1) for e in range(4)])
        gate, up = torch.einsum("tn,ekn->etk", hidden_states, self.gate_up_proj).chunk(2, -1)
        found = torch.einsum("etk,enk->etn", self.act_fn(gate) * up, self.down_proj)
        return (found * weights[..., None]).sum(0)


def test_experts_that_go_their_own_way_do_not_break_a_graph() -> None:
    torch.manual_seed(0)
    module = DenseExperts(nn.SiLU())
    given = torch.randn(9, 64), torch.randint(0, 4, (9, 2)), torch.rand(9, 2)
    assert tw.patch(module).replaced
    compiled = torch.compile(module, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(*given), module(*given))


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


class Dropping(MLP):
    def forward(self, x: Any) -> Any:
        return torch.dropout(super().forward(x), 0.5, self.training)


class ChannelsFirst(nn.LayerNorm):
    """As convolutional models have it."""

    def forward(self, x: Any) -> Any:
        return super().forward(x) if x.dim() < 4 else super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class GatedRMSNorm(ModelRMSNorm):
    def forward(self, hidden_states: Any, gate: Any = None) -> Any:
        y = super().forward(hidden_states)
        return y if gate is None else y * gate


class CountingRMSNorm(ModelRMSNorm):
    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, hidden_states: Any) -> Any:
        self.calls += 1
        return super().forward(hidden_states)


class WeightlessRMSNorm(nn.Module):
    weight, variance_epsilon = None, 1e-6


@pytest.mark.parametrize("training", [True, False])
def test_what_differs_in_training_only_is_left_in_evaluation_too(training: bool) -> None:
    module, state = Dropping(nn.SiLU()).train(training), torch.get_rng_state()
    module.act_fn.eval()
    assert "in training" in left(module)
    assert (module.training, module.act_fn.training) == (training, False)
    assert torch.equal(torch.get_rng_state(), state)


def test_modules_that_only_look_like_those_that_are_known() -> None:
    assert "forward of its own" in left(ChannelsFirst(20))
    assert "hidden_states, gate" in left(GatedRMSNorm(20))
    assert "no weight" in left(WeightlessRMSNorm())
    counting = CountingRMSNorm(20)
    assert "buffers" in left(counting)
    assert counting.calls == 0


def test_compiled_parts_of_a_model_are_left() -> None:
    compiled = nn.Sequential(nn.LayerNorm(20), nn.RMSNorm(20))
    compiled[0].compile(backend="eager")
    model = nn.Sequential(torch.compile(MLP(nn.SiLU()), backend="eager"), compiled)
    report = tw.patch(model)
    assert {e.path for e in report.replaced} == {"1.1"}
    assert [e.reason for e in report.left] == ["compiled already: patch it before"] * 2


def test_arguments_by_the_modules_own_names(model: Any) -> None:
    x = torch.randn(2, 20)
    model.linear = nn.Linear(20, 36, dtype=torch.bfloat16)
    tw.patch(model)
    torch.testing.assert_close(model.norm(hidden_states=x), model.norm(x))
    torch.testing.assert_close(model.mlp(x=x), model.mlp(x))
    torch.testing.assert_close(model.last(x=x), model.last(x))
    torch.testing.assert_close(model.bare(input=x), model.bare(x))
    assert model.linear(input=x.bfloat16()).shape == (2, 36)


def test_undo_leaves_what_others_did_since(model: Any) -> None:
    report = tw.patch(model)
    del model.norm.forward
    model.mlp.forward = own = lambda x: x
    report.undo()
    assert model.mlp.forward is own
    assert [n for n, m in model.named_modules() if "forward" in vars(m)] == ["mlp"]


class EpsRMSNorm(ModelRMSNorm):
    """Its weight counts from ``offset``: 1 in Gemma."""

    def __init__(self, width: int, offset: float = 0.0) -> None:
        super().__init__(width, offset)
        self.eps = self.variance_epsilon
        del self.variance_epsilon

    def forward(self, x: Any) -> Any:
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        return (wide * (self.offset + self.weight.float())).type_as(x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("offset", [0.0, 1.0])
def test_norms_whose_weights_count_from_one(offset: float, dtype: Any) -> None:
    norm, x = EpsRMSNorm(20, offset).to(dtype), torch.randn(3, 20, dtype=dtype)
    expected = norm(x)
    expected.float().square().sum().backward()
    gradient, norm.weight.grad = norm.weight.grad, None
    assert [e.operator for e in tw.patch(norm).entries] == ["ops.rms_norm"]
    y = norm(x)
    y.float().square().sum().backward()
    torch.testing.assert_close(y, expected)
    torch.testing.assert_close(norm.weight.grad, gradient, rtol=2e-2, atol=1e-2)
    assert "only a check" in tw.patch(EpsRMSNorm(20), check=False).entries[0].reason
    assert "differ" in left(EpsRMSNorm(20, offset=2.0))


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize(
    ("forward", "without", "with_"),
    [("_rms_forward", False, True), ("_layer_forward", True, True), ("_swiglu_forward", False, False)],
)
def test_under_compile_an_operator_is_called_where_it_is_faster(
    forward: str, without: bool, with_: bool, gradients: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a tensor that says it is of a GPU; of one of the CPU never."""

    class OfGpu(torch.Tensor):
        is_cuda = True

    class Own(nn.Module):
        eps, bias = 1e-6, None

        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4), requires_grad=gradients)
            self.gate_proj = self.up_proj = self.down_proj = nn.Identity()
            self.act_fn = nn.SiLU()

        def forward(self, x: Any) -> str:
            return "own"

    for name in ("rms_norm", "layer_norm", "swiglu"):
        monkeypatch.setattr(f"tilewright.ops.patching.ops.{name}", lambda *_, **__: "operator")
    run = getattr(patching, forward)
    assert run(Own(), torch.ones(4)) == "operator"
    monkeypatch.setattr("torch.compiler.is_compiling", lambda: True)
    assert run(Own(), torch.ones(4)) == "own"
    wins = with_ if gradients else without
    assert run(Own(), torch.ones(4).as_subclass(OfGpu)) == ("operator" if wins else "own")
    with torch.no_grad():
        assert run(Own(), torch.ones(4).as_subclass(OfGpu)) == ("operator" if without else "own")


def test_the_report_lists_what_is_its_own_under_compile(model: Any) -> None:
    notes = {e.path: e.reason for e in tw.patch(model).replaced}
    assert notes["bare"] == notes["gelu"] == ""
    assert notes["mlp"] == "under torch.compile its own"
    assert notes["last"] == notes["norm"] == "under torch.compile without gradients its own"


def test_losses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their options, targets that are probabilities, and what is left."""
    x, target, odds = torch.randn(6, 9, requires_grad=True), torch.randint(0, 9, (6,)), torch.rand(6, 9)
    target[2] = 3
    for options in ({"ignore_index": 3}, {"reduction": "sum"}, {"label_smoothing": 0.1}, {"reduction": "none"}):
        loss = nn.CrossEntropyLoss(**options)
        expected = loss(x, target), loss(x, target if "ignore_index" in options else odds)
        report = tw.patch(loss)
        assert [str(e) for e in report.entries] == ["(the model) (CrossEntropyLoss): ops.cross_entropy"]
        second = loss(input=x, target=target if "ignore_index" in options else odds)
        for got, wanted in zip((loss(x, target), second), expected, strict=True):
            torch.testing.assert_close(got, wanted)
    called: list[Any] = []
    monkeypatch.setattr("tilewright.ops.patching.ops.cross_entropy", lambda x, *_, **__: called.append(x))
    loss(x, target)
    assert called == [x]

    class Own(nn.CrossEntropyLoss):
        pass

    assert "subclass" in left(Own())
    assert "buffers" in left(nn.CrossEntropyLoss(weight=torch.rand(9)))


def test_activations_with_hooks_and_others_than_were_tried() -> None:
    """A gated unit does not call its activation: its hooks must run all the same, and another one must be taken."""
    x, seen = torch.randn(3, 20), list[str]()
    for act in (nn.SiLU(), nn.GELU()):
        hooked = MLP(act)
        handle = act.register_forward_hook(lambda *_: seen.append("called"))
        assert "hooks" in left(hooked)
        handle.remove()
        report = tw.patch(hooked)
        act.register_forward_pre_hook(lambda *_: seen.append("called"))
        seen.clear()
        hooked(x)
        assert seen == ["called"]
        for other in (nn.ReLU(), nn.SiLU(), nn.GELU(), nn.GELU(approximate="tanh")):
            hooked.act_fn = other
            got = hooked(x)
            torch.testing.assert_close(got, MLP.forward(hooked, x), rtol=1e-5, atol=1e-6)
        report.undo()


def test_the_activation_of_experts_is_looked_at() -> None:
    torch.manual_seed(0)
    module = Experts(nn.SiLU()).bfloat16()
    given = torch.randn(9, 64).bfloat16(), torch.randint(0, 4, (9, 2)), torch.rand(9, 2).bfloat16()
    assert tw.patch(module).replaced
    seen: list[str] = []
    module.act_fn.register_forward_hook(lambda *_: seen.append("called"))
    with ops.simulated():
        module(*given)
        assert seen
        module.act_fn = nn.ReLU()
        torch.testing.assert_close(module(*given), Experts.forward(module, *given), rtol=0, atol=0)


def test_norms_of_other_dtypes_than_their_inputs() -> None:
    """Weights kept in float32 promote the results of some norms, and not of others."""
    x = torch.randn(3, 20)
    for norm in (ModelRMSNorm(20), EpsRMSNorm(20), EpsRMSNorm(20, 1.0), nn.RMSNorm(20)):
        for weights, given in ((torch.float32, torch.bfloat16), (torch.bfloat16, torch.float32)):
            norm.to(weights)
            expected = norm(x.to(given))
            report = tw.patch(norm)
            assert report.replaced
            got = norm(x.to(given))
            assert got.dtype == expected.dtype
            torch.testing.assert_close(got, expected, rtol=2e-2, atol=2e-2)
            report.undo()


def test_projections_of_zero_and_weights_of_one_tell_nothing() -> None:
    """As in a new model: what is tried has other numbers, and keeps its own."""

    class Turned(MLP):
        def forward(self, x: Any) -> Any:
            return self.down_proj(self.gate_proj(x) * self.act_fn(self.up_proj(x)))

    class SquaredRMSNorm(ModelRMSNorm):
        def forward(self, hidden_states: Any) -> Any:
            return super().forward(hidden_states) * self.weight

    turned, squared = Turned(nn.SiLU()), SquaredRMSNorm(20)
    for parameter, value in ((turned.down_proj.weight, 0.0), (turned.down_proj.bias, 0.0), (squared.weight, 1.0)):
        nn.init.constant_(parameter, value)
    assert "differ" in left(turned)
    assert "differ" in left(squared)
    assert not turned.down_proj.weight.any()
    assert bool((squared.weight == 1).all())


def test_results_of_another_dtype_are_left() -> None:
    class WideRMSNorm(ModelRMSNorm):
        def forward(self, hidden_states: Any) -> Any:
            return super().forward(hidden_states).double()

    assert "torch.float32, not torch.float64" in left(WideRMSNorm(20))
