"""The register pool, and wgmma.fence between register accesses and the wgmma that use them."""

from __future__ import annotations

from tilewright.contract.parametric.facts import Facts
from tilewright.contract.parametric.matching import (
    Ref,
    refs_of,
)
from tilewright.hw.spaces import Space
from tilewright.protocol import ops
from tilewright.protocol.word import NoWord


def check_pool(facts: Facts) -> None:
    takers = [r for r in refs_of(facts.k, lambda op: isinstance(op, ops.Setmaxnreg)) if r.c.group.primary]
    launch = facts.protocol.registers_per_thread
    free: dict[int, int] = {}
    for ref in takers:
        op = ref.op
        assert isinstance(op, ops.Setmaxnreg)
        if not 24 <= op.registers <= 256 or op.registers % 8 or facts.repeats(ref.s):
            raise NoWord("setmaxnreg out of range or in a loop")
        threads = facts.graph.word.parties[ref.c.party][0].threads
        free[ref.c.cta] = free.get(ref.c.cta, 0) + (launch - op.registers) * threads
    if any(v < 0 for v in free.values()) or len({r.s for r in takers}) > 1:
        raise NoWord("setmaxnreg takes more than was given up")
    if len({r.c.index for r in takers}) != len(takers):
        raise NoWord("setmaxnreg twice in a role")


def givers(facts: Facts, ref: Ref) -> list[Ref]:
    launch, op = facts.protocol.registers_per_thread, ref.op
    assert isinstance(op, ops.Setmaxnreg)
    if op.registers <= launch or not ref.c.group.primary:
        return []
    return [
        r
        for r in refs_of(facts.k, lambda x: isinstance(x, ops.Setmaxnreg) and x.registers < launch)
        if r.c.cta == ref.c.cta and r.c.group.primary
    ]


def check_wgmma_registers(facts: Facts) -> None:
    """wgmma.fence between register accesses and the wgmma that use them, on every way."""
    for c in facts.k.classes:
        dirty = dict.fromkeys(range(facts.k.n), False)
        for s in facts.graph.word.starts:
            dirty[s] = True
        for _ in range(facts.k.n + 1):
            for s, code in enumerate(c.code):
                now = dirty[s]
                for site in code:
                    match site.step.op:
                        case ops.WgmmaFence():
                            now = False
                        case ops.Read(region) | ops.Write(region):
                            now |= facts.protocol.buffer(region.buffer).space is Space.REGISTER
                        case ops.Wgmma() if now:
                            raise NoWord("wgmma without wgmma.fence since its registers")
                        case _:
                            pass
                for x, _ in facts.flows(s):
                    dirty[x] |= now
