"""What a scan's function may be: arithmetic on its two states, associative as far as samples tell.

Samples ask whether ``fn(fn(a, b), c)`` is ``fn(a, fn(b, c))``. Floats are computed in 64 bits, so that rounding is far
below ``_WITHIN``. A function that disagrees with itself both on states of positive numbers and on states of any sign is
refused; that others are associative remains an assumption.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from tilewright.base.dtypes import DType
from tilewright.lang import arithmetic
from tilewright.lang.elementwise_table import UnaryFn
from tilewright.lang.enums import BinaryFn, CompareFn
from tilewright.lang.recorder import Combine, Node, Recorder
from tilewright.lang.source_locations import refuse
from tilewright.tile.elements import Binary, Cast, Compare, Constant, Fma, ScalarExpr, Select, Unary
from tilewright.tile.ops import ops_in, tile_type
from tilewright.tile.scans import COMBINES, Scan
from tilewright.tile.structure import Yield

SAMPLES = 64
"""Triples of states of each kind."""
_WITHIN = 1e-6
_SIGNED = (-2.0, 2.0), (-8, 8)
_POSITIVE = (0.25, 2.0), (1, 8)

Number: TypeAlias = bool | int | float
State: TypeAlias = tuple[Number, ...]


def skipping_absent(rec: Recorder, combine: Combine) -> Combine:
    """The same on states with one more value, which says whether the others are present."""

    def skipping(running: Sequence[Node], element: Sequence[Node]) -> list[Node]:
        (*before, begun), (*here, present) = running, element
        both = arithmetic.binary(rec, BinaryFn.AND, begun, present)
        found = [
            arithmetic.select(rec, both, new, arithmetic.select(rec, present, y, x))
            for new, x, y in zip(combine(before, here), before, here, strict=True)
        ]
        return [*found, arithmetic.binary(rec, BinaryFn.OR, begun, present)]

    return skipping


def check_combining(body: Block, kernel: Block) -> None:
    """Refuses (LNG038) a function that does anything but arithmetic on its states, numbers and runtime scalars."""
    for op in ops_in(body):
        outside = any(not _available(v, body, kernel) for v in op.operands)
        if isinstance(op, (*COMBINES, Yield)) and not outside:
            continue
        refuse(
            "LNG038",
            found="a scan's function that uses a tile from outside" if outside else f"{op.name} in a scan's function",
            required="arithmetic on its two states, numbers and runtime scalars",
            help="scan what the function needs besides: tw.scan(fn, (x, decay), axis)",
        )


def _available(value: SSAValue, body: Block, kernel: Block) -> bool:
    """A value of the body, or a runtime scalar of the kernel."""
    if isinstance(value, BlockArgument):
        return value.block is body or value.block is kernel
    return isinstance(value.owner, Operation) and value.owner.parent is body


def require_associative(scan: Scan) -> None:
    """Refuses (LNG039) a function that samples show not to be associative."""
    found = counterexample(scan)
    if found is not None:
        a, b, c = (", ".join(f"{x:.3g}" for x in state) for state in found)
        refuse(
            "LNG039",
            found=f"fn(fn(a, b), c) is not fn(a, fn(b, c)) for a = {a}, b = {b}, c = {c}",
            required="an associative function",
            help="carry a fragment through tw.stream(extent, None) for what depends on every step before",
        )


def counterexample(scan: Scan) -> tuple[State, State, State] | None:
    """Three states that a scan's function combines to two different ones; None if no sample shows any.

    None too where the function computes with numbers that are known at launch only.
    """
    ops, results = scan.combining
    known = {*scan.body.block.args, *(r for op in ops for r in op.results)}
    if any(isinstance(op, ScalarExpr) or not known.issuperset(op.operands) for op in ops) or not known.issuperset(
        results
    ):
        return None
    found = None
    for seed, (floats, integers) in enumerate((_POSITIVE, _SIGNED)):
        found = _disagreement(scan, ops, results, random.Random(seed), floats, integers)
        if found is None:
            return None
    return found


def _disagreement(
    scan: Scan,
    ops: Sequence[Operation],
    results: Sequence[SSAValue],
    rng: random.Random,
    floats: tuple[float, float],
    integers: tuple[int, int],
) -> tuple[State, State, State] | None:
    dtypes = [tile_type(v).element for v in scan.elements]
    arguments = scan.body.block.args

    def combine(x: State, y: State) -> State:
        values: dict[SSAValue, Number] = dict(zip(arguments, (*x, *y), strict=True))
        for op in ops:
            values[op.results[0]] = _computed(op, [values[v] for v in op.operands])
        return tuple(values[v] for v in results)

    def drawn(dtype: DType) -> Number:
        if dtype.is_bool:
            return rng.random() < 0.5
        return _of(rng.randint(*integers), dtype) if dtype.is_int else rng.uniform(*floats)

    for _ in range(SAMPLES):
        a, b, c = (tuple(map(drawn, dtypes)) for _ in range(3))
        left, right = combine(combine(a, b), c), combine(a, combine(b, c))
        if not all(map(_alike, left, right)):
            return a, b, c
    return None


def _alike(x: Number, y: Number) -> bool:
    if not (math.isfinite(x) and math.isfinite(y)):
        return True
    return x == y or (isinstance(x, float) and abs(x - y) <= _WITHIN * (1 + max(abs(x), abs(y))))


def _computed(op: Operation, args: Sequence[Any]) -> Number:
    """An op of a scan's body; NaN where it leaves Python's numbers."""
    dtype = tile_type(op.results[0]).element
    try:
        match op:
            case Constant():
                value: Any = op.value.data
            case Unary():
                value = _unary(op.fn.data, *args)
            case Binary():
                value = _BINARY[op.fn.data](*args)
            case Fma():
                value = args[0] * args[1] + args[2]
            case Compare():
                value = _COMPARE[op.fn.data](*args)
            case Select():
                value = args[1] if args[0] else args[2]
            case Cast():
                value = args[0]
            case _:
                raise AssertionError(f"{op.name} in a scan's body")
        return _of(value, dtype)
    except (OverflowError, ValueError, ZeroDivisionError):
        return math.nan if dtype.is_float else 0


def _of(value: Any, dtype: DType) -> Number:
    if dtype.is_bool:
        return bool(value)
    if dtype.is_float:
        return float(value)
    least, _ = dtype.integers
    return (int(value) - least) % (1 << dtype.bits) + least


def _not(x: Any) -> Any:
    return not x if isinstance(x, bool) else ~x


def _extremum(pick: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    return lambda a, b: math.nan if a != a or b != b else pick(a, b)


def _unary(fn: UnaryFn, x: Any) -> Any:
    if fn is UnaryFn.NEG:
        return -x
    if fn is UnaryFn.NOT:
        return _not(x)
    assert fn.row.number is not None
    return fn.row.number(x)


_BINARY: dict[BinaryFn, Callable[[Any, Any], Any]] = {
    BinaryFn.ADD: lambda a, b: a + b,
    BinaryFn.SUB: lambda a, b: a - b,
    BinaryFn.MUL: lambda a, b: a * b,
    BinaryFn.DIV: lambda a, b: a / b,
    BinaryFn.FLOORDIV: lambda a, b: a // b,
    BinaryFn.MOD: lambda a, b: a % b,
    BinaryFn.MIN: _extremum(min),
    BinaryFn.MAX: _extremum(max),
    BinaryFn.AND: lambda a, b: a & b,
    BinaryFn.OR: lambda a, b: a | b,
    BinaryFn.XOR: lambda a, b: a ^ b,
    BinaryFn.SHL: lambda a, b: a << (b & 63),
    BinaryFn.SHR: lambda a, b: a >> (b & 63),
    BinaryFn.POW: math.pow,
    BinaryFn.ATAN2: math.atan2,
    BinaryFn.FMOD: math.fmod,
    BinaryFn.HYPOT: math.hypot,
}
_COMPARE: dict[CompareFn, Callable[[Any, Any], bool]] = {
    CompareFn.EQ: lambda a, b: a == b,
    CompareFn.NE: lambda a, b: a != b,
    CompareFn.LT: lambda a, b: a < b,
    CompareFn.LE: lambda a, b: a <= b,
    CompareFn.GT: lambda a, b: a > b,
    CompareFn.GE: lambda a, b: a >= b,
}
