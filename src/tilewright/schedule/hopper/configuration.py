"""What a candidate decides before a kernel is lowered, and the lowering under it as its parts see it."""

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
from tilewright.schedule.hopper.clusters import Cluster, Share
from tilewright.schedule.hopper.operands import ConvertedOperand, DotPlan, Operand
from tilewright.schedule.hopper.tile_pipelines import TilePipeline
from tilewright.schedule.lower import Lowering
from tilewright.schedule.map_builder import Buffered
from tilewright.schedule.plan import Placement
from tilewright.tile import dialect as tile


@dataclass(frozen=True)
class SoftwarePipeline:
    """One software-pipelined stream: the product issued in its own step, the one issued a step later, and the other ops
    on the latter's fragment, which stand at the end of the body."""

    stream: tile.Stream
    early: DotPlan
    late: DotPlan
    apart: tuple[Operation, ...]

    @property
    def between(self) -> tuple[Operation, ...]:
        """What runs while the late product is under way."""
        own = {self.early.dot, self.late.dot, self.late.write, *self.apart}
        return tuple(op for op in self.stream.body.block.ops if op not in own)


class SharedMemoryEpilogue(Protocol):
    """One store through shared memory, by tensor copies (``by_copies``) or by rows."""

    by_copies: ClassVar[bool]

    def lower(self, lowering: RoleContext) -> None:
        """Emits the store into the current block."""
        ...


@dataclass(frozen=True)
class StepRange:
    """Steps ``begin .. end`` of a stream. ``whole``: they lie inside of its domain, and the conditions ``holds`` are
    true for all their elements."""

    begin: Expr
    end: Expr
    stream: tile.Stream
    whole: bool = False
    holds: frozenset[SSAValue] = frozenset()


@dataclass(frozen=True)
class ScheduleConfiguration:
    """The choices of one candidate schedule.

    ``warpgroups`` share a tile; ``ping_pong`` such sets alternate over a CTA's tiles. ``shares`` are each CTA's part of
    the tiles copied in a cluster. ``stores`` go through shared memory; with ``whole_stores`` tensor copies store for
    all extents (what that needs is asked at launch); with ``whole_steps`` steps of software-pipelined streams
    lie inside of their domain (asked at launch too); with ``few_lengths`` programs have few of them; with ``one_row``
    there is one row of tiles, with ``one_wave`` all programs run at one time. In each step of ``ordered`` the
    warpgroups that share a tile issue their products in turn; in each step of ``in_flight`` the products stay in flight
    side by side.
    """

    dots: tuple[DotPlan, ...]
    pipelines: tuple[TilePipeline, ...]
    warpgroups: int
    ping_pong: int = 1
    cluster: Cluster | None = None
    shares: Mapping[tile.Load | tile.Gather, Share] = field(default_factory=dict[tile.Load | tile.Gather, Share])
    stores: Mapping[tile.Store, SharedMemoryEpilogue] = field(default_factory=dict[tile.Store, SharedMemoryEpilogue])
    whole_stores: bool = False
    software_pipelines: Mapping[tile.Stream, SoftwarePipeline] = field(
        default_factory=dict[tile.Stream, SoftwarePipeline]
    )
    whole_steps: bool = False
    few_lengths: bool = False
    one_row: bool = False
    one_wave: bool = False
    ordered: frozenset[tile.Stream] = frozenset()
    in_flight: frozenset[tile.Stream] = frozenset()

    @property
    def orders_products(self) -> bool:
        """Warpgroups that share a tile wait for each other before some products."""
        return self.warpgroups > 1 and bool(self.software_pipelines or self.ordered)

    @property
    def consumers(self) -> int:
        """Consumer warpgroups of a CTA."""
        return self.warpgroups * self.ping_pong

    @property
    def copies_out(self) -> bool:
        """Some stores go by tensor copies."""
        return any(store.by_copies for store in self.stores.values())


