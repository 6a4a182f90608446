"""Parts of a stream that the CTAs of a cluster add: values, proofs, and what each of them sees when it is left out."""

# ruff: noqa: F821, UP037 - dimension names are strings

from __future__ import annotations

import re
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
from xdsl.dialects.builtin import ArrayAttr, IntAttr

import tilewright as tw
from support import products as p
from support.tile_changes import first, trip
from tilewright import simulate
from tilewright.artifact.schema import Launch
from tilewright.base.expr import Const, Expr, Sym
from tilewright.base.verdict import Proved, Refuted, Unknown
from tilewright.codegen.assemble import assemble, defects
from tilewright.codegen.cuda import emit_kernel
from tilewright.codegen.sync_check import mismatches
from tilewright.compiler.differential import run_differential_test
from tilewright.compiler.launch_recipe import recipe
from tilewright.compiler.program import traced
from tilewright.compiler.proofs.rewritten import certify_clustered
from tilewright.compiler.proofs.shared_memory import prove_initialised
from tilewright.compiler.requests import assumptions_of
from tilewright.diag import TilewrightError
from tilewright.hw.target import SM90A
from tilewright.protocol.model import steps
from tilewright.protocol.ops.memory import Read
from tilewright.schedule.hopper.accumulator_placement import Refused
from tilewright.schedule.hopper.candidate import Candidate
from tilewright.schedule.hopper.candidates import schedule
from tilewright.schedule.transforms.split_k import NotSplitError, split
from tilewright.tile import dialect as tile
from tilewright.tile.attributes import ExprAttr, coord_attr
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t
from tilewright.transport.protocol import protocol_of
from tilewright.validate.launch_recipe import shared_faults
from tilewright.validate.tile_to_transport.compare import Unlike, compare
from tilewright.validate.transport_to_ptx import compare as compare_ptx
from tilewright.verify import check

pytestmark = pytest.mark.sample(1)

BF16 = ml_dtypes.bfloat16


@tw.kernel
def beside(
    a: tw.Tensor["M", "K"],
    b: tw.Tensor["N", "K"],
    c: tw.Tensor["M", "N"],
    s: tw.Tensor["M"],
    *,
    bm=64,
    bn=64,
):
    m, n = tw.grid(c, (bm, bn))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], 64):
        acc += tw.dot(a[m, k], b[n, k].T)
    c[m, n] = acc
    tw.reduce_add(s, m, acc.sum(1))


