"""Tracing: a kernel's body runs once, and each operation becomes an op of the ``tile`` dialect at the user's line."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from types import FrameType
from typing import cast

from xdsl.dialects.builtin import ModuleOp, UnitAttr
from xdsl.ir import Attribute, Block, Region, SSAValue

from tilewright.artifact.schema import MAX_EXTENT
from tilewright.base.dtypes import DTYPES, STORED, DType, bool_, i32, i64, tf32
from tilewright.base.expr import Const, Expr, Interval, ceildiv, maximum, minimum, parse, sym
from tilewright.lang import arithmetic, builtins, elementwise, random, scans, search, sorts
from tilewright.lang.axes import Axis, Coord, Span, whole
from tilewright.lang.calls import run_body
from tilewright.lang.elementwise_table import UnaryFn
from tilewright.lang.enums import AtomicFn, BinaryFn, CompareFn, ReduceFn, identity
from tilewright.lang.params import ChosenExtent, KernelFunction, KeywordParam, ScalarParam, TensorParam
from tilewright.lang.recorder import Array, Cell, Combine, Node, OpenStream
from tilewright.lang.regroup import regrouped
from tilewright.lang.signature import DEFAULT_EXTENT, Signature, check_signature
from tilewright.lang.source_locations import explaining, names_of, refuse, user_frame, within_stack
from tilewright.lang.tensors import Promise, Tensor
from tilewright.lang.values import Fragment, Range, Scalar, Tile, Value
from tilewright.tile import dialect
from tilewright.tile.accesses import Use
from tilewright.tile.builder import KernelBuilder, handle
from tilewright.tile.combining import check_combining, require_associative, skipping_absent
from tilewright.tile.compared import bind_shifts
from tilewright.tile.coordinates import Coordinates
from tilewright.tile.dialect import TensorType, TileType
from tilewright.tile.ops import COUNTER, program_index
from tilewright.tile.presence import Presence, Reshaped, expanded_from, joint, presence_of, zero_where_absent
from tilewright.tile.promised_indices import apart_by_position, promised_access
from tilewright.tile.queries import coords_of, filled, tensor_name
from tilewright.tile.scalar_coordinates import bind_coordinates
from tilewright.tile.scans import combine_block

_COUNTED_GROUPS = 16
"""Groups whose tiles a program counts, so that there is none without rows: a step takes the producer some 90 ns."""
_SEARCHED_BITS = (1, 5, 7, 9, 12, 31)
"""Steps of the binary search for a group, by the number of groups."""


def trace(kernel: KernelFunction, signature: Signature, *, verify: bool = True, traps: bool = False) -> ModuleOp:
    """Run the body of ``kernel`` once, specialised for ``signature``; ``verify`` the module (what a kernel leaves for
    one choice of extents has the same ops for the next). ``traps``: where loaded coordinates lead outside, but for -1.

    Returns a module with one ``tile.kernel`` op. Raises ``TilewrightError`` with LNG codes at the user's line.
    """
    check_signature(kernel, signature)
    dtypes, static = dict(signature.dtypes), dict(signature.static)
    names = [p.name for p in (*kernel.tensors, *kernel.scalars)]
    types = [_tensor_type(kernel, p, dtypes[p.name], static) for p in kernel.tensors]
    block = Block(arg_types=[*types, *(TileType.of(p.dtype, ()) for p in kernel.scalars)])
    for arg, name in zip(block.args, names, strict=True):
        arg.name_hint = name
    pinned = dict(signature.keywords)
    chosen = frozenset(dict(signature.extents).get(n, DEFAULT_EXTENT) for n in kernel.autos if n not in pinned)
    scalars = {p.name: p.dtype.integers for p in kernel.scalars if p.dtype.is_int}
    promises = {p.name: p.promise for p in kernel.tensors if p.promise is not None}
    tracer = Tracer(block, frozenset(kernel.dims), scalars, chosen, dict(signature.limits), promises, traps=traps)
    tracer.sentinel = kernel.sentinel
    arguments = _arguments(kernel, signature, tracer, block)
    absent = [p.name for p in kernel.keywords if p.default is None and not p.auto]
    with within_stack(kernel.where), explaining(absent, _function_of_the_language):
        returned = run_body(tracer, kernel.fn, (), arguments)
    tracer.finish(kernel, returned)
    made = tracer.kernel_op(kernel, names)
    bind_coordinates(made, tracer.known_inside)
    bind_shifts(made)
    if not any(isinstance(op, (*dialect.WRITES, dialect.Print)) for op in made.walk()):
        refuse(
            "LNG032",
            where=kernel.where,
            found=f"no store in {kernel.name}",
            required="a store, a reduce_add or a print",
            help="store results to a tensor parameter: y[m] = value",
        )
    module = ModuleOp([made])
    if verify:
        module.verify()
    return module


def _function_of_the_language(owner: str, name: str) -> object:
    """The function that Python calls for ``owner.name``, or ``name`` where it has no class."""
    if owner:
        kind = next((k for k in (Value, Tile, Fragment, Scalar, Range, Tensor) if k.__name__ == owner), None)
        return getattr(kind, name, None)
    rooms = (builtins, elementwise, scans, search, sorts, random)
    return next((found for room in rooms if (found := getattr(room, name, None)) is not None), None)


def _tensor_type(kernel: KernelFunction, param: TensorParam, dtype: DType, static: dict[str, int]) -> TensorType:
    if DTYPES.get(dtype.name) != dtype or dtype == tf32:
        refuse(
            "LNG004",
            where=kernel.where,
            found=f"{param.name} of {dtype}",
            required=" ".join(map(str, STORED)),
            help="pass f32 and cast operands of dot with .to(tw.tf32)" if dtype == tf32 else "cast it before the call",
        )
    if param.promise is not None and not dtype.is_int:
        refuse(
            "LNG040",
            where=kernel.where,
            found=f"{param.name}, a tw.{param.promise.value}, of {dtype}",
            required="integers",
            help="pass i32 or i64",
        )
    fixed = {name: Const(extent) for name, extent in static.items()}
    dims = [Const(d) if isinstance(d, int) else parse(d).substitute(fixed) for d in param.dims]
    return TensorType.of(dtype, dims, param.name)


def _arguments(kernel: KernelFunction, signature: Signature, tracer: Tracer, block: Block) -> dict[str, object]:
    keywords, extents = dict(signature.keywords), dict(signature.extents)
    values = iter(block.args)
    arguments = dict[str, object]()
    for param in (*kernel.tensors, *kernel.scalars, *kernel.keywords):
        match param:
            case TensorParam(name):
                arguments[name] = Tensor(tracer, tracer.array(next(values)))
            case ScalarParam(name, dtype):
                value = next(values)
                float_tile = Tile(tracer, Node(value, dtype, ()))
                arguments[name] = float_tile if dtype.is_float else Scalar(tracer, sym(name))
            case KeywordParam(name, default):
                chosen = ChosenExtent(extents.get(name, DEFAULT_EXTENT)) if param.auto else default
                arguments[name] = keywords.get(name, chosen)
    return arguments


class Tracer(KernelBuilder):
    """Builds IR from the calls of ``lang.recorder.Recorder``, and checks the rules of the language."""

    def __init__(
        self,
        block: Block,
        dims: frozenset[str],
        scalars: Mapping[str, Interval],
        chosen_sizes: frozenset[int],
        limits: Mapping[Expr, int],
        promises: Mapping[str, Promise],
        *,
        traps: bool = False,
    ):
        super().__init__(block, dims, scalars, chosen_sizes, limits)
        self._promises = promises
        self._traps = traps
        self.sentinel = -1
        self._ragged = set[Coord]()  # tiles of rows of one group, and of rows in none
        self._rests = dict[Span, Span]()  # these beside those
        self._coordinates = Coordinates(self._accesses)
        self._presences = dict[Presence, Node]()
        self._offsets = dict[str, Coord]()  # symbols of loaded offsets, with their places

    # -- memory -------------------------------------------------------------------------------------------------------
    def load(self, array: Array, coords: Sequence[Coord]) -> Node:
        self._record(Use.LOAD, array, coords)
        return self._node(dialect.Load(_tensor(array), coords))

    def store(self, array: Array, coords: Sequence[Coord], value: Node) -> None:
        self._record(Use.STORE, array, coords)
        self._emit(dialect.Store(self._value(self._zeroed(value)), _tensor(array), coords))
        rest = [self._rests.get(c, c) if isinstance(c, Span) else c for c in coords]
        if rest != list(coords):
            if self._accesses.is_loaded(array):
                refuse(
                    "LNG014",
                    found=f"{array.name} is loaded, and stored to with zeros for rows in no group",
                    required="the same Ranges for every load and store of a tensor that is both read and written",
                    help='keep these rows: tw.ragged_grid(..., rest="keep")',
                )
            self._record(Use.STORE, array, rest)
            zero = arithmetic.convert(self, False if array.dtype.is_bool else 0, array.dtype)
            zeros = arithmetic.broadcast(self, zero, tuple(c for c in rest if isinstance(c, Span)))
            self._emit(dialect.Store(self._value(zeros), _tensor(array), rest))

    def reduce_into(self, fn: AtomicFn, array: Array, coords: Sequence[Coord], value: Node) -> None:
        self._record(Use.of(fn), array, coords)
        self._emit(dialect.AtomicReduce(fn, self._value(self._neutral(fn, value)), _tensor(array), coords))

    def _record(self, use: Use, array: Array, coords: Sequence[Coord]) -> None:
        self._keep_promise(use, array)
        self._use_coords(coords)
        varying = self._varying()
        if not self._ragged.isdisjoint(coords):  # tiles of programs differ, which their place does not show
            varying = [v for v in varying if v != program_index(0)]
        begins = (c.origin if isinstance(c, Span) else c for c in coords)
        groups = {self._offsets[s] for begin in begins for s in begin.symbols & self._offsets.keys()}
        varying = [v for v in varying if sym(v) not in groups]  # and groups of programs do
        self._accesses.record(use, array, coords, varying)

    def _keep_promise(self, use: Use, array: Array) -> None:
        """LNG040 for a kernel that writes integers which it relies on."""
        promise = self._promises.get(array.name)
        if promise is not None and use is not Use.LOAD:
            refuse(
                "LNG040",
                found=f"{array.name}, a tw.{promise.value}, is {use.value}",
                required="integers that stay as they were checked",
                help="write the result to another tensor",
            )

    def known_inside(self, coord: Expr, extent: Expr) -> bool:
        """Whether a coordinate lies in ``0 .. extent`` in every program, without conditions on the launch."""
        return self._accesses.limits.inside(coord, extent)

    def reaches(self, array: Array, dimension: int, coord: Expr) -> bool:
        self.use(coord)
        return self._accesses.reaches(array, dimension, coord)

    def stays_inside(self, array: Array, dimension: int, coord: Coord) -> None:
        self._use_coords([coord])
        self._accesses.stays_inside(array, dimension, coord)

    def known_inside_of(self, coord: Node, dim: Expr) -> bool:
        return coord.presence is None and self.known_inside(self._placed(coord), dim)

    def gather(self, array: Array, coords: Sequence[Expr | Node], axes: tuple[Axis, ...]) -> Node:
        self._trap_outside(array, coords)
        coords = [self._outside_where_absent(c) for c in coords]
        forms, indices = self._indirect(Use.LOAD, array, coords, axes)
        node = self._node(dialect.Gather(_tensor(array), forms, indices, axes))
        limits, stops = self._accesses.limits, [axis.stop for axis in axes if isinstance(axis, Span)]
        leading = [
            (coord, dim, self._outside_key(form, indices, dim))
            for coord, form, dim in zip(coords, forms, array.dims, strict=True)
            if isinstance(coord, Node) and not limits.inside(self._placed(coord), dim, stops)
        ]
        inside = tuple((coord, dim) for coord, dim, _ in leading)
        return node.known_by(Presence((tuple(key for *_, key in leading), axes), inside) if inside else None)

    def _outside_key(self, form: Expr, indices: Sequence[SSAValue], dim: Expr) -> tuple[object, ...]:
        """The key of a coordinate that may be out of bounds: how it is computed from which index operands. Operands
        loaded twice from a tensor that is not written are the same."""
        used = [k for k in range(len(indices)) if dialect.index_symbol(k) in form.symbols]
        numbered = {dialect.index_symbol(k): sym(dialect.index_symbol(n)) for n, k in enumerate(used)}
        operands: list[tuple[object, ...]] = []
        for key in (expanded_from(indices[k]) for k in used):
            load = key[0].owner if isinstance(key[0], SSAValue) else None
            if isinstance(load, dialect.Load) and not self._accesses.is_written(tensor_name(load)):
                key = (load.tensor, load.coords, *key[1:])
            operands.append(key)
        return form.substitute(numbered), tuple(operands), dim

    def scatter(self, array: Array, coords: Sequence[Expr | Node], value: Node, *, fn: AtomicFn | None) -> None:
        self._trap_outside(array, coords)
        coords = [self._outside_where_absent(c) for c in coords]
        forms, indices = self._indirect(Use.STORE if fn is None else Use.of(fn), array, coords, value.axes)
        if fn is not None:
            moved = self._value(self._neutral(fn, value))
            self._emit(dialect.ScatterReduce(fn, moved, _tensor(array), forms, indices))
            return
        scatter = dialect.Scatter(self._value(self._zeroed(value)), _tensor(array), forms, indices)
        if indices and apart_by_position(scatter, self._varying()):
            scatter.attributes["apart"] = UnitAttr()
        elif indices:
            self._refuse_unpromised(scatter)
        self._emit(scatter)

    def _refuse_unpromised(self, scatter: dialect.Scatter) -> None:
        """LNG036 for a plain store at loaded coordinates that no tensor promises to be distinct."""
        name = dialect.tensor_type(scatter.tensor).tensor_name.data
        required = "each element written by one program, once"
        reliance = promised_access(scatter)
        if isinstance(reliance, str):
            refuse(
                "LNG036",
                found=f"{name} stored at {reliance}",
                required=required,
                help=f"walk {name}, and load at computed coordinates: y[m] = x[m.index // n, m.index % n]; "
                "store through elements of a tw.Unique tensor, rows of groups through tw.ragged_grid; or add with "
                "tw.reduce_add(y, index, value)",
            )
        open_ = [t for t in reliance.tensors if self._promises.get(t) is not Promise.UNIQUE]
        if open_:
            refuse(
                "LNG036",
                found=f"{name} stored at coordinates loaded from {', '.join(open_)}",
                required=required,
                help=f"annotate {open_[0]} as tw.Unique[...], whose entries the launch checks; or add with "
                "tw.reduce_add(y, index, value)",
            )

    def _indirect(
        self, use: Use, array: Array, coords: Sequence[Expr | Node], axes: tuple[Axis, ...]
    ) -> tuple[list[Expr], list[SSAValue]]:
        """The coordinates as expressions, with their index operands; the access is recorded."""
        leaves: dict[str, SSAValue] = {}
        forms: list[Expr] = []
        apart: list[Expr] = []
        for coord in coords:
            if isinstance(coord, Expr):
                self.use(coord)
                forms.append(coord)
                apart.append(self._coordinates.placed(coord, axes))
                continue
            value = self._value(coord)
            form = self._coordinates.of(value)
            found = [s for s in sorted(form.symbols) if s in self._coordinates.leaves]
            leaves |= {s: self._coordinates.leaves[s] for s in found}
            forms.append(form)
            apart.append(self._coordinates.placed(form, axes))
        numbered = {s: sym(dialect.index_symbol(k)) for k, s in enumerate(leaves)}
        self._keep_promise(use, array)
        ragged = not self._ragged.isdisjoint(a for a in axes if isinstance(a, Span))
        self._accesses.record_indirect(use, array, apart, axes, bool(leaves), self._varying(), ragged)
        return [f.substitute(numbered) for f in forms], [self._of_rank(v, len(axes)) for v in leaves.values()]

    def _placed(self, coord: Node) -> Expr:
        return self._coordinates.placed(self._coordinates.of(self._value(coord)), coord.axes)

    def _of_rank(self, index: SSAValue, rank: int) -> SSAValue:
        """An index operand, which may have been computed from a value of no axes."""
        missing = rank - dialect.tile_type(index).rank
        return handle(self.expand(_recorded(index), range(missing))) if missing else index

    def _trap_outside(self, array: Array, coords: Sequence[Expr | Node]) -> None:
        """In a build that traps: ends the launch at loaded coordinates outside of the tensor, except the sentinel."""
        if not self._traps:
            return
        for position, (coord, dim) in enumerate(zip(coords, array.dims, strict=True)):
            if not isinstance(coord, Node) or not self._is_loaded(coord):
                continue
            at = arithmetic.cast(self, coord.known_by(None), i64)
            above = arithmetic.compare(self, CompareFn.GE, at, dim)
            least = -1 if self.sentinel == -1 else 0
            outside = arithmetic.binary(self, BinaryFn.OR, arithmetic.compare(self, CompareFn.LT, at, least), above)
            if self.sentinel != -1:
                other = arithmetic.compare(self, CompareFn.NE, at, self.sentinel)
                outside = arithmetic.binary(self, BinaryFn.AND, outside, other)
            if coord.presence is not None:
                outside = arithmetic.binary(self, BinaryFn.AND, outside, self.present(coord))
            extent = arithmetic.broadcast(self, self.scalar(dim, i64), at.axes)
            text = f"index {{}} leads outside of {array.name}, dimension {position} of extent {{}}"
            self._emit(dialect.Trap(text, [self._value(v) for v in (outside, at, extent)]))

    def _is_loaded(self, coord: Node) -> bool:
        """Whether a coordinate is made of what was loaded."""
        form = self._coordinates.of(self._value(coord))
        return not form.symbols.isdisjoint(self._coordinates.leaves)

    def _outside_where_absent(self, coord: Expr | Node) -> Expr | Node:
        """A coordinate that is itself absent leads nowhere."""
        if not isinstance(coord, Node) or coord.presence is None:
            return coord
        return self._filled(self._widened(coord), -1)

    def _widened(self, coord: Node) -> Node:
        """A coordinate in a dtype that has all extents, too, and what is below 0."""
        return arithmetic.cast(self, coord, i32 if i32.holds(coord.dtype) else i64)

    def _varying(self) -> list[str]:
        """Program indices and counters that a plain store's coordinates have to depend on: not those of one turn."""
        programs = [program_index(i) for i, extent in enumerate(self._grid or ()) if extent.constant != 1]
        counters = [loop.counter for loop in self._loops]
        return [*programs, *(c for c in counters if self._accesses.limits.range(sym(c))[1] != 0)]

    # -- absent elements ----------------------------------------------------------------------------------------------
    def present(self, x: Node) -> Node:
        presence = presence_of(x)
        mask = self.constant(True, bool_) if presence is None else self._mask(presence)
        return arithmetic.broadcast(self, mask, x.axes)

    def present_where(self, x: Node, found: Node) -> Node:
        made = Presence((found.handle,), ())
        self._presences[made] = found
        return x.known_by(made)

    def fill(self, x: Node, value: Node) -> Node:
        return self._chosen(x, arithmetic.broadcast(self, value, x.axes)) if x.presence is not None else x

    def _chosen(self, x: Node, otherwise: Node) -> Node:
        """``x`` where it is present."""
        operands = (self._value(self.present(x)), self._value(x), self._value(otherwise))
        return self._node(dialect.Select(*operands))

    def _joint(self, *nodes: Node) -> Presence | None:
        """The presence of what is computed of these, element by element."""
        return joint(nodes, self._is_whole)

    def _is_whole(self, presence: Presence) -> bool:
        """Whether a launch may be asked that no element of computed, or of clamped, coordinates is absent, and is."""
        asked: list[Expr] = []
        for coord, dim in presence.inside:
            if coord.presence is not None:
                return False
            placed, limits = self._coordinates.any_loaded(self._placed(coord)), self._accesses.limits
            low, high = limits.lower(placed), limits.upper(placed + 1)
            if low is None or high is None:
                return False
            asked += [Const(0) <= low, high <= dim]
        may = bool(asked) and all(self._accesses.may_be(predicate) for predicate in asked)
        return may and all(map(self.require, asked))

    def _mask(self, presence: Presence) -> Node:
        """A bool per element; of a unit axis, one for all along the axis that it is broadcast to."""
        known = self._presences.get(presence)
        if known is not None and self._is_open(handle(known)):
            return known
        found = self._inside(presence) if presence.inside else self._presences[replace(presence, shapes=())]
        for name, positions in presence.shapes:
            match name:
                case "drop":
                    found = self.drop(found, *positions)
                case "expand":
                    found = self.expand(found, positions)
                case _:
                    found = self.transpose(found, positions)
        self._presences[presence] = found
        return found

    def _inside(self, presence: Presence) -> Node:
        """A bool per coordinate tuple: whether it lies in its tensor."""
        found: Node | None = None
        for place, dim in presence.inside:
            coord = self._widened(place)
            below = arithmetic.compare(self, CompareFn.LT, coord, dim)
            test = arithmetic.binary(self, BinaryFn.AND, arithmetic.compare(self, CompareFn.GE, coord, 0), below)
            found = test if found is None else arithmetic.binary(self, BinaryFn.AND, found, test)
        assert found is not None
        return found

    def _zeroed(self, x: Node) -> Node:
        """``x`` with 0 for absent elements."""
        if x.presence is None:
            return x
        if zero_where_absent(handle(x)):
            return x.known_by(None)
        return self._filled(x, False if x.dtype.is_bool else 0)

    def _neutral(self, fn: AtomicFn, x: Node) -> Node:
        """``x`` with what changes nothing for absent elements."""
        none = identity(fn, x.dtype)
        if x.presence is None or none == 0:
            return self._zeroed(x)
        return self._filled(x, none)

    def _filled(self, x: Node, number: bool | int | float) -> Node:
        return self.fill(x, arithmetic.convert(self, number, x.dtype))

    # -- integers and numbers -----------------------------------------------------------------------------------------
    def index(self, span: Span) -> Node:
        self._use_coords([span])
        return self._node(dialect.Index(span))

    def holds(self, value: Expr, dtype: DType) -> bool:
        (least, most), (low, high) = self._accesses.limits.range(value), dtype.integers
        return least is not None and most is not None and low <= least and most <= high

    def scalar(self, value: Expr, dtype: DType) -> Node:
        self.use(value)
        return self._node(dialect.ScalarExpr(value, dtype))

    def constant(self, value: bool | int | float, dtype: DType) -> Node:
        return self._node(dialect.Constant(value, dtype))

    # -- shapes -------------------------------------------------------------------------------------------------------
    def expand(self, x: Node, positions: Sequence[int]) -> Node:
        presence = presence_of(x)
        shaped = presence and presence.shaped("expand", positions)
        return self._node(dialect.Expand(self._value(x), positions), shaped)

    def drop(self, x: Node, axis: int) -> Node:
        """A reduction that returns its one element; it is absent where that was."""
        presence = presence_of(x)
        whole = arithmetic.cast(self, x.known_by(None), i32) if x.dtype.is_bool else x.known_by(None)
        made = arithmetic.cast(self, self.reduce(ReduceFn.MAX, whole, axis), x.dtype)
        return made.known_by(presence and presence.shaped("drop", (axis,)))

    def broadcast(self, x: Node, axes: tuple[Axis, ...]) -> Node:
        return self._node(dialect.Broadcast(self._value(x), axes), presence_of(x))

    def transpose(self, x: Node, perm: Sequence[int]) -> Node:
        presence = presence_of(x)
        shaped = presence and presence.shaped("transpose", perm)
        return self._node(dialect.Transpose(self._value(x), perm), shaped)

    def require(self, predicate: Expr) -> bool:
        return self._accesses.require(predicate)

    def reshape(self, x: Node, axes: tuple[Axis, ...], *, whole: bool = False) -> Node:
        node = self._node(dialect.Reshape(self._value(x), axes))
        before = presence_of(x)
        if isinstance(before, Reshaped) and before.key == (axes, x.axes) and not before.shapes:
            return node  # the domain of its axes says again which elements there are
        inside = () if whole else self._left_of_domain(x.axes, node.axes)
        if before is None:
            return node.known_by(Reshaped((x.axes, node.axes), inside) if inside else None)
        there = self._node(dialect.Reshape(self._value(self.present(x)), axes))
        if inside:
            there = arithmetic.binary(self, BinaryFn.AND, there, self._inside(Presence((), inside)))
        return self.present_where(node, there)

    def _left_of_domain(self, before: tuple[Axis, ...], after: tuple[Axis, ...]) -> tuple[tuple[Node, Expr], ...]:
        """Coordinates of a reshaped tile's elements along axes that have lost their range, each with where it ends: of
        those that reach beyond."""
        found: list[tuple[Node, Expr]] = []
        for sources, targets in regrouped([a.size for a in before], [a.size for a in after]):
            inner = 1
            for d in reversed(sources):
                axis = before[d]
                if isinstance(axis, Span) and axis not in [after[t] for t in targets] and not self._is_full(axis):
                    found.append((self._coordinate(axis, inner, after, targets), axis.stop))
                inner *= axis.size
        return tuple(found)

    def _is_full(self, span: Span) -> bool:
        """No coordinate of the span lies outside of its domain. A step of one element has that; a tile of rows, or a
        whole axis, may have none."""
        one = span.size == 1 and span in self._steps
        return one or self._accesses.limits.at_least(span.stop, span.origin + span.size)

    def _coordinate(self, span: Span, inner: int, after: tuple[Axis, ...], targets: Sequence[int]) -> Node:
        """Where a reshaped tile's elements lay along ``span``, which has ``inner`` elements behind each of its own."""
        place: Node | None = None
        stride = 1
        for d in reversed(targets):
            axis = after[d]
            if isinstance(axis, Span):
                along = arithmetic.binary(self, BinaryFn.SUB, self.index(axis), axis.origin)
                scaled = arithmetic.binary(self, BinaryFn.MUL, along, stride)
                part = self.expand(scaled, [t for t in range(len(after)) if t != d]) if len(after) > 1 else scaled
                place = part if place is None else arithmetic.binary(self, BinaryFn.ADD, place, part)
            stride *= axis.size
        assert place is not None
        if inner > 1:
            place = arithmetic.binary(self, BinaryFn.FLOORDIV, place, inner)
        if stride // inner > span.size:
            place = arithmetic.binary(self, BinaryFn.MOD, place, span.size)
        return arithmetic.binary(self, BinaryFn.ADD, place, span.origin)

    # -- computing ----------------------------------------------------------------------------------------------------
    def unary(self, fn: UnaryFn, x: Node) -> Node:
        return self._node(dialect.Unary(fn, self._value(x)), presence_of(x))

    def binary(self, fn: BinaryFn, a: Node, b: Node) -> Node:
        return self._node(dialect.Binary(fn, self._value(a), self._value(b)), self._joint(a, b))

    def fma(self, a: Node, b: Node, c: Node) -> Node:
        return self._node(dialect.Fma(self._value(a), self._value(b), self._value(c)), self._joint(a, b, c))

    def compare(self, fn: CompareFn, a: Node, b: Node) -> Node:
        return self._node(dialect.Compare(fn, self._value(a), self._value(b)), self._joint(a, b))

    def select(self, cond: Node, a: Node, b: Node) -> Node:
        node = self._node(dialect.Select(self._value(cond), self._value(a), self._value(b)))
        sides = {presence_of(a), presence_of(b)}
        if len(sides) == 1 or sides == {None, presence_of(cond)}:  # all are there where the condition is
            return node.known_by(self._joint(cond, a, b))
        chosen = self.select(cond.known_by(None), self.present(a), self.present(b))
        return node.known_by(self._joint(cond, self.present_where(node, chosen)))

    def cast(self, x: Node, dtype: DType) -> Node:
        return self._node(dialect.Cast(self._value(x), dtype), presence_of(x))

    def reduce(self, fn: ReduceFn, x: Node, axis: int) -> Node:
        if fn is ReduceFn.SUM:
            x = self._zeroed(x)
        elif x.presence is not None:
            x = self._filled(x, identity(fn, x.dtype))
        return self._node(dialect.Reduce(fn, self._value(x), axis))

    def dot(self, a: Node, b: Node, *, promoted: bool) -> Node:
        left, right = self._zeroed(a), self._zeroed(b)
        return self._node(dialect.Dot(self._value(left), self._value(right), promoted=promoted))

    # -- scans --------------------------------------------------------------------------------------------------------
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
        presence = self._joint(*values)
        if presence is not None and neutral is not None:
            values, presence = [self._filled(x, neutral) for x in values], None
        before = [self._zeroed(x) for x in before]
        count = len(values)
        if presence is not None:
            values, combine = [*values, self.present(values[0])], skipping_absent(self, combine)
            before = [*before, arithmetic.broadcast(self, self.constant(True, bool_), before[0].axes)] if before else []
        body = combine_block([x.dtype for x in values])
        arguments = list(map(_recorded, body.args))
        self._blocks.append(body)
        combined = [self._value(x) for x in combine(arguments[: len(values)], arguments[len(values) :])]
        self._emit(dialect.Yield(combined))
        self._blocks.pop()
        check_combining(body, self._body)
        operands = [self._value(x) for x in (*values, *before)]
        op = dialect.Scan(operands, axis, Region(body), exclusive=exclusive, reverse=reverse)
        self._emit(op)
        if neutral is None:
            require_associative(op)
        running, last = list(map(_recorded, op.running)), list(map(_recorded, op.last))
        if presence is not None and not before:
            running, last = self._present_where(running), self._present_where(last)
        return running[:count], last[:count]

    def _present_where(self, states: list[Node]) -> list[Node]:
        """Combines states whose last value says where they are present."""
        presence = Presence((states[-1].handle,), ())
        self._presences[presence] = states[-1]
        return [x.known_by(presence) for x in states]

    # -- sorts ------------------------------------------------------------------------------------------------------
    def bitcast(self, x: Node, dtype: DType) -> Node:
        return self._node(dialect.Bitcast(self._value(x), dtype), presence_of(x))

    def sort(self, x: Node, axis: int, count: int | None) -> Node:
        span, most = x.axes[axis], x.dtype.integers[1]
        if count is not None and span == whole(count):
            count = None
        known = span.count.constant if isinstance(span, Span) else 1
        enough = count is None or (known is not None and count <= known)
        made = self._node(dialect.Sort(self._value(self._filled(x, most)), axis, count))
        if x.presence is None and enough:
            return made
        there = arithmetic.compare(self, CompareFn.NE, made, most)
        presence = Presence((there.handle,), ())
        self._presences[presence] = there
        return made.known_by(presence)

    def histogram(self, x: Node, bins: int) -> Node:
        return self._node(dialect.Histogram(self._value(self._filled(x, -1)), bins))

    # -- fragments ----------------------------------------------------------------------------------------------------
    def fragment(self, init: Node) -> Cell:
        op = dialect.FragmentInit(self._value(self._zeroed(init)))
        self._emit(op)
        return Cell(op.result, init.dtype, init.axes)

    def read(self, cell: Cell) -> Node:
        return self._node(dialect.FragmentRead(self._value(cell)))

    def write(self, cell: Cell, value: Node, proxy: object) -> None:
        names = names_of(user_frame(), proxy)
        if len(names) > 1:
            refuse(
                "LNG013",
                found="one fragment under the names " + " and ".join(names),
                required="one name for a fragment that is written",
                help=f"{names[-1]} = {names[0]}.copy() keeps the value of this point",
            )
        if value.presence is not None:
            value = self._chosen(value, self.read(cell))
        self._emit(dialect.FragmentWrite(self._value(cell), self._value(value)))

    def print(self, format: str, values: Sequence[Node]) -> None:
        self._emit(dialect.Print(format, [self._value(v) for v in values]))

    def bind(self, x: Node, most: Expr) -> Expr:
        bound = self._bound(x, most, None)
        load = handle(x).owner
        if isinstance(load, dialect.Load) and self._promises.get(tensor_name(load)) is Promise.OFFSETS:
            self._offsets[bound.text] = coords_of(load)[0]
        return bound

    def clipped(self, x: Node, extent: Expr) -> Expr:
        if not self._accesses.require(Const(1) <= extent):
            refuse(
                "LNG020", found=f"an index of {extent} elements", required="an element", help="give an extent above 0"
            )
        return self._bound(x, extent - 1, extent - 1)

    def _bound(self, x: Node, most: Expr, known: Expr | None) -> Expr:
        """``x`` clipped to ``0 .. most``, as a symbol; ``known`` is ``most`` where what follows relies on it."""
        self.use(most)
        below = arithmetic.binary(self, BinaryFn.MIN, arithmetic.cast(self, self._zeroed(x), i64), most)
        clipped = arithmetic.binary(self, BinaryFn.MAX, below, 0)
        symbol = self._accesses.loaded_symbol(known)
        self._bound_in[symbol] = self._blocks[-1]
        self._emit(dialect.Bind(symbol, self._value(clipped), known))
        return sym(symbol)

    # -- ragged grids -------------------------------------------------------------------------------------------------
    def close_stream(self, stream: OpenStream, loop_value: object, frame: FrameType) -> None:
        """A stream that leaves nothing but elements of a tile's rows has no step where the tile has no row."""
        super().close_stream(stream, loop_value, frame)
        op = cast("dialect.StreamLoop", stream.handle)
        rows = next((span for span in filled(op) if span in self._ragged), None) if not self._loops else None
        if rows is not None:
            some = minimum(maximum(rows.stop - rows.origin, 0), 1)
            op.attributes["trip"] = dialect.ExprAttr(op.trip.expr * some)

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
        """Tile i of group g is program ``number(g) + i``, so that a group's tiles are neighbours: the last one finds in
        L2 what the others read. A group that begins at the row ``low`` has the number::

            as many tiles as groups before it have      of few groups, which a program counts one by one
            low // block + min(low, g)                  of more: no less, as each group before it that has rows, of
                                                        which there are at most low and at most g, has one cut tile

        The group of a program is the last whose number is not above it. Rows in no group are one more, with the second
        of these numbers.
        """
        if self._promises.get(offsets.name) is not Promise.OFFSETS:
            refuse(
                "LNG040",
                found=f"a ragged grid over {offsets.name}",
                required="offsets that are checked to ascend",
                help=f'annotate it: {offsets.name}: tw.Offsets["G + 1"]',
            )
        extents = [d.expr for a in self._body.args if isinstance(a.type, TensorType) for d in a.type.dims]
        if (extent.constant or 0) < 0 or (extent.constant is None and extent not in extents):
            refuse(
                "LNG021",
                found=f"a ragged grid over {extent} rows",
                required="a dimension of a tensor, or a number: what offsets are checked against",
                help="tw.ragged_grid(offsets, x.shape[0], 64)",
            )
        groups = offsets.dims[0] - 1
        if not self._accesses.require(Const(1) <= groups):
            refuse("LNG021", found=f"{groups} groups", required="at least one", help="give offsets of a group")
        programs = ceildiv(extent, block) + minimum(groups, extent)
        program, *beside = self.grid([programs, *others], [None, *blocks])
        assert isinstance(program, Expr)

        def number_at(row: Expr, group: Expr) -> Expr:
            return row // block + minimum(row, group)

        few = 1 - minimum(groups // (_COUNTED_GROUPS + 1), 1)
        searched = self._searched_group(offsets, groups, program, block, 1 - few)
        counted, tiles_before = self._counted_group(offsets, groups, program, block, few)
        is_few = arithmetic.compare(self, CompareFn.LE, self.scalar(groups, i64), _COUNTED_GROUPS)
        group = self._bound(self.select(is_few, counted, searched), groups - 1, groups - 1)
        first, stop, last = (self._bound(self.load(offsets, [at]), extent, extent) for at in (group, group + 1, groups))
        own = self.select(is_few, tiles_before, self.scalar(number_at(first, group), i64))
        span = self._tiles(first, stop, program - self._bound(own, programs, programs), extent, block)
        if not keep:
            self._rests[span] = self._tiles(last, extent, program - number_at(last, groups), extent, block)
        return group, span, tuple(beside)

    def _tiles(self, first: Expr, stop: Expr, number: Expr, extent: Expr, block: int) -> Span:
        """The ``number``-th tile of the rows from ``first`` to ``stop``; one without rows below 0."""
        begin = self.scalar(first + maximum(number, 0) * block, i64)
        end = self.scalar(stop * minimum(maximum(number + 1, 0), 1), i64)
        origin, until = (self._bound(x, extent, extent) for x in (begin, end))
        span = Span(origin, block, minimum(extent, until))
        self._ragged.add(span)
        return span

    def _searched_group(self, offsets: Array, groups: Expr, program: Expr, block: int, searched: Expr) -> Node:
        """The last group whose number is not above a program's: bit by bit from the highest, by one thread as by many;
        few groups have few bits. Any where ``searched`` is 0, not 1."""
        bits, *more = _SEARCHED_BITS if groups.constant is None else (groups.constant.bit_length(),)
        trip, highest = Const(bits), Const(1 << bits - 1)
        for fewer, longer in pairwise((bits, *more)):
            many = minimum(groups // (1 << fewer), 1)
            trip, highest = trip + many * (longer - fewer), highest + many * ((1 << longer - 1) - (1 << fewer - 1))
        group, bit = (self.fragment(self.scalar(x, i64)) for x in (Const(0), highest))
        place = self.scalar(program, i64)

        def halve(_: Expr) -> Mapping[Cell, Node]:
            later = arithmetic.binary(self, BinaryFn.ADD, self.read(group), self.read(bit))
            loaded = arithmetic.cast(self, self.gather(offsets, [later], ()), i64)
            first = self.fill(loaded, self.constant(MAX_EXTENT, i64))
            blocks = arithmetic.binary(self, BinaryFn.FLOORDIV, first, block)
            cut = arithmetic.binary(self, BinaryFn.MIN, first, later)
            number = arithmetic.binary(self, BinaryFn.ADD, blocks, cut)
            begun = arithmetic.compare(self, CompareFn.LE, number, place)
            chosen = self.select(begun, later, self.read(group))
            halved = arithmetic.binary(self, BinaryFn.FLOORDIV, self.read(bit), 2)
            return {group: chosen, bit: halved}

        self.repeat(trip * searched, halve)
        return self.read(group)

    def _counted_group(
        self, offsets: Array, groups: Expr, program: Expr, block: int, counted: Expr
    ) -> tuple[Node, Node]:
        """The last of few groups with no more tiles before it than programs, and how many these are; any where
        ``counted`` is 0, not 1."""
        group, number, count = (self.fragment(self.scalar(Const(0), i64)) for _ in range(3))
        place = self.scalar(program, i64)

        def visit(counter: Expr) -> Mapping[Cell, Node]:
            places = [self.scalar(counter + k, i64) for k in (0, 1)]
            begin, end = (self._zeroed(arithmetic.cast(self, self.gather(offsets, [x], ()), i64)) for x in places)
            rows = arithmetic.binary(self, BinaryFn.SUB, end, begin)
            up = arithmetic.binary(self, BinaryFn.ADD, rows, block - 1)
            before = self.read(count)
            reached = arithmetic.compare(self, CompareFn.LE, before, place)
            chosen = self.select(reached, self.scalar(counter, i64), self.read(group))
            its_number = self.select(reached, before, self.read(number))
            after = arithmetic.binary(self, BinaryFn.ADD, before, arithmetic.binary(self, BinaryFn.FLOORDIV, up, block))
            return {group: chosen, number: its_number, count: after}

        self.repeat(minimum(groups, counted * _COUNTED_GROUPS), visit)
        return self.read(group), self.read(number)

    def repeat(self, trip: Expr, step: Callable[[Expr], Mapping[Cell, Node]]) -> None:
        """A stream of the tracer's own, of so many steps: ``step`` says what cells hold after the one of a counter."""
        counter = f"{COUNTER}{len(self._closed) + len(self._loops)}"
        self._accesses.limits.add(counter, trip)
        body = Block()
        self._emit(dialect.StreamLoop(counter, Span(sym(counter), 1, trip), Const(0), trip, Region(body)))
        self._blocks.append(body)
        for cell, value in step(sym(counter)).items():
            self._emit(dialect.FragmentWrite(self._value(cell), self._value(value)))
        self._emit(dialect.Yield())
        self._blocks.pop()
        self._closed.add(counter)


def _recorded(value: SSAValue) -> Node:
    tile = dialect.tile_type(value)
    return Node(value, tile.element, tile.axes_tuple)


def _tensor(array: Array) -> SSAValue[Attribute]:
    return cast("SSAValue[Attribute]", array.handle)
