"""The PTX machine: executes an entry on NumPy arrays, all threads of many CTAs at once, under adversarial schedules.

    memory = DeviceMemory()
    x = memory.add("x", array)
    report = run(module.entry("k"), MachineLaunch((8, 1, 1), (128, 1, 1)), [x, np.int32(1000)], memory)

``docs/ptx.md`` states what it models and what it does not. It shares nothing with the simulator of Transport IR.
"""

from __future__ import annotations

from tilewright.ptx.machine.launch import DeviceMemory, MachineLaunch
from tilewright.ptx.machine.report import MachineFault, MachineReport
from tilewright.ptx.machine.run import run
from tilewright.ptx.machine.tensormap import DecodedTensorMap

__all__ = ["DecodedTensorMap", "DeviceMemory", "MachineFault", "MachineLaunch", "MachineReport", "run"]
