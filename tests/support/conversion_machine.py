"""A warp machine that runs conversion plans on numbers: registers per thread, shuffles, shared memory by bytes.

It knows the plans' data and evaluates their expressions; it shares no code with the planner.
"""

from __future__ import annotations

from tilewright.layout.plan import (
    Access,
    ConversionPlan,
    MatrixAccess,
    Pick,
    RegisterPlan,
    SharedPlan,
    ShufflePlan,
)

Registers = list[list[object]]


def pick(p: Pick, thread: int) -> int:
    return p.choices[p.index.evaluate({"tid": thread})]


def run(plan: ConversionPlan, source: Registers, registers: int) -> Registers:
    """What every thread holds afterwards in its ``registers`` target registers."""
    threads = len(source)
    match plan.steps:
        case None:
            return [row[:registers] for row in source]
        case RegisterPlan(elements, results):
            target: Registers = [[None] * registers for _ in range(threads)]
            for t in range(threads):
                for i, p in enumerate(results):
                    move(source[t], pick(p, t), target[t], i * elements, elements)
            return target
        case ShufflePlan(elements, rounds, results):
            target = [[None] * registers for _ in range(threads)]
            temporary: list[list[list[object]]] = [[] for _ in range(threads)]
            for r in rounds:
                sent = [source[t][pick(r.send, t) :][:elements] for t in range(threads)]
                for t in range(threads):
                    lane = r.lane.evaluate({"tid": t})
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


def move(a: list[object], i: int, b: list[object], j: int, n: int) -> None:
    b[j : j + n] = a[i : i + n]


def round_trip(plan: SharedPlan, size: int, source: Registers, registers: int) -> Registers:
    memory: dict[int, object] = {}
    for access in plan.stores:
        for t, register, address in touched(access, size, len(source)):
            assert 0 <= address <= plan.tile.size_bytes - size
            assert memory.get(address, source[t][register]) == source[t][register], "two values at one address"
            memory[address] = source[t][register]
    target: Registers = [[None] * registers for _ in source]
    for access in plan.loads:
        for t, register, address in touched(access, size, len(source)):
            target[t][register] = memory[address]
    return target


def touched(access: Access, size: int, threads: int) -> list[tuple[int, int, int]]:
    """(thread, register, byte address) of every element an access moves."""
    result: list[tuple[int, int, int]] = []
    if isinstance(access, MatrixAccess):
        for warp in range(threads // 32):
            rows = [access.address.evaluate({"tid": 32 * warp + lane}) for lane in range(32)]
            for i, register in enumerate(access.registers):
                for lane in range(32):
                    assert rows[8 * i + lane % 8] % 16 == 0
                    for e in range(2):
                        # PTX ISA, ldmatrix: lane holds row lane/4, columns 2*(lane%4)+e; transposed, the other way
                        row, column = (lane // 4, 2 * (lane % 4) + e)
                        if access.trans:
                            row, column = column, row
                        result.append((32 * warp + lane, register + e, rows[8 * i + row] + 2 * column))
        return result
    for t in range(threads):
        if access.predicate.evaluate({"tid": t}):
            address = access.address.evaluate({"tid": t})
            assert address % (len(access.registers) * size) == 0, "misaligned vector"
            result += [(t, r, address + i * size) for i, r in enumerate(access.registers)]
    return result
