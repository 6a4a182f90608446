"""Kernels whose CTAs draw their programs from a counter: PTX against the Transport IR, and mistakes in either."""

# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportMissingParameterType=false
# ruff: noqa: F821, UP037

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

import pytest
from xdsl.dialects.builtin import IntAttr

import tilewright as tw
from examples import grouped_matmul, varlen_attention
from support.parsed import tile_kernel, transport_kernel
from tilewright.artifact.schema import Artifact, KernelImage, Launch
from tilewright.compiler.bundle_verdict import Answer, ReadBundle
from tilewright.transport import dialect as t
from tilewright.validate import launch_recipe
from tilewright.validate.match import Difference
from tilewright.validate.tile_to_transport.compare import Unlike
from tilewright.validate.tile_to_transport.compare import compare as compare_lowering
from tilewright.validate.transport_to_ptx import compare as compare_ptx


@cache
def product() -> Artifact:
    dtypes = {"offsets": "i32", "a": "bf16", "b": "bf16", "c": "bf16"}
    return grouped_matmul.grouped_matmul.compile(dtypes=dtypes, bm=64, bn=64)


@cache
def attention() -> Artifact:
    dtypes = {"q_offsets": "i32", "k_offsets": "i32", **dict.fromkeys("qkvo", "bf16")}
    return varlen_attention.forward(64).compile(dtypes=dtypes, lse=None)


@tw.kernel
def summed(
    q_offsets: tw.Offsets["B + 1"],
    k_offsets: tw.Offsets["B + 1"],
    x: tw.Tensor["N", "D"],
    y: tw.Tensor["M", "D"],
    *,
    bm=tw.auto,
    bd=tw.auto,
    bt=tw.auto,
):
    """In every row of a sequence the sum of the rows of another, without roles: a step judges both offsets."""
    b, m, d = tw.ragged_grid(q_offsets, y.shape, (bm, bd))
    total = tw.zeros((d,), tw.f32)
    for s in tw.stream(x.shape[0], bt, start=k_offsets[b], until=k_offsets[b + 1]):
        total += x[s, d].sum(0)
    y[m, d] = total[None, :] + m.index[:, None] * 0


@cache
def sums() -> Artifact:
    return summed.compile(dtypes={"q_offsets": "i32", "k_offsets": "i32", "x": "f32", "y": "f32"})


def drawn(artifact: Artifact) -> tuple[KernelImage, Launch]:
    """The kernel that draws, and its launch."""
    launches = [s for v in artifact.variants for s in v.steps if isinstance(s, Launch)]
    images = {k.symbol: k for k in artifact.kernels if "transport.draw" in k.transport_ir}
    return next((images[launch.kernel], launch) for launch in launches if launch.kernel in images)


def judge(artifact: Artifact) -> tuple[KernelImage, Launch]:
    """The step that judges the offsets of a kernel without roles, and its launch."""
    launches = [s for v in artifact.variants for s in v.steps if isinstance(s, Launch)]
    launch = next(launch for launch in launches if launch.kernel.endswith("_judge"))
    return artifact.kernel(launch.kernel), launch


def compared(
    artifact: Artifact, change: Callable[[str], str] = str, changed: Callable[[t.Kernel], None] | None = None
) -> tuple[Difference, ...]:
    image, launch = drawn(artifact)
    kernel = transport_kernel(image.transport_ir)
    if changed is not None:
        changed(kernel)
    return compare_ptx(kernel, change(image.ptx), launch.args, launch.grid[0], 1)


def test_the_ptx_does_what_the_ir_says() -> None:
    """That of a product: ``test_a_bundle_over_offsets_validates``."""
    assert compared(attention()) == ()


NEXT = r"\n(?:\s*\.loc.*\n)*\t"
"""Between one instruction and the next."""
COMPARED = r"(setp)\.lt(\.s64 \s*%p\d+, %rd\d+, %rd\d+;"
"""Of words of 64 bits; ``le`` in its place is ``AT_MOST``."""
AT_MOST = r"\1.le\2"

COUNTED = r"(bar\.red\.popc\.u32 \s*(%r\d+))"
"""The threads that found offsets broken, the gate of all."""

