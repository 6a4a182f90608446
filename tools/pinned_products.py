"""Random matrix products under pinned schedules, bit for bit: on a GPU, or on the PTX machine.

    python tools/pinned_products.py --seeds 0:100                                   # PTX machine, small shapes
    python tools/pinned_products.py --device --jobs 16 --seeds 0:1500 --seconds 200 --json FILE

A seed draws dtypes, orders of both operands, what is done to them before the product and to the sums after it, tiles,
ragged extents, pins of the schedule (clusters, ping-pong, cooperating consumers, stages, copies, split-K) and how the
tensors lie (``random_products``). Elements are small integers, so that every result has one value. Around all tensors,
and in the results before, all bits are set. A schedule may be refused: refusals are counted by code.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

os.environ.setdefault("TILEWRIGHT_VALIDATION", "0")
sys.path.insert(0, str(Path(__file__).parent))

from cuda.bindings import driver as cuda

from campaign.pool import in_processes
from random_products.draw import drawn
from random_products.launch import judged
from tilewright.runtime.driver import Driver

PATIENCE_SECONDS = 90


def begin(device: bool) -> Any:
    """The judge of a process."""
    folder, driver = Path(tempfile.mkdtemp()), None
    if device:
        driver = Driver()
        driver.push_context(driver.context(0))
    return lambda seed: judged(drawn(seed), folder, driver)


def main() -> None:
    """Prints what is wrong, and the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0:100")
    parser.add_argument("--device", action="store_true", help="on a GPU, not on the PTX machine")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0, help="no case begins after these; 0: all seeds")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    first, last = map(int, args.seeds.split(":"))
    begun, rows = time.monotonic(), list[dict[str, Any]]()
    for seed, found in in_processes(
        begin, (args.device,), range(first, last), args.jobs, PATIENCE_SECONDS, args.seconds,
        lambda found: found.status != "failed",
    ):  # fmt: skip
        row = {"seed": seed, "status": found} if isinstance(found, str) else vars(found)
        rows.append(row)
        if row["status"] not in ("agreed", "refused"):
            about = row.get("about", {})
            print(f"{seed} {row['status']} {about}\n    {str(row.get('what', '')).strip()[-600:]}", flush=True)
        if args.json and len(rows) % 20 == 0:  # what ends the campaign before its time does not take its counts along
            args.json.write_text(document(rows, args))
    print(json.dumps(summed(rows)), f"{time.monotonic() - begun:.0f} s", flush=True)
    if args.json:
        args.json.write_text(document(rows, args))


def document(rows: list[dict[str, Any]], args: argparse.Namespace) -> str:
    """What is published."""
    found: dict[str, Any] = {
        "command": f"python tools/pinned_products.py {'--device ' * args.device}--seeds {args.seeds}",
        "date": time.strftime("%Y-%m-%d"),
        "python": platform.python_version(),
        "device": device_name() if args.device else "PTX machine",
    }
    wrong = [r for r in rows if r["status"] not in ("agreed", "refused")]
    return json.dumps({**found, **summed(rows), "wrong": wrong}, indent=1) + "\n"


def device_name() -> str:
    """The GPU's."""
    cuda.cuInit(0)
    return str(cuda.cuDeviceGetName(128, 0)[1].split(b"\0")[0].decode())


def summed(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Counts of cases and launches, and of what was drawn among those that ran."""
    ran = [r for r in rows if r["status"] not in ("refused", "traceback")]
    drawn_of = {
        k: dict(Counter(r["about"][k] for r in ran if r.get("about"))) for k in ("kind", "form", "layout", "rows")
    }
    pins = Counter(pin for r in ran if r.get("about") for pin in r["about"]["pins"])
    return {
        "cases": len(rows),
        "outcomes": dict(Counter(r["status"] for r in rows)),
        "refused": dict(Counter(r["what"].split()[0] for r in rows if r["status"] == "refused")),
        "launches": sum(r.get("launches", 0) for r in rows),
        "drawn": drawn_of,
        "pins": dict(pins),
    }


if __name__ == "__main__":
    main()
