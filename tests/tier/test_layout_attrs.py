"""Layout attributes: text and back, and the layouts they stand for."""

from __future__ import annotations

from typing import Any

import pytest
from xdsl.context import Context
from xdsl.parser import Parser
from xdsl.utils.exceptions import ParseError, VerifyException

from tilewright.base.expr import sym
from tilewright.diag import TilewrightError
from tilewright.layout import fragments
from tilewright.layout.cute import CuteLayout
from tilewright.layout.f2 import F2Layout
from tilewright.tier import layout_attrs as attrs
from tilewright.tier.convert import attribute_of, layout_of

LAYOUTS = [
    CuteLayout((8, (2, 4)), (8, (1, 2))),
    CuteLayout(24, 3),
    F2Layout.empty(),
    fragments.wgmma_accumulator(64, 8).atom,
    fragments.wgmma_accumulator(128, 208),
    fragments.wgmma_accumulator(64, 8),
    fragments.ldmatrix(8, 8),
]


def read(text: str) -> Any:
    context = Context()
    context.load_dialect(attrs.LAYOUT_ATTRIBUTES)
    return Parser(context, text).parse_attribute()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_round_trip(layout: Any) -> None:
    attribute = attribute_of(layout)
    assert read(str(attribute)) == attribute
    assert layout_of(attribute) == layout


def test_text() -> None:
    assert str(attribute_of(LAYOUTS[0])) == "#layout.cute<(8, (2, 4)) : (8, (1, 2))>"
    assert str(attribute_of(fragments.wgmma_accumulator(64, 24))) == (
        "#layout.register<(64, 24) : (register: 2, lane: 5, warp: 2) -> (dim0: 6, dim1: 3) : "
        "[64, 8, 128, 256, 1, 2, 4, 16, 32] : [(1, 3, 8)]>"
    )


@pytest.mark.parametrize(
    "text",
    [
        "#layout.cute<(8, 2) : (8, (1, 2))>",
        "#layout.cute<(8, 0) : (8, 1)>",
        "#layout.f2<(lane: 2) -> (dim0: 2) : [1]>",
        "#layout.f2<(lane: 1) -> (dim0: 2) : [4]>",
        "#layout.register<(64) : (lane: 1) -> (dim0: 2, dim1: 1) : [4] : []>",
        "#layout.register<(64) : (lane: 1) -> (dim0: 2) : [1] : [(1, 2, 4)]>",
        "#layout.register<(64) : (lane: 1) -> (dim0: 2) : [1] : [(0, 2)]>",
        "#layout.cute<(8, 2>",
    ],
)
def test_wrong_numbers_are_refused(text: str) -> None:
    with pytest.raises((ParseError, VerifyException)):
        read(text)


def test_symbols_have_no_attribute() -> None:
    with pytest.raises(TilewrightError, match="LAY010"):
        attribute_of(CuteLayout((sym("M"), 64), (64, 1)))
