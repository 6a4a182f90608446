"""A random kernel as a tree: what ``draw`` makes, ``text`` writes down and ``evaluate`` computes.

An expression knows its dtype (by name) and its axes: the name of a range, or None for an axis of one element that has
no place. The rules for both are written here from docs/language.md; nothing is taken from the compiler.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

Axes: TypeAlias = tuple[str | None, ...]

FLOATS = ("f32", "f16", "bf16")
STORED_FLOATS = ("e4m3", "e5m2")
INTS = ("i8", "i16", "i32", "i64", "u8", "u16", "u32")
BITS = {"f32": 32, "tf32": 32, "f16": 16, "bf16": 16, "e4m3": 8, "e5m2": 8, "bool": 8} | {n: int(n[1:]) for n in INTS}
KEEPS = ("neg", "abs", "not")
POWERS = {f"pow{n}".replace("-", "_"): n for n in (2, 3, 5, 12, -1, -2)}
"""``x ** n`` as functions of one element."""


def is_float(dtype: str) -> bool:
    """Whether elements are floats of any width."""
    return dtype in FLOATS or dtype in STORED_FLOATS or dtype == "tf32"


# -- integers of the launch -------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Number:
    """An integer that is written down."""

    value: int


@dataclass(frozen=True)
class Extent:
    """``x.shape[position]``."""

    tensor: str
    position: int


@dataclass(frozen=True)
class Argument:
    """A scalar argument, i32."""

    name: str


@dataclass(frozen=True)
class Place:
    """``index`` of a program (a range without a block), or ``start`` or ``stop`` of a range."""

    range: str
    what: str


@dataclass(frozen=True)
class Integer:
    """``+ - * // %``, ``min``, ``max`` of two exact integers."""

    fn: str
    a: Exact
    b: Exact


Exact: TypeAlias = Number | Extent | Argument | Place | Integer


# -- expressions ------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Load:
    """A tensor at a coordinate per dimension: the name of a range, or an integer."""

    tensor: str
    coords: tuple[str | Exact, ...]
    dtype: str
    axes: Axes


@dataclass(frozen=True)
class Constant:
    """A number of Python, of ``dtype`` "int" or "float": it takes the dtype that it meets."""

    value: int | float
    dtype: str
    axes: Axes = ()


@dataclass(frozen=True)
class Whole:
    """An exact integer as a value; takes the dtype that it meets, as a number does."""

    value: Exact
    dtype: str = "int"
    axes: Axes = ()


@dataclass(frozen=True)
class Given:
    """A scalar argument of f32."""

    name: str
    dtype: str = "f32"
    axes: Axes = ()


@dataclass(frozen=True)
class Index:
    """Coordinates of a range."""

    axes: Axes
    dtype: str = "i32"


@dataclass(frozen=True)
class Name:
    """What a ``Let`` named, or a fragment now."""

    name: str
    dtype: str
    axes: Axes


@dataclass(frozen=True)
class Unary:
    fn: str
    x: Expression
    dtype: str
    axes: Axes


@dataclass(frozen=True)
class Binary:
    fn: str
    a: Expression
    b: Expression
    dtype: str
    axes: Axes


@dataclass(frozen=True)
class Compare:
    fn: str
    a: Expression
    b: Expression
    axes: Axes
    dtype: str = "bool"


@dataclass(frozen=True)
class Where:
    condition: Expression
    a: Expression
    b: Expression
    dtype: str
    axes: Axes


@dataclass(frozen=True)
class Cast:
    x: Expression
    dtype: str
    axes: Axes


@dataclass(frozen=True)
class Reduce:
    """``sum``, ``mean``, ``max``, ``min`` or ``argmax`` along one axis."""

    fn: str
    x: Expression
    axis: int
    keepdims: bool
    dtype: str
    axes: Axes


@dataclass(frozen=True)
class Expand:
    """Axes of one element at ``positions`` of the result."""

    x: Expression
    positions: tuple[int, ...]
    dtype: str
    axes: Axes


@dataclass(frozen=True)
class Transpose:
    x: Expression
    perm: tuple[int, ...]
    dtype: str
    axes: Axes


@dataclass(frozen=True)
class Dot:
    a: Expression
    b: Expression
    promoted: bool
    dtype: str
    axes: Axes


Expression: TypeAlias = (
    Load
    | Constant
    | Whole
    | Given
    | Index
    | Name
    | Unary
    | Binary
    | Compare
    | Where
    | Cast
    | Reduce
    | Expand
    | Transpose
    | Dot
)


def operands(e: Expression) -> tuple[Expression, ...]:
    """The expressions that one is made of."""
    match e:
        case Unary() | Cast() | Reduce() | Expand() | Transpose():
            return (e.x,)
        case Binary() | Compare() | Dot():
            return (e.a, e.b)
        case Where():
            return (e.condition, e.a, e.b)
        case _:
            return ()


def weak(e: Expression) -> bool:
    """A number, which takes the dtype of what it meets."""
    return isinstance(e, Constant | Whole)


def promoted(a: str, b: str) -> str:
    """The dtype of arithmetic on two dtypes; weak ones are "int" and "float"."""
    if a == b:
        return {"int": "i64", "float": "f32"}.get(a, a)
    if b in ("int", "float"):
        a, b = b, a
    if a in ("int", "float"):
        if b == "bool":
            return "i32" if a == "int" else "f32"
        return "f32" if b in INTS and a == "float" else b
    kinds = [0 if d == "bool" else 1 if d in INTS else 2 for d in (a, b)]
    if kinds[0] != kinds[1]:
        return a if kinds[0] > kinds[1] else b
    if a in INTS:
        return narrowest(a, b)
    if BITS[a] != BITS[b]:
        return a if BITS[a] > BITS[b] else b
    return "f32"


