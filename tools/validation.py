"""Which kernels' PTX validates against their Transport IR, and that against their Tile IR, and how long both take:
processor time, beside NVRTC's of the same text. Python's cycle collector rests, as it does in the compiler.

    python tools/validation.py [--only NAME]... [--source SOURCE]... [--dtypes bf16,f32] [--bundles FOLDER] [--test]
                               [--recompiles N] [--jobs N] [--json FILE] [--verbose]

Every kernel that examples (in each dtype), the tests' registries and the benchmarks compile (``compiled_kernels``),
with all their variants. ``--bundles`` keeps what was compiled, so that a later run only validates and asks NVRTC again.
``--test`` executes the PTX that is undecided beside its IR, as the compiler does. ``--recompiles`` gives every text to
NVRTC so many times; PTX that differs from the artifact's is compared, too. ``--jobs`` takes so many requests at a time,
each in a process of its own: times are then a first compile's. The PTX machine's time is that of a matmul of 256 x 256
x 128 under eight schedules, the protocols' that of the proofs of every kernel without roles.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import shlex
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

os.environ["TILEWRIGHT_VALIDATION"] = "0"  # here, and not while compiling

from compiled_kernels import FLOATS, Requested, requests
from support.example_cases import EXAMPLES_BY_NAME
from support.ptx_driver import run_artifact
from tilewright.artifact.bundle import read, write_folder
from tilewright.artifact.schema import Artifact, KernelImage, Launch
from tilewright.base.dtypes import DTYPES
from tilewright.codegen.assemble import assemble
from tilewright.compiler.differential import run_differential_test
from tilewright.compiler.gc_pause import gc_paused
from tilewright.compiler.launch_recipe import recipe
from tilewright.compiler.proofs.obligations import prove_protocols
from tilewright.diag import TilewrightError
from tilewright.transport.asynchronous import Role
from tilewright.transport.text import tile_kernel, transport_kernel
from tilewright.validate.tile_to_transport.compare import compare as compare_lowering
from tilewright.validate.transport_to_ptx import compare

T = TypeVar("T")


@dataclass(frozen=True)
class Validation:
    """One kernel. ``ptx`` is validated, tested, refuted or undecided, ``lowering`` validated or undecided, with the
    first thing that was not shown; milliseconds are of processor time."""

    source: str
    artifact: str
    kernel: str
    ptx: str
    ptx_why: str
    ptx_ms: float
    lowering: str
    lowering_why: str
    lowering_ms: float
    nvrtc_ms: float
    texts: int
    """Different PTX texts that NVRTC made of one source, all compared."""
    protocol_ms: float | None
    """The proof of its protocols, of a kernel without roles."""


def validations(request: Requested, artifact: Artifact, recompiles: int, *, test: bool) -> Iterator[Validation]:
    """Each kernel of an artifact, compared."""
    launches = {s.kernel: s for v in artifact.variants for s in v.steps if isinstance(s, Launch)}
    for image in artifact.kernels:
        launch = launches.get(image.symbol)
        if launch is not None:
            found = _validation(request, artifact, image, launch, recompiles)
            yield _executed(found, image) if test and found.ptx == "undecided" else found


@gc_paused()
def _validation(
    request: Requested, artifact: Artifact, image: KernelImage, launch: Launch, recompiles: int
) -> Validation:
    kernel, source = transport_kernel(image.transport_ir), tile_kernel(image.tile_ir)
    ptx, ptx_ms = _timed(lambda: compare(kernel, image.ptx, launch.args, launch.grid[0]))
    lowering, lowering_ms = _timed(lambda: compare_lowering(source, kernel))
    made, nvrtc_ms = _timed(lambda: assemble(image.source, artifact.target, image.symbol))
    texts = {made.ptx, *(assemble(image.source, artifact.target, image.symbol).ptx for _ in range(recompiles))}
    for text in texts - {image.ptx}:
        ptx = ptx or compare(kernel, text, launch.args, launch.grid[0])
    plain = not any(isinstance(op, Role) for op in kernel.walk())
    return Validation(
        request.source,
        request.name,
        image.symbol,
        "undecided" if ptx else "validated",
        str(ptx[0])[:400] if ptx else "",
        ptx_ms,
        "undecided" if lowering else "validated",
        str(lowering[0])[:400] if lowering else "",
        lowering_ms,
        nvrtc_ms,
        len(texts | {image.ptx}),
        _timed(lambda: prove_protocols(kernel))[1] if plain else None,
    )


def _executed(found: Validation, image: KernelImage) -> Validation:
    """Undecided PTX, executed beside its IR."""
    kernel = transport_kernel(image.transport_ir)
    outcome = run_differential_test(kernel, image.ptx, recipe([kernel]))
    if outcome.differences:
        return replace(found, ptx="refuted", ptx_why=outcome.differences[0].what[:400])
    return replace(found, ptx="tested") if outcome.launches else found


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    """What some work returns, and the milliseconds of processor time it takes."""
    begin = time.process_time()
    result = work()
    return result, round(1e3 * (time.process_time() - begin), 1)


def compiled(request: Requested, bundles: Path | None) -> Artifact:
    """An artifact, from the folder where it is there."""
    kept = None if bundles is None else bundles / request.name.replace("/", " ")
    if kept is not None and kept.exists():
        return read(kept)
    artifact = request.compile(**request.options)
    if kept is not None:
        write_folder(artifact, kept)
    return artifact


def wanted(request: Requested, sources: list[str] | None, names: list[str] | None) -> bool:
    """Whether a request is from one of the sources, and its name contains one of the names; any without."""
    of_source = not sources or request.source in sources
    return of_source and (not names or any(part in request.name for part in names))


def answer(request: Requested, args: argparse.Namespace) -> tuple[str, list[Validation]]:
    """The code of what refuses the request, or its kernels."""
    try:
        artifact = compiled(request, args.bundles)
    except TilewrightError as error:
        return error.code, []
    return "", list(validations(request, artifact, args.recompiles, test=args.test))


def answers(asked: list[Requested], args: argparse.Namespace) -> Iterator[tuple[str, list[Validation]]]:
    """Those of all requests, in order."""
    if args.jobs == 1:
        yield from (answer(request, args) for request in asked)
        return
    with multiprocessing.get_context("fork").Pool(args.jobs, _inherit, (asked, args), maxtasksperchild=1) as pool:
        yield from pool.imap(_nth, range(len(asked)))


def _inherit(asked: list[Requested], args: argparse.Namespace) -> None:
    """Requests hold functions, which only a fork takes along."""
    _inherited[:] = [(request, args) for request in asked]


def _nth(number: int) -> tuple[str, list[Validation]]:
    return answer(*_inherited[number])


_inherited: list[tuple[Requested, argparse.Namespace]] = []


def machine_ms() -> float:
    """Processor time of a matmul of 256 x 256 x 128 in bf16 on the PTX machine, under eight schedules."""
    example = EXAMPLES_BY_NAME["matmul"]
    dtype = DTYPES["bf16"]
    artifact = example.kernel.compile(dtypes={n: d.name for n, d in example.tensor_dtypes(dtype).items()})
    arrays, _ = example.arrays({"M": 256, "N": 256, "K": 128}, dtype)
    return _timed(lambda: run_artifact(artifact, arrays, schedules=8))[1]


def report(found: list[Validation]) -> dict[str, object]:
    """Counts and times."""
    dear = [v for v in found if v.ptx_ms + v.lowering_ms > v.nvrtc_ms]
    return {
        "kernels": len(found),
        "ptx": dict(Counter(v.ptx for v in found)),
        "lowering": dict(Counter(v.lowering for v in found)),
        "ptx_ms": spread([v.ptx_ms for v in found]),
        "lowering_ms": spread([v.lowering_ms for v in found]),
        "both_ms": spread([v.ptx_ms + v.lowering_ms for v in found]),
        "nvrtc_ms": spread([v.nvrtc_ms for v in found]),
        "of_nvrtc": spread([(v.ptx_ms + v.lowering_ms) / v.nvrtc_ms for v in found], 2),
        "above_nvrtc": len(dear),
        "plain_protocol_ms": spread([v.protocol_ms for v in found if v.protocol_ms is not None] or [0.0]),
        "texts": dict(Counter(v.texts for v in found)),
        "machine_matmul_ms": machine_ms(),
    }


def spread(numbers: list[float], digits: int = 1) -> dict[str, float]:
    """Median, 90th percentile, and most."""
    ordered = sorted(numbers)
    most = {"median": statistics.median(ordered), "p90": ordered[9 * len(ordered) // 10], "most": ordered[-1]}
    return {name: round(value, digits) for name, value in most.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", help="names that contain this")
    parser.add_argument("--source", action="append", help="examples, generality, indexed, scans, sorts, benchmarks")
    parser.add_argument("--dtypes", default=",".join(FLOATS), help="of examples")
    parser.add_argument("--bundles", type=Path)
    parser.add_argument("--test", action="store_true", help="execute PTX that is undecided beside its IR")
    parser.add_argument("--recompiles", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="requests at a time")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    asked = [r for r in requests(tuple(args.dtypes.split(","))) if wanted(r, args.source, args.only)]
    found: list[Validation] = []
    refused: dict[str, str] = {}
    for request, (code, validated) in zip(asked, answers(asked, args), strict=True):
        if code:
            refused[request.name] = code
            print(f"{request.name}: not compiled: {code}", flush=True)
        found += validated
        for v in validated:
            told(v, verbose=args.verbose)
    summary = report(found)
    print(json.dumps(summary, indent=1))
    if args.json:
        versions = ("numpy", "xdsl", "nvidia-cuda-nvrtc")
        document = {
            "command": shlex.join(["python", "tools/validation.py", *sys.argv[1:]]),
            "date": str(date.today()),
            "host": f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores",
            "versions": {"python": platform.python_version(), **{name: version(name) for name in versions}},
            **summary,
            "not_compiled": refused,
            "all": [asdict(v) for v in found],
        }
        args.json.write_text(json.dumps(document, indent=1) + "\n")


def told(v: Validation, *, verbose: bool) -> None:
    """A line for what is not shown, or for all."""
    if verbose or v.ptx != "validated":
        both = round(v.ptx_ms + v.lowering_ms, 1)
        print(f"{v.artifact} {v.kernel}: {v.ptx}, {v.ptx_ms} ms, both {both}, NVRTC {v.nvrtc_ms}: {v.ptx_why[:300]}")
    if v.lowering != "validated":
        print(f"{v.artifact} {v.kernel}: lowering: {v.lowering_why[:300]}")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
