"""State of a batch of CTAs besides registers, which the handlers of instructions read and change."""

# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false, reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.ptx.machine.clocks import Clocks
from tilewright.ptx.machine.compiled import CompiledEntry
from tilewright.ptx.machine.lanes import Lanes, grouped
from tilewright.ptx.machine.launch import DeviceMemory, MachineLaunch
from tilewright.ptx.machine.mbarriers import MbarrierTable
from tilewright.ptx.machine.report import MOST, MachineFault, MachineReport, Stop
from tilewright.ptx.machine.shared import RANK_SHIFT, SharedWindow
from tilewright.ptx.machine.spaces import Spaces
from tilewright.ptx.opcodes.rows import Bits
from tilewright.ptx.syntax import Instruction

WINDOW_OFFSET = np.uint64((1 << RANK_SHIFT) - 1)
"""The bits of a shared address that are the offset in its CTA's window."""


class State:
    """Memory, barriers, arrivals, clocks of a batch, and the faults reported so far."""

    def __init__(
        self,
        program: CompiledEntry,
        launch: MachineLaunch,
        parameters: Sequence[Any],
        memory: DeviceMemory,
        lanes: Lanes,
        report: MachineReport,
    ):
        self.entry, self.launch, self.lanes, self.report = program.entry, launch, lanes, report
        self.current: Instruction = self.entry.body[0] if self.entry.body else Instruction(0, "", (), (), None, None, 0)
        self.clocks = Clocks(lanes, program.scratch)
        self.mbarriers = MbarrierTable(self.clocks)
        given = (launch, parameters, memory, lanes, self.clocks, self.complain, program.scratch)
        self.spaces = Spaces(program.module, self.entry, *given)
        self.shared: SharedWindow = self.spaces.shared
        self.passed: Bits | None = None
        self.blocked: Bits
        self.arrived: dict[tuple[int, int], list[Bits]] = {}
        self.wanted: dict[tuple[int, int], int] = {}
        self.reached: dict[tuple[int, int], Instruction] = {}
        """The barriers at which threads wait."""
        self.cluster_arrived: dict[int, list[Bits]] = {}
        self.let_go: list[Bits] = []
        self.said: set[tuple[str, int]] = set()
        self.lane_numbers = np.arange(lanes.count)

    def complain(self, code: str, lanes: Bits, detail: str) -> None:
        """Record a fault of the current instruction, once for each code."""
        key = (code, self.current.index)
        if key in self.said:
            return
        self.said.add(key)
        lane = int(np.atleast_1d(lanes)[0])
        place = (int(self.lanes.cta[lane]), int(self.lanes.thread[lane]), int(self.lanes.world[lane]))
        self.report.faults.append(MachineFault(code, self.current, *place, detail))
        if len(self.report.faults) >= MOST:
            raise Stop

    def lacking(self, instruction: Instruction, lanes: Bits) -> list[Bits]:
        """Report that the machine can't execute an instruction."""
        self.complain("PTX015", lanes, instruction.name)
        raise Stop

    def keys(self, lanes: Bits, address: Bits) -> list[tuple[tuple[int, int], Bits]]:
        """((instance, offset), where in ``lanes``) for each mbarrier that lanes name."""
        address = np.broadcast_to(window_address(address), lanes.shape)
        instance = self.lanes.mate(self.lanes.instance[lanes], (address >> np.uint64(RANK_SHIFT)).astype(np.int64))
        joined = instance << 24 | (address & WINDOW_OFFSET).astype(np.int64)
        return [((k >> 24, k & (1 << 24) - 1), where) for k, where in grouped(joined)]


def wide(value: Any) -> Bits:
    """Patterns of an operand in 64 bits."""
    return np.asarray(value).astype(np.uint64)


def window_address(address: Any) -> Bits:
    """A shared address; generic addresses are converted to the shared window."""
    return wide(address) & np.uint64(0xFFFFFFFF)
