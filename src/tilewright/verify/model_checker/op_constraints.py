"""What hardware does not have or do, whatever the schedule: stated here from the sources, not from the prover's table.

Sources: CUDA C++ Programming Guide, technical specifications (KiB of shared memory, 1024 threads); PTX ISA 9.1,
9.7.13.1 (named barriers), 9.7.13.15.8 (test_wait and try_wait take own barriers), 9.7.16.7 (columns), 9.7.9.25.4.1
(bulk copies), 5.5.6 (swizzles), 5.5.8 (tensor maps).
"""

from __future__ import annotations

from typing import Any

from tilewright.hw.spaces import Space
from tilewright.protocol import ops
from tilewright.protocol.model import Protocol, steps
from tilewright.verify.model_checker.instance import ProtocolInstance, number
from tilewright.verify.model_checker.world import Problem
from tilewright.verify.rules import Rule

_SHARED = (Space.SHARED, Space.DISTRIBUTED_SHARED)
_SHARED_KIB = {"sm_80": 163, "sm_90a": 227, "sm_100a": 227}
"""KiB of shared memory per CTA."""
_FAMILIES: dict[str, set[str]] = {
    "wgmma": {"sm_90a"},
    "tcgen05": {"sm_100a"},
    "cluster": {"sm_90a", "sm_100a"},
    "async proxy": {"sm_90a", "sm_100a"},
}
"""Targets of instructions (PTX ISA 9.1, "Target ISA Notes" of each)."""


def _family(op: str) -> str:
    if op.startswith(("Wgmma", "Tcgen05")):
        return "wgmma" if op.startswith("Wgmma") else "tcgen05"
    if op.startswith(("Tma", "Bulk", "Dsmem", "Tensormap", "Cluster", "Setmaxnreg")) or op.endswith("ExpectTx"):
        return "async proxy"
    return "async proxy" if op in ("ExpectTx", "FenceProxyAsync", "FenceMbarrierInit") else ""


def declarations(p: Protocol) -> None:
    """Raises ``Problem`` where a CTA could not be launched."""
    found = {_family(type(s.op).__name__) for role in p.roles for s in steps(role.body)}
    targets = {p.target} if p.target else set(_SHARED_KIB)
    for family, having in _FAMILIES.items():
        if family in found or (family == "cluster" and p.cluster > 1):
            targets &= having
    if not targets:
        raise Problem(Rule.LIMITS, (), f"{', '.join(sorted(found & _FAMILIES.keys()))}: instructions of no one target")
    ends = [b.offset + b.size for b in p.buffers if b.space in _SHARED]
    if max(ends, default=0) + 8 * sum(b.slots for b in p.barriers) > max(_SHARED_KIB[t] for t in targets) * 1024:
        raise Problem(Rule.LIMITS, (), "more shared memory than a CTA has")
    if any(b.space is Space.TMEM and b.offset + b.size > 512 for b in p.buffers):
        raise Problem(Rule.LIMITS, (), "columns that tensor memory does not have")
    every = (s.op for role in p.roles for s in steps(role.body))
    most = 65536 // p.registers_per_thread if any(isinstance(op, ops.Setmaxnreg) for op in every) else 1024
    for cta in range(p.ctas):
        if sum(role.threads for role in p.roles if role.ctas is None or cta in role.ctas) > min(most, 1024):
            raise Problem(Rule.LIMITS, (), "more threads than a CTA has, or registers of them")
    if any(b.swizzle and b.space in _SHARED and b.offset % (8 * b.swizzle) for b in p.buffers):
        raise Problem(Rule.OPERANDS, (), "a buffer that is not aligned to its swizzle")


