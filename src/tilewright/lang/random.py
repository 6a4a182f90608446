"""Random numbers by counters: Philox4x32-10, a function of a seed and a place, with no state.

Salmon, Moraes, Dror, Shaw: Parallel Random Numbers: As Easy as 1, 2, 3 (SC 2011); github.com/DEShawResearch/random123,
include/Random123/philox.h. Words are the bits of i32; products of two are exact in i64.
"""

from __future__ import annotations

from typing import NoReturn, TypeAlias

from tilewright.base.dtypes import f32, i32, i64
from tilewright.lang import arithmetic
from tilewright.lang.axes import Axis
from tilewright.lang.operators import Operators, number_of, operand_of
from tilewright.lang.recorder import Node
from tilewright.lang.source_locations import refuse
from tilewright.lang.values import Tile

_ROUNDS = 10
_MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
_WEYL = 0x9E3779B9, 0xBB67AE85
"""The increments of the key after each round (Weyl sequence): the golden ratio and the square root of 3 less 1, of
2^32."""
_WORD = 0xFFFFFFFF
_STEP = 2.0**-24

Word: TypeAlias = "Tile | int"


def philox(seed: object, c0: object, c1: object = 0, c2: object = 0, c3: object = 0) -> tuple[Tile, Tile, Tile, Tile]:
    """Four tiles of 32 random bits each, i32, of the counter ``c0, c1, c2, c3``, whose words are taken modulo 2^32.

    ``seed`` is an integer of 64 bits, the two words of the key. Philox4x32-10, as Random123 defines it.
    """
    a, b, c, d = _philox(seed, [_low(_integer(c, "a counter")) for c in (c0, c1, c2, c3)])
    return a, b, c, d


def rand(seed: object, index: object) -> Tile:
    """Uniform f32 between 0 and 1, 1 excluded, for each element of an integer tile: a multiple of 2^-24.

    The number at an index is the same in every launch, tile and kernel: the upper 24 bits of the first word of
    ``philox(seed, index, index >> 32)``.
    """
    at = _integer(index, "an index")
    word, *_ = _philox(seed, [_low(at), _low(at >> 32), 0, 0])
    return (word >> 8 & 0xFFFFFF).to(f32) * _STEP


def _philox(seed: object, counter: list[Word]) -> list[Tile]:
    """The four words of a counter."""
    given = _integer(seed, "a seed")
    keys, words = [_low(given), _low(given >> 32)], counter
    for _ in range(_ROUNDS):
        first, second = (_product(words[i], m) for i, m in zip((0, 2), _MULTIPLIERS, strict=True))
        high = _differ(_low(second >> 32), words[1], keys[0]), _differ(_low(first >> 32), words[3], keys[1])
        words = [high[0], _low(second), high[1], _low(first)]
        keys = [_low(k + w if isinstance(k, int) else k + _signed(w)) for k, w in zip(keys, _WEYL, strict=True)]
    tiles = [w for w in words if isinstance(w, Tile)]
    if len(tiles) < len(words):
        _refuse("numbers alone", "a counter that is a tile: m.index")
    axes = max((w.axes for w in tiles), key=len)
    return [_over(w, axes) for w in tiles]


def _product(word: Word, by: int) -> Word:
    """The product of two words without a sign, of 64 bits."""
    return word * by if isinstance(word, int) else (word.to(i64) & _WORD) * by


def _differ(*words: Word) -> Word:
    """Their exclusive or."""
    found, number = None, 0
    for word in words:
        if isinstance(word, int):
            number ^= word
        else:
            found = word if found is None else found ^ word
    return number if found is None else found ^ _signed(number) if number else found


def _low(value: Word) -> Word:
    """The lower 32 bits: of a number as such, of a tile as an i32."""
    return value & _WORD if isinstance(value, int) else value.to(i32)


def _signed(word: int) -> int:
    """The i32 of the same bits."""
    return word - (word >> 31 << 32)


def _over(word: Tile, axes: tuple[Axis, ...]) -> Tile:
    return Tile(word.recorder, arithmetic.broadcast(word.recorder, word.node, axes))


def _integer(value: object, what: str) -> Word:
    """A number as it is, anything that is recorded as an i64 tile."""
    number = number_of(value)
    if isinstance(number, int) and not isinstance(number, bool):
        return number
    operand = operand_of(value)
    if not isinstance(value, Operators) or (isinstance(operand, Node) and not operand.dtype.is_int):
        shown = operand.dtype if isinstance(operand, Node) else type(value).__name__
        _refuse(f"{what} that is {shown}", "an integer or an integer tile")
    rec = value._recorder  # pyright: ignore[reportPrivateUsage] - proxies are this room's
    assert operand is not None
    return Tile(rec, arithmetic.convert(rec, operand, i64))


def _refuse(found: str, required: str) -> NoReturn:
    refuse("LNG023", found=found, required=required, help="tw.rand(seed, m.index[:, None] * n.stop + n.index)")
