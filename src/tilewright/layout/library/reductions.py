"""Reductions of register layouts: which registers and lanes a reduction along one dimension combines."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.layout import gf2_vectors
from tilewright.layout.register import RegisterLayout


@dataclass(frozen=True)
class LaneExchange:
    """One step of a reduction across threads: combine with thread ``t ^ thread_mask``.

    The partner keeps the same result in register ``r ^ register_mask`` (of the sliced layout's atom; 0 in all hardware
    fragments). A mask below 32 stays inside the warp (a butterfly shuffle), above it crosses warps (through shared).
    """

    thread_mask: int
    register_mask: int


def slice_map(layout: RegisterLayout, dim: int) -> tuple[int, ...]:
    """For every register of this layout the register of ``slice(dim)`` that holds its row: the same thread's
    coordinate without ``dim``. A reduction sums registers with equal entries; a broadcast reads along it."""
    layout.check_dim(dim)
    reduced = layout.atom.sublayout(("register",), [n for d, n in enumerate(layout.atom.out_names) if d != dim])
    elimination = gf2_vectors.eliminate(reduced.columns)
    places = {bit: i for i, bit in enumerate(gf2_vectors.bits(elimination.pivots))}
    moved: list[int] = []
    for bit, column in enumerate(reduced.columns):
        source = 1 << bit if bit in places else elimination.reduce(column)[1]
        moved.append(sum(1 << places[b] for b in gf2_vectors.bits(source)))
    result: list[int] = []
    for register in range(layout.registers):
        target, scale = gf2_vectors.apply(moved, register & (layout.atom_registers - 1)), 1 << len(places)
        rest = register // layout.atom_registers
        for repeat in layout.repeats:
            rest, digit = divmod(rest, repeat.count)
            if repeat.dim != dim and repeat.stride:
                target += digit * scale
                scale *= repeat.count
        result.append(target)
    return tuple(result)


def exchanges(layout: RegisterLayout, dim: int) -> tuple[LaneExchange, ...]:
    """The steps that reduce ``dim`` across threads once each thread has reduced its registers, in lane order.

    Applying all of them (in any order) leaves the result in every thread; copies are not counted twice.
    """
    layout.check_dim(dim)
    sliced = layout.slice(dim)
    kept = sliced.atom.in_axis_bits("register")
    copies = layout.replication.free_thread_mask
    steps: list[LaneExchange] = []
    for vector in sliced.atom.kernel:
        # a kernel vector is led by the bit that is free in the slice; if it was free before, it names a copy
        if not copies >> (vector.bit_length() - 1 - kept) & 1:
            steps.append(LaneExchange(vector >> kept, vector & ((1 << kept) - 1)))
    return tuple(steps)


def is_owner_register(layout: RegisterLayout, register: int) -> bool:
    """Whether ``register`` is the first copy of its element within a thread."""
    replication = layout.replication
    if register & replication.free_register_mask & (layout.atom_registers - 1):
        return False
    rest = register // layout.atom_registers
    for index, repeat in enumerate(layout.repeats):
        rest, digit = divmod(rest, repeat.count)
        if digit and index in replication.free_repeats:
            return False
    return True
