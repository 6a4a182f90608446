"""Full attention and its gradients in several orders of programs beside cuDNN, on one GPU.

    python benchmarks/attention_orders.py build --jobs 16
    python benchmarks/attention_orders.py run --json benchmarks/results/attention_orders.json

``heads``: one head after the other; ``bands of n``: of n heads at a time the same queries, then their next ones. L2
flushed, order rotated, medians; every order must give the same bits, errors against float64 beside cuDNN's.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import product
from typing import Any
from unittest.mock import patch

import attention_backward as backward
from harness import ARTIFACTS, Timer, document, greatest_error, load, parser, relative_error, store, write

ORDERS = {"heads": None, "bands of 2": 2, "bands of 4": 4, "bands of 16": 16}
WIDTHS = (128, 64)
LENGTHS = (512, 1024, 2048, 4096, 16384)
BACKWARDS = ((4, 16, 4096), (1, 16, 16384))
TOKENS, CHANNELS = 16384, 2048


def artifacts(width: int, order: str) -> tuple[str, str, str]:
    """Names of forward and gradients in one order."""
    kinds = ("forward", "query_gradient", "key_gradients")
    return tuple(f"orders_{kind}_{width}_{order.replace(' ', '_')}" for kind in kinds)  # type: ignore[return-value]


def compiled(width: int, order: str, kind: int) -> str:
    """Compiles one kernel in one order, in a process of its own."""
    import attention

    from tilewright.ops import kernels
    from tilewright.schedule.hopper import lower

    chosen = lower.program_order

    def ordered(*given: Any, **more: Any) -> Any:
        return replace(chosen(*given, **more), group=ORDERS[order])

    sums = {**dict.fromkeys(("do", "q", "k", "v"), "bf16"), "lse": "f32", "delta": "f32"}
    kernel, dtypes = (
        (attention.forward(width), dict.fromkeys("qkvo", "bf16")),
        (kernels.attention_query_gradient(width), {**sums, "dq": "bf16"}),
        (kernels.attention_key_gradients(width), {**sums, "dk": "bf16", "dv": "bf16"}),
    )[kind]
    name = artifacts(width, order)[kind]
    os.environ["TILEWRIGHT_STORE"] = str(ARTIFACTS / name)  # of the compiler as it is patched here
    with patch.object(lower, "program_order", ordered):
        _, seconds = store(name, kernel.compile, target="sm_90a", dtypes=dtypes, causal=False)
    return f"{name}: {seconds:.1f} s"


def build(only: str, jobs: int) -> None:
    """Every kernel in every order, and the deltas of gradients."""
    backward.build("delta")
    asked = [key for key in product(WIDTHS, ORDERS, range(3)) if only in artifacts(key[0], key[1])[key[2]]]
    with ProcessPoolExecutor(jobs, max_tasks_per_child=1) as pool:
        for text in pool.map(compiled, *zip(*asked, strict=True)):
            print(text, flush=True)


def forward(torch: Any, timer: Timer, width: int, length: int) -> dict[str, Any]:
    """Times of all orders and cuDNN, bits, and errors of a head of each batch."""
    shape = (max(1, TOKENS // length), CHANNELS // width, length, width)
    torch.manual_seed(0)
    q, k, v = (torch.randn(shape, device="cuda").bfloat16() for _ in range(3))
    o, results, launches = torch.full_like(q, float("nan")), dict[str, Any](), dict[str, Callable[[], Any]]()
    named = {"q": q, "k": k, "v": v, "o": o, "scale": width**-0.5}
    for order in ORDERS:
        program = load(artifacts(width, order)[0])
        launches[order] = lambda p=program, n=named: p.launch(n)
        o.fill_(float("nan"))
        launches[order]()
        results[order] = o.clone()
    sdpa, backends = torch.nn.functional.scaled_dot_product_attention, torch.nn.attention

    def peer() -> Any:
        with backends.sdpa_kernel(backends.SDPBackend.CUDNN_ATTENTION):
            return sdpa(q, k, v)

    theirs = peer()[:, :1]
    x = (q[:, :1].double() @ k[:, :1].double().mT * width**-0.5).softmax(-1)
    exact = x @ v[:, :1].double()
    del x
    errors = {"ours": relative_error(results["heads"][:, :1], exact), "cudnn": relative_error(theirs, exact)}
    greatest = {"ours": greatest_error(results["heads"][:, :1], exact), "cudnn": greatest_error(theirs, exact)}
    same = all(torch.equal(r, results["heads"]) for r in results.values())
    del results, exact, theirs
    seconds = timer.medians({**launches, "cudnn": peer})
    return row(f"attention full {'x'.join(map(str, shape))}", seconds, same, errors, greatest)


def gradients(torch: Any, timer: Timer, width: int, shape: tuple[int, int, int]) -> dict[str, Any]:
    """The same of a backward's three launches; errors are in ``attention_backward.json``."""
    launches, results = dict[str, Callable[[], Any]](), dict[str, Any]()
    delta = load(f"attention_delta_{width}")
    for order in ORDERS:
        programs = (delta, *(load(name) for name in artifacts(width, order)[1:]))
        case = backward.Case(torch, programs, (*shape, width), causal=False)
        case.ours()
        launches[order], results[order] = case.ours, [t.clone() for t in case.results]
        launches["cudnn"] = case.theirs(torch.nn.attention.SDPBackend.CUDNN_ATTENTION)
    same = all(torch.equal(a, b) for r in results.values() for a, b in zip(r, results["heads"], strict=True))
    del results
    return row(f"gradients full {'x'.join(map(str, (*shape, width)))}", timer.medians(launches), same, {}, {})


def row(name: str, seconds: dict[str, float], same: bool, errors: Any, greatest: Any) -> dict[str, Any]:
    """What a case leaves behind."""
    us = {order: round(s * 1e6, 1) for order, s in seconds.items()}
    of_peer = {order: round(us["cudnn"] / t, 3) for order, t in us.items()}
    found = {"case": name, "microseconds": us, "of_peer": of_peer, "same_bits": same}
    return {**found, **({"errors": errors, "greatest_errors": greatest} if errors else {})}


def run(args: argparse.Namespace) -> None:
    import torch

    timer, rows = Timer(torch, args.rounds), list[dict[str, Any]]()
    cases = (
        *((forward, width, length) for width in WIDTHS for length in LENGTHS),
        *((gradients, width, shape) for width in WIDTHS for shape in BACKWARDS),
    )
    for measure, width, size in cases:
        rows.append(measure(torch, timer, width, size))
        print(json.dumps(rows[-1]), flush=True)
        write(document(torch, **timer.conditions(), rows=rows), args.json)
        torch.cuda.empty_cache()


def main() -> None:
    made = parser(__doc__, "kernels to build whose name contains this")
    made.add_argument("--jobs", type=int, default=2)
    args = made.parse_args()
    build(args.only, args.jobs) if args.what == "build" else run(args)


if __name__ == "__main__":
    main()
