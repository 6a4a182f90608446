"""Asynchronous operations: cp.async, bulk and tensor copies, wgmma (PTX ISA 9.1, 9.7.9.25 to 9.7.9.27, 9.7.15).

An operation reads and writes when it completes, which is as late as possible: when nothing else may run, or when its
group is waited for. From its issue on, its footprint in shared memory is marked.
"""

# Operands are scalars, arrays, or lists of them, as an instruction has them.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownLambdaType=false

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright.ptx.machine import matrices
from tilewright.ptx.machine.lanes import grouped
from tilewright.ptx.machine.launch import TensorRegion
from tilewright.ptx.machine.shared import RANK_SHIFT
from tilewright.ptx.machine.state import State
from tilewright.ptx.machine.tensormap import DecodedTensorMap
from tilewright.ptx.opcodes import find
from tilewright.ptx.opcodes.bit_vectors import UNSIGNED
from tilewright.ptx.opcodes.rows import Bits
from tilewright.ptx.syntax import Instruction, Vector

_OFFSET = (1 << RANK_SHIFT) - 1


@dataclass(eq=False)
class Pending:
    """An operation in flight, of one schedule: the action that completes it."""

    world: int
    land: Callable[[], None]
    landed: bool = False


@dataclass
class _Group:
    """A thread's operations: those not yet committed, and committed groups in order."""

    open: list[Pending] = field(default_factory=list[Pending])
    committed: deque[list[Pending]] = field(default_factory=deque[list[Pending]])


