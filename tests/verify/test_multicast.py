"""Tiles that every CTA of a cluster loads a part of, for all of a row or a column: clusters of 2 to 8 CTAs."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tilewright.base.expr import sym
from tilewright.base.verdict import Proved, Refuted
from tilewright.hw.spaces import Space
from tilewright.protocol import Build, Protocol, RoleBuilder, Scope, from_text, to_text
from tilewright.protocol import ops as o
from tilewright.verify import verify

CTA = sym(o.CTA_RANK)
A = B = 6144


def multicast(rows: int, columns: int, *, consumers: int = 1, persistent: bool = False, late: bool = False) -> Protocol:
    """CTAs of a row share a tile of A, those of a column one of B; each loads its part of both for all of them, and
    gives a stage back to all that load into it. ``late``: one product stays in flight."""
    row, column = CTA // columns, CTA % columns
    along, across = [row * columns + c for c in range(columns)], [r * columns + column for r in range(rows)]
    b = Build(f"multicast {rows} x {columns}", cluster=rows * columns)
    tiles = b.symbol("tiles", most=None if persistent else 1)
    kt = b.symbol("kt", per="t")
    ring = b.pipeline("ab", 3, A + B, consumers * (rows + columns - 1))
    acc = b.buffer("acc", 128, Space.REGISTER)
    with b.role("producer", 128) as p:
        b.init(p)
        g = p.counter("g")
        with p.loop("t", tiles), p.loop("k", kt):
            p.one(ring.producer_acquire(g, Scope.CLUSTER))
            p.one(ring.producer_commit(g))
            p.one(ring.load(g, column * (A // columns), A // columns, along))
            p.one(ring.load(g, A + row * (B // rows), B // rows, across))
            p.advance(g)
        b.sync(p)
    for w in range(consumers):
        with b.role(f"consumer{w}", 128) as c:
            b.sync(c)
            g = c.counter("g")

            def release(c: RoleBuilder, use: o.Expr) -> None:
                others = [(row + r) % rows * columns + column for r in range(1, rows)]
                for cta in along + others:
                    c.one(ring.consumer_release(use, cta=cta, scope=Scope.CLUSTER))

            with c.loop("t", tiles):
                with c.loop("k", kt) as k:
                    c.all(ring.consumer_wait(g))
                    c.all(o.WgmmaFence())
                    c.all(o.Wgmma(acc.whole, (ring.stage(g),)))
                    c.all(o.WgmmaCommit())
                    if late:
                        with c.when(k > 0):
                            c.all(o.WgmmaWait(1))
                            release(c, g - 1)
                    else:
                        c.all(o.WgmmaWait(0))
                        release(c, g)
                    c.advance(g)
                if late:
                    with c.when(kt > 0):
                        c.all(o.WgmmaWait(0))
                        release(c, g - 1)
            b.sync(c)
    return b.protocol()


@pytest.mark.parametrize(
    ("rows", "columns"),
    [(1, 2), (2, 1), (1, 3), (3, 1), (1, 4), (4, 1), (2, 2), (1, 8), (8, 1), (2, 4), (4, 2)],
    ids=lambda n: str(n),
)
@pytest.mark.parametrize("late", [False, True])
def test_right_ones_of_any_shape_are_proved(rows: int, columns: int, late: bool) -> None:
    protocol = multicast(rows, columns, late=late)
    assert isinstance(verify(protocol).proof, Proved)
    assert from_text(to_text(protocol)).roles[0].threads == 128
    assert isinstance(verify(from_text(to_text(protocol))).proof, Proved)


def test_the_largest_are_proved_by_the_event_graph() -> None:
    protocol = multicast(2, 4, consumers=2, persistent=True, late=True)
    proof = verify(protocol).proof
    assert isinstance(proof, Proved)
    assert proof.obligations[0].method.startswith("event graph")


READ_BY_FOUR = """protocol("read by four", cluster=4)
symbol("kt")
buffer("b", "shared", 32768)
mbarrier("full", slots=2, count=1)
mbarrier("empty", slots=2, count=4)
with role("load", 128):
    elected(MbarrierInit("full"))
    elected(MbarrierInit("empty"))
    elected(FenceMbarrierInit())
    all(ClusterArrive())
    all(ClusterWait())
    for k in range(kt):
        elected(Wait(Slot("empty", k % 2), (k // 2 + 1) % 2, scope="cluster"))
        elected(ArriveExpectTx(Slot("full", k % 2), 16384))
        elected(TmaLoad(Region("b", k % 2 * 16384 + cta * 4096, 4096), Slot("full", k % 2), ctas=(0, 1, 2, 3)))
    all(ClusterArrive())
    all(ClusterWait())
with role("use", 128):
    all(ClusterArrive())
    all(ClusterWait())
    for k in range(kt):
        all(Wait(Slot("full", k % 2), k // 2 % 2))
        all(Read(Region("b", k % 2 * 16384, 16384)))
        all(FenceProxyAsync())
        all(BarSync(1, 128))
        elected(Arrive(Slot("empty", k % 2, cta=0), scope="cluster"))
        elected(Arrive(Slot("empty", k % 2, cta=1), scope="cluster"))
        elected(Arrive(Slot("empty", k % 2, cta=2), scope="cluster"))
        elected(Arrive(Slot("empty", k % 2, cta=3), scope="cluster"))
    all(ClusterArrive())
    all(ClusterWait())
"""
LAST = '        elected(Arrive(Slot("empty", k % 2, cta=3), scope="cluster"))\n'

MISTAKES: dict[str, tuple[str, str, list[tuple[str, str]]]] = {
    "the wait is of scope cta": (
        "MBR017",
        "a wait for empty, on which peers arrive, is of scope cta",
        [('+ 1) % 2, scope="cluster"', "+ 1) % 2")],
    ),
    "the arrivals are of scope cta": (
        "MBR017",
        "arrivals on empty of peers are of scope cta",
        [(f'k % 2, cta={c}), scope="cluster")', f"k % 2, cta={c}))") for c in range(4)],
    ),
    "one thread releases for all": ("MBR017", "after the readers are joined", [("        all(BarSync(1, 128))\n", "")]),
    "no proxy fence": ("MBR020", "fence.proxy.async", [("        all(FenceProxyAsync())\n", "")]),
    "the count of two CTAs": ("MBR015", "", [("count=4", "count=2")]),
    "a CTA is left out": ("MBR012", "", [(LAST, "")]),
    "a CTA is left out of the count, too": ("MBR015", "", [(LAST, ""), ("count=4", "count=3")]),
    "one CTA twice": ("MBR015", "", [("cta=3)", "cta=2)")]),
    "its own CTA for all": ("MBR018", "", [(f"k % 2, cta={c})", "k % 2)") for c in range(4)]),
    "its own part is expected": ("MBR016", "", [("16384))\n        elected(Tma", "4096))\n        elected(Tma")]),
    "halves at quarters": ("MBR016", "", [("cta * 4096", "cta * 8192")]),
    "three receive": ("MBR012", "", [("(0, 1, 2, 3)", "(0, 1, 2)")]),
}


def edited(edits: Iterable[tuple[str, str]]) -> Protocol:
    text = READ_BY_FOUR
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    return from_text(text)


def test_tiles_that_threads_of_four_read_are_proved() -> None:
    assert isinstance(verify(edited(())).proof, Proved)


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_among_four_are_named(name: str) -> None:
    code, words, edits = MISTAKES[name]
    found = verify(edited(edits))
    assert isinstance(found.proof, Refuted), found.proof
    assert found.proof.witness.code == code, found.proof.witness.detail
    assert words in str(found.diagnostics[0].help)
    assert max(map(len, found.proof.witness.text().splitlines()[:-1])) < 200
