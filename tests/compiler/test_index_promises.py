"""Stores through tw.Unique tensors: proved by the promise, checked by steps before, held back where it is broken."""

# Dimension names are strings in annotations, which type checkers take for forward references.
# ruff: noqa: F821

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from xdsl.dialects.builtin import ArrayAttr

import tilewright as tw
from support.indexed import CASES, Arrays, facts_of
from support.indexed_more import CASES as MORE
from support.ptx_driver import run_artifact
from tilewright.artifact.schema import CHECKED, Launch
from tilewright.base.dtypes import DTYPES
from tilewright.base.expr import Const, Sym
from tilewright.compiler.launch_recipe import declare_order, declare_workspaces
from tilewright.compiler.program import plan
from tilewright.compiler.proofs.distinct import DISTINCT, require_distinct
from tilewright.compiler.proofs.obligations import require
from tilewright.compiler.proofs.promise_gate import require_gate
from tilewright.compiler.proofs.steps import certify_steps
from tilewright.compiler.sampled_arguments import sample_arguments as arguments
from tilewright.compiler.specialisation import Request, default_facts
from tilewright.hw.target import SM90A
from tilewright.lang.signature import Signature
from tilewright.ptx.reader import read
from tilewright.runtime import index_promises
from tilewright.tile import dialect as tile
from tilewright.tile.attributes import ExprAttr
from tilewright.transport import asynchronous
from tilewright.transport import dialect as t
from tilewright.transport.text import transport_kernel
from tilewright.validate.ptx_declarations import otherwise_declared

pytestmark = pytest.mark.sample(1)

UNWRITTEN = "assuming index-tensors-not-written-during-launch"
NAMES = ("scatter_rows", "append_to_pages", "scatter_pairs", "dispatch")


def drawn(name: str) -> Arrays:
    return CASES[name].draw(np.random.default_rng(3))


def repeat(arrays: Arrays, name: str) -> None:
    """One entry twice, of those that lead inside."""
    first = next(iter(CASES[name].kernel.tensors)).name
    indices = [array.reshape(-1) for array in arrays.values() if array.dtype.kind == "i"]
    inside = np.flatnonzero((indices[0] >= 0) & (indices[0] < 6))[:2]
    if name == "scatter_pairs":
        arrays["column"][inside[1]] = arrays["column"][inside[0]]
    arrays[first].reshape(-1)[inside[1]] = arrays[first].reshape(-1)[inside[0]]


def error_of(run: Callable[[], object]) -> str:
    with pytest.raises(tw.TilewrightError) as caught:
        run()
    return str(caught.value)


@pytest.mark.parametrize("name", NAMES)
def test_one_entry_twice_and_nothing_is_stored(name: str) -> None:
    """test_indices runs the same kernels where entries differ; there entries that lead outside stand twice."""
    arrays = drawn(name)
    artifact = CASES[name].kernel.compile(dtypes={n: a.dtype.name for n, a in arrays.items()}, facts=facts_of(arrays))
    repeat(arrays, name)
    given = {n: a.copy() for n, a in arrays.items()}
    assert "RUN023" in error_of(lambda: CASES[name].kernel(**arrays))
    driver = run_artifact(artifact, arrays)
    assert [str(fault) for _, report in driver.reports for fault in report.faults] == []
    assert "RUN023" in error_of(tw.check)
    tw.check()  # each launch is told of once
    for key, array in given.items():
        np.testing.assert_array_equal(arrays[key], array, err_msg=key)


def planned(function: Any, **dtypes: str) -> Any:
    given = {p.name: DTYPES[dtypes.get(p.name, "f32")] for p in (*function.tensors, *function.scalars)}
    request = Request(function, Signature.of(given), default_facts(function), SM90A, tw.Schedule())
    return plan(request).variants[-1]


@tw.kernel
def two_promises(a: tw.Unique[T], b: tw.Unique[U], x: tw.Tensor[T], y: tw.Tensor[V], z: tw.Tensor[V]):
    m = tw.grid(x, 16)
    y[a[m]] = x[m]
    z[b[m.index]] = x[m]


def test_the_broken_promise_is_named() -> None:
    def run(a: list[int], b: list[int]) -> Arrays:
        arrays = {"y": np.zeros(4, np.float32), "z": np.zeros(4, np.float32)}
        x = np.array([1, 2], np.float32)
        two_promises(np.array(a, np.int32), np.array(b, np.int32), x, **arrays)
        return arrays

    made = run([3, 0], [1, 2, -1, -1])
    np.testing.assert_array_equal(made["y"], [2, 0, 0, 1])
    np.testing.assert_array_equal(made["z"], [0, 1, 2, 0])
    assert "unique(a) of" in error_of(lambda: run([3, 3], [1, 2, 0, 3]))
    assert "unique(b) of" in error_of(lambda: run([3, 0], [1, 2, 1, 0]))  # also of entries that no store takes
    assert "unique(a), unique(b) of" in error_of(lambda: run([3, 3], [1, 2, 1, 0]))


