"""Emitted CUDA C++ compiles for every target, for every operation and element type."""

# ruff: noqa: F821, UP037 - dimension names are strings

from __future__ import annotations

import re

import pytest

import tilewright as tw
from support.generality import CASES
from tilewright.artifact.schema import Artifact
from tilewright.base.dtypes import DType
from tilewright.codegen.assemble import assemble, defects
from tilewright.codegen.cuda import emit_kernel
from tilewright.codegen.prelude import prelude
from tilewright.jit import Kernel
from tilewright.jit.kernel import Kernel as KernelObject
from tilewright.schedule.facts import CallFacts, TensorFacts

pytestmark = pytest.mark.sample(1)

FLOATS, INTEGERS = (tw.f32, tw.f16, tw.bf16), (tw.i8, tw.i32, tw.i64)
STORED = (tw.e4m3, tw.e5m2)
"""Floats that are stored and multiplied by tensor cores, and computed with after a cast."""


@tw.kernel
def float_ops(a: tw.Tensor["M", "N"], b: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"], s: tw.Tensor["M"], *, bm=4):
    m, n = tw.grid(a.shape[0], bm), tw.axis(a.shape[1], upto=64)
    p, q = a[m, n], b[m, n]
    v = (p + q) * (p - q) / tw.maximum(q, tw.minimum(p, 2.0))
    v = tw.exp(v) + tw.exp2(v) - tw.log(tw.abs(v)) + tw.log2(v) * tw.sqrt(v) + tw.rsqrt(v)
    v = tw.where((p < q) | ~(p == q) & (p >= q), tw.tanh(v) + tw.sigmoid(v), tw.erf(-v))
    y[m, n] = v
    s[m] = v.sum(1) + v.max(1) * v.min(1) - v.mean(1) + v.argmax(1).to(tw.f32).to(a.dtype)


@tw.kernel
def integer_ops(a: tw.Tensor["M", "N"], b: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"], s: tw.Tensor["M"], *, bm=4):
    m, n = tw.grid(a.shape[0], bm), tw.axis(a.shape[1], upto=64)
    p, q = a[m, n], b[m, n]
    v = (p + q) * (p - q) // tw.maximum(q, tw.minimum(p, 2)) % (q | 1)
    v = tw.where((p < q) ^ (p != q), (v << 1) >> 2, (v & p) ^ (v | q)) - tw.abs(-v)
    y[m, n] = v
    s[m] = v.sum(1).to(a.dtype) + v.max(1) * v.min(1) + v.argmax(1).to(a.dtype)


@tw.kernel
def bool_ops(a: tw.Tensor["M", "N"], b: tw.Tensor["M", "N"], y: tw.Tensor["M", "N"], s: tw.Tensor["M"], *, bm=4):
    m, n = tw.grid(a.shape[0], bm), tw.axis(a.shape[1], upto=64)
    p, q = a[m, n], b[m, n]
    v = (p & q) | ~(p ^ q)
    y[m, n] = v
    s[m] = v.to(tw.i32).sum(1) > 3


@tw.kernel
def casts(x: tw.Tensor["M"], y: tw.Tensor["M"], *, b=256):
    m = tw.grid(x, b)
    y[m] = x[m].to(y.dtype)


@tw.kernel
def adds(x: tw.Tensor["M"], y: tw.Tensor["M"], *, b=256):
    m = tw.grid(x, b)
    tw.reduce_add(y, m, x[m])


@tw.kernel
def prints(x: tw.Tensor["M"], *, n: tw.i32, b=64):
    m = tw.grid(x, b)
    v = x[m]
    x[m] = v
    tw.print("x = {} of {}", v, n)


def compiled(kernel: tw.Kernel, target: str = "sm_90a", **options: object) -> list[str]:
    """Sources of all variants, each assembled without a defect."""
    request = KernelObject(kernel)._ahead(
        target, options.get("dtypes"), None, None, options.get("facts"), options.get("keywords", {})
    )
    sources: list[str] = []
    for variant in Kernel(kernel)._plan(request).variants:
        emitted = emit_kernel(variant.transport)
        result = assemble(emitted.source, target, emitted.entry)
        assert defects(result) == ()
        assert "#include" not in emitted.source
        sources.append(emitted.source)
    return sources


def uniform(kernel: tw.Kernel, dtype: DType) -> dict[str, DType]:
    return {t.name: dtype for t in kernel.tensors}


@pytest.mark.parametrize("numerics", ["strict", "fast"])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_operations_on_floats(dtype: DType, numerics: str) -> None:
    kernel = tw.kernel(numerics=numerics)(float_ops.fn)
    compiled(kernel, dtypes=uniform(float_ops, dtype))


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_operations_on_integers(dtype: DType) -> None:
    compiled(integer_ops, dtypes=uniform(integer_ops, dtype))


def test_operations_on_bools() -> None:
    compiled(bool_ops, dtypes=uniform(bool_ops, tw.bool))


@pytest.mark.parametrize("source", [*FLOATS, *STORED, *INTEGERS, tw.bool], ids=str)
def test_casts(source: DType) -> None:
    for target in (*FLOATS, *STORED, *INTEGERS, tw.bool):
        compiled(casts, dtypes={"x": source, "y": target})


@pytest.mark.parametrize("target", ["sm_80", "sm_100a"])
@pytest.mark.parametrize("dtype", STORED, ids=str)
def test_casts_of_8_bit_floats_on_other_targets(dtype: DType, target: str) -> None:
    compiled(casts, target, dtypes={"x": dtype, "y": tw.f32})
    compiled(casts, target, dtypes={"x": tw.f32, "y": dtype})


@pytest.mark.parametrize("dtype", [tw.f16, tw.bf16, tw.tf32, tw.e4m3, tw.e5m2, tw.i8], ids=str)
def test_a_value_that_stays_in_registers_is_one_of_its_dtype(dtype: DType) -> None:
    """Between the two casts the value is never packed, so the first must round, or saturate, by itself."""

    @tw.kernel
    def through(x: tw.Tensor["M"], y: tw.Tensor["M"], *, b=256):
        m = tw.grid(x, b)
        y[m] = x[m].to(dtype).to(tw.f32)

    (source,) = compiled(through)
    assert ("= i8_of_f32(x0);" if dtype == tw.i8 else f"= {dtype}_round(x1);") in source


def test_i8_wraps_before_it_is_widened() -> None:
    @tw.kernel
    def doubled(x: tw.Tensor["M"], y: tw.Tensor["M"], *, b=256):
        m = tw.grid(x, b)
        v = x[m]
        y[m] = (v + v).to(tw.i32)

    (source,) = compiled(doubled, dtypes={"x": tw.i8, "y": tw.i32})
    assert "i8_round(x1)" in source


@pytest.mark.parametrize("dtype", [tw.f32, tw.f16, tw.bf16, tw.i32, tw.i64], ids=str)
def test_atomic_adds(dtype: DType) -> None:
    compiled(adds, dtypes=uniform(adds, dtype))


def test_prints() -> None:
    (source,) = compiled(prints)
    assert 'printf("x = %g of %lld\\n"' in source


@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "sm_100a"])
def test_every_target(target: str) -> None:
    for name in ("two_streams", "symmetric", "mixed_dtypes"):
        kernel = CASES[name].kernel
        dtypes = {"x": tw.f16, "pick": tw.i32, "hits": tw.bool} if name == "mixed_dtypes" else {}
        compiled(kernel, target, dtypes=dtypes)


