"""Tile IR: every element of every tile, as a term."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from xdsl.ir import Block, Operation, SSAValue

from tilewright.base.expr import Const, Expr, Min, Sym, maximum
from tilewright.lang.axes import Axis, Span, axis_symbol
from tilewright.lang.enums import Numerics, ReduceFn
from tilewright.tile import dialect as tile
from tilewright.tile.attributes import FragmentType, TileType
from tilewright.tile.ops import location_of, operations, ops_in, program_index, tile_type
from tilewright.validate.tile_to_transport.arithmetic import Combined, ElementFunctions
from tilewright.validate.tile_to_transport.bounded_states import BoundedStates
from tilewright.validate.tile_to_transport.facts import SymbolFacts
from tilewright.validate.tile_to_transport.fingerprints import COUNTED, Fingerprints, bins_of, fingerprints, key, mix
from tilewright.validate.tile_to_transport.index_ends import IndexEnds
from tilewright.validate.tile_to_transport.integers import ALWAYS, Bounds, Integers, Number, Numbers
from tilewright.validate.tile_to_transport.recurrence import Claims, run_loop
from tilewright.validate.tile_to_transport.scalars import computed, constant_terms
from tilewright.validate.tile_to_transport.segments import LoopSegment, StoredElements
from tilewright.validate.tile_to_transport.sorting import Network
from tilewright.validate.tile_to_transport.threads import loaded
from tilewright.validate.tile_to_transport.values import GuardedTerms, weight
from tilewright.validate.undecided import Undecided


class TileValues:
    """One evaluation of a kernel's body, its streams in the parts of the Transport IR's loops."""

    def __init__(
        self,
        kernel: tile.Kernel,
        facts: SymbolFacts,
        parts: Sequence[LoopSegment],
        values: Integers,
        *,
        reals: bool,
        rotated: bool,
        functions: Sequence[BoundedStates] = (),
        rank: int | None = None,
    ):
        """``functions`` are those of scans that are the user's, ``rank`` is the program's place along an axis over
        which programs add up parts."""
        self.kernel, self.facts, self.parts = kernel, facts, list(parts)
        self.integers, self.theirs = Integers({}), [values]
        self.integers.forms = values.forms
        self._of_part: Callable[[int], TileValues] = lambda part: TileValues(
            kernel, facts, parts, values, reals=reals, rotated=rotated, functions=functions, rank=part
        )
        self.functions, self.rank = functions, rank
        if rank is not None:
            (axis,) = {op.axis.data for op in operations(kernel) if isinstance(op, tile.ProgramSum)}
            self.integers.bind(program_index(axis), self.integers(Const(rank)))
        self.arithmetic = ElementFunctions(reals=reals, accurate=kernel.numerics.data is Numerics.ACCURATE)
        self.held: dict[SSAValue, Fingerprints] = {}
        self.fragments: dict[SSAValue, Fingerprints] = {}
        self.stores: list[StoredElements] = []
        self.around: tuple[int, ...] = ()
        self.written: dict[str, frozenset[str]] = {}
        self.claims = Claims()
        self.counts, self.rotated = True, rotated
        self.ends = IndexEnds(self.never_negative)
        self.certain: frozenset[SSAValue] = frozenset()
        """Comparisons that hold for all elements at this place."""
        self.masked: dict[SSAValue, tile.Dot] = {}
        self.handed: dict[str, list[LoopSegment]] = {}
        """The parts of streams that only threads run which hand on what comes out."""

    def run(self) -> None:
        """The whole body."""
        self.opening()
        self.block(self.kernel.body.block)
        if self.parts:
            raise Undecided(f"a loop over {self.parts[0].counter} that no stream has")

    def opening(self) -> None:
        """The runtime scalars."""
        for name, arg in zip(self.kernel.arg_names, self.kernel.body.block.args, strict=True):
            if isinstance(arg.type, tile.TileType):
                self.held[arg] = fingerprints(key("symbol", name.data))[0:1].reshape(())

    def block(self, block: Block) -> None:
        """The ops of a block, in order."""
        self.ops(ops_in(block))

    def ops(self, ops: Sequence[Operation]) -> None:
        """Some ops, in order."""
        for op in ops:
            visit = _VISITS.get(type(op))
            if visit is not None:
                visit(self, op)
            else:
                args = [self.held[v] for v in op.operands]
                self.held[op.results[0]] = computed(self.arithmetic, op, args)

    def view(self, op: tile.Expand | tile.Broadcast | tile.Transpose | tile.FragmentRead) -> None:
        """Other shapes of the same elements; an axis of extent 1 stands for any."""
        match op:
            case tile.Expand():
                result = np.expand_dims(self.held[op.x], tuple(p.data for p in op.positions))
            case tile.Broadcast():
                result = self.held[op.x]
            case tile.Transpose():
                result = np.transpose(self.held[op.x], [p.data for p in op.perm])
            case tile.FragmentRead():
                result = self.fragments[op.frag]
        self.held[op.result] = result

    def constant(self, op: tile.Constant) -> None:
        self.held[op.result] = constant_terms(op, 0)

    def scalar(self, op: tile.ScalarExpr) -> None:
        self.held[op.result] = self.integers(op.expr.expr).fingerprints.reshape(())

    def compare(self, op: tile.Compare) -> None:
        """A comparison of coordinates that holds for all elements of its tile chooses like none."""
        held = [self.held[op.a], self.held[op.b]]
        self.held[op.result] = computed(self.arithmetic, op, held)
        apart = self.ends.least_apart(op)
        holds = apart is not None and self.never_negative(apart)
        self.certain = self.certain | {op.result} if holds else self.certain - {op.result}

    def never_negative(self, e: Expr) -> bool:
        """An expression is never negative at this place."""
        return self.facts.never_negative(self.integers.inlined(e))

    def select(self, op: tile.Select) -> None:
        if op.cond in self.certain:
            self.held[op.result] = self.held[op.a]
        else:
            self.held[op.result] = computed(self.arithmetic, op, [self.held[v] for v in op.operands])

    def index(self, op: tile.Index) -> None:
        self.held[op.result] = self.places([op.axis.data])[0].fingerprints

    def reshape(self, op: tile.Reshape) -> None:
        """The same elements in row-major order."""
        before, after = ([a.size for a in tile_type(v).axes_tuple] for v in (op.x, op.result))
        self.held[op.result] = np.broadcast_to(self.held[op.x], before).reshape(after)

    # -- ranges -------------------------------------------------------------------------------------------------------
    def places(self, spans: Sequence[Axis]) -> list[Number]:
        """The coordinates of a tile's elements along each axis."""
        found: list[Number] = []
        for axis, span in enumerate(spans):
            assert isinstance(span, Span)
            found.append(self._place(axis, span, len(spans)))
        return found

    def _place(self, axis: int, span: Span, rank: int) -> Number:
        """The coordinates along one axis of a tile."""
        origin = self.integers(span.origin)
        along = np.arange(span.size).reshape(_along(axis, span.size, rank))
        return Number(along + origin.number.reshape(()), origin.rest.reshape(()), origin.symbol)

    def domain(self, spans: Sequence[Axis], axes: Sequence[int]) -> Bounds:
        """The elements inside the domains of some axes."""
        bounds = Bounds(np.ones((1,) * len(spans), np.bool_))
        for axis in axes:
            span = spans[axis]
            if not isinstance(span, Span):
                continue
            if isinstance(span.stop, Min) and self._is_empty(span):
                bounds.mask = bounds.mask & False
            along = np.arange(span.size).reshape(_along(axis, span.size, len(spans)))
            for end in span.stop.args if isinstance(span.stop, Min) else (span.stop,):
                self._below(bounds, along, end, span.origin)
        return bounds

    def _is_empty(self, span: Span) -> bool:
        """Not both ends lie behind the beginning, as a branch has told."""
        return self.facts.never_negative(self.integers.inlined(span.origin - span.stop))

    def _below(self, bounds: Bounds, along: Numbers, end: Expr, begin: Expr) -> None:
        """Adds that the coordinates ``begin + along`` are below ``end``."""
        stop, origin = self.integers(end), self.integers(begin)
        number, rest = (stop.number - origin.number).reshape(()), (stop.rest - origin.rest).reshape(())
        if not rest.any():
            bounds.mask = bounds.mask & (along < number)
            return
        form, threshold = int(rest), along - number
        least = self.facts.least(self.integers.inlined(end - begin) - int(number))
        if least is not None:
            threshold = np.where(threshold < least, ALWAYS, threshold)
        if (threshold > ALWAYS).any():
            old = bounds.atoms.get(form)
            bounds.atoms[form] = threshold if old is None else np.maximum(old, threshold)

    def weighed(self, images: Fingerprints, spans: Sequence[Axis], axis: int) -> Fingerprints:
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
        totals = [np.asarray(np.sum(self.weighed(image, spans, axis), axis=axis, dtype=np.uint64)) for image in images]
        result = combined.back(totals)[-1]
        if not combined.pairs and op.fn.data is not ReduceFn.SUM:
            result = self.arithmetic.narrowed(result, kind.element)
        self.held[op.result] = result

    def scan(self, op: tile.Scan) -> None:
        """Running sums, products, maxima and minima: every element is that of those before it."""
        if op.function is None:
            return self.words(op)
        kind, axis = tile_type(op.elements[0]), op.axis.data
        group = self.arithmetic.group(op.function.value, kind.element)
        images = self.weighed(group.into(self.held[op.elements[0]]), kind.axes_tuple, axis)
        order = np.flip(images, axis) if op.reverse is not None else images
        running = np.cumsum(order, axis, dtype=np.uint64)
        if op.exclusive is not None:
            running = running - order
        running = np.flip(running, axis) if op.reverse is not None else running
        total = np.asarray(np.sum(images, axis, dtype=np.uint64))
        if op.before:
            before = group.into(self.held[op.before[0]])
            running, total = running + np.expand_dims(before, axis), total + before
        self.held[op.running[0]], self.held[op.last[0]] = group.back(running), group.back(total)

    def words(self, op: tile.Scan) -> None:
        """Running states by a function of the user's. Where the domain may end in the tile, what is before each of its
        elements is known; the last state, and states in reverse, are those that bounds decide."""
        states = next(f for f in self.functions if f.function.results == op.combining[1])
        function, kind, axis = states.function, tile_type(op.elements[0]), op.axis.data
        bounds = self.domain(kind.axes_tuple, [axis])
        values = [np.moveaxis(np.broadcast_to(self.held[v], kind.shape), axis, 0) for v in op.elements]
        begin = [np.broadcast_to(self.held[v], x.shape[1:])[None] for v, x in zip(op.before, values, strict=False)]
        whole, reverse, exclusive = (
            bounds.decided and bool(bounds.mask.all()),
            op.reverse is not None,
            op.exclusive is not None,
        )
        if exclusive and not begin:
            raise Undecided("a scan without the elements themselves and without a first state", _where(op))
        running, last = values, values
        if not whole:
            atoms = {form: np.moveaxis(c, axis, 0) for form, c in bounds.atoms.items()}
            there = Bounds(np.moveaxis(bounds.mask, axis, 0), atoms)
            running, last = states.scanned(values, there, begin, reverse=reverse, exclusive=exclusive)
        if whole or not reverse:
            words = [x[::-1] for x in values] if reverse else values
            words = [np.concatenate([b, x]) for b, x in zip(begin, words, strict=True)] if begin else words
            words = function.back(function.running(function.into(words), 0))
            last = [x[-1:] for x in words] if whole else last
            words = [x[:-1] if exclusive else x[1:] if begin else x for x in words]
            running = [x[::-1] for x in words] if reverse else words
        for value, x in zip((*op.running, *op.last), (*running, *last), strict=True):
            self.held[value] = np.moveaxis(x, 0, axis) if value in op.running else x[0]

    def sort(self, op: tile.Sort) -> None:
        """Integers in order, by the network that ``sorting`` describes; beyond the domain is the greatest number."""
        kind, axis = tile_type(op.x), op.axis.data
        spans = kind.axes_tuple
        bounds, most = self.domain(spans, [axis]), fingerprints(kind.element.integers[1])
        factor, held = weight(bounds.atoms), self.held[op.x]
        inside = held if factor is None else self.arithmetic.between(kind.element, factor, held, most)
        keys = np.where(bounds.mask, inside, most)
        keys = np.broadcast_to(keys, (*keys.shape[:axis], spans[axis].size, *keys.shape[axis + 1 :]))
        minimum, maximum = (self.arithmetic.group(fn, kind.element) for fn in ("min", "max"))
        network, keys = Network(minimum, maximum, most[0]), np.moveaxis(keys, axis, -1)
        if op.count is None:
            found = network.sorted(keys)
        else:
            order = range((spans[axis].size - 1).bit_length()) if op.network is None else [b.data for b in op.network]
            found = network.least(keys, op.count.data, order)
        self.held[op.result] = np.moveaxis(found, -1, axis)

    def program_sum(self, op: tile.ProgramSum) -> None:
        """What the programs along the axis hold there, added in their order; of it the program's share."""
        if self.rank is None or self.around or op.parent_block() is not self.kernel.body.block:
            raise Undecided("a sum over programs that are not a cluster", _where(op))
        kind, width = tile_type(op.x), tile_type(op.result).shape[-1]
        before = [o for o in ops_in(self.kernel.body.block) if o.is_before_in_block(op)]
        total: Fingerprints | None = None
        for part in range(op.parts.data):
            own = self if part == self.rank else self._of_part(part)
            if own is not self:
                own.opening()
                own.ops(before)
                self.claims.add(own.claims)
            value = np.broadcast_to(own.held[op.x], kind.shape)[..., self.rank * width : (self.rank + 1) * width]
            total = value if total is None else self.arithmetic.binary("add", total, value, kind.element)
        assert total is not None
        self.held[op.result] = total

    def histogram(self, op: tile.Histogram) -> None:
        """Per bin, the sum over all elements of the domain."""
        kind = tile_type(op.x)
        bounds = self.domain(kind.axes_tuple, range(kind.rank))
        images, factor = mix(np.broadcast_to(self.held[op.x], kind.shape), COUNTED), weight(bounds.atoms)
        images = np.where(bounds.mask, images if factor is None else images * factor, np.uint64(0))
        self.held[op.result] = np.sum(images, dtype=np.uint64) * bins_of(op.bins)

    def dot(self, op: tile.Dot) -> None:
        a, b = tile_type(op.a), tile_type(op.b)
        total = self.arithmetic.group("sum", tile_type(op.result).element)
        left, right = self.held[op.a], self.held[op.b]
        left = np.broadcast_to(left, (left.shape[0], a.shape[1]))
        right = np.broadcast_to(right, (b.shape[0], right.shape[1]))
        one = np.ones((1, 1), np.uint64)
        weights = one if op in self.masked.values() else self.weighed(one, a.axes_tuple, 1)
        self.held[op.result] = total.back(self.arithmetic.products(left, right.T, weights, a.element))

    # -- state --------------------------------------------------------------------------------------------------------
    def fragment(self, op: tile.FragmentInit) -> None:
        self.fragments[op.result] = self.held[op.init]

    def write(self, op: tile.FragmentWrite) -> None:
        self.fragments[op.frag] = self.held[op.value]

    def stream(self, op: tile.StreamLoop) -> None:
        """The steps of a stream, in the parts of the other side."""
        name, trip = op.counter.data, op.trip.expr
        parts: list[LoopSegment] = []
        while self.parts and self.parts[0].counter == name and (not parts or self._follows(parts[-1], self.parts[0])):
            parts.append(self.parts.pop(0))
        parts = parts or list(self.handed.get(name, ()))
        if not parts and self.facts.never_negative(self.integers.inlined(trip * -1)):
            return
        if not parts or parts[0].range[0] != Const(0) or parts[-1].range[1] != self.integers.inlined(trip):
            raise Undecided(f"the loops over {name} are not the steps of the stream", _where(op))
        for part in parts[:-1]:
            if not self.facts.never_negative_in_cases(trip - part.range[1]):
                raise Undecided(f"a loop over {name} that ends at {part.range[1]}", _where(op))
        halves = rotation(op) if self.rotated and parts[0].single and len(parts) > 1 else None
        if halves is None:
            for part in parts:
                self.part(op, part, ops_in(op.body.block))
            return
        first, later = halves
        self.masked = {
            v: product
            for o in later
            if isinstance(o, tile.Dot)
            for v, product in ((o.a, o), (o.b, o))
            if v.owner in first
        }
        self.at_step(name, parts[0].begin, first)
        for part in parts[1:]:
            self.part(op, part, first, later)
        self.at_step(name, self.integers(trip - 1), later)

    def _follows(self, part: LoopSegment, later: LoopSegment) -> bool:
        """The steps of ``later`` come right after those of ``part``."""
        begin, end = part.range
        if later.range[0] == maximum(begin, end):
            return True
        return later.range[0] == end and self.facts.never_negative(end - begin)

    def at_step(self, counter: str, step: Number, ops: Sequence[Operation]) -> None:
        """Some of a stream's ops, at one step of it."""
        self.integers.bind(counter, step)
        self.ops(ops)
        self.mask(ops)
        self.integers.bind(counter, None)

    def mask(self, ops: Sequence[Operation]) -> None:
        """Factors of products of the step after are 0 beyond the domain of what is contracted."""
        for value, product in self.masked.items():
            if value.owner in ops:
                spans = tile_type(value)
                bounds = self.domain(spans.axes_tuple, [1 if value == product.a else 0])
                held, factor, zero = self.held[value], weight(bounds.atoms), np.zeros((1, 1), np.uint64)
                masked = held if factor is None else self.arithmetic.between(spans.element, factor, held, zero)
                self.held[value] = np.where(bounds.mask, masked, zero)

    def part(
        self, op: tile.StreamLoop, part: LoopSegment, ops: Sequence[Operation], late: Sequence[Operation] = ()
    ) -> None:
        """Some steps of a stream: in each the ops ``late`` of the step before, then ``ops``."""
        if part.single and not late:
            outside, self.parts = self.parts, list(part.inside)
            self.at_step(part.counter, part.begin, ops)
            self.parts = outside
            return
        frags = dict.fromkeys(
            o.frag for o in operations(op) if isinstance(o, tile.FragmentWrite) and o.frag in self.fragments
        )
        passed = dict.fromkeys(v for o in late for v in o.operands if v.owner in ops)
        kinds = [_axes(v).element for v in (*frags, *passed)]
        shapes = [_axes(v).shape for v in (*frags, *passed)]
        outer = self.facts, self.parts, self.counts, self.around
        self.facts = self.facts.within(part.counter, *part.range)

        def states() -> list[Fingerprints]:
            held = [*(self.fragments[f] for f in frags), *(self.held[v] for v in passed)]
            return [np.broadcast_to(x, s) for x, s in zip(held, shapes, strict=True)]

        def step(before: Sequence[Fingerprints], counts: bool) -> list[Fingerprints]:
            self.counts = counts and outer[2]
            self.parts = list(part.inside)
            written = dict(self.written)
            self.fragments.update(zip(frags, before[: len(frags)], strict=True))
            self.held.update(zip(passed, before[len(frags) :], strict=True))
            if late:
                self.at_step(part.counter, self.integers(Sym(part.counter) - 1), late)
            self.ops(ops)
            self.mask(ops)
            if self.parts:
                raise Undecided(f"a loop over {self.parts[0].counter} that no stream has", _where(op))
            if not counts:
                self.written = written
            return states()

        self.around = (*self.around, part.loop)
        finals = run_loop(part.loop, self.arithmetic, kinds, states(), step, self.claims)
        self.facts, self.parts, self.counts, self.around = outer
        self.fragments.update(zip(frags, finals[: len(frags)], strict=True))
        self.held.update(zip(passed, finals[len(frags) :], strict=True))

    # -- tensors ------------------------------------------------------------------------------------------------------
    def coords(self, op: tile.Load | tile.Store | tile.AtomicReduce) -> list[Number]:
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

    def store(self, op: tile.Store | tile.AtomicReduce) -> None:
        name = tile.tensor_type(op.tensor).tensor_name.data
        fn = op.fn.data if isinstance(op, tile.AtomicReduce) else None
        if self.counts:
            value = GuardedTerms(np.broadcast_to(self.held[op.value], tile_type(op.value).shape))
            bounds = self.domain(op.spans, range(len(op.spans)))
            self.stores.append(StoredElements(name, fn, self.around, self.coords(op), value, bounds, _where(op)))
        self.written[name] = self.written.get(name, frozenset()) | {_where(op)}

    def reached(self, op: tile.Gather | tile.Scatter | tile.ScatterReduce) -> tuple[list[Number], list[Axis]]:
        """The coordinates that a gather or scatter finds, for each of its elements, and the tile's axes."""
        axes = list(tile_type(op.moved).axes_tuple)
        for axis, span in enumerate(axes):
            if isinstance(span, Span):
                self.integers.bind(axis_symbol(axis), self._place(axis, span, len(axes)))
        for k, index in enumerate(op.indices):
            zero = np.zeros((1,) * len(axes), np.int64)
            self.integers.bind(tile.index_symbol(k), Number(zero, self.held[index]))
        found = [self.integers(c.expr) for c in op.coords]
        return [Number(_of_rank(at.number, len(axes)), _of_rank(at.rest, len(axes))) for at in found], axes

    def gather(self, op: tile.Gather) -> None:
        name = tile.tensor_type(op.tensor).tensor_name.data
        coords, _ = self.reached(op)
        self.held[op.result] = loaded(name, self.written.get(name, frozenset()), coords)

    def scatter(self, op: tile.Scatter | tile.ScatterReduce) -> None:
        name = tile.tensor_type(op.tensor).tensor_name.data
        fn = op.fn.data if isinstance(op, tile.ScatterReduce) else None
        if self.counts:
            coords, axes = self.reached(op)
            value = GuardedTerms(np.broadcast_to(self.held[op.value], tile_type(op.value).shape))
            bounds = self.domain(axes, range(len(axes)))
            if tile.by_places(op):
                alone = self.integers(Const(0))
                coords += [self._place(d, a, len(axes)) if isinstance(a, Span) else alone for d, a in enumerate(axes)]
            self.stores.append(StoredElements(name, fn, self.around, coords, value, bounds, _where(op)))
        self.written[name] = self.written.get(name, frozenset()) | {_where(op)}

    def bind(self, op: tile.Bind) -> None:
        name = op.symbol.data
        self.ends.bound(op)
        value = self.held[op.value].reshape(1, 1)
        theirs = [integers.values[name] for integers in self.theirs if name in integers.values]
        if not self.around and any((each.rest != value).any() for each in theirs):
            raise Undecided(f"{name} is another integer", _where(op))  # of which the other side has told something
        self.integers.bind(name, Number(np.zeros((1, 1), np.int64), value, Sym(name)))

    def skip(self, op: Operation) -> None:
        """Ops that compute nothing."""


