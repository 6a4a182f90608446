"""Random small protocols of the newer forms: neither way to prove may prove what the model checker breaks.

    python tools/random_agree.py [--count N] [--seed N] [--seconds N] [--family NAME] [--json FILE]

Three families, drawn alike: clusters of two CTAs (remote reads, writes and arrivals, copies between CTAs, joins of the
cluster), one CTA with tensor memory, descriptors, commits, cp.async and fences of every space, and rings of two or four
stages between a producer of ``2 n`` turns and consumers of ``n``. Others are drawn with ``--family``: ``grid`` of two
or three CTAs with counters in global memory, ``meetings`` of theirs, ``handed`` numbers once a turn, ``parts`` added in
a cluster's shared memory, rings of ``accumulators`` in tensor memory. Each is a right protocol with up to three
changes, or none: an op dropped, doubled, moved, put in the place of another one, or drawn anew. The judge is the
model checker: all interleavings at 0 to 3 turns.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parent))

from agree import answers
from tilewright.base.expr import Const as C
from tilewright.base.expr import Expr, sym
from tilewright.diag import TilewrightError
from tilewright.hw.spaces import Space
from tilewright.protocol import Build, Protocol, RoleBuilder
from tilewright.protocol import ops as o
from tilewright.protocol.model import By
from tilewright.protocol.well_formed import problems
from tilewright.verify.model_checker import exhaust

RANK = sym("cta")
MAX_STATES = 1_500
MAX_RUNS = 150
"""Decision points of the canonical runs: rings of random use seldom need many."""

Letter = tuple[By, o.Op, int | Expr | None]
"""A step, and the CTA that executes it (None: all), or the condition under which they do."""


def _changed(right: list[Letter], letters: list[Letter], rng: Random) -> list[Letter]:
    """The word with up to three changes."""
    word = list(right)
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        if not word:
            break
        i, j = rng.randrange(len(word)), rng.randrange(len(word))
        match rng.randrange(5):
            case 0:
                del word[i]
            case 1:
                word.insert(j, word[i])
            case 2:
                word.insert(j, word.pop(i))
            case 3:
                word[i] = rng.choice(letters)
            case _:
                word.insert(i, rng.choice(letters))
    return word


def _written(r: RoleBuilder, word: list[Letter]) -> None:
    for by, op, cta in word:
        execute = r.all if by is By.ALL else r.one
        if cta is None:
            execute(op)
        else:
            with r.when(RANK.eq(cta) if isinstance(cta, int) else cta):
                execute(op)


def cluster(rng: Random) -> Protocol:
    """Two CTAs of one warp: a peer's bytes and barrier are used, then the cluster meets."""
    b = Build("cluster", cluster=2)
    x, y = b.buffer("x", 16, initialised=True), b.buffer("y", 16, initialised=rng.random() < 0.5)
    full = b.mbarrier("full")
    join: list[Letter] = [(By.ALL, o.ClusterArrive(), None), (By.ALL, o.ClusterWait(), None)]
    wait: Letter = (By.ALL, o.Wait(full[0], C(0), o.Scope.CLUSTER), 1)
    bodies: list[list[Letter]] = [
        [(By.ELECTED, o.ArriveExpectTx(full[0], 16), 1),
         (By.ELECTED, o.DsmemCopy(x.whole, y.at(0, 16, 1), full.of(1)), 0), wait, (By.ALL, o.Read(y.whole), 1)],
        [(By.ELECTED, o.Write(y.at(0, 16, 1)), 0), (By.ELECTED, o.Arrive(full.of(1), scope=o.Scope.CLUSTER), 0), wait,
         (By.ALL, o.Read(y.whole), 1)],
        [(By.ELECTED, o.Write(y.at(0, 16, 1)), 0), *join, (By.ALL, o.Read(y.whole), 1)],
        [(By.ALL, o.Read(x.at(0, 16, 1 - RANK)), None)],
        [(By.ELECTED, o.ArriveExpectTx(full[0], 16), None),
         (By.ELECTED, o.TmaLoad(y.whole, full[0], (C(0), C(1))), 0), (By.ALL, o.Wait(full[0], C(0)), None),
         (By.ALL, o.Read(y.whole), None)],
    ]  # fmt: skip
    right: list[Letter] = [
        (By.ELECTED, o.MbarrierInit("full"), None), (By.ELECTED, o.FenceMbarrierInit(), None), *join,
        *rng.choice(bodies), *join,
    ]  # fmt: skip
    letters = [*right, *(x for body in bodies for x in body), (By.ALL, o.FenceProxyAsync(), None)]
    letters += [(By.ALL, o.Wait(full.of(0), C(0)), 1), (By.ELECTED, o.ExpectTx(full.of(1), 16), 0)]
    letters += [(By.ELECTED, o.DsmemCopy(x.whole, y.at(0, 16, 1), full.of(0)), 0)]
    with b.role("r", 32) as r:
        _written(r, _changed(right, letters, rng))
    return b.protocol()


