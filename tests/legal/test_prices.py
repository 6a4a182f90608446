"""The price model against recorded measurements, and the kernels that measure it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tilewright.base.dtypes import bf16, f32
from tilewright.codegen.assemble import assemble
from tilewright.hw.copy_prices import CopyMethod, tensor_copy_cycles, thread_copy_cycles
from tilewright.legal.facts import Facts
from tilewright.legal.prices import Workload
from tilewright.legal.repairs import Change, repairs_of
from tilewright.legal.tma import TileAccess

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

import tma_prices

ROOT = Path(__file__).parents[2]
RECORDED = json.loads((ROOT / "benchmarks" / "results" / "repair_prices.json").read_text())["runs"]
FIELDS = tma_prices.Sample.__dataclass_fields__


@pytest.mark.parametrize("run", RECORDED, ids=lambda run: f"seed {run['seed']}")
def test_the_sign_of_measured_prices_is_predicted(run: dict[str, list[dict[str, object]]]) -> None:
    """At least nine in ten, over every access that was measured; most differ by microseconds."""
    rows = run["comparisons"]
    assert len(rows) >= 20
    right = 0
    for row in rows:
        values = {name: row[name] for name in FIELDS}
        sample = tma_prices.Sample(**{**values, "tile": tuple(values["tile"])})  # type: ignore[arg-type]
        priced = {made.name: cost for made, cost in tma_prices.ways(sample)}
        predicted = priced[str(row["repair"])] - priced[str(row["fallback"])]
        right += (predicted < 0) == (float(str(row["measured_us"])) < 0)
    assert right >= 0.9 * len(rows)


def test_rates_follow_what_was_measured() -> None:
    """Cycles of a tile of 128 rows of 128 bytes from the L2 cache, within a sixth of the recorded times."""
    case = next(
        c for c in RECORDED[0]["rates"] if c["sample"]["family"] == "from L2" and c["sample"]["tile"] == [128, 64]
    )
    tiles = 8192 * 1024 * 2 // (16 << 10) * 32 / 132
    measured = {name: (seconds - 2.4e-6) * 1.98e9 / tiles for name, seconds in case["seconds"].items()}
    for width in (128, 64, 32, 16):
        predicted = tensor_copy_cycles(128 * 128 // width, width, 128 // width)
        assert predicted == pytest.approx(measured[f"rows of {width}"], rel=1 / 6)
    for method, vectors in ((CopyMethod.CP_ASYNC, (16, 8, 4)), (CopyMethod.LOADS, (16, 8, 4, 2, 1))):
        for vector in vectors:
            predicted = thread_copy_cycles(method, 16 << 10, vector)
            assert predicted == pytest.approx(measured[f"{method.name} {vector}"], rel=1 / 6)


def test_memory_decides_between_staging_and_threads() -> None:
    access = TileAccess(bf16, (8192, 4100), (4100, 1), 0, (128, 64), swizzles=())
    once, often = (
        {r.fields.change: r.cost for r in repairs_of(access, Facts(), workload=Workload(reuse=n))} for n in (1, 64)
    )
    assert once[Change.CP_ASYNC] < once[Change.PAD]
    assert often[Change.PAD] < often[Change.CP_ASYNC]
    assert often[Change.PHASES] < often[Change.LOADS]


@pytest.mark.parametrize("change", ["PHASES", "RESHAPE", "CP_ASYNC", "LOADS"])
def test_the_measuring_kernels_compile(change: str) -> None:
    sample = tma_prices.Sample("jagged", f32.name, 1000, 35, 35, (64, 35), "", 1)
    made = {w.name: w for w, _ in tma_prices.ways(sample)}[change]
    text = "".join(f"#define {name} {value}\n" for name, value in made.macros.items())
    assert assemble(text + tma_prices.SOURCE.read_text(), "sm_90a", "tma_prices").cubin[:4] == b"\x7fELF"
