"""Drops every wait, fence, arrive, expect_tx and barrier of compiled kernels in turn; shifts every slot and parity.

    python tools/drop_syncs.py [--json FILE]

Each mutant must be refuted under a code that names its kind of fault, or proved: then the op is *unneeded*, the
model checker must find nothing either, and ``UNNEEDED`` must explain it. The protocols are extracted from the lowered
matmul and attention; the hand-written ping-pong GEMM joins them.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import tilewright as tw
from tilewright.base.dtypes import bf16
from tilewright.base.verdict import Proved, Refuted
from tilewright.compiler.program import plan
from tilewright.compiler.requests import Request, default_facts
from tilewright.hw.target import SM90A
from tilewright.lang.schedule import Schedule
from tilewright.lang.signature import Signature
from tilewright.protocol import ops
from tilewright.protocol.edit import NodePath, replaced, spots
from tilewright.protocol.model import Protocol, Step
from tilewright.transport.protocol import protocols_of
from tilewright.verify import verify
from tilewright.verify.model_checker import adversarial

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
from attention import attention
from matmul import matmul
from protocols import gemm

STAGES = 2

_MISSING: dict[type[object], tuple[str, ...]] = {
    ops.MbarrierInit: ("MBR021",),
    ops.FenceMbarrierInit: ("MBR022",),
    ops.Arrive: ("MBR012",),
    ops.ArriveExpectTx: ("MBR012",),
    ops.BulkCommit: ("MBR023", "MBR024"),
    ops.BulkWait: ("MBR023", "MBR024"),
    ops.FenceProxyAsync: ("MBR019", "MBR020"),
    ops.WgmmaFence: ("MBR031",),
    ops.WgmmaCommit: ("MBR023", "MBR017"),
    ops.WgmmaWait: ("MBR023", "MBR017"),
    ops.CtaSync: ("MBR012",),
    ops.BarSync: ("MBR013", "MBR016", "MBR017", "MBR023", "MBR026"),
    ops.BarArrive: ("MBR012",),
    ops.ClusterArrive: ("MBR034",),
    ops.ClusterWait: ("MBR025", "MBR034", "MBR037"),
}
"""The codes that name rightly what a kernel lacks without an op of this kind. A dropped arrival leaves a wait without
end; a dropped group wait shows where its bytes are touched, or at the end; a dropped barrier shows in what it ordered:
bytes, phases (lapping) or the turns of another barrier; a dropped half of a cluster barrier in the other half, or in
peers that have not begun or are gone."""
_WAITS = {"full": ("MBR016", "MBR018"), "empty": ("MBR015", "MBR017")}
_SHIFTED = ("MBR010", "MBR011", "MBR012", "MBR014", "MBR015", "MBR016")

UNNEEDED: dict[type[object], str] = {
    ops.FenceMbarrierInit: "one CTA, and a CTA barrier follows the init; kept as in CUTLASS, its lack is a warning",
    ops.BulkWait: "the second panel of an epilogue: the wait before the first one already covers it",
    ops.BarSync: "the same panel: nobody has read or written it since",
    ops.Arrive: "the last stage of a CTA that does one tile: no producer waits for it any more",
    ops.ClusterWait: "the last one, of one role: the CTA lives on while the other role waits there",
}
"""Ops whose removal may keep the proof, and why they are there."""
MOST_UNNEEDED = 6


@dataclass(frozen=True)
class Mutant:
    """A protocol changed at one step, with the codes that name the fault."""

    kind: str
    spot: NodePath
    step: Step
    protocol: Protocol
    codes: tuple[str, ...]

    def __str__(self) -> str:
        bar = getattr(self.step.op, "bar", None)
        what = f"{type(self.step.op).__name__}{' ' + bar.barrier if isinstance(bar, ops.Slot) else ''}"
        return f"{self.kind} {what} of {self.protocol.roles[self.spot.role].name} at {self.spot.path}"


def mutants(protocol: Protocol) -> Iterator[Mutant]:
    """Every sync op dropped, every slot and parity shifted by one."""
    slots = {b.name: b.slots for b in protocol.barriers}
    for spot, step in spots(protocol):
        op, bar = step.op, getattr(step.op, "bar", None)
        if isinstance(op, ops.Wait):
            codes = _WAITS[op.bar.barrier.rpartition("_")[2]]
            yield Mutant("drop", spot, step, replaced(protocol, spot), codes)
            flipped = replace(step, op=replace(op, parity=1 - op.parity))
            yield Mutant("flip parity of", spot, step, replaced(protocol, spot, flipped), _SHIFTED)
        elif ops.only_orders(op):
            yield Mutant("drop", spot, step, replaced(protocol, spot), _MISSING.get(type(op), ()))
        if isinstance(bar, ops.Slot) and slots[bar.barrier] > 1:
            other = replace(bar, index=(bar.index + 1) % slots[bar.barrier])
            moved = replace(step, op=replace(op, bar=other))  # pyright: ignore[reportCallIssue]
            yield Mutant("shift slot of", spot, step, replaced(protocol, spot, moved), _SHIFTED)


def verdict(mutant: Mutant) -> str:
    """'refuted', 'unneeded', or what is wrong with the answer."""
    verification = verify(mutant.protocol)
    match verification.proof:
        case Refuted(_, timeline):
            return "refuted" if timeline.code in mutant.codes else f"refuted as {timeline.code}: {timeline.detail}"
        case Proved():
            if type(mutant.step.op) not in UNNEEDED:
                return "proved without it"
            return "unneeded" if _nothing_found(mutant.protocol) else "proved, and the model checker disagrees"
        case unknown:
            return str(unknown)


def _nothing_found(protocol: Protocol) -> bool:
    for trips in (0, 1, 3, 2 * STAGES + 1):

        def sizes(name: str, context: int, trips: int = trips) -> int:
            symbol = next(s for s in protocol.symbols if s.name == name)
            value = max(symbol.least, 2 if name in ("tiles", "programs", "$programs") else trips)
            return value if symbol.most is None else min(value, symbol.most)

        if adversarial(protocol, sizes, runs=20, seed=trips).finding is not None:
            return False
    return True


def one_of_each(found: Iterator[Mutant]) -> list[Mutant]:
    """The first mutant of every kind and op in a role, waits for full and for empty slots apart."""
    chosen: dict[tuple[object, ...], Mutant] = {}
    for m in found:
        chosen.setdefault((m.kind, type(m.step.op), m.codes, m.spot.role), m)
    return list(chosen.values())


def lowered(kernel: tw.Kernel, **keywords: Hashable) -> Protocol:
    """The protocol of an example's kernel, compiled with two stages; its branches on extents go the first way."""
    signature = Signature.of({t.name: bf16 for t in kernel.tensors}, static=None, keywords=keywords)
    request = Request(kernel, signature, default_facts(kernel), SM90A, Schedule(stages=STAGES, consumers=1))
    return protocols_of(plan(request).variants[0].transport)[0]


def corpus() -> dict[str, Callable[[], Protocol]]:
    """The protocols, by name."""
    return {
        "matmul": lambda: lowered(matmul),
        "attention": lambda: lowered(attention, causal=True),
        "ping-pong": lambda: gemm.pingpong(STAGES),
    }


def main() -> int:
    """Runs every mutant and prints the table; the status is 1 if an answer is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    rows: list[dict[str, object]] = []
    wrong = 0
    for name, make in corpus().items():
        start = time.perf_counter()
        counts: Counter[str] = Counter()
        for m in mutants(make()):
            answer = verdict(m)
            counts[answer if answer in ("refuted", "unneeded") else "wrong"] += 1
            if answer != "refuted":
                print(f"  {name}: {m}: {answer}")
        wrong += counts["wrong"] + max(0, counts["unneeded"] - MOST_UNNEEDED)
        rows.append({"protocol": name, "stages": STAGES, **counts})
        print(f"{name}: {dict(counts)} in {time.perf_counter() - start:.0f} s")
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
