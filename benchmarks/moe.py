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
import json
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

from harness import Timer, document, load, parser, relative_error, store, write

UNLIMITED = 2**31 - 1


@dataclass(frozen=True)
class Case:
    """Tokens, experts, choices, width, inner width, skew."""

    tokens: int
    experts: int
    choices: int
    width: int
    inner: int
    skew: float

    def __str__(self) -> str:
        return f"{self.tokens} tokens, {self.choices} of {self.experts}, {self.width}x{self.inner}, s = {self.skew:g}"


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
        "weights": (experts.expert_weight_gradient, {}, {}),
        "gated_backward": (experts.gated_experts_backward, {}, {}),
        "score": (matmul, {}, {}),
    }
    for k in (2, 4, 6, 8):
        programs[f"route{k}"] = (experts.route, {"k": k}, {"K": k})
        programs[f"choose{k}"] = (experts.choose, {"k": k}, {"K": k})
        programs[f"unpack{k}"] = (kernels.unpack_rows, {"choices": k, "added": None}, {"K": k})
        programs[f"add{k}"] = (kernels.unpack_rows, {"choices": k, "added": None, "weights": None}, {"K": k})
    scales = {"gated": {"x_scale": None, "gate_up_scale": None}, "down": {"h_scale": None, "down_scale": None}}
    for bm in (16, 64, 128):
        programs[f"lay_out{bm}"] = (kernels.lay_out_buckets, {"align": bm}, {})
        programs[f"place{bm}"] = (kernels.place_pairs, {"align": bm}, {})
        programs[f"gated{bm}"] = (experts.gated_experts, {"bm": bm, "halves": None, **scales["gated"]}, {})
        programs[f"gathered{bm}"] = (experts.gated_tokens, {"bm": bm, **scales["gated"]}, {})
        programs[f"kept{bm}"] = (experts.gated_experts, {"bm": bm, **scales["gated"]}, {})
        programs[f"down{bm}"] = (experts.down_experts, {"bm": bm, "bn": 256 if bm > 16 else 128, **scales["down"]}, {})
        programs[f"inputs{bm}"] = (experts.down_experts, {"bm": bm, **scales["down"]}, {"transposed": 1})
    for name, (kernel, keywords, sizes) in programs.items():
        if only in name:
            given = (t.name for t in kernel.tensors if keywords.get(t.name, "") is not None)
            dtypes = {x: "f32" if (name, x) == ("score", "c") else _dtype(x) for x in given}
            facts = _facts(kernel, dtypes, sizes)
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


# -- the layer --------------------------------------------------------------------------------------------------------
Steps = dict[str, Callable[[], object]]


