"""Tiles of groups of rows through one tensor map for all groups: the hardware clips each copy at its group's end."""

# ruff: noqa: F821, UP037 - dimension names are strings
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from hopper.test_grouped import BF16, DTYPES, GROUPS, K, counts, drawn, exact, lowered
from support import products as p
from support.ptx_driver import run_artifact
from support.slow import rest_slow
from tilewright import simulate
from tilewright.artifact.schema import Artifact, EncodeTensorMap
from tilewright.base.expr import Const, Expr, Sym, conjuncts
from tilewright.base.verdict import Proved, Refuted
from tilewright.compiler.products import prove
from tilewright.compiler.proofs.copies import prove_copies
from tilewright.compiler.proofs.descriptors import check_descriptors
from tilewright.compiler.proofs.epilogue_copies import INTERIOR
from tilewright.compiler.proofs.obligations import missing
from tilewright.compiler.proofs.ragged_copies import RAGGED
from tilewright.compiler.proofs.stores import prove_stores
from tilewright.compiler.requests import assumptions_of
from tilewright.diag import TilewrightError
from tilewright.hw.target import SM90A
from tilewright.legal.ragged import BOUND, LARGE, WRAP
from tilewright.ptx.machine.copies import Copies
from tilewright.schedule.hopper import shared_memory_epilogue
from tilewright.schedule.hopper.accumulator_placement import Refused
from tilewright.schedule.hopper.candidate import Candidate
from tilewright.schedule.hopper.candidates import schedule
from tilewright.schedule.hopper.store_ways import StoreWay
from tilewright.tile import dialect as tile
from tilewright.tile.ops import exprs
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t
from tilewright.transport.descriptor_attrs import TmaAttr, TmaNumbers
from tilewright.transport.text import transport_kernel
from tilewright.validate.launch_recipe import recipe_faults
from tilewright.validate.tile_to_transport.compare import compare as compare_lowering

pytestmark = pytest.mark.sample(1)

CANDIDATE = Candidate(1, stages=2, whole_stores=True)
TWO_WARPGROUPS = Candidate(2, stages=2, whole_stores=True)
ROWS = 210


@tw.kernel
def rows_scaled(
    offsets: tw.Offsets["G + 1"],
    a: tw.Tensor["T", "K"],
    a_scale: tw.Tensor["T"],
    b: tw.Tensor["G", "N", "K"],
    b_scale: tw.Tensor["G", "N"],
    c: tw.Tensor["T", "N"],
):
    g, m, n = tw.ragged_grid(offsets, c.shape, (64, 128))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], 128):
        acc += tw.dot(a[m, k], b[g, n, k].T)
    c[m, n] = acc * a_scale[m][:, None] * b_scale[g, n][None, :]


@tw.kernel
def wide(offsets: tw.Offsets["G + 1"], a: tw.Tensor["T", "K"], b: tw.Tensor["G", 128, "K"], c: tw.Tensor["T", 128]):
    """Rows of whole 16 bytes, whatever the launch."""
    g, m, n = tw.ragged_grid(offsets, c.shape, (64, 64))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], 64):
        acc += tw.dot(a[m, k], b[g, n, k].T)
    c[m, n] = acc


@tw.kernel
def until(lengths: tw.Tensor["B"], x: tw.Tensor["B", "M", "K"], w: tw.Tensor[72, "K"], y: tw.Tensor["B", "M", 72]):
    """Rows up to a length of their own, without promises, in a stream."""
    b, n = tw.grid((lengths.shape[0], 72), (None, 64))
    for m in tw.stream(x.shape[1], 64, until=lengths[b]):
        acc = tw.zeros((m, n), tw.f32)
        for k in tw.stream(x.shape[2], 64):
            acc += tw.dot(x[b, m, k], w[n, k].T)
        y[b, m, n] = acc


def ragged_maps(kernel: t.Kernel) -> list[a.TensorMap]:
    return [op for op in kernel.walk() if isinstance(op, a.TensorMap) and op.numbers.ragged_axis is not None]


def stores(kernel: t.Kernel) -> list[a.TmaStore]:
    return [op for op in kernel.walk() if isinstance(op, a.TmaStore)]


def by_rows(kernel: t.Kernel) -> list[a.CopyOut]:
    return [op for op in kernel.walk() if isinstance(op, a.CopyOut)]


