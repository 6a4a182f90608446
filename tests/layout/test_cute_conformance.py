"""Every case of tests/data/cute_layout_cases.json: equal as written, or a listed deviation with its proof.

The oracle here is enumeration over plain tuples; it shares no code with ``tilewright.layout``.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

import pytest

from support.attempts import attempt
from support.layout_oracle import expressible, flat, table
from tilewright.diag import TilewrightError
from tilewright.layout import cute, int_tuple
from tilewright.layout.cute import CuteLayout
from tilewright.layout.library import cute_algebra, cute_ops
from tilewright.layout.swizzle import ComposedLayout, CuteSwizzle

DATA = json.loads((Path(__file__).parents[1] / "data" / "cute_layout_cases.json").read_text())


# -- reading the cases ------------------------------------------------------------------------------------------------


def tuples(value: Any) -> Any:
    return tuple(map(tuples, value)) if isinstance(value, list) else value


def operand(value: Any) -> Any:
    if isinstance(value, dict) and "shape" in value:
        return CuteLayout(tuples(value["shape"]), tuples(value["stride"]))
    if isinstance(value, dict):
        return CuteSwizzle(*value["swizzle"])
    return tuple(map(operand, value)) if isinstance(value, list) else value


def written(value: Any) -> Any:
    """Our results in the notation of the cases."""
    if isinstance(value, CuteLayout):
        return {"shape": written(value.shape), "stride": written(value.stride)}
    return [written(v) for v in value] if isinstance(value, tuple | list) else value


OPERATIONS: dict[str, Callable[..., Any]] = {
    "coalesce": cute.coalesce,
    "coalesce_by_mode": lambda layout, profile: cute.coalesce(layout, profile),
    "flatten": cute.flatten,
    "filter": cute_ops.filter_layout,
    "filter_zeros": cute_ops.filter_zeros,
    "complement": cute_algebra.complement,
    "composition": cute_algebra.composition,
    "composition_by_mode": cute_ops.composition_by_mode,
    "right_inverse": cute_algebra.right_inverse,
    "left_inverse": cute_algebra.left_inverse,
    "nullspace": cute_algebra.nullspace,
    "max_common_layout": cute_algebra.max_common_layout,
    "max_common_vector": cute_algebra.max_common_vector,
    "logical_divide": cute_ops.logical_divide,
    "logical_divide_by_mode": cute_ops.logical_divide,
    "zipped_divide": cute_ops.zipped_divide,
    "tiled_divide": cute_ops.tiled_divide,
    "flat_divide": cute_ops.flat_divide,
    "logical_product": cute_ops.logical_product,
    "zipped_product": cute_ops.zipped_product,
    "tiled_product": cute_ops.tiled_product,
    "flat_product": cute_ops.flat_product,
    "blocked_product": cute_ops.blocked_product,
    "raked_product": cute_ops.raked_product,
    "tile_to_shape": cute_ops.tile_to_shape,
    "tile_to_shape_order21": lambda block, shape: cute_ops.tile_to_shape(block, shape, (2, 1)),
    "make_ordered_layout": cute_ops.make_ordered_layout,
    "upcast": lambda n, layout: cute_ops.upcast(layout, n),
    "downcast": lambda n, layout: cute_ops.downcast(layout, n),
    "size_cosize": lambda layout: [layout.size, layout.cosize],
    "layout_table": lambda layout: layout.offsets(),
    "slice_and_offset": lambda coordinate, layout: list(layout.slice(coordinate)),
    "crd2idx": int_tuple.crd2idx,
    "idx2crd": int_tuple.idx2crd,
    "prefix_product": int_tuple.prefix_product,
    "product": int_tuple.product,
    "shape_div": cute_ops.shape_div,
}


def answer(case: dict[str, Any]) -> Any:
    operands = [operand(o) for o in case["operands"]]
    if case["op"] == "swizzle_table":
        return [operands[0](x) for x in range(len(case["expected"]))]
    if case["op"] == "composed_layout_table":
        return ComposedLayout(*operands).offsets()
    if case.get("out_of_domain"):
        return written(cute_algebra.composition(*operands, extrapolate=True))
    return written(OPERATIONS[case["op"]](*operands))


LOST = "the expected product drops elements: its size is not size(layout) * size(tile)"
DEVIATIONS = {
    # by-mode products over a tile that straddles two modes of the complement: upstream rounds the mode down
    "zipped_product-0614": LOST,
    "tiled_product-0630": LOST,
    "tiled_product-0634": LOST,
    "tiled_product-0637": LOST,
}

CASES = DATA["cases"] + DATA["cpp_cases"]


@pytest.mark.parametrize("case", CASES, ids=[c["id"] for c in CASES])
def test_case(case: dict[str, Any]) -> None:
    if case["id"] not in DEVIATIONS:
        assert answer(case) == case["expected"]
        return
    layout, tiles = case["operands"]
    assert prod(flat(case["expected"]["shape"])) != prod(flat(layout["shape"])) * prod(
        flat([t["shape"] for t in tiles])
    )
    with pytest.raises(TilewrightError, match="LAY004"):
        answer(case)


NEGATIVE = DATA["negative"] + DATA["cpp_negative"]


@pytest.mark.parametrize("case", NEGATIVE, ids=[f"{i}-{c['op']}" for i, c in enumerate(NEGATIVE)])
def test_what_upstream_gets_wrong_is_refused_or_right(case: dict[str, Any]) -> None:
    operands = [operand(o) for o in case["operands"]]
    found, code = attempt(lambda: OPERATIONS[case["op"]](*operands))
    a, b = (table(o["shape"], o["stride"]) for o in case["operands"]) if case["op"] == "composition" else ([], [])
    if found is not None:
        assert case["op"] == "composition"
        assert found.offsets() == [a[x] for x in b]
        return
    assert code in ("LAY004", "LAY005", "LAY009")
    if a and not case.get("out_of_domain"):
        assert not expressible([a[x] for x in b], case["operands"][1]["shape"])


def test_out_of_domain_compositions_are_refused_by_default() -> None:
    outside = [c for c in CASES if c.get("out_of_domain")]
    assert outside
    for case in outside:
        with pytest.raises(TilewrightError, match="LAY005"):
            cute_algebra.composition(*map(operand, case["operands"]))


def test_the_known_upstream_bug_is_refused() -> None:
    (case,) = DATA["known_upstream_unsound"]
    a, b = (table(o["shape"], o["stride"]) for o in case["operands"])
    assert [a[x] for x in b] == case["truth"] != table(case["cpp_result"]["shape"], case["cpp_result"]["stride"])
    assert not expressible(case["truth"], case["operands"][1]["shape"])
    with pytest.raises(TilewrightError, match="LAY004"):
        cute_algebra.composition(*map(operand, case["operands"]))
