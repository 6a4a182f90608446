"""Names of the element-wise functions, reductions and numerics policies."""

from __future__ import annotations

from enum import StrEnum


class UnaryFn(StrEnum):
    """Functions of one element. ``not`` is logical on bool, bitwise on integers."""

    NEG = "neg"
    ABS = "abs"
    EXP = "exp"
    EXP2 = "exp2"
    LOG = "log"
    LOG2 = "log2"
    SQRT = "sqrt"
    RSQRT = "rsqrt"
    TANH = "tanh"
    SIGMOID = "sigmoid"
    ERF = "erf"
    NOT = "not"


class BinaryFn(StrEnum):
    """Functions of two elements of one dtype. ``min`` and ``max`` return NaN if either operand is NaN."""

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
    MAX = "max"
    MIN = "min"
    ARGMAX = "argmax"


class Numerics(StrEnum):
    """What the compiler may do to float arithmetic.

    ``precise``: each operation is rounded as written; only the order of sums is free. ``fast``: also contraction to
    fma, reciprocal instead of division, functions by one instruction (``schedule.contraction`` writes them as ops).
    """

    PRECISE = "precise"
    FAST = "fast"
