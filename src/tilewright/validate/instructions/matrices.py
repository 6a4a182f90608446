"""stmatrix, ldmatrix, mma, wgmma."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.ptx.syntax import (
    Immediate,
    Instruction,
    Vector,
)
from tilewright.validate.instructions.copies import shared_address
from tilewright.validate.instructions.evaluate import Instructions
from tilewright.validate.undecided import Undecided


def _stmatrix(machine: Instructions, i: Instruction) -> None:
    target, source = i.operands
    words = source.items if isinstance(source, Vector) else (source,)
    form = f"x{len(words)}{'.trans' if 'trans' in i.modifiers else ''}"
    machine.event("stmatrix", form, shared_address(machine, target), *(machine.get(w, 32) for w in words))
    machine.stored("shared")


def _ldmatrix(machine: Instructions, i: Instruction) -> None:
    target, source = i.operands
    words = target.items if isinstance(target, Vector) else (target,)
    form = f"x{len(words)}{'.trans' if 'trans' in i.modifiers else ''}"
    address = shared_address(machine, source)
    state = machine.state("shared")
    machine.event("ldmatrix", form, address, state)
    for k, word in enumerate(words):
        machine.result(word, machine.terms.data(32, 32, "ldmatrix", form, k, address, state))


def _mma(machine: Instructions, i: Instruction) -> None:
    target, *sources = i.operands
    assert isinstance(target, Vector)
    words = [word for source in sources for word in (source.items if isinstance(source, Vector) else (source,))]
    given = (".".join(i.modifiers[2:]), *(machine.get(word, 32) for word in words))
    machine.event("mma", *given)
    for k, word in enumerate(target.items):
        machine.result(word, machine.terms.data(32, 32, "mma", k, *given))


def _wgmma(machine: Instructions, i: Instruction) -> None:
    m = i.modifiers
    if m[0] != "mma_async":
        pending = machine.values.number(machine.get(i.operands[0], 32)) if i.operands else None
        machine.event(f"wgmma.{m[0]}", *(() if pending is None else (pending,)))
        return
    target, a, b, scale, *rest = i.operands
    assert isinstance(target, Vector)
    accumulators = [machine.get(r, 32) for r in target.items]
    left = [machine.get(r, 32) for r in a.items] if isinstance(a, Vector) else [machine.get(a, 64)]
    right = machine.get(b, 64)
    scaled = machine.predicate(scale) if not isinstance(scale, Immediate) else machine.cases.true if scale.bits else 0
    flags = ",".join(str(machine.values.number(machine.get(r, 32))) for r in rest)
    flag = {0: 0, machine.cases.true: 1}.get(scaled if isinstance(scaled, int) else -1)
    if flag is None:
        raise Undecided("wgmma whose scale-d varies", f"line {i.line}")
    made = machine.event(f"wgmma.{'.'.join(m[3:])}", flags, flag, right, *left, *accumulators)
    machine.marks[i.index] = made
    for k, r in enumerate(target.items):
        machine.result(r, machine.terms.data(32, 32, "result", "ptx", i.index, k))


OPCODES: dict[str, Callable[[Instructions, Instruction], None]] = {
    "stmatrix": _stmatrix,
    "ldmatrix": _ldmatrix,
    "mma": _mma,
    "wgmma": _wgmma,
}
