"""Floating-point arithmetic (PTX ISA 9.1, 9.7.3 to 9.7.6): correct rounding where the ISA rounds, a stated bound
where not.

Arithmetic gives the canonical NaN of its type; in f64 a NaN operand comes out, quiet, as on an H200 (which of several,
but for min and max, is not known: here the first). What the ISA approximates is computed as the function itself,
rounded to nearest; ``Row.bound`` says how far the hardware may be from it.
"""

# Lambdas of the table take modifiers or arrays, as ``Row.build`` and ``Function`` say.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import operator
from fractions import Fraction
from typing import Any

import numpy as np

from tilewright.ptx.opcodes.bit_vectors import SIGNED, unsigned
from tilewright.ptx.opcodes.formats import F32, F64, FORMATS, flush, is_nan, narrow, odd_sum, quiet, widen
from tilewright.ptx.opcodes.integers import COMPARE, combined
from tilewright.ptx.opcodes.rows import Bits, Function, Row

_U32 = np.uint32
_NATIVE: dict[str, Function] = {"add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv}


def canonical(bits: Bits, type: str) -> Bits:
    """NaNs of any payload as the one that arithmetic gives."""
    nan = is_nan(bits, type)
    return np.where(nan, unsigned(type)(FORMATS[type].nan), bits) if nan.any() else bits


def saturate(bits: Bits, type: str) -> Bits:
    """``.sat``: clamped to [0, 1]; NaN and what is negative give +0."""
    f = FORMATS[type]
    u = f.unsigned
    one = u(f.bias << f.mantissa)
    negative = bits >> u(f.bits - 1) != 0
    return np.where(negative | is_nan(bits, type), u(0), np.minimum(bits, one))


def _carrying(function: Function) -> Function:
    """f64 arithmetic: a NaN operand comes out, quiet."""

    def compute(*operands: Bits) -> Bits:
        result = function(*operands)
        for o in reversed(operands):
            result = np.where(is_nan(o, "f64"), quiet(o, "f64"), result)
        return result

    return compute


def _zero_sign(total: Bits, x: Bits, y: Bits) -> Bits:
    """Rounding down, a sum of 0 is negative but for (+0) + (+0)."""
    plus = ~np.signbit(x) & ~np.signbit(y)
    return np.where((total == 0) & ~plus, -0.0, total)


def arithmetic(name: str, mode: str, ftz: str, sat: str, type: str) -> Function:
    """``add``, ``sub``, ``mul``, ``div`` of two operands."""
    native = _NATIVE[name]

    def rounded(value: Bits) -> Bits:
        bits = narrow(value, type, mode, ftz=bool(ftz))
        return saturate(bits, type) if sat else bits

    def in_f32(a: Bits, b: Bits) -> Bits:
        bits = canonical(native(a.view(F32), b.view(F32)).view(_U32), type)
        return saturate(bits, type) if sat else bits

    def wide(a: Bits, b: Bits) -> Bits:
        if ftz:
            a, b = flush(a, type), flush(b, type)
        x, y = widen(a, type), widen(b, type)
        if name in ("mul", "div"):
            return rounded(native(x, y))
        y = -y if name == "sub" else y
        total = odd_sum(x, y) if type != "f64" else x + y
        return rounded(_zero_sign(total, x, y) if mode == "rm" else total)

    if type == "f64":
        return _carrying(wide)
    return in_f32 if type == "f32" and mode == "rn" and not ftz else wide


def fused(mode: str, ftz: str, sat: str, relu: str, type: str) -> Function:
    """``fma``: a * b + c with one rounding."""

    def compute(a: Bits, b: Bits, c: Bits) -> Bits:
        if ftz:
            a, b, c = flush(a, type), flush(b, type), flush(c, type)
        x, y, z = widen(a, type), widen(b, type), widen(c, type)
        if type == "f64":
            return narrow(np.asarray(_FMA64(x, y, z), F64), type)
        product = x * y
        total = odd_sum(product, z)
        total = _zero_sign(total, product, z) if mode == "rm" else total
        bits = narrow(total, type, mode, relu=bool(relu), ftz=bool(ftz))
        return saturate(bits, type) if sat else bits

    return _carrying(compute) if type == "f64" else compute


def _fma_of_two(x: float, y: float, z: float) -> float:
    if not np.isfinite([x, y, z]).all():
        return z if np.isfinite([x, y]).all() else x * y + z
    exact = Fraction(x) * Fraction(y) + Fraction(z)
    if not exact:
        return 0.0 if x * y != 0 else x * y + z
    try:
        return float(exact)
    except OverflowError:
        return np.inf if exact > 0 else -np.inf


_FMA64 = np.frompyfunc(_fma_of_two, 3, 1)


def _packed(lane: Function) -> Function:
    """An ``x2`` instruction, half by half."""

    def compute(*operands: Bits) -> Bits:
        low = lane(*((o & _U32(0xFFFF)).astype(np.uint16) for o in operands))
        high = lane(*((o >> _U32(16)).astype(np.uint16) for o in operands))
        return low.astype(_U32) | high.astype(_U32) << _U32(16)

    return compute


def _lanes(build: Any, type: str) -> Function:
    return _packed(build(type[:-2])) if type.endswith("x2") else build(type)


def _two(name: str) -> Any:
    def build(mode: str, ftz: str, sat: str, type: str) -> Function:
        return _lanes(lambda t: arithmetic(name, mode or "rn", ftz, sat, t), type)

    return build


def _fma(mode: str, ftz: str, sat: str, relu: str, type: str) -> Function:
    return _lanes(lambda t: fused(mode, ftz, sat, relu, t), type)


def _order(bits: Bits, type: str) -> Bits:
    """Patterns as integers in the order of the numbers, -0 before +0."""
    n = FORMATS[type].bits
    s = bits.view(SIGNED[n])
    return s ^ (s >> SIGNED[n](n - 1) & SIGNED[n]((1 << (n - 1)) - 1))


def _extremum(largest: bool) -> Any:
    def build(*chosen: str) -> Function:
        ftz, nan, xorsign = (name in chosen for name in ("ftz", "NaN", "xorsign"))
        return _lanes(lambda t: _extremum_of(largest, ftz, nan, xorsign, t), chosen[-1])

    return build


def _extremum_of(largest: bool, ftz: bool, nan: bool, xorsign: bool, type: str) -> Function:
    f = FORMATS[type]
    u = f.unsigned
    top = u(1 << (f.bits - 1))

    def compute(a: Bits, b: Bits) -> Bits:
        if ftz:
            a, b = flush(a, type), flush(b, type)
        sign = (a ^ b) & top
        if xorsign:
            a, b = a & ~top, b & ~top
        first = _order(a, type) > _order(b, type)
        result = np.where(first == largest, a, b)
        bad_a, bad_b = is_nan(a, type), is_nan(b, type)
        if nan:
            result = np.where(bad_a | bad_b, u(f.nan), result)
        else:
            result = np.where(bad_a, np.where(bad_b, quiet(b, type), b), np.where(bad_b, a, result))
        return np.where(is_nan(result, type), result, result | sign) if xorsign else result

    return compute


def _sign(name: str) -> Any:
    def lane(ftz: str, type: str) -> Function:
        top = unsigned(type)(1 << (FORMATS[type].bits - 1))

        def compute(a: Bits) -> Bits:
            a = flush(a, type) if ftz else a
            return np.where(is_nan(a, type), quiet(a, type), a ^ top if name == "neg" else a & ~top)

        return compute

    return lambda ftz, type: _lanes(lambda t: lane(ftz, t), type)


_FUNCTIONS: dict[str, Function] = {
    "rcp": np.reciprocal,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sin": np.sin,
    "cos": np.cos,
    "lg2": np.log2,
    "ex2": np.exp2,
    "tanh": np.tanh,
}


def _unary(name: str, mode: str, ftz: str, type: str) -> Function:
    f = _FUNCTIONS[name]

    def lane(t: str) -> Function:
        def compute(a: Bits) -> Bits:
            x = widen(flush(a, t) if ftz else a, t)
            return narrow(f(x), t, mode, ftz=bool(ftz))

        return _carrying(compute) if t == "f64" else compute

    return _lanes(lane, type)


def _approximate(name: str) -> Any:
    return lambda _approx, ftz, type: _unary(name, "rn", ftz, type)


def _rounded(name: str) -> Any:
    return lambda mode, ftz, type: _unary(name, mode, ftz, type)


def compare(how: str, x: Bits, y: Bits) -> Bits:
    """A comparison of floats; the ``u`` forms hold where an operand is NaN, the others don't."""
    nan = np.isnan(x) | np.isnan(y)
    if how in ("num", "nan"):
        return nan if how == "nan" else ~nan
    if how[-1] == "u" and how[:-1] in COMPARE:
        return COMPARE[how[:-1]](x, y) | nan
    return COMPARE[how](x, y) & ~nan


def _test(how: str, ftz: str, type: str) -> Function:
    """(it holds, it doesn't); of a packed type, (it holds of the lower halves, of the upper)."""
    single = type.removesuffix("x2")

    def holds(a: Bits, b: Bits) -> Bits:
        if ftz:
            a, b = flush(a, single), flush(b, single)
        x, y = (a.view(F32), b.view(F32)) if single == "f32" else (widen(a, single), widen(b, single))
        return compare(how, x, y)

    def of_one(a: Bits, b: Bits) -> tuple[Bits, Bits]:
        found = holds(a, b)
        return found, ~found

    def of_two(a: Bits, b: Bits) -> tuple[Bits, Bits]:
        low = holds((a & _U32(0xFFFF)).astype(np.uint16), (b & _U32(0xFFFF)).astype(np.uint16))
        return low, holds((a >> _U32(16)).astype(np.uint16), (b >> _U32(16)).astype(np.uint16))

    return of_one if single == type else of_two


def _test_combined(how: str, combine: str, ftz: str, type: str) -> Function:
    return combined(_test(how, ftz, type), combine)


def _set(how: str, ftz: str, to: str, type: str) -> Function:
    test = _test(how, ftz, type)
    true = _U32(0x3F800000 if to == "f32" else 0xFFFFFFFF)
    return lambda a, b: np.where(test(a, b)[0], true, _U32(0))


def _testp(what: str, type: str) -> Function:
    f = FORMATS[type]
    u = f.unsigned
    infinity = u(((1 << (f.bits - 1 - f.mantissa)) - 1) << f.mantissa)

    def compute(a: Bits) -> Bits:
        m = a & u((1 << (f.bits - 1)) - 1)
        return {
            "finite": m < infinity,
            "infinite": m == infinity,
            "number": m <= infinity,
            "notanumber": m > infinity,
            "normal": (m < infinity) & ((m >= u(1 << f.mantissa)) | (m == 0)),  # zero is: measured on an H200
            "subnormal": (m < u(1 << f.mantissa)) & (m > 0),
        }[what]

    return compute


def _copysign(type: str) -> Function:
    u = unsigned(type)
    top = u(1 << (FORMATS[type].bits - 1))
    return lambda a, b: b & ~top | a & top


_MODES = "rn/rz/rm/rp"
_HALF = "f16/f16x2/bf16/bf16x2"
_HOW = "eq/ne/lt/le/gt/ge/equ/neu/ltu/leu/gtu/geu/num/nan"
_ABOUT = "PTX ISA 9.1, 9.7.3"
_NEAR_ZERO = f"2^-20.5 absolute in [-pi, pi], none beyond: an H200 gives 0 or 1 far out ({_ABOUT}.{{}})"

ROWS: tuple[Row, ...] = (
    *(Row(f"{n} {_MODES}? ftz? sat? f32", "w r r", _two(n)) for n in ("add", "sub", "mul")),
    *(Row(f"{n} rn? f64", "w r r", lambda m, t, n=n: arithmetic(n, "rn", "", "", t)) for n in ("add", "sub", "mul")),
    *(Row(f"{n} rn? ftz? sat? f16/f16x2", "w r r", _two(n)) for n in ("add", "sub", "mul")),
    *(Row(f"{n} rn? bf16/bf16x2", "w r r", lambda m, t, n=n: _two(n)(m, "", "", t)) for n in ("add", "sub", "mul")),
    Row(f"fma {_MODES} ftz? sat? f32", "w r r r", lambda m, z, s, t: fused(m, z, s, "", t)),
    Row(f"mad {_MODES} ftz? sat? f32", "w r r r", lambda m, z, s, t: fused(m, z, s, "", t)),
    Row("fma rn f64", "w r r r", lambda m, t: fused(m, "", "", "", t)),
    Row("fma rn ftz? sat? f16/f16x2", "w r r r", lambda m, z, s, t: _fma(m, z, s, "", t)),
    Row("fma rn ftz? relu f16/f16x2", "w r r r", lambda m, z, r, t: _fma(m, z, "", r, t)),
    Row("fma rn relu? bf16/bf16x2", "w r r r", lambda m, r, t: _fma(m, "", "", r, t)),
    Row(f"div {_MODES} ftz? f32", "w r r", lambda m, z, t: arithmetic("div", m, z, "", t)),
    Row("div rn f64", "w r r", lambda m, t: arithmetic("div", m, "", "", t)),
    Row(
        "div approx ftz? f32",
        "w r r",
        lambda _, z, t: arithmetic("div", "rn", z, "", t),
        bound=f"2 ulp for |b| in [2^-126, 2^126]; 0 for finite a and greater |b| ({_ABOUT}.8)",
    ),
    Row("div full ftz? f32", "w r r", lambda _, z, t: arithmetic("div", "rn", z, "", t), bound=f"2 ulp ({_ABOUT}.8)"),
    *(Row(f"{n} {_MODES} ftz? f32", "w r", _rounded(n)) for n in ("rcp", "sqrt")),
    *(Row(f"{n} rn f64", "w r", lambda m, t, n=n: _unary(n, m, "", t)) for n in ("rcp", "sqrt")),
    Row("rcp approx ftz? f32", "w r", _approximate("rcp"), bound=f"1 ulp ({_ABOUT}.14)"),
    Row("sqrt approx ftz? f32", "w r", _approximate("sqrt"), bound=f"2^-23 relative ({_ABOUT}.16)"),
    Row("rsqrt approx ftz? f32", "w r", _approximate("rsqrt"), bound=f"2^-22.9 relative ({_ABOUT}.17)"),
    Row("sin approx ftz? f32", "w r", _approximate("sin"), bound=_NEAR_ZERO.format(19)),
    Row("cos approx ftz? f32", "w r", _approximate("cos"), bound=_NEAR_ZERO.format(20)),
    Row(
        "lg2 approx ftz? f32",
        "w r",
        _approximate("lg2"),
        bound=f"2^-22 absolute in (0.5, 2), else relative ({_ABOUT}.21)",
    ),
    Row("ex2 approx ftz? f32", "w r", _approximate("ex2"), bound=f"2 ulp ({_ABOUT}.22)"),
    Row(
        "ex2 approx f16/f16x2",
        "w r",
        lambda m, t: _unary("ex2", "rn", "", t),
        bound="2^-9.9 relative (PTX ISA 9.1, 9.7.4.8)",
    ),
    Row("ex2 approx ftz bf16/bf16x2", "w r", _approximate("ex2"), bound="2^-7 relative (PTX ISA 9.1, 9.7.4.8)"),
    Row("tanh approx f32", "w r", lambda m, t: _unary("tanh", "rn", "", t), bound=f"2^-11 relative ({_ABOUT}.23)"),
    Row("tanh approx f16/f16x2", "w r", lambda m, t: _unary("tanh", "rn", "", t), bound="2^-10.987 absolute"),
    Row("tanh approx bf16/bf16x2", "w r", lambda m, t: _unary("tanh", "rn", "", t), bound="2^-8 absolute"),
    *(Row(f"{n} ftz? f32/f16/f16x2", "w r", _sign(n)) for n in ("neg", "abs")),
    *(Row(f"{n} bf16/bf16x2/f64", "w r", lambda t, n=n: _sign(n)("", t)) for n in ("neg", "abs")),
    *(
        Row(f"{n} {modifiers}", "w r r", _extremum(n == "max"))
        for n in ("min", "max")
        for modifiers in (
            "ftz? NaN? f32/f16/f16x2",
            "ftz? NaN? xorsign abs f32/f16/f16x2",
            "NaN? bf16/bf16x2",
            "NaN? xorsign abs bf16/bf16x2",
            "f64",
        )
    ),
    Row(f"setp {_HOW} ftz? f32/f16/f16x2", "w:pred r r", _test),
    Row(f"setp {_HOW} bf16/bf16x2/f64", "w:pred r r", lambda how, t: _test(how, "", t)),
    Row(f"setp {_HOW} and/or/xor ftz? f32/f16/f16x2", "w:pred r r r:pred", _test_combined),
    Row(
        f"setp {_HOW} and/or/xor bf16/bf16x2/f64", "w:pred r r r:pred", lambda how, c, t: _test_combined(how, c, "", t)
    ),
    Row(f"set {_HOW} ftz? u32/s32/f32 f32", "w:$2 r r", _set),
    Row("testp finite/infinite/number/notanumber/normal/subnormal f32/f64", "w:pred r", _testp),
    Row("copysign f32/f64", "w r r", _copysign),
)
