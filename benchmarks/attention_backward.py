"""The gradients of attention, all launches of a backward together, beside cuDNN's and FlashAttention-2's of PyTorch.

Build where the compiler is, run where the GPU is (PyTorch, numpy, cuda-bindings):

    python benchmarks/attention_backward.py build
    python benchmarks/attention_backward.py run --json $OUT/attention_backward.json

Ours are three kernels of ``tilewright.ops.kernels``: delta, the gradient of queries, those of keys and values. They
have one order of sums, and the same bits in every run. Errors are against float64, of all heads of each case's first
batch; ours after our own forward, cuDNN's after its own, and ours after the forward of each peer beside: results and
sums of a forward are rounded, which gradients of rows that see few keys show.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from harness import Timer, document, greatest_error, load, parser, relative_error, store, write

WIDTHS = (64, 128)
CASES = ((16, 16, 1024), (4, 16, 4096), (1, 16, 16384))
"""Batch, heads, tokens: as many tokens in all."""


def names(width: int, *, causal: bool) -> tuple[str, str, str]:
    """The artifacts of one kind of attention, in the order of their launches."""
    kind = f"{width}{'_causal' if causal else ''}"
    return f"attention_delta_{width}", f"attention_query_gradient_{kind}", f"attention_key_gradients_{kind}"


def forward_name(width: int, *, causal: bool) -> str:
    """The artifact of our forward, with the sums of its rows."""
    return f"attention_with_lse_{width}{'_causal' if causal else ''}"


def build(only: str) -> None:
    """Compile every kind whose name has ``only``."""
    from tilewright.ops import kernels

    inputs, sums = dict.fromkeys(("do", "q", "k", "v"), "bf16"), {"lse": "f32", "delta": "f32"}
    for width in WIDTHS:
        for causal in (False, True):
            delta, queries, keys = names(width, causal=causal)
            dtypes: dict[str, dict[str, str]] = {
                forward_name(width, causal=causal): {**dict.fromkeys("qkvo", "bf16"), "lse": "f32"},
                delta: {"do": "bf16", "o": "bf16"},
                queries: {**inputs, **sums, "dq": "bf16"},
                keys: {**inputs, **sums, "dk": "bf16", "dv": "bf16"},
            }
            options = {"causal": causal}
            made = (
                (forward_name(width, causal=causal), kernels.attention(width), options),
                (delta, kernels.attention_delta, {"width": width}),
                (queries, kernels.attention_query_gradient(width), options),
                (keys, kernels.attention_key_gradients(width), options),
            )
            for name, kernel, keywords in made:
                if only in name:
                    _, seconds = store(name, kernel.compile, target="sm_90a", dtypes=dtypes[name], **keywords)
                    print(f"{name}: {seconds:.1f} s")


class Case:
    """Inputs of one backward, ours as one call, and PyTorch's two."""

    def __init__(self, torch: Any, programs: tuple[Any, ...], shape: tuple[int, ...], *, causal: bool) -> None:
        made = torch.Generator("cuda").manual_seed(0)
        q, k, v, do = (torch.randn(shape, device="cuda", dtype=torch.bfloat16, generator=made) for _ in range(4))
        self.inputs, self.do, self.causal, self.torch = (q, k, v), do, causal, torch
        self.scale = shape[-1] ** -0.5
        o, lse = self.forwards()["flash"]
        self.o, self.lse = o.clone(), lse.contiguous()
        self.delta = torch.empty(shape[:3], device="cuda")
        self.results = tuple(torch.full_like(x.transpose(1, 2).contiguous(), float("nan")) for x in self.inputs)
        given = {"do": do, "q": q, "k": k, "v": v, "lse": self.lse, "delta": self.delta, "scale": self.scale}
        dq, dk, dv = self.results
        self.calls = (
            (programs[0], {"do": do, "o": self.o, "delta": self.delta}),
            (programs[1], {**given, "dq": dq}),
            (programs[2], {**given, "dk": dk, "dv": dv}),
        )

    def forwards(self, own: Any = None) -> dict[str, tuple[Any, Any]]:
        """Results and sums of rows by each peer's forward, and by ``own``, our program of one."""
        torch, (q, k, v), n = self.torch, self.inputs, self.inputs[0].shape[2]
        flash = torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, self.causal, scale=self.scale)
        found = {"flash": (flash[0], flash[1][..., :n])}
        if own is not None:
            cudnn = torch.ops.aten._scaled_dot_product_cudnn_attention(
                q, k, v, None, True, 0.0, self.causal, False, scale=self.scale
            )
            o, lse = torch.full_like(q.transpose(1, 2).contiguous(), float("nan")), torch.empty_like(self.lse)
            own.launch({"q": q, "k": k, "v": v, "o": o, "lse": lse, "scale": self.scale})
            found |= {"cudnn": (cudnn[0], cudnn[1].view(lse.shape)), "ours": (o.transpose(1, 2), lse)}
        return found

    def after(self, forward: tuple[Any, Any]) -> tuple[Any, ...]:
        """Our gradients of the first batch after results and sums of some forward."""
        self.o.copy_(forward[0])
        self.lse.copy_(forward[1])
        for x in self.results:
            x.fill_(float("nan"))
        self.ours()
        return tuple(x[:1].transpose(1, 2).clone() for x in self.results)

    def ours(self) -> None:
        """All three launches."""
        for program, given in self.calls:
            program.launch(given)

    def theirs(self, backend: Any) -> Callable[[], Any]:
        """PyTorch's backward by one of its backends."""
        torch, leaves = self.torch, [x.clone().requires_grad_() for x in self.inputs]
        with torch.nn.attention.sdpa_kernel(backend):
            o = torch.nn.functional.scaled_dot_product_attention(*leaves, is_causal=self.causal)
        return lambda: torch.autograd.grad(o, leaves, self.do, retain_graph=True)

    def exact(self) -> tuple[Any, ...]:
        """The gradients of the first batch in float64, head by head."""
        torch, heads = self.torch, list[Any]()
        for h in range(self.do.shape[1]):
            leaves = [x[:1, h : h + 1].double().requires_grad_() for x in self.inputs]
            x = leaves[0] @ leaves[1].transpose(-1, -2) * self.scale
            if self.causal:
                x = x.masked_fill(~torch.ones(x.shape[-2:], dtype=torch.bool, device="cuda").tril(), float("-inf"))
            y = x.softmax(-1) @ leaves[2]
            heads.append(torch.autograd.grad(y, leaves, self.do[:1, h : h + 1].double()))
        return tuple(torch.cat(found, 1) for found in zip(*heads, strict=True))


