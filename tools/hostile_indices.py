"""Index tensors that somebody else filled: negative, huge, repeated, descending offsets, lengths beyond the tensor.

    python tools/hostile_indices.py [--cases 20000] [--seed 0] [--json benchmarks/results/hostile_indices.json]
    python tools/hostile_indices.py --device --cases 2000 --json benchmarks/results/hostile_indices_device.json
    compute-sanitizer python tools/hostile_indices.py --device --cases 100

Each case is a kernel of tests/support/indexed.py whose integer tensors are overwritten. The simulator refuses accesses
outside of tensors; the PTX machine has red zones around them and stops what doesn't end, on a GPU (``--device``) the
tensors lie between bytes that must not change. Results must be equal. Where a promise is broken (a tw.Unique tensor
with an entry twice) both must say so, and have stored nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import sys
import time
from collections import Counter
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]
os.environ.setdefault("TILEWRIGHT_VALIDATION", "0")

import tilewright as tw  # noqa: E402
from campaign.pool import in_processes  # noqa: E402
from random_kernels_device import View  # noqa: E402
from support.indexed import SHORT, Arrays, facts_of  # noqa: E402
from support.indexed_more import CASES  # noqa: E402
from support.ptx_driver import run_artifact  # noqa: E402
from tilewright import runtime  # noqa: E402
from tilewright.base.dtypes import DTYPES  # noqa: E402
from tilewright.runtime.device_array import DeviceArray  # noqa: E402
from tilewright.runtime.driver import Driver  # noqa: E402

INDEXED = {
    name: case
    for name, case in CASES.items()
    if any(a.dtype.kind in "iu" for a in case.draw(np.random.default_rng(0)).values())
}


def hostile(rng: np.random.Generator, like: np.ndarray, extents: list[int]) -> np.ndarray:
    """Integers of the same dtype and shape: some that a kernel expects, and the worst of the rest."""
    info = np.iinfo(like.dtype)
    near = [e + d for e in extents for d in (-1, 0, 1)]
    pool = np.array(
        [*near, 0, 1, -1, -2, info.max, info.min, info.max - 1, info.max // 2, 1 << 31, 1 << 32, -(1 << 31)]
    )
    pool = pool[(pool >= info.min) & (pool <= info.max)]
    kept = rng.random(like.shape) < rng.choice([0.0, 0.5, 0.9])
    drawn = np.where(kept, like, rng.choice(pool, like.shape).astype(like.dtype))
    return np.sort(drawn)[::-1].copy() if rng.random() < 0.1 and like.ndim == 1 else drawn.astype(like.dtype)


def compiled(name: str) -> Any:
    """A case's kernel, for tensors that lie as those that are drawn."""
    arrays = INDEXED[name].draw(np.random.default_rng(0))
    return INDEXED[name].kernel.compile(dtypes={n: a.dtype.name for n, a in arrays.items()}, facts=facts_of(arrays))


# -- what executes a kernel ------------------------------------------------------------------------------------------
Launch = Callable[[Any, Arrays], list[str]]
"""Runs an artifact on arrays, in place; what it did that it must not do."""


def in_machine(artifact: Any, arrays: Arrays) -> list[str]:
    """By the PTX machine."""
    return [str(fault) for _, report in run_artifact(artifact, arrays).reports for fault in report.faults]