def wrong(g: ProtocolInstance, t: int, op: Any) -> str:
    """What an instruction's operands violate; empty where all are legal."""
    mine = g.threads[t].cta

    def at(place: Any) -> int:
        return mine if place.cta is None else number(place.cta)

    described = getattr(op, "tensormap", None) or getattr(op, "map", None)
    if described is not None and (described.size != 128 or _starts(g, described) % 64):
        return "a tensor map that is not 128 bytes at a multiple of 64"
    match op:
        case ops.Wait() | ops.TestWait() if number(op.parity) not in (0, 1):
            return "a parity that is neither 0 nor 1"
        case ops.Wait() | ops.TestWait() | ops.CpAsyncArrive():
            return "" if at(op.bar) == mine else "an mbarrier of another CTA"
        case ops.TmaLoad(dst, bar):
            if at(dst) != mine or at(bar) != mine:
                return "a peer as the target of a copy without multicast"
            return _placed(g, op, dst, _SHARED) or (_in_bulk(g, dst) if not op.tensor else "")
        case ops.DsmemCopy(src, dst, bar):
            if at(src) != mine or at(dst) != at(bar):
                return "a copy between CTAs that is not from here to a CTA and a barrier there"
            return _in_bulk(g, src) or _in_bulk(g, dst) or _placed(g, op, src, _SHARED) or _placed(g, op, dst, _SHARED)
        case ops.TmaStore(src, dst):
            away = "" if dst is None or g.buffers[dst.buffer].space is Space.GLOBAL else "a store to no global memory"
            return away or ("" if op.tensor else _in_bulk(g, src)) or _own(g, t, op, src, _SHARED)
        case ops.AtomAdd(ticket=ops.Region() as ticket):
            return _own(g, t, op, ticket, _SHARED)
        case ops.CpAsync(dst):
            return _own(g, t, op, dst, _SHARED)
        case ops.Read(region) | ops.Write(region):
            if g.buffers[region.buffer].space is Space.TMEM:
                return "tensor memory by a plain access"
            return "" if at(region) == mine or g.buffers[region.buffer].space in _SHARED else "what a peer alone has"
        case ops.Wgmma(accumulator, operands):
            if g.buffers[accumulator.buffer].space is not Space.REGISTER:
                return "an accumulator that is not in registers"
            return next(filter(None, (_own(g, t, op, r, (*_SHARED, Space.REGISTER)) for r in operands)), "")
        case ops.Tcgen05Mma(accumulator, operands):
            found = [_own(g, t, op, r, (*_SHARED, Space.TMEM)) for r in operands]
            return next(filter(None, found), "") or _own(g, t, op, accumulator, (Space.TMEM,))
        case ops.Tcgen05Cp(dst, src):
            return _own(g, t, op, dst, (Space.TMEM,)) or _own(g, t, op, src, _SHARED)
        case ops.Tcgen05Ld(region) | ops.Tcgen05St(region):
            return _own(g, t, op, region, (Space.TMEM,))
        case _:
            return ""


def over(g: ProtocolInstance, op: Any) -> str:
    """The resource of a CTA that an instruction exceeds."""
    match op:
        case ops.BarSync(id) | ops.BarArrive(id):
            return "" if number(id) in range(16) else f"named barrier {number(id)}"
        case ops.Tcgen05Alloc(buffer) | ops.Tcgen05Dealloc(buffer):
            columns = g.buffers[buffer].size
            return "" if columns in (32, 64, 128, 256, 512) else f"an allocation of {columns} columns"
        case _:
            return ""


def check(g: ProtocolInstance, t: int, op: Any) -> None:
    """Raises ``Problem`` where the op is not one that the thread can execute."""
    key = id(op), t
    if key not in g.formed:
        if words := over(g, op):
            raise Problem(Rule.LIMITS, (t,), f"{g.threads[t].label} asks for {words}")
        if words := wrong(g, t, op):
            raise Problem(Rule.OPERANDS, (t,), f"{g.threads[t].label} gives {type(op).__name__} {words}")
        g.formed[key] = op


def _own(g: ProtocolInstance, t: int, op: Any, region: ops.Region, spaces: tuple[Space, ...]) -> str:
    if region.cta is not None and number(region.cta) != g.threads[t].cta:
        return "bytes of another CTA"
    return _placed(g, op, region, spaces)


def _placed(g: ProtocolInstance, op: Any, region: ops.Region, spaces: tuple[Space, ...]) -> str:
    buffer = g.buffers[region.buffer]
    if buffer.space not in spaces:
        return f"bytes in {buffer.space.value} memory"
    tile = isinstance(op, ops.TmaLoad | ops.TmaStore | ops.Wgmma | ops.Tcgen05Mma | ops.Tcgen05Cp)
    if tile and buffer.swizzle and buffer.space in _SHARED and _starts(g, region) % (8 * buffer.swizzle):
        return "a tile that does not begin where its swizzle does"
    return ""


def _in_bulk(g: ProtocolInstance, region: ops.Region) -> str:
    return "bytes that are not whole units of 16" if _starts(g, region) % 16 or region.size % 16 else ""


def _starts(g: ProtocolInstance, region: ops.Region) -> int:
    return number(region.begin) + g.buffers[region.buffer].offset
