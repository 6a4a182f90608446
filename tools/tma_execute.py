"""Execute planned tensor copies on a GPU and compare every byte with the plan.

``python tools/tma_execute.py build KERNEL.cubin`` compiles the kernel (needs cuda-bindings and NVRTC, no GPU);
``python tools/tma_execute.py run KERNEL.cubin --cases 4000`` runs it (needs numpy, an NVIDIA driver, a Hopper GPU).

Each case draws a tensor, a tile and one of its legal plans. The tile is loaded, and every byte of shared memory
compared, with the bytes that the copy must leave alone; then other bytes are stored through the same map, and every
byte of the tensor compared, with those around it. Cases run in processes of their own, so that one that faults is
named and costs only itself. ``--probes`` adds copies that no rule calls legal; their outcome is printed, not judged.
``--family ragged`` draws maps for groups of rows, whose copies must end where the group does.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tilewright.base.dtypes import DTYPES
from tilewright.base.expr import Const, Sym
from tilewright.base.verdict import Legal
from tilewright.hw.tensormap import DataType, Direction
from tilewright.legal.ragged import ragged_plan
from tilewright.legal.tma import TensorMapPlan, TileAccess, candidates
from tma_device import BUFFER_BYTES, GUARD_BYTES, MAX_COPIES, SHARED_LIMIT, UNTOUCHED, Bytes, Copies, Device, build
from tma_device import kernel_driver as driver_version
from tma_probes import PROBES

TENSOR_LIMIT = 8 << 20
FAULTS_SHOWN = 5
"""A worker's share of the cases is given up after this many faults."""
WORKER_SECONDS = 300
SAME_WIDTH = {1: ("UINT8",), 2: ("UINT16", "FLOAT16", "BFLOAT16"), 4: ("UINT32", "INT32", "FLOAT32"),
              8: ("UINT64", "INT64", "FLOAT64")}  # fmt: skip
"""Data types that carry every bit pattern, by bytes; half of the cases take one of these instead of the dtype's own."""


@dataclass(frozen=True)
class Case:
    """One drawn access with its plan, the bytes its tensor begins after a 256-byte boundary, the first index of the
    tile along each axis, and whether the rules admit a store through the map."""

    access: TileAccess
    plan: TensorMapPlan
    shift_bytes: int
    first: tuple[int, ...]
    storable: bool
    after_bytes: int = 0
    """Bytes of the tensor behind those that the access may touch."""


@dataclass(frozen=True)
class Outcome:
    """What became of one case; ``trouble`` is empty if every byte was right."""

    number: int
    rank: int
    swizzle: str
    data_type: str
    boxes: int
    stored: bool
    broadcast: bool
    """Whether a dimension has stride 0."""
    outside: bool
    """Whether the tile goes over an edge of the tensor."""
    trouble: str


def draw(rng: np.random.Generator) -> Case:
    """A random legal tile: ranks 1 to 5, all dtypes and swizzles, tiles over the edges."""
    while True:
        access, dense = draw_access(rng)
        strides = zip(access.shape, access.strides, strict=True)
        if max(n * s for n, s in strides) * access.dtype.bytes > TENSOR_LIMIT:
            continue
        plans = candidates(access).plans
        if not plans:
            continue
        chosen = plans[int(rng.integers(len(plans)))]
        if chosen.shared.size_bytes > SHARED_LIMIT or len(chosen.boxes) > MAX_COPIES:
            continue
        store = replace(access, direction=Direction.STORE, swizzles=(chosen.swizzle,))
        storable = bool(candidates(store, limit=1).plans)
        if rng.random() < 0.5:
            chosen = replace(chosen, data_type=DataType[str(rng.choice(SAME_WIDTH[access.dtype.bytes]))])
        first = tuple(draw_first(access, axis, dense, rng) for axis in range(len(access.shape)))
        case = Case(access, chosen, 16 * int(rng.integers(0, 16)), first, storable)
        return broadcast(case, rng) if rng.random() < 0.1 else case


