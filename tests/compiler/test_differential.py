"""A kernel's PTX executed beside its Transport IR on drawn arguments; mistakes in the PTX."""

# ruff: noqa: F821, UP037 - dimension names are strings
# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

import tilewright as tw
from support.example_cases import EXAMPLES_BY_NAME
from support.parsed import transport_kernel
from support.slow import rest_slow
from tilewright.artifact.schema import Artifact, KernelImage
from tilewright.base.dtypes import DTYPES
from tilewright.codegen.assemble import assemble
from tilewright.compiler import differential
from tilewright.compiler.launch_recipe import recipe
from tilewright.compiler.sampled_arguments import SampledTensor, sample_arguments
from tilewright.hw.target import SM90A
from tilewright.simulate.arguments import bind

pytestmark = pytest.mark.sample(1)


@cache
def compiled(example: str, dtype: str) -> Artifact:
    case = EXAMPLES_BY_NAME[example]
    return case.kernel.compile(dtypes={name: d.name for name, d in case.tensor_dtypes(DTYPES[dtype]).items()})


def executed(image: KernelImage, edit: Callable[[str], str] = lambda ptx: ptx) -> differential.DifferentialResult:
    kernel = transport_kernel(image.transport_ir)
    return differential.run_differential_test(kernel, edit(image.ptx), recipe([kernel]))


KERNELS = [("transpose", "bf16"), ("row_max", "f32"), ("argmax", "bf16"), ("rms_norm", "f16"), ("matmul", "bf16")]


@pytest.mark.parametrize(
    ("example", "dtype"), rest_slow(KERNELS, [k for k in KERNELS if k[0] != "rms_norm"], several=True)
)
def test_the_ptx_agrees_with_the_ir(example: str, dtype: str) -> None:
    for image in compiled(example, dtype).kernels[:2]:
        found = executed(image)
        assert not found.differences
        assert len(found.launches) >= differential.LAUNCHES
        assert all(" = " in launch for launch in found.launches)


@pytest.mark.parametrize(("example", "dtype"), KERNELS)
def test_arguments_satisfy_the_class(example: str, dtype: str) -> None:
    for image in compiled(example, dtype).kernels[:2]:
        kernel = transport_kernel(image.transport_ir)
        given = [g for g in (sample_arguments(kernel, seed) for seed in range(12)) if g is not None]
        assert len({str(g) for g in given}) > 2
        for g in given:
            bind(kernel, {n: p.view for n, p in g.tensors.items()}, g.scalars)  # raises SIM008 otherwise
        again = sample_arguments(kernel, 3), sample_arguments(kernel, 3)
        assert str(again[0]) == str(again[1])


