"""Kernels with one defect each, for compute-sanitizer: what it must report where it follows the processes of a run.

    python tools/sanitizer_controls.py CASES OUT

CASES is what ``random_kernels.py --artifacts`` kept. Of each tool the first case whose PTX has a place for the defect
is assembled again with it, into OUT/TOOL, to be launched as all others are:

    compute-sanitizer --tool TOOL --target-processes all python tools/random_kernels_device.py OUT/TOOL

memcheck    a store lies 1 GiB further
racecheck   the CTA's first barrier between writes and reads of shared memory is left out
synccheck   one thread of a warp passes by a barrier
initcheck   the first of two kernels stores nothing in the workspace between them
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path

from tilewright.artifact.bundle import read, to_bytes
from tilewright.artifact.schema import Artifact, KernelImage
from tilewright.codegen.assemble import compile_text
from tilewright.codegen.reassemble import source_around

_BARRIER = re.compile(r"\n\s*(?:bar|barrier)\.sync\s+0;")
_STORE = re.compile(r"(\bst\.global\.[^;\[]*\[%rd\d+)(?:\+\d+)?\]")


def _further(ptx: str) -> str:
    return _STORE.sub(r"\1+1073741824]", ptx, count=1)


def _unmet(ptx: str) -> str:
    """Without the first barrier that stands between a store and a load of shared memory in the text."""
    for found in _BARRIER.finditer(ptx):
        before, after = ptx[: found.start()].rfind("st.shared"), ptx.find("ld.shared", found.end())
        others = [m for m in _BARRIER.finditer(ptx) if before < m.start() < after]
        if 0 <= before < after and len(others) == 1:
            return ptx[: found.start()] + ptx[found.end() :]
    return ptx


def _passed(ptx: str) -> str:
    own = "\n{ .reg .pred %pass; .reg .b32 %own; mov.u32 %own, %tid.x; setp.ne.u32 %pass, %own, 3; @%pass bar.sync 0; }"
    return _BARRIER.sub(own, ptx, count=1)


def _unwritten(ptx: str) -> str:
    return re.sub(r"\bst\.global\.[^;]*;", "", ptx)


def planted(tool: str, artifact: Artifact) -> Artifact | None:
    """The artifact with the defect that a tool must report; None where it has no place for it."""
    first = artifact.kernels[0]
    if len(artifact.variants) != 1 or (tool == "initcheck" and not artifact.variants[0].workspace):
        return None
    if tool in ("racecheck", "synccheck") and (first.threads <= 32 or "wgmma" in first.ptx):
        return None
    change = {"memcheck": _further, "racecheck": _unmet, "synccheck": _passed, "initcheck": _unwritten}[tool]
    ptx = change(first.ptx)
    return None if ptx == first.ptx else replace(artifact, kernels=(_again(first, ptx), *artifact.kernels[1:]))


def _again(image: KernelImage, ptx: str) -> KernelImage:
    _, cubin, _ = compile_text(source_around(ptx), "sm_90a", image.symbol)
    return replace(image, ptx=ptx, cubin=cubin)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", type=Path)
    parser.add_argument("out", type=Path)
    args = parser.parse_args()
    cases = sorted(args.cases.glob("*.twb"))
    for tool in ("memcheck", "racecheck", "synccheck", "initcheck"):
        made = ((case, planted(tool, read(case))) for case in cases)
        case, artifact = next(((c, a) for c, a in made if a is not None), (None, None))
        if case is None or artifact is None:
            sys.exit(f"no case has a place for what {tool} reports")
        folder = args.out / tool
        folder.mkdir(parents=True, exist_ok=True)
        (folder / case.name).write_bytes(to_bytes(artifact))
        for suffix in (".npz", ".json", ".py"):
            shutil.copy(case.with_suffix(suffix), folder)
        print(f"{tool}: {case.stem}")


if __name__ == "__main__":
    main()