def one_cta(rng: Random) -> Protocol:
    """Two warps: one issues, the other one uses what was issued."""
    b = Build("one")
    sizes = rng.choice(((64, 64), (256, 256), (512, 32), (256, 512), (96, 32), (64, 32)))
    acc = b.buffer("acc", sizes[0], Space.TMEM, offset=0)
    b.buffer("more", sizes[1], Space.TMEM, offset=0)
    x, y = b.buffer("x", 64, initialised=True), b.buffer("y", 64)
    tensormap, out = b.buffer("map", 128, Space.GLOBAL), b.buffer("out", 64, Space.GLOBAL)
    count = rng.choice((1, 1, 32))
    full = b.mbarrier("full", count=count)
    space = rng.choice(list(o.FenceSpace))
    one, everyone = By.ELECTED, By.ALL
    bodies: list[tuple[list[Letter], list[Letter]]] = [
        ([(one, o.Write(y.whole), None), (one, o.FenceProxyAsync(space), None), (one, o.Arrive(full[0]), None)],
         [(one, o.Wait(full[0], C(0)), None), (one, o.TmaStore(y.whole, out.whole), None), (one, o.BulkCommit(), None),
          (one, o.BulkWait(0), None)]),
        ([(everyone, o.CpAsync(y.whole), None), (everyone, o.CpAsyncArrive(full[0]), None)],
         [(everyone, o.Wait(full[0], C(0)), None), (everyone, o.Read(y.whole), None)]),
        ([(one, o.Write(out.whole), None), (one, o.FenceProxyAsync(space), None), (one, o.Arrive(full[0]), None)],
         [(one, o.Wait(full[0], C(0)), None), (one, o.TmaStore(x.whole, out.whole), None), (one, o.BulkCommit(), None),
          (one, o.BulkWait(0), None)]),
        ([(one, o.TensormapReplace(tensormap.whole), None), (one, o.TensormapRelease(tensormap.whole), None),
          (one, o.TensormapAcquire(tensormap.whole), None),
          (one, o.TmaStore(x.whole, out.whole, tensormap.whole), None), (one, o.BulkCommit(), None),
          (one, o.BulkWait(0, True), None), (one, o.TensormapReplace(tensormap.whole), None),
          (one, o.BulkWait(0), None)], []),
        ([(everyone, o.Tcgen05Alloc("acc"), None), (one, o.Tcgen05Mma(acc.whole, (x.whole,)), None),
          (one, o.Tcgen05Commit(full[0]), None), (one, o.Wait(full[0], C(0)), None), (everyone, o.WarpSync(), None),
          (everyone, o.Tcgen05Dealloc("acc"), None), (everyone, o.Tcgen05Alloc("more"), None),
          (everyone, o.Tcgen05Dealloc("more"), None)], []),
        ([(one, o.Write(y.whole), None), (one, o.Arrive(full[0]), None)],
         [(everyone, o.Wait(full[0], C(0)), None), (everyone, o.Read(y.whole), None)]),
    ]  # fmt: skip
    a, c = rng.choice(bodies)
    letters = [letter for body in bodies for half in body for letter in half]
    letters += [
        (everyone, o.BarSync(C(rng.choice((1, 15, 16))), 64), None),
        (everyone, o.CtaSync(), None),
        (everyone, o.WarpSync(), None),
    ]
    with b.role("a", 32) as r:
        b.init(r)
        _written(r, _changed(a, letters, rng))
    with b.role("c", 32) as r:
        b.sync(r)
        _written(r, _changed(c, letters, rng))
    return b.protocol()


