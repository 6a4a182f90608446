"""Dtypes and axes of operations: promotion, weak scalars, broadcasting, reductions and contractions.

As in PyTorch: Python numbers and traced integers are weak (they take the tile's dtype, unless that would turn a float
into an integer), 16-bit floats are computed in f32 and rounded after each operation, integers divide to f32.
"""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Sequence
from typing import TypeAlias

from tilewright.base.dtypes import DTYPES, DType, bool_, e5m2, f16, f32, i8, i32, i64, promote, tf32
from tilewright.base.expr import Const, Expr
from tilewright.lang.axes import UNIT, Axis, Span, Unit, show_axes, whole
from tilewright.lang.elementwise_table import UnaryFn
from tilewright.lang.enums import BinaryFn, CompareFn, ReduceFn, identity
from tilewright.lang.recorder import Node, Recorder
from tilewright.lang.source_locations import refuse

Number: TypeAlias = bool | int | float
Operand: TypeAlias = Node | Number | Expr
"""A recorded value, or a weak scalar: a Python number or an integer expression."""

_LOGIC = frozenset((BinaryFn.AND, BinaryFn.OR, BinaryFn.XOR))
_SHIFTS = frozenset((BinaryFn.SHL, BinaryFn.SHR))
_OF_FLOATS = frozenset((BinaryFn.DIV, BinaryFn.ATAN2, BinaryFn.HYPOT))
"""Functions of floats; of integers and bools they give f32."""
_OF_ALL_BITS = _SHIFTS | {BinaryFn.MIN, BinaryFn.MAX, BinaryFn.FLOORDIV, BinaryFn.MOD}
"""Functions whose results modulo 2^n depend on more than their operands modulo 2^n."""
_OF_NOTHING = {ReduceFn.MAX: BinaryFn.MAX, ReduceFn.MIN: BinaryFn.MIN}


def binary(rec: Recorder, fn: BinaryFn, a: Operand, b: Operand) -> Node:
    """``fn`` of two operands, promoted and broadcast."""
    compute, result = _common(fn, a, b)
    if fn in _SHIFTS and not compute.is_int:
        refuse(
            "LNG023",
            found=f"{fn} of {_show(a)} and {_show(b)}",
            required="integers",
            help="cast to tw.i32 first; a float times a power of two is x * 2.0**n",
        )
    if fn is BinaryFn.FMOD and not compute.is_float:
        refuse(
            "LNG023",
            found=f"{fn} of {_show(a)} and {_show(b)}",
            required="floats",
            help="use %, which has the sign of the divisor, or cast with .to(tw.f32)",
        )
    if fn in _LOGIC and compute.is_float:
        refuse("LNG023", found=f"{fn} of {_show(a)} and {_show(b)}", required="bools or integers", help="compare first")
    if compute.is_bool and fn not in _LOGIC and fn not in _OF_FLOATS:
        refuse(
            "LNG023",
            found=f"{fn} of two bools",
            required="at least one number",
            help="use & | ^ on bools, or .to(tw.i32)",
        )
    if fn in _OF_FLOATS and not compute.is_float:
        compute = result = f32
    if fn in _OF_ALL_BITS:
        compute = _for_exact(rec, compute, a, b)
    left, right = align(rec, [_as(rec, a, compute), _as(rec, b, compute)])
    return cast(rec, rec.binary(fn, left, right), result)


def fma(rec: Recorder, a: Operand, b: Operand, c: Operand) -> Node:
    """``a * b + c`` in f32, rounded once; of 16-bit floats rounded to them afterwards."""
    dtypes = [x.dtype for x in (a, b, c) if isinstance(x, Node)]
    for dtype in dtypes:
        _refuse_storage(BinaryFn.MUL, dtype)
    result = functools.reduce(promote, dtypes, bool_)
    if not result.is_float and not any(isinstance(x, float) for x in (a, b, c)):
        refuse(
            "LNG023",
            found=f"fma of {_show(a)}, {_show(b)} and {_show(c)}",
            required="floats",
            help="write a * b + c, which is exact modulo 2^32 or 2^64",
        )
    result = result if result.is_float else f32
    return cast(rec, rec.fma(*align(rec, [_as(rec, x, f32) for x in (a, b, c)])), result)


def compare(rec: Recorder, fn: CompareFn, a: Operand, b: Operand) -> Node:
    """A bool per element."""
    compute = _for_exact(rec, _common(fn, a, b)[0], a, b)
    left, right = align(rec, [_as(rec, a, compute), _as(rec, b, compute)])
    return rec.compare(fn, left, right)


