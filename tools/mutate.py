"""Mutation testing of the contract checker: every verdict against the explorer's.

    python tools/mutate.py [--limit N] [--seed N] [--states N] [--json FILE]

Mutates the hand-written protocols: drops and duplicates ops, shifts parities, slots, counts and bytes. The judge is the
explorer: all interleavings where the instance is small, 20 adversarial runs otherwise. Reports, per verdict of the
checker, how many mutants the judge found bad, good (exhausted) or left undecided.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

from tilewright.base.verdict import Proved, Refuted
from tilewright.contract import check
from tilewright.contract.explore import adversarial, exhaust
from tilewright.protocol import ops
from tilewright.protocol.model import If, Loop, Node, Protocol, Step, steps
from tilewright.protocol.validate import problems

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
from protocols import attention, blackwell, cp_async, gemm, grouped, split_k

Edit = Callable[[Step], tuple[Step, ...]]


def rewritten(nodes: tuple[Node, ...], target: int, edit: Edit, counter: list[int]) -> tuple[Node, ...]:
    """The program with the ``target``-th step replaced by what ``edit`` makes of it."""
    out: list[Node] = []
    for node in nodes:
        match node:
            case Step():
                out.extend(edit(node) if counter[0] == target else (node,))
                counter[0] += 1
            case Loop():
                out.append(replace(node, body=rewritten(node.body, target, edit, counter)))
            case If():
                then = rewritten(node.then, target, edit, counter)
                out.append(replace(node, then=then, otherwise=rewritten(node.otherwise, target, edit, counter)))
    return tuple(out)


def edited(protocol: Protocol, role: int, target: int, edit: Edit) -> Protocol:
    """The protocol with one step of one role rewritten."""
    roles = list(protocol.roles)
    roles[role] = replace(roles[role], body=rewritten(roles[role].body, target, edit, [0]))
    return replace(protocol, roles=tuple(roles))


def edits(step: Step, slots: dict[str, int]) -> Iterator[tuple[str, Edit]]:
    """All mutations of one step."""
    op = step.op
    if isinstance(op, ops.Advance):
        return
    yield "drop", lambda s: ()
    yield "duplicate", lambda s: (s, s)

    def change(**fields: object) -> Edit:
        return lambda s: (replace(s, op=replace(s.op, **fields)),)

    if isinstance(op, ops.Wait):
        yield "xor parity", change(parity=1 - op.parity)
    if isinstance(op, ops.Wait | ops.Arrive | ops.ArriveExpectTx | ops.TmaLoad) and slots[op.bar.barrier] > 1:
        n = slots[op.bar.barrier]
        yield "shift slot", change(bar=replace(op.bar, index=(op.bar.index + 1) % n))
    if isinstance(op, ops.Arrive):
        yield "count + 1", change(count=op.count + 1)
    if isinstance(op, ops.ArriveExpectTx):
        yield "bytes + 16", change(bytes=op.bytes + 16)
        yield "bytes - 16", change(bytes=op.bytes - 16)
    if isinstance(op, ops.WgmmaWait | ops.BulkWait | ops.CpAsyncWait):
        yield "pending + 1", change(pending=op.pending + 1)


def mutants(name: str, protocol: Protocol) -> Iterator[tuple[str, Protocol]]:
    """All single mutants of a protocol that have good form."""
    slots = {b.name: b.slots for b in protocol.barriers}
    for i, role in enumerate(protocol.roles):
        for target, step in enumerate(steps(role.body)):
            for word, edit in edits(step, slots):
                mutant = edited(protocol, i, target, edit)
                if not any(problems(mutant)):
                    yield f"{name}: {word} {type(step.op).__name__} #{target} of {role.name}", mutant


def corpus() -> dict[str, Protocol]:
    """The unmutated protocols, at sizes that the explorer can handle."""
    return {
        "cooperative": gemm.cooperative(2, 1),
        "cooperative once": gemm.cooperative(2, 1, persistent=False),
        "multicast": gemm.multicast(2),
        "attention": attention.forward(2, 1, ordered=False),
        "multistage": cp_async.multistage(3),
        "cp.async producer": cp_async.producer_warps(2),
        "split-K": split_k.dsmem_reduce(2),
        "grouped": grouped.tensormap_update(2),
        "blackwell": blackwell.gemm(2),
    }


def judged(protocol: Protocol, max_states: int) -> str:
    """The explorer's opinion: 'bad', 'good' (every instance tried was exhausted) or 'open'."""
    complete = True
    for kt, tiles in ((1, 1), (0, 1), (2, 1), (3, 1), (1, 2), (3, 2), (2, 3), (5, 1)):

        def sizes(name: str, context: int, kt: int = kt, tiles: int = tiles) -> int:
            symbol = next(s for s in protocol.symbols if s.name == name)
            value = max(tiles if name in ("tiles", "groups") else kt, symbol.least)
            return value if symbol.most is None else min(value, symbol.most)

        outcome = adversarial(protocol, sizes, runs=20, seed=kt)
        if outcome.finding is None and max_states:
            outcome = exhaust(protocol, sizes, max_states=max_states)
            complete &= outcome.complete
        if outcome.finding is not None:
            return "bad"
    return "good" if complete and max_states else "open"


def main() -> None:
    """Runs the campaign and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--limit", type=int, default=0, help="mutants drawn at random; 0: all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--states", type=int, default=2000, help="states the explorer may visit per instance")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    pool = [m for name, p in corpus().items() for m in mutants(name, p)]
    if args.limit:
        pool = Random(args.seed).sample(pool, min(args.limit, len(pool)))
    table: Counter[tuple[str, str]] = Counter()
    notable: list[str] = []
    times: list[float] = []
    for name, protocol in pool:
        start = time.perf_counter()
        proof = check(protocol)
        times.append(time.perf_counter() - start)
        verdict = "proved" if isinstance(proof, Proved) else "refuted" if isinstance(proof, Refuted) else "unknown"
        opinion = "bad" if verdict == "refuted" else judged(protocol, args.states)
        table[verdict, opinion] += 1
        if (verdict, opinion) == ("proved", "bad") or verdict == "unknown":
            notable.append(f"{verdict}/{opinion} {name}" + (f" [{proof}]" if verdict == "unknown" else ""))
    print(f"{len(pool)} mutants, median check {1000 * sorted(times)[len(times) // 2]:.0f} ms")
    for (verdict, opinion), n in sorted(table.items()):
        print(f"  {verdict:8} {opinion:5} {n}")
    print("\n".join(notable))
    if args.json:
        rows = [{"verdict": v, "judge": o, "count": n} for (v, o), n in sorted(table.items())]
        args.json.write_text(json.dumps({"mutants": len(pool), "table": rows, "notable": notable}, indent=1) + "\n")


if __name__ == "__main__":
    main()
