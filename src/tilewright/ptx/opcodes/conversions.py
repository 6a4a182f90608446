"""``cvt`` in all its forms (PTX ISA 9.1, 9.7.9.21)."""

# Lambdas of the table take modifiers or arrays, as ``Row.build`` and ``Function`` say.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.ptx.opcodes.bit_vectors import (
    SIGNED,
    UNSIGNED,
    is_signed,
    leading_zeros,
    number,
    resize,
    unsigned,
    width,
)
from tilewright.ptx.opcodes.floats import canonical, saturate
from tilewright.ptx.opcodes.formats import F64, bf16_of_f32, flush, is_nan, narrow, quiet_as, widen
from tilewright.ptx.opcodes.rows import Bits, Function, Row

_U32, _U64 = np.uint32, np.uint64
_WIDE_INTEGERS = "u16/u32/u64/s16/s32/s64"
_INTEGERS = "u8/u16/u32/u64/s8/s16/s32/s64"
_TO_WHOLE: dict[str, Any] = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


def _range(type: str) -> tuple[int, int]:
    bits = width(type)
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if is_signed(type) else (0, (1 << bits) - 1)


def _integers(sat: str, to: str, of: str) -> Function:
    low, high = (
        max(a, b) if i == 0 else min(a, b) for i, (a, b) in enumerate(zip(_range(to), _range(of), strict=True))
    )

    def compute(a: Bits) -> Bits:
        if sat:
            n = number(a, of)
            a = np.clip(n, n.dtype.type(low), n.dtype.type(high)).view(a.dtype)
        return resize(a, of, width(to))

    return compute


def _to_integer(mode: str, ftz: str, to: str, of: str) -> Function:
    bits = width(to)
    low, high = _range(to)
    nan = 0 if bits < 64 and of != "f64" else 1 << (bits - 1)

    def compute(a: Bits) -> Bits:
        x = widen(flush(a, of) if ftz else a, of)
        whole = _TO_WHOLE[mode](x)
        above, below = whole >= float(high + 1), whole < float(low)
        inside = np.where(above | below | np.isnan(whole), 0.0, whole)
        exact = inside.astype(np.int64 if is_signed(to) else _U64).astype((SIGNED if is_signed(to) else UNSIGNED)[bits])
        u = UNSIGNED[bits]
        result = np.where(above, u(high), np.where(below, u(low & ((1 << bits) - 1)), exact.view(u)))
        return np.where(np.isnan(x), u(nan), result)

    return compute


def _exact(a: Bits, of: str) -> Bits:
    """An integer as f64, rounded to odd where it has more than 53 bits."""
    n = number(a, of)
    if width(of) < 64:
        return n.astype(F64)
    negative = n < 0
    magnitude = np.where(negative, _U64(0) - a, a)
    large = magnitude >> _U64(53) != 0
    sticky = magnitude >> _U64(11) | ((magnitude & _U64(0x7FF)) != 0).astype(_U64)
    value = np.where(large, sticky.astype(F64) * 2048.0, np.where(large, _U64(0), magnitude).astype(F64))
    return np.where(negative, -value, value)


def _as_f64(a: Bits, of: str, mode: str) -> Bits:
    """A 64-bit integer as f64, rounded to nearest or in a direction."""
    n = number(a, of)
    if mode == "rn" or width(of) < 64:
        return n.astype(F64)
    negative = n < 0
    magnitude = np.where(negative, _U64(0) - a, a)
    drop = np.maximum(11 - leading_zeros(magnitude).astype(np.int64), 0).astype(_U64)
    cut = magnitude >> drop << drop
    outward = (cut != magnitude) & {"rz": np.False_, "rm": negative, "rp": ~negative}[mode]
    value = cut.astype(F64) + np.where(outward, _U64(1) << drop, _U64(0)).astype(F64)
    return np.where(negative, -value, value)


def _from_integer(mode: str, sat: str, to: str, of: str) -> Function:
    def compute(a: Bits) -> Bits:
        value = _exact(a, of) if to != "f64" else _as_f64(a, of, mode)
        result = narrow(value, to, mode)
        return saturate(result, to) if sat else result

    return compute


