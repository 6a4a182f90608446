"""Running a kernel: CTAs in a seeded order, each a set of agents whose steps are interleaved in a seeded order.

An *agent* is a group of threads in lockstep: the CTA, or inside roles a warpgroup. All ops are the same for the threads
of an agent, so one NumPy operation executes an op for all of them. An agent is a generator that yields where it waits
or may be overtaken; copies and products in flight take effect between its steps. That the order of accesses inside an
agent does not matter is checked by vector clocks, not by trying orders.
"""

from __future__ import annotations

import random
from collections.abc import Generator, Iterator
from itertools import product
from typing import Any

import numpy as np
from xdsl.ir import Block, SSAValue

from tilewright.diag import fail
from tilewright.hw.spaces import WARPGROUP_THREADS
from tilewright.simulate.agent import Agent
from tilewright.simulate.arguments import LaunchArguments
from tilewright.simulate.asynchronous_ops import check_finished, run_asynchronous
from tilewright.simulate.barriers import Waiting
from tilewright.simulate.compute import run_fold, run_map, run_shuffle
from tilewright.simulate.conversion import join_warps, run_exchange, run_select
from tilewright.simulate.cta import ClusterState, SharedAllocation
from tilewright.simulate.launch import SimulatedLaunch
from tilewright.simulate.memory import GlobalMemory
from tilewright.simulate.registers import RegisterBuffer, masked
from tilewright.simulate.report import SimulationReport, place, refuse
from tilewright.simulate.shadow import GlobalShadow
from tilewright.simulate.symbols import Array, Symbols
from tilewright.simulate.symbols import LaunchNumbers as SharedValues
from tilewright.transport.asynchronous import WARPGROUP, Advance, CopyOut, Counter, Elected, Role, TensorMap, TmaStore
from tilewright.transport.dialect import (
    AtomicReduce,
    Barrier,
    BarrierCount,
    Bind,
    ClusterRead,
    Draw,
    Exchange,
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
    Registers,
    RegisterSelect,
    Shared,
    SharedCount,
    SharedRead,
    SharedWrite,
    Shuffle,
    Store,
    TransportOp,
    Trap,
    WarpBarrier,
    Yield,
)

_PERSISTENT_CTAS = 3  # few enough that a CTA runs several programs, so that what they share is exercised


# -- interleaving ------------------------------------------------------------------------------------------------------
class ClusterSchedule:
    """The agents of a cluster, and the seeded choice of what happens next."""

    def __init__(self, cluster: ClusterState):
        self.cluster = cluster
        self._running: list[tuple[Agent, Generator[Waiting], Waiting]] = []

    def start(self, agent: Agent, block: Block) -> None:
        """Add an agent."""
        agent.cta.running += 1
        walk = Walk(self, agent).body(block)
        self._resume(agent, walk)

    def run(self) -> None:
        """Run until all agents have ended and all asynchronous work has completed; SIM014 on deadlock."""
        cluster, kernel = self.cluster, self.cluster.launch.kernel
        while self._running:
            ready = [entry for entry in self._running if entry[2].ready()]
            events = cluster.in_flight()
            if not ready and not events:
                stuck = "; ".join(f"{agent.label} waits for {waiting.what()}" for agent, _, waiting in self._running)
                refuse(kernel, "SIM014", found=stuck, required="somebody who can go on")
            order = cluster.order
            if events and (not ready or order.random() < cluster.eager):
                cluster.advance(order.choice(events))
                continue
            entry = ready[0] if len(ready) == 1 else order.choice(ready)
            self._running.remove(entry)
            self._resume(entry[0], entry[1])
        unread = [b.name for cta in cluster.ctas for bars in cta.mbarriers.values() for b in bars if b.tx_bytes]
        if unread:
            found = f"bytes of tensor copies on {', '.join(unread)}"
            refuse(kernel, "SIM018", found=found, required="a mbarrier_wait before the end")
        while cluster.in_flight():
            cluster.advance(cluster.in_flight()[0])

    def _resume(self, agent: Agent, walk: Generator[Waiting]) -> None:
        waiting = next(walk, None)
        if waiting is None:
            agent.cta.running -= 1
            check_finished(agent)
        else:
            self._running.append((agent, walk, waiting))


