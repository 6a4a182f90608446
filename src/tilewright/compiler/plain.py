"""Kernels without matrix products: one lowering for given extents and threads, proved or refused."""

from __future__ import annotations

from xdsl.dialects.builtin import StringAttr

from tilewright.base import verdict
from tilewright.base.expr import Expr
from tilewright.base.verdict import Proved
from tilewright.compiler.planned import PlannedKernel
from tilewright.compiler.proofs.distinct import require_distinct
from tilewright.compiler.proofs.loaded import require_clipped
from tilewright.compiler.proofs.obligations import prove_protocols
from tilewright.compiler.proofs.offsets import prove_offsets
from tilewright.compiler.proofs.placed import require_placed
from tilewright.compiler.proofs.promise_gate import require_gate
from tilewright.compiler.proofs.shared_memory import prove_initialised
from tilewright.compiler.proofs.stores import certified, prove_stores, recorded, require_proved
from tilewright.compiler.proofs.uniform import prove_uniform
from tilewright.compiler.requests import Request, assumptions_of
from tilewright.compiler.timing import timed
from tilewright.diag import fail
from tilewright.lang.schedule import RoleMode
from tilewright.schedule.lower import Lowering
from tilewright.schedule.placement import place
from tilewright.schedule.relayout import classified
from tilewright.schedule.shared_memory import place_shared
from tilewright.tile import dialect as tile
from tilewright.tile.ops import unchanged
from tilewright.transport import dialect as transport


@timed("schedule")
def plan_kernel(
    request: Request,
    kernel: tile.Kernel,
    predicate: Expr,
    name: str,
    threads: int | None = None,
    min_ctas: int | None = None,
) -> PlannedKernel:
    """Lowers one variant and proves it; ``threads`` and ``min_ctas`` (per SM) override the schedule's choice.

    If a tile that starts at the 16-byte boundary before a row can't be proved, it starts at the row's first element.
    """
    assumptions = assumptions_of(kernel, request.facts)
    apart, classes = classified(kernel)
    pins = request.schedule
    for skewed in (True, False):
        placement = place(
            apart,
            classes,
            request.facts,
            pins,
            assumptions,
            request.target,
            threads=threads,
            min_ctas=min_ctas,
            skewed=skewed,
        )
        lowered = Lowering(apart, placement, request.facts).run()
        lowered.attributes["sym_name"] = StringAttr(name)
        place_shared(lowered, request.function.where)
        answer = prove_stores(kernel, lowered)
        if placement.skew is None or isinstance(answer, Proved):
            break
    with unchanged(kernel, lowered):
        require_clipped(kernel, lowered)
        require_gate(kernel, lowered)
        memory = require_memory(kernel, lowered)
        scattered = (*require_placed(kernel, lowered), *require_distinct(kernel, lowered))
    certificate = (*certified(kernel, answer), *scattered, *map(recorded, memory))
    _check_vector(request, lowered)
    return PlannedKernel(predicate, request, kernel, lowered, placement, certificate, request.facts)


def require_memory(kernel: tile.Kernel, lowered: transport.Kernel) -> tuple[verdict.Discharged, ...]:
    """The obligations of shared memory, loaded bounds, offsets and synchronisation; CRT005, CRT009, CRT008 or CRT006
    where one is not proved."""
    return (
        *require_proved(kernel, prove_initialised(lowered), "CRT005", "every element that is read was written"),
        *require_proved(kernel, prove_uniform(lowered), "CRT009"),
        *require_proved(kernel, prove_offsets(lowered), "CRT008"),
        *require_proved(kernel, prove_protocols(lowered), "CRT006", "a barrier between conflicting accesses"),
    )


def _check_vector(request: Request, lowered: transport.Kernel) -> None:
    """SCH002 if the widest access does not have the pinned vector width."""
    if request.schedule.vector is None:
        return
    accesses = (transport.Load, transport.Store, transport.AtomicReduce)
    widest = max((op.vector.data for op in lowered.walk() if isinstance(op, accesses)), default=1)
    if request.schedule.vector != widest:
        fail(
            "SCH002",
            where=request.function.where,
            found=f"vector={request.schedule.vector}; the widest access that tiles and alignment allow has {widest}",
            required="a power of two up to what the tensors' alignment, strides and the tile's extent allow",
            help="leave the pin out",
        )


def refuse_pins(request: Request, *, sums: bool) -> None:
    """SCH002 for pins that do not apply to kernels without matrix products; ``sums`` says whether the kernel's stream
    only adds to fragments, so that it can be split."""
    pins = request.schedule
    found = [
        f"{name}={value}"
        for name, value in (
            ("stages", pins.stages),
            ("consumers", pins.consumers),
            ("cluster", pins.cluster),
            ("staged", pins.staged or None),
            ("split_k", None if sums else pins.split_k),
            ("mode", None if pins.mode is RoleMode.PLAIN else pins.mode),
        )
        if value is not None
    ]
    if found:
        fail(
            "SCH002",
            where=request.function.where,
            found=", ".join(found),
            required="warps, persistent, vector or extents: this kernel multiplies no matrices"
            + ("" if sums or pins.split_k is None else ", and has no stream that only adds to fragments"),
            help="leave the pin out",
        )
