"""Effects of instructions beyond registers: memory, barriers, warp-level exchange, asynchronous copies and products.

A handler gets the instruction, the lanes that execute it and its operands (registers as arrays or scalars, vectors as
lists, addresses with coordinates as pairs) and returns the values of the written registers.
"""

# Operands are scalars, arrays, or lists of them, as an instruction has them.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownLambdaType=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.ptx.machine import matrices, warps
from tilewright.ptx.machine.atomics import update
from tilewright.ptx.machine.compiled import CompiledEntry
from tilewright.ptx.machine.copies import Copies
from tilewright.ptx.machine.lanes import RUNNING, Lanes, distinct, grouped
from tilewright.ptx.machine.launch import DeviceMemory, MachineLaunch
from tilewright.ptx.machine.report import MachineReport, Stop
from tilewright.ptx.machine.shared import RANK_SHIFT
from tilewright.ptx.machine.spaces import LOCAL, PARAMETERS, SHARED
from tilewright.ptx.machine.state import WINDOW_OFFSET, State, wide, window_address
from tilewright.ptx.opcodes import find
from tilewright.ptx.opcodes.bit_vectors import UNSIGNED, is_signed, unsigned, width
from tilewright.ptx.opcodes.rows import Bits
from tilewright.ptx.syntax import CallArguments, Identifier, Immediate, Instruction, Negated, Pair, Register, Vector

Handler = Callable[..., list[Bits] | None]

_COUNTED_OPERANDS = 3
"""The operands of a barrier with reduction over all threads: destination, barrier number, predicate."""