def _floats(mode: str, ftz: str, sat: str, to: str, of: str) -> Function:
    """NaNs become canonical; from and to f64 they keep sign and payload. To f16 ``.ftz`` means nothing (an H200)."""

    def compute(a: Bits) -> Bits:
        a = canonical(flush(a, of), of) if ftz and of == "f32" and to != "f16" else a
        value = widen(a, of)
        value = _TO_WHOLE[mode](value) if mode in _TO_WHOLE else value
        result = narrow(value, to, mode if mode and mode not in _TO_WHOLE else "rn", ftz=bool(ftz) and to == "f32")
        result = np.where(is_nan(a, of), quiet_as(a, of, to), result) if "f64" in (to, of) else result
        return saturate(result, to) if sat else result

    return compute


def _moved(ftz: str, sat: str, to: str, of: str) -> Function:
    """Between equal types, and from bf16 to f32, patterns move as they are, signaling NaNs with them (an H200)."""
    if ftz or sat:
        return _floats("", ftz, sat, to, of)
    return (lambda a: a) if to == of else lambda a: a.astype(_U32) << _U32(16)


def _tf32_away(satfinite: str, _to: str, _of: str) -> Function:
    """``.rna`` as an H200 has it: half a unit is added, then bits are cut off, a NaN's too (which may leave infinity);
    ``.satfinite`` takes one unit off all that is not finite."""
    half, cut, infinity, magnitude = _U32(0x1000), _U32(0xFFFFE000), _U32(0x7F800000), _U32(0x7FFFFFFF)

    def compute(a: Bits) -> Bits:
        rounded = np.where((a & magnitude) >= infinity, a, a + half) & cut
        return np.where((rounded & magnitude) >= infinity, rounded - _U32(0x2000), rounded) if satfinite else rounded

    return compute


def _one(mode: str, relu: str, satfinite: str, to: str, of: str) -> Function:
    return lambda a: narrow(widen(a, of), to, mode, finite=bool(satfinite), relu=bool(relu))


def _joined(low: Bits, high: Bits, half: int) -> Bits:
    u = UNSIGNED[2 * half]
    return low.astype(u) | high.astype(u) << u(half)


def _two(mode: str, relu: str, satfinite: str, to: str, of: str) -> Function:
    """Two values into a pair: the first operand above, the second below."""
    half = to.removesuffix("x2")
    if (mode, relu, satfinite, half, of) == ("rn", "", "", "bf16", "f32"):
        return lambda a, b: _joined(bf16_of_f32(b), bf16_of_f32(a), 16)

    def compute(a: Bits, b: Bits) -> Bits:
        low, high = (narrow(widen(v, of), half, mode, finite=bool(satfinite), relu=bool(relu)) for v in (b, a))
        return _joined(low, high, width(half))

    return compute


def _pair(mode: str, relu: str, satfinite: str, to: str, of: str) -> Function:
    """A pair into a pair."""
    source, target = of.removesuffix("x2"), to.removesuffix("x2")
    bits = width(source)

    def compute(a: Bits) -> Bits:
        u, narrower = a.dtype.type, unsigned(source)
        parts = ((a & u((1 << bits) - 1)).astype(narrower), (a >> u(bits)).astype(narrower))
        low, high = (narrow(widen(p, source), target, mode, bool(satfinite), bool(relu)) for p in parts)
        return _joined(low, high, width(target))

    return compute


def _pack(_pack: str, _sat: str, to: str, of: str, rest: str) -> Function:
    """``cvt.pack.sat``: two s32 clamped and packed below the low bits of the third operand."""
    low, high = _range(to)
    bits = width(to)

    def compute(a: Bits, b: Bits, c: Bits | None = None) -> Bits:
        mask = _U32((1 << bits) - 1)
        x, y = (np.clip(v.view(np.int32), low, high).astype(np.int32).view(_U32) & mask for v in (a, b))
        packed = x << _U32(bits) | y
        return packed if c is None else packed | c << _U32(2 * bits)

    return compute


_CLAMPED = [
    (to, of)
    for to in _INTEGERS.split("/")
    for of in _INTEGERS.split("/")
    if _range(of)[0] < _range(to)[0] or _range(of)[1] > _range(to)[1]
]
"""(to, of): ``.sat`` is legal where the source has values that the destination lacks."""
_EIGHT = "e4m3x2/e5m2x2"

