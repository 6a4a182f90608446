"""Kernels with matrix products: candidate schedules in order, each proved; the first that holds is taken.

``build`` replaces a candidate that spills, or whose wgmma ptxas serialises, by the next one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute, Region

from tilewright.artifact.schema import Obligation
from tilewright.base.expr import TRUE, Expr
from tilewright.base.verdict import Proved, Refuted, Unknown
from tilewright.codegen.assemble import (
    PING_PONG_SPILL_TOLERANCE_BYTES,
    ROLE_SPILL_TOLERANCE_BYTES,
    STREAM_SPILL_TOLERANCE_BYTES,
)
from tilewright.compiler.planned import PlannedKernel
from tilewright.compiler.proofs.descriptors import DescriptorVerdicts, check_descriptors
from tilewright.compiler.proofs.distinct import require_distinct
from tilewright.compiler.proofs.loaded import require_clipped
from tilewright.compiler.proofs.obligations import own_proofs, prove_protocols
from tilewright.compiler.proofs.offsets import prove_offsets
from tilewright.compiler.proofs.placed import require_placed
from tilewright.compiler.proofs.promise_gate import require_gate
from tilewright.compiler.proofs.queue import prove_queue
from tilewright.compiler.proofs.ragged_copies import RAGGED
from tilewright.compiler.proofs.shared_memory import prove_initialised
from tilewright.compiler.proofs.stores import prove_stores, recorded, relying
from tilewright.compiler.proofs.uniform import prove_uniform
from tilewright.compiler.requests import Request, assume, assumptions_of
from tilewright.compiler.timing import timed
from tilewright.diag import TilewrightError, fail
from tilewright.schedule.product_schedules import (
    Attempt,
    Candidate,
    ProductVariant,
    Refused,
    Scheduled,
    schedules_of,
)
from tilewright.tile import dialect as tile
from tilewright.tile.ops import unchanged
from tilewright.transport import dialect as transport


@dataclass(frozen=True)
class ProvedSchedule:
    """A proved schedule: the tile program at its extents, and what it was lowered to."""

    tile: tile.Kernel
    scheduled: Scheduled
    certificate: tuple[Obligation, ...]
    guard: Expr
    """A predicate over extents that its tensor maps require at launch."""
    spill_tolerance_bytes: int
    """Spilled bytes per thread that are accepted."""
    other_stores: Callable[[str], ProvedSchedule | None] | None = None
    """The schedule without stores that the hardware clips, given why it is asked for; None where it has no such stores,
    or where spills cost little."""


def _spill_tolerance_bytes(candidate: Candidate) -> int:
    if candidate.software_pipelined:
        return STREAM_SPILL_TOLERANCE_BYTES
    return ROLE_SPILL_TOLERANCE_BYTES if candidate.ping_pong == 1 else PING_PONG_SPILL_TOLERANCE_BYTES


_LESS_SPILLED = "use smaller tiles, whose accumulators fit the registers (64 x 64 of f32), or operands .to(tw.tf32)"


MOST_SPILLED = 1024
"""The most bytes a thread may spill: the size of all its registers."""


@dataclass
class CandidateSearch:
    """An iterator over proved candidates that records why the others were rejected."""

    request: Request
    name: str
    pending: Iterator[Attempt]
    refusals: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Rejected schedules, each with the reason."""
    latest: str = ""
    """The schedule that was proved last."""
    _last: tuple[Candidate, int] | None = None
    _spills: dict[Candidate, list[tuple[int, int]]] = field(default_factory=dict[Candidate, list[tuple[int, int]]])
    """By candidate: the elements of tiles that spilled, and the spilled bytes."""
    _proved: list[tuple[dict[str, Attribute], Region]] = field(
        default_factory=list[tuple[dict[str, Attribute], Region]]
    )
    """The kernels proved so far: a copy of their attributes, and their bodies."""

    def next(self, reason: str = "") -> ProvedSchedule:
        """The next candidate that is proved; SCH001 with all reasons when there is none. ``reason`` is why the one
        before was rejected after it was assembled."""
        if reason:
            self.refusals.append((self.latest, reason))
            self._note_spills(reason)
        for kernel, extents, candidate in self.pending:
            found = self._schedule(kernel, extents, candidate)
            if found is not None:
                return found
        spilled = any("spilled" in why for _, why in self.refusals)
        fail(
            "SCH001",
            where=self.request.function.where,
            found="; ".join(dict.fromkeys(why for _, why in self.refusals))
            or f"no schedule here is {self.request.schedule}",
            required="one schedule that fits and is proved",
            notes=_by_reason(self.refusals),
            help=(f"leave out what is pinned: {pins}; or " if (pins := str(self.request.schedule)) else "")
            + (_LESS_SPILLED if spilled else "use smaller tiles, or tiles that are multiples of 64 x 8 x 16"),
        )

    def _schedule(self, kernel: tile.Kernel, extents: Mapping[str, int], candidate: Candidate) -> ProvedSchedule | None:
        """That of one candidate; None where it is rejected, whose reason is recorded."""
        label = ", ".join([*(f"{k}={v}" for k, v in extents.items()), str(candidate)])
        size = prod(extents.values())
        answer = self._predicted_spill(candidate, size) or self._try(kernel, candidate)
        if isinstance(answer, str):
            self.refusals.append((label, answer))
            return None
        scheduled, certificate, guard = answer
        attributes, body = dict(scheduled.kernel.attributes), scheduled.kernel.body
        if any(attributes == old and body.is_structurally_equivalent(other) for old, other in self._proved):
            self.refusals.append((label, "the same kernel as before"))
            return None
        self._proved.append((attributes, body))
        self.latest, self._last = label, (candidate, size)
        notes = (label, *scheduled.notes, *(f"given up: {which}: {why}" for which, why in self.refusals))

        def plain(reason: str) -> ProvedSchedule | None:
            self.refusals.append((label, reason))
            return self._schedule(kernel, extents, replace(candidate, clipped_stores=False))

        clips = candidate.clipped_stores and any(each.name == RAGGED for each in certificate)
        tolerance = _spill_tolerance_bytes(candidate)
        in_steps = tolerance == ROLE_SPILL_TOLERANCE_BYTES  # elsewhere spills are outside of steps, or hidden
        other = plain if clips and in_steps else None
        return ProvedSchedule(kernel, replace(scheduled, notes=notes), certificate, guard, tolerance, other)

    def _note_spills(self, reason: str) -> None:
        spilled = re.search(r"(\d+) bytes spilled", reason)
        if spilled is not None and self._last is not None:
            candidate, size = self._last
            self._spills.setdefault(candidate, []).append((size, int(spilled[1])))

    def _predicted_spill(self, candidate: Candidate, size: int) -> str:
        """Why a tile of ``size`` elements need not be assembled: extrapolated from two sizes that spilled, it would
        spill more than ``MOST_SPILLED`` bytes. Empty where that is not known."""
        if len(known := dict(self._spills.get(candidate, ()))) < 2:
            return ""
        (large, more), (small, less) = max(known.items()), min(known.items())
        expected = less + (more - less) * (size - small) // (large - small)
        return f"{expected} bytes would spill, by what two other tiles did" if expected >= MOST_SPILLED else ""

    def _try(self, kernel: tile.Kernel, candidate: Candidate) -> tuple[Scheduled, tuple[Obligation, ...], Expr] | str:
        request = self.request
        with timed("schedule"):
            assumed = assumptions_of(kernel, request.facts)
            made = schedules_of(request.target).schedule
            found = made(kernel, request.facts, request.target, candidate, assumed)
        if isinstance(found, Refused):
            return found.reason
        found.kernel.attributes["sym_name"] = StringAttr(self.name)
        with unchanged(kernel, found.kernel):
            with timed("prove"):
                judged = check_descriptors(found.kernel)
            certificate = prove(kernel, found.kernel, judged)
        return certificate if isinstance(certificate, str) else (found, certificate, judged.guard)


