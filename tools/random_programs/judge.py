"""One random kernel every way there is: NumPy, the simulator, the PTX machine; what came of it."""

from __future__ import annotations

import signal
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from random_programs import text, values
from random_programs import tree as t
from random_programs.evaluate import TooMuch, evaluate, held
from random_programs.places import NUMPY, Placed, arrays, places
from support.fake_driver import FakeTensor
from support.ptx_driver import MachineDriver
from tilewright.artifact.schema import Artifact, Launch
from tilewright.base.dtypes import DTYPES
from tilewright.compiler.build import build
from tilewright.compiler.planned import PlannedKernel, PlannedProgram
from tilewright.compiler.program import plan, traced
from tilewright.compiler.requests import Observed, Request, interface, observe_facts
from tilewright.diag import TilewrightError
from tilewright.hw.target import SM90A
from tilewright.lang.schedule import Schedule
from tilewright.lang.signature import Signature
from tilewright.runtime import check
from tilewright.runtime.arguments import TensorDescription
from tilewright.runtime.program import Program
from tilewright.simulate import run_steps
from tilewright.transport.text import transport_kernel
from tilewright.validate.transport_to_ptx import compare

SCHEDULES = 2
"""Of the PTX machine: in lockstep, and one that holds warps back."""


class OutOfTime(Exception):
    """A kernel took longer than it may."""


@dataclass
class Outcome:
    """``status``: agreed, undefined (agreed, but the PTX machine saw undefined values used), refused, disagreed,
    traceback, timeout or large; ``code`` of a diagnostic; ``what`` is wrong."""

    seed: int
    family: str
    status: str = "agreed"
    code: str = ""
    what: str = ""
    seconds: dict[str, float] = field(default_factory=dict)
    elements: dict[str, int] = field(default_factory=lambda: {"exact": 0, "bounded": 0, "free": 0})
    validated: int = 0
    undecided: list[str] = field(default_factory=list)
    source: str = ""
    artifact: Artifact | None = None
    expected: dict[str, values.Value] = field(default_factory=dict)
    given: dict[str, Placed] = field(default_factory=dict)


@dataclass(frozen=True)
class Options:
    """Processor ``seconds`` a kernel may take; whether its PTX is executed, and compared with its Transport IR, and
    whether there is PTX if it is not executed."""

    seconds: float = 20
    machine: bool = True
    validate: bool = False
    build: bool = False


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raises ``OutOfTime`` in what takes more processor time: what else the machine does changes no outcome."""

    def late(*_: object) -> None:
        raise OutOfTime

    before = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


@dataclass(frozen=True)
class Drawn:
    """One launch: what its kernel says, its arguments, and what NumPy says of them."""

    kernel: t.Kernel
    source: str
    given: Callable[[], dict[str, Placed]]
    expected: Callable[[Mapping[str, Placed]], dict[str, values.Value]]


def launch_of(kernel: t.Kernel, seed: int) -> Drawn:
    """A kernel that is a tree, and what its seed gives it."""
    return Drawn(kernel, text.source(kernel), lambda: places(kernel, seed), lambda p: evaluate(kernel, arrays(p)))


def judged(drawn: Drawn, seed: int, folder: Path, options: Options) -> Outcome:
    """Run a kernel; its source is written to ``folder``, where tracing finds it."""
    kernel = drawn.kernel
    found = Outcome(seed, kernel.family, source=drawn.source)
    path = folder / f"{kernel.name}.py"
    path.write_text(found.source)
    try:
        with limited(options.seconds):
            _judge(drawn, path, found, options)
    except OutOfTime:
        found.status = "timeout"
    except TooMuch:
        found.status = "large"
    except TilewrightError as error:
        found.status, found.code, found.what = "refused", error.code, str(error)
    except Exception:
        found.status, found.what = "traceback", traceback.format_exc()
    return found


def _judge(drawn: Drawn, path: Path, found: Outcome, options: Options) -> None:
    kernel, stage = drawn.kernel, _Stages(found)
    found.given = drawn.given()
    with stage("evaluate"):
        found.expected = drawn.expected(found.given)
    with stage("plan"):
        program, planned, symbols = _planned(kernel, path, found.given)
    with stage("simulate"):
        simulated = {n: p.copy() for n, p in found.given.items()}
        run_steps(planned.steps, planned.scratch, arrays(simulated), kernel.scalars, symbols=symbols)
    _agree(kernel, found, simulated, "the simulator")
    if found.status != "agreed" or not (options.machine or options.build):
        return
    with stage("build"):
        found.artifact = _built(program, planned)
    if not options.machine:
        return
    with stage("machine"):
        executed = {n: p.copy() for n, p in found.given.items()}
        driver = executed_on_machine(found.artifact, kernel, executed)
    _agree(kernel, found, executed, "the PTX machine")
    _report(kernel, found, driver)
    if options.validate:
        with stage("validate"):
            _validate(found)


UNDEFINED = ("PTX013", "PTX014")
"""Undefined values that meet a branch or share a word with defined ones: where results agree they reached none."""


def _report(kernel: t.Kernel, found: Outcome, driver: MachineDriver) -> None:
    """What the PTX machine found beside the results. Atomic sums of floats may differ from schedule to schedule."""
    sums = {n for n, x in kernel.tensors.items() if x.use == "add" and t.is_float(x.dtype)}
    faults = [(x.code, f"{symbol}: {x}") for symbol, report in driver.reports for x in report.faults]
    faults += [
        ("PTX016", f"{symbol}: {x} differs")
        for symbol, report in driver.reports
        for x in report.differing
        if x not in sums
    ]
    if not faults:
        return
    codes = sorted({code for code, _ in faults})
    soft = found.status == "agreed" and set(codes) <= set(UNDEFINED)
    found.what += " the PTX machine reports " + "; ".join(text for _, text in faults[:3])
    found.status, found.code = ("undefined" if soft else "disagreed"), codes[0]


class _Stages:
    """Seconds of each stage."""

    def __init__(self, found: Outcome):
        self.found = found

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        begun = time.perf_counter()
        try:
            yield
        finally:
            self.found.seconds[name] = round(time.perf_counter() - begun, 3)


def load(path: Path, name: str) -> Any:
    """The kernel in a file."""
    scope: dict[str, Any] = {"__name__": path.stem, "__file__": str(path)}
    exec(compile(path.read_text(), str(path), "exec"), scope)
    return scope[name]


def _described(kernel: t.Kernel, given: Mapping[str, Placed]) -> dict[str, TensorDescription]:
    return {
        n: TensorDescription(
            address=p.view.__array_interface__["data"][0],
            shape=p.shape,
            strides=p.strides,
            dtype=DTYPES[kernel.tensors[n].dtype],
            device=None,
        )
        for n, p in given.items()
    }


def _request(kernel: t.Kernel, path: Path, given: Mapping[str, Placed]) -> Request:
    described = _described(kernel, given)
    seen = {n: Observed(d.dtype, d.address, d.shape, d.strides) for n, d in described.items()}
    signature = Signature.of({n: d.dtype for n, d in described.items()}, static=None, keywords={})
    schedule = Schedule.parse(kernel.pins)
    return Request(load(path, kernel.name), signature, observe_facts(seen), SM90A, schedule)


def compiled(kernel: t.Kernel, path: Path, given: Mapping[str, Placed]) -> Artifact:
    """A kernel whose source is in a file, compiled for its arguments: the variant that a launch would pick."""
    program, planned, _ = _planned(kernel, path, given)
    return _built(program, planned)


def _built(program: PlannedProgram, planned: PlannedKernel) -> Artifact:
    return build(replace(program, variants=(planned,), left_out=()))


def _planned(
    kernel: t.Kernel, path: Path, given: Mapping[str, Placed]
) -> tuple[PlannedProgram, PlannedKernel, Mapping[str, int]]:
    """A plan for the arguments, the variant that serves them, and what they give the class's symbols."""
    request = _request(kernel, path, given)
    symbols = check(interface(request, traced(request)), _described(kernel, given), kernel.scalars)
    program = plan(request, symbols)
    return program, _serving(program.variants, symbols), symbols


