"""What a kernel relies on of its integers, read from its text: unique entries, ascending offsets; and its gate.

``promises`` makes the steps that check them, ``proofs.steps`` requires these.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TypeAlias

from tilewright.artifact.schema import MAX_EXTENT
from tilewright.base.expr import OWN, Const, Expr, FloorDiv, Mod, Sym, simplify
from tilewright.compiler.proofs.loaded import Ascending, offsets_of
from tilewright.tile import dialect as tile
from tilewright.tile.ops import OPEN_COUNTER, OPEN_TRIP, operations
from tilewright.tile.promised_indices import promised_access

PROMISES = f"promises{OWN}"
"""Prefix of the names of workspaces that belong to promise checks."""
BROKEN = f"{PROMISES}broken"
"""The tensor of a gated kernel with one i32 flag per promise: 0 where it holds."""
TAKEN = f"{PROMISES}taken"
"""The tensor of a gated kernel with roles whose first element counts the programs drawn."""
FAILED = f"{PROMISES}failed"
"""The workspace that counts, per promise, the launches that broke it."""

UNWRITTEN = "assuming index-tensors-not-written-during-launch"
"""Part of every obligation that depends on integers in memory."""
BY_EACH_CTA = f"by each CTA, before any store, {UNWRITTEN}"
"""The method of promises that the kernel's CTAs check themselves."""


@dataclass(frozen=True)
class Uniqueness:
    """``keys`` of the index tensors' elements, of extents ``dims``, reach each place in ``extents`` at most once."""

    tensors: tuple[str, ...]
    dims: tuple[Expr, ...]
    keys: tuple[Expr, ...]
    extents: tuple[Expr, ...]

    def __str__(self) -> str:
        return f"unique({', '.join(self.tensors)})"

    @property
    def asked(self) -> Expr:
        """The condition under which 32-bit entry numbers are exact."""
        total: Expr = prod(self.dims, start=Const(1))
        return simplify(total <= MAX_EXTENT, dict.fromkeys(total.symbols, (0, MAX_EXTENT)))


Relied: TypeAlias = Uniqueness | Ascending


def promises_of(kernel: tile.Kernel) -> tuple[Relied, ...]:
    """The promises that a kernel relies on and a launch must check: offsets, then those of its stores in order."""
    known = set(constructed_of(kernel))
    return tuple(promise for promise in _all(kernel) if promise not in known)


def constructed_of(kernel: tile.Kernel) -> tuple[Uniqueness, ...]:
    """Promises that hold by construction: integers of a plan, where distinct ones reach distinct places."""
    planned = set[str]() if kernel.planned is None else {name.data for name in kernel.planned}
    unique = (promise for promise in _all(kernel) if isinstance(promise, Uniqueness))
    return tuple(p for p in unique if len(p.tensors) == 1 and planned.issuperset(p.tensors) and _injective(p))


def _all(kernel: tile.Kernel) -> tuple[Relied, ...]:
    found: dict[Relied, None] = dict.fromkeys(offsets_of(kernel))
    for op in operations(kernel):
        if isinstance(op, tile.Scatter) and op.indices and op.apart is None:
            found[relied_on(op)] = None
    return tuple(found)


def _injective(promise: Uniqueness) -> bool:
    """Whether distinct elements have distinct keys: one key is the element, or two are its quotient and remainder."""
    element = Sym(promise.tensors[0])
    if element in promise.keys:
        return True
    quotients = {key.denominator for key in promise.keys if isinstance(key, FloorDiv) and key.numerator == element}
    return any(isinstance(k, Mod) and k.numerator == element and k.denominator in quotients for k in promise.keys)


def relied_on(op: tile.Scatter) -> Uniqueness:
    """The promise that a store at loaded coordinates relies on."""
    reliance = promised_access(op)
    assert not isinstance(reliance, str), "the tracer has refused it"
    dims = [d.expr for d in tile.tensor_type(op.tensor).dims]
    keys = tuple(reliance.keys.values())
    return Uniqueness(reliance.tensors, reliance.dims, keys, tuple(dims[d] for d in reliance.keys))


def gate_of(kernel: tile.Kernel) -> str | None:
    """The counter of a gated kernel's outermost loop, which runs at most once; None where there is no gate."""
    if kernel.gate is not None:
        return OPEN_COUNTER
    gates = (op for op in kernel.body.block.ops if isinstance(op, tile.StreamLoop) and op.counter.data == OPEN_COUNTER)
    return next((op.counter.data for op in gates if op.trip.expr == OPEN_TRIP), None)
