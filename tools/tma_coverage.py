"""Share of tensor accesses on tensor copies over workload shapes: ``python tools/tma_coverage.py SHAPES.json``.

SHAPES holds operators with their ``dims`` and ``shapes``. Every operand of every shape is asked for with a common tile;
an access is *direct* if its map is legal as it stands, *repaired* if the cheapest repair that ends in a map beats every
copy by threads, *threads* otherwise. ``--triton`` sets beside it what Triton's host descriptors accept for the same
tensors and tiles, rounded up to powers of two as it wants them; triton must be importable, no GPU is used.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from tilewright.base.verdict import Legal, Repairs
from tilewright.legal.prices import Workload
from tilewright.legal.repairs import legalise
from tma_workloads import Operand, workloads

INNER_BLOCK_BYTES = 16
"""Least inner extent of a block (triton.language.semantic, make_tensor_descriptor)."""


@cache
def outcome(operand: Operand) -> str:
    """How the access reaches shared memory."""
    answer = legalise(operand.access, workload=Workload(reuse=operand.reuse))
    if isinstance(answer, Legal):
        return "direct"
    if isinstance(answer, Repairs):
        best = answer.repairs[0].fields
        return f"repaired: {best.change.name.lower()}" if best.plan is not None else "threads"
    return "refused"


def triton_judge() -> Callable[[Operand], str]:
    """Triton's own check of a host descriptor, on a stand-in for a tensor on a device."""
    from triton.tools.tensor_descriptor import TensorDescriptor  # noqa: PLC0415  only where it is compared

    class Element:
        def __init__(self, size: int) -> None:
            self.itemsize, self.is_floating_point = size, True

    class Tensor:
        def __init__(self, address: int, size: int) -> None:
            self.dtype, self._address = Element(size), address

        def data_ptr(self) -> int:
            return self._address

    @cache
    def judge(operand: Operand) -> str:
        access = operand.access
        block = [1 << ((t or 1) - 1).bit_length() for t in access.tile]
        if block[-1] * access.dtype.bytes < INNER_BLOCK_BYTES:
            return "refused: a block of less than 16 bytes"
        address = int(str(access.address))
        try:
            TensorDescriptor(Tensor(address, access.dtype.bytes), list(access.shape), list(access.strides), block)
        except (AssertionError, ValueError) as refusal:
            return f"refused: {refusal}"
        return "accepted"

    return judge


def main() -> None:
    """Print the shares by operator and in all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shapes", type=Path)
    parser.add_argument("--triton", action="store_true", help="compare with Triton's host descriptors")
    parser.add_argument("--record", type=Path, help="where to write the figures as JSON")
    args = parser.parse_args()
    ours: dict[str, Counter[str]] = {}
    theirs: dict[str, Counter[str]] = {}
    judge = triton_judge() if args.triton else None
    for name, operand in workloads(json.loads(args.shapes.read_text())):
        for key in (name, "all"):
            ours.setdefault(key, Counter())[outcome(operand)] += 1
            if judge is not None:
                theirs.setdefault(key, Counter())[judge(operand)] += 1
    ours["all"] = ours.pop("all")
    for name, counts in ours.items():
        beside = f"  | Triton: {shares(theirs[name])}" if name in theirs else ""
        print(f"{name:30} {sum(counts.values()):6} accesses  {shares(counts)}{beside}")
    if args.record:
        args.record.write_text(json.dumps(record(ours, theirs), indent=1) + "\n")


def shares(counts: Counter[str]) -> str:
    every = sum(counts.values())
    return "  ".join(f"{k} {n / every:.1%}" for k, n in counts.most_common())


def record(ours: dict[str, Counter[str]], theirs: dict[str, Counter[str]]) -> dict[str, Any]:
    """The figures for a file."""
    every = sum(ours["all"].values())
    result: dict[str, Any] = {
        "command": f"tools/tma_coverage.py SHAPES.json{' --triton' if theirs else ''}",
        "shapes": "tritonbench db2155c8: every gemm, addmm, attention, grouped, jagged and embedding shape",
        "accesses": every,
        "on_tensor_copies": round(sum(n for k, n in ours["all"].items() if k not in ("threads", "refused")) / every, 4),
        "ours": {name: dict(counts.most_common()) for name, counts in ours.items()},
    }
    if theirs:
        result["triton"] = importlib.metadata.version("triton")
        result["accepted_by_triton"] = round(theirs["all"]["accepted"] / every, 4)
        result["theirs"] = {name: dict(counts.most_common()) for name, counts in theirs.items()}
    return result


if __name__ == "__main__":
    main()
