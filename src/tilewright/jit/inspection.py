"""Runs one kernel through all steps and keeps each step's result, for a report. It is traced, scheduled and proved for
given arguments, compiled, simulated on NumPy data, and launched if there is a GPU."""

from __future__ import annotations

import inspect
import re
import statistics
import textwrap
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Operation, SSAValue

from tilewright.artifact.disassemble import sass
from tilewright.artifact.sass_accesses import KernelSassAccesses, kernel_accesses
from tilewright.artifact.schema import Artifact, KernelImage, Launch, Variant
from tilewright.base.expr import Expr
from tilewright.compiler.build import build
from tilewright.compiler.planned import PlannedKernel, PlannedProgram
from tilewright.compiler.program import plan, traced
from tilewright.compiler.requests import Observed, Request, interface, observe_facts
from tilewright.compiler.timing import Stopwatch, watch
from tilewright.diag import TilewrightError
from tilewright.hw.target import SM90A
from tilewright.jit import arrays
from tilewright.jit.calls import bind
from tilewright.jit.kernel import refuse_uncovered
from tilewright.jit.pipeline import PipelineTimeline, pipeline_of
from tilewright.lang.params import KernelFunction
from tilewright.lang.schedule import Schedule
from tilewright.lang.signature import Signature
from tilewright.layout.register import RegisterLayout
from tilewright.runtime import check, load
from tilewright.runtime.device_array import DeviceArray
from tilewright.runtime.driver import Driver
from tilewright.simulate import SimulationReport, run_steps
from tilewright.tile import dialect as tile
from tilewright.tile.queries import extents, tensor_name
from tilewright.transport.text import transport_kernel
from tilewright.validate.transport_to_ptx import carried_out

LAUNCHES = 20
"""Timed launches on a GPU; the median is kept."""


@dataclass(frozen=True)
class Case:
    """A kernel with arguments: ``tensors`` by name (outputs too), and what the outputs must be within ``tolerance``.

    ``tolerance`` bounds the greatest absolute error of every output.
    """

    kernel: KernelFunction
    tensors: Mapping[str, NDArray[Any]]
    expected: Mapping[str, NDArray[Any]]
    tolerance: float
    keywords: Mapping[str, Hashable] = field(default_factory=dict[str, Hashable])


@dataclass(frozen=True)
class InspectedTensor:
    """A tensor argument as text: ``f32``, ``64 x 1000``; ``size_bytes`` of all its elements."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    size_bytes: int


@dataclass(frozen=True)
class TileMap:
    """Where a tile lies in the threads: ``name`` says what it holds, ``extents`` what of the layout's box is used."""

    name: str
    layout: RegisterLayout
    extents: tuple[int, ...]


@dataclass(frozen=True)
class OutputError:
    """Greatest absolute error of one output against its expected values, whose greatest magnitude is ``scale``."""

    tensor: str
    error: float
    tolerance: float
    scale: float

    @property
    def holds(self) -> bool:
        """Within the tolerance; false for NaN."""
        return self.error <= self.tolerance


@dataclass(frozen=True)
class Launched:
    """A run on a GPU: ``seconds`` is the median of ``LAUNCHES`` launches."""

    agreements: tuple[OutputError, ...]
    seconds: float
    bytes_moved: int


@dataclass(frozen=True)
class NotLaunched:
    """Why there was no launch."""

    reason: str


@dataclass(frozen=True)
class PassTime:
    """The time of one step, when this process first ran it."""

    name: str
    seconds: float


@dataclass(frozen=True)
class OpcodeCounts:
    """InstructionSet of one kernel by opcode, most frequent first."""

    ptx: tuple[tuple[str, int], ...]
    sass: tuple[tuple[str, int], ...]

    @property
    def ptx_count(self) -> int:
        """All PTX instructions."""
        return sum(n for _, n in self.ptx)

    @property
    def sass_count(self) -> int:
        """All SASS instructions, without padding."""
        return sum(n for _, n in self.sass)


@dataclass(frozen=True)
class Implementation:
    """An op of the Transport IR as text, and the PTX instructions that carry it out, each with its line."""

    op: str
    ptx: tuple[tuple[int, str], ...]


