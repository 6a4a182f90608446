"""Times several schedules on the caller's tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from statistics import median

from tilewright.artifact.schema import Artifact
from tilewright.lang.schedule import Schedule
from tilewright.runtime.arguments import TensorDescription
from tilewright.runtime.driver import LEGACY_STREAM, Driver, process_driver
from tilewright.runtime.program import Program, device_of

ROUNDS = 11
FLUSH_BYTES = 1 << 28
"""Written before each launch: more than an L2 cache holds, so that none finds what the one before left there, and long
enough that the launch is queued before it begins."""
_SPREAD = 0.01
"""How much faster another schedule must be than the chosen one: medians vary as much from run to run."""


@dataclass(frozen=True)
class TimedSchedule:
    """A schedule, the empty one for what the prices choose, with the median device time of a launch in microseconds;
    None where it was refused, and why."""

    schedule: Schedule
    microseconds: float | None
    refused: str = ""

    def __str__(self) -> str:
        name = str(self.schedule) or "chosen by the cost model"
        return f"{name}: {self.refused}" if self.microseconds is None else f"{self.microseconds:9.2f} us  {name}"


@dataclass(frozen=True)
class Tuning:
    """The schedules timed by ``Kernel.tune``, quickest first, and those refused."""

    rows: tuple[TimedSchedule, ...]

    @property
    def schedule(self) -> Schedule:
        """The schedule that calls with such tensors use from now on; ``compile(schedule=...)`` pins it ahead of
        time."""
        return self.rows[0].schedule

    def __str__(self) -> str:
        return "\n".join(map(str, self.rows))


def tune(
    programs: Sequence[tuple[Schedule, Program]],
    refused: Sequence[tuple[Schedule, str]],
    values: Sequence[object],
    described: Mapping[str, TensorDescription],
    interface: Artifact,
) -> tuple[Tuning, Program]:
    """Times programs of one kernel on its arguments; the ranking, and the quickest."""
    driver = process_driver()
    written = [described[t.name] for t in interface.tensors if t.access.writes]
    launches = [partial(program.launch, values, LEGACY_STREAM) for _, program in programs]
    times = timed(launches, written, driver, device_of(described, driver))
    rows = [TimedSchedule(schedule, us) for (schedule, _), us in zip(programs, times, strict=True)]
    tuning = ranked([*rows, *(TimedSchedule(schedule, None, why) for schedule, why in refused)])
    return tuning, next(program for schedule, program in programs if schedule == tuning.schedule)


def ranked(rows: Sequence[TimedSchedule]) -> Tuning:
    """Quickest first; the first of ``rows``, what is chosen without timing, before others that are as quick."""
    chosen = rows[0]

    def order(row: TimedSchedule) -> float:
        if row.microseconds is None:
            return inf
        return row.microseconds * (1 - _SPREAD * (row is chosen))

    return Tuning(tuple(sorted(rows, key=order)))


def timed(
    launches: Sequence[Callable[[], None]], written: Sequence[TensorDescription], driver: Driver, device: int
) -> list[float]:
    """Median microseconds of each launch, which are queued on the legacy stream and write these tensors.

    What the tensors hold is put back at the end. Launches take turns, in another order each round.
    """
    context = driver.context(device)
    driver.push_context(context)
    blocks: list[tuple[int, int, int]] = []
    flush = 0
    try:
        driver.synchronize(context)
        for tensor in written:
            begin, size = _bytes_of(tensor)
            if size:
                blocks.append((begin, driver.allocate(size, LEGACY_STREAM), size))
                driver.copy(blocks[-1][1], begin, size, LEGACY_STREAM)
        flush = driver.allocate(FLUSH_BYTES, LEGACY_STREAM)
        times: list[list[float]] = [[] for _ in launches]
        for launch in launches:
            launch()
        for turn in range(ROUNDS):
            for place in range(len(launches)):
                number = (place + turn) % len(launches)
                driver.fill(flush, turn, 4, FLUSH_BYTES // 4, LEGACY_STREAM)
                times[number].append(driver.seconds(launches[number]) * 1e6)
        return list(map(median, times))
    finally:
        for begin, kept, size in blocks:
            driver.copy(begin, kept, size, LEGACY_STREAM)
        for address in (*(kept for _, kept, _ in blocks), *([flush] if flush else [])):
            driver.free(address, LEGACY_STREAM)
        driver.synchronize(context)
        driver.pop_context()


def _bytes_of(tensor: TensorDescription) -> tuple[int, int]:
    """The address of a tensor's first byte in memory, and how many there are to its last."""
    if 0 in tensor.shape:
        return tensor.address, 0
    ends = [(extent - 1) * stride for extent, stride in zip(tensor.shape, tensor.strides, strict=True)]
    first, last = sum(min(end, 0) for end in ends), sum(max(end, 0) for end in ends)
    return tensor.address + first * tensor.dtype.bytes, (last - first + 1) * tensor.dtype.bytes


def layouts_of(described: Mapping[str, TensorDescription]) -> tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]:
    """Shapes and strides: the tensors for which a schedule was timed."""
    return tuple((tensor.shape, tensor.strides) for tensor in described.values())
