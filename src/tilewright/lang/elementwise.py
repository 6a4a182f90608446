"""Element-wise functions: of tiles, recorded at the user's line; of Python numbers, which give Python numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tilewright.base.dtypes import DType
from tilewright.lang import arithmetic
from tilewright.lang.calls import operands_of
from tilewright.lang.elementwise_table import UnaryFn
from tilewright.lang.enums import BinaryFn
from tilewright.lang.operators import number_of
from tilewright.lang.powers import power_of_numbers
from tilewright.lang.source_locations import refuse
from tilewright.lang.values import Fragment, Scalar, Tile, check_dtype


def where(condition: object, a: object, b: object) -> Tile:
    """``a`` where the condition holds, else ``b``."""
    rec, (test, left, right) = operands_of(condition, a, b)
    return Tile(rec, arithmetic.select(rec, test, left, right))


def present(x: Tile | Fragment) -> Tile:
    """A bool per element: whether its computed or loaded coordinates lie inside their tensor."""
    rec, (operand,) = operands_of(x)
    return Tile(rec, rec.present(arithmetic.lift(rec, operand)))


def maximum(a: Any, b: Any) -> Any:
    """The greater of each pair; NaN if either is. Of two integers an integer."""
    return _extremum(BinaryFn.MAX, max, a, b)


def minimum(a: Any, b: Any) -> Any:
    """The lesser of each pair; NaN if either is. Of two integers an integer."""
    return _extremum(BinaryFn.MIN, min, a, b)


def clamp(x: Any, low: Any = None, high: Any = None) -> Any:
    """``minimum(maximum(x, low), high)``; a bound that is None is none. NaN stays NaN."""
    if low is None and high is None:
        refuse("LNG023", found="no bound", required="a low or a high one", help="tw.clamp(x, -1, 1)")
    raised = x if low is None else maximum(x, low)
    return raised if high is None else minimum(raised, high)


def _extremum(fn: BinaryFn, of_numbers: Callable[..., Any], a: Any, b: Any) -> Any:
    left, right = number_of(a), number_of(b)
    if left is not None and right is not None:
        return math.nan if left != left or right != right else of_numbers(left, right)
    if isinstance(b, Scalar):
        a, b = b, a
    if isinstance(a, Scalar):
        return a._binary(fn, b)  # pyright: ignore[reportPrivateUsage] - proxies are this room's
    rec, (x, y) = operands_of(a, b)
    return Tile(rec, arithmetic.binary(rec, fn, x, y))


# -- a row of UnaryFn each --------------------------------------------------------------------------------------------
def _unary(fn: UnaryFn) -> Callable[[Any], Any]:
    """The function that users call: of a Python number a Python number, NaN or ``at_zero`` where Python has none."""

    def apply(x: Any) -> Any:
        number = number_of(x)
        if number is not None:
            return of_number(fn, number)
        rec, (operand,) = operands_of(x)
        return Tile(rec, arithmetic.unary(rec, fn, operand))

    apply.__name__ = apply.__qualname__ = str(fn)
    apply.__doc__ = f"``{fn}`` of each element; of a Python number a Python number."
    return apply


def of_number(fn: UnaryFn, number: float) -> float:
    """The function of a Python number: NaN or ``at_zero`` where Python has none."""
    row = fn.row
    assert row.number is not None
    try:
        return row.number(number if fn is UnaryFn.ABS else arithmetic.float_of(number))
    except OverflowError:
        return -math.inf if fn is UnaryFn.SINH and number < 0 else math.inf
    except (ValueError, ZeroDivisionError):
        signed = fn in (UnaryFn.RSQRT, UnaryFn.ATANH)
        at = number if fn is not UnaryFn.ATANH else abs(number) - 1  # where it has a pole
        return math.nan if at else math.copysign(row.at_zero, number) if signed else row.at_zero


abs_ = _unary(UnaryFn.ABS)
exp = _unary(UnaryFn.EXP)
exp2 = _unary(UnaryFn.EXP2)
log = _unary(UnaryFn.LOG)
log2 = _unary(UnaryFn.LOG2)
log10 = _unary(UnaryFn.LOG10)
sqrt = _unary(UnaryFn.SQRT)
rsqrt = _unary(UnaryFn.RSQRT)
cbrt = _unary(UnaryFn.CBRT)
sin = _unary(UnaryFn.SIN)
cos = _unary(UnaryFn.COS)
tan = _unary(UnaryFn.TAN)
asin = _unary(UnaryFn.ASIN)
acos = _unary(UnaryFn.ACOS)
atan = _unary(UnaryFn.ATAN)
sinh = _unary(UnaryFn.SINH)
cosh = _unary(UnaryFn.COSH)
tanh = _unary(UnaryFn.TANH)
asinh = _unary(UnaryFn.ASINH)
acosh = _unary(UnaryFn.ACOSH)
atanh = _unary(UnaryFn.ATANH)
sigmoid = _unary(UnaryFn.SIGMOID)
erf = _unary(UnaryFn.ERF)
log1p = _unary(UnaryFn.LOG1P)
expm1 = _unary(UnaryFn.EXPM1)
floor = _unary(UnaryFn.FLOOR)
ceil = _unary(UnaryFn.CEIL)
round_ = _unary(UnaryFn.ROUND)
trunc = _unary(UnaryFn.TRUNC)


# -- of two elements --------------------------------------------------------------------------------------------------
def _binary(fn: BinaryFn, of_numbers: Callable[[float, float], float], doc: str) -> Callable[[Any, Any], Any]:
    def apply(a: Any, b: Any) -> Any:
        left, right = number_of(a), number_of(b)
        if left is not None and right is not None:
            return of_numbers(arithmetic.float_of(left), arithmetic.float_of(right))
        rec, (x, y) = operands_of(a, b)
        return Tile(rec, arithmetic.binary(rec, fn, x, y))

    apply.__name__ = apply.__qualname__ = str(fn)
    apply.__doc__ = doc
    return apply


def _remainder(a: float, b: float) -> float:
    return math.nan if math.isinf(a) or b == 0 else math.fmod(a, b)


atan2 = _binary(BinaryFn.ATAN2, math.atan2, "The angle of the point (``b``, ``a``), from -pi to pi.")
fmod = _binary(BinaryFn.FMOD, _remainder, "What is left of ``a`` by whole multiples of ``b``, with the sign of ``a``.")
hypot = _binary(BinaryFn.HYPOT, math.hypot, "``sqrt(a * a + b * b)`` that does not overflow in between.")


def fma(a: Any, b: Any, c: Any) -> Any:
    """``a * b + c`` of floats, rounded once; of three Python numbers a Python number."""
    numbers = [number_of(x) for x in (a, b, c)]
    if all(n is not None for n in numbers):
        return a * b + c
    rec, (x, y, z) = operands_of(a, b, c)
    return Tile(rec, arithmetic.fma(rec, x, y, z))


def pow_(a: Any, b: Any) -> Any:
    """``a ** b``: whole exponents of Python as products, others as C's ``powf``."""
    left, right = number_of(a), number_of(b)
    if left is not None and right is not None:
        return power_of_numbers(left, right)
    operands_of(a, b)  # refuses what is no value
    return a**b


