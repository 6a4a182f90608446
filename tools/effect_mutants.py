"""Alters the effects of each op in turn: some protocol must then set a prover and the model checker at odds.

    python tools/effect_mutants.py [--json FILE] [--only OP] [--drawn N]

The provers read ``protocol.effects``, the model checker does not. If the table says of an op what is not so, a protocol
must show it: one that the model checker breaks is proved, or one that the model checker exhausts without a problem is
proved no more. An alteration drops an effect, or changes one field of one: a flag, a choice, a count, a queue.
Protocols are those of the other campaigns, mutants of them, and small ones drawn (``random_agree``).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from enum import Enum
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from agree import answers
from campaign.corpus import everything
from campaign.judge import opinion
from campaign.operators import mutants
from random_agree import drawn
from tilewright.base.expr import Expr, sym
from tilewright.hw.spaces import Space
from tilewright.protocol import Build, Protocol, RoleBuilder, ops
from tilewright.protocol.effects import (
    QUEUES,
    Access,
    Await,
    BarrierLife,
    BarrierScope,
    Effect,
    Fence,
    MemoryFence,
    Mode,
    Order,
    Part,
    Pool,
    Proxy,
    Queue,
    Retire,
    Signal,
    Stage,
    Strong,
    Sync,
    TensorLife,
)
from tilewright.protocol.model import steps
from tilewright.protocol.operands import FenceSpace, Scope, Sem
from tilewright.protocol.well_formed import problems

STATES = 1_200
"""States that the model checker may visit in an instance."""

RUNS = 60
"""Decision points of the canonical runs."""

MOST_STEPS = 45
MOST_ASKED = 60
"""Steps of a protocol, and protocols asked about one alteration: the smallest ones."""

Alter = Callable[[tuple[Effect, ...]], tuple[Effect, ...]]


@dataclass(frozen=True)
class Alteration:
    """A change to the effects of an op class."""

    op: type[ops.Op]
    what: str
    alter: Alter


@dataclass(frozen=True)
class Case:
    """A protocol with the model checker's opinion, 'good' or 'bad', and which prover proves it as things are."""

    name: str
    protocol: Protocol
    opinion: str
    proved: tuple[bool, bool]

    def bears(self, alteration: Alteration) -> bool:
        """Whether an alteration changes the effects of an op in it."""
        mine = (s.op for role in self.protocol.roles for s in steps(role.body) if type(s.op) is alteration.op)
        return any(alteration.alter(op.effects) != op.effects for op in mine)


# -- alterations -------------------------------------------------------------------------------------------------------
def alterations(samples: dict[type[ops.Op], list[ops.Op]]) -> Iterator[Alteration]:
    """All alterations of the effects that the samples have; equal ones once."""
    for kind, found in samples.items():
        seen: set[str] = set()
        for op in found:
            for i, effect in enumerate(op.effects):
                name = f"{i} {type(effect).__name__}"
                for what, alter in ((f"drop {name}", _dropping(i)), *_changes(i, name, effect)):
                    if what not in seen:
                        seen.add(what)
                        yield Alteration(kind, what, alter)


def _dropping(i: int) -> Alter:
    return lambda found: found[:i] + found[i + 1 :]


def _changes(i: int, name: str, effect: Effect) -> Iterator[tuple[str, Alter]]:
    for f in fields(effect):
        if f.compare:
            for value in _others(effect, f.name, getattr(effect, f.name)):
                shown = value.name if isinstance(value, Enum | Queue) else value
                yield f"{name}.{f.name} = {shown}", _changing(i, f.name, value)


def _changing(i: int, field: str, value: object) -> Alter:
    def alter(found: tuple[Effect, ...]) -> tuple[Effect, ...]:
        if i >= len(found) or field not in {f.name for f in fields(found[i])}:
            return found
        new = value
        if isinstance(value, str) and value.startswith("+"):
            old = getattr(found[i], field)
            new = old + int(value) if isinstance(old, int) else old
        changed: Any = replace(found[i], **{field: new})
        return (*found[:i], changed, *found[i + 1 :])

    return alter


