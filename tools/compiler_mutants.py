"""How many bugs planted in the compiler are refused before code leaves it.

    python tools/compiler_mutants.py [--only CLASS] [--name NAME ...] [--probe KERNEL ...]
        [--jobs N] [--json FILE] [--update] [--new]

Each bug (``planted``) is one replacement in the source of one file. In a process of its own the changed module is
imported in place of the right one, a few kernels are compiled, and what leaves the compiler is judged last by the
comparison of PTX and launch recipe with the Transport IR. A kernel whose PTX, machine code, IR and recipe are byte for
byte those without the bug does not exercise it. ``--update`` keeps what the file holds of other bugs, ``--new`` plants
those alone that it does not hold (of provers none); ``--list`` prints all bugs and ends. ``--jobs`` compiles for so
many bugs at a time. Verdicts:

    refused        on every kernel that exercises it
    escaped        code left the compiler that is not shown to be right; ``harm`` says what the PTX machine sees of it
    undecided      the same, of a kernel whose PTX the validator can't decide even without the bug
    harmless       the PTX is another one, and shown to do what the unchanged IR says; or by the argument recorded
    not exercised  by any of its kernels: a defect of the campaign

Bugs of tracing and of the runtime's encoder, which the compiler has nothing to refuse against, are in a table of their
own: caught by an evaluator of Tile IR that shares nothing with the tracer, and by a machine that reads tensor maps from
the arguments of ``cuTensorMapEncodeTiled``. The 128 bytes that a driver makes of these are not read. Bugs of provers,
which refuse nothing in a compiler without bugs, are caught by the tests that their ``probes`` are.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import shlex
import sys
import time
from collections import Counter
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import replace
from datetime import date
from importlib import import_module  # noqa: TID251 - warms a process up for its forks
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / folder) for folder in ("src", "tools", "tests")]

from planted.judge import apart, base, judged, verdict  # noqa: E402
from planted.mutant import APART, REFUSABLE, TRUSTED, Kind, Mutant, check  # noqa: E402
from planted.mutants import MUTANTS  # noqa: E402

_THIRD_PARTY = ("numpy", "ml_dtypes", "xdsl.dialects.builtin", "islpy", "z3", "flint", "cuda.bindings.nvrtc")
"""Imported once, before forks; the compiler itself never."""
_TOOLS = ("nvidia-cuda-nvrtc", "xdsl", "islpy", "numpy")
_VERDICTS = ("refused", "harmless", "undecided", "escaped", "not exercised")


def chosen(only: str, names: list[str], probes: list[str]) -> tuple[Mutant, ...]:
    """The mutants of a class, or by name, on all their kernels or on some; SystemExit for a name that is none."""
    unknown = set(names) - {m.name for m in MUTANTS}
    if unknown:
        raise SystemExit(f"no mutant {', '.join(sorted(unknown))}")
    found = (m for m in MUTANTS if (not only or m.kind == only) and (not names or m.name in names))
    limited = (replace(m, probes=tuple(p for p in m.probes if not probes or p in probes)) for m in found)
    return tuple(m for m in limited if m.probes)


def run(mutants: tuple[Mutant, ...], jobs: int) -> list[dict[str, Any]]:
    """A line for each mutant, printed as it is known."""
    probes = sorted({probe for m in mutants if m.kind is not Kind.PROVERS for probe in m.probes})
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("fork")) as pool:
        bases = compiled_without(pool, probes, jobs)
        of_each = ({p: bases[p] for p in m.probes if p in bases} for m in mutants)
        lines: list[dict[str, Any]] = []
        for mutant, rows in zip(mutants, pool.map(_rows, mutants, of_each), strict=True):
            line = {"name": mutant.name, "class": mutant.kind.value, "what": mutant.what, "file": mutant.file}
            line |= {"named": mutant.named, "verdict": verdict(mutant, rows), "rows": rows}
            if mutant.harmless:
                line["argument"] = mutant.harmless
            lines.append(line)
            shown = "; ".join(f"{r['probe']}: {r['status']} {r.get('by', '')} {r.get('harm', '')}" for r in rows)
            told = f"{len(lines):4} {line['verdict']:13} {mutant.kind.value:17} {mutant.name}: {shown}"
            print(told[:240], flush=True)
    return lines


def compiled_without(pool: Executor, probes: list[str], jobs: int) -> dict[str, Any]:
    """What leaves the compiler without a bug, by probe; SystemExit where that does not compile."""
    begun = time.monotonic()
    bases: dict[str, Any] = {}
    for part in pool.map(_base, [probes[n::jobs] for n in range(jobs)]):
        if "died" in part:
            raise SystemExit(f"the probes do not compile without a bug: {part['died']}")
        bases |= part
    decided = [name for name in probes if set(bases[name]["decided"]) == set(bases[name]["ptx"])]
    print(f"{len(probes)} kernels in {time.monotonic() - begun:.0f} s; the validator decides", end="")
    print(f" {len(decided)} of these: {', '.join(decided)}", flush=True)
    return bases


def _base(probes: list[str]) -> Any:
    return apart(lambda: base(probes))


def _rows(mutant: Mutant, bases: dict[str, Any]) -> list[dict[str, Any]]:
    rows = apart(lambda: judged(mutant, bases))
    if isinstance(rows, dict):
        return [{"probe": ", ".join(mutant.probes), "status": "undecided", "by": f"the judge died: {rows['died']}"}]
    return rows


def table(lines: list[dict[str, Any]], kinds: tuple[Kind, ...]) -> list[dict[str, Any]]:
    """Counts by class, and by what refuses."""
    found: list[dict[str, Any]] = []
    for kind in kinds:
        own = [line for line in lines if line["class"] == kind]
        if own:
            counts = Counter(line["verdict"] for line in own)
            by = Counter(_refused_by(line) for line in own if line["verdict"] == "refused")
            found.append({"class": kind.value, "bugs": len(own), **{v: counts[v] for v in _VERDICTS}, "by": dict(by)})
    return found


def _refused_by(line: dict[str, Any]) -> str:
    return next(row["by"] for row in line["rows"] if row["status"] == "refused")


def caught(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of the classes without anything to refuse against: how many show in a run."""
    found: list[dict[str, Any]] = []
    for kind in APART:
        own = [line for line in lines if line["class"] == kind]
        if own:
            counts = Counter(line["verdict"] for line in own)
            found.append({"class": kind.value, "bugs": len(own), **counts})
    return found


