"""``Tensor``: a parameter in global memory, as an annotation and as the value a kernel's body indexes."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from enum import Enum
from typing import Any, NoReturn, TypeAlias, cast

from tilewright.base.dtypes import DType, f32
from tilewright.base.expr import Const, Expr, Sym
from tilewright.diag import type_shown
from tilewright.lang import arithmetic
from tilewright.lang.axes import UNIT, Axis, Coord, Span, Unit, axis_symbol, whole
from tilewright.lang.enums import AtomicFn, BinaryFn
from tilewright.lang.operators import number_of, operand_of
from tilewright.lang.recorder import Array, Node, Recorder
from tilewright.lang.shapes import Shape
from tilewright.lang.source_locations import refuse
from tilewright.lang.traced import Traced
from tilewright.lang.values import Int, Range, Scalar, Tile, Value, integer_of, scalar_of, show_key
from tilewright.lang.views import View


class Promise(Enum):
    """A property of the integers in a tensor that a kernel relies on; a launch for which it does not hold stores
    nothing."""

    UNIQUE = "Unique"
    """Stores at coordinates loaded from the tensor reach each element at most once."""
    OFFSETS = "Offsets"
    """They begin with 0, ascend, and do not go beyond the extent that they share out."""


class TensorSpec:
    """The value of ``Tensor["M", 128]``: a symbol or an extent per dimension. ``| None`` makes it ``optional``."""

    __slots__ = ("dims", "optional", "promise")

    def __init__(self, dims: tuple[str | int, ...], optional: bool = False, promise: Promise | None = None):
        self.dims = dims
        self.optional = optional
        self.promise = promise

    def __or__(self, other: object) -> TensorSpec:
        return TensorSpec(self.dims, True, self.promise) if other is None else NotImplemented

    __ror__ = __or__

    def __repr__(self) -> str:
        kind = "Tensor" if self.promise is None else self.promise.value
        return f"{kind}[{', '.join(map(repr, self.dims))}]"


class Tensor(Traced):
    """A tensor parameter. ``x[m, n]`` loads, ``x[m, n] = tile`` stores; m and n are Ranges, Scalars or ints.

    As an annotation, ``Tensor["M", 128]`` names each dimension or fixes its extent.
    """

    __slots__ = ("_array", "_recorder", "_view")
    _methods_of_loaded = frozenset(name for name in dir(Tile) if not name.startswith("_"))

    def __init__(self, recorder: Recorder, array: Array, view: View | None = None):
        self._recorder = recorder
        self._array = array
        self._view = view

    def __class_getitem__(cls, dims: Any) -> TensorSpec:
        return TensorSpec(_dims(dims))

    @property
    def recorder(self) -> Recorder:
        return self._recorder

    @property
    def array(self) -> Array:
        """The parameter itself: no view of it."""
        if self._view is not None:
            refuse(
                "LNG043",
                title="a view of a tensor stands where a tensor has to",
                found=f"{self._array.name} in other dimensions",
                required="a parameter of the kernel",
                help=f"pass {self._array.name} as it is",
            )
        return self._array

    @property
    def dims(self) -> tuple[Expr, ...]:
        """The extents as expressions."""
        return self._array.dims

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self._array.dtype

    @property
    def shape(self) -> tuple[Int, ...]:
        """An int per known extent, a Scalar per symbolic one."""
        return Shape(scalar_of(self._recorder, dim) for dim in self._array.dims)

    @property
    def ndim(self) -> int:
        return len(self._array.dims)

    def reshape(self, *shape: Any) -> Tensor:
        """The same elements in row-major order in other dimensions: ints and integers of extents, one of them -1.

        Moves nothing: what is loaded from the view and stored to it are elements of this tensor. A launch for which
        the numbers of elements differ is refused.
        """
        base = self.array
        given = cast("Sequence[object]", shape[0]) if len(shape) == 1 and isinstance(shape[0], tuple | list) else shape
        dims = [
            None if number_of(item) == -1 else integer_of(item, f"extent {d} of the view")
            for d, item in enumerate(given)
        ]
        for dim in dims:
            if dim is not None:
                self._recorder.use(dim)
        view = View(self._recorder, base, dims)
        return Tensor(self._recorder, view.array, view)

    def __getitem__(self, key: object) -> Tile:
        items = cast("tuple[object, ...]", key) if isinstance(key, tuple) else (key,)
        if any(item is None for item in items):
            return self._with_new_axes(items)
        rec = self._recorder
        coords = self._coords(items)
        if self._view is not None:
            return Tile(rec, self._viewed(self._view, coords))
        if any(isinstance(c, Node) for c in coords):
            return Tile(rec, rec.gather(self._array, *self._indirect(coords)))
        direct, squeezed = _direct(coords)
        node = rec.load(self._array, direct)
        if squeezed:  # a whole axis of extent 1 was loaded at coordinate 0 and stays an axis
            node = rec.expand(node, squeezed)
        return Tile(rec, node)

    def _with_new_axes(self, key: tuple[object, ...]) -> Tile:
        """A load with an axis where ``key`` has None: ``x[m, None]`` is ``x[m][:, None]``."""
        items = tuple(item for item in key if item is not None)
        if not all(isinstance(item, Range | slice | Scalar | numbers.Integral) for item in items):
            refuse(
                "LNG019",
                found=f"None beside an index tile, {self._array.name}{show_key(key)}",
                required="None beside Ranges, slices and integers, each of which has one axis or none",
                help="insert the axis into what was loaded: x[index[m], n][:, None]",
            )
        axes = [
            None if item is None else slice(None) for item in key if item is None or isinstance(item, Range | slice)
        ]
        return self[items][tuple(axes)]

    def __setitem__(self, key: object, value: object) -> None:
        self.write(key, value)

    def write(self, key: object, value: object, fn: AtomicFn | None = None) -> None:
        """Store a value converted to this dtype and broadcast to the coordinates' axes, or reduce it into the elements
        there by ``fn``."""
        rec = self._recorder
        if fn is not None and self.dtype not in fn.dtypes:
            wider = f"reduce into a tensor of {f32 if self.dtype.is_float and f32 in fn.dtypes else fn.dtypes[0]}"
            refuse(
                "LNG004",
                found=f"reduce_{fn} to {self._array.name} of {self.dtype}",
                required=f"a tensor of {', '.join(map(str, fn.dtypes))}: what the hardware reduces in one step",
                help=f"{wider}, and convert it in a kernel of its own",
            )
        coords = self._coords(key)
        source = operand_of(value)
        if source is None:
            refuse(
                "LNG026",
                found=f"{type_shown(value)} stored to {self._array.name}",
                required="a tile, fragment, scalar or number",
                help="load tensors by indexing them first: y[m] = x[m]",
            )
        node = arithmetic.convert(rec, source, self.dtype)
        if self._view is not None:
            self._write_viewed(self._view, coords, node, fn)
            return
        if any(isinstance(c, Node) for c in coords):
            places, axes = self._indirect(coords)
            rec.scatter(self._array, places, arithmetic.broadcast(rec, node, axes), fn=fn)
            return
        direct, squeezed = _direct(coords)
        axes = list[Span | Unit](c for c in direct if isinstance(c, Span))
        for position in squeezed:
            axes.insert(position, Unit())
        node = arithmetic.broadcast(rec, node, tuple(axes))
        for position in reversed(squeezed):
            node = rec.drop(node, position)
        if fn is None:
            rec.store(self._array, direct, node)
        else:
            rec.reduce_into(fn, self._array, direct, node)

    def _viewed(self, view: View, coords: Sequence[_Place]) -> Node:
        """What a view has at coordinates: a box of the tensor with its axes split, or its elements one by one."""
        rec, box, computed = self._recorder, _box(view, coords), self._computed(coords)
        if box is None:
            places, axes = self._indirect(coords)
            found = rec.gather(view.base, view.places(rec, places, axes), axes)
            return found if computed else found.known_by(None)
        axes = tuple(c for c in coords if isinstance(c, Span))
        return rec.reshape(rec.load(view.base, box), axes, whole=True)

    def _computed(self, coords: Sequence[_Place]) -> bool:
        """Whether some coordinate of the view is a tile; for the others the launch is required to keep them inside."""
        assert self._view is not None
        unwrapped = [c.at if isinstance(c, _Kept) else c.span if isinstance(c, _Shared) else c for c in coords]
        self._view.check_split(unwrapped)
        for position, coord in enumerate(coords):
            if isinstance(coord, Span | Expr):
                self._recorder.stays_inside(self._array, position, coord)
        return any(isinstance(c, Node) for c in coords)

    def _write_viewed(self, view: View, coords: Sequence[_Place], node: Node, fn: AtomicFn | None) -> None:
        rec, box = self._recorder, _box(view, coords)
        if fn is None:
            view.check_stored()
        self._computed(coords)
        if box is None:
            places, axes = self._indirect(coords)
            rec.scatter(view.base, view.places(rec, places, axes), arithmetic.broadcast(rec, node, axes), fn=fn)
            return
        node = arithmetic.broadcast(rec, node, tuple(c for c in coords if isinstance(c, Span)))
        moved = rec.reshape(node, tuple(c for c in box if isinstance(c, Span)), whole=True)
        if fn is None:
            rec.store(view.base, box, moved)
        else:
            rec.reduce_into(fn, view.base, box, moved)

    def _coords(self, key: object) -> list[_Place]:
        """The coordinate along each dimension: a range, a whole unit axis, an integer, or a tile of coordinates."""
        items: tuple[object, ...] = cast("tuple[object, ...]", key) if isinstance(key, tuple) else (key,)
        dims = self._array.dims
        if len(items) > len(dims) or any(dim.constant is None for dim in dims[len(items) :]):
            refuse(
                "LNG002",
                found=f"{len(items)} indices {show_key(items)}",
                required=f"{self._array.name} has {len(dims)} dimensions ({', '.join(map(str, dims))})",
                help="one index per dimension; trailing dimensions of known extent may be left out",
            )
        items += (slice(None),) * (len(dims) - len(items))
        coords = [self._coord(item, dim, at) for at, (item, dim) in enumerate(zip(items, dims, strict=True))]
        return self._paired(items, coords) if any(isinstance(c, Node) for c in coords) else coords

    def _paired(self, items: Sequence[object], coords: Sequence[_Place]) -> list[_Place]:
        """The same beside index tiles: a Range that is an axis of one is shared with it. That Ranges lie inside is
        asked of the launch."""
        paired = list(coords)
        along = {axis for c in coords if isinstance(c, Node) for axis in c.axes}
        for position, (item, coord) in enumerate(zip(items, coords, strict=True)):
            if isinstance(item, Range):
                self._recorder.stays_inside(self._array, position, item.span)
                paired[position] = _Shared(item.span) if item.span in along else coord
        return paired

    def _coord(self, item: object, dim: Expr, position: int) -> _Place:
        match item:
            case Range():
                return item.span
            case slice():
                return self._slice(cast("slice[Any, Any, Any]", item), dim, position)
            case Scalar() | numbers.Integral():
                coord = integer_of(item, f"index {position} of {self._array.name}", code="LNG019")
                if coord.constant is None and not self._recorder.reaches(self._array, position, coord):
                    return arithmetic.lift(self._recorder, coord)
                return coord
            case Value() if item.dtype.is_int:
                return arithmetic.lift(self._recorder, item._operand())  # pyright: ignore[reportPrivateUsage]
            case _:
                refuse(
                    "LNG019",
                    found=f"index {position} of {self._array.name} is {_shown(item)}",
                    required="a Range, an integer of extents and program indices, an integer tile, or an int",
                    help=self._instead_of(item),
                )

    def _instead_of(self, item: object) -> str:
        """The suggested index instead of an invalid one."""
        if isinstance(item, Tensor):
            return f"load it first: {self._array.name}[{item.array.name}[m]]"
        if item is Ellipsis or item is None:
            return "name every dimension, and insert axes into the loaded tile: x[m, n][:, None]"
        if not isinstance(item, Traced) and (isinstance(item, list | tuple) or hasattr(item, "__array__")):
            return "pass the indices as a tensor of integers and load them: x[index[m], n]"
        return "axes come from tw.grid, tw.stream and tw.axis; cast other tiles with .to(tw.i32)"

    def _slice(self, item: slice[Any, Any, Any], dim: Expr, position: int) -> _Place:
        """Part of a dimension of known extent: a whole axis of that many elements, at coordinates from its start."""
        extent = dim.constant
        if extent is None:
            refuse(
                "LNG019",
                found=f"a slice on dimension {position} of {self._array.name}, extent {dim}",
                required="a Range for a dimension whose extent is symbolic",
                help=f"take the whole axis with n = tw.axis({self._array.name}.shape[{position}], upto=4096)",
            )
        if not all(part is None or isinstance(part, numbers.Integral) for part in (item.start, item.stop, item.step)):
            refuse(
                "LNG019",
                found=f"a slice on dimension {position} of {self._array.name} that begins or ends at a value",
                required="integers known when the kernel is traced",
                help="walk a part that programs choose with tw.stream(..., start=, until=)",
            )
        places = range(*item.indices(extent))
        if not places:
            refuse(
                "LNG019",
                found=f"a slice of no element on dimension {position} of {self._array.name}, extent {extent}",
                required="at least one element",
                help="leave the access out",
            )
        axis = whole(len(places))
        if isinstance(axis, Unit):
            return _Kept(Const(places[0]))
        if places == range(len(places)):
            return axis
        rec = self._recorder
        index = rec.index(axis)
        if places.step != 1:
            index = arithmetic.binary(rec, BinaryFn.MUL, index, places.step)
        return arithmetic.binary(rec, BinaryFn.ADD, index, places.start)

    def _indirect(self, coords: Sequence[_Place]) -> tuple[list[Expr | Node], tuple[Axis, ...]]:
        """Coordinates of a gather or scatter, and the axes of what it moves, in the order of the subscript.

        Index tiles of at most one axis each stand where the first over their Range does; others are broadcast to each
        other and stand where the first of them does. A Range that they share stands where it, or they, come first.
        """
        rec = self._recorder
        tiles = [c for c in coords if isinstance(c, Node)]
        apart = all(len(tile.axes) <= 1 for tile in tiles)
        pending = iter(tiles if apart else arithmetic.align(rec, tiles))
        places: list[Expr | tuple[Node, list[int]]] = []
        axes: list[Axis] = []
        blocks: dict[object, list[int]] = {}
        shared = {c.span: -1 for c in coords if isinstance(c, _Shared)}

        def stands(axis: Axis) -> int:
            """The place of an axis of an index tile."""
            if not isinstance(axis, Span) or shared.get(axis, -1) < 0:
                axes.append(axis)
                if isinstance(axis, Span) and axis in shared:
                    shared[axis] = len(axes) - 1
                return len(axes) - 1
            return shared[axis]

        for coord in coords:
            match coord:
                case Span():
                    places.append(Sym(axis_symbol(len(axes))))
                    axes.append(coord)
                case _Shared(span):
                    places.append(Sym(axis_symbol(stands(span))))
                case _Kept(at):
                    places.append(at)
                    axes.append(UNIT)
                case Node():
                    tile = next(pending)
                    if tile.axes not in blocks:
                        blocks[tile.axes] = [stands(axis) for axis in tile.axes]
                    places.append((tile, blocks[tile.axes]))
                case _:
                    places.append(coord)
        return [self._spread(p, len(axes)) if isinstance(p, tuple) else p for p in places], tuple(axes)

    def _spread(self, place: tuple[Node, list[int]], rank: int) -> Node:
        """An index tile over ``rank`` axes; ``place`` gives its own axes."""
        tile, own = place
        if own != sorted(own):
            tile = self._recorder.transpose(tile, sorted(range(len(own)), key=own.__getitem__))
        others = [d for d in range(rank) if d not in own]
        return self._recorder.expand(tile, others) if others else tile

    def _no_value(self, *_: object) -> NoReturn:
        refuse(
            "LNG023",
            found=f"the tensor {self._array.name} in an expression",
            required="a tile of it",
            help=f"load it by indexing it first: {self._array.name}[{', '.join('mnkbh'[: max(1, self.ndim)])}]",
        )

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _no_value
    __abs__ = __invert__ = __pos__ = __pow__ = __rpow__ = __and__ = __or__ = __xor__ = _no_value
    __rand__ = __ror__ = __rxor__ = __lshift__ = __rshift__ = __eq__ = __ne__ = _no_value
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __matmul__ = __rmatmul__ = __neg__ = _no_value
    __lt__ = __le__ = __gt__ = __ge__ = _no_value
    __hash__ = Traced.__hash__

    def __repr__(self) -> str:
        return f"Tensor({self._array.name}, {self.dtype}, ({', '.join(map(str, self._array.dims))}))"


class Unique(Tensor):
    """An index tensor through which stores reach each element at most once: ``y[index[m], n] = x[m, n]``.

    Entries that lead outside of the tensor that is stored to may repeat. A step before the kernel checks the promise on
    the device; a launch for which it does not hold stores nothing, and is reported.
    """

    __slots__ = ()

    def __class_getitem__(cls, dims: Any) -> TensorSpec:
        return TensorSpec(_dims(dims), promise=Promise.UNIQUE)


class Offsets(Tensor):
    """Where groups of rows begin and end, ``Offsets["G + 1"]``: group g has the rows ``offsets[g] .. offsets[g + 1]``.

    The first is 0, none is less than the one before it, and the last is at most the number of rows. ``ragged_grid``
    walks the groups; a step before the kernel checks the promise on the device, as that of ``Unique``.
    """

    __slots__ = ()

    def __class_getitem__(cls, dims: Any) -> TensorSpec:
        return TensorSpec(_dims(dims), promise=Promise.OFFSETS)


def _dims(dims: Any) -> tuple[str | int, ...]:
    return cast("tuple[str | int, ...]", dims) if isinstance(dims, tuple) else (dims,)


class _Kept:
    """A dimension of which one coordinate is taken, as an axis of one element."""

    __slots__ = ("at",)
    __match_args__ = ("at",)

    def __init__(self, at: Expr):
        self.at = at


class _Shared:
    """A range that is an axis of an index tile, too."""

    __slots__ = ("span",)
    __match_args__ = ("span",)

    def __init__(self, span: Span):
        self.span = span


_Place: TypeAlias = Coord | _Kept | _Shared | Node
"""The access along a dimension: by a range, at an integer, or at the elements of an integer tile."""


def _box(view: View, coords: Sequence[_Place]) -> list[Coord] | None:
    """Coordinates of a view as those of a box of its tensor, where they are."""
    given = [c for c in coords if not isinstance(c, Node | _Kept | _Shared)]
    return view.box(given) if len(given) == len(coords) else None


def _direct(coords: Sequence[_Place]) -> tuple[list[Coord], list[int]]:
    """Coordinates of a load or store, and the places of unit axes among the axes that are kept."""
    found: list[Coord] = []
    units: list[int] = []
    kept = 0
    for coord in coords:
        assert not isinstance(coord, Node | _Shared)
        if isinstance(coord, _Kept):
            units.append(kept)
        found.append(coord.at if isinstance(coord, _Kept) else coord)
        kept += isinstance(coord, _Kept | Span)
    return found, units


def _shown(item: object) -> str:
    """An invalid index as text."""
    return f"a tile of {item.dtype}" if isinstance(item, Value) else show_key([item])[1:-1]
