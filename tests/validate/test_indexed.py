"""Kernels at computed and loaded coordinates: what is compared, and that mistakes planted in them are seen."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

from support.indexed import SHORT
from support.indexed_more import CASES
from support.lowered import lowered
from support.parsed import transport_kernel
from tilewright.artifact.schema import Artifact, Launch
from tilewright.base.expr import Const, Sym
from tilewright.tile import dialect as tile
from tilewright.tile.dialect import ExprAttr
from tilewright.transport import dialect as t
from tilewright.transport.ops.base import exprs
from tilewright.validate.match import Difference
from tilewright.validate.tile_to_transport.compare import compare
from tilewright.validate.transport_to_ptx import compare as compare_ptx

pytestmark = pytest.mark.sample(2)

UNDECIDED = {"segment_max", "mean_of_bags", "softmax_of_groups", "rows_one_by_one"}
"""Streams between two loaded bounds; the sum of a row that may be none."""


def both(name: str) -> tuple[tile.Kernel, t.Kernel]:
    found = lowered(CASES[name].kernel, dtypes(name))
    return list(found.values())[-1]


def dtypes(name: str) -> dict[str, str]:
    return {n: SHORT[a.dtype.name] for n, a in CASES[name].draw(np.random.default_rng(0)).items()}


@pytest.mark.parametrize("name", sorted(CASES.keys() - UNDECIDED))
def test_values_are_equal(name: str) -> None:
    assert compare(*both(name)) == ()


def indexed(kernel: t.Kernel) -> list[t.Load | t.Store | t.AtomicReduce]:
    return [op for op in kernel.walk() if isinstance(op, t.Load | t.Store | t.AtomicReduce) and op.within is not None]


def beside(kernel: t.Kernel) -> None:
    for op in indexed(kernel):
        first, *rest = (c.expr for c in op.coords)
        op.attributes["coords"] = exprs([first + 1, *rest])


def always_the_first(kernel: t.Kernel) -> None:
    for op in indexed(kernel):
        op.attributes["index_registers"] = exprs([Const(0)] * len(op.indices))


def without_domain(kernel: t.Kernel) -> None:
    for op in indexed(kernel):
        op.attributes["guard"] = ExprAttr(Sym(t.THREAD) >= 0)


def narrower(kernel: t.Kernel) -> None:
    for op in indexed(kernel):
        op.attributes["guard"] = ExprAttr(Sym(t.THREAD) < 7)
        op.attributes["within"] = ExprAttr(Sym(t.THREAD) < 7)


@pytest.mark.parametrize("change", [beside, always_the_first, without_domain, narrower])
def test_other_elements_are_seen(change: Callable[[t.Kernel], None]) -> None:
    source, made = both("embedding")
    change(made)
    assert compare(source, made)


def test_another_bound_is_seen() -> None:
    source, made = both("mean_of_lengths")
    for op in made.walk():
        if isinstance(op, t.For):
            op.attributes["end"] = ExprAttr(op.end.expr + 1)
    assert compare(source, made)


# -- PTX ---------------------------------------------------------------------------------------------------------------
PTX_UNDECIDED = {
    "added_flat": "quotients and remainders of a loaded word by an extent",
    "mean_of_bags": "what bounds are made of, as words and as integers",
    "pooled_with_places": "absence as a choice of tests",
    "rows_one_by_one": "NVRTC leaves out the walk for last tiles: no group has one",
    "ring_in_order": "remainders of places that are cut into powers of two",
    "sliced": "a quotient by a power of two, as a product",
}


@cache
def compiled(name: str) -> Artifact:
    return CASES[name].kernel.compile(dtypes=dtypes(name))


def differences(name: str, change: Callable[[str], str] = str) -> tuple[Difference, ...]:
    """Of the kernel itself, which is launched last."""
    return compared(compiled(name), -1, change)


def compared(artifact: Artifact, place: int, change: Callable[[str], str] = str) -> tuple[Difference, ...]:
    launch = [s for v in artifact.variants for s in v.steps if isinstance(s, Launch)][place]
    image = next(k for k in artifact.kernels if k.symbol == launch.kernel)
    return compare_ptx(transport_kernel(image.transport_ir), change(image.ptx), launch.args, launch.grid[0], 1)


@pytest.mark.parametrize("name", sorted(CASES.keys() - PTX_UNDECIDED.keys()))
def test_the_ptx_does_what_the_ir_says(name: str) -> None:
    assert differences(name) == ()


@pytest.mark.parametrize("name", ["scatter_rows", "append_to_pages", "dispatch", "scatter_pairs"])
def test_the_ptx_of_checks_does_what_the_ir_says(name: str) -> None:
    """Of the kernels that claim and judge, launched before the one that relies on promises. The numbers of entries of
    several axes are products of extents, which dispatch bounds."""
    artifact = compiled(name)
    launches = [s.kernel for v in artifact.variants for s in v.steps if isinstance(s, Launch)]
    assert [kernel.removeprefix(f"kernel_{name}_") for kernel in launches[-3:-1]] == ["claim0", "judge0"]
    found = {kernel: compared(artifact, place) for place, kernel in enumerate(launches[:-1])}
    assert [kernel for kernel, differences in found.items() if differences] == []


@pytest.mark.parametrize(
    ("step", "pattern", "wrong"),
    [
        (0, r"atom\.global\.exch\.b32", "atom.global.max.s32"),
        (0, r"(atom\.global\.exch\.b32\s+%r\d+, \[%rd\d+\]), %r\d+", r"\1, 1"),
        (1, r"setp\.(eq|ne)\.s32(\s+%p\d+, %r\d+), (%r\d+)", r"setp.\1.s32\2, 1"),
        (1, r"ld\.global\.u32(\s+%r\d+), \[(%rd\d+)\]", r"ld.global.u32\1, [\2+4]"),
        (1, r"selp\.b32(\s+%r\d+), (%r\d+), (%r\d+)", r"selp.b32\1, \3, \2"),
    ],
)
def test_ptx_that_claims_or_judges_otherwise_is_found(step: int, pattern: str, wrong: str) -> None:
    artifact = compiled("scatter_rows")
    assert compared(artifact, step) == ()
    assert compared(artifact, step, lambda ptx: changed(pattern, wrong, ptx)) != ()


@pytest.mark.parametrize(
    ("step", "pattern", "wrong"),
    [
        (0, r"or\.b64", "and.b64"),
        (0, r"(setp\.lt\.s64\s+%p\d+, %rd\d+), 0;", r"\1, -1;"),
        (1, r"or\.b32", "xor.b32"),
        (1, r"(setp\.gt\.s32\s+%p\d+, %r18), -1;", r"\1, -2;"),
    ],
)
def test_a_pair_of_which_one_is_absent_claims_nothing(step: int, pattern: str, wrong: str) -> None:
    """Both are looked at by the sign of what their bits are joined to."""
    assert compared(compiled("scatter_pairs"), step, lambda ptx: changed(pattern, wrong, ptx)) != ()


def changed(pattern: str, wrong: str, ptx: str) -> str:
    found, count = re.subn(pattern, wrong, ptx)
    assert count
    return found


GUARDS = {
    "below 0": (r"setp\.lt\.s(\d\d)(\s+%p\d+, %rd?\d+), 0;", r"setp.lt.s\1\2, -1;"),
    "above -1": (r"setp\.gt\.s(\d\d)(\s+%p\d+, %rd?\d+), -1;", r"setp.gt.s\1\2, -2;"),
    "the extent": (r"setp\.lt\.s64(\s)", r"setp.le.s64\1"),
    "the extent or more": (r"setp\.ge\.s64(\s)", r"setp.gt.s64\1"),
    "any sign": (r"setp\.gt\.s64(\s+%p\d+, %rd\d+), -1;", r"setp.gt.u64\1, -1;"),
    "another half": (r"cvt\.u32\.u64(\s+%r\d+), (%rd\d+);", r"cvt.u32.u64\1, %rd3;"),
    "without its stride": (r"mad\.lo\.s32(\s+%r\d+), (%r\d+), %r\d+, ", r"mad.lo.s32\1, \2, 1, "),
}


@pytest.mark.parametrize("name", ["embedding", "index_add", "take_along_rows"])
@pytest.mark.parametrize("what", GUARDS)
def test_a_wrong_guard_or_place_of_a_loaded_coordinate_is_refused(name: str, what: str) -> None:
    """All places at which an index is tested, or turned into an offset, are changed one step."""
    pattern, other = GUARDS[what]
    if not re.search(pattern, compiled(name).kernels[0].ptx):
        pytest.skip("no such instruction")
    assert differences(name, lambda ptx: re.sub(pattern, other, ptx))


@pytest.mark.parametrize(
    ("pattern", "wrong"),
    [
        (r"(ld\.shared\.u64 \s*%rd\d+, \[\w+v_bound)_2_", r"\1_1_"),  # nothing is read of another variable
        (r"(st\.shared\.u64 \s*\[\w+v_bound)_3_", r"\1_2_"),
        (r"st\.shared\.u64 \s*\[\w+v_bound_7_[^;]*;", ""),
        (r"\.shared \.align 16 \.u64 (\w+v_bound)_7_", r".shared .align 16 .u64 \1_4_$_0;\n\t\g<0>"),
        (r"min\.s64(\s+%rd\d+, %rd\d+, %rd\d+)", r"max.s64\1"),
        (r"(mul\.wide\.s32 \s*%rd\d+, %r\d+), 4;", r"\1, 8;"),
    ],
)
def test_other_bounds_are_refused(pattern: str, wrong: str) -> None:
    """Of eight variables in shared memory the PTX declares seven: what the fifth holds is not asked for."""
    assert differences("numbered_groups", lambda ptx: changed(pattern, wrong, ptx))


REDUCTIONS = {
    "another function": (r"global\.max", r"global.min"),
    "without a sign": (r"global\.max\.s", r"global.max.u"),
    "with a sign": (r"global\.max\.u", r"global.max.s"),
    "another bit": (r"global\.and", r"global.or"),
    "another bound": (r"(setp\.lt\.s32 minus, %r\d+), 0;", r"\1, 1;"),
    "the other way round": (r"@minus red", "@!minus red"),
    "NaN as it is": (r"setp\.nan\.f32(\s+%p\d+), (%[rf]\d+), \S+;", r"setp.lt.f32\1, \2, \2;"),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("name", "what"),
    [
        *(
            ("extremes_at", what)
            for what in ("another function", "another bound", "the other way round", "NaN as it is")
        ),
        *(("extremes_of_four", what) for what in ("another function", "without a sign")),
        *(("reductions_unsigned", what) for what in ("another function", "with a sign", "another bit")),
        *(("reductions_of_columns", what) for what in ("another function", "without a sign", "another bit")),
    ],
)
def test_another_reduction_is_refused(name: str, what: str) -> None:
    pattern, other = REDUCTIONS[what]
    assert re.search(pattern, compiled(name).kernels[0].ptx)
    assert differences(name, lambda ptx: re.sub(pattern, other, ptx))


@pytest.mark.parametrize(
    ("pattern", "wrong"),
    [
        (r"(selp\.b32\s+%r\d+, %r\d+), -1, ", r"\1, 0, "),
        (r"(setp\.gt\.s32\s+%p\d+, %r\d+), -1;", r"\1, -2;"),
        (r"(mul\.wide\.s32\s+%rd\d+, %r\d+), 4;", r"\1, 8;"),
    ],
)
def test_a_place_that_is_one_of_several_words_is_none_of_others(pattern: str, wrong: str) -> None:
    assert differences("twice", lambda ptx: changed(pattern, wrong, ptx))


def test_the_index_of_another_row_is_refused() -> None:
    """The second of two indices for the first."""

    def swapped(ptx: str) -> str:
        first, second = re.findall(r"ld\.global\.nc\.u32 \t(%r\d+), \[%rd\d+(?:\+8)?\];", ptx)[:2]
        lines = [
            line.replace(second, first) if line.strip().startswith(("mad", "setp")) else line
            for line in ptx.split("\n")
        ]
        return "\n".join(lines)

    assert swapped(compiled("embedding").kernels[0].ptx) != compiled("embedding").kernels[0].ptx
    assert differences("embedding", swapped)


def test_an_index_of_64_bits_is_not_cut_without_a_guard() -> None:
    """Its low half is the coordinate only where the extent bounds it."""

    def unguarded(ptx: str) -> str:
        return re.sub(r"setp\.(lt|ge)\.s64(\s+%p\d+), (%rd\d+), (%rd\d+);", r"setp.\1.s64\2, 0, 1;", ptx)

    assert unguarded(compiled("index_add").kernels[0].ptx) != compiled("index_add").kernels[0].ptx
    assert differences("index_add", unguarded)


# -- loaded bounds -----------------------------------------------------------------------------------------------------
BOUND = {
    "the bound beside it": (r"E9v_bound_1(_\S+\];\n\tmin)", r"E7v_bound\1"),
    "its upper half": (r"(ld\.shared\.u32 \t%r\d+, \[\S+bound_\S+)\];", r"\1+4];"),
    "before all have waited": (r"(\tbar\.sync \t0;\n(?:\t//[^\n]*\n)*)(\tld\.shared\.u32 [^\n]+\n)", r"\2\1"),
    "one more": (r"(ld\.shared\.u32 \t(%r\d+), \[\S+bound_\S+\];)", r"\1\n\tadd.s32 \t\2, \2, 1;"),
    "given by another thread": (r"setp\.ne\.s32(\s+%p\d+, %r\d+), 0;", r"setp.ne.s32\1, 1;"),
    "as it was loaded": (r"max\.s64(\s+%rd\d+, %rd\d+), 0;", r"max.s64\1, -9;"),
    "beyond the extent": (
        r"(ld\.shared\.u32 \t(%r\d+), \[\S+bound_1\S+\];\n\t)min\.s32 \t(%r\d+), \2, %r\d+;",
        r"\1mov.u32 \t\3, \2;",
    ),
}
"""By what is wrong: text of ``segment_max``, which begins and ends a stream at loaded bounds."""


@pytest.mark.parametrize("what", BOUND)
def test_a_wrong_bound_is_refused(what: str) -> None:
    pattern, other = BOUND[what]
    ptx = compiled("segment_max").kernels[0].ptx
    assert re.sub(pattern, other, ptx) != ptx
    assert differences("segment_max", lambda text: re.sub(pattern, other, text))


def test_two_offsets_are_not_read_at_once() -> None:
    """Of an odd group the first does not begin at a multiple of 16 bytes; the IR reads one after the other."""

    def wider(ptx: str) -> str:
        first = r"ld\.global\.nc\.u64 \t(%rd\d+), \[(%rd\d+)\];\n"
        return re.sub(
            first + r"\tld\.global\.nc\.u64 \t(%rd\d+), \[\2\+8\];", r"ld.global.nc.v2.u64 \t{\1, \3}, [\2];", ptx
        )

    assert wider(compiled("segment_max").kernels[0].ptx) != compiled("segment_max").kernels[0].ptx
    (found,) = differences("segment_max", wider)
    assert "may not be aligned" in found.what
