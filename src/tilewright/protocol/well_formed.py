"""Form of a protocol: names that exist, grains that fit, indices over symbols in scope.

These are mistakes in writing a protocol, not in synchronising; the checker judges only protocols of good form.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.base.expr import OWN, Expr, FloorDiv, Mod
from tilewright.diag import Diagnostic, Location, TilewrightError
from tilewright.hw.spaces import WARP_THREADS, WARPGROUP_THREADS, Space
from tilewright.hw.target import MAX_CTA_THREADS, TARGETS
from tilewright.protocol import ops
from tilewright.protocol.effects import BarrierLife, Count, Effect, Grain, Sync, TensorLife
from tilewright.protocol.model import By, If, Loop, Node, Protocol, Role, Step, steps
from tilewright.protocol.ops.base import names_of
from tilewright.protocol.pipelines import Pipelines, expand

MAX_ARRIVALS = 2**20 - 1  # PTX ISA 9.1, 9.7.13.15.13
MAX_CLUSTER = 16
MAX_GRID = 16
"""The number of CTAs of a grid that are distinguished: properties are checked for a few CTAs, not for any number."""
TICKET_BYTES = 4
"""A ticket is the value of a word."""

SWIZZLES = (0, 32, 64, 128)
"""Spans of swizzles in bytes (CUDA Driver API, CUtensorMapSwizzle)."""


def require_valid(protocol: Protocol) -> None:
    """Raises ``TilewrightError`` with every finding of ``problems``."""
    found = tuple(problems(protocol))
    if found:
        raise TilewrightError(found)


def problems(protocol: Protocol) -> Iterator[Diagnostic]:
    """Everything wrong with the form of ``protocol``, or of what it expands to: codes MBR001 to MBR006."""
    uses = tuple(_unknown_uses(protocol))
    if protocol.pipelines or uses:
        found = (*_pipelined(protocol), *uses)
        yield from found or problems(expand(protocol))
        return
    yield from _declarations(protocol)
    for role, first_thread in _placed(protocol):
        yield from _nodes(protocol, role, first_thread, role.body, {name for name, _ in role.counters})


def _pipelined(p: Protocol) -> Iterator[Diagnostic]:
    """What keeps pipelines from being expanded."""
    names = [x.name for x in p.pipelines]
    for name in sorted({n for n in names if names.count(n) > 1 or not n.removeprefix(OWN).isidentifier()}):
        found = f"pipeline {name!r}, declared {names.count(name)} times"
        yield Diagnostic("MBR001", found=found, required="an identifier, declared once")
    sizes = {b.name: b.size for b in p.buffers}
    for pipeline in p.pipelines:
        if pipeline.stages < 1:
            yield Diagnostic("MBR002", found=f"pipeline {pipeline.name}: no stages", required="stages >= 1")
        for name in pipeline.data:
            if name not in sizes:
                yield _undeclared("buffer", name, None)
            elif pipeline.stages > 0 and sizes[name] % pipeline.stages:
                found = f"buffer {name} of {sizes[name]} bytes, {pipeline.stages} stages"
                yield Diagnostic("MBR002", found=found, required="stages of one size")


def _unknown_uses(p: Protocol) -> Iterator[Diagnostic]:
    """Uses of what is no pipeline, nor a part of one: they stand for no slot and no bytes."""
    known = Pipelines(p)
    for role in p.roles:
        for step in steps(role.body):
            for kind, name in _uses(step.op):
                if name not in {"pipeline": known.named, "array": known.of_barrier, "buffer": known.of_buffer}[kind]:
                    yield _undeclared("pipeline" if kind == "pipeline" else f"{kind} of a pipeline", name, step.where)


def _uses(op: ops.Op) -> Iterator[tuple[str, str]]:
    """The pipelines, or their parts, of which an op names uses."""
    for value in _values(op):
        match value:
            case ops.PipelineUse():
                yield "pipeline", value.pipeline
            case ops.StageSlot():
                yield "array", value.barrier
            case ops.StageRegion():
                yield "buffer", value.buffer
            case _:
                pass


def _declarations(p: Protocol) -> Iterator[Diagnostic]:
    for kind, names in (
        ("role", [r.name for r in p.roles]),
        ("buffer", [b.name for b in p.buffers]),
        ("barrier", [b.name for b in p.barriers]),
        ("counter", [c.name for c in p.global_counters]),
        ("symbol", [s.name for s in p.symbols]),
    ):
        for name in sorted({n for n in names if names.count(n) > 1 or not n.removeprefix(OWN).isidentifier()}):
            found = f"{kind} {name!r}, declared {names.count(name)} times"
            yield Diagnostic("MBR001", found=found, required="an identifier, declared once")
    if p.target and p.target not in TARGETS:
        yield Diagnostic("MBR002", found=f"target {p.target!r}", required=f"one of {', '.join(TARGETS)}")
    if not p.roles:
        yield Diagnostic(
            "MBR001", title="a protocol without roles", found="no role declared", required="one role at least"
        )
    for b in p.barriers:
        if b.slots < 1 or not 1 <= b.count <= MAX_ARRIVALS:
            yield Diagnostic(
                "MBR002",
                found=f"mbarrier {b.name}: {b.slots} slots, count {b.count}",
                required=f"slots >= 1, 1 <= count <= {MAX_ARRIVALS}",
            )
    for b in p.buffers:
        if b.size < 1 or b.offset < 0:
            yield Diagnostic("MBR002", found=f"buffer {b.name}: {b.size} bytes at {b.offset}", required="size >= 1")
        if b.swizzle not in SWIZZLES:
            found = f"buffer {b.name}: swizzle {b.swizzle}"
            yield Diagnostic("MBR002", found=found, required=f"one of {', '.join(map(str, SWIZZLES))}")
    for s in p.symbols:
        if s.multiple_of < 1 or (s.most is not None and s.most < s.least):
            found = f"symbol {s.name}: {s.least}..{s.most} by {s.multiple_of}"
            yield Diagnostic("MBR002", found=found, required="least <= most, a multiple of 1 at least")
    if not 1 <= p.cluster <= MAX_CLUSTER:
        yield Diagnostic("MBR002", found=f"cluster of {p.cluster} CTAs", required=f"1 to {MAX_CLUSTER}")
    yield from _grid(p)
    taken = {s.name for s in p.symbols} | {ops.CTA_RANK}
    for name in sorted(p.tickets & taken):
        yield Diagnostic("MBR001", found=f"ticket {name!r}", required="a name of its own")
    taken |= p.tickets
    for role in p.roles:
        for name, _ in role.counters:
            if name in taken or [n for n, _ in role.counters].count(name) > 1:
                found = f"counter {name!r} of role {role.name}"
                yield Diagnostic("MBR001", found=found, required="a name of its own")
        if role.ctas is not None and not set(role.ctas) <= set(range(p.ctas)):
            found = f"role {role.name} in CTAs {role.ctas}"
            yield Diagnostic("MBR002", found=found, required=f"ranks of {p.ctas} CTAs")
        whole = role.threads == 1 or (role.threads > 0 and role.threads % WARP_THREADS == 0)
        if not whole or role.threads > MAX_CTA_THREADS:
            yield Diagnostic(
                "MBR003",
                found=f"role {role.name} has {role.threads} threads",
                required=f"one thread, or whole warps, at most {MAX_CTA_THREADS}",
            )


def _grid(p: Protocol) -> Iterator[Diagnostic]:
    """A grid of CTAs that are no cluster, and the counters in global memory that they share."""
    if not 1 <= p.grid <= MAX_GRID or (p.cluster > 1 and (p.grid > 1 or p.global_counters)):
        found = f"a grid of {p.grid} CTAs in clusters of {p.cluster}{', with counters' if p.global_counters else ''}"
        yield Diagnostic("MBR002", found=found, required=f"1 to {MAX_GRID} CTAs, in no cluster")
    if not 1 <= p.resident <= p.grid:
        found = f"{p.resident} resident CTAs of a grid of {p.grid}"
        yield Diagnostic("MBR002", found=found, required="one at least, and no more than there are")
    for c in p.global_counters:
        if not 1 <= c.slots <= MAX_ARRIVALS:
            yield Diagnostic("MBR002", found=f"counter {c.name}: {c.slots} slots", required="slots >= 1")
    tickets = {b.name: b for b in p.buffers if b.name in p.tickets}
    for b in tickets.values():
        if b.size < TICKET_BYTES or b.initialised:
            found = f"ticket {b.name} in {b.size} bytes{', initialised' if b.initialised else ''}"
            yield Diagnostic(
                "MBR002", found=found, required=f"{TICKET_BYTES} bytes that hold nothing before it is drawn"
            )


def _placed(p: Protocol) -> Iterator[tuple[Role, int]]:
    first = 0
    for role in p.roles:
        yield role, first
        first += role.threads


def _nodes(p: Protocol, role: Role, first: int, nodes: tuple[Node, ...], names: set[str]) -> Iterator[Diagnostic]:
    control = names | {s.name for s in p.symbols} | {ops.CTA_RANK}
    known = control | p.tickets
    for node in nodes:
        match node:
            case Step():
                yield from _step(p, role, first, node, known)
            case Loop():
                for e in (node.begin, node.end):
                    yield from _scope(role, e, control, node.where)  # a ticket may be drawn anew inside
                if node.step < 1 or node.counter in known:
                    yield Diagnostic(
                        "MBR004",
                        where=node.where,
                        found=f"loop {node.counter!r} of role {role.name}, step {node.step}",
                        required="a new counter name and a step of at least 1",
                    )
                yield from _nodes(p, role, first, node.body, names | {node.counter})
            case If():
                yield from _scope(role, node.condition, known, node.where)
                yield from _nodes(p, role, first, node.then + node.otherwise, names)


def _step(p: Protocol, role: Role, first: int, step: Step, known: set[str]) -> Iterator[Diagnostic]:
    op = step.op
    yield from _grain(role, first, step)
    yield from _numbers(p, step)
    yield from _alone(p, role, step)
    for e in op.expressions:
        yield from _scope(role, e, known, step.where)
    for value in _values(op):
        match value:
            case ops.Slot():
                if all(b.name != value.barrier for b in p.barriers):
                    yield _undeclared("mbarrier", value.barrier, step.where)
            case ops.Word():
                if all(c.name != value.counter for c in p.global_counters):
                    yield _undeclared("counter", value.counter, step.where)
            case ops.Region():
                buffer = next((b for b in p.buffers if b.name == value.buffer), None)
                if buffer is None:
                    yield _undeclared("buffer", value.buffer, step.where)
                elif not 1 <= value.size <= buffer.size:
                    found = f"{value.size} bytes of buffer {buffer.name}"
                    yield Diagnostic("MBR002", where=step.where, found=found, required=f"1 to {buffer.size}")
            case _:
                pass
    for effect in op.effects:
        yield from _named(p, role, effect, step.where)


def _named(p: Protocol, role: Role, effect: Effect, where: Location | None) -> Iterator[Diagnostic]:
    """What an effect names is declared; a named barrier counts whole warps."""
    match effect:
        case BarrierLife(barrier) if all(b.name != barrier for b in p.barriers):
            yield _undeclared("mbarrier", barrier, where)
        case Count(counter) if counter not in {name for name, _ in role.counters}:
            yield _undeclared("carried counter", counter, where)
        case TensorLife(buffer) if buffer not in {b.name for b in p.buffers if b.space is Space.TMEM}:
            yield _undeclared("tensor-memory buffer", buffer, where)
        case Sync(threads=int(threads)) if threads % WARP_THREADS or threads <= 0:
            yield Diagnostic(
                "MBR003",
                where=where,
                found=f"named barrier with {threads} threads",
                required=f"a multiple of {WARP_THREADS}",
                source="PTX ISA 9.1, 9.7.13.1",
            )
        case _:
            pass


_RANGES: dict[str, tuple[int, int]] = {
    "count": (1, MAX_ARRIVALS),
    "bytes": (0, 2**31 - 1),
    "slots": (1, MAX_ARRIVALS),
    "value": (0, 2**31 - 1),
    "pending": (0, 255),
    "registers": (1, 256),
    "cta_group": (1, 2),
}
"""Least and most of an op's numbers, by the field."""