def test_the_certificate_says_how_it_is_known() -> None:
    arrays = drawn("scatter_rows")
    artifact = CASES["scatter_rows"].kernel.compile(dtypes={"rows": "i32"}, facts=facts_of(arrays))
    found = [(o.name, o.standing) for o in artifact.certificate if o.method == CHECKED]
    assert found == [("unique(rows)", "checked")]
    (variant,) = artifact.variants
    launched = [step.kernel for step in variant.steps if isinstance(step, Launch)]
    assert launched == [f"kernel_scatter_rows{step}" for step in ("_claim0", "_judge0", "")]
    assert [step.early for step in variant.steps if isinstance(step, Launch)] == [False, True, True]
    assert [o.detail for o in variant.certificate if o.method == CHECKED] == [
        "by step 2 of 3, before any store, " + UNWRITTEN
    ]
    distinct = [o for o in artifact.certificate if o.name == DISTINCT]
    assert [(o.detail, o.method.endswith("by unique(rows)")) for o in distinct] == [("y, scatter 0", True)]


def test_no_promise_no_steps() -> None:
    """A promise that no store relies on is not checked."""

    @tw.kernel
    def gathered(rows: tw.Unique[T], x: tw.Tensor[V], y: tw.Tensor[T]):
        m = tw.grid(y, 16)
        y[m] = x[rows[m]]

    variant = planned(gathered, rows="i32")
    assert variant.before == ()
    y = np.zeros(3, np.float32)
    gathered(np.array([1, 1, 1], np.int32), np.arange(3, dtype=np.float32), y)
    np.testing.assert_array_equal(y, [1, 1, 1])


def test_a_store_outside_of_the_gate_is_refused() -> None:
    variant = planned(CASES["scatter_rows"].kernel, rows="i32")
    assert require_distinct(variant.tile, variant.transport) != ()
    moved = variant.transport.clone()
    for op in list(moved.walk()):
        if isinstance(op, t.Store):
            around = next(p for p in moved.walk() if isinstance(p, t.Programs))
            op.detach()
            around.body.block.add_op(op)
    assert "CRT010" in error_of(lambda: require_gate(variant.tile, moved))


def test_a_kernel_without_its_promise_is_not_emitted() -> None:
    variant = planned(CASES["scatter_rows"].kernel, rows="i32")
    require(variant.certificate, variant.tile, variant.transport)
    less = tuple(o for o in variant.certificate if o.name != DISTINCT)
    assert "CRT004" in error_of(lambda: require(less, variant.tile, variant.transport))


def test_a_promise_that_no_step_judges_is_refused() -> None:
    arrays = drawn("scatter_rows")
    kernel = CASES["scatter_rows"].kernel
    variant = planned(kernel, rows="i32")
    artifact = kernel.compile(dtypes={"rows": "i32"}, facts=facts_of(arrays))
    (made,) = artifact.variants
    kernels = {f"kernel_{k.transport.sym_name.data}": k for _, k in variant.before}
    kernels["kernel_scatter_rows"] = variant
    for kernel in kernels.values():
        declare_order(kernel.transport, waits=True, releases=True)
    assert certify_steps(made.steps, kernels, made.predicate, variant.promises) != ()
    assert "CRT003" in error_of(lambda: certify_steps(made.steps, kernels, made.predicate))
    for missing, words in (
        ("judge0", "not those of the checks"),
        ("claim0", "before anything fills it"),
    ):
        steps = [s for s in made.steps if not (isinstance(s, Launch) and s.kernel.endswith(missing))]
        found = error_of(lambda steps=steps: certify_steps(steps, kernels, made.predicate, variant.promises))
        assert words in found, missing
    late = [made.steps[0], made.steps[2], made.steps[1]]
    assert "CRT003" in error_of(lambda: certify_steps(late, kernels, made.predicate, variant.promises))