def select(rec: Recorder, cond: Operand, a: Operand, b: Operand) -> Node:
    """``a`` where ``cond`` else ``b``."""
    if isinstance(cond, bool):
        cond = lift(rec, cond)
    if not (isinstance(cond, Node) and cond.dtype.is_bool):
        refuse("LNG023", found=f"a condition that is {_show(cond)}", required="a bool tile", help="compare: x != 0")
    compute, result = _common(None, a, b)
    test, left, right = align(rec, [cond, _as(rec, a, compute), _as(rec, b, compute)])
    return cast(rec, rec.select(test, left, right), result)


def unary(rec: Recorder, fn: UnaryFn, x: Operand) -> Node:
    """``fn`` of each element; integers become f32 for all but negation, absolute value and not."""
    node = lift(rec, x)
    if node.dtype.is_float if fn is UnaryFn.NOT else node.dtype.is_bool:
        refuse(
            "LNG023",
            found=f"{fn} of {_show(x)}",
            required="bool or integers" if fn is UnaryFn.NOT else "numbers",
            help="compare first" if fn is UnaryFn.NOT else "cast with .to(tw.f32)",
        )
    _refuse_storage(fn, node.dtype)
    if node.dtype.is_int and not fn.row.c_integer:
        node = cast(rec, node, f32)
    return rec.unary(fn, node)


def cast(rec: Recorder, x: Node, dtype: DType) -> Node:
    """``x`` in ``dtype``; nothing is recorded if it is so already."""
    return x if x.dtype == dtype else rec.cast(x, dtype)


def returned(rec: Recorder, x: Node, dtype: DType) -> Node:
    """Elements of ``dtype`` that f32 or an integer held: infinities of e5m2 stay, which conversions make finite."""
    result = cast(rec, x, dtype)
    if dtype == e5m2 and x.dtype == f32:
        for infinite in (math.inf, -math.inf):
            same = compare(rec, CompareFn.EQ, x, infinite)
            result = select(rec, same, rec.constant(infinite, e5m2), result)
    return result


def bitcast(rec: Recorder, x: Node, dtype: DType) -> Node:
    """The bits of ``x`` as ``dtype``, which is as wide; of bools and tf32 there are none."""
    if x.dtype == dtype:
        return x
    if x.dtype.bits != dtype.bits or any(d.is_bool or d == tf32 for d in (x.dtype, dtype)):
        wide = [d.name for d in DTYPES.values() if d.bits == x.dtype.bits and d not in (bool_, tf32, x.dtype)]
        refuse(
            "LNG023",
            found=f"the bits of {x.dtype} as {dtype}",
            required=f"a dtype of the same width: {', '.join(wide)}" if wide else "a dtype that another is as wide as",
            help="convert the value with .to(...) first",
        )
    return rec.bitcast(x, dtype)


def lift(rec: Recorder, x: Operand) -> Node:
    """``x`` as a recorded value: floats f32, bools bool, ints i32 where they fit, expressions i64."""
    if isinstance(x, Node):
        return x
    if isinstance(x, Expr):
        return _as(rec, x, i64)
    if isinstance(x, bool):
        return rec.constant(x, bool_)
    if isinstance(x, int):
        return _as(rec, x, i32 if -(2**31) <= x < 2**31 else i64)
    return rec.constant(x, f32)


def convert(rec: Recorder, x: Operand, dtype: DType) -> Node:
    """``x`` cast to ``dtype``, as a store or an explicit cast does."""
    if isinstance(x, Node):
        return cast(rec, x, dtype)
    if isinstance(x, (bool, int, float)):
        return _number(rec, x, dtype) if _fits(x, dtype) else rec.cast(lift(rec, x), dtype)
    return _as(rec, x, dtype)


def align(rec: Recorder, nodes: Sequence[Node]) -> list[Node]:
    """The nodes broadcast to common axes, by NumPy's rule; refuses axes of different ranges."""
    axes = nodes[0].axes
    for node in nodes[1:]:
        if node.axes != axes:
            axes = _common_axes(nodes)
            return [broadcast(rec, n, axes) for n in nodes]
    return list(nodes)


