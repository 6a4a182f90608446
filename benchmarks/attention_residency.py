"""Attention in tiles of 64 rows whose CTAs share an SM, beside what is chosen and cuDNN, on one GPU.

    python benchmarks/attention_residency.py build --jobs 16
    python benchmarks/attention_residency.py run --json benchmarks/results/attention_residency.json

A way is pinned past the compiler's candidates: consumer warpgroups of a CTA, CTAs of an SM, queries and keys of a step,
whether steps are software-pipelined. L2 flushed, order rotated, medians; results poisoned before, errors against
float64 of each batch's first head beside cuDNN's.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

from attention_orders import CHANNELS, KINDS, TOKENS
from harness import ARTIFACTS, Timer, document, greatest_error, load, parser, relative_error, store, write

LENGTHS = (512, 1024, 2048, 4096)


@dataclass(frozen=True)
class Way:
    """``consumers`` of a CTA, ``resident`` CTAs of an SM, a tile of queries by keys; ``chosen`` is the compiler's."""

    width: int
    consumers: int = 0
    resident: int = 0
    queries: int = 0
    keys: int = 0
    pipelined: bool = True
    by_heads: bool = False
    """Programs of a head come one after the other, as those of few lengths do, not in bands of heads."""

    def __str__(self) -> str:
        if not self.consumers:
            return "chosen"
        plain = ("" if self.pipelined else ", not pipelined") + (", by heads" if self.by_heads else "")
        return f"{self.queries} x {self.keys}, {self.resident} CTAs of {self.consumers}{plain}"

    def artifact(self, mask: str) -> str:
        """Its name."""
        return f"residency_{mask}_{self.width}_{str(self).replace(' ', '_').replace(',', '')}"


WAYS = (
    Way(64),
    Way(64, 1, 2, 64, 64),
    Way(64, 1, 2, 64, 96),
    Way(64, 1, 2, 64, 128),
    Way(64, 1, 3, 64, 64),
    Way(64, 1, 3, 64, 64, by_heads=True),
    Way(64, 1, 3, 64, 32),
    Way(64, 2, 1, 128, 128, by_heads=True),
    Way(64, 1, 3, 64, 96),
    Way(64, 2, 2, 128, 64, pipelined=False),
    Way(128),
    Way(128, 1, 2, 64, 64),
    Way(128, 1, 2, 64, 128),
)
REGISTERS = {(2, 2): (24, 104)}
"""Shares of a producer's and a consumer's thread that the compiler's table has not: of 3 x 80."""


def compiled(way: Way, mask: str) -> str:
    """Compiles one way in a process of its own."""
    import attention

    import tilewright as tw
    from tilewright.compiler import products
    from tilewright.schedule.hopper import lower
    from tilewright.schedule.hopper.candidate import Candidate

    def only(*_: Any) -> Iterator[Candidate]:
        whole = LENGTHS[0] % way.keys == 0
        yield Candidate(
            way.consumers,
            resident=way.resident,
            software_pipelined=way.pipelined,
            whole_steps=whole and way.pipelined,
            few_lengths=way.by_heads,
        )

    name, pins = way.artifact(mask), tw.Schedule()
    os.environ["TILEWRIGHT_STORE"] = str(ARTIFACTS / name)  # of the compiler as it is patched here
    lower.REGISTERS.update(REGISTERS)
    if way.consumers:
        products.candidates = only
        pins = tw.Schedule(extents={"bq": way.queries, "bk": way.keys})
    options = {"target": "sm_90a", "dtypes": dict.fromkeys("qkvo", "bf16"), "causal": mask == "causal"}
    try:
        _, seconds = store(name, attention.forward(way.width).compile, schedule=pins, **options)
    except tw.TilewrightError as error:
        return f"{name}: refused: {error.diagnostics[0].found[:200]}"
    return f"{name}: {seconds:.1f} s"


def build(only: str, jobs: int) -> None:
    """Every way, with and without a mask."""
    asked = [(way, mask) for mask in KINDS for way in WAYS if only in way.artifact(mask)]
    with ProcessPoolExecutor(jobs, max_tasks_per_child=1) as pool:
        for text in pool.map(compiled, *zip(*asked, strict=True)):
            print(text, flush=True)


def measured(torch: Any, timer: Timer, mask: str, width: int, length: int) -> dict[str, Any]:
    """Times and errors of all ways of one shape."""
    shape = (max(1, TOKENS // length), CHANNELS // width, length, width)
    torch.manual_seed(0)
    q, k, v = (torch.randn(shape, device="cuda").bfloat16() for _ in range(3))
    o, failed = torch.empty_like(q), dict[str, str]()
    named = {"q": q, "k": k, "v": v, "o": o, "scale": width**-0.5}
    sdpa, backends, causal = torch.nn.functional.scaled_dot_product_attention, torch.nn.attention, mask == "causal"

    def peer() -> Any:
        with backends.sdpa_kernel(backends.SDPBackend.CUDNN_ATTENTION):
            return sdpa(q, k, v, is_causal=causal)

    with backends.sdpa_kernel(backends.SDPBackend.MATH):
        exact = sdpa(*(x[:, :1].double() for x in (q, k, v)), is_causal=causal)
    launches: dict[str, Callable[[], Any]] = {"cudnn": peer}
    errors, greatest = ({"cudnn": of(peer()[:, :1], exact)} for of in (relative_error, greatest_error))
    for way in WAYS:
        program = load(way.artifact(mask)) if way.width == width else None
        if program is None:
            continue
        try:
            o.fill_(float("nan"))
            program.launch(named)
            errors[str(way)], greatest[str(way)] = (of(o[:, :1], exact) for of in (relative_error, greatest_error))
            launches[str(way)] = lambda p=program: p.launch(named)
        except Exception as error:  # a way that has no kernel for this length
            failed[str(way)] = str(error)[:200]
    us = {name: round(s * 1e6, 1) for name, s in timer.medians(launches).items()}
    return {
        "case": f"attention {mask} {'x'.join(map(str, shape))}",
        "microseconds": us,
        "of_peer": {name: round(us["cudnn"] / t, 3) for name, t in us.items()},
        "errors": errors,
        "greatest_errors": greatest,
        **({"failed": failed} if failed else {}),
    }


def run(args: argparse.Namespace) -> None:
    import torch

    timer, rows = Timer(torch, args.rounds), list[dict[str, Any]]()
    for mask, width, length in ((m, w, n) for m in KINDS[::-1] for w in (64, 128) for n in LENGTHS):
        rows.append(measured(torch, timer, mask, width, length))
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
