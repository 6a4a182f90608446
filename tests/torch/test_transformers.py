"""Models of transformers, of random weights and small shapes, patched; and its registry, played where it is missing."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import tilewright as tw
from support.pytorch import torch_or_skip

torch = torch_or_skip()


class Registry(dict[str, Any]):
    def register(self, name: str, value: Any) -> None:
        self[name] = value


class Played(torch.nn.Module):
    """As much of a model of transformers as ``patch`` asks."""

    def __init__(self, implementation: str = "sdpa", **config: Any) -> None:
        super().__init__()
        self.config = SimpleNamespace(_attn_implementation=implementation, **config)

    def set_attn_implementation(self, name: str) -> None:
        self.config._attn_implementation = name


@pytest.fixture
def functions(monkeypatch: pytest.MonkeyPatch) -> Registry:
    found = Registry(sdpa=lambda *args, **given: "sdpa")
    names = {
        "modeling_utils": ("ALL_ATTENTION_FUNCTIONS", found),
        "masking_utils": ("ALL_MASK_ATTENTION_FUNCTIONS", Registry(sdpa="mask")),
    }
    monkeypatch.setitem(sys.modules, "transformers", ModuleType("transformers"))
    for module, (name, registry) in names.items():
        made = ModuleType(module)
        setattr(made, name, registry)
        monkeypatch.setitem(sys.modules, f"transformers.{module}", made)
    return found


def test_the_registry_is_asked_and_given_back(functions: Registry) -> None:
    model, other = Played(), Played()
    report = tw.patch(model)
    assert [e.operator for e in report.entries] == ["ops.attention"]
    assert (model.config._attn_implementation, other.config._attn_implementation) == ("tilewright", "sdpa")
    assert set(functions) == {"sdpa", "tilewright"}
    report.undo()
    assert model.config._attn_implementation == "sdpa"
    (left,) = tw.patch(Played("eager")).entries
    assert "eager" in left.reason


def test_the_report_lists_what_kernels_do_not_serve(functions: Registry) -> None:
    (narrow,) = tw.patch(Played(head_dim=16)).entries
    assert (narrow.operator, narrow.reason) == ("", "heads of 16 elements: kernels have 64, 128, 256")
    (narrow,) = tw.patch(Played(hidden_size=64, num_attention_heads=2)).entries
    assert "32 elements" in narrow.reason
    (windowed,) = tw.patch(Played(head_dim=128, sliding_window=4096)).entries
    assert windowed.operator == "ops.attention"
    assert str(windowed).endswith("ops.attention, of more than the 4096 tokens of a window by sdpa")
    for config in ({"use_sliding_window": False}, {"layer_types": ["full_attention"] * 3}):
        (full,) = tw.patch(Played(sliding_window=4096, **config)).entries
        assert not full.reason


def test_what_the_kernel_does_not_have_goes_to_sdpa(functions: Registry) -> None:
    tw.patch(Played())
    attend, module = functions["tilewright"], SimpleNamespace(is_causal=True)
    q = torch.randn(1, 2, 6, 64, dtype=torch.bfloat16)
    got, weights = attend(module, q, q, q, None, dropout=0.0, scaling=0.2, use_cache=True)
    expected = torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True, scale=0.2).transpose(1, 2)
    torch.testing.assert_close(got, expected)
    assert weights is None
    wide, _ = attend(module, q, q, q, None, scaling=0.2, sliding_window=6)  # which hides nothing
    torch.testing.assert_close(wide, expected)
    narrow = q[..., :32]
    for arguments, given in (
        ((q, q, q, torch.ones(6, 6)), {}),
        ((q[:, :, :1], q, q, None), {}),
        ((narrow, narrow, narrow, None), {}),
        ((q, q, q, None), {"dropout": 0.1}),
        ((q, q, q, None), {"sliding_window": 5}),
        ((q, q, q, None), {"softcap": 30.0}),
    ):
        assert attend(module, *arguments, **given) == "sdpa"


def next_token_loss(logits: Any, labels: Any, vocab_size: int, **_: Any) -> Any:
    """As transformers computes it."""
    shifted = torch.nn.functional.pad(labels, (0, 1), value=-100)[..., 1:]
    return torch.nn.functional.cross_entropy(logits.float().view(-1, vocab_size), shifted.reshape(-1))


class PlayedWithLoss(Played):
    """With as much of a head and its loss."""

    @property
    def loss_function(self) -> Any:
        return vars(self).get("_loss_function", next_token_loss)

    @loss_function.setter
    def loss_function(self, value: Any) -> None:
        self._loss_function = value

    def get_output_embeddings(self) -> Any:
        return object()


def test_the_loss_of_a_causal_model(functions: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    losses = ModuleType("transformers.loss.loss_utils")
    losses.ForCausalLMLoss = next_token_loss
    monkeypatch.setitem(sys.modules, "transformers.loss.loss_utils", losses)
    model, other = PlayedWithLoss(), PlayedWithLoss()
    other.loss_function = lambda: 0
    logits, labels = torch.randn(2, 5, 9).bfloat16().requires_grad_(), torch.randint(0, 9, (2, 5))
    labels[0, 2] = -100
    report = tw.patch(model)
    assert [(e.path, e.operator) for e in report.replaced] == [
        ("", "ops.attention"),
        ("loss_function", "ops.cross_entropy"),
    ]
    (left,) = tw.patch(other).left
    assert (left.path, left.reason) == ("loss_function", "it is not the one of causal models")
    found = model.loss_function(logits=logits, labels=labels, vocab_size=9, use_cache=True)
    expected = next_token_loss(logits, labels, 9)
    assert found.dtype == expected.dtype == torch.float32
    torch.testing.assert_close(found, expected)
    (got,), (wanted,) = (torch.autograd.grad(loss, logits) for loss in (found, expected))
    torch.testing.assert_close(got, wanted)
    summed = model.loss_function(logits, labels, 9, num_items_in_batch=torch.tensor(4))
    torch.testing.assert_close(summed, expected * 7 / 4)
    shifted = model.loss_function(logits, None, 9, shift_labels=labels, ignore_index=-100)
    torch.testing.assert_close(shifted, torch.nn.functional.cross_entropy(logits.float().view(-1, 9), labels.view(-1)))
    report.undo()
    report.undo()
    assert model.loss_function is next_token_loss
    assert "_loss_function" not in vars(model)


MODELS: dict[str, tuple[dict[str, Any], set[str], set[str]]] = {
    "Llama": ({}, {"ForCausalLM", "RMSNorm", "MLP"}, set()),
    "Mistral": ({"sliding_window": 6}, {"ForCausalLM", "RMSNorm", "MLP"}, set()),
    "Qwen2": ({}, {"ForCausalLM", "RMSNorm", "MLP"}, set()),
    "Qwen3": ({}, {"ForCausalLM", "RMSNorm", "MLP", "Attention"}, set()),
    "Qwen3Moe": (
        {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64},
        {"ForCausalLM", "RMSNorm", "Experts", "Attention"},
        set(),
    ),
    "Gemma": ({}, {"ForCausalLM", "RMSNorm", "MLP"}, set()),
    "Gemma2": ({"sliding_window": 6}, {"RMSNorm", "MLP"}, {"ForCausalLM"}),
    "Phi3": ({"pad_token_id": 0}, {"ForCausalLM", "RMSNorm"}, set()),
    "Olmo2": ({}, {"ForCausalLM", "RMSNorm", "MLP"}, set()),
    "Mixtral": ({"num_local_experts": 4, "num_experts_per_tok": 2}, {"ForCausalLM", "RMSNorm", "Experts"}, set()),
    "Glm4Moe": (
        {
            "n_routed_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 64,
            "use_qk_norm": True,
            "n_group": 1,
            "topk_group": 1,
            "first_k_dense_replace": 1,
        },
        {"ForCausalLM", "RMSNorm", "Experts", "MLP"},
        set(),
    ),
    "GptOss": (
        {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 6},
        {"RMSNorm"},
        {"ForCausalLM", "Experts"},
    ),
}
"""Of each kind: what its configuration has beside sizes, the modules that are replaced, and those that are left."""


@pytest.mark.parametrize("kind", MODELS)
def test_a_model_of_random_weights(kind: str) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    torch.manual_seed(0)
    sizes = {
        "hidden_size": 128, "intermediate_size": 200, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 99,
    }  # fmt: skip
    more, replaced, left = MODELS[kind]
    if kind in ("Phi3", "Olmo2"):  # whose heads are as wide as the model says
        sizes = {name: size for name, size in sizes.items() if name != "head_dim"} | {"hidden_size": 256}
    config = getattr(transformers, f"{kind}Config")(**sizes, **more)
    model = getattr(transformers, f"{kind}ForCausalLM")(config).to(torch.bfloat16).eval()
    with torch.no_grad():
        for p in model.parameters():
            if p.dim() == 1:
                p.add_(torch.randn_like(p) / 5)  # no norm is as it begins
    tokens = torch.randint(0, 99, (2, 12))
    padding = torch.ones_like(tokens)
    padding[0, :3] = 0

    def logits() -> tuple[Any, ...]:
        with torch.no_grad():
            found = tuple(model(tokens, attention_mask=mask, labels=tokens) for mask in (None, padding))
        return tuple(t.float() for f in found for t in (f.logits, f.loss))

    expected = logits()
    report = tw.patch(model)
    got = logits()
    report.undo()
    assert {e.kind.removeprefix(kind) for e in report.replaced} == replaced | {"Linear", "ForCausalLMLoss"}  # to 99
    assert {e.kind.removeprefix(kind) for e in report.left if e.kind.startswith(kind)} == left
    for a, b in zip(got, expected, strict=True):
        assert float((a - b).norm() / b.norm()) < 2e-2
    torch.testing.assert_close(logits(), expected, rtol=0, atol=0)


@pytest.fixture
def qwen() -> Any:
    """Attention of one layer, whose norms are no longer as they begin; and what it is called with."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1}
    model = transformers.Qwen3Model(transformers.Qwen3Config(**sizes, head_dim=64, vocab_size=9))
    attention = model.layers[0].self_attn
    with torch.no_grad():
        for norm in (attention.q_norm, attention.k_norm):
            norm.weight.copy_(torch.rand(64) + 0.5)
    x = torch.randn(2, 5, 64)
    angles = model.rotary_emb(x, torch.stack((torch.arange(5), torch.arange(3, 8))))
    return attention, {"hidden_states": x, "position_embeddings": angles, "attention_mask": None}


