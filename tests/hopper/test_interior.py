"""Tiles that lie inside a group of rows leave by tensor copies, those that its end cuts by rows: a program decides."""

# ruff: noqa: F821, UP037 - dimension names are strings
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest

import tilewright as tw
from hopper.test_grouped import BF16, DTYPES, counts, drawn, exact, grouped, lowered
from support.ptx_driver import run_artifact
from tilewright import simulate
from tilewright.base.expr import TRUE, Expr, Sym, all_of, conjuncts, negate
from tilewright.base.verdict import Proved, Refuted
from tilewright.compiler.products import prove
from tilewright.compiler.proofs.copies import prove_copies
from tilewright.compiler.proofs.descriptors import check_descriptors
from tilewright.compiler.proofs.epilogue_copies import INTERIOR
from tilewright.compiler.proofs.obligations import missing, prove_protocols
from tilewright.compiler.proofs.stores import prove_stores
from tilewright.schedule.hopper.candidate import Candidate
from tilewright.tile import dialect as tile
from tilewright.tile.attributes import ExprAttr
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t

pytestmark = pytest.mark.sample(1)

CANDIDATE = Candidate(1, stages=2)
OFFSETS = {
    "whole tiles": [0, 64, 128, 192],
    "one row less, one row more": [0, 63, 128, 193, 210],
    "begins inside of blocks": [0, 5, 69, 134, 210],
    "long": [0, 200, 210],
}


def branch(kernel: t.Kernel) -> t.If:
    """The branch with tensor copies on one side and rows on the other."""
    branches = [op for op in kernel.walk() if isinstance(op, t.If) and has(op.then, a.TmaStore)]
    (found,) = (op for op in branches if has(op.otherwise, a.CopyOut))
    return found


def has(region: object, kind: type) -> bool:
    return any(isinstance(op, kind) for op in region.walk())  # type: ignore[attr-defined]


def stored_by(kernel: t.Kernel, arrays: dict[str, np.ndarray], seed: int = 0) -> None:
    simulate.run(kernel, {**arrays, **counts()}, seed=seed, grid_size=3)


@pytest.mark.parametrize("name", OFFSETS)
def test_every_row_is_stored_by_one_of_both_ways(name: str) -> None:
    kernel = lowered(CANDIDATE).scheduled.kernel
    arrays = drawn(OFFSETS[name])
    stored_by(kernel, arrays)
    np.testing.assert_allclose(arrays["c"].astype(np.float64), exact(arrays), atol=0.15)


def test_whole_tiles_alone_are_copied() -> None:
    """Without the copies just the tiles stay unwritten that have 64 rows of one group."""
    kernel = lowered(CANDIDATE).scheduled.kernel
    for copy in [op for op in branch(kernel).then.walk() if isinstance(op, a.TmaStore)]:
        copy.detach()
    arrays = drawn(OFFSETS["begins inside of blocks"])
    stored_by(kernel, arrays)
    unwritten = np.isnan(arrays["c"].astype(np.float32)).all(1)
    np.testing.assert_array_equal(np.flatnonzero(unwritten), [*range(5, 69), *range(69, 133), *range(134, 198)])


def test_the_certificate_says_what_is_asked() -> None:
    found = lowered(CANDIDATE)
    certificate = prove(found.tile, found.scheduled.kernel, check_descriptors(found.scheduled.kernel))
    assert not isinstance(certificate, str)
    (held,) = (o for o in certificate if o.name == INTERIOR)
    assert held.detail.startswith("copied where ")
    assert " + 64 <= min(T, " in held.detail
    rest = [o for o in certificate if o.name != INTERIOR]
    assert missing(rest, found.scheduled.kernel) == (INTERIOR,)


def asks_a_row_less(kernel: t.Kernel) -> None:
    """A tile whose last row is the next group's is copied whole."""
    found = branch(kernel)
    tests = [c for c in conjuncts(found.condition.expr) if any(s.startswith("$b") for s in c.symbols)]
    weaker = [c.substitute({s: Sym(s) - 1 for s in _begins(c)}) for c in tests]
    found.attributes["condition"] = ExprAttr.of(all_of(weaker))


def _begins(test: Expr) -> list[str]:
    """Where the tile begins: of both bounds the one bound first."""
    return sorted(s for s in test.symbols if s.startswith("$b"))[:1]


def asks_nothing(kernel: t.Kernel) -> None:
    branch(kernel).attributes["condition"] = ExprAttr.of(TRUE)


def asks_the_contrary(kernel: t.Kernel) -> None:
    found = branch(kernel)
    found.attributes["condition"] = ExprAttr.of(negate(found.condition.expr))


def asks_another_row(kernel: t.Kernel) -> None:
    """Each thread asks whether its own row is there."""
    found = branch(kernel)
    mine = {s: Sym(s) + Sym(t.THREAD) for s in _begins(found.condition.expr)}
    found.attributes["condition"] = ExprAttr.of(found.condition.expr.substitute(mine))


