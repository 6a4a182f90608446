"""Three consumer warpgroups: tiles of 192 rows, spread as over four warpgroups of which the last is absent."""

from __future__ import annotations

from collections.abc import Mapping

import ml_dtypes
import numpy as np
import pytest
from xdsl.dialects.builtin import IntAttr

import tilewright as tw
from support import products as p
from tilewright import simulate
from tilewright.base.verdict import Proved
from tilewright.codegen.assemble import assemble, defects
from tilewright.codegen.cuda import emit_kernel
from tilewright.codegen.sync_check import mismatches
from tilewright.compiler.proofs.stores import prove_stores
from tilewright.jit import Kernel
from tilewright.schedule.hopper.accumulator_placement import Refused
from tilewright.schedule.hopper.candidate import Candidate
from tilewright.schedule.hopper.candidates import candidates
from tilewright.tile import dialect as tile
from tilewright.transport import asynchronous as a
from tilewright.transport.protocol import protocols_of
from tilewright.verify import check

pytestmark = pytest.mark.sample(1)

# ruff: noqa: F821, UP037 - dimension names are strings
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingParameterType=false

RNG = np.random.default_rng(41)


@tw.kernel
def attention(
    q: tw.Tensor["S", 64], k: tw.Tensor["T", 64], v: tw.Tensor["T", 64], o: tw.Tensor["S", 64], *, scale: tw.f32
):
    s = tw.grid(q.shape[0], 192)
    rows = q[s, :]
    acc, total = tw.zeros((s, 64), tw.f32), tw.zeros((s,), tw.f32)
    top = tw.full((s,), -tw.inf, tw.f32)
    for t in tw.stream(k.shape[0], 64):
        x = tw.dot(rows, k[t, :].T) * scale
        new = tw.maximum(top, x.max(1))
        p, fix = tw.exp(x - new[:, None]), tw.exp(top - new)
        total.set(total * fix + p.sum(1))
        acc.set(acc * fix[:, None])
        top.set(new)
        acc += tw.dot(p.to(q.dtype), v[t, :])
    o[s, :] = acc / total[:, None]


@tw.kernel
def column_sums(a: tw.Tensor["M", "K"], b: tw.Tensor["N", "K"], c: tw.Tensor["B", "N"]):
    m, n = tw.grid((a.shape[0], b.shape[0]), (192, 64))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], 64):
        acc += tw.dot(a[m, k], b[n, k].T)
    c[m.start // 192, n] = acc.sum(0)


def lowered(kernel: tw.Kernel, *, software_pipelined: bool = False, **extents: int) -> p.Lowered:
    found = p.lower(kernel, Candidate(3, software_pipelined=software_pipelined, stages=2), **extents)
    assert not isinstance(found, Refused), found.reason
    found.scheduled.kernel.verify()
    return found


def values(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(ml_dtypes.bfloat16)


@pytest.mark.parametrize("size", [(192, 64, 64), (1, 8, 8), (400, 72, 136)])
def test_products_of_192_rows(size: tuple[int, int, int]) -> None:
    kernel = lowered(p.nt, bm=192).scheduled.kernel
    m, n, k = size
    for seed in range(2):
        a, b, c = values(m, k), values(n, k), values(m, n)
        simulate.run(kernel, {"a": a, "b": b, "c": c}, seed=seed, grid_size=1 + seed)
        exact = a.astype(np.float64) @ b.astype(np.float64).T
        assert np.linalg.norm(c.astype(np.float64) - exact) < 6e-3 * np.linalg.norm(exact)


@pytest.mark.parametrize("software_pipelined", [False, True])
@pytest.mark.parametrize("size", [(192, 64), (200, 150), (3, 1)])
def test_attention_of_192_rows(size: tuple[int, int], software_pipelined: bool) -> None:
    kernel = lowered(attention, software_pipelined=software_pipelined).scheduled.kernel
    s, length = size
    q, k, v, o = values(s, 64), values(length, 64), values(length, 64), values(s, 64)
    simulate.run(kernel, {"q": q, "k": k, "v": v, "o": o}, {"scale": 0.125}, seed=s, grid_size=1)
    x = q.astype(np.float64) @ k.astype(np.float64).T * 0.125
    weights = np.exp(x - x.max(1, keepdims=True))
    exact = weights @ v.astype(np.float64) / weights.sum(1, keepdims=True)
    assert np.linalg.norm(o.astype(np.float64) - exact) < 1e-2 * np.linalg.norm(exact)


@pytest.mark.parametrize(
    ("kernel", "software_pipelined", "extents"),
    [(p.nt, False, {"bm": 192}), (attention, True, {})],
    ids=["nt", "attention"],
)
def test_it_is_proved_and_assembles(kernel: tw.Kernel, software_pipelined: bool, extents: Mapping[str, int]) -> None:
    found = lowered(kernel, software_pipelined=software_pipelined, **extents)
    assert isinstance(prove_stores(found.tile, found.scheduled.kernel), Proved)
    for protocol in protocols_of(found.scheduled.kernel):
        assert isinstance(check(protocol), Proved)
    emitted = emit_kernel(found.scheduled.kernel)
    assembled = assemble(emitted.source, "sm_90a", emitted.entry)
    assert "setmaxnreg.inc.sync.aligned.u32 160" in assembled.ptx
    assert defects(assembled) == ()
    assert mismatches(found.scheduled.kernel, assembled.ptx) == ()


def test_another_absent_warpgroup_would_be_noticed() -> None:
    found = lowered(p.nt, bm=192)
    (consumer,) = [o for o in found.scheduled.kernel.walk() if isinstance(o, a.Role) and o.threads.data == 384]
    consumer.attributes["threads"] = IntAttr(256)
    assert not isinstance(prove_stores(found.tile, found.scheduled.kernel), Proved)


def test_what_three_warpgroups_do_not_take() -> None:
    for kernel, extents, said in (
        (p.nt, {"bm": 128}, "no rows for 3 warpgroups"),
        (p.nt, {"bm": 256}, "3 warpgroups take tiles of 192 rows"),
        (column_sums, {}, "those of one warpgroup are absent"),
    ):
        answer = p.lower(kernel, Candidate(3), **extents)
        assert isinstance(answer, Refused)
        assert said in answer.reason


def test_they_are_tried_for_their_tiles_and_where_pinned() -> None:
    def tried(kernel: tile.Kernel, **pins: int) -> int:
        return sum(c.warpgroups == 3 for c in candidates(kernel, tw.Schedule(**pins)))

    own, other = lowered(p.nt, bm=192).tile, p.lower(p.nt, Candidate(2), bm=128)
    assert not isinstance(other, Refused)
    assert tried(own) == tried(other.tile, consumers=3) == 2
    assert tried(other.tile) == 0
    artifact = Kernel(p.nt).compile(dtypes=dict.fromkeys("abc", "bf16"), bm=192)
    assert "3 consumer warpgroups" in artifact.plan[0]
