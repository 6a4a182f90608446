"""Mistakes planted in the PTX of validated kernels, one at a time, and whether the validator refuses them.

    python tools/ptx_mutants.py FOLDER [--kernel NAME]... [--each N] [--seed N] [--json FILE]

    python tools/ptx_mutants.py FOLDER --forms [--kernel NAME]... [--json FILE]

FOLDER holds bundles, such as ``tools/validation.py --bundles`` keeps. A mutant changes one instruction: another opcode
or comparison, a constant one more, two operands exchanged, an offset moved, a guard negated, an instruction left out.
With ``--forms`` it changes what stands around them (``ptx_forms``), each once for every name of an instruction in a
kernel. What is accepted is printed: it computes the same (a dead instruction, say), or it is a hole in the validator.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path

from ptx_forms import FORMS
from tilewright.artifact.bundle import read
from tilewright.artifact.schema import Launch
from tilewright.diag import TilewrightError
from tilewright.transport.text import transport_kernel
from tilewright.validate.transport_to_ptx import compare

OTHER = {
    "add.": "sub.", "sub.": "add.", "mul.": "add.", "shl.": "shr.", "shr.": "shl.", "and.": "or.", "or.": "and.",
    "setp.lt": "setp.le", "setp.le": "setp.lt", "setp.gt": "setp.ge", "setp.ge": "setp.gt", "setp.eq": "setp.ne",
    "setp.ne": "setp.eq", "max.": "min.", "min.": "max.", "ex2.": "lg2.", "rcp.": "sqrt.", "neg.": "abs.",
    "mad.lo": "mul.lo", "cvt.rn.": "cvt.rz.", "mul.rn.f32": "add.rn.f32", "add.rn.f32": "mul.rn.f32",
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """A line of PTX and what stands there instead."""

    kind: str
    line: int
    before: str
    after: str


def mutants(ptx: str) -> Iterator[Mutant]:
    """All mutants of the instructions of a text."""
    for number, line in enumerate(ptx.split("\n")):
        code = line.strip()
        if not code.endswith(";") or code.startswith((".", "//", "bra", "ret")):
            continue
        opcode = re.sub(r"^@!?%p\d+\s+", "", code)
        for old, new in OTHER.items():
            if opcode.startswith(old):
                yield Mutant("opcode", number, line, line.replace(old, new, 1))
        constant = re.search(r"(?<=, )(-?\d+)(?=[;,])", line)
        if constant:
            changed = line[: constant.start()] + str(int(constant[0]) + 1) + line[constant.end() :]
            yield Mutant("constant", number, line, changed)
        operands = re.search(r"(%\w+), (%\w+);", line)
        if operands and operands[1] != operands[2] and not opcode.startswith("setp.eq"):
            yield Mutant("exchanged", number, line, line.replace(operands[0], f"{operands[2]}, {operands[1]};"))
        address = re.search(r"\[(%rd?\d+)(\+\d+)?\]", line)
        if address:
            offset = int(address[2] or 0) + 4
            yield Mutant("offset", number, line, line.replace(address[0], f"[{address[1]}+{offset}]"))
        if code.startswith("@%p"):
            yield Mutant("guard", number, line, line.replace("@%p", "@!%p", 1))
        if code.startswith(("st.", "bar.", "ld.shared", "shfl", "mbarrier", "fence", "wgmma.wait", "wgmma.commit")):
            yield Mutant("left out", number, line, "")


def forms(ptx: str) -> Iterator[Mutant]:
    """One mutant of every kind of ``FORMS`` for each text that a pattern finds in a text of PTX."""
    seen: set[tuple[str, str]] = set()
    for number, line in enumerate(ptx.split("\n")):
        for pattern, others in FORMS:
            found = re.search(pattern, line)
            if found is None or line.lstrip().startswith("//"):
                continue
            for other in others:
                if (key := (re.sub(r"\d+", "", found[0]) if "%" in found[0] else found[0], other)) not in seen:
                    seen.add(key)
                    after = line[: found.start()] + found.expand(other) + line[found.end() :]
                    yield Mutant(f"form: {pattern}", number, line, after)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kernel", action="append", required=True, help="BUNDLE:SYMBOL")
    parser.add_argument("--forms", action="store_true", help="modifiers, directives, declarations instead")
    parser.add_argument("--each", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    totals: Counter[str] = Counter()
    accepted: list[dict[str, object]] = []
    for name in args.kernel:
        bundle, _, symbol = name.partition(":")
        artifact = read(args.folder / bundle)
        image = artifact.kernel(symbol)
        steps = (s for v in artifact.variants for s in v.steps if isinstance(s, Launch))
        launch = next(s for s in steps if s.kernel == symbol)
        kernel = transport_kernel(image.transport_ir)
        if compare(kernel, image.ptx, launch.args, launch.grid[0]):
            print(f"{name} does not validate")
            continue
        found = list(forms(image.ptx) if args.forms else mutants(image.ptx))
        random.Random(args.seed).shuffle(found)
        lines = image.ptx.split("\n")
        for mutant in found if args.forms else found[: args.each]:
            text = "\n".join([*lines[: mutant.line], mutant.after, *lines[mutant.line + 1 :]])
            try:
                refused = bool(compare(kernel, text, launch.args, launch.grid[0], 1))
            except TilewrightError:  # no PTX
                refused = True
            totals[f"{mutant.kind}, {'refused' if refused else 'accepted'}"] += 1
            if not refused:
                accepted.append({"kernel": name, **asdict(mutant)})
                print(
                    f"accepted: {name} line {mutant.line + 1}: {mutant.before.strip()} -> {mutant.after.strip()}",
                    flush=True,
                )
        print(name, sum(totals.values()), "so far", flush=True)
    print(dict(totals))
    if args.json:
        told = {"date": str(date.today()), "seed": args.seed, "totals": totals, "accepted": accepted}
        args.json.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
