"""Sorts along an axis: elements in order, their indices, and the greatest few.

An element is packed into one integer: a key, which has the order of the elements, above its place, so that equal
elements stay in their order and no two integers are equal. The greatest integer stands for elements that are absent.

    f32 1.5 at place 3   key 0x3fc00000 of 32 bits, place 3, 0: not -0.0

Floats are ordered as NumPy and PyTorch order them: -0.0 equals 0.0, NaN is the greatest. Narrow ones are those f32
whose low bits are 0, so that key and place may fit 32 bits.
"""

from __future__ import annotations

from typing import NamedTuple

from tilewright.base.dtypes import DType, f32, i32, i64, u32
from tilewright.base.number import number_of
from tilewright.diag import shown
from tilewright.lang import arithmetic
from tilewright.lang.axes import Span
from tilewright.lang.enums import BinaryFn, CompareFn
from tilewright.lang.recorder import Node, Recorder
from tilewright.lang.running import position_of
from tilewright.lang.scans import tile_of
from tilewright.lang.source_locations import refuse
from tilewright.lang.values import Scalar, Tile

MOST_SELECTED = 64
"""Elements that ``topk`` finds at most: every thread holds them in registers."""
MOST_BINS = 1 << 15
"""Counters of 4 bytes that the shared memory of a CTA takes, as a power of two."""
_KEY_BITS = {
    "bool": 2,
    "i8": 8,
    "i16": 16,
    "i32": 32,
    "u8": 9,
    "u16": 17,
    "u32": 32,
    "e4m3": 12,
    "e5m2": 11,
    "bf16": 16,
    "f16": 19,
    "f32": 32,
}
"""Bits of a key, which has a sign: of floats that, the exponent as f32 has it and the fraction."""
_HALF = 1 << 31
"""Subtracting it maps the order of u32 to that of i32."""
_MAGNITUDE = 0x7FFFFFFF
"""All bits of an f32 but its sign."""


class _Packing(NamedTuple):
    """How elements of ``dtype`` are packed: a key of ``bits`` bits above ``places`` bits for the place, and one that
    says -0.0."""

    dtype: DType
    bits: int
    places: int
    descending: bool

    @property
    def word(self) -> DType:
        """The integers that hold both."""
        return i32 if self.bits + self.places < 32 else i64

    @property
    def above(self) -> int:
        """Bits below the key."""
        return self.word.bits - self.bits


def sort(x: object, axis: int = -1, *, descending: bool = False) -> Tile:
    """The elements along an axis, the last one by default, in ascending order, equal ones in their own; NaN is the
    greatest.

    Absent elements go last. Of every dtype but i64.
    """
    return _unpacked(*_sorted(x, axis, None, descending))[0]


def argsort(x: object, axis: int = -1, *, descending: bool = False) -> Tile:
    """The indices along the axis, in the tile, of the elements that ``sort`` gives: i32."""
    return _unpacked(*_sorted(x, axis, None, descending))[1]


def topk(x: object, k: int, axis: int = -1, *, largest: bool = True) -> tuple[Tile, Tile]:
    """The ``k`` greatest elements along an axis and their indices, or the least: a pair of tiles whose axis has ``k``
    elements, the greatest first, of equal ones the first. At most 64.

    Where there are fewer than ``k`` elements the last ones are absent.
    """
    more = "sort the axis where more are needed: tw.sort(x, 1, descending=True)"
    return _unpacked(*_sorted(x, axis, _count_of(k, "k", MOST_SELECTED, more), largest))


def histogram(x: object, bins: int) -> Tile:
    """How many elements of an integer tile are 0, 1, .. ``bins - 1``: i32, over an axis of ``bins`` elements.

    Others are skipped, as are absent ones. At most 32768 bins, whose counters lie in shared memory.
    """
    tile = tile_of(x)
    rec, node = tile.recorder, tile.node
    if not node.dtype.is_int:
        refuse("LNG023", found=f"a histogram of {node.dtype}", required="integers", help="x.to(tw.i32)")
    more = "count a part of the bins in each program: tw.histogram(x[m] - part * 32768, 32768)"
    bins = _count_of(bins, "bins", MOST_BINS, more)
    if node.dtype == i64:  # of which the low bits alone may name another bin
        inside = arithmetic.compare(rec, CompareFn.EQ, node, arithmetic.cast(rec, arithmetic.cast(rec, node, i32), i64))
        node = arithmetic.select(rec, inside, node, arithmetic.binary(rec, BinaryFn.OR, node, -1))
    return Tile(rec, rec.histogram(arithmetic.cast(rec, node, i32), bins))


def _count_of(value: object, name: str, most: int, more: str) -> int:
    """A compile-time number of elements of a result; LNG042 for other values, with ``more`` where it is too large."""
    number = number_of(value)
    if isinstance(number, int) and not isinstance(number, bool) and 1 <= number <= most:
        return number
    if isinstance(value, Scalar) or not isinstance(number, int) or isinstance(number, bool):
        help = f"make it a keyword parameter with an int as default: *, {name}=8"
    else:
        help = more if number > most else f"where it may be 0, leave the call out: if {name} > 0: ..."
    refuse(
        "LNG042",
        found=f"{name} = {'an integer known only at launch' if isinstance(value, Scalar) else shown(value)}",
        required=f"a compile-time int of 1 to {most}",
        help=help,
    )


