"""Symbolic CuTe layouts: what is answered holds for the values of the symbols, by enumeration; the rest is refused."""

from __future__ import annotations

import random
from itertools import pairwise, product
from typing import Any

import pytest

from support.attempts import attempt
from support.layout_oracle import flat, table
from tilewright.base.expr import Expr, sym
from tilewright.diag import TilewrightError
from tilewright.layout.cute import CuteLayout
from tilewright.layout.library import cute_ops
from tilewright.layout.library.cute_algebra import complement, composition, left_inverse, nullspace, right_inverse

M, N, K = sym("m"), sym("n"), sym("k")
VALUES = [dict(zip("mnk", v, strict=True)) for v in product((1, 2, 3), (1, 4), (2, 5))]


def listed(layout: CuteLayout) -> list[int]:
    assert all(isinstance(x, int) for x in flat(layout.shape) + flat(layout.stride))
    return table(layout.shape, layout.stride)


def extents(rng: random.Random, rank: int) -> list[Any]:
    pool: list[Any] = [2, 3, 4, 8, M, N, 4 * M, 8 * N, 2 * M * N, K]
    return [rng.choice(pool) for _ in range(rank)]


def compact(shape: list[Any], rng: random.Random, *, gaps: bool) -> CuteLayout:
    """Modes in a random order of strides, with gaps of whole factors."""
    strides: list[Any] = [0] * len(shape)
    step: Any = 1
    for i in rng.sample(range(len(shape)), len(shape)):
        if gaps and rng.random() < 0.3:
            step = step * rng.choice([2, M])
        strides[i] = step
        step = step * shape[i]
    return CuteLayout(tuple(shape), tuple(strides))


def answered(call: Any) -> CuteLayout | None:
    found, code = attempt(call)
    assert code in ("", "LAY010", "LAY004", "LAY005")  # the last two where parts without symbols fail alone
    return found if isinstance(found, CuteLayout) else None


def test_compositions_hold_for_all_values() -> None:
    rng = random.Random(1)
    found = 0
    for _ in range(400):
        a = compact(extents(rng, rng.randrange(1, 4)), rng, gaps=True)
        b = compact(extents(rng, rng.randrange(1, 3)), rng, gaps=False)
        if a.is_static and b.is_static:
            continue
        result = answered(lambda a=a, b=b: composition(a, b))
        if result is None:
            continue
        found += 1
        for values in VALUES:
            outer, inner, both = (listed(x.substitute(values)) for x in (a, b, result))
            assert both == [outer[i] for i in inner], (a, b, result, values)
    assert found > 60


def test_complements_and_inverses_hold_for_all_values() -> None:
    rng = random.Random(2)
    found = 0
    for _ in range(100):
        layout = compact(extents(rng, rng.randrange(1, 4)), rng, gaps=True)
        rest = answered(lambda x=layout: complement(x, 4 * M * N))
        left, right = answered(lambda x=layout: left_inverse(x)), right_inverse(layout)
        found += rest is not None
        for values in VALUES:
            own = listed(layout.substitute(values))
            picked = listed(right.substitute(values))
            assert [own[i] for i in picked] == list(range(len(picked)))
            if rest is not None:
                others = listed(rest.substitute(values))
                assert all(x < y for x, y in pairwise(sorted(o + i for o in others for i in own)))
                assert max(own) + max(others) + 1 >= 4 * values["m"] * values["n"]
            if left is not None:
                back = listed(left.substitute(values))
                assert [back[x] for x in own] == list(range(len(own)))
    assert found > 60


def test_divides_and_products_by_tiles() -> None:
    """A row-major matrix of whole tiles, as a kernel sees it."""
    matrix = CuteLayout((128 * M, 64 * N), (64 * N, 1))
    tiled = cute_ops.zipped_divide(matrix, (128, 64))
    assert str(tiled) == "((128,64),(m,n)):((n*64,1),(n*8192,64))"
    for values in ({"m": 1, "n": 1}, {"m": 2, "n": 3}):
        flat_matrix, parts = listed(matrix.substitute(values)), listed(tiled.substitute(values))
        assert sorted(parts) == sorted(flat_matrix)
        rows = 128 * values["m"]
        assert parts[: 128 * 64] == [flat_matrix[r + rows * c] for c in range(64) for r in range(128)]
    blocks = cute_ops.tile_to_shape(CuteLayout((8, 64), (64, 1)), (8 * M, 64 * N))
    assert blocks.size == 8 * M * 64 * N
    assert sorted(listed(blocks.substitute({"m": 3, "n": 2}))) == list(range(8 * 3 * 64 * 2))
    repeated = cute_ops.logical_product(CuteLayout((4, M), (1, 4)), CuteLayout(N, 1))
    assert str(repeated) == "((4,m),n):((1,4),m*4)"
    assert str(nullspace(CuteLayout((M, N), (0, 1)))) == "m:1"


def test_steps_over_symbolic_modes() -> None:
    a = CuteLayout((8 * M, K), (1, 100 * M))
    assert str(composition(a, CuteLayout(K, 8 * M))) == "k:m*100"
    assert str(composition(a, CuteLayout((4, 2 * M), (1, 4)))) == "(4,m*2):(1,4)"
    assert str(composition(a, CuteLayout(M * K, 8))) == "(m,k):(8,m*100)"


BAD = [
    (lambda: composition(CuteLayout((M, 64), (64, 1)), CuteLayout(8, 1)), "8 steps of 1 over a mode of extent m"),
    (lambda: composition(CuteLayout((8, M), (1, 8)), CuteLayout(16 * M, 1)), "reaches"),
    (lambda: composition(CuteLayout((M, N), (N, 1)), CuteLayout(2, 3)), "a step of 3 over a mode of extent m"),
    (lambda: complement(CuteLayout((4, 4), (M, N)), 64), "the order of strides"),
    (lambda: complement(CuteLayout((4, M), (1, M)), 64), "after 4 offsets"),
    (lambda: left_inverse(CuteLayout((4, 4), (1, 4 + M))), "after 4 offsets"),
]


@pytest.mark.parametrize(("call", "words"), BAD)
def test_what_is_not_known_is_refused(call: Any, words: str) -> None:
    with pytest.raises(TilewrightError) as refused:
        call()
    assert refused.value.diagnostics[0].code == "LAY010"
    assert words in str(refused.value)
    assert refused.value.diagnostics[0].help


def test_bad_values_of_symbols() -> None:
    layout = CuteLayout((M, 4), (4, 1))
    assert attempt(lambda: layout.substitute({"m": 0}))[1] == "LAY001"
    assert layout.substitute({"m": 3}) == CuteLayout((3, 4), (4, 1))
    assert isinstance(layout.size, Expr)
    assert attempt(lambda: cute_ops.logical_divide(CuteLayout(M, 1), 4))[1] == "LAY009"
    assert attempt(lambda: cute_ops.tile_to_shape(CuteLayout(8, 1), M))[1] == "LAY009"


def test_a_repeated_offset_has_no_left_inverse() -> None:
    """A stride of 0 beside a symbol, as beside numbers."""
    assert attempt(lambda: left_inverse(CuteLayout((4, 4), (1, 0))))[1] == "LAY006"
    assert attempt(lambda: left_inverse(CuteLayout((M, 4), (1, 0))))[1] == "LAY006"
