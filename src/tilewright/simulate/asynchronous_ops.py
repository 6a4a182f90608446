"""The asynchronous ops: mbarriers, tensor copies, bulk groups, wgmma, fences, as one agent issues and awaits them.

A copy or product is checked when it is issued, against the clocks of its issuer, and takes effect at some later moment
that the seed chooses, at the latest when it is waited for.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from typing import Any

import numpy as np

from tilewright.base.expr import Expr
from tilewright.simulate.agent import Agent
from tilewright.simulate.barriers import SimulatedMbarrier, Waiting
from tilewright.simulate.conversion import access_matrices, multiply
from tilewright.simulate.cta import BulkGroups, Cta, WgmmaGroups
from tilewright.simulate.memory import SharedBuffer
from tilewright.simulate.report import refuse
from tilewright.simulate.symbols import Array
from tilewright.simulate.tensor_copy import Encoded, encode, indices
from tilewright.simulate.tensor_core import ROWS, Descriptor, accumulator_places, fp8_product, operand_places
from tilewright.simulate.thread_copies import arrive_when_copied, copy_out, load_and_store, start_copies, zero_fill
from tilewright.simulate.values import memory_dtype, rounded
from tilewright.transport import asynchronous as a
from tilewright.transport.dialect import TransportOp

_COPY_ALIGN_BYTES = 128
STEP = Waiting(lambda: True, lambda: "nothing")


def run_asynchronous(op: TransportOp, agent: Agent) -> Generator[Waiting]:
    """Run one asynchronous op, yielding where the agent may be overtaken or must wait."""
    match op:
        case a.Mbarriers():
            agent.cta.declare_mbarriers(op)
        case a.TensorMap():
            tensor = agent.launch.arguments.tensors[op.tensor]
            agent.cta.maps[op.map] = encode(op, tensor, agent.symbols)
        case a.MbarrierInit():
            for barrier in agent.cta.mbarriers[op.bars]:
                barrier.init(int(agent.rows[0]), int(agent.cta.clocks.time[agent.rows[0]]))
            agent.cta.clocks.tick(agent.group)
        case a.FenceMbarrierInit():
            for barrier in (b for bars in agent.cta.mbarriers.values() for b in bars):
                if barrier.initialised is not None and barrier.initialised[0] in agent.rows:
                    barrier.fenced = True
        case a.MbarrierArrive() | a.MbarrierArriveExpectTx():
            _arrive(op, agent)
            yield STEP
        case a.MbarrierWait():
            yield from _wait(op, agent)
        case a.LoadCoordinate():
            _load_coordinate(op, agent)
        case a.TmaLoad():
            for row in agent.rows:
                _load(op, agent, int(row))
            yield STEP
        case a.CpAsync():
            start_copies(op, agent)
            yield STEP
        case a.CopyOut():
            copy_out(op, agent)
        case a.LoadStore():
            load_and_store(op, agent)
        case a.ZeroFill():
            zero_fill(op, agent)
        case a.CpAsyncMbarrierArrive():
            arrive_when_copied(op, agent, _barrier(op, agent, agent.cta))
            yield STEP
        case a.TmaStore():
            for row in agent.rows:
                _store(op, agent, int(row))
            yield STEP
        case a.BulkCommit():
            for row in agent.rows:
                _bulk(agent, int(row)).committed += 1
        case a.BulkWait():
            yield from _bulk_wait(op, agent)
        case a.FenceProxyAsync():
            agent.cta.clocks.fence_proxy(agent.rows, agent.group)
        case a.NamedBarrierSync() | a.NamedBarrierArrive():
            yield from _named_barrier(op, agent)
        case a.ClusterArrive() | a.ClusterWait():
            yield from _cluster_barrier(op, agent)
        case a.StoreMatrix() | a.LoadMatrix():
            access_matrices(op, agent)
        case a.Mma():
            multiply(op, agent)
        case a.WgmmaFence():
            _wgmma(agent).fenced = True
            for buffer in agent.buffers.values():
                buffer.touched = False
        case a.Wgmma():
            _product(op, agent)
            yield STEP
        case a.WgmmaCommit():
            _wgmma(agent).committed += 1
        case a.WgmmaWait():
            yield from _wgmma_wait(op, agent)
        case a.SetMaxRegisters():
            pass
        case _:
            raise AssertionError(f"the simulator does not know {op.name}")


def check_finished(agent: Agent) -> None:
    """Refuse (SIM018) an agent that ends while work it started still uses its shared memory or registers."""
    kernel = agent.launch.kernel
    for row in agent.rows:
        groups = agent.cta.bulk.get(int(row))
        if groups is not None and (groups.waited < groups.committed or groups.reading.get(groups.committed + 1)):
            refuse(kernel, "SIM018", found=f"tensor stores of thread {int(row)}", required="a bulk_wait before the end")
    products = agent.cta.wgmma.get(int(agent.rows[0]))
    if products is not None and (products.retired < products.committed or products.queue):
        found = f"wgmma groups of threads {int(agent.rows[0])} and up"
        refuse(kernel, "SIM018", found=found, required="a wgmma_wait before the end")


# -- mbarriers ---------------------------------------------------------------------------------------------------------
def _peer(op: TransportOp, agent: Agent, rank: Expr | None) -> Cta:
    """The CTA of a cluster rank, which must not have ended; None: the executing one."""
    if rank is None:
        return agent.cta
    ctas, number = agent.cta.cluster.ctas, agent.symbols.uniform(rank)
    if not 0 <= number < len(ctas):
        refuse(op, "SIM015", found=f"CTA {number} of {len(ctas)}", required=f"0 <= rank < {len(ctas)}")
    _outlives(op, ctas[number])
    return ctas[number]


def _outlives(op: TransportOp, cta: Cta) -> None:
    if cta.running == 0:
        found = f"an access to CTA {cta.rank} of the cluster, which has ended"
        refuse(op, "SIM018", found=found, required="a cluster barrier at the end")


def _barrier(op: Any, agent: Agent, cta: Cta, *, engine: bool = False) -> SimulatedMbarrier:
    """The barrier of an op in ``cta``; refuses one whose initialisation did not happen before."""
    bars = cta.mbarriers.get(op.bars, [])
    index = agent.symbols.uniform(op.index.expr)
    if not 0 <= index < len(bars):
        refuse(op, "SIM015", found=f"barrier {index} of {len(bars)}", required=f"0 <= index < {len(bars)}")
    barrier = bars[index]
    if barrier.initialised is None:
        refuse(op, "SIM015", found=f"{barrier.name}, not initialised", required="a mbarrier_init before")
    thread, time = barrier.initialised
    if (agent.cta.clocks.known[agent.rows, thread] < time).any():
        found = f"{barrier.name}, initialised by thread {thread} without a barrier in between"
        refuse(op, "SIM015", found=found, required="a barrier between mbarrier_init and its first use")
    if engine and not barrier.fenced:
        found = f"{barrier.name}, whose initialisation the asynchronous proxy may not see"
        refuse(op, "SIM017", found=found, required="a fence_mbarrier_init after the mbarrier_init")
    return barrier


def _arrive(op: a.MbarrierArrive | a.MbarrierArriveExpectTx, agent: Agent) -> None:
    remote = op.cta if isinstance(op, a.MbarrierArrive) else None
    barrier = _barrier(op, agent, _peer(op, agent, None if remote is None else remote.expr))
    times = len(agent.rows)
    if isinstance(op, a.MbarrierArriveExpectTx):
        barrier.expect(op.bytes.data * times)
    pending = barrier.pending
    if not barrier.arrive(times, agent.cta.clocks.release(agent.rows, agent.group)):
        found = f"{times} arrivals at {barrier.name}, phase {barrier.completed}, which waits for {pending} more"
        refuse(op, "SIM015", found=found, required=f"{barrier.count} arrivals a phase")


def _wait(op: a.MbarrierWait, agent: Agent) -> Generator[Waiting]:
    barrier, parity = _barrier(op, agent, agent.cta), agent.symbols.uniform(op.parity.expr)
    yield Waiting(lambda: barrier.passed(parity), lambda: f"parity {parity} of {barrier}")
    if barrier.clock is not None:
        agent.cta.clocks.acquire(agent.rows, barrier.clock)
    agent.cta.clocks.learn(agent.rows, agent.cta.clocks.mbarrier(barrier.slot), barrier.completed)


# -- tensor copies -----------------------------------------------------------------------------------------------------
def _box(op: a.TmaLoad | a.TmaStore, agent: Agent) -> tuple[Encoded, SharedBuffer, Array, Array, Array]:
    """The map, the buffer, and for each element of the box its byte in the arena, its byte in the tensor, and whether
    it lies in the tensor."""
    encoded, shared = agent.cta.maps[op.map], agent.cta.shared[op.shared]
    offset = shared.offset + agent.symbols.uniform(op.offset.expr)
    if op.box_bytes.data != encoded.box_bytes or offset % _COPY_ALIGN_BYTES:
        found = f"{op.box_bytes.data} bytes at byte {offset} of shared memory for a box of {encoded.box_bytes}"
        refuse(op, "SIM019", found=found, required=f"the box's bytes, at a multiple of {_COPY_ALIGN_BYTES}")
    start = tuple(agent.symbols.uniform(c.expr) for c in op.coords)
    places, source, inside = encoded.places(start, offset)
    shared.inside(op, places - shared.offset, encoded.element_bytes)
    return encoded, shared, places, source, inside


def _load_coordinate(op: a.LoadCoordinate, agent: Agent) -> None:
    """The integer, or the extent where it is not read or leads outside."""
    extent, found = agent.symbols.uniform(op.extent.expr), -1
    if agent.symbols.uniform(op.guard.expr):
        tensor, memory = agent.launch.arguments.tensors[op.tensor], agent.launch.memory
        coords = tuple(agent.symbols.uniform(c.expr) for c in op.coords)
        if not all(0 <= c < n for c, n in zip(coords, tensor.array.shape, strict=True)):
            refuse(op, "SIM002", found=f"a coordinate loaded at {coords}", required=f"inside of {tensor.array.shape}")
        memory.watch(op, tensor, tuple(np.array([c]) for c in coords), agent.rows[:1], agent.moment(), "read")
        memory.traffic.load(1, tensor.dtype.bytes)
        found = int(tensor.array[coords])
    agent.symbols.bind(op.symbol.data, found if 0 <= found < extent else extent)


def _elements(op: TransportOp, encoded: Encoded, source: Array) -> tuple[Array, ...]:
    found = indices(encoded.tensor, source)
    if found is None:
        refuse(
            op,
            "SIM002",
            found=f"a box of map {encoded.op.hint.data!r} that reaches bytes which are no elements of "
            f"{encoded.tensor.name}",
            required="dims and strides of the tensor map inside the tensor",
        )
    return found


def _load(op: a.TmaLoad, agent: Agent, row: int) -> None:
    encoded, _, places, source, inside = _box(op, agent)
    size, tensor, memory = encoded.element_bytes, encoded.tensor, agent.launch.memory
    where, at = _elements(op, encoded, source[inside]), agent.moment()
    memory.watch(op, tensor, where, np.full(len(where[0]), row), at, "read")
    memory.traffic.load(len(where[0]), size)

    def land(cta: Cta, barrier: SimulatedMbarrier) -> None:
        _outlives(op, cta)
        bits = np.dtype(f"u{size}")
        values = np.zeros(len(places), bits)
        values[inside] = tensor.array[where].view(bits)
        cta.arena.bytes.view(bits)[places // size] = values
        barrier.complete(op.box_bytes.data)

    for rank in [c.expr for c in op.ctas] or [None]:  # each receiver's bytes land when they will
        cta = _peer(op, agent, rank)
        barrier, shared = _barrier(op, agent, cta, engine=True), cta.shared[op.shared]
        column, time = cta.clocks.mbarrier(barrier.slot), barrier.completed + 1
        shared.engine_writes(op, places - shared.offset, size, row, column, time)
        cta.transfers.append(partial(land, cta, barrier))


def _store(op: a.TmaStore, agent: Agent, row: int) -> None:
    encoded, shared, places, source, inside = _box(op, agent)
    groups, clocks = _bulk(agent, row), agent.cta.clocks
    group, size, tensor, memory = groups.committed + 1, encoded.element_bytes, encoded.tensor, agent.launch.memory
    shared.engine_reads(op, places - shared.offset, size, np.array([row]), clocks.bulk(row), group)
    where, at = _elements(op, encoded, source[inside]), agent.moment()
    memory.watch(op, tensor, where, np.full(len(where[0]), row), at, "write")
    memory.traffic.store(len(where[0]), size)
    for open_copies in (groups.reading, groups.writing):
        open_copies[group] = open_copies.get(group, 0) + 1

    def read() -> None:
        values = agent.cta.arena.bytes.view(np.dtype(f"u{size}"))[places // size][inside]
        groups.reading[group] -= 1

        def write() -> None:
            tensor.array[where] = values.view(tensor.array.dtype)
            groups.writing[group] -= 1

        agent.cta.transfers.append(write)

    agent.cta.transfers.append(read)


def _bulk(agent: Agent, row: int) -> BulkGroups:
    return agent.cta.bulk.setdefault(row, BulkGroups())


def _bulk_wait(op: a.BulkWait, agent: Agent) -> Generator[Waiting]:
    for row in map(int, agent.rows):
        groups = _bulk(agent, row)
        last = groups.committed - op.pending.data
        ready = partial(groups.settled, last, read=bool(op.read.data))
        yield Waiting(ready, partial("bulk group {} of thread {}".format, last, row))
        groups.waited = max(groups.waited, last)
        agent.cta.clocks.learn(np.array([row]), agent.cta.clocks.bulk(row), last)


# -- threads -----------------------------------------------------------------------------------------------------------
def _named_barrier(op: a.NamedBarrierSync | a.NamedBarrierArrive, agent: Agent) -> Generator[Waiting]:
    number = agent.symbols.uniform(op.id.expr)
    barrier = agent.cta.thread_barrier(number, op.threads.data)
    if not 0 <= number < 16 or (barrier.arrived and barrier.threads != op.threads.data) or len(agent.rows) % 32:
        found = f"{len(agent.rows)} threads at barrier {number} for {op.threads.data}, begun for {barrier.threads}"
        refuse(op, "SIM015", found=found, required="whole warps, one thread count, a number from 0 to 15")
    barrier.threads = op.threads.data
    if barrier.arrived + len(agent.rows) > barrier.threads:
        found = f"{barrier.arrived + len(agent.rows)} threads at barrier {number}"
        refuse(op, "SIM015", found=found, required=f"{barrier.threads} threads a round")
    if isinstance(op, a.NamedBarrierSync):
        yield from agent.arrive_and_wait(barrier, f"named barrier {number}")
    else:
        agent.arrive(barrier)
        yield STEP


def _cluster_barrier(op: a.ClusterArrive | a.ClusterWait, agent: Agent) -> Generator[Waiting]:
    arrives, barrier = isinstance(op, a.ClusterArrive), agent.cta.cluster.barrier
    if arrives == bool(agent.cluster_round):
        found = "a second arrival" if arrives else "a wait without an arrival"
        refuse(op, "SIM015", found=found, required="one arrival, then one wait")
    if arrives:
        agent.cluster_round = agent.arrive(barrier)
        yield STEP
    else:
        round_, agent.cluster_round = agent.cluster_round, 0
        yield from agent.await_round(barrier, round_, "the cluster barrier")


# -- wgmma -------------------------------------------------------------------------------------------------------------
def _wgmma(agent: Agent) -> WgmmaGroups:
    return agent.cta.wgmma.setdefault(int(agent.rows[0]), WgmmaGroups())


def _product(op: a.Wgmma, agent: Agent) -> None:
    groups, accumulator, n = _wgmma(agent), agent.buffers[op.accumulator], op.n.data
    if len(agent.rows) != 128:
        refuse(op, "SIM019", found=f"wgmma by {len(agent.rows)} threads", required="one whole warpgroup")
    held = slice(op.first.data, op.first.data + n // 2)
    used = [accumulator]
    dtype = op.dtype.dtype
    if op.a_in_registers:
        operand = agent.buffers[op.a]
        used.append(operand)
        read_a = _register_operand(op, operand, groups)
    else:
        assert op.a_operand is not None
        shared, left = agent.cta.shared[op.a], op.a_operand.data
        region = (agent.symbols.uniform(op.a_region.expr), op.a_bytes.data)
        offset = agent.symbols.uniform(op.a_offset.expr)
        read_a = _shared_operand(op, agent, shared, left.template, offset, region, ROWS, bool(left.major))
    for buffer in used:
        if buffer.touched or not groups.fenced:
            refuse(
                op,
                "SIM017",
                found=f"registers of {buffer.hint!r}, accessed since the last wgmma_fence",
                required="a wgmma_fence between ordinary register accesses and the wgmma",
            )
    region = (agent.symbols.uniform(op.b_region.expr), op.b_bytes.data)
    offset = agent.symbols.uniform(op.b_offset.expr)
    shared, right = agent.cta.shared[op.b], op.b_operand.data
    read_b = _shared_operand(op, agent, shared, right.template, offset, region, n, bool(right.major))
    registers = np.arange(held.start, held.stop)
    if op.scale_d.data:
        accumulator.require(op, index=registers)
    accumulator.wrote(registers=registers)
    accumulator.hold(held, groups.issued)
    agent.count(n)

    def product() -> None:
        row, column = accumulator_places(n)
        left, right, old = _operand(read_a(), dtype.name), _operand(read_b(), dtype.name), accumulator.data[:, held]
        if dtype.is_float and dtype.bits == 8:
            addend = np.zeros((ROWS, n), np.float32)
            addend[row, column] = old
            accumulator.data[:, held] = fp8_product(left, right, addend if op.scale_d.data else None)[row, column]
            return
        value = (left @ right.T)[row, column]
        accumulator.data[:, held] = rounded(old + value if op.scale_d.data else value, accumulator.dtype)

    groups.queue.append((groups.issued, product))


def _operand(data: Array, name: str) -> Array:
    """Operand values in float32; tf32 ignores the low bits of its operands."""
    single = data.astype(np.float32)
    return (single.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32) if name == "tf32" else single


def _register_operand(op: a.Wgmma, buffer: Any, groups: WgmmaGroups) -> Any:
    first = op.a_register.data
    buffer.require(op, index=np.arange(first, first + 8))
    buffer.hold(slice(first, first + 8), groups.issued)

    def read() -> Array:
        row, k = operand_places()
        data = np.zeros((ROWS, 16), np.float32)
        data[row, k] = buffer.data[:, first : first + 8]
        return data

    return read


def _shared_operand(
    op: a.Wgmma,
    agent: Agent,
    shared: SharedBuffer,
    template: int,
    offset: int,
    region: tuple[int, int],
    extent: int,
    mn_major: bool,
) -> Any:
    element = memory_dtype(op.dtype.dtype)
    places = Descriptor.of(template, shared.offset + offset).addresses(extent, element.itemsize, mn_major=mn_major)
    low, high = int(places.min()) - shared.offset, int(places.max()) - shared.offset + element.itemsize
    if low < region[0] or high > region[0] + region[1] or offset % 16:
        refuse(
            op,
            "SIM019",
            found=f"a descriptor that reads bytes {low} to {high} of {shared.hint!r}, from {offset}",
            required=f"bytes {region[0]} to {region[0] + region[1]}, the tile that the op declares",
        )
    flat = places.ravel()
    shared.inside(op, flat - shared.offset, element.itemsize)
    column = agent.cta.clocks.wgmma(int(agent.rows[0]))
    shared.engine_reads(op, flat - shared.offset, element.itemsize, agent.rows, column, _wgmma(agent).issued)
    return lambda: agent.cta.arena.bytes.view(element)[places // element.itemsize]


def _wgmma_wait(op: a.WgmmaWait, agent: Agent) -> Generator[Waiting]:
    groups = _wgmma(agent)
    last = groups.committed - op.pending.data
    yield Waiting(lambda: groups.done(last), lambda: f"wgmma group {last}")
    groups.retired = max(groups.retired, last)
    for buffer in agent.buffers.values():
        buffer.retire(last)
    agent.cta.clocks.learn(agent.rows, agent.cta.clocks.wgmma(int(agent.rows[0])), last)
