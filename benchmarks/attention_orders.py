"""Attention and its gradients in several orders of programs beside cuDNN, on one GPU.

    python benchmarks/attention_orders.py build --jobs 16
    python benchmarks/attention_orders.py run --json benchmarks/results/attention_orders.json

``heads``: one head after the other; ``bands of n``: of n heads at a time the same queries, then their next ones, under
a causal mask the longest programs of a band first. L2 flushed, order rotated, medians; every order must give the same
bits, errors against float64 beside cuDNN's. ``--only full`` or ``causal``; rows of the other are kept.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import patch

import attention_backward as backward
from harness import ARTIFACTS, Timer, document, greatest_error, load, parser, relative_error, store, write

KINDS = ("full", "causal")
ORDERS: dict[str, dict[str, int | None]] = {
    "full": {"heads": None, "bands of 2": 2, "bands of 4": 4, "bands of 16": 16},
    "causal": {"heads": 1} | {f"bands of {n}": n for n in (2, 4, 8, 16, 33, 132)},
}
"""Heads of a band; 33 is what causal attention has on a GPU of 132 SMs."""
WIDTHS = (128, 64)
LENGTHS = (512, 1024, 2048, 4096, 16384)
BACKWARDS = ((4, 16, 4096), (1, 16, 16384))
TOKENS, CHANNELS = 16384, 2048


def artifacts(mask: str, width: int, order: str) -> tuple[str, str, str]:
    """Names of forward and gradients in one order."""
    kinds = ("forward", "query_gradient", "key_gradients")
    end = f"{mask}_{width}_{order.replace(' ', '_')}"
    return tuple(f"orders_{kind}_{end}" for kind in kinds)  # type: ignore[return-value]


def compiled(mask: str, width: int, order: str, kind: int) -> str:
    """Compiles one kernel in one order, in a process of its own."""
    import attention

    from tilewright.ops import kernels
    from tilewright.schedule.hopper import lower

    chosen = lower.program_order

    def ordered(*given: Any, **more: Any) -> Any:
        return replace(chosen(*given, **more), group=ORDERS[mask][order])

    sums = {**dict.fromkeys(("do", "q", "k", "v"), "bf16"), "lse": "f32", "delta": "f32"}
    kernel, dtypes = (
        (attention.forward(width), dict.fromkeys("qkvo", "bf16")),
        (kernels.attention_query_gradient(width), {**sums, "dq": "bf16"}),
        (kernels.attention_key_gradients(width), {**sums, "dk": "bf16", "dv": "bf16"}),
    )[kind]
    name = artifacts(mask, width, order)[kind]
    os.environ["TILEWRIGHT_STORE"] = str(ARTIFACTS / name)  # of the compiler as it is patched here
    with patch.object(lower, "program_order", ordered):
        _, seconds = store(name, kernel.compile, target="sm_90a", dtypes=dtypes, causal=mask == "causal")
    return f"{name}: {seconds:.1f} s"


def build(only: str, jobs: int) -> None:
    """Every kernel in every order, and the deltas of gradients."""
    backward.build("delta")
    every = ((*one, kind) for mask in KINDS for one in product((mask,), WIDTHS, ORDERS[mask]) for kind in range(3))
    asked = [(mask, width, order, kind) for mask, width, order, kind in every
             if only in artifacts(mask, width, order)[kind]]  # fmt: skip
    with ProcessPoolExecutor(jobs, max_tasks_per_child=1) as pool:
        for text in pool.map(compiled, *zip(*asked, strict=True)):
            print(text, flush=True)


def forward(torch: Any, timer: Timer, mask: str, width: int, length: int) -> dict[str, Any]:
    """Times of all orders and cuDNN, bits, and errors of a head of each batch."""
    shape = (max(1, TOKENS // length), CHANNELS // width, length, width)
    torch.manual_seed(0)
    q, k, v = (torch.randn(shape, device="cuda").bfloat16() for _ in range(3))
    o, results, launches = torch.full_like(q, float("nan")), dict[str, Any](), dict[str, Callable[[], Any]]()
    named = {"q": q, "k": k, "v": v, "o": o, "scale": width**-0.5}
    for order in ORDERS[mask]:
        program = load(artifacts(mask, width, order)[0])
        launches[order] = lambda p=program, n=named: p.launch(n)
        o.fill_(float("nan"))
        launches[order]()
        results[order] = o.clone()
    sdpa, backends = torch.nn.functional.scaled_dot_product_attention, torch.nn.attention

    def peer() -> Any:
        with backends.sdpa_kernel(backends.SDPBackend.CUDNN_ATTENTION):
            return sdpa(q, k, v, is_causal=mask == "causal")

    theirs = peer()[:, :1]
    x = q[:, :1].double() @ k[:, :1].double().mT * width**-0.5
    if mask == "causal":
        x = x.masked_fill(~torch.ones(x.shape[-2:], dtype=torch.bool, device="cuda").tril(), float("-inf"))
    exact = x.softmax(-1) @ v[:, :1].double()
    del x
    errors = {"ours": relative_error(results["heads"][:, :1], exact), "cudnn": relative_error(theirs, exact)}
    greatest = {"ours": greatest_error(results["heads"][:, :1], exact), "cudnn": greatest_error(theirs, exact)}
    same = all(torch.equal(r, results["heads"]) for r in results.values())
    del results, exact, theirs
    seconds = timer.medians({**launches, "cudnn": peer})
    return row(f"attention {mask} {'x'.join(map(str, shape))}", seconds, same, errors, greatest)


def gradients(torch: Any, timer: Timer, mask: str, width: int, shape: tuple[int, int, int]) -> dict[str, Any]:
    """The same of a backward's three launches; errors are in ``attention_backward.json``."""
    launches, results = dict[str, Callable[[], Any]](), dict[str, Any]()
    delta = load(f"attention_delta_{width}")
    for order in ORDERS[mask]:
        programs = (delta, *(load(name) for name in artifacts(mask, width, order)[1:]))
        case = backward.Case(torch, programs, (*shape, width), causal=mask == "causal")
        case.ours()
        launches[order], results[order] = case.ours, [t.clone() for t in case.results]
        for part, (program, given) in zip(("dq", "dk, dv"), case.calls[1:], strict=True):
            launches[f"{order}, {part}"] = partial(program.launch, given)
        launches["cudnn"] = case.theirs(torch.nn.attention.SDPBackend.CUDNN_ATTENTION)
    same = all(torch.equal(a, b) for r in results.values() for a, b in zip(r, results["heads"], strict=True))
    del results
    return row(f"gradients {mask} {'x'.join(map(str, (*shape, width)))}", timer.medians(launches), same, {}, {})