class RoleContext(Lowering, ABC):
    """The lowering of a kernel with roles, as what lowers single stores, streams, products and bounds uses it."""

    def __init__(
        self, kernel: tile.Kernel, placement: Placement, facts: CallFacts, configuration: ScheduleConfiguration
    ):
        super().__init__(kernel, placement, facts)
        self.configuration = configuration
        self.declarations: list[Operation] = []
        self.producing = False
        self.converted_tiles: dict[ConvertedOperand, SSAValue] = {}
        """Shared memory of converted operands."""
        self.panels: SSAValue | None = None
        """Shared memory of the epilogue tiles, once there is any."""
        self.number: Expr = Const(0)
        """The executing warpgroup's number among all consumers."""

    @property
    @abstractmethod
    def thread_copied(self) -> bool:
        """The producer's threads copy tiles, all of them."""

    @abstractmethod
    def require(self, condition: Expr) -> None:
        """The kernel runs only where ``condition`` holds."""

    @abstractmethod
    def prepare(self, op: tile.Store | tile.AtomicReduce) -> None:
        """Computes what a store needs once for all its chunks."""

    @abstractmethod
    def chunk(
        self, value: SSAValue, op: tile.Store | tile.AtomicReduce, first: int, count: int, *, alone: bool = False
    ) -> tuple[SSAValue, int]:
        """A buffer that holds registers ``first .. first + count`` of a value, and where in it they begin."""

    @abstractmethod
    def fetch_late(self, op: tile.Store | tile.AtomicReduce, first: int, count: int) -> None:
        """Issues the loads that only this store needs for such a chunk, which is computed later."""

    @abstractmethod
    def computed_chunk(
        self,
        op: tile.Store | tile.AtomicReduce,
        buffers: Mapping[SSAValue, Buffered],
        first: int,
        count: int,
        moved: Expr,
    ) -> SSAValue:
        """A new buffer of registers ``first .. first + count`` of the stored value, computed from buffers that have
        ``moved`` down by so many registers."""

    @abstractmethod
    def load_part(self, load: tile.Load, op: tile.Store | tile.AtomicReduce, buffer: SSAValue, begin: Expr) -> None:
        """Loads registers from ``begin`` on of a load that only this store needs into ``buffer``."""

    @abstractmethod
    def late_loads_of(self, op: tile.Store) -> Sequence[tile.Load]:
        """Loads that only this store needs."""

    @abstractmethod
    def tensor_map(self, op: tile.Load | tile.Gather | tile.Store, plan: TensorMapPlan) -> SSAValue:
        """The tensor map through which an access copies boxes of one size."""

    @abstractmethod
    def fill(self, pipeline: TilePipeline, at: Mapping[str, Expr] = ...) -> None:
        """The producer's part of one use, of the tiles where counters have the values ``at``."""

    @abstractmethod
    def await_full(self, pipeline: TilePipeline) -> None:
        """The consumers' wait for the tiles of one use."""

    @abstractmethod
    def release(self, pipeline: TilePipeline, use: Expr) -> None:
        """The consumers give the stage of ``use`` back."""

    @abstractmethod
    def end_use(self, pipeline: TilePipeline) -> None:
        """The last product of a program that reads the pipeline's tiles has ended: the stage is given back."""

    @abstractmethod
    def read_before_drain(self, op: Operation) -> list[TilePipeline]:
        """The pipelines around a software-pipelined stream that only its early product reads."""

    @abstractmethod
    def accumulator(self, plan: DotPlan) -> SSAValue:
        """Registers that a product goes to."""

    @abstractmethod
    def product(self, plan: DotPlan) -> None:
        """One product, waited for at once."""

    @abstractmethod
    def multiply(self, plan: DotPlan, buffer: SSAValue, left: tuple[SSAValue, Expr] | None = None) -> None:
        """The instructions of a product, in the open group."""

    @abstractmethod
    def shared_operand(self, operand: Operand, dot: tile.Dot) -> tuple[SSAValue, Expr]:
        """Buffer and byte offset of an operand's tile."""

    @abstractmethod
    def step_ranges(self, op: tile.Stream, first: int, *, split: bool) -> Sequence[StepRange]:
        """The steps of a stream from ``first`` on: those that need no guards, then the rest."""

    @abstractmethod
    def within_range(self, part: StepRange) -> AbstractContextManager[None]:
        """What is known of every step of a part holds inside."""
