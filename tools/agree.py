"""Exhaustive agreement of the checker with the model checker on tiny protocols.

    python tools/agree.py --ops N [--letters N] [--json FILE] [--seconds N]

All programs of two roles of one thread, one loop each, with at most N ops in total over the alphabet below, on a ring
of one and of two slots. Of a program and its mirror image (roles exchanged) one is looked at; slots are used in turn,
so their symmetry is the counter's.

Both ways to prove are asked apart: the event graph and the canonical runs. The judge is the model checker: all
interleavings at 0 to 5 turns. A program whose roles begin with two op lists that already go wrong (other than by
ending) is bad without being explored again. Where the judge finds nothing, the checker should prove; where it finds
something, neither way may.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from random import Random

from tilewright.base.expr import sym
from tilewright.base.verdict import Proved, Refuted
from tilewright.hw.spaces import Space
from tilewright.protocol import Buffer, By, Loop, MbarrierArray, Protocol, Role, Step, Symbol
from tilewright.protocol import ops as o
from tilewright.protocol.edit import apart
from tilewright.verify import Policy, check
from tilewright.verify.canonical_runs.search import MAX_STATES, interpreter, search
from tilewright.verify.fold import folded
from tilewright.verify.model_checker import exhaust
from tilewright.verify.parametric import prove
from tilewright.verify.rules import Rule

K = sym("k")
TURNS = (1, 2, 3, 0, 4, 5)
BYTES = 16
TERMINAL = (Rule.DEADLOCK, Rule.EXIT)
"""Problems that a longer program may not have."""


def alphabet(slots: int) -> dict[str, tuple[Step, ...]]:
    """Eight letters over a ring with barriers ``full`` and ``empty``: an op each, or a copy with its bookkeeping."""
    slot, lap = K % slots, K // slots
    full, empty, stage = o.Slot("full", slot), o.Slot("empty", slot), o.Region("x", slot * BYTES, BYTES)
    return {
        "wait full": (Step(o.Wait(full, lap % 2)),),
        "wait empty": (Step(o.Wait(empty, (lap + 1) % 2)),),
        "arrive full": (Step(o.Arrive(full)),),
        "arrive empty": (Step(o.Arrive(empty)),),
        "fill": (Step(o.ArriveExpectTx(full, BYTES)), Step(o.TmaLoad(stage, full))),
        "store": (Step(o.TmaStore(stage)), Step(o.BulkCommit()), Step(o.BulkWait(0, read=True))),
        "read": (Step(o.Read(stage)),),
        "write": (Step(o.Write(stage)),),
    }


Word = tuple[str, ...]


def protocol(first: Word, second: Word, slots: int) -> Protocol:
    """Two roles of one thread that run their ops in a loop; the first one initialises."""
    letters = alphabet(slots)
    init = (
        Step(o.MbarrierInit("full"), By.ELECTED),
        Step(o.MbarrierInit("empty"), By.ELECTED),
        Step(o.FenceMbarrierInit(), By.ELECTED),
        Step(o.CtaSync()),
    )
    end = sym("kt")
    bodies = [tuple(step for name in word for step in letters[name]) for word in (first, second)]
    roles = (
        Role("a", 1, (*init, Loop("k", o.ZERO, end, 1, bodies[0]))),
        Role("b", 1, (init[-1], Loop("k", o.ZERO, end, 1, bodies[1]))),
    )
    return Protocol(
        "tiny",
        roles,
        (Buffer("x", Space.SHARED, BYTES * slots, initialised=True),),
        (MbarrierArray("full", slots, 1), MbarrierArray("empty", slots, 1)),
        (Symbol("kt"),),
    )


def programs(total: int, letters: int = 8) -> Iterator[tuple[Word, Word]]:
    """Every pair of op lists with ``total`` ops; of a pair and its mirror image one."""
    names = list(alphabet(1))[:letters]
    for count in range(total // 2 + 1):
        for word in product(names, repeat=total):
            one, two = word[:count], word[count:]
            if len(one) < len(two) or one <= two:
                yield one, two


@dataclass
class Judge:
    """The model checker's opinions, with the beginnings that it has found bad."""

    hopeless: set[tuple[Word, Word]] = field(default_factory=set[tuple[Word, Word]])
    """Beginnings that go wrong in their first turn whatever follows."""
    once: dict[tuple[Word, Word], bool] = field(default_factory=dict[tuple[Word, Word], bool])
    """Whether a program goes wrong in one turn, whatever its slots."""
    explored: int = 0

    def opinion(self, one: Word, two: Word, slots: int) -> str:
        """'bad' if some number of turns up to 5 goes wrong."""
        if self.once.get((one, two)) or self._begins_badly(one, two):
            return "bad"
        p = protocol(one, two, slots)
        for kt in TURNS:
            self.explored += 1
            finding = exhaust(p, lambda name, context, kt=kt: kt, max_states=20_000).finding
            if finding is not None:
                if kt == 1:
                    self.once[one, two] = True
                    if finding.rule not in TERMINAL:
                        self.hopeless.add((one, two))
                return "bad"
        return "good"

    def _begins_badly(self, one: Word, two: Word) -> bool:
        for i in range(len(one) + 1):
            for j in range(len(two) + 1):
                x, y = one[:i], two[:j]
                if (x, y) in self.hopeless or (y, x) in self.hopeless:
                    return True
        return False