def narrowest(a: str, b: str) -> str:
    """The narrowest dtype that has all elements of two dtypes of integers."""
    if a[0] == b[0]:
        return a if BITS[a] > BITS[b] else b
    signed, other = (a, b) if a[0] == "i" else (b, a)
    return f"i{max(BITS[signed], 2 * BITS[other])}"


def joined(*axes: Axes) -> Axes:
    """Axes after broadcasting."""
    rank = max(map(len, axes))
    found: list[str | None] = []
    for position in range(rank):
        here = [a[position - rank + len(a)] for a in axes if position - rank + len(a) >= 0]
        found.append(next((a for a in here if a is not None), None))
    return tuple(found)


def unary(fn: str, x: Expression) -> Unary:
    return Unary(fn, x, x.dtype if is_float(x.dtype) or fn in KEEPS else "f32", x.axes)


def binary(fn: str, a: Expression, b: Expression) -> Binary:
    dtype = promoted(a.dtype, b.dtype)
    if fn == "div" and not is_float(dtype):
        dtype = "f32"
    return Binary(fn, a, b, dtype, joined(a.axes, b.axes))


def compare(fn: str, a: Expression, b: Expression) -> Compare:
    return Compare(fn, a, b, joined(a.axes, b.axes))


def where(condition: Expression, a: Expression, b: Expression) -> Where:
    return Where(condition, a, b, promoted(a.dtype, b.dtype), joined(condition.axes, a.axes, b.axes))


def cast(x: Expression, dtype: str) -> Expression:
    return x if x.dtype == dtype else Cast(x, dtype, x.axes)


def reduce(fn: str, x: Expression, axis: int, keepdims: bool = False) -> Reduce:
    rest = x.axes[:axis] + ((None,) if keepdims else ()) + x.axes[axis + 1 :]
    dtype = x.dtype
    if fn == "argmax":
        dtype = "i32"
    elif fn == "mean":
        dtype = x.dtype if is_float(x.dtype) else "f32"
    elif x.dtype == "bool" or (fn == "sum" and x.dtype in INTS):
        dtype = "i64" if fn == "sum" else "bool"
    return Reduce(fn, x, axis, keepdims, dtype, rest)


def expand(x: Expression, positions: tuple[int, ...]) -> Expression:
    axes = list(x.axes)
    for p in sorted(positions):
        axes.insert(p, None)
    return Expand(x, positions, x.dtype, tuple(axes)) if positions else x


def transpose(x: Expression, perm: tuple[int, ...]) -> Transpose:
    return Transpose(x, perm, x.dtype, tuple(x.axes[p] for p in perm))


def dot(a: Expression, b: Expression, promoted: bool = False) -> Dot:
    return Dot(a, b, promoted, "i32" if a.dtype == "i8" else "f32", (a.axes[0], b.axes[1]))


# -- statements -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Let:
    name: str
    value: Expression


@dataclass(frozen=True)
class Store:
    tensor: str
    coords: tuple[str | Exact, ...]
    value: Expression


@dataclass(frozen=True)
class Add:
    """``tw.reduce_add``."""

    tensor: str
    coords: tuple[str | Exact, ...]
    value: Expression


@dataclass(frozen=True)
class Fragment:
    """``tw.full`` over ranges."""

    name: str
    ranges: tuple[str, ...]
    value: int | float
    dtype: str


@dataclass(frozen=True)
class Write:
    """``.set``, ``+=``, ``-=`` or ``*=``, by ``fn``."""

    name: str
    fn: str
    value: Expression


@dataclass(frozen=True)
class Stream:
    """A loop over ``extent`` by the range ``range``."""

    range: str
    extent: Exact
    start: Exact | None
    until: Exact | None
    body: tuple[Statement, ...]


Statement: TypeAlias = Let | Store | Add | Fragment | Write | Stream


# -- kernels ----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Range:
    """Coordinates of a dimension.

    ``kind`` is grid, axis or stream. ``block`` is its extent in a tile, None for one program or iteration per element;
    where ``auto``, the schedule chooses and ``block`` is only what the evaluator walks by.
    """

    name: str
    dim: str
    kind: str
    block: int | None
    auto: bool = False


@dataclass(frozen=True)
class Tensor:
    """``dims`` are names or extents; ``use`` is in, out, inout or add; ``how`` it lies; ``data`` it holds before."""

    name: str
    dtype: str
    dims: tuple[str | int, ...]
    use: str
    how: str = "plain"
    data: str = "normal"


@dataclass(frozen=True)
class Kernel:
    """A whole kernel and one launch of it: ``extents`` by dimension, ``scalars`` by name, ``pins`` of the schedule as
    text; ``static`` dimensions are numbers in the annotations."""

    name: str
    numerics: str
    grid: tuple[str, ...]
    ranges: dict[str, Range]
    tensors: dict[str, Tensor]
    extents: dict[str, int]
    scalars: dict[str, int | float]
    body: tuple[Statement, ...]
    family: str = ""
    pins: str = ""
    static: frozenset[str] = field(default=frozenset())

    def shape(self, tensor: str) -> tuple[int, ...]:
        """Extents of a tensor in the launch."""
        return tuple(self.extents[d] if isinstance(d, str) else d for d in self.tensors[tensor].dims)