CONDITIONS = [asks_a_row_less, asks_nothing, asks_the_contrary]


@pytest.mark.parametrize("change", CONDITIONS, ids=lambda f: f.__name__)
def test_tiles_that_are_not_whole_are_not_copied(change: Callable[[t.Kernel], None]) -> None:
    """Refused by what compares copies with the program, and by what knows of accesses alone."""
    found = lowered(CANDIDATE)
    kernel = found.scheduled.kernel
    assert isinstance(prove_copies(found.tile, kernel), Proved)
    assert isinstance(prove_stores(found.tile, kernel), Proved)
    change(kernel)
    answer = prove_copies(found.tile, kernel)
    assert isinstance(answer, Refuted)
    assert "is stored whole, and nothing says" in answer.witness
    assert not isinstance(prove_stores(found.tile, kernel), Proved)


def test_threads_that_decide_for_themselves_are_refused() -> None:
    found = lowered(CANDIDATE)
    asks_another_row(found.scheduled.kernel)
    assert not isinstance(prove_protocols(found.scheduled.kernel), Proved)


def waits(region: object) -> list[a.Elected]:
    """Where one thread waits until copies have read the panels."""
    found = [op for op in region.walk() if isinstance(op, a.BulkWait)]  # type: ignore[attr-defined]
    around = [op.parent_op() for op in found]
    return [op for op in around if isinstance(op, a.Elected)]


@pytest.mark.parametrize("side", ["then", "otherwise"])
def test_a_wait_left_out_on_one_side_is_refused(side: str) -> None:
    """Copies of programs before still read the panels, whichever way those went."""
    kernel = lowered(CANDIDATE).scheduled.kernel
    assert isinstance(prove_protocols(kernel), Proved)
    first, *_ = waits(getattr(branch(kernel), side))
    first.detach()
    assert isinstance(prove_protocols(kernel), Refuted)


def test_a_barrier_left_out_behind_the_wait_is_refused() -> None:
    kernel = lowered(CANDIDATE).scheduled.kernel
    barrier = next(op for op in branch(kernel).otherwise.walk() if isinstance(op, a.NamedBarrierSync))
    barrier.detach()
    assert not isinstance(prove_protocols(kernel), Proved)


@tw.kernel
def twice(
    offsets: tw.Offsets["G + 1"],
    a: tw.Tensor["T", "K"],
    b: tw.Tensor["G", "N", "K"],
    c: tw.Tensor["T", "N"],
    d: tw.Tensor["T", "N"],
):
    g, m, n = tw.ragged_grid(offsets, c.shape, (64, 64))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], 64):
        acc += tw.dot(a[m, k], b[g, n, k].T)
    c[m, n] = acc
    d[m, n] = acc * 2.0


@tw.kernel
def until(lengths: tw.Tensor["B"], x: tw.Tensor["B", "M", "K"], w: tw.Tensor["N", "K"], y: tw.Tensor["B", "M", "N"]):
    """Rows up to a length of their own, without promises."""
    b, n = tw.grid((lengths.shape[0], w.shape[0]), (None, 64))
    for m in tw.stream(x.shape[1], 64, until=lengths[b]):
        acc = tw.zeros((m, n), tw.f32)
        for k in tw.stream(x.shape[2], 64):
            acc += tw.dot(x[b, m, k], w[n, k].T)
        y[b, m, n] = acc


@pytest.mark.slow
def test_two_stores_of_a_tile_share_the_panels() -> None:
    arrays = drawn(OFFSETS["begins inside of blocks"])
    both = {**arrays, "d": np.full_like(arrays["c"], np.nan)}
    twice(**both)
    np.testing.assert_allclose(both["c"].astype(np.float64), exact(arrays), atol=0.15)
    np.testing.assert_allclose(both["d"].astype(np.float64), 2 * exact(arrays), atol=0.3)


def test_the_ptx_machine_goes_both_ways() -> None:
    """Bit for bit as the simulator, whichever way a tile leaves."""
    artifact = grouped.compile(dtypes=DTYPES)
    for name in ("one row less, one row more", "begins inside of blocks"):
        simulated, executed = drawn(OFFSETS[name]), drawn(OFFSETS[name])
        grouped(**simulated)
        driver = run_artifact(artifact, executed)
        assert [str(fault) for _, report in driver.reports for fault in report.faults] == []
        np.testing.assert_array_equal(executed["c"].view(np.uint16), simulated["c"].view(np.uint16))