def _others(effect: Effect, field: str, value: object) -> Iterator[object]:
    """What else a field may say that means something in an effect of this kind."""
    match effect, field:
        case (Access(), "stage") | (Retire(), "stage"):
            queue = effect.queue
            yield from (x for x in Stage if x is not value and queue is not None and len(queue.stages) > 1)
        case Access(), "mode":
            yield Mode.WRITE if value in (Mode.READ, Mode.REDUCE, Mode.REPLACE) else Mode.READ
        case Access(), "proxy":
            yield Proxy.GENERIC if value is Proxy.ASYNC else Proxy.ASYNC
        case Access(), "until":
            yield from (None for _ in range(1) if value is not None)
            yield from (x for x in QUEUES if x is not value and isinstance(value, Queue))
        case Access(), "part":
            generic = effect.until is None and effect.proxy is Proxy.GENERIC
            yield from (x for x in (Part.THREAD, Part.ONE) if x is not value and generic)
            yield from (Part.WHOLE for x in (Part.SHARED, Part.ONE, Part.THREAD, Part.WARP) if x is value)
        case (Access(), "clipped" | "pair") | (TensorLife(), "pair"):
            yield from (False for _ in range(1) if value)
        case (Signal(), "scope" | "release" | "raises_count") if not effect.arrivals:
            pass
        case (Signal(), "scope") | (Await(), "scope"):
            yield Scope.CLUSTER if value is Scope.CTA else Scope.CTA
        case Signal(), "after" if value is not None:
            yield None
        case (Signal(), "arrivals" | "expects" | "lands") | (Retire(), "pending") if field == "pending" or value:
            yield "+1" if field in ("arrivals", "pending") else "+16"
        case Sync(), "waits" | "arrives" | "release" | "aligned":
            meant = {"release": effect.arrives, "aligned": effect.scope is BarrierScope.CTA}
            yield from (not value for _ in range(1) if meant.get(field, True) and effect.scope is not BarrierScope.WARP)
        case Sync(), "threads" if value is not None:
            yield "+32"
        case Fence(), "space" if effect.order is Order.ASYNC_PROXY:
            yield from (x for x in FenceSpace if x is not value)
        case Fence(), "order":
            yield from (x for x in Order if x is not value and (effect.region is None or "TENSORMAP" in x.name))
        case (_, "parity" | "by") if isinstance(value, Expr):
            yield 1 - value
        case Strong(), "value" if isinstance(value, Expr):
            yield value + 1
        case (Strong() | MemoryFence(), "scope"):
            yield Scope.CTA if value is Scope.GPU else Scope.GPU
        case Strong(), "sem" | "does":
            yield from (x for x in type(value) if x is not value)
        case (Signal(), "release") | (Sync(), "scope") if isinstance(value, Enum):
            yield from (x for x in type(value) if x is not value)
        case ((Await() | BarrierLife() | TensorLife() | Signal()), _) if isinstance(value, bool):
            yield not value
        case Pool(), _:
            yield "+8"
        case _ if isinstance(value, Queue):
            yield from (x for x in QUEUES if x is not value)
        case _, "ranks" if value:
            yield ()
        case _:
            pass


@contextmanager
def altered(alteration: Alteration) -> Iterator[None]:
    """The effects of a class while they are altered; a property comes before what ops remember."""
    original = alteration.op.__dict__["effects"]
    compute = original.compute
    alteration.op.effects = property(lambda op: alteration.alter(compute(op)))  # type: ignore[assignment]
    try:
        yield
    finally:
        alteration.op.effects = original


