"""The checker on correct protocols, on the same with an op missing, and on one small breach of each rule."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from museum.fences import xx_05
from museum.phases import tr_01
from protocols import attention, blackwell, cp_async, gemm, grouped, split_k

from agree import compare
from agree import protocol as tiny
from campaign.corpus import compiled
from campaign.judge import sizes
from campaign.variants import kept, pipeline
from mutate import corpus, mutants
from support.slow import rest_slow
from tilewright.base.expr import sym
from tilewright.base.verdict import Proved, Refuted, Unknown
from tilewright.diag import render
from tilewright.diag.catalogue import CATALOGUE
from tilewright.hw.spaces import Space
from tilewright.protocol import Build, Protocol, Scope, Step
from tilewright.protocol import ops as o
from tilewright.protocol.edit import Insertion, NodePath, inserted, replaced, spots
from tilewright.protocol.model import Loop
from tilewright.verify import Policy, Rule, certificate, check, verify
from tilewright.verify.model_checker import exhaust

pytestmark = pytest.mark.sample(1)

C = o.Const


@pytest.mark.parametrize(
    "protocol",
    [
        gemm.cooperative(4, 1),
        gemm.cooperative(2, 2),
        gemm.cooperative(4, 3, persistent=False),
        gemm.multicast(2),
        attention.forward(2, 1, ordered=False),
        attention.forward(2, 2),
        cp_async.multistage(3),
        cp_async.multistage(5),
        cp_async.producer_warps(4),
        split_k.dsmem_reduce(2),
        grouped.tensormap_update(3),
        blackwell.gemm(2),
    ],
    ids=lambda p: p.name,
)
def test_examples_are_proved(protocol: Protocol) -> None:
    found = certificate(protocol)
    assert found is not None
    assert {x.name for x in found.obligations} == {r.obligation for r in Rule}
    assert len(found.digest) == 64


@pytest.mark.parametrize("name", rest_slow(["multistage", "cp.async producer", "cooperative once", "split-K"], 3))
def test_dropped_ops_are_refuted_or_unneeded(name: str) -> None:
    """Every mutant that drops an op is refuted, or the model checker finds nothing wrong with it either."""
    for word, mutant in mutants(name, corpus()[name]):
        if ": drop " in word:
            proof = check(mutant)
            if isinstance(proof, Proved):
                assert exhaust(mutant, sizes(mutant, 3, 1), max_states=300).finding is None, word


def test_tiny_protocols_agree_with_the_model_checker() -> None:
    """No way to prove accepts what the model checker breaks, and what it can't break is proved."""
    for slots in (1, 2):
        for total, sample in ((1, 0), (2, 0), (3, 60)):
            tally = compare(total, slots, sample)
            assert tally.table["proved", "good"] > 0
            assert not tally.odd


@pytest.mark.parametrize(("name", "protocol"), list(compiled()), ids=lambda x: x if isinstance(x, str) else "")
def test_protocols_of_compiled_kernels_are_proved(name: str, protocol: Protocol) -> None:
    assert isinstance(check(protocol), Proved), name


@pytest.mark.parametrize("choice", [(1, 1, 1, True, "generic", True), (2, 3, 2, True, "wgmma", False)], ids=str)
def test_pipelines_and_what_keeps_them_right_are_proved(choice: tuple[int, int, int, bool, str, bool]) -> None:
    p = pipeline(*choice)
    for word, variant in kept("pipeline", p, 0):
        assert isinstance(check(variant), Proved), word


def test_verdict_does_not_depend_on_role_names() -> None:
    p = gemm.cooperative(2, 1)
    renamed = replace(p, roles=tuple(replace(r, name=f"x{i}") for i, r in enumerate(p.roles)))
    assert isinstance(check(renamed), Proved)


def test_extra_barrier_keeps_the_proof() -> None:
    p = gemm.cooperative(2, 1, persistent=False)
    extra = inserted(p, [Insertion(NodePath(1, (2,)), Step(o.BarSync(C(7), 128)))])
    assert isinstance(check(extra), Proved)


