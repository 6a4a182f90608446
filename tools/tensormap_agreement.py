"""Score the tensor-map rules against a driver's labels: ``python tools/tensormap_agreement.py FILE.npz [--json]``.

FILE holds ``columns`` (names) and ``data`` (one row a request, 0 in ``result``: accepted), as written by
``tools/tensormap_label.py``.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np

from tilewright.legal.agreement import COLUMNS, Column, DriverAgreement, compare

SHOWN = 10


def load(path: Path) -> dict[str, Column]:
    """The columns of a corpus file, labels included."""
    with np.load(path, allow_pickle=False) as archive:
        names = [str(name) for name in archive["columns"]]
        table = np.ascontiguousarray(archive["data"].T).view(np.int64)
    missing = [name for name in (*COLUMNS, "result") if name not in names]
    if missing:
        raise SystemExit(f"{path}: no column {', '.join(missing)}; columns are {', '.join(names)}")
    return {name: table[i] for i, name in enumerate(names)}


def show(agreement: DriverAgreement, columns: dict[str, Column]) -> list[str]:
    """The report: headline, one line per rank and interleave, the first disagreements."""
    wrong_legal, wrong_illegal = len(agreement.false_legal), len(agreement.false_illegal)
    lines = [
        f"agreement {agreement.agreement:.6f} ({agreement.rows} rows)"
        f" false-legal {wrong_legal} false-illegal {wrong_illegal}"
    ]
    for field in ("rank", "interleave"):
        column = columns[field]
        for value in np.unique(column):
            rows = int((column == value).sum())
            legal = int((column[agreement.false_legal] == value).sum())
            illegal = int((column[agreement.false_illegal] == value).sum())
            lines.append(f"  {field} {value}: {rows} rows, false-legal {legal}, false-illegal {illegal}")
    for kind, rows in (("false-legal", agreement.false_legal), ("false-illegal", agreement.false_illegal)):
        for row in rows[:SHOWN]:
            fields = " ".join(f"{name}={columns[name][row]}" for name in COLUMNS)
            lines.append(f"{kind} row {row} rules [{', '.join(agreement.broken(int(row)))}] {fields}")
    return lines


def main() -> int:
    """Print the report; exit status 1 when a request the driver rejects is called legal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--cc", type=int, default=90, help="compute capability the labels were made on, 90 for 9.0")
    parser.add_argument("--without", default="", help="rule ids to leave out, separated by commas")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    started = time.perf_counter()
    columns = load(args.file)
    agreement = compare(columns, columns["result"] == 0, args.cc, frozenset(filter(None, args.without.split(","))))
    seconds = time.perf_counter() - started
    if args.json:
        record = {
            "rows": agreement.rows,
            "agreement": agreement.agreement,
            "false_legal": len(agreement.false_legal),
            "false_illegal": len(agreement.false_illegal),
            "seconds": round(seconds, 3),
        }
        print(json.dumps(record))
    else:
        print("\n".join(show(agreement, columns)))
        print(f"judged in {seconds:.2f} s")
    return 1 if len(agreement.false_legal) else 0


if __name__ == "__main__":
    sys.exit(main())
