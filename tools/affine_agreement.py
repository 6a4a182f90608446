"""Affine layouts against enumeration at full size, and the speed of domains and swizzle synthesis.

    python tools/affine_agreement.py --layouts 20000 --pairs 10000 --out benchmarks/results/layout_affine.json

Existence, injectivity, images, inverses, vector widths, runs and alignments of random layouts are compared with the
table of all their values; canonical forms with the tables of pairs of layouts. Any disagreement raises.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import sys
import time
from collections import Counter
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))  # the oracle is a test's: it shares no code with the library

from layout.test_swizzle_synthesis import SETS  # noqa: E402
from support.affine_agreement import check_pair, check_questions  # noqa: E402
from support.affine_oracle import random_case  # noqa: E402
from tilewright.base.expr import sym  # noqa: E402
from tilewright.layout.library.domain import Domain, exact_cover  # noqa: E402
from tilewright.layout.synthesis import synthesise_swizzle  # noqa: E402


def questions(count: int) -> dict[str, object]:
    rng, start = random.Random(2026), time.perf_counter()
    outcomes = Counter(check_questions(random_case(rng)) for _ in range(count))
    return {"layouts": count, "right_inverses": dict(outcomes), "seconds": round(time.perf_counter() - start, 1)}


def pairs(count: int) -> dict[str, object]:
    rng, start = random.Random(2027), time.perf_counter()
    rewritten = sum(check_pair(rng, random_case(rng)) for _ in range(count))
    return {"pairs": count, "spelled_differently": rewritten, "seconds": round(time.perf_counter() - start, 1)}


def domains(rounds: int = 50) -> dict[str, object]:
    m, n, k = sym("M"), sym("N"), sym("K")
    cut: list[float] = []
    proved: list[float] = []
    built: list[float] = []
    general: list[float] = []
    proof: list[float] = []
    for _ in range(rounds):
        start = time.perf_counter()
        found = Domain.box({"i": m, "j": n, "k": k}).core_tails((128, 128, 64), align=(1, 8, 8))
        cut.append(time.perf_counter() - start)
        assert found.cover().is_exact
        proved.append(time.perf_counter() - start)
        pieces = found.pieces
        box = Domain.box({"i": m, "j": n, "k": k})
        start = time.perf_counter()
        sets = [p.set for p in pieces]
        built.append(time.perf_counter() - start)
        start = time.perf_counter()
        assert exact_cover(pieces, box).is_exact
        proof.append(time.perf_counter() - start)
        plain = Domain.of(box.dims, box.constraint)
        start = time.perf_counter()
        core = plain.core_tails((128, 128, 64)).core
        general.append(time.perf_counter() - start)
        assert core.equal(pieces[0])
        assert len(sets) == len(pieces)
    timed = (("cut", cut), ("cut_and_proof", proved), ("isl_sets", built), ("proof_of_all_pieces_at_once", proof))
    ms = {name: round(1e3 * min(t), 2) for name, t in timed}
    return {"least_ms": ms | {"core_tails_by_isl": round(1e3 * min(general), 2)}, "rounds": rounds}


def syntheses(rounds: int = 20) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for name, (target, accesses, constraints) in SETS.items():
        seconds: list[float] = []
        for _ in range(rounds):
            start = time.perf_counter()
            found = synthesise_swizzle(accesses, target, constraints)
            seconds.append(time.perf_counter() - start)
            assert found.is_free
        rows.append({"accesses": name, "found": str(found), "median_ms": round(1e3 * median(seconds), 2)})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layouts", type=int, default=20_000)
    parser.add_argument("--pairs", type=int, default=10_000)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    report = {
        "command": "python " + " ".join(sys.argv),
        "date": datetime.now(UTC).date().isoformat(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in ("islpy", "python-flint")},
        "note": "every comparison is exact and raises on the first disagreement; the machine was shared",
        "enumeration": questions(options.layouts),
        "canonical_forms": pairs(options.pairs),
        "core_tails_of_a_symbolic_3d_box": domains(),
        "swizzle_synthesis": syntheses(),
    }
    text = json.dumps(report, indent=1)
    if options.out is not None:
        options.out.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
