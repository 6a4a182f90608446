"""What leaves the compiler for one probe, and what judges it."""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from planted.mutant import TooLongError
from planted.probes import PROBES, Arrays, Probe
from support.ptx_driver import SPANS, MachineDriver, run_artifact
from support.tile_evaluator import evaluate
from tilewright.artifact.schema import Artifact, Launch
from tilewright.compiler import products, program
from tilewright.compiler.build import build
from tilewright.compiler.bundle_verdict import ReadBundle
from tilewright.compiler.differential import run_differential_test
from tilewright.compiler.launch_recipe import recipe
from tilewright.compiler.products import CandidateSearch
from tilewright.hw.tensormap import ELEMENT_BITS, DataType, Interleave, Swizzle
from tilewright.ptx.machine import DecodedTensorMap
from tilewright.runtime import driver as runtime_driver
from tilewright.transport.text import tile_kernel, transport_kernel
from tilewright.validate.tile_to_transport.compare import compare as compare_lowering
from tilewright.validate.transport_to_ptx import compare

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Code:
    """Digests of what leaves the compiler, by kernel; ``recipe`` is all that a launch goes by. ``schedule``: which of
    the candidates it is. ``decided``: kernels whose PTX was shown to be their IR's."""

    ptx: dict[str, str]
    cubins: dict[str, str]
    irs: dict[str, str]
    recipe: str
    schedule: str
    decided: tuple[str, ...] = ()

    @staticmethod
    def from_json(text: dict[str, Any]) -> Code:
        """The same from ``asdict``."""
        return Code(**{**text, "decided": tuple(text["decided"])})


class GivenUpError(Exception):
    """The schedule that a probe has without a bug was among the candidates, and another one was taken."""


def compiled(name: str, schedule: str = "") -> Artifact:
    """A probe's artifact; with ``schedule`` of its candidates that one alone, where it is among them. GivenUpError where
    a variant of another schedule serves the probe's launches."""
    probe = PROBES[name]
    if not schedule:
        return build(replace(program.plan(probe.request, probe.dims), left_out=()))
    planned, searches = _only(probe, schedule)
    artifact = build(replace(planned, left_out=()))
    if searches and artifact.variants[0].plan.splitlines()[0] != schedule:
        refused = (why for search in searches for which, why in search.refusals if which == schedule)
        raise GivenUpError(next(refused, "another schedule serves its launches"))
    return artifact


def _only(probe: Probe, schedule: str) -> tuple[Any, list[CandidateSearch]]:
    """The plan by one schedule: what another one would make of a refused kernel is no news of the bug. And the searches
    that had it among their candidates."""
    searched, having = products.search_products, list[CandidateSearch]()

    def search(*args: Any, **kwargs: Any) -> CandidateSearch:
        found = searched(*args, **kwargs)
        every = list(found.pending)
        named = [p for p in every if ", ".join([*(f"{k}={v}" for k, v in p[1].items()), str(p[2])]) == schedule]
        found.pending = iter(named or every)
        having.extend([found] * bool(named))
        return found

    products.search_products = search
    try:
        return program.plan(probe.request, probe.dims), having
    finally:
        products.search_products = searched


def code_of(artifact: Artifact) -> Code:
    """Its digests."""
    variants = tuple(replace(v, certificate=(), plan="") for v in artifact.variants)
    shapes = [(k.symbol, k.threads, k.cluster, k.shared_bytes) for k in artifact.kernels]
    recipe = repr((variants, shapes, artifact.facts, artifact.bounds, artifact.parameters, artifact.target))
    return Code(
        {k.symbol: _digest(k.ptx) for k in artifact.kernels},
        {k.symbol: hashlib.sha256(k.cubin).hexdigest()[:16] for k in artifact.kernels},
        {k.symbol: _digest(k.transport_ir) for k in artifact.kernels},
        _digest(recipe),
        artifact.variants[0].plan.splitlines()[0],
    )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def differences(artifact: Artifact, symbols: set[str]) -> dict[str, str]:
    """What the validator says of the PTX of each kernel of ``symbols``; empty where it is the IR's."""
    launches = {s.kernel: s for v in artifact.variants for s in v.steps if isinstance(s, Launch)}
    found: dict[str, str] = {}
    for symbol in sorted(symbols):
        image, launch = artifact.kernel(symbol), launches[symbol]
        try:
            said = compare(transport_kernel(image.transport_ir), image.ptx, launch.args, launch.grid[0])
            first = str(next(iter(said), ""))
        except (MemoryError, TooLongError):
            raise
        except Exception as error:  # no answer is no proof
            first = f"{type(error).__name__}: {error}"
        found[symbol] = " ".join(first.split())[:160]
    return found


def lowered_wrong(artifact: Artifact, symbols: set[str]) -> dict[str, str]:
    """What the validator says of the Transport IR of each kernel of ``symbols``, where it is not its Tile IR's."""
    found: dict[str, str] = {}
    for symbol in sorted(symbols):
        image = artifact.kernel(symbol)
        try:
            said = compare_lowering(tile_kernel(image.tile_ir), transport_kernel(image.transport_ir))
            first = str(next(iter(said), ""))
        except (MemoryError, TooLongError):
            raise
        except Exception as error:  # no answer is no proof
            first = f"{type(error).__name__}: {error}"
        if first:
            found[symbol] = " ".join(first.split()).replace(f"{ROOT}/", "")[:160]
    return found


