"""Accesses to tensors and shared buffers, with every check of the simulator: bounds, alignment, undefined values,
races."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np

from tilewright.base.expr import Const
from tilewright.lang.enums import AtomicFn
from tilewright.simulate.arena import Arena, SharedConflict
from tilewright.simulate.arguments import BoundTensor
from tilewright.simulate.registers import RegisterBuffer, masked
from tilewright.simulate.report import refuse
from tilewright.simulate.shadow import AccessConflict, GlobalShadow
from tilewright.simulate.symbols import Array, Symbols, Value
from tilewright.simulate.values import memory_dtype, to_memory, to_registers
from tilewright.tile.dialect import index_symbol
from tilewright.transport.dialect import (
    AtomicReduce,
    ClusterRead,
    Load,
    SharedCount,
    SharedRead,
    SharedType,
    SharedWrite,
    Store,
    TransportOp,
)

AccessWord: TypeAlias = Literal["read", "write", "add"]


@dataclass
class Moment:
    """When and by whom an access happens: the program's number, the epoch, the thread ids in the CTA."""

    instance: int
    epoch: int
    threads: Array


@dataclass
class Traffic:
    """Elements moved so far, and their bytes."""

    loaded: int = 0
    stored: int = 0
    bytes: int = 0

    def load(self, count: int, element_bytes: int) -> None:
        """So many elements more were read."""
        self.loaded += count
        self.bytes += count * element_bytes

    def store(self, count: int, element_bytes: int) -> None:
        """So many elements more were written or added to."""
        self.stored += count
        self.bytes += count * element_bytes


@dataclass
class GlobalMemory:
    """The tensors of a launch. Only tensors that the kernel writes are watched for races."""

    watched: dict[str, GlobalShadow]
    traffic: Traffic = field(default_factory=Traffic)

    def access(
        self,
        op: Load | Store | AtomicReduce,
        tensor: BoundTensor,
        buffer: RegisterBuffer,
        indices: Sequence[RegisterBuffer],
        symbols: Symbols,
        at: Moment,
    ) -> None:
        """Run one global access for all threads and registers; ``indices`` are the op's index buffers."""
        shape = buffer.data.shape
        held = [(i, symbols.index(r, buffer.count).registers) for i, r in zip(indices, op.reads, strict=True)]
        for k, (index, registers) in enumerate(held):
            index.touch(op)
            symbols.bind_elements(index_symbol(k), index.data[:, registers].astype(np.int64))
        coords = [_spread(symbols.of(c.expr, buffer.count), shape) for c in op.coords]
        mask = masked(symbols.of(op.guard.expr, buffer.count), (shape[0], shape[1]))
        for index, registers in held:
            index.require(op, mask, registers)
        _check_inside(op, tensor, coords, mask, at)
        buffer.touch(op)
        if op.vector.data > 1:
            begin = {} if not isinstance(op, Load) or op.shifted is None else {op.shifted: Const(0)}
            vectors = [_spread(symbols.of(c.expr.substitute(begin), buffer.count), shape) for c in op.coords]
            _check_vectors(op, tensor, vectors if begin else coords, mask, at)
        if mask is None:
            where = tuple(np.ravel(c) for c in coords)
            who = np.repeat(at.threads, shape[1])
        else:
            where = tuple(c[mask] for c in coords)
            who = np.broadcast_to(at.threads[:, None], shape)[mask]
        array = tensor.array
        if not where:  # a tensor of rank 0 is one of a single element
            where, array = (np.zeros(len(who), np.int64),), array.reshape(1)
        if not isinstance(op, Load):
            buffer.require(op, mask)
        kind = "read" if isinstance(op, Load) else "write" if isinstance(op, Store) else "add"
        self.watch(op, tensor, where, who, at, kind)
        match op:
            case Load():
                self.traffic.load(len(who), tensor.dtype.bytes)
                loaded = to_registers(array[where], tensor.dtype)
                if mask is None:
                    buffer.data[...] = loaded.reshape(shape)
                else:
                    buffer.data[...] = 0
                    buffer.data[mask] = loaded
                buffer.wrote()
            case Store():
                self.traffic.store(len(who), tensor.dtype.bytes)
                values = buffer.data.ravel() if mask is None else buffer.data[mask]
                array[where] = to_memory(values, tensor.dtype)
            case AtomicReduce():
                self.traffic.store(len(who), tensor.dtype.bytes)
                values = buffer.data.ravel() if mask is None else buffer.data[mask]
                _reduce(op.fn.data, array, where, to_memory(values, tensor.dtype))

    def watch(
        self, op: TransportOp, tensor: BoundTensor, where: tuple[Array, ...], who: Array, at: Moment, kind: AccessWord
    ) -> None:
        """Record an access to a tensor that the kernel writes; refuse it if it conflicts with another."""
        shadow = self.watched.get(tensor.name)
        if shadow is None:
            return
        match kind:
            case "read":
                clash = shadow.read(where, who, at.epoch, at.instance)
            case "write":
                clash = shadow.write(where, who, at.epoch, at.instance)
            case "add":
                clash = shadow.add(where, who)
        if clash is not None:
            coordinate = tuple(int(w[clash.index]) for w in where)
            refuse(
                op,
                "SIM010",
                found=f"{tensor.name}{list(coordinate)} touched by thread {int(who[clash.index])} and {_other(clash)}",
                required="one program and thread for every element that is written",
            )


