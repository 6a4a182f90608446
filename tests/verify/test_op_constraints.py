"""What instructions take and what a target has: each limit at its edge and beyond, by checker and model checker."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tilewright.base.expr import Const as C
from tilewright.base.expr import sym
from tilewright.base.verdict import Proved, Refuted, Unknown
from tilewright.hw.spaces import Space
from tilewright.protocol import Build, Protocol, from_text
from tilewright.protocol import ops as o
from tilewright.verify import check
from tilewright.verify.canonical_runs import interpreter
from tilewright.verify.model_checker import exhaust

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.sample(1)

RANK = sym("cta")


def _barrier_id(id: int) -> Protocol:
    b = Build("id")
    for name in ("a", "b"):
        with b.role(name, 32) as r:
            r.all(o.BarSync(C(id), 64))
    return b.protocol()


def _computed_id(most: int) -> Protocol:
    b = Build("computed id")
    s = b.symbol("s", most=most)
    with b.role("a", 64) as r, r.loop("k", s) as k:
        r.all(o.BarSync(k + 1, 64))
    return b.protocol()


def _shared(bytes: int, target: str = "sm_90a") -> Protocol:
    """An mbarrier's 8 bytes count, too."""
    b = Build("shared", target=target)
    x = b.buffer("x", bytes)
    b.mbarrier("f")
    with b.role("a", 32) as r:
        r.one(o.MbarrierInit("f"))
        r.all(o.Write(x.whole))
    return b.protocol()


def _threads(last: int) -> Protocol:
    b = Build("threads")
    for i, n in enumerate((512, 480, last)):
        with b.role(f"r{i}", n) as r:
            r.all(o.CtaSync())
    return b.protocol()


def _columns(size: int, offset: int = 0) -> Protocol:
    b = Build("columns")
    b.buffer("a", size, Space.TMEM, offset=offset)
    with b.role("m", 32) as r:
        r.all(o.Tcgen05Alloc("a"))
        r.all(o.Tcgen05Dealloc("a"))
    return b.protocol()


def _allocations(first: int, second: int, free_first: bool) -> Protocol:
    b = Build("allocations")
    b.buffer("a", first, Space.TMEM, offset=0)
    b.buffer("c", second, Space.TMEM, offset=0)
    with b.role("m", 32) as r:
        r.all(o.Tcgen05Alloc("a"))
        if free_first:
            r.all(o.Tcgen05Dealloc("a"))
        r.all(o.Tcgen05Alloc("c"))
        r.all(o.Tcgen05Dealloc("c"))
        if not free_first:
            r.all(o.Tcgen05Dealloc("a"))
    return b.protocol()


def _met(r: object) -> None:
    r.all(o.ClusterArrive())  # type: ignore[attr-defined]
    r.all(o.ClusterWait())  # type: ignore[attr-defined]


def _remote_wait(own: bool, test: bool = False) -> Protocol:
    b = Build("remote wait", cluster=2)
    full = b.mbarrier("full")
    with b.role("r", 32) as r:
        b.init(r)
        r.one(o.Arrive(full[0]))
        slot = full[0] if own else full.of(1 - RANK)
        r.all(o.TestWait(slot, C(0)) if test else o.Wait(slot, C(0)))
        _met(r)
    return b.protocol()


def _dsmem(bytes: int = 64, begin: int = 0, to: int = 1, on: int = 1) -> Protocol:
    b = Build("dsmem", cluster=2)
    x, y, full = b.buffer("x", 128, initialised=True), b.buffer("y", 128), b.mbarrier("full")
    with b.role("r", 32) as r:
        b.init(r)
        with r.when(RANK.eq(on)):
            r.one(o.ArriveExpectTx(full[0], bytes))
        with r.when(RANK.eq(0)):
            r.one(o.DsmemCopy(x.at(begin, bytes), y.at(begin, bytes, to), full.of(on)))
        with r.when(RANK.eq(on)):
            r.all(o.Wait(full[0], C(0)))
        _met(r)
    return b.protocol()


