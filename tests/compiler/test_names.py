"""A kernel under adversarial names is the same: the same CUDA up to its names, the same proofs, the same results.

Names are put into a template's source, so that only they differ: those of the kernel, tensors, dimensions and scalars.
"""

# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

import linecache
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from support.slow import rest_slow
from tilewright.codegen.assemble import assemble
from tilewright.codegen.cuda import emit_kernel
from tilewright.compiler.planned import PlannedKernel
from tilewright.transport.parameters import parameters_of

pytestmark = pytest.mark.sample(1)

Array = np.ndarray[Any, Any]

PLAIN = """
@tw.kernel
def {f}({x}: tw.Tensor["{M}", "{N}"], {y}: tw.Tensor["{M}", "{N}"], {z}: tw.Tensor["{M}"], *, {s}: tw.f32, {k}: tw.i32):
    rows = tw.grid({x}.shape[0], 8)
    columns = tw.axis({x}.shape[1], upto=128)
    row = {x}[rows, columns]
    total = row.sum(1)
    old = {y}[rows, columns]
    {y}[rows, columns] = row * {s} + (columns.index % ({k} + 1))[None, :] + old
    {z}[rows] = total / ({x}.shape[0] * {x}.shape[1]) + row.max(1)
"""
STREAM = """
@tw.kernel
def {f}({x}: tw.Tensor["{M}", "{N}"], {y}: tw.Tensor["{N}", "{K}"], {z}: tw.Tensor["{M}", "{K}"], *, {s}: tw.f32,
        {k}: tw.i32):
    rows, columns = tw.grid({z}, (64, 64))
    acc = tw.zeros((rows, columns), tw.f32)
    for step in tw.stream({x}.shape[1], 64):
        acc += tw.dot({x}[rows, step], {y}[step, columns])
    {z}[rows, columns] = acc * {s} + {k}
"""
PARTS = ("f", "x", "y", "z", "s", "k", "M", "N", "K")
USUAL = ("f", "x", "y", "z", "s", "k", "M", "N", "K")
LOCALS = "x0 x1 x2 out0 tid r v i e b g at word base4_x program p0 p1 k0 k0_full axis0 warpgroup cta grid shared"
PRELUDE = "floor_div floor_mod nothing no_elements max_nan bf16_get wrap_neg mbarrier_wait kernel_f TensorMap i_x_y"
CUDA = "threadIdx blockIdx gridDim __syncthreads __CUDA_ARCH__ printf asm int float4 uint4 make_uint4 min max atomicAdd"
OURS = "max_ i_a_b skew index0 programs trip0 case0 workspace0 x_staged u_x v_x stride0_x address_x cluster_ctarank dim"
POOLS = [pool.split() for pool in (LOCALS, PRELUDE, CUDA, OURS)]
CHOICES = [tuple(pool[(start + i) % len(pool)] for i in range(9)) for pool in POOLS for start in range(0, len(pool), 6)]


def kernel(template: str, names: Sequence[str]) -> Any:
    """The template's kernel under these names."""
    source = template.format(**dict(zip(PARTS, names, strict=True)))
    file = f"<{hash(template)} {' '.join(names)}\n>"  # of any characters too
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    scope: dict[str, Any] = {"tw": tw}
    exec(compile(source, file, "exec"), scope)
    return scope[names[0]]


def planned(made: Any, dtypes: dict[str, Any]) -> tuple[PlannedKernel, ...]:
    compiled = made.compiled
    return compiled._plan(compiled._ahead("sm_90a", dtypes, None, None, None, {})).variants


def canonical(text: str, names: Sequence[str]) -> Counter[tuple[str, ...]]:
    """The words of each emitted line, names of the user back at their usual ones. Sums are sorted by names, and so are
    parameters: neither order counts."""
    text = "\n".join(line for line in text.splitlines() if "//" not in line)
    usual = dict(zip(names, USUAL, strict=True))
    words = "|".join(sorted(map(re.escape, names), key=len, reverse=True))
    text = re.sub(r"\bv_\w+", "buffer", text)  # numbered where one is called as another
    prefixed = re.compile(rf"\b((?:u|stride\d|address|kernel|base\d+)_)({words})\b")
    found = prefixed.sub(lambda m: m[1] + usual[m[2]], text).splitlines()
    return Counter(tuple(sorted(re.findall(r"\w+|[^\w\s,]", line))) for line in found)


def sources(variants: Sequence[PlannedKernel], names: Sequence[str]) -> list[Counter[tuple[str, ...]]]:
    return [canonical(emit_kernel(v.transport).source, names) for v in variants]


def certificates(variants: Sequence[PlannedKernel]) -> list[list[tuple[str, str]]]:
    return [[(o.name, o.method) for o in v.certificate] for v in variants]


def run_plain(made: Any) -> tuple[Array, Array]:
    x = np.arange(9 * 40, dtype=np.float32).reshape(9, 40) / 7
    y, z = np.full_like(x, 1000), np.zeros(9, np.float32)
    made(x, y, z, 3.0, 4)
    return y, z


def test_the_usual_names_give_the_right_result() -> None:
    y, z = run_plain(kernel(PLAIN, USUAL))
    x = np.arange(9 * 40, dtype=np.float32).reshape(9, 40) / 7
    np.testing.assert_allclose(y, x * 3 + np.arange(40) % 5 + 1000, rtol=1e-6)
    np.testing.assert_allclose(z, x.sum(1) / 360 + x.max(1), rtol=1e-5)


@pytest.mark.parametrize("names", CHOICES, ids=lambda n: n[0])
def test_plain_kernels_under_any_names(names: tuple[str, ...]) -> None:
    usual, other = kernel(PLAIN, USUAL), kernel(PLAIN, names)
    a, b = planned(usual, {}), planned(other, {})
    assert sources(b, names) == sources(a, USUAL)
    assert certificates(b) == certificates(a)
    for one, two in zip(run_plain(usual), run_plain(other), strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("names", CHOICES[::3], ids=lambda n: n[0])
def test_products_under_any_names(names: tuple[str, ...]) -> None:
    dtypes = dict.fromkeys(USUAL[1:4], tw.bf16)
    usual, other = kernel(STREAM, USUAL), kernel(STREAM, names)
    a, b = planned(usual, dtypes), planned(other, dict.fromkeys(names[1:4], tw.bf16))
    assert [v.transport.shared_bytes for v in b] == [v.transport.shared_bytes for v in a]
    assert certificates(b) == certificates(a)
    assert [len(parameters_of(v.transport)) for v in b] == [len(parameters_of(v.transport)) for v in a]
    assert all(emit_kernel(v.transport).source for v in b)


@pytest.mark.parametrize("names", rest_slow(CHOICES, [CHOICES[0], CHOICES[-1]]), ids=lambda n: n[0])
def test_emitted_text_compiles_under_any_names(names: tuple[str, ...]) -> None:
    for variant in planned(kernel(PLAIN, names), {})[:1]:
        emitted = emit_kernel(variant.transport)
        assert assemble(emitted.source, "sm_90a", emitted.entry).cubin


def test_plans_and_messages_show_the_users_names() -> None:
    made = kernel(PLAIN, ("f", "tid", "p0", "r", "int", "min", "max", "k0", "x1"))
    text = str(made.compiled.explain())
    assert "tid" in text
    assert "u_tid" not in text
