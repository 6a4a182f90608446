"""Every kernel of the examples, given to NVRTC again and again: does PTX of another text validate, too?

    python tools/recompiles.py [--times 50] [--jobs N] [--seconds N] [--dtypes bf16] [--only NAME] [--json FILE]

A process for each job: which compiles a kernel in which turn differs, and with it where NVRTC's objects lie. The first
PTX comes with machine code, the others alone, in half of the time. PTX that differs from the first one is compared with
the Transport IR, if the first one is validated. After ``--seconds`` none is given to NVRTC.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import sys
import time
from collections import Counter
from datetime import date
from importlib.metadata import version
from pathlib import Path

os.environ["TILEWRIGHT_VALIDATION"] = "0"  # here, and not while compiling

from compiled_kernels import Requested, requests
from tilewright.artifact.schema import KernelImage, Launch
from tilewright.codegen.assemble import OPTIONS, nvrtc
from tilewright.diag import TilewrightError
from tilewright.transport.text import transport_kernel
from tilewright.validate.transport_to_ptx import compare


class Compiled:
    """A kernel as it was compiled first."""

    def __init__(self, name: str, target: str, image: KernelImage, launch: Launch):
        self.name, self.target, self.symbol = f"{name} {image.symbol}", target, image.symbol
        self.source, self.ptx, self.ir = image.source, image.ptx, image.transport_ir
        self.args, self.grid = launch.args, launch.grid[0]

    def differences(self, ptx: str) -> str:
        """The first one from the Transport IR; empty if there is none."""
        found = compare(transport_kernel(self.ir), ptx, self.args, self.grid, 1)
        return str(found[0])[:300] if found else ""


def examples(dtypes: tuple[str, ...], only: str) -> list[Requested]:
    """What the examples compile."""
    return [r for r in requests(dtypes) if r.source == "examples" and only in r.name]


def compiled(work: tuple[int, tuple[str, ...], str]) -> list[Compiled]:
    """The kernels of the example of a number."""
    number, dtypes, only = work
    request = examples(dtypes, only)[number]
    try:
        artifact = request.compile(**request.options)
    except TilewrightError:
        return []
    launches = {s.kernel: s for v in artifact.variants for s in v.steps if isinstance(s, Launch)}
    kernels = [image for image in artifact.kernels if image.symbol in launches]
    return [Compiled(request.name, artifact.target, image, launches[image.symbol]) for image in kernels]


def again(work: tuple[Compiled, float]) -> tuple[str, str, str] | None:
    """A kernel's name, its PTX if that is another one, and why that is not validated; None when time is over."""
    kernel, until = work
    if until and time.time() > until:
        return None
    ptx = _ptx(kernel)
    if ptx == kernel.ptx:
        return kernel.name, "", ""
    why = kernel.differences(ptx)
    return kernel.name, ptx, why if why and not kernel.differences(kernel.ptx) else ""


def _ptx(kernel: Compiled) -> str:
    """What NVRTC prints of a kernel's text: of the architecture, not of a machine, it makes no machine code."""
    (status, program) = nvrtc.nvrtcCreateProgram(kernel.source.encode(), f"{kernel.symbol}.cu".encode(), 0, [], [])
    options = [f"--gpu-architecture=compute_{kernel.target.removeprefix('sm_')}".encode(), *OPTIONS]
    statuses = [status, *nvrtc.nvrtcCompileProgram(program, len(options), options)]
    status, size = nvrtc.nvrtcGetPTXSize(program)
    ptx = bytearray(size)
    statuses += [status, *nvrtc.nvrtcGetPTX(program, ptx), *nvrtc.nvrtcDestroyProgram(program)]
    assert not any(map(int, statuses)), kernel.name
    return ptx.rstrip(b"\0").decode()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=50)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=float, default=0)
    parser.add_argument("--dtypes", default="bf16")
    parser.add_argument("--only", default="", help="names that contain this")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    dtypes = tuple(args.dtypes.split(","))
    begun = time.time()
    count = len(examples(dtypes, args.only))
    with multiprocessing.get_context("spawn").Pool(args.jobs) as pool:
        found = pool.imap_unordered(compiled, [(n, dtypes, args.only) for n in range(count)])
        kernels = [kernel for each in found for kernel in each]
        print(f"{len(kernels)} kernels of {count} requests in {time.time() - begun:.0f} s", flush=True)
        work = [(kernel, begun + args.seconds if args.seconds else 0.0) for kernel in kernels] * args.times
        random.Random(1).shuffle(work)
        times, texts = Counter[str](), dict[str, set[str]]()
        refused = dict[str, str]()
        for answer in pool.imap_unordered(again, work):
            if answer is None:
                continue
            name, ptx, why = answer
            times[name] += 1
            texts.setdefault(name, set()).add(ptx)
            if why:
                refused[name] = why
    each = [times[kernel.name] for kernel in kernels]
    report = {
        "command": f"python tools/recompiles.py {' '.join(sys.argv[1:])}",
        "date": str(date.today()),
        "nvrtc": version("nvidia-cuda-nvrtc"),
        "kernels": len(kernels),
        "recompiles": sum(each),
        "of_each": [min(each, default=0), max(each, default=0)],
        "of_several_texts": {name: len(found) for name, found in texts.items() if len(found | {""}) > 1},
        "refused": refused,
        "seconds": round(time.time() - begun, 1),
    }
    print(json.dumps(report, indent=1))
    if args.json:
        args.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