OTHER_PTX = {
    "the first program is another one": (r"mov\.u32 (\s*%r\d+), %ctaid\.x;", r"mov.u32 \1, %nctaid.x;"),
    "two are drawn at once": (r"(atom\.global\.add\.u32 .*), 1;", r"\1, 2;"),
    "drawn from beside the counter": (r"(atom\.global\.add\.u32 .*\[%rd\d+)\]", r"\1+4]"),
    "what was drawn counts twice": (rf"(atom\S+ \s*(%r\d+).*{NEXT}add\.s32 \s*%r\d+, %r\d+), %r\d+", r"\1, \2"),
    "the next number is read elsewhere": (r"(ld\.shared\.u32 .*)\+180352\](?![\s\S]*\+180352)", r"\1+180480]"),
    "a program too many": (rf"(ld\.shared\.u32 .*\+180352\];[\s\S]*?setp)\.lt(\.s32 .*{NEXT}@)", AT_MOST),
    "another remainder is kept of a counter": (rf", 20;({NEXT}sub\.s32)", r", 10;\1"),
    "a counter is divided by another number": (r"1717986919", "1717986918"),
    "the search halves twice": (r"(shr\.s64 \s*(%rd\d+), \2), 1;", r"\1, 2;"),
    "the search finds the group before": (rf"(setp)\.gt(\.s64 \s*%p\d+, %rd\d+, %rd\d+;{NEXT}selp)", r"\1.ge\2"),
    "the search has tiles of another height": (r"(shr\.s64 \s*%rd\d+, %rd\d+), 6;", r"\1, 7;"),
    "the search counts a cut tile for each row": (rf"(shr\.s64 .*, 6;{NEXT})min(\.s64)", r"\1max\2"),
    "few groups have tiles of another height": (r"(shr[\s\S]*?, 6;[\s\S]*?shr\.s64 \s*%rd\d+, %rd\d+), 6;", r"\1, 7;"),
    "a group more is few": (r"(setp\.lt\.s32 \s*%p\d+, %r\d+), 17;", r"\1, 18;"),
    "the search reads the offset behind": (r"shl\.b64 (\s*%rd\d+, %rd\d+), 2;", r"shl.b64 \1, 3;"),
    "the search may read before the offsets": (r"(setp\.gt\.s64 \s*%p\d+, %rd\d+), -1;", r"\1, -2;"),
    "the search may read behind them": (rf"{COMPARED}{NEXT}and\.pred)", AT_MOST),
    "a bound overwrites part of one that is read behind it": (r"\+180264\], %rd", r"+180260], %rd"),
    "a bound is stored where another lies": (r"(st\.shared\.u64 \s*\[%rd\d+)\+180264\]", r"\1+180256]"),
    "the gate counts the other threads": (r"setp\.ne(\.u32 \s*%p\d+, %r\d+, 0;\s*bar\.red)", r"setp.eq\1"),
    "the gate counts no thread": (rf"{COUNTED}, 0, %p\d+;", r"bar.sync 0; mov.u32 \2, 0;"),
    "each thread has a gate of its own": (rf"{COUNTED}, 0, (%p\d+);", r"bar.sync 0; selp.u32 \2, 1, 0, \3;"),
    "the gate is opened at another barrier": (rf"({COUNTED}), 0,", r"\1, 1,"),
    "an empty group closes the gate": (r"setp\.gt(\.s32 \s*%p\d+, %r\d+, %r\d+;\s*setp\.ne)", r"setp.ge\1"),
    "the first offset may be 1": (r"(setp\.ne\.s32 \s*%p\d+, %r\d+), 0;(\s*and\.pred)", r"\1, 1;\2"),
    "the last offset is not looked at": (r"setp\.le(\.s32 \s*%p\d+, %r\d+, %r\d+;\s*setp\.eq)", r"setp.lt\1"),
    "the producer has no gate": (rf"({COUNTED}[\s\S]*?or\.b32 \s*%r\d+, (%r\d+)), \3;", r"\1, \4;"),
    "consumers have no gate": (rf"({COUNTED}[\s\S]*setp)\.ne(\.s32 \s*%p\d+, \3, 0;)", r"\1.lt\4"),
    "what is kept is reported": (rf"({COUNTED}[\s\S]*?setp)\.eq(\.s32 \s*%p\d+, \3, 0;)", r"\1.ne\4"),
}


@pytest.mark.parametrize("name", OTHER_PTX)
def test_other_ptx_is_seen(name: str) -> None:
    pattern, replacement = OTHER_PTX[name]

    def change(ptx: str) -> str:
        assert re.search(pattern, ptx), name
        return re.sub(pattern, replacement, ptx, count=1)

    assert compared(product(), change)


# -- the step that judges the offsets ---------------------------------------------------------------------------------
def judged(artifact: Artifact, change: Callable[[str], str] = str) -> tuple[Difference, ...]:
    image, launch = judge(artifact)
    return compare_ptx(transport_kernel(image.transport_ir), change(image.ptx), launch.args, launch.grid[0], 1)


def test_the_ptx_of_the_judge_does_what_its_ir_says() -> None:
    assert judged(sums()) == ()


