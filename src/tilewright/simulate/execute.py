"""Running a kernel: CTAs in a seeded order, each a set of agents whose steps a seeded order interleaves.

An *agent* is a group of threads that walk one block in step: the CTA, or inside roles a warpgroup. All ops are the
same for the threads of an agent, so one NumPy operation does an op for all of them. An agent is a generator that yields
where it must wait or may be overtaken; copies and products in flight take effect between its steps. That the order of
accesses inside an agent does not matter is checked by clocks, not by trying orders.
"""

from __future__ import annotations

import random
from collections.abc import Generator, Iterator
from itertools import product
from typing import Any

import numpy as np
from xdsl.ir import Block, SSAValue

from tilewright.simulate.agent import Agent
from tilewright.simulate.arguments import Arguments
from tilewright.simulate.barriers import Waiting
from tilewright.simulate.clocks import WARPGROUP_THREADS
from tilewright.simulate.compute import run_fold, run_map, run_shuffle
from tilewright.simulate.cta import Cta, SharedPlan
from tilewright.simulate.engines import check_finished, run_asynchronous
from tilewright.simulate.launch import Launch
from tilewright.simulate.memory import GlobalMemory
from tilewright.simulate.registers import Buffer, masked
from tilewright.simulate.report import Report, refuse
from tilewright.simulate.shadow import GlobalShadow
from tilewright.simulate.symbols import Array, Symbols
from tilewright.transport.asynchronous import WARPGROUP, Advance, Counter, Elected, Role, TensorMap, TmaStore
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
)

_PERSISTENT_CTAS = 3  # few enough that a CTA runs several programs, so that what they share is exercised


# -- interleaving ------------------------------------------------------------------------------------------------------
class Schedule:
    """The agents of a CTA, and the seeded choice of what happens next."""

    def __init__(self, cta: Cta):
        self.cta = cta
        self._running: list[tuple[Agent, Generator[Waiting], Waiting]] = []

    def start(self, agent: Agent, block: Block) -> None:
        """Add an agent."""
        walk = Walk(self, agent).body(block)
        self._resume(agent, walk)

    def run(self) -> None:
        """Until all agents have ended and everything has landed; SIM014 if they wait for each other."""
        while self._running:
            ready = [entry for entry in self._running if entry[2].ready()]
            events = self.cta.in_flight()
            if not ready and not events:
                stuck = "; ".join(f"{agent.label} waits for {waiting.what()}" for agent, _, waiting in self._running)
                refuse(self.cta.launch.kernel, "SIM014", found=stuck, required="somebody who can go on")
            order = self.cta.order
            if events and (not ready or order.random() < self.cta.eager):
                self.cta.advance(order.choice(events))
                continue
            entry = ready[0] if len(ready) == 1 else order.choice(ready)
            self._running.remove(entry)
            self._resume(entry[0], entry[1])
        unread = [b.name for bars in self.cta.mbarriers.values() for b in bars if b.tx_bytes]
        if unread:
            found = f"bytes of tensor copies on {', '.join(unread)}"
            refuse(self.cta.launch.kernel, "SIM018", found=found, required="a mbarrier_wait before the end")
        while self.cta.in_flight():
            self.cta.advance(self.cta.in_flight()[0])

    def _resume(self, agent: Agent, walk: Generator[Waiting]) -> None:
        waiting = next(walk, None)
        if waiting is None:
            check_finished(agent)
        else:
            self._running.append((agent, walk, waiting))