def groups(rng: Random) -> Protocol:
    """A producer of 2 n turns, two consumers of n; or one of them, with counts behind the loop."""
    b = Build("groups")
    n = b.symbol("n", least=rng.choice((0, 0, 1)))
    slots = rng.choice((2, 4))
    ring = b.pipeline("x", slots, 64, consumers=1)

    def off(e: Expr) -> Expr:
        return e + rng.choice((0, 0, 0, 0, 0, 1, -1, 2))

    with b.role("p", 32) as p:
        b.init(p)
        body: list[Letter] = []
        with p.loop("k", rng.choice((n * 2, n * 2, n * 2, n, n * 2 + 1))) as k:
            at = off(k)
            body = [
                (By.ELECTED, ring.producer_acquire(at), None),
                (By.ELECTED, ring.producer_commit(k), None),
                (By.ELECTED, ring.load(k), None),
            ]
            _written(p, _changed(body, body, rng) if rng.random() < 0.3 else body)
        if rng.random() < 0.3:
            last = off(n * 2 + 2 * slots - 1)
            with p.when(n > 0):
                p.one(o.Wait(ring.empty[last % slots], (last // slots) % 2))
    for i in (0, 1):
        if rng.random() < 0.05:
            continue
        with b.role(f"c{i}", 32) as c:
            b.sync(c)
            with c.loop("j", n) as j:
                stage, lap = j * 2 + i, (off(j * 2 + i) if rng.random() < 0.3 else j * 2 + i) // slots
                if slots == 4 and rng.random() < 0.5:
                    lap = j // 2
                body = [
                    (By.ELECTED, o.Wait(ring.full[stage % slots], lap % 2), None),
                    (By.ELECTED, o.Read(ring.stage(stage)), None),
                    (By.ELECTED, o.FenceProxyAsync(rng.choice((o.FenceSpace.ALL, o.FenceSpace.SHARED))), None),
                    (By.ELECTED, o.Arrive(ring.empty[off(stage) % slots]), None),
                ]  # fmt: skip
                _written(c, _changed(body, body, rng) if rng.random() < 0.3 else body)
    return b.protocol()


def grid(rng: Random) -> Protocol:
    """CTAs of one warp that tell each other by counters what is done."""
    ctas = rng.choice((2, 2, 3))
    b = Build("grid", grid=ctas, resident=rng.choice((1, 1, 2, ctas)))
    x, y = b.buffer("x", 16, initialised=True), b.buffer("g", 16 * ctas, Space.GLOBAL)
    n = b.counter("n", 3, reset=rng.random() < 0.8)
    cell, ticket = b.ticket("ticket")
    one, everyone, last, mine = By.ELECTED, By.ALL, ticket.eq(ctas - 1), y.at(RANK * 16, 16)
    sync: Letter = (everyone, o.CtaSync(), None)
    sems, scopes = list(o.Sem), (o.Scope.GPU, o.Scope.GPU, o.Scope.GPU, o.Scope.CTA)
    write, read = (everyone, o.Write(mine), None), (everyone, o.Read(y.whole), last)
    own = (everyone, o.Write(y.at(0, 16), private=True), None)
    fence: Letter = (one, o.FenceAcqRel(rng.choice(scopes)), None)
    add: Letter = (one, o.AtomAdd(n[0], 1, cell), None)
    loose: Letter = (one, o.AtomAdd(n[0], 1, cell, o.Sem.RELAXED), None)
    bodies: list[list[Letter]] = [
        [write, sync, add, sync, read],
        [write, sync, fence, loose, fence, sync, read],
        [write, sync, add, sync, read, (one, o.FlagStore(n[0], 0, rng.choice(sems[::2])), last)],
        [loose, (one, o.SpinWait(n[1], ticket), None), sync, own, sync,
         (one, o.AtomAdd(n[1], sem=o.Sem.RELEASE), None)],
        [(one, o.SpinWait(n[RANK - 1], C(1)), RANK > 0), sync, own, sync, (one, o.FlagStore(n[RANK], 1), None)],
        [write, sync, (one, o.AtomAdd(n[0], sem=o.Sem.RELEASE), None), (one, o.SpinWait(n[0], C(ctas)), None), sync,
         (everyone, o.Read(y.whole), None)],
        [loose, sync, (everyone, o.Write(y.at(ticket * 16, 16)), ticket < ctas), sync, loose, sync,
         (everyone, o.Write(y.at(ticket * 16, 16)), ticket < ctas), sync],
        [(one, o.TmaStore(x.whole, mine), None), (one, o.BulkCommit(), None), (one, o.BulkWait(0), None), add, sync,
         read],
        [write, (everyone, o.FenceProxyAsync(), None), sync, add, sync,
         (one, o.TmaStore(x.whole, y.at(0, 16), reduce=rng.random() < 0.5), last), (one, o.BulkCommit(), last),
         (one, o.BulkWait(0), last)],
        [(everyone, o.Write(y.at(0, 16)), 0), sync, fence, (one, o.FlagStore(n[0], 1, o.Sem.RELAXED), 0),
         (one, o.SpinWait(n[0], C(1), o.Sem.RELAXED), RANK > 0), fence, sync,
         (everyone, o.Read(y.at(0, 16)), RANK > 0)],
    ]  # fmt: skip
    letters = [*(letter for body in bodies for letter in body), sync, (everyone, o.WarpSync(), None)]
    letters += [(one, o.AtomAdd(n[0], 1, cell, sem, rng.choice(scopes)), None) for sem in sems]
    letters += [(one, o.SpinWait(n[0], C(k), rng.choice(sems[:2]), rng.choice(scopes)), None) for k in (1, 2)]
    letters += [(one, o.FlagStore(n[0], rng.choice((0, 1, 2)), rng.choice(sems[::2]), rng.choice(scopes)), None)]
    with b.role("r", 32) as r:
        _written(r, _changed(rng.choice(bodies), letters, rng))
    return b.protocol()


def meetings(rng: Random) -> Protocol:
    """CTAs of a grid that meet twice, in two words or one, and hand on bytes each time."""
    ctas = rng.choice((2, 2, 3))
    b = Build("meetings", grid=ctas, resident=rng.choice((ctas, ctas, ctas, 1)))
    x, n = b.buffer("x", 16 * ctas, Space.GLOBAL), b.counter("n", 2, reset=True)
    one, everyone, sems = By.ELECTED, By.ALL, list(o.Sem)
    sync: Letter = (everyone, o.CtaSync(), None)
    write: Letter = (everyone, o.Write(x.at(RANK * 16, 16)), None)
    read: Letter = (everyone, o.Read(rng.choice((x.whole, x.at((RANK + 1) % ctas * 16, 16)))), None)
    fence: Letter = (one, o.FenceAcqRel(), None)
    second, least = rng.choice(((0, 2 * ctas), (1, ctas)))

    def meet(word: int, least: int) -> list[Letter]:
        alone: Letter = (one, o.SpinWait(n[word], C(least)), None)
        if rng.random() < 0.3:
            relaxed: Letter = (one, o.SpinWait(n[word], C(least), o.Sem.RELAXED), None)
            return [sync, fence, (one, o.AtomAdd(n[word], sem=o.Sem.RELAXED), None), relaxed, fence, sync]
        return [sync, (one, o.AtomAdd(n[word], sem=o.Sem.RELEASE), None), alone, sync]

    right = [write, *meet(0, ctas), read, *meet(second, least), rng.choice((write, read))]
    scopes = (o.Scope.GPU, o.Scope.GPU, o.Scope.CTA)
    letters = [*right, (one, o.SpinWait(n[0], C(rng.randrange(2 * ctas)), rng.choice(sems[:2])), None)]
    letters += [(one, o.AtomAdd(n[rng.randrange(2)], sem=rng.choice(sems[::2]), scope=rng.choice(scopes)), None)]
    letters += [(one, o.SpinWait(n[rng.randrange(2)], C(k), scope=rng.choice(scopes)), None) for k in (1, ctas)]
    letters += [(one, o.FlagStore(n[0], rng.choice((0, 1, ctas))), None), (everyone, o.Read(x.whole), RANK.eq(0))]
    with b.role("r", 32) as r:
        _written(r, _changed(right, letters, rng))
    return b.protocol()


def handed(rng: Random) -> Protocol:
    """A number that one thread writes once a turn for the threads of another warp, as of programs that are drawn."""
    b = Build("handed")
    n = b.symbol("n", least=rng.choice((0, 0, 1)))
    slot, other = b.buffer("next", 4), b.buffer("other", 4)
    full, empty = b.mbarrier("full"), b.mbarrier("empty", count=rng.choice((32, 32, 32, 1)))
    one, everyone = By.ELECTED, By.ALL

    def off(e: Expr) -> Expr:
        return e + rng.choice((0, 0, 0, 0, 0, 0, 1))

    with b.role("p", 32) as p:
        b.init(p)
        with p.loop("k", n) as k:
            body: list[Letter] = [
                (one, o.Wait(empty[0], off(k + 1) % 2), None),
                (one, o.Write(rng.choice((slot, slot, slot, other)).whole), None),
                (one, o.Read(slot.whole), None),
                (one, o.Arrive(full[0]), None),
            ]
            _written(p, _changed(body, [*body, (everyone, o.WarpSync(), None)], rng))
    with b.role("c", 32) as c:
        b.sync(c)
        with c.loop("j", rng.choice((n, n, n, n, n + 1))) as j:
            by = rng.choice((everyone, everyone, everyone, one))
            body = [
                (everyone, o.Wait(full[0], off(j) % 2), None),
                (everyone, o.Read(slot.whole), None),
                (by, o.Arrive(empty[0]), None),
            ]
            _written(c, _changed(body, [*body, (everyone, o.WarpSync(), None)], rng))
    return b.protocol()


def parts(rng: Random) -> Protocol:
    """Two CTAs leave parts in their shared memory, meet, and read those of both."""
    b = Build("parts", cluster=2)
    n = b.symbol("n", least=rng.choice((0, 1)))
    x = b.buffer("x", 32)
    everyone = By.ALL
    join: list[Letter] = [
        (everyone, o.ClusterArrive(release=rng.random() > 0.1), None), (everyone, o.ClusterWait(), None),
    ]  # fmt: skip
    own, peer = (x.at(16 * rank, 16, rank) for rank in (RANK, 1 - RANK))
    turn: list[Letter] = [
        (everyone, o.Write(x.whole), None), *join, (everyone, o.Read(own), None),
        (everyone, o.Read(rng.choice((peer, x.at(16 * RANK, 16, 1 - RANK)))), None), *join,
    ]  # fmt: skip
    letters = [*turn, (By.ELECTED, o.Write(x.at(0, 16)), None), (everyone, o.CtaSync(), None)]
    with b.role("r", 32) as r:
        if rng.random() < 0.5:
            _written(r, _changed(turn, letters, rng))
        else:
            with r.loop("k", n):
                _written(r, _changed(turn, letters, rng))
    return b.protocol()


def accumulators(rng: Random) -> Protocol:
    """One warp multiplies into tensor memory, another one loads what it has finished."""
    b = Build("accumulators")
    n = b.symbol("n", least=rng.choice((0, 1)))
    acc = b.buffer("acc", 64, Space.TMEM, offset=0)
    x = b.buffer("x", 64, initialised=True)
    full, empty = b.mbarrier("full"), b.mbarrier("empty", count=32)
    one, everyone = By.ELECTED, By.ALL
    with b.role("mma", 32) as p:
        p.all(o.Tcgen05Alloc("acc"))
        b.init(p)
        with p.loop("k", n) as k:
            body: list[Letter] = [
                (one, o.Wait(empty[0], (k + 1) % 2), None), (one, o.Tcgen05FenceAfter(), None),
                (one, o.Tcgen05Mma(acc.whole, (x.whole,)), None), (one, o.Tcgen05Commit(full[0]), None),
            ]  # fmt: skip
            _written(p, _changed(body, body, rng))
        tail: list[Letter] = [(everyone, o.CtaSync(), None), (everyone, o.Tcgen05Dealloc("acc"), None)]
        _written(p, tail if rng.random() < 0.8 else _changed(tail, tail, rng))
    with b.role("out", 32) as c:
        b.sync(c)
        with c.loop("j", n) as j:
            body = [
                (everyone, o.Wait(full[0], j % 2), None), (everyone, o.Tcgen05FenceAfter(), None),
                (everyone, o.Tcgen05Ld(acc.whole), None), (everyone, o.Tcgen05WaitLd(), None),
                (everyone, o.Tcgen05FenceBefore(), None), (everyone, o.Arrive(empty[0]), None),
            ]  # fmt: skip
            _written(c, _changed(body, body, rng))
        c.all(o.CtaSync())
    return b.protocol()


FAMILIES: tuple[Callable[[Random], Protocol], ...] = (cluster, one_cta, groups)

APART: tuple[Callable[[Random], Protocol], ...] = (grid, meetings, handed, parts, accumulators)
"""Families that are drawn when asked for, so that the numbers of the others stay what they were."""


def drawn(seed: int, only: str = "") -> tuple[str, Protocol] | None:
    """The protocol of a number, of ``FAMILIES`` or ``only`` one; None where it has no good form."""
    rng = Random(seed)
    family = rng.choice([f for f in (*FAMILIES, *APART) if f.__name__ == only] if only else FAMILIES)
    try:
        found = family(rng)
    except TilewrightError:
        return None
    return None if any(problems(found)) else (family.__name__, found)


def opinion(protocol: Protocol) -> str:
    """'bad', 'good' or 'open', by the model checker."""
    complete = True
    for turns in (2, 3, 1, 0) if protocol.symbols else (0,):
        found = exhaust(
            protocol, lambda name, at, turns=turns: max(turns, protocol.symbols[0].least), max_states=MAX_STATES
        )
        if found.finding is not None:
            return "bad"
        complete &= found.complete
    return "good" if complete else "open"


def main() -> None:
    """Prints disagreements and the figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0)
    parser.add_argument("--family", default="", choices=["", *(f.__name__ for f in (*FAMILIES, *APART))])
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    table: Counter[tuple[str, str, str]] = Counter()
    begun, crashes, asked, seen = time.monotonic(), 0, 0, set[int]()
    for number in range(args.seed * 10**9, args.seed * 10**9 + 100 * args.count):
        if asked >= args.count or (args.seconds and time.monotonic() - begun > args.seconds):
            break
        found = drawn(number, args.family)
        if found is None or hash(found[1]) in seen:
            continue
        family, protocol = found
        seen.add(hash(protocol))
        asked += 1
        try:
            graph, runs = answers(protocol, MAX_RUNS)
            judge = opinion(protocol)
        except Exception as error:
            crashes += 1
            print(f"CRASH {number}: {type(error).__name__}: {error}", flush=True)
            continue
        verdict = "graph" if graph else "runs" if runs else "not proved"
        table[family, verdict, judge] += 1
        if judge == "bad" and (graph or runs):
            print(f"PROVED AND BAD {number} by {verdict}", flush=True)
    bad = sum(v for (_, verdict, judge), v in table.items() if judge == "bad" and verdict != "not proved")
    print(asked, "protocols,", bad, "proved and bad,", crashes, "crashes;", dict(sorted(table.items())))
    if args.json:
        found = {
            "command": f"python tools/random_agree.py --count {args.count} --seed {args.seed}"
            + (f" --family {args.family}" if args.family else ""),
            "python": platform.python_version(),
            "protocols": asked,
            "proved_and_bad": bad,
            "crashes": crashes,
            "table": [{"family": f, "proved_by": v, "judge": j, "count": n} for (f, v, j), n in sorted(table.items())],
        }
        args.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
