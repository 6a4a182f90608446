"""Attention over packed sequences beside PyTorch's varlen_attn and a loop of cuDNN calls, on one GPU.

Build where the compiler is, run where the GPU is (numpy, cuda-bindings and torch suffice there):

    python benchmarks/varlen.py build
    python benchmarks/varlen.py run --json benchmarks/results/varlen.json

Causal, bf16, 16 heads of 128 elements over as many of keys. Timed as ``harness.py`` says; a time of ours is that of all
launches: the check of the offsets, and the kernel. ``packed`` has rows of several sequences in a tile, behind the
kernel that finds each row's place. ``dense`` is our attention over sequences of one length, ``copy`` moves as many
bytes as q, k, v and the result have. Results are compared with float64, and are NaN before each check.
"""

from __future__ import annotations

import argparse
import inspect
import json
import random
from collections.abc import Callable
from itertools import accumulate, pairwise
from typing import Any

from harness import Timer, document, load, parser, relative_error, store, write

HEADS, WIDTH = 16, 128
SCALE = WIDTH**-0.5


def lengths() -> dict[str, list[int]]:
    """The sequences of each case."""
    drawn = random.Random(0)
    return {
        "uniform 32x1024": [1024] * 32,
        "skew": [16384, 8192, 2048, *[384] * 16],
        "mixed 64": [drawn.randint(1, 4096) for _ in range(64)],
        "short 512x(1..128)": [drawn.randint(1, 128) for _ in range(512)],
    }


# -- our kernels ------------------------------------------------------------------------------------------------------
def build(only: str) -> None:
    """Compile every kernel to an artifact."""
    from tilewright.ops import kernels

    rows = {"q": "bf16", "k": "bf16", "v": "bf16", "o": "bf16"}
    absent: dict[str, Any] = {"sinks": None, "lse": None, "causal": True}
    wanted: dict[str, tuple[Any, dict[str, str], dict[str, Any]]] = {
        "varlen": (
            kernels.varlen_attention(WIDTH),
            {"q_offsets": "i32", "k_offsets": "i32", **rows},
            {**absent, "q_used": None, "k_used": None},
        ),
        "varlen_packed": (
            kernels.packed_attention(WIDTH),
            {"offsets": "i32", "before": "i32", "behind": "i32", **rows},
            absent,
        ),
        "varlen_packed_64": (
            kernels.packed_attention(WIDTH),
            {"offsets": "i32", "before": "i32", "behind": "i32", **rows},
            {**absent, "bq": 64},
        ),
        "varlen_places": (kernels.sequence_places, {"offsets": "i32", "before": "i32", "behind": "i32"}, {}),
        "varlen_dense": (kernels.attention(WIDTH), rows, {"lse": None, "causal": True}),
    }
    for name, (kernel, dtypes, keywords) in wanted.items():
        if only in name:
            _, seconds = store(name, kernel.compile, dtypes=dtypes, **keywords)
            print(f"{name}: {seconds:.2f} s", flush=True)


def launch(program: Any, given: dict[str, Any]) -> Callable[[], None]:
    """One of our kernels with its arguments by name."""
    values = tuple(given[p.name] for p in program.artifact.parameters)
    return lambda: program.launch(values)


def ours(given: dict[str, Any], sequences: list[int]) -> dict[str, Callable[[], object]]:
    """Our kernels over one batch; tiles of several sequences have as many rows as the operator takes."""
    found: dict[str, Callable[[], object]] = {}
    short = sum(sequences) <= 96 * len(sequences)
    whole, packed, places = load("varlen"), load("varlen_packed" + "_64" * short), load("varlen_places")
    found["ours"] = launch(whole, given)
    place, attend = launch(places, given), launch(packed, given)

    def both() -> None:
        place()
        attend()

    return {**found, "packed": both}


def dense(torch: Any, given: dict[str, Any], sequences: list[int]) -> dict[str, Callable[[], object]]:
    """Our dense attention, where all sequences are of one length."""
    if len(set(sequences)) > 1:
        return {}
    shape = (len(sequences), sequences[0], HEADS, WIDTH)
    tensors = {n: given[n].view(shape).transpose(1, 2).contiguous() for n in ("q", "k", "v")}
    tensors["o"] = given["o"].view(shape)
    return {"dense": launch(load("varlen_dense"), {**tensors, "scale": SCALE})}


