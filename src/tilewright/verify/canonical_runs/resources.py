"""Tensor memory, the register pool and carried counters in a canonical run."""

from __future__ import annotations

from tilewright.hw.rules.tcgen05 import TMEM_COLUMNS
from tilewright.protocol.effects import Access, Count, Mode, Pool, Proxy, Relinquish, TensorLife
from tilewright.protocol.model import Buffer
from tilewright.verify.canonical_runs.evaluation import Breach
from tilewright.verify.canonical_runs.interpreter import StepExecution
from tilewright.verify.canonical_runs.memory import NewAccess, pair_of, touch
from tilewright.verify.canonical_runs.state import S
from tilewright.verify.rules import Rule


def tensor_life(x: StepExecution, effect: TensorLife) -> bool:
    """A buffer of tensor memory is allocated or freed, by one agent for its role."""
    if x.once:
        (_allocate if effect.begins else _free)(x, effect)
    return True


def _allocate(x: StepExecution, effect: TensorLife) -> None:
    name, key = effect.buffer, (effect.buffer, x.agent.cta)
    if key in x.st.tmem and x.st.tmem[key][0] != "freed":
        raise x.breach(Rule.TMEM, f"{name} is allocated twice")
    if x.agent.cta in x.st.relinquished:
        raise x.breach(Rule.TMEM, f"{name} is allocated after the CTA gave up the right to")
    _check_columns(x, x.m.buffers[name])
    x.st.tmem[key] = ("live", x.agent.index, x.a.epoch)


def _check_columns(x: StepExecution, buffer: Buffer) -> None:
    """Alloc blocks until its columns are free, and must not ask for more than one before it: in every schedule."""
    held = buffer.size
    for (name, cta), (state, c, e) in x.st.tmem.items():
        if cta != x.agent.cta:
            continue
        other, known = x.m.buffers[name].size, x.saw(S, c, e)
        if name == buffer.name and not known:
            raise x.breach(Rule.TMEM, f"{name} is allocated again before its dealloc is known")
        if other < buffer.size or (other > buffer.size and not known):
            what = f"{buffer.name} of {buffer.size} columns may be allocated after {name} of {min(other, buffer.size)}"
            raise x.breach(Rule.TMEM, f"{what}: allocations must not increase")
        held += other if state != "freed" or not known else 0
    if held > TMEM_COLUMNS:
        taken = f"{held - buffer.size} of {TMEM_COLUMNS} may be taken"
        raise x.breach(Rule.TMEM, f"{buffer.name} waits for {buffer.size} columns while {taken}")


def _free(x: StepExecution, effect: TensorLife) -> None:
    name, cta, tmem = effect.buffer, x.agent.cta, x.st.tmem
    if (name, cta) not in tmem:
        raise x.breach(Rule.TMEM, f"{name} is freed but was not allocated")
    if tmem[name, cta][0] == "freed":
        raise x.breach(Rule.TMEM, f"{name} is freed twice")
    freed = Access(x.m.whole(x.m.buffers[name]), Mode.WRITE, Proxy.TENSOR, name="the dealloc")
    for rank in pair_of(cta) if effect.pair else (cta,):
        try:
            touch(x, NewAccess(freed), rank)
        except Breach as e:
            if e.rule is Rule.TMEM:
                raise
            raise x.breach(Rule.TMEM, e.detail, e.other) from None
        if rank != cta and tmem[name, rank][0] == "live":
            tmem[name, rank] = ("half", *tmem[name, rank][1:])
    tmem[name, cta] = ("freed", x.agent.index, x.a.epoch)


def relinquish(x: StepExecution, effect: Relinquish) -> bool:
    """The CTA gives up the right to allocate."""
    x.st.relinquished |= {x.agent.cta}
    return True


def pool(x: StepExecution, effect: Pool) -> bool:
    """A decrease feeds the CTA's pool, an increase waits until the pool holds enough."""
    registers, cta = effect.registers, x.agent.cta
    if not 24 <= registers <= 256 or registers % 8:
        raise x.breach(Rule.REGISTERS, f"setmaxnreg {registers}: not 24 to 256 in steps of 8")
    if not x.once:
        return True
    freed = (x.a.registers - registers) * x.m.protocol.role(x.agent.group.role).threads
    if x.st.pool[cta] + freed < 0:
        return False
    x.st.pool[cta] += freed
    x.a.registers = registers
    x.m.wake(x.st)
    return True


def count(x: StepExecution, effect: Count) -> bool:
    """A carried counter advances."""
    x.a.env[effect.counter] += x.value(effect.by)
    return True
