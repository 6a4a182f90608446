"""Layouts from attributes, and attributes from layouts.

For people who keep layouts in IR text or read them from it; the passes write ``#layout.tma`` and
``#layout.wgmma_operand`` (``tier.descriptor_attrs``) only.
"""

from __future__ import annotations

from typing import TypeAlias

from tilewright.diag import fail
from tilewright.layout.cute import CuteLayout
from tilewright.layout.f2 import F2Layout
from tilewright.layout.int_tuple import IntTuple
from tilewright.layout.register import RegisterLayout, Repeat
from tilewright.tier import layout_attrs as attrs

Layout: TypeAlias = CuteLayout | F2Layout | RegisterLayout
LayoutAttr: TypeAlias = attrs.CuteLayoutAttr | attrs.F2LayoutAttr | attrs.RegisterLayoutAttr


def attribute_of(layout: Layout) -> LayoutAttr:
    """The attribute that holds a layout's numbers (LAY010 for symbolic extents or strides)."""
    match layout:
        case CuteLayout():
            return attrs.CuteLayoutAttr(attrs.CuteNumbers(_numbers(layout.shape), _numbers(layout.stride)))
        case F2Layout():
            return attrs.F2LayoutAttr(_f2_numbers(layout))
        case RegisterLayout():
            repeats = tuple((r.dim, r.count, r.stride) for r in layout.repeats)
            return attrs.RegisterLayoutAttr(attrs.RegisterNumbers(layout.shape, _f2_numbers(layout.atom), repeats))


def layout_of(attribute: LayoutAttr) -> Layout:
    """The layout with an attribute's numbers."""
    match attribute:
        case attrs.CuteLayoutAttr():
            return CuteLayout(attribute.data.shape, attribute.data.stride)
        case attrs.F2LayoutAttr():
            return _f2(attribute.data)
        case attrs.RegisterLayoutAttr():
            data = attribute.data
            return RegisterLayout(data.shape, _f2(data.atom), tuple(Repeat(*r) for r in data.repeats))


def _f2_numbers(layout: F2Layout) -> attrs.F2Numbers:
    return attrs.F2Numbers(layout.ins, layout.outs, layout.columns)


def _f2(numbers: attrs.F2Numbers) -> F2Layout:
    return F2Layout(numbers.ins, numbers.outs, numbers.columns)


def _numbers(value: IntTuple) -> attrs.IntTuple:
    if isinstance(value, tuple):
        return tuple(map(_numbers, value))
    if not isinstance(value, int):
        return fail(
            "LAY010",
            title="an attribute holds numbers only",
            found=str(value),
            required="integer extents and strides",
            help="keep symbolic sizes in the IR's own operands",
        )
    return value