def answers(p: Protocol, limit: int = MAX_STATES) -> tuple[bool, bool]:
    """Whether the event graph proves it, and whether the canonical runs do within so many decision points."""
    p = apart(folded(p))
    by_graph = isinstance(prove(p), Proved)
    found = search(interpreter(p, Policy.STRICT), limit)
    return by_graph, found.failure is None and not found.reason


@dataclass
class Tally:
    """What a campaign counted."""

    table: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    by_graph: int = 0
    odd: list[str] = field(default_factory=list[str])
    full: Counter[str] = field(default_factory=Counter[str])


def look(one: Word, two: Word, slots: int, judge: Judge, tally: Tally, full: bool = False) -> None:
    """Asks both sides about one program; with ``full`` also for the answer with its replay."""
    p = protocol(one, two, slots)
    graph, runs = answers(p)
    verdict = "proved" if graph or runs else "not proved"
    opinion = judge.opinion(one, two, slots)
    tally.table[verdict, opinion] += 1
    tally.by_graph += graph
    text = f"S={slots} a: {', '.join(one)} | b: {', '.join(two)}"
    if (verdict, opinion) == ("proved", "bad"):
        tally.odd.append(f"PROVED AND BAD ({'graph' * graph} {'runs' * runs}) {text}")
    if (verdict, opinion) == ("not proved", "good"):
        tally.odd.append(f"not proved and good: {text}")
    if full or (verdict, opinion) == ("not proved", "good"):
        proof = check(p)
        answer = "proved" if isinstance(proof, Proved) else "refuted" if isinstance(proof, Refuted) else "unknown"
        tally.full[f"{answer}, {opinion}"] += 1


def compare(total: int, slots: int, sample: int = 0, seed: int = 0) -> Tally:
    """The tally of all programs of one size, or of a sample of them."""
    pool = list(programs(total))
    if sample and sample < len(pool):
        pool = Random(seed).sample(pool, sample)
    judge, tally = Judge(), Tally()
    for one, two in pool:
        look(one, two, slots, judge, tally)
    return tally


def main() -> None:
    """Goes through all sizes, smallest first, and writes what was covered."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", type=int, default=5)
    parser.add_argument("--letters", type=int, default=8, help="how much of the alphabet")
    parser.add_argument("--seconds", type=float, default=0, help="stop after this long; 0: at the end")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    begun, cpu = time.monotonic(), time.process_time()
    judge, rows = Judge(), list[dict[str, object]]()
    for total in range(1, args.ops + 1):
        tallies = {1: Tally(), 2: Tally()}
        complete = True
        for n, (one, two) in enumerate(programs(total, args.letters)):
            if args.seconds and time.monotonic() - begun > args.seconds:
                complete = False
                break
            for slots, tally in tallies.items():
                # every hundredth program is put through the whole checker, replay and all
                look(one, two, slots, judge, tally, full=n % 100 == 0)
        for slots, tally in tallies.items():
            table = [{"checker": v, "explorer": j, "count": c} for (v, j), c in sorted(tally.table.items())]
            row = {"slots": slots, "ops": total, "complete": complete, "programs": tally.table.total()}
            row |= {"table": table, "by_graph": tally.by_graph, "whole_checker": dict(tally.full)}
            rows.append(row | {"odd": tally.odd[:50]})
            print(rows[-1], flush=True)
        if args.json:
            found = {
                "command": f"python tools/agree.py --ops {args.ops} --letters {args.letters}",
                "alphabet": list(alphabet(1))[: args.letters],
                "python": platform.python_version(),
                "cpu_seconds": round(time.process_time() - cpu),
                "explorations": judge.explored,
                "hopeless_beginnings": len(judge.hopeless),
                "rows": rows,
            }
            args.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