def _swizzled(offset: int, stage: int, begin: int = 0) -> Protocol:
    b = Build("swizzled")
    kt = b.symbol("kt")
    x = b.buffer("x", 2 * stage + begin, offset=offset, swizzle=128)
    full = b.mbarrier("full", 2)
    with b.role("r", 32) as r:
        b.init(r)
        with r.loop("k", kt) as k:
            r.one(o.ArriveExpectTx(full[k % 2], 1024))
            r.one(o.TmaLoad(x.at(k % 2 * stage + begin, 1024), full[k % 2]))
            r.one(o.Wait(full[k % 2], k // 2 % 2))
    return b.protocol()


def _bulk(bytes: int, begin: int = 0) -> Protocol:
    b = Build("bulk")
    x, full = b.buffer("x", 256), b.mbarrier("full")
    with b.role("r", 32) as r:
        b.init(r)
        r.one(o.ArriveExpectTx(full[0], bytes))
        r.one(o.TmaLoad(x.at(begin, bytes), full[0], tensor=False))
        r.one(o.Wait(full[0], C(0)))
    return b.protocol()


def _store(begin: int, tensor: bool) -> Protocol:
    """Of a box that lies partly outside, a tensor map stores what lies inside."""
    b = Build("store")
    x, out = b.buffer("x", 64, initialised=True), b.buffer("out", 256, Space.GLOBAL)
    with b.role("r", 32) as r:
        r.one(o.TmaStore(x.whole, out.at(begin, 64), tensor=tensor))
        r.one(o.BulkCommit())
        r.one(o.BulkWait(0))
    return b.protocol()


def _place(space: Space) -> Protocol:
    b = Build("place")
    x = b.buffer("x", 64, space, initialised=True)
    with b.role("r", 32) as r:
        r.all(o.CpAsync(x.whole))
        r.all(o.CpAsyncCommit())
        r.all(o.CpAsyncWait())
    return b.protocol()


def _peers_bytes(space: Space) -> Protocol:
    b = Build("bytes of a peer", cluster=2)
    x = b.buffer("x", 64, space)
    with b.role("r", 32) as r:
        _met(r)
        r.all(o.Write(x.at(0, 64, 1 - RANK)))
        _met(r)
    return b.protocol()


def _parity(parity: int) -> Protocol:
    b = Build("parity")
    kt, full = b.symbol("kt", most=3), b.mbarrier("full")
    with b.role("r", 32) as r:
        b.init(r)
        with r.loop("k", kt) as k:
            r.one(o.Arrive(full[0]))
            r.one(o.Wait(full[0], k % 2 + parity))
    return b.protocol()


def _with(*given: o.Op, target: str = "", cluster: int = 1) -> Protocol:
    """Ops of a warpgroup, those of tensor memory by a warp."""
    b = Build("instruction", target=target, cluster=cluster)
    b.buffer("acc", 32, Space.TMEM)
    for name, threads in (("warpgroup", 128), ("warp", 32)):
        with b.role(name, threads) as r:
            for op in given:
                if isinstance(op, o.Tcgen05Alloc | o.Tcgen05Dealloc) == (name == "warp"):
                    r.all(op)
            r.all(o.CtaSync())
    return b.protocol()


def _pool(registers: int) -> Protocol:
    """Four warpgroups."""
    b = Build("pool", registers_per_thread=registers)
    for i in range(4):
        with b.role(f"r{i}", 128) as r:
            r.all(o.Setmaxnreg(120))
    return b.protocol()


def _rewritten(begin: int = 0, size: int = 128, used: int = 128) -> Protocol:
    """A tensor map of some bytes, of which a copy takes ``used``."""
    b = Build("rewritten")
    x = b.buffer("x", 64)
    b.buffer("maps", 512, space=Space.GLOBAL)
    b.mbarrier("f")
    own = o.Region("maps", C(begin), size)
    with b.role("a", 32) as r:
        for op in (o.MbarrierInit("f"), o.FenceMbarrierInit(), o.TensormapReplace(own)):
            r.one(op)
        r.one(o.TensormapRelease(own))
        r.one(o.TensormapAcquire(own))
        r.one(o.ArriveExpectTx(o.Slot("f", C(0)), 64))
        r.one(o.TmaLoad(x.whole, o.Slot("f", C(0)), tensormap=o.Region("maps", C(begin), used)))
        r.one(o.Wait(o.Slot("f", C(0)), C(0)))
    return b.protocol()


_TENSOR = (o.Tcgen05Alloc("acc"), o.Tcgen05Dealloc("acc"))

CASES: dict[str, tuple[Callable[[], Protocol], Callable[[], Protocol], str]] = {
    "named barrier": (lambda: _barrier_id(15), lambda: _barrier_id(16), "MBR038"),
    "computed named barrier": (lambda: _computed_id(15), lambda: _computed_id(16), "MBR038"),
    "shared memory": (lambda: _shared(232440), lambda: _shared(232441), "MBR038"),
    "shared memory of sm_80": (lambda: _shared(166904, "sm_80"), lambda: _shared(166905, "sm_80"), "MBR038"),
    "bulk groups of sm_80": (lambda: _with(target="sm_80"), lambda: _with(o.BulkWait(0), target="sm_80"), "MBR038"),
    "a fence of sm_80": (
        lambda: _with(o.FenceProxyAsync(), target="sm_90a"),
        lambda: _with(o.FenceProxyAsync(), target="sm_80"),
        "MBR038",
    ),
    "a cluster of sm_80": (
        lambda: _with(target="sm_100a", cluster=2),
        lambda: _with(target="sm_80", cluster=2),
        "MBR038",
    ),
    "wgmma of sm_100a": (
        lambda: _with(o.WgmmaFence(), target="sm_90a"),
        lambda: _with(o.WgmmaFence(), target="sm_100a"),
        "MBR038",
    ),
    "tensor memory of sm_90a": (
        lambda: _with(*_TENSOR, target="sm_100a"),
        lambda: _with(*_TENSOR, target="sm_90a"),
        "MBR038",
    ),
    "instructions of two targets": (
        lambda: _with(o.WgmmaFence()),
        lambda: _with(*_TENSOR, o.WgmmaFence()),
        "MBR038",
    ),
    "parity": (lambda: _parity(0), lambda: _parity(2), "MBR039"),
    "negative parity": (lambda: _parity(0), lambda: _parity(-2), "MBR039"),
    "registers at launch": (lambda: _pool(128), lambda: _pool(136), "MBR038"),
    "threads": (lambda: _threads(32), lambda: _threads(64), "MBR038"),
    "columns, a power of two": (lambda: _columns(128), lambda: _columns(96), "MBR038"),
    "columns, 32 at least": (lambda: _columns(32), lambda: _columns(16), "MBR038"),
    "columns, where they lie": (lambda: _columns(256, 256), lambda: _columns(256, 257), "MBR038"),
    "columns that are free": (lambda: _allocations(512, 512, True), lambda: _allocations(512, 32, False), "MBR029"),
    "columns, no more than before": (lambda: _allocations(64, 64, True), lambda: _allocations(64, 128, True), "MBR029"),
    "wait": (lambda: _remote_wait(True), lambda: _remote_wait(False), "MBR039"),
    "test": (lambda: _remote_wait(True, True), lambda: _remote_wait(False, True), "MBR039"),
    "barrier of a copy between CTAs": (_dsmem, lambda: _dsmem(to=1, on=0), "MBR039"),
    "bytes of a copy between CTAs": (lambda: _dsmem(48), lambda: _dsmem(40), "MBR039"),
    "begin of a copy between CTAs": (lambda: _dsmem(48, 16), lambda: _dsmem(48, 8), "MBR039"),
    "swizzled buffer": (lambda: _swizzled(1024, 1024), lambda: _swizzled(512, 1024), "MBR039"),
    "swizzled stage": (lambda: _swizzled(0, 2048), lambda: _swizzled(0, 1536), "MBR039"),
    "swizzled tile": (lambda: _swizzled(0, 1024, 1024), lambda: _swizzled(0, 1024, 64), "MBR039"),
    "bulk bytes": (lambda: _bulk(48), lambda: _bulk(56), "MBR039"),
    "bulk begin": (lambda: _bulk(48, 16), lambda: _bulk(48, 4), "MBR039"),
    "store past the end": (lambda: _store(224, True), lambda: _store(224, False), "MBR035"),
    "store before the begin": (lambda: _store(-32, True), lambda: _store(-32, False), "MBR035"),
    "store outside": (lambda: _store(256, True), lambda: _store(256, False), "MBR035"),
    "registers of a peer": (
        lambda: _peers_bytes(Space.SHARED),
        lambda: _peers_bytes(Space.REGISTER),
        "MBR039",
    ),
    "bytes of a tensor map": (_rewritten, lambda: _rewritten(size=64, used=64), "MBR039"),
    "bytes of the tensor map that a copy takes": (_rewritten, lambda: _rewritten(used=64), "MBR039"),
    "begin of a tensor map": (lambda: _rewritten(64), lambda: _rewritten(48), "MBR039"),
    "state space": (lambda: _place(Space.SHARED), lambda: _place(Space.GLOBAL), "MBR039"),
}


@pytest.mark.parametrize("name", CASES)
def test_what_lies_at_the_edge_is_proved(name: str) -> None:
    protocol = CASES[name][0]()
    proof = check(protocol)
    assert isinstance(proof, Proved), proof
    assert exhaust(protocol, lambda symbol, at: 3).finding is None


@pytest.mark.parametrize("name", CASES)
def test_what_lies_beyond_is_refuted(name: str) -> None:
    """The model checker finds it without the prover's table."""
    _, wrong, code = CASES[name]
    proof = check(wrong())
    assert isinstance(proof, Refuted), proof
    assert proof.witness.code == code, proof.witness.detail
    assert exhaust(wrong(), lambda symbol, at: 16).finding is not None


def test_many_uses_of_a_pipeline_run_out_of_the_budget_in_seconds() -> None:
    """Clocks grow with the turns of a loop to a number, and steps take longer with them."""
    text = (ROOT / "tests/data/turns_of_a_number.txt").read_text()
    begin = time.process_time()
    assert isinstance(check(from_text(text)), Unknown)
    assert time.process_time() - begin < 60  # some 5 s on an idle core; it was hours


@pytest.mark.parametrize(
    "body",
    [
        "    for i in range(0, 1000000000000, 1):\n        all(BarSync(i % 3, 32))\n",
        "    for i in range(0, s, 1):\n        if i + 2 < s:\n            all(CtaSync())\n        all(CtaSync())\n",
        "".join(
            f"{' ' * 4 * (d + 1)}for i{d} in range(0, 8, 1):\n"
            f"{' ' * 4 * (d + 2)}all(Write(Region('x', 0, 64), private=True))\n"
            for d in range(9)
        ),
    ],
    ids=["many turns", "many least turns", "many within one another"],
)
def test_what_would_take_for_ever_is_open_and_names_the_exhausted_limit(
    body: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Budgets are in steps: the same protocol has the same answer on any interpreter."""
    monkeypatch.setattr(interpreter, "MAX_WORK", 20_000)
    head = 'protocol("p")\nsymbol("s", least=1000000000)\nbuffer("x", "shared", 64, offset=0)\nwith role("r", 32):\n'
    protocol = from_text(head + body.replace("'", '"'))
    first = check(protocol)
    assert isinstance(first, Unknown)
    assert "steps" in first.reason
    assert check(protocol) == first