@pytest.mark.parametrize("where", ["read elsewhere", "set elsewhere", "read as it lies", "some entries"])
def test_owners_of_other_places_are_refused(where: str) -> None:
    """A step reads owners at the places alone that every entry has claimed."""
    arrays = drawn("scatter_rows")
    kernel = CASES["scatter_rows"].kernel
    variant = planned(kernel, rows="i32")
    (made,) = kernel.compile(dtypes={"rows": "i32"}, facts=facts_of(arrays)).variants
    kernels = {f"kernel_{k.transport.sym_name.data}": k for _, k in variant.before}
    kernels["kernel_scatter_rows"] = variant
    for each in kernels.values():
        declare_order(each.transport, waits=True, releases=True)
    name = f"kernel_scatter_rows_{'judge0' if where.startswith('read') else 'claim0'}"
    changed = kernels[name].tile.clone()
    kind = tile.Gather if where.startswith("read") else tile.ScatterReduce
    (op,) = (op for op in changed.walk() if isinstance(op, kind) and "owners" in tile_name(op))
    match where:
        case "some entries":
            changed.attributes["grid"] = ArrayAttr([ExprAttr(extent.expr - 1) for extent in changed.grid])
        case "read as it lies":
            op.attributes["coords"] = ArrayAttr([ExprAttr(Sym("$axis0"))])
        case _:
            op.attributes["coords"] = ArrayAttr([ExprAttr(Sym("$index0") + 1)])
    kernels[name] = replace(kernels[name], tile=changed)
    found = error_of(lambda: certify_steps(made.steps, kernels, made.predicate, variant.promises))
    assert "CRT003" in found
    assert ("whole: " if where == "some entries" else "claimed: ") in found


def tile_name(op: tile.Gather | tile.ScatterReduce) -> str:
    return tile.tensor_type(op.tensor).tensor_name.data


