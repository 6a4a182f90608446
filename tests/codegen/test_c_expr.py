"""Integer expressions as C, run by the rules of C: no signed arithmetic overflows, and the value is the expression's.

The evaluator knows C's types and precedences, and nothing of how the text was made.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from support.slow import rest_slow
from tilewright.base.expr import Expr, Interval, Sym, all_of, interval, maximum, minimum, own, sym
from tilewright.codegen.c_expr import INT, LONG, c_expr, c_int, c_type, identifier

BITS = {"int": 32, "long long": 64, "unsigned long long": 64}
TOKEN = re.compile(r"\d+LL|\w+|<=|==|!=|>>|&&|\|\||\((?:long long|unsigned long long|int)\)|[-+*/%&^<()!,]")
LEVELS = (("||",), ("&&",), ("^",), ("&",), ("==", "!="), ("<", "<="), (">>",), ("+", "-"), ("*", "/", "%"))
RANK = {"int": 0, "long long": 1, "unsigned long long": 2}


@dataclass(frozen=True)
class Value:
    number: int
    kind: str


def made(number: int, kind: str) -> Value:
    """A result of arithmetic: without sign it wraps, with sign it must fit."""
    if kind == "unsigned long long":
        return Value(number % 2**64, kind)
    half = 1 << (BITS[kind] - 1)
    assert -half <= number < half, f"{number} overflows {kind}"
    return Value(number, kind)


def converted(value: Value, kind: str) -> Value:
    """A cast: modulo 2^bits."""
    bits = BITS[kind]
    low = value.number % 2**bits
    return Value(low if kind.startswith("unsigned") else (low + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1), kind)


class C:
    """One expression, by precedence climbing."""

    def __init__(self, text: str, names: Mapping[str, Value]):
        self.tokens, self.names = TOKEN.findall(text), names
        assert "".join(self.tokens).replace(" ", "") == text.replace(" ", ""), text

    def run(self) -> Value:
        value = self.binary(0)
        assert not self.tokens
        return value

    def binary(self, level: int) -> Value:
        if level == len(LEVELS):
            return self.unary()
        left = self.binary(level + 1)
        while self.tokens and self.tokens[0] in LEVELS[level]:
            op = self.tokens.pop(0)
            left = self.apply(op, left, self.binary(level + 1))
        return left

    def apply(self, op: str, a: Value, b: Value) -> Value:
        if op in ("&&", "||"):
            return Value(
                int(bool(a.number) and bool(b.number) if op == "&&" else bool(a.number) or bool(b.number)), "int"
            )
        if op == ">>":
            assert 0 <= b.number < BITS[a.kind]
            return Value(a.number >> b.number, a.kind)
        kind = max((a.kind, b.kind), key=lambda k: RANK[k])
        x, y = converted(a, kind).number, converted(b, kind).number
        match op:
            case "+":
                return made(x + y, kind)
            case "-":
                return made(x - y, kind)
            case "*":
                return made(x * y, kind)
            case "/" | "%":
                assert y != 0
                quotient = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
                return made(quotient if op == "/" else x - quotient * y, kind)
            case "&":
                return Value(x & y, kind)
            case "^":
                return Value(x ^ y, kind)
            case _:
                return Value(int({"<": x < y, "<=": x <= y, "==": x == y, "!=": x != y}[op]), "int")

    def unary(self) -> Value:
        token = self.tokens.pop(0)
        if token == "-":
            operand = self.unary()
            return made(-operand.number, operand.kind)
        if token == "!":
            return Value(int(not self.unary().number), "int")
        if token[1:-1] in BITS:
            return converted(self.unary(), token[1:-1])
        if token == "(":
            value = self.binary(0)
            assert self.tokens.pop(0) == ")"
            return value
        if token[0].isdigit():
            number = int(token.removesuffix("LL"))
            assert token.endswith("LL") or number < 2**31
            return Value(number, "long long" if token.endswith("LL") else "int")
        if token in ("min", "max", "floor_div", "floor_mod"):
            assert self.tokens.pop(0) == "("
            a = self.binary(0)
            assert self.tokens.pop(0) == ","
            b = self.binary(0)
            assert self.tokens.pop(0) == ")"
            assert a.kind == b.kind, f"{token} of {a.kind} and {b.kind}"
            x, y = a.number, b.number
            found = {"min": min(x, y), "max": max(x, y)}
            return made(found[token] if token in found else x // y if token == "floor_div" else x % y, a.kind)
        return self.names[token]


BOUNDS: dict[str, Interval] = {
    "M": (0, 2**31 - 2**21),
    "N": (0, 2**31 - 2**21),
    "k": INT,
    "x.stride0": LONG,
    own("p0"): (0, (2**31 - 2**21) // 2048),
    own("tid"): (0, 127),
    own("d"): (1, 2**31 - 1),
}
SYMBOLS = [Sym(name) for name in BOUNDS]


def grown(rng: random.Random, depth: int) -> Expr:
    if depth == 0 or rng.random() < 0.2:
        return rng.choice(SYMBOLS)
    a, b = grown(rng, depth - 1), grown(rng, depth - 1)
    match rng.randrange(9):
        case 0 | 1:
            return a + b * rng.choice((1, -1, 3, -2048, 2**20))
        case 2:
            return a - b + rng.choice((0, -1, 2047, 2**31))
        case 3 | 4:
            return a * b
        case 5:
            return a // rng.choice((1, 2, 3, 128, sym(own("d"))))
        case 6:
            return a % rng.choice((2, 5, 1024, sym(own("d"))))
        case 7:
            return minimum(a, b)
        case _:
            return maximum(a, b)


def exact(node: Expr, env: Mapping[str, int]) -> int | None:
    """The value; None where a division or a comparison meets what 64 bits don't hold, which no kernel computes."""
    sizes = [exact(child, env) for child in node.children]
    polynomial = type(node).__name__ in ("Sum", "Product", "Const", "Sym")
    if None in sizes or (not polynomial and any(not LONG[0] <= s <= LONG[1] for s in sizes if s is not None)):  # type: ignore[operator]
        return None
    return int(node.evaluate(env))


