"""Attention with a score_mod and with windows, beside plain attention and PyTorch's compiled flex_attention.

    python benchmarks/score_mods.py run --json $OUT/score_mods.json     # where the GPU and the compiler are

Errors are against float64, of the first batch and head.
"""

from __future__ import annotations

import math
from typing import Any

from harness import Timer, document, parser, relative_error, write

SHAPES = ((4, 16, 4096, 128), (1, 16, 16384, 64))
WINDOW = 512


def variants(torch: Any, q: Any, k: Any, v: Any) -> dict[str, Any]:
    """By name, all causal: ours and PyTorch's, of the same functions."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    from tilewright import ops

    flex, tokens = torch.compile(flex_attention, dynamic=False), q.shape[2]
    causal = create_block_mask(lambda b, h, s, t: s >= t, None, None, tokens, tokens)
    near = create_block_mask(lambda b, h, s, t: (s >= t) & (s - t < WINDOW), None, None, tokens, tokens)
    return {
        "plain": lambda: ops.attention(q, k, v, causal=True),
        "slopes": lambda: ops.attention(q, k, v, causal=True, score_mod=slopes),
        "slopes, flex": lambda: flex(q, k, v, score_mod=slopes, block_mask=causal),
        "softcap by score_mod": lambda: ops.attention(q, k, v, causal=True, score_mod=softcap),
        "softcap": lambda: ops.attention(q, k, v, causal=True, softcap=20.0),
        "softcap, flex": lambda: flex(q, k, v, score_mod=softcap, block_mask=causal),
        "window": lambda: ops.attention(q, k, v, causal=True, window=WINDOW),
        "window, flex": lambda: flex(q, k, v, block_mask=near),
    }


def slopes(score: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
    import torch

    return score + torch.exp2(-(h + 1) * 0.5) * (k - q)


def softcap(score: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
    import torch

    return 20.0 * torch.tanh(score / 20.0)


def exact(torch: Any, name: str, q: Any, k: Any, v: Any) -> Any:
    """In float64, of the first batch and head."""
    q, k, v = (x[0, 0].double() for x in (q, k, v))
    x = q @ k.T * q.shape[-1] ** -0.5
    place = torch.arange(len(x), device=x.device)
    behind = place[:, None] - place
    if name.startswith("slopes"):
        x = x - 2**-0.5 * behind
    elif name.startswith("softcap"):
        x = 20.0 * torch.tanh(x / 20.0)
    x = x.masked_fill(behind < 0, -math.inf)
    if name.startswith("window"):
        x = x.masked_fill(behind >= WINDOW, -math.inf)
    return x.softmax(-1) @ v


def run(torch: Any, rounds: int, path: str, only: str) -> None:
    """Times and errors; a variant that fails is named and left out."""
    timer, rows = Timer(torch, rounds), list[dict[str, Any]]()
    for shape in SHAPES:
        batch, heads, tokens, width = shape
        made = torch.Generator("cuda").manual_seed(0)
        lying = (batch, tokens, heads, width)  # as layers around attention have them
        q, k, v = (
            torch.randn(lying, generator=made, device="cuda", dtype=torch.bfloat16).transpose(1, 2) for _ in range(3)
        )
        errors, kept = dict[str, float](), dict[str, Any]()
        for name, launch in variants(torch, q, k, v).items():
            if only not in name:
                continue
            try:
                errors[name] = relative_error(launch()[0, 0], exact(torch, name, q, k, v))
                kept[name] = launch
                print(shape, name, f"error {errors[name]:.1e}", flush=True)
            except Exception as error:
                print(shape, name, f"{error!r:.300}", flush=True)
        seconds = timer.medians(kept)
        rows.append(
            {"shape": shape, "microseconds": {n: round(s * 1e6, 1) for n, s in seconds.items()}, "error": errors}
        )
        print(rows[-1]["microseconds"], flush=True)
        write(document(torch, **timer.conditions(), rows=rows), path)


def main() -> None:
    """All shapes."""
    args = parser(__doc__, "variants whose name has this").parse_args()
    import torch

    if args.what == "run":
        run(torch, args.rounds, args.json, args.only)


if __name__ == "__main__":
    main()