class SharedBuffer:
    """A shared buffer of the CTA with rank ``rank``, at byte ``offset`` of its arena."""

    def __init__(self, hint: str, kind: SharedType, arena: Arena, offset: int, rank: int):
        self.hint, self.dtype, self.arena, self.offset, self.rank = hint, kind.dtype.dtype, arena, offset, rank
        self.size = memory_dtype(self.dtype).itemsize
        self.nbytes = kind.count.data * self.size
        self.data = arena.bytes[offset : offset + self.nbytes].view(memory_dtype(self.dtype))

    def access(
        self, op: SharedRead | SharedWrite | ClusterRead, buffer: RegisterBuffer, symbols: Symbols, at: Moment
    ) -> None:
        """Run one shared access for all threads and registers; of a read of several CTAs what is read of this one."""
        shape = buffer.data.shape
        offset = _spread(symbols.of(op.offset.expr, buffer.count), shape)
        mask = masked(symbols.of(op.guard.expr, buffer.count), (shape[0], shape[1]))
        if isinstance(op, ClusterRead):
            here = np.broadcast_to(symbols.of(op.cta.expr, buffer.count) == self.rank, shape)
            mask = here if mask is None else here & mask
        self._check(op, offset, mask, at)
        buffer.touch(op)
        where = offset.ravel() if mask is None else offset[mask]
        who = np.repeat(at.threads, shape[1]) if mask is None else np.broadcast_to(at.threads[:, None], shape)[mask]
        if isinstance(op, SharedWrite):
            buffer.require(op, mask)
            self.written_by(op, where * self.size, who)
            values = buffer.data.ravel() if mask is None else buffer.data[mask]
            self.data[where] = to_memory(values, self.dtype)
        else:
            self.read_by(op, where * self.size, who)
            values = to_registers(self.data[where], self.dtype)
            if mask is None:
                buffer.data[...] = values.reshape(shape)
            else:
                buffer.data[mask] = values
            buffer.wrote(mask)

    def count(self, op: SharedCount, buffer: RegisterBuffer, symbols: Symbols, at: Moment) -> None:
        """Add 1 to the elements that registers name."""
        shape = buffer.data.shape
        mask = masked(symbols.of(op.guard.expr, buffer.count), (shape[0], shape[1]))
        taken = np.ones(shape, np.bool_) if mask is None else np.array(np.broadcast_to(mask, shape))
        buffer.touch(op)
        buffer.require(op, mask)
        taken &= (buffer.data >= 0) & (buffer.data < len(self.data))
        where, who = buffer.data[taken].astype(np.int64), np.broadcast_to(at.threads[:, None], shape)[taken]
        cells, position = self.arena.cells(where * self.size + self.offset, self.size)
        self._require(op, where[position], cells)
        self._judge(op, where[position], self.arena.add(cells, who[position]), who[position])
        np.add.at(self.data, where, 1)

    # -- races and poison, by byte offsets in the buffer -------------------------------------------------------------
    def written_by(self, op: TransportOp, places: Array, who: Array, size: int = 0) -> None:
        """Threads write elements of ``size`` bytes (the buffer's own by default)."""
        cells, position = self.arena.cells(places + self.offset, size or self.size)
        self._judge(op, places[position], self.arena.write(cells, who[position]), who[position])

    def read_by(self, op: TransportOp, places: Array, who: Array) -> None:
        """Threads read elements of the buffer."""
        cells, position = self.arena.cells(places + self.offset, self.size)
        self._require(op, places[position], cells)
        self._judge(op, places[position], self.arena.read(cells, who[position]), who[position])

    def engine_reads(self, op: TransportOp, places: Array, size: int, rows: Array, column: int, time: int) -> None:
        """An engine that threads ``rows`` start reads elements of ``size`` bytes."""
        cells, position = self.arena.cells(places + self.offset, size)
        self._require(op, places[position], cells)
        clash = self.arena.engine_read(cells, rows, column, time)
        self._judge(op, places[position], clash, np.broadcast_to(rows[:1], len(cells)))

    def engine_writes(self, op: TransportOp, places: Array, size: int, row: int, column: int, time: int) -> None:
        """An engine that thread ``row`` starts writes elements of ``size`` bytes."""
        cells, position = self.arena.cells(places + self.offset, size)
        clash = self.arena.engine_write(cells, row, column, time)
        self._judge(op, places[position], clash, np.broadcast_to(row, len(cells)))

    def copies_write(self, op: TransportOp, places: Array, size: int, who: Array, column: int, time: int) -> None:
        """The cp.async of threads ``who`` write elements of ``size`` bytes."""
        cells, position = self.arena.cells(places + self.offset, size)
        clash = self.arena.copies_write(cells, who[position], column, time)
        self._judge(op, places[position], clash, who[position])

    def inside(self, op: TransportOp, places: Array, size: int) -> None:
        """Refuse byte offsets that leave the buffer."""
        outside = (places < 0) | (places + size > self.nbytes)
        if outside.any():
            place = int(places[outside.argmax()])
            found = f"byte {place} of {self.hint!r}"
            refuse(op, "SIM011", found=found, required=f"0 <= byte <= {self.nbytes - size}")

    def _judge(self, op: TransportOp, places: Array, clash: SharedConflict | None, who: Array) -> None:
        if clash is None:
            return
        place, thread = int(places[clash.index]), int(who[clash.index])
        found = f"byte {place} of {self.hint!r} touched by thread {thread} and {clash.other}"
        if clash.unfenced:
            refuse(
                op, "SIM017", found=found, required="a fence_proxy_async after the write, before what it is handed to"
            )
        refuse(op, "SIM005", found=found, required="a barrier between the two accesses")

    def _require(self, op: TransportOp, places: Array, cells: Array) -> None:
        missing = ~self.arena.written[cells]
        if missing.any():
            found = f"byte {int(places[missing.argmax()])} of {self.hint!r}"
            refuse(op, "SIM004", found=found, required="a write before the first read")

    def _check(self, op: SharedRead | SharedWrite | ClusterRead, offset: Array, mask: Array | None, at: Moment) -> None:
        if offset.size and (offset.min() < 0 or offset.max() >= len(self.data)):
            self._refuse_outside(op, offset, mask, at)
        vector = op.vector.data
        if vector > 1:
            step = _vectors(offset, vector)
            wrong = ((step[:, :, 1:] - step[:, :, :-1] != 1).any(axis=2)) | (step[:, :, 0] % vector != 0)

            def found(thread: int, index: int) -> str:
                return f"offsets {[int(x) for x in step[thread, index]]} of {self.hint!r}"

            _refuse_vectors(op, wrong, mask, vector, at, found)

    def _refuse_outside(
        self, op: SharedRead | SharedWrite | ClusterRead, offset: Array, mask: Array | None, at: Moment
    ) -> None:
        outside = (offset < 0) | (offset >= len(self.data))
        if mask is not None:
            outside = outside & mask
        if outside.any():
            thread, register = (int(x) for x in np.argwhere(outside)[0])
            refuse(
                op,
                "SIM011",
                found=f"element {int(offset[thread, register])} of {self.hint!r} "
                f"by thread {int(at.threads[thread])}, register {register}",
                required=f"0 <= offset < {len(self.data)}",
            )


