"""Layers of transformers (Llama 3 8B and Qwen3 30B A3B by their shapes, random weights, bf16) as ``tw.patch`` leaves
them, beside the same layers under torch.compile.

    python benchmarks/patched_layers.py run --json benchmarks/results/patched_layers.json

The peer has attention of cuDNN and experts by ``grouped_mm``, both of transformers' own choosing. What ``patch``
reports must be all that ``REPLACED`` lists, what is left aligned linear layers: else the run ends. Ours is taken as
``patch`` leaves it, and compiled. Gradients are compared with float64, in which each token has the experts that the
layer compared has chosen. Timed as ``memory_bound.py`` says; ``build`` compiles, no more.
"""

from __future__ import annotations

import argparse
import copy
import os
from collections.abc import Callable
from functools import partial
from typing import Any

from harness import Timer, document, parser, relative_error, write
from layers import one_head

os.environ.setdefault("TILEWRIGHT_VALIDATION", "0")

LLAMA = {
    "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32, "num_key_value_heads": 8,
    "rope_theta": 5e5, "vocab_size": 128,
}  # fmt: skip
QWEN = {
    "hidden_size": 2048, "intermediate_size": 6144, "moe_intermediate_size": 768, "num_experts": 128,
    "num_experts_per_tok": 8, "norm_topk_prob": True, "num_attention_heads": 32, "num_key_value_heads": 4,
    "head_dim": 128, "rope_theta": 1e6, "vocab_size": 128,
}  # fmt: skip
_NORMS = {"norm", "layers.0.input_layernorm", "layers.0.post_attention_layernorm"}
REPLACED = {
    "Llama": {"": "ops.attention", "layers.0.mlp": "ops.swiglu"} | dict.fromkeys(_NORMS, "ops.rms_norm"),
    "Qwen3Moe": {
        "": "ops.attention",
        "layers.0.self_attn": "ops.rms_norm_rotary",
        "layers.0.mlp.experts": "ops.experts",
    }
    | dict.fromkeys((*_NORMS, "layers.0.self_attn.q_norm", "layers.0.self_attn.k_norm"), "ops.rms_norm"),
}
"""What ``patch`` must report of a model of one layer: the module's path and its operator."""
PREFILL, TRAINING = "prefill", "training"
CASES = (
    ("Llama", LLAMA, PREFILL, 1, 4096, 0.0),
    ("Llama", LLAMA, TRAINING, 2, 4096, 1.0),
    ("Qwen3Moe", QWEN, PREFILL, 1, 4096, 1.5),
    ("Qwen3Moe", QWEN, TRAINING, 2, 4096, 1.15),
)
"""Kind, sizes, what is done, batch, tokens, and the goal as a share of the peer."""


def model_of(torch: Any, kind: str, sizes: dict[str, Any]) -> Any:
    """A model of one layer, attention by ``sdpa``, experts by ``grouped_mm``."""
    import transformers

    config = getattr(transformers, f"{kind}Config")(**sizes, num_hidden_layers=1)
    with torch.device("cuda"):
        model = getattr(transformers, f"{kind}Model")(config).bfloat16().eval()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn_like(p) * p.shape[-1] ** -0.5 if p.dim() > 1 else 1 + torch.randn_like(p) / 5)
    model.set_attn_implementation("sdpa")
    if "num_experts" in sizes:
        model.set_experts_implementation("grouped_mm")
    return model


def check(report: Any, kind: str) -> None:
    """That everything listed is replaced, and nothing is left but aligned linear layers."""
    found = {e.path: e.operator for e in report.replaced}
    others = [str(e) for e in report.left if "whole 16 bytes" not in e.reason]
    if found != REPLACED[kind] or others:
        raise SystemExit(f"patch's report is another than what is listed:\n{report}")


