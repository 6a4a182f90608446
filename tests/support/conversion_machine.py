"""A warp machine that runs conversion plans on numbers: registers per thread, shuffles, shared memory by bytes.

It knows the plans' data and evaluates their expressions; it shares no code with the planner.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilewright.hw.spaces import ThreadGroup
from tilewright.layout.conversion_plan import (
    Access,
    ConversionPlan,
    MatrixInstruction,
    Pick,
    RegisterPlan,
    SharedPlan,
    ShufflePlan,
    VectorAccesses,
)

Registers = list[list[object]]


def pick(p: Pick, thread: int) -> int:
    return p.choices[p.index.evaluate({"$tid": thread})]


def run(plan: ConversionPlan, source: Registers, registers: int) -> Registers:
    """What every thread holds afterwards in its ``registers`` target registers."""
    threads = len(source)
    match plan.steps:
        case None:
            return [row[:registers] for row in source]
        case RegisterPlan() as steps:
            return moved(steps, source)
        case ShufflePlan(elements, rounds, results):
            target: Registers = [[None] * registers for _ in range(threads)]
            temporary: list[list[list[object]]] = [[] for _ in range(threads)]
            for r in rounds:
                sent = [source[t][pick(r.send, t) :][:elements] for t in range(threads)]
                for t in range(threads):
                    lane = r.lane.evaluate({"$tid": t})
                    assert 0 <= lane < 32
                    if r.xor_mask is not None:
                        assert lane == t % 32 ^ r.xor_mask
                    temporary[t].append(sent[t // 32 * 32 + lane])
            for t in range(threads):
                for i, p in enumerate(results):
                    target[t][i * elements : (i + 1) * elements] = temporary[t][pick(p, t)]
            return target
        case SharedPlan():
            return round_trip(plan.steps, plan.element_bytes, source, registers)


def round_trip(plan: SharedPlan, size: int, source: Registers, registers: int) -> Registers:
    memory: dict[int, object] = {}
    writer: dict[int, int] = {}
    stored = source if plan.store.arrange is None else moved(plan.store.arrange, source)
    assert all(len(row) == plan.store.registers for row in stored)
    for t, register, address in touched(plan.store.accesses, size, len(source)):
        assert 0 <= address <= plan.tile.size_bytes - size
        assert memory.get(address, stored[t][register]) == stored[t][register], "two values at one address"
        memory[address] = stored[t][register]
        writer[address] = t // 32
    loaded: Registers = [[None] * plan.load.registers for _ in source]
    for t, register, address in touched(plan.load.accesses, size, len(source)):
        assert plan.barrier is ThreadGroup.CTA or writer[address] == t // 32, "another warp's element"
        loaded[t][register] = memory[address]
    target = loaded if plan.load.arrange is None else moved(plan.load.arrange, loaded)
    assert all(len(row) == registers for row in target)
    return target


def moved(plan: RegisterPlan, source: Registers) -> Registers:
    """Register moves: every group of the result is one of the source."""
    return [[row[pick(p, t) + e] for p in plan.results for e in range(plan.elements)] for t, row in enumerate(source)]


def touched(accesses: Sequence[Access], size: int, threads: int) -> Iterator[tuple[int, int, int]]:
    """(thread, register, byte address) of every element that the accesses move."""
    for access in accesses:
        yield from (
            matrices(access, threads) if isinstance(access, MatrixInstruction) else vectors(access, size, threads)
        )


def matrices(access: MatrixInstruction, threads: int) -> Iterator[tuple[int, int, int]]:
    for warp in range(threads // 32):
        rows = [access.address.evaluate({"$tid": 32 * warp + lane}) for lane in range(32)]
        for i in range(access.matrices):
            for lane in range(32):
                assert rows[8 * i + lane % 8] % 16 == 0
                for e in range(2):
                    # PTX ISA, ldmatrix: lane holds row lane/4, columns 2*(lane%4)+e; transposed, the other way
                    row, column = (lane // 4, 2 * (lane % 4) + e)
                    if access.trans:
                        row, column = column, row
                    yield 32 * warp + lane, access.first + 2 * i + e, rows[8 * i + row] + 2 * column


def vectors(access: VectorAccesses, size: int, threads: int) -> Iterator[tuple[int, int, int]]:
    for t in range(threads):
        for first in range(0, access.registers, access.width):
            place = {"$tid": t, "$r": first}
            if access.predicate.evaluate(place):
                offset = access.offset.evaluate(place)
                assert offset % access.width == 0, "misaligned vector"
                yield from ((t, first + i, (offset + i) * size) for i in range(access.width))
