"""What benchmarks share: arguments, artifacts, times beside peers in one process, and the document of a run.

A time is the median of many rounds. In each round every variant is launched once, in an order that rotates from round
to round, each after a flush of the L2 cache.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent
ARTIFACTS = ROOT / "artifacts"
sys.path.insert(0, str(ROOT.parent / "src"))
sys.path.insert(0, str(ROOT.parent / "examples"))

FLUSH_BYTES = 256 << 20
"""More than the L2 cache holds (H200: 50 MB)."""
_SLEEP_CYCLES = 2_000_000  # about a millisecond: longer than any variant takes to be queued
_WARM_UP = 3

Variants = Mapping[str, Callable[[], object]]


# -- arguments --------------------------------------------------------------------------------------------------------
def parser(doc: str | None, only: str, *, rounds: int | None = 15) -> argparse.ArgumentParser:
    """``build`` or ``run``, ``--only`` (its help), ``--json`` and, where times are measured, ``--rounds``."""
    made = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("what", choices=("build", "run"))
    made.add_argument("--only", default="", help=only)
    made.add_argument("--json", default="", help="where the document of the run goes")
    if rounds is not None:
        made.add_argument("--rounds", type=int, default=rounds)
    return made


# -- artifacts --------------------------------------------------------------------------------------------------------
def store(name: str, compile_: Callable[..., Any], **options: Any) -> tuple[Any, float]:
    """Compiles an artifact with ``options``, keeps it as ``name``, and returns it with the seconds that took."""
    from tilewright.artifact.bundle import to_bytes

    ARTIFACTS.mkdir(exist_ok=True)
    started = time.perf_counter()
    artifact = compile_(**options)
    seconds = time.perf_counter() - started
    file_of(name).write_bytes(to_bytes(artifact))
    return artifact, seconds


def load(name: str) -> Any:
    """An artifact ready to launch; None if it was not built."""
    from tilewright import runtime
    from tilewright.artifact.bundle import from_bytes

    file = file_of(name)
    return runtime.load(from_bytes(file.read_bytes(), name)) if file.exists() else None


def file_of(name: str) -> Path:
    """Where an artifact is kept."""
    return ARTIFACTS / f"{name}.twb"


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of a contiguous tensor, in elements."""
    strides, step = [], 1
    for extent in reversed(shape):
        strides.insert(0, step)
        step *= extent
    return tuple(strides)


def contiguous_facts(shapes: Mapping[str, tuple[int, ...]], dtypes: Mapping[str, str]) -> Any:
    """Facts of a call with contiguous, aligned tensors of these shapes and dtypes, by name."""
    from tilewright.base.dtypes import DTYPES
    from tilewright.compiler.requests import Observed, observe_facts

    return observe_facts({n: Observed(DTYPES[dtypes[n]], 0, s, row_major(s)) for n, s in shapes.items()})


# -- times ------------------------------------------------------------------------------------------------------------
def rotated(
    variants: Variants, seconds_of: Callable[[Callable[[], object]], float], rounds: int
) -> dict[str, list[float]]:
    """The seconds of every launch; the order of the variants rotates every round."""
    names = list(variants)
    times: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(rounds):
        first = turn % len(names)
        for name in (*names[first:], *names[:first]):
            times[name].append(seconds_of(variants[name]))
    return times


class Timer:
    """Times variants on PyTorch's current GPU, and keeps a log of its clock."""

    def __init__(self, torch: Any, rounds: int) -> None:
        self.torch = torch
        self.rounds = rounds
        self.flush = torch.empty(FLUSH_BYTES, dtype=torch.int8, device="cuda")
        self.clocks: list[str] = []

    def medians(self, variants: Variants) -> dict[str, float]:
        """Median seconds of each variant."""
        for launch in variants.values():
            for _ in range(_WARM_UP):
                launch()
        self.torch.cuda.synchronize()
        times = rotated(variants, self._seconds, self.rounds)
        self.clocks.append(smi("clocks.sm"))
        return {name: statistics.median(t) for name, t in times.items()}

    def _seconds(self, launch: Callable[[], object]) -> float:
        """One launch. The GPU is kept busy until it is queued, so that nobody is charged for time on the CPU."""
        cuda = self.torch.cuda
        self.flush.zero_()
        cuda._sleep(_SLEEP_CYCLES)
        start, stop = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
        start.record()
        launch()
        stop.record()
        stop.synchronize()
        return float(start.elapsed_time(stop)) * 1e-3

    def conditions(self) -> dict[str, Any]:
        """Clock (now, and each one seen after a measurement), power and rounds, for the document."""
        seen = sorted(set(self.clocks))
        return {
            "clock_mhz": smi("clocks.sm"),
            "clocks_seen": seen,
            "power_watts": smi("power.draw"),
            "rounds": self.rounds,
        }


def row_beside_copy(
    torch: Any, timer: Timer, case: str, moved_bytes: int, variants: Variants, errors: tuple[float, float]
) -> dict[str, Any]:
    """Times ``variants`` beside a copy that reads and writes ``moved_bytes`` in all; prints and returns a case's row.

    ``errors`` are ours and PyTorch's, against float64.
    """
    source = torch.randint(0, 127, (moved_bytes // 2,), dtype=torch.int8, device="cuda")
    target = torch.empty_like(source)
    seconds = timer.medians({**variants, "copy": lambda: target.copy_(source)})
    row = {
        "case": case,
        "bytes": moved_bytes,
        "microseconds": {k: round(s * 1e6, 2) for k, s in seconds.items()},
        "of_copy": {k: round(seconds["copy"] / s, 3) for k, s in seconds.items()},
        "error": errors[0],
        "pytorch_error": errors[1],
    }
    print(case, json.dumps(row["microseconds"]), f"of copy {row['of_copy']['ours']}",
          f"error {errors[0]:.1e} / {errors[1]:.1e}", flush=True)  # fmt: skip
    return row


# -- documents --------------------------------------------------------------------------------------------------------
def document(torch: Any, **fields: Any) -> dict[str, Any]:
    """What a run leaves behind: command, date, device and versions before the ``fields``."""
    return {
        "command": "python " + " ".join(sys.argv),
        "date": str(date.today()),
        "device": torch.cuda.get_device_name(),
        "versions": {"torch": torch.__version__, "driver": driver_version(), "python": sys.version.split()[0]},
        **fields,
    }


def write(found: Mapping[str, Any], path: str | None, *, row_lines: bool = False) -> None:
    """The document as JSON, if a path was given; each of its ``rows`` on one line, where there are thousands."""
    if not path:
        return
    text = json.dumps(found, indent=1)
    if row_lines:
        head = json.dumps({name: value for name, value in found.items() if name != "rows"}, indent=1)
        lines = ",\n".join("  " + json.dumps(row) for row in found["rows"])
        text = head.removesuffix("\n}") + f',\n "rows": [\n{lines}\n ]\n}}'
    Path(path).write_text(text + "\n")


def relative_error(x: Any, exact: Any) -> float:
    """Norm of the error over the norm of the exact answer, in its dtype."""
    return float((x.to(exact.dtype) - exact).norm() / exact.norm())


def greatest_error(x: Any, exact: Any) -> float:
    """The greatest difference of an element from the exact answer, in its dtype."""
    return float((x.to(exact.dtype) - exact).abs().max())


@cache
def driver_version() -> str:
    """That of the NVIDIA driver."""
    return smi("driver_version")


def smi(field: str) -> str:
    """One field of nvidia-smi; empty where it isn't there."""
    query = ["nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader"]
    try:
        said = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
    return next(iter(said.strip().splitlines()), "")
