"""Descriptor attributes: text and back, alone and in the text of a kernel."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import Builtin
from xdsl.parser import Parser
from xdsl.utils.exceptions import ParseError, VerifyException

from support.pipeline import matmul
from tilewright.base.dtypes import bf16
from tilewright.base.expr import sym
from tilewright.base.verdict import Legal
from tilewright.hw.tensormap import DataType, L2Promotion, Swizzle
from tilewright.legal import wgmma
from tilewright.legal.smem_tile import SmemTile
from tilewright.tile.dialect import Tile
from tilewright.transport.descriptor_attrs import (
    LAYOUT_ATTRIBUTES,
    OperandNumbers,
    TmaAttr,
    TmaNumbers,
    WgmmaOperandAttr,
)
from tilewright.transport.dialect import Transport

K, M = sym("K"), sym("M")


def context() -> Context:
    result = Context()
    for dialect in (Builtin, LAYOUT_ATTRIBUTES, Tile, Transport):
        result.load_dialect(dialect)
    return result


def read(text: str) -> Any:
    return Parser(context(), text).parse_attribute()


def test_round_trip() -> None:
    stride = sym("a.stride0") * 2
    flat = TmaNumbers(
        DataType.BFLOAT16, sym("a.address"), (K, M), (stride,), (64, 128), (1, 0), Swizzle.B128, L2Promotion.L2_128B
    )
    ragged = replace(flat, dims=(K, M, M, M), strides_bytes=(stride,) * 3, box=(64, 128, 1, 1), ragged_axis=0)
    assert " : axes 1, 0 : ragged 0 : B128" in str(TmaAttr(ragged))
    for wrong in (replace(ragged, ragged_axis=1), replace(ragged, axes=(1, 0, 0, 0)), replace(flat, ragged_axis=0)):
        with pytest.raises(VerifyException):
            TmaAttr(wrong)
    line = TmaNumbers(DataType.UINT8, sym("x.address") + 16, (K * M,), (), (256,), (0,), Swizzle.NONE, L2Promotion.NONE)
    for numbers in (flat, ragged, line):
        attribute = TmaAttr(numbers)
        assert read(str(attribute)) == attribute
    assert str(TmaAttr(flat)) == (
        '#layout.tma<BFLOAT16 at "a.address" : "K" x "M" : strides "a.stride0*2" : box 64 x 128 : axes 1, 0 : '
        "B128, L2_128B>"
    )
    operand = WgmmaOperandAttr(OperandNumbers(1, 256, 64, Swizzle.B64, 4096, 512))
    assert str(operand) == "#layout.wgmma_operand<MN, 256 x 64, B64 : leading 4096, stride 512>"
    assert read(str(operand)) == operand


@pytest.mark.parametrize(
    "text",
    [
        '#layout.tma<BFLOAT16 at "a" : "K" x "M" : strides "s", "t" : box 64 x 128 : axes 1, 0 : B128, NONE>',
        '#layout.tma<BFLOAT15 at "a" : "K" : strides : box 64 : axes 0 : B128, NONE>',
        '#layout.tma<BFLOAT16 at "a +" : "K" : strides : box 64 : axes 0 : B128, NONE>',
        "#layout.wgmma_operand<L, 256 x 64, B64 : leading 4096, stride 512>",
        "#layout.wgmma_operand<K, 256 x 64 x 2, B64 : leading 4096, stride 512>",
        "#layout.wgmma_operand<K, 256 x 64, B128_ATOM32 : leading 4096, stride 512>",
    ],
)
def test_refused(text: str) -> None:
    with pytest.raises((ParseError, VerifyException)):
        read(text)


def test_the_template_is_the_judges() -> None:
    for major, extents in ((wgmma.Major.K, (64, 128)), (wgmma.Major.MN, (128, 64))):
        tile = SmemTile(extents, 64, 2, Swizzle.B128)
        answer = wgmma.plan(wgmma.WgmmaOperand(wgmma.OperandRole.B, bf16, tile, major, 128))
        assert isinstance(answer, Legal)
        fields = answer.fields
        numbers = OperandNumbers(major.value, 128, 64, Swizzle.B128, fields.leading_bytes, fields.stride_bytes)
        assert numbers.template == fields.template


def test_a_kernels_text_is_read_back() -> None:
    kernel = matmul()
    text = str(kernel)
    assert "#layout.tma<" in text
    assert "#layout.wgmma_operand<" in text
    assert str(Parser(context(), text).parse_op()) == text
