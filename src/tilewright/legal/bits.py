"""Descriptors packed from named fields."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.hw.wgmma import DescriptorField


def pack(fields: tuple[DescriptorField, ...], values: Mapping[str, int]) -> int:
    """The bits of a descriptor. Asserts that each value fits its field: the rules have been checked before."""
    bits = 0
    for field in fields:
        part = values[field.name] >> field.shift
        assert 0 <= part < 1 << field.width, (field, values)
        bits |= part << field.low
    return bits
