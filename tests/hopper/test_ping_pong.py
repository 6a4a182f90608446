"""Ping-pong: warpgroups that take whole tiles in turn, right under any interleaving and in every small instance."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from support import products as p
from tilewright import simulate
from tilewright.base.verdict import Proved
from tilewright.codegen.assemble import assemble, defects
from tilewright.codegen.cuda import emit_kernel
from tilewright.codegen.sync_check import mismatches
from tilewright.compiler.proofs.stores import prove_stores
from tilewright.diag import TilewrightError
from tilewright.protocol import ops
from tilewright.protocol.edit import rewritten
from tilewright.protocol.rewrite import substituted
from tilewright.schedule.hopper.accumulator_placement import Refused
from tilewright.schedule.hopper.candidate import Candidate
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t
from tilewright.transport.protocol import protocols_of
from tilewright.verify import check
from tilewright.verify.model_checker import exhaust
from tilewright.verify.parametric.proof import METHOD

pytestmark = pytest.mark.sample(1)

RNG = np.random.default_rng(29)
PING_PONG = Candidate(1, ping_pong=2, stages=2)


def padded(*shape: int) -> np.ndarray:
    whole = np.full((*shape[:-1], -(-shape[-1] // 8) * 8), np.nan, ml_dtypes.bfloat16)
    view = whole[..., : shape[-1]]
    view[...] = RNG.normal(size=shape).astype(ml_dtypes.bfloat16)
    return view


def lowered(kernel: tw.Kernel, candidate: Candidate = PING_PONG, **extents: int) -> p.Lowered:
    found = p.lower(kernel, candidate, **extents)
    assert not isinstance(found, Refused), found.reason
    found.scheduled.kernel.verify()
    return found


def product(kernel: t.Kernel, m: int, n: int, k: int, seed: int = 0, grid_size: int = 1) -> None:
    """Runs the kernel on random operands and compares."""
    left, right, out = padded(m, k), padded(n, k), padded(m, n)
    simulate.run(kernel, {"a": left, "b": right, "c": out}, seed=seed, grid_size=grid_size)
    exact = left.astype(np.float64) @ right.astype(np.float64).T
    assert np.linalg.norm(out.astype(np.float64) - exact) < 6e-3 * np.linalg.norm(exact)


@pytest.mark.parametrize("size", [(256, 130, 136), (64, 64, 64), (1, 8, 8), (300, 70, 70)])
@pytest.mark.parametrize("rows", [64, 128])
def test_tiles_in_turn(size: tuple[int, int, int], rows: int) -> None:
    kernel = lowered(p.nt, bm=rows).scheduled.kernel
    for seed in range(3):
        product(kernel, *size, seed, 1 + seed)


def test_stores_are_proved() -> None:
    found = lowered(p.nt)
    assert isinstance(prove_stores(found.tile, found.scheduled.kernel), Proved)


@pytest.mark.parametrize("extents", [{}, {"bm": 128, "bn": 208}], ids=["64x64", "128x208"])
def test_protocols_are_proved(extents: dict[str, int]) -> None:
    """Of the wider tile's stores 16 panels of two warpgroups meet the ring's stages."""
    candidate = Candidate(1, ping_pong=2, stages=2, whole_stores=bool(extents))
    for protocol in protocols_of(lowered(p.nt, candidate, **extents).scheduled.kernel):
        assert isinstance(check(protocol), Proved)


def test_stores_through_copies_alone_ask_for_whole_units() -> None:
    found = lowered(p.nt, Candidate(1, ping_pong=2, stages=2, whole_stores=True))
    assert not any(isinstance(op, t.Store) for op in found.scheduled.kernel.walk())
    assert isinstance(prove_stores(found.tile, found.scheduled.kernel), Proved)
    product(found.scheduled.kernel, 130, 136, 72)
    with pytest.raises(TilewrightError, match="SIM008"):
        product(found.scheduled.kernel, 130, 132, 72)


def test_a_program_stored_by_both_is_refuted() -> None:
    found = lowered(p.nt)
    for op in [o for o in found.scheduled.kernel.walk() if isinstance(o, t.Programs)]:
        op.attributes.pop("interleave", None)
    assert not isinstance(prove_stores(found.tile, found.scheduled.kernel), Proved)


@pytest.mark.parametrize(("tiles", "steps"), [(0, 1), (2, 1), (3, 2)])
def test_small_instances_by_enumeration(tiles: int, steps: int) -> None:
    protocol, *_ = protocols_of(lowered(p.nt).scheduled.kernel)
    outcome = exhaust(protocol, lambda name, _: {"$programs": tiles, "$trip0": steps}[name], max_states=20_000)
    assert outcome.complete
    assert outcome.finding is None, outcome.finding.detail


@pytest.mark.slow
def test_code_assembles_as_planned() -> None:
    found = lowered(p.nt, Candidate(1, ping_pong=2), bm=128, bn=160)
    emitted = emit_kernel(found.scheduled.kernel)
    assembled = assemble(emitted.source, "sm_90a", emitted.entry)
    assert defects(assembled) == ()
    assert mismatches(found.scheduled.kernel, assembled.ptx) == ()


DROPPED: list[tuple[type[t.TransportOp], int]] = [
    (a.NamedBarrierSync, 0),
    (a.NamedBarrierArrive, 0),
    (a.NamedBarrierArrive, 1),
    (a.MbarrierWait, 1),
    (a.MbarrierArrive, 0),
    (a.WgmmaWait, 1),
    (a.Advance, 2),
]


@pytest.mark.parametrize(("kind", "which"), DROPPED, ids=[f"{k.__name__}{i}" for k, i in DROPPED])
def test_what_is_left_out_is_noticed(kind: type[t.TransportOp], which: int) -> None:
    kernel = lowered(p.nt).scheduled.kernel
    [op for op in kernel.walk() if isinstance(op, kind)][which].detach()

    def runs(seed: int) -> bool:
        try:
            product(kernel, 320, 64, 320, seed)
        except (TilewrightError, AssertionError):
            return False
        return True

    assert not all(runs(seed) for seed in range(8))


def test_programs_of_different_lengths_take_no_turns() -> None:
    assert isinstance(p.lower(p.attention, PING_PONG, causal=True), Refused)
    assert isinstance(p.lower(p.nt, Candidate(1, ping_pong=2, copies=False)), Refused)


@pytest.mark.parametrize("trips", [2, 64])
def test_a_stream_of_known_length_is_proved_like_one_of_any(trips: int) -> None:
    """What a warpgroup skips is then a number, as where K is static: seconds of search left such products open."""
    for protocol in protocols_of(lowered(p.nt).scheduled.kernel):
        (trip,) = [s for s in protocol.symbols if s.name.startswith("$trip")]
        roles = tuple(replace(r, body=substituted(r.body, trip.name, trips)) for r in protocol.roles)
        known = replace(protocol, symbols=tuple(s for s in protocol.symbols if s is not trip), roles=roles)
        (method,) = {o.method for o in getattr(check(known), "obligations", ())}
        assert method == METHOD
        unfinished = rewritten(known, lambda _, s: () if s.op == ops.WgmmaWait() else (s,))
        assert unfinished != known
        assert not isinstance(check(unfinished, replay=False), Proved)
