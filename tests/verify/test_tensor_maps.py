"""Tensor maps that a kernel writes, and copies whose bytes somebody writes: right texts are proved, each with one line
changed is refuted."""

from __future__ import annotations

import pytest

from tilewright.base.verdict import Proved, Refuted, Unknown
from tilewright.protocol import Protocol, from_text
from tilewright.verify import check
from tilewright.verify.model_checker import exhaust

MAP = 'Region("map", 0, 128)'
REPLACE, RELEASE, ACQUIRE = (f"elected(Tensormap{kind}({MAP}))" for kind in ("Replace", "Release", "Acquire"))


def load(at: int = 0, bar: int = 0, operand: str = f"tensormap={MAP}") -> str:
    """A copy of 1024 bytes, and what its barrier expects."""
    slot = f'Slot("full", index={bar})'
    return f'elected(ArriveExpectTx({slot}, 1024)); elected(TmaLoad(Region("a", {at}, 1024), {slot}, {operand}))'


def wait(bar: int = 0, by: str = "elected") -> str:
    return f'{by}(Wait(Slot("full", index={bar}), 0))'


def text(head: str, *lines: str) -> str:
    """A protocol: lines of several ops are split, empty ones left out."""
    common = 'buffer("a", "shared", 2048)\nbuffer("map", "global", 256)\nmbarrier("full", 2, 1)\n'
    body: list[str] = []
    for line in lines:
        indent = line[: len(line) - len(line.lstrip())]
        body += [indent + op for op in line.strip().split("; ") if op]
    return f'protocol("p"{head})\n{common}' + "\n".join(body) + "\n"


def one_cta(*lines: str) -> str:
    """One warp, whose barriers are initialised; at the end all has landed."""
    begin = ('with role("p", 32):', '    elected(MbarrierInit("full"))', "    all(CtaSync())")
    return text("", 'buffer("s", "shared", 256, initialised=True)', *begin, *(f"    {x}" for x in lines))


def two_ctas(first: tuple[str, ...], second: tuple[str, ...]) -> str:
    """Two CTAs of a grid with a word ``told`` and a word ``done``."""
    return text(
        ", grid=2, resident=2",
        'buffer("s", "shared", 2048, initialised=True)',
        'counter("told", reset=True)',
        'counter("done", reset=True)',
        'with role("p", 32):',
        '    elected(MbarrierInit("full"))',
        "    all(CtaSync())",
        "    if cta == 0:",
        *(f"        {x}" for x in first),
        "    if cta == 1:",
        *(f"        {x}" for x in second),
    )


TOLD, SPIN_TOLD = "elected(FlagStore(told[0], 1))", "elected(SpinWait(told[0], least=1))"
DONE, SPIN_DONE = "elected(FlagStore(done[0], 1))", "elected(SpinWait(done[0], least=1))"
HANDED = (REPLACE, RELEASE, TOLD, SPIN_DONE, REPLACE)
"""A CTA rewrites a map for another one, and again when that is done with it."""

STORE = f'elected(TmaStore(Region("s", 0, 128), tensormap={MAP})); elected(BulkCommit())'
WRITE = f"elected(Write({MAP}))"
COPIED = f'elected(TmaStore(Region("s", 0, 128), dst={MAP}, tensor=False)); elected(BulkCommit()); elected(BulkWait(0))'
OTHER = 'Region("map", 128, 128)'


def two_roles(writer: tuple[str, ...], user: tuple[str, ...]) -> str:
    return text(
        "",
        'with role("w", 32):',
        '    elected(MbarrierInit("full"))',
        *(f"    {x}" for x in writer),
        'with role("p", 32):',
        *(f"    {x}" for x in user),
    )