def kept(path: Path, lines: list[dict[str, Any]]) -> dict[str, Any]:
    """What a file holds of bugs that are still planted, with ``lines`` in place of its own; and all commands."""
    held = json.loads(path.read_text())
    by_name = {line["name"]: line for line in (*held["mutants"], *lines)}
    ordered = [by_name[m.name] for m in MUTANTS if m.name in by_name]
    found = report(ordered, held["seconds"])
    return {**found, "commands": [*held["commands"], *found["commands"]]}


def report(lines: list[dict[str, Any]], seconds: float) -> dict[str, Any]:
    """What is written to the file."""
    refusable = table(lines, REFUSABLE)
    counted = sum(row["bugs"] for row in refusable) - sum(row["harmless"] for row in refusable)
    refused = sum(row["refused"] for row in refusable)
    return {
        "commands": [shlex.join(["python", "tools/compiler_mutants.py", *sys.argv[1:]])],
        "date": date.today().isoformat(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in _TOOLS},
        "machine": f"{os.cpu_count()} cores, no GPU",
        "seconds": round(seconds),
        "table": refusable,
        "refused": refused,
        "harmful_or_open": counted,
        "share_refused": round(refused / max(counted, 1), 4),
        "apart": caught(lines),
        "trusted": list(TRUSTED),
        "mutants": lines,
    }


def show(found: dict[str, Any]) -> None:
    """Prints the tables."""
    print(f"\n{'class':18}{'bugs':>6}" + "".join(f"{v:>15}" for v in _VERDICTS) + "   refused by")
    for row in found["table"]:
        by = ", ".join(f"{name} {n}" for name, n in sorted(row["by"].items(), key=lambda item: -item[1]))
        print(f"{row['class']:18}{row['bugs']:>6}" + "".join(f"{row[v]:>15}" for v in _VERDICTS) + f"   {by}")
    print(
        f"refused {found['refused']} of {found['harmful_or_open']} that are not harmless: {found['share_refused']:.1%}"
    )
    for row in found["apart"]:
        print(f"{row['class']}, beside the table: {', '.join(f'{k} {n}' for k, n in row.items() if k != 'class')}")


def main() -> None:
    """Runs the campaign."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", choices=[k.value for k in Kind], help="one class")
    parser.add_argument("--name", action="append", default=[], help="one mutant; may be given several times")
    parser.add_argument("--probe", action="append", default=[], help="only on this kernel; may be given several times")
    parser.add_argument("--jobs", type=int, default=1, help="bugs at a time")
    parser.add_argument("--json", type=Path, help="where the result is written")
    parser.add_argument("--update", action="store_true", help="keep what the file holds of other mutants")
    parser.add_argument("--new", action="store_true", help="with --update: bugs that the file does not hold alone")
    parser.add_argument("--list", action="store_true", help="print the mutants and end")
    args = parser.parse_args()
    if args.update and args.probe:
        parser.error("--update takes no --probe: a bug is judged on all of its kernels")
    if args.new and not args.update:
        parser.error("--new is about the file of --update")
    check(MUTANTS)
    mutants = chosen(args.only, args.name, args.probe)
    if args.new:
        held = {line["name"] for line in json.loads(args.json.read_text())["mutants"]}
        mutants = tuple(m for m in mutants if m.name not in held and m.kind is not Kind.PROVERS)
    if args.list:
        for m in mutants:
            print(f"{m.kind.value:17} {m.name}: {m.what}")
        return
    for name in _THIRD_PARTY:
        import_module(name)
    begun = time.monotonic()
    lines = run(mutants, args.jobs)
    update = args.json is not None and args.update
    found = kept(args.json, lines) if update else report(lines, time.monotonic() - begun)
    show(found)
    if args.json:
        args.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