# -- protocols ---------------------------------------------------------------------------------------------------------
def extra() -> Iterator[tuple[str, Protocol]]:
    """Small protocols about what the others leave open: parts of threads, what bulk stores write, descriptors, relaxed
    joins of a cluster. Some are right, some are wrong."""
    for one, two in product((False, True), repeat=2):
        yield f"private {one} {two}", _one_role(lambda b, r, x=one, y=two: _private(b, r, x, y))
    for first, second, wait in product((False, True), (False, True), (None, False, True)):
        yield f"stored {first} {second} {wait}", _one_role(lambda b, r, x=(first, second, wait): _stored(b, r, *x))
    for missing in range(5):
        yield f"descriptor {missing}", _one_role(lambda b, r, x=missing: _rewritten(b, r, x))
    for missing in range(8):
        yield f"tensor memory {missing}", _one_role(lambda b, r, x=missing: _tensor(b, r, x))
    for release in (False, True):
        yield f"cluster {release}", _cluster(release)
    for scopes in product((Scope.CTA, Scope.CLUSTER), repeat=2):
        for how in ("arrive", "relaxed", "expecting", "waiting relaxed", "peeking"):
            yield f"peer {how} {scopes[0].value} {scopes[1].value}", _peer(how, *scopes)
    for sem, scope in product(Sem, (Scope.CTA, Scope.GPU)):
        for fences in product((None, Scope.CTA, Scope.GPU), repeat=2) if sem is Sem.RELAXED else [(None, None)]:
            yield f"drawn {sem.value} {scope.value} {fences}", _drawn(sem, scope, *fences)
    for written, read in product((Sem.RELAXED, Sem.RELEASE), (Sem.RELAXED, Sem.ACQUIRE)):
        for stored, least in product((False, True), (1, 2)):
            scopes = list(product((Scope.CTA, Scope.GPU), repeat=2)) if least == 1 else [(Scope.GPU, Scope.GPU)]
            for mine, theirs in scopes:
                words = f"{written.value} {read.value} {mine.value} {theirs.value} {stored} {least}"
                yield f"signed {words}", _signed(written, read, mine, theirs, stored, least)


def _one_role(write: Callable[[Build, RoleBuilder], None]) -> Protocol:
    b = Build("extra")
    with b.role("r", 32) as r:
        write(b, r)
    return b.protocol()


def _private(b: Build, r: RoleBuilder, one: bool, two: bool) -> None:
    x = b.buffer("x", 64)
    r.all(ops.Write(x.whole, one))
    r.all(ops.Read(x.whole, two))


def _stored(b: Build, r: RoleBuilder, first: bool, second: bool, wait: bool | None) -> None:
    """Two stores (or reductions) to the same bytes, which are then read; ``wait``: for the sources alone, or none."""
    x, out = b.buffer("x", 64, initialised=True), b.buffer("out", 64, Space.GLOBAL)
    for reduce in (first, second):
        r.one(ops.TmaStore(x.whole, out.whole, reduce=reduce))
        r.one(ops.BulkCommit())
    if wait is not None:
        r.one(ops.BulkWait(0, wait))
        r.one(ops.Read(out.whole))
    r.one(ops.BulkWait(0))


def _rewritten(b: Build, r: RoleBuilder, missing: int) -> None:
    """A store through a rewritten descriptor, which is then rewritten again; one step may be missing."""
    x, tensormap = b.buffer("x", 64, initialised=True), b.buffer("map", 128, Space.GLOBAL)
    written = [ops.TensormapRelease(tensormap.whole), ops.TensormapAcquire(tensormap.whole)]
    kept: list[ops.Op] = [op for i, op in enumerate(written, 1) if i != missing]
    kept += [ops.TmaStore(x.whole, None, tensormap.whole), ops.BulkCommit()]
    kept += [ops.BulkWait(0, read=True)] if missing != 3 else []
    for op in (ops.TensormapReplace(tensormap.whole), *kept, ops.TensormapReplace(tensormap.whole), ops.BulkWait(0)):
        r.one(op)


