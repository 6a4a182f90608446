"""Scalar arithmetic of map bodies, folds and shuffles as C.

Floats narrower than f32 are computed in f32 and rounded to their dtype after each operation, as NumPy and PyTorch do;
integers of 8 and 16 bits are computed in ``int``. Integers wrap: their sums and products use unsigned types, for which
C defines overflow. A value that is stored directly into a buffer of its own dtype is rounded by the packing conversion
instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from xdsl.ir import Block, SSAValue

from tilewright.base.dtypes import DType
from tilewright.base.expr import Expr
from tilewright.codegen.storage import Storage
from tilewright.lang.elementwise_table import UnaryFn
from tilewright.tile import dialect as tile
from tilewright.tile.ops import ops_in
from tilewright.transport import dialect as t


@dataclass(frozen=True)
class CScalar:
    """A C expression for a value: ``raw`` before rounding to the dtype, ``value`` after."""

    raw: str
    value: str


_BINARY_FLOAT = {  # intrinsics are never fused, whatever the options; ``assemble`` refuses PTX that could be
    "add": "__fadd_rn({0}, {1})",
    "sub": "__fsub_rn({0}, {1})",
    "mul": "__fmul_rn({0}, {1})",
    "div": "{0} / {1}",
    "floordiv": "floor_div_f32({0}, {1})",
    "mod": "floor_mod_f32({0}, {1})",
    "min": "min_nan({0}, {1})",
    "max": "max_nan({0}, {1})",
    "pow": "powf({0}, {1})",
    "atan2": "atan2f({0}, {1})",
    "fmod": "fmodf({0}, {1})",
    "hypot": "hypotf({0}, {1})",
}
_BINARY_INT = {
    "add": "({type})(({unsigned}){0} + ({unsigned}){1})",
    "sub": "({type})(({unsigned}){0} - ({unsigned}){1})",
    "mul": "({type})(({unsigned}){0} * ({unsigned}){1})",
    "floordiv": "floor_div({0}, {1})",
    "mod": "floor_mod({0}, {1})",
    "min": "({0} < {1} ? {0} : {1})",
    "max": "({0} > {1} ? {0} : {1})",
    "and": "{0} & {1}",
    "or": "{0} | {1}",
    "xor": "{0} ^ {1}",
    "shl": "shift_left({0}, {1})",
    "shr": "shift_right({0}, {1})",
}
_STAYS = frozenset(("and", "or", "xor", "shr", "mod", "min", "max"))
"""Functions of two integers of a dtype whose value is one of the dtype."""
_BINARY_BOOL = {
    "add": "{0} || {1}",
    "mul": "{0} && {1}",
    "min": "{0} && {1}",
    "max": "{0} || {1}",
    "and": "{0} && {1}",
    "or": "{0} || {1}",
    "xor": "{0} != {1}",
}
_COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


def literal(value: float | int, dtype: DType) -> str:
    """A C literal of ``value``; hexadecimal for floats, so that no digit is lost."""
    if dtype.is_bool:
        return "true" if value else "false"
    if dtype.is_int:
        value = int(value)
        if dtype.bits == 64:
            return "(-9223372036854775807LL - 1)" if value == -(2**63) else f"{value}LL"
        if dtype.bits == 32 and not dtype.signed:
            return f"{value}u"
        return "(-2147483647 - 1)" if value == -(2**31) else str(value)
    value = float(value)
    if math.isnan(value):
        return "__int_as_float(0x7fffffff)"
    if math.isinf(value):
        return f"__int_as_float(0x{'ff' if value < 0 else '7f'}800000)"
    if value != int(value) or abs(value) >= 1e6:
        return f"{float.hex(value)}f"
    return f"{'-' if math.copysign(1, value) < 0 else ''}{abs(int(value))}.f"


def emit_scalar_body(
    body: Block,
    inputs: Mapping[SSAValue, tuple[Storage, str, str]],
    scalars: Mapping[SSAValue, str],
    integer: Callable[[Expr], str],
    line: Callable[[str], None],
) -> list[CScalar]:
    """Writes the body's statements through ``line``; returns the yielded values.

    ``inputs`` maps a block argument to (storage, buffer, index); ``scalars`` a kernel argument to its C name;
    ``integer`` prints an integer expression.
    """
    values: dict[SSAValue, CScalar] = {}
    for arg, (storage, buffer, index) in inputs.items():
        name = f"x{len(values)}"
        line(f"const {storage.compute} {name} = {storage.get(buffer, index)};")
        values[arg] = CScalar(name, name)

    def get(value: SSAValue) -> str:
        return scalars[value] if value in scalars else values[value].value

    for op in ops_in(body):
        if isinstance(op, t.Yield):
            return [values[v] if v in values else CScalar(scalars[v], scalars[v]) for v in op.values]
        result = op.results[0]
        assert isinstance(result.type, tile.TileType)
        dtype = result.type.dtype.dtype
        storage, name = Storage(dtype, 1), f"x{len(values)}"
        text, exact = _operation(op, dtype, get, integer)
        line(f"const {storage.compute} {name} = {text};")
        rounds = storage.narrower and not exact
        values[result] = CScalar(name, f"{dtype.name}_round({name})" if rounds else name)
    raise AssertionError("a map's body ends with a yield")


def _operation(
    op: object, dtype: DType, get: Callable[[SSAValue], str], integer: Callable[[Expr], str]
) -> tuple[str, bool]:
    """C text of one scalar op and whether its value is already representable in its dtype."""
    match op:
        case tile.Constant():
            return literal(op.value.data, dtype), True
        case tile.ScalarExpr() | t.Predicate():
            return integer(op.expr.expr), True
        case tile.Unary():
            row, x = op.fn.data.row, get(op.operands[0])
            if dtype.is_float:
                return row.c.format(x), row.exact
            if dtype.is_bool:
                return f"!{x}", True
            return row.c_integer.format(x), op.fn.data is UnaryFn.NOT and dtype.signed
        case tile.Binary():
            fn, a, b = op.fn.data, get(op.operands[0]), get(op.operands[1])
            exact = fn in ("min", "max") if dtype.is_float else dtype.is_bool or fn in _STAYS
            power = _power_of_two(op) if dtype.is_int else None
            if power is not None:  # of a negative number, too, shifts and masks are those of the floor
                return (f"{a} >> {power}" if fn == "floordiv" else f"{a} & {literal((1 << power) - 1, dtype)}"), True
            return _combine(fn, dtype, a, b), exact
        case tile.Fma() | t.Fma():
            return f"__fmaf_rn({', '.join(map(get, op.operands))})", True
        case t.Approximate():
            return f"{op.fn.data}_approx({get(op.x)})", True
        case t.ExponentScale():
            return f"exponent_scale({get(op.scale)}, {get(op.b)})", True
        case tile.Compare():
            return f"{get(op.operands[0])} {_COMPARE[op.fn.data]} {get(op.operands[1])}", True
        case tile.Select():
            c, a, b = (get(v) for v in op.operands)
            return f"{c} ? {a} : {b}", True
        case tile.Bitcast():
            return _of_bits(dtype, _bits(tile.tile_type(op.x).element, get(op.x))), True
        case tile.Cast():
            return _cast(op, dtype, get)
        case _:
            raise TypeError(f"no C for {op}")


def _bits(dtype: DType, x: str) -> str:
    """The bits of an element, in the low ones of a word."""
    if not dtype.is_float:
        return f"(unsigned){x}"
    return f"__float_as_uint({x})" if dtype.bits == 32 else f"(unsigned){dtype.name}_bits({x})"


def _of_bits(dtype: DType, word: str) -> str:
    """The element that has the low bits of a word."""
    if dtype.is_float:
        return f"__uint_as_float({word})" if dtype.bits == 32 else f"{dtype.name}_get({word}, 0)"
    if dtype.bits == 32:
        return f"({Storage(dtype, 1).compute})({word})"
    return f"{dtype.name}_round((int)({word}))"


def _power_of_two(op: tile.Binary) -> int | None:
    """The k of a division by the constant 2**k."""
    divisor = op.operands[1].owner
    if op.fn.data not in ("floordiv", "mod") or not isinstance(divisor, tile.Constant):
        return None
    n = int(divisor.value.data)
    return n.bit_length() - 1 if n > 0 and n & (n - 1) == 0 else None


def _cast(op: tile.Cast, dtype: DType, get: Callable[[SSAValue], str]) -> tuple[str, bool]:
    operand = op.operands[0]
    assert isinstance(operand.type, tile.TileType)
    source, x = operand.type.dtype.dtype, get(operand)
    if dtype.is_bool:
        return (x if source.is_bool else f"{x} != 0"), True
    if dtype.name == "e5m2" and source.is_float:
        return f"e5m2_finite({x})", False
    if dtype.is_float:
        widened = source.is_float and source.digits <= dtype.digits and source.bits <= dtype.bits
        return (x if source.is_float else f"(float){x}"), widened and (source == dtype or dtype.bits == 32)
    if source.is_float:  # of C's own casts only values in range are defined
        return f"{dtype.name}_of_f32({x})", True
    return f"({Storage(dtype, 1).compute}){x}", source.is_bool or dtype.holds(source)


def _combine(fn: str, dtype: DType, a: str, b: str) -> str:
    fn = {"sum": "add", "prod": "mul"}.get(fn, fn)
    if dtype.is_float:
        return _BINARY_FLOAT[fn].format(a, b)
    if dtype.is_bool:
        return _BINARY_BOOL[fn].format(a, b)
    kind = Storage(dtype, 1).compute
    return _BINARY_INT[fn].format(a, b, type=kind, unsigned=f"unsigned {kind.removeprefix('unsigned')}".strip())


Buffers = Sequence[tuple[Storage, str]]


def fold_step(fn: str, values: Sequence[str], targets: Buffers, into: str) -> list[str]:
    """Statements that reduce ``values`` into register ``into`` of the targets."""
    target, y = targets[0]
    if fn == "argmax":
        index_target, yi = targets[1]
        value, at = values
        old, old_at = target.get(y, into), index_target.get(yi, into)
        return [
            f"if (argmax_take({old}, {old_at}, {value}, {at})) {{ {target.put(y, into, value)} "
            f"{index_target.put(yi, into, at)} }}"
        ]
    return [target.put(y, into, _combine(fn, target.dtype, target.get(y, into), values[0]))]


def shuffle_step(fn: str, buffers: Buffers, distance: int) -> list[str]:
    """Statements of one butterfly step on register ``r``; buffers hold 32- or 64-bit elements.

    A shuffle is a statement of its own: all lanes of the warp must take part, whatever is then done with the result.
    """
    storage, x = buffers[0]
    place = storage.get(x, "r")
    other = f"__shfl_xor_sync(0xffffffffu, {place}, {distance})"
    if fn == "argmax":
        index_storage, xi = buffers[1]
        at = index_storage.get(xi, "r")
        return [
            f"{{ const {storage.compute} b = {other}; const int j = __shfl_xor_sync(0xffffffffu, {at}, {distance}); "
            f"if (argmax_take({place}, {at}, b, j)) {{ {place} = b; {at} = j; }} }}"
        ]
    combined = storage.put(x, "r", _combine(fn, storage.dtype, place, "b"))
    return [f"{{ const {storage.compute} b = {other}; {combined} }}"]