def _serving(variants: tuple[PlannedKernel, ...], symbols: Mapping[str, int]) -> PlannedKernel:
    """The variant that a launch would pick."""
    return next(v for v in variants if v.predicate.evaluate(symbols))


def executed_on_machine(artifact: Artifact, kernel: t.Kernel, given: Mapping[str, Placed]) -> MachineDriver:
    """Launch through the runtime, with the PTX machine as its device; arguments are written in place."""
    driver = MachineDriver(schedules=SCHEDULES)
    driver.texts = {image.symbol: image.ptx for image in artifact.kernels}
    arguments: dict[str, Any] = dict(kernel.scalars)
    for parameter in artifact.tensors:
        p = given[parameter.name]
        address = driver.memory.add(parameter.name, p.base, parameter.access.writes) + p.offset * p.base.itemsize
        driver.locations[address] = 0
        dtype = kernel.tensors[parameter.name].dtype
        arguments[parameter.name] = FakeTensor(address, p.shape, p.strides, f"torch.{dtype}")
    Program(artifact, driver).launch(arguments)
    return driver


def _agree(kernel: t.Kernel, found: Outcome, results: Mapping[str, Placed], who: str) -> None:
    """Compare outputs with their bounds; nothing else may have changed."""
    for name, p in results.items():
        if not np.array_equal(p.around(), found.given[name].around()):
            found.status, found.what = "disagreed", f"{who} wrote around {name}"
            return
    wrong = compared(kernel, found.expected, arrays(results), found if who == "the PTX machine" else None)
    if wrong:
        found.status, found.what = "disagreed", f"{who} and NumPy: {wrong}"


def compared(
    kernel: t.Kernel, expected: Mapping[str, values.Value], results: Mapping[str, Any], found: Outcome | None = None
) -> str:
    """What is outside of its bounds, or empty."""
    for name, value in expected.items():
        got = held(results[name], kernel.tensors[name].dtype)
        right = values.admits(value, got)
        if found is not None:
            free = 0 if value.free is None else int(value.free.sum())
            exact = int(((value.lo == value.hi) | (value.lo != value.lo)).sum())
            found.elements["free"] += free
            found.elements["exact"] += exact
            found.elements["bounded"] += value.lo.size - exact - free
        if not right.all():
            at = tuple(int(x) for x in np.argwhere(~right)[0])
            return (
                f"{name}{list(at)} is {got[at]!r}, not within [{value.lo[at]!r}, {value.hi[at]!r}]; "
                f"{int((~right).sum())} of {right.size}"
            )
    return ""


def _validate(found: Outcome) -> None:
    artifact = found.artifact
    assert artifact is not None
    kernels = {image.symbol: transport_kernel(image.transport_ir) for image in artifact.kernels}
    for variant in artifact.variants:
        for s in variant.steps:
            if isinstance(s, Launch) and s.kernel in kernels:
                differences = compare(kernels[s.kernel], artifact.kernel(s.kernel).ptx, s.args, s.grid[0])
                found.validated += not differences
                found.undecided += [str(differences[0])] if differences else []


__all__ = ["NUMPY", "Drawn", "Outcome", "judged", "launch_of"]