def programs(
    kernel: tw.Kernel, parts: int, *, bm: int = 64, bn: int = 64
) -> tuple[tile.Kernel, tile.Kernel, tile.Kernel]:
    """The program in tiles, in shares of these, and that of parts and shares."""
    whole, shares = (traced(p.request(kernel, bm=bm, bn=width)) for width in (bn, bn // parts))
    return whole, shares, split(whole, many=False).clustered(shares, parts)


def lowered(kernel: tw.Kernel, parts: int, *, bm: int = 64, bn: int = 64, stages: int = 2) -> t.Kernel:
    request = p.request(kernel, bm=bm, bn=bn)
    whole, shares, made = programs(kernel, parts, bm=bm, bn=bn)
    certify_clustered(whole, shares, made)
    candidate = Candidate(bm // 64, stages=stages, matrix_stores=False, cluster=(1, parts))
    found = schedule(made, request.facts, SM90A, candidate, assumptions_of(made, request.facts))
    assert not isinstance(found, Refused), found.reason
    found.kernel.verify()
    return found.kernel


def drawn(shapes: dict[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(7)
    arrays = {name: rng.standard_normal(shape).astype(BF16) for name, shape in shapes.items()}
    arrays["c"][:] = np.nan
    return arrays


def off(got: np.ndarray, exact: np.ndarray) -> float:
    return float(np.linalg.norm(got.astype(np.float64) - exact) / np.linalg.norm(exact))


# -- values ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("parts", "bm", "bn", "size"),
    [
        (4, 64, 64, (70, 104, 520)),
        (4, 64, 96, (64, 200, 72)),  # two steps for four parts
        (2, 64, 64, (130, 8, 64)),
        (2, 128, 128, (130, 264, 200)),
    ],
)
def test_parts_add_up(parts: int, bm: int, bn: int, size: tuple[int, int, int]) -> None:
    kernel = lowered(p.nt, parts, bm=bm, bn=bn)
    m, n, k = size
    for seed in range(2):
        arrays = drawn({"a": (m, k), "b": (n, k), "c": (m, n)})
        simulate.run(kernel, arrays, seed=seed)
        assert off(arrays["c"], arrays["a"].astype(np.float64) @ arrays["b"].astype(np.float64).T) < 3e-3


def test_an_order_of_their_own_changes_no_bit() -> None:
    """Whichever CTA comes first: parts are added in the order of ranks."""
    kernel, bits = lowered(p.nt, 4), set[bytes]()
    for seed in range(4):
        arrays = drawn({"a": (64, 320), "b": (64, 320), "c": (64, 64)})
        simulate.run(kernel, arrays, seed=seed)
        bits.add(arrays["c"].tobytes())
    assert len(bits) == 1


def test_the_epilogue_is_done_for_shares() -> None:
    m, n, k = 70, 136, 328
    arrays = drawn({"a": (m, k), "b": (n, k), "bias": (n,), "r": (m, n), "c": (m, n)})
    simulate.run(lowered(p.biased, 2), arrays)
    got = {name: x.astype(np.float64) for name, x in arrays.items()}
    assert off(got["c"], np.maximum(got["a"] @ got["b"].T + got["bias"], 0) + got["r"]) < 3e-3


def test_two_fragments_are_added_side_by_side() -> None:
    m, n, k = 66, 72, 200
    arrays = drawn({"x": (m, k), "v": (n, k), "w": (n, k), "c": (m, n)})
    simulate.run(lowered(p.gated, 2), arrays)
    got = {name: x.astype(np.float64) for name, x in arrays.items()}
    g, u = got["x"] @ got["v"].T, got["x"] @ got["w"].T
    assert off(got["c"], g / (1 + np.exp(-g)) * u) < 3e-3


def test_every_batch_has_its_own_parts() -> None:
    i, m, n, k = 3, 40, 72, 136
    arrays = drawn({"a": (i, m, k), "b": (i, n, k), "c": (i, m, n)})
    simulate.run(lowered(p.batched, 2), arrays)
    exact = np.einsum("imk,ink->imn", arrays["a"].astype(np.float64), arrays["b"].astype(np.float64))
    assert off(arrays["c"], exact) < 3e-3


def test_the_ptx_does_what_the_kernel_says() -> None:
    kernel = lowered(p.nt, 2)
    emitted = emit_kernel(kernel)
    made = assemble(emitted.source, SM90A.name, emitted.entry)
    assert "ld.shared::cluster.v4.u32" in made.ptx
    assert not defects(made)
    assert not mismatches(kernel, made.ptx)
    found = run_differential_test(kernel, made.ptx, recipe([kernel]))
    assert found.launches
    assert not found.differences


def lowering_of(kernel: tw.Kernel, parts: int, change: Callable[[t.Kernel], None] | None = None) -> tuple[Unlike, ...]:
    """Where the lowered kernel is not shown to be the program; after a change of it."""
    low = lowered(kernel, parts)
    if change is not None:
        change(low)
    return compare(programs(kernel, parts)[2], low)


@pytest.mark.parametrize(("kernel", "parts"), [(p.nt, 4), (p.biased, 2), (p.gated, 2), (p.batched, 2)])
def test_the_lowered_kernel_is_the_program(kernel: tw.Kernel, parts: int) -> None:
    assert lowering_of(kernel, parts) == ()


def other_share(kernel: t.Kernel) -> None:
    (read,) = [op for op in kernel.walk() if isinstance(op, t.ClusterRead)]
    read.attributes["offset"] = ExprAttr(read.offset.expr.substitute({a.CTA_RANK: 1 - Sym(a.CTA_RANK)}))


def own_part_twice(kernel: t.Kernel) -> None:
    (read,) = [op for op in kernel.walk() if isinstance(op, t.ClusterRead)]
    read.attributes["cta"] = ExprAttr(Sym(a.CTA_RANK))


def other_columns(kernel: t.Kernel) -> None:
    (read,) = [op for op in kernel.walk() if isinstance(op, t.ClusterRead)]
    read.attributes["offset"] = ExprAttr(read.offset.expr.substitute({t.THREAD: Sym(t.THREAD) ^ 1}))


def one_part_twice(kernel: t.Kernel) -> None:
    (adding,) = [op for op in kernel.walk() if isinstance(op, t.Map) and op.note is not None and op.note.data == NOTE]
    first, *_ = adding.reads.data
    adding.attributes["reads"] = ArrayAttr([first] * len(adding.reads))


NOTE = "tile.program_sum"


@pytest.mark.parametrize("change", [other_share, own_part_twice, other_columns, one_part_twice])
def test_another_lowering_is_seen(change: Callable[[t.Kernel], None]) -> None:
    found = lowering_of(p.nt, 2, change)
    assert found
    assert all("undecided" not in str(each) for each in found)


def compared(kernel: t.Kernel, source: str) -> tuple[object, ...]:
    """Where the PTX of a text is not shown to be that of the kernel."""
    made = assemble(source, SM90A.name, kernel.entry)
    launch = recipe([kernel]).steps[-1]
    assert isinstance(launch, Launch)
    return compare_ptx(kernel, made.ptx, launch.args, launch.grid[0], 1)


@pytest.mark.parametrize(("kernel", "parts"), [(p.nt, 4), (p.gated, 2)])
def test_the_ptx_is_that_of_the_kernel(kernel: tw.Kernel, parts: int) -> None:
    low = lowered(kernel, parts, stages=4)
    assert compared(low, emit_kernel(low).source) == ()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (r"(cluster_load_16\(.*), (\(v .*\))\);", r"\1, \2 ^ 1);"),  # another rank
        (r"cluster_load_16\(shared_base", "cluster_load_16(16 + shared_base"),  # other columns
        (r"__fadd_rn\(x0, x1\)", "__fadd_rn(x0, x0)"),
        (r'asm volatile\("barrier.cluster.(arrive.release|wait.acquire);" ::: "memory"\);\n      ', ""),  # no barrier
    ],
)
def test_another_ptx_is_seen(old: str, new: str) -> None:
    low = lowered(p.nt, 2, stages=4)
    source = emit_kernel(low).source
    changed_ = re.sub(old, new, source)
    assert changed_ != source
    assert compared(low, changed_)


# -- programs that are not cut so --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("kernel", "why"),
    [(p.scaled_rows, "steps beyond the last"), (beside, "without columns")],
)
def test_others_are_refused(kernel: tw.Kernel, why: str) -> None:
    whole = traced(p.request(kernel, bm=64))
    with pytest.raises(NotSplitError, match=why):
        split(whole, many=False).clustered(whole, 2)


def test_shares_are_whole_vectors_of_registers() -> None:
    request = p.request(p.nt)
    _, _, made = programs(p.nt, 4)
    for candidate in (Candidate(1, matrix_stores=False), Candidate(1, matrix_stores=False, cluster=(1, 2))):
        found = schedule(made, request.facts, SM90A, candidate, ())
        assert isinstance(found, Refused)
        assert "added up by the CTAs of a cluster" in found.reason
    tall = split(traced(p.request(p.nt, bm=128)), many=False).clustered(traced(p.request(p.nt, bm=128, bn=32)), 2)
    found = schedule(tall, request.facts, SM90A, Candidate(1, matrix_stores=False, cluster=(1, 2)), ())
    assert isinstance(found, Refused)
    assert "equal runs" in found.reason


# -- the program's proof -----------------------------------------------------------------------------------------------
def more_parts(kernel: tile.Kernel) -> None:
    *rest, parts = kernel.grid.data
    kernel.attributes["grid"] = ArrayAttr([*rest, ExprAttr(parts.expr + 1)])


def other_rows(kernel: tile.Kernel) -> None:
    load = first(kernel, tile.Load)
    rows, *rest = load.coords.data
    span = type(rows.data)(rows.data.origin + 1, rows.data.size, rows.data.stop)
    load.attributes["coords"] = ArrayAttr([coord_attr(span), *rest])


def fewer_summed(kernel: tile.Kernel) -> None:
    first(kernel, tile.ProgramSum).attributes["parts"] = IntAttr(2)


def over_rows(kernel: tile.Kernel) -> None:
    first(kernel, tile.ProgramSum).attributes["axis"] = IntAttr(0)


def exchanged(kernel: tile.Kernel) -> None:
    one, other = (first(kernel, tile.ProgramSum, i) for i in range(2))
    one.operands[0], other.operands[0] = other.operands[0], one.operands[0]


@pytest.mark.parametrize("change", [trip(-1), trip(1), more_parts, other_rows, fewer_summed, over_rows, exchanged])
def test_what_is_changed_is_seen(change: Callable[[tile.Kernel], None]) -> None:
    whole, shares, made = programs(p.gated, 4)
    certify_clustered(whole, shares, made)
    change(made)
    with pytest.raises(TilewrightError, match=r"(?s)CRT003.*clustered"):
        certify_clustered(whole, shares, made)


def test_shares_of_other_columns_are_seen() -> None:
    whole, _, made = programs(p.nt, 4)
    with pytest.raises(TilewrightError, match=r"(?s)CRT003.*clustered"):
        certify_clustered(whole, traced(p.request(p.nt, bn=32)), made)


# -- threads -----------------------------------------------------------------------------------------------------------
def without_barrier(kernel: t.Kernel, number: int) -> None:
    """Every role meets the cluster once less."""
    for role in [op for op in kernel.body.block.ops if isinstance(op, a.Role)]:
        for kind in (a.ClusterArrive, a.ClusterWait):
            [op for op in role.walk() if isinstance(op, kind)][number].detach()


def test_both_barriers_are_needed() -> None:
    """Before parts are read, and before a CTA ends."""
    assert isinstance(check(protocol_of(lowered(p.nt, 2))), Proved)
    for number in (0, 1):
        kernel = lowered(p.nt, 2)
        without_barrier(kernel, number)
        assert isinstance(check(protocol_of(kernel)), Refuted)


@pytest.mark.parametrize("parts", [2, 4])
def test_the_protocol_reads_a_part_of_every_cta(parts: int) -> None:
    """Whose barriers order them: those of one CTA are ordered by that one's."""
    reads = [
        step.op.region.cta
        for role in protocol_of(lowered(p.nt, parts)).roles
        for step in steps(role.body)
        if isinstance(step.op, Read) and step.op.region.cta is not None
    ]
    assert sorted(map(str, reads)) == [str(rank) for rank in range(parts)]


def test_the_simulator_sees_a_missing_barrier() -> None:
    kernel = lowered(p.nt, 2)
    without_barrier(kernel, 0)
    arrays = drawn({"a": (64, 320), "b": (64, 320), "c": (64, 64)})
    with pytest.raises(TilewrightError, match=r"SIM0(04|05|18)"):
        simulate.run(kernel, arrays)


def changed(kernel: t.Kernel, *, offset: Expr | None = None, cta: Expr | None = None) -> t.Kernel:
    (read,) = [op for op in kernel.walk() if isinstance(op, t.ClusterRead)]
    for name, value in (("offset", offset), ("cta", cta)):
        if value is not None:
            read.attributes[name] = ExprAttr(value)
    return kernel


def test_parts_that_nobody_wrote_are_not_read() -> None:
    assert isinstance(prove_initialised(lowered(p.nt, 2)), Proved)
    (read,) = [op for op in lowered(p.nt, 2).walk() if isinstance(op, t.ClusterRead)]
    beyond = read.offset.expr + 4096
    assert isinstance(prove_initialised(changed(lowered(p.nt, 2), offset=beyond)), Unknown)
    assert isinstance(prove_initialised(changed(lowered(p.nt, 2), cta=Const(2))), Unknown)
    assert isinstance(prove_initialised(changed(lowered(p.nt, 2), cta=Sym(t.THREAD) % 2)), Unknown)
    half = lowered(p.nt, 2)
    (write,) = [op for op in half.walk() if isinstance(op, t.SharedWrite)]
    write.attributes["guard"] = ExprAttr(Sym(t.THREAD) < 64)
    assert isinstance(prove_initialised(half), Refuted)


# -- parts where stages lay --------------------------------------------------------------------------------------------
def overlaid(parts: int = 2, **keywords: int) -> t.Kernel:
    """Two warpgroups, whose parts are too large to lie beside 4 stages."""
    kernel = lowered(p.nt, parts, bm=128, bn=256, stages=4, **keywords)
    stages, sums = (op for op in kernel.body.block.ops if isinstance(op, t.Shared))
    assert (stages.hint.data, sums.hint.data) == ("a_b", "parts")
    assert stages.offset == sums.offset == IntAttr(0)
    return kernel


@pytest.mark.slow
def test_parts_lie_where_stages_lay() -> None:
    kernel, (m, n, k) = overlaid(), (130, 264, 648)
    for seed in range(2):
        arrays = drawn({"a": (m, k), "b": (n, k), "c": (m, n)})
        simulate.run(kernel, arrays, seed=seed)
        assert off(arrays["c"], arrays["a"].astype(np.float64) @ arrays["b"].astype(np.float64).T) < 3e-3


def test_small_parts_lie_beside_stages() -> None:
    first, second = (op for op in lowered(p.nt, 2).body.block.ops if isinstance(op, t.Shared))
    assert first.offset != second.offset


def test_no_warpgroup_writes_over_stages_that_another_multiplies() -> None:
    kernel = overlaid()
    assert isinstance(check(protocol_of(kernel)), Proved)
    (barrier,) = [op for role in roles(kernel) for op in role.walk() if isinstance(op, t.Barrier)]
    barrier.detach()
    assert not isinstance(check(protocol_of(kernel)), Proved)


def written_early(kernel: t.Kernel) -> None:
    """Behind the first step's products, of which the same thread knows that they are over."""
    (write,) = [op for op in kernel.walk() if isinstance(op, t.SharedWrite)]
    (loop,) = [op for role in roles(kernel)[1:] for op in role.walk() if isinstance(op, t.For)]
    write.detach()
    loop.body.block.insert_op_before(write, next(op for op in loop.body.block.ops if isinstance(op, a.Advance)))


def signalled_between(kernel: t.Kernel) -> None:
    (write,) = [op for op in kernel.walk() if isinstance(op, t.SharedWrite)]
    block = write.parent
    assert block is not None
    block.insert_op_after(a.NamedBarrierArrive(Const(5), 384), write)


def loaded_late(kernel: t.Kernel) -> None:
    """The producer meets the cluster before it loads."""
    producer, _ = roles(kernel)
    meeting = [op for op in producer.walk() if isinstance(op, a.ClusterArrive | a.ClusterWait)][:2]
    for op in reversed(meeting):
        op.detach()
        producer.body.block.insert_op_before(op, next(iter(producer.body.block.ops)))


def roles(kernel: t.Kernel) -> list[a.Role]:
    return [op for op in kernel.body.block.ops if isinstance(op, a.Role)]


@pytest.mark.parametrize("change", [written_early, signalled_between, loaded_late])
def test_bytes_change_hands_once(change: Callable[[t.Kernel], None]) -> None:
    kernel = overlaid()
    assert isinstance(prove_initialised(kernel), Proved)
    assert not list(shared_faults(kernel, 232448))
    change(kernel)
    found = prove_initialised(kernel)
    assert isinstance(found, Unknown)
    assert "share bytes" in found.reason
    assert any("share bytes" in found for _, found, _ in shared_faults(kernel, 232448))


def test_a_cluster_has_no_other_ctas() -> None:
    with pytest.raises(TilewrightError, match="SIM011"):
        simulate.run(changed(lowered(p.nt, 2), cta=Const(2)), drawn({"a": (64, 64), "b": (64, 64), "c": (64, 64)}))
