"""Weights beside rows that are laid from a boundary: each of their vectors lies in two aligned ones and is shifted."""

# pyright: reportUndefinedVariable=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
# ruff: noqa: F821, UP037

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from xdsl.utils.exceptions import VerifyException

import tilewright as tw
from support.parsed import tile_kernel, transport_kernel
from tilewright.artifact.schema import Artifact, KernelImage, Launch
from tilewright.base.dtypes import DTYPES
from tilewright.base.expr import Const, Sym
from tilewright.base.verdict import Proved, Unknown
from tilewright.compiler.proofs.offsets import prove_offsets
from tilewright.compiler.proofs.stores import prove_stores
from tilewright.schedule.facts import CallFacts, Observed, observe_facts
from tilewright.tile import dialect as tile
from tilewright.transport import dialect as t
from tilewright.transport.ops.base import ExprAttr
from tilewright.validate.match import Difference
from tilewright.validate.tile_to_transport.compare import compare as compare_lowering
from tilewright.validate.transport_to_ptx import compare as compare_ptx


@tw.kernel
def weighed(x: tw.Tensor["M", "N"], w: tw.Tensor["N"], y: tw.Tensor["M", "N"], *, upto: int = 1000):
    """A row divided by its sum, times a weight for each column."""
    m = tw.grid(x.shape[0], 1)
    n = tw.axis(x.shape[1], upto=upto)
    row = x[m, n].to(tw.f32)
    y[m, n] = row / row.sum(1)[:, None] * w[n].to(tw.f32)


def facts(dtype: str, address: int = 0) -> CallFacts:
    """Packed rows of 777 elements; the weights begin at ``address``."""
    shapes = {"x": (3, 777), "w": (777,), "y": (3, 777)}
    seen = {
        name: Observed(DTYPES[dtype], address if name == "w" else 0, shape, (777, 1)[-len(shape) :])
        for name, shape in shapes.items()
    }
    return observe_facts(seen)


@cache
def artifact(dtype: str = "bf16") -> Artifact:
    return weighed.compile(dtypes=dict.fromkeys("xwy", dtype), facts=facts(dtype))


def longest(dtype: str = "bf16") -> tuple[KernelImage, Launch]:
    """The kernel for the longest rows, and its launch."""
    launch = next(step for step in artifact(dtype).variants[-1].steps if isinstance(step, Launch))
    return artifact(dtype).kernel(launch.kernel), launch


def source() -> tile.Kernel:
    """The Tile IR."""
    return tile_kernel(longest()[0].tile_ir)


def kernel(changed: Callable[[t.Kernel], None] = lambda _: None, dtype: str = "bf16") -> t.Kernel:
    """The Transport IR, changed."""
    found = transport_kernel(longest(dtype)[0].transport_ir)
    changed(found)
    return found


def compared(
    change: Callable[[str], str] = str, dtype: str = "bf16", given: t.Kernel | None = None
) -> tuple[Difference, ...]:
    image, launch = longest(dtype)
    return compare_ptx(given or kernel(dtype=dtype), change(image.ptx), launch.args, launch.grid[0], 1)


def shifted(lowered: t.Kernel) -> t.Load:
    """The load of the weights."""
    (found,) = (op for op in lowered.walk() if isinstance(op, t.Load) and op.shift is not None)
    return found


@pytest.mark.parametrize("dtype", ["bf16", "f16", "f32"])
def test_the_ptx_does_what_the_ir_says(dtype: str) -> None:
    assert shifted(kernel(dtype=dtype)).vector.data * DTYPES[dtype].bytes == 16
    assert compared(dtype=dtype) == ()
    assert compare_lowering(tile_kernel(longest(dtype)[0].tile_ir), kernel(dtype=dtype)) == ()


def test_weights_between_boundaries_are_loaded_one_by_one() -> None:
    found = weighed.compile(dtypes=dict.fromkeys("xwy", "bf16"), facts=facts("bf16", 2))
    loads = [
        op for image in found.kernels for op in transport_kernel(image.transport_ir).walk() if isinstance(op, t.Load)
    ]
    assert all(op.shift is None for op in loads)


@pytest.mark.parametrize(("width", "pitch", "offset"), [(513, 513, 0), (777, 781, 3), (990, 991, 7), (993, 1000, 5)])
def test_rows_at_any_address(width: int, pitch: int, offset: int) -> None:
    dtype = np.dtype(np.float16)

    def placed(rows: int, pitch: int, offset: int) -> Any:
        memory = np.full(rows * pitch + 64, np.nan, dtype)
        first = -memory.__array_interface__["data"][0] % 16 // 2 + offset
        return memory[first : first + rows * pitch].reshape(rows, pitch)

    x, y = placed(3, pitch, offset)[:, :width], placed(3, pitch, offset)[:, :width]
    w = placed(1, width, 0)[0]
    random = np.random.default_rng(0)
    x[...], w[...] = random.uniform(0.5, 1.5, x.shape), random.uniform(-2, 2, w.shape)
    weighed(x, w, y)
    row = x.astype(np.float64)
    np.testing.assert_allclose(y, row / row.sum(1, keepdims=True) * w.astype(np.float64), rtol=2e-3, atol=1e-6)