def _spread(value: Value, shape: tuple[int, ...]) -> Array:
    """A value for every thread and register."""
    if isinstance(value, np.ndarray) and value.shape == shape:
        return value
    return np.broadcast_to(value, shape)


def _check_inside(op: TransportOp, tensor: BoundTensor, coords: list[Array], mask: Array | None, at: Moment) -> None:
    for axis, (coord, extent) in enumerate(zip(coords, tensor.array.shape, strict=True)):
        if coord.size and coord.min() >= 0 and coord.max() < extent:
            continue
        outside = (coord < 0) | (coord >= extent)
        if mask is not None:
            outside = outside & mask
        if outside.any():
            thread, register = (int(x) for x in np.argwhere(outside)[0])
            coordinate = [int(c[thread, register]) for c in coords]
            refuse(
                op,
                "SIM002",
                found=f"{tensor.name}{coordinate} by thread {int(at.threads[thread])}, register {register}",
                required=f"0 <= coordinate < {extent} in dimension {axis} (extents {list(tensor.array.shape)})",
            )


def _check_vectors(
    op: Load | Store | AtomicReduce, tensor: BoundTensor, coords: list[Array], mask: Array | None, at: Moment
) -> None:
    vector, axis = op.vector.data, op.axis.data
    steps = [_vectors(c, vector) for c in coords]
    wrong = np.zeros(steps[0].shape[:2], np.bool_)
    address = np.zeros(steps[0].shape[:2], np.int64) + tensor.array.__array_interface__["data"][0]
    for dim, (step, stride) in enumerate(zip(steps, tensor.array.strides, strict=True)):
        wrong |= (step[:, :, 1:] - step[:, :, :-1] != int(dim == axis)).any(axis=2)
        address += step[:, :, 0] * stride
    wrong |= address % (vector * tensor.array.itemsize) != 0
    if tensor.strides[axis] != 1:
        wrong[...] = True

    def found(thread: int, index: int) -> str:
        first = [int(s[thread, index, 0]) for s in steps]
        return f"{tensor.name}{first} at address {int(address[thread, index]):#x}, strides {list(tensor.strides)}"

    _refuse_vectors(op, wrong, mask, vector, at, found)