def _numbers(p: Protocol, step: Step) -> Iterator[Diagnostic]:
    for name in names_of(type(step.op)):
        least, most = _RANGES.get(name, (0, 0))
        value = getattr(step.op, name) if most else None
        limit = min(most, p.cluster) if name == "cta_group" else most
        if isinstance(value, int) and not least <= value <= limit:
            found = f"{name} {value} of {type(step.op).__name__}"
            yield Diagnostic("MBR002", where=step.where, found=found, required=f"{least} to {limit}")
        if name == "cta_group" and value == 2 and p.cluster % 2:
            found = f"pairs in a cluster of {p.cluster}"
            yield Diagnostic("MBR002", where=step.where, found=found, required="an even number")


_SEMS: dict[type[ops.Op], tuple[ops.Sem, ...]] = {
    ops.FlagStore: (ops.Sem.RELAXED, ops.Sem.RELEASE),
    ops.SpinWait: (ops.Sem.RELAXED, ops.Sem.ACQUIRE),
}
"""Semantics of stores and loads; red has those of a store (PTX ISA 9.1, 9.7.9.8, 9.7.9.11, 9.7.13.5 to 7)."""


def _alone(p: Protocol, role: Role, step: Step) -> Iterator[Diagnostic]:
    """CTAs of a grid reach each other through global memory alone; strong operations have a semantics that exists."""
    op = step.op
    places = [x for x in _values(op) if isinstance(x, ops.Slot | ops.Region) and x.cta is not None]
    if p.grid > 1 and (places or getattr(op, "ctas", ()) or isinstance(op, ops.ClusterArrive | ops.ClusterWait)):
        found = f"{type(op).__name__} that reaches other CTAs of a grid"
        yield Diagnostic("MBR002", where=step.where, found=found, required="a cluster, or global memory")
    if isinstance(op, ops.AtomAdd | ops.FlagStore) and step.by is By.PER_WARP and role.threads > WARP_THREADS:
        found = f"role {role.name}: {type(op).__name__} by each warp"
        yield Diagnostic("MBR003", where=step.where, found=found, required="one elected thread")
    red = isinstance(op, ops.AtomAdd) and op.ticket is None
    allowed = _SEMS[ops.FlagStore] if red else _SEMS.get(type(op), tuple(ops.Sem))
    sem = getattr(op, "sem", allowed[0])
    if sem not in allowed:
        found = f"{type(op).__name__}{' without a ticket' if red else ''} with {sem.value}"
        required = " or ".join(x.value for x in allowed)
        yield Diagnostic(
            "MBR002", where=step.where, found=found, required=required, source="PTX ISA 9.1, 9.7.9, 9.7.13"
        )


