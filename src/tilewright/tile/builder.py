"""A kernel's IR while its body runs: where ops are appended, the grid, the open streams, and what may be used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from types import FrameType
from typing import NoReturn, cast

from xdsl.ir import Attribute, Block, BlockArgument, OpResult, Region, SSAValue

from tilewright.base.expr import Const, Expr, Interval, ceildiv, maximum, simplify, sym
from tilewright.diag import Label, Location, type_shown
from tilewright.lang.axes import Axis, Coord, Span, show_axes
from tilewright.lang.params import KernelFunction
from tilewright.lang.recorder import Array, Cell, Node, OpenStream
from tilewright.lang.source_locations import refuse, user_frame
from tilewright.lang.tensors import Promise
from tilewright.lang.values import Fragment, Range, Scalar, Tile
from tilewright.tile import dialect
from tilewright.tile.accesses import Accesses
from tilewright.tile.ops import COUNTER, program_index, string
from tilewright.tile.presence import Presence
from tilewright.tile.streams import OpenLoop, check_rebinding, enter

MAX_TILE_ELEMENTS = 1 << 20
"""A tile that large by pinned extents alone fits no CTA's registers and shared memory, whatever the schedule."""


class KernelBuilder:
    """The IR under construction: blocks of ops with source locations, the grid and the streams, and the rules of
    both."""

    def __init__(
        self,
        block: Block,
        dims: frozenset[str],
        scalars: Mapping[str, Interval],
        chosen_sizes: frozenset[int],
        limits: Mapping[Expr, int],
    ):
        self._limits = limits  # narrower tiles for axes with upto=
        self._chosen_sizes = chosen_sizes  # extents of tw.auto axes: how large they get is the schedule's care
        self._body = block
        self._blocks = [block]
        self._loops = list[OpenLoop]()
        self._closed = set[str]()  # counters of streams that have ended
        self._steps = set[Span]()  # of streams
        self._grid: tuple[Expr, ...] | None = None
        self._bounds = dict[tuple[Expr, int], None]()
        self._accesses = Accesses(dims, scalars)
        self._bound_in = dict[str, Block]()  # where symbols of loaded integers have a meaning
        self._left_at: Location | None = None

    def array(self, value: BlockArgument) -> Array:
        """The tensor of a block argument."""
        tensor = dialect.tensor_type(value)
        return Array(value, tensor.tensor_name.data, tensor.element, tuple(d.expr for d in tensor.dims))

    def finish(self, kernel: KernelFunction, returned: object) -> None:
        """Check what can be known only when the body has ended."""
        if self._left_at is not None or self._loops:
            self._refuse_leaving()
        if returned is not None:
            refuse(
                "LNG031",
                where=kernel.where,
                found=f"{kernel.name} returns {type_shown(returned)}",
                required="no return value",
                help="store results to a tensor parameter: y[m] = value",
            )

    def kernel_op(self, kernel: KernelFunction, names: Sequence[str]) -> dialect.Kernel:
        """The op that holds the whole body."""
        op = dialect.Kernel(
            kernel.name,
            names,
            Region(self._body),
            grid=self._grid or (Const(1),),  # a kernel that asks for none is one program
            bounds=tuple(self._bounds),
            requires=tuple(self._accesses.requires),
            numerics=kernel.numerics,
            ascending=[t.name for t in kernel.tensors if t.promise is Promise.OFFSETS],
            planned=[t.name for t in kernel.tensors if t.planned],
        )
        op.attributes["loc"] = string(f"{kernel.where.file}:{kernel.where.line}")
        return op

    # -- building -----------------------------------------------------------------------------------------------------
    def _emit(self, op: dialect.TileOp) -> None:
        if self._left_at is not None:
            self._refuse_leaving()
        frame = user_frame()
        op.attributes["loc"] = string(f"{frame.f_code.co_filename}:{frame.f_lineno}")
        self._blocks[-1].add_op(op)

    def _node(self, op: dialect.TileOp, presence: Presence | None = None) -> Node:
        """Emit an op with a tile as its result."""
        value = op.results[0]
        tile = dialect.tile_type(value)
        axes = tile.axes_tuple
        self._check_size(axes)
        self._emit(op)
        return Node(value, tile.element, axes, presence)

    def _check_size(self, axes: tuple[Axis, ...]) -> None:
        elements = prod(a.size for a in axes if a.size not in self._chosen_sizes)
        if elements > MAX_TILE_ELEMENTS:
            refuse(
                "LNG005",
                found=f"{elements} elements, axes {show_axes(axes)}",
                required=f"at most {MAX_TILE_ELEMENTS}",
                help="use smaller blocks, or walk the axis with tw.stream",
            )

    def _value(self, used: Node | Cell) -> SSAValue[Attribute]:
        """The SSA value of a recorded one; refuses values of streams that have ended."""
        value = handle(used)
        if not self._is_open(value):
            self._refuse_closed(value)
        return value

    def _is_open(self, value: SSAValue[Attribute]) -> bool:
        block = value.block if isinstance(value, BlockArgument) else value.owner.parent
        return any(block is b for b in self._blocks)

    def _refuse_closed(self, value: SSAValue[Attribute]) -> NoReturn:
        made = dialect.location_of(value.owner) if isinstance(value, OpResult) else None
        block = value.block if isinstance(value, BlockArgument) else value.owner.parent
        root = None if block is None else block.get_toplevel_object()
        if root is not self._blocks[0].get_toplevel_object():
            refuse(
                "LNG012",
                title="a value of another kernel is used",
                found="a value that was made while another kernel, or another class of this one, was traced",
                required="values of this call of the body",
                help="keep no traced value in a global, a default or a cache: pass it on as an argument",
                labels=(Label(made, "made here"),) if made else (),
            )
        refuse(
            "LNG012",
            found="a value that was made in the body of a stream",
            required="values of this stream or of the code around it",
            help="carry it out in a fragment: make one with tw.zeros or tw.full before the stream and .set it inside",
            labels=(Label(made, "made here"),) if made else (),
        )

    def use(self, value: Expr) -> None:
        self._require_open(value)
        self._accesses.check_divisors(value)
        self._accesses.check_range(value)

    def _require_open(self, value: Expr) -> None:
        """Refuse counters of streams, and integers loaded in streams, that have ended."""
        bound = [self._bound_in[s] for s in value.symbols & self._bound_in.keys()]
        ended = any(all(block is not b for b in self._blocks) for block in bound)
        if ended or not self._closed.isdisjoint(value.symbols):
            refuse(
                "LNG012",
                found=f"the position {value} of a stream that has ended",
                required="positions of this stream or of the code around it",
                help="use an extent, or .stop of a Range of the grid, after the stream",
            )

    def _use_coords(self, coords: Sequence[Coord]) -> None:
        for coord in coords:
            self.use(coord.origin if isinstance(coord, Span) else coord)
            if isinstance(coord, Span):
                self._require_open(coord.stop)

    # -- programs and streams -----------------------------------------------------------------------------------------
    def grid(self, extents: Sequence[Expr], blocks: Sequence[int | None]) -> tuple[Coord, ...]:
        if self._grid is not None or self._loops:
            refuse(
                "LNG021",
                found="a second tw.grid" if self._grid is not None else "tw.grid inside a stream",
                required="one grid, before the streams",
                help="programs are laid out once; walk further axes with tw.stream",
            )
        for extent in extents:
            self.use(extent)
        counts = tuple(e if b is None else ceildiv(e, b) for e, b in zip(extents, blocks, strict=True))
        for count in counts:
            self._accesses.check_range(count)
        self._grid = counts
        for i, count in enumerate(counts):
            self._accesses.limits.add(program_index(i), count)
        return tuple(
            sym(program_index(i)) if block is None else Span(sym(program_index(i)) * block, block, extent)
            for i, (extent, block) in enumerate(zip(extents, blocks, strict=True))
        )

    def bound(self, extent: Expr, upto: int) -> int:
        self._bounds[extent, upto] = None
        return min(upto, self._limits.get(extent, upto))

    def open_stream(self, start: Expr, stop: Expr, step: int, frame: FrameType) -> OpenStream:
        self.use(start)
        self.use(stop)
        counter = f"{COUNTER}{len(self._closed) + len(self._loops)}"
        trip = simplify(maximum(ceildiv(stop - start, step), 0), self._accesses.limits.known)
        self._accesses.check_range(trip)
        self._accesses.limits.add(counter, trip)
        span = Span(start + sym(counter) * step, step, stop)
        self._accesses.walk(start, span)
        self._steps.add(span)
        body = Block()
        op = dialect.StreamLoop(counter, span, start, trip, Region(body))
        self._emit(op)
        self._loops.append(enter(OpenStream(op, span), counter, frame, self._is_dead))
        self._blocks.append(body)
        return self._loops[-1].stream

    def close_stream(self, stream: OpenStream, loop_value: object, frame: FrameType) -> None:
        if not self._loops or self._loops[-1].stream is not stream:
            self._refuse_leaving()
        loop = self._loops.pop()
        check_rebinding(loop, loop_value)
        self._emit(dialect.Yield())
        self._blocks.pop()
        self._closed.add(loop.counter)

    def abandon_stream(self, stream: OpenStream, frame: FrameType) -> None:
        self._left_at = Location(frame.f_code.co_filename, frame.f_lineno)

    def _refuse_leaving(self) -> NoReturn:
        refuse(
            "LNG011",
            where=self._left_at,
            found="the body of a stream is left before its end, by break, return or next()",
            required="a `for` that runs to its end",
            help="end the stream earlier with until=, or choose values with tw.where",
        )

    def _is_dead(self, value: object) -> bool:
        """Whether a user's value belongs to a stream that has ended, so that its name is free again."""
        match value:
            case Tile():
                return not self._is_open(handle(value.node))
            case Fragment():
                return not self._is_open(handle(value.cell))
            case Scalar():
                return not self._closed.isdisjoint(value.expr.symbols)
            case Range():
                return not self._closed.isdisjoint(value.span.origin.symbols)
            case _:
                return False


def handle(recorded: Node | Cell) -> SSAValue[Attribute]:
    return cast("SSAValue[Attribute]", recorded.handle)