# -- what is emitted ---------------------------------------------------------------------------------------------------
def test_all_tiles_are_copied_through_one_map() -> None:
    found = lowered(CANDIDATE)
    (declared,) = ragged_maps(found.scheduled.kernel)
    numbers, pitch = declared.numbers, declared.numbers.strides_bytes[0]
    assert numbers.axes == (1, 0)
    assert numbers.dims[1:] == (Const(BOUND), Const(LARGE), Const(LARGE))
    assert numbers.strides_bytes == (pitch, pitch, Const(2 * WRAP) - pitch)
    assert not by_rows(found.scheduled.kernel)
    (note,) = (note for note in found.scheduled.notes if note.startswith("store to c: "))
    assert note.startswith(f"store to c: {StoreWay.CLIPPED.value}: ")
    assert StoreWay.SPLIT.value in note
    assert StoreWay.ROWS.value in note
    asked = {str(part) for x in found.scheduled.kernel.assumptions for part in conjuncts(x.expr)}
    assert f"T <= {BOUND - 64}" in asked


def test_the_text_is_read_back() -> None:
    kernel = lowered(CANDIDATE).scheduled.kernel
    assert " : axes 1, 0 : ragged 0 : " in str(kernel)
    (declared,) = ragged_maps(transport_kernel(str(kernel)))
    assert declared.numbers == ragged_maps(kernel)[0].numbers


def test_without_a_price_in_its_favour_tiles_are_split(monkeypatch: pytest.MonkeyPatch) -> None:
    """The price decides, and nothing else."""
    dear = {StoreWay.CLIPPED: 9, StoreWay.SPLIT: 2, StoreWay.ROWS: 3}
    monkeypatch.setattr(shared_memory_epilogue, "store_cycles", lambda way, *_: dear[way])
    kernel = lowered(CANDIDATE).scheduled.kernel
    assert not ragged_maps(kernel)
    assert stores(kernel)
    assert by_rows(kernel)
    dear[StoreWay.SPLIT] = 4
    kernel = lowered(CANDIDATE).scheduled.kernel
    assert not stores(kernel)
    assert by_rows(kernel)


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("candidate", "align", "why"),
    [
        (Candidate(1, stages=2), 16, "rows may not be whole units of 16 bytes"),
        (CANDIDATE, 8, ""),
        (replace(CANDIDATE, matrix_stores=False), 16, ""),
    ],
    ids=["extents that tell at launch", "rows at other addresses", "from registers"],
)
def test_else_threads_store_what_the_end_cuts(candidate: Candidate, align: int, why: str) -> None:
    found = lowered(candidate, align)
    assert not ragged_maps(found.scheduled.kernel)
    assert [note for note in found.scheduled.notes if why in note]
    arrays = drawn(GROUPS["several"])
    simulate.run(found.scheduled.kernel, {**arrays, **counts()}, grid_size=3)
    np.testing.assert_allclose(arrays["c"].astype(np.float64), exact(arrays), atol=0.15)


def test_extents_of_the_program_need_no_launch_to_ask() -> None:
    found = p.lower(wide, Candidate(1, stages=2), dtypes={"offsets": "i32"})
    assert isinstance(found, p.Lowered)
    assert ragged_maps(found.scheduled.kernel)


@pytest.mark.parametrize("whole", [True, False])
def test_offsets_of_64_bits_may_have_more_rows(whole: bool) -> None:
    """Of those another kernel is launched, or none has such a map."""
    asked = p.request(wide, "bf16", 16, {"offsets": "i32"})
    facts, source = replace(asked.facts, index_bits=64), p.traced(asked)
    candidate = Candidate(1, stages=2, whole_stores=whole)
    answer = schedule(source, facts, SM90A, candidate, assumptions_of(source, facts))
    assert not isinstance(answer, Refused)
    assert bool(ragged_maps(answer.kernel)) is whole
    limit, (note,) = f"T <= {BOUND - 64}", (n for n in answer.notes if n.startswith("store to c: "))
    assert (limit in map(str, answer.guards)) is whole
    assert ("T may be more than" in note) is not whole


# -- what is stored ----------------------------------------------------------------------------------------------------
@cache
def kernels(dtype: str) -> t.Kernel:
    return lowered(TWO_WARPGROUPS if dtype == "bf16" else CANDIDATE, bm=128 if dtype == "bf16" else 64).scheduled.kernel


@pytest.mark.parametrize(
    "name", rest_slow(GROUPS, [name for name in GROUPS if name not in ("several", "one row each")])
)
def test_every_row_is_its_groups(name: str) -> None:
    """Groups of no, one and many rows, the last one short; rows in no group become 0."""
    arrays = drawn(GROUPS[name], k=72 if len(GROUPS[name]) > 40 else K)
    simulate.run(kernels("bf16"), {**arrays, **counts()}, grid_size=5)
    np.testing.assert_allclose(arrays["c"].astype(np.float64), exact(arrays), atol=0.15)