def _by_reason(refusals: list[tuple[str, str]]) -> tuple[str, ...]:
    """Why schedules were given up, each reason once, with the first schedule and how many others it is of."""
    schedules = dict[str, dict[str, None]]()
    for which, why in refusals:
        schedules.setdefault(why, {})[which] = None
    return tuple(
        f"{next(iter(every))}: {why}" + f" (and {len(every) - 1} other schedules)" * (len(every) > 1)
        for why, every in schedules.items()
    )


def plan_products(
    request: Request,
    variant: ProductVariant,
    retrace: Callable[[Mapping[str, int]], tile.Kernel],
    name: str,
    complete: Callable[[PlannedKernel, ProvedSchedule], PlannedKernel],
) -> PlannedKernel:
    """The first schedule of a variant that is proved; its ``next_schedule`` are the ones after it. ``complete`` adds
    what the class of arguments needs. SCH001 if none is proved, SCH002 for pins that no schedule satisfies."""
    search = search_products(request, variant, retrace, name)

    def planned(found: ProvedSchedule) -> PlannedKernel:
        scheduled = found.scheduled
        assume(scheduled.kernel, (*scheduled.guards, found.guard))
        kernel = PlannedKernel(
            TRUE,
            request,
            found.tile,
            scheduled.kernel,
            scheduled.placement,
            found.certificate,
            request.facts,
            scheduled.notes,
            lambda why: planned(search.next(why)),
            found.spill_tolerance_bytes,
            other_stores=None if found.other_stores is None else partial(otherwise, found.other_stores),
        )
        return complete(kernel, found)

    def otherwise(stores: Callable[[str], ProvedSchedule | None], why: str) -> PlannedKernel | None:
        found = stores(why)
        return None if found is None else planned(found)

    return planned(search.next())


