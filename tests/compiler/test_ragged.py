"""Ragged grids: proved by what offsets promise, which steps before the kernel check."""

# Dimension names are strings in annotations, which type checkers take for forward references.
# ruff: noqa: F821, UP037

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

import tilewright as tw
from support.indexed import CASES, Arrays, facts_of
from support.lowered import lowered
from support.ptx_driver import run_artifact
from tilewright.artifact.schema import CHECKED, Launch
from tilewright.base import dtypes
from tilewright.base.expr import Const, Max, Min, Sym
from tilewright.base.verdict import Proved
from tilewright.codegen.assemble import Assembled, defects
from tilewright.compiler import build
from tilewright.compiler.program import plan
from tilewright.compiler.proofs.loaded import Ascending, offsets_of, require_clipped, tiles_of
from tilewright.compiler.proofs.stores import prove_stores
from tilewright.compiler.requests import Request, default_facts
from tilewright.hw.target import SM90A
from tilewright.lang.schedule import Schedule
from tilewright.lang.signature import Signature
from tilewright.tile import dialect as tile
from tilewright.transport import dialect as t

pytestmark = pytest.mark.sample(1)

UNWRITTEN = "assuming index-tensors-not-written-during-launch"
DTYPES = {"offsets": "i32", "scale": "f32", "x": "f32", "y": "f32"}


def error_of(run: Callable[[], object]) -> str:
    with pytest.raises(tw.TilewrightError) as caught:
        run()
    return str(caught.value)


def drawn(offsets: list[int]) -> Arrays:
    arrays = CASES["scaled_groups"].draw(np.random.default_rng(1))
    return arrays | {"offsets": np.array(offsets, np.int32)}


@pytest.fixture(scope="module")
def artifact() -> object:
    arrays = drawn([0] * 7)
    return CASES["scaled_groups"].kernel.compile(dtypes=DTYPES, facts=facts_of(arrays))


@pytest.mark.parametrize(
    ("offsets", "kept"),
    [
        ([0, 5, 5, 5, 30, 33, 41], True),
        ([0, 0, 0, 0, 0, 0, 0], True),
        ([0, 5, 5, 4, 30, 33, 41], False),  # one less than the one before it
        ([1, 5, 5, 5, 30, 33, 41], False),  # begins behind the first row
        ([0, 5, 5, 5, 30, 33, 42], False),  # ends one behind the last
        ([0, -1, 5, 5, 30, 33, 41], False),
        ([0, 30, 5, 5, 5, 5, 5], False),
        ([0, 5, 5, 5, 30, 33, -(2**31)], False),
    ],
)
def test_nothing_is_stored_unless_offsets_ascend(offsets: list[int], kept: bool, artifact: object) -> None:
    case = CASES["scaled_groups"]
    simulated, executed = drawn(offsets), drawn(offsets)
    driver = run_artifact(artifact, executed)  # type: ignore[arg-type]
    assert [str(fault) for _, report in driver.reports for fault in report.faults] == []
    if kept:
        case.kernel(**simulated)
        tw.check()
        wanted = case.expected(drawn(offsets))["y"]
    else:
        assert "offsets(offsets) of scaled_groups" in error_of(lambda: case.kernel(**simulated))
        assert "RUN023" in error_of(tw.check)
        wanted = drawn(offsets)["y"]
    np.testing.assert_array_equal(simulated["y"], wanted)
    np.testing.assert_array_equal(executed["y"], wanted)


def test_the_certificate_names_the_promise(artifact: tw.Kernel) -> None:
    found = [o for o in artifact.certificate if o.method == CHECKED]
    assert [(o.name, o.standing, o.detail) for o in found] == [
        ("offsets(offsets)", "checked", "by step 1 of 2, before any store, " + UNWRITTEN)
    ]
    (variant,) = artifact.variants
    assert [s.kernel.removeprefix("kernel_scaled_groups") for s in variant.steps if isinstance(s, Launch)] == [
        "_judge",
        "",
    ]
    (once,) = (o for o in artifact.certificate if o.name == "once" and o.detail == "y")
    assert once.method.endswith("by offsets(offsets)")


