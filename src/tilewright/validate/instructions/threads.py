"""Exchanges between lanes, barriers of threads, fences, and the ends of blocks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tilewright.ptx.syntax import (
    Instruction,
    Pair,
)
from tilewright.validate.instructions.evaluate import Instructions
from tilewright.validate.undecided import Undecided


def _shfl(machine: Instructions, i: Instruction) -> None:
    target, source, b, c, mask = i.operands
    word = machine.get(source, 32)
    args = tuple(machine.get(o, 32) for o in (b, c, mask))
    if machine.values.number(args[2]) != -1:
        raise Undecided("a shuffle of some lanes", f"line {i.line}")
    known = machine.values.shuffled(i.modifiers[1], word, *args)
    if known is not None:
        machine.result(target.first if isinstance(target, Pair) else target, known)
        return
    found = machine.terms.data(32, 32, f"shfl.{i.modifiers[1]}", word, *args)
    machine.terms.masked(found, machine.values.may_be_set(word))
    atom = machine.terms.single(found)
    assert atom is not None
    by_region = machine.shuffles.setdefault(atom.id, {})
    by_region[machine.region.name] = machine.cases.either(by_region.get(machine.region.name, 0), machine.holds)
    first = target.first if isinstance(target, Pair) else target
    machine.result(first, found)


def _bar(machine: Instructions, i: Instruction) -> None:
    forms = [m for m in i.modifiers if m not in ("cta", "aligned")]
    if forms == ["warp", "sync"]:
        machine.event("bar.warp.sync", machine.get(i.operands[0], 32))
        machine.synchronised()
        return
    if forms == ["red", "popc", "u32"] and len(i.operands) == _COUNTED_OPERANDS:
        _count(machine, i)
        return
    if forms not in (["sync"], ["arrive"]):
        raise Undecided(f"{i.name} is not known", f"line {i.line}")
    number = machine.get(i.operands[0], 32)
    threads = machine.get(i.operands[1], 32) if len(i.operands) > 1 else machine.terms.const(32, machine.terms.threads)
    machine.event(f"bar.{forms[0]}", number, threads)
    machine.synchronised()


_COUNTED_OPERANDS = 3
"""Operands of a barrier that counts: its result, its number, and the counted predicate."""


def _count(machine: Instructions, i: Instruction) -> None:
    """The number of threads of the CTA for which a predicate holds: the n-th such instruction corresponds to the IR's
    n-th op."""
    target, number, predicate = i.operands
    if machine.region.name != "kernel" or machine.holds != machine.cases.true:
        raise Undecided("threads that are counted in a part of the kernel", f"line {i.line}")
    one, zero = machine.terms.const(32, 1), machine.terms.const(32, 0)
    counted = machine.values.select(machine.predicate(predicate), one, zero)
    kind, found = machine.values.threads_counted(machine.program.counts.index(i.index))
    machine.event(kind, machine.get(number, 32), counted)
    machine.synchronised()
    machine.result(target, found)


def _barrier(machine: Instructions, i: Instruction) -> None:
    if i.modifiers[0] != "cluster":
        _bar(machine, i)
        return
    machine.event(i.name)
    machine.synchronised()


def _fence(machine: Instructions, i: Instruction) -> None:
    machine.event(i.name)


def _setmaxnreg(machine: Instructions, i: Instruction) -> None:
    machine.event(f"setmaxnreg.{i.modifiers[0]}", machine.get(i.operands[0], 32))


def _elect(machine: Instructions, i: Instruction) -> None:
    target = i.operands[0]
    assert isinstance(target, Pair)
    mask = machine.values.number(machine.get(i.operands[1], 32))
    if mask is None or mask & 0xFFFFFFFF != 0xFFFFFFFF:
        raise Undecided("elect.sync of some lanes", f"line {i.line}")
    lanes = machine.cases.threads_where(np.arange(machine.terms.threads) % 32 == 0)
    machine.result(target.second, lanes)  # which lane is left open by the ISA; it is the same for the same mask


def _branch(machine: Instructions, i: Instruction) -> None:
    """Edges hold what a branch does."""


def _nothing(machine: Instructions, i: Instruction) -> None:
    """The end; what ``ptx_declarations`` looks at."""


OPCODES: dict[str, Callable[[Instructions, Instruction], None]] = {
    "shfl": _shfl,
    "bar": _bar,
    "barrier": _barrier,
    "fence": _fence,
    "membar": _fence,
    "setmaxnreg": _setmaxnreg,
    "elect": _elect,
    "griddepcontrol": _nothing,
    "bra": _branch,
    "ret": _nothing,
    "exit": _nothing,
}
