"""A mixture of experts beside PyTorch's: the whole layer, router product to weighted sum, forward and backward, bf16.

Build where the compiler is, run where the GPU is (numpy, cuda-bindings and torch suffice there):

    python benchmarks/moe.py build
    python benchmarks/moe.py run --compile --json benchmarks/results/moe.json
    python benchmarks/moe.py run --eight-bits --json benchmarks/results/moe_eight_bits.json   # compiles what it calls

Timed as ``memory_bound.py`` says. Peers are the same layer around ``torch._grouped_mm``, eager and compiled; logits are
normal, less s * log(rank of the expert). Sixteen tokens are compared with float64. ``weights_gb_per_s`` is how fast
both products read the weights of chosen experts. ``the other way`` is the layer with rows packed before the first
product where ours gathers them in it, and gathered where ours packs. Gradients of the routing are in neither backward.
"""

from __future__ import annotations

import argparse
from math import prod
from typing import Any

from harness import Timer, parser, relative_error, store
from moe_layer import Case, Layer, Steps, rows_of

CASES = (
    Case(8192, 8, 2, 4096, 14336, 0.0),
    Case(8192, 8, 2, 4096, 14336, 1.0),
    Case(8192, 128, 8, 2048, 768, 0.0),
    Case(8192, 128, 8, 2048, 768, 1.0),
    Case(4096, 64, 6, 2048, 1408, 2.0),
    Case(1024, 128, 8, 2048, 768, 1.0),
    Case(64, 128, 8, 2048, 768, 1.0),
)
BACKWARD = (CASES[0], CASES[2], CASES[4])


# -- artifacts --------------------------------------------------------------------------------------------------------
def build(only: str) -> None:
    """Compile each kernel for row-major tensors like those of the cases."""
    from tilewright.ops.kernels import experts, matmul
    from tilewright.ops.packing import kernels

    programs: dict[str, tuple[Any, dict[str, Any], dict[str, int]]] = {
        "count": (kernels.count_buckets, {}, {}),
        "pack": (kernels.pack_rows, {}, {}),
        "fill": (kernels.fill_padding, {"part": 16}, {"R": 16}),
        "weights": (experts.expert_weight_gradient, {}, {}),
        "gated_backward": (experts.gated_experts_backward, {}, {}),
        "score": (matmul, {}, {}),
        "score64": (matmul, {"bm": 64, "bn": 64}, {}),
    }
    programs["unpack1"] = (kernels.unpack_rows, {"choices": 1, "added": None}, {"K": 1})
    spread = kernels.spread_rows.compiled.with_planned(frozenset({"slots"}))
    for k in (2, 4, 6, 8):
        programs[f"spread{k}"] = (spread, {"choices": k}, {"K": k})
        programs[f"choose{k}"] = (experts.choose, {"k": k}, {"K": k})
        programs[f"unpack{k}"] = (kernels.unpack_rows, {"choices": k, "added": None}, {"K": k})
        programs[f"add{k}"] = (kernels.unpack_rows, {"choices": k, "added": None, "weights": None}, {"K": k})
    plain = {"h_scale": None, "down_scale": None}
    for bm in (16, 64, 128):
        programs[f"lay_out{bm}"] = (kernels.lay_out_buckets, {"align": bm}, {})
        programs[f"place{bm}"] = (kernels.place_pairs, {"align": bm}, {})
        gated = {"bm": bm, "x_scale": None, "gate_up_scale": None}
        programs[f"gated{bm}"] = (experts.gated_experts, {"rows": None, "halves": None, **gated}, {})
        programs[f"gathered{bm}"] = (experts.gated_experts, {"halves": None, **gated}, {})
        programs[f"kept{bm}"] = (experts.gated_experts, {"rows": None, **gated}, {})
        programs[f"down{bm}"] = (experts.down_experts, {"bm": bm, "bn": 256 if bm > 16 else 128, **plain}, {})
        programs[f"inputs{bm}"] = (experts.down_experts, {"bm": bm, **plain}, {"transposed": 1})
    for name, (kernel, keywords, sizes) in programs.items():
        if only in name:
            function = getattr(kernel, "function", kernel)
            given = (t.name for t in function.tensors if keywords.get(t.name, "") is not None)
            dtypes = {x: "f32" if (name[:5], x) == ("score", "c") else _dtype(x) for x in given}
            facts = _facts(function, dtypes, sizes)
            artifact, seconds = store(f"moe_{name}", kernel.compile, dtypes=dtypes, facts=facts, **keywords)
            print(f"{name}: {seconds:.1f} s, {len(artifact.kernels)} kernels", flush=True)


_F32 = ("weights", "dweights", "logits")
_BF16 = ("x", "y", "h", "dh", "dw", "out", "down", "gate_up", "halves", "dhalves", "router", "a", "b")


