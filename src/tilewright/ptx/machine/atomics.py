"""Atomic read-modify-writes, one lane after another where addresses collide (PTX ISA 9.1, 9.7.13.5, 9.7.13.7)."""

# Operands are scalars, arrays, or lists of them, as an instruction has them.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownLambdaType=false

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.ptx.machine.state import State
from tilewright.ptx.opcodes import find
from tilewright.ptx.opcodes.bit_vectors import UNSIGNED, width
from tilewright.ptx.opcodes.rows import Bits
from tilewright.ptx.syntax import Instruction

_OPERATIONS = ("add", "min", "max", "and", "or", "xor", "inc", "dec", "exch", "cas")


def update(machine: State, i: Instruction, lanes: Bits, given: list[Any]) -> list[Bits]:
    """``atom`` and ``red``: the old values."""
    type = i.modifiers[-1]
    size = width(type) // 8
    count = next((int(m[1:]) for m in i.modifiers if m in ("v2", "v4", "v8")), 1)
    operation = next(m for m in i.modifiers if m in _OPERATIONS)
    compute = _function(operation, type)
    space = next((m.partition("::")[0] for m in i.modifiers if m.partition("::")[0] in ("global", "shared")), "")
    address = np.broadcast_to(np.asarray(given[0]).astype(np.uint64), lanes.shape)
    if space == "" and (address >> np.uint64(44) == 5).all():
        space, address = "shared", address & np.uint64(0xFFFFFFFF)
    if space == "shared":
        places = [_shared(machine, lanes, address, count * size)]
    else:
        located = machine.spaces.located(lanes, address, count, size, True)
        places = [(r.worlds.reshape(-1), mine, at * size) for r, mine, at in located]
    if operation == "add" and type == "f32" and space != "shared":
        compute = _flushing(compute)
    operands = [v if isinstance(v, list) else [v] for v in given[1:3]]
    old = [np.zeros(lanes.shape, UNSIGNED[8 * size]) for _ in range(count)]
    for data, mine, at in places:
        view = data.view(UNSIGNED[8 * size])
        for turn in _turns(at):
            who = mine[turn]
            for n in range(count):
                element = at[turn] // size + n
                before = view[element]
                values = [np.broadcast_to(o[n], lanes.shape)[who].astype(view.dtype) for o in operands if n < len(o)]
                old[n][who] = before
                view[element] = compute(before, *values)
    return old


def _shared(machine: State, lanes: Bits, address: Bits, size: int) -> tuple[Bits, Bits, Bits]:
    at, _, good = machine.shared.locate(lanes, address, size)
    mine = np.flatnonzero(good)
    return machine.shared.data, mine, at[mine]


def _turns(at: Bits) -> list[Bits]:
    """Groups of indices into ``at`` in which no position occurs twice, in the order of lanes: lanes that collide go
    into different groups."""
    if len(np.unique(at)) == len(at):
        return [np.arange(len(at))]
    order = np.argsort(at, kind="stable")
    same = np.concatenate([[False], at[order][1:] == at[order][:-1]])
    first = np.maximum.accumulate(np.where(same, 0, np.arange(len(at))))
    turn = np.arange(len(at)) - first
    return [order[turn == t] for t in range(int(turn.max()) + 1)]


def _flushing(add: Callable[..., Bits]) -> Callable[..., Bits]:
    """Sums of f32 in global memory: subnormal operands and results become zeros of their sign (PTX ISA 9.1, atom)."""

    def flushed(bits: Bits) -> Bits:
        return np.where(bits & np.uint32(0x7F800000), bits, bits & np.uint32(0x80000000))

    return lambda old, value: flushed(add(flushed(old), flushed(value)))


def _function(operation: str, type: str) -> Callable[..., Bits]:
    match operation:
        case "exch":
            return lambda old, new: new
        case "cas":
            return lambda old, compared, new: np.where(old == compared, new, old)
        case "inc":
            return lambda old, limit: np.where(old >= limit, old.dtype.type(0), old + old.dtype.type(1))
        case "dec":
            return lambda old, limit: np.where((old == 0) | (old > limit), limit, old - old.dtype.type(1))
        case "and" | "or" | "xor":
            form = find(operation, (f"b{width(type)}",))
        case _:
            rounding = ("rn",) if operation == "add" and type[0] in "fb" else ()
            form = find(operation, (*rounding, type))
    assert form is not None
    assert form.function is not None
    return form.function
