"""A view of a kernel with roles for reports: a timed run of its protocol, and the layout of its shared memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tilewright.hw.tensormap import Swizzle
from tilewright.jit.critical import critical_cycles
from tilewright.protocol.cycle import CriticalCycle
from tilewright.protocol.model import Protocol
from tilewright.protocol.timed import TimedRun, run_timed
from tilewright.tile.ops import tensor_type
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t
from tilewright.transport.ops.base import SharedType
from tilewright.transport.protocol import PROGRAM_COUNT, has_roles, protocols_of

PROGRAMS, TRIPS = 2, 6
"""Shown in the picture: enough to see a ring fill, run and hand over to the next tile."""


@dataclass(frozen=True)
class SharedBlock:
    """Bytes [begin, end) of dynamic shared memory. ``slot`` is the stage of a ring that they are; ``how`` says what
    arranges them, e.g. a tensor copy's box and swizzle."""

    name: str
    begin: int
    end: int
    slot: int | None = None
    how: str = ""


@dataclass(frozen=True)
class PipelineTimeline:
    """The protocol, one timed run of it for ``sizes`` (its symbols with their values), what bounds its loops (or why
    that is not known), and shared memory."""

    protocol: Protocol
    sizes: tuple[tuple[str, int], ...]
    run: TimedRun
    critical: tuple[CriticalCycle, ...] | str
    blocks: tuple[SharedBlock, ...]
    shared_bytes: int


def pipeline_of(kernel: t.Kernel) -> PipelineTimeline | None:
    """The pipeline of a lowered kernel, branches on extents taken as for whole tiles; None without roles."""
    if not has_roles(kernel):
        return None
    protocol = protocols_of(kernel)[0]
    sizes: dict[str, int] = {}
    for s in protocol.symbols:
        wanted = PROGRAMS if s.name == PROGRAM_COUNT else TRIPS
        wanted = max(s.least, wanted - (wanted - s.least) % s.multiple_of)
        sizes[s.name] = wanted if s.most is None else min(wanted, s.most)
    blocks = tuple(sorted(_blocks(kernel), key=lambda b: (b.begin, b.end, b.name)))
    total = max([kernel.shared_bytes.data if kernel.shared_bytes is not None else 0, *(b.end for b in blocks)])
    run, critical = run_timed(protocol, sizes), critical_cycles(protocol)
    return PipelineTimeline(protocol, tuple(sizes.items()), run, critical, blocks, total)


def _blocks(kernel: t.Kernel) -> Iterator[SharedBlock]:
    """The destinations of copies, stage by stage; other buffers and barriers whole."""
    landed: set[str] = set()
    for op in kernel.walk():
        if isinstance(op, a.TmaLoad) and isinstance(op.shared.owner, t.Shared) and op.shared.owner.offset is not None:
            landed.add(op.shared.owner.hint.data)
            yield from _landings(op, op.shared.owner.hint.data, op.shared.owner.offset.data)
    for op in kernel.body.block.ops:
        match op:
            case t.Shared() if op.offset is not None and op.hint.data not in landed:
                kind = op.buffer.type
                assert isinstance(kind, SharedType)
                size = kind.count.data * kind.dtype.data.bytes
                yield SharedBlock(op.hint.data, op.offset.data, op.offset.data + size)
            case a.Mbarriers():
                slots = a.mbarriers_of(op.bars).slots.data
                begin = op.offset.data
                yield SharedBlock(op.hint.data, begin, begin + 8 * slots, None, f"{slots} mbarriers")
            case _:
                pass


def _landings(op: a.TmaLoad, buffer: str, base: int) -> Iterator[SharedBlock]:
    """One block for each slot of the ring that the copy's barrier belongs to."""
    assert isinstance(op.map.owner, a.TensorMap)
    numbers = op.map.owner.numbers
    tensor = tensor_type(op.map.owner.tensor).tensor_name.data
    box = " x ".join(map(str, reversed(numbers.box)))
    how = f"box {box} of {tensor}" + (f", {_SWIZZLES[numbers.swizzle]}" if numbers.swizzle in _SWIZZLES else "")
    slots = a.mbarriers_of(op.bars).slots.data
    symbols = op.offset.expr.symbols | op.index.expr.symbols
    for turn in range(slots):
        env = dict.fromkeys(symbols, 0) | dict.fromkeys(op.index.expr.symbols, turn)
        begin = base + int(op.offset.expr.evaluate(env))
        yield SharedBlock(f"{buffer}: {tensor}", begin, begin + op.box_bytes.data, turn if slots > 1 else None, how)


_SWIZZLES = {Swizzle.B32: "32-byte swizzle", Swizzle.B64: "64-byte swizzle", Swizzle.B128: "128-byte swizzle"}
