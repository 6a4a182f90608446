"""What a launch of packed attention costs beside a dense one, by who judges its offsets.

Build where the compiler is, run where the GPU is (numpy, cuda-bindings and torch suffice there):

    python benchmarks/varlen_launches.py build
    python benchmarks/varlen_launches.py run --rounds 31 --json benchmarks/results/varlen_launches.json

128 rows of one head, all of them in one of the many sequences that a grid over so many has; then the cases of
``varlen.py``. Ways:

    judged     each CTA judges the offsets and hands the gate on in shared memory: the compiler's
    registers  each CTA judges them, and every thread keeps the gate in a register
    unjudged   nobody does, and programs are dealt out beforehand: no gate is proved
    before     an artifact of another version of the compiler, ``varlen_launch_before.twb``, if it is there

All give the bits of the dense kernel, outputs poisoned first. Times are those of ``harness.py`` (L2 flushed, which
holds the kernels' texts, too), and, for the small ones, also without the flush.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from itertools import accumulate
from typing import Any

import interior
import varlen
from harness import Timer, document, load, parser, relative_error, store, write

COUNTS = (1, 16, 64, 256, 1024)
WAYS = ("judged", "registers", "unjudged")


def build(only: str) -> None:
    """Our kernels, one for each way, and the dense one."""
    from tilewright.compiler import index_promises, products
    from tilewright.ops import kernels
    from tilewright.schedule.hopper import promise_gate

    rows = {"q": "bf16", "k": "bf16", "v": "bf16", "o": "bf16"}
    absent: dict[str, Any] = dict.fromkeys(("sinks", "lse", "q_used", "k_used"))
    kernel = kernels.varlen_attention(varlen.WIDTH)
    dtypes = {"q_offsets": "i32", "k_offsets": "i32", **rows}
    kept = promise_gate.chained, index_promises.promises_of, products.require_gate
    for way in WAYS:
        if way == "registers":
            promise_gate.chained = lambda _: False  # type: ignore
        if way == "unjudged":
            index_promises.promises_of, products.require_gate = lambda _: (), lambda *_: ()  # type: ignore
        if only in way:
            made, seconds = store(
                f"varlen_launch_{way}", lambda **o: interior.anew(kernel, **o), dtypes=dtypes, causal=True, **absent
            )
            print(f"{way}: {seconds:.1f} s", [(k.symbol, k.registers, k.spill_bytes) for k in made.kernels], flush=True)
        promise_gate.chained, index_promises.promises_of, products.require_gate = kept
    store("varlen_dense", kernels.attention(varlen.WIDTH).compile, dtypes=rows, lse=None, causal=True)


def checked(torch: Any, given: dict[str, Any], wanted: Any) -> tuple[dict[str, Callable[[], None]], dict[str, float]]:
    """Every way that was built, and how far its result is from what is ``wanted``, if that is known."""
    found, errors = dict[str, Callable[[], None]](), dict[str, float]()
    for way in (*WAYS, "before"):
        program = load(f"varlen_launch_{way}")
        if program is not None:
            found[way] = varlen.launch(program, given)
            given["o"].fill_(float("nan"))
            found[way]()
            torch.cuda.synchronize()
            wanted = given["o"].clone() if wanted is None else wanted
            errors[way] = relative_error(given["o"], wanted)
    return found, errors


def small(torch: Any, timer: Timer, count: int) -> dict[str, Any]:
    """A launch over so many sequences, beside the dense one."""
    given: dict[str, Any] = {x: torch.randn(128, 1, varlen.WIDTH, device="cuda").bfloat16() for x in "qkvo"}
    dense = {x: given[x].view(1, 128, 1, varlen.WIDTH).transpose(1, 2).contiguous() for x in "qkv"}
    shape = (1, 128, 1, varlen.WIDTH)
    alone = varlen.launch(load("varlen_dense"), {**dense, "o": given["o"].view(shape), "scale": varlen.SCALE})
    alone()
    wanted = given["o"].clone()
    offsets = torch.full((count + 1,), 128, dtype=torch.int32, device="cuda")
    offsets[: count // 2 + 1] = 0
    given |= {"q_offsets": offsets, "k_offsets": offsets, "scale": varlen.SCALE}
    ways, errors = checked(torch, given, wanted)
    seconds = timer.medians({**ways, "dense": alone})
    flush, timer.flush = timer.flush, torch.empty(1, device="cuda")
    warm = timer.medians({**ways, "dense": alone})
    timer.flush = flush
    row = {"groups": count, "error": errors}
    row |= {"microseconds": {n: round(s * 1e6, 2) for n, s in seconds.items()}}
    return {**row, "not_flushed": {n: round(s * 1e6, 2) for n, s in warm.items()}}


def run(args: argparse.Namespace) -> None:
    """Check and time all; print rows and write JSON."""
    import torch

    torch.manual_seed(0)
    timer, launches, rows = Timer(torch, args.rounds), list[dict[str, Any]](), list[dict[str, Any]]()

    def written() -> None:
        write(document(torch, **timer.conditions(), launches=launches, rows=rows), args.json)

    for count in COUNTS if args.only in "launches" else ():
        launches.append(small(torch, timer, count))
        print(json.dumps(launches[-1]), flush=True)
        written()
    for name, sequences in varlen.lengths().items():
        if args.only not in name:
            continue
        offsets = torch.tensor([0, *accumulate(sequences)], dtype=torch.int32, device="cuda")
        shape = (sum(sequences), varlen.HEADS, varlen.WIDTH)
        given: dict[str, Any] = {x: torch.randn(shape, device="cuda").bfloat16() for x in "qkvo"}
        given |= {"q_offsets": offsets, "k_offsets": offsets, "scale": varlen.SCALE}
        ways, errors = checked(torch, given, None)
        seconds = timer.medians({**ways, **varlen.dense(torch, given, sequences)})
        us = {n: round(s * 1e6, 1) for n, s in seconds.items()}
        rows.append({"case": name, "apart": errors, "microseconds": us})
        print(json.dumps(rows[-1]), flush=True)
        written()
        del given, ways
        torch.cuda.empty_cache()


if __name__ == "__main__":
    arguments = parser(__doc__, "ways, or cases, whose names contain this").parse_args()
    build(arguments.only) if arguments.what == "build" else run(arguments)
