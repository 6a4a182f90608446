"""The price model against recorded measurements, and the kernels that measure it."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tilewright.base.dtypes import bf16, f32
from tilewright.codegen.assemble import assemble
from tilewright.hw.copy_prices import CopyMethod, shifted_read_cycles, tensor_copy_cycles, thread_copy_cycles
from tilewright.legal.facts import Facts
from tilewright.legal.prices import Workload
from tilewright.legal.repairs import Change, repairs_of
from tilewright.legal.tma import TileAccess

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

import tma_prices

ROOT = Path(__file__).parents[2]
RECORDED = json.loads((ROOT / "benchmarks" / "results" / "repair_prices.json").read_text())["runs"]
FIELDS = tma_prices.Sample.__dataclass_fields__


RUNS = pytest.mark.parametrize("run", RECORDED, ids=lambda run: f"seed {run['seed']}")
THREADS = (Change.CP_ASYNC.name, Change.LOADS.name)


def priced(row: dict[str, Any]) -> dict[str, float]:
    """Predicted extra seconds by way of one access that was measured."""
    values = {name: row[name] for name in FIELDS}
    sample = tma_prices.Sample(**{**values, "tile": tuple(values["tile"])})
    return {made.name: cost for made, cost in tma_prices.ways(sample)}


@RUNS
def test_the_sign_of_measured_prices_is_predicted(run: dict[str, Any]) -> None:
    """At least nine in ten, over every access that was measured; most differ by microseconds."""
    rows = run["comparisons"]
    assert len(rows) >= 20
    right = 0
    for row in rows:
        costs = priced(row)
        right += (costs[row["repair"]] < costs[row["fallback"]]) == (row["measured_us"] < 0)
    assert right >= 0.9 * len(rows)


@RUNS
def test_repairs_that_are_clearly_slower_than_threads_are_predicted_so(run: dict[str, Any]) -> None:
    """Whatever the other repairs of the access: by a tenth or more against cp.async, never priced the wrong way."""
    judged = 0
    for row in run["comparisons"]:
        costs, spent = priced(row), row["ways_us"]
        fallback = Change.CP_ASYNC.name
        for name in spent.keys() - set(THREADS):
            if fallback in spent and spent[name] > 1.1 * spent[fallback]:
                judged += 1
                assert costs[name] > costs[fallback], (name, row)
    assert judged


def test_readers_of_shifted_rows_have_a_price() -> None:
    """They load elements, and the shift of the row where there are several, against 16 bytes at a time."""
    alike, mixed = (shifted_read_cycles(64 * 128, 4, classes) for classes in (1, 4))
    copied = thread_copy_cycles(CopyMethod.CP_ASYNC, 64 * 128 * 4, 4)
    assert tensor_copy_cycles(64, 528, 4) < alike < copied < mixed
    assert shifted_read_cycles(64 * 128, 2, 1) < alike


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
    odd = {r.fields.change: r.cost for r in repairs_of(replace(access, shape=(8192, 4101), strides=(4101, 1)), Facts())}
    assert odd[Change.PHASES] < odd[Change.LOADS]  # eight maps, but threads copy single elements


@pytest.mark.parametrize("change", ["PHASES", "RESHAPE", "CP_ASYNC", "LOADS"])
def test_the_measuring_kernels_compile(change: str) -> None:
    sample = tma_prices.Sample("jagged", f32.name, 1000, 35, 35, (64, 35), "", 1)
    made = {w.name: w for w, _ in tma_prices.ways(sample)}[change]
    text = "".join(f"#define {name} {value}\n" for name, value in made.macros.items())
    assert assemble(text + tma_prices.SOURCE.read_text(), "sm_90a", "tma_prices").cubin[:4] == b"\x7fELF"
