"""Groups copied tiles into pipelines: stages of shared memory with a full and an empty barrier each.

Tiles loaded in one block whose first and last use are the same op of that block share a stage; a stream that only
accumulates takes all its tiles as one stage. A tile loaded outside of streams has a pipeline of one use per program.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from xdsl.ir import Block, Operation

from tilewright.base.dtypes import DType
from tilewright.schedule.hopper.operands import (
    AsyncOperand,
    ConvertedOperand,
    DotPlan,
    RegisterOperand,
    ThreadCopiedOperand,
    TmaOperand,
    is_conversion,
)
from tilewright.schedule.hopper.stage_vectors import StageVector
from tilewright.tile import dialect as tile
from tilewright.tile.queries import element, is_elementwise, tensor_name
from tilewright.transport.ops.base import SHARED_BASE_ALIGN_BYTES

STAGE_ALIGN_BYTES = SHARED_BASE_ALIGN_BYTES
"""Every tile of a stage begins at a multiple of the widest swizzle's period."""


@dataclass(frozen=True)
class StageTile:
    """One tile of a stage, ``offset`` bytes from its begin."""

    copied: TmaOperand | ThreadCopiedOperand
    offset: int


@dataclass(frozen=True)
class TilePipeline:
    """Stages of ``stage_bytes``; ``first`` and ``last`` are the ops of ``block`` that use it first and last.
    ``vectors`` have stages of their own, under the same barriers."""

    name: str
    block: Block
    slots: tuple[StageTile, ...]
    first: Operation
    last: Operation
    stages: int
    vectors: tuple[StageVector, ...] = ()
    users: tuple[Operation, ...] = ()
    """The ops of ``block`` that use it, in its order: ``first``, ``last`` and those between."""

    @property
    def stage_bytes(self) -> int:
        """Bytes from one stage to the next."""
        return sum(_aligned(s.copied.shared.size_bytes) for s in self.slots)

    @property
    def tx_bytes(self) -> int:
        """Bytes that tensor copies bring to one stage."""
        tiles = sum(s.copied.tx_bytes for s in self.slots if isinstance(s.copied, TmaOperand))
        return tiles + sum(vector.tx_bytes for vector in self.vectors)

    @property
    def in_stream(self) -> bool:
        """Whether a program fills it more than once: its tiles are loaded in a stream."""
        return isinstance(self.block.parent_op(), tile.StreamLoop)

    def with_stages(self, stages: int, programs: int = 1) -> TilePipeline:
        """The same with so many stages in a stream, and tiles of so many programs outside of streams."""
        return replace(self, stages=stages if self.in_stream else programs)

    @property
    def thread_copied(self) -> tuple[StageTile, ...]:
        """The tiles that threads copy."""
        return tuple(s for s in self.slots if isinstance(s.copied, ThreadCopiedOperand))

    @property
    def copied_vectors(self) -> tuple[StageVector, ...]:
        """The vectors that threads copy."""
        return tuple(vector for vector in self.vectors if vector.map is None)

    @property
    def cp_async_tiles(self) -> bool:
        """Whether some tiles are copied by cp.async."""
        return any(isinstance(s.copied, ThreadCopiedOperand) and s.copied.asynchronous for s in self.slots)

    @property
    def uses_cp_async(self) -> bool:
        """Whether tiles or vectors are copied by cp.async."""
        return bool(self.copied_vectors) or self.cp_async_tiles

    @property
    def uses_loads(self) -> bool:
        """Whether some tiles are copied by loads and stores."""
        return any(isinstance(s.copied, ThreadCopiedOperand) and not s.copied.asynchronous for s in self.slots)