def test_a_wait_that_passes_on_a_fresh_barrier_may_be_lapped() -> None:
    """Parity 1 passes before the first phase is complete, and never after: no loop is needed for that."""
    b = Build("fresh")
    done = b.mbarrier("done")
    with b.role("a", 32) as a:
        b.init(a)
        a.one(o.Arrive(done[0]))
    with b.role("b", 32) as r:
        b.sync(r)
        r.all(o.Wait(done[0], C(1)))
    verification = verify(b.protocol())
    assert isinstance(verification.proof, Refuted), verification.proof
    assert verification.proof.witness.code == "MBR013"


def test_groups_without_copies_need_no_wait_at_the_end() -> None:
    """The last groups of the multistage loop are empty: what is copied was waited for in the loop."""
    p = cp_async.multistage(3)
    last = max(spot for spot, step in spots(p) if isinstance(step.op, o.CpAsyncWait))
    assert isinstance(check(replaced(p, last)), Proved)


# -- one breach of each rule ------------------------------------------------------------------------------------------
def _two(write: Callable[[Build], None], cluster: int = 1) -> Protocol:
    b = Build("breach", cluster=cluster)
    write(b)
    return b.protocol()


def _count(b: Build) -> None:
    full = b.mbarrier("full", count=1)
    with b.role("a", 32) as a:
        b.init(a)
        a.one(o.Arrive(full[0], count=2))


def _bytes(b: Build) -> None:
    full = b.mbarrier("full")
    with b.role("a", 32) as a:
        b.init(a)
        a.one(o.ArriveExpectTx(full[0], 2**20))
        a.one(o.Wait(full[0], C(0)))


def _recycle(b: Build) -> None:
    kt = b.symbol("kt")
    ready = b.mbarrier("ready", count=2)
    with b.role("a", 32) as a:
        b.init(a)
        with a.loop("k", kt):
            a.one(o.Arrive(ready[0]))
    with b.role("b", 32) as r:
        b.sync(r)
        with r.loop("k", kt) as k:
            r.one(o.Arrive(ready[0]))
            r.one(o.Wait(ready[0], k % 2))


def _write_write(b: Build) -> None:
    data = b.buffer("data", 64)
    for name in ("a", "b"):
        with b.role(name, 32) as a:
            a.one(o.Write(data.whole))


def _cluster_exit(b: Build) -> None:
    full = b.mbarrier("full", count=2)
    with b.role("a", 32) as a:
        b.init(a)
        a.one(o.Arrive(full.of(1 - sym("cta")), scope=Scope.CLUSTER))


def _registers(b: Build) -> None:
    for name in ("a", "b"):
        with b.role(name, 128) as a:
            a.all(o.Setmaxnreg(240))


def _wgmma_registers(b: Build) -> None:
    acc, x = b.buffer("acc", 8, Space.REGISTER), b.buffer("x", 64, initialised=True)
    with b.role("a", 128) as a:
        a.all(o.Wgmma(acc.whole, (x.whole,)))
        a.all(o.WgmmaCommit())
        a.all(o.WgmmaWait(0))


def _tensormap(b: Build) -> None:
    data, full, tensormap = b.buffer("x", 64), b.mbarrier("full"), b.buffer("map", 128, Space.GLOBAL)
    with b.role("a", 32) as a:
        b.init(a)
        a.one(o.TensormapReplace(tensormap.whole))
        a.one(o.ArriveExpectTx(full[0], 64))
        a.one(o.TmaLoad(data.whole, full[0], tensormap=tensormap.whole))
        a.one(o.Wait(full[0], C(0)))


def _cluster_barrier(b: Build) -> None:
    with b.role("a", 32) as a:
        a.all(o.ClusterArrive())
        a.all(o.ClusterArrive())


def _slot_range(b: Build) -> None:
    kt = b.symbol("kt")
    full = b.mbarrier("full", 2)
    with b.role("a", 32) as a:
        b.init(a)
        with a.loop("k", kt) as k:
            a.one(o.Arrive(full[k]))


