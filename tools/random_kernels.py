"""Random kernels over the whole language: NumPy, the simulator and the PTX machine must agree.

    python tools/random_kernels.py [--seeds FIRST:LAST] [--family NAME] [--seconds N] [--limit N] [--out DIR]
                                   [--validate] [--no-machine] [--artifacts DIR] [--jobs N] [--json FILE]

``--family indexed`` draws gathers, choices, absent elements, scans, sorts, histograms and loaded bounds, of integers;
without it the other families are drawn.

Every kernel is drawn from its seed, written as Python, evaluated by NumPy from its own tree (``random_programs``),
compiled for the arguments drawn with it, simulated, and its PTX executed. Outcomes: agreed, undefined (agreed, but the
PTX machine saw undefined values meet a branch or share a word), refused (by a diagnostic, counted by code), disagreed,
traceback, timeout (``--limit`` seconds of processor time a kernel), large (too much to evaluate). Sources of what did
not agree go to ``--out``; run one again with ``--seeds 17:18``. ``--artifacts`` keeps what ``random_kernels_device.py``
runs on a GPU.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from campaign.pool import in_processes
from random_programs.families import drawn
from random_programs.indexed import indexed
from random_programs.judge import Drawn, Options, Outcome, judged, launch_of
from random_programs.stored import store

_PATIENCE = 4
"""Wall clock to a second of processor time, on a busy machine."""
TOOLS = ("numpy", "ml-dtypes", "nvidia-cuda-nvrtc", "xdsl", "islpy")


def begin(family: str, options: Options, artifacts: Path | None) -> Callable[[int], Outcome]:
    """The judge of a process."""
    folder = Path(tempfile.mkdtemp())

    def judge(seed: int) -> Outcome:
        case = launch(seed, family)
        found = judged(case, seed, folder, options)
        if artifacts is not None and found.artifact is not None and found.status in ("agreed", "undefined"):
            store(artifacts, case.kernel, seed, found.artifact, found.given, found.expected, found.source)
        found.artifact, found.given, found.expected = None, {}, {}
        return found

    return judge


def launch(seed: int, family: str) -> Drawn:
    """What a seed gives; the family ``indexed`` is drawn where it is named."""
    return indexed(seed) if family == "indexed" else launch_of(drawn(seed, family), seed)


def keep(found: Outcome, folder: Path) -> None:
    """The source and what came of it."""
    folder.mkdir(parents=True, exist_ok=True)
    where = folder / f"{found.status}-{found.code or found.family}-{found.seed}.py"
    lines = "\n".join(f"# {line}".rstrip() for line in found.what.splitlines())
    where.write_text(
        f"{found.source}\n# python tools/random_kernels.py --seeds {found.seed}:{found.seed + 1}\n{lines}\n"
    )


def summary(outcomes: list[Outcome], command: str) -> dict[str, object]:
    """What is published."""
    refused = Counter(o.code for o in outcomes if o.status == "refused")
    elements = Counter[str]()
    for o in outcomes:
        elements.update(o.elements)
    families = {
        family: dict(sorted(Counter(o.status for o in outcomes if o.family == family).items()))
        for family in sorted({o.family for o in outcomes})
    }
    bad = ("disagreed", "undefined", "traceback", "timeout")
    return {
        "command": command,
        "date": time.strftime("%Y-%m-%d"),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in TOOLS},
        "kernels": len(outcomes),
        "outcomes": dict(sorted(Counter(o.status for o in outcomes).items())),
        "refused_by_code": dict(sorted(refused.items())),
        "families": families,
        "elements_compared": dict(elements),
        "validated": sum(o.validated for o in outcomes),
        "undecided": sum(len(o.undecided) for o in outcomes),
        "seconds": {
            stage: round(sum(o.seconds.get(stage, 0) for o in outcomes), 1)
            for stage in ("evaluate", "plan", "simulate", "build", "machine", "validate")
        },
        "seeds": {status: [o.seed for o in outcomes if o.status == status] for status in bad},
    }


def main() -> None:
    """Runs the seeds and prints what is wrong."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", default="0:100")
    parser.add_argument("--family", default="")
    parser.add_argument("--seconds", type=float, default=0, help="of the whole run; 0: all seeds")
    parser.add_argument("--limit", type=float, default=20, help="processor seconds a kernel")
    parser.add_argument("--jobs", type=int, default=1, help="processes at once")
    parser.add_argument("--out", type=Path, default=Path("report/random_kernels"))
    parser.add_argument("--validate", action="store_true")
    parser.add_argument("--no-machine", action="store_true")
    parser.add_argument("--artifacts", type=Path, help="keeps bundles, arguments and bounds of what agreed")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    options = Options(args.limit, not args.no_machine, args.validate, args.artifacts is not None)
    first, last = map(int, args.seeds.split(":"))
    outcomes = list[Outcome]()
    for seed, answer in in_processes(
        begin,
        (args.family, options, args.artifacts),
        range(first, last),
        args.jobs,
        _PATIENCE * args.limit,
        args.seconds,
    ):
        found = answer
        if isinstance(answer, str):  # NVRTC can't be interrupted
            case = launch(seed, args.family)
            found = Outcome(seed, case.kernel.family, "timeout" if answer == "hung" else "traceback", what=answer)
            found.source = case.source
        outcomes.append(found)
        if found.status != "agreed":
            keep(found, args.out)
            line = found.what.strip().splitlines()
            shown = line[-1] if found.status == "traceback" else line[0] if line else ""
            print(f"{seed} {found.family}: {found.status} {found.code} {shown}", flush=True)
    family = f" --family {args.family}" if args.family else ""
    result = summary(
        outcomes, f"python tools/random_kernels.py{family} --seeds {args.seeds}" + " --validate" * args.validate
    )
    print(json.dumps(result, indent=1))
    if args.json:
        args.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