OTHER_JUDGES = {
    "offsets may descend by one": (r"(setp)\.gt(\.s32 \s*%p49,)", r"\1.ge\2"),
    "the last offset is compared with another extent": (r"(selp\.b32 \s*%r109, %r21,) %r74", r"\1 %r75"),
    "the first offset may be another": (r"setp\.ne(\.s32 \s*%p50, %r13, 0)", r"setp.eq\1"),
    "every offset but the first must be 0": (r"setp\.eq(\.s32 \s*%p51,)", r"setp.ne\1"),
    "the offset behind is the same": (r"\[%rd59\+4\]", "[%rd59]"),
    "a read behind the last offset": (r"setp\.lt(\.s32 \s*%p24, %r250, %r73)", r"setp.le\1"),
    "the least of the flags": (r"max\.s32( \s*%r133, %r130, %r132)", r"min.s32\1"),
    "lanes that are not asked": (r"(mov\.u32 \s*%r134), 16;", r"\1, 8;"),
    "another warp's flag": (r"(and\.b64 \s*%rd29, %rd28), 60;", r"\1, 28;"),
    "a barrier less": (r"(st\.shared\.u32 [\s\S]*?)bar\.sync \s*0;", r"\1"),
    "offsets that are not looked at": (r"(add\.s32 \s*%r249, %r249), 1024;", r"\1, 2048;"),
    "the flag of another promise": (r"setp\.eq(\.s32 \s*%p79,)", r"setp.ne\1"),
    "what was found before is forgotten": (r"max\.s32( \s*%r259), %r259, %r158;", r"mov.u32\1, %r158;"),
    "a flag that is never set": (r"max\.s32( \s*%r247), %r259, 0;", r"min.s32\1, %r259, 0;"),
    "counted where nothing is broken": (r"setp\.lt(\.s32 \s*%p171, %r259, 1)", r"setp.gt\1"),
    "counted twice": (r"(atom\.global\.add\.u32 .*), 1;", r"\1, 2;"),
    "counted beside the count": (r"(mul\.wide\.s32 \s*%rd57, %r72), 4;", r"\1, 8;\n\tadd.s64 %rd57, %rd57, 4;"),
    "a flag of none is below the last one": (r"setp\.gt\.u32( \s*%p172, %r72, 1)", r"setp.gt.s32\1"),
    "the flag of the first promise alone": (r"setp\.gt\.u32( \s*%p172, %r72), 1;", r"setp.gt.u32\1, 0;"),
}


@pytest.mark.parametrize("name", OTHER_JUDGES)
def test_other_ptx_of_the_judge_is_seen(name: str) -> None:
    pattern, replacement = OTHER_JUDGES[name]

    def change(ptx: str) -> str:
        assert re.search(pattern, ptx), name
        return re.sub(pattern, replacement, ptx, count=1)

    assert judged(sums(), change)


# -- Transport IR against Tile IR -------------------------------------------------------------------------------------
def stored(
    artifact: Artifact, change: Callable[[str], str] = str, program: Callable[[str], str] = str
) -> tuple[Unlike, ...]:
    image, _ = drawn(artifact)
    return compare_lowering(tile_kernel(program(image.tile_ir)), transport_kernel(change(image.transport_ir)))


def test_the_ir_stores_what_the_program_does() -> None:
    """That of a product: ``test_a_bundle_over_offsets_validates``."""
    assert stored(attention()) == ()


OTHER_IR = {
    "the rows of another group": ('coords = [#tile.expr<"$p1*64">, #tile.expr<"$b5 +', "$b5", "$b7"),
    "the matrix of another group": (
        'coords = [#tile.expr<"$k2*64">, #tile.expr<"$p1*64">, #tile.expr<"$b0',
        "$b0",
        "$b4",
    ),
    "another step of the search": ('tile.constant <"2">', '"2"', '"4"'),
    "a search in other offsets": ('guard = #tile.expr<"0 <= $index0 and $index0 < G + 1">', "< G + 1", "< G"),
    "a search that ends one step early": ("min(B // 4096, 1))*19", "*19", "*18"),
    "zeros to other rows": ('condition = #tile.expr<"$b7 < min(M, $b8)">', "$b7 <", "$b7 + 1 <"),
    "a gate that opens twice": ('end = #tile.expr<"min($gate, 1)">', ", 1)", ", 2)"),
}


@pytest.mark.parametrize("name", OTHER_IR)
def test_another_ir_is_seen(name: str) -> None:
    line, old, new = OTHER_IR[name]

    def change(text: str) -> str:
        assert line in text, name
        return text.replace(line, new.join(line.rsplit(old, 1)))

    artifact = attention() if "B //" in line else product()
    assert stored(artifact, change)


def test_a_gate_that_the_program_has_not_is_seen() -> None:
    gate = ', gate = "promises$failed"'
    assert gate in drawn(product())[0].tile_ir
    assert stored(product(), program=lambda text: text.replace(gate, ""))


def test_counters_of_clusters_are_zero_where_programs_are_more_than_whole_clusters_run() -> None:
    kernel = transport_kernel(drawn(product())[0].transport_ir)
    ((_, some),) = launch_recipe._drawn_from(kernel)
    kernel.cluster = IntAttr(7)
    ((_, clustered),) = launch_recipe._drawn_from(kernel)
    at_once = kernel.target.sm_count * kernel.min_ctas.data
    programs = next(op for op in kernel.walk() if isinstance(op, t.Draw)).programs.expr
    assert at_once % 7
    assert (some, clustered) == (programs > at_once, programs > at_once // 7 * 7)


# -- whole bundles ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("artifact", [product, pytest.param(attention, marks=pytest.mark.slow)])
def test_a_bundle_over_offsets_validates(artifact: Callable[[], Artifact]) -> None:
    bundle = ReadBundle.of(artifact())
    answers = [bundle.recipe(), bundle.steps(), bundle.variants(), bundle.promises(), *bundle.each()]
    assert [found.answer for found in answers] == [Answer.DECIDED] * len(answers)
