"""The protocol model: notation round trips, form is checked, rings lower to the ops of the hardware."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tilewright.base.expr import sym
from tilewright.base.verdict import Proved, Refuted
from tilewright.diag import TilewrightError
from tilewright.hw.spaces import Space
from tilewright.protocol import Build, from_text, problems, steps, to_text
from tilewright.protocol import ops as o
from tilewright.verify import check

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
from protocols import attention, blackwell, cp_async, gemm, grouped, split_k

EXAMPLES = [
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


@pytest.mark.parametrize("protocol", EXAMPLES, ids=lambda p: p.name)
def test_text_round_trip(protocol: object) -> None:
    assert from_text(to_text(protocol)) == protocol  # pyright: ignore


def test_steps_remember_their_line() -> None:
    step = next(steps(EXAMPLES[0].roles[1].body))
    assert step.where is not None
    assert step.where.file.endswith("gemm.py")


def test_ring_lowers_slots_and_parities() -> None:
    b = Build("x")
    ring = b.pipeline("r", 4, 128, consumers=2)
    i = o.Const(6)
    assert ring.consumer_wait(i) == o.Wait(o.Slot("r_full", o.Const(2)), o.Const(1))
    assert ring.producer_acquire(i) == o.Wait(o.Slot("r_empty", o.Const(2)), o.Const(0))
    assert ring.stage(i) == o.Region("r", o.Const(256), 128)


def _codes(build: Build) -> list[str]:
    with pytest.raises(TilewrightError) as caught:
        build.protocol()
    return [d.code for d in caught.value.diagnostics]


def test_duplicate_name() -> None:
    b = Build("x")
    b.mbarrier("full")
    b.mbarrier("full")
    with b.role("r", 32):
        pass
    assert "MBR001" in _codes(b)


@pytest.mark.parametrize(("count", "code"), [(0, "MBR002"), (2**20, "MBR002")])
def test_count_out_of_range(count: int, code: str) -> None:
    b = Build("x")
    b.mbarrier("full", count=count)
    with b.role("r", 32):
        pass
    assert code in _codes(b)


@pytest.mark.parametrize(("target", "codes"), [("sm_80", []), ("sm_81", ["MBR002"])])
def test_a_target_is_one_that_is_known(target: str, codes: list[str]) -> None:
    text = f'protocol("x", cluster=1, registers_per_thread=168, target="{target}")\nwith role("r", 32):\n    pass\n'
    protocol = replace(from_text(text.replace(target, "sm_80")), target=target)
    assert to_text(protocol) == text
    assert [d.code for d in problems(protocol)] == codes


def test_wgmma_by_one_thread() -> None:
    b = Build("x")
    acc = b.buffer("acc", 8, Space.REGISTER)
    with b.role("r", 128) as r:
        r.one(o.Wgmma(acc.whole, ()))
    assert _codes(b) == ["MBR003"]


def test_nested_loops_share_no_counter() -> None:
    b = Build("x")
    with b.role("r", 32) as r, r.loop("k", 2), r.loop("k", 2):
        r.all(o.WarpSync())
    assert "MBR004" in _codes(b)


def test_index_out_of_scope() -> None:
    b = Build("x")
    full = b.mbarrier("full", 4)
    with b.role("r", 32) as r:
        r.one(o.Arrive(full[sym("j") % 4]))
    assert _codes(b) == ["MBR005"]


def test_undeclared_barrier() -> None:
    b = Build("x")
    with b.role("r", 32) as r:
        r.one(o.Arrive(o.Slot("full")))
    assert _codes(b) == ["MBR006"]


HANDED_OVER = """
protocol("handed_over")
buffer("a", "shared", 1024, initialised=False)
mbarrier("f", 2, 1)
with role("p", 32):
    elected(MbarrierInit("f"))
    all(CtaSync())
    all(Write(a))
    all(WarpSync())
    elected(Arrive(f[1]))
with role("c", 32):
    all(CtaSync())
    all(Wait(f[1], 0))
    all(Read(a))
"""


def test_an_mbarrier_without_a_pipeline_is_indexed_by_slots() -> None:
    """A wait on another slot than the one that is arrived on was proved: both were slot 0."""
    p = from_text(HANDED_OVER)
    assert [s.op for s in steps(p.roles[0].body)][-1] == o.Arrive(o.Slot("f", o.Const(1)))
    assert isinstance(check(p), Proved)
    assert isinstance(check(from_text(HANDED_OVER.replace("Wait(f[1]", "Wait(f[0]"))), Refuted)


@pytest.mark.parametrize(("right", "wrong"), [("Read(a)", "Read(a[0])"), ("Read(a)", "Read(a[0, 0:512])")])
def test_a_buffer_without_a_pipeline_has_no_stages(right: str, wrong: str) -> None:
    with pytest.raises(TilewrightError) as caught:
        from_text(HANDED_OVER.replace(right, wrong))
    assert caught.value.code == "MBR006"


def test_a_use_without_a_pipeline_is_no_slot() -> None:
    b = Build("x")
    b.mbarrier("f", 2)
    with b.role("r", 32) as r:
        r.one(o.Arrive(o.StageSlot("f", use=o.Const(1))))
    assert _codes(b) == ["MBR006"]


@pytest.mark.parametrize("text", ["with role(", 'protocol("x", cluster=1)\nimport os', "pass", "x = 1"])
def test_unreadable_text(text: str) -> None:
    with pytest.raises(TilewrightError) as caught:
        from_text(text)
    assert caught.value.code == "MBR007"


def test_a_word_that_a_field_does_not_have_is_answered_with_those_that_it_has() -> None:
    with pytest.raises(TilewrightError, match=r"line 3: space='shared::cta', which is none of all, shared, global"):
        from_text('protocol("t")\nwith role("a", 32):\n    all(FenceProxyAsync(space="shared::cta"))\n')
