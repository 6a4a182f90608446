"""Matrix products and attention against cuBLAS and cuDNN, gate and up against torch.compile, on one GPU.

    python benchmarks/products.py build
    python benchmarks/products.py run --json benchmarks/results/products.json

One artifact per kernel serves all shapes. Order of variants rotated every round, L2 flushed before every launch, normal
random data, medians; errors against float64 beside the peer's own (of attention those of each batch's first head).
"""

# Dimension names are strings in annotations, which type checkers take for forward references.
# ruff: noqa: F821, UP037

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from itertools import product
from typing import Any

from harness import Timer, document, greatest_error, load, parser, relative_error, store, write

MATMULS = (
    (4096, 4096, 4096, 0.95),
    (8192, 8192, 8192, 0.95),
    (4096, 14336, 4096, 0.95),
    (8000, 8000, 8000, 0.95),
    (5000, 5000, 5000, 0.90),
    (2048, 5120, 5120, 0.90),
    (4100, 4100, 4100, 2.0),
    (64, 4096, 4096, 0.0),
    (1000, 2880, 2880, 0.0),
    (512, 4096, 4096, 1.05),
    (256, 4096, 11008, 1.05),
    (1024, 1024, 1024, 1.0),
    (128, 8192, 8192, 1.1),
    (128, 128, 65536, 1.1),
    (384, 384, 4096, 0.0),
    (512, 512, 16384, 0.0),
    (300, 5000, 5000, 0.0),
    (1, 8192, 8192, 1.05),
    (16, 8192, 8192, 1.05),
    (32, 8192, 8192, 0.0),
    (64, 8192, 8192, 1.05),
    (1, 57344, 7168, 0.0),
)
"""M, N, K and the goal as a share of cuBLAS."""

GATES = ((4096, 14336, 4096, 1.05), (128, 2048, 8192, 0.0), (16, 4096, 4096, 0.0))
"""M, N, K of silu(a w) * (a v), and the goal as a share of torch.compile."""

