"""What becomes of ``tw.auto``, and for which sizes of an ``upto`` axis there are kernels."""

# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingParameterType=false
# ruff: noqa: UP037

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilewright as tw
from tilewright.base.dtypes import bf16
from tilewright.base.expr import TRUE, Sym
from tilewright.compiler.planned import PlannedProgram
from tilewright.compiler.program import Tracing, plan
from tilewright.compiler.requests import Request, default_facts
from tilewright.hw.target import SM90A
from tilewright.lang.schedule import Schedule
from tilewright.lang.signature import Signature
from tilewright.schedule.extents import ExtentChoice, bound_ladder, choose_extents, probe
from tilewright.schedule.facts import CallFacts, Observed, observe_facts
from tilewright.schedule.placement import default_threads

M, N = Sym("M"), Sym("N")


@tw.kernel
def flat(x: tw.Tensor["M"], y: tw.Tensor["M"], *, bm=tw.auto):
    m = tw.grid(x.shape[0], bm)
    y[m] = x[m] * 2.0


@tw.kernel
def matrix(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"], *, bm=tw.auto, bn=tw.auto):
    m, n = tw.grid(x, (bm, bn))
    y[m, n] = x[m, n] * 2.0


@tw.kernel
def rows(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"], *, bm=tw.auto, upto: int = 4096):
    m, n = tw.grid(x.shape[0], bm), tw.axis(x.shape[1], upto=upto)
    y[m, n] = x[m, n] - x[m, n].to(tw.f32).max(1)[:, None].to(x.dtype)


@tw.kernel
def unreduced(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"], *, bm=tw.auto, upto: int = 4096):
    m, n = tw.grid(x.shape[0], bm), tw.axis(x.shape[1], upto=upto)
    y[m, n] = x[m, n] * 2.0


@tw.kernel
def turned(x: tw.Tensor["M", "N"], y: tw.Tensor["N", "M"], *, bm=tw.auto, bn=tw.auto):
    m, n = tw.grid(x, (bm, bn))
    y[n, m] = x[m, n].T


@tw.kernel
def symmetric(x: tw.Tensor["N", "N"], y: tw.Tensor["N", "N"], *, b=tw.auto):
    i, j = tw.grid(x, (b, b))
    y[i, j] = x[i, j] + x[j, i].T


@tw.kernel
def columns(x: tw.Tensor["M", "N"], y: tw.Tensor["N"], *, bm=tw.auto, bn=tw.auto):
    n = tw.grid(y, bn)
    total = tw.zeros(n, tw.f32)
    for m in tw.stream(x.shape[0], bm):
        total += x[m, n].to(tw.f32).sum(0)
    y[n] = total.to(y.dtype)


@tw.kernel
def sums(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"], *, bm=tw.auto, bn=tw.auto):
    m = tw.grid(x.shape[0], bm)
    total = tw.zeros(m, tw.f32)
    for n in tw.stream(x.shape[1], bn):
        y[m, n] = tw.cumsum(x[m, n], 1, carry=total)


@tw.kernel
def sums_of_steps(x: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"], *, bm=tw.auto, bn=tw.auto):
    m = tw.grid(x.shape[0], bm)
    for n in tw.stream(x.shape[1], bn):
        y[m, n] = tw.cumsum(x[m, n], 1)


def request(kernel: tw.Kernel, facts: CallFacts | None = None) -> Request:
    function = kernel.compiled.function
    signature = Signature.of(dict.fromkeys((t.name for t in function.tensors), bf16))
    return Request(function, signature, facts or default_facts(function), SM90A, Schedule())


def choices(
    kernel: tw.Kernel, facts: CallFacts | None = None, limits: dict[Sym, int] | None = None
) -> list[ExtentChoice]:
    asked = request(kernel, facts)
    autos = kernel.compiled.function.autos
    return choose_extents(probe(autos, Tracing(asked), asked.facts), dict(limits or {}), SM90A)


def extents(kernel: tw.Kernel, facts: CallFacts | None = None, limits: dict[Sym, int] | None = None) -> dict[str, int]:
    return dict(choices(kernel, facts, limits)[-1].extents)


def unaligned(*names: str, shape: tuple[int, ...]) -> CallFacts:
    """All tensors at an odd address, so that none of their rows is aligned, each a peer of the first."""
    strides = (1,) if len(shape) == 1 else (shape[1], 1)
    return observe_facts({n: Observed(bf16, 2, shape, strides) for n in names})


def test_a_cta_moves_8_kb_of_a_tensor_at_a_time() -> None:
    assert extents(flat) == {"bm": 4096}
    assert extents(matrix) == {"bm": 16, "bn": 256}  # whole lines of each row


def test_whole_rows_that_are_reduced_are_half_as_many() -> None:
    assert extents(rows, limits={N: 1000}) == {"bm": 2}
    assert extents(rows, limits={N: 4096}) == {"bm": 1}
    assert extents(rows, limits={N: 128}) == {"bm": 16}
    assert extents(unreduced, limits={N: 128}) == {"bm": 32}


@pytest.mark.parametrize(
    ("elements", "alone", "reduced"), [(320, 32, 32), (2048, 128, 128), (4096, 256, 128), (12288, 512, 256)]
)
def test_threads_of_a_tile(elements: int, alone: int, reduced: int) -> None:
    assert default_threads(elements, reduces=False) == alone
    assert default_threads(elements, reduces=True) == reduced


def test_tiles_that_are_turned_over_have_whole_lines_along_both_axes() -> None:
    assert extents(turned) == {"bm": 128, "bn": 128}
    assert extents(symmetric) == {"b": 128}  # one auto for both


def test_a_tile_that_streams_down_its_columns_is_one_line_wide() -> None:
    assert extents(columns) == {"bn": 64, "bm": 512}


def test_few_long_rows_are_scanned_in_long_steps() -> None:
    """A step waits for the one before it, if it begins with its state."""
    long, short = choices(sums)
    assert (long.extents, short.predicate) == ({"bm": 1, "bn": 16384}, TRUE)
    served = {shape: long.predicate.evaluate(dict(zip("MN", shape, strict=True)))
              for shape in ((1, 16384), (1, 16383), (8 * 132, 16384), (8 * 132 + 1, 16384))}  # fmt: skip
    assert list(map(bool, served.values())) == [True, False, True, False]
    assert [c.predicate for c in choices(sums_of_steps)] == [TRUE]


def test_columns_for_fewer_tiles_than_sms_are_half_a_line_wide() -> None:
    narrow, wide = choices(columns)
    assert narrow.extents == {"bn": 32, "bm": 1024}
    assert wide.predicate == TRUE
    widest = 32 * SM90A.sm_count
    assert narrow.predicate.evaluate({"M": 5, "N": widest})
    assert not narrow.predicate.evaluate({"M": 5, "N": widest + 1})


def test_narrow_matrices_get_kernels_of_their_own() -> None:
    found = choices(matrix)
    assert [c.extents["bn"] for c in found] == [64, 128, 256]
    assert [c.predicate.evaluate({"M": 5, "N": 64}) for c in found] == [True, True, True]
    assert [c.predicate.evaluate({"M": 5, "N": 65}) for c in found] == [False, True, True]
    assert [c.predicate.evaluate({"M": 5, "N": 129}) for c in found] == [False, False, True]


def test_an_unaligned_row_leaves_room_for_the_vector_before_it() -> None:
    assert extents(flat, unaligned("x", "y", shape=(10_001,))) == {"bm": 4096 - 8}
    assert extents(matrix, unaligned("x", "y", shape=(50, 777))) == {"bm": 16, "bn": 256}  # several rows: as they are


@pytest.mark.parametrize("reach", [0, 8])
def test_the_ladder_of_65536(reach: int) -> None:
    sizes = [s[0][1] for s in bound_ladder([(N, 65536)], {N: reach} if reach else {})]
    aligned = [128, 512, 1024, 2048, 4096, 5120, 8192, 10240, 12288, 16384, 20480, 24576, 32768, 65536]
    assert sizes == ([128, 512, 1024, 2553, 5113, 10233, 20473, 40953, 65536] if reach else aligned)


@given(st.lists(st.integers(1, 70_000), min_size=1, max_size=3), st.booleans())
def test_every_size_has_a_rung(bounds: list[int], skewed: bool) -> None:
    named = [(Sym(f"N{i}"), upto) for i, upto in enumerate(bounds)]
    ladder = bound_ladder(named, {named[0][0]: 8} if skewed else {})
    assert ladder[-1] == tuple(named)
    for small, large in pairwise(ladder):
        assert all(a[1] <= b[1] for a, b in zip(small, large, strict=True))
        assert small != large
    assert all(1 <= size <= upto for rung in ladder for (_, size), (_, upto) in zip(rung, named, strict=True))


def test_the_variant_that_serves_a_size_is_the_one_dispatch_picks() -> None:
    whole: PlannedProgram = plan(request(rows))
    for width in (1, 128, 129, 1000, 1024, 1025, 4096):
        dims = {"M": 3, "N": width}
        picked = next(v for v in whole.variants if v.predicate.evaluate(dims))
        (alone,) = plan(request(rows), dims).variants
        assert alone.placement.notes == picked.placement.notes