def draw_ragged(rng: np.random.Generator) -> Case:
    """Rows of one group, through the map for all groups of a tensor of rank 2 or 3. To the access the tensor ends where
    the group does."""
    while True:
        dtype = list(DTYPES.values())[int(rng.integers(len(DTYPES)))]
        unit, rank = 16 // dtype.bytes, int(rng.integers(2, 4))
        rows, columns = int(rng.integers(1, 400)), unit * int(rng.integers(1, 40))
        pitch = columns + unit * int(rng.integers(0, 3))
        shape, strides = (3, rows, columns)[-rank:], (rows * pitch, pitch, 1)[-rank:]
        tile = (None, int(rng.choice([1, 8, 24, 64, 300])), unit * int(rng.choice([1, 2, 4, 8, 16])))[-rank:]
        axis, start = rank - 2, int(rng.integers(0, rows))
        end = start + int(rng.integers(1, rows - start + 1))
        access = TileAccess(dtype, shape, strides, 0, tile, first_multiples=(1, 1, unit)[-rank:])
        answer = ragged_plan(access, axis, start, end)
        if not isinstance(answer, Legal) or answer.fields.shared.size_bytes > SHARED_LIMIT:
            continue
        index = {f"$index{axis}": Sym(f"$index{axis}") - start}
        plan = replace(answer.fields, coordinates=tuple(c.substitute(index) for c in answer.fields.coordinates))
        stored = ragged_plan(replace(access, direction=Direction.STORE), axis, start, end)
        group = replace(access, shape=(*shape[:axis], end, columns))
        first = (int(rng.integers(0, 3)), int(rng.integers(start, end)), unit * int(rng.integers(0, columns // unit)))
        shift, after = 16 * int(rng.integers(0, 16)), (rows - end) * pitch * dtype.bytes
        return Case(group, plan, shift, first[-rank:], isinstance(stored, Legal), after)


FAMILIES = {"tiles": draw, "ragged": draw_ragged}
"""What cases are drawn from."""


def draw_access(rng: np.random.Generator) -> tuple[TileAccess, int]:
    """A random access, and its dense axis."""
    dtype = list(DTYPES.values())[int(rng.integers(len(DTYPES)))]
    unit = 16 // dtype.bytes
    rank = int(rng.integers(1, 6))
    shape = [int(rng.integers(1, 12)) for _ in range(rank)]
    shape[-1] = int(rng.integers(1, 300))
    if rng.random() < 0.8:
        shape[-1] = -(-shape[-1] // unit) * unit
    if rank > 1:
        shape[-2] = int(rng.integers(1, 100))
    strides = [1] * rank
    for axis in reversed(range(rank - 1)):
        strides[axis] = (-(-strides[axis + 1] * shape[axis + 1] // unit) + int(rng.integers(0, 2))) * unit
    tile: list[int | None] = [(None, 1, 2, 3)[int(rng.integers(4))] for _ in range(rank)]
    span = int(rng.choice([16, 32, 64, 128, 128])) // dtype.bytes
    tile[-1] = int(rng.integers(1, 4)) * span
    firsts = [1] * rank
    firsts[-1] = unit
    if rank > 1:
        tile[-2] = int(rng.choice([1, 8, 24, 64, 300]))
    dense = rank - 1
    if rng.random() < 0.25 and rank > 1:  # transposed: the dense axis is not the last
        for values in (shape, strides, tile, firsts):
            values[-1], values[-2] = values[-2], values[-1]
        dense = rank - 2
    return TileAccess(dtype, tuple(shape), tuple(strides), 0, tuple(tile), first_multiples=tuple(firsts)), dense


def draw_first(access: TileAccess, axis: int, dense: int, rng: np.random.Generator) -> int:
    """The first index of the tile along one axis; below the tensor in some cases, by whole units if it is dense."""
    tile, unit = access.tile[axis] or 1, access.first_multiples[axis]
    below = (tile - 1) // unit if rng.random() < 0.2 and (tile > 1 or axis == dense) else 0
    return unit * int(rng.integers(-below, -(-int(access.shape[axis]) // unit)))


def broadcast(case: Case, rng: np.random.Generator) -> Case:
    """The case with stride 0 along one axis of the tile beside the dense one, if there is one; it is loaded only."""
    kept = range(1, len(case.plan.tile_axes))
    axes = [d for d in kept if isinstance(case.plan.coordinates[d], Sym) and (case.plan.shared.extents[d]) > 1]
    if not axes:
        return case
    d = int(rng.choice(axes))
    axis = case.plan.tile_axes[d]
    strides = tuple(Const(0) if i == d - 1 else s for i, s in enumerate(case.plan.strides))
    access = replace(case.access, strides=tuple(0 if i == axis else s for i, s in enumerate(case.access.strides)))
    return replace(case, access=access, plan=replace(case.plan, strides=strides), storable=False)


@dataclass(frozen=True)
class Places:
    """For every element of a tile: its byte in shared memory, its byte in the tensor, whether the tensor has it."""

    shared: np.ndarray
    tensor: np.ndarray
    within: np.ndarray


def places(case: Case, first: tuple[int, ...]) -> Places:
    """Where the elements of the tile that begins at ``first`` lie, by the access and the layout of its plan."""
    access, size = case.access, case.access.dtype.bytes
    axes = [i for i, t in enumerate(access.tile) if t is not None]
    local = np.indices([access.tile[i] or 1 for i in axes]).reshape(len(axes), -1)
    inside = dict(zip(axes, local, strict=True))
    shared = case.plan.shared.offset(tuple(inside[a] for a in case.plan.tile_axes))
    at = np.zeros(local.shape[1], np.int64)
    within = np.ones(local.shape[1], np.bool_)
    for axis, (extent, stride) in enumerate(zip(access.shape, access.strides, strict=True)):
        index = first[axis] + inside.get(axis, 0)
        at += index * stride * size
        within &= (index >= 0) & (index < extent)
    return Places(shared, at, within)


def origin(case: Case, first: tuple[int, ...]) -> list[int]:
    """The tile's first coordinate in each dimension of the map."""
    values = {f"$index{i}": v for i, v in enumerate(first)}
    return [int(c.evaluate(values)) for c in case.plan.coordinates]


def check(device: Device, case: Case, rng: np.random.Generator, parts: str) -> str:
    """Run one case; the empty string if every byte is right, else what is wrong."""
    access, size = case.access, case.access.dtype.bytes
    extent = (1 + sum((n - 1) * s for n, s in zip(access.shape, access.strides, strict=True))) * size
    begin = GUARD_BYTES + case.shift_bytes
    size_bytes = begin + extent + case.after_bytes + GUARD_BYTES
    assert size_bytes <= BUFFER_BYTES
    memory = rng.integers(0, 256, size_bytes, dtype=np.uint8)
    device.write(device.tensor, memory)
    lanes = np.arange(size)
    trouble = ""
    if "load" in parts:
        trouble = check_load(device, case, memory, begin, lanes)
    if "store" in parts and case.storable and not trouble:
        trouble = check_store(device, case, memory, begin, lanes, rng)
    return trouble


def check_load(device: Device, case: Case, memory: Bytes, begin: int, lanes: np.ndarray) -> str:
    """Load the tile and compare shared memory."""
    at = places(case, case.first)
    done, image = device.load(Copies.of(case.plan, device.tensor + begin, origin(case, case.first)))
    if not done:
        return f"{case.plan.tx_bytes} bytes did not complete"
    expected = np.full_like(image, UNTOUCHED)
    safe = begin + np.where(at.within, at.tensor, 0)
    values = np.where(at.within[:, None], memory[safe[:, None] + lanes], 0).astype(np.uint8)
    if case.plan.data_type == DataType.TFLOAT32:
        values = tf32(values.view(np.uint32)).view(np.uint8)
    expected[at.shared[:, None] + lanes] = values
    return difference("shared memory", image, expected)


def tf32(words: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Singles rounded to the nearest tf32, ties to even."""
    wide = words.astype(np.uint64)
    rounded = (wide + 0xFFF + (wide >> 13 & 1)) & 0xFFFFE000
    return np.where((words & 0x7FFFFFFF) > 0x7F800000, 0x7FFFE000, rounded).astype(np.uint32)


def check_store(
    device: Device, case: Case, memory: Bytes, begin: int, lanes: np.ndarray, rng: np.random.Generator
) -> str:
    """Store random bytes as the tile and compare the tensor."""
    first = tuple(max(f, 0) for f in case.first)  # a store may not begin below the tensor
    at = places(case, first)
    image = rng.integers(0, 256, case.plan.shared.size_bytes, dtype=np.uint8)
    device.store(Copies.of(case.plan, device.tensor + begin, origin(case, first)), image)
    expected = memory.copy()
    source, target = at.shared[at.within], begin + at.tensor[at.within]
    expected[target[:, None] + lanes] = image[source[:, None] + lanes]
    return difference("the tensor", device.read(device.tensor, len(memory)), expected)


def difference(what: str, got: Bytes, expected: Bytes) -> str:
    """The first byte that differs and how many do; empty if none."""
    wrong = np.nonzero(got != expected)[0]
    if not len(wrong):
        return ""
    at = int(wrong[0])
    return f"{len(wrong)} bytes of {what} differ, first byte {at}: {got[at]:#04x}, expected {expected[at]:#04x}"


def work(cubin: Path, family: str, seed: int, numbers: range, parts: str) -> None:
    """Run cases in this process, printing one line each."""
    device = Device(cubin)
    for number in numbers:
        rng = np.random.default_rng((seed, number))
        case = FAMILIES[family](rng)
        trouble = check(device, case, rng, parts)
        print(json.dumps(asdict(outcome(number, case, trouble))), flush=True)


def outcome(number: int, case: Case, trouble: str) -> Outcome:
    """The record of one case."""
    over = not places(case, case.first).within.all()
    name = DataType(case.plan.data_type).name
    flat = 0 in case.access.strides
    return Outcome(
        number, case.plan.rank, case.plan.swizzle.name, name, len(case.plan.boxes), case.storable, flat, over, trouble
    )


def in_process(*args: object) -> tuple[list[str], str]:
    """Lines that this tool prints in a process of its own, and how it failed (empty if it did not)."""
    command = [sys.executable, str(Path(__file__)), *map(str, args)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=WORKER_SECONDS)
    except subprocess.TimeoutExpired as late:
        partial = late.stdout.decode() if isinstance(late.stdout, bytes) else ""
        return partial.splitlines(), f"no end within {WORKER_SECONDS} s"
    failure = done.stderr.strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
    return done.stdout.splitlines(), failure[0] if done.returncode else ""


def supervise(cubin: Path, family: str, seed: int, numbers: range) -> Iterator[Outcome]:
    """The outcomes of ``numbers``; a case that ends its process is named, and its parts run alone."""
    faults = 0
    while numbers and faults < FAULTS_SHOWN:
        drawn = ("work", cubin, "--family", family, "--seed", seed)
        lines, failure = in_process(*drawn, "--first", numbers.start, "--cases", len(numbers))
        for line in lines:
            yield Outcome(**json.loads(line))
        numbers = numbers[len(lines) :]
        if not failure or not numbers:
            return
        faults += 1
        number = numbers.start
        alone = {
            part: in_process(*drawn, "--first", number, "--cases", 1, "--parts", part)[1] for part in ("load", "store")
        }
        case = FAMILIES[family](np.random.default_rng((seed, number)))
        yield outcome(number, case, f"{failure}; alone: {alone}\n  {case}")
        numbers = numbers[1:]


def run(args: argparse.Namespace) -> int:
    """Run all cases in several processes, then the probes, each in its own; exit status 1 if a case is wrong."""
    started = datetime.now(UTC)
    step = -(-args.cases // args.jobs)
    shares = [range(args.first + i, args.first + min(i + step, args.cases)) for i in range(0, args.cases, step)]
    with ThreadPoolExecutor(args.jobs) as pool:
        parts = pool.map(lambda share: list(supervise(args.cubin, args.family, args.seed, share)), shares)
        outcomes = [o for part in parts for o in part]
    seconds = (datetime.now(UTC) - started).total_seconds()
    wrong = [o for o in outcomes if o.trouble]
    for o in wrong[:50]:
        print(f"case {o.number} (rank {o.rank}, {o.swizzle}, {o.data_type}): {o.trouble}")
    record = {
        "command": f"tools/tma_execute.py run --family {args.family} --cases {args.cases} --seed {args.seed}",
        "date": started.date().isoformat(),
        "device": "",
        "driver": driver_version(),
        "cases": len(outcomes),
        "wrong": len(wrong),
        "stored_back": sum(o.stored for o in outcomes),
        "with_a_stride_of_zero": sum(o.broadcast for o in outcomes),
        "over_an_edge": sum(o.outside for o in outcomes),
        "several_boxes": sum(o.boxes > 1 for o in outcomes),
        "by_rank": count(str(o.rank) for o in outcomes),
        "by_swizzle": count(o.swizzle for o in outcomes),
        "by_data_type": count(o.data_type for o in outcomes),
        "seconds": round(seconds, 1),
        "probes": {},
    }
    lines, _ = in_process("device", args.cubin)
    record["device"] = lines[0] if lines else "none"
    print(json.dumps(record, indent=1), flush=True)
    if args.probes:
        for name in PROBES:
            lines, failure = in_process("probe", args.cubin, "--name", name)
            record["probes"] |= {name: [*lines, failure] if failure else lines}
            print("\n  ".join([f"probe {name}: {PROBES[name].__doc__}", *lines, failure]), flush=True)
    if args.record:
        args.record.write_text(json.dumps(record, indent=2) + "\n")
    return 1 if wrong or len(outcomes) < args.cases else 0


def count(values: Iterator[str]) -> dict[str, int]:
    """How often each value occurs, by value."""
    return dict(sorted(Counter(values).items()))


def main() -> int:
    """Build the kernel, or run cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=("build", "run", "work", "probe", "device"))
    parser.add_argument("cubin", type=Path)
    parser.add_argument("--cases", type=int, default=4000)
    parser.add_argument("--family", choices=tuple(FAMILIES), default="tiles")
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--parts", default="load,store", help="what work does of each case")
    parser.add_argument("--probes", action="store_true")
    parser.add_argument("--name", choices=tuple(PROBES), help="what probe does")
    parser.add_argument("--record", type=Path, help="where to write the figures as JSON")
    args = parser.parse_args()
    match args.action:
        case "build":
            build(args.cubin)
        case "work":
            work(args.cubin, args.family, args.seed, range(args.first, args.first + args.cases), args.parts)
        case "probe":
            PROBES[args.name](Device(args.cubin))
        case "device":
            driver = Device(args.cubin).driver
            print(f"{driver.device}, CUDA driver API {driver.version}")
        case _:
            return run(args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