# -- peers ------------------------------------------------------------------------------------------------------------
def peers(torch: Any, given: dict[str, Any], sequences: list[int]) -> dict[str, Callable[[], object]]:
    """PyTorch's varlen_attn, cuDNN once for each sequence of a few, and a copy of as many bytes."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.attention.varlen import varlen_attn

    q, k, v = (given[n] for n in "qkv")
    offsets, longest = given["q_offsets"], max(sequences)
    flag = "is_causal" in inspect.signature(varlen_attn).parameters
    options: dict[str, Any] = {"is_causal": True} if flag else {"window_size": (-1, 0)}
    bounds = [0, *accumulate(sequences)]
    parts = [tuple(x[low:high].transpose(0, 1)[None] for x in (q, k, v)) for low, high in pairwise(bounds)]

    def loop() -> None:
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            for part in parts:
                torch.nn.functional.scaled_dot_product_attention(*part, is_causal=True)

    source = torch.empty((2, *q.shape), dtype=q.dtype, device=q.device)
    target = torch.empty_like(source)
    found: dict[str, Callable[[], object]] = {
        "varlen_attn": lambda: varlen_attn(q, k, v, offsets, offsets, longest, longest, **options),
        "copy": lambda: target.copy_(source),
    }
    return {**found, "cudnn_loop": loop} if len(sequences) <= 64 else found


def exact(torch: Any, given: dict[str, Any], sequences: list[int]) -> Any:
    """The answer in float64, a head of a sequence at a time where it is long."""
    q, k, v = (given[n].double().transpose(0, 1) for n in "qkv")
    found = torch.empty_like(q)
    low = 0
    for length in sequences:
        part = slice(low, low + length)
        seen = torch.ones(length, length, dtype=torch.bool, device=q.device).tril()
        heads = HEADS if length <= 2048 else 1
        for h in range(0, HEADS, heads):
            x = q[h : h + heads, part] @ k[h : h + heads, part].transpose(1, 2) * SCALE
            found[h : h + heads, part] = x.masked_fill_(~seen, -torch.inf).softmax(-1) @ v[h : h + heads, part]
        low += length
    return found.transpose(0, 1)


def launches(torch: Any, timer: Timer) -> list[dict[str, Any]]:
    """What a launch over offsets costs beside a dense one of ours: 128 rows of one head, all of them in one of the many
    sequences that a grid over so many has."""
    attend, whole = load("varlen"), load("varlen_dense")
    given: dict[str, Any] = {x: torch.randn(128, 1, WIDTH, device="cuda").bfloat16() for x in "qkvo"}
    tensors = {x: given[x].view(1, 128, 1, WIDTH).transpose(1, 2).contiguous() for x in "qkv"}
    alone = launch(whole, {**tensors, "o": given["o"].view(1, 128, 1, WIDTH), "scale": SCALE})
    alone()
    wanted, found = given["o"].clone(), list[dict[str, Any]]()
    for count in (1, 16, 64, 256, 1024):
        offsets = torch.full((count + 1,), 128, dtype=torch.int32, device="cuda")
        offsets[: count // 2 + 1] = 0
        over = launch(attend, {**given, "q_offsets": offsets, "k_offsets": offsets, "scale": SCALE})
        given["o"].fill_(float("nan"))
        over()
        error = relative_error(given["o"], wanted)
        seconds = timer.medians({"ours": over, "dense": alone})
        us = {name: round(s * 1e6, 2) for name, s in seconds.items()}
        found.append({"groups": count, "error": error, "microseconds": us})
        print("a launch", json.dumps(found[-1]), flush=True)
    return found


def run(args: argparse.Namespace) -> None:
    """Check and time every case; print a table and write JSON."""
    import torch

    timer, rows = Timer(torch, args.rounds), list[dict[str, Any]]()
    overhead = launches(torch, timer) if args.only in "launches" else []
    for name, sequences in lengths().items():
        if args.only not in name:
            continue
        torch.manual_seed(0)
        total = sum(sequences)
        offsets = torch.tensor([0, *accumulate(sequences)], dtype=torch.int32, device="cuda")
        given: dict[str, Any] = {x: torch.randn(total, HEADS, WIDTH, device="cuda").bfloat16() for x in "qkv"}
        given |= dict.fromkeys(("offsets", "q_offsets", "k_offsets"), offsets)
        given |= {x: torch.zeros(total, dtype=torch.int32, device="cuda") for x in ("before", "behind")}
        given |= {"o": torch.empty_like(given["q"]), "scale": SCALE}
        wanted, errors = exact(torch, given, sequences), dict[str, float]()
        mine, theirs = ours(given, sequences), peers(torch, given, sequences)
        for variant, run_it in mine.items():
            given["o"].fill_(float("nan"))
            run_it()
            torch.cuda.synchronize()
            errors[variant] = relative_error(given["o"], wanted)
        errors["varlen_attn"] = relative_error(theirs["varlen_attn"](), wanted)
        del wanted
        torch.cuda.empty_cache()
        seconds = timer.medians({**mine, **dense(torch, given, sequences), **theirs})
        flops = 2 * HEADS * WIDTH * sum(n * n for n in sequences)
        best = min(seconds[variant] for variant in mine)
        row = {
            "case": name,
            "rows": total,
            "microseconds": {variant: round(s * 1e6, 2) for variant, s in seconds.items()},
            "tflops": round(flops / best * 1e-12, 1),
            "of": {n: round(s / best, 3) for n, s in seconds.items() if n not in mine},
            "error": errors,
        }
        rows.append(row)
        print(name, json.dumps(row["microseconds"]), row["tflops"], "TFLOP/s", json.dumps(row["of"]),
              json.dumps({n: f"{e:.1e}" for n, e in errors.items()}), flush=True)  # fmt: skip
        del given, mine, theirs
        torch.cuda.empty_cache()
    write(document(torch, **timer.conditions(), launches=overhead, rows=rows), args.json)


if __name__ == "__main__":
    arguments = parser(__doc__, "cases whose names contain this").parse_args()
    build(arguments.only) if arguments.what == "build" else run(arguments)
