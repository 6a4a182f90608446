"""Takes waits, fences and joins out of every example protocol and puts back what proves; prints what it cost.

python tools/synthesise_syncs.py [NAME ...]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tilewright.base.verdict import Proved
from tilewright.compiler.synchronise import synthesised
from tilewright.protocol import Protocol
from tilewright.schedule.synchronise import cost
from tilewright.verify import check

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
from protocols import attention, blackwell, cp_async, gemm, grouped, split_k

EXAMPLES: dict[str, Callable[[], Protocol]] = {
    "one tile": lambda: gemm.cooperative(2, 1, persistent=False),
    "cooperative": lambda: gemm.cooperative(2, 1),
    "cooperative, two consumers": lambda: gemm.cooperative(2, 2),
    "ping-pong": lambda: gemm.pingpong(2),
    "multicast": lambda: gemm.multicast(2),
    "attention": lambda: attention.forward(2, 1, ordered=False),
    "attention, two in turns": lambda: attention.forward(2, 2),
    "multistage": lambda: cp_async.multistage(3),
    "cp.async producer": lambda: cp_async.producer_warps(2),
    "split-K": lambda: split_k.dsmem_reduce(2),
    "grouped": lambda: grouped.tensormap_update(2),
    "Blackwell": lambda: blackwell.gemm(2),
}


def main() -> int:
    """One line an example; the status is 1 if one is not proved or dearer than by hand."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("example", nargs="*", metavar="EXAMPLE", help=f"any of: {'; '.join(EXAMPLES)}")
    asked = parser.parse_args().example
    unknown = [name for name in asked if name not in EXAMPLES]
    if unknown:
        parser.error(f"no example {unknown[0]!r}; there are: {'; '.join(EXAMPLES)}")
    failures = 0
    for name in asked or EXAMPLES:
        by_hand = EXAMPLES[name]()
        begin = time.perf_counter()
        found = synthesised(by_hand)
        seconds = time.perf_counter() - begin
        if found.protocol is None:
            print(f"{name}: open after {found.questions} questions: {found.clash}")
            failures += 1
            continue
        proved = isinstance(check(found.protocol), Proved)
        made, hand = cost(found.protocol), cost(by_hand)
        failures += not proved or made > hand
        verdict = "proved" if proved else "not proved"
        print(f"{name}: {verdict}, {found.questions} questions, {seconds:.1f} s, {made:.0f} cycles, by hand {hand:.0f}")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
