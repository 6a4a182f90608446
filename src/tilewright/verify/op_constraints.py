"""What an op may be given at all, and what a target has: rules that no order of steps can make good.

They are asked of each op where a canonical run executes it, with the values of its expressions there, and of each op of
the event graph, where what is not a constant is left open. The model checker states them for itself.

    limits      named barriers, shared memory, tensor-memory columns, threads
    operands    which CTA's barriers and bytes an instruction reaches, which state spaces, how they are aligned
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

from tilewright.base.expr import Expr, interval
from tilewright.hw.rules.tcgen05 import TMEM_COLUMNS
from tilewright.hw.spaces import Space
from tilewright.hw.target import MAX_CTA_THREADS, MBARRIER_BYTES, NAMED_BARRIERS, TARGETS, InstructionSet
from tilewright.hw.tensormap import MAP_ALIGN_BYTES, MAP_BYTES, PATTERNS
from tilewright.protocol import effects, ops
from tilewright.protocol.effects import Await, Proxy, Signal, Sync, TensorLife
from tilewright.protocol.model import Buffer, Protocol, steps
from tilewright.protocol.ops.base import MEMORY
from tilewright.verify.rules import Rule

MIN_COLUMNS = 32
BULK_BYTES = 16
"""Size and alignment of bulk copies without a tensor map (PTX ISA 9.1, 9.7.9.25.4.1)."""

_MAPS = ("map", "tensormap")
"""Operands that are tensor maps."""

REPEATS = {p.span_bytes: p.repeat_bytes for p in reversed(PATTERNS.values())}
"""Per swizzle span the period of its pattern, with atoms of 16 bytes."""

Found = tuple[Rule, str]
Value = Callable[[Expr], int]
Remainder = Callable[[Expr, int], int]


def declared(p: Protocol) -> Iterator[Found]:
    """Requirements of a protocol's declarations that the target does not meet."""
    named = [TARGETS[p.target]] if p.target else list(TARGETS.values())
    needed = {s.op.needs: s.op for role in p.roles for s in steps(role.body) if s.op.needs}
    asked = needed.keys() | ({InstructionSet.TMA} if p.cluster > 1 else set[InstructionSet]())
    having = [t for t in named if asked <= t.instructions]
    if not having:
        lacking = [type(op).__name__ for x, op in needed.items() if not p.target or x not in named[0].instructions]
        what = " and ".join(lacking) or f"a cluster of {p.cluster}"
        yield Rule.LIMITS, f"{what}, which {p.target or 'no target'} has {'not' if p.target else 'together'}"
    shared = max((b.offset + b.size for b in p.buffers if b.space in MEMORY), default=0)
    shared += MBARRIER_BYTES * sum(b.slots for b in p.barriers)
    most = max(t.shared_per_cta_bytes for t in having or named)
    if shared > most:
        yield Rule.LIMITS, f"{shared} bytes of shared memory, of which a CTA has {most}"
    for b in p.buffers:
        if b.space is Space.TMEM and b.offset + b.size > TMEM_COLUMNS:
            yield Rule.LIMITS, f"columns {b.offset}..{b.offset + b.size} of {b.name}, of {TMEM_COLUMNS}"
        if b.space in MEMORY and b.offset % REPEATS[b.swizzle] and b.swizzle:
            yield Rule.OPERANDS, f"{b.name} at {b.offset}, off the {REPEATS[b.swizzle]} bytes of its swizzle"
    is_shared = any(isinstance(s.op, ops.Setmaxnreg) for role in p.roles for s in steps(role.body))
    for cta in range(p.ctas):
        threads = sum(r.threads for r in p.roles if r.ctas is None or cta in r.ctas)
        if threads > MAX_CTA_THREADS:
            yield Rule.LIMITS, f"{threads} threads, of which a CTA has {MAX_CTA_THREADS}"
        registers, pool = threads * p.registers_per_thread, having[0].registers_per_sm if having else 0
        if is_shared and having and registers > pool:
            yield Rule.LIMITS, f"{threads} threads of {p.registers_per_thread} registers at launch, of {pool} of an SM"


