"""The table of unary element-wise functions: what each is on Python numbers, in C and in NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from math import inf, nan


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def _whole(fn: Callable[[float], int]) -> Callable[[float], float]:
    """``fn`` as a function of floats, which keeps infinities and the sign of zero."""
    return lambda x: math.copysign(fn(x), x) if math.isfinite(x) else x


@dataclass(frozen=True)
class UnaryRow:
    """What a function of one element becomes; every room reads it here.

    ``number`` is its value for a Python float; it may raise where the function leaves Python's floats. ``c`` is C of an
    f32 ``{0}``, ``c_integer`` of an integer: functions that have one keep the dtype, others make f32 of integers.
    ``numpy`` is NumPy's name of it, where it has one. ``exact``: the value is one of the operand's dtype, narrow floats
    included. ``instructions`` are about the PTX instructions of its C.
    """

    number: Callable[[float], float] | None = None
    c: str = ""
    c_integer: str = ""
    numpy: str = ""
    at_zero: float = nan
    exact: bool = False
    instructions: float = 2.5


class UnaryFn(StrEnum):
    """Functions of one element, a row each. ``not`` is logical on bool, bitwise on integers."""

    row: UnaryRow

    def __new__(cls, name: str, row: UnaryRow) -> UnaryFn:
        member = str.__new__(cls, name)
        member._value_ = name
        member.row = row
        return member

    NEG = "neg", UnaryRow(None, "-{0}", "wrap_neg({0})", numpy="negative", exact=True)
    ABS = "abs", UnaryRow(abs, "fabsf({0})", "({0} < 0 ? wrap_neg({0}) : {0})", numpy="abs", exact=True)
    EXP = "exp", UnaryRow(math.exp, "expf({0})", numpy="exp", instructions=21)
    EXP2 = "exp2", UnaryRow(lambda x: 2.0**x, "exp2f({0})", numpy="exp2", instructions=15)
    LOG = "log", UnaryRow(math.log, "logf({0})", numpy="log", at_zero=-inf, instructions=88)
    LOG2 = "log2", UnaryRow(math.log2, "log2f({0})", numpy="log2", at_zero=-inf, instructions=88)
    LOG10 = "log10", UnaryRow(math.log10, "log10f({0})", numpy="log10", at_zero=-inf, instructions=47)
    SQRT = "sqrt", UnaryRow(math.sqrt, "sqrtf({0})", numpy="sqrt", instructions=45)
    RSQRT = "rsqrt", UnaryRow(lambda x: 1 / math.sqrt(x), "rsqrtf({0})", at_zero=inf, instructions=26)
    CBRT = "cbrt", UnaryRow(math.cbrt, "cbrtf({0})", numpy="cbrt", instructions=22)
    SIN = "sin", UnaryRow(math.sin, "sine({0})", numpy="sin", instructions=95)
    COS = "cos", UnaryRow(math.cos, "cosine({0})", numpy="cos", instructions=95)
    TAN = "tan", UnaryRow(math.tan, "tangent({0})", numpy="tan", instructions=105)
    ASIN = "asin", UnaryRow(math.asin, "asinf({0})", numpy="arcsin", instructions=39)
    ACOS = "acos", UnaryRow(math.acos, "acosf({0})", numpy="arccos", instructions=43)
    ATAN = "atan", UnaryRow(math.atan, "atanf({0})", numpy="arctan", instructions=37)
    SINH = "sinh", UnaryRow(math.sinh, "sinhf({0})", numpy="sinh", instructions=42)
    COSH = "cosh", UnaryRow(math.cosh, "coshf({0})", numpy="cosh", instructions=29)
    TANH = "tanh", UnaryRow(math.tanh, "tanhf({0})", numpy="tanh", instructions=58)
    ASINH = "asinh", UnaryRow(math.asinh, "asinhf({0})", numpy="arcsinh", instructions=67)
    ACOSH = "acosh", UnaryRow(math.acosh, "acoshf({0})", numpy="arccosh", instructions=69)
    ATANH = "atanh", UnaryRow(math.atanh, "atanhf({0})", numpy="arctanh", at_zero=inf, instructions=63)
    SIGMOID = "sigmoid", UnaryRow(_sigmoid, "sigmoid({0})", instructions=60)
    ERF = "erf", UnaryRow(math.erf, "erff({0})", instructions=26)
    LOG1P = "log1p", UnaryRow(math.log1p, "log1pf({0})", numpy="log1p", instructions=75)
    EXPM1 = "expm1", UnaryRow(math.expm1, "expm1f({0})", numpy="expm1", instructions=40)
    FLOOR = "floor", UnaryRow(_whole(math.floor), "floorf({0})", numpy="floor", exact=True)
    CEIL = "ceil", UnaryRow(_whole(math.ceil), "ceilf({0})", numpy="ceil", exact=True)
    ROUND = "round", UnaryRow(_whole(round), "rintf({0})", numpy="rint", exact=True)
    """To the nearest integer, of two to the even one."""
    TRUNC = "trunc", UnaryRow(_whole(math.trunc), "truncf({0})", numpy="trunc", exact=True)
    NOT = "not", UnaryRow(c_integer="~{0}", numpy="invert", exact=True)

    @property
    def is_costly(self) -> bool:
        """More than a few instructions for each element."""
        return self.row.instructions >= 10