def _of_rank(x: Numbers, rank: int) -> Numbers:
    """An array that may have got axes of one element before its own."""
    return x.reshape(x.shape[x.ndim - rank :]) if x.ndim > rank else x


def _along(axis: int, size: int, rank: int) -> tuple[int, ...]:
    return tuple(size if i == axis else 1 for i in range(rank))


def _axes(value: SSAValue) -> TileType | FragmentType:
    assert isinstance(value.type, TileType | FragmentType)
    return value.type


def rotation(op: tile.StreamLoop) -> tuple[list[Operation], list[Operation]] | None:
    """The ops of a step in two halves, the later of which may as well be done in the step after it: products that are
    added to a fragment, with the loads that they alone need. None where there are none."""
    ops = ops_in(op.body.block)
    late: set[Operation] = set()
    for write in ops:
        if not isinstance(write, tile.FragmentWrite) or not isinstance(total := write.value.owner, tile.Binary):
            continue
        product = next((v.owner for v in total.operands if isinstance(v.owner, tile.Dot)), None)
        read = next((v.owner for v in total.operands if isinstance(v.owner, tile.FragmentRead)), None)
        if product is None or read is None or read.frag != write.frag:
            continue
        late |= {write, total, product, read}
        for operand in product.operands:
            slice_ = _slice(operand, ops)
            if not any(
                isinstance(o, tile.FragmentRead | tile.Dot | tile.Reduce | tile.Scan | tile.Sort) for o in slice_
            ):
                late |= slice_
    first = [o for o in ops if o not in late]
    begun = False
    for o in ops:
        begun = begun or (isinstance(o, tile.FragmentRead) and o in late)
        if (
            begun
            and o not in late
            and isinstance(o, (tile.FragmentRead, tile.FragmentWrite, tile.StreamLoop, *tile.WRITES))
        ):
            return None
    users = {u.operation for o in late for r in o.results for u in r.uses}
    if not late or not users <= late:
        return None
    return first, [o for o in ops if o in late]


