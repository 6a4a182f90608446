"""A state with its stages renamed to begin at the counters' own: states that differ by such a shift get one form."""

from __future__ import annotations

from typing import cast

from tilewright.verify.canonical_runs.interpreter import Interpreter
from tilewright.verify.canonical_runs.state import RunState, Stream
from tilewright.verify.canonical_runs.users import SPACES


class StageShift:
    """``numbers``: per barrier its number after the shift, ``laps``: by how many its phase is ahead."""

    def __init__(self, m: Interpreter, st: RunState):
        self.m, self.st = m, st
        self.shift = self._shifts()
        self.numbers, self.laps = self._shifted()

    def _shifts(self) -> dict[str, int]:
        """How far each counter has come, by the first agent that has it: the state is shifted back by as much."""
        m, names = self.m, {*self.m.symmetry.arrays.values(), *(v for v, _ in self.m.symmetry.buffers.values())}
        out: dict[str, int] = {}
        for agent, a in zip(m.agents, self.st.agents, strict=True):
            for name in names & a.env.keys() - out.keys():
                if name in agent.usage.period and not a.done:
                    out[name] = a.env[name]
        return out

    def _shifted(self) -> tuple[list[int], list[int]]:
        """Per barrier: its number after the shift, and by how many laps its phase is ahead."""
        m = self.m
        numbers, laps = list(range(len(self.st.bars))), [0] * len(self.st.bars)
        for barrier in m.protocol.barriers:
            shift = self.shift.get(m.symmetry.arrays.get(barrier.name, ""), 0)
            if not shift:
                continue
            full, part = divmod(shift, barrier.slots)
            for cta in range(m.protocol.ctas):
                first = cta * m.slots_per_cta + m.bar_base[barrier.name]
                for s in range(barrier.slots):
                    numbers[first + s] = first + (s - part) % barrier.slots
                    laps[first + s] = full + (s < part)
        return numbers, laps

    def stream(self, stream: Stream) -> Stream:
        """The stream's name after the shift."""
        return ("bar", self.numbers[cast(int, stream[1])]) if stream[0] == "bar" else stream

    def begin(self, start: int, kind: object) -> int:
        """A byte position after the shift."""
        for name, (counter, stage) in self.m.symmetry.buffers.items():
            b = self.m.buffers[name]
            if b.offset <= start < b.offset + b.size and SPACES[b.space] == kind:
                return b.offset + (start - b.offset - self.shift.get(counter, 0) * stage) % b.size
        return start
