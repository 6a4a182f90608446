"""How long proofs of protocols take: CPU milliseconds in a warm process.

    python tools/proof_times.py [--repeat N] [--json FILE]

The parametric proof of the hand-written protocols at several ring lengths, the least of N calls; a row says what was
left open where the proof does not reach. Then ``check`` on every right protocol there is (examples, twins of bugs, the
gallery, compiled kernels), each asked once, since a process remembers what it has proved.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

from protocols import attention, blackwell, cp_async, gemm, grouped, split_k

from campaign.corpus import everything
from tilewright.base.verdict import Refuted, Unknown
from tilewright.protocol.model import Protocol
from tilewright.verify import check
from tilewright.verify.parametric import prove


def protocols() -> dict[str, Protocol]:
    """The protocols timed, by name."""
    found = {f"cooperative, 2 consumers, {s} stages": gemm.cooperative(s, 2) for s in (2, 4, 16)}
    found |= {f"ping-pong, {s} stages": gemm.pingpong(s) for s in (2, 4, 16)}
    found |= {f"multicast, {s} stages": gemm.multicast(s) for s in (2, 4, 16)}
    found |= {f"attention, 2 consumers, {s} stages": attention.forward(s, 2) for s in (2, 16)}
    found |= {f"attention, 3 consumers, {s} stages": attention.forward(s, 3) for s in (2, 16)}
    found |= {f"Blackwell, {s} stages": blackwell.gemm(s) for s in (2, 4, 16)}
    found["cooperative, one tile"] = gemm.cooperative(4, 2, persistent=False)
    found["cp.async, multistage"] = cp_async.multistage()
    found["cp.async, producer warps"] = cp_async.producer_warps()
    found["grouped, descriptor rewrites"] = grouped.tensormap_update()
    found["split-K, copies between CTAs"] = split_k.dsmem_reduce()
    return found


def checked() -> dict[str, float]:
    """Milliseconds that ``check`` takes to answer, by protocol."""
    found: dict[str, float] = {}
    for name, protocol in everything().items():
        start = time.process_time()
        answer = check(protocol)
        spent = time.process_time() - start
        if not isinstance(answer, Refuted):
            found[name] = round(1e3 * spent, 1)
    return found


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    rows: list[dict[str, object]] = []
    for name, protocol in protocols().items():
        reason, times = "", list[float]()
        for _ in range(args.repeat):
            start = time.process_time()
            answer = prove(protocol)
            times.append(time.process_time() - start)
            reason = answer.reason if isinstance(answer, Unknown) else ""
        rows.append({"protocol": name, "open": reason, "ms": round(1e3 * min(times), 1)})
        print(f"{name:36} {1e3 * min(times):7.1f} ms  {'open: ' + reason if reason else 'proved'}")
    checks = checked()
    times = sorted(checks.values())
    slowest = max(checks, key=checks.__getitem__)
    print(f"check on {len(times)} protocols: median {median(times):.1f} ms, most {times[-1]} ms ({slowest})")
    if args.json:
        found = {"python": platform.python_version(), "repeat": args.repeat, "rows": rows, "checks": checks}
        args.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
