"""``Tensor``: a parameter in global memory, as an annotation and as the value a kernel's body indexes."""

from __future__ import annotations

import numbers
from typing import Any, cast

from tilewright.base.dtypes import DType, bf16, f16, f32, i32, i64
from tilewright.base.expr import Const, Expr
from tilewright.lang import arithmetic
from tilewright.lang.axes import Coord, Span, Unit, whole
from tilewright.lang.operators import operand_of
from tilewright.lang.places import refuse
from tilewright.lang.recorder import Array, Recorder
from tilewright.lang.traced import Traced
from tilewright.lang.values import Fragment, Int, Range, Scalar, Tile, integer_of, scalar_of, show_key

ADDED_ATOMICALLY = (i32, i64, bf16, f16, f32)
"""Element types that the hardware adds to memory in one step (PTX ISA 9.1, red; CUDA C++ atomicAdd)."""


_COMPUTED = (
    "an index is a place, not a tile, whether loaded or computed: use the Range itself, or .start and .stop in integer "
    "arithmetic; to read at a shift, pass a view of the tensor that begins there"
)
_INDEX_HELP: dict[type, str] = {Tile: _COMPUTED, Fragment: _COMPUTED}


class TensorSpec:
    """What ``Tensor["M", 128]`` is: a symbol or an extent per dimension. ``| None`` makes it ``optional``."""

    __slots__ = ("dims", "optional")

    def __init__(self, dims: tuple[str | int, ...], optional: bool = False):
        self.dims = dims
        self.optional = optional

    def __or__(self, other: object) -> TensorSpec:
        return TensorSpec(self.dims, True) if other is None else NotImplemented

    __ror__ = __or__

    def __repr__(self) -> str:
        return f"Tensor[{', '.join(map(repr, self.dims))}]"


class Tensor(Traced):
    """A tensor parameter. ``x[m, n]`` loads, ``x[m, n] = tile`` stores; m and n are Ranges, Scalars or ints.

    As an annotation, ``Tensor["M", 128]`` names each dimension or fixes its extent.
    """

    __slots__ = ("_array", "_recorder")

    def __init__(self, recorder: Recorder, array: Array):
        self._recorder = recorder
        self._array = array

    def __class_getitem__(cls, dims: Any) -> TensorSpec:
        return TensorSpec(cast("tuple[str | int, ...]", dims) if isinstance(dims, tuple) else (dims,))

    @property
    def recorder(self) -> Recorder:
        return self._recorder

    @property
    def array(self) -> Array:
        return self._array

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self._array.dtype

    @property
    def shape(self) -> tuple[Int, ...]:
        """An int per known extent, a Scalar per symbolic one."""
        return tuple(scalar_of(self._recorder, dim) for dim in self._array.dims)

    @property
    def ndim(self) -> int:
        return len(self._array.dims)

    def __getitem__(self, key: object) -> Tile:
        rec = self._recorder
        coords, squeezed = self._coords(key)
        node = rec.load(self._array, coords)
        if squeezed:  # a whole axis of extent 1 was loaded at coordinate 0 and stays an axis
            node = rec.expand(node, squeezed)
        return Tile(rec, node)

    def __setitem__(self, key: object, value: object) -> None:
        self.write(key, value, add=False)

    def write(self, key: object, value: object, *, add: bool) -> None:
        """Store, or add, a value converted to this dtype and broadcast to the coordinates' axes."""
        rec = self._recorder
        if add and self.dtype not in ADDED_ATOMICALLY:
            refuse(
                "LNG004",
                found=f"reduce_add to {self._array.name} of {self.dtype}",
                required=f"a tensor of {', '.join(map(str, ADDED_ATOMICALLY))}",
                help="add to a tensor of one of these, and convert it in a kernel of its own",
            )
        coords, squeezed = self._coords(key)
        source = operand_of(value)
        if source is None:
            refuse(
                "LNG026",
                found=f"a {type(value).__name__} stored to {self._array.name}",
                required="a tile, fragment, scalar or number",
                help="load tensors by indexing them first: y[m] = x[m]",
            )
        node = arithmetic.convert(rec, source, self.dtype)
        spans = [c for c in coords if isinstance(c, Span)]
        axes = list[Span | Unit](spans)
        for position in squeezed:
            axes.insert(position, Unit())
        node = arithmetic.broadcast(rec, node, tuple(axes))
        for position in reversed(squeezed):
            node = arithmetic.drop_unit(rec, node, position)
        (rec.reduce_add if add else rec.store)(self._array, coords, node)

    def _coords(self, key: object) -> tuple[list[Coord], list[int]]:
        """A coordinate per dimension, and the places of whole unit axes among the axes that are kept."""
        items: tuple[object, ...] = cast("tuple[object, ...]", key) if isinstance(key, tuple) else (key,)
        dims = self._array.dims
        if len(items) > len(dims):
            refuse(
                "LNG002",
                found=f"{len(items)} indices {show_key(items)}",
                required=f"{self._array.name} has {len(dims)} dimensions ({', '.join(map(str, dims))})",
                help="one index per dimension; trailing dimensions of known extent may be left out",
            )
        items += (slice(None),) * (len(dims) - len(items))
        coords = list[Coord]()
        squeezed = list[int]()
        kept = 0
        for position, (item, dim) in enumerate(zip(items, dims, strict=True)):
            coord = self._coord(item, dim, position)
            if isinstance(coord, Unit):
                squeezed.append(kept)
                coord = Const(0)
                kept += 1
            kept += isinstance(coord, Span)
            coords.append(coord)
        return coords, squeezed

    def _coord(self, item: object, dim: Expr, position: int) -> Coord | Unit:
        match item:
            case Range():
                return item.span
            case slice():
                extent = dim.constant
                if item == slice(None) and extent is not None:
                    return whole(extent)
                refuse(
                    "LNG002" if item == slice(None) else "LNG019",
                    found=f"a slice on dimension {position} of {self._array.name}, extent {dim}",
                    required="a Range for a dimension whose extent is symbolic",
                    help=f"take the whole axis with n = tw.axis({self._array.name}.shape[{position}], upto=4096)",
                )
            case Scalar() | numbers.Integral():
                return integer_of(item, f"index {position} of {self._array.name}", code="LNG019")
            case _:
                refuse(
                    "LNG019",
                    found=f"index {position} of {self._array.name} is {show_key([item])[1:-1]}",
                    required="a Range, an integer of extents and program indices, or an int",
                    help=_INDEX_HELP.get(type(item), "axes come from tw.grid, tw.stream and tw.axis"),
                )

    def __repr__(self) -> str:
        return f"Tensor({self._array.name}, {self.dtype}, ({', '.join(map(str, self._array.dims))}))"
