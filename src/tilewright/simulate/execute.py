"""Running a kernel: CTAs in a seeded order, each a set of agents that meet at barriers.

An *agent* is a group of threads that walk one block in step; all ops of Transport IR are the same for the threads of
an agent, so one NumPy operation does an op for all of them. An agent is a generator that yields where it must wait.
Steps of one agent are never interleaved at a finer grain: that the order of unsynchronised accesses does not matter is
checked by the shadows of memory, not by trying orders.
"""

from __future__ import annotations

import random
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
from xdsl.ir import Block, SSAValue

from tilewright.simulate.arguments import Arguments
from tilewright.simulate.compute import run_fold, run_map, run_shuffle
from tilewright.simulate.memory import GlobalMemory, Moment, SharedBuffer
from tilewright.simulate.registers import Buffer, masked
from tilewright.simulate.report import Report
from tilewright.simulate.shadow import GlobalShadow
from tilewright.simulate.symbols import Array, Symbols
from tilewright.transport.dialect import (
    Barrier,
    Fold,
    For,
    If,
    Kernel,
    Let,
    Load,
    Map,
    Pin,
    Print,
    Programs,
    ReduceAdd,
    Registers,
    Shared,
    SharedRead,
    SharedWrite,
    Shuffle,
    Store,
    TransportOp,
    Yield,
    shared_of,
)

_PERSISTENT_CTAS = 3  # few enough that a CTA runs several programs, so that what they share is exercised


@dataclass(frozen=True)
class Arrived:
    """An agent has reached a CTA barrier and waits for the others."""


@dataclass
class Launch:
    """What all CTAs of a run share."""

    kernel: Kernel
    arguments: Arguments
    memory: GlobalMemory
    grid_size: int
    order: random.Random
    printed: list[str] = field(default_factory=list[str])
    operations: int = 0
    programs: int = 0
    epochs: int = 0
    instances: int = 0

    def new_epoch(self) -> int:
        """A stretch between barriers, numbered over the whole run."""
        self.epochs += 1
        return self.epochs

    def new_instance(self) -> int:
        """One execution of a program, or of a CTA's code outside of programs."""
        self.instances += 1
        return self.instances


@dataclass
class Cta:
    """One CTA: its shared memory, the epoch its agents are in, and which programs it takes."""

    launch: Launch
    index: int
    epoch: int
    shared: dict[SSAValue, SharedBuffer] = field(default_factory=dict[SSAValue, SharedBuffer])

    def run(self) -> None:
        """Run the agents until all have ended; a barrier opens a new epoch once every agent has arrived."""
        threads = np.arange(self.launch.kernel.threads.data)
        agents = [Agent(self, threads).body(self.launch.kernel.body.block)]
        while agents:
            agents = [agent for agent in agents if next(agent, None) is not None]
            self.epoch = self.launch.new_epoch()


