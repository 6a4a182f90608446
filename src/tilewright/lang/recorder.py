"""The interface to which a kernel's body records operations: one method per operation. ``tile`` implements it by
building IR."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Protocol, TypeAlias

from tilewright.base.dtypes import DType
from tilewright.base.expr import Expr
from tilewright.lang.axes import Axis, Coord, Span
from tilewright.lang.elementwise_table import UnaryFn
from tilewright.lang.enums import AtomicFn, BinaryFn, CompareFn, ReduceFn


# Plain classes: a dataclass takes a millisecond of the import.
class Node:
    """A recorded value. ``handle`` is the recorder's own.

    ``presence``, also its own, says which elements there are; None where all are. An element is absent where a computed
    or loaded coordinate left its tensor.
    """

    __slots__ = ("axes", "dtype", "handle", "presence")

    def __init__(self, handle: object, dtype: DType, axes: tuple[Axis, ...], presence: object = None):
        self.handle, self.dtype, self.axes, self.presence = handle, dtype, axes, presence

    def known_by(self, presence: object) -> Node:
        """The same value with another presence."""
        return Node(self.handle, self.dtype, self.axes, presence)


class Cell:
    """A recorded mutable value."""

    __slots__ = ("axes", "dtype", "handle")

    def __init__(self, handle: object, dtype: DType, axes: tuple[Axis, ...]):
        self.handle, self.dtype, self.axes = handle, dtype, axes


class Array:
    """A tensor parameter."""

    __slots__ = ("dims", "dtype", "handle", "name")

    def __init__(self, handle: object, name: str, dtype: DType, dims: tuple[Expr, ...]):
        self.handle, self.name, self.dtype, self.dims = handle, name, dtype, dims


class OpenStream:
    """A stream whose body is being recorded."""

    __slots__ = ("handle", "span")

    def __init__(self, handle: object, span: Span):
        self.handle, self.span = handle, span


Combine: TypeAlias = Callable[[Sequence[Node], Sequence[Node]], Sequence[Node]]
"""Makes of two states of a scan, values of rank 0, the next."""


class Recorder(Protocol):
    """Records operations in the user's order. Operands already have the dtypes and axes that each operation
    requires."""

    def load(self, array: Array, coords: Sequence[Coord]) -> Node: ...
    def store(self, array: Array, coords: Sequence[Coord], value: Node) -> None: ...
    def reduce_into(self, fn: AtomicFn, array: Array, coords: Sequence[Coord], value: Node) -> None:
        """Atomically combines the tensor's elements with the value's."""
        ...

    def reaches(self, array: Array, dimension: int, coord: Expr) -> bool:
        """Whether a scalar coordinate lies inside the tensor in every program, as dispatch may have to check."""
        ...

    def stays_inside(self, array: Array, dimension: int, coord: Coord) -> None:
        """Ask of each launch that a coordinate of an access lies inside in every program; refuses one that can't."""
        ...

    def known_inside_of(self, coord: Node, dim: Expr) -> bool:
        """Whether a tile of coordinates lies in ``0 .. dim`` in every program of every launch."""
        ...

    def gather(self, array: Array, coords: Sequence[Expr | Node], axes: tuple[Axis, ...]) -> Node:
        """The elements at the coordinates: integers, or integer tiles whose axes are those of ``axes`` or units."""
        ...

    def scatter(self, array: Array, coords: Sequence[Expr | Node], value: Node, *, fn: AtomicFn | None) -> None:
        """Write the value's elements at coordinates like a gather's, or combine them with the tensor's by ``fn``."""
        ...

    def ragged(
        self,
        offsets: Array,
        extent: Expr,
        block: int,
        others: Sequence[Expr],
        blocks: Sequence[int | None],
        *,
        keep: bool,
    ) -> tuple[Expr, Span, tuple[Coord, ...]]:
        """A program for each tile of ``block`` rows of a group, and each block of ``others``: its group, the rows, and
        its place in these. Plain stores to the rows are followed by zeros to those in no group, unless ``keep``."""
        ...

    def bind(self, x: Node, most: Expr) -> Expr:
        """An integer of rank 0 that was loaded, clipped to ``0 .. most``, as a symbol of expressions: one value for the
        whole program."""
        ...

    def clipped(self, x: Node, extent: Expr) -> Expr:
        """The same clipped to ``0 .. extent - 1``: an index of an axis, which has an element at least (asked at
        launch; LNG020 where it never has one)."""
        ...

    def present(self, x: Node) -> Node:
        """A bool per element of ``x``: whether it exists."""
        ...

    def present_where(self, x: Node, found: Node) -> Node:
        """``x``, of which there are the elements where ``found`` is true."""
        ...

    def fill(self, x: Node, value: Node) -> Node:
        """``x``, and ``value`` where an element is absent."""
        ...

    def holds(self, value: Expr, dtype: DType) -> bool:
        """Whether ``value`` is an element of the integer dtype in every launch."""
        ...

    def index(self, span: Span) -> Node: ...
    def scalar(self, value: Expr, dtype: DType) -> Node: ...
    def constant(self, value: bool | int | float, dtype: DType) -> Node: ...

    def expand(self, x: Node, positions: Sequence[int]) -> Node: ...
    def drop(self, x: Node, axis: int) -> Node:
        """``x`` without an axis of one element."""
        ...

    def broadcast(self, x: Node, axes: tuple[Axis, ...]) -> Node: ...
    def transpose(self, x: Node, perm: Sequence[int]) -> Node: ...
    def reshape(self, x: Node, axes: tuple[Axis, ...], *, whole: bool = False) -> Node:
        """The elements of ``x`` in row-major order along other axes; those that are outside of a domain are absent,
        unless they are so on both sides (``whole``)."""
        ...

    def unary(self, fn: UnaryFn, x: Node) -> Node: ...
    def binary(self, fn: BinaryFn, a: Node, b: Node) -> Node: ...
    def fma(self, a: Node, b: Node, c: Node) -> Node: ...
    def compare(self, fn: CompareFn, a: Node, b: Node) -> Node: ...
    def select(self, cond: Node, a: Node, b: Node) -> Node: ...
    def cast(self, x: Node, dtype: DType) -> Node: ...
    def reduce(self, fn: ReduceFn, x: Node, axis: int) -> Node: ...
    def dot(self, a: Node, b: Node, *, promoted: bool) -> Node: ...

    def scan(
        self,
        combine: Combine,
        values: Sequence[Node],
        before: Sequence[Node],
        axis: int,
        *,
        exclusive: bool,
        reverse: bool,
        neutral: bool | int | float | None,
    ) -> tuple[list[Node], list[Node]]:
        """The running states of ``values`` along an axis, and the last one. ``combine`` maps two rank-0 states to the
        next; ``before`` is empty or the state before the first element; ``neutral`` is the neutral element, None if it
        is unknown."""
        ...

    def bitcast(self, x: Node, dtype: DType) -> Node:
        """The bits of each element as those of a dtype of the same width."""
        ...

    def sort(self, x: Node, axis: int, count: int | None) -> Node:
        """The integers of ``x`` along an axis in ascending order, absent ones last; with ``count`` the least ones,
        along an axis of their own."""
        ...

    def histogram(self, x: Node, bins: int) -> Node:
        """How often each number below ``bins`` stands in an i32 tile, over the axis of so many elements."""
        ...

    def fragment(self, init: Node) -> Cell: ...
    def read(self, cell: Cell) -> Node: ...
    def write(self, cell: Cell, value: Node, proxy: object) -> None:
        """``proxy`` is the object user names are bound to."""
        ...

    def repeat(self, trip: Expr, step: Callable[[Expr], Mapping[Cell, Node]]) -> None:
        """A loop of so many steps: ``step`` says what cells hold after the one of a counter."""
        ...

    def print(self, format: str, values: Sequence[Node]) -> None: ...

    def grid(self, extents: Sequence[Expr], blocks: Sequence[int | None]) -> tuple[Coord, ...]:
        """One coordinate per axis of programs: a span for a block, the program id for None."""
        ...

    def bound(self, extent: Expr, upto: int) -> int:
        """Refuse launches where ``extent > upto``; returns the tile extent, which the schedule may have narrowed."""
        ...

    def require(self, predicate: Expr) -> bool:
        """Requires a predicate over extents and scalars of each launch; False if none can satisfy it."""
        ...

    def use(self, value: Expr) -> None:
        """Check that every stream counter in ``value`` belongs to an open stream."""
        ...

    def open_stream(self, start: Expr, stop: Expr, step: int, frame: FrameType) -> OpenStream:
        """Begin a loop over ``start .. stop``; ``frame`` holds the user's ``for``."""
        ...

    def close_stream(self, stream: OpenStream, loop_value: object, frame: FrameType) -> None:
        """End it; ``loop_value`` is what the loop variable was bound to."""
        ...

    def abandon_stream(self, stream: OpenStream, frame: FrameType) -> None:
        """The loop was left before its end, by break, return or an exception, at the frame's line."""
        ...