def test_rows_up_to_a_length() -> None:
    """Bounds without promises, in a stream: the same."""
    rng = np.random.default_rng(0)
    x, w = (rng.normal(size=shape).astype(BF16) for shape in ((3, 150, 72), (72, 72)))
    y, lengths = np.full((3, 150, 72), np.nan, BF16), np.array([150, 64, 63], np.int32)
    artifact = until.compile(dtypes=dict.fromkeys("xwy", "bf16") | {"lengths": "i32"})
    assert {o.detail for o in artifact.certificate if o.name == INTERIOR} == {"copied where $k0*64 + 64 <= min(M, $b0)"}
    until(lengths, x, w, y)
    for stored, rows, length in zip(y, x, lengths, strict=True):
        wanted = rows[:length].astype(np.float64) @ w.astype(np.float64).T
        np.testing.assert_allclose(stored[:length].astype(np.float64), wanted, atol=0.15)
        assert np.isnan(stored[length:].astype(np.float32)).all()


def cleared(kernel: t.Kernel) -> t.If:
    """The branch with the stores of zeros to rows in no group."""
    (found,) = (op for op in kernel.walk() if isinstance(op, t.If) and has(op.then, t.Store))
    return found


def test_rows_of_no_group_are_cleared_where_there_are_any() -> None:
    found = lowered(CANDIDATE)
    kernel = found.scheduled.kernel
    assert not has(cleared(kernel).otherwise, t.Store)
    assert isinstance(prove_stores(found.tile, kernel), Proved)
    condition = cleared(kernel).condition.expr
    cleared(kernel).attributes["condition"] = ExprAttr.of(negate(condition))
    assert not isinstance(prove_stores(found.tile, kernel), Proved)


def test_small_buffers_share_the_room_of_one_tile() -> None:
    """Of four stages of 128 x 256 tiles, panels and bounds there is room in one CTA."""
    kernel = lowered(Candidate(2), bm=128, bn=256).scheduled.kernel
    shared = [op for op in kernel.walk() if isinstance(op, t.Shared)]
    assert all(op.offset is not None for op in shared)
    places = sorted((op.offset.data, t.shared_of(op.buffer)) for op in shared)  # type: ignore[union-attr]
    ends = [begin + kind.count.data * kind.dtype.dtype.bytes for begin, kind in places]
    assert all(end <= begin for end, (begin, _) in zip(ends, places[1:], strict=False))
    tiles = [begin % 1024 for (begin, _), end in zip(places, ends, strict=True) if end - begin >= 1024]
    assert len(tiles) == 2
    assert set(tiles) == {0}
    assert max(end - begin for (begin, _), end in zip(places, ends, strict=True)) == 4 * 49152


@tw.kernel
def attention_of_groups(
    offsets: tw.Offsets["G + 1"],
    q: tw.Tensor["T", 64],
    k: tw.Tensor["G", "S", 64],
    v: tw.Tensor["G", "S", 64],
    o: tw.Tensor["T", 64],
):
    g, m, e = tw.ragged_grid(offsets, o.shape, (64, 64))
    total, acc = tw.zeros((m,), tw.f32), tw.zeros((m, e), tw.f32)
    query = q[m, :]
    for s in tw.stream(k.shape[1], 64):
        weights = tw.exp(tw.dot(query, k[g, s, :].T) * 0.01)
        total += weights.sum(1)
        acc += tw.dot(weights.to(q.dtype), v[g, s, e])
    o[m, e] = acc / total[:, None]


@pytest.mark.slow
def test_streams_of_tiles_without_rows_have_no_step() -> None:
    """But for those of chained products, of which each step's parts are scheduled apart."""
    found = lowered(CANDIDATE).tile
    stream = [op for op in found.walk() if isinstance(op, tile.StreamLoop)][-1]
    steps = {"K": 640, "T": 100}
    bounds = sorted(stream.trip.expr.symbols - steps.keys())
    assert len(bounds) == 2
    begins, ends = bounds
    for begin, end, trip in ((0, 64, 10), (64, 65, 10), (64, 64, 0), (64, 0, 0)):
        assert stream.trip.expr.evaluate({**steps, begins: begin, ends: end}) == trip
    arrays = drawn(OFFSETS["long"], k=64, n=64)
    keys, values = arrays["b"][:, :64], arrays["b"][:, ::-1]
    types = dict.fromkeys("qkvo", "bf16") | {"offsets": "i32"}
    assert attention_of_groups.compile(dtypes=types).kernels
    attention_of_groups(arrays["offsets"], arrays["a"], keys.copy(), values.copy(), arrays["c"])
    for g, (low, high) in enumerate(pairwise(arrays["offsets"])):
        p = np.exp(arrays["a"][low:high].astype(np.float64) @ keys[g].astype(np.float64).T * 0.01)
        wanted = p @ values[g].astype(np.float64) / p.sum(1, keepdims=True)
        np.testing.assert_allclose(arrays["c"][low:high].astype(np.float64), wanted, atol=0.02)
