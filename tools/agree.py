"""Exhaustive agreement of the checker with the explorer on tiny protocols.

    python tools/agree.py [--ops N] [--sample N] [--seed N]

All programs of two roles, one loop each, with at most N ops in total over the alphabet below (barriers of one slot or a
ring of two). The explorer exhausts trip counts 0 to 5. Disagreements are printed: a
'proved' that the explorer breaks is a bug; a refutation always comes with the explorer's own schedule.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from itertools import product
from random import Random

from tilewright.base.expr import sym
from tilewright.base.verdict import Proved, Refuted
from tilewright.contract import check
from tilewright.contract.explore import exhaust
from tilewright.hw.spaces import Space
from tilewright.protocol import Barrier, Buffer, By, Loop, Protocol, Role, Step, Symbol
from tilewright.protocol import ops as o

K = sym("k")


def alphabet(slots: int) -> dict[str, Step]:
    """Ten ops: waits, arrives and accesses of a ring with the barriers ``full`` and ``empty``."""
    slot, lap = K % slots, K // slots
    full, empty, stage = o.Slot("full", slot), o.Slot("empty", slot), o.Region("x", slot * 16, 16)
    return {
        "wait full": Step(o.Wait(full, lap % 2)),
        "wait empty": Step(o.Wait(empty, (lap + 1) % 2)),
        "wait full early": Step(o.Wait(full, (lap + 1) % 2)),
        "arrive full": Step(o.Arrive(full)),
        "arrive empty": Step(o.Arrive(empty)),
        "expect": Step(o.ArriveExpectTx(full, 16)),
        "load": Step(o.TmaLoad(stage, full)),
        "read": Step(o.Read(stage)),
        "write": Step(o.Write(stage)),
        "fence": Step(o.FenceProxyAsync()),
    }


def protocol(first: tuple[Step, ...], second: tuple[Step, ...], slots: int) -> Protocol:
    """Two single-thread roles that run their ops in a loop; the first one initialises."""
    init = (
        Step(o.MbarrierInit("full"), By.ELECTED),
        Step(o.MbarrierInit("empty"), By.ELECTED),
        Step(o.FenceMbarrierInit(), By.ELECTED),
        Step(o.CtaSync()),
    )
    end = sym("kt")
    roles = (
        Role("a", 1, (*init, Loop("k", o.ZERO, end, 1, first))),
        Role("b", 1, (init[-1], Loop("k", o.ZERO, end, 1, second))),
    )
    return Protocol(
        "tiny",
        roles,
        (Buffer("x", Space.SHARED, 16 * slots, initialised=True),),
        (Barrier("full", slots, 1), Barrier("empty", slots, 1)),
        (Symbol("kt"),),
    )


def programs(total: int, slots: int) -> Iterator[tuple[tuple[str, ...], tuple[str, ...], Protocol]]:
    """Every pair of op lists with ``total`` ops; of a pair and its mirror image one."""
    letters = alphabet(slots)
    for count in range(total // 2 + 1):
        for names in product(letters, repeat=total):
            one, two = names[:count], names[count:]
            if len(one) == len(two) and one > two:
                continue
            yield one, two, protocol(tuple(letters[n] for n in one), tuple(letters[n] for n in two), slots)


def opinion(p: Protocol) -> str:
    """'bad' if some trip count up to 5 goes wrong."""
    for kt in (1, 2, 3, 0, 4, 5):
        if exhaust(p, lambda name, context, kt=kt: kt, max_states=20_000).finding is not None:
            return "bad"
    return "good"


def compare(total: int, slots: int, sample: int = 0, seed: int = 0) -> tuple[Counter[tuple[str, str]], list[str]]:
    """Counts of (verdict, opinion) and the disagreements in words."""
    found: Counter[tuple[str, str]] = Counter()
    odd: list[str] = []
    pool = list(programs(total, slots))
    if sample and sample < len(pool):
        pool = Random(seed).sample(pool, sample)
    for one, two, p in pool:
        proof = check(p)
        verdict = "proved" if isinstance(proof, Proved) else "refuted" if isinstance(proof, Refuted) else "unknown"
        judge = "bad" if verdict == "refuted" else opinion(p)
        found[verdict, judge] += 1
        if verdict == "unknown" or (verdict, judge) == ("proved", "bad"):
            odd.append(f"{verdict}/{judge} S={slots} a: {', '.join(one)} | b: {', '.join(two)}: {proof}"[:300])
    return found, odd


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ops", type=int, default=4)
    parser.add_argument("--sample", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    for slots in (1, 2):
        for total in range(1, args.ops + 1):
            found, odd = compare(total, slots, args.sample, args.seed)
            print(f"S={slots}, {total} ops:", dict(sorted(found.items())))
            print("\n".join(odd[:10]))


if __name__ == "__main__":
    main()