def broken(p: Protocol, op: ops.Op, cta: int, value: Value, remainder: Remainder) -> Iterator[Found]:
    """The rules that an op breaks where it is executed by a thread of CTA ``cta``."""
    yield from _places(p, op, cta, value, remainder)
    for effect in op.effects:
        if isinstance(effect, Await) and not _is_parity(effect.parity) and value(effect.parity) not in (0, 1):
            yield Rule.OPERANDS, f"{type(op).__name__} with parity {value(effect.parity)}, not 0 or 1"
        match effect:
            case Sync(number=Expr() as number):
                if not 0 <= value(number) < NAMED_BARRIERS:
                    yield Rule.LIMITS, f"named barrier {value(number)}, of {NAMED_BARRIERS}"
            case TensorLife(buffer):
                columns = p.buffer(buffer).size
                if columns.bit_count() != 1 or not MIN_COLUMNS <= columns <= TMEM_COLUMNS:
                    what = f"a power of two from {MIN_COLUMNS} to {TMEM_COLUMNS}"
                    yield Rule.LIMITS, f"{buffer} of {columns} columns, not {what}"
            case Await(bar) | Signal(bar, after=effects.CP_ASYNC):
                if _owner(bar, cta, value) != cta:
                    yield Rule.OPERANDS, f"{type(op).__name__} on a barrier of CTA {_owner(bar, cta, value)}"
            case _:
                pass
    if any(x.lands for x in op.of(Signal)):
        yield from _tracked(p, op, cta, value)


@cache
def _is_parity(parity: Expr) -> bool:
    """Whether it is 0 or 1 whatever its symbols are (PTX ISA 9.1, 9.7.13.15.16)."""
    least, most = interval(parity, {})
    return least is not None and most is not None and least >= 0 and most <= 1


def _tracked(p: Protocol, op: ops.Op, cta: int, value: Value) -> Iterator[Found]:
    """Which CTAs' bytes and barrier a copy takes that completes on a barrier: from global memory to its own CTA, or
    from there to a peer."""
    signal = next(op.of(Signal))
    read = (x.region for x in op.accesses if x.proxy is Proxy.ASYNC and not x.writes)
    source = next((region for region in read if p.buffer(region.buffer).space in MEMORY), None)
    target = next(x.region for x in op.accesses if x.writes)
    to, on = _owner(target, cta, value), _owner(signal.bar, cta, value)
    if source is None:
        for what, owner in (("bytes", to), ("barrier", on)):
            if owner != cta:
                yield Rule.OPERANDS, f"a copy whose {what} are of CTA {owner}, without multicast"
        return
    if _owner(source, cta, value) != cta:
        yield Rule.OPERANDS, f"a copy from CTA {_owner(source, cta, value)} issued by CTA {cta}"
    if to != on:
        yield Rule.OPERANDS, f"a copy to CTA {to} that completes on a barrier of CTA {on}"


def _places(p: Protocol, op: ops.Op, cta: int, value: Value, remainder: Remainder) -> Iterator[Found]:
    """State spaces, CTAs and alignment of the regions."""
    name = type(op).__name__
    for field, spaces in op.spaces.items():
        for region in _regions(getattr(op, field)):
            buffer = p.buffer(region.buffer)
            if buffer.space not in spaces:
                yield Rule.OPERANDS, f"{field} of {name} in {buffer.space.value} memory"
            elif not (op.peers and buffer.space in MEMORY) and _owner(region, cta, value) != cta:
                yield Rule.OPERANDS, f"{field} of {name} in CTA {_owner(region, cta, value)}"
            elif field in _MAPS:
                off = region.size != MAP_BYTES or remainder(region.begin + buffer.offset, MAP_ALIGN_BYTES)
                if off:
                    what = f"not a tensor map of {MAP_BYTES} at a multiple of {MAP_ALIGN_BYTES}"
                    yield Rule.OPERANDS, f"{region.size} bytes at {region.buffer} + {region.begin}, {what}"
            elif buffer.space in MEMORY:
                yield from _aligned(buffer, region, op, name, remainder)


def _aligned(buffer: Buffer, region: ops.Region, op: ops.Op, name: str, remainder: Remainder) -> Iterator[Found]:
    repeat = REPEATS[buffer.swizzle]
    if buffer.swizzle and op.swizzled and remainder(region.begin + buffer.offset, repeat):
        yield Rule.OPERANDS, f"{name} at {buffer.name} + {region.begin}, off the {repeat} bytes of its swizzle"
    if op.bulk:
        off = region.size % BULK_BYTES or remainder(region.begin + buffer.offset, BULK_BYTES)
        if off:
            yield Rule.OPERANDS, f"{region.size} bytes at {buffer.name} + {region.begin}, not in units of {BULK_BYTES}"


def _regions(item: object) -> tuple[ops.Region, ...]:
    if isinstance(item, ops.Region):
        return (item,)
    return item if isinstance(item, tuple) else ()  # pyright: ignore[reportUnknownVariableType]


def _owner(place: ops.Region | ops.Slot, cta: int, value: Value) -> int:
    return cta if place.cta is None else value(place.cta)
