"""Nsight Compute's counters of speed rows, ours and their peers.

    python benchmarks/products.py build --only accurate; python benchmarks/attention_backward.py build
    python benchmarks/counters.py run --json benchmarks/results/counters.json

Runs itself under ``ncu`` (``--ncu`` says where): every row's launches once, after a call that is not counted, ours and
the peer's each behind a kernel that marks them. The clock is left alone, L2 flushed before each launch by the profiler.
Rows of other runs in the document are kept. Kernels without an artifact are compiled by their first call.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("TILEWRIGHT_VALIDATION", "0")

from harness import ROOT, document, load, write

TENSOR = ("sm__pipe_tensor_op_gmma_cycles_active", "sm__pipe_tensor_cycles_active")
"""The first that this version of the profiler knows."""
STALLS = {
    "barrier": "barrier",
    "memory": "long_scoreboard",
    "fixed latency": "wait",
    "no instruction": "no_instruction",
    "busy pipe": "math_pipe_throttle",
}
SHARE = ".avg.pct_of_peak_sustained_active"
METRICS = {
    "microseconds": ("gpu__time_duration.sum", 1e-3, 1),
    "tensor_pct": (TENSOR[0] + SHARE, 1, 1),
    "issue_pct": ("smsp__issue_active" + SHARE, 1, 1),
    "dram_terabytes_per_second": ("dram__bytes.sum.per_second", 1e-12, 2),
    "dram_megabytes": ("dram__bytes.sum", 1e-6, 1),
    "read_from_l2_megabytes": ("lts__t_sectors_op_read.sum", 32e-6, 0),
    "instructions_millions": ("smsp__inst_executed.sum", 1e-6, 1),
}
"""Of each figure the metric, what it is multiplied by, and decimals."""
_MARK = "spin_kernel"

Call = Callable[[], object]


# -- rows -------------------------------------------------------------------------------------------------------------
def rows(torch: Any, only: list[str]) -> Iterator[tuple[str, dict[str, Call]]]:
    """Each row that is asked for: its name, and what launches it by whose it is."""
    for group in (products, attentions, wide_heads, gradients, chains):
        yield from group(torch, lambda name: any(part in name for part in only or [""]))


def products(torch: Any, asked: Callable[[str], bool]) -> Iterator[tuple[str, dict[str, Call]]]:
    """Those of ``products.py`` and ``speed_cases.py``."""
    import speed_cases
    from products import MATMULS

    known = {f"A B^T {m}x{n}x{k}" for m, n, k in speed_cases.TRANSPOSED_B}
    for m, n, k, _ in MATMULS:
        name = f"A B^T {m}x{n}x{k}"
        if asked(name) and name not in known:
            a, b = (torch.randn(shape, device="cuda").bfloat16() for shape in ((m, k), (n, k)))
            ours = partial(speed_cases.product, a, b, a.new_empty(m, n))
            yield name, {"ours": ours, "peer": partial(torch.matmul, a, b.mT)}
    for case in speed_cases.cases(torch):
        if asked(case.name):
            yield case.name, {"ours": partial(case.kernel, *case.arguments), "peer": case.peer}


def attentions(torch: Any, asked: Callable[[str], bool]) -> Iterator[tuple[str, dict[str, Call]]]:
    """Forward, beside cuDNN."""
    from products import ATTENTIONS, attention_name

    kernels = torch.nn.attention
    for batch, heads, length, width, causal, _ in ATTENTIONS:
        name = f"attention {'causal' if causal else 'full'} {batch}x{heads}x{length}x{width}"
        program = load(attention_name(width, "accurate", causal=causal)) if asked(name) else None
        if program is None:
            continue
        q, k, v = (torch.randn(batch, heads, length, width, device="cuda").bfloat16() for _ in range(3))
        named = {"q": q, "k": k, "v": v, "o": torch.empty_like(q), "scale": width**-0.5}

        def peer(q: Any = q, k: Any = k, v: Any = v, causal: bool = causal) -> Any:
            with kernels.sdpa_kernel(kernels.SDPBackend.CUDNN_ATTENTION):
                return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

        yield name, {"ours": partial(program.launch, named), "peer": peer}


def wide_heads(torch: Any, asked: Callable[[str], bool]) -> Iterator[tuple[str, dict[str, Call]]]:
    """Those of ``speed_rows.py``, heads of 256 and shared ones, forward and backward, beside cuDNN."""
    from speed_rows import attentions as rows_of

    for row in rows_of(torch):
        if asked(row.name):
            yield row.name, {"ours": row.variants["ours"], "peer": row.variants["cudnn"]}


def gradients(torch: Any, asked: Callable[[str], bool]) -> Iterator[tuple[str, dict[str, Call]]]:
    """Backward, beside cuDNN."""
    import attention_backward as backward

    for width in backward.WIDTHS:
        for causal in (False, True):
            for shape in backward.CASES:
                name = f"gradients {'causal' if causal else 'full'} {'x'.join(map(str, (*shape, width)))}"
                if not asked(name):
                    continue
                programs = tuple(load(x) for x in backward.names(width, causal=causal))
                case = backward.Case(torch, programs, (*shape, width), causal=causal)
                peer = case.theirs(torch.nn.attention.SDPBackend.CUDNN_ATTENTION)
                yield name, {"ours": case.ours, "peer": peer}


def chains(torch: Any, asked: Callable[[str], bool]) -> Iterator[tuple[str, dict[str, Call]]]:
    """A layer of the decode chain, each kernel alone, as the profiler launches them. It has no peer but itself."""
    from dependent_launch import CASES, one_layer

    for batch, tokens in CASES:
        name = f"decode chain {batch}x{tokens}"
        if asked(name):
            yield name, {"ours": one_layer(torch, batch, tokens)}


# -- launching and reading --------------------------------------------------------------------------------------------
def launch(torch: Any, only: list[str]) -> None:
    """Every row once between the profiler's marks."""
    for name, calls in rows(torch, only):
        for by, call in calls.items():
            try:
                for _ in range(2):
                    call()
            except Exception as error:  # a refusal leaves the other rows
                print(f"failed {name} {by}: {str(error)[:200]}", file=sys.stderr, flush=True)
                continue
            torch.cuda.synchronize()
            torch.cuda.cudart().cudaProfilerStart()
            torch.cuda._sleep(1)
            call()
            torch.cuda.synchronize()
            torch.cuda.cudart().cudaProfilerStop()
            print(f"row {name}|{by}", flush=True)


