"""What an op may be given at all, and what a target has: rules that no order of steps can make good.

They are asked of each op where a canonical run executes it, with the values of its expressions there, and of each op of
the event graph, where what is not a constant is left open. The explorer states them for itself.

    limits      named barriers, shared memory, tensor-memory columns, threads
    operands    which CTA's barriers and bytes an instruction reaches, which state spaces, how they are aligned
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tilewright.base.expr import Expr
from tilewright.contract.rules import Rule
from tilewright.hw.spaces import Space
from tilewright.hw.target import MAX_CTA_THREADS, MBARRIER_BYTES, NAMED_BARRIERS, SM90A
from tilewright.hw.tcgen05 import TMEM_COLUMNS
from tilewright.hw.tensormap import PATTERNS
from tilewright.protocol import ops
from tilewright.protocol.model import Buffer, Protocol

MIN_COLUMNS = 32
BULK_BYTES = 16
"""Size and alignment of bulk copies without a tensor map (PTX ISA 9.1, 9.7.9.25.4.1)."""

REPEATS = {p.span_bytes: p.repeat_bytes for p in reversed(PATTERNS.values())}
"""Per span of a swizzle the period at which its pattern begins anew, with atoms of 16 bytes."""

_MEMORY = frozenset((Space.SHARED, Space.DISTRIBUTED_SHARED))
_GENERIC = _MEMORY | {Space.GLOBAL, Space.REGISTER}
_OPERAND = _MEMORY | {Space.REGISTER}
_COLUMNS = frozenset((Space.TMEM,))
_GLOBAL = frozenset((Space.GLOBAL,))

SPACES: dict[type[object], dict[str, frozenset[Space]]] = {
    ops.TmaLoad: {"dst": _MEMORY, "tensormap": _GLOBAL},
    ops.TmaStore: {"src": _MEMORY, "dst": _GLOBAL, "tensormap": _GLOBAL},
    ops.DsmemCopy: {"src": _MEMORY, "dst": _MEMORY},
    ops.CpAsync: {"dst": _MEMORY},
    ops.Read: {"region": _GENERIC},
    ops.Write: {"region": _GENERIC},
    ops.TensormapReplace: {"map": _MEMORY | _GLOBAL},
    ops.TensormapRelease: {"map": _MEMORY | _GLOBAL},
    ops.TensormapAcquire: {"map": _GLOBAL},
    ops.Wgmma: {"accumulator": frozenset((Space.REGISTER,)), "operands": _OPERAND},
    ops.Tcgen05Alloc: {"address": _MEMORY},
    ops.Tcgen05Mma: {"accumulator": _COLUMNS, "operands": _MEMORY | _COLUMNS},
    ops.Tcgen05Cp: {"dst": _COLUMNS, "src": _MEMORY},
    ops.Tcgen05Ld: {"region": _COLUMNS},
    ops.Tcgen05St: {"region": _COLUMNS},
}
"""State spaces that the operands of an instruction may lie in."""

_OWN_BARRIER = (ops.Wait, ops.TestWait, ops.CpAsyncArrive)
"""Ops on barriers of the executing CTA alone (PTX ISA 9.1, 9.7.13.15.8)."""

_REMOTE = frozenset((ops.Read, ops.Write, ops.DsmemCopy, ops.TmaLoad))
"""Ops of which a region may lie in a peer, or that say more of it below."""

_SWIZZLED = frozenset((ops.TmaLoad, ops.TmaStore, ops.Wgmma, ops.Tcgen05Mma, ops.Tcgen05Cp))
"""Ops that address shared memory through a swizzle."""

Found = tuple[Rule, str]
Value = Callable[[Expr], int]
Remainder = Callable[[Expr, int], int]


def declared(p: Protocol) -> Iterator[Found]:
    """What its declarations ask of a target beyond what it has."""
    shared = max((b.offset + b.size for b in p.buffers if b.space in _MEMORY), default=0)
    shared += MBARRIER_BYTES * sum(b.slots for b in p.barriers)
    if shared > SM90A.shared_per_cta_bytes:
        yield Rule.LIMITS, f"{shared} bytes of shared memory, of which a CTA has {SM90A.shared_per_cta_bytes}"
    for b in p.buffers:
        if b.space is Space.TMEM and b.offset + b.size > TMEM_COLUMNS:
            yield Rule.LIMITS, f"columns {b.offset}..{b.offset + b.size} of {b.name}, of {TMEM_COLUMNS}"
        if b.space in _MEMORY and b.offset % REPEATS[b.swizzle] and b.swizzle:
            yield Rule.OPERANDS, f"{b.name} at {b.offset}, off the {REPEATS[b.swizzle]} bytes of its swizzle"
    for cta in range(p.cluster):
        threads = sum(r.threads for r in p.roles if r.ctas is None or cta in r.ctas)
        if threads > MAX_CTA_THREADS:
            yield Rule.LIMITS, f"{threads} threads, of which a CTA has {MAX_CTA_THREADS}"


def broken(p: Protocol, op: ops.Op, cta: int, value: Value, remainder: Remainder) -> Iterator[Found]:
    """The rules that an op breaks where it is executed by a thread of CTA ``cta``."""
    yield from _places(p, op, cta, value, remainder)
    match op:
        case ops.BarSync(id) | ops.BarArrive(id):
            if not 0 <= value(id) < NAMED_BARRIERS:
                yield Rule.LIMITS, f"named barrier {value(id)}, of {NAMED_BARRIERS}"
        case ops.Tcgen05Alloc(buffer) | ops.Tcgen05Dealloc(buffer):
            columns = p.buffer(buffer).size
            if columns.bit_count() != 1 or not MIN_COLUMNS <= columns <= TMEM_COLUMNS:
                what = f"a power of two from {MIN_COLUMNS} to {TMEM_COLUMNS}"
                yield Rule.LIMITS, f"{buffer} of {columns} columns, not {what}"
        case ops.Wait() | ops.TestWait() | ops.CpAsyncArrive():
            if _owner(op.bar, cta, value) != cta:
                yield Rule.OPERANDS, f"{type(op).__name__} on a barrier of CTA {_owner(op.bar, cta, value)}"
        case ops.TmaLoad(dst, bar):
            for what, place in (("bytes", dst), ("barrier", bar)):
                if _owner(place, cta, value) != cta:
                    yield (
                        Rule.OPERANDS,
                        f"a copy whose {what} are of CTA {_owner(place, cta, value)}, without multicast",
                    )
        case ops.DsmemCopy(src, dst, bar):
            to, on = _owner(dst, cta, value), _owner(bar, cta, value)
            if _owner(src, cta, value) != cta:
                yield Rule.OPERANDS, f"a copy from CTA {_owner(src, cta, value)} issued by CTA {cta}"
            if to == cta:
                yield Rule.OPERANDS, f"a copy between CTAs from CTA {cta} to itself"
            if to != on:
                yield Rule.OPERANDS, f"a copy to CTA {to} that completes on a barrier of CTA {on}"
        case _:
            pass


def _places(p: Protocol, op: ops.Op, cta: int, value: Value, remainder: Remainder) -> Iterator[Found]:
    """State spaces, CTAs and alignment of the regions."""
    name = type(op).__name__
    for field, spaces in SPACES.get(type(op), {}).items():
        for region in _regions(getattr(op, field)):
            buffer = p.buffer(region.buffer)
            if buffer.space not in spaces:
                yield Rule.OPERANDS, f"{field} of {name} in {buffer.space.value} memory"
            elif type(op) not in _REMOTE and _owner(region, cta, value) != cta:
                yield Rule.OPERANDS, f"{field} of {name} in CTA {_owner(region, cta, value)}"
            elif buffer.space in _MEMORY:
                yield from _aligned(buffer, region, op, name, remainder)


def _aligned(buffer: Buffer, region: ops.Region, op: ops.Op, name: str, remainder: Remainder) -> Iterator[Found]:
    repeat = REPEATS[buffer.swizzle]
    if buffer.swizzle and type(op) in _SWIZZLED and remainder(region.begin + buffer.offset, repeat):
        yield Rule.OPERANDS, f"{name} at {buffer.name} + {region.begin}, off the {repeat} bytes of its swizzle"
    if isinstance(op, ops.DsmemCopy) or not getattr(op, "tensor", True):
        off = region.size % BULK_BYTES or remainder(region.begin + buffer.offset, BULK_BYTES)
        if off:
            yield Rule.OPERANDS, f"{region.size} bytes at {buffer.name} + {region.begin}, not in units of {BULK_BYTES}"


def _regions(item: object) -> tuple[ops.Region, ...]:
    if isinstance(item, ops.Region):
        return (item,)
    return item if isinstance(item, tuple) else ()  # pyright: ignore[reportUnknownVariableType]


def _owner(place: ops.Region | ops.Slot, cta: int, value: Value) -> int:
    return cta if place.cta is None else value(place.cta)
