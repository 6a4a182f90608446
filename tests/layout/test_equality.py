"""Equality, conversions between forms and vector widths, against enumeration."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.attempts import attempt
from support.layout_oracle import swizzle, table
from tilewright.base.expr import sym
from tilewright.diag import TilewrightError
from tilewright.layout.cute import CuteLayout
from tilewright.layout.equality import (
    Different,
    Equal,
    ProofKind,
    cute_of,
    equal,
    f2_of,
    vector_width,
)
from tilewright.layout.f2 import F2Layout
from tilewright.layout.swizzle import ComposedLayout, CuteSwizzle

MODES = st.lists(
    st.tuples(st.sampled_from([1, 2, 3, 4, 8]), st.sampled_from([0, 1, 2, 3, 4, 8, 16, 32])), min_size=1, max_size=4
)
SWIZZLES = st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(2, 3))


def cute(modes: list[tuple[int, int]]) -> CuteLayout:
    return CuteLayout(tuple(s for s, _ in modes), tuple(d for _, d in modes))


@st.composite
def layouts(draw: st.DrawFn) -> tuple[Any, list[int]]:
    """A layout in one of the forms, with its table."""
    modes = draw(MODES)
    layout, offsets = cute(modes), table([s for s, _ in modes], [d for _, d in modes])
    match draw(st.sampled_from(["cute", "composed", "f2"])):
        case "composed":
            parameters = draw(SWIZZLES)
            start = draw(st.sampled_from([0, 0, 1, 64]))
            return ComposedLayout(CuteSwizzle(*parameters), start, layout), [
                swizzle(*parameters, start + x) for x in offsets
            ]
        case "f2":
            bits = draw(st.integers(0, 5))
            columns = tuple(draw(st.integers(0, 63)) for _ in range(bits))
            found = [0]
            for c in columns:
                found += [x ^ c for x in found]
            return F2Layout((("i", bits),), (("o", 6),), columns), found
        case _:
            return layout, offsets


@settings(max_examples=400, deadline=None)
@given(layouts(), layouts())
def test_equality_is_decided_right(a: tuple[Any, list[int]], b: tuple[Any, list[int]]) -> None:
    answer = equal(a[0], b[0])
    assert isinstance(answer, Equal) == (a[1] == b[1])
    if isinstance(answer, Different):
        if answer.index < 0:
            assert (answer.left, answer.right) == (len(a[1]), len(b[1]))
        else:
            assert (answer.left, answer.right) == (a[1][answer.index], b[1][answer.index])
            assert answer.left != answer.right
    assert isinstance(equal(a[0], a[0]), Equal)


@settings(max_examples=400, deadline=None)
@given(layouts())
def test_injectivity(a: tuple[Any, list[int]]) -> None:
    layout, offsets = a
    assert layout.is_injective == (len(set(offsets)) == len(offsets))


@settings(max_examples=400, deadline=None)
@given(layouts(), st.sampled_from([8, 16, 32]), st.sampled_from([2, 4, 16]))
def test_vector_width_is_the_largest_that_holds(a: tuple[Any, list[int]], bits: int, alignment: int) -> None:
    layout, offsets = a

    def holds(v: int) -> bool:
        if len(offsets) % v or v * bits > 8 * min(16, alignment):
            return False
        starts = range(0, len(offsets), v)
        return all(offsets[i] % v == 0 and offsets[i : i + v] == [offsets[i] + k for k in range(v)] for i in starts)

    width = vector_width(layout, bits, alignment)
    assert holds(width) or width == 1
    assert not holds(2 * width)


@pytest.mark.parametrize("n", [24, 80, 128, 160, 176, 192, 208, 248])
def test_vector_widths_of_rows(n: int) -> None:
    assert vector_width(CuteLayout((n, 64), (1, n)), 16, 16) == 8
    assert vector_width(CuteLayout((n, 64), (1, n + 2)), 16, 16) == 2
    assert vector_width(CuteLayout((n, 64), (1, n)), 16, 4) == 2
    assert vector_width(CuteLayout((n, 64), (1, sym("ld"))), 16, 16) == 1


@settings(max_examples=300, deadline=None)
@given(layouts())
def test_round_trips_between_forms(a: tuple[Any, list[int]]) -> None:
    layout, offsets = a
    if isinstance(layout, F2Layout):
        found, code = attempt(lambda: cute_of(layout))
        assert code in ("", "LAY010")
        if found is not None:
            assert found.offsets() == offsets
        return
    linear, code = attempt(lambda: f2_of(layout))
    if linear is None:
        assert code == "LAY010"
        return
    assert [linear(i) for i in range(1 << linear.in_bits)] == offsets


def test_a_swizzled_tile_is_equal_in_all_forms_and_proved_by_f2() -> None:
    tile = ComposedLayout(CuteSwizzle(3, 3, 3), 0, CuteLayout((128, (64, 4)), (64, (1, 8192))))
    linear = f2_of(tile)
    assert equal(tile, linear) == Equal(ProofKind.F2)
    back = cute_of(linear)
    assert isinstance(back, ComposedLayout)
    assert back.outer == CuteSwizzle(3, 3, 3)
    assert equal(tile, back) == Equal(ProofKind.F2)
    assert equal(CuteLayout((24, 4)), CuteLayout((4, 24))) == Equal(ProofKind.STRIDES)
    other = ComposedLayout(CuteSwizzle(3, 3, 3), 0, CuteLayout((24, 8), (8, 1)))
    assert equal(other, other) == Equal(ProofKind.ENUMERATED)


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda: f2_of(CuteLayout((24, 4))), "24 is not a power of two"),
        (lambda: f2_of(CuteLayout((4, 4), (3, 1))), "carry"),
        (lambda: f2_of(ComposedLayout(CuteSwizzle(1, 0, 1), 5, CuteLayout(4))), "an offset of 5"),
        (lambda: cute_of(F2Layout((("i", 2),), (("o", 3),), (3, 5))), "share offset bits"),
        (lambda: equal(CuteLayout(sym("M"), 1), CuteLayout(sym("M"), 1)), "M"),
    ],
)
def test_what_has_no_other_form_is_refused_with_the_reason(build: Any, reason: str) -> None:
    with pytest.raises(TilewrightError, match=reason) as caught:
        build()
    assert caught.value.code == "LAY010"
