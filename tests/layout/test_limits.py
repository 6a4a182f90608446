"""Layouts of a size that no table holds, and texts and swizzles beyond what anybody means: refused at once."""

from __future__ import annotations

import pytest

from tilewright.diag import TilewrightError
from tilewright.layout.cute import CuteLayout
from tilewright.layout.swizzle import CuteSwizzle


def test_a_layout_too_large_to_list() -> None:
    assert len(CuteLayout((1 << 11, 1 << 11)).offsets()) == 1 << 22
    for shape in ((1 << 11, (1 << 11) + 1), (10**9, 10**9)):
        with pytest.raises(TilewrightError, match="LAY029"):
            CuteLayout(shape).offsets()


@pytest.mark.parametrize("text", ["8:" + "9" * 5000, "(" * 65 + "8" + ")" * 65, "1," * 6000, "M*" * 4000 + "M"])
def test_text_beyond_measure(text: str) -> None:
    with pytest.raises(TilewrightError, match="LAY013"):
        CuteLayout.parse(text)


def test_text_within_measure() -> None:
    assert CuteLayout.parse("(" * 60 + "8" + ")" * 60 + ":" + "(" * 60 + "1" + ")" * 60).offsets() == list(range(8))


def test_a_swizzle_of_more_bits_than_an_address_has() -> None:
    assert CuteSwizzle(3, 61, 64)(5) == 5
    with pytest.raises(TilewrightError, match="LAY011"):
        CuteSwizzle(3, 10**9, 3)