class Walk:
    """One agent on its way through a block."""

    def __init__(self, schedule: Schedule, agent: Agent):
        self.schedule, self.agent = schedule, agent
        self.cta, self.launch, self.symbols = agent.cta, agent.launch, agent.symbols

    def body(self, block: Block) -> Generator[Waiting]:
        """Run a block."""
        agent = self.agent
        for op in block.ops:
            assert isinstance(op, TransportOp)
            match op:
                case Barrier():
                    key, threads = agent.barrier
                    yield from agent.meet(self.cta.meeting(key, threads), f"the barrier of {agent.label}")
                case For():
                    yield from self._loop(op)
                case If():
                    taken = self.symbols.uniform(op.condition.expr)
                    yield from self.body((op.then if taken else op.otherwise).block)
                case Programs():
                    yield from self._programs(op)
                case Role():
                    self._role(op)
                case Elected():
                    yield from Walk(self.schedule, agent.elected()).body(op.body.block)
                case _ if not self._step(op):
                    yield from run_asynchronous(op, agent)
                case _:
                    pass

    def _role(self, op: Role) -> None:
        """Each warpgroup of a role is an agent of its own."""
        for number in range(op.threads.data // WARPGROUP_THREADS):
            threads = np.arange(WARPGROUP_THREADS) + number * WARPGROUP_THREADS
            label = f"{op.label.data} warpgroup {number}"
            agent = Agent(self.cta, threads, threads + op.first.data, parent=self.agent, label=label)
            agent.barrier = (("role", op.first.data), op.threads.data)
            agent.symbols.bind(WARPGROUP, number)
            self.schedule.start(agent, op.body.block)

    def _loop(self, op: For) -> Generator[Waiting]:
        begin, end, step = (self.symbols.uniform(e.expr) for e in (op.begin, op.end, op.step))
        for value in range(begin, end, step):
            self.symbols.bind(op.counter.data, value)
            yield from self.body(op.body.block)

    def _programs(self, op: Programs) -> Generator[Waiting]:
        outside = self.agent.instance
        for coordinate in self._mine(op):
            self.agent.instance = self.launch.instance(coordinate, program=True)
            self.symbols.bind_all(zip((n.data for n in op.names), coordinate, strict=True))
            yield from self.body(op.body.block)
        self.agent.instance = outside

    def _mine(self, op: Programs) -> Iterator[tuple[int, ...]]:
        """The coordinates of this CTA's programs, in the order it takes them."""
        extents = [self.symbols.uniform(e.expr) for e in op.extents]
        every = list(product(*map(range, extents)))
        if op.group is not None:  # bands of the next to last name, which varies fastest inside of a band
            band = op.group.data
            every.sort(key=lambda c: (*c[:-2], c[-2] // band, c[-1], c[-2]))
        stride = self.launch.grid_size if op.persistent.data else len(every)
        return iter(every[self.cta.index :: max(stride, 1)])

    def _step(self, op: TransportOp) -> bool:
        """An op that neither waits nor starts anything; False if it is none of these."""
        agent = self.agent
        buffers = agent.buffers
        match op:
            case Let():
                self.symbols.bind(op.symbol.data, self.symbols.uniform(op.value.expr))
            case Counter():
                self.symbols.bind(op.symbol.data, op.start.data)
            case Advance():
                name = op.symbol.data
                self.symbols.bind(name, self.symbols.scalars[name] + self.symbols.uniform(op.by.expr))
            case Registers():
                buffers[op.buffer] = Buffer.declare(op, int(agent.rows[0]), len(agent.rows))
            case Shared():
                self.cta.declare_shared(op)
            case Load() | Store() | ReduceAdd():
                buffer, tensor = buffers[op.buffer], self.launch.arguments.tensors[op.tensor]
                self.launch.memory.access(op, tensor, buffer, self.symbols, agent.moment())
                agent.count(buffer.count)
            case SharedRead() | SharedWrite():
                buffer = buffers[op.buffer]
                self.cta.shared[op.shared].access(op, buffer, self.symbols, agent.moment())
                agent.count(buffer.count)
            case Map():
                inputs, outputs = [buffers[v] for v in op.inputs], [buffers[v] for v in op.outputs]
                run_map(op, inputs, outputs, self.symbols, self.launch.arguments.scalars)
                agent.count(op.count.data * max(len(op.body.block.ops) - 1, 1))
            case Fold():
                sources, targets = [buffers[v] for v in op.sources], [buffers[v] for v in op.targets]
                run_fold(op, sources, targets, self.symbols)
                agent.count(sum(s.count for s in sources))
            case Shuffle():
                run_shuffle(op, [buffers[v] for v in op.buffers])
                agent.count(len(op.distances) * sum(buffers[b].count for b in op.buffers))
            case Print():
                self._print(op)
            case Yield() | Pin():
                pass
            case _:
                return False
        return True

    def _print(self, op: Print) -> None:
        count = op.count.data
        shape = (len(self.agent.rows), count)
        mask = masked(self.symbols.of(op.guard.expr, count), shape)
        columns: list[Any] = []
        for value, index in zip(op.buffers, op.indices, strict=True):
            buffer = self.agent.buffers[value]
            registers = np.broadcast_to(np.asarray(self.symbols.of(index.expr, count)), shape)
            buffer.touch(op)
            buffer.require(op, _scattered(mask, registers, buffer))
            columns.append(np.take_along_axis(buffer.data, registers, axis=1))
        for thread, register in product(range(shape[0]), range(count)):
            if mask is None or mask[thread, register]:
                self.launch.printed.append(op.format.data.format(*(_shown(c[thread, register]) for c in columns)))
        self.agent.count(count)


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
    plan = SharedPlan.of(kernel)
    with np.errstate(all="ignore"):
        for index in ctas:
            cta = Cta(run, plan, index)
            schedule, rows = Schedule(cta), np.arange(cta.threads)
            schedule.start(Agent(cta, rows, rows), kernel.body.block)
            schedule.run()
    return Report(size, run.programs, run.operations, memory.traffic.loaded, memory.traffic.stored, tuple(run.printed))


def _grid(kernel: Kernel, arguments: Arguments, grid_size: int | None) -> int:
    """How many CTAs: one for each program, or for persistent kernels ``grid_size``, at most one for each program."""
    symbols = Symbols(np.arange(1))
    symbols.bind_all(arguments.symbols.items())
    size = 1
    for op in kernel.walk():
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
        if isinstance(op, TmaStore) and isinstance(op.map.owner, TensorMap):
            yield op.map.owner.tensor