def signed(value: int, bits: int) -> int:
    return (value + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)


def corner(rng: random.Random, bounds: Interval) -> int:
    low, high = bounds
    assert low is not None
    assert high is not None
    return rng.choice(
        (low, high, min(high, max(low, 0)), rng.randint(low, high), min(high, max(low, rng.randint(-9, 9))))
    )


@pytest.mark.parametrize("seed", rest_slow(range(40), 8))
def test_no_operation_overflows_and_the_value_is_exact(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(60):
        node = grown(rng, 4)
        text, low_bits = c_expr(node, BOUNDS), c_int(node, BOUNDS)
        for _ in range(6):
            env = {name: corner(rng, bounds) for name, bounds in BOUNDS.items()}
            value = exact(node, env)
            if value is None:
                continue
            names = {identifier(name): Value(v, c_type(BOUNDS[name])) for name, v in env.items()}
            assert C(text, names).run().number == signed(value, 64), (text, env)
            assert C(low_bits, names).run().number == signed(value, 32), (low_bits, env)


def test_what_fits_stays_narrow() -> None:
    """Guards of whole tiles near 2^31 neither wrap nor widen."""
    p, tid, m = Sym(own("p0")), Sym(own("tid")), sym("M")
    bounds: dict[str, Interval] = {own("p0"): (0, (2**31 - 2**21) // 2048), own("tid"): (0, 127), "M": BOUNDS["M"]}
    guard = all_of([p * 2048 + 2048 <= m, p * 2048 + tid * 4 + 3 < m, m - p * 2048 - 511 > 0])
    assert "long long" not in c_expr(guard, bounds)
    wide = {**bounds, "M": (0, 2**31 - 1), own("p0"): (0, (2**31 - 1) // 2048)}
    assert "long long" in c_expr(guard, wide)  # the last tile's end is 2^31


def test_products_are_formed_in_the_type_that_holds_them() -> None:
    k, m, n = sym("k"), sym("M"), sym("N")
    assert c_expr(k * k, BOUNDS) == "(long long)u_k*u_k"
    assert c_expr(k + 1, BOUNDS) == "((long long)u_k + 1)"
    assert c_expr(m + 1, BOUNDS) == "(u_M + 1)"
    assert c_expr(m * n * k, BOUNDS) == "(long long)((unsigned long long)u_M*u_N*u_k)"
    assert interval(m * n // 2, BOUNDS)[1] is not None
    assert c_expr(m * n // 2, BOUNDS) == "((long long)u_M*u_N >> 1)"
    assert c_expr(minimum(m * n, 5), BOUNDS) == "(int)min((long long)u_M*u_N, (long long)5)"


@pytest.mark.parametrize("name", ["M", "tid", "int", "x0", "threadIdx", "stride0_x", "u_M", "k0"])
def test_names_of_a_user_meet_none_of_ours(name: str) -> None:
    ours = {identifier(own(n)) for n in ("tid", "r", "p0", "k0", "i_a_b", "loop.v", "M", "x0")}
    theirs = {
        identifier(name),
        identifier(f"{name}.stride0"),
        identifier(f"{name}.address"),
        identifier(f"{name}$staged"),
    }
    assert len(theirs) == 4
    assert ours.isdisjoint(theirs)
