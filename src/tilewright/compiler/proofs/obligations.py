"""The obligations that a certificate must contain before a kernel is emitted, derived from the kernel alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from tilewright.artifact.schema import ASSUMPTION, CONSTRUCTED, Obligation
from tilewright.base import verdict
from tilewright.base.verdict import Proof, Proved, Refuted, Unknown
from tilewright.compiler.proofs.copies import prove_copies
from tilewright.compiler.proofs.descriptors import DescriptorVerdicts
from tilewright.compiler.proofs.distinct import DISTINCT
from tilewright.compiler.proofs.epilogue_copies import INTERIOR, asks_bounds
from tilewright.compiler.proofs.numerics import other_numerics
from tilewright.compiler.proofs.offsets import ALIGNED, OFFSETS, narrow_of, vectors_of
from tilewright.compiler.proofs.page_tables import TABLES, loads_of, prove_tables
from tilewright.compiler.proofs.placed import PLACED
from tilewright.compiler.proofs.queue import QUEUE, has_program_queue
from tilewright.compiler.proofs.ragged_copies import RAGGED, has_ragged_maps
from tilewright.compiler.proofs.shared_memory import OBLIGATION, shared_scratch
from tilewright.compiler.proofs.stores import scatter_domains
from tilewright.compiler.proofs.uniform import UNIFORM, bound_in
from tilewright.compiler.reliance import UNWRITTEN, constructed_of
from tilewright.compiler.timing import timed
from tilewright.diag import fail
from tilewright.protocol.access import AccessKind
from tilewright.tile import dialect as tile
from tilewright.tile.ops import operations
from tilewright.tile.queries import line_of
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t
from tilewright.transport.access import accesses_of, scatter_name
from tilewright.transport.protocol import count_protocols, protocols_of
from tilewright.transport.protocol_threads import NoProtocolError
from tilewright.verify import check
from tilewright.verify.access import inside_of
from tilewright.verify.rules import Rule

ASSOCIATIVE = "associative"
"""The assumption that a scan's function is associative up to rounding; samples are tried when it is traced."""


def own_proofs(
    kernel: tile.Kernel, lowered: t.Kernel, judged: DescriptorVerdicts
) -> tuple[Callable[[], Proof[str]], ...]:
    """The proofs that only kernels with tensor maps or wgmma need."""
    if not any(isinstance(op, a.TensorMap | a.Wgmma) for op in operations(lowered)):
        return ()
    return (lambda: prove_copies(kernel, lowered), lambda: prove_descriptors(judged), lambda: prove_tables(lowered))


def prove_descriptors(judged: DescriptorVerdicts) -> Proof[str]:
    """Whether every descriptor is legal for the whole class, as judged from the kernel's text."""
    if judged.faults:
        return Refuted("descriptor", "; ".join(map(str, judged.faults)))
    asked = f", where {judged.guard}" if judged.guard.constant is None else ""
    subject = f"{judged.maps} tensor maps, {judged.operands} operand layouts{asked}"
    return Proved((verdict.Discharged("descriptor", "judged again", subject),))


@timed("prove")
def prove_protocols(lowered: t.Kernel, *, replay: bool = True) -> Proof[str]:
    """Whether threads synchronise wherever they must, in every protocol of a kernel; ``replay`` as in
    ``verify.check``."""
    try:
        protocols = protocols_of(lowered)
    except NoProtocolError as error:
        return Unknown("protocol", str(error), "branches, loops and offsets that a protocol can say")
    found: list[verdict.Discharged] = []
    for protocol in protocols:
        match check(protocol, replay=replay):
            case Refuted(obligation, timeline):
                return Refuted(f"protocol, {obligation}", timeline.detail)
            case Unknown(obligation, reason, settle):
                return Unknown(f"protocol, {obligation}", reason, settle)
            case Proved(obligations):
                found += (verdict.Discharged(f"protocol {o.name}", o.method) for o in obligations)
    return Proved(tuple(found))


def missing(certificate: Sequence[Obligation], lowered: t.Kernel) -> tuple[str, ...]:
    """The obligations of a kernel that its certificate lacks."""
    held = Counter(o.name for o in certificate)
    about = {(o.name, o.detail) for o in certificate}
    found: dict[str, None] = {}
    for access in accesses_of(lowered).accesses:
        if access.bounded and ("guards", inside_of(access)) not in about:
            found[f"guards of {access.op}"] = None
        if access.kind is not AccessKind.READ:
            wanted = ("added",) if access.kind is AccessKind.REDUCE else ("once", "domain")
            found |= {f"{name} of {access.tensor}": None for name in wanted if (name, access.tensor) not in about}
    for op in operations(lowered):
        if isinstance(op, t.Store | t.AtomicReduce) and op.scattered is not None:
            name = scatter_name(tile.tensor_type(op.tensor).tensor_name.data, op.scattered.number)
            found |= {} if (PLACED, name) in about else {f"{PLACED} of {name}": None}
    if shared_scratch(lowered) and OBLIGATION not in held:
        found[OBLIGATION] = None
    if bound_in(lowered) and UNIFORM not in held:
        found[UNIFORM] = None
    if has_program_queue(lowered) and QUEUE not in held:
        found[QUEUE] = None
    if any(isinstance(op, a.TensorMap | a.Wgmma) for op in operations(lowered)):
        wanted = ("map", "descriptor", *([INTERIOR] if asks_bounds(lowered) else []))
        found |= {name: None for name in wanted if name not in held}
    found |= {
        name: None
        for name, of in ((ALIGNED, vectors_of), (OFFSETS, narrow_of), (TABLES, loads_of), (RAGGED, has_ragged_maps))
        if of(lowered) and name not in held
    }
    protocols = count_protocols(lowered)
    rules = (f"protocol {rule.obligation}" for rule in Rule)
    found |= {name: None for name in rules if held[name] < protocols}
    return tuple(found)


def assumed_of(kernel: tile.Kernel) -> tuple[Obligation, ...]:
    """Assumptions by the kernel's author (functions of scans are associative) and by plans (their integers)."""
    scans = [op for op in operations(kernel) if isinstance(op, tile.Scan) and op.function is None]
    places = dict.fromkeys(Path(line_of(op)).name for op in scans)
    associative = (Obligation(ASSOCIATIVE, ASSUMPTION, f"the function of the scan at {at}") for at in places)
    made = f"integers of a plan's handle, {UNWRITTEN}"
    return (*associative, *(Obligation(f"{promise}", CONSTRUCTED, made) for promise in constructed_of(kernel)))


def _not_distinct(certificate: Sequence[Obligation], kernel: tile.Kernel) -> tuple[str, ...]:
    """Stores at loaded coordinates without a promise of distinctness."""
    held = {o.detail for o in certificate if o.name == DISTINCT}
    names = (scatter_name(tile.tensor_type(d.op.tensor).tensor_name.data, d.number) for d in scatter_domains(kernel))
    return tuple(f"{DISTINCT} of {name}" for name in names if name not in held)


def require(certificate: Sequence[Obligation], kernel: tile.Kernel, lowered: t.Kernel) -> None:
    """CRT004 for a kernel with an incomplete certificate, or with arithmetic that its policy does not allow."""
    open_ = (*missing(certificate, lowered), *_not_distinct(certificate, kernel), *other_numerics(kernel, lowered))
    if open_:
        where = tile.begins_at(kernel)
        fail("CRT004", where=where, found=f"{lowered.sym_name.data} without {', '.join(open_)}", required="all of them")
