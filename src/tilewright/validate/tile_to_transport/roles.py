"""Transport IR of one role of a kernel: counters, fills of shared memory, tensor copies, products of matrices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from xdsl.ir import Block, Operation, SSAValue

from tilewright.base.dtypes import DType
from tilewright.base.expr import Const, Expr, Min, Not, Sym, divisor, maximum
from tilewright.tile.attributes import TensorType
from tilewright.tile.ops import operations, ops_in
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t
from tilewright.transport.descriptor_attrs import OperandNumbers
from tilewright.validate.tile_to_transport.engines import (
    ROWS,
    accumulator_places,
    box_places,
    fragment_places,
    operand_places,
)
from tilewright.validate.tile_to_transport.facts import SymbolFacts
from tilewright.validate.tile_to_transport.fingerprints import Fingerprints, fingerprints, key
from tilewright.validate.tile_to_transport.integers import ALWAYS, Bounds, Number, Numbers, both, merged
from tilewright.validate.tile_to_transport.memory import SharedFills
from tilewright.validate.tile_to_transport.ragged_boxes import begin_of, ends_of
from tilewright.validate.tile_to_transport.recurrence import Claims
from tilewright.validate.tile_to_transport.segments import StoredElements
from tilewright.validate.tile_to_transport.threads import (
    VISITS,
    Path,
    SourceFacts,
    Threads,
    guard_of,
    kind_of,
    loaded,
    place_of,
    size_of,
    tensor_of,
)
from tilewright.validate.tile_to_transport.values import Atoms, GuardedTerms, chosen, same, weight, where
from tilewright.validate.transport_ir import barriers
from tilewright.validate.undecided import Undecided

_SWIZZLE_PERIOD = 1024
_MATRIX = 8


class _ReachedError(Exception):
    """The walk has come to the op at which it ends."""


@dataclass(frozen=True)
class Counts:
    """A counter of a role: what it is at its first program, and what a program adds; ``interleaving`` as ``Programs``
    has it."""

    name: str
    interleaving: tuple[int, int]
    first: Expr
    added: Expr


Peers: TypeAlias = dict[tuple[t.ClusterRead, int], tuple[SharedFills, Claims]]
"""The shared memory of the CTA of each rank when its threads reach an op, and the claims recorded on the way."""


class RoleThreads(Threads):
    """One role, in the CTA of one rank of its cluster."""

    def __init__(
        self,
        kernel: t.Kernel,
        role: a.Role,
        program: SourceFacts,
        facts: SymbolFacts,
        path: Path,
        memory: SharedFills,
        rank: int,
        peers: Peers,
        until: t.ClusterRead | None = None,
    ):
        """``until`` is an op at which the walk ends; ``peers`` is filled by all ranks of one path."""
        super().__init__(kernel, program, facts, path, role.threads.data)
        self.memory, self.rank, self.peers, self.until = memory, rank, peers, until
        self.launched = facts
        self.adds = any(isinstance(op, t.ClusterRead) for op in operations(kernel))
        """The CTAs of a cluster read each other's shared memory."""
        self.integers.forms = memory.forms
        self.integers.place(None, {a.WARPGROUP: self.tid // a.WARPGROUP_THREADS})
        self.integers.bind(a.CTA_RANK, self.integers(Const(rank)))
        self.counters: dict[str, Expr] = {}
        self._after: list[dict[str, Expr]] = []
        self.counted: list[Counts] = []
        self.interleaving: tuple[int, int] = (0, 1)
        self.cluster: tuple[int, int] = (1, 1)
        self.names: list[str] = []
        self.maps: dict[SSAValue, a.TensorMap] = {}
        self.starts: dict[SSAValue, int] = {}
        for op in ops_in(kernel.body.block):
            if isinstance(op, a.TensorMap):
                self.maps[op.map] = op
            elif isinstance(op, t.Shared):
                self.starts[op.buffer] = 0 if op.offset is None else op.offset.data

    @property
    def visits(self) -> Mapping[type[Operation], Callable[[Any, Any], None]]:
        return _VISITS

    # -- programs and counters ----------------------------------------------------------------------------------------
    def programs(self, op: t.Programs) -> None:
        """Executes one program; counters continue from those before."""
        self.interleaving, self.cluster, self.names = op.interleaving, op.cluster_shape, [n.data for n in op.names]
        if self.adds:
            columns = self.cluster[1]
            if self.cluster != (1, columns) or op.extents.data[-1].expr != Const(columns) or op.persistent.data:
                raise Undecided("CTAs that read each other's memory in several programs", place_of(op))
            self.integers.bind(self.names[-1], self.integers(Const(self.rank)))
        first = dict(self.counters)
        for name in first:
            self.hold(name, Sym(f"{name}.program"))
        super().programs(op)
        for name, begin in first.items():
            self.counted.append(Counts(name, self.interleaving, begin, self.counters[name] - Sym(f"{name}.program")))

    def elected(self, op: a.Elected) -> None:
        self.block(op.body.block)

    def counter(self, op: a.Counter) -> None:
        self.hold(op.symbol.data, Const(op.start.data))

    def advance(self, op: a.Advance) -> None:
        name = op.symbol.data
        self.hold(name, self.counters[name] + self.inlined(op.by.expr))

    def hold(self, name: str, value: Expr) -> None:
        """A counter holds ``value``."""
        self.counters[name] = value
        self.integers.bind(name, self.integers(value))

    def entered(self, op: t.For, steps: tuple[Expr, Expr]) -> Callable[[], None]:
        entry, added = dict(self.counters), self._advances(op.body.block)

        def restart() -> None:
            for name, by in added.items():
                self.hold(name, entry[name] + (Sym(op.counter.data) - steps[0]) * by)

        self._after.append({n: entry[n] + self._steps(*steps) * by for n, by in added.items()})
        return restart

    def left(self, op: t.For) -> None:
        for name, value in self._after.pop().items():
            self.hold(name, value)

    def _steps(self, begin: Expr, end: Expr) -> Expr:
        """The number of steps of a loop."""
        return end - begin if self.facts.never_negative(end - begin) else maximum(end, begin) - begin

    def _advances(self, block: Block) -> dict[str, Expr]:
        """The amounts by which one run of a block advances each counter."""
        found: dict[str, Expr] = {}
        for op in ops_in(block):
            inner: dict[str, Expr] = {}
            match op:
                case a.Advance():
                    inner = {op.symbol.data: self.inlined(op.by.expr)}
                case t.For():
                    steps = self._steps(self.inlined(op.begin.expr), self.inlined(op.end.expr))
                    inner = {n: by * steps for n, by in self._advances(op.body.block).items()}
                case a.Elected():
                    inner = self._advances(op.body.block)
                case t.If() if self._advances(op.then.block) or self._advances(op.otherwise.block):
                    raise Undecided("a counter that advances in a branch", place_of(op))
                case _:
                    pass
            for name, by in inner.items():
                found[name] = found.get(name, Const(0)) + by
        return found

    # -- places -------------------------------------------------------------------------------------------------------
    def warpgroups(self) -> range:
        """The warpgroups of the role."""
        return range(self.count // a.WARPGROUP_THREADS)

    def of_warpgroup(self, e: Expr, warpgroup: int) -> Number:
        """An expression that is the same for the threads of a warpgroup."""
        value = self.integers(e)
        first = warpgroup * a.WARPGROUP_THREADS
        number = value.number if value.number.size == 1 else value.number[first : first + 1]
        if number.size != 1 or value.rest.size != 1:
            raise Undecided(f"the place {e}")
        return Number(number.reshape(1, 1), value.rest, value.symbol)

    def _aligned(self, value: Number) -> None:
        if value.symbol is None or divisor(value.symbol, {}) % _SWIZZLE_PERIOD:
            raise Undecided("a slot that does not begin where the swizzle's pattern does")

    def relative(self, value: Number, addresses: Numbers, start: int) -> Number:
        """Bytes in a buffer, of addresses in shared memory and the slot of ``value``."""
        return Number(addresses - start, value.rest, value.symbol)

    # -- tensor copies ------------------------------------------------------------------------------------------------
    def tma_load(self, op: a.TmaLoad) -> None:
        """The copies that land in this CTA: its own, or those that CTAs of the cluster send it."""
        if not op.ctas.data:
            return self._land(op)
        rows, columns = self.cluster
        for rank in range(rows * columns):
            self._as_rank(rank)
            ranks = {int(self.numbers(c.expr).flat[0]) for c in op.ctas}
            if self.rank in ranks:
                self._land(op)
        return self._as_rank(self.rank)

    def _as_rank(self, rank: int) -> None:
        """Expressions are those of the CTA of ``rank``."""
        columns = self.cluster[1]
        self.integers.bind(a.CTA_RANK, self.integers(Const(rank)))
        shifts = (rank // columns - self.rank // columns, rank % columns - self.rank % columns)
        for name, shift in zip(self.names[-2:], shifts, strict=True):
            self.integers.bind(name, None)
            if shift:
                self.integers.bind(name, self.integers(Sym(name) + shift))

    def _land(self, op: a.TmaLoad) -> None:
        offset = self.integers(op.offset.expr)
        coords, bounds, addresses = self._box(op, offset, self.integers)
        tensor = tensor_of(self.maps[op.map].tensor)
        terms = loaded(tensor, self.written.get(tensor, frozenset()), coords)
        value = chosen(bounds, GuardedTerms(terms), GuardedTerms(np.zeros(1, np.uint64)))
        place = self.relative(offset, addresses, self.starts[op.shared])
        self.memory.write(op.shared, place, kind_of(op.shared).bytes, self.around, value)

    def _box(
        self, op: a.TmaLoad | a.TmaStore, offset: Number, evaluated: Callable[[Expr], Number]
    ) -> tuple[list[Number], Bounds, Numbers]:
        """The coordinates of a box's elements, by axis of the tensor, which of them are inside, and their addresses;
        ``evaluated`` gives the value of a coordinate."""
        map_, size = self.maps[op.map], kind_of(op.shared).bytes
        numbers, tensor = map_.numbers, map_.tensor.type
        assert isinstance(tensor, TensorType)
        if numbers.swizzle:
            self._aligned(offset)
        if offset.number.size != 1 or int(np.prod(numbers.box)) * size != op.box_bytes.data:
            raise Undecided("a copy of another size than its box", place_of(op))
        start = self.starts[op.shared] + int(offset.number.flat[0])
        addresses, inside = box_places(numbers.box, int(numbers.swizzle), size, start)
        nothing = self.integers(Const(0))
        coords = [Number(np.zeros(1, np.int64), np.zeros(1, np.uint64), Const(0))] * tensor.rank
        bounds = Bounds(np.ones(1, np.bool_))
        begin, ends = begin_of(numbers, [c.expr for c in op.coords]), ends_of(self.kernel, op, numbers)
        for axis, first, extents, along in zip(numbers.axes, begin, ends, inside[: len(ends)], strict=True):
            at = evaluated(first)
            place = Number(at.number.reshape(-1) + along, at.rest.reshape(-1), at.symbol)
            coords[axis] = place
            above = self._compared("<=", self._flat(nothing), place, op)
            if axis == numbers.ragged_axis and not (above.decided and above.mask.all()):
                raise Undecided("rows of a ragged map before the first", place_of(op))
            bounds = both(bounds, above)
            for extent in extents:
                bounds = both(bounds, self._compared("<", place, self._flat(self.integers(extent)), op))
        return coords, bounds, addresses

    def _compared(self, op: str, x: Number, y: Number, copy: a.TmaLoad | a.TmaStore) -> Bounds:
        found = self.integers.compared(op, x, y)
        if found is None:
            raise Undecided("a box at no place", place_of(copy))
        return self.resolved(_flat(found))

    def _flat(self, x: Number) -> Number:
        return Number(x.number.reshape(-1), x.rest.reshape(-1), x.symbol)

    def tma_store(self, op: a.TmaStore) -> None:
        for warpgroup in self.warpgroups():
            offset = self.of_warpgroup(op.offset.expr, warpgroup)
            coords, bounds, addresses = self._box(op, offset, partial(self.of_warpgroup, warpgroup=warpgroup))
            place = self.relative(offset, addresses, self.starts[op.shared])
            value = self.memory.read(op.shared, place, kind_of(op.shared).bytes, self.around)
            self._stored(op, tensor_of(self.maps[op.map].tensor), coords, value, bounds)

    def _stored(
        self, op: Operation, tensor: str, coords: Sequence[Number], value: GuardedTerms, bounds: Bounds
    ) -> None:
        if self.counts:
            self.stores.append(
                StoredElements(tensor, None, self.around, coords, self.known(value), bounds, place_of(op))
            )
        self.written[tensor] = self.written.get(tensor, frozenset()) | {place_of(op)}

    # -- copies by threads --------------------------------------------------------------------------------------------
    def _copies(self, op: a.ThreadCopies | a.CopyOut) -> tuple[list[Number], Bounds, Numbers, Number]:
        """Of every copy's elements: coordinates, which are touched, which are copied at all, places in bytes."""
        count, vector, axis = op.count.data, op.vector.data, op.axis.data
        size = kind_of(op.shared).bytes
        self.place(count)

        def each(x: Number) -> Number:
            number = np.broadcast_to(x.number, (x.number.shape[0], count)).repeat(vector, 1)
            rest = x.rest if x.rest.size == 1 else np.broadcast_to(x.rest, (x.rest.shape[0], count)).repeat(vector, 1)
            return Number(number, rest, x.symbol)

        along = np.tile(np.arange(vector), count).reshape(1, -1)
        coords = [each(self.integers(c.expr)) for c in op.coords]
        coords[axis] = replace(coords[axis], number=coords[axis].number + along)
        guard, active = (self.integers.bounds(e) for e in (guard_of(op), op.active.expr))
        guard = Bounds(_each(guard.mask, count, vector), {f: _each(c, count, vector) for f, c in guard.atoms.items()})
        stop = op.stop.expr
        for end in stop.args if isinstance(stop, Min) else (stop,):
            below = self.integers.compared("<", coords[axis], each(self.integers(end)))
            if below is None or not active.decided:
                raise Undecided("copies under a condition of the launch", place_of(op))
            guard = both(guard, below)
        offset = each(self.integers(op.offset.expr))
        place = replace(offset, number=offset.number + along * size)
        return coords, self.resolved(guard), _each(active.mask, count, vector), place

    def copies_in(self, op: a.CpAsync | a.LoadStore) -> None:
        self.place(op.count.data)
        need = self.indexed(op)
        coords, bounds, active, place = self._copies(op)
        tensor = tensor_of(op.tensor)
        terms = loaded(tensor, self.written.get(tensor, frozenset()), coords)
        shape = (self.count, op.count.data * op.vector.data)
        need = {form: _each(c, op.count.data, op.vector.data) for form, c in need.items()}
        value = chosen(bounds, GuardedTerms(terms, need=need), GuardedTerms(np.zeros((1, 1), np.uint64)))
        mask = np.broadcast_to(active, shape)
        flat = value.at(lambda x: np.broadcast_to(x, shape)[mask])
        at = replace(place, number=np.broadcast_to(place.number, shape)[mask])
        self.memory.write(op.shared, at, kind_of(op.shared).bytes, self.around, flat)

    def zero_fill(self, op: a.ZeroFill) -> None:
        """Elements keep what was copied where the guard is false."""
        count, vector, size = op.count.data, op.vector.data, kind_of(op.shared).bytes
        self.place(count)
        guard = self.resolved(self.integers.bounds(Not(op.guard.expr)))
        offset, shape = self.integers(op.offset.expr), (self.count, count)
        elements = np.broadcast_to(offset.number, shape)[:, :, None] + np.arange(vector) * size
        place = Number(elements.reshape(-1), offset.rest, offset.symbol)
        kept = Bounds(_each(guard.mask, count, vector), {f: _each(c, count, vector) for f, c in guard.atoms.items()})
        held = self.memory.read(op.shared, place, size, self.around)
        value = chosen(_flat(kept), held, GuardedTerms(np.zeros(1, np.uint64)))
        self.memory.write(op.shared, place, size, self.around, value)

    def copy_out(self, op: a.CopyOut) -> None:
        coords, bounds, active, place = self._copies(op)
        shape = (self.count, op.count.data * op.vector.data)
        bounds = Bounds(np.broadcast_to(bounds.mask & active, shape), bounds.atoms)
        at = replace(place, number=np.where(bounds.mask, np.broadcast_to(place.number, shape), 0))
        value = self.memory.read(op.shared, at, kind_of(op.shared).bytes, self.around)
        self._stored(op, tensor_of(op.tensor), coords, value, bounds)

    # -- the threads' own accesses to shared memory -------------------------------------------------------------------
    def _shared(self, op: t.SharedWrite | t.SharedRead | t.ClusterRead) -> tuple[Number, Numbers, tuple[int, int]]:
        count = size_of(op.buffer)
        self.place(count)
        guard = self.integers.bounds(op.guard.expr)
        if not guard.decided:
            raise Undecided("an access to shared memory under a condition of the launch", place_of(op))
        at, shape = self.integers(op.offset.expr), (self.count, count)
        size = kind_of(op.shared).bytes
        symbol = None if at.symbol is None else at.symbol * size
        place = Number(np.broadcast_to(at.number * size, shape), at.rest * fingerprints(size), symbol)
        return place, np.broadcast_to(guard.mask, shape), shape

    def shared_write(self, op: t.SharedWrite) -> None:
        place, mask, shape = self._shared(op)
        value = self.held[op.buffer].at(lambda x: np.broadcast_to(x, shape)[mask])
        at = replace(place, number=place.number[mask])
        self.memory.write(op.shared, at, kind_of(op.shared).bytes, self.around, value)

    def shared_read(self, op: t.SharedRead) -> None:
        place, mask, _ = self._shared(op)
        at = replace(place, number=np.where(mask, place.number, place.number[mask].flat[0] if mask.any() else 0))
        value = self.memory.read(op.shared, at, kind_of(op.shared).bytes, self.around)
        self.held[op.buffer] = where(mask, value, self.held[op.buffer])

    def cluster_read(self, op: t.ClusterRead) -> None:
        """What the CTAs of the cluster have written up to here: that they have, and not ended, the protocol's proof
        says."""
        if op is self.until:
            raise _ReachedError
        if self.around:
            raise Undecided("a read of other CTAs' memory in a loop", place_of(op))
        place, mask, shape = self._shared(op)
        ranks = np.broadcast_to(self.integers(op.cta.expr).number, shape)
        for rank in map(int, np.unique(ranks[mask])):
            here = mask & (ranks == rank)
            memory = self.memory if rank == self.rank else self._of_peer(op, rank)
            at = replace(place, number=np.where(here, place.number, place.number[here].flat[0]))
            value = memory.read(op.shared, at, kind_of(op.shared).bytes, self.around)
            self.held[op.buffer] = where(here, value, self.held[op.buffer])

    def _of_peer(self, op: t.ClusterRead, rank: int) -> SharedFills:
        """The shared memory of another CTA when its threads come to an op."""
        found = self.peers.get((op, rank))
        if found is None:
            memory, claims = SharedFills(), Claims()
            for role in roles(self.kernel):
                own = RoleThreads(
                    self.kernel, role, self.program, self.launched, self.path, memory, rank, self.peers, op
                )
                with suppress(_ReachedError):
                    own.block(role.body.block)
                claims.add(own.claims)
            found = self.peers[op, rank] = memory, claims
        memory, claims = found
        self.claims.add(claims)
        self.memory.forms |= memory.forms
        return memory

    def _matrices(self, op: a.MatrixAccess) -> tuple[Number, Numbers, Numbers]:
        """Of every warp, matrix, row and column: the byte, the thread and the register."""
        base, offset = self.integers(op.base.expr), self.integers(op.offset.expr)
        total = self.integers.add(base, offset)
        rows = np.broadcast_to(total.number, (self.count, 1)).reshape(-1, 32)
        warp, matrix, row, column = np.indices((self.count // 32, op.matrices.data, _MATRIX, _MATRIX))
        place = rows[warp, _MATRIX * matrix + row] + 2 * column
        along, across = (column, row) if op.trans.data else (row, column)
        thread = warp * 32 + 4 * along + across // 2
        return Number(place, total.rest, total.symbol), thread, op.first.data + 2 * matrix + across % 2

    def draw(self, op: t.Draw) -> None:
        """Some program: which one decides nothing of what the present one stores."""
        self.held[op.buffer] = GuardedTerms(np.full((1, size_of(op.buffer)), key("drawn"), np.uint64))

    def store_matrix(self, op: a.StoreMatrix) -> None:
        place, thread, register = self._matrices(op)
        shape = (self.count, size_of(op.buffer))
        value = self.held[op.buffer].at(lambda x: np.broadcast_to(x, shape)[thread, register])
        self.memory.write(op.shared, place, 2, self.around, value)

    def load_matrix(self, op: a.LoadMatrix) -> None:
        place, thread, register = self._matrices(op)
        value = self.memory.read(op.shared, place, 2, self.around).flat()
        shape = (self.count, size_of(op.buffer))

        def put(new: Numbers, old: Numbers) -> Numbers:
            result = np.array(np.broadcast_to(old, shape))
            result[thread, register] = new
            return result

        old, none = self.held[op.buffer].flat(), np.full((1, 1), ALWAYS)
        need = {f: put(value.need.get(f, none[0, 0]), old.need.get(f, none)) for f in {**value.need, **old.need}}
        self.held[op.buffer] = GuardedTerms(put(value.terms, old.terms), need=need)

    # -- products -----------------------------------------------------------------------------------------------------
    def wgmma(self, op: a.Wgmma) -> None:
        """Every warpgroup's product, added to its accumulator."""
        operands = [(self._left(op, w), self._right(op, w)) for w in self.warpgroups()]
        self._accumulate(op, op.dtype.dtype, operands, accumulator_places(op.n.data), keep=bool(op.scale_d.data))

    def mma(self, op: a.Mma) -> None:
        """Every warp's product, added to its accumulator: the first warp's fragments of wgmma."""
        (row, k), (rows, columns) = fragment_places(2), accumulator_places(8)
        lanes, upper = 32, [0, 1, 4, 5]  # B's columns lie as the first 8 rows of A
        operands = [
            (
                self._fragment(op.a, op.a_register.data, warp * lanes, row[:lanes], k[:lanes]),
                self._fragment(op.b, op.b_register.data, warp * lanes, row[:lanes, upper], k[:lanes, upper]),
            )
            for warp in range(self.count // lanes)
        ]
        self._accumulate(op, op.dtype, operands, (rows[:lanes], columns[:lanes]), keep=True)

    def _accumulate(
        self,
        op: a.Wgmma | a.Mma,
        kind: DType,
        operands: Sequence[tuple[GuardedTerms, GuardedTerms]],
        places: tuple[Numbers, Numbers],
        *,
        keep: bool,
    ) -> None:
        """Adds the product of each group of threads to its accumulator, which lies in ``places``, or sets it to it."""
        rows, columns = places
        held = self.held[op.accumulator].flat()
        size, first = size_of(op.accumulator), op.first.data
        group = self.arithmetic.group("sum", kind_of(op.accumulator))
        images = np.array(np.broadcast_to(group.into(held.terms), (self.count, size)))
        needs = {f: np.array(np.broadcast_to(c, (self.count, size))) for f, c in held.need.items()}
        part = slice(first, first + rows.shape[1])
        for number, (left, right) in enumerate(operands):
            threads = slice(number * len(rows), (number + 1) * len(rows))
            product, need = self._product(kind, left, right)
            old = images[threads, part] if keep else np.uint64(0)
            images[threads, part] = old + product[rows, columns]
            for form in {**need, **needs}:
                whole = needs.setdefault(form, np.full((self.count, size), ALWAYS))
                given = need[form][rows, columns] if form in need else np.int64(ALWAYS)
                whole[threads, part] = np.maximum(whole[threads, part], given) if keep else given
        self.held[op.accumulator] = GuardedTerms(group.back(images), need=needs)

    def _left(self, op: a.Wgmma, warpgroup: int) -> GuardedTerms:
        """``[row, k]`` of a warpgroup's left operand."""
        if op.a_operand is not None:
            offset = self.of_warpgroup(op.a_offset.expr, warpgroup)
            return self._operand(op.a, op.a_operand.data, offset, ROWS)
        size = kind_of(op.a).bytes
        row, k = fragment_places(size)
        return self._fragment(op.a, op.a_register.data, warpgroup * a.WARPGROUP_THREADS, row, k)

    def _fragment(self, buffer: SSAValue, first: int, thread: int, row: Numbers, k: Numbers) -> GuardedTerms:
        """``[row, k]`` of an operand in the registers from ``first`` of the threads from ``thread``."""

        def fragment(x: Numbers) -> Numbers:
            result = np.zeros((row.max() + 1, k.max() + 1), x.dtype)
            held = np.broadcast_to(x, (self.count, size_of(buffer)))
            result[row, k] = held[thread : thread + len(row), first : first + row.shape[1]]
            return result

        return self.held[buffer].at(fragment)

    def _right(self, op: a.Wgmma, warpgroup: int) -> GuardedTerms:
        """``[column, k]`` of a right operand."""
        return self._operand(op.b, op.b_operand.data, self.of_warpgroup(op.b_offset.expr, warpgroup), op.n.data)

    def _operand(self, buffer: SSAValue, operand: OperandNumbers, offset: Number, extent: int) -> GuardedTerms:
        if operand.swizzle:
            self._aligned(offset)
        size, start = kind_of(buffer).bytes, self.starts[buffer]
        addresses = operand_places(operand, extent, size, start + int(offset.number.flat[0]))
        return self.memory.read(buffer, self.relative(offset, addresses, start), size, self.around)

    def _product(self, kind: DType, left: GuardedTerms, right: GuardedTerms) -> tuple[Fingerprints, Atoms]:
        """Images of ``left @ right.T``, and where they are known.

        Beyond the end of k both operands are 0 and add nothing (one that a loop has carried has that as a factor);
        beyond the end of rows or columns the result has no
        value.
        """
        rows, columns = _along(left), _along(right)
        if rows is None or columns is None or (rows[1] and not same(rows[1], columns[1])):
            left, right = left.flat(), right.flat()
            rows = columns = dict[int, Numbers](), dict[int, Numbers]()
        factor = weight(rows[1])
        weights = np.ones((1, 1), np.uint64) if factor is None else factor
        images = self.arithmetic.products(left.terms, right.terms, weights, kind)
        need: Atoms = {}
        for side, across in ((merged(left.need, rows[0]), False), (merged(right.need, columns[0]), True)):
            worst = {f: np.broadcast_to(c, c.shape).max(1, keepdims=True) for f, c in side.items()}
            need = merged(need, {f: c.T if across else c for f, c in worst.items()})
        shape = (left.terms.shape[0], right.terms.shape[0])
        return images, {f: np.broadcast_to(c, shape) for f, c in need.items()}


def _along(value: GuardedTerms) -> tuple[dict[int, Numbers], dict[int, Numbers]] | None:
    """The guards of an operand that bound its rows, and those that bound k; None where some bound both, or where what
    lies beyond is not 0."""
    if value.guard and (value.beyond is None or value.beyond.any()):
        return None
    rows: dict[int, Numbers] = {}
    k: dict[int, Numbers] = {}
    for form, threshold in value.guard.items():
        if (threshold == threshold[:, :1]).all():
            rows[form] = threshold
        elif (threshold == threshold[:1]).all():
            k[form] = threshold[:1]
        else:
            return None
    return rows, k


def _flat(bounds: Bounds) -> Bounds:
    return Bounds(bounds.mask.reshape(-1), {f: c.reshape(-1) for f, c in bounds.atoms.items()})


def _each(x: Numbers, count: int, vector: int) -> Numbers:
    return np.broadcast_to(x, (x.shape[0], count)).repeat(vector, 1)


def roles(kernel: t.Kernel) -> Iterator[a.Role]:
    """The roles of a kernel, in order."""
    return (op for op in ops_in(kernel.body.block) if isinstance(op, a.Role))


_SYNCHRONISE = (*barriers.OPS, a.CpAsyncMbarrierArrive, a.BulkWait, a.WgmmaWait)
"""Ops that move nothing and change no register: that they order what others do is proved of the protocol."""
_VISITS: dict[type[Operation], Callable[[Any, Any], None]] = {
    **VISITS,
    **dict.fromkeys(_SYNCHRONISE, Threads.skip),
    t.Programs: RoleThreads.programs,
    a.Elected: RoleThreads.elected,
    a.Counter: RoleThreads.counter,
    a.Advance: RoleThreads.advance,
    a.TmaLoad: RoleThreads.tma_load,
    a.TmaStore: RoleThreads.tma_store,
    a.CpAsync: RoleThreads.copies_in,
    a.LoadStore: RoleThreads.copies_in,
    a.ZeroFill: RoleThreads.zero_fill,
    a.CopyOut: RoleThreads.copy_out,
    t.SharedWrite: RoleThreads.shared_write,
    t.SharedRead: RoleThreads.shared_read,
    t.ClusterRead: RoleThreads.cluster_read,
    t.Draw: RoleThreads.draw,
    a.StoreMatrix: RoleThreads.store_matrix,
    a.LoadMatrix: RoleThreads.load_matrix,
    a.Mma: RoleThreads.mma,
    a.Wgmma: RoleThreads.wgmma,
}
__all__ = ["Counts", "RoleThreads", "roles"]
