"""Writes the protocols of compiled kernels to ``tests/data/protocols``, as text.

    python -m campaign.compiled          (in tools/)

Mutation starts from them without compiling anything.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "tests/data/protocols"
STAGES = 2


def main() -> None:
    """Lowers each kernel for one warpgroup, two stages, and writes the protocol of each way its branches go."""
    sys.path.insert(0, str(ROOT / "tests"))
    from support import products  # noqa: PLC0415  (heavy; only this command compiles)
    from tilewright.protocol import to_text  # noqa: PLC0415
    from tilewright.schedule.hopper.candidate import Candidate  # noqa: PLC0415
    from tilewright.transport.protocol import protocols_of  # noqa: PLC0415

    FOLDER.mkdir(exist_ok=True)
    kernels = {
        "matmul": (products.nt, {}),
        "biased": (products.biased, {}),
        "gated": (products.gated, {}),
        "scaled_rows": (products.scaled_rows, {}),
        "chained": (products.chained, {}),
        "attention": (products.attention, {"causal": False}),
        "causal_attention": (products.attention, {"causal": True}),
    }
    for name, (kernel, keywords) in kernels.items():
        found = products.lower(kernel, Candidate(1, stages=STAGES), **keywords)
        if not isinstance(found, products.Lowered):
            print(f"{name}: refused")
            continue
        for i, protocol in enumerate(protocols_of(found.scheduled.kernel)):
            (FOLDER / f"{name}_{i}.txt").write_text(to_text(protocol))
            print(f"{name}_{i}")


if __name__ == "__main__":
    main()
