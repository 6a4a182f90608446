"""Binary functions, comparisons, reductions and numerics policies; ``elementwise_table`` has the unary functions."""

from __future__ import annotations

from enum import StrEnum
from math import inf

from tilewright.base.dtypes import DType, bf16, f16, f32, i32, i64, u32


class BinaryFn(StrEnum):
    """Functions of two elements of one dtype. ``min`` and ``max`` return NaN if either operand is NaN.

    ``floordiv`` and ``mod`` round to minus infinity, of floats as NumPy does; ``pow`` and what follows is of floats.
    """

    ADD = "add"
    SUB = "sub"
    MUL = "mul"
    DIV = "div"
    FLOORDIV = "floordiv"
    MOD = "mod"
    MIN = "min"
    MAX = "max"
    AND = "and"
    OR = "or"
    XOR = "xor"
    SHL = "shl"
    SHR = "shr"
    POW = "pow"
    ATAN2 = "atan2"
    FMOD = "fmod"
    HYPOT = "hypot"


class CompareFn(StrEnum):
    """Comparisons; all but ``ne`` are false if an operand is NaN."""

    EQ = "eq"
    NE = "ne"
    LT = "lt"
    LE = "le"
    GT = "gt"
    GE = "ge"


class ReduceFn(StrEnum):
    """Reductions over the domain of an axis.

    ``max`` and ``min`` propagate NaN; ``argmax`` is relative to the axis' origin: the lowest index of equals, the first
    NaN if there is one.
    """

    SUM = "sum"
    PROD = "prod"
    MAX = "max"
    MIN = "min"
    ARGMAX = "argmax"


class AtomicFn(StrEnum):
    """Reductions into memory, each element in one step of the hardware (PTX ISA 9.1, 9.7.13.7, red).

    ``min``, ``max``, ``and`` and ``or`` give the same bits in any order, as sums of integers do. There is no red of f32
    for ``min`` and ``max``: they are those of the bits as integers, in the order -0.0 < 0.0 of IEEE 754's totalOrder,
    once each NaN has become the one of ``nan_bits``, which is beyond every number. ``set`` leaves one of the values
    that come, whichever: only the compiler's own steps ask for it (atom.exch, whose old value is dropped).
    """

    ADD = "add"
    MIN = "min"
    MAX = "max"
    AND = "and"
    OR = "or"
    SET = "set"

    @property
    def dtypes(self) -> tuple[DType, ...]:
        """Element types that it is of: red has no min, max, and, or of f16 and bf16 alone, but of pairs only."""
        match self:
            case AtomicFn.ADD:
                return (i32, i64, u32, bf16, f16, f32)
            case AtomicFn.MIN | AtomicFn.MAX:
                return (i32, i64, u32, f32)
            case AtomicFn.AND | AtomicFn.OR:
                return (i32, i64, u32)
            case AtomicFn.SET:
                return (i32,)

    @property
    def nan_bits(self) -> int:
        """The NaN that ``min`` and ``max`` of f32 return for any NaN."""
        return 0x7FFFFFFF if self is AtomicFn.MAX else 0xFFFFFFFF


def identity(fn: BinaryFn | ReduceFn | AtomicFn | str, dtype: DType) -> float | int | bool:
    """The identity element of a reduction of ``dtype``: combining with it changes nothing."""
    if fn in ("and", "or"):
        every = True if dtype.is_bool else -1 if dtype.signed else dtype.integers[1]
        return every if fn == "and" else type(every)(0)
    if fn in ("sum", "add", "mul", "prod"):
        number = int(fn in ("mul", "prod"))
        return float(number) if dtype.is_float else number
    low = fn in ("max", "argmax")
    if dtype.is_float:
        return -inf if low else inf
    if dtype.is_bool:
        return not low
    return dtype.integers[0 if low else 1]


class OutOfRange(StrEnum):
    """The effect of a loaded coordinate outside of its tensor. ``skip``: the element is absent, or not written.
    ``trap``: a debug build, and the simulator, end the launch and report index, tensor and line; other builds skip. -1
    is always skipped."""

    SKIP = "skip"
    TRAP = "trap"


class Numerics(StrEnum):
    """What the compiler may do to float arithmetic.

    ``strict``: each operation is rounded as written; only the order of sums is free. ``accurate``: also exponentials of
    differences of computed values by base 2, within a written bound. ``fast``: also contraction to fma, reciprocal
    instead of division, functions by one instruction (``schedule.transforms.numerics`` writes them as ops).
    """

    STRICT = "strict"
    ACCURATE = "accurate"
    FAST = "fast"
