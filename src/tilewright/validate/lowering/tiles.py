"""Tile IR: every element of every tile, as a term."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from xdsl.ir import Block, Operation, SSAValue

from tilewright.lang.axes import Axis, Span
from tilewright.lang.fns import ReduceFn
from tilewright.tile import dialect as tile
from tilewright.tile.ops import location_of, operations, ops_in, tile_type
from tilewright.validate.lowering.arithmetic import Arithmetic, Combined
from tilewright.validate.lowering.facts import Facts
from tilewright.validate.lowering.integers import ALWAYS, Bounds, Integers, Number
from tilewright.validate.lowering.prints import Prints, key, prints
from tilewright.validate.lowering.recurrence import Claims, run_loop
from tilewright.validate.lowering.scalars import computed, constant_terms
from tilewright.validate.lowering.segments import Part, Stored
from tilewright.validate.lowering.threads import loaded
from tilewright.validate.lowering.values import Value, weight
from tilewright.validate.undecided import Undecided


class Tiles:
    """One evaluation of a kernel's body, its streams in the parts of the Transport IR's loops."""

    def __init__(self, kernel: tile.Kernel, facts: Facts, parts: Sequence[Part], values: Integers, *, fast: bool):
        self.kernel, self.facts, self.parts = kernel, facts, list(parts)
        self.integers = Integers({})
        self.integers.forms = values.forms
        self.arithmetic = Arithmetic(fast=fast)
        self.held: dict[SSAValue, Prints] = {}
        self.fragments: dict[SSAValue, Prints] = {}
        self.stores: list[Stored] = []
        self.around: tuple[int, ...] = ()
        self.written: dict[str, frozenset[str]] = {}
        self.claims = Claims()
        self.counts = True

    def run(self) -> None:
        """The whole body."""
        for name, arg in zip(self.kernel.arg_names, self.kernel.body.block.args, strict=True):
            if isinstance(arg.type, tile.TileType):
                self.held[arg] = prints(key("symbol", name.data))[0:1].reshape(())
        self.block(self.kernel.body.block)
        if self.parts:
            raise Undecided(f"a loop over {self.parts[0].counter} that no stream has")

    def block(self, block: Block) -> None:
        """The ops of a block, in order."""
        for op in ops_in(block):
            visit = _VISITS.get(type(op))
            if visit is not None:
                visit(self, op)
            else:
                args = [self.held[v] for v in op.operands]
                self.held[op.results[0]] = computed(self.arithmetic, op, args)

    def view(self, op: tile.Expand | tile.Broadcast | tile.Transpose | tile.Read) -> None:
        """Other shapes of the same elements; an axis of extent 1 stands for any."""
        match op:
            case tile.Expand():
                result = np.expand_dims(self.held[op.x], tuple(p.data for p in op.positions))
            case tile.Broadcast():
                result = self.held[op.x]
            case tile.Transpose():
                result = np.transpose(self.held[op.x], [p.data for p in op.perm])
            case tile.Read():
                result = self.fragments[op.frag]
        self.held[op.result] = result

    def constant(self, op: tile.Constant) -> None:
        self.held[op.result] = constant_terms(op, 0)

    def scalar(self, op: tile.Scalar) -> None:
        self.held[op.result] = self.integers(op.expr.expr).prints.reshape(())

    def index(self, op: tile.Index) -> None:
        self.held[op.result] = self.places([op.axis.data])[0].prints

    # -- ranges -------------------------------------------------------------------------------------------------------
    def places(self, spans: Sequence[Axis]) -> list[Number]:
        """The coordinates of a tile's elements along each axis."""
        found: list[Number] = []
        for axis, span in enumerate(spans):
            assert isinstance(span, Span)
            origin = self.integers(span.origin)
            along = np.arange(span.size).reshape(_along(axis, span.size, len(spans)))
            found.append(Number(along + origin.number.reshape(()), origin.rest.reshape(())))
        return found

    def domain(self, spans: Sequence[Axis], axes: Sequence[int]) -> Bounds:
        """Which elements are in the domains of some axes."""
        bounds = Bounds(np.ones((1,) * len(spans), np.bool_))
        for axis in axes:
            span = spans[axis]
            if not isinstance(span, Span):
                continue
            along = np.arange(span.size).reshape(_along(axis, span.size, len(spans)))
            stop, origin = self.integers(span.stop), self.integers(span.origin)
            number, rest = (stop.number - origin.number).reshape(()), (stop.rest - origin.rest).reshape(())
            if not rest.any():
                bounds.mask = bounds.mask & (along < number)
                continue
            form, threshold = int(rest), along - number
            least = self.facts.least(span.stop - span.origin - int(number))
            if least is not None:
                threshold = np.where(threshold < least, ALWAYS, threshold)
            if (threshold > ALWAYS).any():
                old = bounds.atoms.get(form)
                bounds.atoms[form] = threshold if old is None else np.maximum(old, threshold)
        return bounds

    def weighed(self, images: Prints, spans: Sequence[Axis], axis: int) -> Prints:
        """Images along the whole of an axis, each by the bound under which it counts."""
        bounds = self.domain(spans, [axis])
        factor = weight(bounds.atoms)
        size = spans[axis].size
        images = np.broadcast_to(images, (*images.shape[:axis], size, *images.shape[axis + 1 :]))
        images = images if factor is None else images * factor
        return images if bounds.mask.all() else np.where(bounds.mask, images, np.uint64(0))

    # -- reductions ---------------------------------------------------------------------------------------------------
    def reduce(self, op: tile.Reduce) -> None:
        kind, axis = tile_type(op.x), op.axis.data
        spans = kind.axes_tuple
        combined = Combined(self.arithmetic, str(op.fn.data), kind.element)
        along = np.arange(spans[axis].size, dtype=np.uint64).reshape(_along(axis, spans[axis].size, len(spans)))
        images = combined.into([self.held[op.x], along])
        totals = [np.sum(self.weighed(image, spans, axis), axis=axis, dtype=np.uint64) for image in images]
        result = combined.back(totals)[-1]
        if not combined.pairs and op.fn.data is not ReduceFn.SUM:
            result = self.arithmetic.narrowed(result, kind.element)
        self.held[op.result] = result

    def dot(self, op: tile.Dot) -> None:
        a, b = tile_type(op.a), tile_type(op.b)
        total = self.arithmetic.group("sum", tile_type(op.result).element)
        left = self.weighed(self.arithmetic.factors(self.held[op.a], a.element), a.axes_tuple, 1)
        right = self.arithmetic.factors(self.held[op.b], b.element)
        right = np.broadcast_to(right, (b.shape[0], right.shape[1]))
        self.held[op.result] = total.back(np.matmul(left, right))

    # -- state --------------------------------------------------------------------------------------------------------
    def fragment(self, op: tile.Fragment) -> None:
        self.fragments[op.result] = self.held[op.init]

    def write(self, op: tile.Write) -> None:
        self.fragments[op.frag] = self.held[op.value]

    def stream(self, op: tile.Stream) -> None:
        """The steps of a stream, in the parts of the other side."""
        name, trip = op.counter.data, self.integers(op.trip.expr)
        parts: list[Part] = []
        while self.parts and self.parts[0].counter == name and (not parts or _follows(parts[-1], self.parts[0])):
            parts.append(self.parts.pop(0))
        if not parts or parts[0].begin.prints.any() or (parts[-1].end.prints != trip.prints).any():
            raise Undecided(f"the loops over {name} are not the steps of the stream", _where(op))
        for part in parts[:-1]:
            end = part.range[1]
            if not (self.facts.never_negative(end) and self.facts.never_negative(op.trip.expr - end)):
                raise Undecided(f"a loop over {name} that ends at {end}", _where(op))
        for part in parts:
            self.part(op, part)

    def part(self, op: tile.Stream, part: Part) -> None:
        """Some steps of a stream."""
        carried = [
            inner.frag
            for inner in dict.fromkeys(operations(op))
            if isinstance(inner, tile.Write) and inner.frag in self.fragments
        ]
        carried = list(dict.fromkeys(carried))
        kinds = [f.type.element for f in carried]  # type: ignore
        shapes = [f.type.shape for f in carried]  # type: ignore
        outer = self.facts, self.parts, self.counts, self.around
        self.facts = self.facts.within(part.counter, *part.range)

        def step(states: Sequence[Prints], counts: bool) -> list[Prints]:
            self.counts = counts and outer[2]
            self.parts = list(part.inside)
            written = dict(self.written)
            self.fragments.update(zip(carried, states, strict=True))
            self.block(op.body.block)
            if self.parts:
                raise Undecided(f"a loop over {self.parts[0].counter} that no stream has", _where(op))
            if not counts:
                self.written = written
            return [np.broadcast_to(self.fragments[f], s) for f, s in zip(carried, shapes, strict=True)]

        self.around = (*self.around, part.loop)
        first = [np.broadcast_to(self.fragments[f], s) for f, s in zip(carried, shapes, strict=True)]
        finals = run_loop(part.loop, self.arithmetic, kinds, first, step, self.claims)
        self.facts, self.parts, self.counts, self.around = outer
        self.fragments.update(zip(carried, finals, strict=True))

    # -- tensors ------------------------------------------------------------------------------------------------------
    def coords(self, op: tile.Load | tile.Store | tile.ReduceAdd) -> list[Number]:
        """The coordinates that an access moves, for each of its elements."""
        along = iter(self.places(op.spans))
        found: list[Number] = []
        for coord in op.coords:
            if isinstance(coord, tile.RangeAttr):
                found.append(next(along))
            else:
                at = self.integers(coord.expr)
                found.append(Number(at.number.reshape(()), at.rest.reshape(())))
        return found

    def load(self, op: tile.Load) -> None:
        name = tile.tensor_type(op.tensor).tensor_name.data
        self.held[op.result] = loaded(name, self.written.get(name, frozenset()), self.coords(op))

    def store(self, op: tile.Store | tile.ReduceAdd) -> None:
        name, adds = tile.tensor_type(op.tensor).tensor_name.data, isinstance(op, tile.ReduceAdd)
        if self.counts:
            value = Value(np.broadcast_to(self.held[op.value], tile_type(op.value).shape))
            bounds = self.domain(op.spans, range(len(op.spans)))
            self.stores.append(Stored(name, adds, self.around, self.coords(op), value, bounds, _where(op)))
        self.written[name] = self.written.get(name, frozenset()) | {_where(op)}

    def skip(self, op: Operation) -> None:
        """What computes nothing."""


def _along(axis: int, size: int, rank: int) -> tuple[int, ...]:
    return tuple(size if i == axis else 1 for i in range(rank))


def _follows(part: Part, later: Part) -> bool:
    return bool((part.end.prints == later.begin.prints).all())


def _where(op: Operation) -> str:
    location = location_of(op)
    return "" if location is None else f"{location.file}:{location.line}"


_VISITS: dict[type[Operation], Callable[[Tiles, Any], None]] = {
    tile.Expand: Tiles.view,
    tile.Broadcast: Tiles.view,
    tile.Transpose: Tiles.view,
    tile.Read: Tiles.view,
    tile.Constant: Tiles.constant,
    tile.Scalar: Tiles.scalar,
    tile.Index: Tiles.index,
    tile.Reduce: Tiles.reduce,
    tile.Dot: Tiles.dot,
    tile.Fragment: Tiles.fragment,
    tile.Write: Tiles.write,
    tile.Stream: Tiles.stream,
    tile.Load: Tiles.load,
    tile.Store: Tiles.store,
    tile.ReduceAdd: Tiles.store,
    tile.Print: Tiles.skip,
    tile.Yield: Tiles.skip,
}