def _dtype(name: str) -> str:
    return "f32" if name in _F32 else "bf16" if name in _BF16 else "i32"


def _facts(kernel: Any, dtypes: dict[str, str], sizes: dict[str, int]) -> Any:
    """Of tensors whose extents are multiples of 64, but for what a case says."""
    from tilewright.base.dtypes import DTYPES
    from tilewright.compiler.specialisation import Observed, observe_facts

    seen: dict[str, Any] = {}
    for tensor in kernel.tensors:
        if tensor.name in dtypes:
            shape = tuple(d if isinstance(d, int) else sizes.get(d, 4096 + ("+" in d)) for d in tensor.dims)
            strides = tuple(prod(shape[i + 1 :]) for i in range(len(shape)))
            if tensor.name == "down" and "transposed" in sizes:
                strides = (strides[0], 1, shape[1])
            seen[tensor.name] = Observed(DTYPES[dtypes[tensor.name]], 0, shape, strides)
    return observe_facts(seen)


def run(args: argparse.Namespace, torch: Any) -> None:
    """Check and time every case; print a table and write JSON."""
    rows_of(torch, args, CASES, lambda timer, case: _measured(torch, timer, Layer(torch, case), args.compile))


def _measured(torch: Any, timer: Timer, layer: Layer, compiled: bool) -> dict[str, Any]:
    case, steps = layer.case, layer.forward
    ways = [layer.steps_of(gathers=gathers) for gathers in (layer.gathers, not layer.gathers)]
    forward, other = (lambda: [step() for step in ways[0]]), (lambda: [step() for step in ways[1]])
    torch.manual_seed(0)
    pinned = Layer(torch, case, batch_invariant=True)
    invariant = pinned.steps_of(gathers=pinned.gathers)
    plan = lambda: [steps[name]() for name in ("count", "lay_out", "place")]  # noqa: E731
    layer.y.fill_(float("nan"))
    forward()
    tokens = torch.randperm(case.tokens, device="cuda")[:16]
    exact, given = layer.exact(tokens), (layer.x, layer.gate_up, layer.down)
    error, theirs = (relative_error(y[tokens], exact) for y in (layer.y, layer.by_pytorch(*given)))
    variants: Steps = {"ours": forward, "the other way": other, "plan": plan, **steps}
    variants["batch invariant"] = lambda: [step() for step in invariant]
    variants["eager"] = lambda: layer.by_pytorch(*given)
    if compiled:
        torch._dynamo.reset()
        quick = torch.compile(layer.by_pytorch)
        variants["compiled"] = lambda: quick(*given)
    times = timer.medians(variants)
    peer = min(times[name] for name in ("eager", "compiled") if name in times)
    active = int((layer.kept > 0).sum())
    first = times["gathered" if layer.gathers else "gated"]
    read = active * 3 * case.width * case.inner * 2 / (first + times["down"])
    row: dict[str, Any] = {
        "case": str(case),
        "microseconds": _micro(times),
        "of_peer": round(peer / times["ours"], 3),
        "batch_invariant_costs": round(times["batch invariant"] / times["ours"], 3),
        "active_experts": active,
        "weights_gb_per_s": round(read * 1e-9, 1),
        "error": error,
        "eager_error": theirs,
    }
    if case in BACKWARD:
        row["backward"] = _backward(torch, timer, layer)
    return row


def _backward(torch: Any, timer: Timer, layer: Layer) -> dict[str, Any]:
    steps = layer.backward()
    for name in ("count", "lay_out", "place", "pack"):  # the timer may have ended between two of them
        layer.forward[name]()
    layer.keep()
    ours = lambda: [step() for step in steps.values()]  # noqa: E731
    ours()
    given = [t.detach().requires_grad_() for t in (layer.x, layer.gate_up, layer.down)]
    y = layer.by_pytorch(*given)
    eager = lambda: torch.autograd.grad(y, given, layer.dy, retain_graph=True)  # noqa: E731
    theirs = eager()
    apart = [relative_error(a, b.double()) for a, b in zip(layer.gradients[1:], theirs[1:], strict=True)]
    assert max(apart) < 0.02, f"gradients are not those of PyTorch: {apart}"
    times = timer.medians({"ours": ours, "eager": eager, "forward that keeps": layer.keep, **steps})
    ratio = round(times["eager"] / times["ours"], 3)
    return {"microseconds": _micro(times), "of_eager": ratio, "apart_from_eager": apart}


# -- experts of 8 bits ------------------------------------------------------------------------------------------------
def run_eight_bits(args: argparse.Namespace, torch: Any) -> None:
    """Check and time experts of 8 bits in every case, beside those of 16."""
    rows_of(torch, args, CASES, lambda timer, case: {"case": str(case), **_eight_bits(torch, timer, case)})


