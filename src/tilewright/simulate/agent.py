"""An agent: a group of threads that execute one block in lockstep, with their symbols, register buffers and thread
ids."""

from __future__ import annotations

from collections.abc import Generator

from xdsl.ir import SSAValue

from tilewright.simulate.barriers import ArrivalBarrier, Waiting
from tilewright.simulate.cta import Cta
from tilewright.simulate.memory import Moment
from tilewright.simulate.registers import RegisterBuffer
from tilewright.simulate.symbols import Array, Symbols
from tilewright.transport.asynchronous import CTA_RANK

_ELECTED_LANE = 13


class Agent:
    """``threads`` are their ids as the code sees them, ``rows`` their row numbers within the cluster; ``group`` are all
    threads in lockstep with them, which are more where one thread of a warpgroup is elected."""

    def __init__(self, cta: Cta, threads: Array, rows: Array, *, parent: Agent | None = None, label: str = "the CTA"):
        self.cta, self.launch = cta, cta.launch
        self.threads, self.rows, self.label = threads, rows, label
        self.group = rows
        self.symbols = Symbols(threads, self.launch.shared(threads))
        self.buffers: dict[SSAValue, RegisterBuffer] = {}
        self.cluster_round = 0  # of the cluster barrier, arrived at and not yet waited for; 0: none
        self.barrier: tuple[object, int] = ("cta", cta.threads)
        if parent is None:
            self.symbols.bind_all(self.launch.arguments.symbols.items())
            self.symbols.bind(CTA_RANK, cta.rank)
            self.instance = self.launch.instance(("cta", cta.index), program=False)
            self.epoch = self.launch.new_epoch()
            return
        self.symbols.bind_all(parent.symbols.scalars.items())
        first = int(rows[0] - parent.rows[0])
        self.buffers = {value: buffer.rows(first, len(rows)) for value, buffer in parent.buffers.items()}
        self.barrier, self.instance, self.epoch = parent.barrier, parent.instance, parent.epoch

    def elected(self) -> Agent:
        """An agent of one thread of the first warp. It is not the first thread: kernels must not rely on which one
        ``elect.sync`` picks."""
        one = slice(_ELECTED_LANE, _ELECTED_LANE + 1)
        child = Agent(self.cta, self.threads[one], self.rows[one], parent=self, label=self.label)
        child.group = self.group
        return child

    def moment(self) -> Moment:
        """The current program, epoch and threads, as recorded with accesses to global memory."""
        return Moment(self.instance, self.epoch, self.rows)

    def count(self, registers: int) -> None:
        """Add to the run's count of thread-register operations."""
        self.launch.operations += registers * len(self.rows)

    def arrive(self, barrier: ArrivalBarrier) -> int:
        """Arrive at a barrier; the round that will complete it."""
        round_ = barrier.rounds + 1
        barrier.arrive(len(self.rows), self.cta.clocks.release(self.rows, self.group), self.launch.new_epoch)
        return round_

    def arrive_and_wait(self, barrier: ArrivalBarrier, what: str) -> Generator[Waiting]:
        """Arrive at a barrier, and wait for the others."""
        yield from self.await_round(barrier, self.arrive(barrier), what)

    def await_round(self, barrier: ArrivalBarrier, round_: int, what: str) -> Generator[Waiting]:
        """Wait for a round that was arrived at."""
        yield Waiting(
            lambda: barrier.rounds >= round_,
            lambda: f"{what} ({barrier.arrived} of {barrier.threads} threads are there)",
        )
        self.cta.clocks.acquire(self.rows, barrier.clocks[round_])
        self.epoch = barrier.epoch