def _tensor(b: Build, r: RoleBuilder, missing: int) -> None:
    """Stores and loads of tensor memory by one warp, and a product from it; one step may be missing."""
    acc, x, full = b.buffer("acc", 64, Space.TMEM), b.buffer("x", 64, initialised=True), b.mbarrier("full")
    written = [ops.Tcgen05WaitSt(), ops.Tcgen05Ld(acc.whole), ops.Tcgen05WaitLd(), ops.Tcgen05FenceBefore()]
    b.init(r)
    r.all(ops.Tcgen05Alloc("acc"))
    r.all(ops.WarpSync())
    r.all(ops.Tcgen05Relinquish())
    r.all(ops.Tcgen05St(acc.whole))
    for i, op in enumerate(written, 1):
        if i != missing:
            r.all(op)
    r.all(ops.WarpSync())
    for i, op in enumerate((ops.Tcgen05FenceAfter(), ops.Tcgen05Mma(acc.whole, (x.whole,))), 5):
        if i != missing:
            r.one(op)
    r.one(ops.Tcgen05Commit(full[0]))
    r.all(ops.Wait(full[0], ops.ZERO))
    r.all(ops.WarpSync())
    if missing == 7:
        b.buffer("more", 32, Space.TMEM, offset=64)
        r.all(ops.Tcgen05Alloc("more"))
        r.all(ops.Tcgen05Dealloc("more"))
    r.all(ops.Tcgen05Dealloc("acc"))


def _cluster(release: bool) -> Protocol:
    """One CTA writes bytes of the other, which reads them behind a join that may be relaxed."""
    b = Build("extra", cluster=2)
    x = b.buffer("x", 64)
    with b.role("r", 1) as r:
        b.sync(r)
        with r.when(sym("cta").eq(0)):
            r.all(ops.Write(x.at(0, 64, 1)))
        r.all(ops.ClusterArrive(release))
        r.all(ops.ClusterWait())
        with r.when(sym("cta").eq(1)):
            r.all(ops.Read(x.whole))
        b.sync(r)
    return b.protocol()


def _peer(how: str, arriving: Scope, waiting: Scope) -> Protocol:
    """One CTA writes bytes of the other and arrives on its barrier; the other waits, and reads."""
    b = Build("extra", cluster=2)
    x, full = b.buffer("x", 64), b.mbarrier("full")
    with b.role("r", 1) as r:
        b.init(r)
        with r.when(sym("cta").eq(0)):
            r.all(ops.Write(x.at(0, 64, 1)))
            if how == "expecting":
                r.all(ops.ArriveExpectTx(full.of(1), 0, arriving))
            else:
                r.all(ops.Arrive(full.of(1), scope=arriving, release=how != "relaxed"))
        with r.when(sym("cta").eq(1)):
            if how == "peeking":
                r.all(ops.TestWait(full[0], ops.ZERO, waiting, acquire=False))
            r.all(ops.Wait(full[0], ops.ZERO, waiting, how != "waiting relaxed", peeked=how == "peeking"))
            r.all(ops.Read(x.whole))
        b.sync(r)
    return b.protocol()


def _drawn(sem: Sem, scope: Scope, before: Scope | None, behind: Scope | None) -> Protocol:
    """Two CTAs of a grid write; who draws the last ticket reads what both wrote. Fences may stand around the draw."""
    b = Build("extra", grid=2)
    x, done = b.buffer("x", 32, Space.GLOBAL), b.counter("done", reset=True)
    cell, ticket = b.ticket("ticket")
    with b.role("r", 1) as r:
        r.all(ops.Write(x.at(sym("cta") * 16, 16)))
        for op in (before, ops.AtomAdd(done[0], 1, cell, sem, scope), behind):
            if op is not None:
                r.all(ops.FenceAcqRel(op) if isinstance(op, Scope) else op)
        with r.when(ticket.eq(1)):
            r.all(ops.Read(x.whole))
    return b.protocol()


