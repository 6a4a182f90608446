"""Whether the artifacts of products are right on shapes of all kinds, on one GPU.

    python benchmarks/products.py build
    python benchmarks/product_shapes.py --json benchmarks/results/product_shapes.json

One matmul artifact on 300 shapes with extents from 1 to 8192 and row pitches of any multiple of 16 bytes; attention on
lengths around its tiles, with keys so large that an unmasked exponential overflows. Outputs and what lies beyond the
edges are poisoned. An answer is right if its error against float64 is at most 5 % above cuBLAS's or cuDNN's, or below
the rounding of its dtype.
"""

from __future__ import annotations

import argparse
import json
import random
from itertools import product
from typing import Any

from harness import document, load, relative_error, write
from products import NUMERICS, attention_name

EXTENTS = (1, 7, 63, 64, 65, 127, 192, 1000, 2880, 4099)
ALWAYS = tuple(
    product((1, 16, 64, 65, 512, 1000, 4099, 8192), ((4099, 1000), (2880, 2880), (5000, 5000), (192, 64), (1000, 8)))
)
LENGTHS = (1, 127, 128, 129, 1000, 4096)
SHAPES, ROUNDING = 300, 5e-3


def shapes() -> list[tuple[int, int, int]]:
    """M, N, K: some always, the others drawn."""
    rest = list(product(EXTENTS, EXTENTS, EXTENTS))
    random.Random(1).shuffle(rest)
    found = [(m, n, k) for m, (n, k) in ALWAYS]
    return found + rest[: SHAPES - len(found)]


def padded(torch: Any, rows: int, columns: int) -> tuple[Any, Any]:
    """Random values in rows of a multiple of 16 bytes, poison beyond; the whole allocation too."""
    pitch = -(-columns // 8) * 8 + 8 * random.randrange(2)
    whole = torch.full((rows, pitch), float("nan"), device="cuda", dtype=torch.bfloat16)
    view = whole[:, :columns]
    view.copy_(torch.randn(rows, columns, device="cuda"))
    return view, whole


def matmuls(torch: Any) -> list[dict[str, Any]]:
    """The shapes on which the artifact is wrong."""
    program, wrong = load("matmul"), list[dict[str, Any]]()
    for m, n, k in shapes():
        (a, _), (b, _), (c, whole) = padded(torch, m, k), padded(torch, n, k), padded(torch, m, n)
        whole.fill_(float("nan"))
        program.launch((a, b, c))
        exact = a.double() @ b.double().t()
        error, peer = relative_error(c, exact), relative_error(a @ b.t(), exact)
        untouched = bool(whole[:, n:].isnan().all())
        if not (error <= max(1.05 * peer, ROUNDING / 2) and untouched):
            wrong.append({"shape": [m, n, k], "error": error, "peer_error": peer, "untouched": untouched})
    return wrong


def attentions(torch: Any) -> tuple[int, list[dict[str, Any]]]:
    """How many cases were run, and those that are wrong."""
    count, wrong = 0, list[dict[str, Any]]()
    attend = torch.nn.functional.scaled_dot_product_attention
    for width, causal, numerics, length in product((128, 64), (False, True), NUMERICS, LENGTHS):
        program = load(attention_name(width, numerics, causal=causal))
        q, k, v = (torch.randn(2, 3, length, width, device="cuda").bfloat16() for _ in range(3))
        k = (40 * k).bfloat16()
        o = torch.full_like(q, float("nan"))
        named = {"q": q, "k": k, "v": v, "o": o, "scale": width**-0.5}
        program.launch(tuple(named[p.name] for p in program.artifact.parameters))
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            exact = attend(q.double(), k.double(), v.double(), is_causal=causal)
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.CUDNN_ATTENTION):
            answer = attend(q, k, v, is_causal=causal) if length > 1 else exact  # cuDNN refuses one key
        peer = relative_error(answer, exact)
        error = relative_error(o, exact)
        count += 1
        if not error <= max(1.05 * peer, ROUNDING):
            wrong.append({"case": [width, causal, numerics, length], "error": error, "peer_error": peer})
    return count, wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", default="")
    args = parser.parse_args()
    import torch

    torch.manual_seed(0)
    random.seed(0)
    wrong = matmuls(torch)
    count, wrong_attentions = attentions(torch)
    found = document(
        torch,
        matmul={"shapes": SHAPES, "wrong": wrong},
        attention={"cases": count, "wrong": wrong_attentions},
    )
    print(json.dumps(found, indent=1))
    write(found, args.json)


if __name__ == "__main__":
    main()
