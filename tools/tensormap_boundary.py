"""Write requests at the edge of every tensor-map rule: ``python tools/tensormap_boundary.py OUT.npz --rows 50000``.

Label them with ``tools/tensormap_label.py`` on a machine with a driver, then score with
``tools/tensormap_agreement.py``.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.tensormap_edges import edges, near_full_boxes
from tilewright.legal.agreement import COLUMNS, encode_rules


def main() -> None:
    """Generate, print the count per rule, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", type=Path)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    rng = np.random.default_rng(args.seed)
    boxes = near_full_boxes(args.rows // 8, rng)
    per_rule = -(-(args.rows - len(boxes)) // (2 * len(encode_rules(90))))
    parts = [boxes]
    for edge in edges(per_rule, rng):
        print(f"{edge.rule.id}: {len(edge.kept)} kept, {len(edge.broken)} broken")
        parts += [edge.kept, edge.broken]
    rows = rng.permutation(np.concatenate(parts))[: args.rows]
    np.savez_compressed(args.target, columns=np.array(COLUMNS), data=rows.astype(np.uint64))
    print(f"{len(rows)} requests in {args.target}")


if __name__ == "__main__":
    main()