RIGHT = {
    "a map handed to another CTA": two_ctas(HANDED, (SPIN_TOLD, ACQUIRE, load(), wait(), DONE)),
    "two copies with it": two_ctas(
        HANDED, (SPIN_TOLD, ACQUIRE, load(), load(1024, 1), wait(), wait(1), DONE)
    ),
    "stores with it": two_ctas(
        HANDED, (SPIN_TOLD, ACQUIRE, STORE, STORE, "elected(BulkWait(0, read=True))", DONE, "elected(BulkWait(0))")
    ),
    "a map that threads write": one_cta(WRITE, RELEASE, ACQUIRE, load(), wait()),
    "all threads write it, and release it": one_cta(
        f"all(Write({MAP}))", f"all(TensormapRelease({MAP}))", "all(WarpSync())", ACQUIRE, load(), wait()
    ),
    "all threads write it, one releases it": one_cta(
        f"all(Write({MAP}))", "all(WarpSync())", RELEASE, ACQUIRE, load(), wait()
    ),
    "released by who knows of the rewrite": two_roles(
        (REPLACE, "all(CtaSync())"), ("all(CtaSync())", RELEASE, ACQUIRE, load(), wait())
    ),
    "a map beside one that is rewritten": one_cta(
        f"elected(TensormapReplace({OTHER}))", load(), wait()
    ),
    "two copies of one source": one_cta(
        load(operand=f"source={MAP}"), load(1024, 1, f"source={MAP}"), wait(), wait(1), WRITE
    ),
    "parts that each thread reads and writes": one_cta(
        'all(Read(Region("s", 0, 256), private=True))', 'all(Write(Region("s", 0, 256), private=True))'
    ),
}  # fmt: skip
BROKEN = {
    "it is rewritten while the copy is in flight": (
        two_ctas(HANDED, (SPIN_TOLD, ACQUIRE, load(), DONE, wait())), "MBR017"
    ),
    "the first of two copies is in flight": (
        two_ctas(HANDED, (SPIN_TOLD, ACQUIRE, load(), load(1024, 1), wait(1), DONE, wait())), "MBR017"
    ),
    "the second of two copies is in flight": (
        two_ctas(HANDED, (SPIN_TOLD, ACQUIRE, load(), load(1024, 1), wait(), DONE, wait(1))), "MBR017"
    ),
    "one store has not read its map": (
        two_ctas(
            HANDED,
            (SPIN_TOLD, ACQUIRE, STORE, STORE, "elected(BulkWait(1, read=True))", DONE, "elected(BulkWait(0))"),
        ), "MBR017",
    ),
    "it is released behind the flag": (
        two_ctas((REPLACE, TOLD, RELEASE), (SPIN_TOLD, ACQUIRE, load(), wait())), "MBR033"
    ),
    "it is acquired before the flag": (
        two_ctas((REPLACE, RELEASE, TOLD), (ACQUIRE, SPIN_TOLD, load(), wait())), "MBR033"
    ),
    "threads write it, nobody releases it": (one_cta(WRITE, load(), wait()), "MBR033"),
    "a copy writes it, nobody releases it": (one_cta(COPIED, load(), wait()), "MBR033"),
    "another map is acquired": (
        one_cta(REPLACE, RELEASE, f"elected(TensormapAcquire({OTHER}))", load(), wait()), "MBR033"
    ),
    "another map is released": (
        one_cta(REPLACE, f"elected(TensormapRelease({OTHER}))", ACQUIRE, load(), wait()), "MBR033"
    ),
    "half of it is rewritten as another map": (
        one_cta('elected(TensormapReplace(Region("map", 64, 128)))', load(), wait()), "MBR033"
    ),
    "released by who knows of no rewrite": (
        two_roles((REPLACE, "all(CtaSync())"), (RELEASE, "all(CtaSync())", ACQUIRE, load(), wait())), "MBR033"
    ),
    "released twice, each time unordered with what comes before": (
        text(
            "",
            'mbarrier("ready", 1, 1)',
            'with role("w", 32):',
            f'    elected(MbarrierInit("full")); elected(MbarrierInit("ready")); all(CtaSync()); {REPLACE}',
            f'    elected(Arrive(Slot("ready", index=0))); {RELEASE}',
            'with role("other", 32):',
            f"    all(CtaSync()); {RELEASE}; all(BarSync(1, 64))",
            'with role("p", 32):',
            f'    all(CtaSync()); elected(Wait(Slot("ready", index=0), 0)); all(BarSync(1, 64)); {ACQUIRE}',
            f"    {load()}; {wait()}",
        ), "MBR033",
    ),
    "one of its writers releases it": (
        one_cta(f"all(Write({MAP}))", RELEASE, "all(WarpSync())", ACQUIRE, load(), wait()), "MBR033"
    ),
    "the first of two copies still reads": (
        one_cta(load(operand=f"source={MAP}"), load(1024, 1, f"source={MAP}"), wait(1), WRITE, wait()), "MBR017"
    ),
    "what any thread may have read": (
        text(
            "",
            'buffer("s", "shared", 256, initialised=True)',
            'with role("p", 32):',
            '    all(Read(Region("s", 0, 256)))',
            '    all(Read(Region("s", 0, 256), private=True)); all(Write(Region("s", 0, 256), private=True))',
        ), "MBR017",
    ),
}  # fmt: skip


def parsed(words: str) -> Protocol:
    return from_text(words)


@pytest.mark.parametrize("name", RIGHT)
def test_right_texts_are_proved(name: str) -> None:
    p = parsed(RIGHT[name])
    assert isinstance(check(p), Proved)
    outcome = exhaust(p, lambda symbol, at: 1)
    assert outcome.complete
    assert outcome.finding is None


