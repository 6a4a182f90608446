"""What padding costs, kernel by kernel and shape by shape: bytes, masked instructions, vectors, tails, code.

    python benchmarks/padding.py build
    python benchmarks/padding_report.py build           # code and accesses, from the machine code: padding_code.json
    ncu --profile-from-start off --csv --metrics M python benchmarks/padding_report.py launch > counters.csv
    python benchmarks/padding_report.py run --counters counters.csv --json benchmarks/results/padding_report.json

(``padding_report.py metrics`` prints M.) A row is one kernel of ``padding.py`` at one width:

    needed, moved     bytes of its tensors, each once, and what DRAM read and wrote
    masked            of the threads' instructions those that a predicate turned off: 1 - pred_on / executed
    of a warp         threads that execute an instruction, of 32
    load, store       bytes of a global access of a thread, on average
    core, tail        the time of the part that needs no guard, launched alone, and what the whole takes more: of
                      matrices as one row the whole tiles of 8,192 elements, of others the columns up to the last
                      multiple of 128, at the same strides
"""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Callable, Mapping
from itertools import islice
from math import gcd
from pathlib import Path
from typing import Any

import padding
from harness import ARTIFACTS, Timer, document, file_of, load, write

WIDTHS = (4001, 4002, 4004, 4096, 4099, 4100, 4102, 4104, 4200, 4224)
ONE_ROW = ("add", "swiglu")
"""Kernels whose packed operands are one row."""
WHOLE = 8192
_LOADS, _STORES = (f"smsp__sass_inst_executed_op_global_{op}.sum" for op in ("ld", "st"))
METRICS = {
    "instructions": "smsp__inst_executed.sum",
    "thread_instructions": "smsp__thread_inst_executed.sum",
    "thread_instructions_on": "smsp__thread_inst_executed_pred_on.sum",
    "dram_read": "dram__bytes_read.sum",
    "dram_written": "dram__bytes_write.sum",
    "loads": _LOADS,
    "stores": _STORES,
}


def families() -> dict[str, Any]:
    """Of each kernel and alignment: kernels and code of the family, accesses, and those of the widest vectors."""
    from tilewright.artifact.bundle import from_bytes
    from tilewright.artifact.disassemble import code_bytes, sass
    from tilewright.artifact.sass_accesses import kernel_accesses

    found = dict[str, Any]()
    for case in padding.CASES:
        for align in padding.ALIGNMENTS:
            label = f"padding_{case.name}_{align}"
            kernels = from_bytes(file_of(label).read_bytes(), label).kernels
            accesses = [kernel_accesses(sass(k.cubin)) for k in kernels]
            found[f"{case.name}, rows at multiples of {align} bytes"] = {
                "kernels": len(kernels),
                "code_bytes": sum(code_bytes(k.cubin) for k in kernels),
                "accesses": sum(a.whole.total for a in accesses),
                "predicated": sum(a.whole.predicated for a in accesses),
                "instructions": sum(a.instructions for a in accesses),
                "masked": sum(a.masked for a in accesses),
                "widest_vector_bytes": max(w.bytes for a in accesses for w in a.whole.widths),
            }
            print(label, found[f"{case.name}, rows at multiples of {align} bytes"], flush=True)
    return found


def launch(torch: Any) -> None:
    """Every shape once between the profiler's marks."""
    for case in padding.CASES:
        x = padding.Operands(torch, case)
        for n in WIDTHS:
            program, values = called(case, n, x.at(n))
            profiled(torch, lambda p=program, v=values: p.launch(v))
        del x
        torch.cuda.empty_cache()


def profiled(torch: Any, run_it: Callable[[], object]) -> None:
    """One launch between the profiler's marks, after one that it does not see."""
    run_it()
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    run_it()
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()


def called(case: padding.Case, n: int, tensors: Mapping[str, Any]) -> tuple[Any, tuple[Any, ...]]:
    """The artifact of a width and its arguments."""
    program = load(f"padding_{case.name}_{gcd(16, 2 * n)}")
    values = {**tensors, **dict(case.scalars)}
    return program, tuple(values[p.name] for p in program.artifact.parameters)