def _signed(written: Sem, read: Sem, mine: Scope, theirs: Scope, stored: bool, least: int) -> Protocol:
    """The first of two CTAs writes bytes and sets a flag, or adds to a counter; the second waits for it and reads. A
    flag it sets back."""
    b = Build("extra", grid=2, resident=2)
    x, flag = b.buffer("x", 16, Space.GLOBAL), b.counter("flag", reset=not stored)
    with b.role("r", 1) as r:
        with r.when(sym("cta").eq(0)):
            r.all(ops.Write(x.whole))
            r.all(ops.FlagStore(flag[0], 1, written, mine) if stored else ops.AtomAdd(flag[0], 1, None, written, mine))
        with r.when(sym("cta").eq(1)):
            r.all(ops.SpinWait(flag[0], ops.Const(least), read, theirs))
            r.all(ops.Read(x.whole))
            if stored:
                r.all(ops.FlagStore(flag[0], 0, Sem.RELAXED, theirs))
    return b.protocol()


def pool(count: int, each: int) -> Iterator[tuple[str, Protocol]]:
    """All protocols: those of this campaign, of the others with ``each`` mutants of each, and as many drawn."""
    yield from extra()
    for name, p in everything().items():
        yield name, p
        found = [(word, m) for word, m in mutants(name, p) if not any(problems(m))]
        yield from Random(name).sample(found, min(each, len(found)))
    for one in map(drawn, range(count)):
        if one is not None:
            yield one


def cases(found: Iterable[tuple[str, Protocol]]) -> list[Case]:
    """The protocols of which the model checker has a settled opinion, small ones first."""
    out: list[Case] = []
    for name, p in found:
        if sum(1 for role in p.roles for _ in steps(role.body)) <= MOST_STEPS:
            judged = opinion(p, STATES, 0)[0]
            if judged != "open":
                out.append(Case(name, p, judged, answers(p, RUNS)))
    return sorted(out, key=lambda c: sum(1 for role in c.protocol.roles for _ in steps(role.body)))


def samples(found: Iterable[Case]) -> dict[type[ops.Op], list[ops.Op]]:
    """The ops in the protocols, by class."""
    out: dict[type[ops.Op], list[ops.Op]] = {}
    for case in found:
        for role in case.protocol.roles:
            for step in steps(role.body):
                out.setdefault(type(step.op), []).append(step.op)
    return out


def shown(alteration: Alteration, found: Iterable[Case]) -> str:
    """How a protocol shows the alteration; empty if none does."""
    asked = [case for case in found if case.bears(alteration)][:MOST_ASKED]
    with altered(alteration):
        return next(filter(None, map(at_odds, asked)), "")


def at_odds(case: Case) -> str:
    """How a prover contradicts the model checker; empty if none does."""
    try:
        graph, runs = answers(case.protocol, RUNS)
    except Exception as error:  # an engine that an effect brings down has noticed it
        return f"{type(error).__name__} on {case.name}"
    for who, before, now in zip(("event graph", "canonical runs"), case.proved, (graph, runs), strict=True):
        if case.opinion == "bad" and now:
            return f"{who} prove what is bad: {case.name}"
        if case.opinion == "good" and before and not now:
            return f"{who} prove no more what is good: {case.name}"
    return ""


def main() -> None:
    """Prints what was found for each alteration, survivors last."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--drawn", type=int, default=400)
    parser.add_argument("--each", type=int, default=4)
    args = parser.parse_args()
    begun = time.process_time()
    found = cases(pool(args.drawn, args.each))
    print(f"{len(found)} protocols, {round(time.process_time() - begun)} s", flush=True)
    rows: list[dict[str, str]] = []
    for alteration in alterations(samples(found)):
        if args.only in ("", alteration.op.__name__):
            words = shown(alteration, found)
            rows.append({"op": alteration.op.__name__, "altered": alteration.what, "shown": words})
            if not words:
                print(f"SURVIVES {alteration.op.__name__}: {alteration.what}", flush=True)
    left = [row for row in rows if not row["shown"]]
    print(f"{len(rows)} alterations, {len(left)} not shown by any protocol, {round(time.process_time() - begun)} s")
    if args.json:
        args.json.write_text(json.dumps({"protocols": len(found), "alterations": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