@dataclass(frozen=True)
class Inspection:
    """The results of all steps for one kernel. The artifact has only the variant that serves the case's extents, under
    ``predicate``; ``notes`` is its plan."""

    name: str
    place: str
    source: str
    arguments: tuple[InspectedTensor, ...]
    predicate: Expr
    notes: tuple[str, ...]
    maps: tuple[TileMap, ...]
    pipeline: PipelineTimeline | None
    artifact: Artifact
    accesses: KernelSassAccesses
    instructions: OpcodeCounts
    carried_out: tuple[Implementation, ...]
    simulated: SimulationReport
    agreements: tuple[OutputError, ...]
    launched: Launched | NotLaunched
    times: tuple[PassTime, ...]

    @property
    def holds(self) -> bool:
        """Every result agrees with what was expected."""
        device = self.launched.agreements if isinstance(self.launched, Launched) else ()
        return all(a.holds for a in (*self.agreements, *device))


@dataclass(frozen=True)
class RefusedKernel:
    """A kernel that did not come through: ``text`` is the diagnostic."""

    name: str
    source: str
    text: str


_AGAIN = "planned again after the assembler spilled registers: pictures and simulation are of the first plan"

Watch = Callable[[str], None]
"""Told what begins."""


def inspect_case(case: Case, announce: Watch) -> Inspection:
    """Runs all steps for one kernel; the case's arrays are not changed. ``TilewrightError`` where it is refused."""
    described = {name: arrays.describe(name, value) for name, value in case.tensors.items()}
    seen = {n: Observed(d.dtype, d.address, d.shape, d.strides) for n, d in described.items()}
    scalars = bind(case.kernel, (), {**case.tensors, **case.keywords}).scalars
    signature = Signature.of({n: t.dtype for n, t in seen.items()}, static=None, keywords=case.keywords)
    request = Request(case.kernel, signature, observe_facts(seen), SM90A, Schedule())
    with watch() as stopwatch:
        announce("tracing, scheduling and proving")
        symbols = check(interface(request, traced(request)), described, scalars)
        program = plan(request, symbols)
        planned = _serving(program, symbols)
        announce("emitting CUDA C++ and assembling it")
        artifact = build(replace(program, variants=(planned,), left_out=()))
    launches = [step.kernel for step in artifact.variants[0].steps if isinstance(step, Launch)]
    image = artifact.kernel(launches[-1])  # copies into workspaces come before it
    with stopwatch.run("disassemble"):
        disassembly = sass(image.cubin)
        instructions = OpcodeCounts(_opcodes(image.ptx, _PTX), _opcodes(disassembly, _SASS))
    with stopwatch.run("validate"):
        carried = _carried_out(image, artifact.variants[0])
    again = () if image.transport_ir == str(planned.transport) else (_AGAIN,)
    announce("simulating")
    results = {name: value.copy() for name, value in case.tensors.items()}
    with stopwatch.run("simulate"):
        report = run_steps(planned.steps, planned.scratch, results, scalars, symbols=symbols)[-1]
    announce("launching")
    return Inspection(
        name=case.kernel.name,
        place=f"{case.kernel.where.file}:{case.kernel.where.line}" if case.kernel.where else "",
        source=source_of(case.kernel),
        arguments=tuple(
            InspectedTensor(n, d.dtype.name, d.shape, prod(d.shape) * d.dtype.bytes) for n, d in described.items()
        ),
        predicate=planned.predicate,
        notes=(*artifact.variants[0].plan.splitlines(), *again),
        maps=tile_maps(planned),
        pipeline=pipeline_of(planned.transport),
        artifact=artifact,
        accesses=kernel_accesses(disassembly),
        instructions=instructions,
        carried_out=carried,
        simulated=report,
        agreements=_agreements(case, results),
        launched=_launch(case, artifact, scalars, stopwatch),
        times=tuple(PassTime(name, seconds) for name, seconds in stopwatch.seconds.items()),
    )


def _carried_out(image: KernelImage, variant: Variant) -> tuple[Implementation, ...]:
    """The pairs of PTX and Transport IR that validation matched; empty where it is undecided."""
    launch = next(s for s in variant.steps if isinstance(s, Launch) and s.kernel == image.symbol)
    kernel, lines = transport_kernel(image.transport_ir), image.ptx.splitlines()
    pairs = carried_out(kernel, image.ptx, launch.args, launch.grid[0])
    return tuple(Implementation(_in_a_line(op), tuple((n, lines[n - 1].strip()) for n in at)) for op, at in pairs)


def _in_a_line(op: Operation) -> str:
    """An op without types and locations."""
    text = str(op).splitlines()[0].partition("} : ")[0]
    return re.sub(r', (?:loc|note) = "[^"]*"', "", text).replace('"transport.', '"')


