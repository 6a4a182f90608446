"""Debug builds: what they say in the source, and that it assembles."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from support import products as p
from tilewright.codegen import debug
from tilewright.codegen.assemble import assemble
from tilewright.codegen.cuda import emit_kernel
from tilewright.codegen.sync_check import mismatches
from tilewright.diag.configuration import Configuration
from tilewright.schedule.hopper.candidate import Candidate
from tilewright.transport import dialect as t

pytestmark = pytest.mark.sample(1)


def lowered(kernel: object = p.nt, **keywords: object) -> t.Kernel:
    found = p.lower(kernel, Candidate(1, stages=2), **keywords)  # pyright: ignore[reportArgumentType]
    assert isinstance(found, p.Lowered)
    return found.scheduled.kernel


def test_waits_name_barrier_role_slot_and_phase() -> None:
    source = emit_kernel(lowered(), debug=True).source
    assert "mbarrier_wait(" not in source
    waits = [line.strip() for line in source.splitlines() if line.strip().startswith("mbarrier_wait_or_tell(shared")]
    assert len(waits) == emit_kernel(lowered()).source.count("  mbarrier_wait(")
    assert any('"a_b_empty", "producer");' in line for line in waits)
    assert any('"a_b_full", "consumer");' in line for line in waits)
    assert f"{debug.WAIT_LIMIT_MS}000000ull" in source
    assert "2000 ms in a wait for %s[%d], phase of parity %d" in source
    assert 'asm volatile("trap;");' in source


def test_only_waits_of_whole_warps_are_compared() -> None:
    source = emit_kernel(lowered(), debug=True).source
    uniform = [line.strip() for line in source.splitlines() if line.strip().startswith("expect_uniform(")]
    assert uniform
    assert all('"consumer"' in line for line in uniform)  # the producer's waits are one thread's


def test_roles_compare_their_counters_at_the_end() -> None:
    source = emit_kernel(lowered(), debug=True).source
    tail = source[source.rindex("__syncthreads();") :]
    assert 'tell_unbalanced("i_a_b", "producer"' in tail
    assert source.count("debug_counters[0] = ") == source.count("debug_counters[1] = ") == 1


def test_plain_builds_know_nothing_of_it() -> None:
    source = emit_kernel(lowered()).source
    for word in ("or_tell", "expect_uniform", "debug_counters", "printf", "trap"):
        assert word not in source


@pytest.mark.parametrize(("kernel", "keywords"), [(p.nt, {}), (p.attention, {"causal": True})], ids=["nt", "attention"])
def test_debug_builds_assemble(kernel: object, keywords: Mapping[str, object]) -> None:
    found = lowered(kernel, **keywords)
    emitted = emit_kernel(found, debug=True)
    assembled = assemble(emitted.source, "sm_90a", emitted.entry)
    assert assembled.cubin
    (more,) = mismatches(found, assembled.ptx)  # the barrier before the counters are compared, and nothing else
    assert (more.role, more.ptx, more.ir) == ("all threads", "2 x bar.sync cta", "1 x bar.sync cta")


def test_counters_that_no_two_roles_share_are_not_compared() -> None:
    assert debug.compared({"a": ("i",), "b": ("j",)}) == []
    assert debug.declared({"a": ("i",), "b": ("j",)}) == ""
    assert debug.left({"a": ("i",), "b": ("j",)}, "a", ["i"], one=True) == []


def test_compile_takes_the_flag(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    """A debug build is another artifact than the plain one."""
    monkeypatch.setenv("TILEWRIGHT_STORE", str(tmp_path))
    assert str(tmp_path) in str(Configuration.from_environment().store)
    plain, checked = p.nt.compile(dtypes=BF16), p.nt.compile(dtypes=BF16, debug=True)
    assert "mbarrier_wait_or_tell(" not in plain.source
    assert "mbarrier_wait_or_tell(" in checked.source


BF16 = dict.fromkeys(("a", "b", "c"), "bf16")
