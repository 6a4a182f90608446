"""Histograms of integer keys beside PyTorch's bincount and a copy of as many bytes, on one GPU.

Build where the compiler is, run where the GPU is (numpy, cuda-bindings and torch suffice there):

    python benchmarks/histograms.py build
    python benchmarks/histograms.py run --json benchmarks/results/histograms.json

Timed as ``memory_bound.py`` says, on keys that are uniform and on keys of one value; all counts are right.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

from harness import Timer, contiguous_facts, document, load, parser, row_beside_copy, store, write

KEYS = 250_000_000


@dataclass(frozen=True)
class Case:
    """A kernel of ``examples/histogram.py``, its counts, and the keys that a program takes."""

    kernel: str
    counts: tuple[int, ...]
    bins: int
    share: int


CASES = (Case("histogram", (256,), 256, 1 << 20), Case("many_bins", (2, 32768), 65536, 1 << 21))


def build(only: str) -> None:
    """Compile every case to an artifact."""
    import histogram as examples

    for case in CASES:
        if only not in case.kernel:
            continue
        shapes, dtypes = {"keys": (KEYS,), "counts": case.counts}, {"keys": "i32", "counts": "i32"}
        options = {"dtypes": dtypes, "facts": contiguous_facts(shapes, dtypes), "share": case.share}
        _, seconds = store(case.kernel, getattr(examples, case.kernel).compile, **options)
        print(f"{case.kernel}: {seconds:.2f} s")


def run(args: argparse.Namespace) -> None:
    """Check and time every case; print a table and write JSON."""
    import torch

    timer, rows = Timer(torch, args.rounds), list[dict[str, Any]]()
    for case in CASES:
        program = load(case.kernel)
        if args.only not in case.kernel or program is None:
            continue
        for drawn in ("uniform", "one value"):
            torch.manual_seed(0)
            most = case.bins if drawn == "uniform" else 1
            keys = torch.randint(0, most, (KEYS,), device="cuda", dtype=torch.int32)
            counts = torch.zeros(case.counts, device="cuda", dtype=torch.int32)
            given = {"keys": keys, "counts": counts}
            values = tuple(given[p.name] for p in program.artifact.parameters)
            program.launch(values)
            wanted = torch.bincount(keys, minlength=case.bins)
            assert torch.equal(counts.view(-1).long(), wanted), (case, drawn)
            name = f"histogram of {KEYS} i32 keys, {case.bins} bins, {drawn}"
            variants = {
                "ours": lambda v=values, p=program: p.launch(v),
                "eager": lambda k=keys, n=case.bins: torch.bincount(k, minlength=n),
            }
            rows.append(row_beside_copy(torch, timer, name, KEYS * 4, variants, (0.0, 0.0)))
            del keys, counts, given, values, variants, wanted
    write(document(torch, **timer.conditions(), rows=rows), args.json)


if __name__ == "__main__":
    options = parser(__doc__, "kernels whose names contain this").parse_args()
    build(options.only) if options.what == "build" else run(options)
