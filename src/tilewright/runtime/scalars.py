"""Scalar arguments: types, ranges, and the bits in which a kernel receives them."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import NoReturn, cast

from tilewright.artifact.schema import ScalarArgument
from tilewright.base.number import number_of
from tilewright.diag import fail, shown


@dataclass(frozen=True)
class CallScalar:
    """A scalar that changes from call to call without changing the plan.

    ``format`` packs it into 8 bytes. A value of exactly the type ``plain`` in [-limit, limit) is packed as it is.
    """

    parameter: ScalarArgument
    format: str
    plain: type | None
    limit: float

    @property
    def name(self) -> str:
        return self.parameter.name


def in_call(parameter: ScalarArgument) -> CallScalar:
    """The value of ``parameter`` that is passed on without being part of a plan."""
    match parameter.dtype:
        case "i32":
            return CallScalar(parameter, "i4x", int, 2**31)
        case "i64":
            return CallScalar(parameter, "q", int, 2**63)
        case "u32":
            return CallScalar(parameter, "q", int, 0)  # checked here: negative ones are none
        case "f32":
            return CallScalar(parameter, "f4x", float, 2.0**127)
        case "f16":
            return CallScalar(parameter, "e6x", float, 2.0**15)
        case _:
            return CallScalar(parameter, "H6x", None, 0)  # bf16 is rounded here


def packed(scalar: CallScalar, value: object) -> int | float:
    """What ``scalar.format`` packs for ``value``; RUN016."""
    parameter = scalar.parameter
    if scalar.plain is int:
        return int_scalar(parameter, value)
    number = float_scalar(parameter, value)
    return _bf16_bits(number) if scalar.plain is None else _in_range(number, parameter.dtype)


_INT_RANGE = {
    "i32": (-(2**31), 2**31 - 1),
    "i64": (-(2**63), 2**63 - 1),
    "u32": (0, 2**32 - 1),
    "bool": (0, 1),
}


def int_scalar(parameter: ScalarArgument, value: object) -> int:
    """The value of an integer parameter; RUN016 for another type or beyond its range."""
    number = int(value) if isinstance(value, bool) else number_of(value)
    if not isinstance(number, int):
        _refuse_scalar(parameter, value, "an integer")
    low, high = _INT_RANGE[parameter.dtype]
    if not low <= number <= high:
        _refuse_scalar(parameter, value, f"{low} to {high}")
    return number


def float_scalar(parameter: ScalarArgument, value: object) -> float:
    """The value of a floating parameter; RUN016 for another type. A GPU tensor is refused: reading it would wait."""
    number = int(value) if isinstance(value, bool) else number_of(value)
    try:
        return float(cast("float", number))
    except (TypeError, OverflowError):
        _refuse_scalar(parameter, value, "a number")


def _refuse_scalar(parameter: ScalarArgument, value: object, required: str) -> NoReturn:
    fail(
        "RUN016",
        found=f"{parameter.name} = {shown(value)} of type {type(value).__name__}",
        required=f"{required}, for {parameter.dtype}",
    )


_ROUNDS_TO_INFINITY = {"f32": 2.0**128 - 2.0**103, "f16": 65520.0}  # greatest value and half a unit in its last place


def _in_range(number: float, dtype: str) -> float:
    """``number``, with what rounds beyond the dtype's greatest value as infinity, as a cast would have it."""
    return number if not abs(number) >= _ROUNDS_TO_INFINITY[dtype] else math.copysign(math.inf, number)


def _bf16_bits(number: float) -> int:
    """bf16 bits of ``number``, rounded to nearest even from f32."""
    if math.isnan(number):
        return 0x7FC0
    bits = struct.unpack("<I", struct.pack("<f", _in_range(number, "f32")))[0]
    return (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