class Effects(State):
    """The handlers of a batch's instructions."""

    def __init__(
        self,
        program: CompiledEntry,
        launch: MachineLaunch,
        parameters: Sequence[Any],
        memory: DeviceMemory,
        lanes: Lanes,
        report: MachineReport,
    ):
        super().__init__(program, launch, parameters, memory, lanes, report)
        self.copies = Copies(self)

    # -- operands

    def special(self, name: str, x: Bits | None) -> Bits:
        """A special register."""
        if name not in self.lanes.special:
            self.complain("PTX015", self.lane_numbers[:1], f"special register {name}")
            raise Stop
        value = self.lanes.special[name]
        return value if x is None or value.ndim == 0 else value[x]

    def symbol(self, name: str, x: Bits | None) -> Bits:
        """The address of a variable or parameter, in its state space."""
        return self.spaces.symbol(name, x)

    # -- dispatch

    def effect(self, index: int, x: Bits | None, guard: Bits | None, given: list[Any]) -> list[Bits]:
        """Execute instruction ``index`` for lanes ``x`` (None for all) where ``guard`` holds."""
        self.current = instruction = self.entry.body[index]
        lanes = self.lane_numbers if x is None else x
        if guard is None and len(lanes) == self.lanes.count:
            running = self.lanes.thread < self.lanes.threads
            guard = None if running.all() else running
        handler = _HANDLERS.get(instruction.opcode)
        if handler is None:
            return self.lacking(instruction, lanes)
        if guard is None:
            return handler(self, instruction, lanes, given) or []
        chosen = np.broadcast_to(np.asarray(guard), lanes.shape)
        if not chosen.any():
            return _nothing(instruction)
        given = [_some(g, chosen) for g in given]
        found = handler(self, instruction, lanes[chosen], given) or []
        return [_spread(f, chosen) for f in found]

    # -- loads, stores, atomics

    def _ld(self, i: Instruction, lanes: Bits, given: list[Any]) -> list[Bits]:
        count, size, type = _shape(i)
        found = self.spaces.load(_space(i), lanes, given[0], count, size)
        target = i.operands[0]
        names = target.items if isinstance(target, Vector) else (target,)
        if i.used_bytes is not None:
            found = [f if i.defines(k, size) else ~f for k, f in enumerate(found)]
        if is_signed(type):  # a register wider than the element takes its sign along
            return [f.view(unsigned(type)) for f in found]
        return found[: len(names)]

    def _st(self, i: Instruction, lanes: Bits, given: list[Any]) -> None:
        if i.modifiers[0] == "async":
            self.copies.store_async(i, lanes, given)
            return
        _, size, _ = _shape(i)
        values = given[1] if isinstance(given[1], list) else [given[1]]
        self.spaces.store(_space(i), lanes, given[0], [_as(v, size) for v in values], size)

    def _red(self, i: Instruction, lanes: Bits, given: list[Any]) -> None:
        if i.modifiers[0] == "async":
            self.lacking(i, lanes)
        update(self, i, lanes, given)

    def _atom(self, i: Instruction, lanes: Bits, given: list[Any]) -> list[Bits]:
        return update(self, i, lanes, given)

    def _cvta(self, i: Instruction, lanes: Bits, given: list[Any]) -> list[Bits]:
        """Generic addresses of shared and local memory lie in windows of their own; others are generic already."""
        space = i.modifiers[1] if i.modifiers[0] == "to" else i.modifiers[0]
        base = {"shared": SHARED, "local": LOCAL}.get(space.partition("::")[0], 0)
        value = wide(given[0])
        return [value - np.uint64(base) if i.modifiers[0] == "to" else value + np.uint64(base)]

    def _isspacep(self, i: Instruction, lanes: Bits, given: list[Any]) -> list[Bits]:
        window = wide(given[0]) >> np.uint64(44)
        known = {"shared": SHARED >> 44, "local": LOCAL >> 44, "param": PARAMETERS >> 44, "const": -1}
        space = i.modifiers[0].partition("::")[0]
        if space == "global":
            return [~np.isin(window, [SHARED >> 44, LOCAL >> 44, PARAMETERS >> 44])]
        inside = window == known[space]
        if i.modifiers[0] in ("shared", "shared::cta"):
            inside = inside & (wide(given[0]) - np.uint64(SHARED) >> np.uint64(RANK_SHIFT) == self.lanes.rank[lanes])
        return [inside]

    def _mapa(self, i: Instruction, lanes: Bits, given: list[Any]) -> list[Bits]:
        """``mapa``: the same offset in the CTA of another rank."""
        address, rank = wide(given[0]), wide(given[1])
        window = address & ~np.uint64((1 << 32) - 1)
        mapped = window | (address & WINDOW_OFFSET) | rank << np.uint64(RANK_SHIFT)
        return [mapped.astype(UNSIGNED[width(i.modifiers[-1])])]

    def _getctarank(self, i: Instruction, lanes: Bits, given: list[Any]) -> list[Bits]:
        return [((wide(given[0]) & np.uint64(0xFFFFFFFF)) >> np.uint64(RANK_SHIFT)).astype(np.uint32)]

    def _createpolicy(self, i: Instruction, lanes: Bits, given: list[Any]) -> list[Bits]:
        return [np.asarray(np.uint64(0))]

    def _nothing(self, i: Instruction, lanes: Bits, given: list[Any]) -> None:
        """Hints: setmaxnreg, prefetch, nanosleep, discard."""

    def _trap(self, i: Instruction, lanes: Bits, given: list[Any]) -> None:
        self.complain("PTX019", lanes, "the kernel traps")
        raise Stop

    def _call(self, i: Instruction, lanes: Bits, given: list[Any]) -> None:
        """``vprintf`` prints nothing and returns 0. Other functions are not executed."""
        match i.operands:
            case (CallArguments((Identifier(result),)), Identifier("vprintf"), *_):
                self.spaces.store("param", lanes, self.symbol(result, None), [np.zeros(len(lanes), np.uint32)], 4)
            case _:
                self.lacking(i, lanes)

    # -- fences and barriers

    def _fence(self, i: Instruction, lanes: Bits, given: list[Any]) -> None:
        if i.modifiers[:2] == ("proxy", "async"):
            self.clocks.fence(lanes)

    def membermask(self, i: Instruction, lanes: Bits) -> Bits | None:
        """The membermask of a ``.sync`` instruction for each lane; None where whole warps take part."""
        position = {"shfl": 4, "vote": 2, "match": 2, "redux": 2, "elect": 1, "bar": 0}.get(i.opcode)
        if position is None:
            return None
        operand = i.operands[position]
        if isinstance(operand, Immediate):
            return np.broadcast_to(np.uint32(operand.bits & 0xFFFFFFFF), lanes.shape)
        assert isinstance(operand, Register)
        return np.broadcast_to(np.asarray(self.register(operand.name, lanes)), lanes.shape).astype(np.uint32)

    def register(self, name: str, lanes: Bits) -> Bits:
        """The value of a register, for machinery outside of compiled code."""
        raise NotImplementedError

    def write(self, name: str, value: Bits | np.uint32, lanes: Bits) -> None:
        """Write a register, for machinery outside of compiled code."""
        raise NotImplementedError

    def _bar(self, i: Instruction, lanes: Bits, given: list[Any]) -> None:
        """``bar.warp.sync``: joins the clocks of the lanes."""
        for _, where in grouped(self.lanes.warp[lanes]):
            self.clocks.meet(lanes[where])

    def stop_at_barrier(self, i: Instruction, lanes: Bits) -> None:
        """Lanes arrive at a barrier; release those for whom it is complete."""
        if i.modifiers[0] == "cluster":
            self._cluster_barrier(i, lanes)
            return
        counts = "red" in i.modifiers
        if counts and len(i.operands) != _COUNTED_OPERANDS:
            self.lacking(i, lanes)
        number = self._operand(i, int(counts), lanes, 0)
        wanted = self._operand(i, len(i.operands) if counts else 1, lanes, 0)
        instance = self.lanes.instance[lanes]
        waits = "arrive" not in i.modifiers
        for key, where in grouped(instance * 16 + number):
            these, place = lanes[where], divmod(key, 16)
            self.arrived.setdefault(place, []).append(these if waits else -1 - these)
            if not waits:
                self._go(these)
            if self.reached.setdefault(place, i) is not i and (counts or "red" in self.reached[place].modifiers):
                self.lacking(i, these)  # a barrier that counts for some threads, and for others does not
            self.wanted[place] = int(wanted[where[0]])
            self._complete(*place)

    def _complete(self, instance: int, number: int) -> None:
        """Release a barrier that is complete; without a count it waits for all threads that have not ended."""
        came = np.concatenate(self.arrived[instance, number])
        counted = self.wanted[instance, number]
        everybody = not counted or counted == self.lanes.padded
        wanted, gone = counted or self.lanes.padded, 0
        if not counted:
            start = instance * self.lanes.padded
            own = slice(start, start + self.lanes.threads)
            gone = int((self.lanes.state[own] == 2).sum()) + self.lanes.padded - self.lanes.threads
        if len(came) + gone < wanted:
            return
        del self.arrived[instance, number]
        i = self.reached.pop((instance, number))
        if "red" in i.modifiers:
            self._count(i, came)
        lanes = np.where(came < 0, -1 - came, came)
        if everybody and len(came) >= self.lanes.threads:
            self.clocks.meet_all(instance, lanes)
        else:
            self.clocks.meet(lanes)
        self._go(came[came >= 0])

    def _count(self, i: Instruction, lanes: Bits) -> None:
        """``bar.red.popc``: in how many threads the predicate holds."""
        target, predicate = i.operands[0], i.operands[-1]
        negated = isinstance(predicate, Negated)
        source = predicate.register if isinstance(predicate, Negated) else predicate
        assert isinstance(target, Register)
        assert isinstance(source, Register)
        holds = np.broadcast_to(np.asarray(self.register(source.name, lanes)), lanes.shape).astype(np.bool_) != negated
        self.write(target.name, np.uint32(np.count_nonzero(holds)), lanes)

    def _go(self, lanes: Bits) -> None:
        """Release lanes from a barrier."""
        self.lanes.state[lanes] = RUNNING
        self.let_go.append(lanes)

    def _operand(self, i: Instruction, position: int, lanes: Bits, default: int) -> Bits:
        if position >= len(i.operands):
            return np.full(len(lanes), default)
        operand = i.operands[position]
        if isinstance(operand, Immediate):
            return np.full(len(lanes), operand.bits)
        assert isinstance(operand, Register)
        return np.broadcast_to(np.asarray(self.register(operand.name, lanes)), lanes.shape).astype(np.int64)

    def _cluster_barrier(self, i: Instruction, lanes: Bits) -> None:
        """``barrier.cluster``: arrive does not block; wait blocks until all threads of the cluster have arrived."""
        arrive = i.modifiers[1] == "arrive"
        for c, where in grouped(self.clocks.cluster[lanes]):
            these = lanes[where]
            came = self.cluster_arrived.setdefault(c, [np.zeros(0, np.int64), np.zeros(0, np.int64)])
            if arrive:
                came[0] = np.concatenate([came[0], these])
                self._go(these)
            else:
                came[1] = np.concatenate([came[1], these])
            self._complete_cluster(c)

    def _complete_cluster(self, cluster: int) -> None:
        came = self.cluster_arrived.get(cluster)
        if came is None:
            return
        size = self.lanes.padded * self.lanes.cluster_ctas
        lanes = self.lane_numbers[cluster * size : (cluster + 1) * size]
        alive = int((self.lanes.state[lanes] != 2).sum())
        if len(came[0]) >= alive and len(came[1]) >= alive:
            self.clocks.meet(came[1])
            self._go(came[1])
            del self.cluster_arrived[cluster]

    def ended(self, lanes: Bits) -> None:
        """Lanes have ended: barriers of all threads may be complete without them."""
        for instance, number in list(self.arrived):
            self._complete(instance, number)
        for cluster in list(self.cluster_arrived):
            self._complete_cluster(cluster)

    # -- mbarriers

    def _mbarrier(self, i: Instruction, lanes: Bits, given: list[Any]) -> list[Bits] | None:
        what = i.modifiers[0]
        if what == "pending_count":
            self.lacking(i, lanes)
        keys = self.keys(lanes, given[0])
        if what != "init":
            for key, mine in keys:
                if key not in self.mbarriers.objects:
                    self.complain("PTX013", lanes[mine], f"mbarrier at {key[1]:#x} that nothing initialised")
                    raise Stop
        if what in ("try_wait", "test_wait"):
            return self._wait(i, lanes, keys, given)
        count = np.broadcast_to(np.asarray(given[1] if len(given) > 1 else 1), lanes.shape).astype(np.int64)
        for key, mine in keys:
            match what:
                case "init":
                    self.mbarriers.initialise(key, int(count[mine][0]))
                case "inval":
                    del self.mbarriers.objects[key]
                case "expect_tx":
                    self.mbarriers.expect(key, int(count[mine].sum()))
                case "complete_tx":
                    self.mbarriers.complete(key, int(count[mine].sum()))
                case _:
                    self._arrive_on(i, key, lanes[mine], count[mine])
        return [np.asarray(np.uint64(0))] if what.startswith("arrive") else None

    def _arrive_on(self, i: Instruction, key: tuple[int, int], lanes: Bits, count: Bits) -> None:
        if "expect_tx" in i.modifiers:
            self.mbarriers.expect(key, int(count.sum()))
            count = np.ones_like(count)
        total = int(count.sum())
        m = self.mbarriers.objects[key]
        if total > m.pending:
            self.complain("PTX019", lanes, f"{total} arrivals where {m.pending} are missing")
            raise Stop
        self.mbarriers.arrive(key, lanes, total, i.modifiers[0] == "arrive_drop")

    def _wait(
        self, i: Instruction, lanes: Bits, keys: list[tuple[tuple[int, int], Bits]], given: list[Any]
    ) -> list[Bits]:
        if "parity" not in i.modifiers:
            self.lacking(i, lanes)
        parity = np.broadcast_to(np.asarray(given[1]), lanes.shape)
        over = np.zeros(lanes.shape, np.bool_)
        for key, mine in keys:
            these = mine[self.mbarriers.ended(key, parity[mine])]
            if len(these):
                over[these] = True
                if "relaxed" not in i.modifiers:
                    self.mbarriers.acquire(key, lanes[these])
        if i.modifiers[0] == "try_wait":
            self.passed = over
            self.blocked[lanes[~over]] = True
        return [over]

    # -- what warps do together

    def _rows(self, lanes: Bits, value: Any, dtype: Any = None) -> tuple[Bits, Bits, Bits]:
        """A value by [warp, lane], which lanes are there, and the warps."""
        warp = self.lanes.warp[lanes]
        numbers = distinct(warp)
        row = np.searchsorted(numbers, warp)
        value = np.broadcast_to(np.asarray(value), lanes.shape)
        grid = np.zeros((len(numbers), 32), dtype or value.dtype)
        grid[row, lanes % 32] = value
        present = np.zeros((len(numbers), 32), np.bool_)
        present[row, lanes % 32] = True
        return grid, present, row

    def _shfl(self, i: Instruction, lanes: Bits, given: list[Any]) -> list[Bits]:
        value, present, row = self._rows(lanes, given[0], np.uint32)
        b, c = (self._rows(lanes, g, np.uint32)[0] for g in given[1:3])
        result, inside = warps.shuffle(i.modifiers[1], value, b, c, present)
        return [result[row, lanes % 32], inside[row, lanes % 32]]

    def _vote(self, i: Instruction, lanes: Bits, given: list[Any]) -> list[Bits]:
        holds, present, row = self._rows(lanes, given[0], np.bool_)
        return [warps.vote(i.modifiers[1], holds, present)[row, lanes % 32]]

    def _match(self, i: Instruction, lanes: Bits, given: list[Any]) -> list[Bits]:
        value, present, row = self._rows(lanes, given[0])
        masks, agree = warps.match(i.modifiers[0], value, present)
        return [masks[row, lanes % 32], np.broadcast_to(agree, masks.shape)[row, lanes % 32]]

    def _redux(self, i: Instruction, lanes: Bits, given: list[Any]) -> list[Bits]:
        value, present, row = self._rows(lanes, given[0], np.uint32)
        return [warps.reduce(i.modifiers[1], i.modifiers[-1], value, present)[row, lanes % 32]]

    def _elect(self, i: Instruction, lanes: Bits, given: list[Any]) -> list[Bits]:
        _, present, row = self._rows(lanes, 0, np.uint32)
        leader, chosen = warps.elect(present)
        return [leader[row, lanes % 32], chosen[row, lanes % 32]]

    def _activemask(self, i: Instruction, lanes: Bits, given: list[Any]) -> list[Bits]:
        _, present, row = self._rows(lanes, 0, np.uint32)
        return [warps.vote("ballot", present, present)[row, lanes % 32]]

    def _ldmatrix(self, i: Instruction, lanes: Bits, given: list[Any]) -> list[Bits]:
        """Eight rows of 16 bytes per matrix, their addresses from eight lanes each."""
        count = int(i.modifiers[3][1:]) if "m8n8" in i.modifiers else self.lacking(i, lanes)
        assert isinstance(count, int)
        address = np.broadcast_to(window_address(given[0]), lanes.shape).reshape(-1, 32)
        owner = lanes.reshape(-1, 32)[:, : 8 * count]
        words = self.shared.load(owner.reshape(-1), address[:, : 8 * count].reshape(-1), 4, 4)
        rows = np.stack(words, -1).reshape(-1, count, 8, 4).view(np.uint16)  # [warp, matrix, row, 8 elements]
        if "trans" in i.modifiers:
            rows = np.ascontiguousarray(rows.swapaxes(-1, -2))
        pairs = rows.view(np.uint32).reshape(-1, count, 32)  # lane = row * 4 + pair
        return [pairs[:, n].reshape(-1) for n in range(count)]

    def _stmatrix(self, i: Instruction, lanes: Bits, given: list[Any]) -> None:
        values = given[1] if isinstance(given[1], list) else [given[1]]
        count = len(values)
        address = np.broadcast_to(window_address(given[0]), lanes.shape).reshape(-1, 32)
        pairs = np.stack([np.broadcast_to(v, lanes.shape).reshape(-1, 32) for v in values], 1)
        rows = np.ascontiguousarray(pairs).view(np.uint16).reshape(-1, count, 8, 8)
        if "trans" in i.modifiers:
            rows = np.ascontiguousarray(rows.swapaxes(-1, -2))
        words = np.ascontiguousarray(rows).view(np.uint32).reshape(-1, 4)
        owner = lanes.reshape(-1, 32)[:, : 8 * count].reshape(-1)
        self.shared.store(owner, address[:, : 8 * count].reshape(-1), [words[:, n] for n in range(4)], 4)

    def _movmatrix(self, i: Instruction, lanes: Bits, given: list[Any]) -> list[Bits]:
        rows = np.broadcast_to(given[0], lanes.shape).copy().reshape(-1, 8, 4).view(np.uint16)
        return [np.ascontiguousarray(rows.swapaxes(-1, -2)).view(np.uint32).reshape(-1)]

    def _mma(self, i: Instruction, lanes: Bits, given: list[Any]) -> list[Bits]:
        form = find(i.opcode, i.modifiers)
        if form is None or form.row.pattern.startswith("mma **"):
            return self.lacking(i, lanes)
        m, rest = i.modifiers[2][1:].split("n")
        n, k = rest.split("k")
        type_a, type_b, type_c = i.modifiers[-3], i.modifiers[-2], i.modifiers[-1]
        if int(m) != 16 or type_c == "f64" or type_a in ("u4", "s4"):
            return self.lacking(i, lanes)
        a, b, c = (self._grid(lanes, g) for g in given[:3])
        found = matrices.mma((int(m), int(n), int(k)), (type_a, type_b, type_c), a, b, c).reshape(len(lanes), -1)
        return [found[:, n] for n in range(found.shape[1])]

    def _grid(self, lanes: Bits, values: Any) -> Bits:
        """Vectors of registers as [warp, 32, n]."""
        listed = values if isinstance(values, list) else [values]
        return np.stack([np.broadcast_to(v, lanes.shape) for v in listed], -1).reshape(-1, 32, len(listed))

    def _cp(self, i: Instruction, lanes: Bits, given: list[Any]) -> None:
        self.copies.execute(i, lanes, given)

    def _wgmma(self, i: Instruction, lanes: Bits, given: list[Any]) -> list[Bits] | None:
        return self.copies.wgmma(i, lanes, given)

    def land(self) -> bool:
        """Complete the oldest asynchronous operation of each schedule; False when none is in flight."""
        return self.copies.land()

    def finish(self) -> None:
        """The end of the batch: complete outstanding copies to global memory."""
        while self.land():
            pass