def broadcast(rec: Recorder, x: Node, axes: tuple[Axis, ...]) -> Node:
    """``x`` with these axes; refuses if it does not fit them."""
    if x.axes == axes:
        return x
    missing = len(axes) - len(x.axes)
    fits = missing >= 0 and all(a == b or a.size == 1 for a, b in zip(x.axes, axes[missing:], strict=False))
    if not fits:
        refuse(
            "LNG017",
            found=f"axes {show_axes(x.axes)}",
            required=f"axes that broadcast to {show_axes(axes)}",
            help=_paired(x.axes, axes),
        )
    squeezed = [i for i, a in enumerate(x.axes) if isinstance(a, Span) and a.size == 1 and a != axes[missing + i]]
    for position in reversed(squeezed):
        x = rec.drop(x, position)
    inserted = [*range(missing), *(missing + i for i in squeezed)]
    if inserted:
        x = rec.expand(x, inserted)
    return x if x.axes == axes else rec.broadcast(x, axes)


def _paired(x: tuple[Axis, ...], to: tuple[Axis, ...]) -> str:
    """What gives a tile of axes ``x`` those of ``to``, or of what broadcasts to them."""
    if len(x) == len(to) == 2 and x == to[::-1]:
        return "transpose the tile: x.T"
    if len(x) == len(to) == len(set(to)) and set(x) == set(to):
        return f"transpose the tile: x.transpose({', '.join(str(x.index(a)) for a in to)})"
    if len(set(x)) < len(x) and set(x) == set(to):
        return "the diagonal has its coordinates twice along one axis: x[n, n.index]"
    if len(x) < len(to) and set(x) <= set(to) and len(set(to)) == len(to):
        inserted = ", ".join(":" if a in x else "None" for a in to)
        in_order = [a for a in to if a in x] == list(x)
        if in_order:
            return f"insert the axes that one of them lacks, x[{inserted}], or reduce the other along them"
    if any(a != b and a.size == b.size and whole(a.size) in (a, b) for a, b in zip(x, to, strict=False)):
        return "name Ranges in place of numbers: tw.zeros((m, n), tw.f32)"
    if math.prod(a.size for a in x) == math.prod(a.size for a in to) > 1:
        return "give a reshaped tile its Ranges back: x.reshape(m, n); else load both with the same Ranges"
    return (
        "element-wise operations pair coordinates, so both operands need the same Range: load both with the same one, "
        "or insert an axis with None"
    )


def _common_axes(nodes: Sequence[Node]) -> tuple[Axis, ...]:
    rank = max(len(n.axes) for n in nodes)
    result = list[Axis]()
    for position in range(rank):
        here = [n.axes[position - rank + len(n.axes)] for n in nodes if position - rank + len(n.axes) >= 0]
        wide = list(dict.fromkeys(a for a in here if a.size != 1))
        if len(wide) > 1:
            refuse(
                "LNG017",
                found=" and ".join(show_axes(n.axes) for n in nodes),
                required=f"equal ranges along axis {position}",
                help=_paired(*sorted((n.axes for n in nodes[:2]), key=len)),
            )
        spans = list(dict.fromkeys(a for a in here if not isinstance(a, Unit)))
        result.append(wide[0] if wide else spans[0] if len(spans) == 1 else UNIT)
    return tuple(result)


# -- dtypes -----------------------------------------------------------------------------------------------------------
def _common(fn: BinaryFn | CompareFn | None, a: Operand, b: Operand) -> tuple[DType, DType]:
    """The dtype to compute in and the dtype of the result."""
    for x in (a, b):
        if isinstance(x, Node) and fn is not None:
            _refuse_storage(fn, x.dtype)
    if isinstance(a, Node) and isinstance(b, Node):
        dtype = promote(a.dtype, b.dtype)
        return dtype, dtype
    if isinstance(a, Node):
        return _with_weak(a.dtype, b)
    if isinstance(b, Node):
        return _with_weak(b.dtype, a)
    if isinstance(a, float) or isinstance(b, float):
        return f32, f32
    return i64, i64


def _with_weak(dtype: DType, weak: Operand) -> tuple[DType, DType]:
    if isinstance(weak, bool):
        return dtype, dtype
    if dtype.is_bool:
        common = f32 if isinstance(weak, float) else i32
        return common, common
    if dtype.is_int:
        return (f32, f32) if isinstance(weak, float) else (dtype, dtype)
    # A 16-bit float meets a number that it can't represent: the number is not rounded, the result is.
    exact = isinstance(weak, (int, float)) and _exact(float_of(weak), dtype)
    return (dtype if exact else f32), dtype


def _for_exact(rec: Recorder, dtype: DType, *operands: Operand) -> DType:
    """The narrowest dtype that has all elements of ``dtype``, and what launches may give the integers among
    ``operands``: for what depends on more than their low bits."""
    given = [x for x in operands if isinstance(x, Expr) and x.constant is None]
    if not dtype.is_int or not given:
        return dtype
    wider = (d for d in (dtype, i32) if promote(d, dtype) == d)
    return next((d for d in wider if all(rec.holds(x, d) for x in given)), i64)


