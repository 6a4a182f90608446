"""Four consumer warpgroups on tiles of 256 rows, and the next program's tiles on their way."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from examples import attention as example
from support import products as p
from tilewright import simulate
from tilewright.base.verdict import Proved
from tilewright.codegen.assemble import assemble, defects
from tilewright.codegen.cuda import emit_kernel
from tilewright.codegen.sync_check import mismatches
from tilewright.compiler.proofs.copies import prove_copies
from tilewright.compiler.proofs.stores import prove_stores
from tilewright.schedule.hopper.accumulator_placement import Refused
from tilewright.schedule.hopper.candidate import Candidate
from tilewright.transport.protocol import protocols_of
from tilewright.transport.text import transport_kernel
from tilewright.validate.tile_to_transport.compare import compare
from tilewright.verify import check

pytestmark = pytest.mark.sample(1)

RNG = np.random.default_rng(43)


def lowered(*, width: int = 64, stages: int | None = 2, whole: bool = False, **keywords: bool) -> p.Lowered | Refused:
    candidate = Candidate(4, software_pipelined=True, stages=stages, whole_steps=whole)
    return p.lower(example.forward(width), candidate, bq=256, bk=64, **keywords)


@pytest.mark.parametrize("how", [{}, {"causal": True, "whole": True}], ids=str)
def test_it_is_proved_and_assembles(how: dict[str, bool]) -> None:
    found = lowered(**how)
    assert not isinstance(found, Refused), found.reason
    kernel = found.scheduled.kernel
    assert isinstance(prove_stores(found.tile, kernel), Proved)
    assert isinstance(prove_copies(found.tile, kernel), Proved)
    assert all(isinstance(check(protocol), Proved) for protocol in protocols_of(kernel))
    assert compare(found.tile, kernel) == ()
    emitted = emit_kernel(kernel)
    assembled = assemble(emitted.source, "sm_90a", emitted.entry)
    assert "setmaxnreg.inc.sync.aligned.u32 112" in assembled.ptx
    assert defects(assembled) == ()
    assert mismatches(kernel, assembled.ptx) == ()


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        ("max($p2*4, 0), min(S", "max($p2*4, 0), min(S", 0),
        ("max($p2*4, 0), min(S", "max($p2*4 + 1, 0), min(S", 0),  # a step more without comparisons
        ("min($k0_full, 1)", "1", 1),  # the first step without comparisons
        ("tile.compare <ge>", "tile.compare <gt>", 2),
    ],
)
def test_a_mask_that_is_missing_is_found(old: str, new: str, place: int) -> None:
    """Four steps of a program have the mask's edge."""
    found = lowered(causal=True)
    assert not isinstance(found, Refused), found.reason
    before, *after = str(found.scheduled.kernel).split(old)
    changed = old.join([before, *after[:place]]) + new + old.join(after[place:])
    assert (compare(found.tile, transport_kernel(changed)) == ()) == (new == old)


@pytest.mark.parametrize("size", [(256, 64), (300, 150), (3, 1)])
def test_values(size: tuple[int, int]) -> None:
    found = lowered()
    assert not isinstance(found, Refused), found.reason
    s, length = size
    q, k, v, o = (RNG.normal(size=(1, 1, n, 64)).astype(ml_dtypes.bfloat16) for n in (s, length, length, s))
    simulate.run(found.scheduled.kernel, {"q": q, "k": k, "v": v, "o": o}, {"scale": 0.125}, seed=s, grid_size=1)
    x = q[0, 0].astype(np.float64) @ k[0, 0].astype(np.float64).T * 0.125
    weights = np.exp(x - x.max(1, keepdims=True))
    exact = weights @ v[0, 0].astype(np.float64) / weights.sum(1, keepdims=True)
    assert np.linalg.norm(o[0, 0].astype(np.float64) - exact) < 1e-2 * np.linalg.norm(exact)


def test_wider_heads_have_no_registers_for_them() -> None:
    found = lowered(width=128)
    assert isinstance(found, Refused)
    assert "registers of each thread" in found.reason


def test_the_next_programs_queries_have_a_stage_beside_enough_of_the_streams() -> None:
    found = lowered(stages=None)
    assert not isinstance(found, Refused), found.reason
    assert found.scheduled.notes[0].startswith("pipelines q: 2 x 32768 bytes, k: 6 x 8192 bytes")