@pytest.mark.parametrize("name", BROKEN)
def test_one_wrong_line_is_refuted(name: str) -> None:
    words, code = BROKEN[name]
    proof = check(parsed(words))
    assert isinstance(proof, Refuted), proof
    assert proof.witness.code == code, proof.witness.detail
    assert exhaust(parsed(words), lambda symbol, at: 1).finding is not None


def test_a_release_of_what_a_copy_wrote_stays_open() -> None:
    """Between the asynchronous proxy and that of tensor maps no one fence stands."""
    assert isinstance(check(parsed(one_cta(COPIED, RELEASE, ACQUIRE, load(), wait()))), Unknown)


SENT = """
protocol("p", cluster=3)
buffer("s", "shared", 1024)
buffer("inbox", "shared", 1024)
mbarrier("full", 1, 1)
with role("p", 32):
    elected(MbarrierInit("full"))
    elected(FenceMbarrierInit())
    all(ClusterArrive())
    all(ClusterWait())
    if cta > 0:
        elected(ArriveExpectTx(Slot("full", index=0), 1024))
    if cta == 0:
        all(Write(Region("s", 0, 1024)))
        all(FenceProxyAsync())
        all(WarpSync())
        elected(DsmemCopy(Region("s", 0, 1024), Region("inbox", 0, 1024, cta=1), Slot("full", index=0, cta=1)))
        elected(DsmemCopy(Region("s", 0, 1024), Region("inbox", 0, 1024, cta=2), Slot("full", index=0, cta=2)))
    if EARLY:
        all(Wait(Slot("full", index=0), 0))
    all(ClusterArrive())
    all(ClusterWait())
    if cta == 0:
        all(Write(Region("s", 0, 1024)))
    if LATE:
        all(Wait(Slot("full", index=0), 0))
    all(ClusterArrive())
    all(ClusterWait())
"""


@pytest.mark.parametrize(
    ("early", "late", "right"), [("> 0", "> 2", True), ("== 1", "== 2", False), ("== 2", "== 1", False)]
)
def test_bytes_sent_to_two_peers_are_read_until_both_have_them(early: str, late: str, right: bool) -> None:
    proof = check(from_text(SENT.replace("EARLY", f"cta {early}").replace("LATE", f"cta {late}")))
    assert isinstance(proof, Proved if right else Refuted)


STORES = """
protocol("p", grid=2, resident=2)
buffer("s", "shared", 1024, initialised=True)
buffer("out", "global", 2048)
mbarrier("full", 1, 1)
counter("done", reset=True)
with role("p", 32):
    elected(MbarrierInit("full"))
    all(CtaSync())
    if cta == 0:
        elected(TmaStore(Region("s", 0, 1024), dst=Region("out", 0, 1024), tensor=False))
        elected(BulkCommit())
        WAIT
        elected(FlagStore(done[0], 1))
        elected(BulkWait(0))
    if cta == 1:
        SPIN
        OTHER
"""
STORED = 'elected(TmaStore(Region("s", 0, 1024), dst=Region("out", OFFSET, 1024), tensor=False)); elected(BulkCommit()); elected(BulkWait(0))'  # noqa: E501
LOADED = 'elected(ArriveExpectTx(Slot("full", index=0), 1024)); elected(TmaLoad(Region("s", 0, 1024), Slot("full", index=0), source=Region("out", OFFSET, 1024), tensor=False)); all(Wait(Slot("full", index=0), 0))'  # noqa: E501


@pytest.mark.parametrize("other", [STORED, LOADED], ids=["store", "load"])
@pytest.mark.parametrize(
    ("waits", "spin", "offset", "kind"),
    [
        ("elected(BulkWait(0))", "elected(SpinWait(done[0], least=1))", 0, Unknown),
        ("elected(BulkWait(0))", "elected(SpinWait(done[0], least=0))", 0, Refuted),
        ("elected(BulkWait(0, read=True))", "elected(SpinWait(done[0], least=1))", 512, Refuted),
        ("elected(BulkWait(1))", "elected(SpinWait(done[0], least=1))", 1008, Refuted),
        ("elected(BulkWait(1))", "elected(SpinWait(done[0], least=0))", 1024, Proved),
    ],
)
def test_copies_of_two_ctas(other: str, waits: str, spin: str, offset: int, kind: type[object]) -> None:
    """That no order of two CTAs in the asynchronous proxy is kept is open (PTX ISA 9.1, 8.9.5); without an order they
    race."""
    lines = "\n        ".join(other.replace("OFFSET", str(offset)).split("; "))
    proof = check(from_text(STORES.replace("WAIT", waits).replace("SPIN", spin).replace("OTHER", lines)))
    assert isinstance(proof, kind), proof