@pytest.mark.parametrize("seed", range(4))
def test_random_offsets(seed: int) -> None:
    rng = np.random.default_rng(seed)
    inner = np.sort(rng.integers(0, ROWS + 1, int(rng.integers(1, 9))))
    arrays = drawn([0, *inner.tolist()], seed, k=8 * int(rng.integers(1, 12)), n=8 * int(rng.integers(1, 20)))
    simulate.run(kernels("f16 or so"), {**arrays, **counts()}, seed=seed, grid_size=int(rng.integers(1, 7)))
    np.testing.assert_allclose(arrays["c"].astype(np.float64), exact(arrays), atol=0.15)


@pytest.fixture(scope="module")
def artifact() -> Artifact:
    """For launches of which all are of whole units: one kernel stores through the ragged map."""
    return wide.compile(dtypes=DTYPES)


class Writes:
    """Elements that tensor copies write, counted by place."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.places: list[int] = []
        plain = Copies._write

        def counted(own: Copies, lane: int, base: int, where: np.ndarray, *rest: object) -> None:
            self.places += where.tolist()
            plain(own, lane, base, where, *rest)  # type: ignore[arg-type]

        monkeypatch.setattr(Copies, "_write", counted)


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", ["several", "one row each", "dozens"])
def test_the_ptx_machine_writes_the_rows_of_groups_once(
    name: str, artifact: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bit for bit as the simulator, every element of a group once, and none of the rows behind the last group."""
    assert any(" : ragged 0 : " in image.transport_ir for image in artifact.kernels)
    simulated, executed = (drawn(GROUPS[name], k=72, n=128) for _ in range(2))
    wide(**simulated)
    writes = Writes(monkeypatch)
    driver = run_artifact(artifact, executed)
    assert [str(fault) for _, report in driver.reports for fault in report.faults] == []
    np.testing.assert_array_equal(executed["c"].view(np.uint16), simulated["c"].view(np.uint16))
    assert sorted(writes.places) == list(range(0, GROUPS[name][-1] * 256, 2))