ROWS: tuple[Row, ...] = (
    Row(f"cvt {_INTEGERS} {_INTEGERS}", "w:$0 r", lambda to, of: _integers("", to, of)),
    *(Row(f"cvt sat {to} {of}", "w:$1 r", _integers) for to, of in _CLAMPED),
    Row(f"cvt rni/rzi/rmi/rpi sat? {_INTEGERS} f16/f64", "w:$2 r", lambda m, s, to, of: _to_integer(m, "", to, of)),
    Row(f"cvt rni/rzi/rmi/rpi ftz? sat? {_INTEGERS} f32", "w:$3 r", lambda m, z, s, to, of: _to_integer(m, z, to, of)),
    Row(f"cvt rni/rzi/rmi/rpi {_WIDE_INTEGERS} bf16", "w:$1 r", lambda m, to, of: _to_integer(m, "", to, of)),
    Row(f"cvt rn/rz/rm/rp sat? f16/f32/f64 {_INTEGERS}", "w:$2 r", _from_integer),
    Row(f"cvt rn/rz/rm/rp bf16 {_WIDE_INTEGERS}", "w:$1 r", lambda m, to, of: _from_integer(m, "", to, of)),
    Row("cvt rni/rzi/rmi/rpi? sat? f16 f16", "w r", lambda m, s, to, of: _floats(m, "", s, to, of)),
    Row("cvt rni/rzi/rmi/rpi sat? f64 f64", "w r", lambda m, s, to, of: _floats(m, "", s, to, of)),
    Row("cvt rni/rzi/rmi/rpi ftz? sat? f32 f32", "w r", _floats),
    Row("cvt sat? f64 f64", "w r", lambda s, to, of: _moved("", s, to, of)),
    Row("cvt ftz? sat? f32 f32", "w r", _moved),
    Row("cvt rni/rzi/rmi/rpi bf16 bf16", "w r", lambda m, to, of: _floats(m, "", "", to, of)),
    Row("cvt ftz? sat? f32 f16", "w:$2 r", lambda z, s, to, of: _floats("", z, s, to, of)),
    Row("cvt f32 bf16", "w:$0 r", lambda to, of: _moved("", "", to, of)),
    Row("cvt f64 bf16", "w:$0 r", lambda to, of: _floats("", "", "", to, of)),
    Row("cvt sat? f64 f16", "w:$1 r", lambda s, to, of: _floats("", "", s, to, of)),
    Row("cvt ftz? sat? f64 f32", "w:$2 r", lambda z, s, to, of: _floats("", z, s, to, of)),
    Row("cvt rn/rz/rm/rp ftz? sat? f32 f64", "w:$3 r", _floats),
    Row("cvt rn/rz/rm/rp ftz? sat? f16 f32", "w:$3 r", _floats),
    Row("cvt rn/rz/rm/rp sat? f16 f64", "w:$2 r", lambda m, s, to, of: _floats(m, "", s, to, of)),
    Row("cvt rn/rz/rm/rp bf16 f16/f64", "w:$1 r", lambda m, to, of: _floats(m, "", "", to, of)),
    Row("cvt rn/rz/rm/rp f16 bf16", "w:$1 r", lambda m, to, of: _floats(m, "", "", to, of)),
    Row("cvt rn/rz relu satfinite? f16/bf16 f32", "w:$3 r", _one),
    Row("cvt rn/rz satfinite f16/bf16 f32", "w:$2 r", lambda m, s, to, of: _one(m, "", s, to, of)),
    Row("cvt rn/rz/rm/rp bf16 f32", "w:$1 r", lambda m, to, of: _floats(m, "", "", to, of)),
    Row("cvt rn/rz relu? satfinite? f16x2/bf16x2 f32", "w:$3 r r", _two),
    Row("cvt rna satfinite? tf32 f32", "w:b32 r", lambda _mode, s, to, of: _tf32_away(s, to, of)),
    Row("cvt rn/rz satfinite? relu? tf32 f32", "w:b32 r", lambda m, s, r, to, of: _one(m, r, s, to, of)),
    Row(f"cvt rn satfinite relu? {_EIGHT} f32", "w:b16 r r", lambda m, s, r, to, of: _two(m, r, s, to, of)),
    Row(f"cvt rn satfinite relu? {_EIGHT} f16x2", "w:b16 r", lambda m, s, r, to, of: _pair(m, r, s, to, of)),
    Row(f"cvt rn relu? f16x2 {_EIGHT}", "w:b32 r:b16", lambda m, r, to, of: _pair(m, r, "", to, of)),
    Row("cvt pack sat u16/s16 s32", "w:b32 r:s32 r:s32", lambda p, s, to, of: _pack(p, s, to, of, "")),
    Row("cvt pack sat u8/s8 s32 b32", "w:b32 r:s32 r:s32 r:b32", _pack),
)
