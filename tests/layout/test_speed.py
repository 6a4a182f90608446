"""Speed of the layout algebra (pytest-benchmark). By default each case runs once, as a check.

    python -m pytest tests/layout/test_speed.py --benchmark-enable --benchmark-json=out.json

Every call starts from fresh objects: nothing may be remembered from one to the next.
"""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Callable
from itertools import product as cartesian
from pathlib import Path
from typing import Any

import pytest

from support.layout_oracle import flat, table
from tilewright.layout import cute
from tilewright.layout.cute import CuteLayout
from tilewright.layout.equality import Equal, equal
from tilewright.layout.f2 import F2Layout
from tilewright.layout.library import cute_algebra, cute_ops
from tilewright.layout.library.cute_algebra import composition
from tilewright.layout.swizzle import ComposedLayout, CuteSwizzle

US = 1e-6


def bijection(seed: int, bits: int = 16) -> tuple[Any, Any, tuple[int, ...]]:
    """Axes and columns of a random invertible layout: dense columns, the worst case."""
    rng = random.Random(seed)
    columns = [1 << i for i in range(bits)]
    for _ in range(4 * bits):
        i, j = rng.sample(range(bits), 2)
        columns[i] ^= columns[j]
    return (("register", 6), ("lane", 5), ("warp", 5)), (("dim0", 8), ("dim1", 8)), tuple(columns)


def median(benchmark: Any, call: Callable[[], Any]) -> float:
    benchmark(call)
    return benchmark.stats.stats.median if benchmark.enabled else 0.0


def test_f2_compose_16_bits(benchmark: Any) -> None:
    ins, outs, columns = bijection(1)
    _, _, other = bijection(2)
    seconds = median(benchmark, lambda: F2Layout(ins, outs, columns).compose(F2Layout(outs, outs, other)))
    assert seconds <= 100 * US


def test_f2_invert_16_bits(benchmark: Any) -> None:
    ins, outs, columns = bijection(1)
    assert median(benchmark, lambda: F2Layout(ins, outs, columns).invert()) <= 100 * US


def test_cute_composition_of_rank_4(benchmark: Any) -> None:
    def call() -> CuteLayout:
        a = CuteLayout((8, 16, 4, 8), (4, 128, 1, 32))
        return composition(a, CuteLayout((4, 8, 2, 16), (8, 128, 1, 4)), extrapolate=True)

    assert median(benchmark, call) <= 100 * US


def test_equality_of_a_swizzled_tile(benchmark: Any) -> None:
    """128 x 256 elements of 2 bytes with the 128 B swizzle: TMA's panels against CuTe's tile_to_shape."""

    def call() -> Any:
        panels = ComposedLayout(CuteSwizzle(3, 3, 3), 0, CuteLayout((128, (64, 4)), (64, (1, 8192))))
        atoms = ComposedLayout(CuteSwizzle(3, 3, 3), 0, CuteLayout(((8, 16), (64, 4)), ((64, 512), (1, 8192))))
        return equal(panels, atoms)

    assert isinstance(call(), Equal)
    assert median(benchmark, call) <= 1000 * US


# -- against enumeration ----------------------------------------------------------------------------------------------

DATA = json.loads((Path(__file__).parents[1] / "data" / "cute_layout_cases.json").read_text())
OPERATIONS: dict[str, Callable[..., CuteLayout]] = {
    "coalesce": cute.coalesce,
    "composition": composition,
    "complement": cute_algebra.complement,
    "right_inverse": cute_algebra.right_inverse,
    "left_inverse": cute_algebra.left_inverse,
    "logical_divide": cute_ops.logical_divide,
    "logical_product": cute_ops.logical_product,
}


def modes_of(row: list[int]) -> list[tuple[int, int]]:
    """Fit one flat layout to a table: what an implementation that enumerates has to do."""
    modes: list[tuple[int, int]] = []
    while len(row) > 1:
        run = 1
        while run < len(row) and row[run] == run * row[1]:
            run += 1
        modes.append((run, row[1]))
        row = row[::run]
    return modes