BREACHES: dict[str, tuple[Callable[[Build], None], int]] = {
    "MBR010": (_count, 1),
    "MBR011": (_bytes, 1),
    "MBR015": (_recycle, 1),
    "MBR018": (_write_write, 1),
    "MBR025": (_cluster_exit, 2),
    "MBR028": (_registers, 1),
    "MBR031": (_wgmma_registers, 1),
    "MBR033": (_tensormap, 1),
    "MBR034": (_cluster_barrier, 2),
    "MBR035": (_slot_range, 1),
}


@pytest.mark.parametrize("code", BREACHES)
def test_breach_has_its_code(code: str) -> None:
    write, cluster = BREACHES[code]
    verification = verify(_two(write, cluster))
    if code == "MBR028":  # an increase that the pool never allows is a wait that never ends
        assert isinstance(verification.proof, Refuted)
        assert verification.proof.witness.code == "MBR012"
        bad = _two(lambda b: _odd_registers(b), 1)
        verification = verify(bad)
    assert isinstance(verification.proof, Refuted), verification.proof
    assert verification.proof.witness.code == code, verification.proof.witness.detail
    assert code in render(verification.diagnostics[0])


def _odd_registers(b: Build) -> None:
    with b.role("a", 128) as a:
        a.all(o.Setmaxnreg(100))


def test_every_rule_is_in_the_catalogue() -> None:
    assert {r.code for r in Rule} <= CATALOGUE.keys()


@pytest.mark.parametrize("waits", [False, True])
def test_a_count_that_is_the_same_in_all_tiles_is_shown_by_one_value(waits: bool) -> None:
    """The proof search lets ``kt`` differ from tile to tile; what it finds so counts only if one value shows it."""
    b = Build("tiles")
    rows, kt = b.symbol("rows"), b.symbol("kt")
    full, other = b.mbarrier("full"), b.mbarrier("other")
    with b.role("producer", 1) as p:
        b.init(p)
        with p.loop("t", rows), p.loop("i", kt):
            p.all(o.Arrive(other[0]))
    with b.role("consumer", 1) as c:
        b.sync(c)
        with c.loop("t", rows) as t, c.when(t >= 1), c.loop("k", kt):
            if waits:
                c.all(o.Wait(full[0], o.Const(0)))
    proof = check(b.protocol())
    if waits:
        assert isinstance(proof, Refuted)
        assert proof.witness.sizes == (("kt", "1"), ("rows", "2"))
    else:
        assert isinstance(proof, Proved)


def test_unbounded_index_is_unknown() -> None:
    """A counter that wanders through global memory has no recurrence."""
    b = Build("wander")
    kt = b.symbol("kt")
    out = b.buffer("out", 2**40, Space.GLOBAL)
    with b.role("a", 32) as a, a.loop("k", kt) as k:
        a.all(o.Write(out.at(k * 64, 64)))
    verification = verify(b.protocol())
    assert isinstance(verification.proof, Unknown)
    assert verification.diagnostics[0].code == "MBR009"


def test_bad_form_is_unknown_with_a_diagnostic() -> None:
    p = gemm.cooperative(2, 1)
    verification = verify(replace(p, barriers=()))
    assert isinstance(verification.proof, Unknown)
    assert verification.diagnostics[0].code == "MBR006"


# -- decoys: suspicious and right --------------------------------------------------------------------------------------
def test_wgmma_reads_need_no_fence_before_the_refill() -> None:
    assert isinstance(check(gemm.cooperative(2, 1, persistent=False)), Proved)


def test_init_without_fence_is_an_advisory_in_one_cta() -> None:
    p = cp_async.producer_warps(2)
    verification = verify(replaced(p, NodePath(0, (2,))))
    assert isinstance(verification.proof, Proved)
    assert [d.code for d in verification.diagnostics][:1] == ["MBR022"]


def test_copy_before_expect_is_legal() -> None:
    b = Build("early")
    data, full = b.buffer("x", 64), b.mbarrier("full")
    with b.role("a", 32) as a:
        b.init(a)
        a.one(o.TmaLoad(data.whole, full[0]))
        a.one(o.ArriveExpectTx(full[0], 64))
        a.one(o.Wait(full[0], C(0)))
    assert isinstance(check(b.protocol()), Proved)


