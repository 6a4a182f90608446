"""What PTX instructions compute, once more: Python integers and fractions, one lane at a time, written from the ISA's
text; where that
leaves results open, from what an H200 gives (``tests/data/opcodes_h200.json``).

Shares nothing with ``tilewright.ptx.opcodes`` but the spelling of opcodes.
"""

# ruff: noqa: E501 - tables, a case a line

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

FLOATS = {  # name: (bits, mantissa bits, has infinity)
    "f64": (64, 52, True), "f32": (32, 23, True), "f16": (16, 10, True), "bf16": (16, 7, True), "tf32": (19, 10, True),
    "e4m3": (8, 3, False), "e5m2": (8, 2, True),
}  # fmt: skip
NAN = {
    "f64": 0xFFF8 << 48,
    "f32": 0x7FFFFFFF,
    "f16": 0x7FFF,
    "bf16": 0x7FFF,
    "e4m3": 0x7F,
    "e5m2": 0x7F,
    "tf32": 0x7FFFE000,
}


@dataclass(frozen=True)
class Number:
    """A float: its sign, whether NaN or infinite, else its magnitude."""

    minus: bool
    size: Fraction = Fraction(0)
    special: str = ""

    @property
    def value(self) -> Fraction:
        return -self.size if self.minus else self.size

    @property
    def key(self) -> tuple[Fraction | float, bool]:
        if self.special:
            return (-math.inf if self.minus else math.inf), not self.minus
        return self.value, not self.minus


def bits_of(type: str) -> int:
    if type == "pred":
        return 1
    if type in FLOATS:
        return 32 if type == "tf32" else FLOATS[type][0]
    return {"f16x2": 32, "bf16x2": 32, "u16x2": 32, "s16x2": 32, "e4m3x2": 16, "e5m2x2": 16}.get(type) or int(type[1:])


def signed(x: int, type: str) -> int:
    n = bits_of(type)
    return x - (1 << n) if type[0] == "s" and x >> (n - 1) else x


def decode(x: int, name: str) -> Number:
    bits, mantissa, infinite = FLOATS[name]
    if name == "tf32":
        return decode(x, "f32")
    width = bits - 1 - mantissa
    bias = (1 << (width - 1)) - 1
    minus, field, fraction = bool(x >> (bits - 1)), x >> mantissa & ((1 << width) - 1), x & ((1 << mantissa) - 1)
    if field == (1 << width) - 1 and (infinite or fraction == (1 << mantissa) - 1):
        return Number(minus, special="nan" if fraction or not infinite else "inf")
    lead = (1 << mantissa) if field else 0
    return Number(minus, (lead + fraction) * Fraction(2) ** (max(field, 1) - bias - mantissa))


def encode(x: Number, name: str, mode: str = "rn", finite: bool = False, ftz: bool = False) -> int:
    bits, mantissa, infinite = FLOATS[name]
    width = bits - 1 - mantissa
    bias = (1 << (width - 1)) - 1
    sign = int(x.minus) << (bits - 1)
    top = ((1 << width) - 1 << mantissa) - 1 if infinite else (1 << (bits - 1)) - 2
    if x.special == "nan":
        return NAN[name]
    if x.special == "inf":
        pattern = top if finite else top + 1
    elif ftz and _tiny(x, mantissa, bias, mode):
        pattern = 0
    else:
        pattern = _rounded(x, mantissa, bias, mode)
        if pattern > top:
            inward = mode == "rz" or (mode == "rm" and not x.minus) or (mode == "rp" and x.minus)
            pattern = top if finite or inward else top + 1
    if name == "tf32":
        return (sign | pattern) << 13
    return sign | pattern


def _tiny(x: Number, mantissa: int, bias: int, mode: str) -> bool:
    """With exponents that don't end at the least normal one, it rounds to less than the least normal number."""
    endless = 1 << 14
    return _rounded(x, mantissa, endless, mode) < (endless - bias + 1) << mantissa