def enumerated(op: str, operands: list[Any]) -> Any:
    """The same operation by tables; shares no code with the algebra."""
    first = table(operands[0]["shape"], operands[0]["stride"])
    match op:
        case "coalesce":
            return modes_of(first)
        case "composition":
            second = table(operands[1]["shape"], operands[1]["stride"])
            offsets = [first[x] for x in second]
            place, parts = 1, []
            for extent in flat(operands[1]["shape"]):
                parts.append(modes_of(offsets[: place * extent : place]))
                place *= extent
            return parts
        case "complement":
            return complement_table(first, operands[1] if len(operands) > 1 else 1)
        case "right_inverse":
            where = {x: i for i, x in reversed(list(enumerate(first)))}
            found: list[int] = []
            while len(found) in where:
                found.append(where[len(found)])
            return modes_of(found)
        case "left_inverse":
            # the table alone; filling the offsets that are not reached would only take longer
            return [first.index(x) if x in set(first) else None for x in range(max(first) + 1)]
        case "logical_divide":
            tile = table(operands[1]["shape"], operands[1]["stride"])
            rest = complement_table(tile, len(first))
            return [modes_of([first[x] for x in tile]), modes_of([first[x] for x in rest if x < len(first)])]
        case _:
            tile = table(operands[1]["shape"], operands[1]["stride"])
            room = complement_table(first, len(first) * (max(tile) + 1))
            return [modes_of(first), modes_of([room[x] for x in tile])]


def complement_table(offsets: list[int], cosize: int) -> list[int]:
    """Greedily the least offsets whose translates of the layout are disjoint."""
    distinct = set(offsets)
    taken: set[int] = set()
    found: list[int] = []
    for start in range(max(cosize, 1)):
        shifted = {start + x for x in distinct}
        if not shifted & taken:
            found.append(start)
            taken |= shifted
    return found


def cases() -> list[tuple[str, list[Any]]]:
    """Operation and operands, the layouts as nested tuples: what both implementations start from."""
    return [
        (c["op"], [{k: tuples(v) for k, v in o.items()} if isinstance(o, dict) else o for o in c["operands"]])
        for c in DATA["cases"] + DATA["cpp_cases"]
        if c["op"] in OPERATIONS
        and not c.get("out_of_domain")
        and all(isinstance(o, dict) and "shape" in o for o in c["operands"][: 1 if c["op"] == "complement" else 2])
    ]


def tuples(value: Any) -> Any:
    return tuple(map(tuples, value)) if isinstance(value, list) else value


def seconds_of(call: Callable[[], Any]) -> float:
    best = math.inf
    for _ in range(5):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best


def geomean_speedup() -> tuple[float, int]:
    """Geometric mean over the cases of (time of the tables) / (time of the algebra), operands built afresh in both."""
    logs: list[float] = []
    for op, operands in cases():

        def algebra(op: str = op, operands: list[Any] = operands) -> CuteLayout:
            built = [CuteLayout(o["shape"], o["stride"]) if isinstance(o, dict) else o for o in operands]
            return OPERATIONS[op](*built)

        def tables(op: str = op, operands: list[Any] = operands) -> Any:
            return enumerated(op, operands)

        logs.append(math.log(seconds_of(tables) / seconds_of(algebra)))
    return math.exp(sum(logs) / len(logs)), len(logs)


def test_the_algebra_beats_enumeration(benchmark: Any) -> None:
    if not benchmark.enabled:
        pytest.skip("timing needs --benchmark-enable")
    found: list[tuple[float, int]] = []
    benchmark.pedantic(lambda: found.append(geomean_speedup()), rounds=1, iterations=1)
    speedup, count = found[0]
    benchmark.extra_info.update(geomean_speedup=round(speedup, 2), cases=count)
    assert speedup >= 3


def test_the_enumerator_agrees_on_small_cases() -> None:
    for a, b in cartesian([CuteLayout((4, 8), (8, 1)), CuteLayout((2, 2, 4), (1, 8, 2))], [CuteLayout(4, 2)]):
        operands = [{"shape": x.shape, "stride": x.stride} for x in (a, b)]
        found = enumerated("composition", operands)
        assert found == [modes_of(composition(a, b).offsets())]
