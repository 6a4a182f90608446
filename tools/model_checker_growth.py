"""How the model checker's search grows with the ring, beside the checker's time for the same protocol.

    python tools/model_checker_growth.py [--json benchmarks/results/model_checker_growth.json]

Pipelines of one ring, one or two consumers, once through and persistent. The model checker searches one instance of as
many steps as twice the stages (two tiles if persistent), with its reduction and without; the checker answers for all
trip counts. Processor times, the least of three for the checker.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from campaign.judge import sizes
from campaign.variants import pipeline
from tilewright.base.verdict import Proved
from tilewright.verify import check
from tilewright.verify.model_checker import exhaust

MAX_STATES = 40_000


def row(stages: int, consumers: int, persistent: bool) -> dict[str, object]:
    """One protocol: states and times."""
    p = pipeline(1, stages, consumers, persistent, "wgmma", store=False)
    at = sizes(p, 2 * stages, 2 if persistent else 1)
    out: dict[str, object] = {"stages": stages, "consumers": consumers, "persistent": persistent}
    for name, reduce in (("reduced", True), ("whole", False)):
        begun = time.process_time()
        found = exhaust(p, at, max_states=MAX_STATES, reduce=reduce)
        assert found.finding is None
        spent = round(1000 * (time.process_time() - begun), 1)
        out[name] = {"states": found.states, "complete": found.complete, "ms": spent}
    times: list[float] = []
    for _ in range(3):
        begun = time.process_time()
        assert isinstance(check(p), Proved)
        times.append(1000 * (time.process_time() - begun))
    return out | {"check_ms": round(min(times), 1)}


def main() -> None:
    """Prints a table, and writes it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    rows: list[dict[str, object]] = []
    for persistent in (False, True):
        for consumers in (1, 2):
            for stages in (1, 2, 3, 4, 6, 8):
                rows.append(row(stages, consumers, persistent))
                print(rows[-1], flush=True)
    if args.json:
        about = {"command": "python tools/model_checker_growth.py", "python": platform.python_version()}
        args.json.write_text(json.dumps(about | {"max_states": MAX_STATES, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
