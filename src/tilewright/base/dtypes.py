"""Element types, as the field names them."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from enum import Enum


class DTypeKind(Enum):
    """The interpretation of an element's bits."""

    FLOAT = "float"
    INT = "int"
    BOOL = "bool"


@dataclass(frozen=True)
class DType:
    """An element type. ``bits`` is the storage size in memory; ``digits`` the significand bits of a float;
    ``signed`` is False of integers that have no sign."""

    name: str
    kind: DTypeKind
    bits: int
    digits: int = 0
    signed: bool = True

    @property
    def bytes(self) -> int:
        """Storage size; every dtype in the table so far fills whole bytes."""
        return self.bits // 8

    @property
    def is_float(self) -> bool:
        return self.kind is DTypeKind.FLOAT

    @property
    def is_int(self) -> bool:
        return self.kind is DTypeKind.INT

    @property
    def is_bool(self) -> bool:
        return self.kind is DTypeKind.BOOL

    @property
    def integers(self) -> tuple[int, int]:
        """The least and the greatest element of an integer dtype."""
        return (-(1 << self.bits - 1), (1 << self.bits - 1) - 1) if self.signed else (0, (1 << self.bits) - 1)

    def holds(self, other: DType) -> bool:
        """Whether every element of another integer dtype is one of this."""
        (low, high), (least, most) = self.integers, other.integers
        return low <= least and most <= high

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return self.name


f32 = DType("f32", DTypeKind.FLOAT, 32, 24)
tf32 = DType("tf32", DTypeKind.FLOAT, 32, 11)
f16 = DType("f16", DTypeKind.FLOAT, 16, 11)
bf16 = DType("bf16", DTypeKind.FLOAT, 16, 8)
e4m3 = DType("e4m3", DTypeKind.FLOAT, 8, 4)
e5m2 = DType("e5m2", DTypeKind.FLOAT, 8, 3)
i8 = DType("i8", DTypeKind.INT, 8)
i16 = DType("i16", DTypeKind.INT, 16)
i32 = DType("i32", DTypeKind.INT, 32)
i64 = DType("i64", DTypeKind.INT, 64)
u8 = DType("u8", DTypeKind.INT, 8, signed=False)
u16 = DType("u16", DTypeKind.INT, 16, signed=False)
u32 = DType("u32", DTypeKind.INT, 32, signed=False)
bool_ = DType("bool", DTypeKind.BOOL, 8)

DTYPES: dict[str, DType] = {
    d.name: d for d in (f32, tf32, f16, bf16, e4m3, e5m2, i8, i16, i32, i64, u8, u16, u32, bool_)
}
STORED = tuple(d for d in DTYPES.values() if d != tf32)
"""Element types of tensors in memory."""

_ALIASES = {
    "float32": f32,
    "float": f32,
    "float16": f16,
    "half": f16,
    "bfloat16": bf16,
    "float8_e4m3fn": e4m3,
    "float8_e5m2": e5m2,
    "int8": i8,
    "int16": i16,
    "short": i16,
    "int32": i32,
    "int64": i64,
    "uint8": u8,
    "uint16": u16,
    "uint32": u32,
    "bool_": bool_,
}


def dtype_named(name: str) -> DType | None:
    """The dtype called ``name`` here, in NumPy or in PyTorch (``torch.bfloat16`` works); None if there is none."""
    short = name.rsplit(".", 1)[-1]
    return DTYPES.get(short) or _ALIASES.get(short)


def dtypes_near(name: str) -> tuple[DType, ...]:
    """What ``name``, which names no dtype, may have been meant for: dtypes whose name here, in NumPy or in PyTorch it
    begins, or one that is spelt much alike with the same digits."""
    short = name.rsplit(".", 1)[-1].lower()
    names = {**DTYPES, **_ALIASES}
    near = [known for known in names if short and known.startswith(short)]
    if not near:
        digits = re.sub(r"\D", "", short)
        alike = [known for known in names if re.sub(r"\D", "", known) == digits]
        near = difflib.get_close_matches(short, alike, n=1, cutoff=0.7)
    return tuple(dict.fromkeys(names[known] for known in near))


def promote(a: DType, b: DType) -> DType:
    """Result type of arithmetic on two dtypes, as PyTorch promotes tensors of equal rank.

    Floats win over integers and integers over bool; among floats the wider; two different 16-bit floats give f32;
    8-bit floats with each other or with 16-bit floats give the 16-bit one, or f32 if they differ. Of integers the
    narrowest that has all elements of both (as in NumPy 2): u32 and i32 give i64, u8 and i8 give i16.
    """
    if a == b:
        return a
    order = {DTypeKind.BOOL: 0, DTypeKind.INT: 1, DTypeKind.FLOAT: 2}
    if a.kind is not b.kind:
        return a if order[a.kind] > order[b.kind] else b
    if a.is_int:
        both = (d for d in (a, b, i16, i32, i64) if d.holds(a) and d.holds(b))
        return next(both)
    if a.bits != b.bits:
        return a if a.bits > b.bits else b
    return f32