def test_rows_between_lengths_are_left_alone() -> None:
    """Each matrix ends at a length of its own; what lies behind, up to the next one, keeps its bytes."""
    artifact = until.compile(dtypes=dict.fromkeys("xwy", "bf16") | {"lengths": "i32"})
    assert {o.detail for o in artifact.certificate if o.name == RAGGED} == {f"y up to min(M, $b0), of {BOUND} rows"}
    rng = np.random.default_rng(0)
    x, w = (rng.normal(size=shape).astype(BF16) for shape in ((7, 150, 72), (72, 72)))
    lengths = np.array([150, 64, 0, 1, 63, -5, 2**31 - 1], np.int32)
    y = np.full((7, 150, 72), np.nan, BF16)
    driver = run_artifact(artifact, {"lengths": lengths, "x": x, "w": w, "y": y})
    assert [str(fault) for _, report in driver.reports for fault in report.faults] == []
    for stored, rows, length in zip(y, x, lengths.clip(0, 150), strict=True):
        wanted = rows[:length].astype(np.float64) @ w.astype(np.float64).T
        np.testing.assert_allclose(stored[:length].astype(np.float64), wanted, atol=0.15)
        assert np.isnan(stored[length:].astype(np.float32)).all()


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["e4m3", "e5m2"])
def test_operands_of_8_bits(dtype: str) -> None:
    rng, offsets = np.random.default_rng(0), np.array([0, 0, 5, 70, 70, 200], np.int32)
    kind = np.dtype({"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}[dtype])
    arrays = {
        "offsets": offsets,
        "a": rng.normal(size=(ROWS, 144)).astype(kind),
        "a_scale": rng.uniform(0.5, 2, ROWS).astype(np.float32),
        "b": rng.normal(size=(5, 72, 144)).astype(kind),
        "b_scale": rng.uniform(0.5, 2, (5, 72)).astype(np.float32),
        "c": np.full((ROWS, 72), np.nan, np.float16),
    }
    types = {"offsets": "i32", "a": dtype, "a_scale": "f32", "b": dtype, "b_scale": "f32", "c": "f16"}
    artifact = rows_scaled.compile(dtypes=types)
    driver = run_artifact(artifact, arrays)
    assert [str(fault) for _, report in driver.reports for fault in report.faults] == []
    wanted = np.zeros((ROWS, 72))
    for g in range(5):
        rows = slice(offsets[g], offsets[g + 1])
        own = arrays["a"][rows].astype(np.float64) * arrays["a_scale"][rows, None]
        wanted[rows] = own @ (arrays["b"][g].astype(np.float64) * arrays["b_scale"][g][:, None]).T
    np.testing.assert_allclose(arrays["c"].astype(np.float64), wanted, rtol=2e-2, atol=0.3)


# -- what is proved ----------------------------------------------------------------------------------------------------
def test_the_certificate_says_where_copies_end() -> None:
    found = lowered(CANDIDATE)
    kernel = found.scheduled.kernel
    certificate = prove(found.tile, kernel, check_descriptors(kernel))
    assert not isinstance(certificate, str), certificate
    (held,) = (o for o in certificate if o.name == RAGGED)
    assert held.method == "addresses modulo 2^64"
    assert held.detail == f"c up to min(T, $b6), of {BOUND} rows"
    assert INTERIOR not in {o.name for o in certificate}
    assert missing([o for o in certificate if o.name != RAGGED], kernel) == (RAGGED,)


def test_the_lowering_is_validated() -> None:
    found = lowered(CANDIDATE)
    assert compare_lowering(found.tile, found.scheduled.kernel) == ()


def changed_map(change: Callable[[TmaNumbers], TmaNumbers]) -> Callable[[t.Kernel], None]:
    def apply(kernel: t.Kernel) -> None:
        for declared in ragged_maps(kernel):
            declared.attributes["descriptor"] = TmaAttr(change(declared.numbers))

    return apply


def changed_coordinate(place: int, change: Callable[[Expr], Expr]) -> Callable[[t.Kernel], None]:
    def apply(kernel: t.Kernel) -> None:
        for copy in stores(kernel):
            coords = [c.expr for c in copy.coords]
            coords[place] = change(coords[place])
            copy.attributes["coords"] = exprs(coords)

    return apply


def dim(place: int, value: int) -> Callable[[TmaNumbers], TmaNumbers]:
    return lambda n: replace(n, dims=tuple(Const(value) if i == place else d for i, d in enumerate(n.dims)))


def stride(place: int, change: Callable[[Expr], Expr]) -> Callable[[TmaNumbers], TmaNumbers]:
    return lambda n: replace(
        n, strides_bytes=tuple(change(s) if i == place else s for i, s in enumerate(n.strides_bytes))
    )


MISTAKES: dict[str, Callable[[t.Kernel], None]] = {
    "half the bound": changed_map(dim(1, BOUND // 2)),
    "twice the bound": changed_map(dim(1, BOUND * 2)),
    "one row more": changed_map(dim(1, BOUND + 1)),
    "few ends": changed_map(dim(2, 100)),
    "few turns": changed_map(dim(3, BOUND)),
    "a wrap of fewer bytes": changed_map(stride(2, lambda s: s - 16)),
    "no wrap": changed_map(stride(2, lambda _: Const(16))),
    "ends at another pitch": changed_map(stride(1, lambda s: s + 16)),
    "rows at another pitch": changed_map(stride(0, lambda s: s + 16)),
    "the start for the end": changed_coordinate(2, lambda _: Sym("$b5")),
    "an end behind": changed_coordinate(2, lambda e: e + 1),
    "the tensor's end": changed_coordinate(2, lambda _: Sym("T")),
    "a turn less": changed_coordinate(3, lambda e: e - 1),
    "a row above": changed_coordinate(1, lambda e: e - 1),
    "a row below": changed_coordinate(1, lambda e: e + 1),
    "rows from the group's first": changed_coordinate(1, lambda e: e - Sym("$b5")),
    "columns of the next panel": changed_coordinate(0, lambda e: e + 64),
}


@pytest.mark.sample(len(MISTAKES))
@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_refused(name: str) -> None:
    """By the proof that compares copies with the program, by translation validation, which shares no code with it, and
    what a launch would do differs or leaves its tensor."""
    found = lowered(CANDIDATE)
    kernel = found.scheduled.kernel
    assert isinstance(prove_copies(found.tile, kernel), Proved)
    assert isinstance(prove_stores(found.tile, kernel), Proved)
    MISTAKES[name](kernel)
    assert isinstance(prove_copies(found.tile, kernel), Refuted)
    assert compare_lowering(found.tile, kernel)


SEEN = {
    "SIM002": {
        "a wrap of fewer bytes",
        "no wrap",
        "ends at another pitch",
        "rows at another pitch",
        "the start for the end",
        "a turn less",
        "a row above",
        "twice the bound",
    },
    "SIM010": {"one row more", "an end behind", "the tensor's end", "rows from the group's first"},
}
"""Mistakes that leave the tensor, and those by which two copies write one element; others store something else."""


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", rest_slow(MISTAKES, ["one row more", "a turn less", "a row above", "half the bound"]))
def test_a_launch_shows_mistakes(name: str) -> None:
    kernel, arrays = lowered(CANDIDATE).scheduled.kernel, drawn(GROUPS["several"], k=8, n=136)
    MISTAKES[name](kernel)
    code = next((code for code, names in SEEN.items() if name in names), None)
    if code is not None:
        with pytest.raises(TilewrightError, match=code):
            simulate.run(kernel, {**arrays, **counts()}, grid_size=3)
        return
    simulate.run(kernel, {**arrays, **counts()}, grid_size=3)
    assert not np.allclose(arrays["c"].astype(np.float64), exact(arrays), atol=0.15)


def without(kernel: t.Kernel, symbol: str) -> None:
    """Assumes no limit of ``symbol``."""
    kept = [
        x.expr for x in kernel.assumptions if not any(str(c).startswith(f"{symbol} <= ") for c in conjuncts(x.expr))
    ]
    kernel.attributes["assumptions"] = exprs(kept)


def test_rows_without_a_limit_are_refused() -> None:
    """Beyond 2^30 rows a coordinate is no 32-bit integer, or counts from behind the bound."""
    found = lowered(CANDIDATE)
    without(found.scheduled.kernel, "T")
    answer = prove_copies(found.tile, found.scheduled.kernel)
    assert isinstance(answer, Refuted)
    assert "is not known to lie between 0 and 2147483647" in answer.witness
    assert compare_lowering(found.tile, found.scheduled.kernel)


def test_integers_that_are_not_clipped_are_refused() -> None:
    found = lowered(CANDIDATE)
    assert isinstance(prove_copies(found.tile, found.scheduled.kernel), Proved)
    (bind,) = (op for op in found.tile.walk() if isinstance(op, tile.Bind) and op.symbol.data == "$b6")
    bind.operands[0] = bind.value.owner.a.owner.a
    assert isinstance(prove_copies(found.tile, found.scheduled.kernel), Refuted)


def test_loads_through_such_a_map_are_refused() -> None:
    """A tile that ends with its group is not the tile of the program."""
    found = lowered(CANDIDATE)
    kernel = found.scheduled.kernel
    (declared,) = ragged_maps(kernel)
    load = next(op for op in kernel.walk() if isinstance(op, a.TmaLoad) and len(op.coords) == 2)
    source = load.map.owner
    assert isinstance(source, a.TensorMap)
    kept = source.numbers
    pitch = kept.strides_bytes[0]
    ragged = replace(
        kept,
        dims=(kept.dims[0], *declared.numbers.dims[1:]),
        strides_bytes=(pitch, pitch, Const(2 * WRAP) - pitch),
        box=(*kept.box, 1, 1),
        ragged_axis=0,
    )
    twin = a.TensorMap(
        source.tensor,
        source.hint.data,
        data_type=int(ragged.data_type),
        address=ragged.address,
        dims=ragged.dims,
        strides_bytes=ragged.strides_bytes,
        box=ragged.box,
        axes=ragged.axes,
        swizzle=int(ragged.swizzle),
        l2_promotion=int(ragged.l2_promotion),
        ragged_axis=0,
    )
    block = source.parent_block()
    assert block is not None
    block.insert_op_before(twin, source)
    column, row = (c.expr for c in load.coords)
    load.operands[1] = twin.map
    load.attributes["coords"] = exprs([column, row + BOUND - Sym("$b6"), Sym("$b6"), Const(BOUND)])
    assert isinstance(prove_copies(found.tile, kernel), Refuted)


# -- launches ----------------------------------------------------------------------------------------------------------
def test_the_recipe_has_the_added_dimensions(artifact: Artifact) -> None:
    texts = {image.symbol: transport_kernel(image.transport_ir) for image in artifact.kernels}
    assert recipe_faults(artifact, texts) == ()
    for field, change in (
        ("dims", lambda x: (*x[:1], Const(BOUND // 2), *x[2:])),
        ("strides_bytes", lambda x: (*x[:2], x[2] + 16)),
    ):
        variants = []
        for variant in artifact.variants:
            steps = [
                replace(s, recipe=replace(s.recipe, **{field: change(getattr(s.recipe, field))}))
                if isinstance(s, EncodeTensorMap) and len(s.recipe.dims) == 4
                else s
                for s in variant.steps
            ]
            variants.append(replace(variant, steps=tuple(steps)))
        faults = recipe_faults(replace(artifact, variants=tuple(variants)), texts)
        assert {fault.field.split(".")[-1].split("[")[0] for fault in faults} == {field}
