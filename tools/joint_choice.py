"""Layouts chosen jointly with their copies and slots, against layouts chosen first: ``python tools/joint_choice.py``.

Each kernel is a step of a ring: tiles with those who read them. Every candidate has its asynchronous plan; the table
shows what the joint choice takes, what layout-first would have taken, and the predicted cycles of a step of both. The
second table does the same for the copied operands of kernels as the compiler plans them, beside what it takes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import tilewright as tw
from tilewright.base.dtypes import DType, bf16, e4m3, f32, i8, tf32
from tilewright.compiler.program import traced
from tilewright.compiler.requests import Request, default_facts
from tilewright.hw.target import SM90A
from tilewright.hw.tensormap import Direction
from tilewright.lang.signature import Signature
from tilewright.layout.library import fragments
from tilewright.layout.register import RegisterLayout
from tilewright.legal.asynchronous import (
    AsyncPlan,
    FragmentReader,
    LayoutChoice,
    ProductReader,
    StreamedTile,
    async_plans,
    choose,
    layout_first,
)
from tilewright.legal.tma import TileAccess
from tilewright.legal.wgmma import Major, OperandRole
from tilewright.schedule.hopper.operand_layouts import layouts
from tilewright.schedule.hopper.operands import Analysis

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

from attention import attention
from matmul import matmul

EXTENT = 4096


def tile(
    dtype: DType, rows: int, columns: int, *readers: FragmentReader | ProductReader, store: bool = False
) -> StreamedTile:
    """A tile of a large dense matrix."""
    direction = Direction.STORE if store else Direction.LOAD
    pitch = -(-max(EXTENT, columns) // 16) * 16
    return StreamedTile(TileAccess(dtype, (EXTENT, pitch), (pitch, 1), 0, (rows, columns), direction), readers)


def along_rows(dtype: DType, rows: int, columns: int) -> FragmentReader:
    """Warps that read whole rows, 16 bytes a lane."""
    vector = 16 // dtype.bytes
    lanes = min(32, (columns // vector) & -(columns // vector))
    return FragmentReader(
        RegisterLayout.blocked(
            (columns, rows), vector=(vector, 1), lanes=(lanes, 32 // lanes), warps=(1, 4), order=(0, 1)
        )
    )


def row_a_thread(dtype: DType, rows: int, columns: int) -> FragmentReader:
    """Threads that read a row each, 16 bytes at a time."""
    vector = 16 // dtype.bytes
    return FragmentReader(
        RegisterLayout.blocked(
            (columns, rows), vector=(vector, 1), lanes=(1, 32), warps=(1, max(1, min(4, rows // 32))), order=(0, 1)
        )
    )


def along_columns(rows: int, columns: int) -> FragmentReader:
    """Warps that read columns, an element a lane: a transposition."""
    return FragmentReader(
        RegisterLayout.blocked((columns, rows), vector=(1, 1), lanes=(1, 32), warps=(4, 1), order=(1, 0))
    )


def accumulator(rows: int, columns: int) -> FragmentReader:
    """The accumulator of a warpgroup, which writes the tile."""
    return FragmentReader(fragments.wgmma_accumulator(rows, columns).transpose((1, 0)))


def operand(role: OperandRole, major: Major = Major.K, n: int = 128, accumulator_type: str = "f32") -> ProductReader:
    return ProductReader(role, major, n, accumulator_type)


A, B = operand(OperandRole.A), operand(OperandRole.B)
KERNELS: dict[str, tuple[StreamedTile, ...]] = {
    "gemm bf16 128x128x64": (tile(bf16, 128, 64, A), tile(bf16, 128, 64, B)),
    "gemm bf16 128x128x48": (tile(bf16, 128, 48, A), tile(bf16, 128, 48, B)),
    "gemm bf16 128x96x64, B row-major": (
        tile(bf16, 128, 64, A),
        tile(bf16, 64, 96, operand(OperandRole.B, Major.MN, 96)),
    ),
    "gemm e4m3 128x128x128": (tile(e4m3, 128, 128, A), tile(e4m3, 128, 128, B)),
    "gemm tf32 128x128x32": (tile(tf32, 128, 32, A), tile(tf32, 128, 32, B)),
    "attention step 128x128": (tile(bf16, 128, 128, B), tile(bf16, 128, 128, operand(OperandRole.B, Major.MN))),
    "gemm bf16 x i8 weights": (
        tile(bf16, 128, 64, A),
        tile(i8, 128, 64, FragmentReader(fragments.wgmma_operand_a(128, 64, 16, warpgroups=2).transpose((1, 0)))),
    ),
    "row sums f32 64x128": (tile(f32, 64, 128, along_rows(f32, 64, 128)),),
    "row sums f32 128x96, a row a thread": (tile(f32, 128, 96, row_a_thread(f32, 128, 96)),),
    "row sums bf16 128x24, a row a thread": (tile(bf16, 128, 24, row_a_thread(bf16, 128, 24)),),
    "softmax f32 128x32, a row a thread": (tile(f32, 128, 32, row_a_thread(f32, 128, 32)),),
    "transpose bf16 64x64": (tile(bf16, 64, 64, along_columns(64, 64)),),
    "transpose f32 32x96": (tile(f32, 32, 96, along_columns(32, 96)),),
    "sum of rows and columns bf16 64x96": (tile(bf16, 64, 96, along_rows(bf16, 64, 96), along_columns(64, 96)),),
    "add of rows bf16, 64x96 and 64x96": (
        tile(bf16, 64, 96, along_rows(bf16, 64, 96)),
        tile(bf16, 64, 96, row_a_thread(bf16, 64, 96)),
    ),
    "epilogue f32 64x128": (tile(f32, 64, 128, accumulator(64, 128), store=True),),
    "epilogue bf16 64x96": (tile(bf16, 64, 96, accumulator(64, 96), store=True),),
}


COMPILED: tuple[tuple[tw.Kernel, DType, dict[str, int]], ...] = (
    *((matmul, bf16, {"bm": 128, "bn": n, "bk": k}) for n in (64, 96, 192, 256) for k in (32, 64, 96)),
    *((matmul, e4m3, {"bm": 128, "bn": 128, "bk": k}) for k in (64, 128)),
    (attention, bf16, {}),
)
"""Kernels with products, element types, extents."""


def compiled(kernel: tw.Kernel, dtype: DType, extents: dict[str, int]) -> tuple[list[list[AsyncPlan]], LayoutChoice]:
    """The layouts that a kernel's copied operands could have, and those that the compiler takes."""
    types = dict.fromkeys((t.name for t in kernel.tensors), dtype)
    request = Request(
        kernel, Signature.of(types, static=None, keywords=extents), default_facts(kernel), SM90A, tw.Schedule()
    )
    made = Analysis(traced(request), request.facts, 1)
    found = layouts(made.reads())
    taken = {operand.load: operand.map.swizzle for operand in made.chosen_layouts.values()}
    return [list(ways.values()) for ways in found.values()], choose([[found[t][taken[t]]] for t in found])


