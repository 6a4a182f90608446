"""Kernels with one defect each, for compute-sanitizer: what it must report where it follows the processes of a run.

    python tools/sanitizer_controls.py CASES OUT

CASES is what ``random_kernels.py --artifacts`` kept. Of each tool a few cases whose PTX has places for the defect are
assembled again with it, into OUT/TOOL, to be launched as all others are:

    compute-sanitizer --tool TOOL --target-processes all python tools/random_kernels_device.py OUT/TOOL

memcheck    every store lies 1 GiB further
racecheck   no barrier of the CTA stands between writes and reads of shared memory
synccheck   half of a warp passes by every barrier
initcheck   the first of two kernels stores nothing in the workspace between them
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from dataclasses import replace
from itertools import islice
from pathlib import Path

from tilewright.artifact.bundle import read, to_bytes
from tilewright.artifact.schema import Artifact, KernelImage
from tilewright.codegen.assemble import compile_text
from tilewright.codegen.reassemble import ptx_wrapper_source

_EACH = 4
_BARRIER = re.compile(r"\n\s*(?:bar|barrier)\.sync\s+0;")
_STORE = re.compile(r"(\bst\.global\.[^;\[]*\[%rd\d+)(?:\+\d+)?\]")


def _further(ptx: str) -> str:
    return _STORE.sub(r"\1+1073741824]", ptx)


def _unmet(ptx: str) -> str:
    return _BARRIER.sub("", ptx)


def _passed(ptx: str) -> str:
    return _BARRIER.sub(
        "\n{ .reg .pred %pass; .reg .b32 %own; mov.u32 %own, %tid.x; setp.lt.u32 %pass, %own, 16;\n"
        "@%pass bra $pass; bar.sync 0;\n$pass: }",
        ptx,
    )


def _unwritten(ptx: str) -> str:
    return re.sub(r"\bst\.global\.[^;]*;", "", ptx)


def planted(tool: str, artifact: Artifact) -> Artifact | None:
    """The artifact with the defect that a tool must report; None where it has no place for it."""
    first = artifact.kernels[0]
    if len(artifact.variants) != 1 or (tool == "initcheck" and not artifact.variants[0].workspace):
        return None
    shares = "st.shared" in first.ptx and "ld.shared" in first.ptx and first.threads > 32
    if tool in ("racecheck", "synccheck") and (not shares or "wgmma" in first.ptx):
        return None
    change = {"memcheck": _further, "racecheck": _unmet, "synccheck": _passed, "initcheck": _unwritten}[tool]
    ptx = change(first.ptx)
    return None if ptx == first.ptx else replace(artifact, kernels=(_again(first, ptx), *artifact.kernels[1:]))


def _again(image: KernelImage, ptx: str) -> KernelImage:
    _, cubin, _ = compile_text(ptx_wrapper_source(ptx), "sm_90a", image.symbol)
    return replace(image, ptx=ptx, cubin=cubin)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", type=Path)
    parser.add_argument("out", type=Path)
    args = parser.parse_args()
    cases = sorted(args.cases.glob("*.twb"))
    for tool in ("memcheck", "racecheck", "synccheck", "initcheck"):
        made = ((case, planted(tool, read(case))) for case in cases)
        found = list(islice(((c, a) for c, a in made if a is not None), _EACH))
        if not found:
            sys.exit(f"no case has a place for what {tool} reports")
        folder = args.out / tool
        folder.mkdir(parents=True, exist_ok=True)
        for case, artifact in found:
            (folder / case.name).write_bytes(to_bytes(artifact))
            for suffix in (".npz", ".json", ".py"):
                shutil.copy(case.with_suffix(suffix), folder)
        print(f"{tool}: {', '.join(case.stem for case, _ in found)}")


if __name__ == "__main__":
    main()