class Case:
    """A layer of a model, and one of a copy that is patched; its input, and what is timed."""

    def __init__(self, torch: Any, kind: str, sizes: dict[str, Any], what: str, batch: int, tokens: int) -> None:
        import tilewright as tw

        torch.manual_seed(0)
        self.torch, self.trains = torch, what == TRAINING
        self.peer = model_of(torch, kind, sizes)
        self.ours = copy.deepcopy(self.peer)
        self.report = tw.patch(self.ours)
        check(self.report, kind)
        self.x = torch.randn(batch, tokens, sizes["hidden_size"], device="cuda", dtype=torch.bfloat16)
        self.dy = torch.randn_like(self.x)
        positions = torch.arange(tokens, device="cuda")[None]
        self.angles = tuple(t.detach() for t in self.peer.rotary_emb(self.x, positions))

    def call(self, model: Any, compiled: bool) -> Callable[[], Any]:
        """The result, or of training the gradients of the input and of every weight."""
        torch, layer = self.torch, model.layers[0]

        def forward(x: Any, angles: Any) -> Any:
            with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.CUDNN_ATTENTION):
                return layer(x, position_embeddings=angles)

        run = torch.compile(forward) if compiled else forward
        if not self.trains:
            return torch.no_grad()(partial(run, self.x, self.angles))
        x = self.x.clone().requires_grad_()
        leaves = [x, *layer.parameters()]
        return lambda: torch.autograd.grad(run(x, self.angles), leaves, self.dy)

    def errors(self, model: Any, *, compiled: bool) -> dict[str, float]:
        """Relative errors of the result, or of each gradient, against float64."""
        layer, ids = model.layers[0], list[Any]()
        gate = getattr(layer.mlp, "gate", None)
        hook = None if gate is None else gate.register_forward_hook(lambda *given: ids.append(given[-1][2]))
        self.torch._dynamo.reset()  # which would take the module's graph without the hook
        found = self.call(model, compiled)()
        if hook is not None:
            hook.remove()
        torch, double = self.torch, in_float64(self.torch, self.peer, ids[0] if ids else None)
        x, layer = self.x.double().requires_grad_(self.trains), double.layers[0].requires_grad_(self.trains)
        y = layer(x, position_embeddings=tuple(a.double() for a in self.angles))
        if not self.trains:
            return {"result": relative_error(found, y)}
        names, leaves = zip(*layer.named_parameters(), strict=True)
        exact = torch.autograd.grad(y, [x, *leaves], self.dy.double())
        return {n: relative_error(a, b) for n, a, b in zip(("x", *names), found, exact, strict=True)}


def in_float64(torch: Any, model: Any, ids: Any) -> Any:
    """A copy that computes in float64 what the model's own text casts to float32 or holds all at once."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    def attention(_: Any, q: Any, k: Any, v: Any, *__: Any, **___: Any) -> Any:
        group = q.shape[1] // k.shape[1]
        heads = [one_head(torch, q[:, h], k[:, h // group], v[:, h // group]) for h in range(q.shape[1])]
        return torch.stack(heads, 2), None

    def norm(self: Any, x: Any) -> Any:
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)

    def route(self: Any, x: Any) -> Any:
        logits = x @ self.weight.t()
        weights = torch.softmax(logits, -1).gather(1, ids)
        return logits, weights / weights.sum(-1, keepdim=True), ids

    ALL_ATTENTION_FUNCTIONS.register("float64", attention)
    double = copy.deepcopy(model).double()
    double.config._attn_implementation = "float64"
    if ids is not None:
        double.set_experts_implementation("eager")
    for module in double.modules():
        name = type(module).__name__
        if name.endswith(("RMSNorm", "TopKRouter")):
            module.forward = partial(norm if name.endswith("RMSNorm") else route, module)
    return double


def run(args: argparse.Namespace, torch: Any) -> None:
    """Check and time every case; print a table and write JSON."""
    import transformers

    timer, rows = Timer(torch, args.rounds), list[dict[str, Any]]()
    for kind, sizes, what, batch, tokens, goal in CASES:
        name = f"{kind} {what} {batch}x{tokens}"
        if args.only not in name:
            continue
        torch._dynamo.reset()
        case = Case(torch, kind, sizes, what, batch, tokens)
        calls = {
            "pytorch, compiled": case.call(case.peer, True),
            "patched": case.call(case.ours, False),
            "patched, compiled": case.call(case.ours, True),
        }
        for call in calls.values():
            call()
        seconds = {} if args.what == "build" else timer.medians(calls)
        errors = {
            "pytorch, compiled": case.errors(case.peer, compiled=True),
            "patched": case.errors(case.ours, compiled=False),
            "patched, compiled": case.errors(case.ours, compiled=True),
        }
        torch.cuda.empty_cache()
        if args.what == "build":
            continue
        rows.append({
            "case": name,
            "report": str(case.report).splitlines(),
            "microseconds": {n: round(s * 1e6, 1) for n, s in seconds.items()},
            "of_peer": {n: round(seconds["pytorch, compiled"] / s, 3) for n, s in seconds.items()},
            "goal": goal,
            "errors": errors,
        })  # fmt: skip
        print(case.report, rows[-1], sep="\n", flush=True)
        write(document(torch, **timer.conditions(), transformers=transformers.__version__, rows=rows), args.json)
        del case, calls
        torch.cuda.empty_cache()


if __name__ == "__main__":
    given = parser(__doc__, "cases whose name contains this").parse_args()
    import torch

    run(given, torch)