def described(choice: LayoutChoice) -> dict[str, object]:
    """For a file."""
    return {
        "layouts": [f"{p.plan.swizzle.name}, panels of {p.plan.shared.row_bytes} bytes" for p in choice.plans],
        "completion": [p.completion.value for p in choice.plans],
        "tx_bytes": [p.tx_bytes for p in choice.plans],
        "boxes": [p.boxes for p in choice.plans],
        "bank_degree": [p.reading.degree for p in choice.plans],
        "slots": choice.slots,
        "step_cycles": round(choice.step_cycles, 1),
    }


def main() -> None:
    """Print both choices of every kernel."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", type=Path, help="where to write the figures as JSON")
    args = parser.parse_args()
    rows: list[dict[str, object]] = []
    for name, tensors in KERNELS.items():
        options = [async_plans(tensor) for tensor in tensors]
        joint, first = choose(options), layout_first(options)
        gain = first.step_cycles / joint.step_cycles
        rows.append({
            "kernel": name, "candidates": [len(o) for o in options], "joint": described(joint),
            "layout_first": described(first), "gain": round(gain, 3), "same": joint == first,
        })  # fmt: skip
        chosen = "; ".join(f"{p.plan.swizzle.name} x{p.boxes} degree {p.reading.degree}" for p in joint.plans)
        other = "; ".join(f"{p.plan.swizzle.name} x{p.boxes} degree {p.reading.degree}" for p in first.plans)
        print(f"{name:38} {joint.step_cycles:8.0f} cycles {joint.slots} slots  {chosen}")
        if joint != first:
            print(f"{'  layout first':38} {first.step_cycles:8.0f} cycles {first.slots} slots  {other}")
    differing = sum(not row["same"] for row in rows)
    faster = sum(float(str(row["gain"])) > 1.0 for row in rows)
    print(f"{differing} of {len(rows)} kernels differ, {faster} are predicted to be faster")
    ours = list(ablation())
    print(f"the compiler takes the joint choice in {sum(bool(r['joint']) for r in ours)} of {len(ours)} kernels")
    if args.record:
        head = {"command": "tools/joint_choice.py", "figures": "predicted cycles of a step, not measured"}
        head |= {"kernels_differing": differing, "predicted_faster": faster}
        args.record.write_text(json.dumps({**head, "kernels": rows, "compiled": ours}, indent=1) + "\n")


def ablation() -> Iterator[dict[str, object]]:
    """What the compiler takes for its own kernels, beside both ways to choose."""
    for kernel, dtype, extents in COMPILED:
        options, taken = compiled(kernel, dtype, extents)
        joint, first = choose(options), layout_first(options)
        name = " ".join([kernel.name, str(dtype), *(f"{k}={v}" for k, v in extents.items())])
        layouts_taken = ", ".join(p.plan.swizzle.name for p in taken.plans)
        cycles = [round(c.step_cycles, 1) for c in (taken, joint, first)]
        print(f"{name:38} {cycles[0]:8.0f} cycles {taken.slots} slots  {layouts_taken}; layout first {cycles[2]:.0f}")
        yield {
            "kernel": name, "candidates": [len(o) for o in options], "taken": layouts_taken, "step_cycles": cycles[0],
            "joint_cycles": cycles[1], "layout_first_cycles": cycles[2], "joint": cycles[0] == cycles[1],
        }  # fmt: skip


if __name__ == "__main__":
    main()