MISTAKES = {
    "another operation": ("row_max", "f32", r"max\.NaN\.f32", "min.NaN.f32", " in the PTX and "),
    "another distance": ("row_max", "f32", r"(shfl\.sync\.bfly\.b32\s+%r\d+\|%p\d+, %r\d+,) (%r\d+|\d+)", r"\1 3", ""),
    "an element further": ("transpose", "bf16", r"(st\.global\S*\s+\[%rd\d+)\]", r"\1+64]", ""),
    "a store too far": ("row_max", "f32", r"(st\.global\S*\s+\[%rd\d+)\]", r"\1+1048576]", "PTX010"),
    "a barrier for more threads": ("transpose", "bf16", r"bar\.sync\s+0;", "bar.sync 0, 2048;", "PTX017"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_refuted(name: str) -> None:
    example, dtype, pattern, to, told = MISTAKES[name]
    image = compiled(example, dtype).kernels[0]

    def edit(ptx: str) -> str:
        assert re.search(pattern, ptx)
        return re.sub(pattern, to, ptx)

    (difference,) = executed(image, edit).differences
    assert difference.refuted
    assert told in difference.what
    assert re.search(r", of .*\b[A-Z]\w* = \d+", difference.what)


def test_bytes_between_rows_are_compared() -> None:
    mine = SampledTensor(np.zeros(256, np.uint8), np.dtype(np.float32), (3, 5), (8, 1))
    for at, same in ((4 * 4, True), (5 * 4, False), (8 * 4 + 3, True), (23 * 4, False)):
        other = mine.copied()
        other.block[at] = 1
        assert differential.same_around(mine, other) is same


def test_f32_is_compared_to_twenty_digits() -> None:
    x = np.array([1, 4], np.float32)
    assert not differential.apart(x, x * np.float32(1 + 2.0**-21), exact=True).any()
    assert differential.apart(x, x * np.float32(1 + 2.0**-18), exact=True).all()


@tw.kernel
def least_seventh(x: tw.Tensor["M"], y: tw.Tensor["M"], z: tw.Tensor["M"]):
    m = tw.grid(x, 64)
    z[m] = tw.minimum(x[m], y[m]) // 7


def test_words_are_drawn_from_all_of_their_range() -> None:
    """In some launch both operands often have their upper bit, and the ends of the dtype are among the words."""
    (image, *_) = least_seventh.compile(dtypes=dict.fromkeys("xyz", "u32")).kernels
    kernel = transport_kernel(image.transport_ir)
    given = [g.tensors for seed in range(12) if (g := sample_arguments(kernel, seed)) is not None]
    pairs = [(g["x"].view, g["y"].view) for g in given if g["x"].view.size]
    assert any((np.minimum(x, y) > 2**31).mean() > 0.1 for x, y in pairs)
    assert any((x == 2**32 - 1).any() for x, _ in pairs)


def test_what_lies_between_rows_is_compared() -> None:
    """A kernel whose rows begin at multiples of 16 bytes, and a store between two of them."""
    image = compiled("row_max", "f32").kernels[0]
    kernel = transport_kernel(image.transport_ir)
    given = next(
        g for seed in range(40) if (g := sample_arguments(kernel, seed)) and g.tensors["x"].strides[0] > g.extents["N"]
    )
    mine, other = given.tensors["x"].copied(), given.tensors["x"].copied()
    assert np.array_equal(mine.view, given.tensors["x"].view)
    assert differential.same_around(mine, other)
    other.view[...] = 0
    assert differential.same_around(mine, other)
    other.block[4 * given.extents["N"]] = 1
    assert not differential.same_around(mine, other)


def test_floats_differ_by_more_than_rounding() -> None:
    a = np.array([1.0, -2.0, np.nan, np.inf, 0.0], np.float32)
    assert not differential.apart(a, np.array([1 + 2**-22, -2.0, np.nan, np.inf, -0.0], np.float32), exact=True).any()
    b = np.array([1.01, 2.0, 1.0, -np.inf, np.nan], np.float32)
    assert differential.apart(a, b, exact=True).all()
    assert differential.apart(a, b, exact=False).tolist() == [False, True, True, True, True]
    assert differential.apart(np.array([1, 2]), np.array([1, 3]), exact=False).tolist() == [False, True]


@tw.kernel
def shown(x: tw.Tensor["N"], y: tw.Tensor["N"], *, f: tw.f32):
    n = tw.grid(x, 8)
    y[n] = x[n] * f
    tw.print("{} and {}", f, x[n])


def test_a_kernel_that_prints_is_executed() -> None:
    """Its PTX calls a function, and is undecided."""
    (image,) = shown.compile().kernels
    found = executed(image)
    assert not found.differences
    assert len(found.launches) >= differential.LAUNCHES


@tw.kernel
def grouped(offsets: tw.Offsets["G + 1"], a: tw.Tensor["T", "K"], b: tw.Tensor["G", "N", "K"], c: tw.Tensor["T", "N"]):
    g, m, n = tw.ragged_grid(offsets, c.shape, (64, 64))
    acc = tw.zeros((m, n), tw.f32)
    for k in tw.stream(a.shape[1], 64):
        acc += tw.dot(a[m, k], b[g, n, k].T)
    c[m, n] = acc


@pytest.mark.slow
def test_ctas_do_several_programs() -> None:
    """A CTA that goes on behind the program that it has drawn: of launches with a CTA a program none shows it."""
    artifact = grouped.compile(dtypes={"offsets": "i32", **dict.fromkeys("abc", "bf16")})
    image = next(image for image in artifact.kernels if "drawn = next;" in image.source)
    kernel = transport_kernel(image.transport_ir)
    skips = image.source.replace("drawn = next;", "drawn = next + 1;")
    ptx = assemble(skips, SM90A.name, image.symbol).ptx
    assert not executed(image).differences
    (difference,) = differential.run_differential_test(kernel, ptx, recipe([kernel])).differences
    assert difference.refuted


@tw.kernel
def causal(q: tw.Tensor["S", 64], k: tw.Tensor["T", 64], v: tw.Tensor["T", 64], o: tw.Tensor["S", 64]):
    s = tw.grid(q.shape[0], 64)
    acc = tw.zeros((s, 64), tw.f32)
    for t in tw.stream(k.shape[0], 64, until=s.stop):
        x = tw.where(s.index[:, None] >= t.index[None, :], tw.dot(q[s, :], k[t, :].T), 0.0)
        acc += tw.dot(x.to(q.dtype), v[t, :])
    o[s, :] = acc


@pytest.mark.slow
def test_programs_are_walked_in_both_directions() -> None:
    """Of launches in which every CTA has one program, or two, none shows how the second round is numbered."""
    image = causal.compile(dtypes=dict.fromkeys("qkvo", "bf16")).kernels[0]
    kernel, ahead = transport_kernel(image.transport_ir), "dealt = (round + 1) * (int)gridDim.x;"
    assert "dealt = round * (int)gridDim.x;" in image.source
    text = image.source.replace("dealt = round * (int)gridDim.x;", ahead)
    ptx = assemble(text, SM90A.name, image.symbol).ptx
    assert differential.run_differential_test(kernel, image.ptx, recipe([kernel])).differences == ()
    assert differential.run_differential_test(kernel, ptx, recipe([kernel])).differences != ()


@pytest.mark.slow
def test_counters_go_around_in_launches_on_one_cta() -> None:
    """Of the uses of a pipeline the text keeps the stage and no phase."""
    image = grouped.compile(dtypes={"offsets": "i32", **dict.fromkeys("abc", "bf16")}).kernel("kernel_grouped")
    kernel = transport_kernel(image.transport_ir)
    (period,) = {int(n) for n in re.findall(r"i_a_b %= (\d+);", image.source)}
    text = image.source.replace(f"i_a_b %= {period};", f"i_a_b %= {period // 2};")
    ptx = assemble(text, SM90A.name, image.symbol).ptx
    assert differential.run_differential_test(kernel, image.ptx, recipe([kernel])).differences == ()
    assert differential.run_differential_test(kernel, ptx, recipe([kernel])).differences != ()
