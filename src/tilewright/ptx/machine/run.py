"""Runs a launch batch by batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.ptx.machine.batch import Batch
from tilewright.ptx.machine.compiled import CompiledEntry
from tilewright.ptx.machine.launch import DeviceMemory, MachineLaunch
from tilewright.ptx.machine.report import MachineReport, Stop
from tilewright.ptx.syntax import Module

MOST_LANES = 16384
"""Lanes of a batch; larger batches do not fit the CPU's cache."""
MOST_STEPS = 2_000_000


class ExecutableEntry(CompiledEntry):
    """An entry compiled once, to be launched any number of times."""

    def launch(
        self,
        launch: MachineLaunch,
        parameters: Sequence[Any],
        memory: DeviceMemory,
        schedules: int = 1,
        seed: int = 0,
        most_steps: int = MOST_STEPS,
    ) -> MachineReport:
        """Execute a launch on ``memory`` in place, under ``schedules`` schedules at once; the first is in lockstep.

        ``parameters``: integers, floats, NumPy scalars, bytes, or ``TensorMap`` values, one each.
        """
        report = MachineReport()
        memory.open(schedules)
        per_cta = -(-launch.threads // 32) * 32 * schedules * launch.cluster_ctas
        clusters = max(1, MOST_LANES // per_cta)
        step = clusters * launch.cluster_ctas
        with np.errstate(all="ignore"):
            try:
                for first in range(0, launch.ctas, step):
                    ctas = np.arange(first, min(first + step, launch.ctas))
                    Batch(self, launch, parameters, memory, ctas, schedules, seed, report, most_steps).execute()
            except Stop:
                pass
        report.differing = memory.close()
        return report


def run(
    module: Module,
    launch: MachineLaunch,
    parameters: Sequence[Any],
    memory: DeviceMemory,
    *,
    entry: str = "",
    schedules: int = 1,
    seed: int = 0,
) -> MachineReport:
    """Compile and execute one launch of an entry."""
    return ExecutableEntry(module, entry).launch(launch, parameters, memory, schedules, seed)
