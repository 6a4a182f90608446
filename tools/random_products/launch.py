"""One case: its kernel compiled, and launched on a GPU or on the PTX machine beside exact results."""

from __future__ import annotations

import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from random_kernels_device import View
from random_products.draw import Array, Case, Operand, contents
from random_programs.judge import load
from random_programs.places import NUMPY, Placed, aligned, lie
from support.fake_driver import FakeTensor
from support.ptx_driver import MachineDriver
from tilewright import runtime
from tilewright.artifact.schema import Artifact
from tilewright.base.dtypes import DTYPES
from tilewright.compiler.requests import Observed, observe_facts
from tilewright.diag import TilewrightError
from tilewright.lang.schedule import Schedule
from tilewright.runtime.device_array import DeviceArray
from tilewright.runtime.driver import Driver
from tilewright.runtime.program import Program

GREATEST = {"e4m3": 448.0, "e5m2": 57344.0}
MOST_WORK = 4e6
"""Multiplications of a launch on the PTX machine."""


@dataclass
class Outcome:
    """``status``: agreed, disagreed, refused, failed (a launch) or traceback (the compiler)."""

    seed: int
    status: str
    what: str = ""
    launches: int = 0
    seconds: float = 0.0
    about: dict[str, Any] = field(default_factory=dict)


def judged(case: Case, folder: Path, driver: Driver | None) -> Outcome:
    """Compiles a case and launches it; without a driver on the PTX machine, small shapes only."""
    begun, found = time.monotonic(), Outcome(case.seed, "agreed")
    found.about = {"kind": case.kind, "form": case.form, "layout": case.layout, "pins": [], "rows": case.rows}
    path = folder / f"{case.name}.py"
    path.write_text(case.source)
    first: Any = None
    try:
        artifact: Artifact | None = None
        for number, extents in enumerate(case.shapes):
            given = placed(case, extents, np.random.default_rng(case.seed * 8 + number))
            facts = observe_facts({n: _seen(p) for n, p in given.items()})
            if artifact is None:
                artifact, found.about["pins"] = compiled(case, path, facts)
                first, found.about["plan"] = facts, [str(line) for line in artifact.plan][:3]
            if facts != first or (driver is None and _work(case, extents) > MOST_WORK):
                continue
            wrong = launched(case, artifact, given, driver)
            found.launches += 1
            if wrong:
                found.status, found.what = "disagreed", f"{extents}: {wrong}"
                break
    except TilewrightError as error:
        refused = first is None or error.code.startswith("SCH")  # or the class of a later launch
        found.status, found.what = ("refused" if refused else "failed"), f"{error.code} {error}"
    except Exception:
        found.status, found.what = ("traceback" if first is None else "failed"), traceback.format_exc()
    found.seconds = round(time.monotonic() - begun, 2)
    return found


def compiled(case: Case, path: Path, facts: Any) -> tuple[Artifact, list[str]]:
    """The kernel, and the pins that a schedule could keep: the first are given up one after another."""
    kernel, dtypes = load(path, case.name), {x.name: x.dtype for x in case.tensors}
    for given_up in range(len(case.pins)):
        kept = list(case.pins[given_up:])
        try:
            return kernel.compile(dtypes=dtypes, facts=facts, schedule=Schedule.parse(", ".join(kept))), kept
        except TilewrightError as error:
            if not error.code.startswith("SCH"):
                raise
    return kernel.compile(dtypes=dtypes, facts=facts), []


def _work(case: Case, extents: Mapping[str, int]) -> float:
    return float(extents["M"] * extents["N"] * extents["K"]) * (extents["B"] if case.form == "batched" else 1)


def _seen(p: Placed) -> Observed:
    name = next(n for n, d in NUMPY.items() if d == p.base.dtype)
    return Observed(DTYPES[name], p.offset * p.base.itemsize, p.shape, p.strides)