def _serving(program: PlannedProgram, symbols: Mapping[str, int]) -> PlannedKernel:
    """The variant that a launch would pick."""
    for variant in program.variants:
        if variant.predicate.evaluate(symbols):
            return variant
    refuse_uncovered(program, symbols)


def source_of(kernel: KernelFunction) -> str:
    """The kernel as its author wrote it, decorator included."""
    return textwrap.dedent(inspect.getsource(kernel.fn)).strip()


def tile_maps(planned: PlannedKernel) -> tuple[TileMap, ...]:
    """Layouts of what is loaded, accumulated and stored, each distinct one once, named by its users."""
    users: dict[tuple[RegisterLayout, tuple[int, ...]], list[str]] = {}
    for op in planned.tile.walk():
        match op:
            case tile.Load() if not _feeds_products(op.result):
                value, name = op.result, f"{tensor_name(op)} as loaded"
            case tile.Store():
                value, name = op.value, f"{tensor_name(op)} as stored"
            case tile.Dot():
                value, name = op.result, "the accumulator"
            case _:
                continue
        layout = _layout_of(planned, op, value)
        if layout is not None:
            names = users.setdefault(layout, [])
            names += [name] if name not in names else []
    return tuple(TileMap(", ".join(names), layout, extents) for (layout, extents), names in users.items())


def _layout_of(planned: PlannedKernel, op: Operation, value: SSAValue) -> tuple[RegisterLayout, tuple[int, ...]] | None:
    """The layout of a value of one or two axes and the extents in use; None for scalars and deeper tiles."""
    axes = planned.placement.axes_of.get(value)
    sizes = tuple(n or 1 for n in extents(value.type))
    if axes is None or not 1 <= len(axes) <= 2 or all(a is None for a in axes):
        return None
    return planned.placement.distribution_of(op).layout(axes), sizes


def _feeds_products(value: SSAValue) -> bool:
    """A tile that is only an operand of products: its place is shared memory, which no register layout describes."""
    users = [use.operation for use in value.uses]
    return bool(users) and all(
        isinstance(op, tile.Dot) or (isinstance(op, tile.Transpose) and _feeds_products(op.result)) for op in users
    )


# an optional predicate, then the opcode
_PTX = re.compile(r"^\s*(?:@!?%\w+\s+)?([a-z][\w.:]*)(?=[\s;]).*;\s*$", re.MULTILINE)
_SASS = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)")
_PADDING = "NOP"


def _opcodes(text: str, pattern: re.Pattern[str]) -> tuple[tuple[str, int], ...]:
    return tuple(Counter(op for op in pattern.findall(text) if op != _PADDING).most_common())


def _agreements(case: Case, results: Mapping[str, NDArray[Any]]) -> tuple[OutputError, ...]:
    found: list[OutputError] = []
    for name, expected in case.expected.items():
        wanted = expected.astype(np.float64)
        error = float(np.abs(results[name].astype(np.float64) - wanted).max(initial=0.0))
        found.append(OutputError(name, error, case.tolerance, float(np.abs(wanted).max(initial=0.0))))
    return tuple(found)


def _launch(
    case: Case, artifact: Artifact, scalars: Mapping[str, int | float], stopwatch: Stopwatch
) -> Launched | NotLaunched:
    """Upload, launch, compare; the reason when there is no GPU or it is another one."""
    try:
        driver = Driver()
        program = load(artifact, driver)
    except TilewrightError as error:
        return NotLaunched(error.diagnostics[0].summary)
    device: dict[str, DeviceArray] = {}
    driver.push_context(driver.context(0))
    try:
        for name, value in case.tensors.items():
            device[name] = DeviceArray(driver, value.shape, arrays.describe(name, value).dtype)
            device[name].upload(np.ascontiguousarray(value).tobytes())
        arguments = {**device, **scalars}
        with stopwatch.run("load and launch"):
            program.launch(arguments)
            results = {
                name: np.frombuffer(device[name].download(), case.tensors[name].dtype).reshape(device[name].shape)
                for name in case.expected
            }
        seconds = statistics.median(driver.seconds(lambda: program.launch(arguments)) for _ in range(LAUNCHES))
    except TilewrightError as error:
        return NotLaunched(error.diagnostics[0].summary)
    finally:
        for tensor in device.values():
            tensor.free()
        driver.pop_context()
    return Launched(_agreements(case, results), seconds, sum(t.size_bytes for t in device.values()))
