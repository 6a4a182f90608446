"""Kernels that rely on promises, by the evaluator of Tile IR: each element stored once, and what NumPy stores."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.dialects.builtin import ArrayAttr

from support.indexed import CASES, Arrays
from support.slow import rest_slow
from support.tile_evaluator import evaluate
from tilewright.base.dtypes import DTYPES
from tilewright.base.expr import Const
from tilewright.lang.signature import Signature
from tilewright.tile import dialect as tile
from tilewright.tile.tracer import trace

SHORT = {"float32": "f32", "int32": "i32", "int64": "i64"}


def run(name: str, arrays: Arrays) -> Arrays:
    kernel = CASES[name].kernel
    module = trace(kernel, Signature.of({n: DTYPES[SHORT[a.dtype.name]] for n, a in arrays.items()}))
    return evaluate(module, arrays)


@pytest.mark.parametrize(
    "name", ["scatter_rows", "append_to_pages", "scatter_pairs", "scaled_groups", "numbered_groups"]
)
def test_each_element_is_stored_once(name: str) -> None:
    arrays = CASES[name].draw(np.random.default_rng(5))
    wanted = {n: np.asarray(a) for n, a in CASES[name].expected(arrays).items()}
    stores = run(name, arrays)
    for key, array in wanted.items():
        np.testing.assert_array_equal(arrays[key], array)
        assert stores[key].max() == 1


@pytest.mark.parametrize("seed", rest_slow(range(40), 6))
def test_tiles_of_groups_share_out_the_rows(seed: int) -> None:
    """Any lengths, 0 and more than a tile among them; with ``rest`` every row is stored to."""
    rng = np.random.default_rng(seed)
    groups, rows = int(rng.integers(1, 9)), int(rng.integers(0, 70))
    inner = np.sort(rng.integers(0, rows + 1, groups))
    offsets = np.concatenate([[0], np.where(rng.random(groups) < 0.3, np.maximum.accumulate(inner), inner)])
    x = np.arange(rows, dtype=np.float32)
    arrays: Arrays = {"offsets": offsets.astype(np.int64), "x": x, "y": np.full(rows, 7, np.float32)}
    kept = run("numbered_groups", arrays)["y"]
    np.testing.assert_array_equal(kept, (np.arange(rows) < offsets[-1]).astype(np.int64))
    wide: Arrays = {
        "offsets": offsets.astype(np.int32),
        "scale": np.arange(1, groups + 1).astype(np.float32),
        "x": np.ones((rows, 3), np.float32),
        "y": np.full((rows, 3), 7, np.float32),
    }
    np.testing.assert_array_equal(run("scaled_groups", wide)["y"], np.ones((rows, 3), np.int64))
    lengths = np.diff(offsets)
    np.testing.assert_array_equal(
        wide["y"][:, 0], np.r_[np.repeat(np.arange(1, groups + 1), lengths), np.zeros(rows - offsets[-1])]
    )


def test_offsets_that_descend_store_twice() -> None:
    """Why the promise is needed."""
    arrays: Arrays = {
        "offsets": np.array([0, 9, 4, 12]),
        "x": np.zeros(12, np.float32),
        "y": np.zeros(12, np.float32),
    }
    assert run("numbered_groups", arrays)["y"].max() == 2


@pytest.mark.parametrize("groups", [1, 5, 16])
def test_programs_without_rows_stand_last(groups: int) -> None:
    """As many programs as there are tiles store all rows, and one less does not."""
    rng = np.random.default_rng(groups)
    rows = 4 * groups + 3
    offsets = np.concatenate([[0], np.sort(rng.integers(0, rows + 1, groups - 1)), [rows]])
    tiles = int((-(-np.diff(offsets) // 4)).sum())
    types = {"offsets": DTYPES["i64"], "x": DTYPES["f32"], "y": DTYPES["f32"]}
    module = trace(CASES["numbered_groups"].kernel, Signature.of(types))
    kernel = next(op for op in module.walk() if isinstance(op, tile.Kernel))
    for programs in (tiles, tiles - 1):
        kernel.attributes["grid"] = ArrayAttr([tile.ExprAttr.of(Const(programs))])
        arrays: Arrays = {"offsets": offsets, "x": np.zeros(rows, np.float32), "y": np.zeros(rows, np.float32)}
        stores = evaluate(module, arrays)["y"]
        assert bool((stores == 1).all()) is (programs == tiles)