def run(args: Any) -> None:
    """Errors and times of every case."""
    import torch

    timer, rows = Timer(torch, args.rounds), list[dict[str, Any]]()
    backend = torch.nn.attention.SDPBackend
    peers = {"cudnn": backend.CUDNN_ATTENTION, "flash": backend.FLASH_ATTENTION}
    for width in WIDTHS:
        for causal in (False, True):
            programs = tuple(load(name) for name in names(width, causal=causal))
            own = load(forward_name(width, causal=causal))
            kind = f"{width}{' causal' if causal else ''}"
            if None in programs or args.only not in kind:
                continue
            for shape in CASES:
                case = Case(torch, programs, (*shape, width), causal=causal)
                forwards = case.forwards(own)
                found = {f"after {name}": case.after(forward) for name, forward in forwards.items()}
                again = case.after(forwards["ours"])
                same = all(torch.equal(a, b) for a, b in zip(found["after ours"], again, strict=True))
                found = {"ours": found.pop("after ours"), **found}
                found["cudnn"] = tuple(x[:1] for x in case.theirs(backend.CUDNN_ATTENTION)())
                exact = case.exact()
                errors, greatest = (
                    {n: [measure(x, e) for x, e in zip(of, exact, strict=True)] for n, of in found.items()}
                    for measure in (relative_error, greatest_error)
                )
                del found, exact, again, forwards
                variants = {"ours": case.ours, **{name: case.theirs(which) for name, which in peers.items()}}
                parts = {
                    name: partial(program.launch, given)
                    for name, (program, given) in zip(("delta", "dq", "dk, dv"), case.calls, strict=True)
                }
                seconds = timer.medians({**variants, **parts})
                best = min(seconds[name] for name in peers)
                flops = 10 * shape[0] * shape[1] * shape[2] ** 2 * width / (2 if causal else 1)
                rows.append({
                    "case": f"{shape[0]}x{shape[1]}x{shape[2]}x{kind}",
                    "microseconds": {name: round(s * 1e6, 1) for name, s in seconds.items()},
                    "tflops": {name: round(flops / seconds[name] / 1e12, 1) for name in variants},
                    "of_peer": round(best / seconds["ours"], 3),
                    "of_flash": round(seconds["flash"] / seconds["ours"], 3),
                    "errors": errors,
                    "greatest_errors": greatest,
                    "deterministic": same,
                })  # fmt: skip
                print(rows[-1]["case"], rows[-1]["microseconds"], rows[-1]["of_peer"], rows[-1]["of_flash"], flush=True)
                torch.cuda.empty_cache()
    write(document(torch, conditions=timer.conditions(), rows=rows), args.json)


if __name__ == "__main__":
    given = parser(__doc__, "kinds whose name has this", rounds=9).parse_args()
    build(given.only) if given.what == "build" else run(given)
