"""Multiply random tiles with wgmma through our descriptors on a GPU and compare every accumulator with the product.

``python tools/wgmma_execute.py build FOLDER`` compiles the kernels (cuda-bindings and NVRTC, no GPU);
``python tools/wgmma_execute.py run FOLDER --record FILE.json`` runs them (numpy, an NVIDIA driver, a Hopper GPU).

Every operand type, accumulator type, width, major, swizzle and source of A is multiplied once, with random tile
extents, places in shared memory and rows of the tile. The operands hold small integers, so that products are exact;
the rest of shared memory holds NaNs. Where the elements lie comes from ``SmemTile``, what the instruction is given
from ``legal.wgmma``, who holds which accumulator from ``hw.target.sm_90a``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tilewright.base.dtypes import DTYPES, DType
from tilewright.base.verdict import Illegal, Legal
from tilewright.hw.fragments import FragmentAtom
from tilewright.hw.rules.wgmma import CORE_ROW_BYTES, INSTRUCTION_K_BITS, OPERAND_TYPES
from tilewright.hw.target.sm_90a import WGMMA_A, WGMMA_ACCUMULATOR
from tilewright.hw.tensormap import PATTERNS, Swizzle
from tilewright.legal.smem_tile import SmemTile
from tilewright.legal.wgmma import Major, OperandRole, WgmmaOperand, WgmmaOperandPlan, plan
from wgmma_source import Program, Variant, programs

SWIZZLES = (Swizzle.NONE, Swizzle.B32, Swizzle.B64, Swizzle.B128)
POISON = 0xFF
"""Shared memory beside the operands: NaNs in every float type, -1 in integers."""
WORKER_SECONDS = 240
Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Operand:
    """A tile in shared memory at ``offset_bytes``, its plan, and the first row of A (column of B) multiplied."""

    values: Rows
    plan: WgmmaOperandPlan
    offset_bytes: int
    first: int


@dataclass(frozen=True)
class Case:
    """One product: ``a`` is 64 x K, in shared memory or registers, ``b`` is N x K."""

    program: Program
    variant: Variant
    a: Rows
    a_shared: Operand | None
    b: Operand
    shared_bytes: int


def cases(program: Program, seed: int) -> Iterator[Case]:
    """One case for each variant and pair of swizzles."""
    rng = np.random.default_rng((seed, *program.name.encode()))
    for variant in program.variants:
        a_swizzles = (None,) if variant.a_in_registers else SWIZZLES
        for a_swizzle, b_swizzle in product(a_swizzles, SWIZZLES):
            yield draw(program, variant, a_swizzle, b_swizzle, rng)


def draw(
    program: Program, variant: Variant, a_swizzle: Swizzle | None, b_swizzle: Swizzle, rng: np.random.Generator
) -> Case:
    """A random product whose K is a whole number of the instruction's and of both tiles' panels."""
    dtype = program.dtype
    unit = INSTRUCTION_K_BITS // dtype.bits
    for swizzle, transposed in ((a_swizzle, variant.transpose_a), (b_swizzle, variant.transpose_b)):
        if swizzle is not None and not transposed:
            unit = max(unit, panel_of(dtype, swizzle))
    k = unit * int(rng.integers(1, 4))
    b = operand(OperandRole.B, program, Major(variant.transpose_b), b_swizzle, program.n, k, rng)
    if a_swizzle is None:
        return Case(program, variant, integers(dtype, (64, k), rng), None, b, b.offset_bytes + b.plan.shared.size_bytes)
    a = operand(OperandRole.A, program, Major(variant.transpose_a), a_swizzle, 64, k, rng)
    begin = -(-(a.offset_bytes + a.plan.shared.size_bytes) // 1024) * 1024
    b = Operand(b.values, b.plan, begin + b.offset_bytes, b.first)
    end = b.offset_bytes + b.plan.shared.size_bytes
    return Case(program, variant, a.values[a.first : a.first + 64], a, b, end)


def panel_of(dtype: DType, swizzle: Swizzle) -> int:
    """Elements of a panel that the instruction reads."""
    return (PATTERNS[swizzle].span_bytes or CORE_ROW_BYTES) // dtype.bytes


def operand(
    role: OperandRole, program: Program, major: Major, swizzle: Swizzle, used: int, k: int, rng: np.random.Generator
) -> Operand:
    """A tile with at least ``used`` rows, at a place as aligned as its swizzle asks."""
    dtype, panel = program.dtype, panel_of(program.dtype, swizzle)
    step = 8 if major is Major.K else panel
    first = step * int(rng.integers(0, 3))
    mn = -(-(first + used + step * int(rng.integers(0, 2))) // step) * step
    extents = (k, mn) if major is Major.K else (mn, k)
    tile = SmemTile(extents, panel, dtype.bytes, swizzle)
    chosen = plan(WgmmaOperand(role, dtype, tile, major, program.n, program.accumulator))
    assert isinstance(chosen, Legal), (chosen, tile)
    offset = tile.align_bytes * int(rng.integers(0, 3))
    return Operand(integers(dtype, (mn, k), rng), chosen.fields, offset, first)


def integers(dtype: DType, shape: tuple[int, int], rng: np.random.Generator) -> Rows:
    """Integers that the type, and sums of their products every accumulator type, hold exactly."""
    return rng.integers(-3, 4, shape) if dtype.is_float else rng.integers(-128, 128, shape)


def encode(values: Rows, dtype: DType) -> NDArray[np.uint8]:
    """The bytes of integers in an element type, one more axis."""
    match dtype.name:
        case "i8":
            words = values.astype(np.int8)
        case "f16":
            words = values.astype(np.float16)
        case "tf32":
            words = values.astype(np.float32)
        case "bf16":
            words = (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
        case _:
            words = minifloat(values, dtype)
    return np.ascontiguousarray(words)[..., None].view(np.uint8)


def minifloat(values: Rows, dtype: DType) -> NDArray[np.uint8]:
    """8-bit floats of integers that have them."""
    fraction = dtype.digits - 1
    bias = {"e4m3": 7, "e5m2": 15}[dtype.name]
    size = np.abs(values)
    exponent = np.where(size > 0, np.log2(np.maximum(size, 1)).astype(np.int64), 0)
    mantissa = (size << fraction >> exponent) - (1 << fraction)
    word = np.where(size > 0, (exponent + bias << fraction) + mantissa, 0)
    return (word | np.where(values < 0, 0x80, 0)).astype(np.uint8)


def image(case: Case) -> NDArray[np.uint8]:
    """Shared memory with both operands in place."""
    memory = np.full(-(-case.shared_bytes // 16) * 16, POISON, np.uint8)
    for part in (case.a_shared, case.b):
        if part is not None:
            mn, k = np.indices(part.values.shape)
            coordinates = (k, mn) if part.plan.major is Major.K else (mn, k)
            tile = part.plan.shared
            at = part.offset_bytes + np.asarray(tile.offset(coordinates))  # type: ignore[arg-type]
            memory[at[..., None] + np.arange(tile.element_bytes)] = encode(part.values, case.program.dtype)
    return memory


def descriptors(part: Operand, base: int) -> NDArray[np.uint64]:
    """The descriptor of each instruction along K; shared memory begins at ``base``."""
    begin = base + part.offset_bytes + part.plan.mn_offset(part.first)
    return np.array([part.plan.descriptor(begin + step) for step in part.plan.k_offsets], np.uint64)


def coordinates(fragment: FragmentAtom, elements: int) -> tuple[Rows, Rows]:
    """Coordinates of element ``e`` (column) of thread ``t`` (row) in an atom of 128 threads."""
    thread, element = np.arange(128)[:, None], np.arange(elements)[None, :]
    at = [np.zeros((128, elements), np.int64) for _ in range(2)]
    bits = [(element, i, b) for i, b in enumerate(fragment.register)]
    bits += [(thread, i, b) for i, b in enumerate((*fragment.lane, *fragment.warp))]
    for index, bit, basis in bits:
        for axis in range(2):
            at[axis] = at[axis] + (index >> bit & 1) * basis[axis]
    return at[0], at[1]


def fragments(case: Case) -> NDArray[np.uint32]:
    """A in registers: four words a thread for each instruction along K."""
    dtype = case.program.dtype
    atom = WGMMA_A[dtype.bits]
    m, k = coordinates(atom, 1 << len(atom.register))
    words = encode(case.a, dtype)
    parts = [words[m, k + first] for first in range(0, case.a.shape[1], atom.shape[1])]
    return np.ascontiguousarray(parts).reshape(-1).view(np.uint32)


def matrix(case: Case, words: NDArray[np.uint32]) -> Rows:
    """The accumulator that the threads' registers hold, 64 x N; what is no integer becomes a number out of range."""
    kind = {"f32": np.float32, "f16": np.float16, "i32": np.int32}[case.program.accumulator]
    held = words.reshape(128, -1).view(kind).astype(np.float64)
    m, n = coordinates(WGMMA_ACCUMULATOR, 4)
    result = np.full((64, case.program.n), np.nan)
    for first in range(0, case.program.n, 8):
        result[m, first + n] = held[:, first // 2 : first // 2 + 4]
    return np.nan_to_num(np.where(result == np.round(result), result, np.inf), nan=2.0**40, posinf=2.0**41).astype(
        np.int64
    )


def expected(case: Case) -> Rows:
    """The product, exactly."""
    return case.a @ case.b.values[case.b.first : case.b.first + case.program.n].T


@dataclass(frozen=True)
class Outcome:
    """What became of one case; ``trouble`` is empty if every accumulator was right."""

    program: str
    variant: str
    a: str
    b: str
    trouble: str


def work(folder: Path, seed: int, names: list[str]) -> None:
    """Run the cases of some programs in this process, printing one line each."""
    from wgmma_device import Device  # noqa: PLC0415  the machine that builds has no driver

    device = Device()
    for program in programs():
        if program.name not in names:
            continue
        device.load(folder / f"{program.name}.cubin")
        for case in cases(program, seed):
            got = matrix(case, device.multiply(case))
            wrong = np.argwhere(got != expected(case))
            trouble = f"{len(wrong)} of {got.size} accumulators differ, first {wrong[0]}" if len(wrong) else ""
            print(json.dumps(asdict(outcome(case, trouble))), flush=True)


def outcome(case: Case, trouble: str) -> Outcome:
    """The record of one case."""
    a = case.a_shared
    a_name = "registers" if a is None else f"{a.plan.major.name} {a.plan.swizzle.name}"
    b_name = f"{case.b.plan.major.name} {case.b.plan.swizzle.name}"
    return Outcome(case.program.name, case.variant.name, a_name, b_name, trouble)


def admissibility() -> dict[str, dict[str, str]]:
    """For every operand type: which pairs of major and swizzle are taken, and the rules that refuse the others."""
    table: dict[str, dict[str, str]] = {}
    for name, dtype in DTYPES.items():
        accumulator = OPERAND_TYPES.get(name, ("f32",))[-1]
        row: dict[str, str] = {}
        for major, swizzle in product(Major, Swizzle):
            panel, depth = panel_of(dtype, swizzle), INSTRUCTION_K_BITS // dtype.bits
            extents = (max(panel, depth), 64) if major is Major.K else (max(panel, 64), depth)
            tile = SmemTile(extents, panel, dtype.bytes, swizzle)
            answer = plan(WgmmaOperand(OperandRole.B, dtype, tile, major, 64, accumulator))
            core = sorted({v.rule for v in answer.core}) if isinstance(answer, Illegal) else []
            row[f"{major.name} {swizzle.name}"] = f"refused: {', '.join(core)}" if core else "admissible"
        table[name] = row
    return table


def run(args: argparse.Namespace) -> int:
    """Run all programs in several processes; exit status 1 if a case is wrong or missing."""
    started = datetime.now(UTC)
    every = list(programs())
    shares = [[p.name for p in every[i :: args.jobs]] for i in range(args.jobs)]
    with ThreadPoolExecutor(args.jobs) as pool:
        parts = list(pool.map(lambda names: in_process(args.folder, args.seed, names), shares))
    outcomes = [Outcome(**json.loads(line)) for lines, _ in parts for line in lines if line.startswith("{")]
    failures = [failure for _, failure in parts if failure]
    wrong = [o for o in outcomes if o.trouble]
    wanted = sum(len(list(cases(program, args.seed))) for program in every)
    devices = {line.removeprefix("device ") for lines, _ in parts for line in lines if line.startswith("device ")}
    record = {
        "command": f"tools/wgmma_execute.py run --seed {args.seed}",
        "date": started.date().isoformat(),
        "device": " ".join(sorted(devices)),
        "cases": len(outcomes),
        "wanted": wanted,
        "wrong": len(wrong),
        "failures": failures,
        "by_type": count(o.program.rsplit("_n", 1)[0] for o in outcomes),
        "by_n": count(o.program.rsplit("_n", 1)[1].rjust(3) for o in outcomes),
        "by_a": count(o.a for o in outcomes),
        "by_b": count(o.b for o in outcomes),
        "wrong_cases": [asdict(o) for o in wrong[:200]],
        "admissible": admissibility(),
        "seconds": round((datetime.now(UTC) - started).total_seconds(), 1),
    }
    print(json.dumps({k: v for k, v in record.items() if k != "admissible"}, indent=1))
    if args.record:
        args.record.write_text(json.dumps(record, indent=2) + "\n")
    return 1 if wrong or failures or len(outcomes) != wanted else 0


def in_process(folder: Path, seed: int, names: list[str]) -> tuple[list[str], str]:
    """Lines that ``work`` prints in a process of its own, and how it failed (empty if it did not)."""
    command = [sys.executable, str(Path(__file__)), "work", str(folder), "--seed", str(seed), "--programs", *names]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=WORKER_SECONDS)
    except subprocess.TimeoutExpired:
        return [], f"no end within {WORKER_SECONDS} s"
    failure = done.stderr.strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
    return done.stdout.splitlines(), failure[0] if done.returncode else ""


def count(values: Iterator[str]) -> dict[str, int]:
    """How often each value occurs, by value."""
    return dict(sorted(Counter(values).items()))


def build(folder: Path) -> None:
    """Compile every program for sm_90a."""
    from tilewright.codegen.assemble import assemble  # noqa: PLC0415  the machine that runs has no compiler

    folder.mkdir(parents=True, exist_ok=True)
    size = 0
    for program in programs():
        cubin = assemble(program.source, "sm_90a", program.name).cubin
        (folder / f"{program.name}.cubin").write_bytes(cubin)
        size += len(cubin)
    print(f"{len(list(programs()))} programs, {size} bytes in {folder}")


def main() -> int:
    """Build the kernels, or run every case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=("build", "run", "work"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--programs", nargs="*", default=[], help="names that work runs")
    parser.add_argument("--record", type=Path, help="where to write the figures as JSON")
    args = parser.parse_args()
    match args.action:
        case "build":
            build(args.folder)
        case "work":
            work(args.folder, args.seed, args.programs)
        case _:
            return run(args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
