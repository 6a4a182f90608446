"""The parametric proof alone against the model checker: whatever it proves must be good.

    python tools/graph_agree.py [--ops N] [--sample N] [--mutants N] [--variants N] [--states N] [--seed N]

Three tables: protocols of two roles with at most N ops over the alphabet of ``agree.py`` (or a sample of each size),
mutants and right variants of the corpora of ``mutate.py``. A proved protocol that the model checker breaks is printed
as UNSOUND, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parent))

import agree
import mutate
from tilewright.base.verdict import Proved
from tilewright.protocol import Protocol
from tilewright.verify.parametric import prove


def table(title: str, pool: Iterable[tuple[str, Protocol, str]], states: int) -> int:
    """Prints counts and times; returns how many proofs the model checker contradicts. An empty opinion is asked for."""
    counts: Counter[str] = Counter()
    seconds: list[float] = []
    unsound = 0
    for name, protocol, known in pool:
        start = time.process_time()
        answer = prove(protocol)
        seconds.append(time.process_time() - start)
        if not isinstance(answer, Proved):
            counts["open"] += 1
            continue
        opinion = known or mutate.judged(protocol, states)
        counts[f"proved, {opinion}"] += 1
        if opinion == "bad":
            unsound += 1
            print(f"UNSOUND {name}", flush=True)
    middle = 1e3 * sorted(seconds)[len(seconds) // 2] if seconds else 0.0
    print(f"{title}: {dict(sorted(counts.items()))}, median {middle:.1f} ms of CPU", flush=True)
    return unsound


def main() -> None:
    """Runs the campaign."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ops", type=int, default=4)
    parser.add_argument("--sample", type=int, default=2000)
    parser.add_argument("--mutants", type=int, default=1000)
    parser.add_argument("--variants", type=int, default=200)
    parser.add_argument("--states", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    unsound = 0
    judge = agree.Judge()
    for slots in (1, 2):
        for total in range(1, args.ops + 1):
            pool = list(agree.programs(total))
            if args.sample and args.sample < len(pool):
                pool = Random(args.seed).sample(pool, args.sample)
            tiny = ((f"a: {a} | b: {b}", agree.protocol(a, b, slots), (a, b)) for a, b in pool)
            # the judge is asked for all trip counts up to 5, which is more than its opinion on larger protocols
            judged = (
                (n, p, judge.opinion(*words, slots) if isinstance(prove(p), Proved) else "") for n, p, words in tiny
            )
            unsound += table(f"tiny, S={slots}, {total} ops", judged, args.states)
    for title, limit, found in (
        ("mutants", args.mutants, mutate.all_mutants()),
        ("variants", args.variants, mutate.all_variants(args.seed)),
    ):
        if limit:
            everything = list(found)
            chosen = Random(args.seed).sample(everything, min(limit, len(everything)))
            unsound += table(
                f"{title}, {len(chosen)} of {len(everything)}", ((n, p, "") for n, p in chosen), args.states
            )
    sys.exit(1 if unsound else 0)


if __name__ == "__main__":
    main()