def _vectors(values: Array, vector: int) -> Array:
    return values.reshape(values.shape[0], -1, vector)


def _refuse_vectors(
    op: TransportOp, wrong: Array, mask: Array | None, vector: int, at: Moment, found: Callable[[int, int], str]
) -> None:
    if mask is not None:
        wrong = wrong & _vectors(mask, vector).all(axis=2)  # others move element by element
    if wrong.any():
        thread, index = (int(x) for x in np.argwhere(wrong)[0])
        refuse(
            op,
            "SIM009",
            found=f"{found(thread, index)} by thread {int(at.threads[thread])}, registers from {index * vector}",
            required=f"{vector} consecutive elements from an address that is a multiple of their size",
        )


def _other(clash: AccessConflict) -> str:
    who = "several threads" if clash.other < 0 else f"thread {clash.other}"
    return f"{who}, which {'wrote' if clash.wrote else 'read'} it"


_UFUNCS: dict[AtomicFn, np.ufunc] = {
    AtomicFn.MIN: np.minimum,
    AtomicFn.MAX: np.maximum,
    AtomicFn.AND: np.bitwise_and,
    AtomicFn.OR: np.bitwise_or,
}


def _reduce(fn: AtomicFn, array: Array, where: tuple[Array, ...], values: Array) -> None:
    """Reductions in global memory, one element after another."""
    if fn is AtomicFn.ADD:
        _add(array, where, values)
    elif fn is AtomicFn.SET:
        array[where] = values
    elif array.dtype == np.float32:
        _extremes(fn, array, where, values)
    else:
        _UFUNCS[fn].at(array, where, values)


def _extremes(fn: AtomicFn, array: Array, where: tuple[Array, ...], values: Array) -> None:
    """Extrema of f32: of bits, in the order of integers of sign and magnitude; a NaN that comes in is beyond all."""
    coming = np.where(np.isnan(values), np.uint32(fn.nan_bits), values.view(np.uint32))
    ranks = _ranks(array.view(np.uint32)[where])
    # one rank for each element of the tensor that is reached, however often
    places = np.ravel_multi_index(where, array.shape)
    reached, first, slot = np.unique(places, return_index=True, return_inverse=True)
    found = ranks[first]
    _UFUNCS[fn].at(found, slot, _ranks(coming))
    array[np.unravel_index(reached, array.shape)] = _bits_of(found).view(np.float32)


def _ranks(bits: Array) -> Array:
    """The place of an f32 in the order -NaN < -inf < .. < -0.0 < 0.0 < .. < inf < NaN, by its bits."""
    magnitude = (bits & np.uint32(0x7FFFFFFF)).astype(np.int64)
    return np.where(bits >> 31 != 0, -1 - magnitude, magnitude)


def _bits_of(ranks: Array) -> Array:
    return np.where(ranks < 0, (-1 - ranks) | 0x80000000, ranks).astype(np.uint32)


def _add(array: Array, where: tuple[Array, ...], values: Array) -> None:
    """Sums in global memory. Those of f32 take subnormal operands and results for zeros (PTX ISA 9.1, atom)."""
    if array.dtype != np.float32:
        np.add.at(array, where, values)
        return
    array[where] = _without_subnormals(array[where])
    np.add.at(array, where, _without_subnormals(values))
    array[where] = _without_subnormals(array[where])


def _without_subnormals(values: Array) -> Array:
    least = np.finfo(np.float32).smallest_normal
    return np.where(np.abs(values) < least, np.copysign(np.float32(0), values), values)