def test_a_kernel_that_is_planned_again_keeps_its_promises(monkeypatch: pytest.MonkeyPatch) -> None:
    """The assembler has spoilt it once: on fewer CTAs per SM it relies on the same."""
    spoilt: list[str] = []

    def once(assembled: Assembled, few: int) -> tuple[str, ...]:
        if re.search(r"\.entry kernel_scaled_groups(_\d+)?\(", assembled.ptx) and not spoilt:
            spoilt.append("spilled")
            return ("spilled",)
        return defects(assembled, few)

    monkeypatch.setattr(build, "defects", once)
    kernel = CASES["scaled_groups"].kernel
    signature = Signature.of({name: dtypes.DTYPES[dtype] for name, dtype in DTYPES.items()}, static=None)
    made = build.build(plan(Request(kernel, signature, default_facts(kernel), SM90A, Schedule())))
    assert spoilt
    assert all(variant.reports for variant in made.variants)
    assert "offsets(offsets)" in {o.name for o in made.certificate}


@cache
def scaled_groups() -> tuple[tile.Kernel, t.Kernel]:
    return next(iter(lowered(CASES["scaled_groups"].kernel, DTYPES).values()))


def kernels() -> tuple[tile.Kernel, t.Kernel]:
    """Both IRs of a kernel, to be changed."""
    made, text = scaled_groups()
    return made.clone(), text.clone()


def test_tiles_are_read_from_what_computes_them() -> None:
    kernel, text = kernels()
    (relied_on,) = offsets_of(kernel)
    assert relied_on == Ascending("offsets", Sym("G") + 1, Sym("T"))
    assert [(found.size, found.rest) for found in tiles_of(kernel).values()] == [(8, False), (8, True)]
    assert isinstance(prove_stores(kernel, text), Proved)


@pytest.mark.parametrize("number", range(4))
def test_other_tiles_are_not_proved(number: int) -> None:
    """Begins and ends of tiles one program off."""
    for change in (1, -1):
        kernel, text = kernels()
        scalars = [
            op
            for op in kernel.walk()
            if isinstance(op, tile.ScalarExpr)
            and "$p0" in op.expr.expr.symbols
            and any(isinstance(n, Max | Min) and "$p0" in n.symbols for n in _nodes(op.expr.expr))
        ]
        assert len(scalars) == 4
        form = scalars[number].expr.expr
        scalars[number].attributes["expr"] = tile.ExprAttr(form.substitute({"$p0": Sym("$p0") + change}))
        assert len(tiles_of(kernel)) == 1
        assert not isinstance(prove_stores(kernel, text), Proved)


def counting(kernel: tile.Kernel) -> tuple[tile.StreamLoop, dict[str, tile.FragmentWrite]]:
    """The stream that counts tiles, and what it writes: the group, the number and the count."""
    streams = (op for op in kernel.walk() if isinstance(op, tile.StreamLoop))
    written = {s: [op for op in s.body.block.ops if isinstance(op, tile.FragmentWrite)] for s in streams}
    stream, writes = next((s, writes) for s, writes in written.items() if len(writes) == 3)  # a search has 2
    return stream, dict(zip(("group", "number", "count"), writes, strict=True))


def chosen(write: tile.FragmentWrite) -> tile.Select:
    assert isinstance(write.value.owner, tile.Select)
    return write.value.owner


def counts_by_program(kernel: tile.Kernel) -> None:
    stream, writes = counting(kernel)
    program = tile.ScalarExpr(Sym("$p0"), dtypes.i64)
    stream.body.block.insert_op_before(program, stream.body.block.first_op)
    writes["count"].value.owner.operands[1] = program.result


def numbered_by_place(kernel: tile.Kernel) -> None:
    _, writes = counting(kernel)
    place = next(op.result for op in kernel.walk() if isinstance(op, tile.ScalarExpr) and "$p0" in op.expr.expr.symbols)
    chosen(writes["number"]).operands[1] = place


def numbered_by_another_test(kernel: tile.Kernel) -> None:
    _, writes = counting(kernel)
    number = chosen(writes["number"])
    test = number.cond.owner.clone()
    number.parent.insert_op_before(test, number)
    number.operands[0] = test.results[0]


def counted_after_the_step(kernel: tile.Kernel) -> None:
    _, writes = counting(kernel)
    block = writes["count"].parent
    writes["count"].detach()
    block.insert_op_before(writes["count"], block.first_op)


