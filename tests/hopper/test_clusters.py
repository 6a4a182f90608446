"""Clusters: shared tiles by multicast, right under any interleaving, proved, and broken by each thing left out."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from xdsl.dialects.builtin import ArrayAttr

import tilewright as tw
from support import products as p
from support.slow import rest_slow
from tilewright import simulate
from tilewright.artifact.schema import Launch
from tilewright.base.verdict import Proved, Refuted
from tilewright.codegen.assemble import assemble, defects
from tilewright.codegen.cuda import emit_kernel
from tilewright.codegen.sync_check import mismatches
from tilewright.compiler.launch_recipe import recipe
from tilewright.compiler.program import plan
from tilewright.compiler.proofs.stores import prove_stores
from tilewright.diag import TilewrightError
from tilewright.protocol.access import AccessKind, IndexRole
from tilewright.schedule.hopper.accumulator_placement import Refused
from tilewright.schedule.hopper.candidate import Candidate
from tilewright.tile.attributes import ExprAttr
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t
from tilewright.transport.access import accesses_of
from tilewright.transport.protocol import protocols_of
from tilewright.verify import check

pytestmark = pytest.mark.sample(1)

RNG = np.random.default_rng(23)
SHAPES = [(2, 1), (1, 2), (2, 2)]


def padded(*shape: int) -> np.ndarray:
    whole = np.full((*shape[:-1], -(-shape[-1] // 8) * 8), np.nan, ml_dtypes.bfloat16)
    view = whole[..., : shape[-1]]
    view[...] = RNG.normal(size=shape).astype(ml_dtypes.bfloat16)
    return view


def lowered(kernel: tw.Kernel, cluster: tuple[int, int], **extents: int) -> p.Lowered:
    found = p.lower(kernel, Candidate(1, stages=2, cluster=cluster), **extents)
    assert not isinstance(found, Refused), found.reason
    found.scheduled.kernel.verify()
    return found


def product(
    kernel: t.Kernel, m: int, n: int, k: int, seed: int = 0, *, a_turned: bool = False, b_turned: bool = False
) -> None:
    """Runs the kernel on random operands and compares."""
    left, right, out = (
        padded(*((k, m) if a_turned else (m, k))),
        padded(*((k, n) if b_turned else (n, k))),
        padded(m, n),
    )
    simulate.run(kernel, {"a": left, "b": right, "c": out}, seed=seed, grid_size=4 + 4 * (seed % 2))
    x, y = left.astype(np.float64), right.astype(np.float64)
    exact = (x.T if a_turned else x) @ (y if b_turned else y.T)
    assert np.linalg.norm(out.astype(np.float64) - exact) < 6e-3 * np.linalg.norm(exact)


@pytest.mark.parametrize("cluster", SHAPES)
@pytest.mark.parametrize("size", rest_slow([(130, 72, 64), (1, 8, 8), (256, 256, 136), (200, 130, 70)], 2))
def test_whole_and_ragged_grids(cluster: tuple[int, int], size: tuple[int, int, int]) -> None:
    kernel = lowered(p.nt, cluster).scheduled.kernel
    for seed in range(2):
        product(kernel, *size, seed)


@pytest.mark.parametrize("cluster", SHAPES)
def test_tiles_that_lie_the_other_way(cluster: tuple[int, int]) -> None:
    product(lowered(p.tn, cluster).scheduled.kernel, 130, 136, 72, a_turned=True, b_turned=True)


def test_the_shared_tile_is_fetched_once() -> None:
    kernel = lowered(p.nt, (2, 1)).scheduled.kernel
    own, shared = [op for op in kernel.walk() if isinstance(op, a.TmaLoad)]
    assert [len(own.ctas), len(shared.ctas)] == [0, 2]
    assert own.box_bytes.data == 2 * shared.box_bytes.data
    (empty,) = [op for op in kernel.walk() if isinstance(op, a.Mbarriers) and "empty" in op.hint.data]
    assert a.mbarriers_of(empty.bars).count.data == 2


@pytest.mark.parametrize("cluster", [(2, 1), (1, 2)])
def test_stores_and_protocol_are_proved(cluster: tuple[int, int]) -> None:
    found = lowered(p.nt, cluster)
    assert isinstance(prove_stores(found.tile, found.scheduled.kernel), Proved)
    for protocol in protocols_of(found.scheduled.kernel):
        assert isinstance(check(protocol), Proved)


def test_code_assembles_as_planned() -> None:
    found = p.lower(p.nt, Candidate(2, cluster=(2, 1)), bm=128, bn=256)
    assert not isinstance(found, Refused), found.reason
    emitted = emit_kernel(found.scheduled.kernel)
    assembled = assemble(emitted.source, "sm_90a", emitted.entry)
    assert defects(assembled) == ()
    assert mismatches(found.scheduled.kernel, assembled.ptx) == ()
    loads = re.findall(r"^\tcp\.async\.bulk\.tensor\.2d\.shared::cluster\S*", assembled.ptx, re.MULTILINE)
    assert [".multicast::cluster" in load for load in loads] == [False, True]
    assert assembled.ptx.count("mbarrier.arrive.shared::cluster") == 2


def _first(kernel: t.Kernel, kind: type[t.TransportOp], which: int = 0) -> None:
    [op for op in kernel.walk() if isinstance(op, kind)][which].detach()


def _remote(kernel: t.Kernel) -> None:
    for op in [o for o in kernel.walk() if isinstance(o, a.MbarrierArrive) and o.cta is not None]:
        op.detach()


def _narrow(kernel: t.Kernel) -> None:
    copy = next(op for op in kernel.walk() if isinstance(op, a.TmaLoad) and op.ctas)
    copy.attributes["ctas"] = ArrayAttr([copy.ctas.data[0]])


def _own_half(kernel: t.Kernel) -> None:
    copy = next(op for op in kernel.walk() if isinstance(op, a.TmaLoad) and op.ctas)
    copy.attributes["offset"] = ExprAttr.of(copy.offset.expr.substitute({a.CTA_RANK: 0}))


def _start(kernel: t.Kernel) -> None:
    _first(kernel, a.ClusterArrive)
    _first(kernel, a.ClusterWait)


def _end(kernel: t.Kernel) -> None:
    for kind in (a.ClusterArrive, a.ClusterWait):
        for op in [o for o in kernel.walk() if isinstance(o, kind)][1:]:
            op.detach()


HARMS: dict[str, Callable[[t.Kernel], None]] = {
    "remote arrivals": _remote,
    "a receiver": _narrow,
    "the other half": _own_half,
    "the barrier at the start": _start,
    "the barrier at the end": _end,
}


@pytest.mark.parametrize("harm", HARMS)
def test_what_is_left_out_is_noticed(harm: str) -> None:
    kernel = lowered(p.nt, (2, 1)).scheduled.kernel
    HARMS[harm](kernel)
    assert isinstance(check(protocols_of(kernel)[0]), Refuted)

    def runs(seed: int) -> bool:
        try:
            product(kernel, 256, 64, 320, seed)
        except (TilewrightError, AssertionError):
            return False
        return True

    assert not all(runs(seed) for seed in range(12))


def test_programs_fill_clusters() -> None:
    kernel = lowered(p.nt, (2, 1)).scheduled.kernel
    for op in kernel.walk():
        if isinstance(op, t.Programs):
            op.attributes["extents"] = ArrayAttr([ExprAttr.of(g.expr) for g in lowered(p.nt, (2, 1)).tile.grid])
    with pytest.raises(TilewrightError, match="SIM020"):
        product(kernel, 130, 64, 64)


def test_a_pin_is_kept_and_the_launch_is_whole_clusters() -> None:
    asked = replace(p.request(p.nt), schedule=tw.Schedule(cluster=(2, 1), stages=2, consumers=1))
    (variant,) = plan(asked).variants
    assert variant.transport.cluster is not None
    (launch,) = (step for step in recipe([variant.transport]).steps if isinstance(step, Launch))
    assert launch.grid[0].evaluate({"M": 65 * 64, "N": 64, "K": 64}) == 66
    assert launch.grid[0].evaluate({"M": 64 * 64, "N": 640, "K": 64}) == 132


def test_what_no_cluster_can_share_is_refused() -> None:
    assert isinstance(p.lower(p.attention, Candidate(1, cluster=(2, 1))), Refused)
    assert isinstance(p.lower(p.nt, Candidate(1, copies=False, cluster=(2, 1))), Refused)
    assert isinstance(p.lower(p.nt, Candidate(1, cluster=(2, 1)), bn=8), Refused)


def test_panels_and_parts_of_one_store_ask_one_question() -> None:
    found = p.lower(p.nt, Candidate(2, cluster=(2, 1)), bm=128, bn=256)
    assert not isinstance(found, Refused), found.reason
    writes = [x for x in accesses_of(found.scheduled.kernel).accesses if x.kind is AccessKind.WRITE]
    assert len(writes) == 2  # through panels, and from registers where rows are no whole units
    for access in writes:
        registers = next(i for i in access.indices if i.role is IndexRole.REGISTER).end.constant
        threads = 2 if access.op.startswith("tma_store") else 256
        assert registers is not None
        assert registers * threads == 128 * 256
    assert isinstance(prove_stores(found.tile, found.scheduled.kernel), Proved)


def test_a_panel_that_is_left_out_is_missed() -> None:
    found = p.lower(p.nt, Candidate(2, cluster=(2, 1)), bm=128, bn=256)
    assert not isinstance(found, Refused), found.reason
    copies = [op for op in found.scheduled.kernel.walk() if isinstance(op, a.TmaStore)]
    copies[1].detach()
    assert isinstance(prove_stores(found.tile, found.scheduled.kernel), Refuted)
