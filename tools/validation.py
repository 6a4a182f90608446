"""Which kernels' PTX validates against their Transport IR, and that against their Tile IR, and how long both take:
processor time, beside NVRTC's.

    python tools/validation.py [--only NAME]... [--dtypes bf16,f32] [--bundles FOLDER] [--json FILE] [--verbose]

Every example kernel in every float dtype, and the kernels of tests/generality, with all their variants. ``--bundles``
keeps what was compiled, so that a later run only validates; NVRTC's times are then those of the first.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.example_cases import EXAMPLES_BY_NAME
from support.generality import CASES
from tilewright.artifact.bundle import read, write_folder
from tilewright.artifact.schema import Artifact, Launch
from tilewright.base.dtypes import DTYPES
from tilewright.compiler.proofs.descriptors import read_kernel, read_tile_kernel
from tilewright.compiler.timing import watch
from tilewright.diag import TilewrightError
from tilewright.jit.arrays import describe
from tilewright.validate.kernel import compare
from tilewright.validate.lowering.compare import compare as compare_lowering

FLOATS = ("bf16", "f16", "f32")


@dataclass(frozen=True)
class Validation:
    """One kernel: CPU milliseconds, and the first thing that was not shown; ``lowering`` of its Transport IR."""

    artifact: str
    kernel: str
    milliseconds: float
    differences: int
    first: str
    lowering: str
    lowering_milliseconds: float


def requests(dtypes: tuple[str, ...]) -> Iterator[tuple[str, Callable[[], Artifact]]]:
    """What to compile, by name."""
    for example in EXAMPLES_BY_NAME.values():
        for dtype in dtypes:
            given = {name: d.name for name, d in example.tensor_dtypes(DTYPES[dtype]).items()}
            yield f"{example.name}-{dtype}", lambda e=example, g=given: e.kernel.compile(dtypes=g)
    for name, case in CASES.items():
        given = {name: describe(name, array).dtype.name for name, array in case.arrays(case.shapes[-1])[0].items()}
        yield f"{name}-given", lambda c=case, g=given: c.kernel.compile(dtypes=g)


def validations(name: str, artifact: Artifact) -> Iterator[Validation]:
    """Each kernel of an artifact, compared."""
    launches = {s.kernel: s for v in artifact.variants for s in v.steps if isinstance(s, Launch)}
    for image in artifact.kernels:
        launch = launches.get(image.symbol)
        if launch is None:
            continue
        kernel = read_kernel(image.transport_ir)
        begin = time.process_time()
        found = compare(kernel, image.ptx, launch.args, launch.grid[0])
        spent = time.process_time() - begin
        source = read_tile_kernel(image.tile_ir)
        begin = time.process_time()
        unlike = compare_lowering(source, kernel)
        lowering = time.process_time() - begin
        yield Validation(
            name,
            image.symbol,
            round(1e3 * spent, 1),
            len(found),
            str(found[0]) if found else "",
            str(unlike[0]) if unlike else "",
            round(1e3 * lowering, 1),
        )


def compiled(name: str, build: Callable[[], Artifact], bundles: Path | None) -> tuple[Artifact, float | None]:
    """An artifact and the milliseconds NVRTC took, from the folder where it is there."""
    kept = None if bundles is None else bundles / name
    if kept is not None and kept.exists():
        return read(kept), None
    with watch() as stopwatch:
        artifact = build()
    if kept is not None:
        write_folder(artifact, kept)
    return artifact, 1e3 * stopwatch.seconds.get("assemble", 0)


def report(found: list[Validation]) -> dict[str, object]:
    """Counts and times."""
    good = [v for v in found if not v.differences]
    times = sorted(v.milliseconds for v in found)
    lowering = sorted(v.lowering_milliseconds for v in found)
    return {
        "kernels": len(found),
        "validated": len(good),
        "median_ms": statistics.median(times),
        "p90_ms": times[9 * len(times) // 10],
        "most_ms": times[-1],
        "lowering_validated": sum(not v.lowering for v in found),
        "lowering_median_ms": statistics.median(lowering),
        "lowering_p90_ms": lowering[9 * len(lowering) // 10],
        "lowering_most_ms": lowering[-1],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", help="names that contain this")
    parser.add_argument("--dtypes", default=",".join(FLOATS))
    parser.add_argument("--bundles", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    found: list[Validation] = []
    nvrtc: dict[str, float] = {}
    for name, build in requests(tuple(args.dtypes.split(","))):
        if args.only and not any(part in name for part in args.only):
            continue
        try:
            artifact, spent = compiled(name, build, args.bundles)
        except TilewrightError as error:
            print(f"{name}: not compiled: {error.code}")
            continue
        if spent is not None:
            nvrtc[name] = round(spent, 1)
        for v in validations(name, artifact):
            found.append(v)
            if v.differences or args.verbose:
                print(
                    f"{v.artifact} {v.kernel}: {v.differences} open, {v.milliseconds} ms: {v.first[:300]}", flush=True
                )
            if v.lowering:
                print(f"{v.artifact} {v.kernel}: lowering: {v.lowering[:300]}", flush=True)
    summary = report(found)
    print(summary)
    if args.json:
        told = {
            "command": "python " + " ".join(["tools/validation.py", *sys.argv[1:]]),
            "date": str(date.today()),
            "host": platform.processor() or platform.machine(),
            "python": platform.python_version(),
            **summary,
            "nvrtc_ms": nvrtc,
            "all": [asdict(v) for v in found],
        }
        args.json.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
