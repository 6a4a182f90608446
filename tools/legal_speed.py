"""What legality costs: ``python tools/legal_speed.py [--record FILE.json]``.

*judge*: one request, warm. *synthesis*: a plan or the repairs of random accesses of ranks 1 to 5, most of which need
more than the direct way (equality saturation, solver, prices), after one that loads the solvers. *factor*: requested
layouts of tiles that no descriptor produces. Times are of the processor, since other work may share the machine; of
judge the shortest mean of several rounds, of the rest every call counts.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from tilewright.base.dtypes import DTYPES, DType
from tilewright.base.expr import Expr, sym
from tilewright.base.verdict import Repairs
from tilewright.hw.target import SM90A
from tilewright.hw.tensormap import Direction, Swizzle
from tilewright.layout.cute import CuteLayout
from tilewright.layout.swizzle import ComposedLayout, CuteSwizzle
from tilewright.legal.factor import factor
from tilewright.legal.facts import Facts
from tilewright.legal.repairs import legalise
from tilewright.legal.tensormap import TensorMapRequest, judge
from tilewright.legal.tma import TileAccess

ROUNDS, CALLS = 20, 500


def requests() -> dict[str, TensorMapRequest]:
    """A legal request and two illegal ones."""
    good = TensorMapRequest(9, 2, 1 << 20, (4096, 4096), (8192,), (64, 128), (1, 1), swizzle=Swizzle.B128)
    one = TensorMapRequest(9, 2, 1 << 20, (4100, 4096), (8200,), (64, 128), (1, 1), swizzle=Swizzle.B128)
    many = TensorMapRequest(9, 5, 8, (4100,) * 5, (8200,) * 4, (72, 300, 1, 1, 9), (9,) * 5, swizzle=Swizzle.B64)
    return {"legal": good, "one fault": one, "many faults": many}


def judge_us(request: TensorMapRequest) -> float:
    """The shortest mean of a round, in microseconds."""
    judge(request, SM90A)
    rounds: list[float] = []
    for _ in range(ROUNDS):
        begin = time.process_time()
        for _ in range(CALLS):
            judge(request, SM90A)
        rounds.append((time.process_time() - begin) / CALLS)
    return min(rounds) * 1e6


def accesses(count: int, seed: int) -> Iterator[tuple[TileAccess, Facts]]:
    """Random accesses, a third with symbols."""
    rng = np.random.default_rng(seed)
    types = list(DTYPES.values())
    for _ in range(count):
        dtype = types[int(rng.integers(len(types)))]
        rank = int(rng.integers(1, 6))
        shape: list[Expr | int] = [int(2 ** rng.uniform(0, 8)) for _ in range(rank)]
        shape[-1] = int(2 ** rng.uniform(1, 13))
        facts = Facts(divisors={"p": int(rng.choice([4, 16]))})
        if rng.random() < 1 / 3:
            shape[0] = sym("M")
            facts = facts.assume((sym("K") % int(rng.choice([1, 8, 16]))).eq(0))
            shape[-1] = sym("K") if rank > 1 else shape[-1]
        strides: list[Expr | int] = [1] * rank
        for axis in reversed(range(rank - 1)):
            strides[axis] = strides[axis + 1] * shape[axis + 1]
        if rng.random() < 0.2:
            strides[0] = sym("s") * 2
        tile: list[int | None] = [None if rng.random() < 0.3 else int(rng.choice([1, 2, 8])) for _ in range(rank)]
        last = shape[-1]
        tile[-1] = last if isinstance(last, int) and last <= 256 else int(rng.choice([3, 8, 32, 64, 100, 128]))
        if rank > 1:
            extent = shape[-2]
            tile[-2] = extent if isinstance(extent, int) and extent <= 64 else int(rng.choice([8, 16, 64]))
        wanted = (Swizzle.B128,) if rng.random() < 0.3 else ()
        direction = Direction.STORE if rng.random() < 0.2 else Direction.LOAD
        yield TileAccess(dtype, tuple(shape), tuple(strides), sym("p"), tuple(tile), direction, wanted), facts


def layouts() -> Iterator[tuple[TileAccess, CuteLayout | ComposedLayout]]:
    """Tiles with layouts that no descriptor produces."""
    for name, rows, columns in (
        ("bf16", 64, 64),
        ("bf16", 128, 64),
        ("f32", 64, 32),
        ("e4m3", 64, 128),
        ("f16", 48, 96),
    ):
        kind: DType = DTYPES[name]
        access = TileAccess(kind, (4096, 4096), (4096, 1), 0, (rows, columns))
        yield access, CuteLayout((columns, rows), (rows, 1))
        yield access, CuteLayout((columns, rows), (1, columns + 16 // kind.bytes))
        yield access, ComposedLayout(CuteSwizzle(2, 5, 2), 0, CuteLayout((columns, rows), (1, columns)))


def kind_of(answer: object) -> str:
    """The verdict; of repairs the cheapest."""
    name = type(answer).__name__
    return f"{name}: {answer.repairs[0].fields.change.name}" if isinstance(answer, Repairs) else name


def timed(calls: list[Callable[[], object]]) -> tuple[list[float], list[object]]:
    """Milliseconds of every call, and the answers."""
    spent: list[float] = []
    answers: list[object] = []
    for call in calls:
        begin = time.process_time()
        answer = call()
        spent.append((time.process_time() - begin) * 1e3)
        answers.append(answer)
    return spent, answers


def summary(spent: list[float], answers: Counter[str]) -> dict[str, object]:
    """Median, 99th percentile and longest, in milliseconds."""
    ordered = sorted(spent)
    return {
        "calls": len(ordered),
        "median_ms": round(statistics.median(ordered), 2),
        "p99_ms": round(ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))], 2),
        "longest_ms": round(ordered[-1], 2),
        "answers": dict(sorted(answers.items())),
    }


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--accesses", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--record", type=Path)
    args = parser.parse_args()
    judged = {name: round(judge_us(request), 2) for name, request in requests().items()}
    drawn = list(accesses(args.accesses + 1, args.seed))
    begin = time.process_time()
    legalise(TileAccess(DTYPES["f32"], (64, 3), (3, 1), 0, (64, 3)))
    loading = (time.process_time() - begin) * 1e3
    spent, answers = timed([lambda a=a, f=f: legalise(a, f) for a, f in drawn])
    synthesis = summary(spent, Counter(map(kind_of, answers)))
    spent, answers = timed([lambda a=a, w=w: factor(a, w) for a, w in layouts()])
    factored = summary(spent, Counter(map(kind_of, answers)))
    record = {
        "command": f"tools/legal_speed.py --accesses {args.accesses} --seed {args.seed}",
        "judge_us": judged,
        "loading_the_solvers_ms": round(loading, 1),
        "synthesis": synthesis,
        "factor": factored,
        "peak_memory_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
    }
    print(json.dumps(record, indent=1))
    if args.record:
        args.record.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