def test_norms_of_heads_and_rotary_embedding_by_one_operator(qwen: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results, gradients, what a cache is given; in graphs; and that the operator is what computes it."""
    from transformers import DynamicCache  # noqa: PLC0415

    from tilewright import ops  # noqa: PLC0415

    attention, given = qwen
    leaves = list(attention.parameters())

    def found(run: Any) -> list[Any]:
        cache = DynamicCache()
        y, _ = run(**given, cache=cache)
        again, _ = run(**given, cache=cache)
        keys = cache.layers[0].keys
        return [y, again, keys, *torch.autograd.grad(y.square().sum() + again.sum() + keys.square().sum(), leaves)]

    expected = found(attention)
    entries = {e.path: e.operator for e in tw.patch(attention).replaced}
    assert entries == {"": "ops.rms_norm_rotary", "q_norm": "ops.rms_norm", "k_norm": "ops.rms_norm"}
    calls: list[Any] = []
    operator = ops.rms_norm_rotary
    monkeypatch.setattr(ops, "rms_norm_rotary", lambda *a, **b: calls.append(a) or operator(*a, **b))
    torch.testing.assert_close(found(attention), expected, rtol=1e-4, atol=1e-5)
    assert len(calls) == 4
    monkeypatch.undo()
    for patch in (
        lambda: None,
        lambda: monkeypatch.setattr("tilewright.ops.head_norms.is_own", lambda *_, **__: False),
    ):
        patch()
        torch._dynamo.reset()
        graph = torch.compile(attention, backend="aot_eager", fullgraph=True)
        torch.testing.assert_close(graph(**given)[0], expected[0], rtol=1e-4, atol=1e-5)


def test_norms_of_heads_with_hooks_are_called(qwen: Any) -> None:
    attention, given = qwen
    seen: list[Any] = []
    hook = attention.q_norm.register_forward_hook(lambda *_: seen.append(1))
    (left,) = [e for e in tw.patch(attention).left if not e.path]
    assert "hooks" in left.reason
    hook.remove()
    assert tw.patch(attention).replaced
    expected = attention(**given)[0]
    attention.q_norm.register_forward_hook(lambda *_: seen.append(1))
    torch.testing.assert_close(attention(**given)[0], expected)
    assert len(seen) == 1


def test_what_the_weights_of_a_new_model_do_not_tell_is_found(qwen: Any) -> None:
    """An attention that does not weight its norms, while all weights are one."""
    attention, _ = qwen
    own: Any = type(attention)

    class Qwen3Attention(own):
        def forward(
            self, hidden_states: Any, position_embeddings: Any, attention_mask: Any, cache: Any, **_: Any
        ) -> Any:
            hooks = [n.register_forward_hook(lambda m, _, y: y / m.weight) for n in (self.q_norm, self.k_norm)]
            y = own.forward(self, hidden_states, position_embeddings, attention_mask, cache)
            for hook in hooks:
                hook.remove()
            return y

    attention.__class__ = Qwen3Attention
    with torch.no_grad():
        for norm in (attention.q_norm, attention.k_norm):
            norm.weight.fill_(1.0)
    (left,) = [e for e in tw.patch(attention).left if not e.path]
    assert "differ" in left.reason
