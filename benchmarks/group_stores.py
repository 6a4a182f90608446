"""Three ways in which products of groups can store the tiles that the end of a group cuts, timed beside each other on
one GPU.

    threads    every tile by rows, cut by the threads
    split      whole tiles by tensor copies, those that the end of their group cuts by rows
    one map    every tile by tensor copies through one map for all groups, whose copies the hardware clips at the end of
               their group (``legal.ragged``)

Each way is the compiler's, with the price of the other ways raised (``schedule.hopper.store_ways``), and proved as any
kernel; classes of arguments in which a way does not exist have the next one, such as rows that may not be whole units
of 16 bytes. Every result is compared with the first way's, bit for bit.

    python benchmarks/group_stores.py build
    python benchmarks/group_stores.py run --json benchmarks/results/group_stores.json
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import grouped
from harness import Timer, document, load, parser, store, write
from interior import anew

WAYS = {"threads": "ROWS", "split": "SPLIT", "one map": "CLIPPED"}
"""Members of ``StoreWay`` by name."""
CASES = (
    *grouped.CASES,
    grouped.Case(8192, 64, 2048, 4096, skewed=True),
    grouped.Case(4096, 32, 2880, 2880, skewed=True),
    grouped.Case(8192, 61, 2048, 1024),
)


# -- artifacts --------------------------------------------------------------------------------------------------------
@contextmanager
def preferred(way: str) -> Iterator[None]:
    """The compiler with one way free, and the others at their prices."""
    from tilewright.schedule.hopper import shared_memory_epilogue
    from tilewright.schedule.hopper.store_ways import StoreWay

    cycles, free = shared_memory_epilogue.store_cycles, StoreWay[WAYS[way]]

    def priced(own: Any, *given: Any) -> float:
        return 0.0 if own is free else cycles(own, *given)

    shared_memory_epilogue.store_cycles = priced
    try:
        yield
    finally:
        shared_memory_epilogue.store_cycles = cycles


def build(only: str) -> None:
    """An artifact for each way."""
    import grouped_matmul

    from tilewright.artifact.disassemble import code_bytes

    dtypes = {"offsets": "i32", "a": "bf16", "b": "bf16", "c": "bf16"}
    for way in (way for way in WAYS if only in way):
        with preferred(way):
            made, seconds = store(name_of(way), partial(anew, grouped_matmul.grouped_matmul), dtypes=dtypes)
        code = {k.symbol: (k.registers, code_bytes(k.cubin)) for k in made.kernels}
        print(f"{way}: {seconds:.1f} s", code, flush=True)


def name_of(way: str) -> str:
    """The artifact of a way."""
    return f"group_stores_{way.replace(' ', '_')}"


# -- times ------------------------------------------------------------------------------------------------------------
def run(args: argparse.Namespace) -> None:
    """Check and time every case; print a table and write JSON."""
    import torch

    from tilewright.artifact.disassemble import code_bytes

    programs = {way: load(name_of(way)) for way in WAYS if args.way in way}
    timer, rows = Timer(torch, args.rounds), list[dict[str, Any]]()
    for case in (c for c in CASES if args.only in str(c)):
        torch.manual_seed(0)
        offsets = torch.tensor(case.offsets(), dtype=torch.int32, device="cuda")
        a = torch.randn(case.rows, case.k, device="cuda").bfloat16()
        b = torch.randn(case.groups, case.n, case.k, device="cuda").bfloat16()
        c = torch.full((case.rows, case.n), float("nan"), device="cuda", dtype=torch.bfloat16)
        given, expected, equal = (offsets, a, b, c), None, dict[str, bool]()
        for way, program in programs.items():
            c.fill_(float("nan"))
            program.launch(given)
            torch.cuda.synchronize()
            expected = c.clone() if expected is None else expected
            equal[way] = bool(torch.equal(c, expected))
        seconds = timer.medians({way: partial(program.launch, given) for way, program in programs.items()})
        row = {
            "case": str(case),
            "microseconds": {way: round(s * 1e6, 2) for way, s in seconds.items()},
            "equal_bits": equal,
        }
        rows.append(row)
        print(str(case), json.dumps(row["microseconds"]), equal, flush=True)
        del a, b, c, given, expected
        torch.cuda.empty_cache()
    code = {way: sum(code_bytes(k.cubin) for k in program.artifact.kernels) for way, program in programs.items()}
    write(document(torch, **timer.conditions(), code_bytes=code, rows=rows), args.json)


if __name__ == "__main__":
    options = parser(__doc__, "cases, or for `build` ways, whose names contain this")
    options.add_argument("--way", default="", help="ways whose names contain this")
    given = options.parse_args()
    build(given.only) if given.what == "build" else run(given)