def nan_of(x: int, of: str, to: str) -> int:
    """The NaN that instructions make of the NaN x: from and to f64 its sign and upper payload, quiet; else canonical."""
    if "f64" not in (of, to):
        return NAN[to]
    (n, m, _), (bits, mantissa, _) = FLOATS[of], FLOATS[to]
    payload = x % (1 << m)
    payload = payload << mantissa - m if mantissa >= m else payload >> m - mantissa
    exponent = (1 << bits - 1 - mantissa) - 1
    return (x >> n - 1) << bits - 1 | exponent << mantissa | payload | 1 << mantissa - 1


def _rounded(x: Number, mantissa: int, bias: int, mode: str) -> int:
    if not x.size:
        return 0
    exponent = x.size.numerator.bit_length() - x.size.denominator.bit_length()
    while Fraction(2) ** exponent > x.size:
        exponent -= 1
    exponent = max(exponent, 1 - bias)
    scaled = x.size / Fraction(2) ** (exponent - mantissa)
    whole, rest = divmod(scaled, 1)
    half = Fraction(1, 2)
    up = {
        "rn": rest > half or (rest == half and whole % 2 == 1),
        "rna": rest >= half,
        "rz": False,
        "rm": x.minus and rest > 0,
        "rp": not x.minus and rest > 0,
    }[mode]
    return int(whole) + up + (exponent + bias - 1 << mantissa)


def number(value: Fraction, minus_zero: bool = False) -> Number:
    return Number(value < 0 or (value == 0 and minus_zero), abs(value))


def flushed(x: int, name: str) -> int:
    bits, mantissa, _ = FLOATS[name]
    return x & 1 << (bits - 1) if x & ((1 << (bits - 1)) - 1) < 1 << mantissa else x


def saturated(x: int, name: str) -> int:
    n = decode(x, name)
    if n.special == "nan" or n.minus:
        return 0
    return encode(Number(False, min(n.size, Fraction(1)) if not n.special else Fraction(1)), name)


NANS = Number(False, special="nan")


def add(a: Number, b: Number, mode: str) -> Number:
    if "nan" in (a.special, b.special) or (a.special and b.special and a.minus != b.minus):
        return NANS
    if a.special or b.special:
        return a if a.special else b
    total = a.value + b.value
    both = a.minus and b.minus
    return number(total, both or (mode == "rm" and (a.minus or b.minus or bool(a.size))))


def mul(a: Number, b: Number) -> Number:
    minus = a.minus != b.minus
    if "nan" in (a.special, b.special):
        return NANS
    if a.special or b.special:
        return (
            NANS if (not a.special and not a.size) or (not b.special and not b.size) else Number(minus, special="inf")
        )
    return Number(minus, a.size * b.size)


def div(a: Number, b: Number) -> Number:
    minus = a.minus != b.minus
    if "nan" in (a.special, b.special) or (a.special and b.special):
        return NANS
    if a.special:
        return Number(minus, special="inf")
    if b.special:
        return Number(minus)
    if not b.size:
        return Number(minus, special="inf") if a.size else NANS
    return Number(minus, a.size / b.size)