def _grain(role: Role, first: int, step: Step) -> Iterator[Diagnostic]:
    """Collective ops have their full grain; per-thread ops of the tensor core have one thread."""
    op, found, required = step.op, "", ""
    if step.by is By.THREAD_ZERO and first:
        found = f"threadIdx.x == 0, but the role begins at thread {first}"
        required = "a thread of the role: an elected one"
    elif op.grain is Grain.WARPGROUP and role.threads > WARPGROUP_THREADS:
        found = f"{type(op).__name__} by {role.threads} threads"
        required = "a role of 128 threads: each warpgroup has its own wgmma groups"
    elif op.grain in (Grain.WARPGROUP, Grain.WARPGROUPS):
        if step.by is not By.ALL or role.threads % WARPGROUP_THREADS or first % WARPGROUP_THREADS:
            found = f"{type(op).__name__} by {step.by.value} of {role.threads} threads from thread {first}"
            required = "all threads of whole warpgroups, first warp a multiple of 4"
    elif op.grain is Grain.WARPS:
        if step.by is not By.ALL:
            found, required = f"{type(op).__name__} by {step.by.value}", "all lanes of the executing warps"
    elif op.grain is Grain.ONE and step.by is By.ALL and role.threads > 1:
        found, required = f"{type(op).__name__} by all {role.threads} threads", "one elected thread"
    if found:
        yield Diagnostic(
            "MBR003",
            where=step.where,
            found=f"role {role.name}: {found}",
            required=required,
            source="PTX ISA 9.1, 9.7.13, 9.7.15, 9.7.16",
        )


def _values(op: ops.Op) -> Iterator[object]:
    for value in op.values:
        if isinstance(value, tuple):
            yield from value  # pyright: ignore[reportUnknownVariableType]
        else:
            yield value


def _scope(role: Role, e: Expr, known: set[str], where: Location | None) -> Iterator[Diagnostic]:
    for divisor in () if e.polynomial else _divisors(e):
        if divisor.constant is None or divisor.constant < 1:
            found = f"{e} of role {role.name} divides by {divisor}"
            yield Diagnostic("MBR004", where=where, found=found, required="a positive constant")
    for name in sorted(e.symbols - known):
        yield Diagnostic(
            "MBR005",
            where=where,
            found=f"{name!r} in {e} of role {role.name}",
            required=f"one of {', '.join(sorted(known))}",
        )


def _divisors(e: Expr) -> Iterator[Expr]:
    if isinstance(e, FloorDiv | Mod):
        yield e.denominator
    for child in e.children:
        yield from _divisors(child)


def _undeclared(kind: str, name: str, where: Location | None) -> Diagnostic:
    return Diagnostic("MBR006", where=where, found=f"{kind} {name!r}", required=f"a declared {kind}")