def core_of(case: padding.Case, tensors: Mapping[str, Any]) -> dict[str, Any]:
    """The operands without what an edge holds."""
    if case.name in ONE_ROW:
        return {name: t.view(1, -1)[:, : t.numel() // WHOLE * WHOLE] for name, t in tensors.items()}
    m, n = tensors["x"].shape
    wide = n // padding.EVERY * padding.EVERY
    cut = {"MN": (m, wide), "NM": (wide, m), "N": (wide,)}
    return {name: tensors[name][tuple(map(slice, cut[axes]))] for name, axes, _ in case.tensors}


def counters(path: str) -> list[dict[str, float]]:
    """Sums over the launches of each shape, from what Nsight Compute printed."""
    lines = Path(path).read_text().splitlines()
    begin = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if begin is None:
        return []
    launches: dict[int, dict[str, Any]] = {}
    for row in csv.DictReader(lines[begin:]):
        if not row["ID"].isdigit():
            continue
        kept = launches.setdefault(int(row["ID"]), {"kernel": row["Kernel Name"]})
        scale = {"Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9}.get(row["Metric Unit"], 1.0)
        for name, metric in METRICS.items():
            if row["Metric Name"] == metric:
                kept[name] = float(row["Metric Value"].replace(",", "")) * scale
    return [launches[i] for i in sorted(launches)]


def run(args: argparse.Namespace) -> None:
    """Time every shape and its core, and join them with the counters; write JSON."""
    import torch

    timer, rows = Timer(torch, args.rounds), list[dict[str, Any]]()
    for case in padding.CASES:
        x = padding.Operands(torch, case)
        for n in WIDTHS:
            tensors = x.at(n)
            core = core_of(case, tensors)
            variants: dict[str, Callable[[], object]] = {}
            for name, given in (("whole", tensors), ("core", core)):
                program, values = called(case, n, given)
                try:
                    program.launch(values)
                except Exception as refused:
                    print(case.name, n, name, str(refused)[:200], flush=True)
                    continue
                variants[name] = lambda p=program, v=values: p.launch(v)
            error = x.check(torch, n, variants["whole"])
            seconds = timer.medians(variants)
            sizes = [sum(t.numel() * t.element_size() for t in part.values()) for part in (tensors, core)]
            over = seconds["whole"] / seconds.get("core", float("nan")) - 1
            row = {
                "kernel": case.name, "n": n, "align_bytes": gcd(16, 2 * n), "needed_bytes": sizes[0], "error": error,
                "microseconds": {k: round(s * 1e6, 2) for k, s in seconds.items()},
                "tail_over_core": round(over, 4), "bytes_over_core": round(sizes[0] / sizes[1] - 1, 4),
            }  # fmt: skip
            rows.append(row)
        mine = [r for r in rows if r["kernel"] == case.name]
        print(case.name, [(r["n"], r["tail_over_core"], r["bytes_over_core"]) for r in mine], flush=True)
        write(document(torch, **timer.conditions(), matrix_rows=padding.ROWS, rows=rows), args.json, row_lines=True)
        del x
        torch.cuda.empty_cache()
    joined = join(rows, counters(args.counters)) if args.counters else rows
    code = json.loads((ARTIFACTS / "padding_code.json").read_text())
    found = document(torch, **timer.conditions(), matrix_rows=padding.ROWS, families=code, rows=joined)
    write(found, args.json, row_lines=True)


_PARTS = ("kernel_column_sum_0_parts",)
"""Kernels whose results another launch adds."""


def join(rows: list[dict[str, Any]], launches: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows with their counters: a sum of columns in parts has two launches a row, others have one."""
    each = iter(launches)
    for row in rows:
        taken = list(islice(each, 1))
        if taken and taken[0]["kernel"].startswith(_PARTS):
            taken += islice(each, 1)
        if not taken:
            break
        total = {name: sum(part.get(name, 0.0) for part in taken) for name in METRICS}
        row["counters"] = {"kernels": [part["kernel"] for part in taken], **total}
        if total["thread_instructions"]:
            row["masked"] = round(1 - total["thread_instructions_on"] / total["thread_instructions"], 4)
            row["threads_of_a_warp"] = round(total["thread_instructions"] / total["instructions"], 2)
        row["moved_bytes"] = int(total["dram_read"] + total["dram_written"])
    return rows


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("what", choices=("build", "metrics", "launch", "run"))
    arguments.add_argument("--counters", default="", help="what Nsight Compute printed of `launch`")
    arguments.add_argument("--json", default="", help="where the document of the run goes")
    arguments.add_argument("--rounds", type=int, default=7)
    args = arguments.parse_args()
    if args.what == "metrics":
        print(",".join(METRICS.values()))
    elif args.what == "build":
        ARTIFACTS.mkdir(exist_ok=True)
        (ARTIFACTS / "padding_code.json").write_text(json.dumps(families(), indent=1))
    elif args.what == "launch":
        import torch

        launch(torch)
    else:
        run(args)


if __name__ == "__main__":
    main()