def search_products(
    request: Request, variant: ProductVariant, retrace: Callable[[Mapping[str, int]], tile.Kernel], name: str
) -> CandidateSearch:
    """All candidates of a variant: its own with its first extents, then extents by extents, for each the schedules in
    order."""
    pins, schedules = request.schedule, schedules_of(request.target)
    unknown = schedules.unknown_pins(pins)
    if unknown:
        fail(
            "SCH002",
            where=request.function.where,
            found=unknown,
            required="consumers=1, 2 or 3, stages, mode=cooperative or pingpong, cluster, extents",
            help="leave the pin out",
        )

    def own(candidate: Candidate) -> Candidate:
        whole = candidate.whole_stores or variant.whole_stores
        return replace(candidate, one_row=variant.one_row, one_wave=variant.one_wave, whole_stores=whole)

    known = (
        (kernel, extents, own(candidate))
        for kernel, extents, candidate in schedules.attempts(
            request.target, variant.choices, retrace, pins, variant.candidates
        )
    )
    return CandidateSearch(request, name, known)


@timed("prove")
def prove(kernel: tile.Kernel, lowered: transport.Kernel, judged: DescriptorVerdicts) -> tuple[Obligation, ...] | str:
    """The certificate of one lowered kernel (stores, shared memory, offsets, copies, descriptors, protocol), or why it
    is not proved. A candidate that is not proved is rejected; no counterexample is needed."""
    found: list[Obligation] = []
    about_memory = (
        lambda: prove_stores(kernel, lowered),
        lambda: prove_initialised(lowered),
        lambda: prove_uniform(lowered),
        lambda: prove_queue(kernel, lowered),
        lambda: prove_offsets(lowered),
    )
    protocols = lambda: prove_protocols(lowered, replay=False)  # noqa: E731
    try:
        require_clipped(kernel, lowered)
        found += require_gate(kernel, lowered)
        found += require_placed(kernel, lowered)
        found += require_distinct(kernel, lowered)
    except TilewrightError as error:
        return "; ".join(f"{d.code}: {d.found}" for d in error.diagnostics)
    for proof in (*about_memory, *own_proofs(kernel, lowered, judged), protocols):
        match proof():
            case Refuted(obligation, witness):
                return f"{obligation} is wrong: {witness}"
            case Unknown(obligation, reason):
                return f"{obligation} is open: {reason}"
            case Proved(obligations):
                found += map(recorded, obligations)
    return relying(kernel, found)