def _sorted(x: object, axis: int, count: int | None, descending: bool) -> tuple[Recorder, Node, _Packing]:
    tile = tile_of(x)
    rec, node = tile.recorder, tile.node
    at = position_of(axis, node.axes)
    if node.dtype.name not in _KEY_BITS:
        refuse(
            "LNG023",
            found=f"a sort of {node.dtype}",
            required=", ".join(_KEY_BITS),
            help="elements are sorted with their indices in 64 bits: cast them to tw.i32 or tw.f32",
        )
    places = (node.axes[at].size - 1).bit_length()
    packing = _Packing(node.dtype, _KEY_BITS[node.dtype.name], places, descending)
    packed = _packed(rec, node.known_by(None), at, packing).known_by(node.presence)
    return rec, rec.sort(packed, at, count), packing


def _packed(rec: Recorder, x: Node, axis: int, packing: _Packing) -> Node:
    key, low = _key(rec, x), _place(rec, x, axis)
    low = arithmetic.binary(rec, BinaryFn.MUL, low, 2)
    if x.dtype.is_float:
        zero = arithmetic.compare(rec, CompareFn.EQ, arithmetic.cast(rec, x, f32), 0.0)
        negative = arithmetic.compare(rec, CompareFn.LT, _bits(rec, x), 0)
        minus = arithmetic.cast(rec, arithmetic.binary(rec, BinaryFn.AND, zero, negative), i32)
        low = arithmetic.binary(rec, BinaryFn.OR, low, minus)
        key = arithmetic.select(rec, zero, 0, key)
        key = arithmetic.binary(rec, BinaryFn.SHR, key, 32 - packing.bits)
    if packing.descending:
        key = arithmetic.binary(rec, BinaryFn.SUB, -1, key)
    high = arithmetic.binary(rec, BinaryFn.SHL, arithmetic.cast(rec, key, packing.word), packing.above)
    return arithmetic.binary(rec, BinaryFn.OR, high, arithmetic.cast(rec, low, packing.word))


def _unpacked(rec: Recorder, x: Node, packing: _Packing) -> tuple[Tile, Tile]:
    """The elements and their places."""
    key = arithmetic.cast(rec, arithmetic.binary(rec, BinaryFn.SHR, x, packing.above), i32)
    low = arithmetic.cast(rec, arithmetic.binary(rec, BinaryFn.AND, x, (2 << packing.places) - 1), i32)
    place = arithmetic.binary(rec, BinaryFn.SHR, low, 1)
    if packing.descending:
        key = arithmetic.binary(rec, BinaryFn.SUB, -1, key)
    if packing.dtype.is_float:
        bits = arithmetic.binary(rec, BinaryFn.SHL, key, 32 - packing.bits)
        bits = arithmetic.binary(rec, BinaryFn.AND, _mirrored(rec, bits), -1 << (32 - packing.bits))
        value = rec.bitcast(
            arithmetic.binary(rec, BinaryFn.OR, bits, arithmetic.binary(rec, BinaryFn.SHL, low, 31)), f32
        )
    elif packing.dtype == u32:
        value = arithmetic.binary(rec, BinaryFn.XOR, arithmetic.cast(rec, key, u32), _HALF)
    else:
        value = key
    return Tile(rec, arithmetic.returned(rec, value, packing.dtype)), Tile(rec, place)


def _bits(rec: Recorder, x: Node) -> Node:
    return rec.bitcast(arithmetic.cast(rec, x, f32), i32)


def _mirrored(rec: Recorder, bits: Node) -> Node:
    """Inverts all but the sign bit of negative floats, and back."""
    sign = arithmetic.binary(rec, BinaryFn.SHR, bits, 31)
    return arithmetic.binary(rec, BinaryFn.XOR, bits, arithmetic.binary(rec, BinaryFn.AND, sign, _MAGNITUDE))


def _key(rec: Recorder, x: Node) -> Node:
    """An i32 that has the order of the elements; of NaN the greatest."""
    if x.dtype == u32:
        x = arithmetic.binary(rec, BinaryFn.XOR, x, _HALF)
    if not x.dtype.is_float:
        return arithmetic.cast(rec, x, i32)
    wide = arithmetic.cast(rec, x, f32)
    nan = arithmetic.compare(rec, CompareFn.NE, wide, wide)
    return arithmetic.select(rec, nan, _MAGNITUDE, _mirrored(rec, _bits(rec, x)))


def _place(rec: Recorder, x: Node, axis: int) -> Node:
    """Places along an axis, counted from the tile's start, with the axes of ``x``."""
    span, rank = x.axes[axis], len(x.axes)
    if not isinstance(span, Span):
        return arithmetic.broadcast(rec, arithmetic.lift(rec, 0), x.axes)
    place = arithmetic.binary(rec, BinaryFn.SUB, rec.index(span), span.origin)
    others = [d for d in range(rank) if d != axis]
    return arithmetic.broadcast(rec, rec.expand(place, others) if others else place, x.axes)