ATTENTIONS = (
    *(
        (max(1, 16384 // length), 2048 // width, length, width, causal, goal)
        for width, causal, goal in (
            (128, False, 0.98),
            (128, True, 1.05),
            (64, False, 1.05),
            (64, True, 1.08),
        )
        for length in (512, 1024, 2048, 4096, 16384)
    ),
    (4, 16, 1000, 128, True, 0.0),
)
"""Batch, heads, length, head dimension, causal, and the goal as a share of cuDNN."""

NUMERICS = ("accurate", "strict")
"""Policies of the kernel: ``accurate`` contracts the scale, the maximum and the exponential to one multiply-add."""


def build(only: str) -> None:
    """Compile the kernels to artifacts: one for aligned matmuls, one for rows of odd pitch, one per attention kind."""
    import attention
    import matmul

    from tilewright.base.dtypes import bf16
    from tilewright.compiler.requests import Observed, observe_facts
    from tilewright.diag import TilewrightError

    def built(name: str, kernel: Any, **options: Any) -> None:
        if only not in name:
            return
        try:
            artifact, seconds = store(name, kernel.compile, **options)
        except TilewrightError as error:
            print(f"{name}: refused: {error.diagnostics[0].found}")
            return
        print(f"{name}: {seconds:.2f} s", *artifact.plan, sep="\n    ")

    bf16s = dict.fromkeys("abc", "bf16")
    built("matmul", matmul.matmul, dtypes=bf16s)
    odd = {n: Observed(bf16, 0, (4100, 4100), (4100, 1)) for n in bf16s}
    built("matmul_odd", matmul.matmul, dtypes=bf16s, facts=observe_facts(odd))
    built("gate", gate_kernel(), dtypes=dict.fromkeys("awvc", "bf16"))
    for width, causal, numerics in product((128, 64), (False, True), NUMERICS):
        name = attention_name(width, numerics, causal=causal)
        built(name, attention.forward(width, numerics), dtypes=dict.fromkeys("qkvo", "bf16"), causal=causal)


def gate_kernel() -> Any:
    """silu(a w) * (a v): two products side by side, and their epilogue."""
    import tilewright as tw

    @tw.kernel
    def gate(
        a: tw.Tensor["M", "K"],
        w: tw.Tensor["N", "K"],
        v: tw.Tensor["N", "K"],
        c: tw.Tensor["M", "N"],
        *,
        bm=tw.auto,
        bn=tw.auto,
    ):
        m, n = tw.grid(c, (bm, bn))
        g, u = tw.zeros((m, n), tw.f32), tw.zeros((m, n), tw.f32)
        for k in tw.stream(a.shape[1], 64):
            x = a[m, k]
            g += tw.dot(x, w[n, k].T)
            u += tw.dot(x, v[n, k].T)
        c[m, n] = g * tw.sigmoid(g) * u

    return gate


def attention_name(width: int, numerics: str, *, causal: bool) -> str:
    """The artifact of one kind of attention."""
    return f"attention_{width}_{numerics}{'_causal' if causal else ''}"


def run(args: argparse.Namespace) -> None:
    """Check and time every case; print a table and write JSON."""
    import torch

    timer, rows = Timer(torch, args.rounds), list[dict[str, Any]]()
    for m, n, k, goal in MATMULS:
        program = load("matmul" if n % 8 == 0 and k % 8 == 0 else "matmul_odd")
        if program is None or "matmul" not in (args.only or "matmul"):
            continue
        torch.manual_seed(0)
        a, b = (torch.randn(s, device="cuda").bfloat16() for s in ((m, k), (n, k)))
        c = torch.full((m, n), float("nan"), device="cuda", dtype=torch.bfloat16)
        values = (a, b, c)
        rows.append(case(timer, f"matmul {m}x{n}x{k}", 2.0 * m * n * k, goal, "cublas",
                         lambda p=program, v=values: p.launch(v), lambda a=a, b=b: torch.matmul(a, b.t()),
                         lambda c=c: c, a.double() @ b.double().t()))  # fmt: skip
    program = load("gate")
    for m, n, k, goal in GATES if program is not None and "gate" in (args.only or "gate") else ():
        torch.manual_seed(0)
        a, w, v_ = (torch.randn(s, device="cuda").bfloat16() for s in ((m, k), (n, k), (n, k)))
        c = torch.full((m, n), float("nan"), device="cuda", dtype=torch.bfloat16)
        values = (a, w, v_, c)
        fused = torch.compile(lambda a, w, v: torch.nn.functional.silu(a @ w.t()) * (a @ v.t()))
        gate = a.double() @ w.double().t()
        rows.append(case(timer, f"gate {m}x{n}x{k}", 4.0 * m * n * k, goal, "compile",
                         lambda p=program, v=values: p.launch(v), lambda f=fused, v=values: f(*v[:3]),
                         lambda c=c: c, torch.nn.functional.silu(gate) * (a.double() @ v_.double().t())))  # fmt: skip
    for (batch, heads, length, width, causal, goal), numerics in product(ATTENTIONS, NUMERICS):
        program = load(attention_name(width, numerics, causal=causal))
        if program is None or "attention" not in (args.only or "attention"):
            continue
        torch.manual_seed(0)
        q, k_, v = (torch.randn(batch, heads, length, width, device="cuda").bfloat16() for _ in range(3))
        o = torch.full_like(q, float("nan"))
        scale = width**-0.5
        named = {"q": q, "k": k_, "v": v, "o": o, "scale": scale}
        values = tuple(named[p.name] for p in program.artifact.parameters)
        flops = 4.0 * batch * heads * length * length * width * (0.5 if causal else 1.0)

        def peer(q: Any = q, k: Any = k_, v: Any = v, causal: bool = causal) -> Any:
            with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.CUDNN_ATTENTION):
                return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            heads64 = (t[:, :1].double() for t in (q, k_, v))
            exact = torch.nn.functional.scaled_dot_product_attention(*heads64, is_causal=causal)
        kind = f"{'causal' if causal else 'full'}{' strict' if numerics == 'strict' else ''}"
        rows.append(case(timer, f"attention {kind} {batch}x{heads}x{length}x{width}", flops, goal,
                         "cudnn", lambda p=program, v=values: p.launch(v), peer, lambda o=o: o, exact,
                         first=True))  # fmt: skip
    write(document(torch, **timer.conditions(), rows=rows), args.json)


def case(
    timer: Timer,
    name: str,
    flops: float,
    goal: float,
    peer_name: str,
    ours: Callable[[], object],
    peer: Callable[[], Any],
    output: Callable[[], Any],
    exact: Any,
    *,
    first: bool = False,
) -> dict[str, Any]:
    """One row: errors of both against ``exact``, with ``first`` that of each batch's first head, and their times."""
    ours()
    timer.torch.cuda.synchronize()
    found, theirs = (x[:, :1] if first else x for x in (output(), peer()))
    error, peer_error = relative_error(found, exact), relative_error(theirs, exact)
    greatest = greatest_error(found, exact), greatest_error(theirs, exact)
    del found, theirs, exact
    seconds = timer.medians({"ours": ours, peer_name: peer})
    row = {
        "case": name,
        "tflops": {k: round(flops / s * 1e-12, 1) for k, s in seconds.items()},
        "of_peer": round(seconds[peer_name] / seconds["ours"], 3),
        "goal_of_peer": goal,
        "error": error,
        "peer_error": peer_error,
        "greatest_errors": greatest,
    }
    print(name, json.dumps(row["tflops"]), row["of_peer"], f"error {error:.2e} / {peer_error:.2e}", flush=True)
    timer.torch.cuda.empty_cache()
    return row


def main() -> None:
    args = parser(__doc__, "cases whose name contains this").parse_args()
    build(args.only) if args.what == "build" else run(args)


if __name__ == "__main__":
    main()
