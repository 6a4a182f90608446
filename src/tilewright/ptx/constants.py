"""Constants of PTX: literals and constant expressions (PTX ISA 9.1, 4.5), 64 bits wide as the ISA evaluates them."""

from __future__ import annotations

import struct
from collections.abc import Callable

from tilewright.ptx.syntax import Immediate
from tilewright.ptx.tokens import NUMBER, Tokens

_MASK = (1 << 64) - 1
_DEEPEST = 32
_PRECEDENCE: dict[str, int] = {"|": 1, "^": 2, "&": 3, "<<": 4, ">>": 4, "+": 5, "-": 5, "*": 6, "/": 6, "%": 6}
_OPERATORS: dict[str, Callable[[int, int], int]] = {
    "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b,
    "&": lambda a, b: a & b,
    "<<": lambda a, b: a << b if 0 <= b < 64 else 0,
    ">>": lambda a, b: a >> b if 0 <= b < 64 else 0,
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
}


def signed(bits: int) -> int:
    """A pattern of 64 bits as a signed number."""
    bits &= _MASK
    return bits - (1 << 64) if bits >> 63 else bits


def literal(token: str) -> Immediate | None:
    """The constant that a token spells; None where it is no constant."""
    if token == "WARP_SZ":
        return Immediate(32)
    if not NUMBER.match(token):
        return None
    head = token[:2].lower()
    if head == "0f":
        return Immediate(int(token[2:], 16), "f32")
    if head == "0d":
        return Immediate(int(token[2:], 16), "f64")
    if "." in token:
        return Immediate(struct.unpack("<Q", struct.pack("<d", float(token)))[0], "f64")
    digits = token.rstrip("U")
    base = {"0x": 16, "0b": 2}.get(head, 8 if len(digits) > 1 and digits[0] == "0" else 10)
    try:
        return Immediate(int(digits[2:] if base in (2, 16) else digits, base) & _MASK)
    except ValueError:
        return None


def constant(tokens: Tokens, at: int, depth: int = 0, least: int = 0) -> tuple[Immediate, int]:
    """(the value of the constant expression at token ``at``, the token behind it), by precedence climbing."""
    if depth > _DEEPEST:
        tokens.refuse(at, f"a constant expression at most {_DEEPEST} deep")
    left, at = _unary(tokens, at, depth)
    while (sign := tokens.text[at]) in _PRECEDENCE and _PRECEDENCE[sign] > least:
        right, behind = constant(tokens, at + 1, depth + 1, _PRECEDENCE[sign])
        left, at = Immediate(_combine(tokens, at, sign, left, right)), behind
    return left, at


def _unary(tokens: Tokens, at: int, depth: int) -> tuple[Immediate, int]:
    token = tokens.text[at]
    if token in ("-", "+", "~", "!"):
        if depth > _DEEPEST:
            tokens.refuse(at, f"a constant expression at most {_DEEPEST} deep")
        value, at = _unary(tokens, at + 1, depth + 1)
        if value.kind != "int":
            top = {"f32": 31, "f64": 63}[value.kind]
            return (Immediate(value.bits ^ (1 << top), value.kind) if token == "-" else value), at
        number = signed(value.bits)
        return Immediate({"-": -number, "+": number, "~": ~number, "!": int(not number)}[token] & _MASK), at
    if token == "(":
        if NUMBER.match(tokens.text[at + 1]) is None and tokens.text[at + 1] in (".s64", ".u64"):  # a cast: same bits
            return _unary(tokens, at + 3, depth + 1)
        value, at = constant(tokens, at + 1, depth + 1)
        if tokens.text[at] != ")":
            tokens.refuse(at, "')'")
        return value, at + 1
    value = literal(token)
    if value is None:
        tokens.refuse(at, "a constant")
    return value, at + 1


def _combine(tokens: Tokens, at: int, sign: str, left: Immediate, right: Immediate) -> int:
    if left.kind != "int" or right.kind != "int":
        tokens.refuse(at, "integers around an operator")
    a, b = signed(left.bits), signed(right.bits)
    if sign not in ("/", "%"):
        return _OPERATORS[sign](a, b) & _MASK
    if b == 0:
        tokens.refuse(at, "a divisor other than 0")
    quotient = abs(a) // abs(b) * (-1 if (a < 0) != (b < 0) else 1)
    return (quotient if sign == "/" else a - quotient * b) & _MASK