def placed(case: Case, extents: Mapping[str, int], rng: np.random.Generator) -> dict[str, Placed]:
    """All tensors in memory full of set bits, which are NaN in every float; so are outputs that are only written."""
    found: dict[str, Placed] = {}
    for x in case.tensors:
        shape = tuple(int(d) if d.isdecimal() else extents[d] for d in x.dims)
        itemsize = NUMPY[x.dtype].itemsize
        how = {"aligned": "plain", "pitched": "pitched"}.get(case.rows) or ("offset", "sliced", "plain")[case.seed % 3]
        strides, offset, size = lie(shape, how, itemsize, rng)
        if case.rows == "pitched" and len(shape) > 1:  # rows apart, aligned
            wide = strides[-2] + 16
            strides = tuple(s // strides[-2] * wide if i < len(shape) - 1 else s for i, s in enumerate(strides))
            size = offset + sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) + 1 + 32
        guard = 256 // itemsize
        base = aligned(size + 2 * guard, NUMPY[x.dtype])
        base.view(np.uint8)[:] = 0xFF
        p = Placed(base, shape, strides, offset + guard)
        if not x.output or _kept(case, x):
            p.view[...] = contents(rng, x, shape)
        found[x.name] = p
    return found


def _kept(case: Case, x: Operand) -> bool:
    """Whether a result is added to what is there."""
    return case.form == "added" or x.name == "t"


def expected(case: Case, given: Mapping[str, Placed]) -> dict[str, Array]:
    """The outputs, rounded to their dtypes."""
    exact = case.exact({n: p.view for n, p in given.items()})
    found: dict[str, Array] = {}
    for x in case.tensors:
        if not x.output:
            continue
        y, kind = exact[x.name], NUMPY[x.dtype]
        if case.form == "added" and x.dtype in ("bf16", "f16"):  # the product is rounded before it is added
            before = given[x.name].view.astype(np.float64)
            y = (y - before).astype(np.float32).astype(kind).astype(np.float64) + before
        if x.dtype in GREATEST:
            y = np.clip(y, -GREATEST[x.dtype], GREATEST[x.dtype])
        found[x.name] = (y.astype(np.float32) if kind.kind not in "iu" else y).astype(kind)
    return found


def launched(case: Case, artifact: Artifact, given: Mapping[str, Placed], driver: Driver | None) -> str:
    """Runs a launch; what is wrong, or empty."""
    right = expected(case, given)
    before = {n: p.copy() for n, p in given.items()}
    after = _machine(artifact, given) if driver is None else _device(artifact, given, driver)
    for name, p in after.items():
        if not np.array_equal(p.around(), before[name].around()):
            return f"bytes around {name} have changed"
        old = right.get(name, before[name].view)
        same = p.view == old
        if not same.all():
            at = tuple(int(i) for i in np.argwhere(~same)[0])
            rows = sorted({tuple(int(i) // 8 for i in w) for w in np.argwhere(~same)})
            where = f"{int((~same).sum())} of {same.size}, blocks of 8: {rows[:12]}"
            return f"{name}{list(at)} is {p.view[at]}, not {old[at]}; {where}"
    return ""


def _machine(artifact: Artifact, given: Mapping[str, Placed]) -> dict[str, Placed]:
    after = {n: p.copy() for n, p in given.items()}
    driver = MachineDriver(schedules=1)
    driver.texts = {image.symbol: image.ptx for image in artifact.kernels}
    arguments: dict[str, Any] = {}
    for parameter in artifact.tensors:
        p = after[parameter.name]
        address = driver.memory.add(parameter.name, p.base, parameter.access.writes) + p.offset * p.base.itemsize
        driver.locations[address] = 0
        arguments[parameter.name] = FakeTensor(address, p.shape, p.strides, f"torch.{_seen(p).dtype.name}")
    Program(artifact, driver).launch(arguments)
    return after


def _device(artifact: Artifact, given: Mapping[str, Placed], driver: Driver) -> dict[str, Placed]:
    program = runtime.load(artifact, driver)
    views: dict[str, View] = {}
    try:
        for name, p in given.items():
            buffer = DeviceArray(driver, (p.base.nbytes,), DTYPES["i8"])
            buffer.upload(p.base.tobytes())
            views[name] = View(buffer, _seen(p).dtype, p.shape, p.strides, p.offset)
        program.launch(dict(views))
        after: dict[str, Placed] = {}
        for name, p in given.items():
            base = np.frombuffer(bytearray(views[name].buffer.download()), p.base.dtype)
            after[name] = replace(p, base=base)
        return after
    finally:
        for view in views.values():
            view.buffer.free()
        program.close()
