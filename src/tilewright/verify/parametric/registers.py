"""The register pool, and wgmma.fence between register accesses and the wgmma that use them."""

from __future__ import annotations

from tilewright.hw.spaces import Space
from tilewright.protocol import effects
from tilewright.protocol.effects import WGMMA, Access, Fence, Order, Pool
from tilewright.protocol.graph import Site
from tilewright.protocol.product_graph import OutsideFragment, repeats
from tilewright.verify.parametric.classes import Ref
from tilewright.verify.parametric.facts import PreparedProtocol


def check_pool(facts: PreparedProtocol) -> None:
    """Registers that a block requests have been given up by its roles; every path passes at most one block with
    setmaxnreg."""
    takers = [(r, pool.registers) for r, pool in facts.k.effects.of(Pool) if r.c.group.primary]
    launch = facts.protocol.registers_per_thread
    free: dict[tuple[int, int], int] = {}
    for ref, registers in takers:
        if not 24 <= registers <= 256 or registers % 8 or repeats(facts.graph.product, ref.s):
            raise OutsideFragment("setmaxnreg out of range or in a loop")
        threads, key = facts.graph.product.parties[ref.c.party][0].threads, (ref.s, ref.c.cta)
        free[key] = free.get(key, 0) + (launch - registers) * threads
    if any(v < 0 for v in free.values()):
        raise OutsideFragment("setmaxnreg takes more than was given up")
    blocks = {r.s for r, _ in takers}
    if any(facts.k.paths.reaches[a, b] for a in blocks for b in blocks - {a}):
        raise OutsideFragment("setmaxnreg in blocks of which one follows another")
    if len({(r.c.index, r.s) for r, _ in takers}) != len(takers):
        raise OutsideFragment("setmaxnreg twice in a role")


def givers(facts: PreparedProtocol, ref: Ref, taken: Pool) -> list[Ref]:
    """The roles that give up registers in the block in which an op requests some."""
    launch = facts.protocol.registers_per_thread
    if taken.registers <= launch or not ref.c.group.primary:
        return []
    pools = [(r, pool.registers) for r, pool in facts.k.effects.of(Pool) if r.c.group.primary]
    return [r for r, registers in pools if registers < launch and (r.s, r.c.cta) == (ref.s, ref.c.cta)]


def check_wgmma_registers(facts: PreparedProtocol) -> None:
    """wgmma.fence is between register accesses and the wgmma that uses them, on every path."""
    for c in dict.fromkeys(r.c for r, x in facts.k.effects.of(Access) if x.queue is WGMMA):
        seen: set[tuple[int, bool]] = set()
        pending = [(s, True) for s in facts.graph.product.starts]
        while pending:
            at = pending.pop()
            if at not in seen:
                seen.add(at)
                touched = _touched(facts, c.code[at[0]], at[1])
                pending += [(x, touched) for x, _ in facts.k.paths.leaving[at[0]]]


def _touched(facts: PreparedProtocol, code: tuple[Site, ...], touched: bool) -> bool:
    """Whether registers are touched behind the last fence, when they were (or not) on entry to some code."""
    for site in code:
        for effect in site.step.op.effects:
            match effect:
                case Fence(Order.WGMMA):
                    touched = False
                case Access(until=effects.WGMMA) if touched:
                    raise OutsideFragment("wgmma without wgmma.fence since its registers")
                case Access(region, until=None):
                    touched = touched or facts.protocol.buffer(region.buffer).space is Space.REGISTER
                case _:
                    pass
    return touched