def executed_wrong(artifact: Artifact, symbols: set[str]) -> str:
    """What the compiler finds that executes the PTX of kernels beside their Transport IR; empty if nothing."""
    for symbol in sorted(symbols):
        image = artifact.kernel(symbol)
        kernel = transport_kernel(image.transport_ir)
        for difference in run_differential_test(kernel, image.ptx, recipe([kernel])).differences:
            return " ".join(str(difference).split()).replace(f"{ROOT}/", "")[:160]
    return ""


def unchecked(artifact: Artifact) -> str:
    """What the compiler finds that executes the steps that check promises; empty if nothing."""
    try:
        promises = ReadBundle.of(artifact).promises()
    except (MemoryError, TooLongError):
        raise
    except Exception as error:  # texts that can't be read
        return f"{type(error).__name__}: {' '.join(str(error).split())}"[:160]
    return next((" ".join(found.split())[:160] for found in promises.refuted), "")


def traced_wrong(name: str) -> str:
    """What an evaluator of Tile IR, written from the language's documentation alone, finds wrong in a probe's trace."""
    probe = PROBES[name]
    for extents in probe.runs:
        arrays, expected = probe.arrays(extents)
        try:
            kernel = program.traced(probe.request)
            evaluate(kernel.parent_op() or ModuleOp([kernel]), arrays, probe.scalars)
        except Exception as error:
            return f"it ends with {type(error).__name__}: {' '.join(str(error).split())[:80]}"
        if wrong := _apart(probe, arrays, expected):
            return wrong
    return ""


def harm(name: str, artifact: Artifact) -> str:
    """What goes wrong when the artifact runs on the PTX machine, in a few words; empty where nothing does."""
    return next(_harms(PROBES[name], artifact), "")


def through_the_api() -> None:
    """From now on the machine's tensor maps are read from what the runtime gives ``cuTensorMapEncodeTiled``, by the
    order of its parameters in the driver's documentation."""
    made: list[DecodedTensorMap] = []

    def encode(element: int, rank: int, address: int, *rest: Any) -> tuple[int, Any]:
        dims, strides, box, steps, interleave, swizzle, _, fill = rest
        assert len(dims) == rank, f"{rank} of {len(dims)} dimensions"
        assert interleave == Interleave.NONE, f"interleave {interleave}"
        size = ELEMENT_BITS[DataType(element)] // 8
        outside = {2: b"\xff\x7f", 4: b"\xff\xff\xff\x7f"}[size] if fill else b""
        made.append(
            DecodedTensorMap(
                *(address, size, tuple(dims), tuple(strides[: rank - 1]), tuple(box)),
                *(SPANS[Swizzle(swizzle)], tuple(steps), outside),
            )
        )
        block = ctypes.create_string_buffer((len(made) - 1).to_bytes(8, "little") + bytes(120), 128)
        return 0, SimpleNamespace(getPtr=lambda: ctypes.addressof(block), keep=block)

    numbers = ("CUtensorMapDataType", "CUtensorMapInterleave", "CUtensorMapSwizzle", "CUtensorMapL2promotion")
    names = (*numbers, "CUtensorMapFloatOOBfill", "cuuint64_t", "cuuint32_t")
    runtime_driver.cuda = SimpleNamespace(**dict.fromkeys(names, int), cuTensorMapEncodeTiled=encode)

    def of_machine(machine: MachineDriver, fields: runtime_driver.TensorMapFields) -> bytes:
        encoded = runtime_driver.Driver.encode_tensor_map(cast("Any", machine), fields)
        machine.maps = made
        return encoded

    MachineDriver.encode_tensor_map = of_machine


def _harms(probe: Probe, artifact: Artifact) -> Iterator[str]:
    for extents in probe.runs:
        arrays, expected = probe.arrays(extents)
        try:
            driver = run_artifact(artifact, arrays, probe.scalars, schedules=4)
        except Exception as error:
            yield f"the run ends with {type(error).__name__}: {str(error).splitlines()[0][:80]}"
            continue
        for symbol, report in driver.reports:
            yield from (f"{symbol}: {fault.code}" for fault in report.faults)
            if report.differing:
                yield f"{symbol}: results depend on the order of threads"
        if wrong := _apart(probe, arrays, expected):
            yield wrong


def _apart(probe: Probe, arrays: Arrays, expected: np.ndarray) -> str:
    """How many elements of the output are not what they should be."""
    got = arrays[probe.kernel.tensors[-1].name].astype(np.float64)
    right = np.abs(got - expected) <= TOLERANCE * (np.abs(expected).mean() + np.abs(expected))
    return "" if right.all() else f"wrong in {int((~right).sum())} of {got.size} elements"


TOLERANCE = 2e-2
"""Relative to the expected value and the mean of all: five units in the last place of a bf16."""


def as_json(code: Code) -> dict[str, Any]:
    """For a file."""
    return asdict(code)