def _aligned(size: int) -> int:
    return -(-size // STAGE_ALIGN_BYTES) * STAGE_ALIGN_BYTES


def copied_tiles(
    dots: Iterable[DotPlan],
) -> dict[tile.Load | tile.Gather, list[tuple[DotPlan, TmaOperand | ThreadCopiedOperand]]]:
    """The copied tiles with the products that use them."""
    found: dict[tile.Load | tile.Gather, list[tuple[DotPlan, TmaOperand | ThreadCopiedOperand]]] = {}
    for plan in dots:
        for operand in (plan.a, plan.b):
            copied = operand.source if isinstance(operand, ConvertedOperand) else operand
            if isinstance(copied, AsyncOperand):
                found.setdefault(copied.load, []).append((plan, copied))
    return found


def group(dots: Sequence[DotPlan], stages: int) -> tuple[TilePipeline, ...]:
    """The kernel's pipelines, ``stages`` deep in streams, one use per program outside."""
    groups: dict[tuple[Block, Operation, Operation, DType | None], list[TmaOperand | ThreadCopiedOperand]] = {}
    using: dict[tuple[Block, Operation, Operation, DType | None], set[Operation]] = {}
    for load, uses in copied_tiles(dots).items():
        block = load.parent_block()
        assert block is not None
        users = sorted((at_level(block, _user(plan)) for plan, _ in uses), key=block.get_operation_index)
        first, last = users[0], users[-1]
        stream = block.parent_op()
        if isinstance(stream, tile.StreamLoop) and accumulates(stream, dots):
            products = [at_level(block, _user(p)) for p in dots if stream.is_ancestor(p.dot)]
            first = min(products, key=block.get_operation_index)
            last = max(products, key=block.get_operation_index)
        kind = element(load.result) if _is_read_by_threads(uses[0][1]) else None  # stages have one dtype
        groups.setdefault((block, first, last, kind), []).append(uses[0][1])
        using.setdefault((block, first, last, kind), {first, last}).update(users)
    pipelines: list[TilePipeline] = []
    for (block, first, last, kind), tiles in groups.items():
        offset, slots = 0, list[StageTile]()
        for copied in tiles:
            slots.append(StageTile(copied, offset))
            offset += _aligned(copied.shared.size_bytes)
        name = "_".join(tensor_name(s.copied.load) for s in slots)
        while any(r.name == name for r in pipelines):
            name += "_"
        users = tuple(sorted(using[block, first, last, kind], key=block.get_operation_index))
        pipelines.append(TilePipeline(name, block, tuple(slots), first, last, 1, users=users).with_stages(stages))
    return tuple(pipelines)


def _is_read_by_threads(copied: TmaOperand | ThreadCopiedOperand) -> bool:
    return copied.landing is not None


def _user(plan: DotPlan) -> Operation:
    """The op at which a product is issued."""
    return plan.write if plan.write is not None else plan.dot


def at_level(block: Block, op: Operation) -> Operation:
    """The op of ``block`` that is ``op`` or contains it."""
    while op.parent_block() is not block:
        parent = op.parent_op()
        assert parent is not None
        op = parent
    return op


def accumulates(stream: tile.StreamLoop, dots: Sequence[DotPlan]) -> bool:
    """Whether the stream's body only adds products of copied tiles to fragments.

    Then a product may stay in flight while the next one is issued: nothing else uses the fragments.
    """
    own = {p.dot: p for p in dots if stream.is_ancestor(p.dot)}
    pattern: set[Operation] = set()
    for plan in own.values():
        if plan.write is None or isinstance(plan.a, RegisterOperand) or plan.dot.parent_op() is not stream:
            return False
        if not (isinstance(plan.a, AsyncOperand) and isinstance(plan.b, AsyncOperand)):
            return False
        add = plan.write.value.owner
        assert isinstance(add, tile.Binary)
        pattern |= {plan.dot, plan.write, add}
        pattern |= {o.owner for o in add.operands if isinstance(o.owner, tile.FragmentRead)}
    loads = set(copied_tiles(own.values()))
    written = [plan.write.frag for plan in own.values() if plan.write is not None]
    if len(set(written)) != len(written):
        return False
    for op in stream.body.block.ops:
        if op in pattern or isinstance(op, tile.Transpose | tile.Yield):
            continue
        if only_places(op, loads):
            continue
        if not (isinstance(op, tile.Load | tile.Gather) and op in loads and not other_uses(op)):
            return False
    return bool(own)


def only_places(op: Operation, copied: Collection[Operation]) -> bool:
    """Nothing but places of copied tiles, which nothing but products uses, is computed from what is loaded or
    computed."""
    if not (isinstance(op, tile.Load | tile.Gather) or is_elementwise(op)):
        return False
    users, pending = list[Operation](), [op]
    while pending:
        found = [use.operation for result in pending.pop().results for use in result.uses]
        users += found
        pending += [user for user in found if is_elementwise(user)]
    ends = [user for user in users if not is_elementwise(user)]
    return bool(ends) and all(isinstance(u, tile.Gather) and u in copied and not other_uses(u) for u in ends)


def other_uses(load: tile.Load | tile.Gather) -> bool:
    """Whether the copied tile is used by anything but products, views and a conversion."""
    pending = [load.results[0]]
    while pending:
        for use in pending.pop().uses:
            op = use.operation
            if isinstance(op, tile.Transpose):
                pending.append(op.results[0])
            elif not isinstance(op, tile.Dot) and not is_conversion(op):
                return True
    return False