class Walk:
    """Executes a block for one agent."""

    def __init__(self, schedule: ClusterSchedule, agent: Agent):
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
                    yield from agent.arrive_and_wait(
                        self.cta.thread_barrier(key, threads), f"the barrier of {agent.label}"
                    )
                case BarrierCount():
                    yield from self._count(op)
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

    def _count(self, op: BarrierCount) -> Generator[Waiting]:
        """A barrier with reduction: each thread gets the number of threads whose value is not 0."""
        agent = self.agent
        assert len(agent.rows) == self.cta.threads, "threads of a CTA are counted where all of them are"
        key, threads = agent.barrier
        yield from agent.arrive_and_wait(self.cta.thread_barrier(key, threads), f"the barrier of {agent.label}")
        buffer = agent.buffers[op.buffer]
        buffer.touch(op)
        buffer.data[:, 0] = np.count_nonzero(buffer.data[:, 0])
        buffer.wrote()

    def _role(self, op: Role) -> None:
        """Each warpgroup of a role is an agent of its own."""
        for number in range(op.threads.data // WARPGROUP_THREADS):
            threads = np.arange(WARPGROUP_THREADS) + number * WARPGROUP_THREADS
            label = f"{op.label.data} warpgroup {number}" + (f" of CTA {self.cta.rank}" if self.cta.rank else "")
            rows = self.cta.rows[threads + op.first.data]
            agent = Agent(self.cta, threads, rows, parent=self.agent, label=label)
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
        """The coordinates of this CTA's programs, in execution order."""
        extents = [self.symbols.uniform(e.expr) for e in op.extents]
        whole, shape, cluster = tuple(extents), op.cluster_shape, self.cta.cluster
        if cluster.size != shape[0] * shape[1] or (
            cluster.size > 1 and (extents[-2] % shape[0] or extents[-1] % shape[1])
        ):
            found = f"{extents} programs for clusters of {cluster.size} CTAs in blocks of {shape}"
            refuse(op, "SIM020", found=found, required="whole blocks, as many CTAs in a cluster as programs in a block")
        key = (op, whole, self.cta.rank)
        every = self.launch.walks.get(key)
        if every is None:
            every = self.launch.walks[key] = self._every(op, whole)
        if op.drawn is not None:
            return self._drawn(every, op.drawn.data)
        stride = max(self.launch.grid_size // cluster.size if op.persistent.data else len(every), 1)
        mine = every[cluster.index :: stride]
        if op.alternates:
            rounds = [every[begin : begin + stride] for begin in range(0, len(every), stride)]
            rounds[1::2] = [dealt[::-1] for dealt in rounds[1::2]]
            mine = [dealt[cluster.index] for dealt in rounds if cluster.index < len(dealt)]
        first, step = op.interleaving
        return iter(mine[first::step])

    def _drawn(self, every: list[tuple[int, ...]], name: str) -> Iterator[tuple[int, ...]]:
        """The programs of a CTA that draws them."""
        ordinal = self.cta.cluster.index
        while 0 <= ordinal < len(every):
            yield every[ordinal]
            ordinal = self.symbols.scalars[name]

    def _draw(self, op: Draw) -> None:
        agent, tensor = self.agent, self.launch.arguments.tensors[op.tensor]
        buffer = agent.buffers[op.buffer]
        buffer.touch(op)
        draws = self.launch.grid_size < self.symbols.uniform(op.programs.expr)
        for row, thread in enumerate(agent.moment().threads):
            buffer.data[row, 0] = self.launch.grid_size
            if draws:
                where, who = (np.zeros(1, np.int64),), np.array([thread])
                self.launch.memory.watch(op, tensor, where, who, agent.moment(), "add")
                buffer.data[row, 0] += int(tensor.array[0])
                tensor.array[0] += 1
        buffer.wrote()

    def _every(self, op: Programs, whole: tuple[int, ...]) -> list[tuple[int, ...]]:
        """The coordinates of all programs of ``whole`` extents that CTAs of this rank take, in order."""
        extents, shape, cluster = list(whole), op.cluster_shape, self.cta.cluster
        if cluster.size > 1:
            extents[-2:] = extents[-2] // shape[0], extents[-1] // shape[1]
        every = list(product(*map(range, extents)))
        if op.level is not None and op.group is not None:
            return self._by_length(every, op.level, op.group.data, 1 if op.ascending else -1)
        if op.group is not None:  # bands of the next to last name, which varies fastest inside of a band
            band = op.group.data
            every.sort(key=lambda c: (*c[:-2], c[-2] // band, c[-1], c[-2]))
        if cluster.size > 1:
            row, column = divmod(self.cta.rank, shape[1])
            every = [(*c[:-2], c[-2] * shape[0] + row, c[-1] * shape[1] + column) for c in every]
        return every

    @staticmethod
    def _by_length(every: list[tuple[int, ...]], level: int, group: int, sign: int) -> list[tuple[int, ...]]:
        """Bands of combinations of the other coordinates; in a band the least ``sign * level`` first, with all of
        them."""
        others = {c: i for i, c in enumerate(dict.fromkeys((*c[:level], *c[level + 1 :]) for c in every))}

        def order(c: tuple[int, ...]) -> tuple[int, int, int]:
            row = others[*c[:level], *c[level + 1 :]]
            return row // group, sign * c[level], row

        return sorted(every, key=order)

    def _step(self, op: TransportOp) -> bool:
        """Execute an op that neither waits nor starts asynchronous work; False if it is none of these."""
        agent = self.agent
        buffers = agent.buffers
        match op:
            case Let():
                self.symbols.bind(op.symbol.data, self.symbols.uniform(op.value.expr))
            case Bind():
                self.symbols.bind(op.symbol.data, buffers[op.buffer].uniform(op))
            case Counter():
                self.symbols.bind(op.symbol.data, op.start.data)
            case Advance():
                name = op.symbol.data
                self.symbols.bind(name, self.symbols.scalars[name] + self.symbols.uniform(op.by.expr))
            case Registers():
                buffers[op.buffer] = RegisterBuffer.declare(op, int(agent.rows[0]), len(agent.rows))
            case Shared():
                self.cta.declare_shared(op)
            case Load() | Store() | AtomicReduce():
                buffer, tensor = buffers[op.buffer], self.launch.arguments.tensors[op.tensor]
                indices = [buffers[v] for v in op.indices]
                self.launch.memory.access(op, tensor, buffer, indices, self.symbols, agent.moment())
                agent.count(buffer.count)
            case SharedRead() | SharedWrite():
                buffer = buffers[op.buffer]
                self.cta.shared[op.shared].access(op, buffer, self.symbols, agent.moment())
                agent.count(buffer.count)
            case ClusterRead():
                self._cluster_read(op, buffers[op.buffer])
            case SharedCount():
                buffer = buffers[op.buffer]
                self.cta.shared[op.shared].count(op, buffer, self.symbols, agent.moment())
                agent.count(buffer.count)
            case Draw():
                self._draw(op)
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
            case RegisterSelect():
                run_select(op, buffers[op.source], buffers[op.target], self.symbols)
                agent.count(buffers[op.target].count)
            case Exchange():
                run_exchange(op, buffers[op.source], buffers[op.target], self.symbols)
                agent.count(buffers[op.target].count)
            case WarpBarrier():
                join_warps(agent)
            case Print():
                self._print(op)
            case Trap():
                self._trap(op)
            case Yield() | Pin():
                pass
            case _:
                return False
        return True

    def _cluster_read(self, op: ClusterRead, buffer: RegisterBuffer) -> None:
        ctas, ranks = self.cta.cluster.ctas, np.unique(self.symbols.of(op.cta.expr, buffer.count))
        for rank in map(int, ranks):
            if not 0 <= rank < len(ctas):
                refuse(op, "SIM011", found=f"CTA {rank} of {len(ctas)}", required=f"0 <= rank < {len(ctas)}")
            if op.shared not in ctas[rank].shared or not ctas[rank].running:
                found = f"an access to CTA {rank} of the cluster, which does not run"
                required = "cluster barriers before the first access and behind the last"
                refuse(op, "SIM018", found=found, required=required)
            ctas[rank].shared[op.shared].access(op, buffer, self.symbols, self.agent.moment())
        self.agent.count(buffer.count)

    def _print(self, op: Print) -> None:
        mask, columns = self._read(op)
        for thread, register in product(range(len(self.agent.rows)), range(op.count.data)):
            if mask is None or mask[thread, register]:
                self.launch.printed.append(op.format.data.format(*(_shown(c[thread, register]) for c in columns)))

    def _trap(self, op: Trap) -> None:
        mask, (where, *columns) = self._read(op)
        found = np.argwhere(where.astype(np.bool_) if mask is None else mask & where.astype(np.bool_))
        if len(found):
            thread, register = (int(x) for x in found[0])
            fail(
                "SIM022",
                where=place(op),
                found=op.format.data.format(*(_shown(c[thread, register]) for c in columns)),
                required="an index inside, or -1, which stands for nowhere",
                help='mend the index, or have such elements skipped: on_out_of_range="skip"',
            )

    def _read(self, op: Print | Trap) -> tuple[Array | None, list[Array]]:
        """The places where an op takes effect, and the elements of its buffers there."""
        count = op.count.data
        shape = (len(self.agent.rows), count)
        mask = masked(self.symbols.of(op.guard.expr, count), shape)
        columns: list[Array] = []
        for value, index in zip(op.buffers, op.indices, strict=True):
            buffer = self.agent.buffers[value]
            registers = np.broadcast_to(np.asarray(self.symbols.of(index.expr, count)), shape)
            buffer.touch(op)
            buffer.require(op, _scattered(mask, registers, buffer))
            columns.append(np.take_along_axis(buffer.data, registers, axis=1))
        self.agent.count(count)
        return mask, columns


def _scattered(mask: Array | None, registers: Array, buffer: RegisterBuffer) -> Array:
    """The elements of the buffer that a print reads."""
    read = np.zeros(buffer.data.shape, np.bool_)
    threads: Array = np.indices(registers.shape)[0]
    chosen = np.ones(registers.shape, np.bool_) if mask is None else mask
    read[threads[chosen], registers[chosen]] = True
    return read


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, np.floating) else str(int(value))


def launch(kernel: Kernel, arguments: LaunchArguments, grid_size: int | None, seed: int) -> SimulationReport:
    """Run every CTA of the grid once, in an order that ``seed`` chooses."""
    order = random.Random(seed)
    watched = {arguments.tensors[v].name: arguments.tensors[v].array.shape for v in _written(kernel.body.block)}
    memory = GlobalMemory({name: GlobalShadow(shape) for name, shape in watched.items()})
    size = _grid(kernel, arguments, grid_size)
    run = SimulatedLaunch(kernel, arguments, memory, size, order)
    together = _cluster(kernel)
    clusters = list(range(size // together))
    order.shuffle(clusters)
    plan = SharedAllocation.of(kernel)
    with np.errstate(all="ignore"):
        for index in clusters:
            cluster = ClusterState(run, plan, index, together)
            schedule = ClusterSchedule(cluster)
            for cta in cluster.ctas:
                schedule.start(Agent(cta, np.arange(cta.threads), cta.rows), kernel.body.block)
            schedule.run()
    return SimulationReport(
        size,
        run.programs,
        run.operations,
        memory.traffic.loaded,
        memory.traffic.stored,
        memory.traffic.bytes,
        tuple(run.printed),
    )


def _cluster(kernel: Kernel) -> int:
    return 1 if kernel.cluster is None else kernel.cluster.data


def _grid(kernel: Kernel, arguments: LaunchArguments, grid_size: int | None) -> int:
    """The number of CTAs: one for each program; for persistent kernels ``grid_size``, or a few clusters, and at most
    one CTA for each program."""
    together = _cluster(kernel)
    most = max((grid_size or _PERSISTENT_CTAS * together) // together, 1) * together
    symbols = _known_at_launch(kernel, arguments)
    size = 1
    for op in kernel.walk():
        if isinstance(op, Programs):
            programs = 1
            for extent in op.extents:
                programs *= symbols.uniform(extent.expr)
            size = max(size, min(programs, most) if op.persistent.data else programs)
    return size


def _known_at_launch(kernel: Kernel, arguments: LaunchArguments) -> Symbols:
    symbols = Symbols(np.arange(1), SharedValues.over(arguments.symbols))
    symbols.bind_all(arguments.symbols.items())
    for op in kernel.walk():
        if isinstance(op, Let) and op.value.expr.symbols <= symbols.names:
            symbols.bind(op.symbol.data, symbols.uniform(op.value.expr))
    return symbols


def queues(kernel: Kernel, arguments: LaunchArguments) -> tuple[str, ...]:
    """The tensors whose counters CTAs draw programs from, in a launch of the usual grid that has more programs."""
    symbols, size = _known_at_launch(kernel, arguments), _grid(kernel, arguments, None)
    draws = (op for op in kernel.walk() if isinstance(op, Draw) and size < symbols.uniform(op.programs.expr))
    return tuple(arguments.tensors[op.tensor].name for op in draws)


def _written(block: Block) -> Iterator[SSAValue]:
    for op in block.walk():
        if isinstance(op, Store | AtomicReduce | Draw | CopyOut):
            yield op.tensor
        if isinstance(op, TmaStore) and isinstance(op.map.owner, TensorMap):
            yield op.map.owner.tensor
