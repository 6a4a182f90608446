"""The configuration of a candidate schedule, and the interface of role lowering to its parts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from xdsl.ir import Operation, SSAValue

from tilewright.base.expr import Const, Expr
from tilewright.legal.tma import TensorMapPlan
from tilewright.schedule.facts import CallFacts
from tilewright.schedule.hopper.candidate import Candidate
from tilewright.schedule.hopper.chunked_epilogue import ChunkedStores
from tilewright.schedule.hopper.clusters import Cluster, Share
from tilewright.schedule.hopper.operands import ConvertedOperand, DotPlan, Operand
from tilewright.schedule.hopper.tile_pipelines import TilePipeline
from tilewright.schedule.placement import Placement
from tilewright.tile import dialect as tile


@dataclass(frozen=True)
class SoftwarePipeline:
    """One software-pipelined stream: the product issued in its own step, the one issued a step later, and the other ops
    on the latter's fragment, which stand at the end of the body."""

    stream: tile.StreamLoop
    early: DotPlan
    late: DotPlan
    apart: tuple[Operation, ...]

    @property
    def between(self) -> tuple[Operation, ...]:
        """The ops that run while the late product is in flight."""
        own = {self.early.dot, self.late.dot, self.late.write, *self.apart}
        return tuple(op for op in self.stream.body.block.ops if op not in own)


class SharedMemoryEpilogue(Protocol):
    """One store through shared memory, by tensor copies (``by_copies``) or by rows."""

    by_copies: ClassVar[bool]

    @property
    def note(self) -> str:
        """Why it is stored so, for the plan; empty where there was no choice."""
        ...

    def lower(self, lowering: RoleContext) -> None:
        """Emits the store into the current block."""
        ...


@dataclass(frozen=True)
class StepRange:
    """Steps ``begin .. end`` of a stream. ``whole``: they lie inside of its domain, and the conditions ``holds`` are
    true for all their elements."""

    begin: Expr
    end: Expr
    stream: tile.StreamLoop
    whole: bool = False
    holds: frozenset[SSAValue] = frozenset()


@dataclass(frozen=True)
class ScheduleConfiguration:
    """The choices made for one candidate schedule.

    ``shares`` are each CTA's part of the tiles copied in a cluster; ``stores`` go through shared memory. In each step
    of ``ordered`` streams the warpgroups that share a tile issue their products one after the other; in each step of
    ``in_flight`` streams several products stay in flight.
    """

    candidate: Candidate
    dots: tuple[DotPlan, ...]
    pipelines: tuple[TilePipeline, ...] = ()
    cluster: Cluster | None = None
    shares: Mapping[tile.Load | tile.Gather, Share] = field(default_factory=dict[tile.Load | tile.Gather, Share])
    stores: Mapping[tile.Store, SharedMemoryEpilogue] = field(default_factory=dict[tile.Store, SharedMemoryEpilogue])
    software_pipelines: Mapping[tile.StreamLoop, SoftwarePipeline] = field(
        default_factory=dict[tile.StreamLoop, SoftwarePipeline]
    )
    ordered: frozenset[tile.StreamLoop] = frozenset()
    in_flight: frozenset[tile.StreamLoop] = frozenset()

    @property
    def orders_products(self) -> bool:
        """Warpgroups that share a tile wait for each other before some products."""
        return self.candidate.warpgroups > 1 and bool(self.software_pipelines or self.ordered)

    @property
    def consumers(self) -> int:
        """Consumer warpgroups of a CTA."""
        return self.candidate.warpgroups * self.candidate.ping_pong

    @property
    def copies_out(self) -> bool:
        """Some stores go by tensor copies."""
        return any(store.by_copies for store in self.stores.values())


class RoleContext(ChunkedStores, ABC):
    """The lowering of a kernel with roles, as seen by the modules that lower stores, streams, products and bounds."""

    def __init__(
        self, kernel: tile.Kernel, placement: Placement, facts: CallFacts, configuration: ScheduleConfiguration
    ):
        self.copied = {s.copied.load: (pipeline, s) for pipeline in configuration.pipelines for s in pipeline.slots}
        super().__init__(kernel, placement, facts, self.copied)
        self.configuration = configuration
        self.declarations: list[Operation] = []
        self.producing = False
        self.converted_tiles: dict[ConvertedOperand, SSAValue] = {}
        """Shared memory of converted operands."""
        self.panels: SSAValue | None = None
        """Shared memory of the epilogue tiles, once it is declared."""
        self.number: Expr = Const(0)
        """The executing warpgroup's number among all consumers."""

    @property
    @abstractmethod
    def thread_copied(self) -> bool:
        """Whether all of the producer's threads copy."""

    @abstractmethod
    def require(self, condition: Expr) -> None:
        """Restricts the kernel to launches in which ``condition`` holds."""

    @abstractmethod
    def tensor_map(self, op: tile.Load | tile.Gather | tile.Store, plan: TensorMapPlan) -> SSAValue:
        """The tensor map through which an access copies boxes of one size."""

    @abstractmethod
    def fill(self, pipeline: TilePipeline, at: Mapping[str, Expr] = ...) -> None:
        """Emits the producer's side of one use, for the tiles where counters have the values ``at``."""

    @abstractmethod
    def await_full(self, pipeline: TilePipeline) -> None:
        """Emits the consumers' wait for the tiles of one use."""

    @abstractmethod
    def release(self, pipeline: TilePipeline, use: Expr) -> None:
        """Emits the consumers' release of the stage of ``use``."""

    @abstractmethod
    def end_use(self, pipeline: TilePipeline) -> None:
        """Emits the release after the last product of a program that reads the pipeline's tiles."""

    @abstractmethod
    def read_before_drain(self, op: Operation) -> list[TilePipeline]:
        """The pipelines around a software-pipelined stream that only its early product reads."""

    @abstractmethod
    def accumulator(self, plan: DotPlan) -> SSAValue:
        """The registers of a product's result."""

    @abstractmethod
    def product(self, plan: DotPlan) -> None:
        """Emits one product and waits for it."""

    @abstractmethod
    def multiply(self, plan: DotPlan, buffer: SSAValue, left: tuple[SSAValue, Expr] | None = None) -> None:
        """Emits the instructions of a product, in the open wgmma group."""

    @abstractmethod
    def shared_operand(self, operand: Operand, dot: tile.Dot) -> tuple[SSAValue, Expr]:
        """Buffer and byte offset of an operand's tile."""

    @abstractmethod
    def step_ranges(self, op: tile.StreamLoop, first: int, *, split: bool) -> Sequence[StepRange]:
        """The steps of a stream from ``first`` on: those that need no guards, then the rest."""

    @abstractmethod
    def within_range(self, part: StepRange) -> AbstractContextManager[None]:
        """A context in which the facts about every step of a part hold."""