def _slice(value: SSAValue, ops: Sequence[Operation]) -> set[Operation]:
    """The ops of a step that a value is made by."""
    owner = value.owner
    if not isinstance(owner, Operation) or owner not in ops:
        return set()
    return {owner}.union(*(_slice(v, ops) for v in owner.operands))


def _where(op: Operation) -> str:
    location = location_of(op)
    return "" if location is None else f"{location.file}:{location.line}"


_VISITS: dict[type[Operation], Callable[[TileValues, Any], None]] = {
    tile.Expand: TileValues.view,
    tile.Broadcast: TileValues.view,
    tile.Transpose: TileValues.view,
    tile.Reshape: TileValues.reshape,
    tile.FragmentRead: TileValues.view,
    tile.Constant: TileValues.constant,
    tile.ScalarExpr: TileValues.scalar,
    tile.Compare: TileValues.compare,
    tile.Select: TileValues.select,
    tile.Index: TileValues.index,
    tile.Reduce: TileValues.reduce,
    tile.Dot: TileValues.dot,
    tile.Scan: TileValues.scan,
    tile.Sort: TileValues.sort,
    tile.Histogram: TileValues.histogram,
    tile.ProgramSum: TileValues.program_sum,
    tile.FragmentInit: TileValues.fragment,
    tile.FragmentWrite: TileValues.write,
    tile.StreamLoop: TileValues.stream,
    tile.Load: TileValues.load,
    tile.Store: TileValues.store,
    tile.AtomicReduce: TileValues.store,
    tile.Gather: TileValues.gather,
    tile.Scatter: TileValues.scatter,
    tile.ScatterReduce: TileValues.scatter,
    tile.Bind: TileValues.bind,
    tile.Print: TileValues.skip,
    tile.Trap: TileValues.skip,
    tile.Yield: TileValues.skip,
}