OTHER_PTX = {
    "an element beside": (r"mov\.u32 (\s*%r\d+), 21554;", r"mov.u32 \1, 12816;"),
    "by half as many": (r"and\.b32 (\s*%r\d+, %r\d+), 4;", r"and.b32 \1, 2;"),
    "not by a single element": (r"and\.b32 (\s*%r\d+, %r\d+), 1;", r"and.b32 \1, 0;"),
    "the vector before is another one": (r"(ld\.global\.nc\.v4\.u32 .*)\+-16\]", r"\1+-32]"),
    "the vector behind is the one before": (r"(ld\.global\.nc\.v4\.u32 .*\[%rd\d+)\]", r"\1+-16]"),
}


@pytest.mark.parametrize("what", OTHER_PTX)
def test_mistakes_in_the_ptx_are_refused(what: str) -> None:
    old, new = OTHER_PTX[what]

    def change(text: str) -> str:
        assert re.search(old, text)
        return re.sub(old, new, text)

    assert compared(change)


def test_a_vector_beyond_the_weights_is_refused() -> None:
    """Without the test that both vectors lie inside, in the PTX or in the IR."""

    def change(text: str) -> str:
        before, pair, rest = text.partition("+-16]")
        (*_, name) = re.findall(r"\n(\$L\S+):", before)
        branch = rf"@%p\d+ bra (\s*{re.escape(name)};)"
        assert len(re.findall(branch, before)) == 1
        return re.sub(branch, r"bra \1", before) + pair + rest

    assert any("reads w" in difference.what for difference in compared(change))


def test_elements_alone_do_not_guard_both_vectors() -> None:
    def changed(lowered: t.Kernel) -> None:
        load = shifted(lowered)
        let = next(op for op in lowered.walk() if isinstance(op, t.Let) and op.symbol.data == load.shifted)
        again = t.Let("$again", let.value.expr)
        assert let.parent is not None
        let.parent.insert_op_after(again, let)
        load.attributes["guard"] = ExprAttr.of(load.guard.expr.substitute({"$skew": Sym("$again")}))

    assert isinstance(prove_stores(source(), kernel()), Proved)
    found = prove_stores(source(), kernel(changed))
    assert not isinstance(found, Proved)
    assert "inside w" in str(found)


def test_the_wrong_elements_are_refused() -> None:
    def beside(lowered: t.Kernel) -> None:
        load = shifted(lowered)
        load.attributes["coords"] = type(load.coords)([ExprAttr.of(load.coords.data[0].expr + 8)])

    assert compare_lowering(source(), kernel(beside))
    assert compared(given=kernel(beside))


@pytest.mark.parametrize("what", ["more than a vector", "not from a boundary", "no vector's beginning", "not shifted"])
def test_vectors_that_begin_elsewhere_are_not_aligned(what: str) -> None:
    def changed(lowered: t.Kernel) -> None:
        load = shifted(lowered)
        let = next(op for op in lowered.walk() if isinstance(op, t.Let) and op.symbol.data == load.shifted)
        match what:
            case "more than a vector":
                assert let.parent is not None
                let.parent.insert_op_before(t.Let("$other", let.value.expr.numerator % 16), let)  # type: ignore
                load.attributes["shift"] = ExprAttr.of(Sym("$other"))
            case "not from a boundary":
                facts = [f for f in lowered.assumptions if "w.address" not in f.expr.symbols]
                lowered.attributes["assumptions"] = type(lowered.assumptions)(facts)
            case "no vector's beginning":
                load.attributes["coords"] = type(load.coords)([ExprAttr.of(load.coords.data[0].expr + 4)])
            case _:
                del load.attributes["shift"]

    assert isinstance(prove_offsets(kernel()), Proved)
    assert isinstance(prove_offsets(kernel(changed)), Unknown)


def test_only_the_coordinate_of_a_vector_is_shifted() -> None:
    load = shifted(kernel())
    load.attributes["coords"] = type(load.coords)(
        [ExprAttr.of(load.coords.data[0].expr.substitute({"$skew": Const(0)}))]
    )
    with pytest.raises(VerifyException, match="is not less by"):
        load.verify()