def bitcast(x: Any, dtype: DType) -> Tile:
    """The bits of each element as those of ``dtype``, which is as wide; also ``x.view(dtype)``."""
    rec, (operand,) = operands_of(x)
    return Tile(rec, arithmetic.bitcast(rec, arithmetic.lift(rec, operand), check_dtype(dtype)))


# -- formulas ---------------------------------------------------------------------------------------------------------
def square(x: Any) -> Any:
    """``x * x``."""
    return _checked(x) * x


def reciprocal(x: Any) -> Any:
    """``1 / x``."""
    return 1 / _checked(x)


def sign(x: Any) -> Any:
    """-1, 0 or 1 in the dtype of ``x``; NaN of NaN, 0 of -0."""
    number = number_of(x)
    if number is not None:
        return number if number != number else (number > 0) - (number < 0)
    x = _checked(x)
    if not getattr(getattr(x, "dtype", None), "signed", True):
        return where(x > 0, 1, x)
    return where(x > 0, 1, where(x < 0, -1, where(x == 0, 0, x)))


def isnan(x: Any) -> Any:
    """Whether an element is NaN, a bool; of integers False."""
    return _checked(x) != x


def isinf(x: Any) -> Any:
    """Whether an element is infinite, a bool; of integers False."""
    return abs_(x) == math.inf


def isfinite(x: Any) -> Any:
    """Whether an element is neither infinite nor NaN, a bool; of integers True."""
    return abs_(x) < math.inf


def _checked(x: Any) -> Any:
    """``x``, which is a value."""
    if number_of(x) is None:
        operands_of(x)
    return x
