"""What interior versions are worth: kernels as they are beside the same ones with masks everywhere, times and code.

    python benchmarks/interior.py build
    ncu --profile-from-start off --csv --metrics M python benchmarks/interior.py launch > counters.csv
    python benchmarks/interior.py run --counters counters.csv --json benchmarks/results/interior.json

    split    the compiler's: whole tiles and whole steps without guards, beside them the guarded text; in that,
             registers whose elements are all there, as a uniform test finds, without guards
    tests    guarded text alone, with those uniform tests
    masks    guarded text alone, every access under the guard of its elements

``build`` leaves the schedule as it is and turns off one or both of the compiler's splits; every kernel is proved as any
other. Kernels, shapes and checks are those of ``padding.py``; a core is the loop or body that most threads run, its
accesses as ``tilewright show BUNDLE --part accesses`` counts them.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import product
from math import gcd
from typing import Any

import padding
import padding_report
from harness import ARTIFACTS, Timer, document, file_of, load, store, write

WAYS = ("split", "tests", "masks")
WIDTHS = (4001, 4004, 4096, 4099, 4100, 4200)
PROFILED = (4001, 4200)


CODE = ARTIFACTS / "interior_code.json"
"""What ``build`` says of the machine code."""


@contextmanager
def without_split(way: str) -> Iterator[None]:
    """The compiler with one or both of its splits turned off."""
    from tilewright.codegen.writer import Writer
    from tilewright.schedule.lower import Lowering

    bodies, inside = Lowering.bodies, Writer._inside
    if way != "split":
        Lowering.bodies = lambda self: self.body(self.kernel.body.block, split=False)  # type: ignore[method-assign]
    if way == "masks":
        Writer._inside = lambda self, conditions, base, part: None  # type: ignore[method-assign]
    try:
        yield
    finally:
        Lowering.bodies, Writer._inside = bodies, inside  # type: ignore[method-assign]


def anew(kernel: Any, **options: Any) -> Any:
    """What ``kernel.compile`` makes, whatever was compiled before."""
    from tilewright.jit import Kernel

    asked, request = Kernel(kernel)._asked(**options)
    return asked._built(asked._plan(request), False)


def build(only: str) -> None:
    """One artifact for each kernel, alignment and way; of all that are there, what machine code they have."""
    for case in padding.CASES:
        for align in padding.ALIGNMENTS:
            if only not in f"{case.name}_{align}":
                continue
            kernel, options = padding.compilation(case, align)
            for way in WAYS:
                with without_split(way):
                    artifact, seconds = store(f"interior_{case.name}_{align}_{way}", partial(anew, kernel), **options)
                print(case.name, align, way, f"{seconds:.1f} s", len(artifact.kernels), "kernels", flush=True)
    CODE.write_text(json.dumps({"families": families(), "kernels": running()}, indent=1))


def families() -> dict[str, dict[str, Any]]:
    """Machine code by kernel, alignment and way."""
    from tilewright.artifact.bundle import from_bytes

    found = dict[str, dict[str, Any]]()
    for case in padding.CASES:
        for align in padding.ALIGNMENTS:
            for way in WAYS:
                file = file_of(f"interior_{case.name}_{align}_{way}")
                if file.exists():
                    found[f"{case.name}_{align}_{way}"] = describe(from_bytes(file.read_bytes(), file.stem))
    return found


def running() -> dict[str, dict[str, Any]]:
    """The machine code that runs at ``PROFILED``, first of its launches: code, registers, accesses, those of loops."""
    from tilewright.artifact.bundle import from_bytes
    from tilewright.artifact.disassemble import code_bytes, sass
    from tilewright.artifact.sass_accesses import kernel_accesses
    from tilewright.artifact.schema import Launch

    found = dict[str, dict[str, Any]]()
    for case, n, way in product(padding.CASES, PROFILED, WAYS):
        file = file_of(f"interior_{case.name}_{gcd(16, 2 * n)}_{way}")
        if not file.exists():
            continue
        artifact = from_bytes(file.read_bytes(), file.stem)
        known = {"M": padding.ROWS, "N": n}
        for variant in artifact.variants:
            others = variant.predicate.symbols - known.keys()  # of packed, aligned tensors
            strides = {name: n if name.endswith("stride0") else 1 if "stride" in name else 4096 for name in others}
            if variant.predicate.evaluate({**known, **strides}):
                break
        first = next(step.kernel for step in variant.steps if isinstance(step, Launch))
        (image,) = (k for k in artifact.kernels if k.symbol == first)
        accesses = kernel_accesses(sass(image.cubin))
        found[f"{case.name} {n} {way}"] = {
            "kernel": image.symbol,
            "code": code_bytes(image.cubin),
            "registers": image.registers,
            "accesses": accesses.whole.total,
            "predicated": accesses.whole.predicated,
            "instructions": accesses.instructions,
            "masked": accesses.masked,
            "loops": [str(loop) for loop in accesses.loops],
            "whole": str(accesses.whole),
        }
    return found


def describe(artifact: Any) -> dict[str, Any]:
    """Code of a family and the accesses of its machine code."""
    from tilewright.artifact.disassemble import code_bytes, sass
    from tilewright.artifact.sass_accesses import kernel_accesses

    found = [kernel_accesses(sass(k.cubin)) for k in artifact.kernels]
    return {
        "kernels": len(found),
        "code_bytes": sum(code_bytes(k.cubin) for k in artifact.kernels),
        "registers": max(k.registers for k in artifact.kernels),
        "accesses": sum(f.whole.total for f in found),
        "predicated": sum(f.whole.predicated for f in found),
        "instructions": sum(f.instructions for f in found),
        "masked": sum(f.masked for f in found),
    }


def run(args: argparse.Namespace) -> None:
    """Check and time every kernel at every width in every way; write JSON."""
    import torch

    timer, rows = Timer(torch, args.rounds), list[dict[str, Any]]()
    for case in padding.CASES:
        if args.only not in case.name:
            continue
        x = padding.Operands(torch, case)
        for n in WIDTHS:
            align, tensors = gcd(16, 2 * n), x.at(n)
            call = {**tensors, **dict(case.scalars)}
            variants: dict[str, Callable[[], object]] = {}
            errors: dict[str, float] = {}
            for way in WAYS:
                program = load(f"interior_{case.name}_{align}_{way}")
                if program is not None:
                    values = tuple(call[p.name] for p in program.artifact.parameters)
                    variants[way] = lambda p=program, v=values: p.launch(v)
                    errors[way] = x.check(torch, n, variants[way])
            if not variants:
                continue
            seconds = timer.medians(variants)
            wrong = [way for way, error in errors.items() if not error <= padding.WORST_ERROR]
            row = {
                "kernel": case.name,
                "n": n,
                "align_bytes": align,
                "microseconds": {way: round(s * 1e6, 2) for way, s in seconds.items()},
                **({"wrong": wrong} if wrong else {}),
            }
            rows.append(row)
            print(case.name, n, json.dumps(row["microseconds"]), "wrong: " + str(wrong) if wrong else "", flush=True)
        del x
        torch.cuda.empty_cache()
        code = json.loads(CODE.read_text())
        counted = [
            {"kernel": case.name, "n": n, "way": way} for case in padding.CASES for n in PROFILED for way in WAYS
        ]
        if args.counters:
            padding_report.join(counted, padding_report.counters(args.counters))
        found = document(
            torch, **timer.conditions(), matrix_rows=padding.ROWS, families=code, counted=counted, rows=rows
        )
        write(found, args.json, row_lines=True)


def launch(torch: Any) -> None:
    """Every way of every kernel once at ``PROFILED``, between the profiler's marks."""
    for case in padding.CASES:
        x = padding.Operands(torch, case)
        for n in PROFILED:
            for way in WAYS:
                program = load(f"interior_{case.name}_{gcd(16, 2 * n)}_{way}")
                call = {**x.at(n), **dict(case.scalars)}
                values = tuple(call[p.name] for p in program.artifact.parameters)
                padding_report.profiled(torch, lambda p=program, v=values: p.launch(v))
        del x
        torch.cuda.empty_cache()


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("what", choices=("build", "launch", "run"))
    arguments.add_argument("--only", default="", help="kernels whose names contain this")
    arguments.add_argument("--counters", default="", help="what Nsight Compute printed of `launch`")
    arguments.add_argument("--json", default="", help="where the document of the run goes")
    arguments.add_argument("--rounds", type=int, default=9)
    args = arguments.parse_args()
    if args.what == "launch":
        import torch

        launch(torch)
    else:
        build(args.only) if args.what == "build" else run(args)


if __name__ == "__main__":
    main()
