"""Bugs in running states that a map computes in place, and in what is kept of a counter between drawn programs."""

from __future__ import annotations

from planted.mutant import Kind, Mutant

_SCAN = "schedule/scan.py"


def _bug(name: str, what: str, old: str, new: str, *probes: str, file: str = _SCAN, kind: Kind = Kind.VALUES) -> Mutant:
    return Mutant(name, kind, what, file, old, new, probes)


RUNNING = (
    _bug(
        "neighbour two before",
        "a running state is computed from the one two before",
        "return R - minimum(R // stride % digit[1], 1) * stride",
        "return R - minimum(R // stride % digit[1], 2) * stride",
        "scanned",
    ),
    _bug(
        "second neighbour begins anew",
        "the second element of a group begins a running state",
        "return R // self.register_stride(digit) % digit[1] > 0",
        "return R // self.register_stride(digit) % digit[1] > 1",
        "scanned",
    ),
    _bug(
        "total of the first in a group",
        "the total of a group is its first element's",
        "view.fix(digit, digit[1] - 1)",
        "view.fix(digit, 0)",
        "scanned",
    ),
    _bug(
        "distance along registers",
        "the distance of neighbours along a digit takes the digit itself in",
        "self.digits[: self.digits.index(digit)])",
        "self.digits[: self.digits.index(digit) + 1])",
        "scanned",
        "running",
    ),
    _bug(
        "first warp takes the total",
        "the warp after the first takes what the first but one has",
        "            before = running[0]\n            for q in range(1, parts - 1):\n                before = step.choose(part > q,",
        "            before = running[0]\n            for q in range(1, parts - 1):\n                before = step.choose(part > q + 1,",
        "scanned",
    ),
    _bug(
        "prefix of the upper lanes alone",
        "lower lanes take the prefix of the upper ones",
        "takes = all_of([negate(upper), exists]) if self.reverse else upper",
        "takes = all_of([negate(upper), exists]) if self.reverse else negate(upper)",
        "scanned",
    ),
    _bug(
        "prefix over the old",
        "what comes before replaces the prefix",
        "joined = step.choose(self.begun(step.domain, dict(key)), step.combine(before, old), before)",
        "joined = before",
        "scanned",
    ),
    _bug(
        "blocks that are read before they are written",
        "no barrier between the totals of warps and who reads them",
        "            lowering.emit(t.SharedWrite(place, buffer, cell, publisher), self.op)\n        lowering.emit(t.Barrier())\n",
        "            lowering.emit(t.SharedWrite(place, buffer, cell, publisher), self.op)\n",
        "scanned",
        kind=Kind.PROTOCOL,
    ),
    _bug(
        "half a period in the text",
        "of the uses of a pipeline the text keeps the stage, and no phase",
        'self.line(f"{counter} %= {period};")',
        'self.line(f"{counter} %= {period // 2};")',
        "grouped",
        file="codegen/cuda.py",
        kind=Kind.EMISSION,
    ),
    _bug(
        "half a period",
        "of the uses of a pipeline the IR keeps the stage, and no phase",
        "period=2 * p.stages if drawn else None",
        "period=p.stages if drawn else None",
        "grouped",
        file="schedule/hopper/lower.py",
        kind=Kind.PROTOCOL,
    ),
)
