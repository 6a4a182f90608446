"""Integer instructions of PTX, one after another on loaded words, in the comparison's normal form against Python's
integers: whatever words are loaded, a value is what the instructions compute, and a condition what they compare."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from support.evaluated import Evaluated, Given, quotient, signed
from tilewright.validate.undecided import Undecided
from tilewright.validate.values import Value

pytestmark = pytest.mark.sample(8)

WORDS = (0, 1, 2, 3, 5, 7, 100, 4294, 4295, 0xFFFF, 0x10000, 0x12345678, 0x55555555, 613566757, 0x7FFFFFFF, 0x80000000,
         0x80000001, 0xAAAAAAAA, 0xDEADBEEF, 0xFFFFFFFE, 0xFFFFFFFF)  # fmt: skip
NUMBERS = (0, 0, 0, 0, 1, 2, 3, 5, 6, 7, 255, 0xFF00, 1000003, -1, -2, -5, 1 << 31, (1 << 32) - 1, -(1 << 32), 1 << 32)
SHIFTS = (0, 1, 2, 3, 16, 29, 31, 32, 63)
COMPARED = {name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")}
BITWISE = {"and": operator.and_, "or": operator.or_, "xor": operator.xor}
OPCODES = (*("and", "or", "xor", "shr", "select") * 4, *("add", "zext", "high", "low", "bits") * 2, "sub", "mul", "not",
           "shl", "sar", "narrow", "sext", "wide", "div", "rem", "min", "max", "prmt")  # fmt: skip
"""Words that are put together from bits rather."""
PROGRAMS, INSTRUCTIONS, LOADS = 40, 12, 12


@dataclass(frozen=True)
class Register:
    """A value, and what it is for each of the loads; ``text``: how it was computed."""

    value: Value
    width: int
    numbers: list[int]
    text: str


class Program:
    """Registers that random instructions compute from loaded words."""

    def __init__(self, seed: int):
        self.random, self.made = random.Random(seed), Evaluated()
        self.given = [self.loaded() for _ in range(LOADS)]
        self.registers = [
            Register(self.made.word(bits, name), bits, [g[name] for g in self.given], name)
            for name, bits in (("x", 32), ("y", 32), ("z", 32), ("w", 64))
        ]
        counted = self.made.terms.of(32, self.made.terms.atom("parameter", "n", low=0, high=1000))
        self.registers.append(Register(counted, 32, [g["n"] for g in self.given], "n"))

    def loaded(self) -> Given:
        """Words, most of them where something begins or ends."""
        draw = self.random
        half = [draw.choice(WORDS) if draw.random() < 0.7 else draw.getrandbits(32) for _ in range(5)]
        return {"x": half[0], "y": half[1], "z": half[2], "w": half[3] | half[4] << 32, "n": draw.randrange(1001)}

    def operand(self, width: int, *, constant: bool = False) -> Register:
        """A register of so many bits, of the latest rather, or a number."""
        if constant and self.random.random() < 0.3:
            number = self.random.choice(NUMBERS)
            value = self.made.terms.const(width, number)
            return Register(value, width, [number % (1 << width)] * LOADS, str(number))
        fitting = [r for r in self.registers if r.width == width]
        return self.random.choice(fitting[-5:] if self.random.random() < 0.6 else fitting)

    def step(self) -> None:
        """One more instruction, compared for all loads."""
        made, arithmetic, values, terms = self.made, self.made.arithmetic, self.made.values, self.made.terms
        width = self.random.choice((32, 64))
        a, b = self.operand(width), self.operand(width, constant=True)
        pairs = list(zip(a.numbers, b.numbers, strict=True))
        name = self.random.choice(OPCODES)
        text = f"{name}({a.text}, {b.text})"
        match name:
            case "add" | "sub" | "mul":
                value = getattr(values, name)(a.value, b.value)
                numbers = [getattr(operator, name)(x, y) for x, y in pairs]
            case "not":
                value, numbers = values.sub(terms.const(width, -1), a.value), [~x for x in a.numbers]
            case "and" | "or" | "xor":
                value = values.lift(lambda x, y: arithmetic.bitwise(name, x, y), a.value, b.value)
                numbers = [BITWISE[name](x, y) for x, y in pairs]
            case "shl" | "shr" | "sar":
                by = self.random.choice(SHIFTS)
                text = f"{name}({a.text}, {by})"
                opcode = "shl" if name == "shl" else "shr"
                value = arithmetic.shifted(opcode, a.value, terms.const(32, by), signed=name == "sar")
                read = (signed(x, width) if name == "sar" else x for x in a.numbers)
                numbers = [x << by if name == "shl" else x >> by for x in read]
            case "narrow" | "sext" | "wide" | "zext":
                a, by = self.operand(32), self.random.choice((8, 16))
                width, read = 64, [signed(x, 32) for x in a.numbers]
                text = f"{name}({a.text}, {by})"
                if name == "narrow":
                    value, width = values.lift(lambda x: arithmetic.extended(x, by, 32), a.value), 32
                    numbers = [signed(x, by) for x in a.numbers]
                elif name == "zext":
                    value, numbers = values.field(a.value, 0, 32, 64), a.numbers
                elif name == "sext":
                    values.extended.update(p for _, p in values.parts(a.value))
                    value, numbers = values.lift(lambda x: arithmetic.extended(x, 32, 64), a.value), read
                else:
                    value = values.resize(values.lift(arithmetic.factor, a.value), 64)
                    value, numbers = values.scale(value, by), [by * x for x in read]
            case "low" | "high":
                a, at, width = self.operand(64), 32 * (name == "high"), 32
                text = f"{name}({a.text})"
                value, numbers = values.field(a.value, at, 32, 32), [x >> at for x in a.numbers]
            case "bits":
                at, count = self.random.choice((0, 1, 7, 16, 31, width - 1)), self.random.choice((1, 2, 8, 16))
                text = f"bits({a.text}, {at}, {count})"
                value = values.field(a.value, at, count, width)
                numbers = [x >> at & ((1 << count) - 1) for x in a.numbers]
            case "div" | "rem":
                kind = self.random.choice("su") + str(width)
                data = any(arithmetic.is_data(p) for r in (a, b) for _, p in values.parts(r.value))
                if not data or 0 in b.numbers:
                    return
                value = arithmetic.divided_words(kind, a.value, b.value, made.cases.true)[name == "rem"]
                towards_0 = [quotient(kind, x, y) for x, y in pairs]
                numbers = (
                    towards_0 if name == "div" else [x - q * y for (x, y), q in zip(pairs, towards_0, strict=True)]
                )
            case "min" | "max":
                kind, chosen = self.random.choice("su") + str(width), min if name == "min" else max
                value = arithmetic.least(kind, a.value, b.value, name)
                key: Callable[[int], int] = (lambda n: signed(n, width)) if kind[0] == "s" else int
                numbers = [chosen(pair, key=key) for pair in pairs]
            case "prmt":
                a, b, selector, width = self.operand(32), self.operand(32), self.random.getrandbits(16), 32
                text = f"prmt({a.text}, {b.text}, {selector:#x})"
                value = values.lift(lambda x, y: arithmetic.permuted(x, y, selector), a.value, b.value)
                numbers = [permuted(x | y << 32, selector) for x, y in zip(a.numbers, b.numbers, strict=True)]
            case _:
                kind, compared = self.random.choice("su") + str(width), self.random.choice(list(COMPARED))
                text = f"{compared}.{kind}({a.text}, {b.text})"
                condition = arithmetic.compare(compared, kind, a.value, b.value)
                read = [[signed(n, width) if kind[0] == "s" else n for n in pair] for pair in pairs]
                true = [COMPARED[compared](*pair) for pair in read]
                for given, expected in zip(self.given, true, strict=True):
                    assert not made.proved(given) or made.holds(condition, given) == expected, (text, given)
                c, d = self.operand(width), self.operand(width)
                text = f"({text} ? {c.text} : {d.text})"
                value = values.select(condition, c.value, d.value)
                numbers = [(c if holds else d).numbers[i] for i, holds in enumerate(true)]
        numbers = [n % (1 << width) for n in numbers]
        for given, expected in zip(self.given, numbers, strict=True):
            assert not made.proved(given) or made.number(value, given) == expected, (text, given)
        self.registers.append(Register(value, width, numbers, text))


def permuted(halves: int, selector: int) -> int:
    """prmt of two words."""
    total = 0
    for i in range(4):
        pick = selector >> 4 * i & 15
        byte = halves >> 8 * (pick & 7) & 255
        total |= (byte if pick < 8 else 255 * (byte >> 7)) << 8 * i
    return total


@pytest.mark.parametrize("seed", range(40))
def test_words_are_what_instructions_compute(seed: int) -> None:
    for number in range(PROGRAMS):
        program = Program(seed * PROGRAMS + number)
        for _ in range(INSTRUCTIONS):
            try:
                program.step()
            except (OverflowError, RecursionError, Undecided):  # nothing more is said
                break


# -- what was computed otherwise until random instructions found it ----------------------------------------------------
def test_the_low_half_of_a_choice_is_read_with_its_own_sign() -> None:
    """max.s64 of a word and 0 is a choice of 64-bit words, of which 32 bits may be set."""
    made = Evaluated()
    n = made.terms.of(32, made.terms.atom("parameter", "n", low=0, high=1000))
    wide = made.values.field(made.word(32, "x"), 0, 32, 64)
    low = made.values.field(made.arithmetic.least("s64", wide, made.terms.const(64, 0), "max"), 0, 32, 32)
    at_most = made.arithmetic.compare("le", "s32", n, low)
    for x in (0, 156, 157, 0x7FFFFFFF, 0x80000001, 0xFFFFFFFF):
        assert made.holds(at_most, {"x": x, "n": 157}) is (signed(x, 32) >= 157)


def test_several_bits_are_0_where_each_is() -> None:
    made = Evaluated()
    bits = made.arithmetic.bitwise("and", made.word(32, "x"), made.terms.const(32, 5))
    none = made.arithmetic.compare("eq", "u32", bits, made.terms.const(32, 0))
    assert [made.holds(none, {"x": x}) for x in range(8)] == [x & 5 == 0 for x in range(8)]


@pytest.mark.parametrize("name", ["or", "xor"])
def test_a_joined_word_has_no_bits_above_its_own(name: str) -> None:
    """Of a sum that leaves its word, extended without a sign."""
    made = Evaluated()
    total = made.terms.add(made.word(32, "x"), made.word(32, "y"))
    word = made.terms.field(made.arithmetic.bitwise(name, total, made.word(32, "z")), 0, 32, 64)
    above = made.arithmetic.bitwise("and", word, made.terms.const(64, 1 << 32))
    zero = made.arithmetic.compare("eq", "s64", word, made.terms.const(64, 0))
    for x, y, z in ((1, 0xFFFFFFFF, 0), (0, 0, 0), (1, 1, 0), (0x80000000, 0x80000001, 1)):
        given = {"x": x, "y": y, "z": z}
        assert made.number(above, given) == 0
        assert made.holds(zero, given) == (BITWISE[name]((x + y) % (1 << 32), z) == 0), given


def test_bits_that_are_in_a_word_twice_are_there_twice() -> None:
    made = Evaluated()
    x = made.word(32, "x")
    word = made.arithmetic.permuted(x, x, 0x2521)
    assert made.number(word, {"x": 0x00AABB00}) == 0xAABBAABB


def test_bits_of_which_one_is_in_a_word_twice_are_there_twice() -> None:
    made = Evaluated()
    w = made.word(64, "w")
    lower = made.arithmetic.bitwise("and", w, made.terms.const(64, 1))
    word = made.terms.add(made.terms.scale(made.terms.field(w, 0, 33, 64), 1 << 31), lower)
    assert made.number(made.terms.field(word, 0, 32, 32), {"w": 1}) == 0x80000001


def test_the_upper_bits_of_a_negative_number_have_no_sign() -> None:
    made = Evaluated()
    minus_one = made.terms.const(64, -1)
    assert (
        made.number(made.arithmetic.shifted("shr", minus_one, made.terms.const(32, 1), signed=False), {})
        == (1 << 63) - 1
    )
    assert made.number(made.terms.field(minus_one, 0, 64, 0), {}) == (1 << 64) - 1


@pytest.mark.parametrize("low", [16, 25, 30, 31])
@pytest.mark.parametrize("number", [0, 1, -1, 2, -2, 63, -64, 64, -32768, 32767, 32768])
def test_upper_bits_with_their_sign_are_a_number_where_the_bits_are(low: int, number: int) -> None:
    """Also of numbers that they do not say."""
    made = Evaluated()
    terms, x = made.terms, made.word(32, "x")
    said = made.arithmetic.shifted("shr", x, terms.const(32, low), signed=True)
    holds = made.arithmetic.compare("eq", "s32", said, terms.const(32, number))
    words = {w + d for w in (*WORDS, number << low) for d in (-1, 0, 1, (1 << low) - 1, 1 << low)}
    for word in (w % (1 << 32) for w in words):
        assert made.holds(holds, {"x": word}) == (signed(word, 32) >> low == number), word