def _as(rec: Recorder, x: Operand, dtype: DType) -> Node:
    """``x`` as a value of ``dtype``, weak scalars without a change of their value."""
    if isinstance(x, Node):
        return cast(rec, x, dtype)
    if isinstance(x, Expr):
        constant = x.constant
        if constant is not None:
            return _as(rec, constant, dtype)
        return cast(rec, rec.scalar(x, i32 if dtype == i32 else i64), dtype)
    if not _fits(x, dtype):
        refuse(
            "LNG023",
            found=f"the number {x!r} with {dtype}",
            required=f"a number that {dtype} can hold",
            help="cast the tile to a wider dtype first",
        )
    return _number(rec, x, dtype)


def _number(rec: Recorder, x: Number, dtype: DType) -> Node:
    if dtype.is_bool:
        return rec.constant(bool(x), dtype)
    return rec.constant(int(x) if dtype.is_int else _rounded(x) if dtype == f32 else float_of(x), dtype)


def float_of(x: Number) -> float:
    """The number as Python's float, infinite beyond its range."""
    try:
        return float(x)
    except OverflowError:
        return math.inf if x > 0 else -math.inf


def _rounded(x: Number) -> float:
    """The nearest f32, ties to even. An integer keeps 26 bits and whether any below is set: it is rounded once."""
    if isinstance(x, int) and (low := abs(x).bit_length() - 26) > 0:
        kept = abs(x) >> low | (abs(x) & ((1 << low) - 1) != 0)
        x = math.copysign(math.ldexp(kept, low), x) if low < 200 else math.inf if x > 0 else -math.inf
    try:
        return struct.unpack("<f", struct.pack("<f", x))[0]
    except OverflowError:
        return math.inf if x > 0 else -math.inf


def _fits(x: Number, dtype: DType) -> bool:
    if dtype.is_bool:
        return isinstance(x, bool)
    if dtype.is_int:
        low, high = dtype.integers
        return isinstance(x, int) and low <= x <= high
    return dtype == f32 or _exact(float_of(x), dtype)


def _exact(x: float, dtype: DType) -> bool:
    """Whether a float dtype takes ``x`` for what it is; f32 takes every number, rounded."""
    if dtype == f32 or math.isnan(x):
        return True
    if dtype.bits == 8:
        return x in (0.0, 0.5, 1.0, 2.0)
    if math.isinf(x):
        return True
    try:
        if dtype == f16:
            return struct.unpack("<e", struct.pack("<e", x))[0] == x
        bits = struct.unpack("<I", struct.pack("<f", x))[0]
        return struct.unpack("<f", struct.pack("<f", x))[0] == x and not bits & (0xFFFF if dtype.bits == 16 else 0x1FFF)
    except OverflowError:
        return False


def _refuse_storage(fn: BinaryFn | CompareFn | UnaryFn, dtype: DType) -> None:
    if dtype.is_float and (dtype.bits == 8 or dtype == tf32):
        refuse(
            "LNG023",
            found=f"{fn} on {dtype}",
            required="f32, f16, bf16, an integer dtype or bool",
            help=f"{dtype} is a format of storage and of dot operands: compute with .to(tw.f32)",
        )


def _show(x: Operand) -> str:
    match x:
        case Node():
            return f"{x.dtype} of axes {show_axes(x.axes)}"
        case Expr():
            return f"the integer {x}"
        case _:
            return repr(x)


# -- reductions and contractions --------------------------------------------------------------------------------------
def reduce(rec: Recorder, fn: ReduceFn, x: Node, axes: Sequence[int], keepdims: bool) -> Node:
    """Reduces the axes, highest first; sums and products of 16-bit floats are kept in f32, of integers in i64.

    The greatest of nothing is the least number of the dtype, of 8 bits and bools too, which are reduced in i32.
    """
    dtype = x.dtype
    if fn in (ReduceFn.SUM, ReduceFn.PROD):
        x, dtype = _summable(rec, x)
    elif not dtype.is_float and dtype.bits < 32:
        x = cast(rec, x, i32)
    for axis in sorted(axes, reverse=True):
        x = rec.reduce(fn, x, axis)
    if x.dtype != dtype and axes and fn in _OF_NOTHING:
        x = binary(rec, _OF_NOTHING[fn], x, int(identity(fn, dtype)))
    if fn is not ReduceFn.ARGMAX:
        x = cast(rec, x, dtype)
    return rec.expand(x, sorted(axes)) if keepdims and axes else x


