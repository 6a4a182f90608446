"""Right protocols in many forms: pipelines by parameters, and changes that keep a right protocol right."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from random import Random

from campaign.operators import expressions
from tilewright.base.expr import Const, Expr, minimum, sym
from tilewright.hw.spaces import Space
from tilewright.protocol import Build, PipelineHandle, Protocol, RoleBuilder
from tilewright.protocol import ops as o
from tilewright.protocol.edit import Insertion, NodePath, inserted, rewritten, spots
from tilewright.protocol.model import By, If, Loop, Node, Step
from tilewright.protocol.well_formed import problems

STYLES = ("generic", "wgmma", "delayed")


def pipeline(rings: int, stages: int, consumers: int, persistent: bool, style: str, store: bool) -> Protocol:
    """A producer warpgroup fills ``rings`` rings, ``consumers`` warpgroups use all of them.

    ``style`` says how they read and when they release; ``store``: each writes a tile back at the end.
    """
    b = Build("pipeline")
    tiles = b.symbol("tiles") if persistent else None
    kt = b.symbol("kt", per="t" if persistent else None)
    counts = 128 * consumers if style == "generic" else consumers
    made = [b.pipeline(f"r{i}", stages, 1024 * (i + 1), consumers=counts) for i in range(rings)]
    acc = b.buffer("acc", 64, Space.REGISTER)
    out = [b.buffer(f"out{w}", 2048) for w in range(consumers)]
    with b.role("producer", 128) as p:
        b.init(p)
        g = p.counter("g")
        for _ in _tiles(p, tiles):
            with p.loop("k", kt):
                for ring in made:
                    p.one(ring.producer_acquire(g))
                    p.one(ring.producer_commit(g))
                    p.one(ring.load(g))
                p.advance(g)
    for w in range(consumers):
        with b.role(f"consumer{w}", 128) as c:
            b.sync(c)
            g = c.counter("g")
            for _ in _tiles(c, tiles):
                with c.loop("k", kt) as k:
                    _use(c, made, acc.whole, style, g, k)
                    c.advance(g)
                if style == "delayed":
                    with c.when(kt > 0):
                        c.all(o.WgmmaWait(0))
                        for ring in made:
                            c.one(ring.consumer_release(g - 1))
                if store:
                    c.one(o.BulkWait(0, read=True))
                    c.all(o.BarSync(Const(1 + w), 128))
                    c.all(o.Write(out[w].whole))
                    c.all(o.FenceProxyAsync())
                    c.all(o.BarSync(Const(1 + w), 128))
                    c.one(o.TmaStore(out[w].whole))
                    c.one(o.BulkCommit())
            if store:
                c.one(o.BulkWait(0))
    return b.protocol()


def _tiles(role: RoleBuilder, tiles: Expr | None) -> Iterator[None]:
    if tiles is None:
        yield
        return
    with role.loop("t", tiles):
        yield


def _use(c: RoleBuilder, rings: list[PipelineHandle], acc: o.Region, style: str, g: Expr, k: Expr) -> None:
    for ring in rings:
        c.all(ring.consumer_wait(g))
    if style == "generic":
        for ring in rings:
            c.all(ring.read(g))
        c.all(o.FenceProxyAsync())
        for ring in rings:
            c.all(ring.consumer_release(g))
        return
    c.all(o.WgmmaFence())
    c.all(o.Wgmma(acc, tuple(ring.stage(g) for ring in rings)))
    c.all(o.WgmmaCommit())
    if style == "delayed":
        with c.when(k > 0):
            c.all(o.WgmmaWait(1))
            for ring in rings:
                c.one(ring.consumer_release(g - 1))
        return
    c.all(o.WgmmaWait(0))
    for ring in rings:
        c.one(ring.consumer_release(g))


def pipelines() -> Iterator[tuple[str, bool, Protocol]]:
    """All parameter choices; whether one has several rings or is persistent."""
    for rings, stages, consumers, persistent, style, store in product(
        (1, 2, 3), (1, 2, 3, 4), (1, 2), (False, True), STYLES, (False, True)
    ):
        if style == "delayed" and stages == 1:
            continue  # one stage is released before the next is filled: a delayed release would never come
        name = f"{rings} rings, S={stages}, C={consumers}, {'persistent, ' * persistent}{style}{', store' * store}"
        yield name, rings > 1 or persistent, pipeline(rings, stages, consumers, persistent, style, store)


# -- changes that keep a right protocol right ----------------------------------------------------------------------
def kept(name: str, p: Protocol, seed: int) -> Iterator[tuple[str, Protocol]]:
    """Changed protocols that are right if ``p`` is; places are drawn with ``seed``."""
    rng = Random(f"{name} {seed}")
    for word, variant in (
        ("roles in reverse", replace(p, roles=p.roles[::-1])),
        ("needless fence", _put(p, rng, o.FenceProxyAsync())),
        ("needless wait twice", _waits_twice(p, rng)),
        ("needless barrier", _barrier(p, rng)),
        ("needless warp sync", _put(p, rng, o.WarpSync())),
        ("first turn peeled", _peeled(p)),
        ("loop in two halves", _split(p, lambda end: end // 2)),
        ("a ring more", _another_ring(p)),
        ("copy before expect", _copy_first(p)),
        ("expect in two", _expect_in_two(p)),
        ("copy in two", _copy_in_two(p)),
        ("counts doubled", _doubled(p)),
        ("body twice", _body_twice(p)),
        ("first three turns apart", _split(p, lambda end: minimum(end, Const(3)))),
    ):
        if variant is not None and variant != p and not any(problems(variant)):
            yield f"{name}: {word}", variant


def _put(p: Protocol, rng: Random, op: o.Op) -> Protocol | None:
    places = [(spot, step) for spot, step in spots(p) if not isinstance(step.op, o.Advance)]
    places = [(s, x) for s, x in places if p.roles[s.role].threads >= 32]
    return inserted(p, [Insertion(rng.choice(places)[0], Step(op, By.ALL))]) if places else None


def _waits_twice(p: Protocol, rng: Random) -> Protocol | None:
    """A wait that returned returns again: nobody completes the next phase before this thread goes on."""
    places = [(s, x) for s, x in spots(p) if isinstance(x.op, o.Wait) and not x.op.peeked]
    if not places:
        return None
    spot, step = rng.choice(places)
    return inserted(p, [Insertion(spot, step, behind=True)])


def _barrier(p: Protocol, rng: Random) -> Protocol | None:
    """All threads of one role meet at a barrier that nobody else uses."""
    places = [s for s, x in spots(p) if p.roles[s.role].threads >= 32 and not isinstance(x.op, o.Advance)]
    if not places:
        return None
    spot = rng.choice(places)
    return inserted(p, [Insertion(spot, Step(o.BarSync(Const(13), p.roles[spot.role].threads), By.ALL))])


def _mapped(nodes: tuple[Node, ...], change: object) -> tuple[Node, ...]:
    out: list[Node] = []
    for node in nodes:
        match node:
            case Loop():
                inner = replace(node, body=_mapped(node.body, change))
                out += change(inner)  # type: ignore[operator]
            case If():
                then, otherwise = _mapped(node.then, change), _mapped(node.otherwise, change)
                out.append(replace(node, then=then, otherwise=otherwise))
            case Step():
                out.append(node)
    return tuple(out)


def _with_loops(p: Protocol, change: object) -> Protocol:
    return replace(p, roles=tuple(replace(r, body=_mapped(r.body, change)) for r in p.roles))


def _peeled(p: Protocol) -> Protocol:
    def change(loop: Loop) -> list[Node]:
        if any(not isinstance(n, Step) for n in loop.body) or loop.step != 1 or loop.begin.constant != 0:
            return [loop]
        once = Loop(loop.counter, loop.begin, Const(1), 1, loop.body)
        return [If(loop.end > 0, (once,)), replace(loop, begin=Const(1))]

    return _with_loops(p, change)


def _split(p: Protocol, at: Callable[[Expr], Expr]) -> Protocol:
    """Each inner loop in two, the second from where the first one ends."""

    def change(loop: Loop) -> list[Node]:
        if any(not isinstance(n, Step) for n in loop.body) or loop.step != 1 or loop.begin.constant != 0:
            return [loop]
        middle = at(loop.end)
        return [replace(loop, end=middle), replace(loop, begin=middle)]

    return _with_loops(p, change)


def _body_twice(p: Protocol) -> Protocol | None:
    """Twice as many steps in each turn, in all roles, where none counts by the loop itself."""

    def change(loop: Loop) -> list[Node]:
        inner = all(isinstance(n, Step) for n in loop.body)
        return [replace(loop, body=loop.body * 2)] if inner else [loop]

    def loops(nodes: tuple[Node, ...]) -> Iterator[Loop]:
        for node in nodes:
            if isinstance(node, Loop):
                yield node
                yield from loops(node.body)
            elif isinstance(node, If):
                yield from loops(node.then + node.otherwise)

    found = [x for r in p.roles for x in loops(r.body)]
    inner = [x for x in found if not any(isinstance(n, Loop) for n in x.body)]
    if any(isinstance(n, If) for x in inner for n in x.body) or any(
        x.counter in e.symbols for x in inner for n in x.body if isinstance(n, Step) for e in expressions(n.op)
    ):
        return None
    return _with_loops(p, change)


def _copy_in_two(p: Protocol) -> Protocol:
    """Two boxes of half the size each, which land on one barrier."""

    def parts(_: NodePath, step: Step) -> tuple[Node, ...]:
        op = step.op
        if not isinstance(op, o.TmaLoad) or op.dst.size % 32:
            return (step,)
        half = op.dst.size // 2
        first, second = replace(op.dst, size=half), replace(op.dst, begin=op.dst.begin + half, size=half)
        return replace(step, op=replace(op, dst=first)), replace(step, op=replace(op, dst=second))

    return rewritten(p, parts)


def _doubled(p: Protocol) -> Protocol:
    """Every arrival counts twice, on barriers that nothing else arrives on."""
    others = {
        x.op.bar.barrier
        for _, x in spots(p)
        if isinstance(x.op, o.ArriveExpectTx | o.Tcgen05Commit | o.CpAsyncArrive | o.ExpectTx)
    }

    def twice(_: NodePath, step: Step) -> tuple[Node, ...]:
        op = step.op
        mine = isinstance(op, o.Arrive) and op.bar.barrier not in others
        return (replace(step, op=replace(op, count=2 * op.count)),) if mine else (step,)

    more = tuple(b if b.name in others else replace(b, count=2 * b.count) for b in p.barriers)
    return replace(rewritten(p, twice), barriers=more)


def _another_ring(p: Protocol) -> Protocol | None:
    """Two more roles with a ring of their own, and more steps in it than anyone else takes."""
    if p.cluster > 1 or any(isinstance(x.op, o.CtaSync) for _, x in spots(p)) is False:
        return None
    b = Build("more")
    kt = b.symbol("more_kt")
    end = max((x.offset + x.size for x in p.buffers if x.space is Space.SHARED), default=0)
    data = b.buffer("more_data", 2048, offset=end)
    full, empty = b.mbarrier("more_full", 2), b.mbarrier("more_empty", 2)
    meetings = [
        [len(s.path) for s, x in spots(p) if s.role == i and isinstance(x.op, o.CtaSync)] for i in range(len(p.roles))
    ]
    if any(depths != [1] for depths in meetings) or any(isinstance(x.op, o.Setmaxnreg) for _, x in spots(p)):
        return None
    k = sym("k")
    stage = data.at(k % 2 * 1024, 1024)
    with b.role("more_producer", 128) as r:
        r.one(o.MbarrierInit("more_full"))
        r.one(o.MbarrierInit("more_empty"))
        r.one(o.FenceMbarrierInit())
        r.all(o.CtaSync())
        with r.loop("k", kt):
            r.one(o.Wait(empty[k % 2], (k // 2 + 1) % 2))
            r.one(o.ArriveExpectTx(full[k % 2], 1024))
            r.one(o.TmaLoad(stage, full[k % 2]))
    with b.role("more_consumer", 128) as r:
        r.all(o.CtaSync())
        with r.loop("k", kt):
            r.all(o.Wait(full[k % 2], k // 2 % 2))
            r.all(o.Read(stage))
            r.all(o.FenceProxyAsync())
            r.all(o.WarpSync())
            r.all(o.BarSync(Const(14), 128))
            r.one(o.Arrive(empty[k % 2]))
    more = b.protocol()
    return replace(
        p,
        roles=(*p.roles, *more.roles),
        buffers=(*p.buffers, *more.buffers),
        barriers=(*p.barriers, *more.barriers),
        symbols=(*p.symbols, *more.symbols),
    )


def _copy_first(p: Protocol) -> Protocol:
    """The copy is issued before the same thread's expect: the phase still lacks that thread's arrival."""
    return _pairs(p, lambda x, y: [y, x])


def _expect_in_two(p: Protocol) -> Protocol:
    """expect_tx and arrive in place of the one op."""

    def split(x: Step, y: Step) -> list[Node]:
        assert isinstance(x.op, o.ArriveExpectTx)
        return [replace(x, op=o.ExpectTx(x.op.bar, x.op.bytes)), replace(x, op=o.Arrive(x.op.bar)), y]

    return _pairs(p, split)


def _pairs(p: Protocol, change: object) -> Protocol:
    def body(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        out: list[Node] = []
        i = 0
        while i < len(nodes):
            x, y = nodes[i], nodes[i + 1] if i + 1 < len(nodes) else None
            if (
                isinstance(x, Step)
                and isinstance(y, Step)
                and isinstance(x.op, o.ArriveExpectTx)
                and isinstance(y.op, o.TmaLoad)
                and x.op.bar == y.op.bar
                and not y.op.ctas
                and x.op.bytes == y.op.dst.size
                and x.by is y.by
            ):
                out += change(x, y)  # type: ignore[operator]
                i += 2
                continue
            match x:
                case Loop():
                    out.append(replace(x, body=body(x.body)))
                case If():
                    out.append(replace(x, then=body(x.then), otherwise=body(x.otherwise)))
                case Step():
                    out.append(x)
            i += 1
        return tuple(out)

    return replace(p, roles=tuple(replace(r, body=body(r.body)) for r in p.roles))