class OnDevice:
    """On a GPU, each tensor in the middle of a buffer of its own."""

    GUARD = 1 << 16
    """Bytes before and after a tensor."""

    def __init__(self) -> None:
        self.driver = Driver()
        self.driver.push_context(self.driver.context(0))
        self.programs: dict[int, Any] = {}

    def __call__(self, artifact: Any, arrays: Arrays) -> list[str]:
        if id(artifact) not in self.programs:
            self.programs[id(artifact)] = runtime.load(artifact, self.driver)
        program = self.programs[id(artifact)]
        views = {name: self._placed(array) for name, array in arrays.items()}
        try:
            program.launch(dict(views))
            return [fault for name, view in views.items() for fault in self._read_back(name, view, arrays[name])]
        finally:
            for view in views.values():
                view.buffer.free()

    def _placed(self, array: np.ndarray) -> View:
        around = np.full(self.GUARD, 0xA5, np.uint8).tobytes()
        buffer = DeviceArray(self.driver, (2 * self.GUARD + array.nbytes,), DTYPES["i8"])
        buffer.upload(around + array.tobytes() + around)
        strides = tuple(s // array.itemsize for s in array.strides)
        return View(buffer, DTYPES[SHORT[array.dtype.name]], array.shape, strides, self.GUARD // array.itemsize)

    def _read_back(self, name: str, view: View, array: np.ndarray) -> list[str]:
        raw = np.frombuffer(view.buffer.download(), np.uint8)
        array[...] = np.frombuffer(raw[self.GUARD : -self.GUARD].tobytes(), array.dtype).reshape(array.shape)
        intact = (raw[: self.GUARD] == 0xA5).all() and (raw[-self.GUARD :] == 0xA5).all()
        return [] if intact else [f"stored outside of {name}"]


# -- cases ------------------------------------------------------------------------------------------------------------
def broken(run: Callable[[], object]) -> bool:
    """Whether a launch reports a broken promise."""
    try:
        run()
    except tw.TilewrightError as error:
        if error.code != "RUN023":
            raise
        return True
    return False


def judged(name: str, artifact: Any, seed: int, launch: Launch = in_machine) -> str:
    """``agree``, or what went wrong."""
    case, rng = INDEXED[name], np.random.default_rng(seed)
    arrays = case.draw(rng)
    extents = sorted({n for a in arrays.values() for n in a.shape})
    for key, array in arrays.items():
        if array.dtype.kind in "iu":
            arrays[key] = hostile(rng, array, extents)
    simulated: Arrays = {n: a.copy() for n, a in arrays.items()}
    given = {n: a.copy() for n, a in arrays.items()}
    told = broken(lambda: case.kernel(**simulated))
    faults = launch(artifact, arrays)
    if broken(tw.check) != told:
        return f"the launch finds {'no promise' if told else 'a promise'} broken"
    if told and any(arrays[n].tobytes() != a.tobytes() for n, a in given.items()):
        return "stored although a promise is broken"
    if faults:
        return faults[0]
    for key in arrays:
        close = np.isclose(
            arrays[key].astype(np.float64), simulated[key].astype(np.float64), 1e-5, 1e-5, equal_nan=True
        )
        if not close.all():
            return f"{key} differs at {np.argwhere(~close)[0].tolist()}"
        read = any(p.name == key and not p.access.writes for p in artifact.tensors)
        if read and given[key].tobytes() != arrays[key].tobytes():
            return f"{key} was written"
    return "agree"


def begin(cases: int, seed: int, device: bool, seconds: float) -> Callable[[int], tuple[int, list[dict[str, object]]]]:
    """The judge of a process, of kernels by number: how many cases agree, and those that don't."""
    launch: Launch = OnDevice() if device else in_machine

    def judge(number: int) -> tuple[int, list[dict[str, object]]]:
        name = sorted(INDEXED)[number]
        artifact, agree, wrong = compiled(name), 0, list[dict[str, object]]()
        begun = time.monotonic()
        for case in range(number, cases, len(INDEXED)):
            if seconds and time.monotonic() - begun > seconds:
                break
            answer = judged(name, artifact, seed + case, launch)
            agree += answer == "agree"
            if answer != "agree":
                wrong.append({"kernel": name, "seed": seed + case, "what": answer})
        return agree, wrong

    return judge


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--cases", type=int, default=20000)
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--device", action="store_true", help="on a GPU, not in the PTX machine")
    arguments.add_argument("--jobs", type=int, default=1, help="processes at once, each with kernels of its own")
    arguments.add_argument("--seconds", type=float, default=0, help="of each kernel; 0: all cases")
    arguments.add_argument("--json", default="")
    options = arguments.parse_args()
    started, found = time.monotonic(), Counter[str]()
    wrong: list[dict[str, object]] = []
    numbers = range(min(len(INDEXED), options.cases))
    for number, answer in in_processes(
        begin, (options.cases, options.seed, options.device, options.seconds), numbers, options.jobs, 1e9
    ):
        rows: list[dict[str, object]] = (
            [{"kernel": sorted(INDEXED)[number], "what": answer}] if isinstance(answer, str) else answer[1]
        )
        found.update({} if isinstance(answer, str) else {"agree": answer[0]})
        found.update({"wrong": len(rows)} if rows else {})
        wrong += rows
        for row in rows:
            print(row, flush=True)
    seconds = round(time.monotonic() - started, 1)
    print(f"{found.total()} of {options.cases} cases of {len(INDEXED)} kernels: {dict(found)}, {seconds} s")
    if options.json:
        command = shlex.join(["python", "tools/hostile_indices.py", *sys.argv[1:]])
        document = {"command": command, "date": str(date.today()), "python": platform.python_version()}
        document |= {
            "cases": options.cases,
            "run": found.total(),
            "seed": options.seed,
            "kernels": sorted(INDEXED),
            **found,
            "wrong": wrong,
        }
        Path(options.json).write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
