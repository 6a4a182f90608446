"""A state turned back by as much as its rings have come: states that differ by a turn get one form (``rotation``)."""

from __future__ import annotations

from typing import cast

from tilewright.contract.runs.machine import Machine
from tilewright.contract.runs.state import State, Stream
from tilewright.contract.runs.users import SPACES


class RingShift:
    """``numbers``: per barrier its number after turning back, ``laps``: by how many its phase is ahead."""

    def __init__(self, m: Machine, st: State):
        self.m, self.st = m, st
        self.shift = self._shifts()
        self.numbers, self.laps = self._turned()

    def _shifts(self) -> dict[str, int]:
        """How far each ring counter has come, by the first agent that has it: the state is turned back by as much."""
        m, names = self.m, {*self.m.rings.arrays.values(), *(v for v, _ in self.m.rings.buffers.values())}
        out: dict[str, int] = {}
        for agent, a in zip(m.agents, self.st.agents, strict=True):
            for name in names & a.env.keys() - out.keys():
                if name in agent.usage.period and not a.done:
                    out[name] = a.env[name]
        return out

    def _turned(self) -> tuple[list[int], list[int]]:
        """Per barrier: its number after turning back, and by how many laps its phase is ahead."""
        m = self.m
        numbers, laps = list(range(len(self.st.bars))), [0] * len(self.st.bars)
        for barrier in m.protocol.barriers:
            shift = self.shift.get(m.rings.arrays.get(barrier.name, ""), 0)
            if not shift:
                continue
            full, part = divmod(shift, barrier.slots)
            for cta in range(m.protocol.cluster):
                first = cta * m.slots_per_cta + m.bar_base[barrier.name]
                for s in range(barrier.slots):
                    numbers[first + s] = first + (s - part) % barrier.slots
                    laps[first + s] = full + (s < part)
        return numbers, laps

    def stream(self, stream: Stream) -> Stream:
        """The stream's name after turning."""
        return ("bar", self.numbers[cast(int, stream[1])]) if stream[0] == "bar" else stream

    def begin(self, start: int, kind: object) -> int:
        """A byte position after turning."""
        for name, (counter, stage) in self.m.rings.buffers.items():
            b = self.m.buffers[name]
            if b.offset <= start < b.offset + b.size and SPACES[b.space] == kind:
                return b.offset + (start - b.offset - self.shift.get(counter, 0) * stage) % b.size
        return start
