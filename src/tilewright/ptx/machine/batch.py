"""One batch: the registers of its lanes, and the schedule.

The next segment to run is the runnable one of lowest rank in reverse post-order, for all lanes that stand before it, so
diverged lanes reconverge. Schedules other than the first delay random warps where they synchronise, and complete
asynchronous copies only when nothing else can run.
"""

# Operands are scalars, arrays, or lists of them, as an instruction has them.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownLambdaType=false

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.ptx.machine.compiled import CompiledEntry
from tilewright.ptx.machine.effects import Effects
from tilewright.ptx.machine.lanes import DONE, RUNNING, STOPPED, Lanes, distinct
from tilewright.ptx.machine.launch import DeviceMemory, MachineLaunch
from tilewright.ptx.machine.report import MachineReport, Stop
from tilewright.ptx.machine.segments import CodeSegment
from tilewright.ptx.opcodes.bit_vectors import SIGNED, unsigned
from tilewright.ptx.opcodes.rows import Bits

_NEVER = 1 << 30
_HELD = 0.25
"""Fraction of the warps that a schedule delays where they synchronise."""


class Batch(Effects):
    """Executes some CTAs in all schedules; ``Effects`` has what instructions do beyond registers."""

    def __init__(
        self,
        program: CompiledEntry,
        launch: MachineLaunch,
        parameters: Sequence[Any],
        memory: DeviceMemory,
        ctas: Bits,
        schedules: int,
        seed: int,
        report: MachineReport,
        most_steps: int,
    ):
        self.program, self.segments = program, program.segments
        lanes = Lanes(launch, ctas, schedules)
        super().__init__(program, launch, parameters, memory, lanes, report)
        self.registers: list[Bits] = [unsigned(program.types[r])(0) for r in program.slots]
        self.own = [False] * len(self.registers)  # whose array no other register shares
        self.defined: dict[int, Bits] = {program.slots[r]: np.zeros(lanes.count, np.bool_) for r in program.suspect}
        self.names = list(program.slots)
        self.at = np.zeros(lanes.count, np.int32)
        self.key = np.where(lanes.state == RUNNING, np.int32(0), np.int32(_NEVER)).astype(np.int32)
        self.held = np.zeros(lanes.count, np.bool_)
        self.waiting = np.zeros(lanes.count, np.bool_)
        self.blocked = np.zeros(lanes.count, np.bool_)
        self.random = np.random.default_rng((seed, int(ctas[0]) if len(ctas) else 0))
        self.most_steps = most_steps
        self.some_wait = False
        self.everybody = np.arange(lanes.count)

    # -- registers, called by compiled segments; ``x`` has the lanes, None for all

    def get(self, slot: int, x: Bits | None) -> Bits:
        """The values of a register; uniform ones come as scalars."""
        value = self.registers[slot]
        if x is None:
            self.own[slot] = False  # the caller may put the very array into another register
            return value
        return value if value.ndim == 0 else value[x]

    def put(self, slot: int, value: Bits, x: Bits | None) -> None:
        """Write a register."""
        if x is None:
            self.registers[slot], self.own[slot] = value, False
            return
        if not self.own[slot]:
            old = self.registers[slot]
            self.registers[slot] = np.full(self.lanes.count, old) if old.ndim == 0 else old.copy()
            self.own[slot] = True
        self.registers[slot][x] = value

    def _is_defined(self, slot: int, x: Bits | None) -> Bits:
        return self.defined[slot] if x is None else self.defined[slot][x]

    def taint(self, slot: int, sources: Sequence[int], x: Bits | None, guard: Bits | None) -> None:
        """A register becomes defined where all of ``sources`` are; where the guard doesn't hold, it stays what it
        was."""
        known: Any = np.bool_(True)
        for source in sources:
            known = known & self._is_defined(source, x)
        if guard is not None:
            known = np.where(guard, known, self._is_defined(slot, x))
        self.defined[slot][slice(None) if x is None else x] = known

    def taint_selected(self, slot: int, sources: Sequence[int], condition: Bits, x: Bits | None) -> None:
        """``selp``: only the chosen operand matters."""
        first, second, chosen = (np.bool_(True) if s < 0 else self._is_defined(s, x) for s in sources)
        self.defined[slot][slice(None) if x is None else x] = np.where(condition, first, second) & chosen

    def watch(self, slot: int, x: Bits | None, guard: Bits | None) -> None:
        """Report an undefined value that reaches memory, a barrier or a branch."""
        known = self._is_defined(slot, x)
        if guard is not None:
            known = known | ~np.broadcast_to(np.asarray(guard), known.shape)
        if not known.all():
            lanes = (self.everybody if x is None else x)[~known]
            lanes = lanes[self.lanes.thread[lanes] < self.lanes.threads]
            if len(lanes):
                self.complain("PTX014", lanes, f"register {self.names[slot]} that nothing wrote")
                self.defined[slot][lanes] = True

    @staticmethod
    def signed(value: Bits, bits: int) -> Bits:
        """Patterns as signed numbers."""
        return value.view(SIGNED[bits])

    def register(self, name: str, lanes: Bits) -> Bits:
        """The value of a register for some lanes."""
        return self.get(self.program.slots[name], lanes)

    def write(self, name: str, value: Bits | np.uint32, lanes: Bits) -> None:
        """A value that all of some lanes get."""
        slot = self.program.slots[name]
        self.put(slot, np.asarray(value), lanes)
        if slot in self.defined:
            self.defined[slot][lanes] = True

    # -- the schedule

    def execute(self) -> None:
        """Run to the end of all lanes."""
        if not self.segments:
            return
        while True:
            number = int(self.key.min())
            if number == _NEVER:
                if not self._go_on():
                    return
                self._look_again()
                continue
            if self.report.steps == self.most_steps:
                self.complain("PTX018", np.flatnonzero(self.key == number), f"more than {self.most_steps} steps")
                raise Stop
            self._step(number)
            self.report.steps += 1

    def _look_again(self) -> None:
        """Recompute which lanes may run, from the segment at which each of them waits."""
        ready = (self.lanes.state == RUNNING) & ~self.blocked & ~self.waiting & ~self.held
        self.key = np.where(ready, self.at, np.int32(_NEVER))

    def _go_on(self) -> bool:
        """Called when no lane may run: release delayed warps, re-check waits, or complete a copy; False when all lanes
        have ended."""
        if self.held.any():
            self.held[:] = False
            return True
        if self.mbarriers.woken:
            self.mbarriers.woken = False
            self.blocked[:] = False
            return True
        if self.land():
            self.blocked[:] = False
            return True
        if (self.lanes.state == DONE).all():
            self.finish()
            return False
        stuck = np.flatnonzero(self.lanes.state != DONE)
        segment = self.segments[int(self.at[stuck[0]])]
        self.current = self.program.entry.body[segment.first]
        self.complain("PTX017", stuck, f"{len(stuck)} threads wait for ever")
        raise Stop

    def _step(self, number: int) -> None:
        (x,) = (self.key == number).nonzero()
        if number == len(self.segments):  # behind a barrier that ends the body
            self._end(x)
            return
        segment = self.segments[number]
        self.report.executed.add(segment.first)
        if segment.together:
            x = self._guarded(segment, x)
            x = self._assembled(segment, x)
            if not len(x):
                return
        self.clocks.now += 1
        live = x if len(x) < self.lanes.count else None
        self.current = self.program.entry.body[segment.first]
        if segment.together == "barrier":
            self._barrier(segment, x)
            return
        assert segment.run is not None
        condition = segment.run(self, live)
        if segment.together == "wait":
            assert self.passed is not None
            self.key[x[~self.passed]] = _NEVER
            x = x[self.passed]
            if not len(x):
                return
            condition = None if condition is None or np.ndim(condition) == 0 else condition
        self._move(segment, x, condition)

    def _move(self, segment: CodeSegment, x: Bits, condition: Bits | None) -> None:
        """Send lanes to the next segment; delay some warps."""
        if segment.next >= 0:
            self.at[x] = self.key[x] = segment.next
        elif len(segment.edges) == 1 or segment.edges[0].case is not None:
            self._leave(segment, x)
        else:
            taken, other = segment.edges
            goes = np.broadcast_to(np.asarray(condition), x.shape)
            if taken.guard is not None and taken.guard.negated:
                goes = ~goes
            for edge, lanes in ((taken, x[goes]), (other, x[~goes])):
                self._arrive(edge.target, lanes)
        if self.some_wait:
            self._wake()
        if segment.together == "wait" and self.lanes.worlds > 1:
            self._hold(x)

    def _wake(self) -> None:
        """Re-check lanes that wait for other lanes of their warp, after lanes have moved."""
        self.some_wait = False
        (lanes,) = self.waiting.nonzero()
        self.waiting[lanes] = False
        lanes = lanes[~self.held[lanes] & ~self.blocked[lanes] & (self.lanes.state[lanes] == RUNNING)]
        self.key[lanes] = self.at[lanes]

    def _end(self, x: Bits) -> None:
        self.lanes.state[x] = DONE
        self.key[x] = _NEVER
        self.ended(x)
        self.released()

    def _leave(self, segment: CodeSegment, x: Bits) -> None:
        if segment.edges[0].case is None:
            self._arrive(segment.edges[0].target, x)
            return
        index = self.program.entry.body[segment.last - 1].operands[0]
        chosen = np.broadcast_to(self.get(self.program.slots[index.name], x), x.shape)  # type: ignore[union-attr]
        for edge in segment.edges:
            self._arrive(edge.target, x[chosen == edge.case])

    def _arrive(self, block: int, lanes: Bits) -> None:
        if block == self.program.flow.exit:
            self._end(lanes)
        else:
            self.at[lanes] = self.key[lanes] = self.program.heads[block]

    def released(self) -> None:
        """Barriers have released lanes."""
        for lanes in self.let_go:
            free = lanes[~self.held[lanes] & (self.lanes.state[lanes] == RUNNING)]
            self.key[free] = self.at[free]
        self.let_go.clear()

    def _hold(self, x: Bits) -> None:
        """In all schedules but the first, delay warps that synchronised for a random time."""
        warps = distinct(x // 32)
        warps = warps[self.lanes.world[warps * 32] > 0]
        chosen = warps[self.random.random(len(warps)) < _HELD]
        if len(chosen):
            lanes = (chosen[:, None] * 32 + np.arange(32)).reshape(-1)
            self.held[lanes] = True
            self.key[lanes] = _NEVER

    def _guarded(self, segment: CodeSegment, x: Bits) -> Bits:
        """Lanes whose guard is false continue without the others."""
        guard = self.program.entry.body[segment.first].guard
        if guard is None:
            return x
        holds = np.broadcast_to(np.asarray(self.register(guard.register, x)), x.shape) != guard.negated
        if not holds.all():
            self._move(segment, x[~holds], None)
        return x[holds]

    def _assembled(self, segment: CodeSegment, x: Bits) -> Bits:
        """The lanes of ``x`` whose partners have arrived too; the others wait."""
        if segment.together in ("barrier", "wait"):
            return x
        size = 128 if segment.together == "warpgroup" else 32
        if len(x) == self.lanes.count or len(distinct(x // size)) * size == len(x):
            return x
        here = np.zeros(self.lanes.count, np.bool_)
        here[x] = True
        wanted = self._members(segment, x)
        wanted &= self.lanes.state != DONE
        missing = (wanted & ~here).reshape(-1, size).any(1)
        if not missing.any():
            return x
        wait = missing[x // size]
        self.waiting[x[wait]] = True
        self.key[x[wait]] = _NEVER
        self.some_wait = True
        return x[~wait]

    def _members(self, segment: CodeSegment, x: Bits) -> Bits:
        """The lanes that must take part: those of the membermask, or whole warps."""
        mask = self.membermask(self.program.entry.body[segment.first], x)
        wanted = np.zeros(self.lanes.count, np.bool_)
        if mask is None:
            size = 128 if segment.together == "warpgroup" else 32
            wanted.reshape(-1, size)[distinct(x // size)] = True
            return wanted
        bits = np.zeros(self.lanes.count // 32, np.uint32)
        bits[x // 32] = mask
        return ((bits[:, None] >> np.arange(32, dtype=np.uint32)) & np.uint32(1)).astype(np.bool_).reshape(-1)

    def _barrier(self, segment: CodeSegment, x: Bits) -> None:
        """Lanes stop at a barrier; those of complete barriers continue."""
        self.lanes.state[x] = STOPPED
        self.key[x] = _NEVER
        if segment.next >= 0:
            self.at[x] = segment.next
        elif segment.edges[0].target == self.program.flow.exit:
            self.at[x] = len(self.segments)
        else:
            self.at[x] = self.program.heads[segment.edges[0].target]
        self.stop_at_barrier(self.program.entry.body[segment.first], x)
        self.released()
        if self.some_wait:
            self._wake()
        if self.lanes.worlds > 1:
            self._hold(x)