def _eight_bits(torch: Any, timer: Timer, case: Case) -> dict[str, Any]:
    from tilewright import ops

    t, e, k, d, i = case.tokens, case.experts, case.choices, case.width, case.inner
    x = torch.randn(t, d, device="cuda").bfloat16()
    logits = torch.randn(t, e, device="cuda") - case.skew * torch.arange(1, e + 1, device="cuda").log()
    weights, ids = logits.softmax(1).topk(k, 1)
    weights, ids = weights / weights.sum(1, keepdim=True), ids.int()
    large = [torch.randn(e, n, m, device="cuda", dtype=torch.bfloat16) * m**-0.5 for n, m in ((2 * i, d), (d, i))]
    scales = [w.abs().amax(2).float() / 448 for w in large]
    small = [(w / s[..., None]).to(torch.float8_e4m3fn) for w, s in zip(large, scales, strict=True)]
    names = {"gate_up_scale": scales[0], "down_scale": scales[1]}
    variants: Steps = {
        "bf16": lambda: ops.experts(x, ids, weights, *large),
        "e4m3": lambda: ops.experts(x, ids, weights, *small, **names),
    }
    tokens, errors = torch.randperm(t, device="cuda")[:8].tolist(), dict[str, float]()
    for name, held in (("bf16", large), ("e4m3", small)):
        exact = torch.zeros(len(tokens), d, dtype=torch.float64, device="cuda")
        for n, token in enumerate(tokens):
            for p, expert in zip(weights[token].double(), ids[token].tolist(), strict=True):
                first, last = (w[expert].double() for w in held)
                if name == "e4m3":
                    first, last = (w * s[expert].double()[:, None] for w, s in zip((first, last), scales, strict=True))
                gate, up = (first @ x[token].double()).chunk(2)
                exact[n] += p * (last @ (gate * torch.sigmoid(gate) * up))
        errors[name] = relative_error(variants[name]()[tokens], exact)
    times = timer.medians(variants | _steps_of_eight_bits(torch, x, ids, weights, small, scales))
    return {"microseconds": _micro(times), "of_bf16": round(times["bf16"] / times["e4m3"], 3), "error": errors}


def _steps_of_eight_bits(torch: Any, x: Any, ids: Any, weights: Any, both: list[Any], scales: list[Any]) -> Steps:
    """The launches of ``ops.experts``, one by one."""
    from tilewright.ops import kernels
    from tilewright.ops.packing.moving import unpack
    from tilewright.ops.packing.plan import plan_by_kernels
    from tilewright.ops.packing.policy import PackPolicy

    (gate_up, down), d, i = both, x.shape[1], both[1].shape[2]
    align = 128 if ids.numel() >= 96 * len(down) else 64  # as tilewright.ops.experts
    make_plan = lambda: plan_by_kernels(ids, len(down), PackPolicy(align))  # noqa: E731
    plan, gathers, options = make_plan(), i <= 8192, {"bm": align, "bk": 128}
    m = plan.capacity
    rows, inner = (
        torch.empty(*shape, device="cuda", dtype=down.dtype) for shape in ((len(x) if gathers else m, d), (m, i))
    )
    by_token, by_row, by_inner_row = (torch.empty(n, device="cuda") for n in (len(x), m, m))
    h, out, halves, columns = (
        x.new_empty(m, i),
        x.new_empty(m, d),
        gate_up.unflatten(1, (2, i)),
        scales[0].unflatten(1, (2, i)),
    )
    second = (plan.blocks, inner, down, out, by_inner_row, scales[1])
    found = (plan.blocks, plan.rows if gathers else None, rows, halves, None, h, by_row, columns)
    first: Steps = {"pack": lambda: kernels.pack_in_eight_bits(plan.rows, x, rows, by_row)}
    if gathers:
        first = {
            "pack": lambda: kernels.quantize_rows(x, rows, by_token),
            "scales": lambda: kernels.scales_of_rows(plan.rows, by_token, by_row),
        }
    first["gated"] = lambda: kernels.gated_experts(*found, **options)
    return {
        "plan": make_plan,
        **first,
        "round": lambda: kernels.quantize_rows(h, inner, by_inner_row),
        "down": lambda: kernels.down_experts(*second, **options),
        "unpack": lambda: unpack(plan, out, weights),
    }


def _micro(times: dict[str, float]) -> dict[str, float]:
    return {name: round(s * 1e6, 1) for name, s in times.items()}


if __name__ == "__main__":
    asked = parser(__doc__, "cases, or programs to build, whose names contain this")
    asked.add_argument("--compile", action="store_true", help="beside torch.compile, too")
    asked.add_argument("--eight-bits", action="store_true", help="experts of e4m3 beside bf16 instead")
    given = asked.parse_args()
    if given.what == "build":
        build(given.only)
    else:
        import torch

        (run_eight_bits if given.eight_bits else run)(given, torch)
