"""Loops that follow one another and do the same are proved as the one loop that they are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from protocols import gemm

from campaign.variants import pipeline
from tilewright.base.expr import Const, Expr, expr, maximum, minimum, sym
from tilewright.base.verdict import Proved, Refuted
from tilewright.protocol import Build, Protocol
from tilewright.protocol import ops as o
from tilewright.protocol.model import Loop, Node, Step, steps
from tilewright.protocol.operands import Region
from tilewright.verify import check
from tilewright.verify.fold import at_most, folded, hulled

KT = sym("kt")


def _split(p: Protocol, role: int, at: Expr, begin: Expr | None = None) -> Protocol:
    """The innermost loops of a role in two, the second from ``begin`` (or where the first one ends)."""

    def nodes(body: tuple[Node, ...]) -> tuple[Node, ...]:
        out: list[Node] = []
        for n in body:
            if isinstance(n, Loop) and any(isinstance(x, Loop) for x in n.body):
                out.append(replace(n, body=nodes(n.body)))
            elif isinstance(n, Loop):
                out += [replace(n, end=at), replace(n, begin=at if begin is None else begin)]
            else:
                out.append(n)
        return tuple(out)

    roles = list(p.roles)
    roles[role] = replace(roles[role], body=nodes(roles[role].body))
    return replace(p, roles=tuple(roles))


@pytest.mark.parametrize("at", [KT // 2, 3 * KT // 4, minimum(KT, Const(3)), (KT + 1) // 2], ids=str)
def test_a_loop_split_at_a_symbolic_point_is_one_loop(at: Expr) -> None:
    p = gemm.cooperative(2, 1)
    for role in range(len(p.roles)):
        assert folded(_split(p, role, at)) == p
    assert isinstance(check(_split(_split(p, 0, at), 1, KT // 3)), Proved)


@pytest.mark.parametrize("at", [KT + 1, KT // 2 - 1, 2 * KT, Const(1)], ids=str)
def test_a_loop_split_beyond_its_end_or_before_its_begin_is_not(at: Expr) -> None:
    p = gemm.cooperative(2, 1)
    assert folded(_split(p, 0, at)) == _split(p, 0, at)


def test_halves_that_overlap_are_refuted() -> None:
    p = gemm.cooperative(2, 1, persistent=False)
    found = check(_split(p, 0, KT // 2 + 1, KT // 2))
    assert isinstance(found, Refuted)


def test_a_write_that_threads_share_keeps_its_place() -> None:
    """Which thread writes which part may differ between two places."""
    b = Build("shared")
    kt, data = b.symbol("kt"), b.buffer("x", 64)
    with b.role("all", 128) as r:
        for begin, end in ((0, kt // 2), (kt // 2, kt)):
            with r.loop("k", end, begin):
                r.all(o.Write(data.whole))
    p = b.protocol()
    assert folded(p) == p
    assert isinstance(check(p), Refuted)
    assert isinstance(check(replace(p, roles=(replace(p.roles[0], body=p.roles[0].body[:1]),))), Proved)


def test_loops_of_different_steps_stay_two() -> None:
    p = _split(pipeline(1, 2, 1, persistent=False, style="generic", store=False), 0, KT // 2)
    body = list(p.roles[0].body)
    at = max(i for i, n in enumerate(body) if isinstance(n, Loop))
    loop = body[at]
    assert isinstance(loop, Loop)
    body[at] = replace(loop, body=(*loop.body, Step(o.FenceProxyAsync())))
    changed = replace(p, roles=(replace(p.roles[0], body=tuple(body)), *p.roles[1:]))
    assert folded(changed) == changed


def _product(synchronised: bool = True, stride: int = 64, written: int = 2048) -> Protocol:
    """Two streams, in each step of which all threads write a tile, then read it in 32 steps."""
    b = Build("product")
    data = b.buffer("x", 2048)
    with b.role("all", 128) as r:
        for trips in (b.symbol("kt"), b.symbol("nt")):
            with r.loop("k", trips):
                r.all(o.Write(data.at(0, written)))
                r.all(o.BarSync(Const(8), 128))
                with r.loop("d", Const(32)) as d:
                    r.all(o.Read(data.at(d * stride, 64)))
                if synchronised:
                    r.all(o.BarSync(Const(8), 128))
    return b.protocol()


def _reads(p: Protocol) -> list[Region]:
    return [n.op.region for r in p.roles for n in steps(r.body) if isinstance(n.op, o.Read)]


def test_a_loop_that_only_reads_is_one_read() -> None:
    found = hulled(_product())
    assert _reads(found) == [Region("x", Const(0), 2048)] * 2
    assert not any(isinstance(n, Loop) and n.counter == "d" for r in found.roles for m in r.body for n in m.body)  # pyright: ignore
    assert isinstance(check(_product()), Proved)


def test_reads_of_a_loop_that_are_not_synchronised_are_refuted() -> None:
    """What is proved with hulls alone is still refuted without the barrier; and what no thread has written."""
    assert isinstance(check(_product(synchronised=False)), Refuted)
    assert isinstance(check(_product(written=2047)), Refuted)


def test_hulls_that_reach_further_than_the_reads_refute_nothing() -> None:
    """Nobody writes the bytes between: the hull is not provable, the reads are."""
    b = Build("gaps")
    data = b.buffer("x", 256)
    with b.role("all", 128) as r:
        r.all(o.Write(data.at(0, 64)))
        r.all(o.Write(data.at(128, 64)))
        r.all(o.BarSync(Const(8), 128))
        with r.loop("d", Const(2)) as d:
            r.all(o.Read(data.at(d * 128, 64)))
    p = b.protocol()
    assert _reads(hulled(p)) == [Region("x", Const(0), 192)]
    assert isinstance(check(p), Proved)


@pytest.mark.parametrize(
    ("begin", "end", "at", "private"),
    [
        (0, 0, lambda d: d * 64, False),
        (0, 4, lambda d: d * 64, True),
        (0, 4, lambda d: (d % 2) * 64, False),
    ],
    ids=["never", "private", "not linear"],
)  # fmt: skip
def test_loops_without_a_hull_stay(begin: int, end: int, at: Any, private: bool) -> None:
    b = Build("other")
    data = b.buffer("x", 2048)
    with b.role("all", 128) as r, r.loop("d", Const(end), Const(begin)) as d:
        r.all(o.Read(data.at(at(d), 64), private))
    p = b.protocol()
    assert hulled(p) == p


def test_the_hull_of_a_loop_downwards_and_of_steps() -> None:
    b = Build("steps")
    data = b.buffer("x", 2048)
    with b.role("all", 128) as r, r.loop("d", Const(10), Const(1), step=4) as d:  # 1, 5, 9
        r.all(o.Read(data.at(1024 - d * 64, 32)))
    assert _reads(hulled(b.protocol())) == [Region("x", Const(1024 - 9 * 64), 8 * 64 + 32)]


@pytest.mark.parametrize(
    ("x", "y", "holds"),
    [
        (KT // 2, KT, True),
        (KT, 2 * KT, True),
        (2 * KT, KT, False),
        ((3 * KT + 3) // 4, KT, True),
        ((3 * KT + 4) // 4, KT, False),
        (KT // 3, KT // 2, True),
        (KT // 2, KT // 3, False),
        (minimum(KT, Const(4)), KT, True),
        (KT, maximum(KT, Const(4)), True),
        (expr(0), KT // 2, True),
        (KT - 1, KT // 2, False),
    ],
    ids=str,
)
def test_at_most_holds_for_every_value(x: Expr, y: Expr, holds: bool) -> None:
    assert at_most(x, y, {"kt": (0, None)}) is holds
    true = all(x.evaluate({"kt": n}) <= y.evaluate({"kt": n}) for n in range(60))
    assert true is holds