def test_unrolled_loop_with_constant_stages() -> None:
    """Four copies of the body with constant stages and one flip of the parity for each turn."""
    b = Build("unrolled")
    kt = b.symbol("kt")
    ring = b.pipeline("ab", 4, 64, consumers=32)
    with b.role("producer", 32) as p:
        b.init(p)
        with p.loop("k", kt) as k:
            for s in range(4):
                p.one(o.Wait(ring.empty[s], (k + 1) % 2))
                p.one(o.ArriveExpectTx(ring.full[s], 64))
                p.one(o.TmaLoad(ring.data.at(64 * s, 64), ring.full[s]))
    with b.role("consumer", 32) as c:
        b.sync(c)
        with c.loop("k", kt) as k:
            for s in range(4):
                c.all(ring.consumer_wait(4 * k + s))
                c.all(ring.read(4 * k + s))
                c.all(o.FenceProxyAsync())
                c.all(ring.consumer_release(4 * k + s))
    assert isinstance(check(b.protocol()), Proved)


# -- showing -----------------------------------------------------------------------------------------------------------
def test_timeline_in_all_forms() -> None:
    proof = check(tr_01(False))
    assert isinstance(proof, Refuted)
    timeline = proof.witness
    assert "wait ab_full" in timeline.text()
    assert json.loads(timeline.json())["code"] == "MBR013"
    assert json.loads(timeline.chrome_trace())["traceEvents"]
    assert ElementTree.fromstring(timeline.svg()).tag.endswith("svg")


def test_the_shortest_schedule_is_found() -> None:
    """The model checker's schedule for a missing wait is no longer than any other of the instance."""
    b = Build("short")
    data = b.buffer("x", 64)
    for name in ("a", "b"):
        with b.role(name, 1) as a:
            a.all(o.Write(data.whole))
    outcome = exhaust(b.protocol(), lambda name, context: 0)
    assert outcome.finding is not None
    assert len(outcome.finding.schedule) == 0  # both are ready at the start


def test_lenient_accepts_the_readers_fence() -> None:
    assert isinstance(check(xx_05(False), Policy.LENIENT), Proved)


def test_the_verifier_imports_no_lowering() -> None:
    """The checker sees protocols only; the model checker shares no code of the proof."""
    root = Path(__file__).parents[2] / "src/tilewright/verify"
    paths = tuple(root.rglob("*.py"))
    assert len(paths) > 50
    for path in paths:
        text = path.read_text()
        assert not re.search(r"tilewright\.(transport|tile|tier)\b|\bxdsl\b", text), path
        if path.parent.name == "model_checker":
            used = set(re.findall(r"tilewright\.verify\.(\w+)", text))
            assert used <= {"model_checker", "rules"}, path


def test_one_step_object_at_two_places_is_two_writes() -> None:
    """Each write needs its fence, also where both places hold the same ``Step``."""
    bug = xx_05(False)
    (role,) = bug.roles
    (loop,) = [n for n in role.body if isinstance(n, Loop)]
    at = next(i for i, n in enumerate(loop.body) if isinstance(n, Step) and isinstance(n.op, o.Write))
    twice = replace(loop, body=(*loop.body[:at], loop.body[at], *loop.body[at:]))
    body = tuple(twice if n is loop else n for n in role.body)
    assert isinstance(check(replace(bug, roles=(replace(role, body=body),))), Refuted)


@pytest.mark.parametrize(
    "word", [("arrive full", "arrive full", "fill", "wait full"), ("fill", "wait full", "arrive full", "arrive full")]
)
def test_who_arrived_in_a_phase_knows_those_before_it_to_be_over(word: tuple[str, ...]) -> None:
    """The only signaller of a barrier goes round it three times a turn and waits once."""
    for slots in (1, 2):
        assert isinstance(check(tiny((), word, slots)), Proved)


def test_a_write_put_twice_is_two_writes() -> None:
    """Though both places hold one ``Step``: which thread writes what may differ between them."""
    b = Build("twice")
    x = b.buffer("x", 64)
    with b.role("all", 128) as r:
        r.all(o.Write(x.whole))
    p = b.protocol()
    assert isinstance(check(p), Proved)
    (write,) = p.roles[0].body
    assert isinstance(check(replace(p, roles=(replace(p.roles[0], body=(write, write)),))), Refuted)
