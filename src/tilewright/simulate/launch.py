"""State that all CTAs of one run share."""

from __future__ import annotations

import random
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import TypeAlias

from tilewright.simulate.arguments import LaunchArguments
from tilewright.simulate.memory import GlobalMemory
from tilewright.simulate.symbols import Array, LaunchNumbers
from tilewright.transport.dialect import Kernel, Programs

Walk: TypeAlias = tuple[Programs, tuple[int, ...], int]


@dataclass
class SimulatedLaunch:
    """The arguments, global memory, and the counts of a run."""

    kernel: Kernel
    arguments: LaunchArguments
    memory: GlobalMemory
    grid_size: int
    order: random.Random
    printed: list[str] = field(default_factory=list[str])
    operations: int = 0
    programs: int = 0
    epochs: int = 0
    walks: dict[Walk, list[tuple[int, ...]]] = field(default_factory=dict[Walk, list[tuple[int, ...]]])
    """Coordinates of all programs that CTAs of one rank take, by the op, its extents and the rank."""
    _shared: dict[tuple[int, int], LaunchNumbers] = field(default_factory=dict[tuple[int, int], LaunchNumbers])
    _instances: dict[Hashable, int] = field(default_factory=dict[Hashable, int])

    def shared(self, threads: Array) -> LaunchNumbers:
        """The cache of values that all agents over these consecutive threads compute alike."""
        key = (int(threads[0]), len(threads))
        if key not in self._shared:
            self._shared[key] = LaunchNumbers.over(self.arguments.symbols)
        return self._shared[key]

    def new_epoch(self) -> int:
        """The number of the next interval between barriers, unique over the whole run."""
        self.epochs += 1
        return self.epochs

    def instance(self, key: Hashable, *, program: bool) -> int:
        """The number of one execution of a program, shared by all roles, or of a CTA outside of programs."""
        if key not in self._instances:
            self._instances[key] = len(self._instances)
            self.programs += program
        return self._instances[key]