def root(a: Number) -> Number:
    if a.special == "nan" or (a.minus and (a.size or a.special)):
        return NANS
    if a.special or not a.size:
        return a
    shift = 1200
    scaled = a.size * Fraction(4) ** shift
    whole = math.isqrt(scaled.numerator // scaled.denominator)
    exact = whole * whole == scaled
    return Number(False, (whole + (0 if exact else Fraction(1, 2))) / Fraction(2) ** shift)


def negate(a: Number) -> Number:
    return a if a.special == "nan" else Number(not a.minus, a.size, a.special)


def reference(name: str, types: tuple[str, ...], operands: tuple[int, ...]) -> tuple[int, ...]:
    """The results of ``name`` for operands given as patterns; ``types`` are those of all operands, results first."""
    opcode, *modifiers = name.split(".")
    type = modifiers[-1]
    packed = type.endswith("x2") and opcode not in ("cvt", "setp")
    if packed:
        single = type[:-2]
        halves = []
        for shift in (0, 16):
            parts = tuple(o >> shift & 0xFFFF for o in operands)
            (half,) = reference(f"{name[:-2]}", tuple(single for _ in types), parts)
            halves.append(half)
        return (halves[0] | halves[1] << 16,)
    if opcode == "cvt":
        return (convert(modifiers, operands),)
    if type.removesuffix("x2") in FLOATS and opcode not in ("selp", "slct"):
        return floating(opcode, modifiers, operands)
    return integer(opcode, modifiers, types, operands)


def integer(opcode: str, modifiers: list[str], types: tuple[str, ...], x: tuple[int, ...]) -> tuple[int, ...]:
    type = "b32" if opcode in ("prmt", "slct") else modifiers[-1]
    n = bits_of(type if opcode not in ("dp4a", "dp2a") else "b32")
    ones = (1 << n) - 1
    v = [signed(p, type) for p in x]
    base = opcode
    match base:
        case "add" | "sub" | "addc" | "subc":
            carry = x[2] if base.endswith("c") else 0
            minus = base.startswith("sub")
            total = v[0] - v[1] - carry if minus else v[0] + v[1] + carry
            if "sat" in modifiers:
                return (max(-(1 << 31), min((1 << 31) - 1, total)) & ones,)
            raw = x[0] - x[1] - carry if minus else x[0] + x[1] + carry
            flag = (raw < 0 or raw > ones,) if "cc" in modifiers or base.endswith("c") else ()
            return (total & ones, *map(int, flag))
        case "mul" | "mad" | "madc":
            product = v[0] * v[1]
            part = {"hi": product >> n, "lo": product, "wide": product}[modifiers[0]]
            out = 2 * n if modifiers[0] == "wide" else n
            if base == "mul":
                return (part & (1 << out) - 1,)
            if "sat" in modifiers:
                return (max(-(1 << 31), min((1 << 31) - 1, part + v[2])) & ones,)
            carry = x[3] if base == "madc" else 0
            total = (part & (1 << out) - 1) + x[2] + carry
            flag = (total >> out,) if "cc" in modifiers or base == "madc" else ()
            return (total & (1 << out) - 1, *flag)
        case "mul24" | "mad24":
            a, b = (signed(p & 0xFFFFFF, "s24" if type[0] == "s" else "u24") for p in x[:2])
            return (((a * b >> (16 if modifiers[0] == "hi" else 0)) + (x[2] if base == "mad24" else 0)) & ones,)
        case "sad":
            return (abs(v[0] - v[1]) + x[2] & ones,)
        case "div" | "rem":
            if v[1] == 0:
                return (ones,)
            q = abs(v[0]) // abs(v[1]) * (-1 if (v[0] < 0) != (v[1] < 0) else 1)
            return ((q if base == "div" else v[0] - q * v[1]) & ones,)
        case "abs":
            return (abs(v[0]) & ones,)
        case "neg":
            return (-v[0] & ones,)
        case "min" | "max":
            found = (min if base == "min" else max)(v[0], v[1])
            return ((max(found, 0) if "relu" in modifiers else found) & ones,)
        case "popc":
            return (x[0].bit_count(),)
        case "clz":
            return (n - x[0].bit_length(),)
        case "bfind":
            value = ~v[0] if v[0] < 0 else v[0]
            at = value.bit_length() - 1
            return ((n - 1 - at if "shiftamt" in modifiers and at >= 0 else at) & 0xFFFFFFFF,)
        case "brev":
            return (int(f"{x[0]:0{n}b}"[::-1], 2),)
        case "bfe":
            pos, size = x[1:] if n == 64 else (x[1] & 255, x[2] & 255)
            last = min(pos + size - 1, n - 1)
            sign = 0 if type[0] == "u" or size == 0 else x[0] >> last & 1
            return (sum((x[0] >> pos + i & 1 if i < size and pos + i < n else sign) << i for i in range(n)),)
        case "bfi":
            pos, size = x[2:] if n == 64 else (x[2] & 255, x[3] & 255)
            inside = {pos + i: x[0] >> i & 1 for i in range(min(size, n)) if pos + i < n}
            return (sum(inside.get(i, x[1] >> i & 1) << i for i in range(n)),)
        case "bmsk":
            pos, size = (p & 31 if modifiers[0] == "wrap" else min(p, 32) for p in x)
            return (((1 << size) - 1 << pos) & ones,)
        case "szext":
            size = x[1] & 31 if modifiers[0] == "wrap" else min(x[1], 32)
            kept = x[0] & (1 << size) - 1
            if type[0] == "s" and size and kept >> (size - 1):
                kept |= ones ^ (1 << size) - 1
            return (kept,)
        case "dp4a" | "dp2a":
            total = x[2]
            for i in range(4 if base == "dp4a" else 2):
                wide = 8 if base == "dp4a" else 16
                a = signed(x[0] >> wide * i & (1 << wide) - 1, f"{modifiers[-2][0]}{wide}")
                shift = 8 * i + (16 if base == "dp2a" and modifiers[0] == "hi" else 0)
                total += a * signed(x[1] >> shift & 255, f"{modifiers[-1][0]}8")
            return (total & ones,)
        case "and" | "or" | "xor":
            return ({"and": x[0] & x[1], "or": x[0] | x[1], "xor": x[0] ^ x[1]}[base],)
        case "not":
            return (~x[0] & ones,)
        case "cnot":
            return (int(x[0] == 0),)
        case "lop3":
            return (
                sum(
                    (x[3] >> (4 * (x[0] >> i & 1) + 2 * (x[1] >> i & 1) + (x[2] >> i & 1)) & 1) << i for i in range(32)
                ),
            )
        case "shf":
            amount = x[2] & 31 if modifiers[1] == "wrap" else min(x[2], 32)
            wide = x[1] << 32 | x[0]
            return ((wide << amount >> 32 if modifiers[0] == "l" else wide >> amount) & ones,)
        case "shl":
            return (x[0] << min(x[1], n) & ones,)
        case "shr":
            return (v[0] >> min(x[1], n) & ones,)
        case "prmt":
            return (_prmt(modifiers, x),)
        case "setp":
            return _compared(modifiers, v[0], v[1], x)
        case "selp":
            return (x[0] if x[2] else x[1],)
        case "slct":
            return (x[0] if not x[2] >> 31 else x[1],)
        case _:
            raise KeyError(opcode)


def _prmt(modifiers: list[str], x: tuple[int, ...]) -> int:
    source = (x[1] << 32 | x[0]).to_bytes(8, "little")
    mode = modifiers[1] if len(modifiers) > 1 else ""
    tables = {
        "f4e": ("3210", "4321", "5432", "6543"), "b4e": ("5670", "6701", "7012", "0123"), "rc8": ("0000", "1111", "2222", "3333"),
        "ecl": ("3210", "3211", "3222", "3333"), "ecr": ("0000", "1110", "2210", "3210"), "rc16": ("1010", "3232", "1010", "3232"),
    }  # fmt: skip
    result = 0
    for i in range(4):
        pick = int(tables[mode][x[2] & 3][3 - i]) if mode else x[2] >> 4 * i & 15
        byte = source[pick & 7]
        result |= (255 * (byte >> 7) if pick & 8 else byte) << 8 * i
    return result


def _compared(modifiers: list[str], a: int, b: int, x: tuple[int, ...]) -> tuple[int, ...]:
    holds = {"eq": a == b, "ne": a != b, "lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b,
             "lo": a < b, "ls": a <= b, "hi": a > b, "hs": a >= b}[modifiers[0]]  # fmt: skip
    return _combined(modifiers, holds, not holds, x)


def _combined(modifiers: list[str], p: bool, q: bool, x: tuple[int, ...]) -> tuple[int, ...]:
    for word, join in (("and", lambda s: s and x[2]), ("or", lambda s: s or x[2]), ("xor", lambda s: s != bool(x[2]))):
        if word in modifiers:
            return int(bool(join(p))), int(bool(join(q)))
    return int(p), int(q)


def floating(opcode: str, modifiers: list[str], x: tuple[int, ...]) -> tuple[int, ...]:
    type = modifiers[-1]
    if type.endswith("x2"):
        single, found = type[:-2], []
        for shift in (0, 16):
            halves = (x[0] >> shift & 0xFFFF, x[1] >> shift & 0xFFFF, *x[2:])
            found.append(floating(opcode, [*modifiers[:-1], single], halves)[0])
        return tuple(found)
    mode = next((m for m in modifiers if m in ("rn", "rz", "rm", "rp")), "rn")
    ftz, sat = "ftz" in modifiers, "sat" in modifiers
    count = 2 if opcode in ("setp", "set") else len(x)
    raw = [flushed(p, type) if ftz else p for p in x[:count]]
    v = [decode(p, type) for p in raw]
    sign = 1 << (FLOATS[type][0] - 1)
    nans = [p for p, n in zip(raw, v, strict=True) if n.special == "nan"]
    match opcode:
        case "setp" | "set":
            p, q = _float_compared(modifiers, v[0], v[1], x)
            return (p, q) if opcode == "setp" else ((0x3F800000 if modifiers[-2] == "f32" else 0xFFFFFFFF) * p,)
        case "add":
            result = add(v[0], v[1], mode)
        case "sub":
            result = add(v[0], negate(v[1]), mode)
        case "mul":
            result = mul(v[0], v[1])
        case "div":
            result = div(v[0], v[1])
        case "fma" | "mad":
            result = add(mul(v[0], v[1]), v[2], mode)
        case "rcp":
            result = div(Number(False, Fraction(1)), v[0])
        case "sqrt":
            result = root(v[0])
        case "neg" | "abs":
            if nans:
                return (nan_of(raw[0], type, type),)
            return (raw[0] ^ sign if opcode == "neg" else raw[0] & ~sign,)
        case "copysign":
            return (x[1] & ~sign | x[0] & sign,)
        case "min" | "max":
            return (_extremum(opcode, modifiers, raw, type),)
        case "testp":
            return (int(_is(modifiers[0], v[0], x[0], type)),)
        case _:
            raise KeyError(opcode)
    if "relu" in modifiers and result.minus and result.special != "nan":
        return (0,)
    bits = nan_of(nans[0], type, type) if nans else encode(result, type, mode, ftz=ftz)
    return (saturated(bits, type) if sat else bits,)


def _is(what: str, v: Number, x: int, type: str) -> bool:
    tiny = not v.special and v.size > 0 and flushed(x, type) != x
    return {
        "finite": not v.special, "infinite": v.special == "inf", "number": v.special != "nan",
        "notanumber": v.special == "nan", "normal": not v.special and not tiny, "subnormal": tiny,
    }[what]  # fmt: skip


def _extremum(opcode: str, modifiers: list[str], raw: list[int], type: str) -> int:
    sign = 1 << (FLOATS[type][0] - 1)
    flip = (raw[0] ^ raw[1]) & sign if "xorsign" in modifiers else 0
    raw = [r & ~sign for r in raw] if "xorsign" in modifiers else raw
    good = [r for r in raw if decode(r, type).special != "nan"]
    if not good or ("NaN" in modifiers and len(good) < 2):
        return nan_of(raw[1], type, type)
    return (min if opcode == "min" else max)(good, key=lambda r: decode(r, type).key) | flip


def _float_compared(modifiers: list[str], a: Number, b: Number, x: tuple[int, ...]) -> tuple[int, ...]:
    how = modifiers[0]
    nan = "nan" in (a.special, b.special)
    if how in ("num", "nan"):
        holds = nan == (how == "nan")
    else:
        p, q = (math.inf * (-1 if n.minus else 1) if n.special else n.value for n in (a, b))
        holds = {"eq": p == q, "ne": p != q, "lt": p < q, "le": p <= q, "gt": p > q, "ge": p >= q}[how[:2]]
        holds = (holds or nan) if how.endswith("u") else (holds and not nan)
    return _combined(modifiers, holds, not holds, x)


def whole(v: Number, mode: str) -> Number:
    if v.special or mode not in ("rni", "rzi", "rmi", "rpi"):
        return v
    value = v.value
    down = value.numerator // value.denominator
    exact = {
        "rni": round(value), "rzi": -(-value.numerator // value.denominator) if value < 0 else down, "rmi": down,
        "rpi": -(-value.numerator // value.denominator),
    }[mode]  # fmt: skip
    return Number(v.minus, Fraction(abs(exact)))


def convert(modifiers: list[str], x: tuple[int, ...]) -> int:
    to, of = modifiers[-2], modifiers[-1]
    if modifiers[0] == "pack":
        to, of = modifiers[2], modifiers[3]
        n = bits_of(to)
        low, high = (-(1 << n - 1), (1 << n - 1) - 1) if to[0] == "s" else (0, (1 << n) - 1)
        a, b = (max(low, min(high, signed(p, "s32"))) & (1 << n) - 1 for p in x[:2])
        return (a << n | b | (x[2] << 2 * n if len(x) > 2 else 0)) & 0xFFFFFFFF
    mode = next((m for m in modifiers if m in ("rn", "rz", "rm", "rp", "rna", "rni", "rzi", "rmi", "rpi")), "rn")
    finite, relu = "satfinite" in modifiers, "relu" in modifiers

    def one(p: int, target: str, source: str) -> int:
        v = decode(p, source)
        return 0 if relu and v.minus and v.special != "nan" else encode(v, target, mode, finite)

    if to.endswith("x2"):
        target, source = to[:-2], of.removesuffix("x2")
        n, m = bits_of(target), bits_of(source)
        low, high = (x[1], x[0]) if len(x) == 2 else (x[0] & (1 << m) - 1, x[0] >> m)
        return one(low, target, source) | one(high, target, source) << n
    if to in FLOATS and of in FLOATS:
        if mode == "rna" and x[0] & 0x7FFFFFFF >= 0x7F800000:
            return (x[0] & 0xFFFFE000) - (0x2000 if finite else 0)
        if to == "tf32" or finite or relu:
            return one(x[0], to, of)
        if len(modifiers) == 2 and (to, of) in (("f32", "f32"), ("f64", "f64"), ("f32", "bf16")):
            return x[0] << 16 if of == "bf16" else x[0]
        ftz = "ftz" in modifiers and "f16" not in (to, of)
        p = flushed(x[0], of) if ftz and of == "f32" else x[0]
        v = decode(p, of)
        if v.special == "nan":
            bits = nan_of(NAN[of] if ftz and of == "f32" else p, of, to)
        else:
            bits = encode(whole(v, mode), to, mode if mode in ("rz", "rm", "rp") else "rn", ftz=ftz and to == "f32")
        return saturated(bits, to) if "sat" in modifiers else bits
    if to in FLOATS:
        bits = encode(number(Fraction(signed(x[0], of))), to, mode)
        return saturated(bits, to) if "sat" in modifiers else bits
    n = bits_of(to)
    low, high = (-(1 << n - 1), (1 << n - 1) - 1) if to[0] == "s" else (0, (1 << n) - 1)
    if of in FLOATS:
        v = decode(flushed(x[0], of) if "ftz" in modifiers else x[0], of)
        if v.special == "nan":
            return 0 if n < 64 and of != "f64" else 1 << (n - 1)
        if v.special:
            return (low if v.minus else high) & (1 << n) - 1
        return max(low, min(high, int(whole(v, mode).value))) & (1 << n) - 1
    value = signed(x[0], of)
    return (max(low, min(high, value)) if "sat" in modifiers else value) & (1 << n) - 1