def another_group(kernel: tile.Kernel) -> None:
    _, writes = counting(kernel)
    chosen(writes["group"]).operands[1] = chosen(writes["number"]).a


def counts_from_one(kernel: tile.Kernel) -> None:
    _, writes = counting(kernel)
    writes["count"].frag.owner.init.owner.attributes["expr"] = tile.ExprAttr.of(Const(1))


def more_groups_than_there_are(kernel: tile.Kernel) -> None:
    stream, _ = counting(kernel)
    stream.attributes["trip"] = tile.ExprAttr.of(stream.trip.expr + 1)


def computed_from_the_program(kernel: tile.Kernel) -> None:
    number = next(
        op
        for op in kernel.walk()
        if isinstance(op, tile.ScalarExpr)
        and any(isinstance(use.operation, tile.Select) for use in op.result.uses)
        and any(name.startswith("$b") for name in op.expr.expr.symbols)
    )
    number.attributes["expr"] = tile.ExprAttr.of(number.expr.expr + Sym("$p0"))


@pytest.mark.parametrize(
    "change",
    [
        counts_by_program,
        numbered_by_place,
        numbered_by_another_test,
        counted_after_the_step,
        another_group,
        counts_from_one,
        more_groups_than_there_are,
        computed_from_the_program,
    ],
    ids=lambda f: f.__name__,
)
def test_tiles_that_are_numbered_otherwise_are_not_proved(change: Callable[[tile.Kernel], None]) -> None:
    """Two programs could have the same tile: its number has to be a function of its group."""
    kernel, text = kernels()
    change(kernel)
    assert [found.rest for found in tiles_of(kernel).values()] == [True]
    assert not isinstance(prove_stores(kernel, text), Proved)


def _nodes(node: object) -> list[object]:
    return [node, *(inner for child in node.children for inner in _nodes(child))]  # type: ignore[attr-defined]


def test_without_the_promise_nothing_is_proved() -> None:
    kernel, text = kernels()
    del kernel.attributes["ascending"]
    assert offsets_of(kernel) == ()
    assert not isinstance(prove_stores(kernel, text), Proved)


def test_a_bound_that_nothing_clips_is_refused() -> None:
    kernel, text = kernels()
    require_clipped(kernel, text)
    bound = next(op for op in text.walk() if isinstance(op, t.Bind) and op.most is not None)
    assert bound.most is not None
    bound.attributes["most"] = tile.ExprAttr(bound.most.expr - 1)
    assert "CRT009" in error_of(lambda: require_clipped(kernel, text))


def test_rows_that_a_kernel_reads_and_writes_are_kept() -> None:
    @tw.kernel
    def in_place(offsets: tw.Offsets[G + 1], x: tw.Tensor[T]):
        _, m = tw.ragged_grid(offsets, x.shape[0], 4, rest="keep")
        x[m] = x[m] * 2.0

    @tw.kernel
    def and_zeroed(offsets: tw.Offsets[G + 1], x: tw.Tensor[T]):
        _, m = tw.ragged_grid(offsets, x.shape[0], 4)
        x[m] = x[m] * 2.0

    x = np.ones(9, np.float32)
    in_place(np.array([0, 1, 6], np.int32), x)
    np.testing.assert_array_equal(x, [2] * 6 + [1] * 3)
    found = error_of(lambda: and_zeroed(np.array([0, 1, 6], np.int32), x))
    assert "LNG014" in found
    assert 'rest="keep"' in found


def test_extents_of_offsets() -> None:
    kernel = CASES["numbered_groups"].kernel
    x, y = np.zeros(9, np.float32), np.zeros(9, np.float32)
    assert "RUN008" in error_of(lambda: kernel(np.array([0], np.int64), x, y))  # no group
    assert "RUN006" in error_of(lambda: kernel(np.zeros(0, np.int64), x, y))
    arrays = drawn([0] * 6)
    assert "RUN005" in error_of(lambda: CASES["scaled_groups"].kernel(**arrays))