class Copies:
    """Operations in flight in one batch."""

    def __init__(self, machine: State):
        self.machine = machine
        self.flying: deque[Pending] = deque()
        self.groups: dict[tuple[str, int], _Group] = {}

    def execute(self, i: Instruction, lanes: Bits, given: list[Any]) -> None:
        """``cp.async`` in its forms, ``cp.reduce.async.bulk``."""
        m = i.modifiers
        if m[:2] == ("async", "bulk") or m[:3] == ("reduce", "async", "bulk"):
            rest = m[2:] if m[0] == "async" else m[3:]
            if rest[0] == "commit_group":
                self._commit("bulk", lanes)
            elif rest[0] == "wait_group":
                self._wait("bulk", lanes, int(given[0]))
            elif rest[0] != "prefetch":
                self._bulk(i, lanes, given, rest)
        elif m[1] == "commit_group":
            self._commit("cp", lanes)
        elif m[1] == "wait_group":
            self._wait("cp", lanes, int(given[0]))
        elif m[1] == "wait_all":  # commits what is open
            self._commit("cp", lanes)
            self._wait("cp", lanes, 0)
        elif m[1] == "mbarrier":
            self._arrive(i, lanes, given)
        else:
            self._plain(lanes, given)

    def land(self) -> bool:
        """Complete the oldest operation in flight of each schedule; False when none is in flight."""
        landed, rest = set[int](), deque[Pending]()
        while self.flying:
            operation = self.flying.popleft()
            if operation.landed:
                continue
            if operation.world in landed:
                rest.append(operation)
            else:
                landed.add(operation.world)
                self._land(operation)
        self.flying = rest
        return bool(landed)

    def _land(self, operation: Pending) -> None:
        if not operation.landed:
            operation.landed = True
            self.machine.clocks.now += 1
            operation.land()

    def _fly(self, world: int, land: Callable[[], None]) -> Pending:
        operation = Pending(world, land)
        self.flying.append(operation)
        return operation

    # -- groups of a thread

    def _group(self, kind: str, lane: int) -> _Group:
        return self.groups.setdefault((kind, lane), _Group())

    def _commit(self, kind: str, lanes: Bits) -> None:
        for lane in lanes.tolist():
            group = self.groups.get((kind, lane))
            if group is not None:
                group.committed.append(group.open)
                group.open = []

    def _wait(self, kind: str, lanes: Bits, allowed: int) -> None:
        for lane in lanes.tolist():
            group = self.groups.get((kind, lane))
            while group is not None and len(group.committed) > allowed:
                for operation in group.committed.popleft():
                    self._land(operation)

    # -- cp.async of 4, 8 or 16 bytes

    def _plain(self, lanes: Bits, given: list[Any]) -> None:
        """cp.async: bytes are read at once and appear in shared memory when the copy completes, written by its
        thread."""
        machine, size = self.machine, int(given[2])
        source = np.broadcast_to(np.asarray(given[1]).astype(np.uint64), lanes.shape)
        target = np.broadcast_to(np.asarray(given[0]).astype(np.uint64) & np.uint64(0xFFFFFFFF), lanes.shape)
        taken = np.full(lanes.shape, size)
        if len(given) > 3 and given[3] is not None:
            other = np.broadcast_to(np.asarray(given[3]), lanes.shape)
            taken = np.where(other, 0, size) if other.dtype == np.bool_ else other.astype(np.int64)
        words = [np.zeros(lanes.shape, np.uint32) for _ in range(size // 4)]
        for n, word in enumerate(words):
            has = taken >= 4 * (n + 1)
            if has.any():
                word[has] = machine.spaces.load("global", lanes[has], source[has] + np.uint64(4 * n), 1, 4)[0]
            for byte in range(4):  # of a word that is taken in part
                some = ~has & (taken > 4 * n + byte)
                if some.any():
                    (part,) = machine.spaces.load("global", lanes[some], source[some] + np.uint64(4 * n + byte), 1, 1)
                    word[some] |= part.astype(np.uint32) << np.uint32(8 * byte)
        instruction = machine.current
        for world, mine in grouped(machine.lanes.world[lanes]):
            parts = [w[mine] for w in words]

            def land(who: Bits = lanes[mine], at: Bits = target[mine], parts: list[Bits] = parts) -> None:
                machine.current = instruction
                machine.shared.store(who, at, parts, 4)

            operation = self._fly(world, land)
            for lane in lanes[mine].tolist():
                self._group("cp", lane).open.append(operation)

    def _arrive(self, i: Instruction, lanes: Bits, given: list[Any]) -> None:
        """``cp.async.mbarrier.arrive``: an arrival once the thread's earlier copies are complete. The machine completes
        them now."""
        machine = self.machine
        for lane in lanes.tolist():
            group = self._group("cp", lane)
            for operation in [*group.open, *(o for g in group.committed for o in g)]:
                self._land(operation)
        for key, mine in machine.keys(lanes, given[0]):  # pyright: ignore[reportPrivateUsage]
            count = len(mine)
            if "noinc" not in i.modifiers:
                machine.mbarriers.objects[key].pending += count
            machine.mbarriers.arrive(key, lanes[mine], count)

    # -- bulk copies, a lane at a time

    def _bulk(self, i: Instruction, lanes: Bits, given: list[Any], rest: tuple[str, ...]) -> None:
        loads = not any(m == "bulk_group" for m in rest)
        for n, lane in enumerate(lanes.tolist()):
            operands = [_of(g, n) for g in given]
            if loads:
                self._load(i, lane, operands, rest)
            else:
                self._store(i, lane, operands, rest)

    def _target(self, lane: int, address: int) -> tuple[int, int]:
        """(instance, offset) of a shared address."""
        rank = address >> RANK_SHIFT & 0xFF
        return int(self.machine.lanes.mate(self.machine.lanes.instance[lane], np.asarray(rank))), address & _OFFSET

    def _map(self, lane: int, address: int) -> DecodedTensorMap:
        found = self.machine.spaces.maps.get(address)
        if found is None:
            self.machine.complain("PTX019", np.array([lane]), f"no tensor map at {address:#x}")
            raise KeyError(address)
        return found

    def _load(self, i: Instruction, lane: int, operands: list[Any], rest: tuple[str, ...]) -> None:
        """Global to shared memory, completing on an mbarrier; multicast to the CTAs of a mask."""
        machine = self.machine
        tensor = rest[0] == "tensor"
        mbarrier = int(operands[2 if tensor else 3]) & 0xFFFFFFFF
        instance, offset = self._target(lane, int(operands[0]) & 0xFFFFFFFF)
        barrier, barrier_offset = self._target(lane, mbarrier)
        places = [(instance, barrier)]
        if "multicast::cluster" in rest:
            mask = int(operands[3 if tensor else 4])
            ranks = [r for r in range(machine.lanes.cluster_ctas) if mask >> r & 1]
            own = machine.lanes.instance[lane]
            places = [(int(machine.lanes.mate(own, np.asarray(r))),) * 2 for r in ranks]
        data, cells_of, size = self._brought(lane, operands, tensor, offset)
        for target, signalled in places:
            self._bring(i, lane, target, (signalled, barrier_offset), data, cells_of, size)

    def _brought(self, lane: int, operands: list[Any], tensor: bool, offset: int) -> tuple[Any, Bits, int]:
        """(a function that reads the bytes, the offsets of its elements in the window, bytes in all)."""
        machine = self.machine
        world = int(machine.lanes.world[lane])
        if tensor:
            address, coordinates = operands[1]
            tensor_map = self._map(lane, int(address))
            corner = tuple(_signed(c) for c in coordinates[0])
            self._check_alignment(lane, offset)
            return (lambda: self.gather(tensor_map, corner, world), tensor_map.placed(offset), tensor_map.element_bytes)
        count = int(operands[2])
        source = int(operands[1])
        if offset % 16 or source % 16 or count % 16:
            machine.complain(
                "PTX011",
                np.array([lane]),
                f"bulk copy of {count} bytes from {source:#x} to {offset:#x}: multiples of 16",
            )
        return (lambda: self._read(lane, source, count, world), offset + np.arange(count // 4) * 4, 4)

    def _check_alignment(self, lane: int, offset: int) -> None:
        if offset % 128:
            self.machine.complain(
                "PTX011", np.array([lane]), f"tensor copy at shared offset {offset:#x}: multiples of 128"
            )

    def _bring(
        self,
        i: Instruction,
        lane: int,
        instance: int,
        key: tuple[int, int],
        data: Callable[[], Bits],
        offsets: Bits,
        size: int,
    ) -> None:
        machine = self.machine
        if key not in machine.mbarriers.objects:
            machine.complain("PTX013", np.array([lane]), f"mbarrier at {key[1]:#x} that nothing initialised")
            return
        shared = machine.shared
        if int(offsets.max()) + size > shared.size:
            machine.complain(
                "PTX010", np.array([lane]), f"a copy to shared offset {int(offsets.max()):#x}, of {shared.size}"
            )
            return
        cell = shared.cells(instance, offsets, size)
        shared.begin_write(lane, instance, cell)
        column = machine.mbarriers.objects[key].column

        def land() -> None:
            machine.current = i
            view = shared.data.view(UNSIGNED[8 * size])
            view[(instance * shared.stride + offsets) // size] = data()
            shared.end_write(cell, column)
            machine.mbarriers.complete(key, len(offsets) * size)

        self._fly(int(machine.lanes.world[lane]), land)

    def gather(self, tensor_map: DecodedTensorMap, corner: tuple[int, ...], world: int) -> Bits:
        """The elements of a box; what lies outside the tensor reads as zeros, or as its fill."""
        offset, inside = tensor_map.offsets(corner)
        size = tensor_map.element_bytes
        found = np.zeros(len(offset), UNSIGNED[8 * size])
        if tensor_map.fill:
            found[:] = np.frombuffer(tensor_map.fill, found.dtype)[0]
        region = self.machine.spaces.memory.find(tensor_map.address, 1)
        if region is None or not _within(region, tensor_map.address, offset[inside], size):
            self.machine.complain("PTX010", np.zeros(1, np.int64), "a tensor map that reaches beyond its tensor")
            return found
        at = tensor_map.address - region.address + offset
        row = region.worlds[world if len(region.worlds) > 1 else 0]
        found[inside] = row.view(UNSIGNED[8 * size])[at[inside] // size]
        return found

    def _read(self, lane: int, source: int, count: int, world: int) -> Bits:
        region = self.machine.spaces.memory.find(source, count)
        if region is None:
            self.machine.complain("PTX010", np.array([lane]), f"{count} bytes at {source:#x}: no tensor is there")
            return np.zeros(count // 4, np.uint32)
        row = region.worlds[world if len(region.worlds) > 1 else 0]
        return row.view(np.uint32)[(source - region.address) // 4 :][: count // 4].copy()

    def _store(self, i: Instruction, lane: int, operands: list[Any], rest: tuple[str, ...]) -> None:
        """Shared to global memory, in the thread's bulk group."""
        machine = self.machine
        world = int(machine.lanes.world[lane])
        tensor = rest[0] == "tensor"
        instance, offset = self._target(lane, int(operands[1]) & 0xFFFFFFFF)
        if tensor:
            address, coordinates = operands[0]
            tensor_map = self._map(lane, int(address))
            self._check_alignment(lane, offset)
            where, inside = tensor_map.offsets(tuple(_signed(c) for c in coordinates[0]))
            offsets, size, base = tensor_map.placed(offset), tensor_map.element_bytes, tensor_map.address
        else:
            count = int(operands[2])
            where, inside, size, base = np.arange(count // 4) * 4, np.ones(count // 4, np.bool_), 4, int(operands[0])
            offsets = offset + where
        if int(offsets.max()) + size > machine.shared.size:
            machine.complain(
                "PTX010",
                np.array([lane]),
                f"a copy from shared offset {int(offsets.max()):#x}, of {machine.shared.size}",
            )
            return
        cell = machine.shared.cells(instance, offsets, size)
        machine.shared.begin_read(lane, instance, cell)
        reduction = next((m for m in rest if m in ("add", "min", "max", "and", "or", "xor", "inc", "dec")), "")
        type = rest[-1] if reduction and not tensor else f"b{8 * size}"

        def land() -> None:
            machine.current = i
            view = machine.shared.data.view(UNSIGNED[8 * size])
            data = view[(instance * machine.shared.stride + offsets) // size]
            self._write(lane, base, where[inside], data[inside], world, reduction, type)
            machine.shared.end_read(cell)

        self._group("bulk", lane).open.append(self._fly(world, land))

    def _write(self, lane: int, base: int, where: Bits, data: Bits, world: int, reduction: str, type: str) -> None:
        """Elements to global memory, or combined with what is there."""
        machine, size = self.machine, data.dtype.itemsize
        region = machine.spaces.memory.find(base, 1)
        if not len(where):
            return
        if region is None or not region.writable or not _within(region, base, where, size):
            reached = f"{base + int(where.min()):#x} to {base + int(where.max()):#x}"
            machine.complain("PTX010", np.array([lane]), f"a copy to {reached}: no output is there")
            return
        row = region.worlds[world].view(data.dtype)
        at = (base - region.address + where) // size
        if reduction:
            form = find(reduction, (type,)) or find(reduction, ("rn", type))
            if form is None or form.function is None:
                machine.lacking(machine.current, np.array([lane]))
                return
            data = form.function(row[at], data)
        row[at] = data

    def store_async(self, i: Instruction, lanes: Bits, given: list[Any]) -> None:
        """``st.async``."""
        self.machine.lacking(i, lanes)

    # -- wgmma

    def wgmma(self, i: Instruction, lanes: Bits, given: list[Any]) -> list[Bits] | None:
        """``wgmma``: products are computed when issued; their operands stay marked as being read until the group is
        waited for."""
        match i.modifiers[0]:
            case "fence":
                return None
            case "commit_group":
                self._commit("wgmma", lanes[lanes % 128 == 0])
                return None
            case "wait_group":
                self._wait("wgmma", lanes[lanes % 128 == 0], int(given[0]))
                return None
            case _:
                return self._multiply(i, lanes, given)

    def _multiply(self, i: Instruction, lanes: Bits, given: list[Any]) -> list[Bits]:
        if i.modifiers[1] == "sp" or len(lanes) % 128:
            return self.machine.lacking(i, lanes)
        shape, type_d, type_a, type_b = i.modifiers[3], i.modifiers[4], i.modifiers[5], i.modifiers[6]
        n = int(shape.split("n")[1].split("k")[0])
        scales = [1 if len(given) <= p else _signed(given[p]) for p in (4, 5)] if type_d != "s32" else [1, 1]
        majors = [bool(given[p]) if len(given) > p else False for p in (6, 7)]
        if isinstance(i.operands[1], Vector):
            majors = [False, bool(given[6]) if len(given) > 6 else False]
        d = np.empty((len(lanes), len(given[0])), np.uint32)
        for k, values in enumerate(given[0]):
            d[:, k] = values
        result = np.empty_like(d)
        for start in range(0, len(lanes), 128):
            part = slice(start, start + 128)
            group = lanes[part]
            a = self._operand_a(given[1], type_a, group, part, lanes, majors[0])
            b = self._operand(given[2], type_b, n, group, start, majors[1])
            keep = bool(_of(given[3], start))
            add = matrices.accumulate_bytes if type_a in ("e4m3", "e5m2") else matrices.accumulate
            result[part] = _product(d[part], a * scales[0], b * scales[1], n, type_d, keep, add)
        return [result[:, k] for k in range(result.shape[1])]

    def _operand_a(self, given: Any, type: str, group: Bits, part: slice, lanes: Bits, transposed: bool) -> Bits:
        if isinstance(given, list):
            registers = np.stack([np.broadcast_to(v, lanes.shape)[part] for v in given], -1)
            bits = matrices.element_bits(type)
            return matrices.values(matrices.wgmma_a(np.ascontiguousarray(registers), bits), type)
        return self._operand(given, type, 64, group, part.start, transposed)

    def _operand(self, given: Any, type: str, rows: int, group: Bits, start: int, transposed: bool) -> Bits:
        """An operand in shared memory, marked as being read by the warpgroup's first thread."""
        machine, size = self.machine, matrices.element_bits(type) // 8
        descriptor = int(_of(given, start))
        try:
            offsets, taken = matrices.operand_at(descriptor, rows, 32 // size, size, transposed, machine.shared.grain)
        except ValueError as problem:
            machine.complain("PTX015", group[:1], str(problem))
            return np.zeros((rows, 32 // size))
        if int(offsets.max()) + size > machine.shared.size:
            machine.complain(
                "PTX010",
                group[:1],
                f"a wgmma operand at shared offset {int(offsets.max()):#x}, of {machine.shared.size}",
            )
            return np.zeros((rows, 32 // size))
        lane, instance = int(group[0]), int(machine.lanes.instance[group[0]])
        cell = taken + instance * machine.shared.stride // machine.shared.grain
        machine.shared.begin_read(lane, instance, cell)
        self._group("wgmma", lane).open.append(
            Pending(int(machine.lanes.world[lane]), lambda: self._read_by(lane, cell))
        )
        patterns = machine.shared.data.view(UNSIGNED[8 * size])[(instance * machine.shared.stride + offsets) // size]
        return matrices.values(patterns, type)

    def _read_by(self, lane: int, cell: Bits) -> None:
        """A product is complete: its reads count as reads of the thread that waited."""
        shared = self.machine.shared
        shared.end_read(cell)
        shared.read_time[cell], shared.reader[cell] = self.machine.clocks.now, self.machine.clocks.who[lane]


def _product(
    d: Bits, a: Bits, b: Bits, n: int, type: str, keep: bool, add: Callable[[Bits, Bits, Bits, str], Bits]
) -> Bits:
    """d (kept or zero) + a b^T for the accumulator registers [128, ...] of a warpgroup."""
    registers, elements = matrices.accumulator(n)
    bits = 16 if type == "f16" else 32
    total = matrices.unpack(d, bits).take(elements) if keep else np.zeros((64, n), UNSIGNED[bits])
    return add(a, b, total, type).take(registers).view(np.uint32)


def _within(region: TensorRegion, base: int, offsets: Bits, size: int) -> bool:
    """Whether elements at these bytes behind ``base`` lie in a region."""
    if not len(offsets):
        return True
    return region.address <= base + int(offsets.min()) and base + int(offsets.max()) + size <= region.end


def _of(value: Any, n: int) -> Any:
    """The operands of one lane."""
    if isinstance(value, list | tuple):
        return type(value)(_of(v, n) for v in value)
    return value if value is None or np.ndim(value) == 0 else value[n]


def _signed(value: Any) -> int:
    """A 32-bit coordinate."""
    bits = int(value) & 0xFFFFFFFF
    return bits - (1 << 32) if bits >> 31 else bits
