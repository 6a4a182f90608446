"""The page that compares: every measured case beside its peers, the slowest relative to them first."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PEERS = {"eager": "PyTorch", "compile": "torch.compile", "autotune": "torch.compile, max-autotune"}


def page(root: Path) -> str:
    return "\n".join(_lines(root / "benchmarks" / "results"))


def _lines(results: Path) -> Iterator[str]:
    memory, products = (json.loads((results / f"{name}.json").read_text()) for name in ("memory_bound", "products"))
    unaligned = json.loads((results / "unaligned.json").read_text())
    yield "# Compared\n"
    yield f"Every case that was timed on one {memory['device']} ({memory['clock_mhz']}, {memory['date']}), the worst"
    yield "first: a ratio below 1 is slower than the peer. [Measured](measured.md) has conditions, commands, errors and"
    yield "goals.\n"
    yield "## Memory-bound kernels, beside the fastest of PyTorch's forms\n"
    yield from _table(sorted(map(_memory_bound, memory["rows"])), "us", "us")
    yield "## Products and attention, beside cuBLAS, torch.compile and cuDNN\n"
    yield from _table(sorted(map(_product, products["rows"])), "TFLOP/s", "TFLOP/s")
    yield "## Products of unaligned tensors, beside cuBLAS\n"
    yield from _table(sorted(map(_product, unaligned["rows"])), "TFLOP/s", "TFLOP/s")


Row = tuple[float, str, float, str, float]
"""Ratio, case, ours, the peer, its figure."""


def _memory_bound(row: dict[str, Any]) -> Row:
    times = row["microseconds"]
    peer = min((p for p in PEERS if p in times), key=lambda p: times[p])
    return times[peer] / times["ours"], row["case"], times["ours"], PEERS[peer], times[peer]


def _product(row: dict[str, Any]) -> Row:
    tflops = row["tflops"]
    named = {"cublas": "cuBLAS", "cudnn": "cuDNN", "compile": "torch.compile"}
    peer = next(name for name in named if name in tflops)
    return tflops["ours"] / tflops[peer], row["case"], tflops["ours"], named[peer], tflops[peer]


def _table(rows: list[Row], ours: str, theirs: str) -> Iterator[str]:
    behind = sum(ratio < 1 for ratio, *_ in rows)
    yield f"{behind} of {len(rows)} are slower than the peer.\n"
    yield f"| case | ratio | Tilewright, {ours} | peer | {theirs} |\n|---|---|---|---|---|"
    for ratio, case, own, peer, other in rows:
        yield f"| {case} | {ratio:.2f} | {own:.1f} | {peer} | {other:.1f} |"
    yield ""
