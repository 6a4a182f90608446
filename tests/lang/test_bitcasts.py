"""Bits of one dtype as another: every pair of a width, every pattern or many, and what has no bits to give."""

# ruff: noqa: F821, UP037 - dimension names are strings

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from support.lowered import lowered
from support.ptx_driver import run_artifact
from support.refusals import checked
from support.tile_evaluator import NUMPY
from tilewright.codegen.assemble import assemble
from tilewright.compiler.build import emit_kernel
from tilewright.compiler.validated import validated

pytestmark = pytest.mark.sample(4)

WIDTHS = (("i8", "u8", "e4m3", "e5m2"), ("i16", "u16", "f16", "bf16"), ("i32", "u32", "f32"))
PAIRS = [pair for names in WIDTHS for pair in permutations(names, 2)]


def kernel_to(dtype: str) -> tw.Kernel:
    target = getattr(tw, dtype)

    @tw.kernel
    def seen(x: tw.Tensor["M"], y: tw.Tensor["M"], *, bm=256):
        m = tw.grid(x, bm)
        y[m] = x[m].view(target)

    return seen


def patterns(dtype: str) -> np.ndarray:
    """All elements of 8 and 16 bits, and many of 32."""
    kind = NUMPY[dtype]
    if kind.itemsize == 4:
        words = np.random.default_rng(1).integers(0, 2**32, 4096, dtype=np.uint32)
        words[:6] = 0, 1 << 31, 0x7F800000, 0xFF800000, 1, 0x3F800000
        return words.view(kind)
    return np.arange(1 << 8 * kind.itemsize).astype(f"u{kind.itemsize}").view(kind)


def agree(found: np.ndarray, x: np.ndarray) -> None:
    """The bits are those of ``x``, but for what is NaN on either side."""
    bits, expected = (v.view(f"u{v.itemsize}") for v in (found, x))
    wide, seen = (v.astype(np.float64) for v in (x, x.view(found.dtype)))
    numbers = ~(np.isnan(wide) | np.isnan(seen))
    assert (bits[numbers] == expected[numbers]).all()
    if found.dtype.kind not in "iu":
        assert np.isnan(found.astype(np.float64))[np.isnan(seen) & ~np.isnan(wide)].all()


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_the_bits_stay(source: str, target: str) -> None:
    x = patterns(source)
    simulated, executed = (np.empty(len(x), NUMPY[target]) for _ in range(2))
    kernel = kernel_to(target)
    with np.errstate(invalid="ignore"):
        kernel(x, simulated)
        agree(simulated, x)
        run_artifact(kernel.compile(dtypes={"x": source, "y": target}), {"x": x, "y": executed})
        agree(executed, x)


@pytest.mark.parametrize(("source", "target"), [pair for pair in PAIRS if "e5m2" not in pair])
def test_the_ptx_is_validated(source: str, target: str) -> None:
    for tiles, kernel in lowered(kernel_to(target), {"x": source, "y": target}).values():
        emitted = emit_kernel(kernel)
        ptx = assemble(emitted.source, "sm_90a", emitted.entry).ptx
        assert validated(tiles, kernel, ptx).undecided == ()


def test_bits_are_computed_with() -> None:
    """The classic: an estimate of 1 / sqrt(x) from the exponent, halved."""

    @tw.kernel
    def estimate(x: tw.Tensor["M"], y: tw.Tensor["M"]):
        m = tw.grid(x, 64)
        guess = (0x5F3759DF - (tw.bitcast(x[m], tw.i32) >> 1)).view(tw.f32)
        y[m] = guess * (1.5 - 0.5 * x[m] * guess * guess)

    x = np.float32([0.01, 0.5, 1, 2, 100, 12345])
    y = np.empty_like(x)
    estimate(x, y)
    np.testing.assert_allclose(y, x**-0.5, rtol=2e-3)


@pytest.mark.parametrize(
    ("body", "required"),
    [
        (lambda v: v.view(tw.bf16), "i32"),
        (lambda v: v.to(tw.i64).view(tw.f32), "another is as wide as"),
        (lambda v: (v > 0).view(tw.i8), "same width"),
        (lambda v: v.view(tw.tf32), "i32"),
        (lambda v: tw.bitcast(v.to(tw.i8), tw.bool), "e4m3, e5m2"),
    ],
)
def test_other_widths_are_refused(body: Any, required: str) -> None:
    @tw.kernel
    def kernel(x: tw.Tensor["M"], y: tw.Tensor["M"]):
        m = tw.grid(x, 64)
        y[m] = body(x[m])

    x = np.ones(8, np.float32)
    with pytest.raises(tw.TilewrightError) as caught:
        kernel(x, x.copy())
    assert required in checked(caught.value, "LNG023", None).required
