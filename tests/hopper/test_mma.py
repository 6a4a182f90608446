"""Products by mma.sync, of targets without wgmma: simulated, validated, executed as PTX."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from xdsl.dialects.builtin import IntAttr
from xdsl.utils.exceptions import VerifyException

import tilewright as tw
from support import products as p
from support.slow import rest_slow
from tilewright import simulate
from tilewright.artifact.schema import Launch
from tilewright.codegen.assemble import assemble
from tilewright.codegen.cuda import emit_kernel
from tilewright.compiler import differential
from tilewright.compiler.launch_recipe import recipe
from tilewright.compiler.planned import PlannedKernel
from tilewright.compiler.program import plan
from tilewright.compiler.validated import validated
from tilewright.hw.target import SM80, SM100A, Target
from tilewright.transport import asynchronous as a
from tilewright.transport import dialect as t
from tilewright.validate.transport_to_ptx import compare

Array = np.ndarray[Any, np.dtype[Any]]
RNG = np.random.default_rng(8)
DTYPES: dict[str, Any] = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}
LAYOUTS = [(p.nt, False, True), (p.nn, False, False), (p.tn, True, False), (p.tt, True, True)]
KERNELS = [p.nt, p.nn, p.tn, p.tt, p.biased, p.gated, p.chained]
IDS = ["nt", "nn", "tn", "tt", "biased", "gated", "chained"]
SIZES = [(64, 64, 64), (70, 72, 136), (1, 8, 1), (129, 40, 65)]


def planned(kernel: tw.Kernel, dtype: str = "f16", target: Target = SM80, **extents: Any) -> PlannedKernel:
    (variant,) = plan(replace(p.request(kernel, dtype, **extents), target=target)).variants
    return variant


def products(kernel: t.Kernel) -> list[a.Mma]:
    return [op for op in kernel.walk() if isinstance(op, a.Mma)]


def assembled(kernel: t.Kernel) -> str:
    emitted = emit_kernel(kernel)
    return assemble(emitted.source, kernel.target.name, emitted.entry).ptx


def padded(rows: int, columns: int, dtype: Any) -> Array:
    """Random values in rows of a multiple of 16 bytes; NaNs behind each."""
    whole = np.full((rows, -(-columns // 8) * 8), np.nan, dtype)
    whole[:, :columns] = RNG.normal(size=(rows, columns)).astype(dtype)
    return whole[:, :columns]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("kernel", "ta", "tb"), LAYOUTS, ids=["nt", "nn", "tn", "tt"])
def test_products(kernel: tw.Kernel, ta: bool, tb: bool, dtype: str) -> None:
    lowered = planned(kernel, dtype).transport
    assert products(lowered)
    assert not any(isinstance(op, t.Fma) for op in lowered.walk())
    for m, n, k in SIZES:
        left, right = (
            padded(*((k, m) if ta else (m, k)), DTYPES[dtype]),
            padded(*((n, k) if tb else (k, n)), DTYPES[dtype]),
        )
        out = padded(m, n, DTYPES[dtype])
        simulate.run(lowered, {"a": left, "b": right, "c": out}, seed=m)
        x, y = (z.astype(np.float64) for z in (left.T if ta else left, right.T if tb else right))
        error: Array = np.abs(out.astype(np.float64) - x @ y)
        rounding = 2.0 ** (-8 if dtype == "bf16" else -11)
        assert np.all(error <= rounding * np.abs(x @ y) + 1e-5 * (np.abs(x) @ np.abs(y)))


@pytest.mark.parametrize("kernel", rest_slow(KERNELS, [p.nt, p.tn, p.biased, p.chained]), ids=IDS)
def test_validated(kernel: tw.Kernel) -> None:
    _is_validated(planned(kernel))


@pytest.mark.parametrize("kernel", rest_slow([p.nt, p.gated], 1), ids=["nt", "gated"])
def test_validated_for_sm_100a(kernel: tw.Kernel) -> None:
    """Its PTX names the threads along one axis alone, and knows that dynamic shared memory begins at 16 bytes."""
    _is_validated(planned(kernel, target=SM100A))


@pytest.mark.parametrize("wrong", [(r"\.maxntid 128", ".maxntid 128, 2"), ("4294967280", "4294967264")])
def test_other_text_for_sm_100a_is_seen(wrong: tuple[str, str]) -> None:
    kernel = planned(p.nt, target=SM100A).transport
    ptx = assembled(kernel)
    other = re.sub(*wrong, ptx)
    assert other != ptx
    launch = recipe([kernel]).steps[-1]
    assert isinstance(launch, Launch)
    assert compare(kernel, other, launch.args, launch.grid[0], 1)


def _is_validated(variant: PlannedKernel) -> None:
    ptx = assembled(variant.transport)
    assert "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32" in ptx
    found = validated(variant.tile, variant.transport, ptx)
    assert found.undecided == (), found.undecided
    assert {o.method for o in found.certificate} == {"translation validation"}


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_ptx_machine_and_the_simulator_agree(dtype: str) -> None:
    lowered = planned(p.nt, dtype).transport
    found = differential.run_differential_test(lowered, assembled(lowered), recipe([lowered]))
    assert found.launches
    assert not found.differences


@pytest.mark.parametrize("attribute", ["first", "b_register"])
def test_other_registers_are_refused(attribute: str) -> None:
    """One mma that names other registers: neither is its kernel the program (``test_validated`` has it right), nor the
    right PTX its own."""
    variant = planned(p.nt)
    ptx = assembled(variant.transport)
    first, second = products(variant.transport)[:2]
    first.attributes[attribute] = second.attributes[attribute]
    found = validated(variant.tile, variant.transport, ptx)
    assert found.refuted
    assert {u.partition(":")[0] for u in found.undecided} == {"lowering", "ptx"}


def test_registers_beyond_a_buffer_are_no_operands() -> None:
    kernel = planned(p.nt).transport
    first = products(kernel)[0]
    first.attributes["first"] = IntAttr(t.registers_of(first.accumulator).count.data)
    with pytest.raises(VerifyException, match="4 registers from"):
        kernel.verify()


def test_a_depth_that_mma_does_not_divide_is_multiplied_by_ordinary_arithmetic() -> None:
    assert not products(planned(p.nt, bm=64, bn=64, bk=24).transport)
