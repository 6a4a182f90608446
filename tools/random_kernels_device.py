"""Random kernels on a GPU: what ``random_kernels.py --artifacts DIR`` kept, launched by the runtime alone.

    python tools/random_kernels_device.py DIR [--seeds FIRST:LAST] [--jobs N] [--seconds N] [--json FILE]
    compute-sanitizer --target-processes all python tools/random_kernels_device.py DIR

Needs NumPy and cuda-bindings, no compiler. Results must lie within the bounds that were stored with them, and what lies
around the arguments must be as it was. Cases run in processes of their own (``--jobs``); where one hangs or takes the
context with it, the next begins in a new process.
"""

from __future__ import annotations

import argparse
import json
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

import numpy as np

from campaign.pool import in_processes
from random_programs.bounds import inside, of_bytes
from tilewright import runtime
from tilewright.artifact.bundle import from_bytes
from tilewright.base.dtypes import DTYPES
from tilewright.runtime.device_array import DeviceArray
from tilewright.runtime.driver import Driver

PATIENCE_SECONDS = 60


@dataclass(frozen=True)
class View:
    """A tensor in a device buffer, as the runtime reads PyTorch's; ``strides`` and ``offset`` in elements."""

    buffer: DeviceArray
    dtype: Any
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    is_cuda: bool = True

    @property
    def device(self) -> Any:
        return self.buffer.device

    def data_ptr(self) -> int:
        return self.buffer.data_ptr() + self.offset * self.dtype.bytes

    def stride(self) -> tuple[int, ...]:
        return self.strides


def launched(folder: Path, seed: int, driver: Driver) -> str:
    """Runs a case; what is wrong, or empty."""
    about = json.loads((folder / f"{seed}.json").read_text())
    arrays = dict(np.load(folder / f"{seed}.npz"))
    tables = {name.split("/")[1]: x for name, x in arrays.items() if name.startswith("table/")}
    program = runtime.load(from_bytes((folder / f"{seed}.twb").read_bytes(), str(seed)), driver)
    views: dict[str, View] = {}
    try:
        for name, tensor in about["tensors"].items():
            raw = arrays[f"given/{name}"]
            buffer = DeviceArray(driver, raw.shape, DTYPES["i8"])
            buffer.upload(raw.tobytes())
            shape, strides = tuple(tensor["shape"]), tuple(tensor["strides"])
            views[name] = View(buffer, DTYPES[tensor["dtype"]], shape, strides, tensor["offset"])
        program.launch({**views, **about["scalars"]})
        return _wrong(about, arrays, tables, views)
    finally:
        for view in views.values():
            view.buffer.free()
        program.close()


def _wrong(about: dict[str, Any], arrays: dict[str, Any], tables: dict[str, Any], views: dict[str, View]) -> str:
    for name, view in views.items():
        raw = np.frombuffer(view.buffer.download(), np.uint8)
        places = np.ndarray(view.shape, np.int64, buffer=np.arange(raw.size // view.dtype.bytes),
                            offset=8 * view.offset, strides=[8 * s for s in view.strides])  # fmt: skip
        around = np.ones(raw.size // view.dtype.bytes, bool)
        around[places.ravel()] = name not in about["outputs"]
        words = raw.reshape(-1, view.dtype.bytes), arrays[f"given/{name}"].reshape(-1, view.dtype.bytes)
        if (words[0] != words[1])[around].any():
            return f"{name}: bytes outside of the results have changed"
        if name not in about["outputs"]:
            continue
        got = of_bytes(raw, view.dtype.name, tables)[places]
        lo, hi, free = arrays[f"lo/{name}"], arrays[f"hi/{name}"], arrays.get(f"free/{name}")
        right = inside(lo, hi, free, about["outputs"][name], got)
        if not right.all():
            at = tuple(int(x) for x in np.argwhere(~right)[0])
            bounds = f"not within [{lo[at]!r}, {hi[at]!r}]"
            return f"{name}{list(at)} is {got[at]!r}, {bounds}; {(~right).sum()} of {right.size}"
    return ""


def begin(folder: Path) -> Callable[[int], tuple[str, str]]:
    """The judge of a process: (outcome, what) of a case."""
    driver = Driver()
    driver.push_context(driver.context(0))

    def judge(seed: int) -> tuple[str, str]:
        try:
            wrong = launched(folder, seed, driver)
        except Exception:
            return "failed", traceback.format_exc()
        return ("disagreed", wrong) if wrong else ("agreed", "")

    return judge


def main() -> None:
    """Prints what is wrong, and the counts."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", default="0:1000000000")
    parser.add_argument("--jobs", type=int, default=1, help="processes at once")
    parser.add_argument("--seconds", type=float, default=0, help="after which no case begins; 0: all cases")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    first, last = map(int, args.seeds.split(":"))
    seeds = sorted(s for s in (int(p.stem) for p in args.folder.glob("*.twb")) if first <= s < last)
    outcomes: dict[int, tuple[str, str]] = {}
    for seed, answer in in_processes(
        begin, (args.folder,), seeds, args.jobs, PATIENCE_SECONDS, args.seconds, lambda found: found[0] != "failed"
    ):  # after a failure the context may be gone
        outcomes[seed] = (answer, "") if isinstance(answer, str) else answer
    for seed, (outcome, what) in sorted(outcomes.items()):
        if outcome != "agreed":
            print(f"{seed}: {outcome} {what}", flush=True)
    counts = dict(Counter(outcome for outcome, _ in outcomes.values()))
    print(counts)
    if args.json:
        wrong = {str(s): {"outcome": o, "what": w} for s, (o, w) in sorted(outcomes.items()) if o != "agreed"}
        found = {"command": f"python tools/random_kernels_device.py {args.folder.name}", "kernels": len(outcomes)}
        args.json.write_text(json.dumps({**found, "outcomes": counts, "not_agreed": wrong}, indent=1) + "\n")


if __name__ == "__main__":
    main()