def row(name: str, seconds: dict[str, float], same: bool, errors: Any, greatest: Any) -> dict[str, Any]:
    """What a case leaves behind."""
    us = {order: round(s * 1e6, 1) for order, s in seconds.items()}
    of_peer = {order: round(us["cudnn"] / t, 3) for order, t in us.items() if ", " not in order}
    found = {"case": name, "microseconds": us, "of_peer": of_peer, "same_bits": same}
    return {**found, **({"errors": errors, "greatest_errors": greatest} if errors else {})}


def run(args: argparse.Namespace) -> None:
    import torch

    path = Path(args.json) if args.json else None
    before = json.loads(path.read_text())["rows"] if path and path.exists() else []
    timer, rows = Timer(torch, args.rounds), list[dict[str, Any]]()
    cases = (
        *((forward, mask, width, length) for mask in KINDS for width in WIDTHS for length in LENGTHS),
        *((gradients, mask, width, shape) for mask in KINDS for width in WIDTHS for shape in BACKWARDS),
    )
    for measure, mask, width, size in cases:
        if args.only not in mask:
            continue
        rows.append(measure(torch, timer, mask, width, size))
        print(json.dumps(rows[-1]), flush=True)
        kept = [old for old in before if old["case"] not in {new["case"] for new in rows}]
        write(document(torch, **timer.conditions(), rows=[*kept, *rows]), args.json)
        torch.cuda.empty_cache()


def main() -> None:
    made = parser(__doc__, "kernels to build whose name contains this, or rows of this mask")
    made.add_argument("--jobs", type=int, default=2)
    args = made.parse_args()
    build(args.only, args.jobs) if args.what == "build" else run(args)


if __name__ == "__main__":
    main()
