"""Predicted prices of repairs against measured ones: tiles brought into shared memory by tensor copies or threads.

``python tools/tma_prices.py build FOLDER`` samples accesses, plans their repairs and fallbacks and compiles a kernel
for each (NVRTC, no GPU); ``... run FOLDER TIMES.json`` times them (numpy, an NVIDIA driver, a Hopper GPU);
``... compare FOLDER TIMES.json --record FILE.json`` sets the predictions of the price model beside the times.

Every way of one access is timed in one process in rotated order, each launch after a flush of the L2 cache, and the
median is kept; each must sum up every byte of every tile. A repair that copies the tensor first is timed with that
copy. Threads read the tiles, so copies by threads need no proxy fence here, as they would before wgmma. ``rates`` are
plain cases from which the price model's figures are taken; ``accesses`` are what it is judged on.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.base.dtypes import DTYPES
from tilewright.base.expr import Expr
from tilewright.hw.copy_prices import CopyMethod
from tilewright.hw.target import SM90A
from tilewright.hw.tensormap import PATTERNS, Swizzle
from tilewright.legal.facts import Facts
from tilewright.legal.misaligned_pitch import phases
from tilewright.legal.prices import Workload
from tilewright.legal.repair_types import Change, Remedy
from tilewright.legal.repairs import repairs_of
from tilewright.legal.smem_tile import SmemTile
from tilewright.legal.tma import TensorMapPlan, TileAccess, candidates

SOURCE = Path(__file__).with_suffix(".cu")
RING_BYTES, WIDE_RING_BYTES, MAX_STAGES = 100 << 10, 200 << 10, 16
METHODS = {CopyMethod.TENSOR_COPY: 0, CopyMethod.CP_ASYNC: 1, CopyMethod.LOADS: 2}
NOT_TIMED = (Change.CONDITION, Change.SPLIT_COLUMNS)
"""A change of the launch alone, and mixed copies, for which there is no kernel here."""


@dataclass(frozen=True)
class Sample:
    """One access of a dense-row matrix: ``pitch`` elements from row to row, each tile brought in ``reuse`` times."""

    family: str
    dtype: str
    rows: int
    columns: int
    pitch: int
    tile: tuple[int, int]
    swizzle: str
    reuse: int

    @property
    def access(self) -> TileAccess:
        """As the legality rules ask for it; the address is known to be aligned."""
        wanted = (Swizzle[self.swizzle],) if self.swizzle else ()
        kind = DTYPES[self.dtype]
        return TileAccess(kind, (self.rows, self.columns), (self.pitch, 1), 0, self.tile, swizzles=wanted)

    @property
    def workload(self) -> Workload:
        """For prices."""
        return Workload(reuse=self.reuse)


@dataclass(frozen=True)
class Way:
    """One way to bring the tiles of a sample into shared memory, as the kernel is given it."""

    name: str
    macros: dict[str, int]
    maps: tuple[dict[str, list[int]], ...] = ()
    """Arguments of the encode calls, and the boxes of a tile, which are those of the first in all."""
    staged_pitch_bytes: int = 0
    """Rows of the copy made first; 0 for none."""

    @property
    def cubin(self) -> str:
        """Name of the compiled kernel."""
        return "_".join(f"{k[:2].lower()}{k.rsplit('_')[-1][:1].lower()}{v}" for k, v in sorted(self.macros.items()))


def samples(seed: int) -> Iterator[Sample]:
    """Accesses that need a repair, or that threads could do as well: rows of jagged batches, operands with odd pitches,
    wide boxes, narrow rows, rows no swizzle fits."""
    rng = np.random.default_rng(seed)

    def pick(*values: int) -> int:
        return int(rng.choice(values))

    for _ in range(8):
        columns = pick(3, 35, 99, 143, 195, 323)
        rows = int(2 ** rng.uniform(13, 18))
        yield Sample("jagged", "f32", rows, columns, columns, (64, min(columns, 128)), "", 1)
    for _ in range(10):
        dtype = str(rng.choice(("bf16", "bf16", "f16", "f32", "e4m3")))
        unit = 16 // DTYPES[dtype].bytes
        rows, columns = (
            pick(1024, 2048, 4096, 8192),
            int(rng.integers(1000, 8192)) // unit * unit + pick(*range(1, unit)),
        )
        tile = (128, 128 // DTYPES[dtype].bytes)
        yield Sample("odd pitch", dtype, rows, columns, columns, tile, "B128", pick(1, 2, 4, 8, 16, 32))
    for _ in range(4):
        columns = 64 * int(rng.integers(16, 64))
        yield Sample(
            "wide box", "bf16", pick(2048, 8192), columns, columns, (64, pick(128, 256)), "B128", pick(1, 8, 32)
        )
    for _ in range(3):
        columns = pick(36, 60, 100, 124)
        rows = int(2 ** rng.uniform(13, 18))
        yield Sample("narrow rows", "bf16", rows, columns, -(-columns // 8) * 8, (128, columns), "", pick(1, 4))
    for _ in range(3):
        columns = 96 * int(rng.integers(8, 32))
        yield Sample("no swizzle", "bf16", pick(2048, 8192), columns, columns, (128, 96), "B128", pick(1, 8))
    for _ in range(12):
        columns = pick(143, 195, 323)
        yield Sample("odd rows", "f32", int(2 ** rng.uniform(4, 18)), columns, columns, (64, 128), "", 1)


def ways(sample: Sample) -> Iterator[tuple[Way, float]]:
    """Every repair and fallback there is a kernel for, with its predicted extra seconds."""
    for repair in repairs_of(sample.access, Facts(), workload=sample.workload):
        remedy = repair.fields
        if remedy.change not in NOT_TIMED:
            yield way(remedy, sample), repair.cost


def way(remedy: Remedy, sample: Sample) -> Way:
    """The kernel's arguments for one remedy."""
    if remedy.plan is None:
        assert remedy.threads is not None
        threads = remedy.threads
        return by_threads(remedy.change.name, threads.method, threads.vector_bytes, threads.shared, sample.tile)
    staged = remedy.staging.strides[0].constant if remedy.staging else 0
    assert staged is not None
    size, shared = sample.access.dtype.bytes, remedy.plan.shared
    made = by_map(remedy.change.name, remedy.plan, sample, staged * size)
    asked = -(-sample.tile[1] * size // 16) * 16  # what fills up the last 16 bytes is zero: tiles begin at 16 bytes
    if remedy.change is Change.WIDEN and asked < shared.panels * shared.row_bytes:
        return replace(made, macros=made.macros | {"ASKED_BYTES": asked, "TILE_ROWS": sample.tile[0]})
    if remedy.phases is None:
        return made
    classes = remedy.phases.classes
    macros = {
        "CLASSES": len(classes), "ELEMENT": size, "TILE_ROWS": sample.tile[0], "TILE_ROW_BYTES": sample.tile[1] * size,
        "PANEL_ROW_BYTES": shared.row_bytes, "PANEL_BYTES": shared.panel_bytes, "CLASS_BYTES": shared.size_bytes,
        "TX_BYTES": remedy.plan.tx_bytes * len(classes),
    }  # fmt: skip
    maps = tuple(
        arguments(part.plan, sample, int(part.address.evaluate({})), int(part.shift.evaluate({})) * size)
        for part in classes
    )
    return replace(made, macros=made.macros | macros | ring(remedy.phases.size_bytes), maps=maps)


def by_threads(name: str, method: CopyMethod, vector: int, shared: SmemTile, tile: tuple[int, int]) -> Way:
    """Threads that copy vectors of ``vector`` bytes."""
    row_bytes = tile[1] * shared.element_bytes
    macros: dict[str, int] = {
        "METHOD": METHODS[method], "VEC": vector, "TILE_ROWS": tile[0], "TILE_ROW_BYTES": row_bytes,
        "TILE_STEP_BYTES": row_bytes, "PANEL_ROW_BYTES": shared.row_bytes, "PANEL_BYTES": shared.panel_bytes,
        "SWIZZLE_MASK": swizzle_mask(shared), "CLASSES": 1, "ELEMENT": 0, "ASKED_BYTES": 0,
    }  # fmt: skip
    return Way(name, macros | ring(shared.size_bytes))


def by_map(name: str, plan: TensorMapPlan, sample: Sample, staged_pitch_bytes: int = 0) -> Way:
    """One thread that issues the plan's boxes."""
    shared = plan.shared
    macros: dict[str, int] = {
        "METHOD": 0, "RANK": plan.rank, "BOXES": len(plan.boxes), "TX_BYTES": plan.tx_bytes, "CLASSES": 1,
        "ELEMENT": 0, "CLASS_BYTES": 0, "TILE_ROWS": 1, "TILE_ROW_BYTES": 1, "PANEL_ROW_BYTES": shared.row_bytes,
        "PANEL_BYTES": shared.panel_bytes, "SWIZZLE_MASK": swizzle_mask(shared), "ASKED_BYTES": 0,
    }  # fmt: skip
    return Way(name, macros | ring(plan.shared.size_bytes), (arguments(plan, sample),), staged_pitch_bytes)


def arguments(plan: TensorMapPlan, sample: Sample, address: int = 0, shift: int = 0) -> dict[str, list[int]]:
    """One map, ``address`` bytes into the tensor, and a tile's boxes, whose rows lie ``shift`` bytes to the right."""
    return {
        "data_type": [int(plan.data_type)],
        "address": [address],
        "shift": [shift],
        "dims": numbers(plan.dims),
        "strides": numbers(plan.strides),
        "box": list(plan.box),
        "flags": [plan.interleave, plan.swizzle, plan.l2_promotion, plan.oob_fill],
        "factors": [factor for c in plan.coordinates for factor in per_tile(c, sample)],
        "starts": [s for box in plan.boxes for s in box.start],
        "offsets": [box.shared_offset_bytes for box in plan.boxes],
    }


def swizzle_mask(shared: SmemTile) -> int:
    """How many bits of the row go into the place of 16 bytes."""
    return max(PATTERNS[shared.swizzle].span_bytes // 16 - 1, 0)


def ring(size: int) -> dict[str, int]:
    """Stages of the ring for tiles of ``size`` bytes; two CTAs share an SM unless the tiles are large."""
    stage = -(-size // 1024) * 1024
    room = RING_BYTES if stage <= RING_BYTES // 2 else WIDE_RING_BYTES
    return {
        "STAGES": min(room // stage, MAX_STAGES),
        "STAGE_BYTES": stage,
        "USED_BYTES": -(-size // 16) * 16,
    }


def numbers(values: Sequence[Expr]) -> list[int]:
    return [int(v.evaluate({})) for v in values]


def per_tile(coordinate: Expr, sample: Sample) -> tuple[int, int]:
    """How far a coordinate moves from tile to tile along both axes."""
    firsts = ((0, 0), (sample.tile[0], 0), (0, sample.tile[1]))
    at = [int(coordinate.evaluate({"$index0": a, "$index1": b})) for a, b in firsts]
    assert at[0] == 0, coordinate
    return at[1], at[2]


def rates() -> Iterator[tuple[Sample, Way]]:
    """Plain ways over one aligned tensor: from the L2 cache or memory, large and small tiles, by vector and row."""
    places = (("from L2", 8192, 1024, 32), ("from memory", 65536, 2048, 1))
    for (place, rows, columns, reuse), height in product(places, (128, 16)):
        sample = Sample(place, "bf16", rows, columns, columns, (height, 64), "B128", reuse)
        for swizzle, width in (("B128", 128), ("B64", 64), ("B32", 32), ("NONE", 16)):
            asked = TileAccess(
                DTYPES["bf16"],
                (rows, columns),
                (columns, 1),
                0,
                (height, 64),
                swizzles=(Swizzle[swizzle],),
                panel_bytes=width,
            )
            yield sample, by_map(f"rows of {width}", candidates(asked, limit=1).plans[0], sample)
        shared = candidates(sample.access, limit=1).plans[0].shared
        for method, vectors in ((CopyMethod.CP_ASYNC, (16, 8, 4)), (CopyMethod.LOADS, (16, 8, 4, 2, 1))):
            for vector in vectors:
                yield sample, by_threads(f"{method.name} {vector}", method, vector, shared, (height, 64))
    for dtype, pitch, tile in (
        ("f32", 1024, (64, 128)),
        ("f32", 1027, (64, 128)),
        ("f32", 1024, (128, 32)),
        ("f32", 1027, (128, 32)),
        ("bf16", 1024, (128, 64)),
        ("bf16", 1025, (128, 64)),
        ("e4m3", 1024, (128, 128)),
        ("e4m3", 1025, (128, 128)),
    ):
        sample = Sample("shifted rows from L2", dtype, 4096, 1024, pitch, tile, "", 32)
        found = phases(sample.access, 1, Facts(), SM90A)
        assert found is not None
        shifted = Remedy(Change.PHASES, found.classes[0].plan, tile=tile, phases=found)
        yield sample, way(shifted, sample)
    for width in (144, 160, 256, 272, 400, 512, 528, 640, 1024):
        sample = Sample("unswizzled rows from L2", "f32", 4096, 2 * width, 2 * width, (64, width // 4), "NONE", 32)
        yield sample, by_map(f"rows of {width}", candidates(sample.access, limit=1).plans[0], sample)
    for rows, columns, dtype in (
        (512, 1001, "bf16"),
        (4096, 4100, "bf16"),
        (16384, 7999, "bf16"),
        (16384, 8001, "e4m3"),
    ):
        sample = Sample("staging", dtype, rows, columns, columns, (128, 128 // DTYPES[dtype].bytes), "B128", 1)
        remedies = {r.fields.change: r.fields for r in repairs_of(sample.access, Facts())}
        yield sample, way(remedies[Change.PAD], sample)


def build(folder: Path, seed: int) -> None:
    """Write what is run, and compile every kernel."""
    from tilewright.codegen.assemble import assemble  # noqa: PLC0415  the machine that runs has no compiler

    folder.mkdir(parents=True, exist_ok=True)
    cases: list[dict[str, Any]] = []
    for sample in samples(seed):
        cases.append({"kind": "access", "sample": asdict(sample), "ways": [asdict(w) for w, _ in ways(sample)]})
    grouped: dict[Sample, list[Way]] = {}
    for sample, chosen in rates():
        grouped.setdefault(sample, []).append(chosen)
    for sample, chosen in grouped.items():
        cases.append({"kind": "rate", "sample": asdict(sample), "ways": [asdict(w) for w in chosen]})
    size = 0
    for case, chosen in product(cases, range(max(len(c["ways"]) for c in cases))):
        if chosen >= len(case["ways"]):
            continue
        made = Way(**case["ways"][chosen])
        case["ways"][chosen]["cubin"] = made.cubin
        target = folder / f"{made.cubin}.cubin"
        if not target.exists():
            text = "".join(f"#define {k} {v}\n" for k, v in made.macros.items())
            target.write_bytes(assemble(text + SOURCE.read_text(), "sm_90a", "tma_prices").cubin)
        size += target.stat().st_size
    (folder / "cases.json").write_text(json.dumps({"seed": seed, "cases": cases}))
    print(f"{len(cases)} cases, {sum(len(c['ways']) for c in cases)} ways, {size} bytes in {folder}")


def compare(folder: Path, times: Path, record: Path | None) -> int:
    """Predictions beside times: does the repair beat the fallback where the model says so?"""
    timed = json.loads(times.read_text())
    seed = json.loads((folder / "cases.json").read_text())["seed"]
    if any(case["wrong"] for case in timed["cases"]):
        raise SystemExit(f"wrong sums: {[(c['sample'], c['wrong']) for c in timed['cases'] if c['wrong']]}")
    measured = {json.dumps(c["sample"], sort_keys=True): c["seconds"] for c in timed["cases"] if c["kind"] == "access"}
    rows: list[dict[str, Any]] = []
    pairs: list[tuple[float, float]] = []
    for sample in samples(seed):
        seconds = measured[json.dumps(json.loads(json.dumps(asdict(sample))), sort_keys=True)]
        priced = {w.name: cost for w, cost in ways(sample) if w.name in seconds}
        mapped = [w for w in priced if w not in (Change.CP_ASYNC.name, Change.LOADS.name)]
        threads = [w for w in priced if w not in mapped]
        pairs += [(priced[a] - priced[b], seconds[a] - seconds[b]) for a in mapped for b in threads]
        if not mapped:
            continue
        repair, fallback = min(mapped, key=priced.__getitem__), min(threads, key=priced.__getitem__)
        predicted, found = priced[repair] - priced[fallback], seconds[repair] - seconds[fallback]
        rows.append({
            **asdict(sample), "repair": repair, "fallback": fallback, "predicted_us": round(predicted * 1e6, 2),
            "measured_us": round(found * 1e6, 2), "repair_us": round(seconds[repair] * 1e6, 2),
            "fallback_us": round(seconds[fallback] * 1e6, 2), "right": (predicted < 0) == (found < 0),
            "ways_us": {name: round(spent * 1e6, 2) for name, spent in seconds.items()},
        })  # fmt: skip
    right = sum(row["right"] for row in rows)
    every = sum((p < 0) == (m < 0) for p, m in pairs)
    for row in rows:
        shape = f"{row['rows']:6} x {row['columns']:5} {row['dtype']:5} reuse {row['reuse']:2}"
        sides = ", ".join(f"{row[side]:9} {row[f'{side}_us']:8} us" for side in ("repair", "fallback"))
        verdict = "" if row["right"] else "  WRONG"
        print(f"{row['family']:11} {shape}: {sides}: {row['measured_us']} us, predicted {row['predicted_us']}{verdict}")
    print(f"sign right for {right} of {len(rows)} accesses, {every} of {len(pairs)} pairs of a repair and a fallback")
    if record:
        runs = json.loads(record.read_text())["runs"] if record.exists() else []
        runs = [r for r in runs if r["seed"] != seed]
        facts = {k: v for k, v in timed.items() if k != "cases"}
        runs.append({
            "seed": seed, **facts, "accesses": len(rows), "sign_right": right, "pairs": len(pairs),
            "pairs_right": every, "comparisons": rows, "rates": [c for c in timed["cases"] if c["kind"] == "rate"],
        })  # fmt: skip
        head = {"command": "tools/tma_prices.py build FOLDER; run FOLDER TIMES.json (on the device); compare"}
        runs.sort(key=lambda r: r["seed"])
        record.write_text(json.dumps(head)[:-1] + ', "runs": [\n' + ",\n".join(map(run_text, runs)) + "\n]}\n")
    return 0


def run_text(run: dict[str, Any]) -> str:
    """A run as JSON, a line for each case."""
    lists = {name: ",\n  ".join(map(json.dumps, run[name])) for name in ("comparisons", "rates")}
    head = json.dumps({k: v for k, v in run.items() if k not in lists})[:-1]
    return head + "".join(f',\n "{name}": [\n  {text}\n ]' for name, text in lists.items()) + "}"


def main() -> int:
    """Build, run or compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=("build", "run", "compare"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("times", type=Path, nargs="?")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--record", type=Path, help="where compare writes its figures as JSON")
    args = parser.parse_args()
    match args.action:
        case "build":
            build(args.folder, args.seed)
        case "compare":
            return compare(args.folder, args.times, args.record)
        case _:
            from tma_prices_device import run  # noqa: PLC0415  the machine that builds has no driver

            run(args.folder, args.times)
    return 0


if __name__ == "__main__":
    sys.exit(main())