def truth(rec: Recorder, fn: ReduceFn, x: Node, axes: Sequence[int], keepdims: bool) -> Node:
    """Whether any (``max``) or all (``min``) elements differ from 0; NaN does."""
    return reduce(rec, fn, x if x.dtype.is_bool else compare(rec, CompareFn.NE, x, 0), axes, keepdims)


def argmin(rec: Recorder, x: Node, axis: int, keepdims: bool) -> Node:
    """The index of the least element: argmax of the value in reverse order, -x of floats, ~x of integers."""
    if x.dtype.is_bool or (x.dtype.is_float and x.dtype.bits == 8):
        x = cast(rec, x, f32 if x.dtype.is_float else i32)
    turned = unary(rec, UnaryFn.NEG if x.dtype.is_float else UnaryFn.NOT, x)
    return reduce(rec, ReduceFn.ARGMAX, turned, [axis], keepdims)


def mean(rec: Recorder, x: Node, axes: Sequence[int], keepdims: bool) -> Node:
    """The sum over the count of coordinates in the domain, divided in f32."""
    dtype = x.dtype if x.dtype.is_float else f32
    total, _ = _summable(rec, x)
    count: Expr = Const(1)
    for axis in sorted(axes, reverse=True):
        span = x.axes[axis]
        count = count * (span.count if isinstance(span, Span) else 1)
        total = rec.reduce(ReduceFn.SUM, total, axis)
    result = cast(rec, binary(rec, BinaryFn.DIV, cast(rec, total, f32), count), dtype)
    return rec.expand(result, sorted(axes)) if keepdims and axes else result


PROMOTED_STEP = 128
"""Most products that a promoted sum holds before it is added in f32, as DeepSeek-V3 (arXiv 2412.19437, 3.3.2) does."""


def dot(rec: Recorder, a: Node, b: Node, *, promoted: bool = False) -> Node:
    """``a[m, k] @ b[k, n]`` over k's domain, in f32 (of i8 in i32)."""
    where = f"{_show(a)} and {_show(b)}"
    if len(a.axes) != 2 or len(b.axes) != 2:
        single = any(isinstance(axis, Span) and axis.size == 1 for axis in a.axes + b.axes)
        scalar = "; a block of None in place of 1, tw.grid(c, (None, bm, bn)), makes an index that drops its axis"
        help = "index so that two axes remain" + (scalar if single else "")
        refuse("LNG024", found=where, required="two matrices, (m, k) and (k, n)", help=help)
    if a.axes[1] != b.axes[0]:
        refuse(
            "LNG024",
            found=f"contracted axes {a.axes[1]} and {b.axes[0]}",
            required="the same Range on the left's last and the right's first axis",
            help="load both with the same Range of k; use .T if an operand is stored the other way",
        )
    fp8 = a.dtype.is_float and b.dtype.is_float and a.dtype.bits == b.dtype.bits == 8
    if not (a.dtype == b.dtype or fp8) or not (a.dtype.is_float or a.dtype == i8):
        refuse(
            "LNG024",
            found=f"{a.dtype} and {b.dtype}",
            required="operands of one float dtype, or i8",
            help="cast an operand with .to(...)",
        )
    if isinstance(a.axes[0], Unit) or isinstance(b.axes[1], Unit):
        return _sum_of_products(rec, a, b)
    if promoted and a.axes[1].size > PROMOTED_STEP:
        refuse(
            "LNG024",
            found=f"a promoted product over {a.axes[1].size} elements of k",
            required=f"at most {PROMOTED_STEP} in each step",
            help=f"walk k with tw.stream(..., {PROMOTED_STEP})",
        )
    return rec.dot(a, b, promoted=promoted)


def _sum_of_products(rec: Recorder, a: Node, b: Node) -> Node:
    """A product of which a side has one row or column: matrix instructions would multiply padding only."""
    wide = f32 if a.dtype.is_float else i32
    left, right = rec.expand(cast(rec, a, wide), [2]), rec.expand(cast(rec, b, wide), [0])
    return cast(rec, reduce(rec, ReduceFn.SUM, binary(rec, BinaryFn.MUL, left, right), [1], keepdims=False), wide)


def _summable(rec: Recorder, x: Node) -> tuple[Node, DType]:
    if x.dtype.is_float:
        return cast(rec, x, f32), x.dtype
    return cast(rec, x, i64), i64
