"""``**``: whole exponents as repeated products, square roots, and C's ``powf`` for all others."""

from __future__ import annotations

import math
from typing import NoReturn

from tilewright.base.dtypes import DType, f32
from tilewright.lang import arithmetic
from tilewright.lang.arithmetic import Operand
from tilewright.lang.elementwise_table import UnaryFn
from tilewright.lang.enums import BinaryFn
from tilewright.lang.recorder import Node, Recorder
from tilewright.lang.source_locations import refuse

MOST_PRODUCTS = 16
"""The greatest whole exponent of floats that becomes products: a relative error of 15 * 2^-24, which ``powf`` has
with some 140 instructions."""
_ROOTS = {0.5: UnaryFn.SQRT, -0.5: UnaryFn.RSQRT}


def power(rec: Recorder, base: Operand, exponent: Operand) -> Node:
    """``base ** exponent`` of each element. 16-bit floats are raised in f32 and rounded once."""
    x = arithmetic.lift(rec, base)
    if x.dtype.is_bool:
        _refuse(f"a power of {x.dtype}", "numbers", "cast with .to(tw.i32) or .to(tw.f32)")
    if isinstance(exponent, bool | int | float) and isinstance(base, Node) and x.dtype.is_float:
        return _of_float(rec, x, exponent)
    if x.dtype.is_int and isinstance(exponent, bool | int):
        return _of_integer(rec, x, int(exponent))
    if not any(_is_float(v) for v in (base, exponent)):
        _refuse(
            "a power of integers whose exponent is a value",
            "an exponent that is an int of Python, or floats",
            "cast the base with .to(tw.f32)",
        )
    return arithmetic.binary(rec, BinaryFn.POW, base, exponent)


def _of_float(rec: Recorder, x: Node, exponent: float) -> Node:
    if exponent in _ROOTS:
        return arithmetic.unary(rec, _ROOTS[exponent], x)
    whole = int(exponent) if math.isfinite(exponent) and exponent == int(exponent) else 0
    if not 1 <= abs(whole) <= MOST_PRODUCTS:
        return arithmetic.binary(rec, BinaryFn.POW, x, exponent)
    wide = arithmetic.cast(rec, x, f32) if _is_narrow(x.dtype) else x
    raised = _products(rec, wide, abs(whole))
    if whole < 0:
        raised = arithmetic.binary(rec, BinaryFn.DIV, 1, raised)
    return arithmetic.cast(rec, raised, x.dtype)


def _is_narrow(dtype: DType) -> bool:
    """Computed in f32; formats of storage are left for ``arithmetic`` to refuse."""
    return dtype.is_float and dtype.bits == 16


def _of_integer(rec: Recorder, x: Node, exponent: int) -> Node:
    if exponent < 0:
        _refuse("an integer to a negative power", "an exponent of at least 0", "cast with .to(tw.f32), or write 1 / x")
    if exponent == 0:
        return arithmetic.binary(rec, BinaryFn.ADD, arithmetic.binary(rec, BinaryFn.MUL, x, 0), 1)
    return _products(rec, x, exponent)


def _products(rec: Recorder, x: Node, exponent: int) -> Node:
    """The exponent's binary digits from the second on: a square each, and for a one a factor ``x``."""
    raised = x
    for digit in bin(exponent)[3:]:
        raised = arithmetic.binary(rec, BinaryFn.MUL, raised, raised)
        if digit == "1":
            raised = arithmetic.binary(rec, BinaryFn.MUL, raised, x)
    return raised


def _is_float(value: Operand) -> bool:
    return value.dtype.is_float if isinstance(value, Node) else isinstance(value, float)


def power_of_numbers(base: float, exponent: float) -> float:
    """``base ** exponent`` of Python numbers: of ints to at least 0 exact, else what C's ``pow`` gives."""
    if isinstance(base, int) and isinstance(exponent, int) and exponent >= 0:
        return base**exponent
    x, y = arithmetic.float_of(base), arithmetic.float_of(exponent)
    odd = math.isfinite(y) and y == int(y) and int(y) % 2 == 1
    try:
        return math.pow(x, y)
    except OverflowError:
        return -math.inf if x < 0 and odd else math.inf
    except ValueError:
        return math.nan if x else math.copysign(math.inf, x) if odd else math.inf


def _refuse(found: str, required: str, help: str) -> NoReturn:
    refuse("LNG023", found=found, required=required, help=help)