class Layer:
    """Tensors of a case, and what its kernels launch, in order."""

    def __init__(self, torch: Any, case: Case, programs: Callable[[str], Any]) -> None:
        self.torch, self.case, self._program = torch, case, programs
        t, e, k, d, i = case.tokens, case.experts, case.choices, case.width, case.inner
        self.x = torch.randn(t, d, device="cuda").bfloat16()
        self.router = torch.eye(e, d, device="cuda").bfloat16()
        self.x[:, :e] = torch.randn(t, e, device="cuda") - case.skew * torch.arange(1, e + 1, device="cuda").log()
        self.gate_up = torch.randn(e, 2 * i, d, device="cuda", dtype=torch.bfloat16) * d**-0.5
        self.down = torch.randn(e, d, i, device="cuda", dtype=torch.bfloat16) * i**-0.5
        self.align = 128 if t * k >= 96 * e else 64 if t * k > 4 * e else 16  # as tilewright.ops.experts
        self.gathers, self.apart = i <= 8192, t <= 4096  # likewise
        self.pairs = t * k
        filled = min(e, self.pairs)
        self.blocks = filled + (self.pairs - filled) // self.align
        self.forward = self._forward()

    def _empty(self, *shape: int, dtype: str = "bfloat16") -> Any:
        return self.torch.empty(shape, dtype=getattr(self.torch, dtype), device="cuda")

    def _shared(self, extent: int, programs: int) -> Any:
        """Integers that programs share, as ``tilewright.ops.packing`` lays them."""
        return self._empty(programs, -(-extent // (4 * programs)) * 4, dtype="int32")

    def _launch(self, name: str, *values: Any) -> Callable[[], object]:
        return lambda: self._program(name).launch(values)

    def _forward(self) -> Steps:
        """Every step, of which a forward takes some (``steps_of``)."""
        case, empty, at = self.case, self._empty, self._launch
        t, e, k, d, i = case.tokens, case.experts, case.choices, case.width, case.inner
        packed = self.blocks * self.align
        self.weights, self.ids = empty(t, k, dtype="float32"), empty(t, k, dtype="int32")
        counts, before = (empty(-(-self.pairs // 512), e, dtype="int32") for _ in range(2))
        self.kept, self.offsets = empty(e, dtype="int32"), empty(e + 1, dtype="int32")
        every = [self._shared(packed, len(counts)) for _ in range(2)]
        owners, self.slots = self._shared(self.blocks, -(-self.pairs // 64)), empty(t, k, dtype="int32")
        self.rows, self.pair = (x.view(-1)[:packed] for x in every)
        self.block = owners.view(-1)[: self.blocks]
        self.packed, self.h, self.out = empty(packed, d), empty(packed, i), empty(packed, d)
        self.y, align = empty(t, d), self.align
        self.halves, self.logits = self.gate_up.view(e, 2, i, d), empty(t, e, dtype="float32")
        flat = self.ids.view(-1)
        place = (flat, before, self.offsets, self.slots.view(-1), self.rows, self.pair, owners, UNLIMITED, k)
        return {
            "route": at(f"route{k}", self.x, self.router, self.weights, self.ids),
            "score": at("score", self.x, self.router, self.logits),
            "choose": at(f"choose{k}", self.logits, self.weights, self.ids),
            "count": at("count", flat, counts, *every),
            "lay_out": at(f"lay_out{align}", counts, before, self.kept, self.offsets, UNLIMITED),
            "place": at(f"place{align}", *place),
            "pack": at("pack", self.rows, self.x, self.packed),
            "gated": at(f"gated{align}", self.block, self.packed, self.halves, self.h),
            "gathered": at(f"gathered{align}", self.block, self.rows, self.x, self.halves, self.h),
            "down": at(f"down{align}", self.block, self.h, self.down, self.out),
            "unpack": at(f"unpack{k}", self.slots, self.out, self.weights, self.y),
        }

    def steps_of(self, *, gathers: bool) -> list[Callable[[], object]]:
        """A forward, by its way to the first product's rows."""
        left_out = {"route"} if self.apart else {"score", "choose"}
        left_out |= {"pack", "gated"} if gathers else {"gathered"}
        return [step for name, step in self.forward.items() if name not in left_out]

    def backward(self) -> Steps:
        """Gradients of x, gate_up, down and the weights by row, behind a forward that kept both halves."""
        case, empty, at, align = self.case, self._empty, self._launch, self.align
        d, i, packed = case.width, case.inner, self.blocks * self.align
        kept, dkept, dh, h = empty(packed, 2, i), empty(packed, 2, i), empty(packed, i), empty(packed, i)
        dy, dout, dx = self.torch.randn_like(self.y), empty(packed, d), empty(case.tokens, d)
        dgate_up, ddown = self.torch.empty_like(self.gate_up), self.torch.empty_like(self.down)
        both, by_row = dkept.view(packed, 2 * i), empty(packed, dtype="float32")
        self.keep = at(f"kept{align}", self.block, self.packed, self.halves, kept, self.h)
        self.dy, self.gradients = dy, (dx, dgate_up, ddown)
        turned = self.down.transpose(1, 2), self.gate_up.transpose(1, 2)
        weighed = (self.pair, self.weights.view(-1), kept, dh, dkept, h, by_row)
        rows = {"dgate_up": (both, self.packed), "ddown": (dout, h)}
        sums = {name: [x.view(-1, 64, x.shape[1]) for x in pair] for name, pair in rows.items()}
        return {
            "pack dy": at("pack", self.rows, dy, dout),
            "dh": at(f"inputs{align}", self.block, dout, turned[0], dh),
            "gated_backward": at("gated_backward", *weighed),
            "dpacked": at(f"inputs{align}", self.block, both, turned[1], self.out),
            "dx": at(f"add{case.choices}", self.slots, self.out, dx),
            "dgate_up": at("weights", self.offsets, *sums["dgate_up"], dgate_up),
            "ddown": at("weights", self.offsets, *sums["ddown"], ddown),
        }

    def by_pytorch(self, x: Any, gate_up: Any, down: Any) -> Any:
        """The peer: rows sorted by expert, torch._grouped_mm, and back in a sum. The routing has no gradient."""
        torch, k, e = self.torch, self.case.choices, self.case.experts
        weights, ids = torch.softmax((x.detach() @ self.router.t()).float(), -1).topk(k, -1)
        weights = weights / weights.sum(-1, keepdim=True)
        flat = ids.view(-1)
        order = flat.argsort(stable=True)
        ends = torch.bincount(flat, minlength=e).cumsum(0).to(torch.int32)
        gate, up = torch._grouped_mm(x[order // k], gate_up.transpose(1, 2), offs=ends).chunk(2, 1)
        out = torch._grouped_mm(torch.nn.functional.silu(gate) * up, down.transpose(1, 2), offs=ends)
        back = torch.empty_like(order)
        back[order] = torch.arange(order.numel(), device=order.device)
        return (out[back].view(-1, k, out.shape[1]) * weights.to(out.dtype)[..., None]).sum(1)

    def exact(self, tokens: Any) -> Any:
        """Some rows of the result, in float64, with the experts that our router chose."""
        torch, i = self.torch, self.case.inner
        found = torch.zeros(len(tokens), self.case.width, dtype=torch.float64, device="cuda")
        p = torch.softmax(self.x[tokens].double() @ self.router.double().t(), -1).gather(1, self.ids[tokens].long())
        p = p / p.sum(-1, keepdim=True)
        for n, token in enumerate(tokens.tolist()):
            for j, e in enumerate(self.ids[token].tolist()):
                gate, up = (self.gate_up[e].double() @ self.x[token].double()).split(i)
                found[n] += p[n, j] * (self.down[e].double() @ (gate * torch.sigmoid(gate) * up))
        return found


def run(args: argparse.Namespace, torch: Any) -> None:
    """Check and time every case; print a table and write JSON."""

    loaded: dict[str, Any] = {}

    def program(name: str) -> Any:
        if name not in loaded:
            loaded[name] = load(f"moe_{name}")
        return loaded[name]

    timer, found = Timer(torch, args.rounds), list[dict[str, Any]]()
    for case in CASES:
        if args.only in str(case):
            torch.manual_seed(0)
            found.append(_measured(torch, timer, Layer(torch, case, program), args.compile))
            print(json.dumps(found[-1]), flush=True)
            torch.cuda.empty_cache()
            write(document(torch, **timer.conditions(), rows=found), args.json)


def _measured(torch: Any, timer: Timer, layer: Layer, compiled: bool) -> dict[str, Any]:
    case, steps = layer.case, layer.forward
    ways = [layer.steps_of(gathers=gathers) for gathers in (layer.gathers, not layer.gathers)]
    forward, other = (lambda: [step() for step in ways[0]]), (lambda: [step() for step in ways[1]])
    plan = lambda: [steps[name]() for name in ("count", "lay_out", "place")]  # noqa: E731
    layer.y.fill_(float("nan"))
    forward()
    tokens = torch.randperm(case.tokens, device="cuda")[:16]
    exact, given = layer.exact(tokens), (layer.x, layer.gate_up, layer.down)
    error, theirs = (relative_error(y[tokens], exact) for y in (layer.y, layer.by_pytorch(*given)))
    variants: Steps = {"ours": forward, "the other way": other, "plan": plan, **steps}
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
    layer.forward["pack"]()
    layer.keep()
    ours = lambda: [step() for step in steps.values()]  # noqa: E731
    ours()
    given = [t.detach().requires_grad_() for t in (layer.x, layer.gate_up, layer.down)]
    y = layer.by_pytorch(*given)
    eager = lambda: torch.autograd.grad(y, given, layer.dy, retain_graph=True)  # noqa: E731
    theirs = eager()
    apart = [relative_error(a, b.double()) for a, b in zip(layer.gradients[1:], theirs[1:], strict=True)]
    times = timer.medians({"ours": ours, "eager": eager, "forward that keeps": layer.keep, **steps})
    ratio = round(times["eager"] / times["ours"], 3)
    return {"microseconds": _micro(times), "of_eager": ratio, "apart_from_eager": apart}


# -- experts of 8 bits ------------------------------------------------------------------------------------------------
def run_eight_bits(args: argparse.Namespace, torch: Any) -> None:
    """Check and time experts of 8 bits in every case, beside those of 16."""
    timer, found = Timer(torch, args.rounds), list[dict[str, Any]]()
    for case in CASES:
        if args.only in str(case):
            torch.manual_seed(0)
            found.append({"case": str(case), **_eight_bits(torch, timer, case)})
            print(json.dumps(found[-1]), flush=True)
            torch.cuda.empty_cache()
            write(document(torch, **timer.conditions(), rows=found), args.json)


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
    packed = (plan.blocks, rows, halves, None, h, by_row, columns)
    found = (plan.blocks, plan.rows, rows, halves, h, by_row, columns)
    first: Steps = {
        "pack": lambda: kernels.pack_in_eight_bits(plan.rows, x, rows, by_row),
        "gated": lambda: kernels.gated_experts(*packed, **options),
    }
    if gathers:
        first = {
            "pack": lambda: kernels.pack_in_eight_bits(None, x, rows, by_token),
            "scales": lambda: kernels.scales_of_rows(plan.rows, by_token, by_row),
            "gated": lambda: kernels.gated_tokens(*found, **options),
        }
    return {
        "plan": make_plan,
        **first,
        "round": lambda: kernels.pack_in_eight_bits(None, h, inner, by_inner_row),
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
