"""Access proofs of whole kernels in Transport IR, each beside the twin that is one step wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from xdsl.dialects.builtin import ArrayAttr
from xdsl.ir import Operation, SSAValue

from support.pipeline import matmul
from support.timing import quickest
from support.transport import TID, M, N, P, R, copy, fill, kernel, programs, scalar, softmax, tensor
from tilewright.base.dtypes import f32, i32
from tilewright.base.expr import TRUE, Const, Expr, all_of, ceildiv, expr, minimum, sym
from tilewright.base.verdict import Discharged, Proved, Refuted, Unknown
from tilewright.diag import Location
from tilewright.diag.catalogue import CATALOGUE
from tilewright.lang.enums import AtomicFn
from tilewright.protocol.access import (
    AccessKind,
    AccessMap,
    IndexRole,
    KernelAccesses,
    LaunchParameter,
    LoopIndex,
    StoreDomain,
)
from tilewright.tile.attributes import ExprAttr
from tilewright.transport import dialect as t
from tilewright.transport.access import accesses_of
from tilewright.transport.asynchronous import TmaStore
from tilewright.verify import access_points, access_solve
from tilewright.verify.access import AccessFault, AccessWitness, prove_accesses, prove_cover, prove_guards
from tilewright.verify.access_report import diagnose

Q, C, STEP = sym("q"), sym("c"), sym("i")
LANE, WARP = TID % 32, TID // 32


def axis(name: str, size: Expr | int) -> LoopIndex:
    return LoopIndex(name, IndexRole.AXIS, Const(0), expr(size))


def program(name: str, extent: Expr | int) -> LoopIndex:
    return LoopIndex(name, IndexRole.PROGRAM, Const(0), expr(extent))


def whole(name: str, *dims: Expr | int) -> StoreDomain:
    """Every element of the tensor."""
    axes = tuple(axis(f"i{d}", dim) for d, dim in enumerate(dims))
    return StoreDomain(name, "user.py:9", axes, tuple(sym(a.name) for a in axes))


def stores(
    dims: Sequence[Expr | int],
    grid: dict[str, Expr],
    ops: Callable[[SSAValue, SSAValue], Sequence[Operation]],
    *,
    threads: int = 128,
    registers: int = 4,
    assumptions: Sequence[Expr] = (),
) -> t.Kernel:
    """A kernel that stores a register buffer to ``y``."""

    def build(y: SSAValue) -> list[Operation]:
        v = t.Registers("v", f32, registers)
        body = [v, fill(1.0, v.buffer), *ops(y, v.buffer)]
        return [programs(list(grid), list(grid.values()), body)]

    dims = [expr(d) for d in dims]
    return kernel({"y": tensor("y", dims)}, build, threads=threads, assumptions=assumptions)


def proved(op: t.Kernel, *domains: StoreDomain) -> tuple[Discharged, ...]:
    answer = prove_accesses(accesses_of(op), domains)
    assert isinstance(answer, Proved), answer
    return answer.obligations


def refuted(fault: AccessFault, op: t.Kernel, *domains: StoreDomain) -> AccessWitness:
    accesses = accesses_of(op)
    answers = [*prove_guards(accesses), *prove_cover(accesses, domains)]
    found = [a.witness for a in answers if isinstance(a, Refuted)]
    assert fault in [w.fault for w in found], answers
    first = prove_accesses(accesses, domains)
    assert isinstance(first, Refuted)
    diagnostic = diagnose(first)
    assert (diagnostic.code, diagnostic.found) == (first.witness.fault.value, str(first.witness))
    assert all((diagnostic.required, diagnostic.source, diagnostic.advice))
    return next(w for w in found if w.fault is fault)


# -- guards -----------------------------------------------------------------------------------------------------------
def test_softmax_is_proved_for_all_extents() -> None:
    rows = StoreDomain(
        "y",
        "",
        (program("p", ceildiv(M, 8)), axis("i", 8), axis("j", N)),
        (P * 8 + sym("i"), sym("j")),
        P * 8 + sym("i") < M,
    )
    obligations = proved(softmax(), rows)
    assert len(obligations) == 4
    assert proved(softmax(), whole("y", M, N)) == obligations


def test_proofs_are_fast() -> None:
    accesses = accesses_of(softmax())
    prove_accesses(accesses, [whole("y", M, N)])
    assert quickest(lambda: prove_accesses(accesses, [whole("y", M, N)]), 0.060) < 0.060


def test_guard_off_by_one_names_the_thread() -> None:
    place = P * 128 + TID * 4 + R
    proved(copy(guard=place < M), whole("y", M))
    witness = refuted(AccessFault.OUTSIDE, copy(guard=place <= M), whole("y", M))
    extent = dict(witness.parameters)["M"]
    assert witness.element == (extent,)
    assert witness.place == "user.py:3"
    at = dict(witness.points[0].indices)
    assert at["p"] * 128 + at["$tid"] * 4 + at["$r"] == extent


def test_negative_coordinates() -> None:
    def shifted(by: int) -> t.Kernel:
        place = P * 512 + TID * 4 + R - by
        guard = [place < M] if by < 2 else [place < M, place >= 0]
        return stores([M], {"p": ceildiv(M + by, 512)}, lambda y, v: [t.Store(y, v, [place], all_of(guard))])

    proved(shifted(0), whole("y", M))
    proved(shifted(2), whole("y", M))
    assert refuted(AccessFault.OUTSIDE, shifted(1), whole("y", M)).element == (-1,)


def test_clamped_coordinates_need_no_guard() -> None:
    def build(x: SSAValue) -> list[Operation]:
        v = t.Registers("v", f32, 1)
        row = minimum(P * 32 + TID, M - slack)
        return [programs(["p"], [ceildiv(M, 32)], [v, t.Load(x, v.buffer, [row], TRUE)])]

    slack = 1
    proved(kernel({"x": tensor("x", [M])}, build))
    slack = 0
    refuted(AccessFault.OUTSIDE, kernel({"x": tensor("x", [M])}, build))


def test_grouped_heads() -> None:
    """Head h of H = 4*G reads group h // 4."""
    h, g = sym("h"), sym("G")

    def build(x: SSAValue) -> list[Operation]:
        v = t.Registers("v", f32, 1)
        return [programs(["h"], [heads], [v, t.Load(x, v.buffer, [h // 4, TID], TRUE)])]

    heads = g * 4
    proved(kernel({"x": tensor("x", [g, Const(32)])}, build))
    heads = g * 4 + 1
    refuted(AccessFault.OUTSIDE, kernel({"x": tensor("x", [g, Const(32)])}, build))


def test_facts_of_the_class_are_used() -> None:
    def rows(*assumptions: Expr) -> t.Kernel:
        place = P * 512 + TID * 4 + R
        return stores([M], {"p": M // 512}, lambda y, v: [t.Store(y, v, [place], TRUE)], assumptions=assumptions)

    proved(rows((M % 512).eq(0)), whole("y", M))
    refuted(AccessFault.MISSED, rows((M % 256).eq(0)), whole("y", M))
    proved(rows((M % 512).eq(0), (sym("y.stride0") % 4).eq(0), (sym("y.address") % 16).eq(0)), whole("y", M))


def test_runtime_scalars_are_any_integers() -> None:
    def upto(*, clipped: bool) -> t.Kernel:
        stop = minimum(sym("n"), M) if clipped else sym("n")

        def build(x: SSAValue, n: SSAValue) -> list[Operation]:
            v = t.Registers("v", f32, 1)
            return [t.Let("stop", stop), v, t.Load(x, v.buffer, [TID], sym("stop") > TID)]

        return kernel({"x": tensor("x", [M]), "n": scalar(i32)}, build)

    proved(upto(clipped=True))
    refuted(AccessFault.OUTSIDE, upto(clipped=False))


# -- cover ------------------------------------------------------------------------------------------------------------
def _tiles(step: int, *, count: Callable[[Expr], Expr] = lambda m: ceildiv(m, 512)) -> t.Kernel:
    place = P * step + TID * 4 + R
    return stores([M], {"p": count(M)}, lambda y, v: [t.Store(y, v, [place], place < M)])


def test_tiles_that_overlap_or_leave_gaps() -> None:
    proved(_tiles(512), whole("y", M))
    witness = refuted(AccessFault.TWICE, _tiles(511), whole("y", M))
    first, second = witness.points
    assert first.indices != second.indices
    refuted(AccessFault.MISSED, _tiles(513), whole("y", M))


def test_uncovered_tail() -> None:
    witness = refuted(AccessFault.MISSED, _tiles(512, count=lambda m: m // 512), whole("y", M))
    assert not witness.points
    assert witness.element[0] < witness.extents[0]


def test_missing_thread_predicate() -> None:
    """One value a row, held by all lanes of a warp: one lane stores it."""

    def rows(owner: Expr) -> t.Kernel:
        row = P * 4 + WARP
        ops = lambda y, v: [t.Store(y, v, [row], all_of([owner, row < M]))]  # noqa: E731
        return stores([M], {"p": ceildiv(M, 4)}, ops, registers=1)

    proved(rows(LANE.eq(0)), whole("y", M))
    proved(rows(LANE.eq(31)), whole("y", M))
    refuted(AccessFault.TWICE, rows(TRUE), whole("y", M))
    refuted(AccessFault.TWICE, rows((LANE % 16).eq(0)), whole("y", M))
    refuted(AccessFault.MISSED, rows(TID.eq(0)), whole("y", M))


def test_interior_and_edge_programs() -> None:
    def split(edge: Expr) -> t.Kernel:
        place = P * 512 + TID * 4 + R

        def ops(y: SSAValue, v: SSAValue) -> list[Operation]:
            inside = t.block([t.Store(y, v, [place], TRUE, vector=4)])
            return [t.If((P + 1) * 512 <= M, inside, t.block([t.Store(y, v, [place], edge)]))]

        return stores([M], {"p": ceildiv(M, 512)}, ops)

    place = P * 512 + TID * 4 + R
    proved(split(place < M), whole("y", M))
    refuted(AccessFault.OUTSIDE, split(TRUE), whole("y", M))
    refuted(AccessFault.MISSED, split(place < M - 1), whole("y", M))


def test_streams_with_a_tail() -> None:
    def row(tail: Expr) -> t.Kernel:
        full, place = N // 512 * 512, TID * 4 + R

        def ops(y: SSAValue, v: SSAValue) -> list[Operation]:
            body = t.block([t.Store(y, v, [P, C + place], TRUE)])
            rest = t.block([t.Store(y, v, [P, full + place], full + place < N)])
            empty = t.block([])
            return [t.For("c", Const(0), full, Const(512), body), t.If(tail < N, rest, empty)]

        return stores([M, N], {"p": M}, ops)

    full = N // 512 * 512
    proved(row(full), whole("y", M, N))
    refuted(AccessFault.MISSED, row(full + 1), whole("y", M, N))


def test_two_halves_and_interleaved_pairs() -> None:
    """Rotary embedding in both its forms."""

    def rotary(first: Expr, second: Expr) -> t.Kernel:
        inside = TID < M
        ops = lambda y, v: [t.Store(y, v, [P, c], inside) for c in (first, second)]  # noqa: E731
        return stores([N, M * 2], {"p": N}, ops, registers=1, assumptions=[M <= 128])

    proved(rotary(TID, M + TID), whole("y", N, M * 2))
    proved(rotary(TID * 2, TID * 2 + 1), whole("y", N, M * 2))
    refuted(AccessFault.TWICE, rotary(TID, M - 1 + TID), whole("y", N, M * 2))
    refuted(AccessFault.TWICE, rotary(TID * 2, TID * 2), whole("y", N, M * 2))


def test_reversed_order() -> None:
    flipped = [P * 512 + (511 - TID * 4 - R)]
    op = stores([M], {"p": ceildiv(M, 512)}, lambda y, v: [t.Store(y, v, flipped, flipped[0] < M)])
    proved(op, whole("y", M))


@pytest.mark.parametrize("tile", [48, 60, 100, 127, 128])
def test_tiles_that_are_no_powers_of_two(tile: int) -> None:
    """The digits reach 128; a predicate keeps a tile's elements inside the tile."""

    def columns(*, inside: bool) -> t.Kernel:
        place = TID % 4 * 4 + TID // 4 * 16 + R
        guard = all_of([P * tile + place < N, *([place < tile] if inside else [])])
        return stores([N], {"p": ceildiv(N, tile)}, lambda y, v: [t.Store(y, v, [P * tile + place], guard)], threads=32)

    proved(columns(inside=True), whole("y", N))
    if tile < 128:
        refuted(AccessFault.TWICE, columns(inside=False), whole("y", N))


def test_permuted_copy_of_four_dimensions() -> None:
    a, b, c, d = (sym(s) for s in "ABCD")

    def permuted(lanes: Expr) -> t.Kernel:
        coords = [sym("p0") * 32 + lanes, sym("p1"), sym("p2") * 4 + R, sym("p3") * 4 + WARP]
        guard = all_of([coords[0] < a, coords[2] < c, coords[3] < d])
        grid = {"p0": ceildiv(a, 32), "p1": b, "p2": ceildiv(c, 4), "p3": ceildiv(d, 4)}
        return stores([a, b, c, d], grid, lambda y, v: [t.Store(y, v, coords, guard)])

    proved(permuted(LANE), whole("y", a, b, c, d))
    refuted(AccessFault.TWICE, permuted(TID % 16), whole("y", a, b, c, d))


def test_the_domain_is_what_the_tile_program_stores() -> None:
    part = StoreDomain("y", "", (axis("i", N),), (sym("i"),))
    place = P * 512 + TID * 4 + R

    def upto(stop: Expr) -> t.Kernel:
        def build(x: SSAValue, y: SSAValue) -> list[Operation]:
            v = t.Registers("v", f32, 4)
            body = [v, fill(1.0, v.buffer), t.Store(y, v.buffer, [place], all_of([place < stop, place < M]))]
            return [programs(["p"], [ceildiv(M, 512)], body)]

        return kernel({"x": tensor("x", [N]), "y": tensor("y", [M])}, build, threads=128, assumptions=[N <= M])

    proved(upto(N), part)
    refuted(AccessFault.STRAY, upto(N + 1), part)
    refuted(AccessFault.MISSED, upto(N - 1), part)


def test_code_outside_programs_runs_in_every_cta() -> None:
    def build(y: SSAValue) -> list[Operation]:
        v = t.Registers("v", f32, 1)
        return [v, fill(1.0, v.buffer), t.Store(y, v.buffer, [TID], TID < M)]

    op = kernel({"y": tensor("y", [M])}, build, assumptions=[M <= 32])
    assert dict(refuted(AccessFault.TWICE, op, whole("y", M)).parameters)["$grid"] >= 2


# -- atomic additions -------------------------------------------------------------------------------------------------
def _sums(place: Expr, guard: Expr) -> t.Kernel:
    """Each program adds its 128 columns' sums to y."""

    def build(x: SSAValue, y: SSAValue) -> list[Operation]:
        v = t.Registers("v", f32, 1)
        body = [v, fill(1.0, v.buffer), t.AtomicReduce(AtomicFn.ADD, y, v.buffer, [place], guard)]
        return [programs(["p"], [M], body)]

    return kernel({"x": tensor("x", [M, N]), "y": tensor("y", [N])}, build, threads=128)


def test_each_program_adds_once() -> None:
    promise = StoreDomain("y", "", (program("p", M), axis("j", N)), (sym("j"),), sym("j") < 128, instances=("p",))
    assert proved(_sums(TID, TID < N), promise)[-1].name == "added"
    refuted(AccessFault.TWICE, _sums(TID // 2, TID // 2 < N), promise)
    refuted(AccessFault.MISSED, _sums(TID, all_of([TID < N, TID < 127])), promise)
    refuted(AccessFault.MISSED, _sums(TID, all_of([TID < N, P > 0])), promise)


def test_instances_must_be_found() -> None:
    promise = StoreDomain("y", "", (program("q", M), axis("j", N)), (sym("j"),), sym("j") < 128, instances=("q",))
    answer = prove_accesses(accesses_of(_sums(TID, TID < N)), [promise])
    assert isinstance(answer, Unknown)
    assert "'q'" in answer.reason


def test_the_last_program_or_step_stores() -> None:
    """Programs walk rows; only the last one of each column tile writes the result."""

    def last(condition: Expr, *assumptions: Expr) -> t.Kernel:
        place = Q * 512 + TID * 4 + R

        def build(x: SSAValue, y: SSAValue) -> list[Operation]:
            v = t.Registers("v", f32, 4)
            store = t.block([t.Store(y, v.buffer, [place], place < N)])
            body = [v, fill(1.0, v.buffer), t.If(condition, store, t.block([]))]
            return [programs(["p", "q"], [M, ceildiv(N, 512)], body)]

        args = {"x": tensor("x", [M]), "y": tensor("y", [N])}
        return kernel(args, build, threads=128, assumptions=assumptions)

    proved(last(P.eq(M - 1), M >= 1), whole("y", N))
    proved(last(P.eq(0), M >= 1), whole("y", N))
    refuted(AccessFault.MISSED, last(P.eq(0)), whole("y", N))  # without rows there is no program
    refuted(AccessFault.MISSED, last(P.eq(M)), whole("y", N))
    refuted(AccessFault.MISSED, last(P.eq(1)), whole("y", N))
    refuted(AccessFault.TWICE, last(P >= M - 2), whole("y", N))


# -- tensor copies ----------------------------------------------------------------------------------------------------
def whole_units(op: t.Kernel) -> t.Kernel:
    """The kernel for rows of c that are whole units of 16 bytes, in which the hardware clips stores."""
    op.attributes["assumptions"] = ArrayAttr([*op.assumptions, ExprAttr.of((N % 8).eq(0))])
    return op


def test_tensor_stores_of_a_product_cover_it() -> None:
    assert proved(whole_units(matmul()), whole("c", M, N))
    refuted(AccessFault.OUTSIDE, matmul(), whole("c", M, N))

    def moved(coords: list[Expr]) -> t.Kernel:
        op = whole_units(matmul())
        store = next(o for o in op.walk() if isinstance(o, TmaStore))
        store.attributes["coords"] = ArrayAttr([ExprAttr.of(c) for c in coords])
        return op

    refuted(AccessFault.TWICE, moved([Q * 64, P * 128]), whole("c", M, N))
    refuted(AccessFault.MISSED, moved([Q * 64, P * 128 + sym("$warpgroup") * 64 + 1]), whole("c", M, N))


# -- what stays open --------------------------------------------------------------------------------------------------
def test_products_of_symbols_are_unknown_with_the_reason() -> None:
    flat = P * N + TID

    def store(y: SSAValue, v: SSAValue) -> list[Operation]:
        return [t.Store(y, v, [flat], TID < N).at("user.py:4", "store y")]

    op = stores([M * N], {"p": M}, store, registers=1, assumptions=[N <= 128])
    answer = prove_accesses(accesses_of(op), [whole("y", M * N)])
    assert isinstance(answer, Unknown)
    assert "N*p" in answer.reason
    diagnostic = diagnose(answer, Location("user.py", 1))
    assert diagnostic.where == Location("user.py", 4)
    assert diagnostic.code == "ACC005"
    assert "N*p" in diagnostic.found
    assert diagnostic.advice


def test_stores_without_promises_and_promises_that_are_broken() -> None:
    answers = prove_cover(accesses_of(copy()), [])
    assert isinstance(answers[0], Unknown)
    refuted(AccessFault.MISSED, copy(), whole("y", M), whole("x", M))
    witness = refuted(AccessFault.MISSED, copy(guard=P * 128 + TID * 4 + R < M - 1), whole("y", M))
    assert witness.place == "user.py:9"  # nothing that is there is at fault
    assert diagnose(Refuted("domain", witness), Location("user.py", 1)).where == Location("user.py", 9)


def test_work_beyond_the_limit_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access_points, "_MOST_OPERATIONS", 1)
    access_points._are_none.cache_clear()
    answer = prove_accesses(accesses_of(softmax()), [whole("y", M, N)])
    assert isinstance(answer, Unknown)
    assert "isl" in answer.reason
    monkeypatch.setattr(access_solve, "_MOST_CONJUNCTIONS", 0)
    answer = prove_accesses(accesses_of(softmax()), [whole("y", M, N)])
    assert isinstance(answer, Unknown)
    assert "cases" in answer.reason


def test_every_code_is_in_the_catalogue() -> None:
    assert {f.value for f in AccessFault} | {"ACC005"} == {code for code in CATALOGUE if code.startswith("ACC")}


@pytest.mark.parametrize("count", [8, 32])
def test_stores_at_constants_are_not_compared_in_pairs(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unrolled body stores the columns of a matrix one by one."""
    asked: list[int] = []
    find = access_solve.Solver.find
    monkeypatch.setattr(access_solve.Solver, "find", lambda *args: (asked.append(1), find(*args))[1])

    def columns(skipped: int = -1) -> t.Kernel:
        def ops(y: SSAValue, v: SSAValue) -> list[Operation]:
            row = 128 * P + TID
            return [t.Store(y, v, [row, Const(j)], row < M) for j in range(count) if j != skipped]

        return stores([M, count], {"p": ceildiv(M, 128)}, ops, registers=1)

    domains = [StoreDomain("y", "user.py:9", (axis("i", M),), (sym("i"), Const(j))) for j in range(count)]
    proved(columns(), *domains)
    assert len(asked) <= 6 * count
    assert refuted(AccessFault.MISSED, columns(skipped=3), *domains).element[1] == 3


@pytest.mark.parametrize(
    ("coord", "dim", "off"),
    [(P // M, N, N - 1), (P % M, M, M - 1), (P // M + 1, N + 1, N), (4 * (P % M) + 3, 4 * M, 4 * M - 1)],
    ids=str,
)
def test_quotients_by_an_extent_lie_between_0_and_what_they_are_of(coord: Expr, dim: Expr, off: Expr) -> None:
    def inside(dim: Expr, *known: Expr) -> bool:
        read = AccessMap(
            "load x", "user.py:9", "", "x", AccessKind.READ, (dim,), (program("p", N),), (), TRUE, (coord,)
        )
        launch = KernelAccesses("k", (LaunchParameter("N", 0), LaunchParameter("M", 0)), known, (read,))
        return isinstance(prove_guards(launch)[0], Proved)

    assert inside(dim, M >= 1)
    assert not inside(off, M >= 1)
    assert not inside(dim)


def test_a_loop_that_something_of_0_or_1_switches_off_stays_in_its_bounds() -> None:
    """Steps of a stream, of which programs without rows have none."""

    def inside(steps: Expr, dim: Expr) -> bool:
        read = AccessMap(
            "load x", "user.py:9", "", "x", AccessKind.READ, (dim,), (axis("i", steps),), (), TRUE, (STEP,)
        )
        launch = KernelAccesses("k", (LaunchParameter("N", 0), LaunchParameter("M", 0)), (), (read,))
        return isinstance(prove_guards(launch)[0], Proved)

    steps = (N + 127) // 128
    assert inside(steps * minimum(M, 1), steps)
    assert not inside(steps * minimum(M, 1), steps - 1)
    assert not inside(steps * minimum(M, 2), steps)
    assert not inside((steps - 1) * minimum(M, 1) + 1, steps - 1)
