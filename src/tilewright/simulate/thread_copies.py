"""Copies of tiles by threads: loads and stores, and cp.async, which completes at some later moment.

A cp.async is checked when it is issued, against its thread's clock. The copies that a warp makes in one op complete
together, at a moment that the seed chooses, those of several ops in any order; an arrival happens some time after all
earlier copies.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from tilewright.hw.spaces import WARP_THREADS
from tilewright.simulate.agent import Agent
from tilewright.simulate.arguments import BoundTensor
from tilewright.simulate.barriers import SimulatedMbarrier
from tilewright.simulate.clocks import Clock
from tilewright.simulate.cta import WarpCopies
from tilewright.simulate.memory import SharedBuffer
from tilewright.simulate.registers import RegisterBuffer, masked
from tilewright.simulate.report import refuse
from tilewright.simulate.symbols import Array
from tilewright.simulate.tensor_copy import address_of
from tilewright.tile.attributes import ExprAttr
from tilewright.tile.indirect import index_symbol
from tilewright.transport import asynchronous as a

_SIZES = (4, 8, 16)  # PTX ISA, cp.async: cp-size
_VECTORS = (1, 2, 4, 8, 16)  # PTX ISA, ld and st: .b8 to .v4.b32


@dataclass(frozen=True)
class _ThreadCopies:
    """The copies of one op, by thread and copy, and by element of each: which are made, where their elements come from
    and which of these are read, where they go."""

    made: Array
    coords: tuple[Array, ...]
    read: Array
    places: Array
    element_bytes: int

    @staticmethod
    def of(op: a.ThreadCopies | a.CopyOut, agent: Agent, tensor: BoundTensor) -> _ThreadCopies:
        count, symbols = op.count.data, agent.symbols
        shape = (len(agent.rows), count)
        held = _indices(op, agent)

        def values(node: ExprAttr) -> Array:
            return np.broadcast_to(np.asarray(symbols.of(node.expr, count)), shape)

        def holds(node: ExprAttr) -> Array:
            found = masked(symbols.of(node.expr, count), shape)
            return np.ones(shape, np.bool_) if found is None else found

        steps, size = np.arange(op.vector.data), tensor.array.itemsize
        made, axis = holds(op.active), op.axis.data
        coords = [np.repeat(values(c)[:, :, None], len(steps), axis=2) for c in op.coords]
        coords[axis] = coords[axis] + steps
        asked = made & holds(op.guard)
        for index, registers in held:
            index.require(op, asked, registers)
        read = asked[:, :, None] & (coords[axis] < values(op.stop)[:, :, None])
        return _ThreadCopies(made, tuple(coords), read, values(op.offset)[:, :, None] + steps * size, size)

    def of_rows(self, rows: Array) -> _ThreadCopies:
        """The same copies for a subset of the threads."""
        coords = tuple(c[rows] for c in self.coords)
        return _ThreadCopies(self.made[rows], coords, self.read[rows], self.places[rows], self.element_bytes)


def _indices(op: a.ThreadCopies | a.CopyOut, agent: Agent) -> list[tuple[RegisterBuffer, Array]]:
    """The index buffers with the registers that copies name, whose integers take their place in coordinates."""
    found: list[tuple[RegisterBuffer, Array]] = []
    for k, (buffer, read) in enumerate(zip(op.indices, op.reads, strict=True)):
        index, registers = agent.buffers[buffer], agent.symbols.index(read, op.count.data).registers
        index.touch(op)
        agent.symbols.bind_elements(index_symbol(k), index.data[:, registers].astype(np.int64))
        found.append((index, registers))
    return found


def start_copies(op: a.CpAsync, agent: Agent) -> None:
    """Every thread of the agent starts its copies."""
    tensor, shared = agent.launch.arguments.tensors[op.tensor], agent.cta.shared[op.shared]
    copies = _read(op, agent, tensor, shared)
    for warp, rows in _warps(agent):
        _start(op, agent, tensor, shared, warp, agent.rows[rows], copies.of_rows(rows))


def load_and_store(op: a.LoadStore, agent: Agent) -> None:
    """Every thread of the agent makes its copies immediately."""
    tensor, shared = agent.launch.arguments.tensors[op.tensor], agent.cta.shared[op.shared]
    copies = _read(op, agent, tensor, shared)
    size, who = copies.element_bytes, np.broadcast_to(agent.rows[:, None, None], copies.read.shape)
    places, read = copies.places[copies.made].ravel(), copies.read[copies.made].ravel()
    shared.written_by(op, places, who[copies.made].ravel(), size)
    memory = agent.cta.arena.bytes.view(np.dtype(f"u{size}"))
    values = np.zeros(len(places), memory.dtype)
    values[read] = tensor.array[tuple(c[copies.made].ravel()[read] for c in copies.coords)].view(memory.dtype)
    memory[(places + shared.offset) // size] = values


def zero_fill(op: a.ZeroFill, agent: Agent) -> None:
    """Every thread of the agent makes its stores of zeros."""
    shared, count, symbols = agent.cta.shared[op.shared], op.count.data, agent.symbols
    shape, size = (len(agent.rows), count), op.store_bytes // op.vector.data
    places = np.broadcast_to(np.asarray(symbols.of(op.offset.expr, count)), shape)
    guard = masked(symbols.of(op.guard.expr, count), shape)
    made = np.ones(shape, np.bool_) if guard is None else guard
    if (made & ((places + shared.offset) % op.store_bytes != 0)).any():
        refuse(op, "SIM009", found=f"{op.store_bytes} bytes, misaligned", required="multiples of their size")
    elements = places[made][:, None] + np.arange(op.vector.data) * size
    who = np.broadcast_to(agent.rows[:, None], shape)[made].repeat(op.vector.data)
    shared.inside(op, elements.ravel(), size)
    shared.written_by(op, elements.ravel(), who, size)
    memory = agent.cta.arena.bytes.view(np.dtype(f"u{size}"))
    memory[(elements.ravel() + shared.offset) // size] = 0


def copy_out(op: a.CopyOut, agent: Agent) -> None:
    """Every thread of the agent reads its copies, and stores what lies inside of the domain."""
    tensor, shared = agent.launch.arguments.tensors[op.tensor], agent.cta.shared[op.shared]
    copies = _ThreadCopies.of(op, agent, tensor)
    _check(op, agent, tensor, shared, copies)
    who = np.broadcast_to(agent.rows[:, None, None], copies.read.shape)
    shared.read_by(op, copies.places[copies.made].ravel(), who[copies.made].ravel())
    stored = copies.read
    where, memory = tuple(c[stored] for c in copies.coords), agent.launch.memory
    memory.watch(op, tensor, where, who[stored], agent.moment(), "write")
    memory.traffic.store(int(stored.sum()), copies.element_bytes)
    found = agent.cta.arena.bytes.view(np.dtype(f"u{copies.element_bytes}"))
    values = found[(copies.places[stored] + shared.offset) // copies.element_bytes]
    tensor.array[where] = values.view(tensor.array.dtype)


def _read(op: a.ThreadCopies, agent: Agent, tensor: BoundTensor, shared: SharedBuffer) -> _ThreadCopies:
    """The copies of an op, after the checks of bounds and alignment."""
    copies = _ThreadCopies.of(op, agent, tensor)
    _check(op, agent, tensor, shared, copies)
    who = np.broadcast_to(agent.rows[:, None, None], copies.read.shape)[copies.read]
    agent.launch.memory.watch(op, tensor, tuple(c[copies.read] for c in copies.coords), who, agent.moment(), "read")
    agent.launch.memory.traffic.load(len(who), copies.element_bytes)
    return copies


def arrive_when_copied(op: a.CpAsyncMbarrierArrive, agent: Agent, barrier: SimulatedMbarrier) -> None:
    """Every thread arrives once its earlier copies are complete; the arrival publishes these copies only."""
    clocks = agent.cta.clocks
    for warp, rows in _warps(agent):
        copies = agent.cta.copies.setdefault(warp, WarpCopies())
        copies.arrivals += 1
        done = clocks.reached(clocks.copies(warp), copies.arrivals)

        def arrive(times: int = len(rows), done: Clock = done) -> None:
            if not barrier.arrive(times, done):
                found = f"{times} arrivals after cp.async at {barrier}"
                refuse(op, "SIM015", found=found, required=f"{barrier.count} arrivals a phase")

        copies.await_all(partial(agent.cta.transfers.append, arrive))


def _warps(agent: Agent) -> Iterator[tuple[int, Array]]:
    """The warps that execute, by number, with their threads' places among the agent's."""
    number = agent.rows // WARP_THREADS
    for warp in np.unique(number):
        yield int(warp), np.flatnonzero(number == warp)


def _start(
    op: a.CpAsync,
    agent: Agent,
    tensor: BoundTensor,
    shared: SharedBuffer,
    warp: int,
    rows: Array,
    copies: _ThreadCopies,
) -> None:
    pending, clocks = agent.cta.copies.setdefault(warp, WarpCopies()), agent.cta.clocks
    size, vector = copies.element_bytes, copies.places.shape[2]
    places, read = copies.places[copies.made].ravel(), copies.read[copies.made].ravel()
    source = tuple(c[copies.made].ravel()[read] for c in copies.coords)
    who = np.repeat(np.broadcast_to(rows[:, None], copies.made.shape)[copies.made], vector)
    shared.copies_write(op, places, size, who, clocks.copies(warp), pending.arrivals + 1)
    number = pending.start()
    cells, memory = (places + shared.offset) // size, agent.cta.arena.bytes.view(np.dtype(f"u{size}"))

    def land() -> None:
        values = np.zeros(len(cells), memory.dtype)
        values[read] = tensor.array[source].view(memory.dtype)
        memory[cells] = values
        pending.landed(number)

    agent.cta.transfers.append(land)


def _check(
    op: a.ThreadCopies | a.CopyOut, agent: Agent, tensor: BoundTensor, shared: SharedBuffer, copies: _ThreadCopies
) -> None:
    """What is read lies in the tensor, what is written in the buffer, both at multiples of a copy's size."""
    for axis, (coordinates, extent) in enumerate(zip(copies.coords, tensor.array.shape, strict=True)):
        outside = copies.read & ((coordinates < 0) | (coordinates >= extent))
        if outside.any():
            thread, copy, element = (int(x) for x in np.argwhere(outside)[0])
            place = [int(c[thread, copy, element]) for c in copies.coords]
            found = f"{tensor.name}{place} by thread {int(agent.rows[thread])}, copy {copy}"
            refuse(op, "SIM002", found=found, required=f"0 <= coordinate < {extent} in dimension {axis}")
    shared.inside(op, copies.places[copies.made].ravel(), copies.element_bytes)
    size, axis = op.vector.data * copies.element_bytes, op.axis.data
    address = np.full(copies.made.shape, address_of(tensor.array))
    for coordinates, stride in zip(copies.coords, tensor.array.strides, strict=True):
        address = address + coordinates[:, :, 0] * stride
    used = copies.read.any(axis=2)
    wrong = (used & (address % size != 0)) | (copies.made & ((copies.places[:, :, 0] + shared.offset) % size != 0))
    sizes = _SIZES if isinstance(op, a.CpAsync) else (copies.element_bytes,)
    if isinstance(op, a.CopyOut):
        sizes = _VECTORS
    if size not in sizes or wrong.any() or (used.any() and op.vector.data > 1 and tensor.strides[axis] != 1):
        found = f"{size} bytes, strides {list(tensor.strides)} along axis {axis}, {int(wrong.sum())} misaligned"
        refuse(op, "SIM009", found=found, required=f"{sizes} bytes that are consecutive, at multiples of their size")