def test_no_part_of_a_load_is_shorter_than_its_vectors() -> None:
    """Rows of few vectors, several to a warp: what is skipped is skipped by whole vectors."""
    align = {"x": 4, "hits": 2, "pick": 16, "y": 16}
    kernel = CASES["mixed_dtypes"].kernel
    facts = CallFacts(tuple((t.name, TensorFacts(len(t.dims) - 1, align[t.name])) for t in kernel.tensors))
    for source in compiled(kernel, dtypes={"x": tw.f16, "pick": tw.i32, "hits": tw.bool}, facts=facts):
        assert not re.search(r"for \(int \w+ = 0; \w+ < 0;", source)


def test_wide_offsets() -> None:
    facts = CallFacts(tuple((t.name, TensorFacts(None, 4)) for t in float_ops.tensors), 64)
    for source in compiled(float_ops, facts=facts):
        strides = re.findall(r"const (\S+ ?\S*) stride\d_a", source)
        assert strides
        assert set(strides) == {"long long"}


def test_comments_name_the_users_lines() -> None:
    (source, *_) = compiled(casts)
    line = casts.where.line + 3
    assert f"test_assemble.py:{line}" in source


def test_the_same_source_twice() -> None:
    assert compiled(float_ops) == compiled(float_ops)


def test_only_what_is_called_is_defined() -> None:
    assert prelude(["y = x + 1;"]) == ""
    text = prelude(["y = f16_round(x);"])
    assert text.index("f16_get") < text.index("f16_round")
    assert "bf16" not in text


def test_an_artifact_has_all_its_parts() -> None:
    artifact = Kernel(casts).compile(dtypes={"x": "bf16", "y": "f32"})
    assert isinstance(artifact, Artifact)
    (image,) = artifact.kernels
    assert image.cubin[:4] == b"\x7fELF"
    assert ".target sm_90a" in image.ptx
    assert image.spill_bytes == 0
    assert {o.name.split()[0] for o in image.certificate} == {"aligned", "domain", "guards", "offsets", "once"}


def test_an_instruction_for_which_registers_lack_is_a_defect() -> None:
    """wgmma of 256 columns has 128 accumulators a thread; a CTA of 1024 threads leaves each 64 registers."""
    sums = ", ".join(f'"+f"(d[{i}])' for i in range(128))
    names = ", ".join(f"%{i}" for i in range(128))
    source = f"""extern "C" __global__ void __launch_bounds__(1024) f(float* y) {{
      float d[128]; unsigned long long a = 0, b = 0;
      for (int i = 0; i < 128; ++i) d[i] = y[i];
      asm volatile("wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {{{names}}}, %128, %129, 1, 1, 1, 0, 0;"
        : {sums} : "l"(a), "l"(b));
      for (int i = 0; i < 128; ++i) y[i] = d[i];
    }}"""
    (defect,) = defects(assemble(source, "sm_90a", "f"))
    assert defect.startswith("(C7602) Insufficient registers")
