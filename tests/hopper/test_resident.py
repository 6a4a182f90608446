"""CTAs that share an SM: half of its shared memory and registers each."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from support import products as p
from tilewright import simulate
from tilewright.base.verdict import Proved, Refuted
from tilewright.codegen.cuda import emit_kernel
from tilewright.hw.target import SM90A
from tilewright.schedule.hopper import lower
from tilewright.schedule.hopper.candidate import Candidate
from tilewright.transport import asynchronous as a
from tilewright.transport.dialect import Kernel
from tilewright.transport.protocol import protocol_of
from tilewright.verify import check

RNG = np.random.default_rng(7)


def shared_by_two() -> Kernel:
    found = p.lower(p.nt, Candidate(1, stages=2, resident=2))
    assert isinstance(found, p.Lowered), found
    found.scheduled.kernel.verify()
    return found.scheduled.kernel


@pytest.mark.slow
def test_each_has_half_of_an_sm() -> None:
    kernel = shared_by_two()
    left, right = (RNG.normal(size=(n, 104)).astype(ml_dtypes.bfloat16) for n in (200, 88))
    out = np.full((200, 88), np.nan, ml_dtypes.bfloat16)
    simulate.run(kernel, {"a": left, "b": right, "c": out})
    exact = left.astype(np.float64) @ right.astype(np.float64).T
    assert np.linalg.norm(out.astype(np.float64) - exact) < 6e-3 * np.linalg.norm(exact)
    (shared_bytes,) = (kernel.attributes["shared_bytes"].data,)  # pyright: ignore[reportAttributeAccessIssue]
    assert 2 * (shared_bytes + 1024) <= SM90A.shared_per_cta_bytes + 1024
    assert kernel.min_ctas.data == 2
    assert [op.count.data for op in kernel.walk() if isinstance(op, a.SetMaxRegisters)] == [40, 216]
    assert protocol_of(kernel).registers_per_thread == 128
    assert isinstance(check(protocol_of(kernel)), Proved)
    source = emit_kernel(kernel).source
    assert "__launch_bounds__(256, 2)" in source
    assert "setmaxnreg.dec.sync.aligned.u32 40" in source
    assert "setmaxnreg.inc.sync.aligned.u32 216" in source


@pytest.mark.parametrize(("resident", "shares"), [(2, [40, 216]), (3, [24, 136])])
def test_each_has_its_share_of_registers(resident: int, shares: list[int]) -> None:
    found = p.lower(p.attention, Candidate(1, stages=2, resident=resident, software_pipelined=True))
    assert isinstance(found, p.Lowered), found
    kernel = found.scheduled.kernel
    assert [op.count.data for op in kernel.walk() if isinstance(op, a.SetMaxRegisters)] == shares
    assert 256 * resident * protocol_of(kernel).registers_per_thread <= SM90A.registers_per_sm
    assert isinstance(check(protocol_of(kernel)), Proved)


def test_registers_are_no_more_than_an_sm_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(lower.REGISTERS, (1, 2), (48, 216))
    assert isinstance(check(protocol_of(shared_by_two())), Refuted)