class Agent:
    """Threads that walk a block in step: their symbols and register buffers."""

    def __init__(self, cta: Cta, threads: Array):
        self.cta, self.launch, self.threads = cta, cta.launch, threads
        self.symbols = Symbols(threads)
        self.symbols.bind_all(self.launch.arguments.symbols.items())
        self.buffers: dict[SSAValue, Buffer] = {}
        self.instance = self.launch.new_instance()

    def body(self, block: Block) -> Generator[Arrived]:
        """Run a block, yielding at each barrier."""
        for op in block.ops:
            assert isinstance(op, TransportOp)
            match op:
                case Barrier():
                    yield Arrived()
                case For():
                    yield from self._loop(op)
                case If():
                    taken = self.symbols.uniform(op.condition.expr)
                    yield from self.body((op.then if taken else op.otherwise).block)
                case Programs():
                    yield from self._programs(op)
                case _:
                    self._step(op)

    def _loop(self, op: For) -> Generator[Arrived]:
        begin, end, step = (self.symbols.uniform(e.expr) for e in (op.begin, op.end, op.step))
        for value in range(begin, end, step):
            self.symbols.bind(op.counter.data, value)
            yield from self.body(op.body.block)

    def _programs(self, op: Programs) -> Generator[Arrived]:
        outside = self.instance
        for coordinate in self._mine(op):
            self.instance = self.launch.new_instance()
            self.launch.programs += 1
            self.symbols.bind_all(zip((n.data for n in op.names), coordinate, strict=True))
            yield from self.body(op.body.block)
        self.instance = outside

    def _mine(self, op: Programs) -> Iterator[tuple[int, ...]]:
        """The coordinates of this CTA's programs, in the order it takes them; the last name varies fastest."""
        extents = [self.symbols.uniform(e.expr) for e in op.extents]
        every = list(product(*map(range, extents)))
        stride = self.launch.grid_size if op.persistent.data else len(every)
        return iter(every[self.cta.index :: max(stride, 1)])

    def _step(self, op: TransportOp) -> None:
        """An op that never waits."""
        match op:
            case Let():
                self.symbols.bind(op.symbol.data, self.symbols.uniform(op.value.expr))
            case Registers():
                self.buffers[op.buffer] = Buffer.declare(op, int(self.threads[0]), len(self.threads))
            case Shared():
                self.cta.shared[op.buffer] = SharedBuffer(op.hint.data, shared_of(op.buffer))
            case Load() | Store() | ReduceAdd():
                buffer, tensor = self.buffers[op.buffer], self.launch.arguments.tensors[op.tensor]
                self.launch.memory.access(op, tensor, buffer, self.symbols, self._moment())
                self._count(buffer.count)
            case SharedRead() | SharedWrite():
                buffer = self.buffers[op.buffer]
                self.cta.shared[op.shared].access(op, buffer, self.symbols, self._moment())
                self._count(buffer.count)
            case Map():
                inputs, outputs = [self.buffers[v] for v in op.inputs], [self.buffers[v] for v in op.outputs]
                run_map(op, inputs, outputs, self.symbols, self.launch.arguments.scalars)
                self._count(op.count.data * max(len(op.body.block.ops) - 1, 1))
            case Fold():
                sources, targets = [self.buffers[v] for v in op.sources], [self.buffers[v] for v in op.targets]
                run_fold(op, sources, targets, self.symbols)
                self._count(sum(s.count for s in sources))
            case Shuffle():
                buffers = [self.buffers[v] for v in op.buffers]
                run_shuffle(op, buffers)
                self._count(len(op.distances) * sum(b.count for b in buffers))
            case Print():
                self._print(op)
            case Pin() | Yield():
                pass
            case _:
                raise AssertionError(f"the simulator does not know {op.name}")

    def _moment(self) -> Moment:
        return Moment(self.instance, self.cta.epoch, self.threads)

    def _count(self, registers: int) -> None:
        self.launch.operations += registers * len(self.threads)

    def _print(self, op: Print) -> None:
        count = op.count.data
        shape = (len(self.threads), count)
        mask = masked(self.symbols.of(op.guard.expr, count), shape)
        columns: list[Any] = []
        for value, index in zip(op.buffers, op.indices, strict=True):
            buffer = self.buffers[value]
            registers = np.broadcast_to(np.asarray(self.symbols.of(index.expr, count)), shape)
            buffer.require(op, _scattered(mask, registers, buffer))
            columns.append(np.take_along_axis(buffer.data, registers, axis=1))
        for thread, register in product(range(shape[0]), range(count)):
            if mask is None or mask[thread, register]:
                self.launch.printed.append(op.format.data.format(*(_shown(c[thread, register]) for c in columns)))
        self._count(count)


def _scattered(mask: Array | None, registers: Array, buffer: Buffer) -> Array:
    """Which elements of the buffer a print reads."""
    read = np.zeros(buffer.data.shape, np.bool_)
    threads: Array = np.indices(registers.shape)[0]
    chosen = np.ones(registers.shape, np.bool_) if mask is None else mask
    read[threads[chosen], registers[chosen]] = True
    return read


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, np.floating) else str(int(value))


def launch(kernel: Kernel, arguments: Arguments, grid_size: int | None, seed: int) -> Report:
    """Run every CTA of the grid once, in an order that ``seed`` chooses."""
    order = random.Random(seed)
    watched = {arguments.tensors[v].name: arguments.tensors[v].array.shape for v in _written(kernel.body.block)}
    memory = GlobalMemory({name: GlobalShadow(shape) for name, shape in watched.items()})
    size = _grid(kernel, arguments, grid_size)
    run = Launch(kernel, arguments, memory, size, order)
    ctas = list(range(size))
    order.shuffle(ctas)
    with np.errstate(all="ignore"):
        for index in ctas:
            Cta(run, index, run.new_epoch()).run()
    return Report(size, run.programs, run.operations, memory.traffic.loaded, memory.traffic.stored, tuple(run.printed))


def _grid(kernel: Kernel, arguments: Arguments, grid_size: int | None) -> int:
    """How many CTAs: one for each program, or for persistent kernels ``grid_size``, at most one for each program."""
    symbols = Symbols(np.arange(1))
    symbols.bind_all(arguments.symbols.items())
    size = 1
    for op in kernel.body.block.ops:
        if isinstance(op, Let) and op.value.expr.symbols <= symbols.names:
            symbols.bind(op.symbol.data, symbols.uniform(op.value.expr))
        if isinstance(op, Programs):
            programs = 1
            for extent in op.extents:
                programs *= symbols.uniform(extent.expr)
            size = max(size, min(programs, grid_size or _PERSISTENT_CTAS) if op.persistent.data else programs)
    return size


def _written(block: Block) -> Iterator[SSAValue]:
    for op in block.walk():
        if isinstance(op, Store | ReduceAdd):
            yield op.tensor