def test_extents_that_are_numbers() -> None:
    """Of the rows, of the offsets, and of one group: what is clipped to a constant is clipped."""

    @tw.kernel
    def rows(offsets: tw.Offsets[G + 1], y: tw.Tensor[T]):
        g, m = tw.ragged_grid(offsets, 5, 4)
        y[m] = g + 1

    @tw.kernel
    def groups(offsets: tw.Offsets[3], y: tw.Tensor[T]):
        g, m = tw.ragged_grid(offsets, y.shape[0], 4)
        y[m] = g + 1

    y = np.full(7, 9, np.int32)
    rows(np.array([0, 1, 4], np.int32), y)
    np.testing.assert_array_equal(y, [1, 2, 2, 2, 0, 9, 9])
    groups(np.array([0, 1, 6], np.int32), y)
    np.testing.assert_array_equal(y, [1, 2, 2, 2, 2, 2, 0])
    with pytest.raises(tw.TilewrightError, match="RUN023"):
        rows(np.array([0, 1, 6], np.int32), y)

    @tw.kernel
    def negative(offsets: tw.Offsets[G + 1], y: tw.Tensor[T]):
        g, m = tw.ragged_grid(offsets, -6, 4)
        y[m] = g

    assert "LNG021" in error_of(negative.explain)  # promised integers are i32 where nobody says


def test_groups_are_asked_for_as_offsets() -> None:
    @tw.kernel
    def plain(offsets: tw.Tensor[S], x: tw.Tensor[T], y: tw.Tensor[T]):
        _, m = tw.ragged_grid(offsets, x.shape[0], 4)
        y[m] = x[m]

    @tw.kernel
    def by_hand(offsets: tw.Tensor[S], x: tw.Tensor[T], y: tw.Tensor[T]):
        g = tw.grid(offsets.shape[0] - 1, None)
        for m in tw.stream(x.shape[0], 4, start=offsets[g], until=offsets[g + 1]):
            y[m] = x[m]

    @tw.kernel
    def of_part(offsets: tw.Offsets[G + 1], x: tw.Tensor[T], y: tw.Tensor[T]):
        _, m = tw.ragged_grid(offsets, x.shape[0] // 2, 4)
        y[m] = x[m]

    x = np.zeros(9, np.float32)
    offsets = np.array([0, 4, 9], np.int32)
    for kernel, code, words in (
        (plain, "LNG040", "tw.Offsets"),
        (by_hand, "", "tw.ragged_grid"),
        (of_part, "LNG021", "x.shape[0]"),
    ):
        found = error_of(lambda kernel=kernel: kernel(offsets, x, x.copy()))
        assert code in found
        assert words in found


@pytest.mark.parametrize("rows", [1, 5, 17, 31])
def test_groups_that_are_more_than_rows(rows: int) -> None:
    """A program a row finds the group whose last row it is; most groups are empty."""

    @tw.kernel
    def owners(offsets: tw.Offsets[G + 1], y: tw.Tensor[T]):
        g, m = tw.ragged_grid(offsets, y.shape[0], 4)
        y[m] = g + 1

    rng = np.random.default_rng(rows)
    for groups in (2, 16, 17, 40, 300):
        offsets = np.sort(rng.integers(0, rows + 1, groups + 1)).astype(np.int32)
        offsets[0] = 0
        y = np.full(rows, -1, np.int32)
        owners(offsets, y)
        wanted = np.searchsorted(offsets[1:], np.arange(rows), side="right") + 1
        np.testing.assert_array_equal(y, np.where(np.arange(rows) < offsets[-1], wanted, 0))


@tw.kernel
def turned_rows(offsets: tw.Offsets["G + 1"], x: tw.Tensor["T", "D"], y: tw.Tensor["T", "D"], *, added: bool = False):
    _, t, d = tw.ragged_grid(offsets, x.shape, (4, 8))
    if added:
        tw.reduce_add(y, (t, x.shape[1] - 1 - d.index), x[t, d])
    else:
        y[t, x.shape[1] - 1 - d] = x[t, d]


def test_computed_coordinates_beside_rows_of_a_group() -> None:
    """A plain store there is refused, and what its help says to write works."""
    offsets, x = np.array([0, 3, 5], np.int32), np.arange(35, dtype=np.float32).reshape(7, 5)
    y = np.zeros_like(x)
    assert "Ranges alone" in error_of(lambda: turned_rows(offsets, x, y))
    turned_rows(offsets, x, y, added=True)
    assert (y[:5] == x[:5, ::-1]).all()
    assert not y[5:].any()