def _space(i: Instruction) -> str:
    """The state space of a load or store, "" for generic addresses."""
    for modifier in i.modifiers:
        name = modifier.partition("::")[0]
        if name in ("global", "shared", "local", "param", "const"):
            return name
    return ""


def _shape(i: Instruction) -> tuple[int, int, str]:
    """(elements, bytes of one, type) of a load or store."""
    type = i.modifiers[-1]
    count = next((int(m[1:]) for m in i.modifiers if m in ("v2", "v4", "v8")), 1)
    return count, width(type) // 8, type


def _as(value: Any, size: int) -> Bits:
    """A value in the width of an element."""
    return np.asarray(value).astype(UNSIGNED[8 * size])


def _some(value: Any, chosen: Bits) -> Any:
    """Operands of some of the lanes."""
    if isinstance(value, list):
        return [_some(v, chosen) for v in value]
    if isinstance(value, tuple):
        return tuple(_some(v, chosen) for v in value)
    return value if value is None or np.ndim(value) == 0 else value[chosen]


def _spread(value: Bits, chosen: Bits) -> Bits:
    """Results of some lanes among zeros."""
    value = np.asarray(value)
    full = np.zeros(chosen.shape, value.dtype)
    full[chosen] = value
    return full


def _nothing(i: Instruction) -> list[Bits]:
    """Results where no lane executes."""
    target = i.operands[0] if i.operands else None
    count = len(target.items) if isinstance(target, Vector) else 2 if isinstance(target, Pair) else 1
    return [np.asarray(np.uint8(0))] * count


_HANDLERS: dict[str, Handler] = {
    name.removeprefix("_"): getattr(Effects, name)
    for name in [
        "_ld",
        "_st",
        "_red",
        "_atom",
        "_cvta",
        "_isspacep",
        "_mapa",
        "_getctarank",
        "_createpolicy",
        "_trap",
        "_call",
        "_fence",
        "_bar",
        "_mbarrier",
        "_shfl",
        "_vote",
        "_match",
        "_redux",
        "_elect",
        "_activemask",
        "_ldmatrix",
        "_stmatrix",
        "_movmatrix",
        "_mma",
        "_cp",
        "_wgmma",
    ]
}
_HANDLERS["ldu"] = _HANDLERS["ld"]
_HINTS = "membar setmaxnreg prefetch prefetchu nanosleep discard applypriority griddepcontrol pmevent brkpt"
_HANDLERS.update(dict.fromkeys(_HINTS.split(), Effects._nothing))  # pyright: ignore[reportPrivateUsage]