def test_places_that_take_one_entry_must_differ_elsewhere() -> None:
    @tw.kernel
    def halves(rows: tw.Unique[T], x: tw.Tensor[T, D], y: tw.Tensor[V, D]):
        m, d = tw.grid(x, (8, 16))
        y[rows[m], d.index // 2] = x[m, d]

    @tw.kernel
    def by_two(rows: tw.Unique[T], x: tw.Tensor[T, D], y: tw.Tensor[V, D]):
        m, d = tw.grid(x, (8, 16))
        y[rows[m.index // 2], d] = x[m, d]

    @tw.kernel
    def over_and_over(rows: tw.Unique[T], x: tw.Tensor[T, D], y: tw.Tensor[V]):
        m, d = tw.grid(x, (8, None))
        y[rows[m]] = x[m, d]

    for kernel in (halves, by_two, over_and_over):
        assert "error[ACC" in error_of(lambda kernel=kernel: planned(kernel, rows="i32"))


def test_places_that_differ_by_position_need_no_promise() -> None:
    variant = planned(MORE["appended"].kernel, lengths="i64")
    assert variant.before == ()
    distinct = [o.method for o in variant.certificate if o.name == DISTINCT]
    assert ["unique" in method for method in distinct] == [False]
    shared = variant.tile.clone()
    (scatter,) = (op for op in shared.walk() if isinstance(op, tile.Scatter))
    _, *others = scatter.coords.data
    scatter.attributes["coords"] = ArrayAttr([tile.ExprAttr.of(Const(0)), *others])
    assert "ACC" in error_of(lambda: require_distinct(shared, variant.transport))

    @tw.kernel
    def of_pairs(column: tw.Tensor[T], x: tw.Tensor[T], y: tw.Tensor[U, V]):
        m = tw.grid(x, 8)
        y[m // 2, column[m]] = x[m]

    @tw.kernel
    def of_every_program(column: tw.Tensor[T], x: tw.Tensor[T, D], y: tw.Tensor[D, V]):
        m, d = tw.grid(x, (None, 8))
        y[d, column[m]] = x[m, d]

    for kernel in (of_pairs, of_every_program):
        assert "LNG036" in error_of(lambda kernel=kernel: planned(kernel, column="i32"))


def test_entries_read_beside_their_tensor_lead_nowhere() -> None:
    @tw.kernel
    def shifted(rows: tw.Unique[T], x: tw.Tensor[T], y: tw.Tensor[V]):
        m = tw.grid(x, 4)
        y[rows[m - 1]] = x[m]

    y = np.zeros(4, np.float32)
    shifted(np.array([0, 3, 2], np.int32), np.array([5, 6, 7], np.float32), y)
    np.testing.assert_array_equal(y, [6, 0, 0, 7])


def test_any_later_call_tells_once() -> None:
    class Words:
        """A driver with the counts of two promises."""

        def allocate_kept(self, size_bytes: int) -> tuple[int, int]:
            self.words = (np.ctypeslib.ctypes.c_uint32 * (size_bytes // 4))()
            return 0, np.ctypeslib.ctypes.addressof(self.words)

        def synchronize(self, context: int) -> None:
            self.words[1] += 1

    driver = Words()
    failures = index_promises.Failures("kernel", ("unique(a)", "unique(b)"), driver, 0)  # type: ignore[arg-type]
    try:
        index_promises.report()
        driver.words[1] = 1
        assert "unique(b) of kernel" in error_of(index_promises.report)
        index_promises.report()
        assert "unique(b) of kernel" in error_of(index_promises.check)
        index_promises.report()
    finally:
        index_promises.forget(failures)


def test_rows_of_a_product_are_stored_where_promised_integers_lead() -> None:
    @tw.kernel
    def product(rows: tw.Unique[M], a: tw.Tensor[M, K], b: tw.Tensor[N, K], y: tw.Tensor[V, N]):
        m, n = tw.grid((a.shape[0], b.shape[0]), (64, 64))
        acc = tw.zeros((m, n), tw.f32)
        for k in tw.stream(a.shape[1], 32):
            acc += tw.dot(a[m, k], b[n, k].T)
        y[rows[m], n] = acc

    rng = np.random.default_rng(1)
    a, b = (rng.normal(size=shape).astype(ml_dtypes.bfloat16) for shape in ((70, 64), (72, 64)))
    exact = a.astype(np.float64) @ b.astype(np.float64).T
    rows = rng.permutation(100)[:70].astype(np.int32)
    rows[:3] = -1, 2**31 - 1, 100
    y = np.full((100, 72), 7, np.float32)
    product(rows, a, b, y)
    wanted = np.full((100, 72), 7.0)
    wanted[rows[3:]] = exact[3:]
    np.testing.assert_allclose(y, wanted, atol=1e-3)
    rows[5], y[:] = rows[4], 7
    assert "unique(rows) of product" in error_of(lambda: product(rows, a, b, y))
    assert (y == 7).all()
    variant = planned(product, rows="i32", a="bf16", b="bf16")
    assert any(o.name == DISTINCT for o in variant.certificate)
    assert any(isinstance(op, asynchronous.Role) for op in variant.transport.walk())


@pytest.mark.parametrize("name", ["scatter_rows", "scaled_groups"])
def test_drawn_arguments_keep_promises_mostly(name: str) -> None:
    """Else execution beside the IR would show kernels that store nothing."""
    arrays = drawn(name)
    variant = planned(CASES[name].kernel, **{n: {"f": "f32", "i": "i32"}[a.dtype.kind] for n, a in arrays.items()})
    lowered = variant.transport.clone()
    declare_workspaces(lowered, variant.workspaces)
    found = [given for seed in range(12) if (given := arguments(lowered, seed)) is not None]
    kept = [given for given in found if not given.tensors["promises$broken"].view.any()]
    assert len(found) > len(kept) >= 6
    for given in kept:
        indices = given.tensors[next(iter(arrays))].view
        assert len(set(indices.tolist())) == len(indices) or (np.diff(indices) >= 0).all()


# -- kernels that begin with the step before ---------------------------------------------------------------------------
WAIT = "griddepcontrol.wait;"


def twice(ptx: str) -> str:
    return ptx.replace(WAIT, f"{WAIT} {WAIT}")


def by_some(ptx: str) -> str:
    return ptx.replace(WAIT, f"@%p1 {WAIT}")


def behind_a_load(ptx: str) -> str:
    return ptx.replace(WAIT, f"ld.global.u32 %r1, [%rd1]; {WAIT}")


def at_the_end(ptx: str) -> str:
    head, _, rest = ptx.partition(WAIT)
    return head + rest[: rest.rindex("ret;")] + f"{WAIT}\n\tret;\n}}\n"


@pytest.mark.parametrize("change", [lambda ptx: ptx.replace(WAIT, ""), twice, by_some, behind_a_load, at_the_end])
def test_ptx_that_does_not_wait_for_the_judge_is_refused(change: Callable[[str], str]) -> None:
    """A scatter begins with the judge of its places, and reads what that writes."""
    arrays = drawn("scatter_rows")
    dtypes = {n: a.dtype.name for n, a in arrays.items()}
    artifact = CASES["scatter_rows"].kernel.compile(dtypes=dtypes, facts=facts_of(arrays))
    launch = [s for s in artifact.variants[0].steps if isinstance(s, Launch)][-1]
    image = artifact.kernel(launch.kernel)
    assert launch.early
    assert image.ptx.count(WAIT) == 1
    module = read(change(image.ptx))
    sizes = dict.fromkeys((v.name for v in module.entries[0].shared), 1)
    declared = otherwise_declared(
        transport_kernel(image.transport_ir), module, module.entries[0], launch.args, {}, sizes
    )
    assert any("a wait for the kernel before" in text for text in declared)
