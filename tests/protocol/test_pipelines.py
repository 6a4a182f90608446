"""Pipelines: what their four words expand to, and that they are recovered from slots and parities."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from examples.protocols import attention, blackwell, cp_async, gemm, grouped, split_k
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.base.expr import Expr, sym
from tilewright.base.verdict import Proved, Refuted
from tilewright.diag import TilewrightError
from tilewright.hw.spaces import Space
from tilewright.protocol import Build, Pipeline, Protocol, expand, from_text, problems, recover, steps, to_text
from tilewright.protocol import ops as o
from tilewright.protocol.edit import replaced, spots
from tilewright.protocol.model import Buffer, By, Loop, Role, Step, Symbol
from tilewright.protocol.pipelines import Pipelines
from tilewright.protocol.recover import phase_use, slot_use, stage_use
from tilewright.verify import check

ROOT = Path(__file__).parents[2]
MATMUL = (ROOT / "examples/protocols/matmul.txt").read_text()
COMPILED = sorted((ROOT / "tests/data/protocols").glob("*.txt"))
WRITTEN = [
    gemm.cooperative(),
    gemm.pingpong(),
    gemm.multicast(),
    attention.forward(),
    cp_async.multistage(),
    cp_async.producer_warps(),
    split_k.dsmem_reduce(),
    grouped.tensormap_update(),
    blackwell.gemm(),
]
G = sym("g")


def test_words_expand_to_mbarrier_ops() -> None:
    pipeline = Pipeline("ab", 4, ("a",))
    known = Pipelines(Protocol("x", (), (Buffer("a", Space.SHARED, 512),), pipelines=(pipeline,)))
    use = o.PipelineUse("ab", G - 1)
    slot = (G - 1) % 4
    assert known.op(o.ProducerAcquire(use)) == o.Wait(o.Slot("ab_empty", slot), ((G - 1) // 4 + 1) % 2)
    assert known.op(o.ProducerCommit(use, 64)) == o.ArriveExpectTx(o.Slot("ab_full", slot), 64)
    assert known.op(o.ProducerCommit(use)) == o.Arrive(o.Slot("ab_full", slot))
    assert known.op(o.ConsumerWait(use)) == o.Wait(o.Slot("ab_full", slot), (G - 1) // 4 % 2)
    assert known.op(o.ConsumerRelease(use, cta=o.ZERO)) == o.Arrive(o.Slot("ab_empty", slot, o.ZERO))
    stage = o.StageRegion("a", o.Const(32), 16, use=G - 1)
    assert known.op(o.Read(stage)) == o.Read(o.Region("a", slot * 128 + 32, 16))


@pytest.mark.parametrize("offset", range(-3, 4))
def test_slot_phase_and_stage_of_a_use(offset: int) -> None:
    use = G + offset
    normal = slot_use(use % 4, 4)
    assert normal is not None
    assert (normal - use).constant in (0, 4, -4)  # a slot tells the use up to whole laps
    phase = phase_use((use // 4 + 1) % 2, 4)
    assert phase is not None
    assert (phase.use + 4 * phase.laps - use - 4).constant in (0, 8, -8)  # a parity up to two
    stage = stage_use(use % 4 * 128 + 16)
    assert stage is not None
    assert (stage.stages, stage.stage_bytes, stage.offset) == (4, 128, o.Const(16))


@pytest.mark.parametrize("other", [G // 3 % 2, G // 4 % 3, (G * 3) % 2, sym("a") + sym("b")])
def test_other_parities_are_no_phase_of_four_slots(other: Expr) -> None:
    assert phase_use(other, 4) is None
    assert slot_use(G % 3, 4) is None


# -- recover(expand(p)) is p -------------------------------------------------------------------------------------------
@st.composite
def pipelined(draw: st.DrawFn) -> Protocol:
    """A producer and a consumer of one to three pipelines, each ahead of its counter by less than a lap."""
    pipelines: list[Pipeline] = []
    buffers: list[Buffer] = []
    produced, consumed = list[Step](), list[Step]()
    for n in range(draw(st.integers(1, 3))):
        stages = draw(st.integers(1, 5))
        name, stage_bytes = f"p{n}", 16 * draw(st.integers(1, 4))
        buffers.append(Buffer(f"d{n}", Space.SHARED, stages * stage_bytes))
        own = {"full": f"f{n}", "empty": f"e{n}"} if draw(st.booleans()) else {}
        name = f"f{n}_e{n}" if own else name  # how recover names a pipeline whose barriers don't tell
        pipelines.append(Pipeline(name, stages, (f"d{n}",), 1, draw(st.integers(1, 3)), **own))
        filled = G + (draw(st.integers(-(stages // 2), stages // 2)) if not own else 0)
        read = G + (draw(st.integers(-(stages // 2), stages // 2)) if not own else 0)
        freed = read - draw(st.integers(0, stages - 1))
        full = o.StageSlot(pipelines[-1].full_name, use=filled)
        produced += [
            Step(o.ProducerAcquire(o.PipelineUse(name, filled)), By.ELECTED),
            Step(o.ProducerCommit(o.PipelineUse(name, filled), stage_bytes), By.ELECTED),
            Step(o.TmaLoad(o.StageRegion(f"d{n}", o.ZERO, use=filled), full), By.ELECTED),
        ]
        part = o.StageRegion(f"d{n}", o.Const(8), 8, use=read)
        consumed += [
            Step(o.ConsumerWait(o.PipelineUse(name, read))),
            Step(o.Read(part)),
            Step(o.ConsumerRelease(o.PipelineUse(name, freed)), By.ELECTED),
        ]
    counted = Step(o.Advance("g"))
    init = tuple(Step(o.MbarrierInit(p.name), By.ELECTED) for p in pipelines)
    roles = tuple(
        Role(role, 32, (*opening, Step(o.CtaSync()), Loop("k", o.ZERO, sym("kt"), 1, (*body, counted))), (("g", 0),))
        for role, opening, body in (("producer", init, produced), ("consumer", (), consumed))
    )
    return Protocol("drawn", roles, tuple(buffers), (), (Symbol("kt"),), pipelines=tuple(pipelines))


@settings(max_examples=300, deadline=None)
@given(pipelined())
def test_pipelines_are_recovered_from_what_they_expand_to(p: Protocol) -> None:
    # which array of two is the full one, its name tells, or a wait for a counter's own use
    assert not tuple(problems(p))
    assert recover(expand(p)) == p
    assert from_text(to_text(p)) == p


def _sorted(p: Protocol) -> Protocol:
    return replace(p, barriers=tuple(sorted(p.barriers, key=lambda b: b.name)))


@pytest.mark.parametrize("p", WRITTEN, ids=lambda p: p.name)
def test_recovered_examples_expand_to_themselves(p: Protocol) -> None:
    found = recover(p)
    assert _sorted(expand(found)) == _sorted(p)
    assert from_text(to_text(found)) == found


@pytest.mark.parametrize("path", COMPILED, ids=lambda path: path.stem)
def test_no_slot_arithmetic_is_left_in_compiled_protocols(path: Path) -> None:
    p = from_text(path.read_text())
    found = recover(p)
    assert _sorted(expand(found)) == _sorted(p)
    assert not [s.op for role in found.roles for s in steps(role.body) if "%" in str(s.op)]


def test_a_wait_of_the_other_parity_reads_as_a_use_of_another_lap() -> None:
    p = expand(from_text(MATMUL))
    spot, step = next((spot, s) for spot, s in spots(p) if isinstance(s.op, o.Wait))
    assert isinstance(step.op, o.Wait)
    assert step.op.parity == (G // 4 + 1) % 2
    flipped = replaced(p, spot, replace(step, op=replace(step.op, parity=G // 4 % 2)))
    words = [s.op for _, s in spots(recover(flipped)) if isinstance(s.op, o.ProducerAcquire)]
    assert words == [o.ProducerAcquire(o.PipelineUse("ab", G + 4))]


# -- protocols written with pipelines ----------------------------------------------------------------------------------
def test_written_pipeline_is_proved_and_its_twin_without_a_release_refuted() -> None:
    assert isinstance(check(from_text(MATMUL)), Proved)
    kept = [line for line in MATMUL.splitlines() if line.strip() != "elected(consumer_release(ab[g - 1]))"]
    wrong = "\n".join(kept) + "\n"
    assert wrong.count("\n") == MATMUL.count("\n") - 2
    assert isinstance(check(from_text(wrong)), Refuted)


def test_written_pipeline_is_shorter_than_its_expansion() -> None:
    p = from_text(MATMUL)
    assert recover(expand(p)) == p
    assert len(MATMUL) < 0.75 * len(to_text(expand(p)))


def test_builder_gives_what_the_words_expand_to() -> None:
    b = Build("x")
    kt = b.symbol("kt")
    a = b.pipeline("a", stages=4, stage_bytes=128, consumers=1)
    with b.role("producer", 32) as p:
        b.init(p)
        with p.loop("k", kt) as k:
            p.one(a.producer_acquire(k))
            p.one(a.producer_commit(k))
            p.one(a.load(k))
    with b.role("consumer", 32) as c:
        b.sync(c)
        with c.loop("k", kt) as k:
            c.all(a.consumer_wait(k))
            c.all(a.read(k))
            c.one(a.consumer_release(k))
    found = recover(b.protocol())
    assert found.pipelines == (Pipeline("a", 4, ("a",)),)
    assert expand(found) == b.protocol()


@pytest.mark.parametrize(
    ("line", "wrong", "code"),
    [
        ('pipeline("ab", 4', 'pipeline("ab", 3', "MBR002"),
        ('pipeline("ab", 4', 'pipeline("ab", 0', "MBR002"),
        ('data=("a", "b")', 'data=("a", "d")', "MBR006"),
        ("producer_acquire(ab[g])", "producer_acquire(cd[g])", "MBR006"),
        ("TmaLoad(a[g], ab_full[g])", "TmaLoad(c[g], ab_full[g])", "MBR006"),
        ("TmaLoad(a[g], ab_full[g])", "TmaLoad(a[g], full[g])", "MBR006"),
        ("consumer_wait(ab[g])", "consumer_wait(ab[h])", "MBR005"),
        ("consumer_wait(ab[g])", "consumer_wait(ab[g, 1])", "MBR007"),
    ],
)
def test_form_of_pipelines(line: str, wrong: str, code: str) -> None:
    assert line in MATMUL
    with pytest.raises(TilewrightError) as caught:
        from_text(MATMUL.replace(line, wrong, 1))
    assert caught.value.code == code


def test_two_pipelines_of_one_name() -> None:
    text = MATMUL.replace('pipeline("ab"', 'pipeline("ab", 2)\npipeline("ab"', 1)
    with pytest.raises(TilewrightError) as caught:
        from_text(text)
    assert caught.value.code == "MBR001"
