"""The PTX machine: executes an entry on NumPy arrays, all threads of many CTAs at once, under adversarial schedules.

    memory = Memory()
    x = memory.add("x", array)
    report = run(module.entry("k"), Launch((8, 1, 1), (128, 1, 1)), [x, np.int32(1000)], memory)

``docs/ptx.md`` says what it models and what it doesn't. It shares nothing with the simulator of Transport IR.
"""

from __future__ import annotations

from tilewright.ptx.machine.launch import Launch, Memory
from tilewright.ptx.machine.report import Fault, Report
from tilewright.ptx.machine.run import run
from tilewright.ptx.machine.tensormap import TensorMap

__all__ = ["Fault", "Launch", "Memory", "Report", "TensorMap", "run"]