def read(text: str, names: list[tuple[str, str]], metrics: dict[str, tuple[str, float, int]]) -> list[dict[str, Any]]:
    """The rows of what the profiler printed; a mark begins the launches of the next of ``names``."""
    lines = text.splitlines()
    begin = next(i for i, line in enumerate(lines) if line.startswith('"ID"'))
    found, place = list[dict[str, Any]](), -1
    for line in csv.DictReader(lines[begin:]):
        if not line["ID"].isdigit():
            continue
        if _MARK in line["Kernel Name"]:
            place += 1
            continue
        case, by = names[place]
        row: dict[str, Any] = {"case": case, "by": by, "kernel": line["Kernel Name"]}
        for name, (metric, factor, digits) in metrics.items():
            if line.get(metric):
                row[name] = round(float(line[metric].replace(",", "")) * factor, digits)
        stalls = {name: line.get(_stall(of)) for name, of in STALLS.items()}
        row["stalls_per_issue"] = {name: round(float(x.replace(",", "")), 2) for name, x in stalls.items() if x}
        found.append(row)
    return found


def _stall(of: str) -> str:
    return f"smsp__average_warps_issue_stalled_{of}_per_issue_active.ratio"


def run(args: argparse.Namespace) -> None:
    """Counts every row that is asked for; keeps those of other runs."""
    import torch

    ncu = args.ncu or shutil.which("ncu") or "/usr/local/cuda/bin/ncu"
    known = subprocess.run([ncu, "--query-metrics", "--chips", "gh100"], capture_output=True, text=True).stdout
    names = {line.split()[0] for line in known.splitlines() if line.strip()}
    tensor = next((name for name in TENSOR if name in names), TENSOR[-1])
    metrics = {**METRICS, "tensor_pct": (tensor + SHARE, 1, 1)}
    asked = ",".join([*(m for m, *_ in metrics.values()), *map(_stall, STALLS.values())])
    options = ["--clock-control", "none", "--cache-control", "all", "--profile-from-start", "off", "--csv"]
    command = [ncu, *options, "--page", "raw", "--print-units", "base", "--metrics", asked]
    log = Path(args.log)
    command += ["--log-file", str(log), sys.executable, str(ROOT / "counters.py"), "launch", *args.only]
    said = subprocess.run(command, capture_output=True, text=True)
    print(said.stderr[-1500:], file=sys.stderr)
    launched = [tuple(line[4:].split("|")) for line in said.stdout.splitlines() if line.startswith("row ")]
    found = read(log.read_text(), launched, metrics)  # type: ignore[arg-type]
    for row in found:
        print(json.dumps(row))
    path = Path(args.json) if args.json else None
    before = json.loads(path.read_text())["rows"] if path and path.exists() else []
    cases = {row["case"] for row in found}
    note = f"tensor pipe: {tensor}; clocks as they are; rows of earlier runs are kept"
    kept = [row for row in before if row["case"] not in cases]
    write(document(torch, note=note, rows=[*kept, *found]), args.json)


def main() -> None:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("what", choices=("run", "launch"))
    made.add_argument("only", nargs="*", help="rows whose name contains one of these; all without")
    made.add_argument("--json", default="", help="the document of the rows")
    made.add_argument("--log", default="counters.csv", help="where the profiler writes")
    made.add_argument("--ncu", default="", help="the profiler, if it isn't in PATH")
    args = made.parse_args()
    if args.what == "run":
        run(args)
        return
    import torch

    launch(torch, args.only)


if __name__ == "__main__":
    main()
